/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/reflector.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "tests/unit/kube/scripted_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#define LISTS "/apis/storage.k8s.io/v1/storageclasses?"
#define MAX_REPLIES 16

struct reply {
    int status;
    const char *json;
};

/* Lists, probes and openings of watches have a series of answers each; the last one of a series stays. A watch without
 * an answer serves the feed. */
struct fixture {
    struct clock *clock;
    struct rng *rng;
    struct scripted_server *server;
    struct kube_config *config;
    struct kube_client *client;
    struct kube_store *store;
    struct kube_reflector *reflector;
    struct scripted_feed *feed;
    struct reply lists[MAX_REPLIES], probes[MAX_REPLIES], watches[MAX_REPLIES];
    atomic_size_t list_count, probe_count, watch_count;
    pthread_mutex_t lock; /* for the store's changes */
    pthread_cond_t changed;
    size_t changes;
};

static struct reply next_reply(const struct reply *replies, atomic_size_t *count)
{
    size_t at = atomic_fetch_add(count, 1);
    while (at > 0 && (at >= MAX_REPLIES || replies[at].status == 0))
        at--;
    return replies[at];
}

static void serve(void *arg, struct scripted_connection *connection, const struct scripted_request *request)
{
    struct fixture *f = arg;
    struct reply reply;
    if (strstr(request->target, "watch=true") != NULL) {
        size_t at = atomic_fetch_add(&f->watch_count, 1);
        reply = at < MAX_REPLIES ? f->watches[at] : (struct reply){0};
        if (reply.status == 0) {
            scripted_stream(connection, f->feed);
            return;
        }
    } else if (str_ends(request->target, "?limit=1")) {
        reply = next_reply(f->probes, &f->probe_count);
    } else {
        reply = next_reply(f->lists, &f->list_count);
    }
    if (reply.status == 0)
        scripted_break(connection);
    else
        scripted_reply(connection, reply.status, reply.json);
}

static void on_change(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct fixture *f = arg;
    (void)old;
    (void)new_;
    pthread_mutex_lock(&f->lock);
    f->changes++;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void wait_changes(struct fixture *f, size_t changes)
{
    int64_t deadline = clock_mono(clock_real()) + 20 * CLOCK_SECOND;
    pthread_mutex_lock(&f->lock);
    while (f->changes < changes)
        assert_true(clock_cond_wait(clock_real(), &f->changed, &f->lock, deadline));
    pthread_mutex_unlock(&f->lock);
}

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    f->clock = clock_fake_new(0);
    f->rng = rng_seeded_new(5);
    f->feed = scripted_feed_new();
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->changed);
    f->server = scripted_server_start(0, serve, f);
    f->client = scripted_client_new(scripted_server_port(f->server), 50 * CLOCK_MS, &f->config);
    f->store = kube_store_new(&kube_kind_class);
    kube_store_listen(f->store, on_change, f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    kube_reflector_free(f->reflector);
    kube_store_free(f->store);
    kube_client_free(f->client);
    kube_config_free(f->config);
    scripted_server_stop(f->server);
    scripted_feed_free(f->feed);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    rng_free(f->rng);
    clock_free(f->clock);
    free(f);
    return 0;
}

static void start_with(struct fixture *f, bool (*keep)(void *arg, const struct kube_object *object))
{
    f->reflector = kube_reflector_start(&(struct kube_reflector_options){
        .client = f->client, .store = f->store, .keep = keep, .clock = f->clock, .rng = f->rng});
}

static void start(struct fixture *f)
{
    start_with(f, NULL);
    assert_int_equal(kube_reflector_wait_synced(f->reflector, NULL, NULL), 0);
}

/* What the store has, as "name@version:provisioner …" sorted by name. */
static void assert_store(struct fixture *f, const char *expected)
{
    auto_objects struct kube_object_list list = {0};
    auto_strv struct strv texts = {0};
    kube_store_list(f->store, &list);
    for (size_t i = 0; i < list.len; i++) {
        const struct kube_class *class = (const struct kube_class *)list.items[i];
        strv_add_take(&texts, mem_printf("%s@%llu:%s", class->object.meta.name,
                                         (unsigned long long)class->object.meta.resource_version, class->provisioner));
    }
    strv_sort(&texts);
    auto_free char *text = strv_join(&texts, " ");
    assert_string_equal(text, expected);
}

/* The wait of the back-off ends within the whole range of the first delay; 800 … 1600 ms. */
static void pass_first_back_off(struct fixture *f)
{
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    clock_fake_advance(f->clock, 1600 * CLOCK_MS);
}

