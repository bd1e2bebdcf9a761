/* SPDX-License-Identifier: Apache-2.0 */
/* The list of strings of str.h. */
#include "lib/base/mem.h"
#include "lib/base/str.h"

void strv_free(struct strv *list)
{
    if (list == NULL)
        return;
    for (size_t i = 0; i < list->len; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct strv){0};
}

void strv_add_take(struct strv *list, char *text)
{
    if (list->len == list->cap) {
        size_t cap = list->cap < 4 ? 4 : list->cap + list->cap / 2;
        list->items = mem_realloc_array(list->items, cap, sizeof(*list->items));
        list->cap = cap;
    }
    list->items[list->len++] = text;
}

void strv_add(struct strv *list, const char *text)
{
    strv_add_take(list, mem_strdup(text != NULL ? text : ""));
}

static size_t find(const struct strv *list, const char *text)
{
    for (size_t i = 0; i < list->len; i++) {
        if (str_eq(list->items[i], text))
            return i;
    }
    return SIZE_MAX;
}

bool strv_contains(const struct strv *list, const char *text)
{
    return find(list, text) != SIZE_MAX;
}

bool strv_remove(struct strv *list, const char *text)
{
    size_t at = find(list, text);
    if (at == SIZE_MAX)
        return false;
    free(list->items[at]);
    list->len--;
    memmove(list->items + at, list->items + at + 1, (list->len - at) * sizeof(*list->items));
    return true;
}

static int compare(const void *a, const void *b)
{
    const char *const *left = a;
    const char *const *right = b;
    return strcmp(*left, *right);
}

void strv_sort(struct strv *list)
{
    if (list->len > 1)
        qsort(list->items, list->len, sizeof(*list->items), compare);
}

char *strv_join(const struct strv *list, const char *separator)
{
    struct str out = {0};
    for (size_t i = 0; i < list->len; i++) {
        if (i > 0)
            str_add(&out, separator);
        str_add(&out, list->items[i]);
    }
    return str_take(&out);
}

void strv_split(struct strv *list, const char *text, char separator)
{
    const char *start = text;
    for (;;) {
        const char *end = strchrnul(start, separator);
        strv_add_take(list, mem_strndup(start, (size_t)(end - start)));
        if (*end == '\0')
            return;
        start = end + 1;
    }
}

void strv_copy(struct strv *to, const struct strv *from)
{
    if (to == from)
        return;
    strv_free(to);
    for (size_t i = 0; i < from->len; i++)
        strv_add(to, from->items[i]);
}
