/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/store.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "tests/unit/kube/object_text.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct kube_object *claim(const char *name, const char *uid, uint64_t version, const char *volume)
{
    auto_free char *text = mem_printf("{'metadata':{'name':'%s','namespace':'n','uid':'%s','resourceVersion':'%llu'},"
                                      "'spec':{'volumeName':'%s'}}",
                                      name, uid, (unsigned long long)version, volume);
    return object_of_text(&kube_kind_claim, text);
}

static bool put(struct kube_store *store, const char *name, const char *uid, uint64_t version)
{
    auto_unref struct kube_object *object = claim(name, uid, version, "");
    return kube_store_put(store, object);
}

static bool put_reply(struct kube_store *store, const char *name, const char *uid, uint64_t version)
{
    auto_unref struct kube_object *object = claim(name, uid, version, "");
    return kube_store_put_reply(store, object);
}

/* 0: not there */
static uint64_t version_of(struct kube_store *store, const char *name)
{
    auto_unref struct kube_object *object = kube_store_get(store, "n", name);
    return object != NULL ? object->meta.resource_version : 0;
}

static void by_volume(const struct kube_object *object, struct strv *keys)
{
    const char *name = ((const struct kube_claim *)object)->volume_name;
    if (*name != '\0')
        strv_add(keys, name);
}

/* several keys, one of them twice */
static void by_letters(const struct kube_object *object, struct strv *keys)
{
    for (const char *p = object->meta.name; *p != '\0'; p++)
        strv_add_take(keys, mem_printf("%c", *p));
}

/* Writes what it is told as "+name@version ", "-name ", "name@old>new ". */
static void record(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct str *log = arg;
    if (old == NULL)
        str_addf(log, "+%s@%llu ", new_->meta.name, (unsigned long long)new_->meta.resource_version);
    else if (new_ == NULL)
        str_addf(log, "-%s@%llu ", old->meta.name, (unsigned long long)old->meta.resource_version);
    else
        str_addf(log, "%s@%llu>%llu ", new_->meta.name, (unsigned long long)old->meta.resource_version,
                 (unsigned long long)new_->meta.resource_version);
}

static void test_put_and_get(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    assert_ptr_equal(kube_store_kind(store), &kube_kind_claim);
    auto_unref struct kube_object *a = claim("a", "ua", 5, "");
    assert_true(kube_store_put(store, a));
    auto_unref struct kube_object *found = kube_store_get(store, "n", "a");
    assert_ptr_equal(found, a);
    auto_unref struct kube_object *by_key = kube_store_get_key(store, "n/a");
    assert_ptr_equal(by_key, a);
    assert_null(kube_store_get(store, "m", "a"));
    assert_null(kube_store_get(store, NULL, "a"));
    assert_null(kube_store_get(store, "n", "b"));
    assert_null(kube_store_get_key(store, "a"));
    assert_int_equal(kube_store_len(store), 1);
    kube_store_free(store);
    /* the references above outlive the store */
    assert_string_equal(found->meta.uid, "ua");
    kube_store_free(NULL);
}

static void test_cluster_scoped(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_volume);
    auto_unref struct kube_object *volume =
        object_of_text(&kube_kind_volume, "{'metadata':{'name':'pv','uid':'u','resourceVersion':'3'}}");
    assert_true(kube_store_put(store, volume));
    auto_unref struct kube_object *found = kube_store_get(store, NULL, "pv");
    assert_ptr_equal(found, volume);
    auto_unref struct kube_object *by_key = kube_store_get_key(store, "pv");
    assert_ptr_equal(by_key, volume);
    kube_store_remove(store, NULL, "pv", NULL, 3);
    assert_int_equal(kube_store_len(store), 0);
    kube_store_free(store);
}

static void test_never_goes_back(void **state)
{
    (void)state;
    auto_str struct str log = {0};
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    kube_store_listen(store, record, &log);
    assert_true(put(store, "a", "u", 10));
    assert_false(put(store, "a", "u", 9)); /* smaller as a number, larger as a text */
    assert_int_equal(version_of(store, "a"), 10);
    assert_true(put(store, "a", "u", 10));
    assert_true(put(store, "a", "u", 100));
    assert_false(put_reply(store, "a", "u", 99));
    assert_string_equal(str_text(&log), "+a@10 a@10>10 a@10>100 ");
    kube_store_free(store);
}

