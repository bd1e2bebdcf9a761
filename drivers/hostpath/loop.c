/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/loop.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define ATTACH_TRIES 64
#define LOOP_MAJOR 7
/* Our images have this name, so other people's devices need not even be opened. */
#define IMAGE_NAME "/image"

/* /dev may be a container's own, without nodes for devices made later. */
static int open_device(unsigned number, int flags, char path[LOOP_PATH_SIZE])
{
    snprintf(path, LOOP_PATH_SIZE, "/dev/loop%u", number);
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT && mknod(path, S_IFBLK | 0660, makedev(LOOP_MAJOR, number)) == 0)
        fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISBLK(st.st_mode) || st.st_rdev != makedev(LOOP_MAJOR, number))) {
        close(fd);
        errno = ENODEV;
        return -1;
    }
    return fd;
}

static int configure(int device, int image, const char *name, enum loop_use use)
{
    struct loop_config config = {.fd = (unsigned)image};
    config.info.lo_flags = LO_FLAGS_DIRECT_IO | (use == LOOP_MOUNT ? LO_FLAGS_AUTOCLEAR : 0) |
                           (use == LOOP_READ_ONLY ? LO_FLAGS_READ_ONLY : 0);
    snprintf((char *)config.info.lo_file_name, sizeof(config.info.lo_file_name), "%s", name);
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
        return 0;
    if (errno != EINVAL)
        return -1;
    config.info.lo_flags &= ~(unsigned)LO_FLAGS_DIRECT_IO; /* a kernel that minds instead of ignoring it */
    return ioctl(device, LOOP_CONFIGURE, &config);
}

int loop_attach(int image, const char *name, enum loop_use use, char path[LOOP_PATH_SIZE], struct err *err)
{
    auto_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return err_set_errno(err, errno, "opening /dev/loop-control");
    for (int tries = 0; tries < ATTACH_TRIES; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return err_set_errno(err, errno, "looking for a free loop device");
        auto_close int device = open_device((unsigned)number, use == LOOP_READ_ONLY ? O_RDONLY : O_RDWR, path);
        if (device < 0 && errno != ENXIO && errno != EBUSY && errno != ENOENT)
            return err_set_errno(err, errno, "opening %s", path);
        if (device >= 0 && configure(device, image, name, use) == 0)
            return mem_take_fd(&device);
        if (device >= 0 && errno != EBUSY && errno != EAGAIN) /* EBUSY: somebody else took it first */
            return err_set_errno(err, errno, "attaching %s", path);
        struct timespec pause = {.tv_nsec = (long)(rng_below(rng_real(), 5) + 1) * 1000000};
        nanosleep(&pause, NULL);
    }
    return err_set(err, ERR_UNAVAILABLE, "no loop device could be had in %d tries", ATTACH_TRIES);
}

/* ---- devices of one image ---- */

static bool may_be_ours(const char *entry)
{
    char text[4096];
    auto_free char *file = mem_printf("/sys/block/%s/loop/backing_file", entry);
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (len <= 0)
        return false;
    text[len] = '\0';
    return strstr(text, IMAGE_NAME) != NULL;
}

static bool is_of_image(int device, const struct stat *image)
{
    struct loop_info64 info;
    return ioctl(device, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == image->st_dev &&
           info.lo_inode == image->st_ino;
}

/* Calls visit for each device of the image, open for reading. */
static int each_device(int image, int (*visit)(void *arg, int device, const char *path, struct err *err), void *arg,
                       struct err *err)
{
    struct stat st;
    if (fstat(image, &st) != 0)
        return err_set_errno(err, errno, "looking at an image");
    DIR *dir = opendir("/sys/block");
    if (dir == NULL)
        return err_set_errno(err, errno, "reading /sys/block");
    int result = 0;
    for (const struct dirent *entry; result == 0 && (entry = readdir(dir)) != NULL;) {
        uint64_t number;
        char path[LOOP_PATH_SIZE];
        if (!str_starts(entry->d_name, "loop") || !str_parse_u64(entry->d_name + strlen("loop"), &number) ||
            number > UINT32_MAX || !may_be_ours(entry->d_name))
            continue;
        auto_close int device = open_device((unsigned)number, O_RDONLY, path);
        if (device >= 0 && is_of_image(device, &st))
            result = visit(arg, device, path, err);
    }
    closedir(dir);
    return result;
}

struct found {
    bool read_only; /* wanted */
    bool any;
    char path[LOOP_PATH_SIZE];
};

static int note(void *arg, int device, const char *path, struct err *err)
{
    struct found *found = arg;
    int read_only = 0;
    (void)err;
    if (ioctl(device, BLKROGET, &read_only) != 0 || (read_only != 0) != found->read_only)
        return 0;
    found->any = true;
    snprintf(found->path, sizeof(found->path), "%s", path);
    return 0;
}

int loop_find(int image, enum loop_use use, bool *any, char path[LOOP_PATH_SIZE], struct err *err)
{
    struct found found = {.read_only = use == LOOP_READ_ONLY};
    int result = each_device(image, note, &found, err);
    *any = found.any;
    memcpy(path, found.path, LOOP_PATH_SIZE);
    return result;
}

static int clear(void *arg, int device, const char *path, struct err *err)
{
    (void)arg;
    /* in use: the kernel marks it, and it goes with its last user */
    if (ioctl(device, LOOP_CLR_FD, 0) != 0 && errno != ENXIO)
        return err_set_errno(err, errno, "detaching %s", path);
    return 0;
}

int loop_detach(int image, struct err *err)
{
    return each_device(image, clear, NULL, err);
}

static int refresh(void *arg, int device, const char *path, struct err *err)
{
    uint64_t bytes = 0;
    if (ioctl(device, LOOP_SET_CAPACITY, 0) != 0 || ioctl(device, BLKGETSIZE64, &bytes) != 0)
        return err_set_errno(err, errno, "growing %s", path);
    *(int64_t *)arg = (int64_t)bytes;
    return 0;
}

int loop_refresh_size(int image, int64_t *size, struct err *err)
{
    int64_t ignored = 0;
    return each_device(image, refresh, size != NULL ? size : &ignored, err);
}

static int flush(void *arg, int device, const char *path, struct err *err)
{
    (void)arg;
    return fsync(device) == 0 ? 0 : err_set_errno(err, errno, "flushing %s", path);
}

int loop_flush(int image, struct err *err)
{
    return each_device(image, flush, NULL, err);
}
