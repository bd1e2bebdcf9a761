/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/parameters.h"

#include "lib/base/mem.h"
#include "lib/csi/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Pairs "key", "value", …, NULL. */
static int read_pairs(const char *const *pairs, bool is_context, struct parameters *parameters, struct err *err)
{
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    for (size_t i = 0; pairs[i] != NULL; i += 2)
        CSI_MAP_ADD(&arena, &request, parameters, pairs[i], pairs[i + 1]);
    return parameters_read(CSI_MAP(&request, parameters), is_context, parameters, err);
}
#define READ(parameters, is_context, err, ...)                                                                         \
    read_pairs((const char *const[]){__VA_ARGS__, NULL}, (is_context), (parameters), (err))

static void test_keys_in_any_case(void **state)
{
    auto_err struct err err = {0};
    auto_parameters struct parameters parameters = {0};
    (void)state;
    assert_int_equal(READ(&parameters, false, &err, "SERVER", "nfs.example", "Share", "export/", "SUBDIR", "/a//b/",
                          "onDelete", "ARCHIVE", "MountPermissions", "0750", "uid", "5", "GID", "6", "mounter", "Fuse",
                          "csi.storage.k8s.io/pvc/name", "x", "csi.storage.k8s.io/fstype", "nfs"),
                     0);
    assert_string_equal(parameters.where.server, "nfs.example");
    assert_string_equal(parameters.where.export, "/export");
    assert_string_equal(parameters.sub_dir, "a/b");
    assert_int_equal(parameters.on_delete, ON_DELETE_ARCHIVE);
    assert_true(parameters.has_mode && parameters.mode == 0750);
    assert_true(parameters.has_uid && parameters.uid == 5 && parameters.has_gid && parameters.gid == 6);
    assert_int_equal(parameters.mounter, MOUNTER_FUSE);
}

static void test_policies_of_the_other_peer(void **state)
{
    static const struct {
        const char *archive, *on_delete;
        enum on_delete policy;
    } cases[] = {
        {"true", "", ON_DELETE_ARCHIVE}, {"false", "", ON_DELETE_DELETE},      {"1", "", ON_DELETE_ARCHIVE},
        {"f", "", ON_DELETE_DELETE},     {"true", "delete", ON_DELETE_DELETE}, {"false", "retain", ON_DELETE_RETAIN},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        auto_parameters struct parameters parameters = {0};
        assert_int_equal(READ(&parameters, false, &err, "archiveOnDelete", cases[i].archive, "onDelete",
                              cases[i].on_delete, "server", "s", "share", "/"),
                         0);
        assert_int_equal(parameters.on_delete, cases[i].policy);
    }
}

