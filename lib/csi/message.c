/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields are found by name through the descriptors, and pointers are moved with memcpy: the generated structs of
 * different messages are different types, and reading one through another would break C's aliasing rules.
 */
#include "lib/csi/message.h"

#include "lib/base/mem.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct csi_arena_block {
    struct csi_arena_block *next;
    size_t size;
    size_t used;
    alignas(max_align_t) unsigned char data[];
};

#define BLOCK_MIN ((size_t)1024)
#define BLOCK_MAX ((size_t)64 * 1024)

void csi_arena_free(struct csi_arena *arena)
{
    while (arena->blocks != NULL) {
        struct csi_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        mem_wipe(block->data, block->used);
        free(block);
    }
}

void *csi_arena_alloc(struct csi_arena *arena, size_t size)
{
    const size_t alignment = alignof(max_align_t);
    size = size == 0 ? alignment : size;
    if (size > SIZE_MAX / 2)
        abort();
    size = (size + alignment - 1) / alignment * alignment;
    struct csi_arena_block *block = arena->blocks;
    if (block == NULL || block->size - block->used < size) {
        size_t block_size = block == NULL ? BLOCK_MIN : block->size * 2;
        if (block_size > BLOCK_MAX)
            block_size = BLOCK_MAX;
        if (block_size < size)
            block_size = size;
        block = mem_calloc(1, sizeof(*block) + block_size);
        block->size = block_size;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *data = block->data + block->used;
    block->used += size;
    return data;
}

static bool arena_owns(const struct csi_arena *arena, const void *pointer)
{
    for (const struct csi_arena_block *block = arena->blocks; block != NULL; block = block->next)
        if ((uintptr_t)pointer >= (uintptr_t)block->data && (uintptr_t)pointer < (uintptr_t)block->data + block->used)
            return true;
    return false;
}

char *csi_arena_strdup(struct csi_arena *arena, const char *text)
{
    size_t len = text == NULL ? 0 : strlen(text);
    char *copy = csi_arena_alloc(arena, len + 1);
    if (len > 0)
        memcpy(copy, text, len + 1);
    return copy;
}

char *csi_arena_printf(struct csi_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    auto_free char *text = mem_vprintf(format, args);
    va_end(args);
    char *copy = csi_arena_strdup(arena, text);
    mem_wipe(text, strlen(text));
    return copy;
}

/* ---- fields ---- */

static void *member(ProtobufCMessage *message, unsigned offset)
{
    return (unsigned char *)message + offset;
}

static _Noreturn void bug(const ProtobufCMessage *message, const char *field, const char *what)
{
    fprintf(stderr, "bug: %s.%s: %s\n", message->descriptor->name, field, what);
    abort();
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessage *message, const char *name, bool repeated,
                                                  ProtobufCType type)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
    if (field == NULL || field->type != type || (field->label == PROTOBUF_C_LABEL_REPEATED) != repeated)
        bug(message, name, "no such field of this kind");
    return field;
}

static ProtobufCMessage *new_message(struct csi_arena *arena, const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = csi_arena_alloc(arena, descriptor->sizeof_message);
    protobuf_c_message_init(descriptor, message);
    return message;
}

/* Arrays we grow have a capacity that is the next power of two of their length, so it need not be kept anywhere. */
static void append(struct csi_arena *arena, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                   void *item)
{
    size_t len;
    void **items;
    memcpy(&len, member(message, field->quantifier_offset), sizeof(len));
    memcpy(&items, member(message, field->offset), sizeof(items));
    if (len > 0 && !arena_owns(arena, items))
        bug(message, field->name, "the list is not from this arena");
    if ((len & (len - 1)) == 0) {
        void **grown = csi_arena_alloc(arena, (len == 0 ? 1 : len * 2) * sizeof(*grown));
        if (len > 0)
            memcpy(grown, items, len * sizeof(*grown));
        items = grown;
        memcpy(member(message, field->offset), &items, sizeof(items));
    }
    items[len] = item;
    len++;
    memcpy(member(message, field->quantifier_offset), &len, sizeof(len));
}

