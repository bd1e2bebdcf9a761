/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/flag.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct options {
    bool leader_elect;
    bool on;
    int64_t workers;
    double qps;
    const char *kubeconfig;
    const char *prefix;
    int64_t timeout;
    struct strv nodes;
    struct strv zones;
    struct flag_log log;
};

#define AT(member) .offset = offsetof(struct options, member)
static const struct flag flags[] = {
    {.name = "kubeconfig",
     .type = FLAG_STRING,
     .group = "Connection",
     .help = "Path of the kubeconfig.",
     AT(kubeconfig)},
    {.name = "kube-api-qps",
     .type = FLAG_DOUBLE,
     .default_value = "5",
     .group = "Connection",
     .help = "Requests.",
     AT(qps)},
    {.name = "leader-elect",
     .type = FLAG_BOOL,
     .group = "Leader election",
     .help = "Elect | a leader.",
     AT(leader_elect)},
    {.name = "on", .type = FLAG_BOOL, .default_value = "true", .group = "Leader election", .help = "On.", AT(on)},
    {.name = "worker-threads",
     .type = FLAG_INT,
     .default_value = "100",
     .help = "Workers.",
     AT(workers),
     .short_name = 'w'},
    {.name = "timeout",
     .type = FLAG_DURATION,
     .default_value = "15s",
     .group = "Connection",
     .help =
         "How long a call to the driver may take before it is given up, which is then told in an event of the claim "
         "and tried again with a growing delay.",
     AT(timeout)},
    {.name = "volume-name-prefix", .type = FLAG_STRING, .default_value = "pvc", .help = "Prefix.", AT(prefix)},
    {.name = "node", .type = FLAG_LIST, .help = "Nodes.", AT(nodes)},
    {.name = "zone", .type = FLAG_LIST, .default_value = "z0", .help = "Zones.", AT(zones)},
    {.name = "cloud-config", .type = FLAG_IGNORED, .help = "There are no cloud providers."},
    {.name = "profiling", .type = FLAG_IGNORED_BOOL, .help = "There is no profiler."},
    {.name = "old-name", .type = FLAG_STRING, .help = "Deprecated.", AT(prefix), .hidden = true},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {
    .name = "berth-test",
    .summary = "Tests the flags.",
    .usage = "[flags]",
    .flags = flags,
    .count = ARRAY_LEN(flags),
};

/* Everything that a run wrote, and what it returned. */
struct run {
    struct options options;
    enum flag_result result;
    struct strv rest;
    char *out;
    char *err;
};

static char *slurp(FILE *file)
{
    struct str text = {0};
    char buffer[1024];
    rewind(file);
    for (size_t got = 0; (got = fread(buffer, 1, sizeof(buffer), file)) > 0;)
        str_add_len(&text, buffer, got);
    fclose(file);
    return str_take(&text);
}

/* argv is one text, split at '|'. */
static void run_table(struct run *run, const struct flag_program *of, const char *line, bool with_rest)
{
    *run = (struct run){.result = FLAG_OK};
    memset(&run->options, 0xa5, sizeof(run->options)); /* the defaults must set everything */
    static struct strv argv;                           /* strings of the last run stay readable */
    strv_free(&argv);
    strv_add(&argv, "berth-test");
    if (*line != '\0')
        strv_split(&argv, line, '|');
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    fflush(stdout);
    fflush(stderr);
    int saved[] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    run->result = flag_parse(of, (int)argv.len, argv.items, &run->options, with_rest ? &run->rest : NULL);
    fflush(stdout);
    dup2(saved[0], STDOUT_FILENO);
    dup2(saved[1], STDERR_FILENO);
    close(saved[0]);
    close(saved[1]);
    run->out = slurp(out);
    run->err = slurp(err);
}

static void run_free(struct run *run)
{
    flag_free(&program, &run->options);
    strv_free(&run->rest);
    free(run->out);
    free(run->err);
}
#define auto_run __attribute__((cleanup(run_free)))

static void test_defaults(void **state)
{
    (void)state;
    auto_run struct run run;
    run_table(&run, &program, "", false);
    assert_int_equal(run.result, FLAG_OK);
    assert_string_equal(run.err, "");
    assert_false(run.options.leader_elect);
    assert_true(run.options.on);
    assert_int_equal(run.options.workers, 100);
    assert_true(run.options.qps == 5);
    assert_string_equal(run.options.kubeconfig, "");
    assert_string_equal(run.options.prefix, "pvc");
    assert_int_equal(run.options.timeout, 15 * CLOCK_SECOND);
    assert_int_equal(run.options.nodes.len, 0);
    assert_int_equal(run.options.zones.len, 1);
    assert_string_equal(run.options.zones.items[0], "z0");
    assert_string_equal(run.options.log.format, "text");
}

static void test_forms(void **state)
{
    (void)state;
    auto_run struct run run;
    run_table(&run, &program,
              "--kubeconfig=/"
              "a=b|-kube_api_qps|2.5|--leader-elect|--on=false|-worker-threads=-3|--timeout|1m|--node=a|--node|b|"
              "--zone=z1|-v=5|--vmodule=",
              false);
    assert_int_equal(run.result, FLAG_OK);
    assert_string_equal(run.err, "");
    assert_string_equal(run.options.kubeconfig, "/a=b");
    assert_true(run.options.qps == 2.5);
    assert_true(run.options.leader_elect);
    assert_false(run.options.on);
    assert_int_equal(run.options.workers, -3);
    assert_int_equal(run.options.timeout, 60 * CLOCK_SECOND);
    assert_int_equal(run.options.nodes.len, 2);
    assert_string_equal(run.options.nodes.items[1], "b");
    assert_int_equal(run.options.zones.len, 1); /* instead of the default */
    assert_string_equal(run.options.zones.items[0], "z1");
    assert_int_equal(run.options.log.verbosity, 5);
}

static void test_verbosity_forms(void **state)
{
    (void)state;
    static const char *const forms[] = {"-v=5", "-v|5", "--v=5", "--v|5", "-v5", "-v=1|-v=5"};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        auto_run struct run run;
        run_table(&run, &program, forms[i], false);
        assert_int_equal(run.result, FLAG_OK);
        assert_int_equal(run.options.log.verbosity, 5);
    }
    auto_run struct run run;
    run_table(&run, &program, "-w|7|-w=8|-w9", false);
    assert_int_equal(run.options.workers, 9);
}

