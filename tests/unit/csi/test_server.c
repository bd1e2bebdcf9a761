/* SPDX-License-Identifier: Apache-2.0 */
/* Client and server against each other over real sockets: what a caller sees, and what a handler sees. */
#include "tests/unit/csi/support.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct seen {
    const struct csi_method *method;
    int code;
    int count;
};

struct fixture {
    char *directory;
    char *path;
    struct csi_server_options options;
    struct csi_server *server;
    struct csi_client *client;
    struct gate entered, open, left; /* of handlers that block */
    atomic_int calls;
    atomic_bool saw_cancel;
    int64_t remaining;
    pthread_mutex_t mutex;
    struct seen client_seen, server_seen;
};

/* ---- a driver ---- */

/* Any RPC: the request must be the filled one, the reply is a filled one. */
static int echo(struct fixture *fixture, const ProtobufCMessage *request, ProtobufCMessage *reply,
                struct csi_call *call, struct err *err)
{
    auto_csi_arena struct csi_arena arena = {0};
    atomic_fetch_add(&fixture->calls, 1);
    ProtobufCMessage *expected = csi_arena_alloc(&arena, request->descriptor->sizeof_message);
    protobuf_c_message_init(request->descriptor, expected);
    message_fill(&arena, expected);
    const size_t size = protobuf_c_message_get_packed_size(expected);
    if (size != protobuf_c_message_get_packed_size(request))
        return csi_fail(err, CSI_DATA_LOSS, "the request of %s arrived changed", csi_call_method(call)->name);
    message_fill(csi_call_arena(call), reply);
    return 0;
}
#define ECHO_DEFINE(name, service, rpc, Request, request_, Reply, reply_, light)                                       \
    static int echo_##name(void *driver, const Request *request, Reply *reply, struct csi_call *call, struct err *err) \
    {                                                                                                                  \
        return echo(driver, &request->base, &reply->base, call, err);                                                  \
    }
CSI_METHODS(ECHO_DEFINE)
#define ECHO_ENTRY(name, service, rpc, Request, request_, Reply, reply_, light) .name = echo_##name,
static const struct csi_handlers echo_handlers = {CSI_METHODS(ECHO_ENTRY)};

static int probe(void *driver, const Csi__V1__ProbeRequest *request, Csi__V1__ProbeResponse *reply,
                 struct csi_call *call, struct err *err)
{
    (void)driver, (void)request, (void)err;
    CSI_NEW(csi_call_arena(call), reply, ready)->value = 1;
    return 0;
}

/* Blocks until the gate opens or the caller gives up. */
static int delete_volume(void *driver, const Csi__V1__DeleteVolumeRequest *request,
                         Csi__V1__DeleteVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    (void)request, (void)reply;
    struct fixture *fixture = driver;
    fixture->remaining = csi_call_remaining(call);
    gate_add(&fixture->entered, 1);
    struct stop *stop = csi_call_stop(call);
    while (gate_count(&fixture->open) == 0 && !stop_sleep(stop, clock_real(), CLOCK_MS))
        ;
    const bool cancelled = stop_requested(stop);
    if (cancelled)
        atomic_store(&fixture->saw_cancel, csi_call_cancelled(call));
    gate_add(&fixture->left, 1);
    return cancelled ? csi_fail(err, CSI_ABORTED, "cancelled on the way") : 0;
}

/* Blocks whatever happens. */
static int node_unpublish_volume(void *driver, const Csi__V1__NodeUnpublishVolumeRequest *request,
                                 Csi__V1__NodeUnpublishVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    (void)request, (void)reply, (void)call, (void)err;
    struct fixture *fixture = driver;
    gate_add(&fixture->entered, 1);
    gate_wait(&fixture->open, 1);
    gate_add(&fixture->left, 1);
    return 0;
}

static int create_volume(void *driver, const Csi__V1__CreateVolumeRequest *request,
                         Csi__V1__CreateVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    (void)driver, (void)err;
    struct csi_arena *arena = csi_call_arena(call);
    Csi__V1__Volume *volume = CSI_NEW(arena, reply, volume);
    volume->volume_id = csi_arena_printf(arena, "id-of-%s", request->name);
    CSI_MAP_ADD_ALL(arena, volume, volume_context, CSI_MAP(request, parameters));
    return 0;
}

