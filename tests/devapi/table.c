/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows for kubectl get. A column is a title and a path into the object, or a function where the real server computes
 * something. Kinds without columns of their own show name and age.
 */
#include "tests/devapi/render.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "tests/devapi/table_cells.h"
#include "tests/devapi/tree.h"

#include <string.h>

struct column {
    const char *title;
    const char *path;
    void (*print)(const json_t *object, int64_t now, struct str *out);
    int wide;  /* 1 = only with -o wide */
    int since; /* minor version that shows it first; 0 = all */
};

#define NAME                                                                                                           \
    {                                                                                                                  \
        "Name", "metadata.name", NULL, 0, 0                                                                            \
    }
#define AGE                                                                                                            \
    {                                                                                                                  \
        "Age", NULL, cell_age, 0, 0                                                                                    \
    }
#define COLUMNS_MAX 12

static const struct {
    const char *kind, *group;
    struct column columns[COLUMNS_MAX];
} tables[] = {
    {"Namespace", "", {NAME, {"Status", "status.phase", NULL, 0, 0}, AGE}},
    {"Node",
     "",
     {NAME,
      {"Status", NULL, cell_node_status, 0, 0},
      {"Roles", NULL, cell_none, 0, 0},
      AGE,
      {"Version", "status.nodeInfo.kubeletVersion", NULL, 0, 0}}},
    {"PersistentVolume",
     "",
     {NAME,
      {"Capacity", "spec.capacity.storage", NULL, 0, 0},
      {"Access Modes", NULL, cell_volume_modes, 0, 0},
      {"Reclaim Policy", "spec.persistentVolumeReclaimPolicy", NULL, 0, 0},
      {"Status", NULL, cell_phase, 0, 0},
      {"Claim", NULL, cell_claim_of_volume, 0, 0},
      {"StorageClass", NULL, cell_class, 0, 0},
      {"VolumeAttributesClass", NULL, cell_attributes_class, 0, 29},
      {"Reason", "status.reason", NULL, 0, 0},
      AGE,
      {"VolumeMode", "spec.volumeMode", NULL, 1, 0}}},
    {"PersistentVolumeClaim",
     "",
     {NAME,
      {"Status", NULL, cell_phase, 0, 0},
      {"Volume", "spec.volumeName", NULL, 0, 0},
      {"Capacity", NULL, cell_claim_capacity, 0, 0},
      {"Access Modes", NULL, cell_claim_modes, 0, 0},
      {"StorageClass", NULL, cell_class, 0, 0},
      {"VolumeAttributesClass", NULL, cell_attributes_class, 0, 29},
      AGE,
      {"VolumeMode", "spec.volumeMode", NULL, 1, 0}}},
    {"Pod",
     "",
     {NAME,
      {"Ready", NULL, cell_pod_ready, 0, 0},
      {"Status", NULL, cell_phase, 0, 0},
      {"Restarts", NULL, cell_pod_restarts, 0, 0},
      AGE,
      {"IP", NULL, cell_pod_ip, 1, 0},
      {"Node", NULL, cell_pod_node, 1, 0}}},
    {"Event",
     "",
     {{"Last Seen", NULL, cell_event_last, 0, 0},
      {"Type", "type", NULL, 0, 0},
      {"Reason", "reason", NULL, 0, 0},
      {"Object", NULL, cell_event_object, 0, 0},
      {"Subobject", "involvedObject.fieldPath", NULL, 1, 0},
      {"Source", "source.component", NULL, 1, 0},
      {"Message", "message", NULL, 0, 0},
      {"Name", "metadata.name", NULL, 1, 0}}},
    {"Secret", "", {NAME, {"Type", "type", NULL, 0, 0}, {"Data", NULL, cell_data_count, 0, 0}, AGE}},
    {"ConfigMap", "", {NAME, {"Data", NULL, cell_data_count, 0, 0}, AGE}},
    {"StorageClass",
     "storage.k8s.io",
     {{"Name", NULL, cell_class_name, 0, 0},
      {"Provisioner", "provisioner", NULL, 0, 0},
      {"ReclaimPolicy", "reclaimPolicy", NULL, 0, 0},
      {"VolumeBindingMode", "volumeBindingMode", NULL, 0, 0},
      {"AllowVolumeExpansion", NULL, cell_class_expansion, 0, 0},
      AGE}},
    {"CSINode", "storage.k8s.io", {NAME, {"Drivers", NULL, cell_driver_count, 0, 0}, AGE}},
    {"CSIDriver",
     "storage.k8s.io",
     {NAME,
      {"AttachRequired", "spec.attachRequired", NULL, 0, 0},
      {"PodInfoOnMount", "spec.podInfoOnMount", NULL, 0, 0},
      {"StorageCapacity", "spec.storageCapacity", NULL, 0, 0},
      {"Modes", NULL, cell_driver_modes, 0, 0},
      AGE}},
    {"VolumeAttachment",
     "storage.k8s.io",
     {NAME,
      {"Attacher", "spec.attacher", NULL, 0, 0},
      {"PV", "spec.source.persistentVolumeName", NULL, 0, 0},
      {"Node", "spec.nodeName", NULL, 0, 0},
      {"Attached", "status.attached", NULL, 0, 0},
      AGE}},
    {"CSIStorageCapacity",
     "storage.k8s.io",
     {NAME, {"StorageClassName", "storageClassName", NULL, 0, 0}, {"Capacity", "capacity", NULL, 0, 0}, AGE}},
    {"VolumeAttributesClass", "storage.k8s.io", {NAME, {"DriverName", "driverName", NULL, 0, 0}, AGE}},
    {"Lease", "coordination.k8s.io", {NAME, {"Holder", "spec.holderIdentity", NULL, 0, 0}, AGE}},
    {"VolumeSnapshot",
     "snapshot.storage.k8s.io",
     {NAME,
      {"ReadyToUse", "status.readyToUse", NULL, 0, 0},
      {"SourcePVC", "spec.source.persistentVolumeClaimName", NULL, 0, 0},
      {"SourceSnapshotContent", "spec.source.volumeSnapshotContentName", NULL, 0, 0},
      {"RestoreSize", "status.restoreSize", NULL, 0, 0},
      {"SnapshotClass", "spec.volumeSnapshotClassName", NULL, 0, 0},
      {"SnapshotContent", "status.boundVolumeSnapshotContentName", NULL, 0, 0},
      AGE}},
    {"VolumeSnapshotContent",
     "snapshot.storage.k8s.io",
     {NAME,
      {"ReadyToUse", "status.readyToUse", NULL, 0, 0},
      {"RestoreSize", "status.restoreSize", NULL, 0, 0},
      {"DeletionPolicy", "spec.deletionPolicy", NULL, 0, 0},
      {"Driver", "spec.driver", NULL, 0, 0},
      {"VolumeSnapshotClass", "spec.volumeSnapshotClassName", NULL, 0, 0},
      {"VolumeSnapshot", "spec.volumeSnapshotRef.name", NULL, 0, 0},
      {"VolumeSnapshotNamespace", "spec.volumeSnapshotRef.namespace", NULL, 0, 0},
      AGE}},
    {"VolumeSnapshotClass",
     "snapshot.storage.k8s.io",
     {NAME, {"Driver", "driver", NULL, 0, 0}, {"DeletionPolicy", "deletionPolicy", NULL, 0, 0}, AGE}},
};
static const struct column plain_columns[COLUMNS_MAX] = {NAME, AGE};

