/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/save.h"

#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "provisioner/capacity_loop.h"
#include "provisioner/intent.h"
#include "provisioner/migrate.h"
#include "provisioner/pending.h"
#include "provisioner/record.h"
#include "provisioner/volume.h"

#include <stdlib.h>

#define WORKERS 4
#define CLEANUP_TRIES 5

struct unsaved {
    json_t *volume;
    char *handle; /* the driver's: an object in the form of an in-tree plugin does not have it */
    char *record;
};
struct saver {
    struct provisioner *provisioner;
    pthread_mutex_t lock;
    struct map *unsaved; /* volume name → struct unsaved */
    struct kube_queue *queue;
    struct kube_workers *workers;
};

static void free_unsaved(void *value)
{
    struct unsaved *unsaved = value;
    json_decref(unsaved->volume);
    free(unsaved->handle);
    free(unsaved->record);
    free(unsaved);
}

int cleanup_volume(struct provisioner *provisioner, const struct provision_request *request, const char *volume_id)
{
    int64_t deadline = clock_mono(provisioner->clock) + provisioner->options->timeout;
    auto_err struct err err = {0};
    if (str_empty(volume_id))
        return -1;
    auto_free char *user = informers_volume_of_handle(provisioner, volume_id);
    if (user != NULL) {
        log_error("The CSI driver answered with a volume that is in use; it is left alone",
                  kv_str("volumeId", volume_id), kv_str("usedBy", user), kv_str("volume", request->volume_name));
        return -1;
    }
    Csi__V1__DeleteVolumeRequest message = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    message.volume_id = (char *)volume_id;
    /* the same entry type: what CreateVolume was sent is what DeleteVolume gets */
    auto_csi_arena struct csi_arena arena = {0};
    CSI_MAP_ADD_ALL(&arena, &message, secrets, CSI_MAP(&request->csi, secrets));
    for (int tries = 0; tries < CLEANUP_TRIES; tries++) {
        struct csi_call_options options = provisioner_call_options(provisioner);
        options.timeout_ns = deadline - clock_mono(provisioner->clock);
        options.tag = migrate_is_needed(&provisioner->config, request->class_) ? TELEMETRY_MIGRATED : 0;
        if (options.timeout_ns <= 0)
            break;
        auto_csi_message Csi__V1__DeleteVolumeResponse *reply = NULL;
        err_clear(&err);
        if (csi_delete_volume(provisioner->driver, &message, &reply, &options, &err) == 0) {
            log_info("Deleted a volume that must not stay", kv_str("volumeId", volume_id),
                     kv_str("volume", request->volume_name));
            return 0;
        }
    }
    log_error("Could not delete a volume that must not stay", kv_str("volumeId", volume_id),
              kv_str("volume", request->volume_name), kv_err(&err));
    return -1;
}

/* ---- one try ---- */

static void saved(struct provisioner *provisioner, const struct provision_request *request,
                  const struct kube_object *object)
{
    const struct kube_object *claim = &request->claim->object;
    if (object != NULL)
        kube_store_put_reply(provisioner->informers.stores[INFORMER_VOLUMES], (struct kube_object *)object);
    pending_expect_bound(provisioner->pending, claim->meta.uid);
    intent_done(provisioner, claim->meta.uid);
    log_info("Wrote the volume", kv_str("volume", request->volume_name), kv_str("claim", claim->meta.name),
             kv_str("namespace", claim->meta.namespace_));
    kube_event_object(provisioner->events, claim, KUBE_EVENT_NORMAL, "ProvisioningSucceeded",
                      "Successfully provisioned volume %s", request->volume_name);
    capacity_volume_changed(provisioner->capacity, request->class_->object.meta.name);
}

/* An object of that name is there. Is it ours? When not, its volume may still be ours (a claim that was made anew under
 * a name that is not unique): then nothing may be deleted. */
