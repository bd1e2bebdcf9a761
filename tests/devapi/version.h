/* SPDX-License-Identifier: Apache-2.0 */
/* Making versions out of JSON trees: only the store does. */
#ifndef BERTH_DEVAPI_VERSION_H
#define BERTH_DEVAPI_VERSION_H

#include "tests/devapi/store.h"

/* One reference, to be given back with version_unref. The tree is only read. */
struct version *version_new(const struct kind *kind, const char *key, uint64_t resource_version, const json_t *object);

#endif
