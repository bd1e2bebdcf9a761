/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matrix of what programs expect of a POSIX file system on Linux, run in any directory as root: on the file system
 * under test, and on a plain one to prove the expectations themselves. Each check is a function that works in an empty
 * directory of its own (the current one) and leaves with a failed EXPECT or not at all.
 */
#ifndef BERTH_TESTS_FUSE_POSIX_H
#define BERTH_TESTS_FUSE_POSIX_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define USER 12345 /* somebody who is not root */
#define OTHER 12346
#define GROUP 23456

struct check {
    const char *name;
    void (*fn)(void);
};
#define CHECK(function)                                                                                                \
    {                                                                                                                  \
#function, function                                                                                            \
    }
extern const struct check posix_name_checks[], posix_data_checks[], posix_attr_checks[], posix_list_checks[];

_Noreturn void posix_fail(const char *file, int line, const char *text);
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            posix_fail(__FILE__, __LINE__, #condition);                                                                \
    } while (0)
/* The call returns -1 with that errno. */
#define FAILS(call, number) EXPECT((errno = 0, (long)(call)) == -1 && errno == (number))

int posix_make(const char *path, const char *text); /* a file with that text, 0644; its open descriptor, read-write */
void posix_make_closed(const char *path, const char *text);
bool posix_holds(const char *path, const char *text); /* exactly that text */
struct stat posix_stat(const char *path);             /* lstat that must succeed */
/* Runs fn as that user and group (no others) in a child; its exit status must be 0. */
void posix_as(uid_t user, gid_t group, void (*fn)(void));

#endif
