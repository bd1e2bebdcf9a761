/* SPDX-License-Identifier: Apache-2.0 */
/* /api, /apis, the resource lists, /version, health, and as much of OpenAPI as kubectl needs to send what it has. */
#include "tests/devapi/server.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <string.h>

#define EVENTS_GROUP "events.k8s.io"

static void add_group(json_t *groups, const char *name, const char *version)
{
    size_t i;
    json_t *group, *found = NULL;
    json_array_foreach (groups, i, group) {
        if (str_eq(tree_text(group, "name"), name))
            found = group;
    }
    auto_free char *full = mem_printf("%s/%s", name, version);
    if (found == NULL) {
        found = json_pack("{s:s, s:[], s:{s:s, s:s}}", "name", name, "versions", "preferredVersion", "groupVersion",
                          full, "version", version);
        json_array_append_new(groups, found);
    }
    json_t *versions = json_object_get(found, "versions");
    json_array_foreach (versions, i, group) {
        if (str_eq(tree_text(group, "version"), version))
            return;
    }
    json_array_append_new(versions, json_pack("{s:s, s:s}", "groupVersion", full, "version", version));
}

/* All named groups that this catalog serves. The stable version of a group is the preferred one: first in the table. */
static json_t *list_groups(const struct catalog *catalog)
{
    json_t *groups = json_array();
    for (size_t v = 0; v < KIND_VERSIONS; v++)
        for (size_t i = 0; i < kind_count; i++)
            if (*kind_table[i].group != '\0' && catalog_serves(catalog, &kind_table[i], &kind_table[i].versions[v]))
                add_group(groups, kind_table[i].group, kind_table[i].versions[v].name);
    if (events_group_version(catalog) != NULL)
        add_group(groups, EVENTS_GROUP, "v1");
    if (events_group_version(catalog) != NULL && catalog->minor < 25)
        add_group(groups, EVENTS_GROUP, "v1beta1");
    return groups;
}

static json_t *split_names(const char *text)
{
    json_t *names = json_array();
    auto_strv struct strv list = {0};
    strv_split(&list, text, ',');
    for (size_t i = 0; i < list.len; i++)
        if (*list.items[i] != '\0')
            json_array_append_new(names, json_string(list.items[i]));
    return names;
}

static void add_resource(json_t *resources, const struct kind *kind)
{
    json_t *entry =
        json_pack("{s:s, s:s, s:b, s:s, s:[s,s,s,s,s,s,s,s], s:s}", "name", kind->plural, "singularName",
                  kind->singular, "namespaced", kind->namespaced, "kind", kind->kind, "verbs", "create", "delete",
                  "deletecollection", "get", "list", "patch", "update", "watch", "storageVersionHash", "");
    json_object_del(entry, "storageVersionHash");
    json_t *names = split_names(kind->short_names);
    if (json_array_size(names) > 0)
        json_object_set(entry, "shortNames", names);
    json_decref(names);
    if (kind->category != NULL)
        json_object_set_new(entry, "categories", json_pack("[s]", kind->category));
    json_array_append_new(resources, entry);
    if (kind_has(kind, KIND_STATUS)) {
        auto_free char *status = mem_printf("%s/status", kind->plural);
        json_array_append_new(resources, json_pack("{s:s, s:s, s:b, s:s, s:[s,s,s]}", "name", status, "singularName",
                                                   "", "namespaced", kind->namespaced, "kind", kind->kind, "verbs",
                                                   "get", "patch", "update"));
    }
    if (kind_has(kind, KIND_BINDING)) {
        auto_free char *binding = mem_printf("%s/binding", kind->plural);
        json_array_append_new(resources, json_pack("{s:s, s:s, s:b, s:s, s:[s]}", "name", binding, "singularName", "",
                                                   "namespaced", 1, "kind", "Binding", "verbs", "create"));
    }
}

