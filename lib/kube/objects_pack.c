/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/objects_pack.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/slab.h"

#include <stdint.h>
#include <stdlib.h>

struct pack_scratch {
    struct pack_scratch *next;
    _Alignas(16) char data[];
};

static void add_path(struct str *out, const struct pack_node *node)
{
    if (node->parent == NULL)
        return;
    add_path(out, node->parent);
    if (node->name == NULL)
        str_addf(out, "[%zu]", node->index);
    else
        str_addf(out, "%s%s", out->len > 0 ? "." : "", node->name);
}

static const char *raw_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

void pack_fail(struct pack *pack, const struct pack_node *node, const char *what)
{
    if (pack->failed)
        return;
    pack->failed = true;
    auto_str struct str path = {0};
    add_path(&path, node);
    const json_t *meta = json_object_get(pack->root->json, "metadata");
    const char *namespace_ = raw_text(meta, "namespace");
    err_set(pack->err, ERR_INVALID, "%s \"%s%s%s\": %s%s%s", pack->kind->kind, namespace_,
            *namespace_ != '\0' ? "/" : "", raw_text(meta, "name"), str_text(&path), path.len > 0 ? ": " : "", what);
}

static const json_t *not_null(const json_t *json)
{
    return json_is_null(json) ? NULL : json;
}

struct pack_node pack_member(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node node = {.parent = of, .name = name};
    if (of->json == NULL)
        return node;
    if (!json_is_object(of->json))
        pack_fail(pack, of, "must be an object");
    else
        node.json = not_null(json_object_get(of->json, name));
    return node;
}

struct pack_node pack_element(const struct pack_node *list, size_t index)
{
    return (struct pack_node){.json = not_null(json_array_get(list->json, index)), .parent = list, .index = index};
}

bool pack_is_object(struct pack *pack, const struct pack_node *node)
{
    if (node->json == NULL)
        return false;
    if (json_is_object(node->json))
        return true;
    pack_fail(pack, node, "must be an object");
    return false;
}

uint32_t pack_list_len(struct pack *pack, const struct pack_node *node)
{
    if (node->json == NULL)
        return 0;
    size_t len = json_array_size(node->json);
    if (!json_is_array(node->json))
        pack_fail(pack, node, "must be a list");
    else if (len > PACK_SIZE_MAX)
        pack_fail(pack, node, "has too many items");
    else
        return (uint32_t)len;
    return 0;
}

static void *scratch_array(struct pack *pack, size_t bytes)
{
    if (bytes <= PACK_ROOM - pack->room_used) {
        void *data = pack->room + pack->room_used;
        pack->room_used += bytes;
        return data;
    }
    struct pack_scratch *scratch = mem_calloc(1, sizeof(*scratch) + bytes);
    scratch->next = pack->scratch;
    pack->scratch = scratch;
    return scratch->data;
}

static void scratch_free(struct pack *pack)
{
    while (pack->scratch != NULL) {
        struct pack_scratch *next = pack->scratch->next;
        free(pack->scratch);
        pack->scratch = next;
    }
}

void *pack_array(struct pack *pack, size_t count, size_t size)
{
    size_t bytes = 0;
    if (count == 0)
        return NULL;
    /* whole words, so that the next array starts aligned */
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PACK_SIZE_MAX) {
        pack_fail(pack, pack->root, "is too large");
        return NULL;
    }
    bytes = (bytes + 7) & ~(size_t)7;
    size_t at = pack->array_bytes;
    pack->array_bytes += bytes;
    if (pack->measuring)
        return scratch_array(pack, bytes);
    if (pack->array_bytes > pack->array_limit) {
        pack->failed = true;
        return NULL;
    }
    return pack->arrays + at;
}

bool pack_bool(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node node = pack_member(pack, of, name);
    if (node.json != NULL && !json_is_boolean(node.json))
        pack_fail(pack, &node, "must be true or false");
    return json_is_true(node.json);
}

int64_t pack_int(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node node = pack_member(pack, of, name);
    if (node.json != NULL && !json_is_integer(node.json))
        pack_fail(pack, &node, "must be an integer");
    return json_integer_value(node.json);
}

/* Times only order things here: an unreadable one is unknown, no reason to lose the object. */
int64_t pack_time(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node node = pack_member(pack, of, name);
    const char *text = json_string_value(node.json);
    int64_t time = 0;
    return text != NULL && clock_parse_rfc3339(text, &time) ? time : 0;
}

