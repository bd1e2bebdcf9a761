/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "controller/options.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

static enum flag_result parse(struct controller_options *options, int argc, const char *const *arguments)
{
    char *argv[32] = {(char *)(uintptr_t) "berth-controller"};
    for (int i = 0; i < argc; i++)
        argv[i + 1] = (char *)(uintptr_t)arguments[i];
    return flag_parse(&controller_flags, argc + 1, argv, options, NULL);
}
#define PARSE(options, ...)                                                                                            \
    parse(options, (int)ARRAY_LEN(((const char *const[]){__VA_ARGS__})), (const char *const[]){__VA_ARGS__})

static void test_defaults(void **state)
{
    (void)state;
    struct controller_options options = {0};
    auto_err struct err err = {0};
    assert_int_equal(parse(&options, 0, NULL), FLAG_OK);
    assert_int_equal(controller_options_check(&options, &err), 0);
    assert_int_equal(options.sync_period, 15 * CLOCK_SECOND);
    assert_true(options.dynamic_provisioning);
    assert_false(options.hostpath_provisioner);
    assert_string_equal(options.nfs.template_file, "");
    assert_int_equal(options.nfs.minimum_timeout, 300);
    assert_int_equal(options.nfs.increment_timeout, 30);
    assert_string_equal(options.host_path.template_file, "");
    assert_int_equal(options.host_path.minimum_timeout, 60);
    assert_int_equal(options.host_path.increment_timeout, 30);
    assert_true(options.leader_elect);
    assert_int_equal(options.lease_duration, 15 * CLOCK_SECOND);
    assert_int_equal(options.renew_deadline, 10 * CLOCK_SECOND);
    assert_int_equal(options.retry_period, 2 * CLOCK_SECOND);
    assert_string_equal(options.lease_name, "berth-controller");
    assert_string_equal(options.lease_namespace, "kube-system");
    assert_true(options.api_qps == 20.0);
    assert_int_equal(options.api_burst, 30);
    assert_int_equal(options.mode, MODE_FULL);
    flag_free(&controller_flags, &options);
}

static void test_upstreams_flags(void **state)
{
    (void)state;
    struct controller_options options = {0};
    auto_err struct err err = {0};
    assert_int_equal(PARSE(&options, "--pvclaimbinder-sync-period=500ms", "--enable-dynamic-provisioning=false",
                           "--enable-hostpath-provisioner", "--pv-recycler-pod-template-filepath-nfs=/a",
                           "--pv-recycler-minimum-timeout-nfs=1", "--pv-recycler-increment-timeout-nfs=2",
                           "--pv-recycler-pod-template-filepath-hostpath", "/b",
                           "--pv-recycler-minimum-timeout-hostpath=3", "--pv-recycler-timeout-increment-hostpath=4",
                           "--leader-elect=false", "--leader-elect-resource-lock=leases", "--kube-api-qps=0",
                           "--mode=annotate", "--pvclaimbinder-sync-period=1s"),
                     FLAG_OK);
    assert_int_equal(controller_options_check(&options, &err), 0);
    assert_int_equal(options.sync_period, CLOCK_SECOND); /* the last one wins */
    assert_false(options.dynamic_provisioning);
    assert_true(options.hostpath_provisioner);
    assert_string_equal(options.nfs.template_file, "/a");
    assert_int_equal(options.nfs.minimum_timeout, 1);
    assert_int_equal(options.nfs.increment_timeout, 2);
    assert_string_equal(options.host_path.template_file, "/b");
    assert_int_equal(options.host_path.minimum_timeout, 3);
    assert_int_equal(options.host_path.increment_timeout, 4);
    assert_false(options.leader_elect);
    assert_int_equal(options.mode, MODE_ANNOTATE);
    flag_free(&controller_flags, &options);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"--mode=half", "--pvclaimbinder-sync-period=0", "--concurrent-claim-syncs=0",
                                      "--concurrent-volume-syncs=1000", "--pv-recycler-minimum-timeout-nfs=-1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct controller_options options = {0};
        auto_err struct err err = {0};
        assert_int_equal(PARSE(&options, bad[i]), FLAG_OK);
        assert_int_equal(controller_options_check(&options, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        flag_free(&controller_flags, &options);
    }
    struct controller_options options = {0};
    assert_int_equal(PARSE(&options, "--pvclaimbinder-sync-perid=1s"), FLAG_USAGE);
    flag_free(&controller_flags, &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_upstreams_flags),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
