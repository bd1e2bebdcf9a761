/* SPDX-License-Identifier: Apache-2.0 */
/* Single objects: reads, and writes whose outcome is looked up when no answer came. */
#include "lib/kube/client_private.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <stdio.h>
#include <string.h>

/* One write, as far as repeating it needs to know. */
struct write {
    const char *verb; /* for messages: "patch" */
    const struct kube_kind *kind;
    const char *namespace_, *name; /* name NULL: the server makes one up */
    const char *subresource;
    struct kube_run run;
    /* what must still be true for the write to be sent again; 0 / NULL = nothing known */
    uint64_t version;
    const char *uid;
};

/* What reading the object again tells about a write without an answer. */
enum outcome {
    OUTCOME_UNCHANGED, /* it did not happen (yet): send it once more */
    OUTCOME_SETTLED,   /* err says what the caller must know */
    OUTCOME_DONE,      /* the wish is fulfilled */
    OUTCOME_UNKNOWN,
};

static const struct kube_decode_options decode_defaults;

static void describe(struct str *text, const char *verb, const struct kube_kind *kind, const char *namespace_,
                     const char *name)
{
    str_addf(text, "%s %s ", verb, kind->singular);
    if (!str_empty(namespace_))
        str_addf(text, "%s/", namespace_);
    str_add(text, str_empty(name) ? "(new)" : name);
}

static int wrap(struct err *err, const char *verb, const struct kube_kind *kind, const char *namespace_,
                const char *name)
{
    auto_str struct str what = {0};
    describe(&what, verb, kind, namespace_, name);
    return err_wrap(err, "%s", str_text(&what));
}

static uint64_t version_of(const json_t *json)
{
    uint64_t version = 0;
    const char *text = json_string_value(json_object_get(json_object_get(json, "metadata"), "resourceVersion"));
    return text != NULL && str_parse_u64(text, &version) ? version : 0;
}

/* ---- reads ---- */

static bool is_status(const struct kube_reply *reply)
{
    json_t *body = json_loadb(str_text(&reply->body), reply->body.len, JSON_ALLOW_NUL, NULL);
    bool is = str_eq(json_string_value(json_object_get(body, "kind")), "Status");
    json_decref(body);
    return is;
}

/* may_be_absent: a 404 that is the API server's own word is no error (*json stays NULL), and any other says nothing
 * about the object. */
static int get_path(struct kube_client *client, const char *path, bool unlimited, int64_t deadline, bool may_be_absent,
                    json_t **json, struct err *err)
{
    struct kube_run run = {.method = "GET", .path = path, .unlimited = unlimited, .deadline = deadline};
    auto_reply struct kube_reply reply = {0};
    if (kube_run(client, &run, &reply, err) != 0)
        return -1;
    const bool missing = may_be_absent && reply.status == 404;
    if (missing && is_status(&reply))
        return 0;
    if (reply.status != 200) {
        kube_error_set(err, reply.status, str_text(&reply.body), reply.body.len);
        if (missing && err != NULL)
            err->code = ERR_UNAVAILABLE;
        return -1;
    }
    *json = json_loadb(str_text(&reply.body), reply.body.len, JSON_ALLOW_NUL, NULL);
    if (*json == NULL)
        return err_set(err, ERR_UNAVAILABLE, "the reply is no JSON");
    return 0;
}

static int get_json(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                    bool may_be_absent, json_t **json, struct err *err)
{
    auto_free char *path = NULL;
    *json = NULL;
    if (kube_path_make(kind, namespace_, name != NULL ? name : "", NULL, &path, err) != 0 ||
        get_path(client, path, false, kube_client_deadline(client), may_be_absent, json, err) != 0)
        return wrap(err, "get", kind, namespace_, name);
    return 0;
}

static int get_object(struct kube_client *client, const struct kube_kind *kind, const char *namespace_,
                      const char *name, bool may_be_absent, struct kube_object **object, struct err *err)
{
    json_t *json;
    *object = NULL;
    if (get_json(client, kind, namespace_, name, may_be_absent, &json, err) != 0)
        return -1;
    if (json == NULL)
        return 0;
    *object = kube_object_decode(kind, json, &decode_defaults, err);
    json_decref(json);
    return *object != NULL ? 0 : wrap(err, "get", kind, namespace_, name);
}

int kube_get_json(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                  json_t **json, struct err *err)
{
    return get_json(client, kind, namespace_, name, false, json, err);
}

int kube_get(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
             struct kube_object **object, struct err *err)
{
    return get_object(client, kind, namespace_, name, false, object, err);
}

int kube_get_if_any(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                    struct kube_object **object, struct err *err)
{
    return get_object(client, kind, namespace_, name, true, object, err);
}

/* ---- the outcome of a write ---- */

/* A gateway's answer says as little about a write as a broken connection. */
static bool answer_is_vague(const struct kube_reply *reply)
{
    return reply->status == 502 || reply->status == 504 || (reply->status == 503 && reply->retry_after < 0);
}

