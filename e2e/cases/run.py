#!/usr/bin/env python3
"""Recorded cases for persistentvolume-binder controllers: runs scenarios against an API server with the controller under
test, normalises what is left when nothing moves any more, and records it or compares it with a recording.
Standard library only.  README.md describes scenario files, normalisation and the comparison.

  run.py --server URL --ca F --cert F --key F --controller 'CMD --kubeconfig={kubeconfig}' --scenarios DIR --check golden.json
"""
import argparse
import collections
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kapi import ApiError, Client, Kubelet, Proxy, STATUS, CORE, Target, Watcher, path_of  # noqa: E402
import norm  # noqa: E402

CANARY_NS = "oracle-canary"
HP = "/tmp/oracle/hp/"                  # as written in scenario files
HPP = "/tmp/hostpath_pv/"               # where the in-tree hostPath provisioner puts its directories
GHOST = uuid.UUID("5a1e0000-0000-4000-8000-000000000000")
CLEAN = ["Pod", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "VolumeAttributesClass", "ResourceQuota", "Node"]


class Problem(Exception):
    pass


def key_of(o):
    m = o["metadata"]
    return "%s/%s" % (m["namespace"], m["name"]) if m.get("namespace") else m["name"]


class Controller:
    """the process under test"""

    def __init__(self, template, kubeconfig, workdir, log, extra=""):
        self.log, self.exits = open(log, "ab"), []
        cmd = template.replace("{kubeconfig}", kubeconfig).replace("{dir}", workdir)
        self.argv = shlex.split(cmd) + shlex.split(extra)
        self.p = None

    def start(self):
        self.p = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def alive(self):
        return self.p is not None and self.p.poll() is None

    def stop(self, sig=signal.SIGTERM, grace=10):
        if self.p is None:
            return
        p, self.p = self.p, None
        if p.poll() is None:
            p.send_signal(sig)
            try:
                p.wait(grace)
            except subprocess.TimeoutExpired:
                self.exits.append("killed after %d s" % grace)
                p.kill()
                p.wait()
        self.exits.append(p.returncode)


class Run:
    """what is common to all scenarios"""

    def __init__(self, a):
        self.a = a
        self.target = Target(a.server, a.ca, a.cert, a.key, a.token)
        self.c = Client(self.target)
        v = self.c.call("GET", "/version")
        self.version = (int(re.sub(r"\D", "", v["major"]) or 1), int(re.sub(r"\D", "", v["minor"])))
        self.git = v.get("gitVersion", "")
        self.work = a.work or tempfile.mkdtemp(prefix="oracle-run-")
        os.makedirs(os.path.join(self.work, "logs"), exist_ok=True)
        self.kubeconfig = os.path.join(self.work, "kubeconfig")
        with open(self.kubeconfig, "w") as f:
            json.dump(self.target.kubeconfig(), f, indent=1)
        self.clean_kinds = [k for k in CLEAN if self.served(k)]
        if not self.c.find("Namespace", None, CANARY_NS):
            busy = [k for k in self.clean_kinds if k not in ("Node",) and self.c.list(k)["items"]]
            if busy and not a.wipe:
                sys.exit("the cluster holds objects (%s) that this program would delete; say --wipe if that is meant" % ", ".join(busy))
            self.namespace(CANARY_NS)
        self.hp = "/tmp/oracle/hp-%d/" % os.getpid()
        self.lock = threading.RLock()
        self.cur = None
        self.kubelet = Kubelet(self.target)
        self.watch = [Watcher(self.target, k, self.seen) for k in ("PersistentVolume", "PersistentVolumeClaim")]
        self.watch.append(Watcher(self.target, "Pod", self.kubelet.event))
        for w in self.watch:
            w.start()
        for w in self.watch:
            if not w.ready.wait(30):
                sys.exit("cannot watch the API server")

    def served(self, kind):
        try:
            self.c.list(kind)
            return True
        except ApiError as e:
            if e.code == 404:
                return False
            raise

    def namespace(self, name):
        try:
            self.c.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except ApiError as e:
            if e.code != 409:
                raise

    def seen(self, typ, obj):
        with self.lock:
            if self.cur:
                self.cur.seen(typ, obj)

    def clean(self):
        """nothing of one scenario may be seen by the next"""
        for attempt in range(50):
            left = 0
            for kind in self.clean_kinds:
                for o in self.c.list(kind)["items"]:
                    left += 1
                    m = o["metadata"]
                    try:
                        if m.get("finalizers"):
                            self.c.patch(kind, m.get("namespace"), m["name"], {"metadata": {"finalizers": None}})
                        self.c.delete(kind, m.get("namespace"), m["name"])
                    except ApiError as e:
                        if e.code not in (404, 409):
                            raise
            if not left:
                break
            if attempt:
                time.sleep(0.05)
        else:
            raise Problem("cannot clean the cluster")
        for ns in sorted({e["metadata"]["namespace"] for e in self.c.list("Event")["items"]}):
            self.c.call("DELETE", path_of("Event", ns))


