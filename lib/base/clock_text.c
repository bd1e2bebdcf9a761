/* SPDX-License-Identifier: Apache-2.0 */
/* How clock.h's times and durations are written. */
#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

char *clock_format_rfc3339(int64_t wall_ns, bool micro, char buffer[CLOCK_TEXT_SIZE])
{
    int64_t seconds = wall_ns / CLOCK_SECOND;
    int64_t rest = wall_ns % CLOCK_SECOND;
    if (rest < 0) {
        rest += CLOCK_SECOND;
        seconds--;
    }
    time_t time = (time_t)seconds;
    struct tm tm;
    gmtime_r(&time, &tm);
    size_t len = strftime(buffer, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    if (micro)
        snprintf(buffer + len, CLOCK_TEXT_SIZE - len, ".%06dZ", (int)(rest / 1000));
    else
        snprintf(buffer + len, CLOCK_TEXT_SIZE - len, "Z");
    return buffer;
}

/* Exactly `count` digits, then the character `end` unless that is 0. */
static bool take_number(const char **text, int count, char end, int *value)
{
    const char *p = *text;
    *value = 0;
    for (int i = 0; i < count; i++, p++) {
        if (*p < '0' || *p > '9')
            return false;
        *value = *value * 10 + (*p - '0');
    }
    if (end != '\0' && *p++ != end)
        return false;
    *text = p;
    return true;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap ? 1 : 0);
}

static bool take_fraction(const char **text, int64_t *ns)
{
    *ns = 0;
    if (**text != '.')
        return true;
    const char *p = *text + 1;
    int64_t unit = CLOCK_SECOND / 10;
    for (; *p >= '0' && *p <= '9'; p++, unit /= 10)
        *ns += unit * (*p - '0'); /* further digits count nothing: unit is 0 then */
    bool some = p > *text + 1;
    *text = p;
    return some;
}

static bool take_zone(const char **text, int *offset_seconds)
{
    *offset_seconds = 0;
    char sign = *(*text)++;
    if (sign == 'Z')
        return true;
    int hours = 0;
    int minutes = 0;
    if ((sign != '+' && sign != '-') || !take_number(text, 2, ':', &hours) || !take_number(text, 2, 0, &minutes) ||
        hours > 23 || minutes > 59)
        return false;
    *offset_seconds = (hours * 60 + minutes) * (sign == '-' ? -60 : 60);
    return true;
}

bool clock_parse_rfc3339(const char *text, int64_t *wall_ns)
{
    if (text == NULL)
        return false;
    struct tm tm = {0};
    int year = 0;
    int month = 0;
    int64_t fraction = 0;
    int offset = 0;
    if (!take_number(&text, 4, '-', &year) || !take_number(&text, 2, '-', &month) ||
        !take_number(&text, 2, 'T', &tm.tm_mday) || !take_number(&text, 2, ':', &tm.tm_hour) ||
        !take_number(&text, 2, ':', &tm.tm_min) || !take_number(&text, 2, 0, &tm.tm_sec) ||
        !take_fraction(&text, &fraction) || *text == '\0' || !take_zone(&text, &offset) || *text != '\0')
        return false;
    if (month < 1 || month > 12 || tm.tm_mday < 1 || tm.tm_mday > days_in_month(year, month) || tm.tm_hour > 23 ||
        tm.tm_min > 59 || tm.tm_sec > 59)
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    int64_t seconds = (int64_t)timegm(&tm) - offset;
    int64_t ns = 0;
    if (__builtin_mul_overflow(seconds, CLOCK_SECOND, &ns) || __builtin_add_overflow(ns, fraction, &ns))
        return false;
    *wall_ns = ns;
    return true;
}

struct unit {
    const char *name;
    uint64_t ns;
};
/* "ms" before "m": the longer name wins. Both code points that look like a micro sign are in use. */
static const struct unit units[] = {
    {"ns", 1},
    {"us", 1000},
    {"\xc2\xb5s", 1000},
    {"\xce\xbcs", 1000},
    {"ms", (uint64_t)CLOCK_MS},
    {"s", (uint64_t)CLOCK_SECOND},
    {"m", 60 * (uint64_t)CLOCK_SECOND},
    {"h", 3600 * (uint64_t)CLOCK_SECOND},
};

