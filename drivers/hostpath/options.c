/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/options.h"

#include "drivers/common/holder_client.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/quantity.h"

#define FIELD(name) offsetof(struct hostpath_flags, name)
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
    {.name = "http-endpoint",
     .type = FLAG_STRING,
     .group = "Driver",
     .help = "Address of /metrics and /healthz, such as \":8080\"; empty = none.",
     .offset = FIELD(http_endpoint)},
    {.name = "default-backend",
     .type = FLAG_STRING,
     .default_value = "fuse",
     .group = "Volumes",
     .help = "Backend of volumes whose class has no parameter \"backend\": fuse, loop or plain.",
     .offset = FIELD(default_backend)},
    {.name = "fallback-backend",
     .type = FLAG_STRING,
     .group = "Volumes",
     .help = "Backend that takes the place of fuse as the default on a node without /dev/fuse: loop or plain; empty = "
             "the driver does not start there.",
     .offset = FIELD(fallback_backend)},
    {.name = "holder-socket",
     .type = FLAG_STRING,
     .default_value = HOLDER_DEFAULT_SOCKET,
     .group = "Volumes",
     .help = "Socket of berth-holder, which keeps the mounts of the backend fuse.",
     .offset = FIELD(holder_socket)},
    {.name = "holder-program",
     .type = FLAG_STRING,
     .default_value = HOSTPATH_HOLDER_AUTO,
     .group = "Volumes",
     .help = "The berth-holder to start when nobody listens on --holder-socket; auto = the one beside this program, if "
             "there is one; empty = it runs on its own, as in a cluster, where it must outlive the driver's container.",
     .offset = FIELD(holder_program)},
    {.name = "fuse-program",
     .type = FLAG_STRING,
     .group = "Volumes",
     .help = "The berth-fuse for a holder started here; empty = beside --holder-program.",
     .offset = FIELD(fuse_program)},
    {.name = "capacity",
     .type = FLAG_LIST,
     .group = "Volumes",
     .help = "Simulated pool, kind=quantity (\"fast=10Gi\"), chosen by the class parameter \"kind\"; may be repeated.",
     .offset = FIELD(capacity)},
    {.name = "default-volume-size",
     .type = FLAG_STRING,
     .default_value = "1Gi",
     .group = "Volumes",
     .help = "Size of a volume whose request names none.",
     .offset = FIELD(default_volume_size)},
    {.name = "max-volume-size",
     .type = FLAG_INT,
     .default_value = "1099511627776",
     .group = "Volumes",
     .help = "Largest volume, in bytes.",
     .offset = FIELD(max_volume_size)},
    {.name = "max-volume-size-node",
     .type = FLAG_INT,
     .default_value = "0",
     .group = "Volumes",
     .help = "Largest volume that NodeExpandVolume accepts, in bytes; 0 = no limit of its own.",
     .offset = FIELD(max_volume_size_node)},
    {.name = "allow-overcommit",
     .type = FLAG_BOOL,
     .group = "Volumes",
     .help = "Promise more than the disk has: volumes may then find it full before they are.",
     .offset = FIELD(overcommit)},
    {.name = "maxvolumespernode",
     .type = FLAG_INT,
     .default_value = "0",
     .group = "Volumes",
     .help = "Limit of volumes on this node; 0 = none.",
     .offset = FIELD(max_volumes_per_node)},
    {.name = "attach-limit",
     .type = FLAG_INT,
     .default_value = "0",
     .group = "Volumes",
     .help = "Limit of attached volumes; 0 = that of --maxvolumespernode.",
     .offset = FIELD(attach_limit)},
    {.name = "enable-attach",
     .type = FLAG_BOOL,
     .group = "Features",
     .help = "Ask for ControllerPublishVolume before a volume is used.",
     .offset = FIELD(attach)},
    {.name = "check-volume-lifecycle",
     .type = FLAG_BOOL,
     .group = "Features",
     .help = "Refuse to delete an attached volume too (one in use is never deleted).",
     .offset = FIELD(check_lifecycle)},
    {.name = "enable-topology",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = "Features",
     .help = "Say that volumes are accessible from this node only.",
     .offset = FIELD(topology)},
    {.name = "enable-volume-expansion",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = "Features",
     .help = "Let volumes grow.",
     .offset = FIELD(expansion)},
    {.name = "disable-controller-expansion",
     .type = FLAG_BOOL,
     .group = "Features",
     .help = "Volumes grow by NodeExpandVolume only.",
     .offset = FIELD(no_controller_expansion)},
    {.name = "disable-node-expansion",
     .type = FLAG_BOOL,
     .group = "Features",
     .help = "Volumes grow by ControllerExpandVolume only.",
     .offset = FIELD(no_node_expansion)},
    {.name = "enable-list-snapshots",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = "Features",
     .help = "Offer ListSnapshots.",
     .offset = FIELD(list_snapshots)},
    {.name = "enable-controller-modify-volume",
     .type = FLAG_BOOL,
     .group = "Features",
     .help = "Offer ControllerModifyVolume.",
     .offset = FIELD(modify)},
    {.name = "accepted-mutable-parameter-names",
     .type = FLAG_LIST,
     .group = "Features",
     .help = "Mutable parameters that are accepted and kept, with commas between; may be repeated.",
     .offset = FIELD(mutable_names)},
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
    {.name = "ephemeral",
     .type = FLAG_IGNORED_BOOL,
     .group = "Compatibility",
     .help = "Inline volumes are always there, besides the others."},
    {.name = "proxy-endpoint",
     .type = FLAG_IGNORED,
     .group = "Compatibility",
     .help = "Forwarding to another driver is not offered."},
    {.name = "enable-snapshot-metadata",
     .type = FLAG_IGNORED_BOOL,
     .group = "Compatibility",
     .help = "The SnapshotMetadata service is not offered."},
    {.name = "snapshot-metadata-block-type",
     .type = FLAG_IGNORED,
     .group = "Compatibility",
     .help = "The SnapshotMetadata service is not offered."},
    LOG_FLAGS(struct hostpath_flags, log),
};
const struct flag_program hostpath_program = {.name = "berth-hostpath",
                                              .summary = "CSI driver for volumes in a directory of the node.",
                                              .usage = "[flags]",
                                              .flags = flags,
                                              .count = ARRAY_LEN(flags)};

