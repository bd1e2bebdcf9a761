/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking again early. Upstream notices at its next resync (15 s) that a new volume, class or pod changes something for
 * a waiting claim; here they wake the claims concerned after WAKE_DELAY. The delay lets a batch of volumes arrive
 * before the first claim chooses among them, and makes one look out of many changes.
 */
#ifndef BERTH_CONTROLLER_WAKE_H
#define BERTH_CONTROLLER_WAKE_H

#include "controller/controller.h"

#define WAKE_DELAY CLOCK_SECOND

/* Store listeners; arg is the controller. They also put what changed itself into the queues, and follow deletions. */
void wake_on_claim(void *controller, const struct kube_object *old, const struct kube_object *new_);
void wake_on_volume(void *controller, const struct kube_object *old, const struct kube_object *new_);
void wake_on_class(void *controller, const struct kube_object *old, const struct kube_object *new_);
void wake_on_pod(void *controller, const struct kube_object *old, const struct kube_object *new_);
/* Wakes those who may want the volume, if it can be had. */
void wake_for_volume(const struct controller *controller, const struct kube_volume *volume);
/* The work function of the queue `wake`. */
int wake_work(void *controller, const char *key);

#endif
