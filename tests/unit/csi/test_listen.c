/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include "lib/csi/listen.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct fixture {
    char *directory;
    char *path;
    struct csi_listener listener;
};

static int set_up(void **state)
{
    struct fixture *fixture = mem_new(struct fixture);
    fixture->directory = directory_new();
    fixture->path = mem_printf("%s/s.sock", fixture->directory);
    fixture->listener.fd = -1;
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    csi_listener_free(&fixture->listener);
    directory_remove(fixture->directory);
    free(fixture->path);
    free(fixture);
    return 0;
}

static int listen_at(struct fixture *fixture, mode_t mode, struct err *err)
{
    csi_listener_free(&fixture->listener);
    return csi_listener_open(&fixture->listener, mem_strdup(fixture->path), mode, err);
}

static mode_t mode_of(const struct fixture *fixture)
{
    struct stat status;
    assert_int_equal(lstat(fixture->path, &status), 0);
    assert_true(S_ISSOCK(status.st_mode));
    return status.st_mode & 07777;
}

static int connect_to(const struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture->path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* As a process leaves it that was killed. */
static void leave_stale_socket(const struct fixture *fixture, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture->path);
    int fd = socket(AF_UNIX, type, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    if (type == SOCK_STREAM)
        assert_int_equal(listen(fd, 1), 0);
    close(fd);
}

static void test_mode_whatever_the_umask(void **state)
{
    static const mode_t masks[] = {0, 022, 077, 0777};
    struct fixture *fixture = *state;
    for (size_t i = 0; i < ARRAY_LEN(masks); i++) {
        const mode_t before = umask(masks[i]);
        const int private_result = listen_at(fixture, 0600, NULL);
        const mode_t private_mode = mode_of(fixture);
        const int group_result = listen_at(fixture, 0660, NULL);
        umask(before);
        assert_int_equal(private_result, 0);
        assert_int_equal(private_mode, 0600);
        assert_int_equal(group_result, 0);
        assert_int_equal(mode_of(fixture), 0660);
    }
    auto_close int fd = connect_to(fixture);
    assert_true(fd >= 0);
}

static void test_stale_socket_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    leave_stale_socket(fixture, SOCK_STREAM);
    assert_int_equal(connect_to(fixture), -1);
    assert_int_equal(listen_at(fixture, 0600, NULL), 0);
    auto_close int fd = connect_to(fixture);
    assert_true(fd >= 0);
}

static void test_live_socket_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    assert_int_equal(listen_at(fixture, 0600, NULL), 0);
    struct csi_listener second;
    assert_int_equal(csi_listener_open(&second, mem_strdup(fixture->path), 0600, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_non_null(strstr(err.message, "already in use"));
    csi_listener_free(&second);
    auto_close int fd = connect_to(fixture);
    assert_true(fd >= 0);
}

static void test_other_files_are_left_alone(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    auto_close int file = open(fixture->path, O_CREAT | O_WRONLY, 0644);
    assert_true(file >= 0);
    assert_int_equal(listen_at(fixture, 0600, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_int_equal(access(fixture->path, F_OK), 0);
    /* a symlink, even to a stale socket, is not followed */
    unlink(fixture->path);
    auto_free char *target = mem_printf("%s/target.sock", fixture->directory);
    leave_stale_socket(fixture, SOCK_STREAM);
    assert_int_equal(rename(fixture->path, target), 0);
    assert_int_equal(symlink(target, fixture->path), 0);
    assert_int_equal(listen_at(fixture, 0600, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_int_equal(access(target, F_OK), 0);
}

static void test_directory_must_exist(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    auto_free char *path = mem_printf("%s/missing/s.sock", fixture->directory);
    struct csi_listener listener;
    assert_int_equal(csi_listener_open(&listener, mem_strdup(path), 0600, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "/missing"));
    csi_listener_free(&listener);
}

static void test_close_removes_only_its_own_file(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(listen_at(fixture, 0600, NULL), 0);
    csi_listener_close(&fixture->listener);
    csi_listener_close(&fixture->listener);
    assert_int_equal(access(fixture->path, F_OK), -1);
    /* a successor has replaced it while we were stopping */
    assert_int_equal(listen_at(fixture, 0600, NULL), 0);
    unlink(fixture->path);
    struct csi_listener successor;
    assert_int_equal(csi_listener_open(&successor, mem_strdup(fixture->path), 0600, NULL), 0);
    csi_listener_close(&fixture->listener);
    auto_close int fd = connect_to(fixture);
    assert_true(fd >= 0);
    csi_listener_free(&successor);
}

static void *start_one(void *arg)
{
    struct csi_listener *listener = arg;
    char *path = listener->path;
    if (csi_listener_open(listener, path, 0600, NULL) < 0)
        listener->fd = -1;
    return NULL;
}

/* Of many that start at once on a stale socket exactly one gets it. */
static void test_racing_starters(void **state)
{
    struct fixture *fixture = *state;
    for (int round = 0; round < 20; round++) {
        struct csi_listener listeners[8];
        pthread_t threads[8];
        int won = 0;
        leave_stale_socket(fixture, SOCK_STREAM);
        for (int i = 0; i < 8; i++) {
            listeners[i] = (struct csi_listener){.path = mem_strdup(fixture->path), .fd = -1};
            threads[i] = thread_start("starter", start_one, &listeners[i]);
        }
        for (int i = 0; i < 8; i++) {
            thread_join(threads[i]);
            won += listeners[i].fd >= 0;
        }
        auto_close int fd = connect_to(fixture);
        assert_true(fd >= 0);
        for (int i = 0; i < 8; i++)
            csi_listener_free(&listeners[i]);
        assert_int_equal(won, 1);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_mode_whatever_the_umask),   TEST(test_stale_socket_is_replaced),
        TEST(test_live_socket_is_left_alone), TEST(test_other_files_are_left_alone),
        TEST(test_directory_must_exist),      TEST(test_close_removes_only_its_own_file),
        TEST(test_racing_starters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
