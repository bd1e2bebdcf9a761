/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/migrate.h"

#include "lib/base/mem.h"

#include <stdlib.h>
#include <strings.h>

static void json_cleanup(json_t **json)
{
    json_decref(*json);
}
#define auto_json __attribute__((cleanup(json_cleanup)))

/* Drivers with zones, and the parameters that in-tree classes named them by. */
static const struct {
    const char *driver, *zone_key;
    const char *parameters[3];
} zoned[] = {
    {"ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone", {"zone", "zones"}},
    {"pd.csi.storage.gke.io", "topology.gke.io/zone", {"zone", "zones"}},
    {"disk.csi.azure.com", "topology.disk.csi.azure.com/zone", {"zone", "zones"}},
    {"cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone", {"availability"}},
};

static const char *zone_key_of(const char *driver)
{
    for (size_t i = 0; i < ARRAY_LEN(zoned); i++)
        if (str_eq(zoned[i].driver, driver))
            return zoned[i].zone_key;
    return NULL;
}

static bool is_zone_parameter(const char *driver, const char *key)
{
    for (size_t i = 0; i < ARRAY_LEN(zoned); i++)
        for (size_t p = 0; str_eq(zoned[i].driver, driver) && zoned[i].parameters[p] != NULL; p++)
            if (strcasecmp(zoned[i].parameters[p], key) == 0)
                return true;
    return false;
}

/* "a, b" → ["a", "b"] */
static void add_zones(json_t *zones, const char *text)
{
    auto_strv struct strv list = {0};
    strv_split(&list, text, ',');
    for (size_t i = 0; i < list.len; i++) {
        char *zone = list.items[i] + strspn(list.items[i], " ");
        zone[strcspn(zone, " ")] = '\0';
        if (*zone != '\0')
            json_array_append_new(zones, json_string(zone));
    }
}

static json_t *translate_parameters(const struct provision_config *config, const struct kube_class *class_,
                                    json_t *zones)
{
    json_t *parameters = json_object();
    for (uint32_t i = 0; i < class_->parameters.len; i++) {
        const char *key = class_->parameters.items[i].key, *value = class_->parameters.items[i].value;
        if (strcasecmp(key, "fstype") == 0)
            json_object_set_new(parameters, "csi.storage.k8s.io/fstype", json_string(value));
        else if (is_zone_parameter(config->driver_name, key))
            add_zones(zones, value);
        else
            json_object_set_new(parameters, key, json_string(value));
    }
    return parameters;
}

static const char *translate_key(const char *key, const char *zone_key)
{
    bool zone = str_eq(key, "topology.kubernetes.io/zone") || str_eq(key, "failure-domain.beta.kubernetes.io/zone");
    return zone && zone_key != NULL ? zone_key : key;
}

static json_t *translate_topologies(const struct kube_class *class_, const char *zone_key, const json_t *zones)
{
    json_t *terms = json_array();
    if (json_array_size(zones) > 0 && zone_key != NULL) /* a class may have zones or allowedTopologies, not both */
        json_array_append_new(terms,
                              json_pack("{s:[{s:s, s:O}]}", "matchLabelExpressions", "key", zone_key, "values", zones));
    for (uint32_t t = 0; json_array_size(zones) == 0 && t < class_->allowed_topology_count; t++) {
        json_t *expressions = json_array();
        for (uint32_t k = 0; k < class_->allowed_topologies[t].len; k++) {
            const struct kube_topology_requirement *from = &class_->allowed_topologies[t].items[k];
            json_t *values = json_array();
            for (uint32_t v = 0; v < from->values.len; v++)
                json_array_append_new(values, json_string(from->values.items[v]));
            json_array_append_new(expressions,
                                  json_pack("{s:s, s:o}", "key", translate_key(from->key, zone_key), "values", values));
        }
        json_array_append_new(terms, json_pack("{s:o}", "matchLabelExpressions", expressions));
    }
    return terms;
}

struct kube_class *migrate_class(const struct provision_config *config, const struct kube_class *class_,
                                 struct err *err)
{
    if (config->migrated_plugin == NULL || !str_eq(class_->provisioner, config->migrated_plugin))
        return (struct kube_class *)kube_object_ref((struct kube_object *)&class_->object);
    auto_json json_t *zones = json_array();
    json_t *options = json_array();
    for (uint32_t i = 0; i < class_->mount_options.len; i++)
        json_array_append_new(options, json_string(class_->mount_options.items[i]));
    auto_json json_t *json =
        json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:o, s:o}", "apiVersion", "storage.k8s.io/v1", "kind",
                  "StorageClass", "metadata", "name", class_->object.meta.name, "uid", class_->object.meta.uid,
                  "provisioner", class_->provisioner, "reclaimPolicy", class_->reclaim_policy, "mountOptions", options,
                  "parameters", translate_parameters(config, class_, zones));
    if (class_->binding_mode != NULL)
        json_object_set_new(json, "volumeBindingMode", json_string(class_->binding_mode));
    json_object_set_new(json, "allowedTopologies",
                        translate_topologies(class_, zone_key_of(config->driver_name), zones));
    return (struct kube_class *)kube_object_decode(&kube_kind_class, json,
                                                   &(struct kube_decode_options){.all_annotations = true}, err);
}

/* ---- handles --------------------------------------------------------------------------------------------------------
 */

static const char *member(const json_t *spec, const char *source, const char *field)
{
    return json_string_value(json_object_get(json_object_get(spec, source), field));
}

/* "aws://zone/vol-1" or "vol-1" */
static char *last_part(const char *id)
{
    const char *slash = strrchr(id, '/');
    return mem_strdup(slash != NULL ? slash + 1 : id);
}

static char *gce_handle(const json_t *volume, const char *name)
{
    const json_t *labels = json_object_get(json_object_get(volume, "metadata"), "labels");
    const char *zone = json_string_value(json_object_get(labels, "topology.kubernetes.io/zone"));
    if (zone == NULL)
        zone = json_string_value(json_object_get(labels, "failure-domain.beta.kubernetes.io/zone"));
    /* a disk in two zones is a regional one, whose path takes the region instead */
    if (zone == NULL || strstr(zone, "__") != NULL)
        return NULL;
    return mem_printf("projects/UNSPECIFIED/zones/%s/disks/%s", zone, name);
}

char *migrate_handle(const json_t *volume, struct err *err)
{
    const json_t *spec = json_object_get(volume, "spec");
    const char *id = NULL;
    char *handle = NULL;
    if ((id = member(spec, "awsElasticBlockStore", "volumeID")) != NULL)
        handle = last_part(id);
    else if ((id = member(spec, "azureDisk", "diskURI")) != NULL || (id = member(spec, "cinder", "volumeID")) != NULL ||
             (id = member(spec, "portworxVolume", "volumeID")) != NULL)
        handle = mem_strdup(id);
    else if ((id = member(spec, "gcePersistentDisk", "pdName")) != NULL)
        handle = gce_handle(volume, id);
    if (handle == NULL || *handle == '\0') {
        free(handle);
        err_set(err, ERR_INVALID,
                "the handle of this in-tree volume cannot be told; delete it with its driver's tools");
        return NULL;
    }
    return handle;
}
