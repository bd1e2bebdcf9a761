/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"
#include "provisioner/result.h"

#define F PROVISION_FINISHED
#define B PROVISION_IN_BACKGROUND

static const enum provision_state by_code[17] = {
    [CSI_OK] = F,
    [CSI_CANCELED] = B,
    [CSI_UNKNOWN] = F,
    [CSI_INVALID_ARGUMENT] = F,
    [CSI_DEADLINE_EXCEEDED] = B,
    [CSI_NOT_FOUND] = F,
    [CSI_ALREADY_EXISTS] = F,
    [CSI_PERMISSION_DENIED] = F,
    [CSI_RESOURCE_EXHAUSTED] = F,
    [CSI_FAILED_PRECONDITION] = F,
    [CSI_ABORTED] = B,
    [CSI_OUT_OF_RANGE] = F,
    [CSI_UNIMPLEMENTED] = F,
    [CSI_INTERNAL] = F,
    [CSI_UNAVAILABLE] = B,
    [CSI_DATA_LOSS] = F,
    [CSI_UNAUTHENTICATED] = F,
};

static void test_codes(void **state)
{
    (void)state;
    for (int code = 1; code < 17; code++)
        for (int bits = 0; bits < 4; bits++) {
            bool topology = bits & 1, node = bits & 2;
            enum provision_state expected =
                code == CSI_RESOURCE_EXHAUSTED && topology && node ? PROVISION_RESCHEDULE : by_code[code];
            if (result_of_code(code, topology, node, NULL) != expected)
                fail_msg("code %d, topology %d, node %d", code, topology, node);
        }
    assert_int_equal(result_of_code(-1, true, true, NULL), B);
    assert_int_equal(result_of_code(17, true, true, NULL), B);
}

static void test_overrides(void **state)
{
    (void)state;
    bool background[17] = {[CSI_INTERNAL] = true};
    const struct result_overrides overrides = {.background = background};
    assert_int_equal(result_of_code(CSI_INTERNAL, false, false, &overrides), B);
    assert_int_equal(result_of_code(CSI_ABORTED, false, false, &overrides), F);
    assert_int_equal(result_of_code(CSI_RESOURCE_EXHAUSTED, true, true, &overrides), PROVISION_RESCHEDULE);
    const struct result_overrides none = {0};
    assert_int_equal(result_of_code(CSI_ABORTED, false, false, &none), B);
}

static void test_infeasible(void **state)
{
    (void)state;
    for (int code = -1; code < 18; code++)
        assert_int_equal(result_is_infeasible(code), code == CSI_INVALID_ARGUMENT);
}

static void test_next_step(void **state)
{
    (void)state;
    static const struct {
        enum provision_state state;
        bool failed, before, node;
        struct result_step step;
    } table[] = {
        {F, false, false, false, {.forget = true}},
        {F, false, true, true, {.forget = true}},
        {F, true, false, false, {.forget = true, .retry = true}},
        {F, true, true, true, {.forget = true, .retry = true}},
        {B, true, false, false, {.remember = true, .retry = true}},
        {B, true, true, true, {.remember = true, .retry = true}},
        {PROVISION_NO_CHANGE, true, false, false, {.retry = true}},
        {PROVISION_NO_CHANGE, true, true, false, {.remember = true, .retry = true}},
        {PROVISION_RESCHEDULE, true, false, true, {.forget = true, .clear_selected_node = true}},
        {PROVISION_RESCHEDULE, true, true, true, {.forget = true, .clear_selected_node = true}},
        {PROVISION_RESCHEDULE, true, true, false, {.forget = true, .retry = true}},
        {PROVISION_IGNORED, true, true, true, {.forget = true}},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct result_step step = result_next(table[i].state, table[i].failed, table[i].before, table[i].node);
        const struct result_step *want = &table[i].step;
        if (step.remember != want->remember || step.forget != want->forget || step.retry != want->retry ||
            step.clear_selected_node != want->clear_selected_node)
            fail_msg("%zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes), cmocka_unit_test(test_overrides),
                                       cmocka_unit_test(test_infeasible), cmocka_unit_test(test_next_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
