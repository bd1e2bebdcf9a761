/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include <string.h>

static void test_messages_are_built_in_an_arena(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    request.name = csi_arena_printf(&arena, "pvc-%d", 7);
    CSI_NEW(&arena, &request, capacity_range)->required_bytes = 1024;
    for (int i = 0; i < 100; i++) {
        Csi__V1__VolumeCapability *capability = CSI_ADD(&arena, &request, volume_capabilities);
        Csi__V1__VolumeCapability__MountVolume *mount = CSI_NEW(&arena, capability, mount);
        mount->fs_type = csi_arena_strdup(&arena, "ext4");
        CSI_ADD_STRING(&arena, mount, mount_flags, "noatime");
        CSI_ADD_STRING(&arena, mount, mount_flags, "ro");
        CSI_ADD_STRING(&arena, mount, mount_flags, "sync");
    }
    CSI_NEW(&arena, CSI_NEW(&arena, &request, volume_content_source), snapshot)->snapshot_id = request.name;

    /* the other side sees the same */
    const size_t size = csi__v1__create_volume_request__get_packed_size(&request);
    auto_free uint8_t *bytes = mem_alloc(size);
    csi__v1__create_volume_request__pack(&request, bytes);
    auto_csi_message Csi__V1__CreateVolumeRequest *copy = csi__v1__create_volume_request__unpack(NULL, size, bytes);
    assert_string_equal(copy->name, "pvc-7");
    assert_int_equal(copy->capacity_range->required_bytes, 1024);
    assert_int_equal(copy->n_volume_capabilities, 100);
    assert_int_equal(copy->volume_capabilities[99]->access_type_case, CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT);
    assert_int_equal(copy->volume_capabilities[99]->mount->n_mount_flags, 3);
    assert_string_equal(copy->volume_capabilities[99]->mount->mount_flags[2], "sync");
    assert_string_equal(copy->volume_content_source->snapshot->snapshot_id, "pvc-7");
}

