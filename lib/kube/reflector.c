/* SPDX-License-Identifier: Apache-2.0 */
/*
 *            ┌───────────────► LISTING ──────────────► WATCHING ◄─────────────┐
 *            │                    │ failed       410,    │  │ connection      │ same history
 *   WAITING_TO_LIST ◄─────────────┘        ERROR event   │  │ died            │
 *            ▲───────────────────────────────────────────┘  ▼                 │
 *            │                                       WAITING_TO_WATCH ──► PROBING
 *            └── the history was reset ◄────────────────────────────────────┘
 *
 * Waiting is the jittered exponential back-off, so a restarted API server gets its lists and watches spread out, and
 * after a mere disconnect there is no list at all: the watch goes on where it was.
 *
 * PROBING is for a server whose database was restored from a backup: its revisions start again below ours, and a watch
 * from a revision that lies in its future is not refused but silently skips every change up to there. One small list
 * (limit=1) tells the current revision before a watch is resumed. Such a list is the truth even though the store never
 * goes back by version otherwise: kube_store_relist_finish_reset.
 */
#include "lib/kube/reflector.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <stdatomic.h>

/* upstream's: starts at 800 ms, doubles, starts anew after two minutes without a failure; jitter up to as much again */
#define BACKOFF_FIRST (800 * CLOCK_MS)
#define BACKOFF_LAST (15 * CLOCK_SECOND) /* before the jitter: 15 … 30 s */
#define BACKOFF_RESET (120 * CLOCK_SECOND)
#define BACKOFF_JITTER 1.0
/* A watch that the server ends at once and without any event counts as a failure, else we would go round in circles. */
#define SHORT_WATCH CLOCK_SECOND
/* How long a lost watch may take to come back before we call ourselves not ready. */
#define CONTACT_GRACE (60 * CLOCK_SECOND)

enum state { LISTING, WATCHING, WAITING_TO_LIST, WAITING_TO_WATCH, PROBING, STOPPED };

struct kube_reflector {
    struct kube_reflector_options options;
    struct clock *clock;
    struct rng *rng;
    pthread_t thread;

    pthread_mutex_t lock; /* for all below down to the next comment */
    pthread_cond_t changed;
    enum state state;
    bool stopping;
    struct kube_watch *watch; /* the open one, to cancel it */
    struct kube_reflector_stats stats;
    struct err last_error;

    /* only the reflector's thread */
    uint64_t version;        /* of the last list, event or bookmark */
    int64_t backoff;         /* next delay before the jitter */
    int64_t backoff_started; /* when the last one began; 0 = never */
    bool listed;             /* at least once: from_cache is for the first list only */
    bool reset;              /* a probe found a lower version than ours */
    bool troubled;           /* the trouble was logged, its end was not yet */
};

static const char *plural(const struct kube_reflector *reflector)
{
    return kube_store_kind(reflector->options.store)->plural;
}

static bool is_stopping(struct kube_reflector *reflector)
{
    pthread_mutex_lock(&reflector->lock);
    bool stopping = reflector->stopping;
    pthread_mutex_unlock(&reflector->lock);
    return stopping;
}

static void note_contact(struct kube_reflector *reflector, uint64_t *counter)
{
    pthread_mutex_lock(&reflector->lock);
    reflector->stats.last_contact = clock_mono(reflector->clock);
    if (counter != NULL)
        ++*counter;
    pthread_mutex_unlock(&reflector->lock);
}

/* One line when the trouble starts; what follows until its end is detail. */
static void note_trouble(struct kube_reflector *reflector, const char *what, const struct err *err)
{
    pthread_mutex_lock(&reflector->lock);
    reflector->stats.errors++;
    err_copy(&reflector->last_error, err);
    pthread_mutex_unlock(&reflector->lock);
    if (!reflector->troubled)
        log_warn("Lost contact with the API server, trying again", kv_str("resource", plural(reflector)),
                 kv_str("during", what), kv_err(err));
    else
        log_v(2, "Still no contact with the API server", kv_str("resource", plural(reflector)), kv_str("during", what),
              kv_err(err));
    reflector->troubled = true;
}

