/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's life:
 *
 *   headers ─► body … ─► READY ─► (faults before) ─► DONE: api_handle ─► (faults after) ─► answer
 *                          └─ delay/hang: parked ─┘           └─ delay/hang: parked ─┘
 *
 * A parked request is a suspended connection; libmicrohttpd calls the handler again once it is resumed. Watches are
 * suspended the same way from within their content reader while there is nothing to send.
 */
#include "tests/devapi/http.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "tests/devapi/controllers.h"
#include "tests/devapi/faults.h"
#include "tests/devapi/journal.h"
#include "tests/devapi/tree.h"
#include "tests/devapi/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

enum {
    BODY_LIMIT = 8 * 1024 * 1024,
    CONNECTION_MEMORY = 64 * 1024,
    CONNECTIONS = 4096,
    HANGUP_CHECK_MS = 500,
};

enum phase { PHASE_BODY, PHASE_READY, PHASE_DONE };

struct call {
    struct call *next, **link; /* parked ones, in http->parked */
    struct http *http;
    struct MHD_Connection *connection;
    struct request request;
    struct str body;
    struct reply reply;
    struct fault_hits hits;
    enum phase phase;
    bool too_large, gone;
    int64_t resume_at; /* while parked */
    int64_t started;
};

struct http {
    struct server *server;
    struct MHD_Daemon *daemon;
    struct call *parked;
    char *url;
    int64_t hangup_check;
};

/* ---- parking ---- */

static void park(struct call *call, int64_t until)
{
    struct http *http = call->http;
    call->resume_at = until;
    call->next = http->parked;
    call->link = &http->parked;
    if (call->next != NULL)
        call->next->link = &call->next;
    http->parked = call;
    MHD_suspend_connection(call->connection);
}

static void unlink_call(struct call *call)
{
    if (call->link == NULL)
        return;
    *call->link = call->next;
    if (call->next != NULL)
        call->next->link = call->link;
    call->link = NULL;
}

static void unpark(struct call *call)
{
    unlink_call(call);
    MHD_resume_connection(call->connection);
}

/* ---- answers ---- */

static void release_version(void *version)
{
    version_unref(version);
}

static ssize_t read_watch(void *arg, uint64_t position, char *buffer, size_t size)
{
    struct watch *watch = arg;
    (void)position;
    size_t len = watch_read(watch, buffer, size);
    if (len > 0)
        return (ssize_t)len;
    if (watch->state == WATCH_DONE)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (watch->state == WATCH_DROPPED)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    struct MHD_Connection *connection = watch->connection;
    watch->parked = true;
    MHD_suspend_connection(connection);
    return 0;
}

static void release_watch(void *watch)
{
    watch_free(watch);
}

static ssize_t read_half(void *arg, uint64_t position, char *buffer, size_t size)
{
    const struct str *text = arg;
    if (position >= text->len)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t len = text->len - (size_t)position < size ? text->len - (size_t)position : size;
    memcpy(buffer, text->data + position, len);
    return (ssize_t)len;
}

static void release_text(void *arg)
{
    struct str *text = arg;
    str_free(text);
    free(text);
}

/* The whole answer as text, for faults that spoil it. */
static void flatten(struct reply *reply)
{
    if (reply->version == NULL)
        return;
    str_add_len(&reply->body, reply->version->json, reply->version->json_len);
    version_unref(reply->version);
    reply->version = NULL;
}

static struct MHD_Response *spoilt_response(struct call *call)
{
    struct reply *reply = &call->reply;
    if (fault_hits_find(&call->hits, FAULT_HALF_BODY, true) != NULL) {
        flatten(reply);
        struct str *half = mem_new(struct str);
        str_add_len(half, str_text(&reply->body), reply->body.len / 2);
        return MHD_create_response_from_callback(reply->body.len, 4096, read_half, half, release_text);
    }
    if (fault_hits_find(&call->hits, FAULT_BROKEN_JSON, true) != NULL) {
        flatten(reply);
        for (size_t i = reply->body.len / 2; i < reply->body.len; i++)
            reply->body.data[i] = '<';
    }
    return NULL;
}

