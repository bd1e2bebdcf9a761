/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/observe/metrics.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_line(struct metrics *metrics, const char *line)
{
    auto_str struct str out = {0};
    metrics_write(metrics, &out);
    auto_str struct str whole = {0};
    str_addf(&whole, "\n%s\n", line);
    if (strstr(str_text(&out), whole.data) == NULL)
        fail_msg("no line \"%s\" in\n%s", line, str_text(&out));
}

static void test_new_queue_shows_zeros(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    struct queue_metrics *claims = queue_metrics_new(metrics, "claims");
    struct queue_metrics *volumes = queue_metrics_new(metrics, "volumes"); /* the families are shared */
    assert_line(metrics, "workqueue_depth{name=\"claims\"} 0");
    assert_line(metrics, "workqueue_depth{name=\"volumes\"} 0");
    assert_line(metrics, "workqueue_adds_total{name=\"claims\"} 0");
    assert_line(metrics, "workqueue_retries_total{name=\"claims\"} 0");
    assert_line(metrics, "workqueue_unfinished_work_seconds{name=\"claims\"} 0");
    assert_line(metrics, "workqueue_longest_running_processor_seconds{name=\"claims\"} 0");
    assert_line(metrics, "workqueue_queue_duration_seconds_count{name=\"claims\"} 0");
    assert_line(metrics, "workqueue_work_duration_seconds_bucket{name=\"claims\",le=\"9.999999999999999e-06\"} 0");
    queue_metrics_free(claims);
    queue_metrics_free(volumes);
    queue_metrics_free(NULL);
    metrics_free(metrics);
}

static void test_events(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    struct queue_metrics *claims = queue_metrics_new(metrics, "claims");
    struct queue_metrics *volumes = queue_metrics_new(metrics, "volumes");
    queue_metrics_added(claims);
    queue_metrics_added(claims);
    queue_metrics_added(volumes);
    queue_metrics_retried(claims);
    queue_metrics_depth(claims, 2);
    queue_metrics_depth(claims, 1);
    queue_metrics_waited(claims, 0.5);
    queue_metrics_worked(claims, 3e-8);
    queue_metrics_running(claims, 12.5, 10);
    assert_line(metrics, "workqueue_adds_total{name=\"claims\"} 2");
    assert_line(metrics, "workqueue_adds_total{name=\"volumes\"} 1");
    assert_line(metrics, "workqueue_retries_total{name=\"claims\"} 1");
    assert_line(metrics, "workqueue_depth{name=\"claims\"} 1");
    assert_line(metrics, "workqueue_queue_duration_seconds_bucket{name=\"claims\",le=\"0.1\"} 0");
    assert_line(metrics, "workqueue_queue_duration_seconds_bucket{name=\"claims\",le=\"1\"} 1");
    assert_line(metrics, "workqueue_queue_duration_seconds_sum{name=\"claims\"} 0.5");
    assert_line(metrics, "workqueue_work_duration_seconds_bucket{name=\"claims\",le=\"1e-08\"} 0");
    assert_line(metrics, "workqueue_work_duration_seconds_bucket{name=\"claims\",le=\"1e-07\"} 1");
    assert_line(metrics, "workqueue_unfinished_work_seconds{name=\"claims\"} 12.5");
    assert_line(metrics, "workqueue_longest_running_processor_seconds{name=\"claims\"} 10");
    queue_metrics_free(claims);
    queue_metrics_free(volumes);
    metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_queue_shows_zeros),
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
