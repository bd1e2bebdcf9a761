/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"

#include <stdlib.h>

json_t *fixture_json(const char *json)
{
    auto_free char *text = mem_strdup(json);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
    json_error_t where;
    json_t *object = json_loads(text, 0, &where);
    if (object == NULL)
        fail_msg("%s\ncolumn %d: %s", text, where.column, where.text);
    return object;
}

static void *add(struct fixture *fixture, const struct kube_kind *kind, const char *text)
{
    json_t *json = fixture_json(text);
    auto_free char *version =
        kind->group[0] != '\0' ? mem_printf("%s/%s", kind->group, kind->version) : mem_strdup(kind->version);
    json_object_set_new(json, "kind", json_string(kind->kind));
    json_object_set_new(json, "apiVersion", json_string(version));
    auto_err struct err err = {0};
    const struct kube_decode_options all = {.all_annotations = true};
    struct kube_object *object = kube_object_decode(kind, json, &all, &err);
    json_decref(json);
    if (object == NULL)
        fail_msg("%s", err_text(&err));
    for (size_t i = 0; i < fixture->objects.len; i++) {
        struct kube_object *old = fixture->objects.items[i];
        if (old->kind == kind && str_eq(old->meta.name, object->meta.name) &&
            str_eq(old->meta.namespace_, object->meta.namespace_)) {
            kube_object_unref(old);
            fixture->objects.items[i] = object;
            return object;
        }
    }
    kube_object_list_add(&fixture->objects, object);
    return object;
}

void *fixture_add(struct fixture *fixture, const struct kube_kind *kind, const char *json, ...)
{
    va_list args;
    va_start(args, json);
    auto_free char *text = mem_vprintf(json, args);
    va_end(args);
    return add(fixture, kind, text);
}

struct kube_claim *fixture_claim(struct fixture *fixture, const char *extra_spec, const char *extra_annotations)
{
    return fixture_add(fixture, &kube_kind_claim,
                       "{'metadata': {'namespace': 'default', 'name': 'c', 'uid': 'u-1', 'resourceVersion': '7',"
                       " 'labels': {'team': 'red'},"
                       " 'annotations': {'volume.kubernetes.io/storage-provisioner': 'd'%s%s}},"
                       " 'spec': {'storageClassName': 'fast', 'accessModes': ['ReadWriteOnce'],"
                       " 'resources': {'requests': {'storage': '1Gi'}}%s%s}}",
                       *extra_annotations ? ", " : "", extra_annotations, *extra_spec ? ", " : "", extra_spec);
}

struct kube_class *fixture_class(struct fixture *fixture, const char *parameters, const char *extra)
{
    return fixture_add(fixture, &kube_kind_class,
                       "{'metadata': {'name': 'fast', 'uid': 'class-1'}, 'provisioner': 'd', 'parameters': {%s}%s%s}",
                       parameters, *extra ? ", " : "", extra);
}

/* ---- look-ups ---- */

