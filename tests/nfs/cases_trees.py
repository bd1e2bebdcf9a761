# SPDX-License-Identifier: Apache-2.0
"""Snapshots, restores, clones, and scrubbing."""
import os
import socket
import threading
import time

from cases_node import node
from cases_volumes import both_versions, driver
from checks import equal, fails, leftovers, names, tree, write
from driver import MOUNT


def make_tree(path):
    """One of everything."""
    write(path + "/a/file", b"hello")
    os.chmod(path + "/a/file", 0o4755)
    write(path + "/a/b/c/deep", b"d" * 300000)
    os.chown(path + "/a/b/c/deep", 1111, 2222)
    os.utime(path + "/a/b/c/deep", ns=(10**18, 10**18))
    os.symlink("../../etc/passwd", path + "/a/link")
    os.symlink("/", path + "/root")
    os.link(path + "/a/file", path + "/hard")
    os.mkfifo(path + "/fifo", 0o600)
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(path)
        sock.bind("sock")
        os.chdir(here)
    with open(path + "/sparse", "wb") as out:
        out.seek(20 << 20)
        out.write(b"end")
    write(path + "/empty", b"")
    write(path + "/name with ü and \n", b"x")
    os.mkdir(path + "/a/nobody", 0o700)
    for number in range(300):
        write(f"{path}/many/{number}")
    os.chmod(path + "/many", 0o3777)


def source_of(kind, identifier):
    return {"volume_content_source": {kind: {kind + "_id": identifier}}}


@both_versions
def test_snapshot_and_restore(context, version):
    export = context.path()
    with driver(context) as nfs:
        parameters = context.parameters(version=version)
        volume = nfs.create("vol-s", parameters, size=64 << 20)
        make_tree(export + "/vol-s")
        wanted = tree(export + "/vol-s")
        request = {"name": "snap-1", "source_volume_id": volume["volume_id"]}
        snapshot = nfs.call("CreateSnapshot", request)["snapshot"]
        equal(snapshot["ready_to_use"], True)
        equal(snapshot["size_bytes"], 64 << 20)
        equal(nfs.call("CreateSnapshot", request)["snapshot"], snapshot, "again: the same, its time too")
        equal(tree(export + "/.berth/snapshots/snap-1"), wanted)
        equal(os.stat(export + "/.berth/snapshots/snap-1/hard").st_nlink, 2, "hard links")
        assert os.stat(export + "/.berth/snapshots/snap-1/sparse").st_blocks < 4096, "holes"
        equal(os.stat(export + "/.berth/snapshots/snap-1/a/b/c/deep").st_mtime_ns, 10**18)
        # the source goes on and goes away
        nfs.delete(volume["volume_id"])
        restored = nfs.create("vol-r", parameters, size=64 << 20, **source_of("snapshot", snapshot["snapshot_id"]))
        equal(restored["content_source"], {"snapshot": {"snapshot_id": snapshot["snapshot_id"]}})
        equal(tree(export + "/vol-r"), wanted)
        with fails("OUT_OF_RANGE"):
            nfs.create("vol-r2", parameters, size=1 << 20, **source_of("snapshot", snapshot["snapshot_id"]))
        with fails("ALREADY_EXISTS", "another source"):
            nfs.create("vol-r", parameters, size=64 << 20)
        other = nfs.create("vol-o", parameters)
        with fails("ALREADY_EXISTS"):
            nfs.call("CreateSnapshot", {"name": "snap-1", "source_volume_id": other["volume_id"]})
        equal(nfs.call("GetSnapshot", {"snapshot_id": snapshot["snapshot_id"]})["snapshot"], snapshot)
        for _ in range(2):
            nfs.call("DeleteSnapshot", {"snapshot_id": snapshot["snapshot_id"]})
        with fails("NOT_FOUND"):
            nfs.call("GetSnapshot", {"snapshot_id": snapshot["snapshot_id"]})
        with fails("NOT_FOUND"):
            nfs.create("vol-r3", parameters, **source_of("snapshot", snapshot["snapshot_id"]))
        nfs.delete(restored["volume_id"])
        nfs.delete(other["volume_id"])
        equal(names(export), [])
        equal([entry for entry in leftovers(export) if entry.count(os.sep) > 1], [])


