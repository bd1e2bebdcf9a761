/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include "lib/csi/validate.h"

#include <string.h>

/* Each RPC's required fields in the order in which they are reported missing. */
static const struct required {
    const struct csi_method *method;
    const char *fields[5];
} required[] = {
    {&csi_method_get_plugin_info, {NULL}},
    {&csi_method_get_plugin_capabilities, {NULL}},
    {&csi_method_probe, {NULL}},
    {&csi_method_create_volume, {"name", "volume_capabilities"}},
    {&csi_method_delete_volume, {"volume_id"}},
    {&csi_method_controller_publish_volume, {"volume_id", "node_id", "volume_capability"}},
    {&csi_method_controller_unpublish_volume, {"volume_id"}},
    {&csi_method_validate_volume_capabilities, {"volume_id", "volume_capabilities"}},
    {&csi_method_list_volumes, {NULL}},
    {&csi_method_get_capacity, {NULL}},
    {&csi_method_controller_get_capabilities, {NULL}},
    {&csi_method_create_snapshot, {"name", "source_volume_id"}},
    {&csi_method_delete_snapshot, {"snapshot_id"}},
    {&csi_method_list_snapshots, {NULL}},
    {&csi_method_get_snapshot, {"snapshot_id"}},
    {&csi_method_controller_expand_volume, {"volume_id", "capacity_range"}},
    {&csi_method_controller_get_volume, {"volume_id"}},
    {&csi_method_controller_modify_volume, {"volume_id"}},
    {&csi_method_group_controller_get_capabilities, {NULL}},
    {&csi_method_create_volume_group_snapshot, {"name", "source_volume_ids"}},
    {&csi_method_delete_volume_group_snapshot, {"group_snapshot_id"}},
    {&csi_method_get_volume_group_snapshot, {"group_snapshot_id"}},
    {&csi_method_node_stage_volume, {"volume_id", "staging_target_path", "volume_capability"}},
    {&csi_method_node_unstage_volume, {"volume_id", "staging_target_path"}},
    {&csi_method_node_publish_volume, {"volume_id", "target_path", "volume_capability"}},
    {&csi_method_node_unpublish_volume, {"volume_id", "target_path"}},
    {&csi_method_node_get_volume_stats, {"volume_id", "volume_path"}},
    {&csi_method_node_expand_volume, {"volume_id", "volume_path"}},
    {&csi_method_node_get_capabilities, {NULL}},
    {&csi_method_node_get_info, {NULL}},
    {&csi_method_get_info, {NULL}},
    {&csi_method_notify_registration_status, {NULL}},
    {&csi_method_scrub, {"volume_id"}},
};

/* Gives one required field a good value. */
static void provide(struct csi_arena *arena, ProtobufCMessage *request, const char *name)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(request->descriptor, name);
    assert_non_null(field);
    if (field->type == PROTOBUF_C_TYPE_STRING && field->label == PROTOBUF_C_LABEL_REPEATED) {
        csi_message_add_string(arena, request, name, "element");
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        char *text = csi_arena_strdup(arena, "/value");
        memcpy((unsigned char *)request + field->offset, &text, sizeof(text));
    } else if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        message_fill(arena, csi_message_add_new(arena, request, name));
    } else {
        message_fill(arena, csi_message_set_new(arena, request, name));
    }
}

static void test_required_fields_in_order(void **state)
{
    (void)state;
    size_t n = 0;
    for (; n < ARRAY_LEN(required); n++) {
        auto_csi_arena struct csi_arena arena = {0};
        assert_ptr_equal(csi_methods[n], required[n].method);
        ProtobufCMessage *request = csi_arena_alloc(&arena, required[n].method->request->sizeof_message);
        protobuf_c_message_init(required[n].method->request, request);
        for (const char *const *field = required[n].fields; *field != NULL; field++) {
            auto_err struct err err = {0};
            auto_free char *expected = mem_printf("%s is missing in the request", *field);
            assert_int_equal(csi_validate(request, 128, &err), -1);
            assert_int_equal(csi_code_of(&err), CSI_INVALID_ARGUMENT);
            assert_string_equal(err.message, expected);
            provide(&arena, request, *field);
        }
        /* nothing else is required */
        auto_err struct err err = {0};
        csi_validate(request, 128, &err);
        assert_string_equal(err_text(&err), "no error");
    }
    assert_null(csi_methods[n]);
}

static Csi__V1__CreateVolumeRequest create_request(struct csi_arena *arena)
{
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    request.name = csi_arena_strdup(arena, "pvc");
    Csi__V1__VolumeCapability *capability = CSI_ADD(arena, &request, volume_capabilities);
    CSI_NEW(arena, capability, mount);
    CSI_NEW(arena, capability, access_mode)->mode = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__SINGLE_NODE_WRITER;
    return request;
}

