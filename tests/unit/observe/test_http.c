/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/observe/http.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct metric_family depth = {.name = "depth", .help = "Depth.", .type = METRIC_GAUGE};

struct fixture {
    struct metrics *metrics;
    struct observe_http *http;
    _Atomic bool ready;
};

static int always(void *arg, struct err *err)
{
    (void)arg;
    (void)err;
    return 0;
}

static int when_ready(void *arg, struct err *err)
{
    struct fixture *fixture = arg;
    if (atomic_load(&fixture->ready))
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "the list of claims is not there yet");
}

static int setup(void **state)
{
    struct fixture *fixture = mem_new(struct fixture);
    fixture->metrics = metrics_new();
    metric_set(fixture->metrics, &depth, 7, NULL);
    fixture->http = observe_http_new(fixture->metrics, "/custom/metrics");
    observe_http_add_check(fixture->http, OBSERVE_HEALTHZ, "ping", always, NULL);
    observe_http_add_check(fixture->http, OBSERVE_READYZ, "ping", always, NULL);
    observe_http_add_check(fixture->http, OBSERVE_READYZ, "claims", when_ready, fixture);
    *state = fixture;
    auto_err struct err err = {0};
    if (observe_http_start(fixture->http, "127.0.0.1:0", &err) != 0)
        print_error("%s\n", err_text(&err));
    return err.code == ERR_NONE ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    observe_http_free(fixture->http);
    metrics_free(fixture->metrics);
    free(fixture);
    return 0;
}

static int dial(const struct fixture *fixture)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)observe_http_port(fixture->http)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void send_text(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Everything until the server closes, or what came within 10 s. */
static char *receive_all(int fd)
{
    struct str out = {0};
    char buffer[4096];
    for (;;) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        ssize_t got = poll(&pollfd, 1, 10000) == 1 ? recv(fd, buffer, sizeof(buffer), 0) : 0;
        if (got <= 0)
            return str_take(&out);
        str_add_len(&out, buffer, (size_t)got);
    }
}

