#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Shows the main job, step by step with times: a claim becomes a bound, mounted, size-enforced volume, and goes again."""
import contextlib
import errno
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
from harness import BUILD, ApiError, Stack, Failure, wait_for  # noqa: E402  pylint: disable=wrong-import-position

CLASS, CLAIM, NODE, DRIVER = "berth-hostpath", "demo-data", "berth-demo", "hostpath.csi.berth"
COLOR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOR else text


def title(text):
    print("\n" + paint("1;36", text), flush=True)


class Timeline:
    """Prints what happens, as it happens, with the milliseconds since the start."""

    def __init__(self):
        self.start = time.monotonic()
        self.lock = threading.Lock()
        self.seen = set()

    def reset(self):
        with self.lock:
            self.start = time.monotonic()

    def say(self, who, what, once=True):
        with self.lock:
            if once and (who, what) in self.seen:
                return
            self.seen.add((who, what))
            elapsed = (time.monotonic() - self.start) * 1000
            print(f"  {paint('2', f'{elapsed:8.0f} ms')}  {paint('1;33', f'{who:<12}')} {what}", flush=True)


def watch(stack, timeline, kind, describe, stop):
    """Feeds the timeline from a watch until `stop` is set."""
    while not stop.is_set():
        connection = stack.api.connect()
        try:
            connection.request("GET", stack.api.path(kind) + "?watch=1&timeoutSeconds=60", headers=stack.api.headers)
            response = connection.getresponse()
            while not stop.is_set():
                line = response.readline()
                if not line:
                    break
                event = json.loads(line)
                driver_steps(stack, timeline)  # what came of it is not shown before it
                describe(timeline, event["type"], event["object"])
        except (OSError, http.client.HTTPException, ValueError):
            stop.wait(0.1)
        finally:
            connection.close()


def describe_claim(timeline, kind, claim):
    if claim.get("metadata", {}).get("name") != CLAIM:
        return
    annotations = claim["metadata"].get("annotations", {})
    timeline.say("you", "created claim demo-data: 32Mi, class berth-hostpath")
    if "volume.kubernetes.io/storage-provisioner" in annotations:
        timeline.say("controller", "annotated the claim for its provisioner, hostpath.csi.berth")
    if claim["spec"].get("volumeName"):
        timeline.say("controller", "bound the claim to " + claim["spec"]["volumeName"])
    if claim.get("status", {}).get("phase") == "Bound":
        timeline.say("controller", "claim status: " + paint("1;32", "Bound"))
    if kind == "DELETED":
        timeline.say("you", "deleted the claim")


def describe_volume(timeline, kind, volume):
    if volume.get("spec", {}).get("claimRef", {}).get("name") != CLAIM:
        return
    name, phase = volume["metadata"]["name"], volume.get("status", {}).get("phase")
    timeline.say("provisioner", f"wrote volume {name}")
    if phase in ("Bound", "Released"):
        timeline.say("controller", "volume status: " + phase)
    if kind == "DELETED":
        timeline.say("provisioner", "removed the volume object")


def driver_steps(stack, timeline):
    wanted = {"CreateVolume": "made the volume's directory (CreateVolume)",
              "NodePublishVolume": "mounted it (NodePublishVolume)",
              "NodeUnpublishVolume": "unmounted it (NodeUnpublishVolume)",
              "DeleteVolume": "removed the data (DeleteVolume)"}
    text = stack.processes["driver"].log_text()
    for method, what in wanted.items():
        if "/" + method in text:
            timeline.say("driver", what)


def describe_driver(stack, timeline, stop):
    while not stop.is_set():
        driver_steps(stack, timeline)
        stop.wait(0.01)


