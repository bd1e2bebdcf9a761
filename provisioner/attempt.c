/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/attempt.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/intent.h"
#include "provisioner/migrate.h"
#include "provisioner/protect.h"
#include "provisioner/record.h"
#include "provisioner/result.h"
#include "provisioner/save.h"
#include "provisioner/volume.h"

#include <stdlib.h>

void attempt_clear(struct attempt *attempt)
{
    free(attempt->class_name);
    *attempt = (struct attempt){0};
}

/* After a final word that allows no doubt, nothing has to survive a crash. The others are those with which drivers also
 * report their own failures, so that a volume may exist nevertheless. */
static bool code_is_certain(int code)
{
    static const bool doubtful[17] = {
        [CSI_UNKNOWN] = true, [CSI_FAILED_PRECONDITION] = true, [CSI_INTERNAL] = true, [CSI_DATA_LOSS] = true};
    return code >= 0 && code < (int)ARRAY_LEN(doubtful) && !doubtful[code];
}

/* What has to be remembered although the driver refused this request for good. That is no word about an earlier call
 * with another request that got no answer. */
static void final_word(struct provisioner *provisioner, const struct provision_request *request,
                       struct pending_claim *pending, const struct attempt *attempt, int code)
{
    bool recheck = provisioner->options->recheck_deleted_claims;
    auto_free char *earlier = recheck ? record_earlier(pending->record, false, request) : NULL;
    /* a claim that goes to another node becomes a volume there, whose handle may be the same as one made here later */
    bool given_away = provisioner->config.node_deployment && attempt->state == PROVISION_RESCHEDULE;
    bool ask_again = recheck && ((!attempt->claim_is_gone && !given_away) || earlier != NULL);
    pending->kind = ask_again ? PENDING_DOUBTFUL : PENDING_NONE;
    if (!ask_again || (code_is_certain(code) && earlier == NULL))
        intent_done(provisioner, request->claim->object.meta.uid);
    if (attempt->claim_is_gone && earlier != NULL) {
        free(pending->record);
        pending->record = mem_take(earlier);
    }
}

static void failed(struct provisioner *provisioner, const struct provision_request *request,
                   struct pending_claim *pending, struct attempt *attempt, const struct err *err)
{
    const struct provision_config *config = &provisioner->config;
    int code = err_is(err, ERR_RPC) ? err->status : -1;
    struct result_overrides overrides = {.background = provisioner->settings->background};
    bool topology = config->gate_topology && config->capabilities.accessibility_constraints;
    attempt->state = result_of_code(code, topology, request->selected_node != NULL, &overrides);
    attempt->infeasible = attempt->state == PROVISION_FINISHED && result_is_infeasible(code);
    if (attempt->state == PROVISION_IN_BACKGROUND) {
        pending->kind = PENDING_BACKGROUND;
        return;
    }
    if (pending->kind == PENDING_BACKGROUND)
        log_info("CreateVolume failed for good after a call without an answer", kv_str("volume", request->volume_name),
                 kv_err(err));
    final_word(provisioner, request, pending, attempt, code);
    topology_memory_free(mem_take(pending->memory)); /* last: the request refers to it */
}

static void save(struct provisioner *provisioner, const struct provision_request *request, json_t *volume,
                 const char *handle, struct pending_claim *pending, struct attempt *attempt, struct err *err)
{
    attempt->state = PROVISION_FINISHED;
    enum save_result result = save_volume(provisioner, request, volume, handle, pending->record, err);
    if (result == SAVE_REJECTED)
        intent_done(provisioner, request->claim->object.meta.uid);
    else
        protect_source_done(provisioner, request);
    pending->kind = PENDING_NONE;
}

