/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/holder/server.h"

#include "drivers/common/fuse_control.h"
#include "drivers/common/holder_packet.h"
#include "lib/base/flag.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MAX_CONNECTIONS 64
#define IDLE (30 * CLOCK_SECOND) /* a client that says nothing is sent away */
#define DEFAULT_TIMEOUT_MS 60000
#define LONGEST_TIMEOUT_MS 3600000
#define PAGE 50                            /* entries in one answer to "list", */
#define PAGE_BYTES (HOLDER_PACKET_MAX / 2) /* or fewer of them, if they are long */

struct connections {
    struct holder *holder;
    int listen_fd;
    pthread_mutex_t lock;
    pthread_cond_t fewer;
    int count;
};
struct connection {
    struct connections *all;
    int fd;
};

/* ---- requests ---- */

struct call {
    struct holder *holder;
    const json_t *request;
    int64_t deadline;
    json_t *answer;
};

static const char *text(const struct call *call, const char *key)
{
    return json_string_value(json_object_get(call->request, key));
}

static int64_t number(const struct call *call, const char *key)
{
    return json_integer_value(json_object_get(call->request, key));
}

static int do_mount(struct call *call, struct err *err)
{
    struct holder_mount_request request = {.id = text(call, "id"),
                                           .directory = text(call, "directory"),
                                           .target = text(call, "target"),
                                           .limit = number(call, "limit"),
                                           .inode_limit = number(call, "inodeLimit"),
                                           .read_only = json_is_true(json_object_get(call->request, "readOnly"))};
    size_t index;
    json_t *option;
    json_array_foreach (json_object_get(call->request, "options"), index, option)
        if (json_is_string(option))
            strv_add(&request.options, json_string_value(option));
    int result = holder_do_mount(call->holder, &request, call->deadline, err);
    strv_free(&request.options);
    return result;
}

static int do_unmount(struct call *call, struct err *err)
{
    bool in_use = false;
    int result = holder_do_unmount(call->holder, text(call, "id"), text(call, "target"), call->deadline, &in_use, err);
    json_object_set_new(call->answer, "inUse", json_boolean(in_use));
    return result;
}

static int do_set_limit(struct call *call, struct err *err)
{
    return holder_do_set_limit(call->holder, text(call, "id"), number(call, "limit"), number(call, "inodeLimit"),
                               call->deadline, err);
}

static int do_stats(struct call *call, struct err *err)
{
    struct fuse_control_answer figures;
    if (holder_do_stats(call->holder, text(call, "id"), call->deadline, &figures, err) < 0)
        return -1;
    json_object_set_new(call->answer, "limit", json_integer(figures.limit));
    json_object_set_new(call->answer, "used", json_integer(figures.used));
    json_object_set_new(call->answer, "inodeLimit", json_integer(figures.inode_limit));
    json_object_set_new(call->answer, "inodes", json_integer(figures.inodes));
    return 0;
}

static json_t *describe(const struct held *held)
{
    json_t *entry = table_entry_to_json(held);
    json_object_set_new(entry, "serving", json_boolean(held->state == HELD_SERVING));
    const char *problem = held->problem != NULL ? held->problem : held->state == HELD_SERVING ? "" : "it is starting";
    json_object_set_new(entry, "problem", json_string(problem));
    return entry;
}

/* A page: the entries after "after", or the one named "id". */
static int do_list(struct call *call, struct err *err)
{
    const char *after = text(call, "after"), *id = text(call, "id");
    json_t *entries = json_array();
    size_t bytes = 0;
    bool more = false;
    pthread_mutex_lock(&call->holder->lock);
    if (call->holder->finished) {
        pthread_mutex_unlock(&call->holder->lock);
        json_decref(entries);
        return err_set(err, ERR_GONE, "another holder has taken over");
    }
    const struct table *table = &call->holder->table;
    for (size_t i = 0; i < table->len && !more; i++) {
        const struct held *held = table->items[i];
        if ((after != NULL && strcmp(held->id, after) <= 0) || (id != NULL && !str_eq(held->id, id)) ||
            held->state == HELD_GONE)
            continue;
        if (json_array_size(entries) == PAGE || bytes > PAGE_BYTES) {
            more = true;
            continue;
        }
        json_t *entry = describe(held);
        bytes += json_dumpb(entry, NULL, 0, JSON_COMPACT);
        json_array_append_new(entries, entry);
    }
    pthread_mutex_unlock(&call->holder->lock);
    json_object_set_new(call->answer, "mounts", entries);
    json_object_set_new(call->answer, "more", json_boolean(more));
    return 0;
}

