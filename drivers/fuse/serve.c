/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/serve.h"

#include "drivers/fuse/fs.h"
#include "drivers/fuse/init.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NOTIFY_RESEND 7 /* FUSE_NOTIFY_RESEND, kernel 6.9 */
#define WAKE_SIGNAL SIGUSR1
#define WAKE_PAUSE (5 * CLOCK_MS)
#define WORKER_STACK ((size_t)128 * 1024)

struct serve {
    struct volume *volume;
    struct serve_options options;
    int done_fd;
    atomic_bool stopping;
    atomic_int running;
    atomic_int failure; /* errno of a thread that could not go on */
    struct init_exchange init;
    struct thread {
        struct serve *serve;
        struct fs_worker worker;
        pthread_t id;
        bool started;
    } threads[SERVE_MAX_THREADS];
};

/* ---- libfuse's ways in and out ---- */

static ssize_t send_answer(int fd, struct iovec *parts, int count, void *userdata)
{
    struct fs_worker *worker = userdata;
    struct serve *serve = worker->serve;
    auto_err struct err err = {0};
    if (!worker->swallow && !worker->in_init)
        return writev(fd, parts, count);
    size_t length = 0;
    for (int i = 0; i < count; i++)
        length += parts[i].iov_len;
    struct init_exchange answer = serve->init;
    if (init_set_answer(&answer, parts, count, &err) < 0)
        return log_error("INIT failed", kv_err(&err)), errno = EPROTO, -1;
    if (worker->swallow) {
        if (serve->init.answer_length == 0)
            serve->init = answer;
        worker->init_differs = !init_same_answer(&answer, &serve->init);
        return (ssize_t)length;
    }
    /* kept before the kernel has it: from then on the mount depends on it */
    serve->init = answer;
    if (serve->options.init_file != NULL && init_save(&serve->init, serve->options.init_file, &err) < 0)
        log_error("The mount cannot be taken over later", kv_err(&err));
    return write(fd, serve->init.answer, serve->init.answer_length);
}

/* Never called: calls are read by the threads themselves. */
static ssize_t read_nothing(int fd, void *buffer, size_t length, void *userdata)
{
    (void)fd, (void)buffer, (void)length, (void)userdata;
    errno = ENOSYS;
    return -1;
}

static void log_libfuse(enum fuse_log_level level, const char *format, va_list args)
{
    auto_free char *text = mem_vprintf(format, args);
    if (level <= FUSE_LOG_WARNING)
        log_warn("libfuse", kv_str("text", text));
    else
        log_v(4, "libfuse", kv_str("text", text));
}

