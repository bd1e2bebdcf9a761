/* SPDX-License-Identifier: Apache-2.0 */
/* create, update, patch and the binding of pods. */
#include "tests/devapi/object.h"
#include "tests/devapi/patch.h"
#include "tests/devapi/tree.h"
#include "tests/devapi/validate.h"

#include "lib/base/mem.h"

#include <string.h>

static void generate_name(struct server *server, json_t *metadata)
{
    static const char letters[] = "bcdfghjklmnpqrstvwxz2456789";
    const char *prefix = tree_text(metadata, "generateName");
    if (tree_has_text(metadata, "name") || str_empty(prefix))
        return;
    auto_str struct str name = {0};
    str_add_len(&name, prefix, strlen(prefix) > 58 ? 58 : strlen(prefix));
    for (int i = 0; i < 5; i++)
        str_add_char(&name, letters[rng_below(server->rng, sizeof(letters) - 1)]);
    tree_set_text(metadata, "name", str_text(&name));
}

/* What the server alone decides. */
static void stamp_new(struct server *server, const struct kind *kind, json_t *object)
{
    static const char *const theirs[] = {"deletionTimestamp", "deletionGracePeriodSeconds", "generation"};
    json_t *metadata = json_object_get(object, "metadata");
    char uid[RNG_UUID_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(theirs); i++)
        json_object_del(metadata, theirs[i]);
    tree_set_text(metadata, "uid", rng_uuid(server->rng, uid));
    json_object_set_new(metadata, "creationTimestamp", server_now(server));
    if (kind_has(kind, KIND_GENERATION))
        json_object_set_new(metadata, "generation", json_integer(1));
    if (kind_has(kind, KIND_STATUS) && !kind_has(kind, KIND_STATUS_ON_CREATE))
        json_object_del(object, "status");
}

/* namespace and name of the body against those of the path. */
static int check_place(const struct request *request, json_t *metadata, struct reply *reply)
{
    const char *namespace = tree_text(metadata, "namespace"), *name = tree_text(metadata, "name");
    if (!request->kind->namespaced) {
        json_object_del(metadata, "namespace");
    } else if (str_empty(namespace)) {
        tree_set_text(metadata, "namespace", request->namespace);
    } else if (strcmp(namespace, request->namespace) != 0) {
        return reply_bad_request(reply, "the namespace of the provided object does not match the namespace sent on the "
                                        "request");
    }
    if (request->name == NULL)
        return 0;
    if (str_empty(name))
        tree_set_text(metadata, "name", request->name);
    else if (strcmp(name, request->name) != 0)
        return reply_bad_request(reply, "the name of the object (%s) does not match the name on the URL (%s)", name,
                                 request->name);
    return 0;
}

static void reply_dry(struct server *server, const struct request *request, int code, json_t *object,
                      struct reply *reply)
{
    (void)server;
    if (request->events_group)
        events_from_core(object);
    reply_tree(reply, code, object);
}

/* Takes the reference to the object. */
static void create_object(struct server *server, const struct request *request, json_t *object, struct reply *reply)
{
    const struct kind *kind = request->kind;
    auto_json json_t *owned = object;
    json_t *metadata = json_object_get(owned, "metadata");
    if (check_place(request, metadata, reply) != 0)
        return;
    if (tree_has_text(metadata, "resourceVersion")) {
        reply_fail(reply, 500, NULL, NULL, NULL, NULL, "resourceVersion should not be set on objects to be created");
        return;
    }
    generate_name(server, metadata);
    stamp_new(server, kind, owned);
    if (object_normalize(server, kind, &owned, true, reply) != 0 || admit_create(server, kind, owned, reply) != 0 ||
        object_validate(server, kind, owned, NULL, reply) != 0)
        return;
    const char *name = tree_text(owned, "metadata.name");
    auto_free char *key = object_key(kind, request->namespace, name);
    auto_str struct str resource = {0};
    if (store_get(server->store, kind, key) != NULL) {
        reply_fail(reply, 409, "AlreadyExists", kind, name, NULL, "%s \"%s\" already exists",
                   kind_resource(kind, &resource), name);
        return;
    }
    if (request_dry_run(request))
        reply_dry(server, request, 201, owned, reply);
    else
        object_reply(server, request, 201, server_put(server, kind, key, owned), reply);
}