/* Fails as its parameters say. */
static int get_capacity(void *driver, const Csi__V1__GetCapacityRequest *request, Csi__V1__GetCapacityResponse *reply,
                        struct csi_call *call, struct err *err)
{
    (void)driver, (void)reply, (void)call;
    const char *how = csi_map_get(CSI_MAP(request, parameters), "fail");
    if (str_eq(how, "silent"))
        return -1;
    if (str_eq(how, "not found"))
        return err_set(err, ERR_NOT_FOUND, "no such pool");
    if (str_eq(how, "exact"))
        return csi_fail(err, CSI_RESOURCE_EXHAUSTED, "pool \xc3\xbc is full: 100%%");
    if (str_eq(how, "long")) {
        auto_free char *text = mem_calloc(1, 100001);
        memset(text, 'x', 100000);
        return err_set(err, ERR_INTERNAL, "%s", text);
    }
    return err_set(err, ERR_IO, "bad \xff byte\nnext line");
}

/* Puts raw bytes where the name belongs: a text that no honest peer would send. */
static ProtobufCMessageUnknownField raw_name(const char *bytes, size_t len)
{
    return (ProtobufCMessageUnknownField){
        .tag = 1, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, .len = len, .data = (uint8_t *)(uintptr_t)bytes};
}
static int get_plugin_info(void *driver, const Csi__V1__GetPluginInfoRequest *request,
                           Csi__V1__GetPluginInfoResponse *reply, struct csi_call *call, struct err *err)
{
    (void)driver, (void)request, (void)err;
    ProtobufCMessageUnknownField *field = csi_arena_alloc(csi_call_arena(call), sizeof(*field));
    *field = raw_name("\x04"
                      "a\0bc",
                      5);
    reply->base.unknown_fields = field;
    reply->base.n_unknown_fields = 1;
    return 0;
}
static int node_get_info(void *driver, const Csi__V1__NodeGetInfoRequest *request, Csi__V1__NodeGetInfoResponse *reply,
                         struct csi_call *call, struct err *err)
{
    (void)driver, (void)request, (void)err;
    reply->node_id = csi_arena_strdup(csi_call_arena(call), "bad \xc3\x28");
    return 0;
}
static int list_volumes(void *driver, const Csi__V1__ListVolumesRequest *request, Csi__V1__ListVolumesResponse *reply,
                        struct csi_call *call, struct err *err)
{
    (void)driver, (void)err;
    struct csi_arena *arena = csi_call_arena(call);
    for (int i = 0; i < request->max_entries; i++) {
        Csi__V1__ListVolumesResponse__Entry *entry = CSI_ADD(arena, reply, entries);
        CSI_NEW(arena, entry, volume)->volume_id = csi_arena_printf(arena, "volume-with-a-long-name-%060d", i);
    }
    return 0;
}

static const struct csi_handlers handlers = {
    .probe = probe,
    .delete_volume = delete_volume,
    .node_unpublish_volume = node_unpublish_volume,
    .create_volume = create_volume,
    .get_capacity = get_capacity,
    .get_plugin_info = get_plugin_info,
    .node_get_info = node_get_info,
    .list_volumes = list_volumes,
};

/* ---- set-up ---- */

static void saw(struct fixture *fixture, struct seen *seen, const struct csi_method *method, int code, double seconds)
{
    pthread_mutex_lock(&fixture->mutex);
    if (seconds >= 0)
        *seen = (struct seen){method, code, seen->count + 1};
    pthread_mutex_unlock(&fixture->mutex);
}
static void client_saw(void *arg, const struct csi_method *method, unsigned tag, int code, double seconds)
{
    assert_int_equal(tag, 0);
    saw(arg, &((struct fixture *)arg)->client_seen, method, code, seconds);
}
static void server_saw(void *arg, const struct csi_method *method, int code, double seconds)
{
    saw(arg, &((struct fixture *)arg)->server_seen, method, code, seconds);
}

