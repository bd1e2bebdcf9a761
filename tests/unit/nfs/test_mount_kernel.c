/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's mounts as far as they can be shown without a kernel that has an NFS client: their command lines. */
#include "drivers/nfs/mounts.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void check(const struct nfs_mount *mount, const char *wanted)
{
    auto_err struct err err = {0};
    auto_strv struct strv argv = {0};
    assert_int_equal(kernel_mount_command(mount, "/t", &argv, &err), 0);
    auto_free char *text = strv_join(&argv, " ");
    assert_string_equal(text, wanted);
}

static void test_command_lines(void **state)
{
    char server[] = "srv", address[] = "fd00::1", export[] = "/e/x", root[] = "/";
    struct share_location where = {.server = server, .export = export};
    (void)state;
    check(&(struct nfs_mount){.where = where, .sub_dir = "a/b", .options = ""}, "mount -t nfs -- srv:/e/x/a/b /t");
    check(&(struct nfs_mount){.where = where, .sub_dir = "", .options = "hard,nfsvers=4.1,noatime"},
          "mount -t nfs -o hard,nfsvers=4.1,noatime -- srv:/e/x /t");
    where.version = 3;
    where.port = 2050;
    where.mount_port = 20048;
    check(&(struct nfs_mount){.where = where, .sub_dir = "a", .options = "hard"},
          "mount -t nfs -o hard,nfsvers=3,port=2050,mountport=20048 -- srv:/e/x/a /t");
    check(&(struct nfs_mount){.where = where, .sub_dir = "a", .options = "vers=3,port=1,mountport=2"},
          "mount -t nfs -o vers=3,port=1,mountport=2 -- srv:/e/x/a /t");
    struct share_location v6 = {.server = address, .export = root};
    check(&(struct nfs_mount){.where = v6, .sub_dir = "a", .options = ",,ro,"},
          "mount -t nfs -o ro -- [fd00::1]:/a /t");
    check(&(struct nfs_mount){.where = v6, .sub_dir = "", .options = ""}, "mount -t nfs -- [fd00::1]:/ /t");
}

static void test_refuses_options_that_are_not_about_nfs(void **state)
{
    static const char *const bad[] = {"bind", "hard,remount", "x-systemd.automount", "helper=/bin/sh", "loop",
                                      "a b",  "move"};
    char server[] = "srv", export[] = "/e";
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        auto_strv struct strv argv = {0};
        struct nfs_mount mount = {.where = {.server = server, .export = export}, .sub_dir = "", .options = bad[i]};
        assert_int_equal(kernel_mount_command(&mount, "/t", &argv, &err), -1);
        assert_int_equal(csi_code_of(&err), CSI_INVALID_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_lines),
        cmocka_unit_test(test_refuses_options_that_are_not_about_nfs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
