/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one call on the server:
 *
 *     armed ──arrived──► payload read ──pool──► checked, handled, answered ──sent──► gone
 *                  └────► closed (the peer is done with it: for good, or because it gave up) ─┘
 *
 * Every method goes through the core's general request, also unknown ones, which would otherwise hang until the
 * caller's deadline. Closing is watched by an operation of its own from the beginning, so a handler sees a cancellation
 * while it runs. Each stage that is under way holds a reference on the call; the last one frees it. After an operation
 * was started its completion may already have been served by another thread, so nothing of the call is touched without
 * a reference.
 */
#include "lib/csi/server_internal.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/validate.h"
#include "lib/csi/wire.h"

#include <grpc/support/time.h>
#include <string.h>

/* C core peers accept 8 KiB of metadata by default, in which other bytes than ASCII count three times. */
#define STATUS_TEXT_MAX ((size_t)2048)
#define METHOD_TEXT_MAX ((size_t)256)

struct csi_call {
    struct csi_job job;
    struct csi_server *server;
    struct csi_call *next, **previous; /* list of the server's calls */
    atomic_int references;
    bool has_arrived;
    struct tag arrived, payload_read, closed, sent;

    grpc_call *core;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *payload;
    int closed_by_cancel; /* written by the core */

    const struct csi_method *method;
    const struct service *service;
    int64_t arrival;
    struct csi_arena request_memory, reply_memory;

    pthread_mutex_t mutex;
    bool handling; /* a handler works on it */
    bool cancelled;
    struct stop *stop;
};

static void call_unref(struct csi_call *call)
{
    if (atomic_fetch_sub(&call->references, 1) > 1)
        return;
    struct csi_server *server = call->server;
    if (call->core != NULL)
        grpc_call_unref(call->core);
    if (call->payload != NULL)
        grpc_byte_buffer_destroy(call->payload);
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    csi_arena_free(&call->request_memory);
    csi_arena_free(&call->reply_memory);
    if (call->stop != NULL)
        stop_free(call->stop);
    pthread_mutex_destroy(&call->mutex);
    pthread_mutex_lock(&server->mutex);
    *call->previous = call->next;
    if (call->next != NULL)
        call->next->previous = call->previous;
    server->in_flight -= call->has_arrived ? 1 : 0;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
#ifndef __clang_analyzer__ /* it does not count references */
    free(call);
#endif
}

static void start(struct csi_call *call, const grpc_op *ops, size_t n, struct tag *tag)
{
    atomic_fetch_add(&call->references, 1);
    CSI_STARTS(tag);
    if (grpc_call_start_batch(call->core, ops, n, tag, NULL) != GRPC_CALL_OK)
        call_unref(call); /* the tag never comes back */
}

/* ---- what handlers see ---- */

struct csi_arena *csi_call_arena(struct csi_call *call)
{
    return &call->reply_memory;
}

const struct csi_method *csi_call_method(const struct csi_call *call)
{
    return call->method;
}

int64_t csi_call_remaining(struct csi_call *call)
{
    const gpr_timespec deadline = gpr_convert_clock_type(call->details.deadline, GPR_CLOCK_MONOTONIC);
    if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0)
        return CLOCK_NEVER;
    const gpr_timespec left = gpr_time_sub(deadline, gpr_now(GPR_CLOCK_MONOTONIC));
    if (left.tv_sec >= CLOCK_NEVER / CLOCK_SECOND - 1)
        return CLOCK_NEVER;
    return left.tv_sec * CLOCK_SECOND + left.tv_nsec;
}

bool csi_call_cancelled(struct csi_call *call)
{
    pthread_mutex_lock(&call->mutex);
    const bool cancelled = call->cancelled;
    pthread_mutex_unlock(&call->mutex);
    return cancelled || csi_call_remaining(call) <= 0;
}

