/* SPDX-License-Identifier: Apache-2.0 */
/* berth-holder: keeps the mounts of volumes with the FUSE backend alive, whatever becomes of the driver and of the
 * processes that serve them. */
#include "drivers/holder/holder.h"
#include "drivers/holder/server.h"
#include "lib/base/file.h"
#include "lib/base/flag.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_PATIENCE (15 * CLOCK_SECOND) /* for one that has just handed over */
#define LOCK_SHORT CLOCK_SECOND           /* for one that was killed */
#define LOCK_PAUSE (20 * CLOCK_MS)

#define MOST_FILES 65536 /* two for each mount, and some */

struct options {
    const char *socket, *state_directory, *fuse_program, *cgroup, *log_file;
    int64_t threads;
    bool take_over, daemonize;
    struct flag_log log;
};

#define FIELD(name) offsetof(struct options, name)
static const struct flag flags[] = {
    {.name = "socket",
     .type = FLAG_STRING,
     .default_value = "/run/berth/holder/holder.sock",
     .group = "Holder",
     .help = "Socket that drivers ask at; root only.",
     .offset = FIELD(socket)},
    {.name = "state-dir",
     .type = FLAG_STRING,
     .group = "Holder",
     .help = "Directory for what the next holder has to know; empty = that of the socket. Must be empty after a reboot "
             "or be kept, as in /run; a short path, since sockets lie in it.",
     .offset = FIELD(state_directory)},
    {.name = "take-over",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = "Holder",
     .help = "Take all mounts over from a holder that runs at the same socket; false = refuse to start then.",
     .offset = FIELD(take_over)},
    {.name = "daemonize",
     .type = FLAG_BOOL,
     .group = "Holder",
     .help = "Go to the background in a session of its own; return when the socket listens.",
     .offset = FIELD(daemonize)},
    {.name = "log-file",
     .type = FLAG_STRING,
     .group = "Holder",
     .help = "Append logs to this file instead of stderr.",
     .offset = FIELD(log_file)},
    {.name = "fuse-program",
     .type = FLAG_STRING,
     .group = "Processes",
     .help = "Path of berth-fuse; empty = beside this program.",
     .offset = FIELD(fuse_program)},
    {.name = "threads",
     .type = FLAG_INT,
     .default_value = "2",
     .group = "Processes",
     .help = "Threads of each berth-fuse.",
     .offset = FIELD(threads)},
    {.name = "cgroup",
     .type = FLAG_STRING,
     .group = "Processes",
     .help = "Directory of a version 2 control group to put each berth-fuse into, made when missing. In a container "
             "with the host's process ids this lets them outlive it, until the next holder takes them back.",
     .offset = FIELD(cgroup)},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {
    .name = "berth-holder",
    .summary = "Mounts volumes of the FUSE backend and keeps them mounted while their processes come and go.",
    .usage = "[flags]",
    .flags = flags,
    .count = ARRAY_LEN(flags)};

static char *default_fuse_program(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return mem_strdup("berth-fuse");
    *slash = '\0';
    return mem_printf("%s/berth-fuse", path);
}

static char *default_state_directory(const char *socket_path)
{
    const char *slash = strrchr(socket_path, '/');
    return slash == NULL || slash == socket_path ? mem_strdup("/")
                                                 : mem_strndup(socket_path, (size_t)(slash - socket_path));
}

/* One holder for a state directory; after a hand-over the old one is about to let go. */
static int lock_state(const char *directory, int64_t patience, struct stop *stop, struct err *err)
{
    auto_free char *path = mem_printf("%s/lock", directory);
    auto_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int64_t deadline = clock_mono(clock_real()) + patience;
    if (fd < 0)
        return err_set_errno(err, errno, "opening %s", path);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_set_errno(err, errno, "locking %s", path);
        if (clock_mono(clock_real()) > deadline || stop_sleep(stop, clock_real(), LOCK_PAUSE))
            return err_set(err, ERR_CONFLICT, "another holder uses %s", directory);
    }
    return mem_take_fd(&fd);
}

