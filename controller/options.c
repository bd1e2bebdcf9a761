/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/options.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <stddef.h>

#define OPT(field) offsetof(struct controller_options, field)
#define BINDER "Volume binding"
#define RECYCLER "Recycling"
#define CONNECTION "API server"
#define LEADER "Leader election"
#define OBSERVE "Metrics and health"

static const struct flag flags[] = {
    {.name = "kubeconfig",
     .type = FLAG_STRING,
     .default_value = "",
     .group = CONNECTION,
     .help = "Path to a kubeconfig file. Without it the Pod's service account is used.",
     .offset = OPT(kubeconfig)},
    {.name = "master",
     .type = FLAG_STRING,
     .default_value = "",
     .group = CONNECTION,
     .help = "The address of the Kubernetes API server (overrides any value in kubeconfig).",
     .offset = OPT(master)},
    {.name = "kube-api-qps",
     .type = FLAG_DOUBLE,
     .default_value = "20",
     .group = CONNECTION,
     .help = "Requests per second to the API server, watches excepted. 0 or less lifts the limit.",
     .offset = OPT(api_qps)},
    {.name = "kube-api-burst",
     .type = FLAG_INT,
     .default_value = "30",
     .group = CONNECTION,
     .help = "How many requests may be sent at once beyond kube-api-qps.",
     .offset = OPT(api_burst)},
    {.name = "kube-api-content-type",
     .type = FLAG_IGNORED,
     .group = CONNECTION,
     .help = "Accepted for compatibility; requests are always JSON."},
    {.name = "pvclaimbinder-sync-period",
     .type = FLAG_DURATION,
     .default_value = "15s",
     .group = BINDER,
     .help = "The period for syncing persistent volumes and persistent volume claims.",
     .offset = OPT(sync_period)},
    {.name = "enable-dynamic-provisioning",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = BINDER,
     .help = "Enable dynamic provisioning for environments that support it.",
     .offset = OPT(dynamic_provisioning)},
    {.name = "enable-hostpath-provisioner",
     .type = FLAG_BOOL,
     .default_value = "false",
     .group = BINDER,
     .help = "Enable HostPath PV provisioning when running without a cloud provider. For testing and development "
             "only: the directories are made on the machine this controller runs on.",
     .offset = OPT(hostpath_provisioner)},
    {.name = "concurrent-claim-syncs",
     .type = FLAG_INT,
     .default_value = "8",
     .group = BINDER,
     .help =
         "How many claims are written at the same time. Decisions are made one after the other whatever the number.",
     .offset = OPT(claim_workers)},
    {.name = "concurrent-volume-syncs",
     .type = FLAG_INT,
     .default_value = "4",
     .group = BINDER,
     .help = "How many volumes are synced at the same time.",
     .offset = OPT(volume_workers)},
    {.name = "mode",
     .type = FLAG_STRING,
     .default_value = "full",
     .group = BINDER,
     .help = "full: do all of the binder's work. annotate: only tell external provisioners which claims are theirs, "
             "for clusters that keep kube-controller-manager's binder.",
     .offset = OPT(mode_text)},
    {.name = "compatibility-version",
     .type = FLAG_STRING,
     .default_value = "",
     .group = BINDER,
     .help = "Behave as the binder of this Kubernetes release, for example 1.28. Empty: as that of the API server.",
     .offset = OPT(compatibility_version)},
    {.name = "pv-recycler-pod-template-filepath-nfs",
     .type = FLAG_STRING,
     .default_value = "",
     .group = RECYCLER,
     .help = "The file path to a pod definition used as a template for NFS persistent volume recycling.",
     .offset = OPT(nfs.template_file)},
    {.name = "pv-recycler-minimum-timeout-nfs",
     .type = FLAG_INT,
     .default_value = "300",
     .group = RECYCLER,
     .help = "The minimum activeDeadlineSeconds of an NFS recycler pod.",
     .offset = OPT(nfs.minimum_timeout)},
    {.name = "pv-recycler-increment-timeout-nfs",
     .type = FLAG_INT,
     .default_value = "30",
     .group = RECYCLER,
     .help = "The seconds of activeDeadlineSeconds per GiB of an NFS volume; the larger of this and the minimum "
             "counts.",
     .offset = OPT(nfs.increment_timeout)},
    {.name = "pv-recycler-pod-template-filepath-hostpath",
     .type = FLAG_STRING,
     .default_value = "",
     .group = RECYCLER,
     .help = "The file path to a pod definition used as a template for HostPath persistent volume recycling.",
     .offset = OPT(host_path.template_file)},
    {.name = "pv-recycler-minimum-timeout-hostpath",
     .type = FLAG_INT,
     .default_value = "60",
     .group = RECYCLER,
     .help = "The minimum activeDeadlineSeconds of a HostPath recycler pod.",
     .offset = OPT(host_path.minimum_timeout)},
    {.name = "pv-recycler-timeout-increment-hostpath",
     .type = FLAG_INT,
     .default_value = "30",
     .group = RECYCLER,
     .help = "The seconds of activeDeadlineSeconds per GiB of a HostPath volume; the larger of this and the minimum "
             "counts.",
     .offset = OPT(host_path.increment_timeout)},
    {.name = "leader-elect",
     .type = FLAG_BOOL,
     .default_value = "true",
     .group = LEADER,
     .help = "Work only while holding the lease, so that several replicas can stand by.",
     .offset = OPT(leader_elect)},
    {.name = "leader-elect-lease-duration",
     .type = FLAG_DURATION,
     .default_value = "15s",
     .group = LEADER,
     .help = "How long the others wait after the last renewal before they take the lease.",
     .offset = OPT(lease_duration)},
    {.name = "leader-elect-renew-deadline",
     .type = FLAG_DURATION,
     .default_value = "10s",
     .group = LEADER,
     .help = "How long the leader tries to renew before it gives up; less than the lease duration.",
     .offset = OPT(renew_deadline)},
    {.name = "leader-elect-retry-period",
     .type = FLAG_DURATION,
     .default_value = "2s",
     .group = LEADER,
     .help = "How long to wait between tries to get or renew the lease.",
     .offset = OPT(retry_period)},
    {.name = "leader-elect-resource-name",
     .type = FLAG_STRING,
     .default_value = "berth-controller",
     .group = LEADER,
     .help = "The name of the lease.",
     .offset = OPT(lease_name)},
    {.name = "leader-elect-resource-namespace",
     .type = FLAG_STRING,
     .default_value = "kube-system",
     .group = LEADER,
     .help = "The namespace of the lease.",
     .offset = OPT(lease_namespace)},
    {.name = "leader-elect-resource-lock",
     .type = FLAG_IGNORED,
     .group = LEADER,
     .help = "Accepted for compatibility; the lock is always a Lease."},
    {.name = "http-endpoint",
     .type = FLAG_STRING,
     .default_value = "",
     .group = OBSERVE,
     .help = "host:port for /metrics, /healthz and /readyz, for example :8080. Empty: off.",
     .offset = OPT(http_endpoint)},
    {.name = "metrics-path",
     .type = FLAG_STRING,
     .default_value = "/metrics",
     .group = OBSERVE,
     .help = "The path of the metrics.",
     .offset = OPT(metrics_path)},
    LOG_FLAGS(struct controller_options, log),
};
const struct flag_program controller_flags = {
    .name = "berth-controller",
    .summary = "Binds claims to volumes, sends for new ones and reclaims old ones, in place of "
               "kube-controller-manager's persistentvolume-binder.",
    .usage = "[flags]",
    .flags = flags,
    .count = ARRAY_LEN(flags),
};

