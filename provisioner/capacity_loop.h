/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps one CSIStorageCapacity object per topology segment and class up to date: what the driver answers to
 * GetCapacity, asked at intervals and after what changes it.
 */
#ifndef BERTH_PROVISIONER_CAPACITY_LOOP_H
#define BERTH_PROVISIONER_CAPACITY_LOOP_H

#include "lib/base/err.h"

struct capacity_loop;
struct provisioner;

/* Makes the loop, so that changes of the cluster reach it; it does nothing before capacity_start. */
int capacity_new(struct provisioner *provisioner, struct capacity_loop **loop, struct err *err);
/* With complete stores. */
int capacity_start(struct capacity_loop *loop, struct err *err);
void capacity_stop(struct capacity_loop *loop); /* NULL is fine */
/* A volume of the class came, went, or could not be made: all its capacities are asked for again. NULL loop is fine. */
void capacity_volume_changed(struct capacity_loop *loop, const char *class_name);
/* From listeners: classes, nodes or CSINodes changed. NULL is fine. */
void capacity_cluster_changed(struct capacity_loop *loop);

#endif
