/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/secrets.h"

#include "lib/base/mem.h"

#include <ctype.h>
#include <string.h>

#define RESERVED_PREFIX "csi.storage.k8s.io/"

/* Without the reserved prefix. The deprecated pair has no prefix at all and stays in the driver's parameters. */
static const struct {
    const char *name, *namespace_;
    const char *deprecated_name, *deprecated_namespace;
} keys[SECRET_KIND_COUNT] = {
    [SECRET_PROVISIONER] = {"provisioner-secret-name", "provisioner-secret-namespace", "csiProvisionerSecretName",
                            "csiProvisionerSecretNamespace"},
    [SECRET_CONTROLLER_PUBLISH] = {"controller-publish-secret-name", "controller-publish-secret-namespace",
                                   "csiControllerPublishSecretName", "csiControllerPublishSecretNamespace"},
    [SECRET_NODE_STAGE] = {"node-stage-secret-name", "node-stage-secret-namespace", "csiNodeStageSecretName",
                           "csiNodeStageSecretNamespace"},
    [SECRET_NODE_PUBLISH] = {"node-publish-secret-name", "node-publish-secret-namespace", "csiNodePublishSecretName",
                             "csiNodePublishSecretNamespace"},
    [SECRET_CONTROLLER_EXPAND] = {"controller-expand-secret-name", "controller-expand-secret-namespace", NULL, NULL},
    [SECRET_NODE_EXPAND] = {"node-expand-secret-name", "node-expand-secret-namespace", NULL, NULL},
    [SECRET_CONTROLLER_MODIFY] = {"controller-modify-secret-name", "controller-modify-secret-namespace", NULL, NULL},
};

static const char *reserved(const struct kube_pairs *parameters, const char *key)
{
    char name[128];
    snprintf(name, sizeof(name), RESERVED_PREFIX "%s", key);
    return kube_pairs_get(parameters, name);
}

/* One half of a pair: the current key or the deprecated one, never both. */
static int pick_half(const struct kube_pairs *parameters, const char *key, const char *deprecated, const char **value,
                     struct err *err)
{
    const char *current = reserved(parameters, key);
    const char *old = deprecated != NULL ? kube_pairs_get(parameters, deprecated) : NULL;
    if (current != NULL && old != NULL)
        return err_set(err, ERR_INVALID, "%s%s and %s parameters are both set, only one may be", RESERVED_PREFIX, key,
                       deprecated);
    *value = current != NULL ? current : old;
    return 0;
}

static int pick_pair(enum secret_kind kind, const struct kube_pairs *parameters, const char **name,
                     const char **namespace_, struct err *err)
{
    if (pick_half(parameters, keys[kind].name, keys[kind].deprecated_name, name, err) < 0 ||
        pick_half(parameters, keys[kind].namespace_, keys[kind].deprecated_namespace, namespace_, err) < 0)
        return -1;
    const char *label = keys[kind].name;
    if (*name == NULL && *namespace_ == NULL) {
        *name = reserved(parameters, "secret-name");
        *namespace_ = reserved(parameters, "secret-namespace");
        label = "secret-name";
    }
    if (*name == NULL && *namespace_ == NULL)
        return 0;
    if (*name == NULL || *namespace_ == NULL)
        return err_set(
            err, ERR_INVALID,
            "either name and namespace for secrets specified, or neither: %s%s is given without its other half",
            RESERVED_PREFIX, label);
    if (**name == '\0' || **namespace_ == '\0')
        return err_set(err, ERR_INVALID, "if specified, name and namespace of %s%s must not be empty", RESERVED_PREFIX,
                       label);
    return 0;
}

struct expansion {
    const struct secret_names *names;
    bool is_name; /* the name half knows more tokens than the namespace half */
    struct strv unknown;
};

static const char *token_value(const struct expansion *expansion, const char *token)
{
    const struct secret_names *names = expansion->names;
    static const char prefix[] = "pvc.annotations['", suffix[] = "']";
    if (strcmp(token, "pv.name") == 0)
        return names->volume_name;
    if (strcmp(token, "pvc.namespace") == 0)
        return names->claim_namespace;
    if (!expansion->is_name)
        return NULL;
    if (strcmp(token, "pvc.name") == 0)
        return names->claim_name;
    size_t len = strlen(token);
    if (names->claim_annotations == NULL || len < sizeof(prefix) + sizeof(suffix) - 2 || !str_starts(token, prefix) ||
        !str_ends(token, suffix))
        return NULL;
    auto_free char *key = mem_strndup(token + sizeof(prefix) - 1, len - (sizeof(prefix) + sizeof(suffix) - 2));
    return kube_pairs_get(names->claim_annotations, key);
}

