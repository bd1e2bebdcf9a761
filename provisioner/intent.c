/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/intent.h"

#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "provisioner/capacity.h"
#include "provisioner/pending.h"
#include "provisioner/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LABEL_DRIVER "provisioner.berth/driver"
#define LABEL_OWNER "provisioner.berth/owner"
#define ANNOTATION "provisioner.berth/request"
#define WORKERS 4
#define DRAIN (2 * CLOCK_SECOND)

struct entry {
    uint64_t resource_version;
    char *record;
};
struct intents {
    struct provisioner *provisioner;
    pthread_mutex_t lock;
    struct map *entries;         /* claim uid → struct entry: the records that exist */
    bool refused;                /* mode auto, and the role does not allow it: said once, then nothing is written */
    struct kube_queue *removals; /* keys: "CLAIM-UID RESOURCEVERSION" */
    struct kube_workers *workers;
};

static void free_entry(void *value)
{
    struct entry *entry = value;
    free(entry->record);
    free(entry);
}

static char *lease_name(const struct provisioner *provisioner, const char *uid)
{
    auto_free char *driver = kube_leader_sanitize_name(provisioner->config.driver_name);
    auto_free char *name = mem_printf("%s-intent-%s", driver, uid);
    for (char *c = name; *c != '\0'; c++) /* object names are lower case */
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    return mem_take(name);
}

static json_t *build_lease(const struct provisioner *provisioner, const struct kube_claim *claim, const char *name,
                           const char *record, uint64_t resource_version)
{
    auto_free char *owner = capacity_managed_by(&provisioner->config);
    auto_free char *holder = kube_object_key(&claim->object);
    json_t *json = json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s, s:s}, s:{s:s}}, s:{s:s}}", "apiVersion",
                             "coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", name, "namespace",
                             provisioner->namespace_, "labels", LABEL_DRIVER, provisioner->config.driver_name,
                             LABEL_OWNER, owner, "annotations", ANNOTATION, record, "spec", "holderIdentity", holder);
    if (resource_version != 0) {
        char version[24];
        snprintf(version, sizeof(version), "%" PRIu64, resource_version);
        json_object_set_new(json_object_get(json, "metadata"), "resourceVersion", json_string(version));
    }
    return json;
}

/* 0 with the new version. A record that is there already, for whatever reason, is replaced. */
static int put_lease(struct provisioner *provisioner, const struct kube_claim *claim, const char *record,
                     uint64_t *resource_version, struct err *err)
{
    struct kube_client *client = provisioner->record_client;
    auto_free char *name = lease_name(provisioner, claim->object.meta.uid);
    for (int tries = 0; tries < 5; tries++) {
        auto_unref struct kube_object *written = NULL;
        json_t *json = build_lease(provisioner, claim, name, record, *resource_version);
        err_clear(err);
        int result =
            *resource_version == 0
                ? kube_create(client, &kube_kind_lease, provisioner->namespace_, json, &written, err)
                : kube_update(client, &kube_kind_lease, provisioner->namespace_, name, NULL, json, &written, err);
        json_decref(json);
        if (result == 0 && written != NULL) {
            *resource_version = written->meta.resource_version;
            return 0;
        }
        if (err_is(err, ERR_NOT_FOUND) && *resource_version != 0) {
            *resource_version = 0; /* somebody removed it */
            continue;
        }
        if (!err_is(err, ERR_EXISTS) && !err_is(err, ERR_CONFLICT))
            return -1;
        auto_unref struct kube_object *existing = NULL;
        if (kube_get(client, &kube_kind_lease, provisioner->namespace_, name, &existing, err) < 0) {
            if (!err_is(err, ERR_NOT_FOUND))
                return -1;
            *resource_version = 0;
            continue;
        }
        *resource_version = existing->meta.resource_version;
    }
    return -1;
}

static bool is_wanted(const struct provisioner *provisioner)
{
    return provisioner->settings->intent != INTENT_OFF && !provisioner->intents->refused;
}

/* In mode auto a role without leases, a namespace that is not there, or a record the server does not take must not keep
 * anybody from getting a volume. */