static void test_arena_texts_are_never_null_and_survive_growth(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    assert_string_equal(csi_arena_strdup(&arena, NULL), "");
    assert_string_equal(csi_arena_strdup(&arena, ""), "");
    char *first = csi_arena_strdup(&arena, "first");
    unsigned char *large = csi_arena_alloc(&arena, 1000000);
    for (int i = 0; i < 1000000; i += 999)
        assert_int_equal(large[i], 0);
    memset(large, 0xff, 1000000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal((uintptr_t)csi_arena_alloc(&arena, (size_t)i) % 16, 0);
    assert_string_equal(first, "first");
    csi_arena_free(&arena);
    assert_string_equal(csi_arena_strdup(&arena, "again"), "again");
}

static void test_maps(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    assert_null(csi_map_get(CSI_MAP(&request, parameters), "kind"));
    CSI_MAP_ADD(&arena, &request, parameters, "kind", "slow");
    CSI_MAP_ADD(&arena, &request, parameters, "server", "nfs");
    CSI_MAP_ADD(&arena, &request, parameters, "kind", "fast");
    CSI_MAP_ADD(&arena, &request, parameters, "empty", NULL);
    assert_int_equal(request.n_parameters, 3);
    assert_string_equal(csi_map_get(CSI_MAP(&request, parameters), "kind"), "fast");
    assert_string_equal(csi_map_get(CSI_MAP(&request, parameters), "empty"), "");
    assert_int_equal(csi_map_bytes(CSI_MAP(&request, parameters)), strlen("kindfastservernfsempty"));

    Csi__V1__Volume volume = CSI__V1__VOLUME__INIT;
    CSI_MAP_ADD(&arena, &volume, volume_context, "kind", "old");
    CSI_MAP_ADD_ALL(&arena, &volume, volume_context, CSI_MAP(&request, parameters));
    assert_int_equal(volume.n_volume_context, 3);
    assert_string_equal(csi_map_get(CSI_MAP(&volume, volume_context), "kind"), "fast");
}

/* protobuf-c keeps both entries of a repeated key. */
static void test_last_of_repeated_keys_counts(void **state)
{
    static const uint8_t bytes[] = "\x22\x06\x0a\x01k\x12\x01"
                                   "1"
                                   "\x22\x06\x0a\x01o\x12\x01"
                                   "x"
                                   "\x22\x06\x0a\x01k\x12\x01"
                                   "2";
    (void)state;
    auto_csi_message Csi__V1__CreateVolumeRequest *request =
        csi__v1__create_volume_request__unpack(NULL, sizeof(bytes) - 1, bytes);
    assert_non_null(request);
    const struct csi_map map = CSI_MAP(request, parameters);
    assert_int_equal(map.len, 3);
    assert_string_equal(csi_map_get(map, "k"), "2");
    const char *key, *value;
    assert_false(csi_map_at(map, 0, &key, &value));
    assert_true(csi_map_at(map, 1, &key, &value));
    assert_true(csi_map_at(map, 2, &key, &value));
    assert_string_equal(value, "2");
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__Volume volume = CSI__V1__VOLUME__INIT;
    CSI_MAP_ADD_ALL(&arena, &volume, volume_context, map);
    assert_int_equal(volume.n_volume_context, 2);
    assert_string_equal(csi_map_get(CSI_MAP(&volume, volume_context), "k"), "2");
    auto_str struct str text = {0};
    csi_message_print(&request->base, &text);
    assert_string_equal(text.data, "{\"parameters\":{\"o\":\"x\",\"k\":\"2\"}}");
}

static void test_print(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    auto_str struct str text = {0};
    Csi__V1__NodePublishVolumeRequest request = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
    request.volume_id = csi_arena_strdup(&arena, "a\"b\\c\n");
    request.readonly = 1;
    Csi__V1__VolumeCapability *capability = CSI_NEW(&arena, &request, volume_capability);
    CSI_ADD_STRING(&arena, CSI_NEW(&arena, capability, mount), mount_flags, "password=" SECRET_VALUE);
    CSI_NEW(&arena, capability, access_mode)->mode =
        CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_READER_ONLY;
    CSI_MAP_ADD(&arena, &request, secrets, "user", SECRET_VALUE);
    CSI_MAP_ADD(&arena, &request, volume_context, "share", "/x");
    CSI_MAP_ADD(&arena, &request, volume_context, "csi.storage.k8s.io/serviceAccount.tokens", SECRET_VALUE);
    csi_message_print(&request.base, &text);
    assert_string_equal(text.data, "{\"volume_id\":\"a\\\"b\\\\c\\u000a\","
                                   "\"volume_capability\":{\"mount\":{\"mount_flags\":\"***stripped***\"},"
                                   "\"access_mode\":{\"mode\":\"MULTI_NODE_READER_ONLY\"}},"
                                   "\"readonly\":true,\"secrets\":\"***stripped***\","
                                   "\"volume_context\":{\"share\":\"/x\","
                                   "\"csi.storage.k8s.io/serviceAccount.tokens\":\"***stripped***\"}}");

    str_reset(&text);
    Csi__V1__ProbeResponse probe = CSI__V1__PROBE_RESPONSE__INIT;
    CSI_NEW(&arena, &probe, ready);
    csi_message_print(&probe.base, &text);
    assert_string_equal(text.data, "{\"ready\":false}");

    str_reset(&text);
    Csi__V1__Snapshot snapshot = CSI__V1__SNAPSHOT__INIT;
    snapshot.size_bytes = INT64_MIN;
    CSI_NEW(&arena, &snapshot, creation_time)->seconds = 1700000000;
    csi_message_print(&snapshot.base, &text);
    assert_string_equal(text.data, "{\"size_bytes\":-9223372036854775808,\"creation_time\":\"2023-11-14T22:13:20Z\"}");

    str_reset(&text);
    Csi__V1__GetCapacityRequest unknown = CSI__V1__GET_CAPACITY_REQUEST__INIT;
    CSI_NEW(&arena, CSI_ADD(&arena, &unknown, volume_capabilities), access_mode)->mode =
        (Csi__V1__VolumeCapability__AccessMode__Mode)77;
    csi_message_print(&unknown.base, &text);
    assert_string_equal(text.data, "{\"volume_capabilities\":[{\"access_mode\":{\"mode\":77}}]}");
}

static void test_print_is_bounded(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    auto_str struct str text = {0};
    Csi__V1__ListVolumesResponse reply = CSI__V1__LIST_VOLUMES_RESPONSE__INIT;
    for (int i = 0; i < 10000; i++)
        CSI_NEW(&arena, CSI_ADD(&arena, &reply, entries), volume)->volume_id = csi_arena_printf(&arena, "volume %d", i);
    csi_message_print(&reply.base, &text);
    assert_true(text.len > 16000 && text.len < 17000);
    assert_true(str_ends(text.data, "..."));
}

/* No map or list that a secret may be in is printed, whatever the message. */
static void test_no_message_prints_secrets(void **state)
{
    int with_secrets = 0;
    (void)state;
    for (size_t i = 0; csi_methods[i] != NULL; i++) {
        auto_csi_arena struct csi_arena arena = {0};
        auto_str struct str text = {0};
        ProtobufCMessage *request = csi_arena_alloc(&arena, csi_methods[i]->request->sizeof_message);
        protobuf_c_message_init(csi_methods[i]->request, request);
        message_fill(&arena, request);
        csi_message_print(request, &text);
        assert_null(strstr(str_text(&text), SECRET_VALUE));
        if (protobuf_c_message_descriptor_get_field_by_name(csi_methods[i]->request, "secrets") != NULL) {
            assert_non_null(strstr(text.data, "\"secrets\":\"***stripped***\""));
            with_secrets++;
        }
    }
    assert_int_equal(with_secrets, 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_built_in_an_arena),
        cmocka_unit_test(test_arena_texts_are_never_null_and_survive_growth),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_last_of_repeated_keys_counts),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_print_is_bounded),
        cmocka_unit_test(test_no_message_prints_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
