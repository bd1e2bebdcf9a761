/* SPDX-License-Identifier: Apache-2.0 */
/* Real mounts, in a mount namespace of the test's own, so that whatever goes wrong ends with the process. */
#include "drivers/common/keylock.h"
#include "drivers/common/mount.h"
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

static char directory[] = "/tmp/berth-mount-XXXXXX";

static int set_up(void **arg)
{
    (void)arg;
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_non_null(mkdtemp(directory));
    assert_int_equal(chdir(directory), 0);
    return mkdir("source", 0755);
}

static int tear_down(void **arg)
{
    (void)arg;
    auto_err struct err err = {0};
    assert_int_equal(chdir("/"), 0);
    int parent = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int result = file_remove_tree_at(parent, directory + strlen("/tmp/"), &err);
    close(parent);
    return result;
}

static char *below(const char *name)
{
    return mem_printf("%s/%s", directory, name);
}

static void test_bind_and_remove(void **arg)
{
    (void)arg;
    auto_err struct err err = {0};
    auto_free char *source = below("source"), *target = below("target with a blank"),
                   *file = below("target with a blank/f");
    bool mounted = false;
    assert_int_equal(mount_target_make(target, true, &err), 0);
    assert_int_equal(mount_bind(source, target, false, &err), 0);
    assert_int_equal(mount_is_point(target, &mounted, &err), 0);
    assert_true(mounted);
    close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    /* stacked twice, with a file in use, and all gone after one call; the source keeps its file */
    assert_int_equal(mount_bind(source, target, true, &err), 0);
    int busy = open(file, O_RDONLY | O_CLOEXEC);
    assert_int_equal(open(file, O_WRONLY | O_CLOEXEC), -1);
    assert_int_equal(errno, EROFS);
    assert_int_equal(mount_target_remove(target, &err), 0);
    close(busy);
    assert_int_equal(access(target, F_OK), -1);
    assert_int_equal(access("source/f", F_OK), 0);
    assert_int_equal(mount_target_remove(target, &err), 0);
}

static void test_remove_never_deletes_what_is_below(void **arg)
{
    (void)arg;
    auto_err struct err err = {0};
    auto_free char *target = below("full");
    assert_int_equal(mkdir("full", 0755), 0);
    assert_int_equal(mkdir("full/precious", 0755), 0);
    assert_int_equal(mount_target_remove(target, &err), -1); /* not a mount, and not empty */
    assert_int_equal(access("full/precious", F_OK), 0);
}

static void test_a_symlink_is_no_target(void **arg)
{
    (void)arg;
    auto_err struct err err = {0};
    auto_free char *target = below("link");
    assert_int_equal(symlink("source", "link"), 0);
    assert_int_equal(mount_target_make(target, true, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
}

static void test_safe_paths(void **arg)
{
    (void)arg;
    static const struct {
        const char *path;
        bool safe;
    } table[] = {{"/a/b", true},     {"/", false},   {"//", false},   {"/a/..b/c", true},
                 {"/a/...", true},   {"a/b", false}, {"", false},     {NULL, false},
                 {"/a/../b", false}, {"/..", false}, {"/a/.", false}, {"/./a", false}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(mount_path_is_safe(table[i].path), table[i].safe);
}

static void test_paths_as_mountinfo_shows_them(void **arg)
{
    (void)arg;
    assert_int_equal(mkdir("real", 0755), 0);
    assert_int_equal(symlink("real", "alias"), 0);
    assert_int_equal(symlink("/etc", "real/last"), 0);
    static const struct {
        const char *path, *resolved;
    } table[] = {
        {"alias/x", "real/x"}, {"alias//x///", "real/x"}, {"alias/last", "real/last"}, {"absent/x", "absent/x"}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *path = below(table[i].path), *wanted = below(table[i].resolved);
        auto_free char *resolved = mount_path_resolve(path);
        assert_string_equal(resolved, wanted);
    }
    auto_free char *root = mount_path_resolve("/"), *top = mount_path_resolve("/x"),
                   *relative = mount_path_resolve("x");
    assert_string_equal(root, "/");
    assert_string_equal(top, "/x");
    assert_string_equal(relative, "x");
}

static void test_keylock(void **arg)
{
    (void)arg;
    auto_err struct err err = {0};
    struct keylock *locks = keylock_new();
    struct keylock_hold a = {0}, b = {0}, c = {0};
    assert_int_equal(keylock_exclusive(locks, "volume", "1", &a, &err), 0);
    assert_int_equal(keylock_exclusive(locks, "volume", "1", &b, &err), -1);
    assert_int_equal(err.status, 10);
    assert_int_equal(keylock_shared(locks, "volume", "1", &b, &err), -1);
    assert_int_equal(keylock_exclusive(locks, "snapshot", "1", &b, &err), 0); /* another kind */
    keylock_release(&a);
    keylock_release(&b);
    assert_int_equal(keylock_shared(locks, "volume", "1", &a, &err), 0);
    assert_int_equal(keylock_shared(locks, "volume", "1", &b, &err), 0);
    assert_int_equal(keylock_exclusive(locks, "volume", "1", &c, &err), -1);
    keylock_release(&a);
    assert_int_equal(keylock_exclusive(locks, "volume", "1", &c, &err), -1);
    keylock_release(&b);
    keylock_release(&b); /* nothing is held: nothing happens */
    assert_int_equal(keylock_exclusive(locks, "volume", "1", &c, &err), 0);
    keylock_release(&c);
    keylock_free(locks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bind_and_remove),
        cmocka_unit_test(test_remove_never_deletes_what_is_below),
        cmocka_unit_test(test_a_symlink_is_no_target),
        cmocka_unit_test(test_safe_paths),
        cmocka_unit_test(test_paths_as_mountinfo_shows_them),
        cmocka_unit_test(test_keylock),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
