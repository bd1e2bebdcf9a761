/* SPDX-License-Identifier: Apache-2.0 */
/* The search: every filter step, and the index against a plain walk on random volumes. */
#include "tests/unit/controller/support.h"

#include "controller/match.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <stdio.h>

static const char *find(struct world *world, const char *claim, bool delayed)
{
    struct match match;
    auto_err struct err err = {0};
    if (match_find(&world->view, world_claim(world, "c", claim), delayed, &match, &err) != 0)
        fail_msg("%s", err_text(&err));
    if (match.volume == NULL)
        return NULL;
    const char *name = match.volume->object.meta.name; /* the store keeps it alive */
    kube_object_unref(&match.volume->object);
    return name;
}

static const struct {
    const char *name, *volume, *claim;
    bool delayed, fits;
} steps[] = {
    {"fits", "{}", "{}", false, true},
    {"2 somebody else's", "{'spec':{'claimRef':{'namespace':'default','name':'d'}}}", "{}", false, false},
    {"2 same name elsewhere", "{'spec':{'claimRef':{'namespace':'x','name':'c'}}}", "{}", false, false},
    {"2 an earlier claim's", "{'spec':{'claimRef':{'namespace':'default','name':'c','uid':'u'}}}", "{}", false, false},
    {"3 too small", "{'spec':{'capacity':{'storage':'1023Mi'}}}", "{}", false, false},
    {"3 exactly", "{'spec':{'capacity':{'storage':'1024Mi'}}}", "{}", false, true},
    {"3 parts of a byte count", "{'spec':{'capacity':{'storage':'100m'}}}",
     "{'spec':{'resources':{'requests':{'storage':'200m'}}}}", false, false},
    {"3 beyond int64", "{'spec':{'capacity':{'storage':'800E'}}}",
     "{'spec':{'resources':{'requests':{'storage':'799E'}}}}", false, true},
    {"3 beyond int64, too small", "{'spec':{'capacity':{'storage':'800E'}}}",
     "{'spec':{'resources':{'requests':{'storage':'801E'}}}}", false, false},
    {"4 Block for Filesystem", "{'spec':{'volumeMode':'Block'}}", "{}", false, false},
    {"4 Block for Block", "{'spec':{'volumeMode':'Block'}}", "{'spec':{'volumeMode':'Block'}}", false, true},
    {"4 explicit for absent", "{'spec':{'volumeMode':'Filesystem'}}", "{}", false, true},
    {"5 attributes class", "{'spec':{'volumeAttributesClassName':'a'}}", "{}", false, false},
    {"5 same attributes class", "{'spec':{'volumeAttributesClassName':'a'}}",
     "{'spec':{'volumeAttributesClassName':'a'}}", false, true},
    {"5 empty is absent", "{'spec':{'volumeAttributesClassName':''}}", "{}", false, true},
    {"6 being deleted", "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z'}}", "{}", false, false},
    {"6 reserved but being deleted",
     "{'metadata':{'deletionTimestamp':'2024-01-01T00:00:00Z'},'spec':{'claimRef':{'namespace':'default','name':'c'}}}",
     "{}", false, false},
    {"8 reserved: phase, class and selector do not matter",
     "{'spec':{'storageClassName':'x','claimRef':{'namespace':'default','name':'c'}},'status':{'phase':'Pending'}}",
     "{'spec':{'selector':{'matchLabels':{'a':'b'}}}}", false, true},
    {"8 reserved but too small", "{'spec':{'capacity':{'storage':'1'},'claimRef':{'namespace':'default','name':'c'}}}",
     "{}", false, false},
    {"8 reserved but of another mode", "{'spec':{'volumeMode':'Block','claimRef':{'namespace':'default','name':'c'}}}",
     "{}", false, false},
    {"8 reserved without the access mode", "{'spec':{'claimRef':{'namespace':'default','name':'c'}}}",
     "{'spec':{'accessModes':['ReadWriteMany']}}", false, false},
    {"8 reserved with the right uid", "{'spec':{'claimRef':{'namespace':'default','name':'c','uid':'uid-c'}}}", "{}",
     true, true},
    {"9 delayed: only reserved ones", "{}", "{}", true, false},
    {"10 not Available", "{'status':{'phase':'Released'}}", "{}", false, false},
    {"10 no phase yet", "{'status':{'phase':null}}", "{}", false, false},
    {"11 labels", "{'metadata':{'labels':{'a':'b'}}}", "{'spec':{'selector':{'matchLabels':{'a':'b'}}}}", false, true},
    {"11 other labels", "{'metadata':{'labels':{'a':'c'}}}", "{'spec':{'selector':{'matchLabels':{'a':'b'}}}}", false,
     false},
    {"11 empty selector", "{}", "{'spec':{'selector':{}}}", false, true},
    {"12 class", "{'spec':{'storageClassName':'x'}}", "{}", false, false},
    {"12 same class", "{'spec':{'storageClassName':'x'}}", "{'spec':{'storageClassName':'x'}}", false, true},
    {"12 absent claim class is none", "{}", "{'spec':{'storageClassName':null}}", false, true},
    {"12 beta annotation of the volume", "{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-class':'x'}}}",
     "{'spec':{'storageClassName':'x'}}", false, true},
    {"12 beta annotation of the claim", "{'spec':{'storageClassName':'x'}}",
     "{'metadata':{'annotations':{'volume.beta.kubernetes.io/storage-class':'x'}},'spec':{'storageClassName':'y'}}",
     false, true},
    {"modes: more than asked for", "{'spec':{'accessModes':['ReadWriteMany','ReadWriteOnce']}}", "{}", false, true},
    {"modes: one is missing", "{}", "{'spec':{'accessModes':['ReadWriteOnce','ReadOnlyMany']}}", false, false},
    {"modes: order and repeats do not matter",
     "{'spec':{'accessModes':['ReadOnlyMany','ReadWriteOnce','ReadOnlyMany']}}",
     "{'spec':{'accessModes':['ReadWriteOnce','ReadOnlyMany']}}", false, true},
    {"modes: pod", "{'spec':{'accessModes':['ReadWriteOncePod']}}", "{'spec':{'accessModes':['ReadWriteOncePod']}}",
     false, true},
    {"modes: of a newer server", "{'spec':{'accessModes':['ReadNever','ReadWriteOnce','AppendOnce']}}",
     "{'spec':{'accessModes':['AppendOnce']}}", false, true},
    {"modes: a part of a name is none", "{'spec':{'accessModes':['AppendOnceMore']}}",
     "{'spec':{'accessModes':['AppendOnce']}}", false, false},
};

