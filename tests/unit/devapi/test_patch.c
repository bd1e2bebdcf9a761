/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/patch.h"
#include "tests/devapi/tree.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the above first */
#include <cmocka.h>

static json_t *parse(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (value == NULL)
        fail_msg("test data is no JSON: %s", text);
    return value;
}

static void assert_json(const json_t *got, const char *want)
{
    auto_json json_t *expected = parse(want);
    auto_free char *text = json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT);
    if (got == NULL || !json_equal(got, expected))
        fail_msg("want %s, got %s", want, text != NULL ? text : "NULL");
}

/* The table in the appendix of RFC 7386. */
static void test_merge(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"a\":null}", "{}"},
        {"{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}"},
        {"{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}"},
        {"{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}", "{\"a\":{\"b\":\"d\"}}"},
        {"{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}"},
        {"[\"a\",\"b\"]", "[\"c\",\"d\"]", "[\"c\",\"d\"]"},
        {"{\"a\":\"b\"}", "[\"c\"]", "[\"c\"]"},
        {"{\"a\":\"foo\"}", "null", "null"},
        {"{\"a\":\"foo\"}", "\"bar\"", "\"bar\""},
        {"{\"e\":null}", "{\"a\":1}", "{\"e\":null,\"a\":1}"},
        {"[1,2]", "{\"a\":\"b\",\"c\":null}", "{\"a\":\"b\"}"},
        {"{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_json json_t *target = parse(cases[i][0]), *patch = parse(cases[i][1]);
        auto_json json_t *result = patch_merge(target, patch);
        assert_json(result, cases[i][2]);
        assert_json(target, cases[i][0]); /* untouched */
    }
}

static void test_json(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{\"a\":1}", "[{\"op\":\"add\",\"path\":\"/b\",\"value\":2}]", "{\"a\":1,\"b\":2}"},
        {"{\"a\":[1,3]}", "[{\"op\":\"add\",\"path\":\"/a/1\",\"value\":2}]", "{\"a\":[1,2,3]}"},
        {"{\"a\":[1]}", "[{\"op\":\"add\",\"path\":\"/a/-\",\"value\":2}]", "{\"a\":[1,2]}"},
        {"{\"a\":1}", "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":null}]", "{\"a\":null}"},
        {"{\"a~/b\":1}", "[{\"op\":\"remove\",\"path\":\"/a~0~1b\"}]", "{}"},
        {"{\"a\":{\"b\":1}}", "[{\"op\":\"move\",\"from\":\"/a/b\",\"path\":\"/c\"}]", "{\"a\":{},\"c\":1}"},
        {"{\"a\":{\"b\":1}}", "[{\"op\":\"copy\",\"from\":\"/a\",\"path\":\"/c\"}]",
         "{\"a\":{\"b\":1},\"c\":{\"b\":1}}"},
        {"{\"a\":1}", "[{\"op\":\"test\",\"path\":\"/a\",\"value\":1}]", "{\"a\":1}"},
        {"{\"a\":1}", "[{\"op\":\"test\",\"path\":\"/x\",\"value\":null}]", "{\"a\":1}"},
        {"{\"a\":1}", "[{\"op\":\"replace\",\"path\":\"\",\"value\":{\"b\":2}}]", "{\"b\":2}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        auto_json json_t *target = parse(cases[i][0]), *patch = parse(cases[i][1]);
        auto_json json_t *result = patch_json(target, patch, &err);
        assert_json(result, cases[i][2]);
        assert_json(target, cases[i][0]);
    }
}

