/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "controller/fight.h"

#include <stdio.h>

static void test_undone_again_and_again(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct fight *fight = fight_new(clock);
    for (int i = 0; i < 11; i++) {
        fight_note_write(fight, "volume/v", "phase Available");
        fight_note_write(fight, "volume/v", "phase Bound"); /* what else is written meanwhile does not reset it */
    }
    assert_int_equal(fight_delay(fight, "volume/v"), 0);
    fight_note_write(fight, "volume/v", "phase Available");
    assert_int_equal(fight_delay(fight, "volume/v"), CLOCK_SECOND);
    assert_int_equal(fight_delay(fight, "volume/w"), 0);
    assert_int_equal(fight_count(fight), 1);
    clock_fake_advance(clock, CLOCK_SECOND);
    assert_int_equal(fight_delay(fight, "volume/v"), 0);
    fight_note_write(fight, "volume/v", "phase Available");
    assert_int_equal(fight_delay(fight, "volume/v"), 2 * CLOCK_SECOND);
    fight_forget(fight, "volume/v");
    assert_int_equal(fight_delay(fight, "volume/v"), 0);
    fight_free(fight);
    clock_free(clock);
}

static void test_slow_repeats_are_normal(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct fight *fight = fight_new(clock);
    for (int i = 0; i < 100; i++) {
        fight_note_write(fight, "volume/v", "phase Available");
        clock_fake_advance(clock, 6 * CLOCK_SECOND); /* ten within any minute */
    }
    assert_int_equal(fight_delay(fight, "volume/v"), 0);
    assert_int_equal(fight_count(fight), 0);
    fight_free(fight);
    clock_free(clock);
}

static void test_conflicts(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct fight *fight = fight_new(clock);
    for (int i = 0; i < 400; i++) {
        char name[32];
        snprintf(name, sizeof(name), "volume/v%d", i);
        fight_note_write(fight, name, "phase Available");
    }
    for (int i = 0; i < 40; i++)
        fight_note_conflict(fight, "claim/default/c");
    assert_int_equal(fight_count(fight), 0); /* one in ten is bearable */
    assert_int_equal(fight_delay(fight, "claim/default/c"), 0);
    fight_note_conflict(fight, "claim/default/c");
    assert_int_equal(fight_count(fight), 1);
    assert_int_equal(fight_delay(fight, "claim/default/c"), CLOCK_SECOND);
    clock_fake_advance(clock, 61 * CLOCK_SECOND);
    for (int i = 0; i < 19; i++)
        fight_note_conflict(fight, "claim/default/c");
    assert_int_equal(fight_count(fight), 1); /* a new minute */
    fight_note_conflict(fight, "claim/default/c");
    assert_int_equal(fight_count(fight), 2);
    fight_free(fight);
    clock_free(clock);
}

/* A flood of objects is forgotten, but not the ones that are backed off. */
static void test_many_objects(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct fight *fight = fight_new(clock);
    for (int i = 0; i < 12; i++)
        fight_note_write(fight, "volume/v", "phase Available");
    for (int i = 0; i < 25000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "volume/v%d", i);
        fight_note_write(fight, name, "phase Available");
    }
    assert_int_equal(fight_delay(fight, "volume/v"), CLOCK_SECOND);
    fight_free(fight);
    clock_free(clock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undone_again_and_again),
        cmocka_unit_test(test_slow_repeats_are_normal),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_many_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
