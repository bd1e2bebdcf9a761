/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes: modes, owners, times, permissions, extended attributes, ACLs. */
#include "tests/fuse/posix/posix.h"

#include <sys/statvfs.h>
#include <sys/xattr.h>

static mode_t mode_of(const char *path)
{
    return posix_stat(path).st_mode & 07777;
}

static void modes_and_umask(void)
{
    umask(027);
    EXPECT(close(open("f", O_CREAT | O_WRONLY, 0777)) == 0 && mode_of("f") == 0750);
    EXPECT(mkdir("d", 0777) == 0 && mode_of("d") == 0750);
    EXPECT(mkfifo("p", 0666) == 0 && mode_of("p") == 0640);
    umask(0);
    EXPECT(close(open("g", O_CREAT | O_WRONLY, 0666)) == 0 && mode_of("g") == 0666);
    umask(022);
    EXPECT(chmod("f", 07755) == 0 && mode_of("f") == 07755);
    EXPECT(chmod("d", 03777) == 0 && mode_of("d") == 03777);
    EXPECT(chmod("f", 0) == 0 && mode_of("f") == 0 && close(open("f", O_RDONLY)) == 0); /* root may */
    FAILS(chmod("absent", 0644), ENOENT);
}

static void create_as_user(void)
{
    EXPECT(close(open("mine", O_CREAT | O_WRONLY, 0640)) == 0 && mkdir("minedir", 0700) == 0);
    EXPECT(symlink("x", "minelink") == 0 && mkfifo("minefifo", 0600) == 0);
    EXPECT(mkdir("sgid/sub", 0755) == 0 && close(open("sgid/f", O_CREAT | O_WRONLY, 0644)) == 0);
}

static void owners_of_new_files(void)
{
    static const char *const names[] = {"mine", "minedir", "minelink", "minefifo"};
    EXPECT(chmod(".", 0777) == 0 && mkdir("sgid", 0777) == 0 && chown("sgid", 0, OTHER) == 0);
    EXPECT(chmod("sgid", 02777) == 0);
    posix_as(USER, GROUP, create_as_user);
    for (size_t i = 0; i < 4; i++)
        EXPECT(posix_stat(names[i]).st_uid == USER && posix_stat(names[i]).st_gid == GROUP);
    EXPECT(mode_of("mine") == 0640 && mode_of("minedir") == 0700);
    EXPECT(posix_stat("sgid/sub").st_gid == OTHER && mode_of("sgid/sub") == 02755);
    EXPECT(posix_stat("sgid/f").st_gid == OTHER && posix_stat("sgid/f").st_uid == USER);
}

static void try_foreign_files(void)
{
    FAILS(open("private", O_RDONLY), EACCES);
    FAILS(open("readable", O_WRONLY), EACCES);
    EXPECT(close(open("readable", O_RDONLY)) == 0);
    FAILS(open("closed/f", O_RDONLY), EACCES);
    FAILS(open("newfile", O_CREAT | O_WRONLY, 0644), EACCES);
    FAILS(unlink("readable"), EACCES);
    FAILS(chmod("readable", 0777), EPERM);
    FAILS(chown("readable", USER, GROUP), EPERM);
    FAILS(truncate("readable", 0), EACCES);
    FAILS(utimensat(AT_FDCWD, "readable", NULL, 0), EACCES);
    FAILS(unlink("sticky/theirs"), EPERM);
    FAILS(rename("sticky/theirs", "sticky/x"), EPERM);
    EXPECT(unlink("sticky/mine") == 0);
    FAILS(setxattr("readable", "user.x", "1", 1, 0), EACCES);
    FAILS(mknod("sticky/dev", S_IFCHR | 0600, 0x103), EPERM);
    EXPECT(access("readable", R_OK) == 0);
    FAILS(access("readable", W_OK), EACCES);
}

static void permissions(void)
{
    posix_make_closed("private", "x");
    posix_make_closed("readable", "x");
    EXPECT(chmod("private", 0600) == 0 && mkdir("closed", 0700) == 0 && mkdir("sticky", 01777) == 0);
    EXPECT(chmod("sticky", 01777) == 0);
    posix_make_closed("closed/f", "x");
    posix_make_closed("sticky/theirs", "x");
    posix_make_closed("sticky/mine", "x");
    EXPECT(chown("sticky/mine", USER, GROUP) == 0);
    posix_as(USER, GROUP, try_foreign_files);
}

