/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   FOLLOWER ──acquired──► LEADER ──stop──► RELEASED
 *       └──────stop──────────│──────────────────▲
 *                            └──not renewed in time, or somebody else's──► LOST
 *
 * Two threads: one talks to the API server, the other only watches the clock, since a request may hang for longer than
 * the lease lasts. When we say that the lease is ours we count from before the renewal was sent; when we say that a
 * foreign one has expired, from after we saw it change. The times that other holders write are never compared with
 * ours.
 */
#include "lib/kube/leader.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/leader_record.h"

#include <ctype.h>

#define JITTER 1.2 /* upstream's factor for the retry period while following */
/* How far behind the last renewal may be before the health check of a leader fails: upstream's tolerance. */
#define HEALTH_GRACE (20 * CLOCK_SECOND)

enum state { FOLLOWER, LEADER, LOST, RELEASED };

#define TO(state) (1U << (state))
static const struct {
    const char *name;
    unsigned moves;
} states[] = {
    [FOLLOWER] = {"Follower", TO(LEADER) | TO(RELEASED)},
    [LEADER] = {"Leader", TO(LOST) | TO(RELEASED)},
    [LOST] = {"Lost", 0},
    [RELEASED] = {"Released", 0},
};

struct kube_leader {
    struct kube_leader_options options;
    char *namespace_, *name, *identity;
    struct leader_labels labels;
    struct clock *clock;
    struct rng *rng;
    pthread_t election, watchdog;

    pthread_mutex_t lock; /* for all below down to the next comment */
    pthread_cond_t changed;
    enum state state;
    bool stopping;
    bool watchdog_ends;
    int64_t renewed; /* mono, before the last successful renewal was sent */
    uint64_t slow_renewals;
    struct err last_error;

    /* only the election's thread */
    struct leader_record record; /* as last seen or written */
    int64_t observed;            /* mono, when `record` was seen to change */
    json_t *lease;               /* the whole object that `record` came from, for the next PUT; NULL = read it again */
    bool troubled;               /* logged */
};

/* ---- states ---- */

/* With the lock held. False when the move is not allowed (any more). */
static bool move_to(struct kube_leader *leader, enum state next)
{
    if ((states[leader->state].moves & TO(next)) == 0)
        return false;
    log_v(3, "Leader election moves", kv_str("lease", leader->name), kv_str("from", states[leader->state].name),
          kv_str("to", states[next].name));
    leader->state = next;
    pthread_cond_broadcast(&leader->changed);
    return true;
}

static enum state get_state(struct kube_leader *leader)
{
    pthread_mutex_lock(&leader->lock);
    enum state state = leader->state;
    pthread_mutex_unlock(&leader->lock);
    return state;
}

static void announce(struct kube_leader *leader, const char *what)
{
    if (leader->options.events == NULL)
        return;
    const char *uid = json_string_value(json_object_get(json_object_get(leader->lease, "metadata"), "uid"));
    struct kube_reference reference = {.api_version = "coordination.k8s.io/v1",
                                       .kind = "Lease",
                                       .namespace_ = leader->namespace_,
                                       .name = leader->name,
                                       .uid = uid};
    kube_event_reference(leader->options.events, &reference, KUBE_EVENT_NORMAL, "LeaderElection", "%s %s",
                         leader->identity, what);
}

/* After the move to LOST, from the thread that made it. */
static void tell_loss(struct kube_leader *leader, const char *why)
{
    pthread_mutex_lock(&leader->lock);
    auto_free char *last_error = mem_strdup(err_text(&leader->last_error));
    pthread_mutex_unlock(&leader->lock);
    log_error("Leader election lost", kv_str("lease", leader->name), kv_str("identity", leader->identity),
              kv_str("why", why), kv_str("err", last_error));
    if (leader->options.on_lost != NULL)
        leader->options.on_lost(leader->options.on_lost_arg);
}

/* ---- one round ---- */

static bool is_ours(const struct kube_leader *leader)
{
    return str_eq(leader->record.holder, leader->identity);
}

