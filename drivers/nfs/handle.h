/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volume and snapshot ids. What a deletion needs to find the server is in them, so no secret has to be asked for.
 *
 *   ours       server#share#subDir#id#onDelete#b[,v4][,p2049][,m20048]    as csi-driver-nfs's, and one element more:
 *              that it is ours, version and ports. id is empty when it equals subDir; subDir is empty when the whole
 *              would be over 128 bytes: the record on the share knows it.
 *   theirs     server#share#subDir#uuid#onDelete, with fewer elements in older versions, and
 *              server/share/subDir from the oldest
 *   snapshots  server#share#id##source#b…   ours; the source is left out when it would be too long
 *              server#share#id#id#source    theirs
 *
 * share is written without its leading slash. No element holds a '#'.
 */
#ifndef BERTH_NFS_HANDLE_H
#define BERTH_NFS_HANDLE_H

#include "drivers/nfs/share.h"

#define HANDLE_BYTES 128            /* what CSI allows */
#define HANDLE_FOREIGN_BYTES 1024   /* what we accept: the peer does not count */
#define RESERVED_DIRECTORY ".berth" /* of our own files, at the top of each share */

enum on_delete { ON_DELETE_DEFAULT, ON_DELETE_DELETE, ON_DELETE_RETAIN, ON_DELETE_ARCHIVE };
bool on_delete_parse(const char *text, enum on_delete *policy); /* any case; "" is the default */
const char *on_delete_name(enum on_delete policy);              /* "" for the default */

struct handle {
    struct share_location where;
    char *sub_dir; /* clean; NULL = ask the record */
    char *id;      /* safe as a file name */
    char *source;  /* of a snapshot: id of the volume it was taken of; NULL = ask the record */
    enum on_delete on_delete;
    bool ours;
};
void handle_clear(struct handle *handle);
#define auto_handle __attribute__((cleanup(handle_clear)))

/* -1 with a reason when the text is none of these: for DeleteVolume then nothing exists. */
int handle_parse(const char *text, struct handle *handle, struct err *err);
int handle_parse_snapshot(const char *text, struct handle *handle, struct err *err);
/* Fails when it cannot be said in HANDLE_BYTES. The caller owns the result. */
char *handle_build(const struct handle *handle, struct err *err);
char *handle_build_snapshot(const struct handle *handle, struct err *err);

/* Server and share as users write them: "[fd00::1]" loses its brackets, "/export//a/" becomes "/export/a". */
int handle_set_location(struct share_location *where, const char *server, const char *share, struct err *err);
/* A path below the share: slashes at the ends and double ones go. "..", ".", '#', control characters, more than 1024
 * bytes, elements of more than 200 and what starts with RESERVED_DIRECTORY are refused. May give "". NULL on error;
 * `what` names it. */
char *handle_clean_path(const char *path, const char *what, struct err *err);
/* A name as CSI gives it as a file name: itself when it is a plain one, else a hash. The caller's. */
char *handle_id_of_name(const char *name);

#endif
