/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets: libmicrohttpd driven by our own loop, so that everything happens in one thread and nothing is locked. */
#ifndef BERTH_DEVAPI_HTTP_H
#define BERTH_DEVAPI_HTTP_H

#include "lib/base/err.h"
#include "tests/devapi/server.h"

struct http;
/* address: "127.0.0.1:0", "[::1]:8080"; port 0 = any free one. */
struct http *http_new(struct server *server, const char *address, struct err *err);
void http_free(struct http *http);
const char *http_url(const struct http *http); /* "http://127.0.0.1:34567" */
/* Serves until server->stop is set or stop_fd becomes readable. */
void http_run(struct http *http, int stop_fd);

#endif
