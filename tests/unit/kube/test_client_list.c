/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: pages, replies that are none, and ends before the end, against a scripted server. */
#include "lib/base/str.h"
#include "tests/unit/kube/client_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#define ITEM(name) "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"n\",\"uid\":\"u\",\"resourceVersion\":\"3\"}}"

struct names {
    struct strv list;
    size_t stop_at;
};

static bool add_name(void *arg, struct kube_object *object)
{
    struct names *names = arg;
    strv_add(&names->list, object->meta.name);
    return names->list.len != names->stop_at;
}

static int list_names(struct scene *scene, const struct kube_list_options *options, struct names *names,
                      uint64_t *version, struct err *err)
{
    return kube_list(scene->client, &kube_kind_claim, options, add_name, names, version, err);
}

static void expect_names(struct names *names, const char *wanted)
{
    auto_free char *joined = strv_join(&names->list, " ");
    assert_string_equal(joined, wanted);
    strv_free(&names->list);
}

static void test_list_pages(void **state)
{
    (void)state;
    BEGIN(scene, NULL,
          {.action = RAW_CHUNKS,
           .body = "{\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"41\",\"con|tinue\":\"a+b/"
                   "c=\"},\"items\":[" ITEM("a") "|," ITEM("b") "]}"},
          {.action = RAW_REPLY,
           .body = " {\n \"items\" : [ " ITEM("c") " , \n" ITEM("d") " ] ,\t\"metadata\" : { \"continue\" : "
                                                                     "\"\" , \"resourceVersion\" : \"42\" } } \n"});
    auto_err struct err err = {0};
    struct names names = {0};
    uint64_t version = 0;
    struct kube_list_options options = {
        .namespace_ = "n", .label_selector = "a=b,c in (d)", .field_selector = "spec.x=y", .resource_version = 40};
    if (list_names(&scene, &options, &names, &version, &err) != 0)
        fail_msg("%s", err_text(&err));
    expect_names(&names, "a b c d");
    assert_int_equal(version, 42);
    assert_string_equal(raw_server_line(scene.server, 0),
                        "GET /api/v1/namespaces/n/persistentvolumeclaims?labelSelector=a%3Db%2Cc%20in%20%28d%29&"
                        "fieldSelector=spec.x%3Dy&limit=500&resourceVersion=40&resourceVersionMatch=NotOlderThan");
    assert_string_equal(raw_server_line(scene.server, 1),
                        "GET /api/v1/namespaces/n/persistentvolumeclaims?labelSelector=a%3Db%2Cc%20in%20%28d%29&"
                        "fieldSelector=spec.x%3Dy&limit=500&continue=a%2Bb%2Fc%3D");
    end(&scene);
}

