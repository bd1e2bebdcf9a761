/* SPDX-License-Identifier: Apache-2.0 */
/* get and list, with paging that shows all pages as they were when the first one was sent. */
#include "tests/devapi/object.h"
#include "tests/devapi/render.h"
#include "tests/devapi/selector.h"
#include "tests/devapi/tree.h"

#include "lib/base/mem.h"

#include <string.h>

#define EXPIRED_CONTINUE                                                                                               \
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "        \
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "     \
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "        \
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."

/* What the query asks for, and the page while it grows. */
struct listing {
    struct rendering rendering;
    struct selector *selector;
    char *prefix;              /* "namespace/" or "" */
    char *from;                /* first key of this page */
    uint64_t resource_version; /* the state that is shown; 0 = the present one */
    uint64_t limit;            /* 0 = all */
    struct str items;
    uint64_t count, remaining;
    char *last_key; /* of the page, when more follow */
};

static void listing_free(struct listing *listing)
{
    rendering_free(&listing->rendering);
    selector_free(listing->selector);
    free(listing->prefix);
    free(listing->from);
    free(listing->last_key);
    str_free(&listing->items);
}

static char *make_token(int64_t resource_version, const char *key)
{
    auto_json json_t *token =
        json_pack("{s:s, s:I, s:s}", "v", "meta.k8s.io/v1", "rv", (json_int_t)resource_version, "start", key);
    auto_free char *text = json_dumps(token, JSON_COMPACT);
    return str_base64_encode(text, strlen(text));
}

/* The page starts behind the last key of the one before. */
static int read_token(struct server *server, struct listing *listing, const char *text, struct reply *reply)
{
    size_t len;
    auto_free unsigned char *decoded = str_base64_decode(text, strlen(text), &len);
    auto_json json_t *token = decoded != NULL ? json_loadb((const char *)decoded, len, 0, NULL) : NULL;
    const char *start = tree_text(token, "start");
    json_int_t version = json_integer_value(tree_get(token, "rv"));
    if (start == NULL || version == 0)
        return reply_bad_request(reply, "continue key is not valid: %s", text);
    free(listing->from);
    listing->from = mem_printf("%s\x01", start);
    if (version < 0) /* an inconsistent rest was agreed to */
        return 0;
    listing->resource_version = (uint64_t)version;
    uint64_t number;
    if (store_log_after(server->store, listing->rendering.kind, listing->resource_version, &number) == 0)
        return 0;
    auto_free char *inconsistent = make_token(-1, start);
    reply_expired(reply, EXPIRED_CONTINUE);
    auto_json json_t *status = json_loadb(reply->body.data, reply->body.len, 0, NULL);
    tree_set_text(status, "metadata.continue", inconsistent);
    reply_tree(reply, 410, status);
    return -1;
}

static int too_large(struct server *server, uint64_t version, struct reply *reply)
{
    json_t *causes =
        json_pack("[{s:s, s:s}]", "reason", "ResourceVersionTooLarge", "message", "Too large resource version");
    reply_fail(reply, 504, "Timeout", NULL, NULL, causes, "Too large resource version: %llu, current: %llu",
               (unsigned long long)version, (unsigned long long)store_version(server->store));
    reply->retry_after = 1;
    return -1;
}

/* resourceVersion and resourceVersionMatch of a list without continue. */
static int read_version(struct server *server, const struct request *request, struct listing *listing,
                        struct reply *reply)
{
    const char *text = request_query(request, "resourceVersion"),
               *match = request_query(request, "resourceVersionMatch");
    uint64_t version = 0, number;
    if (!str_empty(text) && !str_parse_u64(text, &version))
        return reply_bad_request(reply, "Invalid value: \"%s\": strconv.ParseUint: invalid syntax", text);
    if (!str_empty(match) && str_empty(text))
        return reply_fail(reply, 422, "Invalid", NULL, NULL, NULL,
                          "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: "
                          "resourceVersionMatch is forbidden unless resourceVersion is provided");
    if (version > store_version(server->store))
        return too_large(server, version, reply);
    bool exact = str_eq(match, "Exact") || (str_empty(match) && version > 0 && listing->limit > 0);
    if (!exact)
        return 0;
    if (store_log_after(server->store, listing->rendering.kind, version, &number) != 0)
        return reply_expired(reply, "The resourceVersion for the provided list is too old.");
    listing->resource_version = version;
    return 0;
}

