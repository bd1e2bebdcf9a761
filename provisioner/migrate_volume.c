/* SPDX-License-Identifier: Apache-2.0 */
/* What the fields mean is fixed by the plugins' API types and by the formats of the drivers' volume ids. */
#include "provisioner/migrate.h"

#include "lib/base/mem.h"

#include <stdlib.h>
#include <strings.h>

#define ZONE "topology.kubernetes.io/zone"
#define REGION "topology.kubernetes.io/region"
#define BETA_ZONE "failure-domain.beta.kubernetes.io/zone"
#define ZONES_SEPARATOR "__" /* between the zones of a label */
#define RESOURCE_GROUP "kubernetes.io/azure-file-resource-group"
#define ACCOUNT_SECRET_START "azure-storage-account-"
#define ACCOUNT_SECRET_END "-secret"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return str_empty(text) ? NULL : text;
}

/* A volume attribute; drivers do not agree on the letter case. */
static const char *attribute(const json_t *csi, const char *name)
{
    const char *key;
    json_t *value;
    json_object_foreach (json_object_get(csi, "volumeAttributes"), key, value)
        if (strcasecmp(key, name) == 0)
            return str_empty(json_string_value(value)) ? NULL : json_string_value(value);
    return NULL;
}

static void set(json_t *object, const char *key, const char *value)
{
    if (value != NULL)
        json_object_set_new(object, key, json_string(value));
}

/* ---- topology ---- */

/* "europe-west1-b" → "europe-west1"; owned, NULL = not of that form. */
static char *gce_region(const char *zone)
{
    auto_strv struct strv parts = {0};
    strv_split(&parts, zone, '-');
    return parts.len == 3 ? mem_printf("%s-%s", parts.items[0], parts.items[1]) : NULL;
}

/* us-west-2a, us-gov-east-1a; local zones: us-west-2-lax-1a; wavelength: us-east-1-wl1-bos-wlz-1. */
static char *aws_region(const char *zone)
{
    auto_strv struct strv parts = {0};
    strv_split(&parts, zone, '-');
    if (parts.len == 5 || parts.len == 7)
        return mem_printf("%s-%s-%s", parts.items[0], parts.items[1], parts.items[2]);
    if ((parts.len != 3 && parts.len != 4) || strlen(parts.items[parts.len - 1]) != 2)
        return NULL;
    return mem_strndup(zone, strlen(zone) - 1);
}

/* The one region of all those zones, or NULL. */
static char *common_region(const struct strv *zones, char *(*region_of)(const char *zone))
{
    auto_free char *region = NULL;
    for (size_t i = 0; i < zones->len; i++) {
        auto_free char *next = region_of(zones->items[i]);
        if (next == NULL || (region != NULL && !str_eq(next, region)))
            return NULL;
        free(region);
        region = mem_take(next);
    }
    return mem_take(region);
}

static void rename_key(json_t *terms, const char *from, const char *to)
{
    size_t t, e;
    json_t *term, *expression;
    json_array_foreach (terms, t, term)
        json_array_foreach (json_object_get(term, "matchExpressions"), e, expression)
            if (str_eq(text_of(expression, "key"), from))
                json_object_set_new(expression, "key", json_string(to));
}

/* Values of a key in one term, or in all when `only` is NULL; sorted, each once. */
static void values_of(const json_t *terms, const json_t *only, const char *key, struct strv *values)
{
    size_t t, e, v;
    json_t *term, *expression, *value;
    json_array_foreach (terms, t, term) {
        if (only != NULL && term != only)
            continue;
        json_array_foreach (json_object_get(term, "matchExpressions"), e, expression) {
            if (!str_eq(text_of(expression, "key"), key))
                continue;
            json_array_foreach (json_object_get(expression, "values"), v, value)
                if (!strv_contains(values, json_string_value(value)))
                    strv_add(values, json_string_value(value));
        }
    }
    strv_sort(values);
}

