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
        {"disk.csi.azure.com", "kubernetes.io/azure-disk", "'zone': 'a'", "", "", "topology.disk.csi.azure.com/zone=a"},
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
        {"{'spec': {'awsElasticBlockStore': {'volumeID': 'aws://x/'}}}", NULL},
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
        {"{'spec': {'gcePersistentDisk': {'pdName': 'p'}}}", NULL},
        {"{'spec': {'vsphereVolume': {'volumePath': 'p'}}}", NULL},
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_handles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
