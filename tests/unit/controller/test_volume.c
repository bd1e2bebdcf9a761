/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of the volumes' decision table, and of what follows a release. */
#include "tests/unit/controller/support.h"

#include "controller/volume.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#define REF(name, uid) "'claimRef':{'namespace':'default','name':'" name "','uid':'" uid "'}"
#define BY(name) "'annotations':{'pv.kubernetes.io/provisioned-by':'" name "'}"

enum live { NOT_ASKED, NOBODY, SAME, OTHER }; /* what the API server says of the claim */
struct row {
    const char *name;
    int minor;          /* 0 = 36 */
    const char *volume; /* differences */
    const char *claim;  /* of claim "c" in the store; NULL = there is none */
    enum live live;
    enum volume_action action;
    const char *rule;
    const char *phase;
    const char *finalizers; /* joined by ',' */
    const char *migrated_to;
};
static const struct row rows[] = {
    {.name = "V1 new",
     .volume = "{'status':{'phase':'Pending'}}",
     .action = VOLUME_SET_PHASE,
     .rule = "V1",
     .phase = "Available"},
    {.name = "V1 nothing to do", .volume = "{}", .action = VOLUME_NOTHING, .rule = "V1"},
    {.name = "V1 whatever it was",
     .volume = "{'status':{'phase':'Failed'}}",
     .action = VOLUME_SET_PHASE,
     .rule = "V1",
     .phase = "Available"},
    {.name = "V2 reserved by name",
     .volume = "{'spec':{'claimRef':{'namespace':'default','name':'c'}},'status':{'phase':'Released'}}",
     .claim = "{}",
     .action = VOLUME_SET_PHASE,
     .rule = "V2",
     .phase = "Available"},
    {.name = "V3 not in the store: ask",
     .volume = "{'spec':{" REF("c", "uid-c") "},'status':{'phase':'Bound'}}",
     .action = VOLUME_LOOK_UP_LIVE,
     .rule = "V3"},
    {.name = "V3 gone",
     .volume = "{'spec':{" REF("c", "uid-c") "},'status':{'phase':'Bound'}}",
     .live = NOBODY,
     .action = VOLUME_RELEASE,
     .rule = "V3",
     .phase = "Released"},
    {.name = "V3 it lives after all",
     .volume = "{'spec':{" REF("c", "uid-c") "},'status':{'phase':'Bound'}}",
     .live = SAME,
     .action = VOLUME_WAKE_CLAIM,
     .rule = "V5"},
    {.name = "V3 Released stays so and nobody is asked",
     .volume = "{'spec':{" REF("c", "uid-c") "},'status':{'phase':'Released'}}",
     .action = VOLUME_RELEASE,
     .rule = "V3"},
    {.name = "V3 Failed stays so",
     .volume = "{'spec':{" REF("c", "uid-c") "},'status':{'phase':'Failed'}}",
     .action = VOLUME_RELEASE,
     .rule = "V3"},
    {.name = "V3 another uid in the store: ask",
     .volume = "{'spec':{" REF("c", "uid-dead") "},'status':{'phase':'Bound'}}",
     .claim = "{}",
     .action = VOLUME_LOOK_UP_LIVE,
     .rule = "V3"},
    {.name = "V3 another uid, and so it is",
     .volume = "{'spec':{" REF("c", "uid-dead") "},'status':{'phase':'Bound'}}",
     .claim = "{}",
     .live = OTHER,
     .action = VOLUME_RELEASE,
     .rule = "V3",
     .phase = "Released"},
    {.name = "V3 the store was behind",
     .volume = "{'spec':{" REF("c", "uid-new") "},'status':{'phase':'Bound'}}",
     .claim = "{}",
     .live = SAME,
     .action = VOLUME_WAKE_CLAIM,
     .rule = "V5"},
    {.name = "V3 a retained volume of a claim made anew costs no request",
     .volume = "{'spec':{" REF("c", "uid-dead") "},'status':{'phase':'Released'}}",
     .claim = "{}",
     .action = VOLUME_RELEASE,
     .rule = "V3"},
    {.name = "V3 a recycled one is asked about",
     .volume =
         "{'spec':{'persistentVolumeReclaimPolicy':'Recycle'," REF("c", "uid-dead") "},'status':{'phase':'Released'}}",
     .claim = "{}",
     .action = VOLUME_LOOK_UP_LIVE,
     .rule = "V3"},
    {.name = "V4",
     .volume = "{'spec':{'volumeMode':'Block'," REF("c", "uid-c") "}}",
     .claim = "{}",
     .action = VOLUME_MISMATCH,
     .rule = "V4"},
    {.name = "V5",
     .volume = "{'spec':{" REF("c", "uid-c") "},'status':{'phase':'Pending'}}",
     .claim = "{}",
     .action = VOLUME_WAKE_CLAIM,
     .rule = "V5"},
    {.name = "V6",
     .volume = "{'spec':{" REF("c", "uid-c") "}}",
     .claim = "{'spec':{'volumeName':'v'}}",
     .action = VOLUME_SET_PHASE,
     .rule = "V6",
     .phase = "Bound"},
    {.name = "V6 nothing to do",
     .volume = "{'spec':{" REF("c", "uid-c") "},'status':{'phase':'Bound'}}",
     .claim = "{'spec':{'volumeName':'v'}}",
     .action = VOLUME_NOTHING,
     .rule = "V6"},
    {.name = "V7 lost the race",
     .volume = "{'metadata':{" BY("x.example.com") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'," REF(
         "c", "uid-c") "},'status':{'phase':'Bound'}}",
     .claim = "{'spec':{'volumeName':'w'}}",
     .action = VOLUME_RELEASE,
     .rule = "V7",
     .phase = "Released"},
    {.name = "V8 made by hand",
     .volume = "{'spec':{'persistentVolumeReclaimPolicy':'Delete'," REF("c", "uid-c") "},'status':{'phase':'Bound'}}",
     .claim = "{'spec':{'volumeName':'w'}}",
     .action = VOLUME_UNBIND,
     .rule = "V8"},
    {.name = "V8 provisioned but retained",
     .volume = "{'metadata':{" BY("x.example.com") "},'spec':{" REF("c", "uid-c") "},'status':{'phase':'Bound'}}",
     .claim = "{'spec':{'volumeName':'w'}}",
     .action = VOLUME_UNBIND,
     .rule = "V8"},
    {.name = "reference without a name",
     .volume = "{'spec':{'claimRef':{'uid':'u'}},'status':{'phase':'Pending'}}",
     .action = VOLUME_FAIL,
     .rule = "V3"},
    {.name = "reference without a namespace",
     .volume = "{'spec':{'claimRef':{'name':'c','uid':'u'}},'status':{'phase':'Pending'}}",
     .action = VOLUME_LOOK_UP_LIVE,
     .rule = "V3"},
    {.name = "reference without a namespace before 1.31",
     .minor = 30,
     .volume = "{'spec':{'claimRef':{'name':'c','uid':'u'}},'status':{'phase':'Pending'}}",
     .action = VOLUME_FAIL,
     .rule = "V3"},
    {.name = "finalizer of in-tree Delete",
     .volume = "{'metadata':{'finalizers':['a','external-provisioner.volume.kubernetes.io/finalizer','b']," BY(
         "kubernetes.io/host-path") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     .action = VOLUME_ANNEAL,
     .rule = "V0",
     .finalizers = "a,b,kubernetes.io/pv-controller"},
    {.name = "no finalizers before 1.31",
     .minor = 30,
     .volume = "{'metadata':{" BY("kubernetes.io/host-path") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     .action = VOLUME_NOTHING,
     .rule = "V1"},
    {.name = "finalizer goes with Retain",
     .volume = "{'metadata':{'finalizers':['a','kubernetes.io/pv-controller']," BY("kubernetes.io/host-path") "}}",
     .action = VOLUME_ANNEAL,
     .rule = "V0",
     .finalizers = "a"},
    {.name = "finalizer is right",
     .volume = "{'metadata':{'finalizers':['kubernetes.io/pv-controller']," BY(
         "kubernetes.io/host-path") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     .action = VOLUME_NOTHING,
     .rule = "V1"},
    {.name = "external provisioner's finalizer is its own",
     .volume = "{'metadata':{'finalizers':['kubernetes.io/pv-controller','external-provisioner.volume.kubernetes.io/"
               "finalizer']," BY("x.example.com") "}}",
     .action = VOLUME_NOTHING,
     .rule = "V1"},
    {.name = "by hand: nothing",
     .volume = "{'metadata':{'finalizers':['kubernetes.io/pv-controller']}}",
     .action = VOLUME_NOTHING,
     .rule = "V1"},
    {.name = "no new finalizer on a terminating volume",
     .volume = "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z','finalizers':['a']," BY(
         "kubernetes.io/host-path") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     .action = VOLUME_FAIL,
     .rule = "V0"},
    {.name = "migrated",
     .volume = "{'metadata':{'finalizers':['kubernetes.io/pv-controller','external-provisioner.volume.kubernetes.io/"
               "finalizer']," BY("kubernetes.io/gce-pd") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     .action = VOLUME_ANNEAL,
     .rule = "V0",
     .finalizers = "external-provisioner.volume.kubernetes.io/finalizer",
     .migrated_to = "pd.csi.storage.gke.io"},
    {.name = "rolled back",
     .volume = "{'metadata':{'annotations':{'pv.kubernetes.io/provisioned-by':'x.example.com','pv.kubernetes.io/"
               "migrated-to':'y'}}}",
     .action = VOLUME_ANNEAL,
     .rule = "V0"},
};