static const char *last_request(struct fixture *f)
{
    return scripted_server_line(f->server, scripted_server_requests(f->server));
}

#define ITEM(name, version, provisioner)                                                                               \
    "{\"metadata\":{\"name\":\"" name "\",\"uid\":\"u-" name "\",\"resourceVersion\":\"" version                       \
    "\"},\"provisioner\":\"" provisioner "\"}"
#define LIST(version, items)                                                                                           \
    "{\"kind\":\"StorageClassList\",\"apiVersion\":\"storage.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"" version \
    "\"},\"items\":[" items "]}"
#define PAGE(version, items)                                                                                           \
    "{\"metadata\":{\"resourceVersion\":\"" version "\",\"continue\":\"more\"},\"items\":[" items "]}"
#define EVENT(type, item) "{\"type\":\"" type "\",\"object\":" item "}"
#define BOOKMARK(version) "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"" version "\"}}}"
#define STATUS(code, reason)                                                                                           \
    "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"scripted\",\"reason\":\"" reason  \
    "\",\"code\":" #code "}"
#define GONE STATUS(410, "Expired")

static void test_list_and_watch(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", ITEM("a", "10", "x") "," ITEM("b", "20", "x"))};
    start(f);
    assert_true(kube_reflector_synced(f->reflector));
    assert_store(f, "a@10:x b@20:x");
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("a", "101", "y")));
    scripted_feed_push(f->feed, EVENT("ADDED", ITEM("c", "102", "x")));
    scripted_feed_push(f->feed, EVENT("DELETED", ITEM("b", "103", "x")));
    wait_changes(f, 5);
    assert_store(f, "a@101:y c@102:x");
    assert_non_null(strstr(last_request(f), "resourceVersion=100"));
    assert_non_null(strstr(last_request(f), "allowWatchBookmarks=true"));
    struct kube_reflector_stats stats;
    kube_reflector_get_stats(f->reflector, &stats);
    assert_int_equal(stats.lists, 1);
    assert_int_equal(stats.watches, 1);
    assert_int_equal(stats.events, 3);
    assert_int_equal(stats.errors, 0);
}

static void test_dead_connection_resumes_from_the_bookmark(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", ITEM("a", "10", "x"))};
    f->probes[0] = (struct reply){200, LIST("190", ITEM("a", "10", "x"))};
    start(f);
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("a", "101", "y")));
    wait_changes(f, 2); /* the watch is open */
    scripted_feed_push(f->feed, BOOKMARK("150"));
    scripted_feed_break(f->feed);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    size_t before = scripted_server_requests(f->server);
    clock_fake_advance(f->clock, 800 * CLOCK_MS - 1); /* never earlier than this */
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    assert_int_equal(scripted_server_requests(f->server), before);
    clock_fake_advance(f->clock, 800 * CLOCK_MS + 1); /* never later */
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("a", "160", "z")));
    wait_changes(f, 3);
    assert_store(f, "a@160:z");
    assert_string_equal(scripted_server_line(f->server, before + 1), "GET " LISTS "limit=1");
    assert_non_null(strstr(last_request(f), "resourceVersion=150"));
    assert_int_equal(atomic_load(&f->list_count), 1);
}

static void test_orderly_end_goes_on_at_once(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", "")};
    start(f);
    scripted_feed_push(f->feed, EVENT("ADDED", ITEM("a", "101", "x")));
    scripted_feed_end(f->feed);
    scripted_feed_push(f->feed, EVENT("ADDED", ITEM("b", "102", "x")));
    wait_changes(f, 2);
    assert_non_null(strstr(last_request(f), "resourceVersion=101"));
    assert_int_equal(atomic_load(&f->list_count), 1);
    assert_int_equal(atomic_load(&f->probe_count), 0);
}

static void test_watches_that_end_at_once_do_not_spin(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", "")};
    f->probes[0] = (struct reply){200, LIST("100", "")};
    for (int i = 0; i < 3; i++)
        scripted_feed_end(f->feed);
    start(f);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    assert_int_equal(atomic_load(&f->watch_count), 1);
    clock_fake_advance(f->clock, 1600 * CLOCK_MS);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    assert_int_equal(atomic_load(&f->watch_count), 2);
}

