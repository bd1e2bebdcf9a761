/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim + class + driver capabilities → CreateVolumeRequest, in the order and with the error texts users know. Pure but
 * for the look-ups. In two halves, because the source's protection finalizer is written between them:
 *   - request_prepare: class, data source, capabilities, name, fsType, access modes, content source
 *     (the caller puts the finalizer on what request->protect_… name)
 *   - request_complete: topology, secrets, parameters, attributes class
 * On failure *state says what that means for the claim.
 */
#ifndef BERTH_PROVISIONER_REQUEST_H
#define BERTH_PROVISIONER_REQUEST_H

#include "lib/csi/csi.pb-c.h"
#include "lib/csi/message.h"
#include "provisioner/config.h"
#include "provisioner/secrets.h"

/* The terms that a claim's earlier CreateVolume call was sent with: repeated identically until the result is final,
 * even when nodes come and go meanwhile. Owned by the runtime, one per unfinished claim. */
struct topology_memory;
struct topology_memory *topology_memory_new(void);
void topology_memory_free(struct topology_memory *memory);

enum request_source { REQUEST_SOURCE_NONE, REQUEST_SOURCE_SNAPSHOT, REQUEST_SOURCE_CLAIM };

struct provision_request {
    struct csi_arena arena;
    Csi__V1__CreateVolumeRequest csi; /* its memory is the arena's */
    const struct kube_claim *claim;   /* borrowed from the caller, as are class_ and the strings of both */
    const struct kube_class *class_;
    const char *volume_name;      /* of the volume object and the CreateVolume name */
    const char *fs_type;          /* "" for block */
    const char *attributes_class; /* NULL = none */
    bool block;
    bool read_only;            /* volume.spec.csi.readOnly */
    const char *selected_node; /* NULL = immediate */
    enum request_source source;
    bool source_must_be_echoed; /* the driver has to return content_source */
    bool unwanted;              /* asked only because a volume may exist that nobody waits for: it shall not stay */
    const char *protect_namespace, *protect_name;       /* the source claim or snapshot, by `source` */
    struct secret_reference secrets[SECRET_KIND_COUNT]; /* name NULL = none */
};
void provision_request_clear(struct provision_request *request);

/* `class_` may be NULL (an error then). */
int request_prepare(const struct provision_config *config, const struct provision_lookup *lookup,
                    const struct kube_claim *claim, const struct kube_class *class_, struct provision_request *request,
                    enum provision_state *state, struct err *err);
int request_complete(const struct provision_config *config, const struct provision_lookup *lookup,
                     struct topology_memory *memory, struct provision_request *request, enum provision_state *state,
                     struct err *err);

/* Puts the data of the provisioner secret into the request; part of request_complete, and for requests from a record.
 */
int request_fetch_secret(const struct provision_lookup *lookup, struct provision_request *request, struct err *err);

/* "<prefix>-<uid>" with the length rule; owned by the caller. ERR_INVALID for an empty prefix or UID. */
char *request_volume_name(const struct provision_config *config, const char *claim_uid, struct err *err);

#endif
