# SPDX-License-Identifier: Apache-2.0
"""Servers that refuse, hang, die and come back; a full disk; a driver that dies at every possible point."""
import contextlib
import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import server
from cases_node import fuse_processes, mounted, node, write as write_file
from cases_trees import make_tree, source_of
from cases_volumes import driver
from checks import equal, fails, leftovers, names, tree, write
from driver import CallError, Driver
from proxy import Proxy


@contextlib.contextmanager
def own_server(context, **options):
    """A server of one's own, to be hurt."""
    path = context.path() + "/export"
    os.makedirs(path, exist_ok=True)
    running = server.Server([server.Export(path)], protocols="4", **options)
    try:
        yield running, path, {"server": "127.0.0.1", "share": path,
                              "mountOptions": f"nfsvers=4,port={running.port}"}
    finally:
        running.close()


def test_messages_for_administrators(context):
    with driver(context, "--nfs-timeout=3s") as nfs:
        path = context.path("squash") + "/roots"
        os.mkdir(path, 0o755)
        for version in (3, 4):
            parameters = context.parameters("squash", version=version)
            parameters["share"] = path
            with fails("PERMISSION_DENIED", "127.0.0.1", path, "uid 0", "root_squash"):
                nfs.create("pvc", parameters)
            with fails("PERMISSION_DENIED", "read-only", context.path("ro")):
                nfs.create("pvc", context.parameters("ro", version=version))
            # mountd does not tell strangers what exists
            with fails("PERMISSION_DENIED" if version == 3 else "INVALID_ARGUMENT", "no such export", "/not/exported"):
                nfs.create("pvc", {**context.parameters(version=version), "share": "/not/exported"})
        with fails("UNAVAILABLE", "name servers"):  # there are none in this network
            nfs.create("pvc", {**context.parameters(), "server": "no.such.host.invalid"})
        with fails("UNAVAILABLE", "Connection refused", "is it running"):
            nfs.create("pvc", {**context.parameters(), "mountOptions": f"nfsvers=4,port={server.free_port()}"})
        # both versions are tried when none is named, and both failures are told
        with fails("UNAVAILABLE", "; and ", "Connection refused"):
            nfs.create("pvc", {**context.parameters(), "mountOptions": f"port={server.free_port()}"})
        # somebody accepts and says nothing
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            began = time.monotonic()
            with fails("DEADLINE_EXCEEDED", "firewall"):
                nfs.create("pvc", {**context.parameters(), "mountOptions": f"nfsvers=4,port={port}"})
            assert 2.5 < time.monotonic() - began < 6


def test_as_another_user(context):
    """Under root_squash with a directory that only its owner may write."""
    path = context.path("squash") + "/owned"
    os.mkdir(path, 0o700)
    os.chown(path, 1500, 1600)
    with driver(context, "--uid=1500", "--gid=1600") as nfs:
        for version in (3, 4):
            parameters = {**context.parameters("squash", version=version), "share": path}
            volume = nfs.create("pvc-owned", parameters)
            equal(os.stat(path + "/pvc-owned").st_uid, 1500)
            write(path + "/pvc-owned/x")
            os.chown(path + "/pvc-owned/x", 1500, 1600)
            nfs.delete(volume["volume_id"])
            equal(names(path), [])


