/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "provisioner/record.h"
#include "provisioner/volume.h"

#include <stdlib.h>

#define P "csi.storage.k8s.io/"

struct answer {
    int64_t bytes;
    const char *id;
    bool source;
    const char *context_key, *context_value;
    const char *zone;
};

static void prepare(struct fixture *fixture, const char *spec, const char *annotations, const char *parameters,
                    const char *class_extra, struct provision_request *request)
{
    enum provision_state state;
    auto_err struct err err = {0};
    const struct kube_claim *claim = fixture_claim(fixture, spec, annotations);
    const struct kube_class *class_ = fixture_class(fixture, parameters, class_extra);
    fixture->config.capabilities.accessibility_constraints = false;
    if (request_prepare(&fixture->config, &fixture->lookup, claim, class_, request, &state, &err) < 0 ||
        request_complete(&fixture->config, &fixture->lookup, NULL, request, &state, &err) < 0)
        fail_msg("%s", err_text(&err));
}

static int build(struct fixture *fixture, const struct provision_request *request, const struct answer *answer,
                 json_t **json, enum volume_verdict *verdict, struct err *err)
{
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__CreateVolumeResponse response = CSI__V1__CREATE_VOLUME_RESPONSE__INIT;
    Csi__V1__Volume *volume = CSI_NEW(&arena, &response, volume);
    volume->capacity_bytes = answer->bytes;
    volume->volume_id = csi_arena_strdup(&arena, answer->id);
    if (answer->source)
        CSI_NEW(&arena, CSI_NEW(&arena, volume, content_source), volume)->volume_id = csi_arena_strdup(&arena, "h");
    if (answer->context_key != NULL)
        CSI_MAP_ADD(&arena, volume, volume_context, answer->context_key, answer->context_value);
    if (answer->zone != NULL) {
        Csi__V1__Topology *topology = CSI_ADD(&arena, volume, accessible_topology);
        CSI_MAP_ADD(&arena, topology, segments, "zone", answer->zone);
    }
    *json = NULL;
    return volume_build(&fixture->config, request, &response, json, verdict, err);
}

static void expect_json(json_t *got, const char *expected)
{
    json_t *want = fixture_json(expected);
    if (!json_equal(got, want)) {
        auto_free char *text = json_dumps(got, JSON_INDENT(1) | JSON_SORT_KEYS);
        fail_msg("%s", text);
    }
    json_decref(got);
    json_decref(want);
}

static void test_plain_volume(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    struct provision_request request;
    enum volume_verdict verdict;
    json_t *json;
    fixture_init(&fixture);
    prepare(&fixture, "'volumeMode': 'Filesystem'", "", "'fstype': 'ext4'",
            "'reclaimPolicy': 'Retain', 'mountOptions': ['ro']", &request);
    const struct answer answer = {.bytes = 5368709120, .id = "vol-1", .context_key = "k", .context_value = "v"};
    assert_int_equal(build(&fixture, &request, &answer, &json, &verdict, NULL), 0);
    expect_json(json, "{'apiVersion': 'v1', 'kind': 'PersistentVolume', 'metadata': {'name': 'pvc-u-1',"
                      " 'annotations': {'pv.kubernetes.io/provisioned-by': 'd',"
                      " 'volume.kubernetes.io/provisioner-deletion-secret-name': '',"
                      " 'volume.kubernetes.io/provisioner-deletion-secret-namespace': ''},"
                      " 'finalizers': ['external-provisioner.volume.kubernetes.io/finalizer']},"
                      " 'spec': {'capacity': {'storage': '5Gi'}, 'accessModes': ['ReadWriteOnce'],"
                      " 'persistentVolumeReclaimPolicy': 'Retain', 'mountOptions': ['ro'], 'storageClassName': 'fast',"
                      " 'volumeMode': 'Filesystem', 'claimRef': {'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim',"
                      " 'namespace': 'default', 'name': 'c', 'uid': 'u-1', 'resourceVersion': '7'},"
                      " 'csi': {'driver': 'd', 'volumeHandle': 'vol-1', 'fsType': 'ext4', 'volumeAttributes':"
                      " {'k': 'v', 'storage.kubernetes.io/csiProvisionerIdentity': 'identity'}}}}");
    provision_request_clear(&request);
}

