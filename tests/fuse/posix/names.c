/* SPDX-License-Identifier: Apache-2.0 */
/* Names: open, link, unlink, rename, mkdir, rmdir, symlink, mknod. */
#include "tests/fuse/posix/posix.h"

#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static void open_flags(void)
{
    posix_make_closed("f", "hello");
    FAILS(open("f", O_CREAT | O_EXCL | O_WRONLY, 0644), EEXIST);
    FAILS(open("absent", O_RDONLY), ENOENT);
    FAILS(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
    FAILS(open(".", O_WRONLY), EISDIR);
    FAILS(open("f/x", O_RDONLY), ENOTDIR);
    EXPECT(symlink("f", "s") == 0);
    FAILS(open("s", O_RDONLY | O_NOFOLLOW), ELOOP);
    FAILS(open("s", O_CREAT | O_EXCL | O_WRONLY, 0644), EEXIST);
    int fd = open("s", O_WRONLY | O_TRUNC);
    EXPECT(fd >= 0 && posix_stat("f").st_size == 0);
    FAILS(read(fd, &(char){0}, 1), EBADF);
    EXPECT(close(fd) == 0);
}

static void create_through_dangling_symlink(void)
{
    EXPECT(symlink("target", "s") == 0);
    int fd = open("s", O_CREAT | O_WRONLY, 0600);
    EXPECT(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    EXPECT(posix_holds("target", "x"));
}

static void temporary_file(void)
{
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    EXPECT(fd >= 0 || errno == EOPNOTSUPP); /* either, but nothing else: callers fall back on EOPNOTSUPP */
    if (fd >= 0)
        EXPECT(write(fd, "x", 1) == 1 && close(fd) == 0);
}

static void long_names(void)
{
    char name[300];
    memset(name, 'n', sizeof(name));
    name[255] = '\0';
    posix_make_closed(name, "x");
    EXPECT(posix_holds(name, "x") && unlink(name) == 0);
    EXPECT(mkdir(name, 0755) == 0 && rmdir(name) == 0);
    name[255] = 'n';
    name[256] = '\0';
    FAILS(open(name, O_CREAT | O_WRONLY, 0644), ENAMETOOLONG);
    FAILS(mkdir(name, 0755), ENAMETOOLONG);
    FAILS(symlink("x", name), ENAMETOOLONG);
    FAILS(mkdir("a/b", 0755), ENOENT);
}

static void odd_names(void)
{
    static const char *const names[] = {" ", "-", "...", "a\nb", "\xff\xfe", "ünï", "%s", "a\\b", "~", "#x"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        posix_make_closed(names[i], names[i]);
        EXPECT(posix_holds(names[i], names[i]));
    }
}

static void links(void)
{
    posix_make_closed("a", "text");
    EXPECT(link("a", "b") == 0);
    struct stat a = posix_stat("a"), b = posix_stat("b");
    EXPECT(a.st_ino == b.st_ino && a.st_nlink == 2 && b.st_nlink == 2);
    FAILS(link("a", "b"), EEXIST);
    FAILS(link("absent", "c"), ENOENT);
    EXPECT(mkdir("d", 0755) == 0);
    FAILS(link("d", "e"), EPERM);
    EXPECT(link("a", "d/c") == 0 && posix_stat("b").st_nlink == 3);
    EXPECT(unlink("a") == 0 && posix_stat("b").st_nlink == 2 && posix_holds("d/c", "text"));
    int fd = open("b", O_WRONLY | O_APPEND);
    EXPECT(fd >= 0 && write(fd, "+", 1) == 1 && close(fd) == 0 && posix_holds("d/c", "text+"));
    EXPECT(symlink("dangling", "s") == 0 && linkat(AT_FDCWD, "s", AT_FDCWD, "s2", 0) == 0);
    EXPECT(S_ISLNK(posix_stat("s2").st_mode) && posix_stat("s").st_nlink == 2);
}

static void unlinks(void)
{
    posix_make_closed("f", "x");
    EXPECT(mkdir("d", 0755) == 0);
    FAILS(unlink("d"), EISDIR);
    FAILS(unlink("absent"), ENOENT);
    FAILS(unlink("f/x"), ENOTDIR);
    EXPECT(unlink("f") == 0);
    FAILS(unlink("f"), ENOENT);
    FAILS(lstat("f", &(struct stat){0}), ENOENT);
}

static void open_unlinked(void)
{
    char buffer[16] = {0};
    struct stat st;
    int fd = posix_make("f", "before");
    EXPECT(unlink("f") == 0);
    EXPECT(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 6);
    EXPECT(pwrite(fd, "after!!", 7, 0) == 7 && pread(fd, buffer, 16, 0) == 7 && memcmp(buffer, "after!!", 7) == 0);
    EXPECT(ftruncate(fd, 3) == 0 && fstat(fd, &st) == 0 && st.st_size == 3);
    EXPECT(fchmod(fd, 0600) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0600);
    EXPECT(fsync(fd) == 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY);
    EXPECT(again >= 0 && pread(again, buffer, 3, 0) == 3);
    FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "revived", AT_SYMLINK_FOLLOW), ENOENT);
    posix_make_closed("f", "another"); /* the name is free again, and it is another file */
    EXPECT(pread(fd, buffer, 16, 0) == 3 && posix_holds("f", "another"));
    EXPECT(close(fd) == 0 && pread(again, buffer, 3, 0) == 3 && close(again) == 0);
}

