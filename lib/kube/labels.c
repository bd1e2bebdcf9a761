/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/labels.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <stdlib.h>
#include <string.h>

/* The limits and patterns that the API machinery checks names and labels against. */
#define NAME_PART_MAX 63
#define LABEL_VALUE_MAX 63
#define DNS_LABEL_MAX 63
#define DNS_SUBDOMAIN_MAX 253
#define QUALIFIED_NAME_PATTERN "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
#define DNS_LABEL_PATTERN "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

static int compare_pair(const void *key, const void *pair)
{
    return strcmp(key, ((const struct kube_pair *)pair)->key);
}

const char *kube_pairs_get(const struct kube_pairs *pairs, const char *key)
{
    if (pairs->len == 0)
        return NULL;
    const struct kube_pair *pair = bsearch(key, pairs->items, pairs->len, sizeof(*pairs->items), compare_pair);
    return pair != NULL ? pair->value : NULL;
}

bool kube_pairs_equal(const struct kube_pairs *a, const struct kube_pairs *b)
{
    if (a->len != b->len)
        return false;
    for (uint32_t i = 0; i < a->len; i++) {
        if (!str_eq(a->items[i].key, b->items[i].key) || !str_eq(a->items[i].value, b->items[i].value))
            return false;
    }
    return true;
}

bool kube_strings_contain(const struct kube_strings *strings, const char *text)
{
    for (uint32_t i = 0; i < strings->len; i++) {
        if (str_eq(strings->items[i], text))
            return true;
    }
    return false;
}

bool kube_strings_equal(const struct kube_strings *a, const struct kube_strings *b)
{
    if (a->len != b->len)
        return false;
    for (uint32_t i = 0; i < a->len; i++) {
        if (!str_eq(a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static bool is_lower_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alphanumeric(char c)
{
    return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z');
}

static bool is_dns_label_of(const char *name, size_t len)
{
    if (len == 0 || !is_lower_or_digit(name[0]) || !is_lower_or_digit(name[len - 1]))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_lower_or_digit(name[i]) && name[i] != '-')
            return false;
    }
    return true;
}

bool kube_name_is_dns_label(const char *name)
{
    size_t len = name != NULL ? strnlen(name, DNS_LABEL_MAX + 1) : 0;
    return len <= DNS_LABEL_MAX && is_dns_label_of(name, len);
}

/* The form only: parts of a subdomain may be longer than a label of their own. */
static bool is_dns_subdomain_of(const char *name, size_t len)
{
    for (;;) {
        const char *dot = memchr(name, '.', len);
        size_t part = dot != NULL ? (size_t)(dot - name) : len;
        if (!is_dns_label_of(name, part))
            return false;
        if (dot == NULL)
            return true;
        name += part + 1;
        len -= part + 1;
    }
}

bool kube_name_is_dns_subdomain(const char *name)
{
    size_t len = name != NULL ? strnlen(name, DNS_SUBDOMAIN_MAX + 1) : 0;
    return len > 0 && len <= DNS_SUBDOMAIN_MAX && is_dns_subdomain_of(name, len);
}

static bool is_qualified(const char *name, size_t len)
{
    if (len == 0 || !is_alphanumeric(name[0]) || !is_alphanumeric(name[len - 1]))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_alphanumeric(name[i]) && strchr("-_.", name[i]) == NULL)
            return false;
    }
    return true;
}

