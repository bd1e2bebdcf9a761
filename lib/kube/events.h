/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event recorder with client-go's correlation: identical ones count up by PATCH, ten or more similar ones within ten
 * minutes become one "(combined from similar events): …", a token bucket per object (burst 25, one per 300 s) drops
 * spam. Recording never blocks: a bounded queue of 1000, overflow is dropped and counted; a thread of its own writes.
 */
#ifndef BERTH_KUBE_EVENTS_H
#define BERTH_KUBE_EVENTS_H

#include "lib/kube/client.h"

struct kube_events;
struct kube_events_options {
    struct kube_client *client;
    const char *component; /* source.component and reportingComponent */
    const char *host;      /* source.host; NULL = absent */
    struct clock *clock;
    struct rng *rng;
};
struct kube_events *kube_events_new(const struct kube_events_options *options);
/* Sends what is queued for at most `drain` ns, then stops. */
void kube_events_free(struct kube_events *events, int64_t drain);

#define KUBE_EVENT_NORMAL "Normal"
#define KUBE_EVENT_WARNING "Warning"
/* About this object (its reference is taken from the struct). Messages are cut at 1024 bytes as the API demands, at a
 * character's border. */
void kube_event_object(struct kube_events *events, const struct kube_object *object, const char *type,
                       const char *reason, const char *format, ...) __attribute__((format(printf, 5, 6)));
void kube_event_reference(struct kube_events *events, const struct kube_reference *reference, const char *type,
                          const char *reason, const char *format, ...) __attribute__((format(printf, 5, 6)));
struct kube_events_stats {
    uint64_t recorded, sent, patched, dropped_queue, dropped_spam, failed;
};
void kube_events_get_stats(struct kube_events *events, struct kube_events_stats *stats);
/* Waits until everything recorded so far was sent or given up; for tests and a graceful end. */
bool kube_events_flush(struct kube_events *events, int64_t timeout);

#endif
