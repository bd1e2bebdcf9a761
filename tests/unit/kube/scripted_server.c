/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kube/scripted_server.h"

#include "lib/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_LIMIT (20 * CLOCK_SECOND)

struct scripted_connection {
    struct scripted_server *server;
    struct scripted_connection *next;
    pthread_t thread;
    int fd;
    bool broken; /* only its own thread looks */
};

struct scripted_server {
    scripted_handler handler;
    void *arg;
    int listen_fd, port;
    pthread_t thread;
    atomic_bool ending;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct scripted_connection *connections;
    struct strv lines, bodies;
};

static void fatal(const char *what)
{
    perror(what);
    abort();
}

/* ---- replies ---- */

static bool send_all(struct scripted_connection *connection, const char *data, size_t len)
{
    while (len > 0 && !connection->broken) {
        ssize_t sent = send(connection->fd, data, len, MSG_NOSIGNAL);
        if (sent <= 0) {
            connection->broken = true;
            break;
        }
        data += sent;
        len -= (size_t)sent;
    }
    return !connection->broken;
}

void scripted_reply(struct scripted_connection *connection, int status, const char *json)
{
    auto_str struct str out = {0};
    str_addf(&out, "HTTP/1.1 %d Scripted\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", status,
             strlen(json), json);
    send_all(connection, out.data, out.len);
}

void scripted_break(struct scripted_connection *connection)
{
    connection->broken = true;
}

struct scripted_feed {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct strv items; /* lines, or one of the marks below */
};
#define FEED_END "\1end"
#define FEED_BREAK "\1break"

struct scripted_feed *scripted_feed_new(void)
{
    struct scripted_feed *feed = mem_new(struct scripted_feed);
    pthread_mutex_init(&feed->lock, NULL);
    clock_cond_init(&feed->changed);
    return feed;
}

void scripted_feed_free(struct scripted_feed *feed)
{
    if (feed == NULL)
        return;
    strv_free(&feed->items);
    pthread_mutex_destroy(&feed->lock);
    pthread_cond_destroy(&feed->changed);
    free(feed);
}

void scripted_feed_push(struct scripted_feed *feed, const char *line)
{
    pthread_mutex_lock(&feed->lock);
    strv_add(&feed->items, line);
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

void scripted_feed_push_last(struct scripted_feed *feed, const char *line)
{
    pthread_mutex_lock(&feed->lock);
    strv_add(&feed->items, line);
    strv_add(&feed->items, FEED_END);
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

void scripted_feed_end(struct scripted_feed *feed)
{
    scripted_feed_push(feed, FEED_END);
}

void scripted_feed_break(struct scripted_feed *feed)
{
    scripted_feed_push(feed, FEED_BREAK);
}

/* The next line, owned by the caller; NULL when the peer hung up or the server ends. Looks for these every 20 ms. */
static char *feed_next(struct scripted_feed *feed, struct scripted_connection *connection)
{
    char *item = NULL;
    pthread_mutex_lock(&feed->lock);
    while (feed->items.len == 0) {
        char byte;
        if (atomic_load(&connection->server->ending) || recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            break;
        clock_cond_wait(clock_real(), &feed->changed, &feed->lock, clock_mono(clock_real()) + 20 * CLOCK_MS);
    }
    if (feed->items.len > 0) {
        item = mem_strdup(feed->items.items[0]);
        strv_remove(&feed->items, item);
    }
    pthread_mutex_unlock(&feed->lock);
    return item;
}

void scripted_stream(struct scripted_connection *connection, struct scripted_feed *feed)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    send_all(connection, head, strlen(head));
    while (!connection->broken) {
        auto_free char *item = feed_next(feed, connection);
        if (item == NULL || str_eq(item, FEED_BREAK)) {
            connection->broken = true;
        } else if (str_eq(item, FEED_END)) {
            send_all(connection, "0\r\n\r\n", 5);
            return;
        } else {
            auto_str struct str chunk = {0};
            str_addf(&chunk, "%zx\r\n%s\n\r\n", strlen(item) + 1, item);
            send_all(connection, chunk.data, chunk.len);
        }
    }
}

/* ---- requests ---- */

static bool receive(struct scripted_connection *connection, struct str *in)
{
    char buffer[16384];
    ssize_t got = recv(connection->fd, buffer, sizeof(buffer), 0);
    if (got <= 0)
        return false;
    str_add_len(in, buffer, (size_t)got);
    return true;
}

/* The value of a header of the NUL-terminated head, owned by the caller; NULL when it is not there. */
static char *header_value(const char *head, const char *name)
{
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        size_t len = strlen(name);
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *value = line + len + 1 + strspn(line + len + 1, " ");
            return mem_strndup(value, strcspn(value, "\r\n"));
        }
    }
    return NULL;
}

static void handle(struct scripted_connection *connection, const char *head, const char *body)
{
    struct scripted_server *server = connection->server;
    size_t method_len = strcspn(head, " ");
    auto_free char *method = mem_strndup(head, method_len);
    const char *rest = head + method_len + (head[method_len] == ' ' ? 1 : 0);
    auto_free char *target = mem_strndup(rest, strcspn(rest, " "));
    auto_free char *content_type = header_value(head, "Content-Type");

    pthread_mutex_lock(&server->lock);
    strv_add_take(&server->lines, mem_printf("%s %s", method, target));
    strv_add(&server->bodies, body);
    struct scripted_request request = {server->lines.len, method, target, content_type ? content_type : "", body};
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    server->handler(server->arg, connection, &request);
}