static int refuse(struct intents *intents, struct err *err)
{
    bool for_good = err_is(err, ERR_FORBIDDEN) || err_is(err, ERR_NOT_FOUND);
    if (intents->provisioner->settings->intent != INTENT_AUTO ||
        (!for_good && !err_is(err, ERR_UNPROCESSABLE) && !err_is(err, ERR_INVALID)))
        return err_wrap(err, "write the intent record");
    if (for_good)
        intents->refused = true;
    log_warn("Provisioning without an intent record: a crash right after CreateVolume may leak a volume when its claim "
             "is deleted meanwhile",
             kv_str("namespace", intents->provisioner->namespace_), kv_bool("forGood", for_good), kv_err(err));
    err_clear(err);
    return 0;
}

int intent_write(struct provisioner *provisioner, const struct kube_claim *claim, const char *record, struct err *err)
{
    struct intents *intents = provisioner->intents;
    const char *uid = claim->object.meta.uid;
    pthread_mutex_lock(&intents->lock);
    const struct entry *known = map_get(intents->entries, uid);
    bool unchanged = known != NULL && str_eq(known->record, record);
    uint64_t resource_version = known != NULL ? known->resource_version : 0;
    bool wanted = is_wanted(provisioner);
    if (wanted && known == NULL) /* from now on nobody removes what is about to be written */
        map_set(intents->entries, uid, mem_new(struct entry));
    pthread_mutex_unlock(&intents->lock);
    if (!wanted || unchanged)
        return 0;
    int result = put_lease(provisioner, claim, record, &resource_version, err);
    pthread_mutex_lock(&intents->lock);
    if (result == 0) {
        struct entry *entry = mem_new(struct entry);
        *entry = (struct entry){.resource_version = resource_version, .record = mem_strdup(record)};
        map_set(intents->entries, uid, entry);
    } else {
        if (resource_version == 0)
            map_remove(intents->entries, uid);
        result = refuse(intents, err);
    }
    pthread_mutex_unlock(&intents->lock);
    return result;
}

static void remove_version(struct intents *intents, const char *uid, uint64_t resource_version)
{
    auto_free char *key = mem_printf("%s %" PRIu64, uid, resource_version);
    kube_queue_add(intents->removals, key);
}

void intent_done(struct provisioner *provisioner, const char *claim_uid)
{
    struct intents *intents = provisioner->intents;
    pthread_mutex_lock(&intents->lock);
    struct entry *entry = map_take(intents->entries, claim_uid);
    pthread_mutex_unlock(&intents->lock);
    if (entry == NULL)
        return;
    if (entry->resource_version != 0)
        remove_version(intents, claim_uid, entry->resource_version);
    free_entry(entry);
}

/* Somebody changed the record since. When it was this process, it is about a call under way and stays. Else (a label
 * was put on it) it is the version now there that has to go. */
static int remove_changed(struct intents *intents, const char *uid, const char *name, struct err *err)
{
    struct provisioner *provisioner = intents->provisioner;
    auto_unref struct kube_object *now = NULL;
    err_clear(err);
    if (kube_get(provisioner->record_client, &kube_kind_lease, provisioner->namespace_, name, &now, err) < 0)
        return err_is(err, ERR_NOT_FOUND) ? 0 : -1;
    /* read first, looked up then: a write that begins later changes the version, and the removal misses it */
    pthread_mutex_lock(&intents->lock);
    bool used = map_has(intents->entries, uid);
    pthread_mutex_unlock(&intents->lock);
    if (used)
        return 0;
    return kube_delete(provisioner->record_client, &kube_kind_lease, provisioner->namespace_, name, NULL,
                       now->meta.resource_version, err);
}

/* Only the version that was done with is removed. */
static int remove_lease(void *arg, const char *key)
{
    struct intents *intents = arg;
    struct provisioner *provisioner = intents->provisioner;
    auto_err struct err err = {0};
    const char *space = strchr(key, ' ');
    uint64_t version = 0;
    if (space == NULL || !str_parse_u64(space + 1, &version))
        return 0;
    auto_free char *uid = mem_strndup(key, (size_t)(space - key));
    auto_free char *name = lease_name(provisioner, uid);
    int result =
        kube_delete(provisioner->record_client, &kube_kind_lease, provisioner->namespace_, name, NULL, version, &err);
    if (result < 0 && err_is(&err, ERR_CONFLICT))
        result = remove_changed(intents, uid, name, &err);
    if (result == 0 || err_is(&err, ERR_NOT_FOUND) || err_is(&err, ERR_CANCELLED))
        return 0;
    log_warn("Could not remove an intent record, will try again", kv_str("lease", name), kv_err(&err));
    return -1;
}