class Scenario:
    def __init__(self, run, s):
        self.run, self.c = run, run.c
        masks = s.get("mask", [])
        self.s = s = json.loads(json.dumps(s).replace(HP, run.hp))     # runs side by side must not share directories
        self.name = s["name"]
        self.namer = norm.Namer([{"re": re.escape(run.hp), "to": HP}] + masks)
        self.hpdirs = {}
        self.uids = collections.defaultdict(list)
        self.minrv, self.last = 0, time.monotonic()
        self.history = collections.defaultdict(list)
        self.rvs, self.mine = {}, set()
        self.checkpoints, self.api, self.unsettled, self.proxy, self.ctl = [], [], 0, None, None
        self.ticks = 0
        self.crashed = None

    # ---- symbols

    def lookup(self, m):
        kind, name = m.group(1), m.group(2)
        if kind == "ghost":
            u = str(uuid.uuid5(GHOST, name))
            self.namer.learn(u, "{ghost:%s}" % name)
            return u
        base, _, n = name.partition("#")
        k = ("default/" + base if "/" not in base else base) if kind == "uid" else "pv:" + base
        if k not in self.uids:
            o = self.c.find("PersistentVolumeClaim", *k.split("/")) if kind == "uid" else self.c.find("PersistentVolume", None, base)
            if not o:
                raise Problem("%s: no uid known for %s" % (self.name, k))
            self.learn(o)
        u = self.uids[k]
        return u[int(n) - 1] if n else u[-1]

    def deep(self, o):
        if isinstance(o, str):
            return re.sub(r"\{(uid|ghost|pvuid):([^}]+)\}", self.lookup, o)
        if isinstance(o, list):
            return [self.deep(x) for x in o]
        if isinstance(o, dict):
            return {k: self.deep(v) for k, v in o.items()}
        return o

    def learn(self, o):
        if o["kind"] not in ("PersistentVolumeClaim", "PersistentVolume"):
            return
        pv = o["kind"] == "PersistentVolume"
        k = "pv:" + o["metadata"]["name"] if pv else key_of(o)
        u = o["metadata"]["uid"]
        if u in self.uids[k]:
            return
        self.uids[k].append(u)
        n = len(self.uids[k])
        short = k[3:] if pv else re.sub("^default/", "", k)
        self.namer.learn(u, "{%s:%s%s}" % ("pvuid" if pv else "uid", self.namer.text(short), "#%d" % n if n > 1 else ""))

    # ---- what the watchers report

    def foreign(self, m):
        return m.get("namespace") == CANARY_NS or m["name"].startswith("oracle-canary-")

    def seen(self, typ, o):
        m = o["metadata"]
        rv = int(m["resourceVersion"])
        if rv <= self.minrv or self.foreign(m):
            return
        k = o["kind"], key_of(o)
        self.last = time.monotonic()
        self.rvs[k] = None if typ == "DELETED" else m["resourceVersion"]
        self.history[k].append((typ, o.get("status", {}).get("phase"), m["resourceVersion"]))
        if typ == "ADDED":
            self.learn(o)
            p = o["spec"].get("hostPath", {}).get("path", "")
            if p.startswith(HPP):
                self.hpdirs[m["name"]] = p

    # ---- acting

    def note(self, o):
        if o and o.get("metadata", {}).get("resourceVersion"):
            self.mine.add(o["metadata"]["resourceVersion"])
        return o

    def create(self, spec):
        o = self.deep({k: v for k, v in spec.items() if not k.startswith("x-")})
        st = o.pop("status", None)
        ns = o["metadata"].get("namespace")
        if ns and ns != "default":
            self.run.namespace(ns)
        made = self.note(self.c.create(o))
        self.learn(made)
        m = made["metadata"]
        if st and o["kind"] in STATUS:
            self.note(self.c.patch(o["kind"], m.get("namespace"), m["name"], {"status": st}, sub="status"))
        if spec.get("x-delete"):
            self.note(self.c.delete(o["kind"], m.get("namespace"), m["name"]))
        return made

    def do(self, i, st):
        what = st["do"]
        if what in ("create", "patch", "delete", "finalize"):
            try:
                self.mutate(what, st)
                code = 200
            except ApiError as e:
                if not st.get("may_fail"):
                    raise
                code = e.code
            if st.get("may_fail") and not st.get("quiet"):
                self.api.append({"step": i, "code": code})
        elif what == "settle":
            self.settle(st.get("min", 0))
            self.checkpoint(st.get("name", "step %d" % i))
        elif what == "wait":
            self.wait(st)
        elif what == "sleep":
            time.sleep(st["seconds"])
        elif what == "stop-controller":
            self.ctl.stop(signal.SIGKILL if st.get("signal") == "KILL" else signal.SIGTERM)
        elif what == "start-controller":
            self.begin()
        elif what == "restart-controller":
            self.ctl.stop(signal.SIGKILL if st.get("signal") == "KILL" else signal.SIGTERM)
            self.begin()
        elif what == "kubelet":
            self.run.kubelet.set(st["behaviours"])
        elif what == "faults":
            self.proxy.set(self.deep(st["rules"]))
        elif what == "cut":
            self.proxy.cut(st.get("path", ""))
        elif what == "align":       # just after the start of a second, for objects that shall have the same age
            time.sleep(1.02 - time.time() % 1)
        elif what == "fs":
            fs(st["op"], st["path"])
        else:
            raise Problem("unknown step " + what)

    def mutate(self, what, st):
        if what == "create":
            self.create(st["object"])
            return
        kind, name = st["kind"], self.deep(st["name"])
        ns = st.get("namespace", "default") if CORE[kind][2] else None
        if what == "patch":
            self.note(self.c.patch(kind, ns, name, self.deep(st["patch"]), st.get("sub"), st.get("type", "merge")))
        elif what == "delete":
            self.note(self.c.delete(kind, ns, name))
        else:   # drop (all or some) finalizers, as the protection controllers would
            o = self.c.get(kind, ns, name)
            f = [x for x in o["metadata"].get("finalizers", []) if st.get("only") and x not in st["only"]]
            self.note(self.c.patch(kind, ns, name, {"metadata": {"finalizers": f or None}}))

    def wait(self, st):
        kind, name = st["kind"], self.deep(st["name"])
        ns = st.get("namespace", "default") if CORE[kind][2] else None
        end = time.monotonic() + st.get("timeout", 20)
        while True:
            o = self.c.find(kind, ns, name)
            if st.get("exists") is False:
                if o is None:
                    return
            elif o is not None:
                x = o
                for p in st.get("path", "").split(".") if st.get("path") else []:
                    x = x.get(p) if isinstance(x, dict) else None
                if "equals" not in st or x == self.deep(st["equals"]):
                    return
            if time.monotonic() > end or not self.ctl.alive():
                self.api.append({"wait": "%s %s %s" % (kind, st["name"], "timed out")})
                return
            time.sleep(0.03)

    # ---- the controller, and knowing that it is awake

    def begin(self):
        self.canary_start()
        self.ctl.start()
        lat = self.canary_wait(self.run.a.start_timeout)
        if lat is None:
            self.crashed = "controller did not bind the canary claim within %d s of its start" % self.run.a.start_timeout if self.ctl.alive() else "controller exited: %s" % self.ctl.p.poll()
            raise Problem(self.crashed)

    def canary_start(self):
        self.ticks += 1
        n = "oracle-canary-%d" % self.ticks
        self.canary = n
        cl = self.c.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": n, "namespace": CANARY_NS},
                            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "oracle-canary", "resources": {"requests": {"storage": "1Gi"}}}})
        self.c.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": n},
                       "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "oracle-canary", "capacity": {"storage": "1Gi"},
                                "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "canary.invalid", "path": "/"},
                                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": CANARY_NS, "name": n, "uid": cl["metadata"]["uid"]}}})

    def canary_wait(self, timeout):
        t = time.monotonic()
        while True:
            if self.c.get("PersistentVolumeClaim", CANARY_NS, self.canary)["status"].get("phase") == "Bound":
                break
            if time.monotonic() - t > timeout or not self.ctl.alive():
                return None
            time.sleep(0.01)
        lat = time.monotonic() - t
        self.c.delete("PersistentVolumeClaim", CANARY_NS, self.canary)
        self.c.delete("PersistentVolume", None, self.canary)
        return lat

    def settle(self, least=0):
        quiet = self.run.a.settle
        start = begun = time.monotonic()
        stretch = 0
        while True:
            now = time.monotonic()
            if not self.ctl.alive() and self.ctl.p is not None:
                self.crashed = "controller exited: %s" % self.ctl.p.poll()
                raise Problem(self.crashed)
            if now - begun > self.run.a.max_settle:
                self.unsettled += 1
                return
            with self.run.lock:
                last = max(self.last, start)
            if now < last + quiet or now < begun + least:
                time.sleep(min(0.05, max(last + quiet - now, begun + least - now, 0.005)))
                continue
            if self.ctl.p is None:
                return
            self.canary_start()
            lat = self.canary_wait(max(quiet * 4, 10))
            if lat is None:
                self.api.append({"settle": "controller does not answer"})
                return
            with self.run.lock:
                if self.last > last:
                    continue
            if lat > quiet and stretch < 3:     # a slow machine or controller: look longer
                stretch, start = stretch + 1, time.monotonic()
                continue
            return

    # ---- reading

    def state(self):
        out = {"pvs": {}, "pvcs": {}}
        for kind, dst in (("PersistentVolume", "pvs"), ("PersistentVolumeClaim", "pvcs")):
            for o in self.c.list(kind)["items"]:
                if self.foreign(o["metadata"]):
                    continue
                o["kind"] = kind
                self.learn(o)
                n = norm.norm_object(o, self.namer)
                if kind == "PersistentVolumeClaim":
                    n["uid"] = self.namer.text(o["metadata"]["uid"])
                out[dst][self.namer.text(key_of(o))] = n
        if self.s.get("paths"):
            out["paths"] = {self.namer.text(p): os.path.lexists(p) for p in self.s["paths"]}
        return out

    def checkpoint(self, name):
        self.checkpoints.append({"at": name, "state": self.state()})

    def events(self):
        out = {}
        for e in self.c.list("Event")["items"]:
            if e["involvedObject"].get("kind") not in ("PersistentVolume", "PersistentVolumeClaim"):
                continue
            if self.foreign(e["involvedObject"]) or e["metadata"]["namespace"] == CANARY_NS:
                continue
            n = norm.norm_event(e, self.namer)
            out[norm.ev_key(n)] = n
        return [out[k] for k in sorted(out)]

    # ---- the whole

    def go(self):
        s, run = self.s, self.run
        run.clean()
        self.minrv = int(self.c.list("PersistentVolume")["metadata"]["resourceVersion"])
        for p in s.get("paths", []):
            fs("mkdir", p)
        for st in s.get("setup", []):
            fs(st["op"], st["path"])
        with run.lock:
            run.cur = self
        run.kubelet.start(s.get("kubelet"), self.minrv)
        log = os.path.join(run.work, "logs", s["name"].replace("/", "_") + ".log")
        try:
            os.unlink(log)
        except OSError:
            pass
        kc = run.kubeconfig
        if "proxy" in s:
            self.proxy = Proxy(run.target)
            self.proxy.set(self.deep(s["proxy"]))
            kc = os.path.join(run.work, "kubeconfig-proxy")
            with open(kc, "w") as f:
                json.dump(run.target.kubeconfig(self.proxy.url, plain=True), f)
        self.ctl = Controller(run.a.controller, kc, run.work, log, s.get("args", ""))
        try:
            for o in s.get("objects", []):
                self.create(o)
            if s.get("start", True):
                self.begin()
            for i, st in enumerate(s.get("steps", [])):
                self.do(i, st)
            if not s.get("steps") or s["steps"][-1]["do"] != "settle":
                self.settle(s.get("min_settle", 0))
                self.checkpoint("end")
            ev = self.events()
            pods = {}
            with run.kubelet.lock:
                for p in run.kubelet.specs:
                    pods[self.namer.text(p["metadata"]["name"])] = norm.norm_pod(p, self.namer)
            left = [p["metadata"]["name"] for p in self.c.list("Pod")["items"] if p["metadata"]["name"].startswith("recycler-for-")]
        finally:
            run.kubelet.finish()
            self.ctl.stop()
            with run.lock:
                run.cur = None
            if self.proxy:
                self.proxy.close()
            left_dirs = {self.namer.text(n): os.path.isdir(p) for n, p in self.hpdirs.items()}
            for p in self.hpdirs.values():
                shutil.rmtree(p, ignore_errors=True)
            shutil.rmtree(run.hp, ignore_errors=True)
        out = {"checkpoints": self.checkpoints}
        if left_dirs:
            out["hostpath_dirs"] = left_dirs
        if pods and not s.get("no_pods"):
            out["recycler_pods"] = pods
        if s.get("check_pods"):
            out["recycler_pods_left"] = sorted(left)
        if self.api:
            out["api"] = self.api
        if self.unsettled:
            out["unsettled"] = self.unsettled
        nev = [v for v in (self.violated(x) for x in s.get("never", [])) if v]
        if nev:
            out["never"] = sorted(set(nev))
        if self.proxy and s.get("check_hits"):
            out["fault_hit"] = self.proxy.hits > 0
        writes = collections.Counter()
        for (kind, k), h in self.history.items():
            writes[kind] += sum(1 for t, _, rv in h if t == "MODIFIED" and rv not in self.mine)
        hist = {"%s %s" % ({"PersistentVolume": "PV"}.get(kind, "PVC"), self.namer.text(k)): squeeze([p if t != "DELETED" else "gone" for t, p, _ in h])
                for (kind, k), h in sorted(self.history.items())}
        return {"outcome": out, "pods": pods, "events": ev, "writes": dict(sorted(writes.items())), "history": hist, "exits": self.ctl.exits}

    def violated(self, x):
        for (kind, k), h in self.history.items():
            if kind != x["kind"] or not re.fullmatch(x.get("name", ".*"), k):
                continue
            for t, phase, rv in h:
                if x.get("deleted") and t == "DELETED":
                    return "%s was deleted" % self.namer.text(k)
                if x.get("phase") and phase == x["phase"] and t != "DELETED" and rv not in self.mine:
                    return "%s was %s" % (self.namer.text(k), phase)
        return None


