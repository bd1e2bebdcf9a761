/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/claims.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/attempt.h"
#include "provisioner/capacity_loop.h"
#include "provisioner/intent.h"
#include "provisioner/migrate.h"
#include "provisioner/node.h"
#include "provisioner/pending.h"
#include "provisioner/provisioner.h"
#include "provisioner/record.h"
#include "provisioner/result.h"
#include "provisioner/save.h"
#include "provisioner/select.h"

#include <stdlib.h>

/* What a worker has in hand. */
struct work {
    struct provisioner *provisioner;
    const char *uid;
    struct kube_claim *claim; /* NULL = gone, or not ours any more */
    struct kube_class *class_;
    struct pending_claim pending;
    int64_t started;
};

static void count(const struct work *work, const struct kube_claim *claim, bool success)
{
    struct metrics *metrics = work->provisioner->telemetry.metrics;
    const char *labels[] = {claim->class_name, claim->data_source != NULL ? claim->data_source->kind : ""};
    if (!success) {
        metric_add(metrics, &telemetry_provision_failed, 1, labels);
        return;
    }
    double seconds = (double)(clock_mono(work->provisioner->clock) - work->started) / (double)CLOCK_SECOND;
    metric_add(metrics, &telemetry_provision_total, 1, labels);
    metric_observe(metrics, &telemetry_provision_duration, seconds, labels);
}

static void tell_user(const struct work *work, const struct kube_object *claim, bool infeasible, const struct err *err)
{
    struct provisioner *provisioner = work->provisioner;
    const char *prefix =
        infeasible ? "Volume provisioning failed with infeasible error. Retries will be delayed. " : "";
    auto_free char *first = provisioner->options->event_history
                                ? pending_first_error(provisioner->pending, work->uid, err_text(err))
                                : NULL;
    if (first != NULL)
        kube_event_object(provisioner->events, claim, KUBE_EVENT_WARNING, "ProvisioningFailed",
                          "%s%s (the first error was: %s)", prefix, err_text(err), first);
    else
        kube_event_object(provisioner->events, claim, KUBE_EVENT_WARNING, "ProvisioningFailed", "%s%s", prefix,
                          err_text(err));
}

/* The scheduler shall choose another node. 0 when the annotation is gone. */
static int clear_selected_node(const struct work *work, struct err *err)
{
    struct kube_client *client = work->provisioner->client;
    const struct kube_meta *meta = &work->claim->object.meta;
    json_t *json = NULL;
    if (kube_get_json(client, &kube_kind_claim, meta->namespace_, meta->name, &json, err) < 0)
        return -1;
    const char *uid = NULL, *version = NULL;
    json_unpack(json, "{s:{s:s, s:s}}", "metadata", "uid", &uid, "resourceVersion", &version);
    uint64_t live = 0;
    /* as the PUT of a cached copy would: whoever changed the claim since is asked first */
    if (!str_eq(uid, meta->uid) || version == NULL || !str_parse_u64(version, &live) ||
        live != meta->resource_version) {
        json_decref(json);
        return err_set(err, ERR_CONFLICT, "the claim was changed meanwhile");
    }
    json_object_del(json_object_get(json_object_get(json, "metadata"), "annotations"), KUBE_ANN_SELECTED_NODE);
    auto_unref struct kube_object *written = NULL;
    int result = kube_update(client, &kube_kind_claim, meta->namespace_, meta->name, NULL, json, &written, err);
    json_decref(json);
    if (result == 0 && written != NULL)
        kube_store_put_reply(work->provisioner->informers.stores[INFORMER_CLAIMS], written);
    return result;
}