static void test_everything_set(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    struct provision_request request;
    enum volume_verdict verdict;
    json_t *json;
    fixture_init(&fixture);
    fixture.config.controller_publish_readonly = true;
    strv_add(&fixture.config.copy_claim_annotations, "owner");
    strv_add(&fixture.config.copy_claim_annotations, "pv.kubernetes.io/provisioned-by");
    strv_add(&fixture.config.copy_claim_labels, "team");
    strv_add(&fixture.config.copy_claim_labels, "absent");
    fixture_add(&fixture, &kube_kind_secret, "{'metadata': {'namespace': 'ns', 'name': 'key'}, 'data': {}}");
    fixture_add(&fixture, &kube_kind_attributes_class, "{'metadata': {'name': 'gold'}, 'driverName': 'd'}");
    prepare(&fixture, "'volumeMode': 'Block', 'accessModes': ['ReadOnlyMany'], 'volumeAttributesClassName': 'gold'",
            "'owner': 'ann', 'pv.kubernetes.io/provisioned-by': 'mallory'",
            "'" P "secret-name': 'key', '" P "secret-namespace': 'ns', '" P "fstype': 'xfs'", "", &request);
    fixture.config.capabilities.accessibility_constraints = true;
    const struct answer answer = {.bytes = 1 << 30,
                                  .id = "vol-1",
                                  .zone = "a",
                                  .context_key = "storage.kubernetes.io/csiProvisionerIdentity",
                                  .context_value = "driver's"};
    assert_int_equal(build(&fixture, &request, &answer, &json, &verdict, NULL), 0);
#define REF "{'name': 'key', 'namespace': 'ns'}"
    json_t *identity =
        json_object_get(json_object_get(json_object_get(json_object_get(json, "spec"), "csi"), "volumeAttributes"),
                        "storage.kubernetes.io/csiProvisionerIdentity");
    assert_string_equal(json_string_value(identity), "driver's");
    json_object_del(json_object_get(json_object_get(json, "spec"), "csi"), "volumeAttributes");
    expect_json(
        json,
        "{'apiVersion': 'v1', 'kind': 'PersistentVolume', 'metadata': {'name': 'pvc-u-1', 'labels': {'team': 'red'},"
        " 'annotations': {'pv.kubernetes.io/provisioned-by': 'd', 'owner': 'ann',"
        " 'volume.kubernetes.io/provisioner-deletion-secret-name': 'key',"
        " 'volume.kubernetes.io/provisioner-deletion-secret-namespace': 'ns',"
        " 'volume.kubernetes.io/controller-modify-secret-name': 'key',"
        " 'volume.kubernetes.io/controller-modify-secret-namespace': 'ns'},"
        " 'finalizers': ['external-provisioner.volume.kubernetes.io/finalizer']},"
        " 'spec': {'capacity': {'storage': '1Gi'}, 'accessModes': ['ReadOnlyMany'],"
        " 'persistentVolumeReclaimPolicy': 'Delete', 'storageClassName': 'fast', 'volumeMode': 'Block',"
        " 'volumeAttributesClassName': 'gold', 'claimRef': {'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim',"
        " 'namespace': 'default', 'name': 'c', 'uid': 'u-1', 'resourceVersion': '7'},"
        " 'nodeAffinity': {'required': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'zone', 'operator': 'In',"
        " 'values': ['a']}]}]}},"
        " 'csi': {'driver': 'd', 'volumeHandle': 'vol-1', 'readOnly': true,"
        " 'controllerPublishSecretRef': " REF ", 'nodeStageSecretRef': " REF ", 'nodePublishSecretRef': " REF
        ", 'controllerExpandSecretRef': " REF ", 'nodeExpandSecretRef': " REF "}}}");
    provision_request_clear(&request);
}

static void test_capacity(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text; /* NULL = rejected */
    } table[] = {{0, "1Gi"}, {1 << 30, "1Gi"}, {(1 << 30) + 1, "1073741825"}, {(1 << 30) - 1, NULL}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_fixture struct fixture fixture;
        struct provision_request request;
        enum volume_verdict verdict;
        json_t *json;
        auto_err struct err err = {0};
        fixture_init(&fixture);
        prepare(&fixture, "", "", "", "", &request);
        const struct answer answer = {.bytes = table[i].bytes, .id = "v"};
        int result = build(&fixture, &request, &answer, &json, &verdict, &err);
        if (table[i].text == NULL) {
            assert_int_equal(result, -1);
            assert_int_equal(verdict, VOLUME_REJECTED);
            expect_error(&err, "less than requested capacity");
        } else {
            const char *text = NULL;
            json_unpack(json, "{s:{s:{s:s}}}", "spec", "capacity", "storage", &text);
            assert_string_equal(text, table[i].text);
            assert_int_equal(verdict, VOLUME_ACCEPTED);
        }
        json_decref(json);
        provision_request_clear(&request);
    }
}

