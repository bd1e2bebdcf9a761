/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/dispatch.h"
#include "drivers/hostpath/volumes.h"
#include "lib/base/mem.h"
#include "tests/unit/hostpath/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>

static struct snapshot *make_snapshot(const char *id, const char *name, const char *group)
{
    struct snapshot *snapshot = snapshot_new();
    snapshot->id = mem_strdup(id);
    snapshot->name = mem_strdup(name);
    snapshot->source_volume = mem_strdup("source");
    snapshot->group = mem_strdup(group);
    snapshot->size = 4096;
    snapshot->created = 1234567890123456789;
    snapshot->block = true;
    snapshot->backend = BACKEND_LOOP;
    return snapshot;
}

static struct group *make_group(const char *id, const char *name, const char *member)
{
    struct group *group = group_new();
    group->id = mem_strdup(id);
    group->name = mem_strdup(name);
    group->created = 99;
    strv_add(&group->sources, "source");
    strv_add(&group->snapshots, member);
    return group;
}

static struct state *open_state(const struct scratch *s)
{
    auto_err struct err err = {0};
    struct state *state = NULL;
    assert_int_equal(state_open(s->path, &state, &err), 0);
    return state;
}

static void test_snapshots_and_groups_survive(void **arg)
{
    const struct scratch *s = *arg;
    auto_err struct err err = {0};
    struct state *state = open_state(s);
    auto_snapshot struct snapshot *snapshot = make_snapshot("s1", "snap", "g1");
    auto_group struct group *group = make_group("g1", "grp", "s1");
    assert_int_equal(state_make_data(state, STATE_SNAPSHOTS, "s1", &err), 0);
    assert_int_equal(state_save_snapshot(state, snapshot, &err), 0);
    assert_int_equal(state_save_group(state, group, &err), 0);
    state_close(state);
    state = open_state(s);
    auto_snapshot struct snapshot *same = state_snapshot_by_name(state, "snap");
    auto_group struct group *same_group = state_group_by_name(state, "grp");
    assert_non_null(same);
    assert_non_null(same_group);
    json_t *before = record_from_snapshot(snapshot), *after = record_from_snapshot(same);
    json_t *group_before = record_from_group(group), *group_after = record_from_group(same_group);
    assert_true(json_equal(before, after));
    assert_true(json_equal(group_before, group_after));
    json_decref(before);
    json_decref(after);
    json_decref(group_before);
    json_decref(group_after);
    state_close(state);
}

static void test_members_without_their_group_go(void **arg)
{
    const struct scratch *s = *arg;
    auto_err struct err err = {0};
    struct state *state = open_state(s);
    auto_snapshot struct snapshot *member = make_snapshot("s1", "g1/source", "g1"),
                                  *single = make_snapshot("s2", "snap", NULL);
    assert_int_equal(state_make_data(state, STATE_SNAPSHOTS, "s1", &err), 0);
    assert_int_equal(state_make_data(state, STATE_SNAPSHOTS, "s2", &err), 0);
    assert_int_equal(state_save_snapshot(state, member, &err), 0);
    assert_int_equal(state_save_snapshot(state, single, &err), 0);
    state_close(state); /* the crash came before the group's record */
    state = open_state(s);
    assert_null(state_snapshot(state, "s1"));
    assert_false(scratch_exists(s, "snapshots/s1"));
    assert_false(scratch_exists(s, "records/s1.json"));
    assert_true(scratch_exists(s, "snapshots/s2"));
    state_close(state);
}

static void test_an_id_belongs_to_one_kind(void **arg)
{
    const struct scratch *s = *arg;
    auto_err struct err err = {0};
    struct state *state = open_state(s);
    auto_snapshot struct snapshot *snapshot = make_snapshot("x", "snap", NULL);
    assert_int_equal(state_make_data(state, STATE_SNAPSHOTS, "x", &err), 0);
    assert_int_equal(state_save_snapshot(state, snapshot, &err), 0);
    auto_volume struct volume *volume = volume_new();
    volume->id = mem_strdup("x");
    volume->name = mem_strdup("volume");
    assert_int_equal(state_save_volume(state, volume, &err), -1);
    assert_int_equal(err.code, ERR_EXISTS);
    assert_int_equal(state_delete_volume(state, "x", &err), 0); /* there is no such volume */
    assert_true(scratch_exists(s, "records/x.json"));
    assert_true(scratch_exists(s, "snapshots/x"));
    state_close(state);
}