static int set_up(void **state)
{
    struct fixture *fixture = mem_new(struct fixture);
    fixture->directory = directory_new();
    fixture->path = mem_printf("%s/csi.sock", fixture->directory);
    fixture->options =
        (struct csi_server_options){.endpoint = fixture->path, .on_finished = server_saw, .arg = fixture};
    gate_init(&fixture->entered);
    gate_init(&fixture->open);
    gate_init(&fixture->left);
    pthread_mutex_init(&fixture->mutex, NULL);
    *state = fixture;
    return 0;
}

static void serve(struct fixture *fixture, const struct csi_handlers *table)
{
    auto_err struct err err = {0};
    fixture->server = csi_server_new(&fixture->options, &err);
    assert_string_equal(err_text(&err), "no error");
    csi_server_add(fixture->server, table, fixture);
    assert_int_equal(csi_server_start(fixture->server, &err), 0);
    if (fixture->client == NULL)
        fixture->client = csi_client_new(fixture->path,
                                         &(struct csi_client_options){.on_finished = client_saw, .arg = fixture}, &err);
    assert_non_null(fixture->client);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    gate_add(&fixture->open, 1);
    csi_client_free(fixture->client);
    csi_server_free(fixture->server);
    directory_remove(fixture->directory);
    free(fixture->path);
    gate_destroy(&fixture->entered);
    gate_destroy(&fixture->open);
    gate_destroy(&fixture->left);
    pthread_mutex_destroy(&fixture->mutex);
    free(fixture);
    return 0;
}

static const struct csi_call_options ten_seconds = {.timeout_ns = 10 * CLOCK_SECOND, .wait_for_ready = true};

/* ---- tests ---- */

static void test_every_method_round_trips_without_leaking_secrets(void **state)
{
    struct fixture *fixture = *state;
    auto_str struct str lines = {0};
    log_capture_begin(&lines);
    serve(fixture, &echo_handlers);
    int n = 0;
    for (; csi_methods[n] != NULL; n++) {
        auto_csi_arena struct csi_arena arena = {0};
        auto_err struct err err = {0};
        ProtobufCMessage *request = csi_arena_alloc(&arena, csi_methods[n]->request->sizeof_message);
        protobuf_c_message_init(csi_methods[n]->request, request);
        message_fill(&arena, request);
        ProtobufCMessage *expected = csi_arena_alloc(&arena, csi_methods[n]->reply->sizeof_message);
        protobuf_c_message_init(csi_methods[n]->reply, expected);
        message_fill(&arena, expected);
        auto_csi_message ProtobufCMessage *reply = NULL;
        csi_call(fixture->client, csi_methods[n], request, &reply, &ten_seconds, &err);
        assert_string_equal(err_text(&err), "no error");
        messages_assert_equal(reply, expected);
        assert_ptr_equal(fixture->client_seen.method, csi_methods[n]);
        assert_int_equal(fixture->client_seen.code, CSI_OK);
        assert_int_equal(fixture->server_seen.count, n + 1);
    }
    assert_int_equal(n, 33);
    assert_int_equal(atomic_load(&fixture->calls), n);
    csi_client_free(fixture->client);
    csi_server_free(fixture->server);
    fixture->client = NULL;
    fixture->server = NULL;
    log_capture_end();
    assert_null(strstr(str_text(&lines), SECRET_VALUE));
    assert_non_null(strstr(str_text(&lines), "***stripped***"));
    assert_non_null(strstr(str_text(&lines), "/csi.v1.Node/NodePublishVolume"));
    assert_non_null(strstr(str_text(&lines), "staging_target_path"));
}

