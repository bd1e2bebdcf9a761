/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/leader.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/leader_record.h"
#include "tests/unit/kube/scripted_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#define WALL (1600000000 * CLOCK_SECOND)
#define PATH "/apis/coordination.k8s.io/v1/namespaces/ns1/leases"

/* One Lease, kept as the API server does: versions, conflicts, created and absent. */
struct fixture {
    struct clock *clock;
    struct rng *rng;
    struct scripted_server *server;
    struct kube_config *config;
    struct kube_client *client;
    struct kube_events *events;
    struct kube_leader *leader;
    atomic_int losses;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    json_t *lease; /* NULL: there is none */
    uint64_t version;
    int fail;   /* answer everything with this status */
    bool hang;  /* answer nothing */
    int writes; /* that were accepted */
};

static void set_version(struct fixture *f)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)++f->version);
    json_object_set_new(json_object_get(f->lease, "metadata"), "resourceVersion", json_string(text));
}

static const char *version_in(const json_t *lease)
{
    return json_string_value(json_object_get(json_object_get(lease, "metadata"), "resourceVersion"));
}

static void reply_status(struct scripted_connection *connection, int status, const char *reason)
{
    auto_free char *text = mem_printf("{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\","
                                      "\"message\":\"scripted\",\"reason\":\"%s\",\"code\":%d}",
                                      reason, status);
    scripted_reply(connection, status, text);
}

static void reply_lease(struct fixture *f, struct scripted_connection *connection, int status)
{
    auto_free char *text = json_dumps(f->lease, JSON_COMPACT);
    scripted_reply(connection, status, text);
}

static void write_lease(struct fixture *f, struct scripted_connection *connection,
                        const struct scripted_request *request)
{
    json_t *body = json_loads(request->body, 0, NULL);
    bool post = str_eq(request->method, "POST");
    if (post && f->lease != NULL) {
        reply_status(connection, 409, "AlreadyExists");
    } else if (!post && f->lease == NULL) {
        reply_status(connection, 404, "NotFound");
    } else if (!post && !str_eq(version_in(body), version_in(f->lease))) {
        reply_status(connection, 409, "Conflict");
    } else {
        if (f->lease != NULL)
            json_decref(f->lease);
        f->lease = json_incref(body);
        json_object_set_new(json_object_get(f->lease, "metadata"), "uid", json_string("lease-uid"));
        set_version(f);
        f->writes++;
        pthread_cond_broadcast(&f->changed);
        reply_lease(f, connection, post ? 201 : 200);
    }
    json_decref(body);
}

static void serve(void *arg, struct scripted_connection *connection, const struct scripted_request *request)
{
    struct fixture *f = arg;
    pthread_mutex_lock(&f->lock);
    while (f->hang)
        pthread_cond_wait(&f->changed, &f->lock);
    if (f->fail != 0)
        reply_status(connection, f->fail, "InternalError");
    else if (strstr(request->target, "/events") != NULL)
        scripted_reply(connection, 201,
                       "{\"metadata\":{\"name\":\"e\",\"namespace\":\"ns1\",\"uid\":\"e\",\"resourceVersion\":\"1\"},"
                       "\"involvedObject\":{}}");
    else if (!str_eq(request->method, "GET"))
        write_lease(f, connection, request);
    else if (f->lease == NULL)
        reply_status(connection, 404, "NotFound");
    else
        reply_lease(f, connection, 200);
    pthread_mutex_unlock(&f->lock);
}

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    f->clock = clock_fake_new(WALL);
    f->rng = rng_seeded_new(11);
    f->version = 100;
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->changed);
    f->server = scripted_server_start(0, serve, f);
    f->client = scripted_client_new(scripted_server_port(f->server), 5 * CLOCK_SECOND, &f->config);
    *state = f;
    return 0;
}

