/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and their repeats, against a scripted server. */
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/kube/client_private.h"
#include "tests/unit/kube/client_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- plain requests ---- */

static void test_get(void **state)
{
    (void)state;
    BEGIN(scene, NULL, {.action = RAW_REPLY, .body = CLAIM("7")});
    auto_err struct err err = {0};
    struct kube_object *object = NULL;
    assert_int_equal(kube_get(scene.client, &kube_kind_claim, "default", "data", &object, &err), 0);
    assert_string_equal(object->meta.name, "data");
    assert_int_equal(object->meta.resource_version, 7);
    kube_object_unref(object);
    assert_string_equal(raw_server_line(scene.server, 0), "GET /api/v1/namespaces/default/persistentvolumeclaims/data");
    const char *head = raw_server_head(scene.server, 0);
    assert_non_null(strstr(head, "User-Agent: tester/v1\r\n"));
    assert_non_null(strstr(head, "Accept: application/json\r\n"));
    assert_null(strstr(head, "Authorization"));
    end(&scene);
}

static void test_identity(void **state)
{
    (void)state;
    struct scene scene = {0};
    static const struct raw_step steps[] = {{.action = RAW_REPLY, .body = "{}"}};
    scene.config.username = (char *)(uintptr_t) "ann";
    scene.config.password = (char *)(uintptr_t) "pa:ss";
    scene.config.impersonate_user = (char *)(uintptr_t) "bob";
    strv_add(&scene.config.impersonate_headers, "Impersonate-Group: auditors");
    begin(&scene, steps, 1, NULL);
    struct kube_response response;
    auto_err struct err err = {0};
    assert_int_equal(kube_request(scene.client, "GET", "/x", NULL, NULL, &response, &err), 0);
    kube_response_clear(&response);
    const char *head = raw_server_head(scene.server, 0);
    assert_non_null(strstr(head, "Authorization: Basic YW5uOnBhOnNz\r\n"));
    assert_non_null(strstr(head, "Impersonate-User: bob\r\n"));
    assert_non_null(strstr(head, "Impersonate-Group: auditors\r\n"));
    strv_free(&scene.config.impersonate_headers);
    end(&scene);
}

