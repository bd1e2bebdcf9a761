/* SPDX-License-Identifier: Apache-2.0 */
/* A directory for one test: `cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)`. */
#ifndef BERTH_TESTS_UNIT_BASE_SCRATCH_H
#define BERTH_TESTS_UNIT_BASE_SCRATCH_H

struct scratch {
    char path[64];
    int fd; /* the directory */
};

int scratch_setup(void **state);
/* Removes it with everything below, by other means than the code under test. */
int scratch_teardown(void **state);

#endif