static struct MHD_Response *make_response(struct call *call)
{
    struct reply *reply = &call->reply;
    if (reply->watch != NULL) {
        struct watch *watch = reply->watch;
        reply->watch = NULL; /* the response owns it */
        watch->connection = call->connection;
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 * 1024, read_watch, watch, release_watch);
    }
    struct MHD_Response *spoilt = spoilt_response(call);
    if (spoilt != NULL)
        return spoilt;
    if (reply->version != NULL) {
        struct version *version = reply->version;
        reply->version = NULL;
        return MHD_create_response_from_buffer_with_free_callback_cls(version->json_len, (void *)version->json,
                                                                      release_version, version);
    }
    size_t len = reply->body.len;
    return MHD_create_response_from_buffer(len, str_take(&reply->body), MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result send_reply(struct call *call)
{
    struct reply *reply = &call->reply;
    char retry[16];
    unsigned code = (unsigned)reply->code;
    struct MHD_Response *response = make_response(call);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            reply->content_type != NULL ? reply->content_type : "application/json");
    if (reply->retry_after > 0) {
        (void)snprintf(retry, sizeof(retry), "%d", reply->retry_after);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, retry);
    }
    enum MHD_Result result = MHD_queue_response(call->connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- faults ---- */

static void run_kill(const struct call *call, bool after)
{
    const struct fault_effect *effect = fault_hits_find(&call->hits, FAULT_KILL, after);
    if (effect != NULL && kill((pid_t)effect->pid, effect->signal) != 0)
        log_warn("Fault could not signal", kv_int("pid", effect->pid), kv_str("reason", strerror(errno)));
}

/* Parks the call when a fault says so. */
static bool run_delay(struct call *call, bool after)
{
    const struct fault_effect *delay = fault_hits_find(&call->hits, FAULT_DELAY, after);
    if (fault_hits_find(&call->hits, FAULT_HANG, after) != NULL)
        park(call, CLOCK_NEVER);
    else if (delay != NULL)
        park(call, clock_mono(call->http->server->clock) + delay->ms * CLOCK_MS);
    else
        return false;
    return true;
}

static bool run_status(struct call *call, bool after)
{
    const struct fault_effect *effect = fault_hits_find(&call->hits, FAULT_STATUS, after);
    if (effect == NULL)
        return false;
    if (call->reply.watch != NULL)
        watch_free(call->reply.watch);
    reply_fail(&call->reply, effect->code, effect->reason, call->request.kind, call->request.name, NULL, "%s",
               effect->message);
    call->reply.retry_after = effect->retry_after;
    return true;
}

static void spoil_watch(const struct fault_hits *hits, struct watch *watch)
{
    for (size_t i = 0; i < hits->count; i++) {
        const struct fault_effect *effect = &hits->effects[i];
        if (effect->action == FAULT_WATCH_LATE) {
            watch->faults.late = effect->ms * CLOCK_MS;
        } else if (effect->action == FAULT_WATCH_REPEAT) {
            watch->faults.repeat = true;
        } else if (effect->action >= FAULT_WATCH_CLOSE) {
            watch->faults.ends = true;
            watch->faults.end_after = (uint64_t)effect->events;
            watch->faults.end = (enum watch_end)(effect->action - FAULT_WATCH_CLOSE);
        }
    }
}

/* ---- the handler ---- */

static void note(struct call *call, int status)
{
    struct server *server = call->http->server;
    struct journal_entry entry = {.time = clock_wall(server->clock),
                                  .duration = clock_mono(server->clock) - call->started,
                                  .status = status,
                                  .fault = call->hits.count > 0 ? call->hits.effects[0].id : 0};
    if (!str_starts(call->request.path, "/devapi/"))
        journal_add(server->journal, &call->request, &entry);
}

static enum MHD_Result give_up(struct call *call)
{
    note(call, 0);
    return MHD_NO; /* libmicrohttpd closes the connection */
}

static enum MHD_Result answer(struct call *call)
{
    if (call->gone || fault_hits_find(&call->hits, FAULT_DROP, true) != NULL)
        return give_up(call);
    note(call, call->reply.code);
    return send_reply(call);
}

static void run_request(struct call *call)
{
    struct server *server = call->http->server;
    if (call->too_large)
        reply_fail(&call->reply, 413, "RequestEntityTooLarge", NULL, NULL, NULL,
                   "Request entity too large: limit is %d", BODY_LIMIT);
    else if (!run_status(call, false))
        api_handle(server, &call->request, &call->reply);
    if (call->reply.watch != NULL)
        spoil_watch(&call->hits, call->reply.watch);
    run_kill(call, true);
    (void)run_status(call, true);
}

static enum MHD_Result advance(struct call *call)
{
    struct server *server = call->http->server;
    if (call->phase == PHASE_BODY) {
        call->phase = PHASE_READY;
        call->started = clock_mono(server->clock);
        call->request.body = str_text(&call->body);
        call->request.body_len = call->body.len;
        request_parse(&call->request, &server->catalog);
        server->requests++;
        if (!str_starts(call->request.path, "/devapi/"))
            faults_match(server->faults, &call->request, &call->hits);
        run_kill(call, false);
        if (run_delay(call, false))
            return MHD_YES;
    }
    if (call->phase == PHASE_READY) {
        if (call->gone || fault_hits_find(&call->hits, FAULT_DROP, false) != NULL)
            return give_up(call);
        call->phase = PHASE_DONE;
        run_request(call);
        if (run_delay(call, true))
            return MHD_YES;
    }
    return answer(call);
}

static enum MHD_Result add_query(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct request *request = arg;
    (void)kind;
    if (request->query == NULL)
        request->query = map_new(free);
    map_set(request->query, key, mem_strdup(value != NULL ? value : ""));
    return MHD_YES;
}

static char *header(struct MHD_Connection *connection, const char *name)
{
    return mem_strdup(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name));
}

