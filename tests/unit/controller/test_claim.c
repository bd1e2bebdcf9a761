/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of the claims' decision tables. */
#include "tests/unit/controller/support.h"

#include "controller/claim.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#define DONE "'pv.kubernetes.io/bind-completed':'yes'"
#define REF(name, uid) "'claimRef':{'namespace':'default','name':'" name "','uid':'" uid "'}"

struct row {
    const char *name;
    const char *claim;  /* differences; its name is "c" */
    const char *volume; /* differences of volume "v"; NULL = there is none */
    const char *class;  /* differences of class "gold"; NULL = there is none */
    const char *pod;    /* differences of pod "p" */
    int minor;          /* 0 = 36 */
    enum claim_action action;
    const char *rule;
    const char *reason; /* of the event; NULL = none */
    const char *event;
    const char *text;
};
static const struct row rows[] = {
    {.name = "U1 finds a volume", .volume = "{}", .action = CLAIM_BIND, .rule = "U1"},
    {.name = "U1 takes a reserved volume of another class",
     .volume = "{'spec':{'storageClassName':'x','claimRef':{'namespace':'default','name':'c'}}}",
     .action = CLAIM_BIND,
     .rule = "U1"},
    {.name = "U4 absent class gets the default",
     .claim = "{'spec':{'storageClassName':null}}",
     .class = "{'metadata':{'annotations':{'storageclass.kubernetes.io/is-default-class':'true'}}}",
     .action = CLAIM_SET_CLASS,
     .rule = "U4",
     .text = "gold"},
    {.name = "U4 beta default annotation counts",
     .claim = "{'spec':{'storageClassName':null}}",
     .class = "{'metadata':{'annotations':{'storageclass.beta.kubernetes.io/is-default-class':'true'}}}",
     .action = CLAIM_SET_CLASS,
     .rule = "U4",
     .text = "gold"},
    {.name = "U4 only exactly true counts",
     .claim = "{'spec':{'storageClassName':null}}",
     .class = "{'metadata':{'annotations':{'storageclass.kubernetes.io/is-default-class':'yes'}}}",
     .action = CLAIM_WAIT,
     .rule = "U7",
     .reason = "FailedBinding"},
    {.name = "U4 a volume without class comes before the default class",
     .claim = "{'spec':{'storageClassName':null}}",
     .volume = "{}",
     .class = "{'metadata':{'annotations':{'storageclass.kubernetes.io/is-default-class':'true'}}}",
     .action = CLAIM_BIND,
     .rule = "U1"},
    {.name = "U4 empty class gets no default",
     .class = "{'metadata':{'annotations':{'storageclass.kubernetes.io/is-default-class':'true'}}}",
     .action = CLAIM_WAIT,
     .rule = "U7",
     .reason = "FailedBinding",
     .event = "no persistent volumes available for this claim and no storage class is set"},
    {.name = "U4 beta annotation blocks the default",
     .claim = "{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-class':''}},"
              "'spec':{'storageClassName':null}}",
     .class = "{'metadata':{'annotations':{'storageclass.kubernetes.io/is-default-class':'true'}}}",
     .action = CLAIM_WAIT,
     .rule = "U7",
     .reason = "FailedBinding"},
    {.name = "U4 not before 1.26",
     .minor = 25,
     .claim = "{'spec':{'storageClassName':null}}",
     .class = "{'metadata':{'annotations':{'storageclass.kubernetes.io/is-default-class':'true'}}}",
     .action = CLAIM_WAIT,
     .rule = "U7",
     .reason = "FailedBinding"},
    {.name = "U5 no consumer",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .action = CLAIM_WAIT,
     .rule = "U5",
     .reason = "WaitForFirstConsumer",
     .event = "waiting for first consumer to be created before binding"},
    {.name = "U5 a free volume is the scheduler's to choose",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .volume = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .action = CLAIM_WAIT,
     .rule = "U5",
     .reason = "WaitForFirstConsumer"},
    {.name = "U5 a pod waits to be scheduled",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .pod = "{'spec':{'volumes':[{'name':'d','persistentVolumeClaim':{'claimName':'c'}}]}}",
     .action = CLAIM_WAIT,
     .rule = "U5",
     .reason = "WaitForPodScheduled",
     .event = "waiting for pod p to be scheduled"},
    {.name = "U5 a pod with a node does not wait",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .pod = "{'spec':{'nodeName':'n','volumes':[{'name':'d','persistentVolumeClaim':{'claimName':'c'}}]}}",
     .action = CLAIM_WAIT,
     .rule = "U5",
     .reason = "WaitForFirstConsumer"},
    {.name = "U5 a finished pod does not wait",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .pod = "{'spec':{'volumes':[{'name':'d','persistentVolumeClaim':{'claimName':'c'}}]},"
            "'status':{'phase':'Succeeded'}}",
     .action = CLAIM_WAIT,
     .rule = "U5",
     .reason = "WaitForFirstConsumer"},
    {.name = "U5 the scheduler's reservation is bound",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .volume = "{'spec':{'storageClassName':'gold'," REF("c", "uid-c") "}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .action = CLAIM_BIND,
     .rule = "U1"},
    {.name = "U6 selected node: external",
     .claim = "{'metadata':{'annotations':{'volume.kubernetes.io/selected-node':'n'}},"
              "'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .action = CLAIM_PROVISION_EXTERNAL,
     .rule = "U6",
     .reason = "ExternalProvisioning",
     .text = "ext.example.com"},
    {.name = "U6 external, present text",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{}",
     .action = CLAIM_PROVISION_EXTERNAL,
     .rule = "U6",
     .reason = "ExternalProvisioning",
     .event = "Waiting for a volume to be created either by the external provisioner 'ext.example.com' or manually by "
              "the system administrator. If volume creation is delayed, please verify that the provisioner is running "
              "and correctly registered.",
     .text = "ext.example.com"},
    {.name = "U6 external, text before 1.28",
     .minor = 27,
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{}",
     .action = CLAIM_PROVISION_EXTERNAL,
     .rule = "U6",
     .reason = "ExternalProvisioning",
     .event = "waiting for a volume to be created, either by external provisioner \"ext.example.com\" or manually "
              "created by system administrator",
     .text = "ext.example.com"},
    {.name = "U6 migrated plugin",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'provisioner':'kubernetes.io/aws-ebs'}",
     .action = CLAIM_PROVISION_EXTERNAL,
     .rule = "U6",
     .reason = "ExternalProvisioning",
     .text = "ebs.csi.aws.com"},
    {.name = "U6 not yet migrated plugin",
     .minor = 20,
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'provisioner':'kubernetes.io/aws-ebs'}",
     .action = CLAIM_REPORT,
     .rule = "U6",
     .reason = "ProvisioningFailed",
     .event = "no volume plugin matched name: kubernetes.io/aws-ebs"},
    {.name = "U6 in-tree",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'provisioner':'kubernetes.io/host-path'}",
     .action = CLAIM_PROVISION_IN_TREE,
     .rule = "U6",
     .text = "kubernetes.io/host-path"},
    {.name = "U6 in-tree that cannot provision",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'provisioner':'kubernetes.io/nfs'}",
     .action = CLAIM_REPORT,
     .rule = "U6",
     .reason = "ProvisioningFailed",
     .event = "no provisionable volume plugin matched"},
    {.name = "U6 no provisioner",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'provisioner':'kubernetes.io/no-provisioner'}",
     .action = CLAIM_REPORT,
     .rule = "U6",
     .reason = "ProvisioningFailed",
     .event = "no volume plugin matched name: kubernetes.io/no-provisioner"},
    {.name = "U6 class does not exist",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .action = CLAIM_REPORT,
     .rule = "U6",
     .reason = "ProvisioningFailed",
     .event = "storageclass.storage.k8s.io \"gold\" not found"},
    {.name = "U6 the beta annotation names the class",
     .claim = "{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-class':'gold'}},"
              "'spec':{'storageClassName':'silver'}}",
     .class = "{}",
     .action = CLAIM_PROVISION_EXTERNAL,
     .rule = "U6",
     .reason = "ExternalProvisioning",
     .text = "ext.example.com"},
    {.name = "class without binding mode",
     .claim = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':null}",
     .action = CLAIM_FAIL,
     .rule = "U0",
     .text = "VolumeBindingMode not set for StorageClass \"gold\""},
    {.name = "malformed selector",
     .claim = "{'spec':{'selector':{'matchExpressions':[{'key':'a','operator':'In'}]}}}",
     .action = CLAIM_FAIL,
     .rule = "U0"},
    {.name = "U10 named volume does not exist",
     .claim = "{'spec':{'volumeName':'v'}}",
     .action = CLAIM_WAIT,
     .rule = "U10"},
    {.name = "U11 being deleted",
     .claim = "{'spec':{'volumeName':'v'}}",
     .volume = "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z'},'spec':{'capacity':{'storage':'1'}}}",
     .action = CLAIM_WAIT,
     .rule = "U11",
     .reason = "VolumeMismatch",
     .event = "Cannot bind to requested volume \"v\": the volume is marked for deletion \"v\""},
    {.name = "U11 too small comes before class",
     .claim = "{'spec':{'volumeName':'v'}}",
     .volume = "{'spec':{'capacity':{'storage':'1'},'storageClassName':'x'}}",
     .action = CLAIM_WAIT,
     .rule = "U11",
     .reason = "VolumeMismatch",
     .event = "Cannot bind to requested volume \"v\": requested PV is too small"},
    {.name = "U11 sizes beyond int64 are compared exactly",
     .claim = "{'spec':{'volumeName':'v','resources':{'requests':{'storage':'20E'}}}}",
     .volume = "{'spec':{'capacity':{'storage':'19E'}}}",
     .action = CLAIM_WAIT,
     .rule = "U11",
     .reason = "VolumeMismatch"},
    {.name = "U11 parts of a byte do not count",
     .claim = "{'spec':{'volumeName':'v','resources':{'requests':{'storage':'200m'}}}}",
     .volume = "{'spec':{'capacity':{'storage':'100m'}}}",
     .action = CLAIM_BIND,
     .rule = "U12"},
    {.name = "U11 class comes before attributes class",
     .claim = "{'spec':{'volumeName':'v','volumeAttributesClassName':'fast'}}",
     .volume = "{'spec':{'storageClassName':'x'}}",
     .action = CLAIM_WAIT,
     .rule = "U11",
     .reason = "VolumeMismatch",
     .event = "Cannot bind to requested volume \"v\": storageClassName does not match"},
    {.name = "U11 attributes class comes before mode",
     .claim = "{'spec':{'volumeName':'v','volumeAttributesClassName':'fast'}}",
     .volume = "{'spec':{'volumeMode':'Block'}}",
     .action = CLAIM_WAIT,
     .rule = "U11",
     .reason = "VolumeMismatch",
     .event = "Cannot bind to requested volume \"v\": volumeAttributesClassName does not match"},
    {.name = "U11 mode comes before access modes",
     .claim = "{'spec':{'volumeName':'v','accessModes':['ReadWriteMany']}}",
     .volume = "{'spec':{'volumeMode':'Block'}}",
     .action = CLAIM_WAIT,
     .rule = "U11",
     .reason = "VolumeMismatch",
     .event = "Cannot bind to requested volume \"v\": incompatible volumeMode"},
    {.name = "U11 access modes",
     .claim = "{'spec':{'volumeName':'v','accessModes':['ReadWriteMany']}}",
     .volume = "{}",
     .action = CLAIM_WAIT,
     .rule = "U11",
     .reason = "VolumeMismatch",
     .event = "Cannot bind to requested volume \"v\": incompatible accessMode"},
    {.name = "U12 selector and phase do not matter",
     .claim = "{'spec':{'volumeName':'v','selector':{'matchLabels':{'a':'b'}}}}",
     .volume = "{'status':{'phase':'Pending'}}",
     .action = CLAIM_BIND,
     .rule = "U12"},
    {.name = "U12 consumers are not waited for",
     .claim = "{'spec':{'volumeName':'v','storageClassName':'gold'}}",
     .volume = "{'spec':{'storageClassName':'gold'}}",
     .class = "{'volumeBindingMode':'WaitForFirstConsumer'}",
     .action = CLAIM_BIND,
     .rule = "U12"},
    {.name = "U13 no check at all when both point at each other",
     .claim = "{'spec':{'volumeName':'v','resources':{'requests':{'storage':'1Ti'}}}}",
     .volume = "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z'},"
               "'spec':{'volumeMode':'Block'," REF("c", "uid-c") "}}",
     .action = CLAIM_BIND,
     .rule = "U13"},
    {.name = "U14 somebody else's",
     .claim = "{'spec':{'volumeName':'v'}}",
     .volume = "{'spec':{" REF("other", "uid-other") "}}",
     .action = CLAIM_WAIT,
     .rule = "U14",
     .reason = "FailedBinding",
     .event = "volume \"v\" already bound to a different claim."},
    {.name = "U14 an earlier claim of this name is somebody else",
     .claim = "{'spec':{'volumeName':'v'}}",
     .volume = "{'spec':{" REF("c", "uid-earlier") "}}",
     .action = CLAIM_WAIT,
     .rule = "U14",
     .reason = "FailedBinding"},
    {.name = "U15 software chose it: an error",
     .claim = "{'metadata':{'annotations':{'pv.kubernetes.io/bound-by-controller':'yes'}},'spec':{'volumeName':'v'}}",
     .volume = "{'spec':{" REF("other", "uid-other") "}}",
     .action = CLAIM_REFUSE,
     .rule = "U15",
     .reason = "FailedBinding",
     .event = "volume \"v\" already bound to a different claim.",
     .text = "invalid binding of claim \"default/c\" to volume \"v\": volume already claimed by \"default/other\""},
    {.name = "B1",
     .claim = "{'metadata':{'annotations':{" DONE "}}}",
     .volume = "{}",
     .action = CLAIM_LOSE,
     .rule = "B1",
     .reason = "ClaimLost",
     .event = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"},
    {.name = "B2",
     .claim = "{'metadata':{'annotations':{" DONE "}},'spec':{'volumeName':'v'}}",
     .action = CLAIM_LOSE,
     .rule = "B2",
     .reason = "ClaimLost",
     .event = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"},
    {.name = "B3 the claim is believed",
     .claim = "{'metadata':{'annotations':{" DONE "}},"
              "'spec':{'volumeName':'v','resources':{'requests':{'storage':'1Ti'}}}}",
     .volume = "{}",
     .action = CLAIM_BIND,
     .rule = "B3"},
    {.name = "B4 the uid alone decides",
     .claim = "{'metadata':{'annotations':{" DONE "}},'spec':{'volumeName':'v'}}",
     .volume = "{'spec':{" REF("renamed", "uid-c") "}}",
     .action = CLAIM_BIND,
     .rule = "B4"},
    {.name = "B5 another uid",
     .claim = "{'metadata':{'annotations':{" DONE "}},'spec':{'volumeName':'v'}}",
     .volume = "{'spec':{" REF("c", "uid-earlier") "}}",
     .action = CLAIM_LOSE,
     .rule = "B5",
     .reason = "ClaimMisbound",
     .event = "Two claims are bound to the same volume, this one is bound incorrectly"},
    {.name = "B5 no uid",
     .claim = "{'metadata':{'annotations':{" DONE "}},'spec':{'volumeName':'v'}}",
     .volume = "{'spec':{'claimRef':{'namespace':'default','name':'c'}}}",
     .action = CLAIM_LOSE,
     .rule = "B5",
     .reason = "ClaimMisbound"},
    {.name = "migration annotation is set",
     .claim = "{'metadata':{'annotations':{'volume.kubernetes.io/storage-provisioner':'kubernetes.io/gce-pd'}}}",
     .volume = "{}",
     .action = CLAIM_ANNEAL,
     .rule = "U0",
     .text = "pd.csi.storage.gke.io"},
    {.name = "migration annotation from the beta key",
     .claim = "{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-provisioner':'kubernetes.io/gce-pd'}}}",
     .action = CLAIM_ANNEAL,
     .rule = "U0",
     .text = "pd.csi.storage.gke.io"},
    {.name = "migration annotation is removed",
     .claim = "{'metadata':{'annotations':{'volume.kubernetes.io/storage-provisioner':'x.example.com',"
              "'pv.kubernetes.io/migrated-to':'y'}}}",
     .action = CLAIM_ANNEAL,
     .rule = "U0"},
    {.name = "migration annotation is right",
     .claim = "{'metadata':{'annotations':{'volume.kubernetes.io/storage-provisioner':'kubernetes.io/gce-pd',"
              "'pv.kubernetes.io/migrated-to':'pd.csi.storage.gke.io'}}}",
     .volume = "{}",
     .action = CLAIM_BIND,
     .rule = "U1"},
    {.name = "migration annotation without a provisioner is left alone",
     .claim = "{'metadata':{'annotations':{'pv.kubernetes.io/migrated-to':'y'}}}",
     .volume = "{}",
     .action = CLAIM_BIND,
     .rule = "U1"},
    {.name = "a claim under deletion is still bound",
     .claim = "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z'}}",
     .volume = "{}",
     .action = CLAIM_BIND,
     .rule = "U1"},
};

static void check_row(const struct row *row)
{
    struct world world;
    world_init(&world, row->minor == 0 ? 36 : row->minor);
    const struct kube_claim *claim = world_claim(&world, "c", row->claim);
    if (row->volume != NULL)
        world_volume(&world, "v", row->volume);
    if (row->class != NULL)
        world_class(&world, "gold", row->class);
    if (row->pod != NULL)
        world_pod(&world, "p", row->pod);
    struct claim_plan plan;
    claim_decide(&world.view, claim, &plan);
    if (plan.action != row->action || !str_eq(plan.rule, row->rule))
        fail_msg("%s: got %s %s (%s), want %s %s", row->name, plan.rule, claim_action_name(plan.action),
                 plan.text == NULL ? "" : plan.text, row->rule, claim_action_name(row->action));
    if (!str_eq(plan.event_reason, row->reason))
        fail_msg("%s: event %s, want %s", row->name, plan.event_reason == NULL ? "none" : plan.event_reason,
                 row->reason == NULL ? "none" : row->reason);
    if (row->event != NULL && !str_eq(plan.event_text, row->event))
        fail_msg("%s: event text %s, want %s", row->name, plan.event_text, row->event);
    if (row->text != NULL && !str_eq(plan.text, row->text))
        fail_msg("%s: text %s, want %s", row->name, plan.text == NULL ? "none" : plan.text, row->text);
    if (plan.action == CLAIM_BIND)
        assert_string_equal(plan.volume->object.meta.name, "v");
    claim_plan_clear(&plan);
    world_clear(&world);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_row(&rows[i]);
}

static void test_provisioning_switched_off(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    world.view.dynamic_provisioning = false;
    const struct kube_claim *claim = world_claim(&world, "c", "{'spec':{'storageClassName':'nowhere'}}");
    struct claim_plan plan;
    claim_decide(&world.view, claim, &plan);
    assert_int_equal(plan.action, CLAIM_NOTHING);
    assert_null(plan.event_reason);
    claim_plan_clear(&plan);
    world_clear(&world);
}

static void test_several_pods(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    world_class(&world, "gold", "{'volumeBindingMode':'WaitForFirstConsumer'}");
    const struct kube_claim *claim = world_claim(&world, "c", "{'spec':{'storageClassName':'gold'}}");
    const char *uses = "{'spec':{'volumes':[{'name':'d','persistentVolumeClaim':{'claimName':'c'}}]}}";
    world_pod(&world, "b", uses);
    world_pod(&world, "a", uses);
    world_pod(&world, "elsewhere",
              "{'metadata':{'namespace':'x'},'spec':{'volumes':[{'name':'d','persistentVolumeClaim':"
              "{'claimName':'c'}}]}}");
    struct claim_plan plan;
    claim_decide(&world.view, claim, &plan);
    assert_string_equal(plan.event_text, "waiting for pods a,b to be scheduled");
    claim_plan_clear(&plan);
    world_clear(&world);
}

static void test_newest_default_class(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    const struct kube_claim *claim = world_claim(&world, "c", "{'spec':{'storageClassName':null}}");
#define DEFAULT(when)                                                                                                  \
    "{'metadata':{'creationTimestamp':'" when "','annotations':{'storageclass.kubernetes.io/"                          \
    "is-default-class':'true'}}}"
    world_class(&world, "old", DEFAULT("2023-01-01T00:00:00Z"));
    world_class(&world, "new-b", DEFAULT("2024-01-01T00:00:00Z"));
    world_class(&world, "new-a", DEFAULT("2024-01-01T00:00:00Z"));
    struct claim_plan plan;
    claim_decide(&world.view, claim, &plan);
    assert_string_equal(plan.text, "new-a");
    claim_plan_clear(&plan);
    world_clear(&world);
}

static bool everything_is_taken(void *arg, const struct kube_volume *volume, const struct kube_claim *claim)
{
    (void)arg;
    (void)volume;
    (void)claim;
    return true;
}

static void test_volume_in_flight(void **state)
{
    (void)state;
    const char *claims[] = {NULL, "{'spec':{'volumeName':'v'}}",
                            "{'metadata':{'annotations':{" DONE "}},'spec':{'volumeName':'v'}}"};
    for (size_t i = 0; i < ARRAY_LEN(claims); i++) {
        struct world world;
        world_init(&world, 36);
        world.view.is_taken = everything_is_taken;
        world_volume(&world, "v", NULL);
        struct claim_plan plan;
        claim_decide(&world.view, world_claim(&world, "c", claims[i]), &plan);
        assert_int_equal(plan.action, CLAIM_RETRY_SOON);
        claim_plan_clear(&plan);
        world_clear(&world);
    }
}

static bool everything_is_emptied(void *arg, const struct kube_volume *volume)
{
    (void)arg;
    (void)volume;
    return true;
}

static void test_volume_being_emptied(void **state)
{
    (void)state;
    static const struct {
        const char *volume, *claim, *rule;
        enum claim_action action;
    } cases[] = {
        {NULL, NULL, "U7", CLAIM_WAIT}, /* as if it was not Available yet */
        {"{'spec':{'claimRef':{'namespace':'default','name':'c'}}}", NULL, "U1", CLAIM_NOTHING},
        {NULL, "{'spec':{'volumeName':'v'}}", "U12", CLAIM_NOTHING},
        {"{'spec':{'claimRef':{'namespace':'default','name':'c','uid':'uid-c'}}}", "{'spec':{'volumeName':'v'}}", "U13",
         CLAIM_NOTHING},
        {NULL, "{'metadata':{'annotations':{" DONE "}},'spec':{'volumeName':'v'}}", "B3", CLAIM_NOTHING},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world world;
        world_init(&world, 36);
        world.view.is_emptied = everything_is_emptied;
        world_volume(&world, "v", cases[i].volume);
        struct claim_plan plan;
        claim_decide(&world.view, world_claim(&world, "c", cases[i].claim), &plan);
        assert_int_equal(plan.action, cases[i].action);
        assert_string_equal(plan.rule, cases[i].rule);
        claim_plan_clear(&plan);
        world_clear(&world);
    }
}

static void test_annotate_mode(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    world_class(&world, "gold", NULL);
    world_volume(&world, "v", NULL);
    struct claim_plan plan;
    claim_decide_annotate(&world.view, world_claim(&world, "c", NULL), &plan);
    assert_int_equal(plan.action, CLAIM_NOTHING);
    assert_null(plan.volume);
    claim_plan_clear(&plan);
    claim_decide_annotate(&world.view, world_claim(&world, "d", "{'spec':{'storageClassName':'gold'}}"), &plan);
    assert_int_equal(plan.action, CLAIM_PROVISION_EXTERNAL);
    claim_plan_clear(&plan);
    world_clear(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_provisioning_switched_off),
        cmocka_unit_test(test_several_pods),
        cmocka_unit_test(test_newest_default_class),
        cmocka_unit_test(test_volume_in_flight),
        cmocka_unit_test(test_volume_being_emptied),
        cmocka_unit_test(test_annotate_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
