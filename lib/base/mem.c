/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* No stdio: it might allocate. */
static _Noreturn void out_of_memory(void)
{
    static const char line[] = "out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, line, sizeof(line) - 1);
    (void)ignored;
    abort();
}

void *mem_calloc(size_t count, size_t size)
{
    /* calloc(0) may give NULL, which must not be taken for a failure */
    void *data = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (data == NULL)
        out_of_memory();
    return data;
}

void *mem_alloc(size_t size)
{
    void *data = malloc(size > 0 ? size : 1);
    if (data == NULL)
        out_of_memory();
    return data;
}

void *mem_realloc_array(void *old, size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes))
        out_of_memory();
    void *data = realloc(old, bytes > 0 ? bytes : 1);
    if (data == NULL)
        out_of_memory();
    return data;
}

void *mem_dup(const void *data, size_t size)
{
    if (data == NULL)
        return NULL;
    void *copy = mem_alloc(size);
    memcpy(copy, data, size);
    return copy;
}

char *mem_strdup(const char *text)
{
    return text != NULL ? mem_dup(text, strlen(text) + 1) : NULL;
}

char *mem_strndup(const char *text, size_t length)
{
    if (text == NULL)
        return NULL;
    size_t len = strnlen(text, length);
    char *copy = mem_alloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

char *mem_vprintf(const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0)
        out_of_memory();
    return text;
}

char *mem_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    return text;
}

void mem_wipe(void *data, size_t size)
{
    if (data != NULL)
        explicit_bzero(data, size);
}

void mem_cleanup_close(const int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    close(*fd);
    errno = saved;
}

void mem_trim(void)
{
    if (!MEM_SANITIZED)
        malloc_trim(0);
}