static void expand_token(struct expansion *expansion, const char *start, size_t len, struct str *out)
{
    auto_free char *token = mem_strndup(start, len);
    const char *value = token_value(expansion, token);
    if (value != NULL)
        str_add(out, value);
    else
        strv_add(&expansion->unknown, token);
}

static bool is_special_variable(char c)
{
    return c != '\0' && (strchr("*#$@!?-", c) != NULL || isdigit((unsigned char)c));
}

/* Go's os.Expand: ${token}, $word, and the shell's one-character variables are tokens; a malformed ${ is dropped. */
static void expand(struct expansion *expansion, const char *text, struct str *out)
{
    for (const char *p = text; *p != '\0';) {
        if (p[0] != '$' || p[1] == '\0') {
            str_add_char(out, *p++);
            continue;
        }
        p++;
        if (*p == '{') {
            if (is_special_variable(p[1]) && p[2] == '}') {
                expand_token(expansion, p + 1, 1, out);
                p += 3;
                continue;
            }
            const char *end = strchr(p, '}');
            if (end == NULL) {
                p++; /* the text after "${" stays */
            } else if (end == p + 1) {
                p += 2; /* "${}" vanishes */
            } else {
                expand_token(expansion, p + 1, (size_t)(end - p - 1), out);
                p = end + 1;
            }
            continue;
        }
        if (is_special_variable(*p)) {
            expand_token(expansion, p, 1, out);
            p++;
            continue;
        }
        size_t len = 0;
        while (isalnum((unsigned char)p[len]) || p[len] == '_')
            len++;
        if (len > 0)
            expand_token(expansion, p, len, out);
        else
            str_add_char(out, '$'); /* "$." and the like: no name follows, the dollar stays */
        p += len;
    }
}

static int resolve_half(const char *text, bool is_name, const struct secret_names *names, struct csi_arena *arena,
                        const char **value, struct err *err)
{
    struct expansion expansion = {.names = names, .is_name = is_name};
    auto_str struct str out = {0};
    expand(&expansion, text, &out);
    int result = 0;
    if (expansion.unknown.len > 0) {
        strv_sort(&expansion.unknown);
        auto_free char *tokens = strv_join(&expansion.unknown, "\" \"");
        result = err_set(err, ERR_INVALID, "error resolving value \"%s\": invalid tokens: [\"%s\"]", text, tokens);
    } else if (is_name ? !kube_name_is_dns_subdomain(str_text(&out)) : !kube_name_is_dns_label(str_text(&out))) {
        if (strcmp(text, str_text(&out)) == 0)
            result = err_set(err, ERR_INVALID, "\"%s\" is not a valid %s name", text, is_name ? "secret" : "namespace");
        else
            result = err_set(err, ERR_INVALID, "\"%s\" resolved to \"%s\" which is not a valid %s name", text,
                             str_text(&out), is_name ? "secret" : "namespace");
    } else {
        *value = csi_arena_strdup(arena, str_text(&out));
    }
    strv_free(&expansion.unknown);
    return result;
}

int secret_resolve(enum secret_kind kind, const struct kube_pairs *parameters, const struct secret_names *names,
                   struct csi_arena *arena, struct secret_reference *reference, struct err *err)
{
    const char *name = NULL, *namespace_ = NULL;
    *reference = (struct secret_reference){0};
    if (pick_pair(kind, parameters, &name, &namespace_, err) < 0)
        return -1;
    if (name == NULL || namespace_ == NULL)
        return 0;
    if (resolve_half(namespace_, false, names, arena, &reference->namespace_, err) < 0 ||
        resolve_half(name, true, names, arena, &reference->name, err) < 0) {
        *reference = (struct secret_reference){0};
        return -1;
    }
    return 0;
}

int secret_strip_parameter(const char *key, bool *strip, struct err *err)
{
    *strip = false;
    if (!str_starts(key, RESERVED_PREFIX))
        return 0;
    const char *rest = key + strlen(RESERVED_PREFIX);
    *strip = strcmp(rest, "fstype") == 0 || strcmp(rest, "secret-name") == 0 || strcmp(rest, "secret-namespace") == 0;
    for (size_t kind = 0; !*strip && kind < ARRAY_LEN(keys); kind++)
        *strip = strcmp(rest, keys[kind].name) == 0 || strcmp(rest, keys[kind].namespace_) == 0;
    if (!*strip)
        return err_set(err, ERR_INVALID, "found unknown parameter key \"%s\" with reserved namespace %s", key,
                       RESERVED_PREFIX);
    return 0;
}
