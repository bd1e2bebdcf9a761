/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The share against a real server, and beside it what the library's own path calls do over NFSv4, which is why they are
 * not used. tests/nfs/run.py starts the server and says where it is:
 *     BERTH_TEST_NFS="PORT MOUNTPORT EXPORT"
 * Without that everything here is skipped.
 */
#include "drivers/nfs/remove.h"
#include "drivers/nfs/share.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <nfsc/libnfs.h>

struct place {
    int port, mount_port;
    char export[512];
};

static struct place find_place(void)
{
    struct place place = {0};
    const char *text = getenv("BERTH_TEST_NFS");
    if (text == NULL || sscanf(text, "%d %d %511s", &place.port, &place.mount_port, place.export) != 3)
        skip();
    return place;
}

static struct share *open_share(int version)
{
    struct place place = find_place();
    char server[] = "127.0.0.1";
    struct share_location where = {.server = server,
                                   .export = place.export,
                                   .version = version,
                                   .port = place.port,
                                   .mount_port = version == 3 ? place.mount_port : 0};
    struct share_options options = {.clock = clock_real(), .timeout = 10 * CLOCK_SECOND};
    struct share *share = NULL;
    auto_err struct err err = {0};
    if (share_open(&where, &options, CLOCK_NEVER, NULL, &share, &err) < 0)
        fail_msg("%s", err_text(&err));
    assert_int_equal(share_version(share), version);
    return share;
}

/* The library's own client on the same export. */
static struct nfs_context *open_library(int version)
{
    struct place place = find_place();
    struct nfs_context *nfs = nfs_init_context();
    auto_free char *url = mem_printf("nfs://127.0.0.1%s?version=%d&nfsport=%d%s%d", place.export, version, place.port,
                                     version == 3 ? "&mountport=" : "&uid=", version == 3 ? place.mount_port : 0);
    struct nfs_url *parsed = nfs_parse_url_dir(nfs, url);
    assert_non_null(parsed);
    assert_int_equal(nfs_mount(nfs, parsed->server, parsed->path), 0);
    nfs_destroy_url(parsed);
    return nfs;
}

/* A fresh directory for one test; `fh` and its path in the export. */
static char *fresh_directory(struct share *share, struct share_fh *fh)
{
    char uuid[RNG_UUID_SIZE];
    struct share_fh root;
    struct share_set mode = {.mask = SHARE_SET_MODE, .mode = 0755};
    share_root(share, &root);
    rng_uuid(rng_real(), uuid);
    assert_int_equal(share_mkdir(share, &root, uuid, &mode, fh, NULL), 0);
    return mem_printf("/%s", uuid);
}

static void make_file(struct share *share, const struct share_fh *dir, const char *name, const char *text)
{
    struct share_fh fh;
    struct share_set mode = {.mask = SHARE_SET_MODE, .mode = 0644};
    assert_int_equal(share_create(share, dir, name, true, &mode, &fh, NULL), 0);
    assert_int_equal(share_write(share, &fh, 0, text, strlen(text), NULL), 0);
}

static bool exists(struct share *share, const struct share_fh *dir, const char *name)
{
    int error = share_lookup(share, dir, name, NULL, NULL);
    assert_true(error == 0 || error == ENOENT);
    return error == 0;
}

static void each_version(void (*test)(struct share *share, int version))
{
    for (int version = 3; version <= 4; version++) {
        auto_share struct share *share = open_share(version);
        test(share, version);
    }
}

/* ---- the traps ---- */

static void unlink_of_a_directory(struct share *share, int version)
{
    struct share_fh dir;
    auto_free char *path = fresh_directory(share, &dir);
    struct share_set none = {0};
    assert_int_equal(share_mkdir(share, &dir, "sub", &none, NULL, NULL), 0);
    make_file(share, &dir, "file", "x");
    assert_int_equal(share_unlink(share, &dir, "sub"), EISDIR);
    assert_int_equal(share_rmdir(share, &dir, "file"), ENOTDIR);
    assert_true(exists(share, &dir, "sub") && exists(share, &dir, "file"));
    if (version == 4) { /* the library removes the one for the other */
        struct nfs_context *nfs = open_library(4);
        auto_free char *sub = mem_printf("%s/sub", path), *file = mem_printf("%s/file", path);
        assert_int_equal(nfs_unlink(nfs, sub), 0);
        assert_int_equal(nfs_rmdir(nfs, file), 0);
        nfs_destroy_context(nfs);
        assert_false(exists(share, &dir, "sub") || exists(share, &dir, "file"));
    }
}

static void test_unlink_and_rmdir_know_what_they_remove(void **state)
{
    (void)state;
    each_version(unlink_of_a_directory);
}

