/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/table_cells.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <ctype.h>
#include <string.h>

/* One unit up to a limit, with the next smaller one beside it while the number is small. */
static const struct {
    int64_t below, unit, small_unit; /* 0 = none */
    char name, small_name;
} durations[] = {
    {120, 1, 0, 's', 0},
    {600, 60, 1, 'm', 's'},
    {3 * 3600, 60, 0, 'm', 0},
    {8 * 3600, 3600, 60, 'h', 'm'},
    {48 * 3600, 3600, 0, 'h', 0},
    {8 * 86400, 86400, 3600, 'd', 'h'},
    {730 * 86400L, 86400, 0, 'd', 0},
    {INT64_MAX, 365 * 86400L, 86400, 'y', 'd'},
};

void cell_add_duration(int64_t seconds, struct str *out)
{
    size_t i = 0;
    if (seconds < 0) {
        str_add(out, seconds < -1 ? "<invalid>" : "0s");
        return;
    }
    while (seconds >= durations[i].below)
        i++;
    str_addf(out, "%lld%c", (long long)(seconds / durations[i].unit), durations[i].name);
    int64_t rest = durations[i].small_unit > 0 ? seconds % durations[i].unit / durations[i].small_unit : 0;
    if (rest > 0)
        str_addf(out, "%lld%c", (long long)rest, durations[i].small_name);
}

static void add_since(const char *time, int64_t now, struct str *out)
{
    int64_t then;
    if (time == NULL || !clock_parse_rfc3339(time, &then))
        str_add(out, "<unknown>");
    else
        cell_add_duration((now - then) / CLOCK_SECOND, out);
}

static void add_text(const json_t *object, const char *path, const char *absent, struct str *out)
{
    str_add(out, tree_has_text(object, path) ? tree_text(object, path) : absent);
}

void cell_age(const json_t *object, int64_t now, struct str *out)
{
    add_since(tree_text(object, "metadata.creationTimestamp"), now, out);
}

void cell_none(const json_t *object, int64_t now, struct str *out)
{
    (void)object;
    (void)now;
    str_add(out, "<none>");
}

void cell_phase(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    if (tree_get(object, "metadata.deletionTimestamp") != NULL)
        str_add(out, "Terminating");
    else
        add_text(object,
                 tree_has_text(object, "status.reason") && tree_get(object, "spec.containers") != NULL ? "status.reason"
                                                                                                       : "status.phase",
                 "", out);
}

void cell_node_status(const json_t *object, int64_t now, struct str *out)
{
    size_t i;
    json_t *condition;
    const char *status = NULL;
    (void)now;
    json_array_foreach (tree_get(object, "status.conditions"), i, condition) {
        if (str_eq(tree_text(condition, "type"), "Ready"))
            status = tree_text(condition, "status");
    }
    str_add(out, status == NULL ? "Unknown" : strcmp(status, "True") == 0 ? "Ready" : "NotReady");
    if (tree_is_true(object, "spec.unschedulable"))
        str_add(out, ",SchedulingDisabled");
}

static void add_modes(const json_t *modes, struct str *out)
{
    static const struct {
        const char *name, *letters;
    } letters[] = {
        {"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"}};
    size_t i;
    json_t *mode;
    bool first = true;
    for (size_t m = 0; m < ARRAY_LEN(letters); m++) {
        json_array_foreach (modes, i, mode) {
            if (!str_eq(json_string_value(mode), letters[m].name))
                continue;
            str_addf(out, "%s%s", first ? "" : ",", letters[m].letters);
            first = false;
            break;
        }
    }
}

void cell_volume_modes(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    add_modes(tree_get(object, "spec.accessModes"), out);
}

void cell_claim_of_volume(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    if (tree_get(object, "spec.claimRef") == NULL)
        return;
    add_text(object, "spec.claimRef.namespace", "", out);
    str_add_char(out, '/');
    add_text(object, "spec.claimRef.name", "", out);
}

void cell_claim_modes(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    if (tree_has_text(object, "spec.volumeName"))
        add_modes(tree_get(object, "status.accessModes"), out);
}

void cell_claim_capacity(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    if (tree_has_text(object, "spec.volumeName"))
        add_text(object, "status.capacity.storage", "", out);
}

void cell_class(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    const json_t *beta =
        json_object_get(tree_get(object, "metadata.annotations"), "volume.beta.kubernetes.io/storage-class");
    if (json_is_string(beta))
        str_add(out, json_string_value(beta));
    else
        add_text(object, "spec.storageClassName", "", out);
}

void cell_attributes_class(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    add_text(object, "spec.volumeAttributesClassName", "<unset>", out);
}

void cell_class_name(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    static const char *const keys[] = {"storageclass.kubernetes.io/is-default-class",
                                       "storageclass.beta.kubernetes.io/is-default-class"};
    bool is_default = false;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        is_default =
            is_default ||
            str_eq(json_string_value(json_object_get(tree_get(object, "metadata.annotations"), keys[i])), "true");
    add_text(object, "metadata.name", "", out);
    str_add(out, is_default ? " (default)" : "");
}

void cell_class_expansion(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    str_add(out, tree_is_true(object, "allowVolumeExpansion") ? "true" : "false");
}

void cell_pod_ready(const json_t *object, int64_t now, struct str *out)
{
    size_t i, ready = 0;
    json_t *status;
    (void)now;
    json_array_foreach (tree_get(object, "status.containerStatuses"), i, status) {
        ready += tree_is_true(status, "ready");
    }
    str_addf(out, "%zu/%zu", ready, json_array_size(tree_get(object, "spec.containers")));
}

void cell_pod_restarts(const json_t *object, int64_t now, struct str *out)
{
    size_t i;
    json_t *status;
    json_int_t restarts = 0;
    (void)now;
    json_array_foreach (tree_get(object, "status.containerStatuses"), i, status) {
        restarts += json_integer_value(tree_get(status, "restartCount"));
    }
    str_addf(out, "%" JSON_INTEGER_FORMAT, restarts);
}

void cell_pod_ip(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    add_text(object, "status.podIP", "<none>", out);
}

void cell_pod_node(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    add_text(object, "spec.nodeName", "<none>", out);
}

void cell_event_last(const json_t *object, int64_t now, struct str *out)
{
    static const char *const times[] = {"series.lastObservedTime", "lastTimestamp", "eventTime", "firstTimestamp"};
    const char *time = NULL;
    for (size_t i = 0; time == NULL && i < ARRAY_LEN(times); i++)
        time = tree_text(object, times[i]);
    add_since(time, now, out);
}

void cell_event_object(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    const char *kind = tree_text(object, "involvedObject.kind");
    for (; kind != NULL && *kind != '\0'; kind++)
        str_add_char(out, (char)tolower((unsigned char)*kind));
    str_add_char(out, '/');
    add_text(object, "involvedObject.name", "", out);
}

void cell_data_count(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    str_addf(out, "%zu", json_object_size(tree_get(object, "data")) + json_object_size(tree_get(object, "binaryData")));
}

void cell_driver_count(const json_t *object, int64_t now, struct str *out)
{
    (void)now;
    str_addf(out, "%zu", json_array_size(tree_get(object, "spec.drivers")));
}

void cell_driver_modes(const json_t *object, int64_t now, struct str *out)
{
    size_t i;
    json_t *mode;
    (void)now;
    json_array_foreach (tree_get(object, "spec.volumeLifecycleModes"), i, mode) {
        str_addf(out, "%s%s", i > 0 ? "," : "", json_is_string(mode) ? json_string_value(mode) : "");
    }
}
