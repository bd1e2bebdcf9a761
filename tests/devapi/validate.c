/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting errors, and the checks that hold for objects of every kind. */
#include "tests/devapi/validate.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <ctype.h>
#include <string.h>

#define SUBDOMAIN_TEXT                                                                                                 \
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "   \
    "and end with an alphanumeric character"
#define LABEL_TEXT                                                                                                     \
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "    \
    "with an alphanumeric character"

void errors_free(struct errors *errors)
{
    json_decref(errors->causes);
    str_free(&errors->text);
}

static const struct {
    const char *reason, *text;
} error_types[] = {
    [ERROR_REQUIRED] = {"FieldValueRequired", "Required value"},
    [ERROR_INVALID] = {"FieldValueInvalid", "Invalid value"},
    [ERROR_NOT_SUPPORTED] = {"FieldValueNotSupported", "Unsupported value"},
    [ERROR_FORBIDDEN] = {"FieldValueForbidden", "Forbidden"},
    [ERROR_TOO_LONG] = {"FieldValueTooLong", "Too long"},
};

void errors_add(struct errors *errors, enum error_type type, const char *field, const json_t *value, const char *detail)
{
    auto_str struct str message = {0};
    str_add(&message, error_types[type].text);
    if (value != NULL) {
        auto_free char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        str_addf(&message, ": %s", shown != NULL ? shown : "null");
    }
    if (!str_empty(detail))
        str_addf(&message, ": %s", detail);
    if (errors->causes == NULL)
        errors->causes = json_array();
    json_array_append_new(errors->causes, json_pack("{s:s, s:s, s:s}", "reason", error_types[type].reason, "message",
                                                    str_text(&message), "field", field));
    str_addf(&errors->text, "%s%s: %s", errors->count++ > 0 ? ", " : "", field, str_text(&message));
}

void errors_check_enum(struct errors *errors, const json_t *object, const char *field, const char *const *allowed)
{
    const json_t *value = tree_get(object, field);
    if (value == NULL)
        return;
    auto_str struct str detail = {0};
    str_add(&detail, "supported values: ");
    for (size_t i = 0; allowed[i] != NULL; i++) {
        if (str_eq(json_string_value(value), allowed[i]))
            return;
        str_addf(&detail, "%s\"%s\"", i > 0 ? ", " : "", allowed[i]);
    }
    errors_add(errors, ERROR_NOT_SUPPORTED, field, value, str_text(&detail));
}

void errors_require(struct errors *errors, const json_t *object, const char *field)
{
    if (tree_is_zero(tree_get(object, field)))
        errors_add(errors, ERROR_REQUIRED, field, NULL, NULL);
}

void errors_check_immutable(struct errors *errors, const json_t *object, const json_t *old, const char *field)
{
    json_t *now = tree_get(object, field), *was = tree_get(old, field);
    if (tree_same(now, was) || (tree_is_zero(now) && tree_is_zero(was)))
        return;
    auto_json json_t *shown = now != NULL ? json_incref(now) : json_null();
    errors_add(errors, ERROR_INVALID, field, shown, "field is immutable");
}

int errors_reply(struct errors *errors, struct reply *reply, const struct kind *kind, const char *name)
{
    if (errors->count == 0)
        return 0;
    auto_free char *full = *kind->group != '\0' ? mem_printf("%s.%s", kind->kind, kind->group) : mem_strdup(kind->kind);
    bool many = errors->count > 1;
    return reply_fail(reply, 422, "Invalid", kind, name, json_incref(errors->causes), "%s \"%s\" is invalid: %s%s%s",
                      full, name != NULL ? name : "", many ? "[" : "", str_text(&errors->text), many ? "]" : "");
}

