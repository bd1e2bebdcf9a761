/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/controller.h"

#include "controller/explainer.h"
#include "controller/recycler_pod.h"
#include "controller/wake.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#define OPERATION_THREADS 100
#define EVENT_DRAIN (2 * CLOCK_SECOND)
#define WAKE_WORKERS 1

static bool is_taken(void *arg, const struct kube_volume *volume, const struct kube_claim *claim)
{
    const struct controller *controller = arg; /* decide_lock is held by whoever decides */
    const char *uid = map_get(controller->taken, volume->object.meta.name);
    return uid != NULL && !str_eq(uid, claim->object.meta.uid);
}

static bool is_emptied(void *arg, const struct kube_volume *volume)
{
    const struct controller *controller = arg;
    const struct kube_meta *meta = &volume->object.meta;
    auto_free char *recycle = operation_name("recycle", meta->name, meta->uid);
    auto_free char *delete = operation_name("delete", meta->name, meta->uid);
    return operations_running(controller->operations, recycle) || operations_running(controller->operations, delete);
}

static struct kube_queue *new_queue(const struct controller *controller, const char *name,
                                    struct queue_metrics *metrics)
{
    struct kube_queue_options options = {
        .name = name, .bucket_qps = 10, .bucket_burst = 100, .clock = controller->clock};
    if (metrics != NULL)
        options.observer = (struct kube_queue_observer){.arg = metrics,
                                                        .added = queue_metrics_added,
                                                        .retried = queue_metrics_retried,
                                                        .depth = queue_metrics_depth,
                                                        .waited = queue_metrics_waited,
                                                        .worked = queue_metrics_worked};
    return kube_queue_new(&options);
}

static void collect_queues(struct metrics *registry, void *arg)
{
    const struct controller *controller = arg;
    (void)registry;
    double unfinished, longest;
    kube_queue_running(controller->claims, &unfinished, &longest);
    queue_metrics_running(controller->claims_metrics, unfinished, longest);
    kube_queue_running(controller->volumes, &unfinished, &longest);
    queue_metrics_running(controller->volumes_metrics, unfinished, longest);
    controller_metrics_other_binder(controller->metrics, fight_count(controller->fight));
}

static void make_parts(struct controller *controller, const struct controller_config *config)
{
    controller->view.is_taken = is_taken;
    controller->view.is_emptied = is_emptied;
    controller->view.taken_arg = controller;
    controller->view.dynamic_provisioning = controller->options->dynamic_provisioning;
    controller->events = kube_events_new(&(struct kube_events_options){.client = config->event_client,
                                                                       .component = CONTROLLER_COMPONENT,
                                                                       .clock = controller->clock,
                                                                       .rng = controller->rng});
    controller->fight = fight_new(controller->clock);
    controller->operations = operations_new(controller->clock, OPERATION_THREADS);
    controller->metrics = controller_metrics_new(controller->registry, &controller->view, controller->clock);
    controller->explainer = explainer_new(&controller->view, config->event_client, controller->clock);
    controller->writer = (struct plan_writer){.client = controller->client,
                                              .view = &controller->view,
                                              .events = controller->events,
                                              .fight = controller->fight};
    controller->claims_metrics = queue_metrics_new(controller->registry, "claims");
    controller->volumes_metrics = queue_metrics_new(controller->registry, "volumes");
    controller->claims = new_queue(controller, "claims", controller->claims_metrics);
    controller->volumes = new_queue(controller, "volumes", controller->volumes_metrics);
    controller->wake = new_queue(controller, "wake", NULL);
    metrics_on_scrape(controller->registry, collect_queues, controller);
    kube_store_listen(controller->view.claims, wake_on_claim, controller);
    kube_store_listen(controller->view.volumes, wake_on_volume, controller);
    kube_store_listen(controller->view.classes, wake_on_class, controller);
    kube_store_listen(controller->view.pods, wake_on_pod, controller);
}

int controller_new(const struct controller_config *config, struct controller **result, struct err *err)
{
    struct controller *controller = mem_new(struct controller);
    *controller = (struct controller){
        .options = config->options,
        .clock = config->clock == NULL ? clock_real() : config->clock,
        .rng = config->rng == NULL ? rng_real() : config->rng,
        .stop = config->stop,
        .client = config->client,
        .registry = config->registry,
        .taken = map_new(free),
    };
    pthread_mutex_init(&controller->decide_lock, NULL);
    controller_view_init(&controller->view, config->minor);
    make_parts(controller, config);
    const struct controller_profile *profile = &controller->view.profile;
    if (recycler_template_new(profile, &config->options->nfs, &controller->recycler_nfs, err) != 0 ||
        recycler_template_new(profile, &config->options->host_path, &controller->recycler_host_path, err) != 0) {
        controller_free(controller);
        return -1;
    }
    *result = controller;
    return 0;
}

/* ---- filling the stores ---- */
/* Pods matter only as users of claims. */
static bool keep_pod(void *arg, const struct kube_object *object)
{
    (void)arg;
    return ((const struct kube_pod *)object)->claims.len > 0;
}

