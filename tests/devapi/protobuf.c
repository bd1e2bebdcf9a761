/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/protobuf.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "tests/devapi/tree.h"

#include <string.h>

enum field_type { TEXT, BYTES, NUMBER, BOOLEAN, MESSAGE, TEXT_MAP, BYTES_MAP, TIME };

struct field {
    unsigned number; /* 0 ends a table */
    const char *name;
    enum field_type type;
    bool repeated;
    const struct field *fields; /* of MESSAGE */
};

static const struct field owner_fields[] = {
    {5, "apiVersion", TEXT, false, NULL},
    {1, "kind", TEXT, false, NULL},
    {3, "name", TEXT, false, NULL},
    {4, "uid", TEXT, false, NULL},
    {6, "controller", BOOLEAN, false, NULL},
    {7, "blockOwnerDeletion", BOOLEAN, false, NULL},
    {0},
};
static const struct field metadata_fields[] = {
    {1, "name", TEXT, false, NULL},
    {2, "generateName", TEXT, false, NULL},
    {3, "namespace", TEXT, false, NULL},
    {5, "uid", TEXT, false, NULL},
    {6, "resourceVersion", TEXT, false, NULL},
    {8, "creationTimestamp", TIME, false, NULL},
    {11, "labels", TEXT_MAP, false, NULL},
    {12, "annotations", TEXT_MAP, false, NULL},
    {13, "ownerReferences", MESSAGE, true, owner_fields},
    {14, "finalizers", TEXT, true, NULL},
    {0},
};
static const struct field namespace_spec_fields[] = {{1, "finalizers", TEXT, true, NULL}, {0}};
static const struct field phase_fields[] = {{1, "phase", TEXT, false, NULL}, {0}};
static const struct field name_fields[] = {{1, "name", TEXT, false, NULL}, {0}};
static const struct field reference_fields[] = {
    {1, "kind", TEXT, false, NULL}, {2, "namespace", TEXT, false, NULL}, {3, "name", TEXT, false, NULL}, {0}};
static const struct field namespace_fields[] = {
    {1, "metadata", MESSAGE, false, metadata_fields},
    {2, "spec", MESSAGE, false, namespace_spec_fields},
    {3, "status", MESSAGE, false, phase_fields},
    {0},
};
static const struct field config_map_fields[] = {
    {1, "metadata", MESSAGE, false, metadata_fields},
    {2, "data", TEXT_MAP, false, NULL},
    {3, "binaryData", BYTES_MAP, false, NULL},
    {4, "immutable", BOOLEAN, false, NULL},
    {0},
};
static const struct field secret_fields[] = {
    {1, "metadata", MESSAGE, false, metadata_fields},
    {2, "data", BYTES_MAP, false, NULL},
    {3, "type", TEXT, false, NULL},
    {4, "stringData", TEXT_MAP, false, NULL},
    {5, "immutable", BOOLEAN, false, NULL},
    {0},
};
static const struct field account_fields[] = {
    {1, "metadata", MESSAGE, false, metadata_fields},
    {2, "secrets", MESSAGE, true, reference_fields},
    {3, "imagePullSecrets", MESSAGE, true, name_fields},
    {4, "automountServiceAccountToken", BOOLEAN, false, NULL},
    {0},
};
/* runtime.Unknown, the envelope */
static const struct field type_fields[] = {{1, "apiVersion", TEXT, false, NULL}, {2, "kind", TEXT, false, NULL}, {0}};
static const struct {
    const char *kind;
    const struct field *fields;
} kinds[] = {
    {"Namespace", namespace_fields},
    {"ConfigMap", config_map_fields},
    {"Secret", secret_fields},
    {"ServiceAccount", account_fields},
};

struct reader {
    const unsigned char *at, *end;
};

static bool read_number(struct reader *reader, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        unsigned char byte = *reader->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return true;
    }
    return false;
}

/* One field: its number and wire type, and for a length-delimited one its bytes, else its number. */
struct item {
    unsigned number, wire;
    uint64_t value;
    struct reader bytes;
};

static bool read_item(struct reader *reader, struct item *item)
{
    uint64_t tag, len;
    if (!read_number(reader, &tag) || tag >> 3 > 0xffff)
        return false;
    *item = (struct item){.number = (unsigned)(tag >> 3), .wire = (unsigned)(tag & 7)};
    if (item->wire == 0)
        return read_number(reader, &item->value);
    if (item->wire == 2)
        if (!read_number(reader, &len))
            return false;
    if (item->wire == 1 || item->wire == 5)
        len = item->wire == 1 ? 8 : 4;
    else if (item->wire != 2)
        return false;
    if (len > (uint64_t)(reader->end - reader->at))
        return false;
    item->bytes = (struct reader){reader->at, reader->at + len};
    reader->at += len;
    return true;
}

