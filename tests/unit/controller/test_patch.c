/* SPDX-License-Identifier: Apache-2.0 */
/* What exactly is written: only what changes, with the version it was made from. */
#include "tests/unit/controller/support.h"

#include "controller/patch.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

static struct kube_volume *volume_of(const char *differences)
{
    return (struct kube_volume *)make_object(&kube_kind_volume, "v", differences, 7);
}

static struct kube_claim *claim_of(const char *differences)
{
    return (struct kube_claim *)make_object(&kube_kind_claim, "c", differences, 9);
}

#define FULL_REF                                                                                                       \
    "'claimRef':{'kind':'PersistentVolumeClaim','apiVersion':'v1','namespace':'default','name':'c','uid':'uid-c',"     \
    "'resourceVersion':'9'}"

static void test_bind_volume(void **state)
{
    (void)state;
    static const struct {
        const char *volume, *patch; /* NULL = none */
    } cases[] = {
        {"{}", "{'metadata':{'resourceVersion':'7','annotations':{'pv.kubernetes.io/bound-by-controller':'yes'}},"
               "'spec':{" FULL_REF "}}"},
        /* reserved by name: whole reference, no annotation */
        {"{'spec':{'claimRef':{'namespace':'default','name':'c'}}}",
         "{'metadata':{'resourceVersion':'7'},'spec':{" FULL_REF "}}"},
        {"{'spec':{'claimRef':{'namespace':'default','name':'c','fieldPath':'x'}}}",
         "{'metadata':{'resourceVersion':'7'},'spec':{'claimRef':{'kind':'PersistentVolumeClaim','apiVersion':'v1',"
         "'namespace':'default','name':'c','uid':'uid-c','resourceVersion':'9','fieldPath':null}}}"},
        /* reserved with the uid: nothing */
        {"{'spec':{'claimRef':{'namespace':'default','name':'c','uid':'uid-c'}}}", NULL},
        /* only the uid is right (rule B4): the names are put right, and software did it */
        {"{'spec':{'claimRef':{'namespace':'default','name':'old','uid':'uid-c'}}}",
         "{'metadata':{'resourceVersion':'7','annotations':{'pv.kubernetes.io/bound-by-controller':'yes'}},"
         "'spec':{" FULL_REF "}}"},
        {"{'metadata':{'annotations':{'pv.kubernetes.io/bound-by-controller':'yes'}}}",
         "{'metadata':{'resourceVersion':'7'},'spec':{" FULL_REF "}}"},
    };
    auto_unref struct kube_claim *claim = claim_of(NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_unref struct kube_volume *volume = volume_of(cases[i].volume);
        json_t *patch = patch_volume_bind(volume, claim);
        if (cases[i].patch == NULL)
            assert_null(patch);
        else
            assert_json(patch, cases[i].patch);
    }
}

static void test_volume_phase(void **state)
{
    (void)state;
    auto_unref struct kube_volume *failed = volume_of("{'status':{'phase':'Failed','message':'why'}}");
    assert_null(patch_volume_phase(failed, "Failed", "another message is not written"));
    assert_json(patch_volume_phase(failed, "Available", NULL),
                "{'metadata':{'resourceVersion':'7'},'status':{'phase':'Available','message':null}}");
    assert_json(patch_volume_phase(failed, "Released", "text"),
                "{'metadata':{'resourceVersion':'7'},'status':{'phase':'Released','message':'text'}}");
}

static void test_unbind(void **state)
{
    (void)state;
    auto_unref struct kube_volume *by_software =
        volume_of("{'metadata':{'annotations':{'pv.kubernetes.io/bound-by-controller':'yes'}},"
                  "'spec':{'claimRef':{'namespace':'default','name':'c','uid':'u'}}}");
    auto_unref struct kube_volume *by_hand =
        volume_of("{'spec':{'claimRef':{'namespace':'default','name':'c','uid':'u'}}}");
    assert_json(patch_volume_unbind(by_software),
                "{'metadata':{'resourceVersion':'7','annotations':{'pv.kubernetes.io/bound-by-controller':null}},"
                "'spec':{'claimRef':null}}");
    assert_json(patch_volume_unbind(by_hand), "{'metadata':{'resourceVersion':'7'},'spec':{'claimRef':{'uid':null}}}");
}

