/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that CSI demands of every request; server.h tells what they are. Inside lib/csi only. */
#ifndef BERTH_CSI_VALIDATE_H
#define BERTH_CSI_VALIDATE_H

#include "lib/base/err.h"

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#define CSI_ID_BYTES ((size_t)128)

/* `max_id_bytes` bounds ids and names. Failures are ERR_RPC with the gRPC status and name the field. */
int csi_validate(const ProtobufCMessage *request, size_t max_id_bytes, struct err *err);

#endif