static void test_remove(void **state)
{
    (void)state;
    auto_str struct str log = {0};
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    kube_store_listen(store, record, &log);
    put(store, "a", "u1", 10);
    kube_store_remove(store, "n", "a", "u1", 9); /* older than what we have */
    assert_int_equal(version_of(store, "a"), 10);
    kube_store_remove(store, "n", "a", "u0", 12); /* its predecessor of the same name */
    assert_int_equal(version_of(store, "a"), 10);
    kube_store_remove(store, "n", "b", "u9", 12);
    kube_store_remove(store, "n", "a", "u1", 12);
    assert_int_equal(version_of(store, "a"), 0);
    put(store, "c", "u3", 13);
    kube_store_remove(store, "n", "c", "", 13); /* whichever */
    assert_int_equal(kube_store_len(store), 0);
    assert_string_equal(str_text(&log), "+a@10 -a@10 +c@13 -c@13 ");
    kube_store_free(store);
}

static void test_late_reply_does_not_raise_the_dead(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    /* seen, deleted, and then the reply to our patch arrives */
    put(store, "a", "u1", 10);
    kube_store_remove(store, "n", "a", "u1", 12);
    assert_false(put_reply(store, "a", "u1", 11));
    assert_false(put(store, "a", "u1", 11));
    assert_int_equal(version_of(store, "a"), 0);
    /* created by us: the watch told of creation and deletion before our reply came */
    kube_store_remove(store, "n", "b", "u2", 14);
    assert_false(put_reply(store, "b", "u2", 13));
    /* another object of the same name is none of that */
    assert_true(put(store, "a", "u3", 15));
    /* and the dead one's reply does not replace it, nor does it come back when the new one is gone too */
    assert_false(put_reply(store, "a", "u1", 11));
    kube_store_remove(store, "n", "a", "u3", 16);
    assert_false(put_reply(store, "a", "u1", 11));
    /* it left the watch's selector and came back changed */
    assert_true(put(store, "a", "u3", 17));
    kube_store_free(store);
}

static void test_replaced_under_the_same_name(void **state)
{
    (void)state;
    auto_str struct str log = {0};
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    kube_store_listen(store, record, &log);
    put(store, "a", "u1", 10);
    assert_true(put(store, "a", "u2", 20)); /* the deletion between was not seen */
    kube_store_remove(store, "n", "a", "u1", 15);
    assert_int_equal(version_of(store, "a"), 20);
    kube_store_remove(store, "n", "a", "u2", 21);
    assert_false(put_reply(store, "a", "u1", 14));
    assert_string_equal(str_text(&log), "+a@10 a@10>20 -a@20 ");
    /* the same when nobody ever tells of the first one's deletion */
    put(store, "b", "u3", 30);
    put(store, "b", "u4", 40);
    kube_store_remove(store, "n", "b", "u4", 41);
    assert_false(put_reply(store, "b", "u3", 31));
    kube_store_free(store);
}

static void assert_refused_replies(struct kube_store *store, int first, int last)
{
    for (int i = first; i <= last; i++) {
        char name[32];
        snprintf(name, sizeof(name), "c%d", i);
        if (put_reply(store, name, name, (uint64_t)i))
            fail_msg("%s was taken", name);
    }
}

static void test_many_deletions(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    char name[32];
    for (int i = 1; i <= 10000; i++) {
        snprintf(name, sizeof(name), "c%d", i);
        kube_store_remove(store, "n", name, name, (uint64_t)i);
        if (i == 1000)
            assert_refused_replies(store, 1, i);
    }
    /* the last 4096 are remembered, no more */
    assert_refused_replies(store, 5905, 10000);
    assert_true(put_reply(store, "c5904", "c5904", 5904));
    kube_store_free(store);
}

