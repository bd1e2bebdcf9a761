/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kube/object_text.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/kube/objects_pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char claim_text[] =
    "{'kind':'PersistentVolumeClaim','apiVersion':'v1','metadata':{'name':'data-web-0','namespace':'default',"
    "'uid':'0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5','resourceVersion':'48213','creationTimestamp':'2024-05-01T10:00:00Z',"
    "'labels':{'app':'web'},'annotations':{'pv.kubernetes.io/bind-completed':'yes',"
    "'pv.kubernetes.io/bound-by-controller':'yes','volume.beta.kubernetes.io/storage-provisioner':'ebs.csi.aws.com',"
    "'volume.kubernetes.io/storage-provisioner':'ebs.csi.aws.com','kubectl.kubernetes.io/"
    "last-applied-configuration':'{}','team.example.com/owner':'storage'},"
    "'finalizers':['kubernetes.io/pvc-protection'],'managedFields':[{'manager':'kube','operation':'Update'}]},"
    "'spec':{'accessModes':['ReadWriteOnce'],'resources':{'requests':{'storage':'10Gi'}},"
    "'volumeName':'pvc-0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5','storageClassName':'fast','volumeMode':'Filesystem'},"
    "'status':{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'10Gi'}}}";

static const char volume_text[] =
    "{'metadata':{'name':'pvc-0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5','uid':'b0a5a2b6-0f25-4b64-9f8e-0f2a1a4f5a11',"
    "'resourceVersion':'48209','creationTimestamp':'2024-05-01T10:00:03Z','annotations':{"
    "'pv.kubernetes.io/provisioned-by':'ebs.csi.aws.com','volume.kubernetes.io/provisioner-deletion-secret-name':'',"
    "'volume.kubernetes.io/provisioner-deletion-secret-namespace':''},'finalizers':["
    "'external-provisioner.volume.kubernetes.io/finalizer','kubernetes.io/pv-protection']},"
    "'spec':{'capacity':{'storage':'10Gi'},'csi':{'driver':'ebs.csi.aws.com','volumeHandle':'vol-0a1b2c3d4e5f67890',"
    "'fsType':'ext4','volumeAttributes':{'storage.kubernetes.io/csiProvisionerIdentity':'1714557600000-8081-"
    "ebs.csi.aws.com'}},'accessModes':['ReadWriteOnce'],'claimRef':{'kind':'PersistentVolumeClaim','namespace':"
    "'default','name':'data-web-0','uid':'0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5','apiVersion':'v1','resourceVersion':"
    "'48190'},'persistentVolumeReclaimPolicy':'Delete','storageClassName':'fast','volumeMode':'Filesystem',"
    "'nodeAffinity':{'required':{'nodeSelectorTerms':[{'matchExpressions':[{'key':'topology.kubernetes.io/zone',"
    "'operator':'In','values':['eu-central-1a']}]}]}}},'status':{'phase':'Bound'}}";

