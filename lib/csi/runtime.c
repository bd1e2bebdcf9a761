/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/csi/runtime.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/wire.h"

#include <dlfcn.h>
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

/* Debian builds abseil, whose mutexes the core uses, without NDEBUG. Each lock then enters a graph of all locks (70
 * KiB, behind a lock of its own), and the process is ended where the order of two locks only looks as if they might
 * block each other some day. As in other builds, there shall be no graph. The function has no name in C; where abseil's
 * version, and with it the name, is another one, all stays as it is. */
static void no_lock_graph(void)
{
    static const char name[] = "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE";
    enum { IGNORE = 0 }; /* absl::OnDeadlockCycle::kIgnore */
    void *symbol = dlsym(RTLD_DEFAULT, name);
    void (*set_mode)(int mode) = NULL;
    memcpy(&set_mode, &symbol, sizeof(set_mode)); /* ISO C knows no conversion */
    if (set_mode != NULL)
        set_mode(IGNORE);
}

static void set_up(void)
{
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    gpr_set_log_function(log_core);
    no_lock_graph();
}

void csi_runtime_acquire(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_up);
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