static json_t *text_of(struct reader bytes)
{
    return json_stringn((const char *)bytes.at, (size_t)(bytes.end - bytes.at)); /* NULL unless UTF-8 */
}

static json_t *bytes_of(struct reader bytes)
{
    auto_free char *encoded = str_base64_encode(bytes.at, (size_t)(bytes.end - bytes.at));
    return json_string(encoded);
}

static json_t *read_message(struct reader reader, const struct field *fields);

static json_t *time_of(struct reader bytes)
{
    struct item item;
    char text[CLOCK_TEXT_SIZE];
    int64_t seconds = 0;
    while (bytes.at < bytes.end && read_item(&bytes, &item))
        if (item.number == 1)
            seconds = (int64_t)item.value;
    return seconds == 0 ? json_null() : json_string(clock_format_rfc3339(seconds * CLOCK_SECOND, false, text));
}

static bool add_map_entry(json_t *object, const struct field *field, struct reader bytes)
{
    struct item item;
    auto_json json_t *key = json_string(""), *value = json_string("");
    while (bytes.at < bytes.end) {
        if (!read_item(&bytes, &item) || item.wire != 2)
            return false;
        json_t **into = item.number == 1 ? &key : &value;
        json_decref(*into);
        *into = item.number == 2 && field->type == BYTES_MAP ? bytes_of(item.bytes) : text_of(item.bytes);
    }
    if (key == NULL || value == NULL)
        return false;
    tree_default(object, field->name, json_object());
    return json_object_set(json_object_get(object, field->name), json_string_value(key), value) == 0;
}

static json_t *value_of(const struct field *field, const struct item *item)
{
    switch (field->type) {
    case TEXT:
        return text_of(item->bytes);
    case BYTES:
        return bytes_of(item->bytes);
    case NUMBER:
        return json_integer((json_int_t)item->value);
    case BOOLEAN:
        return json_boolean(item->value != 0);
    case MESSAGE:
        return read_message(item->bytes, field->fields);
    case TIME:
        return time_of(item->bytes);
    case TEXT_MAP:
    case BYTES_MAP:
        break;
    }
    return NULL;
}

static bool add_item(json_t *object, const struct field *field, const struct item *item)
{
    bool number = field->type == NUMBER || field->type == BOOLEAN;
    if (item->wire != (number ? 0U : 2U))
        return false;
    if (field->type == TEXT_MAP || field->type == BYTES_MAP)
        return add_map_entry(object, field, item->bytes);
    json_t *value = value_of(field, item);
    if (value == NULL)
        return false;
    if (!field->repeated)
        return json_object_set_new(object, field->name, value) == 0;
    tree_default(object, field->name, json_array());
    return json_array_append_new(json_object_get(object, field->name), value) == 0;
}

/* Unknown fields are skipped. NULL when malformed. */
static json_t *read_message(struct reader reader, const struct field *fields)
{
    auto_json json_t *object = json_object();
    while (reader.at < reader.end) {
        struct item item;
        if (!read_item(&reader, &item))
            return NULL;
        for (const struct field *field = fields; field->number != 0; field++)
            if (field->number == item.number && !add_item(object, field, &item))
                return NULL;
    }
    return mem_take(object);
}

static const char mark[4] = {'k', '8', 's', '\0'};

bool protobuf_is_object(const void *data, size_t len)
{
    return len >= sizeof(mark) && memcmp(data, mark, sizeof(mark)) == 0;
}

json_t *protobuf_decode_object(const void *data, size_t len, struct err *err)
{
    struct reader reader = {(const unsigned char *)data + sizeof(mark), (const unsigned char *)data + len}, raw = {0};
    auto_json json_t *type = NULL;
    struct item item;
    while (reader.at < reader.end && read_item(&reader, &item)) {
        if (item.number == 1 && item.wire == 2) {
            json_decref(type);
            type = read_message(item.bytes, type_fields);
        } else if (item.number == 2 && item.wire == 2) {
            raw = item.bytes;
        }
    }
    const char *kind = tree_text(type, "kind");
    json_t *object = NULL;
    for (size_t i = 0; kind != NULL && i < ARRAY_LEN(kinds); i++) {
        if (strcmp(kinds[i].kind, kind) != 0)
            continue;
        object = read_message(raw, kinds[i].fields);
        if (object == NULL)
            err_set(err, ERR_INVALID, "malformed protobuf message of kind %s", kind);
        else
            json_object_update(object, type);
        return object;
    }
    err_set(err, ERR_INVALID, "kind %s is not known here in protobuf; send JSON", kind != NULL ? kind : "");
    return NULL;
}
