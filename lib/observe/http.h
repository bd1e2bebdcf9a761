/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small HTTP server for /metrics, /healthz, /readyz and /healthz/leader-election (libmicrohttpd, one internal
 * thread). Checks are named callbacks; `/healthz?verbose` and `/readyz?verbose` list them as the API server does, and a
 * failing answer (500) names what is missing.
 */
#ifndef BERTH_OBSERVE_HTTP_H
#define BERTH_OBSERVE_HTTP_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/observe/metrics.h"

struct observe_http;
/* A check: 0 = fine; -1 = not, with a reason in err. Called from the server's thread; must not block. */
typedef int (*observe_check_fn)(void *arg, struct err *err);

enum observe_endpoint { OBSERVE_HEALTHZ, OBSERVE_READYZ, OBSERVE_LEADER_ELECTION };

struct observe_http *observe_http_new(struct metrics *metrics, const char *metrics_path);
void observe_http_add_check(struct observe_http *http, enum observe_endpoint endpoint, const char *name,
                            observe_check_fn check, void *arg);
/* address: "host:port", ":port", "[::1]:port"; port 0 = any free one (observe_http_port tells). */
int observe_http_start(struct observe_http *http, const char *address, struct err *err);
int observe_http_port(const struct observe_http *http);
void observe_http_free(struct observe_http *http); /* stops the server first */

/* Gives back what the library holds for TLS, which this server never speaks. Once, first thing in main. */
void observe_drop_tls(void);

#endif
