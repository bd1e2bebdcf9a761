#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What berth-hostpath promises beyond the CSI specification's cases: sizes, contents, safety.

    tests/hostpath/features.py [--backend plain|loop|fuse|block] [--only REGEX]

Prints "N passed, N failed, N skipped" last.
"""
import argparse
import errno
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "sanity"))

from csi import (ABORTED, ALREADY_EXISTS, FAILED_PRECONDITION, INVALID_ARGUMENT, MI, NOT_FOUND, OUT_OF_RANGE,  # noqa: E402
                 RESOURCE_EXHAUSTED, UNIMPLEMENTED, Connection, Failure, RpcError, Skip, capability, enter_namespaces,
                 expect, has_capability, is_mounted)
from drivers import Hostpath  # noqa: E402
from sanity import Context, Run  # noqa: E402

TESTS = []
TREES = ("plain", "fuse", "loop")


def test(*backends):
    def register(function):
        TESTS.append((function.__name__.removeprefix("test_"), backends, function))
        return function
    return register


class Driver(Hostpath):
    """The driver with further arguments, which a test may change before a restart."""
    default_size = 64 * MI
    extra = ()

    def start(self, run):
        original = run.spawn
        run.spawn = lambda name, *args: original(name, *args, *self.extra)
        try:
            return super().start(run)
        finally:
            del run.spawn


def restart(run, kill=False):
    (run.process.kill if kill else run.process.terminate)()
    run.process.wait()
    run.connection.close()
    run.process = run.driver.start(run)
    run.connection = Connection(run.program("csi-call"), run.socket)
    run.load_capabilities()


def refresh(s):
    s.call, s.fails = s.run.connection.call, s.run.connection.fails


def content_of(run, volume, *path):
    return os.path.join(run.directory, "state", "volumes", volume["volume_id"], *path)


def fill(directory):
    """One of everything a copy has to keep."""
    os.makedirs(os.path.join(directory, "a", "b"))
    with open(os.path.join(directory, "a", "text"), "w", encoding="ascii") as f:
        f.write("hello\n" * 1000)
    os.link(os.path.join(directory, "a", "text"), os.path.join(directory, "a", "b", "again"))
    os.symlink("/etc/passwd", os.path.join(directory, "outside"))
    os.symlink("a/text", os.path.join(directory, "inside"))
    os.mkfifo(os.path.join(directory, "pipe"), 0o640)
    with open(os.path.join(directory, "sparse"), "wb") as f:
        f.truncate(16 * MI)
        f.seek(8 * MI)
        f.write(b"x" * 4096)
    os.chmod(os.path.join(directory, "a", "text"), 0o4751)
    os.chown(os.path.join(directory, "a", "b"), 1234, 4321)
    os.setxattr(os.path.join(directory, "a"), "user.berth", b"value")
    os.utime(os.path.join(directory, "a", "text"), ns=(1234567890123456789, 987654321987654321))


def describe(directory):
    """What fill made, in a form that can be compared."""
    seen = {}
    for parent, directories, files in os.walk(directory):
        for name in directories + files:
            path = os.path.join(parent, name)
            st = os.lstat(path)
            kind = stat.S_IFMT(st.st_mode)
            if name == "lost+found":
                continue
            entry = [stat.filemode(st.st_mode), st.st_uid, st.st_gid, st.st_nlink if kind != stat.S_IFDIR else 0]
            if kind == stat.S_IFREG:
                with open(path, "rb") as f:
                    entry += [f.read(), st.st_mtime_ns]
            elif kind == stat.S_IFLNK:
                entry.append(os.readlink(path))
            if kind == stat.S_IFDIR:
                entry.append({n: os.getxattr(path, n) for n in os.listxattr(path)})
            seen[os.path.relpath(path, directory)] = entry
    return seen


def use(s, volume, run=None):
    """Publishes a volume at the context's target; returns how to take it away again."""
    context = s.controller_publish(volume)
    s.stage(volume, context)
    s.publish(volume, context=context)
    return lambda: s.down(volume)


# ---- sizes

@test("fuse", "loop")
def test_size_is_enforced(s):
    s.up(size=32 * MI)
    total = os.statvfs(s.target)
    expect(24 * MI <= total.f_blocks * total.f_frsize <= 32 * MI, f"df says {total.f_blocks * total.f_frsize}")
    written = 0
    try:
        with open(os.path.join(s.target, "big"), "wb", buffering=0) as f:
            while written < 40 * MI:
                written += f.write(b"x" * MI)
            os.fsync(f.fileno())
    except OSError as e:
        expect(e.errno == errno.ENOSPC, f"{e}")
    expect(24 * MI <= written <= 32 * MI, f"{written} bytes went into a volume of 32 MiB")


