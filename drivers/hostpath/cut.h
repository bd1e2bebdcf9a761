/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of volumes at one point of time, as far as that can be had: for snapshots, clones and restores. */
#ifndef BERTH_HOSTPATH_CUT_H
#define BERTH_HOSTPATH_CUT_H

#include "drivers/common/copy.h"
#include "drivers/hostpath/driver.h"

/* A pause of the writes to a volume; of one that is not mounted, or whose backend cannot pause, it is empty. */
struct cut_pause {
    int handle; /* -1 = none */
};
int cut_pause_begin(struct hostpath *driver, const char *volume_id, struct cut_pause *pause, struct err *err);
void cut_pause_end(struct cut_pause *pause);
#define auto_cut_pause __attribute__((cleanup(cut_pause_end)))

/* Copies the contents of one object into the directory of another, which was made by state_make_data. */
struct cut_object {
    enum state_data kind;
    const char *id;
};
int cut_copy(struct hostpath *driver, struct copy *copy, struct cut_object from, bool image, struct cut_object to,
             struct err *err);

#endif
