/* SPDX-License-Identifier: Apache-2.0 */
/* Files: whole reads with a limit, durable atomic writes, and opening below a root that names from outside cannot
 * leave. */
#ifndef BERTH_BASE_FILE_H
#define BERTH_BASE_FILE_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads the whole file of at most `limit` bytes; *data is owned by the caller and NUL-terminated.
 * A larger file is ERR_INVALID. `len` may be NULL. file_read takes whatever the user names, also a pipe; file_read_at
 * only regular files. */
int file_read(const char *path, size_t limit, char **data, size_t *len, struct err *err);
int file_read_at(int dir_fd, const char *name, size_t limit, char **data, size_t *len, struct err *err);
/* Write to a temporary name, fsync, rename over `name`, fsync the directory: after a crash there is the old or the new.
 */
int file_write_atomic_at(int dir_fd, const char *name, const void *data, size_t len, mode_t mode, struct err *err);
int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct err *err);
/* openat2 with RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_XDEV when `same_mount`. Returns the descriptor
 * (O_CLOEXEC) or -1. */
int file_open_beneath(int root_fd, const char *path, int flags, mode_t mode, bool same_mount, struct err *err);
/* A single path element that may be used as a file name: not empty, not "." or "..", no '/', no NUL, at most 255 bytes.
 */
bool file_name_is_safe(const char *name);
/* Removes the tree (or file, or symlink) `name` below dir_fd. Absent = success. Never follows a symlink and never
 * enters another mount (that is an error), also when somebody changes the tree meanwhile; needs some 50 descriptors and
 * 400 KiB at most. The first error ends it and its message names the path, from `name` on. Directories deeper than 48
 * levels are renamed to NAME/.removing-RANDOM before they are removed, so after an error they may be found there. */
int file_remove_tree_at(int dir_fd, const char *name, struct err *err);
/* Lets this process and those it starts have `most` descriptors, or as many as they may give themselves. What is
 * allowed already stays. */
void file_raise_limit(uint64_t most);

#endif
