/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One open watch: a place in the log of its kind, and the text that is still to be sent. http.c pulls text out of it
 * and parks the connection while there is none.
 */
#ifndef BERTH_DEVAPI_WATCH_H
#define BERTH_DEVAPI_WATCH_H

#include "tests/devapi/render.h"
#include "tests/devapi/selector.h"
#include "tests/devapi/server.h"

/* In the order of enum fault_action. */
enum watch_end {
    WATCH_END_CLOSE,
    WATCH_END_DROP,
    WATCH_END_SILENT,
    WATCH_END_GONE,
    WATCH_END_ERROR,
    WATCH_END_GARBAGE,
};

/* What faults do to a watch. */
struct watch_faults {
    int64_t late;       /* ns that every event is held back */
    bool repeat;        /* every event twice */
    uint64_t end_after; /* events until the end; 0 = no such fault */
    enum watch_end end;
    bool ends;
};

enum watch_state {
    WATCH_OPEN,
    WATCH_DONE,    /* ends in good order once the text is out */
    WATCH_DROPPED, /* the connection is cut */
    WATCH_SILENT,  /* stays open and says nothing, ever */
};

struct watch {
    struct watch *next, **link; /* in server->watches */
    struct server *server;
    struct rendering rendering;
    struct selector *selector;
    char *key_prefix; /* "namespace/" or "" */
    uint64_t next_event;
    uint64_t sent; /* events so far */
    bool bookmarks;
    int64_t deadline, bookmark_at;
    enum watch_state state;
    struct watch_faults faults;
    struct str out;
    size_t out_sent;
    void *connection; /* belongs to http.c, as does the next one */
    bool parked;
};
void watch_free(struct watch *watch);
/* Moves as much as there is into the buffer; 0 = nothing now, look at watch->state. */
size_t watch_read(struct watch *watch, char *buffer, size_t size);
/* Whether watch_read would give something or has something to tell (end of stream). */
bool watch_is_ready(struct watch *watch);
/* The earliest monotonic time at which this watch has to be looked at. */
int64_t watch_next_time(const struct watch *watch);
/* Deadline, bookmark: called when that time has come. */
void watch_tick(struct watch *watch, int64_t now);
void watch_bookmark(struct watch *watch);

#endif
