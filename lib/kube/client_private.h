/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of lib/kube/client*.c share above the transport: paths, requests with their repeats, errors. */
#ifndef BERTH_KUBE_CLIENT_PRIVATE_H
#define BERTH_KUBE_CLIENT_PRIVATE_H

#include "lib/kube/client.h"
#include "lib/kube/client_io.h"

#include <pthread.h>

#define KUBE_REPLY_LIMIT ((size_t)64 << 20)

/* Token bucket of requests that start. */
struct kube_limiter {
    pthread_mutex_t mutex;
    double qps, burst;
    double tokens; /* negative while callers wait for theirs */
    int64_t updated;
};

struct kube_client {
    struct kube_config *config;
    struct clock *clock;
    struct rng *rng;
    struct stop *stop;
    struct kube_io *io; /* short requests and lists: its connections are closed when it is quiet */
    char *user_agent;
    /* watches, each with a connection of its own; made at the first one */
    _Atomic(struct kube_io *) watches;
    int64_t request_timeout;
    struct kube_limiter limiter;
    pthread_mutex_t auth_mutex;
    struct kube_auth *auth; /* of the newest generation */
};
int kube_client_watch_io(struct kube_client *client, struct kube_io **io, struct err *err);

/* ---- paths (client_path.c) ---- */
/* "/api/v1/namespaces/default/persistentvolumeclaims/data/status", checked and escaped; owned by the caller. name NULL
 * = the collection; namespace_ NULL or "" = all namespaces, which only collections may have. */
int kube_path_make(const struct kube_kind *kind, const char *namespace_, const char *name, const char *subresource,
                   char **path, struct err *err);
void kube_query_add(struct str *path, const char *key, const char *value); /* adds ?key=value or &key=value, escaped */
void kube_query_add_u64(struct str *path, const char *key, uint64_t value);
/* Bodies below this path hold secrets and are never logged. */
bool kube_path_is_secret(const char *path);

/* ---- one request (client_run.c) ---- */
struct kube_run {
    const char *method, *path, *content_type, *body;
    bool stream; /* hand out the call once a 2xx header is there */
    bool watch;
    bool unlimited;   /* not subject to qps: watches, and reads that settle the outcome of a write */
    int64_t deadline; /* mono */
};
struct kube_reply {
    int status;
    int64_t retry_after; /* ns; -1 = none */
    struct str body;
    struct kube_call *call; /* of a stream; owned */
};
void kube_reply_clear(struct kube_reply *reply); /* wipes the body */
#define auto_reply __attribute__((cleanup(kube_reply_clear)))
/* Repeats what may be repeated until the deadline. 0 = the server answered, with whatever status. -1 = it did not: err
 * says why; ERR_UNKNOWN_OUTCOME = a write was sent and no answer came. */
int kube_run(struct kube_client *client, const struct kube_run *run, struct kube_reply *reply, struct err *err);
int64_t kube_client_deadline(struct kube_client *client); /* now + request_timeout */

void kube_limiter_init(struct kube_limiter *limiter, double qps, int64_t burst, int64_t now);
void kube_limiter_destroy(struct kube_limiter *limiter);
/* When the caller may start; it takes its place in the row. -1 = only after `deadline` (then no place is taken). */
int64_t kube_limiter_reserve(struct kube_limiter *limiter, int64_t now, int64_t deadline);

/* ---- errors (client_error.c) ---- */
/* "409 Conflict: <the server's message>" with the code that goes with it; returns -1. */
int kube_error_set(struct err *err, int status, const char *body, size_t len);
/* The same from a decoded Status object of a watch. */
int kube_error_set_status(struct err *err, const json_t *status_object);
enum err_code kube_error_code(int status, const char *reason);

#endif
