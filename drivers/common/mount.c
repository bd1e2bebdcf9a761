/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/mount.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOUNTINFO_LIMIT ((size_t)64 << 20)

void mount_list_free(struct mount_list *list)
{
    for (size_t i = 0; i < list->len; i++) {
        struct mount_entry *entry = &list->items[i];
        free(entry->mount_point);
        free(entry->root);
        free(entry->fs_type);
        free(entry->source);
        free(entry->options);
    }
    free(list->items);
    *list = (struct mount_list){0};
}

/* mountinfo writes blanks, tabs, newlines and backslashes as \ooo. */
static char *unescape(const char *text)
{
    struct str out = {0};
    str_reserve(&out, strlen(text));
    for (const char *p = text; *p != '\0'; p++) {
        if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' && p[3] >= '0' && p[3] <= '7') {
            str_add_char(&out, (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0')));
            p += 3;
        } else {
            str_add_char(&out, *p);
        }
    }
    return str_take(&out);
}

/* "36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/root rw" */
static bool parse_line(const char *line, struct mount_entry *entry)
{
    auto_strv struct strv fields = {0};
    strv_split(&fields, line, ' ');
    size_t dash = 6;
    while (dash < fields.len && strcmp(fields.items[dash], "-") != 0)
        dash++;
    if (dash + 2 >= fields.len || sscanf(fields.items[2], "%u:%u", &entry->major, &entry->minor) != 2)
        return false;
    entry->root = unescape(fields.items[3]);
    entry->mount_point = unescape(fields.items[4]);
    entry->options = mem_strdup(fields.items[5]);
    entry->read_only = str_starts(entry->options, "ro,") || strcmp(entry->options, "ro") == 0;
    entry->fs_type = unescape(fields.items[dash + 1]);
    entry->source = unescape(fields.items[dash + 2]);
    return true;
}

int mount_list_read(struct mount_list *list, struct err *err)
{
    auto_free char *text = NULL;
    size_t len = 0;
    if (file_read("/proc/self/mountinfo", MOUNTINFO_LIMIT, &text, &len, err) < 0)
        return -1;
    auto_strv struct strv lines = {0};
    strv_split(&lines, text, '\n');
    list->items = mem_calloc(lines.len + 1, sizeof(*list->items));
    for (size_t i = 0; i < lines.len; i++)
        if (parse_line(lines.items[i], &list->items[list->len]))
            list->len++;
    return 0;
}

const struct mount_entry *mount_list_find(const struct mount_list *list, const char *path)
{
    auto_free char *resolved = mount_path_resolve(path);
    for (size_t i = list->len; i > 0; i--) /* later lines lie on top of earlier ones */
        if (strcmp(list->items[i - 1].mount_point, resolved) == 0)
            return &list->items[i - 1];
    return NULL;
}

int mount_is_point(const char *path, bool *mounted, struct err *err)
{
    auto_mounts struct mount_list list = {0};
    if (mount_list_read(&list, err) < 0)
        return -1;
    *mounted = mount_list_find(&list, path) != NULL;
    return 0;
}

/* What a bind mount can have of its own; the rest belongs to the file system below. */
#define BIND_FLAGS                                                                                                     \
    (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME |        \
     MS_NOSYMFOLLOW)

int mount_make_read_only(const char *path, unsigned long flags, struct err *err)
{
    if (mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | (flags & BIND_FLAGS), NULL) != 0)
        return err_set_errno(err, errno, "making %s read-only", path);
    return 0;
}

int mount_bind_flags(const char *source, const char *target, unsigned long flags, struct err *err)
{
    const unsigned long own = BIND_FLAGS;
    if (mount(source, target, NULL, MS_BIND, NULL) != 0)
        return err_set_errno(err, errno, "bind mount of %s on %s", source, target);
    if ((flags & own) != 0 && mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | (flags & own), NULL) != 0) {
        int error = errno;
        umount2(target, MNT_DETACH);
        return err_set_errno(err, error, "setting the mount options of %s", target);
    }
    return 0;
}

int mount_bind(const char *source, const char *target, bool read_only, struct err *err)
{
    return mount_bind_flags(source, target, read_only ? MS_RDONLY : 0, err);
}

int mount_remove(const char *path, struct err *err)
{
    for (int layers = 0; layers < 64; layers++) {
        auto_mounts struct mount_list list = {0};
        if (mount_list_read(&list, err) < 0)
            return -1;
        if (mount_list_find(&list, path) == NULL)
            return 0;
        if (umount2(path, UMOUNT_NOFOLLOW) == 0)
            continue;
        if (errno == EINVAL || errno == ENOENT) /* somebody else was faster */
            continue;
        if (umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) != 0)
            return err_set_errno(err, errno, "unmounting %s", path);
    }
    return err_set(err, ERR_IO, "unmounting %s: more than 64 mounts are stacked on it", path);
}

int mount_target_make(const char *path, bool directory, struct err *err)
{
    struct stat st;
    if (directory) {
        if (mkdir(path, 0750) != 0 && errno != EEXIST)
            return err_set_errno(err, errno, "making target directory %s", path);
    } else {
        auto_close int fd = open(path, O_CREAT | O_WRONLY | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
        if (fd < 0 && errno != EEXIST)
            return err_set_errno(err, errno, "making target file %s", path);
    }
    /* what is there already must be of the right kind; a symlink is never taken */
    if (lstat(path, &st) != 0)
        return err_set_errno(err, errno, "target path %s", path);
    if (directory ? !S_ISDIR(st.st_mode) : !(S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
        return err_set(err, ERR_EXISTS, "target path %s exists and is not a %s", path,
                       directory ? "directory" : "file");
    return 0;
}

int mount_target_remove(const char *path, struct err *err)
{
    struct stat st;
    if (mount_remove(path, err) < 0)
        return -1;
    if (lstat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_set_errno(err, errno, "target path %s", path);
    if (S_ISREG(st.st_mode) && st.st_size > 0) /* none that mount_target_make made */
        return err_set(err, ERR_IO, "removing target path %s: it is a file with contents", path);
    if (S_ISDIR(st.st_mode) ? rmdir(path) != 0 : unlink(path) != 0)
        return errno == ENOENT ? 0 : err_set_errno(err, errno, "removing target path %s", path);
    return 0;
}

char *mount_path_resolve(const char *path)
{
    auto_free char *copy = mem_strdup(path);
    size_t len = strlen(copy);
    while (len > 1 && copy[len - 1] == '/')
        copy[--len] = '\0';
    char *slash = strrchr(copy, '/');
    if (slash == NULL || slash[1] == '\0')
        return mem_take(copy);
    *slash = '\0';
    char *parent = realpath(slash == copy ? "/" : copy, NULL);
    *slash = '/';
    if (parent == NULL)
        return mem_take(copy);
    char *resolved = mem_printf("%s%s", strcmp(parent, "/") == 0 ? "" : parent, slash);
    free(parent);
    return resolved;
}

bool mount_path_is_safe(const char *path)
{
    /* an unmount of the root would make the machine's file system read-only */
    if (path == NULL || path[0] != '/' || strlen(path) >= PATH_MAX || path[strspn(path, "/")] == '\0')
        return false;
    for (const char *p = path; p != NULL; p = strchr(p, '/')) {
        p++;
        size_t len = strcspn(p, "/");
        if ((len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return false;
    }
    return true;
}
