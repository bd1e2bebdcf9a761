#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the CSI specification asks of a driver, case by case, in the groups of csi-sanity.

    tests/sanity/sanity.py --driver hostpath [--backend plain|loop|fuse] [--access mount|block] [--only REGEX]

Without --backend and --access all combinations the driver knows are run. A case that needs what the driver does not
offer is skipped. Prints a line for each case that fails or is skipped, and "N passed, N failed, N skipped" last.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

from csi import (ABORTED, ALREADY_EXISTS, FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND,
                 RESOURCE_EXHAUSTED, Connection, Failure, RpcError, Skip, capability, detach_below,
                 enter_namespaces, expect, loop_devices, unmount_below)
from drivers import DRIVERS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CASES = []

PLUGIN = {"CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS", "GROUP_CONTROLLER_SERVICE",
          "SNAPSHOT_METADATA_SERVICE"}
CONTROLLER = {"CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME", "LIST_VOLUMES", "GET_CAPACITY",
              "CREATE_DELETE_SNAPSHOT", "LIST_SNAPSHOTS", "CLONE_VOLUME", "PUBLISH_READONLY", "EXPAND_VOLUME",
              "LIST_VOLUMES_PUBLISHED_NODES", "VOLUME_CONDITION", "GET_VOLUME", "SINGLE_NODE_MULTI_WRITER",
              "MODIFY_VOLUME", "GET_SNAPSHOT"}
NODE = {"STAGE_UNSTAGE_VOLUME", "GET_VOLUME_STATS", "EXPAND_VOLUME", "VOLUME_CONDITION", "SINGLE_NODE_MULTI_WRITER",
        "VOLUME_MOUNT_GROUP"}
GROUP = {"CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"}


def case(group, name, controller=(), node=(), plugin=()):
    """Registers a case; it is skipped unless the driver has all these capabilities."""
    def register(function):
        CASES.append((f"{group}: {name}", {"controller": controller, "node": node, "plugin": plugin}, function))
        return function
    return register


