/* SPDX-License-Identifier: Apache-2.0 */
/* The server's Status objects as our errors. */
#include "lib/kube/client_private.h"

#include "lib/base/mem.h"

#include <stdio.h>
#include <string.h>

#define TEXT_LIMIT 200 /* of a body that is no Status */

static const struct {
    int status;
    enum err_code code;
    const char *phrase; /* when the server gives no reason: the API's own words */
} statuses[] = {
    {400, ERR_INVALID, "BadRequest"},
    {401, ERR_UNAUTHORIZED, "Unauthorized"},
    {403, ERR_FORBIDDEN, "Forbidden"},
    {404, ERR_NOT_FOUND, "NotFound"},
    {405, ERR_INVALID, "MethodNotAllowed"},
    {406, ERR_INVALID, "NotAcceptable"},
    {408, ERR_TIMEOUT, "RequestTimeout"},
    {409, ERR_CONFLICT, "Conflict"},
    {410, ERR_GONE, "Gone"},
    {413, ERR_INVALID, "RequestEntityTooLarge"},
    {415, ERR_INVALID, "UnsupportedMediaType"},
    {422, ERR_UNPROCESSABLE, "Invalid"},
    {429, ERR_THROTTLED, "TooManyRequests"},
    {500, ERR_UNAVAILABLE, "InternalError"},
    {501, ERR_UNAVAILABLE, "NotImplemented"},
    {502, ERR_UNAVAILABLE, "BadGateway"},
    {503, ERR_UNAVAILABLE, "ServiceUnavailable"},
    {504, ERR_UNAVAILABLE, "Timeout"},
};

static const char *phrase_of(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
        if (statuses[i].status == status)
            return statuses[i].phrase;
    return "Unexpected";
}

enum err_code kube_error_code(int status, const char *reason)
{
    if (status == 409 && str_eq(reason, "AlreadyExists"))
        return ERR_EXISTS;
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
        if (statuses[i].status == status)
            return statuses[i].code;
    if (status >= 500)
        return ERR_UNAVAILABLE;
    return status >= 400 ? ERR_INVALID : ERR_INTERNAL;
}

/* Reasons are single words; anything else would break the "NNN Reason: " that kube_error_message looks for. */
static bool is_word(const char *text)
{
    return !str_empty(text) && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(text);
}

/* Causes that the message does not already tell. */
static void add_causes(struct str *text, const json_t *details)
{
    size_t index;
    json_t *cause;
    json_array_foreach (json_object_get(details, "causes"), index, cause) {
        const char *message = json_string_value(json_object_get(cause, "message"));
        const char *field = json_string_value(json_object_get(cause, "field"));
        if (str_empty(message) || strstr(str_text(text), message) != NULL)
            continue;
        str_addf(text, "; %s%s%s", str_empty(field) ? "" : field, str_empty(field) ? "" : ": ", message);
    }
}

static int set_from(struct err *err, int status, const json_t *object)
{
    const char *reason = json_string_value(json_object_get(object, "reason"));
    const char *message = json_string_value(json_object_get(object, "message"));
    auto_str struct str text = {0};
    str_add(&text, message != NULL ? message : "the server gives no message");
    add_causes(&text, json_object_get(object, "details"));
    return err_set_status(err, kube_error_code(status, reason), status, "%d %s: %s", status,
                          is_word(reason) ? reason : phrase_of(status), str_text(&text));
}

int kube_error_set_status(struct err *err, const json_t *object)
{
    int status = (int)json_integer_value(json_object_get(object, "code"));
    return set_from(err, status != 0 ? status : 500, object);
}

/* Proxies answer in HTML or plain text: the beginning, made one printable line. */
static void add_printable(struct str *out, const char *body, size_t len)
{
    bool blank = true;
    for (size_t i = 0; i < len && out->len < TEXT_LIMIT; i++) {
        bool printable = body[i] > 0x20 && body[i] < 0x7f;
        if (printable)
            str_add_char(out, body[i]);
        else if (!blank)
            str_add_char(out, ' ');
        blank = !printable;
    }
    while (out->len > 0 && out->data[out->len - 1] == ' ')
        out->data[--out->len] = '\0';
}

int kube_error_set(struct err *err, int status, const char *body, size_t len)
{
    json_t *object = len > 0 ? json_loadb(body, len, JSON_ALLOW_NUL, NULL) : NULL;
    int result;
    if (json_is_object(object) && str_eq(json_string_value(json_object_get(object, "kind")), "Status")) {
        result = set_from(err, status, object);
    } else {
        auto_str struct str text = {0};
        add_printable(&text, body, len);
        result = err_set_status(err, kube_error_code(status, NULL), status, "%d %s: %s", status, phrase_of(status),
                                text.len > 0 ? str_text(&text) : "(empty reply)");
    }
    json_decref(object);
    return result;
}

const char *kube_error_message(const struct err *err)
{
    const char *text = err_text(err);
    if (err == NULL || err->status == 0)
        return text;
    char number[16];
    snprintf(number, sizeof(number), "%d ", err->status);
    for (const char *at = strstr(text, number); at != NULL; at = strstr(at + 1, number)) {
        const char *reason = at + strlen(number);
        const char *colon = strstr(reason, ": ");
        bool at_start = at == text || (at - text >= 2 && at[-1] == ' ' && at[-2] == ':');
        if (at_start && colon != NULL && memchr(reason, ' ', (size_t)(colon - reason)) == NULL)
            return colon + 2;
    }
    return text;
}