@test("fuse", "loop")
def test_size_grows_in_use(s):
    if s.driver.backend == "loop" and not has_capability(24):
        raise Skip("this machine's root has no CAP_SYS_RESOURCE, so the kernel refuses to grow a mounted ext4")
    volume = s.up(size=32 * MI)
    with open(os.path.join(s.target, "open"), "wb") as f:
        s.call("ControllerExpandVolume", volume_id=volume["volume_id"], capacity_range={"required_bytes": 96 * MI})
        total = os.statvfs(s.target)
        expect(80 * MI <= total.f_blocks * total.f_frsize <= 96 * MI, f"df says {total.f_blocks * total.f_frsize}")
        f.write(b"x" * (48 * MI))
        f.flush()
        os.fsync(f.fileno())


@test("loop")
def test_size_grows_with_the_next_mount(s):
    """Where the kernel does not allow it in use, and for volumes that are not in use."""
    volume = s.create(size=32 * MI)
    down = use(s, volume)
    fill(s.target)
    before = describe(s.target)
    s.call("ControllerExpandVolume", volume_id=volume["volume_id"], capacity_range={"required_bytes": 160 * MI})
    down()
    use(s, volume)
    total = os.statvfs(s.target)
    expect(140 * MI <= total.f_blocks * total.f_frsize <= 160 * MI, f"df says {total.f_blocks * total.f_frsize}")
    expect(describe(s.target) == before, "the contents are not what they were")


@test("block")
def test_block_size_to_the_byte(s):
    volume = s.up(size=10 * MI + 1)
    def size():
        fd = os.open(s.target, os.O_RDONLY)
        try:
            return os.lseek(fd, 0, os.SEEK_END)
        finally:
            os.close(fd)
    expect(size() == 10 * MI + 512, f"{size()}")
    s.call("ControllerExpandVolume", volume_id=volume["volume_id"], capacity_range={"required_bytes": 20 * MI})
    expect(size() == 20 * MI, f"{size()} after the growth")


@test("block")
def test_block_read_only(s):
    volume = s.create()
    context = s.controller_publish(volume)
    s.stage(volume, context)
    s.call("NodePublishVolume", readonly=True, **s.publish_request(volume, context))
    try:
        with open(s.target, "r+b") as f:
            f.write(b"x")
        raise Failure("a read-only block volume was written to")
    except OSError as e:
        expect(e.errno in (errno.EPERM, errno.EROFS, errno.EACCES), f"{e}")


@test("block")
def test_block_snapshot_and_clone(s):
    volume = s.up(size=16 * MI)
    with open(s.target, "r+b") as f:
        f.write(b"first" * 1000)
    snapshot = s.snapshot(volume["volume_id"])
    with open(s.target, "r+b") as f:
        f.write(b"later" * 1000)
    clone = s.create(size=16 * MI, volume_content_source={"volume": {"volume_id": volume["volume_id"]}})
    s.down(volume)
    restored = s.create(size=24 * MI, volume_content_source={"snapshot": {"snapshot_id": snapshot["snapshot_id"]}})
    for made, text in ((restored, b"first"), (clone, b"later")):
        down = use(s, made)
        with open(s.target, "rb") as f:
            expect(f.read(5000) == text * 1000, f"not what was written: {text}")
        down()


@test("block")
def test_block_copy_is_of_one_moment_or_refused(s):
    volume = s.up(size=256 * MI)
    with open(s.target, "r+b") as f:
        f.write(b"x" * (128 * MI))
    writer = subprocess.Popen([sys.executable, "-c", "import os, sys\nf = open(sys.argv[1], 'r+b', buffering=0)\n"
                               "while True:\n    os.pwrite(f.fileno(), os.urandom(4096), 0)\n    os.fsync(f.fileno())\n",
                               s.target])
    try:
        error = s.fails(ABORTED, "CreateSnapshot", name=s.name("snapshot"), source_volume_id=volume["volume_id"])
        expect("pause its writers" in str(error), f"{error}")
    finally:
        writer.kill()
        writer.wait()
    s.snapshot(volume["volume_id"])


# ---- contents

@test(*TREES)
def test_snapshot_restore_and_clone_keep_everything(s):
    volume = s.up()
    fill(s.target)
    before = describe(s.target)
    snapshot = s.snapshot(volume["volume_id"])
    os.unlink(os.path.join(s.target, "a", "text"))
    with open(os.path.join(s.target, "new"), "w", encoding="ascii") as f:
        f.write("later")
    changed = describe(s.target)
    clone = s.create(volume_content_source={"volume": {"volume_id": volume["volume_id"]}})
    s.down(volume)
    s.call("DeleteVolume", volume_id=volume["volume_id"])
    restored = s.create(volume_content_source={"snapshot": {"snapshot_id": snapshot["snapshot_id"]}}, size=80 * MI)
    for made, wanted in ((restored, before), (clone, changed)):
        down = use(s, made)
        found = describe(s.target)
        expect(found == wanted, f"differs: {sorted(k for k in set(found) | set(wanted) if found.get(k) != wanted.get(k))}")
        sparse = os.lstat(os.path.join(s.target, "sparse"))
        expect(sparse.st_blocks * 512 < MI, f"the hole takes {sparse.st_blocks * 512} bytes")
        down()


