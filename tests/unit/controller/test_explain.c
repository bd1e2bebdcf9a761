/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "controller/explain.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <stdio.h>

static void volumes(struct world *world, const char *prefix, size_t count, const char *differences)
{
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s%zu", prefix, i);
        world_volume(world, name, differences);
    }
}

static void assert_text(char *got, const char *want)
{
    if (!str_eq(got, want))
        fail_msg("got  %s\nwant %s", got, want);
    free(got);
}

static void test_volumes(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    const struct kube_claim *claim = world_claim(
        &world, "c", "{'spec':{'accessModes':['ReadWriteMany'],'resources':{'requests':{'storage':'10Gi'}}}}");
    assert_text(explain_volumes(&world.view, claim), "there are no volumes");
    volumes(&world, "bound", 5, "{'spec':{'claimRef':{'namespace':'x','name':'y','uid':'z'}}}");
    volumes(&world, "small", 3, "{'spec':{'accessModes':['ReadWriteMany'],'capacity':{'storage':'1Gi'}}}");
    volumes(&world, "less", 1, "{'spec':{'accessModes':['ReadWriteMany'],'capacity':{'storage':'8Gi'}}}");
    volumes(&world, "mode", 3, "{'spec':{'capacity':{'storage':'20Gi'}}}");
    assert_text(explain_volumes(&world.view, claim),
                "0/12 volumes fit: 5 bound to other claims, 4 smaller than 10Gi (largest 8Gi), 3 lack ReadWriteMany");
    volumes(&world, "class", 2, "{'spec':{'storageClassName':'x','accessModes':['ReadWriteMany']}}");
    volumes(&world, "block", 1, "{'spec':{'volumeMode':'Block','accessModes':['ReadWriteMany']}}");
    volumes(&world, "attr", 1, "{'spec':{'volumeAttributesClassName':'f','accessModes':['ReadWriteMany']}}");
    volumes(&world, "gone", 1, "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z'}}");
    volumes(&world, "new", 1, "{'status':{'phase':'Pending'}}");
    assert_text(explain_volumes(&world.view, claim),
                "0/18 volumes fit: 5 bound to other claims, 4 smaller than 10Gi (largest 8Gi), 3 lack ReadWriteMany, "
                "2 have a storage class, 1 not of mode Filesystem, 1 of another attributes class, 1 being deleted, "
                "1 not yet Available");
    volumes(&world, "fit", 2, "{'spec':{'capacity':{'storage':'20Gi'},'accessModes':['ReadWriteMany']}}");
    auto_free char *text = explain_volumes(&world.view, claim);
    assert_true(str_starts(text, "2/20 volumes fit: "));
    world_clear(&world);
}

static void test_labels_and_scheduler(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    world_class(&world, "late", "{'volumeBindingMode':'WaitForFirstConsumer'}");
    volumes(&world, "v", 2, NULL);
    assert_text(
        explain_volumes(&world.view, world_claim(&world, "a", "{'spec':{'selector':{'matchLabels':{'x':'y'}}}}")),
        "0/2 volumes fit: 2 not selected by their labels");
    volumes(&world, "late", 1, "{'spec':{'storageClassName':'late'}}");
    assert_text(explain_volumes(&world.view, world_claim(&world, "b", "{'spec':{'storageClassName':'late'}}")),
                "0/3 volumes fit: 2 not of class late, 1 left to the scheduler's choice");
    world_clear(&world);
}

static const struct {
    const char *claim, *volume, *text;
} pairs[] = {
    {"{}", "{'spec':{'claimRef':{'namespace':'x','name':'y','uid':'z'}},'status':{'phase':'Bound'}}",
     "it belongs to claim x/y, phase Bound"},
    {"{}", "{'spec':{'claimRef':{'namespace':'default','name':'c','uid':'old'}}}",
     "its claimRef has the uid of an earlier claim of this name; remove spec.claimRef.uid of volume v to let this "
     "claim "
     "have it with its data"},
    {"{}", "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z'}}",
     "a volume that is being deleted takes no new claim; its finalizers hold it back"},
    {"{'spec':{'resources':{'requests':{'storage':'10Gi'}}}}", "{}", "it has 5Gi, the claim asks for 10Gi"},
    {"{}", "{'spec':{'storageClassName':'gold'}}", "its class is gold, the claim's is none"},
    {"{'spec':{'volumeAttributesClassName':'a'}}", "{}", "its attributes class is none, the claim's is a"},
    {"{}", "{'spec':{'volumeMode':'Block'}}", "it is of mode Block, the claim of mode Filesystem"},
    {"{'spec':{'accessModes':['ReadWriteOnce','ReadWriteMany']}}", "{}",
     "it lacks ReadWriteMany, it has ReadWriteOnce"},
    {"{}", "{}", ""},
};

