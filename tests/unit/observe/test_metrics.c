/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/observe/metrics.h"

#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const double bounds[] = {0.005, 1, 2.5};
static const struct metric_family requests = {
    .name = "requests_total",
    .help = "Requests,\nby \\ code \"quoted\".",
    .type = METRIC_COUNTER,
    .labels = {"verb", "code"},
};
static const struct metric_family depth = {.name = "depth", .help = "Depth.", .type = METRIC_GAUGE};
static const struct metric_family latency = {
    .name = "latency_seconds",
    .help = "Latency.",
    .type = METRIC_HISTOGRAM,
    .labels = {"driver"},
    .buckets = bounds,
    .bucket_count = ARRAY_LEN(bounds),
};
static const struct metric_family plain_latency = {
    .name = "plain_seconds",
    .help = "Latency.",
    .type = METRIC_HISTOGRAM,
    .buckets = bounds,
    .bucket_count = ARRAY_LEN(bounds),
};
#define LABELS(...) ((const char *const[]){__VA_ARGS__})

static void assert_written(struct metrics *metrics, const char *expected)
{
    auto_str struct str out = {0};
    metrics_write(metrics, &out);
    assert_string_equal(str_text(&out), expected);
}

static void test_text(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    metrics_register(metrics, &requests);
    metrics_register(metrics, &latency);
    metrics_register(metrics, &depth);
    assert_written(metrics, "");
    metric_add(metrics, &requests, 1, LABELS("PUT", "200"));
    metric_add(metrics, &requests, 2, LABELS("GET", "404"));
    metric_add(metrics, &requests, 0.5, LABELS("GET", "404"));
    metric_add(metrics, &requests, 1, LABELS("GET", NULL));
    metric_set(metrics, &depth, 3, NULL);
    metric_add(metrics, &depth, -4, NULL);
    metric_observe(metrics, &latency, 0.005, LABELS("a\"b\\c\nd"));
    metric_observe(metrics, &latency, 0.006, LABELS("a\"b\\c\nd"));
    metric_observe(metrics, &latency, 100, LABELS("a\"b\\c\nd"));
    metric_observe(metrics, &plain_latency, 2, NULL); /* registered by this */
    assert_written(metrics, "# HELP depth Depth.\n"
                            "# TYPE depth gauge\n"
                            "depth -1\n"
                            "# HELP latency_seconds Latency.\n"
                            "# TYPE latency_seconds histogram\n"
                            "latency_seconds_bucket{driver=\"a\\\"b\\\\c\\nd\",le=\"0.005\"} 1\n"
                            "latency_seconds_bucket{driver=\"a\\\"b\\\\c\\nd\",le=\"1\"} 2\n"
                            "latency_seconds_bucket{driver=\"a\\\"b\\\\c\\nd\",le=\"2.5\"} 2\n"
                            "latency_seconds_bucket{driver=\"a\\\"b\\\\c\\nd\",le=\"+Inf\"} 3\n"
                            "latency_seconds_sum{driver=\"a\\\"b\\\\c\\nd\"} 100.011\n"
                            "latency_seconds_count{driver=\"a\\\"b\\\\c\\nd\"} 3\n"
                            "# HELP plain_seconds Latency.\n"
                            "# TYPE plain_seconds histogram\n"
                            "plain_seconds_bucket{le=\"0.005\"} 0\n"
                            "plain_seconds_bucket{le=\"1\"} 0\n"
                            "plain_seconds_bucket{le=\"2.5\"} 1\n"
                            "plain_seconds_bucket{le=\"+Inf\"} 1\n"
                            "plain_seconds_sum 2\n"
                            "plain_seconds_count 1\n"
                            "# HELP requests_total Requests,\\nby \\\\ code \"quoted\".\n"
                            "# TYPE requests_total counter\n"
                            "requests_total{verb=\"GET\",code=\"\"} 1\n"
                            "requests_total{verb=\"GET\",code=\"404\"} 2.5\n"
                            "requests_total{verb=\"PUT\",code=\"200\"} 1\n");
    metrics_free(metrics);
    metrics_free(NULL);
}

