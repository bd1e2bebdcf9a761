/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server fills in: the defaults of each kind, and the initial status. They run on every write, as in the real
 * server where decoding sets them, so objects of an older profile get them too.
 */
#ifndef BERTH_DEVAPI_DEFAULTS_H
#define BERTH_DEVAPI_DEFAULTS_H

#include <jansson.h>
#include <stdbool.h>

/* What differs from server to server. */
struct rules {
    int minor;          /* of Kubernetes: 20 … 36 */
    bool protection;    /* the admission and controllers of the protection finalizers */
    bool default_class; /* the admission that fills in the default class */
};

void defaults_namespace(json_t *object, const struct rules *rules, bool create);
void defaults_volume(json_t *object, const struct rules *rules, bool create);
void defaults_claim(json_t *object, const struct rules *rules, bool create);
void defaults_pod(json_t *object, const struct rules *rules, bool create);
void defaults_event(json_t *object, const struct rules *rules, bool create);
void defaults_secret(json_t *object, const struct rules *rules, bool create);
void defaults_class(json_t *object, const struct rules *rules, bool create);
void defaults_driver(json_t *object, const struct rules *rules, bool create);
void defaults_attachment(json_t *object, const struct rules *rules, bool create);
void defaults_node(json_t *object, const struct rules *rules, bool create);

#endif
