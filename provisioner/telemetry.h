/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics: names, labels and buckets of csi-provisioner, and a few of our own (berth_…). */
#ifndef BERTH_PROVISIONER_TELEMETRY_H
#define BERTH_PROVISIONER_TELEMETRY_H

#include "lib/csi/method.h"
#include "lib/kube/queue.h"
#include "lib/observe/metrics.h"

#include <pthread.h>
#include <stdbool.h>

#define TELEMETRY_MAX_QUEUES 10
#define TELEMETRY_MAX_EARLY 256

struct telemetry {
    struct metrics *metrics;
    pthread_mutex_t lock;    /* for the four below */
    const char *driver_name; /* NULL before the driver named itself */
    bool migrated;           /* the driver stands in for an in-tree plugin: one more label */
    struct {
        const struct csi_method *method;
        int code;
        double seconds;
    } early[TELEMETRY_MAX_EARLY]; /* calls before that: which labels the metric has is not known yet */
    size_t early_count;
    struct {
        struct kube_queue *queue;
        struct queue_metrics *metrics;
    } queues[TELEMETRY_MAX_QUEUES];
    size_t queue_count;
};

extern const struct metric_family telemetry_provision_total, telemetry_provision_failed, telemetry_provision_duration,
    telemetry_delete_total, telemetry_delete_failed, telemetry_delete_duration, telemetry_leader_status,
    telemetry_leader_slowpath, telemetry_capacities_goal, telemetry_capacities_current, telemetry_capacities_obsolete,
    telemetry_claim_bound, telemetry_recycle_total, telemetry_recycle_failed, telemetry_intents,
    telemetry_pending_claims;

void telemetry_init(struct telemetry *telemetry);
void telemetry_free(struct telemetry *telemetry); /* after the queues were shut down */
/* A queue whose metrics are kept; owned by the telemetry from then on. */
struct kube_queue *telemetry_queue_new(struct telemetry *telemetry, const struct kube_queue_options *options);
/* After the first handshake; the name is borrowed. */
void telemetry_set_driver(struct telemetry *telemetry, const char *name, bool migrated);
/* From csi_client_options.on_finished. `migrated`: the call was about a volume of the in-tree plugin. */
void telemetry_rpc_finished(struct telemetry *telemetry, const struct csi_method *method, bool migrated, int code,
                            double seconds);
/* Tag of such calls. */
#define TELEMETRY_MIGRATED 1

#endif
