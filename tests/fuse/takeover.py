# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of whatever there is, over and over: whoever works on the volume notices nothing but a pause."""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib

from lab import MIB, mounts, wait_until

KILLS = 50


class Workers:
    """Programs that check every byte they wrote; started as processes of their own, so that nothing here slows them."""

    def __init__(self, volume, *names):
        self.go_on = volume.lab.root + "/go-on"
        open(self.go_on, "w").close()
        self.processes = {}
        for name in names:
            directory = volume / name
            os.mkdir(directory)
            self.processes[name] = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), name, directory, self.go_on], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True)

    def check_alive(self):
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name}: {process.communicate()[0]}"

    def finish(self):
        """Ends them; how many rounds each did."""
        os.unlink(self.go_on)
        rounds = {}
        for name, process in self.processes.items():
            output = process.communicate(timeout=60)[0]
            assert process.returncode == 0, f"{name}: {output}"
            rounds[name] = int(output)
        return rounds

    def abandon(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def mount_count(volume):
    return len([1 for _, kind, _, _ in mounts() if kind == "fuse.berth"]), len(mounts(volume.path))


def kill_loop(lab, volume, workers, kills=KILLS, holders=0):
    """Kills the volume's process that often, and the holder `holders` times; the pauses the workers may have seen."""
    dice = random.Random(1)
    before = mount_count(volume)
    pauses = []
    holder_at = set(dice.sample(range(kills), holders))
    for number in range(kills):
        time.sleep(dice.uniform(0.005, 0.12))
        if number in holder_at:
            lab.kill_holder()
            time.sleep(dice.uniform(0, 0.05))
            lab.start()
        started = time.monotonic()
        volume.kill()
        pauses.append(time.monotonic() - started)
        workers.check_alive()
        assert mount_count(volume) == before
    time.sleep(0.2)
    return max(pauses)


def test_killed_50_times(lab):
    """The volume's process 50 times, the holder 8 times in between, and clients of the holder in the middle of a call."""
    volume = lab.volume(256 * MIB)
    workers = Workers(volume, "records", "names", "large", "append", "unlinked", "database")
    clients = []
    stop = threading.Event()

    def kill_clients():
        while not stop.wait(0.02):
            child = os.fork()
            if child == 0:
                try:
                    while True:
                        lab.call("stats", id=volume.id)
                except BaseException:  # pylint: disable=broad-except
                    os._exit(0)
            time.sleep(0.005)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            clients.append(child)

    thread = threading.Thread(target=kill_clients)
    thread.start()
    try:
        longest = kill_loop(lab, volume, workers, holders=8)
        rounds = workers.finish()
    finally:
        stop.set()
        thread.join()
        workers.abandon()
    print(f"figure: {KILLS} kills of the process, 8 of the holder, {len(clients)} of clients: 0 errors; longest pause "
          f"{longest * 1000:.0f} ms; rounds {rounds}")
    assert all(rounds.values()) and len(clients) > 20
    assert volume.entry()["restarts"] >= KILLS
    for name in list(workers.processes):
        subprocess.check_call(["rm", "-rf", volume / name])
    # the file system adds extent blocks when it writes back, which is noticed later
    volume.settle(slack=16 * 4096)
    assert os.listdir(volume.directory + "/orphans") == []
    assert volume.used() <= 65536


def test_full_volume_while_killed(lab):
    """Never more than the size, also when a process dies with room reserved."""
    volume = lab.volume(32 * MIB)
    workers = Workers(volume, "full")
    try:
        kill_loop(lab, volume, workers, kills=20)
        workers.finish()
    finally:
        workers.abandon()
    volume.settle(slack=16 * 4096)


def test_upgrades_under_load(lab):
    volume = lab.volume(128 * MIB)
    workers = Workers(volume, "records", "names", "append", "database")
    try:
        for _ in range(10):
            lab.call("restart")
            lab.start()  # a new holder, too
            workers.check_alive()
            time.sleep(0.1)
        assert min(workers.finish().values()) > 0
    finally:
        workers.abandon()
    assert volume.entry()["restarts"] >= 10


def test_locks_and_open_files_survive(lab):
    import fcntl
    volume = lab.volume(16 * MIB)
    holder = open(volume / "f", "w+")
    fcntl.flock(holder, fcntl.LOCK_EX)
    fcntl.lockf(holder, fcntl.LOCK_EX, 10)
    os.mkdir(volume / "d")
    os.chdir(volume / "d")
    listing = os.scandir(volume.path)
    next(listing)
    volume.kill()
    try:
        with open(volume / "f", "w") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                raise AssertionError("the lock is lost")
            except BlockingIOError:
                pass
        holder.write("x")
        holder.flush()
        open("in-cwd", "w").close()
        assert os.listdir(volume / "d") == ["in-cwd"] and len(list(listing)) == 1
    finally:
        os.chdir("/")
        holder.close()


def test_unlinked_files_survive(lab):
    volume = lab.volume(16 * MIB)
    files = []
    for number in range(20):
        file = open(volume / f"f{number}", "w+")
        file.write(f"content {number}")
        file.flush()
        files.append(file)
    for number in range(0, 20, 2):
        os.unlink(volume / f"f{number}")
    volume.kill()
    for number in range(1, 20, 2):  # opened before the process that sees the unlink
        os.unlink(volume / f"f{number}")
    volume.kill()
    for number, file in enumerate(files):
        file.seek(0)
        assert file.read() == f"content {number}" and os.fstat(file.fileno()).st_nlink == 0
        file.close()
    wait_until(lambda: os.listdir(volume.directory + "/orphans") == [], "orphans are removed when they are closed")
    volume.settle()


def test_orphans_of_a_dead_mount_are_removed(lab):
    volume = lab.volume(16 * MIB)
    with open(volume / "f", "wb") as file:
        file.write(bytes(8 * MIB))
        file.flush()
        os.unlink(volume / "f")
        pid = volume.pid()
        lab.kill_holder()
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        try:
            file.close()
        except OSError:
            pass
    assert len(os.listdir(volume.directory + "/orphans")) == 1
    lab.start()
    lab.mount(volume)
    assert os.listdir(volume.directory + "/orphans") == []
    volume.settle()


def test_stopped_process_blocks_and_goes_on(lab):
    """A process that hangs: callers wait, figures and the unmount have their deadlines."""
    volume = lab.volume(16 * MIB)
    with open(volume / "f", "w") as file:
        file.write("x")
    pid = volume.pid()
    os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    try:
        lab.call("stats", id=volume.id, timeout=0.5)
        raise AssertionError("answered")
    except Exception as error:  # pylint: disable=broad-except
        assert "Timeout" in str(error), error
    assert time.monotonic() - started < 3
    os.kill(pid, signal.SIGKILL)  # a stopped one can be killed
    with open(volume / "f") as file:
        assert file.read() == "x"


# ---- the workers, as programs ---------------------------------------------------------------------------------------


def work_records(number):
    """A file of records with checksums, read back at each turn by another descriptor."""
    dice = random.Random(number)
    data = dice.randbytes(dice.randrange(1, 60000))
    record = zlib.crc32(data).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data
    name = f"r{number % 13}"
    fd = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    at = 0
    while at < len(record):
        at += os.write(fd, record[at:])
    if number % 7 == 0:
        os.fsync(fd)
    os.close(fd)
    with open(name, "rb") as file:
        assert file.read() == record, f"{name} holds something else"


def work_names(number):
    """Each call that is no good twice: make, link, rename, exchange, remove, in a way that shows a repeated one."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    base = f"n{number}"
    os.mkdir(base)
    with open(base + "/a", "x") as file:
        file.write("a")
    with open(base + "/b", "x") as file:
        file.write("b")
    os.link(base + "/a", base + "/l")
    assert os.stat(base + "/a").st_nlink == 2
    for turn in range(3):  # RENAME_EXCHANGE
        assert libc.renameat2(-100, (base + "/a").encode(), -100, (base + "/b").encode(), 2) == 0
        with open(base + "/a") as file:
            assert file.read() == ("b" if turn % 2 == 0 else "a"), "exchanged twice"
    os.symlink("target", base + "/s")
    assert os.readlink(base + "/s") == "target"
    os.mkfifo(base + "/p")
    os.rename(base + "/s", base + "/t")
    os.rename(base + "/l", base + "/a")  # another file: b is l just now
    os.setxattr(base + "/b", "user.x", b"1", os.XATTR_CREATE)
    os.removexattr(base + "/b", "user.x")
    assert sorted(os.listdir(base)) == ["a", "b", "p", "t"]
    for name in ("a", "b", "p", "t"):
        os.unlink(f"{base}/{name}")
    os.rmdir(base)


def work_large(number):
    data = random.Random(number).randbytes(MIB)
    with open("large", "wb") as file:
        for _ in range(8):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    with open("large", "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(8):
            assert file.read(MIB) == data, "large holds something else"


def work_append(number):
    line = b"%06d %s\n" % (number, b"." * 200)
    fd = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    assert os.write(fd, line) == len(line)
    os.close(fd)
    assert os.stat("log").st_size == len(line) * (number + 1), "a line is missing, or there twice"
    if number % 50 == 0:
        with open("log", "rb") as file:
            for expected, line in enumerate(file):
                assert line.startswith(b"%06d " % expected)


def work_unlinked(number):
    data = random.Random(number).randbytes(40000)
    fd = os.open(f"u{number % 3}", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    assert os.write(fd, data) == len(data)
    if number % 2:
        os.unlink(f"u{number % 3}")
    else:
        os.close(os.open("over", os.O_CREAT | os.O_WRONLY))
        os.rename("over", f"u{number % 3}")
    assert os.pread(fd, 40000, 0) == data and os.fstat(fd).st_nlink == 0
    assert os.pwrite(fd, data[:1000], 100) == 1000
    assert os.pread(fd, 1000, 100) == data[:1000]
    os.close(fd)
    if number % 2 == 0:
        os.unlink(f"u{number % 3}")


def work_database(number):
    database = sqlite3.connect("db", timeout=30, isolation_level=None)
    if number == 0:
        database.execute("pragma journal_mode=wal")
        database.execute("create table t (k integer primary key, v blob, c integer)")
    if number % 40 == 0:
        database.execute(f"pragma journal_mode={'delete' if number % 80 else 'wal'}")
    database.execute("begin immediate")
    for key in range(20):
        data = random.Random(number * 20 + key).randbytes(500)
        database.execute("insert or replace into t values (?, ?, ?)", (key, data, zlib.crc32(data)))
    database.execute("commit")
    for data, check in database.execute("select v, c from t"):
        assert zlib.crc32(data) == check
    if number % 20 == 0:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    database.close()


def work_full(number):
    """At the limit all the time."""
    import errno
    fd = os.open(f"f{number % 4}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    data = random.Random(number).randbytes(100000)
    written = 0
    try:
        while True:
            written += os.write(fd, data)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    st = os.statvfs(".")
    assert st.f_bfree * 4096 < 100000
    assert os.fstat(fd).st_size == written
    os.close(fd)
    with open(f"f{number % 4}", "rb") as file:
        for at in range(0, written, 100000):
            chunk = file.read(100000)
            assert chunk == data[:min(100000, written - at)], "wrong bytes"
    os.unlink(f"f{number % 4}")


def main():
    work, directory, go_on = globals()["work_" + sys.argv[1]], sys.argv[2], sys.argv[3]
    os.chdir(directory)
    number = 0
    while os.path.exists(go_on):
        work(number)
        number += 1
    print(number)


if __name__ == "__main__":
    main()
