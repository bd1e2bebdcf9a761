/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way from the server to the handlers. What a handler means to say to the caller it says with csi_fail; any other
 * error (a file that is missing, a path that exists) is the driver's own trouble and must not look like "no such
 * volume" or "exists already", on which an orchestrator would act: here it becomes 13 INTERNAL.
 */
#ifndef BERTH_HOSTPATH_DISPATCH_H
#define BERTH_HOSTPATH_DISPATCH_H

#include "lib/csi/server.h"

/* The table for the server; it works on a struct hostpath. */
struct csi_handlers dispatch_handlers(void);
/* Gives the error the gRPC code it is answered with. Returns -1. */
int dispatch_settle(struct err *err);

#endif
