/* SPDX-License-Identifier: Apache-2.0 */
/* Data sources of a claim: which one, whether it may be used from here, and the handle the driver knows it by. Pure. */
#ifndef BERTH_PROVISIONER_SOURCE_H
#define BERTH_PROVISIONER_SOURCE_H

#include "provisioner/request.h"

#define SOURCE_SNAPSHOT_FINALIZER "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
#define SOURCE_CLONE_FINALIZER "provisioner.storage.kubernetes.io/cloning-protection"

enum source_kind {
    SOURCE_NONE,
    SOURCE_SNAPSHOT,
    SOURCE_CLAIM,
    SOURCE_FOREIGN, /* a populator will do it */
};
struct source_choice {
    enum source_kind kind;
    const char *kind_name;         /* as the claim names it */
    const char *namespace_, *name; /* borrowed from the claim */
    bool cross_namespace;
    bool legacy; /* spec.dataSource is set */
};
/* spec.dataSource, else spec.dataSourceRef; another namespace needs the gate and a ReferenceGrant there. */
int source_choose(const struct provision_config *config, const struct provision_lookup *lookup,
                  const struct kube_claim *claim, struct source_choice *choice, struct err *err);
/* Fills request->csi.volume_content_source, source, source_must_be_echoed and what to protect. */
int source_resolve(const struct provision_config *config, const struct provision_lookup *lookup,
                   const struct source_choice *choice, struct provision_request *request, struct err *err);

#endif