static void write_to_suid(void)
{
    int fd = open("f", O_WRONLY);
    EXPECT(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
}
static void truncate_suid(void)
{
    EXPECT(truncate("f", 0) == 0);
}
static void open_truncate_suid(void)
{
    EXPECT(close(open("f", O_WRONLY | O_TRUNC)) == 0);
}
static void allocate_suid(void)
{
    int fd = open("f", O_WRONLY);
    EXPECT(fd >= 0 && fallocate(fd, 0, 0, 20000) == 0 && close(fd) == 0);
}
static void punch_suid(void)
{
    int fd = open("f", O_WRONLY);
    EXPECT(fd >= 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0 && close(fd) == 0);
}
static void copy_to_suid(void)
{
    int from = open("from", O_RDONLY), to = open("f", O_WRONLY);
    EXPECT(from >= 0 && to >= 0 && copy_file_range(from, NULL, to, NULL, 3, 0) == 3);
    EXPECT(close(from) == 0 && close(to) == 0);
}

static void setuid_goes_without_a_write(void)
{
    static void (*const ways[])(void) = {allocate_suid, punch_suid, copy_to_suid};
    posix_make_closed("f", "xyz");
    posix_make_closed("from", "abc");
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        EXPECT(chmod("f", 06777) == 0);
        ways[i](); /* root keeps it */
        EXPECT(mode_of("f") == 06777);
        posix_as(USER, GROUP, ways[i]);
        EXPECT(mode_of("f") == 0777);
    }
}

static void setuid_goes(void)
{
    posix_make_closed("f", "xyz");
    EXPECT(chmod("f", 06777) == 0);
    posix_as(USER, GROUP, write_to_suid);
    EXPECT(mode_of("f") == 0777);
    EXPECT(chmod("f", 06777) == 0);
    posix_as(USER, GROUP, truncate_suid);
    EXPECT(mode_of("f") == 0777);
    EXPECT(truncate("f", 5) == 0 && chmod("f", 04777) == 0);
    posix_as(USER, GROUP, open_truncate_suid);
    EXPECT(mode_of("f") == 0777);
    EXPECT(chmod("f", 06777) == 0);
    write_to_suid(); /* root keeps it */
    EXPECT(mode_of("f") == 06777);
    EXPECT(chmod("f", 06755) == 0 && chown("f", USER, GROUP) == 0 && mode_of("f") == 0755);
    EXPECT(mkdir("d", 0755) == 0 && chmod("d", 02755) == 0 && chown("d", USER, GROUP) == 0 && mode_of("d") == 02755);
}

