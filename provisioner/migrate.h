/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In-tree plugins that the driver stands in for: their classes as the driver understands them, and the handles of
 * volumes that were written in the plugin's form. Volumes for such classes are written as CSI volumes here, which every
 * component treats as it does the migrated ones. Pure.
 */
#ifndef BERTH_PROVISIONER_MIGRATE_H
#define BERTH_PROVISIONER_MIGRATE_H

#include "provisioner/config.h"

#include <jansson.h>

/* A reference: to the class itself unless it names the in-tree plugin; else to a translated one: `fstype` becomes the
 * CSI key, `zone` and `zones` (Cinder: `availability`) become allowedTopologies on the driver's zone key, as do the
 * zone labels of Kubernetes in allowedTopologies. NULL on error. */
struct kube_class *migrate_class(const struct provision_config *config, const struct kube_class *class_,
                                 struct err *err);
/* The driver's handle of a volume in the plugin's form, owned by the caller; NULL when it cannot be told (an error). */
char *migrate_handle(const json_t *volume, struct err *err);

#endif
