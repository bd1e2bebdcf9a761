/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <inttypes.h>
#include <stdio.h>

json_t *json_of(const char *text)
{
    auto_free char *quoted = mem_strdup(text);
    for (char *c = quoted; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    json_error_t error;
    json_t *json = json_loads(quoted, JSON_DECODE_ANY, &error);
    if (json == NULL)
        fail_msg("bad JSON in a test: %s: %s", error.text, text);
    return json;
}

void assert_json(json_t *got, const char *want)
{
    json_t *wanted = json_of(want);
    bool equal = json_equal(got, wanted) != 0;
    if (!equal) {
        auto_free char *text = json_dumps(got, JSON_SORT_KEYS | JSON_ENCODE_ANY);
        fail_msg("got  %s\nwant %s", text == NULL ? "nothing" : text, want);
    }
    json_decref(wanted);
    json_decref(got);
}

static void merge(json_t *into, const json_t *patch)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)patch, key, value) {
        json_t *here = json_object_get(into, key);
        if (json_is_null(value))
            json_object_del(into, key);
        else if (json_is_object(value) && json_is_object(here))
            merge(here, value);
        else
            json_object_set(into, key, value);
    }
}

static json_t *ordinary(const struct kube_kind *kind)
{
    if (kind == &kube_kind_volume)
        return json_of("{'metadata':{'uid':'uid-volume'},'spec':{'capacity':{'storage':'5Gi'},"
                       "'accessModes':['ReadWriteOnce'],'persistentVolumeReclaimPolicy':'Retain',"
                       "'nfs':{'server':'s','path':'/p'}},'status':{'phase':'Available'}}");
    if (kind == &kube_kind_claim)
        return json_of("{'metadata':{'namespace':'default'},'spec':{'accessModes':['ReadWriteOnce'],"
                       "'storageClassName':'','resources':{'requests':{'storage':'1Gi'}}},"
                       "'status':{'phase':'Pending'}}");
    if (kind == &kube_kind_class)
        return json_of("{'metadata':{'uid':'uid-class'},'provisioner':'ext.example.com',"
                       "'volumeBindingMode':'Immediate'}");
    return json_of("{'metadata':{'namespace':'default','uid':'uid-pod'},'spec':{},'status':{'phase':'Pending'}}");
}

struct kube_object *make_object(const struct kube_kind *kind, const char *name, const char *differences,
                                uint64_t version)
{
    json_t *json = ordinary(kind);
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, version);
    json_object_set_new(json_object_get(json, "metadata"), "name", json_string(name));
    json_object_set_new(json_object_get(json, "metadata"), "resourceVersion", json_string(text));
    if (kind == &kube_kind_claim) {
        auto_free char *uid = mem_printf("uid-%s", name);
        json_object_set_new(json_object_get(json, "metadata"), "uid", json_string(uid));
    }
    if (differences != NULL) {
        json_t *patch = json_of(differences);
        merge(json, patch);
        json_decref(patch);
    }
    auto_err struct err err = {0};
    struct kube_object *object = kube_object_decode(kind, json, NULL, &err);
    json_decref(json);
    if (object == NULL)
        fail_msg("cannot decode %s: %s", name, err_text(&err));
    return object;
}

void world_init(struct world *world, int minor)
{
    controller_view_init(&world->view, minor);
    world->version = 100;
}

void world_clear(struct world *world)
{
    controller_view_clear(&world->view);
}

static const struct kube_object *put(struct world *world, struct kube_store *store, const struct kube_kind *kind,
                                     const char *name, const char *differences)
{
    auto_unref struct kube_object *object = make_object(kind, name, differences, ++world->version);
    assert_true(kube_store_put(store, object));
    return object; /* the store has a reference */
}

const struct kube_volume *world_volume(struct world *world, const char *name, const char *differences)
{
    return (const struct kube_volume *)put(world, world->view.volumes, &kube_kind_volume, name, differences);
}

const struct kube_claim *world_claim(struct world *world, const char *name, const char *differences)
{
    return (const struct kube_claim *)put(world, world->view.claims, &kube_kind_claim, name, differences);
}

const struct kube_class *world_class(struct world *world, const char *name, const char *differences)
{
    return (const struct kube_class *)put(world, world->view.classes, &kube_kind_class, name, differences);
}

const struct kube_pod *world_pod(struct world *world, const char *name, const char *differences)
{
    return (const struct kube_pod *)put(world, world->view.pods, &kube_kind_pod, name, differences);
}