static void test_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct world world;
        world_init(&world, 36);
        world_volume(&world, "v", steps[i].volume);
        const char *name = find(&world, steps[i].claim, steps[i].delayed);
        if ((name != NULL) != steps[i].fits)
            fail_msg("%s: %s", steps[i].name, name == NULL ? "does not fit" : "fits");
        world_clear(&world);
    }
}

static void test_choice(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    world_volume(&world, "big", "{'spec':{'capacity':{'storage':'9Gi'}}}");
    world_volume(&world, "b", "{'spec':{'capacity':{'storage':'2Gi'}}}");
    world_volume(&world, "a", "{'spec':{'capacity':{'storage':'2048Mi'}}}");
    world_volume(&world, "tiny", "{'spec':{'capacity':{'storage':'1Mi'}}}");
    world_volume(&world, "wide",
                 "{'spec':{'capacity':{'storage':'1Gi'},"
                 "'accessModes':['ReadWriteOnce','ReadWriteMany']}}");
    assert_string_equal(find(&world, NULL, false), "a"); /* smallest, then by name; fewer modes before a better size */
    assert_string_equal(find(&world, "{'spec':{'accessModes':['ReadWriteMany']}}", false), "wide");
    world_volume(&world, "mine",
                 "{'spec':{'capacity':{'storage':'50Gi'},"
                 "'claimRef':{'namespace':'default','name':'c'}}}");
    assert_string_equal(find(&world, NULL, false), "mine");
    assert_string_equal(find(&world, NULL, true), "mine");
    world_clear(&world);
}

