/* SPDX-License-Identifier: Apache-2.0 */
/* Label and field selectors of lists and watches. */
#ifndef BERTH_DEVAPI_SELECTOR_H
#define BERTH_DEVAPI_SELECTOR_H

#include "lib/base/err.h"
#include "tests/devapi/store.h"

struct selector; /* both in one; NULL selects everything */

/* Either text may be NULL or "". Labels: "a=b,c!=d,e in (x,y),f notin (z),g,!h,n>5,n<5". Fields:
 * "metadata.name=x,reason!=y"; a field the kind does not offer is an error. *selector is NULL when nothing is selected
 * away. */
int selector_parse(const struct kind *kind, const char *labels, const char *fields, struct selector **selector,
                   struct err *err);
void selector_free(struct selector *selector);
bool selector_match(const struct selector *selector, const struct version *version);

#endif