static void check(const void *request, size_t max_id, int code, const char *text)
{
    auto_err struct err err = {0};
    const int result = csi_validate(request, max_id, &err);
    assert_string_equal(err_text(&err), text == NULL ? "no error" : text);
    assert_int_equal(result, text == NULL ? 0 : -1);
    assert_int_equal(csi_code_of(&err), code);
}

static char *repeat(struct csi_arena *arena, char c, size_t n)
{
    char *text = csi_arena_alloc(arena, n + 1);
    memset(text, c, n);
    return text;
}

static void test_names(void **state)
{
    static const struct {
        const char *name;
        bool good;
    } cases[] = {
        {"pvc-1", true},
        {"tab\tline\nreturn\r", true},
        {"\xc3\xbc\xe2\x82\xac", true},
        {"bell\a", false},
        {"escape\x1b", false},
        {"delete\x7f", false},
        {"c1 \xc2\x85", false},
        {"c1 \xc2\x9f", false},
        {"nbsp \xc2\xa0", true},
        {"vt\v", false},
        {"ff\f", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_csi_arena struct csi_arena arena = {0};
        Csi__V1__CreateVolumeRequest request = create_request(&arena);
        request.name = csi_arena_strdup(&arena, cases[i].name);
        if (cases[i].good)
            check(&request, 128, CSI_OK, NULL);
        else
            check(&request, 128, CSI_INVALID_ARGUMENT, "name holds a control character");
    }
}

static void test_sizes(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest create = create_request(&arena);
    create.name = repeat(&arena, 'n', 128);
    check(&create, 128, CSI_OK, NULL);
    create.name = repeat(&arena, 'n', 129);
    check(&create, 4096, CSI_INVALID_ARGUMENT, "name has 129 bytes, only 128 are allowed");

    Csi__V1__DeleteVolumeRequest delete = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
    delete.volume_id = repeat(&arena, 'v', 129);
    check(&delete, 128, CSI_INVALID_ARGUMENT, "volume_id has 129 bytes, only 128 are allowed");
    check(&delete, 4096, CSI_OK, NULL); /* a driver with long ids of its own */
    CSI_MAP_ADD(&arena, &delete, secrets, "key", repeat(&arena, 's', 100000));
    check(&delete, 4096, CSI_OK, NULL);

    Csi__V1__ControllerPublishVolumeRequest publish = CSI__V1__CONTROLLER_PUBLISH_VOLUME_REQUEST__INIT;
    publish.volume_id = csi_arena_strdup(&arena, "v");
    publish.node_id = repeat(&arena, 'n', 256);
    publish.volume_capability = create.volume_capabilities[0];
    check(&publish, 128, CSI_OK, NULL);
    publish.node_id = repeat(&arena, 'n', 257);
    check(&publish, 128, CSI_INVALID_ARGUMENT, "node_id has 257 bytes, only 256 are allowed");
}

static void test_maps_and_mount_flags(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest request = create_request(&arena);
    CSI_MAP_ADD(&arena, &request, parameters, "1234", repeat(&arena, 'p', 4092));
    check(&request, 128, CSI_OK, NULL);
    CSI_MAP_ADD(&arena, &request, parameters, "5", "");
    check(&request, 128, CSI_INVALID_ARGUMENT, "parameters have 4097 bytes, only 4096 are allowed");
    request.n_parameters = 0;
    Csi__V1__VolumeCapability__MountVolume *mount = request.volume_capabilities[0]->mount;
    CSI_ADD_STRING(&arena, mount, mount_flags, repeat(&arena, 'f', 4096));
    check(&request, 128, CSI_OK, NULL);
    CSI_ADD_STRING(&arena, mount, mount_flags, "f");
    check(&request, 128, CSI_INVALID_ARGUMENT,
          "mount_flags of volume_capabilities have 4097 bytes, only 4096 are allowed");

    /* kubelet adds tokens to the volume context, and its paths are long */
    Csi__V1__NodePublishVolumeRequest publish = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
    publish.volume_id = csi_arena_strdup(&arena, "v");
    publish.target_path = repeat(&arena, '/', 3000);
    publish.volume_capability = request.volume_capabilities[0];
    mount->n_mount_flags = 0;
    CSI_MAP_ADD(&arena, &publish, volume_context, "tokens", repeat(&arena, 't', 20000));
    check(&publish, 128, CSI_OK, NULL);
}

static void test_capabilities(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest request = create_request(&arena);
    Csi__V1__VolumeCapability *second = CSI_ADD(&arena, &request, volume_capabilities);
    check(&request, 128, CSI_INVALID_ARGUMENT, "volume_capabilities asks for neither mount nor block access");
    CSI_NEW(&arena, second, block);
    check(&request, 128, CSI_INVALID_ARGUMENT, "volume_capabilities has no access_mode");
    CSI_NEW(&arena, second, access_mode);
    check(&request, 128, CSI_INVALID_ARGUMENT, "volume_capabilities has no access_mode");
    second->access_mode->mode = (Csi__V1__VolumeCapability__AccessMode__Mode)99; /* newer than we are: the driver's */
    check(&request, 128, CSI_OK, NULL);

    /* the question whether something is possible may name anything */
    Csi__V1__ValidateVolumeCapabilitiesRequest question = CSI__V1__VALIDATE_VOLUME_CAPABILITIES_REQUEST__INIT;
    question.volume_id = csi_arena_strdup(&arena, "v");
    CSI_ADD(&arena, &question, volume_capabilities);
    check(&question, 128, CSI_OK, NULL);

    Csi__V1__NodeStageVolumeRequest stage = CSI__V1__NODE_STAGE_VOLUME_REQUEST__INIT;
    stage.volume_id = csi_arena_strdup(&arena, "v");
    stage.staging_target_path = csi_arena_strdup(&arena, "/s");
    CSI_NEW(&arena, &stage, volume_capability);
    check(&stage, 128, CSI_INVALID_ARGUMENT, "volume_capability asks for neither mount nor block access");
}

static void test_capacity_ranges(void **state)
{
    static const struct {
        int64_t required, limit;
        int code;
        const char *text;
    } cases[] = {
        {0, 0, CSI_OK, NULL},
        {5, 0, CSI_OK, NULL},
        {0, 5, CSI_OK, NULL},
        {5, 5, CSI_OK, NULL},
        {INT64_MAX, 0, CSI_OK, NULL},
        {-1, 0, CSI_INVALID_ARGUMENT, "capacity_range is negative"},
        {0, -1, CSI_INVALID_ARGUMENT, "capacity_range is negative"},
        {INT64_MIN, INT64_MIN, CSI_INVALID_ARGUMENT, "capacity_range is negative"},
        {6, 5, CSI_OUT_OF_RANGE, "capacity_range requires 6 bytes, which is above its limit of 5"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_csi_arena struct csi_arena arena = {0};
        Csi__V1__CreateVolumeRequest create = create_request(&arena);
        CSI_NEW(&arena, &create, capacity_range);
        create.capacity_range->required_bytes = cases[i].required;
        create.capacity_range->limit_bytes = cases[i].limit;
        check(&create, 128, cases[i].code, cases[i].text);
        Csi__V1__NodeExpandVolumeRequest expand = CSI__V1__NODE_EXPAND_VOLUME_REQUEST__INIT;
        expand.volume_id = create.name;
        expand.volume_path = csi_arena_strdup(&arena, "some/path"); /* as csi-sanity asks */
        expand.capacity_range = create.capacity_range;
        check(&expand, 128, cases[i].code, cases[i].text);
    }
}

static void test_sources_lists_and_paths(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest create = create_request(&arena);
    Csi__V1__VolumeContentSource *source = CSI_NEW(&arena, &create, volume_content_source);
    check(&create, 128, CSI_INVALID_ARGUMENT, "volume_content_source names neither a snapshot nor a volume");
    CSI_NEW(&arena, source, snapshot);
    check(&create, 128, CSI_INVALID_ARGUMENT, "snapshot_id of volume_content_source is missing in the request");
    CSI_NEW(&arena, source, volume);
    check(&create, 128, CSI_INVALID_ARGUMENT, "volume_id of volume_content_source is missing in the request");
    source->volume->volume_id = csi_arena_strdup(&arena, "v");
    check(&create, 128, CSI_OK, NULL);

    Csi__V1__ListVolumesRequest list = CSI__V1__LIST_VOLUMES_REQUEST__INIT;
    list.max_entries = -1;
    list.starting_token = csi_arena_strdup(&arena, "invalid-token"); /* the driver answers 10 for this */
    check(&list, 128, CSI_INVALID_ARGUMENT, "max_entries is negative");
    list.max_entries = 0;
    check(&list, 128, CSI_OK, NULL);

    Csi__V1__NodePublishVolumeRequest publish = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
    publish.volume_id = csi_arena_strdup(&arena, "v");
    publish.target_path = csi_arena_strdup(&arena, "relative");
    publish.volume_capability = create.volume_capabilities[0];
    check(&publish, 128, CSI_INVALID_ARGUMENT, "target_path is not an absolute path");
    publish.target_path = csi_arena_strdup(&arena, "/t");
    publish.staging_target_path = csi_arena_strdup(&arena, "relative");
    check(&publish, 128, CSI_INVALID_ARGUMENT, "staging_target_path is not an absolute path");
    publish.staging_target_path = NULL;
    check(&publish, 128, CSI_OK, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_required_fields_in_order),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_maps_and_mount_flags),
        cmocka_unit_test(test_capabilities),
        cmocka_unit_test(test_capacity_ranges),
        cmocka_unit_test(test_sources_lists_and_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
