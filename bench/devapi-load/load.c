/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load for berth-devapi: creates objects, then patches them over some connections while others watch, and prints rates.
 * One thread and epoll: it shall cost less than the server it measures.
 */
#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/flag.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_SIZE = 256 * 1024 };

struct options {
    int64_t port, objects, writes, connections, watchers;
};
#define AT(member) .offset = offsetof(struct options, member)
static const struct flag flags[] = {
    {.name = "port", .type = FLAG_INT, .group = "Load", AT(port), .help = "Port on 127.0.0.1."},
    {.name = "objects",
     .type = FLAG_INT,
     .default_value = "1000",
     .group = "Load",
     AT(objects),
     .help = "Claims to create, and to patch in turn."},
    {.name = "writes", .type = FLAG_INT, .default_value = "50000", .group = "Load", AT(writes), .help = "Patches."},
    {.name = "connections",
     .type = FLAG_INT,
     .default_value = "8",
     .group = "Load",
     AT(connections),
     .help = "Connections that write, one request at a time each."},
    {.name = "watchers",
     .type = FLAG_INT,
     .default_value = "0",
     .group = "Load",
     AT(watchers),
     .help = "Watches of all claims that are open meanwhile."},
};
static const struct flag_program program = {.name = "berth-devapi-load",
                                            .summary = "Measures how fast berth-devapi writes and notifies.",
                                            .usage = "--port=PORT [flags]",
                                            .flags = flags,
                                            .count = ARRAY_LEN(flags)};

struct connection {
    int fd;
    bool watch;
    struct str in;
    uint64_t events, bytes; /* of a watch */
};

struct load {
    const struct options *options;
    int epoll;
    struct connection *connections; /* writers, then watchers */
    size_t count;
    uint64_t sent, done, failed;
    char *buffer;
};

static int open_connection(const struct options *options, struct err *err)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)options->port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        err_set_errno(err, errno, "connect to port %lld", (long long)options->port);
        mem_cleanup_close(&fd);
        return -1;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static int send_all(int fd, const struct str *text, struct err *err)
{
    for (size_t at = 0; at < text->len;) {
        ssize_t n = send(fd, text->data + at, text->len - at, MSG_NOSIGNAL);
        if (n < 0)
            return err_set_errno(err, errno, "send");
        at += (size_t)n;
    }
    return 0;
}

static int send_request(int fd, const char *method, const char *path, const char *type, const char *body,
                        struct err *err)
{
    auto_str struct str text = {0};
    str_addf(&text, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s", method, path,
             type, strlen(body), body);
    return send_all(fd, &text, err);
}

static int next_write(struct load *load, const struct connection *connection, bool create, struct err *err)
{
    uint64_t number = load->sent++ % (uint64_t)load->options->objects;
    auto_free char *path =
        create ? mem_strdup("/api/v1/namespaces/default/persistentvolumeclaims")
               : mem_printf("/api/v1/namespaces/default/persistentvolumeclaims/claim-%llu", (unsigned long long)number);
    auto_free char *body =
        create ? mem_printf("{\"metadata\":{\"name\":\"claim-%llu\",\"labels\":{\"app\":\"load\"}},\"spec\":{"
                            "\"accessModes\":[\"ReadWriteOnce\"],\"storageClassName\":\"fast\",\"resources\":{"
                            "\"requests\":{\"storage\":\"1Gi\"}}}}",
                            (unsigned long long)number)
               : mem_printf("{\"metadata\":{\"annotations\":{\"n\":\"%llu\"}}}", (unsigned long long)load->sent);
    return send_request(connection->fd, create ? "POST" : "PATCH", path,
                        create ? "application/json" : "application/merge-patch+json", body, err);
}

/* Takes one whole answer off the buffer; returns its status, 0 when it is not complete. */
static int take_answer(struct str *in)
{
    const char *end = in->len > 0 ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL;
    const char *length = end != NULL ? strcasestr(in->data, "content-length: ") : NULL;
    if (end == NULL || length == NULL || length > end)
        return 0;
    size_t total = (size_t)(end - in->data) + 4 + strtoul(length + strlen("content-length: "), NULL, 10);
    if (in->len < total)
        return 0;
    int status = (int)strtol(in->data + strlen("HTTP/1.1 "), NULL, 10);
    str_consume(in, total);
    return status;
}

static void count_events(struct connection *connection, const char *data, size_t len)
{
    connection->bytes += len;
    for (const char *at = data; (at = memchr(at, '\n', len - (size_t)(at - data))) != NULL; at++)
        if (at > data && at[-1] == '}')
            connection->events++;
}

static int on_readable(struct load *load, struct connection *connection, bool create, uint64_t total, struct err *err)
{
    ssize_t n = read(connection->fd, load->buffer, READ_SIZE);
    if (n <= 0)
        return err_set(err, ERR_IO, "the server closed a connection");
    if (connection->watch) {
        count_events(connection, load->buffer, (size_t)n);
        return 0;
    }
    str_add_len(&connection->in, load->buffer, (size_t)n);
    int status = take_answer(&connection->in);
    if (status == 0)
        return 0;
    load->done++;
    load->failed += status >= 300;
    return load->sent < total ? next_write(load, connection, create, err) : 0;
}

