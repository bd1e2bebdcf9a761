# SPDX-License-Identifier: Apache-2.0
"""CreateVolume, DeleteVolume and the policies, on the export as this machine sees it."""
import contextlib
import json
import os
import socket
import stat
import time
import urllib.request

from checks import equal, fails, leftovers, names, record, write
from driver import CallError, Driver, MOUNT


@contextlib.contextmanager
def driver(context, *flags, **more):
    running = Driver(context.build, *flags, node="", **more)
    try:
        yield running
    finally:
        status = running.close()
    equal(status, 0, "the driver's exit status")


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def both_versions(test):
    def run(context):
        for version in (3, 4):
            if version == 4:
                context.next_case()
            test(context, version)
    return run


@both_versions
def test_create_and_delete(context, version):
    export = context.path()
    with driver(context) as nfs:
        volume = nfs.create("pvc-1", context.parameters(version=version), size=1 << 20)
        equal(volume["capacity_bytes"], 1 << 20)
        equal(volume["volume_context"]["subDir"], "pvc-1")
        assert volume["volume_id"].startswith("127.0.0.1#" + export[1:] + "#pvc-1##delete#b,"), volume["volume_id"]
        equal(names(export), ["pvc-1"])
        equal(mode_of(export + "/pvc-1"), 0o755)
        # again: the same; nothing is made twice
        equal(nfs.create("pvc-1", context.parameters(version=version), size=1 << 20)["volume_id"],
              volume["volume_id"])
        with fails("ALREADY_EXISTS", "another size"):
            nfs.create("pvc-1", context.parameters(version=version), size=1 << 21)
        nfs.delete(volume["volume_id"])
        nfs.delete(volume["volume_id"])
        equal(names(export), [])
        equal([entry for entry in leftovers(export) if entry.count(os.sep) > 1], [])


@both_versions
def test_rights(context, version):
    export = context.path()
    with driver(context) as nfs:
        volume = nfs.create("pvc-rights", context.parameters(version=version, mountPermissions="2770", uid="1234",
                                                             gid="4321"))
        st = os.stat(export + "/pvc-rights")
        equal((stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid), (0o2770, 1234, 4321))
        nfs.delete(volume["volume_id"])


def test_bad_requests(context):
    with driver(context) as nfs:
        parameters = context.parameters()
        for changed, word in (({"colour": "red"}, "colour"), ({"onDelete": "burn"}, "onDelete"),
                              ({"mountPermissions": "999"}, "mountPermissions"), ({"subDir": "a/../b"}, ".."),
                              ({"subDir": ".berth/x"}, ".berth"), ({"server": "a b"}, "server"),
                              ({"share": "/a/../b"}, ".."), ({"subDir": "a#b"}, "#"), ({"uid": "root"}, "uid"),
                              ({"archiveOnDelete": "perhaps"}, "archiveOnDelete"), ({"mounter": "magic"}, "mounter"),
                              ({"mountOptions": "nfsvers=2"}, "nfsvers")):
            with fails("INVALID_ARGUMENT", word):
                nfs.create("pvc-bad", {**parameters, **changed})
        with fails("INVALID_ARGUMENT", "server"):
            nfs.create("pvc-bad", {"share": "/x"})
        with fails("INVALID_ARGUMENT", "share"):
            nfs.create("pvc-bad", {"server": "127.0.0.1"})
        with fails("INVALID_ARGUMENT", "block"):
            nfs.call("CreateVolume", {"name": "pvc-bad", "parameters": parameters, "volume_capabilities": [
                {"block": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}]})
        equal(names(context.path()), [])


