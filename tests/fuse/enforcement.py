# SPDX-License-Identifier: Apache-2.0
"""Whatever a program does, a volume takes no more than its size, and gives back what is freed."""
import errno
import mmap
import os
import random
import threading

from lab import (FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MIB, Refused, allocated, expect_error, fallocate,
                 wait_until)

BLOCK = bytes(range(256)) * 256  # 64 KiB


def fill(path, most=1 << 40, block=BLOCK):
    """Writes until nothing fits any more; the bytes that were written."""
    done = 0
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    try:
        while done < most:
            done += os.write(fd, block)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    finally:
        os.close(fd)
    return done


def free(volume):
    st = os.statvfs(volume.path)
    return st.f_bavail * st.f_frsize


def check(volume):
    volume.settle()
    used = allocated(volume.directory)[0]
    assert used <= volume.limit, f"{used} bytes are allocated, {volume.limit} allowed"


def test_figures_of_df(lab):
    volume = lab.volume(64 * MIB)
    st = os.statvfs(volume.path)
    assert st.f_blocks * st.f_frsize == 64 * MIB and st.f_bfree == st.f_bavail
    assert st.f_files == 64 * MIB // 4096 and st.f_ffree == st.f_files
    before = free(volume)
    fill(volume / "f", 10 * MIB)
    assert before - free(volume) == 10 * MIB
    assert os.statvfs(volume.path).f_ffree == st.f_ffree - 1
    os.unlink(volume / "f")
    assert free(volume) == before and os.statvfs(volume.path).f_ffree == st.f_ffree


def test_fill_by_write(lab):
    volume = lab.volume(32 * MIB)
    done = fill(volume / "f")
    assert 32 * MIB - 65536 <= done <= 32 * MIB and free(volume) == 0
    check(volume)
    with open(volume / "f", "rb") as file:  # what was acknowledged is there
        data = file.read()
    assert len(data) == done and data == (BLOCK * (done // len(BLOCK) + 1))[:done]
    fd = os.open(volume / "f", os.O_WRONLY)
    assert os.pwrite(fd, b"x" * MIB, 5 * MIB) == MIB  # in place
    os.close(fd)
    open(volume / "empty", "w").close()  # needs no space
    expect_error(errno.ENOSPC, os.mkdir, volume / "d")
    os.truncate(volume / "f", done - 8192)
    assert free(volume) == 8192
    assert fill(volume / "g") == 8192
    os.unlink(volume / "f")
    assert free(volume) >= done - 8192
    check(volume)


def test_partial_write_is_short(lab):
    volume = lab.volume(4 * MIB)
    room = free(volume)
    fd = os.open(volume / "f", os.O_CREAT | os.O_WRONLY)
    assert os.write(fd, bytes(room - 10000)) == room - 10000
    before = free(volume)
    assert before == 8192
    wrote = os.write(fd, bytes(100000))
    assert 0 < wrote < 100000 and free(volume) == 0
    expect_error(errno.ENOSPC, os.write, fd, b"x" * 4096)
    os.close(fd)
    check(volume)


def test_fill_by_fallocate(lab):
    volume = lab.volume(32 * MIB)
    fd = os.open(volume / "f", os.O_CREAT | os.O_RDWR)
    expect_error(errno.ENOSPC, fallocate, fd, 0, 0, 33 * MIB)
    assert free(volume) > 31 * MIB and os.fstat(fd).st_size == 0  # nothing of it was done
    fallocate(fd, 0, 0, 20 * MIB)
    expect_error(errno.ENOSPC, fallocate, fd, FALLOC_FL_KEEP_SIZE, 20 * MIB, 20 * MIB)
    fill(volume / "g")
    assert free(volume) == 0
    for at in range(0, 20 * MIB, MIB):  # what was reserved can be written in a full volume
        assert os.pwrite(fd, b"r" * MIB, at) == MIB
    fallocate(fd, 0, 0, 20 * MIB)  # is there already
    os.fsync(fd)
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * MIB, 8 * MIB)
    assert free(volume) == 8 * MIB
    os.close(fd)
    check(volume)


def test_fill_by_truncate_and_sparse_files(lab):
    volume = lab.volume(16 * MIB)
    before = free(volume)
    fd = os.open(volume / "f", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 1 << 40)  # holes are free
    assert free(volume) == before and os.fstat(fd).st_size == 1 << 40
    done = 0
    try:
        for at in range(0, 1 << 40, 1 << 30):
            done += os.pwrite(fd, BLOCK, at)
    except OSError as error:
        assert error.errno == errno.ENOSPC
    assert 15 * MIB <= done <= 16 * MIB
    check(volume)
    assert os.pwrite(fd, BLOCK[:100], 10) == 100
    os.ftruncate(fd, 0)
    assert free(volume) == before
    os.close(fd)


def test_fill_by_mmap(lab):
    volume = lab.volume(8 * MIB)
    fd = os.open(volume / "f", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 32 * MIB)
    with mmap.mmap(fd, 32 * MIB) as area:
        for at in range(0, 32 * MIB, 4096):
            area[at] = 1
        try:
            area.flush()
            raise AssertionError("msync of more than fits succeeded")
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EIO), error
    try:
        os.close(fd)
    except OSError:
        pass
    check(volume)