static void test_relist(void **state)
{
    (void)state;
    auto_str struct str log = {0};
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    kube_store_listen(store, record, &log);
    kube_store_relist_begin(store);
    put(store, "kept", "u1", 5);
    put(store, "gone", "u2", 6);
    put(store, "changed", "u3", 7);
    kube_store_relist_finish(store, 10);
    put(store, "watched", "u4", 11);
    str_reset(&log);

    kube_store_relist_begin(store);
    assert_int_equal(kube_store_len(store), 4); /* readers see no hole meanwhile */
    put(store, "kept", "u1", 5);
    put(store, "changed", "u3", 15);
    put(store, "new", "u5", 16);
    put_reply(store, "ours", "u6", 25); /* created by us after the list was taken */
    kube_store_relist_finish(store, 20);
    static const char puts_first[] = "kept@5>5 changed@7>15 +new@16 +ours@25 ";
    assert_true(str_starts(str_text(&log), puts_first));
    const char *removals = str_text(&log) + strlen(puts_first); /* in any order */
    assert_true(str_eq(removals, "-gone@6 -watched@11 ") || str_eq(removals, "-watched@11 -gone@6 "));
    assert_int_equal(kube_store_len(store), 4);
    assert_int_equal(version_of(store, "ours"), 25);
    /* a reply that is older than the list which lacked it */
    assert_false(put_reply(store, "gone", "u2", 9));
    assert_false(put_reply(store, "never-seen", "u7", 18));
    assert_false(put(store, "never-seen", "u7", 20));
    assert_true(put(store, "after", "u8", 21));
    kube_store_free(store);
}

static void test_reply_during_relist_is_no_item(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    kube_store_relist_begin(store);
    put(store, "a", "u1", 5);
    kube_store_relist_finish(store, 10);
    /* a and b are deleted on the server, the watch is down; replies to patches before that arrive while we list */
    kube_store_relist_begin(store);
    assert_true(put_reply(store, "a", "u1", 12));
    assert_true(put_reply(store, "b", "u2", 13));
    kube_store_relist_finish(store, 20);
    assert_int_equal(kube_store_len(store), 0);
    kube_store_free(store);
}

static void test_relist_abort(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    kube_store_relist_begin(store);
    put(store, "a", "u1", 5);
    put(store, "b", "u2", 6);
    kube_store_relist_finish(store, 10);
    kube_store_relist_begin(store);
    put(store, "a", "u1", 5);
    kube_store_relist_abort(store);
    assert_int_equal(kube_store_len(store), 2);
    kube_store_relist_finish(store, 100); /* of no list */
    assert_int_equal(kube_store_len(store), 2);
    /* what the broken list had does not count for the next one */
    kube_store_relist_begin(store);
    put(store, "b", "u2", 6);
    kube_store_relist_finish(store, 20);
    assert_int_equal(version_of(store, "a"), 0);
    assert_int_equal(version_of(store, "b"), 6);
    kube_store_free(store);
}

/* A restored server: its revisions ran on past ours, but the objects of the list are older than what we hold. */
static void test_list_corrects_another_history(void **state)
{
    (void)state;
    auto_str struct str log = {0};
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    int volumes = kube_store_add_index(store, by_volume);
    auto_unref struct kube_object *newer = claim("a", "u1", 50, "pv-new");
    auto_unref struct kube_object *restored = claim("a", "u1", 30, "pv-old");
    kube_store_put(store, newer);
    put(store, "lost", "u2", 51);
    kube_store_remove(store, "n", "back", "u3", 52);
    kube_store_listen(store, record, &log);
    kube_store_relist_begin(store);
    assert_false(kube_store_put(store, restored));
    assert_false(put(store, "back", "u3", 20));
    assert_string_equal(str_text(&log), "");
    kube_store_relist_finish(store, 60);
    assert_string_equal(str_text(&log), "a@50>30 +back@20 -lost@51 ");
    assert_int_equal(kube_store_count(store, volumes, "pv-old"), 1);
    assert_int_equal(kube_store_count(store, volumes, "pv-new"), 0);
    kube_store_free(store);
}

static void test_list_is_behind_our_own_writes(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    put(store, "a", "u1", 10);
    kube_store_relist_begin(store);
    /* taken at 20; meanwhile one is changed, one created and one deleted at later versions */
    put_reply(store, "a", "u1", 25);
    put_reply(store, "b", "u2", 26);
    kube_store_remove(store, "n", "c", "u3", 27);
    assert_false(put(store, "a", "u1", 10));
    assert_false(put(store, "c", "u3", 11));
    kube_store_relist_finish(store, 20);
    assert_int_equal(version_of(store, "a"), 25);
    assert_int_equal(version_of(store, "b"), 26);
    assert_int_equal(version_of(store, "c"), 0);
    kube_store_free(store);
}