static char *ask(const struct fixture *fixture, const char *method, const char *target)
{
    auto_close int fd = dial(fixture);
    auto_free char *request = mem_printf("%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, target);
    send_text(fd, request);
    return receive_all(fd);
}

static void assert_answer(const struct fixture *fixture, const char *method, const char *target, int status,
                          const char *body)
{
    auto_free char *answer = ask(fixture, method, target);
    auto_free char *start = mem_printf("HTTP/1.1 %d ", status);
    if (!str_starts(answer, start))
        fail_msg("%s %s: not %d but\n%s", method, target, status, answer);
    const char *found = strstr(answer, "\r\n\r\n");
    assert_non_null(found);
    assert_string_equal(found + 4, body);
}

static void test_metrics_page(void **state)
{
    const struct fixture *fixture = *state;
    const char *text = "# HELP depth Depth.\n# TYPE depth gauge\ndepth 7\n";
    assert_answer(fixture, "GET", "/custom/metrics", 200, text);
    assert_answer(fixture, "GET", "/metrics", 404, "404 page not found\n");
    auto_free char *answer = ask(fixture, "GET", "/custom/metrics");
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    auto_free char *head = ask(fixture, "HEAD", "/custom/metrics");
    assert_true(str_starts(head, "HTTP/1.1 200 "));
    auto_free char *length = mem_printf("Content-Length: %zu\r\n", strlen(text));
    assert_non_null(strstr(head, length));
    assert_true(str_ends(head, "\r\n\r\n"));
}

static void test_health(void **state)
{
    struct fixture *fixture = *state;
    assert_answer(fixture, "GET", "/healthz", 200, "ok");
    assert_answer(fixture, "GET", "/healthz?verbose", 200, "[+]ping ok\nhealthz check passed\n");
    assert_answer(fixture, "GET", "/healthz?verbose=1", 200, "[+]ping ok\nhealthz check passed\n");
    assert_answer(fixture, "GET", "/healthz?other", 200, "ok");
    assert_answer(fixture, "GET", "/readyz", 500,
                  "[+]ping ok\n[-]claims failed: the list of claims is not there yet\nreadyz check failed\n");
    assert_answer(fixture, "GET", "/readyz/ping", 200, "ok");
    assert_answer(fixture, "GET", "/readyz/claims", 500,
                  "internal server error: the list of claims is not there yet\n");
    assert_answer(fixture, "GET", "/readyz/none", 404, "404 page not found\n");
    atomic_store(&fixture->ready, true);
    assert_answer(fixture, "GET", "/readyz", 200, "ok");
    assert_answer(fixture, "GET", "/readyz?verbose", 200, "[+]ping ok\n[+]claims ok\nreadyz check passed\n");
}

static void test_leader_election(void **state)
{
    struct fixture *fixture = *state;
    assert_answer(fixture, "GET", "/healthz/leader-election", 404, "404 page not found\n");
    /* checks may come while the server runs */
    observe_http_add_check(fixture->http, OBSERVE_LEADER_ELECTION, "lease", when_ready, fixture);
    assert_answer(fixture, "GET", "/healthz/leader-election", 500,
                  "internal server error: the list of claims is not there yet\n");
    atomic_store(&fixture->ready, true);
    assert_answer(fixture, "GET", "/healthz/leader-election", 200, "ok");
}

static void test_other_methods(void **state)
{
    const struct fixture *fixture = *state;
    static const char *const methods[] = {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"};
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        auto_free char *answer = ask(fixture, methods[i], "/healthz");
        assert_true(str_starts(answer, "HTTP/1.1 405 "));
        assert_non_null(strstr(answer, "Allow: GET, HEAD\r\n"));
    }
    /* a large body is not read */
    auto_close int fd = dial(fixture);
    send_text(fd, "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nxxxx");
    auto_free char *answer = receive_all(fd);
    assert_true(str_starts(answer, "HTTP/1.1 405 "));
}

static void test_nonsense(void **state)
{
    const struct fixture *fixture = *state;
    static const char *const requests[] = {"\r\n\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02", "GET / HTTP/9.9\r\n\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        auto_close int fd = dial(fixture);
        send_text(fd, requests[i]);
        shutdown(fd, SHUT_WR);
        auto_free char *answer = receive_all(fd);
        assert_null(strstr(answer, " 200 "));
    }
    auto_str struct str huge = {0};
    str_add(&huge, "GET /");
    for (int i = 0; i < 100000; i++)
        str_add_char(&huge, 'x');
    auto_close int fd = dial(fixture);
    send(fd, huge.data, huge.len, MSG_NOSIGNAL);
    auto_free char *answer = receive_all(fd);
    assert_null(strstr(answer, "HTTP/1.1 200"));
    assert_answer(fixture, "GET", "/healthz", 200, "ok");
}

/* Clients that never finish a request, more of them than there are connections. */
static void test_slow_clients_keep_nobody_out(void **state)
{
    const struct fixture *fixture = *state;
    int slow[80];
    for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
        slow[i] = dial(fixture);
        send_text(slow[i], "GET /healthz HTTP/1.1\r\nX-Slow: ");
    }
    int64_t start = clock_mono(clock_real());
    assert_answer(fixture, "GET", "/healthz", 200, "ok");
    assert_true(clock_mono(clock_real()) - start < 5 * CLOCK_SECOND);
    /* the first ones were closed for it */
    struct pollfd pollfd = {.fd = slow[0], .events = POLLIN};
    assert_int_equal(poll(&pollfd, 1, 5000), 1);
    for (size_t i = 0; i < ARRAY_LEN(slow); i++)
        close(slow[i]);
    for (int i = 0; i < 100; i++)
        assert_answer(fixture, "GET", "/healthz", 200, "ok");
}

static void test_start_fails_with_a_message(void **state)
{
    const struct fixture *fixture = *state;
    struct observe_http *second = observe_http_new(NULL, NULL);
    auto_err struct err err = {0};
    auto_free char *address = mem_printf("127.0.0.1:%d", observe_http_port(fixture->http));
    assert_int_equal(observe_http_start(second, address, &err), -1);
    auto_free char *expected = mem_printf("listen on %s: Address already in use", address);
    assert_string_equal(err.message, expected);
    observe_http_free(second); /* was never started */
    observe_http_free(NULL);
}

#define with_server(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_server(test_metrics_page),
        with_server(test_health),
        with_server(test_leader_election),
        with_server(test_other_methods),
        with_server(test_nonsense),
        with_server(test_slow_clients_keep_nobody_out),
        with_server(test_start_fails_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
