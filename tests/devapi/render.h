/* SPDX-License-Identifier: Apache-2.0 */
/* How objects are shown to one client: as stored, in another version of the API, as rows of a table, or metadata alone.
 */
#ifndef BERTH_DEVAPI_RENDER_H
#define BERTH_DEVAPI_RENDER_H

#include "tests/devapi/request.h"
#include "tests/devapi/store.h"

enum render_as { RENDER_OBJECT, RENDER_TABLE, RENDER_METADATA };
struct rendering {
    const struct kind *kind;
    int minor; /* of Kubernetes: columns differ */
    enum render_as as;
    bool events_group;
    bool whole_objects;  /* rows carry the object, not only its metadata */
    char *api_version;   /* NULL when what is stored is what the client wants */
    char *shown_version; /* apiVersion of the objects as the client sees them */
};
/* From the path and the Accept header. */
void rendering_init(struct rendering *rendering, const struct catalog *catalog, const struct request *request);
void rendering_free(struct rendering *rendering);
/* Nothing to do: the stored text can be sent. */
bool rendering_is_plain(const struct rendering *rendering);
/* Appends one object. In a list, items of typed lists have no kind and apiVersion. */
void render_object(const struct rendering *rendering, const struct version *version, struct str *out);
void render_item(const struct rendering *rendering, const struct version *version, struct str *out);

/* table.c: head of a table up to and including "rows":[ , and one row. */
void table_head(const struct kind *kind, int minor, const char *resource_version, const char *continue_token,
                struct str *out);
void table_row(const struct kind *kind, int minor, const json_t *object, bool whole_object, int64_t now,
               struct str *out);

#endif
