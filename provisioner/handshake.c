/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/handshake.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <stdlib.h>

#define CONNECT_TIMEOUT (30 * CLOCK_SECOND)
#define PROBE_INTERVAL CLOCK_SECOND

int handshake_probe(struct csi_client *driver, int64_t timeout, struct stop *stop, struct err *err)
{
    for (;;) {
        auto_csi_message Csi__V1__ProbeResponse *reply = NULL;
        Csi__V1__ProbeRequest request = CSI__V1__PROBE_REQUEST__INIT;
        struct csi_call_options options = {.timeout_ns = timeout, .cancel = stop};
        err_clear(err);
        if (csi_probe(driver, &request, &reply, &options, err) == 0) {
            if (reply->ready == NULL || reply->ready->value)
                return 0;
            log_info("The CSI driver is not ready");
        } else if (err->status != CSI_DEADLINE_EXCEEDED) {
            return err_wrap(err, "CSI driver probe failed");
        }
        if (stop_sleep(stop, clock_real(), PROBE_INTERVAL))
            return err_set(err, ERR_CANCELLED, "stopped while the CSI driver was not ready");
    }
}

static int ask_info(struct csi_client *driver, const struct csi_call_options *options, struct handshake *handshake,
                    struct err *err)
{
    auto_csi_message Csi__V1__GetPluginInfoResponse *reply = NULL;
    Csi__V1__GetPluginInfoRequest request = CSI__V1__GET_PLUGIN_INFO_REQUEST__INIT;
    if (csi_get_plugin_info(driver, &request, &reply, options, err) < 0)
        return err_wrap(err, "error getting CSI driver name");
    if (str_empty(reply->name))
        return err_set(err, ERR_INVALID, "the CSI driver's name is empty");
    handshake->driver_name = mem_strdup(reply->name);
    handshake->capabilities.recycle = str_eq(csi_map_get(CSI_MAP(reply, manifest), "berth.recycle"), "true");
    return 0;
}

static int ask_plugin(struct csi_client *driver, const struct csi_call_options *options,
                      struct driver_capabilities *capabilities, struct err *err)
{
    auto_csi_message Csi__V1__GetPluginCapabilitiesResponse *reply = NULL;
    Csi__V1__GetPluginCapabilitiesRequest request = CSI__V1__GET_PLUGIN_CAPABILITIES_REQUEST__INIT;
    if (csi_get_plugin_capabilities(driver, &request, &reply, options, err) < 0)
        return err_wrap(err, "error getting CSI driver capabilities");
    for (size_t i = 0; i < reply->n_capabilities; i++) {
        const Csi__V1__PluginCapability *capability = reply->capabilities[i];
        if (capability->type_case != CSI__V1__PLUGIN_CAPABILITY__TYPE_SERVICE || capability->service == NULL)
            continue;
        capabilities->controller_service |=
            capability->service->type == CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE;
        capabilities->accessibility_constraints |=
            capability->service->type == CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS;
    }
    return 0;
}

#define RPC_TYPE(name) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##name

static int ask_controller(struct csi_client *driver, const struct csi_call_options *options,
                          struct driver_capabilities *capabilities, struct err *err)
{
    const struct {
        int type;
        bool *flag;
    } table[] = {
        {RPC_TYPE(CREATE_DELETE_VOLUME), &capabilities->create_delete_volume},
        {RPC_TYPE(CREATE_DELETE_SNAPSHOT), &capabilities->create_delete_snapshot},
        {RPC_TYPE(CLONE_VOLUME), &capabilities->clone_volume},
        {RPC_TYPE(PUBLISH_UNPUBLISH_VOLUME), &capabilities->publish_unpublish_volume},
        {RPC_TYPE(SINGLE_NODE_MULTI_WRITER), &capabilities->single_node_multi_writer},
        {RPC_TYPE(MODIFY_VOLUME), &capabilities->modify_volume},
        {RPC_TYPE(GET_CAPACITY), &capabilities->get_capacity},
    };
    auto_csi_message Csi__V1__ControllerGetCapabilitiesResponse *reply = NULL;
    Csi__V1__ControllerGetCapabilitiesRequest request = CSI__V1__CONTROLLER_GET_CAPABILITIES_REQUEST__INIT;
    if (csi_controller_get_capabilities(driver, &request, &reply, options, err) < 0)
        return err_wrap(err, "error getting CSI driver controller capabilities");
    for (size_t i = 0; i < reply->n_capabilities; i++) {
        const Csi__V1__ControllerServiceCapability *capability = reply->capabilities[i];
        if (capability->type_case != CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC || capability->rpc == NULL)
            continue;
        for (size_t t = 0; t < ARRAY_LEN(table); t++)
            *table[t].flag |= (int)capability->rpc->type == table[t].type;
    }
    return 0;
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const struct kube_pair *)a)->key, ((const struct kube_pair *)b)->key);
}

