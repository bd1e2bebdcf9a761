/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/options.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <stdlib.h>
#include <strings.h>

#define FLAG_(type_, name_, field, default_, group_, help_)                                                            \
    {                                                                                                                  \
        .name = name_, .type = type_, .default_value = default_, .group = group_, .help = help_,                       \
        .offset = offsetof(struct options, field)                                                                      \
    }
#define BOOL(name, field, default_, group, help) FLAG_(FLAG_BOOL, name, field, default_, group, help)
#define INT(name, field, default_, group, help) FLAG_(FLAG_INT, name, field, default_, group, help)
#define REAL(name, field, default_, group, help) FLAG_(FLAG_DOUBLE, name, field, default_, group, help)
#define TEXT(name, field, default_, group, help) FLAG_(FLAG_STRING, name, field, default_, group, help)
#define TIME(name, field, default_, group, help) FLAG_(FLAG_DURATION, name, field, default_, group, help)
#define LIST(name, field, group, help) FLAG_(FLAG_LIST, name, field, NULL, group, help)
#define IGNORED(name_, help_)                                                                                          \
    {                                                                                                                  \
        .name = name_, .type = FLAG_IGNORED, .group = "Accepted for compatibility", .help = help_                      \
    }
#define IGNORED_BOOL(name_, help_)                                                                                     \
    {                                                                                                                  \
        .name = name_, .type = FLAG_IGNORED_BOOL, .group = "Accepted for compatibility", .help = help_                 \
    }
#define KLOG "Logs always go to standard error here."
#define REMOVED "Was removed from csi-provisioner; old manifests still have it."

