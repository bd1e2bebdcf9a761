/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "provisioner/capacity.h"
#include "provisioner/finalizers.h"

#include <stdlib.h>

static void expect_json(json_t *got, const char *expected)
{
    json_t *want = fixture_json(expected);
    if (!json_equal(got, want)) {
        auto_free char *text = json_dumps(got, JSON_INDENT(1) | JSON_SORT_KEYS);
        fail_msg("%s", text);
    }
    json_decref(got);
    json_decref(want);
}

static void test_manager(void **state)
{
    (void)state;
    static const struct {
        const char *node, *manager;
    } table[] = {
        {"node-1", "external-provisioner-node-1"},
        /* 42 characters still fit */
        {"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
         "external-provisioner-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"},
        {"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
         "external-p-53f40b57-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"},
        /* no room for any of the base */
        {"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", "external-provisioner-68181516"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct provision_config config = {.node_deployment = true, .node_name = table[i].node};
        auto_free char *manager = capacity_managed_by(&config);
        assert_string_equal(manager, table[i].manager);
        assert_true(strlen(manager) <= 63);
    }
    struct provision_config central = {.node_name = "ignored"};
    auto_free char *manager = capacity_managed_by(&central);
    assert_string_equal(manager, "external-provisioner");
}

static void test_eligible_classes(void **state)
{
    (void)state;
    static const struct {
        const char *class_;
        bool immediate_too, eligible;
    } table[] = {
        {"'provisioner': 'd', 'volumeBindingMode': 'WaitForFirstConsumer'", false, true},
        {"'provisioner': 'd', 'volumeBindingMode': 'Immediate'", false, false},
        {"'provisioner': 'd', 'volumeBindingMode': 'Immediate'", true, true},
        {"'provisioner': 'd'", false, true},
        {"'provisioner': 'other', 'volumeBindingMode': 'WaitForFirstConsumer'", true, false},
        {"'provisioner': 'in-tree', 'volumeBindingMode': 'WaitForFirstConsumer'", false,
         false}, /* nobody looks for them */
    };
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    fixture.config.migrated_plugin = "in-tree";
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct kube_class *class_ =
            fixture_add(&fixture, &kube_kind_class, "{'metadata': {'name': 'c'}, %s}", table[i].class_);
        if (capacity_class_is_eligible(&fixture.config, class_, table[i].immediate_too) != table[i].eligible)
            fail_msg("%zu", i);
    }
}

static void test_objects(void **state)
{
    (void)state;
    const struct provision_config config = {.driver_name = "d"};
    const struct kube_owner owner = {
        .api_version = "apps/v1", .kind = "StatefulSet", .name = "s", .uid = "u", .controller = true};
    json_t *segment = fixture_json("{'zone': 'a'}");
    json_t *with = capacity_build(&config, "ns", "fast", segment, 1 << 30, 1 << 20, &owner, "storage.k8s.io/v1");
    json_t *without = capacity_build(&config, "ns", "fast", segment, 0, -1, NULL, "storage.k8s.io/v1beta1");
    json_t *live = fixture_json("{'metadata': {'name': 'csisc-x', 'labels': {'mine': 'x'}}, 'capacity': '5', "
                                "'maximumVolumeSize': '7', 'storageClassName': 'fast'}");
    capacity_update_fields(live, without);
    expect_json(live, "{'metadata': {'name': 'csisc-x', 'labels': {'mine': 'x'}}, 'capacity': '0', "
                      "'storageClassName': 'fast'}");
    live = fixture_json("{'metadata': {'name': 'csisc-x'}, 'capacity': '5'}");
    capacity_update_fields(live, with);
    expect_json(live, "{'metadata': {'name': 'csisc-x', 'ownerReferences': [{'apiVersion': 'apps/v1', 'kind': "
                      "'StatefulSet', 'name': 's', 'uid': 'u', 'controller': true}]}, 'capacity': '1Gi', "
                      "'maximumVolumeSize': '1Mi'}");
#define LABELS                                                                                                         \
    "'labels': {'csi.storage.k8s.io/drivername': 'd', 'csi.storage.k8s.io/managed-by': 'external-provisioner'}"
    expect_json(with, "{'apiVersion': 'storage.k8s.io/v1', 'kind': 'CSIStorageCapacity', 'metadata': {'generateName': "
                      "'csisc-', 'namespace': 'ns', " LABELS ", 'ownerReferences': [{'apiVersion': 'apps/v1', 'kind': "
                      "'StatefulSet', 'name': 's', 'uid': 'u', 'controller': true}]}, 'storageClassName': 'fast', "
                      "'nodeTopology': {'matchLabels': {'zone': 'a'}}, 'capacity': '1Gi', 'maximumVolumeSize': '1Mi'}");
    expect_json(without, "{'apiVersion': 'storage.k8s.io/v1beta1', 'kind': 'CSIStorageCapacity', 'metadata': "
                         "{'generateName': 'csisc-', 'namespace': 'ns', " LABELS "}, 'storageClassName': 'fast', "
                         "'nodeTopology': {'matchLabels': {'zone': 'a'}}, 'capacity': '0'}");
    json_decref(segment);
}

static void test_finalizer_patches(void **state)
{
    (void)state;
    static const char *const present[] = {"kubernetes.io/pv-protection", "x"};
    expect_json(
        finalizer_add_patch(&(struct kube_strings){.items = present, .len = 2}, "f"),
        "{'metadata': {'finalizers': ['f'], '$setElementOrder/finalizers': ['kubernetes.io/pv-protection', 'x', "
        "'f']}}");
    expect_json(finalizer_remove_patch("f"), "{'metadata': {'$deleteFromPrimitiveList/finalizers': ['f']}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_manager), cmocka_unit_test(test_eligible_classes),
                                       cmocka_unit_test(test_objects), cmocka_unit_test(test_finalizer_patches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
