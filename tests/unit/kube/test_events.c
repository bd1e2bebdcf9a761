/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/events.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/events_correlate.h"
#include "lib/kube/lru.h"
#include "tests/unit/kube/scripted_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define WALL (1600000000 * CLOCK_SECOND) /* 2020-09-13T12:26:40Z */

static const struct kube_reference claim = {.api_version = "v1",
                                            .kind = "PersistentVolumeClaim",
                                            .namespace_ = "ns1",
                                            .name = "data",
                                            .uid = "u-1",
                                            .resource_version = "7"};

/* ---- the decisions, without a server ---- */

struct desk {
    struct clock *clock;
    struct rng *rng;
    struct kube_event_correlator *correlator;
    struct kube_event_draft *last;
};

static int setup_desk(void **state)
{
    struct desk *desk = mem_new(struct desk);
    desk->clock = clock_fake_new(WALL);
    desk->rng = rng_seeded_new(1);
    desk->correlator = kube_event_correlator_new("tester", "host", desk->clock, desk->rng);
    *state = desk;
    return 0;
}

static int teardown_desk(void **state)
{
    struct desk *desk = *state;
    kube_event_draft_free(desk->last);
    kube_event_correlator_free(desk->correlator);
    rng_free(desk->rng);
    clock_free(desk->clock);
    free(desk);
    return 0;
}

static enum kube_event_action put(struct desk *desk, const struct kube_reference *reference, const char *type,
                                  const char *reason, const char *message)
{
    kube_event_draft_free(desk->last);
    clock_fake_advance(desk->clock, 1);
    desk->last = kube_event_draft_new(reference, type, reason, mem_strdup(message), clock_wall(desk->clock), desk->rng);
    return kube_event_correlate(desk->correlator, desk->last);
}

static void test_identical_ones_count_up(void **state)
{
    struct desk *desk = *state;
    assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_CREATE);
    auto_free char *name = mem_strdup(desk->last->name);
    assert_string_equal(name, "data.16345785d8a00001");
    assert_int_equal(desk->last->count, 1);
    clock_fake_advance(desk->clock, 30 * CLOCK_SECOND);
    assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_PATCH);
    assert_string_equal(desk->last->name, name);
    assert_int_equal(desk->last->count, 2);
    assert_int_equal(desk->last->first, WALL + 1);
    assert_int_equal(desk->last->last, WALL + 30 * CLOCK_SECOND + 2);
    /* anything else makes it another event */
    struct kube_reference other = claim;
    other.uid = "u-2";
    assert_int_equal(put(desk, &other, "Normal", "Waiting", "wait"), KUBE_EVENT_CREATE);
    assert_int_equal(put(desk, &claim, "Warning", "Waiting", "wait"), KUBE_EVENT_CREATE);
    assert_int_equal(put(desk, &claim, "Normal", "Failed", "wait"), KUBE_EVENT_CREATE);
    assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait!"), KUBE_EVENT_CREATE);
    other = claim;
    other.resource_version = "8"; /* but not this */
    assert_int_equal(put(desk, &other, "Normal", "Waiting", "wait"), KUBE_EVENT_PATCH);
    assert_int_equal(desk->last->count, 3);
}

static enum kube_event_action put_numbered(struct desk *desk, int number)
{
    char message[32];
    snprintf(message, sizeof(message), "attempt %d", number);
    return put(desk, &claim, "Warning", "Failed", message);
}

static void test_similar_ones_are_merged(void **state)
{
    struct desk *desk = *state;
    for (int i = 1; i <= 9; i++) {
        assert_int_equal(put_numbered(desk, i), KUBE_EVENT_CREATE);
        assert_int_equal(desk->last->count, 1);
    }
    assert_int_equal(put_numbered(desk, 10), KUBE_EVENT_CREATE);
    assert_string_equal(desk->last->message, "(combined from similar events): attempt 10");
    auto_free char *name = mem_strdup(desk->last->name);
    for (int i = 11; i <= 15; i++) {
        assert_int_equal(put_numbered(desk, i), KUBE_EVENT_PATCH);
        assert_string_equal(desk->last->name, name);
        assert_int_equal(desk->last->count, i - 9);
    }
    assert_string_equal(desk->last->message, "(combined from similar events): attempt 15");
    /* one that is still remembered goes its own way */
    assert_int_equal(put_numbered(desk, 15), KUBE_EVENT_CREATE);
    assert_string_equal(desk->last->message, "attempt 15");
    /* other reasons are not touched */
    assert_int_equal(put(desk, &claim, "Warning", "Lost", "gone"), KUBE_EVENT_CREATE);
    assert_string_equal(desk->last->message, "gone");
}