static const struct flag flags[] = {
    TEXT("master", master, NULL, "Connection", "URL of the API server; replaces the one in the kubeconfig."),
    TEXT("kubeconfig", kubeconfig, NULL, "Connection",
         "Path of a kubeconfig. $KUBECONFIG wins; with neither the Pod's service account is used."),
    TEXT("csi-address", csi_address, "/run/csi/socket", "Connection", "Socket of the CSI driver."),
    TIME("timeout", timeout, "10s", "Connection", "Deadline of each call to the driver."),
    REAL("kube-api-qps", qps, "5", "Connection", "Requests a second to the API server."),
    INT("kube-api-burst", burst, "10", "Connection", "Requests at once to the API server before the limit counts."),
    BOOL("exit-on-driver-loss", exit_on_driver_loss, NULL, "Connection",
         "End when the connection to the driver breaks, as csi-provisioner does, instead of waiting for the driver."),

    TEXT("volume-name-prefix", volume_name_prefix, "pvc", "Provisioning", "Prefix of volume names."),
    INT("volume-name-uuid-length", volume_name_uuid_length, "-1", "Provisioning",
        "Characters of the claim's UID in volume names, without dashes; -1 is the whole UID with dashes."),
    INT("worker-threads", worker_threads, "100", "Provisioning", "Claims and, separately, volumes worked on at once."),
    TIME("retry-interval-start", retry_interval_start, "1s", "Provisioning",
         "Delay after the first failure; doubles with each further one."),
    TIME("retry-interval-max", retry_interval_max, "5m", "Provisioning", "Longest delay between tries."),
    BOOL("extra-create-metadata", extra_create_metadata, NULL, "Provisioning",
         "Pass names of claim, namespace and volume to the driver as parameters."),
    TEXT("default-fstype", default_fstype, NULL, "Provisioning", "File system type for classes that name none."),
    BOOL("controller-publish-readonly", controller_publish_readonly, NULL, "Provisioning",
         "Mark volumes of read-only-many claims as read-only for ControllerPublishVolume."),
    BOOL("prevent-volume-mode-conversion", prevent_volume_mode_conversion, "true", "Provisioning",
         "Refuse to restore a snapshot in another volume mode unless its content object allows it."),
    INT("cloning-protection-threads", cloning_protection_threads, "1", "Provisioning",
        "Workers that take the protection finalizer off source claims."),
    TIME("snapshot-orphan-sweep-interval", snapshot_sweep_interval, "5m", "Provisioning",
         "How often protection finalizers of snapshots that no claim needs are removed; 0 = never."),
    TEXT("feature-gates", feature_gates, NULL, "Provisioning",
         "Name=true|false, comma-separated: Topology, CrossNamespaceVolumeDataSource, VolumeAttributesClass, "
         "ReleaseLeaderElectionOnExit."),

    BOOL("strict-topology", strict_topology, NULL, "Topology",
         "Pass only the selected node's topology for late-binding claims."),
    BOOL("immediate-topology", immediate_topology, "true", "Topology",
         "Pass the cluster's topology for immediate-binding claims whose class has no allowedTopologies."),

    BOOL("enable-capacity", enable_capacity, NULL, "Capacity", "Keep CSIStorageCapacity objects."),
    BOOL("capacity-for-immediate-binding", capacity_for_immediate_binding, NULL, "Capacity",
         "Also for classes with immediate binding."),
    TIME("capacity-poll-interval", capacity_poll_interval, "1m", "Capacity",
         "How often the driver is asked for all capacities; 0 = only after changes."),
    INT("capacity-threads", capacity_threads, "1", "Capacity", "GetCapacity calls at once."),
    INT("capacity-ownerref-level", capacity_ownerref_level, "1", "Capacity",
        "Owner of the objects: -1 none, 0 the Pod, 1 its controller, 2 that one's controller."),
    REAL("kube-api-capacity-qps", capacity_qps, "1", "Capacity", "Requests a second for capacity objects."),
    INT("kube-api-capacity-burst", capacity_burst, "5", "Capacity", "Requests at once for capacity objects."),
    BOOL("capacity-strip-parameters", capacity_strip_parameters, NULL, "Capacity",
         "Leave keys with the prefix csi.storage.k8s.io/ out of GetCapacity's parameters, as CreateVolume does."),

    BOOL("node-deployment", node_deployment, NULL, "Node deployment", "Run beside the driver on every node."),
    BOOL("node-deployment-immediate-binding", node_immediate_binding, "true", "Node deployment",
         "Take part in the race for immediate-binding claims."),
    TIME("node-deployment-base-delay", node_base_delay, "20s", "Node deployment",
         "Delay before a node tries to become the owner of a claim; doubles with each lost race."),
    TIME("node-deployment-max-delay", node_max_delay, "60s", "Node deployment", "Longest such delay."),

    BOOL("leader-election", leader_election, NULL, "Leader election", "Work only while holding the lease."),
    TEXT("leader-election-namespace", leader_namespace, NULL, "Leader election",
         "Namespace of the lease; the Pod's own when empty."),
    TIME("leader-election-lease-duration", lease_duration, "15s", "Leader election", "How long the lease is good for."),
    TIME("leader-election-renew-deadline", renew_deadline, "10s", "Leader election",
         "How long the leader tries to renew before it gives up."),
    TIME("leader-election-retry-period", retry_period, "5s", "Leader election", "Time between tries."),
    TEXT("leader-election-labels", leader_labels, NULL, "Leader election", "Labels of the lease: key:value,key:value."),

    TEXT("http-endpoint", http_endpoint, NULL, "Observation", "host:port of /metrics, /healthz, /readyz."),
    TEXT("metrics-address", metrics_address, NULL, "Observation", "Deprecated: use --http-endpoint."),
    TEXT("metrics-path", metrics_path, "/metrics", "Observation", "Path of the metrics."),
    BOOL("enable-pprof", enable_pprof, NULL, "Observation",
         "Accepted; there are no Go profiles here. Needs --http-endpoint as with csi-provisioner."),
    BOOL("event-history", event_history, NULL, "Observation",
         "Name the first error too when a claim fails for different reasons."),

    TEXT("intent-records", intent_records, "auto", "Safety",
         "Lease objects that remember calls of CreateVolume across a crash: auto (when the role allows it), off, "
         "required."),
    BOOL(
        "recheck-deleted-claims", recheck_deleted_claims, "true", "Safety",
        "Ask the driver once more when a claim goes away after a failed CreateVolume, so that a volume the driver made "
        "nevertheless is deleted."),
    TEXT("provision-background-codes", background_codes, NULL, "Safety",
         "gRPC codes (names, comma-separated) after which CreateVolume is repeated until the driver gives a final "
         "answer, beside Canceled, DeadlineExceeded, Aborted, Unavailable."),
    TEXT("provision-final-codes", final_codes, NULL, "Safety", "gRPC codes that are taken as final."),

    LIST("claim-annotations-to-parameters", claim_annotations_to_parameters, "Metadata",
         "Annotations of claims passed to the driver as csi.storage.k8s.io/pvc/annotations/KEY."),
    LIST("claim-labels-to-parameters", claim_labels_to_parameters, "Metadata",
         "Labels of claims passed to the driver as csi.storage.k8s.io/pvc/labels/KEY."),
    LIST("namespace-labels-to-parameters", namespace_labels_to_parameters, "Metadata",
         "Labels of namespaces passed to the driver as csi.storage.k8s.io/namespace/labels/KEY. Needs the right to get "
         "namespaces."),
    LIST("claim-annotations-to-volume", claim_annotations_to_volume, "Metadata",
         "Annotations of claims copied to their volumes."),
    LIST("claim-labels-to-volume", claim_labels_to_volume, "Metadata", "Labels of claims copied to their volumes."),

    LOG_FLAGS(struct options, log),
    {.name = "termination-log",
     .type = FLAG_STRING,
     .default_value = "/dev/termination-log",
     .group = "Observation",
     .help = "File for the reason of a fatal end; written only when it exists.",
     .offset = offsetof(struct options, termination_log),
     .hidden = true},

    IGNORED_BOOL("automaxprocs", "Is about the Go runtime."),
    IGNORED("log-flush-frequency", "Lines are written at once here."),
    IGNORED_BOOL("log-text-split-stream", KLOG),
    IGNORED_BOOL("log-json-split-stream", KLOG),
    IGNORED("log-text-info-buffer-size", KLOG),
    IGNORED("log-json-info-buffer-size", KLOG),
    IGNORED_BOOL("logtostderr", KLOG),
    IGNORED_BOOL("alsologtostderr", KLOG),
    IGNORED("alsologtostderrthreshold", KLOG),
    IGNORED("stderrthreshold", KLOG),
    IGNORED_BOOL("legacy-stderr-threshold-behavior", KLOG),
    IGNORED("log-dir", KLOG),
    IGNORED("log-file", KLOG),
    IGNORED("log-file-max-size", KLOG),
    IGNORED_BOOL("add-dir-header", KLOG),
    IGNORED_BOOL("skip-headers", KLOG),
    IGNORED_BOOL("skip-log-headers", KLOG),
    IGNORED_BOOL("one-output", KLOG),
    IGNORED("log-backtrace-at", "There are no Go stack traces here."),
    IGNORED("provisioner", REMOVED),
    IGNORED_BOOL("enable-leader-election", REMOVED),
    IGNORED("leader-election-type", REMOVED),
    IGNORED("connection-timeout", REMOVED),
};

