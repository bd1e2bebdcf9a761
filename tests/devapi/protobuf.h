/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies in Kubernetes' protobuf encoding, for the few kinds that kubectl creates that way (kubectl create namespace,
 * configmap, secret, serviceaccount). Answers are JSON: clients accept both.
 */
#ifndef BERTH_DEVAPI_PROTOBUF_H
#define BERTH_DEVAPI_PROTOBUF_H

#include "lib/base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Whether the bytes start with the mark of the encoding. */
bool protobuf_is_object(const void *data, size_t len);
/* The object as JSON; NULL with ERR_INVALID when it is malformed or of a kind that is not known here. */
json_t *protobuf_decode_object(const void *data, size_t len, struct err *err);

#endif
