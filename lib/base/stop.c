/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/stop.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct callback {
    struct callback *next;
    void (*fn)(void *arg);
    void *arg;
    bool running;
    pthread_t thread; /* who runs it */
};

struct stop {
    _Atomic bool requested;
    int fd;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* requested, or a callback ended */
    struct callback *callbacks;
    bool has_signal_thread;
    pthread_t signal_thread;
    int signal_fd;
    int quit_fd; /* ends the signal thread */
};

static int new_eventfd(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        perror("eventfd");
        abort();
    }
    return fd;
}

static void raise_eventfd(int fd)
{
    /* cannot fail but by a full counter, which is just as readable */
    ssize_t ignored = write(fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)ignored;
}

struct stop *stop_new(void)
{
    struct stop *stop = mem_new(struct stop);
    stop->fd = new_eventfd();
    pthread_mutex_init(&stop->lock, NULL);
    clock_cond_init(&stop->changed);
    return stop;
}

void stop_free(struct stop *stop)
{
    if (stop == NULL)
        return;
    if (stop->has_signal_thread) {
        raise_eventfd(stop->quit_fd);
        thread_join(stop->signal_thread);
        close(stop->signal_fd);
        close(stop->quit_fd);
    }
    while (stop->callbacks != NULL) {
        struct callback *callback = stop->callbacks;
        stop->callbacks = callback->next;
        free(callback);
    }
    close(stop->fd);
    pthread_cond_destroy(&stop->changed);
    pthread_mutex_destroy(&stop->lock);
    free(stop);
}

/* Runs a callback without the lock, which is held before and after, and drops it. */
static void run_callback(struct stop *stop, struct callback *callback)
{
    callback->running = true;
    callback->thread = pthread_self();
    pthread_mutex_unlock(&stop->lock);
    callback->fn(callback->arg);
    pthread_mutex_lock(&stop->lock);
    struct callback **link = &stop->callbacks;
    while (*link != callback)
        link = &(*link)->next;
    *link = callback->next;
    free(callback);
    pthread_cond_broadcast(&stop->changed);
}

static struct callback *next_idle(const struct stop *stop)
{
    struct callback *callback = stop->callbacks;
    while (callback != NULL && callback->running)
        callback = callback->next;
    return callback;
}

void stop_request(struct stop *stop)
{
    pthread_mutex_lock(&stop->lock);
    if (!atomic_load(&stop->requested)) {
        atomic_store(&stop->requested, true);
        raise_eventfd(stop->fd);
        pthread_cond_broadcast(&stop->changed);
        /* looked for anew each time: the list changes while a callback runs */
        for (struct callback *callback = NULL; (callback = next_idle(stop)) != NULL;)
            run_callback(stop, callback);
    }
    pthread_mutex_unlock(&stop->lock);
}

bool stop_requested(const struct stop *stop)
{
    return atomic_load(&stop->requested);
}

int stop_fd(const struct stop *stop)
{
    return stop->fd;
}

bool stop_wait_until(struct stop *stop, struct clock *clock, int64_t deadline)
{
    pthread_mutex_lock(&stop->lock);
    while (!atomic_load(&stop->requested) && clock_cond_wait(clock, &stop->changed, &stop->lock, deadline)) {
    }
    bool requested = atomic_load(&stop->requested);
    pthread_mutex_unlock(&stop->lock);
    return requested;
}

bool stop_sleep(struct stop *stop, struct clock *clock, int64_t ns)
{
    int64_t deadline = CLOCK_NEVER;
    if (ns != CLOCK_NEVER && __builtin_add_overflow(clock_mono(clock), ns, &deadline))
        deadline = CLOCK_NEVER;
    return stop_wait_until(stop, clock, deadline);
}

void stop_on(struct stop *stop, void (*fn)(void *arg), void *arg)
{
    struct callback *callback = mem_new(struct callback);
    callback->fn = fn;
    callback->arg = arg;
    pthread_mutex_lock(&stop->lock);
    callback->next = stop->callbacks;
    stop->callbacks = callback;
    if (atomic_load(&stop->requested))
        run_callback(stop, callback);
    pthread_mutex_unlock(&stop->lock);
}

void stop_off(struct stop *stop, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&stop->lock);
    struct callback **link = &stop->callbacks;
    while (*link != NULL) {
        struct callback *callback = *link;
        /* fn may take itself back: waiting for its own end would never end */
        bool ours = callback->fn == fn && callback->arg == arg &&
                    !(callback->running && pthread_equal(callback->thread, pthread_self()));
        if (!ours) {
            link = &callback->next;
        } else if (callback->running) {
            pthread_cond_wait(&stop->changed, &stop->lock);
            link = &stop->callbacks;
        } else {
            *link = callback->next;
            free(callback);
            break;
        }
    }
    pthread_mutex_unlock(&stop->lock);
}

static void *watch_signals(void *arg)
{
    struct stop *stop = arg;
    bool seen = false;
    struct pollfd fds[] = {{.fd = stop->signal_fd, .events = POLLIN}, {.fd = stop->quit_fd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
            return NULL;
        struct signalfd_siginfo info;
        if ((fds[0].revents & POLLIN) != 0 && read(stop->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            if (seen)
                _exit(1);
            seen = true;
            stop_request(stop);
        }
        if ((fds[1].revents & POLLIN) != 0)
            return NULL;
    }
}

void stop_on_signals(struct stop *stop)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    stop->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (stop->signal_fd < 0) {
        perror("signalfd");
        abort();
    }
    stop->quit_fd = new_eventfd();
    stop->has_signal_thread = true;
    stop->signal_thread = thread_start("signals", watch_signals, stop);
}
