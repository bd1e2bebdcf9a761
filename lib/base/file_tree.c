/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a tree that somebody else may be changing, with few descriptors and little memory whatever its shape.
 *
 *     frame 0: name/          always open
 *     frame 1: name/a/        each frame: a descriptor and one buffer of entries
 *     …
 *     frame DEPTH-1           a directory below this one is renamed into frame 0 and removed from there later,
 *                             so that any depth gets by with DEPTH frames, and no ".." is ever followed
 *
 * Directories are entered by openat2 that neither follows symlinks nor enters mounts, and everything else is done
 * relative to the descriptors: a directory swapped for a symlink meanwhile is removed as the symlink it is now.
 */
#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH 48
#define BUFFER_SIZE 8192
/* How often a directory that fills up again while it is emptied is gone through. */
#define MAX_PASSES 100

struct frame {
    int fd;
    int passes;
    bool removed; /* something, in this pass */
    size_t at;    /* in buffer */
    size_t len;
    char name[256]; /* in the directory of the frame before */
    _Alignas(struct dirent64) char buffer[BUFFER_SIZE];
};

struct tree {
    int parent_fd; /* where frame 0's name is */
    struct frame *frames[DEPTH];
    int depth; /* frames in use */
};

static void tree_cleanup(struct tree *tree)
{
    for (int i = 0; i < DEPTH && tree->frames[i] != NULL; i++) {
        if (i < tree->depth)
            close(tree->frames[i]->fd);
        free(tree->frames[i]);
    }
}

static struct frame *top(const struct tree *tree)
{
    return tree->frames[tree->depth - 1];
}

static int fail(const struct tree *tree, const char *name, int error_number, const char *what, struct err *err)
{
    auto_str struct str path = {0};
    for (int i = 0; i < tree->depth; i++)
        str_addf(&path, "%s/", tree->frames[i]->name);
    str_add(&path, name);
    switch (error_number) {
    case EXDEV: /* openat2 refused to enter it */
    case EBUSY: /* the kernel refuses to remove it */
        return err_set(err, ERR_IO, "%s %s: in use, or something is mounted there (%s)", what, path.data,
                       strerrordesc_np(error_number));
    case ENOSYS:
        return err_set(err, ERR_IO, "%s %s: the kernel has no openat2 (Linux 5.6 or newer is needed)", what, path.data);
    default:
        return err_set_errno(err, error_number, "%s %s", what, path.data);
    }
}

static int open_directory(int dir_fd, const char *name)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    for (int tries = 0;; tries++) {
        long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
        if (fd >= 0 || tries >= 100 || (errno != EAGAIN && errno != EINTR))
            return (int)fd;
    }
}

static void push(struct tree *tree, int fd, const char *name)
{
    struct frame **frame = &tree->frames[tree->depth];
    if (*frame == NULL)
        *frame = mem_alloc(sizeof(**frame));
    (*frame)->fd = fd;
    (*frame)->passes = 0;
    (*frame)->removed = false;
    (*frame)->at = 0;
    (*frame)->len = 0;
    snprintf((*frame)->name, sizeof((*frame)->name), "%s", name);
    tree->depth++;
}

/* The next entry of the directory on top; its end = NULL with errno 0. */
static const struct dirent64 *next_entry(struct tree *tree)
{
    struct frame *frame = top(tree);
    for (;;) {
        if (frame->at >= frame->len) {
            ssize_t got = getdents64(frame->fd, frame->buffer, sizeof(frame->buffer));
            if (got <= 0) {
                errno = got < 0 ? errno : 0;
                return NULL;
            }
            frame->at = 0;
            frame->len = (size_t)got;
        }
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(frame->buffer + frame->at);
        frame->at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry;
    }
}

enum outcome { GONE, DIRECTORY, FAILED };

