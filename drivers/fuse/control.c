/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/control.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_OTHERS 4

int control_open(struct control *control, const char *path, struct account *account, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *control = (struct control){.listen_fd = -1, .account = account};
    if (path == NULL)
        return 0;
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(err, ERR_INVALID, "control socket path %s is too long", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set_errno(err, errno, "socket");
    unlink(path);
    mode_t old = umask(0177);
    int result = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    umask(old);
    if (result != 0 || listen(fd, CONTROL_MAX_PEERS) != 0)
        return err_set_errno(err, errno, "listening at %s", path);
    control->listen_fd = mem_take_fd(&fd);
    return 0;
}

void control_close(struct control *control)
{
    for (size_t i = 0; i < control->peer_count; i++)
        close(control->peers[i]);
    if (control->listen_fd >= 0)
        close(control->listen_fd);
}

struct fuse_control_answer control_answer(struct account *account, const void *message, size_t length)
{
    struct fuse_control_answer answer = {.magic = FUSE_CONTROL_MAGIC};
    struct fuse_control_request request;
    if (length != sizeof(request)) {
        answer.error = EPROTO;
        return answer;
    }
    memcpy(&request, message, sizeof(request));
    bool known = request.kind == FUSE_CONTROL_STATS || request.kind == FUSE_CONTROL_SET_LIMIT;
    if (request.magic != FUSE_CONTROL_MAGIC || !known)
        answer.error = EPROTO;
    else if (request.kind == FUSE_CONTROL_SET_LIMIT && (request.limit <= 0 || request.inode_limit < 0))
        answer.error = EINVAL;
    else if (request.kind == FUSE_CONTROL_SET_LIMIT)
        account_set_limit(account, request.limit, request.inode_limit);
    struct account_figures figures = account_figures(account);
    answer.limit = figures.limit;
    answer.used = figures.used;
    answer.inode_limit = figures.inode_limit;
    answer.inodes = figures.inodes;
    return answer;
}

static void accept_peer(struct control *control)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    auto_close int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != 0) {
        log_warn("Refused a peer that is not root");
        return;
    }
    if (control->peer_count < CONTROL_MAX_PEERS)
        control->peers[control->peer_count++] = mem_take_fd(&fd);
}

/* False when the peer is gone. */
static bool serve_peer(struct control *control, int fd)
{
    char message[sizeof(struct fuse_control_request) + 1];
    ssize_t length = recv(fd, message, sizeof(message), 0);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    if (length == 0)
        return false;
    struct fuse_control_answer answer = control_answer(control->account, message, (size_t)length);
    return send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) == (ssize_t)sizeof(answer);
}

int control_wait(struct control *control, const int *other_fds, size_t count, int timeout_ms)
{
    struct pollfd fds[MAX_OTHERS + 1 + CONTROL_MAX_PEERS];
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        fds[total++] = (struct pollfd){.fd = other_fds[i], .events = POLLIN};
    /* full: the next one waits in the queue */
    fds[total++] =
        (struct pollfd){.fd = control->peer_count < CONTROL_MAX_PEERS ? control->listen_fd : -1, .events = POLLIN};
    for (size_t i = 0; i < control->peer_count; i++)
        fds[total++] = (struct pollfd){.fd = control->peers[i], .events = POLLIN};
    if (poll(fds, total, timeout_ms) <= 0)
        return -1;
    for (size_t i = control->peer_count; i > 0; i--)
        if (fds[count + i].revents != 0 && !serve_peer(control, control->peers[i - 1])) {
            close(control->peers[i - 1]);
            control->peers[i - 1] = control->peers[--control->peer_count];
        }
    if (fds[count].revents != 0)
        accept_peer(control);
    for (size_t i = 0; i < count; i++)
        if (fds[i].revents != 0)
            return (int)i;
    return -1;
}
