/* SPDX-License-Identifier: Apache-2.0 */
/* A request, taken apart: which verb on which object, and the query. */
#ifndef BERTH_DEVAPI_REQUEST_H
#define BERTH_DEVAPI_REQUEST_H

#include "lib/base/map.h"
#include "tests/devapi/kinds.h"

#include <stdint.h>

enum verb {
    VERB_OTHER,
    VERB_GET,
    VERB_LIST,
    VERB_WATCH,
    VERB_CREATE,
    VERB_UPDATE,
    VERB_PATCH,
    VERB_DELETE,
    VERB_DELETE_COLLECTION
};

struct request {
    char *method;
    char *path;                                               /* decoded, without the query */
    struct map *query;                                        /* char * values; NULL while there are none */
    char *content_type, *accept, *user_agent, *authorization; /* NULL when not sent */
    const char *body;
    size_t body_len;

    enum verb verb;
    const struct kind *kind;              /* NULL: no resource (discovery, control, unknown) */
    char *group, *version, *resource;     /* as in the path, also for what is not served; NULL when no API path */
    char *namespace, *name, *subresource; /* NULL when absent */
    bool events_group;                    /* core events seen through events.k8s.io */
};
/* Fills the second half from method, path and query. */
void request_parse(struct request *request, const struct catalog *catalog);
void request_free(struct request *request);
const char *request_query(const struct request *request, const char *name); /* NULL when absent */
bool request_flag(const struct request *request, const char *name);         /* "true" or "1" */
bool request_dry_run(const struct request *request);
const char *verb_name(enum verb verb);

/* Core events under their other name: the members that are called differently are renamed in place. */
void events_to_core(json_t *object);
void events_from_core(json_t *object);
/* "v1", "v1beta1" or NULL. */
const char *events_group_version(const struct catalog *catalog);

#endif