static void test_claim(void **state)
{
    (void)state;
    auto_unref struct kube_claim *claim = (struct kube_claim *)object_of_text(&kube_kind_claim, claim_text);
    const struct kube_meta *meta = &claim->object.meta;
    assert_string_equal(meta->name, "data-web-0");
    assert_string_equal(meta->namespace_, "default");
    assert_string_equal(meta->uid, "0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5");
    assert_string_equal(meta->generate_name, "");
    assert_int_equal(meta->resource_version, 48213);
    int64_t created = 0;
    assert_true(clock_parse_rfc3339("2024-05-01T10:00:00Z", &created));
    assert_int_equal(meta->creation_time, created);
    assert_false(meta->deleting);
    assert_string_equal(kube_pairs_get(&meta->labels, "app"), "web");
    assert_strings(&meta->finalizers, "kubernetes.io/pvc-protection");
    assert_int_equal(meta->owner_count, 0);
    assert_string_equal(kube_annotation(&claim->object, KUBE_ANN_BIND_COMPLETED), "yes");
    assert_string_equal(kube_annotation(&claim->object, KUBE_ANN_STORAGE_PROVISIONER), "ebs.csi.aws.com");
    assert_string_equal(claim->class_name, "fast");
    assert_string_equal(claim->volume_name, "pvc-0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5");
    assert_string_equal(claim->volume_mode, "Filesystem");
    assert_null(claim->attributes_class);
    assert_strings(&claim->access_modes, "ReadWriteOnce");
    assert_true(claim->has_request);
    assert_int_equal(kube_quantity_ceil(&claim->request), 10737418240);
    assert_string_equal(claim->request_text, "10Gi");
    assert_false(claim->has_selector);
    assert_null(claim->data_source);
    assert_null(claim->data_source_ref);
    assert_string_equal(claim->phase, "Bound");
    assert_strings(&claim->status_access_modes, "ReadWriteOnce");
    assert_true(claim->has_status_storage);
    assert_string_equal(kube_pairs_get(&claim->status_capacity, "storage"), "10Gi");
    assert_null(claim->status_attributes_class);
    auto_free char *key = kube_object_key(&claim->object);
    assert_string_equal(key, "default/data-web-0");
}

static void test_volume(void **state)
{
    (void)state;
    auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(&kube_kind_volume, volume_text);
    assert_string_equal(volume->object.meta.namespace_, "");
    auto_free char *key = kube_object_key(&volume->object);
    assert_string_equal(key, "pvc-0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5");
    assert_string_equal(kube_annotation(&volume->object, KUBE_ANN_DELETION_SECRET_NAME), "");
    assert_null(kube_annotation(&volume->object, KUBE_ANN_MIGRATED_TO));
    assert_true(volume->has_storage);
    assert_int_equal(kube_quantity_ceil(&volume->storage), 10737418240);
    assert_string_equal(kube_pairs_get(&volume->capacity, "storage"), "10Gi");
    assert_string_equal(volume->reclaim_policy, "Delete");
    assert_non_null(volume->claim_ref);
    assert_string_equal(volume->claim_ref->kind, "PersistentVolumeClaim");
    assert_string_equal(volume->claim_ref->api_version, "v1");
    assert_string_equal(volume->claim_ref->namespace_, "default");
    assert_string_equal(volume->claim_ref->name, "data-web-0");
    assert_string_equal(volume->claim_ref->uid, "0c7ac7a0-8dd4-4d35-8b16-a3e9f3d4b0b5");
    assert_string_equal(volume->claim_ref->resource_version, "48190");
    assert_string_equal(volume->claim_ref->field_path, "");
    assert_int_equal(volume->source, KUBE_SOURCE_CSI);
    assert_string_equal(volume->source_name, "csi");
    assert_string_equal(volume->csi.driver, "ebs.csi.aws.com");
    assert_string_equal(volume->csi.handle, "vol-0a1b2c3d4e5f67890");
    assert_string_equal(volume->csi.fs_type, "ext4");
    assert_false(volume->csi.read_only);
    assert_string_equal(kube_pairs_get(&volume->csi.attributes, "storage.kubernetes.io/csiProvisionerIdentity"),
                        "1714557600000-8081-ebs.csi.aws.com");
    assert_string_equal(volume->csi.publish_secret.name, "");
    assert_string_equal(volume->nfs.server, "");
    assert_string_equal(volume->host_path.path, "");
    assert_true(volume->has_node_affinity);
    const struct kube_pair zone[] = {{"topology.kubernetes.io/zone", "eu-central-1a"}};
    const struct kube_pairs here = {.items = zone, .len = 1};
    assert_true(kube_node_selector_matches(&volume->node_affinity, "n", &here));
    assert_false(kube_node_selector_matches(&volume->node_affinity, "n", &(struct kube_pairs){0}));
    assert_string_equal(volume->phase, "Bound");
    assert_string_equal(volume->message, "");
}

