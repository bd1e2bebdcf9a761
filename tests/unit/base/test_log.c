/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <regex.h>
#include <stdio.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void keep(void *arg, const char *line, size_t len)
{
    str_add_len(arg, line, len);
}

static int setup(void **state)
{
    struct str *lines = mem_new(struct str);
    *state = lines;
    log_set_sink(keep, lines);
    return log_setup(&(struct log_options){.format = LOG_FORMAT_TEXT}, NULL);
}

static int teardown(void **state)
{
    log_set_sink(NULL, NULL);
    log_setup(&(struct log_options){.format = LOG_FORMAT_TEXT}, NULL);
    str_free(*state);
    free(*state);
    return 0;
}

static void assert_matches(const char *text, const char *pattern)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, text, 0, NULL, 0) != 0)
        fail_msg("\"%s\" does not match %s", text, pattern);
    regfree(&regex);
}

/* What comes after the header of a text line. */
static const char *after_header(const struct str *lines)
{
    const char *end = strstr(str_text(lines), "] ");
    assert_non_null(end);
    return end + 2;
}

static void test_text_header(void **state)
{
    struct str *lines = *state;
    log_info("Started");
    assert_matches(lines->data, "^I[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6} [ 0-9]{7} test_log\\.c:[0-9]+\\] "
                                "\"Started\"\n$");
    char pid[16];
    snprintf(pid, sizeof(pid), " %7d ", (int)getpid());
    assert_non_null(strstr(lines->data, pid));
    str_reset(lines);
    log_warn("Odd");
    assert_int_equal(lines->data[0], 'W');
    str_reset(lines);
    log_error("Bad");
    assert_int_equal(lines->data[0], 'E');
}

static void test_text_pairs(void **state)
{
    struct str *lines = *state;
    auto_err struct err err = {0};
    err_set(&err, ERR_IO, "disk on \"fire\"");
    log_error("Could not bind", kv_str("claim", "default/data"), kv_str("none", NULL), kv_int("n", -7),
              kv_uint("u", UINT64_MAX), kv_bool("yes", true), kv_double("d", 0.25), kv_duration("t", 1500 * CLOCK_MS),
              kv_err(&err));
    assert_string_equal(after_header(lines), "\"Could not bind\" claim=\"default/data\" none=\"\" n=-7 "
                                             "u=18446744073709551615 yes=true d=0.25 t=\"1.5s\" "
                                             "err=\"disk on \\\"fire\\\"\"\n");
}

static void test_text_escapes(void **state)
{
    struct str *lines = *state;
    /* a forged line, a terminal escape, bytes that are no text, a text direction override, and honest UTF-8 */
    log_info("M", kv_str("k", "a\nI0101 fake\r\t\\ \x1b[2J \xff \xe2\x80\xae \xc2\x9b \xc3\xa4\xe2\x82\xac"));
    assert_string_equal(after_header(lines), "\"M\" k=\"a\\nI0101 fake\\r\\t\\\\ \\x1b[2J \\xff \\u202e \\u009b "
                                             "\xc3\xa4\xe2\x82\xac\"\n");
}

static void test_long_values_are_cut(void **state)
{
    struct str *lines = *state;
    auto_str struct str value = {0};
    while (value.len < 40000)
        str_add(&value, "\xe2\x82\xac"); /* 3 bytes: 16384 is in the middle of one */
    log_info("M", kv_str("k", value.data), kv_int("after", 1));
    const char *text = after_header(lines);
    assert_true(str_is_utf8(text, strlen(text)));
    assert_int_equal(strlen(text), strlen("\"M\" k=\"\" after=1\n") + 16383 + 3);
    assert_true(str_ends(text, "\xe2\x82\xac...\" after=1\n"));
}

static void test_json(void **state)
{
    struct str *lines = *state;
    assert_int_equal(log_setup(&(struct log_options){.format = LOG_FORMAT_JSON, .verbosity = 4}, NULL), 0);
    auto_err struct err err = {0};
    err_set(&err, ERR_IO, "disk");
    log_error("Bad", kv_err(&err), kv_int("n", 3), kv_double("inf", __builtin_inf()), kv_bool("b", false),
              kv_str("s", "\x01\"\n\xff\xc3\xa4"), kv_duration("t", CLOCK_SECOND));
    assert_matches(
        lines->data,
        "^\\{\"ts\":[0-9]{13}\\.[0-9]{3},\"caller\":\"test_log\\.c:[0-9]+\",\"msg\":\"Bad\",\"err\":\"disk\","
        "\"n\":3,\"inf\":\"\\+Inf\",\"b\":false,\"s\":\"\\\\u0001\\\\\"\\\\n\\\\ufffd\xc3\xa4\",\"t\":\"1s\"\\}\n$");
    str_reset(lines);
    log_info("Fine");
    assert_matches(lines->data, "\"msg\":\"Fine\",\"v\":0\\}\n$");
    str_reset(lines);
    log_v(4, "Detail", kv_str("k", "v"));
    assert_matches(lines->data, "\"msg\":\"Detail\",\"v\":4,\"k\":\"v\"\\}\n$");
    str_reset(lines);
    log_warn("Odd");
    assert_matches(lines->data, "\"msg\":\"Odd\",\"v\":0,\"severity\":\"warning\"\\}\n$");
}