/* Terms that name zones get their region. One that cannot be told is left out: the zone says it all. */
static void add_regions(json_t *terms, char *(*region_of)(const char *zone))
{
    size_t t;
    json_t *term;
    json_array_foreach (terms, t, term) {
        auto_strv struct strv zones = {0}, regions = {0};
        values_of(terms, term, ZONE, &zones);
        values_of(terms, term, REGION, &regions);
        auto_free char *region = regions.len == 0 ? common_region(&zones, region_of) : NULL;
        if (region != NULL)
            json_array_append_new(json_object_get(term, "matchExpressions"),
                                  json_pack("{s:s, s:s, s:[s]}", "key", REGION, "operator", "In", "values", region));
    }
}

static void add_label(json_t *volume, const char *key, const char *value)
{
    json_t *metadata = json_object_get(volume, "metadata"), *labels = json_object_get(metadata, "labels");
    if (labels == NULL) {
        labels = json_object();
        json_object_set_new(metadata, "labels", labels);
    }
    if (json_object_get(labels, key) == NULL)
        json_object_set_new(labels, key, json_string(value));
}

static void add_labels(json_t *volume, const json_t *terms)
{
    auto_strv struct strv zones = {0}, regions = {0};
    values_of(terms, NULL, ZONE, &zones);
    values_of(terms, NULL, REGION, &regions);
    auto_free char *joined = strv_join(&zones, ZONES_SEPARATOR);
    if (zones.len > 0)
        add_label(volume, ZONE, joined);
    if (regions.len == 1)
        add_label(volume, REGION, regions.items[0]);
}

/* ---- sources ---- */

static int add_partition(const json_t *csi, json_t *source, struct err *err)
{
    const char *text = attribute(csi, "partition");
    uint64_t number = 0;
    if (text == NULL)
        return 0;
    if (!str_parse_u64(text, &number) || number > INT32_MAX)
        return err_set(err, ERR_INVALID, "failed to convert partition %s to integer", text);
    if (number > 0)
        json_object_set_new(source, "partition", json_integer((json_int_t)number));
    return 0;
}

static int to_volume_id(const json_t *csi, json_t *volume, json_t *source, struct err *err)
{
    (void)volume;
    set(source, "volumeID", text_of(csi, "volumeHandle"));
    return add_partition(csi, source, err);
}

/* projects/P/zones/Z/disks/NAME or projects/P/regions/R/disks/NAME */
static int to_gce(const json_t *csi, json_t *volume, json_t *source, struct err *err)
{
    (void)volume;
    auto_strv struct strv parts = {0};
    strv_split(&parts, text_of(csi, "volumeHandle"), '/');
    if (parts.len < 6 || *parts.items[5] == '\0')
        return err_set(err, ERR_INVALID, "volume id %s has no name of a disk", text_of(csi, "volumeHandle"));
    set(source, "pdName", parts.items[5]);
    return add_partition(csi, source, err);
}

static int to_azure_disk(const json_t *csi, json_t *volume, json_t *source, struct err *err)
{
    (void)volume;
    const char *uri = text_of(csi, "volumeHandle"), *slash = strrchr(uri, '/');
    if (slash == NULL || slash[1] == '\0')
        return err_set(err, ERR_INVALID, "could not get the disk's name from %s", uri);
    set(source, "diskName", slash + 1);
    set(source, "diskURI", uri);
    set(source, "cachingMode", attribute(csi, "cachingMode"));
    set(source, "fsType", attribute(csi, "fsType"));
    set(source, "kind", attribute(csi, "kind") != NULL ? attribute(csi, "kind") : "Managed");
    if (json_object_get(source, "readOnly") == NULL)
        json_object_set_new(source, "readOnly", json_false());
    return 0;
}