class Run:
    """One driver process, and where it lives."""

    def __init__(self, driver, build, keep):
        self.driver, self.build, self.keep = driver, build, keep
        self.directory = tempfile.mkdtemp(prefix="berth-sanity-")
        self.socket = os.path.join(self.directory, "csi.sock")
        self.process = driver.start(self)
        self.connection = Connection(self.program("csi-call"), self.socket)
        self.load_capabilities()

    def program(self, name):
        return os.path.join(self.build, name)

    def spawn(self, name, *args):
        with open(os.path.join(self.directory, name + ".log"), "ab") as log:
            return subprocess.Popen([self.program(name), *args], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def load_capabilities(self):
        call = self.connection.call
        plugin = call("GetPluginCapabilities")["capabilities"]
        self.plugin = {c["service"]["type"] for c in plugin if "service" in c}
        self.controller = set()
        if "CONTROLLER_SERVICE" in self.plugin:
            self.controller = {c["rpc"]["type"] for c in call("ControllerGetCapabilities")["capabilities"]}
        self.node = {c["rpc"]["type"] for c in call("NodeGetCapabilities")["capabilities"]}
        self.info = call("NodeGetInfo")

    def close(self):
        self.connection.close()
        self.process.terminate()
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "none in 20 s"
        leaks = loop_devices(self.directory)
        unmount_below(self.directory)
        detach_below(self.directory)
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        expect(status == 0, f"exit status of the driver: {status}")
        expect(not leaks, f"loop devices left: {leaks}")


class Context:
    """What one case works with; everything made through it is taken away again, the newest first."""

    def __init__(self, run, number):
        self.run, self.driver = run, run.driver
        self.call, self.fails = run.connection.call, run.connection.fails
        self.number, self.count = number, 0
        self.undo = []
        self.base = os.path.join(run.directory, f"case-{number}")
        self.staging = os.path.join(self.base, "staging")
        self.target = os.path.join(self.base, "mount", "target")
        os.makedirs(self.staging)
        os.makedirs(os.path.dirname(self.target))

    # ---- small things
    def name(self, prefix):
        self.count += 1
        return f"sanity-{prefix}-{self.number}-{self.count}"

    def cap(self, mode="SINGLE_NODE_WRITER"):
        return capability(self.driver.access, mode)

    def can(self, *names):
        return all(n in self.run.controller for n in names)

    def can_node(self, *names):
        return all(n in self.run.node for n in names)

    def secret(self):
        return {"secrets": self.driver.secrets} if self.driver.secrets else {}

    # ---- volumes
    def request(self, name=None, size=None, **more):
        size = self.driver.default_size if size is None else size
        request = {"name": name or self.name("volume"), "volume_capabilities": [self.cap()],
                   "parameters": self.driver.parameters, **self.secret(), **more}
        if size:
            request["capacity_range"] = {"required_bytes": size}
        return request

    def create(self, **options):
        volume = self.call("CreateVolume", **self.request(**options))["volume"]
        self.undo.append(lambda: self.cleanup_volume(volume["volume_id"]))
        expect(volume["volume_id"], "the volume has no id")
        return volume

    def cleanup_volume(self, volume_id):
        """As a sidecar would that remembers nothing: every step, whether or not it was done."""
        def tolerate(method, *codes, **request):
            try:
                self.call(method, **request)
            except RpcError as e:
                expect(e.code in codes, f"clean-up: {e}")
        tolerate("NodeUnpublishVolume", NOT_FOUND, volume_id=volume_id, target_path=self.target)
        if self.can_node("STAGE_UNSTAGE_VOLUME"):
            tolerate("NodeUnstageVolume", NOT_FOUND, volume_id=volume_id, staging_target_path=self.staging)
        if self.can("PUBLISH_UNPUBLISH_VOLUME"):
            tolerate("ControllerUnpublishVolume", volume_id=volume_id, node_id=self.run.info["node_id"],
                     **self.secret())
        tolerate("DeleteVolume", volume_id=volume_id, **self.secret())

    def snapshot(self, volume_id, name=None):
        snapshot = self.call("CreateSnapshot", name=name or self.name("snapshot"), source_volume_id=volume_id,
                             parameters=self.driver.snapshot_parameters, **self.secret())["snapshot"]
        self.undo.append(lambda: self.call("DeleteSnapshot", snapshot_id=snapshot["snapshot_id"], **self.secret()))
        return snapshot

    def controller_publish(self, volume, **more):
        if not self.can("PUBLISH_UNPUBLISH_VOLUME"):
            return {}
        reply = self.call("ControllerPublishVolume", volume_id=volume["volume_id"], node_id=self.run.info["node_id"],
                          volume_capability=self.cap(), volume_context=volume["volume_context"], **self.secret(), **more)
        return reply["publish_context"]

    def stage(self, volume, context, mode="SINGLE_NODE_WRITER"):
        if self.can_node("STAGE_UNSTAGE_VOLUME"):
            self.call("NodeStageVolume", volume_id=volume["volume_id"], staging_target_path=self.staging,
                      volume_capability=self.cap(mode), publish_context=context,
                      volume_context=volume["volume_context"], **self.secret())

    def publish_request(self, volume, context, mode="SINGLE_NODE_WRITER", target=None):
        request = {"volume_id": volume["volume_id"], "target_path": target or self.target,
                   "volume_capability": self.cap(mode), "publish_context": context,
                   "volume_context": volume["volume_context"], **self.secret()}
        if self.can_node("STAGE_UNSTAGE_VOLUME"):
            request["staging_target_path"] = self.staging
        return request

    def publish(self, volume, **options):
        self.call("NodePublishVolume", **self.publish_request(volume, **options))

    def up(self, **options):
        """A new volume, all the way to its target."""
        volume = self.create(**options)
        context = self.controller_publish(volume)
        self.stage(volume, context)
        self.publish(volume, context=context)
        return volume

    def down(self, volume):
        self.call("NodeUnpublishVolume", volume_id=volume["volume_id"], target_path=self.target)
        if self.can_node("STAGE_UNSTAGE_VOLUME"):
            self.call("NodeUnstageVolume", volume_id=volume["volume_id"], staging_target_path=self.staging)
        if self.can("PUBLISH_UNPUBLISH_VOLUME"):
            self.call("ControllerUnpublishVolume", volume_id=volume["volume_id"], node_id=self.run.info["node_id"],
                      **self.secret())

    def volumes(self):
        return self.pages("ListVolumes")

    def snapshots(self, **filters):
        return self.pages("ListSnapshots", **filters)

    def pages(self, method, **request):
        entries, token = [], ""
        while True:
            reply = self.call(method, starting_token=token, **request)
            entries += reply["entries"]
            token = reply["next_token"]
            if not token:
                return entries

    def close(self):
        problems = []
        for undo in reversed(self.undo):
            try:
                undo()
            except (Failure, RpcError) as e:
                problems.append(str(e))
        for directory in (os.path.dirname(self.target), self.staging):
            if os.path.exists(directory) and os.listdir(directory):
                problems.append(f"left in {os.path.basename(directory)}: {os.listdir(directory)}")
        expect(not problems, "; ".join(problems))
        shutil.rmtree(self.base)


def test_volume_up_and_down(s, times=1):
    volume = s.create(accessibility_requirements={"requisite": [s.run.info["accessible_topology"]]}
                      if s.run.info.get("accessible_topology") else {})
    context = {}
    for _ in range(times):
        context = s.controller_publish(volume)
    for _ in range(times):
        s.stage(volume, context)
    for _ in range(times):
        s.publish(volume, context=context)
    if s.can_node("GET_VOLUME_STATS"):
        for _ in range(times):
            reply = s.call("NodeGetVolumeStats", volume_id=volume["volume_id"], volume_path=s.target,
                           staging_target_path=s.staging)
            expect(reply["usage"], "no usage in the stats")
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        count = sum(line.split(" ")[4] == s.target for line in f)
    expect(count == 1, f"{count} mounts at the target after {times} calls")
    for _ in range(times):
        s.down(volume)
    s.call("DeleteVolume", volume_id=volume["volume_id"], **s.secret())


# ---- Identity

@case("Identity", "GetPluginCapabilities names known ones")
def _(s):
    for c in s.call("GetPluginCapabilities")["capabilities"]:
        if "service" in c:
            expect(c["service"]["type"] in PLUGIN, f"{c}")
        else:
            expect(c["volume_expansion"]["type"] in ("ONLINE", "OFFLINE"), f"{c}")


@case("Identity", "Probe answers")
def _(s):
    expect("ready" in s.call("Probe"), "no ready")


@case("Identity", "GetPluginInfo has a proper name")
def _(s):
    info = s.call("GetPluginInfo")
    expect(len(info["name"]) <= 63 and re.fullmatch(r"[A-Za-z]([A-Za-z0-9._\-\\]*[A-Za-z])?", info["name"]),
           f"name {info['name']}")
    expect(info["vendor_version"], "no version")


# ---- Controller: capabilities, capacity, lists

@case("ControllerGetCapabilities", "names known ones", plugin=("CONTROLLER_SERVICE",))
def _(s):
    expect(s.run.controller <= CONTROLLER, f"unknown: {s.run.controller - CONTROLLER}")


@case("GetCapacity", "answers an empty request", controller=("GET_CAPACITY",))
def _(s):
    expect(s.call("GetCapacity")["available_capacity"] >= 0, "negative")


@case("ListVolumes", "without values", controller=("LIST_VOLUMES",))
def _(s):
    s.create()
    entries = s.call("ListVolumes")["entries"]
    expect(entries and all(e["volume"]["volume_id"] for e in entries), f"{entries}")


@case("ListVolumes", "a token that is none", controller=("LIST_VOLUMES",))
def _(s):
    s.fails(ABORTED, "ListVolumes", max_entries=0, starting_token="invalid-token")


@case("ListVolumes", "a new volume is there, a deleted one is not", controller=("LIST_VOLUMES",))
def _(s):
    before = len(s.volumes())
    volume = s.create()
    ids = [e["volume"]["volume_id"] for e in s.volumes()]
    expect(len(ids) == before + 1 and volume["volume_id"] in ids, f"{len(ids)} after {before}")
    s.call("DeleteVolume", volume_id=volume["volume_id"], **s.secret())
    expect(len(s.volumes()) == before, "the deleted volume is still listed")


# ---- CreateVolume

CD = ("CREATE_DELETE_VOLUME",)
SNAP = ("CREATE_DELETE_VOLUME", "CREATE_DELETE_SNAPSHOT")


@case("CreateVolume", "no name", controller=CD)
def _(s):
    s.fails(INVALID_ARGUMENT, "CreateVolume", parameters=s.driver.parameters, volume_capabilities=[s.cap()])


@case("CreateVolume", "no capabilities", controller=CD)
def _(s):
    s.fails(INVALID_ARGUMENT, "CreateVolume", name=s.name("volume"), parameters=s.driver.parameters)


@case("CreateVolume", "no capacity", controller=CD)
def _(s):
    s.create(size=0)


@case("CreateVolume", "with capacity", controller=CD)
def _(s):
    size = s.driver.default_size
    volume = s.create(size=size)
    expect(volume["capacity_bytes"] in (0,) or volume["capacity_bytes"] >= size, f"{volume}")


@case("CreateVolume", "same name and capacity", controller=CD)
def _(s):
    name = s.name("volume")
    first = s.create(name=name)
    second = s.create(name=name)
    expect(first["volume_id"] == second["volume_id"], "another id")


@case("CreateVolume", "same name, other capacity", controller=CD)
def _(s):
    name, size = s.name("volume"), s.driver.default_size
    first = s.create(name=name, capacity_range={"required_bytes": size, "limit_bytes": size}, size=0)
    if first["capacity_bytes"] == 0:
        raise Skip("the driver does not tell sizes")
    expect(first["capacity_bytes"] == size, f"{first['capacity_bytes']} instead of {size}")
    s.fails(ALREADY_EXISTS, "CreateVolume",
            **s.request(name=name, size=0, capacity_range={"required_bytes": 2 * size, "limit_bytes": 2 * size}))


@case("CreateVolume", "a name of 128 characters", controller=CD)
def _(s):
    name = s.name("volume")
    s.create(name=name + "x" * (128 - len(name)))


@case("CreateVolume", "from a snapshot", controller=SNAP)
def _(s):
    snapshot = s.snapshot(s.create()["volume_id"])
    volume = s.create(volume_content_source={"snapshot": {"snapshot_id": snapshot["snapshot_id"]}})
    expect(volume["content_source"]["snapshot"]["snapshot_id"] == snapshot["snapshot_id"], f"{volume}")


@case("CreateVolume", "from a snapshot that does not exist", controller=SNAP)
def _(s):
    s.fails(NOT_FOUND, "CreateVolume",
            **s.request(volume_content_source={"snapshot": {"snapshot_id": "non-existing-snapshot-id"}}))


@case("CreateVolume", "from a volume", controller=CD + ("CLONE_VOLUME",))
def _(s):
    source = s.create()
    volume = s.create(volume_content_source={"volume": {"volume_id": source["volume_id"]}})
    expect(volume["content_source"]["volume"]["volume_id"] == source["volume_id"], f"{volume}")


@case("CreateVolume", "from a volume that does not exist", controller=CD + ("CLONE_VOLUME",))
def _(s):
    s.fails(NOT_FOUND, "CreateVolume",
            **s.request(volume_content_source={"volume": {"volume_id": "non-existing-volume-id"}}))


@case("CreateVolume", "with mutable parameters", controller=CD + ("MODIFY_VOLUME",))
def _(s):
    s.create(mutable_parameters=s.driver.mutable[0])


@case("CreateVolume", "with an unknown mutable parameter", controller=CD + ("MODIFY_VOLUME",))
def _(s):
    s.fails(INVALID_ARGUMENT, "CreateVolume", **s.request(mutable_parameters={"XXX_FakeKey": "XXX_FakeValue"}))


# ---- DeleteVolume, ValidateVolumeCapabilities

@case("DeleteVolume", "no id", controller=CD)
def _(s):
    s.fails(INVALID_ARGUMENT, "DeleteVolume", **s.secret())


@case("DeleteVolume", "an id that does not exist", controller=CD)
def _(s):
    s.call("DeleteVolume", volume_id="fake-vol-id-0123456789", **s.secret())


@case("DeleteVolume", "a volume", controller=CD)
def _(s):
    volume = s.create()
    s.call("DeleteVolume", volume_id=volume["volume_id"], **s.secret())


@case("ValidateVolumeCapabilities", "no id", plugin=("CONTROLLER_SERVICE",))
def _(s):
    s.fails(INVALID_ARGUMENT, "ValidateVolumeCapabilities", **s.secret())


@case("ValidateVolumeCapabilities", "no capabilities", controller=CD)
def _(s):
    s.fails(INVALID_ARGUMENT, "ValidateVolumeCapabilities", volume_id=s.create()["volume_id"], **s.secret())


@case("ValidateVolumeCapabilities", "what the volume was made for", controller=CD)
def _(s):
    volume = s.create()
    reply = s.call("ValidateVolumeCapabilities", volume_id=volume["volume_id"], volume_capabilities=[s.cap()],
                   **s.secret())
    expect("confirmed" in reply and reply["confirmed"]["volume_capabilities"], f"{reply}")


@case("ValidateVolumeCapabilities", "a volume that does not exist", plugin=("CONTROLLER_SERVICE",))
def _(s):
    s.fails(NOT_FOUND, "ValidateVolumeCapabilities", volume_id="fake-vol-id-0123456789",
            volume_capabilities=[s.cap()], **s.secret())


# ---- ControllerPublishVolume, ControllerUnpublishVolume

PUB = ("CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME")


@case("ControllerPublishVolume", "no volume id", controller=PUB)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerPublishVolume", **s.secret())


@case("ControllerPublishVolume", "no node id", controller=PUB)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerPublishVolume", volume_id=s.create()["volume_id"], **s.secret())


@case("ControllerPublishVolume", "no capability", controller=PUB)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerPublishVolume", volume_id=s.create()["volume_id"],
            node_id=s.run.info["node_id"], **s.secret())


