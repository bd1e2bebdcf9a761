/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explanations for events: explain.h's texts, with what the API server knows about a provisioner. Both are remembered
 * for a while: a provisioner's state so that waiting claims cost one look a minute however many they are, and a claim's
 * text so that numbers that change all the time do not make ever new events of it.
 */
#ifndef BERTH_CONTROLLER_EXPLAINER_H
#define BERTH_CONTROLLER_EXPLAINER_H

#include "controller/explain.h"
#include "lib/kube/client.h"

struct explainer;
/* Everything is borrowed. client NULL: nothing is asked. */
struct explainer *explainer_new(const struct controller_view *view, struct kube_client *client, struct clock *clock);
void explainer_free(struct explainer *explainer);
/* The whole event text: upstream's, and the explanation in square brackets. Owned by the caller. */
char *explainer_event_text(struct explainer *explainer, const struct kube_claim *claim, const struct claim_plan *plan);
/* Asks about a provisioner, or takes the remembered answer. */
struct driver_facts explainer_driver(struct explainer *explainer, const char *provisioner);

#endif
