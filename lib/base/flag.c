/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/flag.h"

#include "lib/base/clock.h"
#include "lib/base/flag_table.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <limits.h>
#include <math.h>

const struct flag flag_builtins[] = {
    {.name = "help", .type = FLAG_BOOL, .group = "Global", .short_name = 'h', .help = "Print this help and exit."},
    {.name = "help-markdown",
     .type = FLAG_BOOL,
     .group = "Global",
     .help = "Print the flags as Markdown tables and exit.",
     .hidden = true},
    {.name = "version", .type = FLAG_BOOL, .group = "Global", .help = "Print the version and exit."},
};
const size_t flag_builtin_count = ARRAY_LEN(flag_builtins);

bool flag_name_is(const char *name, size_t len, const char *other)
{
    for (size_t i = 0; i < len; i++) {
        char a = name[i] == '_' ? '-' : name[i];
        char b = other[i] == '_' ? '-' : other[i];
        if (a != b || b == '\0')
            return false;
    }
    return other[len] == '\0';
}

bool flag_stands_alone(const struct flag *flag)
{
    return flag->type == FLAG_BOOL || flag->type == FLAG_IGNORED_BOOL;
}

static const struct flag *find(const struct flag *flags, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (flag_name_is(name, len, flags[i].name) ||
            (len == 1 && flags[i].short_name != '\0' && name[0] == flags[i].short_name))
            return &flags[i];
    }
    return NULL;
}

static void consider(const struct flag *flags, size_t count, const char *name, const char **best, size_t *distance)
{
    for (size_t i = 0; i < count; i++) {
        if (flags[i].hidden)
            continue;
        size_t d = str_distance(name, flags[i].name);
        if (d < *distance) {
            *distance = d;
            *best = flags[i].name;
        }
    }
}

const char *flag_nearest(const struct flag_program *program, const char *name)
{
    if (strlen(name) > 100) /* no typing error, and the distance takes time by the product of the lengths */
        return NULL;
    auto_free char *dashed = mem_strdup(name);
    for (char *p = dashed; *p != '\0'; p++) {
        if (*p == '_')
            *p = '-';
    }
    const char *best = NULL;
    size_t distance = strlen(name) / 3 + 2; /* more than a third wrong is another word */
    consider(program->flags, program->count, dashed, &best, &distance);
    consider(flag_builtins, flag_builtin_count, dashed, &best, &distance);
    return best;
}

static bool parse_bool(const char *text, bool *value)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (str_eq(text, yes[i]) || str_eq(text, no[i])) {
            *value = str_eq(text, yes[i]);
            return true;
        }
    }
    return false;
}

static bool parse_double(const char *text, double *value)
{
    char *end = NULL;
    double parsed_value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(parsed_value))
        return false;
    *value = parsed_value;
    return true;
}

/* Stores one value; `value` must live as long as the options when it is a string. */
static int store(const struct flag *flag, void *options, const char *value, struct err *err)
{
    void *field = (char *)options + flag->offset;
    bool fine = true;
    const char *expected = "";
    switch (flag->type) {
    case FLAG_BOOL:
        fine = parse_bool(value, field);
        expected = "neither true nor false";
        break;
    case FLAG_INT:
        fine = str_parse_i64(value, field);
        expected = "not a whole number";
        break;
    case FLAG_DOUBLE:
        fine = parse_double(value, field);
        expected = "not a number";
        break;
    case FLAG_DURATION:
        fine = clock_parse_duration(value, field);
        expected = "not a duration such as 15s, 1h30m or 500ms";
        break;
    case FLAG_STRING:
        *(const char **)field = value;
        break;
    case FLAG_LIST:
        strv_add(field, value);
        break;
    case FLAG_IGNORED:
    case FLAG_IGNORED_BOOL:
        break;
    }
    if (!fine)
        return err_set(err, ERR_INVALID, "invalid value \"%s\" for --%s: %s", value, flag->name, expected);
    return 0;
}