static const struct unit *take_unit(const char **text)
{
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t len = strlen(units[i].name);
        if (strncmp(*text, units[i].name, len) == 0) {
            *text += len;
            return &units[i];
        }
    }
    return NULL;
}

/* One "1.5h" of a duration, added to *total (a magnitude). */
static bool take_part(const char **text, uint64_t *total)
{
    const char *p = *text;
    uint64_t whole = 0;
    bool digits = false;
    for (; *p >= '0' && *p <= '9'; p++, digits = true) {
        if (__builtin_mul_overflow(whole, (uint64_t)10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    }
    const char *fraction = NULL;
    if (*p == '.') {
        fraction = ++p;
        for (; *p >= '0' && *p <= '9'; p++)
            digits = true;
    }
    const char *fraction_end = p;
    const struct unit *unit = digits ? take_unit(&p) : NULL;
    if (unit == NULL || __builtin_mul_overflow(whole, unit->ns, &whole))
        return false;
    /* each digit of the fraction as an exact integer: unit->ns * digit / 10^position; 10^14 exceeds every unit */
    uint64_t divisor = 10;
    uint64_t part = 0;
    for (; fraction != NULL && fraction < fraction_end && divisor <= 100000000000000ULL; fraction++, divisor *= 10)
        part = part * 10 + (uint64_t)(*fraction - '0');
    uint64_t rest = divisor > 10 ? (uint64_t)((unsigned __int128)part * unit->ns / (divisor / 10)) : 0;
    *text = p;
    return !__builtin_add_overflow(whole, rest, &whole) && !__builtin_add_overflow(*total, whole, total);
}

bool clock_parse_duration(const char *text, int64_t *ns)
{
    if (text == NULL)
        return false;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    uint64_t total = 0;
    if (strcmp(text, "0") == 0) {
        *ns = 0;
        return true;
    }
    if (*text == '\0')
        return false;
    while (*text != '\0') {
        if (!take_part(&text, &total) || total > (uint64_t)INT64_MAX + (negative ? 1 : 0))
            return false;
    }
    *ns = negative ? (int64_t)(~total + 1) : (int64_t)total;
    return true;
}

/* value / unit as a decimal without trailing zeros; `unit` is 10^3, 10^6 or 10^9 */
static void format_decimal(char *out, size_t size, uint64_t value, uint64_t unit, const char *suffix)
{
    char fraction[12];
    unsigned billionths = (unsigned)(value % unit * ((uint64_t)CLOCK_SECOND / unit));
    size_t digits = (size_t)snprintf(fraction, sizeof(fraction), "%09u", billionths);
    while (digits > 0 && fraction[digits - 1] == '0')
        digits--;
    fraction[digits] = '\0';
    snprintf(out, size, "%" PRIu64 "%s%s%s", value / unit, digits > 0 ? "." : "", fraction, suffix);
}

char *clock_format_duration(int64_t ns, char buffer[CLOCK_TEXT_SIZE])
{
    uint64_t value = ns < 0 ? ~(uint64_t)ns + 1 : (uint64_t)ns;
    char *out = buffer;
    size_t size = CLOCK_TEXT_SIZE;
    if (ns < 0) {
        *out++ = '-';
        size--;
    }
    if (value == 0) {
        snprintf(out, size, "0s");
    } else if (value < 1000) {
        snprintf(out, size, "%" PRIu64 "ns", value);
    } else if (value < (uint64_t)CLOCK_MS) {
        format_decimal(out, size, value, 1000, "\xc2\xb5s");
    } else if (value < (uint64_t)CLOCK_SECOND) {
        format_decimal(out, size, value, (uint64_t)CLOCK_MS, "ms");
    } else {
        uint64_t minute = 60 * (uint64_t)CLOCK_SECOND;
        uint64_t minutes = value / minute;
        int len = 0;
        if (minutes >= 60)
            len = snprintf(out, size, "%" PRIu64 "h%" PRIu64 "m", minutes / 60, minutes % 60);
        else if (minutes > 0)
            len = snprintf(out, size, "%" PRIu64 "m", minutes);
        format_decimal(out + len, size - (size_t)len, value % minute, (uint64_t)CLOCK_SECOND, "s");
    }
    return buffer;
}
