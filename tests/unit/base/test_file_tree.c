/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"

#include "lib/base/mem.h"
#include "tests/unit/base/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void put(int dir_fd, const char *name)
{
    auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
}

static bool exists(int dir_fd, const char *name)
{
    struct stat status;
    return fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_kinds(void **state)
{
    const struct scratch *scratch = *state;
    int fd = scratch->fd;
    auto_err struct err err = {0};
    assert_int_equal(mkdirat(fd, "outside", 0700), 0);
    put(fd, "outside/f");
    assert_int_equal(mkdirat(fd, "tree", 0700), 0);
    assert_int_equal(mkdirat(fd, "tree/a", 0700), 0);
    assert_int_equal(mkdirat(fd, "tree/a/empty", 0700), 0);
    put(fd, "tree/a/f");
    put(fd, "tree/a/with\nnewline");
    assert_int_equal(mkfifoat(fd, "tree/fifo", 0600), 0);
    assert_int_equal(symlinkat("../outside", fd, "tree/link"), 0);
    assert_int_equal(symlinkat("nowhere", fd, "tree/a/dangling"), 0);
    assert_int_equal(linkat(fd, "outside/f", fd, "tree/hard", 0), 0);
    assert_int_equal(file_remove_tree_at(fd, "tree", &err), 0);
    assert_false(exists(fd, "tree"));
    assert_true(exists(fd, "outside/f"));
    assert_int_equal(file_remove_tree_at(fd, "tree", &err), 0); /* absent is fine */

    put(fd, "file");
    assert_int_equal(file_remove_tree_at(fd, "file", &err), 0);
    assert_false(exists(fd, "file"));
    assert_int_equal(symlinkat("outside", fd, "link"), 0);
    assert_int_equal(file_remove_tree_at(fd, "link", &err), 0);
    assert_false(exists(fd, "link"));
    assert_true(exists(fd, "outside/f"));
    assert_int_equal(err.code, ERR_NONE);
}

static void test_refuses_names_that_are_paths(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "a", 0700), 0);
    put(scratch->fd, "a/f");
    static const char *const bad[] = {"", ".", "..", "a/f", "/tmp", NULL};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        assert_int_equal(file_remove_tree_at(scratch->fd, bad[i], &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
    assert_true(exists(scratch->fd, "a/f"));
}

static void test_no_permission_bits(void **state)
{
    const struct scratch *scratch = *state;
    if (geteuid() != 0)
        skip();
    auto_err struct err err = {0};
    assert_int_equal(mkdirat(scratch->fd, "tree", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "tree/a", 0700), 0);
    put(scratch->fd, "tree/a/f");
    assert_int_equal(fchmodat(scratch->fd, "tree/a", 0, 0), 0);
    assert_int_equal(fchmodat(scratch->fd, "tree", 0, 0), 0);
    assert_int_equal(file_remove_tree_at(scratch->fd, "tree", &err), 0);
    assert_false(exists(scratch->fd, "tree"));
}

/* `depth` directories below each other, each with a file and an empty directory beside the next one. */
static void make_deep(int dir_fd, const char *name, int depth)
{
    assert_int_equal(mkdirat(dir_fd, name, 0700), 0);
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < depth; i++) {
        put(fd, "file");
        assert_int_equal(mkdirat(fd, "empty", 0700), 0);
        assert_int_equal(mkdirat(fd, "next", 0700), 0);
        int next = openat(fd, "next", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(fd);
        fd = next;
    }
    close(fd);
}

static void test_deep_tree_with_few_descriptors(void **state)
{
    const struct scratch *scratch = *state;
    auto_err struct err err = {0};
    make_deep(scratch->fd, "tree", 1200);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct rlimit few = {.rlim_cur = 64, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = file_remove_tree_at(scratch->fd, "tree", &err);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_int_equal(rc, 0);
    assert_false(exists(scratch->fd, "tree"));
}

static int open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static void test_wide_tree(void **state)
{
    const struct scratch *scratch = *state;
    auto_err struct err err = {0};
    assert_int_equal(mkdirat(scratch->fd, "tree", 0700), 0);
    auto_close int fd = openat(scratch->fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 3000; i++) {
        char name[80];
        snprintf(name, sizeof(name), "%08d-a-longer-name-so-that-one-buffer-does-not-do", i);
        put(fd, name);
        if (i % 10 != 0)
            continue;
        snprintf(name, sizeof(name), "%08d.d", i);
        assert_int_equal(mkdirat(fd, name, 0700), 0);
        snprintf(name, sizeof(name), "%08d.d/f", i);
        put(fd, name);
    }
    int before = open_descriptors();
    assert_int_equal(file_remove_tree_at(scratch->fd, "tree", &err), 0);
    assert_false(exists(scratch->fd, "tree"));
    assert_int_equal(open_descriptors(), before);
}

/* In a mount namespace of its own; exit status 0 = as it should be, 77 = this machine does not let us mount. */
static void mount_child(const char *path, bool bind)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || chdir(path) != 0)
        _exit(77);
    int rc = bind ? mount("outside", "tree/a/mnt", NULL, MS_BIND, NULL) : mount("t", "tree/a/mnt", "tmpfs", 0, NULL);
    if (rc != 0)
        _exit(77);
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(fd, "tree/a/mnt/precious");
    struct err err = {0};
    int before = open_descriptors();
    rc = file_remove_tree_at(fd, "tree", &err);
    if (rc != -1 || err.message == NULL || strstr(err.message, "tree/a/mnt") == NULL || err.code != ERR_IO)
        _exit(2);
    if (!exists(fd, "tree/a/mnt/precious"))
        _exit(3);
    if (open_descriptors() != before)
        _exit(4);
    /* nor when the mount point is the name itself */
    int a = open("tree/a", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = file_remove_tree_at(a, "mnt", &err);
    if (rc != -1 || !exists(fd, "tree/a/mnt/precious"))
        _exit(5);
    /* and when there is nothing else in the way: without the mount it is removed */
    if (umount2("tree/a/mnt", MNT_DETACH) != 0)
        _exit(6);
    err_clear(&err);
    _exit(file_remove_tree_at(fd, "tree", NULL) == 0 && !exists(fd, "tree") ? 0 : 7);
}

static void run_mount_test(const struct scratch *scratch, bool bind)
{
    assert_int_equal(mkdirat(scratch->fd, "outside", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "tree", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "tree/a", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "tree/a/mnt", 0700), 0);
    pid_t pid = fork();
    if (pid == 0)
        mount_child(scratch->path, bind);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
    if (bind)
        assert_true(exists(scratch->fd, "outside/precious"));
}

static void test_other_file_system_is_not_entered(void **state)
{
    run_mount_test(*state, false);
}

static void test_bind_mount_of_the_same_file_system_is_not_entered(void **state)
{
    run_mount_test(*state, true);
}

/* Stands in front of the C library's: lets a test act at the very moment between two steps of the removal. */
static struct {
    int dir_fd;
    int at_call; /* of those for the directory "victim", from 1 */
    int calls;
} exchange;

int unlinkat(int dir_fd, const char *name, int flags)
{
    bool hit = exchange.at_call > 0 && str_eq(name, "victim") && ++exchange.calls == exchange.at_call;
    if (hit && exchange.at_call > 1) /* before the last removal, when the directory was emptied */
        assert_int_equal(renameat2(exchange.dir_fd, "tree/a/victim", exchange.dir_fd, "other", RENAME_EXCHANGE), 0);
    int rc = (int)syscall(SYS_unlinkat, dir_fd, name, flags);
    int saved = errno;
    if (hit && exchange.at_call == 1) { /* after it was seen to be a directory that is not empty */
        assert_int_equal(rc, -1);
        assert_int_equal(renameat2(exchange.dir_fd, "tree/a/victim", exchange.dir_fd, "other", RENAME_EXCHANGE), 0);
    }
    errno = saved;
    return rc;
}

/* tree/a/victim, a directory with a file, becomes what "other" is when unlinkat is called for the at_call-th time. */
static void remove_while_exchanged(const struct scratch *scratch, int at_call)
{
    assert_int_equal(mkdirat(scratch->fd, "tree", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "tree/a", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "tree/a/victim", 0700), 0);
    put(scratch->fd, "tree/a/victim/f");
    exchange.dir_fd = scratch->fd;
    exchange.at_call = at_call;
    exchange.calls = 0;
    auto_err struct err err = {0};
    int rc = file_remove_tree_at(scratch->fd, "tree", &err);
    exchange.at_call = 0;
    assert_string_equal(err_text(&err), "no error");
    assert_int_equal(rc, 0);
    assert_true(exchange.calls >= at_call);
    assert_false(exists(scratch->fd, "tree"));
    assert_int_equal(exists(scratch->fd, "other/f"),
                     at_call == 1); /* it left the tree before it was entered, or emptied */
    assert_int_equal(file_remove_tree_at(scratch->fd, "other", NULL), 0);
}

static void test_swapped_for_a_symlink(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "outside", 0700), 0);
    put(scratch->fd, "outside/precious");
    auto_free char *outside = mem_printf("%s/outside", scratch->path);
    for (int at_call = 1; at_call <= 2; at_call++) {
        assert_int_equal(symlinkat(outside, scratch->fd, "other"), 0);
        remove_while_exchanged(scratch, at_call);
        assert_true(exists(scratch->fd, "outside/precious"));
    }
}

static void test_swapped_for_a_file(void **state)
{
    const struct scratch *scratch = *state;
    for (int at_call = 1; at_call <= 2; at_call++) {
        put(scratch->fd, "other");
        remove_while_exchanged(scratch, at_call);
    }
}

static void test_swapped_for_another_directory(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "other", 0700), 0);
    put(scratch->fd, "other/g");
    remove_while_exchanged(scratch, 1);
}

#define in_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_scratch(test_kinds),
        in_scratch(test_refuses_names_that_are_paths),
        in_scratch(test_no_permission_bits),
        in_scratch(test_deep_tree_with_few_descriptors),
        in_scratch(test_wide_tree),
        in_scratch(test_other_file_system_is_not_entered),
        in_scratch(test_bind_mount_of_the_same_file_system_is_not_entered),
        in_scratch(test_swapped_for_a_symlink),
        in_scratch(test_swapped_for_a_file),
        in_scratch(test_swapped_for_another_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
