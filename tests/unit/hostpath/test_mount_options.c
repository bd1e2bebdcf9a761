/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/mount_options.h"
#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
/* after the headers it needs */
#include <cmocka.h>

static void test_sorted_into_flags_and_data(void **state)
{
    (void)state;
    static const struct {
        const char *items[3];
        unsigned long flags;
        const char *data;
    } table[] = {
        {{"ro"}, MS_RDONLY, ""},
        {{"ro", "rw"}, 0, ""},
        {{"nosuid,nodev,noexec"}, MS_NOSUID | MS_NODEV | MS_NOEXEC, ""},
        {{"noatime", "commit=5", "data=ordered"}, MS_NOATIME, "commit=5,data=ordered"},
        {{"defaults", ""}, 0, ""},
        {{"context=\"system_u:object_r:t:s0:c1,c2\",ro"}, MS_RDONLY, "context=\"system_u:object_r:t:s0:c1,c2\""},
        {{",,sync,,"}, MS_SYNCHRONOUS, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_err struct err err = {0};
        auto_mount_options struct mount_options options = {0};
        size_t count = 0;
        char *items[3];
        while (count < 3 && table[i].items[count] != NULL) {
            items[count] = mem_strdup(table[i].items[count]);
            count++;
        }
        assert_int_equal(mount_options_parse(items, count, &options, &err), 0);
        assert_int_equal(options.flags, table[i].flags);
        assert_string_equal(str_text(&options.data), table[i].data);
        assert_int_equal(options.read_only, (table[i].flags & MS_RDONLY) != 0);
        for (size_t j = 0; j < count; j++)
            free(items[j]);
    }
}

static void test_an_error_shows_no_value(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    auto_mount_options struct mount_options options = {0};
    char option[] = "password=open-sesame,ro";
    char *items[] = {option};
    assert_int_equal(mount_options_parse(items, 1, &options, &err), 0);
    assert_int_equal(mount_options_only_flags(&options, &err), -1);
    assert_non_null(strstr(err.message, "\"password\""));
    assert_null(strstr(err.message, "sesame"));
}

static void test_control_characters_are_refused(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    auto_mount_options struct mount_options options = {0};
    char option[] = "ro\nx";
    char *items[] = {option};
    assert_int_equal(mount_options_parse(items, 1, &options, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
}

static void test_digest(void **state)
{
    (void)state;
    char a[] = "ro", b[] = "rw", ab[] = "rorw";
    char *one[] = {a, b}, *two[] = {ab};
    auto_free char *none = mount_options_digest(NULL, 0), *first = mount_options_digest(one, 2),
                   *again = mount_options_digest(one, 2), *second = mount_options_digest(two, 1);
    assert_string_equal(none, "");
    assert_string_equal(first, again);
    assert_string_not_equal(first, second);
    assert_null(strstr(first, "ro,"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sorted_into_flags_and_data),
        cmocka_unit_test(test_an_error_shows_no_value),
        cmocka_unit_test(test_control_characters_are_refused),
        cmocka_unit_test(test_digest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
