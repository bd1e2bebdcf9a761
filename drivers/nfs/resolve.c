/* SPDX-License-Identifier: Apache-2.0 */
/* A name server that does not answer must not hold a call longer than its deadline, and getaddrinfo cannot be told:
 * the asynchronous form can be left behind. */
#include "drivers/nfs/share_private.h"

#include "lib/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>

struct lookup { /* left to itself when it does not end in time */
    struct gaicb request;
    struct addrinfo hints;
    char *name;
};

static void lookup_free(struct lookup *lookup)
{
    if (lookup->request.ar_result != NULL)
        freeaddrinfo(lookup->request.ar_result);
    free(lookup->name);
    free(lookup);
}

static int lookup_wait(struct lookup *lookup, struct clock *clock, int64_t deadline)
{
    const struct gaicb *list[] = {&lookup->request};
    for (;;) {
        int result = gai_error(&lookup->request);
        if (result != EAI_INPROGRESS)
            return result;
        int64_t left = deadline - clock_mono(clock);
        if (left <= 0)
            return EAI_INPROGRESS;
        struct timespec timeout = {.tv_sec = left / CLOCK_SECOND, .tv_nsec = left % CLOCK_SECOND};
        gai_suspend(list, 1, &timeout);
    }
}

int share_resolve(const char *server, struct clock *clock, int64_t deadline, char **address, int *error)
{
    struct in6_addr numeric;
    char text[NI_MAXHOST];
    if (inet_pton(AF_INET, server, &numeric) == 1 || inet_pton(AF_INET6, server, &numeric) == 1) {
        *address = mem_strdup(server);
        return 0;
    }
    struct lookup *lookup = mem_new(struct lookup);
    lookup->name = mem_strdup(server);
    lookup->hints = (struct addrinfo){.ai_socktype = SOCK_STREAM};
    lookup->request = (struct gaicb){.ar_name = lookup->name, .ar_request = &lookup->hints};
    struct gaicb *list[] = {&lookup->request};
    int result = getaddrinfo_a(GAI_NOWAIT, list, 1, NULL);
    if (result == 0)
        result = lookup_wait(lookup, clock, deadline);
    if (result == EAI_INPROGRESS && gai_cancel(&lookup->request) != EAI_CANCELED) {
        *error = ETIMEDOUT; /* a thread of libc still works on it: its memory stays */
        return -1;
    }
    if (result == 0)
        result = getnameinfo(lookup->request.ar_result->ai_addr, lookup->request.ar_result->ai_addrlen, text,
                             sizeof(text), NULL, 0, NI_NUMERICHOST);
    lookup_free(lookup);
    if (result == 0) {
        *address = mem_strdup(text);
        return 0;
    }
    *error = result == EAI_INPROGRESS || result == EAI_AGAIN ? ETIMEDOUT : ENOENT;
    return -1;
}