static void capability_goes(void)
{
    /* version 2, permitted: CAP_NET_RAW, effective */
    static const unsigned char capability[20] = {1, 0, 0, 2, 0, 0x20};
    posix_make_closed("f", "x");
    EXPECT(setxattr("f", "security.capability", capability, sizeof(capability), 0) == 0);
    EXPECT(getxattr("f", "security.capability", NULL, 0) == 20);
    write_to_suid();
    FAILS(getxattr("f", "security.capability", NULL, 0), ENODATA);
    EXPECT(setxattr("f", "security.capability", capability, sizeof(capability), 0) == 0);
    EXPECT(chown("f", USER, GROUP) == 0);
    FAILS(getxattr("f", "security.capability", NULL, 0), ENODATA);
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}
static bool is_later(struct timespec a, struct timespec b)
{
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static void times(void)
{
    struct timespec set[2] = {{1234567890, 123456789}, {1000000000, 987654321}};
    posix_make_closed("f", "x");
    EXPECT(utimensat(AT_FDCWD, "f", set, 0) == 0);
    EXPECT(same_time(posix_stat("f").st_atim, set[0]) && same_time(posix_stat("f").st_mtim, set[1]));
    struct timespec only[2] = {{0, UTIME_OMIT}, {1500000000, 5}};
    EXPECT(utimensat(AT_FDCWD, "f", only, 0) == 0);
    EXPECT(same_time(posix_stat("f").st_atim, set[0]) && same_time(posix_stat("f").st_mtim, only[1]));
    EXPECT(symlink("f", "s") == 0 && utimensat(AT_FDCWD, "s", set, AT_SYMLINK_NOFOLLOW) == 0);
    EXPECT(same_time(posix_stat("s").st_mtim, set[1]) && same_time(posix_stat("f").st_mtim, only[1]));
    EXPECT(utimensat(AT_FDCWD, "f", NULL, 0) == 0 && posix_stat("f").st_mtim.tv_sec > 1600000000);
    EXPECT(utimensat(AT_FDCWD, ".", set, 0) == 0 && same_time(posix_stat(".").st_mtim, set[1]));
    set[0].tv_sec = -5; /* before 1970 */
    EXPECT(utimensat(AT_FDCWD, "f", set, 0) == 0 && posix_stat("f").st_atim.tv_sec == -5);
}

static void pause_a_tick(void)
{
    EXPECT(usleep(20000) == 0); /* file times move with the kernel's tick */
}

static void times_move(void)
{
    int fd = posix_make("f", "x");
    struct stat before = posix_stat("f"), dir = posix_stat(".");
    pause_a_tick();
    EXPECT(pwrite(fd, "y", 1, 0) == 1);
    struct stat after = posix_stat("f");
    EXPECT(is_later(after.st_mtim, before.st_mtim) && is_later(after.st_ctim, before.st_ctim));
    pause_a_tick();
    EXPECT(fchmod(fd, 0600) == 0);
    before = after, after = posix_stat("f");
    EXPECT(same_time(after.st_mtim, before.st_mtim) && is_later(after.st_ctim, before.st_ctim));
    posix_make_closed("g", "x");
    EXPECT(is_later(posix_stat(".").st_mtim, dir.st_mtim));
    pause_a_tick();
    EXPECT(link("f", "h") == 0 && is_later(posix_stat("f").st_ctim, after.st_ctim));
    pause_a_tick();
    EXPECT(ftruncate(fd, 0) == 0 && is_later(posix_stat("f").st_mtim, after.st_mtim) && close(fd) == 0);
}

static void extended_attributes(void)
{
    char value[70000], list[256];
    posix_make_closed("f", "x");
    EXPECT(setxattr("f", "user.a", "one", 3, XATTR_CREATE) == 0);
    FAILS(setxattr("f", "user.a", "two", 3, XATTR_CREATE), EEXIST);
    FAILS(setxattr("f", "user.b", "two", 3, XATTR_REPLACE), ENODATA);
    EXPECT(setxattr("f", "user.a", "three", 5, XATTR_REPLACE) == 0);
    EXPECT(getxattr("f", "user.a", NULL, 0) == 5 && getxattr("f", "user.a", value, 5) == 5);
    EXPECT(memcmp(value, "three", 5) == 0);
    FAILS(getxattr("f", "user.a", value, 4), ERANGE);
    FAILS(getxattr("f", "user.none", value, 10), ENODATA);
    EXPECT(setxattr("f", "user.empty", "", 0, 0) == 0 && getxattr("f", "user.empty", value, 10) == 0);
    ssize_t length = listxattr("f", list, sizeof(list));
    EXPECT(length == (ssize_t)sizeof("user.a") + (ssize_t)sizeof("user.empty") && listxattr("f", NULL, 0) == length);
    FAILS(listxattr("f", list, 3), ERANGE);
    EXPECT(removexattr("f", "user.a") == 0);
    FAILS(removexattr("f", "user.a"), ENODATA);
    memset(value, 'v', sizeof(value));
    EXPECT(setxattr("f", "user.big", value, 3000, 0) == 0 && getxattr("f", "user.big", NULL, 0) == 3000);
    FAILS(setxattr("f", "user.huge", value, 65537, 0), E2BIG);
    EXPECT(setxattr(".", "user.d", "x", 1, 0) == 0 && getxattr(".", "user.d", NULL, 0) == 1);
    EXPECT(setxattr("f", "trusted.t", "x", 1, 0) == 0 && setxattr("f", "security.own", "x", 1, 0) == 0);
    EXPECT(symlink("f", "s") == 0 && lsetxattr("s", "trusted.s", "y", 1, 0) == 0);
    EXPECT(lgetxattr("s", "trusted.s", value, 10) == 1 && getxattr("f", "trusted.s", NULL, 0) == -1);
    FAILS(lsetxattr("s", "user.s", "y", 1, 0), EPERM);
    FAILS(setxattr("f", "nonsense.x", "y", 1, 0), EOPNOTSUPP);
}

/* The kernel's form of an ACL: version, then {tag, permissions, id}. */
struct acl {
    uint32_t version;
    struct {
        uint16_t tag, perm;
        uint32_t id;
    } entries[5];
};
enum { ACL_USER_OBJ = 1, ACL_USER = 2, ACL_GROUP_OBJ = 4, ACL_MASK = 16, ACL_OTHER = 32 };

static struct acl acl_for(uint32_t user, uint16_t perm)
{
    return (struct acl){.version = 2,
                        .entries = {{ACL_USER_OBJ, 6, UINT32_MAX},
                                    {ACL_USER, perm, user},
                                    {ACL_GROUP_OBJ, 0, UINT32_MAX},
                                    {ACL_MASK, 7, UINT32_MAX},
                                    {ACL_OTHER, 0, UINT32_MAX}}};
}

static void read_and_write_f(void)
{
    int fd = open("f", O_RDWR);
    EXPECT(fd >= 0 && write(fd, "a", 1) == 1);
}
static void cannot_write_f(void)
{
    FAILS(open("f", O_WRONLY), EACCES);
    EXPECT(close(open("f", O_RDONLY)) == 0);
}
static void cannot_open_f(void)
{
    FAILS(open("f", O_RDONLY), EACCES);
}

static void access_lists(void)
{
    posix_make_closed("f", "x");
    EXPECT(chmod("f", 0600) == 0);
    posix_as(USER, GROUP, cannot_open_f);
    struct acl acl = acl_for(USER, 6);
    EXPECT(setxattr("f", "system.posix_acl_access", &acl, sizeof(acl), 0) == 0);
    EXPECT(mode_of("f") == 0670); /* the group bits are the mask now */
    posix_as(USER, GROUP, read_and_write_f);
    posix_as(OTHER, GROUP, cannot_open_f);
    EXPECT(chmod("f", 0640) == 0); /* narrows the mask */
    posix_as(USER, GROUP, cannot_write_f);
    EXPECT(removexattr("f", "system.posix_acl_access") == 0);
    posix_as(USER, GROUP, cannot_open_f);
}

static void give_access(void)
{
    struct acl acl = acl_for(USER + 1, 6);
    EXPECT(setxattr("f", "system.posix_acl_access", &acl, sizeof(acl), 0) == 0);
}

static void setgid_goes_with_an_access_list(void)
{
    posix_make_closed("f", "x");
    EXPECT(chown("f", USER, GROUP) == 0 && chmod("f", 02755) == 0);
    posix_as(USER, GROUP, give_access);
    EXPECT((mode_of("f") & S_ISGID) != 0); /* the owner is of that group */
    EXPECT(chown("f", USER, OTHER) == 0 && chmod("f", 02755) == 0);
    give_access();
    EXPECT((mode_of("f") & S_ISGID) != 0);
    posix_as(USER, GROUP, give_access);
    EXPECT((mode_of("f") & S_ISGID) == 0);
}

static void default_access_lists(void)
{
    struct acl acl = acl_for(USER, 6), found;
    EXPECT(mkdir("d", 0755) == 0 && setxattr("d", "system.posix_acl_default", &acl, sizeof(acl), 0) == 0);
    umask(077); /* counts for nothing below a default ACL */
    posix_make_closed("d/f", "x");
    EXPECT(getxattr("d/f", "system.posix_acl_access", &found, sizeof(found)) == sizeof(found));
    EXPECT(found.entries[1].tag == ACL_USER && found.entries[1].id == USER && found.entries[1].perm == 6);
    EXPECT(mode_of("d/f") == 0640);
    EXPECT(mkdir("d/sub", 0777) == 0 && getxattr("d/sub", "system.posix_acl_default", NULL, 0) == sizeof(acl));
    EXPECT(chdir("d") == 0 && chmod("..", 0755) == 0 && chmod(".", 0755) == 0);
    posix_as(USER, GROUP, cannot_write_f); /* 0644 was asked for: the mask allows reading */
    EXPECT(chdir("..") == 0);
}

static void file_system_figures(void)
{
    struct statvfs st;
    EXPECT(statvfs(".", &st) == 0 && st.f_bsize > 0 && st.f_blocks > 0 && st.f_bavail <= st.f_blocks);
    EXPECT(st.f_files > 0 && st.f_ffree <= st.f_files && st.f_namemax == 255);
}

const struct check posix_attr_checks[] = {
    CHECK(modes_and_umask),
    CHECK(owners_of_new_files),
    CHECK(permissions),
    CHECK(setuid_goes),
    CHECK(setuid_goes_without_a_write),
    CHECK(capability_goes),
    CHECK(times),
    CHECK(times_move),
    CHECK(extended_attributes),
    CHECK(access_lists),
    CHECK(setgid_goes_with_an_access_list),
    CHECK(file_system_figures),
    CHECK(default_access_lists),
    {NULL, NULL},
};
