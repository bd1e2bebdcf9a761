/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/str.h"

#include "lib/base/mem.h"

#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_buffer_grows(void **state)
{
    (void)state;
    auto_str struct str s = {0};
    assert_string_equal(str_text(&s), "");
    str_add(&s, "ab");
    str_add_char(&s, 'c');
    str_add_len(&s, "\0d", 2);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "abc\0d", 6);
    str_reset(&s);
    assert_int_equal(s.len, 0);
    assert_string_equal(str_text(&s), "");
    for (int i = 0; i < 1000; i++)
        str_addf(&s, "%d,", i);
    assert_int_equal(s.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_true(str_ends(s.data, "998,999,"));
    assert_true(s.cap > s.len);
}

static void test_addf_at_the_edge_of_the_buffer(void **state)
{
    (void)state;
    for (int fill = 0; fill < 70; fill++) {
        auto_str struct str s = {0};
        for (int i = 0; i < fill; i++)
            str_add_char(&s, 'x');
        str_addf(&s, "%s", "0123456789");
        assert_int_equal(s.len, fill + 10);
        assert_string_equal(s.data + fill, "0123456789");
        str_addf(&s, "%s", "");
        assert_int_equal(s.len, fill + 10);
    }
    auto_str struct str empty = {0};
    str_addf(&empty, "%s", "");
    assert_non_null(empty.data);
    assert_string_equal(empty.data, "");
}

static void test_consume_and_take(void **state)
{
    (void)state;
    auto_str struct str s = {0};
    str_add(&s, "head tail");
    str_consume(&s, 0);
    str_consume(&s, 5);
    assert_string_equal(s.data, "tail");
    str_consume(&s, 100);
    assert_string_equal(str_text(&s), "");
    str_add(&s, "x");
    auto_free char *taken = str_take(&s);
    assert_string_equal(taken, "x");
    assert_null(s.data);
    auto_free char *none = str_take(&s);
    assert_string_equal(none, "");
}

static void test_prefix_suffix(void **state)
{
    (void)state;
    assert_true(str_starts("kubernetes.io/x", "kubernetes.io/"));
    assert_false(str_starts("k", "kubernetes"));
    assert_true(str_ends("a.c", ".c"));
    assert_false(str_ends("c", ".c"));
    assert_true(str_ends("x", ""));
    assert_false(str_starts(NULL, "x"));
    assert_false(str_ends(NULL, "x"));
    assert_true(str_eq(NULL, NULL));
    assert_false(str_eq("a", NULL));
    assert_true(str_empty(NULL) && str_empty("") && !str_empty("a"));
}

static void test_numbers(void **state)
{
    (void)state;
    uint64_t u = 7;
    int64_t i = 7;
    static const char *const bad[] = {"", " 1", "1 ", "+1", "0x10", "1e3", "--1", "-", "1.0", "18446744073709551616"};
    for (size_t n = 0; n < ARRAY_LEN(bad); n++) {
        assert_false(str_parse_u64(bad[n], &u));
        assert_false(str_parse_i64(bad[n], &i));
    }
    assert_int_equal(u, 7);
    assert_int_equal(i, 7);
    assert_false(str_parse_u64("-1", &u));
    assert_false(str_parse_u64(NULL, &u));
    assert_true(str_parse_u64("18446744073709551615", &u));
    assert_true(u == UINT64_MAX);
    assert_true(str_parse_u64("007", &u));
    assert_int_equal(u, 7);
    assert_true(str_parse_i64("-9223372036854775808", &i));
    assert_true(i == INT64_MIN);
    assert_true(str_parse_i64("9223372036854775807", &i));
    assert_true(i == INT64_MAX);
    assert_false(str_parse_i64("9223372036854775808", &i));
    assert_false(str_parse_i64("-9223372036854775809", &i));
    assert_true(str_parse_i64("-0", &i));
    assert_int_equal(i, 0);
}

static void test_utf8(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "ascii",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "a\xc3\xa4z"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc3",
                                      "\xc3(",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "\xe2\x82",
                                      "ok\xe2\x28\xa1",
                                      "\xf0\x90\x80"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(str_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(str_is_utf8(bad[i], strlen(bad[i])));
    assert_false(str_is_utf8("a\0b", 3));
    assert_int_equal(str_utf8_sequence("\xe2\x82\xac!", 4), 3);
    assert_int_equal(str_utf8_sequence("\xe2\x82\xac!", 2), 0);
    assert_int_equal(str_utf8_sequence("", 0), 0);
}

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("", "abc"), 3);
    assert_int_equal(str_distance("abc", ""), 3);
    assert_int_equal(str_distance("kubconfig", "kubeconfig"), 1);
    assert_int_equal(str_distance("wroker", "worker"), 1);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("same", "same"), 0);
}

static const char *shortest(double value)
{
    static char text[40];
    auto_str struct str s = {0};
    str_add_double(&s, value);
    snprintf(text, sizeof(text), "%s", s.data);
    return text;
}

/* The expected texts are what Go's strconv.FormatFloat(x, 'g', -1, 64) gives. */
static void test_doubles(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } table[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {-1.5, "-1.5"},
        {0.005, "0.005"},
        {0.1, "0.1"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e-8, "1e-08"},
        {0.0001, "0.0001"},
        {0.00001234, "1.234e-05"},
        {9.999999999999999e-06, "9.999999999999999e-06"},
        {100000, "100000"},
        {123456.75, "123456.75"},
        {1e6, "1e+06"},
        {1234567, "1.234567e+06"},
        {1.795981601966e9, "1.795981601966e+09"},
        {1e100, "1e+100"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {1.0 / 3, "0.3333333333333333"},
        {600, "600"},
        {2.5, "2.5"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_string_equal(shortest(table[i].value), table[i].text);
    assert_string_equal(shortest(__builtin_inf()), "+Inf");
    assert_string_equal(shortest(-__builtin_inf()), "-Inf");
    assert_string_equal(shortest(__builtin_nan("")), "NaN");
}

static void test_doubles_read_back(void **state)
{
    (void)state;
    uint64_t bits = 88172645463325252ULL;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double value = 0;
        memcpy(&value, &bits, sizeof(value));
        if (value != value || value - value != 0)
            continue;
        assert_true(strtod(shortest(value), NULL) == value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffer_grows),      cmocka_unit_test(test_addf_at_the_edge_of_the_buffer),
        cmocka_unit_test(test_consume_and_take),  cmocka_unit_test(test_prefix_suffix),
        cmocka_unit_test(test_numbers),           cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_distance),          cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_doubles_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