@case("ControllerPublishVolume", "more volumes than the node takes", controller=PUB)
def _(s):
    limit = s.run.info["max_volumes_per_node"]
    if not limit:
        raise Skip("the driver names no limit")
    for _i in range(limit):
        s.controller_publish(s.create())
    volume = s.create()
    s.fails(RESOURCE_EXHAUSTED, "ControllerPublishVolume", volume_id=volume["volume_id"],
            node_id=s.run.info["node_id"], volume_capability=s.cap(), **s.secret())


@case("ControllerPublishVolume", "a volume that does not exist", controller=PUB)
def _(s):
    s.fails(NOT_FOUND, "ControllerPublishVolume", volume_id="fake-vol-id-0123456789", node_id=s.run.info["node_id"],
            volume_capability=s.cap(), **s.secret())


@case("ControllerPublishVolume", "a node that does not exist", controller=PUB)
def _(s):
    s.fails(NOT_FOUND, "ControllerPublishVolume", volume_id=s.create()["volume_id"],
            node_id="fake-node-id-0123456789", volume_capability=s.cap(), **s.secret())


@case("ControllerPublishVolume", "published already, in another way", controller=PUB + ("PUBLISH_READONLY",))
def _(s):
    volume = s.create()
    s.controller_publish(volume, readonly=False)
    s.fails(ALREADY_EXISTS, "ControllerPublishVolume", volume_id=volume["volume_id"], node_id=s.run.info["node_id"],
            volume_capability=s.cap(), readonly=True, **s.secret())


