/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mount_flags of a CSI capability, as a user wrote them ("noatime", "ro,nodev", "commit=5"), sorted into what the
 * kernel takes: flags of the mount itself, which any directory can have, and options of the file system. CSI says that
 * mount flags may be confidential, so messages name an option by what stands before its '=' only.
 */
#ifndef BERTH_DRIVERS_MOUNT_OPTIONS_H
#define BERTH_DRIVERS_MOUNT_OPTIONS_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct mount_options {
    unsigned long flags; /* MS_RDONLY, MS_NOSUID … */
    bool read_only;      /* MS_RDONLY is among them */
    struct str data;     /* for the file system, comma-separated */
    struct strv list;    /* each option as given */
};
/* Each of `items` may hold several options with commas between. Empty ones are skipped. ERR_INVALID for an option with
 * a control character. */
int mount_options_parse(char *const *items, size_t count, struct mount_options *options, struct err *err);
void mount_options_free(struct mount_options *options);
#define auto_mount_options __attribute__((cleanup(mount_options_free)))
/* For mounts that are a directory's only: ERR_INVALID when there is an option of a file system. */
int mount_options_only_flags(const struct mount_options *options, struct err *err);
/* A fingerprint that is equal for equal lists and does not show them: what may be kept to compare with a later call.
 * Owned by the caller. */
char *mount_options_digest(char *const *items, size_t count);

#endif
