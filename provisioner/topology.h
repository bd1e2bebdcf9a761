/* SPDX-License-Identifier: Apache-2.0 */
/* Topology segments: requirements for CreateVolume, node affinity, and the segments of capacity objects. Pure. */
#ifndef BERTH_PROVISIONER_TOPOLOGY_H
#define BERTH_PROVISIONER_TOPOLOGY_H

#include "lib/csi/csi.pb-c.h"
#include "lib/csi/message.h"
#include "provisioner/request.h"

#include <jansson.h>

/* Fills request->csi.accessibility_requirements by the table of binding mode × strictness × allowedTopologies; leaves
 * it NULL when nothing is to be sent. */
int topology_require(const struct provision_config *config, const struct provision_lookup *lookup,
                     struct topology_memory *memory, struct provision_request *request, enum provision_state *state,
                     struct err *err);
/* nodeAffinity for the volume object, or NULL (a new reference). */
json_t *topology_node_affinity(Csi__V1__Topology *const *topologies, size_t count);
/* Where the spread over terms starts for a claim of this name: (hash + index). */
uint32_t topology_spread_offset(const char *claim_name);
/* The distinct segments (sorted label sets) that nodes registered for this driver; for capacity objects. Each is a JSON
 * object of labels in the array (a new reference). A driver without keys has one empty segment. */
json_t *topology_segments(const struct provision_config *config, const struct kube_object_list *nodes,
                          const struct kube_object_list *csi_nodes);
/* In node deployment: whether the volume's node affinity fits our own topology. */
bool topology_volume_is_local(const struct provision_config *config, const struct kube_volume *volume);

#endif