int controller_options_check(struct controller_options *options, struct err *err)
{
    if (str_eq(options->mode_text, "full"))
        options->mode = MODE_FULL;
    else if (str_eq(options->mode_text, "annotate"))
        options->mode = MODE_ANNOTATE;
    else
        return err_set(err, ERR_INVALID, "--mode=%s: want full or annotate", options->mode_text);
    if (options->sync_period <= 0)
        return err_set(err, ERR_INVALID, "--pvclaimbinder-sync-period must be longer than 0");
    if (options->claim_workers < 1 || options->claim_workers > 256)
        return err_set(err, ERR_INVALID, "--concurrent-claim-syncs must be 1 … 256");
    if (options->volume_workers < 1 || options->volume_workers > 256)
        return err_set(err, ERR_INVALID, "--concurrent-volume-syncs must be 1 … 256");
    const int64_t seconds[] = {options->nfs.minimum_timeout, options->nfs.increment_timeout,
                               options->host_path.minimum_timeout, options->host_path.increment_timeout};
    for (size_t i = 0; i < ARRAY_LEN(seconds); i++)
        if (seconds[i] < 0 || seconds[i] > INT32_MAX)
            return err_set(err, ERR_INVALID, "recycler timeouts must be 0 … %d seconds", INT32_MAX);
    return 0;
}
