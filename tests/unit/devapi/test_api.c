/* SPDX-License-Identifier: Apache-2.0 */
/* Requests without sockets: what depends on time, and the controllers. Everything else is in
 * tests/devapi/conformance.py. */
#include "tests/devapi/controllers.h"
#include "tests/devapi/faults.h"
#include "tests/devapi/journal.h"
#include "tests/devapi/protobuf.h"
#include "tests/devapi/server.h"
#include "tests/devapi/table_cells.h"
#include "tests/devapi/tree.h"
#include "tests/devapi/watch.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka needs the above first */
#include <cmocka.h>

#define WALL ((int64_t)1700000000 * CLOCK_SECOND)
#define CLAIMS "/api/v1/namespaces/default/persistentvolumeclaims"

static int set_up(void **state)
{
    struct server *server = mem_new(struct server);
    server->clock = clock_fake_new(WALL);
    server->rng = rng_seeded_new(7);
    server->rules = (struct rules){.minor = 36, .protection = true, .default_class = true};
    server->catalog.minor = 36;
    server->bookmark_interval = 10 * CLOCK_SECOND;
    server_init(server, 1000, 4);
    *state = server;
    return 0;
}

static int tear_down(void **state)
{
    struct server *server = *state;
    struct clock *clock = server->clock;
    struct rng *rng = server->rng;
    server_free(server);
    clock_free(clock);
    rng_free(rng);
    free(server);
    return 0;
}

static void fill_request(struct request *request, const struct server *server, const char *method, const char *path,
                         const char *body)
{
    const char *query = strchrnul(path, '?');
    request->method = mem_strdup(method);
    request->path = mem_strndup(path, (size_t)(query - path));
    request->content_type =
        mem_strdup(strcmp(method, "PATCH") == 0 ? "application/merge-patch+json" : "application/json");
    request->body = body != NULL ? body : "";
    request->body_len = strlen(request->body);
    auto_strv struct strv pairs = {0};
    strv_split(&pairs, *query == '?' ? query + 1 : "", '&');
    request->query = map_new(free);
    for (size_t i = 0; i < pairs.len; i++) {
        char *value = strchrnul(pairs.items[i], '=');
        char *text = mem_strdup(*value == '=' ? value + 1 : "");
        *value = '\0';
        map_set(request->query, pairs.items[i], text);
    }
    request_parse(request, &server->catalog);
}

/* Answers with the code, and the object in *object when asked for; controllers run as after a real round. */
static int ask(struct server *server, const char *method, const char *path, const char *body, json_t **object)
{
    struct request request = {0};
    struct reply reply = {0};
    fill_request(&request, server, method, path, body);
    api_handle(server, &request, &reply);
    int code = reply.code;
    if (object != NULL)
        *object = reply.version != NULL ? version_parse(reply.version)
                                        : json_loadb(str_text(&reply.body), reply.body.len, 0, NULL);
    while (controllers_run(server))
        ;
    reply_reset(&reply);
    request_free(&request);
    return code;
}

static struct watch *open_watch(struct server *server, const char *path)
{
    struct request request = {0};
    struct reply reply = {0};
    fill_request(&request, server, "GET", path, NULL);
    api_handle(server, &request, &reply);
    struct watch *watch = reply.watch;
    assert_non_null(watch);
    request_free(&request);
    return watch;
}

/* "ADDED a, BOOKMARK": everything the watch has to say now. */
static char *read_events(struct watch *watch)
{
    char buffer[64]; /* small, so that events come in pieces */
    auto_str struct str text = {0};
    struct str shown = {0};
    str_add(&shown, "");
    for (size_t len; (len = watch_read(watch, buffer, sizeof(buffer))) > 0;)
        str_add_len(&text, buffer, len);
    auto_strv struct strv lines = {0};
    strv_split(&lines, str_text(&text), '\n');
    for (size_t i = 0; i + 1 < lines.len; i++) {
        auto_json json_t *event = json_loads(lines.items[i], 0, NULL);
        const char *name = tree_text(event, "object.metadata.name");
        str_addf(&shown, "%s%s", i > 0 ? ", " : "", tree_text(event, "type"));
        if (name != NULL)
            str_addf(&shown, " %s", name);
    }
    return str_take(&shown);
}

