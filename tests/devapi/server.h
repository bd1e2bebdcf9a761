/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API server without its sockets: http.c turns HTTP into a struct request, api_handle answers it. One thread does
 * all.
 *
 *   http.c ─► request.c ─► faults.c ─► api.c ─┬─► get/list: list.c ─► render.c, table.c
 *     │                                       ├─► create/update/patch: write.c ─► patch.c, defaults.c, validate*.c
 *     │                                       ├─► delete: remove.c
 *     │                                       ├─► watch.c (streams the store's log)
 *     │                                       └─► discovery.c, control.c (/devapi/…)
 *     └─ after each round: controllers.c (protection, owners, namespaces), then watches are woken
 */
#ifndef BERTH_DEVAPI_SERVER_H
#define BERTH_DEVAPI_SERVER_H

#include "lib/base/clock.h"
#include "tests/devapi/defaults.h"
#include "tests/devapi/kinds.h"
#include "tests/devapi/reply.h"
#include "tests/devapi/request.h"
#include "tests/devapi/store.h"

struct faults;
struct journal;
struct controllers;
struct watch;

struct server {
    struct catalog catalog;
    struct rules rules;
    struct store *store;
    struct clock *clock;
    struct rng *rng;
    struct faults *faults;
    struct journal *journal;
    struct controllers *controllers;
    struct watch *watches;     /* all open ones, linked */
    int64_t bookmark_interval; /* ns */
    const char *token;         /* "" = everybody may come in */
    uint64_t requests;
    bool stop;
};
/* Empty but for the four namespaces every cluster has. */
void server_init(struct server *server, size_t history, size_t journal_size);
void server_free(struct server *server);

/* Everything but faults and journal. */
void api_handle(struct server *server, const struct request *request, struct reply *reply);

/* Writes that nobody asked for over HTTP, or whose checks are done: into the store, and the controllers hear of it. */
struct version *server_put(struct server *server, const struct kind *kind, const char *key, json_t *object);
struct version *server_remove(struct server *server, const struct kind *kind, const char *key, json_t *object);
/* Puts, or removes when the object is terminating and nothing holds it any more. */
struct version *server_put_or_finish(struct server *server, const struct kind *kind, const char *key, json_t *object);
/* The wall time as metadata has it. */
json_t *server_now(struct server *server);
/* The key in the store. The caller frees it. */
char *object_key(const struct kind *kind, const char *namespace, const char *name);

/* verbs (write.c, remove.c, list.c) */
void api_create(struct server *server, const struct request *request, struct reply *reply);
void api_update(struct server *server, const struct request *request, struct reply *reply);
void api_patch(struct server *server, const struct request *request, struct reply *reply);
void api_bind(struct server *server, const struct request *request, struct reply *reply);
void api_delete(struct server *server, const struct request *request, struct reply *reply);
void api_delete_collection(struct server *server, const struct request *request, struct reply *reply);
void api_get(struct server *server, const struct request *request, struct reply *reply);
void api_list(struct server *server, const struct request *request, struct reply *reply);
void api_watch(struct server *server, const struct request *request, struct reply *reply);
void api_discovery(struct server *server, const struct request *request, struct reply *reply);
void api_control(struct server *server, const struct request *request, struct reply *reply);

/* What DELETE does to one object; `options` is a DeleteOptions object or NULL. Fills the reply. */
int delete_object(struct server *server, const struct kind *kind, struct version *version, const json_t *options,
                  bool dry_run, struct reply *reply);

#endif
