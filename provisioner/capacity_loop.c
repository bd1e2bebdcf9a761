/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/capacity_loop.h"

#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "provisioner/capacity.h"
#include "provisioner/capacity_owner.h"
#include "provisioner/provisioner.h"
#include "provisioner/secrets.h"
#include "provisioner/topology.h"

#include <stdlib.h>

#define TOPOLOGY_KEY "topology"
#define SEPARATOR '\n' /* between class and segment in keys; in neither of them */

/*
 *  cluster changed ─► "csitopology" queue ─► plan(): desired = segments × classes ─┬─► obsolete objects are deleted
 *                                                                                  └─► "csistoragecapacity" queue
 *  interval, volume changed, object changed ───────────────────────────────────────────►  update(): GetCapacity, write
 */
struct capacity_loop {
    struct provisioner *provisioner;
    const struct kube_kind *kind;
    const char *namespace_; /* $NAMESPACE */
    struct capacity_owner owner;
    char *selector;
    struct kube_store *objects;
    int by_key;
    struct kube_reflector *reflector;
    struct kube_queue *topology, *updates;
    struct kube_workers *topology_worker, *update_workers;
    pthread_t poll;
    bool polling;

    pthread_mutex_t lock; /* for the map */
    struct map *desired;  /* key → segment (json_t) */
};

static void free_segment(void *value)
{
    json_decref(value);
}

static char *make_key(const char *class_name, const json_t *segment)
{
    char *text = json_dumps(segment, JSON_COMPACT | JSON_SORT_KEYS);
    char *key = mem_printf("%s%c%s", class_name, SEPARATOR, text);
    free(text);
    return key;
}

static void index_object(const struct kube_object *object, struct strv *keys)
{
    const struct kube_capacity *capacity = (const struct kube_capacity *)object;
    json_t *segment = json_object();
    for (uint32_t i = 0; i < capacity->topology_labels.len; i++)
        json_object_set_new(segment, capacity->topology_labels.items[i].key,
                            json_string(capacity->topology_labels.items[i].value));
    strv_add_take(keys, make_key(capacity->class_name, segment));
    json_decref(segment);
}

/* Somebody else's change is looked at again; our own writes end here too, and cause no further write. */
static void on_object(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct capacity_loop *loop = arg;
    (void)old;
    if (new_ == NULL)
        kube_queue_add(loop->topology, TOPOLOGY_KEY);
}

static json_t *desired_segment(struct capacity_loop *loop, const char *key)
{
    pthread_mutex_lock(&loop->lock);
    json_t *segment = json_incref(map_get(loop->desired, key));
    pthread_mutex_unlock(&loop->lock);
    return segment;
}

/* ---- one object ---- */

static int ask_driver(struct capacity_loop *loop, const struct kube_class *class_, json_t *segment, int64_t *available,
                      int64_t *maximum, struct err *err)
{
    struct provisioner *provisioner = loop->provisioner;
    auto_csi_arena struct csi_arena arena = {0};
    auto_csi_message Csi__V1__GetCapacityResponse *reply = NULL;
    struct csi_call_options options = provisioner_call_options(provisioner);
    Csi__V1__GetCapacityRequest request = CSI__V1__GET_CAPACITY_REQUEST__INIT;
    for (uint32_t i = 0; i < class_->parameters.len; i++) {
        bool strip = provisioner->options->capacity_strip_parameters &&
                     str_starts(class_->parameters.items[i].key, "csi.storage.k8s.io/");
        if (!strip)
            CSI_MAP_ADD(&arena, &request, parameters, class_->parameters.items[i].key,
                        class_->parameters.items[i].value);
    }
    if (json_object_size(segment) > 0) {
        Csi__V1__Topology *topology = CSI_NEW(&arena, &request, accessible_topology);
        const char *key;
        json_t *value;
        json_object_foreach (segment, key, value)
            CSI_MAP_ADD(&arena, topology, segments, key, json_string_value(value));
    }
    if (csi_get_capacity(provisioner->driver, &request, &reply, &options, err) < 0)
        return -1;
    *available = reply->available_capacity;
    *maximum = reply->maximum_volume_size != NULL ? reply->maximum_volume_size->value : -1;
    return 0;
}

static bool owner_matches(const struct capacity_owner *owner, const struct kube_meta *meta)
{
    if (owner->uid == NULL)
        return meta->owner_count == 0;
    for (uint32_t i = 0; i < meta->owner_count; i++)
        if (str_eq(meta->owners[i].uid, owner->uid))
            return true;
    return false;
}

