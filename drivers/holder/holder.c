/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/holder/holder.h"

#include "drivers/common/mount.h"
#include "drivers/holder/process.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static char *read_boot_id(void)
{
    char *text = NULL;
    if (file_read("/proc/sys/kernel/random/boot_id", 128, &text, NULL, NULL) < 0)
        return mem_strdup("unknown");
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* Its parents, too: the default lies in /run, which is empty after a reboot. */
static int make_directory(const char *path, struct err *err)
{
    auto_free char *copy = mem_strdup(path);
    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0755) != 0 && errno != EEXIST)
            return err_set_errno(err, errno, "making %s", copy);
        *slash = '/';
    }
    if (mkdir(copy, 0700) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "making %s", copy);
    return 0;
}

int holder_open(struct holder *holder, const struct holder_options *options, struct stop *stop, struct err *err)
{
    *holder = (struct holder){.options = *options, .clock = clock_real(), .stop = stop, .boot_id = read_boot_id()};
    pthread_mutex_init(&holder->lock, NULL);
    clock_cond_init(&holder->changed);
    holder->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (holder->wake_fd < 0)
        return err_set_errno(err, errno, "eventfd");
    return make_directory(options->state_directory, err);
}

void holder_close(struct holder *holder)
{
    if (holder->has_supervisor) {
        holder_changed(holder);
        thread_join(holder->supervisor);
    }
    table_clear(&holder->table);
    close(holder->wake_fd);
    free(holder->boot_id);
    pthread_cond_destroy(&holder->changed);
    pthread_mutex_destroy(&holder->lock);
}

void holder_changed(struct holder *holder)
{
    ssize_t ignored = write(holder->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)ignored;
    pthread_cond_broadcast(&holder->changed);
}

int holder_save(struct holder *holder, struct err *err)
{
    auto_free char *path = mem_printf("%s/table.json", holder->options.state_directory);
    return table_save(&holder->table, path, holder->boot_id, err);
}

char *holder_file(const struct holder *holder, const struct held *held, const char *suffix)
{
    return mem_printf("%s/%u.%s", holder->options.state_directory, held->slot, suffix);
}

struct held *holder_claim(struct holder *holder, const char *id, int64_t deadline, struct err *err)
{
    struct held *held;
    while ((held = table_find(&holder->table, id)) != NULL && held->busy && !holder->finished)
        if (!clock_cond_wait(holder->clock, &holder->changed, &holder->lock, deadline)) {
            err_set(err, ERR_TIMEOUT, "another operation on volume %s takes too long", id);
            return NULL;
        }
    if (holder->finished) {
        err_set(err, ERR_GONE, "another holder has taken over");
        return NULL;
    }
    if (held != NULL)
        held->busy = true;
    return held;
}

void holder_release(struct holder *holder, struct held *held)
{
    held->busy = false;
    holder_changed(holder);
}

void holder_forget(struct holder *holder, struct held *held)
{
    static const char *const suffixes[] = {"sock", "init"};
    auto_err struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        auto_free char *path = holder_file(holder, held, suffixes[i]);
        unlink(path);
    }
    table_remove(&holder->table, held);
    if (holder_save(holder, &err) < 0)
        log_error("Cannot save the table of mounts", kv_err(&err));
    holder_changed(holder);
}

int holder_start_process(struct holder *holder, struct held *held, struct err *err)
{
    bool again = held->state == HELD_WAITING;
    auto_strv struct strv arguments = {0};
    auto_free char *socket_path = holder_file(holder, held, "sock");
    auto_free char *init_path = holder_file(holder, held, "init");
    strv_add(&arguments, "berth-fuse");
    strv_add_take(&arguments, mem_printf("--id=%s", held->id));
    strv_add_take(&arguments, mem_printf("--volume=%s", held->directory));
    strv_add_take(&arguments, mem_printf("--limit=%lld", (long long)held->limit));
    strv_add_take(&arguments, mem_printf("--inode-limit=%lld", (long long)held->inode_limit));
    strv_add_take(&arguments, mem_printf("--read-only=%s", held->read_only ? "true" : "false"));
    strv_add_take(&arguments, mem_printf("--fd=%d", PROCESS_FUSE_FD));
    strv_add_take(&arguments, mem_printf("--ready-fd=%d", PROCESS_READY_FD));
    strv_add_take(&arguments, mem_printf("--control=%s", socket_path));
    strv_add_take(&arguments, mem_printf("--init-file=%s", init_path));
    strv_add_take(&arguments, mem_printf("--threads=%lld", (long long)holder->options.threads));
    strv_add_take(&arguments, mem_printf("-v=%lld", (long long)holder->options.verbosity));
    if (again)
        strv_add(&arguments, "--reattach");
    else
        unlink(init_path); /* of a mount that had this slot before */
    strv_add_take(&arguments, NULL);
    const struct process_start options = {.program = holder->options.fuse_program,
                                          .arguments = arguments.items,
                                          .fuse_fd = held->fuse_fd,
                                          .cgroup = holder->options.cgroup};
    struct process process;
    if (process_start(&options, &process, err) < 0)
        return -1;
    held->pid = process.pid;
    held->pid_fd = process.pid_fd;
    held->ready_fd = process.ready_fd;
    held->pid_start = process.start;
    held->started_at = clock_mono(holder->clock);
    held->told_limit = held->limit;
    held->told_inode_limit = held->inode_limit;
    held->restarts += again ? 1 : 0;
    held_move(held, HELD_STARTING);
    if (holder_save(holder, err) < 0) { /* it runs all the same; only a later holder would not find it */
        log_error("Cannot save the table of mounts", kv_err(err));
        err_clear(err);
    }
    return 0;
}

/* ---- after a holder that is gone ---- */

/* Everybody on that mount gets "transport endpoint is not connected" now; take it away so that a publish makes it anew.
 */
static void drop_lost(const struct held *held, const struct err *reason)
{
    auto_err struct err err = {0};
    log_error("A mount is lost: its process and its holder ended together", kv_str("volume", held->id),
              kv_str("target", held->target), kv_err(reason));
    if (mount_remove(held->target, &err) < 0)
        log_error("Cannot take the dead mount away", kv_str("volume", held->id), kv_err(&err));
}

static bool take_back(struct held *held)
{
    auto_err struct err err = {0};
    auto_free char *argument = mem_printf("--id=%s", held->id);
    held->pid_fd = process_find(held->pid, held->pid_start, argument, &err);
    if (held->pid_fd >= 0)
        held->fuse_fd = process_take_fuse_fd(held->pid_fd, &err);
    if (held->fuse_fd < 0) {
        if (held->pid_fd >= 0) /* it serves; only nobody could follow it */
            log_error("Cannot supervise a process", kv_str("volume", held->id), kv_err(&err));
        else
            drop_lost(held, &err);
        return false;
    }
    held_move(held, HELD_SERVING);
    log_info("Took a mount back", kv_str("volume", held->id), kv_int("pid", held->pid));
    return true;
}

int holder_recover(struct holder *holder, struct err *err)
{
    auto_free char *path = mem_printf("%s/table.json", holder->options.state_directory);
    if (table_load(&holder->table, path, holder->boot_id, err) < 0)
        return -1;
    for (size_t i = holder->table.len; i > 0; i--) {
        struct held *held = holder->table.items[i - 1];
        if (!take_back(held))
            table_remove(&holder->table, held);
        else
            held->told_limit = held->limit, held->told_inode_limit = held->inode_limit;
    }
    return holder_save(holder, err);
}
