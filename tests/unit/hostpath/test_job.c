/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/job.h"
#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>

struct work {
    atomic_int *freed;
    int result;
    bool until_stop; /* run until the jobs are stopped */
    int made;
};

static struct work *work_new(atomic_int *freed, int result)
{
    struct work *work = mem_new(struct work);
    work->freed = freed;
    work->result = result;
    return work;
}

static int run_work(void *arg, struct stop *stop, struct err *err)
{
    struct work *work = arg;
    if (work->until_stop && stop_sleep(stop, clock_real(), 60 * CLOCK_SECOND))
        return err_set(err, ERR_CANCELLED, "stopped");
    work->made = 42;
    return work->result == 0 ? 0 : err_set(err, ERR_IO, "it did not work");
}

static void free_work(void *arg)
{
    struct work *work = arg;
    atomic_fetch_add(work->freed, 1);
    free(work);
}

static void test_result_and_lifetime(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    struct jobs *jobs = jobs_new();
    atomic_int freed = 0;
    {
        auto_job struct job *job = NULL;
        struct work *work = work_new(&freed, 0);
        assert_int_equal(jobs_run(jobs, NULL, "work", run_work, free_work, work, &job, &err), 0);
        assert_int_equal(work->made, 42); /* ours until the job is released */
        assert_int_equal(freed, 0);
    }
    auto_job struct job *job = NULL;
    assert_int_equal(jobs_run(jobs, NULL, "work", run_work, free_work, work_new(&freed, -1), &job, &err), -1);
    assert_string_equal(err.message, "it did not work");
    job_release(&job);
    jobs_free(jobs); /* waits for the threads, so all is freed */
    assert_int_equal(freed, 2);
}

static int fill_later(void *arg, struct stop *stop, struct err *err)
{
    (void)err;
    stop_sleep(stop, clock_real(), 60 * CLOCK_SECOND);
    atomic_store((atomic_int *)arg, 1);
    return 0;
}

static void test_stop_ends_what_nobody_waits_for(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    struct jobs *jobs = jobs_new();
    atomic_int done = 0, freed = 0;
    jobs_start(jobs, "background", fill_later, &done);
    assert_int_equal(jobs_running(jobs), 1);
    jobs_stop(jobs);
    assert_int_equal(done, 1);
    assert_int_equal(jobs_running(jobs), 0);
    auto_job struct job *job = NULL;
    assert_int_equal(jobs_run(jobs, NULL, "late", run_work, free_work, work_new(&freed, 0), &job, &err), -1);
    assert_int_equal(err.status, CSI_UNAVAILABLE);
    job_release(&job);
    assert_int_equal(freed, 1);
    jobs_free(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_result_and_lifetime),
        cmocka_unit_test(test_stop_ends_what_nobody_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
