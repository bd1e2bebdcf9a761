/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/image.h"

#include "drivers/common/tool.h"
#include "drivers/hostpath/loop.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SECTOR 512
#define LOOP_MAJOR 7
#define FORMAT_TIMEOUT (120 * CLOCK_SECOND)
#define RESIZE_TIMEOUT (600 * CLOCK_SECOND)
#define COPY_TRIES 3
/* Times of files move on in steps of a kernel tick (at most 10 ms), so what changed longer ago than this has been seen.
 */
#define QUIET_TIME (20 * CLOCK_MS)
#define QUIET_TRIES 50
/* linux/ext4.h is not among the public headers */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

int64_t image_size_for(int64_t capacity)
{
    return (capacity + SECTOR - 1) / SECTOR * SECTOR;
}

int image_grow(int image, int64_t size, struct err *err)
{
    struct stat st;
    if (fstat(image, &st) != 0)
        return err_set_errno(err, errno, "looking at the image");
    if (st.st_size >= size)
        return 0;
    if (ftruncate(image, size) != 0 || fsync(image) != 0)
        return errno == EFBIG ? csi_fail(err, CSI_OUT_OF_RANGE, "the host's file system has no files of %lld bytes",
                                         (long long)size)
                              : err_set_errno(err, errno, "growing the image");
    return 0;
}

/* The journal is what a small image would be full of. */
static const struct {
    int64_t from;
    const char *option;
} journals[] = {{(int64_t)64 << 30, "-Jsize=64"}, {(int64_t)4 << 30, "-Jsize=32"}, {(int64_t)16 << 20, "-Jsize=4"}};

int image_format(const char *path, int64_t size, struct stop *stop, struct err *err)
{
    /* a new image reads as zeros: neither mke2fs nor later the kernel has to write them */
    const char *argv[12] = {
        "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-E", "nodiscard,assume_storage_prezeroed=1"};
    size_t count = 9;
    for (size_t i = 0; i < ARRAY_LEN(journals); i++)
        if (size >= journals[i].from) {
            argv[count++] = journals[i].option;
            break;
        }
    argv[count++] = path;
    argv[count] = NULL;
    if (tool_run(argv, 0, FORMAT_TIMEOUT, stop, err) == 0)
        return 0;
    if (err->code != ERR_IO)
        return -1;
    auto_err struct err first = {0};
    err_move(&first, err);
    argv[8] = "nodiscard,lazy_itable_init=1,lazy_journal_init=1"; /* e2fsprogs before 1.47 */
    if (tool_run(argv, 0, FORMAT_TIMEOUT, stop, err) == 0)
        return 0;
    err_move(err, &first);
    return -1;
}

/* The root of a file system on a loop device. Should somebody have unmounted it meanwhile, the path would lead to the
 * host's own file system, and pausing that would stop the machine. */
static int open_mount(const char *mount_point, struct err *err)
{
    struct stat st;
    auto_close int fd = open(mount_point, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return err_set_errno(err, errno, "opening %s", mount_point);
    if (major(st.st_dev) != LOOP_MAJOR)
        return err_set(err, ERR_IO, "%s is not on a loop device any more", mount_point);
    return mem_take_fd(&fd);
}

/* Fields of the superblock, which lies at byte 1024; all little-endian. */
#define SUPERBLOCK_AT 1024
#define SUPERBLOCK_MAGIC 0xef53
#define INCOMPAT_64BIT 0x80

static uint32_t field(const unsigned char *block, size_t at, size_t bytes)
{
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint32_t)block[at + i] << (8 * i);
    return value;
}

int image_ext4_is_short(int image, bool *is_short, struct err *err)
{
    unsigned char block[1024];
    struct stat st;
    if (fstat(image, &st) != 0 || pread(image, block, sizeof(block), SUPERBLOCK_AT) != (ssize_t)sizeof(block))
        return err_set_errno(err, errno, "reading the image");
    if (field(block, 0x38, 2) != SUPERBLOCK_MAGIC || field(block, 0x18, 4) > 6)
        return err_set(err, ERR_IO, "the image holds no ext4 file system");
    uint64_t blocks = field(block, 0x04, 4);
    if ((field(block, 0x60, 4) & INCOMPAT_64BIT) != 0)
        blocks |= (uint64_t)field(block, 0x150, 4) << 32;
    const int64_t size = (int64_t)(blocks << (10 + field(block, 0x18, 4)));
    /* a last group of blocks that could hold hardly more than its own tables is left out */
    const int64_t ignored = st.st_size / 32 < ((int64_t)4 << 20) ? st.st_size / 32 : (int64_t)4 << 20;
    *is_short = size < st.st_size - ignored;
    return 0;
}

