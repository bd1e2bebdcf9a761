/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging as Kubernetes programs do it: klog's text form
 *     I1129 19:21:23.123456   12345 claim.c:120] "Bound claim" claim="default/data" volume="pv-1"
 * or one JSON object a line (--logging-format=json). Messages are fixed phrases starting with a capital; what varies
 * goes into key/value pairs. Secrets are never passed here. Values are quoted and escaped, long ones cut at 16 KiB.
 */
#ifndef BERTH_BASE_LOG_H
#define BERTH_BASE_LOG_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

enum log_kv_type { LOG_KV_STRING, LOG_KV_INT, LOG_KV_UINT, LOG_KV_BOOL, LOG_KV_DOUBLE, LOG_KV_DURATION };
struct log_kv {
    const char *key;
    enum log_kv_type type;
    union {
        const char *string;
        int64_t integer;
        uint64_t uinteger;
        double real;
        bool boolean;
    } value;
};
static inline struct log_kv kv_str(const char *key, const char *value)
{
    return (struct log_kv){.key = key, .type = LOG_KV_STRING, .value = {.string = value ? value : ""}};
}
static inline struct log_kv kv_int(const char *key, int64_t value)
{
    return (struct log_kv){.key = key, .type = LOG_KV_INT, .value = {.integer = value}};
}
static inline struct log_kv kv_uint(const char *key, uint64_t value)
{
    return (struct log_kv){.key = key, .type = LOG_KV_UINT, .value = {.uinteger = value}};
}
static inline struct log_kv kv_bool(const char *key, bool value)
{
    return (struct log_kv){.key = key, .type = LOG_KV_BOOL, .value = {.boolean = value}};
}
static inline struct log_kv kv_double(const char *key, double value)
{
    return (struct log_kv){.key = key, .type = LOG_KV_DOUBLE, .value = {.real = value}};
}
static inline struct log_kv kv_duration(const char *key, int64_t ns) /* printed as "1.5s" */
{
    return (struct log_kv){.key = key, .type = LOG_KV_DURATION, .value = {.integer = ns}};
}
static inline struct log_kv kv_err(const struct err *err) /* key "err" */
{
    return kv_str("err", err_text(err));
}

/* log_info("Bound claim", kv_str("claim", key), kv_int("tries", n)); pairs may be left out. */
#define log_info(...) LOG_AT_(LOG_LEVEL_INFO, __VA_ARGS__, (struct log_kv){.key = NULL})
#define log_warn(...) LOG_AT_(LOG_LEVEL_WARNING, __VA_ARGS__, (struct log_kv){.key = NULL})
#define log_error(...) LOG_AT_(LOG_LEVEL_ERROR, __VA_ARGS__, (struct log_kv){.key = NULL})
/* Only when the verbosity of this source file (-v, --vmodule) is at least `verbosity`; arguments are not evaluated
 * else. */
#define log_v(verbosity, ...)                                                                                          \
    do {                                                                                                               \
        if (log_enabled((verbosity), __FILE__))                                                                        \
            LOG_V_((verbosity), __VA_ARGS__, (struct log_kv){.key = NULL});                                            \
    } while (0)
#define LOG_AT_(level, message, ...)                                                                                   \
    log_write((level), __FILE__, __LINE__, (message), (const struct log_kv[]){__VA_ARGS__})
#define LOG_V_(verbosity, message, ...)                                                                                \
    log_write_v((verbosity), __FILE__, __LINE__, (message), (const struct log_kv[]){__VA_ARGS__})

bool log_enabled(int verbosity, const char *file);
void log_write(enum log_level level, const char *file, int line, const char *message, const struct log_kv *pairs);
/* An info line that names its verbosity in the JSON form. */
void log_write_v(int verbosity, const char *file, int line, const char *message, const struct log_kv *pairs);

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
struct log_options {
    int verbosity;       /* -v */
    const char *vmodule; /* "claim=4,client=6": file name patterns without ".c"; NULL or "" for none */
    enum log_format format;
};
/* Once, at the start of main. Fails on a malformed vmodule. Logs go to stderr, one write(2) a line. */
int log_setup(const struct log_options *options, struct err *err);
/* For tests: lines (each with its newline, and NUL-terminated) go to this function instead of stderr, one at a time;
 * NULL restores. The function must not log. */
void log_set_sink(void (*sink)(void *arg, const char *line, size_t len), void *arg);

#endif
