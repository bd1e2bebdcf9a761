/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/explain.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <inttypes.h>

/* ---- which volumes were looked at ---- */
enum misfit {
    MISFIT_CLAIMED,
    MISFIT_SMALL,
    MISFIT_MODES,
    MISFIT_CLASS,
    MISFIT_VOLUME_MODE,
    MISFIT_ATTRIBUTES,
    MISFIT_LABELS,
    MISFIT_TERMINATING,
    MISFIT_PHASE,
    MISFIT_SCHEDULER,
    MISFIT_COUNT,
};
struct tally {
    const struct kube_claim *claim;
    bool delayed;
    size_t total, fit, counts[MISFIT_COUNT];
    struct kube_quantity largest; /* of the too small ones */
    struct str missing_modes;
};

static bool visit_labels(void *arg, struct kube_volume *volume)
{
    struct tally *tally = arg;
    if (!kube_selector_matches(&tally->claim->selector, &volume->object.meta.labels))
        tally->counts[MISFIT_LABELS]++;
    else if (tally->delayed)
        tally->counts[MISFIT_SCHEDULER]++;
    else
        tally->fit++;
    return true;
}

static void tally_sizes(struct tally *tally, const struct volume_bucket *bucket)
{
    const struct kube_claim *claim = tally->claim;
    size_t small = volume_bucket_count_below(bucket, &claim->request), len = volume_bucket_len(bucket);
    tally->counts[MISFIT_SMALL] += small;
    if (small == len) {
        const struct kube_volume *largest = volume_bucket_largest(bucket);
        if (kube_quantity_compare(&largest->storage, &tally->largest) > 0)
            tally->largest = largest->storage;
    }
    if (claim->has_selector)
        volume_bucket_walk(bucket, &claim->request, visit_labels, tally);
    else if (tally->delayed)
        tally->counts[MISFIT_SCHEDULER] += len - small;
    else
        tally->fit += len - small;
}

static void tally_bucket(struct tally *tally, const struct volume_group *group, const struct volume_bucket *bucket,
                         const struct mode_set *wanted)
{
    static const enum misfit by_state[] = {[BUCKET_CLAIMED] = MISFIT_CLAIMED,
                                           [BUCKET_TERMINATING] = MISFIT_TERMINATING,
                                           [BUCKET_NOT_READY] = MISFIT_PHASE};
    const struct kube_claim *claim = tally->claim;
    size_t len = volume_bucket_len(bucket);
    tally->total += len;
    if (bucket->state != BUCKET_FREE)
        tally->counts[by_state[bucket->state]] += len;
    else if (!str_eq(bucket->class_name, kube_claim_class(claim)))
        tally->counts[MISFIT_CLASS] += len;
    else if (!mode_set_contains(&group->modes, wanted))
        tally->counts[MISFIT_MODES] += len;
    else if (bucket->block != is_block(claim->volume_mode))
        tally->counts[MISFIT_VOLUME_MODE] += len;
    else if (!str_eq(bucket->attributes_class, claim->attributes_class == NULL ? "" : claim->attributes_class))
        tally->counts[MISFIT_ATTRIBUTES] += len;
    else
        tally_sizes(tally, bucket);
}

static void add_part(struct str *text, size_t count, const char *words)
{
    if (count > 0)
        str_addf(text, "%s%zu %s", text->len > 0 ? ", " : "", count, words);
}

