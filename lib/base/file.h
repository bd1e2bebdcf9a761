/* SPDX-License-Identifier: Apache-2.0 */
/* Files: whole reads with a limit, durable atomic writes, and opening below a root that names from outside cannot leave. */
#ifndef BERTH_BASE_FILE_H
#define BERTH_BASE_FILE_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Reads the whole file of at most `limit` bytes; *data is owned by the caller and NUL-terminated. */
int file_read(const char *path, size_t limit, char **data, size_t *len, struct err *err);
int file_read_at(int dir_fd, const char *name, size_t limit, char **data, size_t *len, struct err *err);
/* Write to a temporary name, fsync, rename over `name`, fsync the directory: after a crash there is the old or the new. */
int file_write_atomic_at(int dir_fd, const char *name, const void *data, size_t len, mode_t mode, struct err *err);
int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct err *err);
/* openat2 with RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_XDEV when `same_mount`. Returns the descriptor (O_CLOEXEC) or -1. */
int file_open_beneath(int root_fd, const char *path, int flags, mode_t mode, bool same_mount, struct err *err);
/* A single path element that may be used as a file name: not empty, not "." or "..", no '/', no NUL, at most 255 bytes. */
bool file_name_is_safe(const char *name);
/* Removes the tree `name` below dir_fd: never follows a symlink, never crosses into another mount, works through
 * descriptors only. Absent = success. */
int file_remove_tree_at(int dir_fd, const char *name, struct err *err);

#endif