static void test_a_pause_ends_the_merging(void **state)
{
    struct desk *desk = *state;
    for (int i = 1; i <= 10; i++)
        put_numbered(desk, i);
    assert_string_equal(desk->last->message, "(combined from similar events): attempt 10");
    clock_fake_advance(desk->clock, 599 * CLOCK_SECOND);
    put_numbered(desk, 11);
    assert_string_equal(desk->last->message, "(combined from similar events): attempt 11");
    clock_fake_advance(desk->clock, 601 * CLOCK_SECOND);
    put_numbered(desk, 12);
    assert_string_equal(desk->last->message, "attempt 12");
}

static void test_spam_is_dropped(void **state)
{
    struct desk *desk = *state;
    assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_CREATE);
    for (int i = 2; i <= 25; i++)
        assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_PATCH);
    for (int i = 26; i <= 40; i++)
        assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_DROP);
    assert_int_equal(put(desk, &claim, "Normal", "Other", "another reason"), KUBE_EVENT_DROP);
    struct kube_reference other = claim;
    other.uid = "u-2";
    assert_int_equal(put(desk, &other, "Normal", "Waiting", "wait"), KUBE_EVENT_CREATE);
    assert_int_equal(put(desk, &claim, "Warning", "Waiting", "wait"), KUBE_EVENT_CREATE); /* a bucket per type */
    clock_fake_advance(desk->clock, 299 * CLOCK_SECOND);
    assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_DROP);
    clock_fake_advance(desk->clock, CLOCK_SECOND);
    assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_PATCH);
    assert_int_equal(desk->last->count, 42); /* dropped ones are counted */
    assert_int_equal(put(desk, &claim, "Normal", "Waiting", "wait"), KUBE_EVENT_DROP);
}

static void test_memory_is_bounded(void **state)
{
    struct desk *desk = *state;
    char name[32];
    struct kube_reference reference = claim;
    reference.name = name;
    for (int i = 0; i <= KUBE_EVENT_CACHE; i++) {
        snprintf(name, sizeof(name), "c-%d", i);
        assert_int_equal(put(desk, &reference, "Normal", "Waiting", "wait"), KUBE_EVENT_CREATE);
        if (i == 100) {
            snprintf(name, sizeof(name), "c-%d", 0); /* used again, so c-1 is the oldest now */
            assert_int_equal(put(desk, &reference, "Normal", "Waiting", "wait"), KUBE_EVENT_PATCH);
        }
    }
    snprintf(name, sizeof(name), "c-%d", 0);
    assert_int_equal(put(desk, &reference, "Normal", "Waiting", "wait"), KUBE_EVENT_PATCH);
    snprintf(name, sizeof(name), "c-%d", 1);
    assert_int_equal(put(desk, &reference, "Normal", "Waiting", "wait"), KUBE_EVENT_CREATE);
}

static void test_lru(void **state)
{
    (void)state;
    struct lru *lru = lru_new(2, free);
    lru_set(lru, "a", mem_strdup("1"));
    lru_set(lru, "b", mem_strdup("2"));
    lru_set(lru, "a", mem_strdup("3"));
    lru_set(lru, "c", mem_strdup("4"));
    assert_null(lru_get(lru, "b"));
    assert_string_equal(lru_get(lru, "a"), "3");
    lru_set(lru, "d", mem_strdup("5"));
    assert_null(lru_get(lru, "c"));
    assert_string_equal(lru_get(lru, "a"), "3");
    assert_int_equal(lru_len(lru), 2);
    lru_free(lru);
}