def test_classes_of_both_peers(context):
    """Parameters as users of the peers have them, with keys in any case, and the metadata of the provisioner."""
    export = context.path()
    metadata = {"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop",
                "csi.storage.k8s.io/pv/name": "pvc-2", "csi.storage.k8s.io/pvc/labels/tier": "gold"}
    base = context.parameters()
    cases = [
        ({"SERVER": base["server"], "Share": base["share"], "SubDir": "${pvc.metadata.namespace}/${pvc.metadata.name}-"
          "${pv.metadata.name}", "OnDelete": "Retain", "mountoptions": base["mountOptions"]}, "shop/data-pvc-2"),
        ({**base, "pathPattern": "${.PVC.namespace}-${.PVC.name}/${.PVC.labels.tier}", "archiveOnDelete": "false"},
         "shop-data/gold"),
    ]
    with driver(context) as nfs:
        for parameters, expected in cases:
            volume = nfs.create("pvc-2", {**parameters, **metadata})
            equal(volume["volume_context"]["subDir"], expected)
            assert os.path.isdir(os.path.join(export, expected))
            if "OnDelete" in parameters:
                nfs.delete(volume["volume_id"])
                assert os.path.isdir(os.path.join(export, expected)), "retained"
                os.rmdir(os.path.join(export, expected))
                os.rmdir(os.path.join(export, "shop"))
            else:
                nfs.delete(volume["volume_id"])
            equal(names(export), [])
        with fails("INVALID_ARGUMENT", "extra-create-metadata"):
            nfs.create("pvc-2", {**base, "subDir": "${pvc.metadata.name}"})
        with fails("INVALID_ARGUMENT", "annotation"):
            nfs.create("pvc-2", {**base, **metadata, "pathPattern": "${.PVC.annotations.where}"})
        with fails("INVALID_ARGUMENT", "may not be used in a path"):
            nfs.create("pvc-2", {**base, **metadata, "csi.storage.k8s.io/pvc/labels/tier": "../..",
                                 "pathPattern": "${.PVC.labels.tier}"})


def test_server_and_share_from_flags(context):
    """nfs-subdir-external-provisioner's classes name no server."""
    flags = ["--server=127.0.0.1", "--share=" + context.path("other"), "--mount-options=" + context.options()]
    with driver(context, *flags) as nfs:
        volume = nfs.create("pvc-3", {"archiveOnDelete": "true"})
        equal(names(context.path("other")), ["pvc-3"])
        nfs.delete(volume["volume_id"])
        equal(names(context.path("other")), ["archived-pvc-3"])
        os.rmdir(context.path("other") + "/archived-pvc-3")


@both_versions
def test_nested_names_and_parents(context, version):
    """Only empty parents that we made go; never one in which somebody put something, or that was there before."""
    export = context.path()
    parameters = context.parameters(version=version)
    os.makedirs(export + "/given")
    with driver(context) as nfs:
        a = nfs.create("vol-a", {**parameters, "subDir": "given/ours/deep/a"})
        b = nfs.create("vol-b", {**parameters, "subDir": "given/ours/b"})
        nfs.delete(a["volume_id"])
        equal(names(export + "/given/ours"), ["b"], "deep was ours and empty")
        c = nfs.create("vol-c", {**parameters, "subDir": "kept/c"})
        write(export + "/kept/notes.txt")
        nfs.delete(c["volume_id"])
        equal(names(export + "/kept"), ["notes.txt"])
        nfs.delete(b["volume_id"])
        equal(names(export + "/given"), [])
        equal(names(export), ["given", "kept"])
    os.rmdir(export + "/given")
    os.unlink(export + "/kept/notes.txt")
    os.rmdir(export + "/kept")


def test_two_namespaces_with_a_nested_pattern(context):
    export = context.path()
    with driver(context) as nfs:
        ids = {}
        for namespace in ("red", "blue"):
            for claim in ("x", "y"):
                ids[namespace, claim] = nfs.create(
                    f"pvc-{namespace}-{claim}",
                    context.parameters(subDir="${pvc.metadata.namespace}/${pvc.metadata.name}",
                                       **{"csi.storage.k8s.io/pvc/name": claim,
                                          "csi.storage.k8s.io/pvc/namespace": namespace}))["volume_id"]
                write(f"{export}/{namespace}/{claim}/file", namespace.encode())
        nfs.delete(ids["red", "x"])
        equal(names(export + "/red"), ["y"])
        equal(names(export + "/blue"), ["x", "y"])
        with open(export + "/blue/x/file", "rb") as data:
            equal(data.read(), b"blue")
        nfs.delete(ids["red", "y"])
        equal(names(export), ["blue"])
        nfs.delete(ids["blue", "x"])
        nfs.delete(ids["blue", "y"])
        equal(names(export), [])


