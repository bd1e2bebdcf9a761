/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of stop.h. */
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef __has_feature /* clang's way to tell about sanitizers */
#define __has_feature(feature) 0
#endif
/* Sanitizers put red zones around everything on the stack. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||               \
    __has_feature(thread_sanitizer)
#define STACK_FACTOR 4
#define SANITIZED true
#else
#define STACK_FACTOR 1
#define SANITIZED false
#endif
#define TUNABLES "GLIBC_TUNABLES"
#define TUNABLES_OURS "glibc.pthread.stack_cache_size=0:glibc.malloc.tcache_count=0"

struct start {
    char name[16];
    void *(*fn)(void *arg);
    void *arg;
};

static void *run(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    pthread_setname_np(pthread_self(), start.name);
    return start.fn(start.arg);
}

pthread_t thread_start_stack(const char *name, size_t stack_size, void *(*fn)(void *arg), void *arg)
{
    struct start *start = mem_new(struct start);
    snprintf(start->name, sizeof(start->name), "%s", name);
    start->fn = fn;
    start->arg = arg;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack_size * STACK_FACTOR);
    pthread_t thread;
    int rc = pthread_create(&thread, &attributes, run, start);
    if (rc != 0) {
        fprintf(stderr, "cannot start thread %s: %s\n", name, strerror(rc));
        abort();
    }
    pthread_attr_destroy(&attributes);
    return thread;
}

pthread_t thread_start(const char *name, void *(*fn)(void *arg), void *arg)
{
    return thread_start_stack(name, THREAD_STACK_SIZE, fn, arg);
}

void thread_join(pthread_t thread)
{
    pthread_join(thread, NULL);
}

void thread_limit_arenas(void)
{
    mallopt(M_ARENA_MAX, 1);
    /* Setting it also switches off its growing with what was freed: large buffers (a list of all volumes) keep coming
     * from mmap and go back to the system at once. */
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
}

/* valgrind cannot follow: what it would be started as is valgrind itself. It is known by what it loads into us. */
static bool is_below_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload != NULL && strstr(preload, "/vgpreload_") != NULL;
}

void thread_limit_memory(char **argv)
{
    const char *tunables = getenv(TUNABLES);
    if (str_eq(tunables, TUNABLES_OURS))
        unsetenv(TUNABLES); /* in force for us; programs that we start decide for themselves */
    else if (tunables == NULL && !SANITIZED && !is_below_valgrind() && setenv(TUNABLES, TUNABLES_OURS, 1) == 0) {
        execv("/proc/self/exe", argv);
        unsetenv(TUNABLES); /* it failed: we are only a little larger */
    }
    thread_limit_arenas();
}
