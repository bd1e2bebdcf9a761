/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/provisioner/fixture.h"

#include "lib/base/mem.h"
#include "provisioner/secrets.h"

#define P "csi.storage.k8s.io/"

struct secret_case {
    enum secret_kind kind;
    const char *parameters;
    const char *namespace_, *name; /* NULL = none */
    const char *error;             /* NULL = none */
};

static const struct secret_case cases[] = {
    {SECRET_PROVISIONER, "", NULL, NULL, NULL},
    {SECRET_PROVISIONER, "'" P "provisioner-secret-name': 'n', '" P "provisioner-secret-namespace': 'ns'", "ns", "n",
     NULL},
    {SECRET_CONTROLLER_PUBLISH,
     "'" P "controller-publish-secret-name': 'n', '" P "controller-publish-secret-namespace': 'ns'", "ns", "n", NULL},
    {SECRET_NODE_STAGE, "'" P "node-stage-secret-name': 'n', '" P "node-stage-secret-namespace': 'ns'", "ns", "n",
     NULL},
    {SECRET_NODE_PUBLISH, "'" P "node-publish-secret-name': 'n', '" P "node-publish-secret-namespace': 'ns'", "ns", "n",
     NULL},
    {SECRET_CONTROLLER_EXPAND,
     "'" P "controller-expand-secret-name': 'n', '" P "controller-expand-secret-namespace': 'ns'", "ns", "n", NULL},
    {SECRET_NODE_EXPAND, "'" P "node-expand-secret-name': 'n', '" P "node-expand-secret-namespace': 'ns'", "ns", "n",
     NULL},
    {SECRET_CONTROLLER_MODIFY,
     "'" P "controller-modify-secret-name': 'n', '" P "controller-modify-secret-namespace': 'ns'", "ns", "n", NULL},
    /* another kind's pair is not ours */
    {SECRET_NODE_STAGE, "'" P "provisioner-secret-name': 'n', '" P "provisioner-secret-namespace': 'ns'", NULL, NULL,
     NULL},
    /* the common pair, and the own one before it */
    {SECRET_NODE_EXPAND, "'" P "secret-name': 'common', '" P "secret-namespace': 'ns'", "ns", "common", NULL},
    {SECRET_PROVISIONER,
     "'" P "secret-name': 'common', '" P "secret-namespace': 'ns', '" P "provisioner-secret-name': 'own', '" P
     "provisioner-secret-namespace': 'own-ns'",
     "own-ns", "own", NULL},
    /* the deprecated pair, for the first four kinds only */
    {SECRET_PROVISIONER, "'csiProvisionerSecretName': 'n', 'csiProvisionerSecretNamespace': 'ns'", "ns", "n", NULL},
    {SECRET_CONTROLLER_PUBLISH, "'csiControllerPublishSecretName': 'n', 'csiControllerPublishSecretNamespace': 'ns'",
     "ns", "n", NULL},
    {SECRET_NODE_STAGE, "'csiNodeStageSecretName': 'n', 'csiNodeStageSecretNamespace': 'ns'", "ns", "n", NULL},
    {SECRET_NODE_PUBLISH, "'csiNodePublishSecretName': 'n', 'csiNodePublishSecretNamespace': 'ns'", "ns", "n", NULL},
    {SECRET_CONTROLLER_EXPAND, "'csiControllerExpandSecretName': 'n', 'csiControllerExpandSecretNamespace': 'ns'", NULL,
     NULL, NULL},
    {SECRET_PROVISIONER, "'csiProvisionerSecretName': 'n', '" P "provisioner-secret-namespace': 'ns'", "ns", "n", NULL},
    {SECRET_PROVISIONER,
     "'csiProvisionerSecretName': 'n', '" P "provisioner-secret-name': 'm', '" P "provisioner-secret-namespace': 'ns'",
     NULL, NULL, "both set"},
    /* halves and empty ones */
    {SECRET_PROVISIONER, "'" P "provisioner-secret-name': 'n'", NULL, NULL, "other half"},
    {SECRET_PROVISIONER, "'" P "provisioner-secret-namespace': 'ns'", NULL, NULL, "other half"},
    {SECRET_PROVISIONER, "'" P "secret-name': 'n'", NULL, NULL, "other half"},
    {SECRET_PROVISIONER, "'" P "provisioner-secret-name': '', '" P "provisioner-secret-namespace': 'ns'", NULL, NULL,
     "must not be empty"},
    {SECRET_PROVISIONER, "'" P "provisioner-secret-name': 'n', '" P "provisioner-secret-namespace': ''", NULL, NULL,
     "must not be empty"},
};

static void resolve(const char *parameters, enum secret_kind kind, const struct secret_names *names,
                    const char *namespace_, const char *name, const char *error)
{
    auto_fixture struct fixture fixture;
    auto_csi_arena struct csi_arena arena = {0};
    auto_err struct err err = {0};
    fixture_init(&fixture);
    struct kube_class *class_ = fixture_class(&fixture, parameters, "");
    struct secret_reference reference = {0};
    int result = secret_resolve(kind, &class_->parameters, names, &arena, &reference, &err);
    if (error != NULL) {
        assert_int_equal(result, -1);
        expect_error(&err, error);
        assert_null(reference.name);
        return;
    }
    if (result < 0)
        fail_msg("%s: %s", parameters, err_text(&err));
    if (!str_eq(reference.name, name) || !str_eq(reference.namespace_, namespace_))
        fail_msg("%s: got %s/%s", parameters, reference.namespace_, reference.name);
}

