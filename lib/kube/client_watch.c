/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/client_private.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <string.h>

/* The server ends a watch after 300 … 600 s; jittered so that they do not all end together. */
#define SHORTEST_SECONDS 300
#define GRACE (30 * CLOCK_SECOND)
#define SILENCE (150 * CLOCK_SECOND)   /* bookmarks come once a minute */
#define TRIM_AT ((size_t)256 << 10)    /* a buffer that has grown beyond this is given back */
#define EVENT_LIMIT ((size_t)32 << 20) /* as for an item of a list, KUBE_SPLIT_ITEM_LIMIT */

struct kube_watch {
    struct kube_client *client;
    const struct kube_kind *kind;
    struct kube_decode_options decode;
    struct kube_call *call;
    struct str pending; /* bytes not yet given out */
    size_t used;        /* of them, already consumed */
    size_t scanned;     /* of them, known to hold no line end */
    int64_t end;        /* mono; the server must have ended it before */
    int64_t heard;      /* mono; last bytes */
    bool bookmarked;
};

static int make_path(const struct kube_kind *kind, const struct kube_list_options *options, uint64_t seconds,
                     struct str *path, struct err *err)
{
    auto_free char *base = NULL;
    if (kube_path_make(kind, options->namespace_, NULL, NULL, &base, err) != 0)
        return -1;
    str_add(path, base);
    kube_query_add(path, "watch", "true");
    kube_query_add(path, "allowWatchBookmarks", "true");
    kube_query_add_u64(path, "timeoutSeconds", seconds);
    if (options->from_cache)
        kube_query_add(path, "resourceVersion", "0");
    else if (options->resource_version != 0)
        kube_query_add_u64(path, "resourceVersion", options->resource_version);
    if (!str_empty(options->label_selector))
        kube_query_add(path, "labelSelector", options->label_selector);
    if (!str_empty(options->field_selector))
        kube_query_add(path, "fieldSelector", options->field_selector);
    return 0;
}

static int open_call(struct kube_client *client, const struct kube_kind *kind, const struct kube_list_options *options,
                     uint64_t seconds, struct kube_call **call, struct err *err)
{
    auto_str struct str path = {0};
    if (make_path(kind, options, seconds, &path, err) != 0)
        return -1;
    struct kube_run run = {
        .method = "GET", .path = path.data, .stream = true, .watch = true, .deadline = kube_client_deadline(client)};
    auto_reply struct kube_reply reply = {0};
    if (kube_run(client, &run, &reply, err) != 0)
        return -1;
    if (reply.call == NULL)
        return kube_error_set(err, reply.status, str_text(&reply.body), reply.body.len);
    *call = mem_take(reply.call);
    return 0;
}

int kube_watch_open(struct kube_client *client, const struct kube_kind *kind, const struct kube_list_options *options,
                    struct kube_watch **result, struct err *err)
{
    static const struct kube_list_options defaults;
    *result = NULL;
    if (options == NULL)
        options = &defaults;
    uint64_t seconds = SHORTEST_SECONDS + rng_below(client->rng, SHORTEST_SECONDS + 1);
    struct kube_call *call = NULL;
    if (open_call(client, kind, options, seconds, &call, err) != 0)
        return err_wrap(err, "watch %s", kind->plural);
    struct kube_watch *watch = mem_new(struct kube_watch);
    watch->client = client;
    watch->kind = kind;
    watch->decode = options->decode;
    watch->call = call;
    watch->heard = clock_mono(client->clock);
    watch->end = watch->heard + (int64_t)seconds * CLOCK_SECOND + GRACE;
    *result = watch;
    return 0;
}

void kube_watch_cancel(struct kube_watch *watch)
{
    kube_call_cancel(watch->call);
}

void kube_watch_close(struct kube_watch *watch)
{
    if (watch == NULL)
        return;
    kube_call_free(watch->call);
    str_free(&watch->pending);
    free(watch);
}

/* ---- lines ---- */

/* The next complete line that is not empty; NULL when more bytes are needed. */
static const char *take_line(struct kube_watch *watch, size_t *len)
{
    struct str *pending = &watch->pending;
    while (watch->scanned < pending->len) {
        const char *from = pending->data + watch->scanned;
        const char *end = memchr(from, '\n', pending->len - watch->scanned);
        if (end == NULL) {
            watch->scanned = pending->len;
            return NULL;
        }
        const char *line = pending->data + watch->used;
        watch->used = watch->scanned = (size_t)(end - pending->data) + 1;
        *len = (size_t)(end - line);
        if (*len > 0 && line[*len - 1] == '\r')
            (*len)--;
        if (*len > 0)
            return line;
    }
    return NULL;
}

