/* SPDX-License-Identifier: Apache-2.0 */
/* The calls a CSI driver served, as a metric: csi_plugin_operations_seconds by driver, method and gRPC status code. */
#ifndef BERTH_DRIVERS_CALL_METRICS_H
#define BERTH_DRIVERS_CALL_METRICS_H

#include "lib/csi/server.h"
#include "lib/observe/metrics.h"

void call_metrics_register(struct metrics *metrics);
/* For the on_finished of a server. Thread-safe. */
void call_metrics_observe(struct metrics *metrics, const char *driver_name, const struct csi_method *method, int code,
                          double seconds);

#endif
