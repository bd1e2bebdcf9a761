/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/str.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <stdio.h>

void str_free(struct str *str)
{
    if (str == NULL)
        return;
    free(str->data);
    *str = (struct str){0};
}

void str_reserve(struct str *str, size_t extra)
{
    size_t needed = 0;
    if (__builtin_add_overflow(str->len, extra, &needed) || __builtin_add_overflow(needed, (size_t)1, &needed))
        needed = SIZE_MAX; /* fails below as any impossible request does */
    if (needed <= str->cap)
        return;
    /* half as much again keeps appending linear and wastes less than doubling */
    size_t cap = str->cap + str->cap / 2;
    if (cap < needed)
        cap = needed;
    if (cap < 32)
        cap = 32;
    str->data = mem_realloc_array(str->data, cap, 1);
    str->cap = cap;
    str->data[str->len] = '\0';
}

void str_add_len(struct str *str, const void *data, size_t len)
{
    str_reserve(str, len);
    if (len > 0)
        memcpy(str->data + str->len, data, len);
    str->len += len;
    str->data[str->len] = '\0';
}

void str_add(struct str *str, const char *text)
{
    if (text != NULL)
        str_add_len(str, text, strlen(text));
}

void str_add_char(struct str *str, char c)
{
    str_add_len(str, &c, 1);
}

void str_vaddf(struct str *str, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    size_t room = str->cap - str->len;
    /* the analyzer loses sight of va_start when it looks into str_addf */
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized)
    int len = vsnprintf(room > 0 ? str->data + str->len : NULL, room, format, args);
    if (len > 0 && (size_t)len >= room) {
        str_reserve(str, (size_t)len);
        len = vsnprintf(str->data + str->len, (size_t)len + 1, format, again);
    }
    va_end(again);
    if (len > 0)
        str->len += (size_t)len;
    else
        str_add_len(str, "", 0);
}

void str_addf(struct str *str, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    str_vaddf(str, format, args);
    va_end(args);
}

void str_reset(struct str *str)
{
    str->len = 0;
    if (str->data != NULL)
        str->data[0] = '\0';
}

void str_consume(struct str *str, size_t n)
{
    if (n >= str->len) {
        str_reset(str);
        return;
    }
    if (n == 0)
        return;
    str->len -= n;
    memmove(str->data, str->data + n, str->len + 1);
}

char *str_take(struct str *str)
{
    char *data = str->data != NULL ? str->data : mem_strdup("");
    *str = (struct str){0};
    return data;
}

const char *str_text(const struct str *str)
{
    return str->data != NULL ? str->data : "";
}

bool str_starts(const char *text, const char *prefix)
{
    return text != NULL && prefix != NULL && strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *text, const char *suffix)
{
    if (text == NULL || suffix == NULL)
        return false;
    size_t text_len = strlen(text);
    size_t suffix_len = strlen(suffix);
    return text_len >= suffix_len && memcmp(text + text_len - suffix_len, suffix, suffix_len) == 0;
}

bool str_parse_u64(const char *text, uint64_t *value)
{
    if (str_empty(text))
        return false;
    uint64_t result = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(result, (uint64_t)10, &result) ||
            __builtin_add_overflow(result, (uint64_t)(*p - '0'), &result))
            return false;
    }
    *value = result;
    return true;
}

bool str_parse_i64(const char *text, int64_t *value)
{
    if (str_empty(text))
        return false;
    bool negative = *text == '-';
    uint64_t magnitude = 0;
    if (!str_parse_u64(text + (negative ? 1 : 0), &magnitude))
        return false;
    if (magnitude > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return false;
    /* negated unsigned, since -INT64_MIN has no int64_t */
    *value = negative ? (int64_t)(~magnitude + 1) : (int64_t)magnitude;
    return true;
}

/* Length of the UTF-8 sequence that a lead byte starts, and the range its second byte must be in: that range is what
 * excludes overlong forms, surrogates and code points above U+10FFFF. 0 for a byte that starts nothing. */
static size_t utf8_lead(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef) {
        if (lead == 0xe0)
            *low = 0xa0;
        if (lead == 0xed)
            *high = 0x9f;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        if (lead == 0xf0)
            *low = 0x90;
        if (lead == 0xf4)
            *high = 0x8f;
        return 4;
    }
    return 0;
}

size_t str_utf8_sequence(const char *text, size_t len)
{
    const unsigned char *bytes = (const unsigned char *)text;
    unsigned char low = 0;
    unsigned char high = 0;
    if (len == 0 || bytes[0] == 0)
        return 0;
    size_t sequence = utf8_lead(bytes[0], &low, &high);
    if (sequence > len)
        return 0;
    for (size_t i = 1; i < sequence; i++) {
        if (bytes[i] < low || bytes[i] > high)
            return 0;
        low = 0x80;
        high = 0xbf;
    }
    return sequence;
}

bool str_is_utf8(const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t sequence = str_utf8_sequence(text + i, len - i);
        if (sequence == 0)
            return false;
        i += sequence;
    }
    return true;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Optimal string alignment: three rows of the table are enough, as a swap looks back two rows. */
size_t str_distance(const char *a, const char *b)
{
    size_t a_len = strlen(a);
    size_t b_len = strlen(b);
    size_t width = b_len + 1;
    auto_free size_t *rows = mem_calloc(3 * width, sizeof(*rows));
    size_t *before = rows;
    size_t *previous = rows + width;
    size_t *current = rows + 2 * width;
    for (size_t j = 0; j < width; j++)
        current[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *oldest = before;
        before = previous;
        previous = current;
        current = oldest;
        current[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            current[j] = min3(previous[j] + 1, current[j - 1] + 1, replace);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < current[j])
                current[j] = before[j - 2] + 1;
        }
    }
    return current[b_len];
}
