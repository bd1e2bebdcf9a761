/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/options.h"
#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>

/* Parses a command line and reads the options from it; `why` is to be in the error (NULL = none). */
static void parse(const char *const *arguments, bool fuse_present, const char *why, struct hostpath_options *options)
{
    auto_err struct err err = {0};
    struct hostpath_flags flags = {0};
    char *argv[12] = {mem_strdup("berth-hostpath")};
    int argc = 1;
    while (arguments[argc - 1] != NULL) {
        argv[argc] = mem_strdup(arguments[argc - 1]);
        argc++;
    }
    assert_int_equal(flag_parse(&hostpath_program, argc, argv, &flags, NULL), FLAG_OK);
    int result = hostpath_options_read(&flags, fuse_present, options, &err);
    if (why == NULL)
        assert_int_equal(result, 0);
    else
        assert_non_null(strstr(err_text(&err), why));
    options->name = options->node_id = NULL; /* they point into argv */
    flag_free(&hostpath_program, &flags);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
}

static void test_defaults(void **state)
{
    (void)state;
    struct hostpath_options options;
    parse((const char *const[]){"--nodeid=n", NULL}, true, NULL, &options);
    assert_int_equal(options.default_backend, BACKEND_FUSE);
    assert_int_equal(options.max_volume_size, (int64_t)1 << 40);
    assert_int_equal(options.default_volume_size, 1 << 30);
    assert_true(options.topology && options.controller_expansion && options.node_expansion && options.list_snapshots);
    assert_false(options.attach || options.modify || options.overcommit || options.check_lifecycle);
    hostpath_options_free(&options);
}

static void test_what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *flag, *why;
        bool fuse_missing;
    } table[] = {{"--drivername=x", "--nodeid", false},
                 {"--default-backend=tape", "tape", false},
                 {"--capacity=fast", "--capacity=fast", false},
                 {"--capacity==1Gi", "--capacity==1Gi", false},
                 {"--capacity=fast=-1", "--capacity=fast=-1", false},
                 {"--attach-limit=-1", "negative", false},
                 {"--default-volume-size=much", "much", false},
                 {"--fallback-backend=fuse", "neither loop nor plain", true},
                 {"--v=0", "/dev/fuse", true}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct hostpath_options options;
        const char *node = i == 0 ? "--v=0" : "--nodeid=n";
        parse((const char *const[]){node, table[i].flag, NULL}, !table[i].fuse_missing, table[i].why, &options);
        hostpath_options_free(&options);
    }
}

static void test_fallback_only_without_fuse(void **state)
{
    (void)state;
    struct hostpath_options options;
    parse((const char *const[]){"--nodeid=n", "--fallback-backend=loop", NULL}, false, NULL, &options);
    assert_int_equal(options.default_backend, BACKEND_LOOP);
    assert_true(options.fuse_missing);
    hostpath_options_free(&options);
    parse((const char *const[]){"--nodeid=n", "--fallback-backend=loop", NULL}, true, NULL, &options);
    assert_int_equal(options.default_backend, BACKEND_FUSE);
    hostpath_options_free(&options);
}

static void test_lists_and_switches(void **state)
{
    (void)state;
    struct hostpath_options options;
    parse((const char *const[]){"--nodeid=n", "--capacity=fast=10Gi", "--capacity", "slow=1T",
                                "--accepted-mutable-parameter-names=a,b", "--disable-node-expansion", "--ephemeral",
                                NULL},
          true, NULL, &options);
    assert_int_equal(options.pool_count, 2);
    assert_string_equal(options.pools[1].kind, "slow");
    assert_int_equal(options.pools[1].bytes, 1000000000000);
    assert_true(strv_contains(&options.mutable_names, "b"));
    assert_true(options.controller_expansion);
    assert_false(options.node_expansion);
    hostpath_options_free(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_what_is_wrong_is_named),
        cmocka_unit_test(test_fallback_only_without_fuse),
        cmocka_unit_test(test_lists_and_switches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
