/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/node.h"

#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "provisioner/request.h"
#include "provisioner/topology.h"

#include <stdlib.h>

struct node_race {
    struct provisioner *provisioner;
    pthread_mutex_t lock;
    struct map *lost; /* claim uid → how often (as a pointer's number) */
};

struct node_race *node_race_new(struct provisioner *provisioner)
{
    struct node_race *race = mem_new(struct node_race);
    race->provisioner = provisioner;
    pthread_mutex_init(&race->lock, NULL);
    race->lost = map_new(NULL);
    return race;
}

void node_race_free(struct node_race *race)
{
    if (race == NULL)
        return;
    map_free(race->lost);
    pthread_mutex_destroy(&race->lock);
    free(race);
}

static void forget(struct node_race *race, const char *uid)
{
    pthread_mutex_lock(&race->lock);
    map_remove(race->lost, uid);
    pthread_mutex_unlock(&race->lock);
}

/* base × 2^n up to the limit, less a random part of the base. */
static int64_t next_delay(struct node_race *race, const char *uid)
{
    const struct options *options = race->provisioner->options;
    pthread_mutex_lock(&race->lock);
    uintptr_t times = (uintptr_t)map_get(race->lost, uid);
    map_set(race->lost, uid, (void *)(times + 1)); /* NOLINT(performance-no-int-to-ptr) */
    pthread_mutex_unlock(&race->lock);
    int64_t delay = options->node_base_delay;
    while (times-- > 0 && delay < options->node_max_delay)
        delay = delay > INT64_MAX / 2 ? INT64_MAX : delay * 2;
    if (delay > options->node_max_delay)
        delay = options->node_max_delay;
    if (options->node_base_delay > 0)
        delay -= (int64_t)rng_below(race->provisioner->rng, (uint64_t)options->node_base_delay);
    return delay > 0 ? delay : 0;
}

static const char *selected_node(const struct kube_claim *claim)
{
    const char *node = kube_annotation(&claim->object, KUBE_ANN_SELECTED_NODE);
    return str_empty(node) ? NULL : node;
}

/* (a) The class's allowedTopologies, if any, have to include this node. */
static bool class_allows_node(struct provisioner *provisioner, const struct kube_claim *claim,
                              const struct kube_class *class_)
{
    if (class_->allowed_topology_count == 0)
        return true;
    struct provision_config config = provisioner->config;
    struct provision_request request = {
        .claim = claim, .class_ = class_, .selected_node = provisioner->config.node_name};
    enum provision_state state = PROVISION_NO_CHANGE;
    auto_err struct err err = {0};
    csi__v1__create_volume_request__init(&request.csi);
    config.strict_topology = true;
    bool allowed = topology_require(&config, &provisioner->lookup, NULL, &request, &state, &err) == 0;
    if (!allowed)
        log_v(3, "The class is not for this node", kv_str("claim", claim->object.meta.name), kv_err(&err));
    provision_request_clear(&request);
    return allowed;
}

/* (b) 1 = still free after the delay, 0 = somebody has it, -1 = it is gone. */
static int wait_turn(struct node_race *race, const struct kube_claim *claim, struct err *err)
{
    struct provisioner *provisioner = race->provisioner;
    const char *uid = claim->object.meta.uid;
    int64_t step = provisioner->options->node_base_delay / 100;
    if (step < 10 * CLOCK_MS)
        step = 10 * CLOCK_MS;
    int64_t until = clock_mono(provisioner->clock) + next_delay(race, uid);
    for (;;) {
        auto_unref struct kube_claim *now = informers_claim_by_uid(provisioner, uid);
        if (now == NULL)
            return err_set(err, ERR_NOT_FOUND, "claim %s/%s is gone, was replaced or got a volume",
                           claim->object.meta.namespace_, claim->object.meta.name);
        if (selected_node(now) != NULL)
            return 0;
        int64_t left = until - clock_mono(provisioner->clock);
        if (left <= 0)
            return 1;
        if (stop_sleep(provisioner->stop, provisioner->clock, left < step ? left : step))
            return err_set(err, ERR_CANCELLED, "the program stops");
    }
}