static void test_writes(void **state)
{
    (void)state;
    BEGIN(scene, NULL, {.action = RAW_REPLY, .status = 201, .body = CLAIM("8")},
          {.action = RAW_REPLY, .body = CLAIM("9")}, {.action = RAW_REPLY, .body = CLAIM("10")},
          {.action = RAW_REPLY, .body = "{\"kind\":\"Status\",\"status\":\"Success\"}"});
    auto_err struct err err = {0};
    struct kube_object *object = NULL;
    json_t *json = json_loads(CLAIM("7"), 0, NULL);
    assert_int_equal(kube_create(scene.client, &kube_kind_claim, "default", json, &object, &err), 0);
    assert_int_equal(object->meta.resource_version, 8);
    kube_object_unref(object);
    assert_string_equal(raw_server_line(scene.server, 0), "POST /api/v1/namespaces/default/persistentvolumeclaims");
    assert_non_null(strstr(raw_server_head(scene.server, 0), "Content-Type: application/json\r\n"));

    assert_int_equal(kube_update(scene.client, &kube_kind_claim, "default", "data", "status", json, NULL, &err), 0);
    assert_string_equal(raw_server_line(scene.server, 1),
                        "PUT /api/v1/namespaces/default/persistentvolumeclaims/data/status");
    json_object_del(json_object_get(json, "metadata"), "resourceVersion");
    assert_int_equal(kube_update(scene.client, &kube_kind_claim, "default", "data", NULL, json, NULL, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    json_decref(json);

    json_t *patch = json_pack("{s:{s:s}}", "metadata", "resourceVersion", "9");
    assert_int_equal(
        kube_patch(scene.client, &kube_kind_claim, "default", "data", NULL, KUBE_PATCH_MERGE, patch, &object, &err), 0);
    json_decref(patch);
    assert_int_equal(object->meta.resource_version, 10);
    kube_object_unref(object);
    assert_non_null(strstr(raw_server_head(scene.server, 2), "Content-Type: application/merge-patch+json\r\n"));
    assert_string_equal(raw_server_body(scene.server, 2), "{\"metadata\":{\"resourceVersion\":\"9\"}}");

    assert_int_equal(kube_delete(scene.client, &kube_kind_claim, "default", "data", "u-1", 10, &err), 0);
    json_t *body = json_loads(raw_server_body(scene.server, 3), 0, NULL);
    json_t *wanted = json_pack("{s:s,s:s,s:{s:s,s:s}}", "kind", "DeleteOptions", "apiVersion", "v1", "preconditions",
                               "uid", "u-1", "resourceVersion", "10");
    assert_true(json_equal(body, wanted));
    json_decref(body);
    json_decref(wanted);
    assert_int_equal(raw_server_connections(scene.server), 1); /* all over one */
    end(&scene);
}

static void test_paths(void **state)
{
    (void)state;
    static const struct {
        const struct kube_kind *kind;
        const char *namespace_, *name, *subresource, *path; /* NULL = refused */
    } cases[] = {
        {&kube_kind_volume, NULL, "pv-1", "status", "/api/v1/persistentvolumes/pv-1/status"},
        {&kube_kind_class, "", "fast", NULL, "/apis/storage.k8s.io/v1/storageclasses/fast"},
        {&kube_kind_claim, NULL, NULL, NULL, "/api/v1/persistentvolumeclaims"},
        {&kube_kind_claim, "n s", "a?b#c", NULL, "/api/v1/namespaces/n%20s/persistentvolumeclaims/a%3Fb%23c"},
        {&kube_kind_claim, "ns", "../../secrets/x", NULL, NULL},
        {&kube_kind_claim, "ns", "..", NULL, NULL},
        {&kube_kind_claim, "ns", "a%2fb", NULL, NULL},
        {&kube_kind_claim, "a/b", "x", NULL, NULL},
        {&kube_kind_claim, "ns", "", NULL, NULL},
        {&kube_kind_claim, NULL, "x", NULL, NULL},
        {&kube_kind_volume, "ns", "x", NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        auto_free char *path = NULL;
        int result =
            kube_path_make(cases[i].kind, cases[i].namespace_, cases[i].name, cases[i].subresource, &path, &err);
        assert_int_equal(result, cases[i].path != NULL ? 0 : -1);
        if (result == 0)
            assert_string_equal(path, cases[i].path);
    }
    assert_true(kube_path_is_secret("/api/v1/namespaces/a/secrets/b?x=1"));
    assert_true(kube_path_is_secret("/api/v1/namespaces/a/serviceaccounts/b/token"));
    assert_false(kube_path_is_secret("/api/v1/namespaces/a/pods/my-secrets?labelSelector=secrets"));
}

/* ---- errors ---- */

static void test_status_codes(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body;
        enum err_code code;
        const char *message;
    } cases[] = {
        {409, STATUS("409", "Conflict", "Operation cannot be fulfilled on x"), ERR_CONFLICT,
         "409 Conflict: Operation cannot be fulfilled on x"},
        {409, STATUS("409", "AlreadyExists", "persistentvolumes \\\"a\\\" already exists"), ERR_EXISTS,
         "409 AlreadyExists: persistentvolumes \"a\" already exists"},
        {404, NOT_FOUND_BODY, ERR_NOT_FOUND, "404 NotFound: persistentvolumeclaims \"data\" not found"},
        {410, STATUS("410", "Expired", "too old"), ERR_GONE, "410 Expired: too old"},
        {403, STATUS("403", "Forbidden", "User cannot"), ERR_FORBIDDEN, "403 Forbidden: User cannot"},
        {401, STATUS("401", "Unauthorized", "Unauthorized"), ERR_UNAUTHORIZED, "401 Unauthorized: Unauthorized"},
        {422, STATUS("422", "Invalid", "bad"), ERR_UNPROCESSABLE, "422 Invalid: bad"},
        {429, STATUS("429", "TooManyRequests", "slow"), ERR_THROTTLED, "429 TooManyRequests: slow"},
        {500, STATUS("500", "InternalError", "oops"), ERR_UNAVAILABLE, "500 InternalError: oops"},
        {504, STATUS("504", "Timeout", "late"), ERR_UNAVAILABLE, "504 Timeout: late"},
        {503, "<html>\n\n  <b>no \x01 server</b>", ERR_UNAVAILABLE, "503 ServiceUnavailable: <html> <b>no server</b>"},
        {418, "", ERR_INVALID, "418 Unexpected: (empty reply)"},
        {400, "{\"kind\":\"Pod\"}", ERR_INVALID, "400 BadRequest: {\"kind\":\"Pod\"}"},
        {422,
         "{\"kind\":\"Status\",\"code\":422,\"reason\":\"Invalid\",\"message\":\"x is invalid: spec.a: Required "
         "value\",\"details\":{\"causes\":[{\"message\":\"Required value\",\"field\":\"spec.a\"},{\"message\":\"too "
         "long\",\"field\":\"spec.b\"}]}}",
         ERR_UNPROCESSABLE, "422 Invalid: x is invalid: spec.a: Required value; spec.b: too long"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        assert_int_equal(kube_error_set(&err, cases[i].status, cases[i].body, strlen(cases[i].body)), -1);
        assert_string_equal(err_text(&err), cases[i].message);
        assert_int_equal(err.code, cases[i].code);
        assert_int_equal(err.status, cases[i].status);
    }
    auto_err struct err err = {0};
    char large[1000];
    memset(large, 'x', sizeof(large));
    kube_error_set(&err, 500, large, sizeof(large));
    assert_int_equal(strlen(err_text(&err)), strlen("500 InternalError: ") + 200);
}

static void test_error_message(void **state)
{
    (void)state;
    BEGIN(scene, NULL,
          {.action = RAW_REPLY, .status = 409, .body = STATUS("409", "Conflict", "Operation: cannot be fulfilled")},
          {.action = RAW_REPLY, .status = 500, .body = STATUS("500", "InternalError", "409 Conflict: nested")});
    auto_err struct err err = {0};
    json_t *patch = json_pack("{s:{s:s}}", "metadata", "resourceVersion", "9");
    assert_int_equal(
        kube_patch(scene.client, &kube_kind_claim, "default", "data", NULL, KUBE_PATCH_MERGE, patch, NULL, &err), -1);
    assert_string_equal(err_text(&err), "patch claim default/data: 409 Conflict: Operation: cannot be fulfilled");
    err_wrap(&err, "again");
    assert_string_equal(kube_error_message(&err), "Operation: cannot be fulfilled");
    assert_int_equal(
        kube_patch(scene.client, &kube_kind_claim, "default", "data", NULL, KUBE_PATCH_MERGE, patch, NULL, &err), -1);
    assert_string_equal(kube_error_message(&err), "409 Conflict: nested");
    err_set(&err, ERR_TIMEOUT, "no answer");
    assert_string_equal(kube_error_message(&err), "no answer");
    json_decref(patch);
    end(&scene);
}

/* ---- repeats of reads ---- */

/* A job on another thread, while the test moves the fake clock. */
struct job {
    struct scene *scene;
    int (*run)(struct scene *scene, struct err *err);
    struct err err;
    int result;
    atomic_bool done;
};

static void *job_thread(void *arg)
{
    struct job *job = arg;
    job->result = job->run(job->scene, &job->err);
    job->done = true;
    return NULL;
}

static void run_with_clock(struct scene *scene, struct clock *clock, int64_t step,
                           int (*run)(struct scene *scene, struct err *err), struct job *job)
{
    *job = (struct job){.scene = scene, .run = run};
    pthread_t thread = thread_start("job", job_thread, job);
    while (!job->done) {
        usleep(2000); /* lets replies arrive; the times that are checked are the fake clock's */
        clock_fake_advance(clock, step);
    }
    thread_join(thread);
}

static void test_reads_are_repeated(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct kube_client_options options = {.clock = clock};
    BEGIN(scene, &options, {.action = RAW_DROP}, {.action = RAW_HALF, .body = CLAIM("7")}, {.action = RAW_DROP_EARLY},
          {.action = RAW_BYTES, .body = "HTTP/1.1 garbage\r\n\r\n"}, {.action = RAW_REPLY, .status = 503, .body = "no"},
          {.action = RAW_REPLY_CLOSE, .status = 429, .headers = "Retry-After: 0\r\n"},
          {.action = RAW_REPLY, .body = CLAIM("7")});
    struct job job;
    run_with_clock(&scene, clock, 50 * CLOCK_MS, get_claim, &job);
    if (job.result != 0)
        fail_msg("%s", err_text(&job.err));
    assert_int_equal(raw_server_requests(scene.server), 6); /* and one that was never read */
    end(&scene);
    clock_free(clock);
}

static void test_refused(void **state)
{
    (void)state;
    struct kube_client_options options = {.request_timeout = 400 * CLOCK_MS};
    BEGIN(scene, &options, {.action = RAW_HANG});
    raw_server_stop(scene.server); /* nobody listens there now */
    scene.server = NULL;
    auto_err struct err err = {0};
    assert_int_equal(get_claim(&scene, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(err_text(&err), scene.url));
    json_t *json = json_loads(CLAIM("7"), 0, NULL);
    assert_int_equal(kube_create(scene.client, &kube_kind_claim, "default", json, NULL, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE); /* it surely did not happen */
    json_decref(json);
    end(&scene);
}

static void test_timeout(void **state)
{
    (void)state;
    struct kube_client_options options = {.request_timeout = 200 * CLOCK_MS};
    BEGIN(scene, &options, {.action = RAW_HANG});
    auto_err struct err err = {0};
    assert_int_equal(get_claim(&scene, &err), -1);
    assert_int_equal(err.code, ERR_TIMEOUT);
    assert_non_null(strstr(err_text(&err), "no answer within 200ms"));
    end(&scene);
}

static void test_final_statuses(void **state)
{
    (void)state;
    BEGIN(scene, NULL, {.action = RAW_REPLY, .status = 500, .body = STATUS("500", "InternalError", "oops")},
          {.action = RAW_REPLY, .body = "{\"broken\""},
          {.action = RAW_REPLY, .status = 302, .headers = "Location: http://127.0.0.1:1/\r\n"});
    auto_err struct err err = {0};
    assert_int_equal(get_claim(&scene, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_int_equal(raw_server_requests(scene.server), 1);
    assert_int_equal(get_claim(&scene, &err), -1);
    assert_string_equal(err_text(&err), "get claim default/data: the reply is no JSON");
    assert_int_equal(get_claim(&scene, &err), -1); /* redirects are not followed: credentials would go with them */
    assert_int_equal(err.status, 302);
    end(&scene);
}

static void test_retry_after(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct kube_client_options options = {.clock = clock};
    BEGIN(scene, &options, {.action = RAW_REPLY, .status = 429, .headers = "Retry-After: 7\r\n"},
          {.action = RAW_REPLY, .status = 503, .headers = "retry-after:  3\r\n"},
          {.action = RAW_REPLY, .body = CLAIM("7")});
    struct job job;
    run_with_clock(&scene, clock, 100 * CLOCK_MS, get_claim, &job);
    assert_int_equal(job.result, 0);
    int64_t first = raw_server_time(scene.server, 1) - raw_server_time(scene.server, 0);
    int64_t second = raw_server_time(scene.server, 2) - raw_server_time(scene.server, 1);
    assert_true(first >= 7 * CLOCK_SECOND);
    assert_true(second >= 3 * CLOCK_SECOND);
    end(&scene);
    clock_free(clock);
}

static void test_retry_after_beyond_deadline(void **state)
{
    (void)state;
    BEGIN(scene, NULL,
          {.action = RAW_REPLY,
           .status = 429,
           .headers = "Retry-After: 3600\r\n",
           .body = STATUS("429", "TooManyRequests", "slow down")});
    auto_err struct err err = {0};
    assert_int_equal(get_claim(&scene, &err), -1); /* at once: waiting has no sense */
    assert_int_equal(err.code, ERR_THROTTLED);
    assert_int_equal(raw_server_requests(scene.server), 1);
    end(&scene);
}

static int ten_gets(struct scene *scene, struct err *err)
{
    for (int i = 0; i < 10; i++)
        if (get_claim(scene, err) != 0)
            return -1;
    return 0;
}

static void test_rate_limit(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct kube_client_options options = {.clock = clock, .qps = 2, .burst = 4};
    BEGIN(scene, &options, {.action = RAW_REPLY, .body = CLAIM("7")});
    struct job job;
    run_with_clock(&scene, clock, 10 * CLOCK_MS, ten_gets, &job);
    assert_int_equal(job.result, 0);
    int64_t took = raw_server_time(scene.server, 9) - raw_server_time(scene.server, 0);
    assert_true(took >= 2900 * CLOCK_MS); /* four at once, six more at two a second */
    end(&scene);
    clock_free(clock);
}

static void test_limiter(void **state)
{
    (void)state;
    struct kube_limiter limiter;
    kube_limiter_init(&limiter, 10, 2, 0);
    assert_int_equal(kube_limiter_reserve(&limiter, 0, CLOCK_NEVER), 0);
    assert_int_equal(kube_limiter_reserve(&limiter, 0, CLOCK_NEVER), 0);
    assert_int_equal(kube_limiter_reserve(&limiter, 0, CLOCK_NEVER), 100 * CLOCK_MS);
    assert_int_equal(kube_limiter_reserve(&limiter, 0, 150 * CLOCK_MS), -1);
    assert_int_equal(kube_limiter_reserve(&limiter, 0, CLOCK_NEVER), 200 * CLOCK_MS); /* the refused one took none */
    assert_int_equal(kube_limiter_reserve(&limiter, 100 * CLOCK_SECOND, CLOCK_NEVER), 100 * CLOCK_SECOND);
    kube_limiter_destroy(&limiter);
    kube_limiter_init(&limiter, 0, 0, 0);
    assert_int_equal(kube_limiter_reserve(&limiter, 5, 0), 5);
    kube_limiter_destroy(&limiter);
}

/* ---- many at once, and the end ---- */

static void *get_thread(void *arg)
{
    struct scene *scene = arg;
    for (int i = 0; i < 20; i++) {
        auto_err struct err err = {0};
        if (get_claim(scene, &err) != 0)
            return mem_strdup(err_text(&err));
    }
    return NULL;
}

static void test_concurrent(void **state)
{
    (void)state;
    struct kube_client_options options = {.max_connections = 8};
    BEGIN(scene, &options, {.action = RAW_REPLY, .body = CLAIM("7")}, {.action = RAW_REPLY_CLOSE, .body = CLAIM("7")},
          {.action = RAW_CHUNKS, .body = CLAIM("7")});
    pthread_t threads[64];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        threads[i] = thread_start("getter", get_thread, &scene);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        void *problem = NULL;
        pthread_join(threads[i], &problem);
        if (problem != NULL)
            fail_msg("%s", (char *)problem);
    }
    assert_int_equal(raw_server_requests(scene.server), 64 * 20);
    assert_true(raw_server_most_at_once(scene.server) <= 8);
    end(&scene);
}

static bool count_each(void *arg, struct kube_object *object)
{
    (void)object;
    ++*(size_t *)arg;
    return true;
}

static int list_claims(struct scene *scene, struct err *err)
{
    size_t count = 0;
    return kube_list(scene->client, &kube_kind_claim, NULL, count_each, &count, NULL, err);
}

static int patch_claim(struct scene *scene, struct err *err)
{
    json_t *json = json_loads(CLAIM("7"), 0, NULL);
    int result =
        kube_patch(scene->client, &kube_kind_claim, "default", "data", NULL, KUBE_PATCH_MERGE, json, NULL, err);
    json_decref(json);
    return result;
}

static void test_cancel(void **state)
{
    (void)state;
    static const struct {
        struct raw_step step;
        int (*run)(struct scene *scene, struct err *err);
    } cases[] = {
        {{.action = RAW_HANG}, get_claim},
        {{.action = RAW_STREAM, .body = "{\"kind\":"}, get_claim}, /* in the body */
        {{.action = RAW_REPLY, .status = 429, .headers = "Retry-After: 20\r\n"}, get_claim},
        {{.action = RAW_STREAM, .body = "{\"items\":[{"}, list_claims},
        {{.action = RAW_HANG}, patch_claim},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scene scene = {0};
        begin(&scene, &cases[i].step, 1, NULL);
        struct job job = {.scene = &scene, .run = cases[i].run};
        pthread_t thread = thread_start("job", job_thread, &job);
        assert_true(raw_server_wait(scene.server, 1));
        usleep(20000);
        int64_t asked = clock_mono(clock_real());
        stop_request(scene.stop);
        thread_join(thread);
        assert_true(clock_mono(clock_real()) - asked < CLOCK_SECOND);
        assert_int_equal(job.result, -1);
        if (job.err.code != ERR_CANCELLED)
            fail_msg("case %zu: %s", i, err_text(&job.err));
        err_clear(&job.err);
        assert_int_equal(get_claim(&scene, &job.err), -1); /* and nothing starts any more */
        assert_int_equal(job.err.code, ERR_CANCELLED);
        err_clear(&job.err);
        end(&scene);
    }
}

static void test_cancel_rate_limited(void **state)
{
    (void)state;
    struct kube_client_options options = {.qps = 0.1, .burst = 1};
    BEGIN(scene, &options, {.action = RAW_REPLY, .body = CLAIM("7")});
    struct job job = {.scene = &scene, .run = ten_gets};
    pthread_t thread = thread_start("job", job_thread, &job);
    assert_true(raw_server_wait(scene.server, 1));
    stop_request(scene.stop);
    thread_join(thread);
    assert_int_equal(job.err.code, ERR_CANCELLED);
    err_clear(&job.err);
    end(&scene);
}

/* ---- the rest ---- */

static void test_discovery(void **state)
{
    (void)state;
    BEGIN(scene, NULL,
          {.action = RAW_REPLY,
           .body = "{\"kind\":\"APIResourceList\",\"resources\":[{\"name\":\"a\"},{\"name\":\"caps\"}]}"},
          {.action = RAW_REPLY, .body = "{\"kind\":\"APIResourceList\",\"resources\":[]}"},
          {.action = RAW_REPLY, .status = 404}, {.action = RAW_REPLY, .status = 403},
          {.action = RAW_REPLY, .body = "{\"gitVersion\":\"v1.20.2\"}"},
          {.action = RAW_REPLY, .body = "{\"hello\":1}"});
    auto_err struct err err = {0};
    bool served = false;
    assert_int_equal(kube_discover(scene.client, "storage.k8s.io", "v1", "caps", &served, &err), 0);
    assert_true(served);
    assert_string_equal(raw_server_line(scene.server, 0), "GET /apis/storage.k8s.io/v1");
    assert_int_equal(kube_discover(scene.client, "", "v1", "caps", &served, &err), 0);
    assert_false(served);
    assert_string_equal(raw_server_line(scene.server, 1), "GET /api/v1");
    assert_int_equal(kube_discover(scene.client, "none", "v1", "caps", &served, &err), 0);
    assert_false(served);
    assert_int_equal(kube_discover(scene.client, "none", "v1", "caps", &served, &err), -1);
    assert_int_equal(err.code, ERR_FORBIDDEN);
    auto_free char *version = NULL;
    assert_int_equal(kube_server_version(scene.client, &version, &err), 0);
    assert_string_equal(version, "v1.20.2");
    auto_free char *none = NULL;
    assert_int_equal(kube_server_version(scene.client, &none, &err), -1);
    end(&scene);
}

static void test_reply_limit(void **state)
{
    (void)state;
    size_t size = KUBE_REPLY_LIMIT + 1;
    char *body = mem_alloc(size + 1);
    memset(body, ' ', size);
    body[size] = '\0';
    struct raw_step step = {.action = RAW_REPLY, .body = body};
    struct scene scene = {0};
    begin(&scene, &step, 1, NULL);
    auto_err struct err err = {0};
    assert_int_equal(get_claim(&scene, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(err_text(&err), "larger than 67108864 bytes"));
    assert_int_equal(raw_server_requests(scene.server), 1); /* not repeated */
    end(&scene);
    free(body);
}

static void collect_line(void *arg, const char *line, size_t len)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    str_add_len(arg, line, len);
    str_add_char(arg, '\n');
    pthread_mutex_unlock(&mutex);
}

static void test_log(void **state)
{
    (void)state;
    struct scene scene = {0};
    char large[3000];
    snprintf(large, sizeof(large), "{\"note\":\"%02000d\"}", 0);
    const struct raw_step steps[] = {{.action = RAW_REPLY, .body = CLAIM("7")},
                                     {.action = RAW_REPLY, .body = "{\"data\":{\"p\":\"c3VwZXJzZWNyZXQ=\"}}"},
                                     {.action = RAW_REPLY, .body = large}};
    scene.config.token = (char *)(uintptr_t) "very-secret-token";
    begin(&scene, steps, ARRAY_LEN(steps), NULL);
    auto_err struct err err = {0};
    auto_str struct str log = {0};
    assert_int_equal(log_setup(&(struct log_options){.verbosity = 8}, &err), 0);
    log_set_sink(collect_line, &log);
    assert_int_equal(get_claim(&scene, &err), 0);
    json_t *json = NULL;
    assert_int_equal(kube_get_json(scene.client, &kube_kind_secret, "default", "s", &json, &err), 0);
    json_decref(json);
    assert_int_equal(kube_get_json(scene.client, &kube_kind_volume, NULL, "pv", &json, &err), 0);
    json_decref(json);
    log_set_sink(NULL, NULL);
    assert_int_equal(log_setup(&(struct log_options){.verbosity = 0}, &err), 0);
    const char *text = str_text(&log);
    assert_non_null(strstr(raw_server_head(scene.server, 0), "Authorization: Bearer very-secret-token"));
    assert_null(strstr(text, "very-secret-token"));
    assert_null(strstr(text, "c3VwZXJzZWNyZXQ="));
    assert_non_null(strstr(text, "method=\"GET\" path=\"/api/v1/namespaces/default/persistentvolumeclaims/data\" "
                                 "status=200 "));
    assert_non_null(strstr(text, "ReadWriteOnce"));
    const char *zeros = strstr(text, "000000");
    assert_non_null(zeros);
    assert_int_equal(strspn(zeros, "0"), 1024 - strlen("{\"note\":\""));
    end(&scene);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    BEGIN(scene, NULL, {.action = RAW_REPLY, .body = "{}"});
    auto_err struct err err = {0};
    struct kube_response response;
    assert_int_equal(kube_request(scene.client, "GET", "x", NULL, NULL, &response, &err), -1);
    assert_int_equal(kube_request(scene.client, "GET", "/a b", NULL, NULL, &response, &err), -1);
    assert_int_equal(kube_request(scene.client, "GET", "/a\r\nX: y", NULL, NULL, &response, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(raw_server_requests(scene.server), 0);
    struct kube_config config = {.server = (char *)(uintptr_t) "https://[bad"};
    struct kube_client *client = NULL;
    assert_int_equal(kube_client_new(&config, &(struct kube_client_options){0}, &client, &err), -1);
    assert_null(client);
    auto_free char *agent = kube_user_agent("berth-controller");
    assert_true(str_starts(agent, "berth-controller/v"));
    end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_status_codes),
        cmocka_unit_test(test_error_message),
        cmocka_unit_test(test_reads_are_repeated),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_final_statuses),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_retry_after_beyond_deadline),
        cmocka_unit_test(test_rate_limit),
        cmocka_unit_test(test_limiter),
        cmocka_unit_test(test_concurrent),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_rate_limited),
        cmocka_unit_test(test_discovery),
        cmocka_unit_test(test_reply_limit),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
