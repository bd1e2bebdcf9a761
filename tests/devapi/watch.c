/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/watch.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_SECONDS = 1800, OUT_LIMIT = 256 * 1024 };

static const char *const event_heads[] = {
    [EVENT_ADDED] = "{\"type\":\"ADDED\",\"object\":",
    [EVENT_MODIFIED] = "{\"type\":\"MODIFIED\",\"object\":",
    [EVENT_DELETED] = "{\"type\":\"DELETED\",\"object\":",
};

void watch_free(struct watch *watch)
{
    if (watch == NULL)
        return;
    if (watch->link != NULL) {
        *watch->link = watch->next;
        if (watch->next != NULL)
            watch->next->link = watch->link;
    }
    rendering_free(&watch->rendering);
    selector_free(watch->selector);
    free(watch->key_prefix);
    str_free(&watch->out);
    free(watch);
}

static bool in_scope(const struct watch *watch, const struct version *version)
{
    return str_starts(version->key, watch->key_prefix) && selector_match(watch->selector, version);
}

static void add_event(struct watch *watch, enum event_type type, const struct version *version)
{
    for (int times = watch->faults.repeat ? 2 : 1; times > 0; times--) {
        str_add(&watch->out, event_heads[type]);
        render_object(&watch->rendering, version, &watch->out);
        str_add(&watch->out, "}\n");
    }
    watch->sent++;
}

/* An object that left the selection is shown as deleted, in its last state but with the version of the change. */
static void add_left(struct watch *watch, const struct event *event)
{
    auto_json json_t *object = version_parse(event->old);
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)event->resource_version);
    tree_set_text(object, "metadata.resourceVersion", text);
    auto_free char *json = json_dumps(object, JSON_COMPACT);
    struct version shown = *event->old;
    shown.json = json;
    shown.json_len = strlen(json);
    add_event(watch, EVENT_DELETED, &shown);
}

static void take_event(struct watch *watch, const struct event *event)
{
    bool now = event->type != EVENT_DELETED && in_scope(watch, event->now);
    bool before = event->old != NULL && in_scope(watch, event->old);
    if (now)
        add_event(watch, before ? EVENT_MODIFIED : EVENT_ADDED, event->now);
    else if (before && event->type == EVENT_DELETED)
        add_event(watch, EVENT_DELETED, event->now);
    else if (before)
        add_left(watch, event);
}

static void add_error(struct watch *watch, int code, const char *reason, const char *message)
{
    auto_json json_t *status = status_failure(code, reason, message);
    auto_free char *text = json_dumps(status, JSON_COMPACT);
    str_addf(&watch->out, "{\"type\":\"ERROR\",\"object\":%s}\n", text);
    watch->state = WATCH_DONE;
}