/* One segment's answer; an error lets the node go on, so that the user sees it from CreateVolume. */
static bool segment_has_room(struct provisioner *provisioner, const struct provision_request *request,
                             Csi__V1__Topology *segment)
{
    auto_csi_message Csi__V1__GetCapacityResponse *reply = NULL;
    auto_err struct err err = {0};
    auto_csi_arena struct csi_arena arena = {0};
    struct csi_call_options options = provisioner_call_options(provisioner);
    Csi__V1__GetCapacityRequest message = CSI__V1__GET_CAPACITY_REQUEST__INIT;
    message.n_volume_capabilities = request->csi.n_volume_capabilities;
    message.volume_capabilities = request->csi.volume_capabilities;
    CSI_MAP_ADD_ALL(&arena, &message, parameters, CSI_MAP(&request->csi, parameters));
    message.accessible_topology = segment;
    if (csi_get_capacity(provisioner->driver, &message, &reply, &options, &err) < 0) {
        log_warn("GetCapacity failed, going on without", kv_err(&err));
        return true;
    }
    return reply->available_capacity >= request->csi.capacity_range->required_bytes;
}

/* (c) Prepared as for the real call, with the same side effects. */
static bool node_has_room(struct provisioner *provisioner, const struct kube_claim *claim,
                          const struct kube_class *class_)
{
    struct provision_config config = provisioner->config;
    struct provision_request request;
    enum provision_state state = PROVISION_NO_CHANGE;
    auto_err struct err err = {0};
    config.node_deployment = false; /* the claim is nobody's yet */
    bool room = true;
    if (request_prepare(&config, &provisioner->lookup, claim, class_, &request, &state, &err) == 0) {
        request.selected_node = config.node_name;
        if (request_complete(&config, &provisioner->lookup, NULL, &request, &state, &err) == 0) {
            const Csi__V1__TopologyRequirement *topology = request.csi.accessibility_requirements;
            room = topology == NULL && segment_has_room(provisioner, &request, NULL);
            for (size_t i = 0; topology != NULL && i < topology->n_requisite && !room; i++)
                room = segment_has_room(provisioner, &request, topology->requisite[i]);
        }
    }
    if (err.code != ERR_NONE)
        log_v(2, "Could not ask for this node's capacity, going on without", kv_err(&err));
    provision_request_clear(&request);
    return room;
}

/* (d) */
static int take_claim(struct provisioner *provisioner, const struct kube_claim *claim, struct err *err)
{
    const struct kube_meta *meta = &claim->object.meta;
    json_t *json = NULL;
    auto_unref struct kube_object *written = NULL;
    if (kube_get_json(provisioner->client, &kube_kind_claim, meta->namespace_, meta->name, &json, err) < 0)
        return -1;
    json_t *metadata = json_object_get(json, "metadata");
    json_t *annotations = json_object_get(metadata, "annotations");
    const char *uid = json_string_value(json_object_get(metadata, "uid"));
    if (!str_eq(uid, meta->uid) || !json_is_object(annotations) ||
        json_object_get(annotations, KUBE_ANN_SELECTED_NODE) != NULL) {
        json_decref(json);
        return err_set(err, ERR_CONFLICT, "another node was faster");
    }
    json_object_set_new(annotations, KUBE_ANN_SELECTED_NODE, json_string(provisioner->config.node_name));
    int result =
        kube_update(provisioner->client, &kube_kind_claim, meta->namespace_, meta->name, NULL, json, &written, err);
    json_decref(json);
    if (result == 0 && written != NULL)
        kube_store_put_reply(provisioner->informers.stores[INFORMER_CLAIMS], written);
    return result;
}

static bool may_race(const struct provisioner *provisioner, const struct kube_class *class_)
{
    return provisioner->config.node_immediate_binding && str_eq(class_->binding_mode, "Immediate");
}

enum node_race_result node_race_run(struct provisioner *provisioner, const struct kube_claim *claim,
                                    const struct kube_class *class_, struct err *err)
{
    struct node_race *race = provisioner->race;
    const char *uid = claim->object.meta.uid, *node = selected_node(claim);
    if (node != NULL)
        return str_eq(node, provisioner->config.node_name) ? NODE_RACE_OWNER : NODE_RACE_NOT_NOW;
    if (!may_race(provisioner, class_) || !class_allows_node(provisioner, claim, class_))
        return NODE_RACE_NOT_NOW;
    for (;;) {
        int turn = wait_turn(race, claim, err);
        if (turn < 0)
            return NODE_RACE_FAILED;
        if (turn == 0) {
            forget(race, uid);
            return NODE_RACE_NOT_NOW;
        }
        if (!node_has_room(provisioner, claim, class_)) {
            kube_event_object(provisioner->events, &claim->object, KUBE_EVENT_WARNING, "ProvisioningFailed",
                              "node %s has not enough capacity for the claim", provisioner->config.node_name);
            return NODE_RACE_NOT_NOW;
        }
        if (take_claim(provisioner, claim, err) == 0) {
            forget(race, uid);
            return NODE_RACE_NOT_NOW; /* the update's event starts the work */
        }
        if (!err_is(err, ERR_CONFLICT))
            return NODE_RACE_FAILED;
        err_clear(err);
    }
}
