/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/record.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_survives_a_round_trip(void **state)
{
    auto_err struct err err = {0};
    auto_record struct record record = {.id = mem_strdup("pvc-1"),
                                        .name = mem_strdup("pvc-1 ü\n\""),
                                        .sub_dir = mem_strdup("a/b"),
                                        .on_delete = ON_DELETE_ARCHIVE,
                                        .state = RECORD_ARCHIVING,
                                        .capacity = INT64_MAX,
                                        .created = 1234567890123456789,
                                        .source_snapshot = mem_strdup("s#e#snap##v#b"),
                                        .archive = mem_strdup("archived-a/b")};
    (void)state;
    auto_free char *text = record_to_text(&record);
    auto_record struct record again = {0};
    assert_int_equal(record_from_text(text, strlen(text), &again, &err), 0);
    assert_string_equal(again.id, record.id);
    assert_string_equal(again.name, record.name);
    assert_string_equal(again.sub_dir, record.sub_dir);
    assert_int_equal(again.on_delete, record.on_delete);
    assert_int_equal(again.state, record.state);
    assert_true(again.capacity == record.capacity && again.created == record.created);
    assert_string_equal(again.source_snapshot, record.source_snapshot);
    assert_null(again.source_volume);
    assert_string_equal(again.archive, record.archive);
}

/* The file lies on a share: its paths are checked like everybody's. */
static void test_refuses_damaged_ones(void **state)
{
#define START "{\"format\": 1, \"onDelete\": \"\", \"name\": \"a\", "
#define READY START "\"state\": \"ready\", "
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"format\": 2, \"state\": \"ready\", \"onDelete\": \"\", \"id\": \"a\", \"name\": \"a\"}",
        START "\"state\": \"odd\", \"id\": \"a\"}",
        "{\"format\": 1, \"state\": \"ready\", \"onDelete\": \"burn\", \"id\": \"a\", \"name\": \"a\"}",
        READY "\"id\": \"../a\"}",
        "{\"format\": 1, \"state\": \"ready\", \"onDelete\": \"\", \"id\": \"a\"}",
        READY "\"id\": \"a\", \"subDir\": \"../x\"}",
        READY "\"id\": \"a\", \"subDir\": \"\"}",
        READY "\"id\": \"a\", \"subDir\": \".berth\"}",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        auto_record struct record record = {0};
        if (record_from_text(bad[i], strlen(bad[i]), &record, &err) == 0)
            fail_msg("taken: %s", bad[i]);
        assert_null(record.id);
    }
    auto_err struct err err = {0};
    auto_record struct record good = {0};
    assert_int_equal(record_from_text(READY "\"id\": \"a\"}", strlen(READY "\"id\": \"a\"}"), &good, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survives_a_round_trip),
        cmocka_unit_test(test_refuses_damaged_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
