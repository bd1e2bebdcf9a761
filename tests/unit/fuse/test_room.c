/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/room.h"

#include "drivers/fuse/scan.h"
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "tests/unit/fuse/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define KIB 1024
#define NO_LIMIT ((int64_t)1 << 50)

static int open_temporary(void)
{
    char path[] = "/tmp/berth-room-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

static void put(int fd, int64_t at, size_t length)
{
    auto_free char *data = mem_alloc(length);
    memset(data, 'x', length);
    assert_int_equal(pwrite(fd, data, length, at), length);
}

static int64_t holes(int fd, int64_t offset, int64_t length)
{
    int64_t count = -1;
    assert_int_equal(room_count_holes(fd, offset, length, NO_LIMIT, &count), length);
    return count;
}

static void holes_are_counted(void **state)
{
    auto_close int fd = open_temporary();
    (void)state;
    assert_int_equal(holes(fd, 0, 1), 4096);
    assert_int_equal(holes(fd, 4000, 200), 8192);
    put(fd, 0, 8192);
    assert_int_equal(holes(fd, 0, 8192), 0);
    assert_int_equal(holes(fd, 0, 8193), 4096);
    put(fd, 100 * KIB, 10); /* half a block is a block */
    assert_int_equal(holes(fd, 100 * KIB, 4096), 0);
    assert_int_equal(holes(fd, 0, 104 * KIB), 92 * KIB);
    assert_int_equal(holes(fd, 50 * KIB + 1, 10), 4096);
    assert_int_equal(holes(fd, (int64_t)1 << 40, 128 * KIB), 128 * KIB);
}

static void preallocated_space_is_no_hole(void **state)
{
    auto_close int fd = open_temporary();
    (void)state;
    if (ftruncate(fd, 64 * KIB) != 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 64 * KIB) != 0)
        skip();
    assert_int_equal(holes(fd, 0, 64 * KIB), 0);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 16 * KIB, 8 * KIB), 0);
    assert_int_equal(holes(fd, 0, 64 * KIB), 8 * KIB);
}

static void room_ends_at_a_block(void **state)
{
    auto_close int fd = open_temporary();
    int64_t count = -1;
    (void)state;
    put(fd, 8 * KIB, 8 * KIB); /* hole, data, hole */
    assert_int_equal(room_count_holes(fd, 0, 32 * KIB, 0, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(room_count_holes(fd, 8 * KIB, 24 * KIB, 0, &count),
                     8 * KIB); /* what is there can be overwritten */
    assert_int_equal(room_count_holes(fd, 0, 32 * KIB, 4096, &count), 4096);
    assert_int_equal(count, 4096);
    assert_int_equal(room_count_holes(fd, 100, 32 * KIB, 4096, &count), 4096 - 100);
    assert_int_equal(room_count_holes(fd, 0, 32 * KIB, 12 * KIB + 4095, &count), 20 * KIB);
    assert_int_equal(count, 12 * KIB);
    assert_int_equal(room_count_holes(fd, 0, 32 * KIB, 24 * KIB, &count), 32 * KIB);
    assert_int_equal(count, 24 * KIB);
}

static void a_volume_is_counted(void **state)
{
    char directory[] = "/tmp/berth-scan-XXXXXX";
    struct scan_result result;
    auto_err struct err err = {0};
    char name[64];
    (void)state;
    assert_non_null(mkdtemp(directory));
    auto_close int root = open(directory, O_RDONLY | O_DIRECTORY);
    struct handles *handles = handles_new(root, &err);
    if (handles == NULL) {
        rmdir(directory);
        skip();
    }
    assert_int_equal(scan_volume(handles, root, -1, false, &result, &err), 0);
    assert_int_equal(result.inodes, 0);
    int64_t empty = result.used;
    auto_close int file = openat(root, "f", O_CREAT | O_RDWR, 0600);
    put(file, 0, 10 * KIB);
    for (int i = 0; i < 200; i++) { /* one file of many names */
        snprintf(name, sizeof(name), "l%d", i);
        assert_int_equal(linkat(root, "f", root, name, 0), 0);
    }
    int at = dup(root);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY);
        close(at);
        at = next;
    }
    assert_int_equal(linkat(root, "f", at, "deep", 0), 0);
    close(at);
    struct stat st, top;
    assert_int_equal(fstat(file, &st), 0);
    assert_int_equal(fstat(root, &top), 0);
    assert_int_equal(scan_volume(handles, root, -1, true, &result, &err), 0);
    assert_int_equal(result.inodes, 61);
    assert_true(result.used >= volume_bytes(&st) + volume_bytes(&top));
    assert_true(result.used <= empty + volume_bytes(&st) + volume_bytes(&top) + 60 * 4096);
    handles_free(handles);
    assert_int_equal(tree_remove(directory), 0);
}

struct place {
    char path[64];
    struct volume volume;
};

static bool place_open(struct place *place, const struct volume_options *options)
{
    auto_err struct err err = {0};
    if (volume_open(&place->volume, options, &err) == 0)
        return true;
    print_message("%s\n", err_text(&err));
    volume_close(&place->volume);
    return false;
}

static void orphans_live_and_die(void **state)
{
    struct place place = {.path = "/tmp/berth-volume-XXXXXX"};
    struct stat st;
    uint64_t id;
    size_t count = 0;
    (void)state;
    assert_non_null(mkdtemp(place.path));
    auto_free char *data = mem_printf("%s/data", place.path);
    assert_int_equal(mkdir(data, 0755), 0);
    struct volume_options options = {.directory = place.path, .limit = 1 << 20};
    if (!place_open(&place, &options)) {
        tree_remove(place.path);
        skip();
    }
    struct volume *volume = &place.volume;
    int64_t empty = account_figures(&volume->account).used;
    int fd = openat(volume->data_fd, "f", O_CREAT | O_RDWR, 0600);
    put(fd, 0, 8192);
    close(fd);
    assert_int_equal(handles_identify(volume->handles, volume->data_fd, "f", 1, &id), 0);
    struct node *node = node_get(&volume->nodes, id);
    pthread_mutex_lock(&node->lock);
    assert_int_equal(volume_make_orphan(volume, node), 0);
    assert_int_equal(volume_make_orphan(volume, node), 0);
    pthread_mutex_unlock(&node->lock);
    node_put(&volume->nodes, node);
    assert_int_equal(unlinkat(volume->data_fd, "f", 0), 0);
    assert_int_equal(volume_stat(volume, id, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    volume_close(volume);

    options.reattach = true; /* a successor finds it */
    assert_true(place_open(&place, &options));
    assert_int_equal(account_figures(&volume->account).used, empty + 8192);
    assert_int_equal(account_figures(&volume->account).inodes, 1);
    free(node_list_orphans(&volume->nodes, &count));
    assert_int_equal(count, 1);
    assert_int_equal(volume_stat(volume, id, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    volume_remove_orphan(volume, id);
    assert_int_equal(volume_stat(volume, id, &st), -ESTALE);
    assert_int_equal(account_figures(&volume->account).used, empty);
    assert_int_equal(account_figures(&volume->account).inodes, 0);
    volume_remove_orphan(volume, id); /* once too often */
    assert_int_equal(account_figures(&volume->account).inodes, 0);
    volume_close(volume);
    assert_int_equal(tree_remove(place.path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holes_are_counted),    cmocka_unit_test(preallocated_space_is_no_hole),
        cmocka_unit_test(room_ends_at_a_block), cmocka_unit_test(a_volume_is_counted),
        cmocka_unit_test(orphans_live_and_die),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