def test_volumes_above_and_below_each_other(context):
    export = context.path()
    parameters = context.parameters()
    with driver(context) as nfs:
        below = nfs.create("vol-below", {**parameters, "subDir": "top/below"})
        above = nfs.create("vol-above", {**parameters, "subDir": "top"})
        write(export + "/top/below/precious")
        with fails("FAILED_PRECONDITION", "vol-below"):
            nfs.delete(above["volume_id"])
        nfs.delete(below["volume_id"])
        equal(names(export), ["top"], "the directory of the volume above stays, though it is empty")
        nfs.delete(above["volume_id"])
        equal(names(export), [])


def test_one_directory_for_two_claims(context):
    """The peer's deletion of the one takes the other's data along."""
    export = context.path()
    parameters = context.parameters(subDir="common")
    with driver(context) as nfs:
        first, second = nfs.create("vol-1", parameters), nfs.create("vol-2", parameters)
        write(export + "/common/data")
        nfs.delete(first["volume_id"])
        equal(names(export + "/common"), ["data"])
        nfs.delete(second["volume_id"])
        equal(names(export), [])


def test_a_directory_that_is_not_ours(context):
    export = context.path()
    write(export + "/theirs/data")
    with driver(context) as nfs:
        with fails("FAILED_PRECONDITION", "not made by this driver", "retain"):
            nfs.create("vol-t", context.parameters(subDir="theirs"))
        equal([entry for entry in leftovers(export) if "vol-t" in entry or "theirs" in entry], [])
        volume = nfs.create("vol-t", context.parameters(subDir="theirs", onDelete="retain"))
        nfs.delete(volume["volume_id"])
        equal(names(export + "/theirs"), ["data"])
        # an id of ours without a record: somebody removed it, or made the id up
        with fails("FAILED_PRECONDITION", "no record"):
            nfs.delete(f"127.0.0.1#{export[1:]}#theirs##delete#b,v4,p{context.server.port}")
        equal(names(export + "/theirs"), ["data"])
    os.unlink(export + "/theirs/data")
    os.rmdir(export + "/theirs")


def test_volumes_of_csi_driver_nfs(context):
    """Their ids name server, share and directory; version and port come from the secret they need for that."""
    export = context.path()
    secrets = {"mountOptions": context.options()}
    with driver(context) as nfs:
        for number, volume_id in enumerate((f"127.0.0.1#{export[1:]}#old/pvc-9#pvc-9#", f"127.0.0.1#{export[1:]}#old-9##delete",
                                            f"127.0.0.1#{export[1:]}#old-9", f"127.0.0.1{export}/old-9")):
            directory = export + ("/old/pvc-9" if number == 0 else "/old-9")
            write(directory + "/sub/file")
            nfs.delete(volume_id, secrets=secrets)
            assert not os.path.exists(directory), volume_id
            nfs.delete(volume_id, secrets=secrets)
        equal(names(export), ["old"], "a parent that they made is not known to be ours")
        os.rmdir(export + "/old")
        write(export + "/keep-9/file")
        nfs.delete(f"127.0.0.1#{export[1:]}#keep-9##retain", secrets=secrets)
        equal(names(export), ["keep-9"])
        nfs.delete(f"127.0.0.1#{export[1:]}#keep-9##archive", secrets=secrets)
        equal(names(export), ["archived-keep-9"])
        os.unlink(export + "/archived-keep-9/file")
        os.rmdir(export + "/archived-keep-9")
        # the whole share is never deleted, nor anything outside
        write(export + "/stay")
        for volume_id in (f"127.0.0.1#{export[1:]}###delete", f"127.0.0.1#{export[1:]}#../x##delete",
                          f"127.0.0.1#{export[1:]}#.berth##delete", "nonsense", "a#b", "x" * 1000):
            nfs.delete(volume_id, secrets=secrets)
        equal(names(export), ["stay"])
        os.unlink(export + "/stay")
        with fails("NOT_FOUND"):
            nfs.call("ValidateVolumeCapabilities", {"volume_id": "fake", "volume_capabilities": [MOUNT]})


