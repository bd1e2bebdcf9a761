/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/informers.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/capacity_loop.h"
#include "provisioner/pending.h"
#include "provisioner/protect.h"
#include "provisioner/provisioner.h"
#include "provisioner/select.h"
#include "provisioner/source.h"

/* ---- what is kept ---- */

char *informers_source_key(const struct kube_claim *claim)
{
    const struct kube_data_source *source = claim->data_source != NULL ? claim->data_source : claim->data_source_ref;
    if (source == NULL)
        return NULL;
    const char *namespace_ = str_empty(source->namespace_) ? claim->object.meta.namespace_ : source->namespace_;
    if (str_eq(source->kind, "PersistentVolumeClaim") && str_empty(source->api_group))
        return mem_printf("claim/%s/%s", namespace_, source->name);
    if (str_eq(source->kind, "VolumeSnapshot"))
        return mem_printf("snapshot/%s/%s", namespace_, source->name);
    return NULL;
}

static void note_bound(struct provisioner *provisioner, const struct kube_claim *claim)
{
    const struct kube_meta *meta = &claim->object.meta;
    if (!str_eq(claim->phase, "Bound") || !pending_take_bound(provisioner->pending, meta->uid) ||
        meta->creation_time == 0)
        return;
    const char *labels[] = {kube_claim_class(claim)};
    double seconds = (double)(clock_wall(provisioner->clock) - meta->creation_time) / (double)CLOCK_SECOND;
    metric_observe(provisioner->telemetry.metrics, &telemetry_claim_bound, seconds > 0 ? seconds : 0, labels);
}

static bool keep_claim(void *arg, const struct kube_object *object)
{
    struct provisioner *provisioner = arg;
    const struct driver_capabilities *capabilities = &provisioner->config.capabilities;
    const struct kube_claim *claim = (const struct kube_claim *)object;
    note_bound(provisioner, claim);
    if (claim_is_for_us(&provisioner->config, claim))
        return true;
    if (capabilities->clone_volume && kube_strings_contain(&object->meta.finalizers, SOURCE_CLONE_FINALIZER))
        return true;
    /* what other claims wait for decides whether a source may go */
    auto_free char *source = NULL;
    if ((capabilities->clone_volume || capabilities->create_delete_snapshot) && protect_claim_is_waiting(claim))
        source = informers_source_key(claim);
    return source != NULL;
}

static bool keep_volume(void *arg, const struct kube_object *object)
{
    struct provisioner *provisioner = arg;
    return volume_is_for_us(&provisioner->config, (const struct kube_volume *)object);
}

/* Attachments of volumes of this driver carry its name, also for migrated volumes. */
static bool keep_attachment(void *arg, const struct kube_object *object)
{
    struct provisioner *provisioner = arg;
    const struct kube_attachment *attachment = (const struct kube_attachment *)object;
    return str_eq(attachment->attacher, provisioner->config.driver_name) && !str_empty(attachment->volume_name);
}

/* The sweep looks at nothing else. */
static bool keep_snapshot(void *arg, const struct kube_object *object)
{
    (void)arg;
    return kube_strings_contain(&object->meta.finalizers, SOURCE_SNAPSHOT_FINALIZER);
}

/* ---- indexes and listeners ---- */

static void index_uid(const struct kube_object *object, struct strv *keys)
{
    strv_add(keys, object->meta.uid);
}

static void index_source(const struct kube_object *object, struct strv *keys)
{
    char *key = informers_source_key((const struct kube_claim *)object);
    if (key != NULL)
        strv_add_take(keys, key);
}

static void index_attachment(const struct kube_object *object, struct strv *keys)
{
    strv_add(keys, ((const struct kube_attachment *)object)->volume_name);
}

static void on_claim(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct provisioner *provisioner = arg;
    const struct kube_object *object = new_ != NULL ? new_ : old;
    /* one that goes is looked at too: a call for it may be open, or be under way right now */
    if (claim_is_for_us(&provisioner->config, (const struct kube_claim *)object) ||
        pending_has(provisioner->pending, object->meta.uid))
        kube_queue_add(provisioner->claims, object->meta.uid);
    if (provisioner->protector != NULL)
        protect_claim_changed(provisioner->protector, old, new_);
}