void api_create(struct server *server, const struct request *request, struct reply *reply)
{
    if (request->kind->namespaced && request->namespace == NULL) {
        reply_bad_request(reply, "an empty namespace may not be set during creation");
        return;
    }
    json_t *object = object_read(server, request, reply);
    if (object != NULL)
        create_object(server, request, object, reply);
}

/* Members of the metadata that an update never changes. */
static void keep_metadata(json_t *object, const json_t *old)
{
    static const char *const kept[] = {
        "uid",        "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
        "generation", "generateName",      "namespace",         "name"};
    json_t *metadata = json_object_get(object, "metadata");
    const json_t *was = json_object_get(old, "metadata");
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        json_object_del(metadata, kept[i]);
        if (json_object_get(was, kept[i]) != NULL)
            json_object_set(metadata, kept[i], json_object_get(was, kept[i]));
    }
}

/* Through /status only the status changes (and, for built-in kinds, the metadata); else everything but the status. */
static void keep_other_half(const struct request *request, json_t **object, const json_t *old)
{
    const struct kind *kind = request->kind;
    if (str_eq(request->subresource, "status")) {
        json_t *result = json_copy((json_t *)old);
        if (json_object_get(*object, "status") != NULL)
            json_object_set(result, "status", json_object_get(*object, "status"));
        else
            json_object_del(result, "status");
        if (!kind_has(kind, KIND_CUSTOM))
            json_object_set(result, "metadata", json_object_get(*object, "metadata"));
        json_decref(*object);
        *object = result;
    } else if (kind_has(kind, KIND_STATUS) && !str_eq(request->subresource, "finalize")) {
        if (json_object_get(old, "status") != NULL)
            json_object_set(*object, "status", json_object_get(old, "status"));
        else
            json_object_del(*object, "status");
    }
}

static void bump_generation(const struct kind *kind, json_t *object, const json_t *old)
{
    if (!kind_has(kind, KIND_GENERATION))
        return;
    auto_json json_t *now = json_copy(object), *was = json_copy((json_t *)old);
    static const char *const ignored[] = {"metadata", "status", "kind", "apiVersion"};
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++) {
        json_object_del(now, ignored[i]);
        json_object_del(was, ignored[i]);
    }
    if (!json_equal(now, was))
        tree_set(object, "metadata.generation",
                 json_integer(json_integer_value(tree_get(old, "metadata.generation")) + 1));
}

/* The server notes when a volume enters a phase; clients may set the time of a change themselves. */
static void stamp_phase(struct server *server, const struct kind *kind, json_t *object, const json_t *old)
{
    static const char *const field = "status.lastPhaseTransitionTime";
    if (strcmp(kind->plural, "persistentvolumes") != 0 || server->rules.minor < 29)
        return;
    if (tree_same(tree_get(object, "status.phase"), tree_get(old, "status.phase")))
        return;
    if (tree_same(tree_get(object, field), tree_get(old, field)))
        tree_set(object, field, server_now(server));
}

/* A 422 about one field. */
static int refuse_field(const struct request *request, const char *field, const json_t *value, const char *detail,
                        struct reply *reply)
{
    auto_errors struct errors errors = {0};
    errors_add(&errors, ERROR_INVALID, field, value, detail);
    return errors_reply(&errors, reply, request->kind, request->name);
}

/* Checks the preconditions an update carries in its metadata. A patch without a version is applied to whatever is
 * there. */