/* A lease is valid as long as its own duration says, counted on our clock. */
static bool is_valid(const struct kube_leader *leader, int64_t now)
{
    int64_t seconds = leader->record.duration_seconds;
    if (seconds <= 0)
        return false;
    return seconds > (CLOCK_NEVER - leader->observed) / CLOCK_SECOND || now < leader->observed + seconds * CLOCK_SECOND;
}

static void note_trouble(struct kube_leader *leader, const struct err *err)
{
    if (err->code == ERR_CANCELLED)
        return;
    pthread_mutex_lock(&leader->lock);
    err_copy(&leader->last_error, err);
    pthread_mutex_unlock(&leader->lock);
    if (err->code == ERR_CONFLICT || err->code == ERR_EXISTS) { /* in order: somebody was quicker */
        log_v(2, "Lease was changed by somebody else", kv_str("lease", leader->name), kv_err(err));
        return;
    }
    if (!leader->troubled)
        log_warn("Lease cannot be read or written, trying again", kv_str("lease", leader->name), kv_err(err));
    else
        log_v(2, "Lease still cannot be read or written", kv_str("lease", leader->name), kv_err(err));
    leader->troubled = true;
}

static void forget_lease(struct kube_leader *leader)
{
    json_decref(leader->lease);
    leader->lease = NULL;
}

/* The record as it would be with us as the holder. */
static struct leader_record our_record(const struct kube_leader *leader)
{
    int64_t now = clock_wall(leader->clock);
    struct leader_record record = {
        .holder = mem_strdup(leader->identity),
        .duration_seconds = leader->options.lease_duration / CLOCK_SECOND,
        .acquire_time = now,
        .renew_time = now,
    };
    if (is_ours(leader)) {
        record.acquire_time = leader->record.acquire_time;
        record.transitions = leader->record.transitions;
    } else if (leader->lease != NULL) {
        record.transitions = leader->record.transitions + 1;
    }
    return record;
}

/* PUTs leader->lease with this record; takes the record over when that worked. `sent` is from before. */
static int write_record(struct kube_leader *leader, struct leader_record *record, int64_t sent, struct err *err)
{
    auto_unref struct kube_object *reply = NULL;
    leader_record_apply(record, &leader->labels, leader->lease);
    if (kube_update(leader->options.client, &kube_kind_lease, leader->namespace_, leader->name, NULL, leader->lease,
                    &reply, err) != 0) {
        forget_lease(leader);
        return -1;
    }
    leader_lease_set_version(leader->lease, reply->meta.resource_version);
    leader_record_move(&leader->record, record);
    leader->observed = sent;
    return 0;
}

static int create_lease(struct kube_leader *leader, struct leader_record *record, int64_t sent, struct err *err)
{
    json_t *lease = leader_lease_new(leader->namespace_, leader->name);
    leader_record_apply(record, &leader->labels, lease);
    int rc = kube_create(leader->options.client, &kube_kind_lease, leader->namespace_, lease, NULL, err);
    json_decref(lease);
    if (rc == 0) {
        leader_record_move(&leader->record, record);
        leader->observed = sent;
    }
    return rc;
}

/* Reads the lease; its time of observation changes only when the record did. *found is false when there is none. */
static int read_lease(struct kube_leader *leader, bool *found, struct err *err)
{
    forget_lease(leader);
    *found = true;
    if (kube_get_json(leader->options.client, &kube_kind_lease, leader->namespace_, leader->name, &leader->lease,
                      err) != 0) {
        leader->lease = NULL;
        if (!err_is(err, ERR_NOT_FOUND))
            return -1;
        err_clear(err);
        leader_record_clear(&leader->record);
        *found = false;
        return 0;
    }
    auto_record struct leader_record record = {0};
    if (leader_record_read(leader->lease, &record, err) != 0) {
        forget_lease(leader);
        return -1;
    }
    if (!leader_record_equal(&record, &leader->record)) {
        if (!str_eq(record.holder, leader->record.holder) && !str_empty(record.holder))
            log_info("New leader", kv_str("lease", leader->name), kv_str("leader", record.holder));
        leader_record_move(&leader->record, &record);
        leader->observed = clock_mono(leader->clock);
    }
    return 0;
}

