/* SPDX-License-Identifier: Apache-2.0 */
/* What client and server share about the gRPC core. Inside lib/csi only: nothing else includes a grpc header. */
#ifndef BERTH_CSI_RUNTIME_H
#define BERTH_CSI_RUNTIME_H

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/csi/message.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <stdint.h>

#define CSI_DEFAULT_MESSAGE_BYTES ((size_t)4 * 1024 * 1024)
/* Go programs accept 16 MiB of headers; drivers send whole outputs of failed commands as status texts. */
#define CSI_METADATA_BYTES (1024 * 1024)
#define CSI_DEFAULT_LOG_VERBOSITY 5

/* Each client and server holds the core once. */
void csi_runtime_acquire(void);
void csi_runtime_release(void);

grpc_byte_buffer *csi_pack(const ProtobufCMessage *message);
/* Reads, checks and unpacks; see csi_wire_unpack for the arena. */
ProtobufCMessage *csi_unpack(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *buffer, struct csi_arena *arena,
                             struct err *err);

static inline grpc_arg csi_arg(const char *key, int value)
{
    /* the core's struct is not const-correct: it only reads the key */
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value = {.integer = value}};
}

/* The happens-before edges that the thread sanitizer cannot see, since they lead through the core, which is not
 * instrumented: what was written before an operation was started is read after its completion was fetched. */
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer) /* the latter is in mem.h for gcc, too */
#define CSI_TSAN 1
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define CSI_STARTS(tag) __tsan_release(tag)
#define CSI_COMPLETED(tag) __tsan_acquire(tag)
#else
#define CSI_STARTS(tag) ((void)0)
#define CSI_COMPLETED(tag) ((void)0)
#endif

#endif
