/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running controller: stores and reflectors, queues and workers, and everything they share.
 *
 *   reflectors ─► stores ─► queues ─► claim and volume workers ─► decide ─► plan.c ─► API server
 *                    ▲                                                        │
 *                    └───────────────── replies of our own writes ◄───────────┘
 */
#ifndef BERTH_CONTROLLER_CONTROLLER_H
#define BERTH_CONTROLLER_CONTROLLER_H

#include "controller/fight.h"
#include "controller/metrics.h"
#include "controller/operation.h"
#include "controller/options.h"
#include "controller/plan.h"
#include "controller/view.h"
#include "lib/base/map.h"
#include "lib/base/stop.h"
#include "lib/kube/queue.h"
#include "lib/kube/reflector.h"
#include "lib/observe/metrics.h"

#include <pthread.h>
#include <stdatomic.h>

#define CONTROLLER_COMPONENT "persistentvolume-controller" /* upstream's name in events */

struct explainer;
struct recycler_template;

struct controller {
    const struct controller_options *options;
    struct clock *clock;
    struct rng *rng;
    struct stop *stop;
    struct kube_client *client;
    struct kube_events *events;
    struct metrics *registry;

    struct controller_view view;
    struct plan_writer writer;
    struct operations *operations;
    struct fight *fight;
    struct controller_metrics *metrics;
    struct explainer *explainer;
    struct recycler_template *recycler_nfs, *recycler_host_path;

    struct kube_queue *claims, *volumes;
    struct kube_queue *wake; /* keys of wake.h: who is to be looked at again a little later */
    struct queue_metrics *claims_metrics, *volumes_metrics;

    struct kube_reflector *reflectors[4];
    struct kube_workers *workers[3];
    atomic_int started; /* 0 = standing by, 1 = filling the stores, 2 = working */

    /* Claims are decided one after the other. A volume that was chosen is on this list until the claim's writes are
     * done, so that the next decision, whose writes run at the same time, takes another one. */
    pthread_mutex_t decide_lock;
    struct map *taken; /* volume → uid of the claim */
};

/* Everything is borrowed and outlives the controller. */
struct controller_config {
    const struct controller_options *options;
    struct kube_client *client;
    struct kube_client *event_client; /* a budget of its own, so that events do not slow down binding */
    struct metrics *registry;
    struct clock *clock; /* NULL = real */
    struct rng *rng;     /* NULL = real */
    struct stop *stop;   /* ends controller_run */
    int minor;           /* of the Kubernetes release to stand in for */
};
/* Reads the recycler templates; fails when one is bad. */
int controller_new(const struct controller_config *config, struct controller **controller, struct err *err);
/* Fills the stores, then works until the stop is requested and the writes under way are done. */
int controller_run(struct controller *controller, struct err *err);
void controller_free(struct controller *controller);
/* For /readyz: fails while the stores are being filled; standing by for the lease is fine. */
int controller_check_synced(void *controller, struct err *err);

/* ---- what the files of the running controller offer each other ---- */
/* sync.c: the work functions of the queues. */
int sync_claim(void *controller, const char *key);
int sync_volume(void *controller, const char *key);
/* reclaim.c: a released volume (the reference is borrowed). */
int reclaim_apply(struct controller *controller, struct kube_volume *volume, struct err *err);
/* Whether nobody needs the volume any more: the API server is asked for the volume's and the claim's present state, and
 * both must agree with what was decided. *fresh: the volume as it is now, a reference when *released. */
int reclaim_check(struct controller *controller, const struct kube_volume *volume, struct kube_volume **fresh,
                  bool *released, struct err *err);
/* recycle.c and host_path.c: operations in threads of their own. */
void recycle_start(struct controller *controller, struct kube_volume *volume);
void host_path_delete_start(struct controller *controller, struct kube_volume *volume);
void host_path_provision_start(struct controller *controller, struct kube_claim *claim,
                               struct kube_class *storage_class);

#endif
