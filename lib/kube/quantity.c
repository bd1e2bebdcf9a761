/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/quantity.h"

#include "lib/base/mem.h"

#include <stdio.h>
#include <string.h>

#define NANO_PER_UNIT ((__int128)1000000000)
#define NANO_DIGITS 9
#define MAGNITUDE_MAX ((unsigned __int128)KUBE_QUANTITY_NANO_MAX)
/* Far beyond what 128 bits can tell apart, so that adding a text's length to it cannot overflow. */
#define EXPONENT_MAX ((int64_t)1 << 40)

struct suffix {
    const char *text;
    int power_of_ten;
    int power_of_two; /* > 0 for binary suffixes */
};
static const struct suffix suffixes[] = {
    {"", 0, 0},    {"n", -9, 0},  {"u", -6, 0},  {"m", -3, 0},  {"k", 3, 0},   {"M", 6, 0},
    {"G", 9, 0},   {"T", 12, 0},  {"P", 15, 0},  {"E", 18, 0},  {"Ki", 0, 10}, {"Mi", 0, 20},
    {"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50}, {"Ei", 0, 60},
};

/* A decimal number as text: `whole` and `fraction` are runs of digits in the input. */
struct digits {
    const char *whole, *fraction;
    size_t whole_len, fraction_len;
};

static size_t digit_run(const char *text)
{
    size_t len = 0;
    while (text[len] >= '0' && text[len] <= '9')
        len++;
    return len;
}

static char digit_at(const struct digits *digits, size_t index)
{
    return index < digits->whole_len ? digits->whole[index] : digits->fraction[index - digits->whole_len];
}

static unsigned __int128 times_ten_plus(unsigned __int128 value, unsigned digit)
{
    if (value > (MAGNITUDE_MAX - digit) / 10)
        return MAGNITUDE_MAX;
    return value * 10 + digit;
}

/* digits × 10^power in nano-units, rounded up, saturated. */
static unsigned __int128 decimal_nano(const struct digits *digits, int64_t power)
{
    size_t len = digits->whole_len + digits->fraction_len;
    /* how many of the digits stand before the point once the number is written in nano-units */
    int64_t keep = (int64_t)digits->whole_len + power + NANO_DIGITS;
    unsigned __int128 value = 0;
    bool more = false;
    for (size_t i = 0; i < len; i++) {
        unsigned digit = (unsigned)(digit_at(digits, i) - '0');
        if (keep > 0 && i < (uint64_t)keep)
            value = times_ten_plus(value, digit);
        else
            more = more || digit != 0;
    }
    for (int64_t i = (int64_t)len; i < keep && value != 0 && value != MAGNITUDE_MAX; i++)
        value = times_ten_plus(value, 0);
    return more && value != MAGNITUDE_MAX ? value + 1 : value;
}

/* digits × 2^power in nano-units, rounded up, at most 2^63-1 units. */
static unsigned __int128 binary_nano(const struct digits *digits, int power)
{
    const unsigned __int128 cap = (unsigned __int128)INT64_MAX * (unsigned __int128)NANO_PER_UNIT;
    const unsigned __int128 factor = (unsigned __int128)NANO_PER_UNIT << power;
    unsigned __int128 whole = 0;
    for (size_t i = 0; i < digits->whole_len && whole <= (uint64_t)INT64_MAX; i++)
        whole = times_ten_plus(whole, (unsigned)(digits->whole[i] - '0'));
    if (whole > (uint64_t)INT64_MAX >> power)
        return cap;
    /* From the last digit to the first, so that what is cut off at each step can only make the result smaller than the
     * exact one by less than one, and `more` knows whether it did. */
    unsigned __int128 fraction = 0;
    bool more = false;
    for (size_t i = digits->fraction_len; i > 0; i--) {
        fraction += factor * (unsigned)(digits->fraction[i - 1] - '0');
        more = more || fraction % 10 != 0;
        fraction /= 10;
    }
    unsigned __int128 value = whole * factor + fraction + (more ? 1 : 0);
    return value < cap ? value : cap;
}

/* "e3", "E-2": the digits after the letter and sign, which must be the whole rest. */
static bool parse_exponent(const char *text, int64_t *power)
{
    if (*text != 'e' && *text != 'E')
        return false;
    text++;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    size_t len = digit_run(text);
    if (len == 0 || text[len] != '\0')
        return false;
    int64_t value = 0;
    for (size_t i = 0; i < len && value < EXPONENT_MAX; i++)
        value = value * 10 + (text[i] - '0');
    *power = negative ? -value : value;
    return true;
}

int kube_quantity_parse(const char *text, struct kube_quantity *quantity, struct err *err)
{
    if (text == NULL || *text == '\0')
        return err_set(err, ERR_INVALID, "an empty text is no quantity");
    bool negative = *text == '-';
    const char *at = *text == '-' || *text == '+' ? text + 1 : text;
    struct digits digits = {.whole = at, .whole_len = digit_run(at)};
    at += digits.whole_len;
    if (*at == '.') {
        digits.fraction = at + 1;
        digits.fraction_len = digit_run(digits.fraction);
        at = digits.fraction + digits.fraction_len;
    }
    if (digits.whole_len + digits.fraction_len == 0)
        return err_set(err, ERR_INVALID, "\"%.64s\" is no quantity: it has no digits where the number should start",
                       text);
    unsigned __int128 magnitude = 0;
    int64_t power = 0;
    const struct suffix *suffix = NULL;
    for (size_t i = 0; i < ARRAY_LEN(suffixes) && suffix == NULL; i++) {
        if (strcmp(at, suffixes[i].text) == 0)
            suffix = &suffixes[i];
    }
    if (suffix != NULL && suffix->power_of_two > 0)
        magnitude = binary_nano(&digits, suffix->power_of_two);
    else if (suffix != NULL)
        magnitude = decimal_nano(&digits, suffix->power_of_ten);
    else if (parse_exponent(at, &power))
        magnitude = decimal_nano(&digits, power);
    else
        return err_set(err, ERR_INVALID,
                       "\"%.64s\" is no quantity: unknown suffix \"%.16s\" (known are n, u, m, k, M, G, T, P, E, Ki, "
                       "Mi, Gi, Ti, Pi, Ei and an exponent such as e3)",
                       text, at);
    quantity->nano = negative ? -(__int128)magnitude : (__int128)magnitude;
    return 0;
}

int kube_quantity_compare(const struct kube_quantity *a, const struct kube_quantity *b)
{
    return (a->nano > b->nano) - (a->nano < b->nano);
}

struct kube_quantity kube_quantity_from_bytes(int64_t bytes)
{
    return (struct kube_quantity){.nano = bytes * NANO_PER_UNIT};
}

int64_t kube_quantity_ceil(const struct kube_quantity *quantity)
{
    __int128 units = quantity->nano / NANO_PER_UNIT;
    if (quantity->nano > 0 && quantity->nano % NANO_PER_UNIT != 0)
        units++;
    if (units > INT64_MAX)
        return INT64_MAX;
    return units < INT64_MIN ? INT64_MIN : (int64_t)units;
}

static const char *const binary_units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};

