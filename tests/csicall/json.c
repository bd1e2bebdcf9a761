/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/csicall/json.h"

#include "lib/base/mem.h"

#include <string.h>

static bool is_map_entry(const ProtobufCFieldDescriptor *field)
{
    if (field->label != PROTOBUF_C_LABEL_REPEATED || field->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    return str_ends(entry->name, "Entry") && entry->n_fields == 2 && str_eq(entry->fields[0].name, "key") &&
           str_eq(entry->fields[1].name, "value");
}

static bool is_wrapper(const ProtobufCMessageDescriptor *descriptor)
{
    return str_starts(descriptor->name, "google.protobuf.") && str_ends(descriptor->name, "Value");
}

static void *member(ProtobufCMessage *message, size_t offset)
{
    return (char *)message + offset;
}

static const void *const_member(const ProtobufCMessage *message, size_t offset)
{
    return (const char *)message + offset;
}

static int wrong_type(const ProtobufCFieldDescriptor *field, const char *wanted, struct err *err)
{
    return err_set(err, ERR_INVALID, "field %s: expected %s", field->name, wanted);
}

static int set_enum(const ProtobufCFieldDescriptor *field, const json_t *json, int *slot, struct err *err)
{
    if (json_is_integer(json)) {
        *slot = (int)json_integer_value(json);
        return 0;
    }
    const ProtobufCEnumValue *value =
        json_is_string(json) ? protobuf_c_enum_descriptor_get_value_by_name(field->descriptor, json_string_value(json))
                             : NULL;
    if (value == NULL)
        return wrong_type(field, "a name or number of the enum", err);
    *slot = value->value;
    return 0;
}

/* One scalar or message into `slot` of the field's own type. */
static int set_value(struct csi_arena *arena, const ProtobufCFieldDescriptor *field, const json_t *json, void *slot,
                     struct err *err)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        if (!json_is_string(json))
            return wrong_type(field, "a string", err);
        *(char **)slot = csi_arena_strdup(arena, json_string_value(json));
        return 0;
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(json))
            return wrong_type(field, "true or false", err);
        *(protobuf_c_boolean *)slot = json_is_true(json);
        return 0;
    case PROTOBUF_C_TYPE_INT32:
        if (!json_is_integer(json))
            return wrong_type(field, "a number", err);
        *(int32_t *)slot = (int32_t)json_integer_value(json);
        return 0;
    case PROTOBUF_C_TYPE_INT64:
        if (!json_is_integer(json))
            return wrong_type(field, "a number", err);
        *(int64_t *)slot = json_integer_value(json);
        return 0;
    case PROTOBUF_C_TYPE_ENUM:
        return set_enum(field, json, slot, err);
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessageDescriptor *descriptor = field->descriptor;
        ProtobufCMessage *child = csi_arena_alloc(arena, descriptor->sizeof_message);
        protobuf_c_message_init(descriptor, child);
        *(ProtobufCMessage **)slot = child;
        if (is_wrapper(descriptor))
            return set_value(arena, &descriptor->fields[0], json, member(child, descriptor->fields[0].offset), err);
        return json_to_message(arena, json, child, err);
    }
    default:
        return wrong_type(field, "a type this tool knows", err);
    }
}

static size_t size_of(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_INT64:
        return sizeof(int64_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    default:
        return sizeof(int32_t);
    }
}

static int set_repeated(struct csi_arena *arena, const ProtobufCFieldDescriptor *field, const json_t *json,
                        ProtobufCMessage *message, struct err *err)
{
    if (is_map_entry(field)) {
        const char *key;
        json_t *value;
        if (!json_is_object(json))
            return wrong_type(field, "an object", err);
        json_object_foreach ((json_t *)json, key, value) {
            if (!json_is_string(value))
                return wrong_type(field, "an object of strings", err);
            csi_message_map_add(arena, message, field->name, key, json_string_value(value));
        }
        return 0;
    }
    if (!json_is_array(json))
        return wrong_type(field, "a list", err);
    size_t count = json_array_size(json), size = size_of(field);
    char *items = csi_arena_alloc(arena, count * size);
    for (size_t i = 0; i < count; i++)
        if (set_value(arena, field, json_array_get(json, i), items + i * size, err) < 0)
            return -1;
    *(size_t *)member(message, field->quantifier_offset) = count;
    *(void **)member(message, field->offset) = items;
    return 0;
}

int json_to_message(struct csi_arena *arena, const json_t *json, ProtobufCMessage *message, struct err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return err_set(err, ERR_INVALID, "%s: expected an object", message->descriptor->short_name);
    json_object_foreach ((json_t *)json, key, value) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(message->descriptor, key);
        if (field == NULL)
            return err_set(err, ERR_INVALID, "%s has no field %s", message->descriptor->short_name, key);
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            if (set_repeated(arena, field, value, message, err) < 0)
                return -1;
            continue;
        }
        if (set_value(arena, field, value, member(message, field->offset), err) < 0)
            return -1;
        if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
            *(uint32_t *)member(message, field->quantifier_offset) = field->id;
    }
    return 0;
}

static json_t *value_to_json(const ProtobufCFieldDescriptor *field, const void *slot)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(const char *const *)slot;
        return json_string(text ? text : "");
    }
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)slot);
    case PROTOBUF_C_TYPE_INT32:
        return json_integer(*(const int32_t *)slot);
    case PROTOBUF_C_TYPE_INT64:
        return json_integer(*(const int64_t *)slot);
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)slot);
        return value ? json_string(value->name) : json_integer(*(const int *)slot);
    }
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *child = *(const ProtobufCMessage *const *)slot;
        if (child == NULL)
            return NULL;
        if (is_wrapper(child->descriptor))
            return value_to_json(&child->descriptor->fields[0],
                                 const_member(child, child->descriptor->fields[0].offset));
        return json_from_message(child);
    }
    default:
        return json_string("?");
    }
}

static json_t *repeated_to_json(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    size_t count = *(const size_t *)const_member(message, field->quantifier_offset);
    const char *items = *(const char *const *)const_member(message, field->offset);
    json_t *out = is_map_entry(field) ? json_object() : json_array();
    for (size_t i = 0; i < count; i++) {
        const void *slot = items + i * size_of(field);
        if (!is_map_entry(field)) {
            json_array_append_new(out, value_to_json(field, slot));
            continue;
        }
        const ProtobufCMessage *entry = *(const ProtobufCMessage *const *)slot;
        const ProtobufCFieldDescriptor *parts = entry->descriptor->fields;
        json_object_set_new(out, *(const char *const *)const_member(entry, parts[0].offset),
                            value_to_json(&parts[1], const_member(entry, parts[1].offset)));
    }
    return out;
}

json_t *json_from_message(const ProtobufCMessage *message)
{
    json_t *out = json_object();
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            json_object_set_new(out, field->name, repeated_to_json(message, field));
            continue;
        }
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
            *(const uint32_t *)const_member(message, field->quantifier_offset) != field->id)
            continue;
        json_t *value = value_to_json(field, const_member(message, field->offset));
        if (value != NULL)
            json_object_set_new(out, field->name, value);
    }
    return out;
}
