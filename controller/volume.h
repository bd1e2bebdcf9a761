/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to do about a volume, and with what a released one holds. Pure: where the tables demand a live look at the
 * claim, the plan says so and the caller decides again with the answer.
 */
#ifndef BERTH_CONTROLLER_VOLUME_H
#define BERTH_CONTROLLER_VOLUME_H

#include "controller/view.h"

enum volume_action {
    VOLUME_NOTHING,
    VOLUME_ANNEAL,       /* set annotation migrated-to and/or the finalizers, then decide again */
    VOLUME_SET_PHASE,    /* `phase`, empty message */
    VOLUME_RELEASE,      /* phase Released when `phase` is set, then reclaim_decide */
    VOLUME_UNBIND,       /* its claim has another volume: give it back */
    VOLUME_MISMATCH,     /* emit VolumeMismatch on both sides */
    VOLUME_WAKE_CLAIM,   /* `claim_key` is to be synced: it will bind */
    VOLUME_LOOK_UP_LIVE, /* GET the claim of its claimRef, then decide again */
    VOLUME_FAIL,         /* fail with `text` */
};
struct volume_live {
    struct kube_claim *claim; /* NULL = there is none; borrowed */
};
struct volume_plan {
    enum volume_action action;
    const char *rule;
    const char *phase;        /* NULL = leave it */
    char *claim_key;          /* owned */
    struct kube_claim *claim; /* reference: with MISMATCH */
    char *text;               /* owned */
    /* ANNEAL */
    bool set_migrated;
    const char *migrated_to; /* NULL = remove */
    bool set_finalizers;
    struct strv finalizers;
    bool impossible; /* a finalizer is missing on a volume that is being deleted */
};
/* live: NULL at first. */
void volume_decide(const struct controller_view *view, const struct kube_volume *volume, const struct volume_live *live,
                   struct volume_plan *plan);
void volume_plan_clear(struct volume_plan *plan);
#define auto_volume_plan __attribute__((cleanup(volume_plan_clear)))
const char *volume_action_name(enum volume_action action);

enum reclaim_action {
    RECLAIM_NOTHING,  /* Retain; migrated */
    RECLAIM_EXTERNAL, /* Delete: its provisioner does it when it sees the phase Released */
    RECLAIM_DELETE,   /* Delete by our own `plugin` */
    RECLAIM_RECYCLE,
    RECLAIM_FAIL, /* phase Failed with `text`, Warning event of `reason` */
};
struct reclaim_plan {
    enum reclaim_action action;
    const struct controller_plugin *plugin;
    const char *reason;
    char *text; /* owned */
};
void reclaim_decide(const struct controller_view *view, const struct kube_volume *volume, struct reclaim_plan *plan);
void reclaim_plan_clear(struct reclaim_plan *plan);
#define auto_reclaim_plan __attribute__((cleanup(reclaim_plan_clear)))

/* Whether this claim (the one the volume's claimRef names, NULL when gone) no longer needs the volume. */
bool volume_is_released(const struct kube_volume *volume, const struct kube_claim *claim);

#endif
