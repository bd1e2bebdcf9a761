/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/queue.h"

#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

struct fixture {
    struct clock *clock;
    struct kube_queue *queue;
    struct kube_queue_options options;
    int added, retried;
    size_t depth;
    double waited, worked;
};

static void on_added(void *arg)
{
    ((struct fixture *)arg)->added++;
}
static void on_retried(void *arg)
{
    ((struct fixture *)arg)->retried++;
}
static void on_depth(void *arg, size_t depth)
{
    ((struct fixture *)arg)->depth = depth;
}
static void on_waited(void *arg, double seconds)
{
    ((struct fixture *)arg)->waited = seconds;
}
static void on_worked(void *arg, double seconds)
{
    ((struct fixture *)arg)->worked = seconds;
}

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    f->clock = clock_fake_new(0);
    f->options = (struct kube_queue_options){
        .name = "claims",
        .clock = f->clock,
        .observer = {f, on_added, on_retried, on_depth, on_waited, on_worked},
    };
    f->queue = kube_queue_new(&f->options);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    kube_queue_free(f->queue);
    clock_free(f->clock);
    free(f);
    return 0;
}

static size_t number_of(const char *text)
{
    uint64_t number = 0;
    return str_parse_u64(text, &number) ? (size_t)number : 0;
}

static void take(struct fixture *f, const char *expected)
{
    assert_true(kube_queue_len(f->queue) > 0);
    char *key = kube_queue_get(f->queue);
    assert_string_equal(key, expected);
    kube_queue_done(f->queue, key);
}

static void test_order_and_once(void **state)
{
    struct fixture *f = *state;
    const char *keys[] = {"b", "a", "c", "a", "b"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        kube_queue_add(f->queue, keys[i]);
    assert_int_equal(kube_queue_len(f->queue), 3);
    assert_int_equal(f->added, 3);
    assert_int_equal(f->depth, 3);
    take(f, "b");
    kube_queue_add(f->queue, "b"); /* to the end */
    take(f, "a");
    take(f, "c");
    take(f, "b");
    assert_int_equal(kube_queue_len(f->queue), 0);
    assert_int_equal(f->depth, 0);
}

static void test_added_while_running_runs_again(void **state)
{
    struct fixture *f = *state;
    kube_queue_add(f->queue, "a");
    char *key = kube_queue_get(f->queue);
    kube_queue_add(f->queue, "a");
    kube_queue_add(f->queue, "a");
    assert_int_equal(kube_queue_len(f->queue), 0); /* nobody else may have it now */
    assert_int_equal(f->added, 2);
    kube_queue_done(f->queue, key);
    assert_int_equal(kube_queue_len(f->queue), 1);
    take(f, "a");
    assert_int_equal(kube_queue_len(f->queue), 0);
}

static void test_delays_come_in_order(void **state)
{
    struct fixture *f = *state;
    kube_queue_add_after(f->queue, "c", 3 * CLOCK_SECOND);
    kube_queue_add_after(f->queue, "a", 1 * CLOCK_SECOND);
    kube_queue_add_after(f->queue, "b", 2 * CLOCK_SECOND);
    kube_queue_add_after(f->queue, "now", 0);
    kube_queue_add_after(f->queue, "never", INT64_MAX);
    assert_int_equal(kube_queue_len(f->queue), 1);
    take(f, "now");
    clock_fake_advance(f->clock, CLOCK_SECOND - 1);
    assert_int_equal(kube_queue_len(f->queue), 0);
    clock_fake_advance(f->clock, 1);
    assert_int_equal(kube_queue_len(f->queue), 1);
    clock_fake_advance(f->clock, 10 * CLOCK_SECOND);
    take(f, "a");
    take(f, "b");
    take(f, "c");
    assert_int_equal(kube_queue_len(f->queue), 0);
}

static void test_earlier_delay_counts(void **state)
{
    struct fixture *f = *state;
    kube_queue_add_after(f->queue, "x", 2 * CLOCK_SECOND);
    kube_queue_add_after(f->queue, "a", 5 * CLOCK_SECOND);
    kube_queue_add_after(f->queue, "a", 1 * CLOCK_SECOND);
    kube_queue_add_after(f->queue, "a", 9 * CLOCK_SECOND);
    clock_fake_advance(f->clock, CLOCK_SECOND);
    take(f, "a");
    clock_fake_advance(f->clock, 20 * CLOCK_SECOND);
    take(f, "x");
    assert_int_equal(kube_queue_len(f->queue), 0); /* not a second time */
}

static void test_plain_add_leaves_the_delayed_one(void **state)
{
    struct fixture *f = *state;
    kube_queue_add_after(f->queue, "a", CLOCK_SECOND);
    kube_queue_add(f->queue, "a");
    take(f, "a");
    assert_int_equal(kube_queue_len(f->queue), 0);
    clock_fake_advance(f->clock, CLOCK_SECOND);
    take(f, "a");
}

static void test_heap_of_many(void **state)
{
    struct fixture *f = *state;
    struct rng *rng = rng_seeded_new(7);
    char key[16];
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof(key), "%04d", (int)rng_below(rng, 2000));
        kube_queue_add_after(f->queue, key, (int64_t)(1 + rng_below(rng, 1000)) * CLOCK_MS);
    }
    /* every millisecond gives what is due then; nothing twice, nothing left */
    bool seen[2000] = {false};
    size_t total = 0;
    for (int ms = 0; ms <= 1000; ms++) {
        clock_fake_advance(f->clock, CLOCK_MS);
        while (kube_queue_len(f->queue) > 0) {
            char *got = kube_queue_get(f->queue);
            size_t number = number_of(got);
            assert_false(seen[number]);
            seen[number] = true;
            total++;
            kube_queue_done(f->queue, got);
        }
    }
    assert_true(total > 1400 && total < 2000);
    rng_free(rng);
}

