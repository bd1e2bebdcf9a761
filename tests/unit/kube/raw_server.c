/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kube/raw_server.h"

#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_LIMIT (10 * CLOCK_SECOND)

struct connection {
    struct raw_server *server;
    struct connection *next;
    pthread_t thread;
    int fd;
    SSL *ssl;
    struct str input;
};

struct request {
    char *line, *head, *body, *peer;
    int64_t time;
};

struct raw_server {
    const struct raw_step *steps;
    size_t count;
    struct clock *clock;
    SSL_CTX *context;
    int listen_fd, port;
    pthread_t thread;
    atomic_bool ending;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct connection *connections; /* only the accepting thread adds */
    size_t accepted, at_once, most_at_once, next_step;
    struct request *requests;
    size_t len, cap;
};

static void fatal(const char *what)
{
    perror(what);
    abort();
}

/* ---- bytes ---- */

static bool send_all(struct connection *connection, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t sent = connection->ssl != NULL ? SSL_write(connection->ssl, data, (int)(len < 65536 ? len : 65536))
                                               : send(connection->fd, data, len, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        data += sent;
        len -= (size_t)sent;
    }
    return true;
}

static bool receive_more(struct connection *connection)
{
    char buffer[16384];
    ssize_t got = connection->ssl != NULL ? SSL_read(connection->ssl, buffer, sizeof(buffer))
                                          : recv(connection->fd, buffer, sizeof(buffer), 0);
    if (got > 0)
        str_add_len(&connection->input, buffer, (size_t)got);
    return got > 0;
}

/* Until the peer or the server's end closes the connection. */
static void wait_closed(struct connection *connection)
{
    while (receive_more(connection))
        ;
}

static bool wait_readable(struct connection *connection)
{
    if (connection->input.len > 0 || (connection->ssl != NULL && SSL_pending(connection->ssl) > 0))
        return true;
    struct pollfd fd = {.fd = connection->fd, .events = POLLIN};
    return poll(&fd, 1, -1) == 1 && !connection->server->ending;
}

/* ---- requests ---- */

static size_t body_length(const char *head)
{
    const char *at = strcasestr(head, "\r\nContent-Length:");
    return at != NULL ? strtoul(at + strlen("\r\nContent-Length:"), NULL, 10) : 0;
}

static char *peer_name(const struct connection *connection)
{
    char name[64] = "";
    X509 *certificate = connection->ssl != NULL ? SSL_get1_peer_certificate(connection->ssl) : NULL;
    if (certificate != NULL)
        X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
    X509_free(certificate);
    return mem_strdup(name);
}

static bool read_request(struct connection *connection)
{
    struct raw_server *server = connection->server;
    struct str *input = &connection->input;
    const char *end;
    while (input->len == 0 || (end = strstr(input->data, "\r\n\r\n")) == NULL)
        if (!receive_more(connection))
            return false;
    size_t head_len = (size_t)(end - input->data) + 2;
    char *head = mem_strndup(input->data, head_len);
    size_t wanted = head_len + 2 + body_length(head);
    while (input->len < wanted)
        if (!receive_more(connection)) {
            free(head);
            return false;
        }
    const char *version = strstr(head, " HTTP/");
    struct request request = {
        .line = mem_strndup(head, version != NULL ? (size_t)(version - head) : strcspn(head, "\r")),
        .head = head,
        .body = mem_strndup(input->data + head_len + 2, wanted - head_len - 2),
        .peer = peer_name(connection),
        .time = clock_mono(server->clock),
    };
    str_consume(input, wanted);
    pthread_mutex_lock(&server->mutex);
    if (server->len == server->cap) {
        server->cap = server->cap * 2 + 64;
        server->requests = mem_realloc_array(server->requests, server->cap, sizeof(request));
    }
    server->requests[server->len++] = request;
    server->at_once++;
    if (server->at_once > server->most_at_once)
        server->most_at_once = server->at_once;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return true;
}

/* ---- answers ---- */

static bool send_reply(struct connection *connection, const struct raw_step *step, bool half, bool close_it)
{
    auto_str struct str out = {0};
    const char *body = step->body != NULL ? step->body : "";
    size_t len = strlen(body);
    str_addf(&out, "HTTP/1.1 %d Scripted\r\nContent-Type: application/json\r\n%s%sContent-Length: %zu\r\n\r\n",
             step->status != 0 ? step->status : 200, step->headers != NULL ? step->headers : "",
             close_it ? "Connection: close\r\n" : "", len);
    str_add_len(&out, body, half ? len / 2 : len);
    return send_all(connection, out.data, out.len);
}