def squeeze(xs):
    out = []
    for x in xs:
        if not out or out[-1] != x:
            out.append(x)
    return out


def fs(op, path):
    """files for hostPath volumes; only below /tmp/oracle/hp-PID"""
    if not os.path.normpath(path).startswith("/tmp/oracle/hp-%d/" % os.getpid()):
        raise Problem("will not touch " + path)
    if op in ("rm", "replace-by-dir"):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)
    if op in ("mkdir", "replace-by-dir"):
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "data"), "w") as f:
            f.write("x")
    if op == "file":
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write("x")


# ---------------------------------------------------------------- golden

def waits(states, obj):
    """is this claim Pending in some settled state?"""
    k = obj[4:]
    return any(k in st["pvcs"] and st["pvcs"][k]["status"].get("phase") == "Pending" for st in states)


def transient(ev, states):
    return ev[0].startswith("PVC ") and ev[2] in norm.WAITING and not waits(states, ev[0])


def is_noise(ev):
    return bool(norm.NOISE.search(ev[3] or ""))


def canon(r, s):
    """outcome and events of one run in their canonical spelling"""
    both = norm.canonical({"o": r["outcome"], "e": r["events"]}, s.get("symmetric"))
    return both["o"], sorted(both["e"], key=norm.ev_key)


