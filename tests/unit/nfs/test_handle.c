/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/handle.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_parses_every_form(void **state)
{
    static const struct {
        const char *text, *server, *export, *sub_dir, *id;
        enum on_delete policy;
        int version, port, mount_port;
        bool ours;
    } cases[] = {
        {"srv#export/data#pvc-1##delete#b", "srv", "/export/data", "pvc-1", "pvc-1", ON_DELETE_DELETE, 0, 0, 0, true},
        {"srv#e#ns/claim#pvc-1#archive#b,v4,p2050", "srv", "/e", "ns/claim", "pvc-1", ON_DELETE_ARCHIVE, 4, 2050, 0,
         true},
        {"10.0.0.1#e##pvc-1##b,v3,p1,m65535", "10.0.0.1", "/e", NULL, "pvc-1", ON_DELETE_DEFAULT, 3, 1, 65535, true},
        /* csi-driver-nfs: with all elements, with fewer, and the oldest with slashes */
        {"srv#export#sub#uuid#Retain", "srv", "/export", "sub", "uuid", ON_DELETE_RETAIN, 0, 0, 0, false},
        {"srv#export#sub##", "srv", "/export", "sub", "sub", ON_DELETE_DEFAULT, 0, 0, 0, false},
        {"srv#export#sub#uuid", "srv", "/export", "sub", "uuid", ON_DELETE_DEFAULT, 0, 0, 0, false},
        {"srv##sub", "srv", "/", "sub", "sub", ON_DELETE_DEFAULT, 0, 0, 0, false},
        {"srv/export/data/sub", "srv", "/export/data", "sub", "sub", ON_DELETE_DEFAULT, 0, 0, 0, false},
        {"[fd00::1]#/export/#/sub/#u#", "fd00::1", "/export", "sub", "u", ON_DELETE_DEFAULT, 0, 0, 0, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_handle struct handle handle = {0};
        auto_err struct err err = {0};
        if (handle_parse(cases[i].text, &handle, &err) < 0)
            fail_msg("%s: %s", cases[i].text, err_text(&err));
        assert_string_equal(handle.where.server, cases[i].server);
        assert_string_equal(handle.where.export, cases[i].export);
        assert_true(str_eq(handle.sub_dir, cases[i].sub_dir));
        assert_string_equal(handle.id, cases[i].id);
        assert_int_equal(handle.on_delete, cases[i].policy);
        assert_int_equal(handle.where.version, cases[i].version);
        assert_int_equal(handle.where.port, cases[i].port);
        assert_int_equal(handle.where.mount_port, cases[i].mount_port);
        assert_int_equal(handle.ours, cases[i].ours);
    }
}

static void test_refuses_what_is_none(void **state)
{
    static const char *const bad[] = {
        "",
        "fake-vol-id",
        "a/b",
        "srv#export",
        "srv#export##uuid#delete", /* the whole share, and not ours */
        "srv#export##",            /* the same */
        "srv#export###delete#b",   /* ours, but no id */
        "srv#export#..#u#",        /* out of the share */
        "srv#export#a/../../b#u#",
        "srv#../export#a#u#",
        "srv#export#.berth/volumes#u#",      /* our own files */
        "srv#export/.berth#volumes#u#",      /* the same */
        "srv#export#team/.berth/volumes#u#", /* those of another export below this one */
        "srv#export#a#u#burn",
        "srv#export#a#u#delete#c", /* a sixth element of somebody else */
        "srv#export#a#u#delete#b,v5",
        "srv#export#a#u#delete#b,p0",
        "srv#export#a#u#delete#b,p70000",
        "srv#export#a#u#delete#b,",
        "srv#export#a#u#delete#b#more",
        "#export#a#u#",
        "s r v#export#a#u#",
        "srv/export/..",
        "srv#export#a\nb#u#",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_handle struct handle handle = {0};
        auto_err struct err err = {0};
        if (handle_parse(bad[i], &handle, &err) == 0)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_null(handle.where.server);
        assert_true(err.message != NULL && err.message[0] != '\0');
    }
    auto_free char *long_text = mem_printf("srv#e#%01100d#u#", 1);
    auto_handle struct handle handle = {0};
    assert_int_equal(handle_parse(long_text, &handle, NULL), -1);
}

static char *build(const char *server, const char *export, const char *sub_dir, const char *id, int version,
                   struct err *err)
{
    auto_handle struct handle handle = {.sub_dir = mem_strdup(sub_dir), .id = mem_strdup(id)};
    handle.where.version = version;
    handle.on_delete = ON_DELETE_DELETE;
    assert_int_equal(handle_set_location(&handle.where, server, export, err), 0);
    return handle_build(&handle, err);
}

static void test_builds_what_it_parses(void **state)
{
    auto_err struct err err = {0};
    auto_handle struct handle handle = {0};
    (void)state;
    auto_free char *plain = build("srv", "/export", "pvc-1", "pvc-1", 0, &err);
    assert_string_equal(plain, "srv#export#pvc-1##delete#b");
    auto_free char *nested = build("srv", "/export/", "ns//claim/", "pvc-1", 3, &err);
    assert_string_equal(nested, "srv#export#ns//claim/#pvc-1#delete#b,v3");
    assert_int_equal(handle_parse(nested, &handle, &err), 0);
    assert_string_equal(handle.sub_dir, "ns/claim");
}

/* CSI allows 128 bytes: then the directory is left to the record. */
static void test_leaves_out_what_is_too_long(void **state)
{
    auto_err struct err err = {0};
    auto_handle struct handle handle = {0};
    (void)state;
    auto_free char *deep = mem_printf("a-long-namespace/%0100d", 7);
    auto_free char *text = build("nfs.default.svc.cluster.local", "/export", deep, "pvc-1", 4, &err);
    assert_string_equal(text, "nfs.default.svc.cluster.local#export##pvc-1#delete#b,v4");
    assert_int_equal(handle_parse(text, &handle, &err), 0);
    assert_null(handle.sub_dir);
    assert_string_equal(handle.id, "pvc-1");
    auto_free char *share = mem_printf("/%0120d", 1);
    assert_null(build("srv", share, "x", "x", 4, &err));
    assert_non_null(strstr(err_text(&err), "128"));
}

static void test_snapshots(void **state)
{
    auto_err struct err err = {0};
    auto_handle struct handle handle = {0}, theirs = {0}, built = {.id = mem_strdup("snap-1")};
    (void)state;
    assert_int_equal(handle_set_location(&built.where, "srv", "/e", &err), 0);
    built.source = mem_strdup("pvc-1");
    built.where.version = 4;
    auto_free char *text = handle_build_snapshot(&built, &err);
    assert_string_equal(text, "srv#e#snap-1##pvc-1#b,v4");
    assert_int_equal(handle_parse_snapshot(text, &handle, &err), 0);
    assert_true(handle.ours);
    assert_string_equal(handle.id, "snap-1");
    assert_string_equal(handle.source, "pvc-1");
    assert_int_equal(handle_parse_snapshot("srv#e#snap#snap#pvc-9", &theirs, &err), 0);
    assert_false(theirs.ours);
    static const char *const bad[] = {"none-exist-id", "srv#e#snap", "srv#e#a/b#a/b#p", "srv#e#..#s#p", "srv#e#s##"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_handle struct handle refused = {0};
        assert_int_equal(handle_parse_snapshot(bad[i], &refused, NULL), -1);
    }
}

static void test_names_become_file_names(void **state)
{
    (void)state;
    auto_free char *plain = handle_id_of_name("pvc-0d1e_2.x");
    assert_string_equal(plain, "pvc-0d1e_2.x");
    static const char *const odd[] = {"a/b", "..", ".hidden", "ü", "x-abc", "a b", "a#b", "a\nb"};
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        auto_free char *id = handle_id_of_name(odd[i]), *again = handle_id_of_name(odd[i]);
        assert_string_equal(id, again);
        assert_true(str_starts(id, "x-"));
        assert_true(share_name_is_safe(id));
    }
    /* an id goes through a handle unchanged, also one that is a hash */
    auto_free char *hashed = handle_id_of_name("a/b");
    auto_free char *text = mem_printf("srv#e#%s##delete#b", hashed);
    auto_handle struct handle handle = {0};
    assert_int_equal(handle_parse(text, &handle, NULL), 0);
    assert_string_equal(handle.id, hashed);
    auto_free char *long_name = mem_printf("%0128d", 1), *id = handle_id_of_name(long_name);
    assert_true(strlen(id) <= 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parses_every_form),
        cmocka_unit_test(test_refuses_what_is_none),
        cmocka_unit_test(test_builds_what_it_parses),
        cmocka_unit_test(test_leaves_out_what_is_too_long),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_names_become_file_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
