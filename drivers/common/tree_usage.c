/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/copy_internal.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 4096

struct count {
    DIR **streams;
    size_t depth;
    struct map *seen; /* inodes with several links */
    int64_t bytes, inodes;
};

static void count_free(struct count *count)
{
    for (size_t i = 0; i < count->depth; i++)
        closedir(count->streams[i]);
    free(count->streams);
    map_free(count->seen);
}

static void add(struct count *count, const struct stat *st)
{
    char key[32];
    if (!S_ISDIR(st->st_mode) && st->st_nlink > 1) {
        snprintf(key, sizeof(key), "%llu", (unsigned long long)st->st_ino);
        if (map_has(count->seen, key))
            return;
        map_set(count->seen, key, NULL);
    }
    count->bytes += (int64_t)st->st_blocks * 512;
    count->inodes++;
}

static int push(struct count *count, int directory, struct err *err)
{
    DIR *stream = count->depth < DEPTH_MAX ? tree_stream(directory) : NULL;
    if (stream == NULL)
        return err_set_errno(err, count->depth < DEPTH_MAX ? errno : ELOOP, "reading a directory");
    count->streams = mem_realloc_array(count->streams, count->depth + 1, sizeof(*count->streams));
    count->streams[count->depth++] = stream;
    return 0;
}

static int visit(struct count *count, const char *name, struct err *err)
{
    struct stat st;
    int parent = dirfd(count->streams[count->depth - 1]);
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "looking at %s", name);
    add(count, &st);
    if (!S_ISDIR(st.st_mode))
        return 0;
    auto_close int fd = tree_open(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) /* vanished, or another mount: not ours */
        return errno == ENOENT || errno == EXDEV || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : err_set_errno(err, errno, "entering %s", name);
    return push(count, fd, err);
}

int tree_usage(int directory, struct clock *clock, int64_t deadline, int64_t *bytes, int64_t *inodes, struct err *err)
{
    __attribute__((cleanup(count_free))) struct count count = {.seen = map_new(NULL)};
    struct stat st;
    if (fstat(directory, &st) != 0)
        return err_set_errno(err, errno, "looking at the directory");
    add(&count, &st);
    if (push(&count, directory, err) < 0)
        return -1;
    for (unsigned steps = 0; count.depth > 0; steps++) {
        if (steps % 256 == 0 && clock_mono(clock) >= deadline)
            return err_set(err, ERR_TIMEOUT, "counting took too long");
        const struct dirent *entry = readdir(count.streams[count.depth - 1]);
        if (entry == NULL)
            closedir(count.streams[--count.depth]);
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 visit(&count, entry->d_name, err) < 0)
            return -1;
    }
    *bytes = count.bytes;
    *inodes = count.inodes;
    return 0;
}
