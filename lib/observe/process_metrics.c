/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "lib/observe/metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct metric_family cpu = {
    .name = "process_cpu_seconds_total",
    .help = "User and system CPU time spent, in seconds.",
    .type = METRIC_COUNTER,
};
static const struct metric_family resident = {
    .name = "process_resident_memory_bytes",
    .help = "Resident memory, in bytes.",
    .type = METRIC_GAUGE,
};
static const struct metric_family virtual_memory = {
    .name = "process_virtual_memory_bytes",
    .help = "Virtual memory, in bytes.",
    .type = METRIC_GAUGE,
};
static const struct metric_family start_time = {
    .name = "process_start_time_seconds",
    .help = "When the process started, in seconds since 1970.",
    .type = METRIC_GAUGE,
};
static const struct metric_family open_fds = {
    .name = "process_open_fds",
    .help = "Open file descriptors.",
    .type = METRIC_GAUGE,
};
static const struct metric_family max_fds = {
    .name = "process_max_fds",
    .help = "How many file descriptors may be open.",
    .type = METRIC_GAUGE,
};
static const struct metric_family threads = {
    .name = "process_threads",
    .help = "Threads of the process.",
    .type = METRIC_GAUGE,
};

static void set(struct metrics *metrics, const struct metric_family *family, double value)
{
    metric_set(metrics, family, value, NULL);
}

static void collect_stat(struct metrics *metrics)
{
    auto_free char *text = NULL;
    auto_err struct err err = {0};
    if (file_read("/proc/self/stat", 4096, &text, NULL, &err) != 0)
        return;
    /* Numbered from 1 by proc(5). The second field is the name in parentheses, which may hold anything, also spaces:
     * counted from behind it. */
    enum { FIRST = 3, USER_TICKS = 14, KERNEL_TICKS = 15, THREADS = 20, VIRTUAL_BYTES = 23, RESIDENT_PAGES = 24 };
    static const unsigned wanted[] = {USER_TICKS, KERNEL_TICKS, THREADS, VIRTUAL_BYTES, RESIDENT_PAGES};
    uint64_t values[RESIDENT_PAGES + 1] = {0};
    const char *rest = strrchr(text, ')');
    auto_strv struct strv fields = {0};
    if (rest != NULL && rest[1] == ' ')
        strv_split(&fields, rest + 2, ' ');
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        size_t at = wanted[i] - FIRST;
        if (at >= fields.len || !str_parse_u64(fields.items[at], &values[wanted[i]]))
            return;
    }
    set(metrics, &cpu, (double)(values[USER_TICKS] + values[KERNEL_TICKS]) / (double)sysconf(_SC_CLK_TCK));
    set(metrics, &threads, (double)values[THREADS]);
    set(metrics, &virtual_memory, (double)values[VIRTUAL_BYTES]);
    set(metrics, &resident, (double)values[RESIDENT_PAGES] * (double)sysconf(_SC_PAGESIZE));
}

static void collect_fds(struct metrics *metrics)
{
    DIR *directory = opendir("/proc/self/fd");
    if (directory != NULL) {
        int count = -1; /* the directory's own does not count */
        for (const struct dirent *entry = NULL; (entry = readdir(directory)) != NULL;)
            count += entry->d_name[0] != '.' ? 1 : 0;
        closedir(directory);
        set(metrics, &open_fds, count);
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        set(metrics, &max_fds, (double)limit.rlim_cur);
}

static void collect(struct metrics *metrics, void *arg)
{
    (void)arg;
    collect_stat(metrics);
    collect_fds(metrics);
}

void metrics_register_process(struct metrics *metrics)
{
    static const struct metric_family *const all[] = {
        &cpu, &resident, &virtual_memory, &start_time, &open_fds, &max_fds, &threads,
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        metrics_register(metrics, all[i]);
    /* a moment late, but true: what /proc says is relative to a boot time that containers often see falsified */
    int64_t milliseconds = clock_wall(clock_real()) / CLOCK_MS;
    set(metrics, &start_time, (double)milliseconds / 1000);
    metrics_on_scrape(metrics, collect, NULL);
}