static enum outcome judge_create(bool exists, struct err *err)
{
    if (!exists)
        return OUTCOME_UNCHANGED;
    err_set(err, ERR_EXISTS, "no answer came, and the object exists now");
    return OUTCOME_SETTLED;
}

static enum outcome judge_delete(const struct write *write, const json_t *now, struct err *err)
{
    const json_t *meta = json_object_get(now, "metadata");
    if (now == NULL)
        return OUTCOME_DONE;
    if (write->uid != NULL && !str_eq(json_string_value(json_object_get(meta, "uid")), write->uid))
        return OUTCOME_DONE; /* another object of that name */
    if (json_object_get(meta, "deletionTimestamp") != NULL)
        return OUTCOME_DONE; /* waits for its finalizers */
    if (write->version != 0 && version_of(now) != write->version) {
        err_set(err, ERR_CONFLICT, "no answer came, and the object has changed meanwhile");
        return OUTCOME_SETTLED;
    }
    /* without a uid it might be a new object that somebody has made since */
    return write->uid != NULL || write->version != 0 ? OUTCOME_UNCHANGED : OUTCOME_UNKNOWN;
}

static enum outcome judge_change(const struct write *write, const json_t *now, struct err *err)
{
    if (now == NULL) {
        err_set_status(err, ERR_NOT_FOUND, 404, "no answer came, and the object does not exist any more");
        return OUTCOME_SETTLED;
    }
    if (write->version == 0)
        return OUTCOME_UNKNOWN;
    if (version_of(now) == write->version)
        return OUTCOME_UNCHANGED;
    err_set(err, ERR_CONFLICT, "no answer came, and the object has changed meanwhile (perhaps by this request)");
    return OUTCOME_SETTLED;
}

static enum outcome look_up(struct kube_client *client, const struct write *write, struct err *err)
{
    auto_free char *path = NULL;
    auto_err struct err problem = {0};
    json_t *now = NULL;
    if (str_empty(write->name) || clock_mono(client->clock) >= write->run.deadline ||
        kube_path_make(write->kind, write->namespace_, write->name, NULL, &path, &problem) != 0)
        return OUTCOME_UNKNOWN;
    if (get_path(client, path, true, write->run.deadline, true, &now, &problem) != 0) {
        log_v(2, "The outcome of a write cannot be looked up", kv_str("path", path), kv_err(&problem));
        if (problem.code != ERR_CANCELLED)
            return OUTCOME_UNKNOWN;
        err_move(err, &problem);
        return OUTCOME_SETTLED;
    }
    enum outcome outcome;
    if (strcmp(write->run.method, "POST") == 0)
        outcome = judge_create(now != NULL, err);
    else if (strcmp(write->run.method, "DELETE") == 0)
        outcome = judge_delete(write, now, err);
    else
        outcome = judge_change(write, now, err);
    json_decref(now);
    return outcome;
}

/* Sends the write, and once more when the first one surely left no trace. 0 = there is an answer in `reply`, or *done:
 * the wish is fulfilled though none came. */
static int send_write(struct kube_client *client, const struct write *write, struct kube_reply *reply, bool *done,
                      struct err *err)
{
    *done = false;
    for (int sends = 1;; sends++) {
        auto_err struct err problem = {0};
        int result = kube_run(client, &write->run, reply, &problem);
        bool vague = result == 0 && answer_is_vague(reply);
        if (result == 0 && !vague)
            return 0;
        if (result != 0 && problem.code != ERR_UNKNOWN_OUTCOME)
            return err_move(err, &problem);
        if (vague)
            kube_error_set(&problem, reply->status, str_text(&reply->body), reply->body.len);
        log_v(2, "No clear answer to a write, reading the object again", kv_str("path", write->run.path),
              kv_err(&problem));
        auto_err struct err settled = {0};
        enum outcome outcome = look_up(client, write, &settled);
        if (outcome == OUTCOME_UNCHANGED && sends == 1)
            continue;
        if (outcome == OUTCOME_SETTLED)
            return err_move(err, &settled);
        *done = outcome == OUTCOME_DONE;
        if (*done)
            return 0;
        if (vague)
            return err_set_status(err, ERR_UNKNOWN_OUTCOME, reply->status, "%s", err_text(&problem));
        return err_move(err, &problem);
    }
}

static int finish_write(const struct write *write, struct kube_reply *reply, struct kube_object **object,
                        struct err *err)
{
    if (reply->status < 200 || reply->status > 299)
        return kube_error_set(err, reply->status, str_text(&reply->body), reply->body.len);
    if (object == NULL)
        return 0;
    json_t *json = json_loadb(str_text(&reply->body), reply->body.len, JSON_ALLOW_NUL, NULL);
    if (json == NULL)
        return err_set(err, ERR_INTERNAL, "it was done, but the reply is no JSON");
    *object = kube_object_decode(write->kind, json, &decode_defaults, err);
    json_decref(json);
    return *object != NULL ? 0 : err_wrap(err, "it was done, but the reply is malformed");
}

