/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/request.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <string.h>

#define EVENTS_GROUP "events.k8s.io"

static const char *const verb_names[] = {
    [VERB_OTHER] = "",      [VERB_GET] = "get",       [VERB_LIST] = "list",
    [VERB_WATCH] = "watch", [VERB_CREATE] = "create", [VERB_UPDATE] = "update",
    [VERB_PATCH] = "patch", [VERB_DELETE] = "delete", [VERB_DELETE_COLLECTION] = "deletecollection",
};

const char *verb_name(enum verb verb)
{
    return verb_names[verb];
}

const char *request_query(const struct request *request, const char *name)
{
    return request->query != NULL ? map_get(request->query, name) : NULL;
}

bool request_flag(const struct request *request, const char *name)
{
    const char *value = request_query(request, name);
    return value != NULL && (strcmp(value, "true") == 0 || strcmp(value, "1") == 0);
}

bool request_dry_run(const struct request *request)
{
    return str_eq(request_query(request, "dryRun"), "All");
}

static enum verb find_verb(const struct request *request)
{
    const struct {
        const char *method;
        enum verb with_name, without;
    } verbs[] = {
        {"GET", VERB_GET, VERB_LIST},       {"HEAD", VERB_GET, VERB_LIST},
        {"POST", VERB_CREATE, VERB_CREATE}, {"PUT", VERB_UPDATE, VERB_OTHER},
        {"PATCH", VERB_PATCH, VERB_OTHER},  {"DELETE", VERB_DELETE, VERB_DELETE_COLLECTION},
    };
    if (strcmp(request->method, "GET") == 0 && request_flag(request, "watch"))
        return VERB_WATCH;
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (strcmp(verbs[i].method, request->method) == 0)
            return request->name != NULL ? verbs[i].with_name : verbs[i].without;
    return VERB_OTHER;
}

/* Names in parts[at …]: [namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]. */
static void take_parts(struct request *request, const struct strv *parts, size_t at)
{
    bool in_namespace = at + 2 < parts->len && strcmp(parts->items[at], "namespaces") == 0;
    /* namespaces/x/status and /finalize are subresources of the namespace itself */
    if (in_namespace && at + 3 == parts->len &&
        (strcmp(parts->items[at + 2], "status") == 0 || strcmp(parts->items[at + 2], "finalize") == 0))
        in_namespace = false;
    if (in_namespace) {
        request->namespace = mem_strdup(parts->items[at + 1]);
        at += 2;
    }
    if (at < parts->len)
        request->resource = mem_strdup(parts->items[at]);
    if (at + 1 < parts->len)
        request->name = mem_strdup(parts->items[at + 1]);
    if (at + 2 < parts->len)
        request->subresource = mem_strdup(parts->items[at + 2]);
}

void request_parse(struct request *request, const struct catalog *catalog)
{
    auto_strv struct strv parts = {0};
    const char *path = request->path;
    size_t len = strlen(path);
    auto_free char *trimmed = mem_strndup(path + 1, len > 1 ? len - 1 - (path[len - 1] == '/') : 0);
    strv_split(&parts, trimmed, '/');
    if (parts.len >= 3 && strcmp(parts.items[0], "api") == 0) {
        request->group = mem_strdup("");
        request->version = mem_strdup(parts.items[1]);
        take_parts(request, &parts, 2);
    } else if (parts.len >= 4 && strcmp(parts.items[0], "apis") == 0) {
        request->group = mem_strdup(parts.items[1]);
        request->version = mem_strdup(parts.items[2]);
        take_parts(request, &parts, 3);
    }
    if (request->resource == NULL)
        return;
    request->kind = catalog_find(catalog, request->group, request->version, request->resource);
    if (strcmp(request->group, EVENTS_GROUP) == 0 && strcmp(request->resource, "events") == 0 &&
        (strcmp(request->version, "v1") == 0 || catalog->minor < 25) && events_group_version(catalog) != NULL) {
        request->kind = kind_by_name("Event", "");
        request->events_group = true;
    }
    request->verb = find_verb(request);
}

void request_free(struct request *request)
{
    map_free(request->query);
    char *texts[] = {request->method,        request->path,      request->content_type, request->accept,
                     request->user_agent,    request->group,     request->version,      request->resource,
                     request->authorization, request->namespace, request->name,         request->subresource};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    *request = (struct request){0};
}

static const struct {
    const char *core, *other;
} event_members[] = {
    {"involvedObject", "regarding"},
    {"message", "note"},
    {"source", "deprecatedSource"},
    {"firstTimestamp", "deprecatedFirstTimestamp"},
    {"count", "deprecatedCount"},
    {"lastTimestamp", "deprecatedLastTimestamp"},
    {"reportingComponent", "reportingController"},
};

static void rename_member(json_t *object, const char *from, const char *to)
{
    json_t *value = json_object_get(object, from);
    if (value == NULL)
        return;
    json_object_set(object, to, value);
    json_object_del(object, from);
}

void events_to_core(json_t *object)
{
    for (size_t i = 0; i < ARRAY_LEN(event_members); i++)
        rename_member(object, event_members[i].other, event_members[i].core);
    tree_set_text(object, "apiVersion", "v1");
}

void events_from_core(json_t *object)
{
    for (size_t i = 0; i < ARRAY_LEN(event_members); i++)
        rename_member(object, event_members[i].core, event_members[i].other);
    tree_set_text(object, "apiVersion", EVENTS_GROUP "/v1");
}

const char *events_group_version(const struct catalog *catalog)
{
    return strv_contains(&catalog->hidden, EVENTS_GROUP) ? NULL : "v1";
}
