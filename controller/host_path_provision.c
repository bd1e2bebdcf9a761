/* SPDX-License-Identifier: Apache-2.0 */
/* Making volumes with the in-tree plugin kubernetes.io/host-path. */
#include "controller/controller.h"
#include "controller/patch.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "/tmp/hostpath_pv"
#define CREATE_TRIES 5
#define CREATE_PAUSE (10 * CLOCK_SECOND)
#define GIVE_UP_PAUSE (40 * CLOCK_SECOND) /* what upstream's five tries to clean up take */

struct provision_job {
    struct controller *controller;
    struct kube_claim *claim; /* references */
    struct kube_class *class;
};

static void warn(struct provision_job *job, const char *reason, const char *text)
{
    kube_event_object(job->controller->events, &job->claim->object, KUBE_EVENT_WARNING, reason, "%s", text);
}

/* An event and an error of the same text. */
static int refuse(struct provision_job *job, struct err *err, char *owned_text)
{
    auto_free char *text = owned_text;
    warn(job, "ProvisioningFailed", text);
    return err_set(err, ERR_INVALID, "%s", text);
}

/* [a b], as upstream prints lists */
static char *options_text(const struct kube_strings *options)
{
    struct str text = {0};
    str_add_char(&text, '[');
    for (uint32_t i = 0; i < options->len; i++)
        str_addf(&text, "%s%s", i > 0 ? " " : "", options->items[i]);
    str_add_char(&text, ']');
    return str_take(&text);
}

static json_t *volume_json(const struct provision_job *job, const char *name, const char *path)
{
    const struct kube_claim *claim = job->claim;
    const struct kube_meta *meta = &claim->object.meta;
    char version[24];
    snprintf(version, sizeof(version), "%" PRIu64, meta->resource_version);
    const char *policy = str_empty(job->class->reclaim_policy) ? POLICY_DELETE : job->class->reclaim_policy;
    json_t *modes = json_array();
    for (uint32_t i = 0; i < claim->access_modes.len; i++)
        json_array_append_new(modes, json_string(claim->access_modes.items[i]));
    json_t *volume = json_pack(
        "{s:s,s:s,s:{s:s,s:{s:s,s:s,s:s}},s:{s:o,s:{s:s},s:s,s:s,s:{s:s},s:{s:s,s:s,s:s,s:s,s:s,s:s}},s:{s:s}}",
        "apiVersion", "v1", "kind", "PersistentVolume", "metadata", "name", name, "annotations",
        KUBE_ANN_BOUND_BY_CONTROLLER, "yes", KUBE_ANN_PROVISIONED_BY, PLUGIN_HOST_PATH, "kubernetes.io/createdby",
        "hostpath-dynamic-provisioner", "spec", "accessModes", modes, "capacity", "storage", claim->request_text,
        "persistentVolumeReclaimPolicy", policy, "storageClassName", kube_claim_class(claim), "hostPath", "path", path,
        "claimRef", "kind", "PersistentVolumeClaim", "apiVersion", "v1", "namespace", meta->namespace_, "name",
        meta->name, "uid", meta->uid, "resourceVersion", version, "status", "phase", PHASE_BOUND);
    if (job->controller->view.profile.volume_finalizers && str_eq(policy, POLICY_DELETE))
        json_object_set_new(json_object_get(volume, "metadata"), "finalizers",
                            json_pack("[s]", KUBE_FINALIZER_CONTROLLER));
    return volume;
}

static int make_directory(const char *path, struct err *err)
{
    if (mkdir(DIRECTORY, 0750) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "mkdir %s", DIRECTORY);
    if (mkdir(path, 0750) != 0)
        return err_set_errno(err, errno, "mkdir %s", path);
    return 0;
}

static int make_storage(const struct provision_job *job, const char *path, struct err *err)
{
    struct controller *controller = job->controller;
    int64_t begun = clock_mono(controller->clock);
    int result = is_block(job->claim->volume_mode)
                     ? err_set(err, ERR_INVALID, "%s does not support block volume provisioning", PLUGIN_HOST_PATH)
                     : make_directory(path, err);
    controller_metrics_plugin_call(controller->metrics, PLUGIN_HOST_PATH, "volume_provision", result != 0,
                                   clock_mono(controller->clock) - begun);
    return result;
}

/* What can be said no to before anything is made. */
static int check(struct provision_job *job, struct err *err)
{
    struct controller *controller = job->controller;
    if (job->class->mount_options.len > 0) {
        auto_free char *options = options_text(&job->class->mount_options);
        return refuse(job, err,
                      mem_printf("Mount options are not supported by the provisioner but StorageClass \"%s\" has mount "
                                 "options %s",
                                 job->class->object.meta.name, options));
    }
    if (!controller->options->hostpath_provisioner)
        return refuse(job, err,
                      mem_printf("Failed to create provisioner: provisioning in volume plugin \"%s\" is disabled",
                                 PLUGIN_HOST_PATH));
    const char *node = kube_annotation(&job->claim->object, KUBE_ANN_SELECTED_NODE);
    auto_unref struct kube_object *object = NULL;
    if (node != NULL && *node == '\0')
        return refuse(job, err, mem_strdup("Failed to get target node: node \"\" not found"));
    if (node != NULL && kube_get(controller->client, &kube_kind_node, NULL, node, &object, err) != 0) {
        /* upstream asks its cache, which words it a little differently than the API server */
        auto_free char *text = err_is(err, ERR_NOT_FOUND)
                                   ? mem_printf("Failed to get target node: node \"%s\" not found", node)
                                   : mem_printf("Failed to get target node: %s", kube_error_message(err));
        return refuse(job, err, mem_take(text));
    }
    return 0;
}