static char *tally_text(const struct tally *tally)
{
    const struct kube_claim *claim = tally->claim;
    auto_str struct str parts = {0};
    char size[KUBE_QUANTITY_TEXT_SIZE], wanted[KUBE_QUANTITY_TEXT_SIZE];
    add_part(&parts, tally->counts[MISFIT_CLAIMED], "bound to other claims");
    if (tally->counts[MISFIT_SMALL] > 0) {
        auto_free char *words =
            mem_printf("smaller than %s (largest %s)", kube_quantity_format_human(&claim->request, wanted),
                       kube_quantity_format_human(&tally->largest, size));
        add_part(&parts, tally->counts[MISFIT_SMALL], words);
    }
    if (tally->counts[MISFIT_MODES] > 0) {
        auto_str struct str modes = {0};
        for (uint32_t i = 0; i < claim->access_modes.len; i++)
            str_addf(&modes, "%s%s", i > 0 ? "+" : "", claim->access_modes.items[i]);
        auto_free char *words = mem_printf("lack %s", str_text(&modes));
        add_part(&parts, tally->counts[MISFIT_MODES], words);
    }
    if (tally->counts[MISFIT_CLASS] > 0) {
        const char *class = kube_claim_class(claim);
        auto_free char *words =
            *class == '\0' ? mem_strdup("have a storage class") : mem_printf("not of class %s", class);
        add_part(&parts, tally->counts[MISFIT_CLASS], words);
    }
    add_part(&parts, tally->counts[MISFIT_VOLUME_MODE],
             is_block(claim->volume_mode) ? "not of mode Block" : "not of mode Filesystem");
    add_part(&parts, tally->counts[MISFIT_ATTRIBUTES], "of another attributes class");
    add_part(&parts, tally->counts[MISFIT_LABELS], "not selected by their labels");
    add_part(&parts, tally->counts[MISFIT_TERMINATING], "being deleted");
    add_part(&parts, tally->counts[MISFIT_PHASE], "not yet Available");
    add_part(&parts, tally->counts[MISFIT_SCHEDULER], "left to the scheduler's choice");
    if (tally->total == 0)
        return mem_strdup("there are no volumes");
    return mem_printf("%zu/%zu volumes fit%s%s", tally->fit, tally->total, parts.len > 0 ? ": " : "", str_text(&parts));
}

char *explain_volumes(const struct controller_view *view, const struct kube_claim *claim)
{
    struct tally tally = {.claim = claim};
    if (claim_is_delayed(view, claim, &tally.delayed, NULL) != 0)
        tally.delayed = false;
    struct mode_set wanted;
    mode_set_init(&wanted, &claim->access_modes);
    volume_index_lock(view->index);
    size_t len;
    struct volume_group *const *groups = volume_index_groups(view->index, &len);
    for (size_t g = 0; g < len; g++)
        for (size_t i = 0; i < groups[g]->len; i++)
            tally_bucket(&tally, groups[g], groups[g]->buckets[i], &wanted);
    volume_index_unlock(view->index);
    mode_set_clear(&wanted);
    return tally_text(&tally);
}

/* ---- one volume ---- */
static char *explain_claimed(const struct kube_claim *claim, const struct kube_volume *volume)
{
    const struct kube_reference *ref = volume->claim_ref;
    if (str_eq(ref->name, claim->object.meta.name) && str_eq(ref->namespace_, claim->object.meta.namespace_))
        return mem_printf("its claimRef has the uid of an earlier claim of this name; remove spec.claimRef.uid of "
                          "volume %s to let this claim have it with its data",
                          volume->object.meta.name);
    return mem_printf("it belongs to claim %s/%s, phase %s", ref->namespace_, ref->name,
                      str_empty(volume->phase) ? "Pending" : volume->phase);
}

static char *join_strings(const struct kube_strings *strings)
{
    struct str text = {0};
    for (uint32_t i = 0; i < strings->len; i++)
        str_addf(&text, "%s%s", i > 0 ? "+" : "", strings->items[i]);
    return str_take(&text);
}

static const char *or_none(const char *name)
{
    return str_empty(name) ? "none" : name;
}

