/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategic merge. The path without indices ("spec.containers.env") is carried along to look up how a list is merged.
 */
#include "tests/devapi/patch.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <string.h>

#define DELETE_FROM "$deleteFromPrimitiveList/"
#define SET_ORDER "$setElementOrder/"

static const struct kind_list common_lists[] = {{"metadata.finalizers", ""}, {"metadata.ownerReferences", "uid"}};

static const char *merge_key(const struct kind *kind, const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(common_lists); i++)
        if (strcmp(common_lists[i].path, path) == 0)
            return common_lists[i].key;
    for (const struct kind_list *list = kind->lists; list != NULL && list->path != NULL; list++)
        if (strcmp(list->path, path) == 0)
            return list->key;
    return NULL;
}

static int merge_into(const struct kind *kind, json_t *result, const json_t *patch, const char *path, struct err *err);

/* The patch as a new object: what it says about nothing, without its directives. */
static json_t *merge_new(const struct kind *kind, const json_t *patch, const char *path, struct err *err)
{
    json_t *result = json_object();
    if (merge_into(kind, result, patch, path, err) == 0)
        return result;
    json_decref(result);
    return NULL;
}

/* Where in `list` the item with this key (or this string, key "") stands; -1 when nowhere. */
static ssize_t find_item(const json_t *list, const char *key, const json_t *like)
{
    size_t i;
    json_t *item;
    const json_t *want = *key != '\0' ? json_object_get(like, key) : like;
    json_array_foreach (list, i, item) {
        const json_t *have = *key != '\0' ? json_object_get(item, key) : item;
        if (have != NULL && want != NULL && json_equal(have, want))
            return (ssize_t)i;
    }
    return -1;
}

static void remove_item(json_t *list, const char *key, const json_t *like)
{
    ssize_t at = find_item(list, key, like);
    if (at >= 0)
        json_array_remove(list, (size_t)at);
}

static int merge_keyed_item(const struct kind *kind, json_t *result, const json_t *item, const char *key,
                            const char *path, struct err *err)
{
    if (!json_is_object(item) || json_object_get(item, key) == NULL)
        return err_set(err, ERR_INVALID, "map: %s does not contain declared merge key: %s", path, key);
    const char *directive = tree_text(item, "$patch");
    if (directive != NULL && strcmp(directive, "delete") == 0) {
        remove_item(result, key, item);
        return 0;
    }
    ssize_t at = find_item(result, key, item);
    if (at >= 0)
        return merge_into(kind, json_array_get(result, (size_t)at), item, path, err);
    json_t *made = merge_new(kind, item, path, err);
    return made != NULL ? json_array_append_new(result, made) : -1;
}

/* A list with {"$patch": "replace"} among its items takes the place of the old one. */
static json_t *replaced_list(const json_t *patch)
{
    size_t i;
    json_t *item;
    json_array_foreach (patch, i, item) {
        const char *directive = json_is_object(item) ? tree_text(item, "$patch") : NULL;
        if (directive == NULL || strcmp(directive, "replace") != 0)
            continue;
        json_t *copy = json_deep_copy(patch);
        json_array_remove(copy, i);
        return copy;
    }
    return NULL;
}

/* `list` is the present one, changed in place; NULL = there is none. Returns what takes its place, or NULL on an error.
 */
static json_t *merge_list(const struct kind *kind, json_t *list, const json_t *patch, const char *path, struct err *err)
{
    const char *key = merge_key(kind, path);
    if (key == NULL)
        return json_deep_copy(patch);
    json_t *replaced = replaced_list(patch);
    if (replaced != NULL)
        return replaced;
    auto_json json_t *result = json_is_array(list) ? json_incref(list) : json_array();
    size_t i;
    json_t *item;
    json_array_foreach (patch, i, item) {
        if (*key != '\0') {
            if (merge_keyed_item(kind, result, item, key, path, err) != 0)
                return NULL;
        } else if (find_item(result, "", item) < 0) {
            json_array_append_new(result, json_deep_copy(item));
        }
    }
    return mem_take(result);
}