static void test_names(void **state)
{
    struct desk *desk = *state;
    auto_free char *plain = kube_event_name("pv-1", 0x1234abcd, desk->rng);
    assert_string_equal(plain, "pv-1.1234abcd");
    char name[300];
    /* with the dot and 16 digits exactly the limit of 253, then one more */
    memset(name, 'a', sizeof(name));
    name[236] = '\0';
    auto_free char *longest = kube_event_name(name, 0x1234567890abcdef, desk->rng);
    assert_int_equal(strlen(longest), 253);
    name[236] = 'a';
    name[237] = '\0';
    auto_free char *too_long = kube_event_name(name, 0x1234567890abcdef, desk->rng);
    assert_int_equal(strlen(too_long), 36);
    auto_free char *illegal = kube_event_name("Has_Underscore", 1, desk->rng);
    assert_int_equal(strlen(illegal), 36);
    assert_int_equal(illegal[8], '-');
}

static void test_messages_are_cleaned(void **state)
{
    (void)state;
    auto_free char *plain = kube_event_clean_message("all fine: \xc3\xa4\xe2\x82\xac");
    assert_string_equal(plain, "all fine: \xc3\xa4\xe2\x82\xac");
    auto_free char *broken = kube_event_clean_message("a\xff"
                                                      "b\xc3");
    assert_string_equal(broken, "a\xef\xbf\xbd"
                                "b\xef\xbf\xbd");
    char text[1100];
    memset(text, 'x', sizeof(text));
    memcpy(text + 1022, "\xe2\x82\xac", 3); /* would end at byte 1025 */
    text[sizeof(text) - 1] = '\0';
    auto_free char *cut = kube_event_clean_message(text);
    assert_int_equal(strlen(cut), 1022);
    memcpy(text + 1021, "\xe2\x82\xac", 3);
    auto_free char *fits = kube_event_clean_message(text);
    assert_int_equal(strlen(fits), 1024);
    auto_free char *empty = kube_event_clean_message("");
    assert_string_equal(empty, "");
}

static void test_json(void **state)
{
    struct desk *desk = *state;
    struct kube_event_draft *draft =
        kube_event_draft_new(&claim, "Warning", "Failed", mem_strdup("no \"luck\""), WALL + 123456789, desk->rng);
    json_t *json = kube_event_to_json(draft, "tester", "node-1");
    auto_free char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    assert_string_equal(
        text, "{\"apiVersion\":\"v1\",\"count\":1,\"eventTime\":null,\"firstTimestamp\":\"2020-09-13T12:26:40Z\","
              "\"involvedObject\":{\"apiVersion\":\"v1\",\"kind\":\"PersistentVolumeClaim\",\"name\":\"data\","
              "\"namespace\":\"ns1\",\"resourceVersion\":\"7\",\"uid\":\"u-1\"},\"kind\":\"Event\","
              "\"lastTimestamp\":\"2020-09-13T12:26:40Z\",\"message\":\"no \\\"luck\\\"\","
              "\"metadata\":{\"name\":\"data.16345785dffbcd15\",\"namespace\":\"ns1\"},\"reason\":\"Failed\","
              "\"reportingComponent\":\"tester\",\"reportingInstance\":\"node-1\","
              "\"source\":{\"component\":\"tester\",\"host\":\"node-1\"},\"type\":\"Warning\"}");
    draft->count = 3;
    draft->last = WALL + 60 * CLOCK_SECOND;
    json = kube_event_to_patch(draft);
    auto_free char *patch = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    assert_string_equal(patch,
                        "{\"count\":3,\"lastTimestamp\":\"2020-09-13T12:27:40Z\",\"message\":\"no \\\"luck\\\"\"}");
    json = kube_event_to_json(draft, "tester", NULL);
    assert_null(json_object_get(json_object_get(json, "source"), "host"));
    assert_string_equal(json_string_value(json_object_get(json, "reportingInstance")), "");
    json_decref(json);
    kube_event_draft_free(draft);
}

/* ---- with a server ---- */

struct fixture {
    struct clock *clock;
    struct rng *rng;
    struct scripted_server *server;
    struct kube_config *config;
    struct kube_client *client;
    struct kube_events *events;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool gate_closed;
    size_t served;    /* answered requests */
    size_t fail_from; /* this request number and the next fail_count ones get fail_status; 0 breaks the connection */
    size_t fail_count;
    int fail_status;
    char *content_type; /* of the last PATCH */
};