const struct flag_program options_program = {
    .name = "berth-provisioner",
    .summary = "Makes volumes for claims with a CSI driver, in the place of the csi-provisioner sidecar.",
    .usage = "[flags]",
    .flags = flags,
    .count = ARRAY_LEN(flags),
};

static int parse_gates(const struct options *options, struct settings *settings, struct err *err)
{
    struct flag_gate gates[] = {{.name = "Topology", .value = true, .stage = 'g'},
                                {.name = "CrossNamespaceVolumeDataSource", .stage = 'a'},
                                {.name = "VolumeAttributesClass", .value = true, .stage = 'g'},
                                {.name = "ReleaseLeaderElectionOnExit", .stage = 'a'},
                                {.name = NULL}};
    if (!str_empty(options->feature_gates) && flag_parse_gates(options->feature_gates, gates, err) < 0)
        return err_wrap(err, "--feature-gates");
    settings->gate_topology = gates[0].value;
    settings->gate_cross_namespace = gates[1].value;
    settings->gate_attributes_class = gates[2].value;
    settings->attributes_class_was_set = gates[2].set;
    settings->gate_release_leader = gates[3].value;
    return 0;
}

static int parse_leader_labels(const struct options *options, struct settings *settings, struct err *err)
{
    if (str_empty(options->leader_labels))
        return 0;
    auto_strv struct strv items = {0};
    strv_split(&items, options->leader_labels, ',');
    settings->leader_labels = mem_calloc(items.len, sizeof(*settings->leader_labels));
    for (size_t i = 0; i < items.len; i++) {
        auto_strv struct strv halves = {0};
        strv_split(&halves, items.items[i], ':');
        if (halves.len != 2)
            return err_set(err, ERR_INVALID, "--leader-election-labels: \"%s\" is not of the form key:value",
                           items.items[i]);
        strv_add(&settings->label_texts, halves.items[0]);
        strv_add(&settings->label_texts, halves.items[1]);
    }
    settings->leader_label_count = items.len;
    for (size_t i = 0; i < items.len; i++)
        settings->leader_labels[i] = (struct kube_pair){.key = settings->label_texts.items[2 * i],
                                                        .value = settings->label_texts.items[2 * i + 1]};
    return 0;
}