static void mode_of_a_new_file(struct share *share, int version)
{
    struct share_fh dir, fh;
    struct share_attr attr;
    auto_free char *path = fresh_directory(share, &dir);
    struct share_set mode = {.mask = SHARE_SET_MODE, .mode = 0664};
    assert_int_equal(share_create(share, &dir, "ours", true, &mode, &fh, &attr), 0);
    assert_int_equal(attr.mode, 0664);
    assert_int_equal(share_write(share, &fh, 0, "data", 4, &attr), 0);
    assert_int_equal(attr.size, 4);
    if (version == 4) { /* the library's creat gives a file that it cannot write, and always mode 0600 */
        struct nfs_context *nfs = open_library(4);
        struct nfsfh *file = NULL;
        auto_free char *name = mem_printf("%s/theirs", path);
        assert_int_equal(nfs_creat(nfs, name, 0664, &file), 0);
        assert_true(nfs_write(nfs, file, 4, "data") < 0);
        nfs_close(nfs, file);
        nfs_destroy_context(nfs);
        assert_int_equal(share_lookup(share, &dir, "theirs", &fh, &attr), 0);
        assert_int_equal(attr.mode, 0600);
    }
}

static void test_new_files_have_their_mode_and_can_be_written(void **state)
{
    (void)state;
    each_version(mode_of_a_new_file);
}

static void owner_of_a_symlink(struct share *share, int version)
{
    struct share_fh dir, target, link;
    struct share_attr attr;
    struct share_set none = {0}, owner = {.mask = SHARE_SET_UID, .uid = 4711};
    auto_free char *path = fresh_directory(share, &dir);
    make_file(share, &dir, "target", "x");
    assert_int_equal(share_symlink(share, &dir, "link", "target", &none, &link, NULL), 0);
    assert_int_equal(share_setattr(share, &link, &owner, NULL), 0);
    assert_int_equal(share_lookup(share, &dir, "target", &target, &attr), 0);
    assert_int_equal(attr.uid, 0);
    assert_int_equal(share_getattr(share, &link, &attr), 0);
    assert_int_equal(attr.uid, 4711);
    if (version == 4) { /* the library's lchown follows the link */
        struct nfs_context *nfs = open_library(4);
        auto_free char *name = mem_printf("%s/link", path);
        assert_int_equal(nfs_lchown(nfs, name, 815, 815), 0);
        nfs_destroy_context(nfs);
        assert_int_equal(share_getattr(share, &target, &attr), 0);
        assert_int_equal(attr.uid, 815);
    }
}

static void test_owner_of_a_symlink_is_its_own(void **state)
{
    (void)state;
    each_version(owner_of_a_symlink);
}

static void listing(struct share *share, int version)
{
    struct share_fh dir;
    struct share_set none = {0};
    auto_free char *path = fresh_directory(share, &dir);
    (void)version, (void)path;
    make_file(share, &dir, "file", "x");
    assert_int_equal(share_mkdir(share, &dir, "sub", &none, NULL, NULL), 0);
    assert_int_equal(share_symlink(share, &dir, "link", "..", &none, NULL, NULL), 0);
    assert_int_equal(share_mknod(share, &dir, "fifo", &(struct share_attr){.type = SHARE_FIFO}, &none, NULL, NULL), 0);
    auto_page struct share_page page = {0};
    unsigned types = 0;
    size_t count = 0;
    do {
        assert_int_equal(share_readdir(share, &dir, 4096, &page), 0);
        for (size_t i = 0; i < page.len; i++, count++) {
            assert_true(page.items[i].has_attr && page.items[i].has_fh && page.items[i].fileid != 0);
            types |= 1U << page.items[i].attr.type;
        }
    } while (!page.eof);
    assert_int_equal(count, 4); /* and neither "." nor ".." */
    assert_int_equal(types, 1U << SHARE_FILE | 1U << SHARE_DIRECTORY | 1U << SHARE_SYMLINK | 1U << SHARE_FIFO);
}

static void test_listings_are_the_same(void **state)
{
    (void)state;
    each_version(listing);
}

/* The library gives connections made in the same second by one process the same name: the server then throws away what
 * the older ones have open. Ours are each somebody else. */
static void test_many_connections_make_files_at_once(void **state)
{
    struct share *shares[8];
    struct share_fh dir;
    (void)state;
    auto_share struct share *first = open_share(4);
    free(fresh_directory(first, &dir));
    for (size_t i = 0; i < ARRAY_LEN(shares); i++)
        shares[i] = open_share(4);
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
            auto_free char *name = mem_printf("file-%zu-%d", i, round);
            make_file(shares[i], &dir, name, "x");
        }
    for (size_t i = 0; i < ARRAY_LEN(shares); i++)
        share_close(shares[i]);
}

