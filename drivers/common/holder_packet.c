/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/holder_packet.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void holder_packet_clear(struct holder_packet *packet)
{
    json_decref(packet->body);
    for (size_t i = 0; i < packet->fd_count; i++)
        if (packet->fds[i] >= 0)
            close(packet->fds[i]);
    *packet = (struct holder_packet){0};
}

/* Waits until the socket can be read from or written to. */
static int wait_for(int fd, short events, int64_t deadline, struct err *err)
{
    for (;;) {
        int64_t left = deadline - clock_mono(clock_real());
        struct pollfd poller = {.fd = fd, .events = events};
        int timeout = left <= 0 ? 0 : left / CLOCK_MS < 3600000 ? (int)(left / CLOCK_MS) + 1 : 3600000;
        int result = poll(&poller, 1, timeout);
        if (result > 0)
            return 0;
        if (result < 0 && errno != EINTR)
            return err_set_errno(err, errno, "poll");
        if (left <= 0)
            return err_set(err, ERR_TIMEOUT, "no answer in time");
    }
}

int holder_packet_send(int fd, const json_t *body, const int *fds, size_t fd_count, int64_t deadline, struct err *err)
{
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (text == NULL || strlen(text) > HOLDER_PACKET_MAX || fd_count > HOLDER_PACKET_FDS)
        return err_set(err, ERR_INVALID, "the message is too long");
    struct iovec part = {.iov_base = text, .iov_len = strlen(text)};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * HOLDER_PACKET_FDS)];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * fd_count)};
        memcpy(CMSG_DATA(head), fds, sizeof(int) * fd_count);
    }
    for (;;) {
        if (wait_for(fd, POLLOUT, deadline, err) < 0)
            return -1;
        if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return 0;
        if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
            return err_set(err, ERR_UNAVAILABLE, "the peer is gone");
        if (errno != EAGAIN && errno != EINTR)
            return err_set_errno(err, errno, "sending a message");
    }
}

static void take_fds(struct msghdr *message, struct holder_packet *packet)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && packet->fd_count < HOLDER_PACKET_FDS; i++)
            memcpy(&packet->fds[packet->fd_count++], CMSG_DATA(head) + i * sizeof(int), sizeof(int));
    }
}

int holder_packet_receive(int fd, struct holder_packet *packet, int64_t deadline, struct err *err)
{
    auto_free char *text = mem_alloc(HOLDER_PACKET_MAX + 1);
    struct iovec part = {.iov_base = text, .iov_len = HOLDER_PACKET_MAX + 1};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * HOLDER_PACKET_FDS)];
    } control;
    *packet = (struct holder_packet){0};
    for (;;) {
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        if (wait_for(fd, POLLIN, deadline, err) < 0)
            return -1;
        ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (length < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (length == 0 || (length < 0 && errno == ECONNRESET))
            return 0;
        if (length < 0)
            return err_set_errno(err, errno, "receiving a message");
        take_fds(&message, packet);
        if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && (size_t)length <= HOLDER_PACKET_MAX)
            packet->body = json_loadb(text, (size_t)length, 0, NULL);
        if (json_is_object(packet->body))
            return 0;
        holder_packet_clear(packet);
        return err_set(err, ERR_INVALID, "the message is no JSON object, or too long");
    }
}

int holder_packet_address(const char *path, struct sockaddr_un *address, struct err *err)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path[0] != '/' || strlen(path) >= sizeof(address->sun_path))
        return err_set(err, ERR_INVALID, "%s is no absolute path of at most %zu bytes, as a socket needs", path,
                       sizeof(address->sun_path) - 1);
    memcpy(address->sun_path, path, strlen(path) + 1);
    return 0;
}

int holder_packet_connect(const char *path, struct err *err)
{
    struct sockaddr_un address;
    if (holder_packet_address(path, &address, err) < 0)
        return -1;
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(err, errno, "socket");
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        if (errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN || errno == ENOTDIR)
            return err_set(err, ERR_UNAVAILABLE, "nobody answers at %s: %s", path, strerror(errno));
        return err_set_errno(err, errno, "connecting to %s", path);
    }
    return mem_take_fd(&fd);
}

json_t *holder_packet_failure(const struct err *err)
{
    json_t *answer = json_pack("{s:b, s:s}", "ok", 0, "code", err_code_name(err->code));
    json_t *text = json_string(err_text(err)); /* NULL when a path in it is no UTF-8 */
    json_object_set_new(answer, "message", text != NULL ? text : json_string("failed (the reason is no UTF-8 text)"));
    return answer;
}

int holder_packet_check(const json_t *answer, struct err *err)
{
    const char *name = json_string_value(json_object_get(answer, "code"));
    const char *text = json_string_value(json_object_get(answer, "message"));
    if (json_is_true(json_object_get(answer, "ok")))
        return 0;
    enum err_code code = ERR_INTERNAL;
    for (int i = ERR_INTERNAL; i <= ERR_RPC; i++)
        if (str_eq(name, err_code_name((enum err_code)i)))
            code = (enum err_code)i;
    return err_set(err, code, "%s", text != NULL ? text : "no reason given");
}
