/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of requests: who asked what and what came of it. A ring; the oldest entries are overwritten. */
#ifndef BERTH_DEVAPI_JOURNAL_H
#define BERTH_DEVAPI_JOURNAL_H

#include "tests/devapi/request.h"

#include <jansson.h>

struct journal;
struct journal *journal_new(size_t size);
void journal_free(struct journal *journal);

struct journal_entry {
    int64_t time;     /* wall, ns */
    int64_t duration; /* ns from the end of the request to the start of the answer */
    int status;       /* 0: no answer was sent */
    uint64_t fault;   /* number of the first fault that hit it; 0 = none */
};
void journal_add(struct journal *journal, const struct request *request, const struct journal_entry *entry);
void journal_clear(struct journal *journal);
/* Entries with a number > since that match; NULL and "" match all. {"items": […], "last": N}: since=N shows what comes.
 */
struct journal_filter {
    uint64_t since;
    const char *verb, *resource, *user_agent, *path;
};
json_t *journal_describe(const struct journal *journal, const struct journal_filter *filter);

#endif
