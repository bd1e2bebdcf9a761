/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/telemetry.h"

#include "drivers/common/call_metrics.h"
#include "drivers/hostpath/capacity.h"
#include "lib/base/mem.h"
#include "lib/observe/http.h"

#include <errno.h>
#include <unistd.h>

struct telemetry {
    struct hostpath *driver;
    struct metrics *metrics;
    struct observe_http *http; /* NULL = nobody serves them */
};

static const struct metric_family volumes = {
    .name = "berth_hostpath_volumes",
    .help = "Volumes by backend and access type.",
    .type = METRIC_GAUGE,
    .labels = {"backend", "access"},
};
static const struct metric_family promised = {
    .name = "berth_hostpath_promised_bytes",
    .help = "Sizes of all volumes together.",
    .type = METRIC_GAUGE,
};
static const struct metric_family snapshots = {
    .name = "berth_hostpath_snapshots",
    .help = "Snapshots, members of groups included.",
    .type = METRIC_GAUGE,
};
static const struct metric_family available = {
    .name = "berth_hostpath_available_bytes",
    .help = "Bytes that can still be promised to new volumes.",
    .type = METRIC_GAUGE,
};
static const struct metric_family jobs = {
    .name = "berth_hostpath_copies_running",
    .help = "Clones, restores and snapshots being made.",
    .type = METRIC_GAUGE,
};

struct counts {
    struct metrics *metrics;
    double bytes, snapshots;
};

static void count_volume(void *arg, const struct volume *volume)
{
    struct counts *counts = arg;
    metric_add(counts->metrics, &volumes, 1,
               (const char *const[]){volume_backend_name(volume->backend), volume->block ? "block" : "mount"});
    counts->bytes += (double)volume->capacity;
}

static void count_snapshot(void *arg, const struct snapshot *snapshot)
{
    (void)snapshot;
    ((struct counts *)arg)->snapshots++;
}

static void collect(struct metrics *metrics, void *arg)
{
    struct hostpath *driver = ((struct telemetry *)arg)->driver;
    struct counts counts = {.metrics = metrics};
    auto_err struct err ignored = {0};
    int64_t left;
    metric_clear(metrics, &volumes);
    state_each_volume(driver->state, count_volume, &counts);
    state_each_snapshot(driver->state, count_snapshot, &counts);
    metric_set(metrics, &promised, counts.bytes, NULL);
    metric_set(metrics, &snapshots, counts.snapshots, NULL);
    metric_set(metrics, &jobs, jobs_running(driver->jobs), NULL);
    if (capacity_available(driver, NULL, &left, &ignored) == 0)
        metric_set(metrics, &available, (double)left, NULL);
}

static int check_state(void *arg, struct err *err)
{
    const struct hostpath *driver = arg;
    if (faccessat(state_directory_fd(driver->state), "records", W_OK, 0) == 0)
        return 0;
    return err_set_errno(err, errno, "the state directory");
}

void telemetry_call_finished(void *arg, const struct csi_method *method, int code, double seconds)
{
    struct telemetry *telemetry = arg;
    call_metrics_observe(telemetry->metrics, telemetry->driver->options.name, method, code, seconds);
}

struct telemetry *telemetry_new(struct hostpath *driver, const char *address, struct err *err)
{
    static const struct metric_family *const families[] = {&volumes, &promised, &snapshots, &available, &jobs};
    struct telemetry *telemetry = mem_new(struct telemetry);
    telemetry->driver = driver;
    telemetry->metrics = metrics_new();
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        metrics_register(telemetry->metrics, families[i]);
    call_metrics_register(telemetry->metrics);
    metrics_register_process(telemetry->metrics);
    metrics_on_scrape(telemetry->metrics, collect, telemetry);
    if (str_empty(address))
        return telemetry;
    telemetry->http = observe_http_new(telemetry->metrics, "/metrics");
    observe_http_add_check(telemetry->http, OBSERVE_HEALTHZ, "state", check_state, driver);
    observe_http_add_check(telemetry->http, OBSERVE_READYZ, "state", check_state, driver);
    if (observe_http_start(telemetry->http, address, err) == 0)
        return telemetry;
    telemetry_free(telemetry);
    return NULL;
}

void telemetry_free(struct telemetry *telemetry)
{
    if (telemetry == NULL)
        return;
    observe_http_free(telemetry->http);
    metrics_free(telemetry->metrics);
    free(telemetry);
}
