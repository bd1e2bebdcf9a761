/* SPDX-License-Identifier: Apache-2.0 */
/* Any JSON as any kind of object (the first byte chooses): decoded or refused with a message, and everything that hangs
 * on a decoded object can be read. */
#include "tests/fuzz/fuzz.h"

#include "lib/base/mem.h"
#include "lib/kube/store.h"

#include <string.h>

static const struct kube_kind *const kinds[] = {
    &kube_kind_volume,
    &kube_kind_claim,
    &kube_kind_class,
    &kube_kind_pod,
    &kube_kind_node,
    &kube_kind_csi_node,
    &kube_kind_csi_driver,
    &kube_kind_attachment,
    &kube_kind_lease,
    &kube_kind_event,
    &kube_kind_secret,
    &kube_kind_attributes_class,
    &kube_kind_capacity,
    &kube_kind_snapshot,
    &kube_kind_snapshot_content,
    &kube_kind_reference_grant,
};

static size_t read_bytes; /* keeps the reads from being optimised away */

static void read_text(const char *text)
{
    read_bytes += strlen(text);
}

static void read_strings(const struct kube_strings *strings)
{
    for (uint32_t i = 0; i < strings->len; i++)
        read_text(strings->items[i]);
}

static void read_pairs(const struct kube_pairs *pairs)
{
    for (uint32_t i = 0; i < pairs->len; i++) {
        read_text(pairs->items[i].value);
        require(i == 0 || strcmp(pairs->items[i - 1].key, pairs->items[i].key) < 0);
        require(kube_pairs_get(pairs, pairs->items[i].key) == pairs->items[i].value);
    }
}

static void read_selector(const struct kube_selector *selector, const struct kube_pairs *labels)
{
    auto_err struct err err = {0};
    require(kube_selector_validate(selector, &err) == 0 || err.message != NULL);
    kube_selector_matches(selector, labels);
    for (uint32_t i = 0; i < selector->len; i++)
        read_strings(&selector->items[i].values);
}

static void read_volume(const struct kube_volume *volume)
{
    read_pairs(&volume->capacity);
    read_pairs(&volume->csi.attributes);
    read_strings(&volume->access_modes);
    read_strings(&volume->mount_options);
    read_text(volume->csi.handle);
    read_text(volume->phase);
    read_text(volume->source_name);
    read_text(kube_volume_class(volume));
    if (volume->claim_ref != NULL)
        read_text(volume->claim_ref->uid);
    kube_node_selector_matches(&volume->node_affinity, "node", &volume->object.meta.labels);
}

static void read_claim(const struct kube_claim *claim)
{
    read_strings(&claim->access_modes);
    read_strings(&claim->status_access_modes);
    read_pairs(&claim->status_capacity);
    read_text(claim->request_text);
    read_text(claim->volume_name);
    read_text(kube_claim_class(claim));
    read_selector(&claim->selector, &claim->object.meta.labels);
    if (claim->data_source != NULL)
        read_text(claim->data_source->name);
}

static void read_object(const struct kube_object *object)
{
    const struct kube_meta *meta = &object->meta;
    require(*meta->name != '\0' && strchr(meta->name, '/') == NULL && strchr(meta->namespace_, '/') == NULL);
    read_text(meta->uid);
    read_pairs(&meta->labels);
    read_pairs(&meta->annotations);
    read_strings(&meta->finalizers);
    for (uint32_t i = 0; i < meta->owner_count; i++)
        read_text(meta->owners[i].uid);
    if (object->kind == &kube_kind_volume)
        read_volume((const struct kube_volume *)object);
    else if (object->kind == &kube_kind_claim)
        read_claim((const struct kube_claim *)object);
    else if (object->kind == &kube_kind_pod)
        read_strings(&((const struct kube_pod *)object)->claims);
    else if (object->kind == &kube_kind_secret)
        read_pairs(&((const struct kube_secret *)object)->data);
    else if (object->kind == &kube_kind_class)
        read_pairs(&((const struct kube_class *)object)->parameters);
    else if (object->kind == &kube_kind_capacity)
        read_selector(&((const struct kube_capacity *)object)->topology, &meta->labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct kube_kind *kind = kinds[data[0] % ARRAY_LEN(kinds)];
    const struct kube_decode_options options = {.all_annotations = (data[0] & 0x80) != 0,
                                                .drop_labels = (data[0] & 0x40) != 0};
    json_error_t error;
    json_t *json = json_loadb((const char *)data + 1, size - 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (json == NULL)
        return 0;
    auto_err struct err err = {0};
    auto_unref struct kube_object *object = kube_object_decode(kind, json, &options, &err);
    json_decref(json);
    require((object == NULL) == (err.message != NULL));
    if (object == NULL)
        return 0;
    require(object->kind == kind && object->size >= sizeof(*object)); /* all texts may be well-known ones */
    read_object(object);
    struct kube_store *store = kube_store_new(kind);
    require(kube_store_put(store, object));
    auto_free char *key = kube_object_key(object);
    auto_unref struct kube_object *found = kube_store_get_key(store, key);
    require(found == object);
    kube_store_remove(store, object->meta.namespace_, object->meta.name, "", object->meta.resource_version);
    require(kube_store_len(store) == 0);
    kube_store_free(store);
    return 0;
}