static void test_failures_have_codes_and_texts(void **state)
{
    static const struct {
        const char *how;
        int code;
        const char *text;
    } cases[] = {
        {"not found", CSI_NOT_FOUND, "rpc error: code = NotFound desc = no such pool"},
        {"exact", CSI_RESOURCE_EXHAUSTED, "rpc error: code = ResourceExhausted desc = pool \xc3\xbc is full: 100%"},
        {"silent", CSI_INTERNAL, "rpc error: code = Internal desc = GetCapacity failed without saying why"},
        {"io", CSI_INTERNAL, "rpc error: code = Internal desc = bad ? byte\nnext line"},
    };
    struct fixture *fixture = *state;
    auto_str struct str lines = {0};
    log_capture_begin(&lines);
    serve(fixture, &handlers);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_csi_arena struct csi_arena arena = {0};
        auto_err struct err err = {0};
        Csi__V1__GetCapacityRequest request = CSI__V1__GET_CAPACITY_REQUEST__INIT;
        Csi__V1__GetCapacityResponse *reply = NULL;
        CSI_MAP_ADD(&arena, &request, parameters, "fail", cases[i].how);
        assert_int_equal(csi_get_capacity(fixture->client, &request, &reply, &ten_seconds, &err), -1);
        assert_null(reply);
        assert_int_equal(err.code, ERR_RPC);
        assert_int_equal(err.status, cases[i].code);
        assert_string_equal(err.message, cases[i].text);
        assert_int_equal(fixture->server_seen.code, cases[i].code);
        assert_int_equal(fixture->client_seen.code, cases[i].code);
    }
    /* a text longer than the headers of some peers may be comes cut, not lost */
    auto_csi_arena struct csi_arena arena = {0};
    auto_err struct err err = {0};
    Csi__V1__GetCapacityRequest request = CSI__V1__GET_CAPACITY_REQUEST__INIT;
    Csi__V1__GetCapacityResponse *reply = NULL;
    CSI_MAP_ADD(&arena, &request, parameters, "fail", "long");
    assert_int_equal(csi_get_capacity(fixture->client, &request, &reply, &ten_seconds, &err), -1);
    assert_int_equal(err.status, CSI_INTERNAL);
    assert_non_null(strstr(err.message, "desc = xxxxxxxxxx"));
    assert_true(strlen(err.message) < 4096);
    log_capture_end();
}

static void test_unknown_method_is_unimplemented_at_once(void **state)
{
    static const struct csi_method unknown = {
        .path = "/csi.v2.Controller/CreateVolume",
        .name = "CreateVolume",
        .request = &csi__v1__probe_request__descriptor,
        .reply = &csi__v1__probe_response__descriptor,
    };
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    auto_err struct err err = {0};
    Csi__V1__ProbeRequest request = CSI__V1__PROBE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    const int64_t start = clock_mono(clock_real());
    assert_int_equal(csi_call(fixture->client, &unknown, &request.base, &reply, &ten_seconds, &err), -1);
    assert_int_equal(err.status, CSI_UNIMPLEMENTED);
    assert_non_null(strstr(err.message, "code = Unimplemented desc = unknown method /csi.v2.Controller/CreateVolume"));
    /* known, but not served by this driver */
    err_clear(&err);
    Csi__V1__ControllerGetCapabilitiesRequest capabilities = CSI__V1__CONTROLLER_GET_CAPABILITIES_REQUEST__INIT;
    assert_int_equal(csi_call(fixture->client, &csi_method_controller_get_capabilities, &capabilities.base, &reply,
                              &ten_seconds, &err),
                     -1);
    assert_int_equal(err.status, CSI_UNIMPLEMENTED);
    assert_true(clock_mono(clock_real()) - start < 5 * CLOCK_SECOND);
}

