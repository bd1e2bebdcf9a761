/* SPDX-License-Identifier: Apache-2.0 */
/* Secret references of a StorageClass: current, deprecated and common keys, templates, and the reserved parameter keys.
 */
#ifndef BERTH_PROVISIONER_SECRETS_H
#define BERTH_PROVISIONER_SECRETS_H

#include "lib/csi/message.h"
#include "provisioner/config.h"

enum secret_kind {
    SECRET_PROVISIONER,
    SECRET_CONTROLLER_PUBLISH,
    SECRET_NODE_STAGE,
    SECRET_NODE_PUBLISH,
    SECRET_CONTROLLER_EXPAND,
    SECRET_NODE_EXPAND,
    SECRET_CONTROLLER_MODIFY,
    SECRET_KIND_COUNT,
};
struct secret_reference {
    const char *namespace_, *name; /* in the arena; NULL = none */
};
/* What templates may name. The claim is NULL at the deletion of an old volume: then only its name and namespace are
 * known. */
struct secret_names {
    const char *volume_name;
    const char *claim_namespace, *claim_name;
    const struct kube_pairs *claim_annotations; /* NULL = unknown */
};
int secret_resolve(enum secret_kind kind, const struct kube_pairs *parameters, const struct secret_names *names,
                   struct csi_arena *arena, struct secret_reference *reference, struct err *err);
/* Whether CreateVolume's parameters leave this class parameter out; an unknown key of the reserved prefix is an error.
 */
int secret_strip_parameter(const char *key, bool *strip, struct err *err);

#endif
