# SPDX-License-Identifier: Apache-2.0
"""One side of the comparison: an API server, one binder on it, and what is seen there of the sequences that run."""
import calendar
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "e2e", "cases"))
from kapi import ApiError, Client, Kubelet, Target, Watcher, CORE, path_of  # noqa: E402
import norm  # noqa: E402
import sequence  # noqa: E402

CANARY = "oracle-canary"
GHOST = "5a1e0000-0000-4000-8000-000000000000"
HOST_PATHS = "/tmp/hostpath_pv/"         # where the in-tree hostPath provisioner puts its directories
KUBERNETES_BIN = os.path.join(os.environ.get("BERTH_CACHE", "/var/cache/berth"), "kubernetes-1.20.2", "bin")
CLUSTER = os.path.join(ROOT, "e2e", "cluster", "cluster.sh")
PERIOD = 0.5                             # resync, seconds
QUIET = 0.25                             # nothing moves for so long before we ask whether all is done
WIPED = ("StorageClass", "Pod", "PersistentVolume", "PersistentVolumeClaim")


class Problem(Exception):
    """the run cannot go on"""


def build_dir():
    d = os.environ.get("BERTH_BUILD") or os.environ.get("BUILD") or "build"
    return d if os.path.isabs(d) else os.path.join(ROOT, d)


def epoch(stamp):
    return calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")) if stamp else 0


# ---- API servers

class Devapi:
    def __init__(self, directory):
        os.makedirs(directory, exist_ok=True)
        self.kubeconfig, self.log = os.path.join(directory, "kubeconfig"), os.path.join(directory, "devapi.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([os.path.join(build_dir(), "berth-devapi"), "--serve=1.20", "--protection=false", "--journal-size=500000",
                                             "--kubeconfig-out=" + self.kubeconfig], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 30
        while not (os.path.exists(self.kubeconfig) and os.path.getsize(self.kubeconfig)):
            if self.process.poll() is not None or time.monotonic() > end:
                raise Problem("berth-devapi does not start, see " + self.log)
            time.sleep(0.02)
        with open(self.kubeconfig, encoding="utf-8") as f:
            self.target = Target(re.search(r"http://\S+", f.read()).group(0).strip('"'))

    def stop(self):
        self.process.kill()
        self.process.wait()


class RealServer:
    def __init__(self, directory):
        self.directory, self.kubeconfig = directory, os.path.join(directory, "kubeconfig")
        self.call("start", directory, "--no-rbac", "--disable-admission=StorageObjectInUseProtection,ServiceAccount")
        with open(os.path.join(directory, "env"), encoding="utf-8") as f:
            port = re.search(r"\bAPI_PORT=['\"]?(\d+)", f.read()).group(1)
        pki = os.path.join(directory, "pki") + "/"
        self.target = Target("https://127.0.0.1:" + port, pki + "ca.crt", pki + "admin.crt", pki + "admin.key")

    def call(self, *args):
        done = subprocess.run([CLUSTER, *args], capture_output=True, text=True, check=False)
        if done.returncode:
            self.stop()
            raise Problem("cluster.sh %s: %s" % (" ".join(args), (done.stdout + done.stderr)[-1500:]))

    def stop(self):
        subprocess.run([CLUSTER, "stop", self.directory], capture_output=True, check=False)


# ---- the two binders

def upstream_command(kubeconfig):
    return [os.path.join(KUBERNETES_BIN, "kube-controller-manager"), "--kubeconfig=" + kubeconfig, "--controllers=persistentvolume-binder",
            "--leader-elect=false", "--kube-api-qps=5000", "--kube-api-burst=10000", "--kube-api-content-type=application/json",
            "--pvclaimbinder-sync-period=%dms" % (PERIOD * 1000), "--enable-hostpath-provisioner=true", "--port=0", "--secure-port=0"]


def berth_command(kubeconfig, *more):
    return [os.path.join(build_dir(), "berth-controller"), "--kubeconfig=" + kubeconfig, "--leader-elect=false", "--kube-api-qps=0",
            "--pvclaimbinder-sync-period=%dms" % (PERIOD * 1000), "--enable-hostpath-provisioner=true", "-v=4", *more]


