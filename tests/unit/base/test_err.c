/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/err.h"
#include "lib/base/str.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_set_and_wrap(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    assert_string_equal(err_text(&err), "no error");
    assert_string_equal(err_text(NULL), "no error");
    assert_int_equal(err_set_status(&err, ERR_CONFLICT, 409, "%d Conflict: %s", 409, "stale"), -1);
    assert_int_equal(err_wrap(&err, "patch claim %s", "default/data"), -1);
    assert_string_equal(err_text(&err), "patch claim default/data: 409 Conflict: stale");
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(err.status, 409);
    assert_true(err_is(&err, ERR_CONFLICT));
    assert_false(err_is(&err, ERR_GONE));
    assert_false(err_is(NULL, ERR_NONE));
    /* replaced, formatting the old message into the new one */
    err_set(&err, ERR_INVALID, "instead of \"%s\"", err_text(&err));
    assert_string_equal(err_text(&err), "instead of \"patch claim default/data: 409 Conflict: stale\"");
    assert_int_equal(err.status, 0);
    err_clear(&err);
    assert_null(err.message);
    assert_int_equal(err.code, ERR_NONE);
}

static void test_null_is_accepted(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_IO, "x"), -1);
    assert_int_equal(err_set_status(NULL, ERR_IO, 1, "x"), -1);
    assert_int_equal(err_set_errno(NULL, EIO, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
    err_clear(NULL);
}

static void test_errno(void **state)
{
    (void)state;
    static const struct {
        int number;
        enum err_code code;
    } table[] = {
        {ENOENT, ERR_NOT_FOUND}, {EEXIST, ERR_EXISTS}, {ETIMEDOUT, ERR_TIMEOUT},
        {EINVAL, ERR_INVALID},   {EIO, ERR_IO},        {EACCES, ERR_IO},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        auto_err struct err err = {0};
        assert_int_equal(err_set_errno(&err, table[i].number, "open %s", "/x"), -1);
        assert_int_equal(err.code, table[i].code);
    }
    auto_err struct err err = {0};
    err_set_errno(&err, ENOENT, "open %s", "/x");
    assert_string_equal(err_text(&err), "open /x: No such file or directory");
}

static void test_move_and_copy(void **state)
{
    (void)state;
    auto_err struct err from = {0};
    auto_err struct err to = {0};
    err_set(&to, ERR_IO, "old");
    assert_int_equal(err_move(&to, &from), 0);
    assert_int_equal(to.code, ERR_NONE);
    assert_null(to.message);
    err_set_status(&from, ERR_RPC, 14, "down");
    assert_int_equal(err_copy(&to, &from), -1);
    assert_string_equal(from.message, "down");
    assert_ptr_not_equal(from.message, to.message);
    assert_int_equal(to.status, 14);
    assert_int_equal(err_move(&to, &from), -1);
    assert_string_equal(to.message, "down");
    assert_null(from.message);
    assert_int_equal(from.code, ERR_NONE);
    assert_int_equal(err_copy(&from, &from), 0);
    assert_int_equal(err_copy(&to, &to), -1);
    assert_string_equal(to.message, "down");
    assert_int_equal(err_move(NULL, &to), -1);
    assert_null(to.message);
}

static void test_code_names_are_distinct(void **state)
{
    (void)state;
    for (int a = ERR_NONE; a <= ERR_RPC; a++) {
        assert_string_not_equal(err_code_name((enum err_code)a), "Unknown");
        for (int b = ERR_NONE; b < a; b++)
            assert_string_not_equal(err_code_name((enum err_code)a), err_code_name((enum err_code)b));
    }
    assert_string_equal(err_code_name((enum err_code)(ERR_RPC + 1)), "Unknown");
    assert_string_equal(err_code_name(ERR_NOT_FOUND), "NotFound");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_wrap),
        cmocka_unit_test(test_null_is_accepted),
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_move_and_copy),
        cmocka_unit_test(test_code_names_are_distinct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
