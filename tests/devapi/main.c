/* SPDX-License-Identifier: Apache-2.0 */
/* berth-devapi: an in-memory Kubernetes API server for tests. */
#include "tests/devapi/faults.h"
#include "tests/devapi/http.h"

#include "lib/base/file.h"
#include "lib/base/flag.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *listen, *kubeconfig, *serve, *token;
    bool protection, default_class;
    struct strv hide, faults;
    int64_t history, journal, bookmark_interval;
    struct flag_log log;
};

#define AT(member) .offset = offsetof(struct options, member)
static const struct flag flags[] = {
    {.name = "listen",
     .type = FLAG_STRING,
     .default_value = "127.0.0.1:0",
     .group = "Server",
     AT(listen),
     .help = "Address and port; port 0 is any free one."},
    {.name = "kubeconfig-out",
     .type = FLAG_STRING,
     .group = "Server",
     AT(kubeconfig),
     .help = "File to write a kubeconfig to once requests are served."},
    {.name = "token",
     .type = FLAG_STRING,
     .group = "Server",
     AT(token),
     .help = "Bearer token that clients must send; everybody may come in without it."},
    {.name = "serve",
     .type = FLAG_STRING,
     .default_value = "1.36",
     .group = "API",
     AT(serve),
     .help = "Kubernetes version whose APIs and rules are served: 1.20 to 1.36."},
    {.name = "hide",
     .type = FLAG_LIST,
     .group = "API",
     AT(hide),
     .help = "Group (snapshot.storage.k8s.io) or resource (csistoragecapacities.storage.k8s.io) that is not served."},
    {.name = "protection",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = "API",
     AT(protection),
     .help = "Protection finalizers of claims and volumes, and the controllers that remove them."},
    {.name = "default-class",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = "API",
     AT(default_class),
     .help = "New claims without a class get the default one."},
    {.name = "watch-history",
     .type = FLAG_INT,
     .default_value = "20000",
     .group = "API",
     AT(history),
     .help = "Events kept per kind; a watch or list page that needs older ones gets 410."},
    {.name = "bookmark-interval",
     .type = FLAG_DURATION,
     .default_value = "60s",
     .group = "API",
     AT(bookmark_interval),
     .help = "Time between the bookmarks of a watch that wants them."},
    {.name = "fault",
     .type = FLAG_LIST,
     .group = "Tests",
     AT(faults),
     .help = "A fault as JSON, as it is posted to /devapi/faults."},
    {.name = "journal-size",
     .type = FLAG_INT,
     .default_value = "20000",
     .group = "Tests",
     AT(journal),
     .help = "Requests that the journal remembers."},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {
    .name = "berth-devapi",
    .summary = "An in-memory Kubernetes API server with fault injection, for tests and demonstrations.",
    .usage = "[flags]",
    .flags = flags,
    .count = ARRAY_LEN(flags),
};

static int read_profile(const char *text, int *minor, struct err *err)
{
    int64_t number = 0;
    if (!str_starts(text, "1.") || !str_parse_i64(text + 2, &number) || number < KIND_OLDEST_MINOR ||
        number > KIND_NEWEST_MINOR)
        return err_set(err, ERR_INVALID, "--serve: \"%s\" is none of 1.%d to 1.%d", text, KIND_OLDEST_MINOR,
                       KIND_NEWEST_MINOR);
    *minor = (int)number;
    return 0;
}

static int add_faults(struct server *server, const struct strv *specs, struct err *err)
{
    for (size_t i = 0; i < specs->len; i++) {
        json_error_t error;
        json_t *spec = json_loads(specs->items[i], 0, &error);
        bool good = spec != NULL && faults_add(server->faults, spec, err) != 0;
        if (spec == NULL)
            err_set(err, ERR_INVALID, "%s", error.text);
        json_decref(spec);
        if (!good)
            return err_wrap(err, "--fault %s", specs->items[i]);
    }
    return 0;
}

static int write_kubeconfig(const char *path, const char *url, const char *token, struct err *err)
{
    auto_str struct str text = {0};
    str_addf(&text,
             "apiVersion: v1\nkind: Config\n"
             "clusters:\n- name: devapi\n  cluster:\n    server: %s\n"
             "users:\n- name: devapi\n  user: {",
             url);
    if (!str_empty(token))
        str_addf(&text, "token: \"%s\"", token);
    str_add(&text, "}\ncontexts:\n- name: devapi\n  context:\n    cluster: devapi\n    user: devapi\n"
                   "    namespace: default\ncurrent-context: devapi\n");
    return file_write_atomic(path, text.data, text.len, 0600, err);
}

static int run(const struct options *options, struct server *server, struct stop *stop, struct err *err)
{
    if (add_faults(server, &options->faults, err) != 0)
        return -1;
    struct http *http = http_new(server, options->listen, err);
    if (http == NULL)
        return -1;
    int result = 0;
    if (!str_empty(options->kubeconfig))
        result = write_kubeconfig(options->kubeconfig, http_url(http), options->token, err);
    if (result == 0) {
        log_info("Serving", kv_str("url", http_url(http)), kv_str("version", options->serve));
        http_run(http, stop_fd(stop));
    }
    http_free(http);
    return result;
}

/* Trees are built and torn down all the time; with malloc's per-thread cache as small as it is by default, a third of
 * all time goes into it. The cache can only be enlarged from the environment at start, so we start once more. */
static void enlarge_malloc_cache(char **argv)
{
    if (getenv("GLIBC_TUNABLES") == NULL && setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=2000", 1) == 0)
        (void)execv("/proc/self/exe", argv); /* when that fails we are merely slower */
}

int main(int argc, char **argv)
{
    enlarge_malloc_cache(argv);
    auto_err struct err err = {0};
    struct options options;
    enum flag_result parsed = flag_parse(&program, argc, argv, &options, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    struct server server = {
        .rules = {.protection = options.protection, .default_class = options.default_class},
        .clock = clock_real(),
        .rng = rng_real(),
        .bookmark_interval = options.bookmark_interval,
        .token = options.token,
    };
    if (read_profile(options.serve, &server.rules.minor, &err) != 0) {
        log_error("Bad command line", kv_err(&err));
        return 2;
    }
    server.catalog.minor = server.rules.minor;
    strv_copy(&server.catalog.hidden, &options.hide);
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    server_init(&server, (size_t)options.history, (size_t)options.journal);
    int result = run(&options, &server, stop, &err);
    if (result != 0)
        log_error("Cannot serve", kv_err(&err));
    server_free(&server);
    flag_free(&program, &options);
    return result == 0 ? 0 : 1;
}