/* What 10,000 of each cost is what the whole store is made for. */
static void test_typical_objects_are_small(void **state)
{
    (void)state;
    auto_unref struct kube_object *claim = object_of_text(&kube_kind_claim, claim_text);
    auto_unref struct kube_object *volume = object_of_text(&kube_kind_volume, volume_text);
    print_message("claim: %u bytes, volume: %u bytes\n", claim->size, volume->size);
    assert_in_range(claim->size, 1, 600);
    assert_in_range(volume->size, 1, 900);
}

static void test_absent_null_and_empty_differ(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        const char *name; /* expected class_name */
        bool has_class;
    } table[] = {
        {"{}", NULL, false},
        {"{'storageClassName':null}", NULL, false},
        {"{'storageClassName':''}", "", true},
        {"{'storageClassName':'fast'}", "fast", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *text = mem_printf("{'metadata':{'name':'c','namespace':'n'},'spec':%s}", table[i].spec);
        auto_unref struct kube_claim *claim = (struct kube_claim *)object_of_text(&kube_kind_claim, text);
        assert_true(str_eq(claim->class_name, table[i].name));
        assert_int_equal(kube_claim_has_class(claim), table[i].has_class);
        assert_string_equal(kube_claim_class(claim), table[i].name != NULL ? table[i].name : "");
        auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(&kube_kind_volume, text);
        assert_true(str_eq(volume->class_name, table[i].name));
    }
}

static void test_beta_class_annotation_wins(void **state)
{
    (void)state;
    static const char *const betas[] = {"", "old"};
    for (size_t i = 0; i < ARRAY_LEN(betas); i++) {
        auto_free char *text = mem_printf("{'metadata':{'name':'c','namespace':'n','annotations':{"
                                          "'volume.beta.kubernetes.io/storage-class':'%s'}},"
                                          "'spec':{'storageClassName':'new'}}",
                                          betas[i]);
        auto_unref struct kube_claim *claim = (struct kube_claim *)object_of_text(&kube_kind_claim, text);
        assert_string_equal(kube_claim_class(claim), betas[i]);
        assert_true(kube_claim_has_class(claim));
        auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(&kube_kind_volume, text);
        assert_string_equal(kube_volume_class(volume), betas[i]);
    }
    auto_unref struct kube_claim *only_beta = (struct kube_claim *)object_of_text(
        &kube_kind_claim, "{'metadata':{'name':'c','annotations':{'volume.beta.kubernetes.io/storage-class':'b'}}}");
    assert_true(kube_claim_has_class(only_beta));
    assert_string_equal(kube_claim_class(only_beta), "b");
}

static void test_minimal_object_has_no_null_text(void **state)
{
    (void)state;
    auto_unref struct kube_volume *volume =
        (struct kube_volume *)object_of_text(&kube_kind_volume, "{'metadata':{'name':'v'},'spec':null,'status':null}");
    assert_string_equal(volume->object.meta.uid, "");
    assert_int_equal(volume->object.meta.resource_version, 0);
    assert_int_equal(volume->object.meta.creation_time, 0);
    assert_false(volume->has_storage);
    assert_null(volume->claim_ref);
    assert_false(volume->has_node_affinity);
    assert_int_equal(volume->source, KUBE_SOURCE_NONE);
    const char *const texts[] = {volume->reclaim_policy,
                                 volume->source_name,
                                 volume->csi.driver,
                                 volume->csi.handle,
                                 volume->csi.fs_type,
                                 volume->csi.node_expand_secret.name,
                                 volume->csi.node_expand_secret.namespace_,
                                 volume->nfs.server,
                                 volume->nfs.path,
                                 volume->host_path.path,
                                 volume->host_path.type,
                                 volume->phase,
                                 volume->message,
                                 volume->object.meta.generate_name};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        assert_string_equal(texts[i], "");
    auto_unref struct kube_claim *claim =
        (struct kube_claim *)object_of_text(&kube_kind_claim, "{'metadata':{'name':'c','namespace':'n'}}");
    assert_false(claim->has_request);
    assert_true(claim->request.nano == 0);
    assert_string_equal(claim->request_text, "0");
    assert_string_equal(claim->volume_name, "");
    assert_string_equal(claim->phase, "");
}