static void test_deadline_ends_call_and_handler(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    auto_err struct err err = {0};
    Csi__V1__DeleteVolumeRequest request = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    request.volume_id = (char[]){"v"};
    Csi__V1__DeleteVolumeResponse *reply = NULL;
    const struct csi_call_options options = {.timeout_ns = 200 * CLOCK_MS, .wait_for_ready = true};
    assert_int_equal(csi_delete_volume(fixture->client, &request, &reply, &options, &err), -1);
    assert_int_equal(err.status, CSI_DEADLINE_EXCEEDED);
    assert_string_equal(err.message, "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    gate_wait(&fixture->left, 1);
    assert_true(atomic_load(&fixture->saw_cancel));
    assert_true(fixture->remaining > 0 && fixture->remaining <= 300 * CLOCK_MS);
    /* one that had passed before it began */
    err_clear(&err);
    const struct csi_call_options past = {.timeout_ns = -1};
    assert_int_equal(csi_delete_volume(fixture->client, &request, &reply, &past, &err), -1);
    assert_int_equal(err.status, CSI_DEADLINE_EXCEEDED);
}

struct background {
    struct fixture *fixture;
    struct csi_call_options options;
    bool stubborn; /* the handler that blocks whatever happens */
    int result;
    struct err err;
};

static void *call_in_background(void *arg)
{
    struct background *background = arg;
    if (background->stubborn) {
        Csi__V1__NodeUnpublishVolumeRequest request = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
        request.volume_id = (char[]){"v"};
        request.target_path = (char[]){"/t"};
        auto_csi_message Csi__V1__NodeUnpublishVolumeResponse *reply = NULL;
        background->result = csi_node_unpublish_volume(background->fixture->client, &request, &reply,
                                                       &background->options, &background->err);
    } else {
        Csi__V1__DeleteVolumeRequest request = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
        request.volume_id = (char[]){"v"};
        auto_csi_message Csi__V1__DeleteVolumeResponse *reply = NULL;
        background->result =
            csi_delete_volume(background->fixture->client, &request, &reply, &background->options, &background->err);
    }
    return NULL;
}

static void test_stop_cancels_call_and_handler(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    struct stop *stop = stop_new();
    struct background background = {.fixture = fixture, .options = ten_seconds};
    background.options.cancel = stop;
    pthread_t thread = thread_start("caller", call_in_background, &background);
    gate_wait(&fixture->entered, 1);
    stop_request(stop);
    thread_join(thread);
    assert_int_equal(background.result, -1);
    assert_int_equal(background.err.status, CSI_CANCELED);
    assert_string_equal(background.err.message, "rpc error: code = Canceled desc = context canceled");
    err_clear(&background.err);
    gate_wait(&fixture->left, 1);
    assert_true(atomic_load(&fixture->saw_cancel));
    /* a stop that came first: nothing is called any more */
    background.fixture->remaining = -1;
    call_in_background(&background);
    assert_int_equal(background.err.status, CSI_CANCELED);
    err_clear(&background.err);
    stop_free(stop);
}

static void probe_succeeds(struct fixture *fixture)
{
    auto_err struct err err = {0};
    Csi__V1__ProbeRequest request = CSI__V1__PROBE_REQUEST__INIT;
    auto_csi_message Csi__V1__ProbeResponse *reply = NULL;
    csi_probe(fixture->client, &request, &reply, &ten_seconds, &err);
    assert_string_equal(err_text(&err), "no error");
    assert_non_null(reply->ready);
    assert_true(reply->ready->value);
}

static void test_hanging_handlers_do_not_stall_probes_nor_run_late_calls(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.max_workers = 3;
    serve(fixture, &handlers);
    struct background background[3] = {0};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        background[i] = (struct background){.fixture = fixture, .options = ten_seconds, .stubborn = true};
        threads[i] = thread_start("caller", call_in_background, &background[i]);
    }
    gate_wait(&fixture->entered, 3);
    probe_succeeds(fixture);
    /* no worker is free for this one, and by the time there is one its caller has gone */
    struct background late = {.fixture = fixture, .options = {.timeout_ns = 100 * CLOCK_MS, .wait_for_ready = true}};
    call_in_background(&late);
    assert_int_equal(late.err.status, CSI_DEADLINE_EXCEEDED);
    err_clear(&late.err);
    probe_succeeds(fixture); /* comes after the word that the caller gave up */
    gate_add(&fixture->open, 1);
    for (int i = 0; i < 3; i++) {
        thread_join(threads[i]);
        assert_int_equal(background[i].result, 0);
    }
    assert_int_equal(csi_server_stop(fixture->server, 10 * CLOCK_SECOND, NULL), 0);
    assert_int_equal(gate_count(&fixture->entered), 3);
}

struct many {
    struct fixture *fixture;
    int number;
    int failures;
};

static void *create_many(void *arg)
{
    struct many *many = arg;
    for (int i = 0; i < 10; i++) {
        auto_csi_arena struct csi_arena arena = {0};
        auto_err struct err err = {0};
        Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
        request.name = csi_arena_printf(&arena, "%d-%d", many->number, i);
        Csi__V1__VolumeCapability *capability = CSI_ADD(&arena, &request, volume_capabilities);
        CSI_NEW(&arena, capability, block);
        CSI_NEW(&arena, capability, access_mode)->mode =
            CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_WRITER;
        CSI_MAP_ADD(&arena, &request, parameters, "number", request.name);
        auto_csi_message Csi__V1__CreateVolumeResponse *reply = NULL;
        auto_free char *expected = mem_printf("id-of-%s", request.name);
        if (csi_create_volume(many->fixture->client, &request, &reply, &ten_seconds, &err) < 0 ||
            strcmp(reply->volume->volume_id, expected) != 0 ||
            !str_eq(csi_map_get(CSI_MAP(reply->volume, volume_context), "number"), request.name))
            many->failures++;
    }
    return NULL;
}