static const struct column *columns_of(const struct kind *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if (strcmp(tables[i].kind, kind->kind) == 0 && strcmp(tables[i].group, kind->group) == 0)
            return tables[i].columns;
    return plain_columns;
}

static bool is_shown(const struct column *column, int minor)
{
    return column->since <= minor;
}

void table_head(const struct kind *kind, int minor, const char *resource_version, const char *continue_token,
                struct str *out)
{
    bool first = true;
    const struct column *list = columns_of(kind);
    str_addf(out, "{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"%s\"",
             resource_version != NULL ? resource_version : "");
    if (continue_token != NULL)
        str_addf(out, ",\"continue\":\"%s\"", continue_token);
    str_add(out, "},\"columnDefinitions\":[");
    for (size_t i = 0; i < COLUMNS_MAX && list[i].title != NULL; i++) {
        if (!is_shown(&list[i], minor))
            continue;
        str_addf(out, "%s{\"name\":\"%s\",\"type\":\"string\",\"format\":\"%s\",\"description\":\"\",\"priority\":%d}",
                 first ? "" : ",", list[i].title, strcmp(list[i].title, "Name") == 0 ? "name" : "", list[i].wide);
        first = false;
    }
    str_add(out, "],\"rows\":[");
}

static void print_path(const json_t *object, const char *path, struct str *out)
{
    const json_t *value = tree_get(object, path);
    if (json_is_string(value))
        str_add(out, json_string_value(value));
    else if (json_is_boolean(value))
        str_add(out, json_is_true(value) ? "true" : "false");
    else if (json_is_integer(value))
        str_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

void table_row(const struct kind *kind, int minor, const json_t *object, bool whole_object, int64_t now,
               struct str *out)
{
    const struct column *list = columns_of(kind);
    auto_json json_t *cells = json_array(), *shown = NULL;
    for (size_t i = 0; i < COLUMNS_MAX && list[i].title != NULL; i++) {
        auto_str struct str cell = {0};
        if (!is_shown(&list[i], minor))
            continue;
        if (list[i].print != NULL)
            list[i].print(object, now, &cell);
        else
            print_path(object, list[i].path, &cell);
        json_array_append_new(cells, json_string(str_text(&cell)));
    }
    if (whole_object)
        shown = json_incref((json_t *)object);
    else
        shown = json_pack("{s:s, s:s, s:O}", "kind", "PartialObjectMetadata", "apiVersion", "meta.k8s.io/v1",
                          "metadata", json_object_get(object, "metadata"));
    auto_json json_t *row = json_pack("{s:O, s:O}", "cells", cells, "object", shown);
    auto_free char *text = json_dumps(row, JSON_COMPACT);
    str_add(out, text);
}
