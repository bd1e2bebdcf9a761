/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/csi/pool.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"

#define IDLE_TIME (5 * CLOCK_SECOND)
#define LIGHT_EXTRA 4
#define WAITING_MAX ((size_t)1024)

struct queue {
    struct csi_job *first;
    struct csi_job **end;
    size_t len;
};

struct csi_pool {
    void (*run)(struct csi_job *job);
    int limit;
    pthread_mutex_t mutex;
    pthread_cond_t work;
    pthread_cond_t all_left;
    struct queue light;
    struct queue heavy;
    int threads;
    int idle; /* those that were just started too: they are about to look for work */
    int running_heavy;
    bool stopping;
    /* A thread that leaves joins the one that left before it, so nothing is detached and nothing piles up. */
    pthread_t left;
    bool has_left;
};

static void queue_init(struct queue *queue)
{
    *queue = (struct queue){.end = &queue->first};
}

static void queue_add(struct queue *queue, struct csi_job *job)
{
    job->next = NULL;
    *queue->end = job;
    queue->end = &job->next;
    queue->len++;
}

static struct csi_job *queue_take(struct queue *queue)
{
    struct csi_job *job = queue->first;
    queue->first = job->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    queue->len--;
    return job;
}

/* Jobs that a further thread could begin with right now. */
static size_t runnable(const struct csi_pool *pool)
{
    const size_t room = (size_t)(pool->limit - pool->running_heavy);
    return pool->light.len + (pool->heavy.len < room ? pool->heavy.len : room);
}

static struct csi_job *take(struct csi_pool *pool)
{
    if (pool->light.len > 0)
        return queue_take(&pool->light);
    if (pool->heavy.len > 0 && pool->running_heavy < pool->limit) {
        pool->running_heavy++;
        return queue_take(&pool->heavy);
    }
    return NULL;
}

/* Waits for work with the mutex held; false when the thread should leave. */
static bool wait_for_work(struct csi_pool *pool)
{
    if (pool->stopping)
        return false;
    struct clock *clock = clock_real();
    const int64_t deadline = pool->threads == 1 ? CLOCK_NEVER : clock_mono(clock) + IDLE_TIME;
    pool->idle++;
    const bool woken = clock_cond_wait(clock, &pool->work, &pool->mutex, deadline);
    pool->idle--;
    return woken || pool->threads == 1 || runnable(pool) > 0;
}

static void leave(struct csi_pool *pool)
{
    pthread_t before = pool->left;
    const bool has_before = pool->has_left;
    pool->left = pthread_self();
    pool->has_left = true;
    pool->threads--;
    /* the last thing: once it is zero the pool may go as soon as this mutex is free and the thread joined */
    if (pool->threads == 0)
        pthread_cond_broadcast(&pool->all_left);
    const bool after_burst = !pool->stopping;
    pthread_mutex_unlock(&pool->mutex);
    if (has_before)
        thread_join(before);
    if (after_burst)
        mem_trim(); /* drivers are small and long-lived: what the burst needed goes back to the system */
}

static void *work(void *arg)
{
    struct csi_pool *pool = arg;
    pthread_mutex_lock(&pool->mutex);
    pool->idle--;
    for (;;) {
        struct csi_job *job = take(pool);
        if (job == NULL) {
            if (wait_for_work(pool))
                continue;
            break;
        }
        const bool light = job->light; /* run() may free the job */
        pthread_mutex_unlock(&pool->mutex);
        pool->run(job);
        pthread_mutex_lock(&pool->mutex);
        if (!light)
            pool->running_heavy--;
    }
    leave(pool);
    return NULL;
}

struct csi_pool *csi_pool_new(int limit, void (*run)(struct csi_job *job))
{
    struct csi_pool *pool = mem_new(struct csi_pool);
    pool->run = run;
    pool->limit = limit;
    pthread_mutex_init(&pool->mutex, NULL);
    clock_cond_init(&pool->work);
    clock_cond_init(&pool->all_left);
    queue_init(&pool->light);
    queue_init(&pool->heavy);
    return pool;
}

bool csi_pool_submit(struct csi_pool *pool, struct csi_job *job)
{
    pthread_mutex_lock(&pool->mutex);
    const bool accepted = !pool->stopping && pool->light.len + pool->heavy.len < WAITING_MAX;
    if (accepted) {
        queue_add(job->light ? &pool->light : &pool->heavy, job);
        if ((size_t)pool->idle < runnable(pool) && pool->threads < pool->limit + LIGHT_EXTRA) {
            pool->threads++;
            pool->idle++;
            thread_start("csi-worker", work, pool);
        }
        pthread_cond_signal(&pool->work);
    }
    pthread_mutex_unlock(&pool->mutex);
    return accepted;
}

int csi_pool_threads(struct csi_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    const int threads = pool->threads;
    pthread_mutex_unlock(&pool->mutex);
    return threads;
}

void csi_pool_free(struct csi_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    while (pool->threads > 0)
        clock_cond_wait(clock_real(), &pool->all_left, &pool->mutex, CLOCK_NEVER);
    pthread_mutex_unlock(&pool->mutex);
    if (pool->has_left)
        thread_join(pool->left);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->all_left);
    free(pool);
}
