/* SPDX-License-Identifier: Apache-2.0 */
/* The client while drivers come and go. The driver is this program started again with "serve <socket>", so that it can
 * be killed like a real one. */
#include "tests/unit/csi/support.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct fixture {
    char *directory;
    char *path;
    struct csi_client *client;
    pid_t driver;
    struct gate connected, lost;
};

/* ---- the driver process ---- */

static int get_plugin_info(void *driver, const Csi__V1__GetPluginInfoRequest *request,
                           Csi__V1__GetPluginInfoResponse *reply, struct csi_call *call, struct err *err)
{
    (void)driver, (void)request, (void)err;
    reply->name = csi_arena_printf(csi_call_arena(call), "%d", (int)getpid());
    return 0;
}

static int delete_volume(void *driver, const Csi__V1__DeleteVolumeRequest *request,
                         Csi__V1__DeleteVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    (void)driver, (void)request, (void)reply, (void)err;
    raise(SIGKILL); /* the driver dies in the middle of a call */
    csi_call_arena(call);
    return 0;
}

static int run_driver(const char *path)
{
    static const struct csi_handlers handlers = {.get_plugin_info = get_plugin_info, .delete_volume = delete_volume};
    auto_err struct err err = {0};
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    struct csi_server *server = csi_server_new(&(struct csi_server_options){.endpoint = path}, &err);
    csi_server_add(server, &handlers, NULL);
    if (csi_server_start(server, &err) < 0) {
        fprintf(stderr, "driver: %s\n", err_text(&err));
        return 1;
    }
    stop_wait_until(stop, clock_real(), CLOCK_NEVER);
    csi_server_free(server);
    return 0;
}

/* ---- set-up ---- */

