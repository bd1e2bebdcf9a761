/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/recycler_pod.h"

#include "controller/patch.h"
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/kube/config_private.h" /* reading YAML */

#define GIB (INT64_C(1) << 30)

struct recycler_template {
    json_t *pod;
    int64_t minimum_timeout, increment_timeout;
};

static json_t *built_in_pod(const struct controller_profile *profile)
{
    const char *image =
        profile->debian_recycler ? "registry.k8s.io/build-image/debian-base:bookworm-v1.0.6" : "busybox:1.27";
    const char *script =
        profile->debian_recycler
            ? "test -e /scrub && find /scrub -mindepth 1 -delete && test -z \"$(ls -A /scrub)\" || exit 1"
            : "test -e /scrub && rm -rf /scrub/..?* /scrub/.[!.]* /scrub/*  && test -z \"$(ls -A /scrub)\" || exit 1";
    return json_pack("{s:s,s:s,s:{s:s},s:{s:s,s:i,s:[{s:s}],s:[{s:s,s:s,s:[s],s:[s,s],s:[{s:s,s:s}]}]}}", "apiVersion",
                     "v1", "kind", "Pod", "metadata", "namespace", "default", "spec", "restartPolicy", "Never",
                     "activeDeadlineSeconds", 60, "volumes", "name", "vol", "containers", "name", "pv-recycler",
                     "image", image, "command", "/bin/sh", "args", "-c", script, "volumeMounts", "name", "vol",
                     "mountPath", "/scrub");
}

static int read_pod(const char *path, json_t **pod, struct err *err)
{
    struct kube_yaml file = {0};
    json_t *json = NULL;
    int result = kube_yaml_load(&file, path, err);
    if (result == 0) {
        const yaml_node_t *root = kube_yaml_root(&file);
        if (root == NULL)
            err_set(err, ERR_INVALID, "pod specification (%s): is empty", path);
        else
            json = kube_yaml_to_json(&file, root, err);
        result = json == NULL ? -1 : 0;
    }
    kube_yaml_free(&file);
    if (result != 0) {
        json_decref(json);
        return -1;
    }
    if (!str_eq(json_string_value(json_object_get(json, "kind")), "Pod")) {
        json_decref(json);
        return err_set(err, ERR_INVALID, "pod specification (%s): kind is not Pod", path);
    }
    const json_t *spec = json_object_get(json, "spec");
    if (!json_is_object(json_array_get(json_object_get(spec, "volumes"), 0))) {
        json_decref(json);
        return err_set(err, ERR_INVALID, "pod specification (%s): does not contain any volume(s)", path);
    }
    if (!json_is_object(json_array_get(json_object_get(spec, "containers"), 0))) {
        json_decref(json);
        return err_set(err, ERR_INVALID, "pod specification (%s): does not contain any container", path);
    }
    *pod = json;
    return 0;
}

int recycler_template_new(const struct controller_profile *profile, const struct recycler_options *options,
                          struct recycler_template **recycler, struct err *err)
{
    json_t *pod = NULL;
    if (str_empty(options->template_file))
        pod = built_in_pod(profile);
    else if (read_pod(options->template_file, &pod, err) != 0)
        return -1;
    if (!json_is_object(json_object_get(pod, "metadata")))
        json_object_set_new(pod, "metadata", json_object());
    json_t *metadata = json_object_get(pod, "metadata");
    if (str_empty(json_string_value(json_object_get(metadata, "namespace"))))
        json_object_set_new(metadata, "namespace", json_string("default"));
    *recycler = mem_new(struct recycler_template);
    **recycler = (struct recycler_template){
        .pod = pod, .minimum_timeout = options->minimum_timeout, .increment_timeout = options->increment_timeout};
    return 0;
}

void recycler_template_free(struct recycler_template *recycler)
{
    if (recycler == NULL)
        return;
    json_decref(recycler->pod);
    free(recycler);
}

/* The larger of the two: a minimum, or so many seconds per whole GiB. A size beyond 64 bits counts as none, as
 * upstream: its deadline would not be a legal one. */
static int64_t deadline(const struct recycler_template *recycler, const struct kube_volume *volume)
{
    const struct kube_quantity most = kube_quantity_from_bytes(INT64_MAX);
    bool beyond = kube_quantity_compare(&volume->storage, &most) > 0;
    int64_t gib = beyond ? 0 : kube_quantity_ceil(&volume->storage) / GIB, seconds;
    if (__builtin_mul_overflow(gib, recycler->increment_timeout, &seconds))
        seconds = INT64_MAX;
    return seconds > recycler->minimum_timeout ? seconds : recycler->minimum_timeout;
}

json_t *recycler_pod_build(const struct recycler_template *recycler, const struct kube_volume *volume)
{
    json_t *pod = json_deep_copy(recycler->pod);
    json_t *metadata = json_object_get(pod, "metadata");
    auto_free char *name = mem_printf("recycler-for-%s", volume->object.meta.name);
    json_object_set_new(metadata, "name", json_string(name));
    json_object_del(metadata, "generateName");
    json_t *spec = json_object_get(pod, "spec");
    json_object_set_new(spec, "activeDeadlineSeconds", json_integer(deadline(recycler, volume)));
    json_t *volumes = json_object_get(spec, "volumes");
    const char *mount = json_string_value(json_object_get(json_array_get(volumes, 0), "name"));
    json_t *source = volume->source == KUBE_SOURCE_NFS
                         ? json_pack("{s:s,s:{s:s,s:s}}", "name", mount == NULL ? "vol" : mount, "nfs", "server",
                                     volume->nfs.server, "path", volume->nfs.path)
                         : json_pack("{s:s,s:{s:s}}", "name", mount == NULL ? "vol" : mount, "hostPath", "path",
                                     volume->host_path.path);
    json_array_set_new(volumes, 0, source);
    return pod;
}
