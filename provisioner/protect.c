/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/protect.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/provisioner.h"
#include "provisioner/source.h"

#include <stdlib.h>

struct protector {
    struct provisioner *provisioner;
    struct kube_queue *queue; /* keys: "namespace/name" of source claims; NULL when the driver cannot clone */
    struct kube_workers *workers;
    bool sweeping;
    pthread_t sweep;
};

bool protect_claim_is_waiting(const struct kube_claim *claim)
{
    return str_empty(claim->phase) || str_eq(claim->phase, "Pending");
}

/* ---- putting on and taking off ---- */

static size_t find_text(const json_t *list, const char *text)
{
    size_t i = 0;
    while (i < json_array_size(list) && !str_eq(json_string_value(json_array_get(list, i)), text))
        i++;
    return i;
}

/* By PUT of the live object: csi-provisioner's role has update and no patch on claims and snapshots. */
static int change(struct provisioner *provisioner, const struct kube_kind *kind, const char *namespace_,
                  const char *name, const char *finalizer, bool present, struct err *err)
{
    json_t *json = NULL;
    auto_unref struct kube_object *written = NULL;
    if (kube_get_json(provisioner->client, kind, namespace_, name, &json, err) < 0)
        return -1;
    json_t *metadata = json_object_get(json, "metadata"), *list = json_object_get(metadata, "finalizers");
    if (list == NULL) {
        list = json_array();
        json_object_set_new(metadata, "finalizers", list);
    }
    size_t at = find_text(list, finalizer);
    bool there = at < json_array_size(list);
    int result = 0;
    if (there != present) {
        if (present)
            json_array_append_new(list, json_string(finalizer));
        else
            json_array_remove(list, at);
        result = kube_update(provisioner->client, kind, namespace_, name, NULL, json, &written, err);
    }
    json_decref(json);
    if (result == 0 && written != NULL && kind == &kube_kind_snapshot &&
        provisioner->informers.stores[INFORMER_SNAPSHOTS] != NULL && !present)
        kube_store_put_reply(provisioner->informers.stores[INFORMER_SNAPSHOTS], written);
    return result;
}

int protect_source(struct provisioner *provisioner, const struct provision_request *request, struct err *err)
{
    const char *namespace_ = request->protect_namespace, *name = request->protect_name;
    switch (request->source) {
    case REQUEST_SOURCE_NONE:
        return 0;
    case REQUEST_SOURCE_CLAIM:
        if (change(provisioner, &kube_kind_claim, namespace_, name, SOURCE_CLONE_FINALIZER, true, err) < 0)
            return err_wrap(err, "failed to add a finalizer to source claim %s/%s", namespace_, name);
        return 0;
    case REQUEST_SOURCE_SNAPSHOT:
        if (change(provisioner, &kube_kind_snapshot, namespace_, name, SOURCE_SNAPSHOT_FINALIZER, true, err) == 0)
            return 0;
        if (!err_is(err, ERR_FORBIDDEN))
            return err_wrap(err, "failed to add a finalizer to source snapshot %s/%s", namespace_, name);
        log_warn("The role does not allow to protect snapshots while they are restored", kv_str("snapshot", name),
                 kv_str("namespace", namespace_), kv_err(err));
        err_clear(err);
        return 0;
    }
    return 0;
}

/* Claims that wait for this source, but for the one of that uid. */
static size_t waiting_claims(struct provisioner *provisioner, const char *kind, const char *namespace_,
                             const char *name, const char *except_uid)
{
    auto_objects struct kube_object_list claims = {0};
    auto_free char *key = mem_printf("%s/%s/%s", kind, namespace_, name);
    kube_store_find(provisioner->informers.stores[INFORMER_CLAIMS], provisioner->informers.claims_by_source, key,
                    &claims);
    size_t count = 0;
    for (size_t i = 0; i < claims.len; i++)
        count += protect_claim_is_waiting((const struct kube_claim *)claims.items[i]) &&
                 !str_eq(claims.items[i]->meta.uid, except_uid);
    return count;
}

void protect_source_done(struct provisioner *provisioner, const struct provision_request *request)
{
    auto_err struct err err = {0};
    const char *namespace_ = request->protect_namespace, *name = request->protect_name;
    if (request->source != REQUEST_SOURCE_SNAPSHOT ||
        waiting_claims(provisioner, "snapshot", namespace_, name, request->claim->object.meta.uid) > 0)
        return;
    if (change(provisioner, &kube_kind_snapshot, namespace_, name, SOURCE_SNAPSHOT_FINALIZER, false, &err) < 0 &&
        !err_is(&err, ERR_NOT_FOUND))
        log_warn("Could not take the finalizer off a snapshot; the sweep will", kv_str("snapshot", name),
                 kv_str("namespace", namespace_), kv_err(&err));
}

