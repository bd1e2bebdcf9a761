# SPDX-License-Identifier: Apache-2.0
"""The node service: staging, publishing, sizes, stale mounts. The kernel here may have no NFS client: FUSE mounts."""
import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import time

from checks import equal, fails, names, write
from driver import CODES, Driver, MOUNT  # noqa: F401
from server import wait_for

RW = {"mount": {}, "access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}}


def mounts():
    with open("/proc/self/mountinfo", encoding="utf-8") as lines:
        return [line.split()[4] for line in lines]


def fuse_processes(home):
    """Process ids of the FUSE processes of this driver."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as text:
                words = text.read().split(b"\0")
            if b"mount-fuse" in words and any(word.startswith(home.encode()) for word in words):
                found.append(int(pid))
    return found


def readable(path):
    try:
        os.listdir(path)
    except OSError:
        return False
    return True


def refused(path):
    """The error number of making a file there."""
    try:
        write(path)
    except OSError as error:
        return error.errno
    return 0


class Node(Driver):
    def __init__(self, context, *flags):
        super().__init__(context.build, "--mounter=fuse", *flags)
        self.paths = []

    def path(self, name):
        return os.path.join(self.home, name)

    def stage(self, volume, name="staging", capability=RW, **more):
        os.makedirs(self.path(name), exist_ok=True)
        self.call("NodeStageVolume", {"volume_id": volume["volume_id"], "staging_target_path": self.path(name),
                                      "volume_capability": capability,
                                      "volume_context": volume.get("volume_context", {}), **more})
        return self.path(name)

    def publish(self, volume, name="target", staging="staging", capability=RW, **more):
        self.call("NodePublishVolume", {"volume_id": volume["volume_id"], "staging_target_path": self.path(staging),
                                        "target_path": self.path(name), "volume_capability": capability,
                                        "volume_context": volume.get("volume_context", {}), **more})
        return self.path(name)

    def unpublish(self, volume, name="target"):
        self.call("NodeUnpublishVolume", {"volume_id": volume["volume_id"], "target_path": self.path(name)})

    def unstage(self, volume, name="staging"):
        self.call("NodeUnstageVolume", {"volume_id": volume["volume_id"], "staging_target_path": self.path(name)})

    def stats(self, volume, name="target", **more):
        return self.call("NodeGetVolumeStats", {"volume_id": volume["volume_id"], "volume_path": self.path(name),
                                                **more})

    def finish(self):
        """Ends it and whatever it mounted."""
        for path in reversed([entry for entry in mounts() if entry.startswith(self.home + "/")]):
            subprocess.run(["umount", "-l", path], check=False)
        status = self.kill(signal.SIGTERM)
        for pid in fuse_processes(self.home):
            with contextlib.suppress(ProcessLookupError):
                wait_for("end of the FUSE process", lambda pid=pid: not os.path.exists(f"/proc/{pid}"), 5)
        leftover = fuse_processes(self.home)
        for pid in leftover:
            os.kill(pid, signal.SIGKILL)
        self.close()
        equal(leftover, [], "FUSE processes that did not end")
        equal(status, 0, "the driver's exit status")


@contextlib.contextmanager
def node(context, *flags):
    running = Node(context, *flags)
    try:
        yield running
    finally:
        running.finish()


@contextlib.contextmanager
def mounted(context, size=0, version=4, flags=(), name="pvc-n", **parameters):
    with node(context, *flags) as nfs:
        volume = nfs.create(name, context.parameters(version=version, **parameters), size=size)
        nfs.stage(volume)
        target = nfs.publish(volume)
        yield nfs, volume, target
        nfs.unpublish(volume)
        assert not os.path.exists(target)
        nfs.unstage(volume)
        nfs.delete(volume["volume_id"])


def posix(target, export):
    """What programs expect of a file system."""
    write(target + "/dir/file", b"hello")
    with open(export + "/dir/file", "rb") as data:
        equal(data.read(), b"hello", "it is on the server when close returned")
    os.chmod(target + "/dir/file", 0o640)
    os.chown(target + "/dir/file", 12, 34)
    os.utime(target + "/dir/file", ns=(10**18, 10**18 + 1000))
    st = os.stat(export + "/dir/file")
    equal((st.st_mode & 0o7777, st.st_uid, st.st_gid, st.st_size), (0o640, 12, 34, 5))
    os.symlink("../nowhere", target + "/dir/link")
    equal(os.readlink(target + "/dir/link"), "../nowhere")
    os.link(target + "/dir/file", target + "/hard")
    equal(os.stat(target + "/hard").st_nlink, 2)
    os.mkfifo(target + "/fifo")
    with open(target + "/big", "wb") as out:
        for number in range(64):
            out.write(bytes([number]) * 65536)
    with open(target + "/big", "r+b") as out:
        out.seek(100000)
        out.write(b"middle")
    with open(export + "/big", "rb") as data:
        content = data.read()
    equal((len(content), content[100000:100006], content[-1]), (64 * 65536, b"middle", 63))
    os.truncate(target + "/big", 1000)
    equal(os.stat(target + "/big").st_size, 1000)
    with open(target + "/big", "ab") as out:
        out.write(b"end")
    with open(target + "/big", "rb") as data:
        equal(data.read()[-4:], b"\0end")
    os.rename(target + "/big", target + "/dir/file")
    equal(os.stat(target + "/dir/file").st_size, 1003)
    # open and removed
    with open(target + "/gone", "w+b") as out:
        out.write(b"still here")
        out.flush()
        os.unlink(target + "/gone")
        assert not os.path.exists(target + "/gone")
        out.seek(0)
        equal(out.read(), b"still here")
    wait_for("the removed file to go", lambda: not [n for n in os.listdir(target) if n.startswith(".nfs")])
    # open and replaced
    write(target + "/old", b"old")
    write(target + "/new", b"new")
    with open(target + "/old", "rb") as data:
        os.rename(target + "/new", target + "/old")
        equal(data.read(), b"old")
    with open(target + "/old", "rb") as data:
        equal(data.read(), b"new")
    with open(target + "/lock", "wb") as out:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.mkdir(target + "/many")
    for number in range(700):
        write(f"{target}/many/file-{number:04}")
    equal(names(target + "/many"), [f"file-{number:04}" for number in range(700)])
    for name in os.listdir(target + "/many"):
        os.unlink(f"{target}/many/{name}")
    os.rmdir(target + "/many")
    with open(target + "/excl", "xb"):
        pass
    try:
        with open(target + "/excl", "xb"):
            raise AssertionError("made twice")
    except FileExistsError:
        pass


def test_fuse_is_a_file_system_v3(context):
    with mounted(context, version=3) as (nfs, volume, target):
        posix(target, context.path() + "/pvc-n")


def test_fuse_is_a_file_system_v4(context):
    with mounted(context, version=4) as (nfs, volume, target):
        posix(target, context.path() + "/pvc-n")


def test_users_and_groups(context):
    """Each request goes as who makes it, with the supplementary groups that fsGroup gives pods."""
    with mounted(context) as (nfs, volume, target):
        os.chmod(nfs.home, 0o755)
        os.chown(target, 0, 5000)
        os.chmod(target, 0o2770)
        script = ("import os, sys\n"
                  f"os.setgroups({{groups}}); os.setgid(1000); os.setuid(1000)\n"
                  f"open({target!r} + '/' + sys.argv[1], 'w').write('x')\n")
        inside = subprocess.run(["/usr/bin/python3", "-c", script.format(groups=[5000]), "mine"], check=False,
                                stderr=subprocess.DEVNULL)
        equal(inside.returncode, 0, "with the group")
        outside = subprocess.run(["/usr/bin/python3", "-c", script.format(groups=[7]), "theirs"], check=False,
                                 stderr=subprocess.DEVNULL)
        assert outside.returncode != 0, "without the group"
        st = os.stat(context.path() + "/pvc-n/mine")
        equal((st.st_uid, st.st_gid), (1000, 5000))


def fill(path, limit=1 << 30):
    """Writes until it may not; gives errno and how much went in."""
    written = 0
    with open(path, "wb", buffering=0) as out:
        try:
            while written < limit:
                written += out.write(b"\1" * 65536)
        except OSError as error:
            return error.errno, written
    return 0, written


def size_is_enforced(context, version):
    size = 4 << 20
    with mounted(context, size=size, version=version) as (nfs, volume, target):
        disk = os.statvfs(target)
        equal(disk.f_blocks * disk.f_frsize, size, "df shows the claim's size")
        error, written = fill(target + "/a")
        equal(error, errno.ENOSPC)
        assert size - (1 << 16) <= written <= size, written
        equal(os.statvfs(target).f_bavail, 0)
        try:
            os.mkdir(target + "/dir")
            raise AssertionError("a directory beyond the size")
        except OSError as problem:
            equal(problem.errno, errno.ENOSPC)
        # what is there may be written over
        with open(target + "/a", "r+b", buffering=0) as out:
            equal(out.write(b"\2" * 4096), 4096)
        # what goes gives room; a hard link keeps it
        os.link(target + "/a", target + "/b")
        os.unlink(target + "/a")
        equal(os.statvfs(target).f_bavail, 0)
        os.truncate(target + "/b", 1 << 20)
        wait_for("room after truncation", lambda: os.statvfs(target).f_bavail * 4096 >= 2 << 20)
        os.unlink(target + "/b")
        error, written = fill(target + "/c", limit=3 << 20)
        equal((error, written), (0, 3 << 20))
        # growing while mounted
        nfs.call("ControllerExpandVolume", {"volume_id": volume["volume_id"],
                                            "capacity_range": {"required_bytes": 8 << 20}})
        reply = nfs.call("NodeExpandVolume", {"volume_id": volume["volume_id"], "volume_path": target})
        equal(reply["capacity_bytes"], 8 << 20)
        wait_for("the new size", lambda: os.statvfs(target).f_blocks * 4096 == 8 << 20)
        usage = {row["unit"]: row for row in nfs.stats(volume)["usage"]}
        equal(usage["BYTES"]["total"], 8 << 20)
        assert usage["BYTES"]["used"] >= 3 << 20
        error, written = fill(target + "/d")
        equal(error, errno.ENOSPC)
        assert written >= (8 << 20) - (3 << 20) - (1 << 17), written


def test_size_is_enforced_v3(context):
    size_is_enforced(context, 3)


def test_size_is_enforced_v4(context):
    size_is_enforced(context, 4)


def test_what_others_write_counts(context):
    """A volume that is used already when it is mounted, and what comes from another node."""
    with node(context, "--usage-interval=1s") as nfs:
        volume = nfs.create("pvc-m", context.parameters(), size=4 << 20)
        first = nfs.publish(volume, "t1", staging=os.path.basename(nfs.stage(volume, "s1")))
        error, _ = fill(first + "/a", limit=3 << 20)
        equal(error, 0)
        other = Node(context, "--usage-interval=1s")
        try:
            second = other.publish(volume, "t2", staging=os.path.basename(other.stage(volume, "s2")))
            wait_for("the measured use", lambda: os.statvfs(second).f_bavail * 4096 <= 1 << 20)
            error, _ = fill(second + "/b")
            equal(error, errno.ENOSPC)
            wait_for("the other node's view", lambda: os.statvfs(first).f_bavail == 0)
            other.unpublish(volume, "t2")
            other.unstage(volume, "s2")
        finally:
            other.finish()
        nfs.unpublish(volume, "t1")
        nfs.unstage(volume, "s1")
        nfs.delete(volume["volume_id"])


def test_publish_rules(context):
    with node(context) as nfs:
        volume = nfs.create("pvc-p", context.parameters())
        with fails("FAILED_PRECONDITION", "not staged"):
            nfs.publish(volume)
        nfs.stage(volume)
        nfs.stage(volume)
        with fails("ALREADY_EXISTS", "another capability"):
            nfs.stage(volume, capability={"mount": {"mount_flags": ["noatime"]}, "access_mode": RW["access_mode"]})
        target = nfs.publish(volume)
        count = len(mounts())
        nfs.publish(volume)
        equal(len(mounts()), count, "no second mount")
        with fails("ALREADY_EXISTS", "but writable"):
            nfs.publish(volume, readonly=True)
        read_only = nfs.publish(volume, "ro", readonly=True)
        write(target + "/x")
        equal(refused(read_only + "/y"), errno.EROFS)
        equal(names(read_only), ["x"])
        single = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_SINGLE_WRITER"}}
        with fails("FAILED_PRECONDITION", "one target"):
            nfs.publish(volume, "third", capability=single)
        reader = {"mount": {}, "access_mode": {"mode": "MULTI_NODE_READER_ONLY"}}
        rox = nfs.publish(volume, "rox", capability=reader)
        equal(refused(rox + "/y"), errno.EROFS)
        with fails("FAILED_PRECONDITION", "still published"):  # it would count as unused, and might be scrubbed
            nfs.unstage(volume)
        for name in ("target", "ro", "rox"):
            nfs.unpublish(volume, name)
            nfs.unpublish(volume, name)
            assert not os.path.exists(nfs.path(name))
        with fails("INVALID_ARGUMENT", "path"):
            nfs.call("NodeUnpublishVolume", {"volume_id": volume["volume_id"], "target_path": "a/../b"})
        nfs.unstage(volume)
        nfs.unstage(volume)
        equal(fuse_processes(nfs.home), [])
        with fails("NOT_FOUND"):
            nfs.stats(volume)
        nfs.delete(volume["volume_id"])
        with fails("NOT_FOUND", "no directory"):
            nfs.stage(volume)


def test_ephemeral_and_static_volumes(context):
    with node(context) as nfs:
        os.mkdir(context.path() + "/given")
        attributes = {**context.parameters(), "subDir": "given", "mountPermissions": "0751",
                      "csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "p"}
        volume = {"volume_id": "csi-" + "5" * 64, "volume_context": attributes}
        nfs.call("NodePublishVolume", {"volume_id": volume["volume_id"], "target_path": nfs.path("inline"),
                                       "volume_capability": RW, "volume_context": attributes})
        write(nfs.path("inline") + "/x")
        equal(names(context.path() + "/given"), ["x"])
        equal(os.stat(context.path() + "/given").st_mode & 0o7777, 0o751)
        nfs.unpublish(volume, "inline")
        equal(fuse_processes(nfs.home), [])
        # a hand-made PersistentVolume of the whole share, and one of csi-driver-nfs without attributes
        volume = {"volume_id": "any name", "volume_context": context.parameters()}
        nfs.stage(volume)
        equal(names(nfs.publish(volume)), ["given"])
        nfs.unpublish(volume)
        nfs.unstage(volume)
        volume = {"volume_id": f"127.0.0.1#{context.path()[1:]}#given##",
                  "volume_context": {"mountOptions": context.options()}}
        nfs.stage(volume)
        equal(names(nfs.publish(volume)), ["x"])
        nfs.unpublish(volume)
        nfs.unstage(volume)


def test_kubelet_directory_is_a_link(context):
    """mountinfo shows where it leads, and the calls name the link."""
    with node(context) as nfs:
        volume = nfs.create("pvc-l", context.parameters())
        os.mkdir(nfs.path("real"))
        os.symlink("real", nfs.path("link"))
        single = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_SINGLE_WRITER"}}
        before = len(mounts())
        for _ in range(2):
            nfs.stage(volume, "link/staging", capability=single)
            nfs.publish(volume, "link/target", "link/staging", capability=single)
        equal(len(mounts()), before + 2)
        with fails("FAILED_PRECONDITION", "one target"):
            nfs.publish(volume, "link/second", "link/staging", capability=single)
        nfs.unpublish(volume, "link/target")
        nfs.unstage(volume, "link/staging")
        equal(len(mounts()), before)
        nfs.delete(volume["volume_id"])


def test_driver_restart(context):
    """A restarted driver knows what is mounted, and pods notice nothing."""
    with mounted(context, size=4 << 20) as (nfs, volume, target):
        with open(target + "/open", "wb", buffering=0) as out:
            out.write(b"before ")
            nfs.restart()
            out.write(b"after")
        equal(nfs.stats(volume)["volume_condition"].get("abnormal", False), False)
        nfs.publish(volume)
        nfs.stage(volume)
        with open(context.path() + "/pvc-n/open", "rb") as data:
            equal(data.read(), b"before after")


def test_dead_mounts_are_replaced_at_start(context):
    """A driver whose pod was killed lost its FUSE processes, and kubelet does not ask again for what it has published."""
    with mounted(context) as (nfs, volume, target):
        write(target + "/x")
        second = nfs.publish(volume, "second", readonly=True)
        before = sorted(mounts())
        nfs.kill()
        for pid in fuse_processes(nfs.home):
            os.kill(pid, signal.SIGKILL)
        wait_for("the mount to break", lambda: not fuse_processes(nfs.home))
        nfs.start()
        wait_for("the mounts to be there again", lambda: readable(target) and readable(second))
        equal(names(target), ["x"])
        write(target + "/y")
        equal(refused(second + "/z"), errno.EROFS)
        wait_for("the mount made aside to be gone", lambda: sorted(mounts()) == before)
        nfs.stage(volume)
        nfs.publish(volume)
        equal(sorted(mounts()), before)
        nfs.unpublish(volume, "second")


def test_dead_fuse_process_is_mended(context):
    with mounted(context) as (nfs, volume, target):
        write(target + "/x")
        for pid in fuse_processes(nfs.home):
            os.kill(pid, signal.SIGKILL)
        wait_for("the mount to break", lambda: not fuse_processes(nfs.home))
        condition = nfs.stats(volume)["volume_condition"]
        equal(condition["abnormal"], True)
        assert "127.0.0.1" in condition["message"], condition
        nfs.publish(volume)
        equal(names(target), ["x"])
        equal(nfs.stats(volume)["volume_condition"].get("abnormal", False), False)
