/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/telemetry.h"

#include "lib/base/mem.h"

#include <stdlib.h>

#define OPERATION_HELP "[ALPHA] Container Storage Interface operation duration with gRPC error code status total"

static const struct metric_family operations = {
    .name = "csi_sidecar_operations_seconds",
    .help = OPERATION_HELP,
    .type = METRIC_HISTOGRAM,
    .labels = {"driver_name", "method_name", "grpc_status_code"},
    .buckets = metric_buckets_operation,
    .bucket_count = METRIC_BUCKETS_OPERATION_COUNT,
};
static const struct metric_family operations_migrated = {
    .name = "csi_sidecar_operations_seconds",
    .help = OPERATION_HELP,
    .type = METRIC_HISTOGRAM,
    .labels = {"driver_name", "method_name", "grpc_status_code", "migrated"},
    .buckets = metric_buckets_operation,
    .bucket_count = METRIC_BUCKETS_OPERATION_COUNT,
};

#define COUNTER(variable, name_, help_, ...)                                                                           \
    const struct metric_family variable = {                                                                            \
        .name = name_, .help = help_, .type = METRIC_COUNTER, .labels = {__VA_ARGS__}}
#define GAUGE(variable, name_, help_, ...)                                                                             \
    const struct metric_family variable = {.name = name_, .help = help_, .type = METRIC_GAUGE, .labels = {__VA_ARGS__}}
#define SECONDS(variable, name_, help_, buckets_, count_, ...)                                                         \
    const struct metric_family variable = {.name = name_,                                                              \
                                           .help = help_,                                                              \
                                           .type = METRIC_HISTOGRAM,                                                   \
                                           .labels = {__VA_ARGS__},                                                    \
                                           .buckets = buckets_,                                                        \
                                           .bucket_count = count_}

COUNTER(telemetry_provision_total, "controller_persistentvolumeclaim_provision_total",
        "Total number of persistent volumes provisioned succesfully. Broken down by storage class name.", "class",
        "source");
COUNTER(telemetry_provision_failed, "controller_persistentvolumeclaim_provision_failed_total",
        "Total number of persistent volume provision failed attempts. Broken down by storage class name.", "class",
        "source");
SECONDS(telemetry_provision_duration, "controller_persistentvolumeclaim_provision_duration_seconds",
        "Latency in seconds to provision persistent volumes. Broken down by storage class name.",
        metric_buckets_default, METRIC_BUCKETS_DEFAULT_COUNT, "class", "source");
COUNTER(telemetry_delete_total, "controller_persistentvolume_delete_total",
        "Total number of persistent volumes deleted succesfully. Broken down by storage class name.", "class");
COUNTER(telemetry_delete_failed, "controller_persistentvolume_delete_failed_total",
        "Total number of persistent volume delete failed attempts. Broken down by storage class name.", "class");
SECONDS(telemetry_delete_duration, "controller_persistentvolume_delete_duration_seconds",
        "Latency in seconds to delete persistent volumes. Broken down by storage class name.", metric_buckets_default,
        METRIC_BUCKETS_DEFAULT_COUNT, "class");
GAUGE(telemetry_leader_status, "leader_election_master_status",
      "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. "
      "'name' is the string used to identify the lease. Please make sure to group by name.",
      "name");
COUNTER(
    telemetry_leader_slowpath, "leader_election_slowpath_total",
    "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. "
    "Please make sure to group by name.",
    "name");
GAUGE(telemetry_capacities_goal, "csistoragecapacities_desired_goal",
      "[ALPHA] Number of CSIStorageCapacity objects that are supposed to be managed automatically.", NULL);
GAUGE(telemetry_capacities_current, "csistoragecapacities_desired_current",
      "[ALPHA] Number of CSIStorageCapacity objects that exist and are supposed to be managed automatically.", NULL);
GAUGE(telemetry_capacities_obsolete, "csistoragecapacities_obsolete",
      "[ALPHA] Number of CSIStorageCapacity objects that exist and will be deleted automatically. Objects that exist "
      "and may need an update are not considered obsolete and therefore not included in this value.",
      NULL);
SECONDS(telemetry_claim_bound, "berth_claim_bound_seconds",
        "Time from a claim's creation until it was seen bound to the volume made for it.", metric_buckets_operation,
        METRIC_BUCKETS_OPERATION_COUNT, "class");
