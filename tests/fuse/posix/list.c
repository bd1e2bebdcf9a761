/* SPDX-License-Identifier: Apache-2.0 */
/* Directories as they are read, and what is told about changes. */
#include "tests/fuse/posix/posix.h"

#include "lib/base/mem.h"

#include <dirent.h>
#include <poll.h>
#include <sys/inotify.h>

#define MANY 3000

static void make_many(int count)
{
    char name[32];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "file-%04d", i);
        EXPECT(close(open(name, O_CREAT | O_WRONLY, 0644)) == 0);
    }
}

static int number_of(const char *name)
{
    int number = -1;
    return sscanf(name, "file-%4d", &number) == 1 ? number : -1;
}

static void list_many(void)
{
    auto_free int *seen = mem_calloc(MANY, sizeof(*seen));
    int dots = 0;
    make_many(MANY);
    DIR *dir = opendir(".");
    EXPECT(dir != NULL);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        int number = number_of(entry->d_name);
        if (number >= 0) {
            seen[number]++;
            EXPECT(entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN);
        } else {
            dots += strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        }
    }
    for (int i = 0; i < MANY; i++)
        EXPECT(seen[i] == 1);
    EXPECT(dots == 2 && closedir(dir) == 0);
}

static void list_while_removing(void)
{
    int removed = 0;
    make_many(MANY);
    DIR *dir = opendir(".");
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (number_of(entry->d_name) >= 0) {
            EXPECT(unlink(entry->d_name) == 0);
            removed++;
        }
    EXPECT(removed == MANY && closedir(dir) == 0);
}

static void list_from_a_place(void)
{
    make_many(500);
    DIR *dir = opendir(".");
    char name[256];
    for (int i = 0; i < 200; i++)
        EXPECT(readdir(dir) != NULL);
    long place = telldir(dir);
    const struct dirent *entry = readdir(dir);
    EXPECT(entry != NULL && snprintf(name, sizeof(name), "%s", entry->d_name) > 0);
    while (readdir(dir) != NULL)
        ;
    seekdir(dir, place);
    entry = readdir(dir);
    EXPECT(entry != NULL && strcmp(entry->d_name, name) == 0);
    rewinddir(dir);
    int count = 0;
    while (readdir(dir) != NULL)
        count++;
    EXPECT(count == 502);
    posix_make_closed("late", "x"); /* seen after a rewind */
    rewinddir(dir);
    bool found = false;
    while ((entry = readdir(dir)) != NULL)
        found = found || strcmp(entry->d_name, "late") == 0;
    EXPECT(found && closedir(dir) == 0);
}

static void inode_numbers(void)
{
    posix_make_closed("f", "x");
    EXPECT(mkdir("d", 0755) == 0 && symlink("f", "s") == 0);
    DIR *dir = opendir(".");
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, "..") != 0) /* of the root that is another file system's */
            EXPECT(entry->d_ino == posix_stat(entry->d_name).st_ino);
    EXPECT(closedir(dir) == 0);
}

static void removed_directory_is_empty(void)
{
    EXPECT(mkdir("d", 0755) == 0);
    DIR *dir = opendir("d");
    EXPECT(dir != NULL && rmdir("d") == 0);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    EXPECT(count == 0 && closedir(dir) == 0);
}

static void wait_for_event(int fd, uint32_t wanted)
{
    _Alignas(struct inotify_event) char buffer[4096];
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    while (poll(&poller, 1, 5000) == 1) {
        ssize_t length = read(fd, buffer, sizeof(buffer));
        for (ssize_t at = 0; at < length;) {
            const struct inotify_event *event = (const void *)(buffer + at);
            if ((event->mask & wanted) != 0)
                return;
            at += (ssize_t)sizeof(*event) + event->len;
        }
    }
    posix_fail(__FILE__, __LINE__, "an event");
}

static void notifications(void)
{
    int fd = inotify_init1(IN_CLOEXEC);
    EXPECT(inotify_add_watch(fd, ".", IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_TO | IN_CLOSE_WRITE) >= 0);
    int file = posix_make("f", "");
    wait_for_event(fd, IN_CREATE);
    EXPECT(write(file, "x", 1) == 1);
    wait_for_event(fd, IN_MODIFY);
    EXPECT(close(file) == 0);
    wait_for_event(fd, IN_CLOSE_WRITE);
    EXPECT(rename("f", "g") == 0);
    wait_for_event(fd, IN_MOVED_TO);
    EXPECT(unlink("g") == 0);
    wait_for_event(fd, IN_DELETE);
    EXPECT(close(fd) == 0);
}

const struct check posix_list_checks[] = {
    CHECK(list_many),     CHECK(list_while_removing), CHECK(list_from_a_place),
    CHECK(inode_numbers), CHECK(notifications),       CHECK(removed_directory_is_empty),
    {NULL, NULL},
};
