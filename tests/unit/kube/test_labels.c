/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/labels.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define STRINGS(...)                                                                                                   \
    {                                                                                                                  \
        .items = (const char *const[]){__VA_ARGS__}, .len = ARRAY_LEN(((const char *const[]){__VA_ARGS__}))            \
    }
#define NO_STRINGS                                                                                                     \
    {                                                                                                                  \
        0                                                                                                              \
    }

static const struct kube_pair label_items[] = {
    {"cores", "16"}, {"empty", ""}, {"large", "99999999999999999999"}, {"tier", "gold"}, {"zone", "a"}};
static const struct kube_pairs labels = {.items = label_items, .len = ARRAY_LEN(label_items)};

static void test_pairs_get(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(label_items); i++)
        assert_string_equal(kube_pairs_get(&labels, label_items[i].key), label_items[i].value);
    assert_null(kube_pairs_get(&labels, "aaa"));
    assert_null(kube_pairs_get(&labels, "zzz"));
    assert_null(kube_pairs_get(&labels, "tie"));
    assert_null(kube_pairs_get(&labels, ""));
    const struct kube_pairs none = {0};
    assert_null(kube_pairs_get(&none, "zone"));
}

static void test_equal(void **state)
{
    (void)state;
    const struct kube_pair copy[] = {{"tier", "gold"}, {"zone", "a"}};
    const struct kube_pair other_value[] = {{"tier", "gold"}, {"zone", "b"}};
    const struct kube_pair other_key[] = {{"tier", "gold"}, {"zona", "a"}};
    struct kube_pairs a = {.items = label_items + 3, .len = 2};
    assert_true(kube_pairs_equal(&a, &(struct kube_pairs){.items = copy, .len = 2}));
    assert_false(kube_pairs_equal(&a, &(struct kube_pairs){.items = other_value, .len = 2}));
    assert_false(kube_pairs_equal(&a, &(struct kube_pairs){.items = other_key, .len = 2}));
    assert_false(kube_pairs_equal(&a, &(struct kube_pairs){.items = copy, .len = 1}));
    assert_false(kube_pairs_equal(&a, &(struct kube_pairs){0}));

    struct kube_strings modes = STRINGS("ReadWriteOnce", "ReadOnlyMany");
    struct kube_strings same = STRINGS("ReadWriteOnce", "ReadOnlyMany");
    struct kube_strings swapped = STRINGS("ReadOnlyMany", "ReadWriteOnce");
    assert_true(kube_strings_equal(&modes, &same));
    assert_false(kube_strings_equal(&modes, &swapped));
    assert_false(kube_strings_equal(&modes, &(struct kube_strings){0}));
    assert_true(kube_strings_contain(&modes, "ReadOnlyMany"));
    assert_false(kube_strings_contain(&modes, "ReadWriteMany"));
}

static struct kube_requirement require(const char *key, enum kube_operator operator_, struct kube_strings values)
{
    static const char *const texts[] = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"};
    return (struct kube_requirement){
        .key = key, .operator_ = operator_, .operator_text = texts[operator_], .values = values};
}