static int64_t measure_delay(struct fixture *f, const char *key)
{
    int64_t start = clock_mono(f->clock);
    kube_queue_add_limited(f->queue, key);
    int64_t low = 0;
    while (kube_queue_len(f->queue) == 0) { /* to the millisecond; large steps first would jump over the deadline */
        int64_t step = low < 2 * CLOCK_SECOND ? CLOCK_MS : CLOCK_SECOND;
        clock_fake_advance(f->clock, step);
        low += step;
        assert_true(low < 2000 * CLOCK_SECOND);
    }
    take(f, key);
    return clock_mono(f->clock) - start;
}

static void test_exponential_delay(void **state)
{
    struct fixture *f = *state;
    int64_t expected = 5 * CLOCK_MS;
    for (int i = 0; i < 9; i++, expected *= 2)
        assert_int_equal(measure_delay(f, "a"), expected);
    assert_int_equal(kube_queue_failures(f->queue, "a"), 9);
    assert_int_equal(kube_queue_failures(f->queue, "b"), 0);
    assert_int_equal(measure_delay(f, "b"), 5 * CLOCK_MS); /* each key has its own */
    for (int i = 0; i < 10; i++)
        measure_delay(f, "a");
    for (int i = 0; i < 60; i++) /* far beyond what a shift could hold */
        assert_int_equal(measure_delay(f, "a"), 1000 * CLOCK_SECOND);
    kube_queue_forget(f->queue, "a");
    assert_int_equal(kube_queue_failures(f->queue, "a"), 0);
    assert_int_equal(measure_delay(f, "a"), 5 * CLOCK_MS);
    kube_queue_forget(f->queue, "unknown");
    assert_int_equal(f->retried, 9 + 1 + 10 + 60 + 1);
}