static void test_bad_command_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *message;
    } table[] = {
        {"--kubconfig=x", "unknown flag: --kubconfig (did you mean --kubeconfig?)"},
        {"-kubconfig|x", "unknown flag: --kubconfig (did you mean --kubeconfig?)"},
        {"--worker_thread=3", "unknown flag: --worker_thread (did you mean --worker-threads?)"},
        {"--verison", "unknown flag: --verison (did you mean --version?)"},
        {"--entirely-different", "unknown flag: --entirely-different"},
        {"--old-nam=x", "unknown flag: --old-nam"}, /* a hidden flag is not advertised */
        {"--=x", "unknown flag: -- (did you mean --v?)"},
        {"-vx", "unknown flag: --vx (did you mean --v?)"},
        {"--worker-threads=many", "invalid value \"many\" for --worker-threads: not a whole number"},
        {"--worker-threads=", "invalid value \"\" for --worker-threads: not a whole number"},
        {"--kube-api-qps=inf", "invalid value \"inf\" for --kube-api-qps: not a number"},
        {"--kube-api-qps=1x", "invalid value \"1x\" for --kube-api-qps: not a number"},
        {"--timeout=15", "invalid value \"15\" for --timeout: not a duration such as 15s, 1h30m or 500ms"},
        {"--leader-elect=yes", "invalid value \"yes\" for --leader-elect: neither true nor false"},
        {"--help=x", "invalid value \"x\" for --help: neither true nor false"},
        {"--kubeconfig", "--kubeconfig needs a value"},
        {"--leader-elect|false", "unexpected argument: \"false\" (a boolean flag takes its value as --name=value)"},
        {"run", "unexpected argument: \"run\""},
        {"--|--v", "unexpected argument: \"--v\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_run struct run run;
        run_table(&run, &program, table[i].line, false);
        assert_int_equal(run.result, FLAG_USAGE);
        auto_free char *expected = mem_printf("%s\nsee 'berth-test --help'\n", table[i].message);
        assert_string_equal(run.err, expected);
        assert_string_equal(run.out, "");
    }
}

static void test_rest(void **state)
{
    (void)state;
    auto_run struct run run;
    run_table(&run, &program, "explain|--leader-elect|pvc/x|-|--|--v|-y", true);
    assert_int_equal(run.result, FLAG_OK);
    auto_free char *rest = strv_join(&run.rest, " ");
    assert_string_equal(rest, "explain pvc/x - --v -y");
    assert_true(run.options.leader_elect);
}

static void keep(void *arg, const char *line, size_t len)
{
    str_add_len(arg, line, len);
}