static void test_selector_matches(void **state)
{
    (void)state;
    const struct {
        const char *key;
        enum kube_operator operator_;
        bool matches;
        struct kube_strings values;
    } table[] = {
        {"tier", KUBE_OP_IN, true, STRINGS("gold")},
        {"tier", KUBE_OP_IN, true, STRINGS("silver", "gold")},
        {"tier", KUBE_OP_IN, false, STRINGS("silver")},
        {"tier", KUBE_OP_IN, false, NO_STRINGS},
        {"missing", KUBE_OP_IN, false, STRINGS("gold")},
        {"missing", KUBE_OP_IN, false, STRINGS("")},
        {"empty", KUBE_OP_IN, true, STRINGS("")},
        {"tier", KUBE_OP_NOT_IN, true, STRINGS("silver")},
        {"tier", KUBE_OP_NOT_IN, false, STRINGS("silver", "gold")},
        {"missing", KUBE_OP_NOT_IN, true, STRINGS("gold")},
        {"empty", KUBE_OP_EXISTS, true, NO_STRINGS},
        {"missing", KUBE_OP_EXISTS, false, NO_STRINGS},
        {"empty", KUBE_OP_DOES_NOT_EXIST, false, NO_STRINGS},
        {"missing", KUBE_OP_DOES_NOT_EXIST, true, NO_STRINGS},
        {"cores", KUBE_OP_GT, true, STRINGS("15")},
        {"cores", KUBE_OP_GT, false, STRINGS("16")},
        {"cores", KUBE_OP_LT, true, STRINGS("17")},
        {"cores", KUBE_OP_LT, false, STRINGS("16")},
        {"cores", KUBE_OP_GT, true, STRINGS("9")}, /* as numbers, not as texts */
        {"cores", KUBE_OP_GT, false, STRINGS("x")},
        {"cores", KUBE_OP_GT, false, STRINGS("1", "2")},
        {"tier", KUBE_OP_GT, false, STRINGS("1")},
        {"large", KUBE_OP_GT, false, STRINGS("1")},
        {"missing", KUBE_OP_LT, false, STRINGS("1")},
        {"tier", KUBE_OP_UNKNOWN, false, NO_STRINGS},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kube_requirement requirement = require(table[i].key, table[i].operator_, table[i].values);
        struct kube_selector selector = {.items = &requirement, .len = 1};
        if (kube_selector_matches(&selector, &labels) != table[i].matches)
            fail_msg("row %zu", i);
    }
}

static void test_selector_needs_all(void **state)
{
    (void)state;
    struct kube_requirement both[] = {
        require("tier", KUBE_OP_IN, (struct kube_strings)STRINGS("gold")),
        require("zone", KUBE_OP_IN, (struct kube_strings)STRINGS("a")),
    };
    struct kube_selector selector = {.items = both, .len = 2};
    assert_true(kube_selector_matches(&selector, &labels));
    both[1].values = (struct kube_strings)STRINGS("b");
    assert_false(kube_selector_matches(&selector, &labels));
    selector.len = 0;
    assert_true(kube_selector_matches(&selector, &labels));
    assert_true(kube_selector_matches(&selector, &(struct kube_pairs){0}));
}

#define S63 "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg"

