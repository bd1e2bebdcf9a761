/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/transfer.h"

#include <errno.h>
#include <unistd.h>

ssize_t transfer_read(int fd, void *buffer, size_t size, int64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, (char *)buffer + done, size - done, offset + (int64_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

ssize_t transfer_write(int fd, const void *data, size_t size, int64_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t wrote = pwrite(fd, (const char *)data + done, size - done, offset + (int64_t)done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return done > 0 ? (ssize_t)done : -errno;
        done += (size_t)wrote;
    }
    return (ssize_t)done;
}