static void test_list_of_a_reset_history(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    kube_store_relist_begin(store);
    put(store, "a", "u1", 100);
    put(store, "b", "u2", 101);
    kube_store_relist_finish(store, 110);
    kube_store_remove(store, "n", "b", "u2", 111);
    kube_store_relist_begin(store);
    put(store, "a", "u1", 7);
    put(store, "b", "u2", 8);
    put_reply(store, "ours", "u4", 120); /* of the other history */
    kube_store_relist_finish_reset(store, 9);
    assert_int_equal(version_of(store, "a"), 7);
    assert_int_equal(version_of(store, "b"), 8);
    assert_int_equal(kube_store_len(store), 2);
    assert_true(put(store, "new", "u3", 10));
    assert_true(put(store, "a", "u1", 11));
    kube_store_remove(store, "n", "b", "u2", 12);
    assert_false(put_reply(store, "b", "u2", 11));
    kube_store_free(store);
}

/* ---- a server with a history, a watch that lags and breaks, and replies that come whenever they like ---- */

#define SIM_NAMES 12
#define SIM_EVENTS 600
struct sim_version {
    int name;
    int life; /* which object of that name: the uid */
    uint64_t version;
    bool deleted;
};
struct sim {
    struct rng *rng;
    struct kube_store *store;
    struct sim_version now[SIM_NAMES]; /* version 0: not there */
    struct sim_version events[SIM_EVENTS];
    size_t event_count, watched;
    struct sim_version replies[SIM_EVENTS];
    size_t reply_count;
    int lives;
};

static struct kube_object *sim_object(const struct sim_version *version)
{
    char name[16];
    char uid[16];
    snprintf(name, sizeof(name), "c%d", version->name);
    snprintf(uid, sizeof(uid), "u%d", version->life);
    return claim(name, uid, version->version, "");
}

/* One write on the server; the reply to it may come later, or never. */
static void sim_write(struct sim *sim)
{
    if (sim->event_count == SIM_EVENTS)
        return;
    struct sim_version *now = &sim->now[rng_below(sim->rng, SIM_NAMES)];
    struct sim_version event = *now;
    event.name = (int)(now - sim->now);
    event.version = sim->event_count + 1;
    event.deleted = now->version != 0 && rng_below(sim->rng, 3) == 0;
    if (now->version == 0)
        event.life = ++sim->lives;
    *now = event;
    if (event.deleted)
        now->version = 0;
    sim->events[sim->event_count++] = event;
    if (!event.deleted && rng_below(sim->rng, 2) == 0)
        sim->replies[sim->reply_count++] = event;
}

static void sim_watch(struct sim *sim)
{
    if (sim->watched == sim->event_count)
        return;
    const struct sim_version *event = &sim->events[sim->watched++];
    auto_unref struct kube_object *object = sim_object(event);
    if (event->deleted)
        kube_store_remove(sim->store, "n", object->meta.name, object->meta.uid, event->version);
    else
        kube_store_put(sim->store, object);
}

static void sim_reply(struct sim *sim)
{
    if (sim->reply_count == 0)
        return;
    size_t i = rng_below(sim->rng, sim->reply_count);
    auto_unref struct kube_object *object = sim_object(&sim->replies[i]);
    sim->replies[i] = sim->replies[--sim->reply_count];
    kube_store_put_reply(sim->store, object);
}

/* The watch broke; the list is a snapshot, while the world goes on. */
static void sim_relist(struct sim *sim)
{
    struct sim_version snapshot[SIM_NAMES];
    memcpy(snapshot, sim->now, sizeof(snapshot));
    size_t at = sim->event_count;
    bool breaks = rng_below(sim->rng, 5) == 0;
    kube_store_relist_begin(sim->store);
    for (size_t i = 0; i < SIM_NAMES; i++) {
        if (rng_below(sim->rng, 3) == 0)
            sim_write(sim);
        if (rng_below(sim->rng, 2) == 0)
            sim_reply(sim);
        if (snapshot[i].version == 0)
            continue;
        auto_unref struct kube_object *object = sim_object(&snapshot[i]);
        kube_store_put(sim->store, object);
        if (breaks && i == SIM_NAMES / 2) {
            kube_store_relist_abort(sim->store);
            return;
        }
    }
    kube_store_relist_finish(sim->store, at);
    sim->watched = at;
}

