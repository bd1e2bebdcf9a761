/* SPDX-License-Identifier: Apache-2.0 */
/* Growable string buffer, list of strings, and the few string helpers that more than one module needs. */
#ifndef BERTH_BASE_STR_H
#define BERTH_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A buffer that is always NUL-terminated once something was added. `struct str s = {0};` is an empty one. */
struct str {
    char *data; /* owned; NULL while nothing was added */
    size_t len;
    size_t cap;
};
void str_free(struct str *str);
#define auto_str __attribute__((cleanup(str_free)))
void str_add(struct str *str, const char *text);
void str_add_len(struct str *str, const void *data, size_t len);
void str_add_char(struct str *str, char c);
void str_addf(struct str *str, const char *format, ...) __attribute__((format(printf, 2, 3)));
void str_vaddf(struct str *str, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void str_reserve(struct str *str, size_t extra);
void str_reset(struct str *str);             /* len = 0, memory kept */
void str_consume(struct str *str, size_t n); /* drops the first n bytes */
char *str_take(struct str *str);             /* the text ("" when empty), owned by the caller; str becomes empty */
const char *str_text(const struct str *str); /* never NULL */

/* A list of owned strings. */
struct strv {
    char **items;
    size_t len;
    size_t cap;
};
void strv_free(struct strv *list);
#define auto_strv __attribute__((cleanup(strv_free)))
void strv_add(struct strv *list, const char *text); /* copies */
void strv_add_take(struct strv *list, char *text);  /* takes ownership */
bool strv_contains(const struct strv *list, const char *text);
bool strv_remove(struct strv *list, const char *text); /* keeps the order of the others; true when it was there */
void strv_sort(struct strv *list);
char *strv_join(const struct strv *list, const char *separator);
void strv_split(struct strv *list, const char *text, char separator); /* adds the parts, empty ones too */
void strv_copy(struct strv *to, const struct strv *from);

static inline bool str_eq(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}
static inline bool str_empty(const char *text)
{
    return text == NULL || *text == '\0';
}
bool str_starts(const char *text, const char *prefix);
bool str_ends(const char *text, const char *suffix);
/* Whole decimal numbers; false on anything else, also on overflow. */
bool str_parse_u64(const char *text, uint64_t *value);
bool str_parse_i64(const char *text, int64_t *value);
/* Adds the shortest decimal that reads back as the same number, in the form Go programs and Prometheus print: 0.005,
 * 1e-08, 1e+06, +Inf, NaN. */
void str_add_double(struct str *str, double value);
/* Valid UTF-8 without NUL (proto3 strings must be). */
bool str_is_utf8(const char *text, size_t len);
/* Length of the valid UTF-8 sequence at the start of a text; 0 when there is none (also at its end and at a NUL). */
size_t str_utf8_sequence(const char *text, size_t len);
/* Edit distance (insert, delete, replace, swap of neighbours), for "did you mean". */
size_t str_distance(const char *a, const char *b);

/* FNV hashes, 32 bit. fnv1 multiplies then xors, fnv1a the other way round: both are part of formats users see. */
uint32_t str_fnv1(const char *text);
uint32_t str_fnv1a(const char *text);
/* Base64 of the standard alphabet with padding; decode returns NULL on bad input. The result is owned by the caller and
 * NUL-terminated for convenience. */
char *str_base64_encode(const void *data, size_t len);
unsigned char *str_base64_decode(const char *text, size_t len, size_t *decoded_len);
char *str_sha256_hex(const void *data, size_t len);

#endif
