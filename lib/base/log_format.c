/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log_format.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>

#define VALUE_LIMIT ((size_t)16 * 1024)

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static unsigned code_point(const char *text, size_t sequence)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (sequence == 1)
        return bytes[0];
    unsigned value = bytes[0] & (0xffU >> (sequence + 1));
    for (size_t i = 1; i < sequence; i++)
        value = (value << 6) | (bytes[i] & 0x3fU);
    return value;
}

/* Characters that a terminal would obey rather than show: they could forge or hide log lines. */
static bool is_control(unsigned c)
{
    static const struct {
        unsigned first;
        unsigned last;
    } ranges[] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xe0000, 0xe007f},
    };
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    }
    return false;
}

/* Adds one character (or one byte that is none) in the escapes of Go's and of JSON's strings. */
static void add_escaped(struct str *out, const char *text, size_t sequence, bool json)
{
    if (sequence == 0) {
        if (json)
            str_add(out, "\\ufffd");
        else
            str_addf(out, "\\x%02x", (unsigned char)*text);
        return;
    }
    unsigned c = code_point(text, sequence);
    static const char short_escapes[] = "\nn\rr\tt\"\"\\\\";
    for (const char *p = short_escapes; *p != '\0'; p += 2) {
        if (c == (unsigned)*p) {
            str_add_char(out, '\\');
            str_add_char(out, p[1]);
            return;
        }
    }
    if (!is_control(c))
        str_add_len(out, text, sequence);
    else if (c < 0x80 && !json)
        str_addf(out, "\\x%02x", c);
    else if (c < 0x10000)
        str_addf(out, "\\u%04x", c);
    else if (!json)
        str_addf(out, "\\U%08x", c);
    else
        str_addf(out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
}

static void add_quoted(struct str *out, const char *text, bool json)
{
    size_t len = strnlen(text, VALUE_LIMIT + 1);
    bool cut = len > VALUE_LIMIT;
    if (cut) { /* before the character that would be torn apart */
        len = VALUE_LIMIT;
        while (len > VALUE_LIMIT - 4 && ((unsigned char)text[len] & 0xc0) == 0x80)
            len--;
    }
    str_add_char(out, '"');
    for (size_t i = 0; i < len;) {
        size_t sequence = str_utf8_sequence(text + i, len - i);
        add_escaped(out, text + i, sequence, json);
        i += sequence > 0 ? sequence : 1;
    }
    str_add(out, cut ? "...\"" : "\"");
}

static void add_value(struct str *out, const struct log_kv *pair, bool json)
{
    char buffer[CLOCK_TEXT_SIZE];
    switch (pair->type) {
    case LOG_KV_STRING:
        add_quoted(out, pair->value.string != NULL ? pair->value.string : "", json);
        return;
    case LOG_KV_INT:
        str_addf(out, "%" PRId64, pair->value.integer);
        return;
    case LOG_KV_UINT:
        str_addf(out, "%" PRIu64, pair->value.uinteger);
        return;
    case LOG_KV_BOOL:
        str_add(out, pair->value.boolean ? "true" : "false");
        return;
    case LOG_KV_DURATION:
        add_quoted(out, clock_format_duration(pair->value.integer, buffer), json);
        return;
    case LOG_KV_DOUBLE:
        if (json && !isfinite(pair->value.real)) { /* JSON has no such numbers */
            str_add_char(out, '"');
            str_add_double(out, pair->value.real);
            str_add_char(out, '"');
        } else {
            str_add_double(out, pair->value.real);
        }
        return;
    }
}

static char level_letter(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_ERROR:
        return 'E';
    case LOG_LEVEL_WARNING:
        return 'W';
    case LOG_LEVEL_INFO:
        break;
    }
    return 'I';
}

void log_format_text(struct str *out, const struct log_record *record)
{
    time_t seconds = (time_t)(record->wall_ns / CLOCK_SECOND);
    struct tm tm;
    localtime_r(&seconds, &tm);
    str_addf(out, "%c%02d%02d %02d:%02d:%02d.%06d %7d %s:%d] ", level_letter(record->level), tm.tm_mon + 1, tm.tm_mday,
             tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(record->wall_ns % CLOCK_SECOND / 1000), record->pid,
             base_name(record->file), record->line);
    add_quoted(out, record->message, false);
    for (const struct log_kv *pair = record->pairs; pair->key != NULL; pair++) {
        str_addf(out, " %s=", pair->key);
        add_value(out, pair, false);
    }
    str_add_char(out, '\n');
}

void log_format_json(struct str *out, const struct log_record *record)
{
    str_addf(out, "{\"ts\":%" PRId64 ".%03d,\"caller\":", record->wall_ns / CLOCK_MS,
             (int)(record->wall_ns % CLOCK_MS / 1000));
    auto_str struct str caller = {0};
    str_addf(&caller, "%s:%d", base_name(record->file), record->line);
    add_quoted(out, caller.data, true);
    str_add(out, ",\"msg\":");
    add_quoted(out, record->message, true);
    if (record->level != LOG_LEVEL_ERROR) /* errors are told by its absence */
        str_addf(out, ",\"v\":%d", record->verbosity);
    if (record->level == LOG_LEVEL_WARNING)
        str_add(out, ",\"severity\":\"warning\"");
    for (const struct log_kv *pair = record->pairs; pair->key != NULL; pair++) {
        str_add_char(out, ',');
        add_quoted(out, pair->key, true);
        str_add_char(out, ':');
        add_value(out, pair, true);
    }
    str_add(out, "}\n");
}
