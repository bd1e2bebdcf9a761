/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building and reading protobuf messages. A message that we build lives in a `struct csi_arena`: strings, lists, maps
 * and sub-messages are added to it and all go at once when the arena is freed, so nobody ever frees (or forgets) a
 * part, and a reply may point at constant strings or at parts of the request. Messages that protobuf-c unpacked for a
 * caller are the other kind: they are freed whole with csi_message_free.
 *
 *     auto_csi_arena struct csi_arena arena = {0};
 *     Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
 *     request.name = csi_arena_strdup(&arena, name);
 *     CSI_NEW(&arena, &request, capacity_range)->required_bytes = size;
 *     Csi__V1__VolumeCapability *capability = CSI_ADD(&arena, &request, volume_capabilities);
 *     CSI_NEW(&arena, capability, mount)->fs_type = csi_arena_strdup(&arena, "ext4");
 *     CSI_MAP_ADD(&arena, &request, parameters, "kind", "fast");
 */
#ifndef BERTH_CSI_MESSAGE_H
#define BERTH_CSI_MESSAGE_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct csi_arena { /* {0} is an empty one; not thread-safe */
    struct csi_arena_block *blocks;
};
/* Overwrites (secrets pass through here) and frees everything; the arena may be used again. */
void csi_arena_free(struct csi_arena *arena);
#define auto_csi_arena __attribute__((cleanup(csi_arena_free)))
void *csi_arena_alloc(struct csi_arena *arena, size_t size); /* zeroed, aligned for anything */
/* Copies, never NULL: NULL gives "" (proto3 cannot tell the two apart). */
char *csi_arena_strdup(struct csi_arena *arena, const char *text);
char *csi_arena_printf(struct csi_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets a message field (a member of a oneof too) to a new empty message and returns it with the field's own type. */
#define CSI_NEW(arena, message, field)                                                                                 \
    ((__typeof__((message)->field))(csi_message_set_new((arena), &(message)->base, #field)))
/* Appends a new empty message to a repeated field and returns it. A repeated field or map is filled either by these or
 * by hand (pointing at constant data or at a part of the request), not by both: that aborts. */
#define CSI_ADD(arena, message, field)                                                                                 \
    ((__typeof__(*(message)->field))(csi_message_add_new((arena), &(message)->base, #field)))
/* Appends a copy of the text to a repeated string field. */
#define CSI_ADD_STRING(arena, message, field, text)                                                                    \
    ((void)sizeof((message)->n_##field), csi_message_add_string((arena), &(message)->base, #field, (text)))
/* Adds to a map<string,string> field; an equal key that is already there gets the new value. */
#define CSI_MAP_ADD(arena, message, field, key, value)                                                                 \
    ((void)sizeof((message)->n_##field), csi_message_map_add((arena), &(message)->base, #field, (key), (value)))
/* Adds all entries of a map (CSI_MAP below). */
#define CSI_MAP_ADD_ALL(arena, message, field, map)                                                                    \
    ((void)sizeof((message)->n_##field), csi_message_map_add_all((arena), &(message)->base, #field, (map)))

/* A borrowed view on a map<string,string> field: `csi_map_get(CSI_MAP(request, parameters), "kind")`. */
struct csi_map {
    size_t len; /* entries on the wire: keys may repeat */
    const void *const *entries;
};
#define CSI_MAP(message, field)                                                                                        \
    ((struct csi_map){.len = (message)->n_##field, .entries = (const void *const *)(message)->field})
/* NULL when the key is absent. Of repeated keys the last one counts, as everywhere in protobuf. */
const char *csi_map_get(struct csi_map map, const char *key);
/* Iteration: key and value of entry `i`; false for an entry that a later one with the same key overrides (skip it). */
bool csi_map_at(struct csi_map map, size_t i, const char **key, const char **value);
size_t csi_map_bytes(struct csi_map map); /* keys and values together */

/* Frees a message that was unpacked for the caller (replies of csi_call); NULL is fine. */
void csi_message_free(void *message);
static inline void csi_message_cleanup(void *address)
{
    void **message = address;
    csi_message_free(*message);
}
/* `auto_csi_message Csi__V1__CreateVolumeResponse *reply = NULL;` */
#define auto_csi_message __attribute__((cleanup(csi_message_cleanup)))

/* Compact JSON-like text for logs: fields with their proto names, defaults left out. Fields that may carry secrets
 * (`secrets`, `mount_flags`, and the service account tokens that kubelet puts into volume_context) show ***stripped***.
 * The text is cut at 16 KiB. */
void csi_message_print(const ProtobufCMessage *message, struct str *out);

/* What the macros above call. `field` must be a field of that kind: anything else is a bug and aborts. */
void *csi_message_set_new(struct csi_arena *arena, ProtobufCMessage *message, const char *field);
void *csi_message_add_new(struct csi_arena *arena, ProtobufCMessage *message, const char *field);
void csi_message_add_string(struct csi_arena *arena, ProtobufCMessage *message, const char *field, const char *text);
void csi_message_map_add(struct csi_arena *arena, ProtobufCMessage *message, const char *field, const char *key,
                         const char *value);
void csi_message_map_add_all(struct csi_arena *arena, ProtobufCMessage *message, const char *field, struct csi_map map);

#endif
