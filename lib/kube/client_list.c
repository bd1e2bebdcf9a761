/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/client_private.h"
#include "lib/kube/client_split.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <string.h>

#define PAGE_SIZE 500
#define REPEAT_DELAY (200 * CLOCK_MS)
#define TRIM_THRESHOLD ((size_t)4 << 20) /* bytes of lists after which the heap is given back */

struct listing {
    struct kube_client *client;
    const struct kube_kind *kind;
    const struct kube_list_options *options;
    bool (*each)(void *arg, struct kube_object *object);
    void *arg;
    char *token; /* continue token of this page; NULL = the first one */
    char *next;  /* of the next page; NULL = this is the last one */
    uint64_t resource_version;
    size_t bytes;     /* of all pages */
    size_t seen;      /* items of this page, in this try */
    size_t delivered; /* items of this page in all tries */
    bool stopped;
};

static bool on_item(void *arg, const char *text, size_t len)
{
    struct listing *listing = arg;
    auto_err struct err problem = {0};
    json_error_t where;
    if (listing->seen++ < listing->delivered)
        return true; /* from a page that broke off and is read again */
    listing->delivered++;
    json_t *json = json_loadb(text, len, JSON_ALLOW_NUL, &where);
    struct kube_object *object = NULL;
    if (json != NULL)
        object = kube_object_decode(listing->kind, json, &listing->options->decode, &problem);
    else
        err_set(&problem, ERR_INVALID, "%s", where.text);
    if (object == NULL) {
        const json_t *meta = json_object_get(json, "metadata");
        log_warn("Passing over a malformed object in a list", kv_str("kind", listing->kind->kind),
                 kv_str("namespace", json_string_value(json_object_get(meta, "namespace"))),
                 kv_str("name", json_string_value(json_object_get(meta, "name"))), kv_err(&problem));
    }
    json_decref(json);
    bool go_on = object == NULL || listing->each(listing->arg, object);
    kube_object_unref(object);
    listing->stopped = !go_on;
    return go_on;
}

static void on_metadata(void *arg, const char *text, size_t len)
{
    struct listing *listing = arg;
    json_t *json = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    const char *version = json_string_value(json_object_get(json, "resourceVersion"));
    const char *next = json_string_value(json_object_get(json, "continue"));
    uint64_t number;
    if (version != NULL && str_parse_u64(version, &number))
        listing->resource_version = number;
    free(listing->next);
    listing->next = str_empty(next) ? NULL : mem_strdup(next);
    json_decref(json);
}

enum page_result {
    PAGE_DONE,
    PAGE_BROKE_OFF,
    PAGE_ERROR,
};

static enum page_result page_result(const struct kube_split *split, enum kube_split_result result, bool in_time,
                                    const struct kube_call_status *status, struct err *err)
{
    bool is_over = status->state == KUBE_CALL_COMPLETE;
    if (status->state == KUBE_CALL_CANCELLED) {
        err_set(err, ERR_CANCELLED, "the program stops");
    } else if (result == KUBE_SPLIT_STOPPED || (is_over && kube_split_complete(split) && result == KUBE_SPLIT_MORE)) {
        return PAGE_DONE;
    } else if (is_over || result == KUBE_SPLIT_BROKEN) {
        err_set(err, ERR_UNAVAILABLE, "the reply is no list: %s", kube_split_problem(split));
    } else if (!in_time) {
        err_set(err, ERR_TIMEOUT, "the reply does not go on");
    } else {
        err_set(err, ERR_UNAVAILABLE, "the reply broke off: %s", status->reason);
        return status->permanent ? PAGE_ERROR : PAGE_BROKE_OFF;
    }
    return PAGE_ERROR;
}

/* Feeds the splitter until the page is complete. Every wait for bytes has a whole request time-out: a long list that
 * keeps coming is not cut. */