static int read_query(struct server *server, const struct request *request, struct listing *listing,
                      struct reply *reply)
{
    auto_err struct err err = {0};
    const char *token = request_query(request, "continue"), *limit = request_query(request, "limit");
    rendering_init(&listing->rendering, &server->catalog, request);
    listing->prefix = request->namespace != NULL ? mem_printf("%s/", request->namespace) : mem_strdup("");
    listing->from = mem_strdup(listing->prefix);
    if (limit != NULL && !str_parse_u64(limit, &listing->limit))
        return reply_bad_request(reply, "Invalid value: \"%s\": strconv.ParseInt: invalid syntax", limit);
    if (selector_parse(request->kind, request_query(request, "labelSelector"), request_query(request, "fieldSelector"),
                       &listing->selector, &err) != 0)
        return reply_bad_request(reply, "%s", err_text(&err));
    if (str_empty(token))
        return read_version(server, request, listing, reply);
    if (!str_empty(request_query(request, "resourceVersion")) &&
        strcmp(request_query(request, "resourceVersion"), "0") != 0)
        return reply_bad_request(reply, "specifying resource version is not allowed when using continue");
    return read_token(server, listing, token, reply);
}

static void add_item(struct listing *listing, const struct version *version)
{
    if (!selector_match(listing->selector, version))
        return;
    if (listing->limit > 0 && listing->count == listing->limit) {
        listing->remaining++;
        return;
    }
    if (listing->count++ > 0)
        str_add_char(&listing->items, ',');
    render_item(&listing->rendering, version, &listing->items);
    if (listing->count == listing->limit)
        listing->last_key = mem_strdup(version->key);
}

static void collect(struct server *server, struct listing *listing)
{
    struct store_snapshot snapshot;
    const struct kind *kind = listing->rendering.kind;
    uint64_t number = 0;
    bool present = listing->resource_version == 0 ||
                   (store_log_after(server->store, kind, listing->resource_version, &number) == 0 &&
                    number == store_log_end(server->store, kind));
    if (present) {
        for (struct store_item *item = store_seek(server->store, kind, listing->from); item != NULL;
             item = store_next(item)) {
            if (!str_starts(store_item_version(item)->key, listing->prefix))
                break;
            add_item(listing, store_item_version(item));
        }
    } else if (store_snapshot(server->store, kind, listing->resource_version, &snapshot) == 0) {
        for (size_t i = 0; i < snapshot.count; i++)
            if (strcmp(snapshot.items[i]->key, listing->from) >= 0 &&
                str_starts(snapshot.items[i]->key, listing->prefix))
                add_item(listing, snapshot.items[i]);
        store_snapshot_free(&snapshot);
    }
}

static void finish(struct server *server, struct listing *listing, struct reply *reply)
{
    uint64_t version = listing->resource_version > 0 ? listing->resource_version : store_version(server->store);
    auto_free char *token = listing->remaining > 0 ? make_token((int64_t)version, listing->last_key) : NULL;
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)version);
    reply_reset(reply);
    reply->code = 200;
    struct str *out = &reply->body;
    if (listing->rendering.as == RENDER_TABLE) {
        table_head(listing->rendering.kind, listing->rendering.minor, text, token, out);
    } else {
        bool metadata = listing->rendering.as == RENDER_METADATA;
        str_addf(out, "{\"kind\":\"%sList\",\"apiVersion\":\"%s\",\"metadata\":{\"resourceVersion\":\"%s\"",
                 metadata ? "PartialObjectMetadata" : listing->rendering.kind->kind,
                 metadata ? "meta.k8s.io/v1" : listing->rendering.shown_version, text);
        if (token != NULL)
            str_addf(out, ",\"continue\":\"%s\"", token);
        if (token != NULL && listing->selector == NULL)
            str_addf(out, ",\"remainingItemCount\":%llu", (unsigned long long)listing->remaining);
        str_add(out, "},\"items\":[");
    }
    str_add_len(out, str_text(&listing->items), listing->items.len);
    str_add(out, "]}\n");
}

void api_list(struct server *server, const struct request *request, struct reply *reply)
{
    struct listing listing = {0};
    if (read_query(server, request, &listing, reply) == 0) {
        collect(server, &listing);
        finish(server, &listing, reply);
    }
    listing_free(&listing);
}

void api_get(struct server *server, const struct request *request, struct reply *reply)
{
    auto_free char *key = object_key(request->kind, request->namespace, request->name);
    struct version *version = store_get(server->store, request->kind, key);
    const char *wanted = request_query(request, "resourceVersion");
    uint64_t number = 0;
    if (wanted != NULL && str_parse_u64(wanted, &number) && number > store_version(server->store))
        (void)too_large(server, number, reply);
    else if (version == NULL)
        reply_not_found(reply, request->kind, request->name);
    else
        object_reply(server, request, 200, version, reply);
}