static void test_ignored_flags(void **state)
{
    (void)state;
    auto_str struct str lines = {0};
    log_set_sink(keep, &lines);
    static const char *const forms[] = {
        "--cloud-config=x|--profiling|--leader-elect", "--cloud-config|x|--profiling=false|--leader-elect",
        "--cloud-config|--leader-elect|--profiling", "--profiling|--cloud-config|-1|--leader-elect",
        "--leader-elect|--profiling|--cloud-config"};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        auto_run struct run run;
        str_reset(&lines);
        run_table(&run, &program, forms[i], false);
        assert_int_equal(run.result, FLAG_OK);
        assert_true(run.options.leader_elect);
        assert_non_null(
            strstr(str_text(&lines),
                   "\"Flag has no effect\" flag=\"cloud-config\" reason=\"There are no cloud providers.\"\n"));
        assert_non_null(strstr(str_text(&lines), "flag=\"profiling\" reason=\"There is no profiler.\"\n"));
    }
    /* a program without logging flags */
    str_reset(&lines);
    struct flag_program plain = program;
    plain.count -= 3;
    auto_run struct run run;
    run_table(&run, &plain, "--profiling", false);
    assert_non_null(strstr(str_text(&lines), "flag=\"profiling\""));
    assert_null(strstr(str_text(&lines), "cloud-config"));
    auto_run struct run json; /* in the form that the command line asks for, wherever that stands */
    str_reset(&lines);
    run_table(&json, &program, "--profiling|--logging-format=json", false);
    assert_non_null(strstr(str_text(&lines), "\"flag\":\"profiling\""));
    log_set_sink(NULL, NULL);
}

static void test_help(void **state)
{
    (void)state;
    auto_run struct run run;
    run_table(&run, &program, "--leader-elect|--help|--nonsense", false);
    assert_int_equal(run.result, FLAG_EXIT);
    assert_string_equal(run.err, "");
    static const char *const expected[] = {
        "Tests the flags.\n\nUsage:\n  berth-test [flags]\n\nConnection:\n\n      --kubeconfig string\n",
        "\n      --kube-api-qps float\n                Requests. (default 5)\n",
        "\n      --leader-elect\n                Elect | a leader.\n",
        "\n      --on\n                On. (default true)\n",
        "\nFlags:\n\n  -w, --worker-threads int\n                Workers. (default 100)\n",
        "                Prefix. (default \"pvc\")\n",
        "      --cloud-config value\n                Accepted, no effect: There are no cloud providers.\n",
        "\nLogging:\n\n  -v, --v int\n                Number for the log level verbosity.\n",
        "\nGlobal:\n\n  -h, --help\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        if (strstr(run.out, expected[i]) == NULL)
            fail_msg("no \"%s\" in\n%s", expected[i], run.out);
    }
    assert_null(strstr(run.out, "old-name"));
    auto_strv struct strv lines = {0};
    strv_split(&lines, run.out, '\n');
    size_t longest = 0;
    for (size_t i = 0; i < lines.len; i++)
        longest = strlen(lines.items[i]) > longest ? strlen(lines.items[i]) : longest;
    assert_in_range(longest, 90, 100); /* the long text was wrapped, and not too early */
    auto_run struct run again;
    run_table(&again, &program, "-h", false);
    assert_string_equal(again.out, run.out);
}

static void test_markdown_and_version(void **state)
{
    (void)state;
    auto_run struct run run;
    run_table(&run, &program, "--help-markdown", false);
    assert_int_equal(run.result, FLAG_EXIT);
    assert_non_null(strstr(
        run.out, "\n### Connection\n\n| Flag | Type | Default | Description |\n|---|---|---|---|\n| `--kubeconfig` "));
    assert_non_null(strstr(run.out, "| `--timeout` | duration | `15s` | How long"));
    assert_non_null(strstr(run.out, "| Elect \\| a leader. |\n"));
    assert_null(strstr(run.out, "old-name"));
    auto_run struct run version;
    run_table(&version, &program, "--version", false);
    assert_int_equal(version.result, FLAG_EXIT);
    auto_free char *expected = mem_printf("berth-test %s (%s)\n", berth_version(), berth_revision());
    assert_string_equal(version.out, expected);
    assert_true(berth_version()[0] >= '0' && berth_version()[0] <= '9');
    auto_run struct run not_wanted;
    run_table(&not_wanted, &program, "--version=false", false);
    assert_int_equal(not_wanted.result, FLAG_OK);
}

static void test_log_flags(void **state)
{
    (void)state;
    static const struct {
        const char *line, *problem;
    } bad[] = {
        {"--logging-format=xml", "invalid value \"xml\" for --logging-format: use text or json\n"},
        {"-v=9223372036854775807", "invalid value \"9223372036854775807\" for --v: out of range\n"},
        {"--vmodule=x", "vmodule: \"x\" is not of the form pattern=N\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_run struct run run;
        run_table(&run, &program, bad[i].line, false);
        assert_int_equal(run.result, FLAG_USAGE);
        auto_free char *expected = mem_printf("%ssee 'berth-test --help'\n", bad[i].problem);
        assert_string_equal(run.err, expected);
    }
    auto_run struct run run;
    run_table(&run, &program, "-v=3|--logging-format=json", false);
    assert_int_equal(run.result, FLAG_OK);
    assert_true(log_enabled(3, __FILE__));
    auto_run struct run plain;
    run_table(&plain, &program, "--logging-format=", false);
    assert_int_equal(plain.result, FLAG_OK);
    assert_false(log_enabled(3, __FILE__));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_verbosity_forms),
        cmocka_unit_test(test_bad_command_lines),
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_ignored_flags),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_markdown_and_version),
        cmocka_unit_test(test_log_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
