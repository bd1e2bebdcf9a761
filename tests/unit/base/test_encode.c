/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The vectors of the FNV authors and of RFC 4648. */
static void test_fnv(void **state)
{
    (void)state;
    assert_int_equal(str_fnv1(""), 0x811c9dc5U);
    assert_int_equal(str_fnv1("a"), 0x050c5d7eU);
    assert_int_equal(str_fnv1("foobar"), 0x31f0b262U);
    assert_int_equal(str_fnv1a(""), 0x811c9dc5U);
    assert_int_equal(str_fnv1a("a"), 0xe40c292cU);
    assert_int_equal(str_fnv1a("foobar"), 0xbf9cf968U);
}

static void test_base64(void **state)
{
    (void)state;
    static const char *const table[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *encoded = str_base64_encode(table[i][0], strlen(table[i][0]));
        assert_string_equal(encoded, table[i][1]);
        size_t len = 99;
        auto_free unsigned char *decoded = str_base64_decode(table[i][1], strlen(table[i][1]), &len);
        assert_non_null(decoded);
        assert_int_equal(len, strlen(table[i][0]));
        assert_string_equal((char *)decoded, table[i][0]);
    }
    unsigned char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    auto_free char *encoded = str_base64_encode(all, sizeof(all));
    size_t len = 0;
    auto_free unsigned char *decoded = str_base64_decode(encoded, strlen(encoded), &len);
    assert_int_equal(len, sizeof(all));
    assert_memory_equal(decoded, all, sizeof(all));
}

static void test_base64_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"A",        "AB",       "ABC",  "A===", "====", "AB=C",
                                      "AB CD===", "Zg==Zg==", "Zm9*", "Zm-_", "Zg=\n"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        size_t len = 0;
        auto_free unsigned char *decoded = str_base64_decode(bad[i], strlen(bad[i]), &len);
        assert_null(decoded);
    }
}

static void test_sha256(void **state)
{
    (void)state;
    auto_free char *empty = str_sha256_hex(NULL, 0);
    assert_string_equal(empty, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    auto_free char *abc = str_sha256_hex("abc", 3);
    assert_string_equal(abc, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fnv),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_base64_refuses),
        cmocka_unit_test(test_sha256),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
