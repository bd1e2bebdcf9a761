/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/quantity.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef __int128 wide; /* in units of 10^-9: enough for 10^29, and no resource is larger */

enum suffix_format { DECIMAL_SI, DECIMAL_EXPONENT, BINARY_SI };

static const struct suffix {
    const char *text;
    enum suffix_format format;
    int exponent; /* of 10, or of 2 */
} suffixes[] = {
    {"n", DECIMAL_SI, -9}, {"u", DECIMAL_SI, -6}, {"m", DECIMAL_SI, -3}, {"", DECIMAL_SI, 0},
    {"k", DECIMAL_SI, 3},  {"M", DECIMAL_SI, 6},  {"G", DECIMAL_SI, 9},  {"T", DECIMAL_SI, 12},
    {"P", DECIMAL_SI, 15}, {"E", DECIMAL_SI, 18}, {"Ki", BINARY_SI, 10}, {"Mi", BINARY_SI, 20},
    {"Gi", BINARY_SI, 30}, {"Ti", BINARY_SI, 40}, {"Pi", BINARY_SI, 50}, {"Ei", BINARY_SI, 60},
};

/* The parts of a quantity's text. */
struct parts {
    bool negative;
    char digits[QUANTITY_SIZE]; /* whole and fraction, without leading zeros of the whole */
    int whole, fraction;        /* how many of each */
    enum suffix_format format;
    int exponent;
};

static int malformed(struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
}

static int parse_suffix(const char *text, struct parts *parts, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        if (strcmp(suffixes[i].text, text) == 0) {
            parts->format = suffixes[i].format;
            parts->exponent = suffixes[i].exponent;
            return 0;
        }
    }
    int64_t exponent;
    if ((*text != 'e' && *text != 'E') || !str_parse_i64(text + 1 + (text[1] == '+'), &exponent) || exponent > 24 ||
        exponent < -24)
        return malformed(err);
    parts->format = DECIMAL_EXPONENT;
    parts->exponent = (int)exponent;
    return 0;
}

static int split(const char *text, struct parts *parts, struct err *err)
{
    size_t len = 0;
    *parts = (struct parts){.negative = *text == '-'};
    bool any = false;
    text += *text == '-' || *text == '+';
    for (; *text == '0'; text++)
        any = true;
    for (; isdigit((unsigned char)*text) && len < QUANTITY_SIZE - 1; text++, parts->whole++)
        parts->digits[len++] = *text;
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text) && len < QUANTITY_SIZE - 1; text++, parts->fraction++)
            parts->digits[len++] = *text;
    any = any || len > 0;
    parts->digits[len] = '\0';
    return any && len < QUANTITY_SIZE - 1 ? parse_suffix(text, parts, err) : malformed(err);
}

/* Whether the server holds the number in an int64 with a decimal scale; else it uses big numbers. */
static bool is_small(const struct parts *parts)
{
    if (parts->format == BINARY_SI)
        return parts->fraction == 0 && 15 - parts->whole - parts->exponent * 3 / 10 - 1 >= 0;
    return parts->whole + parts->fraction <= 18 && parts->exponent - parts->fraction >= -9;
}

/* In units of 10^-9, rounded away from zero. False when it does not fit. */
static bool to_nano(const struct parts *parts, wide *nano)
{
    wide value = 0;
    const wide limit = (wide)1 << 120;
    for (const char *digit = parts->digits; *digit != '\0'; digit++) {
        if (value > limit / 10)
            return false;
        value = value * 10 + (*digit - '0');
    }
    for (int i = 0; parts->format == BINARY_SI && i < parts->exponent; i++) {
        if (value > limit / 2)
            return false;
        value *= 2;
    }
    int scale = 9 - parts->fraction + (parts->format == BINARY_SI ? 0 : parts->exponent);
    for (; scale > 0; scale--) {
        if (value > limit / 10)
            return false;
        value *= 10;
    }
    bool rest = false;
    for (; scale < 0; scale++) {
        rest = rest || value % 10 != 0;
        value /= 10;
    }
    *nano = value + (rest ? 1 : 0);
    return true;
}

static void print_wide(wide value, const char *suffix, bool negative, char out[QUANTITY_SIZE])
{
    char digits[QUANTITY_SIZE];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + (int)(value % 10));
        value /= 10;
    } while (value > 0 && at > 1);
    (void)snprintf(out, QUANTITY_SIZE, "%s%s%s", negative ? "-" : "", digits + at, suffix);
}

static const char *suffix_of(enum suffix_format format, int exponent)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (suffixes[i].format == format && suffixes[i].exponent == exponent)
            return suffixes[i].text;
    return "";
}

