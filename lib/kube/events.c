/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   kube_event_object ─► ring of drafts ─► thread: correlate ─► POST or PATCH, again and again while nobody answers
 *
 * As upstream, one thread sends one event after the other: while the API server is away they pile up in the ring, and
 * what does not fit is lost. Events are help for people, never a reason to stop working.
 */
#include "lib/kube/events.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/events_correlate.h"

#include <stdio.h>

#define QUEUE_LIMIT 1000
/* upstream's; the first delay is random, so that many clients do not come back at the same moment */
#define TRIES 12
#define TRY_DELAY (10 * CLOCK_SECOND)

struct kube_events {
    struct kube_client *client;
    char *component, *host;
    struct clock *clock;
    struct rng *rng;
    struct kube_event_correlator *correlator; /* only the thread */
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct kube_event_draft *ring[QUEUE_LIMIT];
    size_t first, len;
    bool sending;
    bool overflowing; /* was logged */
    bool ending;
    int64_t end_deadline;
    int64_t last_wall; /* no two events get the same time: it is part of their names */
    struct kube_events_stats stats;
};

/* ---- sending ---- */

static void count(struct kube_events *events, uint64_t *counter)
{
    pthread_mutex_lock(&events->lock);
    ++*counter;
    pthread_mutex_unlock(&events->lock);
}

static int post(struct kube_events *events, const struct kube_event_draft *draft, struct err *err)
{
    json_t *json = kube_event_to_json(draft, events->component, events->host);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "the event has text that is not UTF-8");
    int rc = kube_create(events->client, &kube_kind_event, draft->namespace_, json, NULL, err);
    json_decref(json);
    /* Our names are never used twice: an earlier try arrived, its answer did not. */
    if (rc != 0 && err_is(err, ERR_EXISTS)) {
        err_clear(err);
        return 0;
    }
    return rc;
}

static int patch(struct kube_events *events, const struct kube_event_draft *draft, struct err *err)
{
    json_t *json = kube_event_to_patch(draft);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "the event has text that is not UTF-8");
    int rc = kube_patch(events->client, &kube_kind_event, draft->namespace_, draft->name, NULL, KUBE_PATCH_STRATEGIC,
                        json, NULL, err);
    json_decref(json);
    return rc;
}

/* 0, or -1 with the error. *action becomes CREATE when there is nothing to patch any more (events live for an hour). */
static int send_once(struct kube_events *events, const struct kube_event_draft *draft, enum kube_event_action *action,
                     struct err *err)
{
    if (*action == KUBE_EVENT_PATCH) {
        if (patch(events, draft, err) == 0)
            return 0;
        if (!err_is(err, ERR_NOT_FOUND))
            return -1;
        err_clear(err);
        *action = KUBE_EVENT_CREATE;
    }
    return post(events, draft, err);
}

/* An answer of the server is final, whatever it says; only silence is tried again. */
static bool is_worth_a_retry(const struct err *err)
{
    return err->status == 0 && (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT || err->code == ERR_IO ||
                                err->code == ERR_UNKNOWN_OUTCOME);
}

/* False when the time to drain is over. */
static bool wait_before_retry(struct kube_events *events, int tries)
{
    int64_t delay = tries == 1 ? (int64_t)(rng_unit(events->rng) * (double)TRY_DELAY) : TRY_DELAY;
    int64_t until = clock_mono(events->clock) + delay;
    pthread_mutex_lock(&events->lock);
    for (bool in_time = true; in_time;) { /* kube_events_free may shorten it */
        bool cut = events->ending && events->end_deadline < until;
        in_time = clock_cond_wait(events->clock, &events->changed, &events->lock, cut ? events->end_deadline : until);
    }
    bool more = !events->ending || clock_mono(events->clock) < events->end_deadline;
    pthread_mutex_unlock(&events->lock);
    return more;
}

static void log_loss(const struct kube_event_draft *draft, const char *message, const struct err *err)
{
    log_warn(message, kv_str("object", draft->involved.name), kv_str("namespace", draft->namespace_),
             kv_str("reason", draft->reason), kv_str("event", draft->message), kv_err(err));
}

static bool is_namespace_going(const struct err *err)
{
    return err->code == ERR_FORBIDDEN && strstr(err_text(err), "being terminated") != NULL;
}

static void send_draft(struct kube_events *events, struct kube_event_draft *draft)
{
    enum kube_event_action action = kube_event_correlate(events->correlator, draft);
    if (action == KUBE_EVENT_DROP) {
        log_v(4, "Event dropped, there are too many about this object", kv_str("object", draft->involved.name),
              kv_str("reason", draft->reason));
        count(events, &events->stats.dropped_spam);
        return;
    }
    for (int tries = 1;; tries++) {
        auto_err struct err err = {0};
        if (send_once(events, draft, &action, &err) == 0) {
            count(events, action == KUBE_EVENT_PATCH ? &events->stats.patched : &events->stats.sent);
            return;
        }
        if (is_worth_a_retry(&err) && tries < TRIES && wait_before_retry(events, tries))
            continue;
        if (err.code == ERR_CANCELLED || is_namespace_going(&err))
            log_v(5, "Event not written", kv_str("object", draft->involved.name), kv_err(&err));
        else
            log_loss(draft, is_worth_a_retry(&err) ? "Event lost, the API server does not answer" : "Event refused",
                     &err);
        count(events, &events->stats.failed);
        return;
    }
}

