/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/handle.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "tests/unit/fuse/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct handle make(int32_t type, const void *bytes, uint32_t length)
{
    struct handle handle = {.type = type, .length = length};
    memcpy(handle.bytes, bytes, length);
    return handle;
}

static void eight_bytes_are_the_number_itself(void **state)
{
    struct handle handle = make(1, "\x02\x00\x00\x00\x78\x56\x34\x12", 8), back;
    (void)state;
    assert_true(handle_is_exact(&handle));
    assert_true(handle_node_id(&handle) == 0x1234567800000002U);
    handle_from_node_id(handle_node_id(&handle), 1, &back);
    assert_int_equal(back.length, 8);
    assert_memory_equal(back.bytes, handle.bytes, 8);
}

static void others_are_hashed(void **state)
{
    const struct handle a = make(1, "abcdefghijkl", 12), b = make(1, "abcdefghijkm", 12),
                        c = make(2, "abcdefghijkl", 12);
    (void)state;
    assert_false(handle_is_exact(&a));
    assert_true(handle_node_id(&a) == handle_node_id(&a));
    assert_true(handle_node_id(&a) != handle_node_id(&b) && handle_node_id(&a) != handle_node_id(&c));
}

static void reserved_numbers_never_come_out(void **state)
{
    const struct handle zero = make(1, "\0\0\0\0\0\0\0\0", 8), one = make(1, "\1\0\0\0\0\0\0\0", 8);
    (void)state;
    assert_true(handle_node_id(&zero) > 1);
    assert_true(handle_node_id(&one) > 1 && handle_node_id(&one) != handle_node_id(&zero));
}

struct place {
    char path[64];
    int fd;
    struct handles *handles; /* NULL: not as root, or no handles there */
};

static void place_open(struct place *place, const char *base)
{
    auto_err struct err err = {0};
    snprintf(place->path, sizeof(place->path), "%s/berth-handle-XXXXXX", base);
    assert_non_null(mkdtemp(place->path));
    place->fd = open(place->path, O_RDONLY | O_DIRECTORY);
    assert_true(place->fd >= 0);
    place->handles = handles_new(place->fd, &err);
    if (place->handles == NULL)
        print_message("no handles in %s: %s\n", base, err_text(&err));
}

static void place_close(struct place *place)
{
    handles_free(place->handles);
    close(place->fd);
    assert_int_equal(tree_remove(place->path), 0);
}

static void write_file(int dir_fd, const char *name, const char *text)
{
    auto_close int fd = openat(dir_fd, name, O_CREAT | O_WRONLY | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void files_are_found_by_number(const char *base)
{
    struct place place = {0};
    uint64_t file, again, directory;
    char text[8] = "";
    place_open(&place, base);
    if (place.handles == NULL) {
        place_close(&place);
        skip();
    }
    write_file(place.fd, "f", "text");
    assert_int_equal(mkdirat(place.fd, "d", 0700), 0);
    assert_int_equal(handles_identify(place.handles, place.fd, "f", 1, &file), 0);
    assert_int_equal(handles_identify(place.handles, place.fd, "d", 1, &directory), 0);
    assert_int_equal(handles_identify(place.handles, place.fd, "absent", 1, &again), -ENOENT);
    assert_true(file != directory);
    assert_int_equal(renameat(place.fd, "f", place.fd, "d/g"), 0); /* by any name */
    int fd = handles_open(place.handles, file, O_RDONLY);
    assert_true(fd >= 0 && read(fd, text, sizeof(text)) == 4);
    assert_string_equal(text, "text");
    close(fd);
    fd = handles_open(place.handles, directory, O_RDONLY | O_DIRECTORY);
    assert_int_equal(handles_identify(place.handles, fd, "g", 1, &again), 0);
    assert_true(again == file);
    assert_int_equal(unlinkat(fd, "g", 0), 0);
    close(fd);
    assert_int_equal(handles_open(place.handles, file, O_PATH), -ESTALE);
    fd = handles_open(place.handles, 1, O_PATH); /* the root */
    struct stat st, root;
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && fstat(place.fd, &root) == 0 && st.st_ino == root.st_ino);
    close(fd);
    place_close(&place);
}

static void on_disk(void **state)
{
    (void)state;
    files_are_found_by_number("/tmp");
}

static void in_memory(void **state)
{
    (void)state;
    files_are_found_by_number("/dev/shm");
}

static void remembered_until_forgotten(void **state)
{
    struct place place = {0};
    uint64_t ids[300];
    char name[16];
    (void)state;
    place_open(&place, "/dev/shm");
    if (place.handles == NULL || handles_are_exact(place.handles)) {
        place_close(&place);
        skip();
    }
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        write_file(place.fd, name, name);
        assert_int_equal(handles_identify(place.handles, place.fd, name, 0, &ids[i]), 0);
        assert_int_equal(handles_open(place.handles, ids[i], O_PATH), -ESTALE); /* only looked at */
        assert_int_equal(handles_identify(place.handles, place.fd, name, 2, &ids[i]), 0);
    }
    for (int i = 0; i < 300; i++) {
        handles_forget(place.handles, ids[i], 1);
        int fd = handles_open(place.handles, ids[i], O_PATH);
        assert_true(fd >= 0);
        close(fd);
        handles_forget(place.handles, ids[i], 1);
        assert_int_equal(handles_open(place.handles, ids[i], O_PATH), -ESTALE);
        handles_forget(place.handles, ids[i], 1); /* once too often */
    }
    assert_int_equal(handles_recover(place.handles, place.fd, "f7"), 0);
    int fd = handles_open(place.handles, ids[7], O_PATH);
    assert_true(fd >= 0);
    close(fd);
    place_close(&place);
}

static void another_mount_is_no_place(void **state)
{
    struct place place = {0};
    uint64_t id;
    (void)state;
    place_open(&place, "/tmp");
    if (place.handles == NULL) {
        place_close(&place);
        skip();
    }
    auto_close int root = open("/", O_RDONLY | O_DIRECTORY);
    int result = handles_identify(place.handles, root, "proc", 1, &id);
    assert_true(result == -EXDEV || result == -EOPNOTSUPP);
    place_close(&place);
}

static void a_file_system_without_handles_is_refused(void **state)
{
    auto_err struct err err = {0};
    auto_close int fd = open("/proc", O_RDONLY | O_DIRECTORY);
    (void)state;
    struct handles *handles = handles_new(fd, &err);
    assert_null(handles);
    assert_non_null(strstr(err_text(&err), "no file handles"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_bytes_are_the_number_itself),
        cmocka_unit_test(others_are_hashed),
        cmocka_unit_test(reserved_numbers_never_come_out),
        cmocka_unit_test(on_disk),
        cmocka_unit_test(in_memory),
        cmocka_unit_test(remembered_until_forgotten),
        cmocka_unit_test(another_mount_is_no_place),
        cmocka_unit_test(a_file_system_without_handles_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