static void test_anneal(void **state)
{
    (void)state;
    auto_unref struct kube_volume *volume = volume_of(NULL);
    auto_strv struct strv finalizers = {0};
    assert_json(patch_volume_anneal(volume, false, NULL, &finalizers),
                "{'metadata':{'resourceVersion':'7','finalizers':[]}}");
    strv_add(&finalizers, "b");
    strv_add(&finalizers, "a");
    assert_json(patch_volume_anneal(volume, true, "d", &finalizers),
                "{'metadata':{'resourceVersion':'7','finalizers':['b','a'],"
                "'annotations':{'pv.kubernetes.io/migrated-to':'d'}}}");
    assert_json(patch_volume_anneal(volume, true, NULL, NULL),
                "{'metadata':{'resourceVersion':'7','annotations':{'pv.kubernetes.io/migrated-to':null}}}");
}

static void test_bind_claim(void **state)
{
    (void)state;
    static const struct {
        const char *claim, *patch;
    } cases[] = {
        {"{}", "{'metadata':{'resourceVersion':'9','annotations':{'pv.kubernetes.io/bound-by-controller':'yes',"
               "'pv.kubernetes.io/bind-completed':'yes'}},'spec':{'volumeName':'v'}}"},
        {"{'spec':{'volumeName':'v'}}",
         "{'metadata':{'resourceVersion':'9','annotations':{'pv.kubernetes.io/bind-completed':'yes'}}}"},
        {"{'metadata':{'annotations':{'pv.kubernetes.io/bind-completed':'no'}},'spec':{'volumeName':'v'}}", NULL},
    };
    auto_unref struct kube_volume *volume = volume_of(NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_unref struct kube_claim *claim = claim_of(cases[i].claim);
        json_t *patch = patch_claim_bind(claim, volume);
        if (cases[i].patch == NULL)
            assert_null(patch);
        else
            assert_json(patch, cases[i].patch);
    }
}

static const struct {
    const char *name;
    int minor;
    const char *claim, *volume; /* volume NULL = none */
    const char *phase, *status; /* status NULL = no patch, "error" = a failure */
} statuses[] = {
    {"becomes Bound", 36, "{}", "{}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'5Gi'}}"},
    {"whole capacity is copied, other keys go", 36, "{'status':{'capacity':{'storage':'1Gi','old':'3'}}}",
     "{'spec':{'capacity':{'storage':'5Gi','iops':'9'}}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'5Gi','iops':'9','old':null}}"},
    {"an equal capacity stays", 36, "{'status':{'capacity':{'storage':'5120Mi'},'accessModes':['ReadWriteOnce']}}",
     "{}", "Bound", "{'phase':'Bound'}"},
    {"pre-resize capacity", 36, "{}",
     "{'metadata':{'annotations':{'volume.alpha.kubernetes.io/pre-resize-capacity':'2Gi'}}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'2Gi'}}"},
    {"unreadable pre-resize capacity", 36, "{}",
     "{'metadata':{'annotations':{'volume.alpha.kubernetes.io/pre-resize-capacity':'much'}}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'5Gi'}}"},
    {"pre-resize capacity leaves other resources", 36, "{'status':{'capacity':{'storage':'1Gi','old':'1'}}}",
     "{'metadata':{'annotations':{'volume.alpha.kubernetes.io/pre-resize-capacity':'2Gi'}}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'2Gi'}}"},
    {"unreadable pre-resize capacity does, too", 36, "{'status':{'capacity':{'storage':'1Gi','old':'1'}}}",
     "{'metadata':{'annotations':{'volume.alpha.kubernetes.io/pre-resize-capacity':''}}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'5Gi'}}"},
    {"no pre-resize capacity in 1.20", 20, "{}",
     "{'metadata':{'annotations':{'volume.alpha.kubernetes.io/pre-resize-capacity':'2Gi'}}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'5Gi'}}"},
    {"attributes class is copied from Pending", 36, "{}", "{'spec':{'volumeAttributesClassName':'fast'}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'5Gi'},"
     "'currentVolumeAttributesClassName':'fast'}"},
    {"but not from Lost", 36, "{'status':{'phase':'Lost'}}", "{'spec':{'volumeAttributesClassName':'fast'}}", "Bound",
     "{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'5Gi'}}"},
    {"Bound keeps its smaller capacity", 36,
     "{'status':{'phase':'Bound','accessModes':['ReadWriteOnce'],'capacity':{'storage':'1Gi'}}}", "{}", "Bound", NULL},
    {"Bound gets new access modes", 36,
     "{'status':{'phase':'Bound','accessModes':['ReadOnlyMany'],'capacity':{'storage':'1Gi'}}}", "{}", "Bound",
     "{'accessModes':['ReadWriteOnce']}"},
    {"Pending and clean", 36, "{}", NULL, "Pending", NULL},
    {"Pending with remains", 36,
     "{'status':{'capacity':{'storage':'1'},'accessModes':['x'],'currentVolumeAttributesClassName':'f'}}", NULL,
     "Pending", "{'capacity':null,'accessModes':null,'currentVolumeAttributesClassName':null}"},
    {"Lost", 36, "{'status':{'phase':'Bound','capacity':{'storage':'1'},'accessModes':['x']}}", NULL, "Lost",
     "{'phase':'Lost','capacity':null,'accessModes':null}"},
    {"no capacity", 36, "{}", "{'spec':{'capacity':{'storage':null}}}", "Bound", "error"},
};