@test(*TREES)
def test_source_must_fit(s):
    volume = s.create(size=64 * MI)
    source = {"volume": {"volume_id": volume["volume_id"]}}
    s.fails(OUT_OF_RANGE, "CreateVolume", **s.request(size=32 * MI, volume_content_source=source))
    s.fails(INVALID_ARGUMENT, "CreateVolume", name=s.name("volume"), parameters={}, volume_content_source=source,
            volume_capabilities=[capability("block")])
    other = {"loop": "plain"}.get(s.driver.backend, "loop")
    s.fails(INVALID_ARGUMENT, "CreateVolume", name=s.name("volume"), parameters={"backend": other},
            volume_content_source=source, volume_capabilities=[s.cap()])
    # a class that names no backend takes the source's, and no size means the source's
    made = s.call("CreateVolume", name=s.name("volume"), volume_content_source=source, volume_capabilities=[s.cap()])
    s.undo.append(lambda: s.cleanup_volume(made["volume"]["volume_id"]))
    expect(made["volume"]["volume_context"]["backend"] == s.driver.backend, f"{made}")
    expect(made["volume"]["capacity_bytes"] == 64 * MI, f"{made}")


@test(*TREES)
def test_same_name_other_source(s):
    one, other, name = s.create(), s.create(), s.name("volume")
    s.create(name=name, volume_content_source={"volume": {"volume_id": one["volume_id"]}})
    s.create(name=name, volume_content_source={"volume": {"volume_id": one["volume_id"]}})
    s.fails(ALREADY_EXISTS, "CreateVolume",
            **s.request(name=name, volume_content_source={"volume": {"volume_id": other["volume_id"]}}))
    s.fails(ALREADY_EXISTS, "CreateVolume", **s.request(name=name))


@test(*TREES, "block")
def test_group_snapshot(s):
    volumes = [s.create(), s.create()]
    ids = [v["volume_id"] for v in volumes]
    name = s.name("group")
    group = s.call("CreateVolumeGroupSnapshot", name=name, source_volume_ids=ids)["group_snapshot"]
    again = s.call("CreateVolumeGroupSnapshot", name=name, source_volume_ids=ids[::-1])["group_snapshot"]
    expect(again == group, f"{again} after {group}")
    s.fails(ALREADY_EXISTS, "CreateVolumeGroupSnapshot", name=name, source_volume_ids=ids[:1])
    s.fails(NOT_FOUND, "CreateVolumeGroupSnapshot", name=s.name("group"), source_volume_ids=[ids[0], "absent"])
    s.fails(INVALID_ARGUMENT, "CreateVolumeGroupSnapshot", name=s.name("group"), source_volume_ids=[ids[0], ids[0]])
    members = [m["snapshot_id"] for m in group["snapshots"]]
    expect(sorted(m["source_volume_id"] for m in group["snapshots"]) == sorted(ids), f"{group}")
    expect(all(m["group_snapshot_id"] == group["group_snapshot_id"] for m in group["snapshots"]), f"{group}")
    s.fails(INVALID_ARGUMENT, "DeleteSnapshot", snapshot_id=members[0])
    expect(len(s.snapshots(snapshot_id=members[0])) == 1, "a member is not listed")
    restored = s.create(volume_content_source={"snapshot": {"snapshot_id": members[1]}})
    restart(s.run)
    refresh(s)
    same = s.call("GetVolumeGroupSnapshot", group_snapshot_id=group["group_snapshot_id"], snapshot_ids=members)
    expect(same["group_snapshot"] == group, f"{same} after a restart")
    s.fails(INVALID_ARGUMENT, "GetVolumeGroupSnapshot", group_snapshot_id=group["group_snapshot_id"],
            snapshot_ids=[members[0], "another"])
    s.call("DeleteVolumeGroupSnapshot", group_snapshot_id=group["group_snapshot_id"], snapshot_ids=members)
    expect(s.snapshots(snapshot_id=members[0]) == [], "a member is left")
    expect(restored["volume_id"] in [e["volume"]["volume_id"] for e in s.volumes()], "the restored volume is gone")


@test("plain")
def test_long_copy_goes_on_after_its_call(s):
    volume = s.up()
    for d in range(60):
        os.makedirs(os.path.join(s.target, str(d)))
        for f in range(500):
            with open(os.path.join(s.target, str(d), str(f)), "wb") as out:
                out.write(b"x")
    impatient = Connection(s.run.program("csi-call"), s.run.socket, "100ms")
    request = s.request(volume_content_source={"volume": {"volume_id": volume["volume_id"]}})
    error = impatient.fails((4, ABORTED), "CreateVolume", **request)
    expect(error.code == 4, f"the copy was too quick for this test: {error}")
    impatient.close()
    s.fails(ABORTED, "CreateVolume", **request)
    s.fails(ABORTED, "DeleteVolume", volume_id=volume["volume_id"])
    # nothing else waits for it, not even the source's other calls
    began = time.monotonic()
    s.publish(volume, context={}, target=s.target + "-2")
    s.call("NodeUnpublishVolume", volume_id=volume["volume_id"], target_path=s.target + "-2")
    s.create()
    expect(time.monotonic() - began < 2, "other calls waited for the copy")
    deadline = time.monotonic() + 60
    while True:
        try:
            made = s.call("CreateVolume", **request)["volume"]
            break
        except RpcError as e:
            expect(e.code == ABORTED and time.monotonic() < deadline, f"{e}")
            time.sleep(0.1)
    s.undo.append(lambda: s.cleanup_volume(made["volume_id"]))
    expect(len(os.listdir(content_of(s.run, made, "data"))) == 60, "the copy is not whole")


