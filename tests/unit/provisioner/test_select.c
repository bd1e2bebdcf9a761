/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "provisioner/secrets.h"
#include "provisioner/select.h"

#define GA "'volume.kubernetes.io/storage-provisioner'"
#define BETA "'volume.beta.kubernetes.io/storage-provisioner'"
#define MIGRATED "'pv.kubernetes.io/migrated-to'"

static const struct kube_claim *claim_with(struct fixture *fixture, const char *annotations, const char *spec)
{
    return fixture_add(fixture, &kube_kind_claim,
                       "{'metadata': {'namespace': 'default', 'name': 'c', 'uid': 'u-1', 'annotations': {%s}}, "
                       "'spec': {%s}}",
                       annotations, spec);
}

static void test_claims_for_us(void **state)
{
    (void)state;
    static const struct {
        const char *annotations, *spec;
        bool ours, ours_with_plugin;
    } table[] = {
        {"", "", false, false},
        {GA ": 'd'", "", true, true},
        {BETA ": 'd'", "", true, true},
        {GA ": 'other', " BETA ": 'd'", "", false, false},
        {GA ": 'd', " BETA ": 'other'", "", true, true},
        {GA ": 'd'", "'volumeName': 'v'", false, false},
        {GA ": 'in-tree', " MIGRATED ": 'd'", "", false, true},
        {GA ": 'in-tree'", "", false, false},
        {GA ": 'other', " MIGRATED ": 'd'", "", false, false},
        {MIGRATED ": 'd'", "", false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        const struct kube_claim *claim = claim_with(&fixture, table[i].annotations, table[i].spec);
        if (claim_is_for_us(&fixture.config, claim) != table[i].ours)
            fail_msg("%zu", i);
        fixture.config.migrated_plugin = "in-tree";
        if (claim_is_for_us(&fixture.config, claim) != table[i].ours_with_plugin)
            fail_msg("%zu with a plugin", i);
    }
}

static void test_selection(void **state)
{
    (void)state;
    static const struct {
        const char *annotations, *spec, *class_; /* class: members, NULL = none there */
        bool exists;
        enum claim_action action;
    } table[] = {
        {GA ": 'd'", "'storageClassName': 'fast'", "'provisioner': 'd'", false, CLAIM_PROVISION},
        {GA ": 'd'", "'storageClassName': 'fast'", "'provisioner': 'd'", true, CLAIM_STOP},
        {GA ": 'd'", "'storageClassName': 'fast'", "'provisioner': 'other'", false, CLAIM_STOP},
        {GA ": 'd'", "'storageClassName': 'fast'", NULL, false, CLAIM_CLASS_ERROR},
        {GA ": 'd'", "", "'provisioner': 'd'", false, CLAIM_CLASS_ERROR},
        {GA ": 'd', 'volume.beta.kubernetes.io/storage-class': 'fast'", "'storageClassName': 'no'",
         "'provisioner': 'd'", false, CLAIM_PROVISION},
        {GA ": 'd', 'volume.beta.kubernetes.io/storage-class': 'no'", "'storageClassName': 'fast'",
         "'provisioner': 'd'", false, CLAIM_CLASS_ERROR},
        {GA ": 'd'", "'storageClassName': 'fast'", "'provisioner': 'd', 'volumeBindingMode': 'WaitForFirstConsumer'",
         false, CLAIM_DROP},
        {GA ": 'd', 'volume.kubernetes.io/selected-node': ''", "'storageClassName': 'fast'",
         "'provisioner': 'd', 'volumeBindingMode': 'WaitForFirstConsumer'", false, CLAIM_DROP},
        {GA ": 'd', 'volume.kubernetes.io/selected-node': 'n'", "'storageClassName': 'fast'",
         "'provisioner': 'd', 'volumeBindingMode': 'WaitForFirstConsumer'", false, CLAIM_PROVISION},
        {GA ": 'd'", "'storageClassName': 'fast'", "'provisioner': 'd', 'volumeBindingMode': 'Immediate'", false,
         CLAIM_PROVISION},
        {GA ": 'e'", "'storageClassName': 'fast'", "'provisioner': 'd'", false, CLAIM_DROP},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        auto_unref struct kube_class *class_ = NULL;
        auto_err struct err err = {0};
        fixture_init(&fixture);
        if (table[i].class_ != NULL)
            fixture_add(&fixture, &kube_kind_class, "{'metadata': {'name': 'fast', 'uid': 'x'}, %s}", table[i].class_);
        const struct kube_claim *claim = claim_with(&fixture, table[i].annotations, table[i].spec);
        enum claim_action action =
            claim_select(&fixture.config, &fixture.lookup, claim, table[i].exists, &class_, &err);
        if (action != table[i].action)
            fail_msg("%zu: %d", i, (int)action);
        assert_int_equal(class_ != NULL, action == CLAIM_PROVISION);
        assert_int_equal(err.code != ERR_NONE, action == CLAIM_CLASS_ERROR);
    }
}

#define OURS "'pv.kubernetes.io/provisioned-by': 'd'"
#define FINALIZER "'finalizers': ['x', 'external-provisioner.volume.kubernetes.io/finalizer']"
#define DELETING "'deletionTimestamp': '2024-01-01T00:00:00Z'"

static const struct kube_volume *volume_with(struct fixture *fixture, const char *annotations, const char *meta,
                                             const char *source, const char *policy, const char *phase)
{
    return fixture_add(
        fixture, &kube_kind_volume,
        "{'metadata': {'name': 'v', 'annotations': {%s}%s%s}, 'spec': {%s, "
        "'persistentVolumeReclaimPolicy': '%s', 'claimRef': {'namespace': 'ns', 'name': 'c', 'uid': 'u'}},"
        " 'status': {'phase': '%s'}}",
        annotations, *meta ? ", " : "", meta, source, policy, phase);
}

static void test_volumes_for_us(void **state)
{
    (void)state;
    static const struct {
        const char *annotations, *source;
        bool ours, ours_with_plugin;
    } table[] = {
        {OURS, "'csi': {'driver': 'd', 'volumeHandle': 'h'}", true, true},
        {"'pv.kubernetes.io/provisioned-by': 'e'", "'csi': {'driver': 'd', 'volumeHandle': 'h'}", false, false},
        {"", "'csi': {'driver': 'd', 'volumeHandle': 'h'}", true, true},
        {"", "'csi': {'driver': 'e', 'volumeHandle': 'h'}", false, false},
        {"", "'hostPath': {'path': '/'}", false, false},
        {MIGRATED ": 'd'", "'hostPath': {'path': '/'}", true, true},
        {"'pv.kubernetes.io/provisioned-by': 'in-tree'", "'hostPath': {'path': '/'}", false, true},
        {"'pv.kubernetes.io/provisioned-by': 'in-tree', " MIGRATED ": 'd'", "'hostPath': {'path': '/'}", true, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        const struct kube_volume *volume =
            volume_with(&fixture, table[i].annotations, "", table[i].source, "Delete", "Bound");
        if (volume_is_for_us(&fixture.config, volume) != table[i].ours)
            fail_msg("%zu", i);
        fixture.config.migrated_plugin = "in-tree";
        if (volume_is_for_us(&fixture.config, volume) != table[i].ours_with_plugin)
            fail_msg("%zu with a plugin", i);
    }
}

static void test_volume_actions(void **state)
{
    (void)state;
    static const struct {
        const char *meta, *policy, *phase;
        bool recycle;
        enum volume_action action;
    } table[] = {
        {"", "Delete", "Bound", false, VOLUME_ADD_FINALIZER},
        {FINALIZER, "Delete", "Bound", false, VOLUME_NOTHING},
        {DELETING, "Delete", "Bound", false, VOLUME_NOTHING},
        {"", "Delete", "Available", false, VOLUME_NOTHING},
        {"", "Delete", "Pending", false, VOLUME_NOTHING},
        {"", "Retain", "Bound", false, VOLUME_NOTHING},
        {FINALIZER, "Retain", "Bound", false, VOLUME_REMOVE_FINALIZER},
        {FINALIZER ", " DELETING, "Retain", "Released", false, VOLUME_REMOVE_FINALIZER},
        {FINALIZER, "Recycle", "Bound", false, VOLUME_REMOVE_FINALIZER},
        {FINALIZER, "Recycle", "Released", true, VOLUME_REMOVE_FINALIZER},
        {FINALIZER, "Delete", "Released", false, VOLUME_DELETE},
        {"", "Delete", "Released", false, VOLUME_DELETE},
        {FINALIZER ", " DELETING, "Delete", "Released", false, VOLUME_DELETE},
        {DELETING, "Delete", "Released", false, VOLUME_NOTHING},
        {FINALIZER, "Delete", "Failed", false, VOLUME_NOTHING},
        {"", "Retain", "Released", false, VOLUME_NOTHING},
        {"", "Recycle", "Released", false, VOLUME_NOTHING},
        {"", "Recycle", "Released", true, VOLUME_RECYCLE},
        {"", "Recycle", "Failed", true, VOLUME_RECYCLE},
        {"", "Recycle", "Bound", true, VOLUME_NOTHING},
        {DELETING, "Recycle", "Released", true, VOLUME_NOTHING},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        fixture.config.capabilities.recycle = table[i].recycle;
        const struct kube_volume *volume =
            volume_with(&fixture, OURS, table[i].meta, "'csi': {'driver': 'd', 'volumeHandle': 'h'}", table[i].policy,
                        table[i].phase);
        enum volume_action action = volume_select(&fixture.config, volume);
        if (action != table[i].action)
            fail_msg("%zu: %d", i, (int)action);
        /* nothing of all that with a volume of somebody else */
        volume = volume_with(&fixture, "'pv.kubernetes.io/provisioned-by': 'e'", table[i].meta,
                             "'csi': {'driver': 'e', 'volumeHandle': 'h'}", table[i].policy, table[i].phase);
        assert_int_equal(volume_select(&fixture.config, volume), VOLUME_NOTHING);
    }
}

#define SECRET "volume.kubernetes.io/provisioner-deletion-secret-name"
#define SECRET_NAMESPACE "volume.kubernetes.io/provisioner-deletion-secret-namespace"

static void test_deletion_secret(void **state)
{
    (void)state;
    static const struct {
        const char *annotations, *parameters; /* parameters NULL = no class */
        const char *namespace_, *name, *error;
    } table[] = {
        {"'" SECRET "': 'n', '" SECRET_NAMESPACE "': 'ns'", NULL, "ns", "n", NULL},
        {"'" SECRET "': '', '" SECRET_NAMESPACE "': ''", "'csiProvisionerSecretName': 'x'", NULL, NULL, NULL},
        {"", NULL, NULL, NULL, NULL},
        {"", "", NULL, NULL, NULL},
        {"",
         "'csi.storage.k8s.io/provisioner-secret-name': '${pv.name}-${pvc.name}', "
         "'csi.storage.k8s.io/provisioner-secret-namespace': '${pvc.namespace}'",
         "ns", "v-c", NULL},
        {"",
         "'csi.storage.k8s.io/provisioner-secret-name': '${nope}', 'csi.storage.k8s.io/provisioner-secret-namespace': "
         "'x'",
         NULL, NULL, "invalid tokens"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        auto_csi_arena struct csi_arena arena = {0};
        auto_err struct err err = {0};
        struct secret_reference reference;
        fixture_init(&fixture);
        if (table[i].parameters != NULL)
            fixture_class(&fixture, table[i].parameters, "");
        const struct kube_volume *volume = volume_with(
            &fixture, table[i].annotations, "",
            "'storageClassName': 'fast', 'csi': {'driver': 'd', 'volumeHandle': 'h'}", "Delete", "Released");
        int result = deletion_secret(&fixture.config, &fixture.lookup, volume, &arena, &reference, &err);
        assert_int_equal(result, table[i].error != NULL ? -1 : 0);
        if (table[i].error != NULL)
            expect_error(&err, table[i].error);
        if (!str_eq(reference.name, table[i].name) || !str_eq(reference.namespace_, table[i].namespace_))
            fail_msg("%zu: %s/%s", i, reference.namespace_, reference.name);
    }
}

static void test_attachments(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    auto_err struct err err = {0};
    fixture_init(&fixture);
    const struct kube_volume *volume =
        volume_with(&fixture, OURS, "", "'csi': {'driver': 'd', 'volumeHandle': 'h'}", "Delete", "Released");
    fixture_add(&fixture, &kube_kind_attachment,
                "{'metadata': {'name': 'a'}, 'spec': {'attacher': 'd', 'nodeName': 'n1', 'source': "
                "{'persistentVolumeName': 'w'}}}");
    assert_int_equal(deletion_check_attachments(&fixture.lookup, volume, &err), 0);
    fixture_add(&fixture, &kube_kind_attachment,
                "{'metadata': {'name': 'b'}, 'spec': {'attacher': 'd', 'nodeName': 'n2', 'source': "
                "{'persistentVolumeName': 'v'}}, 'status': {'attached': false}}");
    assert_int_equal(deletion_check_attachments(&fixture.lookup, volume, &err), -1);
    expect_error(&err, "persistentvolume v is still attached to node n2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claims_for_us),   cmocka_unit_test(test_selection),
        cmocka_unit_test(test_volumes_for_us),  cmocka_unit_test(test_volume_actions),
        cmocka_unit_test(test_deletion_secret), cmocka_unit_test(test_attachments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