static enum save_result look_at_existing(struct provisioner *provisioner, const struct provision_request *request,
                                         const json_t *volume, const char *handle, const json_t *existing,
                                         struct err *err)
{
    enum volume_likeness likeness = volume_compare(existing, volume, provisioner->config.driver_name, handle);
    if (likeness == VOLUME_SAME) {
        auto_unref struct kube_object *object =
            kube_object_decode(&kube_kind_volume, existing, &(struct kube_decode_options){.drop_labels = true}, NULL);
        saved(provisioner, request, object);
        return SAVE_DONE;
    }
    if (likeness == VOLUME_OTHER)
        cleanup_volume(provisioner, request, handle);
    err_set(err, ERR_EXISTS, "a persistent volume named %s exists already and belongs to %s", request->volume_name,
            likeness == VOLUME_OTHER ? "another volume" : "another claim");
    return SAVE_REJECTED;
}

static enum save_result try_to_save(struct provisioner *provisioner, const struct provision_request *request,
                                    const json_t *volume, const char *handle, struct err *err)
{
    auto_unref struct kube_object *written = NULL;
    if (kube_create(provisioner->client, &kube_kind_volume, NULL, volume, &written, err) == 0) {
        saved(provisioner, request, written);
        return SAVE_DONE;
    }
    if (!err_is(err, ERR_EXISTS))
        return SAVE_LATER;
    json_t *existing = NULL;
    err_clear(err);
    if (kube_get_json(provisioner->client, &kube_kind_volume, NULL, request->volume_name, &existing, err) < 0)
        return SAVE_LATER;
    enum save_result result = look_at_existing(provisioner, request, volume, handle, existing, err);
    json_decref(existing);
    return result;
}

/* The server will not take this object, however often it is asked. */
static bool is_refusal(const struct err *err)
{
    return err_is(err, ERR_INVALID) || err_is(err, ERR_UNPROCESSABLE) ||
           strstr(err_text(err), "request is too large") != NULL; /* the store's limit, which comes as a 500 */
}

static void tell_user(struct provisioner *provisioner, const struct kube_claim *claim, const struct err *err)
{
    kube_event_object(provisioner->events, &claim->object, KUBE_EVENT_WARNING, "ProvisioningFailed", "%s",
                      err_text(err));
}

enum save_result save_volume(struct provisioner *provisioner, const struct provision_request *request, json_t *volume,
                             const char *handle, const char *record, struct err *err)
{
    struct saver *saver = provisioner->saver;
    enum save_result result = try_to_save(provisioner, request, volume, handle, err);
    if (result != SAVE_LATER) {
        json_decref(volume);
        return result;
    }
    log_warn("Could not write the volume, will try again", kv_str("volume", request->volume_name), kv_err(err));
    if (is_refusal(err))
        tell_user(provisioner, request->claim, err);
    err_clear(err);
    struct unsaved *unsaved = mem_new(struct unsaved);
    *unsaved = (struct unsaved){.volume = volume, .handle = mem_strdup(handle), .record = mem_strdup(record)};
    pthread_mutex_lock(&saver->lock);
    map_set(saver->unsaved, request->volume_name, unsaved);
    pthread_mutex_unlock(&saver->lock);
    kube_queue_add_limited(saver->queue, request->volume_name);
    return SAVE_LATER;
}

/* ---- in the background ---- */

/* Whether the claim may still wait for the volume, or the object may be there after all, whatever became of the writes
 * before this one. */
static bool is_wanted(struct provisioner *provisioner, const struct record *record, const char *name)
{
    const struct kube_meta *meta = &record->claim->object.meta;
    auto_unref struct kube_claim *claim = NULL;
    auto_unref struct kube_volume *volume = NULL;
    auto_err struct err claim_err = {0}, volume_err = {0};
    if (provisioner->lookup.claim(provisioner, meta->namespace_, meta->name, &claim, &claim_err) == 0
            ? str_eq(claim->object.meta.uid, meta->uid)
            : !err_is(&claim_err, ERR_NOT_FOUND))
        return true;
    return provisioner->lookup.volume(provisioner, name, &volume, &volume_err) == 0 ||
           !err_is(&volume_err, ERR_NOT_FOUND);
}