@both_versions
def test_archive(context, version):
    export = context.path()
    with driver(context) as nfs:
        for expected in (1, 2, 3):
            volume = nfs.create("vol-ar", context.parameters(version=version, subDir="deep/ar", onDelete="archive"))
            write(export + "/deep/ar/data", str(expected).encode())
            nfs.delete(volume["volume_id"])
            nfs.delete(volume["volume_id"])
            equal(len(names(export + "/archived-deep")), expected, "each archive has a name of its own")
        equal(names(export), ["archived-deep"])
        contents = set()
        for name in names(export + "/archived-deep"):
            with open(f"{export}/archived-deep/{name}/data", "rb") as data:
                contents.add(data.read())
            os.unlink(f"{export}/archived-deep/{name}/data")
            os.rmdir(f"{export}/archived-deep/{name}")
        equal(contents, {b"1", b"2", b"3"})
        os.rmdir(export + "/archived-deep")


def crash_points(context, policy, prepare, expected):
    """Stops the driver dead after each of its calls to the server in turn, then repeats the call."""
    export = context.path()
    for limit in range(1, 200):
        with driver(context) as nfs:
            volume = nfs.create("vol-crash", context.parameters(subDir="cr/ash", onDelete=policy))
            prepare(export + "/cr/ash")
            nfs.kill()
            os.environ["BERTH_NFS_CRASH_AFTER"] = str(limit)
            nfs.start()
            del os.environ["BERTH_NFS_CRASH_AFTER"]
            try:
                nfs.delete(volume["volume_id"])
                crashed = False
            except CallError:
                crashed = True
            nfs.kill()
            nfs.start()
            nfs.delete(volume["volume_id"])
            expected(export, limit)
            if not crashed:
                return limit
    raise AssertionError("the driver crashed at every point")


def test_concurrent_creates_and_deletes(context):
    import concurrent.futures
    export = context.path()
    with driver(context) as nfs, concurrent.futures.ThreadPoolExecutor(50) as pool:
        def cycle(number):
            # half of them below one parent, which comes and goes
            sub_dir = f"crowd/{number}" if number % 2 else f"alone-{number}"
            volume = nfs.create(f"vol-{number}", context.parameters(version=3 if number % 3 else 4, subDir=sub_dir))
            write(f"{export}/{sub_dir}/file")
            nfs.delete(volume["volume_id"])
        began = time.monotonic()
        list(pool.map(cycle, range(50)))
        print(f"      50 creates and deletes at once: {time.monotonic() - began:.1f} s")
        equal(names(export), [])
        equal([entry for entry in leftovers(export) if entry.count(os.sep) > 1], [])


def test_same_name_at_once(context):
    import concurrent.futures
    with driver(context) as nfs, concurrent.futures.ThreadPoolExecutor(8) as pool:
        def create(_):
            try:
                return nfs.create("vol-same", context.parameters())["volume_id"]
            except CallError as error:
                equal(error.code, "ABORTED", error.message)
                return None
        ids = {found for found in pool.map(create, range(8)) if found}
        equal(len(ids), 1)
        nfs.delete(ids.pop())


