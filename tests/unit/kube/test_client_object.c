/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that tell what is absent, and writes without an answer, against a scripted server. */
#include "tests/unit/kube/client_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static void test_get_if_any(void **state)
{
    (void)state;
    BEGIN(scene, NULL, {.action = RAW_REPLY, .status = 404, .body = NOT_FOUND_BODY},
          {.action = RAW_REPLY, .status = 404, .body = "404 page not found\n"},
          {.action = RAW_REPLY, .status = 404, .body = "<html><h1>404 Not Found</h1></html>"},
          {.action = RAW_REPLY, .status = 404, .body = ""},
          {.action = RAW_REPLY, .status = 403, .body = STATUS("403", "Forbidden", "User cannot")},
          {.action = RAW_REPLY,
           .body = "{\"kind\":\"PersistentVolumeClaim\",\"metadata\":{\"name\":\"data\",\"namespace\":\"default\","
                   "\"uid\":\"u\",\"resourceVersion\":\"7\"}}"});
    struct kube_object *object = NULL;
    auto_err struct err err = {0};
    assert_int_equal(kube_get_if_any(scene.client, &kube_kind_claim, "default", "data", &object, &err), 0);
    assert_null(object);
    for (int i = 0; i < 3; i++) { /* not the API server's word on the object */
        assert_int_equal(kube_get_if_any(scene.client, &kube_kind_claim, "default", "data", &object, &err), -1);
        assert_int_equal(err.code, ERR_UNAVAILABLE);
        assert_null(object);
    }
    assert_int_equal(kube_get_if_any(scene.client, &kube_kind_claim, "default", "data", &object, &err), -1);
    assert_int_equal(err.code, ERR_FORBIDDEN);
    assert_int_equal(kube_get_if_any(scene.client, &kube_kind_claim, "default", "data", &object, &err), 0);
    assert_string_equal(object->meta.uid, "u");
    kube_object_unref(object);
    end(&scene);
}

/* ---- writes without an answer ---- */

enum write { PATCH, PATCH_BLIND, UPDATE, CREATE, CREATE_UNNAMED, DELETE, DELETE_BLIND };

static int do_write(struct scene *scene, enum write write, struct err *err)
{
    json_t *json = json_loads(CLAIM("7"), 0, NULL);
    json_t *meta = json_object_get(json, "metadata");
    if (write == PATCH_BLIND)
        json_object_del(meta, "resourceVersion");
    if (write == CREATE_UNNAMED) {
        json_object_del(meta, "name");
        json_object_set_new(meta, "generateName", json_string("data-"));
    }
    int result = -1;
    if (write == PATCH || write == PATCH_BLIND)
        result =
            kube_patch(scene->client, &kube_kind_claim, "default", "data", NULL, KUBE_PATCH_MERGE, json, NULL, err);
    else if (write == UPDATE)
        result = kube_update(scene->client, &kube_kind_claim, "default", "data", NULL, json, NULL, err);
    else if (write == CREATE || write == CREATE_UNNAMED)
        result = kube_create(scene->client, &kube_kind_claim, "default", json, NULL, err);
    else
        result = kube_delete(scene->client, &kube_kind_claim, "default", "data",
                             write == DELETE ? "11111111-1111-1111-1111-111111111111" : NULL, 0, err);
    json_decref(json);
    return result;
}

#define DYING                                                                                                          \
    "{\"metadata\":{\"name\":\"data\",\"uid\":\"11111111-1111-1111-1111-111111111111\",\"resourceVersion\":\"9\","     \
    "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"}}"
#define ANOTHER "{\"metadata\":{\"name\":\"data\",\"uid\":\"22222222\",\"resourceVersion\":\"9\"}}"