static void note_health(struct kube_reflector *reflector)
{
    if (reflector->troubled)
        log_info("Watching again", kv_str("resource", plural(reflector)),
                 kv_uint("resourceVersion", reflector->version));
    reflector->troubled = false;
}

/* ---- listing ---- */

static bool is_kept(const struct kube_reflector *reflector, const struct kube_object *object)
{
    return reflector->options.keep == NULL || reflector->options.keep(reflector->options.keep_arg, object);
}

static bool take_listed(void *arg, struct kube_object *object)
{
    struct kube_reflector *reflector = arg;
    if (is_kept(reflector, object))
        kube_store_put(reflector->options.store, object);
    note_contact(reflector, NULL);
    return !is_stopping(reflector);
}

/* A list that is not from a cache is at least as new as everything we saw before it, unless the history was reset. */
static void finish_list(struct kube_reflector *reflector, uint64_t version, bool from_cache)
{
    if (reflector->reset || (!from_cache && version < reflector->version)) {
        log_warn("The API server's history was reset, taking its list for the truth",
                 kv_str("resource", plural(reflector)), kv_uint("resourceVersion", version),
                 kv_uint("seenResourceVersion", reflector->version));
        kube_store_relist_finish_reset(reflector->options.store, version);
    } else {
        kube_store_relist_finish(reflector->options.store, version);
    }
    reflector->reset = false;
    reflector->listed = true;
    reflector->version = version;
    mem_trim(); /* the JSON of a list is large, and glibc would keep its memory for good */
    pthread_mutex_lock(&reflector->lock);
    bool first = !reflector->stats.synced;
    reflector->stats.synced = true;
    pthread_cond_broadcast(&reflector->changed);
    pthread_mutex_unlock(&reflector->lock);
    if (first)
        log_v(2, "Listed for the first time", kv_str("resource", plural(reflector)),
              kv_uint("objects", kube_store_len(reflector->options.store)));
}

static enum state run_list(struct kube_reflector *reflector)
{
    const struct kube_reflector_options *options = &reflector->options;
    struct kube_list_options list = options->list;
    list.from_cache = list.from_cache && !reflector->listed;
    list.resource_version = 0;
    auto_err struct err err = {0};
    uint64_t version = 0;
    kube_store_relist_begin(options->store);
    int rc = kube_list(options->client, kube_store_kind(options->store), &list, take_listed, reflector, &version, &err);
    if (is_stopping(reflector) || err_is(&err, ERR_CANCELLED)) {
        kube_store_relist_abort(options->store);
        return STOPPED;
    }
    if (rc != 0) {
        /* also when the pages expired in the middle (410): from the start then */
        kube_store_relist_abort(options->store);
        note_trouble(reflector, "list", &err);
        return WAITING_TO_LIST;
    }
    note_contact(reflector, &reflector->stats.lists);
    finish_list(reflector, version, list.from_cache);
    return WATCHING;
}

/* ---- watching ---- */

/* False when the store may have missed something. */
static bool take_event(struct kube_reflector *reflector, const struct kube_watch_event *event)
{
    struct kube_store *store = reflector->options.store;
    const struct kube_object *object = event->object;
    note_contact(reflector, &reflector->stats.events);
    if (event->resource_version > reflector->version)
        reflector->version = event->resource_version;
    if (event->type == KUBE_WATCH_BOOKMARK)
        return true;
    if (object == NULL) /* malformed: nothing to store, but a deletion must not be lost */
        return event->type != KUBE_WATCH_DELETED;
    if (event->type == KUBE_WATCH_DELETED || !is_kept(reflector, object))
        kube_store_remove(store, object->meta.namespace_, object->meta.name, object->meta.uid, event->resource_version);
    else
        kube_store_put(store, event->object);
    return true;
}

