/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool fd_ready(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) == 1;
}

static void test_request_is_seen_everywhere(void **state)
{
    (void)state;
    struct stop *stop = stop_new();
    assert_false(stop_requested(stop));
    assert_false(fd_ready(stop_fd(stop)));
    stop_request(stop);
    stop_request(stop);
    assert_true(stop_requested(stop));
    assert_true(fd_ready(stop_fd(stop)));
    assert_true(stop_sleep(stop, clock_real(), CLOCK_NEVER));
    assert_true(stop_wait_until(stop, clock_real(), 0));
    stop_free(stop);
    stop_free(NULL);
}

struct nap {
    struct stop *stop;
    struct clock *clock;
    int64_t ns;
    bool stopped;
};

static void *nap(void *arg)
{
    struct nap *self = arg;
    self->stopped = stop_sleep(self->stop, self->clock, self->ns);
    return NULL;
}

static void test_sleep_ends_by_time_or_stop(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    struct stop *stop = stop_new();
    struct nap first = {.stop = stop, .clock = clock, .ns = 5 * CLOCK_SECOND};
    struct nap second = {.stop = stop, .clock = clock, .ns = INT64_MAX - 1}; /* from now on: would overflow */
    pthread_t a = thread_start("first", nap, &first);
    pthread_t b = thread_start("second", nap, &second);
    assert_true(clock_fake_wait_for_waiters(clock, 1));
    clock_fake_advance(clock, 5 * CLOCK_SECOND);
    thread_join(a);
    assert_false(first.stopped);
    stop_request(stop);
    thread_join(b);
    assert_true(second.stopped);
    stop_free(stop);
    clock_free(clock);
}