static int evaluated;

static int64_t evaluate(void)
{
    return ++evaluated;
}

static void test_verbosity(void **state)
{
    struct str *lines = *state;
    evaluated = 0;
    log_v(1, "Hidden", kv_int("n", evaluate()));
    assert_int_equal(evaluated, 0);
    assert_int_equal(lines->len, 0);
    assert_int_equal(log_setup(&(struct log_options){.verbosity = 2}, NULL), 0);
    log_v(2, "Shown", kv_int("n", evaluate()));
    log_v(3, "Hidden", kv_int("n", evaluate()));
    assert_int_equal(evaluated, 1);
    assert_string_equal(after_header(lines), "\"Shown\" n=1\n");
}

static void test_vmodule(void **state)
{
    (void)state;
    struct log_options options = {.verbosity = 1, .vmodule = "claim=4,cl*=6,lib/kube/*=3,quiet=0,"};
    assert_int_equal(log_setup(&options, NULL), 0);
    for (int round = 0; round < 2; round++) { /* the second is answered by the cache */
        assert_true(log_enabled(4, "controller/claim.c"));
        assert_false(log_enabled(5, "controller/claim.c"));
        assert_true(log_enabled(6, "lib/kube/client.c"));
        assert_true(log_enabled(3, "lib/kube/store.c"));
        assert_false(log_enabled(4, "lib/kube/store.c"));
        assert_true(log_enabled(1, "x/other.c"));
        assert_false(log_enabled(2, "x/other.c"));
        assert_false(log_enabled(1, "x/quiet.c"));
        assert_true(log_enabled(0, "x/quiet.c"));
    }
    options.vmodule = NULL;
    assert_int_equal(log_setup(&options, NULL), 0);
    assert_false(log_enabled(4, "controller/claim.c"));
}

static void test_more_files_than_the_cache_holds(void **state)
{
    (void)state;
    assert_int_equal(log_setup(&(struct log_options){.vmodule = "f1*=3"}, NULL), 0);
    char *names[400];
    for (int i = 0; i < 400; i++)
        names[i] = mem_printf("dir/f%d.c", i);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 400; i++)
            assert_int_equal(log_enabled(3, names[i]), str_starts(names[i], "dir/f1"));
    }
    assert_int_equal(log_setup(&(struct log_options){.vmodule = ""}, NULL), 0);
    for (int i = 0; i < 400; i++)
        free(names[i]);
}

static void test_bad_vmodule(void **state)
{
    (void)state;
    static const char *const bad[] = {"claim", "=3", "claim=", "claim=x", "claim=-1", "a=1,b", "a=99999999999"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        assert_int_equal(log_setup(&(struct log_options){.vmodule = bad[i]}, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.message, "vmodule"));
    }
}

enum { WRITERS = 8, LINES = 400 };

static void *write_lines(void *arg)
{
    for (int i = 0; i < LINES; i++) {
        log_info("Line", kv_str("writer", arg), kv_int("i", i),
                 kv_str("fill", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
        log_v(2, "Cached", kv_str("writer", arg));
    }
    return NULL;
}

struct reader {
    int fd;
    struct str text;
};

static void *read_all(void *arg)
{
    struct reader *reader = arg;
    char buffer[777];
    for (ssize_t got = 0; (got = read(reader->fd, buffer, sizeof(buffer))) > 0;)
        str_add_len(&reader->text, buffer, (size_t)got);
    return NULL;
}

static void test_lines_on_stderr_do_not_mix(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    assert_int_equal(log_setup(&(struct log_options){.vmodule = "test_log=2"}, NULL), 0);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    int saved = dup(STDERR_FILENO);
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]);
    struct reader reader = {.fd = fds[0]};
    pthread_t reading = thread_start("reader", read_all, &reader);
    static const char *const names[WRITERS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    pthread_t writers[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        writers[i] = thread_start("writer", write_lines, (void *)(uintptr_t)names[i]);
    for (int i = 0; i < WRITERS; i++)
        thread_join(writers[i]);
    dup2(saved, STDERR_FILENO);
    close(saved);
    thread_join(reading);
    close(fds[0]);

    auto_strv struct strv lines = {0};
    strv_split(&lines, str_text(&reader.text), '\n');
    assert_int_equal(lines.len, 2 * WRITERS * LINES + 1);
    regex_t regex;
    assert_int_equal(
        regcomp(&regex,
                "^I[0-9]{4} [0-9:.]{15} +[0-9]+ test_log\\.c:[0-9]+\\] (\"Line\" writer=\"[a-h]\" i=[0-9]+ "
                "fill=\"x{40}\"|\"Cached\" writer=\"[a-h]\")$",
                REG_EXTENDED | REG_NOSUB),
        0);
    for (size_t i = 0; i + 1 < lines.len; i++)
        assert_int_equal(regexec(&regex, lines.items[i], 0, NULL, 0), 0);
    regfree(&regex);
    str_free(&reader.text);
}

#define with_log(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_log(test_text_header),  with_log(test_text_pairs),
        with_log(test_text_escapes), with_log(test_long_values_are_cut),
        with_log(test_json),         with_log(test_verbosity),
        with_log(test_vmodule),      with_log(test_more_files_than_the_cache_holds),
        with_log(test_bad_vmodule),  with_log(test_lines_on_stderr_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
