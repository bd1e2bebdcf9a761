/* SPDX-License-Identifier: Apache-2.0 */
/* The NFS driver: what its RPC files share. */
#ifndef BERTH_NFS_DRIVER_H
#define BERTH_NFS_DRIVER_H

#include "drivers/common/keylock.h"
#include "drivers/nfs/parameters.h"
#include "drivers/nfs/record.h"
#include "lib/base/clock.h"
#include "lib/csi/server.h"

struct nfs_options {
    const char *name;            /* --drivername */
    const char *node_id;         /* --nodeid; "" on the controller */
    const char *state_directory; /* --statedir */
    const char *program;         /* path of this program, for its helpers */
    int64_t max_volumes_per_node;
    int64_t timeout; /* of one call to a server */
    struct share_credential credential;
    enum on_delete on_delete; /* of classes that do not say */
    uint32_t mode;            /* of new directories; 0 = 0755, and classes decide */
    enum mounter mounter;
    bool soft; /* the FUSE mounter gives EIO when the server is away instead of waiting */
    int64_t usage_interval;
    struct share_location where; /* --server, --share: of classes that do not say, and what is listed; may be empty */
};

struct metrics;
struct monitor;
struct nfs_driver {
    struct nfs_options options;
    struct clock *clock;
    struct rng *rng;
    struct keylock *locks;
    struct stop *stop;
    struct metrics *metrics;
    struct monitor *monitor; /* of the volumes on this node; NULL on a controller */
};

extern const struct csi_handlers nfs_identity_handlers, nfs_controller_handlers, nfs_snapshot_handlers,
    nfs_node_handlers, nfs_recycler_handlers;

/* A connection whose calls end at the caller's deadline. `call` may be NULL: then only the time-out of each call
 * counts. */
int nfs_open_share(const struct nfs_driver *driver, const struct share_location *where, struct csi_call *call,
                   struct share **share, struct err *err);
/* The same for work that must go on when the caller has given up (he comes again, and finds it done). */
void nfs_outlive_call(struct share *share);
/* Fills in server and share from the options when the class names none; INVALID_ARGUMENT when nobody does. */
int nfs_complete_location(const struct nfs_driver *driver, struct share_location *where, struct err *err);
/* Parses the id and takes what its handle does not say out of secrets ("mountOptions", as csi-driver-nfs reads them).
 */
int nfs_read_secrets(struct csi_map secrets, struct share_location *where, struct err *err);
/* Locks of one object on one share. */
int nfs_lock(struct nfs_driver *driver, const char *kind, const struct share_location *where, const char *id,
             bool shared, struct keylock_hold *hold, struct err *err);

/* A volume's directory for making or removing it: alone on it, shared on those above, so that nobody removes a
 * directory in which another volume is just being made. */
struct directory_hold { /* {0} holds nothing */
    struct keylock_hold *holds;
    size_t len;
};
int nfs_lock_directory(struct nfs_driver *driver, const struct share_location *where, const char *path,
                       struct directory_hold *hold, struct err *err);
void nfs_unlock_directory(struct directory_hold *hold);
#define auto_directory_hold __attribute__((cleanup(nfs_unlock_directory)))

/* ---- lifecycle.c ---- */

struct volume_source { /* an open share and the directory to copy; directory.len 0 = none */
    struct share *share;
    struct share_fh directory;
};
/* Makes the volume of the record (or goes on with it), with the rights of `parameters`; the record is ready
 * afterwards. */
int lifecycle_create(struct nfs_driver *driver, struct area *area, struct record *record,
                     const struct parameters *parameters, const struct volume_source *source, struct err *err);
/* By the policy of its record (or, without one, of its id). Absent = 0. */
int lifecycle_delete(struct nfs_driver *driver, struct share *share, const struct handle *handle, struct err *err);
/* 1 = the volume's record (made up for one of csi-driver-nfs that has none) and directory, 0 = it does not exist. */
int lifecycle_find(struct share *share, struct area *area, const struct handle *handle, struct record *record,
                   struct share_fh *directory, struct err *err);

#endif
