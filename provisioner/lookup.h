/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions' look-ups, answered from the stores or by the API server. */
#ifndef BERTH_PROVISIONER_LOOKUP_H
#define BERTH_PROVISIONER_LOOKUP_H

#include "provisioner/provisioner.h"

void lookup_init(struct provisioner *provisioner);

#endif
