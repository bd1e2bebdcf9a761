/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node deployment: one provisioner a node, and claims without a selected node go to whoever of them is first to write
 * its name on them. Delays with jitter keep them from all trying at once.
 */
#ifndef BERTH_PROVISIONER_NODE_H
#define BERTH_PROVISIONER_NODE_H

#include "provisioner/provisioner.h"

struct node_race *node_race_new(struct provisioner *provisioner);
void node_race_free(struct node_race *race); /* NULL is fine */

enum node_race_result {
    NODE_RACE_OWNER,   /* ours: provision */
    NODE_RACE_NOT_NOW, /* somebody else's, or ours with the update event that follows */
    NODE_RACE_FAILED,  /* try again later */
};
/* Waits (the worker's thread) as long as the back-off says. */
enum node_race_result node_race_run(struct provisioner *provisioner, const struct kube_claim *claim,
                                    const struct kube_class *class_, struct err *err);

#endif
