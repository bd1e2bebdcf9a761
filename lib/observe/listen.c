/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/observe/listen.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int split_address(const char *address, char **host, char **port, struct err *err)
{
    const char *colon = strrchr(address, ':');
    uint64_t number = 0;
    if (colon == NULL || !str_parse_u64(colon + 1, &number) || number > 65535) {
        err_set(err, ERR_INVALID, "\"%s\" is no address to listen on: use host:port, [ipv6]:port or :port", address);
        return -1;
    }
    size_t len = (size_t)(colon - address);
    bool bracketed = len >= 2 && address[0] == '[' && address[len - 1] == ']';
    if (!bracketed && memchr(address, ':', len) != NULL) {
        err_set(err, ERR_INVALID, "\"%s\" is no address to listen on: write [ipv6]:port", address);
        return -1;
    }
    *host = bracketed ? mem_strndup(address + 1, len - 2) : mem_strndup(address, len);
    *port = mem_strdup(colon + 1);
    return 0;
}

/* Returns the socket, or -1 with errno. */
static int open_one(const struct addrinfo *info)
{
    auto_close int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    int off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (info->ai_family == AF_INET6) /* ":port" takes IPv4 too, whatever the system's default is */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, 32) != 0)
        return -1;
    return mem_take_fd(&fd);
}

/* The first address of that family that can be listened on. */
static int open_family(const struct addrinfo *list, int family)
{
    int fd = -1;
    for (const struct addrinfo *info = list; info != NULL && fd < 0; info = info->ai_next) {
        if (info->ai_family == family)
            fd = open_one(info);
    }
    return fd;
}

static int bound_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {.v6 = {.sin6_port = 0}};
    socklen_t len = sizeof(bound);
    getsockname(fd, &bound.any, &len);
    return ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
}

int listen_open(const char *address, int *port, struct err *err)
{
    auto_free char *host = NULL;
    auto_free char *service = NULL;
    if (split_address(address, &host, &service, err) != 0)
        return -1;
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(*host != '\0' ? host : NULL, service, &hints, &list);
    if (rc != 0)
        return err_set(err, ERR_INVALID, "listen on %s: %s", address, gai_strerror(rc));
    /* for all addresses IPv6 first, since that socket serves both; a name means IPv4 first, as "localhost" does */
    int fd = open_family(list, *host != '\0' ? AF_INET : AF_INET6);
    if (fd < 0)
        fd = open_family(list, *host != '\0' ? AF_INET6 : AF_INET);
    int error_number = errno;
    freeaddrinfo(list);
    if (fd < 0)
        return err_set_errno(err, error_number, "listen on %s", address);
    *port = bound_port(fd);
    return fd;
}
