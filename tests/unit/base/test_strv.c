/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_split_and_join(void **state)
{
    (void)state;
    auto_strv struct strv list = {0};
    strv_split(&list, "b,,a,c,", ',');
    assert_int_equal(list.len, 5);
    assert_string_equal(list.items[1], "");
    assert_string_equal(list.items[4], "");
    auto_free char *joined = strv_join(&list, ";");
    assert_string_equal(joined, "b;;a;c;");
    strv_sort(&list);
    auto_free char *sorted = strv_join(&list, ",");
    assert_string_equal(sorted, ",,a,b,c");
    auto_strv struct strv one = {0};
    strv_split(&one, "", ',');
    assert_int_equal(one.len, 1);
    auto_strv struct strv none = {0};
    strv_sort(&none);
    auto_free char *empty = strv_join(&none, ",");
    assert_string_equal(empty, "");
}

static void test_remove_keeps_order(void **state)
{
    (void)state;
    auto_strv struct strv list = {0};
    strv_split(&list, "a b c d", ' ');
    assert_true(strv_remove(&list, "b"));
    assert_false(strv_remove(&list, "b"));
    assert_true(strv_contains(&list, "d"));
    assert_false(strv_contains(&list, "b"));
    auto_free char *joined = strv_join(&list, " ");
    assert_string_equal(joined, "a c d");
    assert_true(strv_remove(&list, "d"));
    assert_int_equal(list.len, 2);
}

static void test_copy_is_deep(void **state)
{
    (void)state;
    auto_strv struct strv from = {0};
    auto_strv struct strv to = {0};
    strv_add(&to, "old");
    for (int i = 0; i < 100; i++)
        strv_add_take(&from, mem_printf("%d", i));
    strv_copy(&to, &from);
    assert_int_equal(to.len, 100);
    assert_string_equal(to.items[99], "99");
    assert_ptr_not_equal(to.items[99], from.items[99]);
    strv_copy(&to, &to);
    assert_int_equal(to.len, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_and_join),
        cmocka_unit_test(test_remove_keeps_order),
        cmocka_unit_test(test_copy_is_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