static void test_validate(void **state)
{
    (void)state;
    const struct {
        const char *key;
        enum kube_operator operator_;
        struct kube_strings values;
        const char *message; /* NULL: valid; otherwise what it starts with */
    } table[] = {
        {"tier", KUBE_OP_IN, STRINGS("gold", ""), NULL},
        {"example.com/Tier_1.x", KUBE_OP_NOT_IN, STRINGS("A-b_c.9"), NULL},
        {S63, KUBE_OP_EXISTS, NO_STRINGS, NULL},
        {"a", KUBE_OP_IN, STRINGS(S63), NULL},
        {"a", KUBE_OP_UNKNOWN, NO_STRINGS, "\"Near\" is not a valid label selector operator"},
        {"a", KUBE_OP_GT, STRINGS("1"), "\"Gt\" is not a valid label selector operator"},
        {"a", KUBE_OP_LT, STRINGS("1"), "\"Lt\" is not a valid label selector operator"},
        {"a", KUBE_OP_IN, NO_STRINGS,
         "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"},
        {"a", KUBE_OP_NOT_IN, NO_STRINGS,
         "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"},
        {"a", KUBE_OP_EXISTS, STRINGS("x", "y"),
         "values: Invalid value: [\"x\",\"y\"]: values set must be empty for exists and does not exist"},
        {"a", KUBE_OP_DOES_NOT_EXIST, STRINGS("x"),
         "values: Invalid value: [\"x\"]: values set must be empty for exists and does not exist"},
        {"", KUBE_OP_EXISTS, NO_STRINGS,
         "key: Invalid value: \"\": name part must be non-empty; name part must consist of alphanumeric characters"},
        {"a b", KUBE_OP_EXISTS, NO_STRINGS,
         "key: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must "
         "start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
         "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
        {"a\"\n", KUBE_OP_EXISTS, NO_STRINGS, "key: Invalid value: \"a\\\"\\n\": name part must consist"},
        {"-a", KUBE_OP_EXISTS, NO_STRINGS, "key: Invalid value: \"-a\": name part must consist"},
        {S63 "x", KUBE_OP_EXISTS, NO_STRINGS,
         "key: Invalid value: \"" S63 "x\": name part must be no more than 63 bytes"},
        {"/a", KUBE_OP_EXISTS, NO_STRINGS, "key: Invalid value: \"/a\": prefix part must be non-empty"},
        {"a/", KUBE_OP_EXISTS, NO_STRINGS, "key: Invalid value: \"a/\": name part must be non-empty"},
        {"A/b", KUBE_OP_EXISTS, NO_STRINGS,
         "key: Invalid value: \"A/b\": prefix part a lowercase RFC 1123 subdomain must consist of lower case "
         "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
         "'example.com', regex used for validation is "
         "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"},
        {"a/b/c", KUBE_OP_EXISTS, NO_STRINGS, "key: Invalid value: \"a/b/c\": a qualified name must consist of"},
        {"a", KUBE_OP_IN, STRINGS("ok", "not ok"),
         "values[1][a]: Invalid value: \"not ok\": a valid label must be an empty string or consist of alphanumeric "
         "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
         "'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"},
        {"a", KUBE_OP_IN, STRINGS(S63 "x"), "values[0][a]: Invalid value: \"" S63 "x\": must be no more than 63 bytes"},
        {"a", KUBE_OP_IN, STRINGS("-", "b", "_"), "[values[0][a]: Invalid value: \"-\": a valid label must be"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kube_requirement requirement = require(table[i].key, table[i].operator_, table[i].values);
        struct kube_selector selector = {.items = &requirement, .len = 1};
        auto_err struct err err = {0};
        int result = kube_selector_validate(&selector, &err);
        if (table[i].message == NULL) {
            assert_int_equal(result, 0);
            continue;
        }
        assert_int_equal(result, -1);
        assert_int_equal(err.code, ERR_INVALID);
        if (!str_starts(err.message, table[i].message))
            fail_msg("row %zu: %s", i, err.message);
        assert_int_equal(kube_selector_validate(&selector, NULL), -1);
    }
}

static void test_validate_looks_at_every_requirement(void **state)
{
    (void)state;
    struct kube_requirement items[] = {
        require("tier", KUBE_OP_IN, (struct kube_strings)STRINGS("gold")),
        require("zone", KUBE_OP_UNKNOWN, (struct kube_strings)STRINGS("a")),
    };
    auto_err struct err err = {0};
    assert_int_equal(kube_selector_validate(&(struct kube_selector){.items = items, .len = 1}, &err), 0);
    assert_int_equal(kube_selector_validate(&(struct kube_selector){.items = items, .len = 2}, &err), -1);
    assert_int_equal(kube_selector_validate(&(struct kube_selector){0}, &err), 0);
}

static bool term(struct kube_requirement *expression, struct kube_requirement *field)
{
    struct kube_node_term item = {.expressions = {.items = expression, .len = expression != NULL ? 1 : 0},
                                  .fields = {.items = field, .len = field != NULL ? 1 : 0}};
    struct kube_node_selector selector = {.terms = &item, .len = 1};
    return kube_node_selector_matches(&selector, "node-1", &labels);
}

static bool expression_matches(const char *key, enum kube_operator operator_, struct kube_strings values)
{
    struct kube_requirement requirement = require(key, operator_, values);
    return term(&requirement, NULL);
}

static bool field_matches(const char *key, enum kube_operator operator_, struct kube_strings values)
{
    struct kube_requirement requirement = require(key, operator_, values);
    return term(NULL, &requirement);
}

static void test_node_terms(void **state)
{
    (void)state;
    const struct kube_strings a = STRINGS("a");
    const struct kube_strings fifteen = STRINGS("15");
    const struct kube_strings minus = STRINGS("-1");
    const struct kube_strings bad = STRINGS("a", "not ok");
    const struct kube_strings node = STRINGS("node-1");
    const struct kube_strings other = STRINGS("node-2");
    const struct kube_strings two = STRINGS("node-1", "node-2");
    const struct kube_strings none = {0};
    assert_true(expression_matches("zone", KUBE_OP_IN, a));
    assert_true(expression_matches("cores", KUBE_OP_GT, fifteen));
    assert_false(expression_matches("cores", KUBE_OP_LT, fifteen));
    assert_true(expression_matches("zone", KUBE_OP_EXISTS, none));
    assert_true(expression_matches("missing", KUBE_OP_DOES_NOT_EXIST, none));
    assert_true(expression_matches("missing", KUBE_OP_NOT_IN, a));
    /* malformed ones match nothing, even where the rest would */
    assert_false(expression_matches("zone", KUBE_OP_IN, bad));
    assert_false(expression_matches("zone", KUBE_OP_EXISTS, a));
    assert_false(expression_matches("missing", KUBE_OP_NOT_IN, none));
    assert_false(expression_matches("not ok", KUBE_OP_NOT_IN, a));
    assert_false(expression_matches("zone", KUBE_OP_UNKNOWN, a));
    assert_false(expression_matches("cores", KUBE_OP_GT, minus)); /* no label value starts with '-' */

    assert_true(field_matches("metadata.name", KUBE_OP_IN, node));
    assert_false(field_matches("metadata.name", KUBE_OP_IN, other));
    assert_false(field_matches("metadata.name", KUBE_OP_IN, two));
    assert_true(field_matches("metadata.name", KUBE_OP_NOT_IN, other));
    assert_false(field_matches("metadata.name", KUBE_OP_NOT_IN, node));
    assert_false(field_matches("metadata.name", KUBE_OP_EXISTS, none));
    assert_false(field_matches("metadata.uid", KUBE_OP_IN, node));
    assert_true(field_matches("metadata.uid", KUBE_OP_NOT_IN, node));
    assert_false(term(NULL, NULL));

    struct kube_requirement expression = require("zone", KUBE_OP_IN, a);
    struct kube_requirement field = require("metadata.name", KUBE_OP_IN, other);
    assert_false(term(&expression, &field));
    field.values = node;
    assert_true(term(&expression, &field));
}

static void test_node_terms_are_alternatives(void **state)
{
    (void)state;
    struct kube_requirement items[] = {
        require("zone", KUBE_OP_UNKNOWN, (struct kube_strings)STRINGS("a")),
        require("zone", KUBE_OP_IN, (struct kube_strings)STRINGS("a")),
    };
    struct kube_node_term terms[] = {
        {.expressions = {.items = &items[0], .len = 1}},
        {{0}, {0}},
        {.expressions = {.items = &items[1], .len = 1}},
    };
    assert_true(kube_node_selector_matches(&(struct kube_node_selector){terms, 3}, "n", &labels));
    assert_false(kube_node_selector_matches(&(struct kube_node_selector){terms, 2}, "n", &labels));
    assert_false(kube_node_selector_matches(&(struct kube_node_selector){terms, 0}, "n", &labels));
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool label, subdomain;
    } table[] = {
        {"a", true, true},
        {"0", true, true},
        {"a-b", true, true},
        {S63, true, true},
        {S63 "x", false, true},
        {"a.b", false, true},
        {"a-.b", false, false},
        {"a.-b", false, false},
        {"a..b", false, false},
        {".a", false, false},
        {"a.", false, false},
        {"", false, false},
        {"-a", false, false},
        {"a-", false, false},
        {"A", false, false},
        {"a_b", false, false},
        {"a/b", false, false},
        {"\xc3\xa4", false, false},
        {S63 "." S63 "." S63 "." S63, false, false}, /* 255 */
        {S63 "." S63 "." S63 ".x" S63 /* 256 */, false, false},
        {S63 "." S63 "." S63 "." /* 192 */ "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffg", false,
         true}, /* 253 */
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (kube_name_is_dns_label(table[i].name) != table[i].label)
            fail_msg("label \"%s\"", table[i].name);
        if (kube_name_is_dns_subdomain(table[i].name) != table[i].subdomain)
            fail_msg("subdomain \"%s\"", table[i].name);
    }
    assert_false(kube_name_is_dns_label(NULL));
    assert_false(kube_name_is_dns_subdomain(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_get),
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_selector_matches),
        cmocka_unit_test(test_selector_needs_all),
        cmocka_unit_test(test_validate),
        cmocka_unit_test(test_validate_looks_at_every_requirement),
        cmocka_unit_test(test_node_terms),
        cmocka_unit_test(test_node_terms_are_alternatives),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