static void test_unknown_outcomes(void **state)
{
    (void)state;
    static const struct {
        enum write write;
        struct raw_step steps[5];
        size_t count;
        enum err_code code;
        const char *methods;
    } cases[] = {
        {PATCH,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = CLAIM("7")}, {.action = RAW_REPLY, .body = CLAIM("8")}},
         3,
         ERR_NONE,
         "PATCH GET PATCH"},
        {PATCH,
         {{.action = RAW_HALF, .body = CLAIM("8")}, {.action = RAW_REPLY, .body = CLAIM("8")}},
         2,
         ERR_CONFLICT,
         "PATCH GET"},
        {PATCH,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .status = 404, .body = NOT_FOUND_BODY}},
         2,
         ERR_NOT_FOUND,
         "PATCH GET"},
        {PATCH, /* a 404 of somebody else on the way says nothing */
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .status = 404, .body = "<h1>404 Not Found</h1>"}},
         2,
         ERR_UNKNOWN_OUTCOME,
         "PATCH GET"},
        {PATCH,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .status = 403, .body = "no"}},
         2,
         ERR_UNKNOWN_OUTCOME,
         "PATCH GET"},
        {PATCH,
         {{.action = RAW_DROP},
          {.action = RAW_REPLY, .body = CLAIM("7")},
          {.action = RAW_DROP},
          {.action = RAW_REPLY, .body = CLAIM("7")}},
         4,
         ERR_UNKNOWN_OUTCOME,
         "PATCH GET PATCH GET"},
        {PATCH,
         {{.action = RAW_DROP},
          {.action = RAW_REPLY, .body = CLAIM("7")},
          {.action = RAW_DROP},
          {.action = RAW_REPLY, .body = CLAIM("8")}},
         4,
         ERR_CONFLICT,
         "PATCH GET PATCH GET"},
        {PATCH_BLIND,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = CLAIM("7")}},
         2,
         ERR_UNKNOWN_OUTCOME,
         "PATCH GET"},
        {PATCH,
         {{.action = RAW_REPLY, .status = 504, .body = "x"},
          {.action = RAW_REPLY, .body = CLAIM("7")},
          {.action = RAW_REPLY, .body = "{}"}},
         3,
         ERR_NONE,
         "PATCH GET PATCH"},
        {PATCH,
         {{.action = RAW_REPLY, .status = 503, .body = "x"}, {.action = RAW_REPLY, .body = CLAIM("8")}},
         2,
         ERR_CONFLICT,
         "PATCH GET"},
        {PATCH,
         {{.action = RAW_REPLY, .status = 503, .headers = "Retry-After: 0\r\n"}, {.action = RAW_REPLY, .body = "{}"}},
         2,
         ERR_NONE,
         "PATCH PATCH"},
        {PATCH,
         {{.action = RAW_REPLY, .status = 429}, {.action = RAW_REPLY, .body = "{}"}},
         2,
         ERR_NONE,
         "PATCH PATCH"},
        {PATCH, {{.action = RAW_REPLY, .status = 500, .body = "x"}}, 1, ERR_UNAVAILABLE, "PATCH"},
        {UPDATE, {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = CLAIM("8")}}, 2, ERR_CONFLICT, "PUT GET"},
        {CREATE, {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = CLAIM("8")}}, 2, ERR_EXISTS, "POST GET"},
        {CREATE,
         {{.action = RAW_DROP},
          {.action = RAW_REPLY, .status = 404, .body = NOT_FOUND_BODY},
          {.action = RAW_REPLY, .status = 201, .body = "{}"}},
         3,
         ERR_NONE,
         "POST GET POST"},
        {CREATE,
         {{.action = RAW_REPLY, .status = 502, .body = "bad gateway"}, {.action = RAW_REPLY, .body = CLAIM("8")}},
         2,
         ERR_EXISTS,
         "POST GET"},
        {CREATE,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .status = 404, .body = "404 page not found"}},
         2,
         ERR_UNKNOWN_OUTCOME,
         "POST GET"},
        {CREATE_UNNAMED, {{.action = RAW_DROP}}, 1, ERR_UNKNOWN_OUTCOME, "POST"},
        {DELETE,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .status = 404, .body = NOT_FOUND_BODY}},
         2,
         ERR_NONE,
         "DELETE GET"},
        {DELETE,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .status = 404, .body = "404 page not found"}},
         2,
         ERR_UNKNOWN_OUTCOME,
         "DELETE GET"},
        {DELETE, {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = DYING}}, 2, ERR_NONE, "DELETE GET"},
        {DELETE, {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = ANOTHER}}, 2, ERR_NONE, "DELETE GET"},
        {DELETE,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = CLAIM("7")}, {.action = RAW_REPLY, .body = "{}"}},
         3,
         ERR_NONE,
         "DELETE GET DELETE"},
        {DELETE_BLIND,
         {{.action = RAW_DROP}, {.action = RAW_REPLY, .body = CLAIM("7")}},
         2,
         ERR_UNKNOWN_OUTCOME,
         "DELETE GET"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scene scene = {0};
        struct kube_client_options options = {.request_timeout = 5 * CLOCK_SECOND};
        begin(&scene, cases[i].steps, cases[i].count, &options);
        auto_err struct err err = {0};
        int result = do_write(&scene, cases[i].write, &err);
        auto_free char *methods = raw_server_methods(scene.server);
        if (err.code != cases[i].code || result != (cases[i].code == ERR_NONE ? 0 : -1) ||
            strcmp(methods, cases[i].methods) != 0)
            fail_msg("case %zu: %s; %s", i, err_text(&err), methods);
        end(&scene);
    }
}

/* libcurl would send a write again by itself when a kept connection dies under it. */
static void test_kept_connection_dies(void **state)
{
    (void)state;
    BEGIN(scene, NULL, {.action = RAW_REPLY, .body = CLAIM("7")}, {.action = RAW_DROP},
          {.action = RAW_REPLY, .body = CLAIM("8")});
    auto_err struct err err = {0};
    assert_int_equal(get_claim(&scene, &err), 0);
    assert_int_equal(do_write(&scene, PATCH, &err), -1);
    assert_int_equal(err.code, ERR_CONFLICT);
    auto_free char *methods = raw_server_methods(scene.server);
    assert_string_equal(methods, "GET PATCH GET");
    end(&scene);
}

static void test_write_times_out(void **state)
{
    (void)state;
    struct kube_client_options options = {.request_timeout = 200 * CLOCK_MS};
    BEGIN(scene, &options, {.action = RAW_HANG});
    auto_err struct err err = {0};
    assert_int_equal(do_write(&scene, PATCH, &err), -1);
    assert_int_equal(err.code, ERR_UNKNOWN_OUTCOME);
    struct kube_response response;
    assert_int_equal(kube_request(scene.client, "POST", "/x", NULL, "{}", &response, &err), -1);
    assert_int_equal(err.code, ERR_UNKNOWN_OUTCOME);
    assert_int_equal(raw_server_requests(scene.server), 2);
    end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_if_any),
        cmocka_unit_test(test_unknown_outcomes),
        cmocka_unit_test(test_kept_connection_dies),
        cmocka_unit_test(test_write_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
