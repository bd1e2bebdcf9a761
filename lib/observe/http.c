/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd does the protocol in a thread of its own; this file knows the pages, and sees to it that clients that
 * send slowly or nothing cannot keep others out: idle ones time out, and when there are many, the oldest goes first.
 */
#include "lib/observe/http.h"

#include "lib/base/mem.h"
#include "lib/observe/listen.h"

#include <microhttpd.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 32
/* From this many on the oldest is closed for each new one. The library stops accepting at CONNECTIONS_MAX, when it
 * would be too late for that. */
#define CONNECTIONS_KEPT 24
#define IDLE_SECONDS 15
#define CONNECTION_MEMORY ((size_t)16 * 1024)
#define STACK_SIZE ((size_t)512 * 1024)

struct check {
    struct check *next;
    enum observe_endpoint endpoint;
    char *name;
    observe_check_fn fn;
    void *arg;
};

struct observe_http {
    struct metrics *metrics;
    char *metrics_path;
    pthread_mutex_t lock; /* checks may be added while the server runs */
    struct check *checks; /* in the order in which they were added */
    struct MHD_Daemon *daemon;
    int port;
    int connections[CONNECTIONS_MAX]; /* sockets, oldest first; touched by the server's thread only */
    size_t connection_count;
};

static const struct endpoint {
    const char *path;
    const char *word; /* in "healthz check passed" */
} endpoints[] = {
    [OBSERVE_HEALTHZ] = {"/healthz", "healthz"},
    [OBSERVE_READYZ] = {"/readyz", "readyz"},
    [OBSERVE_LEADER_ELECTION] = {"/healthz/leader-election", "leader-election"},
};

struct observe_http *observe_http_new(struct metrics *metrics, const char *metrics_path)
{
    struct observe_http *http = mem_new(struct observe_http);
    http->metrics = metrics;
    http->metrics_path = mem_strdup(str_empty(metrics_path) ? "/metrics" : metrics_path);
    pthread_mutex_init(&http->lock, NULL);
    return http;
}

void observe_http_free(struct observe_http *http)
{
    if (http == NULL)
        return;
    if (http->daemon != NULL)
        MHD_stop_daemon(http->daemon);
    while (http->checks != NULL) {
        struct check *check = http->checks;
        http->checks = check->next;
        free(check->name);
        free(check);
    }
    pthread_mutex_destroy(&http->lock);
    free(http->metrics_path);
    free(http);
}

void observe_http_add_check(struct observe_http *http, enum observe_endpoint endpoint, const char *name,
                            observe_check_fn check, void *arg)
{
    struct check *added = mem_new(struct check);
    *added = (struct check){.endpoint = endpoint, .name = mem_strdup(name), .fn = check, .arg = arg};
    pthread_mutex_lock(&http->lock);
    struct check **end = &http->checks;
    while (*end != NULL)
        end = &(*end)->next;
    *end = added;
    pthread_mutex_unlock(&http->lock);
}

int observe_http_port(const struct observe_http *http)
{
    return http->port;
}

/* ---- pages ---- */

struct answer {
    unsigned status;
    const char *content_type;
    struct str body;
};

static void answer_text(struct answer *answer, unsigned status, const char *text)
{
    answer->status = status;
    answer->content_type = "text/plain; charset=utf-8";
    str_reset(&answer->body);
    str_add(&answer->body, text);
}

/* Runs the checks of an endpoint (only the one named `only` unless that is NULL) and lists them in `list`. Returns how
 * many there were. */
static size_t run_checks(struct observe_http *http, enum observe_endpoint endpoint, const char *only, struct str *list,
                         size_t *failed, struct str *reason)
{
    size_t count = 0;
    pthread_mutex_lock(&http->lock);
    for (const struct check *check = http->checks; check != NULL; check = check->next) {
        if (check->endpoint != endpoint || (only != NULL && !str_eq(only, check->name)))
            continue;
        auto_err struct err err = {0};
        count++;
        if (check->fn(check->arg, &err) == 0) {
            str_addf(list, "[+]%s ok\n", check->name);
            continue;
        }
        ++*failed;
        str_addf(list, "[-]%s failed: %s\n", check->name, err_text(&err));
        str_addf(reason, "%s%s", reason->len > 0 ? "; " : "", err_text(&err));
    }
    pthread_mutex_unlock(&http->lock);
    return count;
}

