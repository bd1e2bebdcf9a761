/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of the driver and the HTTP server for them. */
#ifndef BERTH_HOSTPATH_TELEMETRY_H
#define BERTH_HOSTPATH_TELEMETRY_H

#include "drivers/hostpath/driver.h"

struct telemetry;
/* `address` empty = metrics are kept, nobody serves them. */
struct telemetry *telemetry_new(struct hostpath *driver, const char *address, struct err *err);
void telemetry_free(struct telemetry *telemetry);
/* For csi_server_options.on_finished. */
void telemetry_call_finished(void *telemetry, const struct csi_method *method, int code, double seconds);

#endif
