/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/holder_packet.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t soon(void)
{
    return clock_mono(clock_real()) + 5 * CLOCK_SECOND;
}

static void make_pair(int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
}

static void bodies_and_descriptors(void **state)
{
    int pair[2], pipe_ends[2];
    auto_packet struct holder_packet packet = {0};
    (void)state;
    make_pair(pair);
    assert_int_equal(pipe(pipe_ends), 0);
    json_t *body = json_pack("{s:s}", "op", "x");
    assert_int_equal(holder_packet_send(pair[0], body, pipe_ends, 2, soon(), NULL), 0);
    json_decref(body);
    assert_int_equal(holder_packet_receive(pair[1], &packet, soon(), NULL), 0);
    assert_string_equal(json_string_value(json_object_get(packet.body, "op")), "x");
    assert_int_equal(packet.fd_count, 2);
    assert_int_equal(fcntl(packet.fds[0], F_GETFD), FD_CLOEXEC);
    char byte = 0;
    assert_int_equal(write(packet.fds[1], "p", 1), 1);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    int taken = mem_take_fd(&packet.fds[0]), left = packet.fds[1];
    holder_packet_clear(&packet);
    assert_int_equal(fcntl(left, F_GETFD), -1);
    assert_int_equal(fcntl(taken, F_GETFD), FD_CLOEXEC);
    close(taken);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    close(pair[0]);
    assert_int_equal(holder_packet_receive(pair[1], &packet, soon(), NULL), 0);
    assert_null(packet.body); /* the peer is gone */
    close(pair[1]);
}

static void garbage_is_refused(void **state)
{
    static const char *const texts[] = {"x", "[]", "5", "{\"a\":", "\xff\xff"};
    int pair[2];
    (void)state;
    make_pair(pair);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct holder_packet packet;
        auto_err struct err err = {0};
        assert_true(send(pair[0], texts[i], strlen(texts[i]), 0) > 0);
        assert_int_equal(holder_packet_receive(pair[1], &packet, soon(), &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
    auto_free char *large = mem_calloc(HOLDER_PACKET_MAX + 2, 1);
    memset(large, ' ', HOLDER_PACKET_MAX + 1);
    large[0] = '{';
    struct holder_packet packet;
    assert_true(send(pair[0], large, HOLDER_PACKET_MAX + 1, 0) > 0);
    assert_int_equal(holder_packet_receive(pair[1], &packet, soon(), NULL), -1);
    large[0] = 'a';
    json_t *body = json_pack("{s:s}", "text", large);
    auto_err struct err err = {0};
    assert_int_equal(holder_packet_send(pair[0], body, NULL, 0, soon(), &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    json_decref(body);
    close(pair[0]);
    close(pair[1]);
}

static void deadlines(void **state)
{
    int pair[2];
    struct holder_packet packet;
    auto_err struct err err = {0};
    (void)state;
    make_pair(pair);
    assert_int_equal(holder_packet_receive(pair[1], &packet, clock_mono(clock_real()) + 20 * CLOCK_MS, &err), -1);
    assert_int_equal(err.code, ERR_TIMEOUT);
    json_t *body = json_object();
    int sent = 0; /* until the peer's queue is full */
    while (holder_packet_send(pair[0], body, NULL, 0, clock_mono(clock_real()), &err) == 0 && sent < 100000)
        sent++;
    assert_true(sent > 0 && sent < 100000);
    assert_int_equal(err.code, ERR_TIMEOUT);
    close(pair[1]);
    assert_int_equal(holder_packet_send(pair[0], body, NULL, 0, soon(), &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    json_decref(body);
    close(pair[0]);
}

static void errors_travel(void **state)
{
    (void)state;
    for (int code = ERR_INTERNAL; code <= ERR_RPC; code++) {
        auto_err struct err err = {0}, back = {0};
        err_set(&err, (enum err_code)code, "reason %d", code);
        json_t *answer = holder_packet_failure(&err);
        assert_int_equal(holder_packet_check(answer, &back), -1);
        assert_int_equal(back.code, code);
        assert_string_equal(back.message, err.message);
        json_decref(answer);
    }
    auto_err struct err odd = {0}, back = {0};
    err_set(&odd, ERR_INVALID, "path \xff");
    json_t *answer = holder_packet_failure(&odd);
    assert_int_equal(holder_packet_check(answer, &back), -1);
    assert_int_equal(back.code, ERR_INVALID);
    json_decref(answer);
    answer = json_object();
    assert_int_equal(holder_packet_check(answer, &back), -1);
    json_decref(answer);
}

static void addresses(void **state)
{
    struct sockaddr_un address;
    auto_err struct err err = {0};
    char path[200];
    (void)state;
    assert_int_equal(holder_packet_address("/run/s", &address, NULL), 0);
    assert_string_equal(address.sun_path, "/run/s");
    assert_int_equal(holder_packet_address("run/s", &address, NULL), -1);
    memset(path, 'p', sizeof(path));
    path[0] = '/';
    path[107] = '\0';
    assert_int_equal(holder_packet_address(path, &address, NULL), 0);
    path[107] = 'p';
    path[108] = '\0';
    assert_int_equal(holder_packet_address(path, &address, NULL), -1);
    assert_int_equal(holder_packet_connect("/nonexistent/socket", &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_and_descriptors), cmocka_unit_test(garbage_is_refused), cmocka_unit_test(deadlines),
        cmocka_unit_test(errors_travel),          cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