/* From 6.9 on the kernel repeats calls on request. */
static bool kernel_resends(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 9));
}

static int do_health(struct call *call, struct err *err)
{
    int64_t serving = 0;
    (void)err;
    pthread_mutex_lock(&call->holder->lock);
    const struct table *table = &call->holder->table;
    for (size_t i = 0; i < table->len; i++)
        serving += table->items[i]->state == HELD_SERVING ? 1 : 0;
    json_object_set_new(call->answer, "mounts", json_integer((json_int_t)table->len));
    pthread_mutex_unlock(&call->holder->lock);
    json_object_set_new(call->answer, "serving", json_integer(serving));
    json_object_set_new(call->answer, "version", json_string(berth_version()));
    json_object_set_new(call->answer, "resend", json_boolean(kernel_resends()));
    return 0;
}

static int do_restart(struct call *call, struct err *err)
{
    return holder_do_restart(call->holder, call->deadline, err);
}

static const struct {
    const char *name;
    int (*fn)(struct call *call, struct err *err);
} operations[] = {
    {"mount", do_mount}, {"unmount", do_unmount}, {"set-limit", do_set_limit}, {"stats", do_stats},
    {"list", do_list},   {"health", do_health},   {"restart", do_restart},
};

json_t *server_answer(struct holder *holder, const json_t *request)
{
    struct call call = {.holder = holder, .request = request, .answer = json_pack("{s:b}", "ok", 1)};
    const char *name = text(&call, "op");
    int64_t timeout = number(&call, "timeoutMs");
    timeout = timeout <= 0 ? DEFAULT_TIMEOUT_MS : timeout > LONGEST_TIMEOUT_MS ? LONGEST_TIMEOUT_MS : timeout;
    call.deadline = clock_mono(holder->clock) + timeout * CLOCK_MS;
    auto_err struct err err = {0};
    int result = 1;
    for (size_t i = 0; i < ARRAY_LEN(operations) && result == 1; i++)
        if (str_eq(name, operations[i].name))
            result = operations[i].fn(&call, &err);
    if (result == 1)
        result =
            err_set(&err, ERR_INVALID, "operation %s is not known to this version", name != NULL ? name : "(none)");
    if (result == 0)
        return call.answer;
    json_decref(call.answer);
    log_v(1, "Refused", kv_str("op", name), kv_str("volume", text(&call, "id")), kv_err(&err));
    return holder_packet_failure(&err);
}

/* ---- connections ---- */

static int check_peer(int fd, struct err *err)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return err_set_errno(err, errno, "SO_PEERCRED");
    return peer.uid == 0 ? 0 : err_set(err, ERR_FORBIDDEN, "only root may ask the holder");
}

static void fail(int fd, const struct err *err, int64_t deadline)
{
    json_t *answer = holder_packet_failure(err);
    holder_packet_send(fd, answer, NULL, 0, deadline, NULL);
    json_decref(answer);
}

/* A client that says nothing keeps nobody: neither this holder when it ends, nor the next one, which waits for that. */
static bool wait_for_request(const struct connections *all, int fd)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd(all->holder->stop), .events = POLLIN}};
    int64_t deadline = clock_mono(all->holder->clock) + IDLE;
    int result;
    do {
        int64_t left = (deadline - clock_mono(all->holder->clock)) / CLOCK_MS;
        result = poll(fds, ARRAY_LEN(fds), left > 0 ? (int)left : 0);
    } while (result < 0 && errno == EINTR);
    return result > 0 && fds[0].revents != 0;
}