def eq_part(s, outcome):
    """split off what is compared by equivalence only (scenario member "equivalent": list of universe prefixes)"""
    prefixes = s.get("equivalent")
    if not prefixes:
        return outcome, None
    o = json.loads(json.dumps(outcome))
    eq = {}
    for cp in o["checkpoints"]:
        for p in prefixes:
            part = {"pvs": {}, "pvcs": {}}
            for k in list(cp["state"]["pvs"]):
                if p == "*" or k.startswith(p + "-"):
                    part["pvs"][k] = cp["state"]["pvs"].pop(k)
            for k in list(cp["state"]["pvcs"]):
                if p == "*" or k.startswith(p + "/"):
                    part["pvcs"][k] = cp["state"]["pvcs"].pop(k)
            eq.setdefault(p, []).append({"at": cp["at"], "state": part})
    return o, eq


def in_prefixes(obj, prefixes):
    kind, _, name = obj.partition(" ")
    return any(p == "*" or name.startswith(p + ("-" if kind == "PV" else "/")) for p in prefixes or [])


def fingerprint(s):
    """of the part of a scenario that decides what happens"""
    t = json.dumps({k: v for k, v in s.items() if k not in ("title", "source", "share", "area", "file", "optional_events", "choice", "upstream_bug", "slow", "min_version", "max_version")}, sort_keys=True)
    return hashlib.sha256(t.encode()).hexdigest()[:12]