@case("volume lifecycle", "works", controller=PUB)
def _(s):
    test_volume_up_and_down(s)


@case("volume lifecycle", "is idempotent", controller=PUB)
def _(s):
    test_volume_up_and_down(s, 10)


@case("ControllerUnpublishVolume", "no id", controller=PUB)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerUnpublishVolume", **s.secret())


# ---- snapshots

LIST = SNAP + ("LIST_SNAPSHOTS",)


@case("ListSnapshots", "without values", controller=LIST)
def _(s):
    s.call("ListSnapshots")


@case("ListSnapshots", "by id", controller=LIST)
def _(s):
    volume = s.create()
    snapshots = [s.snapshot(volume["volume_id"]) for _i in range(3)]
    entries = s.snapshots(snapshot_id=snapshots[1]["snapshot_id"])
    expect([e["snapshot"]["snapshot_id"] for e in entries] == [snapshots[1]["snapshot_id"]], f"{entries}")


@case("ListSnapshots", "by an id that does not exist", controller=LIST)
def _(s):
    expect(s.snapshots(snapshot_id="none-exist-id") == [], "entries")


@case("ListSnapshots", "by source", controller=LIST)
def _(s):
    one, other = s.create(), s.create()
    wanted = {s.snapshot(one["volume_id"])["snapshot_id"] for _i in range(2)}
    s.snapshot(other["volume_id"])
    entries = s.snapshots(source_volume_id=one["volume_id"])
    expect({e["snapshot"]["snapshot_id"] for e in entries} == wanted, f"{entries}")
    expect(all(e["snapshot"]["source_volume_id"] == one["volume_id"] for e in entries), f"{entries}")


