/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target has. */
#ifndef BERTH_TESTS_FUZZ_H
#define BERTH_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What does not hold is a finding. */
static inline void require(bool holds)
{
    if (!holds)
        abort();
}

#endif
