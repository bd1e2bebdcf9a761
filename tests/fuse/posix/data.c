/* SPDX-License-Identifier: Apache-2.0 */
/* Data: read, write, truncate, holes, mmap, copies, locks. */
#include "tests/fuse/posix/posix.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <linux/falloc.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static void fill(unsigned char *data, size_t length, unsigned seed)
{
    uint32_t x = seed * 2654435761U + 1;
    for (size_t i = 0; i < length; i++) {
        x = x * 1664525U + 1013904223U;
        data[i] = (unsigned char)(x >> 24);
    }
}

static void large_write_and_read(void)
{
    size_t size = 8 * MIB + 4711;
    auto_free unsigned char *data = mem_alloc(size);
    auto_free unsigned char *back = mem_alloc(size);
    fill(data, size, 1);
    int fd = posix_make("f", "");
    EXPECT(write(fd, data, size) == (ssize_t)size && fdatasync(fd) == 0);
    EXPECT(posix_stat("f").st_size == (off_t)size);
    EXPECT(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    EXPECT(pread(fd, back, size, 0) == (ssize_t)size && memcmp(data, back, size) == 0);
    EXPECT(pread(fd, back, 100, (off_t)size - 50) == 50 && pread(fd, back, 100, (off_t)size) == 0);
    EXPECT(close(fd) == 0);
}

static void vectors(void)
{
    char a[3], b[4];
    int fd = posix_make("f", "");
    const struct iovec out[] = {{(char[]){"abc"}, 3}, {(char[]){"defg"}, 4}};
    const struct iovec in[] = {{a, 3}, {b, 4}};
    EXPECT(pwritev(fd, out, 2, 10) == 7 && preadv(fd, in, 2, 10) == 7);
    EXPECT(memcmp(a, "abc", 3) == 0 && memcmp(b, "defg", 4) == 0 && close(fd) == 0);
}

static void appends(void)
{
    enum { WRITERS = 4, RECORDS = 200, LENGTH = 100 };
    posix_make_closed("log", "");
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            char record[LENGTH];
            memset(record, 'a' + w, sizeof(record));
            int fd = open("log", O_WRONLY | O_APPEND);
            for (int i = 0; i < RECORDS; i++)
                if (write(fd, record, sizeof(record)) != LENGTH)
                    _exit(1);
            _exit(0);
        }
    for (int w = 0, status; w < WRITERS; w++)
        EXPECT(wait(&status) > 0 && status == 0);
    int fd = open("log", O_RDONLY), counts[WRITERS] = {0};
    char record[LENGTH];
    while (read(fd, record, sizeof(record)) == LENGTH) {
        for (int i = 1; i < LENGTH; i++)
            EXPECT(record[i] == record[0]);
        counts[record[0] - 'a']++;
    }
    for (int w = 0; w < WRITERS; w++)
        EXPECT(counts[w] == RECORDS);
}

static void truncates(void)
{
    char buffer[16];
    int fd = posix_make("f", "0123456789");
    EXPECT(ftruncate(fd, 4) == 0 && posix_holds("f", "0123"));
    EXPECT(truncate("f", 8) == 0 && pread(fd, buffer, 16, 0) == 8 && memcmp(buffer, "0123\0\0\0\0", 8) == 0);
    FAILS(ftruncate(fd, -1), EINVAL);
    FAILS(truncate(".", 0), EISDIR);
    FAILS(truncate("absent", 0), ENOENT);
    EXPECT(truncate("f", (off_t)1 << 40) == 0 && posix_stat("f").st_size == (off_t)1 << 40);
    EXPECT(posix_stat("f").st_blocks <= 16 && truncate("f", 0) == 0 && close(fd) == 0);
}

