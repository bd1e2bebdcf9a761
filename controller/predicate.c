/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/predicate.h"

#include "lib/base/str.h"

bool is_block(const char *volume_mode)
{
    return str_eq(volume_mode, "Block");
}

bool volume_refers_to(const struct kube_volume *volume, const struct kube_claim *claim)
{
    const struct kube_reference *ref = volume->claim_ref;
    return ref != NULL && str_eq(ref->name, claim->object.meta.name) &&
           str_eq(ref->namespace_, claim->object.meta.namespace_) &&
           (*ref->uid == '\0' || str_eq(ref->uid, claim->object.meta.uid));
}

bool volume_modes_differ(const struct kube_volume *volume, const struct kube_claim *claim)
{
    const char *a = str_empty(volume->volume_mode) ? "Filesystem" : volume->volume_mode;
    const char *b = str_empty(claim->volume_mode) ? "Filesystem" : claim->volume_mode;
    return strcmp(a, b) != 0;
}

bool attributes_classes_differ(const struct kube_volume *volume, const struct kube_claim *claim)
{
    const char *a = volume->attributes_class == NULL ? "" : volume->attributes_class;
    const char *b = claim->attributes_class == NULL ? "" : claim->attributes_class;
    return strcmp(a, b) != 0;
}

bool volume_is_too_small(const struct kube_volume *volume, const struct kube_claim *claim)
{
    return kube_quantity_compare(&volume->storage, &claim->request) < 0;
}

const char *volume_lacks_mode(const struct kube_volume *volume, const struct kube_claim *claim)
{
    for (uint32_t i = 0; i < claim->access_modes.len; i++)
        if (!kube_strings_contain(&volume->access_modes, claim->access_modes.items[i]))
            return claim->access_modes.items[i];
    return NULL;
}

bool pod_is_terminated(const struct kube_pod *pod)
{
    return str_eq(pod->phase, "Failed") || str_eq(pod->phase, "Succeeded") ||
           (pod->object.meta.deleting && !pod->running_container);
}

static bool class_is_default(const struct kube_class *class)
{
    return str_eq(kube_annotation(&class->object, KUBE_ANN_DEFAULT_CLASS), "true") ||
           str_eq(kube_annotation(&class->object, KUBE_ANN_BETA_DEFAULT_CLASS), "true");
}

const struct kube_class *class_default_of(struct kube_object *const *classes, size_t len)
{
    const struct kube_class *best = NULL;
    for (size_t i = 0; i < len; i++) {
        const struct kube_class *class = (const struct kube_class *)classes[i];
        if (!class_is_default(class))
            continue;
        int64_t age = best == NULL ? 1 : class->object.meta.creation_time - best->object.meta.creation_time;
        if (age > 0 || (age == 0 && strcmp(class->object.meta.name, best->object.meta.name) < 0))
            best = class;
    }
    return best;
}