static void test_refused_answers(void **state)
{
    (void)state;
    for (int source = 0; source < 2; source++) {
        auto_fixture struct fixture fixture;
        struct provision_request request;
        enum volume_verdict verdict;
        json_t *json;
        auto_err struct err err = {0};
        fixture_init(&fixture);
        fixture_add(
            &fixture, &kube_kind_claim,
            "{'metadata': {'namespace': 'default', 'name': 'src', 'uid': 's'}, 'spec': {'storageClassName': 'x',"
            " 'volumeName': 'pv'}, 'status': {'phase': 'Bound'}}");
        fixture_add(&fixture, &kube_kind_volume,
                    "{'metadata': {'name': 'pv'}, 'spec': {'csi': {'driver': 'd', 'volumeHandle': 'h'}, 'claimRef': "
                    "{'namespace': 'default', 'name': 'src', 'uid': 's'}}, 'status': {'phase': 'Bound'}}");
        prepare(&fixture, "'dataSource': {'kind': 'PersistentVolumeClaim', 'name': 'src'}", "", "", "", &request);
        const struct answer answer = {.id = "v", .source = source == 1};
        assert_int_equal(build(&fixture, &request, &answer, &json, &verdict, &err), source == 1 ? 0 : -1);
        assert_int_equal(verdict, source == 1 ? VOLUME_ACCEPTED : VOLUME_REJECTED);
        json_decref(json);
        const struct answer nameless = {.id = "", .source = true};
        assert_int_equal(build(&fixture, &request, &nameless, &json, &verdict, &err), -1);
        expect_error(&err, "no volume id");
        provision_request_clear(&request);
    }
}

static void test_same_volume(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        enum volume_likeness likeness;
    } table[] = {
        {"'csi': {'driver': 'd', 'volumeHandle': 'v'}, 'claimRef': {'uid': 'u-1'}", VOLUME_SAME},
        {"'csi': {'driver': 'd', 'volumeHandle': 'w'}, 'claimRef': {'uid': 'u-1'}", VOLUME_OTHER},
        {"'csi': {'driver': 'e', 'volumeHandle': 'v'}, 'claimRef': {'uid': 'u-1'}", VOLUME_OTHER},
        {"'csi': {'driver': 'd', 'volumeHandle': 'v'}, 'claimRef': {'uid': 'u-2'}", VOLUME_OTHER_CLAIM},
        {"'csi': {'driver': 'd', 'volumeHandle': 'v'}", VOLUME_OTHER_CLAIM},
        {"'hostPath': {'path': '/v'}, 'claimRef': {'uid': 'u-1'}", VOLUME_OTHER},
        {"'cinder': {'volumeID': 'v'}, 'claimRef': {'uid': 'u-1'}", VOLUME_SAME},
        {"'cinder': {'volumeID': 'w'}, 'claimRef': {'uid': 'u-1'}", VOLUME_OTHER},
    };
    auto_fixture struct fixture fixture;
    struct provision_request request;
    enum volume_verdict verdict;
    json_t *json;
    fixture_init(&fixture);
    prepare(&fixture, "", "", "", "", &request);
    const struct answer answer = {.id = "v"};
    assert_int_equal(build(&fixture, &request, &answer, &json, &verdict, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        auto_free char *text = mem_printf("{'metadata': {'name': 'pvc-u-1'}, 'spec': {%s}}", table[i].spec);
        json_t *existing = fixture_json(text);
        assert_int_equal(volume_compare(existing, json, "d", "v"), table[i].likeness);
        json_decref(existing);
    }
    json_decref(json);
    provision_request_clear(&request);
}

/* What survives a crash gives the same call and the same volume, although claim and class are gone. */
static void test_record_round_trip(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    struct provision_request request;
    enum volume_verdict verdict;
    json_t *before, *after;
    auto_err struct err err = {0};
    fixture_init(&fixture);
    strv_add(&fixture.config.copy_claim_labels, "team");
    fixture_add(&fixture, &kube_kind_secret,
                "{'metadata': {'namespace': 'ns', 'name': 'key'}, 'data': {'word': 'c2VjcmV0LXdvcmQ='}}");
    fixture_add(&fixture, &kube_kind_attributes_class,
                "{'metadata': {'name': 'gold'}, 'driverName': 'd', 'parameters': {'iops': '5'}}");
    prepare(&fixture, "'volumeAttributesClassName': 'gold'", "'volume.kubernetes.io/selected-node': 'n1'",
            "'type': 'ssd', '" P "fstype': 'xfs', '" P "secret-name': 'key', '" P "secret-namespace': 'ns'",
            "'reclaimPolicy': 'Retain', 'mountOptions': ['ro']", &request);
    auto_free char *text = record_encode(&fixture.config, &request, NULL);
    auto_free char *again = record_encode(&fixture.config, &request, NULL);
    assert_string_equal(text, again);
    auto_free char *secret = str_base64_encode("secret-word", strlen("secret-word"));
    assert_null(strstr(text, "secret-word"));
    assert_null(strstr(text, secret));
    auto_record struct record record = {0};
    if (record_decode(text, &record, &err) < 0)
        fail_msg("%s", err_text(&err));
    assert_int_equal(record.request.csi.n_secrets, 0);
    assert_int_equal(request_fetch_secret(&fixture.lookup, &record.request, &err), 0);
    auto_str struct str sent = {0}, repeated = {0};
    csi_message_print(&request.csi.base, &sent);
    csi_message_print(&record.request.csi.base, &repeated);
    assert_string_equal(str_text(&sent), str_text(&repeated));
    const struct answer answer = {.bytes = (int64_t)2 << 30, .id = "v"};
    assert_int_equal(build(&fixture, &request, &answer, &before, &verdict, NULL), 0);
    assert_int_equal(build(&fixture, &record.request, &answer, &after, &verdict, NULL), 0);
    assert_true(json_equal(before, after));
    assert_string_equal(record.request.selected_node, "n1");
    json_decref(before);
    json_decref(after);
    provision_request_clear(&request);
}

