/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a duration and as a time: what is taken is written and read again as the same. */
#include "tests/fuzz/fuzz.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = mem_strndup((const char *)data, size);
    char buffer[CLOCK_TEXT_SIZE];
    int64_t ns = 0, again = 0;
    if (clock_parse_duration(text, &ns))
        require(clock_parse_duration(clock_format_duration(ns, buffer), &again) && again == ns);
    if (clock_parse_rfc3339(text, &ns))
        require(clock_parse_rfc3339(clock_format_rfc3339(ns, true, buffer), &again) && again / 1000 * 1000 <= ns &&
                ns - again < 1000);
    return 0;
}
