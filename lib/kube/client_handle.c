/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/client_handle.h"

#include "lib/base/mem.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 10000L
/* A peer that vanished is noticed within half a minute. Watches send nothing, so without keepalive they would never
 * notice; TCP_USER_TIMEOUT covers data that is not acknowledged. */
#define KEEPALIVE_IDLE 15 /* s */
#define KEEPALIVE_INTERVAL 5
#define KEEPALIVE_COUNT 3
#define UNACKNOWLEDGED_MS 30000
#define LONGEST_RETRY_AFTER 86400u /* s; more is nonsense */
#define H2_GOOD_VERSION 0x080a00u  /* before, libcurl loses replies at a GOAWAY */
#define BUFFER_SIZE 16384L         /* of a handle, each way: libcurl's default for writing is 64 KiB */

/* ---- target ---- */

static bool is_loopback(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 || strncmp(host, "127.", 4) == 0;
}

static char *proxy_of(const struct kube_config *config, const char *host)
{
    if (config->proxy_url != NULL && strncmp(config->proxy_url, "socks5://", 9) == 0)
        return mem_printf("socks5h://%s", config->proxy_url + 9); /* names are resolved behind the proxy */
    if (config->proxy_url != NULL)
        return mem_strdup(config->proxy_url);
    /* as Go programs do: $HTTPS_PROXY never stands before this machine itself */
    return is_loopback(host) ? mem_strdup("") : NULL;
}

/* The certificate is checked for the URL's host, so tls-server-name becomes that, and CONNECT_TO leads to the real
 * one. */
static CURLUcode rename_host(struct kube_target *target, CURLU *url, const char *name, const char *host,
                             const char *port)
{
    bool bare_ipv6 = strchr(name, ':') != NULL && name[0] != '[';
    auto_free char *bracketed = mem_printf(bare_ipv6 ? "[%s]" : "%s", name);
    CURLUcode code = curl_url_set(url, CURLUPART_HOST, bracketed, 0);
    if (code != CURLUE_OK)
        return code;
    target->connect_to = mem_printf("%s:%s:%s:%s", bracketed, port, host, port);
    target->connect_list = curl_slist_append(NULL, target->connect_to);
    target->host_header = mem_printf("Host: %s:%s", host, port);
    return CURLUE_OK;
}

int kube_target_init(struct kube_target *target, const struct kube_config *config, const char *user_agent,
                     struct err *err)
{
    *target = (struct kube_target){.config = config,
                                   .user_agent = mem_strdup(user_agent != NULL ? user_agent : "berth"),
                                   .http_version = curl_version_info(CURLVERSION_NOW)->version_num >= H2_GOOD_VERSION
                                                       ? CURL_HTTP_VERSION_2TLS
                                                       : CURL_HTTP_VERSION_1_1};
    CURLU *url = curl_url();
    char *host = NULL, *port = NULL, *scheme = NULL, *whole = NULL;
    CURLUcode code = curl_url_set(url, CURLUPART_URL, config->server, 0);
    if (code == CURLUE_OK)
        code = curl_url_get(url, CURLUPART_HOST, &host, 0);
    if (code == CURLUE_OK)
        code = curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
    if (code == CURLUE_OK)
        code = curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
    if (code == CURLUE_OK) {
        target->proxy = proxy_of(config, host);
        if (config->tls_server_name != NULL && strcmp(scheme, "https") == 0)
            code = rename_host(target, url, config->tls_server_name, host, port);
    }
    if (code == CURLUE_OK) {
        code = curl_url_get(url, CURLUPART_URL, &whole, 0);
    }
    if (code == CURLUE_OK) {
        size_t len = strlen(whole);
        while (len > 0 && whole[len - 1] == '/')
            len--;
        target->base = mem_strndup(whole, len);
    }
    curl_free(host);
    curl_free(port);
    curl_free(scheme);
    curl_free(whole);
    curl_url_cleanup(url);
    if (code == CURLUE_OK)
        return 0;
    kube_target_clear(target);
    return err_set(err, ERR_INVALID, "%s: \"%s\" is no valid server URL: %s",
                   config->source ? config->source : "config", config->server ? config->server : "",
                   curl_url_strerror(code));
}

void kube_target_clear(struct kube_target *target)
{
    free(target->base);
    free(target->connect_to);
    free(target->host_header);
    free(target->user_agent);
    free(target->proxy);
    curl_slist_free_all(target->connect_list);
    *target = (struct kube_target){0};
}

/* ---- authentication ---- */

struct kube_auth *kube_auth_new(const struct kube_config *config, struct kube_credential *credential)
{
    struct kube_auth *auth = mem_new(struct kube_auth);
    auth->refs = 1;
    auth->generation = credential->generation;
    if (credential->token != NULL) {
        auth->header = mem_printf("Authorization: Bearer %s", credential->token);
    } else if (config->username != NULL) {
        char *pair = mem_printf("%s:%s", config->username, config->password ? config->password : "");
        char *packed = str_base64_encode(pair, strlen(pair));
        auth->header = mem_printf("Authorization: Basic %s", packed);
        mem_wipe(pair, strlen(pair));
        mem_wipe(packed, strlen(packed));
        free(pair);
        free(packed);
    }
    auth->certificate = mem_take(credential->certificate_pem);
    auth->key = mem_take(credential->key_pem);
    kube_credential_clear(credential);
    return auth;
}

