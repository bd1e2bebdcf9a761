/* SPDX-License-Identifier: Apache-2.0 */
/* Exec plugins: what the kubeconfig says about them, what they are told and what they answer. */
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/config_private.h"

#include <string.h>

#define CA_LIMIT ((size_t)4 << 20)
#define CLUSTER_EXTENSION "client.authentication.k8s.io/exec"

static const char *const api_versions[] = {"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"};

void kube_exec_free(struct kube_exec *exec)
{
    if (exec == NULL)
        return;
    free(exec->api_version);
    free(exec->command);
    free(exec->install_hint);
    free(exec->cluster);
    strv_free(&exec->args);
    for (size_t i = 0; i < exec->env.len; i++) /* people put passwords there */
        mem_wipe(exec->env.items[i], strlen(exec->env.items[i]));
    strv_free(&exec->env);
    free(exec);
}

static void exec_cleanup(struct kube_exec **exec)
{
    kube_exec_free(*exec);
}

static int parse_api_version(struct kube_exec *exec, struct kube_yaml *file, const yaml_node_t *node, struct err *err)
{
    if (kube_yaml_get_string(file, node, "apiVersion", &exec->api_version, err) != 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(api_versions); i++)
        if (str_eq(exec->api_version, api_versions[i]))
            return 0;
    return kube_yaml_error(file, node, err, "exec: apiVersion must be %s or %s, not \"%s\"", api_versions[0],
                           api_versions[1], exec->api_version != NULL ? exec->api_version : "");
}

static int parse_command(struct kube_exec *exec, struct kube_yaml *file, const yaml_node_t *node, struct err *err)
{
    if (kube_yaml_get_string(file, node, "command", &exec->command, err) != 0)
        return -1;
    if (str_empty(exec->command))
        return kube_yaml_error(file, node, err, "exec: \"command\" is missing");
    /* a bare name is looked up in $PATH, a path with a slash starts at the file's directory */
    if (exec->command[0] != '/' && strchr(exec->command, '/') != NULL) {
        char *absolute = mem_printf("%s/%s", file->directory, exec->command);
        free(exec->command);
        exec->command = absolute;
    }
    yaml_node_t *args;
    if (kube_yaml_get_sequence(file, node, "args", &args, err) != 0)
        return -1;
    for (size_t i = 0; i < kube_yaml_len(args); i++) {
        yaml_node_t *item = kube_yaml_item(file, args, i);
        if (item->type != YAML_SCALAR_NODE)
            return kube_yaml_error(file, item, err, "exec: \"args\" must be a list of strings");
        strv_add(&exec->args, (const char *)item->data.scalar.value);
    }
    return 0;
}

static int parse_env(struct kube_exec *exec, struct kube_yaml *file, const yaml_node_t *node, struct err *err)
{
    yaml_node_t *env;
    if (kube_yaml_get_sequence(file, node, "env", &env, err) != 0)
        return -1;
    for (size_t i = 0; i < kube_yaml_len(env); i++) {
        yaml_node_t *item = kube_yaml_item(file, env, i);
        auto_free char *name = NULL;
        yaml_node_t *value = kube_yaml_get(file, item, "value");
        if (kube_yaml_get_string(file, item, "name", &name, err) != 0)
            return -1;
        if (str_empty(name) || strchr(name, '=') != NULL || (value != NULL && value->type != YAML_SCALAR_NODE))
            return kube_yaml_error(file, item, err, "exec: \"env\" must be a list of name and value");
        strv_add_take(&exec->env, mem_printf("%s=%s", name, value ? (const char *)value->data.scalar.value : ""));
    }
    return 0;
}

static int parse_mode(struct kube_exec *exec, struct kube_yaml *file, const yaml_node_t *node, struct err *err)
{
    static const char *const names[] = {
        [KUBE_EXEC_NEVER] = "Never", [KUBE_EXEC_IF_AVAILABLE] = "IfAvailable", [KUBE_EXEC_ALWAYS] = "Always"};
    auto_free char *text = NULL;
    if (kube_yaml_get_string(file, node, "interactiveMode", &text, err) != 0)
        return -1;
    exec->mode = KUBE_EXEC_IF_AVAILABLE; /* the default of v1beta1 */
    if (text == NULL && strcmp(exec->api_version, api_versions[0]) != 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(text, names[i])) {
            exec->mode = (enum kube_exec_mode)i;
            return 0;
        }
    return kube_yaml_error(file, node, err, "exec: interactiveMode must be Never, IfAvailable or Always");
}

int kube_exec_parse(struct kube_yaml *file, const yaml_node_t *node, struct kube_exec **exec, struct err *err)
{
    struct kube_exec *fresh __attribute__((cleanup(exec_cleanup))) = mem_new(struct kube_exec);
    bool provide = false;
    if (parse_api_version(fresh, file, node, err) != 0 || parse_command(fresh, file, node, err) != 0 ||
        parse_env(fresh, file, node, err) != 0 || parse_mode(fresh, file, node, err) != 0 ||
        kube_yaml_get_string(file, node, "installHint", &fresh->install_hint, err) != 0 ||
        kube_yaml_get_bool(file, node, "provideClusterInfo", &provide, err) != 0)
        return -1;
    if (provide)
        fresh->cluster = mem_strdup(""); /* filled by kube_exec_set_cluster */
    *exec = mem_take(fresh);
    return 0;
}