/* The claim's record is written, so from here on a crash is no loss. */
static int call(struct provisioner *provisioner, struct provision_request *request, struct pending_claim *pending,
                struct attempt *attempt, struct err *err)
{
    auto_csi_message Csi__V1__CreateVolumeResponse *reply = NULL;
    struct csi_call_options options = provisioner_call_options(provisioner);
    options.tag = migrate_is_needed(&provisioner->config, request->class_) ? TELEMETRY_MIGRATED : 0;
    enum volume_verdict verdict = VOLUME_ACCEPTED;
    json_t *volume = NULL;
    attempt->called = true;
    if (csi_create_volume(provisioner->driver, &request->csi, &reply, &options, err) < 0) {
        failed(provisioner, request, pending, attempt, err);
        return -1;
    }
    if (volume_build(&provisioner->config, request, reply, &volume, &verdict, err) < 0) {
        attempt->state = PROVISION_IN_BACKGROUND;
        pending->kind = PENDING_BACKGROUND;
        bool deleted = reply->volume != NULL && cleanup_volume(provisioner, request, reply->volume->volume_id) == 0;
        if (deleted && attempt->claim_is_gone) { /* nobody waits for another one */
            pending->kind = PENDING_NONE;
            intent_done(provisioner, request->claim->object.meta.uid);
        }
        return -1;
    }
    save(provisioner, request, volume, reply->volume->volume_id, pending, attempt, err);
    return err->code == ERR_NONE ? 0 : -1;
}

static int send_request(struct provisioner *provisioner, struct provision_request *request,
                        struct pending_claim *pending, struct attempt *attempt, struct err *err)
{
    attempt->state = PROVISION_NO_CHANGE;
    attempt->node_selected = request->selected_node != NULL;
    free(attempt->class_name);
    attempt->class_name = mem_strdup(request->class_->object.meta.name);
    if (provisioner->leader != NULL && !kube_leader_valid(provisioner->leader))
        return err_set(err, ERR_CANCELLED, "it is not certain that this process still leads");
    auto_free char *earlier = record_earlier(pending->record, pending->kind == PENDING_BACKGROUND, request);
    auto_free char *record = record_encode(&provisioner->config, request, earlier);
    if (intent_write(provisioner, request->claim, record, err) < 0)
        return -1;
    free(pending->record);
    pending->record = mem_take(record);
    return call(provisioner, request, pending, attempt, err);
}

int attempt_repeat(struct provisioner *provisioner, struct pending_claim *pending, bool claim_is_gone,
                   struct attempt *attempt, struct err *err)
{
    auto_record struct record record = {0};
    attempt->claim_is_gone = claim_is_gone;
    if (record_decode(pending->record, &record, err) < 0) {
        attempt->state = PROVISION_FINISHED; /* cannot be: we wrote it */
        pending->kind = PENDING_NONE;
        return -1;
    }
    /* after a final error nobody counts on a volume any more: one that is there, or is made now, is not kept, whatever
     * the class says */
    record.request.unwanted = claim_is_gone && (record.request.unwanted || pending->kind == PENDING_DOUBTFUL);
    attempt->state = PROVISION_NO_CHANGE;
    if (request_fetch_secret(&provisioner->lookup, &record.request, err) < 0)
        return -1;
    return send_request(provisioner, &record.request, pending, attempt, err);
}

static int build(struct provisioner *provisioner, const struct kube_claim *claim, const struct kube_class *class_,
                 struct pending_claim *pending, struct provision_request *request, struct attempt *attempt,
                 struct err *err)
{
    const struct provision_config *config = &provisioner->config;
    const struct provision_lookup *lookup = &provisioner->lookup;
    if (request_prepare(config, lookup, claim, class_, request, &attempt->state, err) < 0)
        return -1;
    attempt->state = PROVISION_NO_CHANGE;
    if (protect_source(provisioner, request, err) < 0)
        return -1;
    if (pending->memory == NULL)
        pending->memory = topology_memory_new();
    return request_complete(config, lookup, pending->memory, request, &attempt->state, err);
}

int attempt_claim(struct provisioner *provisioner, const struct kube_claim *claim, const struct kube_class *class_,
                  struct pending_claim *pending, struct attempt *attempt, struct err *err)
{
    struct provision_request request;
    attempt->class_name = mem_strdup(class_->object.meta.name);
    int result = build(provisioner, claim, class_, pending, &request, attempt, err);
    if (result == 0)
        result = send_request(provisioner, &request, pending, attempt, err);
    else
        attempt->node_selected = request.selected_node != NULL;
    provision_request_clear(&request);
    if (result < 0 && !attempt->called && pending->kind == PENDING_BACKGROUND) {
        log_info("Repeating the earlier call, since no new request can be made",
                 kv_str("claim", claim->object.meta.name), kv_str("namespace", claim->object.meta.namespace_),
                 kv_err(err));
        err_clear(err);
        return attempt_repeat(provisioner, pending, false, attempt, err);
    }
    return result;
}
