/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to objects*.c: turns JSON into one block of memory per object.
 *
 * A kind has one `fill` function that walks the JSON and fills a struct. It runs twice over the same JSON: first with a
 * throw-away struct, to measure (and to find what is malformed), then into the block:
 *
 *     [struct kube_x][arrays …][strings …]
 *
 * Strings equal to a well-known one cost nothing, and a string that ends an earlier one of the same block shares its
 * bytes: the uid of a claim is the end of its volume's name.
 */
#ifndef BERTH_KUBE_OBJECTS_PACK_H
#define BERTH_KUBE_OBJECTS_PACK_H

#include "lib/kube/objects.h"

#define PACK_SEEN_MAX 64
#define PACK_ROOM 2048
/* Far above what the API server stores (etcd refuses 1.5 MiB), and far below what would overflow a count. */
#define PACK_SIZE_MAX ((size_t)256 << 20)

/* A place in the JSON; lives on the stack and knows its way from the root, so that errors can name it. */
struct pack_node {
    const json_t *json; /* NULL: absent or null */
    const struct pack_node *parent;
    const char *name; /* NULL: an element of a list, at `index` */
    size_t index;
};

struct pack_seen {
    const char *text;
    size_t len;
};

struct pack_scratch;
struct pack {
    const struct kube_kind *kind;
    const struct kube_decode_options *options;
    struct err *err;
    const struct pack_node *root;
    bool failed;
    bool measuring;
    size_t array_bytes, string_bytes; /* used so far */
    char *arrays, *strings;           /* NULL while measuring */
    size_t array_limit, string_limit;
    struct pack_seen seen[PACK_SEEN_MAX];
    size_t seen_count;
    struct pack_scratch *scratch; /* arrays while measuring */
    size_t room_used;
    _Alignas(16) char room[PACK_ROOM]; /* the same, as long as they are small */
};

typedef void (*pack_fill)(struct pack *pack, const struct pack_node *root, struct kube_object *object);
struct kube_object *pack_decode(const struct kube_kind *kind, size_t struct_size, pack_fill fill, const json_t *json,
                                const struct kube_decode_options *options, struct err *err);

/* All of these note the first thing that is malformed and go on with what stands for "absent". */
void pack_fail(struct pack *pack, const struct pack_node *node, const char *what);
struct pack_node pack_member(struct pack *pack, const struct pack_node *of, const char *name);
struct pack_node pack_element(const struct pack_node *list, size_t index);
/* Whether there is a (JSON) object at this place. */
bool pack_is_object(struct pack *pack, const struct pack_node *node);
/* 0 when absent. */
uint32_t pack_list_len(struct pack *pack, const struct pack_node *node);

/* Zeroed room for `count` items in the object's block (16-byte aligned only if all are). NULL for 0 items. */
void *pack_array(struct pack *pack, size_t count, size_t size);
const char *pack_copy(struct pack *pack, const char *text, size_t len);               /* never shared */
const char *pack_join(struct pack *pack, const char *a, char between, const char *b); /* "<a>-<b>" */

const char *pack_node_text(struct pack *pack, const struct pack_node *node);            /* NULL when absent */
const char *pack_text(struct pack *pack, const struct pack_node *of, const char *name); /* "" when absent */
const char *pack_nullable(struct pack *pack, const struct pack_node *of, const char *name);
bool pack_bool(struct pack *pack, const struct pack_node *of, const char *name);
int64_t pack_int(struct pack *pack, const struct pack_node *of, const char *name);
int64_t pack_time(struct pack *pack, const struct pack_node *of, const char *name); /* 0 when absent or unreadable */
/* False when absent or unreadable; then *quantity is left alone. */
bool pack_quantity(struct pack *pack, const struct pack_node *of, const char *name, struct kube_quantity *quantity);
/* As written; a number in the JSON as text; "" for anything else. */
const char *pack_quantity_text(struct pack *pack, const struct pack_node *node);
struct kube_strings pack_strings(struct pack *pack, const struct pack_node *of, const char *name);
struct kube_pairs pack_pairs(struct pack *pack, const struct pack_node *of, const char *name);
/* The same without the annotations that nobody reads (see struct kube_decode_options). */
struct kube_pairs pack_annotations(struct pack *pack, const struct pack_node *of, const char *name);
/* The same with base64 values, decoded. */
struct kube_pairs pack_secrets(struct pack *pack, const struct pack_node *of, const char *name);
/* The same with quantities as values, which may be numbers in the JSON. */
struct kube_pairs pack_quantities(struct pack *pack, const struct pack_node *of, const char *name);
struct kube_selector pack_requirements(struct pack *pack, const struct pack_node *of, const char *name);
struct kube_selector pack_label_selector(struct pack *pack, const struct pack_node *selector);
struct kube_reference pack_reference(struct pack *pack, const struct pack_node *node);
struct kube_secret_reference pack_secret_reference(struct pack *pack, const struct pack_node *of, const char *name);
void pack_meta(struct pack *pack, const struct pack_node *root, struct kube_meta *meta);

/* The static copy of a well-known text, or NULL. The table is sorted; the second function is for its test. */
const char *pack_constant(const char *text);
const char *const *pack_constants(size_t *count);

#endif