/* Waits for more bytes. 1 = there are some, 0 = the server has ended the watch, -1 = error. */
static int take_bytes(struct kube_watch *watch, struct err *err)
{
    struct kube_call_status status;
    int64_t deadline = watch->end;
    if (watch->bookmarked && watch->heard + SILENCE < deadline)
        deadline = watch->heard + SILENCE;
    str_consume(&watch->pending, watch->used);
    watch->scanned -= watch->used;
    watch->used = 0;
    if (watch->pending.len == 0 && watch->pending.cap > TRIM_AT)
        str_free(&watch->pending);
    if (watch->pending.len > EVENT_LIMIT) /* as with what is no JSON: a list finds the way past it */
        return err_set(err, ERR_GONE, "an event is larger than %zu bytes", EVENT_LIMIT);
    bool in_time = kube_call_wait_bytes(watch->call, deadline, &status);
    if (status.state == KUBE_CALL_CANCELLED)
        return err_set(err, ERR_CANCELLED, "the watch was cancelled");
    if (!in_time)
        return err_set(err, ERR_UNAVAILABLE, "nothing was heard from the server for %d s",
                       (int)((clock_mono(watch->client->clock) - watch->heard) / CLOCK_SECOND));
    if (status.unread > 0) {
        kube_call_read(watch->call, &watch->pending);
        watch->heard = clock_mono(watch->client->clock);
        return 1;
    }
    if (status.state == KUBE_CALL_FAILED)
        return err_set(err, ERR_UNAVAILABLE, "the connection broke: %s", status.reason);
    if (watch->pending.len > 0)
        return err_set(err, ERR_UNAVAILABLE, "the watch ended within an event");
    return 0;
}

/* ---- events ---- */

static uint64_t version_of(const json_t *object)
{
    uint64_t version = 0;
    const char *text = json_string_value(json_object_get(json_object_get(object, "metadata"), "resourceVersion"));
    return text != NULL && str_parse_u64(text, &version) ? version : 0;
}

static void decode_object(struct kube_watch *watch, const json_t *object, struct kube_watch_event *event)
{
    auto_err struct err problem = {0};
    event->object = kube_object_decode(watch->kind, object, &watch->decode, &problem);
    if (event->object != NULL)
        return;
    const json_t *meta = json_object_get(object, "metadata");
    log_warn("Passing over a malformed object in a watch", kv_str("kind", watch->kind->kind),
             kv_str("namespace", json_string_value(json_object_get(meta, "namespace"))),
             kv_str("name", json_string_value(json_object_get(meta, "name"))), kv_err(&problem));
}

static int error_event(const json_t *object, struct err *err)
{
    kube_error_set_status(err, object);
    if (err != NULL && err->code != ERR_GONE)
        err->code = ERR_UNAVAILABLE; /* whatever it is, the way on is to open the watch again */
    return -1;
}

/* 1 = an event, 0 = nothing of interest, -1 = error. */
static int decode_line(struct kube_watch *watch, const json_t *root, struct kube_watch_event *event, struct err *err)
{
    static const char *const names[] = {[KUBE_WATCH_ADDED] = "ADDED",
                                        [KUBE_WATCH_MODIFIED] = "MODIFIED",
                                        [KUBE_WATCH_DELETED] = "DELETED",
                                        [KUBE_WATCH_BOOKMARK] = "BOOKMARK"};
    const char *type = json_string_value(json_object_get(root, "type"));
    const json_t *object = json_object_get(root, "object");
    if (type != NULL && strcmp(type, "ERROR") == 0)
        return error_event(object, err);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!str_eq(type, names[i]))
            continue;
        *event = (struct kube_watch_event){.type = (enum kube_watch_type)i, .resource_version = version_of(object)};
        if (event->type == KUBE_WATCH_BOOKMARK)
            watch->bookmarked = true;
        else
            decode_object(watch, object, event);
        return 1;
    }
    log_warn("Passing over a watch event of unknown type", kv_str("kind", watch->kind->kind), kv_str("type", type));
    return 0;
}

static int next_event(struct kube_watch *watch, struct kube_watch_event *event, struct err *err)
{
    for (;;) {
        size_t len = 0;
        const char *line = take_line(watch, &len);
        if (line == NULL) {
            int result = take_bytes(watch, err);
            if (result <= 0)
                return result;
            continue;
        }
        json_error_t where;
        json_t *root = json_loadb(line, len, JSON_ALLOW_NUL, &where);
        /* opening the watch again from here would bring the same line again: a list passes over what is malformed */
        int result = root == NULL ? err_set(err, ERR_GONE, "an event is no JSON: %s", where.text)
                                  : decode_line(watch, root, event, err);
        json_decref(root);
        if (result != 0)
            return result;
    }
}

int kube_watch_next(struct kube_watch *watch, struct kube_watch_event *event, struct err *err)
{
    *event = (struct kube_watch_event){.type = KUBE_WATCH_BOOKMARK};
    int result = next_event(watch, event, err);
    return result >= 0 ? result : err_wrap(err, "watch %s", watch->kind->plural);
}
