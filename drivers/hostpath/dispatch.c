/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/dispatch.h"

#include "drivers/hostpath/driver.h"
#include "lib/base/mem.h"

static const struct csi_handlers *const tables[] = {
    &hostpath_identity_handlers, &hostpath_create_handlers,   &hostpath_controller_handlers, &hostpath_attach_handlers,
    &hostpath_expand_handlers,   &hostpath_snapshot_handlers, &hostpath_group_handlers,      &hostpath_stage_handlers,
    &hostpath_publish_handlers,  &hostpath_node_handlers,
};

int dispatch_settle(struct err *err)
{
    switch (err->code) {
    case ERR_RPC:
        return -1;
    case ERR_UNAVAILABLE: /* the holder does not answer, a device is still in use: later it may work */
    case ERR_CANCELLED:   /* by the end of the driver */
        err->status = CSI_UNAVAILABLE;
        break;
    case ERR_CONFLICT:
        err->status = CSI_ABORTED;
        break;
    case ERR_TIMEOUT:
        err->status = CSI_DEADLINE_EXCEEDED;
        break;
    default:
        err->status = CSI_INTERNAL;
        break;
    }
    err->code = ERR_RPC;
    return -1;
}

/* One function and one line of the table for each RPC that a file above handles. */
#define DISPATCH(name, service, rpc, Request, request_, Reply, reply_, light)                                          \
    static int dispatch_##name(void *driver, const Request *request, Reply *reply, struct csi_call *call,              \
                               struct err *err)                                                                        \
    {                                                                                                                  \
        for (size_t i = 0; i < ARRAY_LEN(tables); i++)                                                                 \
            if (tables[i]->name != NULL)                                                                               \
                return tables[i]->name(driver, request, reply, call, err) < 0 ? dispatch_settle(err) : 0;              \
        return csi_fail(err, CSI_UNIMPLEMENTED, "not offered by this driver");                                         \
    }
CSI_METHODS(DISPATCH)

struct csi_handlers dispatch_handlers(void)
{
    struct csi_handlers handlers = {0};
#define ENTER(method, service, rpc, Request, request_, Reply, reply_, light)                                           \
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)                                                                     \
        if (tables[i]->method != NULL)                                                                                 \
            handlers.method = dispatch_##method;
    CSI_METHODS(ENTER)
    return handlers;
}
