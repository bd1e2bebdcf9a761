/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"

#include "lib/base/mem.h"
#include "tests/unit/base/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void put(const struct scratch *scratch, const char *name, const char *text)
{
    auto_close int fd = openat(scratch->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static int entries(const struct scratch *scratch)
{
    DIR *directory = opendir(scratch->path);
    int count = 0;
    for (const struct dirent *entry = NULL; (entry = readdir(directory)) != NULL;)
        count += !str_eq(entry->d_name, ".") && !str_eq(entry->d_name, "..");
    closedir(directory);
    return count;
}

static void test_read(void **state)
{
    const struct scratch *scratch = *state;
    auto_err struct err err = {0};
    put(scratch, "f", "12345");
    auto_free char *path = mem_printf("%s/f", scratch->path);
    auto_free char *data = NULL;
    size_t len = 0;
    assert_int_equal(file_read(path, 5, &data, &len, &err), 0);
    assert_int_equal(len, 5);
    assert_string_equal(data, "12345");
    char *other = NULL;
    assert_int_equal(file_read(path, 4, &other, &len, &err), -1);
    assert_null(other);
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.message, "larger than the limit of 4 bytes"));
    put(scratch, "empty", "");
    auto_free char *empty = NULL;
    assert_int_equal(file_read_at(scratch->fd, "empty", 10, &empty, NULL, &err), 0);
    assert_string_equal(empty, "");
    auto_free char *proc = NULL; /* has size 0 for stat */
    assert_int_equal(file_read_at(AT_FDCWD, "/proc/self/status", 65536, &proc, &len, &err), 0);
    assert_true(len > 100 && strlen(proc) == len);
}

