/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/observe/listen.h"

#include "lib/base/mem.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool connects(int family, int port)
{
    auto_close int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_loopback};
    if (family == AF_INET)
        return connect(fd, (const struct sockaddr *)&v4, sizeof(v4)) == 0;
    return connect(fd, (const struct sockaddr *)&v6, sizeof(v6)) == 0;
}

static bool has_ipv6(void)
{
    auto_close int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    return fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof(any)) == 0;
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        bool v4;
        bool v6;
    } table[] = {
        {"127.0.0.1:0", true, false}, {"localhost:0", true, false}, {":0", true, true},
        {"[::]:0", true, true},       {"[::1]:0", false, true},     {"0.0.0.0:0", true, false},
    };
    bool v6 = has_ipv6();
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (!v6 && strchr(table[i].address, '[') != NULL)
            continue;
        auto_err struct err err = {0};
        int port = 0;
        auto_close int fd = listen_open(table[i].address, &port, &err);
        assert_string_equal(err_text(&err), "no error");
        assert_true(fd >= 0);
        assert_in_range(port, 1, 65535);
        assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        assert_int_equal(connects(AF_INET, port), table[i].v4);
        assert_int_equal(connects(AF_INET6, port), table[i].v6 && v6);
    }
}

static void test_bad_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "localhost",
                                      "8080",
                                      "127.0.0.1:",
                                      "127.0.0.1:http",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "::1:8080",
                                      "[::1]",
                                      "[::1:80",
                                      "no.such.host.invalid:0"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        int port = 0;
        assert_int_equal(listen_open(bad[i], &port, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.message, bad[i]));
    }
}

static void test_port_in_use(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    int port = 0;
    auto_close int fd = listen_open("127.0.0.1:0", &port, &err);
    assert_true(fd >= 0);
    auto_free char *address = mem_printf("127.0.0.1:%d", port);
    int other = 0;
    assert_int_equal(listen_open(address, &other, &err), -1);
    auto_free char *expected = mem_printf("listen on %s: Address already in use", address);
    assert_string_equal(err.message, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_port_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
