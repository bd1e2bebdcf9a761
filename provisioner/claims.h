/* SPDX-License-Identifier: Apache-2.0 */
/* The claims' worker: selection, tries, and what follows from how they ended. */
#ifndef BERTH_PROVISIONER_CLAIMS_H
#define BERTH_PROVISIONER_CLAIMS_H

/* Fits kube_workers_start; arg is the provisioner, the key a claim's UID. */
int claims_work(void *provisioner, const char *uid);

#endif
