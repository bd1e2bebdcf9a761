/* SPDX-License-Identifier: Apache-2.0 */
/* What the FUSE process keeps: sizes and inodes. */
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_quota(void **state)
{
    struct quota quota = {.limit = 100 * 4096};
    (void)state;
    pthread_mutex_init(&quota.mutex, NULL);
    assert_int_equal(quota_reserve(&quota, 60 * 4096), 60 * 4096);
    /* while that is on its way only the rest is free, in whole blocks */
    assert_int_equal(quota_reserve(&quota, 60 * 4096 + 1), 40 * 4096);
    assert_int_equal(quota_reserve(&quota, 1), 0);
    quota_settle(&quota, 60 * 4096, 10 * 4096); /* it filled a hole less than feared */
    quota_settle(&quota, 40 * 4096, 40 * 4096);
    assert_int_equal(quota.reserved, 0);
    assert_int_equal(quota.used, 50 * 4096);
    quota_change(&quota, -20 * 4096);
    assert_int_equal(quota_reserve(&quota, 70 * 4096), 70 * 4096);
    quota_settle(&quota, 70 * 4096, 0);
    /* what changes while it is measured is neither lost nor counted twice for ever */
    quota_begin_measuring(&quota);
    quota_change(&quota, 5 * 4096);
    quota_end_measuring(&quota, 80 * 4096);
    assert_int_equal(quota.used, 85 * 4096);
    quota_set_limit(&quota, 80 * 4096);
    assert_int_equal(quota_reserve(&quota, 1), 0);
    quota_set_limit(&quota, 0);
    assert_int_equal(quota_reserve(&quota, 1 << 30), 1 << 30);
    pthread_mutex_destroy(&quota.mutex);
}

static struct share_fh handle(uint32_t number)
{
    struct share_fh fh = {.len = sizeof(number)};
    memcpy(fh.data, &number, sizeof(number));
    return fh;
}

static void test_inodes(void **state)
{
    struct inode_table table;
    struct share_fh root = handle(0);
    struct share_attr attr = {.type = SHARE_FILE, .used = 4096};
    fuse_ino_t numbers[2000];
    (void)state;
    inode_table_init(&table, &root);
    for (uint32_t i = 1; i < 2000; i++) {
        struct share_fh fh = handle(i);
        numbers[i] = inode_number(&table, inode_remember(&table, &fh, &attr));
        assert_ptr_equal(inode_of(&table, numbers[i])->fh.data, inode_remember(&table, &fh, &attr)->fh.data);
    }
    assert_int_equal(inode_number(&table, inode_remember(&table, &root, &attr)), FUSE_ROOT_ID);
    struct share_fh fh = handle(7), dir = handle(1);
    struct inode *inode = inode_of(&table, numbers[7]);
    assert_int_equal(inode_opens(&table, &fh), 0);
    assert_false(inode_set_silly(&table, &fh, &dir, ".nfs1"));
    inode_open(&table, inode);
    inode_open(&table, inode);
    assert_true(inode_set_silly(&table, &fh, &dir, ".nfs1"));
    assert_int_equal(inode_set_used(&table, inode, 10000), 10000 - 4096);
    inode_forget(&table, numbers[7], 2); /* the kernel forgets it before the last close is answered */
    struct silly *silly = NULL;
    inode_close(&table, inode, &silly);
    assert_null(silly);
    inode_close(&table, inode, &silly);
    assert_string_equal(silly->name, ".nfs1");
    free(silly);
    assert_int_equal(inode_opens(&table, &fh), 0);
    assert_int_equal(table.count, 1998);
    for (uint32_t i = 1; i < 2000; i++)
        if (i != 7)
            inode_forget(&table, numbers[i], 2);
    assert_int_equal(table.count, 0);
    inode_table_clear(&table);
}

static void test_config(void **state)
{
    char path[] = "/tmp/berth-nfs-config-XXXXXX";
    char server[] = "fd00::1", export[] = "/e,x", sub_dir[] = "a \"b\"/ü";
    auto_err struct err err = {0};
    struct fuse_config config = {
        .where = {.server = server, .export = export, .version = 4, .port = 1, .mount_port = 2},
        .sub_dir = sub_dir,
        .limit = INT64_MAX,
        .timeout = 5,
        .usage_interval = 6,
        .uid = 4294967294U,
        .gid = 7,
        .soft = true};
    struct fuse_config again = {0};
    (void)state;
    close(mkstemp(path));
    int written = fuse_config_write(&config, path, &err), read_back = fuse_config_read(path, &again, &err);
    unlink(path);
    assert_int_equal(written, 0);
    assert_int_equal(read_back, 0);
    assert_true(share_location_equal(&config.where, &again.where));
    assert_string_equal(again.sub_dir, sub_dir);
    assert_true(again.limit == INT64_MAX && again.timeout == 5 && again.usage_interval == 6);
    assert_true(again.uid == 4294967294U && again.gid == 7 && again.soft);
    fuse_config_clear(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_inodes),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
