/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/state.h"
#include "lib/base/file.h"
#include "lib/base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

struct fixture {
    char directory[64];
    struct state *state;
};

static int set_up(void **arg)
{
    struct fixture *f = mem_new(struct fixture);
    auto_err struct err err = {0};
    strcpy(f->directory, "/tmp/berth-state-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    assert_int_equal(state_open(f->directory, &f->state, &err), 0);
    *arg = f;
    return 0;
}

static int tear_down(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    state_close(f->state);
    int parent = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(file_remove_tree_at(parent, f->directory + strlen("/tmp/"), &err), 0);
    close(parent);
    free(f);
    return 0;
}

static void reopen(struct fixture *f)
{
    auto_err struct err err = {0};
    state_close(f->state);
    f->state = NULL;
    assert_int_equal(state_open(f->directory, &f->state, &err), 0);
}

static bool exists(const struct fixture *f, const char *path)
{
    auto_free char *full = mem_printf("%s/%s", f->directory, path);
    struct stat st;
    return lstat(full, &st) == 0;
}

static void write_file(const struct fixture *f, const char *path, const char *text)
{
    auto_free char *full = mem_printf("%s/%s", f->directory, path);
    int fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* What the plain backend makes. */
static int make_data(const struct fixture *f, const char *id)
{
    auto_err struct err err = {0};
    auto_free char *data = mem_printf("%s/volumes/%s/data", f->directory, id);
    assert_int_equal(state_make_data(f->state, STATE_VOLUMES, id, &err), 0);
    return mkdir(data, 0777);
}

static struct volume *make(const char *id, const char *name)
{
    struct volume *volume = volume_new();
    volume->id = mem_strdup(id);
    volume->name = mem_strdup(name);
    volume->capacity = 1 << 20;
    volume->backend = BACKEND_PLAIN;
    return volume;
}

static void test_record_survives_a_restart_whole(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    auto_volume struct volume *volume = make("id-1", "pvc-1");
    volume->block = volume->attached = volume->ephemeral = true;
    volume->source_volume = mem_strdup("id-0");
    volume->staging_path = mem_strdup("/staging");
    volume->created = 1234567890123456789;
    volume_add_target(volume, "/a", true, 7, "mode=7");
    volume_add_target(volume, "/b", false, 1, "mode=1");
    json_object_set_new(volume->mutable_parameters, "iops", json_string("5"));
    assert_int_equal(make_data(f, "id-1"), 0);
    assert_int_equal(state_save_volume(f->state, volume, &err), 0);
    reopen(f);
    auto_volume struct volume *again = state_volume_by_name(f->state, "pvc-1");
    assert_non_null(again);
    json_t *before = record_from_volume(volume), *after = record_from_volume(again);
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(after);
}

static void test_second_driver_is_refused(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    struct state *second = NULL;
    assert_int_equal(state_open(f->directory, &second, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_non_null(strstr(err.message, "another driver"));
}

static void test_data_without_a_record_goes_at_start(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    auto_volume struct volume *kept = make("kept", "pvc-kept");
    assert_int_equal(make_data(f, "kept"), 0);
    assert_int_equal(state_save_volume(f->state, kept, &err), 0);
    assert_int_equal(make_data(f, "half-made"), 0);
    write_file(f, "volumes/half-made/data/file", "x");
    write_file(f, "volumes/kept/data/file", "x");
    write_file(f, "records/.tmp-1", "{\"half\":");
    reopen(f);
    assert_false(exists(f, "volumes/half-made"));
    assert_false(exists(f, "records/.tmp-1"));
    assert_true(exists(f, "volumes/kept/data/file"));
}

static void test_delete_is_idempotent_and_complete(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    auto_volume struct volume *volume = make("id-1", "pvc-1");
    assert_int_equal(make_data(f, "id-1"), 0);
    assert_int_equal(state_save_volume(f->state, volume, &err), 0);
    write_file(f, "volumes/id-1/data/file", "x");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(state_delete_volume(f->state, "id-1", &err), 0);
        assert_false(exists(f, "volumes/id-1"));
        assert_false(exists(f, "records/id-1.json"));
        assert_null(state_volume(f->state, "id-1"));
        assert_null(state_volume_by_name(f->state, "pvc-1"));
    }
}

static void test_ids_from_outside_cannot_leave_the_directory(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    write_file(f, "precious", "x");
    static const char *const ids[] = {"../precious", "..", ".", "", "a/../../precious", "/etc"};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        assert_null(state_volume(f->state, ids[i]));
        assert_int_equal(state_delete_volume(f->state, ids[i], &err), 0);
    }
    assert_true(exists(f, "precious"));
    assert_true(exists(f, "records"));
}

static void test_deleting_does_not_follow_symlinks(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    auto_volume struct volume *volume = make("id-1", "pvc-1");
    auto_free char *outside = mem_printf("%s/outside", f->directory);
    auto_free char *link = mem_printf("%s/volumes/id-1/data/link", f->directory);
    assert_int_equal(mkdir(outside, 0700), 0);
    write_file(f, "outside/precious", "x");
    assert_int_equal(make_data(f, "id-1"), 0);
    assert_int_equal(state_save_volume(f->state, volume, &err), 0);
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(state_delete_volume(f->state, "id-1", &err), 0);
    assert_true(exists(f, "outside/precious"));
}

static void test_a_broken_record_is_named(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    write_file(f, "records/bad.json", "{\"id\": \"bad\"}");
    state_close(f->state);
    f->state = NULL;
    struct state *state = NULL;
    assert_int_equal(state_open(f->directory, &state, &err), -1);
    assert_non_null(strstr(err.message, "bad.json"));
}

static void test_newer_format_is_refused(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    write_file(f, "records/new.json", "{\"format\": 99, \"id\": \"new\", \"name\": \"n\", \"backend\": \"plain\"}");
    state_close(f->state);
    f->state = NULL;
    struct state *state = NULL;
    assert_int_equal(state_open(f->directory, &state, &err), -1);
    assert_non_null(strstr(err.message, "newer version"));
}

static void count_volume(void *arg, const struct volume *volume)
{
    struct strv *ids = arg;
    strv_add(ids, volume->id);
}

static void test_volumes_come_in_order(void **arg)
{
    struct fixture *f = *arg;
    auto_err struct err err = {0};
    static const char *const ids[] = {"c", "a", "b"};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        auto_volume struct volume *volume = make(ids[i], ids[i]);
        assert_int_equal(state_save_volume(f->state, volume, &err), 0);
    }
    auto_strv struct strv seen = {0};
    state_each_volume(f->state, count_volume, &seen);
    auto_free char *text = strv_join(&seen, ",");
    assert_string_equal(text, "a,b,c");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_record_survives_a_restart_whole),
        TEST(test_second_driver_is_refused),
        TEST(test_data_without_a_record_goes_at_start),
        TEST(test_delete_is_idempotent_and_complete),
        TEST(test_ids_from_outside_cannot_leave_the_directory),
        TEST(test_deleting_does_not_follow_symlinks),
        TEST(test_a_broken_record_is_named),
        TEST(test_newer_format_is_refused),
        TEST(test_volumes_come_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
