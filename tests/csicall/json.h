/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of protobuf-c from and to JSON, by their descriptors: enough for the CSI messages (no bytes, no recursion).
 */
#ifndef BERTH_CSICALL_JSON_H
#define BERTH_CSICALL_JSON_H

#include "lib/csi/message.h"

#include <jansson.h>

/* Fills `message` (initialised) from an object whose keys are the proto's field names. Maps are JSON objects, enums
 * names or numbers, wrappers such as BoolValue plain values. An unknown key or a wrong type is an error. */
int json_to_message(struct csi_arena *arena, const json_t *json, ProtobufCMessage *message, struct err *err);
/* A new reference: every field, defaults too, except messages that are absent. */
json_t *json_from_message(const ProtobufCMessage *message);

#endif
