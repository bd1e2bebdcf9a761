#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kube-controller-manager's persistentvolume-binder and berth-controller on the same API server at once, as when somebody forgets
to switch one off. 200 claims are created, bound, released and reclaimed under both: no claim or volume may be bound twice, none be
left behind, and the two must come to rest. The last line says how many checks passed and failed.
"""
import argparse
import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import side  # noqa: E402
import norm  # noqa: E402  (side knows where it is)
from kapi import ApiError, Client, Watcher  # noqa: E402
from side import Problem  # noqa: E402

NS = "two"
KINDS = ("PersistentVolume", "PersistentVolumeClaim")
# class: claims, volumes, how they find each other
STOCK = {"plain": (90, 90), "scarce": (40, 30), "reserved": (20, 20), "named": (20, 20), "external": (30, 0)}
POLICIES = ["Retain", "Delete", "Retain", "Delete", "Retain", "Recycle"]
WRITES = 10         # attempts of both together for each claim and its volume in one act; one binder alone needs 4 to bind
PATIENCE = 180      # seconds; everything takes two or three on an idle machine


def volume(name, cls, policy="Retain", claim=None, uid=None, annotations=None):
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}, "storageClassName": cls, "persistentVolumeReclaimPolicy": policy,
            "hostPath": {"path": "/tmp/berth-oracle-none/" + name}}
    if claim:
        spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NS, "name": claim}
        if uid:
            spec["claimRef"]["uid"] = uid
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def claim(name, cls, named=None):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": cls}
    if named:
        spec["volumeName"] = named
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NS}, "spec": spec}


class Test:
    def __init__(self, a):
        self.a, self.r = a, random.Random(a.seed)
        self.work = a.work or tempfile.mkdtemp(prefix="berth-two-binders-")
        os.makedirs(self.work, exist_ok=True)
        self.binders, self.server = [], None
        self.passed = self.failed = 0
        self.lock, self.changed = threading.Lock(), time.monotonic()
        self.owners = collections.defaultdict(set)      # uid of a bound claim → volumes that it was ever bound to
        self.users, self.shared = {}, []                # volume → uid of the claim that has it now; and those that went over to another

    def start(self):
        self.server = side.Devapi(os.path.join(self.work, "server"))
        self.c = Client(self.server.target)
        self.c.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        self.c.create({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "external"}, "provisioner": "csi.example"})
        self.provisioner = Client(self.server.target)
        recyclers = side.Recyclers(self.server.target)
        for watcher in [Watcher(self.server.target, k, self.seen) for k in KINDS] + [Watcher(self.server.target, "Pod", recyclers.event)]:
            watcher.start()
            if not watcher.ready.wait(60):
                raise Problem("cannot watch the API server")
        for name, command in (("upstream", side.upstream_command), ("berth", side.berth_command)):
            self.binders.append(side.Binder(command(self.server.kubeconfig), os.path.join(self.work, name + ".log")))
            self.binders[-1].start()

    def stop(self):
        for b in self.binders:
            b.kill()
        if self.server:
            self.server.stop()

    # ---- what happens

    def seen(self, typ, o):
        """every version of every object is looked at, not only the last one"""
        m, spec, status = o["metadata"], o["spec"], o.get("status", {})
        with self.lock:
            self.changed = time.monotonic()
            if o["kind"] == "PersistentVolumeClaim":
                if status.get("phase") == "Bound":
                    self.owners[m["uid"]].add(spec.get("volumeName"))
            elif typ != "DELETED" and status.get("phase") == "Bound" and spec.get("claimRef"):
                if self.users.setdefault(m["name"], spec["claimRef"].get("uid")) != spec["claimRef"].get("uid"):
                    self.shared.append(m["name"])
            else:
                self.users.pop(m["name"], None)
        if typ != "DELETED" and o["kind"] == "PersistentVolumeClaim" and m.get("annotations", {}).get("volume.beta.kubernetes.io/storage-provisioner") == "csi.example":
            try:        # the external provisioner, which also asks before it makes the second one
                self.provisioner.create(volume("pvc-" + m["uid"], "external", "Retain", m["name"], m["uid"], {"pv.kubernetes.io/provisioned-by": "csi.example"}))
            except ApiError as e:
                if e.code != 409:
                    raise

    def in_parallel(self, objects):
        """by four clients, in random order"""
        self.r.shuffle(objects)
        errors = []

        def some(part):
            client = Client(self.server.target)
            try:
                for what, *args in part:
                    getattr(client, what)(*args)
            except (ApiError, OSError) as e:
                errors.append(e)
        threads = [threading.Thread(target=some, args=(objects[n::4],)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if errors:
            raise Problem("creating and deleting: %s" % errors[0])

    def stock(self):
        out = []
        for cls, (claims, volumes) in STOCK.items():
            for n in range(claims):
                out.append(("create", claim("%s-%d" % (cls, n), cls, "%s-%d" % (cls, n) if cls == "named" else None)))
            for n in range(volumes):
                out.append(("create", volume("%s-%d" % (cls, n), cls, POLICIES[n % len(POLICIES)], "%s-%d" % (cls, n) if cls == "reserved" else None)))
        return out

    # ---- looking

    def state(self):
        out = {"pvs": {}, "pvcs": {}}
        for kind, where in zip(KINDS, ("pvs", "pvcs")):
            for o in self.c.list(kind)["items"]:
                m = o["metadata"]
                key = m["name"] if where == "pvs" else "%s/%s" % (m["namespace"], m["name"])
                out[where][key] = {"uid": m["uid"], "annotations": m.get("annotations", {}), "labels": {}, "spec": o["spec"], "status": o.get("status", {})}
        return out

    def rest(self):
        """nothing has changed for three resyncs"""
        end = time.monotonic() + PATIENCE
        while True:
            for b in self.binders:
                b.check()
            with self.lock:
                quiet = time.monotonic() - self.changed
            if quiet > 3 * side.PERIOD:
                return True
            if time.monotonic() > end:
                return False
            time.sleep(0.1)

    def until(self, reached, patience=PATIENCE):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if reached(self.state()):
                return True
            time.sleep(0.1)
        return False

    def journal(self):
        """writes of volumes and claims by the two: {program: Counter}"""
        out = {"kube-controller-manager": collections.Counter(), "berth-controller": collections.Counter()}
        for e in self.c.call("GET", "/devapi/journal")["items"]:
            if e.get("resource") not in ("persistentvolumes", "persistentvolumeclaims") or e["method"] == "GET":
                continue
            for program, count in out.items():
                if e["userAgent"].startswith(program):
                    count["attempts"] += 1
                    count[e["status"]] += 1
        return out

    def check(self, good, what, detail=""):
        if good:
            self.passed += 1
            print("ok   " + what)
        else:
            self.failed += 1
            print("FAIL %s: %s" % (what, detail))
        sys.stdout.flush()

    def check_pods(self):
        self.until(lambda _: not self.c.list("Pod")["items"], 10)
        pods = [(p["metadata"]["name"], p["status"].get("phase")) for p in self.c.list("Pod")["items"]]
        self.check(not pods, "no recycler pod is left", pods[:5])

    def check_writes(self, what):
        time.sleep(0.2)
        used = self.journal()
        total = sum(c["attempts"] for c in used.values())
        claims = sum(n for n, _ in STOCK.values())
        print("     %s: %s" % (what, "; ".join("%s %d writes, %d conflicts" % (p, c["attempts"], c[409]) for p, c in used.items())))
        self.check(total <= WRITES * claims, "%s: at most %d writes for each claim" % (what, WRITES), "%d for %d claims" % (total, claims))
        self.c.call("DELETE", "/devapi/journal")
        time.sleep(3 * side.PERIOD)
        used = self.journal()
        self.check(not any(c["attempts"] for c in used.values()), "%s: then nobody writes any more" % what, used)

    # ---- the three acts

    def phases(self, state):
        count = norm.summary(state)
        return {k: n for k, n in count.items() if n}

    def bind(self):
        self.c.call("DELETE", "/devapi/journal")
        self.in_parallel(self.stock())
        want = {"PV Bound": 190, "PVC Bound": 190, "PVC Pending": 10}
        self.until(lambda s: self.phases(s) == want)
        self.check(self.rest(), "binding comes to rest")
        state = self.state()
        self.check(self.phases(state) == want, "all claims that can be bound are bound, to one volume each", self.phases(state))
        wrong = norm.invariants(state)
        self.check(not wrong, "volumes and claims fit together", wrong[:5])
        exact = [k for k, c in state["pvcs"].items() if k.split("/")[1].split("-")[0] in ("reserved", "named") and c["spec"].get("volumeName") != k.split("/")[1]]
        self.check(not exact, "who asked for a certain volume has that one", exact[:5])
        self.check_writes("binding")

    def release(self):
        """half of the claims go; the scarce ones that waited get what is recycled"""
        self.c.call("DELETE", "/devapi/journal")
        before = self.state()
        gone = sorted(k for k, c in before["pvcs"].items() if c["status"]["phase"] == "Bound" and int(k.rsplit("-", 1)[1]) % 2)
        volumes = {before["pvcs"][k]["spec"]["volumeName"] for k in gone}
        self.delete(before, gone)

        def reached(s):
            return all(self.reclaimed(before["pvs"][v], s["pvs"].get(v)) for v in volumes)
        self.until(reached)
        self.check(self.rest(), "reclaiming comes to rest")
        state = self.state()
        left = [(v, state["pvs"].get(v, {}).get("status")) for v in sorted(volumes) if not self.reclaimed(before["pvs"][v], state["pvs"].get(v))]
        self.check(not left, "each released volume is kept, removed or free again, as its policy says", left[:5])
        self.check(all(state["pvcs"][k] == c or c["status"]["phase"] == "Pending" for k, c in before["pvcs"].items() if k not in gone),
                   "claims that stayed are untouched", [k for k, c in before["pvcs"].items() if k not in gone and state["pvcs"][k] != c][:5])
        wrong = norm.invariants(state)
        self.check(not wrong, "volumes and claims fit together", wrong[:5])
        self.check_pods()
        self.check_writes("reclaiming")

    def delete(self, before, claims):
        """Those of recycled volumes one after the other: upstream mixes pods up when it recycles several at a time (it
        writes the names of all of them into one pod template), which says nothing about two binders."""
        def recycled(k):
            v = before["pvcs"][k]["spec"].get("volumeName")
            return v if v and before["pvs"][v]["spec"]["persistentVolumeReclaimPolicy"] == "Recycle" else None
        self.in_parallel([("delete", "PersistentVolumeClaim", NS, k.split("/")[1]) for k in claims if not recycled(k)])
        for k in filter(recycled, claims):
            v = recycled(k)
            self.c.delete("PersistentVolumeClaim", NS, k.split("/")[1])
            self.until(lambda s, v=v: self.reclaimed(before["pvs"][v], s["pvs"].get(v)) and not self.c.list("Pod")["items"], 20)

    @staticmethod
    def reclaimed(before, now):
        policy = before["spec"]["persistentVolumeReclaimPolicy"]
        if policy == "Delete":
            return now is None
        if now is None:
            return False
        if policy == "Retain":
            return now["status"]["phase"] == "Released"
        return now["status"]["phase"] == "Available" or now["spec"].get("claimRef", {}).get("uid") not in (None, before["spec"]["claimRef"]["uid"])

    def end(self):
        """all claims go"""
        self.c.call("DELETE", "/devapi/journal")
        before = self.state()
        self.delete(before, sorted(before["pvcs"]))

        def over(s):
            return not any(v["status"].get("phase") in ("Bound", "Pending", "Failed") or v["spec"]["persistentVolumeReclaimPolicy"] == "Delete" and v["status"]["phase"] == "Released"
                           or v["spec"]["persistentVolumeReclaimPolicy"] == "Recycle" and v["status"]["phase"] == "Released" for v in s["pvs"].values())
        self.until(over)
        self.check(self.rest(), "the end comes to rest")
        state = self.state()
        self.check(over(state) and not state["pvcs"], "nothing is left behind", self.phases(state))
        self.check_pods()
        twice = [u for u, v in self.owners.items() if len(v) > 1]
        self.check(not twice, "no claim was ever bound to two volumes", twice[:5])
        self.check(not self.shared, "no volume ever went from one claim to another without being free between", self.shared[:5])
        self.check_writes("the end")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--work", metavar="DIR", help="logs (default: a temporary directory, removed when all is well)")
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    test = Test(a)
    try:
        test.start()
        test.bind()
        test.release()
        test.end()
    except Problem as e:
        test.check(False, "the run", e)
    finally:
        test.stop()
    if not test.failed and not a.work:
        shutil.rmtree(test.work, ignore_errors=True)
    else:
        print("logs are in " + test.work)
    print("%d passed, %d failed" % (test.passed, test.failed))
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()
