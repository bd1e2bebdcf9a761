/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/clock.h"

#include <ctype.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_seeded_series_repeats(void **state)
{
    (void)state;
    struct rng *a = rng_seeded_new(7);
    struct rng *b = rng_seeded_new(7);
    struct rng *c = rng_seeded_new(8);
    int same_as_c = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t value = rng_u64(a);
        assert_true(value == rng_u64(b));
        same_as_c += value == rng_u64(c);
    }
    assert_int_equal(same_as_c, 0);
    rng_free(a);
    rng_free(b);
    rng_free(c);
    rng_free(NULL);
    rng_free(rng_real());
    assert_true(rng_u64(rng_real()) != rng_u64(rng_real()));
}

static void test_below_is_uniform(void **state)
{
    (void)state;
    struct rng *rng = rng_seeded_new(1);
    int counts[6] = {0};
    for (int i = 0; i < 60000; i++) {
        uint64_t value = rng_below(rng, 6);
        assert_true(value < 6);
        counts[value]++;
    }
    for (int i = 0; i < 6; i++)
        assert_in_range(counts[i], 9500, 10500);
    assert_int_equal(rng_below(rng, 1), 0);
    assert_int_equal(rng_below(rng, 0), 0);
    /* more than half of the raw values would have to be folded: all must stay in range */
    uint64_t limit = (1ULL << 63) + 1;
    for (int i = 0; i < 1000; i++)
        assert_true(rng_below(rng, limit) < limit);
    rng_free(rng);
}

static void test_unit_and_jitter(void **state)
{
    (void)state;
    struct rng *rng = rng_seeded_new(2);
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        double unit = rng_unit(rng);
        assert_true(unit >= 0 && unit < 1);
        sum += unit;
        int64_t jitter = rng_jitter(rng, 10 * CLOCK_SECOND, 0.5);
        assert_true(jitter >= 10 * CLOCK_SECOND && jitter <= 15 * CLOCK_SECOND);
    }
    assert_true(sum > 4800 && sum < 5200);
    assert_int_equal(rng_jitter(rng, 7, 0), 7);
    assert_int_equal(rng_jitter(rng, 7, -1), 7);
    assert_true(rng_jitter(rng, INT64_MAX, 1) == INT64_MAX);
    rng_free(rng);
}

static void test_uuid(void **state)
{
    (void)state;
    struct rng *rng = rng_seeded_new(3);
    char last[RNG_UUID_SIZE] = "";
    for (int i = 0; i < 1000; i++) {
        char uuid[RNG_UUID_SIZE];
        rng_uuid(rng, uuid);
        assert_int_equal(strlen(uuid), 36);
        for (int j = 0; j < 36; j++) {
            if (j == 8 || j == 13 || j == 18 || j == 23)
                assert_int_equal(uuid[j], '-');
            else
                assert_true(isdigit((unsigned char)uuid[j]) || (uuid[j] >= 'a' && uuid[j] <= 'f'));
        }
        assert_int_equal(uuid[14], '4');
        assert_non_null(strchr("89ab", uuid[19]));
        assert_string_not_equal(uuid, last);
        memcpy(last, uuid, sizeof(last));
    }
    rng_free(rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeded_series_repeats),
        cmocka_unit_test(test_below_is_uniform),
        cmocka_unit_test(test_unit_and_jitter),
        cmocka_unit_test(test_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