static void set_trouble(struct fixture *f, int fail, bool hang)
{
    pthread_mutex_lock(&f->lock);
    f->fail = fail;
    f->hang = hang;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    set_trouble(f, 0, false);
    kube_leader_free(f->leader);
    kube_events_free(f->events, 0);
    kube_client_free(f->client);
    kube_config_free(f->config);
    scripted_server_stop(f->server);
    json_decref(f->lease);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    rng_free(f->rng);
    clock_free(f->clock);
    free(f);
    return 0;
}

static void on_lost(void *arg)
{
    struct fixture *f = arg;
    pthread_mutex_lock(&f->lock);
    atomic_fetch_add(&f->losses, 1);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static struct kube_leader_options options_for(struct fixture *f, const char *identity)
{
    return (struct kube_leader_options){.client = f->client,
                                        .namespace_ = "ns1",
                                        .name = "berth",
                                        .identity = identity,
                                        .lease_duration = 15 * CLOCK_SECOND,
                                        .renew_deadline = 10 * CLOCK_SECOND,
                                        .retry_period = 2 * CLOCK_SECOND,
                                        .events = f->events,
                                        .clock = f->clock,
                                        .rng = f->rng,
                                        .on_lost = on_lost,
                                        .on_lost_arg = f};
}

static struct kube_leader *start(struct fixture *f, const char *identity)
{
    struct kube_leader *leader = NULL;
    auto_err struct err err = {0};
    struct kube_leader_options options = options_for(f, identity);
    options.release_on_stop = true;
    assert_int_equal(kube_leader_start(&options, &leader, &err), 0);
    return leader;
}

static void lead(struct fixture *f)
{
    f->leader = start(f, "me");
    assert_int_equal(kube_leader_wait(f->leader, NULL, NULL), 0);
    assert_true(clock_fake_wait_for_waiters(f->clock, 2)); /* the pause and the watchdog */
}

/* Time goes on in steps of a second; between them all waits are in place again. */
static void pass(struct fixture *f, int seconds, int waiters)
{
    for (int i = 0; i < seconds; i++) {
        assert_true(clock_fake_wait_for_waiters(f->clock, waiters));
        clock_fake_advance(f->clock, CLOCK_SECOND);
    }
    assert_true(clock_fake_wait_for_waiters(f->clock, waiters));
}

static void wait_losses(struct fixture *f, int losses)
{
    int64_t deadline = clock_mono(clock_real()) + 20 * CLOCK_SECOND;
    pthread_mutex_lock(&f->lock);
    while (atomic_load(&f->losses) < losses)
        assert_true(clock_cond_wait(clock_real(), &f->changed, &f->lock, deadline));
    pthread_mutex_unlock(&f->lock);
}

/* Puts a lease on the server, as another client would write it. */
static void put_lease(struct fixture *f, const char *holder, int64_t seconds, const char *renewed)
{
    pthread_mutex_lock(&f->lock);
    json_decref(f->lease);
    f->lease = json_pack("{s:s, s:s, s:{s:s, s:s, s:s, s:{s:s}}, s:{s:s, s:I, s:s, s:s, s:i, s:s}}", "apiVersion",
                         "coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", "berth", "namespace", "ns1",
                         "uid", "lease-uid", "labels", "team", "storage", "spec", "holderIdentity", holder,
                         "leaseDurationSeconds", (json_int_t)seconds, "acquireTime", "2001-01-01T00:00:00.000000Z",
                         "renewTime", renewed, "leaseTransitions", 4, "strategy", "from a newer server");
    set_version(f);
    pthread_mutex_unlock(&f->lock);
}

static void assert_lease(struct fixture *f, const char *holder, int64_t seconds, int64_t transitions)
{
    pthread_mutex_lock(&f->lock);
    auto_record struct leader_record record = {0};
    int rc = leader_record_read(f->lease, &record, NULL);
    pthread_mutex_unlock(&f->lock);
    assert_int_equal(rc, 0);
    assert_string_equal(record.holder, holder);
    assert_int_equal(record.duration_seconds, seconds);
    assert_int_equal(record.transitions, transitions);
}

static const char *spec_text(struct fixture *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->lease, "spec"), key));
}

