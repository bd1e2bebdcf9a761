/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One list of checks per request, done in the list's order. Checks that a real caller could trip over are left out on
 * purpose: csi-sanity sends relative paths to NodeGetVolumeStats and NodeExpandVolume and no snapshot_ids for groups, a
 * ControllerModifyVolume may come with an empty map, and what undoes something (delete, unpublish) is asked for no more
 * than it needs, since refusing it leaves things behind.
 */
#include "lib/csi/validate.h"

#include "lib/base/mem.h"
#include "lib/csi/message.h"
#include "lib/csi/method.h"

#include <stdint.h>
#include <string.h>

#define NODE_ID_BYTES ((size_t)256)
#define MAP_BYTES ((size_t)4096)
#define MOUNT_FLAGS_BYTES ((size_t)4096)

enum check {
    CHECK_NAME = 1,              /* required; no control characters */
    CHECK_ID,                    /* required */
    CHECK_NODE_ID,               /* required */
    CHECK_OPTIONAL_NODE_ID,      /* empty = all nodes */
    CHECK_PATH,                  /* required, of any length */
    CHECK_ABSOLUTE_PATH,         /* the same, and from the root */
    CHECK_OPTIONAL_PATH,         /* from the root when there is one */
    CHECK_LIST,                  /* required: one element at least */
    CHECK_CAPABILITY,            /* required and complete */
    CHECK_CAPABILITIES,          /* one at least, each complete */
    CHECK_OPTIONAL_CAPABILITY,   /* only the size of its mount flags */
    CHECK_UNKNOWN_CAPABILITIES,  /* one at least; what they ask for is the driver's to judge */
    CHECK_OPTIONAL_CAPABILITIES, /* as many as you like, the same */
    CHECK_RANGE,                 /* required */
    CHECK_OPTIONAL_RANGE,
    CHECK_SMALL_MAP,
    CHECK_NOT_NEGATIVE,
    CHECK_SOURCE, /* of the content: complete when there is one */
};

struct rule {
    enum check check;
    const char *field;
};

#define RULES_MAX 8
static const struct request_rules {
    const ProtobufCMessageDescriptor *request;
    struct rule rules[RULES_MAX];
} table[] = {
    {&csi__v1__create_volume_request__descriptor,
     {{CHECK_NAME, "name"},
      {CHECK_CAPABILITIES, "volume_capabilities"},
      {CHECK_OPTIONAL_RANGE, "capacity_range"},
      {CHECK_SOURCE, "volume_content_source"},
      {CHECK_SMALL_MAP, "parameters"},
      {CHECK_SMALL_MAP, "mutable_parameters"}}},
    {&csi__v1__delete_volume_request__descriptor, {{CHECK_ID, "volume_id"}}},
    {&csi__v1__controller_publish_volume_request__descriptor,
     {{CHECK_ID, "volume_id"}, {CHECK_NODE_ID, "node_id"}, {CHECK_CAPABILITY, "volume_capability"}}},
    {&csi__v1__controller_unpublish_volume_request__descriptor,
     {{CHECK_ID, "volume_id"}, {CHECK_OPTIONAL_NODE_ID, "node_id"}}},
    {&csi__v1__validate_volume_capabilities_request__descriptor,
     {{CHECK_ID, "volume_id"}, {CHECK_UNKNOWN_CAPABILITIES, "volume_capabilities"}}},
    {&csi__v1__list_volumes_request__descriptor, {{CHECK_NOT_NEGATIVE, "max_entries"}}},
    {&csi__v1__get_capacity_request__descriptor,
     {{CHECK_OPTIONAL_CAPABILITIES, "volume_capabilities"}, {CHECK_SMALL_MAP, "parameters"}}},
    {&csi__v1__create_snapshot_request__descriptor,
     {{CHECK_NAME, "name"}, {CHECK_ID, "source_volume_id"}, {CHECK_SMALL_MAP, "parameters"}}},
    {&csi__v1__delete_snapshot_request__descriptor, {{CHECK_ID, "snapshot_id"}}},
    {&csi__v1__list_snapshots_request__descriptor, {{CHECK_NOT_NEGATIVE, "max_entries"}}},
    {&csi__v1__get_snapshot_request__descriptor, {{CHECK_ID, "snapshot_id"}}},
    {&csi__v1__controller_expand_volume_request__descriptor,
     {{CHECK_ID, "volume_id"}, {CHECK_RANGE, "capacity_range"}, {CHECK_OPTIONAL_CAPABILITY, "volume_capability"}}},
    {&csi__v1__controller_get_volume_request__descriptor, {{CHECK_ID, "volume_id"}}},
    {&csi__v1__controller_modify_volume_request__descriptor,
     {{CHECK_ID, "volume_id"}, {CHECK_SMALL_MAP, "mutable_parameters"}}},
    {&csi__v1__create_volume_group_snapshot_request__descriptor,
     {{CHECK_NAME, "name"}, {CHECK_LIST, "source_volume_ids"}, {CHECK_SMALL_MAP, "parameters"}}},
    {&csi__v1__delete_volume_group_snapshot_request__descriptor, {{CHECK_ID, "group_snapshot_id"}}},
    {&csi__v1__get_volume_group_snapshot_request__descriptor, {{CHECK_ID, "group_snapshot_id"}}},
    {&csi__v1__node_stage_volume_request__descriptor,
     {{CHECK_ID, "volume_id"},
      {CHECK_ABSOLUTE_PATH, "staging_target_path"},
      {CHECK_CAPABILITY, "volume_capability"},
      {CHECK_SMALL_MAP, "publish_context"}}},
    {&csi__v1__node_unstage_volume_request__descriptor, {{CHECK_ID, "volume_id"}, {CHECK_PATH, "staging_target_path"}}},
    {&csi__v1__node_publish_volume_request__descriptor,
     {{CHECK_ID, "volume_id"},
      {CHECK_ABSOLUTE_PATH, "target_path"},
      {CHECK_CAPABILITY, "volume_capability"},
      {CHECK_OPTIONAL_PATH, "staging_target_path"},
      {CHECK_SMALL_MAP, "publish_context"}}},
    {&csi__v1__node_unpublish_volume_request__descriptor, {{CHECK_ID, "volume_id"}, {CHECK_PATH, "target_path"}}},
    {&csi__v1__node_get_volume_stats_request__descriptor, {{CHECK_ID, "volume_id"}, {CHECK_PATH, "volume_path"}}},
    {&csi__v1__node_expand_volume_request__descriptor,
     {{CHECK_ID, "volume_id"},
      {CHECK_PATH, "volume_path"},
      {CHECK_OPTIONAL_RANGE, "capacity_range"},
      {CHECK_OPTIONAL_CAPABILITY, "volume_capability"}}},
    {&berth__v1__scrub_request__descriptor, {{CHECK_ID, "volume_id"}}},
};