static bool is_label(const char *text, size_t len, size_t max)
{
    if (len == 0 || len > max || text[0] == '-' || text[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!islower((unsigned char)text[i]) && !isdigit((unsigned char)text[i]) && text[i] != '-')
            return false;
    return true;
}

const char *name_problem(enum kind_name_rule rule, const char *name)
{
    if (rule == KIND_NAME_PATH) {
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/') != NULL || strchr(name, '%') != NULL)
            return "may not contain '/' or '%', nor be '.' or '..'";
        return NULL;
    }
    if (rule == KIND_NAME_LABEL)
        return is_label(name, strlen(name), 63) ? NULL : LABEL_TEXT;
    if (strlen(name) > 253)
        return "must be no more than 253 characters";
    for (const char *at = name;; at++) {
        size_t len = strcspn(at, ".");
        if (!is_label(at, len, 253))
            return SUBDOMAIN_TEXT;
        at += len;
        if (*at == '\0')
            return NULL;
    }
}

/* [prefix/]name: the prefix a subdomain, the name at most 63 letters, digits, '-', '_', '.', alphanumeric at both ends.
 */
static bool is_qualified_name(const char *text)
{
    const char *slash = strrchr(text, '/');
    if (slash != NULL) {
        auto_free char *prefix = mem_strndup(text, (size_t)(slash - text));
        if (name_problem(KIND_NAME_SUBDOMAIN, prefix) != NULL)
            return false;
        text = slash + 1;
    }
    size_t len = strlen(text);
    if (len == 0 || len > 63 || !isalnum((unsigned char)text[0]) || !isalnum((unsigned char)text[len - 1]))
        return false;
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == len;
}

static void validate_string_map(const json_t *map, const char *field, bool labels, struct errors *errors)
{
    const char *key;
    json_t *value;
    size_t total = 0;
    json_object_foreach ((json_t *)map, key, value) {
        auto_json json_t *shown = json_string(key);
        auto_free char *lower = mem_strdup(key);
        for (char *c = lower; *c != '\0'; c++)
            *c = (char)tolower((unsigned char)*c); /* annotations may have capitals in their prefix */
        if (!is_qualified_name(labels ? key : lower))
            errors_add(errors, ERROR_INVALID, field, shown,
                       "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
                       "with an alphanumeric character");
        const char *text = json_string_value(value);
        total += strlen(key) + (text != NULL ? strlen(text) : 0);
        if (labels && !str_empty(text) && (strchr(text, '/') != NULL || !is_qualified_name(text)))
            errors_add(errors, ERROR_INVALID, field, value,
                       "a valid label must be an empty string or consist of "
                       "alphanumeric characters, '-', '_' or '.'");
    }
    if (!labels && total > 256 * (size_t)1024)
        errors_add(errors, ERROR_TOO_LONG, field, NULL, "must have at most 262144 bytes");
}

void validate_metadata(const struct kind *kind, const json_t *object, struct errors *errors)
{
    const char *name = tree_text(object, "metadata.name");
    const char *problem = name != NULL ? name_problem(kind->name_rule, name) : NULL;
    if (str_empty(name))
        errors_add(errors, ERROR_REQUIRED, "metadata.name", NULL, "name or generateName is required");
    else if (problem != NULL)
        errors_add(errors, ERROR_INVALID, "metadata.name", tree_get(object, "metadata.name"), problem);
    validate_string_map(tree_get(object, "metadata.labels"), "metadata.labels", true, errors);
    validate_string_map(tree_get(object, "metadata.annotations"), "metadata.annotations", false, errors);
    size_t i;
    json_t *item;
    json_array_foreach (tree_get(object, "metadata.finalizers"), i, item) {
        if (!json_is_string(item) || !is_qualified_name(json_string_value(item)))
            errors_add(errors, ERROR_INVALID, "metadata.finalizers", item, "name is no qualified name");
    }
    json_array_foreach (tree_get(object, "metadata.ownerReferences"), i, item) {
        static const char *const needed[] = {"apiVersion", "kind", "name", "uid"};
        for (size_t n = 0; n < ARRAY_LEN(needed); n++)
            if (!tree_has_text(item, needed[n]))
                errors_add(errors, ERROR_INVALID, "metadata.ownerReferences", item, "a member must not be empty");
    }
}

void validate_metadata_update(const json_t *object, const json_t *old, struct errors *errors)
{
    if (tree_get(old, "metadata.deletionTimestamp") == NULL)
        return;
    size_t i, j;
    json_t *item, *had;
    json_array_foreach (tree_get(object, "metadata.finalizers"), i, item) {
        bool known = false;
        json_array_foreach (tree_get(old, "metadata.finalizers"), j, had) {
            known = known || json_equal(item, had);
        }
        if (known)
            continue;
        auto_free char *detail = mem_printf("no new finalizers can be added if the object is being deleted, found new "
                                            "finalizers []string{\"%s\"}",
                                            json_is_string(item) ? json_string_value(item) : "");
        errors_add(errors, ERROR_FORBIDDEN, "metadata.finalizers", NULL, detail);
    }
}
