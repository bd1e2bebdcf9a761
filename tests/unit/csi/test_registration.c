/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct told {
    int times;
    bool registered;
    char *error;
};

/* The request orders what we read before what the server thread writes next, and the reply that before our next look,
 * but through gRPC, which the thread sanitizer does not see. */
static pthread_mutex_t told_mutex = PTHREAD_MUTEX_INITIALIZER;

static void pass_on(void)
{
    pthread_mutex_lock(&told_mutex);
    pthread_mutex_unlock(&told_mutex);
}

static void on_status(void *arg, bool registered, const char *error)
{
    pthread_mutex_lock(&told_mutex);
    struct told *told = arg;
    told->times++;
    told->registered = registered;
    free(told->error);
    told->error = mem_strdup(error);
    pthread_mutex_unlock(&told_mutex);
}

static const struct csi_call_options ten_seconds = {.timeout_ns = 10 * CLOCK_SECOND};

static void notify(struct csi_client *kubelet, bool registered, const char *error)
{
    auto_csi_arena struct csi_arena arena = {0};
    Pluginregistration__RegistrationStatus request = PLUGINREGISTRATION__REGISTRATION_STATUS__INIT;
    request.plugin_registered = registered;
    request.error = csi_arena_strdup(&arena, error);
    auto_csi_message Pluginregistration__RegistrationStatusResponse *reply = NULL;
    pass_on();
    assert_int_equal(csi_notify_registration_status(kubelet, &request, &reply, &ten_seconds, NULL), 0);
    pass_on();
}

/* As kubelet does it: GetInfo, then the status, both on the socket in its registry. */
static void test_registration(void **state)
{
    (void)state;
    char *directory = directory_new();
    auto_free char *endpoint = mem_printf("unix://%s/csi.sock", directory);
    auto_free char *socket = mem_printf("%s/hostpath.csi.k8s.io-reg.sock", directory);
    struct told told = {0};
    auto_err struct err err = {0};
    struct csi_server *server = csi_server_new(&(struct csi_server_options){.endpoint = endpoint}, &err);
    const struct csi_registration_options options = {
        .registry_dir = directory,
        .driver_name = "hostpath.csi.k8s.io",
        .kubelet_endpoint = "unix:///var/lib/kubelet/plugins/hostpath/csi.sock",
        .on_status = on_status,
        .arg = &told,
    };
    struct csi_registration *registration = csi_registration_new(server, &options, &err);
    assert_non_null(registration);
    assert_int_equal(access(socket, F_OK), -1);
    csi_server_start(server, &err);
    assert_string_equal(err_text(&err), "no error");
    struct stat status;
    assert_int_equal(stat(socket, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);

    struct csi_client *kubelet = csi_client_new(socket, NULL, &err);
    Pluginregistration__InfoRequest request = PLUGINREGISTRATION__INFO_REQUEST__INIT;
    auto_csi_message Pluginregistration__PluginInfo *info = NULL;
    assert_int_equal(csi_get_info(kubelet, &request, &info, &ten_seconds, &err), 0);
    assert_string_equal(info->type, "CSIPlugin");
    assert_string_equal(info->name, "hostpath.csi.k8s.io");
    assert_string_equal(info->endpoint, "/var/lib/kubelet/plugins/hostpath/csi.sock");
    assert_int_equal(info->n_supported_versions, 1);
    assert_string_equal(info->supported_versions[0], "1.0.0");

    notify(kubelet, true, "ignored");
    assert_true(told.registered);
    assert_string_equal(told.error, "");
    notify(kubelet, false, "node label differs");
    assert_int_equal(told.times, 2);
    assert_false(told.registered);
    assert_string_equal(told.error, "node label differs");

    assert_int_equal(csi_server_stop(server, CLOCK_SECOND, &err), 0);
    assert_int_equal(access(socket, F_OK), -1); /* which deregisters the driver */
    csi_client_free(kubelet);
    csi_server_free(server);
    csi_registration_free(registration);
    free(told.error);
    directory_remove(directory);
}

static void test_bad_options(void **state)
{
    static const struct csi_registration_options cases[] = {
        {.registry_dir = "/r", .driver_name = "", .kubelet_endpoint = "/csi.sock"},
        {.registry_dir = "/r", .driver_name = NULL, .kubelet_endpoint = "/csi.sock"},
        {.registry_dir = "/r", .driver_name = "../d", .kubelet_endpoint = "/csi.sock"},
        {.registry_dir = "/r", .driver_name = "d", .kubelet_endpoint = "tcp://host"},
    };
    (void)state;
    struct csi_server *server = csi_server_new(&(struct csi_server_options){.endpoint = "/csi.sock"}, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        assert_null(csi_registration_new(server, &cases[i], &err));
        assert_int_equal(err.code, ERR_INVALID);
    }
    csi_server_free(server);
}

/* The CSI socket is not left behind when the registry is missing. */
static void test_missing_registry(void **state)
{
    (void)state;
    char *directory = directory_new();
    auto_free char *endpoint = mem_printf("%s/csi.sock", directory);
    auto_free char *registry = mem_printf("%s/plugins_registry", directory);
    auto_err struct err err = {0};
    struct csi_server *server = csi_server_new(&(struct csi_server_options){.endpoint = endpoint}, NULL);
    struct csi_registration *registration = csi_registration_new(
        server,
        &(struct csi_registration_options){.registry_dir = registry, .driver_name = "d", .kubelet_endpoint = "/c"},
        NULL);
    assert_int_equal(csi_server_start(server, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "plugins_registry"));
    assert_int_equal(access(endpoint, F_OK), -1);
    csi_server_free(server);
    csi_registration_free(registration);
    directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registration),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_missing_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
