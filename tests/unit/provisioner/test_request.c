/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"

#include <stdlib.h>

#define P "csi.storage.k8s.io/"

static int build(struct fixture *fixture, const struct kube_claim *claim, const struct kube_class *class_,
                 struct provision_request *request, enum provision_state *state, struct err *err)
{
    if (request_prepare(&fixture->config, &fixture->lookup, claim, class_, request, state, err) < 0)
        return -1;
    return request_complete(&fixture->config, &fixture->lookup, NULL, request, state, err);
}

static void expect_failure(struct fixture *fixture, const struct kube_claim *claim, const struct kube_class *class_,
                           enum provision_state expected, const char *part)
{
    struct provision_request request;
    enum provision_state state = PROVISION_FINISHED;
    auto_err struct err err = {0};
    assert_int_equal(build(fixture, claim, class_, &request, &state, &err), -1);
    expect_error(&err, part);
    if (state != expected)
        fail_msg("%s: state %s instead of %s", part, provision_state_name(state), provision_state_name(expected));
    provision_request_clear(&request);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *prefix;
        int64_t length;
        const char *uid, *name;
    } table[] = {
        {"pvc", -1, "12ab-34cd", "pvc-12ab-34cd"},
        {"pvc", 5, "12ab-34cd", "pvc-12ab3"},
        {"x", 8, "12ab-34cd", "x-12ab34cd"},
        {"x", 100, "12ab-34cd", "x-12ab34cd"},
        {"x", 0, "12ab-34cd", "x-"},
        {"", -1, "12ab", NULL},
        {NULL, -1, "12ab", NULL},
        {"pvc", -1, "", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct provision_config config = {.volume_name_prefix = table[i].prefix,
                                          .volume_name_uuid_length = table[i].length};
        auto_err struct err err = {0};
        auto_free char *name = request_volume_name(&config, table[i].uid, &err);
        if (!str_eq(name, table[i].name))
            fail_msg("%zu: %s", i, name);
        assert_int_equal(err.code, table[i].name == NULL ? ERR_INVALID : ERR_NONE);
    }
}

static void test_plain_request(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    const struct kube_claim *claim = fixture_claim(&fixture, "", "");
    const struct kube_class *class_ =
        fixture_class(&fixture, "'type': 'ssd', '" P "fstype': 'xfs'", "'mountOptions': ['noatime', 'ro']");
    struct provision_request request;
    enum provision_state outcome;
    auto_err struct err err = {0};
    if (build(&fixture, claim, class_, &request, &outcome, &err) < 0)
        fail_msg("%s", err_text(&err));
    assert_string_equal(request.csi.name, "pvc-u-1");
    assert_string_equal(request.volume_name, "pvc-u-1");
    assert_int_equal(request.csi.capacity_range->required_bytes, 1 << 30);
    assert_int_equal(request.csi.capacity_range->limit_bytes, 0);
    assert_int_equal(request.csi.n_volume_capabilities, 1);
    const Csi__V1__VolumeCapability *capability = request.csi.volume_capabilities[0];
    assert_int_equal(capability->access_mode->mode, 1);
    assert_int_equal(capability->access_type_case, CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT);
    assert_string_equal(capability->mount->fs_type, "xfs");
    assert_int_equal(capability->mount->n_mount_flags, 2);
    assert_string_equal(capability->mount->mount_flags[1], "ro");
    assert_string_equal(capability->mount->volume_mount_group, "");
    auto_free char *parameters = fixture_map_text(CSI_MAP(&request.csi, parameters));
    assert_string_equal(parameters, "type=ssd");
    assert_null(request.csi.accessibility_requirements);
    assert_null(request.csi.volume_content_source);
    assert_int_equal(request.csi.n_secrets + request.csi.n_mutable_parameters, 0);
    provision_request_clear(&request);
}