static void check_row(const struct row *row)
{
    struct world world;
    world_init(&world, row->minor == 0 ? 36 : row->minor);
    const struct kube_volume *volume = world_volume(&world, "v", row->volume);
    if (row->claim != NULL)
        world_claim(&world, "c", row->claim);
    struct volume_live live = {NULL};
    if (row->live == SAME || row->live == OTHER) {
        auto_free char *uid =
            mem_printf("{'metadata':{'uid':'%s'}}", row->live == SAME ? volume->claim_ref->uid : "uid-c");
        live.claim = (struct kube_claim *)make_object(&kube_kind_claim, "c", uid, 1000);
    }
    struct volume_plan plan;
    volume_decide(&world.view, volume, row->live == NOT_ASKED ? NULL : &live, &plan);
    if (plan.action != row->action || !str_eq(plan.rule, row->rule) || !str_eq(plan.phase, row->phase))
        fail_msg("%s: got %s %s phase %s", row->name, plan.rule, volume_action_name(plan.action),
                 plan.phase == NULL ? "-" : plan.phase);
    if (row->finalizers != NULL || plan.set_finalizers) {
        auto_free char *finalizers = strv_join(&plan.finalizers, ",");
        if (plan.action == VOLUME_ANNEAL && !str_eq(finalizers, row->finalizers))
            fail_msg("%s: finalizers %s", row->name, finalizers);
    }
    if (!str_eq(plan.migrated_to, row->migrated_to))
        fail_msg("%s: migrated to %s", row->name, plan.migrated_to == NULL ? "-" : plan.migrated_to);
    if (plan.action == VOLUME_WAKE_CLAIM)
        assert_string_equal(plan.claim_key, "default/c");
    volume_plan_clear(&plan);
    if (live.claim != NULL)
        kube_object_unref(&live.claim->object);
    world_clear(&world);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_row(&rows[i]);
}

