/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/workers.h"

#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <pthread.h>
#include <stdlib.h>

struct workers {
    struct kube_queue *queue;
    const char *name;
    int (*work)(void *arg, const char *key);
    void *arg;
    size_t max;
    pthread_mutex_t lock; /* for the three below */
    size_t count, idle;
    pthread_t *threads;
};

static void *worker_main(void *arg);

/* The lock is held. */
static void start_one(struct workers *workers)
{
    workers->idle++; /* it will be in a moment: until then nobody else has to start one */
    workers->threads[workers->count++] = thread_start(workers->name, worker_main, workers);
}

static void *worker_main(void *arg)
{
    struct workers *workers = arg;
    char *key;
    while ((key = kube_queue_get(workers->queue)) != NULL) {
        pthread_mutex_lock(&workers->lock);
        /* somebody is always left to take the next key */
        if (--workers->idle == 0 && workers->count < workers->max)
            start_one(workers);
        pthread_mutex_unlock(&workers->lock);
        if (workers->work(workers->arg, key) == 0)
            kube_queue_forget(workers->queue, key);
        else
            kube_queue_add_limited(workers->queue, key);
        kube_queue_done(workers->queue, key);
        pthread_mutex_lock(&workers->lock);
        workers->idle++;
        pthread_mutex_unlock(&workers->lock);
    }
    return NULL;
}

struct workers *workers_start(struct kube_queue *queue, size_t max, const char *name,
                              int (*work)(void *arg, const char *key), void *arg)
{
    struct workers *workers = mem_new(struct workers);
    *workers = (struct workers){.queue = queue, .name = name, .work = work, .arg = arg, .max = max};
    pthread_mutex_init(&workers->lock, NULL);
    workers->threads = mem_calloc(max, sizeof(*workers->threads));
    pthread_mutex_lock(&workers->lock);
    start_one(workers);
    pthread_mutex_unlock(&workers->lock);
    return workers;
}

size_t workers_count(struct workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    size_t count = workers->count;
    pthread_mutex_unlock(&workers->lock);
    return count;
}

void workers_join(struct workers *workers)
{
    if (workers == NULL)
        return;
    /* the last ones started may start others while we join, but none after all that were counted have ended */
    for (size_t i = 0;; i++) {
        pthread_mutex_lock(&workers->lock);
        bool more = i < workers->count;
        pthread_t thread = more ? workers->threads[i] : 0;
        pthread_mutex_unlock(&workers->lock);
        if (!more)
            break;
        thread_join(thread);
    }
    pthread_mutex_destroy(&workers->lock);
    free(workers->threads);
    free(workers);
}
