/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/account.h"

#include "lib/base/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void limits_are_kept(void **state)
{
    struct account account;
    (void)state;
    account_init(&account, 10000, 0, 4096, 1);
    assert_true(account_reserve(&account, 5904));
    assert_false(account_reserve(&account, 1));
    assert_true(account_reserve(&account, 0));
    assert_int_equal(account_room(&account), 0);
    account_settle(&account, 5904, 904);
    assert_int_equal(account_room(&account), 5000);
    account_settle(&account, 0, -5000);
    assert_int_equal(account_figures(&account).used, 0);
    assert_false(account_reserve(&account, 10001));
    assert_false(account_reserve(&account, INT64_MAX));
    assert_int_equal(account_figures(&account).used, 0);
    account_destroy(&account);
}

static void limit_moves(void **state)
{
    struct account account;
    (void)state;
    account_init(&account, 10000, 0, 8000, 0);
    account_set_limit(&account, 4000, 0);
    assert_int_equal(account_room(&account), -4000);
    assert_false(account_reserve(&account, 1));
    assert_true(account_reserve(&account, 0)); /* what takes nothing goes on */
    account_set_limit(&account, 9000, 0);
    assert_true(account_reserve(&account, 1000));
    assert_false(account_reserve(&account, 1));
    account_destroy(&account);
}

static void inodes(void **state)
{
    struct account account;
    (void)state;
    assert_int_equal(account_default_inodes(1), 1024);
    assert_int_equal(account_default_inodes((int64_t)1 << 40), (int64_t)1 << 28);
    account_init(&account, 1 << 20, 2, 0, 0);
    assert_true(account_reserve_inode(&account));
    assert_true(account_reserve_inode(&account));
    assert_false(account_reserve_inode(&account));
    account_release_inode(&account);
    assert_true(account_reserve_inode(&account));
    account_set_limit(&account, (int64_t)1 << 30, 0); /* by the limit again */
    assert_int_equal(account_figures(&account).inode_limit, 1 << 18);
    account_destroy(&account);
}

static void bounds(void **state)
{
    (void)state;
    assert_int_equal(account_bound(0, 0), 0);
    assert_int_equal(account_bound(5, -1), 0);
    assert_int_equal(account_bound(0, 1), 4096);
    assert_int_equal(account_bound(4095, 1), 4096);
    assert_int_equal(account_bound(4095, 2), 8192);
    assert_int_equal(account_bound(4096, 4096), 4096);
    assert_int_equal(account_bound(1, 8192), 12288);
    assert_int_equal(account_bound((int64_t)1 << 50, 131072), 131072);
}

static void a_count_is_refused_when_something_changed(void **state)
{
    struct account account;
    (void)state;
    account_init(&account, 1 << 20, 0, 100, 1);
    uint64_t changes = account_changes(&account);
    assert_true(account_correct(&account, changes, 200, 2));
    assert_int_equal(account_figures(&account).used, 200);
    account_enter(&account, false);
    assert_true(account_reserve(&account, 50));
    account_settle(&account, 50, 50);
    account_leave(&account);
    assert_false(account_correct(&account, changes, 300, 3));
    assert_int_equal(account_figures(&account).used, 250);
    changes = account_changes(&account);
    account_settle(&account, 0, 0); /* a write in place changes nothing */
    assert_true(account_correct(&account, changes, 300, 3));
    account_note_change(&account);
    assert_false(account_correct(&account, changes, 400, 4));
    account_destroy(&account);
}

static void whoever_waits_is_told_of_freed_space(void **state)
{
    struct account account;
    struct clock *clock = clock_fake_new(0);
    (void)state;
    account_init(&account, 1000, 0, 1000, 0);
    uint64_t seen = account_freed(&account);
    account_settle(&account, 0, -10);
    assert_true(account_wait_freed(&account, clock, &seen, clock_mono(clock) + CLOCK_SECOND));
    assert_false(account_wait_freed(&account, clock, &seen, clock_mono(clock)));
    account_set_limit(&account, 2000, 0);
    assert_true(account_wait_freed(&account, clock, &seen, clock_mono(clock)));
    account_destroy(&account);
    clock_free(clock);
}

#define THREADS 4
#define ROUNDS 20000
struct together {
    struct account account;
    atomic_int_fast64_t held;
    atomic_bool passed_limit;
};

static void *reserve_and_settle(void *arg)
{
    struct together *together = arg;
    for (int i = 0; i < ROUNDS; i++) {
        account_enter(&together->account, false);
        bool got = account_reserve(&together->account, 700);
        if (got) {
            if (atomic_fetch_add(&together->held, 700) + 700 > 2000)
                atomic_store(&together->passed_limit, true);
            atomic_fetch_sub(&together->held, 700);
            account_settle(&together->account, 700, 0);
        }
        account_leave(&together->account);
    }
    return NULL;
}

static void together_they_never_pass_the_limit(void **state)
{
    struct together together = {0};
    pthread_t threads[THREADS];
    (void)state;
    account_init(&together.account, 2000, 0, 0, 0);
    for (int i = 0; i < THREADS; i++)
        threads[i] = thread_start("reserve", reserve_and_settle, &together);
    for (int i = 0; i < 1000; i++) { /* alone inside the gate there is no reservation */
        account_enter(&together.account, true);
        assert_int_equal(account_figures(&together.account).used, 0);
        account_leave(&together.account);
    }
    for (int i = 0; i < THREADS; i++)
        thread_join(threads[i]);
    assert_false(atomic_load(&together.passed_limit));
    assert_int_equal(account_figures(&together.account).used, 0);
    account_destroy(&together.account);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(limit_moves),
        cmocka_unit_test(inodes),
        cmocka_unit_test(bounds),
        cmocka_unit_test(a_count_is_refused_when_something_changed),
        cmocka_unit_test(whoever_waits_is_told_of_freed_space),
        cmocka_unit_test(together_they_never_pass_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
