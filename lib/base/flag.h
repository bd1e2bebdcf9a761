/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines from a table: parsing, --help, the "did you mean" of an unknown flag and the reference in docs/ all
 * come from it. `--name=value`, `--name value`, `-name` (one dash as Go programs accept it); a boolean may stand alone.
 * The last occurrence wins. `_` and `-` are the same in names, as in Kubernetes.
 */
#ifndef BERTH_BASE_FLAG_H
#define BERTH_BASE_FLAG_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum flag_type {
    FLAG_BOOL,         /* bool */
    FLAG_INT,          /* int64_t */
    FLAG_DOUBLE,       /* double */
    FLAG_STRING,       /* const char *: points into argv or at the default */
    FLAG_DURATION,     /* int64_t nanoseconds, Go's syntax */
    FLAG_LIST,         /* struct strv: may be repeated, every occurrence adds one */
    FLAG_IGNORED,      /* accepted with any or no value, does nothing here; help says why. Parsing logs one line. */
    FLAG_IGNORED_BOOL, /* the same for a flag that takes no separate value */
};

struct flag {
    const char *name; /* without dashes */
    enum flag_type type;
    const char *default_value; /* in flag syntax; NULL = false, 0, "" */
    const char *group;         /* heading in --help, e.g. "Leader election" */
    const char *help;          /* one sentence or more; ends with a full stop */
    size_t offset;             /* offsetof(struct options, field): where the value goes; unused for ignored ones */
    char short_name;           /* 'v' for -v, 0 for none */
    bool hidden;               /* deprecated: accepted, not in --help */
};

struct flag_program {
    const char *name;    /* "berth-controller" */
    const char *summary; /* first line of --help */
    const char *usage;   /* e.g. "[flags]" */
    const struct flag *flags;
    size_t count;
};

enum flag_result {
    FLAG_OK,    /* go on */
    FLAG_EXIT,  /* --help, --version or --help-markdown was served on stdout: exit 0 */
    FLAG_USAGE, /* bad command line, explained on stderr with the nearest known flag: exit 2 */
};
/* Sets the defaults in *options, then what argv says, and sets up the log when the program has LOG_FLAGS. Arguments
 * that are no flags go to `rest` (NULL = they are an error). --help, --help-markdown and --version are built in. */
enum flag_result flag_parse(const struct flag_program *program, int argc, char **argv, void *options,
                            struct strv *rest);
void flag_print_help(const struct flag_program *program, FILE *out);
void flag_print_markdown(const struct flag_program *program, FILE *out);
void flag_free(const struct flag_program *program, void *options); /* frees FLAG_LIST values */

/* Go-style feature gates: "A=true,B=false". `known` ends with a NULL name. Unknown gate or bad value: error. */
struct flag_gate {
    const char *name;
    bool value; /* default, then the parsed value */
    bool set;   /* named on the command line */
    char stage; /* 'a' alpha, 'b' beta, 'g' GA: for AllAlpha and AllBeta */
};
int flag_parse_gates(const char *text, struct flag_gate *known, struct err *err);

/* The version of all programs, set by the build: "1.2.3" and the git revision. */
const char *berth_version(void);
const char *berth_revision(void);

/* Logging flags that every program has; put LOG_FLAGS(struct options, log) into the table where options has a member
 * `struct flag_log log`. */
struct flag_log {
    int64_t verbosity;
    const char *vmodule;
    const char *format;
};
#define LOG_FLAGS(options, member)                                                                                     \
    {.name = "v",                                                                                                      \
     .type = FLAG_INT,                                                                                                 \
     .default_value = "0",                                                                                             \
     .group = "Logging",                                                                                               \
     .short_name = 'v',                                                                                                \
     .help = "Number for the log level verbosity.",                                                                    \
     .offset = offsetof(options, member.verbosity)},                                                                   \
        {.name = "vmodule",                                                                                            \
         .type = FLAG_STRING,                                                                                          \
         .group = "Logging",                                                                                           \
         .help = "Comma-separated list of pattern=N settings for the verbosity of single source files.",               \
         .offset = offsetof(options, member.vmodule)},                                                                 \
    {                                                                                                                  \
        .name = "logging-format", .type = FLAG_STRING, .default_value = "text", .group = "Logging",                    \
        .help = "Log format: text or json.", .offset = offsetof(options, member.format)                                \
    }

#endif