static void open_unlinked_with_other_name(void)
{
    struct stat st;
    int fd = posix_make("a", "x");
    EXPECT(link("a", "b") == 0 && unlink("a") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 1);
    EXPECT(pwrite(fd, "y", 1, 0) == 1 && posix_holds("b", "y"));
    EXPECT(unlink("b") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0 && close(fd) == 0);
}

static void directories(void)
{
    EXPECT(mkdir("d", 0750) == 0 && (posix_stat("d").st_mode & 07777) == 0750 && S_ISDIR(posix_stat("d").st_mode));
    FAILS(mkdir("d", 0750), EEXIST);
    nlink_t before = posix_stat("d").st_nlink;
    EXPECT(mkdir("d/sub", 0755) == 0 && posix_stat("d").st_nlink == before + 1);
    FAILS(rmdir("d"), ENOTEMPTY);
    FAILS(rmdir("d/sub/."), EINVAL);
    posix_make_closed("d/f", "x");
    FAILS(rmdir("d/f"), ENOTDIR);
    EXPECT(unlink("d/f") == 0 && rmdir("d/sub") == 0 && posix_stat("d").st_nlink == before && rmdir("d") == 0);
    FAILS(rmdir("d"), ENOENT);
}

static void removed_directory_in_use(void)
{
    struct stat st;
    EXPECT(mkdir("d", 0755) == 0);
    int fd = open("d", O_RDONLY | O_DIRECTORY);
    EXPECT(fd >= 0 && rmdir("d") == 0);
    EXPECT(openat(fd, "x", O_CREAT | O_WRONLY, 0644) == -1 && (errno == ENOENT || errno == ESTALE));
    EXPECT(mkdir("d", 0755) == 0 && fstat(fd, &st) == 0 && st.st_ino != posix_stat("d").st_ino);
    EXPECT(close(fd) == 0);
    EXPECT(mkdir("cwd", 0755) == 0 && chdir("cwd") == 0 && rmdir("../cwd") == 0);
    EXPECT(stat(".", &st) == 0 && S_ISDIR(st.st_mode) && st.st_nlink == 0);
}

static void renames(void)
{
    posix_make_closed("a", "A");
    ino_t ino = posix_stat("a").st_ino;
    EXPECT(rename("a", "b") == 0 && posix_holds("b", "A") && posix_stat("b").st_ino == ino);
    FAILS(rename("a", "c"), ENOENT);
    posix_make_closed("c", "C");
    EXPECT(rename("b", "c") == 0 && posix_holds("c", "A"));
    FAILS(lstat("b", &(struct stat){0}), ENOENT);
    EXPECT(rename("c", "c") == 0 && posix_holds("c", "A"));
    EXPECT(link("c", "d") == 0 && rename("c", "d") == 0 && posix_holds("c", "A") && posix_holds("d", "A"));
    EXPECT(mkdir("dir", 0755) == 0 && rename("c", "dir/c") == 0 && posix_holds("dir/c", "A"));
    FAILS(rename("d", "dir"), EISDIR);
    FAILS(rename("dir", "d"), ENOTDIR);
    FAILS(rename("dir", "dir/sub"), EINVAL);
    EXPECT(mkdir("empty", 0755) == 0);
    FAILS(rename("empty", "dir"), ENOTEMPTY);
    EXPECT(rename("dir", "empty") == 0 && posix_holds("empty/c", "A"));
}

static void rename_over_open(void)
{
    char buffer[8];
    struct stat st;
    int fd = posix_make("old", "old");
    posix_make_closed("new", "new");
    EXPECT(rename("new", "old") == 0 && posix_holds("old", "new"));
    EXPECT(pread(fd, buffer, 8, 0) == 3 && memcmp(buffer, "old", 3) == 0);
    EXPECT(fstat(fd, &st) == 0 && st.st_nlink == 0 && pwrite(fd, "OLD!", 4, 0) == 4 && close(fd) == 0);
    EXPECT(posix_holds("old", "new"));
}

static void rename_moves_parent(void)
{
    EXPECT(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("a/x", 0755) == 0);
    EXPECT(chdir("a/x") == 0 && rename("../x", "../../b/y") == 0);
    EXPECT(posix_stat("..").st_ino == posix_stat("../../b").st_ino);
    char path[4096];
    EXPECT(getcwd(path, sizeof(path)) != NULL && strcmp(path + strlen(path) - 4, "/b/y") == 0);
    EXPECT(posix_stat("../../a").st_nlink + 1 == posix_stat("../../b").st_nlink);
    EXPECT(chdir("../..") == 0);
}

