/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/client.h"
#include "lib/csi/server.h"

struct csi_registration {
    struct csi_registration_options options;
    char *driver_name;
    char *kubelet_endpoint;
};

static int get_info(void *driver, const Pluginregistration__InfoRequest *request, Pluginregistration__PluginInfo *reply,
                    struct csi_call *call, struct err *err)
{
    (void)request, (void)err;
    const struct csi_registration *registration = driver;
    struct csi_arena *arena = csi_call_arena(call);
    reply->type = csi_arena_strdup(arena, "CSIPlugin");
    reply->name = csi_arena_strdup(arena, registration->driver_name);
    reply->endpoint = csi_arena_strdup(arena, registration->kubelet_endpoint);
    CSI_ADD_STRING(arena, reply, supported_versions, "1.0.0");
    return 0;
}

static int notify_registration_status(void *driver, const Pluginregistration__RegistrationStatus *request,
                                      Pluginregistration__RegistrationStatusResponse *reply, struct csi_call *call,
                                      struct err *err)
{
    (void)reply, (void)call, (void)err;
    const struct csi_registration *registration = driver;
    const bool registered = request->plugin_registered;
    if (registered)
        log_info("Registered with kubelet", kv_str("driver", registration->driver_name));
    else
        log_error("Kubelet refused the registration", kv_str("driver", registration->driver_name),
                  kv_str("err", request->error));
    if (registration->options.on_status != NULL)
        registration->options.on_status(registration->options.arg, registered, registered ? "" : request->error);
    return 0;
}

static const struct csi_handlers handlers = {
    .get_info = get_info,
    .notify_registration_status = notify_registration_status,
};

struct csi_registration *csi_registration_new(struct csi_server *server, const struct csi_registration_options *options,
                                              struct err *err)
{
    if (str_empty(options->driver_name) || strchr(options->driver_name, '/') != NULL) {
        err_set(err, ERR_INVALID, "\"%s\" is no driver name to register with kubelet",
                options->driver_name == NULL ? "" : options->driver_name);
        return NULL;
    }
    auto_free char *kubelet_endpoint = csi_address_path(options->kubelet_endpoint, err);
    if (kubelet_endpoint == NULL) {
        err_wrap(err, "endpoint for kubelet");
        return NULL;
    }
    auto_free char *socket = mem_printf("unix:%s/%s-reg.sock", options->registry_dir, options->driver_name);
    if (csi_server_listen(server, socket, err) < 0)
        return NULL;
    struct csi_registration *registration = mem_new(struct csi_registration);
    registration->options = *options;
    registration->driver_name = mem_strdup(options->driver_name);
    registration->kubelet_endpoint = mem_take(kubelet_endpoint);
    csi_server_add(server, &handlers, registration);
    return registration;
}

void csi_registration_free(struct csi_registration *registration)
{
    if (registration == NULL)
        return;
    free(registration->driver_name);
    free(registration->kubelet_endpoint);
    free(registration);
}
