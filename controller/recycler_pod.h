/* SPDX-License-Identifier: Apache-2.0 */
/* The pod that empties a volume so that it can be used again: its template, and one run of it. */
#ifndef BERTH_CONTROLLER_RECYCLER_POD_H
#define BERTH_CONTROLLER_RECYCLER_POD_H

#include "controller/options.h"
#include "controller/profile.h"
#include "lib/base/err.h"
#include "lib/base/stop.h"
#include "lib/kube/client.h"
#include "lib/kube/events.h"
#include "lib/kube/objects.h"

#include <jansson.h>

struct recycler_template;
/* Built in, or read from the file (YAML or JSON) when options name one. Fails when the file is no pod with a volume. */
int recycler_template_new(const struct controller_profile *profile, const struct recycler_options *options,
                          struct recycler_template **recycler, struct err *err);
void recycler_template_free(struct recycler_template *recycler);
/* The pod for this volume: named after it, volume 0 replaced, deadline from the capacity. A new reference. */
json_t *recycler_pod_build(const struct recycler_template *recycler, const struct kube_volume *volume);

struct recycler_run {
    struct kube_client *client;
    struct kube_events *events; /* what happens to the pod is told on the volume, too */
    struct stop *stop;          /* ends the run with ERR_CANCELLED; the pod stays, and is taken away by the next run */
};
/* Makes the pod, waits for its end and deletes it. The message of a failure is upstream's. A pod of that name that
 * exists already is never trusted to be a recycler: it is deleted, and this run fails. */
int recycler_pod_run(const struct recycler_run *run, const struct recycler_template *recycler,
                     const struct kube_volume *volume, struct err *err);

#endif