static void count(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void test_callbacks_run_once(void **state)
{
    (void)state;
    struct stop *stop = stop_new();
    _Atomic int kept = 0;
    _Atomic int taken_back = 0;
    _Atomic int late = 0;
    stop_on(stop, count, &kept);
    stop_on(stop, count, &taken_back);
    stop_off(stop, count, &taken_back);
    stop_off(stop, count, &late); /* never there */
    stop_request(stop);
    stop_request(stop);
    stop_on(stop, count, &late);
    stop_off(stop, count, &kept);
    assert_int_equal(atomic_load(&kept), 1);
    assert_int_equal(atomic_load(&taken_back), 0);
    assert_int_equal(atomic_load(&late), 1);
    stop_free(stop);
}

struct gate {
    struct stop *stop;
    int entered[2]; /* pipes */
    int leave[2];
    _Atomic bool finished;
};

static void slow_callback(void *arg)
{
    struct gate *gate = arg;
    char byte = 0;
    assert_int_equal(write(gate->entered[1], "x", 1), 1);
    assert_int_equal(read(gate->leave[0], &byte, 1), 1);
    atomic_store(&gate->finished, true);
}

static void *request(void *arg)
{
    stop_request(((struct gate *)arg)->stop);
    return NULL;
}

static void *let_go(void *arg)
{
    struct gate *gate = arg;
    stop_sleep(gate->stop, clock_real(), 0);
    assert_int_equal(write(gate->leave[1], "x", 1), 1);
    return NULL;
}

static void test_off_waits_for_a_running_callback(void **state)
{
    (void)state;
    struct gate gate = {.stop = stop_new()};
    char byte = 0;
    assert_int_equal(pipe(gate.entered), 0);
    assert_int_equal(pipe(gate.leave), 0);
    stop_on(gate.stop, slow_callback, &gate);
    pthread_t requester = thread_start("requester", request, &gate);
    assert_int_equal(read(gate.entered[0], &byte, 1), 1); /* it runs now */
    pthread_t helper = thread_start("helper", let_go, &gate);
    stop_off(gate.stop, slow_callback, &gate);
    assert_true(atomic_load(&gate.finished));
    thread_join(requester);
    thread_join(helper);
    for (int i = 0; i < 2; i++) {
        close(gate.entered[i]);
        close(gate.leave[i]);
    }
    stop_free(gate.stop);
}

static void take_myself_back(void *arg)
{
    struct gate *gate = arg;
    stop_off(gate->stop, take_myself_back, gate); /* must not wait for itself */
    atomic_store(&gate->finished, true);
}

static void test_callback_may_take_itself_back(void **state)
{
    (void)state;
    struct gate gate = {.stop = stop_new()};
    stop_on(gate.stop, take_myself_back, &gate);
    stop_request(gate.stop);
    assert_true(atomic_load(&gate.finished));
    stop_free(gate.stop);
}

/* In a child: tells `fd` when it is ready and when the stop was requested, then waits to be killed or told to end. */
static void signal_child(int fd, bool wait_for_second)
{
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    if (write(fd, "r", 1) != 1)
        _exit(99);
    stop_sleep(stop, clock_real(), 30 * CLOCK_SECOND);
    if (!stop_requested(stop) || write(fd, "s", 1) != 1)
        _exit(98);
    if (wait_for_second)
        poll(NULL, 0, 30000);
    stop_free(stop);
    _exit(0);
}

static int run_signals(int first, int second)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0)
        signal_child(fds[1], second != 0);
    close(fds[1]);
    char byte = 0;
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_int_equal(byte, 'r');
    kill(pid, first);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_int_equal(byte, 's');
    if (second != 0)
        kill(pid, second);
    close(fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_signals(void **state)
{
    (void)state;
    assert_int_equal(run_signals(SIGTERM, 0), 0);
    assert_int_equal(run_signals(SIGINT, 0), 0);
    assert_int_equal(run_signals(SIGTERM, SIGINT), 1);
}

static void test_free_without_signal(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct stop *stop = stop_new();
        stop_on_signals(stop);
        stop_free(stop); /* ends the thread; hangs for ever otherwise */
        _exit(signal(SIGPIPE, SIG_DFL) == SIG_IGN ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void *report_name(void *arg)
{
    pthread_getname_np(pthread_self(), arg, 16);
    return NULL;
}

static void test_thread_names(void **state)
{
    (void)state;
    thread_limit_arenas();
    char name[16] = "";
    thread_join(thread_start("worker-1", report_name, name));
    assert_string_equal(name, "worker-1");
    thread_join(thread_start_stack("a name that is too long", (size_t)1024 * 1024, report_name, name));
    assert_string_equal(name, "a name that is ");
}

/* How many pages of the stack below the caller are in memory. */
static size_t resident_below(size_t size)
{
    size_t page = (size_t)getpagesize();
    uintptr_t from = ((uintptr_t)__builtin_frame_address(0) - size) / page * page;
    unsigned char pages[64];
    assert_true(size / page <= sizeof(pages));
    assert_int_equal(mincore((void *)from, size, pages), 0); // NOLINT(performance-no-int-to-ptr)
    size_t resident = 0;
    for (size_t i = 0; i < size / page; i++)
        resident += pages[i] & 1;
    return resident;
}

static __attribute__((noinline)) unsigned touch_stack(void)
{
    volatile unsigned char deep[100000];
    for (size_t i = 0; i < sizeof(deep); i++)
        deep[i] = (unsigned char)i;
    return deep[99] + deep[sizeof(deep) - 1];
}

static void *use_and_trim(void *arg)
{
    size_t *resident = arg;
    volatile unsigned sum = touch_stack();
    resident[0] = resident_below(100000);
    thread_trim_stack();
    resident[1] = resident_below(100000);
    assert_int_equal(sum, touch_stack()); /* what stands above is whole, and below can be used again */
    return NULL;
}

static void test_stack_is_given_back(void **state)
{
    (void)state;
    size_t resident[2] = {0};
    thread_trim_stack(); /* of the main thread: nothing happens */
    thread_join(thread_start("deep", use_and_trim, resident));
    if (!MEM_SANITIZED) {
        assert_in_range(resident[0], 100000 / getpagesize(), 64);
        assert_in_range(resident[1], 0, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_is_seen_everywhere),
        cmocka_unit_test(test_sleep_ends_by_time_or_stop),
        cmocka_unit_test(test_callbacks_run_once),
        cmocka_unit_test(test_off_waits_for_a_running_callback),
        cmocka_unit_test(test_callback_may_take_itself_back),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_free_without_signal),
        cmocka_unit_test(test_thread_names),
        cmocka_unit_test(test_stack_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