/* ---- start and end ---- */

struct loading {
    struct provisioner *provisioner;
    size_t taken, finished;
};

static bool load_one(void *arg, struct kube_object *object)
{
    struct loading *loading = arg;
    struct provisioner *provisioner = loading->provisioner;
    const char *text = kube_annotation(object, ANNOTATION);
    auto_err struct err err = {0};
    auto_record struct record record = {0};
    if (text == NULL || record_decode(text, &record, &err) < 0) {
        log_warn("Cannot read an intent record; it is left alone", kv_str("lease", object->meta.name), kv_err(&err));
        return true;
    }
    const char *uid = record.claim->object.meta.uid;
    auto_unref struct kube_volume *volume = informers_volume(provisioner, record.request.volume_name);
    if (volume != NULL && volume->claim_ref != NULL && str_eq(volume->claim_ref->uid, uid)) {
        remove_version(provisioner->intents, uid, object->meta.resource_version);
        loading->finished++;
        return true;
    }
    struct entry *entry = mem_new(struct entry);
    *entry = (struct entry){.resource_version = object->meta.resource_version, .record = mem_strdup(text)};
    pthread_mutex_lock(&provisioner->intents->lock);
    map_set(provisioner->intents->entries, uid, entry);
    pthread_mutex_unlock(&provisioner->intents->lock);
    struct pending_claim pending = {.kind = PENDING_BACKGROUND, .record = mem_strdup(text)};
    pending_put(provisioner->pending, uid, &pending);
    kube_queue_add(provisioner->claims, uid);
    loading->taken++;
    return true;
}

int intents_load(struct provisioner *provisioner, struct err *err)
{
    struct loading loading = {.provisioner = provisioner};
    uint64_t version = 0;
    if (provisioner->settings->intent == INTENT_OFF)
        return 0;
    auto_free char *owner = capacity_managed_by(&provisioner->config);
    auto_free char *selector =
        mem_printf(LABEL_DRIVER "=%s," LABEL_OWNER "=%s", provisioner->config.driver_name, owner);
    struct kube_list_options options = {
        .namespace_ = provisioner->namespace_, .label_selector = selector, .decode = {.all_annotations = true}};
    if (kube_list(provisioner->record_client, &kube_kind_lease, &options, load_one, &loading, &version, err) < 0) {
        pthread_mutex_lock(&provisioner->intents->lock);
        int result = refuse(provisioner->intents, err);
        pthread_mutex_unlock(&provisioner->intents->lock);
        return result;
    }
    if (loading.taken + loading.finished > 0)
        log_info("Took up calls that an earlier process left", kv_uint("open", loading.taken),
                 kv_uint("finished", loading.finished));
    return 0;
}

struct intents *intents_start(struct provisioner *provisioner)
{
    struct intents *intents = mem_new(struct intents);
    intents->provisioner = provisioner;
    pthread_mutex_init(&intents->lock, NULL);
    intents->entries = map_new(free_entry);
    intents->removals = telemetry_queue_new(
        &provisioner->telemetry,
        &(struct kube_queue_options){.name = "intents", .base_delay = CLOCK_SECOND, .max_delay = 60 * CLOCK_SECOND});
    intents->workers = kube_workers_start(intents->removals, WORKERS, "intents", remove_lease, intents);
    return intents;
}

void intents_stop(struct intents *intents)
{
    if (intents == NULL)
        return;
    int64_t until = clock_mono(clock_real()) + DRAIN;
    while (kube_queue_len(intents->removals) > 0 && clock_mono(clock_real()) < until &&
           !stop_requested(intents->provisioner->stop))
        stop_sleep(intents->provisioner->stop, clock_real(), 10 * CLOCK_MS);
    kube_queue_shut_down(intents->removals);
    kube_workers_join(intents->workers);
    map_free(intents->entries);
    pthread_mutex_destroy(&intents->lock);
    free(intents);
}

size_t intents_len(struct intents *intents)
{
    pthread_mutex_lock(&intents->lock);
    size_t len = map_len(intents->entries);
    pthread_mutex_unlock(&intents->lock);
    return len;
}
