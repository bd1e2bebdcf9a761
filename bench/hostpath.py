#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""berth-hostpath in figures: calls per second and memory with many volumes, and how fast copies are.

    bench/hostpath.py [--backend plain|loop|fuse|block] [--volumes N]

Each line "figure: …" is one measurement. The calls are made one after the other, by one caller.
"""
import argparse
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "sanity"))

from csi import GI, MI, capability, enter_namespaces  # noqa: E402
from drivers import Hostpath  # noqa: E402
from sanity import Run  # noqa: E402


def memory(pid):
    """MiB of (VmRSS, RssAnon)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        values = dict(line.split(":", 1) for line in f)
    return tuple(int(values[key].split()[0]) / 1024 for key in ("VmRSS", "RssAnon"))


def others_memory(name):
    """MiB of RssAnon of all processes of that name together."""
    total = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read().strip() == name:
                    total += memory(pid)[1]
        except OSError:
            pass
    return total


def timed(title, count, function, items):
    began = time.monotonic()
    results = [function(item) for item in items]
    seconds = time.monotonic() - began
    print(f"figure: {title}: {count / seconds:.0f}/s ({seconds / count * 1000:.1f} ms each)", flush=True)
    return results


def many_volumes(run, backend, count):
    call, cap = run.connection.call, capability(run.driver.access)

    def create(i):
        return call("CreateVolume", name=f"v{i}", volume_capabilities=[cap], parameters=run.driver.parameters,
                    capacity_range={"required_bytes": 64 * MI})["volume"]["volume_id"]

    def paths(vid):
        return os.path.join(run.directory, "s-" + vid), os.path.join(run.directory, "t-" + vid)

    def publish(vid):
        staging, target = paths(vid)
        os.mkdir(staging)
        common = {"volume_id": vid, "staging_target_path": staging, "volume_capability": cap}
        call("NodeStageVolume", **common)
        call("NodePublishVolume", target_path=target, **common)

    def unpublish(vid):
        staging, target = paths(vid)
        call("NodeUnpublishVolume", volume_id=vid, target_path=target)
        call("NodeUnstageVolume", volume_id=vid, staging_target_path=staging)

    print(f"figure: {backend}: driver at rest: %.1f MiB resident, %.2f MiB its own" % memory(run.process.pid))
    ids = timed(f"{backend}: CreateVolume", count, create, range(count))
    timed(f"{backend}: stage and publish", count, publish, ids)
    time.sleep(0.5)
    print(f"figure: {backend}: driver with {count} volumes published: %.1f MiB resident, %.2f MiB its own" %
          memory(run.process.pid))
    if backend == "fuse":
        print(f"figure: fuse: all {count} file systems: {others_memory('berth-fuse'):.1f} MiB their own")
    timed(f"{backend}: NodeGetVolumeStats", count,
          lambda vid: call("NodeGetVolumeStats", volume_id=vid, volume_path=paths(vid)[1]), ids)
    timed(f"{backend}: ListVolumes of {count}", 10, lambda _i: call("ListVolumes"), range(10))
    timed(f"{backend}: unpublish and unstage", count, unpublish, ids)
    timed(f"{backend}: DeleteVolume", count, lambda vid: call("DeleteVolume", volume_id=vid), ids)


def copies(run, backend, size=GI // 2):
    call, cap = run.connection.call, capability(run.driver.access)
    request = {"volume_capabilities": [cap], "parameters": run.driver.parameters,
               "capacity_range": {"required_bytes": size + 64 * MI}}
    vid = call("CreateVolume", name="source", **request)["volume"]["volume_id"]
    staging, target = os.path.join(run.directory, "staging"), os.path.join(run.directory, "target")
    os.mkdir(staging)
    common = {"volume_id": vid, "staging_target_path": staging, "volume_capability": cap}
    call("NodeStageVolume", **common)
    call("NodePublishVolume", target_path=target, **common)
    path, mode = (target, "r+b") if run.driver.access == "block" else (os.path.join(target, "data"), "wb")
    with open(path, mode) as f:
        for _i in range(size // MI):
            f.write(os.urandom(4096) * 256)
        f.flush()
        os.fsync(f.fileno())
    call("NodeUnpublishVolume", volume_id=vid, target_path=target)
    call("NodeUnstageVolume", volume_id=vid, staging_target_path=staging)
    began = time.monotonic()
    call("CreateVolume", name="clone", volume_content_source={"volume": {"volume_id": vid}}, **request)
    print(f"figure: {backend}: clone of {size // MI} MiB: {size / MI / (time.monotonic() - began):.0f} MiB/s, durable")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=("plain", "loop", "fuse", "block"))
    parser.add_argument("--volumes", type=int, default=100)
    parser.add_argument("--build", default=os.path.join(ROOT, os.environ.get("BUILD", "build")))
    args = parser.parse_args()
    enter_namespaces(os.path.abspath(__file__), sys.argv[1:])
    args.keep = False

    class Quiet(Hostpath):
        def start(self, run):
            original = run.spawn
            run.spawn = lambda name, *more: original(name, *more, "-v=0", "--enable-attach=false")
            return super().start(run)

    for backend in ("plain", "loop", "fuse", "block"):
        if args.backend in (None, backend):
            run = Run(Quiet("fuse" if backend == "block" else backend, "block" if backend == "block" else "mount"),
                      args.build, args.keep)
            try:
                many_volumes(run, backend, args.volumes)
                copies(run, backend)
            finally:
                run.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
