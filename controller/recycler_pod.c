/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/recycler_pod.h"

#include "controller/patch.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* Two watches: this thread follows the pod, a second one hands the pod's events on to the volume. */
struct session {
    const struct recycler_run *run;
    const struct kube_volume *volume;
    char *namespace_, *name;
    struct kube_list_options pod_options, event_options;
    char *pod_selector, *event_selector;
    struct kube_watch *pods, *events;
};

static void session_clear(struct session *session)
{
    if (session->pods != NULL)
        kube_watch_close(session->pods);
    if (session->events != NULL)
        kube_watch_close(session->events);
    free(session->namespace_);
    free(session->name);
    free(session->pod_selector);
    free(session->event_selector);
}

static void *forward_events(void *arg)
{
    struct session *session = arg;
    for (;;) {
        auto_err struct err err = {0};
        struct kube_watch_event event;
        int got = kube_watch_next(session->events, &event, &err);
        if (got <= 0)
            return NULL; /* only a convenience is lost when the watch ends before the pod does */
        if (event.object == NULL)
            continue;
        const struct kube_event *told = (const struct kube_event *)event.object;
        if (event.type == KUBE_WATCH_ADDED)
            kube_event_object(session->run->events, &session->volume->object,
                              str_eq(told->type, KUBE_EVENT_WARNING) ? KUBE_EVENT_WARNING : KUBE_EVENT_NORMAL,
                              "RecyclerPod", "Recycler pod: %s", told->message);
        kube_object_unref(event.object);
    }
}

/* 1 = the pod came to its end, well (err empty) or not; 0 = not yet. */
static int look_at_pod(const struct kube_pod *pod, struct err *err)
{
    if (str_eq(pod->phase, "Succeeded"))
        return 1;
    if (!str_eq(pod->phase, "Failed"))
        return 0;
    err_set(err, ERR_INTERNAL, "%s", str_empty(pod->message) ? "pod failed, pod.Status.Message unknown" : pod->message);
    return 1;
}

/* The watch ended; the pod is there still, or it is not. */
static int watch_again(struct session *session, const char *uid, struct err *err)
{
    kube_watch_close(session->pods);
    session->pods = NULL;
    auto_unref struct kube_object *pod = NULL;
    if (kube_get(session->run->client, &kube_kind_pod, session->namespace_, session->name, &pod, err) != 0) {
        if (err_is(err, ERR_NOT_FOUND))
            err_set(err, ERR_NOT_FOUND, "recycler pod was deleted");
        return -1;
    }
    if (!str_eq(pod->meta.uid, uid))
        return err_set(err, ERR_NOT_FOUND, "recycler pod was deleted");
    return kube_watch_open(session->run->client, &kube_kind_pod, &session->pod_options, &session->pods, err);
}

static void cancel_watch(void *watch)
{
    kube_watch_cancel(watch);
}

/* As kube_watch_next, but a stop ends the waiting. */
static int next_event(struct session *session, struct kube_watch_event *event, struct err *err)
{
    stop_on(session->run->stop, cancel_watch, session->pods);
    int got = kube_watch_next(session->pods, event, err);
    stop_off(session->run->stop, cancel_watch, session->pods);
    return got;
}

static int wait_for_end(struct session *session, const char *uid, struct err *err)
{
    for (;;) {
        struct kube_watch_event event;
        int got = next_event(session, &event, err);
        if (got < 0 && err_is(err, ERR_CANCELLED))
            return -1;
        if (got <= 0) {
            err_clear(err);
            if (stop_requested(session->run->stop))
                return err_set(err, ERR_CANCELLED, "the controller stops");
            if (watch_again(session, uid, err) != 0)
                return -1;
            continue;
        }
        if (event.object == NULL)
            continue;
        auto_unref struct kube_object *object = event.object;
        if (!str_eq(object->meta.uid, uid))
            continue; /* one of the same name before or after ours */
        if (event.type == KUBE_WATCH_DELETED)
            return err_set(err, ERR_NOT_FOUND, "recycler pod was deleted");
        if (look_at_pod((const struct kube_pod *)object, err) == 1)
            return err->code == ERR_NONE ? 0 : -1;
    }
}

static int create_pod(const struct session *session, const json_t *json, struct kube_object **pod, struct err *err)
{
    struct kube_client *client = session->run->client;
    if (kube_create(client, &kube_kind_pod, session->namespace_, json, pod, err) == 0)
        return 0;
    if (!err_is(err, ERR_EXISTS)) {
        auto_free char *message = mem_strdup(kube_error_message(err));
        return err_set(err, err->code, "unexpected error creating recycler pod:  %s", message);
    }
    auto_err struct err delete_err = {0};
    if (kube_delete(client, &kube_kind_pod, session->namespace_, session->name, NULL, 0, &delete_err) != 0 &&
        !err_is(&delete_err, ERR_NOT_FOUND))
        return err_set(err, ERR_EXISTS, "failed to delete old recycler pod %s/%s: %s", session->namespace_,
                       session->name, kube_error_message(&delete_err));
    return err_set(err, ERR_EXISTS, "old recycler pod found, will retry later");
}

/* The pod exists: follow it, then take it away whatever came out. */
static int follow_pod(struct session *session, const struct kube_object *pod, struct err *err)
{
    pthread_t forwarder = thread_start("recycler-events", forward_events, session);
    int result = wait_for_end(session, pod->meta.uid, err);
    bool stopped = err_is(err, ERR_CANCELLED);
    kube_watch_cancel(session->events);
    thread_join(forwarder);
    if (stopped)
        return -1;
    auto_err struct err delete_err = {0};
    bool deleted = kube_delete(session->run->client, &kube_kind_pod, session->namespace_, session->name, pod->meta.uid,
                               0, &delete_err) == 0;
    if (!deleted)
        log_warn("Cannot delete recycler pod", kv_str("pod", session->name), kv_err(&delete_err));
    if (result != 0) {
        auto_free char *message = mem_strdup(err_text(err));
        return err_set(err, err->code, "failed to recycle volume: %s", message);
    }
    if (!deleted)
        return err_set(err, delete_err.code, "failed to delete recycler pod: %s", kube_error_message(&delete_err));
    return 0;
}

int recycler_pod_run(const struct recycler_run *run, const struct recycler_template *recycler,
                     const struct kube_volume *volume, struct err *err)
{
    auto_json json_t *json = recycler_pod_build(recycler, volume);
    const json_t *metadata = json_object_get(json, "metadata");
    __attribute__((cleanup(session_clear))) struct session session = {
        .run = run,
        .volume = volume,
        .namespace_ = mem_strdup(json_string_value(json_object_get(metadata, "namespace"))),
        .name = mem_strdup(json_string_value(json_object_get(metadata, "name"))),
    };
    session.pod_selector = mem_printf("metadata.name=%s", session.name);
    session.event_selector = mem_printf("involvedObject.name=%s", session.name);
    session.pod_options =
        (struct kube_list_options){.namespace_ = session.namespace_, .field_selector = session.pod_selector};
    session.event_options =
        (struct kube_list_options){.namespace_ = session.namespace_, .field_selector = session.event_selector};
    if (kube_watch_open(run->client, &kube_kind_pod, &session.pod_options, &session.pods, err) != 0 ||
        kube_watch_open(run->client, &kube_kind_event, &session.event_options, &session.events, err) != 0)
        return -1;
    auto_unref struct kube_object *pod = NULL;
    if (create_pod(&session, json, &pod, err) != 0)
        return -1;
    return follow_pod(&session, pod, err);
}