/* Publishes the open watch so that kube_reflector_free can cancel it, or takes it back. */
static void set_watch(struct kube_reflector *reflector, struct kube_watch *watch)
{
    pthread_mutex_lock(&reflector->lock);
    reflector->watch = watch;
    if (watch != NULL) {
        reflector->stats.watches++;
        reflector->stats.last_contact = clock_mono(reflector->clock);
        if (reflector->stopping)
            kube_watch_cancel(watch);
    }
    pthread_mutex_unlock(&reflector->lock);
}

/* What an error of a watch, or of opening one, means for what we have. A dead connection or a busy server says nothing
 * about our version. Anything the server said in the stream is an ERROR event. */
static enum state after_watch_error(struct kube_reflector *reflector, const struct err *err, bool opened)
{
    if (is_stopping(reflector) || err->code == ERR_CANCELLED)
        return STOPPED;
    note_trouble(reflector, "watch", err);
    switch (err->code) {
    case ERR_UNAVAILABLE:
    case ERR_TIMEOUT:
    case ERR_THROTTLED:
        return opened && err->status != 0 ? WAITING_TO_LIST : WAITING_TO_WATCH;
    case ERR_UNAUTHORIZED:
    case ERR_FORBIDDEN:
        return opened ? WAITING_TO_LIST : WAITING_TO_WATCH;
    default:
        return WAITING_TO_LIST;
    }
}

static enum state pump_watch(struct kube_reflector *reflector, struct kube_watch *watch)
{
    int64_t opened = clock_mono(reflector->clock);
    bool any = false;
    for (;;) {
        auto_err struct err err = {0};
        struct kube_watch_event event = {0};
        int rc = kube_watch_next(watch, &event, &err);
        if (rc < 0)
            return after_watch_error(reflector, &err, true);
        if (rc == 0)
            break;
        any = true;
        bool complete = take_event(reflector, &event);
        kube_object_unref(event.object);
        if (!complete) {
            err_set(&err, ERR_INVALID, "a deleted object could not be read");
            note_trouble(reflector, "watch", &err);
            return WAITING_TO_LIST;
        }
    }
    if (any || clock_mono(reflector->clock) - opened >= SHORT_WATCH)
        return WATCHING;
    auto_err struct err err = {0};
    err_set(&err, ERR_UNAVAILABLE, "the server ended the watch at once");
    note_trouble(reflector, "watch", &err);
    return WAITING_TO_WATCH;
}

static enum state run_watch(struct kube_reflector *reflector)
{
    const struct kube_reflector_options *options = &reflector->options;
    struct kube_list_options list = options->list;
    list.from_cache = false;
    list.resource_version = reflector->version;
    auto_err struct err err = {0};
    struct kube_watch *watch = NULL;
    if (is_stopping(reflector))
        return STOPPED;
    if (kube_watch_open(options->client, kube_store_kind(options->store), &list, &watch, &err) != 0)
        return after_watch_error(reflector, &err, false);
    set_watch(reflector, watch);
    note_health(reflector);
    enum state next = pump_watch(reflector, watch);
    set_watch(reflector, NULL);
    kube_watch_close(watch);
    return next;
}

/* ---- probing ---- */

static char *probe_path(const struct kube_reflector *reflector)
{
    const struct kube_kind *kind = kube_store_kind(reflector->options.store);
    const char *namespace_ = kind->namespaced ? reflector->options.list.namespace_ : NULL;
    bool core = str_empty(kind->group);
    bool narrow = !str_empty(namespace_);
    return mem_printf("/%s%s/%s%s%s/%s?limit=1", core ? "api" : "apis/", kind->group, kind->version,
                      narrow ? "/namespaces/" : "", narrow ? namespace_ : "", kind->plural);
}

static int read_version(const struct kube_response *response, uint64_t *version, struct err *err)
{
    if (response->status != 200)
        return err_set_status(err, ERR_UNAVAILABLE, response->status, "the server answered %d", response->status);
    json_t *list = json_loadb(response->body, response->len, 0, NULL);
    const char *text = json_string_value(json_object_get(json_object_get(list, "metadata"), "resourceVersion"));
    int rc = 0;
    if (text == NULL || !str_parse_u64(text, version))
        rc = err_set(err, ERR_UNAVAILABLE, "the list has no resourceVersion");
    json_decref(list);
    return rc;
}

