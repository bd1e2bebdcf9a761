/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/objects.h"

#include "lib/base/mem.h"
#include "lib/base/slab.h"

#include <stdlib.h>

struct kube_object *kube_object_decode(const struct kube_kind *kind, const json_t *json,
                                       const struct kube_decode_options *options, struct err *err)
{
    return kind->decode(json, options, err);
}

struct kube_object *kube_object_ref(struct kube_object *object)
{
    if (object != NULL)
        atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
    return object;
}

void kube_object_unref(struct kube_object *object)
{
    if (object == NULL || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
        return;
    size_t size = object->size;
    if (object->kind == &kube_kind_secret)
        mem_wipe(object, size);
    slab_free(object, size);
}

char *kube_object_key(const struct kube_object *object)
{
    const struct kube_meta *meta = &object->meta;
    return *meta->namespace_ != '\0' ? mem_printf("%s/%s", meta->namespace_, meta->name) : mem_strdup(meta->name);
}

void kube_key_split(const char *key, char **namespace_, char **name)
{
    const char *slash = strchr(key, '/');
    *namespace_ = mem_strndup(key, slash != NULL ? (size_t)(slash - key) : 0);
    *name = mem_strdup(slash != NULL ? slash + 1 : key);
}

const char *kube_claim_class(const struct kube_claim *claim)
{
    const char *beta = kube_annotation(&claim->object, KUBE_ANN_BETA_STORAGE_CLASS);
    const char *name = beta != NULL ? beta : claim->class_name;
    return name != NULL ? name : "";
}

bool kube_claim_has_class(const struct kube_claim *claim)
{
    return claim->class_name != NULL || kube_annotation(&claim->object, KUBE_ANN_BETA_STORAGE_CLASS) != NULL;
}

const char *kube_volume_class(const struct kube_volume *volume)
{
    const char *beta = kube_annotation(&volume->object, KUBE_ANN_BETA_STORAGE_CLASS);
    const char *name = beta != NULL ? beta : volume->class_name;
    return name != NULL ? name : "";
}

/* In-tree plugins whose volumes CSI drivers serve without condition since 1.36 at the latest. */
static const struct {
    const char *plugin, *driver;
} migrations[] = {
    {"kubernetes.io/aws-ebs", "ebs.csi.aws.com"},          {"kubernetes.io/gce-pd", "pd.csi.storage.gke.io"},
    {"kubernetes.io/azure-disk", "disk.csi.azure.com"},    {"kubernetes.io/azure-file", "file.csi.azure.com"},
    {"kubernetes.io/cinder", "cinder.csi.openstack.org"},  {"kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"},
    {"kubernetes.io/portworx-volume", "pxd.portworx.com"},
};

const char *kube_migrated_driver(const char *plugin_name)
{
    for (size_t i = 0; i < ARRAY_LEN(migrations); i++) {
        if (str_eq(migrations[i].plugin, plugin_name))
            return migrations[i].driver;
    }
    return NULL;
}

const char *kube_migrated_plugin(const char *driver_name)
{
    for (size_t i = 0; i < ARRAY_LEN(migrations); i++) {
        if (str_eq(migrations[i].driver, driver_name))
            return migrations[i].plugin;
    }
    return NULL;
}
