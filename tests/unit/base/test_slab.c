/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/base/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

#define BLOCKS 5000

struct block {
    unsigned char *data;
    size_t size;
    unsigned char mark;
};

static void fill(struct block *block, struct rng *rng)
{
    block->size = 1 + rng_below(rng, 2 * SLAB_MAX);
    block->mark = (unsigned char)rng_below(rng, 256);
    block->data = slab_alloc(block->size);
    for (size_t i = 0; i < block->size; i++)
        assert_int_equal(block->data[i], 0);
    assert_int_equal((uintptr_t)block->data % 16, 0);
    memset(block->data, block->mark, block->size);
}

static void check_and_free(struct block *block)
{
    for (size_t i = 0; i < block->size; i++)
        assert_int_equal(block->data[i], block->mark);
    slab_free(block->data, block->size);
    block->data = NULL;
}

/* Blocks of all sizes come and go in random order; nobody else's bytes are ever in them. */
static void churn(uint64_t seed)
{
    struct rng *rng = rng_seeded_new(seed);
    struct block *blocks = mem_calloc(BLOCKS, sizeof(*blocks));
    for (int round = 0; round < 4 * BLOCKS; round++) {
        struct block *block = &blocks[rng_below(rng, BLOCKS)];
        if (block->data != NULL)
            check_and_free(block);
        else
            fill(block, rng);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i].data != NULL)
            check_and_free(&blocks[i]);
    free(blocks);
    rng_free(rng);
}

static void test_blocks_do_not_overlap(void **state)
{
    (void)state;
    churn(1);
}

static void *churn_thread(void *arg)
{
    churn((uintptr_t)arg);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (uintptr_t i = 0; i < ARRAY_LEN(threads); i++)
        threads[i] = thread_start("churn", churn_thread, (void *)(i + 2));
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        thread_join(threads[i]);
}

static void test_edges(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 63, 64, 65, SLAB_MAX - 1, SLAB_MAX, SLAB_MAX + 1};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        void *a = slab_alloc(sizes[i]), *b = slab_alloc(sizes[i]);
        assert_ptr_not_equal(a, b);
        slab_free(a, sizes[i]);
        slab_free(b, sizes[i]);
    }
    slab_free(NULL, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_do_not_overlap),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
