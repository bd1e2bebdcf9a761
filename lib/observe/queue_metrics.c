/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/observe/metrics.h"

static const struct metric_family depth = {
    .name = "workqueue_depth",
    .help = "Keys that wait in the queue.",
    .type = METRIC_GAUGE,
    .labels = {"name"},
};
static const struct metric_family adds = {
    .name = "workqueue_adds_total",
    .help = "Keys put into the queue.",
    .type = METRIC_COUNTER,
    .labels = {"name"},
};
static const struct metric_family retries = {
    .name = "workqueue_retries_total",
    .help = "Keys put into the queue again after a failure.",
    .type = METRIC_COUNTER,
    .labels = {"name"},
};
static const struct metric_family queue_duration = {
    .name = "workqueue_queue_duration_seconds",
    .help = "How long keys waited in the queue.",
    .type = METRIC_HISTOGRAM,
    .labels = {"name"},
    .buckets = metric_buckets_queue,
    .bucket_count = METRIC_BUCKETS_QUEUE_COUNT,
};
static const struct metric_family work_duration = {
    .name = "workqueue_work_duration_seconds",
    .help = "How long working on a key took.",
    .type = METRIC_HISTOGRAM,
    .labels = {"name"},
    .buckets = metric_buckets_queue,
    .bucket_count = METRIC_BUCKETS_QUEUE_COUNT,
};
static const struct metric_family unfinished = {
    .name = "workqueue_unfinished_work_seconds",
    .help = "Time spent so far on all keys that are worked on now; growing without end means stuck workers.",
    .type = METRIC_GAUGE,
    .labels = {"name"},
};
static const struct metric_family longest = {
    .name = "workqueue_longest_running_processor_seconds",
    .help = "Time spent so far on the key that is worked on for the longest time.",
    .type = METRIC_GAUGE,
    .labels = {"name"},
};

struct queue_metrics {
    struct metrics *metrics;
    char *name;
};

struct queue_metrics *queue_metrics_new(struct metrics *metrics, const char *queue_name)
{
    static const struct metric_family *const all[] = {
        &depth, &adds, &retries, &queue_duration, &work_duration, &unfinished, &longest,
    };
    struct queue_metrics *queue = mem_new(struct queue_metrics);
    queue->metrics = metrics;
    queue->name = mem_strdup(queue_name);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        metric_touch(metrics, all[i], (const char *const[]){queue_name});
    return queue;
}

void queue_metrics_free(struct queue_metrics *queue)
{
    if (queue == NULL)
        return;
    free(queue->name);
    free(queue);
}

static void add_one(void *arg, const struct metric_family *family)
{
    const struct queue_metrics *queue = arg;
    metric_add(queue->metrics, family, 1, (const char *const[]){queue->name});
}

static void set(void *arg, const struct metric_family *family, double value)
{
    const struct queue_metrics *queue = arg;
    metric_set(queue->metrics, family, value, (const char *const[]){queue->name});
}

static void observe(void *arg, const struct metric_family *family, double seconds)
{
    const struct queue_metrics *queue = arg;
    metric_observe(queue->metrics, family, seconds, (const char *const[]){queue->name});
}

void queue_metrics_added(void *queue)
{
    add_one(queue, &adds);
}

void queue_metrics_retried(void *queue)
{
    add_one(queue, &retries);
}

void queue_metrics_depth(void *queue, size_t count)
{
    set(queue, &depth, (double)count);
}

void queue_metrics_waited(void *queue, double seconds)
{
    observe(queue, &queue_duration, seconds);
}

void queue_metrics_worked(void *queue, double seconds)
{
    observe(queue, &work_duration, seconds);
}

void queue_metrics_running(void *queue, double unfinished_seconds, double longest_seconds)
{
    set(queue, &unfinished, unfinished_seconds);
    set(queue, &longest, longest_seconds);
}