/* Upstream tells of a failed clean-up even when it went well; here only when the directory is left behind. */
static int give_up(struct provision_job *job, const char *path, struct err *err)
{
    auto_free char *key = claim_key_of(job->claim);
    auto_free char *why = mem_strdup(kube_error_message(err));
    auto_free char *text =
        mem_printf("Error creating provisioned PV object for claim %s: %s. Deleting the volume.", key, why);
    warn(job, "ProvisioningFailed", text);
    if (rmdir(path) != 0 && errno != ENOENT) {
        auto_err struct err clean = {0};
        err_set_errno(&clean, errno, "rmdir %s", path);
        auto_free char *left = mem_printf("Error cleaning provisioned volume for claim %s: %s. Please delete manually.",
                                          key, err_text(&clean));
        warn(job, "ProvisioningCleanupFailed", left);
    }
    /* the API server has refused volumes for a while: the next round has time */
    stop_sleep(job->controller->stop, job->controller->clock, GIVE_UP_PAUSE);
    return -1;
}

static int create_object(struct provision_job *job, const char *name, const char *path, struct err *err)
{
    struct controller *controller = job->controller;
    auto_json json_t *json = volume_json(job, name, path);
    for (int try = 1;; try++) {
        auto_unref struct kube_object *volume = NULL;
        err_clear(err);
        if (kube_create(controller->client, &kube_kind_volume, NULL, json, &volume, err) == 0) {
            kube_store_put_reply(controller->view.volumes, volume);
            return 0;
        }
        if (err_is(err, ERR_EXISTS)) {
            err_clear(err);
            return 0;
        }
        log_warn("Cannot create the provisioned volume", kv_str("volume", name), kv_int("try", try), kv_err(err));
        if (try == CREATE_TRIES || stop_sleep(controller->stop, controller->clock, CREATE_PAUSE))
            return give_up(job, path, err);
    }
}

static int provision(struct provision_job *job, struct err *err)
{
    struct controller *controller = job->controller;
    if (job->claim->data_source != NULL && controller->view.profile.refuses_data_source)
        return refuse(job, err,
                      mem_printf("plugin \"%s\" is not a CSI plugin. Only CSI plugin can provision a claim with a "
                                 "datasource",
                                 PLUGIN_HOST_PATH));
    if (write_claim(&controller->writer, &job->claim, NULL,
                    patch_claim_provisioner(&controller->view.profile, job->claim, job->class->provisioner), err) != 0)
        return -1;
    auto_free char *name = mem_printf("pvc-%s", job->claim->object.meta.uid);
    auto_unref struct kube_object *there = NULL;
    if (kube_get(controller->client, &kube_kind_volume, NULL, name, &there, err) == 0)
        return 0;
    if (!err_is(err, ERR_NOT_FOUND))
        return -1;
    err_clear(err);
    if (check(job, err) != 0)
        return -1;
    char uuid[RNG_UUID_SIZE];
    auto_free char *path = mem_printf(DIRECTORY "/%s", rng_uuid(controller->rng, uuid));
    if (make_storage(job, path, err) != 0) {
        auto_err struct err ignored = {0}; /* the scheduler then keeps its choice, and this is tried again */
        write_claim(&controller->writer, &job->claim, NULL, patch_claim_unselect_node(job->claim), &ignored);
        return refuse(job, err,
                      mem_printf("Failed to provision volume with StorageClass \"%s\": %s",
                                 job->class->object.meta.name, err_text(err)));
    }
    if (create_object(job, name, path, err) != 0)
        return -1;
    kube_event_object(controller->events, &job->claim->object, KUBE_EVENT_NORMAL, "ProvisioningSucceeded",
                      "Successfully provisioned volume %s using %s", name, PLUGIN_HOST_PATH);
    return 0;
}

static void job_free(struct provision_job *job)
{
    kube_object_unref(&job->claim->object);
    kube_object_unref(&job->class->object);
    free(job);
}

static enum operation_end provision_job(void *arg)
{
    struct provision_job *job = arg;
    auto_err struct err err = {0};
    auto_free char *key = claim_key_of(job->claim);
    controller_metrics_start(job->controller->metrics, OPERATION_PROVISION, key, PLUGIN_HOST_PATH);
    int result = provision(job, &err);
    if (result != 0) {
        controller_metrics_fail(job->controller->metrics, OPERATION_PROVISION, key);
        log_warn("Cannot provision a volume", kv_str("claim", key), kv_err(&err));
    }
    job_free(job);
    return result != 0 ? OPERATION_FAILED : OPERATION_DONE;
}

void host_path_provision_start(struct controller *controller, struct kube_claim *claim,
                               struct kube_class *storage_class)
{
    struct provision_job *job = mem_new(struct provision_job);
    *job = (struct provision_job){controller, (struct kube_claim *)kube_object_ref(&claim->object),
                                  (struct kube_class *)kube_object_ref(&storage_class->object)};
    auto_free char *key = claim_key_of(claim);
    auto_free char *name = operation_name("provision", key, claim->object.meta.uid);
    if (operations_run(controller->operations, name, provision_job, job) != OPERATION_STARTED)
        job_free(job);
}