COUNTER(telemetry_recycle_total, "berth_volume_recycle_total", "Volumes scrubbed and made available again.", "class");
COUNTER(telemetry_recycle_failed, "berth_volume_recycle_failed_total", "Failed attempts to recycle a volume.", "class");
GAUGE(telemetry_intents, "berth_intent_records", "Intent records that exist for calls whose outcome is open.", NULL);
GAUGE(telemetry_pending_claims, "berth_claims_pending",
      "Claims whose last CreateVolume has no final answer, or failed and may have left a volume.", NULL);

static void collect_queues(struct metrics *metrics, void *arg)
{
    (void)metrics;
    struct telemetry *telemetry = arg;
    for (size_t i = 0; i < telemetry->queue_count; i++) {
        double unfinished = 0, longest = 0;
        kube_queue_running(telemetry->queues[i].queue, &unfinished, &longest);
        queue_metrics_running(telemetry->queues[i].metrics, unfinished, longest);
    }
}

void telemetry_init(struct telemetry *telemetry)
{
    telemetry->metrics = metrics_new();
    pthread_mutex_init(&telemetry->lock, NULL);
    metrics_register_process(telemetry->metrics);
    metrics_on_scrape(telemetry->metrics, collect_queues, telemetry);
}

void telemetry_free(struct telemetry *telemetry)
{
    for (size_t i = 0; i < telemetry->queue_count; i++) {
        kube_queue_free(telemetry->queues[i].queue);
        queue_metrics_free(telemetry->queues[i].metrics);
    }
    metrics_free(telemetry->metrics);
    pthread_mutex_destroy(&telemetry->lock);
}

struct kube_queue *telemetry_queue_new(struct telemetry *telemetry, const struct kube_queue_options *options)
{
    if (telemetry->queue_count == TELEMETRY_MAX_QUEUES)
        abort(); /* a bug: the number of queues is fixed */
    struct queue_metrics *metrics = queue_metrics_new(telemetry->metrics, options->name);
    struct kube_queue_options observed = *options;
    observed.observer = (struct kube_queue_observer){.arg = metrics,
                                                     .added = queue_metrics_added,
                                                     .retried = queue_metrics_retried,
                                                     .depth = queue_metrics_depth,
                                                     .waited = queue_metrics_waited,
                                                     .worked = queue_metrics_worked};
    struct kube_queue *queue = kube_queue_new(&observed);
    telemetry->queues[telemetry->queue_count].queue = queue;
    telemetry->queues[telemetry->queue_count].metrics = metrics;
    telemetry->queue_count++;
    return queue;
}

static void observe(struct telemetry *telemetry, const char *driver, const struct csi_method *method, bool migrated,
                    int code, double seconds)
{
    const char *status = code < 0 ? "unknown-non-grpc" : csi_code_name(code);
    const char *labels[] = {driver, method->path, status, migrated ? "true" : "false"};
    metric_observe(telemetry->metrics, telemetry->migrated ? &operations_migrated : &operations, seconds, labels);
}

void telemetry_set_driver(struct telemetry *telemetry, const char *name, bool migrated)
{
    /* upstream learns the name with GetPluginInfo, so that it is right from the next call on */
    pthread_mutex_lock(&telemetry->lock);
    telemetry->migrated = migrated;
    for (size_t i = 0; i < telemetry->early_count; i++) {
        const struct csi_method *method = telemetry->early[i].method;
        bool unnamed = method == &csi_method_probe || method == &csi_method_get_plugin_info;
        observe(telemetry, unnamed ? "unknown-driver" : name, method, false, telemetry->early[i].code,
                telemetry->early[i].seconds);
    }
    telemetry->early_count = 0;
    telemetry->driver_name = name;
    pthread_mutex_unlock(&telemetry->lock);
}

void telemetry_rpc_finished(struct telemetry *telemetry, const struct csi_method *method, bool migrated, int code,
                            double seconds)
{
    pthread_mutex_lock(&telemetry->lock);
    if (telemetry->driver_name != NULL) {
        observe(telemetry, telemetry->driver_name, method, migrated, code, seconds);
    } else if (telemetry->early_count < TELEMETRY_MAX_EARLY) {
        size_t i = telemetry->early_count++;
        telemetry->early[i].method = method;
        telemetry->early[i].code = code;
        telemetry->early[i].seconds = seconds;
    }
    pthread_mutex_unlock(&telemetry->lock);
}
