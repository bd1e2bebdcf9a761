/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One error object for everything that can fail. A function that fails returns -1 (or NULL) and fills the struct err it
 * was given last; callers wrap context around the message on its way up, so that the user reads "patch claim
 * default/data: 409 Conflict: …" and can act on it.
 */
#ifndef BERTH_BASE_ERR_H
#define BERTH_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

enum err_code {
    ERR_NONE = 0,
    ERR_INTERNAL,        /* a bug, or something nobody foresaw */
    ERR_INVALID,         /* bad input: malformed file, flag, object, quantity … */
    ERR_NOT_FOUND,       /* HTTP 404, ENOENT */
    ERR_EXISTS,          /* HTTP 409 reason AlreadyExists, EEXIST */
    ERR_CONFLICT,        /* HTTP 409 otherwise: the resourceVersion is stale, look again */
    ERR_GONE,            /* HTTP 410: list again */
    ERR_UNPROCESSABLE,   /* HTTP 422: the API server refuses the object */
    ERR_FORBIDDEN,       /* HTTP 403 */
    ERR_UNAUTHORIZED,    /* HTTP 401 */
    ERR_THROTTLED,       /* HTTP 429 and retries used up */
    ERR_UNAVAILABLE,     /* nobody answers, HTTP 5xx */
    ERR_TIMEOUT,         /* a deadline passed */
    ERR_UNKNOWN_OUTCOME, /* a write was sent and no answer came: read before repeating */
    ERR_CANCELLED,       /* the program stops */
    ERR_IO,              /* file system, device */
    ERR_RPC,             /* the CSI driver answered with a gRPC status, kept in `status` */
};

struct err {
    enum err_code code;
    int status;    /* HTTP status, or gRPC status with ERR_RPC; 0 when there is none */
    char *message; /* owned; NULL when there is no error */
};

/* `auto_err struct err err = {0};` frees the message at the end of the scope. */
void err_clear(struct err *err);
#define auto_err __attribute__((cleanup(err_clear)))

/* Sets code and message (an old one is replaced) and returns -1, so `return err_set(err, ERR_INVALID, …)` works.
 * `err` may be NULL: then only -1 is returned. */
int err_set(struct err *err, enum err_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int err_set_status(struct err *err, enum err_code code, int status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* From errno: picks the code and appends ": <strerror>". */
int err_set_errno(struct err *err, int error_number, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Puts "<context>: " before the message; keeps code and status; returns -1. */
int err_wrap(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Moves `from` into `to` (which is cleared before) and empties `from`; returns -1 when there was an error, else 0. */
int err_move(struct err *to, struct err *from);
int err_copy(struct err *to, const struct err *from);

static inline bool err_is(const struct err *err, enum err_code code)
{
    return err != NULL && err->code == code;
}
/* Never NULL: "no error" when there is none. */
const char *err_text(const struct err *err);
/* "NotFound", "Conflict" …: a stable word for logs and metrics. */
const char *err_code_name(enum err_code code);

#endif
