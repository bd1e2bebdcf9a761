/* SPDX-License-Identifier: Apache-2.0 */
/* What every write has in common: reading a body, and bringing an object into the shape the server stores. */
#ifndef BERTH_DEVAPI_OBJECT_H
#define BERTH_DEVAPI_OBJECT_H

#include "tests/devapi/server.h"

/* The body as an object of the request's kind; NULL with the reply filled. */
json_t *object_read(struct server *server, const struct request *request, struct reply *reply);
/* kind and apiVersion as stored, in front; nulls and empty members out; defaults in. Fails on bad quantities (400). The
 * object may be replaced by another one. */
int object_normalize(struct server *server, const struct kind *kind, json_t **object, bool create, struct reply *reply);
/* All checks of kind and metadata; `old` is NULL for a create. */
int object_validate(struct server *server, const struct kind *kind, const json_t *object, const json_t *old,
                    struct reply *reply);
/* Answers with an object as this client wants to see it. */
void object_reply(struct server *server, const struct request *request, int code, struct version *version,
                  struct reply *reply);
/* Admission of new objects: namespace, quota, default class. 0, or -1 with the reply filled. */
int admit_create(struct server *server, const struct kind *kind, json_t *object, struct reply *reply);

#endif
