/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "provisioner/topology.h"

#include <stdlib.h>

/* Three zones; n1 and n2 share z1; n4 lacks a label; n5 is not registered. */
static void add_cluster(struct fixture *fixture)
{
    static const struct {
        const char *name, *labels, *keys;
    } nodes[] = {
        {"n1", "'zone': 'z1', 'rack': 'r1'", "'zone'"},
        {"n2", "'zone': 'z1', 'rack': 'r2'", "'zone'"},
        {"n3", "'zone': 'z2', 'rack': 'r1'", "'zone'"},
        {"n4", "'rack': 'r1'", "'zone'"},
        {"n5", "'zone': 'z3'", NULL},
    };
    fixture->config.capabilities.accessibility_constraints = true;
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        fixture_add(fixture, &kube_kind_node, "{'metadata': {'name': '%s', 'labels': {%s}}}", nodes[i].name,
                    nodes[i].labels);
        if (nodes[i].keys != NULL)
            fixture_add(fixture, &kube_kind_csi_node,
                        "{'metadata': {'name': '%s'}, 'spec': {'drivers': [{'name': 'other', 'nodeID': 'x', "
                        "'topologyKeys': ['no']}, {'name': 'd', 'nodeID': 'x', 'topologyKeys': [%s]}]}}",
                        nodes[i].name, nodes[i].keys);
    }
}

static char *terms_text(Csi__V1__Topology *const *terms, size_t count)
{
    struct str out = {0};
    for (size_t i = 0; i < count; i++) {
        auto_free char *text = fixture_map_text(CSI_MAP(terms[i], segments));
        str_addf(&out, "%s%s", i ? ";" : "", text);
    }
    return str_take(&out);
}

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which the table is read */
struct topology_case {
    const char *node; /* selected; NULL = immediate */
    bool strict, immediate;
    const char *allowed; /* "" = none */
    const char *requisite, *preferred;
    enum provision_state state; /* with an error */
    const char *error;
};

#define ZONE(values) "{'matchLabelExpressions': [{'key': 'zone', 'values': [" values "]}]}"

/* 32-bit FNV-1 of names, computed elsewhere. That of the claim's name "c" is even and divisible by 3. */
#define WEB 1181096325u
#define FNV_C 84696444u
#define FNV_WEBX 2350118670u
#define FNV_DATA0X 1705342098u

static const struct topology_case cases[] = {
    {"n1", true, true, "", "zone=z1", "zone=z1", 0, NULL},
    {"n1", true, true, ZONE("'z1', 'z9'"), "zone=z1", "zone=z1", 0, NULL},
    {"n1", true, true, ZONE("'z2'"), NULL, NULL, PROVISION_NO_CHANGE, "is not in allowed topologies"},
    {"n3", false, true, "", "zone=z1;zone=z2;zone=z3", "zone=z2;zone=z3;zone=z1", 0, NULL},
    {"n3", false, true, ZONE("'z9', 'z2', 'z1'"), "zone=z1;zone=z2;zone=z9", "zone=z2;zone=z9;zone=z1", 0, NULL},
    {"n3", false, true, ZONE("'z9'"), NULL, NULL, PROVISION_NO_CHANGE, "is not in requisite"},
    {"n4", false, true, "", NULL, NULL, PROVISION_NO_CHANGE, "do not have all topology keys [zone]"},
    {"n5", false, true, "", NULL, NULL, PROVISION_RESCHEDULE, "selected node \"n5\""},
    {"gone", false, true, "", NULL, NULL, PROVISION_RESCHEDULE, "selected node \"gone\""},
    {NULL, false, true, ZONE("'b', 'a'") ", " ZONE("'a'"), "zone=a;zone=b", "zone=a;zone=b", 0, NULL},
    {NULL, false, true, "", "zone=z1;zone=z2;zone=z3", "zone=z1;zone=z2;zone=z3", 0, NULL},
    {NULL, true, true, "", "zone=z1;zone=z2;zone=z3", NULL, 0, NULL},
    {NULL, false, false, "", NULL, NULL, 0, NULL},
    {NULL, false, false, ZONE("'a'"), "zone=a", "zone=a", 0, NULL},
    /* a term's keys are multiplied out; shorter terms come first */
    {NULL, false, true,
     "{'matchLabelExpressions': [{'key': 'zone', 'values': ['a', 'b']}, {'key': 'rack', 'values': ['1', '2']}]}, " ZONE(
         "'z'"),
     "zone=z;rack=1,zone=a;rack=1,zone=b;rack=2,zone=a;rack=2,zone=b", NULL, 0, NULL},
};