@both_versions
def test_clone_to_another_export(context, version):
    with driver(context) as nfs:
        volume = nfs.create("vol-c", context.parameters(version=version))
        make_tree(context.path() + "/vol-c")
        wanted = tree(context.path() + "/vol-c")
        clone = nfs.create("vol-clone", context.parameters("other", version=7 - version, mountPermissions="0700"),
                           **source_of("volume", volume["volume_id"]))
        equal(tree(context.path("other") + "/vol-clone"), wanted)
        equal(os.stat(context.path("other") + "/vol-clone").st_mode & 0o7777, 0o700)
        with fails("NOT_FOUND"):
            nfs.create("vol-x", context.parameters(), **source_of("volume", "fake"))
        equal(names(context.path()), ["vol-c"])
        # a snapshot on another export
        snapshot = nfs.call("CreateSnapshot", {"name": "snap-far", "source_volume_id": volume["volume_id"],
                                               "parameters": context.parameters("other")})["snapshot"]
        equal(tree(context.path("other") + "/.berth/snapshots/snap-far"), wanted)
        nfs.call("DeleteSnapshot", {"snapshot_id": snapshot["snapshot_id"]})
        nfs.delete(clone["volume_id"])
        nfs.delete(volume["volume_id"])


def test_clone_of_a_volume_of_csi_driver_nfs(context):
    make_tree(context.path() + "/theirs")
    volume_id = f"127.0.0.1#{context.path()[1:]}#theirs##delete"
    with driver(context, "--mount-options=" + context.options()) as nfs:
        # their id knows no port, so the server has to be asked on the usual one: version 3 with rpcbind
        clone = nfs.create("vol-tc", context.parameters(version=3), **source_of("volume", volume_id))
        equal(tree(context.path() + "/vol-tc"), tree(context.path() + "/theirs"))
        nfs.delete(clone["volume_id"])


def test_copies_under_root_squash(context):
    """Owners are lost, which is logged; the rest is copied."""
    with driver(context) as nfs:
        volume = nfs.create("vol-q", context.parameters("squash"))
        path = context.path("squash") + "/vol-q"
        write(path + "/mine", b"1")
        os.chmod(path + "/mine", 0o644)
        os.chown(path + "/mine", 1234, 1234)
        clone = nfs.create("vol-qc", context.parameters("squash"), **source_of("volume", volume["volume_id"]))
        with open(context.path("squash") + "/vol-qc/mine", "rb") as data:
            equal(data.read(), b"1")
        assert "does not let this driver set owners" in nfs.log()
        nfs.delete(clone["volume_id"])
        equal(names(context.path("squash")), ["vol-q"])


# ---- scrubbing ------------------------------------------------------------------------------------------------------------


@both_versions
def test_scrub(context, version):
    export = context.path()
    with driver(context) as nfs:
        equal(nfs.call("GetPluginInfo")["manifest"], {"berth.recycle": "true"})
        volume = nfs.create("vol-scrub", context.parameters(version=version, mountPermissions="2775", gid="4242"))
        path = export + "/vol-scrub"
        make_tree(path)
        deep = path
        for _ in range(60):
            deep += "/d" * 30
            os.makedirs(deep)
        outside = export + "/outside"
        write(outside + "/precious")
        os.symlink(outside, path + "/way-out")
        os.symlink("../outside", path + "/a/way-out")
        before = os.stat(path)
        removed = nfs.call("Scrub", {"volume_id": volume["volume_id"]})["removed_entries"]
        assert removed > 300 + 1800, removed
        equal(os.listdir(path), [])
        after = os.stat(path)
        equal((after.st_ino, after.st_mode, after.st_uid, after.st_gid),
              (before.st_ino, before.st_mode, before.st_uid, before.st_gid))
        equal(names(outside), ["precious"])
        equal(nfs.call("Scrub", {"volume_id": volume["volume_id"]}).get("removed_entries", 0), 0)
        nfs.delete(volume["volume_id"])
        with fails("NOT_FOUND"):
            nfs.call("Scrub", {"volume_id": volume["volume_id"]})