static void test_list_replies(void **state)
{
    (void)state;
    static const struct {
        struct raw_step step;
        enum err_code code;
        const char *names;
    } cases[] = {
        {{.action = RAW_REPLY, .body = "{\"items\":null,\"metadata\":{\"resourceVersion\":\"5\"}}"}, ERR_NONE, ""},
        {{.action = RAW_REPLY, .body = "{\"items\":[],\"metadata\":{}}"}, ERR_NONE, ""},
        {{.action = RAW_REPLY, .body = "{}"}, ERR_NONE, ""},
        /* what looks like structure within strings and deeper levels is none */
        {{.action = RAW_REPLY,
          .body = "{\"x\":{\"items\":[1]},\"y\":\"\\\"items\\\":[{\\\\\",\"it\\u0065ms\":[" ITEM("a\\u0062") "]}"},
         ERR_NONE,
         "ab"},
        /* malformed items are passed over */
        {{.action = RAW_REPLY,
          .body =
              "{\"items\":[" ITEM("a") ",{\"metadata\":7},null,3,\"s\",[1,2],{bad},{\"metadata\":{}}," ITEM("b") "]}"},
         ERR_NONE,
         "a b"},
        {{.action = RAW_REPLY, .body = "{\"items\":[" ITEM("a") "," ITEM("b")}, ERR_UNAVAILABLE, "a b"},
        {{.action = RAW_REPLY, .body = "{\"items\":[" ITEM("a") " " ITEM("b") "]}"}, ERR_UNAVAILABLE, "a"},
        {{.action = RAW_REPLY, .body = "{\"items\":[,]}"}, ERR_UNAVAILABLE, ""},
        {{.action = RAW_REPLY, .body = "{\"items\":[]} x"}, ERR_UNAVAILABLE, ""},
        {{.action = RAW_REPLY, .body = "<html>"}, ERR_UNAVAILABLE, ""},
        {{.action = RAW_REPLY, .body = "[]"}, ERR_UNAVAILABLE, ""},
        {{.action = RAW_REPLY, .body = ""}, ERR_UNAVAILABLE, ""},
        {{.action = RAW_REPLY, .status = 403, .body = STATUS("403", "Forbidden", "no")}, ERR_FORBIDDEN, ""},
        {{.action = RAW_REPLY, .status = 410, .body = STATUS("410", "Expired", "continue expired")}, ERR_GONE, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct scene scene = {0};
        begin(&scene, &cases[i].step, 1, NULL);
        auto_err struct err err = {0};
        struct names names = {0};
        int result = list_names(&scene, NULL, &names, NULL, &err);
        if (err.code != cases[i].code || result != (cases[i].code == ERR_NONE ? 0 : -1))
            fail_msg("case %zu: %s", i, err_text(&err));
        expect_names(&names, cases[i].names);
        end(&scene);
    }
}

static void test_list_broken_off(void **state)
{
    (void)state;
    /* a later page is read again without giving its items twice */
    BEGIN(scene, NULL, {.action = RAW_DROP}, {.action = RAW_HALF, .body = "{\"metadata\":{}                      }"},
          {.action = RAW_REPLY, .body = "{\"metadata\":{\"continue\":\"x\"},\"items\":[" ITEM("a") "]}"},
          {.action = RAW_HALF, .body = "{\"items\":[" ITEM("b") "," ITEM("c") "," ITEM("d") "]}"},
          {.action = RAW_HALF,
           .body = "{\"items\":[" ITEM("b") "," ITEM("c") "," ITEM(
               "d") "]}                    "
                    "                                                                        "},
          {.action = RAW_REPLY, .body = "{\"items\":[" ITEM("b") "," ITEM("c") "," ITEM("d") "]}"},
          {.action = RAW_HALF, .body = "{\"items\":[" ITEM("b") "," ITEM("c") "," ITEM("d") "]}"});
    auto_err struct err err = {0};
    struct names names = {0};
    if (list_names(&scene, NULL, &names, NULL, &err) != 0)
        fail_msg("%s", err_text(&err));
    expect_names(&names, "a b c d");
    /* the first page is another one every time */
    assert_int_equal(list_names(&scene, NULL, &names, NULL, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    expect_names(&names, "b");
    assert_int_equal(raw_server_requests(scene.server), 7);
    end(&scene);
}

static void test_list_stops_early(void **state)
{
    (void)state;
    BEGIN(scene, NULL,
          {.action = RAW_STREAM,
           .body =
               "{\"metadata\":{\"resourceVersion\":\"4\",\"continue\":\"x\"},\"items\":[" ITEM("a") "," ITEM("b") ","});
    auto_err struct err err = {0};
    struct names names = {.stop_at = 2};
    uint64_t version = 0;
    assert_int_equal(list_names(&scene, NULL, &names, &version, &err), 0); /* though the server never ends the page */
    expect_names(&names, "a b");
    assert_int_equal(version, 4);
    end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_pages),
        cmocka_unit_test(test_list_replies),
        cmocka_unit_test(test_list_broken_off),
        cmocka_unit_test(test_list_stops_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