static void rename_flags(void)
{
    posix_make_closed("a", "A");
    posix_make_closed("b", "B");
    FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
    EXPECT(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE) == 0);
    FAILS(renameat2(AT_FDCWD, "c", AT_FDCWD, "absent", RENAME_EXCHANGE), ENOENT);
    FAILS(renameat2(AT_FDCWD, "c", AT_FDCWD, "b", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
    EXPECT(mkdir("d", 0755) == 0);
    posix_make_closed("d/in", "I");
    EXPECT(renameat2(AT_FDCWD, "c", AT_FDCWD, "d", RENAME_EXCHANGE) == 0);
    EXPECT(posix_holds("d", "A") && posix_holds("c/in", "I"));
    EXPECT(renameat2(AT_FDCWD, "b", AT_FDCWD, "c/in", RENAME_EXCHANGE) == 0);
    EXPECT(posix_holds("b", "I") && posix_holds("c/in", "B"));
}

static void symlinks(void)
{
    char target[4096], read_back[4097];
    memset(target, 't', sizeof(target));
    target[4095] = '\0';
    EXPECT(symlink(target, "long") == 0);
    EXPECT(readlink("long", read_back, sizeof(read_back)) == 4095 && memcmp(read_back, target, 4095) == 0);
    EXPECT(posix_stat("long").st_size == 4095);
    EXPECT(symlink("loop2", "loop1") == 0 && symlink("loop1", "loop2") == 0);
    FAILS(open("loop1", O_RDONLY), ELOOP);
    FAILS(symlink("x", "loop1"), EEXIST);
    posix_make_closed("f", "F");
    EXPECT(symlink("f", "s") == 0 && posix_holds("s", "F"));
    FAILS(readlink("f", read_back, sizeof(read_back)), EINVAL);
    EXPECT(lchown("s", USER, GROUP) == 0 && posix_stat("s").st_uid == USER && posix_stat("f").st_uid == 0);
    EXPECT(unlink("s") == 0 && posix_holds("f", "F"));
    FAILS(symlink("", "e"), ENOENT);
}

static void special_files(void)
{
    EXPECT(mkfifo("fifo", 0640) == 0 && S_ISFIFO(posix_stat("fifo").st_mode));
    int reader = open("fifo", O_RDONLY | O_NONBLOCK), writer = open("fifo", O_WRONLY);
    char byte = 0;
    EXPECT(reader >= 0 && writer >= 0 && write(writer, "p", 1) == 1 && read(reader, &byte, 1) == 1 && byte == 'p');
    EXPECT(unlink("fifo") == 0 && write(writer, "q", 1) == 1 && read(reader, &byte, 1) == 1 && byte == 'q');
    struct stat st;
    EXPECT(fstat(writer, &st) == 0 && S_ISFIFO(st.st_mode));
    EXPECT(close(reader) == 0 && close(writer) == 0);
    EXPECT(mknod("null", S_IFCHR | 0666, makedev(1, 3)) == 0);
    EXPECT(S_ISCHR(posix_stat("null").st_mode) && posix_stat("null").st_rdev == makedev(1, 3));
    int null = open("null", O_RDWR);
    EXPECT(null >= 0 && write(null, "x", 1) == 1 && read(null, &byte, 1) == 0 && close(null) == 0);
    EXPECT(mknod("plain", S_IFREG | 0600, 0) == 0 && S_ISREG(posix_stat("plain").st_mode));
}

static void sockets(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "sock"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT(bind(server, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(server, 1) == 0);
    EXPECT(S_ISSOCK(posix_stat("sock").st_mode));
    EXPECT(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
    int third = socket(AF_UNIX, SOCK_STREAM, 0);
    FAILS(bind(third, (struct sockaddr *)&address, sizeof(address)), EADDRINUSE);
    EXPECT(close(client) == 0 && close(server) == 0 && close(third) == 0 && unlink("sock") == 0);
}

static void deep_tree(void)
{
    for (int i = 0; i < 150; i++)
        EXPECT(mkdir("d", 0755) == 0 && chdir("d") == 0);
    posix_make_closed("bottom", "deep");
    EXPECT(posix_holds("bottom", "deep"));
    for (int i = 0; i < 150; i++)
        EXPECT(chdir("..") == 0);
    EXPECT(posix_stat("d").st_nlink == 3);
}

static void many_links(void)
{
    char name[32];
    posix_make_closed("f", "x");
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof(name), "l%d", i);
        EXPECT(link("f", name) == 0);
    }
    EXPECT(posix_stat("f").st_nlink == 501);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof(name), "l%d", i);
        EXPECT(unlink(name) == 0);
    }
    EXPECT(posix_stat("f").st_nlink == 1);
}

const struct check posix_name_checks[] = {
    CHECK(open_flags),
    CHECK(create_through_dangling_symlink),
    CHECK(temporary_file),
    CHECK(long_names),
    CHECK(odd_names),
    CHECK(links),
    CHECK(unlinks),
    CHECK(open_unlinked),
    CHECK(directories),
    CHECK(open_unlinked_with_other_name),
    CHECK(renames),
    CHECK(removed_directory_in_use),
    CHECK(rename_over_open),
    CHECK(rename_moves_parent),
    CHECK(rename_flags),
    CHECK(symlinks),
    CHECK(special_files),
    CHECK(sockets),
    CHECK(deep_tree),
    CHECK(many_links),
    {NULL, NULL},
};