static void test_bucket(void **state)
{
    struct fixture *f = *state;
    kube_queue_free(f->queue);
    f->options.bucket_qps = 10;
    f->options.bucket_burst = 5;
    f->queue = kube_queue_new(&f->options);
    char key[16];
    for (int i = 0; i < 8; i++) { /* 5 from the burst, then one each 100 ms */
        snprintf(key, sizeof(key), "k%d", i);
        kube_queue_add_limited(f->queue, key);
    }
    clock_fake_advance(f->clock, 5 * CLOCK_MS); /* the item's own delay is the larger one here */
    assert_int_equal(kube_queue_len(f->queue), 5);
    clock_fake_advance(f->clock, 94 * CLOCK_MS);
    assert_int_equal(kube_queue_len(f->queue), 5);
    clock_fake_advance(f->clock, 1 * CLOCK_MS);
    assert_int_equal(kube_queue_len(f->queue), 6);
    clock_fake_advance(f->clock, 100 * CLOCK_MS);
    assert_int_equal(kube_queue_len(f->queue), 7);
    clock_fake_advance(f->clock, 100 * CLOCK_MS);
    assert_int_equal(kube_queue_len(f->queue), 8);
    clock_fake_advance(f->clock, 3600 * CLOCK_SECOND); /* fills up to the burst, not beyond */
    for (int i = 0; i < 6; i++) {
        snprintf(key, sizeof(key), "n%d", i);
        kube_queue_add_limited(f->queue, key);
    }
    clock_fake_advance(f->clock, 5 * CLOCK_MS);
    assert_int_equal(kube_queue_len(f->queue), 13);
}

static void test_times_are_observed(void **state)
{
    struct fixture *f = *state;
    double sum, longest;
    kube_queue_add(f->queue, "a");
    clock_fake_advance(f->clock, 2 * CLOCK_SECOND);
    kube_queue_add(f->queue, "a"); /* the first time counts */
    kube_queue_add(f->queue, "b");
    char *a = kube_queue_get(f->queue);
    assert_true(f->waited == 2.0);
    clock_fake_advance(f->clock, 3 * CLOCK_SECOND);
    char *b = kube_queue_get(f->queue);
    clock_fake_advance(f->clock, 1 * CLOCK_SECOND);
    kube_queue_running(f->queue, &sum, &longest);
    assert_true(sum == 5.0 && longest == 4.0);
    kube_queue_done(f->queue, a);
    assert_true(f->worked == 4.0);
    kube_queue_done(f->queue, b);
    assert_true(f->worked == 1.0);
    kube_queue_running(f->queue, &sum, &longest);
    assert_true(sum == 0.0 && longest == 0.0);
}

/* ---- threads ---- */

