/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads: one accepts connections and hands them to the core, one serves the core's completion queue, and the pool
 * runs handlers. Stopping goes in that order, so that nothing new arrives where something was already taken down.
 */
#include "lib/csi/server.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/client.h"
#include "lib/csi/server_internal.h"
#include "lib/csi/validate.h"

#include <errno.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEFAULT_SOCKET_MODE 0600
#define DEFAULT_WORKERS 32
#define WORKERS_MAX 1024
#define GOODBYE_GRACE (200 * CLOCK_MS)
#define CANCEL_GRACE CLOCK_SECOND
#define ACCEPT_RETRY_MS 100

static void set_defaults(struct csi_server_options *options)
{
    if (options->socket_mode == 0)
        options->socket_mode = DEFAULT_SOCKET_MODE;
    if (options->max_workers == 0)
        options->max_workers = DEFAULT_WORKERS;
    if (options->max_message_bytes == 0)
        options->max_message_bytes = CSI_DEFAULT_MESSAGE_BYTES;
    if (options->max_message_bytes > INT32_MAX)
        options->max_message_bytes = INT32_MAX;
    if (options->max_id_bytes == 0)
        options->max_id_bytes = CSI_ID_BYTES;
    if (options->log_verbosity == 0)
        options->log_verbosity = CSI_DEFAULT_LOG_VERBOSITY;
}

struct csi_server *csi_server_new(const struct csi_server_options *options, struct err *err)
{
    if (options->max_workers < 0 || options->max_workers > WORKERS_MAX) {
        err_set(err, ERR_INVALID, "%d worker threads: 1 to %d are possible", options->max_workers, WORKERS_MAX);
        return NULL;
    }
    struct csi_server *server = mem_new(struct csi_server);
    server->options = *options;
    set_defaults(&server->options);
    server->wake_fd = -1;
    pthread_mutex_init(&server->mutex, NULL);
    clock_cond_init(&server->changed);
    if (csi_server_listen(server, options->endpoint, err) < 0) {
        csi_server_free(server);
        return NULL;
    }
    return server;
}

void csi_server_add(struct csi_server *server, const struct csi_handlers *handlers, void *driver)
{
    server->services = mem_realloc_array(server->services, server->n_services + 1, sizeof(*server->services));
    server->services[server->n_services++] = (struct service){handlers, driver};
}

int csi_server_listen(struct csi_server *server, const char *endpoint, struct err *err)
{
    char *path = csi_address_path(endpoint, err);
    if (path == NULL)
        return -1;
    server->listeners = mem_realloc_array(server->listeners, server->n_listeners + 1, sizeof(*server->listeners));
    server->listeners[server->n_listeners++] = (struct csi_listener){.path = path, .fd = -1};
    return 0;
}

/* ---- threads ---- */

static void accept_all(struct csi_server *server, int listener, grpc_server_credentials *credentials)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            grpc_server_add_channel_from_fd(server->core, fd, credentials);
            continue;
        }
        if (errno == EAGAIN)
            return;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        /* out of descriptors: the connection stays in the backlog, and polling again at once would spin */
        log_warn("Cannot accept a connection", kv_str("err", strerror(errno)));
        struct pollfd wake = {.fd = server->wake_fd, .events = POLLIN};
        poll(&wake, 1, ACCEPT_RETRY_MS);
        return;
    }
}

static void *accept_connections(void *arg)
{
    struct csi_server *server = arg;
    const size_t n = server->n_listeners;
    struct pollfd *fds = mem_calloc(n + 1, sizeof(*fds));
    for (size_t i = 0; i < n; i++)
        fds[i] = (struct pollfd){.fd = server->listeners[i].fd, .events = POLLIN};
    fds[n] = (struct pollfd){.fd = server->wake_fd, .events = POLLIN};
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    for (;;) {
        if (poll(fds, n + 1, -1) < 0)
            continue;
        if (fds[n].revents != 0)
            break;
        for (size_t i = 0; i < n; i++)
            if (fds[i].revents != 0)
                accept_all(server, fds[i].fd, credentials);
    }
    grpc_server_credentials_release(credentials);
    free(fds);
    return NULL;
}

static void *serve(void *arg)
{
    struct csi_server *server = arg;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(server->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (event.tag == server) { /* the tag of the shutdown */
            pthread_mutex_lock(&server->mutex);
            server->core_stopped = true;
            pthread_cond_broadcast(&server->changed);
            pthread_mutex_unlock(&server->mutex);
            continue;
        }
        struct tag *tag = event.tag;
        CSI_COMPLETED(tag);
        tag->done(tag, event.success != 0);
    }
}

/* ---- start ---- */

static grpc_server *create_core(const struct csi_server_options *options)
{
    grpc_arg args[] = {
        csi_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)options->max_message_bytes),
        csi_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1),
        csi_arg(GRPC_ARG_MAX_METADATA_SIZE, CSI_METADATA_BYTES),
        csi_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
    };
    const grpc_channel_args server_args = {.num_args = ARRAY_LEN(args), .args = args};
    return grpc_server_create(&server_args, NULL);
}

