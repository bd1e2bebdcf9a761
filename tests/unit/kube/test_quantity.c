/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/quantity.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* A decimal text of any 128-bit number. */
static char *nano_text(__int128 nano, char buffer[64])
{
    bool negative = nano < 0;
    unsigned __int128 rest = negative ? -(unsigned __int128)nano : (unsigned __int128)nano;
    char *at = buffer + 63;
    *at = '\0';
    do {
        *--at = (char)('0' + (int)(rest % 10));
        rest /= 10;
    } while (rest > 0);
    if (negative)
        *--at = '-';
    return at;
}

static void assert_nano(const char *text, const char *expected)
{
    struct kube_quantity quantity = {.nano = 77};
    auto_err struct err err = {0};
    char buffer[64];
    if (kube_quantity_parse(text, &quantity, &err) != 0)
        fail_msg("\"%s\": %s", text, err_text(&err));
    const char *nano = nano_text(quantity.nano, buffer);
    if (strcmp(nano, expected) != 0)
        fail_msg("\"%s\" is %s nano-units, not %s", text, nano, expected);
}

#define INT128_MAX_TEXT "170141183460469231731687303715884105727"
#define CAP_TEXT "9223372036854775807000000000" /* 2^63-1 units */

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *nano;
    } table[] = {
        {"0", "0"},
        {"1", "1000000000"},
        {"+5", "5000000000"},
        {"-5", "-5000000000"},
        {"-0", "0"},
        {"1.", "1000000000"},
        {".5", "500000000"},
        {"-.5", "-500000000"},
        {"007", "7000000000"},
        {"1.5G", "1500000000000000000"},
        {"1n", "1"},
        {"1u", "1000"},
        {"1m", "1000000"},
        {"1k", "1000000000000"},
        {"1M", "1000000000000000"},
        {"1G", "1000000000000000000"},
        {"1T", "1000000000000000000000"},
        {"1P", "1000000000000000000000000"},
        {"1E", "1000000000000000000000000000"},
        {"1Ki", "1024000000000"},
        {"1Mi", "1048576000000000"},
        {"1Gi", "1073741824000000000"},
        {"1Ti", "1099511627776000000000"},
        {"1Pi", "1125899906842624000000000"},
        {"1Ei", "1152921504606846976000000000"},
        {"1E3", "1000000000000"},
        {"1e3", "1000000000000"},
        {"1e+3", "1000000000000"},
        {"1e-2", "10000000"},
        {"1E-2", "10000000"},
        {"2.5e0", "2500000000"},
        {"1.E", "1000000000000000000000000000"},
        /* finer than a nano goes up, away from zero */
        {"0.0000000001", "1"},
        {"-0.0000000001", "-1"},
        {"1.0000000001", "1000000001"},
        {"0.1n", "1"},
        {"1.1n", "2"},
        {"1e-10", "1"},
        {"1e-999999999999999999999", "1"},
        {"0e-999999999999999999999", "0"},
        {"0.00000000000000000000000000000001Ki", "1"},
        /* 0.3Ki = 307.2; 1/1024 of a nano */
        {"0.3Ki", "307200000000"},
        {"0.0000000009765625Ki", "1000"},
        {"0.0000000009765626Ki", "1001"},
        /* only the binary suffixes are capped */
        {"800E", "800000000000000000000000000000"},
        {"7Ei", "8070450532247928832000000000"},
        {"8Ei", CAP_TEXT},
        {"-8Ei", "-" CAP_TEXT},
        {"7.9999999999999999999999999999Ei", CAP_TEXT},
        {"9007199254740991Ki", "9223372036854774784000000000"},
        {"9007199254740991.99999999999999999999Ki", CAP_TEXT},
        {"9007199254740992Ki", CAP_TEXT},
        {"99999999999999999999999999999999999999999999999999Ki", CAP_TEXT},
        {"9223372036854775808", "9223372036854775808000000000"},
        /* saturation */
        {"170141183460469231731687303715.884105727", INT128_MAX_TEXT},
        {"170141183460469231731687303715.884105728", INT128_MAX_TEXT},
        {"1e30", INT128_MAX_TEXT},
        {"-1e30", "-" INT128_MAX_TEXT},
        {"1e999999999999999999999", INT128_MAX_TEXT},
        {"0e999999999999999999999", "0"},
        {"99999999999999999999999999999999999999999E", INT128_MAX_TEXT},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_nano(table[i].text, table[i].nano);
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const table[] = {
        "",      " ",     "1 ",  " 1",    "+",      "-",        ".",         "+.",   "Ki",   "e3",
        "1.2.3", "--1",   "+-1", "1K",    "1ki",    "1KI",      "1kB",       "1GiB", "1mi",  "1Zi",
        "1e",    "1e+",   "1e-", "1e3k",  "1e3.5",  "1Ee3",     "1EE3",      "1i",   "0x10", "1,000",
        "1_0",   "1Ki3",  "1m5", "abc",   "1.Ki ",  "\xc2\xb5", "1\xc2\xb5", "1\n",  "1e 3", "infinity",
        "nan",   "1e0x3", ".5i", "1.1.M", "1+1.0M", "0.1mi",
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kube_quantity quantity = {.nano = 77};
        auto_err struct err err = {0};
        if (kube_quantity_parse(table[i], &quantity, &err) == 0)
            fail_msg("\"%s\" was accepted", table[i]);
        assert_int_equal(err.code, ERR_INVALID);
        assert_true(quantity.nano == 77);
        assert_int_equal(kube_quantity_parse(table[i], &quantity, NULL), -1);
    }
    struct kube_quantity quantity;
    auto_err struct err err = {0};
    assert_int_equal(kube_quantity_parse(NULL, &quantity, &err), -1);
    assert_int_equal(kube_quantity_parse("10GB", &quantity, &err), -1);
    assert_non_null(strstr(err.message, "unknown suffix \"GB\""));
}

