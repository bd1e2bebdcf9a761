/* SPDX-License-Identifier: Apache-2.0 */
/* What flag.h prints: --help and the Markdown reference. */
#include "lib/base/flag_table.h"
#include "lib/base/mem.h"

#define HELP_WIDTH 100
#define HELP_INDENT 16
#define DEFAULT_GROUP "Flags"

static const char *group_of(const struct flag *flag)
{
    return flag->group != NULL ? flag->group : DEFAULT_GROUP;
}

static const char *type_word(const struct flag *flag)
{
    switch (flag->type) {
    case FLAG_INT:
        return "int";
    case FLAG_DOUBLE:
        return "float";
    case FLAG_STRING:
        return "string";
    case FLAG_DURATION:
        return "duration";
    case FLAG_LIST:
        return "string (repeatable)";
    case FLAG_IGNORED:
        return "value";
    case FLAG_BOOL:
    case FLAG_IGNORED_BOOL:
        break;
    }
    return "";
}

static bool is_ignored(const struct flag *flag)
{
    return flag->type == FLAG_IGNORED || flag->type == FLAG_IGNORED_BOOL;
}

/* The default as the user would write it; NULL when it is the empty value of its type. */
static const char *shown_default(const struct flag *flag)
{
    const char *value = flag->default_value;
    if (is_ignored(flag) || str_empty(value))
        return NULL;
    if ((flag->type == FLAG_BOOL && str_eq(value, "false")) || str_eq(value, "0"))
        return NULL;
    return value;
}

static bool is_text(const struct flag *flag)
{
    return flag->type == FLAG_STRING || flag->type == FLAG_LIST;
}

/* Words separated by single spaces, each line indented. */
static void print_wrapped(const char *text, FILE *out)
{
    int column = 0;
    for (const char *word = text; *word != '\0';) {
        size_t len = strcspn(word, " \n");
        if (column > 0 && column + 1 + (int)len > HELP_WIDTH) {
            fputc('\n', out);
            column = 0;
        }
        if (column == 0)
            column = fprintf(out, "%*s", HELP_INDENT, "");
        else
            column += fprintf(out, " ");
        column += fprintf(out, "%.*s", (int)len, word);
        word += len;
        word += strspn(word, " \n");
    }
    fputc('\n', out);
}

static void print_flag_help(const struct flag *flag, FILE *out)
{
    if (flag->short_name != '\0')
        fprintf(out, "  -%c, ", flag->short_name);
    else
        fprintf(out, "      ");
    fprintf(out, "--%s", flag->name);
    const char *word = type_word(flag);
    fprintf(out, "%s%s\n", *word != '\0' ? " " : "", word);

    auto_str struct str text = {0};
    str_addf(&text, "%s%s", is_ignored(flag) ? "Accepted, no effect: " : "", flag->help != NULL ? flag->help : "");
    const char *value = shown_default(flag);
    if (value != NULL)
        str_addf(&text, is_text(flag) ? " (default \"%s\")" : " (default %s)", value);
    print_wrapped(text.data, out);
}

static void print_flag_markdown(const struct flag *flag, FILE *out)
{
    fprintf(out, "| `--%s` | %s | ", flag->name, type_word(flag));
    const char *value = shown_default(flag);
    if (value != NULL)
        fprintf(out, "`%s`", value);
    fprintf(out, " | %s", is_ignored(flag) ? "*No effect.* " : "");
    for (const char *p = flag->help != NULL ? flag->help : ""; *p != '\0'; p++) {
        if (*p == '|' || *p == '<')
            fputc('\\', out);
        fputc(*p == '\n' ? ' ' : *p, out);
    }
    fputs(" |\n", out);
}

struct writer {
    void (*begin)(const char *group, FILE *out);
    void (*flag)(const struct flag *flag, FILE *out);
};

static void begin_help(const char *group, FILE *out)
{
    fprintf(out, "\n%s:\n\n", group);
}

static void begin_markdown(const char *group, FILE *out)
{
    fprintf(out, "\n### %s\n\n| Flag | Type | Default | Description |\n|---|---|---|---|\n", group);
}

static void print_group(const struct flag_program *program, const char *group, const struct writer *writer, FILE *out)
{
    bool begun = false;
    for (size_t i = 0; i < program->count + flag_builtin_count; i++) {
        const struct flag *flag = i < program->count ? &program->flags[i] : &flag_builtins[i - program->count];
        if (flag->hidden || !str_eq(group_of(flag), group))
            continue;
        if (!begun)
            writer->begin(group, out);
        begun = true;
        writer->flag(flag, out);
    }
}

/* Groups in the order in which the table first names them. */
static void print_groups(const struct flag_program *program, const struct writer *writer, FILE *out)
{
    auto_strv struct strv seen = {0};
    for (size_t i = 0; i < program->count + flag_builtin_count; i++) {
        const struct flag *flag = i < program->count ? &program->flags[i] : &flag_builtins[i - program->count];
        if (strv_contains(&seen, group_of(flag)))
            continue;
        strv_add(&seen, group_of(flag));
        print_group(program, group_of(flag), writer, out);
    }
}

void flag_print_help(const struct flag_program *program, FILE *out)
{
    static const struct writer writer = {begin_help, print_flag_help};
    fprintf(out, "%s\n\nUsage:\n  %s %s\n", program->summary, program->name, program->usage);
    print_groups(program, &writer, out);
}

void flag_print_markdown(const struct flag_program *program, FILE *out)
{
    static const struct writer writer = {begin_markdown, print_flag_markdown};
    fprintf(out, "## %s\n\n%s\n", program->name, program->summary);
    print_groups(program, &writer, out);
}