static void test_reservation_in_a_larger_set_loses(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    world_volume(&world, "mine",
                 "{'spec':{'accessModes':['ReadWriteOnce','ReadWriteMany'],"
                 "'claimRef':{'namespace':'default','name':'c','uid':'uid-c'}}}");
    assert_string_equal(find(&world, NULL, false), "mine");
    world_volume(&world, "free", NULL);
    assert_string_equal(find(&world, NULL, false), "free");
    assert_string_equal(find(&world, NULL, true), "mine");
    world_clear(&world);
}

static void test_bad_selector(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    struct match match;
    auto_err struct err err = {0};
    const struct kube_claim *claim =
        world_claim(&world, "c", "{'spec':{'selector':{'matchExpressions':[{'key':'a','operator':'Near'}]}}}");
    assert_int_equal(match_find(&world.view, claim, false, &match, &err), -1);
    assert_non_null(strstr(err_text(&err), "error creating internal label selector for claim: default/c: "));
    world_clear(&world);
}

static bool first_is_taken(void *arg, const struct kube_volume *volume, const struct kube_claim *claim)
{
    (void)claim;
    return str_eq(volume->object.meta.name, arg);
}

static void test_taken(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    world.view.is_taken = first_is_taken;
    world.view.taken_arg = (void *)(uintptr_t) "a";
    world_volume(&world, "a", NULL);
    struct match match;
    const struct kube_claim *claim = world_claim(&world, "c", NULL);
    assert_int_equal(match_find(&world.view, claim, false, &match, NULL), 0);
    assert_null(match.volume);
    assert_true(match.blocked);
    world_volume(&world, "b", "{'spec':{'capacity':{'storage':'9Gi'}}}");
    assert_string_equal(find(&world, NULL, false), "b");
    world_clear(&world);
}

/* ---- the index against the rules, word for word ---- */
static size_t group_size(const struct kube_volume *volume)
{
    struct mode_set set;
    mode_set_init(&set, &volume->access_modes);
    size_t len = mode_set_len(&set);
    mode_set_clear(&set);
    return len;
}

static char *group_text(const struct kube_volume *volume)
{
    struct mode_set set;
    mode_set_init(&set, &volume->access_modes);
    char *text = mode_set_text(&set);
    mode_set_clear(&set);
    return text;
}

/* One set of access modes: the steps in their order. */
static const struct kube_volume *naive_in_group(const struct kube_object_list *volumes, const char *group,
                                                const struct kube_claim *claim, bool delayed)
{
    const struct kube_volume *kept = NULL, *reserved = NULL;
    for (size_t i = 0; i < volumes->len; i++) {
        const struct kube_volume *volume = (const struct kube_volume *)volumes->items[i];
        auto_free char *text = group_text(volume);
        if (strcmp(text, group) != 0)
            continue;
        bool refers = volume_refers_to(volume, claim);
        if (volume->claim_ref != NULL && !refers)
            continue;
        if (kube_quantity_compare(&volume->storage, &claim->request) < 0)
            continue;
        if (is_block(volume->volume_mode) != is_block(claim->volume_mode))
            continue;
        if (!str_eq(volume->attributes_class == NULL ? "" : volume->attributes_class,
                    claim->attributes_class == NULL ? "" : claim->attributes_class))
            continue;
        if (volume->object.meta.deleting)
            continue;
        if (refers) {
            if (reserved == NULL || strcmp(volume->object.meta.name, reserved->object.meta.name) < 0)
                reserved = volume;
            continue;
        }
        if (delayed || !str_eq(volume->phase, "Available") ||
            (claim->has_selector && !kube_selector_matches(&claim->selector, &volume->object.meta.labels)) ||
            !str_eq(kube_volume_class(volume), kube_claim_class(claim)))
            continue;
        int order = kept == NULL ? -1 : kube_quantity_compare(&volume->storage, &kept->storage);
        if (order < 0 || (order == 0 && strcmp(volume->object.meta.name, kept->object.meta.name) < 0))
            kept = volume;
    }
    return reserved != NULL ? reserved : kept;
}

