/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/tree.h"

#include <string.h>

enum { TREE_KEY_SIZE = 128 };

/* Copies the next element of the path; returns what follows it, or NULL at the end. */
static const char *next_key(const char *path, char key[TREE_KEY_SIZE])
{
    size_t len = strcspn(path, ".");
    size_t use = len < TREE_KEY_SIZE ? len : TREE_KEY_SIZE - 1;
    memcpy(key, path, use);
    key[use] = '\0';
    return path[len] == '.' ? path + len + 1 : NULL;
}

json_t *tree_get(const json_t *object, const char *path)
{
    char key[TREE_KEY_SIZE];
    while (path != NULL && object != NULL) {
        path = next_key(path, key);
        object = json_object_get(object, key);
    }
    return json_is_null(object) ? NULL : (json_t *)object;
}

const char *tree_text(const json_t *object, const char *path)
{
    return json_string_value(tree_get(object, path));
}

bool tree_has_text(const json_t *object, const char *path)
{
    const char *text = tree_text(object, path);
    return text != NULL && *text != '\0';
}

bool tree_is_true(const json_t *object, const char *path)
{
    return json_is_true(tree_get(object, path));
}

void tree_set(json_t *object, const char *path, json_t *value)
{
    char key[TREE_KEY_SIZE];
    for (;;) {
        path = next_key(path, key);
        if (path == NULL)
            break;
        json_t *inner = json_object_get(object, key);
        if (!json_is_object(inner)) {
            inner = json_object();
            json_object_set_new(object, key, inner);
        }
        object = inner;
    }
    json_object_set_new(object, key, value);
}

void tree_set_text(json_t *object, const char *path, const char *value)
{
    tree_set(object, path, json_string(value));
}

void tree_default(json_t *object, const char *path, json_t *value)
{
    if (tree_get(object, path) == NULL)
        tree_set(object, path, value);
    else
        json_decref(value);
}

void tree_remove(json_t *object, const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot == NULL) {
        json_object_del(object, path);
        return;
    }
    char parent[TREE_KEY_SIZE * 2];
    size_t len = (size_t)(dot - path);
    if (len >= sizeof(parent))
        return;
    memcpy(parent, path, len);
    parent[len] = '\0';
    json_t *inner = tree_get(object, parent);
    if (json_is_object(inner))
        json_object_del(inner, dot + 1);
}

void tree_strip_nulls(json_t *value)
{
    const char *key;
    void *next;
    json_t *member;
    size_t i;
    if (json_is_object(value)) {
        json_object_foreach_safe (value, next, key, member) {
            if (json_is_null(member))
                json_object_del(value, key);
            else
                tree_strip_nulls(member);
        }
    } else if (json_is_array(value)) {
        json_array_foreach (value, i, member) {
            tree_strip_nulls(member);
        }
    }
}

bool tree_is_zero(const json_t *value)
{
    switch (value != NULL ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    case JSON_STRING:
        return json_string_length(value) == 0;
    case JSON_INTEGER:
        return json_integer_value(value) == 0;
    case JSON_REAL:
    case JSON_TRUE:
        return false;
    case JSON_FALSE:
    case JSON_NULL:
        break;
    }
    return true;
}

bool tree_same(const json_t *a, const json_t *b)
{
    return (a == NULL && b == NULL) || (a != NULL && b != NULL && json_equal(a, b));
}