static void sparse(void)
{
    char buffer[8];
    int fd = posix_make("f", "");
    EXPECT(pwrite(fd, "end", 3, (off_t)5 << 30) == 3);
    EXPECT(posix_stat("f").st_size == ((off_t)5 << 30) + 3 && posix_stat("f").st_blocks <= 64);
    EXPECT(pread(fd, buffer, 8, 1 << 20) == 8 && memcmp(buffer, "\0\0\0\0\0\0\0\0", 8) == 0);
    EXPECT(pread(fd, buffer, 3, (off_t)5 << 30) == 3 && memcmp(buffer, "end", 3) == 0 && close(fd) == 0);
}

static void holes(void)
{
    int fd = posix_make("f", "");
    EXPECT(pwrite(fd, "x", 1, 1 << 20) == 1 && ftruncate(fd, 3 << 20) == 0 && fsync(fd) == 0);
    EXPECT(lseek(fd, 0, SEEK_DATA) == 1 << 20 && lseek(fd, 0, SEEK_HOLE) == 0);
    off_t hole = lseek(fd, 1 << 20, SEEK_HOLE);
    EXPECT(hole > 1 << 20 && hole <= (1 << 20) + 65536);
    FAILS(lseek(fd, 2 << 20, SEEK_DATA), ENXIO);
    FAILS(lseek(fd, 3 << 20, SEEK_HOLE), ENXIO);
    EXPECT(close(fd) == 0);
}

static void allocation(void)
{
    char buffer[4096];
    int fd = posix_make("f", "");
    EXPECT(fallocate(fd, 0, 0, 1 << 20) == 0 && posix_stat("f").st_size == 1 << 20);
    EXPECT(posix_stat("f").st_blocks >= (1 << 20) / 512);
    EXPECT(fallocate(fd, FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 20) == 0 && posix_stat("f").st_size == 1 << 20);
    EXPECT(posix_stat("f").st_blocks >= (2 << 20) / 512);
    memset(buffer, 'z', sizeof(buffer));
    for (off_t at = 0; at < 1 << 20; at += 4096)
        EXPECT(pwrite(fd, buffer, 4096, at) == 4096);
    EXPECT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 1 << 19) == 0);
    EXPECT(posix_stat("f").st_blocks <= (2 << 20) / 512 - (1 << 19) / 512 + 8);
    EXPECT(pread(fd, buffer, 1, 4095) == 1 && buffer[0] == 'z' && pread(fd, buffer, 1, 4096) == 1 && buffer[0] == 0);
    bool zeroed = fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 100) == 0;
    EXPECT(zeroed || errno == EOPNOTSUPP); /* tmpfs has none */
    EXPECT(pread(fd, buffer, 101, 0) == 101 && buffer[99] == (zeroed ? 0 : 'z') && buffer[100] == 'z');
    FAILS(fallocate(fd, 0, 0, 0), EINVAL);
    EXPECT(posix_fallocate(fd, 0, 2 << 20) == 0 && posix_stat("f").st_size == 2 << 20 && close(fd) == 0);
    fd = open("f", O_RDONLY);
    FAILS(fallocate(fd, 0, 0, 4096), EBADF);
    EXPECT(close(fd) == 0);
}

static void copies(void)
{
    size_t size = 3 * MIB + 77;
    auto_free unsigned char *data = mem_alloc(size);
    auto_free unsigned char *back = mem_alloc(size);
    fill(data, size, 2);
    int from = posix_make("from", ""), to = posix_make("to", "");
    EXPECT(write(from, data, size) == (ssize_t)size && lseek(from, 0, SEEK_SET) == 0);
    size_t done = 0;
    while (done < size) {
        ssize_t got = copy_file_range(from, NULL, to, NULL, size - done, 0);
        EXPECT(got > 0);
        done += (size_t)got;
    }
    EXPECT(copy_file_range(from, NULL, to, NULL, 100, 0) == 0);
    EXPECT(pread(to, back, size, 0) == (ssize_t)size && memcmp(data, back, size) == 0);
    EXPECT(posix_stat("to").st_size == (off_t)size);
    EXPECT(ftruncate(to, 0) == 0);
    off_t offset = 0;
    while (offset < (off_t)size) {
        EXPECT(lseek(to, offset, SEEK_SET) == offset);
        EXPECT(sendfile(to, from, &offset, size) > 0);
    }
    EXPECT(pread(to, back, size, 0) == (ssize_t)size && memcmp(data, back, size) == 0);
    off_t in = 0, out = (off_t)size;
    EXPECT(copy_file_range(to, &in, to, &out, 1000, 0) == 1000);
    EXPECT(pread(to, back, 1000, (off_t)size) == 1000 && memcmp(data, back, 1000) == 0);
    EXPECT(close(from) == 0 && close(to) == 0);
}

