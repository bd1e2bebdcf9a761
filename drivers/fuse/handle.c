/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/handle.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT_NODE 1
#define FILEID_INO32_GEN 1 /* the kernel's name for {inode number, generation} of 32 bits each */
#define FIRST_SLOTS 64

struct known { /* a remembered handle */
    struct known *next;
    uint64_t node_id;
    uint64_t lookups;
    uint32_t length;
    int32_t type;
    unsigned char bytes[];
};

struct handles {
    int root_fd;
    int mount_id;
    int32_t exact_type;
    bool exact;
    pthread_mutex_t lock;
    struct known **slots; /* a power of two of chains; NULL when exact */
    size_t slot_count, count;
};

bool handle_is_exact(const struct handle *handle)
{
    return handle->type == FILEID_INO32_GEN && handle->length == 8;
}

uint64_t handle_node_id(const struct handle *handle)
{
    uint64_t id;
    if (handle_is_exact(handle)) {
        memcpy(&id, handle->bytes, sizeof(id));
    } else {
        id = 14695981039346656037U ^ (uint32_t)handle->type; /* FNV-1a, then mixed */
        for (uint32_t i = 0; i < handle->length; i++)
            id = (id ^ handle->bytes[i]) * 1099511628211U;
        id ^= id >> 32;
        id *= 0x9e3779b97f4a7c15U;
        id ^= id >> 29;
    }
    return id > ROOT_NODE ? id : id | (uint64_t)1 << 63;
}

void handle_from_node_id(uint64_t node_id, int32_t type, struct handle *handle)
{
    handle->type = type;
    handle->length = sizeof(node_id);
    memcpy(handle->bytes, &node_id, sizeof(node_id));
}

/* The kernel's form of a handle. */
union kernel_handle {
    struct file_handle head;
    unsigned char space[sizeof(struct file_handle) + HANDLE_MAX];
};

static int handle_get(int dir_fd, const char *name, struct handle *handle, int *mount_id)
{
    union kernel_handle kernel = {.space = {0}};
    kernel.head.handle_bytes = HANDLE_MAX;
    if (name_to_handle_at(dir_fd, name, &kernel.head, mount_id, *name == '\0' ? AT_EMPTY_PATH : 0) != 0)
        return -errno;
    handle->length = kernel.head.handle_bytes;
    handle->type = kernel.head.handle_type;
    memcpy(handle->bytes, kernel.space + sizeof(struct file_handle), kernel.head.handle_bytes);
    return 0;
}

