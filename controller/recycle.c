/* SPDX-License-Identifier: Apache-2.0 */
/* The operation behind reclaim policy Recycle: empty the volume by a pod, then give it back. */
#include "controller/controller.h"

#include "controller/recycler_pod.h"
#include "controller/wake.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct recycle_job {
    struct controller *controller;
    struct kube_volume *volume; /* a reference: as it was when the operation started */
};

/* Pods may outlive their claim. When a claim of that name exists it is a new one with a volume of its own, and the pods
 * are its users. */
static bool is_in_use(struct controller *controller, const struct kube_volume *volume)
{
    const struct kube_reference *ref = volume->claim_ref;
    auto_unref struct kube_claim *claim = view_claim(&controller->view, ref->namespace_, ref->name);
    if (claim != NULL)
        return false;
    auto_strv struct strv pods = {0};
    view_pods_of_claim(&controller->view, ref->namespace_, ref->name, false, &pods);
    if (pods.len == 0)
        return false;
    auto_free char *names = strv_join(&pods, ",");
    kube_event_object(controller->events, &volume->object, KUBE_EVENT_NORMAL, "VolumeFailedRecycle",
                      "Volume is used by pods: %s", names);
    return true;
}

/* A failure has no back-off, as upstream: the next sync tries again, and the first failure, which writes the phase, is
 * followed by one. There is a pause between them, or the phase would hardly be seen. */
static enum operation_end fail(struct controller *controller, struct kube_volume **volume, const char *text,
                               struct err *err)
{
    bool first = !str_eq((*volume)->phase, PHASE_FAILED);
    if (write_volume_failed(&controller->writer, volume, "VolumeFailedRecycle", text, err) == 0 && first)
        kube_queue_add_after(controller->volumes, (*volume)->object.meta.name, 2 * OPERATION_PAUSE_TIME);
    return OPERATION_PAUSE;
}

static enum operation_end recycle(struct controller *controller, const struct kube_volume *captured, struct err *err)
{
    auto_unref struct kube_volume *volume = NULL;
    bool released;
    if (reclaim_check(controller, captured, &volume, &released, err) != 0 || !released)
        return OPERATION_DONE;
    if (is_in_use(controller, volume))
        return OPERATION_DONE;
    const struct controller_plugin *plugin = profile_plugin_by_source(&controller->view.profile, volume);
    if (plugin == NULL || !plugin->recycles)
        return fail(controller, &volume, "No recycler plugin found for the volume!", err);
    const struct recycler_template *recycler =
        volume->source == KUBE_SOURCE_NFS ? controller->recycler_nfs : controller->recycler_host_path;
    struct recycler_run run = {.client = controller->client, .events = controller->events, .stop = controller->stop};
    auto_err struct err failure = {0};
    if (recycler_pod_run(&run, recycler, volume, &failure) != 0) {
        if (err_is(&failure, ERR_CANCELLED))
            return OPERATION_DONE;
        auto_free char *text = mem_printf("Recycle failed: %s", err_text(&failure));
        return fail(controller, &volume, text, err);
    }
    kube_event_object(controller->events, &volume->object, KUBE_EVENT_NORMAL, "VolumeRecycled", "Volume recycled");
    write_unbind(&controller->writer, &volume, err); /* failed: it is recycled once more */
    return OPERATION_DONE;
}

static enum operation_end recycle_job(void *arg)
{
    struct recycle_job *job = arg;
    auto_err struct err err = {0};
    enum operation_end end = recycle(job->controller, job->volume, &err);
    if (err.code != ERR_NONE)
        log_v(2, "Recycling did not come to its end; it is tried again",
              kv_str("volume", job->volume->object.meta.name), kv_err(&err));
    /* nobody could have it until now, also if somebody has taken its reference away meanwhile */
    auto_unref struct kube_volume *volume = view_volume(&job->controller->view, job->volume->object.meta.name);
    if (volume != NULL)
        wake_for_volume(job->controller, volume);
    kube_object_unref(&job->volume->object);
    free(job);
    return end;
}

void recycle_start(struct controller *controller, struct kube_volume *volume)
{
    struct recycle_job *job = mem_new(struct recycle_job);
    *job = (struct recycle_job){controller, (struct kube_volume *)kube_object_ref(&volume->object)};
    auto_free char *name = operation_name("recycle", volume->object.meta.name, volume->object.meta.uid);
    if (operations_run(controller->operations, name, recycle_job, job) == OPERATION_STARTED)
        return;
    kube_object_unref(&job->volume->object);
    free(job);
}
