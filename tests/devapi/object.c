/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/object.h"

#include "lib/base/mem.h"
#include "tests/devapi/controllers.h"
#include "tests/devapi/protobuf.h"
#include "tests/devapi/quantity.h"
#include "tests/devapi/render.h"
#include "tests/devapi/tree.h"
#include "tests/devapi/validate.h"

#include <string.h>

char *object_key(const struct kind *kind, const char *namespace, const char *name)
{
    return kind->namespaced ? mem_printf("%s/%s", namespace != NULL ? namespace : "", name) : mem_strdup(name);
}

json_t *server_now(struct server *server)
{
    char text[CLOCK_TEXT_SIZE];
    return json_string(clock_format_rfc3339(clock_wall(server->clock), false, text));
}

struct version *server_put(struct server *server, const struct kind *kind, const char *key, json_t *object)
{
    struct version *old = store_get(server->store, kind, key);
    if (old != NULL)
        version_ref(old);
    struct version *version = store_put(server->store, kind, key, object);
    controllers_changed(server, version, old);
    version_unref(old);
    return version;
}

struct version *server_remove(struct server *server, const struct kind *kind, const char *key, json_t *object)
{
    struct version *last = store_remove(server->store, kind, key, object);
    if (last != NULL)
        controllers_removed(server, last);
    return last;
}

/* A terminating pod waits for its kubelet unless the grace period is 0. */
static bool is_finished(const json_t *object)
{
    return tree_get(object, "metadata.deletionTimestamp") != NULL &&
           json_array_size(tree_get(object, "metadata.finalizers")) == 0 &&
           json_integer_value(tree_get(object, "metadata.deletionGracePeriodSeconds")) == 0;
}

struct version *server_put_or_finish(struct server *server, const struct kind *kind, const char *key, json_t *object)
{
    bool namespace_holds = str_eq(kind->kind, "Namespace") && json_array_size(tree_get(object, "spec.finalizers")) > 0;
    return is_finished(object) && !namespace_holds ? server_remove(server, kind, key, object)
                                                   : server_put(server, kind, key, object);
}

/* Whether the body claims to be what the path says. Clients may leave out both. */
static int check_type(const struct request *request, const json_t *object, struct reply *reply)
{
    const char *kind = tree_text(object, "kind"), *api_version = tree_text(object, "apiVersion");
    auto_free char *expected =
        *request->group != '\0' ? mem_printf("%s/%s", request->group, request->version) : mem_strdup(request->version);
    if ((str_empty(kind) || strcmp(kind, request->kind->kind) == 0) &&
        (str_empty(api_version) || strcmp(api_version, expected) == 0))
        return 0;
    return reply_bad_request(
        reply, "the API version or kind in the data (%s, %s) does not match the expected one (%s, %s)",
        api_version != NULL ? api_version : "", kind != NULL ? kind : "", expected, request->kind->kind);
}

/* The body as a tree, whatever its encoding; NULL with the reply filled. */
static json_t *decode_body(const struct request *request, struct reply *reply)
{
    auto_err struct err err = {0};
    json_error_t error;
    const char *type = request->content_type;
    json_t *object = NULL;
    if (protobuf_is_object(request->body, request->body_len)) {
        object = protobuf_decode_object(request->body, request->body_len, &err);
        if (object == NULL)
            reply_fail(reply, 415, "UnsupportedMediaType", NULL, NULL, NULL, "%s", err_text(&err));
        return object;
    }
    if (type != NULL && strstr(type, "json") == NULL && strstr(type, "yaml") == NULL && !str_starts(type, "*/*")) {
        reply_fail(reply, 415, "UnsupportedMediaType", NULL, NULL, NULL,
                   "the body of the request was in an unknown format - accepted media types include: application/json");
        return NULL;
    }
    object = json_loadb(request->body, request->body_len, 0, &error);
    if (json_is_object(object))
        return object;
    reply_bad_request(reply,
                      "the object provided is unrecognized (must be of type %s): couldn't get version/kind; json parse "
                      "error: %s",
                      request->kind->kind, object == NULL ? error.text : "not an object");
    json_decref(object);
    return NULL;
}

json_t *object_read(struct server *server, const struct request *request, struct reply *reply)
{
    (void)server;
    auto_json json_t *object = decode_body(request, reply);
    if (object == NULL || check_type(request, object, reply) != 0)
        return NULL;
    if (!json_is_object(json_object_get(object, "metadata")))
        json_object_set_new(object, "metadata", json_object());
    if (request->events_group)
        events_to_core(object);
    return mem_take(object);
}

static const char *const metadata_zero[] = {
    "metadata.labels",
    "metadata.annotations",
    "metadata.finalizers",
    "metadata.ownerReferences",
    "metadata.namespace",
    "metadata.generateName",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.selfLink",
    NULL,
};

static void drop_zero(json_t *object, const char *const *paths)
{
    for (; paths != NULL && *paths != NULL; paths++) {
        const json_t *value = tree_get(object, *paths);
        if (value != NULL && tree_is_zero(value))
            tree_remove(object, *paths);
    }
}

int object_normalize(struct server *server, const struct kind *kind, json_t **object, bool create, struct reply *reply)
{
    auto_err struct err err = {0};
    json_t *from = *object, *value, *to = json_object();
    const char *key;
    auto_free char *api_version = kind_api_version(kind, catalog_storage_version(&server->catalog, kind));
    tree_set_text(to, "kind", kind->kind);
    tree_set_text(to, "apiVersion", api_version);
    json_object_set(to, "metadata", json_object_get(from, "metadata"));
    json_object_foreach (from, key, value) {
        if (json_object_get(to, key) == NULL)
            json_object_set(to, key, value);
    }
    json_decref(from);
    *object = to;
    tree_strip_nulls(to);
    json_object_del(json_object_get(to, "metadata"), "managedFields");
    json_object_del(json_object_get(to, "metadata"), "selfLink");
    drop_zero(to, metadata_zero);
    if (!kind_has(kind, KIND_CUSTOM) && quantity_canonicalize(to, &err) != 0)
        return reply_bad_request(reply, "%s in version \"%s\" cannot be handled as a %s: %s", kind->kind, api_version,
                                 kind->kind, err_text(&err));
    drop_zero(to, kind->drop_zero);
    if (kind->defaults != NULL)
        kind->defaults(to, &server->rules, create);
    return 0;
}

