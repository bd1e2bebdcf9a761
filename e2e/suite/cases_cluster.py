# SPDX-License-Identifier: Apache-2.0
"""Claims and volumes over their lives, and what happens while our own pods come and go."""
import os
import subprocess
import time

from lab import SYSTEM, ApiError, Skip, expect, wait_for
from registry import case


def volume_is_gone(lab, name, timeout=60):
    wait_for(f"volume {name} to be deleted", lambda: not lab.api.get("pv", name), timeout)


def volume_phase(lab, name, phase, timeout=30):
    wait_for(f"volume {name} to be {phase}", lambda: lab.api.get("pv", name)["status"].get("phase") == phase, timeout)


@case("reclaim: Delete, Retain, and back", flavours="all")
def reclaim(lab):
    lab.claim()
    lab.run("write", "echo kept >/v/f")
    volume = lab.wait_bound()["metadata"]["name"]
    lab.api.patch("pv", volume, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    lab.delete_claim()
    volume_phase(lab, volume, "Released")
    time.sleep(1)
    expect(lab.api.get("pv", volume), "a retained volume was deleted")
    # taken over by hand, as an administrator would
    lab.api.patch("pv", volume, {"spec": {"claimRef": None}})
    volume_phase(lab, volume, "Available")
    lab.claim("heir", volumeName=volume)
    text = lab.run("read", "cat /v/f", claims={"/v": "heir"})
    expect(text.strip() == "kept", f"the heir saw {text!r}")
    lab.delete_claim("heir")
    volume_phase(lab, volume, "Released")
    lab.api.patch("pv", volume, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    volume_is_gone(lab, volume)


@case("claim in use is deleted after its pod", flavours="all")
def claim_in_use(lab):
    lab.claim()
    lab.start_writer()
    volume = lab.wait_bound()["metadata"]["name"]
    lab.delete_claim()
    lab.writer_moves()
    expect(lab.get_claim() and lab.api.get("pv", volume), "claim or volume went away below a running pod")
    lab.delete_pod("writer")
    wait_for("the claim to go", lambda: not lab.get_claim(), 30)
    volume_is_gone(lab, volume)


@case("recycle", flavours="nfs")
def recycle(lab):
    lab.claim()
    lab.run("write", "mkdir /v/d; echo secret >/v/d/f; touch /v/.hidden")
    volume = lab.wait_bound()["metadata"]["name"]
    lab.api.patch("pv", volume, {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}})
    lab.delete_claim()
    volume_phase(lab, volume, "Available", 60)
    lab.claim("next", volumeName=volume)
    text = lab.run("read", "ls -A /v", claims={"/v": "next"})
    expect(not text.strip(), f"the next claim found {text!r}")
    lab.api.patch("pv", volume, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})


@case("volume made by hand: bound by selector, recycled by a pod")
def static_volume(lab):
    name, directory = lab.ns, "/tmp/" + lab.ns
    lab.api.create("pv", {"apiVersion": "v1", "kind": "PersistentVolume",
                          "metadata": {"name": name, "labels": {"suite": name}},
                          "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                                   "persistentVolumeReclaimPolicy": "Recycle", "storageClassName": "by-hand",
                                   "hostPath": {"path": directory, "type": "DirectoryOrCreate"},
                                   "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{
                                       "key": "kubernetes.io/hostname", "operator": "In",
                                       "values": [lab.cluster.nodes[0]]}]}]}}}})
    try:
        lab.claim(storage_class="by-hand", selector={"matchLabels": {"suite": name}})
        bound = lab.wait_bound()
        expect(bound["metadata"]["name"] == name, f"bound to {bound['metadata']['name']}")
        lab.run("write", "echo secret >/v/f; echo x >/v/.hidden")
        lab.delete_claim()
        if not lab.cluster.options.recycler:
            lab.note = "bound; the recycler's image is not at hand"
            return
        volume_phase(lab, name, "Available", 60)
        text = lab.run("look", "ls -A /v", claims={}, mounts=[{"name": "h", "mountPath": "/v"}],
                       volumes=[{"name": "h", "hostPath": {"path": directory}}], nodeName=lab.cluster.nodes[0])
        expect(not text.strip(), f"after recycling there was {text!r}")
    finally:
        lab.api.delete("pv", name)


