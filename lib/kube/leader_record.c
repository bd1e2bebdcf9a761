/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/leader_record.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <inttypes.h>
#include <stdio.h>

void leader_record_clear(struct leader_record *record)
{
    free(record->holder);
    free(record->spec);
    *record = (struct leader_record){0};
}

void leader_record_move(struct leader_record *to, struct leader_record *from)
{
    leader_record_clear(to);
    *to = *from;
    *from = (struct leader_record){0};
}

static int wrong_type(const char *key, struct err *err)
{
    return err_set(err, ERR_INVALID, "the lease's spec.%s has a wrong type", key);
}

static int read_integer(const json_t *spec, const char *key, int64_t *value, struct err *err)
{
    const json_t *json = json_object_get(spec, key);
    if (json == NULL || json_is_null(json))
        return 0;
    if (!json_is_integer(json))
        return wrong_type(key, err);
    *value = json_integer_value(json);
    return 0;
}

static int read_time(const json_t *spec, const char *key, int64_t *value, struct err *err)
{
    const json_t *json = json_object_get(spec, key);
    if (json == NULL || json_is_null(json))
        return 0;
    if (!json_is_string(json) || !clock_parse_rfc3339(json_string_value(json), value))
        return wrong_type(key, err);
    return 0;
}

int leader_record_read(const json_t *lease, struct leader_record *record, struct err *err)
{
    leader_record_clear(record);
    const json_t *spec = json_object_get(lease, "spec");
    if (spec == NULL || json_is_null(spec))
        return 0;
    const json_t *holder = json_object_get(spec, "holderIdentity");
    if (!json_is_object(spec) || (holder != NULL && !json_is_null(holder) && !json_is_string(holder)))
        return wrong_type("holderIdentity", err);
    if (read_integer(spec, "leaseDurationSeconds", &record->duration_seconds, err) != 0 ||
        read_integer(spec, "leaseTransitions", &record->transitions, err) != 0 ||
        read_time(spec, "acquireTime", &record->acquire_time, err) != 0 ||
        read_time(spec, "renewTime", &record->renew_time, err) != 0)
        return -1;
    record->holder = mem_strdup(json_string_value(holder));
    record->spec = json_dumps(spec, JSON_SORT_KEYS | JSON_COMPACT);
    return 0;
}

bool leader_record_equal(const struct leader_record *a, const struct leader_record *b)
{
    /* what we wrote ourselves has no spec: then the fields must do, to the microsecond that the API keeps */
    if (a->spec != NULL && b->spec != NULL)
        return str_eq(a->spec, b->spec);
    return str_eq(a->holder != NULL ? a->holder : "", b->holder != NULL ? b->holder : "") &&
           a->duration_seconds == b->duration_seconds && a->transitions == b->transitions &&
           a->acquire_time / 1000 == b->acquire_time / 1000 && a->renew_time / 1000 == b->renew_time / 1000;
}

void leader_labels_copy(struct leader_labels *labels, const struct kube_pair *pairs, size_t count)
{
    labels->count = count;
    labels->pairs = mem_calloc(count, sizeof(*labels->pairs));
    for (size_t i = 0; i < count; i++)
        labels->pairs[i] = (struct kube_pair){mem_strdup(pairs[i].key), mem_strdup(pairs[i].value)};
}

void leader_labels_clear(struct leader_labels *labels)
{
    for (size_t i = 0; i < labels->count; i++) {
        free((char *)labels->pairs[i].key);
        free((char *)labels->pairs[i].value);
    }
    free(labels->pairs);
    *labels = (struct leader_labels){0};
}

json_t *leader_lease_new(const char *namespace_, const char *name)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion", "coordination.k8s.io/v1", "kind", "Lease", "metadata",
                     "namespace", namespace_, "name", name);
}

/* The object below a key, made when it is not there. */
static json_t *child(json_t *parent, const char *key)
{
    json_t *json = json_object_get(parent, key);
    if (!json_is_object(json)) {
        json = json_object();
        json_object_set_new(parent, key, json);
    }
    return json;
}

void leader_record_apply(const struct leader_record *record, const struct leader_labels *labels, json_t *lease)
{
    char acquired[CLOCK_TEXT_SIZE], renewed[CLOCK_TEXT_SIZE];
    json_t *spec = child(lease, "spec");
    json_object_set_new(spec, "holderIdentity", json_string(record->holder != NULL ? record->holder : ""));
    json_object_set_new(spec, "leaseDurationSeconds", json_integer(record->duration_seconds));
    json_object_set_new(spec, "acquireTime", json_string(clock_format_rfc3339(record->acquire_time, true, acquired)));
    json_object_set_new(spec, "renewTime", json_string(clock_format_rfc3339(record->renew_time, true, renewed)));
    json_object_set_new(spec, "leaseTransitions", json_integer(record->transitions));
    for (size_t i = 0; i < labels->count; i++)
        json_object_set_new(child(child(lease, "metadata"), "labels"), labels->pairs[i].key,
                            json_string(labels->pairs[i].value));
}

void leader_lease_set_version(json_t *lease, uint64_t resource_version)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, resource_version);
    json_object_set_new(child(lease, "metadata"), "resourceVersion", json_string(text));
}