static enum state run_probe(struct kube_reflector *reflector)
{
    auto_err struct err err = {0};
    auto_free char *path = probe_path(reflector);
    struct kube_response response = {0};
    uint64_t version = 0;
    int rc = kube_request(reflector->options.client, "GET", path, NULL, NULL, &response, &err);
    if (rc == 0)
        rc = read_version(&response, &version, &err);
    kube_response_clear(&response);
    if (is_stopping(reflector) || err_is(&err, ERR_CANCELLED))
        return STOPPED;
    if (rc != 0) {
        note_trouble(reflector, "probe", &err);
        return WAITING_TO_WATCH;
    }
    note_contact(reflector, NULL);
    if (version >= reflector->version)
        return WATCHING;
    reflector->reset = true;
    return LISTING; /* we waited already */
}

/* ---- waiting ---- */

static bool wait_back_off(struct kube_reflector *reflector)
{
    int64_t now = clock_mono(reflector->clock);
    if (reflector->backoff == 0 || now - reflector->backoff_started > BACKOFF_RESET)
        reflector->backoff = BACKOFF_FIRST;
    int64_t delay = rng_jitter(reflector->rng, reflector->backoff, BACKOFF_JITTER);
    reflector->backoff = reflector->backoff < BACKOFF_LAST / 2 ? reflector->backoff * 2 : BACKOFF_LAST;
    reflector->backoff_started = now;
    log_v(3, "Waiting before the next try", kv_str("resource", plural(reflector)), kv_duration("delay", delay));

    pthread_mutex_lock(&reflector->lock);
    bool in_time = true;
    while (!reflector->stopping && in_time)
        in_time = clock_cond_wait(reflector->clock, &reflector->changed, &reflector->lock, now + delay);
    bool stopping = reflector->stopping;
    pthread_mutex_unlock(&reflector->lock);
    return !stopping;
}

static enum state run_wait_to_list(struct kube_reflector *reflector)
{
    return wait_back_off(reflector) ? LISTING : STOPPED;
}

static enum state run_wait_to_watch(struct kube_reflector *reflector)
{
    return wait_back_off(reflector) ? PROBING : STOPPED;
}

/* ---- the machine ---- */

#define TO(state) (1U << (state))
static const struct {
    const char *name;
    enum state (*run)(struct kube_reflector *reflector);
    unsigned moves;
} states[] = {
    [LISTING] = {"Listing", run_list, TO(WATCHING) | TO(WAITING_TO_LIST) | TO(STOPPED)},
    [WATCHING] = {"Watching", run_watch, TO(WATCHING) | TO(WAITING_TO_LIST) | TO(WAITING_TO_WATCH) | TO(STOPPED)},
    [WAITING_TO_LIST] = {"WaitingToList", run_wait_to_list, TO(LISTING) | TO(STOPPED)},
    [WAITING_TO_WATCH] = {"WaitingToWatch", run_wait_to_watch, TO(PROBING) | TO(STOPPED)},
    [PROBING] = {"Probing", run_probe, TO(WATCHING) | TO(WAITING_TO_WATCH) | TO(LISTING) | TO(STOPPED)},
    [STOPPED] = {"Stopped", NULL, 0},
};

static void move_to(struct kube_reflector *reflector, enum state next)
{
    if ((states[reflector->state].moves & TO(next)) == 0) {
        log_error("Forbidden move of a reflector", kv_str("from", states[reflector->state].name),
                  kv_str("to", states[next].name));
        abort();
    }
    log_v(3, "Reflector moves", kv_str("resource", plural(reflector)), kv_str("from", states[reflector->state].name),
          kv_str("to", states[next].name));
    pthread_mutex_lock(&reflector->lock);
    reflector->state = next;
    pthread_cond_broadcast(&reflector->changed);
    pthread_mutex_unlock(&reflector->lock);
}