static void mapped(void)
{
    size_t size = 256 * 1024;
    char buffer[8];
    int fd = posix_make("f", "start");
    EXPECT(ftruncate(fd, (off_t)size) == 0);
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(map != MAP_FAILED && memcmp(map, "start", 5) == 0);
    memcpy(map + 100000, "mapped", 6);
    EXPECT(pread(fd, buffer, 6, 100000) == 6 && memcmp(buffer, "mapped", 6) == 0);
    EXPECT(pwrite(fd, "written", 7, 200000) == 7 && memcmp(map + 200000, "written", 7) == 0);
    EXPECT(msync(map, size, MS_SYNC) == 0 && unlink("f") == 0 && close(fd) == 0);
    memcpy(map, "gone", 4);
    EXPECT(msync(map, size, MS_SYNC) == 0 && memcmp(map + 100000, "mapped", 6) == 0 && munmap(map, size) == 0);
}

static void mapped_is_durable(void)
{
    int fd = posix_make("f", "");
    EXPECT(ftruncate(fd, 65536) == 0);
    char *map = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(map != MAP_FAILED);
    memset(map, 'm', 65536);
    EXPECT(munmap(map, 65536) == 0 && fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    char buffer[65536];
    EXPECT(pread(fd, buffer, 65536, 0) == 65536);
    for (size_t i = 0; i < sizeof(buffer); i++)
        EXPECT(buffer[i] == 'm');
    EXPECT(close(fd) == 0);
}

static void direct(void)
{
    int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0644);
    EXPECT(fd >= 0 || errno == EINVAL);
    if (fd < 0)
        return;
    unsigned char *data = aligned_alloc(4096, MIB);
    fill(data, MIB, 3);
    EXPECT(pwrite(fd, data, MIB, 0) == (ssize_t)MIB);
    memset(data, 0, MIB);
    EXPECT(pread(fd, data, MIB, 0) == (ssize_t)MIB);
    auto_free unsigned char *wanted = mem_alloc(MIB);
    fill(wanted, MIB, 3);
    EXPECT(memcmp(data, wanted, MIB) == 0 && close(fd) == 0);
    fd = open("f", O_RDONLY);
    EXPECT(read(fd, data, MIB) == (ssize_t)MIB && memcmp(data, wanted, MIB) == 0 && close(fd) == 0);
    free(data);
}

static void sync_calls(void)
{
    int fd = posix_make("f", "x"), dir = open(".", O_RDONLY | O_DIRECTORY);
    EXPECT(fsync(fd) == 0 && fdatasync(fd) == 0 && fsync(dir) == 0 && syncfs(fd) == 0);
    EXPECT(close(fd) == 0 && close(dir) == 0);
    fd = open("s", O_CREAT | O_WRONLY | O_SYNC, 0644);
    EXPECT(fd >= 0 && write(fd, "sync", 4) == 4 && close(fd) == 0 && posix_holds("s", "sync"));
}

/* A child tries to get the lock; whether it could. */
static bool child_can(int (*lock)(int fd), int flags)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int fd = open("f", flags);
        _exit(fd < 0 ? 2 : lock(fd) == 0 ? 0 : 1);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}
static int flock_exclusive(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB);
}
static int flock_shared(int fd)
{
    return flock(fd, LOCK_SH | LOCK_NB);
}
static int record_first(int fd)
{
    return fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_start = 0, .l_len = 10});
}
static int record_second(int fd)
{
    return fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_start = 10, .l_len = 10});
}