/* Removes what is at the name now, unless it is a directory with something in it. */
static enum outcome remove_one(int dir_fd, const char *name, bool maybe_directory)
{
    for (int tries = 0; tries < 10; tries++) {
        if (unlinkat(dir_fd, name, maybe_directory ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT)
            return GONE;
        if (maybe_directory && (errno == ENOTEMPTY || errno == EEXIST))
            return DIRECTORY;
        /* it is of the other kind, or became so meanwhile; unlink of a directory is EISDIR or, as in POSIX, EPERM */
        if (maybe_directory ? errno == ENOTDIR : errno == EISDIR) {
            maybe_directory = !maybe_directory;
            continue;
        }
        return FAILED;
    }
    return FAILED;
}

/* Moves a directory that is too deep into the directory of frame 0, to be found there again. */
static int move_up(struct tree *tree, const char *name, struct err *err)
{
    char fresh[40];
    snprintf(fresh, sizeof(fresh), ".removing-%016" PRIx64, rng_u64(rng_real()));
    if (renameat(top(tree)->fd, name, tree->frames[0]->fd, fresh) != 0 && errno != ENOENT)
        return fail(tree, name, errno, "move up", err);
    tree->frames[0]->passes = 0;
    tree->frames[0]->removed = true;
    return 0;
}

static int enter(struct tree *tree, int dir_fd, const char *name, struct err *err)
{
    int fd = open_directory(dir_fd, name);
    if (fd >= 0) {
        push(tree, fd, name);
        return 0;
    }
    /* swapped for something else or gone since it was looked at: the next pass sees what it is now */
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return 0;
    return fail(tree, name, errno, "open directory", err);
}

static int remove_entry(struct tree *tree, const struct dirent64 *entry, struct err *err)
{
    struct frame *frame = top(tree);
    switch (remove_one(frame->fd, entry->d_name, entry->d_type == DT_DIR)) {
    case GONE:
        frame->removed = true;
        return 0;
    case FAILED:
        return fail(tree, entry->d_name, errno, "remove", err);
    case DIRECTORY:
        break;
    }
    return tree->depth == DEPTH ? move_up(tree, entry->d_name, err) : enter(tree, frame->fd, entry->d_name, err);
}

/* The directory on top was gone through: removes it and goes back to the one before, or starts another pass when there
 * are new entries in it (some file systems also skip entries while others are removed). */
static int leave(struct tree *tree, struct err *err)
{
    struct frame *frame = top(tree);
    int dir_fd = tree->depth > 1 ? tree->frames[tree->depth - 2]->fd : tree->parent_fd;
    enum outcome outcome = remove_one(dir_fd, frame->name, true);
    int error_number = outcome == DIRECTORY ? ENOTEMPTY : errno;
    if (outcome == DIRECTORY && ++frame->passes < MAX_PASSES && (frame->removed || frame->passes < 3)) {
        frame->removed = false;
        frame->at = 0;
        frame->len = 0;
        if (lseek(frame->fd, 0, SEEK_SET) == 0)
            return 0;
        error_number = errno;
    }
    tree->depth--; /* its name is the last element of the path in the message */
    close(frame->fd);
    if (outcome != GONE)
        return fail(tree, frame->name, error_number, "remove", err);
    if (tree->depth > 0)
        top(tree)->removed = true;
    return 0;
}

int file_remove_tree_at(int dir_fd, const char *name, struct err *err)
{
    if (!file_name_is_safe(name))
        return err_set(err, ERR_INVALID, "remove \"%s\": not a file name", name != NULL ? name : "");
    __attribute__((cleanup(tree_cleanup))) struct tree tree = {.parent_fd = dir_fd};
    for (int tries = 0; tree.depth == 0; tries++) {
        enum outcome outcome = remove_one(dir_fd, name, false);
        if (outcome == GONE)
            return 0;
        if (outcome == FAILED || tries >= 10) /* the latter: it is swapped again and again */
            return fail(&tree, name, outcome == FAILED ? errno : ENOTEMPTY, "remove", err);
        if (enter(&tree, dir_fd, name, err) != 0)
            return -1;
    }
    while (tree.depth > 0) {
        const struct dirent64 *entry = next_entry(&tree);
        if (entry == NULL && errno != 0)
            return fail(&tree, ".", errno, "read directory", err);
        if (entry != NULL ? remove_entry(&tree, entry, err) != 0 : leave(&tree, err) != 0)
            return -1;
    }
    return 0;
}
