/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's metrics, named and labelled as upstream's; docs/metrics.md lists them. */
#ifndef BERTH_CONTROLLER_METRICS_H
#define BERTH_CONTROLLER_METRICS_H

#include "controller/view.h"
#include "lib/base/clock.h"
#include "lib/observe/metrics.h"

struct controller_metrics;
/* The view's volumes and claims are counted at scrape time. */
struct controller_metrics *controller_metrics_new(struct metrics *registry, const struct controller_view *view,
                                                  struct clock *clock);
void controller_metrics_free(struct controller_metrics *metrics);

/* End-to-end times: from the first start of the operation on this object (claim key, or volume name) to its end.
 * A second start while one is remembered changes nothing. */
enum controller_operation { OPERATION_PROVISION, OPERATION_DELETE };
void controller_metrics_start(struct controller_metrics *metrics, enum controller_operation operation, const char *key,
                              const char *plugin);
/* Observes the time when a start is remembered, and forgets it. */
void controller_metrics_finish(struct controller_metrics *metrics, enum controller_operation operation,
                               const char *key);
/* Counts an error when a start is remembered, which is kept. */
void controller_metrics_fail(struct controller_metrics *metrics, enum controller_operation operation, const char *key);
void controller_metrics_forget(struct controller_metrics *metrics, enum controller_operation operation,
                               const char *key);
/* A call of an in-tree plugin: "volume_provision" or "volume_delete". */
void controller_metrics_plugin_call(struct controller_metrics *metrics, const char *plugin, const char *operation,
                                    bool failed, int64_t took);
void controller_metrics_default_class(struct controller_metrics *metrics, bool failed);
void controller_metrics_other_binder(struct controller_metrics *metrics, uint64_t fights);
/* At scrape time, with leader election only; in the registry, since a process that stands by has these, too. */
void controller_metrics_leader(struct metrics *registry, const char *lease, bool leading, uint64_t slow_renewals);

#endif
