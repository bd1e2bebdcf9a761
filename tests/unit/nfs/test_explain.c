/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/share_private.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_names_place_user_and_cause(void **state)
{
    static const struct {
        enum share_step_kind step;
        int error, code;
        const char *cause;
    } cases[] = {
        {STEP_RESOLVE, ENOENT, CSI_INVALID_ARGUMENT, "no such host"},
        {STEP_CONNECT, ECONNREFUSED, CSI_UNAVAILABLE, "is it running"},
        {STEP_CONNECT, ETIMEDOUT, CSI_DEADLINE_EXCEEDED, "firewall"},
        {STEP_PORT, ECONNREFUSED, CSI_UNAVAILABLE, "rpcbind"},
        {STEP_MOUNT, EACCES, CSI_PERMISSION_DENIED, "export list"},
        {STEP_ROOT, ENOENT, CSI_INVALID_ARGUMENT, "no such export"},
        {STEP_ROOT, EPROTONOSUPPORT, CSI_UNAVAILABLE, "nfsvers=3"},
        {STEP_CALL, EACCES, CSI_PERMISSION_DENIED, "root_squash"},
        {STEP_CALL, EPERM, CSI_PERMISSION_DENIED, "root_squash"},
        {STEP_CALL, EROFS, CSI_PERMISSION_DENIED, "read-only"},
        {STEP_CALL, ENOSPC, CSI_RESOURCE_EXHAUSTED, "full"},
        {STEP_CALL, EDQUOT, CSI_RESOURCE_EXHAUSTED, "quota"},
        {STEP_CALL, ETIMEDOUT, CSI_DEADLINE_EXCEEDED, "does not answer"},
        {STEP_CALL, ECONNRESET, CSI_UNAVAILABLE, "restarted"},
        {STEP_CALL, ENOENT, CSI_NOT_FOUND, ""},
        {STEP_CALL, EMLINK, CSI_INTERNAL, ""},
    };
    (void)state;
    char server[] = "10.1.2.3", export[] = "/exp/data";
    struct share_location where = {.server = server, .export = export, .version = 4};
    struct share_credential who = {.uid = 1001, .gid = 1002};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_err struct err err = {0};
        assert_int_equal(
            share_explain(&where, &who, cases[i].step, cases[i].error, "making directory a/b", "library words", &err),
            -1);
        assert_int_equal(csi_code_of(&err), cases[i].code);
        const char *wanted[] = {"10.1.2.3",     "/exp/data",
                                "version 4",    "making directory a/b",
                                cases[i].cause, strerrordesc_np(cases[i].error)};
        for (size_t j = 0; j < ARRAY_LEN(wanted); j++)
            if (strstr(err_text(&err), wanted[j]) == NULL)
                fail_msg("no \"%s\" in: %s", wanted[j], err_text(&err));
        bool names_user = strstr(err_text(&err), "uid 1001 gid 1002") != NULL;
        assert_int_equal(names_user, cases[i].step >= STEP_MOUNT);
    }
}

static void test_statuses(void **state)
{
    (void)state;
    assert_int_equal(share_errno_of_status(0), 0);
    assert_int_equal(share_errno_of_status(2), ENOENT);
    assert_int_equal(share_errno_of_status(66), ENOTEMPTY);
    assert_int_equal(share_errno_of_status(10008), EAGAIN);
    assert_int_equal(share_errno_of_status(10013), EAGAIN);
    assert_int_equal(share_errno_of_status(424242), EREMOTEIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_place_user_and_cause),
        cmocka_unit_test(test_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
