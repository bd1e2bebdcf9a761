/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/record.h"

#include "lib/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RECORD_VERSION 1
#define EARLIER_MAX 8 /* requests that differ, one after the other, without an answer to any of them */

static void json_cleanup(json_t **json)
{
    json_decref(*json);
}
#define auto_json __attribute__((cleanup(json_cleanup)))

static json_t *strings_to_json(const struct kube_strings *strings)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < strings->len; i++)
        json_array_append_new(list, json_string(strings->items[i]));
    return list;
}

static json_t *chosen_pairs(const struct kube_pairs *pairs, const struct strv *keys)
{
    json_t *object = json_object();
    for (size_t i = 0; i < keys->len; i++) {
        const char *value = kube_pairs_get(pairs, keys->items[i]);
        if (value != NULL)
            json_object_set_new(object, keys->items[i], json_string(value));
    }
    return object;
}

static json_t *claim_to_json(const struct provision_config *config, const struct kube_claim *claim)
{
    const struct kube_meta *meta = &claim->object.meta;
    char version[24];
    snprintf(version, sizeof(version), "%" PRIu64, meta->resource_version);
    json_t *json = json_pack(
        "{s:s, s:s, s:{s:s, s:s, s:s, s:s, s:o, s:o}, s:{s:o, s:{s:{s:s}}}}", "apiVersion", "v1", "kind",
        "PersistentVolumeClaim", "metadata", "namespace", meta->namespace_, "name", meta->name, "uid", meta->uid,
        "resourceVersion", version, "annotations", chosen_pairs(&meta->annotations, &config->copy_claim_annotations),
        "labels", chosen_pairs(&meta->labels, &config->copy_claim_labels), "spec", "accessModes",
        strings_to_json(&claim->access_modes), "resources", "requests", "storage", claim->request_text);
    json_t *spec = json_object_get(json, "spec");
    if (claim->volume_mode != NULL)
        json_object_set_new(spec, "volumeMode", json_string(claim->volume_mode));
    if (claim->class_name != NULL)
        json_object_set_new(spec, "storageClassName", json_string(claim->class_name));
    return json;
}

static json_t *class_to_json(const struct kube_class *class_)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:o}", "apiVersion", "storage.k8s.io/v1", "kind",
                     "StorageClass", "metadata", "name", class_->object.meta.name, "uid", class_->object.meta.uid,
                     "provisioner", class_->provisioner, "reclaimPolicy", class_->reclaim_policy, "mountOptions",
                     strings_to_json(&class_->mount_options));
}

static char *pack_message(const Csi__V1__CreateVolumeRequest *csi)
{
    Csi__V1__CreateVolumeRequest message = *csi;
    message.n_secrets = 0; /* never written down: the reference is */
    message.secrets = NULL;
    size_t len = csi__v1__create_volume_request__get_packed_size(&message);
    auto_free unsigned char *data = mem_alloc(len + 1);
    csi__v1__create_volume_request__pack(&message, data);
    return str_base64_encode(data, len);
}

char *record_encode(const struct provision_config *config, const struct provision_request *request, const char *earlier)
{
    auto_free char *message = pack_message(&request->csi);
    json_t *secrets = json_array();
    for (int kind = 0; kind < SECRET_KIND_COUNT; kind++) {
        const struct secret_reference *reference = &request->secrets[kind];
        json_array_append_new(secrets, reference->name != NULL
                                           ? json_pack("[s, s]", reference->namespace_, reference->name)
                                           : json_null());
    }
    auto_json json_t *json =
        json_pack("{s:i, s:s, s:s, s:b, s:b, s:b, s:o, s:o, s:o, s:s}", "version", RECORD_VERSION, "volume",
                  request->volume_name, "fsType", request->fs_type, "block", request->block, "readOnly",
                  request->read_only, "echoSource", request->source_must_be_echoed, "secrets", secrets, "claim",
                  claim_to_json(config, request->claim), "class", class_to_json(request->class_), "request", message);
    if (request->attributes_class != NULL)
        json_object_set_new(json, "attributesClass", json_string(request->attributes_class));
    if (request->selected_node != NULL)
        json_object_set_new(json, "selectedNode", json_string(request->selected_node));
    if (request->unwanted)
        json_object_set_new(json, "unwanted", json_true());
    if (earlier != NULL)
        json_object_set_new(json, "earlier", json_loads(earlier, 0, NULL));
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    return text != NULL ? text : mem_strdup("");
}

static bool is_same_message(const json_t *record, const char *message)
{
    return str_eq(json_string_value(json_object_get(record, "request")), message);
}

