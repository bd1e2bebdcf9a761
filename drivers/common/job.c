/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/job.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <pthread.h>

struct jobs {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct stop *stop;
    int running;
    bool stopping;
};

struct job {
    struct jobs *jobs;
    int references; /* under the mutex of jobs, as the three below */
    bool done, abandoned, quiet;
    int result;
    char *what;
    int (*run)(void *arg, struct stop *stop, struct err *err);
    void (*free_arg)(void *arg);
    void *arg;
    struct err err;
};

struct jobs *jobs_new(void)
{
    struct jobs *jobs = mem_new(struct jobs);
    pthread_mutex_init(&jobs->mutex, NULL);
    clock_cond_init(&jobs->changed);
    jobs->stop = stop_new();
    return jobs;
}

void jobs_stop(struct jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    jobs->stopping = true;
    pthread_mutex_unlock(&jobs->mutex);
    stop_request(jobs->stop);
    pthread_mutex_lock(&jobs->mutex);
    while (jobs->running > 0)
        clock_cond_wait(clock_real(), &jobs->changed, &jobs->mutex, CLOCK_NEVER);
    pthread_mutex_unlock(&jobs->mutex);
}

void jobs_free(struct jobs *jobs)
{
    if (jobs == NULL)
        return;
    jobs_stop(jobs);
    stop_free(jobs->stop);
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs);
}

int jobs_running(struct jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    int running = jobs->running;
    pthread_mutex_unlock(&jobs->mutex);
    return running;
}

static void free_job(struct job *job)
{
    if (job->free_arg != NULL)
        job->free_arg(job->arg);
    err_clear(&job->err);
    free(job->what);
    free(job);
}

static void *job_thread(void *arg)
{
    struct job *job = arg;
    struct jobs *jobs = job->jobs;
    int result = job->run(job->arg, jobs->stop, &job->err);
    pthread_mutex_lock(&jobs->mutex);
    job->result = result;
    job->done = true;
    bool abandoned = job->abandoned, quiet = job->quiet;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    if (abandoned && result < 0)
        log_error("Work that nobody waits for failed", kv_str("what", job->what), kv_err(&job->err));
    else if (abandoned && !quiet)
        log_info("Work that outlived its call is done", kv_str("what", job->what));
    job_release(&job);
    /* the last word to jobs: after it they may be freed */
    pthread_mutex_lock(&jobs->mutex);
    jobs->running--;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    return NULL;
}

void job_release(struct job **address)
{
    struct job *job = *address;
    if (job == NULL)
        return;
    *address = NULL;
    pthread_mutex_lock(&job->jobs->mutex);
    bool last = --job->references == 0;
    pthread_mutex_unlock(&job->jobs->mutex);
    if (last)
        free_job(job);
}

static void wake(void *arg)
{
    struct jobs *jobs = arg;
    pthread_mutex_lock(&jobs->mutex);
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
}

static int wait_for(struct jobs *jobs, struct csi_call *call, struct job *job, struct err *err)
{
    struct stop *cancel = call != NULL ? csi_call_stop(call) : NULL;
    if (cancel != NULL)
        stop_on(cancel, wake, jobs);
    pthread_mutex_lock(&jobs->mutex);
    while (!job->done && (cancel == NULL || !stop_requested(cancel)))
        clock_cond_wait(clock_real(), &jobs->changed, &jobs->mutex, CLOCK_NEVER);
    bool done = job->done;
    job->abandoned = !done;
    pthread_mutex_unlock(&jobs->mutex);
    if (cancel != NULL)
        stop_off(cancel, wake, jobs);
    if (!done) {
        log_info("The caller gave up, the work goes on", kv_str("what", job->what));
        return csi_fail(err, CSI_ABORTED, "%s is not finished yet and goes on", job->what);
    }
    if (job->result < 0)
        err_copy(err, &job->err);
    return job->result;
}

static struct job *start(struct jobs *jobs, struct job init)
{
    struct job *job = mem_dup(&init, sizeof(init));
    job->jobs = jobs;
    job->references = 1;
    pthread_mutex_lock(&jobs->mutex);
    job->done = jobs->stopping; /* it will not run */
    if (!jobs->stopping) {
        jobs->running++;
        job->references++;
    }
    pthread_mutex_unlock(&jobs->mutex);
    if (!job->done)
        pthread_detach(thread_start("job", job_thread, job));
    return job;
}

int jobs_run(struct jobs *jobs, struct csi_call *call, const char *what,
             int (*run)(void *arg, struct stop *stop, struct err *err), void (*free_arg)(void *arg), void *arg,
             struct job **job, struct err *err)
{
    const struct job init = {.what = mem_strdup(what), .run = run, .free_arg = free_arg, .arg = arg, .result = -1};
    *job = start(jobs, init);
    int result = wait_for(jobs, call, *job, err);
    if (result < 0 && err->code == ERR_NONE)
        return csi_fail(err, CSI_UNAVAILABLE, "the driver is stopping");
    return result;
}

void jobs_start(struct jobs *jobs, const char *what, int (*run)(void *arg, struct stop *stop, struct err *err),
                void *arg)
{
    const struct job init = {
        .what = mem_strdup(what), .run = run, .arg = arg, .result = -1, .abandoned = true, .quiet = true};
    struct job *job = start(jobs, init);
    job_release(&job);
}