class Binder:
    def __init__(self, argv, log):
        self.argv, self.log, self.p = argv, log, None

    def start(self):
        with open(self.log, "ab") as log:
            self.p = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, sig=signal.SIGTERM):
        p, self.p = self.p, None
        if p is None:
            return
        if p.poll() is not None:
            raise Problem("%s ended by itself (%s), see %s" % (os.path.basename(self.argv[0]), p.returncode, self.log))
        p.send_signal(sig)
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            raise Problem("%s did not end within 20 s of signal %d" % (os.path.basename(self.argv[0]), sig)) from None

    def hold(self, yes):
        if self.p is not None:
            self.p.send_signal(signal.SIGSTOP if yes else signal.SIGCONT)

    def check(self):
        if self.p is not None and self.p.poll() is not None:
            raise Problem("%s ended by itself (%s), see %s" % (os.path.basename(self.argv[0]), self.p.returncode, self.log))

    def kill(self):
        if self.p is not None:
            self.p.kill()
            self.p.wait()


class Recyclers(Kubelet):
    """A pod succeeds; the first one of a volume whose name ends in x fails."""

    def __init__(self, target):
        Kubelet.__init__(self, target)
        self.failed = set()

    def event(self, typ, pod):
        m = pod["metadata"]
        if typ != "ADDED" or not m["name"].startswith("recycler-for-") or m.get("labels", {}).get("oracle") == "fixture":
            return
        fail = m["name"].endswith("x") and m["name"] not in self.failed
        if fail:
            self.failed.add(m["name"])
        try:
            self.act(pod, "fail:disk is full" if fail else "succeed")
        except ApiError:
            pass


def waits_for_recycler(volume):
    spec, status = volume["spec"], volume.get("status", {})
    return (spec.get("persistentVolumeReclaimPolicy") == "Recycle" and status.get("phase") in ("Released", "Failed") and "uid" in spec.get("claimRef", {})
            and ("nfs" in spec or "hostPath" in spec))


# ---- a sequence on one side

class Instance:
    """the objects of one sequence; everything it is named after is replaced by symbols when it is compared"""

    def __init__(self, tag):
        self.tag = tag
        self.namer = norm.Namer([{"re": re.escape(tag), "to": "t"}])
        self.namer.learn(GHOST, "{ghost}")
        self.uids = collections.defaultdict(list)
        self.states, self.api, self.writes = [], [], 0

    def learn(self, kind, o):
        m = o["metadata"]
        short = m["name"] if kind == "PersistentVolumeClaim" else "pv:" + m["name"]
        known = self.uids[short]
        if m["uid"] in known:
            return
        known.append(m["uid"])
        self.namer.learn(m["uid"], "{uid:%s%s}" % (self.namer.text(short), "#%d" % len(known) if len(known) > 1 else ""))

    def find(self, name):
        if name == "t":
            return self.tag
        if name == "ghost":
            return GHOST
        if self.uids[name[4:]]:
            return self.uids[name[4:]][-1]
        never = str(uuid.uuid5(uuid.UUID(GHOST), self.tag + name))       # there was no such claim so far
        self.namer.learn(never, "{no-%s}" % name)
        return never