def merge_golden(entry, s, r):
    """add one run to a golden entry"""
    o, ev = canon(r, s)
    o, eq = eq_part(s, o)
    states = [c["state"] for c in o["checkpoints"]]
    ev = [e for e in ev if not is_noise(e) and not in_prefixes(e[0], s.get("equivalent"))]
    must = {norm.ev_key(e) for e in ev if not transient(e, states)}
    all_ = {norm.ev_key(e) for e in ev}
    if entry is None or entry.get("of") != fingerprint(s):
        entry = {"runs": 0, "outcomes": [], "must": sorted(must), "may": [], "of": fingerprint(s)}
    else:
        must &= set(entry["must"])
        all_ |= set(entry["must"]) | set(entry["may"])
    entry["runs"] += 1
    if o not in entry["outcomes"]:
        entry["outcomes"].append(o)
    entry["must"], entry["may"] = sorted(must), sorted(all_ - must)
    if eq:
        w = entry.setdefault("equivalent", {})
        for p, cps in eq.items():
            for i, cp in enumerate(cps):
                sm = norm.summary(cp["state"])
                seen = w.setdefault(p, {}).setdefault(str(i), [])
                if sm not in seen:
                    seen.append(sm)
    entry["writes"] = r["writes"]
    entry["history"] = r["history"]
    return entry


