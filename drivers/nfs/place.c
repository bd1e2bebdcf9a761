/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow tree; see area.h. Elements of volume paths hold no '#', so our files cannot clash with them. */
#include "drivers/nfs/area.h"

#include "drivers/nfs/handle.h"
#include "lib/base/mem.h"

#include <errno.h>

#define MADE "#made"
#define TENANT "#v#"
#define PAGE_BYTES 16384U

/* Done, or somebody else has done it: a directory that went after its handle was got is stale. */
static bool gone(int error)
{
    return error == 0 || error == ENOENT || error == ESTALE;
}

static char *shadow(const char *path)
{
    return mem_printf(RESERVED_DIRECTORY "/tree/%s", path);
}

static int put_file(struct area *area, const char *path, const char *name, struct err *err)
{
    auto_free char *place = shadow(path);
    struct share_fh dir;
    int error = ENOENT;
    /* somebody who prunes may take the directory away between the two steps */
    for (int tries = 0; error == ENOENT && tries < 20; tries++) {
        if (share_make_path(area->share, place, 0700, &dir, err) < 0)
            return -1;
        error = share_create(area->share, &dir, name, false, &(struct share_set){.mask = SHARE_SET_MODE, .mode = 0600},
                             NULL, NULL);
        if (error == ESTALE)
            error = ENOENT;
    }
    return error == 0 ? 0 : share_fail(area->share, error, err, "making %s/%s", place, name);
}

static int drop_file(struct area *area, const char *path, const char *name, struct err *err)
{
    auto_free char *place = shadow(path);
    struct share_fh dir;
    int error = share_walk(area->share, place, &dir, NULL);
    if (error == 0)
        error = share_unlink(area->share, &dir, name);
    return gone(error) ? 0 : share_fail(area->share, error, err, "removing %s/%s", place, name);
}

int place_claim(struct area *area, const char *path, const char *id, struct err *err)
{
    auto_free char *name = mem_printf(TENANT "%s", id);
    return put_file(area, path, name, err);
}

int place_release(struct area *area, const char *path, const char *id, struct err *err)
{
    auto_free char *name = mem_printf(TENANT "%s", id);
    return drop_file(area, path, name, err);
}

int place_mark_made(struct area *area, const char *path, struct err *err)
{
    return put_file(area, path, MADE, err);
}

int place_unmark_made(struct area *area, const char *path, struct err *err)
{
    return drop_file(area, path, MADE, err);
}

void place_clear(struct place *place)
{
    strv_free(&place->others);
    strv_free(&place->below);
    *place = (struct place){0};
}

/* Volumes anywhere below `dir`; at most a few are wanted. */
static int look_below(struct area *area, const struct share_fh *dir, int depth, struct strv *below)
{
    auto_page struct share_page page = {0};
    int error = 0;
    while (error == 0 && !page.eof && below->len < 3) {
        error = share_readdir(area->share, dir, PAGE_BYTES, &page);
        for (size_t i = 0; error == 0 && i < page.len && below->len < 3; i++) {
            struct share_entry *entry = &page.items[i];
            if (str_starts(entry->name, TENANT))
                strv_add(below, entry->name + strlen(TENANT));
            if (entry->name[0] == '#')
                continue;
            struct share_fh sub = entry->fh;
            error = entry->has_fh ? 0 : share_lookup(area->share, dir, entry->name, &sub, NULL);
            if (error == 0 && depth < 512)
                error = look_below(area, &sub, depth + 1, below);
            if (error == ENOENT || error == ENOTDIR || error == ESTALE)
                error = 0;
        }
    }
    return error;
}

static int look_here(struct area *area, const struct share_fh *dir, const char *id, struct place *place)
{
    auto_page struct share_page page = {0};
    int error = 0;
    while (error == 0 && !page.eof) {
        error = share_readdir(area->share, dir, PAGE_BYTES, &page);
        for (size_t i = 0; error == 0 && i < page.len; i++) {
            struct share_entry *entry = &page.items[i];
            if (str_eq(entry->name, MADE)) {
                place->made = true;
            } else if (str_starts(entry->name, TENANT)) {
                if (str_eq(entry->name + strlen(TENANT), id))
                    place->claimed = true;
                else
                    strv_add(&place->others, entry->name + strlen(TENANT));
            } else if (entry->name[0] != '#') {
                struct share_fh sub = entry->fh;
                error = entry->has_fh ? 0 : share_lookup(area->share, dir, entry->name, &sub, NULL);
                if (error == 0)
                    error = look_below(area, &sub, 0, &place->below);
            }
        }
    }
    return error;
}

int place_look(struct area *area, const char *path, const char *id, struct place *place, struct err *err)
{
    auto_free char *name = shadow(path);
    struct share_fh dir;
    int error = share_walk(area->share, name, &dir, NULL);
    if (error == 0)
        error = look_here(area, &dir, id, place);
    return gone(error) ? 0 : share_fail(area->share, error, err, "looking who lives in %s", path);
}

/* 0 = the directory is gone (or was not ours to remove and nothing of ours is left), 1 = it stays. */
static int prune_one(struct area *area, const char *path, bool real, struct err *err)
{
    auto_place struct place place = {0};
    if (place_look(area, path, "", &place, err) < 0)
        return -1;
    if (place.others.len > 0 || place.below.len > 0)
        return 1;
    if (place.made && real) {
        struct share_fh parent;
        const char *name;
        int error = share_walk_parent(area->share, path, &parent, &name);
        if (error == 0)
            error = share_rmdir(area->share, &parent, name);
        if (error == ENOTEMPTY || error == EEXIST || error == ENOTDIR)
            return 1; /* something else is in it */
        if (!gone(error))
            return share_fail(area->share, error, err, "removing the empty directory %s", path);
    }
    if (place.made && drop_file(area, path, MADE, err) < 0)
        return -1;
    auto_free char *hidden = shadow(path);
    struct share_fh parent;
    const char *name;
    int error = share_walk_parent(area->share, hidden, &parent, &name);
    if (error == 0)
        error = share_rmdir(area->share, &parent, name);
    if (error == ENOTEMPTY || error == EEXIST)
        return 1;
    return gone(error) ? 0 : share_fail(area->share, error, err, "removing %s", hidden);
}

int place_prune(struct area *area, const char *path, struct err *err)
{
    auto_free char *at = mem_strdup(path);
    for (bool real = false;; real = true) {
        int stays = prune_one(area, at, real, err);
        if (stays != 0)
            return stays < 0 ? -1 : 0;
        char *slash = strrchr(at, '/');
        if (slash == NULL)
            return 0;
        *slash = '\0';
    }
}