static void test_create_and_renew(void **state)
{
    struct fixture *f = *state;
    struct kube_pair label = {"app", "berth"};
    struct kube_leader_options options = options_for(f, "me");
    options.labels = &label;
    options.label_count = 1;
    assert_int_equal(kube_leader_start(&options, &f->leader, NULL), 0);
    assert_int_equal(kube_leader_wait(f->leader, NULL, NULL), 0);
    assert_true(kube_leader_leading(f->leader));
    assert_true(kube_leader_valid(f->leader));
    assert_string_equal(scripted_server_line(f->server, 2), "POST " PATH);
    auto_free char *sent = mem_strdup(scripted_server_body(f->server, 2));
    assert_non_null(strstr(sent, "\"app\""));
    assert_lease(f, "me", 15, 0);
    assert_string_equal(spec_text(f, "acquireTime"), "2020-09-13T12:26:40.000000Z");
    assert_string_equal(spec_text(f, "renewTime"), "2020-09-13T12:26:40.000000Z");
    pass(f, 20, 2);
    assert_true(kube_leader_valid(f->leader));
    assert_int_equal(f->writes, 1 + 10);
    assert_string_equal(spec_text(f, "acquireTime"), "2020-09-13T12:26:40.000000Z");
    assert_string_equal(spec_text(f, "renewTime"), "2020-09-13T12:27:00.000000Z");
    assert_lease(f, "me", 15, 0);
    /* the first renewal had to read what the server made of the object, all others were one PUT each */
    assert_int_equal(scripted_server_requests(f->server), 2 + 2 + 9);
    assert_int_equal(kube_leader_slow_renewals(f->leader), 1);
    assert_int_equal(atomic_load(&f->losses), 0);
    assert_int_equal(kube_leader_check(f->leader, NULL), 0);
}

static void test_unknown_fields_stay(void **state)
{
    struct fixture *f = *state;
    put_lease(f, "", 1, "2001-01-01T00:00:00.000000Z");
    lead(f);
    pass(f, 6, 2);
    assert_lease(f, "me", 15, 5); /* somebody led before us */
    assert_string_equal(spec_text(f, "strategy"), "from a newer server");
    json_t *labels = json_object_get(json_object_get(f->lease, "metadata"), "labels");
    assert_string_equal(json_string_value(json_object_get(labels, "team")), "storage");
}

static void test_same_identity_comes_back_at_once(void **state)
{
    struct fixture *f = *state;
    put_lease(f, "me", 15, "2020-09-13T12:26:39.000000Z");
    lead(f);
    assert_lease(f, "me", 15, 4);
    assert_string_equal(spec_text(f, "acquireTime"), "2001-01-01T00:00:00.000000Z");
}

/* Whatever time the other side writes: its lease counts for its duration from when we first saw it. */
static void test_foreign_lease_expires_on_our_clock(void **state)
{
    struct fixture *f = *state;
    const char *times[] = {"1999-01-01T00:00:00.000000Z", "2020-09-13T12:26:40.000000Z", "2099-01-01T00:00:00.000000Z"};
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        put_lease(f, "other", 30, times[i]);
        f->leader = start(f, "me");
        pass(f, 29, 1); /* the other one's duration, not ours */
        assert_false(kube_leader_leading(f->leader));
        assert_false(kube_leader_valid(f->leader));
        int more = 0; /* a retry is due at the latest 2.2 times the period later */
        for (; !kube_leader_leading(f->leader) && more <= 6; more++)
            pass(f, 1, 1);
        assert_in_range(more, 1, 6);
        assert_lease(f, "me", 15, 5);
        kube_leader_free(f->leader);
        f->leader = NULL;
    }
}

