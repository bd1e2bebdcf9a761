/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/driver.h"

#include "lib/base/flag.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/csi/client.h"

#include <stdio.h>

#define STOP_GRACE (10 * CLOCK_SECOND)

struct options {
    const char *endpoint, *driver_name, *node_id, *state_directory;
    const char *registration_directory, *kubelet_path;
    const char *default_backend;
    int64_t max_volumes_per_node, max_volume_size;
    bool topology;
    struct flag_log log;
};

#define FIELD(name) offsetof(struct options, name)
static const struct flag flags[] = {
    {.name = "endpoint",
     .type = FLAG_STRING,
     .default_value = "unix:///tmp/csi.sock",
     .group = "Driver",
     .help = "Socket to listen on.",
     .offset = FIELD(endpoint)},
    {.name = "drivername",
     .type = FLAG_STRING,
     .default_value = "hostpath.csi.berth",
     .group = "Driver",
     .help = "Name of the driver.",
     .offset = FIELD(driver_name)},
    {.name = "nodeid",
     .type = FLAG_STRING,
     .group = "Driver",
     .help = "Id of this node; required.",
     .offset = FIELD(node_id)},
    {.name = "statedir",
     .type = FLAG_STRING,
     .default_value = "/csi-data-dir",
     .group = "Driver",
     .help = "Directory of the volumes and of what the driver knows about them.",
     .offset = FIELD(state_directory)},
    {.name = "default-backend",
     .type = FLAG_STRING,
     .default_value = "plain",
     .group = "Volumes",
     .help = "Backend of volumes whose class has no parameter \"backend\".",
     .offset = FIELD(default_backend)},
    {.name = "maxvolumespernode",
     .type = FLAG_INT,
     .default_value = "0",
     .group = "Volumes",
     .help = "Limit of volumes on this node; 0 = none.",
     .offset = FIELD(max_volumes_per_node)},
    {.name = "max-volume-size",
     .type = FLAG_INT,
     .default_value = "1099511627776",
     .group = "Volumes",
     .help = "Largest volume, in bytes.",
     .offset = FIELD(max_volume_size)},
    {.name = "enable-topology",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = "Volumes",
     .help = "Say that volumes are accessible from this node only.",
     .offset = FIELD(topology)},
    {.name = "registration-dir",
     .type = FLAG_STRING,
     .group = "Kubelet",
     .help = "Kubelet's plugins_registry directory; empty = no registration. Takes the place of node-driver-registrar.",
     .offset = FIELD(registration_directory)},
    {.name = "kubelet-registration-path",
     .type = FLAG_STRING,
     .group = "Kubelet",
     .help = "Path of the socket as kubelet sees it; empty = that of --endpoint.",
     .offset = FIELD(kubelet_path)},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {.name = "berth-hostpath",
                                            .summary = "CSI driver for volumes in a directory of the node.",
                                            .usage = "[flags]",
                                            .flags = flags,
                                            .count = ARRAY_LEN(flags)};

static int configure(const struct options *options, struct hostpath *driver, struct err *err)
{
    if (str_empty(options->node_id))
        return err_set(err, ERR_INVALID, "--nodeid is required");
    driver->options = (struct hostpath_options){.name = options->driver_name,
                                                .node_id = options->node_id,
                                                .max_volume_size = options->max_volume_size,
                                                .max_volumes_per_node = options->max_volumes_per_node,
                                                .topology = options->topology};
    if (!volume_backend_parse(options->default_backend, &driver->options.default_backend))
        return err_set(err, ERR_INVALID, "--default-backend=%s is unknown (fuse, loop or plain)",
                       options->default_backend);
    return 0;
}

static int serve(const struct options *options, struct hostpath *driver, struct stop *stop, struct err *err)
{
    struct csi_server_options server_options = {.endpoint = options->endpoint};
    struct csi_server *server = csi_server_new(&server_options, err);
    struct csi_registration *registration = NULL;
    if (server == NULL)
        return -1;
    csi_server_add(server, &hostpath_identity_handlers, driver);
    csi_server_add(server, &hostpath_controller_handlers, driver);
    csi_server_add(server, &hostpath_node_handlers, driver);
    int result = 0;
    if (!str_empty(options->registration_directory)) {
        auto_free char *own_path = csi_address_path(options->endpoint, err);
        struct csi_registration_options registration_options = {
            .registry_dir = options->registration_directory,
            .driver_name = options->driver_name,
            .kubelet_endpoint = str_empty(options->kubelet_path) ? own_path : options->kubelet_path};
        registration = csi_registration_new(server, &registration_options, err);
        result = registration != NULL ? 0 : -1;
    }
    if (result == 0)
        result = csi_server_start(server, err);
    if (result == 0) {
        log_info("Listening", kv_str("endpoint", options->endpoint), kv_str("driver", options->driver_name),
                 kv_str("version", berth_version()));
        stop_wait_until(stop, driver->clock, CLOCK_NEVER);
        result = csi_server_stop(server, STOP_GRACE, err);
    }
    csi_server_free(server);
    csi_registration_free(registration);
    return result;
}

static int run(const struct options *options, struct stop *stop, struct err *err)
{
    struct hostpath driver = {.clock = clock_real(), .rng = rng_real()};
    if (configure(options, &driver, err) < 0 || state_open(options->state_directory, &driver.state, err) < 0)
        return -1;
    driver.locks = keylock_new();
    int result = serve(options, &driver, stop, err);
    keylock_free(driver.locks);
    state_close(driver.state);
    return result;
}

int main(int argc, char **argv)
{
    thread_limit_arenas();
    struct options options = {0};
    switch (flag_parse(&program, argc, argv, &options, NULL)) {
    case FLAG_EXIT:
        return 0;
    case FLAG_USAGE:
        return 2;
    case FLAG_OK:
        break;
    }
    auto_err struct err err = {0};
    if (flag_log_setup(&options.log, &err) < 0) {
        fprintf(stderr, "berth-hostpath: %s\n", err_text(&err));
        return 2;
    }
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    int result = run(&options, stop, &err);
    if (result < 0)
        log_error("Stopped", kv_err(&err));
    stop_free(stop);
    return result < 0 ? 1 : 0;
}
