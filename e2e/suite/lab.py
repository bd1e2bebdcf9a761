# SPDX-License-Identifier: Apache-2.0
"""What the cases of the suite work with: an API client, kubectl for what the API makes hard, and pods that say what they
saw.

A case gets a Lab of its own: a namespace that goes away with it, and a flavour, which is one of the storage classes that
the manifests bring.
"""
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# pylint: disable=wrong-import-position
import harness
from harness import ApiError, Failure, expect, wait_for

SYSTEM = "berth-system"


class Skip(Exception):
    """A case that cannot run here, and why."""


class Api(harness.Api):
    PATHS = {
        **harness.Api.PATHS,
        "deployment": "/apis/apps/v1/namespaces/{ns}/deployments",
        "daemonset": "/apis/apps/v1/namespaces/{ns}/daemonsets",
        "statefulset": "/apis/apps/v1/namespaces/{ns}/statefulsets",
        "clusterrole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "clusterrolebinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    }

    def patch(self, kind, name, body, ns="default", subresource=""):
        path = self.path(kind, name, ns) + (subresource and "/" + subresource)
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def delete_now(self, kind, name, ns="default", grace=0):
        with contextlib.suppress(ApiError):
            self.request("DELETE", self.path(kind, name, ns), {"gracePeriodSeconds": grace})


class Flavour:
    """A storage class and what its volumes can do."""

    def __init__(self, name, storage_class, driver, *features):
        self.name, self.storage_class, self.driver, self.features = name, storage_class, driver, features

    def can(self, feature):
        return feature in self.features


FLAVOURS = [
    Flavour("fuse", "berth-hostpath", "hostpath.csi.berth", "enforced", "topology", "inline"),
    Flavour("loop", "berth-hostpath-loop", "hostpath.csi.berth", "enforced", "topology", "block"),
    Flavour("plain", "berth-hostpath-plain", "hostpath.csi.berth", "topology"),
    Flavour("nfs", "berth-nfs", "nfs.csi.berth", "across-nodes"),
]


