/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int read_fd(int fd, const char *name, size_t limit, struct str *out, struct err *err)
{
    struct stat status;
    /* files of /proc say 0, and a file may grow meanwhile: this is only to read usual ones without copying */
    size_t step = 4096;
    if (fstat(fd, &status) == 0 && status.st_size > 0 && (uint64_t)status.st_size <= limit)
        step = (size_t)status.st_size + 1;
    for (;;) {
        str_reserve(out, step);
        ssize_t got = read(fd, out->data + out->len, out->cap - out->len - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, errno, "read %s", name);
        out->len += (size_t)got;
        out->data[out->len] = '\0';
        if (out->len > limit)
            return err_set(err, ERR_INVALID, "read %s: larger than the limit of %zu bytes", name, limit);
        if (got == 0)
            return 0;
        step = 4096;
    }
}

static int read_opened(int fd, const char *name, size_t limit, char **data, size_t *len, struct err *err)
{
    auto_str struct str out = {0};
    if (read_fd(fd, name, limit, &out, err) != 0)
        return -1;
    if (len != NULL)
        *len = out.len;
    *data = str_take(&out);
    return 0;
}

int file_read_at(int dir_fd, const char *name, size_t limit, char **data, size_t *len, struct err *err)
{
    /* O_NONBLOCK: whoever can put a FIFO there could else hold us for ever */
    auto_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set_errno(err, errno, "open %s", name);
    struct stat status;
    if (fstat(fd, &status) != 0)
        return err_set_errno(err, errno, "stat %s", name);
    if (!S_ISREG(status.st_mode))
        return err_set(err, ERR_INVALID, "read %s: not a regular file", name);
    return read_opened(fd, name, limit, data, len, err);
}

int file_read(const char *path, size_t limit, char **data, size_t *len, struct err *err)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_set_errno(err, errno, "open %s", path);
    return read_opened(fd, path, limit, data, len, err);
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, data, len);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        data += written;
        len -= (size_t)written;
    }
    return 0;
}

/* Renaming is durable once the directory is; dir_fd itself may be O_PATH or AT_FDCWD, which cannot be synced. */
static int sync_directory(int dir_fd)
{
    auto_close int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : fsync(fd);
}

static int fill_and_rename(int dir_fd, int fd, const char *temporary, const char *name, const void *data, size_t len,
                           mode_t mode, struct err *err)
{
    /* the mode that was asked for, whatever the umask is */
    if (fchmod(fd, mode) != 0)
        return err_set_errno(err, errno, "set the mode of %s", name);
    if (write_all(fd, data, len) != 0)
        return err_set_errno(err, errno, "write %s", name);
    if (fsync(fd) != 0)
        return err_set_errno(err, errno, "sync %s", name);
    if (renameat(dir_fd, temporary, dir_fd, name) != 0)
        return err_set_errno(err, errno, "replace %s", name);
    return 0;
}

int file_write_atomic_at(int dir_fd, const char *name, const void *data, size_t len, mode_t mode, struct err *err)
{
    if (!file_name_is_safe(name))
        return err_set(err, ERR_INVALID, "write \"%s\": not a file name", name != NULL ? name : "");
    char temporary[32];
    snprintf(temporary, sizeof(temporary), ".tmp-%016" PRIx64, rng_u64(rng_real()));
    auto_close int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(err, errno, "create a temporary file for %s", name);
    if (fill_and_rename(dir_fd, fd, temporary, name, data, len, mode, err) != 0) {
        unlinkat(dir_fd, temporary, 0);
        return -1;
    }
    if (sync_directory(dir_fd) != 0)
        return err_set_errno(err, errno, "sync the directory of %s", name);
    return 0;
}

int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    auto_free char *directory = NULL;
    if (slash == NULL)
        directory = mem_strdup(".");
    else
        directory = mem_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    auto_close int dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return err_set_errno(err, errno, "open directory %s", directory);
    if (file_write_atomic_at(dir_fd, name, data, len, mode, err) != 0)
        return err_wrap(err, "in %s", directory);
    return 0;
}

int file_open_beneath(int root_fd, const char *path, int flags, mode_t mode, bool same_mount, struct err *err)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? mode & 07777 : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    if (same_mount)
        how.resolve |= RESOLVE_NO_XDEV;
    long fd = -1;
    /* EAGAIN: something was renamed while ".." was looked at, and the kernel cannot be sure */
    for (int tries = 0; tries < 100; tries++) {
        fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    if (fd >= 0)
        return (int)fd;
    switch (errno) {
    case EXDEV:
        return err_set(err, ERR_INVALID, "open %s: leaves its root%s", path,
                       same_mount ? " or crosses into another mount" : "");
    case ELOOP:
        return err_set(err, ERR_INVALID, "open %s: there is a symbolic link in the path", path);
    case ENOSYS:
        return err_set(err, ERR_IO, "open %s: the kernel has no openat2 (Linux 5.6 or newer is needed)", path);
    default:
        return err_set_errno(err, errno, "open %s", path);
    }
}

bool file_name_is_safe(const char *name)
{
    if (str_empty(name) || str_eq(name, ".") || str_eq(name, "..") || strchr(name, '/') != NULL)
        return false;
    return strlen(name) <= 255;
}

void file_raise_limit(uint64_t most)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= most)
        return;
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    setrlimit(RLIMIT_NOFILE, &limit);
}