static int set_codes(const char *flag, const char *text, bool value, struct settings *settings, struct err *err)
{
    if (str_empty(text))
        return 0;
    auto_strv struct strv names = {0};
    strv_split(&names, text, ',');
    for (size_t i = 0; i < names.len; i++) {
        int code = 1;
        while (code < (int)ARRAY_LEN(settings->background) && strcasecmp(names.items[i], csi_code_name(code)) != 0)
            code++;
        if (code == (int)ARRAY_LEN(settings->background))
            return err_set(err, ERR_INVALID, "--%s: \"%s\" is not the name of a gRPC code such as Internal", flag,
                           names.items[i]);
        settings->background[code] = value;
    }
    return 0;
}

static int parse_intent(const struct options *options, struct settings *settings, struct err *err)
{
    static const char *const names[] = {[INTENT_OFF] = "off", [INTENT_AUTO] = "auto", [INTENT_REQUIRED] = "required"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(options->intent_records, names[i])) {
            settings->intent = (enum intent_mode)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "--intent-records: \"%s\" is none of auto, off, required",
                   options->intent_records);
}

static int check_numbers(const struct options *options, struct err *err)
{
    const struct {
        const char *name;
        int64_t value, min, max;
    } ranges[] = {
        {"worker-threads", options->worker_threads, 1, 10000},
        {"cloning-protection-threads", options->cloning_protection_threads, 0, 1000},
        {"capacity-threads", options->capacity_threads, 1, 1000},
        {"capacity-ownerref-level", options->capacity_ownerref_level, -1, 16},
        {"timeout", options->timeout, 1, INT64_MAX},
        {"retry-interval-start", options->retry_interval_start, 0, INT64_MAX}, /* more than the maximum: the maximum */
        {"retry-interval-max", options->retry_interval_max, 1, INT64_MAX},
        {"volume-name-uuid-length", options->volume_name_uuid_length, -1, INT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return err_set(err, ERR_INVALID, "--%s: the value is out of range", ranges[i].name);
    return 0;
}

int options_check(const struct options *options, struct settings *settings, struct err *err)
{
    *settings = (struct settings){0};
    settings->background[CSI_CANCELED] = settings->background[CSI_DEADLINE_EXCEEDED] = true;
    settings->background[CSI_ABORTED] = settings->background[CSI_UNAVAILABLE] = true;
    if (!str_empty(options->metrics_address) && !str_empty(options->http_endpoint))
        return err_set(err, ERR_INVALID, "only one of --metrics-address and --http-endpoint can be set");
    if (options->enable_pprof && str_empty(options->http_endpoint))
        return err_set(err, ERR_INVALID, "--enable-pprof needs --http-endpoint");
    if (parse_gates(options, settings, err) < 0 || parse_leader_labels(options, settings, err) < 0 ||
        set_codes("provision-background-codes", options->background_codes, true, settings, err) < 0 ||
        set_codes("provision-final-codes", options->final_codes, false, settings, err) < 0 ||
        parse_intent(options, settings, err) < 0)
        return -1;
    return check_numbers(options, err);
}

void settings_free(struct settings *settings)
{
    free(settings->leader_labels);
    strv_free(&settings->label_texts);
}

/* A list flag may be repeated, and each occurrence may hold several keys. */
static void copy_keys(struct strv *to, const struct strv *from)
{
    for (size_t i = 0; i < from->len; i++)
        strv_split(to, from->items[i], ',');
}

void options_apply(const struct options *options, const struct settings *settings, struct provision_config *config)
{
    config->volume_name_prefix = options->volume_name_prefix;
    config->volume_name_uuid_length = options->volume_name_uuid_length;
    config->default_fstype = options->default_fstype;
    config->extra_create_metadata = options->extra_create_metadata;
    config->strict_topology = options->strict_topology;
    config->immediate_topology = options->immediate_topology;
    config->controller_publish_readonly = options->controller_publish_readonly;
    config->prevent_volume_mode_conversion = options->prevent_volume_mode_conversion;
    config->gate_topology = settings->gate_topology;
    config->gate_cross_namespace = settings->gate_cross_namespace;
    config->gate_attributes_class = settings->gate_attributes_class;
    config->node_deployment = options->node_deployment;
    config->node_immediate_binding = options->node_immediate_binding;
    copy_keys(&config->pass_claim_annotations, &options->claim_annotations_to_parameters);
    copy_keys(&config->pass_claim_labels, &options->claim_labels_to_parameters);
    copy_keys(&config->pass_namespace_labels, &options->namespace_labels_to_parameters);
    copy_keys(&config->copy_claim_annotations, &options->claim_annotations_to_volume);
    copy_keys(&config->copy_claim_labels, &options->claim_labels_to_volume);
}
