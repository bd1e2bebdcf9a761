/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/metrics.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <pthread.h>

enum {
    PV_TOTAL,
    PV_BOUND,
    PV_UNBOUND,
    PVC_BOUND,
    PVC_UNBOUND,
    OPERATION_SECONDS,
    OPERATION_ERRORS,
    OPERATION_ERRORS_OLD,
    PLUGIN_SECONDS,
    DEFAULT_CLASS_TOTAL,
    DEFAULT_CLASS_ERRORS,
    OTHER_BINDER,
    LEADER_STATUS,
    LEADER_SLOW_PATH,
    FAMILY_COUNT,
};
static const struct metric_family families[FAMILY_COUNT] = {
    [PV_TOTAL] = {.name = "pv_collector_total_pv_count",
                  .help = "Gauge measuring total number of persistent volumes.",
                  .type = METRIC_GAUGE,
                  .labels = {"plugin_name", "volume_mode"}},
    [PV_BOUND] = {.name = "pv_collector_bound_pv_count",
                  .help = "Gauge measuring number of persistent volumes currently bound.",
                  .type = METRIC_GAUGE,
                  .labels = {"storage_class"}},
    [PV_UNBOUND] = {.name = "pv_collector_unbound_pv_count",
                    .help = "Gauge measuring number of persistent volumes currently unbound.",
                    .type = METRIC_GAUGE,
                    .labels = {"storage_class"}},
    [PVC_BOUND] = {.name = "pv_collector_bound_pvc_count",
                   .help = "Gauge measuring number of persistent volume claims currently bound.",
                   .type = METRIC_GAUGE,
                   .labels = {"namespace", "storage_class", "volume_attributes_class"}},
    [PVC_UNBOUND] = {.name = "pv_collector_unbound_pvc_count",
                     .help = "Gauge measuring number of persistent volume claims currently unbound.",
                     .type = METRIC_GAUGE,
                     .labels = {"namespace", "storage_class", "volume_attributes_class"}},
    [OPERATION_SECONDS] = {.name = "volume_operation_total_seconds",
                           .help = "Seconds from the first start of an operation on a volume to its end.",
                           .type = METRIC_HISTOGRAM,
                           .labels = {"plugin_name", "operation_name"},
                           .buckets = metric_buckets_operation,
                           .bucket_count = METRIC_BUCKETS_OPERATION_COUNT},
    [OPERATION_ERRORS] = {.name = "volume_operation_errors_total",
                          .help = "Failed operations on volumes.",
                          .type = METRIC_COUNTER,
                          .labels = {"plugin_name", "operation_name"}},
    [OPERATION_ERRORS_OLD] = {.name = "volume_operation_total_errors",
                              .help = "Failed operations on volumes (older name of volume_operation_errors_total).",
                              .type = METRIC_COUNTER,
                              .labels = {"plugin_name", "operation_name"}},
    [PLUGIN_SECONDS] = {.name = "storage_operation_duration_seconds",
                        .help = "Seconds that calls of in-tree volume plugins took.",
                        .type = METRIC_HISTOGRAM,
                        .labels = {"volume_plugin", "operation_name", "status", "migrated"},
                        .buckets = metric_buckets_operation,
                        .bucket_count = METRIC_BUCKETS_OPERATION_COUNT},
    [DEFAULT_CLASS_TOTAL] = {.name = "retroactive_storageclass_total",
                             .help = "Attempts to give a claim the default class that appeared after it.",
                             .type = METRIC_COUNTER},
    [DEFAULT_CLASS_ERRORS] = {.name = "retroactive_storageclass_errors_total",
                              .help = "Of these, the failed ones.",
                              .type = METRIC_COUNTER},
    [OTHER_BINDER] = {.name = "berth_controller_other_binder_total",
                      .help = "How often another controller was found working on the same volumes and claims.",
                      .type = METRIC_COUNTER},
    [LEADER_STATUS] = {.name = "leader_election_master_status",
                       .help = "1 while this process holds the lease of that name, 0 while it stands by.",
                       .type = METRIC_GAUGE,
                       .labels = {"name"}},
    [LEADER_SLOW_PATH] = {.name = "leader_election_slowpath_total",
                          .help = "Renewals of the lease of that name that took more than one request.",
                          .type = METRIC_COUNTER,
                          .labels = {"name"}},
};

struct start {
    int64_t at;
    char *plugin;
};
struct controller_metrics {
    struct metrics *registry;
    const struct controller_view *view;
    struct clock *clock;
    pthread_mutex_t lock;
    struct map *starts[2]; /* by operation: key → struct start */
};
static const char *const operation_names[] = {[OPERATION_PROVISION] = "provision", [OPERATION_DELETE] = "delete"};

/* ---- counts at scrape time ---- */
static void count(struct metrics *registry, int family, const char *const *labels)
{
    metric_add(registry, &families[family], 1, labels);
}

static bool count_volume(void *arg, const struct kube_object *object)
{
    const struct kube_volume *volume = (const struct kube_volume *)object;
    auto_free char *plugin = NULL;
    switch (volume->source) {
    case KUBE_SOURCE_NFS:
        plugin = mem_strdup(PLUGIN_NFS);
        break;
    case KUBE_SOURCE_HOST_PATH:
        plugin = mem_strdup(PLUGIN_HOST_PATH);
        break;
    case KUBE_SOURCE_CSI:
        plugin = mem_printf("kubernetes.io/csi:%s", volume->csi.driver);
        break;
    case KUBE_SOURCE_NONE:
    case KUBE_SOURCE_LOCAL:
    case KUBE_SOURCE_OTHER:
        plugin = mem_strdup("N/A");
        break;
    }
    count(arg, PV_TOTAL, (const char *const[]){plugin, is_block(volume->volume_mode) ? "Block" : "Filesystem"});
    count(arg, str_eq(volume->phase, PHASE_BOUND) ? PV_BOUND : PV_UNBOUND, (const char *const[]){volume->class_name});
    return true;
}