static int check_preconditions(const struct request *request, const json_t *object, const json_t *old,
                               struct reply *reply)
{
    const char *uid = tree_text(object, "metadata.uid"), *version = tree_text(object, "metadata.resourceVersion");
    const char *old_uid = tree_text(old, "metadata.uid");
    if (!str_empty(uid) && !str_eq(uid, old_uid) && request->verb == VERB_PATCH)
        return refuse_field(request, "metadata.uid", tree_get(object, "metadata.uid"), "field is immutable", reply);
    if (!str_empty(uid) && !str_eq(uid, old_uid))
        return reply_conflict(reply, request->kind, request->name,
                              "StorageError: invalid object, Code: 4, Precondition failed: UID in precondition: %s, "
                              "UID in object meta: %s",
                              uid, old_uid);
    if (str_empty(version)) {
        if (request->verb != VERB_UPDATE || !kind_has(request->kind, KIND_NEEDS_VERSION))
            return 0;
        auto_json json_t *zero = json_integer(0);
        return refuse_field(request, "metadata.resourceVersion", zero, "must be specified for an update", reply);
    }
    return str_eq(version, tree_text(old, "metadata.resourceVersion"))
               ? 0
               : reply_modified(reply, request->kind, request->name);
}

/* The second half of update and patch: `object` is what the client wants (reference taken). */
static void replace_object(struct server *server, const struct request *request, struct version *version,
                           const json_t *old, json_t *object, struct reply *reply)
{
    const struct kind *kind = request->kind;
    auto_json json_t *owned = object;
    if (!json_is_object(json_object_get(owned, "metadata")))
        json_object_set_new(owned, "metadata", json_object());
    if (check_place(request, json_object_get(owned, "metadata"), reply) != 0 ||
        check_preconditions(request, owned, old, reply) != 0)
        return;
    keep_metadata(owned, old);
    tree_set(owned, "metadata.resourceVersion", json_incref(tree_get(old, "metadata.resourceVersion")));
    keep_other_half(request, &owned, old);
    if (object_normalize(server, kind, &owned, false, reply) != 0 ||
        object_validate(server, kind, owned, old, reply) != 0)
        return;
    bump_generation(kind, owned, old);
    stamp_phase(server, kind, owned, old);
    if (request_dry_run(request))
        reply_dry(server, request, 200, owned, reply);
    else if (json_equal(owned, old)) /* nothing changes: no new version */
        object_reply(server, request, 200, version, reply);
    else
        object_reply(server, request, 200, server_put_or_finish(server, kind, version->key, owned), reply);
}

void api_update(struct server *server, const struct request *request, struct reply *reply)
{
    auto_free char *key = object_key(request->kind, request->namespace, request->name);
    auto_json json_t *object = object_read(server, request, reply);
    if (object == NULL)
        return;
    struct version *version = store_get(server->store, request->kind, key);
    if (version == NULL && kind_has(request->kind, KIND_CREATE_ON_UPDATE) && request->subresource == NULL) {
        json_object_del(json_object_get(object, "metadata"), "resourceVersion");
        create_object(server, request, mem_take(object), reply);
        return;
    }
    if (version == NULL) {
        reply_not_found(reply, request->kind, request->name);
        return;
    }
    auto_json json_t *old = version_parse(version);
    replace_object(server, request, version, old, mem_take(object), reply);
}

enum patch_type { PATCH_MERGE, PATCH_JSON, PATCH_STRATEGIC, PATCH_APPLY, PATCH_UNKNOWN };
static const struct {
    const char *content_type;
    enum patch_type type;
} patch_types[] = {
    {"application/merge-patch+json", PATCH_MERGE},
    {"application/json-patch+json", PATCH_JSON},
    {"application/strategic-merge-patch+json", PATCH_STRATEGIC},
    {"application/apply-patch+yaml", PATCH_APPLY},
};

static enum patch_type find_patch_type(const struct request *request)
{
    for (size_t i = 0; i < ARRAY_LEN(patch_types); i++)
        if (request->content_type != NULL && str_starts(request->content_type, patch_types[i].content_type))
            return patch_types[i].type == PATCH_STRATEGIC && kind_has(request->kind, KIND_CUSTOM) ? PATCH_UNKNOWN
                                                                                                  : patch_types[i].type;
    return PATCH_UNKNOWN;
}