static void store_default(const struct flag *flag, void *options)
{
    void *field = (char *)options + flag->offset;
    static const char *const empty[] = {
        [FLAG_BOOL] = "false", [FLAG_INT] = "0", [FLAG_DOUBLE] = "0", [FLAG_DURATION] = "0", [FLAG_STRING] = "",
    };
    if (flag->type == FLAG_IGNORED || flag->type == FLAG_IGNORED_BOOL)
        return;
    if (flag->type == FLAG_LIST) {
        *(struct strv *)field = (struct strv){0};
        if (flag->default_value == NULL)
            return;
    }
    auto_err struct err err = {0};
    const char *value = flag->default_value != NULL ? flag->default_value : empty[flag->type];
    if (store(flag, options, value, &err) != 0) {
        fprintf(stderr, "bad default in the table of flags: %s\n", err_text(&err));
        abort(); /* a table that no test ran */
    }
}

static int unknown(const struct flag_program *program, const char *name, struct err *err)
{
    const char *nearest = flag_nearest(program, name);
    if (nearest == NULL)
        return err_set(err, ERR_INVALID, "unknown flag: --%s", name);
    return err_set(err, ERR_INVALID, "unknown flag: --%s (did you mean --%s?)", name, nearest);
}

/* The state of one run over argv. */
struct parser {
    const struct flag_program *program;
    void *options;
    char **argv;
    int argc;
    int at;    /* the argument in hand */
    bool *set; /* which flags of the program were named */
};

/* The text after -x of "-x5": only for numbers, so that a misspelled long flag with one dash is not taken for it. */
static const struct flag *find_glued(const struct flag_program *program, const char *name, const char **value)
{
    const struct flag *flag = find(program->flags, program->count, name, 1);
    int64_t number = 0;
    if (flag == NULL || flag->type != FLAG_INT || !str_parse_i64(name + 1, &number))
        return NULL;
    *value = name + 1;
    return flag;
}

static bool looks_like_value(const char *arg)
{
    return arg != NULL && (arg[0] != '-' || (arg[1] >= '0' && arg[1] <= '9') || arg[1] == '\0');
}

/* Finds the value that belongs to the flag in hand: after '=', or the next argument. */
static int take_value(struct parser *parser, const struct flag *flag, const char **value, struct err *err)
{
    if (*value != NULL)
        return 0;
    const char *next = parser->at + 1 < parser->argc ? parser->argv[parser->at + 1] : NULL;
    if (flag_stands_alone(flag)) {
        *value = "true";
    } else if (flag->type == FLAG_IGNORED) {
        *value = "";
        if (looks_like_value(next))
            parser->at++;
    } else {
        if (next == NULL)
            return err_set(err, ERR_INVALID, "--%s needs a value", flag->name);
        *value = next;
        parser->at++;
    }
    return 0;
}

static int set_parsed(const struct parser *parser, const struct flag *flag, const char *value, struct err *err)
{
    bool *set = &parser->set[flag - parser->program->flags];
    if (flag->type == FLAG_LIST && !*set) /* what the user names takes the place of the default */
        strv_free((struct strv *)(void *)((char *)parser->options + flag->offset));
    *set = true;
    return store(flag, parser->options, value, err);
}

static enum flag_result serve_builtin(const struct flag_program *program, const char *name)
{
    if (str_eq(name, "version"))
        printf("%s %s (%s)\n", program->name, berth_version(), berth_revision());
    else if (str_eq(name, "help"))
        flag_print_help(program, stdout);
    else
        flag_print_markdown(program, stdout);
    fflush(stdout);
    return FLAG_EXIT;
}

/* One argument that starts with a dash. */
static enum flag_result parse_flag(struct parser *parser, struct err *err)
{
    const struct flag_program *program = parser->program;
    const char *arg = parser->argv[parser->at];
    const char *name = arg + (arg[1] == '-' ? 2 : 1);
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    const struct flag *flag = find(program->flags, program->count, name, len);
    const struct flag *builtin = flag == NULL ? find(flag_builtins, flag_builtin_count, name, len) : NULL;
    if (builtin != NULL) {
        bool wanted = true;
        if (value != NULL && !parse_bool(value, &wanted)) {
            err_set(err, ERR_INVALID, "invalid value \"%s\" for --%s: neither true nor false", value, builtin->name);
            return FLAG_USAGE;
        }
        return wanted ? serve_builtin(program, builtin->name) : FLAG_OK;
    }
    if (flag == NULL && arg[1] != '-' && len > 1)
        flag = find_glued(program, name, &value);
    if (flag == NULL) {
        auto_free char *only_name = mem_strndup(name, len);
        unknown(program, only_name, err);
        return FLAG_USAGE;
    }
    if (take_value(parser, flag, &value, err) != 0 || set_parsed(parser, flag, value, err) != 0)
        return FLAG_USAGE;
    return FLAG_OK;
}