/* A call without an answer is remembered as long as other requests follow it. */
static void test_earlier_records(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture, other;
    struct provision_request one, two;
    fixture_init(&fixture);
    fixture_init(&other);
    prepare(&fixture, "", "", "'type': 'ssd'", "", &one);
    prepare(&other, "", "", "'type': 'disk'", "", &two);
    auto_free char *first = record_encode(&fixture.config, &one, NULL);
    assert_null(record_earlier(NULL, true, &one));
    assert_null(record_earlier(first, true, &one)); /* the same call again */
    assert_null(record_earlier(first, false, &two));
    auto_free char *open = record_earlier(first, true, &two);
    assert_string_equal(open, first);
    auto_free char *second = record_encode(&fixture.config, &two, open);
    auto_free char *answered = record_earlier(second, false, &two); /* the second got its answer, the first did not */
    assert_string_equal(answered, first);
    auto_record struct record record = {0};
    assert_int_equal(record_decode(second, &record, NULL), 0);
    assert_string_equal(record.earlier, first);
    assert_false(record.request.unwanted);

    auto_free char *back =
        record_earlier(second, true, &one); /* the first once more: only the second is an earlier one */
    auto_record struct record before = {0};
    assert_int_equal(record_decode(back, &before, NULL), 0);
    assert_string_equal(before.request.volume_name, two.volume_name);
    char *chain = mem_strdup(first); /* changes without end keep no more than some */
    size_t longest = 0;
    for (int i = 0; i < 100; i++) {
        struct provision_request *next = i % 2 == 0 ? &two : &one;
        next->csi.capacity_range->required_bytes++;
        auto_free char *earlier = record_earlier(chain, true, next);
        free(chain);
        chain = record_encode(&fixture.config, next, earlier);
        longest = strlen(chain) > longest ? strlen(chain) : longest;
    }
    assert_true(longest < 12 * strlen(first));
    free(chain);
    provision_request_clear(&one);
    provision_request_clear(&two);
}

/* Asked for only to find a volume that nobody waits for: the class's policy does not keep it. */
static void test_unwanted_volume(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    struct provision_request request;
    enum volume_verdict verdict;
    json_t *json;
    fixture_init(&fixture);
    prepare(&fixture, "", "", "", "'reclaimPolicy': 'Retain'", &request);
    request.unwanted = true;
    auto_free char *text = record_encode(&fixture.config, &request, NULL);
    auto_record struct record record = {0};
    assert_int_equal(record_decode(text, &record, NULL), 0);
    const struct answer answer = {.bytes = (int64_t)2 << 30, .id = "v"};
    assert_int_equal(build(&fixture, &record.request, &answer, &json, &verdict, NULL), 0);
    const char *policy = NULL;
    assert_int_equal(json_unpack(json, "{s:{s:s}}", "spec", "persistentVolumeReclaimPolicy", &policy), 0);
    assert_string_equal(policy, "Delete");
    json_decref(json);
    provision_request_clear(&request);
}

static void expect_unreadable(const char *json)
{
    auto_free char *text = mem_strdup(json);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    auto_err struct err err = {0};
    struct record record;
    assert_int_equal(record_decode(text, &record, &err), -1);
    assert_true(err.code != ERR_NONE);
    assert_null(record.claim);
}

static void test_bad_records(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "[]", "{}", "{'version': 1}", "{'version': 2}"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        expect_unreadable(texts[i]);
    expect_unreadable("{'version': 1, 'claim': {'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim', 'metadata': "
                      "{'name': 'c'}}, 'class': {'apiVersion': 'storage.k8s.io/v1', 'kind': 'StorageClass', "
                      "'metadata': {'name': 'x'}}, 'request': '####'}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_volume),    cmocka_unit_test(test_everything_set),
        cmocka_unit_test(test_capacity),        cmocka_unit_test(test_refused_answers),
        cmocka_unit_test(test_same_volume),     cmocka_unit_test(test_record_round_trip),
        cmocka_unit_test(test_earlier_records), cmocka_unit_test(test_unwanted_volume),
        cmocka_unit_test(test_bad_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