class Cluster:
    """What all cases share."""

    def __init__(self, options):
        self.options = options
        self.api = Api(options.kubeconfig)
        self.version = self.api.request("GET", "/version")
        self.minor = int(re.match(r"\d+", self.version["minor"]).group())
        self.nodes = []

    def kubectl(self, *args, data=None, timeout=120):
        done = subprocess.run([self.options.kubectl, "--kubeconfig", self.options.kubeconfig, *args], input=data,
                              capture_output=True, text=True, check=False, timeout=timeout)
        expect(done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def look_around(self):
        self.nodes = [n["metadata"]["name"] for n in self.api.list("node") if not n["spec"].get("unschedulable")
                      and not any(t["effect"] == "NoSchedule" for t in n["spec"].get("taints", []))]
        self.classes = {c["metadata"]["name"]: c for c in self.api.list("sc")}
        self.groups = {g["name"] for g in self.api.request("GET", "/apis")["groups"]}

    def flavours(self):
        return [f for f in FLAVOURS if f.storage_class in self.classes and
                (not self.options.flavours or f.name in self.options.flavours)]

    def may_resize(self):
        """Whether the kernel lets privileged pods resize a mounted ext4; only looked at on the node itself."""
        if not self.options.on_node:
            return True
        with open("/proc/self/status", encoding="utf-8") as f:
            effective = next(int(line.split()[1], 16) for line in f if line.startswith("CapEff:"))
        return effective & 1 << 24 != 0  # CAP_SYS_RESOURCE

    def outlives_its_driver(self, flavour):
        """Whether a mount stays when the driver's pod is killed. With the kernel's NFS client it does."""
        if flavour.name != "nfs" or not self.options.on_node:
            return True
        with open("/proc/filesystems", encoding="utf-8") as f:
            return any(line.split()[-1] == "nfs4" for line in f)

    def ready(self):
        """What in our namespace is not as it should be; empty when all is."""
        waiting = []
        for kind, want, have in (("deployment", "replicas", ("updatedReplicas", "availableReplicas")),
                                 ("daemonset", "desiredNumberScheduled", ("updatedNumberScheduled", "numberReady"))):
            for o in self.api.list(kind, SYSTEM):
                status = o.get("status", {})
                wanted = o["spec"]["replicas"] if kind == "deployment" else status.get(want, 0)
                on_delete = o["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
                counts = [status.get(h, 0) for h in have[1 if on_delete else 0:]]
                total = status.get("replicas", wanted)
                if (status.get("observedGeneration") != o["metadata"]["generation"] or not wanted or
                        any(c != wanted for c in counts) or total != wanted):
                    waiting.append(f"{kind} {o['metadata']['name']} ({counts} of {wanted})")
        for f in self.flavours():
            with_driver = [n for n in self.api.list("csinode")
                           if any(d["name"] == f.driver for d in n["spec"].get("drivers") or [])]
            if len(with_driver) < len(self.nodes):
                waiting.append(f"driver {f.driver} is registered on {len(with_driver)} of {len(self.nodes)} nodes")
        return waiting

    def wait_until_ready(self, timeout=90):
        what = []

        def look():
            what[:] = self.ready()
            return not what
        try:
            wait_for("", look, timeout, 0.3)
        except Failure:
            raise Failure(f"not ready after {timeout} s: {'; '.join(what)}") from None

    def system_pods(self, name):
        return [p for p in self.api.list("pod", SYSTEM)
                if p["metadata"].get("labels", {}).get("app.kubernetes.io/name") == name
                and "deletionTimestamp" not in p["metadata"]]

    def restart(self, kind, name):
        """What `kubectl rollout restart` does."""
        self.api.patch(kind, name, {"spec": {"template": {"metadata": {"annotations": {
            "kubectl.kubernetes.io/restartedAt": str(time.time())}}}}}, SYSTEM)


class Lab:
    counter = 0
    lock = threading.Lock()

    def __init__(self, cluster, name, flavour=None):
        self.cluster, self.api, self.flavour = cluster, cluster.api, flavour
        with Lab.lock:
            Lab.counter += 1
            self.ns = f"berth-suite-{Lab.counter}-" + re.sub(r"[^a-z0-9]+", "-", name)[:30].strip("-")
        self.volumes = set()
        self.note = ""

    def __enter__(self):
        self.api.create("namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.ns, "labels": {
            "pod-security.kubernetes.io/enforce": "privileged", "berth.suite": "case"}}})
        wait_for("the namespace's service account", lambda: self.api.get("serviceaccount", "default", self.ns), 30)
        return self

    def __exit__(self, kind, value, trace):
        if kind and issubclass(kind, Exception) and not issubclass(kind, Skip):
            value.evidence = self.evidence()
        if self.cluster.options.keep and kind:
            return
        for pod in self.api.list("pod", self.ns):
            self.api.delete_now("pod", pod["metadata"]["name"], self.ns)
        self.api.delete("namespace", self.ns)

    def evidence(self):
        """What one would look at first."""
        lines = []
        for event in self.api.list("event", self.ns):
            if event.get("type") == "Warning":
                lines.append(f"{event['involvedObject']['kind']} {event['involvedObject'].get('name')}: "
                             f"{event['reason']}: {event['message'][:300]}")
        return lines[-8:]

    # ---- objects

    def claim(self, name="data", size="16Mi", storage_class=None, modes=("ReadWriteOnce",), **fields):
        spec = {"accessModes": list(modes), "resources": {"requests": {"storage": size}},
                "storageClassName": storage_class or self.flavour.storage_class, **fields}
        return self.api.create("pvc", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                                       "spec": spec}, self.ns)

    def get_claim(self, name="data"):
        return self.api.get("pvc", name, self.ns)

    def wait_bound(self, name="data", timeout=40):
        wait_for(f"claim {name} to be bound",
                 lambda: self.get_claim(name).get("status", {}).get("phase") == "Bound", timeout)
        volume = self.get_claim(name)["spec"]["volumeName"]
        self.volumes.add(volume)
        return self.api.get("pv", volume)

    def pod_spec(self, script, claims=None, mounts=(), volumes=(), devices=(), **fields):
        """A pod that runs `script`; `claims`: mount path → claim."""
        claims = {"/v": "data"} if claims is None else claims
        names = {path: "c" + str(i) for i, path in enumerate(claims)}
        return {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
            "containers": [{
                "name": "c", "image": self.cluster.options.image, "command": ["sh", "-c", script],
                "volumeMounts": [{"name": n, "mountPath": p} for p, n in names.items() if not p.startswith("/dev/")] +
                                list(mounts),
                "volumeDevices": [{"name": n, "devicePath": p} for p, n in names.items() if p.startswith("/dev/")] +
                                 list(devices)}],
            "volumes": [{"name": names[p], "persistentVolumeClaim": {"claimName": c}} for p, c in claims.items()] +
                       list(volumes),
            **fields}

    def start(self, name, script, labels=None, **fields):
        self.api.create("pod", {"apiVersion": "v1", "kind": "Pod",
                                "metadata": {"name": name, "labels": labels or {}},
                                "spec": self.pod_spec(script, **fields)}, self.ns)

    def phase(self, name):
        pod = self.api.get("pod", name, self.ns)
        return pod and pod["status"].get("phase")

    def log(self, name):
        with contextlib.suppress(ApiError):
            return self.api.request("GET", self.api.path("pod", name, self.ns) + "/log")
        return ""

    def wait_phase(self, name, phase, timeout=60):
        seen = []

        def look():
            seen[:] = [self.phase(name)]
            return seen[0] in (phase, "Failed", "Succeeded")
        try:
            wait_for("", look, timeout, 0.15)
        except Failure:
            raise Failure(f"pod {name} is {seen[0]} after {timeout} s, wanted {phase}") from None
        expect(seen[0] == phase, f"pod {name} is {seen[0]}, wanted {phase}; it said: {self.log(name)[-400:]!r}")

    def run(self, name, script, timeout=60, delete=True, **fields):
        """Runs a pod to its end and returns what it printed."""
        self.start(name, script, **fields)
        self.wait_phase(name, "Succeeded", timeout)
        text = self.log(name)
        if delete:
            self.delete_pod(name)
        return text

    def delete_pod(self, name, timeout=120):
        """Some kubelets look at a pod only once a minute when they have missed an event of it."""
        self.api.delete_now("pod", name, self.ns, 1)
        wait_for(f"pod {name} to be gone", lambda: not self.api.get("pod", name, self.ns), timeout)

    def delete_claim(self, name="data"):
        self.api.delete("pvc", name, self.ns)

    # ---- a pod that writes all the time

    WRITER = """
n=0; : >/v/log; exec 3>>/v/log
while :; do
    n=$((n + 1))
    echo $n >&3 || { echo "write $n to the open file failed"; exit 1; }
    echo $n >/v/new && sync /v/new && mv /v/new /v/last || { echo "replacing a file failed at $n"; exit 1; }
    [ "$(cat /v/last)" = $n ] || { echo "read something else than $n"; exit 1; }
    [ $((n % 10)) = 0 ] && echo "alive $n"
    usleep 30000
done"""

    def start_writer(self, name="writer", claim="data"):
        self.start(name, self.WRITER, claims={"/v": claim})
        self.wait_phase(name, "Running")
        self.writer_moves(name)

    def writer_count(self, name="writer"):
        lines = re.findall(r"alive (\d+)", self.log(name))
        return int(lines[-1]) if lines else 0

    def writer_moves(self, name="writer", timeout=15):
        before = self.writer_count(name)

        def moved():
            expect(self.phase(name) == "Running", f"pod {name} is {self.phase(name)}: {self.log(name)[-300:]!r}")
            return self.writer_count(name) > before
        wait_for(f"pod {name} to go on writing", moved, timeout, 0.2)

    def stop_writer(self, name="writer", claim="data"):
        """Ends it; every write that it reported is in the file afterwards."""
        self.writer_moves(name)
        count = self.writer_count(name)
        self.delete_pod(name)
        text = self.run(name + "-check", "awk '$1 != NR { print \"gap at\", NR; exit 1 } END { print NR }' /v/log",
                        claims={"/v": claim})
        expect(int(text) >= count, f"the writer reported {count} writes, the file has {text.strip()}")
        return int(text)


def node_program(cluster, *args):
    """A program of this machine, when the suite runs on the node itself (--on-node)."""
    if not cluster.options.on_node:
        raise Skip("needs to run on the node")
    done = subprocess.run(args, capture_output=True, text=True, check=False, timeout=60)
    expect(done.returncode == 0, f"{args[0]}: {done.stderr.strip()[-400:]}")
    return done.stdout


def csi_call(cluster, driver, method, request):
    """Calls the driver itself; stands in for sidecars which are not ours, such as external-resizer."""
    if not (cluster.options.on_node and cluster.options.csi_call):
        raise Skip("no external-resizer here, and the suite does not run on the node")
    text = node_program(cluster, cluster.options.csi_call,
                        f"--endpoint=unix:///var/lib/kubelet/plugins/{driver}/csi.sock", method, json.dumps(request))
    return json.loads(text or "{}")
