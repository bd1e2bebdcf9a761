/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/faults.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct fault {
    struct fault *next;
    json_t *spec; /* the criteria are read from it */
    struct fault_effect effect;
    uint64_t skip, times, seen, hits;
};

struct faults {
    struct fault *first, **last;
    uint64_t next_id;
};

static const char *const action_names[FAULT_ACTIONS] = {
    [FAULT_DELAY] = "delay",
    [FAULT_DROP] = "drop",
    [FAULT_HANG] = "hang",
    [FAULT_STATUS] = "status",
    [FAULT_HALF_BODY] = "half-body",
    [FAULT_BROKEN_JSON] = "broken-json",
    [FAULT_KILL] = "kill",
    [FAULT_WATCH_LATE] = "watch-late",
    [FAULT_WATCH_REPEAT] = "watch-repeat",
    [FAULT_WATCH_CLOSE] = "watch-close",
    [FAULT_WATCH_DROP] = "watch-drop",
    [FAULT_WATCH_SILENT] = "watch-silent",
    [FAULT_WATCH_GONE] = "watch-gone",
    [FAULT_WATCH_ERROR] = "watch-error",
    [FAULT_WATCH_GARBAGE] = "watch-garbage",
};

static const struct {
    int code;
    const char *reason, *message;
} status_texts[] = {
    {401, "Unauthorized", "Unauthorized"},
    {403, "Forbidden", "forbidden (injected fault)"},
    {404, "NotFound", "not found (injected fault)"},
    {409, "Conflict", "the object has been modified; please apply your changes to the latest version and try again"},
    {410, "Expired", "too old resource version (injected fault)"},
    {422, "Invalid", "invalid (injected fault)"},
    {429, "TooManyRequests", "Too many requests, please try again later."},
    {500, "InternalError", "Internal error occurred: injected fault"},
    {503, "ServiceUnavailable", "the server is currently unable to handle the request"},
    {504, "Timeout", "request did not complete within requested timeout"},
};

static const struct {
    const char *name;
    int number;
} signals[] = {{"KILL", SIGKILL}, {"STOP", SIGSTOP}, {"CONT", SIGCONT}, {"TERM", SIGTERM}, {"INT", SIGINT}};

struct faults *faults_new(void)
{
    struct faults *faults = mem_new(struct faults);
    faults->last = &faults->first;
    faults->next_id = 1;
    return faults;
}

static void fault_free(struct fault *fault)
{
    json_decref(fault->spec);
    free(fault);
}

void faults_clear(struct faults *faults)
{
    for (struct fault *fault = faults->first, *next; fault != NULL; fault = next) {
        next = fault->next;
        fault_free(fault);
    }
    faults->first = NULL;
    faults->last = &faults->first;
}

void faults_free(struct faults *faults)
{
    if (faults != NULL)
        faults_clear(faults);
    free(faults);
}

bool fault_action_find(const char *name, enum fault_action *action)
{
    for (size_t i = 0; i < FAULT_ACTIONS; i++) {
        if (str_eq(name, action_names[i])) {
            *action = (enum fault_action)i;
            return true;
        }
    }
    return false;
}

static int read_signal(const json_t *spec, struct fault_effect *effect, struct err *err)
{
    const char *name = tree_text(spec, "signal");
    if (effect->pid <= 0)
        return err_set(err, ERR_INVALID, "kill needs a pid");
    effect->signal = name == NULL ? SIGKILL : 0;
    for (size_t i = 0; name != NULL && i < ARRAY_LEN(signals); i++)
        if (strcmp(signals[i].name, name) == 0)
            effect->signal = signals[i].number;
    return effect->signal != 0 ? 0 : err_set(err, ERR_INVALID, "unknown signal \"%s\"", name);
}

static int read_status(const json_t *spec, struct fault_effect *effect, struct err *err)
{
    const char *reason = tree_text(spec, "reason"), *message = tree_text(spec, "message");
    if (effect->code < 400 || effect->code > 599)
        return err_set(err, ERR_INVALID, "status needs a code of 400 to 599");
    for (size_t i = 0; i < ARRAY_LEN(status_texts); i++) {
        if (status_texts[i].code != effect->code)
            continue;
        reason = reason != NULL ? reason : status_texts[i].reason;
        message = message != NULL ? message : status_texts[i].message;
    }
    (void)snprintf(effect->reason, sizeof(effect->reason), "%s", reason != NULL ? reason : "");
    (void)snprintf(effect->message, sizeof(effect->message), "%s", message != NULL ? message : "injected fault");
    return 0;
}

static const char *const known_members[] = {
    "verb", "resource", "subresource", "namespace", "name", "userAgent", "path",       "skip", "times", "action",
    "when", "code",     "reason",      "message",   "pid",  "signal",    "retryAfter", "ms",   "events"};

/* A misspelt member would make a test that tests nothing. */
static int check_members(const json_t *spec, struct err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(spec))
        return err_set(err, ERR_INVALID, "a fault is a JSON object");
    json_object_foreach ((json_t *)spec, key, value) {
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(known_members); i++)
            known = known || strcmp(known_members[i], key) == 0;
        if (!known)
            return err_set(err, ERR_INVALID, "unknown member \"%s\"", key);
    }
    return 0;
}

