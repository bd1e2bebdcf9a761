/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "controller/profile.h"
#include "lib/base/mem.h"

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        int minor; /* -1 = refused */
    } cases[] = {{"v1.20.2", 20}, {"1.36", 36},    {"v1.28.3+k3s1", 28}, {"v1.30.0-eks-1", 30},
                 {"1.28+", 28},   {"v1.19.0", 20}, {"v1.99.0", 36},      {"v2.0.0", 36},
                 {"", -1},        {"v1", -1},      {"vx.y", -1},         {"v0.9", -1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct controller_profile profile;
        auto_err struct err err = {0};
        int result = profile_init_from_version(&profile, cases[i].version, &err);
        assert_int_equal(result, cases[i].minor < 0 ? -1 : 0);
        if (result == 0)
            assert_int_equal(profile.minor, cases[i].minor);
    }
}

static void test_changes(void **state)
{
    (void)state;
    struct controller_profile old, now;
    profile_init(&old, 20);
    profile_init(&now, 36);
    assert_false(old.stable_provisioner_annotation || old.volume_finalizers || old.retroactive_default_class ||
                 old.pre_resize_capacity || old.refuses_data_source || old.csi_is_external ||
                 old.new_external_provisioning);
    assert_true(now.stable_provisioner_annotation && now.volume_finalizers && now.retroactive_default_class &&
                now.pre_resize_capacity && now.refuses_data_source && now.csi_is_external &&
                now.new_external_provisioning);
}

static void test_migration(void **state)
{
    (void)state;
    static const struct {
        const char *plugin, *driver;
    } table[] = {
        {"kubernetes.io/aws-ebs", "ebs.csi.aws.com"},
        {"kubernetes.io/gce-pd", "pd.csi.storage.gke.io"},
        {"kubernetes.io/azure-disk", "disk.csi.azure.com"},
        {"kubernetes.io/azure-file", "file.csi.azure.com"},
        {"kubernetes.io/cinder", "cinder.csi.openstack.org"},
        {"kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"},
        {"kubernetes.io/portworx-volume", "pxd.portworx.com"},
    };
    struct controller_profile old, now;
    profile_init(&old, 20);
    profile_init(&now, 36);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        assert_string_equal(profile_migrated_driver(&now, table[i].plugin), table[i].driver);
        assert_null(profile_migrated_driver(&old, table[i].plugin));
    }
    assert_null(profile_migrated_driver(&now, "kubernetes.io/host-path"));
    assert_null(profile_migrated_driver(&now, "ebs.csi.aws.com"));
}

static void test_plugins(void **state)
{
    (void)state;
    struct controller_profile now;
    profile_init(&now, 36);
    const struct controller_plugin *nfs = profile_plugin_by_name(&now, PLUGIN_NFS);
    const struct controller_plugin *host_path = profile_plugin_by_name(&now, PLUGIN_HOST_PATH);
    assert_true(nfs->recycles && !nfs->deletes && !nfs->provisions && nfs->mount_options);
    assert_true(host_path->recycles && host_path->deletes && host_path->provisions && !host_path->mount_options);
    assert_null(profile_plugin_by_name(&now, "kubernetes.io/rbd"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_migration),
        cmocka_unit_test(test_plugins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
