/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/recycle.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/delete.h"
#include "provisioner/select.h"

#include <inttypes.h>
#include <stdio.h>

/* 1 = the claim is gone for certain, 0 = it lives, -1 = error. */
static int claim_is_gone(struct provisioner *provisioner, const struct kube_reference *reference, struct err *err)
{
    auto_unref struct kube_claim *claim = NULL;
    if (provisioner->lookup.claim(provisioner, reference->namespace_, reference->name, &claim, err) == 0)
        return !str_eq(claim->object.meta.uid, reference->uid);
    if (!err_is(err, ERR_NOT_FOUND))
        return -1;
    err_clear(err);
    return 1;
}

static int scrub(struct provisioner *provisioner, const struct kube_volume *volume, int64_t *removed, struct err *err)
{
    auto_csi_arena struct csi_arena arena = {0};
    auto_csi_message Berth__V1__ScrubResponse *reply = NULL;
    auto_unref struct kube_secret *secret = deletion_fetch_secret(provisioner, volume);
    struct csi_call_options options = provisioner_call_options(provisioner);
    Berth__V1__ScrubRequest request = BERTH__V1__SCRUB_REQUEST__INIT;
    request.volume_id = csi_arena_strdup(&arena, volume->csi.handle);
    for (uint32_t i = 0; i < volume->csi.attributes.len; i++)
        CSI_MAP_ADD(&arena, &request, volume_context, volume->csi.attributes.items[i].key,
                    volume->csi.attributes.items[i].value);
    for (uint32_t i = 0; secret != NULL && i < secret->data.len; i++)
        CSI_MAP_ADD(&arena, &request, secrets, secret->data.items[i].key, secret->data.items[i].value);
    if (csi_scrub(provisioner->driver, &request, &reply, &options, err) < 0)
        return -1;
    *removed = reply->removed_entries;
    return 0;
}

/* Only when nobody changed the volume since it was read: the claimRef that goes is the one that was checked. */
static int release(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    char version[24];
    snprintf(version, sizeof(version), "%" PRIu64, volume->object.meta.resource_version);
    json_t *patch = json_pack("{s:{s:s, s:{s:n}}, s:{s:n}}", "metadata", "resourceVersion", version, "annotations",
                              KUBE_ANN_BOUND_BY_CONTROLLER, "spec", "claimRef");
    auto_unref struct kube_object *written = NULL;
    int result = kube_patch(provisioner->client, &kube_kind_volume, NULL, volume->object.meta.name, NULL,
                            KUBE_PATCH_MERGE, patch, &written, err);
    json_decref(patch);
    if (result == 0 && written != NULL)
        kube_store_put_reply(provisioner->informers.stores[INFORMER_VOLUMES], written);
    return result;
}

int recycle_volume(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    const struct kube_meta *meta = &volume->object.meta;
    auto_unref struct kube_volume *live = NULL;
    int64_t removed = 0;
    if (provisioner->lookup.volume(provisioner, meta->name, &live, err) < 0) {
        if (!err_is(err, ERR_NOT_FOUND))
            return -1;
        err_clear(err);
        return 0;
    }
    if (!str_eq(live->object.meta.uid, meta->uid) || volume_select(&provisioner->config, live) != VOLUME_RECYCLE)
        return 0;
    if (live->source != KUBE_SOURCE_CSI || str_empty(live->csi.handle))
        return err_set(err, ERR_INVALID, "volume %s is not a CSI volume with a handle", meta->name);
    int gone = claim_is_gone(provisioner, live->claim_ref, err);
    if (gone < 0)
        return -1;
    if (gone == 0)
        return err_set(err, ERR_UNAVAILABLE, "claim %s/%s of the released volume exists still or again",
                       live->claim_ref->namespace_, live->claim_ref->name);
    if (deletion_check_attachments(&provisioner->lookup, live, err) < 0)
        return -1;
    if (provisioner->leader != NULL && !kube_leader_valid(provisioner->leader))
        return err_set(err, ERR_CANCELLED, "it is not certain that this process still leads");
    if (scrub(provisioner, live, &removed, err) < 0 || release(provisioner, live, err) < 0)
        return -1;
    log_info("Recycled the volume", kv_str("volume", meta->name), kv_int("removedEntries", removed));
    return 1;
}
