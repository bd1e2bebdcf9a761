/* SPDX-License-Identifier: Apache-2.0 */
/* The volumes' worker: finalizers, deletion, recycling. */
#ifndef BERTH_PROVISIONER_VOLUMES_H
#define BERTH_PROVISIONER_VOLUMES_H

/* Fits kube_workers_start; arg is the provisioner, the key a volume's name. */
int volumes_work(void *provisioner, const char *name);

#endif
