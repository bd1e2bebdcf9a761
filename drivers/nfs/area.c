/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/area.h"

#include "drivers/nfs/handle.h"
#include "lib/base/mem.h"

#include <errno.h>

#define OURS_ONLY 0700

static const struct part {
    const char *path;
    size_t offset;
} parts[] = {
    {RESERVED_DIRECTORY, offsetof(struct area, top)},
    {RESERVED_DIRECTORY "/volumes", offsetof(struct area, volumes)},
    {RESERVED_DIRECTORY "/snapshots", offsetof(struct area, snapshots)},
    {RESERVED_DIRECTORY "/tree", offsetof(struct area, tree)},
    {RESERVED_DIRECTORY "/incoming", offsetof(struct area, incoming)},
    {RESERVED_DIRECTORY "/trash", offsetof(struct area, trash)},
    {RESERVED_DIRECTORY "/users", offsetof(struct area, users)},
};

static struct share_fh *part_fh(struct area *area, const struct part *part)
{
    return (struct share_fh *)(void *)((char *)area + part->offset);
}

int area_open(struct share *share, struct area *area, struct err *err)
{
    *area = (struct area){.share = share};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (share_make_path(share, parts[i].path, OURS_ONLY, part_fh(area, &parts[i]), err) < 0)
            return -1;
    return 0;
}

int area_find(struct share *share, struct area *area, struct err *err)
{
    *area = (struct area){.share = share};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        int error = share_walk(share, parts[i].path, part_fh(area, &parts[i]), NULL);
        if (error == ENOENT)
            return 0;
        if (error != 0)
            return share_fail(share, error, err, "looking for %s", parts[i].path);
    }
    return 1;
}

/* ---- users ---- */

int users_touch(struct area *area, const char *id, const char *node, struct err *err)
{
    struct share_fh dir, file;
    struct share_set set = {.mask = SHARE_SET_MODE, .mode = OURS_ONLY};
    struct share_set now = {.mask = SHARE_SET_MTIME_NOW};
    struct share *share = area->share;
    auto_free char *name = handle_id_of_name(node);
    int error = share_lookup(share, &area->users, id, &dir, NULL);
    if (error == ENOENT)
        error = share_mkdir(share, &area->users, id, &set, &dir, NULL);
    if (error == EEXIST)
        error = share_lookup(share, &area->users, id, &dir, NULL);
    if (error == 0)
        error = share_create(share, &dir, name, false, &(struct share_set){.mask = SHARE_SET_MODE, .mode = 0600}, &file,
                             NULL);
    if (error == 0)
        error = share_setattr(share, &file, &now, NULL);
    return error == 0 ? 0 : share_fail(share, error, err, "noting that node %s uses volume %s", node, id);
}

int users_remove(struct area *area, const char *id, const char *node, struct err *err)
{
    struct share_fh dir;
    struct share *share = area->share;
    auto_free char *name = handle_id_of_name(node);
    int error = share_lookup(share, &area->users, id, &dir, NULL);
    if (error == 0)
        error = share_unlink(share, &dir, name);
    if (error == 0)
        error = share_rmdir(share, &area->users, id);
    if (error == 0 || error == ENOENT || error == ENOTEMPTY || error == EEXIST)
        return 0;
    return share_fail(share, error, err, "noting that node %s no longer uses volume %s", node, id);
}

/* The server's clock: ours may be wrong. */
static int server_time(struct area *area, time_t *now)
{
    struct share_attr attr;
    int error = share_setattr(area->share, &area->users, &(struct share_set){.mask = SHARE_SET_MTIME_NOW}, &attr);
    if (error == 0 && attr.type == 0)
        error = share_getattr(area->share, &area->users, &attr);
    *now = attr.mtime.tv_sec;
    return error;
}

int users_list(struct area *area, const char *id, struct strv *nodes, struct err *err)
{
    struct share_fh dir;
    time_t now = 0;
    auto_page struct share_page page = {0};
    int error = share_lookup(area->share, &area->users, id, &dir, NULL);
    if (error == ENOENT)
        return 0;
    if (error == 0)
        error = server_time(area, &now);
    while (error == 0 && !page.eof) {
        error = share_readdir(area->share, &dir, 8192, &page);
        for (size_t i = 0; error == 0 && i < page.len; i++) {
            struct share_attr attr = page.items[i].attr;
            if (!page.items[i].has_attr && share_lookup(area->share, &dir, page.items[i].name, NULL, &attr) != 0)
                continue;
            if (attr.mtime.tv_sec + USER_STALE > now)
                strv_add(nodes, page.items[i].name);
        }
    }
    return error == 0 || error == ENOENT ? 0 : share_fail(area->share, error, err, "looking who uses volume %s", id);
}

int users_forget(struct area *area, const char *id, struct err *err)
{
    struct share_fh dir;
    auto_page struct share_page page = {0};
    int error = share_lookup(area->share, &area->users, id, &dir, NULL);
    while (error == 0 && !page.eof) {
        error = share_readdir(area->share, &dir, 8192, &page);
        for (size_t i = 0; error == 0 && i < page.len; i++)
            error = share_unlink(area->share, &dir, page.items[i].name);
    }
    if (error == 0)
        error = share_rmdir(area->share, &area->users, id);
    return error == 0 || error == ENOENT ? 0 : share_fail(area->share, error, err, "forgetting who used volume %s", id);
}
