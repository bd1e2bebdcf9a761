/* SPDX-License-Identifier: Apache-2.0 */
/* Who the server is and who we are: certificates, names, proxies, tokens that change. */
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "lib/kube/client.h"
#include "lib/kube/client_io.h"
#include "lib/kube/config_private.h"
#include "tests/unit/kube/raw_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES "DNS:berth.test,IP:127.0.0.1"

static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* GET /x at the server with this config; the status, or -1 with err. */
static int get(struct kube_config *config, int64_t timeout, struct err *err)
{
    struct kube_client *client;
    struct kube_client_options options = {.request_timeout = timeout};
    assert_int_equal(kube_client_new(config, &options, &client, err), 0);
    struct kube_response response;
    int result = kube_request(client, "GET", "/x", NULL, NULL, &response, err);
    int status = result == 0 ? response.status : -1;
    if (result == 0)
        kube_response_clear(&response);
    kube_client_free(client);
    return status;
}

static const struct raw_step ok_steps[] = {{.action = RAW_REPLY, .body = "{}"}};

static void test_verification(void **state)
{
    (void)state;
    struct raw_tls *good = raw_tls_new(NAMES, 10), *other = raw_tls_new(NAMES, 10), *expired = raw_tls_new(NAMES, -1),
                   *foreign = raw_tls_new("DNS:elsewhere.test", 10);
    const struct {
        const struct raw_tls *server, *trusted;
        const char *name;
        bool insecure;
        const char *problem; /* NULL = success */
    } cases[] = {
        {good, good, NULL, false, NULL},
        {good, other, NULL, false, "certificate"},
        {good, NULL, NULL, false, "certificate"}, /* the system's authorities do not know it */
        {expired, expired, NULL, false, "certificate has expired"},
        {foreign, foreign, NULL, false, "127.0.0.1"}, /* the name that does not match is said */
        {foreign, foreign, "elsewhere.test", false, NULL},
        {good, good, "elsewhere.test", false, "elsewhere.test"},
        {good, good, "berth.test", false, NULL},
        {expired, NULL, NULL, true, NULL},
        {foreign, NULL, "any.test", true, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct raw_server *server = raw_server_start(cases[i].server, NULL, ok_steps, 1);
        auto_free char *url = mem_printf("https://127.0.0.1:%d/prefix/", raw_server_port(server));
        auto_free char *host = mem_printf("Host: 127.0.0.1:%d\r\n", raw_server_port(server));
        auto_err struct err err = {0};
        struct kube_config config = {.server = url,
                                     .ca_data = cases[i].trusted ? cases[i].trusted->authority : NULL,
                                     .insecure = cases[i].insecure,
                                     .tls_server_name = text_of(cases[i].name)};
        int status = get(&config, 10 * CLOCK_SECOND, &err);
        if (status != (cases[i].problem != NULL ? -1 : 200))
            fail_msg("case %zu: %d, %s", i, status, err_text(&err));
        if (cases[i].problem != NULL) {
            if (strstr(err_text(&err), cases[i].problem) == NULL || err.code != ERR_UNAVAILABLE)
                fail_msg("case %zu: %s", i, err_text(&err));
            assert_int_equal(raw_server_requests(server), 0);
            assert_int_equal(raw_server_connections(server), 1); /* no use in trying again */
        } else {
            assert_string_equal(raw_server_line(server, 0), "GET /prefix/x");
            assert_non_null(strstr(raw_server_head(server, 0), host));
            assert_string_equal(raw_server_peer(server, 0), "");
        }
        raw_server_stop(server);
    }
    raw_tls_free(good);
    raw_tls_free(other);
    raw_tls_free(expired);
    raw_tls_free(foreign);
}

static char *directory; /* made for every test */

static int setup(void **state)
{
    (void)state;
    char template[] = "/tmp/berth-kube-XXXXXX";
    directory = mem_strdup(mkdtemp(template));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    auto_close int parent = open("/tmp", O_DIRECTORY | O_CLOEXEC);
    int result = file_remove_tree_at(parent, directory + strlen("/tmp/"), NULL);
    free(directory);
    return result;
}

static char *put_file(const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", directory, name);
    auto_err struct err err = {0};
    if (file_write_atomic(path, text, strlen(text), 0600, &err) != 0)
        fail_msg("%s", err_text(&err));
    return path;
}

static void test_authority_file_and_client_certificate(void **state)
{
    (void)state;
    struct raw_tls *tls = raw_tls_new(NAMES, 10);
    struct raw_server *server = raw_server_start(tls, NULL, ok_steps, 1);
    auto_free char *url = mem_printf("https://127.0.0.1:%d", raw_server_port(server));
    auto_free char *authority = put_file("ca.crt", tls->authority);
    auto_free char *certificate = put_file("client.crt", tls->client_certificate);
    auto_free char *key = put_file("client.key", tls->client_key);
    auto_err struct err err = {0};
    struct kube_config config = {.server = url,
                                 .ca_file = authority,
                                 .client_certificate_data = tls->client_certificate,
                                 .client_key_data = tls->client_key};
    assert_int_equal(get(&config, 10 * CLOCK_SECOND, &err), 200);
    assert_string_equal(raw_server_peer(server, 0), "berth-client");
    config.client_certificate_data = config.client_key_data = NULL;
    config.client_certificate_file = certificate;
    config.client_key_file = key;
    assert_int_equal(get(&config, 10 * CLOCK_SECOND, &err), 200);
    assert_string_equal(raw_server_peer(server, 1), "berth-client");
    config.client_key_file = certificate; /* no key in there */
    assert_int_equal(get(&config, 10 * CLOCK_SECOND, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    config.client_key_file = key;
    config.ca_file = text_of("/nonexistent/ca.crt");
    assert_int_equal(get(&config, 10 * CLOCK_SECOND, &err), -1);
    assert_non_null(strstr(err_text(&err), "/nonexistent/ca.crt"));
    raw_server_stop(server);
    raw_tls_free(tls);
}

/* A reply that comes faster than it is read waits in the server, not in our memory. */
static void test_throttle(void **state)
{
    (void)state;
    struct raw_tls *tls = raw_tls_new(NAMES, 10);
    size_t size = (size_t)24 << 20;
    char *body = mem_alloc(size + 1);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)('a' + (i / 1000) % 26);
    body[size] = '\0';
    struct raw_step step = {.action = RAW_REPLY, .body = body};
    for (int with_tls = 0; with_tls < 2; with_tls++) {
        struct raw_server *server = raw_server_start(with_tls ? tls : NULL, NULL, &step, 1);
        auto_free char *url = mem_printf("%s://127.0.0.1:%d", with_tls ? "https" : "http", raw_server_port(server));
        struct kube_config config = {.server = url, .ca_data = tls->authority};
        struct kube_io *io;
        auto_err struct err err = {0};
        struct kube_io_options io_options = {.clock = clock_real()};
        assert_int_equal(kube_io_new(&config, &io_options, &io, &err), 0);
        struct kube_call_options options = {
            .method = "GET", .path = "/x", .throttle = true, .read = true, .buffer_limit = size};
        struct kube_call *call = kube_call_start(io, &options);
        int64_t deadline = clock_mono(clock_real()) + 20 * CLOCK_SECOND;
        struct kube_call_status status;
        auto_str struct str all = {0}, some = {0};
        size_t most = 0;
        usleep(100000);
        do {
            assert_true(kube_call_wait_bytes(call, deadline, &status));
            most = status.unread > most ? status.unread : most;
            str_reset(&some);
            kube_call_read(call, &some);
            if (some.len > 0)
                str_add_len(&all, some.data, some.len);
        } while (status.state == KUBE_CALL_RUNNING);
        assert_int_equal(status.state, KUBE_CALL_COMPLETE);
        assert_int_equal(all.len, size);
        assert_memory_equal(all.data, body, size);
        assert_in_range(most, (size_t)1 << 20, (size_t)3 << 19);
        kube_call_free(call);
        kube_io_free(io);
        raw_server_stop(server);
    }
    free(body);
    raw_tls_free(tls);
}

static void test_plain_peer(void **state)
{
    (void)state;
    struct raw_server *server = raw_server_start(NULL, NULL, ok_steps, 1);
    auto_free char *url = mem_printf("https://127.0.0.1:%d", raw_server_port(server));
    struct kube_config config = {.server = url, .insecure = true};
    struct kube_client *client;
    auto_err struct err err = {0};
    struct kube_client_options options = {.request_timeout = 300 * CLOCK_MS};
    assert_int_equal(kube_client_new(&config, &options, &client, &err), 0);
    struct kube_response response;
    assert_int_equal(kube_request(client, "POST", "/x", NULL, "{}", &response, &err), -1);
    assert_int_not_equal(err.code, ERR_UNKNOWN_OUTCOME); /* without TLS nothing was sent */
    kube_client_free(client);
    raw_server_stop(server);
}

static void test_proxy(void **state)
{
    (void)state;
    struct raw_server *proxy = raw_server_start(NULL, NULL, ok_steps, 1);
    auto_free char *url = mem_printf("http://127.0.0.1:%d", raw_server_port(proxy));
    struct kube_config config = {.server = text_of("http://cluster.test:8080"), .proxy_url = url};
    auto_err struct err err = {0};
    assert_int_equal(get(&config, 10 * CLOCK_SECOND, &err), 200);
    assert_string_equal(raw_server_line(proxy, 0), "GET http://cluster.test:8080/x");
    config.server = text_of("https://cluster.test");
    assert_int_equal(get(&config, CLOCK_SECOND / 2, &err), -1); /* the proxy opens no tunnel */
    assert_string_equal(raw_server_line(proxy, 1), "CONNECT cluster.test:443");
    assert_null(strstr(raw_server_head(proxy, 1), "Authorization"));
    raw_server_stop(proxy);
}

/* ---- credentials that change ---- */

struct rotation {
    struct raw_server *server;
    char *token_path;
    struct kube_config *config;
    struct kube_client *client;
    struct clock *clock;
};

static void rotation_begin(struct rotation *rotation, const struct raw_step *steps, size_t count)
{
    auto_err struct err err = {0};
    rotation->clock = clock_fake_new(0);
    rotation->server = raw_server_start(NULL, NULL, steps, count);
    rotation->token_path = put_file("token", "first\n");
    auto_free char *kubeconfig = mem_printf("clusters: [{name: c, cluster: {server: \"http://127.0.0.1:%d\"}}]\n"
                                            "users: [{name: u, user: {tokenFile: token}}]\n"
                                            "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
                                            "current-context: x\n",
                                            raw_server_port(rotation->server));
    auto_free char *path = put_file("config", kubeconfig);
    struct kube_config_options options = {.kubeconfig = path};
    if (kube_config_load(&options, &rotation->config, &err) != 0)
        fail_msg("%s", err_text(&err));
    struct kube_client_options client_options = {.clock = rotation->clock};
    assert_int_equal(kube_client_new(rotation->config, &client_options, &rotation->client, &err), 0);
}

static void rotation_end(struct rotation *rotation)
{
    kube_client_free(rotation->client);
    kube_config_free(rotation->config);
    raw_server_stop(rotation->server);
    free(rotation->token_path);
    clock_free(rotation->clock);
}

static int ask(struct rotation *rotation)
{
    struct kube_response response;
    auto_err struct err err = {0};
    if (kube_request(rotation->client, "POST", "/x", NULL, "{}", &response, &err) != 0)
        fail_msg("%s", err_text(&err));
    int status = response.status;
    kube_response_clear(&response);
    return status;
}

static void expect_token(struct rotation *rotation, size_t number, const char *token)
{
    auto_free char *line = mem_printf("Authorization: Bearer %s\r\n", token);
    if (strstr(raw_server_head(rotation->server, number), line) == NULL)
        fail_msg("request %zu has not %s", number, token);
}

static void test_token_rotation(void **state)
{
    (void)state;
    struct rotation rotation = {0};
    rotation_begin(&rotation, ok_steps, 1);
    assert_int_equal(ask(&rotation), 200);
    expect_token(&rotation, 0, "first");
    free(put_file("token", "second"));
    assert_int_equal(ask(&rotation), 200); /* within the second nobody looks */
    expect_token(&rotation, 1, "first");
    clock_fake_advance(rotation.clock, CLOCK_SECOND);
    assert_int_equal(ask(&rotation), 200);
    expect_token(&rotation, 2, "second");
    unlink(rotation.token_path);
    clock_fake_advance(rotation.clock, 100 * CLOCK_SECOND);
    assert_int_equal(ask(&rotation), 200); /* the last known one is better than none */
    expect_token(&rotation, 3, "second");
    rotation_end(&rotation);
}

static void test_unauthorized(void **state)
{
    (void)state;
    static const struct raw_step steps[] = {{.action = RAW_REPLY, .status = 401, .body = "no"},
                                            {.action = RAW_REPLY, .body = "{}"},
                                            {.action = RAW_REPLY, .status = 401, .body = "no"}};
    struct rotation rotation = {0};
    rotation_begin(&rotation, steps, ARRAY_LEN(steps));
    auto_err struct err err = {0};
    struct kube_credential credential;
    assert_int_equal(kube_config_credential(rotation.config, rotation.clock, false, &credential, &err), 0);
    kube_credential_clear(&credential);
    free(put_file("token", "second"));
    assert_int_equal(ask(&rotation), 200);
    expect_token(&rotation, 0, "first");
    expect_token(&rotation, 1, "second");
    assert_int_equal(ask(&rotation), 401); /* nothing new to try with */
    assert_int_equal(raw_server_requests(rotation.server), 3);
    free(put_file("token", "third"));
    assert_int_equal(ask(&rotation), 401); /* tried once more, not for ever */
    assert_int_equal(raw_server_requests(rotation.server), 5);
    rotation_end(&rotation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_verification, setup, teardown),
        cmocka_unit_test_setup_teardown(test_authority_file_and_client_certificate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_throttle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plain_peer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_proxy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_token_rotation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unauthorized, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
