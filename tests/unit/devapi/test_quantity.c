/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/quantity.h"
#include "tests/devapi/tree.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the above first */
#include <cmocka.h>

/* As a real API server stored them. */
static void test_spellings(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"1Gi", "1Gi"},
        {"1024Mi", "1Gi"},
        {"1.5Gi", "1536Mi"},
        {"0001Gi", "0001Gi"},
        {"01023Mi", "01023Mi"},
        {"1500m", "1500m"},
        {"1E3", "1E3"},
        {"12e5", "1200e3"},
        {"12e+2", "1200"},
        {"100n", "1m"},
        {"8Ei", "9223372036854775807"},
        {"1000", "1k"},
        {"1024", "1024"},
        {".5", "500m"},
        {"1.", "1."},
        {"+1Gi", "+1Gi"},
        {"010", "010"},
        {"1000m", "1"},
        {"1.10", "1100m"},
        {"5e-1", "500e-3"},
        {"0.25Ki", "256"},
        {"0.3Gi", "322122547200m"},
        {"20000G", "20T"},
        {"0", "0"},
        {"800E", "800E"},
        {"-1Gi", "-1Gi"},
        {"1000P", "1E"},
        {"5e-4", "1e-3"},
        {"10E", "10E"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct quantity quantity;
        auto_err struct err err = {0};
        if (quantity_parse(cases[i][0], &quantity, &err) != 0)
            fail_msg("%s: %s", cases[i][0], err_text(&err));
        assert_string_equal(quantity.text, cases[i][1]);
    }
}

static void test_signs(void **state)
{
    (void)state;
    struct quantity quantity;
    assert_int_equal(quantity_parse("0Gi", &quantity, NULL), 0);
    assert_false(quantity.positive || quantity.negative);
    assert_int_equal(quantity_parse("-5m", &quantity, NULL), 0);
    assert_true(quantity.negative);
    assert_int_equal(quantity_parse("9223372036854775808", &quantity, NULL), 0);
    assert_true(quantity.overflow);
    assert_int_equal(quantity_parse("9223372036854775807", &quantity, NULL), 0);
    assert_false(quantity.overflow);
}

static void test_malformed(void **state)
{
    (void)state;
    static const char *const cases[] = {"",
                                        "abc",
                                        "1Gb",
                                        "1 Gi",
                                        "1e",
                                        "--1",
                                        "1.2.3",
                                        "Gi",
                                        ".",
                                        "1e99999999999999999999",
                                        "99999999999999999999999999999999999999999999999999999999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct quantity quantity;
        auto_err struct err err = {0};
        if (quantity_parse(cases[i], &quantity, &err) == 0)
            fail_msg("\"%s\" was taken for %s", cases[i], quantity.text);
        assert_int_equal(err.code, ERR_INVALID);
    }
}

static void test_objects(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    auto_json json_t *object = json_loads(
        "{\"metadata\":{\"labels\":{\"requests\":\"1024Mi\"}},\"spec\":{\"capacity\":{\"storage\":\"1024Mi\"},"
        "\"containers\":[{\"resources\":{\"requests\":{\"cpu\":1}}}]},\"capacity\":\"2048Ki\"}",
        0, NULL);
    assert_int_equal(quantity_canonicalize(object, &err), 0);
    auto_free char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(
        text, "{\"metadata\":{\"labels\":{\"requests\":\"1024Mi\"}},\"spec\":{\"capacity\":{\"storage\":\"1Gi\"},"
              "\"containers\":[{\"resources\":{\"requests\":{\"cpu\":\"1\"}}}]},\"capacity\":\"2Mi\"}");
    tree_set(object, "spec.capacity.storage", json_true());
    assert_int_equal(quantity_canonicalize(object, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_signs),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
