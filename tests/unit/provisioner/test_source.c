/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "provisioner/source.h"

#define SNAPSHOT_SOURCE "{'apiGroup': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot', 'name': 's'}"
#define CLAIM_SOURCE "{'kind': 'PersistentVolumeClaim', 'name': 'src'}"

/* Builds the first half and compares: part NULL = success. */
static void prepare(struct fixture *fixture, const char *extra_spec, enum provision_state expected, const char *part,
                    struct provision_request *request)
{
    struct provision_request own;
    enum provision_state state = PROVISION_FINISHED;
    auto_err struct err err = {0};
    const struct kube_claim *claim = fixture_claim(fixture, extra_spec, "");
    const struct kube_class *class_ = fixture_class(fixture, "", "");
    int result = request_prepare(&fixture->config, &fixture->lookup, claim, class_, &own, &state, &err);
    if (part != NULL) {
        assert_int_equal(result, -1);
        expect_error(&err, part);
        if (state != expected)
            fail_msg("%s: state %s", part, provision_state_name(state));
    } else if (result < 0) {
        fail_msg("%s: %s", extra_spec, err_text(&err));
    }
    if (request != NULL)
        *request = own;
    else
        provision_request_clear(&own);
}

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        enum provision_state state;
        const char *part;
    } table[] = {
        {"{'kind': 'VolumeSnapshot', 'name': 's'}", PROVISION_FINISHED, "right APIGroup"},
        {"{'apiGroup': 'other', 'kind': 'VolumeSnapshot', 'name': 's'}", PROVISION_FINISHED, "right APIGroup"},
        {"{'apiGroup': 'other', 'kind': 'PersistentVolumeClaim', 'name': 's'}", PROVISION_FINISHED, "right APIGroup"},
        {"{'apiGroup': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot', 'name': ''}", PROVISION_FINISHED,
         "source not found"},
        {"{'kind': 'PersistentVolumeClaim', 'name': ''}", PROVISION_FINISHED, "source not found"},
        {"{'apiGroup': 'my.org', 'kind': 'Backup', 'name': 'b'}", PROVISION_IGNORED, "populator"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        for (int ref = 0; ref < 2; ref++) {
            auto_fixture struct fixture fixture;
            fixture_init(&fixture);
            auto_free char *extra = mem_printf("'%s': %s", ref ? "dataSourceRef" : "dataSource", table[i].source);
            prepare(&fixture, extra, table[i].state, table[i].part, NULL);
        }
}

static void add_snapshot(struct fixture *fixture, const char *meta, const char *status, const char *content_spec,
                         const char *content_status)
{
    fixture_add(fixture, &kube_kind_snapshot,
                "{'metadata': {'namespace': 'default', 'name': 's', 'uid': 'snap-1'%s}, 'status': {%s}}", meta, status);
    fixture_add(fixture, &kube_kind_snapshot_content,
                "{'metadata': {'name': 'content', 'annotations': {}}, 'spec': {%s}, 'status': {%s}}", content_spec,
                content_status);
}

#define READY "'readyToUse': true, 'boundVolumeSnapshotContentName': 'content', 'restoreSize': '1Gi'"
#define REFERENCE "'volumeSnapshotRef': {'uid': 'snap-1', 'namespace': 'default', 'name': 's'}"
#define CONTENT REFERENCE ", 'driver': 'd'"
#define HANDLE "'snapshotHandle': 'handle-1', 'readyToUse': true"

static void test_snapshot(void **state)
{
    (void)state;
    static const struct {
        const char *meta, *status, *content_spec, *content_status, *part; /* part NULL = fine */
    } table[] = {
        {"", READY, CONTENT, HANDLE, NULL},
        {"", "'readyToUse': true, 'boundVolumeSnapshotContentName': 'content'", CONTENT, HANDLE, NULL},
        {", 'deletionTimestamp': '2024-01-01T00:00:00Z'", READY, CONTENT, HANDLE, "currently being deleted"},
        {", 'deletionTimestamp': '2024-01-01T00:00:00Z', 'finalizers': "
         "['provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection']",
         READY, CONTENT, HANDLE, NULL},
        {"", "'readyToUse': true", CONTENT, HANDLE, "not bound"},
        {"", "'readyToUse': true, 'boundVolumeSnapshotContentName': 'other'", CONTENT, HANDLE, "snapshotcontent other"},
        {"", READY, "'driver': 'd', 'volumeSnapshotRef': {'uid': 'snap-2', 'namespace': 'default', 'name': 's'}",
         HANDLE, "bound to a different snapshot"},
        {"", READY, "'driver': 'd', 'volumeSnapshotRef': {'uid': 'snap-1', 'namespace': 'x', 'name': 's'}", HANDLE,
         "bound to a different snapshot"},
        {"", READY, "'driver': 'd', 'volumeSnapshotRef': {'uid': 'snap-1', 'namespace': 'default', 'name': 'x'}",
         HANDLE, "bound to a different snapshot"},
        {"", READY, REFERENCE ", 'driver': 'other'", HANDLE, "different CSI driver"},
        {"", "'readyToUse': false, 'boundVolumeSnapshotContentName': 'content'", CONTENT, HANDLE, "not Ready"},
        {"", READY, CONTENT, "", "handle s is not available"},
        {"", "'readyToUse': true, 'boundVolumeSnapshotContentName': 'content', 'restoreSize': '1025Mi'", CONTENT,
         HANDLE, "is less than the size"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        add_snapshot(&fixture, table[i].meta, table[i].status, table[i].content_spec, table[i].content_status);
        struct provision_request request;
        prepare(&fixture, "'dataSource': " SNAPSHOT_SOURCE, PROVISION_NO_CHANGE, table[i].part, &request);
        if (table[i].part == NULL) {
            const Csi__V1__VolumeContentSource *source = request.csi.volume_content_source;
            assert_int_equal(source->type_case, CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT);
            assert_string_equal(source->snapshot->snapshot_id, "handle-1");
            assert_int_equal(request.source, REQUEST_SOURCE_SNAPSHOT);
            assert_string_equal(request.protect_name, "s");
            assert_true(request.source_must_be_echoed);
        }
        provision_request_clear(&request);
    }
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    prepare(&fixture, "'dataSource': " SNAPSHOT_SOURCE, PROVISION_NO_CHANGE,
            "error getting handle for DataSource Type VolumeSnapshot by Name s", NULL);
}

static void test_mode_conversion(void **state)
{
    (void)state;
    static const struct {
        bool prevent;
        const char *source_mode, *claim_mode, *annotation; /* "" = none */
        const char *part;
    } table[] = {
        {true, "'Block'", "'Filesystem'", "", "does not have permission"},
        {false, "'Block'", "'Filesystem'", "", NULL},
        {true, "'Block'", "'Filesystem'", "true", NULL},
        {true, "'Block'", "'Filesystem'", "T", NULL},
        {true, "'Block'", "'Filesystem'", "false", "does not have permission"},
        {true, "'Block'", "'Filesystem'", "yes", "failed to convert"},
        {true, "'Block'", "'Block'", "", NULL},
        {true, "''", "'Block'", "", NULL},
        {true, "'Block'", "null", "", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        fixture.config.prevent_volume_mode_conversion = table[i].prevent;
        add_snapshot(&fixture, "", READY, CONTENT, HANDLE);
        auto_free char *annotation =
            *table[i].annotation
                ? mem_printf("'snapshot.storage.kubernetes.io/allow-volume-mode-change': '%s'", table[i].annotation)
                : mem_strdup("");
        fixture_add(&fixture, &kube_kind_snapshot_content,
                    "{'metadata': {'name': 'content', 'annotations': {%s}}, 'spec': {" CONTENT
                    ", 'sourceVolumeMode': %s}, 'status': {" HANDLE "}}",
                    annotation, table[i].source_mode);
        auto_free char *extra = mem_printf("'volumeMode': %s, 'dataSource': " SNAPSHOT_SOURCE, table[i].claim_mode);
        prepare(&fixture, extra, PROVISION_NO_CHANGE, table[i].part, NULL);
    }
}

static void add_source_claim(struct fixture *fixture, const char *meta, const char *spec, const char *phase,
                             const char *volume)
{
    fixture_add(fixture, &kube_kind_claim,
                "{'metadata': {'namespace': 'default', 'name': 'src', 'uid': 'src-1'%s}, 'spec': {%s},"
                " 'status': {'phase': '%s'}}",
                meta, spec, phase);
    fixture_add(fixture, &kube_kind_volume, "{'metadata': {'name': 'pv'}, %s}", volume);
}

#define SOURCE_SPEC "'storageClassName': 'slow', 'volumeName': 'pv', 'resources': {'requests': {'storage': '1Gi'}}"
#define SOURCE_REF "'claimRef': {'namespace': 'default', 'name': 'src', 'uid': 'src-1'}"
#define SOURCE_VOLUME                                                                                                  \
    "'spec': {'csi': {'driver': 'd', 'volumeHandle': 'h'}, " SOURCE_REF "}, 'status': {'phase': 'Bound'}"

static void test_clone(void **state)
{
    (void)state;
    static const struct {
        const char *meta, *spec, *phase, *volume, *part;
    } table[] = {
        {"", SOURCE_SPEC, "Bound", SOURCE_VOLUME, NULL},
        {"", SOURCE_SPEC ", 'volumeMode': 'Filesystem'", "Bound", SOURCE_VOLUME, NULL},
        {"", SOURCE_SPEC, "Pending", SOURCE_VOLUME, "must be in Bound phase"},
        {", 'deletionTimestamp': '2024-01-01T00:00:00Z'", SOURCE_SPEC, "Bound", SOURCE_VOLUME, "being deleted"},
        {", 'deletionTimestamp': '2024-01-01T00:00:00Z', 'finalizers': "
         "['provisioner.storage.kubernetes.io/cloning-protection']",
         SOURCE_SPEC, "Bound", SOURCE_VOLUME, NULL},
        {"", "'volumeName': 'pv'", "Bound", SOURCE_VOLUME, "storageclass cannot be empty"},
        {"", "'storageClassName': 'x', 'volumeName': 'pv', 'resources': {'requests': {'storage': '2Gi'}}", "Bound",
         SOURCE_VOLUME, "greater than or equal in size"},
        {"", SOURCE_SPEC ", 'volumeMode': 'Block'", "Bound", SOURCE_VOLUME, "same volume mode"},
        {"", "'storageClassName': 'x', 'volumeName': 'gone'", "Bound", SOURCE_VOLUME, "error getting PV gone"},
        {"", SOURCE_SPEC, "Bound", "'spec': {'hostPath': {'path': '/x'}, " SOURCE_REF "}, 'status': {'phase': 'Bound'}",
         "not a CSI volume"},
        {"", SOURCE_SPEC, "Bound",
         "'spec': {'csi': {'driver': 'e', 'volumeHandle': 'h'}, " SOURCE_REF "}, 'status': {'phase': 'Bound'}",
         "different CSI driver"},
        {"", SOURCE_SPEC, "Bound",
         "'spec': {'csi': {'driver': 'd', 'volumeHandle': 'h'}}, 'status': {'phase': 'Bound'}", "different PVC"},
        {"", SOURCE_SPEC, "Bound",
         "'spec': {'csi': {'driver': 'd', 'volumeHandle': 'h'}, 'claimRef': {'namespace': 'default', 'name': 'src', "
         "'uid': 'x'}}, 'status': {'phase': 'Bound'}",
         "different PVC"},
        {"", SOURCE_SPEC, "Bound",
         "'spec': {'csi': {'driver': 'd', 'volumeHandle': 'h'}, " SOURCE_REF "}, 'status': {'phase': 'Available'}",
         "not bound"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        add_source_claim(&fixture, table[i].meta, table[i].spec, table[i].phase, table[i].volume);
        struct provision_request request;
        prepare(&fixture, "'dataSource': " CLAIM_SOURCE, PROVISION_NO_CHANGE, table[i].part, &request);
        if (table[i].part == NULL) {
            assert_string_equal(request.csi.volume_content_source->volume->volume_id, "h");
            assert_int_equal(request.source, REQUEST_SOURCE_CLAIM);
        }
        provision_request_clear(&request);
    }
}

#define GRANT(from_namespace, to)                                                                                      \
    "{'metadata': {'namespace': 'far', 'name': 'g'}, 'spec': {'from': [{'group': '', 'kind': "                         \
    "'PersistentVolumeClaim', 'namespace': '" from_namespace "'}], 'to': [" to "]}}"

static void test_cross_namespace(void **state)
{
    (void)state;
    static const char source[] = "'dataSourceRef': {'apiGroup': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot', "
                                 "'name': 's', 'namespace': '%s'}";
    /* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which the table is read */
    static const struct {
        bool gate;
        const char *namespace_, *grant;
        enum provision_state state;
        const char *part;
    } table[] = {
        {false, "far", NULL, PROVISION_FINISHED, "feature is disabled"},
        {false, "default", NULL, PROVISION_FINISHED, "feature is disabled"},
        {true, "default", NULL, PROVISION_NO_CHANGE, "error getting handle"}, /* allowed; not there */
        {true, "far", NULL, PROVISION_FINISHED, "isn't allowed"},
        {true, "far", GRANT("default", "{'group': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot'}"), 0, NULL},
        {true, "far", GRANT("default", "{'group': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot', 'name': ''}"), 0,
         NULL},
        {true, "far", GRANT("default", "{'group': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot', 'name': 's'}"),
         0, NULL},
        {true, "far", GRANT("default", "{'group': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot', 'name': 'x'}"),
         PROVISION_FINISHED, "isn't allowed"},
        {true, "far", GRANT("else", "{'group': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot'}"),
         PROVISION_FINISHED, "isn't allowed"},
        {true, "far", GRANT("default", "{'group': '', 'kind': 'VolumeSnapshot'}"), PROVISION_FINISHED, "isn't allowed"},
        {true, "far", GRANT("default", "{'group': 'snapshot.storage.k8s.io', 'kind': 'Other'}"), PROVISION_FINISHED,
         "isn't allowed"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        fixture.config.gate_cross_namespace = table[i].gate;
        if (table[i].grant != NULL) {
            fixture_add(&fixture, &kube_kind_reference_grant, "%s", table[i].grant);
            fixture_add(&fixture, &kube_kind_snapshot,
                        "{'metadata': {'namespace': 'far', 'name': 's', 'uid': 'snap-1'}, 'status': {" READY "}}");
            fixture_add(&fixture, &kube_kind_snapshot_content,
                        "{'metadata': {'name': 'content'}, 'spec': {'driver': 'd', 'volumeSnapshotRef': {'uid': "
                        "'snap-1', 'namespace': 'far', 'name': 's'}}, 'status': {" HANDLE "}}");
        }
        auto_free char *extra = mem_printf(source, table[i].namespace_);
        struct provision_request request;
        prepare(&fixture, extra, table[i].state, table[i].part, &request);
        if (table[i].part == NULL) {
            assert_true(request.source_must_be_echoed);
            assert_string_equal(request.protect_namespace, "far");
        }
        provision_request_clear(&request);
    }
}

/* A dataSourceRef without a dataSource in the same namespace: the answer's source is not looked at. */
static void test_reference_only(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    add_snapshot(&fixture, "", READY, CONTENT, HANDLE);
    struct provision_request request;
    prepare(&fixture, "'dataSourceRef': " SNAPSHOT_SOURCE, 0, NULL, &request);
    assert_false(request.source_must_be_echoed);
    provision_request_clear(&request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds), cmocka_unit_test(test_snapshot),        cmocka_unit_test(test_mode_conversion),
        cmocka_unit_test(test_clone), cmocka_unit_test(test_cross_namespace), cmocka_unit_test(test_reference_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