static void test_claim_status(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        struct controller_profile profile;
        profile_init(&profile, statuses[i].minor);
        auto_unref struct kube_claim *claim = claim_of(statuses[i].claim);
        auto_unref struct kube_volume *volume = statuses[i].volume == NULL ? NULL : volume_of(statuses[i].volume);
        auto_err struct err err = {0};
        json_t *patch = NULL;
        int result = patch_claim_status(&profile, claim, statuses[i].phase, volume, &patch, &err);
        if (str_eq(statuses[i].status, "error")) {
            assert_int_equal(result, -1);
            assert_string_equal(err_text(&err), "PersistentVolume \"v\" is without a storage capacity");
            continue;
        }
        assert_int_equal(result, 0);
        if (statuses[i].status == NULL) {
            if (patch != NULL)
                fail_msg("%s: a patch was not wanted", statuses[i].name);
            continue;
        }
        auto_free char *want = mem_printf("{'metadata':{'resourceVersion':'9'},'status':%s}", statuses[i].status);
        assert_json(patch, want);
    }
}

static void test_provisioner(void **state)
{
    (void)state;
    struct controller_profile now, old;
    profile_init(&now, 36);
    profile_init(&old, 20);
    auto_unref struct kube_claim *plain = claim_of(NULL);
    assert_json(patch_claim_provisioner(&now, plain, "x"),
                "{'metadata':{'resourceVersion':'9','annotations':{'volume.kubernetes.io/storage-provisioner':'x',"
                "'volume.beta.kubernetes.io/storage-provisioner':'x'}}}");
    assert_json(patch_claim_provisioner(&old, plain, "x"), "{'metadata':{'resourceVersion':'9','annotations':{"
                                                           "'volume.beta.kubernetes.io/storage-provisioner':'x'}}}");
    auto_unref struct kube_claim *done =
        claim_of("{'metadata':{'annotations':{'volume.kubernetes.io/storage-provisioner':'x'}}}");
    assert_null(patch_claim_provisioner(&now, done, "x")); /* the beta key is not looked at */
    auto_unref struct kube_claim *beta =
        claim_of("{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-provisioner':'x',"
                 "'pv.kubernetes.io/migrated-to':'y'}}}");
    assert_null(patch_claim_provisioner(&old, beta, "x"));
    assert_json(patch_claim_provisioner(&now, beta, "x"),
                "{'metadata':{'resourceVersion':'9','annotations':{'volume.kubernetes.io/storage-provisioner':'x',"
                "'volume.beta.kubernetes.io/storage-provisioner':'x','pv.kubernetes.io/migrated-to':null}}}");
}

static void test_small_ones(void **state)
{
    (void)state;
    auto_unref struct kube_claim *claim =
        claim_of("{'metadata':{'annotations':{'volume.kubernetes.io/selected-node':'n'}}}");
    auto_unref struct kube_claim *plain = claim_of(NULL);
    assert_json(patch_claim_class(plain, "gold"),
                "{'metadata':{'resourceVersion':'9'},'spec':{'storageClassName':'gold'}}");
    assert_json(patch_claim_migrated(plain, "d"),
                "{'metadata':{'resourceVersion':'9','annotations':{'pv.kubernetes.io/migrated-to':'d'}}}");
    assert_json(patch_claim_unselect_node(claim),
                "{'metadata':{'resourceVersion':'9','annotations':{'volume.kubernetes.io/selected-node':null}}}");
    assert_null(patch_claim_unselect_node(plain));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bind_volume), cmocka_unit_test(test_volume_phase), cmocka_unit_test(test_unbind),
        cmocka_unit_test(test_anneal),      cmocka_unit_test(test_bind_claim),   cmocka_unit_test(test_claim_status),
        cmocka_unit_test(test_provisioner), cmocka_unit_test(test_small_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
