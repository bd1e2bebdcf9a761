/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's side of CSI. A driver fills one constant table of handlers; the server does the rest: socket, decoding,
 * the checks that CSI demands of every request, worker threads, logging without secrets, cancellation, graceful stop.
 *
 *     static int probe(void *driver, const Csi__V1__ProbeRequest *request, Csi__V1__ProbeResponse *reply,
 *                      struct csi_call *call, struct err *err) { … return 0; }
 *     static const struct csi_handlers handlers = {.probe = probe, …};
 *
 *     struct csi_server *server = csi_server_new(&(struct csi_server_options){.endpoint = "unix:///csi/csi.sock"},
 * err); csi_server_add(server, &handlers, driver); csi_server_start(server, err); … stop_wait_until(stop, …) …
 *     csi_server_stop(server, 10 * CLOCK_SECOND, err);
 *     csi_server_free(server);
 */
#ifndef BERTH_CSI_SERVER_H
#define BERTH_CSI_SERVER_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/stop.h"
#include "lib/csi/message.h"
#include "lib/csi/method.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct csi_server;
struct csi_call; /* one call being served; belongs to the server, valid while the handler runs */

/*
 * One handler per RPC; NULL answers 12 UNIMPLEMENTED. A handler runs on a worker thread, several at once.
 *
 * `request` has passed the checks below; its strings are never NULL. `reply` is empty on entry; everything put into it
 * comes from csi_call_arena(call), or is constant, or is a part of `request`: it must stay valid until the reply is
 * sent and is never freed piece by piece. Return 0, or -1 with `err` filled: csi_code_of(err) becomes the gRPC code
 * (csi_fail(err, CSI_ABORTED, …) picks one exactly) and err->message the text the caller sees, so no secrets in it.
 */
#define CSI_HANDLER_MEMBER_(name, service, rpc, Request, request_, Reply, reply_, light)                               \
    int (*name)(void *driver, const Request *request, Reply *reply, struct csi_call *call, struct err *err);
struct csi_handlers {
    CSI_METHODS(CSI_HANDLER_MEMBER_)
};

/* Memory for the reply; freed after it was sent. */
struct csi_arena *csi_call_arena(struct csi_call *call);
/* True once the caller gave up: cancelled, deadline passed, connection lost, or the server's grace period is over. */
bool csi_call_cancelled(struct csi_call *call);
/* Time left until the caller's deadline, <= 0 when it passed, CLOCK_NEVER when there is none. */
int64_t csi_call_remaining(struct csi_call *call);
/* A stop that is requested when the call is cancelled: for stop_sleep, stop_fd in poll(), or calls further down. Made
 * at the first use, owned by the call. */
struct stop *csi_call_stop(struct csi_call *call);
const struct csi_method *csi_call_method(const struct csi_call *call);

struct csi_server_options {
    const char *endpoint;     /* address as for csi_client_new; its directory must exist */
    mode_t socket_mode;       /* of the socket file, in force before anybody can connect; 0 = 0600 */
    int max_workers;          /* handlers at the same time, 0 = 32; threads are started when needed and end when idle */
    size_t max_message_bytes; /* of a request; 0 = 4 MiB */
    /* Limits CSI sets, 0 = those of CSI: identifiers and names 128 bytes. A driver that was handed longer volume ids by
     * another implementation raises the first. */
    size_t max_id_bytes;
    int log_verbosity; /* requests and replies (secrets stripped) are logged from this -v on; 0 = 5 as upstream */
    /* A further check of the driver, after the general ones and before the handler; -1 refuses. May be NULL. */
    int (*validate)(void *arg, const struct csi_method *method, const ProtobufCMessage *request, struct err *err);
    /* After each call (unknown methods are not reported): the gRPC code answered and the time from its arrival. */
    void (*on_finished)(void *arg, const struct csi_method *method, int code, double seconds);
    void *arg; /* for both */
};

/*
 * What every request is checked for, in this order, before the handler sees it; each failure is 3 INVALID_ARGUMENT and
 * names the field, unless said otherwise:
 *   - strings are UTF-8 without NUL;
 *   - required names, ids, paths, capabilities, capacity ranges are there, in the order csi-sanity relies on
 *     (for instance NodePublishVolume: volume_id, target_path, volume_capability, nothing about the staging path);
 *   - names hold no control characters; ids and names <= 128 bytes, node ids <= 256, class parameters <= 4 KiB
 * together, mount flags <= 4 KiB together (secrets, paths, and the volume context of node calls are not limited:
 * kubelet adds tokens to the latter);
 *   - a capability has an access type and mode (not in ValidateVolumeCapabilities, which answers for unknown ones);
 *   - sizes and max_entries are not negative; required_bytes above a limit_bytes is 11 OUT_OF_RANGE.
 */

/* Checks the options; nothing listens yet. */
struct csi_server *csi_server_new(const struct csi_server_options *options, struct err *err);
/* Adds services, before the start, any number of times: of two handlers for the same RPC the first one added counts.
 * `handlers` and `driver` must outlive the server. */
void csi_server_add(struct csi_server *server, const struct csi_handlers *handlers, void *driver);
/* One more socket on which the same services answer, before the start. */
int csi_server_listen(struct csi_server *server, const char *endpoint, struct err *err);
/* Listens. A socket file on which nobody answers is replaced; one on which somebody does is ERR_EXISTS ("already in
 * use"), anything else at that path too. */
int csi_server_start(struct csi_server *server, struct err *err);
/* Removes the socket files (only if they are still ours), refuses new calls, waits up to grace_ns for those in flight,
 * then cancels them and waits a second more. -1 and ERR_TIMEOUT when handlers still run after that: then
 * csi_server_free would wait for them, and a program that must end exits without it. Idempotent. */
int csi_server_stop(struct csi_server *server, int64_t grace_ns, struct err *err);
/* Stops without grace when it still runs. NULL is fine. */
void csi_server_free(struct csi_server *server);

/*
 * Registration with kubelet, without a node-driver-registrar beside the driver: serves pluginregistration on
 * <registry_dir>/<driver_name>-reg.sock for as long as the server runs.
 */
struct csi_registration_options {
    const char *registry_dir;     /* kubelet's plugins_registry as we see it, e.g. "/registration" */
    const char *driver_name;      /* as GetPluginInfo answers it */
    const char *kubelet_endpoint; /* path of the CSI socket as kubelet sees it */
    /* Called on a server thread for each NotifyRegistrationStatus, after it was logged; `error` is "" when registered.
     * A program usually stops itself when not, so that it is started again. May be NULL. */
    void (*on_status)(void *arg, bool registered, const char *error);
    void *arg;
};
struct csi_registration;
/* Adds the service and its socket to a server that was not started yet; the CSI socket is up before kubelet can see
 * this one, and this one goes first. Free it after the server. */
struct csi_registration *csi_registration_new(struct csi_server *server, const struct csi_registration_options *options,
                                              struct err *err);
void csi_registration_free(struct csi_registration *registration); /* NULL is fine */

#endif