static void test_values(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    assert_true(metric_value(metrics, &requests, LABELS("GET", "200")) == 0);
    assert_written(metrics, ""); /* asking makes no sample */
    metric_add(metrics, &requests, 3, LABELS("GET", "200"));
    metric_observe(metrics, &latency, 7, LABELS("d"));
    metric_observe(metrics, &latency, 7, LABELS("d"));
    assert_true(metric_value(metrics, &requests, LABELS("GET", "200")) == 3);
    assert_true(metric_value(metrics, &requests, LABELS("GET", "20")) == 0);
    assert_true(metric_value(metrics, &latency, LABELS("d")) == 2);
    metric_touch(metrics, &requests, LABELS("GET", "200"));
    assert_true(metric_value(metrics, &requests, LABELS("GET", "200")) == 3);
    metric_clear(metrics, &latency);
    assert_true(metric_value(metrics, &latency, LABELS("d")) == 0);
    metric_clear(metrics, &requests);
    metric_touch(metrics, &requests, NULL);
    assert_written(metrics, "# HELP requests_total Requests,\\nby \\\\ code \"quoted\".\n"
                            "# TYPE requests_total counter\n"
                            "requests_total{verb=\"\",code=\"\"} 0\n");
    metrics_free(metrics);
}

/* Two lists of values must never fall together, nor may bytes that are no UTF-8 reach the scraper. */
static void test_label_values_are_kept_apart(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    metric_add(metrics, &requests, 1, LABELS("a", "bc"));
    metric_add(metrics, &requests, 2, LABELS("ab", "c"));
    metric_add(metrics, &requests, 4, LABELS("", "abc"));
    assert_true(metric_value(metrics, &requests, LABELS("a", "bc")) == 1);
    assert_true(metric_value(metrics, &requests, LABELS("ab", "c")) == 2);
    metric_clear(metrics, &requests);
    metric_add(metrics, &requests, 1, LABELS("x\xfe\xc3", "\xc3\xa4"));
    auto_str struct str out = {0};
    metrics_write(metrics, &out);
    assert_true(str_is_utf8(out.data, out.len));
    assert_non_null(strstr(out.data, "{verb=\"x\xef\xbf\xbd\xef\xbf\xbd\",code=\"\xc3\xa4\"} 1\n"));
    metrics_free(metrics);
}

static void collect(struct metrics *metrics, void *arg)
{
    int *scrapes = arg;
    metric_clear(metrics, &requests);
    metric_set(metrics, &depth, ++*scrapes, NULL);
}

static void test_collectors_run_at_each_scrape(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    int scrapes = 0;
    int other = 10;
    metric_add(metrics, &requests, 1, LABELS("GET", "200"));
    metrics_on_scrape(metrics, collect, &other);
    metrics_on_scrape(metrics, collect, &scrapes);
    assert_written(metrics, "# HELP depth Depth.\n# TYPE depth gauge\ndepth 1\n");
    assert_written(metrics, "# HELP depth Depth.\n# TYPE depth gauge\ndepth 2\n");
    assert_int_equal(other, 12);
    metrics_free(metrics);
}

static const struct metric_family second_depth = {.name = "depth", .help = "Another.", .type = METRIC_GAUGE};

static void register_twice(struct metrics *metrics)
{
    metrics_register(metrics, &depth);
    metrics_register(metrics, &second_depth);
}

static void use_two_definitions(struct metrics *metrics)
{
    metric_set(metrics, &depth, 1, NULL);
    metric_set(metrics, &second_depth, 1, NULL);
}

static void lower_a_counter(struct metrics *metrics)
{
    metric_add(metrics, &requests, -1, NULL);
}

static void observe_a_gauge(struct metrics *metrics)
{
    metric_observe(metrics, &depth, 1, NULL);
}

static void set_a_histogram(struct metrics *metrics)
{
    metric_set(metrics, &latency, 1, NULL);
}

static void test_programming_errors_abort(void **state)
{
    (void)state;
    static void (*const mistakes[])(struct metrics * metrics) = {
        register_twice, use_two_definitions, lower_a_counter, observe_a_gauge, set_a_histogram,
    };
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            fclose(stderr);
            mistakes[i](metrics_new());
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

enum { THREADS = 4, ROUNDS = 5000 };

static void *record(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        metric_add(arg, &requests, 1, LABELS("GET", i % 2 == 0 ? "200" : "500"));
        metric_observe(arg, &latency, 1, LABELS("d"));
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = thread_start("recorder", record, metrics);
    for (int i = 0; i < 20; i++) {
        auto_str struct str out = {0};
        metrics_write(metrics, &out);
    }
    for (int i = 0; i < THREADS; i++)
        thread_join(threads[i]);
    assert_true(metric_value(metrics, &requests, LABELS("GET", "500")) == 0.5 * THREADS * ROUNDS);
    assert_true(metric_value(metrics, &latency, LABELS("d")) == THREADS * ROUNDS);
    metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_label_values_are_kept_apart),
        cmocka_unit_test(test_collectors_run_at_each_scrape),
        cmocka_unit_test(test_programming_errors_abort),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
