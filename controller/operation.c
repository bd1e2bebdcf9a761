/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/operation.h"

#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/base/stop.h"

#include <pthread.h>

#define FIRST_DELAY (500 * CLOCK_MS)
#define MAX_DELAY (122 * CLOCK_SECOND)

struct operation {
    bool running;
    int64_t delay; /* 0: the last run, if any, went well */
    int64_t not_before;
};
struct operations {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    struct clock *clock;
    struct map *by_name;
    size_t threads, max_threads;
};
struct operation_job {
    struct operations *operations;
    char *name;
    operation_fn fn;
    void *arg;
};

static void free_operation(void *value)
{
    slab_free(value, sizeof(struct operation));
}

struct operations *operations_new(struct clock *clock, size_t threads)
{
    struct operations *operations = mem_new(struct operations);
    pthread_mutex_init(&operations->lock, NULL);
    clock_cond_init(&operations->idle);
    operations->clock = clock == NULL ? clock_real() : clock;
    operations->by_name = map_new(free_operation);
    operations->max_threads = threads;
    return operations;
}

void operations_free(struct operations *operations)
{
    if (operations == NULL)
        return;
    pthread_mutex_lock(&operations->lock);
    while (operations->threads > 0)
        clock_cond_wait(operations->clock, &operations->idle, &operations->lock, CLOCK_NEVER);
    pthread_mutex_unlock(&operations->lock);
    map_free(operations->by_name);
    pthread_cond_destroy(&operations->idle);
    pthread_mutex_destroy(&operations->lock);
    free(operations);
}

static enum operation_start begin_locked(struct operations *operations, const char *name)
{
    struct operation *operation = map_get(operations->by_name, name);
    if (operation == NULL) {
        operation = slab_new(struct operation);
        map_set(operations->by_name, name, operation);
    } else if (operation->running) {
        return OPERATION_RUNNING;
    } else if (clock_mono(operations->clock) < operation->not_before) {
        return OPERATION_POSTPONED;
    }
    operation->running = true;
    return OPERATION_STARTED;
}

static void end_locked(struct operations *operations, const char *name, enum operation_end end)
{
    struct operation *operation = map_get(operations->by_name, name);
    if (operation == NULL)
        return;
    if (end == OPERATION_DONE) {
        map_remove(operations->by_name, name);
        return;
    }
    operation->running = false;
    if (end == OPERATION_FAILED) {
        operation->delay = operation->delay == 0 ? FIRST_DELAY : 2 * operation->delay;
        if (operation->delay > MAX_DELAY)
            operation->delay = MAX_DELAY;
    }
    operation->not_before =
        clock_mono(operations->clock) + (end == OPERATION_FAILED ? operation->delay : OPERATION_PAUSE_TIME);
}

enum operation_start operations_begin(struct operations *operations, const char *name)
{
    pthread_mutex_lock(&operations->lock);
    enum operation_start start = begin_locked(operations, name);
    pthread_mutex_unlock(&operations->lock);
    return start;
}

void operations_end(struct operations *operations, const char *name, enum operation_end end)
{
    pthread_mutex_lock(&operations->lock);
    end_locked(operations, name, end);
    pthread_mutex_unlock(&operations->lock);
}

static void *job_thread(void *arg)
{
    struct operation_job *job = arg;
    struct operations *operations = job->operations;
    enum operation_end end = job->fn(job->arg);
    pthread_mutex_lock(&operations->lock);
    end_locked(operations, job->name, end);
    operations->threads--;
    pthread_cond_broadcast(&operations->idle);
    pthread_mutex_unlock(&operations->lock);
    free(job->name);
    free(job);
    return NULL;
}

enum operation_start operations_run(struct operations *operations, const char *name, operation_fn fn, void *arg)
{
    pthread_mutex_lock(&operations->lock);
    enum operation_start start =
        operations->threads >= operations->max_threads ? OPERATION_FULL : begin_locked(operations, name);
    if (start == OPERATION_STARTED)
        operations->threads++;
    pthread_mutex_unlock(&operations->lock);
    if (start != OPERATION_STARTED)
        return start;
    struct operation_job *job = mem_new(struct operation_job);
    *job = (struct operation_job){.operations = operations, .name = mem_strdup(name), .fn = fn, .arg = arg};
    pthread_detach(thread_start("operation", job_thread, job));
    return OPERATION_STARTED;
}

bool operations_running(struct operations *operations, const char *name)
{
    pthread_mutex_lock(&operations->lock);
    const struct operation *operation = map_get(operations->by_name, name);
    bool running = operation != NULL && operation->running;
    pthread_mutex_unlock(&operations->lock);
    return running;
}

void operations_forget(struct operations *operations, const char *name)
{
    pthread_mutex_lock(&operations->lock);
    const struct operation *operation = map_get(operations->by_name, name);
    if (operation != NULL && !operation->running)
        map_remove(operations->by_name, name);
    pthread_mutex_unlock(&operations->lock);
}

size_t operations_len(struct operations *operations)
{
    pthread_mutex_lock(&operations->lock);
    size_t len = map_len(operations->by_name);
    pthread_mutex_unlock(&operations->lock);
    return len;
}

char *operation_name(const char *verb, const char *object, const char *uid)
{
    return mem_printf("%s-%s[%s]", verb, object, uid);
}
