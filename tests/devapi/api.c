/* SPDX-License-Identifier: Apache-2.0 */
/* Which function answers a request. */
#include "tests/devapi/server.h"

#include "lib/base/mem.h"
#include "tests/devapi/controllers.h"
#include "tests/devapi/faults.h"
#include "tests/devapi/journal.h"
#include "tests/devapi/tree.h"
#include "tests/devapi/watch.h"

#include <string.h>

static void add_namespace(struct server *server, const char *name)
{
    const struct kind *kind = kind_by_name("Namespace", "");
    char uid[RNG_UUID_SIZE];
    auto_json json_t *object = json_pack("{s:s, s:s, s:{s:s, s:s}}", "kind", "Namespace", "apiVersion", "v1",
                                         "metadata", "name", name, "uid", rng_uuid(server->rng, uid));
    tree_set(object, "metadata.creationTimestamp", server_now(server));
    kind->defaults(object, &server->rules, true);
    server_put(server, kind, name, object);
}

void server_init(struct server *server, size_t history, size_t journal_size)
{
    static const char *const namespaces[] = {"default", "kube-node-lease", "kube-public", "kube-system"};
    server->store = store_new(history, server->clock, server->rng);
    server->controllers = controllers_new();
    server->faults = faults_new();
    server->journal = journal_new(journal_size);
    for (size_t i = 0; i < ARRAY_LEN(namespaces); i++)
        add_namespace(server, namespaces[i]);
}

void server_free(struct server *server)
{
    while (server->watches != NULL)
        watch_free(server->watches);
    controllers_free(server->controllers);
    faults_free(server->faults);
    journal_free(server->journal);
    store_free(server->store);
    strv_free(&server->catalog.hidden);
    *server = (struct server){0};
}

static bool is_authorized(const struct server *server, const struct request *request)
{
    return str_empty(server->token) ||
           (request->authorization != NULL && str_starts(request->authorization, "Bearer ") &&
            strcmp(request->authorization + strlen("Bearer "), server->token) == 0);
}

typedef void verb_function(struct server *server, const struct request *request, struct reply *reply);
static verb_function *const verbs[] = {
    [VERB_GET] = api_get,       [VERB_LIST] = api_list,
    [VERB_WATCH] = api_watch,   [VERB_CREATE] = api_create,
    [VERB_UPDATE] = api_update, [VERB_PATCH] = api_patch,
    [VERB_DELETE] = api_delete, [VERB_DELETE_COLLECTION] = api_delete_collection,
};

static bool has_subresource(const struct request *request)
{
    const char *name = request->subresource;
    if (strcmp(name, "status") == 0)
        return kind_has(request->kind, KIND_STATUS) && request->verb != VERB_CREATE && request->verb != VERB_DELETE;
    if (strcmp(name, "binding") == 0)
        return kind_has(request->kind, KIND_BINDING) && request->verb == VERB_CREATE;
    return strcmp(name, "finalize") == 0 && strcmp(request->kind->plural, "namespaces") == 0 &&
           request->verb == VERB_UPDATE;
}

static void handle_resource(struct server *server, const struct request *request, struct reply *reply)
{
    if (request->kind == NULL || (!request->kind->namespaced && request->namespace != NULL) ||
        (request->subresource != NULL && !has_subresource(request))) {
        reply_no_such_path(reply);
    } else if (request->subresource != NULL && strcmp(request->subresource, "binding") == 0) {
        api_bind(server, request, reply);
    } else if (verbs[request->verb] == NULL || (request->verb == VERB_CREATE && request->name != NULL)) {
        reply_no_such_method(reply);
    } else {
        verbs[request->verb](server, request, reply);
    }
}

void api_handle(struct server *server, const struct request *request, struct reply *reply)
{
    if (str_starts(request->path, "/devapi/"))
        api_control(server, request, reply);
    else if (!is_authorized(server, request))
        reply_fail(reply, 401, "Unauthorized", NULL, NULL, NULL, "Unauthorized");
    else if (request->resource != NULL)
        handle_resource(server, request, reply);
    else
        api_discovery(server, request, reply);
}