static void test_gone_event_lists_again(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", ITEM("a", "10", "x") "," ITEM("b", "20", "x"))};
    f->lists[1] = (struct reply){200, LIST("300", ITEM("b", "20", "x") "," ITEM("c", "250", "x"))};
    start(f);
    scripted_feed_push_last(f->feed, EVENT("ERROR", GONE));
    pass_first_back_off(f);
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("c", "301", "y")));
    wait_changes(f, 2 + 3 + 1);        /* a is gone, b came again, c is new and then changed */
    assert_store(f, "b@20:x c@301:y"); /* a's deletion was never told */
    assert_int_equal(atomic_load(&f->list_count), 2);
    assert_non_null(strstr(last_request(f), "resourceVersion=300"));
}

static void test_other_error_events_list_again(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", "")};
    f->lists[1] = (struct reply){200, LIST("110", ITEM("a", "105", "x"))};
    start(f);
    scripted_feed_push_last(f->feed, EVENT("ERROR", STATUS(500, "InternalError")));
    pass_first_back_off(f);
    wait_changes(f, 1);
    assert_store(f, "a@105:x");
    assert_int_equal(atomic_load(&f->list_count), 2);
}

static void test_gone_at_opening_lists_again(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", "")};
    f->lists[1] = (struct reply){200, LIST("200", ITEM("a", "150", "x"))};
    f->watches[0] = (struct reply){410, GONE};
    start(f);
    pass_first_back_off(f);
    wait_changes(f, 1);
    assert_store(f, "a@150:x");
    assert_int_equal(atomic_load(&f->list_count), 2);
}

static void test_expired_pages_start_over(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, PAGE("100", ITEM("a", "10", "x"))};
    f->lists[1] = (struct reply){410, GONE};
    f->lists[2] = (struct reply){200, PAGE("200", ITEM("b", "110", "x"))};
    f->lists[3] = (struct reply){200, LIST("200", ITEM("c", "120", "x"))};
    start_with(f, NULL);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    assert_false(kube_reflector_synced(f->reflector));
    auto_err struct err err = {0};
    assert_int_equal(kube_reflector_check(f->reflector, &err), -1);
    assert_non_null(strstr(err_text(&err), "storageclasses are not listed yet: "));
    assert_non_null(strstr(err_text(&err), "410"));
    clock_fake_advance(f->clock, 1600 * CLOCK_MS);
    assert_int_equal(kube_reflector_wait_synced(f->reflector, NULL, NULL), 0);
    assert_store(f, "b@110:x c@120:x");
    assert_non_null(strstr(scripted_server_line(f->server, 2), "continue=more"));
    assert_null(strstr(scripted_server_line(f->server, 3), "continue="));
}

static void test_no_storm_while_the_server_is_away(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){500, STATUS(500, "InternalError")};
    start_with(f, NULL);
    int64_t low = 800 * CLOCK_MS;
    for (int i = 0; i < 10; i++) {
        assert_true(clock_fake_wait_for_waiters(f->clock, 1));
        assert_int_equal(atomic_load(&f->list_count), i + 1);
        clock_fake_advance(f->clock, low - 1);
        assert_true(clock_fake_wait_for_waiters(f->clock, 1));
        assert_int_equal(atomic_load(&f->list_count), i + 1);
        clock_fake_advance(f->clock, low + 1); /* jitter: up to as much again, 30 s at most */
        low = low * 2 < 15 * CLOCK_SECOND ? low * 2 : 15 * CLOCK_SECOND;
    }
    /* two healthy minutes later it starts at the bottom again */
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    f->lists[11] = (struct reply){200, LIST("100", "")};
    f->lists[12] = (struct reply){200, LIST("200", ITEM("a", "150", "x"))};
    clock_fake_advance(f->clock, 30 * CLOCK_SECOND);
    assert_int_equal(kube_reflector_wait_synced(f->reflector, NULL, NULL), 0);
    assert_true(scripted_server_wait(f->server, 13));
    clock_fake_advance(f->clock, 121 * CLOCK_SECOND);
    scripted_feed_push_last(f->feed, EVENT("ERROR", GONE));
    pass_first_back_off(f);
    wait_changes(f, 1);
}

