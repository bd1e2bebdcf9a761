/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API client. One io thread owns libcurl's multi handle; everybody else calls the blocking functions below from any
 * thread. Short requests share a bounded pool of HTTP/1.1 connections, every watch has one of its own (HTTP/2 is used
 * only with a libcurl that handles GOAWAY rightly, 8.10 or newer).
 *
 * Reads are repeated over connection failures and 429/503 (Retry-After honoured) until their deadline. Writes are
 * repeated only when they surely did not happen (connection refused, 429, 503 with Retry-After). When a connection dies
 * after a write was sent, the object is read again: unchanged → the write is sent once more; changed → ERR_CONFLICT; a
 * create whose object exists now → ERR_EXISTS (the caller compares); when even that is unknown → ERR_UNKNOWN_OUTCOME.
 * Errors from the server carry its reason, message and causes: "409 Conflict: …", see enum err_code.
 */
#ifndef BERTH_KUBE_CLIENT_H
#define BERTH_KUBE_CLIENT_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/stop.h"
#include "lib/kube/config.h"
#include "lib/kube/objects.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kube_client_options {
    const char *user_agent; /* "berth-controller/v0.1.0 (linux/amd64)": kube_user_agent makes it */
    double qps;             /* client-side rate limit of requests that start (watches excepted); <= 0 = none */
    int64_t burst;
    int64_t request_timeout; /* ns for one request with its repeats; 0 = 30 s */
    size_t max_connections;  /* short requests in flight at most; 0 = 6 */
    struct clock *clock;     /* NULL = real */
    struct rng *rng;         /* NULL = real */
    struct stop *stop;       /* requests end with ERR_CANCELLED when it is requested; NULL = none */
};
struct kube_client;
/* Takes no ownership of config, which must outlive the client. */
int kube_client_new(struct kube_config *config, const struct kube_client_options *options, struct kube_client **client,
                    struct err *err);
void kube_client_free(struct kube_client *client); /* after all callers returned */
char *kube_user_agent(const char *program);        /* owned by the caller */
/* The server's own sentence within an error of this client, without what was put before it: from "patch claim
 * default/data: 409 Conflict: Operation cannot …" this is "Operation cannot …". Points into err; the whole message when
 * the error is not the server's. For events, which show users the words of the API server. */
const char *kube_error_message(const struct err *err);

/* One raw request. `body` borrowed. Any status is success here; status and body are filled. */
struct kube_response {
    int status;
    char *body; /* owned, NUL-terminated */
    size_t len;
};
void kube_response_clear(struct kube_response *response);
int kube_request(struct kube_client *client, const char *method, const char *path_and_query, const char *content_type,
                 const char *body, struct kube_response *response, struct err *err);

/* ---- objects ----
 * namespace_ is NULL or "" for cluster-scoped kinds. Decoded replies are references owned by the caller. */
int kube_get(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
             struct kube_object **object, struct err *err);
/* Before something irreversible: *object is NULL after a success when there is no such object. Only the API server's
 * own word counts for that; a 404 by a gateway, or by a server that does not serve the path yet, is a failure. */
int kube_get_if_any(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                    struct kube_object **object, struct err *err);
int kube_get_json(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                  json_t **json, struct err *err);
/* `object` may be NULL when the reply is of no interest. The json stays the caller's. */
int kube_create(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const json_t *json,
                struct kube_object **object, struct err *err);
/* Full replace; json must carry metadata.resourceVersion. subresource: NULL or "status". */
int kube_update(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                const char *subresource, const json_t *json, struct kube_object **object, struct err *err);
enum kube_patch_type { KUBE_PATCH_MERGE, KUBE_PATCH_JSON, KUBE_PATCH_STRATEGIC };
/* Merge patches that carry metadata.resourceVersion are refused with ERR_CONFLICT when the object has moved on. */
int kube_patch(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
               const char *subresource, enum kube_patch_type type, const json_t *patch, struct kube_object **object,
               struct err *err);
/* uid and resource_version are preconditions; NULL/"" and 0 = none. */
int kube_delete(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                const char *uid, uint64_t resource_version, struct err *err);
/* Calls `each` for every object in pages of 500, decoded as bytes arrive; `each` returns false to stop early. Malformed
 * items are logged and passed over. *resource_version = that of the list. A 410 in the middle (continue expired) is
 * ERR_GONE. */
struct kube_list_options {
    const char *namespace_;     /* NULL/"" = all */
    const char *label_selector; /* NULL/"" = none */
    const char *field_selector;
    uint64_t resource_version; /* 0 = newest */
    bool from_cache;           /* resourceVersion=0: whatever the server has cached */
    struct kube_decode_options decode;
};
int kube_list(struct kube_client *client, const struct kube_kind *kind, const struct kube_list_options *options,
              bool (*each)(void *arg, struct kube_object *object /* borrowed */), void *arg, uint64_t *resource_version,
              struct err *err);

/* ---- watches ---- */
enum kube_watch_type { KUBE_WATCH_ADDED, KUBE_WATCH_MODIFIED, KUBE_WATCH_DELETED, KUBE_WATCH_BOOKMARK };
struct kube_watch_event {
    enum kube_watch_type type;
    struct kube_object *object; /* owned by the receiver; NULL for bookmarks and for malformed objects (logged) */
    uint64_t resource_version;  /* of the object or the bookmark */
};
struct kube_watch;
/* Starts a watch after resource_version with bookmarks and timeoutSeconds of 300 … 600 (jittered). Waits for the
 * answer's header: 410 → ERR_GONE. */
int kube_watch_open(struct kube_client *client, const struct kube_kind *kind, const struct kube_list_options *options,
                    struct kube_watch **watch, struct err *err);
/* The next event; waits. 1 = an event, 0 = the server ended the watch in good order (open again from the last version),
 * -1 = error: ERR_GONE (list again), ERR_UNAVAILABLE (connection died or silent for too long), ERR_CANCELLED. */
int kube_watch_next(struct kube_watch *watch, struct kube_watch_event *event, struct err *err);
void kube_watch_close(struct kube_watch *watch); /* also from another thread's kube_watch_next: see kube_watch_cancel */
void kube_watch_cancel(struct kube_watch *watch); /* thread-safe: makes kube_watch_next return ERR_CANCELLED */

/* ---- discovery ---- */
/* *served = whether group/version has the resource ("storage.k8s.io", "v1", "csistoragecapacities"). */
int kube_discover(struct kube_client *client, const char *group, const char *version, const char *plural, bool *served,
                  struct err *err);
/* "v1.20.2"; owned by the caller. */
int kube_server_version(struct kube_client *client, char **version, struct err *err);

#endif
