/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/controller/support.h"

#include "controller/metrics.h"
#include "lib/base/str.h"

struct scene {
    struct world world;
    struct clock *clock;
    struct metrics *registry;
    struct controller_metrics *metrics;
};

static void open_scene(struct scene *scene)
{
    world_init(&scene->world, 36);
    scene->clock = clock_fake_new(0);
    scene->registry = metrics_new();
    scene->metrics = controller_metrics_new(scene->registry, &scene->world.view, scene->clock);
}

static void close_scene(struct scene *scene)
{
    controller_metrics_free(scene->metrics);
    metrics_free(scene->registry);
    clock_free(scene->clock);
    world_clear(&scene->world);
}

static void assert_line(struct scene *scene, const char *line, bool there)
{
    auto_str struct str text = {0};
    metrics_write(scene->registry, &text);
    if ((strstr(str_text(&text), line) != NULL) != there)
        fail_msg("%s %s in\n%s", line, there ? "is missing" : "must not be", str_text(&text));
}

static void test_collector(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    struct world *world = &scene.world;
    world_volume(world, "a", "{'spec':{'storageClassName':'gold'},'status':{'phase':'Bound'}}");
    world_volume(world, "b", "{'spec':{'nfs':null,'hostPath':{'path':'/x'},'volumeMode':'Block'}}");
    world_volume(world, "d", "{'spec':{'nfs':null,'csi':{'driver':'d.example.com','volumeHandle':'h'}}}");
    world_volume(world, "e", "{'spec':{'nfs':null,'local':{'path':'/x'}}}");
    world_claim(world, "a",
                "{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-class':'beta'}},"
                "'status':{'phase':'Bound'}}");
    world_claim(world, "b", "{'spec':{'volumeAttributesClassName':'fast'}}");
    assert_line(&scene, "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/nfs\",volume_mode=\"Filesystem\"} 1\n",
                true);
    assert_line(&scene,
                "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/host-path\",volume_mode=\"Block\"} 1\n", true);
    assert_line(&scene, "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/csi:d.example.com\"", true);
    assert_line(&scene, "pv_collector_total_pv_count{plugin_name=\"N/A\",volume_mode=\"Filesystem\"} 1\n", true);
    assert_line(&scene, "pv_collector_bound_pv_count{storage_class=\"gold\"} 1\n", true);
    assert_line(&scene, "pv_collector_unbound_pv_count{storage_class=\"\"} 3\n", true);
    assert_line(
        &scene,
        "pv_collector_bound_pvc_count{namespace=\"default\",storage_class=\"beta\",volume_attributes_class=\"\"} "
        "1\n",
        true);
    assert_line(&scene,
                "pv_collector_unbound_pvc_count{namespace=\"default\",storage_class=\"\",volume_attributes_class="
                "\"fast\"} 1\n",
                true);
    kube_store_remove(world->view.volumes, NULL, "a", "", 1000);
    assert_line(&scene, "pv_collector_bound_pv_count{", false); /* absent, not 0 */
    close_scene(&scene);
}

static void test_operations(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    controller_metrics_fail(scene.metrics, OPERATION_PROVISION, "default/c");
    controller_metrics_finish(scene.metrics, OPERATION_PROVISION, "default/c");
    assert_line(&scene, "volume_operation_errors_total{", false); /* nothing was started */
    assert_line(&scene, "volume_operation_total_seconds_count{", false);
    controller_metrics_start(scene.metrics, OPERATION_PROVISION, "default/c", "x.example.com");
    clock_fake_advance(scene.clock, 20 * CLOCK_SECOND);
    controller_metrics_start(scene.metrics, OPERATION_PROVISION, "default/c", "y.example.com"); /* the first counts */
    controller_metrics_fail(scene.metrics, OPERATION_PROVISION, "default/c");
    clock_fake_advance(scene.clock, 10 * CLOCK_SECOND);
    controller_metrics_finish(scene.metrics, OPERATION_PROVISION, "default/c");
    controller_metrics_finish(scene.metrics, OPERATION_PROVISION, "default/c"); /* once */
#define LABELS "{plugin_name=\"x.example.com\",operation_name=\"provision\"}"
    assert_line(&scene, "volume_operation_errors_total" LABELS " 1\n", true);
    assert_line(&scene, "volume_operation_total_errors" LABELS " 1\n", true);
    assert_line(&scene, "volume_operation_total_seconds_count" LABELS " 1\n", true);
    assert_line(&scene, "volume_operation_total_seconds_sum" LABELS " 30\n", true);
    controller_metrics_start(scene.metrics, OPERATION_DELETE, "pv", NULL);
    controller_metrics_forget(scene.metrics, OPERATION_DELETE, "pv");
    controller_metrics_finish(scene.metrics, OPERATION_DELETE, "pv");
    assert_line(&scene, "operation_name=\"delete\"", false);
    controller_metrics_start(scene.metrics, OPERATION_DELETE, "pv", "");
    controller_metrics_finish(scene.metrics, OPERATION_DELETE, "pv");
    assert_line(&scene, "volume_operation_total_seconds_count{plugin_name=\"N/A\",operation_name=\"delete\"} 1\n",
                true);
    close_scene(&scene);
}

static void test_others(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    controller_metrics_default_class(scene.metrics, false);
    controller_metrics_default_class(scene.metrics, true);
    controller_metrics_plugin_call(scene.metrics, "kubernetes.io/host-path", "volume_delete", true, CLOCK_SECOND);
    assert_line(&scene, "retroactive_storageclass_total 2\n", true);
    assert_line(&scene, "retroactive_storageclass_errors_total 1\n", true);
    assert_line(&scene,
                "storage_operation_duration_seconds_count{volume_plugin=\"kubernetes.io/host-path\",operation_name="
                "\"volume_delete\",status=\"fail-unknown\",migrated=\"false\"} 1\n",
                true);
    close_scene(&scene);
}

static void test_leader(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene);
    assert_line(&scene, "leader_election", false); /* nothing without leader election */
    controller_metrics_leader(scene.registry, "berth-controller", false, 0);
    assert_line(&scene, "leader_election_master_status{name=\"berth-controller\"} 0\n", true);
    assert_line(&scene, "leader_election_slowpath_total{name=\"berth-controller\"} 0\n", true);
    controller_metrics_leader(scene.registry, "berth-controller", true, 2);
    assert_line(&scene, "leader_election_master_status{name=\"berth-controller\"} 1\n", true);
    assert_line(&scene, "leader_election_slowpath_total{name=\"berth-controller\"} 2\n", true);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collector),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_leader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
