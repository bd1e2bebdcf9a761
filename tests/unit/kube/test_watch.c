/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/kube/client.h"
#include "tests/unit/kube/raw_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scene {
    struct raw_server *server;
    struct kube_config config;
    char *url;
    struct kube_client *client;
    struct stop *stop;
    struct rng *rng;
    struct kube_watch *watch;
};

static int begin(struct scene *scene, const struct raw_step *steps, size_t count, struct clock *clock,
                 const struct kube_list_options *list, struct err *err)
{
    scene->server = raw_server_start(NULL, clock, steps, count);
    scene->url = mem_printf("http://127.0.0.1:%d", raw_server_port(scene->server));
    scene->config.server = scene->url;
    scene->stop = stop_new();
    scene->rng = rng_seeded_new(1);
    struct kube_client_options options = {
        .clock = clock, .stop = scene->stop, .rng = scene->rng, .request_timeout = 2 * CLOCK_SECOND};
    assert_int_equal(kube_client_new(&scene->config, &options, &scene->client, err), 0);
    return kube_watch_open(scene->client, &kube_kind_claim, list, &scene->watch, err);
}

static void end(struct scene *scene)
{
    kube_watch_close(scene->watch);
    kube_client_free(scene->client);
    raw_server_stop(scene->server);
    stop_free(scene->stop);
    rng_free(scene->rng);
    free(scene->url);
}

#define META(name, version)                                                                                            \
    "\"metadata\":{\"name\":\"" name "\",\"namespace\":\"n\",\"uid\":\"u\",\"resourceVersion\":\"" version "\"}"
#define EVENT(type, name, version)                                                                                     \
    "{\"type\":\"" type                                                                                                \
    "\",\"object\":{\"kind\":\"PersistentVolumeClaim\",\"apiVersion\":\"v1\"," META(name, version) "}}\n"
#define BOOKMARK(version)                                                                                              \
    "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"PersistentVolumeClaim\",\"apiVersion\":\"v1\",\"metadata\":{"       \
    "\"resourceVersion\":\"" version "\",\"creationTimestamp\":null}}}\n"
#define ERROR_EVENT(code, reason, message)                                                                             \
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":" code ",\"reason\":\"" reason                       \
    "\",\"message\":\"" message "\"}}\n"

static void expect(struct scene *scene, enum kube_watch_type type, const char *name, uint64_t version)
{
    struct kube_watch_event event;
    auto_err struct err err = {0};
    if (kube_watch_next(scene->watch, &event, &err) != 1)
        fail_msg("no event: %s", err_text(&err));
    assert_int_equal(event.type, type);
    assert_int_equal(event.resource_version, version);
    if (name != NULL)
        assert_string_equal(event.object->meta.name, name);
    else
        assert_null(event.object);
    kube_object_unref(event.object);
}

static void expect_end(struct scene *scene, int result, enum err_code code, const char *message)
{
    struct kube_watch_event event;
    auto_err struct err err = {0};
    assert_int_equal(kube_watch_next(scene->watch, &event, &err), result);
    if (err.code != code || (message != NULL && strstr(err_text(&err), message) == NULL))
        fail_msg("%s: %s", err_code_name(err.code), err_text(&err));
}

static void test_events(void **state)
{
    (void)state;
    static const struct raw_step steps[] = {
        {.action = RAW_CHUNKS,
         .body = EVENT("ADDED", "a", "10") "{\"type\":\"MODI|FIED\",\"obj|ect\":{" META("a", "11") "}}\r|\n\n" EVENT(
             "DELETED", "a", "12") BOOKMARK("20") EVENT("ADDED", "b", "21") EVENT("MOVED", "b", "22")}};
    struct scene scene = {0};
    auto_err struct err err = {0};
    struct kube_list_options list = {.namespace_ = "n", .label_selector = "a=b", .resource_version = 9};
    assert_int_equal(begin(&scene, steps, 1, NULL, &list, &err), 0);
    expect(&scene, KUBE_WATCH_ADDED, "a", 10);
    expect(&scene, KUBE_WATCH_MODIFIED, "a", 11);
    expect(&scene, KUBE_WATCH_DELETED, "a", 12);
    expect(&scene, KUBE_WATCH_BOOKMARK, NULL, 20);
    expect(&scene, KUBE_WATCH_ADDED, "b", 21);
    expect_end(&scene, 0, ERR_NONE, NULL); /* the unknown type is passed over */
    const char *line = raw_server_line(scene.server, 0);
    assert_true(str_starts(line, "GET /api/v1/namespaces/n/persistentvolumeclaims?watch=true&allowWatchBookmarks=true&"
                                 "timeoutSeconds="));
    int seconds = atoi(strstr(line, "timeoutSeconds=") + strlen("timeoutSeconds="));
    assert_in_range(seconds, 300, 600);
    assert_true(str_ends(line, "&resourceVersion=9&labelSelector=a%3Db"));
    end(&scene);
}

