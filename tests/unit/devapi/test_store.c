/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/selector.h"
#include "tests/devapi/store.h"
#include "tests/devapi/tree.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
/* cmocka needs the above first */
#include <cmocka.h>

static const struct kind *maps(void)
{
    return kind_by_name("ConfigMap", "");
}

static struct version *put(struct store *store, const char *name, const char *label)
{
    auto_json json_t *object = json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s}}}", "kind", "ConfigMap", "apiVersion", "v1",
                                         "metadata", "name", name, "uid", name, "labels", "l", label);
    auto_free char *key = mem_printf("default/%s", name);
    return store_put(store, maps(), key, object);
}

static void drop(struct store *store, const char *name)
{
    auto_free char *key = mem_printf("default/%s", name);
    auto_json json_t *object = version_parse(store_get(store, maps(), key));
    assert_non_null(store_remove(store, maps(), key, object));
}

/* "a=1 b=2": names and labels of a snapshot */
static char *show(struct store *store, uint64_t version)
{
    struct store_snapshot snapshot;
    struct str text = {0};
    assert_int_equal(store_snapshot(store, maps(), version, &snapshot), 0);
    for (size_t i = 0; i < snapshot.count; i++)
        str_addf(&text, "%s%s=%s", i > 0 ? " " : "", snapshot.items[i]->name, snapshot.items[i]->labels[1]);
    store_snapshot_free(&snapshot);
    return str_take(&text);
}

static void assert_shows(struct store *store, uint64_t version, const char *want)
{
    auto_free char *got = show(store, version);
    assert_string_equal(got, want);
}

static void test_order_and_removal(void **state)
{
    (void)state;
    struct rng *rng = rng_seeded_new(1);
    struct store *store = store_new(100, clock_real(), rng);
    char name[16];
    for (int i = 0; i < 500; i++) {
        (void)snprintf(name, sizeof(name), "n%03d", (i * 7) % 500);
        put(store, name, "x");
    }
    for (int i = 0; i < 500; i += 2) {
        (void)snprintf(name, sizeof(name), "n%03d", i);
        drop(store, name);
    }
    int expect = 1;
    for (struct store_item *item = store_seek(store, maps(), ""); item != NULL; item = store_next(item), expect += 2) {
        (void)snprintf(name, sizeof(name), "n%03d", expect);
        assert_string_equal(store_item_version(item)->name, name);
    }
    assert_int_equal(expect, 501);
    assert_int_equal(store_count(store, maps()), 250);
    assert_null(store_get(store, maps(), "default/n000"));
    assert_string_equal(store_item_version(store_seek(store, maps(), "default/n100"))->name, "n101");
    store_free(store);
    rng_free(rng);
}

static void test_snapshots(void **state)
{
    (void)state;
    struct store *store = store_new(100, clock_real(), rng_real());
    put(store, "a", "1");
    uint64_t first = put(store, "b", "1")->resource_version;
    put(store, "a", "2");
    uint64_t second = put(store, "c", "1")->resource_version;
    drop(store, "b");
    put(store, "b", "9");
    put(store, "a", "3");
    assert_shows(store, first, "a=1 b=1");
    assert_shows(store, second, "a=2 b=1 c=1");
    assert_shows(store, store_version(store), "a=3 b=9 c=1");
    store_compact(store);
    struct store_snapshot snapshot;
    assert_int_equal(store_snapshot(store, maps(), second, &snapshot), -1);
    assert_shows(store, store_version(store), "a=3 b=9 c=1");
    store_free(store);
}

static void test_log(void **state)
{
    (void)state;
    struct store *store = store_new(4, clock_real(), rng_real());
    uint64_t start = store_version(store), number;
    put(store, "a", "1");
    put(store, "a", "2");
    drop(store, "a");
    assert_int_equal(store_log_after(store, maps(), start, &number), 0);
    static const enum event_type types[] = {EVENT_ADDED, EVENT_MODIFIED, EVENT_DELETED};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        assert_int_equal(store_log_event(store, maps(), number + i)->type, types[i]);
    assert_null(store_log_event(store, maps(), number + 3));
    /* the deletion has a version of its own */
    assert_true(store_log_event(store, maps(), number + 2)->now->resource_version >
                store_log_event(store, maps(), number + 2)->old->resource_version);
    put(store, "b", "1");
    put(store, "c", "1"); /* the ring holds four: the first event goes */
    assert_int_equal(store_log_after(store, maps(), start, &number), -1);
    assert_int_equal(store_log_after(store, maps(), start + 1, &number), 0);
    assert_null(store_log_event(store, maps(), 0));
    store_free(store);
}

static void test_selectors(void **state)
{
    (void)state;
    static const struct {
        const char *labels, *fields;
        bool match;
    } cases[] = {
        {"l=1", NULL, true},
        {"l==1", NULL, true},
        {"l!=1", NULL, false},
        {"l in (0, 1)", NULL, true},
        {"l notin (1)", NULL, false},
        {"l", NULL, true},
        {"!l", NULL, false},
        {"!x", NULL, true},
        {"x!=1", NULL, true},
        {"x notin (1)", NULL, true},
        {"x=1", NULL, false},
        {"l>0", NULL, true},
        {"l<1", NULL, false},
        {"l=1,x=1", NULL, false},
        {"l=1, !x", NULL, true},
        {"l=", NULL, false},
        {NULL, "metadata.name=a", true},
        {NULL, "metadata.name!=a", false},
        {NULL, "metadata.namespace==default", true},
        {"l=1", "metadata.name=b", false},
        {"", "", true},
    };
    struct store *store = store_new(4, clock_real(), rng_real());
    struct version *version = put(store, "a", "1");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        struct selector *selector;
        if (selector_parse(maps(), cases[i].labels, cases[i].fields, &selector, &err) != 0)
            fail_msg("%s %s: %s", cases[i].labels, cases[i].fields, err_text(&err));
        if (selector_match(selector, version) != cases[i].match)
            fail_msg("%s %s", cases[i].labels ? cases[i].labels : "", cases[i].fields ? cases[i].fields : "");
        selector_free(selector);
    }
    static const char *const bad[] = {"a in (b", "a in b", "=b", "a b", "a=b,,", "a notin"};
    struct selector *selector;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (selector_parse(maps(), bad[i], NULL, &selector, NULL) == 0)
            fail_msg("\"%s\" was accepted", bad[i]);
    assert_int_equal(selector_parse(maps(), NULL, "spec.nope=1", &selector, NULL), -1);
    store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_removal),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_selectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
