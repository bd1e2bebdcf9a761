/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of pods, events, secrets and leases. */
#include "tests/devapi/validate.h"

#include "lib/base/mem.h"
#include "tests/devapi/defaults.h"
#include "tests/devapi/tree.h"

void validate_pod(const json_t *object, const struct rules *rules, struct errors *errors)
{
    size_t i;
    json_t *item;
    (void)rules;
    if (json_array_size(tree_get(object, "spec.containers")) == 0)
        errors_add(errors, ERROR_REQUIRED, "spec.containers", NULL, NULL);
    json_array_foreach (tree_get(object, "spec.containers"), i, item) {
        auto_free char *name = mem_printf("spec.containers[%zu].name", i);
        auto_free char *image = mem_printf("spec.containers[%zu].image", i);
        if (!tree_has_text(item, "name"))
            errors_add(errors, ERROR_REQUIRED, name, NULL, NULL);
        if (!tree_has_text(item, "image"))
            errors_add(errors, ERROR_REQUIRED, image, NULL, NULL);
    }
    json_array_foreach (tree_get(object, "spec.volumes"), i, item) {
        auto_free char *name = mem_printf("spec.volumes[%zu].name", i);
        if (!tree_has_text(item, "name"))
            errors_add(errors, ERROR_REQUIRED, name, NULL, NULL);
    }
}

/* Of a running pod only images, deadline and tolerations may change. */
void validate_pod_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    auto_json json_t *was = json_deep_copy(tree_get(old, "spec")), *now = json_deep_copy(tree_get(object, "spec"));
    static const char *const free_members[] = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"};
    static const char *const lists[] = {"containers", "initContainers"};
    json_t *specs[] = {was, now}, *item;
    size_t i;
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        for (size_t m = 0; m < ARRAY_LEN(free_members); m++)
            json_object_del(specs[s], free_members[m]);
        for (size_t l = 0; l < ARRAY_LEN(lists); l++)
            json_array_foreach (tree_get(specs[s], lists[l]), i, item) {
                json_object_del(item, "image");
            }
    }
    if (!tree_same(was, now))
        errors_add(errors, ERROR_FORBIDDEN, "spec", NULL,
                   "pod updates may not change fields other than `spec.containers[*].image`, "
                   "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations`");
}

void validate_event(const json_t *object, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    const char *namespace = tree_text(object, "metadata.namespace");
    const char *involved = tree_text(object, "involvedObject.namespace");
    bool same = str_empty(involved) ? str_eq(namespace, "default") || str_eq(namespace, "kube-system")
                                    : str_eq(namespace, involved);
    if (!same) {
        auto_json json_t *shown = json_string(involved != NULL ? involved : "");
        errors_add(errors, ERROR_INVALID, "involvedObject.namespace", shown, "does not match event.namespace");
    }
}

void validate_secret_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors)
{
    (void)rules;
    errors_check_immutable(errors, object, old, "type");
    if (tree_is_true(old, "immutable") && !tree_same(tree_get(object, "data"), tree_get(old, "data")))
        errors_add(errors, ERROR_FORBIDDEN, "data", NULL, "field is immutable when `immutable` is set");
}

void validate_lease(const json_t *object, const struct rules *rules, struct errors *errors)
{
    static const struct {
        const char *field;
        json_int_t least;
    } numbers[] = {{"spec.leaseDurationSeconds", 1}, {"spec.leaseTransitions", 0}};
    (void)rules;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const json_t *value = tree_get(object, numbers[i].field);
        if (value != NULL && json_integer_value(value) < numbers[i].least)
            errors_add(errors, ERROR_INVALID, numbers[i].field, value,
                       numbers[i].least > 0 ? "must be greater than 0" : "must be greater than or equal to 0");
    }
}