static void send_answer(struct fixture *f, struct scripted_connection *connection,
                        const struct scripted_request *request)
{
    size_t number = request->number;
    if (f->fail_from != 0 && number >= f->fail_from && number < f->fail_from + f->fail_count) {
        auto_free char *status =
            mem_printf("{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"scripted\","
                       "\"reason\":\"%s\",\"code\":%d}",
                       f->fail_status == 404 ? "NotFound" : "Forbidden", f->fail_status);
        if (f->fail_status == 0)
            scripted_break(connection);
        else
            scripted_reply(connection, f->fail_status, status);
        return;
    }
    /* what the server would answer, as far as the client looks at it */
    scripted_reply(connection, str_eq(request->method, "POST") ? 201 : 200,
                   "{\"kind\":\"Event\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"e\",\"namespace\":\"ns1\","
                   "\"uid\":\"e-1\",\"resourceVersion\":\"9\"},\"involvedObject\":{}}");
}

static void serve(void *arg, struct scripted_connection *connection, const struct scripted_request *request)
{
    struct fixture *f = arg;
    pthread_mutex_lock(&f->lock);
    while (f->gate_closed)
        pthread_cond_wait(&f->changed, &f->lock);
    if (str_eq(request->method, "PATCH")) {
        free(f->content_type);
        f->content_type = mem_strdup(request->content_type);
    }
    send_answer(f, connection, request);
    f->served++;
    pthread_mutex_unlock(&f->lock);
}

static void set_gate(struct fixture *f, bool closed)
{
    pthread_mutex_lock(&f->lock);
    f->gate_closed = closed;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void start_events(struct fixture *f, int port, int64_t request_timeout)
{
    f->client = scripted_client_new(port, request_timeout, &f->config);
    f->events = kube_events_new(
        &(struct kube_events_options){.client = f->client, .component = "tester", .clock = f->clock, .rng = f->rng});
}

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    f->clock = clock_fake_new(WALL);
    f->rng = rng_seeded_new(3);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->server = scripted_server_start(0, serve, f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    set_gate(f, false);
    kube_events_free(f->events, 0);
    kube_client_free(f->client);
    kube_config_free(f->config);
    scripted_server_stop(f->server);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    rng_free(f->rng);
    clock_free(f->clock);
    free(f->content_type);
    free(f);
    return 0;
}

static void assert_stats(struct fixture *f, struct kube_events_stats expected)
{
    struct kube_events_stats stats;
    kube_events_get_stats(f->events, &stats);
    assert_int_equal(stats.recorded, expected.recorded);
    assert_int_equal(stats.sent, expected.sent);
    assert_int_equal(stats.patched, expected.patched);
    assert_int_equal(stats.failed, expected.failed);
    assert_int_equal(stats.dropped_spam, expected.dropped_spam);
    assert_int_equal(stats.dropped_queue, expected.dropped_queue);
}

static void test_post_then_patch(void **state)
{
    struct fixture *f = *state;
    start_events(f, scripted_server_port(f->server), CLOCK_SECOND);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait for %s", "a volume");
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait for %s", "a volume");
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_string_equal(scripted_server_line(f->server, 1), "POST /api/v1/namespaces/ns1/events");
    assert_non_null(strstr(scripted_server_body(f->server, 1), "wait for a volume"));
    assert_string_equal(scripted_server_line(f->server, 2),
                        "PATCH /api/v1/namespaces/ns1/events/data.16345785d8a00000");
    assert_string_equal(f->content_type, "application/strategic-merge-patch+json");
    assert_non_null(strstr(scripted_server_body(f->server, 2), "\"count\""));
    assert_stats(f, (struct kube_events_stats){.recorded = 2, .sent = 1, .patched = 1});
}

static void test_cluster_scoped_object(void **state)
{
    struct fixture *f = *state;
    start_events(f, scripted_server_port(f->server), CLOCK_SECOND);
    auto_err struct err err = {0};
    json_t *json = json_pack("{s:{s:s,s:s,s:s},s:s}", "metadata", "name", "fast", "uid", "u-9", "resourceVersion", "12",
                             "provisioner", "x.csi");
    auto_unref struct kube_object *object =
        kube_object_decode(&kube_kind_class, json, &(struct kube_decode_options){0}, &err);
    json_decref(json);
    assert_non_null(object);
    kube_event_object(f->events, object, KUBE_EVENT_WARNING, "Odd", "%d times", 3);
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_string_equal(scripted_server_line(f->server, 1), "POST /api/v1/namespaces/default/events");
    json = json_loads(scripted_server_body(f->server, 1), 0, NULL);
    json_t *involved = json_object_get(json, "involvedObject");
    auto_free char *text = json_dumps(involved, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"apiVersion\":\"storage.k8s.io/v1\",\"kind\":\"StorageClass\",\"name\":\"fast\","
                              "\"resourceVersion\":\"12\",\"uid\":\"u-9\"}");
    json_decref(json);
}

static void test_patch_of_expired_event_creates_it(void **state)
{
    struct fixture *f = *state;
    f->fail_from = 2;
    f->fail_count = 1;
    f->fail_status = 404;
    start_events(f, scripted_server_port(f->server), CLOCK_SECOND);
    for (int i = 0; i < 2; i++)
        kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_int_equal(scripted_server_requests(f->server), 3);
    assert_string_equal(scripted_server_line(f->server, 3), "POST /api/v1/namespaces/ns1/events");
    assert_non_null(strstr(scripted_server_body(f->server, 3), "data.16345785d8a00000"));
    json_t *json = json_loads(scripted_server_body(f->server, 3), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "count")), 2);
    json_decref(json);
    assert_stats(f, (struct kube_events_stats){.recorded = 2, .sent = 2});
}

