/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/finalizers.h"

#include "lib/base/log.h"
#include "provisioner/select.h"

#define FINALIZER KUBE_FINALIZER_EXTERNAL_PROVISIONER

json_t *finalizer_add_patch(const struct kube_strings *present, const char *finalizer)
{
    json_t *order = json_array();
    for (uint32_t i = 0; i < present->len; i++)
        json_array_append_new(order, json_string(present->items[i]));
    json_array_append_new(order, json_string(finalizer));
    return json_pack("{s:{s:[s], s:o}}", "metadata", "finalizers", finalizer, "$setElementOrder/finalizers", order);
}

/* Names only what goes: a finalizer that somebody else puts on at the same time stays. */
json_t *finalizer_remove_patch(const char *finalizer)
{
    return json_pack("{s:{s:[s]}}", "metadata", "$deleteFromPrimitiveList/finalizers", finalizer);
}

static int patch(struct provisioner *provisioner, const char *name, json_t *json, struct err *err)
{
    auto_unref struct kube_object *written = NULL;
    int result =
        kube_patch(provisioner->client, &kube_kind_volume, NULL, name, NULL, KUBE_PATCH_STRATEGIC, json, &written, err);
    json_decref(json);
    if (result == 0 && written != NULL)
        kube_store_put_reply(provisioner->informers.stores[INFORMER_VOLUMES], written);
    return result;
}

/* 1 = go on with *live, 0 = the volume is gone or another one now, -1 = error. */
static int look(struct provisioner *provisioner, const struct kube_volume *volume, struct kube_volume **live,
                struct err *err)
{
    const struct kube_meta *meta = &volume->object.meta;
    if (provisioner->lookup.volume(provisioner, meta->name, live, err) < 0) {
        if (!err_is(err, ERR_NOT_FOUND))
            return -1;
        err_clear(err);
        return 0;
    }
    return str_eq((*live)->object.meta.uid, meta->uid);
}

int finalizer_add(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    auto_unref struct kube_volume *live = NULL;
    int result = look(provisioner, volume, &live, err);
    if (result <= 0)
        return result;
    if (volume_select(&provisioner->config, live) != VOLUME_ADD_FINALIZER)
        return 0;
    json_t *json = finalizer_add_patch(&live->object.meta.finalizers, FINALIZER);
    if (patch(provisioner, live->object.meta.name, json, err) < 0)
        return err_wrap(err, "add the finalizer of volume %s", live->object.meta.name);
    return 0;
}

int finalizer_remove(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    auto_unref struct kube_volume *live = NULL;
    int result = look(provisioner, volume, &live, err);
    if (result <= 0)
        return result;
    if (!kube_strings_contain(&live->object.meta.finalizers, FINALIZER))
        return 0;
    if (patch(provisioner, live->object.meta.name, finalizer_remove_patch(FINALIZER), err) < 0 &&
        !err_is(err, ERR_NOT_FOUND))
        return err_wrap(err, "remove the finalizer of volume %s", live->object.meta.name);
    err_clear(err);
    return 0;
}
