/* SPDX-License-Identifier: Apache-2.0 */
/* berth-controller: stands in for kube-controller-manager's persistentvolume-binder. */
#include "controller/controller.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/kube/leader.h"
#include "lib/observe/http.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define DRAIN (8 * CLOCK_SECOND)  /* for writes under way, after SIGTERM */
#define EVENTS_DRAIN CLOCK_SECOND /* for what is said of the lease */
#define SERVER_RETRY (2 * CLOCK_SECOND)

struct program {
    struct controller_options options;
    struct stop *stop;   /* from signals, or when the lease is lost: begin nothing new */
    struct stop *abort;  /* end the requests that still run */
    struct stop *done;   /* the orderly end came in time */
    atomic_bool lost;    /* the lease */
    atomic_bool working; /* there may be writes under way */
    struct kube_config *config;
    struct kube_client *client, *event_client, *leader_client;
    struct metrics *metrics;
    struct observe_http *http;
    struct kube_leader *leader;
    struct kube_events *leader_events;
    struct controller *controller;
    pthread_t watchdog;
    bool watching;
};

/* ---- an end in bounded time ---- */
static void *watchdog(void *arg)
{
    struct program *program = arg;
    struct pollfd fd = {.fd = stop_fd(program->stop), .events = POLLIN};
    while (!stop_requested(program->stop))
        poll(&fd, 1, -1);
    if (!atomic_load(&program->working) || !stop_sleep(program->done, clock_real(), DRAIN))
        stop_request(program->abort);
    return NULL;
}

static void on_lost(void *arg)
{
    struct program *program = arg;
    atomic_store(&program->lost, true);
    stop_request(program->abort); /* somebody else may lead: not one more write */
    stop_request(program->stop);
}

/* ---- parts ---- */
static int new_client(struct program *program, double qps, int64_t burst, struct kube_client **client, struct err *err)
{
    auto_free char *agent = kube_user_agent("berth-controller");
    struct kube_client_options options = {.user_agent = agent, .qps = qps, .burst = burst, .stop = program->abort};
    return kube_client_new(program->config, &options, client, err);
}

static int connect_server(struct program *program, struct err *err)
{
    const struct controller_options *options = &program->options;
    struct kube_config_options config = {.kubeconfig = options->kubeconfig, .master = options->master};
    if (kube_config_load(&config, &program->config, err) != 0)
        return -1;
    if (new_client(program, options->api_qps, options->api_burst, &program->client, err) != 0 ||
        new_client(program, options->api_qps, options->api_burst, &program->event_client, err) != 0)
        return -1;
    return options->leader_elect ? new_client(program, 0, 0, &program->leader_client, err) : 0;
}

/* Which release to stand in for. Waits for the API server as long as it takes. */
static int find_release(struct program *program, int *minor, struct err *err)
{
    struct controller_profile profile;
    const char *wanted = program->options.compatibility_version;
    if (!str_empty(wanted)) {
        if (profile_init_from_version(&profile, wanted, err) != 0)
            return err_wrap(err, "--compatibility-version");
        *minor = profile.minor;
        return 0;
    }
    for (;;) {
        auto_free char *version = NULL;
        if (kube_server_version(program->client, &version, err) == 0) {
            if (profile_init_from_version(&profile, version, err) != 0)
                return -1;
            *minor = profile.minor;
            return 0;
        }
        if (stop_requested(program->stop))
            return -1;
        log_warn("The API server does not answer yet", kv_str("server", program->config->server), kv_err(err));
        err_clear(err);
        if (stop_sleep(program->stop, clock_real(), SERVER_RETRY))
            return err_set(err, ERR_CANCELLED, "stopped while waiting for the API server");
    }
}

static int start_http(struct program *program, struct err *err)
{
    const char *endpoint = program->options.http_endpoint;
    if (str_empty(endpoint))
        return 0;
    program->http = observe_http_new(program->metrics, program->options.metrics_path);
    observe_http_add_check(program->http, OBSERVE_READYZ, "stores", controller_check_synced, program->controller);
    if (program->leader != NULL) {
        observe_http_add_check(program->http, OBSERVE_HEALTHZ, "leader-election", kube_leader_check, program->leader);
        observe_http_add_check(program->http, OBSERVE_LEADER_ELECTION, "leader-election", kube_leader_check,
                               program->leader);
    }
    return observe_http_start(program->http, endpoint, err);
}

