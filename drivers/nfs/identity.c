/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/driver.h"

#include "lib/base/flag.h"
#include "lib/base/mem.h"

static int get_plugin_info(void *arg, const Csi__V1__GetPluginInfoRequest *request,
                           Csi__V1__GetPluginInfoResponse *reply, struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    (void)request, (void)err;
    reply->name = csi_arena_strdup(arena, driver->options.name);
    reply->vendor_version = csi_arena_strdup(arena, berth_version());
    CSI_MAP_ADD(arena, reply, manifest, "berth.recycle", "true");
    return 0;
}

static int get_plugin_capabilities(void *arg, const Csi__V1__GetPluginCapabilitiesRequest *request,
                                   Csi__V1__GetPluginCapabilitiesResponse *reply, struct csi_call *call,
                                   struct err *err)
{
    struct csi_arena *arena = csi_call_arena(call);
    (void)arg, (void)request, (void)err;
    CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), service)->type =
        CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE;
    CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), volume_expansion)->type =
        CSI__V1__PLUGIN_CAPABILITY__VOLUME_EXPANSION__TYPE__ONLINE;
    return 0;
}

/* A server that is down is no reason to restart the driver: its answer is about itself. */
static int probe(void *arg, const Csi__V1__ProbeRequest *request, Csi__V1__ProbeResponse *reply, struct csi_call *call,
                 struct err *err)
{
    (void)arg, (void)request, (void)err;
    CSI_NEW(csi_call_arena(call), reply, ready)->value = true;
    return 0;
}

const struct csi_handlers nfs_identity_handlers = {
    .get_plugin_info = get_plugin_info,
    .get_plugin_capabilities = get_plugin_capabilities,
    .probe = probe,
};