static enum flag_result parse_rest(const char *arg, struct strv *rest, struct err *err)
{
    if (rest != NULL) {
        strv_add(rest, arg);
        return FLAG_OK;
    }
    bool ignored = false;
    const char *hint = parse_bool(arg, &ignored) ? " (a boolean flag takes its value as --name=value)" : "";
    err_set(err, ERR_INVALID, "unexpected argument: \"%s\"%s", arg, hint);
    return FLAG_USAGE;
}

static enum flag_result parse_all(struct parser *parser, struct strv *rest, struct err *err)
{
    bool only_rest = false;
    for (parser->at = 1; parser->at < parser->argc; parser->at++) {
        const char *arg = parser->argv[parser->at];
        enum flag_result result = FLAG_OK;
        if (only_rest || arg[0] != '-' || arg[1] == '\0')
            result = parse_rest(arg, rest, err);
        else if (str_eq(arg, "--"))
            only_rest = true;
        else
            result = parse_flag(parser, err);
        if (result != FLAG_OK)
            return result;
    }
    return FLAG_OK;
}

static void log_ignored(const struct parser *parser)
{
    for (size_t i = 0; i < parser->program->count; i++) {
        const struct flag *flag = &parser->program->flags[i];
        if (parser->set[i] && (flag->type == FLAG_IGNORED || flag->type == FLAG_IGNORED_BOOL))
            log_warn("Flag has no effect", kv_str("flag", flag->name), kv_str("reason", flag->help));
    }
}

/* Of a program with LOG_FLAGS; others log as text. */
static int set_up_log(const struct flag_program *program, const void *options, struct err *err)
{
    const struct flag *flag = find(program->flags, program->count, "logging-format", strlen("logging-format"));
    if (flag == NULL)
        return 0;
    const char *at = (const char *)options + flag->offset - offsetof(struct flag_log, format);
    const struct flag_log *log = (const struct flag_log *)(const void *)at;
    struct log_options wanted = {.vmodule = log->vmodule};
    if (log->verbosity < INT_MIN || log->verbosity > INT_MAX)
        return err_set(err, ERR_INVALID, "invalid value \"%lld\" for --v: out of range", (long long)log->verbosity);
    wanted.verbosity = (int)log->verbosity;
    if (str_eq(log->format, "json"))
        wanted.format = LOG_FORMAT_JSON;
    else if (!str_empty(log->format) && !str_eq(log->format, "text"))
        return err_set(err, ERR_INVALID, "invalid value \"%s\" for --logging-format: use text or json", log->format);
    return log_setup(&wanted, err);
}

enum flag_result flag_parse(const struct flag_program *program, int argc, char **argv, void *options, struct strv *rest)
{
    /* hidden ones first: an old name of a flag shares its field, and the default of the new name counts */
    for (int hidden = 1; hidden >= 0; hidden--) {
        for (size_t i = 0; i < program->count; i++) {
            if (program->flags[i].hidden == (hidden == 1))
                store_default(&program->flags[i], options);
        }
    }
    auto_err struct err err = {0};
    auto_free bool *set = mem_calloc(program->count, sizeof(*set));
    struct parser parser = {.program = program, .options = options, .argv = argv, .argc = argc, .set = set};
    enum flag_result result = parse_all(&parser, rest, &err);
    if (result == FLAG_OK && set_up_log(program, options, &err) != 0)
        result = FLAG_USAGE;
    if (result == FLAG_USAGE)
        fprintf(stderr, "%s\nsee '%s --help'\n", err_text(&err), program->name);
    if (result == FLAG_OK)
        log_ignored(&parser);
    return result;
}

void flag_free(const struct flag_program *program, void *options)
{
    for (size_t i = 0; i < program->count; i++) {
        if (program->flags[i].type == FLAG_LIST)
            strv_free((struct strv *)(void *)((char *)options + program->flags[i].offset));
    }
}