char *record_earlier(const char *previous, bool open, const struct provision_request *request)
{
    auto_json json_t *json = previous != NULL ? json_loads(previous, 0, NULL) : NULL;
    auto_free char *message = pack_message(&request->csi);
    json_t *first = open ? json : json_object_get(json, "earlier");
    while (first != NULL && is_same_message(first, message))
        first = json_object_get(first, "earlier");
    json_t *last = first;
    for (int i = 1; last != NULL && i < EARLIER_MAX; i++)
        last = json_object_get(last, "earlier");
    json_object_del(last, "earlier");
    return first != NULL ? json_dumps(first, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
}

void record_clear(struct record *record)
{
    provision_request_clear(&record->request);
    csi_message_free(record->message);
    kube_object_unref(record->claim != NULL ? &record->claim->object : NULL);
    kube_object_unref(record->class_ != NULL ? &record->class_->object : NULL);
    free(record->earlier);
    *record = (struct record){0};
}

static int decode_message(const json_t *json, struct record *record, struct err *err)
{
    const char *text = json_string_value(json_object_get(json, "request"));
    size_t len = 0;
    auto_free unsigned char *data = text != NULL ? str_base64_decode(text, strlen(text), &len) : NULL;
    record->message = data != NULL ? csi__v1__create_volume_request__unpack(NULL, len, data) : NULL;
    if (record->message == NULL)
        return err_set(err, ERR_INVALID, "the record's request cannot be read");
    if (str_empty(record->message->name) || record->message->capacity_range == NULL)
        return err_set(err, ERR_INVALID, "the record's request is incomplete");
    record->request.csi = *record->message;
    record->request.csi.n_secrets = 0; /* ours has none; whatever somebody else put there is not sent */
    record->request.csi.secrets = NULL;
    return 0;
}

static void decode_secrets(const json_t *json, struct provision_request *request)
{
    const json_t *list = json_object_get(json, "secrets");
    for (int kind = 0; kind < SECRET_KIND_COUNT; kind++) {
        const json_t *pair = json_array_get(list, (size_t)kind);
        const char *namespace_ = json_string_value(json_array_get(pair, 0));
        const char *name = json_string_value(json_array_get(pair, 1));
        if (namespace_ != NULL && name != NULL)
            request->secrets[kind] =
                (struct secret_reference){.namespace_ = csi_arena_strdup(&request->arena, namespace_),
                                          .name = csi_arena_strdup(&request->arena, name)};
    }
}

static const char *optional_text(const json_t *json, const char *key, struct csi_arena *arena)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text != NULL ? csi_arena_strdup(arena, text) : NULL;
}

static int decode(const json_t *json, struct record *record, struct err *err)
{
    const struct kube_decode_options all = {.all_annotations = true};
    struct provision_request *request = &record->request;
    if (json_integer_value(json_object_get(json, "version")) != RECORD_VERSION)
        return err_set(err, ERR_INVALID, "the record is of a version that this program does not know");
    record->claim =
        (struct kube_claim *)kube_object_decode(&kube_kind_claim, json_object_get(json, "claim"), &all, err);
    record->class_ =
        record->claim == NULL
            ? NULL
            : (struct kube_class *)kube_object_decode(&kube_kind_class, json_object_get(json, "class"), &all, err);
    if (record->class_ == NULL || decode_message(json, record, err) < 0)
        return -1;
    request->claim = record->claim;
    request->class_ = record->class_;
    request->volume_name = optional_text(json, "volume", &request->arena);
    request->fs_type = csi_arena_strdup(&request->arena, json_string_value(json_object_get(json, "fsType")));
    request->attributes_class = optional_text(json, "attributesClass", &request->arena);
    request->selected_node = optional_text(json, "selectedNode", &request->arena);
    request->block = json_is_true(json_object_get(json, "block"));
    request->read_only = json_is_true(json_object_get(json, "readOnly"));
    request->source_must_be_echoed = json_is_true(json_object_get(json, "echoSource"));
    request->unwanted = json_is_true(json_object_get(json, "unwanted"));
    decode_secrets(json, request);
    const json_t *earlier = json_object_get(json, "earlier");
    record->earlier = earlier != NULL ? json_dumps(earlier, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (str_empty(request->volume_name) || str_empty(record->claim->object.meta.uid))
        return err_set(err, ERR_INVALID, "the record names no volume or no claim");
    return 0;
}

int record_decode(const char *text, struct record *record, struct err *err)
{
    *record = (struct record){0};
    json_error_t where;
    auto_json json_t *json = json_loads(text, 0, &where);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "the record is no JSON: %s", where.text);
    if (decode(json, record, err) < 0) {
        record_clear(record);
        return -1;
    }
    return 0;
}