struct kube_auth *kube_auth_ref(struct kube_auth *auth)
{
    if (auth != NULL)
        atomic_fetch_add(&auth->refs, 1);
    return auth;
}

void kube_auth_unref(struct kube_auth *auth)
{
    if (auth == NULL || atomic_fetch_sub(&auth->refs, 1) != 1)
        return;
    char *secrets[] = {auth->header, auth->certificate, auth->key};
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
        if (secrets[i] != NULL)
            mem_wipe(secrets[i], strlen(secrets[i]));
        free(secrets[i]);
    }
    free(auth);
}

/* ---- request headers ---- */

static void add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer == NULL)
        abort(); /* out of memory, as everywhere */
    *list = longer;
}

struct curl_slist *kube_call_headers(const struct kube_target *target, const struct kube_call_options *options)
{
    const struct kube_config *config = target->config;
    struct curl_slist *list = NULL;
    add_header(&list, "Accept: application/json");
    add_header(&list, "Expect:"); /* no round trip before larger bodies */
    if (target->host_header != NULL)
        add_header(&list, target->host_header);
    if (options->body != NULL) {
        auto_free char *type = mem_printf("Content-Type: %s", options->content_type);
        add_header(&list, type);
    }
    if (options->auth != NULL && options->auth->header != NULL)
        add_header(&list, options->auth->header);
    if (config->impersonate_user != NULL) {
        auto_free char *user = mem_printf("Impersonate-User: %s", config->impersonate_user);
        add_header(&list, user);
    }
    for (size_t i = 0; i < config->impersonate_headers.len; i++)
        add_header(&list, config->impersonate_headers.items[i]);
    return list;
}

void kube_call_headers_free(struct curl_slist *headers)
{
    for (struct curl_slist *item = headers; item != NULL; item = item->next)
        mem_wipe(item->data, strlen(item->data));
    curl_slist_free_all(headers);
}

/* ---- callbacks ---- */

static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg;
    (void)purpose;
    /* close-on-exec from the start: exec plugins are spawned beside */
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    static const struct {
        int level, name, value;
    } settings[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS},
    };
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        (void)setsockopt(fd, settings[i].level, settings[i].name, &settings[i].value, sizeof(int));
    return fd;
}

/* Called when a connection is ready and the request is about to be written. libcurl sends a request a second time when
 * a kept connection dies without a byte of reply. For reads that is welcome; a write may have happened by then, so it
 * ends here and its outcome is looked up. */
static int on_before_request(void *arg, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    (void)remote_ip;
    (void)local_ip;
    (void)remote_port;
    (void)local_port;
    struct kube_call *call = arg;
    if (call->sent && !call->read) {
        call->vetoed = true;
        return CURL_PREREQFUNC_ABORT;
    }
    call->sent = true;
    return CURL_PREREQFUNC_OK;
}

static int64_t parse_retry_after(const char *value)
{
    auto_free char *text = mem_strndup(value, strcspn(value, " \t\r\n"));
    uint64_t seconds;
    /* the other form, a date, is not sent by API servers */
    if (!str_parse_u64(text, &seconds) || seconds > LONGEST_RETRY_AFTER)
        return -1;
    return (int64_t)seconds * CLOCK_SECOND;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
    struct kube_call *call = arg;
    size_t len = size * count;
    static const char retry_after[] = "retry-after:";
    if (len >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        const char *space = memchr(data, ' ', len);
        size_t rest = space != NULL ? len - (size_t)(space - data) : 0;
        call->header_status = 0;
        call->header_retry_after = -1;
        for (size_t i = 1; i < rest && i <= 3 && space[i] >= '0' && space[i] <= '9'; i++)
            call->header_status = call->header_status * 10 + (space[i] - '0');
    } else if (len > sizeof(retry_after) - 1 && strncasecmp(data, retry_after, sizeof(retry_after) - 1) == 0) {
        auto_free char *line = mem_strndup(data, len);
        const char *value = line + sizeof(retry_after) - 1;
        call->header_retry_after = parse_retry_after(value + strspn(value, " \t"));
    } else if ((len == 2 && memcmp(data, "\r\n", 2) == 0) || (len == 1 && data[0] == '\n')) {
        if (call->header_status >= 200)
            kube_call_on_header(call);
    }
    return len;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    return kube_call_on_body(arg, data, size * count);
}

/* ---- set-up ---- */

/* Options that fail can only do so for lack of memory, or because this libcurl lacks what we were built for. */
#define SET(easy, option, value)                                                                                       \
    do {                                                                                                               \
        if (curl_easy_setopt((easy), (option), (value)) != CURLE_OK)                                                   \
            abort();                                                                                                   \
    } while (0)

static void set_blob(CURL *easy, CURLoption option, const char *text)
{
    struct curl_blob blob = {.data = (void *)(uintptr_t)text, .len = strlen(text), .flags = CURL_BLOB_NOCOPY};
    if (curl_easy_setopt(easy, option, &blob) != CURLE_OK)
        abort();
}

