/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control API, for tests:
 *   GET            /devapi/state      counts, resourceVersion, open watches
 *   GET POST DELETE /devapi/faults    see faults.h; DELETE /devapi/faults/N takes one away
 *   GET DELETE     /devapi/journal    ?since=N&verb=V&resource=R&userAgent=TEXT&path=TEXT
 *   POST           /devapi/compact    forget all history: older resourceVersions are 410 from now on
 *   POST           /devapi/watches    {"resource": R, "action": "bookmark" or watch-…} to the open watches
 *   POST           /devapi/reset      delete all objects without ceremony (watches see it)
 *   POST           /devapi/shutdown
 */
#include "tests/devapi/server.h"

#include "lib/base/mem.h"
#include "tests/devapi/faults.h"
#include "tests/devapi/journal.h"
#include "tests/devapi/tree.h"
#include "tests/devapi/watch.h"

#include <string.h>

static void reply_taken(struct reply *reply, json_t *object)
{
    reply_tree(reply, 200, object);
    json_decref(object);
}

static void state_get(struct server *server, const struct request *request, struct reply *reply)
{
    (void)request;
    size_t watches = 0;
    json_t *objects = json_object();
    for (const struct watch *watch = server->watches; watch != NULL; watch = watch->next)
        watches++;
    for (size_t i = 0; i < kind_count; i++)
        if (store_count(server->store, &kind_table[i]) > 0)
            json_object_set_new(objects, kind_table[i].plural,
                                json_integer((json_int_t)store_count(server->store, &kind_table[i])));
    reply_taken(reply, json_pack("{s:I, s:I, s:I, s:o}", "resourceVersion", (json_int_t)store_version(server->store),
                                 "watches", (json_int_t)watches, "requests", (json_int_t)server->requests, "objects",
                                 objects));
}

static void faults_get(struct server *server, const struct request *request, struct reply *reply)
{
    (void)request;
    reply_taken(reply, json_pack("{s:o}", "items", faults_describe(server->faults)));
}

static void faults_post(struct server *server, const struct request *request, struct reply *reply)
{
    auto_err struct err err = {0};
    json_error_t error;
    auto_json json_t *spec = json_loadb(request->body, request->body_len, 0, &error);
    uint64_t id = spec != NULL ? faults_add(server->faults, spec, &err) : 0;
    if (id == 0)
        reply_bad_request(reply, "%s", spec == NULL ? error.text : err_text(&err));
    else
        reply_taken(reply, json_pack("{s:I}", "id", (json_int_t)id));
}

static void faults_delete(struct server *server, const struct request *request, struct reply *reply)
{
    const char *text = strrchr(request->path, '/') + 1;
    uint64_t id;
    if (strcmp(text, "faults") == 0)
        faults_clear(server->faults);
    else if (!str_parse_u64(text, &id) || !faults_remove(server->faults, id)) {
        reply_no_such_path(reply);
        return;
    }
    reply_taken(reply, json_object());
}

static void journal_get(struct server *server, const struct request *request, struct reply *reply)
{
    struct journal_filter filter = {.verb = request_query(request, "verb"),
                                    .resource = request_query(request, "resource"),
                                    .user_agent = request_query(request, "userAgent"),
                                    .path = request_query(request, "path")};
    const char *since = request_query(request, "since");
    if (since != NULL && !str_parse_u64(since, &filter.since)) {
        reply_bad_request(reply, "since is a number");
        return;
    }
    reply_taken(reply, journal_describe(server->journal, &filter));
}

static void journal_delete(struct server *server, const struct request *request, struct reply *reply)
{
    (void)request;
    journal_clear(server->journal);
    reply_taken(reply, json_object());
}

static void compact_post(struct server *server, const struct request *request, struct reply *reply)
{
    (void)request;
    store_compact(server->store);
    reply_taken(reply, json_pack("{s:I}", "resourceVersion", (json_int_t)store_version(server->store)));
}

