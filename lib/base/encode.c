/* SPDX-License-Identifier: Apache-2.0 */
/* The hashes and encodings of str.h. */
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <limits.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#define FNV_OFFSET 2166136261U
#define FNV_PRIME 16777619U

uint32_t str_fnv1(const char *text)
{
    uint32_t hash = FNV_OFFSET;
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++)
        hash = (hash * FNV_PRIME) ^ *p;
    return hash;
}

uint32_t str_fnv1a(const char *text)
{
    uint32_t hash = FNV_OFFSET;
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++)
        hash = (hash ^ *p) * FNV_PRIME;
    return hash;
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *str_base64_encode(const void *data, size_t len)
{
    const unsigned char *in = data;
    char *out = mem_realloc_array(NULL, (len + 2) / 3 * 4 + 1, 1);
    char *p = out;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        unsigned group = (unsigned)in[i] << 16;
        if (left > 1)
            group |= (unsigned)in[i + 1] << 8;
        if (left > 2)
            group |= in[i + 2];
        *p++ = alphabet[group >> 18];
        *p++ = alphabet[(group >> 12) & 63];
        *p++ = '=';
        *p++ = '=';
        if (left > 1)
            p[-2] = alphabet[(group >> 6) & 63];
        if (left > 2)
            p[-1] = alphabet[group & 63];
    }
    *p = '\0';
    return out;
}

/* The value of a character, or 64 for one outside of the alphabet. */
static unsigned sextet(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (unsigned)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (unsigned)(c - 'a') + 26;
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0') + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : 64;
}

unsigned char *str_base64_decode(const char *text, size_t len, size_t *decoded_len)
{
    if (len % 4 != 0)
        return NULL;
    size_t padding = 0;
    if (len > 0 && text[len - 1] == '=')
        padding = text[len - 2] == '=' ? 2 : 1;
    auto_free unsigned char *out = mem_alloc(len / 4 * 3 + 1);
    size_t out_len = 0;
    unsigned bits = 0;
    unsigned bit_count = 0;
    for (size_t i = 0; i < len - padding; i++) {
        unsigned value = sextet(text[i]);
        if (value > 63)
            return NULL;
        bits = ((bits << 6) | value) & 0xffffU;
        bit_count += 6;
        if (bit_count >= 8) {
            bit_count -= 8;
            out[out_len++] = (unsigned char)(bits >> bit_count);
        }
    }
    out[out_len] = '\0';
    if (decoded_len != NULL)
        *decoded_len = out_len;
    return mem_take(out);
}

char *str_sha256_hex(const void *data, size_t len)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    unsigned digest_len = 0;
    if (EVP_Digest(len > 0 ? data : "", len, digest, &digest_len, EVP_sha256(), NULL) != 1)
        abort(); /* SHA-256 is always there; without it no name could be computed */
    char *hex = mem_alloc(2 * sizeof(digest) + 1);
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof(digest); i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * sizeof(digest)] = '\0';
    return hex;
}