#define TERMINATING "'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z','finalizers':['a']}"
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
static const struct {
    const char *name;
    int minor;
    const char *volume;
    enum reclaim_action action;
    const char *plugin;
    const char *reason, *text;
} reclaims[] = {
    {"Retain", 36, "{}", RECLAIM_NOTHING, NULL, NULL, NULL},
    {"migrated", 36,
     "{'metadata':{'annotations':{'pv.kubernetes.io/"
     "migrated-to':'x'}},'spec':{'persistentVolumeReclaimPolicy':'Recycle'}}",
     RECLAIM_NOTHING, NULL, NULL, NULL},
    {"Recycle nfs", 36, "{'spec':{'persistentVolumeReclaimPolicy':'Recycle'}}", RECLAIM_RECYCLE, PLUGIN_NFS, NULL,
     NULL},
    {"Recycle csi", 36,
     "{'spec':{'persistentVolumeReclaimPolicy':'Recycle','nfs':null,'csi':{'driver':'d','volumeHandle':'h'}}}",
     RECLAIM_RECYCLE, NULL, NULL, NULL},
    {"unknown policy", 36, "{'spec':{'persistentVolumeReclaimPolicy':'Burn'}}", RECLAIM_FAIL, NULL,
     "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"},
    {"Delete external", 36, "{'metadata':{" BY("x.example.com") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     RECLAIM_EXTERNAL, NULL, NULL, NULL},
    {"Delete csi by hand", 36,
     "{'spec':{'persistentVolumeReclaimPolicy':'Delete','nfs':null,'csi':{'driver':'d','volumeHandle':'h'}}}",
     RECLAIM_EXTERNAL, NULL, NULL, NULL},
    {"Delete csi by hand in 1.20", 20,
     "{'spec':{'persistentVolumeReclaimPolicy':'Delete','nfs':null,'csi':{'driver':'d','volumeHandle':'h'}}}",
     RECLAIM_FAIL, "kubernetes.io/csi", "VolumeFailedDelete",
     "Error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched"},
    {"Delete, migrated-to is empty", 36,
     "{'metadata':{'annotations':{'pv.kubernetes.io/migrated-to':''}},"
     "'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     RECLAIM_EXTERNAL, NULL, NULL, NULL},
    {"Delete, migrated-to is empty, in 1.20", 20,
     "{'metadata':{'annotations':{'pv.kubernetes.io/migrated-to':''}},"
     "'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     RECLAIM_FAIL, PLUGIN_NFS, "VolumeFailedDelete",
     "Error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched"},
    {"Delete nfs", 36, "{'spec':{'persistentVolumeReclaimPolicy':'Delete'}}", RECLAIM_FAIL, PLUGIN_NFS,
     "VolumeFailedDelete", "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched"},
    {"Delete nfs, terminating", 36, "{" TERMINATING ",'spec':{'persistentVolumeReclaimPolicy':'Delete'}}", RECLAIM_FAIL,
     PLUGIN_NFS, "VolumeFailedDelete",
     "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched"},
    {"Delete nfs, terminating, in 1.20", 20, "{" TERMINATING ",'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     RECLAIM_NOTHING, NULL, NULL, NULL},
    {"Delete local", 36, "{'spec':{'persistentVolumeReclaimPolicy':'Delete','nfs':null,'local':{'path':'/x'}}}",
     RECLAIM_FAIL, NULL, "VolumeFailedDelete",
     "error getting deleter volume plugin for volume \"v\": no volume plugin matched"},
    {"Delete local in 1.20", 20, "{'spec':{'persistentVolumeReclaimPolicy':'Delete','nfs':null,'local':{'path':'/x'}}}",
     RECLAIM_FAIL, "kubernetes.io/local-volume", "VolumeFailedDelete",
     "Error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched"},
    {"Delete hostPath by hand", 36,
     "{'spec':{'persistentVolumeReclaimPolicy':'Delete','nfs':null,'hostPath':{'path':'/tmp/x'}}}", RECLAIM_DELETE,
     PLUGIN_HOST_PATH, NULL, NULL},
    {"Delete provisioned here", 36,
     "{'metadata':{" BY("kubernetes.io/host-path") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}",
     RECLAIM_DELETE, PLUGIN_HOST_PATH, NULL, NULL},
    {"Delete by nfs", 36,
     "{'metadata':{" BY("kubernetes.io/nfs") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}", RECLAIM_FAIL,
     PLUGIN_NFS, "VolumeFailedDelete", "no deletable volume plugin matched"},
    {"Delete by an unknown plugin", 36,
     "{'metadata':{" BY("kubernetes.io/rbd") "},'spec':{'persistentVolumeReclaimPolicy':'Delete'}}", RECLAIM_FAIL, NULL,
     "VolumeFailedDelete", "no volume plugin matched name: kubernetes.io/rbd"},
};

