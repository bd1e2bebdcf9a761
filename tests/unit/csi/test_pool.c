/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include "lib/csi/pool.h"

#include <stdatomic.h>

struct job {
    struct csi_job job;
    struct gate *entered, *open, *left;
    atomic_int *running, *most;
};

static void run(struct csi_job *base)
{
    struct job *job = (struct job *)base;
    const int now = atomic_fetch_add(job->running, 1) + 1;
    int most = atomic_load(job->most);
    while (now > most && !atomic_compare_exchange_weak(job->most, &most, now))
        ;
    gate_add(job->entered, 1);
    gate_wait(job->open, 1);
    atomic_fetch_sub(job->running, 1);
    gate_add(job->left, 1);
}

static void test_limits(void **state)
{
    struct gate entered, open, light_open, left;
    atomic_int heavy = 0, most_heavy = 0, light = 0, most_light = 0;
    struct job jobs[20];
    (void)state;
    gate_init(&entered), gate_init(&open), gate_init(&light_open), gate_init(&left);
    gate_add(&light_open, 1);
    struct csi_pool *pool = csi_pool_new(4, run);
    for (int i = 0; i < 20; i++) {
        const bool is_light = i >= 15;
        jobs[i] = (struct job){.job = {.light = is_light},
                               .entered = &entered,
                               .open = is_light ? &light_open : &open,
                               .left = &left,
                               .running = is_light ? &light : &heavy,
                               .most = is_light ? &most_light : &most_heavy};
        assert_true(csi_pool_submit(pool, &jobs[i].job));
    }
    /* the light ones get through while the heavy ones hang */
    gate_wait(&left, 5);
    gate_wait(&entered, 9);
    assert_int_equal(atomic_load(&heavy), 4);
    assert_true(csi_pool_threads(pool) <= 8);
    gate_add(&open, 1);
    gate_wait(&left, 20);
    assert_int_equal(atomic_load(&most_heavy), 4);
    csi_pool_free(pool);
    gate_destroy(&entered), gate_destroy(&open), gate_destroy(&light_open), gate_destroy(&left);
}

static void count(struct csi_job *base)
{
    struct job *job = (struct job *)base;
    gate_add(job->left, 1);
}

static void test_few_threads_are_enough_for_one_job_at_a_time(void **state)
{
    struct gate left;
    (void)state;
    gate_init(&left);
    struct csi_pool *pool = csi_pool_new(32, count);
    assert_int_equal(csi_pool_threads(pool), 0);
    for (int i = 0; i < 100; i++) {
        struct job job = {.left = &left};
        assert_true(csi_pool_submit(pool, &job.job));
        gate_wait(&left, i + 1);
    }
    assert_true(csi_pool_threads(pool) <= 8); /* more than one when the last one was still on its way back */
    csi_pool_free(pool);
    gate_destroy(&left);
}

static void test_free_finishes_what_was_submitted(void **state)
{
    struct gate left;
    struct job jobs[1000];
    (void)state;
    gate_init(&left);
    struct csi_pool *pool = csi_pool_new(3, count);
    for (int i = 0; i < 1000; i++) {
        jobs[i] = (struct job){.left = &left};
        assert_true(csi_pool_submit(pool, &jobs[i].job));
    }
    csi_pool_free(pool);
    assert_int_equal(gate_count(&left), 1000);
    csi_pool_free(NULL);
    gate_destroy(&left);
}

static void test_refuses_more_than_it_can_keep(void **state)
{
    struct gate entered, open, left;
    atomic_int running = 0, most = 0;
    static struct job jobs[1100];
    (void)state;
    gate_init(&entered), gate_init(&open), gate_init(&left);
    struct csi_pool *pool = csi_pool_new(1, run);
    int accepted = 0;
    for (int i = 0; i < 1100; i++) {
        jobs[i] = (struct job){.entered = &entered, .open = &open, .left = &left, .running = &running, .most = &most};
        accepted += csi_pool_submit(pool, &jobs[i].job);
        gate_wait(&entered, 1); /* the first one is being worked on */
    }
    assert_int_equal(accepted, 1 + 1024);
    gate_add(&open, 1);
    csi_pool_free(pool);
    assert_int_equal(gate_count(&left), accepted);
    gate_destroy(&entered), gate_destroy(&open), gate_destroy(&left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_few_threads_are_enough_for_one_job_at_a_time),
        cmocka_unit_test(test_free_finishes_what_was_submitted),
        cmocka_unit_test(test_refuses_more_than_it_can_keep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