static int open_listeners(struct csi_server *server, struct err *err)
{
    for (size_t i = 0; i < server->n_listeners; i++)
        if (csi_listener_open(&server->listeners[i], server->listeners[i].path, server->options.socket_mode, err) < 0)
            return -1;
    return 0;
}

static void close_listeners(struct csi_server *server)
{
    for (size_t i = server->n_listeners; i > 0; i--)
        csi_listener_close(&server->listeners[i - 1]);
}

int csi_server_start(struct csi_server *server, struct err *err)
{
    if (server->state != SERVER_NEW)
        return err_set(err, ERR_INTERNAL, "the CSI server was already started");
    server->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (server->wake_fd < 0)
        return err_set_errno(err, errno, "eventfd");
    if (open_listeners(server, err) < 0) {
        close_listeners(server);
        close(server->wake_fd);
        server->wake_fd = -1;
        return -1;
    }
    csi_runtime_acquire();
    server->core = create_core(&server->options);
    server->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server->core, server->queue, NULL);
    grpc_server_start(server->core);
    server->pool = csi_pool_new(server->options.max_workers, csi_serve_job);
    csi_serve_arm(server);
    server->serving = thread_start("csi-serve", serve, server);
    server->accepting = thread_start("csi-accept", accept_connections, server);
    server->state = SERVER_RUNNING;
    for (size_t i = 0; i < server->n_listeners; i++)
        log_info("Listening for connections", kv_str("address", server->listeners[i].path));
    return 0;
}

/* ---- stop ---- */

/* The core would break new calls off ("cancelled") once it is told to stop; refusing them ourselves gives them an
 * answer. */
static void refuse_new(struct csi_server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->draining = true;
    pthread_mutex_unlock(&server->mutex);
    const uint64_t one = 1;
    while (write(server->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    thread_join(server->accepting);
    close_listeners(server);
    server->state = SERVER_DRAINING;
}

static bool no_call_in_flight(const struct csi_server *server)
{
    return server->in_flight == 0;
}

/* No call object is left, and the core has let go of all connections. */
static bool quiet(const struct csi_server *server)
{
    return server->core_stopped && server->calls == NULL;
}

static bool wait_until(struct csi_server *server, bool (*condition)(const struct csi_server *server), int64_t wait_ns)
{
    struct clock *clock = clock_real();
    const int64_t now = clock_mono(clock);
    const int64_t deadline = wait_ns >= CLOCK_NEVER - now ? CLOCK_NEVER : now + wait_ns;
    bool in_time = true;
    pthread_mutex_lock(&server->mutex);
    while (in_time && !condition(server))
        in_time = clock_cond_wait(clock, &server->changed, &server->mutex, deadline);
    const bool result = condition(server);
    pthread_mutex_unlock(&server->mutex);
    return result;
}

static void take_down(struct csi_server *server)
{
    csi_pool_free(server->pool);
    grpc_completion_queue_shutdown(server->queue);
    thread_join(server->serving);
    grpc_server_destroy(server->core);
    grpc_completion_queue_destroy(server->queue);
    csi_runtime_release();
    close(server->wake_fd);
    server->state = SERVER_STOPPED;
}

int csi_server_stop(struct csi_server *server, int64_t grace_ns, struct err *err)
{
    if (server->state == SERVER_NEW || server->state == SERVER_STOPPED)
        return 0;
    if (server->state == SERVER_RUNNING)
        refuse_new(server);
    if (server->state == SERVER_DRAINING) {
        const bool drained = wait_until(server, no_call_in_flight, grace_ns);
        grpc_server_shutdown_and_notify(server->core, server->queue, server);
        /* A peer that does not read (stopped, or polling nothing just now) would keep its connection for 20 s. It has
         * no call here any more, so it loses nothing with it. */
        if (!drained || !wait_until(server, quiet, GOODBYE_GRACE))
            grpc_server_cancel_all_calls(server->core);
        server->state = SERVER_CANCELLING;
    }
    if (!wait_until(server, quiet, CANCEL_GRACE)) {
        auto_free char *names = csi_serve_running(server);
        return err_set(err, ERR_TIMEOUT, "calls still running after being cancelled: %s",
                       str_empty(names) ? "none in a handler" : names);
    }
    take_down(server);
    return 0;
}

void csi_server_free(struct csi_server *server)
{
    if (server == NULL)
        return;
    if (csi_server_stop(server, 0, NULL) < 0) {
        wait_until(server, quiet, CLOCK_NEVER);
        take_down(server);
    }
    for (size_t i = 0; i < server->n_listeners; i++)
        csi_listener_free(&server->listeners[i]);
    free(server->listeners);
    free(server->services);
    pthread_mutex_destroy(&server->mutex);
    pthread_cond_destroy(&server->changed);
    free(server);
}
