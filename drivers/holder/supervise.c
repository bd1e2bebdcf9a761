/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor: a thread that waits for the ends of processes and starts their successors. */
#include "drivers/holder/holder.h"
#include "drivers/holder/process.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define QUICK_END CLOCK_SECOND /* a process that ends sooner has a problem of its own */
#define FIRST_PAUSE (100 * CLOCK_MS)
#define LONGEST_PAUSE (10 * CLOCK_SECOND)
#define RETRY_START CLOCK_SECOND

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void note_problem(struct held *held, char *text)
{
    free(held->problem);
    held->problem = text;
}

/* Byte: it serves. End of file: it ended before it did; its pidfd says so as well. */
static void look_at_ready(struct holder *holder, struct held *held)
{
    char byte;
    ssize_t length = read(held->ready_fd, &byte, 1);
    if (length < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    close_fd(&held->ready_fd);
    if (length != 1 || held->state != HELD_STARTING)
        return;
    note_problem(held, NULL);
    held_move(held, HELD_SERVING);
    holder_changed(holder);
}

static int64_t pause_after(struct holder *holder, struct held *held)
{
    bool quick = clock_mono(holder->clock) - held->started_at < QUICK_END;
    bool wanted = held->state == HELD_STOPPING;
    /* one quick end may be a coincidence; a process that was serving and is killed comes again at once */
    held->quick_ends = quick && held->state == HELD_STARTING ? held->quick_ends + 1 : 0;
    if (wanted || held->quick_ends == 0)
        return 0;
    int64_t pause = FIRST_PAUSE;
    for (int64_t i = 1; i < held->quick_ends && pause < LONGEST_PAUSE; i++)
        pause *= 2;
    return pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE;
}

static void process_ended(struct holder *holder, struct held *held, int status)
{
    auto_free char *how = process_describe_status(status);
    bool connected = process_is_connected(held->fuse_fd);
    bool wanted = held->state == HELD_STOPPING;
    bool first = held->state == HELD_STARTING && held->restarts == 0 && held->busy;
    close_fd(&held->pid_fd);
    close_fd(&held->ready_fd);
    if (!connected || first) {
        /* unmounted; or it never came up, and the call that mounted it takes the mount away */
        if (connected)
            note_problem(held, mem_printf("%s could not serve it (%s)", holder->options.fuse_program, how));
        else
            log_info("Unmounted", kv_str("volume", held->id));
        held_move(held, HELD_GONE);
        if (!held->busy)
            holder_forget(holder, held);
        holder_changed(holder);
        return;
    }
    int64_t pause = pause_after(holder, held);
    if (!wanted) {
        log_warn("A volume's process ended; its successor takes over", kv_str("volume", held->id),
                 kv_int("pid", held->pid), kv_str("how", how), kv_duration("pause", pause));
        note_problem(held, mem_printf("its process ended (%s) and is being replaced", how));
    }
    held->pid = 0;
    held->pid_start = 0;
    held->next_start = clock_mono(holder->clock) + pause;
    held_move(held, HELD_WAITING);
    holder_changed(holder);
}

static void start_due(struct holder *holder, struct held *held)
{
    auto_err struct err err = {0};
    if (!process_is_connected(held->fuse_fd)) { /* unmounted while nobody served it */
        held_move(held, HELD_GONE);
        if (!held->busy)
            holder_forget(holder, held);
        holder_changed(holder);
        return;
    }
    if (holder_start_process(holder, held, &err) < 0) {
        log_error("Cannot start a volume's process", kv_str("volume", held->id), kv_err(&err));
        note_problem(held, mem_printf("its process cannot be started: %s", err_text(&err)));
        held->next_start = clock_mono(holder->clock) + RETRY_START;
    }
}

/* Lock held. Everything that is due; returns when to come again. Goes backwards, since entries may vanish. */
static int64_t look_at_all(struct holder *holder)
{
    int64_t next = CLOCK_NEVER;
    int status;
    for (size_t i = holder->table.len; i > 0; i--) {
        struct held *held = holder->table.items[i - 1];
        if (held->ready_fd >= 0) {
            struct pollfd poller = {.fd = held->ready_fd, .events = POLLIN};
            if (poll(&poller, 1, 0) > 0)
                look_at_ready(holder, held);
        }
        if (held->pid_fd >= 0 && process_has_ended(held->pid_fd, &status)) {
            process_ended(holder, held, status);
            if (i > holder->table.len || holder->table.items[i - 1] != held)
                continue; /* it is gone */
        }
        if (held->state == HELD_WAITING && held->next_start <= clock_mono(holder->clock))
            start_due(holder, held);
        else if (held->state == HELD_WAITING && held->next_start < next)
            next = held->next_start;
    }
    return next;
}

/* What to wait for until then; the array is owned by the caller. */
static struct pollfd *list_fds(struct holder *holder, size_t *count)
{
    struct pollfd *fds = mem_calloc(2 + 2 * holder->table.len, sizeof(*fds));
    *count = 0;
    fds[(*count)++] = (struct pollfd){.fd = holder->wake_fd, .events = POLLIN};
    fds[(*count)++] = (struct pollfd){.fd = stop_fd(holder->stop), .events = POLLIN};
    for (size_t i = 0; i < holder->table.len && !holder->quiet; i++) {
        const struct held *held = holder->table.items[i];
        if (held->pid_fd >= 0)
            fds[(*count)++] = (struct pollfd){.fd = held->pid_fd, .events = POLLIN};
        if (held->ready_fd >= 0)
            fds[(*count)++] = (struct pollfd){.fd = held->ready_fd, .events = POLLIN};
    }
    return fds;
}

static void *supervise(void *arg)
{
    struct holder *holder = arg;
    while (!stop_requested(holder->stop)) {
        uint64_t count;
        size_t fd_count;
        ssize_t ignored = read(holder->wake_fd, &count, sizeof(count));
        (void)ignored;
        pthread_mutex_lock(&holder->lock);
        int64_t next = holder->quiet ? CLOCK_NEVER : look_at_all(holder);
        auto_free struct pollfd *fds = list_fds(holder, &fd_count);
        pthread_mutex_unlock(&holder->lock);
        int64_t left = next == CLOCK_NEVER ? -1 : next - clock_mono(holder->clock);
        int timeout = next == CLOCK_NEVER ? -1 : left <= 0 ? 0 : (int)(left / CLOCK_MS) + 1;
        poll(fds, fd_count, timeout);
    }
    return NULL;
}

void holder_start(struct holder *holder)
{
    holder->has_supervisor = true;
    holder->supervisor = thread_start("supervisor", supervise, holder);
}
