/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/holder_client.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

static int64_t call_in_vain(struct holder_client *client, int64_t timeout)
{
    struct holder_entry entry;
    auto_err struct err err = {0};
    const int64_t start = clock_mono(clock_real());
    assert_int_equal(holder_find_mount(client, "some-volume", &entry, timeout, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    return clock_mono(clock_real()) - start;
}

/* A driver with a hundred volumes must not wait a hundred times for a holder that is away. */
static void test_one_call_waits_for_a_holder_that_is_away(void **arg)
{
    (void)arg;
    char directory[] = "/tmp/berth-holder-client-XXXXXX";
    assert_non_null(mkdtemp(directory));
    auto_free char *socket = mem_printf("%s/socket", directory);
    struct holder_client *client = holder_client_new(&(struct holder_client_options){.socket = socket});
    assert_true(call_in_vain(client, 1200 * CLOCK_MS) > CLOCK_SECOND);
    const int64_t start = clock_mono(clock_real());
    for (int i = 0; i < 100; i++)
        call_in_vain(client, 1200 * CLOCK_MS);
    assert_true(clock_mono(clock_real()) - start < CLOCK_SECOND);
    holder_client_free(client);
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_call_waits_for_a_holder_that_is_away)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
