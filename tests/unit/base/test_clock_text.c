/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_rfc3339_formats(void **state)
{
    (void)state;
    char text[CLOCK_TEXT_SIZE];
    int64_t wall = 1136214245 * CLOCK_SECOND + 123456789;
    assert_string_equal(clock_format_rfc3339(wall, false, text), "2006-01-02T15:04:05Z");
    assert_string_equal(clock_format_rfc3339(wall, true, text), "2006-01-02T15:04:05.123456Z");
    assert_string_equal(clock_format_rfc3339(0, true, text), "1970-01-01T00:00:00.000000Z");
    assert_string_equal(clock_format_rfc3339(-1, true, text), "1969-12-31T23:59:59.999999Z");
    assert_string_equal(clock_format_rfc3339(INT64_MAX, true, text), "2262-04-11T23:47:16.854775Z");
    assert_string_equal(clock_format_rfc3339(INT64_MIN, true, text), "1677-09-21T00:12:43.145224Z");
}

static void test_rfc3339_parses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds;
        int64_t ns;
    } table[] = {
        {"2006-01-02T15:04:05Z", 1136214245, 0},
        {"2006-01-02T15:04:05.123456Z", 1136214245, 123456000},
        {"2006-01-02T15:04:05.1234567891Z", 1136214245, 123456789},
        {"2006-01-02T15:04:05.5+01:00", 1136214245 - 3600, 500000000},
        {"2006-01-02T15:04:05-07:30", 1136214245 + 27000, 0},
        {"2024-02-29T00:00:00Z", 1709164800, 0},
        {"1970-01-01T00:00:00Z", 0, 0},
        {"1969-12-31T23:59:59Z", -1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        int64_t wall = 0;
        assert_true(clock_parse_rfc3339(table[i].text, &wall));
        assert_int_equal(wall, table[i].seconds * CLOCK_SECOND + table[i].ns);
    }
    static const char *const bad[] = {
        "",
        "2006-01-02",
        "2006-01-02T15:04:05",
        "2006-01-02 15:04:05Z",
        "2006-01-02t15:04:05Z",
        "2006-01-02T15:04:05z",
        "2006-01-02T15:04:05.Z",
        "2006-1-02T15:04:05Z",
        "2006-13-02T15:04:05Z",
        "2006-00-02T15:04:05Z",
        "2023-02-29T00:00:00Z",
        "2006-04-31T00:00:00Z",
        "2006-01-02T24:00:00Z",
        "2006-01-02T15:60:00Z",
        "2006-01-02T15:04:60Z",
        "2006-01-02T15:04:05Zx",
        "2006-01-02T15:04:05+1:00",
        "2006-01-02T15:04:05+24:00",
        "0001-01-01T00:00:00Z", /* has no int64_t of nanoseconds */
        "9999-12-31T23:59:59Z",
    };
    int64_t wall = 42;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(clock_parse_rfc3339(bad[i], &wall));
    assert_false(clock_parse_rfc3339(NULL, &wall));
    assert_int_equal(wall, 42);
}

static void test_durations_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } table[] = {
        {"0", 0},
        {"-0", 0},
        {"0s", 0},
        {"15s", 15 * CLOCK_SECOND},
        {"1h30m", 5400 * CLOCK_SECOND},
        {"500ms", 500 * CLOCK_MS},
        {"1.5s", 1500 * CLOCK_MS},
        {".5s", 500 * CLOCK_MS},
        {"5.s", 5 * CLOCK_SECOND},
        {"-1.5h", -5400 * CLOCK_SECOND},
        {"+3m", 180 * CLOCK_SECOND},
        {"1us", 1000},
        {"1\xc2\xb5s", 1000},
        {"1\xce\xbcs", 1000},
        {"7ns", 7},
        {"0.9999999999s", 999999999},
        {"0.100000000000000000000h", 360 * CLOCK_SECOND},
        {"1m1m", 120 * CLOCK_SECOND},
        {"9223372036854775807ns", INT64_MAX},
        {"-9223372036854775808ns", INT64_MIN},
        {"2562047h47m16.854775807s", INT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        int64_t ns = 1;
        assert_true(clock_parse_duration(table[i].text, &ns));
        assert_int_equal(ns, table[i].ns);
    }
    static const char *const bad[] = {
        "",
        "3",
        "-",
        "+",
        "s",
        ".s",
        "1",
        "1 s",
        " 1s",
        "1s ",
        "1x",
        "1d",
        "1.2.3s",
        "--1s",
        "1e3s",
        "1h30",
        "9223372036854775808ns",
        "-9223372036854775809ns",
        "2562048h",
        "5124095.99h", /* beyond 64 bits by its fraction only */
        "99999999999999999999s",
        "3000000h",
    };
    int64_t ns = 42;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(clock_parse_duration(bad[i], &ns));
    assert_false(clock_parse_duration(NULL, &ns));
    assert_int_equal(ns, 42);
}

static void test_durations_print(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        const char *text;
    } table[] = {
        {0, "0s"},
        {1, "1ns"},
        {1100, "1.1\xc2\xb5s"},
        {2200000, "2.2ms"},
        {100 * CLOCK_MS, "100ms"},
        {3300 * CLOCK_MS, "3.3s"},
        {CLOCK_SECOND, "1s"},
        {60 * CLOCK_SECOND, "1m0s"},
        {245 * CLOCK_SECOND, "4m5s"},
        {245001 * CLOCK_MS, "4m5.001s"},
        {5400 * CLOCK_SECOND, "1h30m0s"},
        {8 * 60 * CLOCK_SECOND + 1, "8m0.000000001s"},
        {-15 * CLOCK_SECOND, "-15s"},
        {INT64_MAX, "2562047h47m16.854775807s"},
        {INT64_MIN, "-2562047h47m16.854775808s"},
    };
    char text[CLOCK_TEXT_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        assert_string_equal(clock_format_duration(table[i].ns, text), table[i].text);
        int64_t back = 0;
        assert_true(clock_parse_duration(text, &back));
        assert_int_equal(back, table[i].ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rfc3339_formats),
        cmocka_unit_test(test_rfc3339_parses),
        cmocka_unit_test(test_durations_parse),
        cmocka_unit_test(test_durations_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
