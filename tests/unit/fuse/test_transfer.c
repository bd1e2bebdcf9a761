/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/transfer.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE ((size_t)4096)

/* A file with a bad spot: our own memory, of which the second page is not there. */
static unsigned char *make_bad_memory(void)
{
    unsigned char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    memset(pages, 'x', PAGE);
    assert_int_equal(munmap(pages + PAGE, PAGE), 0);
    return pages;
}

/* Half of it would be taken for the end of the file. */
static void a_read_that_fails_halfway_is_an_error(void **state)
{
    unsigned char *pages = make_bad_memory();
    unsigned char buffer[2 * PAGE];
    auto_close int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    int64_t at = (int64_t)(uintptr_t)pages;
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(transfer_read(fd, buffer, PAGE, at), PAGE);
    assert_int_equal(transfer_read(fd, buffer, 2 * PAGE, at), -EIO);
    assert_int_equal(transfer_read(fd, buffer, PAGE, at + (int64_t)PAGE), -EIO);
    assert_int_equal(munmap(pages, PAGE), 0);
}

static void a_write_that_fails_halfway_is_short(void **state)
{
    unsigned char *pages = make_bad_memory();
    static const unsigned char data[2 * PAGE] = {1};
    auto_close int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    int64_t at = (int64_t)(uintptr_t)pages;
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(transfer_write(fd, data, 2 * PAGE, at), PAGE);
    assert_int_equal(pages[0], 1);
    assert_int_equal(transfer_write(fd, data, PAGE, at + (int64_t)PAGE), -EIO);
    assert_int_equal(munmap(pages, PAGE), 0);
}

static void the_end_of_the_file_ends_a_read(void **state)
{
    char buffer[16];
    auto_close int fd = memfd_create("transfer", MFD_CLOEXEC);
    (void)state;
    assert_int_equal(transfer_write(fd, "0123456789", 10, 5), 10);
    assert_int_equal(transfer_read(fd, buffer, sizeof(buffer), 0), 15);
    assert_memory_equal(buffer, "\0\0\0\0\0000123456789", 15);
    assert_int_equal(transfer_read(fd, buffer, sizeof(buffer), 15), 0);
    assert_int_equal(transfer_read(-1, buffer, sizeof(buffer), 0), -EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_that_fails_halfway_is_an_error),
        cmocka_unit_test(a_write_that_fails_halfway_is_short),
        cmocka_unit_test(the_end_of_the_file_ends_a_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
