/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BERTH_NFS_SCRUB_MAIN_H
#define BERTH_NFS_SCRUB_MAIN_H

#include "lib/base/err.h"

#include <stdint.h>

/* "berth-nfs scrub /DIRECTORY". Exit status. */
int scrub_main(int argc, char **argv);
/* *removed counts entries of the directory itself. */
int scrub_directory(const char *path, uint64_t *removed, struct err *err);

#endif