void *csi_message_set_new(struct csi_arena *arena, ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = find_field(message, name, false, PROTOBUF_C_TYPE_MESSAGE);
    void *value = new_message(arena, field->descriptor);
    memcpy(member(message, field->offset), &value, sizeof(value));
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        memcpy(member(message, field->quantifier_offset), &field->id, sizeof(field->id));
    return value;
}

void *csi_message_add_new(struct csi_arena *arena, ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = find_field(message, name, true, PROTOBUF_C_TYPE_MESSAGE);
    void *value = new_message(arena, field->descriptor);
    append(arena, message, field, value);
    return value;
}

void csi_message_add_string(struct csi_arena *arena, ProtobufCMessage *message, const char *name, const char *text)
{
    const ProtobufCFieldDescriptor *field = find_field(message, name, true, PROTOBUF_C_TYPE_STRING);
    append(arena, message, field, csi_arena_strdup(arena, text));
}

/* ---- maps ---- */

enum { ENTRY_KEY, ENTRY_VALUE };

static const char *entry_text(const void *entry, unsigned which)
{
    const ProtobufCMessage *message = entry;
    const char *text;
    memcpy(&text, (const unsigned char *)entry + message->descriptor->fields[which].offset, sizeof(text));
    return text == NULL ? "" : text;
}

static void entry_set(struct csi_arena *arena, ProtobufCMessage *entry, unsigned which, const char *text)
{
    char *copy = csi_arena_strdup(arena, text);
    memcpy(member(entry, entry->descriptor->fields[which].offset), &copy, sizeof(copy));
}

static const void *map_find(struct csi_map map, const char *key)
{
    for (size_t i = map.len; i > 0; i--)
        if (strcmp(entry_text(map.entries[i - 1], ENTRY_KEY), key) == 0)
            return map.entries[i - 1];
    return NULL;
}

const char *csi_map_get(struct csi_map map, const char *key)
{
    const void *entry = map_find(map, key);
    return entry == NULL ? NULL : entry_text(entry, ENTRY_VALUE);
}

bool csi_map_at(struct csi_map map, size_t i, const char **key, const char **value)
{
    *key = entry_text(map.entries[i], ENTRY_KEY);
    *value = entry_text(map.entries[i], ENTRY_VALUE);
    return map_find(map, *key) == map.entries[i];
}

size_t csi_map_bytes(struct csi_map map)
{
    size_t bytes = 0;
    for (size_t i = 0; i < map.len; i++)
        bytes += strlen(entry_text(map.entries[i], ENTRY_KEY)) + strlen(entry_text(map.entries[i], ENTRY_VALUE));
    return bytes;
}

void csi_message_map_add(struct csi_arena *arena, ProtobufCMessage *message, const char *name, const char *key,
                         const char *value)
{
    const ProtobufCFieldDescriptor *field = find_field(message, name, true, PROTOBUF_C_TYPE_MESSAGE);
    const ProtobufCMessageDescriptor *entry_type = field->descriptor;
    if (entry_type->n_fields != 2 || entry_type->fields[ENTRY_KEY].type != PROTOBUF_C_TYPE_STRING ||
        entry_type->fields[ENTRY_VALUE].type != PROTOBUF_C_TYPE_STRING)
        bug(message, name, "not a map of strings");
    size_t len;
    void **entries;
    memcpy(&len, member(message, field->quantifier_offset), sizeof(len));
    memcpy(&entries, member(message, field->offset), sizeof(entries));
    for (size_t i = 0; i < len; i++) {
        if (strcmp(entry_text(entries[i], ENTRY_KEY), key) != 0)
            continue;
        if (!arena_owns(arena, entries[i]))
            bug(message, name, "the map is not from this arena");
        entry_set(arena, entries[i], ENTRY_VALUE, value);
        return;
    }
    ProtobufCMessage *entry = new_message(arena, entry_type);
    entry_set(arena, entry, ENTRY_KEY, key);
    entry_set(arena, entry, ENTRY_VALUE, value);
    append(arena, message, field, entry);
}

void csi_message_map_add_all(struct csi_arena *arena, ProtobufCMessage *message, const char *name, struct csi_map map)
{
    for (size_t i = 0; i < map.len; i++)
        csi_message_map_add(arena, message, name, entry_text(map.entries[i], ENTRY_KEY),
                            entry_text(map.entries[i], ENTRY_VALUE));
}

void csi_message_free(void *message)
{
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
}
