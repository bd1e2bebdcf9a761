/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/run.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/capacity_loop.h"
#include "provisioner/claims.h"
#include "provisioner/driver.h"
#include "provisioner/election.h"
#include "provisioner/intent.h"
#include "provisioner/lookup.h"
#include "provisioner/node.h"
#include "provisioner/pending.h"
#include "provisioner/protect.h"
#include "provisioner/provisioner.h"
#include "provisioner/save.h"
#include "provisioner/volumes.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define RESYNC_INTERVAL (15 * 60 * CLOCK_SECOND) /* as upstream's library */
#define BURST 32
/* Short requests at once; each connection keeps some 100 KiB. At 10 ms a request, 8 are 800 a second. */
#define CONNECTIONS 8
#define RECORD_CONNECTIONS 4
#define DEFAULT_QPS 5
#define DEFAULT_BURST 10
#define EVENTS_DRAIN CLOCK_SECOND

/* Everything that lives as long as the program, but is nobody else's business. */
struct program {
    struct provisioner provisioner;
    struct driver_watch driver;
    struct election election;
    char *identity, *event_source, *user_agent;
    struct kube_workers *claim_workers, *volume_workers;
    pthread_t resync;
    bool resyncing;
};

void provisioner_die(struct provisioner *provisioner, const char *reason)
{
    log_error(reason);
    /* only what kubelet made is written to */
    int fd = open(provisioner->options->termination_log, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t written = write(fd, reason, strlen(reason));
        (void)written;
    }
    _exit(1);
}

struct csi_call_options provisioner_call_options(struct provisioner *provisioner)
{
    return (struct csi_call_options){.timeout_ns = provisioner->options->timeout,
                                     .wait_for_ready = !provisioner->options->exit_on_driver_loss,
                                     .cancel = provisioner->settings->gate_release_leader ? NULL : provisioner->stop};
}

static int make_client(struct program *program, double qps, int64_t burst, size_t connections,
                       struct kube_client **client, struct err *err)
{
    struct provisioner *provisioner = &program->provisioner;
    struct kube_client_options options = {
        .user_agent = program->user_agent,
        .qps = qps != 0 ? qps : DEFAULT_QPS, /* 0 is the default and a negative number no limit, as with client-go */
        .burst = burst != 0 ? burst : DEFAULT_BURST,
        .max_connections = connections,
        .clock = provisioner->clock,
        .rng = provisioner->rng,
        /* with the gate, running work is awaited and may still write */
        .stop = provisioner->settings->gate_release_leader ? NULL : provisioner->stop,
    };
    return kube_client_new(provisioner->kube_config, &options, client, err);
}

static int connect_to_cluster(struct program *program, struct err *err)
{
    struct provisioner *provisioner = &program->provisioner;
    const struct options *options = provisioner->options;
    struct kube_config_options config = {
        .kubeconfig = options->kubeconfig, .master = options->master, .env_wins = true};
    program->user_agent = kube_user_agent("berth-provisioner");
    if (kube_config_load(&config, &provisioner->kube_config, err) < 0 ||
        make_client(program, options->qps, options->burst, CONNECTIONS, &provisioner->client, err) < 0 ||
        make_client(program, options->qps, options->burst, RECORD_CONNECTIONS, &provisioner->record_client, err) < 0)
        return -1;
    if (options->enable_capacity &&
        make_client(program, options->capacity_qps, options->capacity_burst, 2, &provisioner->capacity_client, err) < 0)
        return -1;
    return options->leader_election ? make_client(program, -1, 0, 2, &provisioner->leader_client, err) : 0;
}

/* "<unix milliseconds>-<random>-<driver>", with the node's name at the end in a node deployment. */
static char *make_identity(struct provisioner *provisioner)
{
    const struct provision_config *config = &provisioner->config;
    long long now = (long long)(clock_wall(provisioner->clock) / CLOCK_MS);
    unsigned long long random = (unsigned long long)rng_below(provisioner->rng, 10000);
    if (config->node_deployment)
        return mem_printf("%lld-%llu-%s-%s", now, random, config->driver_name, config->node_name);
    return mem_printf("%lld-%llu-%s", now, random, config->driver_name);
}

