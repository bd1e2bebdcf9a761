/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the provisioner's pure decisions depend on: the command line and the driver's answers at start-up, and a table
 * of look-ups through which they read other objects. Nothing here writes. Tests fill both by hand.
 */
#ifndef BERTH_PROVISIONER_CONFIG_H
#define BERTH_PROVISIONER_CONFIG_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/kube/objects.h"
#include "lib/kube/store.h"

#include <stdbool.h>
#include <stdint.h>

/* From GetPluginCapabilities and ControllerGetCapabilities. */
struct driver_capabilities {
    bool controller_service;
    bool accessibility_constraints;
    bool create_delete_volume;
    bool create_delete_snapshot;
    bool clone_volume;
    bool publish_unpublish_volume;
    bool single_node_multi_writer;
    bool modify_volume;
    bool get_capacity;
    bool recycle; /* GetPluginInfo manifest berth.recycle=true */
};

struct provision_config {
    const char *driver_name;
    const char *migrated_plugin; /* the in-tree name this driver also answers to, or NULL (table of migrated plugins) */
    const char *identity;        /* volumeAttributes storage.kubernetes.io/csiProvisionerIdentity */
    const char *volume_name_prefix;
    int64_t volume_name_uuid_length; /* -1: the whole UID with dashes */
    const char *default_fstype;
    bool extra_create_metadata;
    bool strict_topology, immediate_topology;
    bool controller_publish_readonly;
    bool prevent_volume_mode_conversion;
    bool gate_topology, gate_cross_namespace, gate_attributes_class;
    struct driver_capabilities capabilities;

    bool node_deployment;
    bool node_immediate_binding;
    const char *node_name;
    struct kube_pairs node_topology; /* of NodeGetInfo */

    /* Beyond upstream, all off by default: keys of claim annotations/labels and namespace labels that are passed to the
     * driver as parameters and copied to the volume. */
    struct strv pass_claim_annotations, pass_claim_labels, pass_namespace_labels;
    struct strv copy_claim_annotations, copy_claim_labels;
};

/* Look-ups; all return 0 with a reference in *object, or -1 with ERR_NOT_FOUND or another error. `live` ones ask the
 * API server, the others may answer from a store. */
struct provision_lookup {
    void *arg;
    int (*claim)(void *arg, const char *namespace_, const char *name, struct kube_claim **claim, struct err *err);
    int (*volume)(void *arg, const char *name, struct kube_volume **volume, struct err *err); /* live */
    int (*class_)(void *arg, const char *name, struct kube_class **class_, struct err *err);
    int (*secret)(void *arg, const char *namespace_, const char *name, struct kube_secret **secret,
                  struct err *err); /* live */
    int (*snapshot)(void *arg, const char *namespace_, const char *name, struct kube_snapshot **snapshot,
                    struct err *err); /* live */
    int (*snapshot_content)(void *arg, const char *name, struct kube_snapshot_content **content,
                            struct err *err); /* live */
    int (*attributes_class)(void *arg, const char *name, struct kube_attributes_class **class_,
                            struct err *err); /* live */
    int (*namespace_)(void *arg, const char *name, struct kube_object **namespace_, struct err *err);
    int (*node)(void *arg, const char *name, struct kube_node **node, struct err *err);
    int (*csi_node)(void *arg, const char *name, struct kube_csi_node **node, struct err *err);
    int (*nodes)(void *arg, struct kube_object_list *nodes, struct err *err);     /* all */
    int (*csi_nodes)(void *arg, struct kube_object_list *nodes, struct err *err); /* all */
    int (*grants)(void *arg, const char *namespace_, struct kube_object_list *grants, struct err *err);
    int (*attachments)(void *arg, const char *volume_name, struct kube_object_list *attachments, struct err *err);
};

/* How a step of provisioning ended; what the worker does with the claim (see result.h). */
enum provision_state {
    PROVISION_FINISHED,      /* final: success or a final error */
    PROVISION_NO_CHANGE,     /* failed before the driver was asked: whatever was known about the claim still holds */
    PROVISION_IN_BACKGROUND, /* the driver may be creating the volume: never give up */
    PROVISION_RESCHEDULE,    /* no space on the selected node: the scheduler shall choose again */
    PROVISION_IGNORED,       /* not ours */
};
const char *provision_state_name(enum provision_state state);

#endif