static int handle_open(int root_fd, const struct handle *handle, int flags)
{
    union kernel_handle kernel;
    kernel.head.handle_bytes = handle->length;
    kernel.head.handle_type = handle->type;
    memcpy(kernel.space + sizeof(struct file_handle), handle->bytes, handle->length);
    int fd = open_by_handle_at(root_fd, &kernel.head, flags | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

struct handles *handles_new(int root_fd, struct err *err)
{
    struct handle root = {0};
    int mount_id = 0;
    int result = handle_get(root_fd, "", &root, &mount_id);
    if (result < 0) {
        err_set_errno(err, -result,
                      "the volume's file system has no file handles, which the fuse backend needs (another directory "
                      "or backend would do)");
        return NULL;
    }
    auto_close int fd = handle_open(root_fd, &root, O_PATH | O_DIRECTORY);
    if (fd < 0) {
        err_set_errno(err, -fd, "opening the volume by its file handle (CAP_DAC_READ_SEARCH is needed)");
        return NULL;
    }
    struct handles *handles = mem_new(struct handles);
    pthread_mutex_init(&handles->lock, NULL);
    handles->root_fd = root_fd;
    handles->mount_id = mount_id;
    handles->exact = handle_is_exact(&root);
    handles->exact_type = root.type;
    if (!handles->exact) {
        handles->slot_count = FIRST_SLOTS;
        handles->slots = mem_calloc(FIRST_SLOTS, sizeof(struct known *));
    }
    return handles;
}

void handles_free(struct handles *handles)
{
    if (handles == NULL)
        return;
    for (size_t i = 0; i < handles->slot_count; i++)
        for (struct known *known = handles->slots[i], *next; known != NULL; known = next) {
            next = known->next;
            free(known);
        }
    free(handles->slots);
    pthread_mutex_destroy(&handles->lock);
    free(handles);
}

bool handles_are_exact(const struct handles *handles)
{
    return handles->exact;
}

/* ---- remembered handles (lock held) ---- */

static struct known **known_place(struct handles *handles, uint64_t node_id)
{
    struct known **place = &handles->slots[node_id & (handles->slot_count - 1)];
    while (*place != NULL && (*place)->node_id != node_id)
        place = &(*place)->next;
    return place;
}

static void known_grow(struct handles *handles)
{
    size_t old_count = handles->slot_count;
    struct known **old = handles->slots;
    handles->slot_count = old_count * 2;
    handles->slots = mem_calloc(handles->slot_count, sizeof(struct known *));
    for (size_t i = 0; i < old_count; i++)
        for (struct known *known = old[i], *next; known != NULL; known = next) {
            struct known **place = &handles->slots[known->node_id & (handles->slot_count - 1)];
            next = known->next;
            known->next = *place;
            *place = known;
        }
    free(old);
}

static void known_add(struct handles *handles, uint64_t node_id, const struct handle *handle, uint64_t lookups)
{
    pthread_mutex_lock(&handles->lock);
    struct known **place = known_place(handles, node_id);
    if (*place == NULL) {
        struct known *known = mem_alloc(sizeof(*known) + handle->length);
        *known = (struct known){.node_id = node_id, .length = handle->length, .type = handle->type};
        memcpy(known->bytes, handle->bytes, handle->length);
        *place = known;
        (*place)->lookups = lookups;
        if (++handles->count > handles->slot_count)
            known_grow(handles);
    } else {
        (*place)->lookups += lookups;
    }
    pthread_mutex_unlock(&handles->lock);
}

static bool known_find(struct handles *handles, uint64_t node_id, struct handle *handle)
{
    pthread_mutex_lock(&handles->lock);
    const struct known *known = *known_place(handles, node_id);
    if (known != NULL) {
        handle->length = known->length;
        handle->type = known->type;
        memcpy(handle->bytes, known->bytes, known->length);
    }
    pthread_mutex_unlock(&handles->lock);
    return known != NULL;
}

/* ---- both kinds ---- */

static int identify(struct handles *handles, int dir_fd, const char *name, struct handle *handle, uint64_t *node_id)
{
    int mount_id = 0;
    int result = handle_get(dir_fd, name, handle, &mount_id);
    if (result < 0)
        return result;
    if (mount_id != handles->mount_id)
        return -EXDEV;
    if (handle_is_exact(handle) != handles->exact)
        return -EOPNOTSUPP;
    *node_id = handle_node_id(handle);
    return 0;
}

int handles_identify(struct handles *handles, int dir_fd, const char *name, uint64_t lookups, uint64_t *node_id)
{
    struct handle handle = {0};
    int result = identify(handles, dir_fd, name, &handle, node_id);
    if (result == 0 && lookups > 0 && !handles->exact)
        known_add(handles, *node_id, &handle, lookups);
    return result;
}

int handles_read(struct handles *handles, int dir_fd, const char *name, struct handle *handle)
{
    uint64_t node_id;
    return identify(handles, dir_fd, name, handle, &node_id);
}

int handles_open_handle(struct handles *handles, const struct handle *handle, int flags)
{
    return handle_open(handles->root_fd, handle, flags);
}

int handles_recover(struct handles *handles, int dir_fd, const char *name)
{
    struct handle handle = {0};
    uint64_t node_id;
    int result = identify(handles, dir_fd, name, &handle, &node_id);
    if (result == 0 && !handles->exact)
        known_add(handles, node_id, &handle, 0);
    return result;
}

/* ext4 takes generation 0 for "any": an inode whose own generation is 0 has to be looked at again. */
static bool is_same(const struct handle *wanted, int fd)
{
    struct handle found = {0};
    int mount_id = 0;
    uint32_t generation = 0;
    memcpy(&generation, wanted->bytes + 4, sizeof(generation));
    if (!handle_is_exact(wanted) || generation != 0)
        return true;
    return handle_get(fd, "", &found, &mount_id) == 0 && handle_node_id(&found) == handle_node_id(wanted);
}

int handles_open(struct handles *handles, uint64_t node_id, int flags)
{
    struct handle handle = {0};
    if (node_id == ROOT_NODE) {
        int fd = openat(handles->root_fd, ".", flags | O_CLOEXEC);
        return fd >= 0 ? fd : -errno;
    }
    if (handles->exact)
        handle_from_node_id(node_id, handles->exact_type, &handle);
    else if (!known_find(handles, node_id, &handle))
        return -ESTALE;
    int fd = handle_open(handles->root_fd, &handle, flags);
    if (fd >= 0 && !is_same(&handle, fd)) {
        close(fd);
        return -ESTALE;
    }
    return fd;
}

void handles_forget(struct handles *handles, uint64_t node_id, uint64_t lookups)
{
    if (handles->exact)
        return;
    pthread_mutex_lock(&handles->lock);
    struct known **place = known_place(handles, node_id);
    struct known *known = *place;
    if (known != NULL && known->lookups > lookups) {
        known->lookups -= lookups;
    } else if (known != NULL) {
        *place = known->next;
        handles->count--;
        free(known);
    }
    pthread_mutex_unlock(&handles->lock);
}
