/* SPDX-License-Identifier: Apache-2.0 */
/* Alone in a file: only this object depends on the version and the revision. */
#include "lib/base/flag.h"

#ifndef BERTH_VERSION /* set by the makefile; tools that read single files do not know it */
#define BERTH_VERSION "unknown"
#endif
#ifndef BERTH_REVISION
#define BERTH_REVISION "unknown"
#endif

const char *berth_version(void)
{
    return BERTH_VERSION;
}

const char *berth_revision(void)
{
    return BERTH_REVISION;
}
