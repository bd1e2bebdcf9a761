/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/copy_internal.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FD_PATH 40

/* The one way to attributes of an O_PATH descriptor; also of a symlink itself. */
static const char *fd_path(int fd, char path[FD_PATH])
{
    snprintf(path, FD_PATH, "/proc/self/fd/%d", fd);
    return path;
}

/* All names, NUL-separated; NULL with errno 0 when there are none or the file system has no such thing. */
static char *list_names(const char *path, ssize_t *len)
{
    for (int tries = 0; tries < 10; tries++) {
        ssize_t need = listxattr(path, NULL, 0);
        if (need <= 0) {
            errno = need < 0 && errno != ENOTSUP && errno != EPERM ? errno : 0;
            return NULL;
        }
        char *names = mem_alloc((size_t)need + 256);
        *len = listxattr(path, names, (size_t)need + 256);
        if (*len >= 0)
            return names;
        free(names);
        if (errno != ERANGE)
            return NULL;
    }
    return NULL;
}

static int copy_one(const char *from, const char *to, const char *name, struct err *err)
{
    for (int tries = 0; tries < 10; tries++) {
        ssize_t need = getxattr(from, name, NULL, 0);
        if (need < 0)
            return errno == ENODATA || errno == ENOTSUP ? 0 : err_set_errno(err, errno, "reading attribute %s", name);
        auto_free char *value = mem_alloc((size_t)need + 1);
        ssize_t got = getxattr(from, name, value, (size_t)need + 1);
        if (got < 0 && errno == ERANGE)
            continue;
        if (got < 0)
            return errno == ENODATA ? 0 : err_set_errno(err, errno, "reading attribute %s", name);
        if (setxattr(to, name, value, (size_t)got, 0) != 0)
            return copy_fail(errno, "setting attribute", name, err);
        return 0;
    }
    return err_set(err, ERR_IO, "attribute %s changes all the time", name);
}

static int copy_xattrs(const char *from, const char *to, struct err *err)
{
    ssize_t len = 0;
    auto_free char *names = list_names(from, &len);
    if (names == NULL)
        return errno == 0 ? 0 : err_set_errno(err, errno, "listing extended attributes");
    for (const char *name = names; name < names + len; name += strlen(name) + 1)
        if (copy_one(from, to, name, err) < 0)
            return -1;
    return 0;
}

int copy_attributes(int from, int to, struct err *err)
{
    struct stat st;
    char from_path[FD_PATH], to_path[FD_PATH];
    if (fstat(from, &st) != 0)
        return err_set_errno(err, errno, "looking at the source");
    fd_path(from, from_path);
    fd_path(to, to_path);
    /* in this order: a change of the owner takes set-uid bits and file capabilities away */
    if (fchownat(to, "", st.st_uid, st.st_gid, AT_EMPTY_PATH) != 0)
        return err_set_errno(err, errno, "setting the owner");
    if (!S_ISLNK(st.st_mode) && chmod(to_path, st.st_mode & 07777) != 0)
        return err_set_errno(err, errno, "setting the mode");
    if (copy_xattrs(from_path, to_path, err) < 0)
        return -1;
    const struct timespec times[] = {st.st_atim, st.st_mtim};
    if (utimensat(to, "", times, AT_EMPTY_PATH) != 0)
        return err_set_errno(err, errno, "setting the times");
    return 0;
}