static void send_chunks(struct connection *connection, const struct raw_step *step, bool end)
{
    auto_str struct str head = {0};
    str_addf(&head, "HTTP/1.1 %d Scripted\r\n%sTransfer-Encoding: chunked\r\n\r\n",
             step->status != 0 ? step->status : 200, step->headers != NULL ? step->headers : "");
    bool good = send_all(connection, head.data, head.len);
    auto_strv struct strv parts = {0};
    strv_split(&parts, step->body != NULL ? step->body : "", '|');
    for (size_t i = 0; i < parts.len && good; i++) {
        size_t len = strlen(parts.items[i]);
        if (len == 0)
            continue;
        auto_str struct str chunk = {0};
        str_addf(&chunk, "%zx\r\n%s\r\n", len, parts.items[i]);
        good = send_all(connection, chunk.data, chunk.len);
        nanosleep(&(struct timespec){.tv_nsec = CLOCK_MS}, NULL);
    }
    if (good && end)
        send_all(connection, "0\r\n\r\n", 5);
}

/* True when the connection may go on. */
static bool play(struct connection *connection, const struct raw_step *step)
{
    switch (step->action) {
    case RAW_REPLY:
        return send_reply(connection, step, false, false);
    case RAW_REPLY_CLOSE:
        send_reply(connection, step, false, true);
        return false;
    case RAW_HALF:
        send_reply(connection, step, true, false);
        return false;
    case RAW_BYTES:
        send_all(connection, step->body, strlen(step->body));
        return false;
    case RAW_CHUNKS:
        send_chunks(connection, step, true);
        return true;
    case RAW_STREAM:
        send_chunks(connection, step, false);
        wait_closed(connection);
        return false;
    case RAW_HANG:
        wait_closed(connection);
        return false;
    case RAW_DROP:
    case RAW_DROP_EARLY:
        break;
    }
    return false;
}

static const struct raw_step *peek_step(struct raw_server *server)
{
    size_t at = server->next_step < server->count ? server->next_step : server->count - 1;
    return &server->steps[at];
}

static const struct raw_step *take_step(struct raw_server *server, bool only_early)
{
    pthread_mutex_lock(&server->mutex);
    const struct raw_step *step = peek_step(server);
    if (only_early && step->action != RAW_DROP_EARLY)
        step = NULL;
    if (step != NULL)
        server->next_step++;
    pthread_mutex_unlock(&server->mutex);
    return step;
}

static void serve(struct connection *connection)
{
    struct raw_server *server = connection->server;
    for (bool go_on = true; go_on && wait_readable(connection);) {
        if (take_step(server, true) != NULL || !read_request(connection))
            return;
        go_on = play(connection, take_step(server, false));
        pthread_mutex_lock(&server->mutex);
        server->at_once--;
        pthread_mutex_unlock(&server->mutex);
    }
}

static void *connection_thread(void *arg)
{
    struct connection *connection = arg;
    bool good = true;
    if (connection->server->context != NULL) {
        connection->ssl = SSL_new(connection->server->context);
        SSL_set_fd(connection->ssl, connection->fd);
        good = SSL_accept(connection->ssl) == 1;
    }
    if (good)
        serve(connection);
    if (connection->ssl != NULL) {
        if (good)
            SSL_shutdown(connection->ssl);
        SSL_free(connection->ssl);
    }
    shutdown(connection->fd, SHUT_RDWR); /* closed by raw_server_stop, which may shut it down at any time */
    return NULL;
}

/* ---- life ---- */

static void *accept_thread(void *arg)
{
    struct raw_server *server = arg;
    while (!server->ending) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct connection *connection = mem_new(struct connection);
        connection->server = server;
        connection->fd = fd;
        pthread_mutex_lock(&server->mutex);
        server->accepted++;
        connection->next = server->connections;
        server->connections = connection;
        connection->thread = thread_start("connection", connection_thread, connection);
        pthread_mutex_unlock(&server->mutex);
    }
    return NULL;
}

static SSL_CTX *make_context(const struct raw_tls *tls)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    BIO *bios[3] = {BIO_new_mem_buf(tls->certificate, -1), BIO_new_mem_buf(tls->key, -1),
                    BIO_new_mem_buf(tls->authority, -1)};
    X509 *certificate = PEM_read_bio_X509(bios[0], NULL, NULL, NULL);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bios[1], NULL, NULL, NULL);
    X509 *authority = PEM_read_bio_X509(bios[2], NULL, NULL, NULL);
    if (SSL_CTX_use_certificate(context, certificate) != 1 || SSL_CTX_use_PrivateKey(context, key) != 1 ||
        X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority) != 1)
        fatal("TLS set-up");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_id_context(context, (const unsigned char *)"raw", 3);
    X509_free(certificate);
    X509_free(authority);
    EVP_PKEY_free(key);
    for (size_t i = 0; i < ARRAY_LEN(bios); i++)
        BIO_free(bios[i]);
    return context;
}

