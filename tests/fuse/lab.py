# SPDX-License-Identifier: Apache-2.0
"""A holder with its volumes in a temporary directory, and the little the tests need around it.

Everything runs in a mount namespace of its own (run.py sees to that). Processes are ended by their pids: the tests'
process is the reaper of what its children leave behind, so nothing gets lost.
"""
import ctypes
import errno
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
MNT_DETACH = 2
PR_SET_CHILD_SUBREAPER = 36
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
MS_BIND = 4096


def become_reaper():
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(number) for number in file.read().split()]
        except OSError:
            pass
    return found


def end_children(known=()):
    """Kills what is still a child of ours, down to the last grandchild."""
    for _ in range(200):
        children = [pid for pid in children_of(os.getpid()) if pid not in known]
        if not children:
            return
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


def limit_files(soft):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def check_libc(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fallocate(fd, mode, offset, length):
    check_libc(libc.fallocate64(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))


def bind_mount(source, target):
    check_libc(libc.mount(source.encode(), target.encode(), None, MS_BIND, None))


def umount(path, flags=0):
    check_libc(libc.umount2(path.encode(), flags))


def mounts(path=None):
    """(mount point, type, source, options) of the mounts, or of those on a path."""
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            head, tail = line.split(" - ", 1)
            point, options = head.split()[4], head.split()[5]
            if path is None or point == path:
                found.append((point, tail.split()[0], tail.split()[1], options))
    return found


def expect_error(number, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        assert error.errno == number, f"{os.strerror(error.errno)} instead of {os.strerror(number)}"
        return
    raise AssertionError(f"no error instead of {os.strerror(number)}")


def wait_until(condition, what, seconds=10):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.005)


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


def allocated(directory):
    """Bytes and inodes that the files of a volume really take, each inode once; the root counts for bytes."""
    seen, total = set(), os.lstat(directory + "/data").st_blocks * 512
    for top in ("data", "orphans"):
        for base, directories, files in os.walk(f"{directory}/{top}"):
            for name in directories + files:
                try:
                    st = os.lstat(f"{base}/{name}")
                except FileNotFoundError:
                    continue
                if st.st_ino not in seen:
                    seen.add(st.st_ino)
                    total += st.st_blocks * 512
    return total, len(seen)


class Volume:
    def __init__(self, lab, name, limit):
        self.lab, self.id, self.limit = lab, name, limit
        self.directory = f"{lab.root}/volumes/{name}"
        self.path = f"{lab.root}/mounts/{name}"

    def __truediv__(self, name):
        return f"{self.path}/{name}"

    def stats(self):
        return self.lab.call("stats", id=self.id)

    def used(self):
        return self.stats()["used"]

    def entry(self):
        found = self.lab.call("list", id=self.id)["mounts"]
        return found[0] if found else None

    def pid(self):
        return self.entry()["pid"]

    def set_limit(self, limit):
        self.limit = limit
        self.lab.call("set-limit", id=self.id, limit=limit)

    def kill(self):
        """SIGKILLs the process that serves it, if there is one just now; returns once its successor serves."""
        entry = self.entry()
        if entry["pid"] > 0:
            os.kill(entry["pid"], signal.SIGKILL)
        wait_until(lambda: self.serving(other_than=entry["pid"]), "a successor serves")

    def serving(self, other_than=0):
        entry = self.entry()
        return entry["serving"] and entry["pid"] != other_than

    def settle(self, slack=0, seconds=3):
        """Figures agree with what is really allocated; frees of closed files may be under way for a moment."""
        def agree():
            stats, (used, inodes) = self.stats(), allocated(self.directory)
            return abs(stats["used"] - used) <= slack and stats["inodes"] == inodes
        try:
            wait_until(agree, "", seconds)
        except AssertionError:
            stats = self.stats()
            raise AssertionError(f"counted {stats['used']}, {stats['inodes']} inodes; "
                                 f"allocated {allocated(self.directory)}") from None

    def unmount(self):
        return self.lab.call("unmount", id=self.id, target=self.path)["inUse"]


class Lab:
    """One holder. `programs`: the directory with berth-holder and berth-fuse."""

    def __init__(self, programs, base=None, cgroup=None):
        self.programs = programs
        self.root = tempfile.mkdtemp(prefix="berth-fuse-", dir=base)
        os.chmod(self.root, 0o755)
        for name in ("volumes", "mounts", "run"):
            os.mkdir(f"{self.root}/{name}")
        self.socket_path = f"{self.root}/run/s"
        self.log_path = f"{self.root}/holder.log"
        self.fuse_program = f"{programs}/berth-fuse"
        self.cgroup = cgroup
        self.holder = None
        self.count = 0
        self.reports = []  # of sanitizers, after close

    def start(self, *arguments, soft_files=None):
        """Starts a holder (beside the present one, which it relieves) and waits until it answers."""
        with open(self.log_path, "a") as log:
            holder = subprocess.Popen(
                [f"{self.programs}/berth-holder", f"--socket={self.socket_path}", f"--fuse-program={self.fuse_program}",
                 "-v=2", *arguments], stderr=log, stdout=log, stdin=subprocess.DEVNULL, start_new_session=True,
                preexec_fn=(lambda: limit_files(soft_files)) if soft_files else None)
        before, self.holder = self.holder, holder
        if before is not None and before.poll() is None:
            before.wait(20)

        def answers():
            assert holder.poll() is None, f"the holder ended: {self.tail()}"
            try:
                return self.call_once("health")
            except OSError:
                return None
        return wait_until(answers, "the holder answers", 20)

    def tail(self, lines=12):
        with open(self.log_path) as log:
            return "".join(log.readlines()[-lines:])

    def call_once(self, op, timeout=30, **arguments):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.settimeout(timeout + 5)
            peer.connect(self.socket_path)
            peer.send(json.dumps({"op": op, "timeoutMs": int(timeout * 1000), **arguments}).encode())
            data = peer.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the holder went away")
        answer = json.loads(data)
        if not answer["ok"]:
            raise Refused(answer["code"], answer["message"])
        return answer

    def call(self, op, timeout=30, **arguments):
        """As the drivers' client does: again when the holder is being replaced."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.call_once(op, timeout, **arguments)
            except (ConnectionError, FileNotFoundError):
                if time.monotonic() > deadline:
                    raise
            except Refused as refused:
                if refused.code != "Gone":
                    raise
            time.sleep(0.02)

    def volume(self, limit=64 * MIB, base=None, **arguments):
        self.count += 1
        volume = Volume(self, f"v{self.count}", limit)
        if base is not None:
            volume.directory = f"{base}/{volume.id}"
        os.makedirs(volume.directory + "/data")
        self.mount(volume, **arguments)
        return volume

    def mount(self, volume, **arguments):
        return self.call("mount", id=volume.id, directory=volume.directory, target=volume.path, limit=volume.limit,
                         **arguments)

    def kill_holder(self):
        self.holder.kill()
        self.holder.wait()

    def close(self):
        known = [self.holder.pid] if self.holder else []
        try:
            if self.holder is not None and self.holder.poll() is None:
                for entry in self.call("list")["mounts"]:
                    self.call("unmount", id=entry["id"])
                self.holder.send_signal(signal.SIGTERM)
                self.holder.wait(10)
        except (OSError, Refused, subprocess.TimeoutExpired):
            pass
        finally:
            if self.holder is not None and self.holder.poll() is None:
                self.kill_holder()
            end_children(known)
            self.reports = [line for line in self.tail(1 << 20).splitlines() if "Sanitizer" in line or "runtime error" in line]
            for point, _, _, _ in reversed(mounts()):
                if point.startswith(self.root + "/"):
                    try:
                        umount(point, MNT_DETACH)
                    except OSError as error:
                        if error.errno != errno.EINVAL:
                            raise
            shutil.rmtree(self.root, ignore_errors=True)
