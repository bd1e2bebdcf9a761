/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's parts that need no server: options, what is remembered of claims. */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"
#include "provisioner/options.h"
#include "provisioner/pending.h"

#include <stdlib.h>

static void parse(struct options *options, struct strv *arguments)
{
    strv_split(arguments, "berth-provisioner", ' ');
    assert_int_equal(flag_parse(&options_program, (int)arguments->len, arguments->items, options, NULL), FLAG_OK);
}

static void test_defaults(void **state)
{
    (void)state;
    struct options options = {0};
    auto_strv struct strv arguments = {0};
    parse(&options, &arguments);
    assert_string_equal(options.csi_address, "/run/csi/socket");
    assert_string_equal(options.volume_name_prefix, "pvc");
    assert_int_equal(options.volume_name_uuid_length, -1);
    assert_int_equal(options.retry_interval_start, CLOCK_SECOND);
    assert_int_equal(options.retry_interval_max, 300 * CLOCK_SECOND);
    assert_int_equal(options.worker_threads, 100);
    assert_int_equal(options.cloning_protection_threads, 1);
    assert_int_equal(options.snapshot_sweep_interval, 300 * CLOCK_SECOND);
    assert_int_equal(options.capacity_threads, 1);
    assert_int_equal(options.timeout, 10 * CLOCK_SECOND);
    assert_false(options.strict_topology);
    assert_true(options.immediate_topology);
    assert_false(options.extra_create_metadata);
    assert_true(options.qps == 5 && options.burst == 10 && options.capacity_qps == 1 && options.capacity_burst == 5);
    assert_false(options.enable_capacity);
    assert_int_equal(options.capacity_poll_interval, 60 * CLOCK_SECOND);
    assert_int_equal(options.capacity_ownerref_level, 1);
    assert_true(options.node_immediate_binding);
    assert_int_equal(options.node_base_delay, 20 * CLOCK_SECOND);
    assert_int_equal(options.node_max_delay, 60 * CLOCK_SECOND);
    assert_true(options.prevent_volume_mode_conversion);
    assert_false(options.leader_election);
    assert_int_equal(options.lease_duration, 15 * CLOCK_SECOND);
    assert_int_equal(options.renew_deadline, 10 * CLOCK_SECOND);
    assert_int_equal(options.retry_period, 5 * CLOCK_SECOND);
    assert_string_equal(options.metrics_path, "/metrics");
    struct settings settings;
    assert_int_equal(options_check(&options, &settings, NULL), 0);
    assert_true(settings.gate_topology && settings.gate_attributes_class && !settings.gate_cross_namespace);
    assert_int_equal(settings.intent, INTENT_AUTO);
    settings_free(&settings);
    flag_free(&options_program, &options);
}

static void test_old_and_ignored_flags(void **state)
{
    (void)state;
    struct options options = {0};
    auto_strv struct strv arguments = {0};
    strv_split(&arguments,
               "x --provisioner=csi --enable-leader-election --leader-election-type=leases --connection-timeout=15s "
               "--automaxprocs --logtostderr=true --stderrthreshold=INFO --alsologtostderr --log_dir=/tmp --log_file=x "
               "--log_file_max_size 1800 --add_dir_header --skip_headers --skip_log_headers --one_output "
               "--log_backtrace_at :0 --log-flush-frequency 5s --log-json-info-buffer-size=0 -v=5 --timeout 30s",
               ' ');
    assert_int_equal(flag_parse(&options_program, (int)arguments.len, arguments.items, &options, NULL), FLAG_OK);
    assert_int_equal(options.log.verbosity, 5);
    assert_int_equal(options.timeout, 30 * CLOCK_SECOND);
    flag_free(&options_program, &options);
}