def expectations(s, r):
    """scenario member "expect": [{"kind", "name" (regex), "path", "equals"}] on the last settled state (or kind "recycler pod"), whatever upstream did"""
    out = []
    st = r["outcome"]["checkpoints"][-1]["state"]
    for x in s.get("expect", []):
        t = r["pods"] if x["kind"] == "recycler pod" else st["pvs" if x["kind"] == "PersistentVolume" else "pvcs"]
        hits = [k for k in t if re.fullmatch(x["name"], k)]
        if len(hits) != x.get("count", len(hits)) or not hits and "count" not in x:
            out.append("expected %s objects named %s, found %d" % (x.get("count", "some"), x["name"], len(hits)))
        for k in hits:
            v = t[k]
            for p in x["path"].split(".") if x.get("path") else []:
                v = v.get(p) if isinstance(v, dict) else v[int(p)] if isinstance(v, list) else None
            if x.get("path") and v != x["equals"]:
                out.append("expected %s of %s to be %s, is %s" % (x["path"], k, json.dumps(x["equals"]), json.dumps(v)))
    return out


def optional(s, e):
    for o in s.get("optional_events", []):
        if all(re.search(o[f], (e[i] or "")) for i, f in ((0, "object"), (1, "type"), (2, "reason"), (3, "message")) if f in o):
            return True
    return False


def compare(entry, s, r, a):
    """list of differences to the golden"""
    o, ev = canon(r, s)
    raw = o
    o, eq = eq_part(s, o)
    out = []
    if o not in entry["outcomes"]:
        best = min((diff_outcome(w, o) for w in entry["outcomes"]), key=len)
        out += best
        if len(entry["outcomes"]) > 1:
            out.append("(%d outcomes are accepted; the nearest one is shown)" % len(entry["outcomes"]))
    if eq:
        wffc = [x["metadata"]["name"] for x in s.get("objects", []) if x["kind"] == "StorageClass" and x.get("volumeBindingMode") == "WaitForFirstConsumer"]
        for p, cps in eq.items():
            for i, cp in enumerate(cps):
                for b in norm.invariants(cp["state"], wffc):
                    out.append("[%s] %s: invariant: %s" % (cp["at"], p, b))
                seen = entry.get("equivalent", {}).get(p, {}).get(str(i), [])
                sm = norm.summary(cp["state"])
                if p in s.get("equal_counts", []) and seen and sm not in seen:
                    out.append("[%s] %s: counts %s, accepted %s" % (cp["at"], p, json.dumps(sm), json.dumps(seen)))
    if not a.no_events:
        states = [c["state"] for c in raw["checkpoints"]]
        got = [e for e in ev if not in_prefixes(e[0], s.get("equivalent"))]
        must = [json.loads(k) for k in entry["must"]]
        known = must + [json.loads(k) for k in entry["may"]]

        def same(want, e):
            if a.event_text == "exact" or len(want) != len(e):
                return want == e
            return want[:3] == e[:3] and e[3].startswith(want[3]) and want[4:] == e[4:]
        for w in must:
            if not any(same(w, e) for e in got) and not optional(s, w):
                out.append("event missing: %s" % json.dumps(w))
        for e in got:
            if not any(same(w, e) for w in known) and not optional(s, e) and not is_noise(e) and not transient(e, states):
                out.append("event unexpected: %s" % json.dumps(e))
    return out


