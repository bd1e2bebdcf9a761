/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/delete.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/capacity_loop.h"
#include "provisioner/finalizers.h"
#include "provisioner/migrate.h"
#include "provisioner/secrets.h"
#include "provisioner/select.h"

struct kube_secret *deletion_fetch_secret(struct provisioner *provisioner, const struct kube_volume *volume)
{
    auto_csi_arena struct csi_arena arena = {0};
    auto_err struct err err = {0};
    struct secret_reference reference = {0};
    struct kube_secret *secret = NULL;
    if (deletion_secret(&provisioner->config, &provisioner->lookup, volume, &arena, &reference, &err) == 0 &&
        (reference.name == NULL ||
         provisioner->lookup.secret(provisioner, reference.namespace_, reference.name, &secret, &err) == 0))
        return secret;
    log_error("Cannot get the secret for a volume's deletion, going on without it",
              kv_str("volume", volume->object.meta.name), kv_str("secret", reference.name),
              kv_str("namespace", reference.namespace_), kv_err(&err));
    return NULL;
}

static int check_driver(const struct provisioner *provisioner, struct err *err)
{
    const struct driver_capabilities *capabilities = &provisioner->config.capabilities;
    if (!capabilities->controller_service)
        return err_set(err, ERR_INVALID,
                       "CSI driver does not support dynamic provisioning: plugin CONTROLLER_SERVICE capability is not "
                       "reported");
    if (!capabilities->create_delete_volume)
        return err_set(err, ERR_INVALID,
                       "CSI driver does not support dynamic provisioning: controller CREATE_DELETE_VOLUME capability "
                       "is not reported");
    return 0;
}

/* In the arena; a volume that was written in an in-tree plugin's form is read once more, in full. */
static const char *handle_of(struct provisioner *provisioner, const struct kube_volume *volume, struct csi_arena *arena,
                             struct err *err)
{
    if (volume->source == KUBE_SOURCE_CSI) {
        if (!str_eq(volume->csi.driver, provisioner->config.driver_name)) {
            err_set(err, ERR_INVALID,
                    "volume %s is one of the driver %s, whatever its annotations say; it is not deleted",
                    volume->object.meta.name, volume->csi.driver);
            return NULL;
        }
        if (!str_empty(volume->csi.handle))
            return volume->csi.handle;
        err_set(err, ERR_INVALID, "volume %s has no handle", volume->object.meta.name);
        return NULL;
    }
    json_t *json = NULL;
    if (kube_get_json(provisioner->client, &kube_kind_volume, NULL, volume->object.meta.name, &json, err) < 0)
        return NULL;
    auto_free char *handle = migrate_handle(json, err);
    json_decref(json);
    return handle != NULL ? csi_arena_strdup(arena, handle) : NULL;
}

static int call_driver(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    auto_csi_arena struct csi_arena arena = {0};
    auto_csi_message Csi__V1__DeleteVolumeResponse *reply = NULL;
    auto_unref struct kube_secret *secret = deletion_fetch_secret(provisioner, volume);
    struct csi_call_options options = provisioner_call_options(provisioner);
    options.tag = volume->source != KUBE_SOURCE_CSI ? TELEMETRY_MIGRATED : 0;
    Csi__V1__DeleteVolumeRequest request = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    const char *handle = handle_of(provisioner, volume, &arena, err);
    if (handle == NULL)
        return -1;
    request.volume_id = csi_arena_strdup(&arena, handle);
    for (uint32_t i = 0; secret != NULL && i < secret->data.len; i++)
        CSI_MAP_ADD(&arena, &request, secrets, secret->data.items[i].key, secret->data.items[i].value);
    return csi_delete_volume(provisioner->driver, &request, &reply, &options, err);
}

static int delete_object(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    const struct kube_meta *meta = &volume->object.meta;
    if (kube_delete(provisioner->client, &kube_kind_volume, NULL, meta->name, meta->uid, 0, err) < 0) {
        /* gone, or a new object of that name: in both cases not ours to delete any more */
        if (!err_is(err, ERR_NOT_FOUND) && !err_is(err, ERR_CONFLICT))
            return err_wrap(err, "delete volume %s", meta->name);
        err_clear(err);
    }
    return finalizer_remove(provisioner, volume, err);
}

int delete_volume(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    auto_unref struct kube_volume *live = NULL;
    const char *name = volume->object.meta.name;
    if (provisioner->lookup.volume(provisioner, name, &live, err) < 0) {
        if (!err_is(err, ERR_NOT_FOUND))
            return -1;
        err_clear(err);
        return 0;
    }
    /* the last look before data is destroyed: policy, phase and object are what they were */
    if (!str_eq(live->object.meta.uid, volume->object.meta.uid) ||
        volume_select(&provisioner->config, live) != VOLUME_DELETE)
        return 0;
    if (provisioner->leader != NULL && !kube_leader_valid(provisioner->leader))
        return err_set(err, ERR_CANCELLED, "it is not certain that this process still leads");
    if (check_driver(provisioner, err) < 0 ||
        (provisioner->config.capabilities.publish_unpublish_volume &&
         deletion_check_attachments(&provisioner->lookup, live, err) < 0) ||
        call_driver(provisioner, live, err) < 0 || delete_object(provisioner, live, err) < 0)
        return -1;
    log_info("Deleted the volume", kv_str("volume", name), kv_str("volumeId", live->csi.handle));
    capacity_volume_changed(provisioner->capacity, kube_volume_class(live));
    return 1;
}
