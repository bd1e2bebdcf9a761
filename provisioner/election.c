/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/election.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#define NAMESPACE_FILE "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
#define EVENTS_DRAIN CLOCK_SECOND

int election_find_namespace(struct provisioner *provisioner, struct err *err)
{
    const char *given = provisioner->options->leader_namespace;
    const char *from_env = getenv("POD_NAMESPACE");
    auto_free char *text = NULL;
    (void)err;
    if (str_empty(given))
        given = from_env;
    if (str_empty(given) && file_read(NAMESPACE_FILE, 4096, &text, NULL, NULL) == 0) {
        text[strcspn(text, " \t\r\n")] = '\0';
        given = text;
    }
    provisioner->namespace_ = mem_strdup(str_empty(given) ? "default" : given);
    return 0;
}

static void on_lost(void *arg)
{
    struct election *election = arg;
    /* stopping gives the lease up too, and is no loss */
    if (!stop_requested(election->provisioner->stop))
        provisioner_die(election->provisioner, "Lost the leader election, exiting");
}

static void collect(struct metrics *metrics, void *arg)
{
    struct election *election = arg;
    struct kube_leader *leader = election->provisioner->leader;
    const char *labels[] = {election->name};
    if (leader == NULL)
        return;
    metric_set(metrics, &telemetry_leader_status, kube_leader_leading(leader) ? 1 : 0, labels);
    uint64_t slow = kube_leader_slow_renewals(leader);
    metric_add(metrics, &telemetry_leader_slowpath, (double)(slow - election->slow_renewals), labels);
    election->slow_renewals = slow;
}

int election_win(struct provisioner *provisioner, struct election *election, struct err *err)
{
    const struct options *options = provisioner->options;
    char host[HOST_NAME_MAX + 1] = "";
    if (gethostname(host, sizeof(host) - 1) < 0 || host[0] == '\0')
        return err_set(err, ERR_INTERNAL, "leader election needs a host name");
    election->provisioner = provisioner;
    election->name = kube_leader_sanitize_name(provisioner->config.driver_name);
    election->identity = kube_leader_sanitize_name(host);
    election->source = mem_printf("%s/%s", election->name, election->identity);
    election->events = kube_events_new(&(struct kube_events_options){.client = provisioner->leader_client,
                                                                     .component = election->source,
                                                                     .clock = provisioner->clock,
                                                                     .rng = provisioner->rng});
    struct kube_leader_options leader = {
        .client = provisioner->leader_client,
        .namespace_ = provisioner->namespace_,
        .name = election->name,
        .identity = election->identity,
        .lease_duration = options->lease_duration,
        .renew_deadline = options->renew_deadline,
        .retry_period = options->retry_period,
        .labels = provisioner->settings->leader_labels,
        .label_count = provisioner->settings->leader_label_count,
        .release_on_stop = provisioner->settings->gate_release_leader,
        .events = election->events,
        .clock = provisioner->clock,
        .rng = provisioner->rng,
        .on_lost = on_lost,
        .on_lost_arg = election,
    };
    if (kube_leader_start(&leader, &provisioner->leader, err) < 0)
        return -1;
    metrics_on_scrape(provisioner->telemetry.metrics, collect, election);
    if (!str_empty(options->http_endpoint))
        observe_http_add_check(provisioner->http, OBSERVE_LEADER_ELECTION, "leader-election", kube_leader_check,
                               provisioner->leader);
    return kube_leader_wait(provisioner->leader, provisioner->stop, err);
}

void election_end(struct provisioner *provisioner, struct election *election)
{
    if (provisioner->leader != NULL)
        kube_leader_free(provisioner->leader);
    provisioner->leader = NULL;
    if (election->events != NULL)
        kube_events_free(election->events, EVENTS_DRAIN);
    free(election->name);
    free(election->identity);
    free(election->source);
    *election = (struct election){0};
}
