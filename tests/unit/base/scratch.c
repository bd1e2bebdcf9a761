/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/base/scratch.h"

#include "lib/base/mem.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int scratch_setup(void **state)
{
    struct scratch *scratch = mem_new(struct scratch);
    strcpy(scratch->path, "/tmp/berth-test-XXXXXX");
    if (mkdtemp(scratch->path) == NULL)
        return -1;
    scratch->fd = open(scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = scratch;
    return scratch->fd < 0 ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status;
    (void)type;
    (void)ftw;
    return remove(path);
}

int scratch_teardown(void **state)
{
    struct scratch *scratch = *state;
    close(scratch->fd);
    nftw(scratch->path, remove_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(scratch);
    return 0;
}