static int finish(struct work *work, const struct attempt *attempt, const struct kube_claim *claim, struct err *err)
{
    struct provisioner *provisioner = work->provisioner;
    if (err->code == ERR_NONE) {
        count(work, claim, true);
        pending_forget_errors(provisioner->pending, work->uid);
        return 0;
    }
    count(work, claim, false);
    log_v(2, "Provisioning ended without a volume", kv_str("claim", claim->object.meta.name),
          kv_str("namespace", claim->object.meta.namespace_), kv_str("state", provision_state_name(attempt->state)),
          kv_err(err));
    if (attempt->state == PROVISION_IGNORED)
        return 0;
    log_error("Failed to provision a volume", kv_str("claim", claim->object.meta.name),
              kv_str("namespace", claim->object.meta.namespace_), kv_str("state", provision_state_name(attempt->state)),
              kv_err(err));
    tell_user(work, &claim->object, attempt->infeasible, err);
    if (attempt->infeasible && work->class_ != NULL)
        pending_delay(provisioner->pending, work->uid, work->class_->object.meta.uid,
                      provisioner->options->retry_interval_max);
    if (attempt->state != PROVISION_NO_CHANGE)
        capacity_volume_changed(provisioner->capacity, attempt->class_name);
    bool background = work->pending.kind == PENDING_BACKGROUND;
    struct result_step step = result_next(attempt->state, true, background, attempt->node_selected);
    if (attempt->claim_is_gone) /* a final word to every call ends the matter */
        return work->pending.kind != PENDING_NONE ? -1 : 0;
    if (!step.clear_selected_node)
        return step.retry ? -1 : 0;
    auto_err struct err cannot = {0};
    if (clear_selected_node(work, &cannot) == 0)
        return 0;
    log_warn("Could not give the claim back to the scheduler", kv_str("claim", claim->object.meta.name),
             kv_err(&cannot));
    return -1;
}

/* A foreign data source: somebody else makes the volume. */
static void tell_about_populator(const struct work *work, const struct attempt *attempt)
{
    const struct kube_claim *claim = work->claim;
    if (attempt->state != PROVISION_IGNORED || (claim->data_source == NULL && claim->data_source_ref == NULL))
        return;
    kube_event_object(work->provisioner->events, &claim->object, KUBE_EVENT_NORMAL, "Provisioning",
                      "Assuming an external populator will provision the volume");
}

static int provision(struct work *work)
{
    struct provisioner *provisioner = work->provisioner;
    auto_attempt struct attempt attempt = {0};
    auto_err struct err err = {0};
    auto_free char *key = kube_object_key(&work->claim->object);
    kube_event_object(provisioner->events, &work->claim->object, KUBE_EVENT_NORMAL, "Provisioning",
                      "External provisioner is provisioning volume for claim \"%s\"", key);
    attempt_claim(provisioner, work->claim, work->class_, &work->pending, &attempt, &err);
    tell_about_populator(work, &attempt);
    return finish(work, &attempt, work->claim, &err);
}

/* The claim went, or is no longer for us, but the driver may have made (or be making) a volume for it. */
static int repeat(struct work *work)
{
    auto_attempt struct attempt attempt = {0};
    auto_err struct err err = {0};
    auto_err struct err unreadable = {0};
    auto_record struct record record = {0};
    if (record_decode(work->pending.record, &record, &unreadable) < 0) {
        log_error("Cannot repeat a call", kv_str("claim", work->uid), kv_err(&unreadable));
        work->pending.kind = PENDING_NONE;
        return 0;
    }
    log_info("Asking the driver again about a volume whose claim is gone",
             kv_str("volume", record.request.volume_name));
    attempt_repeat(work->provisioner, &work->pending, work->claim == NULL, &attempt, &err);
    return finish(work, &attempt, record.claim, &err);
}

enum existence {
    EXISTS_NOT,
    EXISTS_UNSAVED, /* made, and its object will be written: until then the intent record is needed */
    EXISTS,
};

static enum existence volume_exists(struct provisioner *provisioner, const char *uid)
{
    auto_free char *name = request_volume_name(&provisioner->config, uid, NULL);
    if (name == NULL)
        return EXISTS_NOT;
    if (saver_has(provisioner->saver, name))
        return EXISTS_UNSAVED;
    auto_unref struct kube_volume *volume = informers_volume(provisioner, name);
    return volume != NULL ? EXISTS : EXISTS_NOT;
}