@case("ListSnapshots", "by a source that does not exist", controller=LIST)
def _(s):
    expect(s.snapshots(source_volume_id="none-exist-volume-id") == [], "entries")


@case("ListSnapshots", "new ones are there, deleted ones are not", controller=LIST)
def _(s):
    before = len(s.snapshots())
    volume = s.create()
    snapshots = [s.snapshot(volume["volume_id"]) for _i in range(3)]
    expect(len(s.snapshots()) == before + 3, "the count")
    for snapshot in snapshots:
        s.call("DeleteSnapshot", snapshot_id=snapshot["snapshot_id"], **s.secret())
    expect(len(s.snapshots()) == before, "the count afterwards")


@case("ListSnapshots", "in pages", controller=LIST)
def _(s):
    volume = s.create()
    for _i in range(5):
        s.snapshot(volume["volume_id"])
    total = {e["snapshot"]["snapshot_id"] for e in s.call("ListSnapshots")["entries"]}
    first = s.call("ListSnapshots", max_entries=2)
    expect(len(first["entries"]) == 2 and first["next_token"], f"{first}")
    rest = s.call("ListSnapshots", starting_token=first["next_token"])
    expect(rest["next_token"] == "" and len(rest["entries"]) == len(total) - 2, f"{rest}")
    seen = {e["snapshot"]["snapshot_id"] for e in first["entries"] + rest["entries"]}
    expect(seen == total, "the pages are not the whole")


@case("GetSnapshot", "no id", controller=SNAP + ("GET_SNAPSHOT",))
def _(s):
    s.fails(None, "GetSnapshot", snapshot_id="")


