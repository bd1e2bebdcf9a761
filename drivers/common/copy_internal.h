/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by copy_data.c, copy_tree.c and tree_usage.c; nothing else includes it. */
#ifndef BERTH_DRIVERS_COPY_INTERNAL_H
#define BERTH_DRIVERS_COPY_INTERNAL_H

#include "drivers/common/copy.h"

#include <dirent.h>

/* Looks at the stop and logs progress when it is time. */
int copy_tick(struct copy *copy, struct err *err);
int copy_fail(int error_number, const char *doing, const char *name, struct err *err);
/* Owner, mode, times and extended attributes; descriptors may be O_PATH ones. */
int copy_attributes(int from, int to, struct err *err);

/* Opens below a directory, never through a symlink and never into another mount. -1 with errno. */
int tree_open(int parent, const char *name, int flags);
/* A stream of its own over an open directory, from its start; NULL with errno. */
DIR *tree_stream(int directory);

#endif
