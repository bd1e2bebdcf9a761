/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport below the API client: one thread that owns libcurl's multi handle, and calls that other threads start,
 * wait for, read from and cancel. Knows HTTP and TLS, nothing of Kubernetes; repeats nothing.
 *
 *     caller ── kube_call_start ──► queue ──► io thread: at most max_connections short calls + every stream
 *            ◄─ status, bytes ───── buffer ◄─ write callback
 *
 * All waiting goes by the injected clock; cancellation wakes a waiter at once.
 */
#ifndef BERTH_KUBE_CLIENT_IO_H
#define BERTH_KUBE_CLIENT_IO_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/kube/config.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What calls authenticate with; immutable, shared by calls, wiped with the last reference. */
struct kube_auth {
    atomic_uint refs;
    uint64_t generation;
    char *header; /* "Authorization: …"; NULL = none */
    char *certificate, *key;
};
struct kube_auth *kube_auth_new(const struct kube_config *config, struct kube_credential *credential /* emptied */);
struct kube_auth *kube_auth_ref(struct kube_auth *auth);
void kube_auth_unref(struct kube_auth *auth);

struct kube_io_options {
    const char *user_agent;
    size_t max_connections;
    struct clock *clock;
};
struct kube_io;
int kube_io_new(const struct kube_config *config, const struct kube_io_options *options, struct kube_io **io,
                struct err *err);
void kube_io_free(struct kube_io *io); /* after all calls were freed */
/* From now on every call is cancelled and every wait ends; never blocks for long, so fit for stop_on. */
void kube_io_cancel_all(struct kube_io *io);
bool kube_io_cancelled(struct kube_io *io);
/* True when kube_io_cancel_all came before the deadline. */
bool kube_io_sleep(struct kube_io *io, int64_t deadline);

struct kube_call_options {
    const char *method;
    const char *path; /* and query, appended to the server's URL */
    const char *content_type, *body;
    struct kube_auth *auth;
    bool watch;    /* a connection of its own, not counted in max_connections */
    bool throttle; /* stop receiving while a megabyte is unread. With HTTP/1.1 only: libcurl's HTTP/2 would go on
                      receiving into a buffer of its own. */
    bool read;     /* may be sent again by libcurl itself when a kept connection turns out to be dead */
    /* A body that grows beyond this ends the call; for streams: what was not read yet. */
    size_t buffer_limit;
};
/* Strings are borrowed until kube_call_free. */
struct kube_call;
struct kube_call *kube_call_start(struct kube_io *io, const struct kube_call_options *options);

enum kube_call_state {
    KUBE_CALL_WAITING,   /* no header yet */
    KUBE_CALL_RUNNING,   /* header is there, body comes */
    KUBE_CALL_COMPLETE,  /* the whole reply was received */
    KUBE_CALL_FAILED,    /* see the failure below */
    KUBE_CALL_CANCELLED, /* kube_call_cancel or kube_io_cancel_all */
};
struct kube_call_status {
    enum kube_call_state state;
    int status;          /* HTTP; 0 = no header came */
    int64_t retry_after; /* ns; -1 = the server named none */
    size_t unread;       /* bytes in the buffer */
    /* after a failure */
    bool sent;      /* the request may have reached the server; exact only once the call is over */
    bool permanent; /* trying again cannot help: certificates, malformed URL, reply too large */
    char reason[256];
};
/* Wait until the header is there / the reply is complete / bytes can be read, the call failed or was cancelled, or the
 * deadline passed (false). */
bool kube_call_wait_header(struct kube_call *call, int64_t deadline, struct kube_call_status *status);
bool kube_call_wait_end(struct kube_call *call, int64_t deadline, struct kube_call_status *status);
bool kube_call_wait_bytes(struct kube_call *call, int64_t deadline, struct kube_call_status *status);
/* Moves all unread bytes to the end of `to`. */
void kube_call_read(struct kube_call *call, struct str *to);
void kube_call_cancel(struct kube_call *call); /* from any thread */
/* Cancels it when it still runs and waits (for the io thread, not the server) until it is over. */
void kube_call_abort(struct kube_call *call, struct kube_call_status *status);
void kube_call_free(struct kube_call *call); /* cancels it when it still runs; NULL is fine */

#endif
