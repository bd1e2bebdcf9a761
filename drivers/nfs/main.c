/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/call_metrics.h"
#include "drivers/nfs/driver.h"
#include "drivers/nfs/fuse_fs.h"
#include "drivers/nfs/monitor.h"
#include "drivers/nfs/mounts.h"
#include "drivers/nfs/scrub_main.h"

#include "lib/base/flag.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/csi/client.h"
#include "lib/observe/http.h"

#include <stdio.h>
#include <unistd.h>

#define STOP_GRACE (10 * CLOCK_SECOND)

struct options {
    const char *endpoint, *driver_name, *node_id, *state_directory;
    const char *registration_directory, *kubelet_path;
    const char *server, *share, *mount_options;
    const char *on_delete, *mode, *mounter, *http_endpoint;
    int64_t uid, gid, timeout, usage_interval, max_volumes_per_node;
    bool soft;
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
     .default_value = "nfs.csi.berth",
     .group = "Driver",
     .help = "Name of the driver.",
     .offset = FIELD(driver_name)},
    {.name = "nodeid",
     .type = FLAG_STRING,
     .group = "Driver",
     .help = "Id of this node; with it the node service is offered.",
     .offset = FIELD(node_id)},
    {.name = "statedir",
     .type = FLAG_STRING,
     .default_value = "/csi-data-dir",
     .group = "Driver",
     .help = "Directory of what the node service knows about mounted volumes.",
     .offset = FIELD(state_directory)},
    {.name = "http-endpoint",
     .type = FLAG_STRING,
     .group = "Driver",
     .help = "Address for /metrics and /healthz, e.g. :9809; empty = none.",
     .offset = FIELD(http_endpoint)},
    {.name = "server",
     .type = FLAG_STRING,
     .group = "Export",
     .help = "NFS server of classes that name none, and of the lists of volumes and snapshots.",
     .offset = FIELD(server)},
    {.name = "share",
     .type = FLAG_STRING,
     .group = "Export",
     .help = "Its export, e.g. /export/data.",
     .offset = FIELD(share)},
    {.name = "mount-options",
     .type = FLAG_STRING,
     .group = "Export",
     .help = "Its version and ports when they are not the usual ones, e.g. nfsvers=3,port=2050.",
     .offset = FIELD(mount_options)},
    {.name = "uid",
     .type = FLAG_INT,
     .default_value = "-1",
     .group = "Export",
     .help = "User as whom the driver works on shares; -1 = its own.",
     .offset = FIELD(uid)},
    {.name = "gid",
     .type = FLAG_INT,
     .default_value = "-1",
     .group = "Export",
     .help = "Group as which the driver works on shares; -1 = its own.",
     .offset = FIELD(gid)},
    {.name = "nfs-timeout",
     .type = FLAG_DURATION,
     .default_value = "15s",
     .group = "Export",
     .help = "How long a server may take to answer one call.",
     .offset = FIELD(timeout)},
    {.name = "default-ondelete-policy",
     .type = FLAG_STRING,
     .group = "Volumes",
     .help = "What becomes of the directory of a deleted volume whose class does not say: delete (the default), retain "
             "or archive.",
     .offset = FIELD(on_delete)},
    {.name = "mount-permissions",
     .type = FLAG_STRING,
     .default_value = "0",
     .group = "Volumes",
     .help = "Octal mode of new directories whose class does not say; 0 = 0755.",
     .offset = FIELD(mode)},
    {.name = "mounter",
     .type = FLAG_STRING,
     .default_value = "auto",
     .group = "Volumes",
     .help = "How nodes mount: kernel, fuse (enforces the size), or auto: the kernel's client when there is one.",
     .offset = FIELD(mounter)},
    {.name = "soft",
     .type = FLAG_BOOL,
     .group = "Volumes",
     .help = "The FUSE mounter answers EIO when the server is away, instead of waiting for it.",
     .offset = FIELD(soft)},
    {.name = "usage-interval",
     .type = FLAG_DURATION,
     .default_value = "5m",
     .group = "Volumes",
     .help = "How often what mounted volumes use is measured.",
     .offset = FIELD(usage_interval)},
    {.name = "maxvolumespernode",
     .type = FLAG_INT,
     .default_value = "0",
     .group = "Volumes",
     .help = "Limit of volumes on this node; 0 = none.",
     .offset = FIELD(max_volumes_per_node)},
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
    {.name = "working-mount-dir",
     .type = FLAG_IGNORED,
     .group = "csi-driver-nfs",
     .help = "The controller mounts nothing."},
    {.name = "vol-stats-cache-expire-in-minutes",
     .type = FLAG_IGNORED,
     .group = "csi-driver-nfs",
     .help = "See --usage-interval."},
    {.name = "remove-archived-volume-path",
     .type = FLAG_IGNORED_BOOL,
     .group = "csi-driver-nfs",
     .help = "An existing archive is kept; the new one gets another name."},
    {.name = "use-tar-command-in-snapshot",
     .type = FLAG_IGNORED_BOOL,
     .group = "csi-driver-nfs",
     .help = "Snapshots are directories."},
    {.name = "enable-snapshot-compression",
     .type = FLAG_IGNORED_BOOL,
     .group = "csi-driver-nfs",
     .help = "Snapshots are directories."},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {.name = "berth-nfs",
                                            .summary = "CSI driver for volumes on NFS servers.",
                                            .usage = "[flags] | scrub /DIRECTORY",
                                            .flags = flags,
                                            .count = ARRAY_LEN(flags)};

static int read_mode(const char *text, uint32_t *mode, struct err *err)
{
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 8);
    if (*text == '\0' || *end != '\0' || *text == '-' || value > 07777)
        return err_set(err, ERR_INVALID, "--mount-permissions=%s is not an octal mode", text);
    *mode = (uint32_t)value;
    return 0;
}

