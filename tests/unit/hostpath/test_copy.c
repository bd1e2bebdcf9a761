/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/copy.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "tests/unit/hostpath/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

static int copy_directories(const struct scratch *s, struct copy *copy, struct err *err)
{
    copy->clock = copy->clock != NULL ? copy->clock : clock_real();
    copy->what = "test";
    auto_close int from = openat(s->fd, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int to = scratch_mkdir(s, "to");
    int result = copy_tree(copy, from, to, err);
    copy_free(copy);
    return result;
}

static void look(const struct scratch *s, const char *name, struct stat *st)
{
    assert_int_equal(fstatat(s->fd, name, st, AT_SYMLINK_NOFOLLOW), 0);
}

static void test_attributes_and_links(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    struct copy copy = {0};
    struct stat st, other;
    close(scratch_mkdir(s, "from"));
    close(scratch_mkdir(s, "from/d"));
    scratch_write(s, "from/a", "text");
    assert_int_equal(linkat(s->fd, "from/a", s->fd, "from/d/b", 0), 0);
    assert_int_equal(symlinkat("/nowhere", s->fd, "from/link"), 0);
    assert_int_equal(mkfifoat(s->fd, "from/pipe", 0640), 0);
    assert_int_equal(mknodat(s->fd, "from/null", S_IFCHR | 0666, 0x103), 0);
    assert_int_equal(fchownat(s->fd, "from/a", 12, 34, 0), 0);
    assert_int_equal(fchmodat(s->fd, "from/a", 04711, 0), 0);
    assert_int_equal(fchownat(s->fd, "from/link", 56, 78, AT_SYMLINK_NOFOLLOW), 0);
    auto_free char *path = mem_printf("%s/from/a", s->path), *path_to = mem_printf("%s/to/a", s->path);
    assert_int_equal(setxattr(path, "user.one", "1", 1, 0), 0);
    const struct timespec times[] = {{.tv_sec = 100, .tv_nsec = 123}, {.tv_sec = 200, .tv_nsec = 456}};
    assert_int_equal(utimensat(s->fd, "from/d", times, 0), 0);
    assert_int_equal(fchmodat(s->fd, "from/d", 0500, 0), 0);
    assert_int_equal(copy_directories(s, &copy, &err), 0);

    look(s, "to/a", &st);
    assert_int_equal(st.st_uid, 12);
    assert_int_equal(st.st_gid, 34);
    assert_int_equal(st.st_mode & 07777, 04711);
    assert_int_equal(st.st_nlink, 2);
    look(s, "to/d/b", &other);
    assert_int_equal(st.st_ino, other.st_ino);
    char value[8] = "";
    assert_int_equal(getxattr(path_to, "user.one", value, sizeof(value)), 1);
    assert_int_equal(value[0], '1');
    look(s, "to/d", &st);
    assert_int_equal(st.st_mtim.tv_sec, 200);
    assert_int_equal(st.st_mtim.tv_nsec, 456);
    assert_int_equal(st.st_mode & 07777, 0500);
    look(s, "to/link", &st);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(st.st_uid, 56);
    look(s, "to/pipe", &st);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0640);
    look(s, "to/null", &st);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(st.st_rdev, 0x103);
    auto_free char *text = scratch_read(s, "to/a");
    assert_string_equal(text, "text");
}

