/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/reply.h"

#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <stdarg.h>

void reply_reset(struct reply *reply)
{
    str_free(&reply->body);
    version_unref(reply->version);
    *reply = (struct reply){0};
}

json_t *status_failure(int code, const char *reason, const char *message)
{
    json_t *status = json_pack("{s:s, s:s, s:{}, s:s, s:s, s:i}", "kind", "Status", "apiVersion", "v1", "metadata",
                               "status", "Failure", "message", message, "code", code);
    if (!str_empty(reason))
        json_object_set_new(status, "reason", json_string(reason));
    return status;
}

void reply_tree(struct reply *reply, int code, const json_t *object)
{
    auto_free char *text = json_dumps(object, JSON_COMPACT);
    reply_reset(reply);
    reply->code = code;
    str_add(&reply->body, text != NULL ? text : "{}");
    str_add_char(&reply->body, '\n');
}

static int fail_with(struct reply *reply, int code, const char *reason, const struct kind *kind, const char *name,
                     json_t *causes, const char *message)
{
    auto_json json_t *status = status_failure(code, reason, message);
    auto_json json_t *details = json_object();
    if (!str_empty(name))
        json_object_set_new(details, "name", json_string(name));
    if (kind != NULL) {
        if (*kind->group != '\0')
            json_object_set_new(details, "group", json_string(kind->group));
        /* the kind only in answers about an invalid object, else the resource: a quirk clients know */
        json_object_set_new(details, "kind", json_string(causes != NULL ? kind->kind : kind->plural));
    }
    if (causes != NULL)
        json_object_set_new(details, "causes", causes);
    if (json_object_size(details) > 0)
        json_object_set(status, "details", details);
    reply_tree(reply, code, status);
    return -1;
}

int reply_fail(struct reply *reply, int code, const char *reason, const struct kind *kind, const char *name,
               json_t *causes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    auto_free char *message = mem_vprintf(format, args);
    va_end(args);
    return fail_with(reply, code, reason, kind, name, causes, message);
}

int reply_not_found(struct reply *reply, const struct kind *kind, const char *name)
{
    auto_str struct str resource = {0};
    return reply_fail(reply, 404, "NotFound", kind, name, NULL, "%s \"%s\" not found", kind_resource(kind, &resource),
                      name);
}

int reply_bad_request(struct reply *reply, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    auto_free char *message = mem_vprintf(format, args);
    va_end(args);
    return fail_with(reply, 400, "BadRequest", NULL, NULL, NULL, message);
}

int reply_conflict(struct reply *reply, const struct kind *kind, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    auto_free char *message = mem_vprintf(format, args);
    va_end(args);
    auto_str struct str resource = {0};
    return reply_fail(reply, 409, "Conflict", kind, name, NULL, "Operation cannot be fulfilled on %s \"%s\": %s",
                      kind_resource(kind, &resource), name, message);
}

int reply_modified(struct reply *reply, const struct kind *kind, const char *name)
{
    return reply_conflict(
        reply, kind, name,
        "the object has been modified; please apply your changes to the latest version and try again");
}

int reply_expired(struct reply *reply, const char *message)
{
    return fail_with(reply, 410, "Expired", NULL, NULL, NULL, message);
}

int reply_no_such_path(struct reply *reply)
{
    return fail_with(reply, 404, "NotFound", NULL, NULL, NULL, "the server could not find the requested resource");
}

int reply_no_such_method(struct reply *reply)
{
    return fail_with(reply, 405, "MethodNotAllowed", NULL, NULL, NULL,
                     "the server does not allow this method on the requested resource");
}

void reply_success(struct reply *reply, const struct kind *kind, const char *name, const char *uid)
{
    auto_json json_t *status =
        json_pack("{s:s, s:s, s:{}, s:s, s:{s:s, s:s, s:s}}", "kind", "Status", "apiVersion", "v1", "metadata",
                  "status", "Success", "details", "name", name, "kind", kind->plural, "uid", uid);
    if (*kind->group != '\0')
        tree_set_text(status, "details.group", kind->group);
    reply_tree(reply, 200, status);
}

void reply_object(struct reply *reply, int code, struct version *version)
{
    version_ref(version); /* before the reset: it may be the very one the reply holds */
    reply_reset(reply);
    reply->code = code;
    reply->version = version;
}
