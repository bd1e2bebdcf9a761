/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/holder/process.h"

#include "drivers/holder/mounting.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

static struct process start_sleeper(const char *mark)
{
    char *arguments[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"echo >&4; sleep 60 & wait"}, mem_strdup(mark), NULL};
    auto_close int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct process_start options = {.program = "/bin/sh", .arguments = arguments, .fuse_fd = fd};
    struct process process;
    auto_err struct err err = {0};
    assert_int_equal(process_start(&options, &process, &err), 0);
    free(arguments[3]);
    return process;
}

/* The whole group: the shell has a child. */
static int end(struct process *process)
{
    int status = -1;
    struct pollfd poller = {.fd = process->pid_fd, .events = POLLIN};
    assert_false(process_has_ended(process->pid_fd, &status));
    kill(-process->pid, SIGKILL);
    assert_int_equal(poll(&poller, 1, 10000), 1);
    assert_true(process_has_ended(process->pid_fd, &status));
    close(process->pid_fd);
    close(process->ready_fd);
    return status;
}

static void a_process_is_found_again(void **state)
{
    auto_err struct err err = {0};
    char byte;
    (void)state;
    struct process process = start_sleeper("--id=mine");
    assert_int_equal(read(process.ready_fd, &byte, 1), 1); /* it runs, with its descriptors */
    assert_true(process.start > 0);
    assert_int_equal(process_start_time(process.pid), process.start);
    assert_int_equal(process_number(process.pid_fd), process.pid);
    assert_int_equal(getsid(process.pid), process.pid);
    int pid_fd = process_find(process.pid, process.start, "--id=mine", &err);
    assert_true(pid_fd >= 0);
    close(pid_fd);
    assert_int_equal(process_find(process.pid, process.start, "--id=min", &err), -1);
    assert_int_equal(process_find(process.pid, process.start + 1, "--id=mine", &err), -1);
    assert_int_equal(process_find(0, process.start, "--id=mine", &err), -1);
    assert_int_equal(process_find(process.pid, 0, "--id=mine", &err), -1);
    /* what it has is not /dev/fuse */
    assert_int_equal(process_take_fuse_fd(process.pid_fd, &err), -1);
    assert_non_null(strstr(err_text(&err), "is not /dev/fuse"));
    auto_free char *how = process_describe_status(end(&process));
    assert_string_equal(how, "signal 9");
    assert_int_equal(process_find(process.pid, process.start, "--id=mine", &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void ends_are_described(void **state)
{
    (void)state;
    auto_free char *unknown = process_describe_status(-1);
    auto_free char *code = process_describe_status(3 << 8);
    assert_string_equal(unknown, "ended");
    assert_string_equal(code, "exit status 3");
}

static void an_absent_program_is_an_error(void **state)
{
    char *arguments[] = {(char[]){"x"}, NULL};
    auto_close int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct process_start options = {.program = "/nonexistent/berth-fuse", .arguments = arguments, .fuse_fd = fd};
    struct process process;
    auto_err struct err err = {0};
    (void)state;
    assert_int_equal(process_start(&options, &process, &err), -1);
    assert_non_null(strstr(err_text(&err), "/nonexistent/berth-fuse"));
}

static int parse(const char *option, unsigned long *flags, char **data)
{
    auto_strv struct strv list = {0};
    auto_str struct str out = {0};
    strv_add(&list, option);
    int result = mounting_parse_options(&list, flags, &out, NULL);
    *data = mem_strdup(str_text(&out));
    return result;
}

static void options_of_a_mount(void **state)
{
    static const struct {
        const char *option;
        int result;
        unsigned long flags;
        const char *data;
    } cases[] = {
        {"", 0, 0, ""},
        {"nosuid,nodev", 0, MS_NOSUID | MS_NODEV, ""},
        {"ro", 0, MS_RDONLY, ""},
        {"context=\"system_u:object_r:t:s0:c1,c2\"", 0, 0, ",context=\"system_u:object_r:t:s0:c1,c2\""},
        {"noexec,context=x", 0, MS_NOEXEC, ",context=x"},
        {"fd=5", -1, 0, ""},
        {"allow_other", -1, 0, ""},
        {"user_id=7", -1, 0, ""},
        {"max_read=1", -1, 0, ""},
        {"contextual", -1, 0, ""},
        {"a\nb", -1, 0, ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        unsigned long flags = 0;
        auto_free char *data = NULL;
        assert_int_equal(parse(cases[i].option, &flags, &data), cases[i].result);
        if (cases[i].result == 0) {
            assert_int_equal(flags, cases[i].flags);
            assert_string_equal(data, cases[i].data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_found_again),
        cmocka_unit_test(ends_are_described),
        cmocka_unit_test(an_absent_program_is_an_error),
        cmocka_unit_test(options_of_a_mount),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