static void sim_check(struct sim *sim, uint64_t seed)
{
    size_t len = 0;
    for (int i = 0; i < SIM_NAMES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        auto_unref struct kube_object *object = kube_store_get(sim->store, "n", name);
        uint64_t have = object != NULL ? object->meta.resource_version : 0;
        if (have != sim->now[i].version)
            fail_msg("seed %llu: %s is at %llu here and at %llu on the server", (unsigned long long)seed, name,
                     (unsigned long long)have, (unsigned long long)sim->now[i].version);
        len += have != 0 ? 1 : 0;
    }
    assert_int_equal(kube_store_len(sim->store), len);
}

static void test_ends_equal_to_the_server(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct sim *sim = mem_new(struct sim);
        sim->rng = rng_seeded_new(seed);
        sim->store = kube_store_new(&kube_kind_claim);
        while (sim->event_count < SIM_EVENTS) {
            uint64_t dice = rng_below(sim->rng, 100);
            if (dice < 40)
                sim_write(sim);
            else if (dice < 75)
                sim_watch(sim);
            else if (dice < 97)
                sim_reply(sim);
            else
                sim_relist(sim);
        }
        while (sim->watched < sim->event_count || sim->reply_count > 0) {
            sim_watch(sim);
            sim_reply(sim);
        }
        sim_check(sim, seed);
        kube_store_free(sim->store);
        rng_free(sim->rng);
        free(sim);
    }
}

static void test_index(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    int volumes = kube_store_add_index(store, by_volume);
    int letters = kube_store_add_index(store, by_letters);
    auto_unref struct kube_object *a1 = claim("aa", "u1", 1, "pv-1");
    auto_unref struct kube_object *a2 = claim("aa", "u1", 2, "pv-2");
    auto_unref struct kube_object *ab = claim("ab", "u2", 3, "pv-2");
    auto_unref struct kube_object *unbound = claim("c", "u3", 4, "");
    kube_store_put(store, a1);
    kube_store_put(store, ab);
    kube_store_put(store, unbound);
    assert_int_equal(kube_store_count(store, volumes, "pv-1"), 1);
    assert_int_equal(kube_store_count(store, volumes, "pv-2"), 1);
    assert_int_equal(kube_store_count(store, volumes, ""), 0);
    assert_int_equal(kube_store_count(store, letters, "a"), 2);
    assert_int_equal(kube_store_count(store, letters, "b"), 1);
    kube_store_put(store, a2);
    assert_int_equal(kube_store_count(store, volumes, "pv-1"), 0);
    assert_int_equal(kube_store_count(store, volumes, "pv-2"), 2);
    struct kube_object_list found auto_objects = {0};
    kube_store_find(store, letters, "a", &found);
    assert_int_equal(found.len, 2);
    assert_true((found.items[0] == a2 && found.items[1] == ab) || (found.items[0] == ab && found.items[1] == a2));
    kube_store_remove(store, "n", "ab", "u2", 9);
    assert_int_equal(kube_store_count(store, volumes, "pv-2"), 1);
    assert_int_equal(kube_store_count(store, letters, "b"), 0);
    kube_store_find(store, letters, "no such", &found);
    kube_store_find(store, 17, "a", &found);
    kube_store_find(store, -1, "a", &found);
    assert_int_equal(found.len, 2);
    assert_int_equal(kube_store_count(store, 17, "a"), 0);
    kube_store_free(store);
}

static bool count_up_to(void *arg, const struct kube_object *object)
{
    (void)object;
    int *left = arg;
    return --*left > 0;
}

static void test_list_and_each(void **state)
{
    (void)state;
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    put(store, "a", "u1", 1);
    put(store, "b", "u2", 2);
    put(store, "c", "u3", 3);
    struct kube_object_list list auto_objects = {0};
    kube_store_list(store, &list);
    assert_int_equal(list.len, 3);
    int left = 100;
    kube_store_each(store, count_up_to, &left);
    assert_int_equal(left, 97);
    left = 2;
    kube_store_each(store, count_up_to, &left);
    assert_int_equal(left, 0);
    kube_store_free(store);
}

