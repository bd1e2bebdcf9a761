/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest decimal form of a double, for str.h. */
#include "lib/base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Digits d₁d₂… and exponent e of value = ±d₁.d₂… × 10^e, with the fewest digits that read back as the same number. */
struct digits {
    char text[20];
    int count;
    int exponent;
};

static struct digits shortest(double magnitude)
{
    struct digits digits = {.count = 0};
    char text[40];
    /* every decimal of up to 15 digits survives the way through a double, so fewer come out as trailing zeros */
    for (int precision = 14; precision <= 16; precision++) {
        snprintf(text, sizeof(text), "%.*e", precision, magnitude);
        if (strtod(text, NULL) == magnitude)
            break;
    }
    const char *p = text;
    for (; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9')
            digits.text[digits.count++] = *p;
    }
    digits.exponent = (int)strtol(p + 1, NULL, 10);
    while (digits.count > 1 && digits.text[digits.count - 1] == '0')
        digits.count--;
    digits.text[digits.count] = '\0';
    return digits;
}

void str_add_double(struct str *str, double value)
{
    if (isnan(value)) {
        str_add(str, "NaN");
        return;
    }
    if (isinf(value)) {
        str_add(str, value > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (signbit(value))
        str_add_char(str, '-');
    struct digits digits = shortest(fabs(value));
    /* Go's 'g' conversion takes 6 as the precision that decides the form, however many digits there are */
    if (digits.exponent < -4 || digits.exponent >= 6) {
        str_add_char(str, digits.text[0]);
        if (digits.count > 1)
            str_addf(str, ".%s", digits.text + 1);
        str_addf(str, "e%c%02d", digits.exponent < 0 ? '-' : '+', abs(digits.exponent));
    } else if (digits.exponent < 0) {
        str_addf(str, "0.%.*s%s", -digits.exponent - 1, "000", digits.text);
    } else {
        for (int i = 0; i <= digits.exponent || i < digits.count; i++) {
            if (i == digits.exponent + 1)
                str_add_char(str, '.');
            str_add_char(str, i < digits.count ? digits.text[i] : '0');
        }
    }
}