static void assert_events(struct watch *watch, const char *want)
{
    auto_free char *got = read_events(watch);
    assert_string_equal(got, want);
}

static void tick(struct server *server, int64_t ns)
{
    clock_fake_advance(server->clock, ns);
    for (struct watch *watch = server->watches; watch != NULL; watch = watch->next)
        if (clock_mono(server->clock) >= watch_next_time(watch))
            watch_tick(watch, clock_mono(server->clock));
}

static void make_claim(struct server *server, const char *name)
{
    auto_free char *body = mem_printf("{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"accessModes\":[\"ReadWriteOnce\"],"
                                      "\"resources\":{\"requests\":{\"storage\":\"1Gi\"}}}}",
                                      name);
    assert_int_equal(ask(server, "POST", CLAIMS, body, NULL), 201);
}

static void test_bookmarks_and_timeout(void **state)
{
    struct server *server = *state;
    struct watch *watch = open_watch(server, CLAIMS "?watch=1&allowWatchBookmarks=true&timeoutSeconds=30");
    assert_events(watch, "");
    tick(server, 9 * CLOCK_SECOND);
    assert_false(watch_is_ready(watch));
    tick(server, CLOCK_SECOND);
    assert_events(watch, "BOOKMARK");
    make_claim(server, "a");
    assert_true(watch_is_ready(watch));
    assert_events(watch, "ADDED a");
    tick(server, 10 * CLOCK_SECOND);
    assert_events(watch, "BOOKMARK");
    tick(server, 8 * CLOCK_SECOND); /* two seconds before the end */
    assert_events(watch, "BOOKMARK");
    tick(server, 2 * CLOCK_SECOND);
    assert_events(watch, "");
    assert_int_equal(watch->state, WATCH_DONE);
}

static void test_slow_watch_ends(void **state)
{
    struct server *server = *state;
    make_claim(server, "a");
    struct watch *watch = open_watch(server, CLAIMS "?watch=1");
    assert_events(watch, "ADDED a");
    make_claim(server, "b");
    store_compact(server->store);
    assert_true(watch_is_ready(watch));
    assert_events(watch, "");
    assert_int_equal(watch->state, WATCH_DONE);
    watch = open_watch(server, CLAIMS "?watch=1&resourceVersion=2");
    assert_events(watch, "ERROR");
    assert_int_equal(watch->state, WATCH_DONE);
}

static void test_watch_faults(void **state)
{
    struct server *server = *state;
    make_claim(server, "a");
    struct watch *watch = open_watch(server, CLAIMS "?watch=1&resourceVersion=0");
    watch->faults.repeat = true;
    make_claim(server, "b");
    assert_events(watch, "ADDED a, ADDED b, ADDED b");
    watch->faults.repeat = false;
    watch->faults.late = 5 * CLOCK_SECOND;
    make_claim(server, "c");
    assert_false(watch_is_ready(watch));
    assert_events(watch, "");
    clock_fake_advance(server->clock, 5 * CLOCK_SECOND);
    assert_true(watch_is_ready(watch));
    assert_events(watch, "ADDED c");
    watch->faults = (struct watch_faults){.ends = true, .end_after = watch->sent + 1, .end = WATCH_END_GONE};
    make_claim(server, "d");
    make_claim(server, "e");
    assert_events(watch, "ADDED d, ERROR");
    assert_int_equal(watch->state, WATCH_DONE);
    watch = open_watch(server, CLAIMS "?watch=1");
    watch->faults = (struct watch_faults){.ends = true, .end = WATCH_END_SILENT};
    assert_true(watch_read(watch, (char[4096]){0}, 4096) > 0);
    while (watch_read(watch, (char[4096]){0}, 4096) > 0)
        ;
    assert_int_equal(watch->state, WATCH_SILENT);
    tick(server, 3600 * CLOCK_SECOND);
    assert_false(watch_is_ready(watch)); /* not even its timeout ends it */
}

