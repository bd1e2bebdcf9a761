/* SPDX-License-Identifier: Apache-2.0 */
/* How a volume is: looks that end in time, also where a file system does not answer. */
#ifndef BERTH_HOSTPATH_HEALTH_H
#define BERTH_HOSTPATH_HEALTH_H

#include "drivers/hostpath/backend.h"

/* backend->usage on a thread of its own, for 3 s at most: then ERR_TIMEOUT, and no second look is started for the same
 * volume until the first one came back. */
int health_usage(struct hostpath *driver, const struct volume *volume, const char *path, struct usage *usage,
                 struct err *err);

#endif
