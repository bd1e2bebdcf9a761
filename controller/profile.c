/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/profile.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <stdlib.h>

void profile_init(struct controller_profile *profile, int minor)
{
    int m = minor;
    if (m < PROFILE_OLDEST_MINOR)
        m = PROFILE_OLDEST_MINOR;
    if (m > PROFILE_NEWEST_MINOR)
        m = PROFILE_NEWEST_MINOR;
    *profile = (struct controller_profile){
        .minor = m,
        .stable_provisioner_annotation = m >= 23,
        .csi_is_external = m >= 23,
        .refuses_data_source = m >= 21,
        .pre_resize_capacity = m >= 21,
        .retroactive_default_class = m >= 26,
        .new_external_provisioning = m >= 28,
        .volume_finalizers = m >= 31,
        .looks_up_empty_namespace = m >= 31,
        .lower_case_errors = m >= 31,
        .knows_local_plugin = m < 31,
        .debian_recycler = m >= 24,
    };
}

int profile_init_from_version(struct controller_profile *profile, const char *version, struct err *err)
{
    const char *text = version[0] == 'v' ? version + 1 : version;
    char *point = NULL, *end = NULL;
    long major = strtol(text, &point, 10);
    long minor = point != text && *point == '.' ? strtol(point + 1, &end, 10) : 0;
    if (end == NULL || end == point + 1 || major < 1 || minor < 0)
        return err_set(err, ERR_INVALID, "\"%s\" is not a Kubernetes version (want for example 1.28)", version);
    profile_init(profile, major > 1 || minor > PROFILE_NEWEST_MINOR ? PROFILE_NEWEST_MINOR : (int)minor);
    return 0;
}

/* From which release on the migration of a plugin is on by default. */
static const struct {
    const char *plugin;
    int since;
} migrations[] = {
    {"kubernetes.io/cinder", 21},          {"kubernetes.io/aws-ebs", 23},    {"kubernetes.io/gce-pd", 23},
    {"kubernetes.io/azure-disk", 23},      {"kubernetes.io/azure-file", 24}, {"kubernetes.io/vsphere-volume", 25},
    {"kubernetes.io/portworx-volume", 31},
};

const char *profile_migrated_driver(const struct controller_profile *profile, const char *plugin_name)
{
    for (size_t i = 0; i < ARRAY_LEN(migrations); i++)
        if (str_eq(migrations[i].plugin, plugin_name))
            return profile->minor >= migrations[i].since ? kube_migrated_driver(plugin_name) : NULL;
    return NULL;
}

static const struct controller_plugin plugins[] = {
    {.name = PLUGIN_NFS, .source = KUBE_SOURCE_NFS, .recycles = true, .mount_options = true},
    {.name = PLUGIN_HOST_PATH, .source = KUBE_SOURCE_HOST_PATH, .recycles = true, .deletes = true, .provisions = true},
};
/* Loaded by older releases without being able to do anything here; only their error texts differ. */
static const struct controller_plugin idle_plugins[] = {
    {.name = "kubernetes.io/local-volume", .source = KUBE_SOURCE_LOCAL, .mount_options = true},
    {.name = "kubernetes.io/csi", .source = KUBE_SOURCE_CSI, .mount_options = true},
};

const struct controller_plugin *profile_plugin_by_name(const struct controller_profile *profile, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(plugins); i++)
        if (str_eq(plugins[i].name, name))
            return &plugins[i];
    for (size_t i = 0; i < ARRAY_LEN(idle_plugins) && profile->knows_local_plugin; i++)
        if (str_eq(idle_plugins[i].name, name))
            return &idle_plugins[i];
    return NULL;
}

const struct controller_plugin *profile_plugin_by_source(const struct controller_profile *profile,
                                                         const struct kube_volume *volume)
{
    for (size_t i = 0; i < ARRAY_LEN(plugins); i++)
        if (plugins[i].source == volume->source)
            return &plugins[i];
    for (size_t i = 0; i < ARRAY_LEN(idle_plugins) && profile->knows_local_plugin; i++)
        if (idle_plugins[i].source == volume->source)
            return &idle_plugins[i];
    return NULL;
}