static void test_64_concurrent_callers(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    struct many many[64];
    pthread_t threads[64];
    for (int i = 0; i < 64; i++) {
        many[i] = (struct many){.fixture = fixture, .number = i};
        threads[i] = thread_start("caller", create_many, &many[i]);
    }
    for (int i = 0; i < 64; i++) {
        thread_join(threads[i]);
        assert_int_equal(many[i].failures, 0);
    }
    assert_int_equal(fixture->client_seen.count, 640);
    assert_int_equal(fixture->server_seen.count, 640);
}

static int list(struct fixture *fixture, int entries, struct err *err)
{
    Csi__V1__ListVolumesRequest request = CSI__V1__LIST_VOLUMES_REQUEST__INIT;
    request.max_entries = entries;
    auto_csi_message Csi__V1__ListVolumesResponse *reply = NULL;
    if (csi_list_volumes(fixture->client, &request, &reply, &ten_seconds, err) < 0)
        return -1;
    assert_int_equal(reply->n_entries, entries);
    assert_non_null(strstr(reply->entries[entries - 1]->volume->volume_id, "volume-with-a-long-name"));
    return 0;
}

static int delete_with_secret(struct fixture *fixture, size_t size, struct err *err)
{
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__DeleteVolumeRequest request = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    request.volume_id = csi_arena_strdup(&arena, "v");
    char *secret = csi_arena_alloc(&arena, size + 1);
    memset(secret, 's', size);
    CSI_MAP_ADD(&arena, &request, secrets, "key", secret);
    auto_csi_message Csi__V1__DeleteVolumeResponse *reply = NULL;
    return csi_delete_volume(fixture->client, &request, &reply, &ten_seconds, err);
}

static void test_large_messages(void **state)
{
    struct fixture *fixture = *state;
    gate_add(&fixture->open, 1);
    serve(fixture, &handlers);
    auto_err struct err err = {0};
    list(fixture, 30000, &err); /* about 2.7 MiB */
    assert_string_equal(err_text(&err), "no error");
    assert_int_equal(list(fixture, 60000, &err), -1);
    assert_int_equal(err.status, CSI_RESOURCE_EXHAUSTED);
    err_clear(&err);
    /* secrets are not bound to the 4 KiB of other maps */
    delete_with_secret(fixture, (size_t)3 * 1024 * 1024, &err);
    assert_string_equal(err_text(&err), "no error");
    assert_int_equal(delete_with_secret(fixture, (size_t)5 * 1024 * 1024, &err), -1);
    assert_int_equal(err.status, CSI_RESOURCE_EXHAUSTED);
    assert_int_equal(gate_count(&fixture->entered), 1);
    probe_succeeds(fixture); /* the connection has survived all of that */
}