static void test_checks(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *error; /* NULL = fine */
    } table[] = {
        {"x --http-endpoint=:1 --metrics-address=:2", "only one of"},
        {"x --enable-pprof", "needs --http-endpoint"},
        {"x --enable-pprof --http-endpoint=:1", NULL},
        {"x --feature-gates=Topology=false,CrossNamespaceVolumeDataSource=true", NULL},
        {"x --feature-gates=Nonsense=true", "Nonsense"},
        {"x --leader-election-labels=a:b,c:d", NULL},
        {"x --leader-election-labels=a:b,c", "\"c\" is not of the form"},
        {"x --provision-background-codes=Internal,unknown", NULL},
        {"x --provision-background-codes=OK", "not the name of a gRPC code"},
        {"x --provision-final-codes=Nope", "not the name of a gRPC code"},
        {"x --intent-records=maybe", "none of auto"},
        {"x --worker-threads=0", "out of range"},
        {"x --retry-interval-start=10m", NULL}, /* longer than the default of --retry-interval-max, which counts then */
        {"x --retry-interval-start=0", NULL},
        {"x --retry-interval-max=-1s", "out of range"},
        {"x --cloning-protection-threads=0", NULL},
        {"x --volume-name-uuid-length=-2", "out of range"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct options options = {0};
        struct settings settings;
        auto_strv struct strv arguments = {0};
        auto_err struct err err = {0};
        strv_split(&arguments, table[i].arguments, ' ');
        assert_int_equal(flag_parse(&options_program, (int)arguments.len, arguments.items, &options, NULL), FLAG_OK);
        int result = options_check(&options, &settings, &err);
        if (table[i].error != NULL)
            expect_error(&err, table[i].error);
        else if (result < 0)
            fail_msg("%s: %s", table[i].arguments, err_text(&err));
        if (strstr(table[i].arguments, "Internal") != NULL) {
            assert_true(settings.background[CSI_INTERNAL] && settings.background[CSI_UNKNOWN] &&
                        settings.background[CSI_ABORTED] && !settings.background[CSI_NOT_FOUND]);
        }
        settings_free(&settings);
        flag_free(&options_program, &options);
    }
}

static void test_lists_of_keys(void **state)
{
    (void)state;
    struct options options = {0};
    struct settings settings = {0};
    struct provision_config config = {0};
    auto_strv struct strv arguments = {0};
    strv_split(&arguments, "x --claim-labels-to-volume=a,b --claim-labels-to-volume=c", ' ');
    assert_int_equal(flag_parse(&options_program, (int)arguments.len, arguments.items, &options, NULL), FLAG_OK);
    options_apply(&options, &settings, &config);
    assert_int_equal(config.copy_claim_labels.len, 3);
    assert_string_equal(config.copy_claim_labels.items[2], "c");
    strv_free(&config.copy_claim_labels);
    flag_free(&options_program, &options);
}

static void test_pending_claims(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct pending *pending = pending_new(clock);
    struct pending_claim claim = {0};
    assert_false(pending_take(pending, "u", &claim));
    claim =
        (struct pending_claim){.kind = PENDING_BACKGROUND, .record = mem_strdup("r"), .memory = topology_memory_new()};
    pending_put(pending, "u", &claim);
    assert_null(claim.record);
    assert_true(pending_has(pending, "u"));
    assert_int_equal(pending_len(pending), 1);
    assert_true(pending_take(pending, "u", &claim));
    assert_false(pending_has(pending, "u"));
    assert_string_equal(claim.record, "r");
    claim.kind = PENDING_NONE; /* is freed, not kept */
    pending_put(pending, "u", &claim);
    assert_int_equal(pending_len(pending), 0);

    pending_delay(pending, "u", "class-1", 10 * CLOCK_SECOND);
    assert_true(pending_is_delayed(pending, "u", "class-1"));
    assert_false(pending_is_delayed(pending, "other", "class-1"));
    clock_fake_advance(clock, 10 * CLOCK_SECOND);
    assert_false(pending_is_delayed(pending, "u", "class-1"));
    pending_delay(pending, "u", "class-1", 10 * CLOCK_SECOND);
    assert_false(pending_is_delayed(pending, "u", "class-2")); /* made anew: at once, and for good */
    assert_false(pending_is_delayed(pending, "u", "class-1"));

    assert_null(pending_first_error(pending, "u", "first"));
    assert_null(pending_first_error(pending, "u", "first"));
    auto_free char *first = pending_first_error(pending, "u", "second");
    assert_string_equal(first, "first");
    pending_forget_errors(pending, "u");
    assert_null(pending_first_error(pending, "u", "second"));

    pending_expect_bound(pending, "u");
    assert_true(pending_take_bound(pending, "u"));
    assert_false(pending_take_bound(pending, "u"));
    pending_free(pending);
    clock_free(clock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_old_and_ignored_flags),
        cmocka_unit_test(test_checks),         cmocka_unit_test(test_lists_of_keys),
        cmocka_unit_test(test_pending_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
