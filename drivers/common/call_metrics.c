/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/call_metrics.h"

static const struct metric_family operations = {
    .name = "csi_plugin_operations_seconds",
    .help = "Container Storage Interface operation duration with gRPC error code status total.",
    .type = METRIC_HISTOGRAM,
    .labels = {"driver_name", "grpc_status_code", "method_name"},
    .buckets = metric_buckets_operation,
    .bucket_count = METRIC_BUCKETS_OPERATION_COUNT,
};

void call_metrics_register(struct metrics *metrics)
{
    metrics_register(metrics, &operations);
}

void call_metrics_observe(struct metrics *metrics, const char *driver_name, const struct csi_method *method, int code,
                          double seconds)
{
    metric_observe(metrics, &operations, seconds,
                   (const char *const[]){driver_name, csi_code_name(code), method->path});
}