/* The next draft, owned by the caller; NULL at the end. */
static struct kube_event_draft *next_draft(struct kube_events *events)
{
    struct kube_event_draft *draft = NULL;
    pthread_mutex_lock(&events->lock);
    events->sending = false;
    pthread_cond_broadcast(&events->changed);
    while (events->len == 0 && !events->ending)
        clock_cond_wait(events->clock, &events->changed, &events->lock, CLOCK_NEVER);
    if (events->len > 0 && !(events->ending && clock_mono(events->clock) >= events->end_deadline)) {
        draft = events->ring[events->first];
        events->first = (events->first + 1) % QUEUE_LIMIT;
        events->len--;
        events->sending = true;
        events->overflowing = false;
    }
    pthread_mutex_unlock(&events->lock);
    return draft;
}

static void *events_run(void *arg)
{
    struct kube_events *events = arg;
    struct kube_event_draft *draft;
    while ((draft = next_draft(events)) != NULL) {
        send_draft(events, draft);
        kube_event_draft_free(draft);
    }
    return NULL;
}

/* ---- recording ---- */

static void record(struct kube_events *events, const struct kube_reference *reference, const char *type,
                   const char *reason, const char *format, va_list args)
{
    auto_free char *text = mem_vprintf(format, args);
    log_v(3, "Event occurred", kv_str("object", reference->name), kv_str("namespace", reference->namespace_),
          kv_str("kind", reference->kind), kv_str("type", type), kv_str("reason", reason), kv_str("message", text));

    pthread_mutex_lock(&events->lock);
    events->stats.recorded++;
    int64_t wall = clock_wall(events->clock);
    if (wall <= events->last_wall)
        wall = events->last_wall + 1;
    events->last_wall = wall;
    bool overflow = events->len == QUEUE_LIMIT;
    bool news = overflow && !events->overflowing;
    if (overflow) {
        events->stats.dropped_queue++;
        events->overflowing = true;
    } else {
        events->ring[(events->first + events->len) % QUEUE_LIMIT] =
            kube_event_draft_new(reference, type, reason, kube_event_clean_message(text), wall, events->rng);
        events->len++;
        pthread_cond_broadcast(&events->changed);
    }
    pthread_mutex_unlock(&events->lock);
    if (news)
        log_warn("Too many events wait to be sent, further ones are lost", kv_int("limit", QUEUE_LIMIT));
}

void kube_event_reference(struct kube_events *events, const struct kube_reference *reference, const char *type,
                          const char *reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(events, reference, type, reason, format, args);
    va_end(args);
}

void kube_event_object(struct kube_events *events, const struct kube_object *object, const char *type,
                       const char *reason, const char *format, ...)
{
    const struct kube_kind *kind = object->kind;
    char api_version[128], resource_version[24];
    snprintf(api_version, sizeof(api_version), "%s%s%s", kind->group, *kind->group != '\0' ? "/" : "", kind->version);
    snprintf(resource_version, sizeof(resource_version), "%llu", (unsigned long long)object->meta.resource_version);
    struct kube_reference reference = {.api_version = api_version,
                                       .kind = kind->kind,
                                       .namespace_ = object->meta.namespace_,
                                       .name = object->meta.name,
                                       .uid = object->meta.uid,
                                       .resource_version = resource_version,
                                       .field_path = ""};
    va_list args;
    va_start(args, format);
    record(events, &reference, type, reason, format, args);
    va_end(args);
}

/* ---- life ---- */

struct kube_events *kube_events_new(const struct kube_events_options *options)
{
    struct kube_events *events = mem_new(struct kube_events);
    events->client = options->client;
    events->component = mem_strdup(options->component);
    events->host = mem_strdup(options->host);
    events->clock = options->clock != NULL ? options->clock : clock_real();
    events->rng = options->rng != NULL ? options->rng : rng_real();
    events->correlator = kube_event_correlator_new(options->component, options->host, events->clock, events->rng);
    pthread_mutex_init(&events->lock, NULL);
    clock_cond_init(&events->changed);
    events->thread = thread_start("events", events_run, events);
    return events;
}

void kube_events_free(struct kube_events *events, int64_t drain)
{
    if (events == NULL)
        return;
    pthread_mutex_lock(&events->lock);
    events->ending = true;
    events->end_deadline = clock_mono(events->clock) + drain;
    pthread_cond_broadcast(&events->changed);
    pthread_mutex_unlock(&events->lock);
    thread_join(events->thread);

    if (events->len > 0)
        log_warn("Events were not sent before the end", kv_uint("events", events->len));
    for (; events->len > 0; events->len--) {
        kube_event_draft_free(events->ring[events->first]);
        events->first = (events->first + 1) % QUEUE_LIMIT;
    }
    kube_event_correlator_free(events->correlator);
    pthread_cond_destroy(&events->changed);
    pthread_mutex_destroy(&events->lock);
    free(events->component);
    free(events->host);
    free(events);
}

void kube_events_get_stats(struct kube_events *events, struct kube_events_stats *stats)
{
    pthread_mutex_lock(&events->lock);
    *stats = events->stats;
    pthread_mutex_unlock(&events->lock);
}

bool kube_events_flush(struct kube_events *events, int64_t timeout)
{
    int64_t deadline = clock_mono(events->clock) + timeout;
    bool in_time = true;
    pthread_mutex_lock(&events->lock);
    while ((events->len > 0 || events->sending) && in_time)
        in_time = clock_cond_wait(events->clock, &events->changed, &events->lock, deadline);
    bool done = events->len == 0 && !events->sending;
    pthread_mutex_unlock(&events->lock);
    return done;
}