def test_fill_by_direct_writes(lab):
    """They fail for want of space and nothing else, and what was acknowledged is there."""
    volume = lab.volume(8 * MIB)
    with mmap.mmap(-1, MIB) as data:
        data[:] = b"d" * MIB
        for flags in (0, os.O_APPEND):
            fd = os.open(volume / "f", os.O_CREAT | os.O_WRONLY | os.O_DIRECT | flags)
            done = 0

            def write(at):
                return os.write(fd, data) if flags else os.pwrite(fd, data, at)
            while done < 7 * MIB:
                done += write(done)
            expect_error(errno.ENOSPC, write, done)
            os.close(fd)
            with open(volume / "f", "rb") as file:
                assert file.read() == b"d" * done
            check(volume)
            os.unlink(volume / "f")


def test_msync_never_loses_what_does_not_fit(lab):
    """The kernel takes a page of a mapping for written however short the answer: there must be none."""
    volume = lab.volume(8 * MIB)
    fd = os.open(volume / "f", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 128 * 1024)
    filler = os.open(volume / "filler", os.O_CREAT | os.O_WRONLY)
    fallocate(filler, 0, 0, free(volume) - 64 * 1024)
    with mmap.mmap(fd, 128 * 1024) as area:
        area[:] = b"x" * len(area)
        expect_error(errno.ENOSPC, area.flush)
        os.ftruncate(filler, 0)
        area[:] = b"y" * len(area)
        area.flush()
    os.close(filler)
    os.close(fd)
    volume.kill()
    with open(f"{volume.directory}/data/f", "rb") as file:
        assert file.read() == b"y" * 128 * 1024
    check(volume)


def test_fill_by_metadata(lab):
    volume = lab.volume(4 * MIB)
    before = free(volume)

    def until_full(make):
        count = 0
        try:
            while True:
                make(f"{count:05d}")
                count += 1
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
        check(volume)
        return count

    made = until_full(lambda name: os.mkdir(volume / name))
    assert 900 < made <= 1024, made
    for name in os.listdir(volume.path):
        os.rmdir(volume / name)
    volume.settle()
    # the root directory has grown, and does not shrink again
    assert before - free(volume) < 128 * 1024
    made = until_full(lambda name: os.symlink("t" * 200, volume / name))
    assert 800 < made <= 1024, made
    for name in os.listdir(volume.path):
        os.unlink(volume / name)
    made = until_full(lambda name: open(volume / name, "x").close())
    assert made == 1024, made  # as many inodes as there are
    assert os.statvfs(volume.path).f_ffree == 0
    os.unlink(volume / "00000")
    open(volume / "again", "x").close()
    check(volume)


