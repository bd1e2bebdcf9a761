/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for a queue, as many as there is work for: one always waits for the next key; whoever takes a key while
 * nobody else waits starts a successor first, and whoever comes back while enough others wait ends. So a hundred
 * workers are a limit and cost nothing.
 */
#include "lib/kube/queue.h"

#include "lib/base/mem.h"
#include "lib/base/stop.h"

#define IDLE_KEPT 2 /* threads that stay for the next keys of a trickle */

struct kube_workers {
    struct kube_queue *queue;
    const char *name;
    int (*work)(void *arg, const char *key);
    void *arg;
    size_t max;
    pthread_mutex_t lock; /* for the rest */
    pthread_cond_t ended;
    size_t count, idle;
};

static void *worker_run(void *arg);

/* The lock is held. */
static void start_one(struct kube_workers *workers)
{
    workers->count++;
    workers->idle++; /* it will be in a moment: until then nobody else has to start one */
    pthread_detach(thread_start(workers->name, worker_run, workers));
}

static void take_place(struct kube_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    if (--workers->idle == 0 && workers->count < workers->max)
        start_one(workers);
    pthread_mutex_unlock(&workers->lock);
}

/* False when enough others wait: then the thread ends. */
static bool give_place(struct kube_workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    bool stay = workers->idle < IDLE_KEPT;
    workers->idle += stay ? 1 : 0;
    pthread_mutex_unlock(&workers->lock);
    return stay;
}

static void *worker_run(void *arg)
{
    struct kube_workers *workers = arg;
    char *key;
    bool waiting = true;
    while (waiting && (key = kube_queue_get(workers->queue)) != NULL) {
        take_place(workers);
        if (workers->work(workers->arg, key) == 0)
            kube_queue_forget(workers->queue, key);
        else
            kube_queue_add_limited(workers->queue, key);
        kube_queue_done(workers->queue, key);
        waiting = give_place(workers);
    }
    pthread_mutex_lock(&workers->lock);
    workers->idle -= waiting ? 1 : 0;
    workers->count--;
    pthread_cond_signal(&workers->ended);
    pthread_mutex_unlock(&workers->lock); /* the last look at it: join frees it after the count is 0 */
    return NULL;
}

struct kube_workers *kube_workers_start(struct kube_queue *queue, size_t count, const char *name,
                                        int (*work)(void *arg, const char *key), void *arg)
{
    struct kube_workers *workers = mem_new(struct kube_workers);
    *workers = (struct kube_workers){.queue = queue, .name = name, .work = work, .arg = arg, .max = count};
    pthread_mutex_init(&workers->lock, NULL);
    clock_cond_init(&workers->ended);
    pthread_mutex_lock(&workers->lock);
    start_one(workers);
    pthread_mutex_unlock(&workers->lock);
    return workers;
}

void kube_workers_join(struct kube_workers *workers)
{
    if (workers == NULL)
        return;
    pthread_mutex_lock(&workers->lock);
    while (workers->count > 0)
        clock_cond_wait(clock_real(), &workers->ended, &workers->lock, CLOCK_NEVER);
    pthread_mutex_unlock(&workers->lock);
    pthread_cond_destroy(&workers->ended);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