static enum page_result read_page(struct listing *listing, struct kube_call *call, struct err *err)
{
    struct kube_split split = {.item = on_item, .metadata = on_metadata, .arg = listing};
    auto_str struct str bytes = {0};
    struct kube_call_status status = {.state = KUBE_CALL_RUNNING};
    enum kube_split_result result = KUBE_SPLIT_MORE;
    bool in_time = true;
    listing->seen = 0;
    while (result == KUBE_SPLIT_MORE && in_time && status.state == KUBE_CALL_RUNNING) {
        in_time = kube_call_wait_bytes(call, kube_client_deadline(listing->client), &status);
        if (status.state == KUBE_CALL_CANCELLED)
            break;
        str_reset(&bytes);
        kube_call_read(call, &bytes);
        listing->bytes += bytes.len;
        result = kube_split_feed(&split, str_text(&bytes), bytes.len);
    }
    enum page_result page = page_result(&split, result, in_time, &status, err);
    kube_split_free(&split);
    return page;
}

static int make_path(const struct kube_kind *kind, const struct kube_list_options *options, struct str *path,
                     struct err *err)
{
    auto_free char *base = NULL;
    if (kube_path_make(kind, options->namespace_, NULL, NULL, &base, err) != 0)
        return -1;
    str_add(path, base);
    if (!str_empty(options->label_selector))
        kube_query_add(path, "labelSelector", options->label_selector);
    if (!str_empty(options->field_selector))
        kube_query_add(path, "fieldSelector", options->field_selector);
    return 0;
}

static void make_page_path(const struct listing *listing, const char *base, struct str *path)
{
    const struct kube_list_options *options = listing->options;
    str_add(path, base);
    kube_query_add_u64(path, "limit", PAGE_SIZE);
    if (listing->token != NULL) {
        kube_query_add(path, "continue", listing->token);
    } else if (options->from_cache) {
        kube_query_add(path, "resourceVersion", "0");
    } else if (options->resource_version != 0) {
        kube_query_add_u64(path, "resourceVersion", options->resource_version);
        kube_query_add(path, "resourceVersionMatch", "NotOlderThan");
    }
}

static enum page_result try_page(struct listing *listing, const struct kube_run *run, struct err *err)
{
    auto_reply struct kube_reply reply = {0};
    if (kube_run(listing->client, run, &reply, err) != 0)
        return PAGE_ERROR;
    if (reply.call != NULL)
        return read_page(listing, reply.call, err);
    kube_error_set(err, reply.status, str_text(&reply.body), reply.body.len);
    return PAGE_ERROR;
}

/* A page that broke off is read again as long as that gives the same items: always when none was delivered yet, and
 * with a continue token, which stands for one state of the data. */
static int list_page(struct listing *listing, const char *base, struct err *err)
{
    struct kube_client *client = listing->client;
    auto_str struct str path = {0};
    make_page_path(listing, base, &path);
    struct kube_run run = {
        .method = "GET", .path = path.data, .stream = true, .deadline = kube_client_deadline(client)};
    listing->delivered = 0;
    for (;;) {
        auto_err struct err problem = {0};
        enum page_result result = try_page(listing, &run, &problem);
        if (result == PAGE_DONE)
            return 0;
        int64_t again = clock_mono(client->clock) + rng_jitter(client->rng, REPEAT_DELAY, 1);
        bool same = listing->token != NULL || listing->delivered == 0;
        if (result == PAGE_ERROR || !same || again >= run.deadline || kube_io_sleep(client->io, again))
            return err_move(err, &problem);
    }
}

int kube_list(struct kube_client *client, const struct kube_kind *kind, const struct kube_list_options *options,
              bool (*each)(void *arg, struct kube_object *object), void *arg, uint64_t *resource_version,
              struct err *err)
{
    static const struct kube_list_options defaults;
    struct listing listing = {
        .client = client, .kind = kind, .options = options != NULL ? options : &defaults, .each = each, .arg = arg};
    auto_str struct str base = {0};
    int result = make_path(kind, listing.options, &base, err);
    if (result == 0)
        do {
            free(listing.token);
            listing.token = mem_take(listing.next);
            result = list_page(&listing, str_text(&base), err);
        } while (result == 0 && listing.next != NULL && !listing.stopped);
    free(listing.token);
    free(listing.next);
    /* glibc keeps what thousands of small parse trees have left behind */
    if (listing.bytes > TRIM_THRESHOLD)
        mem_trim();
    if (resource_version != NULL)
        *resource_version = listing.resource_version;
    return result == 0 ? 0 : err_wrap(err, "list %s", kind->plural);
}