@case("GetSnapshot", "a snapshot", controller=SNAP + ("GET_SNAPSHOT",))
def _(s):
    snapshot = s.snapshot(s.create()["volume_id"])
    again = s.call("GetSnapshot", snapshot_id=snapshot["snapshot_id"], **s.secret())["snapshot"]
    expect(again == snapshot, f"{again} instead of {snapshot}")


@case("GetSnapshot", "an id that does not exist", controller=SNAP + ("GET_SNAPSHOT",))
def _(s):
    s.fails(None, "GetSnapshot", snapshot_id="none-exist-id", **s.secret())


@case("DeleteSnapshot", "no id", controller=SNAP)
def _(s):
    s.fails(INVALID_ARGUMENT, "DeleteSnapshot", **s.secret())


@case("DeleteSnapshot", "an id that does not exist", controller=SNAP)
def _(s):
    s.call("DeleteSnapshot", snapshot_id="reallyfakesnapshotid", **s.secret())


@case("DeleteSnapshot", "a snapshot", controller=SNAP)
def _(s):
    snapshot = s.snapshot(s.create()["volume_id"])
    s.call("DeleteSnapshot", snapshot_id=snapshot["snapshot_id"], **s.secret())


@case("CreateSnapshot", "no name", controller=SNAP)
def _(s):
    s.fails(INVALID_ARGUMENT, "CreateSnapshot", source_volume_id="testId", **s.secret())


@case("CreateSnapshot", "no source", controller=SNAP)
def _(s):
    s.fails(INVALID_ARGUMENT, "CreateSnapshot", name=s.name("snapshot"), **s.secret())


@case("CreateSnapshot", "same name and source", controller=SNAP)
def _(s):
    volume, name = s.create(), s.name("snapshot")
    first = s.snapshot(volume["volume_id"], name)
    second = s.snapshot(volume["volume_id"], name)
    expect(first == second, f"{second} after {first}")


@case("CreateSnapshot", "same name, other source", controller=SNAP)
def _(s):
    one, other, name = s.create(), s.create(), s.name("snapshot")
    s.snapshot(one["volume_id"], name)
    s.fails(ALREADY_EXISTS, "CreateSnapshot", name=name, source_volume_id=other["volume_id"],
            parameters=s.driver.snapshot_parameters, **s.secret())


@case("CreateSnapshot", "a name of 128 characters", controller=SNAP)
def _(s):
    name = s.name("snapshot")
    s.snapshot(s.create()["volume_id"], name + "x" * (128 - len(name)))


# ---- ControllerExpandVolume, ControllerModifyVolume

EXP = CD + ("EXPAND_VOLUME",)


@case("ExpandVolume", "no id", controller=EXP)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerExpandVolume", capacity_range={"required_bytes": s.driver.default_size},
            **s.secret())


@case("ExpandVolume", "no capacity range", controller=EXP)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerExpandVolume", volume_id="", **s.secret())


@case("ExpandVolume", "works, to the byte", controller=EXP)
def _(s):
    volume, size = s.create(), s.driver.default_size + (1 << 20) + 1
    reply = s.call("ControllerExpandVolume", volume_id=volume["volume_id"], capacity_range={"required_bytes": size},
                   volume_capability=s.cap(), **s.secret())
    expect(reply["capacity_bytes"] == size, f"{reply['capacity_bytes']} instead of {size}")


MOD = CD + ("MODIFY_VOLUME",)


@case("ModifyVolume", "no id", controller=MOD)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerModifyVolume", mutable_parameters=s.driver.mutable[0])


@case("ModifyVolume", "a volume that does not exist", controller=MOD)
def _(s):
    s.fails(NOT_FOUND, "ControllerModifyVolume", volume_id="non-existing-volume-id",
            mutable_parameters=s.driver.mutable[0])


@case("ModifyVolume", "an unknown key", controller=MOD)
def _(s):
    s.fails(INVALID_ARGUMENT, "ControllerModifyVolume", volume_id=s.create()["volume_id"],
            mutable_parameters={"XXX_FakeKey": "XXX_FakeValue"})


@case("ModifyVolume", "a volume made without attributes", controller=MOD)
def _(s):
    s.call("ControllerModifyVolume", volume_id=s.create()["volume_id"], mutable_parameters=s.driver.mutable[0])


@case("ModifyVolume", "a volume made with attributes", controller=MOD)
def _(s):
    volume = s.create(mutable_parameters=s.driver.mutable[0])
    s.call("ControllerModifyVolume", volume_id=volume["volume_id"], mutable_parameters=s.driver.mutable[1])


@case("ModifyVolume", "an unknown key for a volume with attributes", controller=MOD)
def _(s):
    volume = s.create(mutable_parameters=s.driver.mutable[0])
    s.fails(INVALID_ARGUMENT, "ControllerModifyVolume", volume_id=volume["volume_id"],
            mutable_parameters={"XXX_FakeKey": "XXX_FakeValue"})


