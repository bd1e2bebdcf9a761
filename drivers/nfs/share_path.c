/* SPDX-License-Identifier: Apache-2.0 */
/* Paths and small files on a share. */
#include "drivers/nfs/share.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>

/* Copies the next element to `name`; false at the end, or with *error set. */
static bool next_element(const char **path, char name[256], int *error)
{
    while (**path == '/')
        (*path)++;
    size_t len = strcspn(*path, "/");
    if (len == 0)
        return false;
    if (len > 255) {
        *error = ENAMETOOLONG;
        return false;
    }
    memcpy(name, *path, len);
    name[len] = '\0';
    *path += len;
    return true;
}

int share_walk(struct share *share, const char *path, struct share_fh *fh, struct share_attr *attr)
{
    struct share_fh at;
    struct share_attr found = {.type = SHARE_DIRECTORY};
    char name[256];
    int error = 0;
    share_root(share, &at);
    if (path[strspn(path, "/")] == '\0') {
        *fh = at;
        return attr != NULL ? share_getattr(share, &at, attr) : 0;
    }
    while (next_element(&path, name, &error)) {
        if (found.type != SHARE_DIRECTORY) /* a symlink is not followed */
            return ENOTDIR;
        struct share_fh next;
        error = share_lookup(share, &at, name, &next, &found);
        if (error != 0)
            return error;
        at = next;
    }
    *fh = at;
    if (attr != NULL)
        *attr = found;
    return error;
}

int share_walk_parent(struct share *share, const char *path, struct share_fh *parent, const char **name)
{
    const char *slash = strrchr(path, '/');
    struct share_attr attr = {.type = SHARE_DIRECTORY};
    *name = slash != NULL ? slash + 1 : path;
    if (slash == NULL) {
        share_root(share, parent);
        return 0;
    }
    auto_free char *above = mem_strndup(path, (size_t)(slash - path));
    int error = share_walk(share, above, parent, &attr);
    return error == 0 && attr.type != SHARE_DIRECTORY ? ENOTDIR : error;
}

int share_make_path(struct share *share, const char *path, uint32_t mode, struct share_fh *fh, struct err *err)
{
    struct share_fh at, next;
    struct share_attr attr;
    struct share_set set = {.mask = SHARE_SET_MODE, .mode = mode};
    const char *rest = path;
    char name[256];
    int error = 0;
    share_root(share, &at);
    while (next_element(&rest, name, &error)) {
        error = share_lookup(share, &at, name, &next, &attr);
        if (error == ENOENT)
            error = share_mkdir(share, &at, name, &set, &next, &attr);
        if (error == EEXIST) /* somebody was faster */
            error = share_lookup(share, &at, name, &next, &attr);
        if (error == 0 && attr.type != SHARE_DIRECTORY)
            error = ENOTDIR;
        if (error != 0)
            break;
        at = next;
    }
    if (error != 0)
        return share_fail(share, error, err, "making directory %s", path);
    *fh = at;
    return 0;
}

int share_read_file(struct share *share, const struct share_fh *dir, const char *name, size_t limit, char **data,
                    size_t *len)
{
    struct share_fh fh;
    struct share_attr attr;
    int error = share_lookup(share, dir, name, &fh, &attr);
    if (error != 0)
        return error;
    if (attr.type != SHARE_FILE)
        return attr.type == SHARE_DIRECTORY ? EISDIR : ELOOP;
    if (attr.size > limit)
        return EFBIG;
    auto_free char *text = mem_calloc(attr.size + 1, 1);
    size_t at = 0;
    bool eof = false;
    while (at < attr.size && !eof) {
        size_t got = 0;
        error = share_read(share, &fh, at, text + at, attr.size - at, &got, &eof);
        if (error != 0)
            return error;
        if (got == 0)
            break;
        at += got;
    }
    text[at] = '\0';
    *data = mem_take(text);
    if (len != NULL)
        *len = at;
    return 0;
}

int share_replace_file(struct share *share, const struct share_fh *dir, const char *name, const void *data, size_t len,
                       uint32_t mode)
{
    /* always the same name: what a crash left of it is taken the next time */
    auto_free char *fresh = mem_printf(SHARE_FRESH_PREFIX "%s", name);
    struct share_fh fh;
    struct share_set set = {.mask = SHARE_SET_MODE | SHARE_SET_SIZE, .mode = mode};
    int error = share_create(share, dir, fresh, false, &set, &fh, NULL);
    if (error == 0)
        error = share_write(share, &fh, 0, data, len, NULL);
    if (error == 0)
        error = share_rename(share, dir, fresh, dir, name);
    if (error != 0)
        share_unlink(share, dir, fresh);
    return error;
}