/* Puts the named items into the wanted order; the others keep their place after the item they followed. */
static void set_order(json_t *list, const json_t *order, const char *key)
{
    auto_json json_t *old = json_copy(list);
    json_array_clear(list);
    size_t i, next = 0;
    json_t *item;
    json_array_foreach (old, i, item) {
        if (find_item(order, key, item) < 0) {
            json_array_append(list, item);
            continue;
        }
        while (next < json_array_size(order)) {
            ssize_t at = find_item(old, key, json_array_get(order, next++));
            if (at >= 0) {
                json_array_append(list, json_array_get(old, (size_t)at));
                break;
            }
        }
    }
}

static int apply_directive(const struct kind *kind, json_t *result, const char *name, const json_t *value,
                           const char *path, struct err *err)
{
    size_t i;
    json_t *item;
    if (strcmp(name, "$retainKeys") == 0) {
        const char *key;
        void *next;
        json_object_foreach_safe (result, next, key, item) {
            auto_json json_t *text = json_string(key);
            if (find_item(value, "", text) < 0)
                json_object_del(result, key);
        }
        return 0;
    }
    const char *field = strchr(name, '/');
    if (field == NULL || !json_is_array(value) || (!str_starts(name, DELETE_FROM) && !str_starts(name, SET_ORDER)))
        return err_set(err, ERR_INVALID, "unrecognized directive %s", name);
    json_t *list = json_object_get(result, ++field);
    if (list == NULL)
        return 0;
    if (str_starts(name, DELETE_FROM)) {
        json_array_foreach (value, i, item) {
            remove_item(list, "", item);
        }
        return 0;
    }
    auto_free char *list_path = mem_printf("%s%s%s", path, *path != '\0' ? "." : "", field);
    const char *key = merge_key(kind, list_path);
    if (key != NULL)
        set_order(list, value, key);
    return 0;
}

static int merge_member(const struct kind *kind, json_t *result, const char *name, const json_t *value,
                        const char *path, struct err *err)
{
    if (json_is_null(value)) {
        json_object_del(result, name);
        return 0;
    }
    auto_free char *inner = mem_printf("%s%s%s", path, *path != '\0' ? "." : "", name);
    json_t *old = json_object_get(result, name), *merged;
    if (json_is_object(value) && json_is_object(old))
        return merge_into(kind, old, value, inner, err);
    if (json_is_object(value))
        merged = merge_new(kind, value, inner, err);
    else
        merged = json_is_array(value) ? merge_list(kind, old, value, inner, err) : json_deep_copy(value);
    return merged != NULL ? json_object_set_new(result, name, merged) : -1;
}

static int merge_into(const struct kind *kind, json_t *result, const json_t *patch, const char *path, struct err *err)
{
    const char *directive = tree_text(patch, "$patch"), *name;
    json_t *value;
    if (directive != NULL && (strcmp(directive, "delete") == 0 || strcmp(directive, "replace") == 0))
        json_object_clear(result);
    if (directive != NULL && strcmp(directive, "delete") == 0)
        return 0;
    json_object_foreach ((json_t *)patch, name, value) {
        if (*name != '$' && merge_member(kind, result, name, value, path, err) != 0)
            return -1;
    }
    json_object_foreach ((json_t *)patch, name, value) {
        if (*name == '$' && strcmp(name, "$patch") != 0 && apply_directive(kind, result, name, value, path, err) != 0)
            return -1;
    }
    return 0;
}

json_t *patch_strategic(const struct kind *kind, const json_t *target, const json_t *patch, struct err *err)
{
    if (!json_is_object(patch)) {
        err_set(err, ERR_INVALID, "a strategic merge patch is an object");
        return NULL;
    }
    auto_json json_t *result = json_is_object(target) ? json_deep_copy(target) : json_object();
    return merge_into(kind, result, patch, "", err) == 0 ? mem_take(result) : NULL;
}