static int configure(struct program *program, struct err *err)
{
    struct provisioner *provisioner = &program->provisioner;
    struct provision_config *config = &provisioner->config;
    if (config->gate_attributes_class && !provisioner->settings->attributes_class_was_set) {
        const struct kube_kind *kind = &kube_kind_attributes_class;
        if (kube_discover(provisioner->client, kind->group, kind->version, kind->plural, &config->gate_attributes_class,
                          err) < 0)
            return err_wrap(err, "look for the VolumeAttributesClass API");
        if (!config->gate_attributes_class)
            log_info("The cluster has no VolumeAttributesClass API, the feature is off");
    }
    config->identity = program->identity = make_identity(provisioner);
    lookup_init(provisioner);
    return 0;
}

static void start_events(struct program *program)
{
    struct provisioner *provisioner = &program->provisioner;
    char host[HOST_NAME_MAX + 1] = "", uuid[RNG_UUID_SIZE];
    gethostname(host, sizeof(host) - 1);
    program->event_source =
        mem_printf("%s_%s_%s", provisioner->config.driver_name, host, rng_uuid(provisioner->rng, uuid));
    provisioner->events = kube_events_new(&(struct kube_events_options){.client = provisioner->client,
                                                                        .component = program->event_source,
                                                                        .clock = provisioner->clock,
                                                                        .rng = provisioner->rng});
}

static void collect(struct metrics *metrics, void *arg)
{
    struct provisioner *provisioner = arg;
    metric_set(metrics, &telemetry_pending_claims, (double)pending_len(provisioner->pending), NULL);
    metric_set(metrics, &telemetry_intents, (double)intents_len(provisioner->intents), NULL);
}

static int start_http(struct program *program, struct err *err)
{
    struct provisioner *provisioner = &program->provisioner;
    const struct options *options = provisioner->options;
    const char *address = str_empty(options->http_endpoint) ? options->metrics_address : options->http_endpoint;
    observe_http_add_check(provisioner->http, OBSERVE_READYZ, "csi-driver", driver_check, provisioner);
    metrics_on_scrape(provisioner->telemetry.metrics, collect, provisioner);
    return str_empty(address) ? 0 : observe_http_start(provisioner->http, address, err);
}

static int prepare(struct program *program, struct err *err)
{
    struct provisioner *provisioner = &program->provisioner;
    const struct options *options = provisioner->options;
    struct kube_queue_options queue = {.name = "claims",
                                       .base_delay = options->retry_interval_start,
                                       .max_delay = options->retry_interval_max,
                                       .clock = provisioner->clock};
    provisioner->claims = telemetry_queue_new(&provisioner->telemetry, &queue);
    queue.name = "volumes";
    provisioner->volumes = telemetry_queue_new(&provisioner->telemetry, &queue);
    provisioner->pending = pending_new(provisioner->clock);
    provisioner->intents = intents_start(provisioner);
    provisioner->saver = saver_start(provisioner);
    provisioner->protector = protect_new(provisioner);
    if (options->node_deployment)
        provisioner->race = node_race_new(provisioner);
    if (options->enable_capacity && !provisioner->config.capabilities.get_capacity)
        log_warn("The CSI driver has no GET_CAPACITY capability: no capacity objects are kept");
    else if (options->enable_capacity && capacity_new(provisioner, &provisioner->capacity, err) < 0)
        return -1;
    return informers_prepare(provisioner, err);
}

void provisioner_worked(struct provisioner *provisioner)
{
    if (atomic_fetch_add(&provisioner->worked, 1) < BURST || kube_queue_len(provisioner->claims) > 0 ||
        kube_queue_len(provisioner->volumes) > 0)
        return;
    atomic_store(&provisioner->worked, 0);
    mem_trim();
}

static void *resync_main(void *arg)
{
    struct provisioner *provisioner = arg;
    while (!stop_sleep(provisioner->stop, provisioner->clock, RESYNC_INTERVAL))
        informers_resync(provisioner);
    return NULL;
}

