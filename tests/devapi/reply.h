/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers. Functions that refuse a request fill the reply with a Status object and return -1, as functions elsewhere do
 * with `struct err`.
 */
#ifndef BERTH_DEVAPI_REPLY_H
#define BERTH_DEVAPI_REPLY_H

#include "lib/base/str.h"
#include "tests/devapi/kinds.h"
#include "tests/devapi/store.h"

struct watch;

struct reply {
    int code;                 /* HTTP status */
    struct str body;          /* what to send … */
    struct version *version;  /* … or this version's text (a reference) */
    struct watch *watch;      /* … or a stream; owned */
    const char *content_type; /* NULL = application/json */
    int retry_after;          /* seconds, 0 = none */
    const char *warning;      /* text of a Warning header, static; NULL = none */
};
void reply_reset(struct reply *reply);

/* A Status of failure. `reason` is the word clients switch on ("NotFound"), kind and name go into details (NULL =
 * none), causes is a JSON array or NULL (the reference is taken). Always -1. */
int reply_fail(struct reply *reply, int code, const char *reason, const struct kind *kind, const char *name,
               json_t *causes, const char *format, ...) __attribute__((format(printf, 7, 8)));
/* The ones that are needed everywhere. */
int reply_not_found(struct reply *reply, const struct kind *kind, const char *name);
int reply_bad_request(struct reply *reply, const char *format, ...) __attribute__((format(printf, 2, 3)));
int reply_conflict(struct reply *reply, const struct kind *kind, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int reply_modified(struct reply *reply, const struct kind *kind, const char *name);
int reply_expired(struct reply *reply, const char *message);
int reply_no_such_path(struct reply *reply);
int reply_no_such_method(struct reply *reply);
/* A Status of success, as DELETE answers. */
void reply_success(struct reply *reply, const struct kind *kind, const char *name, const char *uid);
void reply_object(struct reply *reply, int code, struct version *version); /* takes a reference of its own */
void reply_tree(struct reply *reply, int code, const json_t *object);

/* The Status object alone, for ERROR events of a watch. The caller frees it. */
json_t *status_failure(int code, const char *reason, const char *message);

#endif
