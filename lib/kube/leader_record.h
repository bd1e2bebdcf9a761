/* SPDX-License-Identifier: Apache-2.0 */
/* What a Lease says about leadership, read from and written into its JSON so that all other fields stay as they are. */
#ifndef BERTH_KUBE_LEADER_RECORD_H
#define BERTH_KUBE_LEADER_RECORD_H

#include "lib/base/err.h"
#include "lib/kube/labels.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct leader_record {
    char *holder; /* owned; NULL is the same as "" */
    int64_t duration_seconds, transitions;
    int64_t acquire_time, renew_time; /* wall ns as written; 0 absent */
    char *spec;                       /* owned; the whole spec as it was read, to see any change; NULL when written */
};
void leader_record_clear(struct leader_record *record);
#define auto_record __attribute__((cleanup(leader_record_clear)))
/* Clears `to`, empties `from`. */
void leader_record_move(struct leader_record *to, struct leader_record *from);
/* Absent fields are empty or 0; fields of a wrong type are an error. */
int leader_record_read(const json_t *lease, struct leader_record *record, struct err *err);
bool leader_record_equal(const struct leader_record *a, const struct leader_record *b);

struct leader_labels {
    struct kube_pair *pairs; /* owned */
    size_t count;
};
void leader_labels_copy(struct leader_labels *labels, const struct kube_pair *pairs, size_t count);
void leader_labels_clear(struct leader_labels *labels);

json_t *leader_lease_new(const char *namespace_, const char *name);
void leader_record_apply(const struct leader_record *record, const struct leader_labels *labels, json_t *lease);
void leader_lease_set_version(json_t *lease, uint64_t resource_version);

#endif
