/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RPCs this project speaks (one table, from which the client's typed calls and the server's handler struct are
 * made), and the gRPC status codes.
 */
#ifndef BERTH_CSI_METHOD_H
#define BERTH_CSI_METHOD_H

#include "lib/base/err.h"
#include "lib/csi/csi.pb-c.h"
#include "lib/csi/recycler.pb-c.h"
#include "lib/csi/registration.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

enum csi_code {
    CSI_OK = 0,
    CSI_CANCELED = 1,
    CSI_UNKNOWN = 2,
    CSI_INVALID_ARGUMENT = 3,
    CSI_DEADLINE_EXCEEDED = 4,
    CSI_NOT_FOUND = 5,
    CSI_ALREADY_EXISTS = 6,
    CSI_PERMISSION_DENIED = 7,
    CSI_RESOURCE_EXHAUSTED = 8,
    CSI_FAILED_PRECONDITION = 9,
    CSI_ABORTED = 10,
    CSI_OUT_OF_RANGE = 11,
    CSI_UNIMPLEMENTED = 12,
    CSI_INTERNAL = 13,
    CSI_UNAVAILABLE = 14,
    CSI_DATA_LOSS = 15,
    CSI_UNAUTHENTICATED = 16,
};
/* "OK", "DeadlineExceeded" …, spelled as Go programs print them (metrics label grpc_status_code, error texts);
 * "Code(N)" is not invented: a number outside 0…16 gives "Unknown". */
const char *csi_code_name(int code);
/* The gRPC code a server answers for an error: ERR_RPC gives err->status, ERR_INVALID 3, ERR_NOT_FOUND 5, ERR_EXISTS 6,
 * ERR_CONFLICT 10 …, everything else 13; no error gives 0. */
int csi_code_of(const struct err *err);
/* `return csi_fail(err, CSI_ABORTED, "volume %s is busy", id);`: an error with that gRPC code; gives -1. */
#define csi_fail(err, code, ...) err_set_status((err), ERR_RPC, (code), __VA_ARGS__)

struct csi_method {
    const char *path;    /* "/csi.v1.Controller/CreateVolume" */
    const char *service; /* "csi.v1.Controller" */
    const char *name;    /* "CreateVolume" */
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *reply;
    size_t handler_offset; /* of the function pointer in struct csi_handlers */
    bool light;            /* answers from memory: served even when all workers are busy */
};

/* X(name in C, package.Service, Rpc, C type and C prefix of the request, C type and C prefix of the reply, light) */
#define CSI_METHOD_(X, service, name, Rpc, light)                                                                      \
    X(name, "csi.v1." #service, #Rpc, Csi__V1__##Rpc##Request, csi__v1__##name##_request, Csi__V1__##Rpc##Response,    \
      csi__v1__##name##_response, light)
#define CSI_METHODS(X)                                                                                                 \
    CSI_METHOD_(X, Identity, get_plugin_info, GetPluginInfo, true)                                                     \
    CSI_METHOD_(X, Identity, get_plugin_capabilities, GetPluginCapabilities, true)                                     \
    CSI_METHOD_(X, Identity, probe, Probe, true)                                                                       \
    CSI_METHOD_(X, Controller, create_volume, CreateVolume, false)                                                     \
    CSI_METHOD_(X, Controller, delete_volume, DeleteVolume, false)                                                     \
    CSI_METHOD_(X, Controller, controller_publish_volume, ControllerPublishVolume, false)                              \
    CSI_METHOD_(X, Controller, controller_unpublish_volume, ControllerUnpublishVolume, false)                          \
    CSI_METHOD_(X, Controller, validate_volume_capabilities, ValidateVolumeCapabilities, false)                        \
    CSI_METHOD_(X, Controller, list_volumes, ListVolumes, false)                                                       \
    CSI_METHOD_(X, Controller, get_capacity, GetCapacity, false)                                                       \
    CSI_METHOD_(X, Controller, controller_get_capabilities, ControllerGetCapabilities, true)                           \
    CSI_METHOD_(X, Controller, create_snapshot, CreateSnapshot, false)                                                 \
    CSI_METHOD_(X, Controller, delete_snapshot, DeleteSnapshot, false)                                                 \
    CSI_METHOD_(X, Controller, list_snapshots, ListSnapshots, false)                                                   \
    CSI_METHOD_(X, Controller, get_snapshot, GetSnapshot, false)                                                       \
    CSI_METHOD_(X, Controller, controller_expand_volume, ControllerExpandVolume, false)                                \
    CSI_METHOD_(X, Controller, controller_get_volume, ControllerGetVolume, false)                                      \
    CSI_METHOD_(X, Controller, controller_modify_volume, ControllerModifyVolume, false)                                \
    CSI_METHOD_(X, GroupController, group_controller_get_capabilities, GroupControllerGetCapabilities, true)           \
    CSI_METHOD_(X, GroupController, create_volume_group_snapshot, CreateVolumeGroupSnapshot, false)                    \
    CSI_METHOD_(X, GroupController, delete_volume_group_snapshot, DeleteVolumeGroupSnapshot, false)                    \
    CSI_METHOD_(X, GroupController, get_volume_group_snapshot, GetVolumeGroupSnapshot, false)                          \
    CSI_METHOD_(X, Node, node_stage_volume, NodeStageVolume, false)                                                    \
    CSI_METHOD_(X, Node, node_unstage_volume, NodeUnstageVolume, false)                                                \
    CSI_METHOD_(X, Node, node_publish_volume, NodePublishVolume, false)                                                \
    CSI_METHOD_(X, Node, node_unpublish_volume, NodeUnpublishVolume, false)                                            \
    CSI_METHOD_(X, Node, node_get_volume_stats, NodeGetVolumeStats, false)                                             \
    CSI_METHOD_(X, Node, node_expand_volume, NodeExpandVolume, false)                                                  \
    CSI_METHOD_(X, Node, node_get_capabilities, NodeGetCapabilities, true)                                             \
    CSI_METHOD_(X, Node, node_get_info, NodeGetInfo, true)                                                             \
    X(get_info, "pluginregistration.Registration", "GetInfo", Pluginregistration__InfoRequest,                         \
      pluginregistration__info_request, Pluginregistration__PluginInfo, pluginregistration__plugin_info, true)         \
    X(notify_registration_status, "pluginregistration.Registration", "NotifyRegistrationStatus",                       \
      Pluginregistration__RegistrationStatus, pluginregistration__registration_status,                                 \
      Pluginregistration__RegistrationStatusResponse, pluginregistration__registration_status_response, true)          \
    X(scrub, "berth.v1.Recycler", "Scrub", Berth__V1__ScrubRequest, berth__v1__scrub_request,                          \
      Berth__V1__ScrubResponse, berth__v1__scrub_response, false)

/* csi_method_create_volume and so on. */
#define CSI_METHOD_DECLARE_(name, service, rpc, Request, request, Reply, reply, light)                                 \
    extern const struct csi_method csi_method_##name;
CSI_METHODS(CSI_METHOD_DECLARE_)

/* All of them in the table's order, ended by NULL. */
extern const struct csi_method *const csi_methods[];
/* By full path; NULL when there is none. */
const struct csi_method *csi_method_find(const char *path);

#endif
