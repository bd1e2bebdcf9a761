/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching into JSON trees by dotted paths ("spec.claimRef.uid"). Keys with dots in them need json_object_get. */
#ifndef BERTH_DEVAPI_TREE_H
#define BERTH_DEVAPI_TREE_H

#include <jansson.h>
#include <stdbool.h>

json_t *tree_get(const json_t *object, const char *path);      /* borrowed; NULL when absent or null */
const char *tree_text(const json_t *object, const char *path); /* borrowed; NULL when it is no string */
bool tree_has_text(const json_t *object, const char *path);    /* a string that is not empty */
bool tree_is_true(const json_t *object, const char *path);
/* Sets (taking the reference to value), making the objects on the way. */
void tree_set(json_t *object, const char *path, json_t *value);
void tree_set_text(json_t *object, const char *path, const char *value);
/* Sets only when the path is absent. */
void tree_default(json_t *object, const char *path, json_t *value);
void tree_remove(json_t *object, const char *path);
/* Removes null members at any depth: the server's decoder takes them for absent. */
void tree_strip_nulls(json_t *value);
/* Whether an encoder with "omitempty" leaves this out: "", 0, false, [], {}, null. */
bool tree_is_zero(const json_t *value);
bool tree_same(const json_t *a, const json_t *b); /* both absent, or equal */

static inline void tree_free(json_t **value)
{
    json_decref(*value);
}
#define auto_json __attribute__((cleanup(tree_free)))

#endif
