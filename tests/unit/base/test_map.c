/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/map.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int freed;

static void count_free(void *value)
{
    freed++;
    free(value);
}

static void test_values_are_owned(void **state)
{
    (void)state;
    freed = 0;
    struct map *map = map_new(count_free);
    assert_null(map_get(map, "a"));
    assert_false(map_remove(map, "a"));
    map_set(map, "a", mem_strdup("1"));
    map_set(map, "a", mem_strdup("2"));
    assert_int_equal(freed, 1);
    assert_string_equal(map_get(map, "a"), "2");
    map_set(map, "a", map_get(map, "a")); /* the same value again is no replacement */
    assert_int_equal(freed, 1);
    assert_int_equal(map_len(map), 1);
    char *taken = map_take(map, "a");
    assert_string_equal(taken, "2");
    free(taken);
    assert_int_equal(freed, 1);
    assert_false(map_has(map, "a"));
    map_set(map, "b", NULL);
    assert_true(map_has(map, "b"));
    assert_null(map_get(map, "b"));
    map_set(map, "c", mem_strdup("3"));
    assert_true(map_remove(map, "c"));
    assert_int_equal(freed, 2);
    map_set(map, "d", mem_strdup("4"));
    map_free(map);
    assert_int_equal(freed, 3);
    map_free(NULL);
}

static void test_key_is_copied(void **state)
{
    (void)state;
    auto_map struct map *map = map_new(NULL);
    char key[] = "key";
    map_set(map, key, key);
    key[0] = 'x';
    assert_true(map_has(map, "key"));
    assert_false(map_has(map, "xey"));
    assert_false(map_has(map, NULL));
}

/* Random operations against the plainest possible model. */
static void test_against_a_model(void **state)
{
    (void)state;
    enum { KEYS = 300 };
    uintptr_t model[KEYS] = {0};
    auto_map struct map *map = map_new(NULL);
    unsigned seed = 12345;
    for (uintptr_t step = 1; step < 200000; step++) {
        seed = seed * 1103515245U + 12345U;
        unsigned n = (seed >> 8) % KEYS;
        char key[32];
        snprintf(key, sizeof(key), "namespace/name-%u", n);
        if ((seed >> 24) % 3 == 0) {
            assert_int_equal(map_remove(map, key), model[n] != 0);
            model[n] = 0;
        } else {
            map_set(map, key, (void *)step);
            model[n] = step;
        }
        if (step % 997 != 0)
            continue;
        size_t alive = 0;
        for (unsigned i = 0; i < KEYS; i++) {
            snprintf(key, sizeof(key), "namespace/name-%u", i);
            assert_true(map_get(map, key) == (void *)model[i]);
            alive += model[i] != 0;
        }
        assert_int_equal(map_len(map), alive);
    }
}

static void test_remove_while_iterating(void **state)
{
    (void)state;
    auto_map struct map *map = map_new(free);
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        map_set(map, key, mem_strdup(key));
    }
    int seen = 0;
    for (struct map_iter it = {0}; map_next(map, &it); seen++) {
        assert_string_equal(it.key, it.value);
        if (strtol(it.key, NULL, 10) % 2 == 0)
            assert_true(map_remove(map, it.key));
    }
    assert_int_equal(seen, 1000);
    assert_int_equal(map_len(map), 500);
    for (struct map_iter it = {0}; map_next(map, &it);)
        assert_int_equal(strtol(it.key, NULL, 10) % 2, 1);
    map_clear(map);
    assert_int_equal(map_len(map), 0);
    for (struct map_iter it = {0}; map_next(map, &it);)
        fail();
    map_set(map, "again", mem_strdup("x"));
    assert_string_equal(map_get(map, "again"), "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_owned),
        cmocka_unit_test(test_key_is_copied),
        cmocka_unit_test(test_against_a_model),
        cmocka_unit_test(test_remove_while_iterating),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