static void test_sources(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        enum kube_source source;
        const char *name;
    } table[] = {
        {"{'csi':{}}", KUBE_SOURCE_CSI, "csi"},
        {"{'nfs':{'server':'s','path':'/p'}}", KUBE_SOURCE_NFS, "nfs"},
        {"{'hostPath':{'path':'/tmp/x','type':''}}", KUBE_SOURCE_HOST_PATH, "hostPath"},
        {"{'local':{'path':'/p'}}", KUBE_SOURCE_LOCAL, "local"},
        {"{'iscsi':{'lun':0}}", KUBE_SOURCE_OTHER, "iscsi"},
        {"{'awsElasticBlockStore':{'volumeID':'v'}}", KUBE_SOURCE_OTHER, "awsElasticBlockStore"},
        {"{'nfs':null,'rbd':{}}", KUBE_SOURCE_OTHER, "rbd"},
        {"{'holographic':{}}", KUBE_SOURCE_NONE, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *text = mem_printf("{'metadata':{'name':'v'},'spec':%s}", table[i].spec);
        auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(&kube_kind_volume, text);
        assert_int_equal(volume->source, table[i].source);
        assert_string_equal(volume->source_name, table[i].name);
        assert_string_equal(volume->nfs.server, table[i].source == KUBE_SOURCE_NFS ? "s" : "");
        assert_string_equal(volume->nfs.path, table[i].source == KUBE_SOURCE_NFS ? "/p" : "");
        assert_string_equal(volume->host_path.path, table[i].source == KUBE_SOURCE_HOST_PATH ? "/tmp/x" : "");
    }
}

static void test_csi_secrets(void **state)
{
    (void)state;
    auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(
        &kube_kind_volume,
        "{'metadata':{'name':'v'},'spec':{'csi':{'driver':'d','volumeHandle':'h','readOnly':true,"
        "'controllerPublishSecretRef':{'name':'a','namespace':'na'},'nodeStageSecretRef':{'name':'b',"
        "'namespace':'nb'},'nodePublishSecretRef':{'name':'c','namespace':'nc'},"
        "'controllerExpandSecretRef':{'name':'d','namespace':'nd'},'nodeExpandSecretRef':{'name':'e',"
        "'namespace':'ne'}}}}");
    assert_true(volume->csi.read_only);
    const struct kube_secret_reference *const secrets[] = {&volume->csi.publish_secret, &volume->csi.stage_secret,
                                                           &volume->csi.node_publish_secret, &volume->csi.expand_secret,
                                                           &volume->csi.node_expand_secret};
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
        char name[] = {(char)('a' + (int)i), '\0'};
        char namespace_[] = {'n', (char)('a' + (int)i), '\0'};
        assert_string_equal(secrets[i]->name, name);
        assert_string_equal(secrets[i]->namespace_, namespace_);
    }
}