static void collect_leader(struct metrics *registry, void *arg)
{
    const struct program *program = arg;
    controller_metrics_leader(registry, program->options.lease_name, kube_leader_leading(program->leader),
                              kube_leader_slow_renewals(program->leader));
}

static int start_leader(struct program *program, struct err *err)
{
    const struct controller_options *options = &program->options;
    if (!options->leader_elect)
        return 0;
    char host[256] = "berth-controller", uuid[RNG_UUID_SIZE];
    gethostname(host, sizeof(host) - 1);
    auto_free char *identity = mem_printf("%s_%s", host, rng_uuid(rng_real(), uuid));
    program->leader_events = kube_events_new(
        &(struct kube_events_options){.client = program->event_client, .component = "berth-controller"});
    struct kube_leader_options leader = {
        .client = program->leader_client,
        .namespace_ = options->lease_namespace,
        .name = options->lease_name,
        .identity = identity,
        .lease_duration = options->lease_duration,
        .renew_deadline = options->renew_deadline,
        .retry_period = options->retry_period,
        .release_on_stop = true,
        .events = program->leader_events,
        .on_lost = on_lost,
        .on_lost_arg = program,
    };
    if (kube_leader_start(&leader, &program->leader, err) != 0)
        return -1;
    metrics_on_scrape(program->metrics, collect_leader, program);
    return 0;
}

static int start(struct program *program, struct err *err)
{
    if (controller_options_check(&program->options, err) != 0 || connect_server(program, err) != 0)
        return -1;
    int minor = 0;
    if (find_release(program, &minor, err) != 0)
        return -1;
    program->metrics = metrics_new();
    metrics_register_process(program->metrics);
    struct controller_config config = {.options = &program->options,
                                       .client = program->client,
                                       .event_client = program->event_client,
                                       .registry = program->metrics,
                                       .stop = program->stop,
                                       .minor = minor};
    if (controller_new(&config, &program->controller, err) != 0)
        return -1;
    return start_leader(program, err) != 0 || start_http(program, err) != 0 ? -1 : 0;
}

static int run(struct program *program, struct err *err)
{
    if (start(program, err) != 0)
        return -1;
    atomic_store(&program->working, true);
    if (program->leader != NULL && kube_leader_wait(program->leader, program->stop, err) != 0)
        return -1;
    return controller_run(program->controller, err);
}

static void end(struct program *program)
{
    stop_request(program->stop); /* long operations look at it */
    observe_http_free(program->http);
    controller_free(program->controller);
    kube_leader_free(program->leader); /* gives the lease back, after the last write */
    kube_events_free(program->leader_events, EVENTS_DRAIN);
    stop_request(program->done);
    if (program->watching)
        thread_join(program->watchdog);
    kube_client_free(program->client);
    kube_client_free(program->event_client);
    kube_client_free(program->leader_client);
    kube_config_free(program->config);
    metrics_free(program->metrics);
    stop_free(program->done);
    stop_free(program->abort);
    flag_free(&controller_flags, &program->options);
}

int main(int argc, char **argv)
{
    thread_limit_memory(argv);
    observe_drop_tls();
    struct program program = {0};
    enum flag_result parsed = flag_parse(&controller_flags, argc, argv, &program.options, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    auto_err struct err err = {0};
    program.stop = stop_new();
    program.abort = stop_new();
    program.done = stop_new();
    stop_on_signals(program.stop);
    program.watchdog = thread_start("watchdog", watchdog, &program);
    program.watching = true;
    log_info("Starting berth-controller", kv_str("version", berth_version()), kv_str("revision", berth_revision()));
    int result = run(&program, &err);
    bool asked = stop_requested(program.stop), lost = atomic_load(&program.lost);
    if (lost)
        log_error("Lost the lease");
    else if (result != 0 && !(asked && err_is(&err, ERR_CANCELLED)))
        log_error("Cannot go on", kv_err(&err));
    bool failed = lost || (result != 0 && !asked);
    end(&program);
    return failed ? 1 : 0;
}