static struct call *call_new(struct http *http, struct MHD_Connection *connection, const char *url, const char *method)
{
    struct call *call = mem_new(struct call);
    call->http = http;
    call->connection = connection;
    call->request.method = mem_strdup(method);
    call->request.path = mem_strdup(*url == '/' ? url : "/");
    call->request.content_type = header(connection, MHD_HTTP_HEADER_CONTENT_TYPE);
    call->request.accept = header(connection, MHD_HTTP_HEADER_ACCEPT);
    call->request.user_agent = header(connection, MHD_HTTP_HEADER_USER_AGENT);
    call->request.authorization = header(connection, MHD_HTTP_HEADER_AUTHORIZATION);
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add_query, &call->request);
    return call;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct http *http = arg;
    struct call *call = *state;
    (void)version;
    if (call == NULL) {
        *state = call_new(http, connection, url, method);
        return MHD_YES;
    }
    if (*upload_size > 0) {
        call->too_large = call->too_large || call->body.len + *upload_size > BODY_LIMIT;
        if (!call->too_large)
            str_add_len(&call->body, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    return advance(call);
}

static void finish(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    struct call *call = *state;
    (void)arg;
    (void)connection;
    (void)code;
    if (call == NULL)
        return;
    unlink_call(call);
    watch_free(call->reply.watch);
    reply_reset(&call->reply);
    str_free(&call->body);
    request_free(&call->request);
    free(call);
    *state = NULL;
}

/* ---- the loop ---- */

/* Resumes watches that have something to say; returns whether there were any. */
static bool wake_watches(struct http *http, bool all)
{
    int64_t now = clock_mono(http->server->clock);
    bool woke = false;
    for (struct watch *watch = http->server->watches; watch != NULL; watch = watch->next) {
        if (all)
            watch->state = WATCH_DROPPED;
        else if (now >= watch_next_time(watch))
            watch_tick(watch, now);
        if (!watch->parked || !watch_is_ready(watch))
            continue;
        watch->parked = false;
        MHD_resume_connection(watch->connection);
        woke = true;
    }
    return woke;
}

static bool wake_calls(struct http *http, bool all)
{
    int64_t now = clock_mono(http->server->clock);
    bool woke = false;
    for (struct call *call = http->parked, *next; call != NULL; call = next) {
        next = call->next;
        call->gone = call->gone || all;
        if (!call->gone && call->resume_at > now)
            continue;
        unpark(call);
        woke = true;
    }
    return woke;
}

/* A suspended connection is not looked at by libmicrohttpd, so clients that left are found here. */
static bool has_left(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd fd = {.fd = info != NULL ? info->connect_fd : -1, .events = POLLRDHUP};
    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static void find_hangups(struct http *http)
{
    int64_t now = clock_mono(http->server->clock);
    if (now < http->hangup_check)
        return;
    http->hangup_check = now + HANGUP_CHECK_MS * CLOCK_MS;
    for (struct watch *watch = http->server->watches; watch != NULL; watch = watch->next)
        if (watch->parked && has_left(watch->connection))
            watch->state = WATCH_DROPPED;
    for (struct call *call = http->parked; call != NULL; call = call->next)
        call->gone = call->gone || has_left(call->connection);
}

static int64_t next_time(const struct http *http)
{
    int64_t time = http->server->watches != NULL || http->parked != NULL ? http->hangup_check : CLOCK_NEVER;
    for (const struct watch *watch = http->server->watches; watch != NULL; watch = watch->next)
        if (watch_next_time(watch) < time)
            time = watch_next_time(watch);
    for (const struct call *call = http->parked; call != NULL; call = call->next)
        if (call->resume_at < time)
            time = call->resume_at;
    return time;
}

static int poll_timeout(struct http *http)
{
    unsigned long long limit;
    int64_t timeout = INT32_MAX, time = next_time(http);
    if (MHD_get_timeout(http->daemon, &limit) == MHD_YES && limit < INT32_MAX)
        timeout = (int64_t)limit;
    if (time != CLOCK_NEVER) {
        int64_t wait = (time - clock_mono(http->server->clock) + CLOCK_MS - 1) / CLOCK_MS;
        timeout = wait < timeout ? wait : timeout;
    }
    return timeout < 0 ? 0 : timeout == INT32_MAX ? -1 : (int)timeout;
}

/* libmicrohttpd looks at resumed connections when it runs next, and tells nobody that it should. */
static void run_until_idle(struct http *http)
{
    bool woke;
    do {
        MHD_run(http->daemon);
        while (controllers_run(http->server))
            ;
        find_hangups(http);
        woke = wake_watches(http, false);
        woke = wake_calls(http, false) || woke;
    } while (woke && !http->server->stop);
}

void http_run(struct http *http, int stop_fd)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd fds[] = {{.fd = info->epoll_fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    while (!http->server->stop) {
        run_until_idle(http);
        if (http->server->stop || (poll(fds, 2, poll_timeout(http)) > 0 && fds[1].revents != 0))
            break;
    }
    MHD_run(http->daemon); /* the answer to a shutdown request */
}

/* ---- start and stop ---- */

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

static int parse_address(const char *text, union address *address, struct err *err)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (colon == NULL || !str_parse_u64(colon + 1, &port) || port > 65535)
        return err_set(err, ERR_INVALID, "--listen wants ADDRESS:PORT, not \"%s\"", text);
    bool six = *text == '[' && colon > text + 1 && colon[-1] == ']';
    auto_free char *host = mem_strndup(text + six, (size_t)(colon - text) - (six ? 2 : 0));
    *address = (union address){0};
    if (six) {
        address->six.sin6_family = AF_INET6;
        address->six.sin6_port = htons((uint16_t)port);
    } else {
        address->four.sin_family = AF_INET;
        address->four.sin_port = htons((uint16_t)port);
    }
    void *into = six ? (void *)&address->six.sin6_addr : (void *)&address->four.sin_addr;
    if (inet_pton(six ? AF_INET6 : AF_INET, host, into) != 1)
        return err_set(err, ERR_INVALID, "--listen: \"%s\" is no IP address", host);
    return 0;
}

struct http *http_new(struct server *server, const char *address, struct err *err)
{
    union address listen_on = {0};
    if (parse_address(address, &listen_on, err) != 0)
        return NULL;
    struct http *http = mem_new(struct http);
    http->server = server;
    unsigned flags =
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (listen_on.any.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    errno = 0;
    http->daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, http, MHD_OPTION_SOCK_ADDR, &listen_on.any,
                                    MHD_OPTION_NOTIFY_COMPLETED, finish, http, MHD_OPTION_CONNECTION_LIMIT,
                                    (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                    (size_t)CONNECTION_MEMORY, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1U, MHD_OPTION_END);
    if (http->daemon == NULL) {
        err_set_errno(err, errno, "listen on %s", address);
        free(http);
        return NULL;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    const char *colon = strrchr(address, ':');
    http->url = mem_printf("http://%.*s:%u", (int)(colon - address), address, (unsigned)info->port);
    return http;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    /* libmicrohttpd insists that nothing is suspended when it stops */
    (void)wake_calls(http, true);
    (void)wake_watches(http, true);
    MHD_run(http->daemon);
    MHD_stop_daemon(http->daemon);
    free(http->url);
    free(http);
}

const char *http_url(const struct http *http)
{
    return http->url;
}
