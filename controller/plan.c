/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/plan.h"

#include "controller/patch.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* What of a patch makes it "the same change again": everything but the version. */
static char *change_text(const json_t *patch, const char *subresource)
{
    auto_json json_t *copy = json_deep_copy(patch);
    json_object_del(json_object_get(copy, "metadata"), "resourceVersion");
    json_object_del(json_object_get(json_object_get(copy, "spec"), "claimRef"), "resourceVersion");
    auto_free char *text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    return mem_printf("%s %s", subresource == NULL ? "" : subresource, text == NULL ? "" : text);
}

static int write_object(const struct plan_writer *writer, const struct kube_kind *kind, struct kube_store *store,
                        struct kube_object **object, const char *subresource, json_t *owned_patch, struct err *err)
{
    auto_json json_t *patch = owned_patch;
    if (patch == NULL)
        return 0;
    const struct kube_meta *meta = &(*object)->meta;
    auto_free char *key = kube_object_key(*object);
    auto_free char *name = mem_printf("%s/%s", kind->singular, key);
    struct kube_object *reply = NULL;
    if (kube_patch(writer->client, kind, meta->namespace_, meta->name, subresource, KUBE_PATCH_MERGE, patch, &reply,
                   err) != 0) {
        if (writer->fight != NULL && err_is(err, ERR_CONFLICT))
            fight_note_conflict(writer->fight, name);
        return -1;
    }
    if (log_enabled(5, __FILE__)) {
        auto_free char *change = change_text(patch, subresource);
        log_info("Wrote", kv_str("object", name), kv_str("patch", change));
    }
    if (writer->fight != NULL) {
        auto_free char *change = change_text(patch, subresource);
        fight_note_write(writer->fight, name, change);
    }
    kube_store_put_reply(store, reply);
    kube_object_unref(*object);
    *object = reply;
    return 0;
}

int write_volume(const struct plan_writer *writer, struct kube_volume **volume, const char *subresource, json_t *patch,
                 struct err *err)
{
    struct kube_object *object = &(*volume)->object;
    int result = write_object(writer, &kube_kind_volume, writer->view->volumes, &object, subresource, patch, err);
    *volume = (struct kube_volume *)object;
    return result;
}

int write_claim(const struct plan_writer *writer, struct kube_claim **claim, const char *subresource, json_t *patch,
                struct err *err)
{
    struct kube_object *object = &(*claim)->object;
    int result = write_object(writer, &kube_kind_claim, writer->view->claims, &object, subresource, patch, err);
    *claim = (struct kube_claim *)object;
    return result;
}

int write_bind(const struct plan_writer *writer, struct kube_volume **volume, struct kube_claim **claim,
               struct err *err)
{
    json_t *status = NULL;
    if (write_volume(writer, volume, NULL, patch_volume_bind(*volume, *claim), err) != 0 ||
        write_volume(writer, volume, "status", patch_volume_phase(*volume, PHASE_BOUND, NULL), err) != 0 ||
        write_claim(writer, claim, NULL, patch_claim_bind(*claim, *volume), err) != 0 ||
        patch_claim_status(&writer->view->profile, *claim, PHASE_BOUND, *volume, &status, err) != 0)
        return -1;
    return write_claim(writer, claim, "status", status, err);
}

int write_unbind(const struct plan_writer *writer, struct kube_volume **volume, struct err *err)
{
    if (write_volume(writer, volume, NULL, patch_volume_unbind(*volume), err) != 0)
        return -1;
    return write_volume_phase(writer, volume, PHASE_AVAILABLE, err);
}

int write_volume_phase(const struct plan_writer *writer, struct kube_volume **volume, const char *phase,
                       struct err *err)
{
    return write_volume(writer, volume, "status", patch_volume_phase(*volume, phase, NULL), err);
}

int write_volume_failed(const struct plan_writer *writer, struct kube_volume **volume, const char *reason,
                        const char *message, struct err *err)
{
    json_t *patch = patch_volume_phase(*volume, PHASE_FAILED, message);
    if (patch == NULL)
        return 0;
    if (write_volume(writer, volume, "status", patch, err) != 0)
        return -1;
    kube_event_object(writer->events, &(*volume)->object, KUBE_EVENT_WARNING, reason, "%s", message);
    return 0;
}

int write_claim_phase(const struct plan_writer *writer, struct kube_claim **claim, const char *phase, struct err *err)
{
    json_t *patch = NULL;
    if (patch_claim_status(&writer->view->profile, *claim, phase, NULL, &patch, err) != 0)
        return -1;
    return write_claim(writer, claim, "status", patch, err);
}