static void test_annotations_kept(void **state)
{
    (void)state;
    static const char text[] =
        "{'metadata':{'name':'x','labels':{'b':'2','a':'1'},'annotations':{"
        "'zeta.example.com/note':'1','pv.kubernetes.io/anything':'2','volume.kubernetes.io/selected-node':'3',"
        "'storageclass.kubernetes.io/is-default-class':'true','storageclass.beta.kubernetes.io/is-default-class':'4',"
        "'snapshot.storage.kubernetes.io/allow-volume-mode-change':'5','snapshot.storage.kubernetes.io/other':'6',"
        "'volume.alpha.kubernetes.io/pre-resize-capacity':'7','berth.example/x':'8','nfs.berth/x':'9',"
        "'storage.berth.example/x':'10','csi.storage.k8s.io/x':'11','description':'12','null':null,"
        "'kubectl.kubernetes.io/last-applied-configuration':'huge'}}}";
    auto_unref struct kube_object *some = object_of_text(&kube_kind_claim, text);
    static const char *const kept[] = {
        "pv.kubernetes.io/anything",
        "volume.kubernetes.io/selected-node",
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
        "snapshot.storage.kubernetes.io/allow-volume-mode-change",
        "volume.alpha.kubernetes.io/pre-resize-capacity",
        "berth.example/x",
        "nfs.berth/x",
        "storage.berth.example/x",
        "csi.storage.k8s.io/x",
    };
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        assert_non_null(kube_annotation(some, kept[i]));
    assert_int_equal(some->meta.annotations.len, ARRAY_LEN(kept));
    assert_string_equal(some->meta.labels.items[0].key, "a");
    assert_string_equal(some->meta.labels.items[1].key, "b");

    const struct kube_decode_options options = {.all_annotations = true, .drop_labels = true};
    auto_unref struct kube_object *all = object_of_text_with(&kube_kind_claim, text, &options);
    assert_int_equal(all->meta.annotations.len, ARRAY_LEN(kept) + 4);
    assert_string_equal(kube_annotation(all, "zeta.example.com/note"), "1");
    assert_string_equal(kube_annotation(all, "description"), "12");
    assert_string_equal(kube_annotation(all, "null"), "");
    assert_null(kube_annotation(all, "kubectl.kubernetes.io/last-applied-configuration"));
    assert_int_equal(all->meta.labels.len, 0);
    for (uint32_t i = 1; i < all->meta.annotations.len; i++)
        assert_true(strcmp(all->meta.annotations.items[i - 1].key, all->meta.annotations.items[i].key) < 0);
}

static void test_claim_extras(void **state)
{
    (void)state;
    auto_unref struct kube_claim *claim = (struct kube_claim *)object_of_text(
        &kube_kind_claim,
        "{'metadata':{'name':'c','namespace':'n','deletionTimestamp':'2024-05-01T10:00:00Z','generateName':'c-',"
        "'ownerReferences':[{'apiVersion':'v1','kind':'Pod','name':'p','uid':'u','controller':true},{'apiVersion':"
        "'apps/v1','kind':'StatefulSet','name':'s','uid':'w'}]},'spec':{'volumeAttributesClassName':'','selector':{"
        "'matchLabels':{'tier':'gold','arch':'x'},'matchExpressions':[{'key':'zone','operator':'NotIn','values':['a','"
        "b']},{'key':'new','operator':'Resembles'}]},'dataSource':{'apiGroup':'snapshot.storage.k8s.io','kind':"
        "'VolumeSnapshot','name':'s'},'dataSourceRef':{'kind':'PersistentVolumeClaim','name':'o','namespace':'m'}},"
        "'status':{'currentVolumeAttributesClassName':'gold'}}");
    const struct kube_meta *meta = &claim->object.meta;
    assert_true(meta->deleting);
    assert_string_equal(meta->generate_name, "c-");
    assert_int_equal(meta->owner_count, 2);
    assert_true(meta->owners[0].controller);
    assert_false(meta->owners[1].controller);
    assert_string_equal(meta->owners[1].kind, "StatefulSet");
    assert_string_equal(meta->owners[1].api_version, "apps/v1");
    assert_string_equal(meta->owners[0].uid, "u");
    assert_string_equal(claim->attributes_class, "");
    assert_string_equal(claim->status_attributes_class, "gold");
    assert_true(claim->has_selector);
    assert_int_equal(claim->selector.len, 4);
    assert_string_equal(claim->selector.items[0].key, "arch");
    assert_string_equal(claim->selector.items[1].key, "tier");
    assert_int_equal(claim->selector.items[1].operator_, KUBE_OP_IN);
    assert_strings(&claim->selector.items[1].values, "gold");
    assert_int_equal(claim->selector.items[2].operator_, KUBE_OP_NOT_IN);
    assert_strings(&claim->selector.items[2].values, "a,b");
    assert_int_equal(claim->selector.items[3].operator_, KUBE_OP_UNKNOWN);
    assert_string_equal(claim->selector.items[3].operator_text, "Resembles");
    assert_string_equal(claim->data_source->api_group, "snapshot.storage.k8s.io");
    assert_string_equal(claim->data_source->name, "s");
    assert_null(claim->data_source->namespace_);
    assert_string_equal(claim->data_source_ref->api_group, "");
    assert_string_equal(claim->data_source_ref->namespace_, "m");

    auto_unref struct kube_claim *empty = (struct kube_claim *)object_of_text(
        &kube_kind_claim, "{'metadata':{'name':'c','namespace':'n'},'spec':{'selector':{}}}");
    assert_true(empty->has_selector);
    assert_int_equal(empty->selector.len, 0);
}

