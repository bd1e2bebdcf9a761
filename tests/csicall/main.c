/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csi-call: one RPC of a CSI driver from the command line, for tests, the demo and a look at any driver's answers.
 *     csi-call --endpoint=unix:///csi/csi.sock NodePublishVolume '{"volume_id": "v1", …}'
 * Prints the reply as JSON; on failure the error on stderr. The exit status is 0, or 100 + the gRPC code.
 */
#include "lib/base/flag.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/csi/client.h"
#include "tests/csicall/json.h"

#include <stdio.h>

struct options {
    const char *endpoint;
    int64_t timeout;
    struct flag_log log;
};

static const struct flag flags[] = {
    {.name = "endpoint",
     .type = FLAG_STRING,
     .default_value = "unix:///csi/csi.sock",
     .group = "Call",
     .help = "Socket of the driver.",
     .offset = offsetof(struct options, endpoint)},
    {.name = "timeout",
     .type = FLAG_DURATION,
     .default_value = "1m",
     .group = "Call",
     .help = "Deadline of the call, waiting for the driver included.",
     .offset = offsetof(struct options, timeout)},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {.name = "csi-call",
                                            .summary = "Calls one RPC of a CSI driver.",
                                            .usage = "[flags] METHOD [JSON]",
                                            .flags = flags,
                                            .count = ARRAY_LEN(flags)};

static const struct csi_method *find_method(const char *name)
{
    for (size_t i = 0; csi_methods[i] != NULL; i++)
        if (str_eq(csi_methods[i]->name, name) || str_eq(csi_methods[i]->path, name))
            return csi_methods[i];
    return NULL;
}

static int call(const struct options *options, const char *name, const char *text, struct err *err)
{
    const struct csi_method *method = find_method(name);
    if (method == NULL)
        return err_set(err, ERR_INVALID, "unknown method %s", name);
    auto_csi_arena struct csi_arena arena = {0};
    json_error_t where;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "request: column %d: %s", where.column, where.text);
    ProtobufCMessage *request = csi_arena_alloc(&arena, method->request->sizeof_message);
    protobuf_c_message_init(method->request, request);
    int result = json_to_message(&arena, json, request, err);
    json_decref(json);
    if (result < 0)
        return -1;
    struct csi_client *client = csi_client_new(options->endpoint, NULL, err);
    if (client == NULL)
        return -1;
    auto_csi_message ProtobufCMessage *reply = NULL;
    struct csi_call_options call_options = {.timeout_ns = options->timeout, .wait_for_ready = true};
    result = csi_call(client, method, request, &reply, &call_options, err);
    csi_client_free(client);
    if (result < 0)
        return -1;
    json = json_from_message(reply);
    json_dumpf(json, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(json);
    return 0;
}

int main(int argc, char **argv)
{
    thread_limit_arenas();
    struct options options = {0};
    auto_strv struct strv rest = {0};
    switch (flag_parse(&program, argc, argv, &options, &rest)) {
    case FLAG_EXIT:
        return 0;
    case FLAG_USAGE:
        return 2;
    case FLAG_OK:
        break;
    }
    auto_err struct err err = {0};
    if (flag_log_setup(&options.log, &err) < 0 || rest.len < 1 || rest.len > 2) {
        fprintf(stderr, "csi-call: %s\n", err.message ? err.message : "usage: csi-call [flags] METHOD [JSON]");
        return 2;
    }
    if (call(&options, rest.items[0], rest.len == 2 ? rest.items[1] : "{}", &err) < 0) {
        fprintf(stderr, "csi-call: %s\n", err_text(&err));
        return err.code == ERR_RPC ? 100 + err.status : 1;
    }
    return 0;
}
