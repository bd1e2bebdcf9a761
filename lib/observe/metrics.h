/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics registry in the Prometheus text form. A family is a static table entry (name, help, type, label names);
 * samples are made on first use. Recording is thread-safe and cheap. Values that are cheaper to compute at scrape time
 * come from a collector callback.
 */
#ifndef BERTH_OBSERVE_METRICS_H
#define BERTH_OBSERVE_METRICS_H

#include "lib/base/str.h"

#include <stddef.h>
#include <stdint.h>

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

#define METRIC_MAX_LABELS 6
struct metric_family {
    const char *name;
    const char *help;
    enum metric_type type;
    const char *labels[METRIC_MAX_LABELS + 1]; /* NULL-terminated */
    const double *buckets;                     /* histograms: ascending upper bounds without +Inf */
    size_t bucket_count;
};

struct metrics;
struct metrics *metrics_new(void);
void metrics_free(struct metrics *metrics);
/* Registers a family (borrowed: static tables). Registering the same name twice is a programming error and aborts. */
void metrics_register(struct metrics *metrics, const struct metric_family *family);
/* Label values in the order of the family's labels; NULL counts as "", also in place of the array. A family without
 * samples prints nothing; one that was not registered is registered by its first sample. */
void metric_add(struct metrics *metrics, const struct metric_family *family, double delta, const char *const *labels);
void metric_set(struct metrics *metrics, const struct metric_family *family, double value, const char *const *labels);
void metric_observe(struct metrics *metrics, const struct metric_family *family, double value,
                    const char *const *labels);
/* Makes the sample with the value 0 unless it exists, so that scrapes show it before its first event. */
void metric_touch(struct metrics *metrics, const struct metric_family *family, const char *const *labels);
/* For tests and programs: the current value (count of a histogram); 0 when there is no such sample. */
double metric_value(struct metrics *metrics, const struct metric_family *family, const char *const *labels);
void metric_clear(struct metrics *metrics, const struct metric_family *family); /* drops all its samples */

/* Runs at every scrape, before the samples are written; it may metric_clear and metric_set its gauges. */
void metrics_on_scrape(struct metrics *metrics, void (*collect)(struct metrics *metrics, void *arg), void *arg);
/* The whole text, families sorted by name, samples by labels; label values escaped. */
void metrics_write(struct metrics *metrics, struct str *out);
/* process_* families (cpu, resident memory, open fds, start time, threads) as Prometheus clients name them. */
void metrics_register_process(struct metrics *metrics);

/* Upstream's bucket bounds. */
extern const double metric_buckets_default[];   /* .005 … 10, 11 of them */
extern const double metric_buckets_operation[]; /* .1 .25 .5 1 2.5 5 10 15 25 50 120 300 600 */
extern const double metric_buckets_queue[];     /* 1e-8 × 10^n, n = 0 … 9, with the rounding upstream's have */
#define METRIC_BUCKETS_DEFAULT_COUNT 11
#define METRIC_BUCKETS_OPERATION_COUNT 13
#define METRIC_BUCKETS_QUEUE_COUNT 10

/* The standard work queue metrics (client-go's names), label `name`. The functions fit lib/kube's
 * struct kube_queue_observer without either library knowing the other. */
struct queue_metrics;
struct queue_metrics *queue_metrics_new(struct metrics *metrics, const char *queue_name);
void queue_metrics_free(struct queue_metrics *queue);
void queue_metrics_added(void *queue);
void queue_metrics_retried(void *queue);
void queue_metrics_depth(void *queue, size_t depth);
void queue_metrics_waited(void *queue, double seconds);
void queue_metrics_worked(void *queue, double seconds);
void queue_metrics_running(void *queue, double unfinished_seconds, double longest_seconds);

#endif
