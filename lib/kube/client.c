/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/flag.h"
#include "lib/base/mem.h"
#include "lib/kube/client_private.h"

#include <string.h>
#include <sys/utsname.h>

#define DEFAULT_TIMEOUT (30 * CLOCK_SECOND)

/* ---- rate limit ---- */

void kube_limiter_init(struct kube_limiter *limiter, double qps, int64_t burst, int64_t now)
{
    *limiter = (struct kube_limiter){.qps = qps, .burst = burst > 0 ? (double)burst : 1, .updated = now};
    limiter->tokens = limiter->burst;
    pthread_mutex_init(&limiter->mutex, NULL);
}

void kube_limiter_destroy(struct kube_limiter *limiter)
{
    pthread_mutex_destroy(&limiter->mutex);
}

int64_t kube_limiter_reserve(struct kube_limiter *limiter, int64_t now, int64_t deadline)
{
    if (limiter->qps <= 0)
        return now;
    pthread_mutex_lock(&limiter->mutex);
    if (now > limiter->updated) {
        limiter->tokens += (double)(now - limiter->updated) / (double)CLOCK_SECOND * limiter->qps;
        limiter->updated = now;
    }
    if (limiter->tokens > limiter->burst)
        limiter->tokens = limiter->burst;
    double after = limiter->tokens - 1;
    double wait = after >= 0 ? 0 : -after / limiter->qps * (double)CLOCK_SECOND;
    int64_t start = -1;
    if (deadline == CLOCK_NEVER || wait <= (double)(deadline - now)) {
        limiter->tokens = after;
        start = now + (int64_t)wait;
    }
    pthread_mutex_unlock(&limiter->mutex);
    return start;
}

/* ---- life ---- */

int kube_client_watch_io(struct kube_client *client, struct kube_io **io, struct err *err)
{
    struct kube_io_options options = {.user_agent = client->user_agent, .clock = client->clock};
    int result = 0;
    pthread_mutex_lock(&client->auth_mutex);
    struct kube_io *watches = atomic_load(&client->watches);
    if (watches == NULL && (result = kube_io_new(client->config, &options, &watches, err)) == 0)
        atomic_store(&client->watches, watches);
    pthread_mutex_unlock(&client->auth_mutex);
    /* a stop that came just before did not see it */
    if (result == 0 && kube_io_cancelled(client->io))
        kube_io_cancel_all(watches);
    *io = watches;
    return result;
}

static void on_stop(void *arg)
{
    struct kube_client *client = arg;
    kube_io_cancel_all(client->io);
    struct kube_io *watches = atomic_load(&client->watches);
    if (watches != NULL)
        kube_io_cancel_all(watches);
}

int kube_client_new(struct kube_config *config, const struct kube_client_options *options, struct kube_client **result,
                    struct err *err)
{
    *result = NULL;
    struct kube_client *client = mem_new(struct kube_client);
    client->config = config;
    client->clock = options->clock != NULL ? options->clock : clock_real();
    client->rng = options->rng != NULL ? options->rng : rng_real();
    client->stop = options->stop;
    client->request_timeout = options->request_timeout > 0 ? options->request_timeout : DEFAULT_TIMEOUT;
    struct kube_io_options io_options = {
        .user_agent = options->user_agent, .max_connections = options->max_connections, .clock = client->clock};
    client->user_agent = mem_strdup(options->user_agent);
    if (kube_io_new(config, &io_options, &client->io, err) != 0) {
        free(client->user_agent);
        free(client);
        return -1;
    }
    kube_limiter_init(&client->limiter, options->qps, options->burst, clock_mono(client->clock));
    pthread_mutex_init(&client->auth_mutex, NULL);
    if (client->stop != NULL)
        stop_on(client->stop, on_stop, client);
    *result = client;
    return 0;
}

void kube_client_free(struct kube_client *client)
{
    if (client == NULL)
        return;
    if (client->stop != NULL)
        stop_off(client->stop, on_stop, client);
    kube_io_free(atomic_load(&client->watches));
    kube_io_free(client->io);
    free(client->user_agent);
    kube_auth_unref(client->auth);
    kube_limiter_destroy(&client->limiter);
    pthread_mutex_destroy(&client->auth_mutex);
    free(client);
}

