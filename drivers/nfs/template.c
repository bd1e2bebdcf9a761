/* SPDX-License-Identifier: Apache-2.0 */
/* The templates of both peers. */
#include "drivers/nfs/parameters.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <strings.h>

static const struct {
    const char *name;   /* in ${…} */
    const char *key;    /* what the provisioner passes; a name that ends with a dot goes on with the label's key */
    const char *needed; /* the provisioner's flag */
} values[] = {
    {"pvc.metadata.name", "csi.storage.k8s.io/pvc/name", "--extra-create-metadata"},
    {"pvc.metadata.namespace", "csi.storage.k8s.io/pvc/namespace", "--extra-create-metadata"},
    {"pv.metadata.name", "csi.storage.k8s.io/pv/name", "--extra-create-metadata"},
    {".PVC.name", "csi.storage.k8s.io/pvc/name", "--extra-create-metadata"},
    {".PVC.namespace", "csi.storage.k8s.io/pvc/namespace", "--extra-create-metadata"},
    {".PVC.labels.", "csi.storage.k8s.io/pvc/labels/", "the flag that passes this label of claims"},
    {".PVC.annotations.", "csi.storage.k8s.io/pvc/annotations/", "the flag that passes this annotation of claims"},
};

static const char *find(struct csi_map map, const char *key)
{
    const char *name, *value;
    for (size_t i = 0; i < map.len; i++)
        if (csi_map_at(map, i, &name, &value) && strcasecmp(name, key) == 0)
            return value;
    return NULL;
}

static int add_value(struct str *out, const char *name, struct csi_map map, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        size_t len = strlen(values[i].name);
        bool prefix = values[i].name[len - 1] == '.';
        if (prefix ? strncmp(name, values[i].name, len) != 0 : strcmp(name, values[i].name) != 0)
            continue;
        auto_free char *key = mem_printf("%s%s", values[i].key, prefix ? name + len : "");
        const char *value = find(map, key);
        if (value == NULL)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "the template ${%s} needs %s of the provisioner", name,
                            values[i].needed);
        /* a label or annotation is the claim's owner's text: it fills a name, it does not choose a path */
        if (strchr(value, '/') != NULL || strcmp(value, ".") == 0 || strcmp(value, "..") == 0)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "the value \"%s\" of ${%s} may not be used in a path", value,
                            name);
        str_add(out, value);
        return 0;
    }
    return csi_fail(err, CSI_INVALID_ARGUMENT, "the template ${%s} is unknown", name);
}

char *template_fill(const char *pattern, struct csi_map map, struct err *err)
{
    auto_str struct str out = {0};
    for (const char *at = pattern; *at != '\0';) {
        const char *open = strstr(at, "${");
        if (open == NULL) {
            str_add(&out, at);
            break;
        }
        const char *close = strchr(open, '}');
        if (close == NULL) {
            csi_fail(err, CSI_INVALID_ARGUMENT, "the template \"%s\" lacks a closing brace", pattern);
            return NULL;
        }
        str_add_len(&out, at, (size_t)(open - at));
        auto_free char *name = mem_strndup(open + 2, (size_t)(close - open - 2));
        if (add_value(&out, name, map, err) < 0)
            return NULL;
        at = close + 1;
    }
    return str_take(&out);
}