class Side:
    def __init__(self, name, server, command, directory):
        self.name, self.server, self.c = name, server, Client(server.target)
        self.mixes_up_recyclers = name == "upstream"
        self.binder = Binder(command, os.path.join(directory, name + ".log"))
        self.lock = threading.Condition()
        self.instances, self.by_uid, self.ignored = {}, {}, set()
        self.changed, self.bound = {}, set()
        self.dirs = set()
        self.canaries = self.waiting = 0
        self.kubelet = Recyclers(server.target)
        watchers = [Watcher(server.target, k, self.seen) for k in ("PersistentVolume", "PersistentVolumeClaim")]
        watchers.append(Watcher(server.target, "Pod", self.kubelet.event))
        for w in watchers:
            w.start()
        for w in watchers:
            if not w.ready.wait(60):
                raise Problem("cannot watch " + server.target.url)
        self.namespace(CANARY)

    def namespace(self, name):
        try:
            self.c.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except ApiError as e:
            if e.code != 409:
                raise

    # ---- what the watchers report

    def owner(self, kind, m):
        """whose object this is"""
        if kind == "PersistentVolumeClaim":
            return self.instances.get(m["namespace"])
        if m["name"].startswith("pvc-"):
            return self.by_uid.get(m["name"][4:]) or next((i for i in self.instances.values() if m["name"][4:] in i.namer.rev), None)
        return self.instances.get(m["name"].split("-")[0])

    def seen(self, typ, o):
        m, kind = o["metadata"], o["kind"]
        with self.lock:
            if kind == "PersistentVolumeClaim" and m["namespace"] == CANARY:
                if o.get("status", {}).get("phase") == "Bound":
                    self.bound.add(m["name"])
                    self.lock.notify_all()
                return
            path = o["spec"].get("hostPath", {}).get("path", "") if kind == "PersistentVolume" else ""
            if path.startswith(HOST_PATHS):
                self.dirs.add(path)
            if kind == "PersistentVolumeClaim" and m["namespace"] in self.instances:
                self.by_uid[m["uid"]] = self.instances[m["namespace"]]
            i = self.owner(kind, m)
            if i:
                i.learn(kind, o)
                i.writes += 1
                self.changed[i.tag] = time.monotonic()

    def last_change(self):
        with self.lock:
            return max((t for tag, t in self.changed.items() if tag not in self.ignored), default=0.0)

    # ---- acting

    def act(self, i, op):
        """the API server's answer: 200 or an error's code"""
        op = sequence.substitute(op, i.find)
        try:
            if op["do"] == "create":
                o = self.c.create(op["object"])
                if o["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
                    with self.lock:
                        if o["kind"] == "PersistentVolumeClaim":
                            self.by_uid[o["metadata"]["uid"]] = i
                        i.learn(o["kind"], o)
                return 200
            kind, name, ns = op["kind"], op["name"], i.tag if CORE[op["kind"]][2] else None
            if op["do"] == "patch":
                self.c.patch(kind, ns, name, op["patch"], op.get("sub"))
                return 200
            if op["do"] == "delete":
                return 404 if self.c.delete(kind, ns, name) is None else 200
            if op["do"] == "finalize":
                self.c.patch(kind, ns, name, {"metadata": {"finalizers": None}})
                return 200
        except ApiError as e:
            return e.code
        raise Problem("unknown operation %s" % op["do"])

    # ---- knowing that nothing is left to do

    def canary_claim(self, n):
        return self.c.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "k%d" % n, "namespace": CANARY},
                              "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "%s-%d" % (CANARY, n), "resources": {"requests": {"storage": "1Gi"}}}})

    def canary_volume(self, n, claim=None):
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "%s-%d" % (CANARY, n), "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "canary.example", "path": "/"}}
        if claim:
            spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": CANARY, "name": "k%d" % n, "uid": claim["metadata"]["uid"]}
        self.c.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "%s-%d" % (CANARY, n)}, "spec": spec})

    def canary_bound(self, n, timeout):
        end = time.monotonic() + timeout
        with self.lock:
            while "k%d" % n not in self.bound:
                if not self.lock.wait(min(1, max(0.01, end - time.monotonic()))):
                    self.binder.check()
                    if time.monotonic() > end:
                        raise Problem("%s did not bind a canary within %d s" % (self.name, timeout))
        self.c.delete("PersistentVolumeClaim", CANARY, "k%d" % n)
        self.c.delete("PersistentVolume", None, "%s-%d" % (CANARY, n))

    def next_canary(self):
        self.canaries += 1
        return self.canaries

    def round(self):
        """Waits for a resync that begins now, and for the queues to be empty after it. A claim that waits already gets a
        volume: upstream finds it at the next resync. Then a claim and its own volume go through the queues."""
        if not self.waiting:
            self.waiting = self.next_canary()
            self.canary_claim(self.waiting)
            time.sleep(0.1)
        now, self.waiting = self.waiting, self.next_canary()
        self.canary_claim(self.waiting)
        self.canary_volume(now)
        self.canary_bound(now, 120)
        n = self.next_canary()
        self.canary_volume(n, self.canary_claim(n))
        self.canary_bound(n, 120)

    def free_recycler(self, tried):
        """Upstream changes one pod template for all volumes that it recycles at the same time. When that happens between a volume's
        watch and its pod, the pod gets the name of another volume, and upstream waits for ever for one that nobody makes. Such a pod
        that comes and goes ends that, and upstream tries again: one volume at a time, or they are mixed up again. True: there was one."""
        for v in self.c.list("PersistentVolume")["items"]:
            m = v["metadata"]
            if not waits_for_recycler(v) or (m["uid"], m["resourceVersion"]) in tried:
                continue
            tried.add((m["uid"], m["resourceVersion"]))
            name = "recycler-for-" + m["name"]
            try:
                self.c.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"oracle": "fixture"}},
                               "spec": {"containers": [{"name": "a", "image": "a"}]}})
            except ApiError as e:
                if e.code != 409:
                    raise
            self.c.delete("Pod", "default", name)
            return True
        return False

    def settle(self, patience=30):
        """When it returns, nothing has changed for a whole resync. Sequences that never come to rest are ignored."""
        begun, start, tried = time.monotonic(), time.monotonic(), set()
        while True:
            wait = max(self.last_change(), start) + QUIET - time.monotonic()
            if wait > 0:
                time.sleep(wait)
                continue
            asked = time.monotonic()
            self.round()
            last = self.last_change()
            if last < asked and time.monotonic() - last > QUIET and not (self.mixes_up_recyclers and self.free_recycler(tried)):
                return
            if time.monotonic() - begun > patience:
                with self.lock:
                    restless = {tag for tag, t in self.changed.items() if t > time.monotonic() - 3}
                    self.ignored |= restless
                begun = time.monotonic()

    def flush(self):
        """Waits until all events are sent: they go one after the other, so that of the canary which still waits is the last."""
        end = time.monotonic() + 120
        while not any(e["involvedObject"].get("name") == "k%d" % self.waiting for e in self.c.list("Event", CANARY)["items"]):
            self.binder.check()
            if time.monotonic() > end:
                raise Problem("%s does not send its events" % self.name)
            time.sleep(0.1)

    # ---- reading

    def checkpoint(self):
        out = {tag: {"pvs": {}, "pvcs": {}} for tag in self.instances}
        for kind, where in (("PersistentVolume", "pvs"), ("PersistentVolumeClaim", "pvcs")):
            for o in self.c.list(kind)["items"]:
                m = o["metadata"]
                with self.lock:
                    i = self.owner(kind, m)
                    if i is None:
                        continue
                    i.learn(kind, o)
                    n = norm.norm_object(o, i.namer)
                if where == "pvcs":
                    n["uid"] = i.namer.text(m["uid"])
                out[i.tag][where][i.namer.text(m["name"] if where == "pvs" else "%s/%s" % (m["namespace"], m["name"]))] = n
        for tag, state in out.items():
            self.instances[tag].states.append(state)

    def events(self):
        """tag → normalised events, each once, with how often it came, its unchanged text, and how many its object got in all"""
        out = {tag: {} for tag in self.instances}
        count = collections.Counter()
        mine = []
        for e in self.c.list("Event")["items"]:
            about = e["involvedObject"]
            kind = about.get("kind")
            if kind not in ("PersistentVolume", "PersistentVolumeClaim"):
                continue
            with self.lock:
                i = self.owner(kind, {"name": about.get("name", ""), "namespace": about.get("namespace", "")})
            if i:
                count[about.get("uid")] += e.get("count") or 1
                mine.append((i, e))
        for i, e in mine:
            n = norm.norm_event(e, i.namer)
            out[i.tag][norm.ev_key(n)] = {"event": n, "raw": e.get("message", ""), "first": epoch(e.get("firstTimestamp")), "budget": count[e["involvedObject"].get("uid")]}
        return out

    # ---- between batches

    def begin_batch(self, tags):
        with self.lock:
            self.instances = {t: Instance(t) for t in tags}
            self.by_uid, self.changed, self.ignored = {}, {}, set()
        for t in tags:
            self.namespace(t)

    def end_batch(self):
        with self.lock:
            self.instances = {}
            self.waiting = 0
        for attempt in range(200):
            left = 0
            for kind in WIPED:
                for o in self.c.list(kind)["items"]:
                    left, m = left + 1, o["metadata"]
                    try:
                        if m.get("finalizers"):
                            self.c.patch(kind, m.get("namespace"), m["name"], {"metadata": {"finalizers": None}})
                        self.c.delete(kind, m.get("namespace"), m["name"])
                    except ApiError as e:
                        if e.code not in (404, 409):
                            raise
            if not left and attempt:
                break
            time.sleep(0.1)
        else:
            raise Problem("cannot clean " + self.server.target.url)
        for ns in sorted({e["metadata"]["namespace"] for e in self.c.list("Event")["items"]}):
            self.c.call("DELETE", path_of("Event", ns))
        self.remove_dirs()

    def remove_dirs(self):
        with self.lock:
            dirs, self.dirs = self.dirs, set()
        for d in dirs:
            if re.fullmatch(re.escape(HOST_PATHS) + r"[0-9a-f-]{36}", d):
                shutil.rmtree(d, ignore_errors=True)

    def close(self):
        self.binder.kill()
        self.server.stop()
        self.remove_dirs()
