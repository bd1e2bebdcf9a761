/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's side of CSI: one connection to a driver's unix socket, over which any number of threads call at once.
 * A call blocks its thread until the reply, the deadline or a stop. The connection comes up by itself, also again after
 * the driver was restarted (200 ms … 1 s between tries).
 *
 *     auto_csi_message Csi__V1__ProbeResponse *reply = NULL;
 *     Csi__V1__ProbeRequest request = CSI__V1__PROBE_REQUEST__INIT;
 *     if (csi_probe(client, &request, &reply, &(struct csi_call_options){.timeout_ns = CLOCK_SECOND}, err) < 0)
 *         return -1;
 */
#ifndef BERTH_CSI_CLIENT_H
#define BERTH_CSI_CLIENT_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/stop.h"
#include "lib/csi/message.h"
#include "lib/csi/method.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct csi_client;

enum csi_connection { CSI_CONNECTION_CONNECTED, CSI_CONNECTION_LOST };

struct csi_client_options {
    size_t max_message_bytes; /* of a reply; 0 = 4 MiB, the default of gRPC */
    int log_verbosity; /* requests and replies (secrets stripped) are logged from this -v on; 0 = 5 as upstream */
    /* After each call, from the calling thread: the method, the call's tag, the gRPC code (csi_code_name gives its
     * label) and how long it took. For metrics. May be NULL. */
    void (*on_finished)(void *arg, const struct csi_method *method, unsigned tag, int code, double seconds);
    /* From a thread of its own (which exists only when this is set), each time the connection came up or broke. It may
     * call the client, but not csi_client_free. May be NULL. */
    void (*on_connection)(void *arg, enum csi_connection state);
    void *arg; /* for both */
};

/* `address`: "unix:///path", "unix://path" (the same: a slash is put before it, as drivers do), "unix:/path",
 * "unix:relative/path" or "/path". Only unix sockets. Nobody needs to listen there yet. `options` may be NULL. */
struct csi_client *csi_client_new(const char *address, const struct csi_client_options *options, struct err *err);
/* No call may be running. NULL is fine. */
void csi_client_free(struct csi_client *client);

/* Waits until the driver accepts connections; says so in the log every 10 s meanwhile. timeout_ns CLOCK_NEVER = no
 * limit. ERR_TIMEOUT, ERR_CANCELLED (`cancel`, may be NULL). */
int csi_client_wait(struct csi_client *client, int64_t timeout_ns, struct stop *cancel, struct err *err);
bool csi_client_connected(struct csi_client *client);

struct csi_call_options {
    int64_t timeout_ns; /* 0 or CLOCK_NEVER = none; negative = it has passed */
    bool
        wait_for_ready; /* while there is no connection, wait for one (until the deadline) instead of failing with 14 */
    struct stop *cancel; /* ends the call with 1 when requested; may be NULL */
    unsigned tag;        /* for on_finished */
};

/* One call. 0 = OK and *reply is the caller's (csi_message_free, auto_csi_message). Failures are ERR_RPC, status = gRPC
 * code, message "rpc error: code = Internal desc = …" as Go programs print it; *reply is NULL then. Requests and
 * replies whose strings are not UTF-8 (or hold a NUL) fail with 13, replies over the limit with 8. `options` may be
 * NULL. */
int csi_call(struct csi_client *client, const struct csi_method *method, const ProtobufCMessage *request,
             ProtobufCMessage **reply, const struct csi_call_options *options, struct err *err);

/* The typed ones: csi_create_volume(client, &request, &reply, &options, err) and so on for each RPC of CSI_METHODS. */
#define CSI_CLIENT_CALL_(name, service, rpc, Request, request_, Reply, reply_, light)                                  \
    static inline int csi_##name(struct csi_client *client, const Request *request, Reply **reply,                     \
                                 const struct csi_call_options *options, struct err *err)                              \
    {                                                                                                                  \
        ProtobufCMessage *message = NULL;                                                                              \
        int result = csi_call(client, &csi_method_##name, &request->base, &message, options, err);                     \
        *reply = (Reply *)message;                                                                                     \
        return result;                                                                                                 \
    }
CSI_METHODS(CSI_CLIENT_CALL_)

/* The file path in an address as above, owned by the caller. ERR_INVALID for other schemes and for paths that do not
 * fit into a socket address (107 bytes). */
char *csi_address_path(const char *address, struct err *err);

#endif