# ---- publishing

@test(*TREES)
def test_read_only_and_mount_flags(s):
    volume = s.create()
    cap = capability("mount", flags=["nosuid,nodev", "noexec"], fs_type="ext4")
    context = s.call("ControllerPublishVolume", volume_id=volume["volume_id"], node_id="node-1", volume_capability=cap)
    common = {"volume_id": volume["volume_id"], "staging_target_path": s.staging, "volume_capability": cap,
              "publish_context": context["publish_context"]}
    s.call("NodeStageVolume", **common)
    s.call("NodePublishVolume", target_path=s.target, **common)
    s.call("NodePublishVolume", target_path=s.target + "-ro", readonly=True, **common)
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        options = {line.split(" ")[4]: line.split(" ")[5].split(",") for line in f}
    for target in (s.target, s.target + "-ro"):
        expect({"nosuid", "nodev", "noexec"} <= set(options[target]), f"{target}: {options[target]}")
    with open(os.path.join(s.target, "file"), "w", encoding="ascii") as f:
        f.write("x")
    try:
        os.unlink(os.path.join(s.target + "-ro", "file"))
        raise Failure("a read-only volume was written to")
    except OSError as e:
        expect(e.errno == errno.EROFS, f"{e}")
    s.fails(ALREADY_EXISTS, "NodePublishVolume", target_path=s.target, readonly=True, **common)
    s.call("NodeUnpublishVolume", volume_id=volume["volume_id"], target_path=s.target + "-ro")


@test(*TREES)
def test_wrong_mount_flags_are_told_and_never_logged(s):
    volume = s.create()
    s.controller_publish(volume)
    cap = capability("mount", flags=["swordfish=open-sesame"])
    s.fails(INVALID_ARGUMENT, "NodeStageVolume", volume_id=volume["volume_id"], staging_target_path=s.staging,
            volume_capability=cap, secrets={"password": "xyzzy-plugh"})
    with open(os.path.join(s.run.directory, "berth-hostpath.log"), encoding="utf-8") as f:
        log = f.read()
    expect("open-sesame" not in log and "xyzzy-plugh" not in log, "a secret is in the log")
    for name in os.listdir(os.path.join(s.run.directory, "state", "records")):
        with open(os.path.join(s.run.directory, "state", "records", name), encoding="utf-8") as f:
            expect("open-sesame" not in f.read(), "a secret is in a record")


@test(*TREES)
def test_readers_many_targets(s):
    volume = s.create(volume_capabilities=[s.cap("MULTI_NODE_READER_ONLY")])
    cap = s.cap("MULTI_NODE_READER_ONLY")
    s.call("ControllerPublishVolume", volume_id=volume["volume_id"], node_id="node-1", volume_capability=cap)
    s.stage(volume, {}, "MULTI_NODE_READER_ONLY")
    targets = [f"{s.target}-{i}" for i in range(5)]
    for target in targets:
        s.publish(volume, context={}, mode="MULTI_NODE_READER_ONLY", target=target)
        try:
            os.mkdir(os.path.join(target, "x"))
            raise Failure("a volume for readers was written to")
        except OSError as e:
            expect(e.errno == errno.EROFS, f"{e}")
    for target in targets:
        s.call("NodeUnpublishVolume", volume_id=volume["volume_id"], target_path=target)
        expect(not os.path.lexists(target), "the target is left")


@test(*TREES, "block")
def test_order_of_the_life_of_a_volume(s):
    volume = s.create()
    vid = volume["volume_id"]
    s.fails(FAILED_PRECONDITION, "NodeStageVolume", volume_id=vid, staging_target_path=s.staging,
            volume_capability=s.cap())  # not attached
    context = s.controller_publish(volume)
    s.fails(FAILED_PRECONDITION, "NodePublishVolume", **s.publish_request(volume, context))  # not staged
    s.stage(volume, context)
    s.fails(ALREADY_EXISTS, "NodeStageVolume", volume_id=vid, staging_target_path=s.staging,
            volume_capability=s.cap("MULTI_NODE_MULTI_WRITER"))
    other = s.staging + "-2"
    os.mkdir(other)
    s.fails(FAILED_PRECONDITION, "NodeStageVolume", volume_id=vid, staging_target_path=other, volume_capability=s.cap())
    s.publish(volume, context=context)
    request = s.publish_request(volume, context)
    del request["staging_target_path"]
    s.fails(FAILED_PRECONDITION, "NodePublishVolume", **request)
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", **{**request, "staging_target_path": other})
    wrong = "mount" if s.driver.access == "block" else "block"
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", **{**s.publish_request(volume, context),
                                                       "volume_capability": capability(wrong)})
    s.fails(FAILED_PRECONDITION, "NodeUnstageVolume", volume_id=vid, staging_target_path=s.staging)
    s.fails(FAILED_PRECONDITION, "DeleteVolume", volume_id=vid)
    expect(os.path.exists(content_of(s.run, volume)), "the data is gone")
    s.down(volume)
    os.rmdir(other)


