/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/driver.h"

#include "lib/base/flag.h"
#include "lib/base/mem.h"

#include <unistd.h>

static int get_plugin_info(void *arg, const Csi__V1__GetPluginInfoRequest *request,
                           Csi__V1__GetPluginInfoResponse *reply, struct csi_call *call, struct err *err)
{
    struct hostpath *driver = arg;
    (void)request, (void)err;
    reply->name = csi_arena_strdup(csi_call_arena(call), driver->options.name);
    reply->vendor_version = csi_arena_strdup(csi_call_arena(call), berth_version());
    return 0;
}

static void add_service(struct csi_arena *arena, Csi__V1__GetPluginCapabilitiesResponse *reply,
                        Csi__V1__PluginCapability__Service__Type type)
{
    Csi__V1__PluginCapability *capability = CSI_ADD(arena, reply, capabilities);
    CSI_NEW(arena, capability, service)->type = type;
}

static int get_plugin_capabilities(void *arg, const Csi__V1__GetPluginCapabilitiesRequest *request,
                                   Csi__V1__GetPluginCapabilitiesResponse *reply, struct csi_call *call,
                                   struct err *err)
{
    struct hostpath *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    (void)request, (void)err;
    add_service(arena, reply, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE);
    if (driver->options.topology)
        add_service(arena, reply, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS);
    add_service(arena, reply, CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__GROUP_CONTROLLER_SERVICE);
    if (driver->options.controller_expansion || driver->options.node_expansion)
        CSI_NEW(arena, CSI_ADD(arena, reply, capabilities), volume_expansion)->type =
            CSI__V1__PLUGIN_CAPABILITY__VOLUME_EXPANSION__TYPE__ONLINE;
    return 0;
}

static int probe(void *arg, const Csi__V1__ProbeRequest *request, Csi__V1__ProbeResponse *reply, struct csi_call *call,
                 struct err *err)
{
    const struct hostpath *driver = arg;
    (void)request;
    if (faccessat(state_directory_fd(driver->state), "records", W_OK, 0) != 0)
        return csi_fail(err, CSI_FAILED_PRECONDITION, "the state directory cannot be written to");
    CSI_NEW(csi_call_arena(call), reply, ready)->value = true;
    return 0;
}

const struct csi_handlers hostpath_identity_handlers = {
    .get_plugin_info = get_plugin_info,
    .get_plugin_capabilities = get_plugin_capabilities,
    .probe = probe,
};
