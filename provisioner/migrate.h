/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In-tree plugins that the driver stands in for: their classes as the driver understands them, and their volumes. A
 * volume of such a class is written in the plugin's form, with the plugin's topology labels; every component knows it
 * by its annotation migrated-to, and a cluster in which the plugin still works by itself can go back. Pure.
 */
#ifndef BERTH_PROVISIONER_MIGRATE_H
#define BERTH_PROVISIONER_MIGRATE_H

#include "provisioner/config.h"

#include <jansson.h>

/* Whether the class names the in-tree plugin. */
bool migrate_is_needed(const struct provision_config *config, const struct kube_class *class_);
/* A reference: to the class itself unless it names the in-tree plugin; else to a translated one: `fstype` becomes the
 * CSI key, `zone` and `zones` (Cinder: `availability`) become allowedTopologies on the driver's zone key, as do the
 * zone labels of Kubernetes in allowedTopologies; vSphere's parameters get the names that its driver reads. NULL on
 * error. */
struct kube_class *migrate_class(const struct provision_config *config, const struct kube_class *class_,
                                 struct err *err);
/* Changes a CSI volume object of this driver to the plugin's form. -1 when there is none for what the driver
 * answered. */
int migrate_volume(const char *driver, json_t *volume, struct err *err);
/* The driver's handle of a volume in the plugin's form, owned by the caller; NULL when it cannot be told (an error).
 * Not always the very text of CreateVolume's answer, but one that the driver takes for it. */
char *migrate_handle(const json_t *volume, struct err *err);

#endif