@test(*TREES, "block")
def test_paths_through_symlinks(s):
    """Kubelet's directory may be a symlink; mountinfo shows where it leads."""
    volume = s.create()
    real, link = os.path.join(s.base, "real"), os.path.join(s.base, "link")
    for name in ("staging", "mount"):
        os.makedirs(os.path.join(real, name))
    os.symlink("real", link)
    staging, target = os.path.join(link, "staging"), os.path.join(link, "mount", "target")
    s.controller_publish(volume)
    common = {"volume_id": volume["volume_id"], "staging_target_path": staging, "volume_capability": s.cap()}
    for _i in range(3):
        s.call("NodeStageVolume", **common)
        s.call("NodePublishVolume", target_path=target, **common)
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        count = sum(line.split(" ")[4].startswith(real) for line in f)
    expect(count == (1 if s.driver.access == "block" else 2), f"{count} mounts")
    expect(s.call("NodeGetVolumeStats", volume_id=volume["volume_id"], volume_path=target)["usage"], "stats")
    s.call("NodeUnpublishVolume", volume_id=volume["volume_id"], target_path=target)
    expect(not os.path.lexists(target), "the target is left")
    s.call("NodeUnstageVolume", volume_id=volume["volume_id"], staging_target_path=staging)
    expect(not is_mounted(os.path.join(real, "staging")), "it is still staged")


@test(*TREES)
def test_inline_volume(s):
    vid = "csi-" + "0123456789abcdef" * 4
    context = {"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "p", "size": "24Mi",
               "backend": s.driver.backend}
    request = {"volume_id": vid, "target_path": s.target, "volume_capability": s.cap(), "volume_context": context}
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", **{**request, "volume_context": {**context, "size": "much"}})
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", **{**request, "volume_context": {**context, "odd": "1"}})
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", **{**request, "volume_id": "../../etc"})
    for _i in range(3):
        s.call("NodePublishVolume", **request)
    s.fails(INVALID_ARGUMENT, "NodeStageVolume", volume_id=vid, staging_target_path=s.staging,
            volume_capability=s.cap())
    with open(os.path.join(s.target, "file"), "w", encoding="ascii") as f:
        f.write("x")
    usage = s.call("NodeGetVolumeStats", volume_id=vid, volume_path=s.target)["usage"][0]
    expect(16 * MI <= usage["total"] <= 24 * MI, f"{usage}")
    expect(vid not in [e["volume"]["volume_id"] for e in s.volumes()], "an inline volume is listed")
    restart(s.run, kill=True)
    refresh(s)
    s.call("NodePublishVolume", **request)
    expect(os.path.exists(os.path.join(s.target, "file")), "the file is gone")
    s.call("NodeUnpublishVolume", volume_id=vid, target_path=s.target)
    s.call("NodeUnpublishVolume", volume_id=vid, target_path=s.target)
    expect(not os.path.lexists(s.target), "the target is left")
    expect(not os.path.exists(content_of(s.run, {"volume_id": vid})), "the data is left")


@test(*TREES)
def test_inline_volume_outlives_a_mount_that_fails(s):
    """What a pod has written stays when its lost mount cannot be made again at once."""
    vid = "csi-" + "fedcba9876543210" * 4
    request = {"volume_id": vid, "target_path": s.target, "volume_capability": s.cap(),
               "volume_context": {"csi.storage.k8s.io/ephemeral": "true", "backend": s.driver.backend}}
    s.call("NodePublishVolume", **request)
    with open(os.path.join(s.target, "file"), "w", encoding="ascii") as f:
        f.write("x")
    subprocess.run(["umount", s.target], check=True)
    parent = os.path.dirname(s.target)
    os.rename(parent, parent + ".away")
    s.fails(None, "NodePublishVolume", **request)
    os.rename(parent + ".away", parent)
    deadline = time.monotonic() + 10
    while True:
        try:
            s.call("NodePublishVolume", **request)
            break
        except RpcError as e:
            # what was unmounted from behind may take a moment to end
            expect(time.monotonic() < deadline, f"{e}")
            time.sleep(0.1)
    expect(os.path.exists(os.path.join(s.target, "file")), "the file is gone")
    s.call("NodeUnpublishVolume", volume_id=vid, target_path=s.target)
    expect(not os.path.exists(content_of(s.run, {"volume_id": vid})), "the data is left")


