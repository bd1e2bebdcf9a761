/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/room.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A file that was closed and removed a moment ago is freed by calls that are still under way. */
#define ORPHAN_PATIENCE (200 * CLOCK_MS)
#define SHORT_PATIENCE (20 * CLOCK_MS) /* if somebody has waited in vain a moment ago */
#define IN_VAIN (2 * CLOCK_SECOND)
#define FEW_BLOCKS 4
#define COMFORT ((int64_t)1 << 20)

/* ---- holes ---- */

struct span {
    int64_t start, end;
};

/* The first allocated span at or after `from`; start = end = limit when there is none before limit. Space that was
 * preallocated and never written is allocated too, which SEEK_DATA would not say. */
static int next_allocated(int fd, int64_t from, int64_t limit, struct span *span)
{
    union {
        struct fiemap map;
        unsigned char space[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
    } query = {.map = {.fm_start = (uint64_t)from, .fm_length = (uint64_t)(limit - from), .fm_extent_count = 1}};
    *span = (struct span){limit, limit};
    if (ioctl(fd, FS_IOC_FIEMAP, &query.map) != 0)
        return -errno;
    if (query.map.fm_mapped_extents > 0) {
        const struct fiemap_extent *extent = &query.map.fm_extents[0];
        int64_t start = (int64_t)extent->fe_logical, end = start + (int64_t)extent->fe_length;
        *span = (struct span){start > from ? start : from, end < limit ? end : limit};
    }
    return 0;
}

static int next_data(int fd, int64_t from, int64_t limit, struct span *span)
{
    *span = (struct span){limit, limit};
    int64_t start = lseek(fd, from, SEEK_DATA);
    if (start < 0)
        return errno == ENXIO ? 0 : -errno;
    int64_t end = lseek(fd, start, SEEK_HOLE);
    if (start < limit)
        *span = (struct span){start, end >= 0 && end < limit ? end : limit};
    return 0;
}

int64_t room_count_holes(int fd, int64_t offset, int64_t length, int64_t room, int64_t *holes)
{
    int64_t first = offset / ACCOUNT_BLOCK * ACCOUNT_BLOCK;
    int64_t limit = first + account_bound(offset, length);
    *holes = 0;
    for (int64_t at = first; at < limit;) {
        struct span span;
        int result = next_allocated(fd, at, limit, &span);
        if (result == -EOPNOTSUPP || result == -ENOTTY)
            result = next_data(fd, at, limit, &span);
        if (result < 0) /* nothing known: count all of it as holes */
            span = (struct span){limit, limit};
        /* whole blocks only: half a block that is allocated is an allocated block */
        int64_t start = span.start / ACCOUNT_BLOCK * ACCOUNT_BLOCK;
        int64_t end = (span.end + ACCOUNT_BLOCK - 1) / ACCOUNT_BLOCK * ACCOUNT_BLOCK;
        if (start > at && start - at > room - *holes) {
            int64_t blocks = room > *holes ? (room - *holes) / ACCOUNT_BLOCK : 0;
            *holes += blocks * ACCOUNT_BLOCK;
            int64_t reach = at + blocks * ACCOUNT_BLOCK - offset;
            return reach > 0 ? reach : 0;
        }
        if (start > at)
            *holes += start - at;
        at = end > at ? end : limit;
    }
    return length;
}

/* ---- data ---- */

static int look_at_charge(struct node *node, int fd)
{
    struct stat st;
    if (node->charged >= 0)
        return 0;
    if (fstat(fd, &st) != 0)
        return -errno;
    node->charged = volume_bytes(&st);
    return 0;
}

/* Waits a moment for space that is about to be freed. */
static bool wait_for_orphans(struct volume *volume, uint64_t *seen, int64_t deadline)
{
    int64_t now = clock_mono(volume->clock);
    if (!node_has_orphans(&volume->nodes))
        return false;
    if (now - atomic_load(&volume->waited_at) < IN_VAIN && deadline > now + SHORT_PATIENCE)
        deadline = now + SHORT_PATIENCE;
    /* one only: somebody has to serve the calls that free it */
    bool freed = false;
    if (atomic_fetch_add(&volume->waiting, 1) == 0) {
        freed = account_wait_freed(&volume->account, volume->clock, seen, deadline);
        if (!freed) /* those orphans are open and stay so */
            atomic_store(&volume->waited_at, clock_mono(volume->clock));
    }
    atomic_fetch_sub(&volume->waiting, 1);
    return freed;
}

static int64_t exact_room(struct volume *volume, int fd, int64_t offset, int64_t length, bool partial,
                          int64_t *reserved)
{
    int64_t deadline = clock_mono(volume->clock) + ORPHAN_PATIENCE;
    uint64_t seen = account_freed(&volume->account);
    do {
        account_enter(&volume->account, true);
        int64_t room = account_room(&volume->account);
        int64_t reach = room_count_holes(fd, offset, length, room > 0 ? room : 0, reserved);
        if ((reach == length || (partial && reach > 0)) && account_reserve(&volume->account, *reserved))
            return reach;
        account_leave(&volume->account);
    } while (wait_for_orphans(volume, &seen, deadline));
    return -ENOSPC;
}

int64_t room_for_data(struct volume *volume, struct node *node, int fd, int64_t offset, int64_t length, bool partial,
                      int64_t *reserved)
{
    int result = look_at_charge(node, fd);
    if (result < 0)
        return result;
    *reserved = account_bound(offset, length);
    account_enter(&volume->account, false);
    if (account_reserve(&volume->account, *reserved))
        return length;
    account_leave(&volume->account);
    return exact_room(volume, fd, offset, length, partial, reserved);
}

void room_used_data(struct volume *volume, struct node *node, int fd, int64_t reserved, struct stat *st)
{
    struct stat own;
    int64_t delta = 0;
    if (st == NULL)
        st = &own;
    if (fstat(fd, st) == 0) {
        delta = volume_bytes(st) - node->charged;
        node->charged += delta;
        if (delta != 0) {
            node->changed_at = clock_mono(volume->clock);
            /* few blocks need no block that describes them */
            if (node->charged > FEW_BLOCKS * ACCOUNT_BLOCK)
                node_watch(&volume->nodes, node, true);
        }
    }
    account_settle(&volume->account, reserved, delta);
    account_leave(&volume->account);
}

int room_for_less(struct volume *volume, struct node *node, int fd)
{
    int result = look_at_charge(node, fd);
    if (result == 0)
        account_enter(&volume->account, false);
    return result;
}

/* ---- new files ---- */

static bool enter_with(struct volume *volume, bool exclusive, int64_t bytes, int64_t slack)
{
    account_enter(&volume->account, exclusive);
    if (account_room(&volume->account) >= -slack && account_reserve(&volume->account, bytes))
        return true;
    account_leave(&volume->account);
    return false;
}

static int enter_for_new(struct volume *volume, int64_t bytes, int64_t slack)
{
    /* near the limit alone, so that what others have reserved for a moment makes nothing fail */
    if (account_room(&volume->account) > bytes + COMFORT && enter_with(volume, false, bytes, slack))
        return 0;
    int64_t deadline = clock_mono(volume->clock) + ORPHAN_PATIENCE;
    uint64_t seen = account_freed(&volume->account);
    do {
        if (enter_with(volume, true, bytes, slack))
            return 0;
    } while (wait_for_orphans(volume, &seen, deadline));
    return -ENOSPC;
}

int room_for_new(struct volume *volume, int64_t bytes, bool inode, int64_t slack)
{
    if (inode && !account_reserve_inode(&volume->account))
        return -ENOSPC;
    int result = enter_for_new(volume, bytes, slack);
    if (result < 0 && inode)
        account_release_inode(&volume->account);
    return result;
}

bool room_fits(struct volume *volume, int64_t reserved, int64_t delta)
{
    return delta <= reserved || account_room(&volume->account) >= delta - reserved;
}

void room_leave(struct volume *volume, int64_t reserved, int64_t delta)
{
    account_settle(&volume->account, reserved, delta);
    account_note_change(&volume->account);
    account_leave(&volume->account);
}

void room_undo(struct volume *volume, int64_t reserved, int64_t delta, bool inode)
{
    if (inode)
        account_release_inode(&volume->account);
    room_leave(volume, reserved, delta);
}