static uint64_t events_seen(const struct load *load)
{
    uint64_t events = 0;
    for (size_t i = 0; i < load->count; i++)
        events += load->connections[i].events;
    return events;
}

/* Sends `total` writes and waits for their answers, and for `events` events on the watches. */
static int run_phase(struct load *load, bool create, uint64_t total, uint64_t events, struct err *err)
{
    struct epoll_event ready[64];
    load->sent = load->done = 0;
    for (size_t i = 0; i < load->count && load->sent < total; i++)
        if (!load->connections[i].watch && next_write(load, &load->connections[i], create, err) != 0)
            return -1;
    while (load->done < total || events_seen(load) < events) {
        int count = epoll_wait(load->epoll, ready, ARRAY_LEN(ready), 10000);
        if (count == 0)
            return err_set(err, ERR_TIMEOUT, "nothing for 10 s: %llu answers, %llu events",
                           (unsigned long long)load->done, (unsigned long long)events_seen(load));
        for (int i = 0; i < count; i++)
            if (on_readable(load, ready[i].data.ptr, create, total, err) != 0)
                return -1;
    }
    return 0;
}

static int add_connections(struct load *load, size_t count, bool watch, struct err *err)
{
    load->connections = mem_realloc_array(load->connections, load->count + count, sizeof(*load->connections));
    for (size_t i = 0; i < count; i++) {
        struct connection *connection = &load->connections[load->count];
        *connection = (struct connection){.fd = open_connection(load->options, err), .watch = watch};
        if (connection->fd < 0)
            return -1;
        load->count++;
    }
    return 0;
}

static int register_all(struct load *load, struct err *err)
{
    for (size_t i = 0; i < load->count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = &load->connections[i]}};
        if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, load->connections[i].fd, &event) != 0)
            return err_set_errno(err, errno, "epoll_ctl");
    }
    return 0;
}

static int start_watches(struct load *load, struct err *err)
{
    for (size_t i = 0; i < load->count; i++)
        if (load->connections[i].watch &&
            send_request(load->connections[i].fd, "GET", "/api/v1/persistentvolumeclaims?watch=1&timeoutSeconds=600",
                         "application/json", "", err) != 0)
            return -1;
    return 0;
}

static int run(const struct options *options, struct load *load, struct err *err)
{
    if (add_connections(load, (size_t)options->connections, false, err) != 0 ||
        add_connections(load, (size_t)options->watchers, true, err) != 0 || register_all(load, err) != 0)
        return -1;
    int64_t start = clock_mono(clock_real());
    uint64_t objects = (uint64_t)options->objects, watchers = (uint64_t)options->watchers;
    if (run_phase(load, true, objects, 0, err) != 0)
        return -1;
    double seconds = (double)(clock_mono(clock_real()) - start) / (double)CLOCK_SECOND;
    printf("%llu creates in %.2f s: %.0f/s\n", (unsigned long long)objects, seconds, (double)objects / seconds);
    if (start_watches(load, err) != 0)
        return -1;
    /* first everybody sees the present state */
    start = clock_mono(clock_real());
    if (run_phase(load, false, 0, objects * watchers, err) != 0)
        return -1;
    seconds = (double)(clock_mono(clock_real()) - start) / (double)CLOCK_SECOND;
    if (watchers > 0)
        printf("%llu watches see %llu objects each after %.2f s\n", (unsigned long long)watchers,
               (unsigned long long)objects, seconds);
    uint64_t writes = (uint64_t)options->writes, before = events_seen(load);
    start = clock_mono(clock_real());
    if (run_phase(load, false, writes, before + writes * watchers, err) != 0)
        return -1;
    seconds = (double)(clock_mono(clock_real()) - start) / (double)CLOCK_SECOND;
    if (writes > 0)
        printf("%llu patches with %llu watches in %.2f s: %.0f/s, %.0f events/s delivered\n",
               (unsigned long long)writes, (unsigned long long)watchers, seconds, (double)writes / seconds,
               (double)(events_seen(load) - before) / seconds);
    return load->failed == 0
               ? 0
               : err_set(err, ERR_UNAVAILABLE, "%llu writes were refused", (unsigned long long)load->failed);
}

int main(int argc, char **argv)
{
    struct options options;
    enum flag_result parsed = flag_parse(&program, argc, argv, &options, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    auto_err struct err err = {0};
    struct load load = {.options = &options, .epoll = epoll_create1(EPOLL_CLOEXEC), .buffer = mem_alloc(READ_SIZE)};
    int result = run(&options, &load, &err);
    if (result != 0)
        log_error("Load failed", kv_err(&err));
    for (size_t i = 0; i < load.count; i++) {
        close(load.connections[i].fd);
        str_free(&load.connections[i].in);
    }
    free(load.connections);
    free(load.buffer);
    close(load.epoll);
    return result == 0 ? 0 : 1;
}