def diff_outcome(want, got):
    out = []
    w, g = dict(want), dict(got)
    wc, gc = w.pop("checkpoints"), g.pop("checkpoints")
    for i in range(max(len(wc), len(gc))):
        if i >= len(wc) or i >= len(gc):
            out.append("number of settled states: want %d, got %d" % (len(wc), len(gc)))
            break
        out += ["[%s] %s" % (gc[i]["at"], d) for d in norm.differences(wc[i]["state"], gc[i]["state"])]
    return out + norm.differences(w, g)


def load(d):
    out = []
    for root, _, files in os.walk(d):
        for f in files:
            if f.endswith(".json"):
                with open(os.path.join(root, f)) as fh:
                    s = json.load(fh)
                s.setdefault("name", os.path.relpath(os.path.join(root, f), d)[:-5])
                s["file"] = os.path.join(root, f)
                out.append(s)
    return sorted(out, key=lambda s: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", s["name"])])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--server", required=True, help="URL of the kube-apiserver")
    p.add_argument("--ca")
    p.add_argument("--cert")
    p.add_argument("--key")
    p.add_argument("--token")
    p.add_argument("--controller", required=True, help="command line; {kubeconfig} and {dir} are substituted; resync period should be <= settle/2")
    p.add_argument("--scenarios", required=True)
    g = p.add_mutually_exclusive_group(required=True)
    g.add_argument("--record", metavar="FILE", help="write a new golden file")
    g.add_argument("--merge", metavar="FILE", help="add runs to a golden file (new outcomes become accepted, events seen only sometimes optional)")
    g.add_argument("--check", metavar="FILE", help="compare with a golden file")
    g.add_argument("--show", action="store_true", help="print what happens")
    p.add_argument("--only", metavar="REGEX", help="on the scenario name")
    p.add_argument("--shard", metavar="I/N", help="only every N-th scenario, from the I-th on (1 <= I <= N): for runs side by side")
    p.add_argument("--shared", action="store_true", help='only scenarios with "share": true')
    p.add_argument("--runs", type=int, default=1, help="runs of each scenario (--record, --merge, --check: every run must pass)")
    p.add_argument("--until", type=int, metavar="N", help="--merge: only scenarios that have been recorded fewer than N times")
    p.add_argument("--jobs", type=int, default=1, help="only 1: volumes are cluster-wide")
    p.add_argument("--settle", type=float, default=1.2, metavar="SECONDS", help="quiet time that counts as the end (1.2)")
    p.add_argument("--max-settle", type=float, default=30, metavar="SECONDS")
    p.add_argument("--start-timeout", type=float, default=60, metavar="SECONDS")
    p.add_argument("--event-text", choices=("prefix", "exact"), default="exact", help="prefix: an event may say more after upstream's text (a last part in square brackets is cut off in any case)")
    p.add_argument("--no-events", action="store_true", help="do not compare events")
    p.add_argument("--work", metavar="DIR", help="kubeconfig and controller logs (default: a new temporary directory)")
    p.add_argument("--wipe", action="store_true", help="allow a cluster that already holds objects: they are deleted")
    p.add_argument("--no-slow", action="store_true", help="leave out the scenarios that take more than ten seconds")
    p.add_argument("--upstream", action="store_true", help="the controller is upstream's own: leave out what it is known to get wrong")
    p.add_argument("--report", metavar="FILE", help="also write results as JSON")
    p.add_argument("--fail-fast", action="store_true")
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # through the finally blocks: no controller is left behind
    if a.jobs != 1:
        p.error("only --jobs 1 works: PersistentVolumes are cluster-wide")
    scenarios = [s for s in load(a.scenarios) if (not a.only or re.search(a.only, s["name"])) and (not a.shared or s.get("share"))]
    if a.shard:
        i, n = (int(x) for x in a.shard.split("/"))
        if not 1 <= i <= n:
            p.error("--shard wants I/N with 1 <= I <= N")
        scenarios = scenarios[i - 1::n]
    names = [s["name"] for s in scenarios]
    dup = {n for n in names if names.count(n) > 1}
    if dup:
        p.error("names used twice: %s" % sorted(dup))
    golden = {"meta": {}, "scenarios": {}}
    if a.check or a.merge and os.path.exists(a.merge):
        with open(a.check or a.merge) as f:
            golden = json.load(f)
    run = Run(a)
    print("# server %s, %d scenarios, work in %s" % (run.git, len(scenarios), run.work))
    passed = failed = skipped = 0
    tw = collections.Counter()
    report, t_all = [], time.monotonic()

    def vers(s, k):
        return tuple(int(x) for x in s[k].split(".")) if k in s else None
    for s in scenarios:
        lo, hi = vers(s, "min_version"), vers(s, "max_version")
        if lo and run.version < lo or hi and run.version > hi:
            print("skip %s (version)" % s["name"])
            skipped += 1
            continue
        entry = golden["scenarios"].get(s["name"])
        if a.record:
            entry = None
        if a.until and entry and entry.get("of") == fingerprint(s) and entry["runs"] >= a.until:
            continue
        if a.check and (entry is None or entry.get("of") != fingerprint(s)):
            print("skip %s (%s)" % (s["name"], "not in the golden file" if entry is None else "changed since it was recorded"))
            skipped += 1
            continue
        if s.get("slow") and a.no_slow or s.get("upstream_bug") and a.upstream:
            print("skip %s (%s)" % (s["name"], "slow" if s.get("slow") else "upstream itself fails here: " + s["upstream_bug"]))
            skipped += 1
            continue
        lines, t0 = [], time.monotonic()
        for n in range(a.runs):
            sc = Scenario(run, s)
            try:
                r = sc.go()
            except (Problem, ApiError) as e:
                lines.append("ERROR: %s" % e)
                if sc.crashed:
                    lines.append("(log: %s)" % sc.ctl.log.name)
                break
            except Exception:
                lines.append("ERROR in the harness: " + traceback.format_exc().strip().replace("\n", "\n     "))
                break
            if a.show:
                print(json.dumps(r, indent=1, sort_keys=True))
            elif a.check:
                lines += compare(entry, s, r, a) + expectations(s, r)
                for k in ("PersistentVolume", "PersistentVolumeClaim"):
                    tw["got " + k] += r["writes"].get(k, 0)
                    tw["want " + k] += entry["writes"].get(k, 0)
                if lines:
                    break
            else:
                entry = merge_golden(entry, s, r)
                golden["scenarios"][s["name"]] = entry
        dt = time.monotonic() - t0
        note = ""
        if (a.record or a.merge) and entry:
            if len(entry["outcomes"]) > 1:
                note += "  UNSTABLE: %d outcomes" % len(entry["outcomes"])
            if any(o.get("unsettled") for o in entry["outcomes"]):
                note += "  NEVER SETTLES"
        if lines and a.check and s.get("choice") and not any(x.startswith("ERROR") for x in lines):
            passed += 1
            print("ok   %s  (%.1f s)  differs from upstream, which is allowed: %s" % (s["name"], dt, s["choice"]))
            for x in lines:
                print("     " + x)
        elif lines:
            failed += 1
            print("DIFF %s  (%.1f s)" % (s["name"], dt))
            for x in lines:
                print("     " + x)
            if s.get("title"):
                print("     # %s" % s["title"])
        else:
            passed += 1
            print("ok   %s  (%.1f s)%s" % (s["name"], dt, note))
        sys.stdout.flush()
        report.append({"name": s["name"], "ok": not lines, "diff": lines, "seconds": round(dt, 2)})
        if a.record or a.merge:
            golden["meta"] = {"server": run.git, "settle": a.settle, "controller": a.controller}
            if len(report) % 25 == 0:
                save(golden, a.record or a.merge)
        if lines and a.fail_fast:
            break
    with run.lock:
        run.cur = None
    run.clean()
    if a.record or a.merge:
        save(golden, a.record or a.merge)
    if a.report:
        with open(a.report, "w") as f:
            json.dump(report, f, indent=1)
    if a.check and passed:
        print("# writes by the controller: PV %d (golden %d), PVC %d (golden %d)" % (
            tw["got PersistentVolume"], tw["want PersistentVolume"], tw["got PersistentVolumeClaim"], tw["want PersistentVolumeClaim"]))
    print("# %.0f s%s" % (time.monotonic() - t_all, ", %d skipped" % skipped if skipped else ""))
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed else 0)


def save(golden, path):
    """one scenario a line: small diffs, quick to read"""
    with open(path + ".tmp", "w") as f:
        f.write('{"meta": %s,\n"scenarios": {\n' % json.dumps(golden["meta"], sort_keys=True))
        f.write(",\n".join("%s: %s" % (json.dumps(k), json.dumps(v, sort_keys=True)) for k, v in sorted(golden["scenarios"].items())))
        f.write("\n}}\n")
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()
