/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/listing.h"

#include "lib/base/mem.h"

#define TOKEN_PREFIX "after:"

void listing_clear(struct listing *listing)
{
    for (size_t i = 0; i < listing->len; i++)
        record_clear(&listing->items[i]);
    free(listing->items);
    *listing = (struct listing){0};
}

static char *copy_text(const char *text)
{
    return mem_strdup(text);
}

static int add(void *arg, const struct record *record, struct err *err)
{
    struct listing *listing = arg;
    (void)err;
    if (record->state != RECORD_READY)
        return 0;
    if (listing->len == listing->cap) {
        listing->cap = listing->cap == 0 ? 64 : listing->cap * 2;
        listing->items = mem_realloc_array(listing->items, listing->cap, sizeof(*listing->items));
    }
    struct record *copy = &listing->items[listing->len++];
    *copy = *record;
    copy->id = copy_text(record->id);
    copy->name = copy_text(record->name);
    copy->sub_dir = copy_text(record->sub_dir);
    copy->source_snapshot = copy_text(record->source_snapshot);
    copy->source_volume = copy_text(record->source_volume);
    copy->source_handle = copy_text(record->source_handle);
    copy->archive = copy_text(record->archive);
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct record *)a)->id, ((const struct record *)b)->id);
}

int listing_read(struct area *area, const struct share_fh *dir, struct listing *listing, struct err *err)
{
    if (record_each(area, dir, add, listing, err) < 0)
        return -1;
    if (listing->len > 1)
        qsort(listing->items, listing->len, sizeof(*listing->items), compare);
    return 0;
}

int listing_start(const struct listing *listing, const char *token, size_t *start, struct err *err)
{
    *start = 0;
    if (*token == '\0')
        return 0;
    if (!str_starts(token, TOKEN_PREFIX))
        return csi_fail(err, CSI_ABORTED, "starting_token \"%s\" is not one of this driver", token);
    /* the volume it names may be gone: what comes after it is well defined all the same */
    while (*start < listing->len && strcmp(listing->items[*start].id, token + strlen(TOKEN_PREFIX)) <= 0)
        ++*start;
    return 0;
}

int nfs_list_volumes(void *arg, const Csi__V1__ListVolumesRequest *request, Csi__V1__ListVolumesResponse *reply,
                     struct csi_call *call, struct err *err)
{
    struct nfs_driver *driver = arg;
    struct csi_arena *arena = csi_call_arena(call);
    auto_share struct share *share = NULL;
    auto_listing struct listing listing = {0};
    struct area area;
    if (driver->options.where.export == NULL)
        return csi_fail(err, CSI_UNIMPLEMENTED, "volumes are listed with --server and --share only");
    if (nfs_open_share(driver, &driver->options.where, call, &share, err) < 0)
        return -1;
    int found = area_find(share, &area, err);
    if (found < 0 || (found > 0 && listing_read(&area, &area.volumes, &listing, err) < 0))
        return -1;
    size_t start, count = 0;
    if (listing_start(&listing, request->starting_token, &start, err) < 0)
        return -1;
    for (size_t i = start; i < listing.len; i++, count++) {
        const struct record *record = &listing.items[i];
        if (request->max_entries > 0 && count == (size_t)request->max_entries) {
            reply->next_token = csi_arena_printf(arena, TOKEN_PREFIX "%s", listing.items[i - 1].id);
            break;
        }
        struct handle handle = {.where = driver->options.where,
                                .id = record->id,
                                .sub_dir = record->sub_dir,
                                .on_delete = record->on_delete};
        auto_free char *id = handle_build(&handle, err);
        if (id == NULL)
            return -1;
        Csi__V1__ListVolumesResponse__Entry *entry = CSI_ADD(arena, reply, entries);
        Csi__V1__Volume *volume = CSI_NEW(arena, entry, volume);
        volume->volume_id = csi_arena_strdup(arena, id);
        volume->capacity_bytes = record->capacity;
        Csi__V1__ListVolumesResponse__VolumeStatus *status = CSI_NEW(arena, entry, status);
        CSI_NEW(arena, status, volume_condition)->message = csi_arena_strdup(arena, "the server answers");
    }
    return 0;
}