struct field {
    const char *name;
    const void *value; /* of a string, message or list */
    size_t len;        /* of a list */
    int64_t number;
    size_t max_id_bytes;
};

static int missing(const struct field *field, struct err *err)
{
    return csi_fail(err, CSI_INVALID_ARGUMENT, "%s is missing in the request", field->name);
}

static int check_length(const struct field *field, const char *text, size_t max, struct err *err)
{
    const size_t len = strlen(text);
    if (len <= max)
        return 0;
    return csi_fail(err, CSI_INVALID_ARGUMENT, "%s has %zu bytes, only %zu are allowed", field->name, len, max);
}

/* U+0000 … U+001F except tab, line feed and carriage return, and U+007F … U+009F. */
static bool has_control_character(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        if ((*c < 0x20 && *c != '\t' && *c != '\n' && *c != '\r') || *c == 0x7f ||
            (*c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f))
            return true;
    return false;
}

static int check_string(enum check check, const struct field *field, struct err *err)
{
    const char *text = field->value == NULL ? "" : field->value;
    const bool optional = check == CHECK_OPTIONAL_NODE_ID || check == CHECK_OPTIONAL_PATH;
    if (*text == '\0')
        return optional ? 0 : missing(field, err);
    switch (check) {
    case CHECK_NAME:
        if (has_control_character(text))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "%s holds a control character", field->name);
        return check_length(field, text, CSI_ID_BYTES, err);
    case CHECK_ID:
        return check_length(field, text, field->max_id_bytes, err);
    case CHECK_NODE_ID:
    case CHECK_OPTIONAL_NODE_ID:
        return check_length(field, text, NODE_ID_BYTES, err);
    case CHECK_ABSOLUTE_PATH:
    case CHECK_OPTIONAL_PATH:
        if (*text != '/')
            return csi_fail(err, CSI_INVALID_ARGUMENT, "%s is not an absolute path", field->name);
        return 0;
    default:
        return 0;
    }
}

static int check_capability(const struct field *field, const Csi__V1__VolumeCapability *capability, bool complete,
                            struct err *err)
{
    const bool is_mount = capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
    if (complete && capability->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE__NOT_SET)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "%s asks for neither mount nor block access", field->name);
    if (complete && (capability->access_mode == NULL ||
                     capability->access_mode->mode == CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__UNKNOWN))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "%s has no access_mode", field->name);
    size_t bytes = 0;
    for (size_t i = 0; is_mount && i < capability->mount->n_mount_flags; i++)
        bytes += strlen(capability->mount->mount_flags[i]);
    if (bytes > MOUNT_FLAGS_BYTES)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "mount_flags of %s have %zu bytes, only %zu are allowed",
                        field->name, bytes, MOUNT_FLAGS_BYTES);
    return 0;
}

