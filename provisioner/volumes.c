/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/volumes.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "provisioner/delete.h"
#include "provisioner/finalizers.h"
#include "provisioner/recycle.h"
#include "provisioner/select.h"

static int do_delete(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    struct metrics *metrics = provisioner->telemetry.metrics;
    const char *labels[] = {kube_volume_class(volume)};
    int64_t started = clock_mono(provisioner->clock);
    int result = delete_volume(provisioner, volume, err);
    if (result < 0) {
        metric_add(metrics, &telemetry_delete_failed, 1, labels);
        kube_event_object(provisioner->events, &volume->object, KUBE_EVENT_WARNING, "VolumeFailedDelete", "%s",
                          err_text(err));
        return -1;
    }
    if (result == 0)
        return 0;
    metric_add(metrics, &telemetry_delete_total, 1, labels);
    metric_observe(metrics, &telemetry_delete_duration,
                   (double)(clock_mono(provisioner->clock) - started) / (double)CLOCK_SECOND, labels);
    return 0;
}

static int do_recycle(struct provisioner *provisioner, const struct kube_volume *volume, struct err *err)
{
    struct metrics *metrics = provisioner->telemetry.metrics;
    const char *labels[] = {kube_volume_class(volume)};
    int result = recycle_volume(provisioner, volume, err);
    if (result < 0) {
        metric_add(metrics, &telemetry_recycle_failed, 1, labels);
        kube_event_object(provisioner->events, &volume->object, KUBE_EVENT_WARNING, "VolumeFailedRecycle", "%s",
                          err_text(err));
        return -1;
    }
    if (result > 0) {
        metric_add(metrics, &telemetry_recycle_total, 1, labels);
        kube_event_object(provisioner->events, &volume->object, KUBE_EVENT_NORMAL, "VolumeRecycled", "Volume recycled");
    }
    return 0;
}

int volumes_work(void *arg, const char *name)
{
    struct provisioner *provisioner = arg;
    auto_err struct err err = {0};
    auto_unref struct kube_volume *volume = informers_volume(provisioner, name);
    int result = 0;
    if (volume == NULL)
        return 0;
    switch (volume_select(&provisioner->config, volume)) {
    case VOLUME_NOTHING:
        return 0;
    case VOLUME_ADD_FINALIZER:
        result = finalizer_add(provisioner, volume, &err);
        break;
    case VOLUME_REMOVE_FINALIZER:
        result = finalizer_remove(provisioner, volume, &err);
        break;
    case VOLUME_DELETE:
        result = do_delete(provisioner, volume, &err);
        break;
    case VOLUME_RECYCLE:
        result = do_recycle(provisioner, volume, &err);
        break;
    }
    if (result < 0)
        log_error("Failed to work on a volume", kv_str("volume", name), kv_err(&err));
    provisioner_worked(provisioner);
    return result;
}
