/* SPDX-License-Identifier: Apache-2.0 */
/* Real loop devices and a real ext4, in a mount namespace of the test's own. */
#include "drivers/common/mount.h"
#include "drivers/hostpath/image.h"
#include "drivers/hostpath/loop.h"
#include "lib/base/mem.h"
#include "tests/unit/hostpath/scratch.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

#define MIB ((int64_t)1 << 20)

static int set_up(void **state)
{
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    return scratch_set_up(state);
}

static int new_image(const struct scratch *s, int64_t size)
{
    auto_err struct err err = {0};
    int image = openat(s->fd, "image", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(image >= 0);
    assert_int_equal(image_grow(image, size, &err), 0);
    return image;
}

static bool is_attached(int image, enum loop_use use, char path[LOOP_PATH_SIZE])
{
    auto_err struct err err = {0};
    bool found = true;
    for (int tries = 0; tries < 200 && found; tries++) { /* the kernel takes a moment to let go */
        assert_int_equal(loop_find(image, use, &found, path, &err), 0);
        if (found && tries == 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return found;
}

static void wait_until_gone(int image)
{
    auto_err struct err err = {0};
    char path[LOOP_PATH_SIZE];
    bool found = true;
    for (int tries = 0; tries < 500 && found; tries++) {
        assert_int_equal(loop_find(image, LOOP_BLOCK, &found, path, &err), 0);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_false(found);
}

static void test_block_device_of_an_image(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    char path[LOOP_PATH_SIZE], found[LOOP_PATH_SIZE];
    int64_t size = 0;
    auto_close int image = new_image(s, image_size_for(MIB + 1));
    auto_close int foreign = openat(s->fd, "foreign-image", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(foreign, MIB), 0);
    assert_false(is_attached(image, LOOP_BLOCK, found));
    close(loop_attach(image, "test", LOOP_BLOCK, path, &err));
    assert_true(is_attached(image, LOOP_BLOCK, found));
    assert_string_equal(path, found);
    assert_false(is_attached(image, LOOP_READ_ONLY, found));
    assert_false(is_attached(foreign, LOOP_BLOCK, found)); /* a device of one image is none of another */
    assert_int_equal(loop_detach(foreign, &err), 0);
    assert_true(is_attached(image, LOOP_BLOCK, found));
    assert_int_equal(image_grow(image, 2 * MIB, &err), 0);
    assert_int_equal(loop_refresh_size(image, &size, &err), 0);
    assert_int_equal(size, 2 * MIB);
    assert_int_equal(loop_flush(image, &err), 0);
    assert_int_equal(loop_detach(image, &err), 0);
    wait_until_gone(image);
}

static void test_read_only_device_refuses_writers(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    char path[LOOP_PATH_SIZE], found[LOOP_PATH_SIZE];
    close(new_image(s, MIB));
    auto_close int image = openat(s->fd, "image", O_RDONLY | O_CLOEXEC);
    close(loop_attach(image, "test", LOOP_READ_ONLY, path, &err));
    assert_true(is_attached(image, LOOP_READ_ONLY, found));
    auto_close int device = open(path, O_RDWR | O_CLOEXEC);
    assert_true(device < 0 || pwrite(device, "x", 1, 0) < 0);
    assert_int_equal(loop_detach(image, &err), 0);
    wait_until_gone(image);
}

static void test_a_device_of_a_mount_detaches_itself(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    char path[LOOP_PATH_SIZE];
    auto_free char *file = mem_printf("%s/image", s->path), *point = mem_printf("%s/mount", s->path);
    auto_close int image = new_image(s, 32 * MIB);
    assert_int_equal(image_format(file, 32 * MIB, NULL, &err), 0);
    close(scratch_mkdir(s, "mount"));
    int device = loop_attach(image, "test", LOOP_MOUNT, path, &err);
    assert_true(device >= 0);
    assert_int_equal(mount(path, point, "ext4", 0, NULL), 0);
    close(device);
    /* pausing and going on; what is not on a loop device is never paused */
    int pause = image_freeze(point, &err);
    assert_true(pause >= 0);
    image_thaw(pause);
    image_thaw_mount(point);
    assert_int_equal(image_freeze(s->path, &err), -1);
    assert_non_null(strstr(err.message, "not on a loop device"));
    assert_int_equal(mount_remove(point, &err), 0);
    wait_until_gone(image);
}

static void test_growing_an_unmounted_file_system(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    bool is_short = true;
    auto_free char *file = mem_printf("%s/image", s->path);
    auto_close int image = new_image(s, 32 * MIB);
    assert_int_equal(image_ext4_is_short(image, &is_short, &err), -1); /* no file system yet */
    assert_int_equal(image_format(file, 32 * MIB, NULL, &err), 0);
    assert_int_equal(image_ext4_is_short(image, &is_short, &err), 0);
    assert_false(is_short);
    assert_int_equal(image_grow(image, 96 * MIB, &err), 0);
    assert_int_equal(image_grow(image, 64 * MIB, &err), 0); /* never shrinks */
    assert_int_equal(image_ext4_is_short(image, &is_short, &err), 0);
    assert_true(is_short);
    assert_int_equal(image_resize_unmounted(file, &err), 0);
    assert_int_equal(image_ext4_is_short(image, &is_short, &err), 0);
    assert_false(is_short);
}

static void test_small_images_can_be_formatted(void **state)
{
    const struct scratch *s = *state;
    static const int64_t sizes[] = {IMAGE_EXT4_MIN, 5 * MIB, 17 * MIB, 300 * MIB, (int64_t)5 << 30};
    auto_free char *file = mem_printf("%s/image", s->path);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        auto_err struct err err = {0};
        struct stat st;
        auto_close int image = new_image(s, sizes[i]);
        assert_int_equal(image_format(file, sizes[i], NULL, &err), 0);
        assert_int_equal(fstat(image, &st), 0);
        assert_int_equal(st.st_size, sizes[i]);
        assert_true(st.st_blocks * 512 < 16 * MIB); /* it stays sparse */
        assert_int_equal(unlinkat(s->fd, "image", 0), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, scratch_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_block_device_of_an_image),
        TEST(test_read_only_device_refuses_writers),
        TEST(test_a_device_of_a_mount_detaches_itself),
        TEST(test_growing_an_unmounted_file_system),
        TEST(test_small_images_can_be_formatted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
