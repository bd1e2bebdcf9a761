/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/nfs4_attr.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_decodes_in_the_order_of_numbers(void **state)
{
    /* type, size, fileid, mode, owner "1000@x", space used, time modify */
    const uint32_t bitmap[] = {1U << 1 | 1U << 4 | 1U << 20, 1U << 1 | 1U << 4 | 1U << 13 | 1U << 21};
    static const char data[] = "\0\0\0\2"
                               "\0\0\0\1\0\0\0\2"
                               "\0\0\0\0\0\0\0\7"
                               "\0\0\1\355"
                               "\0\0\0\6"
                               "1000@x\0\0"
                               "\0\0\0\0\0\0\20\0"
                               "\0\0\0\0\0\0\0\12\0\0\0\13";
    struct nfs4_attrs attrs;
    (void)state;
    assert_true(nfs4_attrs_decode(bitmap, 2, data, sizeof(data) - 1, &attrs));
    assert_int_equal(attrs.attr.type, SHARE_DIRECTORY);
    assert_int_equal(attrs.attr.size, 0x100000002);
    assert_int_equal(attrs.attr.fileid, 7);
    assert_int_equal(attrs.attr.mode, 0755);
    assert_int_equal(attrs.attr.uid, 1000);
    assert_int_equal(attrs.attr.used, 4096);
    assert_int_equal(attrs.attr.mtime.tv_sec, 10);
    assert_int_equal(attrs.attr.mtime.tv_nsec, 11);
    /* cut short anywhere: refused, nothing read beyond its end */
    for (size_t len = 0; len < sizeof(data) - 1; len++) {
        auto_free char *copy = mem_dup(data, len + 1);
        auto_free char *exact = mem_alloc(len > 0 ? len : 1);
        memcpy(exact, copy, len);
        assert_false(nfs4_attrs_decode(bitmap, 2, exact, len, &attrs));
    }
}

static void test_refuses_attributes_nobody_asked_for(void **state)
{
    const uint32_t unknown[] = {1U << 12, 0}, beyond[] = {0, 0, 1};
    struct nfs4_attrs attrs;
    (void)state;
    assert_false(nfs4_attrs_decode(unknown, 2, "\0\0\0\0", 4, &attrs));
    assert_false(nfs4_attrs_decode(beyond, 3, "\0\0\0\0", 4, &attrs));
    assert_true(nfs4_attrs_decode(unknown, 0, "", 0, &attrs));
}

static void test_lengths_that_lie(void **state)
{
    const uint32_t owner[] = {0, 1U << 4}, handle[] = {1U << 19, 0};
    struct nfs4_attrs attrs;
    (void)state;
    assert_false(nfs4_attrs_decode(owner, 2, "\377\377\377\377abcd", 8, &attrs));
    assert_false(nfs4_attrs_decode(handle, 2, "\0\0\0\11abcdefgh", 12, &attrs));
}

static void test_encodes(void **state)
{
    struct share_set set = {.mask =
                                SHARE_SET_SIZE | SHARE_SET_MODE | SHARE_SET_UID | SHARE_SET_MTIME | SHARE_SET_ATIME_NOW,
                            .size = 258,
                            .mode = 0644,
                            .uid = 4294967294U,
                            .mtime = {.tv_sec = 1, .tv_nsec = 2}};
    static const char wanted[] = "\0\0\0\0\0\0\1\2"
                                 "\0\0\1\244"
                                 "\0\0\0\12"
                                 "4294967294\0\0"
                                 "\0\0\0\0"
                                 "\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\2";
    uint32_t bitmap[NFS4_ATTR_WORDS];
    char data[NFS4_SET_SIZE];
    (void)state;
    size_t len = nfs4_set_encode(&set, bitmap, data);
    assert_int_equal(len, sizeof(wanted) - 1);
    assert_memory_equal(data, wanted, len);
    assert_int_equal(bitmap[0], 1U << 4);
    assert_int_equal(bitmap[1], 1U << 1 | 1U << 4 | 1U << 16 | 1U << 22);
}

static void test_owners(void **state)
{
    (void)state;
    assert_int_equal(nfs4_owner_id("0", 1, false), 0);
    assert_int_equal(nfs4_owner_id("4242@localdomain", 16, false), 4242);
    assert_int_equal(nfs4_owner_id("root@localdomain", 16, false), 0);
    assert_int_equal(nfs4_owner_id("root", 4, true), 0);
    assert_int_equal(nfs4_owner_id("nobody-knows-this@x", 19, false), 65534);
    assert_int_equal(nfs4_owner_id("", 0, false), 65534);
    assert_int_equal(nfs4_owner_id("99999999999", 11, false), 65534);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes_in_the_order_of_numbers),
        cmocka_unit_test(test_refuses_attributes_nobody_asked_for),
        cmocka_unit_test(test_lengths_that_lie),
        cmocka_unit_test(test_encodes),
        cmocka_unit_test(test_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