/* Everything up to the listening socket; *lock_fd stays open as long as the program runs. */
static int begin(struct holder *holder, const struct options *options, int *listen_fd, int *lock_fd, struct err *err)
{
    auto_err struct err take_err = {0};
    *listen_fd = -1;
    if (options->take_over && holder_take(holder, options->socket, listen_fd, &take_err) < 0 &&
        !err_is(&take_err, ERR_UNAVAILABLE)) /* nobody there is the usual case */
        return err_move(err, &take_err);
    bool taken = *listen_fd >= 0;
    if (!taken)
        table_clear(&holder->table);
    *lock_fd = lock_state(holder->options.state_directory, taken ? LOCK_PATIENCE : LOCK_SHORT, holder->stop, err);
    if (*lock_fd < 0)
        return -1;
    if (!taken) {
        if (holder_recover(holder, err) < 0)
            return -1;
        *listen_fd = server_listen(options->socket, err);
    }
    return *listen_fd < 0 ? -1 : 0;
}

static int run(const struct options *options, int ready_fd, struct err *err)
{
    auto_free char *fuse_program =
        str_empty(options->fuse_program) ? default_fuse_program() : mem_strdup(options->fuse_program);
    auto_free char *state_directory = str_empty(options->state_directory) ? default_state_directory(options->socket)
                                                                          : mem_strdup(options->state_directory);
    const struct holder_options holder_options = {.state_directory = state_directory,
                                                  .fuse_program = fuse_program,
                                                  .cgroup = str_empty(options->cgroup) ? NULL : options->cgroup,
                                                  .threads = options->threads,
                                                  .verbosity = options->log.verbosity};
    struct stop *stop = stop_new();
    struct holder holder;
    auto_close int listen_fd = -1;
    auto_close int lock_fd = -1;
    stop_on_signals(stop);
    int result = holder_open(&holder, &holder_options, stop, err);
    if (result == 0)
        result = begin(&holder, options, &listen_fd, &lock_fd, err);
    if (result == 0) {
        holder_start(&holder);
        log_info("Holding", kv_str("socket", options->socket), kv_int("mounts", (int64_t)holder.table.len),
                 kv_str("version", berth_version()));
        if (ready_fd >= 0 && write(ready_fd, "1", 1) != 1)
            log_warn("Nobody waits for this holder");
        if (ready_fd >= 0)
            close(ready_fd);
        result = server_run(&holder, listen_fd, err);
        log_info("Stopped; the mounts stay", kv_bool("handedOver", holder.finished));
    }
    stop_request(stop);
    holder_close(&holder);
    stop_free(stop);
    return result;
}

static int redirect(const char *log_file, struct err *err)
{
    auto_close int log_fd = open(log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log_fd < 0)
        return err_set_errno(err, errno, "opening %s", log_file);
    auto_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0)
        return err_set_errno(err, errno, "redirecting the output");
    return 0;
}

/* Returns in the child with *ready_fd set; the parent ends here, with the child's success. */
static int go_to_background(int *ready_fd, int *parent_status, struct err *err)
{
    int ready[2];
    char byte;
    close_range(STDERR_FILENO + 1, ~0U, 0); /* of whoever started us: they would stay open for ever */
    if (pipe2(ready, O_CLOEXEC) != 0)
        return err_set_errno(err, errno, "pipe");
    pid_t child = fork(); /* no thread has been started yet */
    if (child < 0)
        return err_set_errno(err, errno, "fork");
    if (child > 0) {
        close(ready[1]);
        *parent_status = read(ready[0], &byte, 1) == 1 ? 0 : 1;
        return 0;
    }
    close(ready[0]);
    setsid();
    *ready_fd = ready[1];
    return 0;
}

static int start(const struct options *options, struct err *err)
{
    int ready_fd = -1, parent_status = -1;
    if (options->socket == NULL || options->socket[0] != '/')
        return err_set(err, ERR_INVALID, "--socket must be an absolute path");
    if (options->daemonize && go_to_background(&ready_fd, &parent_status, err) < 0)
        return -1;
    if (parent_status >= 0)
        return parent_status == 0 ? 0 : err_set(err, ERR_INTERNAL, "the holder did not start: see its log");
    if (!str_empty(options->log_file) && redirect(options->log_file, err) < 0)
        return -1;
    if (chdir("/") != 0)
        return err_set_errno(err, errno, "chdir /");
    return run(options, ready_fd, err);
}

int main(int argc, char **argv)
{
    thread_limit_arenas();
    struct options options = {0};
    enum flag_result parsed = flag_parse(&program, argc, argv, &options, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    auto_err struct err err = {0};
    file_raise_limit(MOST_FILES);
    int result = start(&options, &err);
    if (result < 0)
        log_error("Cannot hold mounts", kv_err(&err));
    return result < 0 ? 1 : 0;
}
