/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include "lib/base/file.h"

#include <stdio.h>
#include <string.h>

static void test_codes_have_names(void **state)
{
    (void)state;
    assert_string_equal(csi_code_name(0), "OK");
    assert_string_equal(csi_code_name(1), "Canceled");
    assert_string_equal(csi_code_name(4), "DeadlineExceeded");
    assert_string_equal(csi_code_name(9), "FailedPrecondition");
    assert_string_equal(csi_code_name(16), "Unauthenticated");
    assert_string_equal(csi_code_name(17), "Unknown");
    assert_string_equal(csi_code_name(-1), "Unknown");
}

static void test_errors_have_codes(void **state)
{
    static const struct {
        enum err_code code;
        int status;
        int expected;
    } cases[] = {
        {ERR_NONE, 0, 0},          {ERR_INVALID, 0, 3},
        {ERR_NOT_FOUND, 404, 5},   {ERR_EXISTS, 0, 6},
        {ERR_CONFLICT, 409, 10},   {ERR_FORBIDDEN, 0, 7},
        {ERR_UNAUTHORIZED, 0, 16}, {ERR_THROTTLED, 0, 8},
        {ERR_UNAVAILABLE, 0, 14},  {ERR_TIMEOUT, 0, 4},
        {ERR_CANCELLED, 0, 1},     {ERR_IO, 0, 13},
        {ERR_INTERNAL, 0, 13},     {ERR_RPC, 9, 9},
        {ERR_RPC, 11, 11},         {ERR_RPC, 0, 2}, /* a failure must not become OK */
        {ERR_RPC, 99, 2},          {(enum err_code)999, 0, 13},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(csi_code_of(&(struct err){.code = cases[i].code, .status = cases[i].status}),
                         cases[i].expected);
    assert_int_equal(csi_code_of(NULL), 13);
    auto_err struct err err = {0};
    assert_int_equal(csi_fail(&err, CSI_ABORTED, "volume %s is busy", "v"), -1);
    assert_int_equal(csi_code_of(&err), 10);
    assert_string_equal(err.message, "volume v is busy");
}

/* Each rpc line of the .proto files is in the table with its types, except the two streams. */
static void test_table_follows_the_proto_files(void **state)
{
    static const char *const files[] = {"lib/csi/csi.proto", "lib/csi/registration.proto", "lib/csi/recycler.proto"};
    int found = 0, streams = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        auto_free char *text = NULL;
        char *rest = NULL, package[64] = "", service[64] = "";
        assert_int_equal(file_read(files[i], 1 << 20, &text, &(size_t){0}, NULL), 0);
        for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
            char rpc[64], request[64];
            sscanf(line, "package %63[^;]", package);
            sscanf(line, "service %63s", service);
            if (sscanf(line, "  rpc %63[^(](%63[^)]", rpc, request) != 2)
                continue;
            if (strstr(line, "(stream ") != NULL) {
                streams++;
                continue;
            }
            auto_free char *path = mem_printf("/%s.%s/%s", package, service, rpc);
            const struct csi_method *method = csi_method_find(path);
            assert_non_null(method);
            assert_string_equal(method->name, rpc);
            assert_string_equal(method->request->short_name, request);
            found++;
        }
    }
    assert_int_equal(streams, 2);
    int in_table = 0;
    while (csi_methods[in_table] != NULL)
        in_table++;
    assert_int_equal(found, in_table);
    assert_null(csi_method_find("/csi.v1.Controller/"));
    assert_null(csi_method_find(""));
}

static void test_addresses(void **state)
{
    static const struct {
        const char *address;
        const char *path; /* NULL: refused */
    } cases[] = {
        {"/run/csi.sock", "/run/csi.sock"},
        {"unix:///run/csi.sock", "/run/csi.sock"},
        {"unix://tmp/csi.sock", "/tmp/csi.sock"},
        {"unix:/run/csi.sock", "/run/csi.sock"},
        {"unix:csi.sock", "csi.sock"},
        {"unix:////run/a b%.sock", "/run/a b%.sock"},
        {"csi.sock", NULL},
        {"tcp://127.0.0.1:80", NULL},
        {"dns:///host", NULL},
        {"unix:", NULL},
        {"unix:///", NULL},
        {"unix:///run/", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        auto_free char *path = csi_address_path(cases[i].address, &err);
        assert_int_equal(path == NULL, cases[i].path == NULL);
        if (path != NULL)
            assert_string_equal(path, cases[i].path);
        else
            assert_int_equal(err.code, ERR_INVALID);
    }
    char longest[109] = "/";
    memset(longest + 1, 'x', 107);
    assert_null(csi_address_path(longest, NULL));
    longest[107] = '\0';
    auto_free char *fits = csi_address_path(longest, NULL);
    assert_string_equal(fits, longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_have_names),
        cmocka_unit_test(test_errors_have_codes),
        cmocka_unit_test(test_table_follows_the_proto_files),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
