/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the embedded API server serves. Every kind is one line of the table in kinds.c; a catalog is the part of it that
 * one Kubernetes version has. Nothing else in this program lists kinds, apart from the rules of single ones in
 * defaults.c and validate.c.
 */
#ifndef BERTH_DEVAPI_KINDS_H
#define BERTH_DEVAPI_KINDS_H

#include "lib/base/str.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define KIND_VERSIONS 3
#define KIND_FIELDS 12
#define KIND_NEWEST_MINOR 36
#define KIND_OLDEST_MINOR 20

enum kind_flag {
    KIND_STATUS = 1 << 0,           /* has the subresource status */
    KIND_STATUS_ON_CREATE = 1 << 1, /* a status sent with the create is kept */
    KIND_CUSTOM = 1 << 2,           /* a custom resource: generation, no strategic merge, no defaulting of the server */
    KIND_RETURN_DELETED = 1 << 3,   /* DELETE answers with the object instead of a Status */
    KIND_CREATE_ON_UPDATE = 1 << 4, /* PUT of an absent name creates it */
    KIND_NEEDS_VERSION = 1 << 5,    /* PUT must carry a resourceVersion */
    KIND_BINDING = 1 << 6,          /* has the subresource binding */
    KIND_GENERATION = 1 << 7,       /* the server counts metadata.generation */
};

/* Names that may be used for objects of a kind. */
enum kind_name_rule { KIND_NAME_SUBDOMAIN, KIND_NAME_LABEL, KIND_NAME_PATH };

struct errors; /* validate.h */
struct rules;  /* defaults.h: what the profile decides */

struct kind_version {
    const char *name;
    int since; /* minor version of Kubernetes that served it first; 0 = all */
    int until; /* the last one; 0 = still served */
};

/* How strategic merge treats a list: by the member `key` of its items, or as a set of strings when key is "". The path
 * has no indices: "spec.containers.env". metadata.finalizers and metadata.ownerReferences are known for all kinds. */
struct kind_list {
    const char *path;
    const char *key;
};

struct kind {
    const char *group; /* "" is the core group */
    const char *kind;
    const char *plural;
    const char *singular;
    const char *short_names; /* separated by commas */
    const char *category;    /* "all" or NULL */
    bool namespaced;
    unsigned flags;
    enum kind_name_rule name_rule;
    struct kind_version versions[KIND_VERSIONS]; /* preferred first; the first one served is what is stored */
    const char *fields[KIND_FIELDS]; /* field selectors beyond metadata.name and .namespace, "label" or "label=path" */
    const struct kind_list *lists;   /* strategic merge: lists that are no atoms, ended by a NULL path */
    const char *const *drop_zero;    /* paths the server leaves out when they are "", false, 0, [] or {} */
    void (*defaults)(json_t *object, const struct rules *rules, bool create);
    void (*validate)(const json_t *object, const struct rules *rules, struct errors *errors);
    void (*validate_update)(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors);
};

extern const struct kind kind_table[];
extern const size_t kind_count;

static inline size_t kind_index(const struct kind *kind)
{
    return (size_t)(kind - kind_table);
}
static inline bool kind_has(const struct kind *kind, enum kind_flag flag)
{
    return (kind->flags & flag) != 0;
}
/* "persistentvolumes" or "storageclasses.storage.k8s.io", as error messages name a resource. */
const char *kind_resource(const struct kind *kind, struct str *buffer);
const struct kind *kind_by_name(const char *kind_name, const char *group);

/* What one server serves. */
struct catalog {
    int minor;
    struct strv hidden; /* "plural.group" or "group" that are not served although the profile has them */
};
bool catalog_serves(const struct catalog *catalog, const struct kind *kind, const struct kind_version *version);
/* The version objects of this kind are stored in; NULL when it is not served at all. */
const char *catalog_storage_version(const struct catalog *catalog, const struct kind *kind);
/* NULL when there is no such resource. */
const struct kind *catalog_find(const struct catalog *catalog, const char *group, const char *version,
                                const char *plural);
/* Text of apiVersion: "v1", "storage.k8s.io/v1". The caller frees it. */
char *kind_api_version(const struct kind *kind, const char *version);

#endif