static void test_read_fails(void **state)
{
    const struct scratch *scratch = *state;
    auto_err struct err err = {0};
    char *data = NULL;
    assert_int_equal(file_read_at(scratch->fd, "none", 10, &data, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.message, "open none: No such file or directory");
    assert_int_equal(mkfifoat(scratch->fd, "fifo", 0600), 0);
    assert_int_equal(file_read_at(scratch->fd, "fifo", 10, &data, NULL, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(file_read_at(scratch->fd, ".", 10, &data, NULL, &err), -1);
    assert_int_equal(file_read(scratch->path, 10, &data, NULL, &err), -1);
    assert_null(data);
}

static void test_read_large(void **state)
{
    const struct scratch *scratch = *state;
    auto_str struct str text = {0};
    for (int i = 0; i < 100000; i++)
        str_addf(&text, "%d ", i);
    put(scratch, "large", text.data);
    auto_free char *data = NULL;
    size_t len = 0;
    assert_int_equal(file_read_at(scratch->fd, "large", SIZE_MAX, &data, &len, NULL), 0);
    assert_int_equal(len, text.len);
    assert_string_equal(data, text.data);
}

static void test_write_replaces(void **state)
{
    const struct scratch *scratch = *state;
    auto_err struct err err = {0};
    mode_t mask = umask(077);
    assert_int_equal(file_write_atomic_at(scratch->fd, "f", "one", 3, 0644, &err), 0);
    umask(mask);
    struct stat first;
    assert_int_equal(fstatat(scratch->fd, "f", &first, 0), 0);
    assert_int_equal(first.st_mode & 07777, 0644);
    auto_close int old = openat(scratch->fd, "f", O_RDONLY | O_CLOEXEC);
    auto_free char *path = mem_printf("%s/f", scratch->path);
    assert_int_equal(file_write_atomic(path, "two!", 4, 0600, &err), 0);
    struct stat second;
    assert_int_equal(fstatat(scratch->fd, "f", &second, 0), 0);
    assert_int_equal(second.st_mode & 07777, 0600);
    assert_true(first.st_ino != second.st_ino);
    char buffer[8] = {0};
    assert_int_equal(read(old, buffer, sizeof(buffer)), 3); /* who has the old one open still reads that */
    assert_string_equal(buffer, "one");
    auto_free char *data = NULL;
    assert_int_equal(file_read(path, 100, &data, NULL, &err), 0);
    assert_string_equal(data, "two!");
    assert_int_equal(entries(scratch), 1);
}

static void test_write_replaces_a_symlink_itself(void **state)
{
    const struct scratch *scratch = *state;
    put(scratch, "target", "safe");
    assert_int_equal(symlinkat("target", scratch->fd, "link"), 0);
    assert_int_equal(file_write_atomic_at(scratch->fd, "link", "x", 1, 0600, NULL), 0);
    auto_free char *data = NULL;
    assert_int_equal(file_read_at(scratch->fd, "target", 100, &data, NULL, NULL), 0);
    assert_string_equal(data, "safe");
}

static void test_write_fails_cleanly(void **state)
{
    const struct scratch *scratch = *state;
    auto_err struct err err = {0};
    static const char *const bad[] = {"", ".", "..", "a/b", "/etc/x"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(file_write_atomic_at(scratch->fd, bad[i], "x", 1, 0600, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
    assert_int_equal(mkdirat(scratch->fd, "d", 0700), 0);
    assert_int_equal(file_write_atomic_at(scratch->fd, "d", "x", 1, 0600, &err), -1); /* a directory stays one */
    assert_int_equal(entries(scratch), 1); /* and no temporary file is left */
    auto_free char *path = mem_printf("%s/none/f", scratch->path);
    assert_int_equal(file_write_atomic(path, "x", 1, 0600, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "/none"));
}

static void test_write_with_a_path_descriptor(void **state)
{
    const struct scratch *scratch = *state;
    auto_err struct err err = {0};
    auto_close int fd = open(scratch->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(file_write_atomic_at(fd, "f", "x", 1, 0600, &err), 0);
}

static void test_open_beneath(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "root", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "root/d", 0700), 0);
    put(scratch, "outside", "secret");
    put(scratch, "root/d/f", "inside");
    assert_int_equal(symlinkat("../../outside", scratch->fd, "root/d/out"), 0);
    assert_int_equal(symlinkat("f", scratch->fd, "root/d/in"), 0);
    assert_int_equal(symlinkat("d", scratch->fd, "root/dlink"), 0);
    auto_close int root = openat(scratch->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_err struct err err = {0};
    static const char *const refused[] = {"../outside", "d/../../outside", "/etc/passwd", "d/out", "d/in", "dlink/f"};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        assert_int_equal(file_open_beneath(root, refused[i], O_RDONLY, 0, false, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.message, refused[i]));
    }
    auto_close int fd = file_open_beneath(root, "d/f", O_RDONLY, 0, true, &err);
    assert_true(fd >= 0);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    auto_close int up = file_open_beneath(root, "d/../d/f", O_RDONLY, 0, true, &err); /* stays inside */
    assert_true(up >= 0);
    auto_close int created = file_open_beneath(root, "d/new", O_WRONLY | O_CREAT | O_EXCL, 0600, true, &err);
    assert_true(created >= 0);
    assert_int_equal(file_open_beneath(root, "d/none", O_RDONLY, 0, true, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void test_open_beneath_stays_on_the_mount(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    auto_close int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int fd = file_open_beneath(root, "proc/self/status", O_RDONLY, 0, false, &err);
    /* /proc/self is a symlink itself */
    assert_int_equal(fd, -1);
    auto_close int other = file_open_beneath(root, "proc/version", O_RDONLY, 0, false, &err);
    assert_true(other >= 0);
    assert_int_equal(file_open_beneath(root, "proc/version", O_RDONLY, 0, true, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.message, "another mount"));
}

static void test_safe_names(void **state)
{
    (void)state;
    char name[257];
    memset(name, 'x', sizeof(name));
    name[256] = '\0';
    assert_false(file_name_is_safe(name));
    name[255] = '\0';
    assert_true(file_name_is_safe(name));
    assert_true(file_name_is_safe("..."));
    assert_true(file_name_is_safe("pvc-1"));
    assert_false(file_name_is_safe(NULL));
    assert_false(file_name_is_safe(""));
    assert_false(file_name_is_safe("."));
    assert_false(file_name_is_safe(".."));
    assert_false(file_name_is_safe("a/"));
    assert_false(file_name_is_safe("/"));
}

#define in_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_scratch(test_read),
        in_scratch(test_read_fails),
        in_scratch(test_read_large),
        in_scratch(test_write_replaces),
        in_scratch(test_write_replaces_a_symlink_itself),
        in_scratch(test_write_fails_cleanly),
        in_scratch(test_write_with_a_path_descriptor),
        in_scratch(test_open_beneath),
        cmocka_unit_test(test_open_beneath_stays_on_the_mount),
        cmocka_unit_test(test_safe_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