bool pack_quantity(struct pack *pack, const struct pack_node *of, const char *name, struct kube_quantity *quantity)
{
    struct pack_node node = pack_member(pack, of, name);
    const char *text = json_string_value(node.json);
    char number[32];
    if (json_is_integer(node.json)) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(node.json));
        text = number;
    } else if (json_is_real(node.json)) {
        snprintf(number, sizeof(number), "%.17g", json_real_value(node.json));
        text = number;
    }
    struct kube_quantity value = {0};
    if (text == NULL || kube_quantity_parse(text, &value, NULL) != 0)
        return false;
    *quantity = value;
    return true;
}

static enum kube_operator operator_of(const char *text)
{
    static const char *const names[] = {
        [KUBE_OP_IN] = "In",         [KUBE_OP_NOT_IN] = "NotIn",
        [KUBE_OP_EXISTS] = "Exists", [KUBE_OP_DOES_NOT_EXIST] = "DoesNotExist",
        [KUBE_OP_GT] = "Gt",         [KUBE_OP_LT] = "Lt",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0)
            return (enum kube_operator)i;
    }
    return KUBE_OP_UNKNOWN;
}

static void fill_requirements(struct pack *pack, const struct pack_node *list, struct kube_requirement *items,
                              uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        struct pack_node element = pack_element(list, i);
        items[i].key = pack_text(pack, &element, "key");
        items[i].operator_text = pack_text(pack, &element, "operator");
        items[i].operator_ = operator_of(items[i].operator_text);
        items[i].values = pack_strings(pack, &element, "values");
    }
}

struct kube_selector pack_requirements(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node list = pack_member(pack, of, name);
    uint32_t len = pack_list_len(pack, &list);
    struct kube_requirement *items = pack_array(pack, len, sizeof(*items));
    if (items == NULL)
        return (struct kube_selector){0};
    fill_requirements(pack, &list, items, len);
    return (struct kube_selector){.items = items, .len = len};
}

struct kube_selector pack_label_selector(struct pack *pack, const struct pack_node *selector)
{
    struct kube_pairs labels = pack_pairs(pack, selector, "matchLabels");
    struct pack_node list = pack_member(pack, selector, "matchExpressions");
    uint32_t len = pack_list_len(pack, &list);
    struct kube_requirement *items = pack_array(pack, (size_t)labels.len + len, sizeof(*items));
    if (items == NULL)
        return (struct kube_selector){0};
    for (uint32_t i = 0; i < labels.len; i++) {
        /* the pair's own value serves as the list of one */
        items[i] = (struct kube_requirement){.key = labels.items[i].key,
                                             .operator_text = "In",
                                             .operator_ = KUBE_OP_IN,
                                             .values = {.items = &labels.items[i].value, .len = 1}};
    }
    fill_requirements(pack, &list, items + labels.len, len);
    return (struct kube_selector){.items = items, .len = labels.len + len};
}

struct kube_reference pack_reference(struct pack *pack, const struct pack_node *node)
{
    return (struct kube_reference){
        .api_version = pack_text(pack, node, "apiVersion"),
        .kind = pack_text(pack, node, "kind"),
        .namespace_ = pack_text(pack, node, "namespace"),
        .name = pack_text(pack, node, "name"),
        .uid = pack_text(pack, node, "uid"),
        .resource_version = pack_text(pack, node, "resourceVersion"),
        .field_path = pack_text(pack, node, "fieldPath"),
    };
}

struct kube_secret_reference pack_secret_reference(struct pack *pack, const struct pack_node *of, const char *name)
{
    struct pack_node node = pack_member(pack, of, name);
    return (struct kube_secret_reference){
        .namespace_ = pack_text(pack, &node, "namespace"),
        .name = pack_text(pack, &node, "name"),
    };
}

/* What the API server allows in any name, so that names may stand in URLs and keys. */
static bool is_path_segment(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strpbrk(name, "/%") == NULL;
}