static void test_size_is_rounded_up(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } sizes[] = {{"1", 1}, {"1500m", 2}, {"1G", 1000000000}, {"0.5Gi", 1 << 29}, {"1Gi", 1 << 30}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        const struct kube_class *class_ = fixture_class(&fixture, "", "");
        auto_free char *extra =
            mem_printf("'resources': {'requests': {'storage': '%s'}, 'limits': {'storage': '9Ti'}}", sizes[i].text);
        const struct kube_claim *claim = fixture_claim(&fixture, extra, "");
        struct provision_request request;
        enum provision_state outcome;
        auto_err struct err err = {0};
        assert_int_equal(build(&fixture, claim, class_, &request, &outcome, &err), 0);
        assert_int_equal(request.csi.capacity_range->required_bytes, sizes[i].bytes);
        assert_int_equal(request.csi.capacity_range->limit_bytes, 0);
        provision_request_clear(&request);
    }
}

static void test_access_modes(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        int plain, extended;
    } modes[] = {{"ReadWriteMany", 5, 5}, {"ReadOnlyMany", 3, 3}, {"ReadWriteOnce", 1, 7}, {"ReadWriteOncePod", 1, 6}};
    for (size_t i = 0; i < 2 * ARRAY_LEN(modes); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        bool extended = i % 2 == 1;
        fixture.config.capabilities.single_node_multi_writer = extended;
        const struct kube_class *class_ = fixture_class(&fixture, "", "");
        auto_free char *extra = mem_printf("'accessModes': ['%s', 'ReadOnlyMany']", modes[i / 2].mode);
        const struct kube_claim *claim = fixture_claim(&fixture, extra, "");
        struct provision_request request;
        enum provision_state outcome;
        assert_int_equal(build(&fixture, claim, class_, &request, &outcome, NULL), 0);
        assert_int_equal(request.csi.n_volume_capabilities, 2);
        assert_int_equal(request.csi.volume_capabilities[0]->access_mode->mode,
                         extended ? modes[i / 2].extended : modes[i / 2].plain);
        assert_int_equal(request.csi.volume_capabilities[1]->access_mode->mode, 3);
        provision_request_clear(&request);
    }
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    expect_failure(&fixture, fixture_claim(&fixture, "'accessModes': ['Odd']", ""), fixture_class(&fixture, "", ""),
                   PROVISION_FINISHED, "unsupported access mode Odd");
}

