/* SPDX-License-Identifier: Apache-2.0 */
/* delete and deletecollection: preconditions, finalizers, grace and propagation. */
#include "tests/devapi/object.h"
#include "tests/devapi/selector.h"
#include "tests/devapi/tree.h"

#include "lib/base/mem.h"

#include <string.h>

enum { DEFAULT_GRACE_SECONDS = 30 };

static int check_preconditions(const struct version *version, const json_t *options, struct reply *reply)
{
    const char *uid = tree_text(options, "preconditions.uid");
    const char *resource_version = tree_text(options, "preconditions.resourceVersion");
    char have[24];
    (void)snprintf(have, sizeof(have), "%llu", (unsigned long long)version->resource_version);
    if (uid != NULL && strcmp(uid, version->uid) != 0)
        return reply_conflict(reply, version->kind, version->name,
                              "the UID in the precondition (%s) does not match the UID in record (%s). The object "
                              "might have been deleted and then recreated",
                              uid, version->uid);
    if (resource_version != NULL && strcmp(resource_version, have) != 0)
        return reply_conflict(reply, version->kind, version->name,
                              "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in "
                              "record (%s). The object might have been modified",
                              resource_version, have);
    return 0;
}

/* Pods on a node are stopped by a kubelet first; everything else goes at once. */
static int64_t grace_of(const struct kind *kind, const json_t *object, const json_t *options)
{
    const char *phase = tree_text(object, "status.phase");
    if (strcmp(kind->plural, "pods") != 0 || !tree_has_text(object, "spec.nodeName") || str_eq(phase, "Succeeded") ||
        str_eq(phase, "Failed"))
        return 0;
    const json_t *asked = tree_get(options, "gracePeriodSeconds");
    const json_t *own = tree_get(object, "spec.terminationGracePeriodSeconds");
    if (asked != NULL)
        return json_integer_value(asked);
    return own != NULL ? json_integer_value(own) : DEFAULT_GRACE_SECONDS;
}

static bool has_finalizer(const json_t *object, const char *finalizer)
{
    size_t i;
    json_t *item;
    json_array_foreach (tree_get(object, "metadata.finalizers"), i, item) {
        if (str_eq(json_string_value(item), finalizer))
            return true;
    }
    return false;
}

/* Foreground and Orphan are finalizers that the owner controller removes once the dependents are dealt with. */
static void add_propagation(json_t *object, const json_t *options)
{
    const char *policy = tree_text(options, "propagationPolicy");
    const char *finalizer = str_eq(policy, "Foreground") ? "foregroundDeletion"
                            : str_eq(policy, "Orphan") || tree_is_true(options, "orphanDependents") ? "orphan"
                                                                                                    : NULL;
    if (finalizer == NULL || has_finalizer(object, finalizer))
        return;
    tree_default(object, "metadata.finalizers", json_array());
    json_array_append_new(tree_get(object, "metadata.finalizers"), json_string(finalizer));
}

/* Returns whether something changed. A second delete may only shorten the grace period. */
static bool mark(struct server *server, json_t *object, int64_t grace)
{
    const json_t *had = tree_get(object, "metadata.deletionGracePeriodSeconds");
    if (tree_get(object, "metadata.deletionTimestamp") != NULL && had != NULL && json_integer_value(had) <= grace)
        return false;
    char text[CLOCK_TEXT_SIZE];
    clock_format_rfc3339(clock_wall(server->clock) + grace * CLOCK_SECOND, false, text);
    tree_set_text(object, "metadata.deletionTimestamp", text);
    tree_set(object, "metadata.deletionGracePeriodSeconds", json_integer(grace));
    return true;
}

int delete_object(struct server *server, const struct kind *kind, struct version *version, const json_t *options,
                  bool dry_run, struct reply *reply)
{
    if (check_preconditions(version, options, reply) != 0)
        return -1;
    auto_json json_t *object = version_parse(version);
    auto_json json_t *before = json_deep_copy(object);
    bool namespace = strcmp(kind->kind, "Namespace") == 0;
    add_propagation(object, options);
    int64_t grace = grace_of(kind, object, options);
    bool held = json_array_size(tree_get(object, "metadata.finalizers")) > 0 || grace > 0 || namespace;
    if (held) {
        mark(server, object, grace);
        if (namespace)
            tree_set_text(object, "status.phase", "Terminating");
    }
    if (dry_run) {
        reply_tree(reply, 200, object);
        return 0;
    }
    struct version *now = version;
    if (!held)
        now = server_remove(server, kind, version->key, object);
    else if (!json_equal(object, before))
        now = server_put(server, kind, version->key, object);
    if (held || kind_has(kind, KIND_RETURN_DELETED))
        reply_object(reply, 200, now);
    else
        reply_success(reply, kind, now->name, now->uid);
    return 0;
}

/* Options come in the body, or one by one in the query. NULL with the reply filled when the body is none. */
static json_t *read_options(const struct request *request, struct reply *reply)
{
    json_t *options = NULL;
    if (request->body_len > 0)
        options = json_loadb(request->body, request->body_len, 0, NULL);
    else
        options = json_object();
    if (!json_is_object(options)) {
        json_decref(options);
        reply_bad_request(reply, "the delete options are no JSON object");
        return NULL;
    }
    const char *grace = request_query(request, "gracePeriodSeconds");
    const char *policy = request_query(request, "propagationPolicy");
    int64_t seconds;
    if (grace != NULL && str_parse_i64(grace, &seconds))
        json_object_set_new(options, "gracePeriodSeconds", json_integer(seconds));
    if (policy != NULL)
        json_object_set_new(options, "propagationPolicy", json_string(policy));
    if (request_flag(request, "orphanDependents"))
        json_object_set_new(options, "orphanDependents", json_true());
    return options;
}

static bool is_dry_run(const struct request *request, const json_t *options)
{
    return request_dry_run(request) || json_array_size(tree_get(options, "dryRun")) > 0;
}

void api_delete(struct server *server, const struct request *request, struct reply *reply)
{
    auto_free char *key = object_key(request->kind, request->namespace, request->name);
    auto_json json_t *options = read_options(request, reply);
    if (options == NULL)
        return;
    struct version *version = store_get(server->store, request->kind, key);
    if (version == NULL) {
        reply_not_found(reply, request->kind, request->name);
        return;
    }
    version_ref(version);
    if (delete_object(server, request->kind, version, options, is_dry_run(request, options), reply) == 0 &&
        reply->version != NULL)
        object_reply(server, request, reply->code, reply->version, reply);
    version_unref(version);
}

void api_delete_collection(struct server *server, const struct request *request, struct reply *reply)
{
    auto_err struct err err = {0};
    auto_json json_t *options = read_options(request, reply);
    if (options == NULL)
        return;
    struct selector *selector;
    if (selector_parse(request->kind, request_query(request, "labelSelector"), request_query(request, "fieldSelector"),
                       &selector, &err) != 0) {
        reply_bad_request(reply, "%s", err_text(&err));
        return;
    }
    struct store_snapshot all;
    store_snapshot(server->store, request->kind, store_version(server->store), &all);
    auto_free char *prefix = request->namespace != NULL ? mem_printf("%s/", request->namespace) : mem_strdup("");
    for (size_t i = 0; i < all.count; i++)
        if (str_starts(all.items[i]->key, prefix) && selector_match(selector, all.items[i]))
            (void)delete_object(server, request->kind, all.items[i], options, is_dry_run(request, options), reply);
    store_snapshot_free(&all);
    selector_free(selector);
    api_list(server, request, reply);
}
