/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/mem.h"

#include <stdio.h>
#include <string.h>

static size_t hash(const struct share_fh *fh)
{
    uint64_t value = 14695981039346656037ULL; /* FNV-1a */
    for (uint32_t i = 0; i < fh->len; i++)
        value = (value ^ (unsigned char)fh->data[i]) * 1099511628211ULL;
    return (size_t)value;
}

void inode_table_init(struct inode_table *table, const struct share_fh *root)
{
    *table = (struct inode_table){.bucket_count = 256};
    pthread_mutex_init(&table->mutex, NULL);
    table->buckets = mem_calloc(table->bucket_count, sizeof(struct inode *));
    table->root.fh = *root;
    table->root.type = SHARE_DIRECTORY;
    table->root.lookups = 1;
}

static void inode_free(struct inode *inode)
{
    free(inode->silly);
    free(inode);
}

void inode_table_clear(struct inode_table *table)
{
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct inode *inode = table->buckets[i], *next; inode != NULL; inode = next) {
            next = inode->next;
            inode_free(inode);
        }
    free(table->buckets);
    pthread_mutex_destroy(&table->mutex);
}

/* A number is the address: the kernel uses it only while it remembers the inode. */
struct inode *inode_of(struct inode_table *table, fuse_ino_t number)
{
    return number == FUSE_ROOT_ID ? &table->root : (struct inode *)(uintptr_t)number;
}

fuse_ino_t inode_number(struct inode_table *table, const struct inode *inode)
{
    return inode == &table->root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)inode;
}

static struct inode *find(struct inode_table *table, const struct share_fh *fh)
{
    if (share_fh_equal(&table->root.fh, fh))
        return &table->root;
    struct inode *inode = table->buckets[hash(fh) & (table->bucket_count - 1)];
    while (inode != NULL && !share_fh_equal(&inode->fh, fh))
        inode = inode->next;
    return inode;
}

static void grow(struct inode_table *table)
{
    const size_t count = table->bucket_count * 2; /* a power of two, as at the start */
    struct inode **buckets = mem_calloc(count, sizeof(struct inode *));
    for (size_t i = 0; i < table->bucket_count; i++)
        for (struct inode *inode = table->buckets[i], *next; inode != NULL; inode = next) {
            struct inode **to = &buckets[hash(&inode->fh) & (count - 1)];
            next = inode->next;
            inode->next = *to;
            *to = inode;
        }
    free(table->buckets);
    table->buckets = buckets;
    table->bucket_count = count;
}

struct inode *inode_remember(struct inode_table *table, const struct share_fh *fh, const struct share_attr *attr)
{
    pthread_mutex_lock(&table->mutex);
    struct inode *inode = find(table, fh);
    if (inode == NULL) {
        if (table->count >= table->bucket_count * 2)
            grow(table);
        struct inode **bucket = &table->buckets[hash(fh) & (table->bucket_count - 1)];
        inode = mem_new(struct inode);
        inode->fh = *fh;
        inode->type = attr->type;
        inode->used = attr->used;
        inode->next = *bucket;
        *bucket = inode;
        table->count++;
    }
    inode->lookups++;
    pthread_mutex_unlock(&table->mutex);
    return inode;
}

/* Not while it is open: the kernel releases a file before it forgets the inode, but the answer to a release may come
 * later than the forget. */
static void drop_if_unused(struct inode_table *table, struct inode *inode)
{
    if (inode == &table->root || inode->lookups > 0 || inode->opens > 0)
        return;
    struct inode **at = &table->buckets[hash(&inode->fh) & (table->bucket_count - 1)];
    while (*at != inode)
        at = &(*at)->next;
    *at = inode->next;
    table->count--;
    inode_free(inode);
}

void inode_forget(struct inode_table *table, fuse_ino_t number, uint64_t lookups)
{
    pthread_mutex_lock(&table->mutex);
    struct inode *inode = inode_of(table, number);
    inode->lookups -= lookups < inode->lookups ? lookups : inode->lookups;
    drop_if_unused(table, inode);
    pthread_mutex_unlock(&table->mutex);
}

unsigned inode_opens(struct inode_table *table, const struct share_fh *fh)
{
    pthread_mutex_lock(&table->mutex);
    const struct inode *inode = find(table, fh);
    unsigned opens = inode != NULL ? inode->opens : 0;
    pthread_mutex_unlock(&table->mutex);
    return opens;
}

bool inode_set_silly(struct inode_table *table, const struct share_fh *fh, const struct share_fh *dir, const char *name)
{
    pthread_mutex_lock(&table->mutex);
    struct inode *inode = find(table, fh);
    bool open = inode != NULL && inode->opens > 0;
    if (open) {
        if (inode->silly == NULL)
            inode->silly = mem_new(struct silly);
        inode->silly->dir = *dir;
        snprintf(inode->silly->name, sizeof(inode->silly->name), "%s", name);
    }
    pthread_mutex_unlock(&table->mutex);
    return open;
}

void inode_open(struct inode_table *table, struct inode *inode)
{
    pthread_mutex_lock(&table->mutex);
    inode->opens++;
    pthread_mutex_unlock(&table->mutex);
}

void inode_close(struct inode_table *table, struct inode *inode, struct silly **silly)
{
    pthread_mutex_lock(&table->mutex);
    *silly = NULL;
    if (--inode->opens == 0) {
        *silly = inode->silly;
        inode->silly = NULL;
        drop_if_unused(table, inode);
    }
    pthread_mutex_unlock(&table->mutex);
}

int64_t inode_set_used(struct inode_table *table, struct inode *inode, uint64_t used)
{
    pthread_mutex_lock(&table->mutex);
    int64_t change = (int64_t)used - (int64_t)inode->used;
    inode->used = used;
    pthread_mutex_unlock(&table->mutex);
    return change;
}