static int ask_node(struct csi_client *driver, const struct csi_call_options *options, struct handshake *handshake,
                    struct err *err)
{
    auto_csi_message Csi__V1__NodeGetInfoResponse *reply = NULL;
    Csi__V1__NodeGetInfoRequest request = CSI__V1__NODE_GET_INFO_REQUEST__INIT;
    if (csi_node_get_info(driver, &request, &reply, options, err) < 0)
        return err_wrap(err, "failed to get node info from CSI driver");
    if (reply->accessible_topology == NULL)
        return 0;
    struct csi_map segments = CSI_MAP(reply->accessible_topology, segments);
    const char *key, *value;
    handshake->node_topology = mem_calloc(segments.len + 1, sizeof(*handshake->node_topology));
    for (size_t i = 0; i < segments.len; i++)
        if (csi_map_at(segments, i, &key, &value))
            handshake->node_topology[handshake->node_topology_len++] =
                (struct kube_pair){.key = mem_strdup(key), .value = mem_strdup(value)};
    qsort(handshake->node_topology, handshake->node_topology_len, sizeof(*handshake->node_topology), compare_pairs);
    return 0;
}

int handshake_ask(struct csi_client *driver, int64_t timeout, bool node_info, struct stop *stop,
                  struct handshake *handshake, struct err *err)
{
    const struct csi_call_options options = {.timeout_ns = timeout, .cancel = stop};
    *handshake = (struct handshake){0};
    if (ask_info(driver, &options, handshake, err) < 0 ||
        ask_plugin(driver, &options, &handshake->capabilities, err) < 0 ||
        ask_controller(driver, &options, &handshake->capabilities, err) < 0 ||
        (node_info && ask_node(driver, &options, handshake, err) < 0)) {
        handshake_clear(handshake);
        return -1;
    }
    return 0;
}

int handshake_run(struct csi_client *driver, int64_t timeout, bool node_info, struct stop *stop,
                  struct handshake *handshake, struct err *err)
{
    if (csi_client_wait(driver, CONNECT_TIMEOUT, stop, err) < 0)
        return err_wrap(err, "connect to the CSI driver");
    if (handshake_probe(driver, timeout, stop, err) < 0)
        return -1;
    return handshake_ask(driver, timeout, node_info, stop, handshake, err);
}

bool handshake_equal(const struct handshake *a, const struct handshake *b)
{
    struct kube_pairs left = {.items = a->node_topology, .len = a->node_topology_len};
    struct kube_pairs right = {.items = b->node_topology, .len = b->node_topology_len};
    const struct driver_capabilities *x = &a->capabilities, *y = &b->capabilities;
    return str_eq(a->driver_name, b->driver_name) && x->controller_service == y->controller_service &&
           x->accessibility_constraints == y->accessibility_constraints &&
           x->create_delete_volume == y->create_delete_volume &&
           x->create_delete_snapshot == y->create_delete_snapshot && x->clone_volume == y->clone_volume &&
           x->publish_unpublish_volume == y->publish_unpublish_volume &&
           x->single_node_multi_writer == y->single_node_multi_writer && x->modify_volume == y->modify_volume &&
           x->get_capacity == y->get_capacity && x->recycle == y->recycle && kube_pairs_equal(&left, &right);
}

void handshake_clear(struct handshake *handshake)
{
    for (uint32_t i = 0; i < handshake->node_topology_len; i++) {
        free((char *)handshake->node_topology[i].key);
        free((char *)handshake->node_topology[i].value);
    }
    free(handshake->node_topology);
    free(handshake->driver_name);
    *handshake = (struct handshake){0};
}
