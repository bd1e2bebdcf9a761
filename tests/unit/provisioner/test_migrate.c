/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "provisioner/migrate.h"

#include <stdlib.h>

/* "key=v,v;key=v|…": requirements by ; and terms by |. */
static char *topologies_text(const struct kube_class *class_)
{
    struct str out = {0};
    for (uint32_t t = 0; t < class_->allowed_topology_count; t++)
        for (uint32_t k = 0; k < class_->allowed_topologies[t].len; k++) {
            const struct kube_topology_requirement *item = &class_->allowed_topologies[t].items[k];
            str_addf(&out, "%s%s=", k ? ";" : t ? "|" : "", item->key);
            for (uint32_t v = 0; v < item->values.len; v++)
                str_addf(&out, "%s%s", v ? "," : "", item->values.items[v]);
        }
    return str_take(&out);
}

static char *parameters_text(const struct kube_class *class_)
{
    struct str out = {0};
    for (uint32_t i = 0; i < class_->parameters.len; i++)
        str_addf(&out, "%s%s=%s", i ? "," : "", class_->parameters.items[i].key, class_->parameters.items[i].value);
    return str_take(&out);
}

static void test_classes(void **state)
{
    (void)state;
    static const struct {
        const char *driver, *provisioner, *parameters, *extra;
        const char *expected, *topologies;
    } table[] = {
        {"ebs.csi.aws.com", "ebs.csi.aws.com", "'fstype': 'xfs', 'zone': 'a'", "", "fstype=xfs,zone=a", ""},
        {"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "'fsType': 'xfs', 'type': 'gp2'", "",
         "csi.storage.k8s.io/fstype=xfs,type=gp2", ""},
        {"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "'zone': 'a'", "", "", "topology.ebs.csi.aws.com/zone=a"},
        {"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "'zones': 'a, b,c'", "", "",
         "topology.ebs.csi.aws.com/zone=a,b,c"},
        {"pd.csi.storage.gke.io", "kubernetes.io/gce-pd", "'zones': 'a'", "", "", "topology.gke.io/zone=a"},
        {"disk.csi.azure.com", "kubernetes.io/azure-disk", "'fsType': 'xfs', 'zone': 'a'", "",
         "csi-migration=true,fsType=xfs", "topology.disk.csi.azure.com/zone=a"},
        {"file.csi.azure.com", "kubernetes.io/azure-file", "'fstype': 'xfs', 'skuName': 's'", "",
         "fstype=xfs,skuName=s", ""},
        {"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "'iopsPerGB': '5'", "",
         "allowautoiopspergbincrease=true,iopsPerGB=5", ""},
        {"csi.vsphere.vmware.com", "kubernetes.io/vsphere-volume",
         "'datastore': 'd', 'diskFormat': 'thin', 'fstype': 'xfs', 'nonsense': 'x', 'storagePolicyName': 'p'",
         "'allowedTopologies': [{'matchLabelExpressions': [{'key': 'topology.kubernetes.io/zone', 'values': ['c']}]}]",
         "csi.storage.k8s.io/fstype=xfs,csimigration=true,datastore-migrationparam=d,diskformat-migrationparam=thin,"
         "storagepolicyname=p",
         "topology.csi.vmware.com/zone=c"},
        {"cinder.csi.openstack.org", "kubernetes.io/cinder", "'availability': 'nova', 'zone': 'x'", "", "zone=x",
         "topology.cinder.csi.openstack.org/zone=nova"},
        {"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "",
         "'allowedTopologies': [{'matchLabelExpressions': [{'key': 'failure-domain.beta.kubernetes.io/zone', 'values': "
         "['a', 'b']}, {'key': 'rack', 'values': ['1']}]}, {'matchLabelExpressions': [{'key': "
         "'topology.kubernetes.io/zone', 'values': ['c']}]}]",
         "", "topology.ebs.csi.aws.com/zone=a,b;rack=1|topology.ebs.csi.aws.com/zone=c"},
        {"pxd.portworx.com", "kubernetes.io/portworx-volume", "'repl': '2', 'zone': 'x'", "", "repl=2,zone=x", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        auto_err struct err err = {0};
        fixture_init(&fixture);
        fixture.config.driver_name = table[i].driver;
        fixture.config.migrated_plugin = kube_migrated_plugin(table[i].driver);
        const struct kube_class *class_ =
            fixture_add(&fixture, &kube_kind_class,
                        "{'metadata': {'name': 'c', 'uid': 'u'}, 'provisioner': '%s', 'reclaimPolicy': 'Retain', "
                        "'volumeBindingMode': 'Immediate', 'mountOptions': ['ro'], 'parameters': {%s}%s%s}",
                        table[i].provisioner, table[i].parameters, *table[i].extra ? ", " : "", table[i].extra);
        auto_unref struct kube_class *got = migrate_class(&fixture.config, class_, &err);
        assert_string_equal(err_text(&err), "no error");
        if (got == NULL)
            return;
        auto_free char *parameters = parameters_text(got), *topologies = topologies_text(got);
        assert_string_equal(parameters, table[i].expected);
        assert_string_equal(topologies, table[i].topologies);
        assert_string_equal(got->provisioner, table[i].provisioner);
        assert_string_equal(got->reclaim_policy, "Retain");
        assert_string_equal(got->binding_mode, "Immediate");
        assert_int_equal(got->mount_options.len, 1);
        assert_string_equal(got->object.meta.uid, "u");
    }
}

static void test_handles(void **state)
{
    (void)state;
    static const struct {
        const char *volume, *handle; /* NULL = error */
    } table[] = {
        {"{'spec': {'awsElasticBlockStore': {'volumeID': 'aws://us-east-1a/vol-1'}}}", "vol-1"},
        {"{'spec': {'awsElasticBlockStore': {'volumeID': 'vol-1'}}}", "vol-1"},
        {"{'spec': {'awsElasticBlockStore': {'volumeID': 'aws:///vol-1'}}}", "vol-1"},
        {"{'spec': {'awsElasticBlockStore': {'volumeID': 'aws://x/'}}}", NULL},
        {"{'spec': {'awsElasticBlockStore': {'volumeID': 'aws://x/snap-1'}}}", NULL},
        {"{'spec': {'azureDisk': {'diskURI': '/subscriptions/s/disks/d'}}}", "/subscriptions/s/disks/d"},
        {"{'spec': {'cinder': {'volumeID': 'v'}}}", "v"},
        {"{'spec': {'portworxVolume': {'volumeID': 'v'}}}", "v"},
        {"{'metadata': {'labels': {'topology.kubernetes.io/zone': 'z'}}, 'spec': {'gcePersistentDisk': {'pdName': "
         "'p'}}}",
         "projects/UNSPECIFIED/zones/z/disks/p"},
        {"{'metadata': {'labels': {'failure-domain.beta.kubernetes.io/zone': 'z'}}, 'spec': {'gcePersistentDisk': "
         "{'pdName': 'p'}}}",
         "projects/UNSPECIFIED/zones/z/disks/p"},
        {"{'metadata': {'labels': {'topology.kubernetes.io/zone': 'a__b'}}, 'spec': {'gcePersistentDisk': {'pdName': "
         "'p'}}}",
         NULL},
        {"{'metadata': {'labels': {'topology.kubernetes.io/zone': 'us-central1-a__us-central1-b'}}, 'spec': "
         "{'gcePersistentDisk': {'pdName': 'p'}}}",
         "projects/UNSPECIFIED/regions/us-central1/disks/p"},
        {"{'metadata': {'labels': {'topology.kubernetes.io/zone': 'us-central1-a__us-east1-b'}}, 'spec': "
         "{'gcePersistentDisk': {'pdName': 'p'}}}",
         NULL},
        {"{'spec': {'gcePersistentDisk': {'pdName': 'p'}}}", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/p"},
        {"{'spec': {'vsphereVolume': {'volumePath': '[ds] kube/p.vmdk'}}}", "[ds] kube/p.vmdk"},
        {"{'metadata': {'name': 'pv', 'annotations': {'kubernetes.io/azure-file-resource-group': 'g'}}, 'spec': "
         "{'azureFile': {'shareName': 's', 'secretName': 'azure-storage-account-acc-secret', 'secretNamespace': 'n'}}}",
         "g#acc#s#pv#n"},
        {"{'metadata': {'name': 'pv'}, 'spec': {'claimRef': {'namespace': 'c'}, 'azureFile': {'shareName': 's', "
         "'secretName': 'mine'}}}",
         "#mine#s#pv#c"},
        {"{'metadata': {'name': 'pv'}, 'spec': {'azureFile': {'shareName': 's', 'secretName': 'mine'}}}", NULL},
        {"{}", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_err struct err err = {0};
        json_t *volume = fixture_json(table[i].volume);
        auto_free char *handle = migrate_handle(volume, &err);
        if (!str_eq(handle, table[i].handle))
            fail_msg("%s: %s", table[i].volume, handle);
        assert_int_equal(err.code, table[i].handle == NULL ? ERR_INVALID : ERR_NONE);
        json_decref(volume);
    }
}

#define TERM(key, values) "{'matchExpressions': [{'key': '" key "', 'operator': 'In', 'values': [" values "]}]}"
#define AFFINITY(terms) ", 'nodeAffinity': {'required': {'nodeSelectorTerms': [" terms "]}}"
#define ZONES_AND_REGION(zone, region)                                                                                 \
    "{'matchExpressions': [{'key': 'topology.kubernetes.io/zone', 'operator': 'In', 'values': ['" zone "']}, {'key': " \
    "'topology.kubernetes.io/region', 'operator': 'In', 'values': ['" region "']}]}"

/* The CSI source and what follows it in the spec; the plugin's source, what follows it, labels; the handle again. */
static void test_volumes(void **state)
{
    (void)state;
    static const struct {
        const char *driver, *csi, *rest;
        const char *metadata, *spec; /* NULL = error */
        const char *handle;
    } table[] = {
        {"ebs.csi.aws.com", "'volumeHandle': 'vol-1', 'fsType': 'xfs', 'volumeAttributes': {'partition': '2'}",
         AFFINITY(TERM("topology.ebs.csi.aws.com/zone", "'us-east-1a'")),
         "'labels': {'topology.kubernetes.io/zone': 'us-east-1a', 'topology.kubernetes.io/region': 'us-east-1'}",
         "'awsElasticBlockStore': {'volumeID': 'vol-1', 'fsType': 'xfs', 'partition': 2}" AFFINITY(
             ZONES_AND_REGION("us-east-1a", "us-east-1")),
         "vol-1"},
        {"ebs.csi.aws.com", "'volumeHandle': 'vol-1', 'readOnly': true",
         AFFINITY(TERM("topology.ebs.csi.aws.com/zone", "'us-west-2-lax-1a'")),
         "'labels': {'topology.kubernetes.io/zone': 'us-west-2-lax-1a', 'topology.kubernetes.io/region': 'us-west-2'}",
         "'awsElasticBlockStore': {'volumeID': 'vol-1', 'readOnly': true}" AFFINITY(
             ZONES_AND_REGION("us-west-2-lax-1a", "us-west-2")),
         "vol-1"},
        {"ebs.csi.aws.com", "'volumeHandle': 'vol-1'", AFFINITY(TERM("topology.ebs.csi.aws.com/zone", "'moon'")),
         "'labels': {'topology.kubernetes.io/zone': 'moon'}",
         "'awsElasticBlockStore': {'volumeID': 'vol-1'}" AFFINITY(TERM("topology.kubernetes.io/zone", "'moon'")),
         "vol-1"},
        {"ebs.csi.aws.com", "'volumeHandle': 'vol-1', 'volumeAttributes': {'partition': 'x'}", "", NULL, NULL, NULL},
        {"pd.csi.storage.gke.io", "'volumeHandle': 'projects/p/regions/us-central1/disks/d'",
         AFFINITY(TERM("topology.gke.io/zone", "'us-central1-b'") ", " TERM("topology.gke.io/zone", "'us-central1-a'")),
         "'labels': {'topology.kubernetes.io/zone': 'us-central1-a__us-central1-b', 'topology.kubernetes.io/region': "
         "'us-central1'}",
         "'gcePersistentDisk': {'pdName': 'd'}" AFFINITY(
             ZONES_AND_REGION("us-central1-b", "us-central1") ", " ZONES_AND_REGION("us-central1-a", "us-central1")),
         "projects/UNSPECIFIED/regions/us-central1/disks/d"},
        {"pd.csi.storage.gke.io", "'volumeHandle': 'd'", "", NULL, NULL, NULL},
        {"disk.csi.azure.com",
         "'volumeHandle': '/subscriptions/s/disks/d', 'fsType': 'ext4', 'volumeAttributes': {'cachingmode': 'None', "
         "'fstype': 'xfs'}",
         AFFINITY(TERM("topology.disk.csi.azure.com/zone", "'z'")), "",
         "'azureDisk': {'diskName': 'd', 'diskURI': '/subscriptions/s/disks/d', 'fsType': 'xfs', 'cachingMode': "
         "'None', "
         "'kind': 'Managed', 'readOnly': false}" AFFINITY(TERM("topology.disk.csi.azure.com/zone", "'z'")),
         "/subscriptions/s/disks/d"},
        {"disk.csi.azure.com", "'volumeHandle': 'd'", "", NULL, NULL, NULL},
        {"file.csi.azure.com",
         "'volumeHandle': 'g#a#s#', 'volumeAttributes': {'shareName': 't'}, 'nodeStageSecretRef': {'name': 'k', "
         "'namespace': 'n'}",
         "", "", "'azureFile': {'shareName': 't', 'secretName': 'k', 'secretNamespace': 'n'}", "#k#t#pvc-1#n"},
        {"file.csi.azure.com", "'volumeHandle': 'g#a#s#', 'fsType': 'nfs'", "",
         "'annotations': {'kubernetes.io/azure-file-resource-group': 'g'}",
         "'azureFile': {'shareName': 's', 'secretName': 'azure-storage-account-a-secret', 'secretNamespace': "
         "'default'}",
         "g#a#s#pvc-1#default"},
        {"file.csi.azure.com", "'volumeHandle': 'g#a'", "", NULL, NULL, NULL},
        {"cinder.csi.openstack.org", "'volumeHandle': 'v'",
         AFFINITY(TERM("topology.cinder.csi.openstack.org/zone", "'nova'")),
         "'labels': {'topology.kubernetes.io/zone': 'nova'}",
         "'cinder': {'volumeID': 'v'}" AFFINITY(TERM("topology.kubernetes.io/zone", "'nova'")), "v"},
        {"pxd.portworx.com", "'volumeHandle': 'v', 'fsType': 'ext4'", "", "",
         "'portworxVolume': {'volumeID': 'v', 'fsType': 'ext4'}", "v"},
        {"csi.vsphere.vmware.com",
         "'volumeHandle': 'id', 'fsType': 'ext4', 'volumeAttributes': {'initialvolumefilepath': '[ds] p.vmdk'}",
         AFFINITY("{'matchExpressions': [{'key': 'topology.csi.vmware.com/zone', 'operator': 'In', 'values': ['z']}, "
                  "{'key': 'topology.csi.vmware.com/region', 'operator': 'In', 'values': ['r']}]}"),
         "'labels': {'topology.kubernetes.io/zone': 'z', 'topology.kubernetes.io/region': 'r'}",
         "'vsphereVolume': {'volumePath': '[ds] p.vmdk', 'fsType': 'ext4'}" AFFINITY(ZONES_AND_REGION("z", "r")),
         "[ds] p.vmdk"},
        {"csi.vsphere.vmware.com", "'volumeHandle': 'id'", "", NULL, NULL, NULL},
        {"other", "'volumeHandle': 'v'", "", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_err struct err err = {0};
        auto_free char *from =
            mem_printf("{'metadata': {'name': 'pvc-1', 'annotations': {}}, 'spec': {'csi': {'driver': '%s', %s}%s}}",
                       table[i].driver, table[i].csi, table[i].rest);
        json_t *volume = fixture_json(from);
        int result = migrate_volume(table[i].driver, volume, &err);
        assert_int_equal(result, table[i].spec != NULL ? 0 : -1);
        assert_int_equal(err.code, table[i].spec != NULL ? ERR_NONE : ERR_INVALID);
        if (table[i].spec != NULL) {
            bool annotated = strstr(table[i].metadata, "annotations") != NULL;
            auto_free char *to = mem_printf("{'metadata': {'name': 'pvc-1'%s%s%s}, 'spec': {%s}}",
                                            annotated ? "" : ", 'annotations': {}", *table[i].metadata ? ", " : "",
                                            table[i].metadata, table[i].spec);
            json_t *wanted = fixture_json(to);
            auto_free char *handle = migrate_handle(volume, &err);
            if (!json_equal(volume, wanted) || !str_eq(handle, table[i].handle)) {
                auto_free char *got = json_dumps(volume, JSON_SORT_KEYS);
                fail_msg("%zu: %s, handle %s", i, got, handle);
            }
            json_decref(wanted);
        }
        json_decref(volume);
    }
}

static void test_contradicting_class(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    auto_err struct err err = {0};
    fixture_init(&fixture);
    fixture.config.driver_name = "ebs.csi.aws.com";
    fixture.config.migrated_plugin = "kubernetes.io/aws-ebs";
    const struct kube_class *class_ =
        fixture_add(&fixture, &kube_kind_class,
                    "{'metadata': {'name': 'c'}, 'provisioner': 'kubernetes.io/aws-ebs', 'parameters': {'zone': 'a'}, "
                    "'allowedTopologies': [{'matchLabelExpressions': [{'key': 'k', 'values': ['v']}]}]}");
    assert_null(migrate_class(&fixture.config, class_, &err));
    expect_error(&err, "both zones");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_contradicting_class),
                                       cmocka_unit_test(test_volumes), cmocka_unit_test(test_handles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