static const struct kube_volume *naive_find(const struct kube_object_list *volumes, const struct kube_claim *claim,
                                            bool delayed)
{
    for (size_t size = 1; size <= 4; size++) {
        auto_strv struct strv groups = {0};
        for (size_t i = 0; i < volumes->len; i++) {
            const struct kube_volume *volume = (const struct kube_volume *)volumes->items[i];
            auto_free char *text = group_text(volume);
            if (group_size(volume) == size && volume_lacks_mode(volume, claim) == NULL && !strv_contains(&groups, text))
                strv_add(&groups, text);
        }
        strv_sort(&groups);
        for (size_t g = 0; g < groups.len; g++) {
            const struct kube_volume *found = naive_in_group(volumes, groups.items[g], claim, delayed);
            if (found != NULL)
                return found;
        }
    }
    return NULL;
}

static const char *pick(struct rng *rng, const char *const *choices, size_t count)
{
    return choices[rng_below(rng, count)];
}
#define PICK(rng, ...) pick(rng, (const char *const[]){__VA_ARGS__}, ARRAY_LEN(((const char *const[]){__VA_ARGS__})))

static char *random_modes(struct rng *rng)
{
    struct str text = {0};
    uint64_t bits = 1 + rng_below(rng, 15);
    static const char *const modes[] = {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"};
    for (size_t i = 0; i < 4; i++)
        if (bits & (1U << i))
            str_addf(&text, "%s'%s'", text.len > 0 ? "," : "", modes[i]);
    return str_take(&text);
}

static char *random_volume(struct rng *rng)
{
    auto_free char *modes = random_modes(rng);
    return mem_printf("{'metadata':{%s'labels':{'l':'%s'}},'spec':{'capacity':{'storage':'%s'},'accessModes':[%s],"
                      "'storageClassName':'%s','volumeAttributesClassName':%s%s%s},'status':{'phase':'%s'}}",
                      rng_below(rng, 12) == 0 ? "'deletionTimestamp':'2024-01-01T00:00:00Z'," : "", PICK(rng, "a", "b"),
                      PICK(rng, "1Gi", "2Gi", "2G", "3Gi", "500m", "100E", "0"), modes, PICK(rng, "", "", "gold"),
                      PICK(rng, "null", "null", "null", "''", "'fast'"),
                      PICK(rng, "", "", ",'volumeMode':'Filesystem'", ",'volumeMode':'Block'"),
                      PICK(rng, "", "", "", ",'claimRef':{'namespace':'default','name':'c'}",
                           ",'claimRef':{'namespace':'default','name':'c','uid':'uid-c'}",
                           ",'claimRef':{'namespace':'default','name':'c','uid':'dead'}",
                           ",'claimRef':{'namespace':'default','name':'d','uid':'uid-d'}"),
                      PICK(rng, "Available", "Available", "Available", "Pending", "Released", "Bound"));
}

static char *random_claim(struct rng *rng)
{
    auto_free char *modes = mem_strdup(PICK(rng, "'ReadWriteOnce'", "'ReadWriteOnce'", "'ReadOnlyMany'",
                                            "'ReadWriteMany','ReadOnlyMany'", "'ReadWriteOncePod'"));
    return mem_printf("{'spec':{'resources':{'requests':{'storage':'%s'}},'accessModes':[%s],'storageClassName':%s,"
                      "'volumeAttributesClassName':%s%s%s}}",
                      PICK(rng, "1Gi", "1Gi", "2Gi", "1", "200m", "99E"), modes, PICK(rng, "''", "null", "'gold'"),
                      PICK(rng, "null", "null", "'fast'"), PICK(rng, "", "", ",'volumeMode':'Block'"),
                      PICK(rng, "", "", ",'selector':{'matchLabels':{'l':'a'}}",
                           ",'selector':{'matchExpressions':[{'key':'l','operator':'NotIn','values':['a']}]}"));
}

static void random_round(struct rng *rng, size_t *hits)
{
    struct world world;
    world_init(&world, 36);
    size_t count = 1 + rng_below(rng, 30);
    for (size_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "v%zu", (size_t)rng_below(rng, 20)); /* names repeat: volumes change */
        auto_free char *text = random_volume(rng);
        world_volume(&world, name, text);
        if (rng_below(rng, 8) == 0)
            kube_store_remove(world.view.volumes, NULL, name, "", ++world.version);
    }
    auto_objects struct kube_object_list volumes = {0};
    kube_store_list(world.view.volumes, &volumes);
    assert_int_equal(volume_index_len(world.view.index), volumes.len);
    for (int i = 0; i < 4; i++) {
        auto_free char *text = random_claim(rng);
        bool delayed = rng_below(rng, 4) == 0;
        const struct kube_claim *claim = world_claim(&world, "c", text);
        const struct kube_volume *want = naive_find(&volumes, claim, delayed);
        struct match match;
        assert_int_equal(match_find(&world.view, claim, delayed, &match, NULL), 0);
        if (match.volume != want)
            fail_msg("claim %s: found %s, the rules say %s", text,
                     match.volume == NULL ? "none" : match.volume->object.meta.name,
                     want == NULL ? "none" : want->object.meta.name);
        if (match.volume != NULL) {
            (*hits)++;
            kube_object_unref(&match.volume->object);
        }
    }
    world_clear(&world);
}

