/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include "lib/csi/wire.h"

#include <string.h>

#define VOLUME &csi__v1__volume__descriptor
#define CREATE &csi__v1__create_volume_request__descriptor

static void test_texts_and_structure(void **state)
{
    static const struct {
        const ProtobufCMessageDescriptor *type;
        const char *bytes;
        size_t len;
        const char *error; /* NULL: fine */
    } cases[] = {
#define BYTES(text) (text), sizeof(text) - 1
        {VOLUME, BYTES(""), NULL},
        {VOLUME, BYTES("\x12\x02id"), NULL},
        {VOLUME, BYTES("\x12\x02\xc3\xbc"), NULL},
        {VOLUME, BYTES("\x12\x00"), NULL},
        {VOLUME, BYTES("\x12\x02\xc3\x28"), "volume_id is not UTF-8 text"},
        {VOLUME,
         BYTES("\x12\x03"
               "a\0b"),
         "volume_id is not UTF-8 text"},
        {VOLUME, BYTES("\x12\x02\xc0\x80"), "volume_id is not UTF-8 text"},
        {VOLUME, BYTES("\x12\x03\xed\xa0\x80"), "volume_id is not UTF-8 text"},
        /* inside a map entry, in the key as in the value */
        {VOLUME, BYTES("\x1a\x06\x0a\x01k\x12\x01\xff"), "volume_context: value is not UTF-8 text"},
        {VOLUME, BYTES("\x1a\x03\x0a\x01\xff"), "volume_context: key is not UTF-8 text"},
        {CREATE, BYTES("\x1a\x05\x12\x03\x12\x01\xff"), "volume_capabilities: mount: mount_flags is not UTF-8 text"},
        /* the second of two values, which is the one that counts */
        {VOLUME,
         BYTES("\x12\x01"
               "a\x12\x01\xff"),
         "volume_id is not UTF-8 text"},
        /* unknown fields may hold anything */
        {VOLUME, BYTES("\xfa\x01\x02\xff\x00"), NULL},
        {VOLUME,
         BYTES("\xf8\x01\x05\xf9\x01"
               "12345678\xfd\x01"
               "1234"),
         NULL},
        {VOLUME, BYTES("\x12\x05id"), "malformed message Volume"},
        {VOLUME, BYTES("\x12"), "malformed message Volume"},
        {VOLUME, BYTES("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "malformed message Volume"},
        {VOLUME, BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "malformed message Volume"},
        {VOLUME,
         BYTES("\xf9\x01"
               "1234"),
         "malformed message Volume"},
        {VOLUME, BYTES("\xfb\x01\xfc\x01"), "malformed message Volume"}, /* a group */
        {VOLUME, BYTES("\x02\x00"), "malformed message Volume"},         /* field 0 */
        {VOLUME, BYTES("\x1a\x02\x0a\x05"), "volume_context: malformed message VolumeContextEntry"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        const int result = csi_wire_check(cases[i].type, (const uint8_t *)cases[i].bytes, cases[i].len, &err);
        assert_int_equal(result, cases[i].error == NULL ? 0 : -1);
        if (cases[i].error != NULL) {
            assert_string_equal(err.message, cases[i].error);
            assert_int_equal(err.code, ERR_INVALID);
        }
    }
}

static void test_unpack_into_an_arena_or_for_the_caller(void **state)
{
    static const uint8_t bytes[] = "\x08\x05\x12\x02id\x1a\x06\x0a\x01k\x12\x01v";
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    const Csi__V1__Volume *volume =
        (const Csi__V1__Volume *)csi_wire_unpack(VOLUME, bytes, sizeof(bytes) - 1, &arena, NULL);
    assert_int_equal(volume->capacity_bytes, 5);
    assert_string_equal(volume->volume_id, "id");
    assert_string_equal(csi_map_get(CSI_MAP(volume, volume_context), "k"), "v");
    auto_csi_message ProtobufCMessage *own = csi_wire_unpack(VOLUME, bytes, sizeof(bytes) - 1, NULL, NULL);
    messages_assert_equal(&volume->base, own);
    /* a wrong wire type of a known field is no reason to crash */
    auto_err struct err err = {0};
    auto_csi_message ProtobufCMessage *wrong = csi_wire_unpack(VOLUME, (const uint8_t *)"\x10\x05", 2, NULL, &err);
    assert_null(wrong);
    assert_int_equal(err.code, ERR_INVALID);
}

/* Every truncation and every single flipped byte is refused or read, never worse. */
static void test_damaged_messages(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    message_fill(&arena, &request.base);
    const size_t size = csi__v1__create_volume_request__get_packed_size(&request);
    auto_free uint8_t *bytes = mem_alloc(size);
    int refused = 0;
    for (size_t i = 0; i < size * 9; i++) {
        csi__v1__create_volume_request__pack(&request, bytes);
        size_t len = size;
        if (i < size)
            len = i;
        else
            bytes[i / 9] ^= (uint8_t)(i % 9 == 8 ? 0xff : 1 << i % 9);
        auto_free uint8_t *exact = mem_dup(bytes, len); /* so that reading too far is noticed */
        auto_csi_arena struct csi_arena memory = {0};
        refused += csi_wire_unpack(CREATE, exact, len, &memory, NULL) == NULL;
    }
    assert_true(refused > 0);
}

static void test_built_messages_are_checked(void **state)
{
    (void)state;
    auto_csi_arena struct csi_arena arena = {0};
    auto_err struct err err = {0};
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    message_fill(&arena, &request.base);
    assert_int_equal(csi_message_check(&request.base, &err), 0);
    CSI_MAP_ADD(&arena, &request, secrets, "k", "\x80");
    assert_int_equal(csi_message_check(&request.base, &err), -1);
    assert_string_equal(err.message, "secrets: value is not UTF-8 text");
    request.n_secrets = 0;
    Csi__V1__VolumeCapability *capability = CSI_ADD(&arena, &request, volume_capabilities);
    CSI_ADD_STRING(&arena, CSI_NEW(&arena, capability, mount), mount_flags, "\xff");
    assert_int_equal(csi_message_check(&request.base, &err), -1);
    assert_string_equal(err.message, "volume_capabilities: mount: mount_flags is not UTF-8 text");
    request.n_volume_capabilities = 0;
    request.name = NULL; /* packs as absent */
    assert_int_equal(csi_message_check(&request.base, NULL), 0);
}

static void test_text_clean(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        size_t limit;
        const char *clean;
    } cases[] = {
        {BYTES("plain"), 100, "plain"},
        {BYTES("\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"), 100, "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"},
        {BYTES("a\xff"
               "b\xc3"),
         100, "a?b?"},
        {BYTES("a\0b"), 100, "a?b"},
        {BYTES("\xe2\x82"), 100, "??"},
        {BYTES("12345"), 3, "123"},
        {BYTES("12\xe2\x82\xac"
               "5"),
         3, "12\xe2\x82\xac"}, /* whole characters */
        {BYTES(""), 3, ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *clean = csi_text_clean(cases[i].bytes, cases[i].len, cases[i].limit);
        assert_string_equal(clean, cases[i].clean);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_and_structure), cmocka_unit_test(test_unpack_into_an_arena_or_for_the_caller),
        cmocka_unit_test(test_damaged_messages),    cmocka_unit_test(test_built_messages_are_checked),
        cmocka_unit_test(test_text_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