static bool count_claim(void *arg, const struct kube_object *object)
{
    const struct kube_claim *claim = (const struct kube_claim *)object;
    count(arg, str_eq(claim->phase, PHASE_BOUND) ? PVC_BOUND : PVC_UNBOUND,
          (const char *const[]){object->meta.namespace_, kube_claim_class(claim), claim->attributes_class});
    return true;
}

static void collect(struct metrics *registry, void *arg)
{
    const struct controller_metrics *metrics = arg;
    for (int family = PV_TOTAL; family <= PVC_UNBOUND; family++)
        metric_clear(registry, &families[family]);
    kube_store_each(metrics->view->volumes, count_volume, registry);
    kube_store_each(metrics->view->claims, count_claim, registry);
}

/* ---- operations ---- */
static void start_free(void *value)
{
    struct start *start = value;
    free(start->plugin);
    free(start);
}

struct controller_metrics *controller_metrics_new(struct metrics *registry, const struct controller_view *view,
                                                  struct clock *clock)
{
    struct controller_metrics *metrics = mem_new(struct controller_metrics);
    metrics->registry = registry;
    metrics->view = view;
    metrics->clock = clock == NULL ? clock_real() : clock;
    pthread_mutex_init(&metrics->lock, NULL);
    for (size_t i = 0; i < ARRAY_LEN(metrics->starts); i++)
        metrics->starts[i] = map_new(start_free);
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        metrics_register(registry, &families[i]);
    metrics_on_scrape(registry, collect, metrics);
    return metrics;
}

void controller_metrics_free(struct controller_metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (size_t i = 0; i < ARRAY_LEN(metrics->starts); i++)
        map_free(metrics->starts[i]);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

void controller_metrics_start(struct controller_metrics *metrics, enum controller_operation operation, const char *key,
                              const char *plugin)
{
    pthread_mutex_lock(&metrics->lock);
    if (!map_has(metrics->starts[operation], key)) {
        struct start *start = mem_new(struct start);
        start->at = clock_mono(metrics->clock);
        start->plugin = mem_strdup(str_empty(plugin) ? "N/A" : plugin);
        map_set(metrics->starts[operation], key, start);
    }
    pthread_mutex_unlock(&metrics->lock);
}

void controller_metrics_finish(struct controller_metrics *metrics, enum controller_operation operation, const char *key)
{
    pthread_mutex_lock(&metrics->lock);
    struct start *start = map_take(metrics->starts[operation], key);
    pthread_mutex_unlock(&metrics->lock);
    if (start == NULL)
        return;
    metric_observe(metrics->registry, &families[OPERATION_SECONDS],
                   (double)(clock_mono(metrics->clock) - start->at) / (double)CLOCK_SECOND,
                   (const char *const[]){start->plugin, operation_names[operation]});
    start_free(start);
}

void controller_metrics_fail(struct controller_metrics *metrics, enum controller_operation operation, const char *key)
{
    pthread_mutex_lock(&metrics->lock);
    const struct start *start = map_get(metrics->starts[operation], key);
    auto_free char *plugin = start == NULL ? NULL : mem_strdup(start->plugin);
    pthread_mutex_unlock(&metrics->lock);
    if (plugin == NULL)
        return;
    const char *const labels[] = {plugin, operation_names[operation]};
    metric_add(metrics->registry, &families[OPERATION_ERRORS], 1, labels);
    metric_add(metrics->registry, &families[OPERATION_ERRORS_OLD], 1, labels);
}

void controller_metrics_forget(struct controller_metrics *metrics, enum controller_operation operation, const char *key)
{
    pthread_mutex_lock(&metrics->lock);
    map_remove(metrics->starts[operation], key);
    pthread_mutex_unlock(&metrics->lock);
}

void controller_metrics_plugin_call(struct controller_metrics *metrics, const char *plugin, const char *operation,
                                    bool failed, int64_t took)
{
    metric_observe(metrics->registry, &families[PLUGIN_SECONDS], (double)took / (double)CLOCK_SECOND,
                   (const char *const[]){plugin, operation, failed ? "fail-unknown" : "success", "false"});
}

void controller_metrics_default_class(struct controller_metrics *metrics, bool failed)
{
    metric_add(metrics->registry, &families[DEFAULT_CLASS_TOTAL], 1, NULL);
    if (failed)
        metric_add(metrics->registry, &families[DEFAULT_CLASS_ERRORS], 1, NULL);
}

void controller_metrics_other_binder(struct controller_metrics *metrics, uint64_t fights)
{
    metric_set(metrics->registry, &families[OTHER_BINDER], (double)fights, NULL);
}

void controller_metrics_leader(struct metrics *registry, const char *lease, bool leading, uint64_t slow_renewals)
{
    const char *const labels[] = {lease};
    metric_set(registry, &families[LEADER_STATUS], leading ? 1 : 0, labels);
    metric_set(registry, &families[LEADER_SLOW_PATH], (double)slow_renewals, labels);
}