/* Against a plain array: random puts, removals and lists, with the index checked against it. */
#define MODEL_NAMES 300
static void test_random_against_model(void **state)
{
    (void)state;
    struct rng *rng = rng_seeded_new(7);
    struct kube_store *store = kube_store_new(&kube_kind_claim);
    int volumes = kube_store_add_index(store, by_volume);
    struct {
        uint64_t version;
        int volume;
    } model[MODEL_NAMES] = {0};
    uint64_t version = 1;
    for (int round = 0; round < 20000; round++) {
        size_t i = rng_below(rng, MODEL_NAMES);
        char name[16];
        snprintf(name, sizeof(name), "c%zu", i);
        if (rng_below(rng, 3) > 0) {
            int volume = (int)rng_below(rng, 5);
            char volume_name[16];
            snprintf(volume_name, sizeof(volume_name), "v%d", volume);
            uint64_t with = rng_below(rng, 4) == 0 && model[i].version > 1 ? model[i].version - 1 : ++version;
            char uid[32]; /* a new one for each life, so that the graves do not matter */
            snprintf(uid, sizeof(uid), "u%llu", (unsigned long long)with);
            auto_unref struct kube_object *object = claim(name, uid, with, volume_name);
            bool taken = kube_store_put(store, object);
            assert_int_equal(taken, model[i].version <= with);
            if (taken) {
                model[i].version = with;
                model[i].volume = volume;
            }
        } else {
            kube_store_remove(store, "n", name, "", ++version);
            model[i].version = 0;
        }
        if (round % 500 != 0)
            continue;
        size_t len = 0;
        size_t per_volume[5] = {0};
        for (size_t j = 0; j < MODEL_NAMES; j++) {
            snprintf(name, sizeof(name), "c%zu", j);
            assert_int_equal(version_of(store, name), model[j].version);
            len += model[j].version != 0 ? 1 : 0;
            if (model[j].version != 0)
                per_volume[model[j].volume]++;
        }
        assert_int_equal(kube_store_len(store), len);
        for (int v = 0; v < 5; v++) {
            snprintf(name, sizeof(name), "v%d", v);
            assert_int_equal(kube_store_count(store, volumes, name), per_volume[v]);
        }
    }
    kube_store_free(store);
    rng_free(rng);
}

struct threads {
    struct kube_store *store;
    int index;
    atomic_ullong version;
    atomic_bool done;
    uint64_t last[8]; /* written below the store's lock only */
    atomic_int backwards;
};

static void check_order(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct threads *threads = arg;
    if (old != NULL && new_ != NULL && new_->meta.resource_version < old->meta.resource_version)
        threads->backwards++;
    const struct kube_object *object = new_ != NULL ? new_ : old;
    if (object != NULL)
        threads->last[(unsigned char)object->meta.name[0] % 8]++;
}

static void *write_objects(void *arg)
{
    struct threads *threads = arg;
    char name[] = "a";
    for (int i = 0; i < 1500; i++) {
        name[0] = (char)('a' + i % 8);
        uint64_t version = atomic_fetch_add(&threads->version, 1) + 1;
        auto_unref struct kube_object *object = claim(name, "u", version, i % 2 == 0 ? "even" : "odd");
        if (i % 3 == 0)
            kube_store_put_reply(threads->store, object);
        else
            kube_store_put(threads->store, object);
        if (i % 10 == 9)
            kube_store_remove(threads->store, "n", name, "u", version);
    }
    return NULL;
}

static void *read_objects(void *arg)
{
    struct threads *threads = arg;
    while (!atomic_load(&threads->done)) {
        struct kube_object_list list auto_objects = {0};
        kube_store_list(threads->store, &list);
        kube_store_find(threads->store, threads->index, "even", &list);
        for (size_t i = 0; i < list.len; i++)
            assert_string_equal(list.items[i]->meta.namespace_, "n");
        auto_unref struct kube_object *one = kube_store_get(threads->store, "n", "c");
        if (one != NULL)
            assert_string_equal(one->meta.name, "c");
    }
    return NULL;
}

static void *relist_objects(void *arg)
{
    struct threads *threads = arg;
    while (!atomic_load(&threads->done)) {
        kube_store_relist_begin(threads->store);
        kube_store_relist_abort(threads->store);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct threads threads = {.store = kube_store_new(&kube_kind_claim)};
    threads.index = kube_store_add_index(threads.store, by_volume);
    kube_store_listen(threads.store, check_order, &threads);
    pthread_t writers[3];
    pthread_t readers[2];
    pthread_t lister;
    for (size_t i = 0; i < ARRAY_LEN(writers); i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_objects, &threads), 0);
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_objects, &threads), 0);
    assert_int_equal(pthread_create(&lister, NULL, relist_objects, &threads), 0);
    for (size_t i = 0; i < ARRAY_LEN(writers); i++)
        pthread_join(writers[i], NULL);
    atomic_store(&threads.done, true);
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        pthread_join(readers[i], NULL);
    pthread_join(lister, NULL);
    assert_int_equal(threads.backwards, 0);
    size_t indexed =
        kube_store_count(threads.store, threads.index, "even") + kube_store_count(threads.store, threads.index, "odd");
    assert_int_equal(indexed, kube_store_len(threads.store));
    kube_store_free(threads.store);
}