char *explain_volume_for_claim(const struct kube_claim *claim, const struct kube_volume *volume)
{
    char has[KUBE_QUANTITY_TEXT_SIZE], wants[KUBE_QUANTITY_TEXT_SIZE];
    if (volume->claim_ref != NULL && !volume_refers_to(volume, claim))
        return explain_claimed(claim, volume);
    if (volume->object.meta.deleting)
        return mem_strdup("a volume that is being deleted takes no new claim; its finalizers hold it back");
    if (volume_is_too_small(volume, claim))
        return mem_printf("it has %s, the claim asks for %s", kube_quantity_format_human(&volume->storage, has),
                          kube_quantity_format_human(&claim->request, wants));
    if (!str_eq(kube_volume_class(volume), kube_claim_class(claim)))
        return mem_printf("its class is %s, the claim's is %s", or_none(kube_volume_class(volume)),
                          or_none(kube_claim_class(claim)));
    if (attributes_classes_differ(volume, claim))
        return mem_printf("its attributes class is %s, the claim's is %s", or_none(volume->attributes_class),
                          or_none(claim->attributes_class));
    if (volume_modes_differ(volume, claim))
        return mem_printf("it is of mode %s, the claim of mode %s",
                          is_block(volume->volume_mode) ? "Block" : "Filesystem",
                          is_block(claim->volume_mode) ? "Block" : "Filesystem");
    const char *mode = volume_lacks_mode(volume, claim);
    if (mode != NULL) {
        auto_free char *modes = join_strings(&volume->access_modes);
        return mem_printf("it lacks %s, it has %s", mode, modes);
    }
    return mem_strdup("");
}

/* ---- classes and provisioners ---- */
#define CLASSES_NAMED 5

char *explain_missing_class(const struct controller_view *view, const char *name)
{
    auto_objects struct kube_object_list classes = {0};
    kube_store_list(view->classes, &classes);
    if (classes.len == 0)
        return mem_strdup("the cluster has no storage class at all");
    auto_strv struct strv names = {0};
    for (size_t i = 0; i < classes.len; i++)
        strv_add(&names, classes.items[i]->meta.name);
    strv_sort(&names);
    const char *nearest = names.items[0];
    for (size_t i = 1; i < names.len; i++)
        if (str_distance(names.items[i], name) < str_distance(nearest, name))
            nearest = names.items[i];
    if (str_distance(nearest, name) <= 1 + strlen(name) / 4)
        return mem_printf("did you mean %s?", nearest);
    struct str text = {0};
    str_add(&text, "there are: ");
    for (size_t i = 0; i < names.len && i < CLASSES_NAMED; i++)
        str_addf(&text, "%s%s", i > 0 ? ", " : "", names.items[i]);
    if (names.len > CLASSES_NAMED)
        str_addf(&text, " and %zu more", names.len - CLASSES_NAMED);
    return str_take(&text);
}

char *explain_driver(const char *provisioner, const struct driver_facts *facts)
{
    if (facts == NULL || !facts->known)
        return mem_strdup("");
    if (!facts->is_csi && !facts->has_lease)
        return mem_printf("no driver named %s is registered and no provisioner holds a lease of that name: is it "
                          "installed?",
                          provisioner);
    if (!facts->has_lease)
        return mem_printf(
            "driver %s is registered, but no lease tells of a provisioner for it (one that does without leader "
            "election, as on the nodes, has none)",
            provisioner);
    if (!facts->lease_is_live)
        return mem_printf("the lease of the provisioner in namespace %s has expired: it does not run",
                          facts->lease_namespace);
    return mem_printf("its provisioner runs in namespace %s", facts->lease_namespace);
}

static char *join(const char *first, char *second)
{
    if (*second == '\0')
        return free(second), mem_strdup(first);
    char *text = mem_printf("%s; %s", first, second);
    free(second);
    return text;
}

/* Annotations may hold anything; the brackets must stay ours. */
static char *without_brackets(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '[' ? '(' : *c == ']' ? ')' : *c;
    return text;
}

char *explain_claim(const struct controller_view *view, const struct kube_claim *claim, const struct claim_plan *plan,
                    const struct driver_facts *facts)
{
    if (plan->event_reason == NULL)
        return mem_strdup("");
    if (plan->volume != NULL)
        return without_brackets(explain_volume_for_claim(claim, plan->volume));
    if (plan->action == CLAIM_REPORT && plan->storage_class == NULL)
        return without_brackets(explain_missing_class(view, kube_claim_class(claim)));
    if (plan->action != CLAIM_PROVISION_EXTERNAL && plan->action != CLAIM_REPORT &&
        !str_eq(plan->event_reason, "FailedBinding"))
        return mem_strdup("");
    auto_free char *volumes = explain_volumes(view, claim);
    if (plan->action != CLAIM_PROVISION_EXTERNAL)
        return without_brackets(mem_take(volumes));
    return without_brackets(join(volumes, explain_driver(plan->text, facts)));
}