static void test_odd_quantities_do_not_hide_objects(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        bool has;
        int64_t bytes;
    } table[] = {
        {"'5Gi'", true, 5368709120}, {"5368709120", true, 5368709120},
        {"1.5e3", true, 1500},       {"'5 GB'", false, 0},
        {"true", false, 0},          {"{}", false, 0},
        {"null", false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *text =
            mem_printf("{'metadata':{'name':'x','namespace':'n'},'spec':{'capacity':{'storage':%s},"
                       "'resources':{'requests':{'storage':%s}}},'status':{'capacity':{'storage':%s}}}",
                       table[i].json, table[i].json, table[i].json);
        auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(&kube_kind_volume, text);
        assert_int_equal(volume->has_storage, table[i].has);
        assert_int_equal(kube_quantity_ceil(&volume->storage), table[i].bytes);
        auto_unref struct kube_claim *claim = (struct kube_claim *)object_of_text(&kube_kind_claim, text);
        assert_int_equal(claim->has_request, table[i].has);
        assert_int_equal(claim->has_status_storage, table[i].has);
        /* a request that nobody understands must not be satisfied by any volume */
        bool absent = strcmp(table[i].json, "null") == 0;
        int64_t request = table[i].has || absent ? table[i].bytes : INT64_MAX;
        assert_int_equal(kube_quantity_ceil(&claim->request), request);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } table[] = {
        {"[]", "PersistentVolume \"\": must be an object"},
        {"null", "PersistentVolume \"\": must be an object"},
        {"{}", "PersistentVolume \"\": metadata.name: must not be empty"},
        {"{'metadata':{'name':''}}", "PersistentVolume \"\": metadata.name: must not be empty"},
        {"{'metadata':{'name':7}}", "PersistentVolume \"\": metadata.name: must be a string"},
        {"{'metadata':'x'}", "PersistentVolume \"\": metadata: must be an object"},
        {"{'metadata':{'name':'a/b'}}", "PersistentVolume \"a/b\": metadata.name: is no name"},
        {"{'metadata':{'name':'..'}}", "PersistentVolume \"..\": metadata.name: is no name"},
        {"{'metadata':{'name':'%2e'}}", "PersistentVolume \"%2e\": metadata.name: is no name"},
        {"{'metadata':{'name':'a\\u0000b'}}", "PersistentVolume \"a\": metadata.name: must not hold a NUL byte"},
        {"{'metadata':{'name':'x','uid':1}}", "PersistentVolume \"x\": metadata.uid: must be a string"},
        {"{'metadata':{'name':'x','resourceVersion':'abc'}}",
         "PersistentVolume \"x\": metadata.resourceVersion: must be a decimal number in a string"},
        {"{'metadata':{'name':'x','resourceVersion':12}}",
         "PersistentVolume \"x\": metadata.resourceVersion: must be a decimal number in a string"},
        {"{'metadata':{'name':'x','resourceVersion':'18446744073709551616'}}",
         "PersistentVolume \"x\": metadata.resourceVersion: must be a decimal number in a string"},
        {"{'metadata':{'name':'x','resourceVersion':''}}",
         "PersistentVolume \"x\": metadata.resourceVersion: must be a decimal number in a string"},
        {"{'metadata':{'name':'x','labels':{'a':1}}}", "PersistentVolume \"x\": metadata.labels.a: must be a string"},
        {"{'metadata':{'name':'x','finalizers':'f'}}", "PersistentVolume \"x\": metadata.finalizers: must be a list"},
        {"{'kind':'Status','metadata':{'name':'x'}}", "PersistentVolume \"x\": kind: is of another kind"},
        {"{'metadata':{'name':'x'},'spec':[]}", "PersistentVolume \"x\": spec: must be an object"},
        {"{'metadata':{'name':'x'},'spec':{'capacity':'10Gi'}}",
         "PersistentVolume \"x\": spec.capacity: must be an object"},
        {"{'metadata':{'name':'x'},'spec':{'accessModes':['a',{}]}}",
         "PersistentVolume \"x\": spec.accessModes[1]: must be a string"},
        {"{'metadata':{'name':'x'},'spec':{'claimRef':'n/c'}}",
         "PersistentVolume \"x\": spec.claimRef: must be an object"},
        {"{'metadata':{'name':'x'},'spec':{'csi':{'readOnly':'yes'}}}",
         "PersistentVolume \"x\": spec.csi.readOnly: must be true or false"},
        {"{'metadata':{'name':'x'},'spec':{'nodeAffinity':{'required':{'nodeSelectorTerms':[{},{'matchExpressions':[7]"
         "}]}}}}",
         "PersistentVolume \"x\": spec.nodeAffinity.required.nodeSelectorTerms[1].matchExpressions[0]: must be an "
         "object"},
        {"{'metadata':{'name':'x'},'status':{'phase':{}}}", "PersistentVolume \"x\": status.phase: must be a string"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_text_refused(&kube_kind_volume, table[i].json, table[i].message);
    assert_text_refused(&kube_kind_claim, "{'metadata':{'name':'c','namespace':'n'},'spec':{'volumeName':1}}",
                        "PersistentVolumeClaim \"n/c\": spec.volumeName: must be a string");
    assert_text_refused(&kube_kind_claim, "{'metadata':{'name':'c','namespace':'n/m'}}",
                        "PersistentVolumeClaim \"n/m/c\": metadata.namespace: is no name");
}

/* Lists of thousands need more than the packer's own room. */
static void test_large(void **state)
{
    (void)state;
    auto_str struct str text = {0};
    str_add(&text, "{'metadata':{'name':'x','annotations':{");
    for (int i = 0; i < 3000; i++)
        str_addf(&text, "%s'berth.example/%d':'value %d'", i > 0 ? "," : "", i, i);
    str_add(&text, "},'finalizers':[");
    for (int i = 0; i < 5000; i++)
        str_addf(&text, "%s'f%d'", i > 0 ? "," : "", i);
    str_add(&text, "]},'spec':{'nodeAffinity':{'required':{'nodeSelectorTerms':[");
    for (int i = 0; i < 2000; i++)
        str_addf(&text, "%s{'matchExpressions':[{'key':'k%d','operator':'In','values':['v%d']}]}", i > 0 ? "," : "", i,
                 i);
    str_add(&text, "]}}}}");
    auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(&kube_kind_volume, str_text(&text));
    assert_int_equal(volume->object.meta.annotations.len, 3000);
    assert_string_equal(kube_annotation(&volume->object, "berth.example/2999"), "value 2999");
    assert_string_equal(kube_annotation(&volume->object, "berth.example/0"), "value 0");
    assert_int_equal(volume->object.meta.finalizers.len, 5000);
    assert_string_equal(volume->object.meta.finalizers.items[4999], "f4999");
    assert_int_equal(volume->node_affinity.len, 2000);
    assert_string_equal(volume->node_affinity.terms[1999].expressions.items[0].values.items[0], "v1999");
}

static void test_deep_json_is_no_danger(void **state)
{
    (void)state;
    auto_str struct str text = {0};
    str_add(&text, "{'metadata':{'name':'x'},'status':{'deep':");
    for (int i = 0; i < 1000; i++)
        str_add(&text, "[");
    for (int i = 0; i < 1000; i++)
        str_add(&text, "]");
    str_add(&text, "}}");
    auto_unref struct kube_object *object = object_of_text(&kube_kind_volume, str_text(&text));
    assert_string_equal(object->meta.name, "x");
}

static void test_texts_share_bytes(void **state)
{
    (void)state;
    auto_unref struct kube_volume *volume = (struct kube_volume *)object_of_text(
        &kube_kind_volume,
        "{'metadata':{'name':'pvc-12345','uid':'77','annotations':{'pv.kubernetes.io/provisioned-by':"
        "'drv.example'}},'spec':{'claimRef':{'uid':'12345','name':'a','namespace':'ba'},'csi':{"
        "'driver':'drv.example','volumeHandle':'pvc-12345'}},'status':{'phase':'Bound'}}");
    const char *name = volume->object.meta.name;
    assert_ptr_equal(volume->csi.handle, name);
    assert_ptr_equal(volume->claim_ref->uid, name + 4);
    assert_ptr_equal(volume->csi.driver, kube_annotation(&volume->object, KUBE_ANN_PROVISIONED_BY));
    assert_ptr_equal(volume->phase, pack_constant("Bound"));
}

static void test_constants_are_sorted(void **state)
{
    (void)state;
    size_t count = 0;
    const char *const *constants = pack_constants(&count);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(constants[i - 1], constants[i]) >= 0)
            fail_msg("\"%s\" stands before \"%s\"", constants[i - 1], constants[i]);
        assert_ptr_equal(pack_constant(constants[i]), constants[i]);
    }
    assert_null(pack_constant("no such text"));
}