static void test_foreign_holder_that_renews_is_followed(void **state)
{
    struct fixture *f = *state;
    put_lease(f, "other", 15, "1999-01-01T00:00:00.000000Z");
    f->leader = start(f, "me");
    for (int i = 0; i < 8; i++) {
        pass(f, 10, 1);
        char text[CLOCK_TEXT_SIZE]; /* its clock runs backwards even */
        put_lease(f, "other", 15, clock_format_rfc3339((1000 - i) * CLOCK_SECOND, true, text));
    }
    assert_false(kube_leader_leading(f->leader));
    assert_int_equal(f->writes, 0);
}

static void test_two_electors(void **state)
{
    struct fixture *f = *state;
    lead(f);
    struct kube_leader *second = start(f, "second");
    pass(f, 60, 3);
    assert_true(kube_leader_leading(f->leader));
    assert_false(kube_leader_leading(second));
    /* in good order: at the second one's next try */
    kube_leader_free(f->leader);
    f->leader = second;
    int seconds = 0;
    for (; !kube_leader_leading(second) && seconds < 6; seconds++)
        pass(f, 1, 1);
    assert_true(kube_leader_leading(second));
    assert_lease(f, "second", 15, 1);
    assert_int_equal(atomic_load(&f->losses), 0);
}

static void test_release(void **state)
{
    struct fixture *f = *state;
    lead(f);
    pass(f, 4, 2);
    kube_leader_free(f->leader);
    f->leader = NULL;
    assert_lease(f, "", 1, 0);
    assert_string_equal(spec_text(f, "renewTime"), "2020-09-13T12:26:44.000000Z");
}

static void test_no_release_unless_asked_for(void **state)
{
    struct fixture *f = *state;
    struct kube_leader_options options = options_for(f, "me");
    assert_int_equal(kube_leader_start(&options, &f->leader, NULL), 0);
    assert_int_equal(kube_leader_wait(f->leader, NULL, NULL), 0);
    kube_leader_free(f->leader);
    f->leader = NULL;
    assert_lease(f, "me", 15, 0);
}

static void test_follower_releases_nothing(void **state)
{
    struct fixture *f = *state;
    put_lease(f, "other", 15, "2020-09-13T12:26:40.000000Z");
    f->leader = start(f, "me");
    pass(f, 5, 1);
    kube_leader_free(f->leader);
    f->leader = NULL;
    assert_lease(f, "other", 15, 4);
    assert_int_equal(f->writes, 0);
}