static void test_one_volume(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        auto_unref struct kube_object *claim = make_object(&kube_kind_claim, "c", pairs[i].claim, 1);
        auto_unref struct kube_object *volume = make_object(&kube_kind_volume, "v", pairs[i].volume, 1);
        assert_text(explain_volume_for_claim((struct kube_claim *)claim, (struct kube_volume *)volume), pairs[i].text);
    }
}

static void test_missing_class(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    assert_text(explain_missing_class(&world.view, "gold"), "the cluster has no storage class at all");
    world_class(&world, "standard", NULL);
    world_class(&world, "gold", NULL);
    assert_text(explain_missing_class(&world.view, "glod"), "did you mean gold?");
    assert_text(explain_missing_class(&world.view, "bronze"), "there are: gold, standard");
    for (int i = 0; i < 6; i++) {
        char name[32];
        snprintf(name, sizeof(name), "class-%d", i);
        world_class(&world, name, NULL);
    }
    assert_text(explain_missing_class(&world.view, "bronze"),
                "there are: class-0, class-1, class-2, class-3, class-4 and 3 more");
    world_clear(&world);
}

static void test_driver(void **state)
{
    (void)state;
    struct driver_facts facts = {0};
    assert_text(explain_driver("d", NULL), "");
    assert_text(explain_driver("d", &facts), "");
    facts.known = true;
    assert_text(explain_driver("d", &facts), "no driver named d is registered and no provisioner holds a lease of that "
                                             "name: is it installed?");
    facts.is_csi = true;
    assert_text(explain_driver("d", &facts),
                "driver d is registered, but no lease tells of a provisioner for it (one that does without leader "
                "election, as on the nodes, has none)");
    facts.has_lease = true;
    snprintf(facts.lease_namespace, sizeof(facts.lease_namespace), "kube-system");
    assert_text(explain_driver("d", &facts),
                "the lease of the provisioner in namespace kube-system has expired: it does not run");
    facts.lease_is_live = true;
    assert_text(explain_driver("d", &facts), "its provisioner runs in namespace kube-system");
}

static char *explain(struct world *world, const char *claim_text, const struct driver_facts *facts)
{
    const struct kube_claim *claim = world_claim(world, "c", claim_text);
    struct claim_plan plan;
    claim_decide(&world->view, claim, &plan);
    char *text = explain_claim(&world->view, claim, &plan, facts);
    claim_plan_clear(&plan);
    return text;
}

static void test_claims(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    struct driver_facts facts = {.known = true};
    world_class(&world, "gold", NULL);
    world_class(&world, "none", "{'provisioner':'kubernetes.io/no-provisioner'}");
    world_class(&world, "late", "{'volumeBindingMode':'WaitForFirstConsumer'}");
    world_volume(&world, "v", "{'spec':{'claimRef':{'namespace':'x','name':'y','uid':'z'}}}");
    assert_text(explain(&world, NULL, NULL), "0/1 volumes fit: 1 bound to other claims");
    assert_text(explain(&world, "{'spec':{'volumeName':'v'}}", NULL), "it belongs to claim x/y, phase Available");
    assert_text(explain(&world, "{'spec':{'storageClassName':'gold'}}", &facts),
                "0/1 volumes fit: 1 bound to other claims; no driver named ext.example.com is registered and no "
                "provisioner holds a lease of that name: is it installed?");
    assert_text(explain(&world, "{'spec':{'storageClassName':'gold'}}", NULL),
                "0/1 volumes fit: 1 bound to other claims");
    assert_text(explain(&world, "{'spec':{'storageClassName':'none'}}", NULL),
                "0/1 volumes fit: 1 bound to other claims");
    assert_text(explain(&world, "{'spec':{'storageClassName':'golf'}}", NULL), "did you mean gold?");
    assert_text(explain(&world, "{'spec':{'storageClassName':'late'}}", NULL), "");
    /* what users write must not look like our brackets */
    world_volume(&world, "v", "{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-class':'[x]'}}}");
    assert_text(explain(&world, "{'spec':{'volumeName':'v'}}", NULL), "its class is (x), the claim's is none");
    world_clear(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_volumes),    cmocka_unit_test(test_labels_and_scheduler),
        cmocka_unit_test(test_one_volume), cmocka_unit_test(test_missing_class),
        cmocka_unit_test(test_driver),     cmocka_unit_test(test_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