/* ---- the same numbers by arithmetic on decimal texts ---- */

/* Multiplies a run of digits by a small number in place; digits has room in front of the first one. */
static char *text_times(char *first, unsigned factor)
{
    unsigned carry = 0;
    for (char *p = first + strlen(first); p-- > first;) {
        unsigned value = (unsigned)(*p - '0') * factor + carry;
        *p = (char)('0' + value % 10);
        carry = value / 10;
    }
    while (carry > 0) {
        *--first = (char)('0' + carry % 10);
        carry /= 10;
    }
    return first;
}

static int text_compare(const char *a, const char *b)
{
    a += strspn(a, "0");
    b += strspn(b, "0");
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);
    return a_len != b_len ? (a_len > b_len) - (a_len < b_len) : strcmp(a, b);
}

static void text_plus_one(char *first)
{
    char *p = first + strlen(first) - 1;
    while (*p == '9')
        *p-- = '0';
    *p = (char)(*p + 1);
}

/* digits.fraction × 2^two × 10^ten, as nano-units, without a sign. */
static void reference_nano(const char *whole, const char *fraction, int ten, int two, char out[512])
{
    char room[1024];
    memset(room, '0', 200);
    char *first = room + 200;
    size_t fraction_len = strlen(fraction);
    snprintf(first, sizeof(room) - 200, "%s%s", whole, fraction);
    for (int i = 0; i < two; i++)
        first = text_times(first, 2);
    int shift = ten + 9 - (int)fraction_len;
    size_t digits = strlen(first);
    for (; shift > 0; shift--)
        first[digits++] = '0';
    first[digits] = '\0';
    bool more = false;
    for (; shift < 0; shift++) {
        size_t len = strlen(first);
        if (len == 0)
            break;
        more = more || first[len - 1] != '0';
        first[len - 1] = '\0';
    }
    first -= 2; /* two of the zeros in front */
    if (more)
        text_plus_one(first);
    const char *cap = two > 0 ? CAP_TEXT : INT128_MAX_TEXT;
    const char *result = text_compare(first, cap) > 0 ? cap : first;
    result += strspn(result, "0");
    snprintf(out, 512, "%s", *result != '\0' ? result : "0");
}

static void random_digits(struct rng *rng, char *out, uint64_t max_len)
{
    uint64_t len = rng_below(rng, max_len + 1);
    uint64_t style = rng_below(rng, 4); /* runs of zeros and nines find the edges */
    for (uint64_t i = 0; i < len; i++)
        out[i] = style == 0 ? '0' : style == 1 ? '9' : (char)('0' + (int)rng_below(rng, 10));
    out[len] = '\0';
}

static void test_random_against_text_arithmetic(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int ten, two;
    } suffixes[] = {
        {"", 0, 0},    {"n", -9, 0},  {"u", -6, 0}, {"m", -3, 0},  {"k", 3, 0},    {"M", 6, 0},   {"G", 9, 0},
        {"T", 12, 0},  {"P", 15, 0},  {"E", 18, 0}, {"Ki", 0, 10}, {"Mi", 0, 20},  {"Gi", 0, 30}, {"Ti", 0, 40},
        {"Pi", 0, 50}, {"Ei", 0, 60}, {"e5", 5, 0}, {"E5", 5, 0},  {"e-5", -5, 0}, {"E+7", 7, 0}, {"e-30", -30, 0},
    };
    struct rng *rng = rng_seeded_new(20240607);
    for (int round = 0; round < 40000; round++) {
        char whole[64];
        char fraction[64];
        random_digits(rng, whole, round % 2 == 0 ? 10 : 36);
        random_digits(rng, fraction, round % 3 == 0 ? 0 : 36);
        if (whole[0] == '\0' && fraction[0] == '\0')
            continue;
        size_t suffix = rng_below(rng, ARRAY_LEN(suffixes));
        const char *sign = (const char *[]){"", "+", "-"}[rng_below(rng, 3)];
        bool point = fraction[0] != '\0' || rng_below(rng, 2) == 0;
        char text[256];
        snprintf(text, sizeof(text), "%s%s%s%s%s", sign, whole, point ? "." : "", fraction, suffixes[suffix].text);
        char expected[512];
        reference_nano(whole, fraction, suffixes[suffix].ten, suffixes[suffix].two, expected);
        char signed_text[520];
        snprintf(signed_text, sizeof(signed_text), "%s%s", *sign == '-' && strcmp(expected, "0") != 0 ? "-" : "",
                 expected);
        assert_nano(text, signed_text);
    }
    rng_free(rng);
}