static void test_refusal_is_final(void **state)
{
    struct fixture *f = *state;
    f->fail_from = 1;
    f->fail_count = 1;
    f->fail_status = 403;
    start_events(f, scripted_server_port(f->server), CLOCK_SECOND);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Other", "go on");
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_int_equal(scripted_server_requests(f->server), 2);
    assert_stats(f, (struct kube_events_stats){.recorded = 2, .sent = 1, .failed = 1});
}

static void test_lost_answer_is_no_second_event(void **state)
{
    struct fixture *f = *state;
    f->fail_from = 1;
    f->fail_count = 1; /* the POST is read and the connection closed; the event is found when the client looks */
    start_events(f, scripted_server_port(f->server), CLOCK_SECOND);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_stats(f, (struct kube_events_stats){.recorded = 1, .sent = 1});
    size_t posts = 0;
    for (size_t i = 1; i <= scripted_server_requests(f->server); i++)
        posts += str_starts(scripted_server_line(f->server, i), "POST") ? 1 : 0;
    assert_int_equal(posts, 1);
}

/* As upstream: what the server said is final even when it is its own fault; the client has repeated what is worth it.
 */
static void test_server_error_is_final(void **state)
{
    struct fixture *f = *state;
    f->fail_from = 1;
    f->fail_count = 1;
    f->fail_status = 500;
    start_events(f, scripted_server_port(f->server), CLOCK_SECOND);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_stats(f, (struct kube_events_stats){.recorded = 1, .failed = 1});
}

/* Nobody listens on a port that was free a moment ago. */
static int dead_port(void)
{
    struct scripted_server *server = scripted_server_start(0, serve, NULL);
    int port = scripted_server_port(server);
    scripted_server_stop(server);
    return port;
}

static void test_silence_is_tried_twelve_times(void **state)
{
    struct fixture *f = *state;
    start_events(f, dead_port(), 20 * CLOCK_MS);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    /* the first pause is somewhere in 0 … 10 s, the ten others are 10 s */
    for (int i = 0; i < 11; i++) {
        assert_true(clock_fake_wait_for_waiters(f->clock, 1));
        if (i > 0) {
            clock_fake_advance(f->clock, 10 * CLOCK_SECOND - 1);
            assert_true(clock_fake_wait_for_waiters(f->clock, 1)); /* still the same pause */
            clock_fake_advance(f->clock, 1);
        } else {
            clock_fake_advance(f->clock, 10 * CLOCK_SECOND);
        }
    }
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_stats(f, (struct kube_events_stats){.recorded = 1, .failed = 1});
}

static void test_it_goes_on_when_the_server_is_back(void **state)
{
    struct fixture *f = *state;
    int port = dead_port();
    start_events(f, port, 20 * CLOCK_MS);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    struct scripted_server *late = scripted_server_start(port, serve, f);
    clock_fake_advance(f->clock, 10 * CLOCK_SECOND);
    bool in_time = scripted_server_wait(late, 1);
    bool sent = in_time && kube_events_flush(f->events, CLOCK_NEVER / 2);
    scripted_server_stop(late);
    assert_true(sent);
    assert_stats(f, (struct kube_events_stats){.recorded = 1, .sent = 1});
}