/* NULL when nothing of it is served. */
static json_t *list_resources(const struct catalog *catalog, const char *group, const char *version)
{
    auto_json json_t *resources = json_array();
    for (size_t i = 0; i < kind_count; i++)
        if (strcmp(kind_table[i].group, group) == 0 &&
            catalog_find(catalog, group, version, kind_table[i].plural) == &kind_table[i])
            add_resource(resources, &kind_table[i]);
    if (strcmp(group, EVENTS_GROUP) == 0 && events_group_version(catalog) != NULL &&
        (strcmp(version, "v1") == 0 || (strcmp(version, "v1beta1") == 0 && catalog->minor < 25)))
        add_resource(resources, kind_by_name("Event", ""));
    if (json_array_size(resources) == 0)
        return NULL;
    auto_free char *full = *group != '\0' ? mem_printf("%s/%s", group, version) : mem_strdup(version);
    return json_pack("{s:s, s:s, s:s, s:O}", "kind", "APIResourceList", "apiVersion", "v1", "groupVersion", full,
                     "resources", resources);
}

static json_t *describe_version(const struct catalog *catalog)
{
    char minor[8];
    (void)snprintf(minor, sizeof(minor), "%d", catalog->minor);
    auto_free char *git = mem_printf("v1.%d.0", catalog->minor);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "major", "1", "minor", minor, "gitVersion", git,
                     "gitCommit", "", "gitTreeState", "clean", "buildDate", "1970-01-01T00:00:00Z", "goVersion", "",
                     "compiler", "gcc", "platform", "linux");
}

/*
 * OpenAPI v2 is fetched as a protobuf message; one that holds only "swagger" and an empty "info" is valid, and kubectl
 * skips validation of kinds it does not find in it.
 */
static void reply_openapi_v2(const struct request *request, struct reply *reply)
{
    static const char document[] = "\x0a\x03"
                                   "2.0"
                                   "\x12\x0e"
                                   "\x0a\x06"
                                   "devapi"
                                   "\x12\x04"
                                   "v1.0";
    reply->code = 200;
    if (request->accept != NULL && strstr(request->accept, "protobuf") != NULL) {
        reply->content_type = "application/octet-stream"; /* Go cannot parse the '@' of the type asked for */
        str_add_len(&reply->body, document, sizeof(document) - 1);
        return;
    }
    str_add(&reply->body, "{\"swagger\":\"2.0\",\"info\":{\"title\":\"devapi\",\"version\":\"v1.0\"},\"paths\":{},"
                          "\"definitions\":{}}\n");
}

/* OpenAPI v3 of one group: for every kind the path and that its patch takes fieldValidation and dryRun. */
static json_t *describe_openapi_v3(const struct catalog *catalog, const char *group, const char *version)
{
    json_t *paths = json_object();
    for (size_t i = 0; i < kind_count; i++) {
        const struct kind *kind = &kind_table[i];
        if (strcmp(kind->group, group) != 0 || catalog_find(catalog, group, version, kind->plural) != kind)
            continue;
        auto_free char *prefix =
            *group != '\0' ? mem_printf("/apis/%s/%s", group, version) : mem_printf("/api/%s", version);
        auto_free char *path =
            mem_printf("%s%s/%s/{name}", prefix, kind->namespaced ? "/namespaces/{namespace}" : "", kind->plural);
        json_object_set_new(paths, path,
                            json_pack("{s:{s:[{s:s, s:s, s:{s:s}}, {s:s, s:s, s:{s:s}}], s:{s:s, s:s, s:s}, s:{}}}",
                                      "patch", "parameters", "name", "dryRun", "in", "query", "schema", "type",
                                      "string", "name", "fieldValidation", "in", "query", "schema", "type", "string",
                                      "x-kubernetes-group-version-kind", "group", group, "kind", kind->kind, "version",
                                      version, "responses"));
    }
    return json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:{}}}", "openapi", "3.0.0", "info", "title", "devapi", "version",
                     "v1.0", "paths", paths, "components", "schemas");
}

static json_t *list_openapi_v3(const struct catalog *catalog)
{
    json_t *paths = json_pack("{s:{s:s}}", "api/v1", "serverRelativeURL", "/openapi/v3/api/v1");
    auto_json json_t *groups = list_groups(catalog);
    size_t i, v;
    json_t *group, *version;
    json_array_foreach (groups, i, group) {
        json_array_foreach (json_object_get(group, "versions"), v, version) {
            auto_free char *name = mem_printf("apis/%s", tree_text(version, "groupVersion"));
            auto_free char *url = mem_printf("/openapi/v3/%s", name);
            json_object_set_new(paths, name, json_pack("{s:s}", "serverRelativeURL", url));
        }
    }
    return json_pack("{s:o}", "paths", paths);
}