static bool is_current(const struct capacity_loop *loop, const struct kube_capacity *object, int64_t available,
                       int64_t maximum)
{
    struct kube_quantity size = kube_quantity_from_bytes(available), most = kube_quantity_from_bytes(maximum);
    return object->has_capacity && kube_quantity_compare(&object->capacity, &size) == 0 &&
           object->has_maximum == (maximum >= 0) &&
           (maximum < 0 || kube_quantity_compare(&object->maximum, &most) == 0) &&
           owner_matches(&loop->owner, &object->object.meta);
}

static int write_object(struct capacity_loop *loop, const struct kube_capacity *existing, const char *class_name,
                        const json_t *segment, int64_t available, int64_t maximum, struct err *err)
{
    struct provisioner *provisioner = loop->provisioner;
    const struct kube_owner owner = {.api_version = loop->owner.api_version,
                                     .kind = loop->owner.kind,
                                     .name = loop->owner.name,
                                     .uid = loop->owner.uid,
                                     .controller = true};
    auto_free char *api_version = mem_printf("%s/%s", loop->kind->group, loop->kind->version);
    auto_unref struct kube_object *written = NULL;
    json_t *wanted = capacity_build(&provisioner->config, loop->namespace_, class_name, segment, available, maximum,
                                    loop->owner.uid != NULL ? &owner : NULL, api_version);
    int result = 0;
    if (existing == NULL) {
        result = kube_create(provisioner->capacity_client, loop->kind, loop->namespace_, wanted, &written, err);
    } else {
        json_t *live = NULL;
        const char *name = existing->object.meta.name;
        result = kube_get_json(provisioner->capacity_client, loop->kind, loop->namespace_, name, &live, err);
        if (result == 0) {
            capacity_update_fields(live, wanted);
            result = kube_update(provisioner->capacity_client, loop->kind, loop->namespace_, name, NULL, live, &written,
                                 err);
        }
        json_decref(live);
    }
    json_decref(wanted);
    if (result == 0 && written != NULL)
        kube_store_put_reply(loop->objects, written);
    return result;
}

static int update(void *arg, const char *key)
{
    struct capacity_loop *loop = arg;
    struct provisioner *provisioner = loop->provisioner;
    auto_err struct err err = {0};
    auto_unref struct kube_class *class_ = NULL;
    auto_objects struct kube_object_list found = {0};
    json_t *segment = desired_segment(loop, key);
    if (segment == NULL)
        return 0;
    auto_free char *class_name = mem_strndup(key, strcspn(key, "\n"));
    int64_t available = 0, maximum = -1;
    kube_store_find(loop->objects, loop->by_key, key, &found);
    const struct kube_capacity *existing = found.len > 0 ? (const struct kube_capacity *)found.items[0] : NULL;
    int result = provisioner->lookup.class_(provisioner, class_name, &class_, &err);
    if (result < 0) {
        result = 0; /* the class went: the plan that follows drops the pair */
    } else if (ask_driver(loop, class_, segment, &available, &maximum, &err) < 0 ||
               ((existing == NULL || !is_current(loop, existing, available, maximum)) &&
                write_object(loop, existing, class_name, segment, available, maximum, &err) < 0)) {
        log_warn("Could not update a capacity", kv_str("class", class_name), kv_err(&err));
        result = -1;
    }
    json_decref(segment);
    return result;
}

/* ---- the plan ---- */

static struct map *make_plan(struct capacity_loop *loop, struct err *err)
{
    struct provisioner *provisioner = loop->provisioner;
    auto_objects struct kube_object_list nodes = {0}, csi_nodes = {0}, classes = {0};
    if (provisioner->lookup.nodes(provisioner, &nodes, err) < 0 ||
        provisioner->lookup.csi_nodes(provisioner, &csi_nodes, err) < 0)
        return NULL;
    kube_store_list(provisioner->informers.stores[INFORMER_CLASSES], &classes);
    struct map *plan = map_new(free_segment);
    json_t *segments = provisioner->config.gate_topology && provisioner->config.capabilities.accessibility_constraints
                           ? topology_segments(&provisioner->config, &nodes, &csi_nodes)
                           : json_pack("[{}]");
    size_t i;
    json_t *segment;
    for (size_t c = 0; c < classes.len; c++) {
        const struct kube_class *class_ = (const struct kube_class *)classes.items[c];
        if (!capacity_class_is_eligible(&provisioner->config, class_,
                                        provisioner->options->capacity_for_immediate_binding))
            continue;
        json_array_foreach (segments, i, segment) {
            auto_free char *key = make_key(class_->object.meta.name, segment);
            map_set(plan, key, json_incref(segment));
        }
    }
    json_decref(segments);
    return plan;
}