static int check_capabilities(enum check check, const struct field *field, struct err *err)
{
    const void *const *items = field->value;
    if (field->len == 0)
        return check == CHECK_OPTIONAL_CAPABILITIES ? 0 : missing(field, err);
    for (size_t i = 0; i < field->len; i++)
        if (check_capability(field, items[i], check == CHECK_CAPABILITIES, err) < 0)
            return -1;
    return 0;
}

static int check_range(enum check check, const struct field *field, struct err *err)
{
    const Csi__V1__CapacityRange *range = field->value;
    if (range == NULL)
        return check == CHECK_OPTIONAL_RANGE ? 0 : missing(field, err);
    if (range->required_bytes < 0 || range->limit_bytes < 0)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "%s is negative", field->name);
    if (range->limit_bytes > 0 && range->required_bytes > range->limit_bytes)
        return csi_fail(err, CSI_OUT_OF_RANGE, "%s requires %lld bytes, which is above its limit of %lld", field->name,
                        (long long)range->required_bytes, (long long)range->limit_bytes);
    return 0;
}

static int check_source(const struct field *field, struct err *err)
{
    const Csi__V1__VolumeContentSource *source = field->value;
    if (source == NULL)
        return 0;
    struct field id = *field;
    switch (source->type_case) {
    case CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT:
        id.name = "snapshot_id of volume_content_source";
        id.value = source->snapshot->snapshot_id;
        return check_string(CHECK_ID, &id, err);
    case CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME:
        id.name = "volume_id of volume_content_source";
        id.value = source->volume->volume_id;
        return check_string(CHECK_ID, &id, err);
    default:
        return csi_fail(err, CSI_INVALID_ARGUMENT, "%s names neither a snapshot nor a volume", field->name);
    }
}

static int check_map(const struct field *field, struct err *err)
{
    const size_t bytes = csi_map_bytes((struct csi_map){.len = field->len, .entries = field->value});
    if (bytes <= MAP_BYTES)
        return 0;
    return csi_fail(err, CSI_INVALID_ARGUMENT, "%s have %zu bytes, only %zu are allowed", field->name, bytes,
                    MAP_BYTES);
}

static int check_field(enum check check, const struct field *field, struct err *err)
{
    switch (check) {
    case CHECK_LIST:
        return field->len > 0 ? 0 : missing(field, err);
    case CHECK_CAPABILITY:
        if (field->value == NULL)
            return missing(field, err);
        return check_capability(field, field->value, true, err);
    case CHECK_OPTIONAL_CAPABILITY:
        return field->value == NULL ? 0 : check_capability(field, field->value, false, err);
    case CHECK_CAPABILITIES:
    case CHECK_UNKNOWN_CAPABILITIES:
    case CHECK_OPTIONAL_CAPABILITIES:
        return check_capabilities(check, field, err);
    case CHECK_RANGE:
    case CHECK_OPTIONAL_RANGE:
        return check_range(check, field, err);
    case CHECK_SMALL_MAP:
        return check_map(field, err);
    case CHECK_NOT_NEGATIVE:
        if (field->number < 0)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "%s is negative", field->name);
        return 0;
    case CHECK_SOURCE:
        return check_source(field, err);
    default:
        return check_string(check, field, err);
    }
}

static struct field load(const ProtobufCMessage *request, const char *name, size_t max_id_bytes)
{
    struct field field = {.name = name, .max_id_bytes = max_id_bytes};
    const ProtobufCFieldDescriptor *descriptor =
        protobuf_c_message_descriptor_get_field_by_name(request->descriptor, name);
    if (descriptor == NULL)
        abort(); /* a name in the table above is wrong: the unit test walks through all of it */
    const unsigned char *base = (const unsigned char *)request;
    if (descriptor->type == PROTOBUF_C_TYPE_INT32 && descriptor->label != PROTOBUF_C_LABEL_REPEATED) {
        int32_t number;
        memcpy(&number, base + descriptor->offset, sizeof(number));
        field.number = number;
        return field;
    }
    memcpy(&field.value, base + descriptor->offset, sizeof(field.value));
    if (descriptor->label == PROTOBUF_C_LABEL_REPEATED)
        memcpy(&field.len, base + descriptor->quantifier_offset, sizeof(field.len));
    return field;
}

int csi_validate(const ProtobufCMessage *request, size_t max_id_bytes, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (table[i].request != request->descriptor)
            continue;
        for (const struct rule *rule = table[i].rules; rule < table[i].rules + RULES_MAX && rule->field; rule++) {
            const struct field field = load(request, rule->field, max_id_bytes);
            if (check_field(rule->check, &field, err) < 0)
                return -1;
        }
        return 0;
    }
    return 0;
}
