/* SPDX-License-Identifier: Apache-2.0 */
/* Any text: what the parser accepts must survive being written and read again. */
#include "tests/fuzz/fuzz.h"

#include "lib/base/mem.h"
#include "lib/kube/quantity.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = mem_strndup((const char *)data, size);
    auto_err struct err err = {0};
    struct kube_quantity quantity = {0};
    if (kube_quantity_parse(text, &quantity, &err) != 0) {
        require(err.code == ERR_INVALID && err.message != NULL);
        return 0;
    }
    require(err.code == ERR_NONE);
    char buffer[KUBE_QUANTITY_TEXT_SIZE];
    require(strlen(kube_quantity_format_human(&quantity, buffer)) < sizeof(buffer));

    int64_t units = kube_quantity_ceil(&quantity);
    struct kube_quantity rounded = kube_quantity_from_bytes(units);
    require(kube_quantity_compare(&rounded, &quantity) >= 0 || units == INT64_MAX);
    struct kube_quantity again = {0};
    require(kube_quantity_parse(kube_quantity_format_bytes(units, buffer), &again, NULL) == 0);
    /* the binary suffix is capped one below what INT64_MIN needs */
    require(units == INT64_MIN || kube_quantity_compare(&again, &rounded) == 0);

    if (*text == '-' || *text == '+')
        return 0;
    auto_free char *negated = mem_printf("-%s", text);
    require(kube_quantity_parse(negated, &again, NULL) == 0 && again.nano == -quantity.nano);
    return 0;
}
