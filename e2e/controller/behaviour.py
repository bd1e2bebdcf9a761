#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the recorded cases cannot show of berth-controller: costs, scale, leader election, signals, other binders.
Runs against the embedded API server (berth-devapi), whose journal tells every request. Python 3 standard library only.

    e2e/controller/behaviour.py [TEST...]       BERTH_BUILD=dir (default build)
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "e2e", "cases"))
from kapi import Client, Target  # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BERTH_BUILD", "build"))
PV, PVC, CLASS = "PersistentVolume", "PersistentVolumeClaim", "StorageClass"


def wait(what, fn, timeout=30):
    end = time.monotonic() + timeout
    while True:
        value = fn()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("waited %d s in vain: %s" % (timeout, what))
        time.sleep(0.02)


def volume(name, **spec):
    body = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "d.example.com", "volumeHandle": name}}
    body.update(spec)
    return {"apiVersion": "v1", "kind": PV, "metadata": {"name": name}, "spec": body}


def claim(name, **spec):
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    body.update(spec)
    return {"apiVersion": "v1", "kind": PVC, "metadata": {"name": name, "namespace": "default"}, "spec": body}


class World:
    """an API server and the controllers of one test"""

    def __init__(self, *server_flags):
        self.dir = tempfile.mkdtemp(prefix="berth-behaviour-")
        self.kubeconfig = os.path.join(self.dir, "kubeconfig")
        self.procs = []
        self.server = self.spawn("server", [os.path.join(BUILD, "berth-devapi"), "--protection=false", "--journal-size=200000",
                                            "--kubeconfig-out=" + self.kubeconfig, *server_flags])
        wait("the API server", lambda: os.path.exists(self.kubeconfig) and os.path.getsize(self.kubeconfig))
        with open(self.kubeconfig) as f:
            self.url = re.search(r"http://[^\s\"]+", f.read()).group(0)
        self.c = Client(Target(self.url))

    def spawn(self, name, argv):
        log = open(os.path.join(self.dir, name + ".log"), "ab")
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        p.log = log.name
        self.procs.append(p)
        return p

    def controller(self, *flags, name="controller", elect=False, master=None):
        argv = [os.path.join(BUILD, "berth-controller"), "--kubeconfig=" + self.kubeconfig, "--kube-api-qps=0",
                "--pvclaimbinder-sync-period=500ms", "-v=2"]
        if not elect:
            argv.append("--leader-elect=false")
        if master:
            argv.append("--master=" + master)
        p = self.spawn(name, argv + list(flags))
        return p

    def log(self, p):
        with open(p.log, errors="replace") as f:
            return f.read()

    def working(self, p):
        wait("the controller works", lambda: '"Working"' in self.log(p) or p.poll() is not None)
        assert p.poll() is None, self.log(p)

    def journal(self, agent="berth-controller"):
        d = json.loads(urllib.request.urlopen(self.url + "/devapi/journal").read())
        return [r for r in d["items"] if agent in json.dumps(r)]

    def clear_journal(self):
        urllib.request.urlopen(urllib.request.Request(self.url + "/devapi/journal", method="DELETE")).read()

    def phase(self, kind, name):
        o = self.c.find(kind, "default" if kind == PVC else None, name)
        return o and o.get("status", {}).get("phase")

    def events(self, name):
        return [e for e in self.c.list("Event")["items"] if e["involvedObject"]["name"] == name]

    def close(self):
        for p in self.procs[::-1]:
            if p.poll() is None:
                p.kill()
            p.wait()


def end(p, sig=signal.SIGTERM, timeout=15):
    p.send_signal(sig)
    return p.wait(timeout)


# ---------------------------------------------------------------- tests

