/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     level 0: from, to            what the caller gave
 *     level 1: from/a, to/a        each level: two descriptors and a stream of entries, on the heap: trees are deep
 *     …                            and stacks are small
 */
#include "drivers/common/copy_internal.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEPTH_MAX 4096

struct level {
    DIR *entries; /* owns the source's descriptor */
    int to;
    size_t path_len; /* of the path up to here */
};
struct walk {
    struct copy *copy;
    struct level *levels;
    size_t depth;
    struct str path;  /* from the top, for messages and hard links */
    struct map *seen; /* "dev:inode" of files with several links → path of the copy */
};

int tree_open(int parent, const char *name, int flags)
{
    struct open_how how = {
        .flags = (unsigned)flags | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    if ((flags & O_PATH) != 0) /* a symlink is opened itself then */
        how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    for (int tries = 0;; tries++) {
        long fd = syscall(SYS_openat2, parent, name, &how, sizeof(how));
        if (fd >= 0 || tries >= 100 || (errno != EAGAIN && errno != EINTR))
            return (int)fd;
    }
}

DIR *tree_stream(int directory)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL && fd >= 0)
        close(fd);
    return stream;
}

static void walk_free(struct walk *walk)
{
    for (size_t i = 0; i < walk->depth; i++) {
        closedir(walk->levels[i].entries);
        close(walk->levels[i].to);
    }
    free(walk->levels);
    str_free(&walk->path);
    map_free(walk->seen);
}

static int fail(const struct walk *walk, const char *name, const char *doing, struct err *err)
{
    auto_free char *path = mem_printf("%s%s", str_text(&walk->path), name);
    if (errno == EXDEV)
        return err_set(err, ERR_IO, "%s %s: something is mounted there", doing, path);
    return copy_fail(errno, doing, path, err);
}

/* The copy of the directory is entered with both descriptors, which are closed when the walk leaves it. */
static int enter(struct walk *walk, int from, int to, const char *name, struct err *err)
{
    DIR *entries = tree_stream(from);
    if (entries == NULL || walk->depth >= DEPTH_MAX) {
        int error = entries == NULL ? errno : ELOOP;
        if (entries != NULL)
            closedir(entries);
        close(to);
        errno = error;
        return fail(walk, name, "entering", err);
    }
    walk->levels = mem_realloc_array(walk->levels, walk->depth + 1, sizeof(*walk->levels));
    walk->levels[walk->depth++] = (struct level){.entries = entries, .to = to, .path_len = walk->path.len};
    if (*name != '\0')
        str_addf(&walk->path, "%s/", name);
    return 0;
}

/* Attributes come last: they may forbid writing, and writing changes the times. */
static int leave(struct walk *walk, struct err *err)
{
    struct level *level = &walk->levels[walk->depth - 1];
    int result = copy_attributes(dirfd(level->entries), level->to, err);
    if (result < 0)
        err_wrap(err, "copying directory %s", str_text(&walk->path));
    closedir(level->entries);
    close(level->to);
    walk->path.len = level->path_len;
    if (walk->path.data != NULL)
        walk->path.data[walk->path.len] = '\0';
    walk->depth--;
    return result;
}

/* 1 = it was copied under another name already, and linked. */
static int link_again(struct walk *walk, int to, const char *name, const struct stat *st, struct err *err)
{
    char key[64];
    if (st->st_nlink < 2)
        return 0;
    snprintf(key, sizeof(key), "%u:%u:%llu", major(st->st_dev), minor(st->st_dev), (unsigned long long)st->st_ino);
    const char *first = map_get(walk->seen, key);
    if (first == NULL) {
        map_set(walk->seen, key, mem_printf("%s%s", str_text(&walk->path), name));
        return 0;
    }
    /* the destination is ours alone, so a path in it can be trusted; one that is too long costs a second copy */
    if (linkat(walk->levels[0].to, first, to, name, 0) == 0)
        return 1;
    return errno == ENAMETOOLONG || errno == EMLINK || errno == ENOENT ? 0 : fail(walk, name, "linking", err);
}

