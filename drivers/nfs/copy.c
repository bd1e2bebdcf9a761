/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/copy.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define BLOCK ((size_t)1 << 18)
#define HOLE ((size_t)4096) /* zeros are left out in pieces of this size */
#define PAGE_BYTES 32768U
#define PROGRESS_EVERY 1024

struct level { /* a directory being copied */
    struct share_fh from, to;
    struct share_attr attr;
    char *name;
    struct share_page page;
    size_t next;
    bool started;
};

struct work {
    struct share *from, *to;
    struct copy *copy;
    struct level *levels;
    size_t depth, cap;
    struct map *links; /* "fsid/fileid" → struct share_fh of the copy */
    char *block;
    uint64_t fsid[2];
};

static char *path_of(const struct work *work, const char *name)
{
    struct str out = {0};
    for (size_t i = 0; i < work->depth; i++)
        str_addf(&out, "%s/", work->levels[i].name);
    str_add(&out, name);
    return str_take(&out);
}

static int fail(const struct work *work, const struct share *share, int error, const char *name, const char *what,
                struct err *err)
{
    auto_free char *path = path_of(work, name);
    return share_fail(share, error, err, "copying %s: %s", path, what);
}

/* Owner first: changing it may clear the set-id bits of the mode. */
static int set_attributes(struct work *work, const struct share_fh *to, const struct share_attr *like, bool times,
                          const char *name, struct err *err)
{
    struct share_set owner = {.mask = SHARE_SET_UID | SHARE_SET_GID, .uid = like->uid, .gid = like->gid};
    int error = share_setattr(work->to, to, &owner, NULL);
    if (error == EPERM || error == EACCES || error == EINVAL) { /* squashed: the files are the squashed user's */
        work->copy->owner_lost++;
        error = 0;
    }
    struct share_set set = {.mask = SHARE_SET_MODE, .mode = like->mode, .atime = like->atime, .mtime = like->mtime};
    if (times)
        set.mask |= SHARE_SET_ATIME | SHARE_SET_MTIME;
    if (error == 0)
        error = share_setattr(work->to, to, &set, NULL);
    return error == 0 ? 0 : fail(work, work->to, error, name, "setting its owner, mode and times", err);
}

