/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/tool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

static void test_status(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    const char *const fine[] = {"true", NULL};
    assert_int_equal(tool_run(fine, 0, CLOCK_NEVER, NULL, &err), 0);
    const char *const fails[] = {"sh", "-c", "echo first >&2; echo why >&2; exit 3", NULL};
    assert_int_equal(tool_run(fails, 2, 10 * CLOCK_SECOND, NULL, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    assert_non_null(strstr(err.message, "status 3: first why"));
    assert_int_equal(tool_run(fails, 3, 10 * CLOCK_SECOND, NULL, &err), 0);
}

static void test_no_such_program(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    const char *const argv[] = {"no-such-program-at-all", NULL};
    assert_int_equal(tool_run(argv, 0, CLOCK_SECOND, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void test_it_ends_in_time(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    const char *const argv[] = {"sleep", "60", NULL};
    assert_int_equal(tool_run(argv, 0, 20 * CLOCK_MS, NULL, &err), -1);
    assert_int_equal(err.code, ERR_TIMEOUT);
    struct stop *stop = stop_new();
    stop_request(stop);
    assert_int_equal(tool_run(argv, 0, CLOCK_NEVER, stop, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    stop_free(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_no_such_program),
        cmocka_unit_test(test_it_ends_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