static void test_references(void **state)
{
    (void)state;
    struct kube_object *object = object_of_text(&kube_kind_node, "{'metadata':{'name':'n','labels':{'a':'b'}}}");
    struct kube_object *again = kube_object_ref(object);
    assert_ptr_equal(again, object);
    kube_object_unref(object);
    assert_string_equal(again->meta.name, "n");
    kube_object_unref(again);
    kube_object_unref(NULL);
    assert_null(kube_object_ref(NULL));
}

static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key, *namespace_, *name;
    } table[] = {{"a/b", "a", "b"}, {"b", "", "b"}, {"/b", "", "b"}, {"a/", "a", ""}, {"", "", ""}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *namespace_ = NULL;
        auto_free char *name = NULL;
        kube_key_split(table[i].key, &namespace_, &name);
        assert_string_equal(namespace_, table[i].namespace_);
        assert_string_equal(name, table[i].name);
    }
}

static void test_migration(void **state)
{
    (void)state;
    assert_string_equal(kube_migrated_driver("kubernetes.io/aws-ebs"), "ebs.csi.aws.com");
    assert_string_equal(kube_migrated_driver("kubernetes.io/portworx-volume"), "pxd.portworx.com");
    assert_null(kube_migrated_driver("kubernetes.io/nfs"));
    assert_null(kube_migrated_driver("ebs.csi.aws.com"));
    assert_null(kube_migrated_driver(NULL));
    assert_string_equal(kube_migrated_plugin("csi.vsphere.vmware.com"), "kubernetes.io/vsphere-volume");
    assert_null(kube_migrated_plugin("kubernetes.io/aws-ebs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claim),
        cmocka_unit_test(test_volume),
        cmocka_unit_test(test_typical_objects_are_small),
        cmocka_unit_test(test_absent_null_and_empty_differ),
        cmocka_unit_test(test_beta_class_annotation_wins),
        cmocka_unit_test(test_minimal_object_has_no_null_text),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_csi_secrets),
        cmocka_unit_test(test_annotations_kept),
        cmocka_unit_test(test_claim_extras),
        cmocka_unit_test(test_odd_quantities_do_not_hide_objects),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_deep_json_is_no_danger),
        cmocka_unit_test(test_texts_share_bytes),
        cmocka_unit_test(test_constants_are_sorted),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_migration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