/* The library packs an NFSv4 write into 4 KiB: what is larger goes in pieces, and must arrive whole. */
static void large_writes(struct share *share, int version)
{
    struct share_fh dir, fh;
    struct share_attr attr;
    struct share_set none = {0};
    size_t size = 3 * 1024 * 1024 + 17;
    auto_free char *path = fresh_directory(share, &dir), *data = mem_alloc(size), *back = mem_alloc(size);
    (void)version, (void)path;
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 7 + i / 4099);
    assert_int_equal(share_create(share, &dir, "large", true, &none, &fh, NULL), 0);
    assert_int_equal(share_write(share, &fh, 5, data, size, &attr), 0);
    assert_int_equal(attr.size, size + 5);
    size_t at = 0;
    for (bool eof = false; at < size && !eof;) {
        size_t got = 0;
        assert_int_equal(share_read(share, &fh, 5 + at, back + at, size - at, &got, &eof), 0);
        at += got;
    }
    assert_int_equal(at, size);
    assert_memory_equal(data, back, size);
}

static void test_large_writes(void **state)
{
    (void)state;
    each_version(large_writes);
}

static void paths(struct share *share, int version)
{
    struct share_fh dir, fh;
    struct share_attr attr;
    struct share_set none = {0};
    auto_err struct err err = {0};
    auto_free char *path = fresh_directory(share, &dir);
    auto_free char *deep = mem_printf("%s/a/b", path), *through = mem_printf("%s/link/b", path);
    (void)version;
    assert_int_equal(share_make_path(share, deep, 0750, &fh, &err), 0);
    assert_int_equal(share_make_path(share, deep, 0700, &fh, &err), 0);
    assert_int_equal(share_walk(share, deep, &fh, &attr), 0);
    assert_int_equal(attr.mode, 0750);
    /* no symlink is followed, and no name leaves its directory */
    assert_int_equal(share_symlink(share, &dir, "link", "a", &none, NULL, NULL), 0);
    assert_int_equal(share_walk(share, through, &fh, NULL), ENOTDIR);
    static const char *const bad[] = {"..", ".", "", "a/b"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(share_lookup(share, &dir, bad[i], &fh, NULL), EINVAL);
        assert_int_equal(share_unlink(share, &dir, bad[i]), EINVAL);
        assert_int_equal(share_rename(share, &dir, "link", &dir, bad[i]), EINVAL);
    }
    auto_free char *text = NULL;
    size_t len = 0;
    assert_int_equal(share_replace_file(share, &dir, "note", "old", 3, 0600), 0);
    assert_int_equal(share_replace_file(share, &dir, "note", "newer", 5, 0600), 0);
    assert_int_equal(share_read_file(share, &dir, "note", 100, &text, &len), 0);
    assert_string_equal(text, "newer");
    assert_int_equal(share_read_file(share, &dir, "note", 4, &text, &len), EFBIG);
    assert_int_equal(share_read_file(share, &dir, "link", 100, &text, &len), ELOOP);
}

static void test_paths_and_small_files(void **state)
{
    (void)state;
    each_version(paths);
}

static void removal(struct share *share, int version)
{
    struct share_fh dir, sub, root;
    struct share_set none = {0};
    struct removal removal = {0};
    auto_err struct err err = {0};
    auto_free char *path = fresh_directory(share, &dir);
    (void)version;
    for (int i = 0; i < 20; i++) {
        auto_free char *name = mem_printf("d%d", i);
        assert_int_equal(share_mkdir(share, &dir, name, &none, &sub, NULL), 0);
        for (int j = 0; j < 20; j++) {
            auto_free char *file = mem_printf("f%d", j);
            make_file(share, &sub, file, "");
        }
    }
    assert_int_equal(remove_content(share, &dir, path, &removal, &err), 0);
    assert_int_equal(removal.removed, 20 * 21);
    share_root(share, &root);
    assert_int_equal(remove_tree(share, &root, path + 1, &removal, &err), 0);
    assert_int_equal(remove_tree(share, &root, path + 1, &removal, &err), 0);
    assert_int_equal(share_walk(share, path, &dir, NULL), ENOENT);
}

static void test_removal(void **state)
{
    (void)state;
    each_version(removal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unlink_and_rmdir_know_what_they_remove),
        cmocka_unit_test(test_new_files_have_their_mode_and_can_be_written),
        cmocka_unit_test(test_owner_of_a_symlink_is_its_own),
        cmocka_unit_test(test_listings_are_the_same),
        cmocka_unit_test(test_many_connections_make_files_at_once),
        cmocka_unit_test(test_large_writes),
        cmocka_unit_test(test_paths_and_small_files),
        cmocka_unit_test(test_removal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