def test_quiet_cluster_costs_nothing(w):
    for i in range(5000):
        v = volume("v%d" % i, claimRef={"namespace": "default", "name": "gone%d" % i, "uid": "u%d" % i},
                   persistentVolumeReclaimPolicy="Delete" if i % 2 else "Retain")
        v["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "d.example.com"}
        w.c.create(v)
        w.c.patch(PV, None, "v%d" % i, {"status": {"phase": "Released"}}, sub="status")
    p = w.controller("--pvclaimbinder-sync-period=1s")
    w.working(p)
    time.sleep(0.7)
    w.clear_journal()
    time.sleep(4.5)
    seen = w.journal()
    assert not seen, "%d requests: %s" % (len(seen), seen[:3])
    assert end(p) == 0


def test_scale(w, count=2000):
    w.c.create({"apiVersion": "storage.k8s.io/v1", "kind": CLASS, "metadata": {"name": "other"}, "provisioner": "kubernetes.io/no-provisioner"})
    for i in range(count):
        w.c.create(volume("v%05d" % i, capacity={"storage": "%dGi" % (1 + i % 7)}))
    for i in range(count):
        w.c.create(claim("c%05d" % i))
    begun = time.monotonic()
    p = w.controller("--pvclaimbinder-sync-period=15s")
    wait("all claims are bound", lambda: all(x["status"].get("phase") == "Bound" for x in w.c.list(PVC)["items"]), 120)
    took = time.monotonic() - begun
    volumes = {v["metadata"]["name"]: v for v in w.c.list(PV)["items"]}
    owners = set()
    for x in w.c.list(PVC)["items"]:
        v = volumes[x["spec"]["volumeName"]]
        assert v["spec"]["claimRef"]["uid"] == x["metadata"]["uid"]
        assert v["metadata"]["name"] not in owners
        owners.add(v["metadata"]["name"])
    print("     %d binds in %.1f s, %.0f a second" % (count, took, count / took))
    conflicts = [r for r in w.journal() if '409' in json.dumps(r)]
    print("     %d requests, %d conflicts" % (len(w.journal()), len(conflicts)))
    assert end(p) == 0


def test_early_wake_up(w):
    p = w.controller("--pvclaimbinder-sync-period=1h")
    w.working(p)
    w.c.create(claim("c"))
    wait("the claim waits", lambda: w.events("c"))
    w.c.create(volume("v"))
    wait("the claim is bound long before the resync", lambda: w.phase(PVC, "c") == "Bound", 5)
    w.c.create(claim("d", storageClassName="late"))
    time.sleep(0.3)
    w.c.create({"apiVersion": "storage.k8s.io/v1", "kind": CLASS, "metadata": {"name": "late"}, "provisioner": "x.example.com"})
    wait("the class that came later is noticed", lambda: any(e["reason"] == "ExternalProvisioning" for e in w.events("d")), 5)
    w.c.create(volume("r", claimRef={"namespace": "default", "name": "e"}))
    w.c.create(claim("e"))
    wait("a reservation is taken", lambda: w.phase(PVC, "e") == "Bound", 5)


def test_explanations(w):
    p = w.controller()
    w.working(p)
    w.c.create(volume("small", capacity={"storage": "8Gi"}))
    w.c.create(claim("big", resources={"requests": {"storage": "10Gi"}}))
    wait("the reason", lambda: any("0/1 volumes fit: 1 smaller than 10Gi (largest 8Gi)" in e["message"] for e in w.events("big")))
    w.c.create({"apiVersion": "storage.k8s.io/v1", "kind": CLASS, "metadata": {"name": "gold"}, "provisioner": "nobody.example.com"})
    w.c.create(claim("ext", storageClassName="gold"))
    wait("the missing driver", lambda: any("no driver named nobody.example.com is registered" in e["message"] for e in w.events("ext")))
    w.c.create(claim("typo", storageClassName="gol"))
    wait("the nearest class", lambda: any("[did you mean gold?]" in e["message"] for e in w.events("typo")))


def lease(w):
    return json.loads(urllib.request.urlopen(w.url + "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/berth-controller").read())


def leader_events(w):
    items = json.loads(urllib.request.urlopen(w.url + "/api/v1/namespaces/kube-system/events").read())["items"]
    return [e["message"] for e in items if e["reason"] == "LeaderElection"]


FAST = ("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms")


def test_leader_election(w):
    a = w.controller(*FAST, elect=True, name="a")
    w.working(a)
    b = w.controller(*FAST, elect=True, name="b")
    w.c.create(volume("v"))
    w.c.create(claim("c"))
    wait("bound", lambda: w.phase(PVC, "c") == "Bound")
    time.sleep(1)
    assert '"Working"' not in w.log(b), "two leaders"
    assert end(a) == 0
    holder = lease(w)["spec"].get("holderIdentity") or ""
    begun = time.monotonic()
    w.working(b)
    took = time.monotonic() - begun
    assert took < 2.5, "a lease that was given back is taken at once, not after %.1f s (%s)" % (took, holder)
    wait("both to have told that they lead", lambda: sum(m.endswith(" became leader") for m in leader_events(w)) == 2)
    # somebody takes the lease by force
    urllib.request.urlopen(urllib.request.Request(
        w.url + "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/berth-controller", method="PATCH",
        headers={"Content-Type": "application/merge-patch+json"}, data=json.dumps({"spec": {"holderIdentity": "thief"}}).encode())).read()
    assert b.wait(15) == 1, "a lost lease is exit status 1"


def test_signals(w):
    p = w.controller()
    w.working(p)
    assert end(p) == 0
    p = w.controller(name="again")
    w.working(p)
    assert end(p, signal.SIGINT) == 0
    # no API server at all: still ends at once
    p = w.controller(name="alone", master="http://127.0.0.1:1")
    time.sleep(1)
    begun = time.monotonic()
    assert end(p) == 0
    assert time.monotonic() - begun < 10


def test_bad_flags(w):
    p = w.controller("--no-such-flag")
    assert p.wait(10) == 2
    p = w.controller("--pv-recycler-pod-template-filepath-nfs=/nonexistent", name="template")
    assert p.wait(10) == 1 and "/nonexistent" in w.log(p)


def test_metrics_and_health(w):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    p = w.controller("--http-endpoint=127.0.0.1:%d" % port)
    w.working(p)
    url = "http://127.0.0.1:%d" % port
    w.c.create(volume("v"))
    w.c.create(claim("c"))
    wait("bound", lambda: w.phase(PVC, "c") == "Bound")
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    for part in ("pv_collector_bound_pv_count{storage_class=\"\"} 1", "pv_collector_bound_pvc_count{namespace=\"default\"",
                 "workqueue_depth{name=\"claims\"}", "workqueue_depth{name=\"volumes\"}", "process_resident_memory_bytes"):
        assert part in text, part + "\n" + text
    assert urllib.request.urlopen(url + "/healthz").status == 200
    assert urllib.request.urlopen(url + "/readyz").status == 200


def test_annotate_mode(w):
    p = w.controller("--mode=annotate")
    w.working(p)
    w.c.create({"apiVersion": "storage.k8s.io/v1", "kind": CLASS, "metadata": {"name": "gold"}, "provisioner": "x.example.com"})
    w.c.create(volume("v"))
    w.c.create(claim("c"))
    w.c.create(claim("ext", storageClassName="gold"))
    wait("the annotation", lambda: (w.c.get(PVC, "default", "ext")["metadata"].get("annotations") or {}).get(
        "volume.kubernetes.io/storage-provisioner") == "x.example.com")
    time.sleep(2)
    assert w.phase(PV, "v") == "Pending" and w.phase(PVC, "c") == "Pending"
    assert not w.events("c") and not w.events("ext")
    writes = [r for r in w.journal() if re.search(r'"(PATCH|POST|PUT|DELETE|patch|create|update|delete)"', json.dumps(r))]
    assert len(writes) == 1, writes


def test_another_binder(w):
    p = w.controller("--pvclaimbinder-sync-period=100ms")
    w.working(p)
    w.c.create(volume("v"))
    for _ in range(40):     # somebody who takes every Available back
        wait("the phase", lambda: w.phase(PV, "v") == "Available", 30)
        w.c.patch(PV, None, "v", {"status": {"phase": "Released"}}, sub="status")
        if "Another controller works on the same volumes" in w.log(p):
            break
    assert "persistentvolume-binder" in w.log(p)
    w.clear_journal()
    time.sleep(0.8)
    w.c.patch(PV, None, "v", {"status": {"phase": "Released"}}, sub="status")
    time.sleep(0.1)
    assert len(w.journal()) <= 2, "the volume is left alone for a while"


def test_nobody_gets_what_is_being_emptied(w):
    """somebody takes the reference away while the recycler pod is at work: whoever had the volume now would lose data"""
    p = w.controller("--pvclaimbinder-sync-period=200ms")
    w.working(p)
    dead = {"apiVersion": "v1", "kind": PVC, "namespace": "default", "name": "old", "uid": "5a1e0000-0000-4000-8000-000000000001"}
    for name in ("free", "named"):
        v = volume(name, persistentVolumeReclaimPolicy="Recycle", claimRef=dead, storageClassName=name, nfs={"server": "s", "path": "/p"})
        del v["spec"]["csi"]
        w.c.create(v)
        wait("the recycler pod", lambda: w.c.find("Pod", "default", "recycler-for-" + name))
        w.c.patch(PV, None, name, {"spec": {"claimRef": None}})
        w.c.create(claim(name, storageClassName=name, **({"volumeName": name} if name == "named" else {})))
        wait("free again", lambda: w.phase(PV, name) == "Available")
    time.sleep(2)
    for name in ("free", "named"):
        assert w.phase(PVC, name) == "Pending" and "claimRef" not in w.c.get(PV, None, name)["spec"]
        w.c.patch("Pod", "default", "recycler-for-" + name, {"status": {"phase": "Succeeded"}}, sub="status")
        wait("bound", lambda: w.phase(PVC, name) == "Bound")


def test_tmp_itself_is_not_deleted(w):
    """/tmp// is no path below /tmp; asked of a directory that does not exist, whose deletion would succeed"""
    w.working(w.controller())
    dead = {"apiVersion": "v1", "kind": PVC, "namespace": "default", "name": "old", "uid": "5a1e0000-0000-4000-8000-000000000001"}
    v = volume("v", persistentVolumeReclaimPolicy="Delete", claimRef=dead, hostPath={"path": "/nonexistent/tmp//"})
    del v["spec"]["csi"]
    w.c.create(v)
    wait("Failed", lambda: w.phase(PV, "v") == "Failed")
    assert "only supports /tmp/.+ but received provided /nonexistent/tmp//" in w.c.get(PV, None, "v")["status"]["message"]


def test_two_of_us(w):
    """active-active is not how it is run, but it must do no harm"""
    for i in range(60):
        w.c.create(volume("v%d" % i))
        w.c.create(claim("c%d" % i))
    a, b = w.controller(name="a"), w.controller(name="b")
    wait("all bound", lambda: all(x["status"].get("phase") == "Bound" for x in w.c.list(PVC)["items"]), 60)
    names = [x["spec"]["volumeName"] for x in w.c.list(PVC)["items"]]
    assert len(set(names)) == 60
    assert end(a) == 0 and end(b) == 0


def main():
    tests = {n[5:]: f for n, f in globals().items() if n.startswith("test_")}
    wanted = sys.argv[1:] or list(tests)
    failed = 0
    for name in wanted:
        w = World()
        begun = time.monotonic()
        try:
            tests[name](w)
            print("ok   %s  (%.1f s)" % (name, time.monotonic() - begun))
        except Exception:
            failed += 1
            print("FAIL %s\n     %s\n     logs in %s" % (name, traceback.format_exc().strip().replace("\n", "\n     "), w.dir))
        finally:
            w.close()
        sys.stdout.flush()
        if not failed:
            subprocess.run(["rm", "-rf", w.dir], check=False)
    print("%d passed, %d failed" % (len(wanted) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