int object_validate(struct server *server, const struct kind *kind, const json_t *object, const json_t *old,
                    struct reply *reply)
{
    auto_errors struct errors errors = {0};
    validate_metadata(kind, object, &errors);
    if (kind->validate != NULL)
        kind->validate(object, &server->rules, &errors);
    if (old != NULL) {
        validate_metadata_update(object, old, &errors);
        if (kind->validate_update != NULL)
            kind->validate_update(object, old, &server->rules, &errors);
    }
    return errors_reply(&errors, reply, kind, tree_text(object, "metadata.name"));
}

void object_reply(struct server *server, const struct request *request, int code, struct version *version,
                  struct reply *reply)
{
    struct rendering rendering;
    rendering_init(&rendering, &server->catalog, request);
    if (rendering_is_plain(&rendering)) {
        reply_object(reply, code, version);
    } else {
        version_ref(version);
        reply_reset(reply);
        reply->code = code;
        render_object(&rendering, version, &reply->body);
        str_add_char(&reply->body, '\n');
        version_unref(version);
    }
    rendering_free(&rendering);
}

static int admit_namespace(struct server *server, const struct kind *kind, const json_t *object, struct reply *reply)
{
    const struct kind *namespaces = kind_by_name("Namespace", "");
    const char *name = tree_text(object, "metadata.namespace");
    const struct version *version = name != NULL ? store_get(server->store, namespaces, name) : NULL;
    if (version == NULL)
        return reply_not_found(reply, namespaces, name != NULL ? name : "");
    auto_str struct str resource = {0};
    if (version->deleting)
        return reply_fail(reply, 403, "Forbidden", kind, tree_text(object, "metadata.name"), NULL,
                          "%s \"%s\" is forbidden: unable to create new content in namespace %s because it is being "
                          "terminated",
                          kind_resource(kind, &resource), tree_text(object, "metadata.name"), name);
    return 0;
}

/* Only the count of pods, from what spec.hard and status.used say. */
static int admit_quota(struct server *server, const struct kind *kind, const json_t *object, struct reply *reply)
{
    if (strcmp(kind->plural, "pods") != 0)
        return 0;
    const struct kind *quotas = kind_by_name("ResourceQuota", "");
    auto_free char *prefix = mem_printf("%s/", tree_text(object, "metadata.namespace"));
    for (struct store_item *item = store_seek(server->store, quotas, prefix); item != NULL; item = store_next(item)) {
        const struct version *version = store_item_version(item);
        if (!str_starts(version->key, prefix))
            break;
        auto_json json_t *quota = version_parse(version);
        const char *hard = tree_text(quota, "status.hard.pods"), *used = tree_text(quota, "status.used.pods");
        int64_t limit = 0, count = 0;
        if (hard == NULL || !str_parse_i64(hard, &limit) || (used != NULL && !str_parse_i64(used, &count)))
            continue;
        if (count + 1 > limit)
            return reply_fail(reply, 403, "Forbidden", kind, tree_text(object, "metadata.name"), NULL,
                              "pods \"%s\" is forbidden: exceeded quota: %s, requested: pods=1, used: pods=%s, "
                              "limited: pods=%s",
                              tree_text(object, "metadata.name"), version->name, used != NULL ? used : "0", hard);
    }
    return 0;
}

static bool is_default_class(const json_t *class)
{
    const json_t *annotations = tree_get(class, "metadata.annotations");
    return str_eq(json_string_value(json_object_get(annotations, "storageclass.kubernetes.io/is-default-class")),
                  "true") ||
           str_eq(json_string_value(json_object_get(annotations, "storageclass.beta.kubernetes.io/is-default-class")),
                  "true");
}

/* Of several default classes the newest wins, then the first by name. */
static void admit_default_class(struct server *server, const struct kind *kind, json_t *object)
{
    static const char *const beta = "volume.beta.kubernetes.io/storage-class";
    if (!server->rules.default_class || strcmp(kind->plural, "persistentvolumeclaims") != 0 ||
        tree_get(object, "spec.storageClassName") != NULL ||
        json_object_get(tree_get(object, "metadata.annotations"), beta) != NULL)
        return;
    const struct kind *classes = kind_by_name("StorageClass", "storage.k8s.io");
    auto_free char *best = NULL, *best_time = mem_strdup("");
    for (struct store_item *item = store_seek(server->store, classes, ""); item != NULL; item = store_next(item)) {
        auto_json json_t *class = version_parse(store_item_version(item));
        const char *created = tree_text(class, "metadata.creationTimestamp");
        if (!is_default_class(class) || created == NULL || (best != NULL && strcmp(created, best_time) <= 0))
            continue;
        free(best);
        free(best_time);
        best = mem_strdup(tree_text(class, "metadata.name"));
        best_time = mem_strdup(created);
    }
    if (best != NULL)
        tree_set_text(object, "spec.storageClassName", best);
}

int admit_create(struct server *server, const struct kind *kind, json_t *object, struct reply *reply)
{
    if (kind->namespaced && admit_namespace(server, kind, object, reply) != 0)
        return -1;
    admit_default_class(server, kind, object);
    return admit_quota(server, kind, object, reply);
}
