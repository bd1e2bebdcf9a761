/* SPDX-License-Identifier: Apache-2.0 */
/* berth-fuse: serves one volume's directory as a file system of a given size. Started by berth-holder, which has made
 * the mount and keeps its descriptor. */
#include "drivers/fuse/control.h"
#include "drivers/fuse/serve.h"
#include "drivers/fuse/volume.h"
#include "lib/base/file.h"
#include "lib/base/flag.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Each file that somebody has open takes a descriptor; a container often starts with 1024. */
#define MOST_FILES ((uint64_t)1 << 20)

struct options {
    const char *id, *volume, *control, *init_file;
    int64_t limit, inode_limit, fd, ready_fd, threads;
    bool reattach, read_only;
    struct flag_log log;
};

#define FIELD(name) offsetof(struct options, name)
static const struct flag flags[] = {
    {.name = "id", .type = FLAG_STRING, .group = "Volume", .help = "The volume's id, for logs.", .offset = FIELD(id)},
    {.name = "volume",
     .type = FLAG_STRING,
     .group = "Volume",
     .help = "Directory of the volume; its files are in data/ below it.",
     .offset = FIELD(volume)},
    {.name = "limit",
     .type = FLAG_INT,
     .group = "Volume",
     .help = "Size of the volume, in bytes.",
     .offset = FIELD(limit)},
    {.name = "inode-limit",
     .type = FLAG_INT,
     .default_value = "0",
     .group = "Volume",
     .help = "Most files; 0 = one for each 4 KiB, at least 1024.",
     .offset = FIELD(inode_limit)},
    {.name = "read-only",
     .type = FLAG_BOOL,
     .group = "Volume",
     .help = "The volume is mounted read-only.",
     .offset = FIELD(read_only)},
    {.name = "fd",
     .type = FLAG_INT,
     .default_value = "-1",
     .group = "Mount",
     .help = "Open descriptor of /dev/fuse that belongs to the mount.",
     .offset = FIELD(fd)},
    {.name = "ready-fd",
     .type = FLAG_INT,
     .default_value = "-1",
     .group = "Mount",
     .help = "Open descriptor that gets one byte once the volume is served.",
     .offset = FIELD(ready_fd)},
    {.name = "reattach",
     .type = FLAG_BOOL,
     .group = "Mount",
     .help = "The mount was served before: take it over from a process that is gone.",
     .offset = FIELD(reattach)},
    {.name = "init-file",
     .type = FLAG_STRING,
     .group = "Mount",
     .help = "File that keeps what was agreed with the kernel, for --reattach.",
     .offset = FIELD(init_file)},
    {.name = "control",
     .type = FLAG_STRING,
     .group = "Mount",
     .help = "Path of the control socket to listen at.",
     .offset = FIELD(control)},
    {.name = "threads",
     .type = FLAG_INT,
     .default_value = "2",
     .group = "Mount",
     .help = "Threads that serve calls, 1 to 16; each has a buffer of 132 KiB.",
     .offset = FIELD(threads)},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {.name = "berth-fuse",
                                            .summary = "Serves a volume's directory as a file system of a given size.",
                                            .usage = "[flags]",
                                            .flags = flags,
                                            .count = ARRAY_LEN(flags)};

static int check(const struct options *options, struct err *err)
{
    if (options->volume == NULL || options->volume[0] != '/')
        return err_set(err, ERR_INVALID, "--volume must be an absolute path");
    if (options->limit <= 0 || options->inode_limit < 0)
        return err_set(err, ERR_INVALID, "--limit must be positive and --inode-limit not negative");
    if (options->fd < 0 || options->fd > INT32_MAX)
        return err_set(err, ERR_INVALID,
                       "--fd is required: berth-holder starts this program with the mount's descriptor");
    if (options->threads < 1 || options->threads > SERVE_MAX_THREADS)
        return err_set(err, ERR_INVALID, "--threads must be 1 to %d", SERVE_MAX_THREADS);
    if (options->reattach && str_empty(options->init_file))
        return err_set(err, ERR_INVALID, "--reattach needs --init-file");
    return 0;
}

static void say_ready(const struct options *options)
{
    if (options->ready_fd < 0)
        return;
    if (write((int)options->ready_fd, "1", 1) != 1)
        log_warn("Nobody waits for this volume", kv_int("errno", errno));
    close((int)options->ready_fd);
}

/* Until it is unmounted, or a signal comes. */
static void wait_for_end(struct volume *volume, struct serve *serve, struct control *control, const struct stop *stop)
{
    const int fds[] = {serve_done_fd(serve), stop_fd(stop)};
    int64_t recount = volume_recount(volume), watched = volume_charge_watched(volume);
    for (;;) {
        int64_t next = recount < watched ? recount : watched;
        int64_t wait = (next - clock_mono(volume->clock)) / CLOCK_MS;
        int event = control_wait(control, fds, ARRAY_LEN(fds), wait < 0 ? 0 : wait < 3600000 ? (int)wait + 1 : 3600000);
        if (event == 0)
            return;
        if (event == 1) {
            serve_stop(serve);
            return;
        }
        if (clock_mono(volume->clock) >= watched)
            watched = volume_charge_watched(volume);
        if (clock_mono(volume->clock) >= recount)
            recount = volume_recount(volume);
    }
}

static int run(const struct options *options, struct stop *stop, struct err *err)
{
    const struct volume_options volume_options = {.directory = options->volume,
                                                  .limit = options->limit,
                                                  .inode_limit = options->inode_limit,
                                                  .read_only = options->read_only,
                                                  .reattach = options->reattach};
    const struct serve_options serve_options = {.fd = (int)options->fd,
                                                .threads = (int)options->threads,
                                                .init_file = str_empty(options->init_file) ? NULL : options->init_file,
                                                .reattach = options->reattach};
    struct volume volume;
    struct control control = {.listen_fd = -1};
    struct serve *serve = NULL;
    int result = volume_open(&volume, &volume_options, err);
    if (result == 0)
        result = control_open(&control, str_empty(options->control) ? NULL : options->control, &volume.account, err);
    if (result == 0) {
        serve = serve_start(&volume, &serve_options, err);
        result = serve != NULL ? 0 : -1;
    }
    if (result == 0) {
        struct account_figures figures = account_figures(&volume.account);
        log_info(options->reattach ? "Serving again" : "Serving", kv_str("volume", options->id),
                 kv_int("limit", figures.limit), kv_int("used", figures.used), kv_int("inodes", figures.inodes));
        say_ready(options);
        wait_for_end(&volume, serve, &control, stop);
        result = serve_finish(serve, err);
        log_info(stop_requested(stop) ? "Stopped; the mount stays" : "Unmounted", kv_str("volume", options->id));
    }
    control_close(&control);
    volume_close(&volume);
    return result;
}

int main(int argc, char **argv)
{
    thread_limit_arenas();
    struct options options = {0};
    enum flag_result parsed = flag_parse(&program, argc, argv, &options, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    auto_err struct err err = {0};
    if (check(&options, &err) < 0) {
        fprintf(stderr, "berth-fuse: %s\n", err_text(&err));
        return 2;
    }
    file_raise_limit(MOST_FILES);
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    int result = run(&options, stop, &err);
    if (result < 0)
        log_error("Cannot serve the volume", kv_str("volume", options.id), kv_err(&err));
    stop_free(stop);
    return result < 0 ? 1 : 0;
}