static void pack_identity(struct pack *pack, const struct pack_node *node, struct kube_meta *meta)
{
    struct pack_node name = pack_member(pack, node, "name");
    struct pack_node namespace_ = pack_member(pack, node, "namespace");
    struct pack_node version = pack_member(pack, node, "resourceVersion");
    meta->name = pack_text(pack, node, "name");
    meta->namespace_ = pack->kind->namespaced ? pack_text(pack, node, "namespace") : "";
    meta->uid = pack_text(pack, node, "uid");
    if (*meta->name == '\0')
        pack_fail(pack, &name, "must not be empty");
    if (!is_path_segment(meta->name))
        pack_fail(pack, &name, "is no name");
    if (!is_path_segment(meta->namespace_))
        pack_fail(pack, &namespace_, "is no name");
    if (version.json == NULL)
        return;
    if (!json_is_string(version.json) || !str_parse_u64(json_string_value(version.json), &meta->resource_version))
        pack_fail(pack, &version, "must be a decimal number in a string");
}

static void pack_owners(struct pack *pack, const struct pack_node *node, struct kube_meta *meta)
{
    struct pack_node list = pack_member(pack, node, "ownerReferences");
    uint32_t len = pack_list_len(pack, &list);
    struct kube_owner *owners = pack_array(pack, len, sizeof(*owners));
    for (uint32_t i = 0; i < len && owners != NULL; i++) {
        struct pack_node element = pack_element(&list, i);
        owners[i] = (struct kube_owner){
            .api_version = pack_text(pack, &element, "apiVersion"),
            .kind = pack_text(pack, &element, "kind"),
            .name = pack_text(pack, &element, "name"),
            .uid = pack_text(pack, &element, "uid"),
            .controller = pack_bool(pack, &element, "controller"),
        };
    }
    meta->owners = owners;
    meta->owner_count = owners != NULL ? len : 0;
}

void pack_meta(struct pack *pack, const struct pack_node *root, struct kube_meta *meta)
{
    struct pack_node node = pack_member(pack, root, "metadata");
    pack_identity(pack, &node, meta);
    meta->generate_name = pack_text(pack, &node, "generateName");
    meta->creation_time = pack_time(pack, &node, "creationTimestamp");
    struct pack_node deletion = pack_member(pack, &node, "deletionTimestamp");
    meta->deleting = deletion.json != NULL;
    if (!pack->options->drop_labels)
        meta->labels = pack_pairs(pack, &node, "labels");
    meta->annotations = pack_annotations(pack, &node, "annotations");
    meta->finalizers = pack_strings(pack, &node, "finalizers");
    pack_owners(pack, &node, meta);
}

/* Items of a list carry no kind; a Status in place of the object does. */
static void check_kind(struct pack *pack, const struct pack_node *root)
{
    struct pack_node kind = pack_member(pack, root, "kind");
    if (kind.json != NULL && !str_eq(json_string_value(kind.json), pack->kind->kind))
        pack_fail(pack, &kind, "is of another kind");
}

static void walk(struct pack *pack, const struct pack_node *root, pack_fill fill, struct kube_object *object)
{
    check_kind(pack, root);
    pack_meta(pack, root, &object->meta);
    fill(pack, root, object);
}

struct kube_object *pack_decode(const struct kube_kind *kind, size_t struct_size, pack_fill fill, const json_t *json,
                                const struct kube_decode_options *options, struct err *err)
{
    static const struct kube_decode_options defaults = {0};
    struct pack_node root = {.json = not_null(json)};
    struct pack measure = {
        .kind = kind, .options = options != NULL ? options : &defaults, .err = err, .root = &root, .measuring = true};
    if (!json_is_object(json)) {
        pack_fail(&measure, &root, "must be an object");
        return NULL;
    }
    auto_free struct kube_object *draft = mem_calloc(1, struct_size);
    walk(&measure, &root, fill, draft);
    scratch_free(&measure);
    size_t size = struct_size + measure.array_bytes + measure.string_bytes;
    if (size > PACK_SIZE_MAX)
        pack_fail(&measure, &root, "is too large");
    if (measure.failed)
        return NULL;

    struct kube_object *object = slab_alloc(size);
    object->size = (uint32_t)size;
    struct pack pack = {.kind = kind,
                        .options = measure.options,
                        .err = err,
                        .root = &root,
                        .arrays = (char *)object + struct_size,
                        .array_limit = measure.array_bytes,
                        .strings = (char *)object + struct_size + measure.array_bytes,
                        .string_limit = measure.string_bytes};
    object->kind = kind;
    atomic_init(&object->refs, 1);
    walk(&pack, &root, fill, object);
    if (!pack.failed && pack.array_bytes == measure.array_bytes && pack.string_bytes == measure.string_bytes)
        return object;
    kube_object_unref(object);
    err_set(err, ERR_INTERNAL, "%s: two walks over one object gave two sizes", kind->kind);
    return NULL;
}
