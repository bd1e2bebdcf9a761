/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/selector.h"

#include "lib/base/mem.h"

#include <ctype.h>
#include <string.h>

enum selector_operator { OP_IN, OP_NOT_IN, OP_EXISTS, OP_ABSENT, OP_GREATER, OP_LESS };
enum { FIELD_NAME = -1, FIELD_NAMESPACE = -2, FIELD_LABEL = -3 };

struct requirement {
    char *key;
    enum selector_operator op;
    int field; /* index into version->fields, or one of the above */
    struct strv values;
};

struct selector {
    struct requirement *items;
    size_t len;
};

static struct requirement *selector_add(struct selector *selector)
{
    selector->items = mem_realloc_array(selector->items, selector->len + 1, sizeof(*selector->items));
    struct requirement *item = &selector->items[selector->len++];
    *item = (struct requirement){.field = FIELD_LABEL};
    return item;
}

void selector_free(struct selector *selector)
{
    if (selector == NULL)
        return;
    for (size_t i = 0; i < selector->len; i++) {
        free(selector->items[i].key);
        strv_free(&selector->items[i].values);
    }
    free(selector->items);
    free(selector);
}

static const char *skip_blanks(const char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    return text;
}

/* A word of a selector: letters, digits and what keys and values may hold. */
static char *take_word(const char **text)
{
    const char *start = skip_blanks(*text), *end = start;
    while (isalnum((unsigned char)*end) || (*end != '\0' && strchr("-_./", *end) != NULL))
        end++;
    *text = skip_blanks(end);
    return mem_strndup(start, (size_t)(end - start));
}

static int bad_selector(struct err *err, const char *text)
{
    return err_set(err, ERR_INVALID, "unable to parse requirement: found '%s'", text);
}

static int parse_set(const char **text, struct requirement *item, struct err *err)
{
    if (**text != '(')
        return bad_selector(err, *text);
    do {
        (*text)++;
        strv_add_take(&item->values, take_word(text));
    } while (**text == ',');
    if (**text != ')')
        return bad_selector(err, *text);
    *text = skip_blanks(*text + 1);
    return 0;
}

static bool take_token(const char **text, const char *token)
{
    if (!str_starts(*text, token))
        return false;
    *text += strlen(token);
    return true;
}

static int parse_label_requirement(const char **text, struct requirement *item, struct err *err)
{
    *text = skip_blanks(*text);
    bool absent = take_token(text, "!");
    item->key = take_word(text);
    if (*item->key == '\0')
        return bad_selector(err, *text);
    if (absent || **text == '\0' || **text == ',') {
        item->op = absent ? OP_ABSENT : OP_EXISTS;
        return 0;
    }
    if (take_token(text, "!=")) {
        item->op = OP_NOT_IN;
    } else if (take_token(text, "==") || take_token(text, "=")) {
        item->op = OP_IN;
    } else if (take_token(text, ">")) {
        item->op = OP_GREATER;
    } else if (take_token(text, "<")) {
        item->op = OP_LESS;
    } else {
        auto_free char *word = take_word(text);
        if (strcmp(word, "in") != 0 && strcmp(word, "notin") != 0)
            return bad_selector(err, word);
        item->op = *word == 'i' ? OP_IN : OP_NOT_IN;
        return parse_set(text, item, err);
    }
    strv_add_take(&item->values, take_word(text));
    return 0;
}

static int parse_labels(struct selector *selector, const char *text, struct err *err)
{
    for (text = skip_blanks(text); *text != '\0'; text++) {
        if (parse_label_requirement(&text, selector_add(selector), err) != 0)
            return -1;
        if (*text == '\0')
            break;
        if (*text != ',')
            return bad_selector(err, text);
    }
    return 0;
}

static int field_index(const struct kind *kind, const char *label, struct err *err)
{
    if (strcmp(label, "metadata.name") == 0)
        return FIELD_NAME;
    if (strcmp(label, "metadata.namespace") == 0)
        return FIELD_NAMESPACE;
    for (int i = 0; i < KIND_FIELDS && kind->fields[i] != NULL; i++) {
        size_t len = strcspn(kind->fields[i], "=");
        if (strlen(label) == len && strncmp(label, kind->fields[i], len) == 0)
            return i;
    }
    err_set(err, ERR_INVALID, "field label not supported: %s", label);
    return FIELD_LABEL;
}

static int parse_fields(const struct kind *kind, struct selector *selector, const char *text, struct err *err)
{
    while (*text != '\0') {
        const char *end = strchrnul(text, ',');
        auto_free char *term = mem_strndup(text, (size_t)(end - text));
        char *equals = strchr(term, '=');
        if (equals == NULL)
            return err_set(err, ERR_INVALID, "invalid selector: '%s'; can't understand '%s'", text, term);
        struct requirement *item = selector_add(selector);
        bool negated = equals > term && equals[-1] == '!';
        strv_add(&item->values, equals + 1 + (equals[1] == '=' ? 1 : 0));
        equals[negated ? -1 : 0] = '\0';
        item->op = negated ? OP_NOT_IN : OP_IN;
        item->key = mem_strdup(term);
        item->field = field_index(kind, term, err);
        if (item->field == FIELD_LABEL)
            return -1;
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}

int selector_parse(const struct kind *kind, const char *labels, const char *fields, struct selector **selector,
                   struct err *err)
{
    *selector = NULL;
    if (str_empty(labels) && str_empty(fields))
        return 0;
    struct selector *made = mem_new(struct selector);
    if ((labels != NULL && parse_labels(made, labels, err) != 0) ||
        (fields != NULL && parse_fields(kind, made, fields, err) != 0)) {
        selector_free(made);
        return -1;
    }
    *selector = made;
    return 0;
}

static const char *requirement_value(const struct requirement *item, const struct version *version)
{
    if (item->field == FIELD_NAME)
        return version->name;
    if (item->field == FIELD_NAMESPACE)
        return version->namespace;
    if (item->field >= 0)
        return version->fields[item->field];
    for (size_t i = 0; version->labels[i] != NULL; i += 2)
        if (strcmp(version->labels[i], item->key) == 0)
            return version->labels[i + 1];
    return NULL;
}

static bool requirement_match(const struct requirement *item, const struct version *version)
{
    const char *value = requirement_value(item, version);
    int64_t have = 0, want = 0;
    switch (item->op) {
    case OP_IN:
        return value != NULL && strv_contains(&item->values, value);
    case OP_NOT_IN:
        return value == NULL || !strv_contains(&item->values, value);
    case OP_EXISTS:
        return value != NULL;
    case OP_ABSENT:
        return value == NULL;
    case OP_GREATER:
    case OP_LESS:
        if (value == NULL || !str_parse_i64(value, &have) || !str_parse_i64(item->values.items[0], &want))
            return false;
        return item->op == OP_GREATER ? have > want : have < want;
    }
    return false;
}

bool selector_match(const struct selector *selector, const struct version *version)
{
    if (selector != NULL)
        for (size_t i = 0; i < selector->len; i++)
            if (!requirement_match(&selector->items[i], version))
                return false;
    return true;
}
