/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed in the persistentvolume-binder between Kubernetes releases. berth stands in for the loop of the
 * kube-controller-manager that belongs to the API server it talks to, so other components of that cluster see what
 * they expect. A profile is made once at start from the server's version (or --compatibility-version).
 */
#ifndef BERTH_CONTROLLER_PROFILE_H
#define BERTH_CONTROLLER_PROFILE_H

#include "lib/base/err.h"
#include "lib/kube/objects.h"

#include <stdbool.h>

#define PROFILE_OLDEST_MINOR 20
#define PROFILE_NEWEST_MINOR 36

struct controller_profile {
    int minor; /* of Kubernetes 1.x */
    /* 1.23: volume.kubernetes.io/storage-provisioner is written beside the beta annotation */
    bool stable_provisioner_annotation;
    /* 1.23: a CSI volume without provisioned-by annotation, and one with an empty migrated-to annotation, is left to
     * its driver instead of becoming Failed */
    bool csi_is_external;
    /* 1.21: the in-tree plugin does not provision for claims with a data source; before, it gave them empty volumes */
    bool refuses_data_source;
    /* 1.21: a volume's pre-resize-capacity annotation decides the claim's capacity */
    bool pre_resize_capacity;
    /* 1.26: claims without a class get the default class that appeared after them */
    bool retroactive_default_class;
    /* 1.28: the present wording of ExternalProvisioning, and an event when the claim cannot be annotated */
    bool new_external_provisioning;
    /* 1.31 (HonorPVReclaimPolicy): finalizers on in-tree volumes; terminating volumes are deleted by policy */
    bool volume_finalizers;
    /* 1.31: a claimRef without namespace is looked up (and not found) instead of being an error */
    bool looks_up_empty_namespace;
    /* 1.31: errors about deleters start with a small letter; before, the local plugin was known here */
    bool lower_case_errors;
    bool knows_local_plugin;
    /* 1.24: the recycler pod's image and command */
    bool debian_recycler;
};

void profile_init(struct controller_profile *profile, int minor); /* clamped to what is known */
/* From "v1.20.2", "1.36" or "1.28+". */
int profile_init_from_version(struct controller_profile *profile, const char *version, struct err *err);

/* The CSI driver that takes over the in-tree plugin in this release; NULL when it is not migrated. */
const char *profile_migrated_driver(const struct controller_profile *profile, const char *plugin_name);

/* ---- in-tree plugins this controller knows ---- */
#define PLUGIN_NFS "kubernetes.io/nfs"
#define PLUGIN_HOST_PATH "kubernetes.io/host-path"
#define PLUGIN_IN_TREE_PREFIX "kubernetes.io/"

struct controller_plugin {
    const char *name;
    enum kube_source source;
    bool recycles, deletes, provisions, mount_options;
};
/* NULL when there is none. */
const struct controller_plugin *profile_plugin_by_name(const struct controller_profile *profile, const char *name);
const struct controller_plugin *profile_plugin_by_source(const struct controller_profile *profile,
                                                         const struct kube_volume *volume);

#endif
