/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only place that writes volumes and claims. Every write is a patch that carries the version it was made from; the
 * API server's reply goes into the store before the call returns, so the next decision sees it. Functions that take a
 * `struct kube_x **` replace the reference by the newer object after a write; it is unchanged after a failure.
 */
#ifndef BERTH_CONTROLLER_PLAN_H
#define BERTH_CONTROLLER_PLAN_H

#include "controller/claim.h"
#include "controller/fight.h"
#include "controller/view.h"
#include "controller/volume.h"
#include "lib/kube/client.h"
#include "lib/kube/events.h"

struct plan_writer {
    struct kube_client *client;
    struct controller_view *view;
    struct kube_events *events;
    struct fight *fight; /* NULL = nobody watches for other binders */
};

/* Takes over `patch`; NULL is a success without a write. subresource: NULL or "status". */
int write_volume(const struct plan_writer *writer, struct kube_volume **volume, const char *subresource, json_t *patch,
                 struct err *err);
int write_claim(const struct plan_writer *writer, struct kube_claim **claim, const char *subresource, json_t *patch,
                struct err *err);

/* The four writes of a bind, in order, each only when it is needed. The volume's side comes first: its claimRef is what
 * keeps two claims from sharing it. */
int write_bind(const struct plan_writer *writer, struct kube_volume **volume, struct kube_claim **claim,
               struct err *err);
int write_unbind(const struct plan_writer *writer, struct kube_volume **volume, struct err *err);
int write_volume_phase(const struct plan_writer *writer, struct kube_volume **volume, const char *phase,
                       struct err *err);
/* Phase Failed with this message and a Warning event of it; nothing when it is Failed already. */
int write_volume_failed(const struct plan_writer *writer, struct kube_volume **volume, const char *reason,
                        const char *message, struct err *err);
int write_claim_phase(const struct plan_writer *writer, struct kube_claim **claim, const char *phase, struct err *err);

#endif
