/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-tree plugin kubernetes.io/host-path: deletes directories below some /tmp, and makes new ones when it is
 * enabled. A testing feature of upstream's; the directories are those of the machine this controller runs on.
 */
#include "controller/controller.h"
#include "controller/patch.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- delete ---- */
struct delete_job {
    struct controller *controller;
    struct kube_volume *volume; /* a reference: as it was when the operation started */
};

/* Upstream's unanchored pattern /tmp/.+ */
static bool path_may_be_deleted(const char *path)
{
    for (const char *at = strstr(path, "/tmp/"); at != NULL; at = strstr(at + 1, "/tmp/"))
        if (at[5] != '\0' && at[5] != '\n')
            return true;
    return false;
}

static bool has_parent_step(const char *path)
{
    auto_strv struct strv parts = {0};
    strv_split(&parts, path, '/');
    return strv_contains(&parts, "..");
}

static int remove_directory(const char *path, struct err *err)
{
    auto_free char *parent = mem_strdup(path);
    size_t len = strlen(parent);
    while (len > 1 && parent[len - 1] == '/')
        parent[--len] = '\0';
    if (!path_may_be_deleted(parent)) /* without the last slashes: /tmp// is /tmp */
        return err_set(err, ERR_INVALID, "host_path deleter only supports /tmp/.+ but received provided %s", path);
    if (has_parent_step(path)) /* the API server refuses these, too: /tmp/../etc would pass the pattern */
        return err_set(err, ERR_INVALID, "host_path deleter: %s: steps up with ..", path);
    char *slash = strrchr(parent, '/');
    auto_free char *name = mem_strdup(slash + 1);
    slash[slash == parent ? 1 : 0] = '\0';
    auto_close int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "unlinkat %s", path);
    auto_err struct err why = {0};
    if (file_remove_tree_at(fd, name, &why) != 0)
        return err_set(err, why.code, "unlinkat %s: %s", path, err_text(&why));
    return 0;
}

static int delete_storage(struct controller *controller, const struct kube_volume *volume, struct err *err)
{
    if (volume->source != KUBE_SOURCE_HOST_PATH)
        return err_set(err, ERR_INVALID,
                       "%cailed to create deleter for volume \"%s\": spec.PersistentVolumeSource.HostPath is nil",
                       controller->view.profile.lower_case_errors ? 'f' : 'F', volume->object.meta.name);
    int64_t begun = clock_mono(controller->clock);
    int result = remove_directory(volume->host_path.path, err);
    controller_metrics_plugin_call(controller->metrics, PLUGIN_HOST_PATH, "volume_delete", result != 0,
                                   clock_mono(controller->clock) - begun);
    return result;
}

/* The storage is gone: our finalizer. */
static int remove_finalizer(struct controller *controller, const struct kube_meta *meta, struct err *err)
{
    auto_unref struct kube_object *object = NULL;
    if (kube_get(controller->client, &kube_kind_volume, NULL, meta->name, &object, err) != 0)
        return -1;
    auto_strv struct strv finalizers = {0};
    for (uint32_t i = 0; i < object->meta.finalizers.len; i++)
        strv_add(&finalizers, object->meta.finalizers.items[i]);
    if (!str_eq(object->meta.uid, meta->uid) || !strv_remove(&finalizers, KUBE_FINALIZER_CONTROLLER))
        return 0;
    struct kube_volume *now = (struct kube_volume *)object;
    int result = write_volume(&controller->writer, &now, NULL, patch_volume_anneal(now, false, NULL, &finalizers), err);
    object = &now->object;
    if (result == 0)
        return 0;
    auto_free char *why = mem_strdup(kube_error_message(err));
    return err_set(err, err->code, "persistent volume controller can't update finalizer: %s", why);
}

static void delete_object(struct controller *controller, const struct kube_meta *meta)
{
    auto_err struct err delete_err = {0}; /* 404: taking the last finalizer away has deleted it */
    if (kube_delete(controller->client, &kube_kind_volume, NULL, meta->name, meta->uid, 0, &delete_err) != 0 &&
        !err_is(&delete_err, ERR_NOT_FOUND))
        log_warn("Cannot delete the volume whose storage was deleted", kv_str("volume", meta->name),
                 kv_err(&delete_err));
}

static int delete_volume(struct controller *controller, struct kube_volume **captured, struct err *err)
{
    auto_unref struct kube_volume *volume = NULL;
    auto_err struct err check_err = {0};
    bool released;
    if (reclaim_check(controller, *captured, &volume, &released, &check_err) != 0 || !released)
        return 0;
    if (volume->object.meta.deleting && !controller->view.profile.volume_finalizers)
        return 0;
    const struct kube_meta *meta = &volume->object.meta;
    if (delete_storage(controller, volume, err) == 0 &&
        (!controller->view.profile.volume_finalizers || remove_finalizer(controller, meta, err) == 0)) {
        delete_object(controller, meta);
        return 0;
    }
    if (err_is(err, ERR_CONFLICT)) /* somebody else's write was quicker; no reason to speak of a failure */
        return -1;
    auto_err struct err write_err = {0};
    if (write_volume_failed(&controller->writer, captured, "VolumeFailedDelete", err_text(err), &write_err) != 0)
        log_v(2, "Cannot tell of the failed deletion", kv_str("volume", volume->object.meta.name), kv_err(&write_err));
    return -1;
}

static enum operation_end delete_job(void *arg)
{
    struct delete_job *job = arg;
    auto_err struct err err = {0};
    auto_free char *name = mem_strdup(job->volume->object.meta.name);
    int result = delete_volume(job->controller, &job->volume, &err);
    if (result != 0) {
        controller_metrics_fail(job->controller->metrics, OPERATION_DELETE, name);
        log_warn("Cannot delete volume", kv_str("volume", name), kv_err(&err));
    }
    kube_object_unref(&job->volume->object);
    free(job);
    return result != 0 ? OPERATION_FAILED : OPERATION_DONE;
}

void host_path_delete_start(struct controller *controller, struct kube_volume *volume)
{
    struct delete_job *job = mem_new(struct delete_job);
    *job = (struct delete_job){controller, (struct kube_volume *)kube_object_ref(&volume->object)};
    auto_free char *name = operation_name("delete", volume->object.meta.name, volume->object.meta.uid);
    if (operations_run(controller->operations, name, delete_job, job) == OPERATION_STARTED)
        return;
    kube_object_unref(&job->volume->object);
    free(job);
}
