/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage class parameters, volume attributes and mount options: those of csi-driver-nfs (server, share, subDir,
 * onDelete, mountPermissions, mountOptions), those of nfs-subdir-external-provisioner (pathPattern, archiveOnDelete,
 * onDelete), and ours (uid, gid: owner of new directories; mounter: auto, kernel or fuse). Keys in any case.
 */
#ifndef BERTH_NFS_PARAMETERS_H
#define BERTH_NFS_PARAMETERS_H

#include "drivers/nfs/handle.h"
#include "lib/csi/message.h"
#include "lib/csi/method.h"

enum mounter { MOUNTER_AUTO, MOUNTER_KERNEL, MOUNTER_FUSE };
bool mounter_parse(const char *text, enum mounter *mounter); /* "" is auto */
const char *mounter_name(enum mounter mounter);

struct parameters { /* {0} is an empty one; strings are owned */
    struct share_location where;
    char *sub_dir; /* clean, templates filled in; NULL when the class names none */
    enum on_delete on_delete;
    bool has_mode, has_uid, has_gid;
    uint32_t mode, uid, gid;
    enum mounter mounter;
    char *mount_options; /* as in a mount command; NULL = none */
};
void parameters_clear(struct parameters *parameters);
#define auto_parameters __attribute__((cleanup(parameters_clear)))

/* Of a class, or of a volume's context (then unknown keys are passed over: kubelet adds its own). Failures are
 * INVALID_ARGUMENT and name the key. Server and share may be missing: callers check. */
int parameters_read(struct csi_map map, bool is_context, struct parameters *parameters, struct err *err);
/* Only server, share and mount options; the rest is checked but templates are not filled in. For GetCapacity. */
int parameters_read_place(struct csi_map map, struct parameters *parameters, struct err *err);
/* version, port and mountport out of mount options: "nfsvers=4.1,port=2049" or one option a string. */
int parameters_read_mount_options(const char *options, struct share_location *where, struct err *err);
int parameters_read_mount_flags(const Csi__V1__VolumeCapability *capability, struct share_location *where,
                                struct err *err);

/* Fills in ${pvc.metadata.name}, ${pvc.metadata.namespace}, ${pv.metadata.name} (subDir) and ${.PVC.name},
 * ${.PVC.namespace}, ${.PVC.labels.KEY}, ${.PVC.annotations.KEY} (pathPattern). A value that the provisioner did not
 * pass is an error that says how it is made to; values may not bring in slashes, "." or "..". */
char *template_fill(const char *pattern, struct csi_map map, struct err *err);

#endif
