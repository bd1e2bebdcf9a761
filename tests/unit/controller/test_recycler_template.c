/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "controller/recycler_pod.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <stdio.h>
#include <unistd.h>

static const char *const host_path = "{'spec':{'nfs':null,'hostPath':{'path':'/tmp/x','type':'Directory'},"
                                     "'capacity':{'storage':'%s'}}}";

static json_t *build(const struct recycler_template *recycler, const char *capacity)
{
    auto_free char *text = mem_printf("{'spec':{'capacity':{'storage':'%s'}}}", capacity);
    auto_unref struct kube_object *volume = make_object(&kube_kind_volume, "v", text, 1);
    return recycler_pod_build(recycler, (struct kube_volume *)volume);
}

static void test_built_in(void **state)
{
    (void)state;
    struct controller_profile profile;
    profile_init(&profile, 36);
    struct recycler_options options = {.template_file = "", .minimum_timeout = 300, .increment_timeout = 30};
    struct recycler_template *recycler;
    assert_int_equal(recycler_template_new(&profile, &options, &recycler, NULL), 0);
    assert_json(build(recycler, "5Gi"),
                "{'apiVersion':'v1','kind':'Pod','metadata':{'namespace':'default','name':'recycler-for-v'},"
                "'spec':{'restartPolicy':'Never','activeDeadlineSeconds':300,"
                "'volumes':[{'name':'vol','nfs':{'server':'s','path':'/p'}}],"
                "'containers':[{'name':'pv-recycler','image':'registry.k8s.io/build-image/debian-base:bookworm-v1.0.6',"
                "'command':['/bin/sh'],'args':['-c','test -e /scrub && find /scrub -mindepth 1 -delete && test -z "
                "\\'$(ls -A /scrub)\\' || exit 1'],'volumeMounts':[{'name':'vol','mountPath':'/scrub'}]}]}}");
    recycler_template_free(recycler);
}

static void test_deadline(void **state)
{
    (void)state;
    static const struct {
        const char *capacity;
        json_int_t seconds;
    } cases[] = {{"500M", 50},
                 {"1.9Gi", 50},
                 {"3000M", 60},
                 {"150Gi", 4500},
                 {"0", 50},
                 /* the largest that counts, and what is beyond it */
                 {"8Ei", 257698037730},
                 {"9223372036854775808", 50},
                 {"9300P", 50},
                 {"800E", 50}};
    struct controller_profile profile;
    profile_init(&profile, 36);
    struct recycler_options options = {.template_file = "", .minimum_timeout = 50, .increment_timeout = 30};
    struct recycler_template *recycler;
    assert_int_equal(recycler_template_new(&profile, &options, &recycler, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *pod = build(recycler, cases[i].capacity);
        json_int_t got = json_integer_value(json_object_get(json_object_get(pod, "spec"), "activeDeadlineSeconds"));
        json_decref(pod);
        assert_int_equal(got, cases[i].seconds);
    }
    recycler_template_free(recycler);
}

static void test_host_path_and_old_image(void **state)
{
    (void)state;
    struct controller_profile profile;
    profile_init(&profile, 20);
    struct recycler_options options = {.template_file = "", .minimum_timeout = 60, .increment_timeout = 30};
    struct recycler_template *recycler;
    assert_int_equal(recycler_template_new(&profile, &options, &recycler, NULL), 0);
    auto_free char *text = mem_printf(host_path, "1Gi");
    auto_unref struct kube_object *volume = make_object(&kube_kind_volume, "v", text, 1);
    json_t *pod = recycler_pod_build(recycler, (struct kube_volume *)volume);
    json_t *spec = json_object_get(pod, "spec");
    assert_json(json_incref(json_object_get(spec, "volumes")), "[{'name':'vol','hostPath':{'path':'/tmp/x'}}]");
    const json_t *container = json_array_get(json_object_get(spec, "containers"), 0);
    assert_string_equal(json_string_value(json_object_get(container, "image")), "busybox:1.27");
    json_decref(pod);
    recycler_template_free(recycler);
}

static int from_file(const char *content, struct recycler_template **recycler, struct err *err)
{
    char path[] = "/tmp/berth-recycler-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    close(fd);
    struct controller_profile profile;
    profile_init(&profile, 36);
    struct recycler_options options = {.template_file = path, .minimum_timeout = 1, .increment_timeout = 1};
    int result = recycler_template_new(&profile, &options, recycler, err);
    unlink(path);
    return result;
}

static void test_file(void **state)
{
    (void)state;
    struct recycler_template *recycler;
    auto_err struct err err = {0};
    int result = from_file("apiVersion: v1\n"
                           "kind: Pod\n"
                           "metadata:\n"
                           "  generateName: mine-\n"
                           "  namespace: storage\n"
                           "spec:\n"
                           "  restartPolicy: Never\n"
                           "  volumes:\n"
                           "  - name: data\n"
                           "    hostPath: {path: /ignored}\n"
                           "  - name: second\n"
                           "    emptyDir: {}\n"
                           "  containers:\n"
                           "  - name: scrub\n"
                           "    image: my/scrubber:1\n",
                           &recycler, &err);
    if (result != 0)
        fail_msg("%s", err_text(&err));
    assert_json(build(recycler, "5Gi"),
                "{'apiVersion':'v1','kind':'Pod','metadata':{'namespace':'storage','name':'recycler-for-v'},"
                "'spec':{'restartPolicy':'Never','activeDeadlineSeconds':5,"
                "'volumes':[{'name':'data','nfs':{'server':'s','path':'/p'}},{'name':'second','emptyDir':{}}],"
                "'containers':[{'name':'scrub','image':'my/scrubber:1'}]}}");
    json_t *again = build(recycler, "1Gi"); /* the template itself is not changed by use */
    assert_int_equal(json_integer_value(json_object_get(json_object_get(again, "spec"), "activeDeadlineSeconds")), 1);
    json_decref(again);
    recycler_template_free(recycler);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *content, *message;
    } cases[] = {
        {"kind: Pod\nspec: {containers: [{name: a}]}\n", "does not contain any volume(s)"},
        {"kind: Pod\nspec: {volumes: [], containers: [{name: a}]}\n", "does not contain any volume(s)"},
        {"kind: Pod\nspec: {volumes: [{name: v}]}\n", "does not contain any container"},
        {"kind: Job\nspec: {}\n", "kind is not Pod"},
        {"kind: [\n", ""},
        {"", "is empty"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct recycler_template *recycler = NULL;
        auto_err struct err err = {0};
        assert_int_equal(from_file(cases[i].content, &recycler, &err), -1);
        assert_non_null(strstr(err_text(&err), cases[i].message));
        assert_int_not_equal(err.code, ERR_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_host_path_and_old_image),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