# ---- Node

@case("NodeGetCapabilities", "names known ones")
def _(s):
    expect(s.run.node <= NODE, f"unknown: {s.run.node - NODE}")


@case("NodeGetInfo", "is proper")
def _(s):
    info = s.call("NodeGetInfo")
    expect(info["node_id"] and info["max_volumes_per_node"] >= 0, f"{info}")
    if "VOLUME_ACCESSIBILITY_CONSTRAINTS" in s.run.plugin:
        expect(info["accessible_topology"]["segments"], f"{info}")


@case("NodePublishVolume", "no volume id")
def _(s):
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", **s.secret())


@case("NodePublishVolume", "no target path")
def _(s):
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", volume_id="fake-vol-id-0123456789", **s.secret())


@case("NodePublishVolume", "no capability")
def _(s):
    s.fails(INVALID_ARGUMENT, "NodePublishVolume", volume_id="fake-vol-id-0123456789", target_path=s.target,
            **s.secret())


@case("NodePublishVolume", "a second target for a single writer", controller=CD, node=("SINGLE_NODE_MULTI_WRITER",))
def _(s):
    mode = "SINGLE_NODE_SINGLE_WRITER"
    volume = s.create()
    context = s.controller_publish(volume)
    s.stage(volume, context, mode)
    s.publish(volume, context=context, mode=mode)
    s.fails(FAILED_PRECONDITION, "NodePublishVolume",
            **s.publish_request(volume, context, mode, target=s.target + "-2"))


@case("NodeUnpublishVolume", "no volume id")
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeUnpublishVolume")


@case("NodeUnpublishVolume", "no target path")
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeUnpublishVolume", volume_id="fake-vol-id-0123456789")


@case("NodeUnpublishVolume", "removes the target", controller=CD)
def _(s):
    volume = s.up()
    expect(os.path.lexists(s.target), "the target was not made")
    s.call("NodeUnpublishVolume", volume_id=volume["volume_id"], target_path=s.target)
    expect(not os.path.lexists(s.target), "the target is still there")


STAGE = ("STAGE_UNSTAGE_VOLUME",)


@case("NodeStageVolume", "no volume id", node=STAGE)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeStageVolume", staging_target_path=s.staging, volume_capability=s.cap(),
            publish_context={"device": "device-uuid"}, **s.secret())


@case("NodeStageVolume", "no staging path", node=STAGE)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeStageVolume", volume_id="fake-vol-id-0123456789", volume_capability=s.cap(),
            publish_context={"device": "device-uuid"}, **s.secret())


@case("NodeStageVolume", "no capability", controller=CD, node=STAGE)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeStageVolume", volume_id=s.create()["volume_id"], staging_target_path=s.staging,
            publish_context={"device": "device-uuid"}, **s.secret())


@case("NodeUnstageVolume", "no volume id", node=STAGE)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeUnstageVolume", staging_target_path=s.staging)


@case("NodeUnstageVolume", "no staging path", node=STAGE)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeUnstageVolume", volume_id="fake-vol-id-0123456789")


STATS = ("GET_VOLUME_STATS",)


@case("NodeGetVolumeStats", "no volume id", node=STATS)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeGetVolumeStats", volume_path="some/path")


@case("NodeGetVolumeStats", "no path", node=STATS)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeGetVolumeStats", volume_id="fake-vol-id-0123456789")


@case("NodeGetVolumeStats", "a volume that does not exist", node=STATS)
def _(s):
    s.fails(NOT_FOUND, "NodeGetVolumeStats", volume_id="fake-vol-id-0123456789", volume_path="some/path")


@case("NodeGetVolumeStats", "a path where the volume is not", controller=CD, node=STATS)
def _(s):
    volume = s.up()
    s.fails(NOT_FOUND, "NodeGetVolumeStats", volume_id=volume["volume_id"], volume_path="some/path")


GROW = ("EXPAND_VOLUME",)


@case("NodeExpandVolume", "no volume id", node=GROW)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeExpandVolume", volume_path=s.target,
            capacity_range={"required_bytes": s.driver.default_size})


@case("NodeExpandVolume", "no path", controller=CD, node=GROW)
def _(s):
    s.fails(INVALID_ARGUMENT, "NodeExpandVolume", volume_id=s.create()["volume_id"])


@case("NodeExpandVolume", "a volume that does not exist", node=GROW)
def _(s):
    s.fails(NOT_FOUND, "NodeExpandVolume", volume_id="fake-vol-id-0123456789", volume_path="some/path")