int image_resize_mounted(const char *mount_point, int64_t device_bytes, struct err *err)
{
    struct statfs fs;
    auto_close int fd = open_mount(mount_point, err);
    if (fd < 0)
        return -1;
    if (fstatfs(fd, &fs) != 0)
        return err_set_errno(err, errno, "statfs of %s", mount_point);
    uint64_t blocks = (uint64_t)device_bytes / (uint64_t)fs.f_bsize;
    if (ioctl(fd, EXT4_IOC_RESIZE_FS, &blocks) == 0)
        return 0;
    if (errno == EPERM)
        return csi_fail(
            err, CSI_FAILED_PRECONDITION,
            "the kernel does not let the driver grow a mounted ext4 (it lacks CAP_SYS_RESOURCE): the volume "
            "grows when it is mounted the next time");
    return err_set_errno(err, errno, "growing the file system at %s", mount_point);
}

int image_resize_unmounted(const char *path, struct err *err)
{
    /* resize2fs insists on a check before; 1 = it corrected something */
    const char *const check[] = {"e2fsck", "-f", "-p", path, NULL};
    const char *const resize[] = {"resize2fs", path, NULL};
    if (tool_run(check, 1, RESIZE_TIMEOUT, NULL, err) < 0)
        return -1;
    return tool_run(resize, 0, RESIZE_TIMEOUT, NULL, err);
}

/* ---- freezing ---- */

int image_freeze(const char *mount_point, struct err *err)
{
    auto_close int fd = open_mount(mount_point, err);
    if (fd < 0)
        return -1;
    if (ioctl(fd, FIFREEZE, 0) != 0)
        return errno == EBUSY ? csi_fail(err, CSI_ABORTED, "another snapshot has paused the writes to %s", mount_point)
                              : err_set_errno(err, errno, "pausing writes to %s", mount_point);
    return mem_take_fd(&fd);
}

void image_thaw(int handle)
{
    if (handle < 0)
        return;
    if (ioctl(handle, FITHAW, 0) != 0)
        log_error("Cannot end the pause of a file system", kv_int("errno", errno));
    close(handle);
}

void image_thaw_mount(const char *mount_point)
{
    auto_err struct err ignored = {0};
    auto_close int fd = open_mount(mount_point, &ignored);
    if (fd >= 0 && ioctl(fd, FITHAW, 0) == 0)
        log_info("Writes to a file system that an interrupted snapshot had paused go on", kv_str("mount", mount_point));
}

/* ---- copies ---- */

static bool changed_since(const struct stat *before, int image)
{
    struct stat now;
    return fstat(image, &now) != 0 || now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != before->st_mtim.tv_nsec || now.st_size != before->st_size;
}

/* Writes out what the device has cached and waits until the image has not changed for a moment. */
static int wait_until_quiet(struct copy *copy, int image, struct stat *st, struct err *err)
{
    for (int tries = 0; tries < QUIET_TRIES; tries++) {
        if (loop_flush(image, err) < 0)
            return -1;
        if (fstat(image, st) != 0)
            return err_set_errno(err, errno, "looking at the image");
        int64_t changed = st->st_mtim.tv_sec * CLOCK_SECOND + st->st_mtim.tv_nsec;
        int64_t age = clock_wall(clock_real()) - changed;
        if (age < 0 || age > QUIET_TIME)
            return 0;
        if (copy->stop != NULL && stop_sleep(copy->stop, clock_real(), QUIET_TIME))
            return err_set(err, ERR_CANCELLED, "the copy was stopped");
    }
    return 0; /* the check after the copy tells */
}

int image_copy(struct copy *copy, int from, int to, struct err *err)
{
    for (int tries = 0; tries < COPY_TRIES; tries++) {
        struct stat before;
        if (wait_until_quiet(copy, from, &before, err) < 0)
            return -1;
        if (ftruncate(to, 0) != 0)
            return err_set_errno(err, errno, "emptying a copy");
        bool cloned = copy_try_clone(copy, from, to);
        if (!cloned && copy_file_data(copy, from, to, err) < 0)
            return -1;
        if (!cloned && (loop_flush(from, err) < 0))
            return -1;
        if (cloned || !changed_since(&before, from)) {
            if (fsync(to) != 0)
                return err_set_errno(err, errno, "writing the copy");
            return 0;
        }
    }
    return csi_fail(err, CSI_ABORTED,
                    "the volume is being written to, so its copy would not be of one moment: pause its writers, or "
                    "keep the state directory on a file system with reflinks");
}