static int without_request(struct work *work, enum existence exists)
{
    if (exists != EXISTS_NOT) { /* no call is open any more */
        work->pending.kind = PENDING_NONE;
        if (exists == EXISTS)
            intent_done(work->provisioner, work->uid);
        return 0;
    }
    if (work->pending.kind == PENDING_BACKGROUND || (work->pending.kind == PENDING_DOUBTFUL && work->claim == NULL))
        return repeat(work);
    return 0;
}

/* A class of the in-tree plugin the driver stands in for. */
static int translate_class(struct work *work, struct err *err)
{
    struct kube_class *translated = migrate_class(&work->provisioner->config, work->class_, err);
    if (translated == NULL) {
        err_wrap(err, "failed to translate storage class");
        log_error("Cannot translate an in-tree class", kv_str("class", work->class_->object.meta.name), kv_err(err));
        return -1;
    }
    kube_object_unref(&work->class_->object);
    work->class_ = translated;
    return 0;
}

static int work_on_claim(struct work *work, enum existence exists)
{
    struct provisioner *provisioner = work->provisioner;
    auto_err struct err err = {0};
    switch (claim_select(&provisioner->config, &provisioner->lookup, work->claim, exists != EXISTS_NOT, &work->class_,
                         &err)) {
    case CLAIM_STOP:
        count(work, work->claim, false);
        return without_request(work, exists);
    case CLAIM_DROP:
        return without_request(work, exists);
    case CLAIM_CLASS_ERROR:
        if (work->pending.kind == PENDING_BACKGROUND)
            return repeat(work);
        count(work, work->claim, false);
        log_error("Cannot provision", kv_str("claim", work->claim->object.meta.name),
                  kv_str("namespace", work->claim->object.meta.namespace_), kv_err(&err));
        return -1;
    case CLAIM_PROVISION:
        break;
    }
    if (translate_class(work, &err) < 0) {
        if (work->pending.kind == PENDING_BACKGROUND)
            return repeat(work);
        count(work, work->claim, false);
        tell_user(work, &work->claim->object, false, &err);
        return -1;
    }
    if (pending_is_delayed(provisioner->pending, work->uid, work->class_->object.meta.uid)) {
        count(work, work->claim, false);
        log_v(3, "The claim's retry is delayed", kv_str("claim", work->claim->object.meta.name));
        return -1;
    }
    if (provisioner->race == NULL || work->pending.kind == PENDING_BACKGROUND)
        return provision(work);
    switch (node_race_run(provisioner, work->claim, work->class_, &err)) {
    case NODE_RACE_OWNER:
        return provision(work);
    case NODE_RACE_NOT_NOW:
        return 0;
    case NODE_RACE_FAILED:
        break;
    }
    log_error("Could not become the owner of a claim", kv_str("claim", work->claim->object.meta.name), kv_err(&err));
    return -1;
}

int claims_work(void *arg, const char *uid)
{
    struct provisioner *provisioner = arg;
    struct work work = {.provisioner = provisioner, .uid = uid, .started = clock_mono(provisioner->clock)};
    auto_unref struct kube_claim *claim = informers_claim_by_uid(provisioner, uid);
    /* what is kept for other reasons (a source of other claims) is not ours to provide for */
    work.claim = claim != NULL && claim_is_for_us(&provisioner->config, claim) ? claim : NULL;
    pending_take(provisioner->pending, uid, &work.pending);
    enum existence exists = volume_exists(provisioner, uid);
    int result = work.claim != NULL ? work_on_claim(&work, exists) : without_request(&work, exists);
    kube_object_unref(work.class_ != NULL ? &work.class_->object : NULL);
    if (work.pending.record == NULL)
        work.pending.kind = PENDING_NONE;
    if (work.claim == NULL && work.pending.kind == PENDING_NONE) {
        pending_forget_errors(provisioner->pending, uid);
        pending_forget_delay(provisioner->pending, uid);
    }
    pending_put(provisioner->pending, uid, &work.pending);
    provisioner_worked(provisioner);
    return result;
}