def test_fill_by_names(lab):
    volume = lab.volume(1 * MIB)
    open(volume / "file", "x").close()
    os.mkdir(volume / "dir")
    count = 0
    try:
        while count < 100000:
            os.link(volume / "file", volume / f"dir/{'n' * 200}{count}")
            count += 1
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.EMLINK), error
    assert count > 100
    volume.settle()
    assert volume.used() <= volume.limit + 65536  # a directory that grew keeps its block
    expect_error(errno.ENOSPC, fill_one, volume / "other")
    os.rename(volume / "file", volume / "renamed")  # goes on in a full volume


def fill_one(path):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        os.write(fd, b"x" * 4096)
    finally:
        os.close(fd)


def test_fill_by_attributes(lab):
    volume = lab.volume(2 * MIB)
    count = 0
    try:
        while count < 10000:
            path = volume / f"f{count}"
            open(path, "x").close()
            os.setxattr(path, "user.large", os.urandom(3000))
            count += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert 300 < count < 512, count
    check(volume)
    os.setxattr(volume / "f0", "user.large", b"y" * 3000)  # replaced in place
    os.removexattr(volume / "f1", "user.large")
    volume.settle()
    assert free(volume) >= 4096


def test_many_small_files(lab):
    volume = lab.volume(8 * MIB)
    made = 0
    try:
        while True:
            directory = volume / f"d{made // 100}"
            if made % 100 == 0:
                os.mkdir(directory)
            with open(f"{directory}/{made}", "wb", buffering=0) as file:
                file.write(b"small")
            made += 1
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert 1500 < made < 2048, made
    check(volume)
    for name in os.listdir(volume.path):
        for file in os.listdir(volume / name):
            os.unlink(volume / f"{name}/{file}")
        os.rmdir(volume / name)
    volume.settle()
    assert volume.used() <= 8192 and volume.stats()["inodes"] == 0


def test_hard_links_count_once(lab):
    volume = lab.volume(8 * MIB)
    before = free(volume)
    fill(volume / "a", 4 * MIB)
    for number in range(20):
        os.link(volume / "a", volume / f"l{number}")
    assert before - free(volume) == 4 * MIB and volume.stats()["inodes"] == 1
    os.unlink(volume / "a")
    for number in range(19):
        os.unlink(volume / f"l{number}")
    assert before - free(volume) == 4 * MIB
    check(volume)
    os.unlink(volume / "l19")
    assert free(volume) == before and volume.stats()["inodes"] == 0


def test_open_unlinked_counts_until_closed(lab):
    volume = lab.volume(8 * MIB)
    for _ in range(20):
        fd = os.open(volume / "f", os.O_CREAT | os.O_RDWR)
        room = free(volume)
        while free(volume) > 0:
            os.write(fd, BLOCK * 4)
        os.unlink(volume / "f")
        assert os.fstat(fd).st_nlink == 0 and free(volume) == 0
        os.close(fd)
        # at once: whoever closes a file he removed can count on the space
        assert fill(volume / "h", 4 * MIB) >= 4 * MIB
        os.unlink(volume / "h")
        wait_until(lambda: free(volume) == room, "all is free again")
    fd = os.open(volume / "f", os.O_CREAT | os.O_RDWR)
    while free(volume) > 0:
        os.write(fd, BLOCK * 4)
    os.unlink(volume / "f")
    expect_error(errno.ENOSPC, fill_one, volume / "g")
    os.unlink(volume / "g")
    os.close(fd)
    wait_until(lambda: free(volume) == room, "all is free again")
    wait_until(lambda: not os.listdir(volume.directory + "/orphans"), "the orphan is removed")
    assert os.listdir(volume.directory + "/orphans") == []
    check(volume)


def test_rename_over_frees(lab):
    volume = lab.volume(8 * MIB)
    before = free(volume)
    for number in range(10):
        fill(volume / "new", 3 * MIB)
        os.rename(volume / "new", volume / "current")
        assert before - free(volume) == 3 * MIB, number
    fd = os.open(volume / "current", os.O_RDONLY)
    fill(volume / "new", 3 * MIB)
    os.rename(volume / "new", volume / "current")
    assert before - free(volume) == 6 * MIB  # the old one is open
    assert len(os.pread(fd, 3 * MIB, 0)) == 3 * MIB
    os.close(fd)
    wait_until(lambda: before - free(volume) == 3 * MIB, "the replaced file is freed")
    check(volume)