enum outcome { HELD, NOT_HELD, FOREIGN };

/* Acquires or renews once. FOREIGN: somebody else holds a valid lease. */
static enum outcome try_once(struct kube_leader *leader, int64_t sent, struct err *err)
{
    /* The usual renewal is one PUT of what we wrote last. */
    if (leader->lease != NULL && is_ours(leader) && is_valid(leader, sent)) {
        auto_record struct leader_record record = our_record(leader);
        auto_err struct err fast_error = {0};
        if (write_record(leader, &record, sent, &fast_error) == 0)
            return HELD;
        log_v(2, "Lease could not be renewed at once, reading it", kv_str("lease", leader->name), kv_err(&fast_error));
        if (err_is(&fast_error, ERR_CANCELLED)) {
            err_move(err, &fast_error);
            return NOT_HELD;
        }
    }
    bool found;
    if (read_lease(leader, &found, err) != 0)
        return NOT_HELD;
    int64_t now = clock_mono(leader->clock);
    if (found && !str_empty(leader->record.holder) && !is_ours(leader) && is_valid(leader, now))
        return FOREIGN;
    bool ours = found && is_ours(leader);
    auto_record struct leader_record record = our_record(leader);
    int rc = found ? write_record(leader, &record, now, err) : create_lease(leader, &record, now, err);
    if (rc == 0 && ours) {
        pthread_mutex_lock(&leader->lock);
        leader->slow_renewals++;
        pthread_mutex_unlock(&leader->lock);
    }
    return rc == 0 ? HELD : NOT_HELD;
}

static enum outcome try_and_note(struct kube_leader *leader)
{
    auto_err struct err err = {0};
    enum outcome outcome = try_once(leader, clock_mono(leader->clock), &err);
    if (outcome == NOT_HELD) {
        note_trouble(leader, &err);
        return outcome;
    }
    if (leader->troubled)
        log_info("Lease can be read and written again", kv_str("lease", leader->name));
    leader->troubled = false;
    if (outcome == HELD) {
        pthread_mutex_lock(&leader->lock);
        leader->renewed = leader->observed;
        pthread_cond_broadcast(&leader->changed); /* the watchdog's deadline moved */
        pthread_mutex_unlock(&leader->lock);
    }
    return outcome;
}

/* ---- the threads ---- */

/* Upstream tries for the renew deadline, from the first retry period after the last success on; the lease itself is the
 * outer limit. With the lock held. */
static int64_t loss_deadline(const struct kube_leader *leader)
{
    int64_t patience = leader->options.retry_period + leader->options.renew_deadline;
    return leader->renewed + (patience < leader->options.lease_duration ? patience : leader->options.lease_duration);
}

/* False when the election is over. */
static bool pause_for(struct kube_leader *leader, int64_t ns)
{
    int64_t until = clock_mono(leader->clock) + ns;
    bool in_time = true;
    pthread_mutex_lock(&leader->lock);
    while (!leader->stopping && leader->state != LOST && in_time)
        in_time = clock_cond_wait(leader->clock, &leader->changed, &leader->lock, until);
    bool go_on = !leader->stopping && leader->state != LOST;
    pthread_mutex_unlock(&leader->lock);
    return go_on;
}

static bool acquire(struct kube_leader *leader)
{
    log_info("Trying to acquire the lease", kv_str("lease", leader->name), kv_str("namespace", leader->namespace_),
             kv_str("identity", leader->identity));
    while (try_and_note(leader) != HELD)
        if (!pause_for(leader, rng_jitter(leader->rng, leader->options.retry_period, JITTER)))
            return false;
    pthread_mutex_lock(&leader->lock);
    move_to(leader, LEADER);
    pthread_mutex_unlock(&leader->lock);
    log_info("Acquired the lease", kv_str("lease", leader->name), kv_str("identity", leader->identity));
    announce(leader, "became leader");
    return true;
}

static void renew_until_the_end(struct kube_leader *leader)
{
    while (pause_for(leader, leader->options.retry_period)) {
        if (try_and_note(leader) != FOREIGN)
            continue;
        pthread_mutex_lock(&leader->lock);
        bool moved = move_to(leader, LOST);
        pthread_mutex_unlock(&leader->lock);
        if (moved)
            tell_loss(leader, "somebody else holds the lease");
    }
}