@test(*TREES)
def test_a_lost_mount_is_made_again(s):
    volume = s.up()
    with open(os.path.join(s.target, "file"), "w", encoding="ascii") as f:
        f.write("x")
    for path in (s.target, s.staging):
        subprocess.run(["umount", "-l", path], check=True)
    reply = s.call("NodeGetVolumeStats", volume_id=volume["volume_id"], volume_path=s.target)
    expect(reply["volume_condition"]["abnormal"], f"{reply}")
    entry = next(e for e in s.volumes() if e["volume"]["volume_id"] == volume["volume_id"])
    expect(entry["status"]["volume_condition"]["abnormal"], f"{entry}")
    deadline = time.monotonic() + 10
    while True:
        try:
            s.publish(volume, context={})
            break
        except RpcError as e:
            # what was unmounted from behind may take a moment to end
            expect(time.monotonic() < deadline, f"{e}")
            time.sleep(0.1)
    expect(os.path.exists(os.path.join(s.target, "file")), "the file is gone")
    reply = s.call("NodeGetVolumeStats", volume_id=volume["volume_id"], volume_path=s.target)
    expect(not reply["volume_condition"]["abnormal"], f"{reply}")


@test("fuse", "loop")
def test_a_target_of_a_dead_mount_is_bound_again(s):
    volume = s.up()
    with open(os.path.join(s.target, "file"), "w", encoding="ascii") as f:
        f.write("x")
    # the staged mount goes, while the target keeps the old file system
    subprocess.run(["umount", "-l", s.staging], check=True)
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        before = [line.split(" ")[2] for line in f if line.split(" ")[4] == s.target]
    error = s.fails(None, "NodePublishVolume", **s.publish_request(volume, {}))  # two at once would be one too many
    expect("still" in str(error), f"{error}")
    subprocess.run(["umount", s.target], check=True)
    with subprocess.Popen(["mount", "-t", "tmpfs", "dead", s.target]) as mount:
        expect(mount.wait() == 0, "mount")
    deadline = time.monotonic() + 10
    while True:
        try:
            s.publish(volume, context={})
            break
        except RpcError as e:
            expect(time.monotonic() < deadline, f"{e}")
            time.sleep(0.1)
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        after = [line.split(" ")[2] for line in f if line.split(" ")[4] == s.target]
    expect(len(before) == len(after) == 1, f"{before} {after}")
    expect(os.path.exists(os.path.join(s.target, "file")), "what lies at the target is not the volume")


@test(*TREES, "block")
def test_restart_while_published(s):
    volume = s.up()
    with open(s.target if s.driver.access == "block" else os.path.join(s.target, "file"), "wb") as f:
        f.write(b"before")
    restart(s.run, kill=True)
    refresh(s)
    s.stage(volume, {})
    s.publish(volume, context={})
    reply = s.call("NodeGetVolumeStats", volume_id=volume["volume_id"], volume_path=s.target)
    expect(not reply["volume_condition"]["abnormal"], f"{reply}")
    with open(s.target if s.driver.access == "block" else os.path.join(s.target, "file"), "rb") as f:
        expect(f.read(6) == b"before", "the data is not what it was")


@test("plain", "loop", "block")
def test_reboot(s):
    """What a reboot leaves: records of mounts, and no mounts."""
    volume = s.up()
    s.run.process.kill()
    s.run.process.wait()
    for path in (s.target, s.staging):
        subprocess.run(["umount", path], check=False, capture_output=True)
    if s.driver.access == "block":
        image = content_of(s.run, volume, "image")
        for device in subprocess.run(["losetup", "-j", image, "-O", "NAME", "-n"], check=True, capture_output=True,
                                     text=True).stdout.split():
            subprocess.run(["losetup", "-d", device], check=True)
    with open(os.path.join(s.run.directory, "state", "boot"), "w", encoding="ascii") as f:
        f.write("another boot\n")
    restart(s.run, kill=True)
    refresh(s)
    s.fails(FAILED_PRECONDITION, "NodePublishVolume", **s.publish_request(volume, {}))
    s.stage(volume, {})
    s.publish(volume, context={})


# ---- lists, capacity

@test("plain")
def test_pages_of_volumes(s):
    made = [s.create(size=MI)["volume_id"] for _i in range(5)]
    first = s.call("ListVolumes", max_entries=2)
    seen = [e["volume"]["volume_id"] for e in first["entries"]]
    expect(len(seen) == 2, f"{first}")
    s.call("DeleteVolume", volume_id=seen[1])  # the one the token names
    while first["next_token"]:
        first = s.call("ListVolumes", max_entries=2, starting_token=first["next_token"])
        expect(1 <= len(first["entries"]) <= 2, f"{first}")
        seen += [e["volume"]["volume_id"] for e in first["entries"]]
    expect(sorted(seen) == sorted(made), f"{seen}")
    s.fails(INVALID_ARGUMENT, "ListVolumes", max_entries=-1)