static int copy_regular(struct walk *walk, int from_dir, int to_dir, const char *name, struct err *err)
{
    struct stat st;
    auto_close int from = tree_open(from_dir, name, O_RDONLY | O_NONBLOCK | O_NOATIME);
    if (from < 0 && errno == EPERM)
        from = tree_open(from_dir, name, O_RDONLY | O_NONBLOCK);
    if (from < 0 && errno == ENOENT)
        return 0;
    if (from < 0 && walk->copy->skip_unreadable && (errno == EACCES || errno == EIO || errno == EPERM)) {
        walk->copy->skipped++;
        return 0;
    }
    if (from < 0 || fstat(from, &st) != 0)
        return fail(walk, name, "opening", err);
    if (!S_ISREG(st.st_mode)) {
        errno = ESTALE;
        return fail(walk, name, "opening", err);
    }
    auto_close int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return fail(walk, name, "making", err);
    if (copy_file_data(walk->copy, from, to, err) < 0 || copy_attributes(from, to, err) < 0) {
        if (walk->copy->skip_unreadable && err->code == ERR_IO && unlinkat(to_dir, name, 0) == 0) {
            err_clear(err);
            walk->copy->skipped++;
            return 0;
        }
        return err_wrap(err, "copying %s%s", str_text(&walk->path), name);
    }
    walk->copy->files++;
    return 0;
}

static int make_special(int from, int to_dir, const char *name, const struct stat *st)
{
    if (!S_ISLNK(st->st_mode))
        return mknodat(to_dir, name, (st->st_mode & S_IFMT) | 0600, st->st_rdev);
    auto_free char *target = mem_calloc((size_t)st->st_size + 2, 1);
    ssize_t len = readlinkat(from, "", target, (size_t)st->st_size + 1);
    return len < 0 ? -1 : symlinkat(target, to_dir, name);
}

/* A symlink, fifo, socket or device. */
static int copy_special(struct walk *walk, int from_dir, int to_dir, const char *name, struct err *err)
{
    struct stat st;
    auto_close int from = tree_open(from_dir, name, O_PATH);
    if (from < 0)
        return errno == ENOENT ? 0 : fail(walk, name, "opening", err);
    if (fstat(from, &st) != 0 || make_special(from, to_dir, name, &st) != 0)
        return fail(walk, name, "making", err);
    auto_close int to = openat(to_dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0)
        return fail(walk, name, "opening the copy of", err);
    if (copy_attributes(from, to, err) < 0)
        return err_wrap(err, "copying %s%s", str_text(&walk->path), name);
    walk->copy->files++;
    return 0;
}

static int copy_directory(struct walk *walk, int from_dir, int to_dir, const char *name, struct err *err)
{
    auto_close int from = tree_open(from_dir, name, O_RDONLY | O_DIRECTORY);
    if (from < 0)
        return errno == ENOENT ? 0 : fail(walk, name, "entering", err);
    if (mkdirat(to_dir, name, 0700) != 0)
        return fail(walk, name, "making", err);
    int to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0)
        return fail(walk, name, "entering", err);
    walk->copy->files++;
    return enter(walk, from, to, name, err);
}

static int copy_entry(struct walk *walk, const char *name, struct err *err)
{
    struct stat st;
    const struct level level = walk->levels[walk->depth - 1];
    int from = dirfd(level.entries);
    if (copy_tick(walk->copy, err) < 0)
        return -1;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : fail(walk, name, "looking at", err);
    if (S_ISDIR(st.st_mode))
        return copy_directory(walk, from, level.to, name, err);
    int linked = link_again(walk, level.to, name, &st, err);
    if (linked != 0)
        return linked < 0 ? -1 : 0;
    return S_ISREG(st.st_mode) ? copy_regular(walk, from, level.to, name, err)
                               : copy_special(walk, from, level.to, name, err);
}

int copy_tree(struct copy *copy, int from, int to, struct err *err)
{
    __attribute__((cleanup(walk_free))) struct walk walk = {.copy = copy, .seen = map_new(free)};
    int top = fcntl(to, F_DUPFD_CLOEXEC, 0);
    if (top < 0)
        return err_set_errno(err, errno, "copying a tree");
    if (enter(&walk, from, top, "", err) < 0)
        return -1;
    while (walk.depth > 0) {
        errno = 0;
        const struct dirent *entry = readdir(walk.levels[walk.depth - 1].entries);
        if (entry == NULL && errno != 0)
            return fail(&walk, "", "reading directory", err);
        if (entry == NULL ? leave(&walk, err) < 0
                          : strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                                copy_entry(&walk, entry->d_name, err) < 0)
            return -1;
    }
    if (syncfs(to) != 0)
        return copy_fail(errno, "syncing", "the copy", err);
    return 0;
}
