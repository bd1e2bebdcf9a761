/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of berth-hostpath and what they say once they are checked. */
#ifndef BERTH_HOSTPATH_OPTIONS_H
#define BERTH_HOSTPATH_OPTIONS_H

#include "drivers/hostpath/record.h"
#include "lib/base/flag.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* The peer driver's key, so that its volumes can move here. */
#define HOSTPATH_TOPOLOGY_KEY "topology.hostpath.csi/node"

#define HOSTPATH_HOLDER_AUTO "auto" /* --holder-program: the one beside this program */

struct hostpath_pool { /* --capacity kind=quantity */
    char *kind;
    int64_t bytes;
};
struct hostpath_options {
    const char *name;    /* --drivername */
    const char *node_id; /* --nodeid */
    int64_t max_volume_size, max_volume_size_node, default_volume_size;
    int64_t max_volumes_per_node, attach_limit;
    bool topology, attach, check_lifecycle;
    bool controller_expansion, node_expansion;
    bool list_snapshots, modify;
    bool overcommit;
    struct strv mutable_names;
    enum volume_backend default_backend;
    bool fuse_missing; /* /dev/fuse is absent and --default-backend=fuse fell back */
    struct hostpath_pool *pools;
    size_t pool_count;
};

struct hostpath_flags { /* as on the command line */
    const char *endpoint, *driver_name, *node_id, *state_directory;
    const char *registration_directory, *kubelet_path, *http_endpoint;
    const char *default_backend, *fallback_backend, *holder_socket, *holder_program, *fuse_program;
    int64_t max_volumes_per_node, attach_limit, max_volume_size, max_volume_size_node;
    const char *default_volume_size;
    struct strv capacity, mutable_names;
    bool topology, attach, check_lifecycle, overcommit, modify, list_snapshots;
    bool expansion, no_controller_expansion, no_node_expansion;
    struct flag_log log;
};
extern const struct flag_program hostpath_program;

/* Checks the flags. The strings stay those of the flags. `fuse_present`: /dev/fuse is there. */
int hostpath_options_read(const struct hostpath_flags *flags, bool fuse_present, struct hostpath_options *options,
                          struct err *err);
void hostpath_options_free(struct hostpath_options *options);

#endif