static void test_refused_connection(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", ITEM("a", "10", "x"))};
    f->probes[0] = (struct reply){200, LIST("100", "")};
    start(f);
    assert_true(scripted_server_wait(f->server, 2));
    int port = scripted_server_port(f->server);
    scripted_server_stop(f->server); /* the process is gone, nobody listens */
    f->server = NULL;
    for (int i = 0; i < 4; i++) {
        assert_true(clock_fake_wait_for_waiters(f->clock, 1));
        clock_fake_advance(f->clock, 13 * CLOCK_SECOND);
    }
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    assert_int_equal(kube_reflector_check(f->reflector, NULL), 0); /* 52 s of silence are borne */
    clock_fake_advance(f->clock, 9 * CLOCK_SECOND);
    auto_err struct err err = {0};
    assert_int_equal(kube_reflector_check(f->reflector, &err), -1);
    assert_non_null(strstr(err_text(&err), "storageclasses: no contact with the API server for 1m1s: "));
    f->server = scripted_server_start(port, serve, f);
    size_t lists = atomic_load(&f->list_count);
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("a", "101", "y")));
    clock_fake_advance(f->clock, 30 * CLOCK_SECOND);
    wait_changes(f, 2);
    assert_int_equal(atomic_load(&f->list_count), lists); /* the watch went on, no list */
    assert_int_equal(kube_reflector_check(f->reflector, NULL), 0);
}

/* The database was restored from a backup: revisions start again below ours, objects are older or missing. */
static void test_history_that_starts_again(void **state)
{
    struct fixture *f = *state;
    f->lists[0] =
        (struct reply){200, LIST("1000", ITEM("a", "900", "new") "," ITEM("b", "950", "x") "," ITEM("c", "450", "x"))};
    f->probes[0] = (struct reply){200, LIST("500", ITEM("a", "400", "old"))};
    f->lists[1] = (struct reply){200, LIST("500", ITEM("a", "400", "old") "," ITEM("c", "450", "x"))};
    start(f);
    scripted_feed_push(f->feed, EVENT("DELETED", ITEM("c", "980", "x")));
    wait_changes(f, 3 + 1);
    scripted_feed_break(f->feed);
    pass_first_back_off(f);
    scripted_feed_push(f->feed, EVENT("ADDED", ITEM("d", "501", "x")));
    wait_changes(f, 4 + 3 + 1);
    assert_store(f, "a@400:old c@450:x d@501:x");
    assert_non_null(strstr(last_request(f), "resourceVersion=500"));
    assert_int_equal(atomic_load(&f->list_count), 2);
    /* and versions count as usual from there on */
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("a", "502", "newer")));
    wait_changes(f, 9);
    assert_store(f, "a@502:newer c@450:x d@501:x");
}

/* The same, found by a list: the server answered the resumed watch with 410. */
static void test_history_that_starts_again_found_by_a_list(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("1000", ITEM("a", "900", "new") "," ITEM("b", "950", "x"))};
    f->lists[1] = (struct reply){200, LIST("500", ITEM("a", "400", "old"))};
    start(f);
    scripted_feed_push_last(f->feed, EVENT("ERROR", GONE));
    pass_first_back_off(f);
    wait_changes(f, 2 + 2);
    assert_store(f, "a@400:old");
}

/* As recommended for a restore: revisions are moved on beyond what was ever seen, and the old ones count as compacted.
 * The objects themselves keep their old versions. */
static void test_restored_history_with_moved_revisions(void **state)
{
    struct fixture *f = *state;
    f->lists[0] =
        (struct reply){200, LIST("1000", ITEM("a", "900", "new") "," ITEM("b", "950", "x") "," ITEM("c", "450", "x"))};
    f->lists[1] = (struct reply){200, LIST("1000000", ITEM("a", "400", "old") "," ITEM("c", "450", "x"))};
    start(f);
    scripted_feed_push(f->feed, EVENT("DELETED", ITEM("c", "980", "x")));
    wait_changes(f, 3 + 1);
    scripted_feed_push_last(f->feed, EVENT("ERROR", GONE));
    pass_first_back_off(f);
    wait_changes(f, 4 + 3);
    assert_store(f, "a@400:old c@450:x");
}

static bool keep_x(void *arg, const struct kube_object *object)
{
    (void)arg;
    return str_eq(((const struct kube_class *)object)->provisioner, "x");
}

static void test_keep(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", ITEM("a", "10", "x") "," ITEM("b", "20", "y"))};
    start_with(f, keep_x);
    assert_int_equal(kube_reflector_wait_synced(f->reflector, NULL, NULL), 0);
    assert_store(f, "a@10:x");
    scripted_feed_push(f->feed, EVENT("ADDED", ITEM("c", "101", "y")));
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("b", "102", "x"))); /* comes into view */
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("a", "103", "y"))); /* leaves it */
    wait_changes(f, 3);
    assert_store(f, "b@102:x");
    scripted_feed_push(f->feed, EVENT("MODIFIED", ITEM("a", "104", "x"))); /* and comes back */
    wait_changes(f, 4);
    assert_store(f, "a@104:x b@102:x");
}

