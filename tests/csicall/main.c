/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csi-call: one RPC of a CSI driver from the command line, for tests, the demo and a look at any driver's answers.
 *     csi-call --endpoint=unix:///csi/csi.sock NodePublishVolume '{"volume_id": "v1", …}'
 * Prints the reply as JSON; on failure the error on stderr. The exit status is 0, or 100 + the gRPC code.
 *     csi-call --endpoint=… --batch
 * makes the calls it reads from stdin over one connection, a line each: {"method": "Probe", "request": {}}, answered by
 * a line {"code": 0, "reply": {}} or {"code": 5, "message": "…"}; code -1 = the call could not be made.
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
    bool batch;
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
    {.name = "batch",
     .type = FLAG_BOOL,
     .group = "Call",
     .help = "Read calls from stdin, a JSON object a line, and answer each with a line.",
     .offset = offsetof(struct options, batch)},
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

/* The reply as JSON, a new reference; NULL on failure. */
static json_t *call_method(struct csi_client *client, const struct options *options, const char *name,
                           const json_t *json, struct err *err)
{
    const struct csi_method *method = find_method(name);
    if (method == NULL) {
        err_set(err, ERR_INVALID, "unknown method %s", name);
        return NULL;
    }
    auto_csi_arena struct csi_arena arena = {0};
    ProtobufCMessage *request = csi_arena_alloc(&arena, method->request->sizeof_message);
    protobuf_c_message_init(method->request, request);
    if (json_to_message(&arena, json, request, err) < 0)
        return NULL;
    auto_csi_message ProtobufCMessage *reply = NULL;
    struct csi_call_options call_options = {.timeout_ns = options->timeout, .wait_for_ready = true};
    if (csi_call(client, method, request, &reply, &call_options, err) < 0)
        return NULL;
    return json_from_message(reply);
}

static int call_once(struct csi_client *client, const struct options *options, const char *name, const char *text,
                     struct err *err)
{
    json_error_t where;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "request: column %d: %s", where.column, where.text);
    json_t *reply = call_method(client, options, name, json, err);
    json_decref(json);
    if (reply == NULL)
        return -1;
    json_dumpf(reply, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(reply);
    return 0;
}

static void answer_line(struct csi_client *client, const struct options *options, const char *line)
{
    auto_err struct err err = {0};
    json_error_t where;
    json_t *json = json_loads(line, JSON_REJECT_DUPLICATES, &where);
    const char *name = json_string_value(json_object_get(json, "method"));
    json_t *request = json_object_get(json, "request");
    json_t *reply = NULL;
    if (name == NULL || !json_is_object(request))
        err_set(&err, ERR_INVALID, "not a call: %s", json == NULL ? where.text : "method or request is missing");
    else
        reply = call_method(client, options, name, request, &err);
    json_t *answer = reply != NULL ? json_pack("{s:i, s:o}", "code", 0, "reply", reply)
                                   : json_pack("{s:i, s:s}", "code", err.code == ERR_RPC ? err.status : -1, "message",
                                               err_text(&err));
    json_dumpf(answer, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putchar('\n');
    fflush(stdout);
    json_decref(answer);
    json_decref(json);
}

static void answer_lines(struct csi_client *client, const struct options *options)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0)
        answer_line(client, options, line);
    free(line);
}

static int run(const struct options *options, const struct strv *rest, struct err *err)
{
    struct csi_client *client = csi_client_new(options->endpoint, NULL, err);
    int result = 0;
    if (client == NULL)
        return -1;
    if (options->batch)
        answer_lines(client, options);
    else
        result = call_once(client, options, rest->items[0], rest->len == 2 ? rest->items[1] : "{}", err);
    csi_client_free(client);
    return result;
}

int main(int argc, char **argv)
{
    thread_limit_arenas();
    struct options options = {0};
    auto_strv struct strv rest = {0};
    enum flag_result parsed = flag_parse(&program, argc, argv, &options, &rest);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    auto_err struct err err = {0};
    const bool arguments_fit = options.batch ? rest.len == 0 : rest.len == 1 || rest.len == 2;
    if (!arguments_fit) {
        fprintf(stderr, "usage: csi-call [flags] METHOD [JSON]\n");
        return 2;
    }
    if (run(&options, &rest, &err) < 0) {
        fprintf(stderr, "csi-call: %s\n", err_text(&err));
        return err.code == ERR_RPC ? 100 + err.status : 1;
    }
    return 0;
}
