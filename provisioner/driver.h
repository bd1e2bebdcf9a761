/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the driver over the program's life. A driver that was restarted is asked again who it is and what
 * it can do; when that is not what it was, the program ends (and is started anew by its Pod), since everything was set
 * up for the old answers. With --exit-on-driver-loss it ends at once when the connection breaks, as csi-provisioner
 * does.
 */
#ifndef BERTH_PROVISIONER_DRIVER_H
#define BERTH_PROVISIONER_DRIVER_H

#include "provisioner/handshake.h"
#include "provisioner/provisioner.h"

struct driver_watch {
    struct provisioner *provisioner;
    struct handshake handshake; /* the first one's answers */
    _Atomic(bool) established;  /* the first handshake is done */
    _Atomic(bool) lost;         /* the connection broke since */
};
/* Connects and does the first handshake; fills the provisioner's driver client and the driver's part of its
 * configuration, whose strings live in *watch. */
int driver_connect(struct provisioner *provisioner, struct driver_watch *watch, struct err *err);
void driver_close(struct provisioner *provisioner, struct driver_watch *watch);
/* For /readyz; arg is the provisioner. */
int driver_check(void *provisioner, struct err *err);

#endif
