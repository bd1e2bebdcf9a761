/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/request.h"

#include "lib/base/mem.h"
#include "provisioner/source.h"
#include "provisioner/topology.h"

#include <ctype.h>
#include <strings.h>

#define FSTYPE_KEY "csi.storage.k8s.io/fstype"

void provision_request_clear(struct provision_request *request)
{
    csi_arena_free(&request->arena); /* overwrites: secrets were in it */
    *request = (struct provision_request){0};
}

char *request_volume_name(const struct provision_config *config, const char *claim_uid, struct err *err)
{
    if (str_empty(config->volume_name_prefix)) {
        err_set(err, ERR_INVALID, "volume name prefix cannot be of length 0");
        return NULL;
    }
    if (str_empty(claim_uid)) {
        err_set(err, ERR_INVALID, "corrupted PVC object, it is missing UID");
        return NULL;
    }
    if (config->volume_name_uuid_length < 0)
        return mem_printf("%s-%s", config->volume_name_prefix, claim_uid);
    auto_str struct str name = {0};
    str_addf(&name, "%s-", config->volume_name_prefix);
    int64_t left = config->volume_name_uuid_length; /* longer than the UID: the whole UID */
    for (const char *c = claim_uid; *c != '\0' && left > 0; c++)
        if (*c != '-') {
            str_add_char(&name, *c);
            left--;
        }
    return str_take(&name);
}

static bool is_ours(const struct provision_config *config, const struct kube_claim *claim)
{
    const char *provisioner = kube_annotation(&claim->object, KUBE_ANN_STORAGE_PROVISIONER);
    if (provisioner == NULL)
        provisioner = kube_annotation(&claim->object, KUBE_ANN_BETA_STORAGE_PROVISIONER);
    return str_eq(provisioner, config->driver_name) ||
           str_eq(kube_annotation(&claim->object, KUBE_ANN_MIGRATED_TO), config->driver_name);
}

static int check_capabilities(const struct provision_config *config, const struct source_choice *choice,
                              bool attributes_class, struct err *err)
{
    const struct driver_capabilities *caps = &config->capabilities;
    const struct {
        bool needed, present;
        const char *text;
    } checks[] = {
        {true, caps->controller_service,
         "CSI driver does not support dynamic provisioning: plugin CONTROLLER_SERVICE capability is not reported"},
        {true, caps->create_delete_volume,
         "CSI driver does not support dynamic provisioning: controller CREATE_DELETE_VOLUME capability is not "
         "reported"},
        {choice->kind == SOURCE_SNAPSHOT, caps->create_delete_snapshot,
         "CSI driver does not support snapshot restore: controller CREATE_DELETE_SNAPSHOT capability is not reported"},
        {choice->kind == SOURCE_CLAIM, caps->clone_volume,
         "CSI driver does not support clone operations: controller CLONE_VOLUME capability is not reported"},
        {attributes_class, caps->modify_volume,
         "CSI driver does not support VolumeAttributesClass: controller MODIFY_VOLUME capability is not reported"},
    };
    for (size_t i = 0; i < ARRAY_LEN(checks); i++)
        if (checks[i].needed && !checks[i].present)
            return err_set(err, ERR_INVALID, "%s", checks[i].text);
    return 0;
}

/* `fstype` in any letter case is the deprecated key; both spellings together are refused. */
static int pick_fs_type(const struct provision_config *config, struct provision_request *request, struct err *err)
{
    const struct kube_pairs *parameters = &request->class_->parameters;
    const char *found = NULL;
    for (uint32_t i = 0; i < parameters->len; i++) {
        const char *key = parameters->items[i].key;
        if (strcasecmp(key, "fstype") != 0 && !str_eq(key, FSTYPE_KEY))
            continue;
        if (found != NULL)
            return err_set(err, ERR_INVALID, "fstype specified in parameters with both \"fstype\" and \"%s\" keys",
                           FSTYPE_KEY);
        found = parameters->items[i].value;
    }
    request->fs_type = request->block ? "" : str_empty(found) ? config->default_fstype : found;
    if (request->fs_type == NULL)
        request->fs_type = "";
    return 0;
}