struct stop *csi_call_stop(struct csi_call *call)
{
    pthread_mutex_lock(&call->mutex);
    if (call->stop == NULL) {
        call->stop = stop_new();
        if (call->cancelled)
            stop_request(call->stop);
    }
    struct stop *stop = call->stop;
    pthread_mutex_unlock(&call->mutex);
    return stop;
}

static void on_closed(struct tag *tag, bool ok)
{
    struct csi_call *call = tag->call;
    if (!ok || call->closed_by_cancel != 0) {
        pthread_mutex_lock(&call->mutex);
        call->cancelled = true;
        if (call->stop != NULL)
            stop_request(call->stop);
        pthread_mutex_unlock(&call->mutex);
    }
    call_unref(call);
}

/* ---- answering ---- */

static void on_sent(struct tag *tag, bool ok)
{
    (void)ok; /* the caller has gone: nobody is left to tell */
    call_unref(tag->call);
}

static void send_reply(struct csi_call *call, int code, const char *message, grpc_byte_buffer *payload)
{
    auto_free char *clean = csi_text_clean(message, strlen(message), STATUS_TEXT_MAX);
    grpc_slice details = grpc_slice_from_copied_string(clean);
    grpc_op ops[3] = {{0}};
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[1].data.send_status_from_server.status = (grpc_status_code)code;
    ops[1].data.send_status_from_server.status_details = &details;
    ops[2].op = GRPC_OP_SEND_MESSAGE;
    ops[2].data.send_message.send_message = payload;
    start(call, ops, payload == NULL ? 2 : 3, &call->sent);
    grpc_slice_unref(details);
    if (payload != NULL)
        grpc_byte_buffer_destroy(payload);
}

static void log_message(const struct csi_call *call, const char *phrase, const char *key,
                        const ProtobufCMessage *message)
{
    auto_str struct str text = {0};
    csi_message_print(message, &text);
    log_info(phrase, kv_str("method", call->method->path), kv_str(key, str_text(&text)));
}

static void log_failure(const struct csi_call *call, int code, const char *message)
{
    const struct csi_server_options *options = &call->server->options;
    const bool ours = code == CSI_INTERNAL || code == CSI_UNKNOWN || code == CSI_DATA_LOSS;
    if (ours)
        log_error("GRPC error", kv_str("method", call->method->path), kv_str("code", csi_code_name(code)),
                  kv_str("err", message));
    else if (log_enabled(options->log_verbosity < 3 ? options->log_verbosity : 3, __FILE__))
        log_info("GRPC error", kv_str("method", call->method->path), kv_str("code", csi_code_name(code)),
                 kv_str("err", message));
}

/* The one way out of a call with a known method. `reply` is NULL on failure, and `err` tells why. */
static void answer(struct csi_call *call, const ProtobufCMessage *reply, const struct err *err)
{
    const struct csi_server_options *options = &call->server->options;
    grpc_byte_buffer *payload = NULL;
    int code = CSI_OK;
    if (reply == NULL) {
        code = csi_code_of(err);
        log_failure(call, code, err_text(err));
    } else {
        payload = csi_pack(reply);
        if (log_enabled(options->log_verbosity, __FILE__))
            log_message(call, "GRPC response", "response", reply);
    }
    if (options->on_finished != NULL)
        options->on_finished(options->arg, call->method, code,
                             (double)(clock_mono(clock_real()) - call->arrival) / (double)CLOCK_SECOND);
    send_reply(call, code, reply == NULL ? err_text(err) : "", payload);
}

/* ---- handling ---- */

/* The handler functions differ only in the types of two pointers to structs, and structs that begin with
 * ProtobufCMessage; each is called through a function of its own with exactly its type. */
typedef int (*invoke_fn)(const struct service *service, const ProtobufCMessage *request, ProtobufCMessage *reply,
                         struct csi_call *call, struct err *err);
