/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server on loopback for tests of the transport: plain or TLS, scripted step by step and down to the bytes. Unlike
 * scripted_server it shows the request's headers, knows certificates, and plays its steps in order whatever is asked.
 */
#ifndef BERTH_TESTS_RAW_SERVER_H
#define BERTH_TESTS_RAW_SERVER_H

#include "lib/base/clock.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- certificates, made when asked for ---- */
struct raw_tls {
    char *authority; /* PEM */
    char *certificate, *key;
    char *client_certificate, *client_key; /* CN=berth-client */
};
/* `names` as in an X.509 extension: "DNS:berth.test,IP:127.0.0.1". A negative lifetime makes an expired certificate. */
struct raw_tls *raw_tls_new(const char *names, int lifetime_days);
void raw_tls_free(struct raw_tls *tls);

/* ---- the script ---- */
enum raw_action {
    RAW_REPLY,       /* status, headers, body with Content-Length; the connection is kept */
    RAW_REPLY_CLOSE, /* the same with Connection: close */
    RAW_DROP_EARLY,  /* closes when the connection or its next request comes, without reading */
    RAW_DROP,        /* reads the request, then closes */
    RAW_HALF,        /* announces the body and sends half of it, then closes */
    RAW_BYTES,       /* `body` as it is, then closes */
    RAW_CHUNKS,      /* chunked, one chunk for every '|'-separated part of body, 1 ms apart; good end */
    RAW_STREAM,      /* chunked, the parts of body, then the connection stays open without another byte */
    RAW_HANG,        /* reads the request, answers nothing */
};
struct raw_step {
    enum raw_action action;
    int status; /* 0 = 200 */
    const char *headers, *body;
};

struct raw_server;
/* Plays steps[0 … count-1], one for each request; further ones get the last step again. tls NULL = plain. `clock` is
 * asked when a request arrives. */
struct raw_server *raw_server_start(const struct raw_tls *tls, struct clock *clock, const struct raw_step *steps,
                                    size_t count);
int raw_server_port(const struct raw_server *server);
void raw_server_stop(struct raw_server *server);

size_t raw_server_requests(struct raw_server *server);
bool raw_server_wait(struct raw_server *server, size_t requests); /* real time, at most 10 s */
size_t raw_server_connections(struct raw_server *server);         /* accepted so far */
size_t raw_server_most_at_once(struct raw_server *server);        /* requests being answered at the same time */
/* Of request number 0 …; valid until the server is stopped. */
const char *raw_server_line(struct raw_server *server, size_t number); /* "GET /path" */
const char *raw_server_head(struct raw_server *server, size_t number); /* all header lines */
const char *raw_server_body(struct raw_server *server, size_t number);
const char *raw_server_peer(struct raw_server *server, size_t number); /* CN of the client's certificate, "" = none */
int64_t raw_server_time(struct raw_server *server, size_t number);
/* "GET PATCH GET": the methods so far; owned by the caller. */
char *raw_server_methods(struct raw_server *server);

#endif
