/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of a test's own, removed also when the test fails, and little helpers for files in it. */
#ifndef BERTH_TEST_HOSTPATH_SCRATCH_H
#define BERTH_TEST_HOSTPATH_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct scratch {
    char path[64];
    int fd;
};
/* For cmocka's set-up and tear-down: *state is a struct scratch. */
int scratch_set_up(void **state);
int scratch_tear_down(void **state);

void scratch_write(const struct scratch *scratch, const char *name, const char *text);
char *scratch_read(const struct scratch *scratch, const char *name); /* owned by the caller; "" when absent */
bool scratch_exists(const struct scratch *scratch, const char *name);
int scratch_mkdir(const struct scratch *scratch, const char *name); /* open */

#endif
