/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/journal.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <string.h>

struct record {
    uint64_t number; /* 0 = empty */
    struct journal_entry entry;
    enum verb verb;
    size_t body_len;
    char *texts; /* method, path, query, user agent, resource, subresource, namespace, name: one after the other */
    uint32_t offsets[8];
};
enum { TEXT_METHOD, TEXT_PATH, TEXT_QUERY, TEXT_AGENT, TEXT_RESOURCE, TEXT_SUBRESOURCE, TEXT_NAMESPACE, TEXT_NAME };
static const char *const text_names[] = {"method",   "path",        "query",     "userAgent",
                                         "resource", "subresource", "namespace", "name"};

struct journal {
    struct record *ring;
    size_t size;
    uint64_t last; /* number of the newest record */
};

struct journal *journal_new(size_t size)
{
    struct journal *journal = mem_new(struct journal);
    journal->size = size > 0 ? size : 1;
    journal->ring = mem_calloc(journal->size, sizeof(*journal->ring));
    return journal;
}

void journal_clear(struct journal *journal)
{
    for (size_t i = 0; i < journal->size; i++) {
        free(journal->ring[i].texts);
        journal->ring[i] = (struct record){0};
    }
}

void journal_free(struct journal *journal)
{
    if (journal == NULL)
        return;
    journal_clear(journal);
    free(journal->ring);
    free(journal);
}

static void add_query(struct str *out, const struct request *request)
{
    bool first = true;
    if (request->query == NULL)
        return;
    for (struct map_iter it = {0}; map_next(request->query, &it); first = false)
        str_addf(out, "%s%s=%s", first ? "" : "&", it.key, (const char *)it.value);
}

void journal_add(struct journal *journal, const struct request *request, const struct journal_entry *entry)
{
    auto_str struct str texts = {0};
    auto_str struct str query = {0};
    add_query(&query, request);
    const char *const values[] = {request->method,   request->path,        str_text(&query),   request->user_agent,
                                  request->resource, request->subresource, request->namespace, request->name};
    struct record *record = &journal->ring[++journal->last % journal->size];
    free(record->texts);
    *record =
        (struct record){.number = journal->last, .entry = *entry, .verb = request->verb, .body_len = request->body_len};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        record->offsets[i] = (uint32_t)texts.len;
        str_add_len(&texts, values[i] != NULL ? values[i] : "", values[i] != NULL ? strlen(values[i]) + 1 : 1);
    }
    record->texts = str_take(&texts);
}

static const char *text_of(const struct record *record, size_t which)
{
    return record->texts + record->offsets[which];
}

static bool matches(const struct record *record, const struct journal_filter *filter)
{
    return (str_empty(filter->verb) || strcmp(verb_name(record->verb), filter->verb) == 0) &&
           (str_empty(filter->resource) || strcmp(text_of(record, TEXT_RESOURCE), filter->resource) == 0) &&
           (str_empty(filter->user_agent) || strstr(text_of(record, TEXT_AGENT), filter->user_agent) != NULL) &&
           (str_empty(filter->path) || strstr(text_of(record, TEXT_PATH), filter->path) != NULL);
}

static json_t *describe(const struct record *record)
{
    char time[CLOCK_TEXT_SIZE];
    json_t *item = json_pack("{s:I, s:s, s:s, s:i, s:I, s:I}", "number", (json_int_t)record->number, "time",
                             clock_format_rfc3339(record->entry.time, true, time), "verb", verb_name(record->verb),
                             "status", record->entry.status, "bodySize", (json_int_t)record->body_len, "micros",
                             (json_int_t)(record->entry.duration / 1000));
    for (size_t i = 0; i < ARRAY_LEN(text_names); i++)
        if (*text_of(record, i) != '\0')
            json_object_set_new(item, text_names[i], json_string(text_of(record, i)));
    if (record->entry.fault > 0)
        json_object_set_new(item, "fault", json_integer((json_int_t)record->entry.fault));
    return item;
}

json_t *journal_describe(const struct journal *journal, const struct journal_filter *filter)
{
    json_t *items = json_array();
    uint64_t first = journal->last >= journal->size ? journal->last - journal->size + 1 : 1;
    if (first <= filter->since)
        first = filter->since + 1;
    for (uint64_t number = first; number <= journal->last; number++) {
        const struct record *record = &journal->ring[number % journal->size];
        if (record->number == number && matches(record, filter))
            json_array_append_new(items, describe(record));
    }
    return json_pack("{s:o, s:I}", "items", items, "last", (json_int_t)journal->last);
}
