/* SPDX-License-Identifier: Apache-2.0 */
/* How a log line is written. Part of log.c; nothing else includes it. */
#ifndef BERTH_BASE_LOG_FORMAT_H
#define BERTH_BASE_LOG_FORMAT_H

#include "lib/base/log.h"
#include "lib/base/str.h"

struct log_record {
    enum log_level level;
    int verbosity;
    int64_t wall_ns;
    int pid;
    const char *file; /* any path; its last element is printed */
    int line;
    const char *message;
    const struct log_kv *pairs; /* the last one has no key */
};

/* Both add one line with its newline. */
void log_format_text(struct str *out, const struct log_record *record);
void log_format_json(struct str *out, const struct log_record *record);

#endif