/* clusters[].cluster.extensions[name = client.authentication.k8s.io/exec].extension */
static int cluster_extension(struct kube_yaml *file, const yaml_node_t *node, json_t *cluster, struct err *err)
{
    yaml_node_t *list;
    if (file == NULL || node == NULL)
        return 0;
    if (kube_yaml_get_sequence(file, node, "extensions", &list, err) != 0)
        return -1;
    for (size_t i = 0; i < kube_yaml_len(list); i++) {
        yaml_node_t *item = kube_yaml_item(file, list, i);
        auto_free char *name = NULL;
        if (kube_yaml_get_string(file, item, "name", &name, err) != 0)
            return -1;
        yaml_node_t *extension = kube_yaml_get(file, item, "extension");
        if (!str_eq(name, CLUSTER_EXTENSION) || extension == NULL)
            continue;
        json_t *json = kube_yaml_to_json(file, extension, err);
        if (json == NULL)
            return -1;
        json_object_set_new(cluster, "config", json);
        return 0;
    }
    return 0;
}

static int cluster_ca(const struct kube_config *config, json_t *cluster, struct err *err)
{
    auto_free char *text = NULL;
    size_t len = 0;
    if (config->ca_data != NULL) {
        text = mem_strdup(config->ca_data);
        len = strlen(text);
    } else if (config->ca_file != NULL) {
        if (file_read(config->ca_file, CA_LIMIT, &text, &len, err) != 0)
            return err_wrap(err, "%s: certificate-authority", config->source);
    } else {
        return 0;
    }
    auto_free char *packed = str_base64_encode(text, len);
    json_object_set_new(cluster, "certificate-authority-data", json_string(packed));
    return 0;
}

int kube_exec_set_cluster(struct kube_exec *exec, const struct kube_config *config, struct kube_yaml *file,
                          const yaml_node_t *node, struct err *err)
{
    if (exec->cluster == NULL)
        return 0;
    json_t *cluster = json_pack("{s:s}", "server", config->server);
    if (cluster == NULL)
        return err_set(err, ERR_INVALID, "%s: the server URL is no text", config->source);
    if (config->tls_server_name != NULL)
        json_object_set_new(cluster, "tls-server-name", json_string(config->tls_server_name));
    if (config->proxy_url != NULL)
        json_object_set_new(cluster, "proxy-url", json_string(config->proxy_url));
    if (config->insecure)
        json_object_set_new(cluster, "insecure-skip-tls-verify", json_true());
    int result = cluster_ca(config, cluster, err);
    if (result == 0)
        result = cluster_extension(file, node, cluster, err);
    if (result == 0) {
        free(exec->cluster);
        exec->cluster = json_dumps(cluster, JSON_COMPACT);
    }
    json_decref(cluster);
    return result;
}

/* ---- the answer ---- */

/* A credential ends up in a header: one line of printable ASCII. */
static bool printable(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (*c < 0x21 || *c == 0x7f)
            return false;
    return true;
}

static int take_status(const struct kube_exec *exec, const json_t *status, struct kube_credential *credential,
                       int64_t *expires, struct err *err)
{
    const char *token = json_string_value(json_object_get(status, "token"));
    const char *certificate = json_string_value(json_object_get(status, "clientCertificateData"));
    const char *key = json_string_value(json_object_get(status, "clientKeyData"));
    const char *until = json_string_value(json_object_get(status, "expirationTimestamp"));
    if (str_empty(certificate) != str_empty(key))
        return err_set(err, ERR_UNAUTHORIZED, "exec plugin %s: clientCertificateData and clientKeyData belong together",
                       exec->command);
    if (str_empty(token) && str_empty(certificate))
        return err_set(err, ERR_UNAUTHORIZED, "exec plugin %s gave neither a token nor a client certificate",
                       exec->command);
    if (!str_empty(token) && !printable(token))
        return err_set(err, ERR_UNAUTHORIZED, "exec plugin %s gave a token with blanks or control characters",
                       exec->command);
    *expires = 0;
    if (!str_empty(until) && !clock_parse_rfc3339(until, expires))
        return err_set(err, ERR_UNAUTHORIZED, "exec plugin %s: expirationTimestamp is no RFC 3339 time", exec->command);
    *credential = (struct kube_credential){
        .token = str_empty(token) ? NULL : mem_strdup(token),
        .certificate_pem = str_empty(certificate) ? NULL : mem_strdup(certificate),
        .key_pem = str_empty(key) ? NULL : mem_strdup(key),
    };
    return 0;
}

int kube_exec_parse_output(const struct kube_exec *exec, const char *text, size_t len,
                           struct kube_credential *credential, int64_t *expires, struct err *err)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    int result;
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const char *version = json_string_value(json_object_get(root, "apiVersion"));
    const json_t *status = json_object_get(root, "status");
    if (root == NULL)
        result = err_set(err, ERR_UNAUTHORIZED, "exec plugin %s printed no JSON", exec->command);
    else if (!str_eq(kind, "ExecCredential"))
        result =
            err_set(err, ERR_UNAUTHORIZED, "exec plugin %s printed something that is no ExecCredential", exec->command);
    else if (!str_eq(version, exec->api_version))
        result =
            err_set(err, ERR_UNAUTHORIZED, "exec plugin %s is configured for API version %s, its answer has another",
                    exec->command, exec->api_version);
    else if (!json_is_object(status))
        result = err_set(err, ERR_UNAUTHORIZED, "exec plugin %s gave no status", exec->command);
    else
        result = take_status(exec, status, credential, expires, err);
    json_decref(root);
    return result;
}