/* An idle connection then holds no record buffers: some 34 KiB less for each of them. */
static CURLcode on_ssl_context(CURL *easy, void *context, void *arg)
{
    (void)easy, (void)arg;
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    return CURLE_OK;
}

static void setup_tls(CURL *easy, const struct kube_call *call, const struct kube_config *config)
{
    SET(easy, CURLOPT_SSL_CTX_FUNCTION, on_ssl_context);
    SET(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(easy, CURLOPT_SSL_VERIFYPEER, config->insecure ? 0L : 1L);
    SET(easy, CURLOPT_SSL_VERIFYHOST, config->insecure ? 0L : 2L);
    /* With authorities of our own the system's must not be trusted besides. Without, the system's one file is enough:
     * only then libcurl reads it once for all connections and not, megabytes each time, for every one. */
    if (config->ca_data != NULL || config->ca_file != NULL || curl_version_info(CURLVERSION_NOW)->cainfo != NULL)
        SET(easy, CURLOPT_CAPATH, NULL);
    if (config->ca_data != NULL)
        set_blob(easy, CURLOPT_CAINFO_BLOB, config->ca_data);
    else if (config->ca_file != NULL)
        SET(easy, CURLOPT_CAINFO, config->ca_file);
    SET(easy, CURLOPT_CA_CACHE_TIMEOUT, 60L); /* a rotated authority file is used within a minute */
    if (call->auth != NULL && call->auth->certificate != NULL && call->auth->key != NULL) {
        SET(easy, CURLOPT_SSLCERTTYPE, "PEM");
        set_blob(easy, CURLOPT_SSLCERT_BLOB, call->auth->certificate);
        SET(easy, CURLOPT_SSLKEYTYPE, "PEM");
        set_blob(easy, CURLOPT_SSLKEY_BLOB, call->auth->key);
    }
}

static void setup_connection(CURL *easy, const struct kube_target *target)
{
    SET(easy, CURLOPT_NOSIGNAL, 1L);
    SET(easy, CURLOPT_QUICK_EXIT, 1L); /* a cancelled call does not make the io thread wait for a slow name server */
    SET(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    SET(easy, CURLOPT_HTTP_VERSION, target->http_version);
    SET(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    SET(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    SET(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (target->proxy != NULL)
        SET(easy, CURLOPT_PROXY, target->proxy);
    if (target->config->proxy_url != NULL)
        SET(easy, CURLOPT_NOPROXY, ""); /* an explicit proxy is not subject to $NO_PROXY */
    if (target->connect_list != NULL)
        SET(easy, CURLOPT_CONNECT_TO, target->connect_list);
    SET(easy, CURLOPT_BUFFERSIZE, BUFFER_SIZE);
    SET(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_SIZE);
}

void kube_call_setup(CURL *easy, struct kube_call *call, const struct kube_target *target)
{
    setup_connection(easy, target);
    setup_tls(easy, call, target->config);
    SET(easy, CURLOPT_URL, call->url);
    SET(easy, CURLOPT_PATH_AS_IS, 1L);
    SET(easy, CURLOPT_USERAGENT, target->user_agent);
    SET(easy, CURLOPT_HTTPHEADER, call->headers);
    if (call->body != NULL) {
        SET(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
        SET(easy, CURLOPT_POSTFIELDS, call->body);
    }
    SET(easy, CURLOPT_CUSTOMREQUEST, call->method);
    SET(easy, CURLOPT_ERRORBUFFER, call->error);
    SET(easy, CURLOPT_PRIVATE, call);
    SET(easy, CURLOPT_PREREQFUNCTION, on_before_request);
    SET(easy, CURLOPT_PREREQDATA, call);
    SET(easy, CURLOPT_HEADERFUNCTION, on_header);
    SET(easy, CURLOPT_HEADERDATA, call);
    SET(easy, CURLOPT_WRITEFUNCTION, on_body);
    SET(easy, CURLOPT_WRITEDATA, call);
}

bool kube_call_explain(CURLcode code, const struct kube_call *call, char *text, size_t size)
{
    static const CURLcode permanent[] = {CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM,
                                         CURLE_SSL_CACERT_BADFILE,       CURLE_SSL_CIPHER,
                                         CURLE_SSL_ISSUER_ERROR,         CURLE_URL_MALFORMAT};
    const char *detail = call->error[0] != '\0' ? call->error : curl_easy_strerror(code);
    if (call->too_large)
        snprintf(text, size, "the reply is larger than %zu bytes", call->buffer_limit);
    else if (call->vetoed)
        snprintf(text, size, "the connection broke before the server answered");
    else if (code == CURLE_SSL_CONNECT_ERROR)
        snprintf(text, size, "TLS handshake failed: %s", detail); /* OpenSSL's own words do not say that */
    else
        snprintf(text, size, "%s", detail);
    bool hopeless = call->too_large;
    for (size_t i = 0; i < ARRAY_LEN(permanent) && !hopeless; i++)
        hopeless = code == permanent[i];
    return hopeless;
}
