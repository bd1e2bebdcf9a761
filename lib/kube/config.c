/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/config_private.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SERVICE_ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"
#define SMALL_FILE ((size_t)1 << 20)

void kube_wipe_string(char **text)
{
    if (*text != NULL)
        mem_wipe(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void kube_config_free(struct kube_config *config)
{
    if (config == NULL)
        return;
    char **plain[] = {&config->server,          &config->source,     &config->ca_file,
                      &config->ca_data,         &config->proxy_url,  &config->client_certificate_file,
                      &config->client_key_file, &config->username,   &config->token_file,
                      &config->tls_server_name, &config->namespace_, &config->impersonate_user};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        free(*plain[i]);
    kube_wipe_string(&config->client_certificate_data);
    kube_wipe_string(&config->client_key_data);
    kube_wipe_string(&config->token);
    kube_wipe_string(&config->password);
    strv_free(&config->impersonate_headers);
    kube_exec_free(config->exec);
    kube_credentials_free(config->credentials);
    free(config);
}

static void config_cleanup(struct kube_config **config)
{
    kube_config_free(*config);
}

static void replace(char **field, char *value)
{
    free(*field);
    *field = value;
}

/* ---- the server's URL ---- */

/* Brings the URL into one form: scheme present, IPv6 hosts in brackets, no trailing slash. A bare "host:port" gets the
 * scheme as kubectl guesses it. */
static int normalize_server(struct kube_config *config, struct err *err)
{
    bool tls = config->ca_file != NULL || config->ca_data != NULL || config->insecure ||
               config->client_certificate_file != NULL || config->client_certificate_data != NULL;
    if (strstr(config->server, "://") == NULL)
        replace(&config->server, mem_printf("%s://%s", tls ? "https" : "http", config->server));
    CURLU *url = curl_url();
    char *scheme = NULL, *user = NULL, *query = NULL, *fragment = NULL, *whole = NULL;
    CURLUcode code = curl_url_set(url, CURLUPART_URL, config->server, 0);
    if (code == CURLUE_OK) {
        curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
        curl_url_get(url, CURLUPART_USER, &user, 0);
        curl_url_get(url, CURLUPART_QUERY, &query, 0);
        curl_url_get(url, CURLUPART_FRAGMENT, &fragment, 0);
        code = curl_url_get(url, CURLUPART_URL, &whole, 0);
    }
    int result = 0;
    if (code != CURLUE_OK)
        result = err_set(err, ERR_INVALID, "%s: \"%s\" is no valid server URL: %s", config->source, config->server,
                         curl_url_strerror(code));
    else if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        result = err_set(err, ERR_INVALID, "%s: the server URL must begin with https:// or http://, not %s://",
                         config->source, scheme);
    else if (user != NULL)
        result = err_set(err, ERR_INVALID, "%s: the server URL must not contain a user name", config->source);
    else if (query != NULL || fragment != NULL)
        result = err_set(err, ERR_INVALID, "%s: the server URL must not contain a query or fragment", config->source);
    else {
        size_t len = strlen(whole);
        while (len > 0 && whole[len - 1] == '/')
            len--;
        replace(&config->server, mem_strndup(whole, len));
    }
    curl_free(scheme);
    curl_free(user);
    curl_free(query);
    curl_free(fragment);
    curl_free(whole);
    curl_url_cleanup(url);
    return result;
}

static int check_proxy(const struct kube_config *config, struct err *err)
{
    static const char *const schemes[] = {"http://", "https://", "socks5://", "socks5h://"};
    if (config->proxy_url == NULL)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
        if (str_starts(config->proxy_url, schemes[i]))
            return 0;
    return err_set(err, ERR_INVALID, "%s: proxy-url must begin with http://, https:// or socks5://", config->source);
}

/* ---- in-cluster ---- */

static int load_in_cluster(struct kube_config *config, const struct kube_config_options *options, struct err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (str_empty(host) || str_empty(port))
        return err_set(err, ERR_INVALID,
                       "no kubeconfig was given and this is no Pod (KUBERNETES_SERVICE_HOST and "
                       "KUBERNETES_SERVICE_PORT are not set)");
    const char *directory =
        str_empty(options->service_account_dir) ? SERVICE_ACCOUNT_DIR : options->service_account_dir;
    config->source = mem_strdup("in-cluster");
    bool bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    config->server = mem_printf(bare_ipv6 ? "https://[%s]:%s" : "https://%s:%s", host, port);
    config->token_file = mem_printf("%s/token", directory);
    auto_free char *token = NULL;
    size_t len = 0;
    if (file_read(config->token_file, SMALL_FILE, &token, &len, err) != 0)
        return err_wrap(err, "in-cluster: the service account's token");
    mem_wipe(token, len);
    config->ca_file = mem_printf("%s/ca.crt", directory);
    if (access(config->ca_file, R_OK) != 0) {
        /* as upstream: clusters whose API server has a public certificate */
        log_warn("No service account CA file, the system's certificates are trusted instead",
                 kv_str("file", config->ca_file), kv_str("reason", strerrordesc_np(errno)));
        replace(&config->ca_file, NULL);
    }
    auto_free char *path = mem_printf("%s/namespace", directory);
    auto_free char *text = NULL;
    if (file_read(path, SMALL_FILE, &text, &len, NULL) == 0) {
        len = strcspn(text, " \t\r\n");
        if (len > 0)
            config->namespace_ = mem_strndup(text, len);
    }
    return 0;
}

/* ---- kubeconfig files ---- */

struct files {
    struct kube_yaml *items;
    size_t len;
};

static void files_free(struct files *files)
{
    for (size_t i = 0; i < files->len; i++)
        kube_yaml_free(&files->items[i]);
    free(files->items);
}

/* In a list of several files those that do not exist are passed over, as kubectl does; a single one must exist. */
static int load_files(struct files *files, const char *list, struct err *err)
{
    auto_strv struct strv paths = {0};
    strv_split(&paths, list, ':');
    while (strv_remove(&paths, ""))
        ;
    files->items = mem_calloc(paths.len + 1, sizeof(*files->items));
    for (size_t i = 0; i < paths.len; i++) {
        auto_err struct err problem = {0};
        struct kube_yaml *file = &files->items[files->len];
        int result = kube_yaml_load(file, paths.items[i], &problem);
        if (result != 0 && problem.code == ERR_NOT_FOUND && paths.len > 1) {
            kube_yaml_free(file);
            continue;
        }
        files->len++;
        if (result != 0)
            return err_move(err, &problem);
    }
    if (files->len == 0)
        return err_set(err, ERR_NOT_FOUND, "none of the kubeconfig files exists: %s", list);
    return 0;
}

/* An entry of one of the named lists, and the file it is in. */
struct entry {
    struct kube_yaml *file;
    yaml_node_t *node; /* the inner mapping ("cluster", "user", "context"); NULL when it is empty */
};

/* Looks for `name` in `list` ("clusters") of every file, the first one wins. *found tells whether there is one. */
static int find_entry(struct files *files, const char *list, const char *inner, const char *name, struct entry *entry,
                      bool *found, struct err *err)
{
    *found = false;
    for (size_t f = 0; f < files->len && !*found; f++) {
        struct kube_yaml *file = &files->items[f];
        yaml_node_t *sequence;
        if (kube_yaml_get_sequence(file, kube_yaml_root(file), list, &sequence, err) != 0)
            return -1;
        for (size_t i = 0; i < kube_yaml_len(sequence) && !*found; i++) {
            yaml_node_t *item = kube_yaml_item(file, sequence, i);
            if (item->type != YAML_MAPPING_NODE)
                return kube_yaml_error(file, item, err, "an entry of \"%s\" must be a mapping with a name", list);
            auto_free char *item_name = NULL;
            if (kube_yaml_get_string(file, item, "name", &item_name, err) != 0)
                return -1;
            if (!str_eq(item_name, name))
                continue;
            *found = true;
            entry->file = file;
            if (kube_yaml_get_mapping(file, item, inner, &entry->node, err) != 0)
                return -1;
        }
    }
    return 0;
}

static int current_context(struct files *files, char **name, struct err *err)
{
    for (size_t f = 0; f < files->len && str_empty(*name); f++)
        if (kube_yaml_get_string(&files->items[f], kube_yaml_root(&files->items[f]), "current-context", name, err) != 0)
            return -1;
    return 0;
}

static int apply_cluster(struct kube_config *config, struct entry *cluster, struct err *err)
{
    struct kube_yaml *file = cluster->file;
    const yaml_node_t *node = cluster->node;
    if (kube_yaml_get_string(file, node, "server", &config->server, err) != 0 ||
        kube_yaml_get_path(file, node, "certificate-authority", &config->ca_file, err) != 0 ||
        kube_yaml_get_data(file, node, "certificate-authority-data", &config->ca_data, err) != 0 ||
        kube_yaml_get_bool(file, node, "insecure-skip-tls-verify", &config->insecure, err) != 0 ||
        kube_yaml_get_string(file, node, "tls-server-name", &config->tls_server_name, err) != 0 ||
        kube_yaml_get_string(file, node, "proxy-url", &config->proxy_url, err) != 0)
        return -1;
    if (config->ca_data != NULL)
        replace(&config->ca_file, NULL); /* data wins */
    if (str_empty(config->tls_server_name))
        replace(&config->tls_server_name, NULL);
    if (str_empty(config->proxy_url))
        replace(&config->proxy_url, NULL);
    if (config->insecure && (config->ca_file != NULL || config->ca_data != NULL))
        return kube_yaml_error(file, node, err,
                               "insecure-skip-tls-verify and a certificate-authority exclude each other");
    return 0;
}

/* Key of an "as-user-extra" header: everything but token characters is escaped. */
static void add_extra_key(struct str *line, const char *key)
{
    for (const char *c = key; *c != '\0'; c++) {
        bool token = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                     strchr("!#$&'*+-.^_`|~", *c) != NULL;
        if (token)
            str_add_char(line, *c);
        else
            str_addf(line, "%%%02X", (unsigned)(unsigned char)*c);
    }
}

static int add_list_headers(struct kube_config *config, struct kube_yaml *file, const yaml_node_t *list,
                            const char *header, struct err *err)
{
    for (size_t i = 0; i < kube_yaml_len(list); i++) {
        yaml_node_t *item = kube_yaml_item(file, list, i);
        bool good = item->type == YAML_SCALAR_NODE && item->data.scalar.length > 0;
        for (size_t c = 0; good && c < item->data.scalar.length; c++)
            good = item->data.scalar.value[c] >= 0x20 && item->data.scalar.value[c] != 0x7f;
        if (!good)
            return kube_yaml_error(file, item, err, "a string without control characters is wanted here");
        strv_add_take(&config->impersonate_headers, mem_printf("%s: %s", header, (char *)item->data.scalar.value));
    }
    return 0;
}

static int apply_impersonation(struct kube_config *config, struct kube_yaml *file, const yaml_node_t *node,
                               struct err *err)
{
    yaml_node_t *groups, *extra;
    auto_free char *uid = NULL;
    if (kube_yaml_get_string(file, node, "as", &config->impersonate_user, err) != 0 ||
        kube_yaml_get_string(file, node, "as-uid", &uid, err) != 0 ||
        kube_yaml_get_sequence(file, node, "as-groups", &groups, err) != 0 ||
        kube_yaml_get_mapping(file, node, "as-user-extra", &extra, err) != 0)
        return -1;
    if (str_empty(config->impersonate_user)) {
        replace(&config->impersonate_user, NULL);
        if (!str_empty(uid) || groups != NULL || extra != NULL)
            return kube_yaml_error(file, node, err, "as-uid, as-groups and as-user-extra need \"as\"");
        return 0;
    }
    if (!str_empty(uid))
        strv_add_take(&config->impersonate_headers, mem_printf("Impersonate-Uid: %s", uid));
    if (add_list_headers(config, file, groups, "Impersonate-Group", err) != 0)
        return -1;
    if (extra == NULL)
        return 0;
    for (const yaml_node_pair_t *pair = extra->data.mapping.pairs.start; pair < extra->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&file->document, pair->key);
        const yaml_node_t *values = yaml_document_get_node(&file->document, pair->value);
        if (key->type != YAML_SCALAR_NODE || values->type != YAML_SEQUENCE_NODE)
            return kube_yaml_error(file, key, err, "\"as-user-extra\" must map names to lists of strings");
        auto_str struct str header = {0};
        str_add(&header, "Impersonate-Extra-");
        add_extra_key(&header, (const char *)key->data.scalar.value);
        if (add_list_headers(config, file, values, str_text(&header), err) != 0)
            return -1;
    }
    return 0;
}

static int apply_secrets(struct kube_config *config, struct kube_yaml *file, const yaml_node_t *node, struct err *err)
{
    if (kube_yaml_get_path(file, node, "client-certificate", &config->client_certificate_file, err) != 0 ||
        kube_yaml_get_data(file, node, "client-certificate-data", &config->client_certificate_data, err) != 0 ||
        kube_yaml_get_path(file, node, "client-key", &config->client_key_file, err) != 0 ||
        kube_yaml_get_data(file, node, "client-key-data", &config->client_key_data, err) != 0 ||
        kube_yaml_get_string(file, node, "token", &config->token, err) != 0 ||
        kube_yaml_get_path(file, node, "tokenFile", &config->token_file, err) != 0 ||
        kube_yaml_get_string(file, node, "username", &config->username, err) != 0 ||
        kube_yaml_get_string(file, node, "password", &config->password, err) != 0)
        return -1;
    if (config->client_certificate_data != NULL)
        replace(&config->client_certificate_file, NULL);
    if (config->client_key_data != NULL)
        replace(&config->client_key_file, NULL);
    char **optional[] = {&config->token, &config->username, &config->password};
    for (size_t i = 0; i < ARRAY_LEN(optional); i++)
        if (str_empty(*optional[i]))
            replace(optional[i], NULL);
    return 0;
}

static int check_user(const struct kube_config *config, struct kube_yaml *file, const yaml_node_t *node,
                      struct err *err)
{
    bool certificate = config->client_certificate_file != NULL || config->client_certificate_data != NULL;
    bool key = config->client_key_file != NULL || config->client_key_data != NULL;
    bool token = config->token != NULL || config->token_file != NULL;
    if (certificate != key)
        return kube_yaml_error(file, node, err, "a client certificate needs its key and a key its certificate");
    if (config->password != NULL && config->username == NULL)
        return kube_yaml_error(file, node, err, "\"password\" needs \"username\"");
    if (token && config->username != NULL)
        return kube_yaml_error(file, node, err, "only one of a token and username/password is allowed");
    return 0;
}

static int apply_user(struct kube_config *config, struct entry *user, const struct entry *cluster, struct err *err)
{
    struct kube_yaml *file = user->file;
    const yaml_node_t *node = user->node, *provider = kube_yaml_get(file, node, "auth-provider");
    if (provider != NULL)
        return kube_yaml_error(file, provider, err,
                               "auth-provider entries are not supported (kubectl dropped them in 1.26): use an exec "
                               "credential plugin instead");
    yaml_node_t *exec;
    if (apply_secrets(config, file, node, err) != 0 || check_user(config, file, node, err) != 0 ||
        apply_impersonation(config, file, node, err) != 0 || kube_yaml_get_mapping(file, node, "exec", &exec, err) != 0)
        return -1;
    if (exec == NULL)
        return 0;
    if (config->username != NULL)
        return kube_yaml_error(file, exec, err, "only one of exec and username/password is allowed");
    /* as upstream: a token in the file is preferred to the plugin */
    if (config->token != NULL || config->token_file != NULL)
        return 0;
    if (kube_exec_parse(file, exec, &config->exec, err) != 0)
        return -1;
    return kube_exec_set_cluster(config->exec, config, cluster->file, cluster->node, err);
}

static int resolve_reference(struct files *files, struct entry *context, const char *context_name, const char *key,
                             const char *list, struct entry *entry, bool *found, struct err *err)
{
    auto_free char *name = NULL;
    *found = false;
    if (kube_yaml_get_string(context->file, context->node, key, &name, err) != 0)
        return -1;
    if (str_empty(name))
        return 0;
    if (find_entry(files, list, key, name, entry, found, err) != 0)
        return -1;
    if (!*found)
        return kube_yaml_error(context->file, context->node, err,
                               "context \"%s\" names %s \"%s\", which does not exist", context_name, key, name);
    return 0;
}

static int use_context(struct kube_config *config, struct files *files, const char *name, const char *master,
                       struct err *err)
{
    struct entry context = {0}, cluster = {0}, user = {0};
    bool found, has_cluster, has_user;
    if (find_entry(files, "contexts", "context", name, &context, &found, err) != 0)
        return -1;
    if (!found)
        return err_set(err, ERR_INVALID, "%s: context \"%s\" does not exist", config->source, name);
    replace(&config->source, mem_strdup(context.file->path));
    if (kube_yaml_get_string(context.file, context.node, "namespace", &config->namespace_, err) != 0 ||
        resolve_reference(files, &context, name, "cluster", "clusters", &cluster, &has_cluster, err) != 0 ||
        resolve_reference(files, &context, name, "user", "users", &user, &has_user, err) != 0)
        return -1;
    if (has_cluster && apply_cluster(config, &cluster, err) != 0)
        return -1;
    if (!str_empty(master))
        replace(&config->server, mem_strdup(master));
    if (str_empty(config->server))
        return kube_yaml_error(
            has_cluster ? cluster.file : context.file, has_cluster ? cluster.node : context.node, err,
            has_cluster ? "the cluster of context \"%s\" has no server" : "context \"%s\" names no cluster", name);
    return has_user ? apply_user(config, &user, &cluster, err) : 0;
}

static int load_kubeconfig(struct kube_config *config, const struct kube_config_options *options, const char *list,
                           struct err *err)
{
    struct files files __attribute__((cleanup(files_free))) = {0};
    auto_free char *name = str_empty(options->context) ? NULL : mem_strdup(options->context);
    config->source = mem_strdup(list);
    if (load_files(&files, list, err) != 0)
        return -1;
    if (name == NULL && current_context(&files, &name, err) != 0)
        return -1;
    if (!str_empty(name))
        return use_context(config, &files, name, options->master, err);
    if (str_empty(options->master))
        return err_set(err, ERR_INVALID, "%s: no current-context is set and none was named", list);
    config->server = mem_strdup(options->master);
    return 0;
}

int kube_config_load(const struct kube_config_options *options, struct kube_config **config, struct err *err)
{
    *config = NULL;
    struct kube_config *fresh __attribute__((cleanup(config_cleanup))) = mem_new(struct kube_config);
    const char *list = options->kubeconfig;
    const char *from_env = options->env_wins ? getenv("KUBECONFIG") : NULL;
    if (!str_empty(from_env))
        list = from_env;
    int result = 0;
    if (!str_empty(list)) {
        result = load_kubeconfig(fresh, options, list, err);
    } else if (!str_empty(options->master)) {
        fresh->source = mem_strdup("--master");
        fresh->server = mem_strdup(options->master);
    } else {
        result = load_in_cluster(fresh, options, err);
    }
    if (result != 0 || normalize_server(fresh, err) != 0 || check_proxy(fresh, err) != 0)
        return -1;
    if (str_empty(fresh->namespace_))
        replace(&fresh->namespace_, mem_strdup("default"));
    fresh->credentials = kube_credentials_new();
    *config = mem_take(fresh);
    return 0;
}