static int run_write(struct kube_client *client, struct write *write, const json_t *json, struct kube_object **object,
                     struct err *err)
{
    auto_free char *path = NULL;
    char *body = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    auto_reply struct kube_reply reply = {0};
    bool is_create = strcmp(write->run.method, "POST") == 0;
    bool done = false;
    int result = 0;
    if (object != NULL)
        *object = NULL;
    if (json != NULL && body == NULL)
        result = err_set(err, ERR_INTERNAL, "the object cannot be written as JSON");
    if (result == 0)
        result = kube_path_make(write->kind, write->namespace_, is_create ? NULL : (write->name ? write->name : ""),
                                write->subresource, &path, err);
    if (result == 0) {
        write->run.path = path;
        write->run.body = body;
        write->run.deadline = kube_client_deadline(client);
        result = send_write(client, write, &reply, &done, err);
    }
    if (result == 0 && !done)
        result = finish_write(write, &reply, object, err);
    if (body != NULL)
        mem_wipe(body, strlen(body));
    free(body);
    return result == 0 ? 0 : wrap(err, write->verb, write->kind, write->namespace_, write->name);
}

/* ---- writes ---- */

int kube_create(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const json_t *json,
                struct kube_object **object, struct err *err)
{
    struct write write = {
        .verb = "create",
        .kind = kind,
        .namespace_ = namespace_,
        .name = json_string_value(json_object_get(json_object_get(json, "metadata"), "name")),
        .run = {.method = "POST", .content_type = "application/json"},
    };
    if (kind->namespaced && str_empty(namespace_)) {
        err_set(err, ERR_INVALID, "the namespace is missing");
        return wrap(err, write.verb, kind, namespace_, write.name);
    }
    return run_write(client, &write, json, object, err);
}

int kube_update(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                const char *subresource, const json_t *json, struct kube_object **object, struct err *err)
{
    struct write write = {
        .verb = "update",
        .kind = kind,
        .namespace_ = namespace_,
        .name = name,
        .subresource = subresource,
        .run = {.method = "PUT", .content_type = "application/json"},
        .version = version_of(json),
    };
    if (write.version == 0) {
        err_set(err, ERR_INVALID,
                "metadata.resourceVersion is missing: a blind update would overwrite others' changes");
        return wrap(err, write.verb, kind, namespace_, name);
    }
    return run_write(client, &write, json, object, err);
}

/* The resourceVersion a patch insists on: in a JSON patch it is a "test" operation. */
static uint64_t patch_version(enum kube_patch_type type, const json_t *patch)
{
    uint64_t version = 0;
    size_t index;
    json_t *operation;
    if (type != KUBE_PATCH_JSON)
        return version_of(patch);
    json_array_foreach (patch, index, operation) {
        const char *value = json_string_value(json_object_get(operation, "value"));
        if (str_eq(json_string_value(json_object_get(operation, "op")), "test") && value != NULL &&
            str_eq(json_string_value(json_object_get(operation, "path")), "/metadata/resourceVersion") &&
            str_parse_u64(value, &version))
            return version;
    }
    return 0;
}

int kube_patch(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
               const char *subresource, enum kube_patch_type type, const json_t *patch, struct kube_object **object,
               struct err *err)
{
    static const char *const content_types[] = {
        [KUBE_PATCH_MERGE] = "application/merge-patch+json",
        [KUBE_PATCH_JSON] = "application/json-patch+json",
        [KUBE_PATCH_STRATEGIC] = "application/strategic-merge-patch+json",
    };
    struct write write = {
        .verb = "patch",
        .kind = kind,
        .namespace_ = namespace_,
        .name = name,
        .subresource = subresource,
        .run = {.method = "PATCH", .content_type = content_types[type]},
        .version = patch_version(type, patch),
    };
    return run_write(client, &write, patch, object, err);
}

int kube_delete(struct kube_client *client, const struct kube_kind *kind, const char *namespace_, const char *name,
                const char *uid, uint64_t resource_version, struct err *err)
{
    struct write write = {
        .verb = "delete",
        .kind = kind,
        .namespace_ = namespace_,
        .name = name,
        .run = {.method = "DELETE", .content_type = "application/json"},
        .version = resource_version,
        .uid = str_empty(uid) ? NULL : uid,
    };
    json_t *preconditions = json_object();
    if (write.uid != NULL)
        json_object_set_new(preconditions, "uid", json_string(uid));
    if (resource_version != 0) {
        char text[24];
        snprintf(text, sizeof(text), "%llu", (unsigned long long)resource_version);
        json_object_set_new(preconditions, "resourceVersion", json_string(text));
    }
    json_t *options = json_pack("{s:s,s:s}", "kind", "DeleteOptions", "apiVersion", "v1");
    if (json_object_size(preconditions) > 0)
        json_object_set(options, "preconditions", preconditions);
    int result = run_write(client, &write, options, NULL, err);
    json_decref(preconditions);
    json_decref(options);
    return result;
}
