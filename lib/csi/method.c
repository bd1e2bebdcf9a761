/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/csi/method.h"

#include "lib/base/mem.h"
#include "lib/csi/server.h"

#include <string.h>

#define METHOD_DEFINE(c_name, service_name, rpc, Request, request_, Reply, reply_, is_light)                           \
    const struct csi_method csi_method_##c_name = {                                                                    \
        .path = "/" service_name "/" rpc,                                                                              \
        .service = service_name,                                                                                       \
        .name = rpc,                                                                                                   \
        .request = &request_##__descriptor,                                                                            \
        .reply = &reply_##__descriptor,                                                                                \
        .handler_offset = offsetof(struct csi_handlers, c_name),                                                       \
        .light = is_light,                                                                                             \
    };
CSI_METHODS(METHOD_DEFINE)

#define METHOD_ADDRESS(c_name, service, rpc, Request, request_, Reply, reply_, light) &csi_method_##c_name,
const struct csi_method *const csi_methods[] = {CSI_METHODS(METHOD_ADDRESS) NULL};

const struct csi_method *csi_method_find(const char *path)
{
    for (size_t i = 0; csi_methods[i] != NULL; i++)
        if (strcmp(csi_methods[i]->path, path) == 0)
            return csi_methods[i];
    return NULL;
}

const char *csi_code_name(int code)
{
    static const char *const names[] = {
        [CSI_OK] = "OK",
        [CSI_CANCELED] = "Canceled",
        [CSI_UNKNOWN] = "Unknown",
        [CSI_INVALID_ARGUMENT] = "InvalidArgument",
        [CSI_DEADLINE_EXCEEDED] = "DeadlineExceeded",
        [CSI_NOT_FOUND] = "NotFound",
        [CSI_ALREADY_EXISTS] = "AlreadyExists",
        [CSI_PERMISSION_DENIED] = "PermissionDenied",
        [CSI_RESOURCE_EXHAUSTED] = "ResourceExhausted",
        [CSI_FAILED_PRECONDITION] = "FailedPrecondition",
        [CSI_ABORTED] = "Aborted",
        [CSI_OUT_OF_RANGE] = "OutOfRange",
        [CSI_UNIMPLEMENTED] = "Unimplemented",
        [CSI_INTERNAL] = "Internal",
        [CSI_UNAVAILABLE] = "Unavailable",
        [CSI_DATA_LOSS] = "DataLoss",
        [CSI_UNAUTHENTICATED] = "Unauthenticated",
    };
    return code >= 0 && (size_t)code < ARRAY_LEN(names) ? names[code] : names[CSI_UNKNOWN];
}

int csi_code_of(const struct err *err)
{
    static const int codes[] = {
        [ERR_NONE] = CSI_OK,
        [ERR_INTERNAL] = CSI_INTERNAL,
        [ERR_INVALID] = CSI_INVALID_ARGUMENT,
        [ERR_NOT_FOUND] = CSI_NOT_FOUND,
        [ERR_EXISTS] = CSI_ALREADY_EXISTS,
        [ERR_CONFLICT] = CSI_ABORTED,
        [ERR_GONE] = CSI_ABORTED,
        [ERR_UNPROCESSABLE] = CSI_INVALID_ARGUMENT,
        [ERR_FORBIDDEN] = CSI_PERMISSION_DENIED,
        [ERR_UNAUTHORIZED] = CSI_UNAUTHENTICATED,
        [ERR_THROTTLED] = CSI_RESOURCE_EXHAUSTED,
        [ERR_UNAVAILABLE] = CSI_UNAVAILABLE,
        [ERR_TIMEOUT] = CSI_DEADLINE_EXCEEDED,
        [ERR_UNKNOWN_OUTCOME] = CSI_INTERNAL,
        [ERR_CANCELLED] = CSI_CANCELED,
        [ERR_IO] = CSI_INTERNAL,
        [ERR_RPC] = CSI_UNKNOWN,
    };
    if (err == NULL)
        return CSI_INTERNAL;
    /* a status of 0 beside an error would turn a failure into a success on the wire */
    if (err->code == ERR_RPC && err->status > CSI_OK && err->status <= CSI_UNAUTHENTICATED)
        return err->status;
    return (size_t)err->code < ARRAY_LEN(codes) ? codes[err->code] : CSI_INTERNAL;
}