/* GROUP#ACCOUNT#SHARE… where the attributes do not say it. */
static int to_azure_file(const json_t *csi, json_t *volume, json_t *source, struct err *err)
{
    const char *share = attribute(csi, "sharename"), *secret = attribute(csi, "secretname");
    const char *space = attribute(csi, "secretnamespace");
    const json_t *reference = json_object_get(csi, "nodeStageSecretRef");
    auto_free char *made = NULL;
    auto_strv struct strv parts = {0};
    if (text_of(reference, "name") != NULL) {
        secret = text_of(reference, "name");
        space = text_of(reference, "namespace");
    }
    if (share == NULL || secret == NULL) {
        strv_split(&parts, text_of(csi, "volumeHandle"), '#');
        if (parts.len < 3)
            return err_set(err, ERR_INVALID, "volume id %s should contain two # at least",
                           text_of(csi, "volumeHandle"));
        made = mem_printf(ACCOUNT_SECRET_START "%s" ACCOUNT_SECRET_END, parts.items[1]);
        share = share != NULL ? share : parts.items[2];
        secret = secret != NULL ? secret : made;
        if (*parts.items[0] != '\0')
            set(json_object_get(json_object_get(volume, "metadata"), "annotations"), RESOURCE_GROUP, parts.items[0]);
    }
    set(source, "shareName", share);
    set(source, "secretName", secret);
    set(source, "secretNamespace", space != NULL ? space : "default");
    json_object_del(source, "fsType");
    return 0;
}

static int to_vsphere(const json_t *csi, json_t *volume, json_t *source, struct err *err)
{
    (void)volume;
    const char *path = attribute(csi, "initialvolumefilepath");
    if (path == NULL)
        return err_set(err, ERR_INVALID, "the CSI driver did not answer with the path of volume %s",
                       text_of(csi, "volumeHandle"));
    set(source, "volumePath", path);
    json_object_del(source, "readOnly");
    return 0;
}

static const struct form {
    const char *driver, *field;
    int (*build)(const json_t *csi, json_t *volume, json_t *source, struct err *err);
    const char *zone_key, *region_key;    /* of the driver; NULL = left as they are */
    char *(*region_of)(const char *zone); /* NULL = cannot be told from a zone */
} forms[] = {
    {"ebs.csi.aws.com", "awsElasticBlockStore", to_volume_id, "topology.ebs.csi.aws.com/zone", NULL, aws_region},
    {"pd.csi.storage.gke.io", "gcePersistentDisk", to_gce, "topology.gke.io/zone", NULL, gce_region},
    {"disk.csi.azure.com", "azureDisk", to_azure_disk, NULL, NULL, NULL},
    {"file.csi.azure.com", "azureFile", to_azure_file, NULL, NULL, NULL},
    {"cinder.csi.openstack.org", "cinder", to_volume_id, "topology.cinder.csi.openstack.org/zone", NULL, NULL},
    {"pxd.portworx.com", "portworxVolume", to_volume_id, NULL, NULL, NULL},
    {"csi.vsphere.vmware.com", "vsphereVolume", to_vsphere, "topology.csi.vmware.com/zone",
     "topology.csi.vmware.com/region", NULL},
};

static void translate_topology(const struct form *form, json_t *volume)
{
    json_t *affinity = json_object_get(json_object_get(volume, "spec"), "nodeAffinity");
    json_t *terms = json_object_get(json_object_get(affinity, "required"), "nodeSelectorTerms");
    if (terms == NULL || form->zone_key == NULL)
        return;
    rename_key(terms, form->zone_key, ZONE);
    if (form->region_key != NULL)
        rename_key(terms, form->region_key, REGION);
    if (form->region_of != NULL)
        add_regions(terms, form->region_of);
    add_labels(volume, terms);
}

int migrate_volume(const char *driver, json_t *volume, struct err *err)
{
    const struct form *form = forms;
    while (form < forms + ARRAY_LEN(forms) && !str_eq(form->driver, driver))
        form++;
    if (form == forms + ARRAY_LEN(forms))
        return err_set(err, ERR_INVALID, "volumes of driver %s have no in-tree form", driver);
    json_t *spec = json_object_get(volume, "spec"), *csi = json_object_get(spec, "csi"), *source = json_object();
    set(source, "fsType", text_of(csi, "fsType"));
    if (json_is_true(json_object_get(csi, "readOnly")))
        json_object_set_new(source, "readOnly", json_true());
    if (form->build(csi, volume, source, err) < 0) {
        json_decref(source);
        return err_wrap(err, "error translating the CSI volume to its in-tree form");
    }
    translate_topology(form, volume);
    json_object_set_new(spec, form->field, source);
    json_object_del(spec, "csi");
    return 0;
}

