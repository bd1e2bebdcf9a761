/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "controller/operation.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <stdatomic.h>

static void test_one_at_a_time(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct operations *operations = operations_new(clock, 4);
    assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
    assert_int_equal(operations_begin(operations, "a"), OPERATION_RUNNING);
    assert_int_equal(operations_begin(operations, "b"), OPERATION_STARTED);
    operations_end(operations, "a", OPERATION_DONE);
    operations_end(operations, "b", OPERATION_DONE);
    assert_int_equal(operations_len(operations), 0);
    operations_free(operations);
    clock_free(clock);
}

static void test_back_off(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct operations *operations = operations_new(clock, 4);
    int64_t delay = 500 * CLOCK_MS;
    for (int i = 0; i < 12; i++) {
        assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
        operations_end(operations, "a", OPERATION_FAILED);
        assert_int_equal(operations_begin(operations, "a"), OPERATION_POSTPONED);
        clock_fake_advance(clock, delay - 1);
        assert_int_equal(operations_begin(operations, "a"), OPERATION_POSTPONED);
        clock_fake_advance(clock, 1);
        delay = delay * 2 < 122 * CLOCK_SECOND ? delay * 2 : 122 * CLOCK_SECOND;
    }
    assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
    operations_end(operations, "a", OPERATION_DONE); /* a success forgets the delay */
    assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
    operations_end(operations, "a", OPERATION_FAILED);
    clock_fake_advance(clock, 500 * CLOCK_MS);
    assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
    operations_forget(operations, "a"); /* runs: stays */
    assert_true(operations_running(operations, "a"));
    assert_int_equal(operations_begin(operations, "a"), OPERATION_RUNNING);
    operations_end(operations, "a", OPERATION_FAILED);
    assert_false(operations_running(operations, "a")); /* it waits */
    operations_forget(operations, "a");
    assert_int_equal(operations_len(operations), 0);
    assert_false(operations_running(operations, "a"));
    operations_free(operations);
    clock_free(clock);
}

/* A pause always has the same length, and leaves the back-off as it was. */
static void test_pause(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct operations *operations = operations_new(clock, 4);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
        operations_end(operations, "a", OPERATION_PAUSE);
        clock_fake_advance(clock, OPERATION_PAUSE_TIME - 1);
        assert_int_equal(operations_begin(operations, "a"), OPERATION_POSTPONED);
        clock_fake_advance(clock, 1);
    }
    assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
    operations_end(operations, "a", OPERATION_FAILED);
    clock_fake_advance(clock, 500 * CLOCK_MS);
    assert_int_equal(operations_begin(operations, "a"), OPERATION_STARTED);
    operations_end(operations, "a", OPERATION_DONE);
    assert_int_equal(operations_len(operations), 0);
    operations_free(operations);
    clock_free(clock);
}

struct job {
    struct stop *go;
    atomic_int *ended;
};

static enum operation_end run_job(void *arg)
{
    struct job *job = arg;
    stop_sleep(job->go, clock_real(), 10 * CLOCK_SECOND);
    atomic_fetch_add(job->ended, 1);
    free(job);
    return OPERATION_FAILED;
}

static void test_threads(void **state)
{
    (void)state;
    struct operations *operations = operations_new(NULL, 2);
    struct stop *go = stop_new();
    atomic_int ended = 0;
    enum operation_start starts[4];
    static const char *const names[] = {"a", "a", "b", "c"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct job *job = mem_new(struct job);
        *job = (struct job){go, &ended};
        starts[i] = operations_run(operations, names[i], run_job, job);
        if (starts[i] != OPERATION_STARTED)
            free(job);
    }
    assert_int_equal(starts[0], OPERATION_STARTED);
    assert_int_equal(starts[1], OPERATION_RUNNING);
    assert_int_equal(starts[2], OPERATION_STARTED);
    assert_int_equal(starts[3], OPERATION_FULL);
    stop_request(go);
    operations_free(operations); /* waits */
    assert_int_equal(atomic_load(&ended), 2);
    stop_free(go);
}

static void test_name(void **state)
{
    (void)state;
    auto_free char *name = operation_name("delete", "pv", "uid");
    assert_string_equal(name, "delete-pv[uid]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_at_a_time), cmocka_unit_test(test_back_off), cmocka_unit_test(test_pause),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