static int read_effect(const json_t *spec, struct fault_effect *effect, struct err *err)
{
    const char *when = tree_text(spec, "when"), *action = tree_text(spec, "action");
    if (check_members(spec, err) != 0)
        return -1;
    if (!fault_action_find(action, &effect->action))
        return err_set(err, ERR_INVALID, "unknown action \"%s\"", action != NULL ? action : "");
    if (when != NULL && strcmp(when, "before") != 0 && strcmp(when, "after") != 0)
        return err_set(err, ERR_INVALID, "when is before or after, not \"%s\"", when);
    effect->after = str_eq(when, "after") || effect->action == FAULT_HALF_BODY || effect->action == FAULT_BROKEN_JSON;
    effect->code = (int)json_integer_value(tree_get(spec, "code"));
    effect->retry_after = (int)json_integer_value(tree_get(spec, "retryAfter"));
    effect->ms = json_integer_value(tree_get(spec, "ms"));
    effect->pid = json_integer_value(tree_get(spec, "pid"));
    effect->events = json_integer_value(tree_get(spec, "events"));
    if (effect->action == FAULT_KILL)
        return read_signal(spec, effect, err);
    return effect->action == FAULT_STATUS ? read_status(spec, effect, err) : 0;
}

uint64_t faults_add(struct faults *faults, const json_t *spec, struct err *err)
{
    struct fault_effect effect = {0};
    if (read_effect(spec, &effect, err) != 0)
        return 0;
    struct fault *fault = mem_new(struct fault);
    const json_t *skip = tree_get(spec, "skip"), *times = tree_get(spec, "times");
    fault->effect = effect;
    fault->effect.id = faults->next_id++;
    fault->skip = (uint64_t)json_integer_value(skip);
    fault->times = times != NULL ? (uint64_t)json_integer_value(times) : 1;
    fault->spec = json_deep_copy(spec);
    *faults->last = fault;
    faults->last = &fault->next;
    return fault->effect.id;
}

bool faults_remove(struct faults *faults, uint64_t id)
{
    for (struct fault **link = &faults->first; *link != NULL; link = &(*link)->next) {
        struct fault *fault = *link;
        if (fault->effect.id != id)
            continue;
        *link = fault->next;
        if (faults->last == &fault->next)
            faults->last = link;
        fault_free(fault);
        return true;
    }
    return false;
}

json_t *faults_describe(const struct faults *faults)
{
    json_t *list = json_array();
    for (const struct fault *fault = faults->first; fault != NULL; fault = fault->next)
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:I, s:O}", "id", (json_int_t)fault->effect.id, "seen",
                                        (json_int_t)fault->seen, "hits", (json_int_t)fault->hits, "spec", fault->spec));
    return list;
}

static bool glob_matches(const json_t *spec, const char *member, const char *value)
{
    const char *pattern = tree_text(spec, member);
    return pattern == NULL || fnmatch(pattern, value != NULL ? value : "", 0) == 0;
}

static bool verb_matches(const json_t *spec, const struct request *request)
{
    const char *verbs = tree_text(spec, "verb");
    if (verbs == NULL)
        return true;
    auto_strv struct strv list = {0};
    strv_split(&list, verbs, ',');
    return strv_contains(&list, verb_name(request->verb));
}

static bool fault_matches(const struct fault *fault, const struct request *request)
{
    const char *agent = tree_text(fault->spec, "userAgent");
    bool about_watches = fault->effect.action >= FAULT_WATCH_LATE;
    if (about_watches && request->verb != VERB_WATCH)
        return false;
    return verb_matches(fault->spec, request) && glob_matches(fault->spec, "resource", request->resource) &&
           glob_matches(fault->spec, "subresource", request->subresource) &&
           glob_matches(fault->spec, "namespace", request->namespace) &&
           glob_matches(fault->spec, "name", request->name) && glob_matches(fault->spec, "path", request->path) &&
           (agent == NULL || (request->user_agent != NULL && strstr(request->user_agent, agent) != NULL));
}

void faults_match(struct faults *faults, const struct request *request, struct fault_hits *hits)
{
    hits->count = 0;
    for (struct fault *fault = faults->first; fault != NULL; fault = fault->next) {
        if (!fault_matches(fault, request))
            continue;
        fault->seen++;
        bool due = fault->seen > fault->skip && (fault->times == 0 || fault->seen <= fault->skip + fault->times);
        if (!due || hits->count == FAULTS_AT_ONCE)
            continue;
        fault->hits++;
        hits->effects[hits->count++] = fault->effect;
    }
}

const struct fault_effect *fault_hits_find(const struct fault_hits *hits, enum fault_action action, bool after)
{
    for (size_t i = 0; i < hits->count; i++)
        if (hits->effects[i].action == action && hits->effects[i].after == after)
            return &hits->effects[i];
    return NULL;
}
