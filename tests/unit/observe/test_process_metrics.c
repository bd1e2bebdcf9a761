/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/observe/metrics.h"

#include "lib/base/clock.h"
#include "lib/base/stop.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The value behind "\n<name> " in a scrape. */
static double scraped(struct metrics *metrics, const char *name)
{
    auto_str struct str out = {0};
    metrics_write(metrics, &out);
    auto_str struct str start = {0};
    str_addf(&start, "\n%s ", name);
    const char *found = strstr(str_text(&out), start.data);
    if (found != NULL)
        return strtod(found + start.len, NULL);
    fail_msg("no %s in\n%s", name, str_text(&out));
    return 0;
}

static void *wait_for_stop(void *arg)
{
    stop_sleep(arg, clock_real(), CLOCK_NEVER);
    return NULL;
}

static void test_values_follow_the_process(void **state)
{
    (void)state;
    struct metrics *metrics = metrics_new();
    metrics_register_process(metrics);
    double now = (double)clock_wall(clock_real()) / 1e9;
    assert_true(scraped(metrics, "process_start_time_seconds") > now - 60);
    assert_true(scraped(metrics, "process_start_time_seconds") <= now);
    double resident = scraped(metrics, "process_resident_memory_bytes");
    assert_true(resident > 500e3 && resident < scraped(metrics, "process_virtual_memory_bytes"));
    assert_true(scraped(metrics, "process_max_fds") >= 64);

    double fds = scraped(metrics, "process_open_fds");
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(scraped(metrics, "process_open_fds") == fds + 1);
    close(fd);
    assert_true(scraped(metrics, "process_open_fds") == fds);

    struct stop *stop = stop_new();
    pthread_t first = thread_start("first", wait_for_stop, stop); /* sanitizers start one of their own with it */
    double threads = scraped(metrics, "process_threads");
    pthread_t second = thread_start("second", wait_for_stop, stop);
    assert_true(threads >= 2);
    assert_true(scraped(metrics, "process_threads") == threads + 1);
    stop_request(stop);
    thread_join(first);
    thread_join(second);
    stop_free(stop);

    double cpu = scraped(metrics, "process_cpu_seconds_total");
    int64_t until = clock_mono(clock_real()) + 10 * CLOCK_SECOND;
    while (scraped(metrics, "process_cpu_seconds_total") <= cpu && clock_mono(clock_real()) < until) {
    }
    assert_true(scraped(metrics, "process_cpu_seconds_total") > cpu);
    metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_follow_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
