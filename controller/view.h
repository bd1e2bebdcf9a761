/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the decisions look at: the stores with their indexes, the profile and the two switches. Decisions read it and
 * never write anywhere; who applies their plans is plan.h's business. kubectl-berth fills one from lists and asks the
 * same functions.
 */
#ifndef BERTH_CONTROLLER_VIEW_H
#define BERTH_CONTROLLER_VIEW_H

#include "controller/index.h"
#include "controller/predicate.h"
#include "controller/profile.h"
#include "lib/kube/store.h"

#include <stdbool.h>

struct controller_view {
    struct controller_profile profile;
    struct kube_store *claims, *volumes, *classes, *pods; /* owned */
    struct volume_index *index;                           /* owned; fed by volumes */
    int pods_by_claim;                                    /* index of pods: keys "namespace/claim" */
    int unbound_by_class; /* index of claims without volumeName: class_wake_key() of their class */
    bool dynamic_provisioning;
    /* Volumes that a write under way is about to give to another claim. NULL = none. */
    bool (*is_taken)(void *arg, const struct kube_volume *volume, const struct kube_claim *claim);
    /* Volumes that are being recycled, or their directory deleted, at this moment: nobody gets them. NULL = none. */
    bool (*is_emptied)(void *arg, const struct kube_volume *volume);
    void *taken_arg; /* of both */
};
/* Makes the stores and indexes; empty. Dynamic provisioning is on, nothing is taken. */
void controller_view_init(struct controller_view *view, int minor);
void controller_view_clear(struct controller_view *view);

/* References or NULL. */
struct kube_claim *view_claim(const struct controller_view *view, const char *namespace_, const char *name);
struct kube_volume *view_volume(const struct controller_view *view, const char *name);
struct kube_class *view_class(const struct controller_view *view, const char *name);
struct kube_class *view_default_class(const struct controller_view *view);
/* "namespace/name" of the pods that use the claim and are not terminated, sorted. With without_node only those that
 * have no node yet, and then plain names. */
void view_pods_of_claim(const struct controller_view *view, const char *namespace_, const char *claim,
                        bool without_node, struct strv *names);
/* Keys of unbound_by_class: the class's name, or this for claims that have none at all (absent, not ""). */
#define VIEW_NO_CLASS_KEY "/none"

bool view_is_emptied(const struct controller_view *view, const struct kube_volume *volume);
/* *delayed: whether the claim's class binds at the first consumer. Fails when the class has no binding mode. */
int claim_is_delayed(const struct controller_view *view, const struct kube_claim *claim, bool *delayed,
                     struct err *err);

#endif
