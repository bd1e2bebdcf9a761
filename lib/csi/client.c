/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call has a completion queue of its own that its thread plucks from, so the core's work for a call is done by the
 * thread that waits for it and no thread of ours stands between. The only thread is the watcher of the connection, and
 * only when somebody wants to hear about it.
 */
#include "lib/csi/client.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/runtime.h"
#include "lib/csi/wire.h"

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <string.h>

#define STATUS_TEXT_MAX ((size_t)16 * 1024)
#define BACKOFF_MIN_MS 200
#define BACKOFF_MAX_MS 1000
#define STILL_CONNECTING_EVERY (10 * CLOCK_SECOND)
/* A connectivity watch cannot be taken back, so a wait that a stop must end is done in steps of this. */
#define WAIT_STEP_MS 100

struct csi_client {
    struct csi_client_options options;
    char *path;
    grpc_channel *channel;
    grpc_completion_queue *watch_queue;
    pthread_t watcher;
    bool watched;
    pthread_mutex_t mutex; /* the watcher against csi_client_free */
    bool stopping;
};

/* The core takes URIs: everything special in a path has to be escaped. */
static char *target_of(const char *path)
{
    struct str target = {0};
    str_add(&target, "unix:");
    for (const char *c = path; *c != '\0'; c++) {
        if (strchr("/-_.~", *c) != NULL || (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
            (*c >= 'A' && *c <= 'Z'))
            str_add_char(&target, *c);
        else
            str_addf(&target, "%%%02X", (unsigned)(unsigned char)*c);
    }
    return str_take(&target);
}

static grpc_channel *open_channel(const char *path, size_t max_message_bytes)
{
    grpc_arg args[] = {
        csi_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)max_message_bytes),
        csi_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1),
        csi_arg(GRPC_ARG_MAX_METADATA_SIZE, CSI_METADATA_BYTES),
        csi_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, BACKOFF_MIN_MS),
        csi_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, BACKOFF_MIN_MS),
        csi_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_MAX_MS),
        /* a connection that was only idle must not look like a driver that died */
        csi_arg(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, INT32_MAX),
        /* repeating a call is the caller's decision */
        csi_arg(GRPC_ARG_ENABLE_RETRIES, 0),
        csi_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        csi_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        csi_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        csi_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
    };
    const grpc_channel_args channel_args = {.num_args = ARRAY_LEN(args), .args = args};
    auto_free char *target = target_of(path);
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

/* ---- the connection ---- */

static bool watch(struct csi_client *client, grpc_connectivity_state last)
{
    pthread_mutex_lock(&client->mutex);
    const bool go_on = !client->stopping;
    if (go_on)
        grpc_channel_watch_connectivity_state(client->channel, last, gpr_inf_future(GPR_CLOCK_MONOTONIC),
                                              client->watch_queue, client);
    pthread_mutex_unlock(&client->mutex);
    return go_on;
}

static grpc_connectivity_state state_now(struct csi_client *client)
{
    pthread_mutex_lock(&client->mutex);
    grpc_connectivity_state state =
        client->stopping ? GRPC_CHANNEL_SHUTDOWN : grpc_channel_check_connectivity_state(client->channel, 1);
    pthread_mutex_unlock(&client->mutex);
    return state;
}

static void *watch_connection(void *arg)
{
    struct csi_client *client = arg;
    grpc_connectivity_state last = state_now(client);
    bool connected = false;
    while (last != GRPC_CHANNEL_SHUTDOWN) {
        if (last == GRPC_CHANNEL_READY && !connected) {
            connected = true;
            client->options.on_connection(client->options.arg, CSI_CONNECTION_CONNECTED);
        }
        if (!watch(client, last))
            break;
        grpc_completion_queue_next(client->watch_queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        const grpc_connectivity_state now = state_now(client);
        /* a watch ends because the state it began with was left, even if the connection is up again by now */
        if (connected && now != GRPC_CHANNEL_SHUTDOWN) {
            connected = false;
            client->options.on_connection(client->options.arg, CSI_CONNECTION_LOST);
        }
        last = now;
    }
    return NULL;
}

bool csi_client_connected(struct csi_client *client)
{
    return grpc_channel_check_connectivity_state(client->channel, 0) == GRPC_CHANNEL_READY;
}

static int wait_step(struct csi_client *client, grpc_completion_queue *queue, int64_t deadline, struct stop *cancel,
                     int64_t *next_log, struct err *err)
{
    const grpc_connectivity_state state = grpc_channel_check_connectivity_state(client->channel, 1);
    if (state == GRPC_CHANNEL_READY)
        return 1;
    if (cancel != NULL && stop_requested(cancel))
        return err_set(err, ERR_CANCELLED, "stopped while connecting to the CSI driver at %s", client->path);
    const int64_t now = clock_mono(clock_real());
    if (now >= deadline)
        return err_set(err, ERR_TIMEOUT, "no CSI driver accepts connections at %s", client->path);
    if (now >= *next_log) {
        log_warn("Still connecting to the CSI driver", kv_str("address", client->path));
        *next_log = now + STILL_CONNECTING_EVERY;
    }
    int64_t step = WAIT_STEP_MS * CLOCK_MS;
    if (deadline - now < step)
        step = deadline - now;
    grpc_channel_watch_connectivity_state(
        client->channel, state, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(step, GPR_TIMESPAN)),
        queue, client);
    grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    return 0;
}

