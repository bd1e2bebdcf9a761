/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: csi-provisioner's flags with its defaults, those of earlier releases that old manifests still
 * carry (accepted, without effect), and ours, which are all off unless they are asked for.
 */
#ifndef BERTH_PROVISIONER_OPTIONS_H
#define BERTH_PROVISIONER_OPTIONS_H

#include "lib/base/flag.h"
#include "lib/kube/labels.h"
#include "provisioner/config.h"

struct options {
    const char *master, *kubeconfig, *csi_address;
    const char *volume_name_prefix;
    int64_t volume_name_uuid_length;
    int64_t retry_interval_start, retry_interval_max;
    int64_t worker_threads, cloning_protection_threads, capacity_threads;
    int64_t snapshot_sweep_interval;
    int64_t timeout;
    bool strict_topology, immediate_topology, extra_create_metadata;
    const char *default_fstype;
    double qps, capacity_qps;
    int64_t burst, capacity_burst;
    bool enable_capacity, capacity_for_immediate_binding;
    int64_t capacity_poll_interval, capacity_ownerref_level;
    bool node_deployment, node_immediate_binding;
    int64_t node_base_delay, node_max_delay;
    bool controller_publish_readonly, prevent_volume_mode_conversion;
    const char *feature_gates;
    bool leader_election;
    const char *leader_namespace, *leader_labels;
    int64_t lease_duration, renew_deadline, retry_period;
    const char *http_endpoint, *metrics_address, *metrics_path;
    bool enable_pprof;
    struct flag_log log;

    /* beyond upstream */
    bool exit_on_driver_loss;
    const char *intent_records;
    bool recheck_deleted_claims;
    const char *background_codes, *final_codes;
    bool event_history;
    bool capacity_strip_parameters;
    struct strv claim_annotations_to_parameters, claim_labels_to_parameters, namespace_labels_to_parameters;
    struct strv claim_annotations_to_volume, claim_labels_to_volume;
    const char *termination_log;
};

enum intent_mode { INTENT_OFF, INTENT_AUTO, INTENT_REQUIRED };

/* What the texts of some flags mean, checked. */
struct settings {
    bool gate_topology, gate_cross_namespace, gate_attributes_class, gate_release_leader;
    bool attributes_class_was_set; /* on the command line: not switched off by discovery */
    enum intent_mode intent;
    bool background[17]; /* gRPC codes after which the driver may be creating the volume */
    struct kube_pair *leader_labels;
    size_t leader_label_count;
    struct strv label_texts; /* memory of leader_labels */
};

extern const struct flag_program options_program;

/* Checks values and their combinations. */
int options_check(const struct options *options, struct settings *settings, struct err *err);
void settings_free(struct settings *settings);
/* The part of the decisions' configuration that the command line gives; lists are copied with commas taken apart. */
void options_apply(const struct options *options, const struct settings *settings, struct provision_config *config);

#endif