static void test_fs_type_and_block(void **state)
{
    (void)state;
    static const struct {
        const char *parameters, *default_, *extra_spec, *fs_type; /* NULL = error */
        bool block;
    } table[] = {
        {"", "", "", "", false},
        {"", "ext4", "", "ext4", false},
        {"'fstype': 'xfs'", "ext4", "", "xfs", false},
        {"'FsType': 'btrfs'", "ext4", "", "btrfs", false},
        {"'" P "fstype': 'xfs'", "ext4", "", "xfs", false},
        {"'" P "fstype': ''", "ext4", "", "ext4", false},
        {"'fstype': 'a', '" P "fstype': 'a'", "", "", NULL, false},
        {"'fstype': 'a', 'FSTYPE': 'a'", "", "", NULL, false},
        {"'fstype': 'xfs'", "ext4", "'volumeMode': 'Block'", "", true},
        {"", "ext4", "'volumeMode': 'Filesystem'", "ext4", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        fixture.config.default_fstype = table[i].default_;
        const struct kube_class *class_ = fixture_class(&fixture, table[i].parameters, "");
        const struct kube_claim *claim = fixture_claim(&fixture, table[i].extra_spec, "");
        struct provision_request request;
        enum provision_state outcome;
        if (table[i].fs_type == NULL) {
            expect_failure(&fixture, claim, class_, PROVISION_FINISHED, "fstype specified in parameters with both");
            continue;
        }
        assert_int_equal(build(&fixture, claim, class_, &request, &outcome, NULL), 0);
        assert_string_equal(request.fs_type, table[i].fs_type);
        assert_int_equal(request.csi.volume_capabilities[0]->access_type_case,
                         table[i].block ? CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK
                                        : CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT);
        provision_request_clear(&request);
    }
}

static void test_read_only(void **state)
{
    (void)state;
    /* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which the table is read */
    static const struct {
        bool flag;
        const char *modes;
        bool read_only;
    } table[] = {{true, "['ReadOnlyMany']", true},
                 {false, "['ReadOnlyMany']", false},
                 {true, "['ReadOnlyMany', 'ReadWriteOnce']", false},
                 {true, "['ReadWriteMany']", false}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        fixture.config.controller_publish_readonly = table[i].flag;
        auto_free char *extra = mem_printf("'accessModes': %s", table[i].modes);
        struct provision_request request;
        enum provision_state outcome;
        assert_int_equal(build(&fixture, fixture_claim(&fixture, extra, ""), fixture_class(&fixture, "", ""), &request,
                               &outcome, NULL),
                         0);
        assert_int_equal(request.read_only, table[i].read_only);
        provision_request_clear(&request);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    const struct kube_class *class_ = fixture_class(&fixture, "", "");
    expect_failure(&fixture, fixture_claim(&fixture, "", "'volume.kubernetes.io/storage-provisioner': 'other'"), class_,
                   PROVISION_IGNORED, "another provisioner");
    const struct kube_claim *claim = fixture_claim(&fixture, "", "");
    expect_failure(&fixture, claim, NULL, PROVISION_FINISHED, "storage class was nil");
    expect_failure(&fixture, fixture_claim(&fixture, "'selector': {}", ""), class_, PROVISION_FINISHED,
                   "claim Selector is not supported");
    expect_failure(&fixture, fixture_claim(&fixture, "", ""), fixture_class(&fixture, "'" P "oops': 'x'", ""),
                   PROVISION_FINISHED, "failed to strip CSI Parameters of prefixed keys");
    fixture_class(&fixture, "", "");
}

static void test_capabilities(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        const char *extra_spec, *part;
    } table[] = {
        {offsetof(struct driver_capabilities, controller_service), "", "CONTROLLER_SERVICE"},
        {offsetof(struct driver_capabilities, create_delete_volume), "", "CREATE_DELETE_VOLUME"},
        {offsetof(struct driver_capabilities, create_delete_snapshot),
         "'dataSource': {'apiGroup': 'snapshot.storage.k8s.io', 'kind': 'VolumeSnapshot', 'name': 's'}",
         "CREATE_DELETE_SNAPSHOT"},
        {offsetof(struct driver_capabilities, clone_volume),
         "'dataSource': {'kind': 'PersistentVolumeClaim', 'name': 's'}", "CLONE_VOLUME"},
        {offsetof(struct driver_capabilities, modify_volume), "'volumeAttributesClassName': 'gold'", "MODIFY_VOLUME"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        *(bool *)((char *)&fixture.config.capabilities + table[i].offset) = false;
        expect_failure(&fixture, fixture_claim(&fixture, table[i].extra_spec, ""), fixture_class(&fixture, "", ""),
                       PROVISION_FINISHED, table[i].part);
    }
}

static void test_node_deployment(void **state)
{
    (void)state;
    static const struct {
        const char *annotation;
        bool ours;
    } table[] = {{"", false},
                 {"'volume.kubernetes.io/selected-node': 'n1'", true},
                 {"'volume.kubernetes.io/selected-node': 'n2'", false}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        fixture_init(&fixture);
        fixture.config.node_deployment = true;
        fixture.config.node_name = "n1";
        const struct kube_claim *claim = fixture_claim(&fixture, "", table[i].annotation);
        const struct kube_class *class_ = fixture_class(&fixture, "", "");
        struct provision_request request;
        enum provision_state outcome;
        if (!table[i].ours) {
            expect_failure(&fixture, claim, class_, PROVISION_IGNORED, "not responsible");
            continue;
        }
        assert_int_equal(build(&fixture, claim, class_, &request, &outcome, NULL), 0);
        assert_string_equal(request.selected_node, "n1");
        provision_request_clear(&request);
    }
}

static void test_secret(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    const struct kube_claim *claim = fixture_claim(&fixture, "", "");
    const struct kube_class *class_ =
        fixture_class(&fixture,
                      "'" P "provisioner-secret-name': 'key', '" P "provisioner-secret-namespace': 'ns', '" P
                      "node-stage-secret-name': 'stage', '" P "node-stage-secret-namespace': '${pvc.namespace}'",
                      "");
    expect_failure(&fixture, claim, class_, PROVISION_NO_CHANGE, "error getting secret key in namespace ns");
    fixture_add(&fixture, &kube_kind_secret,
                "{'metadata': {'namespace': 'ns', 'name': 'key'}, 'data': {'user': 'YWRtaW4=', 'word': 'eA=='}}");
    struct provision_request request;
    enum provision_state outcome;
    auto_err struct err err = {0};
    assert_int_equal(build(&fixture, claim, class_, &request, &outcome, &err), 0);
    auto_free char *secrets = fixture_map_text(CSI_MAP(&request.csi, secrets));
    assert_string_equal(secrets, "user=admin,word=x");
    assert_string_equal(request.secrets[SECRET_NODE_STAGE].name, "stage");
    assert_string_equal(request.secrets[SECRET_NODE_STAGE].namespace_, "default");
    assert_null(request.secrets[SECRET_NODE_PUBLISH].name);
    assert_int_equal(request.csi.n_parameters, 0);
    provision_request_clear(&request);
}

static void test_metadata_for_the_driver(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    fixture.config.extra_create_metadata = true;
    strv_add(&fixture.config.pass_claim_annotations, "owner");
    strv_add(&fixture.config.pass_claim_annotations, "absent");
    strv_add(&fixture.config.pass_claim_labels, "team");
    strv_add(&fixture.config.pass_namespace_labels, "env");
    const struct kube_claim *claim = fixture_claim(&fixture, "", "'owner': 'ann', 'other': 'no'");
    const struct kube_class *class_ = fixture_class(&fixture, "'csiProvisionerSecretName': 'old'", "");
    expect_failure(&fixture, claim, class_, PROVISION_NO_CHANGE, "other half");
    class_ = fixture_class(&fixture, "", "");
    expect_failure(&fixture, claim, class_, PROVISION_NO_CHANGE, "error getting namespace default");
    fixture_add(&fixture, &kube_kind_namespace, "{'metadata': {'name': 'default', 'labels': {'env': 'prod'}}}");
    struct provision_request request;
    enum provision_state outcome;
    assert_int_equal(build(&fixture, claim, class_, &request, &outcome, NULL), 0);
    auto_free char *parameters = fixture_map_text(CSI_MAP(&request.csi, parameters));
    assert_string_equal(parameters, P "namespace/labels/env=prod," P "pv/name=pvc-u-1," P "pvc/annotations/owner=ann," P
                                      "pvc/labels/team=red," P "pvc/name=c," P "pvc/namespace=default");
    provision_request_clear(&request);
}

static void test_attributes_class(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    const struct kube_claim *claim = fixture_claim(&fixture, "'volumeAttributesClassName': 'gold'", "");
    const struct kube_class *class_ = fixture_class(&fixture, "", "");
    struct provision_request request;
    enum provision_state outcome;
    expect_failure(&fixture, claim, class_, PROVISION_NO_CHANGE, "VolumeAttributesClass gold");
    fixture_add(&fixture, &kube_kind_attributes_class,
                "{'metadata': {'name': 'gold'}, 'driverName': 'other', 'parameters': {'iops': '5'}}");
    expect_failure(&fixture, claim, class_, PROVISION_FINISHED, "is for driver other");
    fixture_add(&fixture, &kube_kind_attributes_class,
                "{'metadata': {'name': 'gold'}, 'driverName': 'd', 'parameters': {'iops': '5'}}");
    assert_int_equal(build(&fixture, claim, class_, &request, &outcome, NULL), 0);
    auto_free char *mutable_ = fixture_map_text(CSI_MAP(&request.csi, mutable_parameters));
    assert_string_equal(mutable_, "iops=5");
    assert_string_equal(request.attributes_class, "gold");
    provision_request_clear(&request);
    /* without the gate it is as if it was not there */
    fixture.config.gate_attributes_class = false;
    fixture.config.capabilities.modify_volume = false;
    assert_int_equal(build(&fixture, claim, class_, &request, &outcome, NULL), 0);
    assert_null(request.attributes_class);
    provision_request_clear(&request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_plain_request),
        cmocka_unit_test(test_size_is_rounded_up),
        cmocka_unit_test(test_access_modes),
        cmocka_unit_test(test_fs_type_and_block),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_capabilities),
        cmocka_unit_test(test_node_deployment),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_metadata_for_the_driver),
        cmocka_unit_test(test_attributes_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