static void test_reclaim(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(reclaims); i++) {
        struct world world;
        world_init(&world, reclaims[i].minor);
        struct reclaim_plan plan;
        reclaim_decide(&world.view, world_volume(&world, "v", reclaims[i].volume), &plan);
        if (plan.action != reclaims[i].action || !str_eq(plan.reason, reclaims[i].reason) ||
            !str_eq(plan.text, reclaims[i].text) ||
            !str_eq(plan.plugin == NULL ? NULL : plan.plugin->name, reclaims[i].plugin))
            fail_msg("%s: action %d plugin %s text %s", reclaims[i].name, (int)plan.action,
                     plan.plugin == NULL ? "-" : plan.plugin->name, plan.text == NULL ? "-" : plan.text);
        reclaim_plan_clear(&plan);
        world_clear(&world);
    }
}

static void test_is_released(void **state)
{
    (void)state;
    static const struct {
        const char *volume, *claim;
        bool released;
    } cases[] = {
        {"{}", NULL, false},
        {"{'spec':{'claimRef':{'namespace':'default','name':'c'}}}", NULL, false},
        {"{'spec':{" REF("c", "uid-c") "}}", NULL, true},
        {"{'spec':{" REF("c", "uid-dead") "}}", "{}", true},
        {"{'spec':{" REF("c", "uid-c") "}}", "{}", false},
        {"{'spec':{" REF("c", "uid-c") "}}", "{'spec':{'volumeName':'v'}}", false},
        {"{'spec':{" REF("c", "uid-c") "}}", "{'spec':{'volumeName':'w'}}", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_unref struct kube_object *volume = make_object(&kube_kind_volume, "v", cases[i].volume, 1);
        auto_unref struct kube_object *claim =
            cases[i].claim == NULL ? NULL : make_object(&kube_kind_claim, "c", cases[i].claim, 1);
        assert_int_equal(volume_is_released((struct kube_volume *)volume, (struct kube_claim *)claim),
                         cases[i].released);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_reclaim),
        cmocka_unit_test(test_is_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