static void test_lost_when_the_server_fails(void **state)
{
    struct fixture *f = *state;
    lead(f);
    pass(f, 4, 2); /* last renewal: now */
    set_trouble(f, 500, false);
    pass(f, 11, 2);
    assert_true(kube_leader_leading(f->leader));
    assert_true(kube_leader_valid(f->leader));
    clock_fake_advance(f->clock, CLOCK_SECOND); /* retry period and renew deadline are over */
    wait_losses(f, 1);
    assert_false(kube_leader_leading(f->leader));
    assert_false(kube_leader_valid(f->leader));
    auto_err struct err err = {0};
    assert_int_equal(kube_leader_wait(f->leader, NULL, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    /* it does not come back by itself */
    set_trouble(f, 0, false);
    clock_fake_advance(f->clock, 60 * CLOCK_SECOND);
    assert_false(kube_leader_leading(f->leader));
    kube_leader_free(f->leader);
    f->leader = NULL;
    assert_int_equal(atomic_load(&f->losses), 1);
    assert_lease(f, "me", 15, 0); /* what we lost we do not write to */
}

static void test_short_trouble_is_borne(void **state)
{
    struct fixture *f = *state;
    lead(f);
    pass(f, 4, 2);
    set_trouble(f, 500, false);
    pass(f, 9, 2);
    set_trouble(f, 0, false);
    pass(f, 30, 2);
    assert_true(kube_leader_valid(f->leader));
    assert_int_equal(atomic_load(&f->losses), 0);
    assert_lease(f, "me", 15, 0);
}

static void test_lost_while_a_request_hangs(void **state)
{
    struct fixture *f = *state;
    lead(f);
    pass(f, 4, 2);
    size_t requests = scripted_server_requests(f->server);
    set_trouble(f, 0, true);
    clock_fake_advance(f->clock, 2 * CLOCK_SECOND);
    assert_true(scripted_server_wait(f->server, requests + 1));
    assert_true(clock_fake_wait_for_waiters(f->clock, 1)); /* only the watchdog is left */
    clock_fake_advance(f->clock, 9 * CLOCK_SECOND);
    assert_true(kube_leader_leading(f->leader));
    clock_fake_advance(f->clock, CLOCK_SECOND);
    wait_losses(f, 1);
    assert_false(kube_leader_leading(f->leader));
}

static void test_lost_to_somebody_else(void **state)
{
    struct fixture *f = *state;
    lead(f);
    pass(f, 4, 2);
    put_lease(f, "thief", 15, "2020-09-13T12:26:40.000000Z");
    clock_fake_advance(f->clock, 2 * CLOCK_SECOND);
    wait_losses(f, 1);
    assert_false(kube_leader_valid(f->leader));
    kube_leader_free(f->leader);
    f->leader = NULL;
    assert_lease(f, "thief", 15, 4);
    assert_int_equal(atomic_load(&f->losses), 1);
}

static void test_conflict_is_read_and_renewed(void **state)
{
    struct fixture *f = *state;
    lead(f);
    pass(f, 4, 2);
    uint64_t slow = kube_leader_slow_renewals(f->leader);
    pthread_mutex_lock(&f->lock); /* somebody labels the lease */
    json_object_set_new(json_object_get(f->lease, "metadata"), "labels", json_pack("{s:s}", "new", "label"));
    set_version(f);
    pthread_mutex_unlock(&f->lock);
    pass(f, 20, 2);
    assert_true(kube_leader_valid(f->leader));
    assert_int_equal(kube_leader_slow_renewals(f->leader), slow + 1);
    json_t *labels = json_object_get(json_object_get(f->lease, "metadata"), "labels");
    assert_string_equal(json_string_value(json_object_get(labels, "new")), "label");
}

static void test_deleted_lease_is_made_again(void **state)
{
    struct fixture *f = *state;
    lead(f);
    pass(f, 4, 2);
    pthread_mutex_lock(&f->lock);
    json_decref(f->lease);
    f->lease = NULL;
    pthread_mutex_unlock(&f->lock);
    pass(f, 20, 2);
    assert_true(kube_leader_valid(f->leader));
    assert_lease(f, "me", 15, 0);
    assert_string_equal(spec_text(f, "acquireTime"), "2020-09-13T12:26:46.000000Z");
}

static void test_nonsense_in_the_lease_is_no_crash(void **state)
{
    struct fixture *f = *state;
    f->lease = json_loads("{\"metadata\":{\"name\":\"berth\",\"namespace\":\"ns1\",\"uid\":\"u\",\"resourceVersion\":"
                          "\"7\"},\"spec\":{\"holderIdentity\":5,\"leaseDurationSeconds\":\"x\"}}",
                          0, NULL);
    f->leader = start(f, "me");
    pass(f, 10, 1);
    assert_false(kube_leader_leading(f->leader));
    assert_int_equal(f->writes, 0);
    put_lease(f, "", 1, "2001-01-01T00:00:00.000000Z"); /* repaired */
    assert_true(clock_fake_wait_for_waiters(f->clock, 1));
    clock_fake_advance(f->clock, 5 * CLOCK_SECOND);
    assert_int_equal(kube_leader_wait(f->leader, NULL, NULL), 0);
}

static void test_events_tell(void **state)
{
    struct fixture *f = *state;
    f->events =
        kube_events_new(&(struct kube_events_options){.client = f->client, .component = "berth/me", .clock = f->clock});
    put_lease(f, "", 1, "2001-01-01T00:00:00.000000Z");
    lead(f);
    kube_leader_free(f->leader);
    f->leader = NULL;
    assert_true(kube_events_flush(f->events, CLOCK_NEVER / 2));
    auto_str struct str all = {0};
    for (size_t i = 1; i <= scripted_server_requests(f->server); i++)
        if (strstr(scripted_server_line(f->server, i), "/namespaces/ns1/events") != NULL)
            str_add(&all, scripted_server_body(f->server, i));
    assert_non_null(strstr(str_text(&all), "me became leader"));
    assert_non_null(strstr(str_text(&all), "me stopped leading"));
    assert_non_null(strstr(str_text(&all), "LeaderElection"));
    assert_non_null(strstr(str_text(&all), "lease-uid"));
}

static void test_wait_is_ended_by_stop(void **state)
{
    struct fixture *f = *state;
    put_lease(f, "other", 15, "2020-09-13T12:26:40.000000Z");
    f->leader = start(f, "me");
    struct stop *stop = stop_new();
    stop_request(stop);
    auto_err struct err err = {0};
    assert_int_equal(kube_leader_wait(f->leader, stop, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    stop_free(stop);
}

static void test_health_check(void **state)
{
    struct fixture *f = *state;
    lead(f);
    set_trouble(f, 0, true);
    clock_fake_advance(f->clock, 35 * CLOCK_SECOND);
    wait_losses(f, 1);
    assert_int_equal(kube_leader_check(f->leader, NULL), 0); /* lease duration and 20 s of tolerance */
    clock_fake_advance(f->clock, CLOCK_SECOND);
    auto_err struct err err = {0};
    assert_int_equal(kube_leader_check(f->leader, &err), -1);
    assert_non_null(strstr(err_text(&err), "failed election to renew leadership on lease berth"));
}

static void test_options_are_checked(void **state)
{
    struct fixture *f = *state;
    struct kube_leader_options bad[7];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = options_for(f, "me");
    bad[0].renew_deadline = 15 * CLOCK_SECOND;
    bad[1].renew_deadline = 2400 * CLOCK_MS; /* exactly 1.2 times */
    bad[2].retry_period = 0;
    bad[3].identity = "";
    bad[4].name = "Not_A_Name";
    bad[5].namespace_ = NULL;
    bad[6].lease_duration = 900 * CLOCK_MS;
    bad[6].renew_deadline = 500 * CLOCK_MS;
    bad[6].retry_period = 100 * CLOCK_MS;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        assert_int_equal(kube_leader_start(&bad[i], &f->leader, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_true(str_starts(err_text(&err), "leader election: "));
    }
    assert_int_equal(scripted_server_requests(f->server), 0);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *expected;
    } cases[] = {
        {"hostpath.csi.k8s.io", "hostpath-csi-k8s-io"},
        {"a/b.c", "a-b-c"},
        {"ends.", "ends-X"},
        {"UPPER_case", "UPPER-case"},
        {"w\xc3\xa4hrung", "w-hrung"},
        {"plain-name", "plain-name"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *name = kube_leader_sanitize_name(cases[i].name);
        assert_string_equal(name, cases[i].expected);
    }
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_create_and_renew),
        TEST(test_unknown_fields_stay),
        TEST(test_same_identity_comes_back_at_once),
        TEST(test_foreign_lease_expires_on_our_clock),
        TEST(test_foreign_holder_that_renews_is_followed),
        TEST(test_two_electors),
        TEST(test_release),
        TEST(test_no_release_unless_asked_for),
        TEST(test_follower_releases_nothing),
        TEST(test_lost_when_the_server_fails),
        TEST(test_short_trouble_is_borne),
        TEST(test_lost_while_a_request_hangs),
        TEST(test_lost_to_somebody_else),
        TEST(test_conflict_is_read_and_renewed),
        TEST(test_deleted_lease_is_made_again),
        TEST(test_nonsense_in_the_lease_is_no_crash),
        TEST(test_events_tell),
        TEST(test_wait_is_ended_by_stop),
        TEST(test_health_check),
        TEST(test_options_are_checked),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("leader", tests, NULL, NULL);
}