static int find(void *arg, const struct kube_kind *kind, const char *namespace_, const char *name, void *out,
                struct err *err)
{
    struct fixture *fixture = arg;
    if (fixture->failing != ERR_NONE)
        return err_set(err, fixture->failing, "the look-up failed");
    for (size_t i = 0; i < fixture->objects.len; i++) {
        struct kube_object *object = fixture->objects.items[i];
        if (object->kind == kind && str_eq(object->meta.name, name) &&
            (namespace_ == NULL || str_eq(object->meta.namespace_, namespace_))) {
            *(struct kube_object **)out = kube_object_ref(object);
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "%s \"%s\" not found", kind->plural, name);
}

static int find_all(void *arg, const struct kube_kind *kind, struct kube_object_list *list, struct err *err)
{
    struct fixture *fixture = arg;
    if (fixture->failing != ERR_NONE)
        return err_set(err, fixture->failing, "the look-up failed");
    for (size_t i = 0; i < fixture->objects.len; i++)
        if (fixture->objects.items[i]->kind == kind)
            kube_object_list_add(list, kube_object_ref(fixture->objects.items[i]));
    return 0;
}

#define NAMESPACED(function, kind_, type)                                                                              \
    static int function(void *arg, const char *namespace_, const char *name, type **out, struct err *err)              \
    {                                                                                                                  \
        return find(arg, &kube_kind_##kind_, namespace_, name, out, err);                                              \
    }
#define CLUSTER(function, kind_, type)                                                                                 \
    static int function(void *arg, const char *name, type **out, struct err *err)                                      \
    {                                                                                                                  \
        return find(arg, &kube_kind_##kind_, NULL, name, out, err);                                                    \
    }
#define ALL(function, kind_)                                                                                           \
    static int function(void *arg, struct kube_object_list *list, struct err *err)                                     \
    {                                                                                                                  \
        return find_all(arg, &kube_kind_##kind_, list, err);                                                           \
    }
NAMESPACED(find_claim, claim, struct kube_claim)
NAMESPACED(find_secret, secret, struct kube_secret)
NAMESPACED(find_snapshot, snapshot, struct kube_snapshot)
CLUSTER(find_volume, volume, struct kube_volume)
CLUSTER(find_class, class, struct kube_class)
CLUSTER(find_content, snapshot_content, struct kube_snapshot_content)
CLUSTER(find_attributes_class, attributes_class, struct kube_attributes_class)
CLUSTER(find_namespace, namespace, struct kube_object)
CLUSTER(find_node, node, struct kube_node)
CLUSTER(find_csi_node, csi_node, struct kube_csi_node)
ALL(all_nodes, node)
ALL(all_csi_nodes, csi_node)

static int find_grants(void *arg, const char *namespace_, struct kube_object_list *list, struct err *err)
{
    auto_objects struct kube_object_list all = {0};
    if (find_all(arg, &kube_kind_reference_grant, &all, err) < 0)
        return -1;
    for (size_t i = 0; i < all.len; i++)
        if (str_eq(all.items[i]->meta.namespace_, namespace_))
            kube_object_list_add(list, kube_object_ref(all.items[i]));
    return 0;
}

static int find_attachments(void *arg, const char *volume_name, struct kube_object_list *list, struct err *err)
{
    auto_objects struct kube_object_list all = {0};
    if (find_all(arg, &kube_kind_attachment, &all, err) < 0)
        return -1;
    for (size_t i = 0; i < all.len; i++)
        if (str_eq(((const struct kube_attachment *)all.items[i])->volume_name, volume_name))
            kube_object_list_add(list, kube_object_ref(all.items[i]));
    return 0;
}

void fixture_init(struct fixture *fixture)
{
    *fixture = (struct fixture){
        .config = {.driver_name = "d",
                   .identity = "identity",
                   .volume_name_prefix = "pvc",
                   .volume_name_uuid_length = -1,
                   .default_fstype = "",
                   .immediate_topology = true,
                   .prevent_volume_mode_conversion = true,
                   .gate_topology = true,
                   .gate_attributes_class = true,
                   .capabilities = {.controller_service = true,
                                    .create_delete_volume = true,
                                    .create_delete_snapshot = true,
                                    .clone_volume = true,
                                    .modify_volume = true}},
        .lookup = {.arg = fixture,
                   .claim = find_claim,
                   .volume = find_volume,
                   .class_ = find_class,
                   .secret = find_secret,
                   .snapshot = find_snapshot,
                   .snapshot_content = find_content,
                   .attributes_class = find_attributes_class,
                   .namespace_ = find_namespace,
                   .node = find_node,
                   .csi_node = find_csi_node,
                   .nodes = all_nodes,
                   .csi_nodes = all_csi_nodes,
                   .grants = find_grants,
                   .attachments = find_attachments},
    };
}

void fixture_free(struct fixture *fixture)
{
    kube_object_list_free(&fixture->objects);
    strv_free(&fixture->config.pass_claim_annotations);
    strv_free(&fixture->config.pass_claim_labels);
    strv_free(&fixture->config.pass_namespace_labels);
    strv_free(&fixture->config.copy_claim_annotations);
    strv_free(&fixture->config.copy_claim_labels);
}

void expect_error(const struct err *err, const char *part)
{
    if (err->code == ERR_NONE || strstr(err_text(err), part) == NULL)
        fail_msg("expected an error with \"%s\", got \"%s\"", part, err_text(err));
}

char *fixture_map_text(struct csi_map map)
{
    auto_strv struct strv list = {0};
    const char *key, *value;
    for (size_t i = 0; i < map.len; i++)
        if (csi_map_at(map, i, &key, &value))
            strv_add_take(&list, mem_printf("%s=%s", key, value));
    strv_sort(&list);
    return strv_join(&list, ",");
}