static void test_unreadable_deletion_lists_again(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", ITEM("a", "10", "x"))};
    f->lists[1] = (struct reply){200, LIST("200", "")};
    start(f);
    scripted_feed_push_last(f->feed, "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":5}}}");
    pass_first_back_off(f);
    wait_changes(f, 2);
    assert_store(f, "");
}

static void test_wait_is_ended_by_stop(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){403, STATUS(403, "Forbidden")};
    start_with(f, NULL);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    struct stop *stop = stop_new();
    stop_request(stop);
    auto_err struct err err = {0};
    assert_int_equal(kube_reflector_wait_synced(f->reflector, stop, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_non_null(strstr(err_text(&err), "storageclasses are not listed yet: "));
    assert_non_null(strstr(err_text(&err), "403 Forbidden"));
    stop_free(stop);
}

static void *request_stop(void *arg)
{
    stop_request(arg);
    return NULL;
}

static void test_running_wait_is_ended_by_stop(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){403, STATUS(403, "Forbidden")};
    start_with(f, NULL);
    struct stop *stop = stop_new();
    pthread_t thread = thread_start("stopper", request_stop, stop);
    assert_int_equal(kube_reflector_wait_synced(f->reflector, stop, NULL), -1);
    thread_join(thread);
    stop_free(stop);
}

static void count_lines(void *arg, const char *line, size_t len)
{
    struct strv *lines = arg;
    auto_free char *text = mem_strndup(line, len);
    if (strstr(text, "reflector.c") != NULL)
        strv_add(lines, text);
}

static void test_one_line_per_change_of_state(void **state)
{
    struct fixture *f = *state;
    auto_strv struct strv lines = {0};
    log_set_sink(count_lines, &lines);
    f->lists[0] = (struct reply){200, LIST("100", "")};
    f->probes[0] = (struct reply){500, STATUS(500, "InternalError")};
    f->probes[5] = (struct reply){200, LIST("100", "")};
    for (int i = 1; i < 5; i++)
        f->probes[i] = f->probes[0];
    start(f);
    scripted_feed_break(f->feed);
    for (int i = 0; i < 6; i++) {
        assert_true(clock_fake_wait_for_waiters(f->clock, 1));
        clock_fake_advance(f->clock, 30 * CLOCK_SECOND);
    }
    scripted_feed_push(f->feed, EVENT("ADDED", ITEM("a", "101", "x")));
    wait_changes(f, 1);
    kube_reflector_free(f->reflector);
    f->reflector = NULL;
    log_set_sink(NULL, NULL);
    assert_int_equal(lines.len, 2);
    assert_non_null(strstr(lines.items[0], "Lost contact with the API server"));
    assert_non_null(strstr(lines.items[0], "storageclasses"));
    assert_non_null(strstr(lines.items[1], "Watching again"));
}

static void test_free_while_waiting(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){500, STATUS(500, "InternalError")};
    start_with(f, NULL);
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    kube_reflector_free(f->reflector); /* does not wait for the back-off */
    f->reflector = NULL;
}

static void test_free_while_watching(void **state)
{
    struct fixture *f = *state;
    f->lists[0] = (struct reply){200, LIST("100", "")};
    start(f);
    assert_true(scripted_server_wait(f->server, 2));
    kube_reflector_free(f->reflector);
    f->reflector = NULL;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_list_and_watch),
        TEST(test_dead_connection_resumes_from_the_bookmark),
        TEST(test_orderly_end_goes_on_at_once),
        TEST(test_watches_that_end_at_once_do_not_spin),
        TEST(test_gone_event_lists_again),
        TEST(test_other_error_events_list_again),
        TEST(test_gone_at_opening_lists_again),
        TEST(test_expired_pages_start_over),
        TEST(test_no_storm_while_the_server_is_away),
        TEST(test_refused_connection),
        TEST(test_history_that_starts_again),
        TEST(test_history_that_starts_again_found_by_a_list),
        TEST(test_restored_history_with_moved_revisions),
        TEST(test_keep),
        TEST(test_unreadable_deletion_lists_again),
        TEST(test_wait_is_ended_by_stop),
        TEST(test_running_wait_is_ended_by_stop),
        TEST(test_one_line_per_change_of_state),
        TEST(test_free_while_waiting),
        TEST(test_free_while_watching),
    };
    return cmocka_run_group_tests_name("reflector", tests, NULL, NULL);
}