static void *reflector_run(void *arg)
{
    struct kube_reflector *reflector = arg;
    while (reflector->state != STOPPED) /* only this thread changes it */
        move_to(reflector, states[reflector->state].run(reflector));
    return NULL;
}

struct kube_reflector *kube_reflector_start(const struct kube_reflector_options *options)
{
    struct kube_reflector *reflector = mem_new(struct kube_reflector);
    reflector->options = *options;
    reflector->clock = options->clock != NULL ? options->clock : clock_real();
    reflector->rng = options->rng != NULL ? options->rng : rng_real();
    reflector->state = LISTING;
    pthread_mutex_init(&reflector->lock, NULL);
    clock_cond_init(&reflector->changed);
    reflector->thread = thread_start("reflector", reflector_run, reflector);
    return reflector;
}

void kube_reflector_free(struct kube_reflector *reflector)
{
    if (reflector == NULL)
        return;
    pthread_mutex_lock(&reflector->lock);
    reflector->stopping = true;
    if (reflector->watch != NULL)
        kube_watch_cancel(reflector->watch);
    pthread_cond_broadcast(&reflector->changed);
    pthread_mutex_unlock(&reflector->lock);
    thread_join(reflector->thread);
    err_clear(&reflector->last_error);
    pthread_cond_destroy(&reflector->changed);
    pthread_mutex_destroy(&reflector->lock);
    free(reflector);
}

/* ---- what others ask ---- */

void kube_reflector_get_stats(const struct kube_reflector *reflector, struct kube_reflector_stats *stats)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&reflector->lock; /* logically const */
    pthread_mutex_lock(lock);
    *stats = reflector->stats;
    pthread_mutex_unlock(lock);
}

bool kube_reflector_synced(const struct kube_reflector *reflector)
{
    struct kube_reflector_stats stats;
    kube_reflector_get_stats(reflector, &stats);
    return stats.synced;
}

static int not_listed(const struct kube_reflector *reflector, enum err_code code, struct err *err)
{
    if (reflector->last_error.code == ERR_NONE)
        return err_set(err, code, "%s are not listed yet", plural(reflector));
    return err_set_status(err, code, reflector->last_error.status, "%s are not listed yet: %s", plural(reflector),
                          err_text(&reflector->last_error));
}

static void wake_waiters(void *arg)
{
    struct kube_reflector *reflector = arg;
    pthread_mutex_lock(&reflector->lock);
    pthread_cond_broadcast(&reflector->changed);
    pthread_mutex_unlock(&reflector->lock);
}

int kube_reflector_wait_synced(struct kube_reflector *reflector, struct stop *stop, struct err *err)
{
    if (stop != NULL)
        stop_on(stop, wake_waiters, reflector);
    pthread_mutex_lock(&reflector->lock);
    while (!reflector->stats.synced && reflector->state != STOPPED && (stop == NULL || !stop_requested(stop)))
        clock_cond_wait(reflector->clock, &reflector->changed, &reflector->lock, CLOCK_NEVER);
    int rc = reflector->stats.synced ? 0 : not_listed(reflector, ERR_CANCELLED, err);
    pthread_mutex_unlock(&reflector->lock);
    if (stop != NULL)
        stop_off(stop, wake_waiters, reflector);
    return rc;
}

int kube_reflector_check(void *arg, struct err *err)
{
    struct kube_reflector *reflector = arg;
    int rc = 0;
    pthread_mutex_lock(&reflector->lock);
    int64_t silence = clock_mono(reflector->clock) - reflector->stats.last_contact;
    if (!reflector->stats.synced)
        rc = not_listed(reflector, ERR_UNAVAILABLE, err);
    else if (reflector->watch == NULL && silence > CONTACT_GRACE) {
        char text[CLOCK_TEXT_SIZE];
        rc = err_set(err, ERR_UNAVAILABLE, "%s: no contact with the API server for %s: %s", plural(reflector),
                     clock_format_duration(silence / CLOCK_SECOND * CLOCK_SECOND, text),
                     err_text(&reflector->last_error));
    }
    pthread_mutex_unlock(&reflector->lock);
    return rc;
}