static void release(struct kube_leader *leader)
{
    auto_err struct err err = {0};
    auto_record struct leader_record record = {0};
    bool found = leader->lease != NULL;
    if (!found && read_lease(leader, &found, &err) != 0) {
        log_warn("Lease could not be released", kv_str("lease", leader->name), kv_err(&err));
        return;
    }
    if (!found || !is_ours(leader))
        return;
    record.holder = mem_strdup("");
    record.duration_seconds = 1;
    record.transitions = leader->record.transitions;
    record.acquire_time = record.renew_time = clock_wall(leader->clock);
    if (write_record(leader, &record, clock_mono(leader->clock), &err) != 0)
        log_warn("Lease could not be released", kv_str("lease", leader->name), kv_err(&err));
    else
        log_info("Released the lease", kv_str("lease", leader->name));
}

static void *election_run(void *arg)
{
    struct kube_leader *leader = arg;
    if (acquire(leader))
        renew_until_the_end(leader);
    pthread_mutex_lock(&leader->lock);
    bool led = leader->state == LEADER;
    bool ended = led || leader->state == LOST;
    move_to(leader, RELEASED); /* nobody may believe any longer that we lead */
    pthread_mutex_unlock(&leader->lock);
    if (led && leader->options.release_on_stop)
        release(leader);
    if (ended)
        announce(leader, "stopped leading");
    return NULL;
}

static void *watchdog_run(void *arg)
{
    struct kube_leader *leader = arg;
    bool lost = false;
    pthread_mutex_lock(&leader->lock);
    while (!leader->watchdog_ends && !lost) {
        int64_t deadline = leader->state == LEADER ? loss_deadline(leader) : CLOCK_NEVER;
        clock_cond_wait(leader->clock, &leader->changed, &leader->lock, deadline);
        if (leader->state == LEADER && clock_mono(leader->clock) >= loss_deadline(leader))
            lost = move_to(leader, LOST);
    }
    pthread_mutex_unlock(&leader->lock);
    if (lost)
        tell_loss(leader, "not renewed in time");
    return NULL;
}

/* ---- the public functions ---- */

static int check_options(const struct kube_leader_options *options, struct err *err)
{
    if (str_empty(options->identity))
        return err_set(err, ERR_INVALID, "leader election: the identity is empty");
    if (!kube_name_is_dns_label(options->namespace_ != NULL ? options->namespace_ : "") ||
        !kube_name_is_dns_subdomain(options->name != NULL ? options->name : ""))
        return err_set(err, ERR_INVALID, "leader election: \"%s/%s\" is no legal name of a lease",
                       options->namespace_ != NULL ? options->namespace_ : "",
                       options->name != NULL ? options->name : "");
    if (options->retry_period <= 0)
        return err_set(err, ERR_INVALID, "leader election: the retry period must be greater than zero");
    if (options->lease_duration < CLOCK_SECOND)
        return err_set(err, ERR_INVALID, "leader election: the lease duration must be at least one second");
    if (options->lease_duration <= options->renew_deadline)
        return err_set(err, ERR_INVALID, "leader election: the lease duration must be greater than the renew deadline");
    if ((double)options->renew_deadline <= JITTER * (double)options->retry_period)
        return err_set(err, ERR_INVALID,
                       "leader election: the renew deadline must be greater than 1.2 times the retry period");
    return 0;
}

int kube_leader_start(const struct kube_leader_options *options, struct kube_leader **result, struct err *err)
{
    if (check_options(options, err) != 0)
        return -1;
    struct kube_leader *leader = mem_new(struct kube_leader);
    leader->options = *options;
    leader->namespace_ = mem_strdup(options->namespace_);
    leader->name = mem_strdup(options->name);
    leader->identity = mem_strdup(options->identity);
    leader_labels_copy(&leader->labels, options->labels, options->label_count);
    leader->clock = options->clock != NULL ? options->clock : clock_real();
    leader->rng = options->rng != NULL ? options->rng : rng_real();
    pthread_mutex_init(&leader->lock, NULL);
    clock_cond_init(&leader->changed);
    leader->watchdog = thread_start("lease-watchdog", watchdog_run, leader);
    leader->election = thread_start("lease", election_run, leader);
    *result = leader;
    return 0;
}

