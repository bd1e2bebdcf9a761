/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CreateVolume call as text: all that is needed to send the identical call again and to write the volume object when
 * it succeeds, although claim, class, source or node may be gone by then. Kept in memory for calls whose outcome is
 * open and in the intent records that survive a crash. Secrets are not in it, only their references. Pure.
 */
#ifndef BERTH_PROVISIONER_RECORD_H
#define BERTH_PROVISIONER_RECORD_H

#include "provisioner/request.h"

/* JSON on one line, owned by the caller. Equal requests give equal texts. `earlier` (or NULL) is the record of a call
 * for the same claim whose outcome is still open although another request follows it; it becomes part of the text. */
char *record_encode(const struct provision_config *config, const struct provision_request *request,
                    const char *earlier);
/* The `earlier` for record_encode of `request` after the call in `previous`, owned by the caller; NULL = none. `open`:
 * the outcome of that call is open; else only that of those before it. A call that is repeated identically is no
 * earlier one. */
char *record_earlier(const char *previous, bool open, const struct provision_request *request);

struct record {
    struct kube_claim *claim; /* what the volume needs of them, not the whole objects */
    struct kube_class *class_;
    Csi__V1__CreateVolumeRequest *message;
    struct provision_request request; /* refers to the three above; without secrets until request_fetch_secret */
    char *earlier;                    /* the record of a call before it whose outcome is open, or NULL */
};
int record_decode(const char *text, struct record *record, struct err *err);
void record_clear(struct record *record);
#define auto_record __attribute__((cleanup(record_clear)))

#endif
