/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/patch.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <string.h>

static void merge_into(json_t *target, const json_t *patch)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)patch, key, value) {
        json_t *inner = json_object_get(target, key);
        if (json_is_null(value))
            json_object_del(target, key);
        else if (!json_is_object(value))
            json_object_set_new(target, key, json_deep_copy(value));
        else if (json_is_object(inner))
            merge_into(inner, value);
        else
            json_object_set_new(target, key, patch_merge(NULL, value)); /* nulls in it go */
    }
}

json_t *patch_merge(const json_t *target, const json_t *patch)
{
    if (!json_is_object(patch))
        return json_deep_copy(patch);
    json_t *result = json_is_object(target) ? json_deep_copy(target) : json_object();
    merge_into(result, patch);
    return result;
}

/* One reference token of a JSON pointer, unescaped; *pointer moves behind it. */
static char *take_token(const char **pointer)
{
    struct str token = {0};
    str_add(&token, "");
    for ((*pointer)++; **pointer != '\0' && **pointer != '/'; (*pointer)++) {
        char c = **pointer;
        if (c == '~' && ((*pointer)[1] == '0' || (*pointer)[1] == '1'))
            c = *++*pointer == '0' ? '~' : '/';
        str_add_char(&token, c);
    }
    return str_take(&token);
}

static int missing(struct err *err, const char *pointer)
{
    return err_set(err, ERR_UNPROCESSABLE, "the path %s does not exist", pointer);
}

static json_t *child(json_t *value, const char *token)
{
    uint64_t index;
    if (json_is_object(value))
        return json_object_get(value, token);
    return json_is_array(value) && str_parse_u64(token, &index) ? json_array_get(value, index) : NULL;
}

/* Finds the container of the last token, which is returned in *last (owned by the caller). */
static json_t *find_parent(json_t *root, const char *pointer, char **last, struct err *err)
{
    *last = NULL;
    if (*pointer != '/') {
        err_set(err, ERR_INVALID, "bad path \"%s\"", pointer);
        return NULL;
    }
    const char *at = pointer;
    for (;;) {
        auto_free char *token = take_token(&at);
        if (*at == '\0') {
            *last = mem_take(token);
            return root;
        }
        root = child(root, token);
        if (root == NULL) {
            missing(err, pointer);
            return NULL;
        }
    }
}

static json_t *find(json_t *root, const char *pointer, struct err *err)
{
    if (*pointer == '\0')
        return root;
    auto_free char *last = NULL;
    json_t *parent = find_parent(root, pointer, &last, err);
    json_t *value = parent != NULL ? child(parent, last) : NULL;
    if (parent != NULL && value == NULL)
        missing(err, pointer);
    return value;
}

static int add(json_t **root, const char *pointer, json_t *value, bool replace, struct err *err)
{
    auto_free char *last = NULL;
    if (*pointer == '\0') {
        json_decref(*root);
        *root = json_incref(value);
        return 0;
    }
    json_t *parent = find_parent(*root, pointer, &last, err);
    if (parent == NULL)
        return -1;
    if (replace && child(parent, last) == NULL)
        return missing(err, pointer);
    if (json_is_object(parent))
        return json_object_set(parent, last, value);
    uint64_t index = json_array_size(parent);
    if (!json_is_array(parent) || (strcmp(last, "-") != 0 && !str_parse_u64(last, &index)) ||
        index > json_array_size(parent))
        return missing(err, pointer);
    return replace ? json_array_set(parent, index, value) : json_array_insert(parent, index, value);
}

static int take_out(json_t *root, const char *pointer, struct err *err)
{
    auto_free char *last = NULL;
    json_t *parent = find_parent(root, pointer, &last, err);
    if (parent == NULL)
        return -1;
    if (child(parent, last) == NULL)
        return missing(err, pointer);
    uint64_t index = 0;
    if (json_is_object(parent))
        return json_object_del(parent, last);
    (void)str_parse_u64(last, &index);
    return json_array_remove(parent, index);
}

static int apply(json_t **root, const json_t *operation, struct err *err)
{
    const char *name = tree_text(operation, "op"), *path = tree_text(operation, "path");
    const char *from = tree_text(operation, "from");
    json_t *value = json_object_get(operation, "value"); /* null is a value here */
    if (name == NULL || path == NULL)
        return err_set(err, ERR_INVALID, "an operation needs op and path");
    if (strcmp(name, "remove") == 0)
        return take_out(*root, path, err);
    if (strcmp(name, "move") == 0 || strcmp(name, "copy") == 0) {
        json_t *source = from != NULL ? find(*root, from, err) : NULL;
        if (from == NULL)
            return err_set(err, ERR_INVALID, "%s needs from", name);
        if (source == NULL)
            return -1;
        auto_json json_t *copy = json_deep_copy(source);
        if (*name == 'm' && take_out(*root, from, err) != 0)
            return -1;
        return add(root, path, copy, false, err);
    }
    if (value == NULL)
        return err_set(err, ERR_INVALID, "%s needs a value", name);
    if (strcmp(name, "add") == 0 || strcmp(name, "replace") == 0) {
        auto_json json_t *copy = json_deep_copy(value);
        return add(root, path, copy, *name == 'r', err);
    }
    if (strcmp(name, "test") != 0)
        return err_set(err, ERR_INVALID, "unknown operation \"%s\"", name);
    const json_t *have = find(*root, path, err);
    if (have == NULL && json_is_null(value)) {
        err_clear(err);
        return 0;
    }
    if (have == NULL)
        return -1;
    return json_equal(have, value) ? 0 : err_set(err, ERR_UNPROCESSABLE, "testing value %s failed", path);
}

json_t *patch_json(const json_t *target, const json_t *operations, struct err *err)
{
    if (!json_is_array(operations)) {
        err_set(err, ERR_INVALID, "a JSON patch is a list of operations");
        return NULL;
    }
    auto_json json_t *result = json_deep_copy(target);
    size_t i;
    json_t *operation;
    json_array_foreach (operations, i, operation) {
        if (apply(&result, operation, err) != 0) {
            if (err != NULL && err->code == ERR_NONE)
                err_set(err, ERR_UNPROCESSABLE, "operation %zu does not apply", i);
            return NULL;
        }
    }
    return mem_take(result);
}
