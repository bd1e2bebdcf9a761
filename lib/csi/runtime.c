/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/csi/runtime.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/wire.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/log.h>
#include <pthread.h>
#include <string.h>

#ifdef CSI_TSAN
/* Locks and atomics inside the core are invisible to the sanitizer, which would report its every hand-over as a race.
 */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "ignore_noninstrumented_modules=1";
}
#endif

/* The core reports what callers get as an error anyway, so its own words are for debugging. */
static void log_core(gpr_log_func_args *args)
{
    log_v(4, "gRPC core", kv_str("message", args->message), kv_str("file", args->file), kv_int("line", args->line));
}

static void set_up_logging(void)
{
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    gpr_set_log_function(log_core);
}

void csi_runtime_acquire(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up_logging);
    grpc_init();
}

void csi_runtime_release(void)
{
    grpc_shutdown_blocking();
}

grpc_byte_buffer *csi_pack(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

ProtobufCMessage *csi_unpack(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *buffer, struct csi_arena *arena,
                             struct err *err)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer)) {
        err_set(err, ERR_INVALID, "unknown compression of message %s", type->short_name);
        return NULL;
    }
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    ProtobufCMessage *message =
        csi_wire_unpack(type, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice), arena, err);
    grpc_slice_unref(slice);
    return message;
}