@case("StatefulSet grows, shrinks and grows", flavours="fuse nfs")
def stateful_set(lab):
    template = lab.pod_spec("[ -e /v/name ] || hostname >/v/name; echo \"$(hostname) has $(cat /v/name)\"; "
                            "exec sleep 10000", claims={})
    template["restartPolicy"] = "Always"
    template["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/v"}]
    lab.api.create("statefulset", {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
        "spec": {"replicas": 2, "serviceName": "s", "selector": {"matchLabels": {"app": "s"}},
                 "podManagementPolicy": "Parallel",
                 "template": {"metadata": {"labels": {"app": "s"}}, "spec": template},
                 "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                     "accessModes": ["ReadWriteOnce"], "storageClassName": lab.flavour.storage_class,
                     "resources": {"requests": {"storage": "4Mi"}}}}]}}, lab.ns)

    def scaled(count):
        def look():
            names = sorted(p["metadata"]["name"] for p in lab.api.list("pod", lab.ns) if p["status"]["phase"] == "Running"
                           and "deletionTimestamp" not in p["metadata"])
            return names == [f"s-{i}" for i in range(count)] and len(lab.api.list("pod", lab.ns)) == count
        wait_for(f"{count} pods", look, 90, 0.3)

    def scale(count):
        lab.api.patch("statefulset", "s", {"spec": {"replicas": count}}, lab.ns)
        scaled(count)
    scaled(2)
    scale(3)
    scale(0)
    expect(len(lab.api.list("pvc", lab.ns)) == 3, "scaling down took claims away")
    scale(3)
    for i in range(3):
        wait_for("the log", lambda n=i: lab.log(f"s-{n}"), 10)
        expect(lab.log(f"s-{i}").strip() == f"s-{i} has s-{i}", f"pod s-{i} saw {lab.log(f's-{i}')!r}")
    lab.api.delete("statefulset", "s", lab.ns)


@case("drained node: the pod comes back to its data", flavours="fuse nfs", alone=True)
def drain(lab):
    lab.claim()
    template = lab.pod_spec("cat /v/f 2>/dev/null; echo was here >/v/f; exec sleep 10000")
    template["restartPolicy"] = "Always"
    lab.api.create("deployment", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}}, "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": template}}}, lab.ns)

    def pods(phase):
        return [p for p in lab.api.list("pod", lab.ns)
                if p["status"].get("phase") == phase and "deletionTimestamp" not in p["metadata"]]
    wait_for("the pod to run", lambda: pods("Running"), 60)
    first = pods("Running")[0]
    node = first["spec"]["nodeName"]
    lab.cluster.kubectl("drain", node, "--pod-selector=app=d", "--ignore-daemonsets", "--timeout=60s")
    try:
        moved = lab.flavour.can("across-nodes") and len(lab.cluster.nodes) > 1
        if not moved:
            wait_for("the pod to wait for its node", lambda: pods("Pending"), 30)
            lab.note = "waited for its node"
    finally:
        lab.cluster.kubectl("uncordon", node)
    wait_for("the pod to run again", lambda: pods("Running"), 90)
    second = pods("Running")[0]
    wait_for("the log", lambda: lab.log(second["metadata"]["name"]), 20)
    expect(lab.log(second["metadata"]["name"]).strip() == "was here", "the data is gone")
    lab.api.delete("deployment", "d", lab.ns)


def writers_on_all(lab):
    """A writer on a volume of each flavour."""
    flavours = [f for f in lab.cluster.flavours() if lab.cluster.outlives_its_driver(f)]
    for f in flavours:
        lab.claim(f.name, storage_class=f.storage_class)
    for f in flavours:
        lab.start_writer("on-" + f.name, f.name)
    return ["on-" + f.name for f in flavours]


def finish_writers(lab, writers):
    total = sum(lab.stop_writer(w, w[3:]) for w in writers)
    lab.note = f"{total} writes by {len(writers)} pods, no error"


def replace_pods(lab, *names):
    """Kills our pods as a crash would, with no time to say goodbye, and waits until their successors are ready."""
    for name in names:
        old = lab.cluster.system_pods(name)
        expect(old, f"no pods of {name}")
        for pod in old:
            lab.api.delete_now("pod", pod["metadata"]["name"], SYSTEM)
        gone = {p["metadata"]["uid"] for p in old}
        wait_for(f"new pods of {name}", lambda n=name, g=gone: {
            p["metadata"]["uid"] for p in lab.cluster.system_pods(n)}.isdisjoint(g), 60)
    lab.cluster.wait_until_ready()