char *kube_user_agent(const char *program)
{
    static const struct {
        const char *machine, *go;
    } names[] = {{"x86_64", "amd64"}, {"aarch64", "arm64"}, {"armv7l", "arm"}, {"i686", "386"}};
    struct utsname system = {0};
    const char *machine = uname(&system) == 0 ? system.machine : "unknown";
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(machine, names[i].machine) == 0)
            return mem_printf("%s/v%s (linux/%s)", program, berth_version(), names[i].go);
    return mem_printf("%s/v%s (linux/%s)", program, berth_version(), machine);
}

/* ---- raw requests ---- */

void kube_response_clear(struct kube_response *response)
{
    if (response->body != NULL)
        mem_wipe(response->body, response->len);
    free(response->body);
    *response = (struct kube_response){0};
}

int kube_request(struct kube_client *client, const char *method, const char *path_and_query, const char *content_type,
                 const char *body, struct kube_response *response, struct err *err)
{
    *response = (struct kube_response){0};
    if (path_and_query == NULL || path_and_query[0] != '/')
        return err_set(err, ERR_INVALID, "%s: a path that begins with / is wanted", method);
    for (const char *c = path_and_query; *c != '\0'; c++)
        if (*c <= 0x20 || *c == 0x7f)
            return err_set(err, ERR_INVALID, "%s: the path contains a blank or control character", method);
    struct kube_run run = {.method = method,
                           .path = path_and_query,
                           .content_type = content_type != NULL ? content_type : "application/json",
                           .body = body,
                           .deadline = kube_client_deadline(client)};
    auto_reply struct kube_reply reply = {0};
    if (kube_run(client, &run, &reply, err) != 0)
        return err_wrap(err, "%s %s", method, path_and_query);
    response->status = reply.status;
    response->len = reply.body.len;
    response->body = str_take(&reply.body);
    return 0;
}

/* ---- discovery ---- */

/* GET of a JSON document; *json NULL = 404. */
static int get_document(struct kube_client *client, const char *path, json_t **json, struct err *err)
{
    struct kube_run run = {.method = "GET", .path = path, .deadline = kube_client_deadline(client)};
    auto_reply struct kube_reply reply = {0};
    *json = NULL;
    if (kube_run(client, &run, &reply, err) != 0)
        return err_wrap(err, "GET %s", path);
    if (reply.status == 404)
        return 0;
    if (reply.status != 200) {
        kube_error_set(err, reply.status, str_text(&reply.body), reply.body.len);
        return err_wrap(err, "GET %s", path);
    }
    *json = json_loadb(str_text(&reply.body), reply.body.len, JSON_ALLOW_NUL, NULL);
    if (*json == NULL)
        return err_set(err, ERR_UNAVAILABLE, "GET %s: the reply is no JSON", path);
    return 0;
}

int kube_discover(struct kube_client *client, const char *group, const char *version, const char *plural, bool *served,
                  struct err *err)
{
    auto_free char *path =
        str_empty(group) ? mem_printf("/api/%s", version) : mem_printf("/apis/%s/%s", group, version);
    json_t *document;
    *served = false;
    if (get_document(client, path, &document, err) != 0)
        return -1;
    size_t index;
    json_t *resource;
    json_array_foreach (json_object_get(document, "resources"), index, resource)
        *served = *served || str_eq(json_string_value(json_object_get(resource, "name")), plural);
    json_decref(document);
    return 0;
}

int kube_server_version(struct kube_client *client, char **version, struct err *err)
{
    json_t *document;
    *version = NULL;
    if (get_document(client, "/version", &document, err) != 0)
        return -1;
    const char *text = json_string_value(json_object_get(document, "gitVersion"));
    if (text != NULL)
        *version = mem_strdup(text);
    json_decref(document);
    return *version != NULL ? 0 : err_set(err, ERR_UNAVAILABLE, "GET /version: this is no Kubernetes API server");
}
