/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource quantities as the API server stores them: in canonical spelling (1024Mi becomes 1Gi), except that a plus,
 * leading zeros, a dot without a fraction and a capital E for an exponent stay as the user wrote them.
 */
#ifndef BERTH_DEVAPI_QUANTITY_H
#define BERTH_DEVAPI_QUANTITY_H

#include "lib/base/err.h"

#include <jansson.h>
#include <stdbool.h>

#define QUANTITY_SIZE 64

struct quantity {
    bool positive, negative;  /* neither: zero */
    bool overflow;            /* the server's int64 view of it wraps to a negative number */
    char text[QUANTITY_SIZE]; /* what is stored */
};
int quantity_parse(const char *text, struct quantity *quantity, struct err *err);
/* Rewrites all quantities in an object (capacity, requests, limits, hard …); JSON numbers become strings. ERR_INVALID
 * names the value that is none. */
int quantity_canonicalize(json_t *object, struct err *err);

#endif
