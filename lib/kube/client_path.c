/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/client_private.h"

#include "lib/base/mem.h"

#include <stdio.h>
#include <string.h>

static void add_escaped(struct str *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                     strchr("-._~", *c) != NULL;
        if (plain)
            str_add_char(out, *c);
        else
            str_addf(out, "%%%02X", (unsigned)(unsigned char)*c);
    }
}

/* The API server's own rule for names in paths. What passes is escaped besides. */
static int add_segment(struct str *path, const char *text, const char *what, struct err *err)
{
    if (str_empty(text))
        return err_set(err, ERR_INVALID, "the %s is empty", what);
    if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0 || strpbrk(text, "/%") != NULL)
        return err_set(err, ERR_INVALID, "\"%s\" cannot be a %s", text, what);
    str_add_char(path, '/');
    add_escaped(path, text);
    return 0;
}

int kube_path_make(const struct kube_kind *kind, const char *namespace_, const char *name, const char *subresource,
                   char **path, struct err *err)
{
    auto_str struct str text = {0};
    if (kind->group[0] == '\0')
        str_addf(&text, "/api/%s", kind->version);
    else
        str_addf(&text, "/apis/%s/%s", kind->group, kind->version);
    bool has_namespace = !str_empty(namespace_);
    if (has_namespace && !kind->namespaced)
        return err_set(err, ERR_INTERNAL, "%s has no namespaces", kind->plural);
    if (!has_namespace && kind->namespaced && name != NULL)
        return err_set(err, ERR_INVALID, "the namespace of %s \"%s\" is missing", kind->singular, name);
    if (has_namespace) {
        str_add(&text, "/namespaces");
        if (add_segment(&text, namespace_, "namespace", err) != 0)
            return -1;
    }
    str_addf(&text, "/%s", kind->plural);
    if (name != NULL && add_segment(&text, name, "name", err) != 0)
        return -1;
    if (subresource != NULL && add_segment(&text, subresource, "subresource", err) != 0)
        return -1;
    *path = str_take(&text);
    return 0;
}

void kube_query_add(struct str *path, const char *key, const char *value)
{
    bool first = strchr(str_text(path), '?') == NULL;
    str_addf(path, "%c%s=", first ? '?' : '&', key);
    add_escaped(path, value);
}

void kube_query_add_u64(struct str *path, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    kube_query_add(path, key, text);
}

bool kube_path_is_secret(const char *path)
{
    static const char *const segments[] = {"secrets", "token", "tokenreviews", "certificatesigningrequests"};
    size_t len = strcspn(path, "?");
    for (size_t start = 0; start < len;) {
        size_t end = start + strcspn(path + start, "/?");
        for (size_t i = 0; i < ARRAY_LEN(segments); i++)
            if (end - start == strlen(segments[i]) && strncmp(path + start, segments[i], end - start) == 0)
                return true;
        start = end + 1;
    }
    return false;
}
