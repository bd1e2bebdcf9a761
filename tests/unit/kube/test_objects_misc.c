/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kube/object_text.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const struct kube_kind *kind;
        const char *group, *version, *plural, *name;
        bool namespaced;
    } table[] = {
        {&kube_kind_volume, "", "v1", "persistentvolumes", "PersistentVolume", false},
        {&kube_kind_claim, "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true},
        {&kube_kind_class, "storage.k8s.io", "v1", "storageclasses", "StorageClass", false},
        {&kube_kind_pod, "", "v1", "pods", "Pod", true},
        {&kube_kind_node, "", "v1", "nodes", "Node", false},
        {&kube_kind_csi_node, "storage.k8s.io", "v1", "csinodes", "CSINode", false},
        {&kube_kind_csi_driver, "storage.k8s.io", "v1", "csidrivers", "CSIDriver", false},
        {&kube_kind_attachment, "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false},
        {&kube_kind_lease, "coordination.k8s.io", "v1", "leases", "Lease", true},
        {&kube_kind_event, "", "v1", "events", "Event", true},
        {&kube_kind_secret, "", "v1", "secrets", "Secret", true},
        {&kube_kind_attributes_class, "storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass",
         false},
        {&kube_kind_attributes_class_v1beta1, "storage.k8s.io", "v1beta1", "volumeattributesclasses",
         "VolumeAttributesClass", false},
        {&kube_kind_capacity, "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", true},
        {&kube_kind_capacity_v1beta1, "storage.k8s.io", "v1beta1", "csistoragecapacities", "CSIStorageCapacity", true},
        {&kube_kind_capacity_v1alpha1, "storage.k8s.io", "v1alpha1", "csistoragecapacities", "CSIStorageCapacity",
         true},
        {&kube_kind_snapshot, "snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot", true},
        {&kube_kind_snapshot_content, "snapshot.storage.k8s.io", "v1", "volumesnapshotcontents",
         "VolumeSnapshotContent", false},
        {&kube_kind_reference_grant, "gateway.networking.k8s.io", "v1beta1", "referencegrants", "ReferenceGrant", true},
        {&kube_kind_namespace, "", "v1", "namespaces", "Namespace", false},
        {&kube_kind_replica_set, "apps", "v1", "replicasets", "ReplicaSet", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct kube_kind *kind = table[i].kind;
        assert_string_equal(kind->group, table[i].group);
        assert_string_equal(kind->version, table[i].version);
        assert_string_equal(kind->plural, table[i].plural);
        assert_string_equal(kind->kind, table[i].name);
        assert_int_equal(kind->namespaced, table[i].namespaced);
        assert_true(kind->singular[0] != '\0');
        /* each decodes to its own kind, and keeps the namespace only where there is one */
        auto_unref struct kube_object *object =
            object_of_text(kind, "{'metadata':{'name':'x','namespace':'n','resourceVersion':'5','uid':'u'}}");
        assert_string_equal(object->meta.namespace_, table[i].namespaced ? "n" : "");
        assert_int_equal(object->meta.resource_version, 5);
        auto_free char *text = mem_printf("{'kind':'%s','metadata':{'name':'x'}}", table[i].name);
        kube_object_unref(object_of_text(kind, text));
    }
}

static void test_class(void **state)
{
    (void)state;
    auto_unref struct kube_class *class = (struct kube_class *)object_of_text(
        &kube_kind_class,
        "{'metadata':{'name':'fast','creationTimestamp':'2024-05-01T10:00:00Z','annotations':{"
        "'storageclass.kubernetes.io/"
        "is-default-class':'true'}},'provisioner':'ebs.csi.aws.com','reclaimPolicy':'Retain'"
        ",'volumeBindingMode':'WaitForFirstConsumer','parameters':{'type':'gp3','csi.storage.k8s.io/fstype':'xfs'},"
        "'mountOptions':['noatime','discard'],'allowedTopologies':[{'matchLabelExpressions':[{'key':'zone','values':['"
        "a'"
        ",'b']},{'key':'rack','values':['1']}]},{}]}");
    assert_string_equal(class->provisioner, "ebs.csi.aws.com");
    assert_string_equal(class->reclaim_policy, "Retain");
    assert_string_equal(class->binding_mode, "WaitForFirstConsumer");
    assert_string_equal(kube_pairs_get(&class->parameters, "csi.storage.k8s.io/fstype"), "xfs");
    assert_string_equal(class->parameters.items[0].key, "csi.storage.k8s.io/fstype");
    assert_strings(&class->mount_options, "noatime,discard");
    assert_int_equal(class->allowed_topology_count, 2);
    assert_int_equal(class->allowed_topologies[0].len, 2);
    assert_string_equal(class->allowed_topologies[0].items[1].key, "rack");
    assert_strings(&class->allowed_topologies[0].items[0].values, "a,b");
    assert_int_equal(class->allowed_topologies[1].len, 0);
    assert_string_equal(kube_annotation(&class->object, KUBE_ANN_DEFAULT_CLASS), "true");

    auto_unref struct kube_class *bare =
        (struct kube_class *)object_of_text(&kube_kind_class, "{'metadata':{'name':'bare'},'provisioner':'p'}");
    assert_null(bare->binding_mode);
    assert_string_equal(bare->reclaim_policy, "");
    assert_int_equal(bare->allowed_topology_count, 0);
}

static void test_pod_claims(void **state)
{
    (void)state;
    auto_unref struct kube_pod *pod = (struct kube_pod *)object_of_text(
        &kube_kind_pod,
        "{'metadata':{'name':'web-0','namespace':'n'},'spec':{'nodeName':'node-1','volumes':[{'name':'scratch',"
        "'ephemeral':{'volumeClaimTemplate':{}}},{'name':'a','persistentVolumeClaim':{'claimName':'data-web-0'}},{'"
        "name'"
        ":'cfg','configMap':{'name':'c'}},{'name':'b','persistentVolumeClaim':{'claimName':'logs'}}]},'status':{'phase'"
        ":"
        "'Failed','message':'exit 1'}}");
    assert_strings(&pod->claims, "data-web-0,logs,web-0-scratch");
    assert_int_equal(pod->ephemeral_claims, 1);
    assert_string_equal(pod->node_name, "node-1");
    assert_string_equal(pod->phase, "Failed");
    assert_string_equal(pod->message, "exit 1");
    assert_false(pod->running_container);
    assert_text_refused(&kube_kind_pod,
                        "{'metadata':{'name':'p','namespace':'n'},'spec':{'volumes':[{'name':3,"
                        "'ephemeral':{}}]}}",
                        "Pod \"n/p\": spec.volumes[0].name: must be a string");
}

static void test_pod_running(void **state)
{
    (void)state;
    static const struct {
        const char *status;
        bool running;
    } table[] = {
        {"{}", false},
        {"{'containerStatuses':[]}", false},
        {"{'containerStatuses':[{'state':{'running':{'startedAt':'x'}}}]}", true},
        {"{'containerStatuses':[{'state':{'running':{}}},{'state':{'terminated':{}}}]}", true},
        {"{'containerStatuses':[{'state':{'terminated':{}}},{'state':{'waiting':{}}}]}", false},
        {"{'containerStatuses':[{'state':{'running':null}},{}]}", false},
        {"{'initContainerStatuses':[{'state':{'running':{}}}]}", true},
        {"{'ephemeralContainerStatuses':[{'state':{'running':{}}}]}", true},
        {"{'containerStatuses':[{'state':{'terminated':{}},'lastState':{'running':{}}}]}", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *text = mem_printf("{'metadata':{'name':'p','namespace':'n'},'status':%s}", table[i].status);
        auto_unref struct kube_pod *pod = (struct kube_pod *)object_of_text(&kube_kind_pod, text);
        if (pod->running_container != table[i].running)
            fail_msg("%s", table[i].status);
    }
}

static void test_csi_node(void **state)
{
    (void)state;
    auto_unref struct kube_csi_node *node = (struct kube_csi_node *)object_of_text(
        &kube_kind_csi_node, "{'metadata':{'name':'n'},'spec':{'drivers':[{'name':'d1','nodeID':'i-1','topologyKeys':["
                             "'zone','rack']},{'name':'d2','nodeID':'i-2','topologyKeys':null}]}}");
    assert_int_equal(node->driver_count, 2);
    assert_string_equal(node->drivers[0].name, "d1");
    assert_string_equal(node->drivers[0].node_id, "i-1");
    assert_strings(&node->drivers[0].topology_keys, "zone,rack");
    assert_int_equal(node->drivers[1].topology_keys.len, 0);
}

static void test_attachment(void **state)
{
    (void)state;
    auto_unref struct kube_attachment *attachment = (struct kube_attachment *)object_of_text(
        &kube_kind_attachment, "{'metadata':{'name':'a'},'spec':{'attacher':'d','nodeName':'n','source':{"
                               "'persistentVolumeName':'pv-1'}},'status':{'attached':true}}");
    assert_string_equal(attachment->attacher, "d");
    assert_string_equal(attachment->node_name, "n");
    assert_string_equal(attachment->volume_name, "pv-1");
    assert_true(attachment->attached);
    auto_unref struct kube_attachment *inline_ = (struct kube_attachment *)object_of_text(
        &kube_kind_attachment, "{'metadata':{'name':'a'},'spec':{'source':{'inlineVolumeSpec':{}}}}");
    assert_string_equal(inline_->volume_name, "");
    assert_false(inline_->attached);
}

static void test_lease(void **state)
{
    (void)state;
    auto_unref struct kube_lease *lease = (struct kube_lease *)object_of_text(
        &kube_kind_lease,
        "{'metadata':{'name':'l','namespace':'n'},'spec':{'holderIdentity':'me','leaseDurationSeconds'"
        ":15,'leaseTransitions':3,'acquireTime':'2024-05-01T10:00:00.000000Z','renewTime':"
        "'2024-05-01T10:00:02.500000Z'}}");
    assert_string_equal(lease->holder, "me");
    assert_int_equal(lease->duration_seconds, 15);
    assert_int_equal(lease->transitions, 3);
    assert_int_equal(lease->renew_time - lease->acquire_time, 2500 * CLOCK_MS);
    auto_unref struct kube_lease *odd = (struct kube_lease *)object_of_text(
        &kube_kind_lease, "{'metadata':{'name':'l','namespace':'n'},'spec':{'renewTime':'yesterday'}}");
    assert_int_equal(odd->renew_time, 0);
    assert_text_refused(&kube_kind_lease,
                        "{'metadata':{'name':'l','namespace':'n'},'spec':{'leaseDurationSeconds':'15'}}",
                        "Lease \"n/l\": spec.leaseDurationSeconds: must be an integer");
}

static void test_event(void **state)
{
    (void)state;
    auto_unref struct kube_event *event = (struct kube_event *)object_of_text(
        &kube_kind_event, "{'metadata':{'name':'e','namespace':'n'},'involvedObject':{'kind':'Pod','namespace':'n',"
                          "'name':'p','uid':'u','fieldPath':'spec'},'type':'Warning','reason':'Failed','message':'m',"
                          "'source':{'component':'kubelet'},'count':4}");
    assert_string_equal(event->involved.kind, "Pod");
    assert_string_equal(event->involved.field_path, "spec");
    assert_string_equal(event->type, "Warning");
    assert_string_equal(event->reason, "Failed");
    assert_string_equal(event->message, "m");
    assert_string_equal(event->component, "kubelet");
    assert_int_equal(event->count, 4);
    auto_unref struct kube_event *newer = (struct kube_event *)object_of_text(
        &kube_kind_event, "{'metadata':{'name':'e','namespace':'n'},'reportingComponent':'scheduler'}");
    assert_string_equal(newer->component, "scheduler");
}

static void test_secret(void **state)
{
    (void)state;
    auto_unref struct kube_secret *secret = (struct kube_secret *)object_of_text(
        &kube_kind_secret,
        "{'metadata':{'name':'s','namespace':'n'},'data':{'user':'YWRtaW4=','key':'czNjcmV0','none':''}}");
    assert_int_equal(secret->data.len, 3);
    assert_string_equal(kube_pairs_get(&secret->data, "user"), "admin");
    assert_string_equal(kube_pairs_get(&secret->data, "key"), "s3cret");
    assert_string_equal(kube_pairs_get(&secret->data, "none"), "");
    /* the value itself is in no message */
    assert_text_refused(&kube_kind_secret, "{'metadata':{'name':'s','namespace':'n'},'data':{'user':'%%%'}}",
                        "Secret \"n/s\": data.user: must be base64");
    assert_text_refused(&kube_kind_secret, "{'metadata':{'name':'s','namespace':'n'},'data':{'raw':'YQBi'}}",
                        "Secret \"n/s\": data.raw: holds a NUL byte, so it cannot be passed on as text");
    assert_text_refused(&kube_kind_secret, "{'metadata':{'name':'s','namespace':'n'},'data':{'raw':7}}",
                        "Secret \"n/s\": data.raw: must be a string");
}

static void test_attributes_class(void **state)
{
    (void)state;
    auto_unref struct kube_attributes_class *class = (struct kube_attributes_class *)object_of_text(
        &kube_kind_attributes_class, "{'metadata':{'name':'a'},'driverName':'d','parameters':{'iops':'3000'}}");
    assert_string_equal(class->driver_name, "d");
    assert_string_equal(kube_pairs_get(&class->parameters, "iops"), "3000");
}

static void test_capacity(void **state)
{
    (void)state;
    auto_unref struct kube_capacity *capacity = (struct kube_capacity *)object_of_text(
        &kube_kind_capacity, "{'metadata':{'name':'c','namespace':'n','labels':{'csi.storage.k8s.io/drivername':'d'},"
                             "'ownerReferences':[{'uid':'u','controller':true}]},'storageClassName':'fast',"
                             "'nodeTopology':{'matchLabels':{'zone':'a'},'matchExpressions':[{'key':'x','operator':"
                             "'Exists'}]},'capacity':'10Gi','maximumVolumeSize':'5Gi'}");
    assert_string_equal(capacity->class_name, "fast");
    assert_true(capacity->has_topology);
    assert_int_equal(capacity->topology.len, 2);
    assert_string_equal(kube_pairs_get(&capacity->topology_labels, "zone"), "a");
    assert_true(capacity->has_capacity);
    assert_true(capacity->has_maximum);
    assert_int_equal(kube_quantity_ceil(&capacity->maximum), 5368709120);
    auto_unref struct kube_capacity *nowhere = (struct kube_capacity *)object_of_text(
        &kube_kind_capacity_v1beta1, "{'metadata':{'name':'c','namespace':'n'},'capacity':'0'}");
    assert_false(nowhere->has_topology);
    assert_true(nowhere->has_capacity);
    assert_true(nowhere->capacity.nano == 0);
    assert_false(nowhere->has_maximum);
}

static void test_snapshot(void **state)
{
    (void)state;
    auto_unref struct kube_snapshot *snapshot = (struct kube_snapshot *)object_of_text(
        &kube_kind_snapshot, "{'metadata':{'name':'s','namespace':'n'},'status':{'boundVolumeSnapshotContentName':"
                             "'content-1','readyToUse':true,'restoreSize':'2Gi'}}");
    assert_string_equal(snapshot->content_name, "content-1");
    assert_true(snapshot->ready);
    assert_true(snapshot->has_restore_size);
    assert_int_equal(kube_quantity_ceil(&snapshot->restore_size), 2147483648);
    auto_unref struct kube_snapshot *number = (struct kube_snapshot *)object_of_text(
        &kube_kind_snapshot, "{'metadata':{'name':'s','namespace':'n'},'status':{'restoreSize':1024}}");
    assert_int_equal(kube_quantity_ceil(&number->restore_size), 1024);
    assert_false(number->ready);
}

static void test_snapshot_content(void **state)
{
    (void)state;
    auto_unref struct kube_snapshot_content *content = (struct kube_snapshot_content *)object_of_text(
        &kube_kind_snapshot_content,
        "{'metadata':{'name':'c','annotations':{'snapshot.storage.kubernetes.io/allow-volume-mode-change':'true'}},"
        "'spec':{'driver':'d','sourceVolumeMode':'Block','volumeSnapshotRef':{'name':'s','namespace':'n','uid':'u'}},"
        "'status':{'snapshotHandle':'h','readyToUse':true,'restoreSize':4096}}");
    assert_string_equal(content->driver, "d");
    assert_string_equal(content->handle, "h");
    assert_string_equal(content->source_volume_mode, "Block");
    assert_string_equal(content->snapshot_ref.name, "s");
    assert_string_equal(content->snapshot_ref.uid, "u");
    assert_true(content->ready);
    assert_true(content->has_restore_size);
    assert_int_equal(content->restore_size, 4096);
    assert_string_equal(kube_annotation(&content->object, "snapshot.storage.kubernetes.io/allow-volume-mode-change"),
                        "true");
}

static void test_reference_grant(void **state)
{
    (void)state;
    auto_unref struct kube_reference_grant *grant = (struct kube_reference_grant *)object_of_text(
        &kube_kind_reference_grant,
        "{'metadata':{'name':'g','namespace':'n'},'spec':{'from':[{'group':'','kind':'PersistentVolumeClaim',"
        "'namespace':'m'}],'to':[{'group':'snapshot.storage.k8s.io','kind':'VolumeSnapshot','name':'s'},{'kind':"
        "'VolumeSnapshot','name':''},{'kind':'VolumeSnapshot'}]}}");
    assert_int_equal(grant->from_count, 1);
    assert_string_equal(grant->from[0].namespace_, "m");
    assert_string_equal(grant->from[0].group, "");
    assert_int_equal(grant->to_count, 3);
    assert_string_equal(grant->to[0].name, "s");
    assert_string_equal(grant->to[1].name, "");
    assert_null(grant->to[2].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_class),
        cmocka_unit_test(test_pod_claims),
        cmocka_unit_test(test_pod_running),
        cmocka_unit_test(test_csi_node),
        cmocka_unit_test(test_attachment),
        cmocka_unit_test(test_lease),
        cmocka_unit_test(test_event),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_attributes_class),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_snapshot_content),
        cmocka_unit_test(test_reference_grant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
