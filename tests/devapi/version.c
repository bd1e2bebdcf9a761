/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/version.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <string.h>

/* Collects strings first and lays them out behind the struct in one block: a hundred thousand objects stay small. */
struct layout {
    const char **texts;
    size_t count, cap;
};

static size_t layout_add(struct layout *layout, const char *text)
{
    if (layout->count == layout->cap) {
        layout->cap = layout->cap > 0 ? layout->cap * 2 : 32;
        layout->texts = mem_realloc_array(layout->texts, layout->cap, sizeof(*layout->texts));
    }
    layout->texts[layout->count] = text;
    return layout->count++;
}

static size_t add_labels(struct layout *layout, const json_t *object)
{
    size_t at = layout->count;
    const char *key;
    json_t *value;
    json_object_foreach (tree_get(object, "metadata.labels"), key, value) {
        layout_add(layout, key);
        layout_add(layout, json_is_string(value) ? json_string_value(value) : "");
    }
    layout_add(layout, NULL);
    return at;
}

static const char *field_text(const json_t *object, const char *field)
{
    const char *path = strchr(field, '=');
    const json_t *value = tree_get(object, path != NULL ? path + 1 : field);
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    return "";
}

static size_t add_fields(struct layout *layout, const struct kind *kind, const json_t *object)
{
    size_t at = layout->count;
    for (size_t i = 0; i < KIND_FIELDS && kind->fields[i] != NULL; i++)
        layout_add(layout, field_text(object, kind->fields[i]));
    layout_add(layout, NULL);
    return at;
}

static size_t add_owners(struct layout *layout, const json_t *object)
{
    size_t at = layout->count, i;
    json_t *owner;
    json_array_foreach (tree_get(object, "metadata.ownerReferences"), i, owner) {
        const char *uid = tree_text(owner, "uid");
        if (uid != NULL)
            layout_add(layout, uid);
    }
    layout_add(layout, NULL);
    return at;
}

static size_t add_finalizers(struct layout *layout, const json_t *object)
{
    size_t at = layout->count, i;
    json_t *item;
    json_array_foreach (tree_get(object, "metadata.finalizers"), i, item) {
        if (json_is_string(item))
            layout_add(layout, json_string_value(item));
    }
    layout_add(layout, NULL);
    return at;
}

/* A generic ephemeral volume's claim is named after pod and volume. */
static size_t add_claims(struct layout *layout, const struct kind *kind, const json_t *object, struct strv *made)
{
    size_t at = layout->count, i;
    json_t *volume;
    if (strcmp(kind->plural, "pods") == 0) {
        const char *pod = tree_text(object, "metadata.name");
        json_array_foreach (tree_get(object, "spec.volumes"), i, volume) {
            const char *claim = tree_text(volume, "persistentVolumeClaim.claimName");
            const char *name = tree_text(volume, "name");
            if (claim == NULL && tree_get(volume, "ephemeral") != NULL && pod != NULL && name != NULL) {
                strv_add_take(made, mem_printf("%s-%s", pod, name));
                claim = made->items[made->len - 1];
            }
            if (claim != NULL)
                layout_add(layout, claim);
        }
    }
    layout_add(layout, NULL);
    return at;
}

static size_t list_offset(const json_t *object, const char *json)
{
    const char *kind = tree_text(object, "kind"), *api_version = tree_text(object, "apiVersion");
    if (kind == NULL || api_version == NULL)
        return 0;
    auto_free char *prefix = mem_printf("{\"kind\":\"%s\",\"apiVersion\":\"%s\",", kind, api_version);
    return str_starts(json, prefix) ? strlen(prefix) : 0;
}

struct version *version_new(const struct kind *kind, const char *key, uint64_t resource_version, const json_t *object)
{
    struct layout layout = {0};
    auto_strv struct strv made = {0};
    size_t labels = add_labels(&layout, object), fields = add_fields(&layout, kind, object);
    size_t owners = add_owners(&layout, object), claims = add_claims(&layout, kind, object, &made);
    size_t finalizers = add_finalizers(&layout, object);
    const char *uid = tree_text(object, "metadata.uid");
    size_t uid_at = layout_add(&layout, uid != NULL ? uid : "");
    const char *slash = kind->namespaced ? strchr(key, '/') : NULL;
    size_t namespace_len = slash != NULL ? (size_t)(slash - key) : 0;
    auto_free char *json = json_dumps(object, JSON_COMPACT);
    size_t json_len = json != NULL ? strlen(json) : 0;
    size_t key_len = strlen(key), bytes = 0;
    for (size_t i = 0; i < layout.count; i++)
        bytes += layout.texts[i] != NULL ? strlen(layout.texts[i]) + 1 : 0;

    struct version *version = mem_alloc(sizeof(*version) + layout.count * sizeof(char *) + bytes + key_len + 1 +
                                        namespace_len + 1 + json_len + 1);
    const char **pointers = (const char **)(version + 1);
    char *at = (char *)(pointers + layout.count);
    for (size_t i = 0; i < layout.count; i++) {
        pointers[i] = NULL;
        if (layout.texts[i] == NULL)
            continue;
        size_t len = strlen(layout.texts[i]) + 1;
        pointers[i] = memcpy(at, layout.texts[i], len);
        at += len;
    }
    char *key_copy = memcpy(at, key, key_len + 1);
    at += key_len + 1;
    char *namespace_copy = memcpy(at, key, namespace_len);
    namespace_copy[namespace_len] = '\0';
    at += namespace_len + 1;
    memcpy(at, json != NULL ? json : "", json_len + 1);
    free(layout.texts);
    *version = (struct version){
        .refs = 1,
        .resource_version = resource_version,
        .kind = kind,
        .key = key_copy,
        .namespace = namespace_copy,
        .name = slash != NULL ? key_copy + namespace_len + 1 : key_copy,
        .uid = pointers[uid_at],
        .labels = pointers + labels,
        .fields = pointers + fields,
        .owners = pointers + owners,
        .claims = pointers + claims,
        .finalizers = pointers + finalizers,
        .deleting = tree_get(object, "metadata.deletionTimestamp") != NULL,
        .json = at,
        .json_len = json_len,
        .list_offset = list_offset(object, at),
    };
    return version;
}

struct version *version_ref(struct version *version)
{
    version->refs++;
    return version;
}

void version_unref(struct version *version)
{
    if (version != NULL && --version->refs == 0)
        free(version);
}

json_t *version_parse(const struct version *version)
{
    return json_loadb(version->json, version->json_len, 0, NULL);
}