#define INVOKE_DEFINE(c_name, service_name, rpc, Request, request_, Reply, reply_, light)                              \
    static int invoke_##c_name(const struct service *service, const ProtobufCMessage *request,                         \
                               ProtobufCMessage *reply, struct csi_call *call, struct err *err)                        \
    {                                                                                                                  \
        return service->handlers->c_name(service->driver, (const Request *)request, (Reply *)reply, call, err);        \
    }
CSI_METHODS(INVOKE_DEFINE)

static invoke_fn invoke_of(const struct csi_method *method)
{
#define INVOKE_ENTRY(c_name, service_name, rpc, Request, request_, Reply, reply_, light)                               \
    {&csi_method_##c_name, invoke_##c_name},
    static const struct {
        const struct csi_method *method;
        invoke_fn invoke;
    } table[] = {CSI_METHODS(INVOKE_ENTRY)};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].method == method)
            return table[i].invoke;
    return NULL;
}

static const struct service *find_service(const struct csi_server *server, const struct csi_method *method)
{
    for (size_t i = 0; i < server->n_services; i++) {
        void (*handler)(void);
        memcpy(&handler, (const unsigned char *)server->services[i].handlers + method->handler_offset, sizeof(handler));
        if (handler != NULL)
            return &server->services[i];
    }
    return NULL;
}

static ProtobufCMessage *read_request(struct csi_call *call, struct err *err)
{
    ProtobufCMessage *request = csi_unpack(call->method->request, call->payload, &call->request_memory, err);
    grpc_byte_buffer_destroy(call->payload);
    call->payload = NULL;
    return request;
}

static int check_request(const struct csi_call *call, const ProtobufCMessage *request, struct err *err)
{
    const struct csi_server_options *options = &call->server->options;
    if (csi_validate(request, options->max_id_bytes, err) < 0)
        return -1;
    return options->validate == NULL ? 0 : options->validate(options->arg, call->method, request, err);
}

static void set_handling(struct csi_call *call, bool handling)
{
    pthread_mutex_lock(&call->server->mutex);
    call->handling = handling;
    pthread_mutex_unlock(&call->server->mutex);
}

static ProtobufCMessage *handle(struct csi_call *call, const ProtobufCMessage *request, struct err *err)
{
    ProtobufCMessage *reply = csi_arena_alloc(&call->reply_memory, call->method->reply->sizeof_message);
    protobuf_c_message_init(call->method->reply, reply);
    set_handling(call, true);
    const int result = invoke_of(call->method)(call->service, request, reply, call, err);
    set_handling(call, false);
    if (result < 0) {
        if (err->code == ERR_NONE)
            err_set(err, ERR_INTERNAL, "%s failed without saying why", call->method->name);
        return NULL;
    }
    auto_err struct err text_err = {0};
    if (csi_message_check(reply, &text_err) < 0) {
        err_set(err, ERR_INTERNAL, "the reply to %s cannot be sent: %s", call->method->name, err_text(&text_err));
        return NULL;
    }
    return reply;
}

static ProtobufCMessage *process(struct csi_call *call, struct err *err)
{
    /* after a wait for a free worker: nobody would use the answer */
    if (csi_call_cancelled(call)) {
        const bool late = csi_call_remaining(call) <= 0;
        csi_fail(err, late ? CSI_DEADLINE_EXCEEDED : CSI_CANCELED, "the caller gave up before %s began",
                 call->method->name);
        return NULL;
    }
    ProtobufCMessage *request = read_request(call, err);
    if (request == NULL)
        return NULL;
    if (log_enabled(call->server->options.log_verbosity, __FILE__))
        log_message(call, "GRPC call", "request", request);
    if (check_request(call, request, err) < 0)
        return NULL;
    return handle(call, request, err);
}

void csi_serve_job(struct csi_job *job)
{
    struct csi_call *call = (struct csi_call *)job; /* its first member */
    auto_err struct err err = {0};
    ProtobufCMessage *reply = process(call, &err);
    answer(call, reply, &err);
    call_unref(call);
}

