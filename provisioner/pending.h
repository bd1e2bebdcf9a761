/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered of claims between tries: calls of CreateVolume whose outcome is open, failed ones that may have
 * left a volume, claims whose retries are delayed, and volumes whose claims are about to be bound. Thread-safe; a
 * claim's entry is only changed by the worker that holds the claim's key.
 */
#ifndef BERTH_PROVISIONER_PENDING_H
#define BERTH_PROVISIONER_PENDING_H

#include "lib/base/clock.h"
#include "provisioner/request.h"

struct pending;

enum pending_kind {
    PENDING_NONE,
    PENDING_BACKGROUND, /* the driver may be creating the volume: repeat the call until it says a final word */
    PENDING_DOUBTFUL,   /* it said a final word, but a volume may exist nevertheless: ask once more if the claim goes */
};
struct pending_claim {
    enum pending_kind kind;
    char *record;                   /* the last call sent (record.h) */
    struct topology_memory *memory; /* NULL when the next call may differ */
    bool claim_was_gone;            /* the last call was made for a claim that no longer exists */
};

struct pending *pending_new(struct clock *clock);
void pending_free(struct pending *pending);
size_t pending_len(struct pending *pending);
bool pending_has(struct pending *pending, const char *uid);
/* Takes the entry out; false (and an empty one) when there is none. */
bool pending_take(struct pending *pending, const char *uid, struct pending_claim *claim);
/* Puts it in, or frees it when its kind is NONE; empties *claim. */
void pending_put(struct pending *pending, const char *uid, struct pending_claim *claim);
void pending_claim_clear(struct pending_claim *claim);

/* Infeasible claims: delayed until `delay` ns have passed or the class was made anew (has another UID). */
void pending_delay(struct pending *pending, const char *uid, const char *class_uid, int64_t delay);
bool pending_is_delayed(struct pending *pending, const char *uid, const char *class_uid);
void pending_forget_delay(struct pending *pending, const char *uid);

/* The first error of a claim, for --event-history: kept until the claim succeeds or goes. The result is owned by the
 * caller and is NULL when `text` is the first one or equals it. */
char *pending_first_error(struct pending *pending, const char *uid, const char *text);
void pending_forget_errors(struct pending *pending, const char *uid);

/* Saved volumes whose claims were not seen bound yet. */
void pending_expect_bound(struct pending *pending, const char *uid);
bool pending_take_bound(struct pending *pending, const char *uid);

#endif