/* ---- source claims that are being deleted ---- */

static bool must_be_looked_at(const struct kube_object *claim)
{
    return claim->meta.deleting && kube_strings_contain(&claim->meta.finalizers, SOURCE_CLONE_FINALIZER);
}

void protect_claim_changed(struct protector *protector, const struct kube_object *old, const struct kube_object *new_)
{
    if (protector->queue == NULL)
        return;
    if (new_ != NULL && must_be_looked_at(new_)) {
        auto_free char *key = kube_object_key(new_);
        kube_queue_add(protector->queue, key);
    }
    /* a claim that waited may have been the last one for its source */
    auto_free char *source = old != NULL ? informers_source_key((const struct kube_claim *)old) : NULL;
    if (source != NULL && str_starts(source, "claim/"))
        kube_queue_add(protector->queue, source + strlen("claim/"));
}

static int release_claim(void *arg, const char *key)
{
    struct protector *protector = arg;
    struct provisioner *provisioner = protector->provisioner;
    auto_unref struct kube_object *claim = kube_store_get_key(provisioner->informers.stores[INFORMER_CLAIMS], key);
    auto_err struct err err = {0};
    if (claim == NULL || !must_be_looked_at(claim) ||
        waiting_claims(provisioner, "claim", claim->meta.namespace_, claim->meta.name, NULL) > 0)
        return 0;
    if (change(provisioner, &kube_kind_claim, claim->meta.namespace_, claim->meta.name, SOURCE_CLONE_FINALIZER, false,
               &err) == 0 ||
        err_is(&err, ERR_NOT_FOUND))
        return 0;
    log_warn("Could not take the finalizer off a source claim", kv_str("claim", key), kv_err(&err));
    return -1;
}

/* ---- snapshots ---- */

static void sweep(struct provisioner *provisioner)
{
    auto_objects struct kube_object_list snapshots = {0};
    kube_store_list(provisioner->informers.stores[INFORMER_SNAPSHOTS], &snapshots);
    for (size_t i = 0; i < snapshots.len && !stop_requested(provisioner->stop); i++) {
        const struct kube_meta *meta = &snapshots.items[i]->meta;
        auto_err struct err err = {0};
        if (!kube_strings_contain(&meta->finalizers, SOURCE_SNAPSHOT_FINALIZER) ||
            waiting_claims(provisioner, "snapshot", meta->namespace_, meta->name, NULL) > 0)
            continue;
        if (change(provisioner, &kube_kind_snapshot, meta->namespace_, meta->name, SOURCE_SNAPSHOT_FINALIZER, false,
                   &err) == 0)
            log_info("Took the finalizer off a snapshot that no claim waits for", kv_str("snapshot", meta->name),
                     kv_str("namespace", meta->namespace_));
        else if (!err_is(&err, ERR_NOT_FOUND))
            log_warn("Could not take the finalizer off a snapshot", kv_str("snapshot", meta->name),
                     kv_str("namespace", meta->namespace_), kv_err(&err));
    }
}

static void *sweep_main(void *arg)
{
    struct protector *protector = arg;
    struct provisioner *provisioner = protector->provisioner;
    while (!stop_sleep(provisioner->stop, provisioner->clock, provisioner->options->snapshot_sweep_interval))
        sweep(provisioner);
    return NULL;
}

struct protector *protect_new(struct provisioner *provisioner)
{
    const struct options *options = provisioner->options;
    struct protector *protector = mem_new(struct protector);
    protector->provisioner = provisioner;
    if (provisioner->config.capabilities.clone_volume)
        protector->queue = telemetry_queue_new(&provisioner->telemetry,
                                               &(struct kube_queue_options){.name = "cloning-protection",
                                                                            .base_delay = options->retry_interval_start,
                                                                            .max_delay = options->retry_interval_max});
    return protector;
}

void protect_start(struct protector *protector)
{
    struct provisioner *provisioner = protector->provisioner;
    if (protector->queue != NULL && provisioner->options->cloning_protection_threads > 0)
        protector->workers =
            kube_workers_start(protector->queue, (size_t)provisioner->options->cloning_protection_threads,
                               "cloning-protect", release_claim, protector);
    if (provisioner->informers.stores[INFORMER_SNAPSHOTS] != NULL) {
        protector->sweeping = true;
        protector->sweep = thread_start("snapshot-sweep", sweep_main, protector);
    }
}

void protect_stop(struct protector *protector)
{
    if (protector == NULL)
        return;
    if (protector->queue != NULL) {
        kube_queue_shut_down(protector->queue);
        kube_workers_join(protector->workers);
    }
    if (protector->sweeping)
        thread_join(protector->sweep);
    free(protector);
}