static int read_export(const struct options *options, struct share_location *where, struct err *err)
{
    if (str_empty(options->server) != str_empty(options->share))
        return err_set(err, ERR_INVALID, "--server and --share go together");
    if (str_empty(options->server))
        return 0;
    if (handle_set_location(where, options->server, options->share, err) < 0)
        return -1;
    return parameters_read_mount_options(options->mount_options != NULL ? options->mount_options : "", where, err);
}

static int configure(const struct options *options, struct nfs_driver *driver, struct err *err)
{
    struct nfs_options *to = &driver->options;
    to->name = options->driver_name;
    to->node_id = options->node_id != NULL ? options->node_id : "";
    to->state_directory = options->state_directory;
    to->max_volumes_per_node = options->max_volumes_per_node;
    to->timeout = options->timeout;
    to->usage_interval = options->usage_interval;
    to->soft = options->soft;
    to->credential.uid = options->uid >= 0 ? (uint32_t)options->uid : geteuid();
    to->credential.gid = options->gid >= 0 ? (uint32_t)options->gid : getegid();
    if (options->timeout < CLOCK_SECOND || options->usage_interval < CLOCK_SECOND)
        return err_set(err, ERR_INVALID, "--nfs-timeout and --usage-interval must be a second or more");
    if (!on_delete_parse(options->on_delete != NULL ? options->on_delete : "", &to->on_delete))
        return err_set(err, ERR_INVALID, "--default-ondelete-policy=%s is unknown (delete, retain or archive)",
                       options->on_delete);
    if (to->on_delete == ON_DELETE_DEFAULT)
        to->on_delete = ON_DELETE_DELETE;
    if (!mounter_parse(options->mounter, &to->mounter))
        return err_set(err, ERR_INVALID, "--mounter=%s is unknown (auto, kernel or fuse)", options->mounter);
    return read_mode(options->mode, &to->mode, err) < 0 ? -1 : read_export(options, &to->where, err);
}

static void call_finished(void *arg, const struct csi_method *method, int code, double seconds)
{
    const struct nfs_driver *driver = arg;
    call_metrics_observe(driver->metrics, driver->options.name, method, code, seconds);
}

static struct csi_server *make_server(const struct options *options, struct nfs_driver *driver, struct err *err)
{
    struct csi_server_options server_options = {.endpoint = options->endpoint,
                                                .max_id_bytes = HANDLE_FOREIGN_BYTES,
                                                .on_finished = call_finished,
                                                .arg = driver};
    struct csi_server *server = csi_server_new(&server_options, err);
    if (server == NULL)
        return NULL;
    csi_server_add(server, &nfs_identity_handlers, driver);
    csi_server_add(server, &nfs_controller_handlers, driver);
    csi_server_add(server, &nfs_snapshot_handlers, driver);
    csi_server_add(server, &nfs_recycler_handlers, driver);
    if (driver->monitor != NULL)
        csi_server_add(server, &nfs_node_handlers, driver);
    return server;
}

static int serve(const struct options *options, struct nfs_driver *driver, struct err *err)
{
    struct csi_server *server = make_server(options, driver, err);
    struct csi_registration *registration = NULL;
    if (server == NULL)
        return -1;
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
        stop_wait_until(driver->stop, driver->clock, CLOCK_NEVER);
        result = csi_server_stop(server, STOP_GRACE, err);
    }
    csi_server_free(server);
    csi_registration_free(registration);
    return result;
}

static int observe(const struct options *options, struct metrics *metrics, struct observe_http **http, struct err *err)
{
    call_metrics_register(metrics);
    metrics_register_process(metrics);
    if (str_empty(options->http_endpoint))
        return 0;
    *http = observe_http_new(metrics, "/metrics");
    return observe_http_start(*http, options->http_endpoint, err);
}

static int run(const struct options *options, const char *self, struct stop *stop, struct err *err)
{
    struct metrics *metrics = metrics_new();
    struct nfs_driver driver = {.clock = clock_real(),
                                .rng = rng_real(),
                                .stop = stop,
                                .locks = keylock_new(),
                                .metrics = metrics,
                                .options = {.program = self}};
    struct observe_http *http = NULL;
    int result = configure(options, &driver, err);
    if (result == 0)
        result = observe(options, metrics, &http, err);
    if (result == 0 && *driver.options.node_id != '\0')
        result = monitor_start(&driver, err);
    pthread_t mender = 0;
    if (result == 0 && driver.monitor != NULL)
        mender = mend_start(&driver);
    if (result == 0)
        result = serve(options, &driver, err);
    stop_request(stop);
    if (mender != 0)
        thread_join(mender);
    monitor_stop(&driver);
    observe_http_free(http);
    metrics_free(metrics);
    share_location_clear(&driver.options.where);
    keylock_free(driver.locks);
    return result;
}

static int driver_main(int argc, char **argv, const char *self)
{
    struct options options = {0};
    enum flag_result parsed = flag_parse(&program, argc, argv, &options, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    auto_err struct err err = {0};
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    int result = run(&options, self, stop, &err);
    if (result < 0)
        log_error("Stopped", kv_err(&err));
    stop_free(stop);
    return result < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"scrub", scrub_main}, {"mount-fuse", fuse_main}, {"probe", probe_main}};
    thread_limit_arenas();
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    /* helpers are this very program, whatever argv[0] says; the link would resolve in the helper's shell, not here */
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0) {
        fprintf(stderr, "berth-nfs: /proc is not mounted\n");
        return 1;
    }
    self[len] = '\0';
    return driver_main(argc, argv, self);
}