def test_replaced_directory_in_use(lab):
    """Somebody is in a directory that another one is renamed over."""
    volume = lab.volume(16 * MIB)
    before = os.getcwd()
    os.mkdir(volume / "old")
    os.mkdir(volume / "new")
    os.chdir(volume / "old")
    try:
        os.rename("../new", "../old")
        assert os.stat(".").st_nlink == 0 and os.listdir(".") == []
    finally:
        os.chdir(before)
    check(volume)


def test_fill_by_copy_file_range(lab):
    volume = lab.volume(16 * MIB)
    fill(volume / "a", 6 * MIB)
    source = os.open(volume / "a", os.O_RDONLY)
    done = 0
    try:
        while True:
            target = os.open(volume / f"c{done // (6 * MIB)}", os.O_CREAT | os.O_RDWR)
            at = 0
            while at < 6 * MIB:
                got = os.copy_file_range(source, target, 6 * MIB - at, at, at)
                assert got > 0
                at += got
                done += got
            os.close(target)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert 9 * MIB <= done <= 10 * MIB, done
    check(volume)
    os.close(source)


def test_writers_together(lab):
    volume = lab.volume(24 * MIB)
    totals, seen = [], []
    stop = threading.Event()

    def writer(number):
        totals.append(fill(volume / f"w{number}", block=os.urandom(7777 * (number + 1))))

    def watcher():
        while not stop.is_set():
            seen.append(allocated(volume.directory)[0])

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(6)]
    watching = threading.Thread(target=watcher)
    watching.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    watching.join()
    assert max(seen) <= 24 * MIB, max(seen)
    assert sum(totals) > 23 * MIB, sum(totals)
    check(volume)


def test_grow_while_full(lab):
    volume = lab.volume(8 * MIB)
    written, failures = [0], [0]
    done = threading.Event()

    def writer():
        fd = os.open(volume / "f", os.O_CREAT | os.O_WRONLY)
        while written[0] < 20 * MIB:
            try:
                written[0] += os.write(fd, BLOCK)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                failures[0] += 1
                done.wait(0.01)
        os.close(fd)

    thread = threading.Thread(target=writer)
    thread.start()
    wait_until(lambda: failures[0] > 3, "the writer is told that the volume is full")
    at = written[0]
    assert free(volume) == 0
    volume.set_limit(32 * MIB)
    assert os.statvfs(volume.path).f_blocks * 4096 == 32 * MIB
    thread.join(20)
    assert not thread.is_alive() and at < 8 * MIB + 1 and written[0] >= 20 * MIB
    check(volume)


def test_shrink_below_what_is_used(lab):
    volume = lab.volume(16 * MIB)
    fill(volume / "f", 10 * MIB)
    volume.set_limit(4 * MIB)
    st = os.statvfs(volume.path)
    assert st.f_bfree == 0 and st.f_blocks * 4096 == 4 * MIB
    expect_error(errno.ENOSPC, fill_one, volume / "g")
    fd = os.open(volume / "f", os.O_RDWR)
    assert os.pwrite(fd, BLOCK, MIB) == len(BLOCK) and os.pread(fd, len(BLOCK), MIB) == BLOCK
    os.ftruncate(fd, MIB)
    os.close(fd)
    assert fill(volume / "g") > 2 * MIB
    check(volume)