struct crew {
    struct kube_queue *queue;
    struct kube_workers *workers;
    atomic_int busy[64]; /* per key: workers on it right now */
    atomic_int runs[64];
    atomic_int overlaps;
    atomic_int total;
    int fail_first; /* so many runs of each key fail */
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static int crew_work(void *arg, const char *key)
{
    struct crew *crew = arg;
    size_t number = number_of(key + 1);
    if (atomic_fetch_add(&crew->busy[number], 1) != 0)
        atomic_fetch_add(&crew->overlaps, 1);
    int run = atomic_fetch_add(&crew->runs[number], 1);
    for (volatile int i = 0; i < 200; i++)
        ;
    atomic_fetch_sub(&crew->busy[number], 1);
    pthread_mutex_lock(&crew->lock);
    atomic_fetch_add(&crew->total, 1);
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    return run < crew->fail_first ? -1 : 0;
}

static void crew_start(struct crew *crew, struct kube_queue *queue, size_t count)
{
    crew->queue = queue;
    pthread_mutex_init(&crew->lock, NULL);
    clock_cond_init(&crew->changed);
    crew->workers = kube_workers_start(queue, count, "worker", crew_work, crew);
}

static void crew_wait(struct crew *crew, int total)
{
    int64_t deadline = clock_mono(clock_real()) + 20 * CLOCK_SECOND;
    pthread_mutex_lock(&crew->lock);
    while (atomic_load(&crew->total) < total)
        assert_true(clock_cond_wait(clock_real(), &crew->changed, &crew->lock, deadline));
    pthread_mutex_unlock(&crew->lock);
}

static void crew_end(struct crew *crew)
{
    kube_queue_shut_down(crew->queue);
    kube_workers_join(crew->workers);
    pthread_mutex_destroy(&crew->lock);
    pthread_cond_destroy(&crew->changed);
}

struct adder {
    struct kube_queue *queue;
    uint64_t seed;
};

static void *adder_run(void *arg)
{
    struct adder *adder = arg;
    struct rng *rng = rng_seeded_new(adder->seed);
    char key[16];
    for (int i = 0; i < 4000; i++) {
        snprintf(key, sizeof(key), "k%d", (int)rng_below(rng, 64));
        if (rng_below(rng, 4) == 0)
            kube_queue_add_after(adder->queue, key, (int64_t)rng_below(rng, 3) * CLOCK_MS);
        else
            kube_queue_add(adder->queue, key);
        if (i % 512 == 0)
            kube_queue_len(adder->queue);
    }
    rng_free(rng);
    return NULL;
}

static void test_eight_workers(void **state)
{
    (void)state;
    struct kube_queue *queue = kube_queue_new(&(struct kube_queue_options){.base_delay = CLOCK_MS / 10});
    struct crew crew = {.fail_first = 3};
    crew_start(&crew, queue, 8);
    struct adder adders[4];
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        adders[i] = (struct adder){queue, i + 1};
        threads[i] = thread_start("adder", adder_run, &adders[i]);
    }
    for (size_t i = 0; i < 4; i++)
        thread_join(threads[i]);
    /* every key was run at least once after its last add: add each once more and see all of them run */
    int before[64];
    for (int i = 0; i < 64; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        before[i] = atomic_load(&crew.runs[i]);
        kube_queue_add(queue, key);
    }
    int64_t deadline = clock_mono(clock_real()) + 20 * CLOCK_SECOND;
    pthread_mutex_lock(&crew.lock);
    for (int i = 0; i < 64; i++)
        while (atomic_load(&crew.runs[i]) < before[i] + 1 || atomic_load(&crew.runs[i]) < crew.fail_first + 1)
            assert_true(clock_cond_wait(clock_real(), &crew.changed, &crew.lock, deadline));
    pthread_mutex_unlock(&crew.lock);
    crew_end(&crew);
    assert_int_equal(atomic_load(&crew.overlaps), 0);
    kube_queue_free(queue);
}

static void test_idle_workers_wake_for_delayed_keys(void **state)
{
    struct fixture *f = *state;
    struct crew crew = {0};
    crew_start(&crew, f->queue, 3);
    kube_queue_add_after(f->queue, "k1", 10 * CLOCK_SECOND);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    kube_queue_add_after(f->queue, "k2", 5 * CLOCK_SECOND); /* earlier than what the timer waits for */
    kube_queue_add_after(f->queue, "k3", 15 * CLOCK_SECOND);
    clock_fake_advance(f->clock, 5 * CLOCK_SECOND);
    crew_wait(&crew, 1);
    assert_int_equal(atomic_load(&crew.runs[2]), 1);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    clock_fake_advance(f->clock, 5 * CLOCK_SECOND);
    crew_wait(&crew, 2);
    assert_int_equal(atomic_load(&crew.runs[1]), 1);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    kube_queue_add(f->queue, "k4"); /* and plain ones come through beside the timer */
    crew_wait(&crew, 3);
    clock_fake_advance(f->clock, 5 * CLOCK_SECOND);
    crew_wait(&crew, 4);
    assert_int_equal(atomic_load(&crew.runs[3]), 1);
    crew_end(&crew);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    int started, ended;
};

static int work_behind_gate(void *arg, const char *key)
{
    struct gate *gate = arg;
    pthread_mutex_lock(&gate->lock);
    gate->started++;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open && str_eq(key, "slow"))
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->ended++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
    return 0;
}

static void wait_gate(struct gate *gate, const int *counter, int value)
{
    int64_t deadline = clock_mono(clock_real()) + 20 * CLOCK_SECOND;
    pthread_mutex_lock(&gate->lock);
    while (*counter < value)
        assert_true(clock_cond_wait(clock_real(), &gate->changed, &gate->lock, deadline));
    pthread_mutex_unlock(&gate->lock);
}