@case("NodeExpandVolume", "works after publish", controller=CD, node=GROW)
def _(s):
    volume = s.up()
    size = s.driver.default_size + (64 << 20)
    if s.can("EXPAND_VOLUME"):
        s.call("ControllerExpandVolume", volume_id=volume["volume_id"], capacity_range={"required_bytes": size},
               volume_capability=s.cap(), **s.secret())
    s.call("NodeExpandVolume", volume_id=volume["volume_id"], volume_path=s.target,
           capacity_range={"required_bytes": size})


@case("node flow", "works", controller=CD)
def _(s):
    test_volume_up_and_down(s)


@case("node flow", "is idempotent", controller=CD)
def _(s):
    test_volume_up_and_down(s, 10)


# ---- GroupController

GRP = ("GROUP_CONTROLLER_SERVICE",)


@case("GroupController", "GroupControllerGetCapabilities names known ones", plugin=GRP)
def _(s):
    for c in s.call("GroupControllerGetCapabilities")["capabilities"]:
        expect(c["rpc"]["type"] in GROUP, f"{c}")


@case("GroupController", "CreateVolumeGroupSnapshot without a name", plugin=GRP)
def _(s):
    s.fails(INVALID_ARGUMENT, "CreateVolumeGroupSnapshot", source_volume_ids=["some-id"])


@case("GroupController", "GetVolumeGroupSnapshot without an id", plugin=GRP)
def _(s):
    s.fails(INVALID_ARGUMENT, "GetVolumeGroupSnapshot")


@case("GroupController", "GetVolumeGroupSnapshot of an id that does not exist", plugin=GRP)
def _(s):
    s.fails(NOT_FOUND, "GetVolumeGroupSnapshot", group_snapshot_id="none-exist-id")


@case("GroupController", "DeleteVolumeGroupSnapshot without an id", plugin=GRP)
def _(s):
    s.fails(INVALID_ARGUMENT, "DeleteVolumeGroupSnapshot")


@case("GroupController", "DeleteVolumeGroupSnapshot of an id that does not exist", plugin=GRP)
def _(s):
    s.call("DeleteVolumeGroupSnapshot", group_snapshot_id="reallyfakegroupid")


# ---- running them

def missing_capability(run, needs):
    for kind, have in (("plugin", run.plugin), ("controller", run.controller), ("node", run.node)):
        for name in needs[kind]:
            if name not in have:
                return f"the driver has no {kind} capability {name}"
    return None


def run_case(run, number, needs, function, name):
    """None = passed, else a Failure or Skip."""
    reason = missing_capability(run, needs) or run.driver.excuse(name)
    if reason:
        return Skip(reason)
    context = Context(run, number)
    try:
        try:
            function(context)
        finally:
            context.close()
    except (Failure, RpcError, Skip) as e:
        return e
    except Exception as e:  # a bug in the case is a failure too, and the others go on
        traceback.print_exc()
        return Failure(f"{type(e).__name__}: {e}")
    return None


def run_suite(driver, args):
    title = f"{args.driver} {driver.backend} {driver.access}".strip()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    began = time.monotonic()
    run = Run(driver, args.build, args.keep)
    try:
        for number, (name, needs, function) in enumerate(CASES):
            if not re.search(args.only, name):
                continue
            result = run_case(run, number, needs, function, name)
            outcome = "passed" if result is None else "skipped" if isinstance(result, Skip) else "failed"
            counts[outcome] += 1
            if result is not None or args.verbose:
                print(f"{outcome}: {title}: {name}" + (f": {result}" if result is not None else ""), flush=True)
    finally:
        try:
            if counts["failed"]:
                subprocess.run(["tail", "-n", "30", *(os.path.join(run.directory, f)
                                                      for f in os.listdir(run.directory) if f.endswith(".log"))],
                               check=False)
            run.close()
        except Failure as e:
            counts["failed"] += 1
            print(f"failed: {title}: the end: {e}")
    print(f"{title}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped "
          f"in {time.monotonic() - began:.1f} s", flush=True)
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", choices=DRIVERS, default="hostpath")
    parser.add_argument("--backend")
    parser.add_argument("--access", choices=("mount", "block"))
    parser.add_argument("--only", default=".")
    parser.add_argument("--build", default=os.path.join(ROOT, os.environ.get("BUILD", "build")))
    parser.add_argument("--keep", action="store_true", help="keep the driver's directory")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    enter_namespaces(os.path.abspath(__file__), sys.argv[1:])
    total = {"passed": 0, "failed": 0, "skipped": 0}
    kind = DRIVERS[args.driver]
    for backend, accesses in kind.backends.items():
        for access in accesses:
            if args.backend in (None, backend) and args.access in (None, access):
                for outcome, count in run_suite(kind(backend, access), args).items():
                    total[outcome] += count
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
