/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of an event before it is sent, as client-go's correlator decides it: written anew, counted up on one
 * that was written before, merged with similar ones, or dropped. No I/O; one thread uses it.
 */
#ifndef BERTH_KUBE_EVENTS_CORRELATE_H
#define BERTH_KUBE_EVENTS_CORRELATE_H

#include "lib/base/clock.h"
#include "lib/kube/objects.h"

/* upstream's limits */
#define KUBE_EVENT_CACHE 4096          /* entries of each of the three memories */
#define KUBE_EVENT_SIMILAR 10          /* so many different messages … */
#define KUBE_EVENT_SIMILAR_SECONDS 600 /* … without a pause of this length are merged */
#define KUBE_EVENT_BURST 25            /* events about an object at once */
#define KUBE_EVENT_REFILL_SECONDS 300  /* and one more each 5 minutes */
#define KUBE_EVENT_MESSAGE_LIMIT 1024  /* bytes; the API's limit for an event's note */
#define KUBE_EVENT_MERGED_PREFIX "(combined from similar events): "

/* An event that waits to be sent. Everything owned; no string is NULL. */
struct kube_event_draft {
    char *namespace_, *name;
    struct {
        char *api_version, *kind, *namespace_, *name, *uid, *resource_version, *field_path;
    } involved;
    char *type, *reason, *message;
    int64_t first, last; /* wall ns */
    uint64_t count;
};
/* `message` is taken over. The draft's time is `wall`. */
struct kube_event_draft *kube_event_draft_new(const struct kube_reference *reference, const char *type,
                                              const char *reason, char *message, int64_t wall, struct rng *rng);
void kube_event_draft_free(struct kube_event_draft *draft);
/* "<object>.<wall in hex>", or a uuid when that is no legal name. Owned by the caller. */
char *kube_event_name(const char *object, int64_t wall, struct rng *rng);
/* Text that the API takes: invalid UTF-8 replaced, at most KUBE_EVENT_MESSAGE_LIMIT bytes of whole characters. Owned by
 * the caller. */
char *kube_event_clean_message(const char *text);
/* The event as JSON for a POST, and what a strategic merge PATCH of a counted-up one says. NULL when some text is not
 * UTF-8. */
json_t *kube_event_to_json(const struct kube_event_draft *draft, const char *component, const char *host);
json_t *kube_event_to_patch(const struct kube_event_draft *draft);

struct kube_event_correlator;
struct kube_event_correlator *kube_event_correlator_new(const char *component, const char *host, struct clock *clock,
                                                        struct rng *rng);
void kube_event_correlator_free(struct kube_event_correlator *correlator);
enum kube_event_action { KUBE_EVENT_CREATE, KUBE_EVENT_PATCH, KUBE_EVENT_DROP };
/* Rewrites the draft: name, message, count and first time may become those of an earlier event. */
enum kube_event_action kube_event_correlate(struct kube_event_correlator *correlator, struct kube_event_draft *draft);

#endif
