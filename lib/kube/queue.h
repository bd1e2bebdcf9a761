/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work queue with client-go's rules: a key is in it once; one worker at a time works on a key, a key added meanwhile
 * runs again afterwards; delayed adds; per-key exponential back-off. Keys come out in the order they went in.
 */
#ifndef BERTH_KUBE_QUEUE_H
#define BERTH_KUBE_QUEUE_H

#include "lib/base/clock.h"

#include <stdbool.h>
#include <stddef.h>

/* Callbacks for metrics; any may be NULL. Fits lib/observe's queue_metrics_*. Called with the queue's lock held, so
 * that depths come in order: they must not call into the queue. */
struct kube_queue_observer {
    void *arg;
    void (*added)(void *arg);
    void (*retried)(void *arg);
    void (*depth)(void *arg, size_t depth);
    void (*waited)(void *arg, double seconds);
    void (*worked)(void *arg, double seconds);
};
struct kube_queue_options {
    const char *name;
    int64_t base_delay; /* ns, first retry; 0 = 5 ms as upstream's default */
    int64_t max_delay;  /* ns; 0 = 1000 s as upstream's default */
    double bucket_qps;  /* token bucket over all retries, the larger delay counts; 0 = none (upstream's default is 10,
                           burst 100) */
    int64_t bucket_burst;
    struct clock *clock; /* NULL = real */
    struct kube_queue_observer observer;
};
struct kube_queue;
struct kube_queue *kube_queue_new(const struct kube_queue_options *options);
void kube_queue_free(struct kube_queue *queue); /* after shut down and all workers returned */
void kube_queue_add(struct kube_queue *queue, const char *key);
void kube_queue_add_after(struct kube_queue *queue, const char *key,
                          int64_t delay); /* the earlier of two times counts */
void kube_queue_add_limited(struct kube_queue *queue,
                            const char *key);                      /* counts a failure of the key, then add_after */
void kube_queue_forget(struct kube_queue *queue, const char *key); /* resets its failure count */
size_t kube_queue_failures(struct kube_queue *queue, const char *key);
/* Waits for a key, owned by the caller until kube_queue_done; NULL after shut down. */
char *kube_queue_get(struct kube_queue *queue);
void kube_queue_done(struct kube_queue *queue, char *key); /* frees key */
size_t kube_queue_len(struct kube_queue *queue);
/* Seconds that running items have taken in sum, and the longest one: for gauges at scrape time. */
void kube_queue_running(struct kube_queue *queue, double *unfinished_seconds, double *longest_seconds);
void kube_queue_shut_down(struct kube_queue *queue); /* waiting and later kube_queue_get return NULL */

/* At most `count` threads that run `work(arg, key)` for each key; work returns 0 (forget), -1 (add_limited). They are
 * started when there is work for them and end when there is not. `name` must stay valid. */
struct kube_workers;
struct kube_workers *kube_workers_start(struct kube_queue *queue, size_t count, const char *name,
                                        int (*work)(void *arg, const char *key), void *arg);
void kube_workers_join(struct kube_workers *workers); /* after kube_queue_shut_down; frees */

#endif