static int fill_stores(struct controller *controller, struct err *err)
{
    const struct controller_view *view = &controller->view;
    struct kube_store *const stores[] = {view->classes, view->pods, view->volumes, view->claims};
    for (size_t i = 0; i < ARRAY_LEN(stores); i++)
        controller->reflectors[i] =
            kube_reflector_start(&(struct kube_reflector_options){.client = controller->client,
                                                                  .store = stores[i],
                                                                  .keep = stores[i] == view->pods ? keep_pod : NULL,
                                                                  .clock = controller->clock,
                                                                  .rng = controller->rng});
    for (size_t i = 0; i < ARRAY_LEN(stores); i++)
        if (kube_reflector_wait_synced(controller->reflectors[i], controller->stop, err) != 0)
            return -1;
    return 0;
}

int controller_check_synced(void *arg, struct err *err)
{
    const struct controller *controller = arg;
    int started = atomic_load(&controller->started);
    if (started == 0)
        return 0;
    if (started == 1)
        return err_set(err, ERR_UNAVAILABLE, "the first lists of volumes, claims, classes and pods are not complete");
    for (size_t i = 0; i < ARRAY_LEN(controller->reflectors); i++)
        if (kube_reflector_check(controller->reflectors[i], err) != 0)
            return -1;
    return 0;
}

/* ---- working ---- */
static bool enqueue(void *arg, const struct kube_object *object)
{
    auto_free char *key = kube_object_key(object);
    kube_queue_add(arg, key);
    return true;
}

static void resync_until_stopped(struct controller *controller)
{
    do {
        kube_store_each(controller->view.claims, enqueue, controller->claims);
        if (controller->options->mode == MODE_FULL)
            kube_store_each(controller->view.volumes, enqueue, controller->volumes);
    } while (!stop_sleep(controller->stop, controller->clock, controller->options->sync_period));
}

static int ignore_volume(void *controller, const char *key)
{
    (void)controller;
    (void)key;
    return 0;
}

static void start_workers(struct controller *controller)
{
    const struct controller_options *options = controller->options;
    bool full = options->mode == MODE_FULL;
    controller->workers[0] =
        kube_workers_start(controller->claims, (size_t)options->claim_workers, "claim", sync_claim, controller);
    controller->workers[1] = kube_workers_start(controller->volumes, full ? (size_t)options->volume_workers : 1,
                                                "volume", full ? sync_volume : ignore_volume, controller);
    controller->workers[2] = kube_workers_start(controller->wake, WAKE_WORKERS, "wake", wake_work, controller);
}

static void stop_workers(struct controller *controller)
{
    struct kube_queue *const queues[] = {controller->claims, controller->volumes, controller->wake};
    for (size_t i = 0; i < ARRAY_LEN(queues); i++)
        kube_queue_shut_down(queues[i]);
    for (size_t i = 0; i < ARRAY_LEN(controller->workers); i++) {
        if (controller->workers[i] != NULL)
            kube_workers_join(controller->workers[i]);
        controller->workers[i] = NULL;
    }
}

static void stop_reflectors(struct controller *controller)
{
    for (size_t i = 0; i < ARRAY_LEN(controller->reflectors); i++) {
        if (controller->reflectors[i] != NULL)
            kube_reflector_free(controller->reflectors[i]);
        controller->reflectors[i] = NULL;
    }
}

int controller_run(struct controller *controller, struct err *err)
{
    atomic_store(&controller->started, 1);
    int result = fill_stores(controller, err);
    if (result == 0) {
        atomic_store(&controller->started, 2);
        log_info("Working", kv_uint("volumes", kube_store_len(controller->view.volumes)),
                 kv_uint("claims", kube_store_len(controller->view.claims)),
                 kv_int("release", controller->view.profile.minor), kv_str("mode", controller->options->mode_text));
        start_workers(controller);
        resync_until_stopped(controller);
        log_info("Stopping: the writes under way are finished first");
    }
    stop_workers(controller);
    atomic_store(&controller->started, 0);
    stop_reflectors(controller);
    return result;
}

void controller_free(struct controller *controller)
{
    if (controller == NULL)
        return;
    stop_workers(controller);
    stop_reflectors(controller);
    operations_free(controller->operations); /* waits for those that run */
    kube_events_free(controller->events, EVENT_DRAIN);
    kube_queue_free(controller->claims);
    kube_queue_free(controller->volumes);
    kube_queue_free(controller->wake);
    controller_view_clear(&controller->view);
    queue_metrics_free(controller->claims_metrics);
    queue_metrics_free(controller->volumes_metrics);
    controller_metrics_free(controller->metrics);
    explainer_free(controller->explainer);
    fight_free(controller->fight);
    recycler_template_free(controller->recycler_nfs);
    recycler_template_free(controller->recycler_host_path);
    map_free(controller->taken);
    pthread_mutex_destroy(&controller->decide_lock);
    free(controller);
}