static int drop_object(struct capacity_loop *loop, const struct kube_object *object)
{
    auto_err struct err err = {0};
    const struct kube_meta *meta = &object->meta;
    if (kube_delete(loop->provisioner->capacity_client, loop->kind, loop->namespace_, meta->name, meta->uid, 0, &err) ==
            0 ||
        err_is(&err, ERR_NOT_FOUND) || err_is(&err, ERR_CONFLICT)) {
        kube_store_remove(loop->objects, meta->namespace_, meta->name, meta->uid, meta->resource_version);
        return 0;
    }
    log_warn("Could not delete an obsolete capacity", kv_str("name", meta->name), kv_err(&err));
    return -1;
}

/* Objects without a pair, and all but the first of several for one pair. */
static int drop_obsolete(struct capacity_loop *loop, const struct map *plan)
{
    int result = 0;
    auto_objects struct kube_object_list objects = {0};
    auto_map struct map *seen = map_new(NULL);
    kube_store_list(loop->objects, &objects);
    for (size_t i = 0; i < objects.len; i++) {
        auto_strv struct strv keys = {0};
        index_object(objects.items[i], &keys);
        bool wanted = map_has(plan, keys.items[0]) && !map_has(seen, keys.items[0]);
        map_set(seen, keys.items[0], loop);
        if (!wanted && drop_object(loop, objects.items[i]) < 0)
            result = -1;
    }
    return result;
}

static int plan(void *arg, const char *key)
{
    struct capacity_loop *loop = arg;
    (void)key;
    auto_err struct err err = {0};
    struct map *next = make_plan(loop, &err);
    if (next == NULL) {
        log_warn("Could not find the topology segments", kv_err(&err));
        return -1;
    }
    int result = drop_obsolete(loop, next);
    pthread_mutex_lock(&loop->lock);
    for (struct map_iter it = {0}; map_next(next, &it);)
        if (!map_has(loop->desired, it.key) || kube_store_count(loop->objects, loop->by_key, it.key) == 0)
            kube_queue_add(loop->updates, it.key);
    map_free(loop->desired);
    loop->desired = next;
    pthread_mutex_unlock(&loop->lock);
    return result;
}

static void enqueue_all(struct capacity_loop *loop, const char *class_name)
{
    size_t len = class_name != NULL ? strlen(class_name) : 0;
    pthread_mutex_lock(&loop->lock);
    for (struct map_iter it = {0}; map_next(loop->desired, &it);)
        if (class_name == NULL || (strncmp(it.key, class_name, len) == 0 && it.key[len] == SEPARATOR))
            kube_queue_add(loop->updates, it.key);
    pthread_mutex_unlock(&loop->lock);
}

void capacity_volume_changed(struct capacity_loop *loop, const char *class_name)
{
    if (loop != NULL && class_name != NULL)
        enqueue_all(loop, class_name);
}

void capacity_cluster_changed(struct capacity_loop *loop)
{
    if (loop != NULL)
        kube_queue_add(loop->topology, TOPOLOGY_KEY);
}

static void *poll_main(void *arg)
{
    struct capacity_loop *loop = arg;
    struct provisioner *provisioner = loop->provisioner;
    while (!stop_sleep(provisioner->stop, provisioner->clock, provisioner->options->capacity_poll_interval))
        enqueue_all(loop, NULL);
    return NULL;
}

static void collect(struct metrics *metrics, void *arg)
{
    struct capacity_loop *loop = arg;
    size_t goal = 0, current = 0;
    pthread_mutex_lock(&loop->lock);
    for (struct map_iter it = {0}; map_next(loop->desired, &it); goal++)
        current += kube_store_count(loop->objects, loop->by_key, it.key) > 0;
    pthread_mutex_unlock(&loop->lock);
    size_t all = kube_store_len(loop->objects);
    metric_set(metrics, &telemetry_capacities_goal, (double)goal, NULL);
    metric_set(metrics, &telemetry_capacities_current, (double)current, NULL);
    metric_set(metrics, &telemetry_capacities_obsolete, all > current ? (double)(all - current) : 0, NULL);
}

/* ---- start and end ---- */

