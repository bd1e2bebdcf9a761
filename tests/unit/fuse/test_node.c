/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/node.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void a_node_goes_with_its_last_use(void **state)
{
    struct node_table table;
    (void)state;
    node_table_init(&table);
    assert_null(node_find(&table, 7));
    struct node *node = node_get(&table, 7);
    assert_ptr_equal(node_get(&table, 7), node);
    assert_ptr_equal(node_find(&table, 7), node);
    node->data_fd = dup(0);
    int fd = node->data_fd;
    node_put(&table, node);
    node_put(&table, node);
    assert_true(is_open(fd));
    node_put(&table, node);
    assert_false(is_open(fd));
    assert_null(node_find(&table, 7));
    node_put(&table, NULL);
    node_table_destroy(&table);
}

static void open_handles_keep_it(void **state)
{
    struct node_table table;
    (void)state;
    node_table_init(&table);
    struct node *node = node_get(&table, 7);
    assert_false(node_is_open(&table, node));
    node_opened(&table, node);
    node_opened(&table, node);
    node_used(&table, node); /* by one of those */
    node_put(&table, node);
    assert_ptr_equal(node_find(&table, 7), node);
    node_released(&table, node);
    assert_true(node_is_open(&table, node));
    node_forgotten(&table, node); /* what was seen opened is counted on */
    assert_true(node_is_open(&table, node));
    node_released(&table, node);
    assert_false(node_is_open(&table, node));
    node_put(&table, node);
    assert_null(node_find(&table, 7));
    node_table_destroy(&table);
}

static void handles_of_a_predecessor(void **state)
{
    struct node_table table;
    (void)state;
    node_table_init(&table);
    struct node *node = node_get(&table, 7);
    node_used(&table, node);
    assert_true(node_is_open(&table, node));
    node_put(&table, node);
    assert_ptr_equal(node_find(&table, 7), node);
    node_released(&table, node);
    assert_false(node_is_open(&table, node));
    node_used(&table, node); /* there was another one */
    assert_true(node_is_open(&table, node));
    node_forgotten(&table, node);
    node_put(&table, node);
    assert_null(node_find(&table, 7));
    node_table_destroy(&table);
}

static void orphans_stay(void **state)
{
    struct node_table table;
    (void)state;
    node_table_init(&table);
    struct node *node = node_get(&table, 7);
    assert_false(node_has_orphans(&table));
    node_set_orphan(&table, node, true);
    node_set_orphan(&table, node, true);
    node_put(&table, node);
    assert_true(node_has_orphans(&table));
    size_t count;
    uint64_t *list = node_list_orphans(&table, &count);
    assert_true(count == 1 && list[0] == 7);
    free(list);
    node = node_find(&table, 7);
    assert_true(node_is_orphan(&table, node));
    node_set_orphan(&table, node, false);
    assert_false(node_has_orphans(&table));
    node_put(&table, node);
    assert_null(node_find(&table, 7));
    node_table_destroy(&table);
}

static void watched_ones_stay(void **state)
{
    struct node_table table;
    size_t count;
    (void)state;
    node_table_init(&table);
    for (uint64_t i = 2; i < NODE_MAX_WATCHED + 12; i++) {
        struct node *node = node_get(&table, i);
        node_watch(&table, node, true);
        node_watch(&table, node, true);
        node_put(&table, node);
    }
    assert_int_equal(table.count, NODE_MAX_WATCHED); /* no more than that */
    struct node **list = node_list_watched(&table, &count);
    assert_int_equal(count, NODE_MAX_WATCHED);
    for (size_t i = 0; i < count; i++) {
        node_watch(&table, list[i], false);
        node_watch(&table, list[i], false);
        node_put(&table, list[i]);
    }
    free(list);
    assert_int_equal(table.count, 0);
    assert_int_equal(table.watched, 0);
    list = node_list_watched(&table, &count);
    assert_int_equal(count, 0);
    free(list);
    node_table_destroy(&table);
}

static void many(void **state)
{
    struct node_table table;
    (void)state;
    node_table_init(&table);
    for (uint64_t i = 0; i < 5000; i++)
        node_opened(&table, node_get(&table, i << 32 | 12));
    for (uint64_t i = 0; i < 5000; i++) {
        struct node *node = node_find(&table, i << 32 | 12);
        assert_non_null(node);
        assert_true(node->id == (i << 32 | 12));
        node_released(&table, node);
        node_put(&table, node);
        node_put(&table, node);
    }
    assert_int_equal(table.count, 0);
    node_opened(&table, node_get(&table, 3)); /* destroying frees what is left */
    node_table_destroy(&table);
}

static void each_handle_hears_once_of_a_failed_sync(void **state)
{
    struct node_table table;
    (void)state;
    node_table_init(&table);
    struct node *node = node_get(&table, 7);
    assert_int_equal(node_sync_error(node, 1), 0);
    node_sync_failed(node, 28, 2, 3);
    assert_int_equal(node_sync_error(node, 2), 0); /* it has failed itself */
    assert_int_equal(node_sync_error(node, 1), 28);
    assert_int_equal(node_sync_error(node, 1), 0);
    assert_int_equal(node_sync_error(node, 3), 28);
    assert_int_equal(node_sync_error(node, 4), 0); /* opened later */
    node_sync_failed(node, 5, 4, 4);
    assert_int_equal(node_sync_error(node, 1), 5);
    assert_int_equal(node_sync_error(node, 4), 0);
    node_put(&table, node);
    node_table_destroy(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_goes_with_its_last_use),
        cmocka_unit_test(open_handles_keep_it),
        cmocka_unit_test(handles_of_a_predecessor),
        cmocka_unit_test(orphans_stay),
        cmocka_unit_test(watched_ones_stay),
        cmocka_unit_test(many),
        cmocka_unit_test(each_handle_hears_once_of_a_failed_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
