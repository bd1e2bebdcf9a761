/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_copies(void **state)
{
    (void)state;
    assert_null(mem_strdup(NULL));
    assert_null(mem_strndup(NULL, 3));
    assert_null(mem_dup(NULL, 3));
    auto_free char *a = mem_strdup("text");
    auto_free char *b = mem_strndup("text", 2);
    auto_free char *c = mem_strndup("text", 100);
    auto_free char *d = mem_printf("%s-%d", "x", 7);
    auto_free char *e = mem_dup("ab\0cd", 5);
    assert_string_equal(a, "text");
    assert_string_equal(b, "te");
    assert_string_equal(c, "text");
    assert_string_equal(d, "x-7");
    assert_memory_equal(e, "ab\0cd", 5);
}

static void test_sizes_of_zero(void **state)
{
    (void)state;
    auto_free void *a = mem_calloc(0, 8);
    auto_free void *b = mem_alloc(0);
    auto_free void *c = mem_realloc_array(NULL, 0, 8);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
}

static void test_take_hands_over(void **state)
{
    (void)state;
    char *kept = NULL;
    {
        auto_free char *text = mem_strdup("kept");
        kept = mem_take(text);
        assert_null(text);
    }
    assert_string_equal(kept, "kept");
    free(kept);
}

static void test_wipe(void **state)
{
    (void)state;
    char secret[8] = "secret";
    mem_wipe(secret, sizeof(secret));
    for (size_t i = 0; i < sizeof(secret); i++)
        assert_int_equal(secret[i], 0);
    mem_wipe(NULL, 0);
}

static void test_close_keeps_errno(void **state)
{
    (void)state;
    int kept = -1;
    {
        auto_close int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        auto_close int none = -1;
        assert_true(fd >= 0);
        assert_int_equal(none, -1);
        kept = fd;
        errno = EXDEV;
    }
    assert_int_equal(errno, EXDEV);
    assert_int_equal(fcntl(kept, F_GETFD), -1);
}

/* Runs fn in a child and returns its first line on stderr; the child must die by SIGABRT. */
static char *abort_message(void (*fn)(void))
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(fds[1]);
    char text[256] = {0};
    ssize_t len = read(fds[0], text, sizeof(text) - 1);
    close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(len > 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return mem_strdup(text);
}

static void overflow(void)
{
    void *data = mem_realloc_array(NULL, SIZE_MAX / 2, 4);
    free(data);
}

static void test_overflow_aborts_with_a_line(void **state)
{
    (void)state;
    auto_free char *text = abort_message(overflow);
    assert_string_equal(text, "out of memory\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_sizes_of_zero),
        cmocka_unit_test(test_take_hands_over),
        cmocka_unit_test(test_wipe),
        cmocka_unit_test(test_close_keeps_errno),
        cmocka_unit_test(test_overflow_aborts_with_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