static int worker_open(struct fs_worker *worker, struct serve *serve, struct err *err)
{
    char max_read[32];
    snprintf(max_read, sizeof(max_read), "-omax_read=%u", FS_MAX_IO);
    char *arguments[] = {(char[]){"berth-fuse"}, max_read, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(2, arguments);
    const struct fuse_custom_io io = {.writev = send_answer, .read = read_nothing};
    *worker = (struct fs_worker){.volume = serve->volume, .serve = serve, .umask = (mode_t)-1};
    worker->fd = fcntl(serve->options.fd, F_DUPFD_CLOEXEC, 3);
    if (worker->fd < 0)
        return err_set_errno(err, errno, "duplicating the descriptor of /dev/fuse");
    /* In memory now and for good: a page fault in the middle of taking a call, in a process that is being killed, would
     * make that call fail. */
    worker->buffer =
        mmap(NULL, FS_BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (worker->buffer == MAP_FAILED)
        return worker->buffer = NULL, err_set_errno(err, errno, "memory for calls");
    if (mlock(worker->buffer, FS_BUFFER_SIZE) != 0)
        log_v(1, "Cannot lock the memory for calls", kv_int("errno", errno));
    worker->session = fuse_session_new(&args, &fs_operations, sizeof(fs_operations), worker);
    fuse_opt_free_args(&args); /* parsing has put copies of its own there */
    if (worker->session == NULL || fuse_session_custom_io(worker->session, &io, worker->fd) != 0)
        return err_set(err, ERR_INTERNAL, "libfuse refused to make a session");
    return 0;
}

static void worker_close(struct fs_worker *worker)
{
    if (worker->session != NULL)
        fuse_session_destroy(worker->session); /* closes fd */
    if (worker->buffer != NULL)
        munmap(worker->buffer, FS_BUFFER_SIZE);
}

/* ---- calls ---- */

/* One call from the kernel; its length, or 0 when there was none, or -errno. */
static ssize_t read_call(struct fs_worker *worker)
{
    ssize_t length = read(worker->fd, worker->buffer, FS_BUFFER_SIZE);
    if (length >= 0)
        return (size_t)length >= sizeof(struct fuse_in_header) ? length : -EIO;
    /* ENOENT: the caller gave up while we were about to read */
    return errno == EINTR || errno == EAGAIN || errno == ENOENT ? 0 : -errno;
}

static void process(struct fs_worker *worker, size_t length)
{
    const struct fuse_in_header *header = (const void *)worker->buffer;
    const struct fuse_buf call = {.mem = worker->buffer, .size = length};
    if (header->opcode == FUSE_INTERRUPT) /* no call waits for anything long */
        return;
    worker->in_init = header->opcode == FUSE_INIT;
    if (worker->in_init) {
        auto_err struct err err = {0};
        if (init_set_request(&worker->serve->init, worker->buffer, length, &err) < 0)
            log_error("INIT failed", kv_err(&err));
    }
    fuse_session_process_buf(worker->session, &call);
    worker->in_init = false;
}

static void *serve_calls(void *arg)
{
    struct thread *thread = arg;
    struct serve *serve = thread->serve;
    ssize_t length = 0;
    if (unshare(CLONE_FS) != 0) /* a umask of its own */
        log_error("Cannot have a umask for each thread", kv_int("errno", errno));
    thread->worker.umask = 0;
    umask(0);
    while (!atomic_load(&serve->stopping) && (length = read_call(&thread->worker)) >= 0)
        if (length > 0)
            process(&thread->worker, (size_t)length);
    if (length < 0 && length != -ENODEV) {
        int none = 0;
        atomic_compare_exchange_strong(&serve->failure, &none, (int)-length);
    }
    if (length < 0) /* no use for the others to go on */
        atomic_store(&serve->stopping, true);
    if (atomic_fetch_sub(&serve->running, 1) == 1) {
        ssize_t ignored = write(serve->done_fd, &(uint64_t){1}, sizeof(uint64_t));
        (void)ignored;
    }
    return NULL;
}

/* ---- beginning ---- */

/* Tells one session what the kernel said in the beginning. */
static int feed_init(struct fs_worker *worker, struct err *err)
{
    const struct init_exchange *init = &worker->serve->init;
    const struct fuse_buf call = {.mem = worker->buffer, .size = init->request_length};
    memcpy(worker->buffer, init->request, init->request_length);
    worker->swallow = true;
    worker->init_differs = true; /* unless the answer comes and says otherwise */
    fuse_session_process_buf(worker->session, &call);
    worker->swallow = false;
    if (worker->init_differs)
        return err_set(err, ERR_INVALID,
                       "this mount was made with other features than this version of berth-fuse has: put the version "
                       "that made it back, or unmount the volume");
    return 0;
}

static int first_init(struct fs_worker *worker, struct err *err)
{
    while (worker->serve->init.answer_length == 0) {
        ssize_t length = read_call(worker);
        if (length == -ENODEV)
            return err_set(err, ERR_CANCELLED, "unmounted before it was served");
        if (length < 0)
            return err_set_errno(err, (int)-length, "reading from /dev/fuse");
        if (length == 0)
            continue;
        if (!init_is_request(worker->buffer, (size_t)length))
            return err_set(err, ERR_INVALID, "the mount was initialised by another process: --reattach is needed");
        process(worker, (size_t)length);
        if (worker->serve->init.answer_length == 0)
            return err_set(err, ERR_INTERNAL, "INIT could not be answered");
    }
    return 0;
}

static void resend(const struct serve *serve)
{
    const struct fuse_out_header notice = {.len = sizeof(notice), .error = NOTIFY_RESEND};
    if (write(serve->options.fd, &notice, sizeof(notice)) == (ssize_t)sizeof(notice))
        return;
    if (errno == EINVAL)
        log_warn("This kernel cannot repeat calls (it takes 6.9): those that were under way when the former process "
                 "ended hang until the connection is aborted in /sys/fs/fuse/connections");
    else if (errno != ENODEV)
        log_warn("Cannot have calls repeated", kv_int("errno", errno));
}

static void reap_orphans(struct fs_worker *worker)
{
    size_t count = 0;
    auto_free uint64_t *orphans = node_list_orphans(&worker->volume->nodes, &count);
    for (size_t i = 0; i < count; i++)
        fs_reap_orphan(worker, orphans[i]);
}

/* The first session answers INIT if nobody has; all others are told about it. */
static int begin(struct serve *serve, struct err *err)
{
    struct fs_worker *first = &serve->threads[0].worker;
    auto_err struct err load_err = {0};
    bool known = false;
    if (serve->options.reattach) {
        known = init_load(&serve->init, serve->options.init_file, &load_err) == 0;
        if (!known && !err_is(&load_err, ERR_NOT_FOUND))
            return err_move(err, &load_err);
        /* without an answer in the file the former process did not get as far as INIT: the kernel repeats that, too */
        known = known && serve->init.answer_length > 0;
        if (!known)
            resend(serve);
    }
    if (!known) {
        serve->init.answer_length = 0;
        if (first_init(first, err) < 0)
            return -1;
    }
    for (int i = known ? 0 : 1; i < serve->options.threads; i++)
        if (feed_init(&serve->threads[i].worker, err) < 0)
            return -1;
    if (known) {
        resend(serve);
        reap_orphans(first);
    }
    return 0;
}

static void ignore_signal(int number)
{
    (void)number;
}

struct serve *serve_start(struct volume *volume, const struct serve_options *options, struct err *err)
{
    const struct sigaction wake = {.sa_handler = ignore_signal}; /* without SA_RESTART: it ends a read */
    struct serve *serve = mem_new(struct serve);
    serve->volume = volume;
    serve->options = *options;
    serve->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fuse_set_log_func(log_libfuse);
    int result = serve->done_fd < 0 ? err_set_errno(err, errno, "eventfd") : 0;
    if (result == 0 && sigaction(WAKE_SIGNAL, &wake, NULL) != 0)
        result = err_set_errno(err, errno, "sigaction");
    for (int i = 0; i < options->threads && result == 0; i++) {
        serve->threads[i].serve = serve;
        result = worker_open(&serve->threads[i].worker, serve, err);
    }
    if (result == 0)
        result = begin(serve, err);
    if (result < 0) {
        serve_finish(serve, NULL);
        return NULL;
    }
    atomic_store(&serve->running, options->threads);
    for (int i = 0; i < options->threads; i++) {
        char name[16] = "serve-a"; /* b, c … */
        name[6] = (char)('a' + i);
        serve->threads[i].id = thread_start_stack(name, WORKER_STACK, serve_calls, &serve->threads[i]);
        serve->threads[i].started = true;
    }
    return serve;
}

int serve_done_fd(const struct serve *serve)
{
    return serve->done_fd;
}

void serve_stop(struct serve *serve)
{
    struct stop *nobody = stop_new();
    atomic_store(&serve->stopping, true);
    /* a thread may be about to read when the signal comes: again until all have seen it */
    while (atomic_load(&serve->running) > 0) {
        for (int i = 0; i < serve->options.threads; i++)
            if (serve->threads[i].started)
                pthread_kill(serve->threads[i].id, WAKE_SIGNAL);
        stop_sleep(nobody, serve->volume->clock, WAKE_PAUSE);
    }
    stop_free(nobody);
}

int serve_finish(struct serve *serve, struct err *err)
{
    for (int i = 0; i < serve->options.threads; i++) {
        if (serve->threads[i].started)
            thread_join(serve->threads[i].id);
        worker_close(&serve->threads[i].worker);
    }
    int failure = atomic_load(&serve->failure);
    if (serve->done_fd >= 0)
        close(serve->done_fd);
    free(serve);
    return failure == 0 ? 0 : err_set_errno(err, failure, "reading from /dev/fuse");
}
