/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CreateVolume call as text: all that is needed to send the identical call again and to write the volume object when
 * it succeeds, although claim, class, source or node may be gone by then. Kept in memory for calls whose outcome is
 * open and in the intent records that survive a crash. Secrets are not in it, only their references. Pure.
 */
#ifndef BERTH_PROVISIONER_RECORD_H
#define BERTH_PROVISIONER_RECORD_H

#include "provisioner/request.h"

/* JSON on one line, owned by the caller. Equal requests give equal texts. */
char *record_encode(const struct provision_config *config, const struct provision_request *request);

struct record {
    struct kube_claim *claim; /* what the volume needs of them, not the whole objects */
    struct kube_class *class_;
    Csi__V1__CreateVolumeRequest *message;
    struct provision_request request; /* refers to the three above; without secrets until record_fetch_secrets */
};
int record_decode(const char *text, struct record *record, struct err *err);
void record_clear(struct record *record);
#define auto_record __attribute__((cleanup(record_clear)))

#endif