static void test_malformed_object(void **state)
{
    (void)state;
    static const struct raw_step steps[] = {
        {.action = RAW_CHUNKS,
         .body = "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"resourceVersion\":\"13\"}}}\n" EVENT("ADDED", "b",
                                                                                                          "14")}};
    struct scene scene = {0};
    auto_err struct err err = {0};
    assert_int_equal(begin(&scene, steps, 1, NULL, NULL, &err), 0);
    expect(&scene, KUBE_WATCH_MODIFIED, NULL, 13);
    expect(&scene, KUBE_WATCH_ADDED, "b", 14);
    expect_end(&scene, 0, ERR_NONE, NULL);
    end(&scene);
}

static void test_ends(void **state)
{
    (void)state;
    static const struct {
        struct raw_step step;
        int result;
        enum err_code code;
        const char *message;
    } cases[] = {
        {{.action = RAW_CHUNKS, .body = ERROR_EVENT("410", "Expired", "too old resource version: 1 (9)")},
         -1,
         ERR_GONE,
         "watch persistentvolumeclaims: 410 Expired: too old resource version: 1 (9)"},
        {{.action = RAW_CHUNKS, .body = ERROR_EVENT("500", "InternalError", "etcd event received with PrevKv=nil")},
         -1,
         ERR_UNAVAILABLE,
         "PrevKv=nil"},
        {{.action = RAW_CHUNKS, .body = ERROR_EVENT("403", "Forbidden", "no more")}, -1, ERR_UNAVAILABLE, "no more"},
        {{.action = RAW_CHUNKS, .body = "{\"type\":\"ERROR\"}\n"}, -1, ERR_UNAVAILABLE, NULL},
        {{.action = RAW_CHUNKS, .body = "this is no JSON\n"}, -1, ERR_GONE, "no JSON"},
        {{.action = RAW_CHUNKS, .body = "{\"type\":\"ADDED\",\"obj"}, -1, ERR_UNAVAILABLE, "within an event"},
        {{.action = RAW_BYTES, .body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"type\":"},
         -1,
         ERR_UNAVAILABLE,
         "the connection broke"},
        {{.action = RAW_BYTES, .body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
         -1,
         ERR_UNAVAILABLE,
         "the connection broke"},
        {{.action = RAW_CHUNKS, .body = ""}, 0, ERR_NONE, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scene scene = {0};
        auto_err struct err err = {0};
        if (begin(&scene, &cases[i].step, 1, NULL, NULL, &err) != 0)
            fail_msg("case %zu: %s", i, err_text(&err));
        expect_end(&scene, cases[i].result, cases[i].code, cases[i].message);
        end(&scene);
    }
}

/* A line that never ends: it is given up and listed again before it has eaten the memory. */
static void test_endless_event(void **state)
{
    (void)state;
    enum { LEN = 40 << 20 };
    auto_free char *body = mem_alloc(LEN + 1);
    memset(body, 'x', LEN);
    body[LEN] = '\0';
    const struct raw_step step = {.action = RAW_CHUNKS, .body = body};
    struct scene scene = {0};
    auto_err struct err err = {0};
    assert_int_equal(begin(&scene, &step, 1, NULL, NULL, &err), 0);
    expect_end(&scene, -1, ERR_GONE, "larger than");
    end(&scene);
}

static void test_open_fails(void **state)
{
    (void)state;
    static const struct {
        struct raw_step step;
        enum err_code code;
    } cases[] = {
        {{.action = RAW_REPLY, .status = 410, .body = "{\"kind\":\"Status\",\"code\":410,\"reason\":\"Gone\"}"},
         ERR_GONE},
        {{.action = RAW_REPLY, .status = 403, .body = "no"}, ERR_FORBIDDEN},
        {{.action = RAW_REPLY, .status = 404, .body = "no"}, ERR_NOT_FOUND},
        {{.action = RAW_REPLY, .status = 429, .headers = "Retry-After: 9\r\n", .body = "no"}, ERR_THROTTLED},
        {{.action = RAW_HANG}, ERR_TIMEOUT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scene scene = {0};
        auto_err struct err err = {0};
        assert_int_equal(begin(&scene, &cases[i].step, 1, NULL, NULL, &err), -1);
        if (err.code != cases[i].code)
            fail_msg("case %zu: %s", i, err_text(&err));
        assert_null(scene.watch);
        end(&scene);
    }
}

/* ---- silence and cancellation ---- */

struct reader {
    struct scene *scene;
    struct err err;
    int result;
    atomic_bool done;
};

static void *read_thread(void *arg)
{
    struct reader *reader = arg;
    struct kube_watch_event event;
    do {
        reader->result = kube_watch_next(reader->scene->watch, &event, &reader->err);
        kube_object_unref(event.object);
    } while (reader->result == 1);
    reader->done = true;
    return NULL;
}

/* Fake seconds until a watch without another byte is given up. */
static int64_t silence_of(const char *body)
{
    struct clock *clock = clock_fake_new(0);
    struct raw_step step = {.action = RAW_STREAM, .body = body};
    struct scene scene = {0};
    auto_err struct err err = {0};
    assert_int_equal(begin(&scene, &step, 1, clock, NULL, &err), 0);
    struct reader reader = {.scene = &scene};
    pthread_t thread = thread_start("reader", read_thread, &reader);
    usleep(50000); /* what was sent has arrived and was read */
    int64_t start = clock_mono(clock);
    while (!reader.done) {
        clock_fake_advance(clock, 5 * CLOCK_SECOND);
        usleep(4000); /* the reader gets its turn, also on a loaded machine */
    }
    thread_join(thread);
    int64_t took = (clock_mono(clock) - start) / CLOCK_SECOND;
    assert_int_equal(reader.result, -1);
    assert_int_equal(reader.err.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(err_text(&reader.err), "nothing was heard"));
    err_clear(&reader.err);
    end(&scene);
    clock_free(clock);
    return took;
}

static void test_silence(void **state)
{
    (void)state;
    int64_t with_bookmarks = silence_of(EVENT("ADDED", "a", "10") BOOKMARK("20"));
    assert_in_range(with_bookmarks, 150, 320);
    /* a server that sends no bookmarks may be silent until its own end, and a grace */
    int64_t without = silence_of(EVENT("ADDED", "a", "10"));
    assert_in_range(without, 330, 1000);
}

static void cancel_case(void (*cancel)(struct scene *scene))
{
    static const struct raw_step step = {.action = RAW_STREAM, .body = EVENT("ADDED", "a", "10")};
    struct scene scene = {0};
    auto_err struct err err = {0};
    assert_int_equal(begin(&scene, &step, 1, NULL, NULL, &err), 0);
    struct reader reader = {.scene = &scene};
    pthread_t thread = thread_start("reader", read_thread, &reader);
    usleep(20000);
    assert_false(reader.done);
    int64_t asked = clock_mono(clock_real());
    cancel(&scene);
    thread_join(thread);
    assert_true(clock_mono(clock_real()) - asked < CLOCK_SECOND);
    assert_int_equal(reader.result, -1);
    assert_int_equal(reader.err.code, ERR_CANCELLED);
    err_clear(&reader.err);
    expect_end(&scene, -1, ERR_CANCELLED, NULL); /* and it stays so */
    end(&scene);
}

static void cancel_watch(struct scene *scene)
{
    kube_watch_cancel(scene->watch);
}

static void cancel_all(struct scene *scene)
{
    stop_request(scene->stop);
}

static void test_cancel(void **state)
{
    (void)state;
    cancel_case(cancel_watch);
    cancel_case(cancel_all);
}

/* Watches do not take the places of short requests. */
static void test_many_watches(void **state)
{
    (void)state;
    static const struct raw_step steps[] = {
        {.action = RAW_STREAM, .body = BOOKMARK("5")}, {.action = RAW_STREAM, .body = BOOKMARK("5")},
        {.action = RAW_STREAM, .body = BOOKMARK("5")}, {.action = RAW_STREAM, .body = BOOKMARK("5")},
        {.action = RAW_REPLY, .body = "{}"},
    };
    struct scene scene = {0};
    auto_err struct err err = {0};
    scene.server = raw_server_start(NULL, NULL, steps, ARRAY_LEN(steps));
    scene.url = mem_printf("http://127.0.0.1:%d", raw_server_port(scene.server));
    scene.config.server = scene.url;
    struct kube_client_options options = {.max_connections = 1};
    assert_int_equal(kube_client_new(&scene.config, &options, &scene.client, &err), 0);
    struct kube_watch *watches[4];
    for (size_t i = 0; i < ARRAY_LEN(watches); i++)
        assert_int_equal(kube_watch_open(scene.client, &kube_kind_claim, NULL, &watches[i], &err), 0);
    struct kube_response response;
    assert_int_equal(kube_request(scene.client, "GET", "/version", NULL, NULL, &response, &err), 0);
    kube_response_clear(&response);
    assert_int_equal(raw_server_connections(scene.server), 5);
    for (size_t i = 0; i < ARRAY_LEN(watches); i++) {
        scene.watch = watches[i];
        expect(&scene, KUBE_WATCH_BOOKMARK, NULL, 5);
        kube_watch_close(watches[i]);
    }
    scene.watch = NULL;
    end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),       cmocka_unit_test(test_malformed_object), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_open_fails),   cmocka_unit_test(test_silence),          cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_many_watches), cmocka_unit_test(test_endless_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