static int read_quantity(const char *text, int64_t *bytes)
{
    struct kube_quantity quantity;
    auto_err struct err ignored = {0};
    if (kube_quantity_parse(text, &quantity, &ignored) < 0 || quantity.nano <= 0)
        return -1;
    *bytes = kube_quantity_ceil(&quantity);
    return 0;
}

static int read_pools(const struct strv *list, struct hostpath_options *options, struct err *err)
{
    options->pools = mem_calloc(list->len + 1, sizeof(*options->pools));
    for (size_t i = 0; i < list->len; i++) {
        const char *text = list->items[i], *equals = strchr(text, '=');
        int64_t bytes;
        if (equals == NULL || equals == text || read_quantity(equals + 1, &bytes) < 0)
            return err_set(err, ERR_INVALID, "--capacity=%s is not kind=quantity, such as fast=10Gi", text);
        options->pools[options->pool_count++] =
            (struct hostpath_pool){.kind = mem_strndup(text, (size_t)(equals - text)), .bytes = bytes};
    }
    return 0;
}

static int read_backend(const struct hostpath_flags *flags_, bool fuse_present, struct hostpath_options *options,
                        struct err *err)
{
    if (!volume_backend_parse(flags_->default_backend, &options->default_backend))
        return err_set(err, ERR_INVALID, "--default-backend=%s is unknown (fuse, loop or plain)",
                       flags_->default_backend);
    if (options->default_backend != BACKEND_FUSE || fuse_present)
        return 0;
    if (str_empty(flags_->fallback_backend))
        return err_set(err, ERR_INVALID,
                       "the default backend fuse needs /dev/fuse, which is not here: load the kernel's module fuse, or "
                       "give --fallback-backend=loop, or another --default-backend");
    if (!volume_backend_parse(flags_->fallback_backend, &options->default_backend) ||
        options->default_backend == BACKEND_FUSE)
        return err_set(err, ERR_INVALID, "--fallback-backend=%s is neither loop nor plain", flags_->fallback_backend);
    options->fuse_missing = true;
    return 0;
}

int hostpath_options_read(const struct hostpath_flags *in, bool fuse_present, struct hostpath_options *options,
                          struct err *err)
{
    *options = (struct hostpath_options){.name = in->driver_name,
                                         .node_id = in->node_id,
                                         .max_volume_size = in->max_volume_size,
                                         .max_volume_size_node = in->max_volume_size_node,
                                         .max_volumes_per_node = in->max_volumes_per_node,
                                         .attach_limit = in->attach_limit,
                                         .topology = in->topology,
                                         .attach = in->attach,
                                         .check_lifecycle = in->check_lifecycle,
                                         .controller_expansion = in->expansion && !in->no_controller_expansion,
                                         .node_expansion = in->expansion && !in->no_node_expansion,
                                         .list_snapshots = in->list_snapshots,
                                         .modify = in->modify,
                                         .overcommit = in->overcommit};
    if (str_empty(in->node_id))
        return err_set(err, ERR_INVALID, "--nodeid is required");
    if (strlen(in->node_id) > 256)
        return err_set(err, ERR_INVALID, "--nodeid has more than 256 bytes");
    if (in->max_volumes_per_node < 0 || in->attach_limit < 0 || in->max_volume_size <= 0 ||
        in->max_volume_size_node < 0)
        return err_set(err, ERR_INVALID, "a limit is negative");
    if (read_quantity(in->default_volume_size, &options->default_volume_size) < 0)
        return err_set(err, ERR_INVALID, "--default-volume-size=%s is not a quantity", in->default_volume_size);
    for (size_t i = 0; i < in->mutable_names.len; i++)
        strv_split(&options->mutable_names, in->mutable_names.items[i], ',');
    return read_pools(&in->capacity, options, err) < 0 ? -1 : read_backend(in, fuse_present, options, err);
}

void hostpath_options_free(struct hostpath_options *options)
{
    for (size_t i = 0; i < options->pool_count; i++)
        free(options->pools[i].kind);
    free(options->pools);
    strv_free(&options->mutable_names);
}
