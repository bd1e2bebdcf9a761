/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as text for the log. What may be shown is decided by field name, because protobuf-c drops the csi_secret
 * mark of csi.proto. Leaving a field out by mistake costs a little comfort, printing one costs a password: so when in
 * doubt a name goes into the table.
 */
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/csi/message.h"

#include <inttypes.h>
#include <string.h>

#define PRINT_MAX ((size_t)16 * 1024)
static const char STRIPPED[] = "\"***stripped***\"";

static const char *const secret_fields[] = {"secrets", "mount_flags"};
/* kubelet puts pod credentials into the volume context of drivers that ask for them */
static const char *const secret_map_keys[] = {"csi.storage.k8s.io/serviceAccount.tokens"};

static bool listed(const char *const *list, size_t len, const char *name)
{
    for (size_t i = 0; i < len; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

static bool full(const struct str *out, size_t start)
{
    return out->len - start >= PRINT_MAX;
}

static void print_text(const char *text, struct str *out, size_t start)
{
    str_add_char(out, '"');
    for (const char *c = text; *c != '\0' && !full(out, start); c++) {
        if (*c == '"' || *c == '\\')
            str_addf(out, "\\%c", *c);
        else if ((unsigned char)*c < 0x20 || *c == 0x7f)
            str_addf(out, "\\u%04x", (unsigned)(unsigned char)*c);
        else
            str_add_char(out, *c);
    }
    str_add_char(out, '"');
}

static void print_message(const ProtobufCMessage *message, struct str *out, size_t start);

static bool is_map(const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label != PROTOBUF_C_LABEL_REPEATED)
        return false;
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    return entry->n_fields == 2 && str_ends(entry->short_name, "Entry") && strcmp(entry->fields[0].name, "key") == 0 &&
           strcmp(entry->fields[1].name, "value") == 0;
}

static void print_map(void *const *entries, size_t len, struct str *out, size_t start)
{
    struct csi_map map = {.len = len, .entries = (const void *const *)entries};
    const char *separator = "{";
    for (size_t i = 0; i < len && !full(out, start); i++) {
        const char *key, *value;
        if (!csi_map_at(map, i, &key, &value))
            continue;
        str_add(out, separator);
        print_text(key, out, start);
        str_add_char(out, ':');
        if (listed(secret_map_keys, ARRAY_LEN(secret_map_keys), key))
            str_add(out, STRIPPED);
        else
            print_text(value, out, start);
        separator = ",";
    }
    str_add_char(out, '}');
}

/* Reads a value of type T that may lie in a struct of any type. */
#define LOAD(T, address)                                                                                               \
    __extension__({                                                                                                    \
        T value_;                                                                                                      \
        memcpy(&value_, (address), sizeof(value_));                                                                    \
        value_;                                                                                                        \
    })

static void print_value(const ProtobufCFieldDescriptor *field, const void *at, struct str *out, size_t start)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = LOAD(const char *, at);
        print_text(text == NULL ? "" : text, out, start);
        return;
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        print_message(LOAD(const void *, at), out, start);
        return;
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(field->descriptor, LOAD(int, at));
        if (value != NULL)
            str_addf(out, "\"%s\"", value->name);
        else
            str_addf(out, "%d", LOAD(int, at));
        return;
    }
    case PROTOBUF_C_TYPE_BOOL:
        str_add(out, LOAD(protobuf_c_boolean, at) ? "true" : "false");
        return;
    case PROTOBUF_C_TYPE_INT32:
        str_addf(out, "%" PRId32, LOAD(int32_t, at));
        return;
    case PROTOBUF_C_TYPE_INT64:
        str_addf(out, "%" PRId64, LOAD(int64_t, at));
        return;
    default: /* no message of ours has other kinds */
        str_add(out, "\"?\"");
        return;
    }
}

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_INT64:
        return sizeof(int64_t);
    default:
        return sizeof(int32_t);
    }
}

static bool is_default(const ProtobufCFieldDescriptor *field, const void *at)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = LOAD(const char *, at);
        return text == NULL || *text == '\0';
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        return LOAD(const void *, at) == NULL;
    case PROTOBUF_C_TYPE_INT64:
        return LOAD(int64_t, at) == 0;
    case PROTOBUF_C_TYPE_BOOL:
        return !LOAD(protobuf_c_boolean, at);
    default:
        return LOAD(int32_t, at) == 0;
    }
}

static void print_list(const ProtobufCFieldDescriptor *field, const unsigned char *items, size_t len, struct str *out,
                       size_t start)
{
    const size_t size = value_size(field);
    str_add_char(out, '[');
    for (size_t i = 0; i < len && !full(out, start); i++) {
        if (i > 0)
            str_add_char(out, ',');
        print_value(field, items + i * size, out, start);
    }
    str_add_char(out, ']');
}

/* Messages that JSON shows as a plain value. */
static bool print_well_known(const ProtobufCMessage *message, struct str *out, size_t start)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    const unsigned char *base = (const unsigned char *)message;
    if (strcmp(type->package_name, "google.protobuf") != 0)
        return false;
    if (strcmp(type->short_name, "Timestamp") == 0) {
        int64_t seconds = LOAD(int64_t, base + type->fields[0].offset);
        char text[CLOCK_TEXT_SIZE];
        if (seconds < 0 || seconds > INT64_MAX / CLOCK_SECOND)
            str_addf(out, "%" PRId64, seconds);
        else
            str_addf(out, "\"%s\"", clock_format_rfc3339(seconds * CLOCK_SECOND, false, text));
        return true;
    }
    if (type->n_fields == 1) { /* BoolValue, Int64Value … */
        print_value(&type->fields[0], base + type->fields[0].offset, out, start);
        return true;
    }
    return false;
}

/* One "name":value; false when the field is not set. */
static bool print_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, const char *separator,
                        struct str *out, size_t start)
{
    const unsigned char *base = (const unsigned char *)message;
    const void *at = base + field->offset;
    const bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
    size_t len = repeated ? LOAD(size_t, base + field->quantifier_offset) : 0;
    if (repeated && len == 0)
        return false;
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
        LOAD(uint32_t, base + field->quantifier_offset) != field->id)
        return false;
    if (!repeated && is_default(field, at))
        return false;
    str_addf(out, "%s\"%s\":", separator, field->name);
    if (listed(secret_fields, ARRAY_LEN(secret_fields), field->name))
        str_add(out, STRIPPED);
    else if (is_map(field))
        print_map(LOAD(void **, at), len, out, start);
    else if (repeated)
        print_list(field, LOAD(const unsigned char *, at), len, out, start);
    else
        print_value(field, at, out, start);
    return true;
}

static void print_message(const ProtobufCMessage *message, struct str *out, size_t start)
{
    if (message == NULL) {
        str_add(out, "null");
        return;
    }
    if (print_well_known(message, out, start))
        return;
    str_add_char(out, '{');
    const char *separator = "";
    for (unsigned i = 0; i < message->descriptor->n_fields && !full(out, start); i++)
        if (print_field(message, &message->descriptor->fields[i], separator, out, start))
            separator = ",";
    str_add_char(out, '}');
}

void csi_message_print(const ProtobufCMessage *message, struct str *out)
{
    const size_t start = out->len;
    print_message(message, out, start);
    if (full(out, start))
        str_add(out, "...");
}