static struct kube_quantity quantity_of(const char *text)
{
    struct kube_quantity quantity = {0};
    assert_int_equal(kube_quantity_parse(text, &quantity, NULL), 0);
    return quantity;
}

static int compare(const char *a, const char *b)
{
    struct kube_quantity left = quantity_of(a);
    struct kube_quantity right = quantity_of(b);
    return kube_quantity_compare(&left, &right);
}

static void test_compare(void **state)
{
    (void)state;
    assert_int_equal(compare("1Gi", "1024Mi"), 0);
    assert_int_equal(compare("1G", "1Gi"), -1);
    assert_int_equal(compare("1500m", "1.5"), 0);
    assert_int_equal(compare("800E", "8Ei"), 1);
    assert_int_equal(compare("-1", "0"), -1);
    assert_int_equal(compare("10.0000000001Gi", "10Gi"), 1);
}

static void test_ceil(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t units;
    } table[] = {
        {"0", 0},
        {"1", 1},
        {"1n", 1},
        {"1.000000001", 2},
        {"-1", -1},
        {"-1.5", -1},
        {"-0.5", 0},
        {"5Gi", 5368709120},
        {"0.3Ki", 308},
        {"800E", INT64_MAX},
        {"-800E", INT64_MIN},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775806.5", INT64_MAX},
        {"9223372036854775808", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"8Ei", INT64_MAX},
        {"1e30", INT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kube_quantity quantity = quantity_of(table[i].text);
        if (kube_quantity_ceil(&quantity) != table[i].units)
            fail_msg("\"%s\" is %lld units", table[i].text, (long long)kube_quantity_ceil(&quantity));
    }
}

static void test_format_bytes(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } table[] = {
        {0, "0"},
        {1, "1"},
        {1000, "1000"},
        {1023, "1023"},
        {1024, "1Ki"},
        {1025, "1025"},
        {102400, "100Ki"},
        {1536 * 1024, "1536Ki"},
        {5368709120, "5Gi"},
        {5368709121, "5368709121"},
        {1152921504606846976, "1Ei"},
        {INT64_MAX, "9223372036854775807"},
        {INT64_MIN, "-8Ei"},
        {-2048, "-2Ki"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char buffer[KUBE_QUANTITY_TEXT_SIZE];
        assert_string_equal(kube_quantity_format_bytes(table[i].bytes, buffer), table[i].text);
    }
}

static void test_format_round_trip(void **state)
{
    (void)state;
    struct rng *rng = rng_seeded_new(5);
    for (int i = 0; i < 20000; i++) {
        int64_t bytes = (int64_t)(rng_u64(rng) >> rng_below(rng, 63)) & INT64_MAX;
        bytes &= ~(((int64_t)1 << rng_below(rng, 50)) - 1);
        char buffer[KUBE_QUANTITY_TEXT_SIZE];
        struct kube_quantity parsed = quantity_of(kube_quantity_format_bytes(bytes, buffer));
        struct kube_quantity direct = kube_quantity_from_bytes(bytes);
        assert_int_equal(kube_quantity_compare(&parsed, &direct), 0);
        assert_true(kube_quantity_ceil(&parsed) == bytes);
    }
    rng_free(rng);
}

static void test_format_human(void **state)
{
    (void)state;
    static const struct {
        const char *quantity, *text;
    } table[] = {
        {"0", "0"},          {"5Gi", "5Gi"},         {"1536Mi", "1536Mi"},   {"8804682957", "8.2Gi"},
        {"10G", "9.31Gi"},   {"12345678", "11.8Mi"}, {"123456789", "118Mi"}, {"1000", "1000"},
        {"10000", "9.77Ki"}, {"5242881Ki", "5Gi"},   {"1073741823", "1Gi"},  {"1048575", "1Mi"},
        {"-10G", "-9.31Gi"}, {"0.5", "0.5"},         {"800E", "694Ei"},      {"1e30", "147573952590Ei"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char buffer[KUBE_QUANTITY_TEXT_SIZE];
        struct kube_quantity quantity = quantity_of(table[i].quantity);
        assert_string_equal(kube_quantity_format_human(&quantity, buffer), table[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),       cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_compare),      cmocka_unit_test(test_random_against_text_arithmetic),
        cmocka_unit_test(test_ceil),         cmocka_unit_test(test_format_bytes),
        cmocka_unit_test(test_format_human), cmocka_unit_test(test_format_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