/* The object cannot be written. When that is for good and nobody waits for it any more, the volume goes while its id is
 * still known. True when it went. */
static bool give_up(struct provisioner *provisioner, const struct record *record, const char *name, const char *handle,
                    const struct err *why)
{
    bool leads = provisioner->leader == NULL || kube_leader_valid(provisioner->leader);
    if (!leads || !is_refusal(why) || is_wanted(provisioner, record, name) ||
        cleanup_volume(provisioner, &record->request, handle) < 0)
        return false;
    intent_done(provisioner, record->claim->object.meta.uid);
    return true;
}

static void forget(struct saver *saver, const char *name)
{
    pthread_mutex_lock(&saver->lock);
    map_remove(saver->unsaved, name);
    pthread_mutex_unlock(&saver->lock);
}

/* -1 = later. */
static int try_again(struct saver *saver, const struct record *record, const char *name, const json_t *volume,
                     const char *handle)
{
    struct provisioner *provisioner = saver->provisioner;
    const char *uid = record->claim->object.meta.uid;
    auto_err struct err err = {0};
    enum save_result result = try_to_save(provisioner, &record->request, volume, handle, &err);
    if (result == SAVE_LATER && !give_up(provisioner, record, name, handle, &err)) {
        log_warn("Could not write the volume, will try again", kv_str("volume", name), kv_err(&err));
        return -1;
    }
    forget(saver, name); /* first: the claim's worker looks whether something is unsaved */
    if (result == SAVE_REJECTED) {
        tell_user(provisioner, record->claim, &err);
        intent_done(provisioner, uid);
        kube_queue_add_limited(provisioner->claims, uid);
    }
    return 0;
}

static int save_again(void *arg, const char *name)
{
    struct saver *saver = arg;
    struct provisioner *provisioner = saver->provisioner;
    auto_err struct err err = {0};
    auto_record struct record record = {0};
    pthread_mutex_lock(&saver->lock);
    struct unsaved *found = map_get(saver->unsaved, name);
    json_t *volume = found != NULL ? json_deep_copy(found->volume) : NULL;
    auto_free char *text = found != NULL ? mem_strdup(found->record) : NULL;
    auto_free char *handle = found != NULL ? mem_strdup(found->handle) : NULL;
    pthread_mutex_unlock(&saver->lock);
    int result = 0;
    if (volume != NULL && record_decode(text, &record, &err) == 0) {
        /* only a clean-up needs them; without, the driver has to do */
        if (request_fetch_secret(&provisioner->lookup, &record.request, &err) < 0)
            log_v(2, "No secret for an unsaved volume", kv_str("volume", name), kv_err(&err));
        result = try_again(saver, &record, name, volume, handle);
    }
    json_decref(volume);
    return result;
}

bool saver_has(struct saver *saver, const char *volume_name)
{
    pthread_mutex_lock(&saver->lock);
    bool has = map_has(saver->unsaved, volume_name);
    pthread_mutex_unlock(&saver->lock);
    return has;
}

struct saver *saver_start(struct provisioner *provisioner)
{
    struct saver *saver = mem_new(struct saver);
    saver->provisioner = provisioner;
    pthread_mutex_init(&saver->lock, NULL);
    saver->unsaved = map_new(free_unsaved);
    saver->queue =
        telemetry_queue_new(&provisioner->telemetry,
                            &(struct kube_queue_options){.name = "unsavedpvs", .bucket_qps = 10, .bucket_burst = 100});
    saver->workers = kube_workers_start(saver->queue, WORKERS, "unsavedpvs", save_again, saver);
    return saver;
}

void saver_stop(struct saver *saver)
{
    if (saver == NULL)
        return;
    kube_queue_shut_down(saver->queue);
    kube_workers_join(saver->workers);
    map_free(saver->unsaved);
    pthread_mutex_destroy(&saver->lock);
    free(saver);
}