static void *connection_run(void *arg)
{
    struct scripted_connection *connection = arg;
    auto_str struct str in = {0};
    while (!connection->broken) {
        char *end;
        while ((end = in.len > 0 ? strstr(in.data, "\r\n\r\n") : NULL) == NULL)
            if (!receive(connection, &in))
                return NULL;
        size_t head_len = (size_t)(end - in.data) + 4;
        auto_free char *head = mem_strndup(in.data, head_len);
        auto_free char *length_text = header_value(head, "Content-Length");
        uint64_t length = 0;
        if (length_text != NULL && !str_parse_u64(length_text, &length))
            return NULL;
        while (in.len < head_len + length)
            if (!receive(connection, &in))
                return NULL;
        auto_free char *body = mem_strndup(in.data + head_len, length);
        str_consume(&in, head_len + length);
        handle(connection, head, body);
    }
    shutdown(connection->fd, SHUT_RDWR);
    return NULL;
}

/* ---- the server ---- */

static void *server_run(void *arg)
{
    struct scripted_server *server = arg;
    for (;;) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL; /* shut down */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct scripted_connection *connection = mem_new(struct scripted_connection);
        connection->server = server;
        connection->fd = fd;
        pthread_mutex_lock(&server->lock);
        connection->next = server->connections;
        server->connections = connection;
        connection->thread = thread_start("scripted", connection_run, connection);
        pthread_mutex_unlock(&server->lock);
    }
}

struct scripted_server *scripted_server_start(int port, scripted_handler handler, void *arg)
{
    struct scripted_server *server = mem_new(struct scripted_server);
    server->handler = handler;
    server->arg = arg;
    pthread_mutex_init(&server->lock, NULL);
    clock_cond_init(&server->changed);
    server->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(server->listen_fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    if (bind(server->listen_fd, (struct sockaddr *)&address, len) != 0 || listen(server->listen_fd, 64) != 0 ||
        getsockname(server->listen_fd, (struct sockaddr *)&address, &len) != 0)
        fatal("listen");
    server->port = ntohs(address.sin_port);
    server->thread = thread_start("scripted", server_run, server);
    return server;
}

int scripted_server_port(const struct scripted_server *server)
{
    return server->port;
}

void scripted_server_stop(struct scripted_server *server)
{
    if (server == NULL)
        return;
    atomic_store(&server->ending, true);
    shutdown(server->listen_fd, SHUT_RDWR);
    thread_join(server->thread);
    close(server->listen_fd);
    for (struct scripted_connection *connection = server->connections; connection != NULL;
         connection = connection->next)
        shutdown(connection->fd, SHUT_RDWR);
    while (server->connections != NULL) {
        struct scripted_connection *connection = server->connections;
        server->connections = connection->next;
        thread_join(connection->thread);
        close(connection->fd);
        free(connection);
    }
    strv_free(&server->lines);
    strv_free(&server->bodies);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->changed);
    free(server);
}

bool scripted_server_wait(struct scripted_server *server, size_t requests)
{
    int64_t deadline = clock_mono(clock_real()) + WAIT_LIMIT;
    bool in_time = true;
    pthread_mutex_lock(&server->lock);
    while (server->lines.len < requests && in_time)
        in_time = clock_cond_wait(clock_real(), &server->changed, &server->lock, deadline);
    bool reached = server->lines.len >= requests;
    pthread_mutex_unlock(&server->lock);
    return reached;
}

size_t scripted_server_requests(struct scripted_server *server)
{
    pthread_mutex_lock(&server->lock);
    size_t count = server->lines.len;
    pthread_mutex_unlock(&server->lock);
    return count;
}

static const char *logged(struct scripted_server *server, const struct strv *list, size_t number)
{
    pthread_mutex_lock(&server->lock);
    const char *text = number >= 1 && number <= list->len ? list->items[number - 1] : "";
    pthread_mutex_unlock(&server->lock);
    return text;
}

const char *scripted_server_line(struct scripted_server *server, size_t number)
{
    return logged(server, &server->lines, number);
}

const char *scripted_server_body(struct scripted_server *server, size_t number)
{
    return logged(server, &server->bodies, number);
}

static int load_config(int port, struct kube_config **config, struct err *err)
{
    char path[] = "/tmp/berth-scripted-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return err_set_errno(err, errno, "mkstemp");
    dprintf(fd,
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            "clusters: [{name: c, cluster: {server: \"http://127.0.0.1:%d\"}}]\n"
            "users: [{name: c, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n",
            port);
    close(fd);
    int rc = kube_config_load(&(struct kube_config_options){.kubeconfig = path}, config, err);
    unlink(path);
    return rc;
}

struct kube_client *scripted_client_new(int port, int64_t timeout, struct kube_config **config)
{
    auto_err struct err err = {0};
    struct kube_client *client = NULL;
    struct kube_client_options options = {.user_agent = "test", .request_timeout = timeout};
    if (load_config(port, config, &err) != 0 || kube_client_new(*config, &options, &client, &err) != 0) {
        fprintf(stderr, "%s\n", err_text(&err));
        abort();
    }
    return client;
}
