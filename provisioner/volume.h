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
/* Compares an existing volume object of that name with what we would have written. `handle` is the driver's, which
 * `wanted` does not have when it is in the form of a migrated plugin. */
enum volume_likeness {
    VOLUME_OTHER,       /* it is about another volume */
    VOLUME_OTHER_CLAIM, /* the same driver and handle, for another claim */
    VOLUME_SAME,
};
enum volume_likeness volume_compare(const json_t *existing, const json_t *wanted, const char *driver,
                                    const char *handle);

#endif