int csi_client_wait(struct csi_client *client, int64_t timeout_ns, struct stop *cancel, struct err *err)
{
    const int64_t now = clock_mono(clock_real());
    const int64_t deadline = timeout_ns >= CLOCK_NEVER - now ? CLOCK_NEVER : now + timeout_ns;
    int64_t next_log = now + STILL_CONNECTING_EVERY;
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    int result;
    do
        result = wait_step(client, queue, deadline, cancel, &next_log, err);
    while (result == 0);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    return result == 1 ? 0 : -1;
}

struct csi_client *csi_client_new(const char *address, const struct csi_client_options *options, struct err *err)
{
    auto_free char *path = csi_address_path(address, err);
    if (path == NULL)
        return NULL;
    struct csi_client *client = mem_new(struct csi_client);
    if (options != NULL)
        client->options = *options;
    if (client->options.max_message_bytes == 0)
        client->options.max_message_bytes = CSI_DEFAULT_MESSAGE_BYTES;
    if (client->options.max_message_bytes > INT32_MAX)
        client->options.max_message_bytes = INT32_MAX;
    if (client->options.log_verbosity == 0)
        client->options.log_verbosity = CSI_DEFAULT_LOG_VERBOSITY;
    client->path = mem_take(path);
    pthread_mutex_init(&client->mutex, NULL);
    csi_runtime_acquire();
    client->channel = open_channel(client->path, client->options.max_message_bytes);
    if (client->options.on_connection != NULL) {
        client->watched = true;
        client->watch_queue = grpc_completion_queue_create_for_next(NULL);
        client->watcher = thread_start("csi-connection", watch_connection, client);
    }
    return client;
}

void csi_client_free(struct csi_client *client)
{
    if (client == NULL)
        return;
    /* the end of the channel is a change of its state, which wakes the watcher */
    pthread_mutex_lock(&client->mutex);
    client->stopping = true;
    grpc_channel_destroy(client->channel);
    pthread_mutex_unlock(&client->mutex);
    if (client->watched) {
        thread_join(client->watcher);
        grpc_completion_queue_shutdown(client->watch_queue);
        while (grpc_completion_queue_next(client->watch_queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
               GRPC_QUEUE_SHUTDOWN)
            ;
        grpc_completion_queue_destroy(client->watch_queue);
    }
    csi_runtime_release();
    pthread_mutex_destroy(&client->mutex);
    free(client->path);
    free(client);
}

/* ---- calls ---- */

struct outcome {
    grpc_status_code status;
    grpc_slice details;
    grpc_byte_buffer *payload;
};

static void outcome_clear(struct outcome *outcome)
{
    grpc_slice_unref(outcome->details);
    if (outcome->payload != NULL)
        grpc_byte_buffer_destroy(outcome->payload);
}

static void cancel_call(void *call)
{
    grpc_call_cancel_with_status(call, GRPC_STATUS_CANCELLED, "context canceled", NULL);
}

static gpr_timespec deadline_of(int64_t timeout_ns)
{
    if (timeout_ns == 0 || timeout_ns == CLOCK_NEVER)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(timeout_ns, GPR_TIMESPAN));
}

/* Sends, waits, and takes what came back apart from its meaning. */
static struct outcome exchange(struct csi_client *client, const struct csi_method *method,
                               const ProtobufCMessage *request, const struct csi_call_options *options)
{
    struct outcome outcome = {.status = GRPC_STATUS_UNKNOWN, .details = grpc_empty_slice()};
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    grpc_call *call = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                               grpc_slice_from_static_string(method->path), NULL,
                                               deadline_of(options->timeout_ns), NULL);
    grpc_byte_buffer *message = csi_pack(request);
    grpc_metadata_array headers, trailers;
    grpc_metadata_array_init(&headers);
    grpc_metadata_array_init(&trailers);
    const char *debug_text = NULL;
    grpc_op ops[6] = {{0}};
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[0].flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY_EXPLICITLY_SET |
                   (options->wait_for_ready ? GRPC_INITIAL_METADATA_WAIT_FOR_READY : 0);
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = message;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &headers;
    ops[4].op = GRPC_OP_RECV_MESSAGE;
    ops[4].data.recv_message.recv_message = &outcome.payload;
    ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[5].data.recv_status_on_client.trailing_metadata = &trailers;
    ops[5].data.recv_status_on_client.status = &outcome.status;
    ops[5].data.recv_status_on_client.status_details = &outcome.details;
    ops[5].data.recv_status_on_client.error_string = &debug_text;
    grpc_call_start_batch(call, ops, ARRAY_LEN(ops), call, NULL);
    if (options->cancel != NULL)
        stop_on(options->cancel, cancel_call, call);
    grpc_completion_queue_pluck(queue, call, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    if (options->cancel != NULL)
        stop_off(options->cancel, cancel_call, call);
    if (debug_text != NULL && outcome.status != GRPC_STATUS_OK)
        log_v(8, "gRPC core", kv_str("method", method->path), kv_str("error", debug_text));
    gpr_free((void *)(uintptr_t)debug_text);
    grpc_metadata_array_destroy(&headers);
    grpc_metadata_array_destroy(&trailers);
    grpc_byte_buffer_destroy(message);
    grpc_call_unref(call);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    return outcome;
}

