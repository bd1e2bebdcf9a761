/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/select.h"

#include "lib/base/mem.h"
#include "provisioner/secrets.h"
#include "provisioner/topology.h"

static bool is_known(const struct provision_config *config, const char *provisioner)
{
    return provisioner != NULL && (str_eq(provisioner, config->driver_name) ||
                                   (config->migrated_plugin != NULL && str_eq(provisioner, config->migrated_plugin)));
}

static const char *storage_provisioner(const struct kube_claim *claim)
{
    /* the GA annotation hides the beta one, even when it names somebody else */
    const char *value = kube_annotation(&claim->object, KUBE_ANN_STORAGE_PROVISIONER);
    return value != NULL ? value : kube_annotation(&claim->object, KUBE_ANN_BETA_STORAGE_PROVISIONER);
}

bool claim_is_for_us(const struct provision_config *config, const struct kube_claim *claim)
{
    if (!str_empty(claim->volume_name))
        return false;
    const char *provisioner = storage_provisioner(claim);
    bool qualified = str_eq(provisioner, config->driver_name) ||
                     str_eq(kube_annotation(&claim->object, KUBE_ANN_MIGRATED_TO), config->driver_name);
    return qualified && is_known(config, provisioner);
}

enum claim_action claim_select(const struct provision_config *config, const struct provision_lookup *lookup,
                               const struct kube_claim *claim, bool volume_exists, struct kube_class **class_,
                               struct err *err)
{
    if (!claim_is_for_us(config, claim))
        return CLAIM_DROP;
    const char *name = kube_claim_class(claim);
    auto_unref struct kube_class *found = NULL;
    if (lookup->class_(lookup->arg, name, &found, err) < 0) {
        err_wrap(err, "error getting claim's StorageClass for provisioning: %s", name);
        return CLAIM_CLASS_ERROR;
    }
    const char *node = kube_annotation(&claim->object, KUBE_ANN_SELECTED_NODE);
    if (str_eq(found->binding_mode, "WaitForFirstConsumer") && str_empty(node))
        return CLAIM_DROP;
    if (volume_exists || !is_known(config, found->provisioner))
        return CLAIM_STOP;
    *class_ = mem_take(found);
    return CLAIM_PROVISION;
}

bool volume_is_for_us(const struct provision_config *config, const struct kube_volume *volume)
{
    const char *provisioned_by = kube_annotation(&volume->object, KUBE_ANN_PROVISIONED_BY);
    const char *migrated_to = kube_annotation(&volume->object, KUBE_ANN_MIGRATED_TO);
    if (provisioned_by != NULL)
        return is_known(config, provisioned_by) || is_known(config, migrated_to);
    if (volume->source == KUBE_SOURCE_CSI)
        return str_eq(volume->csi.driver, config->driver_name);
    return is_known(config, migrated_to);
}

enum volume_action volume_select(const struct provision_config *config, const struct kube_volume *volume)
{
    if (!volume_is_for_us(config, volume) || (config->node_deployment && !topology_volume_is_local(config, volume)))
        return VOLUME_NOTHING;
    bool has = kube_strings_contain(&volume->object.meta.finalizers, KUBE_FINALIZER_EXTERNAL_PROVISIONER);
    bool deleting = volume->object.meta.deleting;
    bool delete_policy = str_eq(volume->reclaim_policy, "Delete");
    if (delete_policy && !deleting && !has && str_eq(volume->phase, "Bound"))
        return VOLUME_ADD_FINALIZER;
    if (!delete_policy && has)
        return VOLUME_REMOVE_FINALIZER;
    if (delete_policy && str_eq(volume->phase, "Released"))
        return deleting && !has ? VOLUME_NOTHING : VOLUME_DELETE;
    if (config->capabilities.recycle && str_eq(volume->reclaim_policy, "Recycle") && !deleting &&
        volume->claim_ref != NULL && !str_empty(volume->claim_ref->uid) &&
        (str_eq(volume->phase, "Released") || str_eq(volume->phase, "Failed")))
        return VOLUME_RECYCLE;
    return VOLUME_NOTHING;
}

int deletion_secret(const struct provision_config *config, const struct provision_lookup *lookup,
                    const struct kube_volume *volume, struct csi_arena *arena, struct secret_reference *reference,
                    struct err *err)
{
    (void)config;
    const char *name = kube_annotation(&volume->object, KUBE_ANN_DELETION_SECRET_NAME);
    const char *namespace_ = kube_annotation(&volume->object, KUBE_ANN_DELETION_SECRET_NAMESPACE);
    *reference = (struct secret_reference){0};
    if (name != NULL && namespace_ != NULL) {
        if (*name != '\0' && *namespace_ != '\0') {
            reference->name = csi_arena_strdup(arena, name);
            reference->namespace_ = csi_arena_strdup(arena, namespace_);
        }
        return 0;
    }
    /* volumes of old provisioners: the class's templates with what the volume still knows; the class may be gone */
    auto_unref struct kube_class *class_ = NULL;
    auto_err struct err gone = {0};
    const char *class_name = kube_volume_class(volume);
    if (str_empty(class_name))
        return 0;
    if (lookup->class_(lookup->arg, class_name, &class_, &gone) < 0)
        return err_is(&gone, ERR_NOT_FOUND) ? 0 : err_move(err, &gone);
    struct secret_names names = {.volume_name = volume->object.meta.name,
                                 .claim_namespace = volume->claim_ref != NULL ? volume->claim_ref->namespace_ : NULL,
                                 .claim_name = volume->claim_ref != NULL ? volume->claim_ref->name : NULL};
    return secret_resolve(SECRET_PROVISIONER, &class_->parameters, &names, arena, reference, err);
}

int deletion_check_attachments(const struct provision_lookup *lookup, const struct kube_volume *volume, struct err *err)
{
    const char *name = volume->object.meta.name;
    auto_objects struct kube_object_list attachments = {0};
    if (lookup->attachments(lookup->arg, name, &attachments, err) < 0)
        return err_wrap(err, "error listing volumeattachments");
    if (attachments.len == 0)
        return 0;
    const struct kube_attachment *attachment = (const struct kube_attachment *)attachments.items[0];
    return err_set(err, ERR_UNAVAILABLE, "persistentvolume %s is still attached to node %s", name,
                   attachment->node_name);
}
