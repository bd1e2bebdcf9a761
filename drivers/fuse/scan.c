/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/scan.h"

#include "lib/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_SIZE 32768
#define HEAD_SIZE offsetof(struct handle, bytes)

struct number_set { /* open addressing; 0 is an empty slot (no file has inode 0) */
    uint64_t *items;
    size_t size, count;
};

struct walk {
    struct handles *handles;
    bool recover;
    struct handle **pending; /* directories still to be read, cut to their length */
    size_t pending_count, pending_size;
    struct number_set seen; /* inodes with several names */
    struct scan_result result;
    char *buffer;
};

static size_t set_place(const struct number_set *set, uint64_t number)
{
    size_t place = (size_t)((number * 0x9e3779b97f4a7c15U) >> 20) & (set->size - 1);
    while (set->items[place] != 0 && set->items[place] != number)
        place = (place + 1) & (set->size - 1);
    return place;
}

/* False when it was in there already. */
static bool set_add(struct number_set *set, uint64_t number)
{
    if (set->count * 2 >= set->size) {
        struct number_set larger = {.size = set->size > 0 ? set->size * 2 : 64, .count = set->count};
        larger.items = mem_calloc(larger.size, sizeof(*larger.items));
        for (size_t i = 0; i < set->size; i++)
            if (set->items[i] != 0)
                larger.items[set_place(&larger, set->items[i])] = set->items[i];
        free(set->items);
        *set = larger;
    }
    size_t place = set_place(set, number);
    if (set->items[place] == number)
        return false;
    set->items[place] = number;
    set->count++;
    return true;
}

static void push(struct walk *walk, const struct handle *handle)
{
    if (walk->pending_count == walk->pending_size) {
        walk->pending_size = walk->pending_size > 0 ? walk->pending_size * 2 : 16;
        walk->pending = mem_realloc_array(walk->pending, walk->pending_size, sizeof(struct handle *));
    }
    walk->pending[walk->pending_count++] = mem_dup(handle, HEAD_SIZE + handle->length);
}

static bool is_gone(int error)
{
    return error == ENOENT || error == ESTALE;
}

static int visit(struct walk *walk, int dir_fd, const char *name, struct err *err)
{
    struct stat st;
    struct handle handle = {0};
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return is_gone(errno) ? 0 : err_set_errno(err, errno, "looking at %s", name);
    if (!S_ISDIR(st.st_mode) && st.st_nlink > 1 && !set_add(&walk->seen, st.st_ino))
        return 0;
    walk->result.used += (int64_t)st.st_blocks * 512;
    walk->result.inodes++;
    if (walk->recover)
        handles_recover(walk->handles, dir_fd, name);
    if (!S_ISDIR(st.st_mode))
        return 0;
    int result = handles_read(walk->handles, dir_fd, name, &handle);
    if (result == 0)
        push(walk, &handle);
    else if (result != -EXDEV && !is_gone(-result))
        return err_set_errno(err, -result, "looking at %s", name);
    return 0;
}

static int read_directory(struct walk *walk, int dir_fd, struct err *err)
{
    for (;;) {
        ssize_t length = getdents64(dir_fd, walk->buffer, BUFFER_SIZE);
        if (length < 0 && is_gone(errno))
            return 0;
        if (length < 0)
            return err_set_errno(err, errno, "reading a directory");
        if (length == 0)
            return 0;
        for (ssize_t at = 0; at < length;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(walk->buffer + at);
            at += entry->d_reclen;
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                visit(walk, dir_fd, entry->d_name, err) < 0)
                return -1;
        }
    }
}

static int walk_all(struct walk *walk, int data_fd, int orphans_fd, struct err *err)
{
    struct stat st;
    if (fstat(data_fd, &st) != 0)
        return err_set_errno(err, errno, "looking at the volume's directory");
    walk->result.used += (int64_t)st.st_blocks * 512;
    const int first[] = {data_fd, orphans_fd};
    for (size_t i = 0; i < ARRAY_LEN(first); i++) {
        auto_close int fd = first[i] >= 0 ? openat(first[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        if (first[i] >= 0 && fd < 0)
            return err_set_errno(err, errno, "opening the volume's directory");
        if (fd >= 0 && read_directory(walk, fd, err) < 0)
            return -1;
    }
    while (walk->pending_count > 0) {
        auto_free struct handle *handle = walk->pending[--walk->pending_count];
        auto_close int fd = handles_open_handle(walk->handles, handle, O_RDONLY | O_DIRECTORY);
        if (fd < 0 && is_gone(-fd))
            continue;
        if (fd < 0)
            return err_set_errno(err, -fd, "opening a directory of the volume");
        if (read_directory(walk, fd, err) < 0)
            return -1;
    }
    return 0;
}

int scan_volume(struct handles *handles, int data_fd, int orphans_fd, bool recover, struct scan_result *result,
                struct err *err)
{
    struct walk walk = {.handles = handles, .recover = recover, .buffer = mem_alloc(BUFFER_SIZE)};
    int done = walk_all(&walk, data_fd, orphans_fd, err);
    *result = walk.result;
    while (walk.pending_count > 0)
        free(walk.pending[--walk.pending_count]);
    free(walk.pending);
    free(walk.seen.items);
    free(walk.buffer);
    malloc_trim(0);
    return done;
}