static void test_text_is_checked_on_both_sides(void **state)
{
    struct fixture *fixture = *state;
    auto_str struct str lines = {0};
    log_capture_begin(&lines);
    serve(fixture, &handlers);
    auto_err struct err err = {0};
    /* a reply whose id would arrive truncated */
    Csi__V1__GetPluginInfoRequest info = CSI__V1__GET_PLUGIN_INFO_REQUEST__INIT;
    Csi__V1__GetPluginInfoResponse *info_reply = NULL;
    assert_int_equal(csi_get_plugin_info(fixture->client, &info, &info_reply, &ten_seconds, &err), -1);
    assert_null(info_reply);
    assert_string_equal(err.message,
                        "rpc error: code = Internal desc = bad reply of the driver: name is not UTF-8 text");
    err_clear(&err);
    /* a handler's bad text does not leave the server */
    Csi__V1__NodeGetInfoRequest node = CSI__V1__NODE_GET_INFO_REQUEST__INIT;
    Csi__V1__NodeGetInfoResponse *node_reply = NULL;
    assert_int_equal(csi_node_get_info(fixture->client, &node, &node_reply, &ten_seconds, &err), -1);
    assert_non_null(strstr(err.message, "the reply to NodeGetInfo cannot be sent: node_id is not UTF-8 text"));
    err_clear(&err);
    /* a request that is not sent */
    Csi__V1__CreateVolumeRequest create = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    Csi__V1__CreateVolumeResponse *create_reply = NULL;
    create.name = (char[]){"\xff"};
    const int before = fixture->server_seen.count;
    assert_int_equal(csi_create_volume(fixture->client, &create, &create_reply, &ten_seconds, &err), -1);
    assert_string_equal(err.message, "rpc error: code = Internal desc = bad request: name is not UTF-8 text");
    assert_int_equal(fixture->server_seen.count, before);
    err_clear(&err);
    /* and one that was sent */
    create.name = (char *)(uintptr_t)protobuf_c_empty_string;
    ProtobufCMessageUnknownField field = raw_name("\x03"
                                                  "a\0b",
                                                  4);
    create.base.unknown_fields = &field;
    create.base.n_unknown_fields = 1;
    assert_int_equal(csi_create_volume(fixture->client, &create, &create_reply, &ten_seconds, &err), -1);
    assert_string_equal(err.message, "rpc error: code = InvalidArgument desc = name is not UTF-8 text");
    log_capture_end();
}

static int refuse_probe(void *arg, const struct csi_method *method, const ProtobufCMessage *request, struct err *err)
{
    (void)arg, (void)request;
    return method == &csi_method_probe ? csi_fail(err, CSI_PERMISSION_DENIED, "not today") : 0;
}

static void test_requests_are_validated_before_the_handler(void **state)
{
    struct fixture *fixture = *state;
    fixture->options.validate = refuse_probe;
    serve(fixture, &handlers);
    auto_err struct err err = {0};
    Csi__V1__DeleteVolumeRequest request = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    Csi__V1__DeleteVolumeResponse *reply = NULL;
    assert_int_equal(csi_delete_volume(fixture->client, &request, &reply, &ten_seconds, &err), -1);
    assert_string_equal(err.message, "rpc error: code = InvalidArgument desc = volume_id is missing in the request");
    assert_int_equal(gate_count(&fixture->entered), 0);
    err_clear(&err);
    Csi__V1__ProbeRequest probe_request = CSI__V1__PROBE_REQUEST__INIT;
    Csi__V1__ProbeResponse *probe_reply = NULL;
    assert_int_equal(csi_probe(fixture->client, &probe_request, &probe_reply, &ten_seconds, &err), -1);
    assert_int_equal(err.status, CSI_PERMISSION_DENIED);
}

static void *stop_server(void *arg)
{
    struct fixture *fixture = arg;
    assert_int_equal(csi_server_stop(fixture->server, 10 * CLOCK_SECOND, NULL), 0);
    return NULL;
}

static void test_graceful_stop_lets_calls_end(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    struct background background = {.fixture = fixture, .options = ten_seconds};
    pthread_t caller = thread_start("caller", call_in_background, &background);
    gate_wait(&fixture->entered, 1);
    pthread_t stopper = thread_start("stopper", stop_server, fixture);
    /* new calls are refused as soon as the socket is gone */
    struct background refused = {.fixture = fixture, .options = {.timeout_ns = 10 * CLOCK_SECOND}};
    while (access(fixture->path, F_OK) == 0)
        sched_yield();
    auto_err struct err err = {0};
    Csi__V1__ProbeRequest request = CSI__V1__PROBE_REQUEST__INIT;
    while (!err_is(&err, ERR_RPC)) { /* one that comes before the core heard of the stop is still answered */
        auto_csi_message Csi__V1__ProbeResponse *reply = NULL;
        csi_probe(fixture->client, &request, &reply, &refused.options, &err);
    }
    assert_int_equal(err.status, CSI_UNAVAILABLE);
    gate_add(&fixture->open, 1);
    thread_join(caller);
    thread_join(stopper);
    assert_int_equal(background.result, 0);
    assert_false(atomic_load(&fixture->saw_cancel));
    assert_int_equal(csi_server_stop(fixture->server, 0, NULL), 0); /* once more */
}