@case("driver and provisioner killed under load", alone=True)
def kill_driver(lab):
    writers = writers_on_all(lab)
    for daemon in ("berth-hostpath", "berth-nfs-node"):
        if lab.cluster.system_pods(daemon):
            replace_pods(lab, daemon)
    # what the new one did not mount itself, it unmounts
    finish_writers(lab, writers)


@case("fuse: the mounts' keeper is replaced under load", flavours="fuse", alone=True)
def replace_holder(lab):
    if lab.cluster.options.on_node and not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        raise Skip("with cgroup v1 a pod's processes end with it; see docs/deploy.md")
    lab.claim()
    lab.start_writer()
    replace_pods(lab, "berth-holder")
    lab.writer_moves()
    lab.note = f"{lab.stop_writer()} writes, no error"


@case("rolling upgrade under load", alone=True)
def rolling_upgrade(lab):
    writers = writers_on_all(lab)
    for kind in ("deployment", "daemonset"):
        for o in lab.api.list(kind, SYSTEM):
            if o["metadata"]["name"] != "berth-holder":
                lab.cluster.restart(kind, o["metadata"]["name"])
    # claims made meanwhile wait, but none is lost
    for f in lab.cluster.flavours():
        lab.claim("during-" + f.name, storage_class=f.storage_class)
        lab.start("during-" + f.name, "echo x >/v/f", claims={"/v": "during-" + f.name})
    lab.cluster.wait_until_ready(120)
    for f in lab.cluster.flavours():
        lab.wait_phase("during-" + f.name, "Succeeded", 120)
    finish_writers(lab, writers)


@case("working controller killed: the other takes over", alone=True)
def kill_controller(lab):
    flavour = lab.cluster.flavours()[0]
    lease = lab.api.get("lease", "berth-controller", SYSTEM)
    holder = lease["spec"]["holderIdentity"]
    leader = [p for p in lab.cluster.system_pods("berth-controller") if p["metadata"]["name"] in holder]
    expect(len(leader) == 1, f"the lease's holder {holder} is none of our pods")
    begin = time.monotonic()
    lab.api.delete_now("pod", leader[0]["metadata"]["name"], SYSTEM)
    lab.claim(storage_class=flavour.storage_class)
    lab.run("user", "echo x >/v/f", timeout=60)
    lab.note = f"claim used {time.monotonic() - begin:.1f} s after the kill"
    new = lab.api.get("lease", "berth-controller", SYSTEM)["spec"]["holderIdentity"]
    expect(new != holder, "the lease did not change hands")
    lab.cluster.wait_until_ready()


@case("everything killed while claims come", alone=True)
def kill_everything(lab):
    flavours = lab.cluster.flavours()
    count = 4
    for i in range(count):
        for f in flavours:
            name = f"{f.name}-{i}"
            lab.claim(name, size="1Mi", storage_class=f.storage_class)
            lab.start(name, "echo x >/v/f", claims={"/v": name})
        for pod in lab.api.list("pod", SYSTEM):
            if pod["metadata"]["labels"].get("app.kubernetes.io/name") != "berth-holder":
                lab.api.delete_now("pod", pod["metadata"]["name"], SYSTEM)
    for i in range(count):
        for f in flavours:
            lab.wait_phase(f"{f.name}-{i}", "Succeeded", 180)
    volumes = [lab.wait_bound(f"{f.name}-{i}")["metadata"]["name"] for i in range(count) for f in flavours]
    mine = [v for v in lab.api.list("pv") if v["spec"].get("claimRef", {}).get("namespace") == lab.ns]
    expect(len(mine) == len(set(volumes)), f"{len(mine)} volumes for {len(volumes)} claims")
    lab.cluster.wait_until_ready()


@case("kubelet starts anew", alone=True)
def kubelet_restart(lab):
    if not lab.cluster.options.restart_kubelet:
        raise Skip("needs to run on the node")
    writers = writers_on_all(lab)
    subprocess.run(lab.cluster.options.restart_kubelet, shell=True, check=True, timeout=60)
    time.sleep(2)
    wait_for("the node to be ready", lambda: all(
        c["status"] == "True" for n in lab.api.list("node") for c in n["status"]["conditions"] if c["type"] == "Ready"), 90)
    lab.cluster.wait_until_ready()
    finish_writers(lab, writers)
    for w in writers:
        try:
            lab.api.delete("pvc", w[3:], lab.ns)
        except ApiError:
            pass
