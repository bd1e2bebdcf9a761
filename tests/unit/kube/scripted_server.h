/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 server on loopback whose answers a test writes. Every connection has a thread, so a handler may wait, and
 * it can do what no orderly server does: break off, answer nonsense, stop in the middle of a stream.
 */
#ifndef BERTH_TESTS_SCRIPTED_SERVER_H
#define BERTH_TESTS_SCRIPTED_SERVER_H

#include "lib/kube/client.h"

struct scripted_server;
struct scripted_connection;
struct scripted_request {
    size_t number;      /* 1 … in the order of arrival */
    const char *method; /* all borrowed */
    const char *target; /* path and query */
    const char *content_type;
    const char *body;
};
typedef void (*scripted_handler)(void *arg, struct scripted_connection *connection,
                                 const struct scripted_request *request);

/* port 0 takes any free one. */
struct scripted_server *scripted_server_start(int port, scripted_handler handler, void *arg);
int scripted_server_port(const struct scripted_server *server);
/* Ends all connections and waits for their handlers (feeds end, other waits are the test's business). */
void scripted_server_stop(struct scripted_server *server);
/* Waits (real time, at most 20 s) until so many requests arrived. */
bool scripted_server_wait(struct scripted_server *server, size_t requests);
size_t scripted_server_requests(struct scripted_server *server);
/* "GET /path?query", and the body, of request number 1 …; valid until the server is stopped. */
const char *scripted_server_line(struct scripted_server *server, size_t number);
const char *scripted_server_body(struct scripted_server *server, size_t number);
/* A client of a server on this port, with the real clock; config is to be freed after it. */
struct kube_client *scripted_client_new(int port, int64_t request_timeout, struct kube_config **config);

/* One of these per request. */
void scripted_reply(struct scripted_connection *connection, int status, const char *json);
void scripted_break(struct scripted_connection *connection); /* closes without an answer */

/* A stream of JSON lines (a watch) that the test's own thread feeds; it outlives the connections that serve it. */
struct scripted_feed;
struct scripted_feed *scripted_feed_new(void);
void scripted_feed_free(struct scripted_feed *feed);
void scripted_feed_push(struct scripted_feed *feed, const char *line);
/* A line behind which the stream ends, also when the peer hangs up because of it: what is pushed later surely belongs
 * to the next stream. */
void scripted_feed_push_last(struct scripted_feed *feed, const char *line);
void scripted_feed_end(struct scripted_feed *feed); /* the stream ends in good order; the next one goes on behind it */
void scripted_feed_break(struct scripted_feed *feed); /* the connection dies */
/* Answers 200 and serves the feed until its end, its break, or the peer's. */
void scripted_stream(struct scripted_connection *connection, struct scripted_feed *feed);

#endif