@test("plain")
def test_promises_count(s):
    s.driver.extra = ("--allow-overcommit=false",)
    restart(s.run)
    refresh(s)
    before = s.call("GetCapacity")["available_capacity"]
    volume = s.create(size=before // 2)
    after = s.call("GetCapacity")["available_capacity"]
    expect(abs(before - before // 2 - after) < 2048 * MI, f"{before} became {after}")
    s.fails(RESOURCE_EXHAUSTED, "CreateVolume", **s.request(size=before // 2 + 4096 * MI))
    s.fails(RESOURCE_EXHAUSTED, "ControllerExpandVolume", volume_id=volume["volume_id"],
            capacity_range={"required_bytes": before + 4096 * MI})
    s.fails(OUT_OF_RANGE, "CreateVolume", **s.request(size=2 << 40))
    other = {"segments": {"topology.hostpath.csi/node": "another"}}
    expect(s.call("GetCapacity", accessible_topology=other)["available_capacity"] == 0, "capacity elsewhere")
    s.fails(RESOURCE_EXHAUSTED, "CreateVolume", **s.request(accessibility_requirements={"requisite": [other]}))
    s.fails(INVALID_ARGUMENT, "CreateVolume", **{**s.request(), "parameters": {"backend": "plain", "kind": "fast"}})


@test("plain")
def test_pools(s):
    s.driver.extra = ("--capacity=fast=100Mi", "--capacity=slow=1Gi")
    restart(s.run)
    refresh(s)
    def left(**parameters):
        return s.call("GetCapacity", parameters=parameters)["available_capacity"]
    expect(left(kind="fast") == 100 * MI and left(kind="slow") == 1024 * MI and left() == 1024 * MI, "at the start")
    volume = s.create(size=60 * MI, parameters={"backend": "plain", "kind": "fast"})
    expect(volume["volume_context"]["kind"] == "fast", f"{volume}")
    expect(left(kind="fast") == 40 * MI, f"{left(kind='fast')}")
    s.fails(RESOURCE_EXHAUSTED, "CreateVolume",
            **s.request(size=41 * MI, parameters={"backend": "plain", "kind": "fast"}))
    s.fails(INVALID_ARGUMENT, "CreateVolume", **s.request(parameters={"backend": "plain", "kind": "none"}))
    expect(s.create(size=100 * MI)["volume_context"]["kind"] == "slow", "the roomiest pool was not taken")


# ---- safety

@test("plain")
def test_paths_and_ids_from_outside(s):
    volume = s.create()
    s.controller_publish(volume)
    inside = os.path.join(s.run.directory, "state", "volumes")
    for path in ("/tmp/../etc", inside, inside + "/x"):
        s.fails(INVALID_ARGUMENT, "NodeStageVolume", volume_id=volume["volume_id"], staging_target_path=path,
                volume_capability=s.cap())
        s.fails(INVALID_ARGUMENT, "NodeUnpublishVolume", volume_id=volume["volume_id"], target_path=path)
    for vid in ("../records", ".", "a/b", volume["volume_id"] + "/data"):
        s.call("DeleteVolume", volume_id=vid)
        s.fails(NOT_FOUND, "ControllerGetVolume", volume_id=vid)
        s.fails(NOT_FOUND, "CreateSnapshot", name=s.name("snapshot"), source_volume_id=vid)
    s.fails(INVALID_ARGUMENT, "CreateVolume", **{**s.request(), "parameters": {"backend": "plain", "path": "/etc"}})
    outside = os.path.join(s.base, "outside")
    os.mkdir(outside)
    os.symlink(outside, s.target)
    s.stage(volume, {})
    # it would be unmounted first, and the host's bare directory given to the pod
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", **{**s.publish_request(volume, {}), "target_path": s.staging})
    expect(is_mounted(s.staging), "the staged mount is gone")
    s.fails(None, "NodePublishVolume", **s.publish_request(volume, {}))
    expect(not is_mounted(outside), "a symlink was followed")
    if os.path.islink(s.target):
        os.unlink(s.target)


@test("plain")
def test_trash_is_emptied_around_what_cannot_be_removed(s):
    volume = s.create()
    stuck = content_of(s.run, volume, "data", "stuck")
    with open(stuck, "w", encoding="ascii"):
        pass
    if subprocess.run(["chattr", "+i", stuck], check=False, capture_output=True).returncode != 0:
        raise Skip("no immutable files here")
    s.fails(None, "DeleteVolume", volume_id=volume["volume_id"])
    s.call("DeleteVolume", volume_id=volume["volume_id"])
    trash = os.path.join(s.run.directory, "state", "trash")
    left = os.listdir(trash)
    expect(len(left) == 1, f"{left}")
    try:
        for number in range(20):
            os.makedirs(os.path.join(trash, f"{number:02}", "data"))
        restart(s.run)
        refresh(s)
        deadline = time.monotonic() + 10
        while os.listdir(trash) != left:
            expect(time.monotonic() < deadline, f"{os.listdir(trash)}")
            time.sleep(0.05)
    finally:
        subprocess.run(["chattr", "-i", os.path.join(trash, left[0], "data", "stuck")], check=True)
    restart(s.run)
    refresh(s)


def start_second(s, socket_path):
    """Another driver on the same state directory."""
    return subprocess.Popen([s.run.program("berth-hostpath"), "--endpoint=unix://" + socket_path, "--nodeid=node-1",
                             "--statedir=" + os.path.join(s.run.directory, "state"), "--enable-attach"],
                            stderr=subprocess.PIPE, text=True)


@test("plain")
def test_second_driver_is_refused_and_state_is_private(s):
    with start_second(s, s.base + "/other.sock") as second:
        _out, text = second.communicate(timeout=60)
    expect(second.returncode == 1 and "another driver uses it" in text, text)
    expect(text.count("waiting for it to end") == 1, text)
    expect(not os.path.exists(s.base + "/other.sock"), "it listened all the same")
    for name in ("records", "volumes", "snapshots", "trash"):
        mode = os.stat(os.path.join(s.run.directory, "state", name)).st_mode
        expect(stat.S_IMODE(mode) == 0o700, f"{name} has mode {mode:o}")
    expect(stat.S_IMODE(os.stat(s.run.socket).st_mode) == 0o600, "the socket is not private")


@test("plain")
def test_successor_waits_for_the_old_driver(s):
    """A rolling update: the new driver is started while the old one still ends."""
    volume = s.create()
    old, s.run.process = s.run.process, start_second(s, s.run.socket)
    expect("waiting for it to end" in s.run.process.stderr.readline(), "it did not wait")
    old.terminate()
    expect(old.wait(20) == 0, "the old driver's exit status")
    s.run.connection.close()
    s.run.connection = Connection(s.run.program("csi-call"), s.run.socket)
    refresh(s)
    expect([e["volume"]["volume_id"] for e in s.volumes()] == [volume["volume_id"]], "the volume is not there")


@test("plain")
def test_switched_off_is_unimplemented(s):
    s.driver.extra = ("--enable-attach=false", "--enable-volume-expansion=false", "--enable-list-snapshots=false",
                      "--enable-controller-modify-volume=false")
    restart(s.run)
    refresh(s)
    volume = s.create()
    for method, request in (("ControllerPublishVolume", {"node_id": "node-1", "volume_capability": s.cap()}),
                            ("ControllerUnpublishVolume", {}),
                            ("ControllerExpandVolume", {"capacity_range": {"required_bytes": 1 << 30}}),
                            ("NodeExpandVolume", {"volume_path": "/x"}),
                            ("ControllerModifyVolume", {"mutable_parameters": {"iops": "1"}})):
        s.fails(UNIMPLEMENTED, method, volume_id=volume["volume_id"], **request)
    s.fails(UNIMPLEMENTED, "ListSnapshots")
    s.stage(volume, {})
    s.publish(volume, context={})


@test("plain")
def test_http(s):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    s.driver.extra = (f"--http-endpoint=127.0.0.1:{port}",)
    restart(s.run)
    refresh(s)
    s.create()
    def get(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return reply.read().decode()
    expect("ok" in get("/healthz"), "healthz")
    text = get("/metrics")
    for part in ('berth_hostpath_volumes{backend="plain",access="mount"} 1', "berth_hostpath_available_bytes ",
                 'method_name="/csi.v1.Controller/CreateVolume"', "process_resident_memory_bytes"):
        expect(part in text, f"{part} is not in the metrics")


# ---- running them

def run_test(backend, args, number, function):
    driver = Driver("fuse" if backend == "block" else backend, "block" if backend == "block" else "mount")
    run = Run(driver, args.build, args.keep)
    context = Context(run, number)
    problems = []
    try:
        function(context)
    except Skip as e:
        problems.append(e)
    except (Failure, RpcError) as e:
        problems.append(e)
    except Exception as e:
        traceback.print_exc()
        problems.append(Failure(f"{type(e).__name__}: {e}"))
    for close in (context.close, run.close):
        try:
            close()
        except (Failure, RpcError) as e:
            problems.append(e)
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend")
    parser.add_argument("--only", default=".")
    parser.add_argument("--build", default=os.path.join(ROOT, os.environ.get("BUILD", "build")))
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    enter_namespaces(os.path.abspath(__file__), sys.argv[1:])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for number, (name, backends, function) in enumerate(TESTS):
        for backend in backends:
            if not re.search(args.only, name) or args.backend not in (None, backend):
                continue
            problems = run_test(backend, args, number, function)
            outcome = "passed" if not problems else "skipped" if isinstance(problems[0], Skip) else "failed"
            counts[outcome] += 1
            print(f"{outcome}: {backend}: {name}" + "".join(f": {p}" for p in problems), flush=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