static json_t *apply_patch(const struct request *request, enum patch_type type, const json_t *old, const json_t *patch,
                           struct reply *reply)
{
    auto_err struct err err = {0};
    json_t *result = NULL;
    if (type == PATCH_JSON)
        result = patch_json(old, patch, &err);
    else if (!json_is_object(patch))
        err_set(&err, ERR_INVALID, "a patch is an object");
    else
        result = type == PATCH_MERGE || kind_has(request->kind, KIND_CUSTOM)
                     ? patch_merge(old, patch)
                     : patch_strategic(request->kind, old, patch, &err);
    if (result != NULL && !json_is_object(result)) {
        json_decref(result);
        result = NULL;
        err_set(&err, ERR_INVALID, "the patched object is no object");
    }
    if (result == NULL && err_is(&err, ERR_UNPROCESSABLE))
        reply_fail(reply, 422, "Invalid", NULL, NULL, NULL,
                   "the server rejected our request due to an error in our "
                   "request: %s",
                   err_text(&err));
    else if (result == NULL)
        reply_bad_request(reply, "error decoding patch: %s", err_text(&err));
    return result;
}

void api_patch(struct server *server, const struct request *request, struct reply *reply)
{
    enum patch_type type = find_patch_type(request);
    if (type == PATCH_UNKNOWN) {
        reply_fail(reply, 415, "UnsupportedMediaType", NULL, NULL, NULL,
                   "the body of the request was in an unknown format - accepted media types include: "
                   "application/json-patch+json, application/merge-patch+json%s",
                   kind_has(request->kind, KIND_CUSTOM) ? "" : ", application/strategic-merge-patch+json");
        return;
    }
    json_error_t error;
    auto_json json_t *patch = json_loadb(request->body, request->body_len, 0, &error);
    if (patch == NULL) {
        reply_bad_request(reply, "error decoding patch: %s", error.text);
        return;
    }
    auto_free char *key = object_key(request->kind, request->namespace, request->name);
    struct version *version = store_get(server->store, request->kind, key);
    if (version == NULL && type == PATCH_APPLY && request->subresource == NULL) {
        if (!json_is_object(json_object_get(patch, "metadata")))
            json_object_set_new(patch, "metadata", json_object());
        create_object(server, request, mem_take(patch), reply);
        return;
    }
    if (version == NULL) {
        reply_not_found(reply, request->kind, request->name);
        return;
    }
    auto_json json_t *old = version_parse(version);
    json_t *shown = NULL; /* what the patch is applied to: events through their other group are another shape */
    if (request->events_group) {
        shown = json_deep_copy(old);
        events_from_core(shown);
    }
    json_t *object = apply_patch(request, type, shown != NULL ? shown : old, patch, reply);
    json_decref(shown);
    if (object == NULL)
        return;
    if (request->events_group)
        events_to_core(object);
    /* the version in the object is a precondition only when the patch named it */
    if (type != PATCH_JSON && tree_get(patch, "metadata.resourceVersion") == NULL)
        tree_remove(object, "metadata.resourceVersion");
    replace_object(server, request, version, old, object, reply);
}

/* What a scheduler sends: the pod goes to a node. */
void api_bind(struct server *server, const struct request *request, struct reply *reply)
{
    auto_json json_t *binding = json_loadb(request->body, request->body_len, 0, NULL);
    auto_free char *key = object_key(request->kind, request->namespace, request->name);
    struct version *version = store_get(server->store, request->kind, key);
    const char *node = tree_text(binding, "target.name");
    if (version == NULL) {
        reply_not_found(reply, request->kind, request->name);
        return;
    }
    if (str_empty(node)) {
        reply_bad_request(reply, "a binding needs target.name");
        return;
    }
    auto_json json_t *pod = version_parse(version);
    if (tree_has_text(pod, "spec.nodeName")) {
        reply_conflict(reply, request->kind, request->name, "pod %s is already assigned to node \"%s\"", request->name,
                       tree_text(pod, "spec.nodeName"));
        return;
    }
    tree_set_text(pod, "spec.nodeName", node);
    server_put(server, request->kind, key, pod);
    reply_success(reply, request->kind, request->name, tree_text(pod, "metadata.uid"));
    reply->code = 201;
}
