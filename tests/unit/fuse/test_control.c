/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/control.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "tests/unit/fuse/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static struct fuse_control_request make(uint32_t kind, int64_t limit)
{
    return (struct fuse_control_request){.magic = FUSE_CONTROL_MAGIC, .kind = kind, .limit = limit};
}

static void answers(void **state)
{
    struct account account;
    struct fuse_control_request request = make(FUSE_CONTROL_STATS, 0);
    (void)state;
    account_init(&account, 1 << 20, 0, 4096, 3);
    struct fuse_control_answer answer = control_answer(&account, &request, sizeof(request));
    assert_int_equal(answer.error, 0);
    assert_int_equal(answer.limit, 1 << 20);
    assert_int_equal(answer.used, 4096);
    assert_int_equal(answer.inodes, 3);
    assert_int_equal(answer.inode_limit, 1024);
    request = make(FUSE_CONTROL_SET_LIMIT, 2 << 20);
    answer = control_answer(&account, &request, sizeof(request));
    assert_int_equal(answer.error, 0);
    assert_int_equal(answer.limit, 2 << 20);
    request = make(FUSE_CONTROL_SET_LIMIT, 0);
    assert_int_equal(control_answer(&account, &request, sizeof(request)).error, EINVAL);
    request = make(99, 0);
    assert_int_equal(control_answer(&account, &request, sizeof(request)).error, EPROTO);
    assert_int_equal(control_answer(&account, &request, sizeof(request) - 1).error, EPROTO);
    assert_int_equal(control_answer(&account, "", 0).error, EPROTO);
    request = make(FUSE_CONTROL_STATS, 0);
    request.magic++;
    assert_int_equal(control_answer(&account, &request, sizeof(request)).error, EPROTO);
    assert_int_equal(account_figures(&account).limit, 2 << 20);
    account_destroy(&account);
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void serves_peers_and_watches_others(void **state)
{
    char directory[] = "/tmp/berth-control-XXXXXX";
    const struct fuse_control_request request = make(FUSE_CONTROL_STATS, 0);
    struct fuse_control_answer answer;
    struct account account;
    struct control control;
    struct stat st;
    int other[2];
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(directory));
    auto_free char *path = mem_printf("%s/s", directory);
    account_init(&account, 1 << 20, 0, 0, 0);
    assert_int_equal(control_open(&control, path, &account, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(pipe(other), 0);
    int peers[CONTROL_MAX_PEERS + 1];
    for (int i = 0; i < CONTROL_MAX_PEERS + 1; i++) {
        peers[i] = connect_to(path);
        if (i < CONTROL_MAX_PEERS)
            assert_int_equal(control_wait(&control, &other[0], 1, 1000), -1);
    }
    for (int i = 0; i < CONTROL_MAX_PEERS; i++) {
        assert_int_equal(send(peers[i], &request, sizeof(request), 0), sizeof(request));
        assert_int_equal(control_wait(&control, &other[0], 1, 1000), -1);
        assert_int_equal(recv(peers[i], &answer, sizeof(answer), MSG_DONTWAIT), sizeof(answer));
        assert_int_equal(answer.limit, 1 << 20);
    }
    close(peers[0]); /* makes room for the last one */
    assert_int_equal(control_wait(&control, &other[0], 1, 1000), -1);
    assert_int_equal(control_wait(&control, &other[0], 1, 1000), -1);
    assert_int_equal(send(peers[CONTROL_MAX_PEERS], &request, sizeof(request), 0), sizeof(request));
    assert_int_equal(control_wait(&control, &other[0], 1, 1000), -1);
    assert_int_equal(recv(peers[CONTROL_MAX_PEERS], &answer, sizeof(answer), MSG_DONTWAIT), sizeof(answer));
    assert_int_equal(write(other[1], "x", 1), 1);
    assert_int_equal(control_wait(&control, &other[0], 1, 1000), 0);
    for (int i = 1; i < CONTROL_MAX_PEERS + 1; i++)
        close(peers[i]);
    close(other[0]);
    close(other[1]);
    control_close(&control);
    account_destroy(&account);
    assert_int_equal(tree_remove(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(serves_peers_and_watches_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
