/* SPDX-License-Identifier: Apache-2.0 */
/* Feature gates, for flag.h. */
#include "lib/base/flag.h"
#include "lib/base/mem.h"

#include <ctype.h>
#include <strings.h>

static char *trimmed(const char *text, size_t len)
{
    while (len > 0 && isspace((unsigned char)*text)) {
        text++;
        len--;
    }
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    return mem_strndup(text, len);
}

static struct flag_gate *find(struct flag_gate *known, const char *name)
{
    for (; known->name != NULL; known++) {
        if (str_eq(known->name, name))
            return known;
    }
    return NULL;
}

static int unknown(const struct flag_gate *known, const char *name, struct err *err)
{
    auto_str struct str names = {0};
    for (; known->name != NULL; known++)
        str_addf(&names, "%s%s", names.len > 0 ? ", " : "", known->name);
    return err_set(err, ERR_INVALID, "unknown feature gate \"%s\"; known are %s", name,
                   names.len > 0 ? names.data : "none");
}

/* AllAlpha and AllBeta: what to do with a whole stage, unless a gate is named itself. */
struct stage {
    const char *name;
    char letter;
    bool set;
    bool value;
};
enum { STAGES = 2 };

static int parse_one(const char *text, struct flag_gate *known, struct stage stages[STAGES], struct err *err)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL)
        return err_set(err, ERR_INVALID, "feature gate \"%s\" has no value: write %s=true or %s=false", text, text,
                       text);
    auto_free char *name = trimmed(text, (size_t)(equals - text));
    auto_free char *word = trimmed(equals + 1, strlen(equals + 1));
    bool value = strcasecmp(word, "true") == 0 || str_eq(word, "1") || strcasecmp(word, "t") == 0;
    if (!value && strcasecmp(word, "false") != 0 && !str_eq(word, "0") && strcasecmp(word, "f") != 0)
        return err_set(err, ERR_INVALID, "invalid value \"%s\" for feature gate %s: use true or false", word, name);
    for (size_t i = 0; i < STAGES; i++) {
        if (str_eq(stages[i].name, name)) {
            stages[i].set = true;
            stages[i].value = value;
            return 0;
        }
    }
    struct flag_gate *gate = find(known, name);
    if (gate == NULL)
        return unknown(known, name, err);
    gate->value = value;
    gate->set = true;
    return 0;
}

int flag_parse_gates(const char *text, struct flag_gate *known, struct err *err)
{
    struct stage stages[STAGES] = {{.name = "AllAlpha", .letter = 'a'}, {.name = "AllBeta", .letter = 'b'}};
    auto_strv struct strv parts = {0};
    strv_split(&parts, text != NULL ? text : "", ',');
    for (size_t i = 0; i < parts.len; i++) {
        auto_free char *part = trimmed(parts.items[i], strlen(parts.items[i]));
        if (*part != '\0' && parse_one(part, known, stages, err) != 0)
            return -1;
    }
    for (struct flag_gate *gate = known; gate->name != NULL; gate++) {
        for (size_t i = 0; i < STAGES; i++) {
            if (stages[i].set && gate->stage == stages[i].letter && !gate->set)
                gate->value = stages[i].value;
        }
    }
    return 0;
}