static void test_holes_stay_holes(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    struct copy copy = {0};
    struct stat st;
    char byte = 0;
    close(scratch_mkdir(s, "from"));
    auto_close int fd = openat(s->fd, "from/sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 1 << 30), 0);
    assert_int_equal(pwrite(fd, "x", 1, 512 << 20), 1);
    assert_int_equal(copy_directories(s, &copy, &err), 0);
    look(s, "to/sparse", &st);
    assert_int_equal(st.st_size, 1 << 30);
    assert_true(st.st_blocks * 512 < 1 << 20);
    auto_close int out = openat(s->fd, "to/sparse", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(out, &byte, 1, 512 << 20), 1);
    assert_int_equal(byte, 'x');
}

/* Each way to copy gives the same: with ranges, and by reading and writing. */
static void test_every_way_copies_all(void **state)
{
    const struct scratch *s = *state;
    auto_close int from = openat(s->fd, "data", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const size_t len = (3 << 20) + 17;
    auto_free unsigned char *data = mem_alloc(len), *back = mem_alloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    assert_int_equal(pwrite(from, data, len, 0), (ssize_t)len);
    for (int way = 0; way < 2; way++) {
        auto_err struct err err = {0};
        auto_copy struct copy copy = {.clock = clock_real(), .what = "test", .no_clone = true, .no_range = way == 1};
        auto_close int to = openat(s->fd, "copy", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(copy_file_data(&copy, from, to, &err), 0);
        assert_int_equal(copy.bytes, len);
        assert_int_equal(pread(to, back, len, 0), (ssize_t)len);
        assert_memory_equal(data, back, len);
    }
}

static void test_symlinks_are_never_followed(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    struct copy copy = {0};
    close(scratch_mkdir(s, "from"));
    close(scratch_mkdir(s, "outside"));
    scratch_write(s, "outside/secret", "secret");
    auto_free char *outside = mem_printf("%s/outside", s->path);
    assert_int_equal(symlinkat(outside, s->fd, "from/dir"), 0);
    auto_free char *file = mem_printf("%s/outside/secret", s->path);
    assert_int_equal(symlinkat(file, s->fd, "from/file"), 0);
    assert_int_equal(copy_directories(s, &copy, &err), 0);
    struct stat st;
    look(s, "to/dir", &st);
    assert_true(S_ISLNK(st.st_mode));
    look(s, "to/file", &st);
    assert_true(S_ISLNK(st.st_mode));
}

static void test_other_mounts_are_not_entered(void **state)
{
    struct scratch *s = *state;
    auto_err struct err err = {0};
    struct copy copy = {0};
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    close(s->fd); /* it belongs to the namespace we left */
    s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(scratch_mkdir(s, "from"));
    close(scratch_mkdir(s, "from/mount"));
    auto_free char *point = mem_printf("%s/from/mount", s->path);
    assert_int_equal(mount("tmpfs", point, "tmpfs", 0, NULL), 0);
    int result = copy_directories(s, &copy, &err);
    assert_int_equal(umount2(point, MNT_DETACH), 0);
    assert_int_equal(result, -1);
    assert_non_null(strstr(err.message, "mounted there"));
}

static void test_deep_trees(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    struct copy copy = {0};
    const int depth = 300;
    close(scratch_mkdir(s, "from"));
    int fd = openat(s->fd, "from", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < depth; i++) {
        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = next;
    }
    close(fd);
    assert_int_equal(copy_directories(s, &copy, &err), 0);
    assert_int_equal(copy.files, depth);
}

static void test_stop_ends_a_copy(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    struct stop *stop = stop_new();
    struct copy copy = {.stop = stop};
    close(scratch_mkdir(s, "from"));
    scratch_write(s, "from/a", "text");
    stop_request(stop);
    assert_int_equal(copy_directories(s, &copy, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    stop_free(stop);
}

static size_t progress_lines;

static void count_progress(void *arg, const char *line, size_t len)
{
    (void)arg, (void)len;
    progress_lines += strstr(line, "Still copying") != NULL;
}

static void test_progress_is_logged(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    struct clock *clock = clock_fake_new(0);
    auto_close int from = openat(s->fd, "a", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    auto_close int to = openat(s->fd, "b", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    auto_copy struct copy copy = {.clock = clock, .what = "test"};
    assert_int_equal(pwrite(from, "x", 1, 0), 1);
    progress_lines = 0;
    log_set_sink(count_progress, NULL);
    assert_int_equal(copy_file_data(&copy, from, to, &err), 0);
    assert_int_equal(progress_lines, 0);
    clock_fake_advance(clock, 11 * CLOCK_SECOND);
    assert_int_equal(copy_file_data(&copy, from, to, &err), 0);
    assert_int_equal(copy_file_data(&copy, from, to, &err), 0);
    log_set_sink(NULL, NULL);
    assert_int_equal(progress_lines, 1);
    clock_free(clock);
}

static void test_usage_counts_each_inode_once(void **state)
{
    const struct scratch *s = *state;
    auto_err struct err err = {0};
    int64_t bytes, inodes;
    auto_close int directory = scratch_mkdir(s, "from");
    auto_free char *big = mem_calloc(1, 100001);
    memset(big, 'x', 100000);
    scratch_write(s, "from/a", big);
    assert_int_equal(linkat(s->fd, "from/a", s->fd, "from/b", 0), 0);
    assert_int_equal(tree_usage(directory, clock_real(), CLOCK_NEVER, &bytes, &inodes, &err), 0);
    assert_int_equal(inodes, 2);
    assert_in_range(bytes, 100000, 130000);
    assert_int_equal(tree_usage(directory, clock_real(), 0, &bytes, &inodes, &err), -1);
    assert_int_equal(err.code, ERR_TIMEOUT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_set_up, scratch_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_attributes_and_links),
        TEST(test_holes_stay_holes),
        TEST(test_every_way_copies_all),
        TEST(test_symlinks_are_never_followed),
        TEST(test_other_mounts_are_not_entered),
        TEST(test_deep_trees),
        TEST(test_stop_ends_a_copy),
        TEST(test_progress_is_logged),
        TEST(test_usage_counts_each_inode_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
