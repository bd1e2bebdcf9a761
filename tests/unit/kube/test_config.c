/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "lib/kube/config_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *directory; /* made for every test */

static int setup(void **state)
{
    (void)state;
    char template[] = "/tmp/berth-kube-XXXXXX";
    directory = mem_strdup(mkdtemp(template));
    unsetenv("KUBECONFIG");
    unsetenv("KUBERNETES_SERVICE_HOST");
    unsetenv("KUBERNETES_SERVICE_PORT");
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

static char *put(const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", directory, name);
    auto_err struct err err = {0};
    if (file_write_atomic(path, text, strlen(text), 0700, &err) != 0)
        fail_msg("%s", err_text(&err));
    return path;
}

static struct kube_config *load(const char *paths, const char *context)
{
    struct kube_config *config = NULL;
    auto_err struct err err = {0};
    struct kube_config_options options = {.kubeconfig = paths, .context = context};
    if (kube_config_load(&options, &config, &err) != 0)
        fail_msg("%s", err_text(&err));
    return config;
}

#define BASE                                                                                                           \
    "apiVersion: v1\n"                                                                                                 \
    "kind: Config\n"                                                                                                   \
    "current-context: here\n"                                                                                          \
    "contexts:\n"                                                                                                      \
    "- name: here\n"                                                                                                   \
    "  context: {cluster: c, user: u, namespace: team}\n"

static void test_everything(void **state)
{
    (void)state;
    auto_free char *path = put("config", BASE "- {name: bare, context: {cluster: c}}\n"
                                              "clusters:\n"
                                              "- name: c\n"
                                              "  cluster:\n"
                                              "    server: https://10.0.0.1:6443/\n"
                                              "    certificate-authority: pki/ca.crt\n"
                                              "    tls-server-name: kubernetes\n"
                                              "    proxy-url: socks5://proxy:1080\n"
                                              "users:\n"
                                              "- name: u\n"
                                              "  user:\n"
                                              "    client-certificate-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==\n"
                                              "    client-certificate: ignored.crt\n"
                                              "    client-key: /abs/key.pem\n"
                                              "    token: 12345\n"
                                              "    tokenFile: sub/token\n"
                                              "    as: bob\n"
                                              "    as-uid: 'u-1'\n"
                                              "    as-groups: [dev, ops]\n"
                                              "    as-user-extra: {\"a/B c\": [x, y]}\n");
    struct kube_config *config = load(path, NULL);
    auto_free char *authority = mem_printf("%s/pki/ca.crt", directory);
    auto_free char *token_file = mem_printf("%s/sub/token", directory);
    assert_string_equal(config->server, "https://10.0.0.1:6443");
    assert_string_equal(config->source, path);
    assert_string_equal(config->ca_file, authority);
    assert_null(config->ca_data);
    assert_string_equal(config->tls_server_name, "kubernetes");
    assert_string_equal(config->proxy_url, "socks5://proxy:1080");
    assert_string_equal(config->client_certificate_data, "-----BEGIN CERTIFICATE-----\n");
    assert_null(config->client_certificate_file);
    assert_string_equal(config->client_key_file, "/abs/key.pem");
    assert_string_equal(config->token, "12345");
    assert_string_equal(config->token_file, token_file);
    assert_string_equal(config->namespace_, "team");
    assert_string_equal(config->impersonate_user, "bob");
    auto_free char *lines = strv_join(&config->impersonate_headers, "|");
    assert_string_equal(lines, "Impersonate-Uid: u-1|Impersonate-Group: dev|Impersonate-Group: ops|"
                               "Impersonate-Extra-a%2FB%20c: x|Impersonate-Extra-a%2FB%20c: y");
    assert_false(config->insecure);
    assert_null(config->exec);
    kube_config_free(config);
    config = load(path, "bare");
    assert_null(config->token);
    assert_string_equal(config->namespace_, "default");
    kube_config_free(config);
}

static void test_merge(void **state)
{
    (void)state;
    auto_free char *first =
        put("first", "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
                     "clusters: [{name: c, cluster: {server: 'https://first', certificate-authority: ca}}]\n");
    auto_free char *subdirectory = mem_printf("%s/two", directory);
    assert_int_equal(mkdir(subdirectory, 0700), 0);
    auto_free char *second = put("two/second", "current-context: x\n"
                                               "contexts: [{name: x, context: {cluster: other}}]\n"
                                               "clusters: [{name: c, cluster: {server: 'https://second'}}]\n"
                                               "users: [{name: u, user: {tokenFile: t}}]\n");
    auto_free char *list = mem_printf("%s:%s/missing:%s:", first, directory, second);
    auto_free char *authority = mem_printf("%s/ca", directory);
    auto_free char *token = mem_printf("%s/two/t", directory);
    struct kube_config *config = load(list, NULL);
    assert_string_equal(config->server, "https://first");
    assert_string_equal(config->ca_file, authority);
    assert_string_equal(config->token_file, token);
    kube_config_free(config);

    /* which list counts */
    setenv("KUBECONFIG", second, 1);
    auto_err struct err err = {0};
    struct kube_config_options options = {.kubeconfig = list, .env_wins = true};
    assert_int_equal(kube_config_load(&options, &config, &err), -1);
    assert_non_null(strstr(err_text(&err), "context \"x\" names cluster \"other\", which does not exist"));
    options.env_wins = false;
    assert_int_equal(kube_config_load(&options, &config, &err), 0);
    kube_config_free(config);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem; /* after "FILE" */
    } cases[] = {
        {"a: [1,\nb: }\n", ":2: "},
        {"- a\n- b\n", ":1: this is no kubeconfig: a mapping is wanted"},
        {"", ": no current-context is set and none was named"},
        {"current-context: gone\n", ": context \"gone\" does not exist"},
        {"current-context: [x]\n", ":1: \"current-context\" must be a string"},
        {"current-context: x\ncontexts: {x: y}\n", ":2: \"contexts\" must be a list"},
        {BASE, ":6: context \"here\" names cluster \"c\", which does not exist"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\n",
         ":6: context \"here\" names user \"u\", which does not exist"},
        {BASE "clusters:\n- name: c\n  cluster:\n    certificate-authority: x\nusers: [{name: u}]\n",
         ":10: the cluster of context \"here\" has no server"},
        {BASE "clusters: [{name: c, cluster: {server: 'ftp://x'}}]\nusers: [{name: u}]\n",
         ": the server URL must begin with https:// or http://, not ftp://"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://a b'}}]\nusers: [{name: u}]\n",
         ": \"https://a b\" is no valid server URL"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://me:pw@x'}}]\nusers: [{name: u}]\n",
         ": the server URL must not contain a user name"},
        {BASE "clusters:\n- name: c\n  cluster: {server: 'https://x', certificate-authority-data: '%%'}\nusers: "
              "[{name: u}]\n",
         ":9: \"certificate-authority-data\" is not valid base64"},
        {BASE "clusters:\n- name: c\n  cluster: {server: 'https://x', insecure-skip-tls-verify: maybe}\nusers: [{name: "
              "u}]\n",
         ":9: \"insecure-skip-tls-verify\" must be true or false"},
        {BASE "clusters:\n- name: c\n  cluster: {server: 'https://x', insecure-skip-tls-verify: true, "
              "certificate-authority: a}\nusers: [{name: u}]\n",
         ":9: insecure-skip-tls-verify and a certificate-authority exclude each other"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x', proxy-url: 'gopher://p'}}]\nusers: [{name: u}]\n",
         ": proxy-url must begin with"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user:\n    token: "
              "\"a\\nb\"\n",
         ":11: \"token\" contains a line break"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user:\n    token: a\n    "
              "username: b\n",
         ":11: only one of a token and username/password is allowed"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user: {client-key: k}\n",
         ":10: a client certificate needs its key"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user: {as-groups: [x]}\n",
         ":10: as-uid, as-groups and as-user-extra need \"as\""},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user:\n    auth-provider:\n"
              "      name: gcp\n",
         ":12: auth-provider entries are not supported"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user:\n    exec: {command: "
              "x, apiVersion: client.authentication.k8s.io/v1alpha1}\n",
         ":11: exec: apiVersion must be client.authentication.k8s.io/v1 or"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user:\n    exec: {command: "
              "x, apiVersion: client.authentication.k8s.io/v1}\n",
         ":11: exec: interactiveMode must be"},
        {BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user:\n    exec: "
              "{apiVersion: client.authentication.k8s.io/v1beta1}\n",
         ":11: exec: \"command\" is missing"},
        /* an alias within itself must not be followed for ever */
        {BASE "clusters: [{name: c, cluster: {server: 'https://x', extensions: [{name: "
              "client.authentication.k8s.io/exec, extension: &a [*a]}]}}]\nusers:\n- name: u\n  user:\n    exec: "
              "{apiVersion: client.authentication.k8s.io/v1beta1, command: x, provideClusterInfo: true}\n",
         ":7: too large or nested too deeply"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *path = put("config", cases[i].text);
        struct kube_config *config = NULL;
        auto_err struct err err = {0};
        struct kube_config_options options = {.kubeconfig = path};
        auto_free char *wanted = mem_printf("%s%s", path, cases[i].problem);
        int result = kube_config_load(&options, &config, &err);
        if (result != -1 || !str_starts(err_text(&err), wanted) || strchr(err_text(&err), '\n') != NULL)
            fail_msg("case %zu: %s", i, err_text(&err));
        assert_null(config);
    }
    struct kube_config *config = NULL;
    auto_err struct err err = {0};
    struct kube_config_options options = {.kubeconfig = "/nonexistent/config"};
    assert_int_equal(kube_config_load(&options, &config, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err_text(&err), "/nonexistent/config"));
    options.kubeconfig = "/nonexistent/a:/nonexistent/b";
    assert_int_equal(kube_config_load(&options, &config, &err), -1);
    assert_string_equal(err_text(&err), "none of the kubeconfig files exists: /nonexistent/a:/nonexistent/b");
}

static void test_master(void **state)
{
    (void)state;
    static const struct {
        const char *master, *server;
    } cases[] = {{"http://127.0.0.1:8080", "http://127.0.0.1:8080"},
                 {"127.0.0.1:8080", "http://127.0.0.1:8080"},
                 {"https://[fd00::1]:6443/x/", "https://[fd00::1]:6443/x"}};
    auto_err struct err err = {0};
    struct kube_config *config = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kube_config_options options = {.master = cases[i].master};
        if (kube_config_load(&options, &config, &err) != 0)
            fail_msg("%s", err_text(&err));
        assert_string_equal(config->server, cases[i].server);
        assert_string_equal(config->source, "--master");
        kube_config_free(config);
    }
    auto_free char *path =
        put("config", BASE "clusters: [{name: c, cluster: {server: 'https://x', insecure-skip-tls-verify: true}}]\n"
                           "users: [{name: u, user: {token: t}}]\n");
    struct kube_config_options options = {.kubeconfig = path, .master = "other:7"};
    assert_int_equal(kube_config_load(&options, &config, &err), 0);
    assert_string_equal(config->server, "https://other:7");
    assert_string_equal(config->token, "t");
    kube_config_free(config);
}

static void test_in_cluster(void **state)
{
    (void)state;
    auto_err struct err err = {0};
    struct kube_config *config = NULL;
    struct kube_config_options options = {.service_account_dir = directory};
    assert_int_equal(kube_config_load(&options, &config, &err), -1);
    assert_non_null(strstr(err_text(&err), "no kubeconfig was given and this is no Pod"));
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_int_equal(kube_config_load(&options, &config, &err), -1);
    assert_non_null(strstr(err_text(&err), "token"));
    free(put("token", "abc\n"));
    assert_int_equal(kube_config_load(&options, &config, &err), 0); /* without ca.crt: the system's authorities */
    assert_null(config->ca_file);
    assert_string_equal(config->namespace_, "default");
    kube_config_free(config);
    auto_free char *authority = put("ca.crt", "x");
    free(put("namespace", "kube-system\n"));
    assert_int_equal(kube_config_load(&options, &config, &err), 0);
    assert_true(str_starts(config->server, "https://[fd00::1]"));
    assert_string_equal(config->source, "in-cluster");
    assert_string_equal(config->ca_file, authority);
    assert_string_equal(config->namespace_, "kube-system");
    struct kube_credential credential;
    assert_int_equal(kube_config_credential(config, NULL, false, &credential, &err), 0);
    assert_string_equal(credential.token, "abc");
    kube_credential_clear(&credential);
    kube_config_free(config);
}

/* ---- credentials ---- */

static void expect(struct kube_config *config, struct clock *clock, bool force, const char *token, uint64_t generation)
{
    auto_err struct err err = {0};
    struct kube_credential credential;
    if (kube_config_credential(config, clock, force, &credential, &err) != 0)
        fail_msg("%s", err_text(&err));
    assert_string_equal(credential.token, token);
    assert_int_equal(credential.generation, generation);
    kube_credential_clear(&credential);
}

static void test_token_file(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    auto_free char *path = put("config", BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\n"
                                              "users: [{name: u, user: {token: fixed, tokenFile: token}}]\n");
    struct kube_config *config = load(path, NULL);
    expect(config, clock, false, "fixed", 1); /* the file is not there yet */
    free(put("token", "  one\r\n"));
    expect(config, clock, false, "fixed", 1);
    clock_fake_advance(clock, CLOCK_SECOND);
    expect(config, clock, false, "one", 2);
    free(put("token", "two"));
    expect(config, clock, false, "one", 2);
    expect(config, clock, true, "two", 3); /* a 401 does not wait for the second to be over */
    expect(config, clock, true, "two", 3);
    free(put("token", "three four"));
    clock_fake_advance(clock, 61 * CLOCK_SECOND);
    expect(config, clock, false, "two", 3); /* nonsense is not taken */
    kube_config_free(config);
    free(put("config2", BASE "clusters: [{name: c, cluster: {server: 'https://x'}}]\n"
                             "users: [{name: u, user: {tokenFile: token}}]\n"));
    auto_free char *path2 = mem_printf("%s/config2", directory);
    auto_err struct err err = {0};
    struct kube_credential credential;
    static const char *const bad[] = {"", " \n", "a\nb"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        free(put("token", bad[i]));
        config = load(path2, NULL);
        assert_int_equal(kube_config_credential(config, clock, false, &credential, &err), -1);
        assert_null(strstr(err_text(&err), "a\nb"));
        kube_config_free(config);
    }
    clock_free(clock);
}

static struct kube_config *load_exec(const char *script, const char *more)
{
    free(put("plugin", script));
    auto_free char *text = mem_printf(
        BASE
        "clusters:\n- name: c\n  cluster:\n    server: https://x:1\n    certificate-authority: ca\n    "
        "extensions: [{name: other, extension: 1}, {name: client.authentication.k8s.io/exec, extension: {audience: "
        "a, n: 3, t: true, l: [x, null]}}]\n"
        "users:\n- name: u\n  user:\n    exec:\n      command: ./plugin\n      args: [one, 'two words']\n      "
        "env: [{name: COLOR, value: blue}]\n%s",
        more);
    free(put("ca", "authority"));
    auto_free char *path = put("config", text);
    return load(path, NULL);
}

#define V1 "      apiVersion: client.authentication.k8s.io/v1\n      interactiveMode: Never\n"
#define V1BETA1 "      apiVersion: client.authentication.k8s.io/v1beta1\n"
#define PRINT(version, status)                                                                                         \
    "#!/bin/sh\nprintf '{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/" version           \
    "\",\"status\":" status "}'\n"

static void test_exec(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(0);
    auto_free char *script = mem_printf(
        "#!/bin/sh\necho run >> %s/runs\nprintf '%%s' \"$KUBERNETES_EXEC_INFO\" > %s/info\n"
        "n=$(wc -l < %s/runs)\n"
        "printf '{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":"
        "\"%%s-%%s-%%s-%%s\",\"expirationTimestamp\":\"1970-01-01T00:10:00Z\"}}' \"$1\" \"${2#two }\" \"$COLOR\" $n\n",
        directory, directory, directory);
    struct kube_config *config = load_exec(script, V1 "      provideClusterInfo: true\n");
    expect(config, clock, false, "one-words-blue-1", 1);
    expect(config, clock, false, "one-words-blue-1", 1);
    auto_free char *info_path = mem_printf("%s/info", directory);
    auto_free char *info = NULL;
    size_t len;
    assert_int_equal(file_read(info_path, 10000, &info, &len, NULL), 0);
    json_t *got = json_loads(info, 0, NULL);
    json_t *wanted =
        json_pack("{s:s,s:s,s:{s:b,s:{s:s,s:s,s:{s:s,s:i,s:b,s:[s,n]}}}}", "kind", "ExecCredential", "apiVersion",
                  "client.authentication.k8s.io/v1", "spec", "interactive", 0, "cluster", "server", "https://x:1",
                  "certificate-authority-data", "YXV0aG9yaXR5", "config", "audience", "a", "n", 3, "t", 1, "l", "x");
    assert_true(json_equal(got, wanted));
    json_decref(got);
    json_decref(wanted);
    expect(config, clock, true, "one-words-blue-1", 1); /* refused right after it was made: no better one so soon */
    clock_fake_advance(clock, 11 * CLOCK_SECOND);
    expect(config, clock, true, "one-words-blue-2", 2);
    clock_fake_advance(clock, 558 * CLOCK_SECOND);
    expect(config, clock, false, "one-words-blue-2", 2);
    clock_fake_advance(clock, 2 * CLOCK_SECOND); /* 29 s before it expires */
    expect(config, clock, false, "one-words-blue-3", 3);
    /* as long as the old one lasts a failing plugin does no harm */
    free(put("plugin", "#!/bin/sh\nexit 3\n"));
    expect(config, clock, false, "one-words-blue-3", 3);
    clock_fake_advance(clock, 40 * CLOCK_SECOND);
    auto_err struct err err = {0};
    struct kube_credential credential;
    assert_int_equal(kube_config_credential(config, clock, false, &credential, &err), -1);
    assert_non_null(strstr(err_text(&err), "ended with exit status 3"));
    kube_config_free(config);
    clock_free(clock);
}

static void test_exec_answers(void **state)
{
    (void)state;
    static const struct {
        const char *script, *more, *problem; /* NULL = success */
    } cases[] = {
        {PRINT("v1", "{\"clientCertificateData\":\"C\",\"clientKeyData\":\"K\"}"), V1, NULL},
        {PRINT("v1beta1", "{\"token\":\"t\"}"), V1BETA1, NULL},
        {PRINT("v1beta1", "{\"token\":\"t\"}"), V1, "its answer has another"},
        {PRINT("v1", "{}"), V1, "neither a token nor a client certificate"},
        {PRINT("v1", "{\"clientKeyData\":\"K\"}"), V1, "belong together"},
        {PRINT("v1", "{\"token\":\"a b\"}"), V1, "blanks or control characters"},
        {PRINT("v1", "{\"token\":\"a\",\"expirationTimestamp\":\"soon\"}"), V1, "no RFC 3339 time"},
        {PRINT("v1", "null"), V1, "gave no status"},
        {"#!/bin/sh\necho '{\"kind\":\"Secret-thing\"}'\n", V1, "no ExecCredential"},
        {"#!/bin/sh\necho hunter2\n", V1, "printed no JSON"},
        {"#!/bin/sh\nkill -9 $$\n", V1, "ended by signal 9"},
        {"#!/bin/sh\nhead -c 2000000 /dev/zero\n", V1, "printed more than"},
        {"#!/bin/sh\nsleep 600 >&2 &\n" /* leaves a child behind, but not on its output */
         "printf "
         "'{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":"
         "\"t\"}}'; kill $!\n",
         V1, NULL},
        {"#!/nonexistent/shell\n", V1 "      installHint: get it from the shelf\n", "get it from the shelf"},
        {PRINT("v1", "{\"token\":\"t\"}"),
         "      apiVersion: client.authentication.k8s.io/v1\n      interactiveMode: Always\n", "wants a terminal"},
    };
    auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO); /* as a daemon has it */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kube_config *config = load_exec(cases[i].script, cases[i].more);
        auto_err struct err err = {0};
        struct kube_credential credential;
        int result = kube_config_credential(config, NULL, false, &credential, &err);
        if (result != (cases[i].problem != NULL ? -1 : 0) ||
            (cases[i].problem != NULL && strstr(err_text(&err), cases[i].problem) == NULL) ||
            strstr(err_text(&err), "hunter2") != NULL)
            fail_msg("case %zu: %s", i, err_text(&err));
        if (result == 0)
            assert_true(credential.token != NULL || credential.certificate_pem != NULL);
        kube_credential_clear(&credential);
        kube_config_free(config);
    }
}

static void *stop_soon(void *arg)
{
    usleep(100000);
    stop_request(arg);
    return NULL;
}

static void test_exec_stops(void **state)
{
    (void)state;
    struct stop *stop = stop_new();
    struct kube_config *config = load_exec("#!/bin/sh\nsleep 600\n", V1);
    auto_err struct err err = {0};
    struct kube_credential credential;
    int64_t start = clock_mono(clock_real());
    pthread_t thread = thread_start("stop", stop_soon, stop);
    assert_int_equal(kube_config_credential_renew(config, clock_real(), stop, 0, &credential, &err), -1);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_true(clock_mono(clock_real()) - start < 5 * CLOCK_SECOND);
    thread_join(thread);
    kube_config_free(config);
    stop_free(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(test_merge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_master, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_cluster, setup, teardown),
        cmocka_unit_test_setup_teardown(test_token_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exec, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exec_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exec_stops, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