struct raw_server *raw_server_start(const struct raw_tls *tls, struct clock *clock, const struct raw_step *steps,
                                    size_t count)
{
    signal(SIGPIPE, SIG_IGN); /* TLS writes to closed connections */
    struct raw_server *server = mem_new(struct raw_server);
    server->steps = steps;
    server->count = count;
    server->clock = clock != NULL ? clock : clock_real();
    server->context = tls != NULL ? make_context(tls) : NULL;
    pthread_mutex_init(&server->mutex, NULL);
    clock_cond_init(&server->changed);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    server->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server->listen_fd, (struct sockaddr *)&address, size) != 0 || listen(server->listen_fd, 256) != 0 ||
        getsockname(server->listen_fd, (struct sockaddr *)&address, &size) != 0)
        fatal("listen");
    server->port = ntohs(address.sin_port);
    server->thread = thread_start("raw-server", accept_thread, server);
    return server;
}

int raw_server_port(const struct raw_server *server)
{
    return server->port;
}

void raw_server_stop(struct raw_server *server)
{
    if (server == NULL)
        return;
    server->ending = true;
    shutdown(server->listen_fd, SHUT_RDWR);
    thread_join(server->thread);
    close(server->listen_fd);
    for (struct connection *connection = server->connections, *next; connection != NULL; connection = next) {
        next = connection->next;
        shutdown(connection->fd, SHUT_RDWR);
        thread_join(connection->thread);
        close(connection->fd);
        str_free(&connection->input);
        free(connection);
    }
    for (size_t i = 0; i < server->len; i++) {
        free(server->requests[i].line);
        free(server->requests[i].head);
        free(server->requests[i].body);
        free(server->requests[i].peer);
    }
    free(server->requests);
    SSL_CTX_free(server->context);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    free(server);
}

/* ---- what happened ---- */

static size_t read_size(struct raw_server *server, const size_t *field)
{
    pthread_mutex_lock(&server->mutex);
    size_t value = *field;
    pthread_mutex_unlock(&server->mutex);
    return value;
}

size_t raw_server_requests(struct raw_server *server)
{
    return read_size(server, &server->len);
}

size_t raw_server_connections(struct raw_server *server)
{
    return read_size(server, &server->accepted);
}

size_t raw_server_most_at_once(struct raw_server *server)
{
    return read_size(server, &server->most_at_once);
}

bool raw_server_wait(struct raw_server *server, size_t requests)
{
    int64_t deadline = clock_mono(clock_real()) + WAIT_LIMIT;
    pthread_mutex_lock(&server->mutex);
    bool in_time = true;
    while (server->len < requests && in_time)
        in_time = clock_cond_wait(clock_real(), &server->changed, &server->mutex, deadline);
    bool enough = server->len >= requests;
    pthread_mutex_unlock(&server->mutex);
    return enough;
}

static struct request request_at(struct raw_server *server, size_t number)
{
    struct request none = {.line = (char *)(uintptr_t) "",
                           .head = (char *)(uintptr_t) "",
                           .body = (char *)(uintptr_t) "",
                           .peer = (char *)(uintptr_t) ""};
    pthread_mutex_lock(&server->mutex);
    struct request request = number < server->len ? server->requests[number] : none;
    pthread_mutex_unlock(&server->mutex);
    return request;
}

const char *raw_server_line(struct raw_server *server, size_t number)
{
    return request_at(server, number).line;
}

const char *raw_server_head(struct raw_server *server, size_t number)
{
    return request_at(server, number).head;
}

const char *raw_server_body(struct raw_server *server, size_t number)
{
    return request_at(server, number).body;
}

const char *raw_server_peer(struct raw_server *server, size_t number)
{
    return request_at(server, number).peer;
}

int64_t raw_server_time(struct raw_server *server, size_t number)
{
    return request_at(server, number).time;
}

char *raw_server_methods(struct raw_server *server)
{
    struct str text = {0};
    for (size_t i = 0; i < raw_server_requests(server); i++) {
        const char *line = raw_server_line(server, i);
        str_addf(&text, "%s%.*s", i > 0 ? " " : "", (int)strcspn(line, " "), line);
    }
    return str_take(&text);
}
