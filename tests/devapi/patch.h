/* SPDX-License-Identifier: Apache-2.0 */
/* The three patch formats, on JSON trees in memory. */
#ifndef BERTH_DEVAPI_PATCH_H
#define BERTH_DEVAPI_PATCH_H

#include "lib/base/err.h"
#include "tests/devapi/kinds.h"

#include <jansson.h>

/* RFC 7386. A new tree; `target` may be NULL and is not changed. */
json_t *patch_merge(const json_t *target, const json_t *patch);
/* RFC 6902. Returns the new tree, or NULL: ERR_INVALID when the patch itself is malformed, ERR_UNPROCESSABLE when it
 * does not apply ("test" failed, path absent). */
json_t *patch_json(const json_t *target, const json_t *operations, struct err *err);
/* Kubernetes' strategic merge: like patch_merge, but the lists that `kind` names (and finalizers, ownerReferences) are
 * merged by key or as sets, and the directives $patch, $retainKeys, $deleteFromPrimitiveList/NAME and
 * $setElementOrder/NAME are obeyed. NULL with ERR_INVALID on a malformed one. */
json_t *patch_strategic(const struct kind *kind, const json_t *target, const json_t *patch, struct err *err);

#endif