def test_random_work_is_counted_exactly(lab):
    volume = lab.volume(48 * MIB)
    dice = random.Random(4)
    names = [f"n{number}" for number in range(40)]
    for step in range(4000):
        path, other = volume / dice.choice(names), volume / dice.choice(names)
        try:
            action = dice.randrange(10)
            if action < 4:
                fd = os.open(path, os.O_CREAT | os.O_RDWR)
                os.pwrite(fd, BLOCK[:dice.randrange(65536)], dice.randrange(4 * MIB))
                os.close(fd)
            elif action == 4:
                os.truncate(path, dice.randrange(4 * MIB))
            elif action == 5:
                os.unlink(path)
            elif action == 6:
                os.rename(path, other)
            elif action == 7:
                os.link(path, other)
            elif action == 8:
                fd = os.open(path, os.O_RDWR)
                fallocate(fd, dice.choice([0, 1, 3]), dice.randrange(4 * MIB), 1 + dice.randrange(MIB))
                os.close(fd)
            else:
                os.setxattr(path, "user.x", BLOCK[:dice.randrange(3000)])
        except (FileNotFoundError, FileExistsError):
            pass
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
    # the file system adds extent blocks when it writes back, which is noticed some seconds later
    for name in os.listdir(volume.directory + "/data"):
        fd = os.open(f"{volume.directory}/data/{name}", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    volume.settle(seconds=15)
    volume.kill()
    check(volume)


def test_read_only(lab):
    volume = lab.volume(16 * MIB)
    fill(volume / "f", MIB)
    volume.unmount()
    lab.mount(volume, readOnly=True)
    expect_error(errno.EROFS, fill_one, volume / "g")
    expect_error(errno.EROFS, os.unlink, volume / "f")
    expect_error(errno.EROFS, os.truncate, volume / "f", 0)
    with open(volume / "f", "rb") as file:
        assert len(file.read()) == MIB
    volume.kill()
    with open(volume / "f", "rb") as file:
        assert len(file.read()) == MIB


def test_nothing_beside_the_volume_is_touched(lab):
    volume = lab.volume(16 * MIB)
    outside = f"{lab.root}/outside"
    os.mkdir(outside)
    with open(outside + "/secret", "w") as file:
        file.write("secret")
    os.symlink(outside, volume.directory + "/data/link")
    assert os.readlink(volume / "link") == outside
    os.mkdir(volume.directory + "/data/mounted")
    from lab import bind_mount, umount
    bind_mount(outside, volume.directory + "/data/mounted")
    try:
        expect_error(errno.EXDEV, os.stat, volume / "mounted")
        expect_error(errno.EXDEV, os.listdir, volume / "mounted")
        assert "mounted" in os.listdir(volume.path)
    finally:
        umount(volume.directory + "/data/mounted")
    os.unlink(volume / "link")
    with open(outside + "/secret") as file:
        assert file.read() == "secret"


def test_stale_file_never_becomes_another(lab):
    """The number of a removed inode is used again soon; who still holds the old file must not see the new one."""
    volume = lab.volume(16 * MIB)
    other = volume.directory + "/data"  # beside it, where the file system takes the number up first
    reused = number = 0
    while reused < 5:
        assert number < 5000, "no inode number was used again: this shows nothing"
        number += 1
        with open(volume / "f", "w") as file:
            file.write("old")
        old = os.stat(volume / "f").st_ino
        handle = os.open(volume / "f", os.O_PATH)
        os.unlink(volume / "f")
        with open(f"{other}/foreign", "w") as file:
            file.write("foreign")
        reused += os.stat(f"{other}/foreign").st_ino == old
        try:
            with open(f"/proc/self/fd/{handle}") as file:
                assert file.read() != "foreign"
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.ENOENT)
        os.close(handle)
        os.unlink(f"{other}/foreign")


def test_bad_requests(lab):
    volume = lab.volume(16 * MIB)
    good = {"id": "x", "directory": volume.directory, "target": f"{lab.root}/mounts/x", "limit": MIB}
    bad = [{"id": ""}, {"id": "a/b"}, {"id": ".."}, {"id": "i" * 129}, {"id": 5}, {"limit": 0}, {"limit": -1},
           {"limit": "many"}, {"directory": "relative"}, {"directory": "/a/../b"}, {"target": "relative"},
           {"target": "/a/./b"}, {"target": None}, {"options": ["nonsense"]}, {"options": ["fd=3"]},
           {"options": ["allow_root"]}, {"options": ["x\ny"]}, {"inodeLimit": -1}]
    for change in bad:
        try:
            lab.call("mount", **{**good, **change})
            raise AssertionError(f"{change} was accepted")
        except Refused as refused:
            assert refused.code == "Invalid", (change, refused)
    assert len(lab.call("list")["mounts"]) == 1
