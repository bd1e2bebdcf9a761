#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""berth-hostpath under SIGKILL at random moments, while callers create, fill, clone, snapshot, restore, grow and delete.

    tests/hostpath/crash.py [--backend plain|loop|fuse|block] [--rounds N] [--seed N]

Callers repeat what fails, as Kubernetes does. After each round: every volume that was answered for is there with all
it held, nothing that was deleted or half-made is, no mount and no loop device is left over. Prints "N passed,
N failed" last.
"""
import argparse
import os
import random
import subprocess
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "sanity"))

from csi import (ABORTED, MI, UNAVAILABLE, Connection, Failure, RpcError, capability, enter_namespaces,  # noqa: E402
                 expect, loop_devices)
from drivers import Hostpath  # noqa: E402
from sanity import Run  # noqa: E402

WORKERS = 3
FILES = 40


class Volume:
    def __init__(self, name, size, content=None, source=None):
        self.name, self.size, self.content, self.source = name, size, content, source
        self.id = None


class Worker(threading.Thread):
    """A caller with volumes and snapshots of its own, that repeats each step until it is answered."""

    def __init__(self, run, number, seed):
        super().__init__(daemon=True)
        self.run_, self.number = run, number
        self.random = random.Random(seed)
        self.connection = Connection(run.program("csi-call"), run.socket)
        self.base = os.path.join(run.directory, f"worker-{number}")
        self.staging, self.target = os.path.join(self.base, "staging"), os.path.join(self.base, "target")
        os.makedirs(self.staging)
        self.block = run.driver.access == "block"
        self.cap = capability(run.driver.access)
        self.volumes, self.snapshots = [], {}  # snapshots: id → (content, size)
        self.counter, self.steps, self.repeats = 0, 0, 0
        self.pause, self.idle = threading.Event(), threading.Event()
        self.problem = None

    def call(self, method, **request):
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.connection.call(method, **request)
            except RpcError as e:
                # the driver was killed, or a job of an abandoned call still runs
                if e.code not in (UNAVAILABLE, ABORTED, 1, 4) or time.monotonic() > deadline:
                    raise
                self.repeats += 1
                time.sleep(0.02)

    def name(self, prefix):
        self.counter += 1
        return f"{prefix}-{self.number}-{self.counter}"

    # ---- use of a volume
    def up(self, volume):
        common = {"volume_id": volume.id, "volume_capability": self.cap, "staging_target_path": self.staging}
        self.call("ControllerPublishVolume", volume_id=volume.id, node_id="node-1", volume_capability=self.cap)
        self.call("NodeStageVolume", **common)
        self.call("NodePublishVolume", target_path=self.target, **common)

    def down(self, volume):
        self.call("NodeUnpublishVolume", volume_id=volume.id, target_path=self.target)
        self.call("NodeUnstageVolume", volume_id=volume.id, staging_target_path=self.staging)
        self.call("ControllerUnpublishVolume", volume_id=volume.id, node_id="node-1")

    def write(self, volume, content):
        if self.block:
            with open(self.target, "r+b") as f:
                for i in range(FILES):
                    f.seek(i * 65536)
                    f.write(f"{content} {i}".ljust(4096).encode())
                os.fsync(f.fileno())
            return
        for i in range(FILES):
            directory = os.path.join(self.target, str(i % 4))
            os.makedirs(directory, exist_ok=True)
            with open(os.path.join(directory, str(i)), "w", encoding="ascii") as f:
                f.write(f"{content} {i}".ljust(4096))
        os.sync()

    def check(self, volume):
        """All that was written, and that the volume can be written to."""
        for i in range(FILES):
            if self.block:
                with open(self.target, "rb") as f:
                    f.seek(i * 65536)
                    text = f.read(4096).decode()
            else:
                with open(os.path.join(self.target, str(i % 4), str(i)), encoding="ascii") as f:
                    text = f.read()
            expect(text.rstrip() == f"{volume.content} {i}", f"volume {volume.name} ({volume.id}) from "
                   f"{volume.source}: part {i} is {text[:60]!r}, not {volume.content}")
        if not self.block:
            with open(os.path.join(self.target, "probe"), "w", encoding="ascii") as f:
                f.write("x")

    # ---- what a caller does
    def create(self, volume):
        request = {"name": volume.name, "volume_capabilities": [self.cap], "parameters": self.run_.driver.parameters,
                   "capacity_range": {"required_bytes": volume.size}}
        if volume.source:
            request["volume_content_source"] = volume.source
        volume.id = self.call("CreateVolume", **request)["volume"]["volume_id"]
        self.volumes.append(volume)

    def do_create(self):
        if len(self.volumes) > 6:
            return self.do_delete()
        volume = Volume(self.name("volume"), self.random.randint(16, 24) * MI)
        self.create(volume)
        self.up(volume)
        self.write(volume, volume.name)
        self.down(volume)
        volume.content = volume.name
        return None

    def do_clone(self):
        source = self.random.choice(self.volumes)
        if len(self.volumes) < 8:
            self.create(Volume(self.name("clone"), source.size, source.content, {"volume": {"volume_id": source.id}}))

    def do_clone_in_use(self):
        source = self.random.choice(self.volumes)
        if len(self.volumes) < 8:
            self.up(source)
            self.create(Volume(self.name("clone"), source.size, source.content, {"volume": {"volume_id": source.id}}))
            self.down(source)

    def do_snapshot(self):
        source = self.random.choice(self.volumes)
        if len(self.snapshots) < 4:
            reply = self.call("CreateSnapshot", name=self.name("snapshot"), source_volume_id=source.id)
            self.snapshots[reply["snapshot"]["snapshot_id"]] = (source.content, source.size)

    def do_restore(self):
        if self.snapshots and len(self.volumes) < 8:
            snapshot = self.random.choice(list(self.snapshots))
            content, size = self.snapshots[snapshot]
            self.create(Volume(self.name("restore"), size + self.random.choice((0, 8 * MI)), content,
                               {"snapshot": {"snapshot_id": snapshot}}))

    def do_expand(self):
        volume = self.random.choice(self.volumes)
        size = volume.size + MI
        reply = self.call("ControllerExpandVolume", volume_id=volume.id, capacity_range={"required_bytes": size})
        expect(reply["capacity_bytes"] == size, f"{reply}")
        volume.size = size

    def do_delete(self):
        if len(self.volumes) > 1:
            volume = self.volumes.pop(self.random.randrange(len(self.volumes)))
            self.call("DeleteVolume", volume_id=volume.id)

    def do_delete_snapshot(self):
        if self.snapshots:
            snapshot = self.random.choice(list(self.snapshots))
            self.call("DeleteSnapshot", snapshot_id=snapshot)
            del self.snapshots[snapshot]

    def step(self):
        if not self.volumes:
            self.do_create()
        else:
            self.random.choice((self.do_create, self.do_clone, self.do_clone_in_use, self.do_snapshot, self.do_restore,
                                self.do_expand, self.do_delete, self.do_delete_snapshot))()
        self.steps += 1

    def run(self):
        while self.problem is None:
            if self.pause.is_set():
                self.idle.set()
                time.sleep(0.01)
                continue
            self.idle.clear()
            try:
                self.step()
            except (Failure, RpcError, OSError) as e:
                traceback.print_exc()
                self.problem = e
        self.idle.set()

    def check_all(self):
        for volume in self.volumes:
            if volume.content is not None:
                self.up(volume)
                self.check(volume)
                self.down(volume)


def listed(run, method, key):
    return {e[key][key + "_id"] for e in run.connection.call(method)["entries"]}


def verify(run, workers):
    """Between rounds: nobody calls, so what is there has to be what the callers were told."""
    for worker in workers:
        if worker.problem:
            raise Failure(f"worker {worker.number}: {worker.problem}")
    volumes = {v.id: v for w in workers for v in w.volumes}
    snapshots = {s for w in workers for s in w.snapshots}
    expect(listed(run, "ListVolumes", "volume") == set(volumes), "the volumes are not those that were answered for")
    expect(listed(run, "ListSnapshots", "snapshot") == snapshots, "the snapshots are not those answered for")
    for entry in run.connection.call("ListVolumes")["entries"]:
        volume = entry["volume"]
        expect(volume["capacity_bytes"] == volumes[volume["volume_id"]].size, f"size of {volume}")
    state = os.path.join(run.directory, "state")
    deadline = time.monotonic() + 10
    while os.listdir(os.path.join(state, "trash")) and time.monotonic() < deadline:
        time.sleep(0.05)
    expect(not os.listdir(os.path.join(state, "trash")), "the trash is not emptied")
    expect(set(os.listdir(os.path.join(state, "volumes"))) == set(volumes), "directories of volumes")
    expect(set(os.listdir(os.path.join(state, "snapshots"))) == snapshots, "directories of snapshots")
    nothing_left(run)
    for worker in workers:
        worker.check_all()
    nothing_left(run)


def nothing_left(run):
    deadline = time.monotonic() + 5
    while loop_devices(run.directory) and time.monotonic() < deadline:
        time.sleep(0.02)  # the kernel detaches a moment after the last use
    expect(not loop_devices(run.directory), f"loop devices: {loop_devices(run.directory)}")
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        mounts = [line.split(" ")[4] for line in f if line.split(" ")[4].startswith(run.directory + "/")]
    expect(not mounts, f"mounts: {mounts}")


def kill_for_a_while(run, chance, seconds):
    kills, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.choice((0.01, 0.05, 0.2, 0.5)) * (0.5 + chance.random()))
        run.process.kill()
        run.process.wait()
        kills += 1
        run.process = run.driver.start(run)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:  # ready, so that calls get somewhere before the next kill
            try:
                run.connection.call("Probe")
                break
            except RpcError:
                time.sleep(0.01)
    return kills


def run_backend(backend, args):
    driver = Hostpath("fuse" if backend == "block" else backend, "block" if backend == "block" else "mount")
    run = Run(driver, args.build, args.keep)
    chance = random.Random(args.seed)
    workers = [Worker(run, i, chance.random()) for i in range(WORKERS)]
    passed = failed = kills = 0
    try:
        for worker in workers:
            worker.pause.set()
            worker.start()
        for number in range(args.rounds):
            for worker in workers:
                worker.idle.clear()
                worker.pause.clear()
            kills += kill_for_a_while(run, chance, args.seconds)
            for worker in workers:
                worker.pause.set()
            for worker in workers:
                expect(worker.idle.wait(90), f"worker {worker.number} hangs")
            try:
                verify(run, workers)
                passed += 1
            except (Failure, RpcError, OSError) as e:
                failed += 1
                print(f"failed: {backend}: round {number} (seed {args.seed}): {type(e).__name__}: {e}", flush=True)
                subprocess.run(["tail", "-n", "20", os.path.join(run.directory, "berth-hostpath.log")], check=False)
                break
        for worker in workers:
            for snapshot in list(worker.snapshots):
                worker.call("DeleteSnapshot", snapshot_id=snapshot)
            for volume in worker.volumes:
                worker.call("DeleteVolume", volume_id=volume.id)
    except (Failure, RpcError, OSError) as e:
        failed += 1
        print(f"failed: {backend}: {type(e).__name__}: {e}", flush=True)
    try:
        run.close()
    except Failure as e:
        failed += 1
        print(f"failed: {backend}: the end: {e}", flush=True)
    print(f"{backend}: {passed} rounds passed, {failed} failed: {kills} kills, {sum(w.steps for w in workers)} steps, "
          f"{sum(w.repeats for w in workers)} calls repeated", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=("plain", "loop", "fuse", "block"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--build", default=os.path.join(ROOT, os.environ.get("BUILD", "build")))
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    enter_namespaces(os.path.abspath(__file__), sys.argv[1:])
    passed = failed = 0
    for backend in ("plain", "loop", "fuse", "block"):
        if args.backend in (None, backend):
            p, f = run_backend(backend, args)
            passed, failed = passed + p, failed + f
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
