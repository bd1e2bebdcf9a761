/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuse/posix/posix.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"

#include <grp.h>
#include <sys/wait.h>

void posix_fail(const char *file, int line, const char *text)
{
    int error = errno;
    fprintf(stderr, "    %s:%d: %s  (errno %d, %s)\n", file, line, text, error, strerror(error));
    _exit(1);
}

int posix_make(const char *path, const char *text)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    EXPECT(fd >= 0);
    EXPECT(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    return fd;
}

void posix_make_closed(const char *path, const char *text)
{
    EXPECT(close(posix_make(path, text)) == 0);
}

bool posix_holds(const char *path, const char *text)
{
    auto_free char *data = NULL;
    size_t length = 0;
    return file_read(path, (size_t)1 << 20, &data, &length, NULL) == 0 && length == strlen(text) &&
           memcmp(data, text, length) == 0;
}

struct stat posix_stat(const char *path)
{
    struct stat st;
    EXPECT(lstat(path, &st) == 0);
    return st;
}

void posix_as(uid_t user, gid_t group, void (*fn)(void))
{
    int status = 0;
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(setgroups(0, NULL) == 0 && setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0);
        fn();
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* In a child, so that a failed check leaves nothing open and does not end the others. */
static bool run(const struct check *check, const char *root)
{
    auto_free char *name = mem_printf("posix-%s", check->name);
    int status = 0;
    if (mkdirat(AT_FDCWD, name, 0777) != 0) {
        fprintf(stderr, "    cannot make %s/%s: %s\n", root, name, strerror(errno));
        return false;
    }
    pid_t child = fork();
    if (child == 0) {
        umask(022);
        alarm(60);
        if (chdir(name) != 0)
            _exit(2);
        check->fn();
        _exit(0);
    }
    bool good = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    auto_err struct err err = {0};
    if (file_remove_tree_at(AT_FDCWD, name, &err) < 0) {
        fprintf(stderr, "    clean-up: %s\n", err_text(&err));
        good = false;
    }
    printf("%s %s\n", good ? "ok  " : "FAIL", check->name);
    return good;
}

static bool is_wanted(const char *name, const char *which)
{
    return which[0] == '-' ? strcmp(name, which + 1) != 0 : strstr(name, which) != NULL;
}

int main(int argc, char **argv)
{
    const struct check *const all[] = {posix_name_checks, posix_data_checks, posix_attr_checks, posix_list_checks};
    int passed = 0, failed = 0;
    if (argc < 2 || chdir(argv[1]) != 0) {
        fprintf(stderr, "usage: fuse-posix DIRECTORY [PART-OF-A-NAME | -NAME, to leave out]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        for (const struct check *check = all[i]; check->name != NULL; check++) {
            if (argc > 2 && !is_wanted(check->name, argv[2]))
                continue;
            if (run(check, argv[1]))
                passed++;
            else
                failed++;
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