static void by_class(const struct kube_object *object, struct strv *keys)
{
    strv_add(keys, kube_volume_class((const struct kube_volume *)object));
}

static void by_claim(const struct kube_object *object, struct strv *keys)
{
    const struct kube_reference *reference = ((const struct kube_volume *)object)->claim_ref;
    strv_add_take(keys, mem_printf("%s/%s", reference->namespace_, reference->name));
}

/* 10,000 volumes of a CSI driver, with two indexes, in what a small edge node can spare. */
static void test_memory_of_a_large_cluster(void **state)
{
    (void)state;
    size_t before = mallinfo2().uordblks;
    struct kube_store *store = kube_store_new(&kube_kind_volume);
    int classes = kube_store_add_index(store, by_class);
    kube_store_add_index(store, by_claim);
    for (int i = 0; i < 10000; i++) {
        auto_free char *text = mem_printf(
            "{'metadata':{'name':'pvc-0c7ac7a0-8dd4-4d35-8b16-%012d','uid':'b0a5a2b6-0f25-4b64-9f8e-%012d',"
            "'resourceVersion':'%d','annotations':{'pv.kubernetes.io/provisioned-by':'hostpath.csi.example.org',"
            "'volume.kubernetes.io/provisioner-deletion-secret-name':'',"
            "'volume.kubernetes.io/provisioner-deletion-secret-namespace':''},'finalizers':["
            "'external-provisioner.volume.kubernetes.io/finalizer','kubernetes.io/pv-protection']},'spec':{'capacity':{"
            "'storage':'10Gi'},'csi':{'driver':'hostpath.csi.example.org','volumeHandle':"
            "'pvc-0c7ac7a0-8dd4-4d35-8b16-%012d','volumeAttributes':{'storage.kubernetes.io/csiProvisionerIdentity':"
            "'1714557600000-8081-hostpath.csi.example.org'}},'accessModes':['ReadWriteOnce'],'claimRef':{'kind':"
            "'PersistentVolumeClaim','namespace':'default','name':'data-web-%d','uid':"
            "'0c7ac7a0-8dd4-4d35-8b16-%012d','apiVersion':'v1','resourceVersion':'48190'},"
            "'persistentVolumeReclaimPolicy':'Delete','storageClassName':'fast','volumeMode':'Filesystem'},'status':{"
            "'phase':'Bound'}}",
            i, i, i + 1, i, i, i);
        auto_unref struct kube_object *volume = object_of_text(&kube_kind_volume, text);
        assert_true(kube_store_put(store, volume));
    }
    size_t used = mallinfo2().uordblks - before;
    print_message("10000 volumes and two indexes: %zu bytes\n", used);
    if (used > 0) /* sanitizers have their own allocator, which does not count here */
        assert_in_range(used, 1, 10 << 20);
    assert_int_equal(kube_store_count(store, classes, "fast"), 10000);
    for (int i = 9999; i >= 0; i--) {
        auto_free char *name = mem_printf("pvc-0c7ac7a0-8dd4-4d35-8b16-%012d", i);
        kube_store_remove(store, NULL, name, "", 20000);
    }
    assert_int_equal(kube_store_len(store), 0);
    assert_int_equal(kube_store_count(store, classes, "fast"), 0);
    kube_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_and_get),
        cmocka_unit_test(test_cluster_scoped),
        cmocka_unit_test(test_never_goes_back),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_late_reply_does_not_raise_the_dead),
        cmocka_unit_test(test_replaced_under_the_same_name),
        cmocka_unit_test(test_many_deletions),
        cmocka_unit_test(test_relist),
        cmocka_unit_test(test_reply_during_relist_is_no_item),
        cmocka_unit_test(test_relist_abort),
        cmocka_unit_test(test_list_corrects_another_history),
        cmocka_unit_test(test_list_is_behind_our_own_writes),
        cmocka_unit_test(test_list_of_a_reset_history),
        cmocka_unit_test(test_ends_equal_to_the_server),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_list_and_each),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory_of_a_large_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
