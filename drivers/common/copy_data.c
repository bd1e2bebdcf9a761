/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/copy_internal.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPORT_INTERVAL (10 * CLOCK_SECOND)
/* Between two looks at the stop. */
#define RANGE_BYTES ((int64_t)16 << 20)
#define BUFFER_BYTES ((size_t)256 << 10)

void copy_free(struct copy *copy)
{
    free(copy->buffer);
    copy->buffer = NULL;
}

int copy_fail(int error_number, const char *doing, const char *name, struct err *err)
{
    if (error_number == ENOSPC || error_number == EDQUOT)
        return csi_fail(err, CSI_RESOURCE_EXHAUSTED, "%s %s: no space left on the host's disk", doing, name);
    return err_set_errno(err, error_number, "%s %s", doing, name);
}

int copy_tick(struct copy *copy, struct err *err)
{
    if (copy->stop != NULL && stop_requested(copy->stop))
        return err_set(err, ERR_CANCELLED, "the copy was stopped");
    int64_t now = clock_mono(copy->clock);
    if (copy->next_report == 0) {
        copy->started = now;
        copy->next_report = now + REPORT_INTERVAL;
    }
    if (now >= copy->next_report) {
        copy->next_report = now + REPORT_INTERVAL;
        log_info("Still copying", kv_str("what", copy->what), kv_int("bytes", copy->bytes),
                 kv_int("files", copy->files), kv_duration("after", now - copy->started));
    }
    return 0;
}

/* errno of a system call that says "not here, try another way". */
static bool is_unsupported(int error_number)
{
    return error_number == EOPNOTSUPP || error_number == EXDEV || error_number == EINVAL || error_number == ENOTTY ||
           error_number == ENOSYS || error_number == EPERM || error_number == ETXTBSY;
}

bool copy_try_clone(struct copy *copy, int from, int to)
{
    struct stat st;
    if (copy->no_clone)
        return false;
    if (ioctl(to, FICLONE, from) == 0) {
        copy->bytes += fstat(to, &st) == 0 ? (int64_t)st.st_blocks * 512 : 0;
        return true;
    }
    copy->no_clone = is_unsupported(errno);
    return false;
}

static ssize_t read_write(struct copy *copy, int from, int to, off_t at, size_t len)
{
    if (copy->buffer == NULL)
        copy->buffer = mem_alloc(BUFFER_BYTES);
    ssize_t got = pread(from, copy->buffer, len < BUFFER_BYTES ? len : BUFFER_BYTES, at);
    for (ssize_t done = 0; done < got;) {
        ssize_t written = pwrite(to, (char *)copy->buffer + done, (size_t)(got - done), at + done);
        if (written < 0)
            return -1;
        done += written;
    }
    return got;
}

static ssize_t copy_some(struct copy *copy, int from, int to, off_t at, int64_t len)
{
    size_t want = (size_t)(len < RANGE_BYTES ? len : RANGE_BYTES);
    if (!copy->no_range) {
        off_t in = at, out = at;
        ssize_t done = copy_file_range(from, &in, to, &out, want, 0);
        if (done >= 0 || !is_unsupported(errno))
            return done;
        copy->no_range = true;
    }
    return read_write(copy, from, to, at, want);
}

/* One stretch of data; *end is where it turned out to end, earlier when the file was cut meanwhile. */
static int copy_extent(struct copy *copy, int from, int to, off_t at, off_t *end, struct err *err)
{
    while (at < *end) {
        if (copy_tick(copy, err) < 0)
            return -1;
        ssize_t done = copy_some(copy, from, to, at, *end - at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return copy_fail(errno, "copying", "data", err);
        if (done == 0) {
            *end = at;
            return 0;
        }
        at += done;
        copy->bytes += done;
    }
    return 0;
}

int copy_file_data(struct copy *copy, int from, int to, struct err *err)
{
    struct stat st;
    if (copy_tick(copy, err) < 0)
        return -1;
    if (fstat(from, &st) != 0)
        return err_set_errno(err, errno, "looking at the source");
    if (st.st_size == 0)
        return 0;
    if (copy_try_clone(copy, from, to))
        return 0;
    if (ftruncate(to, st.st_size) != 0)
        return copy_fail(errno, "making room for", "the copy", err);
    for (off_t at = 0; at < st.st_size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) /* nothing but a hole up to the end */
            return 0;
        if (data < 0)
            data = at; /* no such call here: all is data */
        off_t end = lseek(from, data, SEEK_HOLE);
        if (end < 0 || end > st.st_size)
            end = st.st_size;
        if (data >= st.st_size)
            return 0;
        off_t reached = end;
        if (copy_extent(copy, from, to, data, &reached, err) < 0)
            return -1;
        if (reached < end)
            return 0;
        at = end;
    }
    return 0;
}