/* ---- arriving ---- */

static void on_payload_read(struct tag *tag, bool ok)
{
    struct csi_call *call = tag->call; /* its reference goes on to the pool */
    auto_err struct err err = {0};
    call->job.light = call->method->light;
    if (!ok || call->payload == NULL)
        csi_fail(&err, CSI_INVALID_ARGUMENT, "the request of %s did not arrive, or is larger than %zu bytes",
                 call->method->name, call->server->options.max_message_bytes);
    else if (csi_pool_submit(call->server->pool, &call->job))
        return;
    else
        csi_fail(&err, CSI_UNAVAILABLE, "too many calls are waiting");
    answer(call, NULL, &err);
    call_unref(call);
}

/* Calls without a handler are answered without reading their request. */
static void refuse(struct csi_call *call, int code, const char *text, const char *path)
{
    log_v(3, "GRPC error", kv_str("method", path), kv_str("code", csi_code_name(code)), kv_str("err", text));
    send_reply(call, code, text, NULL);
}

static void accept_call(struct csi_call *call, bool draining)
{
    call->arrival = clock_mono(clock_real());
    grpc_op close_op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close_op.data.recv_close_on_server.cancelled = &call->closed_by_cancel;
    start(call, &close_op, 1, &call->closed);
    auto_free char *path = csi_text_clean(GRPC_SLICE_START_PTR(call->details.method),
                                          GRPC_SLICE_LENGTH(call->details.method), METHOD_TEXT_MAX);
    call->method = csi_method_find(path);
    call->service = call->method == NULL ? NULL : find_service(call->server, call->method);
    if (draining) {
        refuse(call, CSI_UNAVAILABLE, "the server is stopping", path);
        return;
    }
    if (call->service == NULL) {
        auto_free char *text = mem_printf("unknown method %s", path);
        refuse(call, CSI_UNIMPLEMENTED, text, path);
        return;
    }
    grpc_op read_op = {.op = GRPC_OP_RECV_MESSAGE};
    read_op.data.recv_message.recv_message = &call->payload;
    start(call, &read_op, 1, &call->payload_read);
}

static void on_arrived(struct tag *tag, bool ok)
{
    struct csi_call *call = tag->call;
    struct csi_server *server = call->server;
    if (ok) {
        pthread_mutex_lock(&server->mutex);
        const bool draining = server->draining;
        call->has_arrived = true;
        server->in_flight++;
        pthread_mutex_unlock(&server->mutex);
        csi_serve_arm(server);
        accept_call(call, draining);
    }
    call_unref(call);
}

void csi_serve_arm(struct csi_server *server)
{
    struct csi_call *call = mem_new(struct csi_call);
    call->server = server;
    call->arrived = (struct tag){on_arrived, call};
    call->payload_read = (struct tag){on_payload_read, call};
    call->closed = (struct tag){on_closed, call};
    call->sent = (struct tag){on_sent, call};
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    pthread_mutex_init(&call->mutex, NULL);
    atomic_init(&call->references, 1);
    pthread_mutex_lock(&server->mutex);
    call->next = server->calls;
    if (call->next != NULL)
        call->next->previous = &call->next;
    call->previous = &server->calls;
    server->calls = call;
    pthread_mutex_unlock(&server->mutex);
    CSI_STARTS(&call->arrived);
    if (grpc_server_request_call(server->core, &call->core, &call->details, &call->metadata, server->queue,
                                 server->queue, &call->arrived) != GRPC_CALL_OK)
        call_unref(call);
}

char *csi_serve_running(struct csi_server *server)
{
    struct str names = {0};
    pthread_mutex_lock(&server->mutex);
    for (const struct csi_call *call = server->calls; call != NULL; call = call->next)
        if (call->handling)
            str_addf(&names, "%s%s", names.len > 0 ? ", " : "", call->method->name);
    pthread_mutex_unlock(&server->mutex);
    return str_take(&names);
}
