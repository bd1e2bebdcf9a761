/* SPDX-License-Identifier: Apache-2.0 */
/* The program between the command line and the exit status. */
#ifndef BERTH_PROVISIONER_RUN_H
#define BERTH_PROVISIONER_RUN_H

#include "lib/base/stop.h"
#include "provisioner/options.h"

/* Runs until `stop` is requested. -1 when something the program cannot do without is missing. */
int provisioner_run(const struct options *options, struct settings *settings, struct stop *stop, struct err *err);

#endif