void kube_leader_free(struct kube_leader *leader)
{
    if (leader == NULL)
        return;
    pthread_mutex_lock(&leader->lock);
    leader->stopping = true;
    pthread_cond_broadcast(&leader->changed);
    pthread_mutex_unlock(&leader->lock);
    thread_join(leader->election);
    pthread_mutex_lock(&leader->lock);
    leader->watchdog_ends = true; /* it watched over the last request too */
    pthread_cond_broadcast(&leader->changed);
    pthread_mutex_unlock(&leader->lock);
    thread_join(leader->watchdog);

    forget_lease(leader);
    leader_record_clear(&leader->record);
    leader_labels_clear(&leader->labels);
    err_clear(&leader->last_error);
    pthread_cond_destroy(&leader->changed);
    pthread_mutex_destroy(&leader->lock);
    free(leader->namespace_);
    free(leader->name);
    free(leader->identity);
    free(leader);
}

static void wake_waiters(void *arg)
{
    struct kube_leader *leader = arg;
    pthread_mutex_lock(&leader->lock);
    pthread_cond_broadcast(&leader->changed);
    pthread_mutex_unlock(&leader->lock);
}

int kube_leader_wait(struct kube_leader *leader, struct stop *stop, struct err *err)
{
    if (stop != NULL)
        stop_on(stop, wake_waiters, leader);
    pthread_mutex_lock(&leader->lock);
    while (leader->state == FOLLOWER && (stop == NULL || !stop_requested(stop)))
        clock_cond_wait(leader->clock, &leader->changed, &leader->lock, CLOCK_NEVER);
    int rc = leader->state == LEADER
                 ? 0
                 : err_set(err, ERR_CANCELLED, "the lease %s/%s was not acquired", leader->namespace_, leader->name);
    pthread_mutex_unlock(&leader->lock);
    if (stop != NULL)
        stop_off(stop, wake_waiters, leader);
    return rc;
}

bool kube_leader_leading(struct kube_leader *leader)
{
    return get_state(leader) == LEADER;
}

bool kube_leader_valid(struct kube_leader *leader)
{
    pthread_mutex_lock(&leader->lock);
    bool valid =
        leader->state == LEADER && clock_mono(leader->clock) < leader->renewed + leader->options.lease_duration;
    pthread_mutex_unlock(&leader->lock);
    return valid;
}

uint64_t kube_leader_slow_renewals(struct kube_leader *leader)
{
    pthread_mutex_lock(&leader->lock);
    uint64_t count = leader->slow_renewals;
    pthread_mutex_unlock(&leader->lock);
    return count;
}

int kube_leader_check(void *arg, struct err *err)
{
    struct kube_leader *leader = arg;
    int rc = 0;
    pthread_mutex_lock(&leader->lock);
    int64_t age = clock_mono(leader->clock) - leader->renewed;
    if ((leader->state == LEADER || leader->state == LOST) && age > leader->options.lease_duration + HEALTH_GRACE) {
        char text[CLOCK_TEXT_SIZE];
        rc = err_set(err, ERR_UNAVAILABLE, "failed election to renew leadership on lease %s: last renewal %s ago",
                     leader->name, clock_format_duration(age / CLOCK_SECOND * CLOCK_SECOND, text));
    }
    pthread_mutex_unlock(&leader->lock);
    return rc;
}

char *kube_leader_sanitize_name(const char *name)
{
    auto_str struct str out = {0};
    for (; *name != '\0'; name++) {
        unsigned char byte = (unsigned char)*name;
        if ((byte & 0xc0) != 0x80) /* one '-' for a character of several bytes */
            str_add_char(&out, byte < 128 && isalnum(byte) ? *name : '-');
    }
    if (out.len > 0 && out.data[out.len - 1] == '-')
        str_add_char(&out, 'X');
    return str_take(&out);
}