static int find_kind(struct capacity_loop *loop, struct err *err)
{
    static const struct kube_kind *const kinds[] = {&kube_kind_capacity, &kube_kind_capacity_v1beta1,
                                                    &kube_kind_capacity_v1alpha1};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        bool served = false;
        if (kube_discover(loop->provisioner->client, kinds[i]->group, kinds[i]->version, kinds[i]->plural, &served,
                          err) < 0)
            return -1;
        if (served) {
            loop->kind = kinds[i];
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "this cluster has no CSIStorageCapacity API, which --enable-capacity needs");
}

int capacity_new(struct provisioner *provisioner, struct capacity_loop **out, struct err *err)
{
    const struct options *options = provisioner->options;
    const char *namespace_ = getenv("NAMESPACE"), *pod = getenv("POD_NAME");
    if (str_empty(namespace_))
        return err_set(err, ERR_INVALID, "NAMESPACE env variable must be set for --enable-capacity");
    if (str_empty(pod) && options->capacity_ownerref_level >= 0)
        return err_set(err, ERR_INVALID, "POD_NAME env variable must be set when --capacity-ownerref-level is not -1");
    struct capacity_loop *loop = mem_new(struct capacity_loop);
    loop->provisioner = provisioner;
    loop->namespace_ = namespace_;
    if (find_kind(loop, err) < 0 || capacity_owner_find(provisioner->client, namespace_, pod,
                                                        options->capacity_ownerref_level, &loop->owner, err) < 0) {
        free(loop);
        return -1;
    }
    auto_free char *manager = capacity_managed_by(&provisioner->config);
    loop->selector = mem_printf("csi.storage.k8s.io/drivername=%s,csi.storage.k8s.io/managed-by=%s",
                                provisioner->config.driver_name, manager);
    pthread_mutex_init(&loop->lock, NULL);
    loop->desired = map_new(free_segment);
    loop->objects = kube_store_new(loop->kind);
    loop->by_key = kube_store_add_index(loop->objects, index_object);
    kube_store_listen(loop->objects, on_object, loop);
    struct kube_queue_options queue = {
        .name = "csitopology", .base_delay = options->retry_interval_start, .max_delay = options->retry_interval_max};
    loop->topology = telemetry_queue_new(&provisioner->telemetry, &queue);
    queue.name = "csistoragecapacity";
    loop->updates = telemetry_queue_new(&provisioner->telemetry, &queue);
    *out = loop;
    return 0;
}

int capacity_start(struct capacity_loop *loop, struct err *err)
{
    struct provisioner *provisioner = loop->provisioner;
    loop->reflector = kube_reflector_start(
        &(struct kube_reflector_options){.client = provisioner->capacity_client,
                                         .store = loop->objects,
                                         .list = {.namespace_ = loop->namespace_, .label_selector = loop->selector},
                                         .clock = provisioner->clock,
                                         .rng = provisioner->rng});
    observe_http_add_check(provisioner->http, OBSERVE_READYZ, loop->kind->plural, kube_reflector_check,
                           loop->reflector);
    if (kube_reflector_wait_synced(loop->reflector, provisioner->stop, err) < 0)
        return err_wrap(err, "wait for the first list of %s", loop->kind->plural);
    metrics_on_scrape(provisioner->telemetry.metrics, collect, loop);
    loop->topology_worker = kube_workers_start(loop->topology, 1, "csitopology", plan, loop);
    loop->update_workers =
        kube_workers_start(loop->updates, (size_t)provisioner->options->capacity_threads, "csicapacity", update, loop);
    kube_queue_add(loop->topology, TOPOLOGY_KEY);
    if (provisioner->options->capacity_poll_interval > 0) {
        loop->polling = true;
        loop->poll = thread_start("capacity-poll", poll_main, loop);
    }
    return 0;
}

void capacity_stop(struct capacity_loop *loop)
{
    if (loop == NULL)
        return;
    kube_queue_shut_down(loop->topology);
    kube_queue_shut_down(loop->updates);
    if (loop->topology_worker != NULL)
        kube_workers_join(loop->topology_worker);
    if (loop->update_workers != NULL)
        kube_workers_join(loop->update_workers);
    if (loop->polling)
        thread_join(loop->poll);
    if (loop->reflector != NULL)
        kube_reflector_free(loop->reflector);
    kube_store_free(loop->objects);
    map_free(loop->desired);
    capacity_owner_clear(&loop->owner);
    pthread_mutex_destroy(&loop->lock);
    free(loop->selector);
    free(loop);
}
