/* SPDX-License-Identifier: Apache-2.0 */
/* How often the text of a waiting claim's event may change. */
#include "tests/unit/controller/support.h"

#include "controller/explainer.h"
#include "lib/base/str.h"

#include <stdio.h>

static char *event_text(struct world *world, struct explainer *explainer)
{
    const struct kube_claim *claim = world_claim(world, "c", "{'spec':{'resources':{'requests':{'storage':'1Ti'}}}}");
    struct claim_plan plan;
    claim_decide(&world->view, claim, &plan);
    char *text = explainer_event_text(explainer, claim, &plan);
    claim_plan_clear(&plan);
    return text;
}

static void test_texts_settle(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 36);
    struct clock *clock = clock_fake_new(0);
    struct explainer *explainer = explainer_new(&world.view, NULL, clock);
    char *last = event_text(&world, explainer);
    assert_string_equal(last, "no persistent volumes available for this claim and no storage class is set [there are "
                              "no volumes]");
    int changes = 1;
    for (int second = 0; second < 600; second++) { /* a cluster where something happens every second */
        char name[16];
        snprintf(name, sizeof(name), "v%d", second);
        world_volume(&world, name, NULL);
        char *text = event_text(&world, explainer);
        if (second == 0)
            assert_non_null(strstr(text, "[0/1 volumes fit: 1 smaller than 1Ti (largest 5Gi)]"));
        changes += !str_eq(text, last);
        free(last);
        last = text;
        clock_fake_advance(clock, CLOCK_SECOND);
    }
    free(last);
    assert_in_range(changes, 5, 9);
    explainer_free(explainer);
    clock_free(clock);
    world_clear(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts_settle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
