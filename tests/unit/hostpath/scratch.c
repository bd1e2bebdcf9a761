/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/hostpath/scratch.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int scratch_set_up(void **state)
{
    struct scratch *scratch = mem_new(struct scratch);
    strcpy(scratch->path, "/tmp/berth-hostpath-XXXXXX");
    if (mkdtemp(scratch->path) == NULL)
        return -1;
    scratch->fd = open(scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = scratch;
    return scratch->fd < 0 ? -1 : 0;
}

int scratch_tear_down(void **state)
{
    struct scratch *scratch = *state;
    auto_err struct err err = {0};
    auto_close int parent = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    close(scratch->fd);
    int result = file_remove_tree_at(parent, scratch->path + strlen("/tmp/"), &err);
    free(scratch);
    return result;
}

void scratch_write(const struct scratch *scratch, const char *name, const char *text)
{
    auto_close int fd = openat(scratch->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
}

char *scratch_read(const struct scratch *scratch, const char *name)
{
    auto_err struct err err = {0};
    char *text = NULL;
    if (file_read_at(scratch->fd, name, (size_t)1 << 20, &text, NULL, &err) < 0)
        return mem_strdup("");
    return text;
}

bool scratch_exists(const struct scratch *scratch, const char *name)
{
    struct stat st;
    return fstatat(scratch->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int scratch_mkdir(const struct scratch *scratch, const char *name)
{
    if (mkdirat(scratch->fd, name, 0755) != 0)
        abort();
    return openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}