char *kube_quantity_format_bytes(int64_t bytes, char buffer[KUBE_QUANTITY_TEXT_SIZE])
{
    size_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < ARRAY_LEN(binary_units)) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buffer, KUBE_QUANTITY_TEXT_SIZE, "%lld%s", (long long)bytes, binary_units[unit]);
    return buffer;
}

/* Three significant digits: value is in hundredths of the unit. */
static void format_hundredths(unsigned __int128 hundredths, const char *sign, const char *unit, char *buffer)
{
    unsigned long long whole = (unsigned long long)(hundredths / 100);
    unsigned fraction = (unsigned)(hundredths % 100);
    if (fraction == 0)
        snprintf(buffer, KUBE_QUANTITY_TEXT_SIZE, "%s%llu%s", sign, whole, unit);
    else if (fraction % 10 == 0)
        snprintf(buffer, KUBE_QUANTITY_TEXT_SIZE, "%s%llu.%u%s", sign, whole, fraction / 10, unit);
    else
        snprintf(buffer, KUBE_QUANTITY_TEXT_SIZE, "%s%llu.%02u%s", sign, whole, fraction, unit);
}

char *kube_quantity_format_human(const struct kube_quantity *quantity, char buffer[KUBE_QUANTITY_TEXT_SIZE])
{
    bool negative = quantity->nano < 0;
    unsigned __int128 magnitude = negative ? -(unsigned __int128)quantity->nano : (unsigned __int128)quantity->nano;
    if (magnitude % (unsigned __int128)NANO_PER_UNIT == 0 &&
        magnitude / (unsigned __int128)NANO_PER_UNIT <= INT64_MAX) {
        kube_quantity_format_bytes(kube_quantity_ceil(quantity), buffer);
        size_t number_len = strcspn(buffer, "KMGTPE");
        if (number_len <= 4 + (negative ? 1U : 0U))
            return buffer;
    }
    unsigned __int128 scale = (unsigned __int128)NANO_PER_UNIT;
    size_t unit = 0;
    for (;;) {
        /* rounded to what three digits can show: 1.23, 12.3, 123 */
        unsigned __int128 whole = magnitude / scale;
        unsigned __int128 step = whole >= 100 ? 100 : whole >= 10 ? 10 : 1;
        unsigned __int128 rest = magnitude % scale;
        /* split, since magnitude × 100 might not fit */
        unsigned __int128 hundredths = whole * 100 + rest * (100 / step) / scale * step;
        if (rest * (100 / step) % scale * 2 >= scale)
            hundredths += step;
        if (hundredths < (unsigned __int128)102400 || unit + 1 == ARRAY_LEN(binary_units)) {
            format_hundredths(hundredths, negative ? "-" : "", binary_units[unit], buffer);
            return buffer;
        }
        scale *= 1024;
        unit++;
    }
}
