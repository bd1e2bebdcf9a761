/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core could bind the socket itself, but it would give the file the mode that the umask of the whole process leaves
 * it, replace the socket of a living process without asking, and at its end remove whatever is at the path by then.
 */
#include "lib/csi/listen.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strnlen(path, sizeof(address.sun_path) - 1));
    return address;
}

static int open_directory(const char *path, struct err *err)
{
    auto_free char *copy = mem_strdup(path);
    const char *directory = dirname(copy);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "directory %s of the socket", directory);
    return fd;
}

/* Is somebody listening? Only a refused connection proves that nobody is. */
static int check_stale(const char *path, struct err *err)
{
    const struct sockaddr_un address = address_of(path);
    auto_close int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (probe < 0)
        return err_set_errno(err, errno, "socket");
    if (connect(probe, (const struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN ||
        errno == EPROTOTYPE)
        return err_set(err, ERR_EXISTS, "socket %s is already in use by another process", path);
    if (errno == ECONNREFUSED || errno == ENOENT)
        return 0;
    return err_set_errno(err, errno, "connect to the old socket %s", path);
}

static int remove_stale(const char *path, struct err *err)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "socket %s", path);
    if (!S_ISSOCK(status.st_mode))
        return err_set(err, ERR_EXISTS, "%s is already there and is not a socket", path);
    if (check_stale(path, err) < 0)
        return -1;
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set_errno(err, errno, "remove the old socket %s", path);
    return 0;
}

static int bind_private(struct csi_listener *listener, mode_t mode, struct err *err)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set_errno(err, errno, "socket");
    listener->fd = fd;
    /* Linux makes the file with the mode of the socket itself, minus the umask. What the umask took away is given back
     * below; nobody can connect before listen(). */
    if (fchmod(fd, mode) < 0)
        return err_set_errno(err, errno, "mode of socket %s", listener->path);
    const struct sockaddr_un address = address_of(listener->path);
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return err_set_errno(err, errno, "bind socket %s", listener->path);
    struct stat status;
    if (lstat(listener->path, &status) < 0)
        return err_set_errno(err, errno, "socket %s", listener->path);
    listener->device = status.st_dev;
    listener->inode = status.st_ino;
    if ((status.st_mode & 07777) != mode && chmod(listener->path, mode) < 0)
        return err_set_errno(err, errno, "mode of socket %s", listener->path);
    if (listen(fd, SOMAXCONN) < 0)
        return err_set_errno(err, errno, "listen on socket %s", listener->path);
    return 0;
}

/* Two starters must not each take the other's fresh socket for a stale one. CSI forbids further files beside the
 * socket, so the directory itself is the lock; somebody else's lock on it only costs us this protection. */
static void lock_directory(int directory)
{
    struct clock *clock = clock_real();
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    clock_cond_init(&never);
    pthread_mutex_lock(&mutex);
    const int64_t deadline = clock_mono(clock) + CLOCK_SECOND;
    while (flock(directory, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK && clock_mono(clock) < deadline)
        clock_cond_wait(clock, &never, &mutex, clock_mono(clock) + 10 * CLOCK_MS);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&never);
}

int csi_listener_open(struct csi_listener *listener, char *path, mode_t mode, struct err *err)
{
    *listener = (struct csi_listener){.path = path, .fd = -1};
    auto_close int directory = open_directory(path, err);
    if (directory < 0)
        return -1;
    lock_directory(directory);
    if (remove_stale(path, err) < 0)
        return -1;
    if (bind_private(listener, mode, err) == 0)
        return 0;
    csi_listener_close(listener);
    return -1;
}

void csi_listener_close(struct csi_listener *listener)
{
    if (listener->fd < 0)
        return;
    struct stat status;
    if (lstat(listener->path, &status) == 0 && status.st_dev == listener->device && status.st_ino == listener->inode)
        unlink(listener->path);
    close(listener->fd);
    listener->fd = -1;
}

void csi_listener_free(struct csi_listener *listener)
{
    csi_listener_close(listener);
    free(listener->path);
    listener->path = NULL;
}
