/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/driver.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>

/* More than the 4 MiB of Go programs: an answer that is not read is a volume whose id nobody knows. */
#define MAX_MESSAGE_BYTES ((size_t)64 * 1024 * 1024)

static void came_back(struct driver_watch *watch)
{
    struct provisioner *provisioner = watch->provisioner;
    auto_err struct err err = {0};
    struct handshake now = {0};
    int64_t timeout = provisioner->options->timeout;
    if (handshake_probe(provisioner->driver, timeout, provisioner->stop, &err) < 0 ||
        handshake_ask(provisioner->driver, timeout, provisioner->config.node_deployment, provisioner->stop, &now,
                      &err) < 0) {
        /* it broke again, or is not up yet: the next connection is looked at again */
        log_warn("The CSI driver came back but does not answer as it should", kv_err(&err));
        return;
    }
    bool same = handshake_equal(&now, &watch->handshake);
    handshake_clear(&now);
    if (!same)
        provisioner_die(provisioner, "The CSI driver came back with another name, capabilities or topology, exiting");
    atomic_store(&watch->lost, false);
    log_info("The CSI driver is back");
}

static void on_connection(void *arg, enum csi_connection state)
{
    struct driver_watch *watch = arg;
    if (!atomic_load(&watch->established) || stop_requested(watch->provisioner->stop))
        return;
    if (state == CSI_CONNECTION_CONNECTED) {
        if (atomic_load(&watch->lost))
            came_back(watch);
        return;
    }
    if (watch->provisioner->options->exit_on_driver_loss)
        provisioner_die(watch->provisioner, "Lost connection to CSI driver, exiting");
    atomic_store(&watch->lost, true);
    log_warn("Lost the connection to the CSI driver, waiting for it to come back");
}

static void on_finished(void *arg, const struct csi_method *method, unsigned tag, int code, double seconds)
{
    struct driver_watch *watch = arg;
    telemetry_rpc_finished(&watch->provisioner->telemetry, method, tag == TELEMETRY_MIGRATED, code, seconds);
}

int driver_connect(struct provisioner *provisioner, struct driver_watch *watch, struct err *err)
{
    const struct options *options = provisioner->options;
    struct provision_config *config = &provisioner->config;
    watch->provisioner = provisioner;
    provisioner->driver = csi_client_new(options->csi_address,
                                         &(struct csi_client_options){.on_finished = on_finished,
                                                                      .on_connection = on_connection,
                                                                      .arg = watch,
                                                                      .max_message_bytes = MAX_MESSAGE_BYTES},
                                         err);
    if (provisioner->driver == NULL || handshake_run(provisioner->driver, options->timeout, options->node_deployment,
                                                     provisioner->stop, &watch->handshake, err) < 0)
        return -1;
    config->driver_name = watch->handshake.driver_name;
    config->migrated_plugin = kube_migrated_plugin(config->driver_name);
    config->capabilities = watch->handshake.capabilities;
    config->node_topology =
        (struct kube_pairs){.items = watch->handshake.node_topology, .len = watch->handshake.node_topology_len};
    telemetry_set_driver(&provisioner->telemetry, config->driver_name, config->migrated_plugin != NULL);
    atomic_store(&watch->established, true);
    log_info("Connected to the CSI driver", kv_str("driver", config->driver_name));
    return 0;
}

void driver_close(struct provisioner *provisioner, struct driver_watch *watch)
{
    csi_client_free(provisioner->driver);
    provisioner->driver = NULL;
    handshake_clear(&watch->handshake);
}

int driver_check(void *arg, struct err *err)
{
    struct provisioner *provisioner = arg;
    if (csi_client_connected(provisioner->driver))
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "no connection to the CSI driver at %s", provisioner->options->csi_address);
}