static void test_random(void **state)
{
    (void)state;
    struct rng *rng = rng_seeded_new(20240607);
    size_t hits = 0;
    for (int i = 0; i < 3000; i++)
        random_round(rng, &hits);
    rng_free(rng);
    assert_in_range(hits, 1000, 12000); /* the volumes are not so odd that nothing is ever found */
}

static bool count_visit(void *arg, struct kube_volume *volume)
{
    struct {
        size_t count;
        struct kube_quantity last;
    } *seen = arg;
    assert_true(kube_quantity_compare(&volume->storage, &seen->last) >= 0);
    seen->last = volume->storage;
    seen->count++;
    return true;
}

/* The tree itself: order, ranks and removals. */
static void test_bucket(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    struct rng *rng = rng_seeded_new(7);
    bool there[500] = {false};
    for (int i = 0; i < 4000; i++) {
        char name[16], text[80];
        size_t n = rng_below(rng, ARRAY_LEN(there));
        snprintf(name, sizeof(name), "v%zu", n);
        if (there[n] && rng_below(rng, 2) == 0) {
            kube_store_remove(world.view.volumes, NULL, name, "", ++world.version);
            there[n] = false;
            continue;
        }
        snprintf(text, sizeof(text), "{'spec':{'capacity':{'storage':'%zuMi'}}}", n);
        world_volume(&world, name, text);
        there[n] = true;
    }
    rng_free(rng);
    size_t total = 0, below = 0, groups_len;
    for (size_t n = 0; n < ARRAY_LEN(there); n++) {
        total += there[n];
        below += n < 100 && there[n];
    }
    volume_index_lock(world.view.index);
    struct volume_group *const *groups = volume_index_groups(world.view.index, &groups_len);
    assert_int_equal(groups_len, 1);
    const struct volume_bucket *bucket = volume_group_bucket(groups[0], BUCKET_FREE, false, "", "");
    struct kube_quantity from = kube_quantity_from_bytes(100 << 20);
    struct {
        size_t count;
        struct kube_quantity last;
    } seen = {0, from};
    assert_int_equal(volume_bucket_len(bucket), total);
    assert_int_equal(volume_bucket_count_below(bucket, &from), below);
    volume_bucket_walk(bucket, &from, count_visit, &seen);
    assert_int_equal(seen.count, total - below);
    volume_index_unlock(world.view.index);
    world_clear(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_reservation_in_a_larger_set_loses),
        cmocka_unit_test(test_bad_selector),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