def show_table(stack, kind):
    """The server's own table of these objects, as kubectl get prints it."""
    headers = {**stack.api.headers, "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    connection = stack.api.connect()
    connection.request("GET", stack.api.path(kind), headers=headers)
    table = json.loads(connection.getresponse().read())
    connection.close()
    columns = [i for i, c in enumerate(table["columnDefinitions"]) if c.get("priority", 0) == 0]
    rows = [[table["columnDefinitions"][i]["name"].upper() for i in columns]]
    rows += [[str(row["cells"][i]) if row["cells"][i] is not None else "" for i in columns] for row in table["rows"]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    print(f"  {paint('2', '$ kubectl get ' + kind)}")
    for row in rows:
        print("  " + "   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def csi_error(stack, method, request):
    """Asks the driver for it; what it says against it, or nothing."""
    done = subprocess.run([os.path.join(BUILD, "csi-call"), "--endpoint=unix://" + stack.socket, method,
                           json.dumps(request)], capture_output=True, text=True, check=False)
    return f"{method}: {done.stderr.strip()}" if done.returncode else ""


def csi(stack, method, request):
    error = csi_error(stack, method, request)
    if error:
        raise Failure(error)


def use_volume(stack, timeline, volume):
    """What kubelet does with the volume, then what a pod does with it."""
    source = volume["spec"]["csi"]
    capability = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
    target = os.path.join(stack.directory, "pod", "data")
    staging = os.path.join(stack.directory, "staging")
    os.makedirs(os.path.dirname(target))
    os.makedirs(staging)
    request = {"volume_id": source["volumeHandle"], "volume_capability": capability,
               "staging_target_path": staging, "volume_context": source.get("volumeAttributes", {})}
    try:
        csi(stack, "NodeStageVolume", request)
        csi(stack, "NodePublishVolume", {**request, "target_path": target})
        with open(os.path.join(target, "hello"), "w", encoding="ascii") as f:
            f.write("written through the volume\n")
        with open(os.path.join(target, "hello"), encoding="ascii") as f:
            timeline.say("pod", "wrote a file and read it back: " + f.read().strip())
        usage = os.statvfs(target)
        timeline.say("pod", f"df says {usage.f_blocks * usage.f_frsize >> 20} MiB, "
                            f"{usage.f_bavail * usage.f_frsize >> 20} MiB free")
        written = 0
        try:
            with open(os.path.join(target, "big"), "wb", buffering=0) as f:
                while written < 64 << 20:
                    written += f.write(b"x" * (1 << 20))
            raise Failure("a 32 MiB volume took 64 MiB")
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
            timeline.say("pod", f"filled it: {paint('1', 'No space left on device')} after {written >> 20} MiB, "
                                "the host's disk is safe")
        os.unlink(os.path.join(target, "big"))
    finally:
        unmount(stack, {"volume_id": source["volumeHandle"]}, target, staging)


def unmount(stack, volume, target, staging):
    """Not to be interrupted. A mount that was may still be under way in the driver, which says so until it is done."""
    interrupted = []
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
    for method, path in (("NodeUnpublishVolume", {"target_path": target}),
                         ("NodeUnstageVolume", {"staging_target_path": staging})):
        wait_for(f"the driver's {method}", lambda m=method, p=path: not csi_error(stack, m, {**volume, **p}), 20)
    signal.signal(signal.SIGINT, before)
    if interrupted:
        raise KeyboardInterrupt


def look_for_others(stack):
    """On somebody's cluster: what is there stays as it is."""
    for kind, name in (("sc", CLASS), ("csidriver", DRIVER), ("node", NODE), ("pvc", CLAIM)):
        if stack.api.get(kind, name):
            raise Failure(f"the cluster has a {kind} {name} already, which the demo would make: it needs one without")


def leave_nothing(stack):
    """The programs still run: the volume of a claim that an interrupted demo leaves goes with it."""
    if stack.api.get("pvc", CLAIM):
        with contextlib.suppress(Failure):  # a volume that is being made would come after we have looked for it
            wait_for("the claim to be bound", lambda: stack.phase(CLAIM) == "Bound", 10)
    stack.api.delete("pvc", CLAIM)
    wait_for("the volumes to be gone", lambda: not volumes(stack) and not stack.volume_directories(), 20)
    for kind, name in (("sc", CLASS), ("csinode", NODE), ("node", NODE)):
        stack.api.delete(kind, name)


def volumes(stack):
    return [v for v in stack.api.list("pv") if v["spec"].get("csi", {}).get("driver") == DRIVER]


def run(stack):
    title("1. An API server, a CSI driver, and the two programs of berth")
    began = time.monotonic()
    stack.start_holder()
    stack.start_all()
    for key, program in (("driver", "berth-hostpath"), ("provisioner", "berth-provisioner"),
                         ("controller", "berth-controller")):
        print(f"  {program:<18} pid {stack.processes[key].pid}")
    stack.create_class(CLASS, parameters={})
    print(f"  ready after {time.monotonic() - began:.1f} s; StorageClass {CLASS} created")

    timeline, stop = Timeline(), threading.Event()
    for kind, describe in (("pvc", describe_claim), ("pv", describe_volume)):
        threading.Thread(target=watch, args=(stack, timeline, kind, describe, stop), daemon=True).start()
    threading.Thread(target=describe_driver, args=(stack, timeline, stop), daemon=True).start()
    time.sleep(0.3)  # only so that the watches show the first step too

    title("2. A claim becomes a volume")
    timeline.reset()
    stack.create_claim(CLAIM, "32Mi", CLASS)
    wait_for("the claim to be bound", lambda: stack.phase(CLAIM) == "Bound")
    volume = stack.api.get("pv", stack.api.get("pvc", CLAIM)["spec"]["volumeName"])
    wait_for("the volume to be bound", lambda: stack.api.get("pv", volume["metadata"]["name"])["status"]["phase"] == "Bound")
    time.sleep(0.1)
    print()
    show_table(stack, "pvc")
    show_table(stack, "pv")

    title("3. A pod uses it (as kubelet would mount it)")
    use_volume(stack, timeline, volume)
    time.sleep(0.1)

    title("4. The claim is deleted, and so is everything else")
    timeline.reset()
    stack.api.delete("pvc", CLAIM)
    wait_for("the volume to be gone", lambda: not stack.api.get("pv", volume["metadata"]["name"]))
    time.sleep(0.2)
    stop.set()
    print(f"  volumes left: {len(volumes(stack))}, directories left: {len(stack.volume_directories())}")

    title("5. What it took")
    for key, program in (("controller", "berth-controller"), ("provisioner", "berth-provisioner"),
                         ("driver", "berth-hostpath")):
        rss, anon = stack.processes[key].memory()
        print(f"  {program:<18} {rss:5.1f} MiB resident, {anon:4.1f} MiB of it its own")


def interrupt(*_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what follows is the cleaning up
    raise KeyboardInterrupt


def show(stack):
    """The demo on that stack; what it made is gone afterwards, also when it fails or is interrupted."""
    stack.node = NODE
    if stack.server.sort == "kubeconfig":
        look_for_others(stack)
    try:
        run(stack)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if stack.server.sort == "kubeconfig":
            leave_nothing(stack)


def main():
    sort = sys.argv[1] if len(sys.argv) > 1 else "devapi"
    if sort == "cluster":
        sort = "kubeconfig"
    signal.signal(signal.SIGINT, interrupt)
    stack, status, logs = None, 1, False
    try:
        stack = Stack(sort)
        show(stack)
        status = 0
    except KeyboardInterrupt:
        print("\nstopped; cleaning up")
        status = 130
    except (Failure, ApiError, OSError) as e:
        print(paint("1;31", f"failed: {e}"))
        logs = True
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if stack:
            stack.close(failed=logs)
    if not status:
        print("\n" + paint("1;32", "done") + ": everything is cleaned up")
    return status


if __name__ == "__main__":
    sys.exit(main())