static void reply_taken(struct reply *reply, json_t *object)
{
    if (object == NULL)
        reply_no_such_path(reply);
    else
        reply_tree(reply, 200, object);
    json_decref(object);
}

static json_t *describe_group(const struct catalog *catalog, const char *name)
{
    auto_json json_t *groups = list_groups(catalog);
    size_t i;
    json_t *group;
    json_array_foreach (groups, i, group) {
        if (!str_eq(tree_text(group, "name"), name))
            continue;
        json_object_set_new(group, "kind", json_string("APIGroup"));
        json_object_set_new(group, "apiVersion", json_string("v1"));
        return json_incref(group);
    }
    return NULL;
}

static void reply_below_apis(const struct catalog *catalog, const struct strv *parts, struct reply *reply)
{
    if (parts->len == 1) {
        json_t *groups = list_groups(catalog);
        reply_taken(reply, json_pack("{s:s, s:s, s:o}", "kind", "APIGroupList", "apiVersion", "v1", "groups", groups));
    } else if (parts->len == 2) {
        reply_taken(reply, describe_group(catalog, parts->items[1]));
    } else {
        reply_taken(reply, list_resources(catalog, parts->items[1], parts->items[2]));
    }
}

static void reply_openapi(const struct catalog *catalog, const struct request *request, const struct strv *parts,
                          struct reply *reply)
{
    bool third = parts->len >= 2 && strcmp(parts->items[1], "v3") == 0 && catalog->minor >= 24;
    json_t *document = NULL;
    if (parts->len == 2 && strcmp(parts->items[1], "v2") == 0) {
        reply_openapi_v2(request, reply);
        return;
    }
    if (third && parts->len == 2)
        document = list_openapi_v3(catalog);
    else if (third && parts->len == 4 && strcmp(parts->items[2], "api") == 0)
        document = describe_openapi_v3(catalog, "", parts->items[3]);
    else if (third && parts->len == 5)
        document = describe_openapi_v3(catalog, parts->items[3], parts->items[4]);
    reply_taken(reply, document);
}

static void reply_text(struct reply *reply, const char *text)
{
    reply->code = 200;
    reply->content_type = "text/plain; charset=utf-8";
    str_add(&reply->body, text);
}

void api_discovery(struct server *server, const struct request *request, struct reply *reply)
{
    const struct catalog *catalog = &server->catalog;
    auto_strv struct strv parts = {0};
    size_t len = strlen(request->path);
    auto_free char *trimmed = mem_strndup(request->path + 1, len > 1 ? len - 1 - (request->path[len - 1] == '/') : 0);
    strv_split(&parts, trimmed, '/');
    const char *first = parts.len > 0 ? parts.items[0] : "";
    if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        reply_no_such_method(reply);
    else if (strcmp(first, "healthz") == 0 || strcmp(first, "readyz") == 0 || strcmp(first, "livez") == 0)
        reply_text(reply, "ok");
    else if (strcmp(first, "version") == 0)
        reply_taken(reply, describe_version(catalog));
    else if (strcmp(first, "api") == 0 && parts.len == 1)
        reply_taken(reply, json_pack("{s:s, s:[s], s:[{s:s, s:s}]}", "kind", "APIVersions", "versions", "v1",
                                     "serverAddressByClientCIDRs", "clientCIDR", "0.0.0.0/0", "serverAddress", ""));
    else if (strcmp(first, "api") == 0 && parts.len == 2)
        reply_taken(reply, list_resources(catalog, "", parts.items[1]));
    else if (strcmp(first, "apis") == 0 && parts.len <= 3)
        reply_below_apis(catalog, &parts, reply);
    else if (strcmp(first, "openapi") == 0)
        reply_openapi(catalog, request, &parts, reply);
    else
        reply_no_such_path(reply);
}