static void test_refuses_and_names_the_key(void **state)
{
    static const char *const bad[][3] = {
        {"color", "red", "\"color\""},
        {"onDelete", "burn", "onDelete"},
        {"mountPermissions", "888", "octal"},
        {"mountPermissions", "-1", "octal"},
        {"mountPermissions", "77777", "octal"},
        {"uid", "4294967295", "uid"},
        {"gid", "x", "gid"},
        {"mounter", "magic", "mounter"},
        {"archiveOnDelete", "maybe", "archiveOnDelete"},
        {"subDir", "../x", ".."},
        {"subDir", "${pvc.metadata.name", "brace"},
        {"subDir", "${nonsense}", "${nonsense}"},
        {"mountOptions", "nfsvers=2", "nfsvers=2"},
        {"mountOptions", "port=99999", "port=99999"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        auto_parameters struct parameters parameters = {0};
        assert_int_equal(READ(&parameters, false, &err, "server", "s", "share", "/", bad[i][0], bad[i][1]), -1);
        assert_int_equal(csi_code_of(&err), CSI_INVALID_ARGUMENT);
        if (strstr(err_text(&err), bad[i][2]) == NULL)
            fail_msg("no \"%s\" in: %s", bad[i][2], err_text(&err));
    }
}

static void test_context_passes_over_what_it_does_not_know(void **state)
{
    auto_err struct err err = {0};
    auto_parameters struct parameters parameters = {0};
    (void)state;
    assert_int_equal(READ(&parameters, true, &err, "server", "s", "share", "/e", "subDir", "lit/${eral}",
                          "csi.storage.k8s.io/pod.name", "p", "storage.kubernetes.io/csiProvisionerIdentity", "1"),
                     0);
    assert_string_equal(parameters.sub_dir, "lit/${eral}");
}

static void test_mount_options(void **state)
{
    static const struct {
        const char *text;
        int version, port, mount_port;
    } cases[] = {
        {"hard,nfsvers=4.1,noatime", 4, 0, 0},
        {"vers=3,port=2050,mountport=20048", 3, 2050, 20048},
        {"v4.2", 4, 0, 0},
        {"v3", 3, 0, 0},
        {"", 0, 0, 0},
        {"rsize=1048576,minorversion=1", 0, 0, 0},
        {"portable=1,versatile=2", 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        struct share_location where = {0};
        assert_int_equal(parameters_read_mount_options(cases[i].text, &where, &err), 0);
        assert_int_equal(where.version, cases[i].version);
        assert_int_equal(where.port, cases[i].port);
        assert_int_equal(where.mount_port, cases[i].mount_port);
    }
}

static char *fill(const char *pattern, struct err *err)
{
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
    CSI_MAP_ADD(&arena, &request, parameters, "csi.storage.k8s.io/pvc/name", "claim");
    CSI_MAP_ADD(&arena, &request, parameters, "csi.storage.k8s.io/pvc/namespace", "ns");
    CSI_MAP_ADD(&arena, &request, parameters, "csi.storage.k8s.io/pv/name", "pvc-1");
    CSI_MAP_ADD(&arena, &request, parameters, "csi.storage.k8s.io/pvc/labels/app", "web");
    CSI_MAP_ADD(&arena, &request, parameters, "csi.storage.k8s.io/pvc/annotations/a.b/c", "note");
    CSI_MAP_ADD(&arena, &request, parameters, "csi.storage.k8s.io/pvc/labels/evil", "..");
    CSI_MAP_ADD(&arena, &request, parameters, "csi.storage.k8s.io/pvc/labels/path", "a/b");
    return template_fill(pattern, CSI_MAP(&request, parameters), err);
}

static void test_templates(void **state)
{
    static const char *const cases[][2] = {
        {"${pvc.metadata.namespace}/${pvc.metadata.name}/${pv.metadata.name}", "ns/claim/pvc-1"},
        {"${.PVC.namespace}-${.PVC.name}", "ns-claim"},
        {"${.PVC.labels.app}/${.PVC.annotations.a.b/c}", "web/note"},
        {"plain", "plain"},
        {"$x-{}", "$x-{}"},
        {"", ""},
    };
    static const char *const bad[][2] = {
        {"${.PVC.labels.none}", "needs"},
        {"${.PVC.labels.evil}", "path"},
        {"${.PVC.labels.path}", "path"},
        {"${pvc.metadata.uid}", "unknown"},
        {"a${", "brace"},
        {"${}", "unknown"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        auto_free char *filled = fill(cases[i][0], &err);
        if (filled == NULL)
            fail_msg("%s: %s", cases[i][0], err_text(&err));
        assert_string_equal(filled, cases[i][1]);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_err struct err err = {0};
        assert_null(fill(bad[i][0], &err));
        if (strstr(err_text(&err), bad[i][1]) == NULL)
            fail_msg("no \"%s\" in: %s", bad[i][1], err_text(&err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_in_any_case),
        cmocka_unit_test(test_policies_of_the_other_peer),
        cmocka_unit_test(test_refuses_and_names_the_key),
        cmocka_unit_test(test_context_passes_over_what_it_does_not_know),
        cmocka_unit_test(test_mount_options),
        cmocka_unit_test(test_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