static int access_mode(const struct provision_config *config, const char *mode, int *out, struct err *err)
{
    bool multi_writer = config->capabilities.single_node_multi_writer;
    const struct {
        const char *name;
        int plain, extended;
    } table[] = {
        {"ReadWriteMany", CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_MULTI_WRITER,
         CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_MULTI_WRITER},
        {"ReadOnlyMany", CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_READER_ONLY,
         CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_READER_ONLY},
        {"ReadWriteOnce", CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_WRITER,
         CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_MULTI_WRITER},
        {"ReadWriteOncePod", CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_WRITER,
         CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_SINGLE_WRITER},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (str_eq(mode, table[i].name)) {
            *out = multi_writer ? table[i].extended : table[i].plain;
            return 0;
        }
    return err_set(err, ERR_INVALID, "unsupported access mode %s", mode);
}

static int add_capabilities(const struct provision_config *config, struct provision_request *request, struct err *err)
{
    const struct kube_claim *claim = request->claim;
    const struct kube_strings *options = &request->class_->mount_options;
    for (uint32_t i = 0; i < claim->access_modes.len; i++) {
        int mode = 0;
        if (access_mode(config, claim->access_modes.items[i], &mode, err) < 0)
            return -1;
        Csi__V1__VolumeCapability *capability = CSI_ADD(&request->arena, &request->csi, volume_capabilities);
        CSI_NEW(&request->arena, capability, access_mode)->mode = (Csi__V1__VolumeCapability__AccessMode__Mode)mode;
        if (request->block) {
            CSI_NEW(&request->arena, capability, block);
            continue;
        }
        Csi__V1__VolumeCapability__MountVolume *mount = CSI_NEW(&request->arena, capability, mount);
        mount->fs_type = csi_arena_strdup(&request->arena, request->fs_type);
        for (uint32_t o = 0; o < options->len; o++)
            CSI_ADD_STRING(&request->arena, mount, mount_flags, options->items[o]);
    }
    request->read_only = config->controller_publish_readonly && request->csi.n_volume_capabilities == 1 &&
                         request->csi.volume_capabilities[0]->access_mode->mode ==
                             CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_READER_ONLY;
    return 0;
}

int request_prepare(const struct provision_config *config, const struct provision_lookup *lookup,
                    const struct kube_claim *claim, const struct kube_class *class_, struct provision_request *request,
                    enum provision_state *state, struct err *err)
{
    *request = (struct provision_request){.claim = claim, .class_ = class_};
    csi__v1__create_volume_request__init(&request->csi);
    const char *node = kube_annotation(&claim->object, KUBE_ANN_SELECTED_NODE);
    request->selected_node = str_empty(node) ? NULL : node;
    *state = PROVISION_IGNORED;
    if (!is_ours(config, claim))
        return err_set(err, ERR_INVALID, "the claim is annotated for another provisioner");
    if (config->node_deployment && !str_eq(request->selected_node, config->node_name))
        return err_set(err, ERR_INVALID, "not responsible for provisioning the claim on this node");
    *state = PROVISION_FINISHED;
    if (class_ == NULL)
        return err_set(err, ERR_INVALID, "storage class was nil");
    struct source_choice choice;
    if (source_choose(config, lookup, claim, &choice, err) < 0)
        return -1;
    if (choice.kind == SOURCE_FOREIGN) {
        *state = PROVISION_IGNORED;
        return err_set(err, ERR_INVALID,
                       "data source (%s) is not supported by the provisioner, waiting for a volume populator",
                       choice.kind_name);
    }
    bool attributes_class = config->gate_attributes_class && !str_empty(claim->attributes_class);
    if (check_capabilities(config, &choice, attributes_class, err) < 0)
        return -1;
    if (claim->has_selector)
        return err_set(err, ERR_INVALID, "claim Selector is not supported");
    auto_free char *name = request_volume_name(config, claim->object.meta.uid, err);
    if (name == NULL)
        return -1;
    request->volume_name = csi_arena_strdup(&request->arena, name);
    request->csi.name = csi_arena_strdup(&request->arena, name);
    request->block = str_eq(claim->volume_mode, "Block");
    request->attributes_class = attributes_class ? claim->attributes_class : NULL;
    CSI_NEW(&request->arena, &request->csi, capacity_range)->required_bytes = kube_quantity_ceil(&claim->request);
    if (pick_fs_type(config, request, err) < 0 || add_capabilities(config, request, err) < 0)
        return -1;
    *state = PROVISION_NO_CHANGE;
    return source_resolve(config, lookup, &choice, request, err);
}

/* ---- second half ---- */

int request_fetch_secret(const struct provision_lookup *lookup, struct provision_request *request, struct err *err)
{
    const struct secret_reference *reference = &request->secrets[SECRET_PROVISIONER];
    if (reference->name == NULL)
        return 0;
    auto_unref struct kube_secret *secret = NULL;
    if (lookup->secret(lookup->arg, reference->namespace_, reference->name, &secret, err) < 0)
        return err_wrap(err, "error getting secret %s in namespace %s", reference->name, reference->namespace_);
    for (uint32_t i = 0; i < secret->data.len; i++)
        CSI_MAP_ADD(&request->arena, &request->csi, secrets, secret->data.items[i].key, secret->data.items[i].value);
    return 0;
}

static int resolve_secrets(const struct provision_lookup *lookup, struct provision_request *request, struct err *err)
{
    const struct kube_meta *meta = &request->claim->object.meta;
    struct secret_names names = {.volume_name = request->volume_name,
                                 .claim_namespace = meta->namespace_,
                                 .claim_name = meta->name,
                                 .claim_annotations = &meta->annotations};
    for (int kind = 0; kind < SECRET_KIND_COUNT; kind++) {
        if (secret_resolve((enum secret_kind)kind, &request->class_->parameters, &names, &request->arena,
                           &request->secrets[kind], err) < 0)
            return -1;
        /* upstream fetches the first before it looks at the others: the error a user sees first stays the same */
        if (kind == SECRET_PROVISIONER && request_fetch_secret(lookup, request, err) < 0)
            return -1;
    }
    return 0;
}

static void pass_keys(struct provision_request *request, const char *prefix, const struct strv *keys,
                      const struct kube_pairs *from)
{
    for (size_t i = 0; i < keys->len; i++) {
        const char *value = kube_pairs_get(from, keys->items[i]);
        if (value == NULL)
            continue;
        auto_free char *name = mem_printf("%s%s", prefix, keys->items[i]);
        CSI_MAP_ADD(&request->arena, &request->csi, parameters, name, value);
    }
}

static int add_parameters(const struct provision_config *config, const struct provision_lookup *lookup,
                          struct provision_request *request, enum provision_state *state, struct err *err)
{
    const struct kube_pairs *parameters = &request->class_->parameters;
    for (uint32_t i = 0; i < parameters->len; i++) {
        bool strip = false;
        if (secret_strip_parameter(parameters->items[i].key, &strip, err) < 0) {
            *state = PROVISION_FINISHED;
            return err_wrap(err, "failed to strip CSI Parameters of prefixed keys");
        }
        if (!strip)
            CSI_MAP_ADD(&request->arena, &request->csi, parameters, parameters->items[i].key,
                        parameters->items[i].value);
    }
    const struct kube_meta *meta = &request->claim->object.meta;
    if (config->extra_create_metadata) {
        CSI_MAP_ADD(&request->arena, &request->csi, parameters, "csi.storage.k8s.io/pvc/name", meta->name);
        CSI_MAP_ADD(&request->arena, &request->csi, parameters, "csi.storage.k8s.io/pvc/namespace", meta->namespace_);
        CSI_MAP_ADD(&request->arena, &request->csi, parameters, "csi.storage.k8s.io/pv/name", request->volume_name);
    }
    pass_keys(request, "csi.storage.k8s.io/pvc/annotations/", &config->pass_claim_annotations, &meta->annotations);
    pass_keys(request, "csi.storage.k8s.io/pvc/labels/", &config->pass_claim_labels, &meta->labels);
    if (config->pass_namespace_labels.len > 0) {
        auto_unref struct kube_object *namespace_ = NULL;
        if (lookup->namespace_(lookup->arg, meta->namespace_, &namespace_, err) < 0)
            return err_wrap(err, "error getting namespace %s", meta->namespace_);
        pass_keys(request, "csi.storage.k8s.io/namespace/labels/", &config->pass_namespace_labels,
                  &namespace_->meta.labels);
    }
    return 0;
}

static int add_attributes_class(const struct provision_config *config, const struct provision_lookup *lookup,
                                struct provision_request *request, enum provision_state *state, struct err *err)
{
    if (request->attributes_class == NULL)
        return 0;
    auto_unref struct kube_attributes_class *class_ = NULL;
    if (lookup->attributes_class(lookup->arg, request->attributes_class, &class_, err) < 0)
        return err_wrap(err, "error getting VolumeAttributesClass %s", request->attributes_class);
    if (!str_eq(class_->driver_name, config->driver_name)) {
        *state = PROVISION_FINISHED;
        return err_set(err, ERR_INVALID, "VolumeAttributesClass %s is for driver %s, not for %s",
                       request->attributes_class, class_->driver_name, config->driver_name);
    }
    for (uint32_t i = 0; i < class_->parameters.len; i++)
        CSI_MAP_ADD(&request->arena, &request->csi, mutable_parameters, class_->parameters.items[i].key,
                    class_->parameters.items[i].value);
    return 0;
}

int request_complete(const struct provision_config *config, const struct provision_lookup *lookup,
                     struct topology_memory *memory, struct provision_request *request, enum provision_state *state,
                     struct err *err)
{
    *state = PROVISION_NO_CHANGE;
    if (config->gate_topology && config->capabilities.accessibility_constraints &&
        topology_require(config, lookup, memory, request, state, err) < 0)
        return -1;
    *state = PROVISION_NO_CHANGE;
    if (resolve_secrets(lookup, request, err) < 0 || add_parameters(config, lookup, request, state, err) < 0 ||
        add_attributes_class(config, lookup, request, state, err) < 0)
        return -1;
    return 0;
}