static int require(struct fixture *fixture, const struct topology_case *c, struct topology_memory *memory,
                   struct provision_request *request, enum provision_state *state, struct err *err)
{
    auto_free char *annotation =
        c->node != NULL ? mem_printf("'volume.kubernetes.io/selected-node': '%s'", c->node) : mem_strdup("");
    auto_free char *allowed = *c->allowed ? mem_printf("'allowedTopologies': [%s]", c->allowed) : mem_strdup("");
    fixture->config.strict_topology = c->strict;
    fixture->config.immediate_topology = c->immediate;
    *request = (struct provision_request){.claim = fixture_claim(fixture, "", annotation),
                                          .class_ = fixture_class(fixture, "", allowed),
                                          .selected_node = c->node};
    csi__v1__create_volume_request__init(&request->csi);
    return topology_require(&fixture->config, &fixture->lookup, memory, request, state, err);
}

static void test_requirements(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_fixture struct fixture fixture;
        auto_err struct err err = {0};
        struct provision_request request;
        enum provision_state outcome = PROVISION_FINISHED;
        fixture_init(&fixture);
        add_cluster(&fixture);
        int result = require(&fixture, &cases[i], NULL, &request, &outcome, &err);
        if (cases[i].error != NULL) {
            assert_int_equal(result, -1);
            expect_error(&err, cases[i].error);
            expect_error(&err, "error generating accessibility requirements");
            if (outcome != cases[i].state)
                fail_msg("%zu: %s", i, provision_state_name(outcome));
        } else if (result < 0) {
            fail_msg("%zu: %s", i, err_text(&err));
        }
        const Csi__V1__TopologyRequirement *got = request.csi.accessibility_requirements;
        if (cases[i].requisite == NULL) {
            assert_null(got);
        } else {
            auto_free char *requisite = terms_text(got->requisite, got->n_requisite);
            auto_free char *preferred = terms_text(got->preferred, got->n_preferred);
            if (!str_eq(requisite, cases[i].requisite))
                fail_msg("%zu: requisite %s", i, requisite);
            if (cases[i].preferred != NULL && !str_eq(preferred, cases[i].preferred))
                fail_msg("%zu: preferred %s", i, preferred);
            assert_int_equal(got->n_preferred, got->n_requisite);
        }
        provision_request_clear(&request);
    }
}

static void test_nothing_registered(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    struct provision_request request;
    enum provision_state outcome = PROVISION_FINISHED;
    const struct topology_case immediate = {.immediate = true, .allowed = ""};
    auto_err struct err err = {0};
    assert_int_equal(require(&fixture, &immediate, NULL, &request, &outcome, &err), -1);
    expect_error(&err, "no available topology found");
    assert_int_equal(outcome, PROVISION_NO_CHANGE);
    provision_request_clear(&request);
    fixture_add(&fixture, &kube_kind_node, "{'metadata': {'name': 'n', 'labels': {}}}");
    fixture_add(&fixture, &kube_kind_csi_node, "{'metadata': {'name': 'n'}, 'spec': {'drivers': []}}");
    const struct topology_case selected = {.node = "n", .allowed = ""};
    assert_int_equal(require(&fixture, &selected, NULL, &request, &outcome, &err), -1);
    expect_error(&err, "no topology key found on CSINode n");
    assert_int_equal(outcome, PROVISION_NO_CHANGE);
    provision_request_clear(&request);
}

/* The repeated call of an unfinished claim is the same although the node is gone and others came. */
static void test_memory(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture, later;
    struct topology_memory *memory = topology_memory_new();
    struct provision_request first, second;
    enum provision_state outcome;
    fixture_init(&fixture);
    fixture_init(&later);
    add_cluster(&fixture);
    const struct topology_case c = {.node = "n3", .immediate = true, .allowed = ""};
    assert_int_equal(require(&fixture, &c, memory, &first, &outcome, NULL), 0);
    assert_int_equal(require(&later, &c, memory, &second, &outcome, NULL), 0);
    const Csi__V1__TopologyRequirement *got = second.csi.accessibility_requirements;
    auto_free char *preferred = terms_text(got->preferred, got->n_preferred);
    assert_string_equal(preferred, "zone=z2;zone=z3;zone=z1");
    provision_request_clear(&first);
    provision_request_clear(&second);
    /* another node is another question */
    const struct topology_case other = {.node = "n1", .immediate = true, .allowed = ""};
    assert_int_equal(require(&later, &other, memory, &second, &outcome, NULL), -1);
    provision_request_clear(&second);
    topology_memory_free(memory);
    fixture_free(&later);
}

static void test_spread(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t offset;
    } table[] = {
        {"data-web-0", WEB}, {"data-web-2", WEB + 2}, {"other-web-2", WEB + 2},
        {"web-3", WEB + 3},  {"data-0x", FNV_DATA0X}, {"c", FNV_C},
        {"web-x", FNV_WEBX}, {"x-99999999999", 0},
    };
    for (size_t i = 0; i + 1 < ARRAY_LEN(table); i++)
        if (topology_spread_offset(table[i].name) != table[i].offset)
            fail_msg("%s: %u", table[i].name, topology_spread_offset(table[i].name));
    /* more than 32 bits is no ordinal: the whole name is hashed */
    assert_int_equal(topology_spread_offset("x-99999999999"), str_fnv1("x-99999999999"));
    assert_int_equal(topology_spread_offset("x-4294967295"), str_fnv1("x") + UINT32_MAX);
}

