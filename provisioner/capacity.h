/* SPDX-License-Identifier: Apache-2.0 */
/* CSIStorageCapacity objects: names, labels and JSON. Pure; the loop that keeps them is the runtime's. */
#ifndef BERTH_PROVISIONER_CAPACITY_H
#define BERTH_PROVISIONER_CAPACITY_H

#include "provisioner/config.h"

#include <jansson.h>

/* "external-provisioner", or "external-provisioner-<node>" shortened with a hash to the 63 characters a label may have,
 * in the way csi-provisioner does: both know each other's objects. Owned by the caller. */
char *capacity_managed_by(const struct provision_config *config);
bool capacity_class_is_eligible(const struct provision_config *config, const struct kube_class *class_,
                                bool immediate_too);
/* A new object for POST. owner may be NULL; maximum < 0 = absent. */
json_t *capacity_build(const struct provision_config *config, const char *namespace_, const char *class_name,
                       const json_t *segment, int64_t capacity, int64_t maximum, const struct kube_owner *owner,
                       const char *api_version);

/* Puts what this program decides (capacity, largest volume, owner) of `wanted` into an object that exists. */
void capacity_update_fields(json_t *live, const json_t *wanted);

#endif
