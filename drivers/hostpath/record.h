/* SPDX-License-Identifier: Apache-2.0 */
/* Records on disk: JSON with a format number, so that an older driver refuses what it does not understand. */
#ifndef BERTH_HOSTPATH_RECORD_H
#define BERTH_HOSTPATH_RECORD_H

#include "drivers/hostpath/state.h"

#define RECORD_FORMAT 1

json_t *record_from_volume(const struct volume *volume);                /* a new reference */
struct volume *record_to_volume(const json_t *record, struct err *err); /* owned by the caller; NULL on failure */

#endif
