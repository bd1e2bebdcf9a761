/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/err.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <string.h>

void err_clear(struct err *err)
{
    if (err == NULL)
        return;
    free(err->message);
    *err = (struct err){.code = ERR_NONE};
}

/* The new message is made before the old one goes: callers may format the old one into it. */
static void replace(struct err *err, enum err_code code, int status, char *message)
{
    free(err->message);
    *err = (struct err){.code = code, .status = status, .message = message};
}

int err_set(struct err *err, enum err_code code, const char *format, ...)
{
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    char *message = mem_vprintf(format, args);
    va_end(args);
    replace(err, code, 0, message);
    return -1;
}

int err_set_status(struct err *err, enum err_code code, int status, const char *format, ...)
{
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    char *message = mem_vprintf(format, args);
    va_end(args);
    replace(err, code, status, message);
    return -1;
}

static enum err_code code_of_errno(int error_number)
{
    switch (error_number) {
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case ETIMEDOUT:
        return ERR_TIMEOUT;
    case EINVAL:
        return ERR_INVALID;
    default:
        return ERR_IO;
    }
}

int err_set_errno(struct err *err, int error_number, const char *format, ...)
{
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    auto_free char *what = mem_vprintf(format, args);
    va_end(args);
    char buffer[128];
    /* the GNU variant: returns the text, which may or may not be in buffer */
    const char *reason = strerror_r(error_number, buffer, sizeof(buffer));
    replace(err, code_of_errno(error_number), 0, mem_printf("%s: %s", what, reason));
    return -1;
}

int err_wrap(struct err *err, const char *format, ...)
{
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    auto_free char *context = mem_vprintf(format, args);
    va_end(args);
    char *message = err->message != NULL ? mem_printf("%s: %s", context, err->message) : mem_take(context);
    replace(err, err->code, err->status, message);
    return -1;
}

int err_move(struct err *to, struct err *from)
{
    if (from == NULL || from->code == ERR_NONE) {
        err_clear(to);
        return 0;
    }
    if (to == from)
        return -1;
    if (to == NULL) {
        err_clear(from);
        return -1;
    }
    err_clear(to);
    *to = *from;
    *from = (struct err){.code = ERR_NONE};
    return -1;
}

int err_copy(struct err *to, const struct err *from)
{
    if (to != NULL && to == from)
        return to->code == ERR_NONE ? 0 : -1;
    if (from == NULL || from->code == ERR_NONE) {
        err_clear(to);
        return 0;
    }
    if (to != NULL)
        replace(to, from->code, from->status, mem_strdup(from->message));
    return -1;
}

const char *err_text(const struct err *err)
{
    if (err == NULL || (err->code == ERR_NONE && err->message == NULL))
        return "no error";
    return err->message != NULL ? err->message : err_code_name(err->code);
}

const char *err_code_name(enum err_code code)
{
    static const char *const names[] = {
        [ERR_NONE] = "None",
        [ERR_INTERNAL] = "Internal",
        [ERR_INVALID] = "Invalid",
        [ERR_NOT_FOUND] = "NotFound",
        [ERR_EXISTS] = "Exists",
        [ERR_CONFLICT] = "Conflict",
        [ERR_GONE] = "Gone",
        [ERR_UNPROCESSABLE] = "Unprocessable",
        [ERR_FORBIDDEN] = "Forbidden",
        [ERR_UNAUTHORIZED] = "Unauthorized",
        [ERR_THROTTLED] = "Throttled",
        [ERR_UNAVAILABLE] = "Unavailable",
        [ERR_TIMEOUT] = "Timeout",
        [ERR_UNKNOWN_OUTCOME] = "UnknownOutcome",
        [ERR_CANCELLED] = "Cancelled",
        [ERR_IO] = "IO",
        [ERR_RPC] = "RPC",
    };
    size_t index = (size_t)code;
    return index < ARRAY_LEN(names) && names[index] != NULL ? names[index] : "Unknown";
}