static void test_stop_cancels_after_the_grace_period(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    struct background background = {.fixture = fixture, .options = ten_seconds};
    pthread_t caller = thread_start("caller", call_in_background, &background);
    gate_wait(&fixture->entered, 1);
    assert_int_equal(csi_server_stop(fixture->server, 50 * CLOCK_MS, NULL), 0);
    thread_join(caller);
    assert_int_equal(background.result, -1);
    assert_true(background.err.status == CSI_CANCELED || background.err.status == CSI_UNAVAILABLE);
    err_clear(&background.err);
    assert_true(atomic_load(&fixture->saw_cancel));
}

static void test_stop_names_handlers_that_hang(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    struct background background = {.fixture = fixture, .options = ten_seconds, .stubborn = true};
    pthread_t caller = thread_start("caller", call_in_background, &background);
    gate_wait(&fixture->entered, 1);
    auto_err struct err err = {0};
    assert_int_equal(csi_server_stop(fixture->server, 0, &err), -1);
    assert_int_equal(err.code, ERR_TIMEOUT);
    assert_string_equal(err.message, "calls still running after being cancelled: NodeUnpublishVolume");
    gate_add(&fixture->open, 1);
    thread_join(caller);
    err_clear(&background.err);
    csi_server_free(fixture->server); /* waits for it */
    fixture->server = NULL;
    assert_int_equal(gate_count(&fixture->left), 1);
}

static void test_stop_while_idle(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    const int64_t start = clock_mono(clock_real());
    assert_int_equal(csi_server_stop(fixture->server, 10 * CLOCK_SECOND, NULL), 0); /* nobody ever called */
    assert_int_equal(access(fixture->path, F_OK), -1);
    csi_server_free(fixture->server);
    serve(fixture, &handlers);
    probe_succeeds(fixture); /* a connection that idles */
    /* and one that never says anything */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture->path);
    auto_close int silent = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(silent, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(csi_server_stop(fixture->server, 10 * CLOCK_SECOND, NULL), 0);
    assert_true(clock_mono(clock_real()) - start < 5 * CLOCK_SECOND);
}

static void test_server_survives_nonsense(void **state)
{
    static const char nonsense[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n\x00\xff\x00PRI * HTTP/2.0";
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    for (int i = 0; i < 20; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture->path);
        auto_close int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_true(send(fd, nonsense, sizeof(nonsense) - (size_t)i, MSG_NOSIGNAL) > 0);
    }
    probe_succeeds(fixture);
}

static void test_start_refuses_a_socket_in_use(void **state)
{
    struct fixture *fixture = *state;
    serve(fixture, &handlers);
    auto_err struct err err = {0};
    struct csi_server *second = csi_server_new(&fixture->options, &err);
    csi_server_add(second, &handlers, fixture);
    assert_int_equal(csi_server_start(second, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_non_null(strstr(err.message, "already in use"));
    csi_server_free(second);
    probe_succeeds(fixture); /* the first one was not disturbed */
    struct stat status;
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
}

static void test_bad_options(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    fixture->options.endpoint = "tcp://0.0.0.0:10000";
    assert_null(csi_server_new(&fixture->options, &err));
    assert_int_equal(err.code, ERR_INVALID);
    err_clear(&err);
    fixture->options.endpoint = fixture->path;
    fixture->options.max_workers = -1;
    assert_null(csi_server_new(&fixture->options, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_null(csi_client_new("127.0.0.1:80", NULL, NULL));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_every_method_round_trips_without_leaking_secrets),
        TEST(test_failures_have_codes_and_texts),
        TEST(test_unknown_method_is_unimplemented_at_once),
        TEST(test_deadline_ends_call_and_handler),
        TEST(test_stop_cancels_call_and_handler),
        TEST(test_hanging_handlers_do_not_stall_probes_nor_run_late_calls),
        TEST(test_64_concurrent_callers),
        TEST(test_large_messages),
        TEST(test_text_is_checked_on_both_sides),
        TEST(test_requests_are_validated_before_the_handler),
        TEST(test_graceful_stop_lets_calls_end),
        TEST(test_stop_cancels_after_the_grace_period),
        TEST(test_stop_names_handlers_that_hang),
        TEST(test_stop_while_idle),
        TEST(test_server_survives_nonsense),
        TEST(test_start_refuses_a_socket_in_use),
        TEST(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