static void on_volume(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct provisioner *provisioner = arg;
    (void)old;
    if (new_ != NULL)
        kube_queue_add(provisioner->volumes, new_->meta.name);
}

/* Classes, nodes' labels and CSINodes make up the pairs that capacity objects are about. Nodes change often without
 * changing their labels. */
static void on_cluster(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct provisioner *provisioner = arg;
    if (old != NULL && new_ != NULL && new_->kind == &kube_kind_node &&
        kube_pairs_equal(&old->meta.labels, &new_->meta.labels))
        return;
    capacity_cluster_changed(provisioner->capacity);
}

/* ---- start ---- */

static const struct kube_kind *kind_of(enum informer informer)
{
    static const struct kube_kind *const kinds[INFORMER_COUNT] = {
        [INFORMER_CLASSES] = &kube_kind_class,      [INFORMER_CLAIMS] = &kube_kind_claim,
        [INFORMER_VOLUMES] = &kube_kind_volume,     [INFORMER_NODES] = &kube_kind_node,
        [INFORMER_CSI_NODES] = &kube_kind_csi_node, [INFORMER_ATTACHMENTS] = &kube_kind_attachment,
        [INFORMER_SNAPSHOTS] = &kube_kind_snapshot, [INFORMER_GRANTS] = &kube_kind_reference_grant,
    };
    return kinds[informer];
}

static bool (*keep_of(enum informer informer))(void *arg, const struct kube_object *object)
{
    switch (informer) {
    case INFORMER_CLAIMS:
        return keep_claim;
    case INFORMER_VOLUMES:
        return keep_volume;
    case INFORMER_ATTACHMENTS:
        return keep_attachment;
    case INFORMER_SNAPSHOTS:
        return keep_snapshot;
    default:
        return NULL;
    }
}

static bool is_needed(const struct provisioner *provisioner, enum informer informer)
{
    const struct provision_config *config = &provisioner->config;
    bool topology = config->gate_topology && config->capabilities.accessibility_constraints && !config->node_deployment;
    switch (informer) {
    case INFORMER_NODES:
    case INFORMER_CSI_NODES:
        return topology;
    case INFORMER_ATTACHMENTS:
        return config->capabilities.publish_unpublish_volume || config->capabilities.recycle;
    case INFORMER_SNAPSHOTS:
        return provisioner->informers.snapshots_served && provisioner->options->snapshot_sweep_interval > 0;
    case INFORMER_GRANTS:
        return config->gate_cross_namespace;
    default:
        return true;
    }
}

int informers_prepare(struct provisioner *provisioner, struct err *err)
{
    struct informers *informers = &provisioner->informers;
    const struct kube_kind *snapshot = &kube_kind_snapshot;
    if (provisioner->config.capabilities.create_delete_snapshot &&
        kube_discover(provisioner->client, snapshot->group, snapshot->version, snapshot->plural,
                      &informers->snapshots_served, err) < 0)
        return err_wrap(err, "look for the snapshot API");
    for (int i = 0; i < INFORMER_COUNT; i++)
        if (is_needed(provisioner, (enum informer)i))
            informers->stores[i] = kube_store_new(kind_of((enum informer)i));
    struct kube_store *claims = informers->stores[INFORMER_CLAIMS];
    informers->claims_by_uid = kube_store_add_index(claims, index_uid);
    informers->claims_by_source = kube_store_add_index(claims, index_source);
    kube_store_listen(claims, on_claim, provisioner);
    kube_store_listen(informers->stores[INFORMER_VOLUMES], on_volume, provisioner);
    kube_store_listen(informers->stores[INFORMER_CLASSES], on_cluster, provisioner);
    if (informers->stores[INFORMER_NODES] != NULL) {
        kube_store_listen(informers->stores[INFORMER_NODES], on_cluster, provisioner);
        kube_store_listen(informers->stores[INFORMER_CSI_NODES], on_cluster, provisioner);
    }
    if (informers->stores[INFORMER_ATTACHMENTS] != NULL)
        informers->attachments_by_volume =
            kube_store_add_index(informers->stores[INFORMER_ATTACHMENTS], index_attachment);
    return 0;
}

