/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults: which request is hit, and what happens to it. A fault as JSON (control API and --fault):
 *
 *   {"verb": "create,patch", "resource": "persistentvolumes", "subresource": "status", "namespace": "default",
 *    "name": "pvc-*", "userAgent": "berth-provisioner", "path": "/api/v1/pods*",      which: all that are given must
 * match "skip": 2, "times": 1,                                                           the 3rd one only; times 0 =
 * for ever "action": "status", "when": "before", "code": 503, "reason": "…", "message": "…", "retryAfter": 1, "ms":
 * 250, "pid": 4711, "signal": "KILL", "events": 3}                           what
 *
 * verb is a list of get, list, watch, create, update, patch, delete, deletecollection; name, namespace and path are
 * globs; subresource "" means the object itself. "when" says whether the write has happened: before (default) or after
 * it.
 *
 *   delay        answers after `ms` (before: the write happens late, after: it happens at once)
 *   drop         closes the connection without an answer
 *   hang         keeps it open without an answer
 *   status       answers with `code` and a Status; 429 and 503 with Retry-After when `retryAfter` is given
 *   half-body    the answer breaks off after half its length     (the write has happened)
 *   broken-json  the answer is complete HTTP but no JSON         (the write has happened)
 *   kill         sends `signal` to `pid`, then goes on
 *   watch-late   the watch lags `ms` behind (so kinds are seen in another order)
 *   watch-repeat every event comes twice
 *   watch-close, watch-drop, watch-silent, watch-gone, watch-error, watch-garbage
 *                after `events` events the watch ends, is cut, falls silent, sends a 410, a 500, or text that is no
 * JSON
 */
#ifndef BERTH_DEVAPI_FAULTS_H
#define BERTH_DEVAPI_FAULTS_H

#include "lib/base/err.h"
#include "tests/devapi/request.h"

#include <jansson.h>

enum fault_action {
    FAULT_DELAY,
    FAULT_DROP,
    FAULT_HANG,
    FAULT_STATUS,
    FAULT_HALF_BODY,
    FAULT_BROKEN_JSON,
    FAULT_KILL,
    FAULT_WATCH_LATE,
    FAULT_WATCH_REPEAT,
    FAULT_WATCH_CLOSE,
    FAULT_WATCH_DROP,
    FAULT_WATCH_SILENT,
    FAULT_WATCH_GONE,
    FAULT_WATCH_ERROR,
    FAULT_WATCH_GARBAGE,
    FAULT_ACTIONS,
};

/* What happens; a copy lives with the request, so that deleting a fault does not disturb requests under way. */
struct fault_effect {
    uint64_t id;
    enum fault_action action;
    bool after;
    int code, retry_after, signal;
    int64_t ms, pid, events;
    char reason[40], message[200];
};

#define FAULTS_AT_ONCE 8
struct fault_hits {
    struct fault_effect effects[FAULTS_AT_ONCE];
    size_t count;
};

struct faults;
struct faults *faults_new(void);
void faults_free(struct faults *faults);
/* Returns the number of the new fault, 0 on a malformed one. */
uint64_t faults_add(struct faults *faults, const json_t *spec, struct err *err);
bool faults_remove(struct faults *faults, uint64_t id);
void faults_clear(struct faults *faults);
/* [{"id":1,"seen":4,"hits":1,"spec":{…}}]: seen = requests that matched, hits = those that were spoilt. */
json_t *faults_describe(const struct faults *faults);
/* Counts the request in all faults that match it, and copies the effects that are due. */
void faults_match(struct faults *faults, const struct request *request, struct fault_hits *hits);
bool fault_action_find(const char *name, enum fault_action *action);
/* The first effect with this action at this moment, or NULL. */
const struct fault_effect *fault_hits_find(const struct fault_hits *hits, enum fault_action action, bool after);

#endif