static void test_initial_events(void **state)
{
    struct server *server = *state;
    make_claim(server, "a");
    struct watch *watch = open_watch(
        server, CLAIMS "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    assert_events(watch, "ADDED a, BOOKMARK");
    server->rules.minor = 31;
    assert_int_equal(ask(server, "GET", CLAIMS "?watch=1&sendInitialEvents=true", NULL, NULL), 422);
}

static void test_protection(void **state)
{
    struct server *server = *state;
    make_claim(server, "c");
    assert_int_equal(
        ask(server, "POST", "/api/v1/namespaces/default/pods",
            "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"nodeName\":\"n\",\"containers\":[{\"name\":\"c\","
            "\"image\":\"i\"}],\"volumes\":[{\"name\":\"v\",\"persistentVolumeClaim\":{\"claimName\":\"c\"}}]}}",
            NULL),
        201);
    assert_int_equal(ask(server, "DELETE", CLAIMS "/c", NULL, NULL), 200);
    auto_json json_t *claim = NULL;
    assert_int_equal(ask(server, "GET", CLAIMS "/c", NULL, &claim), 200);
    assert_non_null(tree_get(claim, "metadata.deletionTimestamp"));
    assert_int_equal(ask(server, "DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0", NULL, NULL), 200);
    assert_int_equal(ask(server, "GET", CLAIMS "/c", NULL, NULL), 404);
    /* a finalizer that somebody dropped by a careless PUT comes back */
    make_claim(server, "d");
    assert_int_equal(ask(server, "PATCH", CLAIMS "/d", "{\"metadata\":{\"finalizers\":null}}", NULL), 200);
    auto_json json_t *back = NULL;
    assert_int_equal(ask(server, "GET", CLAIMS "/d", NULL, &back), 200);
    assert_int_equal(json_array_size(tree_get(back, "metadata.finalizers")), 1);
}

static void test_paths(void **state)
{
    struct server *server = *state;
    static const struct {
        const char *method, *path;
        int code;
    } cases[] = {
        {"GET", "/", 404},
        {"GET", "/api/v1/", 200},
        {"GET", "/api/v2", 404},
        {"POST", "/api", 405},
        {"GET", "/apis/storage.k8s.io/v1/namespaces/default/storageclasses", 404},
        {"PUT", "/api/v1/nodes", 405},
        {"POST", "/api/v1/nodes/x", 405},
        {"GET", "/api/v1/nodes/x/status", 404},
        {"GET", "/api/v1/nodes/x/y/z", 404},
        {"GET", "/api/v1/namespaces/default", 200},
        {"GET", "/api/v1/namespaces/default/status", 200},
        {"GET", "/apis/storage.k8s.io/v1beta1/volumeattributesclasses", 200},
        {"GET", "/apis/storage.k8s.io/v1alpha1/csistoragecapacities", 404},
        {"GET", "/devapi/nonsense", 404},
        {"POST", "/devapi/faults", 400},
        {"DELETE", "/devapi/faults/7", 404},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int code = ask(server, cases[i].method, cases[i].path, NULL, NULL);
        if (code != cases[i].code)
            fail_msg("%s %s: want %d, got %d", cases[i].method, cases[i].path, cases[i].code, code);
    }
}

static void test_fault_matching(void **state)
{
    struct server *server = *state;
    auto_err struct err err = {0};
    auto_json json_t *spec =
        json_loads("{\"verb\":\"create,patch\",\"resource\":\"persistent*\",\"name\":\"c?\",\"skip\":1,"
                   "\"times\":2,\"action\":\"status\",\"code\":503}",
                   0, NULL);
    uint64_t id = faults_add(server->faults, spec, &err);
    assert_int_not_equal(id, 0);
    static const struct {
        const char *method, *path;
        bool hit;
    } cases[] = {
        {"PATCH", CLAIMS "/c1", false}, /* skipped */
        {"GET", CLAIMS "/c1", false},   {"PATCH", CLAIMS "/other", false}, {"PATCH", CLAIMS "/c1", true},
        {"PATCH", CLAIMS "/c2", true},  {"PATCH", CLAIMS "/c3", false}, /* used up */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct request request = {0};
        struct fault_hits hits;
        fill_request(&request, server, cases[i].method, cases[i].path, NULL);
        faults_match(server->faults, &request, &hits);
        assert_int_equal(hits.count, cases[i].hit ? 1 : 0);
        if (cases[i].hit)
            assert_string_equal(hits.effects[0].reason, "ServiceUnavailable");
        request_free(&request);
    }
    assert_true(faults_remove(server->faults, id));
    assert_false(faults_remove(server->faults, id));
    static const char *const bad[] = {"{}",
                                      "{\"action\":\"bend\"}",
                                      "{\"action\":\"delay\",\"mss\":1}",
                                      "{\"action\":\"status\"}",
                                      "{\"action\":\"kill\"}",
                                      "{\"action\":\"drop\",\"when\":\"never\"}",
                                      "{\"action\":\"kill\",\"pid\":1,\"signal\":\"HELLO\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_json json_t *wrong = json_loads(bad[i], 0, NULL);
        assert_int_equal(faults_add(server->faults, wrong, &err), 0);
    }
}

static void test_journal_ring(void **state)
{
    struct server *server = *state;
    for (int i = 0; i < 6; i++) {
        struct request request = {0};
        fill_request(&request, server, "GET", i % 2 == 0 ? CLAIMS : CLAIMS "/x", NULL);
        journal_add(server->journal, &request, &(struct journal_entry){.time = WALL, .status = 200});
        request_free(&request);
    }
    auto_json json_t *all = journal_describe(server->journal, &(struct journal_filter){0});
    assert_int_equal(json_array_size(tree_get(all, "items")), 4); /* as many as it holds */
    auto_json json_t *some = journal_describe(server->journal, &(struct journal_filter){.since = 4, .verb = "get"});
    assert_int_equal(json_array_size(tree_get(some, "items")), 1);
    assert_int_equal(json_integer_value(tree_get(some, "last")), 6);
}

static void test_protobuf(void **state)
{
    (void)state;
    /* a Namespace named "abc" with a label, as kubectl create sends it */
    static const unsigned char bytes[] = "k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x13\x0a\x0d\x0a\x03"
                                         "abc\x5a\x06\x0a\x01k\x12\x01v\x12\x00\x1a\x00";
    auto_err struct err err = {0};
    size_t len = sizeof(bytes) - 1;
    assert_true(protobuf_is_object(bytes, len));
    auto_json json_t *object = protobuf_decode_object(bytes, len, &err);
    assert_non_null(object);
    assert_string_equal(tree_text(object, "kind"), "Namespace");
    assert_string_equal(tree_text(object, "metadata.name"), "abc");
    assert_string_equal(tree_text(object, "metadata.labels.k"), "v");
    for (size_t cut = 4; cut < len; cut++) { /* nothing half may crash it */
        json_decref(protobuf_decode_object(bytes, cut, NULL));
    }
    assert_false(protobuf_is_object("{}", 2));
}

static void test_ages(void **state)
{
    (void)state;
    static const struct {
        int64_t seconds;
        const char *text;
    } cases[] = {{0, "0s"},
                 {119, "119s"},
                 {120, "2m"},
                 {125, "2m5s"},
                 {600, "10m"},
                 {3600 * 2, "120m"},
                 {3600 * 3, "3h"},
                 {3600 * 3 + 60, "3h1m"},
                 {3600 * 47, "47h"},
                 {86400 * 2, "2d"},
                 {86400 * 3 + 3600, "3d1h"},
                 {86400 * 400, "400d"},
                 {86400L * 800, "2y70d"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_str struct str text = {0};
        cell_add_duration(cases[i].seconds, &text);
        assert_string_equal(str_text(&text), cases[i].text);
    }
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_bookmarks_and_timeout), CASE(test_slow_watch_ends), CASE(test_watch_faults),
        CASE(test_initial_events),        CASE(test_protection),      CASE(test_paths),
        CASE(test_fault_matching),        CASE(test_journal_ring),    cmocka_unit_test(test_protobuf),
        cmocka_unit_test(test_ages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
