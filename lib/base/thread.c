/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of stop.h. */
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Sanitizers put red zones around everything on the stack. */
#define STACK_FACTOR (MEM_SANITIZED ? 4 : 1)
/* What thread_trim_stack leaves below its own frame, for the call that gives the rest back. */
#define STACK_KEPT 1024
#define TUNABLES "GLIBC_TUNABLES"
#define TUNABLES_OURS "glibc.pthread.stack_cache_size=0:glibc.malloc.tcache_count=0"

struct start {
    char name[16];
    void *(*fn)(void *arg);
    void *arg;
};

/* Where this thread's stack ends; NULL for one that was not started here. */
static __thread char *stack_end;

static char *find_stack_end(void)
{
    pthread_attr_t attributes;
    void *end = NULL;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return NULL;
    pthread_attr_getstack(&attributes, &end, &size);
    pthread_attr_destroy(&attributes);
    return end;
}

/* Sanitizers keep notes of their own about every byte of a stack. */
void thread_trim_stack(void)
{
    if (stack_end == NULL || MEM_SANITIZED)
        return;
    uintptr_t unused = (uintptr_t)__builtin_frame_address(0) - (uintptr_t)stack_end - STACK_KEPT;
    madvise(stack_end, unused / (size_t)getpagesize() * (size_t)getpagesize(), MADV_DONTNEED);
}

static void *run(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    stack_end = find_stack_end();
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
    else if (tunables == NULL && !MEM_SANITIZED && !is_below_valgrind() && setenv(TUNABLES, TUNABLES_OURS, 1) == 0) {
        execv("/proc/self/exe", argv);
        unsetenv(TUNABLES); /* it failed: we are only a little larger */
    }
    thread_limit_arenas();
    /* Freed small blocks join their neighbours at once instead of waiting in lists of their size: the holes become
     * large enough for something else, and a burst leaves more whole pages free. */
    mallopt(M_MXFAST, 0);
}
