/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the volume object. What cannot be written at once (API server away) is tried again in the background until it
 * is, without end: the claim's part is done then. An object of that name that exists already counts as ours only when
 * it is about the same volume and claim; a volume that lost such a race is deleted with the driver.
 */
#ifndef BERTH_PROVISIONER_SAVE_H
#define BERTH_PROVISIONER_SAVE_H

#include "provisioner/provisioner.h"
#include "provisioner/request.h"

struct saver *saver_start(struct provisioner *provisioner);
void saver_stop(struct saver *saver); /* NULL is fine */
/* Whether a volume of that name waits to be written. */
bool saver_has(struct saver *saver, const char *volume_name);

enum save_result {
    SAVE_DONE,     /* written, or it was there already */
    SAVE_LATER,    /* goes on in the background */
    SAVE_REJECTED, /* the name belongs to another volume; ours was deleted (or at least tried), err says what happened
                    */
};
/* Takes the reference to `volume`. `handle` is the driver's id of it, `record` is the call's (record.h), for what
 * follows when the process has to clean up later. */
enum save_result save_volume(struct provisioner *provisioner, const struct provision_request *request, json_t *volume,
                             const char *handle, const char *record, struct err *err);

/* DeleteVolume for a volume that must not stay: up to five tries within one deadline; failure is logged. -1 also
 * without an id, and for one that a volume object is about: then it is somebody else's, and the driver made a mistake.
 */
int cleanup_volume(struct provisioner *provisioner, const struct provision_request *request, const char *volume_id);

#endif