static bool is_zero(const char *data, size_t len)
{
    return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

/* Writes what is not zero: the size is set at the end, so holes stay holes. */
static int write_sparse(struct work *work, const struct share_fh *to, uint64_t offset, const char *data, size_t len)
{
    size_t at = 0;
    while (at < len) {
        size_t start = at, end;
        while (start < len && is_zero(data + start, len - start < HOLE ? len - start : HOLE))
            start += len - start < HOLE ? len - start : HOLE;
        end = start;
        while (end < len && !is_zero(data + end, len - end < HOLE ? len - end : HOLE))
            end += len - end < HOLE ? len - end : HOLE;
        int error = end > start ? share_write(work->to, to, offset + start, data + start, end - start, NULL) : 0;
        if (error != 0)
            return error;
        at = end;
    }
    return 0;
}

static int copy_data(struct work *work, const struct share_fh *from, const struct share_fh *to, const char *name,
                     struct err *err)
{
    uint64_t offset = 0;
    for (bool eof = false; !eof;) {
        size_t got = 0;
        int error = share_read(work->from, from, offset, work->block, BLOCK, &got, &eof);
        if (error != 0)
            return fail(work, work->from, error, name, "reading", err);
        error = write_sparse(work, to, offset, work->block, got);
        if (error != 0)
            return fail(work, work->to, error, name, "writing", err);
        offset += got;
        if (got == 0)
            break;
    }
    struct share_set set = {.mask = SHARE_SET_SIZE, .size = offset};
    int error = share_setattr(work->to, to, &set, NULL);
    if (error != 0)
        return fail(work, work->to, error, name, "setting its size", err);
    work->copy->bytes += (int64_t)offset;
    return 0;
}

static int make_other(struct work *work, const struct level *level, const struct share_entry *entry,
                      struct share_fh *to, struct err *err)
{
    struct share_set none = {0}, mode = {.mask = SHARE_SET_MODE, .mode = 0600};
    if (entry->attr.type == SHARE_FILE) {
        int error = share_create(work->to, &level->to, entry->name, true, &mode, to, NULL);
        if (error != 0)
            return fail(work, work->to, error, entry->name, "making the file", err);
        return copy_data(work, &entry->fh, to, entry->name, err);
    }
    if (entry->attr.type != SHARE_SYMLINK) {
        int error = share_mknod(work->to, &level->to, entry->name, &entry->attr, &mode, to, NULL);
        return error == 0 ? 0 : fail(work, work->to, error, entry->name, "making the special file", err);
    }
    auto_free char *target = NULL;
    int error = share_readlink(work->from, &entry->fh, &target);
    if (error != 0)
        return fail(work, work->from, error, entry->name, "reading the symbolic link", err);
    error = share_symlink(work->to, &level->to, entry->name, target, &none, to, NULL);
    return error == 0 ? 0 : fail(work, work->to, error, entry->name, "making the symbolic link", err);
}

/* Symlinks have an owner but, mostly, no mode and no times of their own. */
static int own_symlink(struct work *work, const struct share_entry *entry, const struct share_fh *to)
{
    struct share_set owner = {.mask = SHARE_SET_UID | SHARE_SET_GID, .uid = entry->attr.uid, .gid = entry->attr.gid};
    if (share_setattr(work->to, to, &owner, NULL) != 0)
        work->copy->owner_lost++;
    return share_broken(work->to) ? -1 : 0;
}

static int copy_other(struct work *work, const struct level *level, const struct share_entry *entry, struct err *err)
{
    char key[64];
    struct share_fh to = {0};
    snprintf(key, sizeof(key), "%" PRIx64 "/%" PRIx64, entry->attr.fsid[0], entry->attr.fileid);
    const struct share_fh *twin = entry->attr.nlink > 1 ? map_get(work->links, key) : NULL;
    if (twin != NULL) {
        int error = share_link(work->to, twin, &level->to, entry->name);
        return error == 0 ? 0 : fail(work, work->to, error, entry->name, "making the hard link", err);
    }
    if (make_other(work, level, entry, &to, err) < 0)
        return -1;
    if (entry->attr.nlink > 1)
        map_set(work->links, key, mem_dup(&to, sizeof(to)));
    if (entry->attr.type == SHARE_SYMLINK)
        return own_symlink(work, entry, &to) == 0
                   ? 0
                   : fail(work, work->to, ECONNRESET, entry->name, "setting its owner", err);
    return set_attributes(work, &to, &entry->attr, true, entry->name, err);
}

static void push(struct work *work, const struct share_fh *from, const struct share_fh *to,
                 const struct share_attr *attr, const char *name)
{
    if (work->depth == work->cap) {
        work->cap = work->cap == 0 ? 16 : work->cap * 2;
        work->levels = mem_realloc_array(work->levels, work->cap, sizeof(*work->levels));
    }
    work->levels[work->depth++] = (struct level){.from = *from, .to = *to, .attr = *attr, .name = mem_strdup(name)};
}

static void pop(struct work *work)
{
    struct level *level = &work->levels[--work->depth];
    share_page_clear(&level->page);
    free(level->name);
}

static int copy_entry(struct work *work, size_t index, struct err *err)
{
    struct level *level = &work->levels[index];
    struct share_entry *entry = &level->page.items[level->next];
    struct copy *copy = work->copy;
    if (!entry->has_attr || !entry->has_fh) {
        int error = share_lookup(work->from, &level->from, entry->name, &entry->fh, &entry->attr);
        if (error == ENOENT) /* gone meanwhile */
            level->next++;
        if (error != 0)
            return error == ENOENT ? 0 : fail(work, work->from, error, entry->name, "looking at it", err);
    }
    if (++copy->entries % PROGRESS_EVERY == 0 && copy->progress != NULL)
        copy->progress(copy->arg, copy);
    level->next++;
    if (entry->attr.type != SHARE_DIRECTORY)
        return copy_other(work, level, entry, err);
    if (entry->attr.fsid[0] != work->fsid[0] || entry->attr.fsid[1] != work->fsid[1])
        return fail(work, work->from, EXDEV, entry->name, "another file system is mounted there", err);
    struct share_set mode = {.mask = SHARE_SET_MODE, .mode = 0700};
    struct share_fh to;
    int error = share_mkdir(work->to, &level->to, entry->name, &mode, &to, NULL);
    if (error != 0)
        return fail(work, work->to, error, entry->name, "making the directory", err);
    push(work, &entry->fh, &to, &entry->attr, entry->name); /* may move the levels */
    return 0;
}

/* One step: an entry, or the next page, or the end of the directory. */
static int step(struct work *work, struct err *err)
{
    struct level *level = &work->levels[work->depth - 1];
    if (level->next < level->page.len)
        return copy_entry(work, work->depth - 1, err);
    if (level->started && level->page.eof) {
        if (set_attributes(work, &level->to, &level->attr, true, "", err) < 0)
            return -1;
        pop(work);
        return 0;
    }
    level->started = true;
    level->next = 0;
    int error = share_readdir(work->from, &level->from, PAGE_BYTES, &level->page);
    return error == 0 ? 0 : fail(work, work->from, error, "", "reading the directory", err);
}

int share_copy_tree(struct share *from_share, const struct share_fh *from, struct share *to_share,
                    const struct share_fh *to, struct copy *copy, struct err *err)
{
    struct share_attr attr;
    struct work work = {.from = from_share, .to = to_share, .copy = copy};
    int error = share_getattr(from_share, from, &attr);
    if (error == 0 && attr.type != SHARE_DIRECTORY)
        error = ENOTDIR;
    if (error != 0)
        return share_fail(from_share, error, err, "looking at what is to be copied");
    memcpy(work.fsid, attr.fsid, sizeof(work.fsid));
    work.links = map_new(free);
    work.block = mem_alloc(BLOCK);
    push(&work, from, to, &attr, "");
    int result = 0;
    while (result == 0 && work.depth > 0)
        result = step(&work, err);
    while (work.depth > 0)
        pop(&work);
    free(work.levels);
    free(work.block);
    map_free(work.links);
    return result;
}