/* As the leader, or alone. */
static int work(struct program *program, struct err *err)
{
    struct provisioner *provisioner = &program->provisioner;
    if (informers_start(provisioner, err) < 0 || intents_load(provisioner, err) < 0 ||
        (provisioner->capacity != NULL && capacity_start(provisioner->capacity, err) < 0))
        return -1;
    protect_start(provisioner->protector);
    size_t threads = (size_t)provisioner->options->worker_threads;
    program->claim_workers = kube_workers_start(provisioner->claims, threads, "claims", claims_work, provisioner);
    program->volume_workers = kube_workers_start(provisioner->volumes, threads, "volumes", volumes_work, provisioner);
    program->resync = thread_start("resync", resync_main, provisioner);
    program->resyncing = true;
    log_info("Started", kv_str("driver", provisioner->config.driver_name),
             kv_str("identity", provisioner->config.identity));
    stop_wait_until(provisioner->stop, clock_real(), CLOCK_NEVER);
    return 0;
}

static int run(struct program *program, struct err *err)
{
    struct provisioner *provisioner = &program->provisioner;
    if (connect_to_cluster(program, err) < 0 || driver_connect(provisioner, &program->driver, err) < 0 ||
        configure(program, err) < 0)
        return -1;
    start_events(program);
    if (election_find_namespace(provisioner, err) < 0 || prepare(program, err) < 0 || start_http(program, err) < 0)
        return -1;
    if (provisioner->options->leader_election && election_win(provisioner, &program->election, err) < 0)
        return -1;
    return work(program, err);
}

static void end(struct program *program)
{
    struct provisioner *provisioner = &program->provisioner;
    stop_request(provisioner->stop); /* also after a failed start */
    if (provisioner->claims != NULL)
        kube_queue_shut_down(provisioner->claims);
    if (provisioner->volumes != NULL)
        kube_queue_shut_down(provisioner->volumes);
    kube_workers_join(program->claim_workers);
    kube_workers_join(program->volume_workers);
    if (program->resyncing)
        thread_join(program->resync);
    observe_http_free(provisioner->http); /* its checks look at what goes now */
    capacity_stop(provisioner->capacity);
    protect_stop(provisioner->protector);
    saver_stop(provisioner->saver);
    intents_stop(provisioner->intents);
    election_end(provisioner, &program->election);
    informers_free(&provisioner->informers);
    node_race_free(provisioner->race);
    pending_free(provisioner->pending);
    if (provisioner->events != NULL)
        kube_events_free(provisioner->events, EVENTS_DRAIN);
    if (provisioner->driver != NULL)
        driver_close(provisioner, &program->driver);
    telemetry_free(&provisioner->telemetry);
    struct kube_client *clients[] = {provisioner->client, provisioner->record_client, provisioner->capacity_client,
                                     provisioner->leader_client};
    for (size_t i = 0; i < ARRAY_LEN(clients); i++)
        if (clients[i] != NULL)
            kube_client_free(clients[i]);
    if (provisioner->kube_config != NULL)
        kube_config_free(provisioner->kube_config);
    struct strv *lists[] = {&provisioner->config.pass_claim_annotations, &provisioner->config.pass_claim_labels,
                            &provisioner->config.pass_namespace_labels, &provisioner->config.copy_claim_annotations,
                            &provisioner->config.copy_claim_labels};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        strv_free(lists[i]);
    free(program->identity);
    free(program->event_source);
    free(program->user_agent);
    free(provisioner->namespace_);
}

int provisioner_run(const struct options *options, struct settings *settings, struct stop *stop, struct err *err)
{
    struct program program = {
        .provisioner = {
            .options = options, .settings = settings, .clock = clock_real(), .rng = rng_real(), .stop = stop}};
    struct provisioner *provisioner = &program.provisioner;
    options_apply(options, settings, &provisioner->config);
    provisioner->config.node_name = getenv("NODE_NAME");
    if (options->node_deployment && str_empty(provisioner->config.node_name))
        return err_set(err, ERR_INVALID, "The NODE_NAME environment variable must be set when using --node-deployment");
    telemetry_init(&provisioner->telemetry);
    provisioner->http = observe_http_new(provisioner->telemetry.metrics, options->metrics_path);
    int result = run(&program, err);
    if (result < 0 && err_is(err, ERR_CANCELLED) && stop_requested(stop)) {
        err_clear(err); /* told to stop while starting */
        result = 0;
    }
    end(&program);
    return result;
}