def test_full_disk(context):
    image, path = context.path() + "/image", context.path() + "/disk"
    os.mkdir(path)
    with open(image, "wb") as out:
        out.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, path], check=True)
    running = None
    try:
        running = server.Server([server.Export(path)], protocols="4")
        parameters = {"server": "127.0.0.1", "share": path, "mountOptions": f"nfsvers=4,port={running.port}"}
        with driver(context) as nfs:
            volume = nfs.create("vol-full", parameters)
            write(path + "/vol-full/big", os.urandom(9 << 20))
            for _ in range(2):
                with fails("RESOURCE_EXHAUSTED", "full"):
                    nfs.call("CreateSnapshot", {"name": "snap", "source_volume_id": volume["volume_id"]})
                with fails("RESOURCE_EXHAUSTED", "full"):
                    nfs.create("vol-clone", parameters, **source_of("volume", volume["volume_id"]))
                equal([name for name in names(path) if name != "lost+found"], ["vol-full"], "no half copy")
                equal(os.listdir(path + "/.berth/snapshots"), [])
            # a deletion works on a full disk
            os.truncate(path + "/vol-full/big", 1 << 20)
            snapshot = nfs.call("CreateSnapshot", {"name": "snap", "source_volume_id": volume["volume_id"]})
            nfs.call("DeleteSnapshot", {"snapshot_id": snapshot["snapshot"]["snapshot_id"]})
            clone = nfs.create("vol-clone", parameters, **source_of("volume", volume["volume_id"]))
            with open(path + "/filler", "wb") as out, contextlib.suppress(OSError):
                while True:
                    out.write(b"\1" * 65536)
            nfs.delete(clone["volume_id"])
            nfs.delete(volume["volume_id"])
            equal([name for name in names(path) if name != "lost+found"], ["filler"])
    finally:
        if running:
            running.close()
        subprocess.run(["umount", path], check=True)


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def test_frozen_server_and_the_controller(context):
    with own_server(context) as (nfs_server, path, parameters), driver(context, "--nfs-timeout=4s") as nfs:
        volume = nfs.create("vol-f", parameters)
        nfs_server.freeze()
        before = threads_of(nfs.process.pid)
        began = time.monotonic()
        with fails("DEADLINE_EXCEEDED"):  # the caller's deadline, shorter than ours
            nfs.call("CreateVolume", {"name": "vol-g", "parameters": parameters, "volume_capabilities": [
                {"mount": {}, "access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}}]}, timeout=2)
        assert time.monotonic() - began < 3.5
        outcomes = []

        def call(number):
            try:
                nfs.create(f"vol-{number}", parameters)
            except CallError as error:
                outcomes.append(error.code)
        began = time.monotonic()
        callers = [threading.Thread(target=call, args=(number,)) for number in range(40)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        # 32 workers: the last eight wait for a worker first
        assert time.monotonic() - began < 20, time.monotonic() - began
        equal(set(outcomes), {"DEADLINE_EXCEEDED"})
        equal(nfs.call("Probe").get("ready"), True, "a server that hangs is no reason to restart the driver")
        server.wait_for("threads to end", lambda: threads_of(nfs.process.pid) <= before + 33)
        nfs_server.thaw()
        nfs.create("vol-g", parameters)
        nfs.delete(volume["volume_id"])
        equal(names(path), ["vol-g"])


def test_frozen_server_and_the_node(context):
    with own_server(context) as (nfs_server, path, parameters), \
            node(context, "--nfs-timeout=2s") as nfs:
        volume = nfs.create("vol-n", parameters, size=1 << 20)
        nfs.stage(volume)
        target = nfs.publish(volume)
        write_file(target + "/x")
        nfs_server.freeze()
        before = threads_of(nfs.process.pid)
        for _ in range(4):
            began = time.monotonic()
            reply = nfs.stats(volume)
            assert time.monotonic() - began < 4
            equal(reply["volume_condition"]["abnormal"], True)
            assert "does not answer" in reply["volume_condition"]["message"], reply
        assert threads_of(nfs.process.pid) <= before + 2
        helpers = [pid for pid in filter(str.isdigit, os.listdir("/proc"))
                   if b"probe" in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")]
        assert len(helpers) <= 1, helpers
        # a writer waits, and goes on when the server does
        done = []
        writer = threading.Thread(target=lambda: done.append(write_file(target + "/waits", b"w" * 100000)))
        writer.start()
        time.sleep(5)
        equal(done, [])
        nfs_server.thaw()
        writer.join(30)
        equal(done, [None])
        equal(os.stat(path + "/vol-n/waits").st_size, 100000)
        equal(nfs.stats(volume)["volume_condition"].get("abnormal", False), False)
        # unpublishing needs no server
        nfs_server.freeze()
        began = time.monotonic()
        nfs.unpublish(volume)
        nfs.unstage(volume)
        assert time.monotonic() - began < 8, time.monotonic() - began
        nfs_server.thaw()
        server.wait_for("end of the FUSE process", lambda: not fuse_processes(nfs.home))


def test_soft_mounts_give_errors(context):
    with own_server(context) as (nfs_server, _, parameters), \
            node(context, "--nfs-timeout=1s") as nfs:
        volume = nfs.create("vol-soft", {**parameters, "mountOptions": parameters["mountOptions"] + ",soft"})
        nfs.stage(volume)
        target = nfs.publish(volume)
        nfs_server.freeze()
        began = time.monotonic()
        try:
            with open(target + "/x", "wb"):
                raise AssertionError("made on a frozen server")
        except OSError as error:
            equal(error.errno, errno.EIO)
        assert time.monotonic() - began < 8
        nfs_server.thaw()
        write_file(target + "/x")
        nfs.unpublish(volume)
        nfs.unstage(volume)


def test_killed_and_restarted_server(context):
    with own_server(context) as (nfs_server, path, parameters), \
            node(context, "--nfs-timeout=5s") as nfs:
        volume = nfs.create("vol-k", parameters)
        nfs.stage(volume)
        target = nfs.publish(volume)
        with open(target + "/log", "wb", buffering=0) as out:
            out.write(b"one ")
            nfs_server.kill()
            with fails("UNAVAILABLE", "is it running"):
                nfs.create("vol-l", parameters)
            threading.Timer(2, nfs_server.start).start()
            out.write(b"two ")  # waits
            write_file(target + "/dir/new")
            os.rename(target + "/dir/new", target + "/dir/newer")
            out.write(b"three")
        with open(path + "/vol-k/log", "rb") as data:
            equal(data.read(), b"one two three")
        equal(names(path + "/vol-k/dir"), ["newer"])
        nfs_server.restart()
        nfs.create("vol-l", parameters)
        nfs.unpublish(volume)
        nfs.unstage(volume)
        nfs.delete(volume["volume_id"])
        equal(names(path), ["vol-l"])


def test_idle_longer_than_the_lease(context):
    """A connection that was idle for longer than the server remembers it still makes files."""
    path = context.path() + "/export"
    os.makedirs(path)
    nfs_server = server.Server([server.Export(path)], protocols="4", lease=3)
    try:
        parameters = {"server": "127.0.0.1", "share": path, "mountOptions": f"nfsvers=4,port={nfs_server.port}"}
        with node(context) as nfs:
            volume = nfs.create("vol-i", parameters)
            nfs.stage(volume)
            target = nfs.publish(volume)
            with open(target + "/open", "wb", buffering=0) as out:
                out.write(b"a")
                time.sleep(8)
                out.write(b"b")
                write_file(target + "/another")
            equal(names(path + "/vol-i"), ["another", "open"])
            nfs.unpublish(volume)
            nfs.unstage(volume)
    finally:
        nfs_server.close()


# ---- the driver dies --------------------------------------------------------------------------------------------------------


def die_everywhere(context, parameters, call, check, step=1):
    """Calls with a driver that dies after its 1st, 2nd, 3rd … exchange with the server, then with one that does not.

    Every step'th point, another one in each run; all of them with --thorough."""
    step = 1 if context.thorough else step
    proxy = Proxy(context.server.port)
    parameters = {**parameters, "mountOptions": f"nfsvers=4,port={proxy.port}"}
    try:
        points = 0
        for point in range(random.randint(1, step), 2000, step):
            nfs = Driver(context.build, node="")
            try:
                arguments = call[0](nfs, parameters, point)
                proxy.arm(point, nfs.process.kill)
                died = False
                try:
                    call[1](nfs, parameters, point, arguments)
                except CallError:
                    died = True
                proxy.disarm()
                if died:
                    nfs.process.wait()
                    nfs.start()
                    call[1](nfs, parameters, point, arguments)
                check(nfs, parameters, point, arguments)
            finally:
                nfs.close()
            points += died
            if not died:
                print(f"      died at {points} points")
                assert points > 5
                return
        raise AssertionError("it never came to its end")
    finally:
        proxy.close()


def test_dies_while_it_deletes(context):
    export = context.path()

    def prepare(nfs, parameters, point):
        volume = nfs.create(f"vol-{point}", {**parameters, "subDir": f"up/{point}/vol"})
        for number in range(3):
            write(f"{export}/up/{point}/vol/dir/{number}")
        return volume["volume_id"]

    def check(nfs, parameters, point, volume_id):
        equal(names(export), [], f"point {point}")
        equal([entry for entry in leftovers(export) if entry.count(os.sep) > 1], [], f"point {point}")
    die_everywhere(context, context.parameters(),
                   (prepare, lambda nfs, parameters, point, volume_id: nfs.delete(volume_id)), check, step=4)


def test_dies_while_it_archives(context):
    export = context.path()

    def prepare(nfs, parameters, point):
        volume = nfs.create(f"vol-{point}", {**parameters, "subDir": f"vol-{point}", "onDelete": "archive"})
        write(f"{export}/vol-{point}/data", str(point).encode())
        return volume["volume_id"]

    def check(nfs, parameters, point, volume_id):
        equal(names(export), [f"archived-vol-{point}"], f"point {point}")
        with open(f"{export}/archived-vol-{point}/data", "rb") as data:
            equal(data.read(), str(point).encode())
        shutil.rmtree(f"{export}/archived-vol-{point}")
        equal([entry for entry in leftovers(export) if entry.count(os.sep) > 1], [], f"point {point}")
    die_everywhere(context, context.parameters(),
                   (prepare, lambda nfs, parameters, point, volume_id: nfs.delete(volume_id)), check, step=2)


def test_dies_while_it_deletes_a_volume_of_csi_driver_nfs(context):
    export = context.path()

    def prepare(nfs, parameters, point):
        write(f"{export}/old-{point}/dir/file")
        return {"id": f"127.0.0.1#{export[1:]}#old-{point}##delete",
                "secrets": {"mountOptions": parameters["mountOptions"]}}

    def check(nfs, parameters, point, volume):
        equal(names(export), [], f"point {point}")
        equal([entry for entry in leftovers(export) if entry.count(os.sep) > 1], [], f"point {point}")
    die_everywhere(context, context.parameters(),
                   (prepare, lambda nfs, parameters, point, volume: nfs.delete(volume["id"],
                                                                               secrets=volume["secrets"])), check,
                   step=4)


def test_dies_while_it_creates(context):
    export = context.path()

    def create(nfs, parameters, point, _):
        volume = nfs.create(f"vol-{point}", {**parameters, "subDir": f"up/{point}/vol", "mountPermissions": "2750",
                                             "uid": "77"}, size=1 << 20)
        st = os.stat(f"{export}/up/{point}/vol")
        equal((st.st_mode & 0o7777, st.st_uid), (0o2750, 77), f"point {point}")
        nfs.delete(volume["volume_id"])

    def check(nfs, parameters, point, _):
        equal(names(export), [], f"point {point}")
        equal([entry for entry in leftovers(export) if entry.count(os.sep) > 1], [], f"point {point}")
    die_everywhere(context, context.parameters(), (lambda nfs, parameters, point: None, create), check,
                   step=6)


def small_tree(path):
    for number in range(3):
        write(f"{path}/dir/{number}", str(number).encode() * 1000)
    os.symlink("x", path + "/link")


def test_dies_while_it_restores_and_takes_snapshots(context):
    export = context.path()
    small = {}

    def prepare(nfs, parameters, point):
        volume = nfs.create("source", parameters)
        if not small:
            small_tree(export + "/source")
            small.update(tree(export + "/source"))
        return volume["volume_id"]

    def call(nfs, parameters, point, volume_id):
        snapshot = nfs.call("CreateSnapshot", {"name": f"snap-{point}", "source_volume_id": volume_id})["snapshot"]
        equal(tree(f"{export}/.berth/snapshots/snap-{point}"), small, f"point {point}")
        clone = nfs.create(f"vol-{point}", {**parameters, "subDir": f"up/{point}/vol"},
                           **source_of("snapshot", snapshot["snapshot_id"]))
        equal(tree(f"{export}/up/{point}/vol"), small, f"point {point}")
        nfs.call("DeleteSnapshot", {"snapshot_id": snapshot["snapshot_id"]})
        nfs.delete(clone["volume_id"])

    def check(nfs, parameters, point, _):
        equal(names(export), ["source"], f"point {point}")
        equal(sorted(entry for entry in leftovers(export) if entry.count(os.sep) > 1 and "source" not in entry), [],
              f"point {point}")
    die_everywhere(context, context.parameters(), (prepare, call), check, step=12)


def test_half_made_copy_is_never_a_volume(context):
    """What the peer's restore leaves after a crash counts as complete there."""
    export = context.path()
    proxy = Proxy(context.server.port)
    parameters = {**context.parameters(), "mountOptions": f"nfsvers=4,port={proxy.port}"}
    nfs = Driver(context.build, node="")
    try:
        volume = nfs.create("source", parameters)
        make_tree(export + "/source")
        proxy.arm(300, nfs.process.kill)
        with contextlib.suppress(CallError):
            nfs.create("copy", parameters, **source_of("volume", volume["volume_id"]))
        equal(nfs.process.wait(), -signal.SIGKILL)
        proxy.disarm()
        equal(names(export), ["source"])
        nfs.start()
        nfs.create("copy", parameters, **source_of("volume", volume["volume_id"]))
        equal(tree(export + "/copy"), tree(export + "/source"))
    finally:
        nfs.close()
        proxy.close()


def test_a_call_outlives_its_caller(context):
    """A long copy goes on when the caller's time is up; he comes again and finds it busy, then done."""
    export = context.path()
    with driver(context) as nfs:
        volume = nfs.create("source", context.parameters())
        for number in range(2000):
            write(f"{export}/source/{number % 7}/{number}", b"x" * 100)
        request = {"name": "snap-long", "source_volume_id": volume["volume_id"]}
        codes = []
        for _ in range(200):
            try:
                nfs.call("CreateSnapshot", request, timeout=1)
                break
            except CallError as error:
                codes.append(error.code)
                time.sleep(0.2)
        assert set(codes) <= {"DEADLINE_EXCEEDED", "ABORTED"} and codes, codes
        equal(tree(export + "/.berth/snapshots/snap-long"), tree(export + "/source"))
