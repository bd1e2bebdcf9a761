/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary directories of these tests. */
#ifndef BERTH_TESTS_UNIT_FUSE_TREE_H
#define BERTH_TESTS_UNIT_FUSE_TREE_H

#include "lib/base/file.h"
#include "lib/base/mem.h"

#include <fcntl.h>
#include <string.h>

/* Removes a directory with what is in it, by its absolute path. */
static inline int tree_remove(const char *path)
{
    auto_free char *parent = mem_strdup(path);
    char *name = strrchr(parent, '/');
    *name = '\0';
    auto_close int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : file_remove_tree_at(fd, name + 1, NULL);
}

#endif