int informers_start(struct provisioner *provisioner, struct err *err)
{
    struct informers *informers = &provisioner->informers;
    for (int i = 0; i < INFORMER_COUNT; i++) {
        if (informers->stores[i] == NULL)
            continue;
        /* secret templates and the lists of keys to pass on may name any annotation of a claim; of everything else
         * only what the program reads is kept */
        bool claims = i == INFORMER_CLAIMS;
        struct kube_reflector_options options = {
            .client = provisioner->client,
            .store = informers->stores[i],
            .list = {.decode = {.all_annotations = claims, .drop_labels = i == INFORMER_VOLUMES}},
            .keep = keep_of((enum informer)i),
            .keep_arg = provisioner,
            .clock = provisioner->clock,
            .rng = provisioner->rng,
        };
        informers->reflectors[i] = kube_reflector_start(&options);
        observe_http_add_check(provisioner->http, OBSERVE_READYZ, kind_of((enum informer)i)->plural,
                               kube_reflector_check, informers->reflectors[i]);
    }
    for (int i = 0; i < INFORMER_COUNT; i++)
        if (informers->reflectors[i] != NULL &&
            kube_reflector_wait_synced(informers->reflectors[i], provisioner->stop, err) < 0)
            return err_wrap(err, "wait for the first list of %s", kind_of((enum informer)i)->plural);
    return 0;
}

void informers_free(struct informers *informers)
{
    for (int i = 0; i < INFORMER_COUNT; i++)
        if (informers->reflectors[i] != NULL)
            kube_reflector_free(informers->reflectors[i]);
    for (int i = 0; i < INFORMER_COUNT; i++)
        if (informers->stores[i] != NULL)
            kube_store_free(informers->stores[i]);
    *informers = (struct informers){0};
}

static bool enqueue_claim(void *arg, const struct kube_object *object)
{
    struct provisioner *provisioner = arg;
    if (claim_is_for_us(&provisioner->config, (const struct kube_claim *)object))
        kube_queue_add(provisioner->claims, object->meta.uid);
    return true;
}

static bool enqueue_volume(void *arg, const struct kube_object *object)
{
    struct provisioner *provisioner = arg;
    kube_queue_add(provisioner->volumes, object->meta.name);
    return true;
}

void informers_resync(struct provisioner *provisioner)
{
    kube_store_each(provisioner->informers.stores[INFORMER_CLAIMS], enqueue_claim, provisioner);
    kube_store_each(provisioner->informers.stores[INFORMER_VOLUMES], enqueue_volume, provisioner);
}

struct kube_claim *informers_claim_by_uid(struct provisioner *provisioner, const char *uid)
{
    auto_objects struct kube_object_list found = {0};
    kube_store_find(provisioner->informers.stores[INFORMER_CLAIMS], provisioner->informers.claims_by_uid, uid, &found);
    return found.len > 0 ? (struct kube_claim *)kube_object_ref(found.items[0]) : NULL;
}

struct kube_volume *informers_volume(struct provisioner *provisioner, const char *name)
{
    return (struct kube_volume *)kube_store_get(provisioner->informers.stores[INFORMER_VOLUMES], NULL, name);
}

struct handle_search {
    const char *driver, *handle;
    char *found;
};

static bool look_for_handle(void *arg, const struct kube_object *object)
{
    struct handle_search *search = arg;
    const struct kube_volume *volume = (const struct kube_volume *)object;
    if (volume->source == KUBE_SOURCE_CSI && str_eq(volume->csi.driver, search->driver) &&
        str_eq(volume->csi.handle, search->handle))
        search->found = mem_strdup(object->meta.name);
    return search->found == NULL;
}

char *informers_volume_of_handle(struct provisioner *provisioner, const char *handle)
{
    struct handle_search search = {.driver = provisioner->config.driver_name, .handle = handle};
    kube_store_each(provisioner->informers.stores[INFORMER_VOLUMES], look_for_handle, &search);
    return search.found;
}