static int act_on_watch(struct watch *watch, const char *action)
{
    enum fault_action fault;
    if (strcmp(action, "bookmark") == 0) {
        watch_bookmark(watch);
        return 0;
    }
    if (!fault_action_find(action, &fault) || fault < FAULT_WATCH_CLOSE)
        return -1;
    if (watch->state == WATCH_SILENT) /* it may be told what to do next */
        watch->state = WATCH_OPEN;
    watch->faults.ends = true;
    watch->faults.end_after = 0;
    watch->faults.end = (enum watch_end)(fault - FAULT_WATCH_CLOSE);
    return 0;
}

static void watches_post(struct server *server, const struct request *request, struct reply *reply)
{
    auto_json json_t *spec = json_loadb(request->body, request->body_len, 0, NULL);
    const char *resource = tree_text(spec, "resource"), *action = tree_text(spec, "action");
    json_int_t count = 0;
    for (struct watch *watch = server->watches; watch != NULL; watch = watch->next) {
        if (resource != NULL && strcmp(resource, watch->rendering.kind->plural) != 0)
            continue;
        if (action == NULL || act_on_watch(watch, action) != 0) {
            reply_bad_request(reply, "action is bookmark, watch-close, watch-drop, watch-silent, watch-gone, "
                                     "watch-error or watch-garbage");
            return;
        }
        count++;
    }
    reply_taken(reply, json_pack("{s:I}", "watches", count));
}

static void reset_post(struct server *server, const struct request *request, struct reply *reply)
{
    (void)request;
    const struct kind *namespaces = kind_by_name("Namespace", "");
    static const char *const kept[] = {"default", "kube-node-lease", "kube-public", "kube-system"};
    for (size_t i = 0; i < kind_count; i++) {
        struct store_snapshot all;
        store_snapshot(server->store, &kind_table[i], store_version(server->store), &all);
        for (size_t n = 0; n < all.count; n++) {
            bool keep = false;
            for (size_t k = 0; &kind_table[i] == namespaces && k < ARRAY_LEN(kept); k++)
                keep = keep || strcmp(all.items[n]->key, kept[k]) == 0;
            auto_json json_t *object = keep ? NULL : version_parse(all.items[n]);
            if (!keep)
                (void)store_remove(server->store, &kind_table[i], all.items[n]->key, object);
        }
        store_snapshot_free(&all);
    }
    faults_clear(server->faults);
    reply_taken(reply, json_object());
}

static void shutdown_post(struct server *server, const struct request *request, struct reply *reply)
{
    (void)request;
    server->stop = true;
    reply_taken(reply, json_object());
}

static const struct {
    const char *method, *path;
    void (*run)(struct server *server, const struct request *request, struct reply *reply);
} controls[] = {
    {"GET", "/devapi/state", state_get},       {"GET", "/devapi/faults", faults_get},
    {"POST", "/devapi/faults", faults_post},   {"DELETE", "/devapi/faults", faults_delete},
    {"GET", "/devapi/journal", journal_get},   {"DELETE", "/devapi/journal", journal_delete},
    {"POST", "/devapi/compact", compact_post}, {"POST", "/devapi/watches", watches_post},
    {"POST", "/devapi/reset", reset_post},     {"POST", "/devapi/shutdown", shutdown_post},
};

void api_control(struct server *server, const struct request *request, struct reply *reply)
{
    for (size_t i = 0; i < ARRAY_LEN(controls); i++) {
        size_t len = strlen(controls[i].path);
        if (strcmp(controls[i].method, request->method) != 0 || strncmp(controls[i].path, request->path, len) != 0)
            continue;
        bool below = strcmp(controls[i].method, "DELETE") == 0 && request->path[len] == '/';
        if (request->path[len] == '\0' || below) {
            controls[i].run(server, request, reply);
            return;
        }
    }
    reply_no_such_path(reply);
}
