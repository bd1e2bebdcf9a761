/* SPDX-License-Identifier: Apache-2.0 */
/* CreateVolumeResponse → PersistentVolume, with the checks of what the driver answered. Pure. */
#ifndef BERTH_PROVISIONER_VOLUME_H
#define BERTH_PROVISIONER_VOLUME_H

#include "provisioner/request.h"

#include <jansson.h>

enum volume_verdict {
    VOLUME_ACCEPTED,
    VOLUME_REJECTED, /* too small, content source missing, untranslatable …: delete what was created, then retry */
};
/* *json (owned by the caller) is the object to POST. 0, or -1 with the verdict in *verdict and the reason in err. */
int volume_build(const struct provision_config *config, const struct provision_request *request,
                 const Csi__V1__CreateVolumeResponse *response, json_t **json, enum volume_verdict *verdict,
                 struct err *err);
/* Compares an existing volume object of that name with what we would have written: same driver, handle and claim uid.
 */
bool volume_is_same(const struct kube_volume *existing, const json_t *wanted);

#endif
