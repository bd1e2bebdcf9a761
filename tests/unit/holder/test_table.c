/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/holder/table.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "tests/unit/fuse/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static struct held *make(const char *id, unsigned slot)
{
    struct held *held = held_new(id);
    held->directory = mem_printf("/volumes/%s", id);
    held->target = mem_printf("/mounts/%s", id);
    held->limit = 1 << 20;
    held->slot = slot;
    held->state = HELD_SERVING;
    held->pid = 4711;
    held->pid_start = 123456789;
    held->device = 55;
    strv_add(&held->options, "nosuid");
    strv_add(&held->options, "context=\"a:b:c1,c2\"");
    return held;
}

static void in_order_and_found(void **state)
{
    static const char *const ids[] = {"m", "b", "z", "a", "y", "c"};
    struct table table = {0};
    (void)state;
    assert_null(table_find(&table, "a"));
    for (unsigned i = 0; i < ARRAY_LEN(ids); i++)
        table_add(&table, make(ids[i], i + 1));
    for (size_t i = 1; i < table.len; i++)
        assert_true(strcmp(table.items[i - 1]->id, table.items[i]->id) < 0);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        assert_string_equal(table_find(&table, ids[i])->id, ids[i]);
    assert_null(table_find(&table, "bb"));
    assert_int_equal(table_free_slot(&table), 7);
    table_remove(&table, table_find(&table, "b"));
    assert_null(table_find(&table, "b"));
    assert_int_equal(table_free_slot(&table), 2);
    assert_int_equal(table.len, 5);
    table_clear(&table);
    assert_int_equal(table_free_slot(&table), 1);
}

static void moves(void **state)
{
    (void)state;
    assert_true(held_may_move(HELD_NEW, HELD_STARTING));
    assert_true(held_may_move(HELD_WAITING, HELD_STARTING));
    assert_false(held_may_move(HELD_SERVING, HELD_STARTING)); /* never two processes */
    assert_false(held_may_move(HELD_WAITING, HELD_SERVING));
    for (int to = 0; to < HELD_STATES; to++)
        assert_false(held_may_move(HELD_GONE, (enum held_state)to));
    for (int from = 0; from < HELD_GONE; from++)
        assert_true(held_may_move((enum held_state)from, HELD_GONE));
}

static void entries_survive_the_file(void **state)
{
    char directory[] = "/tmp/berth-table-XXXXXX";
    struct table table = {0}, loaded = {0};
    auto_err struct err err = {0};
    (void)state;
    assert_non_null(mkdtemp(directory));
    auto_free char *path = mem_printf("%s/table.json", directory);
    assert_int_equal(table_load(&loaded, path, "boot", &err), 0); /* there is none */
    table_add(&table, make("one", 1));
    table_add(&table, make("two", 2));
    table.items[1]->read_only = table.items[1]->detached = true;
    table.items[1]->restarts = 9;
    table_add(&table, make("unborn", 3));
    table_find(&table, "unborn")->state = HELD_NEW; /* has no mount yet */
    assert_int_equal(table_save(&table, path, "boot", &err), 0);
    assert_int_equal(table_load(&loaded, path, "another boot", &err), 0);
    assert_int_equal(loaded.len, 0);
    assert_int_equal(table_load(&loaded, path, "boot", &err), 0);
    assert_int_equal(loaded.len, 2);
    const struct held *two = table_find(&loaded, "two");
    assert_string_equal(two->directory, "/volumes/two");
    assert_string_equal(two->target, "/mounts/two");
    assert_int_equal(two->limit, 1 << 20);
    assert_true(two->read_only && two->detached);
    assert_int_equal(two->restarts, 9);
    assert_int_equal(two->pid, 4711);
    assert_int_equal(two->pid_start, 123456789);
    assert_int_equal(two->device, 55);
    assert_int_equal(two->slot, 2);
    assert_int_equal(two->options.len, 2);
    assert_string_equal(two->options.items[1], "context=\"a:b:c1,c2\"");
    assert_int_equal(two->fuse_fd, -1);
    assert_int_equal(table_load(&loaded, path, "boot", &err), -1); /* each id once */
    table_clear(&loaded);
    table_clear(&table);
    assert_int_equal(tree_remove(directory), 0);
}

static void damage_is_noticed(void **state)
{
    static const struct {
        const char *key;
        const char *value; /* JSON */
    } changes[] = {
        {"id", "\"a/b\""},
        {"id", "\"..\""},
        {"id", "7"},
        {"directory", "\"relative\""},
        {"target", "\"/a/../b\""},
        {"target", "null"},
        {"limit", "0"},
        {"limit", "-5"},
        {"limit", "\"5\""},
        {"inodeLimit", "-1"},
        {"slot", "0"},
        {"slot", "1e9"},
        {"pid", "-1"},
        {"pid", "9999999999"},
        {"pidStart", "true"},
        {"device", "-3"},
        {"restarts", "null"},
    };
    struct held *held = make("id", 1);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        auto_err struct err err = {0};
        json_t *entry = table_entry_to_json(held);
        json_object_set_new(entry, changes[i].key, json_loads(changes[i].value, JSON_DECODE_ANY, NULL));
        assert_null(table_entry_from_json(entry, &err));
        assert_int_equal(err.code, ERR_INVALID);
        json_object_del(entry, changes[i].key);
        assert_null(table_entry_from_json(entry, NULL));
        json_decref(entry);
    }
    held_free(held);
}

static void damaged_files(void **state)
{
    static const char *const texts[] = {
        "", "{", "[]", "5", "{\"format\":2,\"bootId\":\"boot\"}", "{\"format\":1,\"bootId\":\"boot\",\"mounts\":[{}]}"};
    char directory[] = "/tmp/berth-table-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(directory));
    auto_free char *path = mem_printf("%s/table.json", directory);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct table table = {0};
        auto_err struct err err = {0};
        assert_int_equal(file_write_atomic(path, texts[i], strlen(texts[i]), 0600, NULL), 0);
        assert_int_equal(table_load(&table, path, "boot", &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        table_clear(&table);
    }
    assert_int_equal(tree_remove(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_and_found),
        cmocka_unit_test(moves),
        cmocka_unit_test(entries_survive_the_file),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
