/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping and threads. A `struct stop` is a one-way switch shared by all threads of a component: everybody who waits
 * also waits for it. Signals are turned into it by stop_on_signals, in a thread of their own, so no code runs in signal
 * context.
 */
#ifndef BERTH_BASE_STOP_H
#define BERTH_BASE_STOP_H

#include "lib/base/clock.h"

#include <stdbool.h>
#include <stddef.h>

struct stop;

struct stop *stop_new(void);
void stop_free(struct stop *stop);    /* nobody may use it any more */
void stop_request(struct stop *stop); /* idempotent, thread-safe */
bool stop_requested(const struct stop *stop);
int stop_fd(const struct stop *stop); /* readable once requested: for poll(); owned by stop */
/* Sleeps until `deadline` (monotonic); true when a stop was requested meanwhile. */
bool stop_wait_until(struct stop *stop, struct clock *clock, int64_t deadline);
bool stop_sleep(struct stop *stop, struct clock *clock, int64_t ns); /* the same, from now */
/* Calls fn(arg) once when the stop is requested (at once when it already was), from the requesting thread; it must not
 * block. stop_off takes it back and returns only when fn is not running. */
void stop_on(struct stop *stop, void (*fn)(void *arg), void *arg);
void stop_off(struct stop *stop, void (*fn)(void *arg), void *arg);

/* Blocks SIGTERM and SIGINT in the caller (call it in main before any thread starts) and starts a thread that requests
 * `stop` at the first; a second one ends the process at once with exit status 1. SIGPIPE is ignored. */
void stop_on_signals(struct stop *stop);

/* Starts a joinable thread with a name of at most 15 characters and the project's usual stack of 256 KiB (threads are
 * plenty and small). Aborts when the kernel refuses. */
#define THREAD_STACK_SIZE ((size_t)256 * 1024)
pthread_t thread_start(const char *name, void *(*fn)(void *arg), void *arg);
pthread_t thread_start_stack(const char *name, size_t stack_size, void *(*fn)(void *arg), void *arg);
void thread_join(pthread_t thread);
/* Gives back what the calling thread's stack has grown by below the caller. clock_cond_wait does it before a long wait:
 * a program has many threads, most of them wait, and each would keep the pages of the deepest call it ever made.
 * Nothing happens in threads that thread_start did not start. */
void thread_trim_stack(void);
/* Call first in main: few malloc arenas (many small threads would else each keep their own heap). */
void thread_limit_arenas(void);
/* The same for a daemon that lives long and should stay small: glibc's per-thread caches of memory and of stacks hold
 * about a megabyte after a burst and can only be switched off from outside, so the program executes itself once more
 * with GLIBC_TUNABLES set (same pid; nothing happens when the user has set that variable, or where the program's own
 * file cannot be found). First thing in main. */
void thread_limit_memory(char **argv);

#endif