static void add_bookmark(struct watch *watch, uint64_t resource_version, bool initial)
{
    str_addf(&watch->out,
             "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"%s\",\"apiVersion\":\"%s\",\"metadata\":{"
             "\"resourceVersion\":\"%llu\",\"creationTimestamp\":null%s}}}\n",
             watch->rendering.kind->kind, watch->rendering.shown_version, (unsigned long long)resource_version,
             initial ? ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" : "");
}

static void end_by_fault(struct watch *watch)
{
    switch (watch->faults.end) {
    case WATCH_END_CLOSE:
        watch->state = WATCH_DONE;
        break;
    case WATCH_END_DROP:
        watch->state = WATCH_DROPPED;
        break;
    case WATCH_END_SILENT:
        watch->state = WATCH_SILENT;
        break;
    case WATCH_END_GONE:
        add_error(watch, 410, "Expired", "too old resource version (injected fault)");
        break;
    case WATCH_END_ERROR:
        add_error(watch, 500, "InternalError", "Internal error occurred: injected fault");
        break;
    case WATCH_END_GARBAGE:
        str_add(&watch->out, "{\"type\":\"MODIFIED\",\"object\":{\"kind\":\n");
        watch->state = WATCH_DONE;
        break;
    }
}

/* Renders events of the log into `out` until it is well filled. */
static void pull(struct watch *watch)
{
    struct store *store = watch->server->store;
    const struct kind *kind = watch->rendering.kind;
    while (watch->state == WATCH_OPEN && watch->out.len - watch->out_sent < OUT_LIMIT) {
        if (watch->faults.ends && watch->sent >= watch->faults.end_after) {
            end_by_fault(watch);
            return;
        }
        if (watch->next_event < store_log_first(store, kind)) { /* too slow: the real server hangs up, too */
            watch->state = WATCH_DONE;
            return;
        }
        const struct event *event = store_log_event(store, kind, watch->next_event);
        if (event == NULL ||
            (watch->faults.late > 0 && event->time + watch->faults.late > clock_mono(watch->server->clock)))
            return;
        watch->next_event++;
        take_event(watch, event);
    }
}

size_t watch_read(struct watch *watch, char *buffer, size_t size)
{
    if (watch->out_sent == watch->out.len) {
        str_reset(&watch->out);
        watch->out_sent = 0;
        pull(watch);
    }
    size_t len = watch->out.len - watch->out_sent;
    if (len > size)
        len = size;
    if (len > 0)
        memcpy(buffer, watch->out.data + watch->out_sent, len);
    watch->out_sent += len;
    return len;
}

bool watch_is_ready(struct watch *watch)
{
    if (watch->out_sent < watch->out.len || watch->state == WATCH_DONE || watch->state == WATCH_DROPPED)
        return true;
    if (watch->state == WATCH_SILENT)
        return false;
    if (watch->faults.ends && watch->sent >= watch->faults.end_after)
        return true;
    const struct event *event = store_log_event(watch->server->store, watch->rendering.kind, watch->next_event);
    if (event == NULL)
        return watch->next_event < store_log_first(watch->server->store, watch->rendering.kind);
    return watch->faults.late == 0 || event->time + watch->faults.late <= clock_mono(watch->server->clock);
}

int64_t watch_next_time(const struct watch *watch)
{
    int64_t time = watch->deadline;
    if (watch->state == WATCH_SILENT)
        return CLOCK_NEVER;
    if (watch->bookmarks && watch->bookmark_at < time)
        time = watch->bookmark_at;
    const struct event *event = store_log_event(watch->server->store, watch->rendering.kind, watch->next_event);
    if (watch->faults.late > 0 && event != NULL && event->time + watch->faults.late < time)
        time = event->time + watch->faults.late;
    return time;
}

void watch_bookmark(struct watch *watch)
{
    /* only when nothing older is still to be sent */
    bool drained = watch->next_event == store_log_end(watch->server->store, watch->rendering.kind) &&
                   watch->out_sent == watch->out.len;
    if (watch->bookmarks && watch->state == WATCH_OPEN && drained)
        add_bookmark(watch, store_version(watch->server->store), false);
}

void watch_tick(struct watch *watch, int64_t now)
{
    if (watch->state == WATCH_OPEN && watch->bookmarks && now >= watch->bookmark_at) {
        watch_bookmark(watch);
        /* the next one after the interval, or shortly before the end */
        int64_t last = watch->deadline - 2 * CLOCK_SECOND;
        watch->bookmark_at = now + watch->server->bookmark_interval;
        if (now < last && watch->bookmark_at > last)
            watch->bookmark_at = last;
    }
    if (watch->state == WATCH_OPEN && now >= watch->deadline)
        watch->state = WATCH_DONE;
}

/* The present state as ADDED events, for watches that start from nothing. */
static void add_initial(struct watch *watch)
{
    struct store *store = watch->server->store;
    const struct kind *kind = watch->rendering.kind;
    for (struct store_item *item = store_seek(store, kind, watch->key_prefix); item != NULL; item = store_next(item)) {
        struct version *version = store_item_version(item);
        if (!str_starts(version->key, watch->key_prefix))
            break;
        if (selector_match(watch->selector, version))
            add_event(watch, EVENT_ADDED, version);
    }
    watch->next_event = store_log_end(store, kind);
}

static int find_start(struct watch *watch, const struct request *request, struct reply *reply)
{
    const char *text = request_query(request, "resourceVersion");
    const char *initial = request_query(request, "sendInitialEvents");
    uint64_t from = 0;
    if (!str_empty(text) && !str_parse_u64(text, &from))
        return reply_bad_request(reply, "resourceVersion: Invalid value: \"%s\": strconv.ParseUint: invalid syntax",
                                 text);
    if (initial != NULL && watch->server->rules.minor < 32)
        return reply_fail(reply, 422, "Invalid", NULL, NULL, NULL,
                          "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is "
                          "forbidden for watch unless the WatchList feature gate is enabled");
    bool wanted = request_flag(request, "sendInitialEvents");
    if (wanted && !str_eq(request_query(request, "resourceVersionMatch"), "NotOlderThan"))
        return reply_fail(reply, 422, "Invalid", NULL, NULL, NULL,
                          "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: "
                          "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    if (wanted || from == 0) {
        if (initial == NULL || wanted)
            add_initial(watch);
        else
            watch->next_event = store_log_end(watch->server->store, watch->rendering.kind);
        if (wanted && watch->bookmarks)
            add_bookmark(watch, store_version(watch->server->store), true);
    } else if (store_log_after(watch->server->store, watch->rendering.kind, from, &watch->next_event) != 0) {
        auto_free char *message =
            mem_printf("too old resource version: %s (%llu)", text,
                       (unsigned long long)store_compacted(watch->server->store, watch->rendering.kind) + 1);
        add_error(watch, 410, "Expired", message);
    }
    return 0;
}

static void set_times(struct watch *watch, const struct request *request)
{
    uint64_t seconds;
    const char *text = request_query(request, "timeoutSeconds");
    if (text == NULL || !str_parse_u64(text, &seconds) || seconds == 0 || seconds > 86400)
        seconds = DEFAULT_TIMEOUT_SECONDS;
    int64_t now = clock_mono(watch->server->clock);
    watch->deadline = now + (int64_t)seconds * CLOCK_SECOND;
    watch->bookmark_at = now + watch->server->bookmark_interval;
    int64_t last = watch->deadline - 2 * CLOCK_SECOND;
    if (last > now && watch->bookmark_at > last)
        watch->bookmark_at = last;
}

void api_watch(struct server *server, const struct request *request, struct reply *reply)
{
    auto_err struct err err = {0};
    struct watch *watch = mem_new(struct watch);
    watch->server = server;
    rendering_init(&watch->rendering, &server->catalog, request);
    watch->key_prefix = request->namespace != NULL ? mem_printf("%s/", request->namespace) : mem_strdup("");
    watch->bookmarks = request_flag(request, "allowWatchBookmarks");
    auto_free char *single = request->name != NULL ? mem_printf("metadata.name=%s", request->name) : NULL;
    const char *fields = single != NULL ? single : request_query(request, "fieldSelector");
    int failed = selector_parse(request->kind, request_query(request, "labelSelector"), fields, &watch->selector, &err);
    if (failed != 0)
        failed = reply_bad_request(reply, "%s", err_text(&err));
    else
        failed = find_start(watch, request, reply);
    if (failed != 0) {
        watch_free(watch);
        return;
    }
    set_times(watch, request);
    watch->next = server->watches;
    watch->link = &server->watches;
    if (watch->next != NULL)
        watch->next->link = &watch->next;
    server->watches = watch;
    reply->code = 200;
    reply->watch = watch;
}