static void test_keys(void **state)
{
    (void)state;
    const struct secret_names names = {.volume_name = "pv", .claim_namespace = "default", .claim_name = "c"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        resolve(cases[i].parameters, cases[i].kind, &names, cases[i].namespace_, cases[i].name, cases[i].error);
}

static void test_templates(void **state)
{
    (void)state;
    static const struct {
        const char *namespace_, *name, *expected_namespace, *expected_name, *error;
    } templates[] = {
        {"${pvc.namespace}", "${pvc.name}", "ns-1", "data", NULL},
        {"x-${pv.name}", "${pv.name}.${pvc.namespace}", "x-pv-1", "pv-1.ns-1", NULL},
        {"ns", "${pvc.annotations[#team#]}", "ns", "red", NULL},
        {"ns", "a-${pvc.annotations[#example.com/key#]}-b", "ns", "a-value-b", NULL},
        {"ns", "${pvc.annotations[#absent#]}", NULL, NULL, "invalid tokens: [\"pvc.annotations['absent']\"]"},
        {"${pvc.name}", "n", NULL, NULL, "invalid tokens: [\"pvc.name\"]"},
        {"${pvc.annotations[#team#]}", "n", NULL, NULL, "invalid tokens"},
        {"ns", "${nothing}-${alike}", NULL, NULL, "[\"alike\" \"nothing\"]"},
        {"ns", "$word", NULL, NULL, "[\"word\"]"},
        {"ns", "cost$5", NULL, NULL, "[\"5\"]"},
        {"ns", "a${}b", "ns", "ab", NULL},
        {"ns", "a$", NULL, NULL, "not a valid secret name"},
        {"ns", "Upper", NULL, NULL, "not a valid secret name"},
        {"a.b", "n", NULL, NULL, "not a valid namespace name"},
        /* the namespace is looked at first */
        {"a.b", "$word", NULL, NULL, "not a valid namespace name"},
    };
    auto_fixture struct fixture fixture;
    fixture_init(&fixture);
    struct kube_claim *claim = fixture_claim(&fixture, "", "'team': 'red', 'example.com/key': 'value'");
    const struct secret_names names = {.volume_name = "pv-1",
                                       .claim_namespace = "ns-1",
                                       .claim_name = "data",
                                       .claim_annotations = &claim->object.meta.annotations};
    for (size_t i = 0; i < ARRAY_LEN(templates); i++) {
        auto_csi_arena struct csi_arena arena = {0};
        auto_err struct err err = {0};
        auto_free char *name = mem_strdup(templates[i].name), *namespace_ = mem_strdup(templates[i].namespace_);
        for (char *c = name; *c != '\0'; c++)
            *c = *c == '#' ? '\'' : *c;
        for (char *c = namespace_; *c != '\0'; c++)
            *c = *c == '#' ? '\'' : *c;
        const struct kube_pair pairs[] = {{P "provisioner-secret-name", name},
                                          {P "provisioner-secret-namespace", namespace_}};
        const struct kube_pairs parameters = {.items = pairs, .len = 2};
        struct secret_reference reference;
        int result = secret_resolve(SECRET_PROVISIONER, &parameters, &names, &arena, &reference, &err);
        if (templates[i].error != NULL) {
            assert_int_equal(result, -1);
            expect_error(&err, templates[i].error);
            continue;
        }
        if (result < 0)
            fail_msg("%s: %s", name, err_text(&err));
        assert_string_equal(reference.name, templates[i].expected_name);
        assert_string_equal(reference.namespace_, templates[i].expected_namespace);
    }
}

/* At the deletion of an old volume the claim's annotations are not known any more. */
static void test_without_claim(void **state)
{
    (void)state;
    const struct secret_names names = {.volume_name = "pv-1", .claim_namespace = "ns-1", .claim_name = "data"};
    const struct secret_names nothing = {.volume_name = "pv-1"};
    resolve("'" P "provisioner-secret-name': '${pvc.name}', '" P "provisioner-secret-namespace': '${pvc.namespace}'",
            SECRET_PROVISIONER, &names, "ns-1", "data", NULL);
    resolve("'" P "provisioner-secret-name': '${pvc.name}', '" P "provisioner-secret-namespace': 'ns'",
            SECRET_PROVISIONER, &nothing, NULL, NULL, "invalid tokens: [\"pvc.name\"]");
}

static void test_stripped_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool strip, error;
    } keys[] = {
        {"type", false, false},
        {"fstype", false, false},
        {"csiProvisionerSecretName", false, false},
        {"csi.storage.k8s.iox/any", false, false},
        {P "fstype", true, false},
        {P "secret-name", true, false},
        {P "secret-namespace", true, false},
        {P "provisioner-secret-name", true, false},
        {P "provisioner-secret-namespace", true, false},
        {P "controller-publish-secret-name", true, false},
        {P "node-stage-secret-namespace", true, false},
        {P "node-publish-secret-name", true, false},
        {P "controller-expand-secret-name", true, false},
        {P "node-expand-secret-namespace", true, false},
        {P "controller-modify-secret-name", true, false},
        {P "pvc/name", false, true},
        {P "FSType", false, true},
        {P, false, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        auto_err struct err err = {0};
        bool strip = false;
        int result = secret_strip_parameter(keys[i].key, &strip, &err);
        if (result != (keys[i].error ? -1 : 0) || strip != keys[i].strip)
            fail_msg("%s: %d, strip %d", keys[i].key, result, strip);
        if (keys[i].error)
            expect_error(&err, "reserved namespace");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_without_claim),
        cmocka_unit_test(test_stripped_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