static void test_json_errors(void **state)
{
    (void)state;
    static const struct {
        const char *patch;
        enum err_code code;
    } cases[] = {
        {"{}", ERR_INVALID},
        {"[{\"op\":\"add\",\"path\":\"/b\"}]", ERR_INVALID},
        {"[{\"op\":\"bend\",\"path\":\"/b\",\"value\":1}]", ERR_INVALID},
        {"[{\"op\":\"add\",\"path\":\"b\",\"value\":1}]", ERR_INVALID},
        {"[{\"op\":\"move\",\"path\":\"/b\"}]", ERR_INVALID},
        {"[{\"op\":\"remove\",\"path\":\"/b\"}]", ERR_UNPROCESSABLE},
        {"[{\"op\":\"replace\",\"path\":\"/b\",\"value\":1}]", ERR_UNPROCESSABLE},
        {"[{\"op\":\"test\",\"path\":\"/a\",\"value\":2}]", ERR_UNPROCESSABLE},
        {"[{\"op\":\"add\",\"path\":\"/l/7\",\"value\":2}]", ERR_UNPROCESSABLE},
        {"[{\"op\":\"add\",\"path\":\"/x/y\",\"value\":2}]", ERR_UNPROCESSABLE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        auto_json json_t *target = parse("{\"a\":1,\"l\":[1]}"), *patch = parse(cases[i].patch);
        assert_null(patch_json(target, patch, &err));
        if (err.code != cases[i].code)
            fail_msg("%s: %s", cases[i].patch, err_text(&err));
    }
}

static void test_strategic(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{\"metadata\":{\"finalizers\":[\"a\",\"b\"]}}", "{\"metadata\":{\"finalizers\":[\"b\",\"c\"]}}",
         "{\"metadata\":{\"finalizers\":[\"a\",\"b\",\"c\"]}}"},
        {"{\"metadata\":{\"finalizers\":[\"a\",\"b\"]}}",
         "{\"metadata\":{\"$deleteFromPrimitiveList/finalizers\":[\"a\"],\"$setElementOrder/finalizers\":[\"b\"]}}",
         "{\"metadata\":{\"finalizers\":[\"b\"]}}"},
        {"{\"metadata\":{\"finalizers\":[\"a\",\"x\",\"b\"]}}",
         "{\"metadata\":{\"$setElementOrder/finalizers\":[\"b\",\"a\"]}}",
         "{\"metadata\":{\"finalizers\":[\"b\",\"x\",\"a\"]}}"},
        {"{\"spec\":{\"containers\":[{\"name\":\"a\",\"image\":\"1\",\"env\":[{\"name\":\"X\",\"value\":\"1\"}]},"
         "{\"name\":\"b\"}]}}",
         "{\"spec\":{\"containers\":[{\"name\":\"a\",\"env\":[{\"name\":\"Y\",\"value\":\"2\"},{\"name\":\"X\","
         "\"value\":"
         "\"3\"}]}]}}",
         "{\"spec\":{\"containers\":[{\"name\":\"a\",\"image\":\"1\",\"env\":[{\"name\":\"X\",\"value\":\"3\"},{"
         "\"name\":"
         "\"Y\",\"value\":\"2\"}]},{\"name\":\"b\"}]}}"},
        {"{\"spec\":{\"containers\":[{\"name\":\"a\"},{\"name\":\"b\"}]}}",
         "{\"spec\":{\"containers\":[{\"name\":\"a\",\"$patch\":\"delete\"}]}}",
         "{\"spec\":{\"containers\":[{\"name\":\"b\"}]}}"},
        {"{\"spec\":{\"containers\":[{\"name\":\"a\"}]}}",
         "{\"spec\":{\"containers\":[{\"name\":\"c\"},{\"$patch\":\"replace\"}]}}",
         "{\"spec\":{\"containers\":[{\"name\":\"c\"}]}}"},
        {"{\"spec\":{\"tolerations\":[1,2]}}", "{\"spec\":{\"tolerations\":[3]}}", "{\"spec\":{\"tolerations\":[3]}}"},
        {"{\"spec\":{\"a\":1,\"b\":2}}", "{\"spec\":{\"$patch\":\"replace\",\"c\":3}}", "{\"spec\":{\"c\":3}}"},
        {"{\"spec\":{\"v\":{\"nfs\":1,\"x\":2}}}", "{\"spec\":{\"v\":{\"$retainKeys\":[\"csi\"],\"csi\":3}}}",
         "{\"spec\":{\"v\":{\"csi\":3}}}"},
        {"{\"a\":{\"b\":1}}", "{\"a\":{\"b\":null,\"c\":{\"d\":null,\"e\":1}}}", "{\"a\":{\"c\":{\"e\":1}}}"},
    };
    const struct kind *pod = kind_by_name("Pod", "");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        auto_json json_t *target = parse(cases[i][0]), *patch = parse(cases[i][1]);
        auto_json json_t *result = patch_strategic(pod, target, patch, &err);
        if (result == NULL)
            fail_msg("%s: %s", cases[i][1], err_text(&err));
        assert_json(result, cases[i][2]);
        assert_json(target, cases[i][0]);
    }
}

static void test_strategic_errors(void **state)
{
    (void)state;
    static const char *const patches[] = {"[]", "{\"spec\":{\"containers\":[{\"image\":\"no name\"}]}}",
                                          "{\"$nonsense/a\":[1]}"};
    for (size_t i = 0; i < ARRAY_LEN(patches); i++) {
        auto_err struct err err = {0};
        auto_json json_t *target = parse("{\"spec\":{}}"), *patch = parse(patches[i]);
        assert_null(patch_strategic(kind_by_name("Pod", ""), target, patch, &err));
        assert_int_equal(err.code, ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_errors),
        cmocka_unit_test(test_strategic),
        cmocka_unit_test(test_strategic_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
