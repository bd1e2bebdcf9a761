/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a store equal to the server: list in pages, then watch with bookmarks, resume after a disconnect from the last
 * version seen, list again after 410 or an ERROR event, with jittered exponential back-off (800 ms … 30 s, as
 * upstream's reflector) so that a restarted API server sees no storm. One thread each.
 */
#ifndef BERTH_KUBE_REFLECTOR_H
#define BERTH_KUBE_REFLECTOR_H

#include "lib/kube/client.h"
#include "lib/kube/store.h"

struct kube_reflector_options {
    struct kube_client *client;
    struct kube_store *store;
    struct kube_list_options list; /* namespace and selectors; borrowed strings must outlive the reflector */
    /* Objects it returns false for are treated as absent (memory: other drivers' objects). NULL = keep all. */
    bool (*keep)(void *arg, const struct kube_object *object);
    void *keep_arg;
    struct clock *clock; /* NULL = real */
    struct rng *rng;     /* NULL = real */
};
struct kube_reflector;
struct kube_reflector *kube_reflector_start(const struct kube_reflector_options *options);
void kube_reflector_free(struct kube_reflector *reflector);         /* stops and joins it */
bool kube_reflector_synced(const struct kube_reflector *reflector); /* the first list is complete */
/* Waits for the first list; -1 with ERR_CANCELLED when `stop` was requested before, the last list error in the message.
 */
int kube_reflector_wait_synced(struct kube_reflector *reflector, struct stop *stop, struct err *err);
struct kube_reflector_stats {
    uint64_t lists, watches, events, errors;
    bool synced;
    int64_t last_contact; /* monotonic ns of the last byte of sense from the server */
};
void kube_reflector_get_stats(const struct kube_reflector *reflector, struct kube_reflector_stats *stats);
/* The state for /readyz: 0 = synced and in contact, -1 = what is missing. */
int kube_reflector_check(void *reflector, struct err *err);

#endif