/* The worker that waited for the time takes a long job: another idle one has to wait for the time from then on. */
static void test_the_timer_is_handed_on(void **state)
{
    struct fixture *f = *state;
    struct gate gate = {0};
    pthread_mutex_init(&gate.lock, NULL);
    clock_cond_init(&gate.changed);
    kube_queue_add_after(f->queue, "slow", 1 * CLOCK_SECOND);
    kube_queue_add_after(f->queue, "quick", 2 * CLOCK_SECOND);
    struct kube_workers *workers = kube_workers_start(f->queue, 2, "worker", work_behind_gate, &gate);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    clock_fake_advance(f->clock, CLOCK_SECOND);
    wait_gate(&gate, &gate.started, 1);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    clock_fake_advance(f->clock, CLOCK_SECOND);
    wait_gate(&gate, &gate.ended, 1); /* "quick": the other one still hangs */
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    wait_gate(&gate, &gate.ended, 2);
    kube_queue_shut_down(f->queue);
    kube_workers_join(workers);
    pthread_mutex_destroy(&gate.lock);
    pthread_cond_destroy(&gate.changed);
}

static void test_one_worker_is_both(void **state)
{
    struct fixture *f = *state;
    struct crew crew = {.fail_first = 2};
    crew_start(&crew, f->queue, 1);
    kube_queue_add(f->queue, "k1");
    crew_wait(&crew, 1);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    assert_int_equal(kube_queue_failures(f->queue, "k1"), 1);
    clock_fake_advance(f->clock, 5 * CLOCK_MS);
    crew_wait(&crew, 2);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    assert_int_equal(kube_queue_failures(f->queue, "k1"), 2);
    kube_queue_add(f->queue, "k2"); /* wakes the timer: there is no other */
    crew_wait(&crew, 3);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    clock_fake_advance(f->clock, 10 * CLOCK_MS);
    crew_wait(&crew, 5); /* k1 for the third time, k2 for the second */
    crew_end(&crew);
    assert_int_equal(kube_queue_failures(f->queue, "k1"), 0);
    assert_int_equal(atomic_load(&crew.runs[2]), 2);
}

static void test_shut_down(void **state)
{
    struct fixture *f = *state;
    struct crew crew = {0};
    crew_start(&crew, f->queue, 4);
    kube_queue_add_after(f->queue, "k1", CLOCK_SECOND);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    crew_end(&crew); /* all four return, the timer too */
    kube_queue_add(f->queue, "k2");
    assert_int_equal(kube_queue_len(f->queue), 0);
    assert_null(kube_queue_get(f->queue));
    assert_int_equal(atomic_load(&crew.total), 0);
}

static void test_memory_is_given_back(void **state)
{
    struct fixture *f = *state;
    char key[80];
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof(key), "some-namespace/some-claim-name-%05d", i);
        kube_queue_add(f->queue, key);
    }
    size_t full = mallinfo2().uordblks;
    if (full > before) /* sanitizers' allocators tell nothing here */
        assert_true(full - before < 20000 * 256);
    for (int i = 0; i < 20000; i++) {
        char *got = kube_queue_get(f->queue);
        kube_queue_forget(f->queue, got);
        kube_queue_done(f->queue, got);
    }
    size_t after = mallinfo2().uordblks;
    if (full > before)
        assert_true(after < before + (full - before) / 2); /* the items are gone, the table may stay */
    assert_int_equal(kube_queue_len(f->queue), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_and_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_added_while_running_runs_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_delays_come_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_earlier_delay_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain_add_leaves_the_delayed_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_heap_of_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exponential_delay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bucket, setup, teardown),
        cmocka_unit_test_setup_teardown(test_times_are_observed, setup, teardown),
        cmocka_unit_test(test_eight_workers),
        cmocka_unit_test_setup_teardown(test_idle_workers_wake_for_delayed_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_timer_is_handed_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_worker_is_both, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shut_down, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_given_back, setup, teardown),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
