/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running program. Everything that acts hangs off struct provisioner; the decisions are in the pure files.
 *
 *   main ─► handshake ─► leader ─► informers ─► queues: claims ─► claims.c ─► attempt.c ─► save.c
 *                                                       volumes ─► volumes.c ─► delete.c, recycle.c
 *           beside them: intent.c (calls that survive a crash), protect.c (finalizers of sources), capacity_loop.c,
 *           node.c (who owns a claim when every node runs one)
 */
#ifndef BERTH_PROVISIONER_PROVISIONER_H
#define BERTH_PROVISIONER_PROVISIONER_H

#include "lib/base/clock.h"
#include "lib/base/stop.h"
#include "lib/csi/client.h"
#include "lib/kube/client.h"
#include "lib/kube/events.h"
#include "lib/kube/leader.h"
#include "lib/kube/queue.h"
#include "lib/observe/http.h"
#include "provisioner/config.h"
#include "provisioner/informers.h"
#include "provisioner/options.h"
#include "provisioner/telemetry.h"

#include <stdatomic.h>

struct capacity_loop;
struct intents;
struct node_race;
struct pending;
struct protector;
struct saver;

struct provisioner {
    const struct options *options;
    struct settings *settings;
    struct provision_config config; /* constant once the workers run */
    struct provision_lookup lookup;
    struct clock *clock;
    struct rng *rng;
    struct stop *stop;
    struct telemetry telemetry;
    struct observe_http *http;
    struct csi_client *driver;

    struct kube_config *kube_config;
    struct kube_client *client;          /* claims, volumes and their events */
    struct kube_client *record_client;   /* intent records: a budget of their own */
    struct kube_client *capacity_client; /* NULL without capacity objects */
    struct kube_client *leader_client;
    struct kube_events *events;
    struct kube_leader *leader; /* NULL without election */
    char *namespace_;           /* of the lease and the intent records */

    struct informers informers;
    struct kube_queue *claims;  /* keys: claim UIDs */
    struct kube_queue *volumes; /* keys: volume names */
    struct pending *pending;
    struct intents *intents;
    struct saver *saver;
    struct protector *protector;
    struct capacity_loop *capacity; /* NULL without capacity objects */
    struct node_race *race;         /* NULL without node deployment */
    atomic_uint worked;             /* keys since the heap was last trimmed */
};

/* Ends the process with the reason in the log and in the termination log. */
_Noreturn void provisioner_die(struct provisioner *provisioner, const char *reason);
/* After each key of claims and volumes: gives the heap's holes back at the end of a burst. */
void provisioner_worked(struct provisioner *provisioner);
/* Deadline of a call to the driver. */
struct csi_call_options provisioner_call_options(struct provisioner *provisioner);

#endif
