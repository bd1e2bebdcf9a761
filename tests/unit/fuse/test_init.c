/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/init.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "tests/unit/fuse/tree.h"

#include <errno.h>
#include <linux/fuse.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct request {
    struct fuse_in_header header;
    struct fuse_init_in body;
};
static struct request make_request(uint32_t flags)
{
    return (struct request){.header = {.len = sizeof(struct request), .opcode = FUSE_INIT, .unique = 2},
                            .body = {.major = 7, .minor = 45, .max_readahead = 131072, .flags = flags}};
}

static void take_answer(struct init_exchange *exchange, uint32_t flags, uint64_t unique)
{
    struct fuse_out_header header = {.unique = unique};
    struct fuse_init_out body = {.major = 7, .minor = 38, .flags = flags, .max_write = 131072};
    const struct iovec parts[] = {{&header, sizeof(header)}, {&body, sizeof(body)}};
    header.len = sizeof(header) + sizeof(body);
    assert_int_equal(init_set_answer(exchange, parts, 2, NULL), 0);
}

static void requests_are_checked(void **state)
{
    struct request request = make_request(0);
    struct init_exchange exchange = {0};
    auto_err struct err err = {0};
    (void)state;
    assert_true(init_is_request(&request, sizeof(request)));
    assert_false(init_is_request(&request, sizeof(request) - 1));
    assert_false(init_is_request(&request, 8));
    request.header.opcode = FUSE_LOOKUP;
    assert_false(init_is_request(&request, sizeof(request)));
    assert_int_equal(init_set_request(&exchange, &request, sizeof(request), &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
}

static uint32_t flags_of(const struct init_exchange *exchange)
{
    const struct fuse_init_out *body = (const void *)(exchange->answer + sizeof(struct fuse_out_header));
    return body->flags;
}

static void what_is_added_was_offered(void **state)
{
    struct request request = make_request(FUSE_HANDLE_KILLPRIV_V2 | FUSE_ASYNC_READ);
    struct init_exchange exchange = {0};
    (void)state;
    assert_int_equal(init_set_request(&exchange, &request, sizeof(request), NULL), 0);
    take_answer(&exchange, FUSE_ASYNC_READ, 2);
    assert_int_equal(flags_of(&exchange), FUSE_ASYNC_READ | FUSE_HANDLE_KILLPRIV_V2);
    request = make_request(FUSE_ASYNC_READ);
    assert_int_equal(init_set_request(&exchange, &request, sizeof(request), NULL), 0);
    take_answer(&exchange, FUSE_ASYNC_READ, 2);
    assert_int_equal(flags_of(&exchange), FUSE_ASYNC_READ);
}

static void a_refusal_is_an_error(void **state)
{
    struct fuse_out_header header = {.len = sizeof(header), .error = -EPROTO};
    const struct iovec part = {&header, sizeof(header)};
    struct init_exchange exchange = {0};
    auto_err struct err err = {0};
    (void)state;
    assert_int_equal(init_set_answer(&exchange, &part, 1, &err), -1);
    assert_int_equal(exchange.answer_length, 0);
}

static void answers_are_compared_but_for_the_number(void **state)
{
    struct request request = make_request(FUSE_ASYNC_READ);
    struct init_exchange a = {0}, b = {0};
    (void)state;
    assert_int_equal(init_set_request(&a, &request, sizeof(request), NULL), 0);
    b = a;
    assert_false(init_same_answer(&a, &b)); /* none yet */
    take_answer(&a, FUSE_ASYNC_READ, 2);
    take_answer(&b, FUSE_ASYNC_READ, 4);
    assert_true(init_same_answer(&a, &b));
    take_answer(&b, FUSE_ASYNC_READ | FUSE_POSIX_ACL, 2);
    assert_false(init_same_answer(&a, &b));
}

static void the_file(void **state)
{
    char directory[] = "/tmp/berth-init-XXXXXX";
    struct request request = make_request(FUSE_ASYNC_READ);
    struct init_exchange saved = {0}, loaded = {0};
    auto_err struct err err = {0};
    (void)state;
    assert_non_null(mkdtemp(directory));
    auto_free char *path = mem_printf("%s/init", directory);
    assert_int_equal(init_load(&loaded, path, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(init_set_request(&saved, &request, sizeof(request), NULL), 0);
    assert_int_equal(init_save(&saved, path, &err), 0); /* the question alone */
    assert_int_equal(init_load(&loaded, path, &err), 0);
    assert_int_equal(loaded.answer_length, 0);
    take_answer(&saved, FUSE_ASYNC_READ, 2);
    assert_int_equal(init_save(&saved, path, &err), 0);
    assert_int_equal(init_load(&loaded, path, &err), 0);
    assert_int_equal(loaded.request_length, sizeof(request));
    assert_memory_equal(loaded.request, saved.request, sizeof(request));
    assert_true(init_same_answer(&loaded, &saved));

    auto_free char *data = NULL;
    size_t length = 0;
    assert_int_equal(file_read(path, 4096, &data, &length, NULL), 0);
    for (size_t cut = 0; cut < length; cut++) { /* any part of it is damaged */
        assert_int_equal(file_write_atomic(path, data, cut, 0600, NULL), 0);
        assert_int_equal(init_load(&loaded, path, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
    for (size_t i = 0; i < 24; i++) { /* any byte of its head */
        data[i] = (char)(data[i] ^ 0x55);
        assert_int_equal(file_write_atomic(path, data, length, 0600, NULL), 0);
        int result = init_load(&loaded, path, &err);
        assert_true(result == -1 || i >= 20); /* the last four mean nothing */
        data[i] = (char)(data[i] ^ 0x55);
    }
    assert_int_equal(tree_remove(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_checked),
        cmocka_unit_test(what_is_added_was_offered),
        cmocka_unit_test(a_refusal_is_an_error),
        cmocka_unit_test(answers_are_compared_but_for_the_number),
        cmocka_unit_test(the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
