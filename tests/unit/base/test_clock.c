/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/clock.h"

#include "lib/base/stop.h"

#include <stdatomic.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_real_clock_moves(void **state)
{
    (void)state;
    struct clock *clock = clock_real();
    int64_t before = clock_mono(clock);
    assert_true(before > 0);
    assert_true(clock_mono(clock) >= before);
    assert_true(clock_wall(clock) > 1700000000 * CLOCK_SECOND);
    clock_free(clock);
    clock_free(NULL);
}

static void test_real_wait_times_out(void **state)
{
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    clock_cond_init(&cond);
    struct clock *clock = clock_real();
    pthread_mutex_lock(&mutex);
    int64_t deadline = clock_mono(clock) + 20 * CLOCK_MS;
    while (clock_cond_wait(clock, &cond, &mutex, deadline)) {
    }
    assert_true(clock_mono(clock) >= deadline);
    assert_false(clock_cond_wait(clock, &cond, &mutex, 0));
    assert_false(clock_cond_wait(clock, &cond, &mutex, -5));
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&cond);
}

static void test_fake_clock_stands_still(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(5 * CLOCK_SECOND);
    assert_int_equal(clock_mono(clock), CLOCK_SECOND);
    assert_int_equal(clock_wall(clock), 5 * CLOCK_SECOND);
    clock_fake_advance(clock, 250 * CLOCK_MS);
    assert_int_equal(clock_mono(clock), CLOCK_SECOND + 250 * CLOCK_MS);
    assert_int_equal(clock_wall(clock), 5 * CLOCK_SECOND + 250 * CLOCK_MS);
    clock_free(clock);
}

struct sleeper {
    struct clock *clock;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int64_t deadline;
    bool signalled;
    bool timed_out;
    _Atomic int done;
};

static void *sleep_until(void *arg)
{
    struct sleeper *sleeper = arg;
    pthread_mutex_lock(&sleeper->mutex);
    while (!sleeper->signalled && !sleeper->timed_out)
        sleeper->timed_out = !clock_cond_wait(sleeper->clock, &sleeper->cond, &sleeper->mutex, sleeper->deadline);
    pthread_mutex_unlock(&sleeper->mutex);
    atomic_store(&sleeper->done, 1);
    return NULL;
}

static void sleeper_init(struct sleeper *sleeper, struct clock *clock, int64_t deadline)
{
    *sleeper = (struct sleeper){.clock = clock, .deadline = deadline};
    pthread_mutex_init(&sleeper->mutex, NULL);
    clock_cond_init(&sleeper->cond);
}

static void test_advance_ends_due_waits_only(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct sleeper early;
    struct sleeper late;
    sleeper_init(&early, clock, 3 * CLOCK_SECOND);
    sleeper_init(&late, clock, 10 * CLOCK_SECOND);
    pthread_t threads[] = {thread_start("early", sleep_until, &early), thread_start("late", sleep_until, &late)};
    assert_true(clock_fake_wait_for_waiters(clock, 2));
    clock_fake_advance(clock, CLOCK_SECOND); /* to 2 s: nobody is due */
    assert_true(clock_fake_wait_for_waiters(clock, 2));
    clock_fake_advance(clock, CLOCK_SECOND);
    thread_join(threads[0]);
    assert_true(early.timed_out);
    assert_int_equal(atomic_load(&late.done), 0);
    pthread_mutex_lock(&late.mutex);
    late.signalled = true;
    pthread_cond_signal(&late.cond);
    pthread_mutex_unlock(&late.mutex);
    thread_join(threads[1]);
    assert_false(late.timed_out);
    clock_free(clock);
}

static void test_past_deadline_returns_at_once(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct sleeper sleeper;
    sleeper_init(&sleeper, clock, CLOCK_SECOND);
    sleep_until(&sleeper);
    assert_true(sleeper.timed_out);
    clock_free(clock);
}

/* A woken waiter counts no more, even before its thread ran: else a test could advance twice over one wait. */
static void *tick(void *arg)
{
    struct sleeper *sleeper = arg;
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&sleeper->mutex);
        int64_t deadline = clock_mono(sleeper->clock) + CLOCK_SECOND;
        while (clock_cond_wait(sleeper->clock, &sleeper->cond, &sleeper->mutex, deadline)) {
        }
        pthread_mutex_unlock(&sleeper->mutex);
        atomic_fetch_add(&sleeper->done, 1);
    }
    return NULL;
}

static void test_lockstep(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct sleeper sleeper;
    sleeper_init(&sleeper, clock, 0);
    pthread_t thread = thread_start("tick", tick, &sleeper);
    for (int i = 0; i < 200; i++) {
        assert_true(clock_fake_wait_for_waiters(clock, 1));
        assert_int_equal(atomic_load(&sleeper.done), i);
        clock_fake_advance(clock, CLOCK_SECOND);
    }
    thread_join(thread);
    assert_int_equal(atomic_load(&sleeper.done), 200);
    assert_int_equal(clock_mono(clock), 201 * CLOCK_SECOND);
    clock_free(clock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_clock_moves),
        cmocka_unit_test(test_real_wait_times_out),
        cmocka_unit_test(test_fake_clock_stands_still),
        cmocka_unit_test(test_advance_ends_due_waits_only),
        cmocka_unit_test(test_past_deadline_returns_at_once),
        cmocka_unit_test(test_lockstep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
