/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/flag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { ALPHA, BETA, GA, COUNT };

static int parse(const char *text, struct flag_gate gates[COUNT + 1], struct err *err)
{
    gates[ALPHA] = (struct flag_gate){.name = "Snapshots", .value = false, .stage = 'a'};
    gates[BETA] = (struct flag_gate){.name = "Topology", .value = true, .stage = 'b'};
    gates[GA] = (struct flag_gate){.name = "Honor", .value = true, .stage = 'g'};
    gates[COUNT] = (struct flag_gate){.name = NULL};
    return flag_parse_gates(text, gates, err);
}

static void test_values(void **state)
{
    (void)state;
    struct flag_gate gates[COUNT + 1];
    assert_int_equal(parse("Snapshots=true, Topology = FALSE ,", gates, NULL), 0);
    assert_true(gates[ALPHA].value && gates[ALPHA].set);
    assert_false(gates[BETA].value);
    assert_true(gates[BETA].set);
    assert_true(gates[GA].value);
    assert_false(gates[GA].set);
    assert_int_equal(parse("", gates, NULL), 0);
    assert_int_equal(parse(NULL, gates, NULL), 0);
    assert_false(gates[ALPHA].value);
    assert_int_equal(parse("Snapshots=false,Snapshots=true", gates, NULL), 0);
    assert_true(gates[ALPHA].value);
}

static void test_stages(void **state)
{
    (void)state;
    struct flag_gate gates[COUNT + 1];
    assert_int_equal(parse("AllAlpha=true,AllBeta=false", gates, NULL), 0);
    assert_true(gates[ALPHA].value);
    assert_false(gates[BETA].value);
    assert_true(gates[GA].value);
    /* a gate that is named wins, wherever it stands */
    assert_int_equal(parse("Snapshots=false,AllAlpha=true", gates, NULL), 0);
    assert_false(gates[ALPHA].value);
    assert_int_equal(parse("AllBeta=false,Topology=true", gates, NULL), 0);
    assert_true(gates[BETA].value);
}

static void test_errors(void **state)
{
    (void)state;
    struct flag_gate gates[COUNT + 1];
    auto_err struct err err = {0};
    assert_int_equal(parse("Snapshot=true", gates, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.message, "unknown feature gate \"Snapshot\"; known are Snapshots, Topology, Honor");
    assert_int_equal(parse("Snapshots", gates, &err), -1);
    assert_string_equal(err.message,
                        "feature gate \"Snapshots\" has no value: write Snapshots=true or Snapshots=false");
    assert_int_equal(parse("Snapshots=maybe", gates, &err), -1);
    assert_string_equal(err.message, "invalid value \"maybe\" for feature gate Snapshots: use true or false");
    assert_int_equal(parse("=true", gates, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