/* ---- handles ---- */

/* "aws://zone/vol-1", "aws:///vol-1" or "vol-1" */
static char *aws_handle(const char *id)
{
    const char *last = strrchr(id, '/');
    if (!str_starts(id, "aws://"))
        return mem_strdup(id);
    return str_starts(last + 1, "vol-") ? mem_strdup(last + 1) : NULL;
}

/* The driver looks for what is unspecified. */
static char *gce_handle(const json_t *volume, const char *name)
{
    const json_t *labels = json_object_get(json_object_get(volume, "metadata"), "labels");
    const char *label = text_of(labels, BETA_ZONE) != NULL ? text_of(labels, BETA_ZONE) : text_of(labels, ZONE);
    if (label == NULL || strstr(label, ZONES_SEPARATOR) == NULL)
        return mem_printf("projects/UNSPECIFIED/zones/%s/disks/%s", label != NULL ? label : "UNSPECIFIED", name);
    auto_strv struct strv zones = {0};
    for (const char *at = label; at != NULL;) {
        const char *end = strstr(at, ZONES_SEPARATOR);
        auto_free char *zone = end != NULL ? mem_strndup(at, (size_t)(end - at)) : mem_strdup(at);
        strv_add(&zones, zone);
        at = end != NULL ? end + strlen(ZONES_SEPARATOR) : NULL;
    }
    auto_free char *region = common_region(&zones, gce_region);
    return region != NULL ? mem_printf("projects/UNSPECIFIED/regions/%s/disks/%s", region, name) : NULL;
}

static char *azure_file_handle(const json_t *volume, const json_t *source)
{
    const json_t *metadata = json_object_get(volume, "metadata");
    const json_t *claim = json_object_get(json_object_get(volume, "spec"), "claimRef");
    const char *group = text_of(json_object_get(metadata, "annotations"), RESOURCE_GROUP);
    const char *share = text_of(source, "shareName"), *secret = text_of(source, "secretName");
    const char *space = text_of(source, "secretNamespace"), *name = text_of(metadata, "name");
    if (space == NULL)
        space = text_of(claim, "namespace");
    if (share == NULL || secret == NULL || space == NULL || name == NULL)
        return NULL;
    size_t start = strlen(ACCOUNT_SECRET_START), end = strlen(ACCOUNT_SECRET_END), len = strlen(secret);
    auto_free char *account =
        len > start + end && str_starts(secret, ACCOUNT_SECRET_START) && str_ends(secret, ACCOUNT_SECRET_END)
            ? mem_strndup(secret + start, len - start - end)
            : mem_strdup(secret);
    return mem_printf("%s#%s#%s#%s#%s", group != NULL ? group : "", account, share, name, space);
}

char *migrate_handle(const json_t *volume, struct err *err)
{
    const json_t *spec = json_object_get(volume, "spec");
    const json_t *file = json_object_get(spec, "azureFile");
    const char *id = NULL;
    char *handle = NULL;
    if ((id = text_of(json_object_get(spec, "awsElasticBlockStore"), "volumeID")) != NULL)
        handle = aws_handle(id);
    else if ((id = text_of(json_object_get(spec, "azureDisk"), "diskURI")) != NULL ||
             (id = text_of(json_object_get(spec, "cinder"), "volumeID")) != NULL ||
             (id = text_of(json_object_get(spec, "portworxVolume"), "volumeID")) != NULL ||
             (id = text_of(json_object_get(spec, "vsphereVolume"), "volumePath")) != NULL)
        handle = mem_strdup(id);
    else if ((id = text_of(json_object_get(spec, "gcePersistentDisk"), "pdName")) != NULL)
        handle = gce_handle(volume, id);
    else if (file != NULL)
        handle = azure_file_handle(volume, file);
    if (handle == NULL)
        err_set(err, ERR_INVALID,
                "the handle of this in-tree volume cannot be told; delete it with its driver's tools");
    return handle;
}