static void problem_add(struct str *details, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem_add(struct str *details, const char *format, ...)
{
    if (details->len > 0)
        str_add(details, "; ");
    va_list args;
    va_start(args, format);
    str_vaddf(details, format, args);
    va_end(args);
}

static void check_key(const char *key, struct str *details)
{
    static const char examples[] = "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '";
    static const char rule[] = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
                               "an alphanumeric character";
    const char *slash = strchr(key, '/');
    if (slash != NULL && strchr(slash + 1, '/') != NULL) {
        problem_add(details,
                    "a qualified name %s %s" QUALIFIED_NAME_PATTERN
                    "') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                    rule, examples);
        return;
    }
    if (slash == key)
        problem_add(details, "prefix part must be non-empty");
    if (slash != NULL && slash > key) {
        size_t len = (size_t)(slash - key);
        if (len > DNS_SUBDOMAIN_MAX)
            problem_add(details, "prefix part must be no more than %d bytes", DNS_SUBDOMAIN_MAX);
        if (!is_dns_subdomain_of(key, len))
            problem_add(details,
                        "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
                        "characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
                        "'example.com', regex used for validation is '" DNS_LABEL_PATTERN "(\\.%s)*')",
                        DNS_LABEL_PATTERN);
    }
    const char *name = slash != NULL ? slash + 1 : key;
    size_t len = strlen(name);
    if (len == 0)
        problem_add(details, "name part must be non-empty");
    else if (len > NAME_PART_MAX)
        problem_add(details, "name part must be no more than %d bytes", NAME_PART_MAX);
    if (!is_qualified(name, len))
        problem_add(details, "name part %s %s" QUALIFIED_NAME_PATTERN "')", rule, examples);
}

static void check_value(const char *value, struct str *details)
{
    size_t len = strlen(value);
    if (len > LABEL_VALUE_MAX)
        problem_add(details, "must be no more than %d bytes", LABEL_VALUE_MAX);
    if (len > 0 && !is_qualified(value, len))
        problem_add(details,
                    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
                    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
                    "'12345', regex used for validation is '(%s)?')",
                    QUALIFIED_NAME_PATTERN);
}

static void add_quoted(struct str *out, const char *text)
{
    static const char escaped[] = "\a\b\f\n\r\t\v\"\\";
    static const char letters[] = "abfnrtv\"\\";
    str_add_char(out, '"');
    for (const char *p = text; *p != '\0'; p++) {
        const char *found = strchr(escaped, *p);
        if (found != NULL)
            str_addf(out, "\\%c", letters[found - escaped]);
        else if ((unsigned char)*p < 0x20 || *p == 0x7f)
            str_addf(out, "\\x%02x", (unsigned)(unsigned char)*p);
        else
            str_add_char(out, *p);
    }
    str_add_char(out, '"');
}

/* A list that is empty arrives there as one that was never made, hence null. */
static void add_values(struct str *out, const struct kube_strings *values)
{
    if (values->len == 0) {
        str_add(out, "null");
        return;
    }
    for (uint32_t i = 0; i < values->len; i++) {
        str_add_char(out, i == 0 ? '[' : ',');
        add_quoted(out, values->items[i]);
    }
    str_add_char(out, ']');
}

static const char *check_count(const struct kube_requirement *requirement)
{
    int64_t number = 0;
    switch (requirement->operator_) {
    case KUBE_OP_IN:
    case KUBE_OP_NOT_IN:
        return requirement->values.len == 0 ? "for 'in', 'notin' operators, values set can't be empty" : NULL;
    case KUBE_OP_EXISTS:
    case KUBE_OP_DOES_NOT_EXIST:
        return requirement->values.len != 0 ? "values set must be empty for exists and does not exist" : NULL;
    case KUBE_OP_GT:
    case KUBE_OP_LT:
        if (requirement->values.len != 1)
            return "for 'Gt', 'Lt' operators, exactly one value is required";
        if (!str_parse_i64(requirement->values.items[0], &number))
            return "for 'Gt', 'Lt' operators, the value must be an integer";
        return NULL;
    case KUBE_OP_UNKNOWN:
        break;
    }
    return "unknown operator";
}

/* Key, number of values and values; the operator is the caller's affair, since which ones are allowed depends on where
 * the selector stands. */
static int requirement_validate(const struct kube_requirement *requirement, struct err *err)
{
    auto_str struct str text = {0};
    auto_str struct str details = {0};
    int problems = 0;
    check_key(requirement->key, &details);
    if (details.len > 0) {
        str_add(&text, "key: Invalid value: ");
        add_quoted(&text, requirement->key);
        str_addf(&text, ": %s", str_text(&details));
        problems++;
    }
    const char *count = check_count(requirement);
    if (count != NULL) {
        str_addf(&text, "%svalues: Invalid value: ", problems > 0 ? ", " : "");
        add_values(&text, &requirement->values);
        str_addf(&text, ": %s", count);
        problems++;
    }
    for (uint32_t i = 0; i < requirement->values.len; i++) {
        str_reset(&details);
        check_value(requirement->values.items[i], &details);
        if (details.len == 0)
            continue;
        str_addf(&text, "%svalues[%u][%s]: Invalid value: ", problems > 0 ? ", " : "", i, requirement->key);
        add_quoted(&text, requirement->values.items[i]);
        str_addf(&text, ": %s", str_text(&details));
        problems++;
    }
    if (problems == 0)
        return 0;
    return problems == 1 ? err_set(err, ERR_INVALID, "%s", str_text(&text))
                         : err_set(err, ERR_INVALID, "[%s]", str_text(&text));
}

int kube_selector_validate(const struct kube_selector *selector, struct err *err)
{
    for (uint32_t i = 0; i < selector->len; i++) {
        const struct kube_requirement *requirement = &selector->items[i];
        switch (requirement->operator_) {
        case KUBE_OP_IN:
        case KUBE_OP_NOT_IN:
        case KUBE_OP_EXISTS:
        case KUBE_OP_DOES_NOT_EXIST:
            break;
        default: {
            auto_str struct str quoted = {0};
            add_quoted(&quoted, requirement->operator_text);
            return err_set(err, ERR_INVALID, "%s is not a valid label selector operator", str_text(&quoted));
        }
        }
        if (requirement_validate(requirement, err) != 0)
            return -1;
    }
    return 0;
}

/* `value` is NULL when there is no such label. */
static bool requirement_matches(const struct kube_requirement *requirement, const char *value)
{
    int64_t have = 0;
    int64_t want = 0;
    switch (requirement->operator_) {
    case KUBE_OP_IN:
        return value != NULL && kube_strings_contain(&requirement->values, value);
    case KUBE_OP_NOT_IN:
        return value == NULL || !kube_strings_contain(&requirement->values, value);
    case KUBE_OP_EXISTS:
        return value != NULL;
    case KUBE_OP_DOES_NOT_EXIST:
        return value == NULL;
    case KUBE_OP_GT:
    case KUBE_OP_LT:
        if (value == NULL || requirement->values.len != 1 || !str_parse_i64(value, &have) ||
            !str_parse_i64(requirement->values.items[0], &want))
            return false;
        return requirement->operator_ == KUBE_OP_GT ? have > want : have < want;
    case KUBE_OP_UNKNOWN:
        break;
    }
    return false;
}

bool kube_selector_matches(const struct kube_selector *selector, const struct kube_pairs *labels)
{
    for (uint32_t i = 0; i < selector->len; i++) {
        if (!requirement_matches(&selector->items[i], kube_pairs_get(labels, selector->items[i].key)))
            return false;
    }
    return true;
}

/* Fields know In and NotIn with exactly one value; a field that nodes do not have is empty, not missing. */
static bool fields_match(const struct kube_selector *fields, const char *node_name)
{
    for (uint32_t i = 0; i < fields->len; i++) {
        const struct kube_requirement *field = &fields->items[i];
        if ((field->operator_ != KUBE_OP_IN && field->operator_ != KUBE_OP_NOT_IN) || field->values.len != 1)
            return false;
        if (!requirement_matches(field, str_eq(field->key, "metadata.name") ? node_name : ""))
            return false;
    }
    return true;
}

static bool term_matches(const struct kube_node_term *term, const char *node_name, const struct kube_pairs *labels)
{
    if (term->expressions.len == 0 && term->fields.len == 0)
        return false;
    /* A malformed requirement makes its term match nothing; the other terms still count. */
    for (uint32_t i = 0; i < term->expressions.len; i++) {
        if (requirement_validate(&term->expressions.items[i], NULL) != 0)
            return false;
    }
    return kube_selector_matches(&term->expressions, labels) && fields_match(&term->fields, node_name);
}

bool kube_node_selector_matches(const struct kube_node_selector *selector, const char *node_name,
                                const struct kube_pairs *labels)
{
    for (uint32_t i = 0; i < selector->len; i++) {
        if (term_matches(&selector->terms[i], node_name, labels))
            return true;
    }
    return false;
}