static void test_recording_never_blocks(void **state)
{
    struct fixture *f = *state;
    set_gate(f, true);
    start_events(f, scripted_server_port(f->server), 30 * CLOCK_SECOND);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "First", "wait");
    assert_true(scripted_server_wait(f->server, 1)); /* this one is under way */
    for (int i = 0; i < 1100; i++) {
        auto_free char *name = mem_printf("c-%d", i);
        struct kube_reference reference = claim;
        reference.name = name;
        kube_event_reference(f->events, &reference, KUBE_EVENT_NORMAL, "Waiting", "wait");
    }
    assert_stats(f, (struct kube_events_stats){.recorded = 1101, .dropped_queue = 100});
    set_gate(f, false);
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_stats(f, (struct kube_events_stats){.recorded = 1101, .sent = 1001, .dropped_queue = 100});
}

static void test_spam_does_not_reach_the_server(void **state)
{
    struct fixture *f = *state;
    start_events(f, scripted_server_port(f->server), CLOCK_SECOND);
    for (int i = 0; i < 40; i++)
        kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    assert_int_equal(scripted_server_requests(f->server), 25);
    assert_stats(f, (struct kube_events_stats){.recorded = 40, .sent = 1, .patched = 24, .dropped_spam = 15});
}

struct ending {
    struct fixture *fixture;
    int64_t drain;
};

static void *end_events(void *arg)
{
    struct ending *ending = arg;
    kube_events_free(ending->fixture->events, ending->drain);
    return NULL;
}

static void test_the_end_drains(void **state)
{
    struct fixture *f = *state;
    set_gate(f, true);
    start_events(f, scripted_server_port(f->server), 30 * CLOCK_SECOND);
    for (int i = 0; i < 5; i++) {
        char reason[16];
        snprintf(reason, sizeof(reason), "R%d", i);
        kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, reason, "wait");
    }
    assert_true(scripted_server_wait(f->server, 1));
    struct ending ending = {f, 5 * CLOCK_SECOND};
    pthread_t thread = thread_start("end", end_events, &ending);
    set_gate(f, false);
    thread_join(thread);
    f->events = NULL;
    assert_int_equal(scripted_server_requests(f->server), 5);
}

static void test_the_end_does_not_wait_for_ever(void **state)
{
    struct fixture *f = *state;
    start_events(f, dead_port(), 20 * CLOCK_MS);
    kube_event_reference(f->events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    kube_events_free(f->events, 0); /* in the middle of the pause, which nobody ends: the clock stands still */
    f->events = NULL;
}

static void discard(void *arg, const char *line, size_t len)
{
    (void)arg;
    (void)line;
    (void)len;
}

int main(void)
{
    log_set_sink(discard, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_identical_ones_count_up, setup_desk, teardown_desk),
        cmocka_unit_test_setup_teardown(test_similar_ones_are_merged, setup_desk, teardown_desk),
        cmocka_unit_test_setup_teardown(test_a_pause_ends_the_merging, setup_desk, teardown_desk),
        cmocka_unit_test_setup_teardown(test_spam_is_dropped, setup_desk, teardown_desk),
        cmocka_unit_test_setup_teardown(test_memory_is_bounded, setup_desk, teardown_desk),
        cmocka_unit_test(test_lru),
        cmocka_unit_test_setup_teardown(test_names, setup_desk, teardown_desk),
        cmocka_unit_test(test_messages_are_cleaned),
        cmocka_unit_test_setup_teardown(test_json, setup_desk, teardown_desk),
        cmocka_unit_test_setup_teardown(test_post_then_patch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cluster_scoped_object, setup, teardown),
        cmocka_unit_test_setup_teardown(test_patch_of_expired_event_creates_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusal_is_final, setup, teardown),
        cmocka_unit_test_setup_teardown(test_server_error_is_final, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_answer_is_no_second_event, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silence_is_tried_twelve_times, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_goes_on_when_the_server_is_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recording_never_blocks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_spam_does_not_reach_the_server, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_end_drains, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_end_does_not_wait_for_ever, setup, teardown),
    };
    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