static void canonical(wide nano, enum suffix_format format, bool negative, char out[QUANTITY_SIZE])
{
    const wide unit = 1000000000;
    int exponent = 0;
    if (format == BINARY_SI && nano % unit == 0) {
        wide whole = nano / unit;
        for (; whole % 1024 == 0 && exponent < 60; exponent += 10)
            whole /= 1024;
        print_wide(whole, exponent > 0 ? suffix_of(BINARY_SI, exponent) : "", negative, out);
        return;
    }
    for (exponent = -9; nano > 0 && nano % 1000 == 0 && exponent < 18; exponent += 3)
        nano /= 1000;
    char suffix[16] = "";
    if (format == DECIMAL_EXPONENT && exponent != 0)
        (void)snprintf(suffix, sizeof(suffix), "e%d", exponent);
    print_wide(nano, format == DECIMAL_EXPONENT ? suffix : suffix_of(DECIMAL_SI, nano > 0 ? exponent : 0), negative,
               out);
}

/* The text without what the server overlooks: a plus, leading zeros, a dot at the end, a capital exponent. */
static void normalize(const char *text, const struct parts *parts, char out[QUANTITY_SIZE])
{
    const char *suffix = text + strspn(text, "+-0123456789.");
    const char *whole = parts->whole > 0 ? parts->digits : "0";
    (void)snprintf(out, QUANTITY_SIZE, "%s%.*s%s%s%s", parts->negative ? "-" : "", parts->whole > 0 ? parts->whole : 1,
                   whole, parts->fraction > 0 ? "." : "", parts->digits + parts->whole, suffix);
    char *exponent = parts->format == DECIMAL_EXPONENT ? strchr(out, 'E') : NULL;
    if (exponent != NULL)
        *exponent = 'e';
}

int quantity_parse(const char *text, struct quantity *quantity, struct err *err)
{
    struct parts parts;
    wide nano;
    const wide unit = 1000000000, milli = 1000000, max = (wide)INT64_MAX * unit;
    *quantity = (struct quantity){0};
    if (split(text, &parts, err) != 0)
        return -1;
    if (!to_nano(&parts, &nano))
        return err_set(err, ERR_INVALID, "quantity %s is out of range", text);
    quantity->positive = nano > 0 && !parts.negative;
    quantity->negative = nano > 0 && parts.negative;
    if (nano % milli != 0) /* the API counts nothing smaller */
        nano += milli - nano % milli;
    if (parts.format == BINARY_SI && nano > max)
        nano = max;
    quantity->overflow = !is_small(&parts) && (int64_t)(uint64_t)((nano + unit - 1) / unit) < 0;
    canonical(nano, parts.format == BINARY_SI && nano < 1024 * unit ? DECIMAL_SI : parts.format,
              parts.negative && nano > 0, quantity->text);
    char normal[QUANTITY_SIZE];
    normalize(text, &parts, normal);
    if (strcmp(normal, quantity->text) == 0 && strlen(text) < QUANTITY_SIZE)
        memcpy(quantity->text, text, strlen(text) + 1);
    return 0;
}

static int rewrite(json_t *container, const char *key, json_t *value, struct err *err)
{
    char number[32];
    const char *text = json_string_value(value);
    struct quantity quantity;
    if (json_is_integer(value)) {
        (void)snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
    }
    if (text == NULL)
        return malformed(err);
    if (quantity_parse(text, &quantity, err) != 0)
        return -1;
    if (json_is_string(value) && strcmp(text, quantity.text) == 0)
        return 0;
    return json_object_set_new(container, key, json_string(quantity.text));
}

static const char *const list_members[] = {"capacity", "allocatable", "requests", "limits",
                                           "hard",     "used",        "overhead", "allocatedResources"};
static const char *const single_members[] = {"capacity", "maximumVolumeSize", "sizeLimit"};

static bool named(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

int quantity_canonicalize(json_t *object, struct err *err)
{
    const char *key, *inner_key;
    json_t *value, *inner;
    size_t i;
    json_object_foreach (object, key, value) {
        if (json_is_object(value) && named(list_members, ARRAY_LEN(list_members), key)) {
            json_object_foreach (value, inner_key, inner) {
                if (rewrite(value, inner_key, inner, err) != 0)
                    return -1;
            }
        } else if (json_is_object(value) && strcmp(key, "metadata") != 0) {
            if (quantity_canonicalize(value, err) != 0)
                return -1;
        } else if (json_is_array(value)) {
            json_array_foreach (value, i, inner) {
                if (json_is_object(inner) && quantity_canonicalize(inner, err) != 0)
                    return -1;
            }
        } else if (json_is_string(value) && named(single_members, ARRAY_LEN(single_members), key)) {
            if (rewrite(object, key, value, err) != 0)
                return -1;
        }
    }
    return 0;
}