static void locks(void)
{
    int fd = posix_make("f", "x");
    EXPECT(flock(fd, LOCK_SH) == 0 && !child_can(flock_exclusive, O_RDWR) && child_can(flock_shared, O_RDWR));
    EXPECT(flock(fd, LOCK_EX) == 0 && !child_can(flock_shared, O_RDWR));
    EXPECT(flock(fd, LOCK_UN) == 0 && child_can(flock_exclusive, O_RDWR));
    EXPECT(record_first(fd) == 0 && !child_can(record_first, O_RDWR) && child_can(record_second, O_RDWR));
    int other = open("f", O_RDWR);
    EXPECT(other >= 0 && close(other) == 0 && child_can(record_first, O_RDWR)); /* any close lets go, says POSIX */
    struct flock whole = {.l_type = F_WRLCK};
    EXPECT(fcntl(fd, F_OFD_SETLK, &whole) == 0 && !child_can(record_second, O_RDWR) && close(fd) == 0);
    EXPECT(child_can(record_second, O_RDWR));
}

/* Random operations against a copy in memory. */
static void random_operations(void)
{
    enum { SIZE = 400000, STEPS = 3000 };
    struct rng *rng = rng_seeded_new(20240607);
    auto_free unsigned char *model = mem_calloc(SIZE, 1);
    auto_free unsigned char *back = mem_calloc(SIZE, 1);
    size_t length = 0;
    int fd = posix_make("f", "");
    for (int step = 0; step < STEPS; step++) {
        size_t at = rng_below(rng, SIZE - 70000), count = 1 + rng_below(rng, 65536);
        switch (rng_below(rng, 7)) {
        case 0:
        case 1: /* write */
            fill(back, count, (unsigned)step);
            memcpy(model + at, back, count);
            EXPECT(pwrite(fd, back, count, (off_t)at) == (ssize_t)count);
            length = at + count > length ? at + count : length;
            break;
        case 2: /* truncate */
            EXPECT(ftruncate(fd, (off_t)at) == 0);
            if (at < length)
                memset(model + at, 0, length - at);
            length = at;
            break;
        case 3: /* punch */
            EXPECT(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)count) == 0);
            memset(model + at, 0, count);
            break;
        case 4: /* through a map */
            if (length > 0) {
                unsigned char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                EXPECT(map != MAP_FAILED);
                EXPECT(memcmp(map, model, length) == 0);
                map[at % length] = model[at % length] = (unsigned char)step;
                EXPECT(munmap(map, length) == 0);
            }
            break;
        case 5: /* another descriptor, without what is cached */
            EXPECT(close(fd) == 0 && (fd = open("f", O_RDWR)) >= 0);
            if (step % 50 == 0)
                EXPECT(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
            break;
        default: /* read */
            memset(back, 0xee, count);
            ssize_t wanted = at >= length ? 0 : (ssize_t)(at + count > length ? length - at : count);
            EXPECT(pread(fd, back, count, (off_t)at) == wanted && memcmp(back, model + at, (size_t)wanted) == 0);
        }
        EXPECT(posix_stat("f").st_size == (off_t)length);
    }
    EXPECT(pread(fd, back, SIZE, 0) == (ssize_t)length && memcmp(back, model, length) == 0 && close(fd) == 0);
    rng_free(rng);
}

static void execution(void)
{
    int status = 0, fd = open("script", O_CREAT | O_WRONLY, 0755);
    const char text[] = "#!/bin/sh\nexit 42\n";
    EXPECT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
    pid_t child = fork();
    if (child == 0) {
        execl("./script", "script", NULL);
        _exit(1);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

const struct check posix_data_checks[] = {
    CHECK(large_write_and_read),
    CHECK(vectors),
    CHECK(appends),
    CHECK(truncates),
    CHECK(sparse),
    CHECK(holes),
    CHECK(mapped),
    CHECK(allocation),
    CHECK(copies),
    CHECK(mapped_is_durable),
    CHECK(direct),
    CHECK(locks),
    CHECK(sync_calls),
    CHECK(execution),
    CHECK(random_operations),
    {NULL, NULL},
};
