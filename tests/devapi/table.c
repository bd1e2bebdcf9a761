/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/render.h"

void table_head(const struct kind *kind, const char *resource_version, const char *continue_token, bool columns,
                struct str *out)
{
    (void)kind; (void)resource_version; (void)continue_token; (void)columns; (void)out;
}
void table_row(const struct kind *kind, const json_t *object, bool whole_object, int64_t now, struct str *out)
{
    (void)kind; (void)object; (void)whole_object; (void)now; (void)out;
}
