/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's side of berth-holder: mounts of volumes of the FUSE backend, which enforce a volume's size.
 *
 * A volume gets ONE such mount, at a path the caller names (say STATE/mounts/ID); each publish bind-mounts that path to
 * its target with mount_bind. The mount outlives the caller: whoever comes later asks for the same mount again and gets
 * "0, it is there". Every call is idempotent, safe from several threads, and ends at its timeout at the latest; a call
 * that timed out may still take effect, so repeat it.
 *
 * Errors everywhere: ERR_UNAVAILABLE nobody answers on the socket for five seconds (at once when another call has just
 * waited in vain), or the holder could not be started; ERR_TIMEOUT; ERR_FORBIDDEN we are not root; ERR_INVALID a bad
 * argument; and what is said at each function.
 */
#ifndef BERTH_DRIVERS_HOLDER_CLIENT_H
#define BERTH_DRIVERS_HOLDER_CLIENT_H

#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOLDER_DEFAULT_SOCKET "/run/berth/holder/holder.sock"
/* Enough for a mount of a volume with some hundred thousand files, which are counted first. */
#define HOLDER_DEFAULT_TIMEOUT ((int64_t)60 * 1000000000)

struct holder_client_options {
    const char *socket; /* NULL = HOLDER_DEFAULT_SOCKET; the holder's own files lie in the same directory */
    /* The berth-holder to start when nobody listens on the socket; NULL: the holder is somebody else's task (a
     * DaemonSet of its own, a service of the host). A holder started here leaves the caller's session and process
     * group. */
    const char *holder_program;
    const char *fuse_program; /* berth-fuse, for a holder started here; NULL = beside holder_program */
};
struct holder_client;
struct holder_client *holder_client_new(const struct holder_client_options *options); /* copies; connects to nobody */
void holder_client_free(struct holder_client *client);

struct holder_mount {
    const char *id;        /* the volume's id: a safe file name of at most 128 characters */
    const char *directory; /* absolute; files are in DIRECTORY/data, which must exist. DIRECTORY/orphans is ours */
    const char *target;    /* absolute; made (0750) when missing; its parent must exist */
    int64_t limit;         /* bytes; > 0 */
    int64_t inode_limit;   /* 0 = one for each 4 KiB of the limit, at least 1024; it follows the limit then */
    bool read_only;        /* the whole mount; a read-only publish of a writable mount is the bind mount's matter */
    const struct strv *options; /* mount options (nosuid, nodev, noexec, noatime, …, context="…"); NULL = none.
                                 * Unknown ones are ERR_INVALID. Set per volume here; bind mounts can differ. */
};
/* Returns when the file system serves. Mounted already with the same arguments: 0; another limit is set as by
 * holder_set_limit; anything else that differs is ERR_CONFLICT. ERR_NOT_FOUND: no DIRECTORY/data. What a crash or a
 * reboot left on the target (a dead FUSE mount) is taken away first. ERR_UNAVAILABLE also while a file system of the
 * same id, unmounted earlier, is still used through another mount. */
int holder_mount_volume(struct holder_client *client, const struct holder_mount *mount, int64_t timeout_ns,
                        struct err *err);
/* Unmounts the target and ends the file system; the target directory is removed if empty. Not mounted: 0. Bind mounts
 * of it should be gone before; otherwise the file system goes on serving them (*in_use = true, may be NULL) and ends
 * with the last. `target` may be NULL; when the holder does not know the id, what FUSE mount lies on it is taken away.
 */
int holder_unmount_volume(struct holder_client *client, const char *id, const char *target, bool *in_use,
                          int64_t timeout_ns, struct err *err);
/* The new size counts at once, also for df; writers that were told ENOSPC may go on. Below what is used nothing is
 * lost, but nothing more fits. inode_limit as in struct holder_mount. Not mounted: ERR_NOT_FOUND. */
int holder_set_limit(struct holder_client *client, const char *id, int64_t limit, int64_t inode_limit,
                     int64_t timeout_ns, struct err *err);

struct holder_stats {
    int64_t limit, used; /* bytes; used may exceed a limit that was lowered */
    int64_t inode_limit, inodes;
};
/* Never touches the mount, so a process that hangs or is being replaced costs at most the timeout. Not mounted:
 * ERR_NOT_FOUND; nobody serves it just now: ERR_UNAVAILABLE. */
int holder_volume_stats(struct holder_client *client, const char *id, struct holder_stats *stats, int64_t timeout_ns,
                        struct err *err);

struct holder_entry { /* strings owned by the list */
    char *id, *directory, *target;
    int64_t limit;
    bool read_only;
    bool serving;     /* its process runs */
    bool detached;    /* unmounted, but still used through another mount */
    int64_t pid;      /* 0 = none just now */
    int64_t restarts; /* of its process since the mount */
    char *problem;    /* why it does not serve, for a volume condition; "" when all is well */
};
struct holder_list {
    struct holder_entry *items; /* in the order of ids */
    size_t len;
};
void holder_list_free(struct holder_list *list);
#define auto_holder_list __attribute__((cleanup(holder_list_free)))
int holder_list_mounts(struct holder_client *client, struct holder_list *list, int64_t timeout_ns, struct err *err);
/* One entry: ERR_NOT_FOUND when the id is not mounted. Freed with holder_entry_clear. */
int holder_find_mount(struct holder_client *client, const char *id, struct holder_entry *entry, int64_t timeout_ns,
                      struct err *err);
void holder_entry_clear(struct holder_entry *entry);

struct holder_health {
    int64_t mounts, serving;
    char version[64];
    bool resend; /* the kernel (6.9 or newer) repeats calls that a killed process took with it */
};
int holder_check_health(struct holder_client *client, struct holder_health *health, int64_t timeout_ns,
                        struct err *err);
/* Replaces the process of each volume by a new one of the program as it is on disk now, one after the other. */
int holder_restart_processes(struct holder_client *client, int64_t timeout_ns, struct err *err);

#endif