def test_expand_get_capacity(context):
    with driver(context) as nfs:
        volume = nfs.create("vol-e", context.parameters(), size=1 << 20)
        volume_id = volume["volume_id"]
        with fails("INVALID_ARGUMENT"):
            nfs.call("ControllerExpandVolume", {"volume_id": volume_id})
        reply = nfs.call("ControllerExpandVolume", {"volume_id": volume_id,
                                                    "capacity_range": {"required_bytes": 5 << 20}})
        equal((reply["capacity_bytes"], reply["node_expansion_required"]), (5 << 20, True))
        reply = nfs.call("ControllerExpandVolume", {"volume_id": volume_id,
                                                    "capacity_range": {"required_bytes": 2 << 20}})
        equal(reply["capacity_bytes"], 5 << 20, "never smaller")
        equal(record(context.path(), "vol-e")["capacity"], 5 << 20)
        got = nfs.call("ControllerGetVolume", {"volume_id": volume_id})
        equal(got["volume"]["capacity_bytes"], 5 << 20)
        reply = nfs.call("GetCapacity", {"parameters": context.parameters()})
        disk = os.statvfs(context.path())
        free = disk.f_bavail * disk.f_frsize
        assert abs(int(reply["available_capacity"]) - free) < 1 << 30, (reply, free)
        nfs.delete(volume_id)
        with fails("NOT_FOUND"):
            nfs.call("ControllerGetVolume", {"volume_id": volume_id})


def test_lists(context):
    export = context.path("listed")
    flags = ["--server=127.0.0.1", "--share=" + export, "--mount-options=" + context.options()]
    with driver(context, *flags) as nfs:
        made = sorted(nfs.create(f"vol-{number:02}", {})["volume_id"] for number in range(7))
        entries, token = [], ""
        while True:
            page = nfs.call("ListVolumes", {"max_entries": 3, "starting_token": token})
            assert len(page["entries"]) <= 3
            entries += [entry["volume"]["volume_id"] for entry in page["entries"]]
            token = page.get("next_token", "")
            if not token:
                break
        equal(entries, made)
        with fails("ABORTED"):
            nfs.call("ListVolumes", {"starting_token": "nonsense"})
        for volume_id in made:
            nfs.delete(volume_id)
        equal(nfs.call("ListVolumes").get("entries", []), [])


def test_calls_are_counted(context):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with driver(context, "--http-endpoint=" + address) as nfs:
        nfs.delete(nfs.create("pvc-m", context.parameters())["volume_id"])
        with fails("INVALID_ARGUMENT"):
            nfs.create("", context.parameters())
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
            text = reply.read().decode()
    for code, method in (("OK", "CreateVolume"), ("InvalidArgument", "CreateVolume"), ("OK", "DeleteVolume")):
        line = (f'csi_plugin_operations_seconds_count{{driver_name="nfs.csi.berth",grpc_status_code="{code}",'
                f'method_name="/csi.v1.Controller/{method}"}} 1')
        assert line in text, f"{line} is not in {text}"


def test_a_creation_that_failed_is_in_nobodys_way(context):
    """Its record stays for the next try, which may ask for another directory by then."""
    export = context.path()
    os.mkdir(export + "/elsewhere")
    os.symlink("elsewhere", export + "/link")
    with driver(context) as nfs:
        with fails("INTERNAL", "link/x"):
            nfs.create("pvc-f", context.parameters(subDir="link/x"))
        volume = nfs.create("pvc-f", context.parameters(subDir="good"))
        equal(names(export), ["elsewhere", "good", "link"])
        equal(names(export + "/elsewhere"), [])
        nfs.delete(volume["volume_id"])
        equal(leftovers(export), [])


def test_a_creation_cut_short_owns_only_what_it_made(context):
    """What a driver that was killed between the claim and the look at the directory leaves."""
    export = context.path()
    write(export + "/given/file")
    with driver(context) as nfs:
        volume = nfs.create("pvc-g", context.parameters(subDir="given", onDelete="retain"))
        path = export + "/.berth/volumes/pvc-g.json"
        given = {**record(export, "pvc-g"), "state": "creating", "onDelete": "delete"}
        with open(path, "w", encoding="utf-8") as out:
            json.dump(given, out)
        nfs.delete(volume["volume_id"])
        equal(names(export + "/given"), ["file"])
        equal(leftovers(export), [])
