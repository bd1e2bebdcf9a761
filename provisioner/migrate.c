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

struct renamed {
    const char *from, *to;
};

/* vSphere's classes: what is not here has no meaning to the driver. */
static const struct renamed vsphere_parameters[] = {
    {"storagepolicyname", "storagepolicyname"},
    {"datastore", "datastore-migrationparam"},
    {"diskformat", "diskformat-migrationparam"},
    {"hostfailurestotolerate", "hostfailurestotolerate-migrationparam"},
    {"forceprovisioning", "forceprovisioning-migrationparam"},
    {"cachereservation", "cachereservation-migrationparam"},
    {"diskstripes", "diskstripes-migrationparam"},
    {"objectspacereservation", "objectspacereservation-migrationparam"},
    {"iopslimit", "iopslimit-migrationparam"},
    {NULL, NULL},
};

/* Drivers whose classes differ from those of the plugin. */
static const struct dialect {
    const char *driver;
    const char *zone_key;
    const char *zone_parameters[3]; /* by which classes of the plugin named zones */
    bool renames_fstype;            /* to the CSI key; else the driver sees it too */
    const struct renamed *known;    /* all parameters there are; NULL = any, unchanged */
    const char *marker;             /* a parameter that says "true": the driver shall behave as the plugin did */
} dialects[] = {
    {.driver = "ebs.csi.aws.com",
     .zone_key = "topology.ebs.csi.aws.com/zone",
     .zone_parameters = {"zone", "zones"},
     .renames_fstype = true},
    {.driver = "pd.csi.storage.gke.io",
     .zone_key = "topology.gke.io/zone",
     .zone_parameters = {"zone", "zones"},
     .renames_fstype = true},
    {.driver = "disk.csi.azure.com",
     .zone_key = "topology.disk.csi.azure.com/zone",
     .zone_parameters = {"zone", "zones"},
     .marker = "csi-migration"},
    {.driver = "cinder.csi.openstack.org",
     .zone_key = "topology.cinder.csi.openstack.org/zone",
     .zone_parameters = {"availability"},
     .renames_fstype = true},
    {.driver = "csi.vsphere.vmware.com",
     .zone_key = "topology.csi.vmware.com/zone",
     .renames_fstype = true,
     .known = vsphere_parameters,
     .marker = "csimigration"},
};

static const struct dialect *dialect_of(const char *driver)
{
    static const struct dialect none = {0};
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
        if (str_eq(dialects[i].driver, driver))
            return &dialects[i];
    return &none;
}

static bool is_zone_parameter(const struct dialect *dialect, const char *key)
{
    for (size_t i = 0; dialect->zone_parameters[i] != NULL; i++)
        if (strcasecmp(dialect->zone_parameters[i], key) == 0)
            return true;
    return false;
}

/* NULL = the driver does not know it. */
static const char *parameter_name(const struct dialect *dialect, const char *key)
{
    if (dialect->known == NULL)
        return key;
    for (const struct renamed *known = dialect->known; known->from != NULL; known++)
        if (strcasecmp(known->from, key) == 0)
            return known->to;
    return NULL;
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

static json_t *translate_parameters(const struct dialect *dialect, const struct kube_class *class_, json_t *zones)
{
    json_t *parameters = json_object();
    for (uint32_t i = 0; i < class_->parameters.len; i++) {
        const char *key = class_->parameters.items[i].key, *value = class_->parameters.items[i].value;
        if (dialect->renames_fstype && strcasecmp(key, "fstype") == 0) {
            json_object_set_new(parameters, "csi.storage.k8s.io/fstype", json_string(value));
        } else if (is_zone_parameter(dialect, key)) {
            add_zones(zones, value);
        } else if (parameter_name(dialect, key) != NULL) {
            json_object_set_new(parameters, parameter_name(dialect, key), json_string(value));
            /* the plugin raised too small a product of size and rate, the driver does so when asked */
            if (str_eq(dialect->driver, "ebs.csi.aws.com") && strcasecmp(key, "iopspergb") == 0)
                json_object_set_new(parameters, "allowautoiopspergbincrease", json_string("true"));
        }
    }
    if (dialect->marker != NULL)
        json_object_set_new(parameters, dialect->marker, json_string("true"));
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
    if (json_array_size(zones) > 0)
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

bool migrate_is_needed(const struct provision_config *config, const struct kube_class *class_)
{
    return config->migrated_plugin != NULL && str_eq(class_->provisioner, config->migrated_plugin);
}

struct kube_class *migrate_class(const struct provision_config *config, const struct kube_class *class_,
                                 struct err *err)
{
    if (!migrate_is_needed(config, class_))
        return (struct kube_class *)kube_object_ref((struct kube_object *)&class_->object);
    const struct dialect *dialect = dialect_of(config->driver_name);
    auto_json json_t *zones = json_array();
    json_t *parameters = translate_parameters(dialect, class_, zones);
    if (json_array_size(zones) > 0 && class_->allowed_topology_count > 0) {
        json_decref(parameters);
        err_set(err, ERR_INVALID, "StorageClass %s sets both zones among its parameters and allowedTopologies",
                class_->object.meta.name);
        return NULL;
    }
    json_t *options = json_array();
    for (uint32_t i = 0; i < class_->mount_options.len; i++)
        json_array_append_new(options, json_string(class_->mount_options.items[i]));
    auto_json json_t *json =
        json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:o, s:o}", "apiVersion", "storage.k8s.io/v1", "kind",
                  "StorageClass", "metadata", "name", class_->object.meta.name, "uid", class_->object.meta.uid,
                  "provisioner", class_->provisioner, "reclaimPolicy", class_->reclaim_policy, "mountOptions", options,
                  "parameters", parameters);
    if (class_->binding_mode != NULL)
        json_object_set_new(json, "volumeBindingMode", json_string(class_->binding_mode));
    json_object_set_new(json, "allowedTopologies", translate_topologies(class_, dialect->zone_key, zones));
    return (struct kube_class *)kube_object_decode(&kube_kind_class, json,
                                                   &(struct kube_decode_options){.all_annotations = true}, err);
}