static int fail(struct err *err, int code, const char *description)
{
    return err_set_status(err, ERR_RPC, code, "rpc error: code = %s desc = %s", csi_code_name(code), description);
}

/* The texts the core makes up itself are replaced by those of Go programs, which users search for. */
static int fail_with_status(struct csi_client *client, const struct outcome *outcome, struct err *err)
{
    auto_free char *details =
        csi_text_clean(GRPC_SLICE_START_PTR(outcome->details), GRPC_SLICE_LENGTH(outcome->details), STATUS_TEXT_MAX);
    if (outcome->status != GRPC_STATUS_DEADLINE_EXCEEDED || strcmp(details, "Deadline Exceeded") != 0)
        return fail(err, (int)outcome->status, details);
    if (csi_client_connected(client))
        return fail(err, CSI_DEADLINE_EXCEEDED, "context deadline exceeded");
    auto_free char *text = mem_printf("context deadline exceeded (no connection to %s)", client->path);
    return fail(err, CSI_DEADLINE_EXCEEDED, text);
}

static int interpret(struct csi_client *client, const struct csi_method *method, const struct outcome *outcome,
                     ProtobufCMessage **reply, struct err *err)
{
    if (outcome->status != GRPC_STATUS_OK)
        return fail_with_status(client, outcome, err);
    if (outcome->payload == NULL)
        return fail(err, CSI_INTERNAL, "the driver sent no reply message");
    auto_err struct err unpack_err = {0};
    *reply = csi_unpack(method->reply, outcome->payload, NULL, &unpack_err);
    if (*reply != NULL)
        return 0;
    auto_free char *text = mem_printf("bad reply of the driver: %s", err_text(&unpack_err));
    return fail(err, CSI_INTERNAL, text);
}

static int call_checked(struct csi_client *client, const struct csi_method *method, const ProtobufCMessage *request,
                        ProtobufCMessage **reply, const struct csi_call_options *options, struct err *err)
{
    auto_err struct err check_err = {0};
    if (csi_message_check(request, &check_err) < 0) {
        auto_free char *text = mem_printf("bad request: %s", err_text(&check_err));
        return fail(err, CSI_INTERNAL, text);
    }
    if (options->timeout_ns < 0)
        return fail(err, CSI_DEADLINE_EXCEEDED, "context deadline exceeded");
    struct outcome outcome = exchange(client, method, request, options);
    int result = interpret(client, method, &outcome, reply, err);
    outcome_clear(&outcome);
    return result;
}

static void log_message(const char *phrase, const struct csi_method *method, const char *key,
                        const ProtobufCMessage *message)
{
    auto_str struct str text = {0};
    csi_message_print(message, &text);
    log_info(phrase, kv_str("method", method->path), kv_str(key, str_text(&text)));
}

int csi_call(struct csi_client *client, const struct csi_method *method, const ProtobufCMessage *request,
             ProtobufCMessage **reply, const struct csi_call_options *options, struct err *err)
{
    static const struct csi_call_options defaults = {0};
    auto_err struct err call_err = {0};
    *reply = NULL;
    const bool verbose = log_enabled(client->options.log_verbosity, __FILE__);
    if (verbose)
        log_message("GRPC call", method, "request", request);
    const int64_t start = clock_mono(clock_real());
    options = options == NULL ? &defaults : options;
    int result = call_checked(client, method, request, reply, options, &call_err);
    const double seconds = (double)(clock_mono(clock_real()) - start) / (double)CLOCK_SECOND;
    if (verbose && result == 0)
        log_message("GRPC response", method, "response", *reply);
    else if (verbose)
        log_info("GRPC response", kv_str("method", method->path), kv_err(&call_err));
    if (client->options.on_finished != NULL)
        client->options.on_finished(client->options.arg, method, options->tag, result == 0 ? CSI_OK : call_err.status,
                                    seconds);
    err_move(err, &call_err);
    return result;
}
