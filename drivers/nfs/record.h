/* SPDX-License-Identifier: Apache-2.0 */
/* What is known about a volume or snapshot, as a small JSON file on its share. */
#ifndef BERTH_NFS_RECORD_H
#define BERTH_NFS_RECORD_H

#include "drivers/nfs/area.h"
#include "drivers/nfs/handle.h"

enum record_state {
    RECORD_CREATING, /* not answered for yet: the next CreateVolume goes on */
    RECORD_READY,
    RECORD_DELETING,  /* the next DeleteVolume goes on */
    RECORD_ARCHIVING, /* the same; `archive` is where it goes */
};
struct record {
    char *id, *name; /* name as CSI gave it */
    char *sub_dir;   /* of a volume; NULL for a snapshot */
    enum on_delete on_delete;
    enum record_state state;
    int64_t capacity;                      /* bytes, 0 = none asked for */
    int64_t created;                       /* wall ns */
    char *source_snapshot, *source_volume; /* ids, NULL = none; of a snapshot: the volume */
    char *source_handle;                   /* of a snapshot: the volume's whole id */
    int64_t content;                       /* of a snapshot: bytes of its files */
    char *archive;                         /* path, while RECORD_ARCHIVING */
};
void record_clear(struct record *record);
#define auto_record __attribute__((cleanup(record_clear)))

/* In area->volumes or area->snapshots. 1 = found, 0 = there is none, -1 = error (also when it is damaged). */
int record_load(struct area *area, const struct share_fh *dir, const char *id, struct record *record, struct err *err);
int record_save(struct area *area, const struct share_fh *dir, const struct record *record, struct err *err);
int record_remove(struct area *area, const struct share_fh *dir, const char *id, struct err *err); /* absent = 0 */
/* Calls visit for each; -1 from it ends. Damaged ones are logged and left out. */
int record_each(struct area *area, const struct share_fh *dir,
                int (*visit)(void *arg, const struct record *record, struct err *err), void *arg, struct err *err);

/* For the unit tests. */
char *record_to_text(const struct record *record);
int record_from_text(const char *text, size_t len, struct record *record, struct err *err);

#endif