def test_scrub_refuses_while_in_use(context):
    with node(context) as nfs:
        volume = nfs.create("vol-use", context.parameters())
        nfs.stage(volume)
        target = nfs.publish(volume)
        write(target + "/x")
        with driver(context) as controller:
            with fails("FAILED_PRECONDITION", "node-1"):
                controller.call("Scrub", {"volume_id": volume["volume_id"]})
            equal(names(target), ["x"])
            nfs.unpublish(volume)
            nfs.unstage(volume)
            equal(controller.call("Scrub", {"volume_id": volume["volume_id"]})["removed_entries"], 1)
            # a volume in which another one lives
            below = controller.create("vol-below", context.parameters(subDir="vol-use/inner"))
            with fails("FAILED_PRECONDITION", "vol-below"):
                controller.call("Scrub", {"volume_id": volume["volume_id"]})
            controller.delete(below["volume_id"])
            controller.delete(volume["volume_id"])


@both_versions
def test_scrub_while_symlinks_are_swapped_in(context, version):
    """Somebody who still has the volume mounted swaps directories for symlinks to another volume, all the time."""
    with node(context) as nfs:
        victim = nfs.create("vol-victim", context.parameters(version=version))
        for number in range(50):
            write(f"{context.path()}/vol-victim/sub/{number}")
        wanted = tree(context.path() + "/vol-victim")
        volume = nfs.create("vol-evil", context.parameters(version=version))
        nfs.stage(volume)
        target = nfs.publish(volume)
        # the record of use is what would stop it: this one comes from before
        for base, _, files in os.walk(context.path() + "/.berth/users/vol-evil"):
            for name in files:
                os.utime(os.path.join(base, name), (0, 0))
        stop = threading.Event()

        def swap():
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    os.makedirs(f"{target}/d{number}/sub", exist_ok=True)
                    for name in range(5):
                        write(f"{target}/d{number}/sub/{name}")
                    os.rename(f"{target}/d{number}", f"{target}/old{number}")
                    os.symlink("../vol-victim", f"{target}/d{number}")
                except OSError:
                    pass
        workers = [threading.Thread(target=swap) for _ in range(3)]
        for worker in workers:
            worker.start()
        try:
            end = time.monotonic() + 6
            while time.monotonic() < end:
                try:
                    nfs.call("Scrub", {"volume_id": volume["volume_id"]})
                except Exception as error:  # pylint: disable=broad-except
                    assert "FAILED_PRECONDITION" in str(error) or "Directory not empty" in str(error), error
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        equal(tree(context.path() + "/vol-victim"), wanted, "the other volume")
        nfs.unpublish(volume)
        nfs.unstage(volume)
        nfs.call("Scrub", {"volume_id": volume["volume_id"]})
        equal(os.listdir(context.path() + "/vol-evil"), [])
        nfs.delete(volume["volume_id"])
        nfs.delete(victim["volume_id"])


def test_scrub_command(context):
    """What a recycler pod runs on the mounted volume of an in-tree nfs PersistentVolume."""
    import subprocess
    path = context.path() + "/pod"
    outside = context.path() + "/outside"
    write(outside + "/precious")
    make_tree(path)
    os.symlink(outside, path + "/way-out")
    command = os.path.join(context.build, "berth-nfs")
    result = subprocess.run([command, "scrub", path], stderr=subprocess.PIPE, check=False)
    equal(result.returncode, 0, result.stderr)
    equal(os.listdir(path), [])
    equal(names(outside), ["precious"])
    for bad in ([], ["/"], ["//"], ["relative"], [path + "/missing"], [outside + "/precious"]):
        result = subprocess.run([command, "scrub", *bad], stderr=subprocess.PIPE, check=False)
        assert result.returncode != 0 and result.stderr, bad
    os.symlink(outside, path + "/link")
    assert subprocess.run([command, "scrub", path + "/link"], stderr=subprocess.PIPE, check=False).returncode != 0
    equal(names(outside), ["precious"])


def test_validate(context):
    with driver(context) as nfs:
        volume = nfs.create("vol-v", context.parameters())
        request = {"volume_id": volume["volume_id"], "volume_capabilities": [MOUNT]}
        assert "confirmed" in nfs.call("ValidateVolumeCapabilities", request)
        block = {"block": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
        reply = nfs.call("ValidateVolumeCapabilities", {**request, "volume_capabilities": [MOUNT, block]})
        assert "confirmed" not in reply and "block" in reply["message"]
        nfs.delete(volume["volume_id"])
        with fails("NOT_FOUND"):
            nfs.call("ValidateVolumeCapabilities", request)
