/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/clock.h"

#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <errno.h>
#include <time.h>

#define LONG_WAIT CLOCK_SECOND /* before shorter ones, giving the stack back is not worth the system call */

/* A thread inside clock_cond_wait of a fake clock; lives on that thread's stack. */
struct waiter {
    struct waiter *next;
    pthread_cond_t *cond;
    pthread_mutex_t *mutex;
    int64_t deadline;
    bool woken; /* the clock passed the deadline and said so; the thread may not have run yet */
};

struct clock {
    bool fake;
    pthread_mutex_t lock; /* taken after a waiter's mutex, never the other way round */
    pthread_cond_t waiters_changed;
    struct waiter *waiters;
    int waiting; /* waiters that are not woken */
    int64_t mono;
    int64_t wall;
};

struct clock *clock_real(void)
{
    static struct clock real;
    return &real;
}

struct clock *clock_fake_new(int64_t wall_ns)
{
    struct clock *clock = mem_new(struct clock);
    clock->fake = true;
    clock->mono = CLOCK_SECOND;
    clock->wall = wall_ns;
    pthread_mutex_init(&clock->lock, NULL);
    clock_cond_init(&clock->waiters_changed);
    return clock;
}

void clock_free(struct clock *clock)
{
    if (clock == NULL || !clock->fake)
        return;
    pthread_cond_destroy(&clock->waiters_changed);
    pthread_mutex_destroy(&clock->lock);
    free(clock);
}

static int64_t now(clockid_t id)
{
    struct timespec time;
    clock_gettime(id, &time);
    return (int64_t)time.tv_sec * CLOCK_SECOND + time.tv_nsec;
}

int64_t clock_mono(struct clock *clock)
{
    if (!clock->fake)
        return now(CLOCK_MONOTONIC);
    pthread_mutex_lock(&clock->lock);
    int64_t mono = clock->mono;
    pthread_mutex_unlock(&clock->lock);
    return mono;
}

int64_t clock_wall(struct clock *clock)
{
    if (!clock->fake)
        return now(CLOCK_REALTIME);
    pthread_mutex_lock(&clock->lock);
    int64_t wall = clock->wall;
    pthread_mutex_unlock(&clock->lock);
    return wall;
}

void clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

static bool real_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    if (deadline == CLOCK_NEVER || deadline - now(CLOCK_MONOTONIC) >= LONG_WAIT)
        thread_trim_stack();
    if (deadline == CLOCK_NEVER) {
        pthread_cond_wait(cond, mutex);
        return true;
    }
    if (deadline < 0)
        deadline = 0;
    struct timespec until = {.tv_sec = deadline / CLOCK_SECOND, .tv_nsec = deadline % CLOCK_SECOND};
    return pthread_cond_timedwait(cond, mutex, &until) != ETIMEDOUT;
}

static void remove_waiter(struct clock *clock, const struct waiter *waiter)
{
    struct waiter **link = &clock->waiters;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
    if (!waiter->woken)
        clock->waiting--;
}

static bool fake_wait(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    if (deadline == CLOCK_NEVER) { /* no advance can end it */
        pthread_cond_wait(cond, mutex);
        return true;
    }
    struct waiter waiter = {.cond = cond, .mutex = mutex, .deadline = deadline};
    pthread_mutex_lock(&clock->lock);
    bool passed = deadline <= clock->mono;
    if (!passed) {
        waiter.next = clock->waiters;
        /* taken out again before this function returns */
        clock->waiters = &waiter; // cppcheck-suppress autoVariables
        clock->waiting++;
        pthread_cond_broadcast(&clock->waiters_changed);
    }
    pthread_mutex_unlock(&clock->lock);
    if (passed)
        return false;

    pthread_cond_wait(cond, mutex);

    pthread_mutex_lock(&clock->lock);
    remove_waiter(clock, &waiter);
    passed = deadline <= clock->mono;
    pthread_mutex_unlock(&clock->lock);
    return !passed;
}

bool clock_cond_wait(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline)
{
    return clock->fake ? fake_wait(clock, cond, mutex, deadline) : real_wait(cond, mutex, deadline);
}

/* Wakes the due waiters whose mutex is free, and tells whether there are none left. A waiter registers with its mutex
 * held: once that mutex could be taken, the thread really waits for the signal. While clock->lock is held it cannot
 * leave, so its mutex and condition exist. */
static bool wake_due(struct clock *clock)
{
    bool done = true;
    for (struct waiter *waiter = clock->waiters; waiter != NULL; waiter = waiter->next) {
        if (waiter->woken || waiter->deadline > clock->mono)
            continue;
        if (pthread_mutex_trylock(waiter->mutex) != 0) {
            done = false;
            continue;
        }
        waiter->woken = true;
        clock->waiting--;
        pthread_cond_broadcast(waiter->cond);
        pthread_mutex_unlock(waiter->mutex);
    }
    return done;
}

void clock_fake_advance(struct clock *clock, int64_t ns)
{
    pthread_mutex_lock(&clock->lock);
    clock->mono += ns;
    clock->wall += ns;
    while (!wake_due(clock)) {
        /* somebody holds a waiter's mutex and may need the clock to let go of it */
        pthread_mutex_unlock(&clock->lock);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        pthread_mutex_lock(&clock->lock);
    }
    pthread_mutex_unlock(&clock->lock);
}

bool clock_fake_wait_for_waiters(struct clock *clock, int waiters)
{
    int64_t deadline = now(CLOCK_MONOTONIC) + 10 * CLOCK_SECOND;
    pthread_mutex_lock(&clock->lock);
    bool in_time = true;
    while (clock->waiting < waiters && in_time)
        in_time = real_wait(&clock->waiters_changed, &clock->lock, deadline);
    bool reached = clock->waiting >= waiters;
    pthread_mutex_unlock(&clock->lock);
    return reached;
}