static void start_driver(struct fixture *fixture)
{
    char program[4096] = "";
    assert_true(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
    char *const argv[] = {program, "serve", fixture->path, NULL};
    assert_int_equal(posix_spawn(&fixture->driver, argv[0], NULL, NULL, argv, environ), 0);
}

static void end_driver(struct fixture *fixture, int signal_number)
{
    int status;
    if (signal_number != 0)
        kill(fixture->driver, signal_number);
    assert_int_equal(waitpid(fixture->driver, &status, 0), fixture->driver);
    fixture->driver = 0;
    if (signal_number == SIGTERM) {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void on_connection(void *arg, enum csi_connection state)
{
    struct fixture *fixture = arg;
    gate_add(state == CSI_CONNECTION_CONNECTED ? &fixture->connected : &fixture->lost, 1);
}

static int set_up(void **state)
{
    struct fixture *fixture = mem_new(struct fixture);
    fixture->directory = directory_new();
    fixture->path = mem_printf("%s/a b%%41.sock", fixture->directory); /* a path that must be escaped as URI */
    gate_init(&fixture->connected);
    gate_init(&fixture->lost);
    fixture->client = csi_client_new(
        fixture->path, &(struct csi_client_options){.on_connection = on_connection, .arg = fixture}, NULL);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    csi_client_free(fixture->client);
    if (fixture->driver != 0)
        end_driver(fixture, SIGKILL);
    directory_remove(fixture->directory);
    free(fixture->path);
    gate_destroy(&fixture->connected);
    gate_destroy(&fixture->lost);
    free(fixture);
    return 0;
}

/* The process that answers, or 0. */
static pid_t ask(struct fixture *fixture, bool wait_for_ready, struct err *err)
{
    Csi__V1__GetPluginInfoRequest request = CSI__V1__GET_PLUGIN_INFO_REQUEST__INIT;
    auto_csi_message Csi__V1__GetPluginInfoResponse *reply = NULL;
    const struct csi_call_options options = {.timeout_ns = 10 * CLOCK_SECOND, .wait_for_ready = wait_for_ready};
    uint64_t pid = 0;
    if (csi_get_plugin_info(fixture->client, &request, &reply, &options, err) == 0)
        assert_true(str_parse_u64(reply->name, &pid));
    return (pid_t)pid;
}

/* ---- tests ---- */

static void test_without_a_driver(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    assert_false(csi_client_connected(fixture->client));
    assert_int_equal(ask(fixture, false, &err), 0);
    assert_int_equal(err.code, ERR_RPC);
    assert_int_equal(err.status, CSI_UNAVAILABLE);
    assert_true(str_starts(err.message, "rpc error: code = Unavailable desc = "));
    err_clear(&err);
    /* waiting for it ends with the deadline, and says what was waited for */
    Csi__V1__ProbeRequest request = CSI__V1__PROBE_REQUEST__INIT;
    Csi__V1__ProbeResponse *reply = NULL;
    const struct csi_call_options options = {.timeout_ns = 100 * CLOCK_MS, .wait_for_ready = true};
    assert_int_equal(csi_probe(fixture->client, &request, &reply, &options, &err), -1);
    assert_int_equal(err.status, CSI_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.message, "context deadline exceeded (no connection to /"));
    err_clear(&err);
    assert_int_equal(csi_client_wait(fixture->client, 100 * CLOCK_MS, NULL, &err), -1);
    assert_int_equal(err.code, ERR_TIMEOUT);
    assert_int_equal(gate_count(&fixture->connected) + gate_count(&fixture->lost), 0);
}

static void *request_stop(void *arg)
{
    stop_request(arg);
    return NULL;
}

static void test_wait_is_stopped(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    struct stop *stop = stop_new();
    pthread_t thread = thread_start("stopper", request_stop, stop);
    assert_int_equal(csi_client_wait(fixture->client, CLOCK_NEVER, stop, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    thread_join(thread);
    stop_free(stop);
}

static void test_driver_comes_and_goes(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    start_driver(fixture);
    assert_int_equal(csi_client_wait(fixture->client, 10 * CLOCK_SECOND, NULL, &err), 0);
    assert_true(csi_client_connected(fixture->client));
    assert_int_equal(ask(fixture, false, &err), fixture->driver);
    gate_wait(&fixture->connected, 1);

    end_driver(fixture, SIGKILL); /* leaves its socket behind */
    gate_wait(&fixture->lost, 1);
    assert_int_equal(access(fixture->path, F_OK), 0);
    assert_int_equal(ask(fixture, false, &err), 0);
    assert_int_equal(err.status, CSI_UNAVAILABLE);
    err_clear(&err);

    start_driver(fixture);
    assert_int_equal(ask(fixture, true, &err), fixture->driver);
    gate_wait(&fixture->connected, 2);

    end_driver(fixture, SIGTERM); /* takes its socket away */
    gate_wait(&fixture->lost, 2);
    assert_int_equal(access(fixture->path, F_OK), -1);

    start_driver(fixture);
    gate_wait(&fixture->connected, 3); /* by itself, without a call */
    assert_int_equal(ask(fixture, false, &err), fixture->driver);
    end_driver(fixture, SIGTERM);
}

static void test_driver_dies_during_a_call(void **state)
{
    struct fixture *fixture = *state;
    auto_err struct err err = {0};
    start_driver(fixture);
    Csi__V1__DeleteVolumeRequest request = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    request.volume_id = (char[]){"v"};
    Csi__V1__DeleteVolumeResponse *reply = NULL;
    const struct csi_call_options options = {.timeout_ns = 10 * CLOCK_SECOND, .wait_for_ready = true};
    assert_int_equal(csi_delete_volume(fixture->client, &request, &reply, &options, &err), -1);
    assert_int_equal(err.status, CSI_UNAVAILABLE);
    end_driver(fixture, 0);
}

static void test_free_at_any_time(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 20; i++) { /* while it connects for the first time */
        csi_client_free(fixture->client);
        fixture->client = csi_client_new(
            fixture->path, &(struct csi_client_options){.on_connection = on_connection, .arg = fixture}, NULL);
    }
    csi_client_free(NULL);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return run_driver(argv[2]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_without_a_driver),          TEST(test_wait_is_stopped),  TEST(test_driver_comes_and_goes),
        TEST(test_driver_dies_during_a_call), TEST(test_free_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
