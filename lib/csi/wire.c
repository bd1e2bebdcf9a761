/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/csi/wire.h"

#include "lib/base/mem.h"

#include <string.h>

#define DEPTH_MAX 32

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct reader {
    const uint8_t *at;
    const uint8_t *end;
};

static bool read_varint(struct reader *reader, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 70 && reader->at < reader->end; shift += 7) {
        const uint8_t byte = *reader->at++;
        if (shift < 64)
            *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return true;
    }
    return false;
}

/* The bytes of one field's value; *len is what a length-delimited field holds. */
static bool read_value(struct reader *reader, uint64_t wire_type, const uint8_t **data, size_t *len)
{
    uint64_t number = 0;
    switch (wire_type) {
    case WIRE_VARINT:
        *len = 0;
        return read_varint(reader, &number);
    case WIRE_FIXED64:
        number = 8;
        break;
    case WIRE_FIXED32:
        number = 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(reader, &number))
            return false;
        break;
    default: /* groups: not in proto3 */
        return false;
    }
    if (number > (uint64_t)(reader->end - reader->at))
        return false;
    *data = reader->at;
    *len = (size_t)number;
    reader->at += number;
    return true;
}

static int check_bytes(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len, int depth,
                       struct err *err)
{
    if (depth > DEPTH_MAX)
        return err_set(err, ERR_INVALID, "nested too deeply");
    struct reader reader = {.at = data, .end = data + len};
    while (reader.at < reader.end) {
        uint64_t tag;
        const uint8_t *value = NULL;
        size_t value_len = 0;
        if (!read_varint(&reader, &tag) || tag > UINT32_MAX || tag >> 3 == 0 ||
            !read_value(&reader, tag & 7, &value, &value_len))
            return err_set(err, ERR_INVALID, "malformed message %s", type->short_name);
        if ((tag & 7) != WIRE_BYTES)
            continue;
        const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (field == NULL)
            continue;
        if (field->type == PROTOBUF_C_TYPE_STRING && !str_is_utf8((const char *)value, value_len))
            return err_set(err, ERR_INVALID, "%s is not UTF-8 text", field->name);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE &&
            check_bytes(field->descriptor, value, value_len, depth + 1, err) < 0)
            return err_wrap(err, "%s", field->name);
    }
    return 0;
}

int csi_wire_check(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len, struct err *err)
{
    return len == 0 ? 0 : check_bytes(type, data, len, 0, err);
}

static int check_value(const ProtobufCFieldDescriptor *field, const void *at, struct err *err)
{
    const void *value;
    memcpy(&value, at, sizeof(value));
    if (value == NULL)
        return 0;
    if (field->type == PROTOBUF_C_TYPE_STRING && !str_is_utf8(value, strlen(value)))
        return err_set(err, ERR_INVALID, "%s is not UTF-8 text", field->name);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE && csi_message_check(value, err) < 0)
        return err_wrap(err, "%s", field->name);
    return 0;
}

int csi_message_check(const ProtobufCMessage *message, struct err *err)
{
    const unsigned char *base = (const unsigned char *)message;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->type != PROTOBUF_C_TYPE_STRING && field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t len;
            const unsigned char *items;
            memcpy(&len, base + field->quantifier_offset, sizeof(len));
            memcpy(&items, base + field->offset, sizeof(items));
            for (size_t n = 0; n < len; n++)
                if (check_value(field, items + n * sizeof(void *), err) < 0)
                    return -1;
            continue;
        }
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
            uint32_t chosen;
            memcpy(&chosen, base + field->quantifier_offset, sizeof(chosen));
            if (chosen != field->id)
                continue;
        }
        if (check_value(field, base + field->offset, err) < 0)
            return -1;
    }
    return 0;
}

static void *arena_allocate(void *arena, size_t size)
{
    return csi_arena_alloc(arena, size);
}
static void arena_release(void *arena, void *pointer)
{
    (void)arena;
    (void)pointer;
}

ProtobufCMessage *csi_wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                                  struct csi_arena *arena, struct err *err)
{
    if (csi_wire_check(type, data, len, err) < 0)
        return NULL;
    ProtobufCAllocator allocator = {.alloc = arena_allocate, .free = arena_release, .allocator_data = arena};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, arena == NULL ? NULL : &allocator, len, data);
    if (message == NULL)
        err_set(err, ERR_INVALID, "malformed message %s", type->short_name);
    return message;
}

char *csi_text_clean(const void *data, size_t len, size_t limit)
{
    const char *bytes = data;
    struct str text = {0};
    for (size_t i = 0; i < len && text.len < limit;) {
        size_t n = 1; /* the shortest prefix that is valid is one character */
        while (n < 4 && i + n < len && !str_is_utf8(bytes + i, n))
            n++;
        if (str_is_utf8(bytes + i, n)) {
            str_add_len(&text, bytes + i, n);
            i += n;
        } else {
            str_add_char(&text, '?');
            i++;
        }
    }
    return str_take(&text);
}