static void test_preferred_rotates_by_ordinal(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    add_cluster(&fixture);
    const char *zones[] = {"zone=z1", "zone=z2", "zone=z3"};
    for (uint32_t ordinal = 0; ordinal < 6; ordinal++) {
        struct provision_request request = {0};
        enum provision_state outcome;
        csi__v1__create_volume_request__init(&request.csi);
        request.class_ = fixture_class(&fixture, "", "");
        request.claim =
            fixture_add(&fixture, &kube_kind_claim,
                        "{'metadata': {'namespace': 'default', 'name': 'data-web-%u'}, 'spec': {}}", ordinal);
        assert_int_equal(topology_require(&fixture.config, &fixture.lookup, NULL, &request, &outcome, NULL), 0);
        auto_free char *first =
            fixture_map_text(CSI_MAP(request.csi.accessibility_requirements->preferred[0], segments));
        assert_string_equal(first, zones[(WEB + ordinal) % 3]);
        provision_request_clear(&request);
    }
}

static json_t *affinity_of(const char *terms)
{
    auto_csi_arena struct csi_arena arena = {0};
    Csi__V1__Volume volume = CSI__V1__VOLUME__INIT;
    json_t *list = fixture_json(terms), *term, *value;
    const char *key;
    size_t i;
    json_array_foreach (list, i, term) {
        Csi__V1__Topology *topology = CSI_ADD(&arena, &volume, accessible_topology);
        json_object_foreach (term, key, value)
            CSI_MAP_ADD(&arena, topology, segments, key, json_string_value(value));
    }
    json_decref(list);
    return topology_node_affinity(volume.accessible_topology, volume.n_accessible_topology);
}

static void test_node_affinity(void **state)
{
    (void)state;
    assert_null(affinity_of("[]"));
    assert_null(affinity_of("[{}, {}]"));
    json_t *got = affinity_of("[{}, {'zone': 'a', 'rack': '1'}, {'zone': 'b'}]");
    json_t *expected = fixture_json(
        "{'required': {'nodeSelectorTerms': [{'matchExpressions': ["
        "{'key': 'rack', 'operator': 'In', 'values': ['1']}, {'key': 'zone', 'operator': 'In', 'values': ['a']}]},"
        "{'matchExpressions': [{'key': 'zone', 'operator': 'In', 'values': ['b']}]}]}}");
    assert_true(json_equal(got, expected));
    json_decref(got);
    json_decref(expected);
}

static void expect_segments(struct fixture *fixture, const char *expected)
{
    auto_objects struct kube_object_list nodes = {0}, csi_nodes = {0};
    fixture->lookup.nodes(fixture, &nodes, NULL);
    fixture->lookup.csi_nodes(fixture, &csi_nodes, NULL);
    json_t *got = topology_segments(&fixture->config, &nodes, &csi_nodes), *want = fixture_json(expected);
    assert_true(json_equal(got, want));
    json_decref(got);
    json_decref(want);
}

static void test_segments(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    expect_segments(&fixture, "[]");
    add_cluster(&fixture);
    expect_segments(&fixture, "[{'zone': 'z1'}, {'zone': 'z2'}]");
    fixture_add(&fixture, &kube_kind_csi_node,
                "{'metadata': {'name': 'n5'}, 'spec': {'drivers': [{'name': 'd', 'nodeID': 'x'}]}}");
    expect_segments(&fixture, "[{}, {'zone': 'z1'}, {'zone': 'z2'}]");
    const struct kube_pair own[] = {{"host", "h1"}};
    fixture.config.node_deployment = true;
    fixture.config.node_topology = (struct kube_pairs){.items = own, .len = 1};
    expect_segments(&fixture, "[{'host': 'h1'}]");
}

static void test_local_volumes(void **state)
{
    (void)state;
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    const struct kube_pair own[] = {{"host", "h1"}};
    fixture.config.node_name = "n1";
    fixture.config.node_topology = (struct kube_pairs){.items = own, .len = 1};
    static const struct {
        const char *affinity;
        bool local;
    } table[] = {
        {"", true},
        {", 'nodeAffinity': {'required': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'host', 'operator': "
         "'In', "
         "'values': ['h1']}]}]}}",
         true},
        {", 'nodeAffinity': {'required': {'nodeSelectorTerms': [{'matchExpressions': [{'key': 'host', 'operator': "
         "'In', "
         "'values': ['h2']}]}]}}",
         false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct kube_volume *volume = fixture_add(
            &fixture, &kube_kind_volume,
            "{'metadata': {'name': 'v'}, 'spec': {'csi': {'driver': 'd', 'volumeHandle': 'h'}%s}}", table[i].affinity);
        assert_int_equal(topology_volume_is_local(&fixture.config, volume), table[i].local);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requirements),
        cmocka_unit_test(test_nothing_registered),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_preferred_rotates_by_ordinal),
        cmocka_unit_test(test_node_affinity),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_local_volumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
