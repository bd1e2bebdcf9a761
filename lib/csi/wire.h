/* SPDX-License-Identifier: Apache-2.0 */
/* What protobuf-c does not check: text in encoded and in built messages. Inside lib/csi only. */
#ifndef BERTH_CSI_WIRE_H
#define BERTH_CSI_WIRE_H

#include "lib/base/err.h"
#include "lib/csi/message.h"

#include <stdint.h>

/* An encoded message from a peer, before it is unpacked: well-formed, not nested deeper than 32, and every string field
 * UTF-8 without NUL (protobuf-c would hand on a truncated text). ERR_INVALID names the field. */
int csi_wire_check(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len, struct err *err);
/* A message that is about to be sent: every string is UTF-8. */
int csi_message_check(const ProtobufCMessage *message, struct err *err);
/* Checks and unpacks. With an arena the message lives there, without one it is the caller's (csi_message_free). */
ProtobufCMessage *csi_wire_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                                  struct csi_arena *arena, struct err *err);
/* Text of a peer for our log and errors: bytes that are not UTF-8 become '?', cut at `limit` bytes. */
char *csi_text_clean(const void *data, size_t len, size_t limit);

#endif