static bool serve_checks(struct observe_http *http, enum observe_endpoint endpoint, const char *only, bool verbose,
                         struct answer *answer)
{
    auto_str struct str list = {0};
    auto_str struct str reason = {0};
    size_t failed = 0;
    size_t count = run_checks(http, endpoint, only, &list, &failed, &reason);
    /* a named check must exist, and a program without leader election has no such page */
    if (count == 0 && (only != NULL || endpoint == OBSERVE_LEADER_ELECTION))
        return false;
    const char *word = endpoints[endpoint].word;
    answer_text(answer, failed > 0 ? MHD_HTTP_INTERNAL_SERVER_ERROR : MHD_HTTP_OK, "");
    if (failed > 0 && (only != NULL || endpoint == OBSERVE_LEADER_ELECTION))
        str_addf(&answer->body, "internal server error: %s\n", str_text(&reason));
    else if (failed > 0)
        str_addf(&answer->body, "%s%s check failed\n", str_text(&list), word);
    else if (verbose)
        str_addf(&answer->body, "%s%s check passed\n", str_text(&list), word);
    else
        str_add(&answer->body, "ok");
    return true;
}

/* "/healthz", "/healthz/leader-election", "/readyz", and "/readyz/NAME" for a single check. */
static bool serve_endpoint(struct observe_http *http, const char *path, bool verbose, struct answer *answer)
{
    for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
        if (str_eq(path, endpoints[i].path) && serve_checks(http, (enum observe_endpoint)i, NULL, verbose, answer))
            return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
        size_t len = strlen(endpoints[i].path);
        if (str_starts(path, endpoints[i].path) && path[len] == '/' &&
            serve_checks(http, (enum observe_endpoint)i, path + len + 1, verbose, answer))
            return true;
    }
    return false;
}

static void serve(struct observe_http *http, const char *method, const char *path, bool verbose, struct answer *answer)
{
    if (!str_eq(method, MHD_HTTP_METHOD_GET) && !str_eq(method, MHD_HTTP_METHOD_HEAD)) {
        answer_text(answer, MHD_HTTP_METHOD_NOT_ALLOWED, "405 method not allowed\n");
    } else if (http->metrics != NULL && str_eq(path, http->metrics_path)) {
        answer_text(answer, MHD_HTTP_OK, "");
        answer->content_type = "text/plain; version=0.0.4; charset=utf-8";
        metrics_write(http->metrics, &answer->body);
    } else if (!serve_endpoint(http, path, verbose, answer)) {
        answer_text(answer, MHD_HTTP_NOT_FOUND, "404 page not found\n");
    }
}

/* ---- libmicrohttpd ---- */

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **state)
{
    (void)version;
    (void)upload;
    (void)upload_size;
    (void)state;
    /* Answered at the first call, when a body has not been read: the library then closes the connection, and nobody can
     * make us take in data. */
    struct answer answer = {0};
    bool verbose = MHD_lookup_connection_value_n(connection, MHD_GET_ARGUMENT_KIND, "verbose", strlen("verbose"), NULL,
                                                 NULL) == MHD_YES;
    serve(arg, method, url, verbose, &answer);
    size_t len = answer.body.len;
    struct MHD_Response *response = MHD_create_response_from_buffer(len, str_take(&answer.body), MHD_RESPMEM_MUST_FREE);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache, private");
    if (answer.status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, answer.status, response);
    MHD_destroy_response(response);
    return result;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)state;
    struct observe_http *http = arg;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL)
        return;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        /* the library notices the end of the oldest as if its client had hung up, and tells us then */
        if (http->connection_count >= CONNECTIONS_KEPT)
            shutdown(http->connections[http->connection_count - CONNECTIONS_KEPT], SHUT_RDWR);
        if (http->connection_count < CONNECTIONS_MAX)
            http->connections[http->connection_count++] = info->connect_fd;
        return;
    }
    for (size_t i = 0; i < http->connection_count; i++) {
        if (http->connections[i] != info->connect_fd)
            continue;
        http->connection_count--;
        memmove(http->connections + i, http->connections + i + 1,
                (http->connection_count - i) * sizeof(http->connections[0]));
        return;
    }
}

int observe_http_start(struct observe_http *http, const char *address, struct err *err)
{
    auto_close int fd = listen_open(address, &http->port, err);
    if (fd < 0)
        return -1;
    http->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL, on_request, http,
                                    MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                    (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
                                    MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, MHD_OPTION_THREAD_STACK_SIZE,
                                    STACK_SIZE, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_END);
    if (http->daemon == NULL)
        return err_set(err, ERR_INTERNAL, "start the HTTP server on %s", address);
    (void)mem_take_fd(&fd); /* the server closes it */
    return 0;
}