static void test_a_record_under_another_name_is_refused(void **arg)
{
    const struct scratch *s = *arg;
    auto_err struct err err = {0};
    struct state *state = open_state(s);
    state_close(state);
    scratch_write(s, "records/a.json", "{\"format\":1,\"type\":\"group\",\"id\":\"b\",\"name\":\"n\"}");
    assert_int_equal(state_open(s->path, &state, &err), -1);
    assert_non_null(strstr(err.message, "a.json"));
    scratch_write(s, "records/a.json", "{\"format\":1,\"type\":\"wizard\",\"id\":\"a\",\"name\":\"n\"}");
    assert_int_equal(state_open(s->path, &state, &err), -1);
    assert_non_null(strstr(err.message, "wizard"));
}

static void test_tokens(void **arg)
{
    (void)arg;
    static const char *const bad[] = {"invalid-token", "after:", "after:../x", "after:.x", "5", "after:a/b"};
    auto_csi_arena struct csi_arena arena = {0};
    auto_err struct err err = {0};
    const char *after;
    assert_int_equal(volumes_read_token("", &after, &err), 0);
    assert_string_equal(after, "");
    assert_int_equal(volumes_read_token(volumes_make_token(&arena, "id-1"), &after, &err), 0);
    assert_string_equal(after, "id-1");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(volumes_read_token(bad[i], &after, &err), -1);
        assert_int_equal(err.status, CSI_ABORTED);
    }
}

static void test_parameters(void **arg)
{
    (void)arg;
    static const struct {
        const char *key, *value;
        int status; /* 0 = accepted */
    } table[] = {{"backend", "loop", 0},
                 {"backend", "tape", CSI_INVALID_ARGUMENT},
                 {"kind", "fast", 0},
                 {"size", "1Gi", CSI_INVALID_ARGUMENT},
                 {"csi.storage.k8s.io/pvc/name", "x", 0},
                 {"path", "/etc", CSI_INVALID_ARGUMENT}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_csi_arena struct csi_arena arena = {0};
        auto_err struct err err = {0};
        auto_volume struct volume *volume = volume_new();
        bool given;
        Csi__V1__CreateVolumeRequest request = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
        CSI_MAP_ADD(&arena, &request, parameters, table[i].key, table[i].value);
        int result = volumes_read_parameters(CSI_MAP(&request, parameters), volume, &given, NULL, &err);
        assert_int_equal(result, table[i].status == 0 ? 0 : -1);
        assert_int_equal(err.status, table[i].status);
        if (result < 0)
            assert_non_null(strstr(err.message, strcmp(table[i].key, "backend") == 0 ? "tape" : table[i].key));
    }
}

static void test_own_trouble_never_looks_like_an_answer(void **arg)
{
    (void)arg;
    static const struct {
        enum err_code code;
        int status;
    } table[] = {{ERR_NOT_FOUND, CSI_INTERNAL},       {ERR_EXISTS, CSI_INTERNAL},
                 {ERR_INVALID, CSI_INTERNAL},         {ERR_IO, CSI_INTERNAL},
                 {ERR_FORBIDDEN, CSI_INTERNAL},       {ERR_CONFLICT, CSI_ABORTED},
                 {ERR_UNAVAILABLE, CSI_UNAVAILABLE},  {ERR_CANCELLED, CSI_UNAVAILABLE},
                 {ERR_TIMEOUT, CSI_DEADLINE_EXCEEDED}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_err struct err err = {0};
        err_set(&err, table[i].code, "x");
        assert_int_equal(dispatch_settle(&err), -1);
        assert_int_equal(csi_code_of(&err), table[i].status);
    }
    auto_err struct err err = {0};
    csi_fail(&err, CSI_NOT_FOUND, "x");
    dispatch_settle(&err);
    assert_int_equal(csi_code_of(&err), CSI_NOT_FOUND);
}

static void test_every_rpc_has_a_handler(void **arg)
{
    (void)arg;
    const struct csi_handlers handlers = dispatch_handlers();
    for (size_t i = 0; csi_methods[i] != NULL; i++) {
        void (*function)(void);
        memcpy(&function, (const char *)&handlers + csi_methods[i]->handler_offset, sizeof(function));
        const bool csi = str_starts(csi_methods[i]->service, "csi.v1.");
        if ((function != NULL) != csi)
            fail_msg("%s", csi_methods[i]->path);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_set_up, scratch_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_snapshots_and_groups_survive),
        TEST(test_members_without_their_group_go),
        TEST(test_an_id_belongs_to_one_kind),
        TEST(test_a_record_under_another_name_is_refused),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_own_trouble_never_looks_like_an_answer),
        cmocka_unit_test(test_every_rpc_has_a_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