/* False: the connection is done. */
static bool serve_one(struct connections *all, int fd)
{
    struct holder *holder = all->holder;
    auto_err struct err err = {0};
    auto_packet struct holder_packet packet = {0};
    if (holder_packet_receive(fd, &packet, clock_mono(holder->clock) + IDLE, &err) < 0) {
        if (!err_is(&err, ERR_TIMEOUT))
            fail(fd, &err, clock_mono(holder->clock) + IDLE);
        return false;
    }
    if (packet.body == NULL)
        return false;
    if (str_eq(json_string_value(json_object_get(packet.body, "op")), "hand-over")) {
        if (holder_give(holder, fd, all->listen_fd, &err) < 0) {
            log_warn("The hand-over failed; this holder goes on", kv_err(&err));
            fail(fd, &err, clock_mono(holder->clock) + CLOCK_SECOND);
        }
        return false;
    }
    json_t *answer = server_answer(holder, packet.body);
    int result = holder_packet_send(fd, answer, NULL, 0, clock_mono(holder->clock) + IDLE, &err);
    json_decref(answer);
    return result == 0;
}

static void *serve_connection(void *arg)
{
    auto_free struct connection *connection = arg;
    struct connections *all = connection->all;
    auto_err struct err err = {0};
    if (check_peer(connection->fd, &err) < 0) {
        struct pollfd poller = {.fd = connection->fd, .events = POLLIN};
        log_warn("Refused a client", kv_err(&err));
        /* what it says is taken away unseen: an answer before its question, or beside an unread one, would be lost */
        if (poll(&poller, 1, 1000) > 0)
            recv(connection->fd, &(char){0}, 1, MSG_DONTWAIT);
        fail(connection->fd, &err, clock_mono(all->holder->clock) + CLOCK_SECOND);
    } else {
        while (!stop_requested(all->holder->stop) && wait_for_request(all, connection->fd) &&
               serve_one(all, connection->fd))
            ;
    }
    close(connection->fd);
    pthread_mutex_lock(&all->lock);
    all->count--;
    pthread_cond_broadcast(&all->fewer);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

int server_listen(const char *path, struct err *err)
{
    struct sockaddr_un address;
    if (holder_packet_address(path, &address, err) < 0)
        return -1;
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(err, errno, "socket");
    unlink(path);
    mode_t old = umask(0177);
    int result = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    umask(old);
    if (result != 0 || listen(fd, MAX_CONNECTIONS) != 0)
        return err_set_errno(err, errno, "listening at %s", path);
    return mem_take_fd(&fd);
}

static void accept_one(struct connections *all)
{
    int fd = accept4(all->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* the client goes on waiting in the backlog, so poll would report it again at once */
            log_warn("No connection can be accepted now", kv_str("err", strerror(errno)));
            stop_sleep(all->holder->stop, clock_real(), CLOCK_SECOND);
        }
        return;
    }
    struct connection *connection = mem_new(struct connection);
    *connection = (struct connection){.all = all, .fd = fd};
    pthread_mutex_lock(&all->lock);
    while (all->count >= MAX_CONNECTIONS)
        pthread_cond_wait(&all->fewer, &all->lock);
    all->count++;
    pthread_mutex_unlock(&all->lock);
    pthread_t thread = thread_start("client", serve_connection, connection);
    pthread_detach(thread);
}

int server_run(struct holder *holder, int listen_fd, struct err *err)
{
    struct connections all = {.holder = holder, .listen_fd = listen_fd};
    struct pollfd fds[] = {{.fd = listen_fd, .events = POLLIN}, {.fd = stop_fd(holder->stop), .events = POLLIN}};
    int result = 0;
    pthread_mutex_init(&all.lock, NULL);
    pthread_cond_init(&all.fewer, NULL);
    while (!stop_requested(holder->stop)) {
        if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR) {
            result = err_set_errno(err, errno, "poll");
            stop_request(holder->stop);
        }
        if ((fds[0].revents & POLLIN) != 0 && !stop_requested(holder->stop))
            accept_one(&all);
    }
    pthread_mutex_lock(&all.lock);
    while (all.count > 0)
        pthread_cond_wait(&all.fewer, &all.lock);
    pthread_mutex_unlock(&all.lock);
    pthread_cond_destroy(&all.fewer);
    pthread_mutex_destroy(&all.lock);
    return result;
}
