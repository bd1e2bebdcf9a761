/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a claim's volume. Volumes are looked at by set of access modes, smallest sets first; within a set a
 * volume that is reserved for the claim wins at once, else the smallest free one that fits, equal ones by name. The
 * first set that has one ends the search, so a volume with exactly the modes asked for beats a larger set, even one
 * that is reserved for the claim (as upstream; see docs/compatibility.md).
 */
#ifndef BERTH_CONTROLLER_MATCH_H
#define BERTH_CONTROLLER_MATCH_H

#include "controller/view.h"

struct match {
    struct kube_volume *volume; /* a reference, NULL when none fits */
    bool blocked; /* none fits now, but one would if it were not just being given to another claim (view->is_taken) */
};
/* delayed: only volumes that already point at the claim may be used (the scheduler chooses the others). Fails when the
 * claim's selector is malformed. */
int match_find(const struct controller_view *view, const struct kube_claim *claim, bool delayed, struct match *match,
               struct err *err);

#endif
