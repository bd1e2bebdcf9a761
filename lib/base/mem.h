/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation that never returns NULL, and the cleanup attributes the whole project uses instead of goto ladders.
 * Out of memory aborts the process with one line on stderr: there is no sensible way on for a controller.
 */
#ifndef BERTH_BASE_MEM_H
#define BERTH_BASE_MEM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Zeroed memory of `count` items of `size` bytes. The caller frees it with free(). */
void *mem_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result));
void *mem_alloc(size_t size) __attribute__((malloc, warn_unused_result));
/* As realloc for an array of `count` items of `size` bytes; checks the product for overflow. */
void *mem_realloc_array(void *old, size_t count, size_t size) __attribute__((warn_unused_result));
/* Copies; NULL gives NULL. The caller frees them. */
char *mem_strdup(const char *text) __attribute__((warn_unused_result));
char *mem_strndup(const char *text, size_t length) __attribute__((warn_unused_result));
void *mem_dup(const void *data, size_t size) __attribute__((warn_unused_result));
/* A formatted string owned by the caller. */
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2), warn_unused_result));
char *mem_vprintf(const char *format, va_list args) __attribute__((format(printf, 1, 0), warn_unused_result));

/* Overwrites secrets before their memory is given back; the compiler may not leave it out. */
void mem_wipe(void *data, size_t size);

/* True in builds with the address or the thread sanitizer: they bring a heap of their own and keep notes about every
 * byte, so nobody saves memory behind their back. */
#ifndef __has_feature /* clang's way to tell */
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||               \
    __has_feature(thread_sanitizer)
#define MEM_SANITIZED true
#else
#define MEM_SANITIZED false
#endif

/* After a burst: the heap's empty pages go back to the system. Does nothing under sanitizers. */
void mem_trim(void);

#define mem_new(type) ((type *)mem_calloc(1, sizeof(type)))
#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

/* `auto_free char *text = …` frees at the end of the scope. */
static inline void mem_cleanup_free(void *pointer)
{
    void **address = pointer;
    free(*address);
}
#define auto_free __attribute__((cleanup(mem_cleanup_free)))

/* `auto_close int fd = …` closes at the end of the scope when fd >= 0, keeping errno. */
void mem_cleanup_close(const int *fd);
#define auto_close __attribute__((cleanup(mem_cleanup_close)))

/* Hands a descriptor out of an auto_close variable. */
static inline int mem_take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* Hands ownership out of an auto_free variable: `return mem_take(text);` */
#define mem_take(variable)                                                                                             \
    __extension__({                                                                                                    \
        __typeof__(variable) taken_ = (variable);                                                                      \
        (variable) = NULL;                                                                                             \
        taken_;                                                                                                        \
    })

#endif
