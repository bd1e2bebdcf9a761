#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One set of expectations about a Kubernetes API server, for the real one and for berth-devapi.

  conformance.py --kubeconfig FILE [--only REGEX] [--compact COMMAND] [-v]

Every case makes a namespace of its own and leaves nothing behind that disturbs another. The last line is
"N passed, N failed"; exit status 0 when none failed. conformance.sh runs it against either server."""
import argparse
import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CORE = "/api/v1"
STORAGE = "/apis/storage.k8s.io/v1"
SNAPSHOT = "/apis/snapshot.storage.k8s.io/v1"
LEASES = "/apis/coordination.k8s.io/v1"
CASES = []


class Server:
    def __init__(self, kubeconfig):
        text = open(kubeconfig).read()

        def value(key):
            m = re.search(r"(?:^|[\s{,])%s:\s*([^\s,}]+)" % key, text)
            return m.group(1).strip("\"'") if m else None

        def as_file(key):
            data = value(key + "-data")
            if not data:
                return value(key)
            f = tempfile.NamedTemporaryFile(delete=False, prefix="conformance-")
            f.write(base64.b64decode(data))
            f.close()
            self.files.append(f.name)
            return f.name
        self.files = []
        url = urllib.parse.urlparse(value("server"))
        self.host, self.port, self.tls = url.hostname, url.port, None
        self.token = value("token")
        if url.scheme == "https":
            self.tls = ssl.create_default_context(cafile=as_file("certificate-authority"))
            self.tls.check_hostname = False
            cert, key = as_file("client-certificate"), as_file("client-key")
            if cert:
                self.tls.load_cert_chain(cert, key)
        self.connection = None
        self.is_devapi = self("GET", "/devapi/state")[0] == 200
        self.minor = int(re.sub(r"\D", "", self("GET", "/version")[1]["minor"]))

    def close(self):
        for f in self.files:
            os.unlink(f)

    def connect(self, timeout=30):
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def headers(self, accept="application/json", ctype=None):
        h = {"Accept": accept, "User-Agent": "conformance"}
        if self.token:
            h["Authorization"] = "Bearer " + self.token
        if ctype:
            h["Content-Type"] = ctype
        return h

    def __call__(self, method, path, body=None, ctype="application/json", accept="application/json"):
        data = None
        if body is not None:
            data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        for attempt in (0, 1):
            try:
                if self.connection is None:
                    self.connection = self.connect()
                self.connection.request(method, path, data, self.headers(accept, ctype if data is not None else None))
                r = self.connection.getresponse()
                raw = r.read()
                self.last_headers = r.headers
                break
            except (http.client.HTTPException, OSError):
                self.connection = None
                if attempt:
                    raise
        try:
            return r.status, json.loads(raw) if raw else {}
        except ValueError:
            return r.status, {"text": raw.decode("utf-8", "replace")}


class Watch:
    def __init__(self, server, path, timeout=10):
        self.c = server.connect(timeout)
        self.c.request("GET", path, headers=server.headers())
        self.r = self.c.getresponse()
        self.status = self.r.status

    def next(self):
        """the next event, or None at the end of the stream"""
        line = self.r.readline()
        return json.loads(line) if line.strip() else None

    def take(self, n):
        return [self.next() for _ in range(n)]

    def close(self):
        self.c.close()


class Failure(Exception):
    pass


class Context:
    """What a case gets: the server, a namespace, unique names, and checks."""

    def __init__(self, server, number):
        self.s, self.id = server, "conf%d-%d" % (number, int(time.time() * 1000) % 100000)
        self.ns, self.cleanup = self.id, []
        self.pvcs = "%s/namespaces/%s/persistentvolumeclaims" % (CORE, self.ns)
        self.pvs = CORE + "/persistentvolumes"
        self.cms = "%s/namespaces/%s/configmaps" % (CORE, self.ns)
        self.pods = "%s/namespaces/%s/pods" % (CORE, self.ns)
        self.events = "%s/namespaces/%s/events" % (CORE, self.ns)
        self.leases = "%s/namespaces/%s/leases" % (LEASES, self.ns)
        self.classes = STORAGE + "/storageclasses"
        self.ok("POST", CORE + "/namespaces", {"metadata": {"name": self.ns}}, code=201)

    def name(self, n):
        return "%s-%s" % (self.id, n)

    def ok(self, method, path, body=None, ctype="application/json", code=200, accept="application/json"):
        got, o = self.s(method, path, body, ctype, accept)
        if got != code:
            raise Failure("%s %s: want %d, got %d: %s" % (method, path, code, got, json.dumps(o)[:400]))
        if method == "POST" and got == 201 and o.get("metadata", {}).get("name"):
            if "/namespaces/" not in path and path != CORE + "/namespaces":
                self.cleanup.append(path.split("?")[0] + "/" + o["metadata"]["name"])
        return o

    def refused(self, code, reason, method, path, body=None, ctype="application/json", message=None, **kw):
        o = self.ok(method, path, body, ctype, code=code, **kw)
        self.same(o.get("kind"), "Status", "kind")
        self.same(o.get("status"), "Failure", "status")
        self.same(o.get("code"), code, "code")
        self.same(o.get("reason"), reason, "reason of %s" % o.get("message"))
        if message and not re.search(message, o.get("message", "")):
            raise Failure("message %r does not match %r" % (o.get("message"), message))
        return o

    def same(self, got, want, what=""):
        if got != want:
            raise Failure("%s: want %s, got %s" % (what, json.dumps(want), json.dumps(got)))

    def true(self, value, what):
        if not value:
            raise Failure(what)

    def watch(self, path, query="", timeout=10):
        w = Watch(self.s, path + "?watch=true" + query, timeout)
        self.same(w.status, 200, "status of the watch")
        return w

    def eventually(self, what, check, seconds=15):
        end = time.monotonic() + seconds
        while not check():
            if time.monotonic() > end:
                raise Failure("did not happen in %d s: %s" % (seconds, what))
            time.sleep(0.05)

    def gone(self, path, seconds=15):
        self.eventually(path + " is gone", lambda: self.s("GET", path)[0] == 404, seconds)

    # objects
    def pv(self, n, **spec):
        s = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
        s.update(spec)
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.name(n)},
                "spec": {k: v for k, v in s.items() if v is not None}}

    def pvc(self, n, **spec):
        s = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
        s.update(spec)
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": n, "namespace": self.ns},
                "spec": {k: v for k, v in s.items() if v is not None}}

    def cm(self, n, labels=None, **data):
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": n, "labels": labels or {}}, "data": data}

    def pod(self, n, **spec):
        s = {"containers": [{"name": "c", "image": "busybox:1"}]}
        s.update(spec)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": n, "namespace": self.ns}, "spec": s}

    def finish(self):
        for path in reversed(self.cleanup):
            self.s("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            self.s("DELETE", path, {"gracePeriodSeconds": 0})
        for path in (self.pods, self.pvcs):
            for o in self.s("GET", path)[1].get("items", []):
                p = path + "/" + o["metadata"]["name"]
                self.s("PATCH", p, {"metadata": {"finalizers": None}}, MERGE)
                self.s("DELETE", p, {"gracePeriodSeconds": 0})
        self.s("DELETE", CORE + "/namespaces/" + self.ns)


def case(f):
    CASES.append((f.__name__, f))
    return f


def since(minor):
    def wrap(f):
        f.since = minor
        return f
    return wrap


# ---------------------------------------------------------------- create, get

@case
def create_fills_metadata(t):
    o = t.ok("POST", t.pvs, t.pv("v"), code=201)
    m = o["metadata"]
    t.true(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", m["uid"]), "uid is a uuid")
    t.true(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", m["creationTimestamp"]), "creationTimestamp")
    t.true(int(m["resourceVersion"]) > 0, "resourceVersion")
    t.same((o["kind"], o["apiVersion"]), ("PersistentVolume", "v1"), "type")
    t.same(t.ok("GET", t.pvs + "/" + m["name"])["metadata"]["uid"], m["uid"], "uid read back")
    t.true("generation" not in m, "volumes have no generation")


@case
def create_without_type_meta(t):
    t.same(t.ok("POST", t.cms, {"metadata": {"name": "a"}, "data": {"k": "v"}}, code=201)["kind"], "ConfigMap", "kind")


@case
def create_wrong_kind(t):
    t.refused(400, "BadRequest", "POST", t.cms, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})


@case
def create_bad_json(t):
    t.refused(400, "BadRequest", "POST", t.cms, "{\"metadata\":")


@case
def create_exists(t):
    t.ok("POST", t.cms, t.cm("a"), code=201)
    o = t.refused(409, "AlreadyExists", "POST", t.cms, t.cm("a"), message='^configmaps "a" already exists$')
    t.same(o["details"], {"name": "a", "kind": "configmaps"}, "details")


@case
def create_exists_with_group(t):
    c = {"metadata": {"name": t.name("c")}, "provisioner": "x.example.com/y"}
    t.ok("POST", t.classes, c, code=201)
    o = t.refused(409, "AlreadyExists", "POST", t.classes, c,
                  message='^storageclasses.storage.k8s.io "%s" already exists$' % t.name("c"))
    t.same(o["details"], {"name": t.name("c"), "group": "storage.k8s.io", "kind": "storageclasses"}, "details")


@case
def create_generate_name(t):
    names = set()
    for _ in range(3):
        o = t.ok("POST", t.cms, {"metadata": {"generateName": "gen-"}}, code=201)
        t.true(re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", o["metadata"]["name"]), o["metadata"]["name"])
        t.same(o["metadata"]["generateName"], "gen-", "generateName")
        names.add(o["metadata"]["name"])
    t.same(len(names), 3, "different names")


@case
def create_without_name(t):
    t.refused(422, "Invalid", "POST", t.cms, {"metadata": {}}, message="name or generateName is required")


@case
def create_bad_names(t):
    for bad in ("Big", "under_score", "-dash", "dash-", "a..b", "x" * 254):
        o = t.refused(422, "Invalid", "POST", t.cms, t.cm(bad))
        t.true("metadata.name" in [c["field"] for c in o["details"]["causes"]], "cause names the field")


@case
def create_bad_labels(t):
    for key, value in (("a b", "x"), ("a", "b c"), ("/x", "y"), ("a/b/c", "x"), ("a", "-b")):
        t.refused(422, "Invalid", "POST", t.cms, t.cm("a", {key: value}), message="metadata.labels")


@case
def create_other_namespace(t):
    o = t.cm("a")
    o["metadata"]["namespace"] = "other"
    t.refused(400, "BadRequest", "POST", t.cms, o, message="namespace of the provided object does not match")


@case
def create_in_missing_namespace(t):
    t.refused(404, "NotFound", "POST", CORE + "/namespaces/%s/configmaps" % t.name("nope"), t.cm("a"),
              message='^namespaces "%s" not found$' % t.name("nope"))


@case
def create_with_version(t):
    o = t.cm("a")
    o["metadata"]["resourceVersion"] = "7"
    got = t.s("POST", t.cms, o)
    t.true(got[0] >= 400 and "resourceVersion should not be set" in got[1]["message"], got)


@case
def get_missing(t):
    o = t.refused(404, "NotFound", "GET", t.cms + "/nope", message='^configmaps "nope" not found$')
    t.same(o["details"], {"name": "nope", "kind": "configmaps"}, "details")


@case
def no_such_resource(t):
    t.s("GET", CORE + "/nonsense")
    t.same(t.s("GET", CORE + "/nonsense")[0], 404, "code")
    t.same(t.s("GET", "/apis/nonsense.example.com/v1/things")[0], 404, "code")
    t.same(t.s("GET", STORAGE + "/storageclasses/a/status")[0], 404, "no status subresource")


@case
def nulls_and_empties_vanish(t):
    o = t.pv("v", storageClassName="", mountOptions=[], claimRef={"name": "c", "namespace": "d", "uid": ""})
    o["metadata"].update({"labels": {}, "annotations": None, "finalizers": []})
    o["spec"]["nodeAffinity"] = None
    r = t.ok("POST", t.pvs, o, code=201)
    for k in ("labels", "annotations"):
        t.true(k not in r["metadata"], k)
    for k in ("storageClassName", "mountOptions", "nodeAffinity"):
        t.true(k not in r["spec"], k)
    t.same(r["spec"]["claimRef"], {"name": "c", "namespace": "d"}, "claimRef")


@case
def unicode_is_kept(t):
    text = "\"q\"\n\t\u00e4\u6f22\U0001F600 \\ </x>"
    t.ok("POST", t.cms, t.cm("a", a=text), code=201)
    t.same(t.ok("GET", t.cms + "/a")["data"]["a"], text, "data")


# ---------------------------------------------------------------- defaults

@case
def volume_defaults(t):
    o = t.ok("POST", t.pvs, dict(t.pv("v"), status={"phase": "Bound"}), code=201)
    t.same(o["spec"]["persistentVolumeReclaimPolicy"], "Retain", "policy")
    t.same(o["spec"]["volumeMode"], "Filesystem", "mode")
    t.same(o["spec"]["hostPath"], {"path": "/x", "type": ""}, "hostPath")
    t.same(o["status"]["phase"], "Pending", "status is reset")
    t.same(o["metadata"]["finalizers"], ["kubernetes.io/pv-protection"], "protection")


@case
def iscsi_default(t):
    o = t.pv("v", hostPath=None, iscsi={"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:s", "lun": 0})
    t.same(t.ok("POST", t.pvs, o, code=201)["spec"]["iscsi"]["iscsiInterface"], "default", "interface")


@case
def claim_defaults(t):
    o = t.ok("POST", t.pvcs, dict(t.pvc("c"), status={"phase": "Bound"}), code=201)
    t.same(o["spec"]["volumeMode"], "Filesystem", "mode")
    t.same(o["status"], {"phase": "Pending"}, "status")
    t.same(o["metadata"]["finalizers"], ["kubernetes.io/pvc-protection"], "protection")


@case
def class_defaults(t):
    o = t.ok("POST", t.classes, {"metadata": {"name": t.name("c")}, "provisioner": "x/y"}, code=201)
    t.same((o["reclaimPolicy"], o["volumeBindingMode"]), ("Delete", "Immediate"), "defaults")


@case
def default_class_admission(t):
    key = "storageclass.kubernetes.io/is-default-class"
    t.ok("POST", t.classes, {"metadata": {"name": t.name("def"), "annotations": {key: "true"}}, "provisioner": "x/y"}, code=201)
    t.eventually("the default class is used", lambda: t.s("POST", t.pvcs + "?dryRun=All", t.pvc("a", storageClassName=None))[1]
                 .get("spec", {}).get("storageClassName") == t.name("def"))
    o = t.ok("POST", t.pvcs, t.pvc("b", storageClassName=""), code=201)
    t.same(o["spec"]["storageClassName"], "", "an empty class stays")
    p = t.pvc("d", storageClassName=None)
    p["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "x"}
    t.true("storageClassName" not in t.ok("POST", t.pvcs, p, code=201)["spec"], "the old annotation counts as a class")


@case
def pod_defaults(t):
    o = t.ok("POST", t.pods, t.pod("p", volumes=[{"name": "v", "hostPath": {"path": "/x"}}, {"name": "e"},
                                                 {"name": "s", "secret": {"secretName": "s"}}]), code=201)
    s = o["spec"]
    t.same((s["restartPolicy"], s["dnsPolicy"], s["schedulerName"], s["terminationGracePeriodSeconds"]),
           ("Always", "ClusterFirst", "default-scheduler", 30), "pod")
    c = s["containers"][0]
    t.same((c["imagePullPolicy"], c["terminationMessagePath"], c["terminationMessagePolicy"], c["resources"]),
           ("IfNotPresent", "/dev/termination-log", "File", {}), "container")
    v = {x["name"]: x for x in s["volumes"]}
    t.same(v["v"]["hostPath"], {"path": "/x", "type": ""}, "hostPath")
    t.same(v["e"]["emptyDir"], {}, "emptyDir")
    t.same(v["s"]["secret"]["defaultMode"], 420, "defaultMode")
    t.same((o["status"]["phase"], o["status"]["qosClass"]), ("Pending", "BestEffort"), "status")


@case
def secret_string_data(t):
    path = "%s/namespaces/%s/secrets" % (CORE, t.ns)
    o = t.ok("POST", path, {"metadata": {"name": "s"}, "stringData": {"a": "hello"}}, code=201)
    t.same((o["type"], o["data"], "stringData" in o), ("Opaque", {"a": "aGVsbG8="}, False), "secret")


@case
def quantities(t):
    for i, (text, want) in enumerate([
            ("1Gi", "1Gi"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("0001Gi", "0001Gi"), ("01023Mi", "01023Mi"), ("1500m", "1500m"), ("1E3", "1E3"),
            ("1e3", "1e3"), ("12e5", "1200e3"), ("100n", "1m"), ("0.5Gi", "512Mi"), ("800E", "800E"), ("8Ei", "9223372036854775807"),
            ("9223372036854775807", "9223372036854775807"), (1024, "1024"), (1000, "1k"), ("1000000", "1M"), ("1024", "1024"), ("10E", "10E"),
            (".5", "500m"), ("1.", "1."), ("+1Gi", "+1Gi"), ("010", "010"), ("1000m", "1"), ("1.10", "1100m"), ("5e-1", "500e-3"),
            ("0.25Ki", "256"), ("0.3Gi", "322122547200m"), ("1.2345Mi", "1294467072m"), ("1000000Mi", "1000000Mi"), ("1Ei", "1Ei")]):
        code, o = t.s("POST", t.pvs, t.pv("q%d" % i, capacity={"storage": text}))
        if code == 201:
            t.cleanup.append(t.pvs + "/" + t.name("q%d" % i))
        got = o["spec"]["capacity"]["storage"] if code == 201 else code
        t.same(got, want, "stored form of %s" % text)


@case
def bad_quantities(t):
    for text, code in (("0", 422), ("-1Gi", 422), ("9223372036854775808", 422), ("1Gb", 400), ("abc", 400), ("1 Gi", 400), ("", 400)):
        got, o = t.s("POST", t.pvs, t.pv("q", capacity={"storage": text}))
        t.same(got, code, "code for %r (%s)" % (text, o.get("message")))


# ---------------------------------------------------------------- validation

@case
def volume_needs(t):
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", accessModes=None), message="spec.accessModes: Required value")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", capacity=None), message="spec.capacity: Required value")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", hostPath=None), message="must specify a volume type")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", nfs={"server": "a", "path": "/b"}), message="may not specify more than 1 volume type")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", hostPath=None, csi={"driver": "a"}), message="spec.csi.volumeHandle: Required value")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", hostPath=None, nfs={"server": "a", "path": "b"}), message="must be an absolute path")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", volumeMode="X"), message="Unsupported value: \"X\"")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", accessModes=["X"]), message="Unsupported value: \"X\"")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", persistentVolumeReclaimPolicy="X"), message="Unsupported value: \"X\"")
    t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", hostPath=None, local={"path": "/x"}), message="nodeAffinity: Required value")


@case
def claim_needs(t):
    t.refused(422, "Invalid", "POST", t.pvcs, t.pvc("c", accessModes=None), message="spec.accessModes: Required value")
    t.refused(422, "Invalid", "POST", t.pvcs, t.pvc("c", resources={}), message=r"spec.resources\[storage\]: Required value")
    t.refused(422, "Invalid", "POST", t.pvcs, t.pvc("c", resources={"requests": {"storage": "0"}}), message="greater than zero")
    t.refused(422, "Invalid", "POST", t.pvcs, t.pvc("c", storageClassName="A_b"), message="spec.storageClassName")
    t.refused(422, "Invalid", "POST", t.pvcs, t.pvc("c", volumeMode="X"), message="Unsupported value")
    t.refused(422, "Invalid", "POST", t.pvcs, t.pvc("c", selector={"matchExpressions": [{"key": "a", "operator": "In"}]}))


@case
def several_errors(t):
    o = t.refused(422, "Invalid", "POST", t.pvs, t.pv("v", accessModes=None, hostPath=None), message=r"is invalid: \[.*, .*\]$")
    t.same(sorted(c["reason"] for c in o["details"]["causes"]), ["FieldValueRequired", "FieldValueRequired"], "causes")
    t.same(o["details"]["kind"], "PersistentVolume", "kind in details")


@case
def volume_source_is_immutable(t):
    p = t.pvs + "/" + t.ok("POST", t.pvs, t.pv("v"), code=201)["metadata"]["name"]
    t.refused(422, "Invalid", "PATCH", p, {"spec": {"hostPath": {"path": "/y"}}}, MERGE, message="is immutable after creation")
    t.refused(422, "Invalid", "PATCH", p, {"spec": {"volumeMode": "Block"}}, MERGE, message="volumeMode.*immutable")
    o = t.ok("PATCH", p, {"spec": {"capacity": {"storage": "2Gi"}, "persistentVolumeReclaimPolicy": "Delete",
                                   "claimRef": {"namespace": "a", "name": "b"}}}, MERGE)
    t.same(o["spec"]["capacity"]["storage"], "2Gi", "the rest may change")


@case
def claim_spec_is_immutable(t):
    t.ok("POST", t.pvcs, t.pvc("c"), code=201)
    for spec in ({"accessModes": ["ReadWriteMany"]}, {"storageClassName": "other"}, {"selector": {"matchLabels": {"a": "b"}}},
                 {"resources": {"requests": {"storage": "2Gi"}}}, {"volumeMode": "Block"}):
        t.refused(422, "Invalid", "PATCH", t.pvcs + "/c", {"spec": spec}, MERGE, message="spec.*(F|f)orbidden|immutable")
    t.ok("PATCH", t.pvcs + "/c", {"spec": {"volumeName": "v"}}, MERGE)
    t.refused(422, "Invalid", "PATCH", t.pvcs + "/c", {"spec": {"volumeName": "w"}}, MERGE)
    t.refused(422, "Invalid", "PATCH", t.pvcs + "/c", {"spec": {"volumeName": None}}, MERGE)


@case
def class_is_immutable(t):
    t.ok("POST", t.classes, {"metadata": {"name": t.name("c")}, "provisioner": "x/y", "parameters": {"a": "b"}}, code=201)
    p = t.classes + "/" + t.name("c")
    for patch in ({"provisioner": "z/y"}, {"parameters": {"a": "c"}}, {"reclaimPolicy": "Retain"}, {"volumeBindingMode": "WaitForFirstConsumer"}):
        t.refused(422, "Invalid", "PATCH", p, patch, MERGE)
    t.same(t.ok("PATCH", p, {"allowVolumeExpansion": True}, MERGE)["allowVolumeExpansion"], True, "expansion may change")
    t.refused(422, "Invalid", "POST", t.classes, {"metadata": {"name": t.name("d")}}, message="provisioner: Required value")


@case
def event_namespace(t):
    e = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "other", "name": "x"}, "reason": "R", "message": "m"}
    t.refused(422, "Invalid", "POST", t.events, e, message="does not match event.namespace")
    e["involvedObject"]["namespace"] = t.ns
    o = t.ok("POST", t.events, e, code=201)
    t.same((o["firstTimestamp"], o["eventTime"], o["source"], o["reportingComponent"]), (None, None, {}, ""), "null times")


@case
def events_have_two_groups(t):
    e = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": t.ns, "name": "x"}, "reason": "R", "message": "m", "type": "Normal"}
    t.ok("POST", t.events, e, code=201)
    o = t.ok("GET", "/apis/events.k8s.io/v1/namespaces/%s/events/e" % t.ns)
    t.same((o["note"], o["regarding"]["name"], o["apiVersion"]), ("m", "x", "events.k8s.io/v1"), "event")


@case
def lease_numbers(t):
    t.refused(422, "Invalid", "POST", t.leases, {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}}, message="must be greater than 0")


# ---------------------------------------------------------------- update

@case
def update_conflict(t):
    o = t.ok("POST", t.cms, t.cm("a", x="1"), code=201)
    o["data"]["x"] = "2"
    n = t.ok("PUT", t.cms + "/a", o)
    t.true(int(n["metadata"]["resourceVersion"]) > int(o["metadata"]["resourceVersion"]), "the version grows")
    t.same(n["metadata"]["uid"], o["metadata"]["uid"], "uid")
    o["data"]["x"] = "3"
    r = t.refused(409, "Conflict", "PUT", t.cms + "/a", o,
                  message="^Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again$")
    t.same(r["details"], {"name": "a", "kind": "configmaps"}, "details")


@case
def update_unconditional(t):
    t.ok("POST", t.cms, t.cm("a", x="1"), code=201)
    t.same(t.ok("PUT", t.cms + "/a", t.cm("a", x="2"))["data"], {"x": "2"}, "data")


@case
def update_same_is_no_write(t):
    o = t.ok("POST", t.cms, t.cm("a", x="1"), code=201)
    t.same(t.ok("PUT", t.cms + "/a", o)["metadata"]["resourceVersion"], o["metadata"]["resourceVersion"], "version")
    t.same(t.ok("PATCH", t.cms + "/a", {"data": {"x": "1"}}, MERGE)["metadata"]["resourceVersion"], o["metadata"]["resourceVersion"], "version")


@case
def update_uid_mismatch(t):
    o = t.ok("POST", t.cms, t.cm("a"), code=201)
    o["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    del o["metadata"]["resourceVersion"]
    t.refused(409, "Conflict", "PUT", t.cms + "/a", o, message="Precondition failed: UID in precondition")


@case
def update_other_name(t):
    t.ok("POST", t.cms, t.cm("a"), code=201)
    t.refused(400, "BadRequest", "PUT", t.cms + "/a", t.cm("b"), message="does not match the name on the URL")


@case
def update_missing(t):
    t.refused(404, "NotFound", "PUT", t.cms + "/nope", t.cm("nope"))


@case
def lease_is_created_by_put(t):
    o = t.ok("PUT", t.leases + "/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}, code=201)
    t.same(o["spec"]["holderIdentity"], "a", "holder")
    t.refused(422, "Invalid", "PUT", t.leases + "/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "b"}}, message="must be specified for an update")


@case
def creation_time_stays(t):
    o = t.ok("POST", t.cms, t.cm("a"), code=201)
    n = t.ok("PATCH", t.cms + "/a", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"a": "b"}}}, MERGE)
    t.same(n["metadata"]["creationTimestamp"], o["metadata"]["creationTimestamp"], "creationTimestamp")


# ---------------------------------------------------------------- status

@case
def status_and_spec_are_separate(t):
    p = t.pvs + "/" + t.ok("POST", t.pvs, t.pv("v"), code=201)["metadata"]["name"]
    o = t.ok("PATCH", p, {"status": {"phase": "Available"}, "metadata": {"labels": {"a": "b"}}}, MERGE)
    t.same((o["status"]["phase"], o["metadata"]["labels"]), ("Pending", {"a": "b"}), "main ignores status")
    o = t.ok("PATCH", p + "/status", {"status": {"phase": "Available", "message": "m"}, "spec": {"capacity": {"storage": "9Gi"}}}, MERGE)
    t.same((o["status"]["phase"], o["status"]["message"], o["spec"]["capacity"]["storage"]), ("Available", "m", "1Gi"), "status ignores spec")
    t.same(t.ok("GET", p + "/status")["status"]["phase"], "Available", "get status")
    o = t.ok("PATCH", p + "/status", {"status": {"message": ""}}, MERGE)
    t.true("message" not in o["status"], "empty message is dropped")


@case
def status_put_checks_version(t):
    t.ok("POST", t.pvcs, t.pvc("c"), code=201)
    o = t.ok("GET", t.pvcs + "/c")
    o["status"] = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    t.same(t.ok("PUT", t.pvcs + "/c/status", o)["status"], o["status"], "status")
    t.refused(409, "Conflict", "PUT", t.pvcs + "/c/status", o)


@case
def status_conditions(t):
    t.ok("POST", t.pvcs, t.pvc("c"), code=201)
    o = t.ok("PATCH", t.pvcs + "/c/status", {"status": {"conditions": [{"type": "Resizing", "status": "True"}]}}, MERGE)
    t.same(o["status"]["conditions"], [{"type": "Resizing", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}], "conditions")
    o = t.ok("PATCH", t.pvcs + "/c/status", {"status": {"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}}, STRATEGIC)
    t.same(sorted(c["type"] for c in o["status"]["conditions"]), ["FileSystemResizePending", "Resizing"], "merged by type")


@since(29)
@case
def phase_time(t):
    p = t.pvs + "/" + t.ok("POST", t.pvs, t.pv("v"), code=201)["metadata"]["name"]
    t.true("lastPhaseTransitionTime" in t.ok("PATCH", p + "/status", {"status": {"phase": "Bound"}}, MERGE)["status"], "time")


@case
def bound_claim_may_grow(t):
    t.ok("POST", t.classes, {"metadata": {"name": t.name("x")}, "provisioner": "x/y", "allowVolumeExpansion": True}, code=201)
    t.ok("POST", t.pvcs, t.pvc("c", storageClassName=t.name("x"), volumeName="v"), code=201)
    t.ok("PATCH", t.pvcs + "/c/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}, MERGE)
    o = t.ok("PATCH", t.pvcs + "/c", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, MERGE)
    t.same(o["spec"]["resources"]["requests"]["storage"], "2Gi", "size")


# ---------------------------------------------------------------- patch

@case
def merge_patch(t):
    t.ok("POST", t.cms, t.cm("a", {"l": "1", "m": "2"}, x="1", y="2"), code=201)
    o = t.ok("PATCH", t.cms + "/a", {"data": {"x": None, "z": "3"}, "metadata": {"labels": {"l": None}, "finalizers": ["a.b/c"]}}, MERGE)
    t.same((o["data"], o["metadata"]["labels"], o["metadata"]["finalizers"]), ({"y": "2", "z": "3"}, {"m": "2"}, ["a.b/c"]), "patched")
    t.ok("PATCH", t.cms + "/a", {"metadata": {"finalizers": None}}, MERGE)


@case
def merge_patch_with_version(t):
    o = t.ok("POST", t.cms, t.cm("a"), code=201)
    v = o["metadata"]["resourceVersion"]
    t.ok("PATCH", t.cms + "/a", {"metadata": {"resourceVersion": v}, "data": {"a": "b"}}, MERGE)
    for kind in (MERGE, STRATEGIC):
        t.refused(409, "Conflict", "PATCH", t.cms + "/a", {"metadata": {"resourceVersion": v}, "data": {"a": "c"}}, kind,
                  message="the object has been modified")


@case
def patch_with_uid(t):
    o = t.ok("POST", t.cms, t.cm("a"), code=201)
    t.ok("PATCH", t.cms + "/a", {"metadata": {"uid": o["metadata"]["uid"], "labels": {"a": "b"}}}, MERGE)
    t.refused(422, "Invalid", "PATCH", t.cms + "/a", {"metadata": {"uid": "other"}}, MERGE, message="metadata.uid: Invalid value.*field is immutable")


@case
def json_patch(t):
    t.ok("POST", t.cms, t.cm("a", {"l": "1"}, x="1"), code=201)
    o = t.ok("PATCH", t.cms + "/a", [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"},
                                     {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}, {"op": "copy", "from": "/data/x", "path": "/data/y"},
                                     {"op": "move", "from": "/data/y", "path": "/data/z"}, {"op": "remove", "path": "/metadata/labels/l"}], JSON)
    t.same((o["data"], o["metadata"]["labels"]), ({"x": "2", "z": "2"}, {"a/b": "c"}), "patched")
    t.refused(422, "Invalid", "PATCH", t.cms + "/a", [{"op": "test", "path": "/data/x", "value": "1"}], JSON)
    t.refused(422, "Invalid", "PATCH", t.cms + "/a", [{"op": "remove", "path": "/data/nope"}], JSON)
    t.true(t.s("PATCH", t.cms + "/a", {"data": {}}, JSON)[0] in (400, 500), "an object is no JSON patch (500 in old servers)")


@case
def strategic_finalizers(t):
    o = t.cm("a")
    o["metadata"]["finalizers"] = ["a.b/one", "a.b/two"]
    t.ok("POST", t.cms, o, code=201)
    p = t.cms + "/a"
    o = t.ok("PATCH", p, {"metadata": {"finalizers": ["a.b/three"]}}, STRATEGIC)
    t.same(sorted(o["metadata"]["finalizers"]), ["a.b/one", "a.b/three", "a.b/two"], "added to the set")
    o = t.ok("PATCH", p, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/two"]}}, STRATEGIC)
    t.same(sorted(o["metadata"]["finalizers"]), ["a.b/one", "a.b/three"], "taken from the set")
    o = t.ok("PATCH", p, {"metadata": {"$setElementOrder/finalizers": ["a.b/three", "a.b/one"], "finalizers": ["a.b/three", "a.b/one"]}}, STRATEGIC)
    t.same(o["metadata"]["finalizers"], ["a.b/three", "a.b/one"], "ordered")
    o = t.ok("PATCH", p, {"metadata": {"finalizers": None}}, STRATEGIC)
    t.true("finalizers" not in o["metadata"], "null removes")


@case
def strategic_owners(t):
    def owner(n):
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": n, "uid": "00000000-0000-4000-8000-00000000000" + n}
    o = t.cm("a")
    o["metadata"]["ownerReferences"] = [owner("1")]
    t.ok("POST", t.cms + "?dryRun=All", o, code=201)
    del o["metadata"]["ownerReferences"]
    t.ok("POST", t.cms, o, code=201)
    o = t.ok("PATCH", t.cms + "/a?dryRun=All", {"metadata": {"ownerReferences": [owner("1"), owner("2")]}}, STRATEGIC)
    t.same([x["name"] for x in o["metadata"]["ownerReferences"]], ["1", "2"], "owners")
    t.true("ownerReferences" not in t.ok("GET", t.cms + "/a")["metadata"], "dry run leaves nothing")


@case
def strategic_containers(t):
    t.ok("POST", t.pods, t.pod("p", containers=[{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:1"}]), code=201)
    o = t.ok("PATCH", t.pods + "/p", {"spec": {"containers": [{"name": "b", "image": "j:2"}]}}, STRATEGIC)
    t.same([(c["name"], c["image"]) for c in o["spec"]["containers"]], [("a", "i:1"), ("b", "j:2")], "merged by name")


@case
def patch_other_types(t):
    t.ok("POST", t.cms, t.cm("a"), code=201)
    t.same(t.s("PATCH", t.cms + "/a", {"data": {}}, "application/json")[0], 415, "plain JSON is no patch")
    t.refused(404, "NotFound", "PATCH", t.cms + "/nope", {"data": {}}, MERGE)
    t.true(t.s("PATCH", t.cms + "/a", "{", MERGE)[0] in (400, 500), "half a patch (500 in old servers)")


@case
def pod_spec_is_immutable(t):
    t.ok("POST", t.pods, t.pod("p"), code=201)
    t.refused(422, "Invalid", "PATCH", t.pods + "/p", {"spec": {"nodeName": "n"}}, MERGE, message="pod updates may not change fields")
    t.ok("POST", t.pods + "/p/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}, code=201)
    t.same(t.ok("GET", t.pods + "/p")["spec"]["nodeName"], "n1", "bound")
    t.refused(409, "Conflict", "POST", t.pods + "/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n2"}})


# ---------------------------------------------------------------- delete

@case
def delete_plain(t):
    o = t.ok("POST", t.cms, t.cm("a"), code=201)
    r = t.ok("DELETE", t.cms + "/a")
    t.same((r["kind"], r["status"], r["details"]["uid"]), ("Status", "Success", o["metadata"]["uid"]), "answer")
    t.refused(404, "NotFound", "DELETE", t.cms + "/a")


@case
def delete_preconditions(t):
    o = t.ok("POST", t.cms, t.cm("a"), code=201)
    t.refused(409, "Conflict", "DELETE", t.cms + "/a", {"preconditions": {"uid": "other"}}, message="UID in (the )?precondition")
    t.refused(409, "Conflict", "DELETE", t.cms + "/a", {"preconditions": {"resourceVersion": "1"}}, message="ResourceVersion in (the )?precondition")
    t.ok("DELETE", t.cms + "/a", {"preconditions": {"uid": o["metadata"]["uid"], "resourceVersion": o["metadata"]["resourceVersion"]}})


@case
def delete_waits_for_finalizers(t):
    o = t.cm("a")
    o["metadata"]["finalizers"] = ["a.b/c"]
    t.ok("POST", t.cms, o, code=201)
    r = t.ok("DELETE", t.cms + "/a")
    m = t.ok("GET", t.cms + "/a")["metadata"]
    t.true("deletionTimestamp" in m and m["deletionGracePeriodSeconds"] == 0, "marked")
    v = m["resourceVersion"]
    t.ok("DELETE", t.cms + "/a")
    t.same(t.ok("GET", t.cms + "/a")["metadata"]["resourceVersion"], v, "a second delete changes nothing")
    t.refused(422, "Invalid", "PATCH", t.cms + "/a", {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}, MERGE, message="no new finalizers can be added")
    t.ok("PATCH", t.cms + "/a", {"data": {"still": "editable"}}, MERGE)
    t.ok("PATCH", t.cms + "/a", {"metadata": {"finalizers": None}}, MERGE)
    t.refused(404, "NotFound", "GET", t.cms + "/a")


@case
def delete_pod_gracefully(t):
    t.ok("POST", t.pods, t.pod("free"), code=201)
    t.ok("DELETE", t.pods + "/free")
    t.refused(404, "NotFound", "GET", t.pods + "/free")
    t.ok("POST", t.pods, t.pod("bound", nodeName="n"), code=201)
    r = t.ok("DELETE", t.pods + "/bound")
    t.same(r["metadata"]["deletionGracePeriodSeconds"], 30, "grace")
    t.ok("DELETE", t.pods + "/bound", {"gracePeriodSeconds": 0})
    t.refused(404, "NotFound", "GET", t.pods + "/bound")


@case
def delete_collection(t):
    for n in "abc":
        t.ok("POST", t.cms, t.cm(n, {"x": "1" if n != "c" else "2"}), code=201)
    t.ok("DELETE", t.cms + "?labelSelector=x%3D1")
    left = [o["metadata"]["name"] for o in t.ok("GET", t.cms + "?labelSelector=x")["items"]]
    t.same(left, ["c"], "left")


@case
def delete_namespace(t):
    n = t.name("sub")
    t.ok("POST", CORE + "/namespaces", {"metadata": {"name": n}}, code=201)
    cms = CORE + "/namespaces/%s/configmaps" % n
    o = t.cm("a")
    o["metadata"]["finalizers"] = ["a.b/c"]
    t.ok("POST", cms, o, code=201)
    t.same(t.ok("DELETE", CORE + "/namespaces/" + n)["status"]["phase"], "Terminating", "phase")
    t.eventually("content is deleted", lambda: "deletionTimestamp" in t.ok("GET", cms + "/a")["metadata"])
    t.refused(403, "Forbidden", "POST", cms, t.cm("b"), message="because it is being terminated")
    t.ok("PATCH", cms + "/a", {"metadata": {"finalizers": None}}, MERGE)
    t.gone(CORE + "/namespaces/" + n, 30)


@case
def protected_claim(t):
    t.ok("POST", t.pvcs, t.pvc("used"), code=201)
    t.ok("POST", t.pvcs, t.pvc("free"), code=201)
    t.ok("POST", t.pods, t.pod("p", nodeName="n", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]), code=201)
    time.sleep(0.3 if not t.s.is_devapi else 0)
    t.ok("DELETE", t.pvcs + "/free")
    t.ok("DELETE", t.pvcs + "/used")
    t.gone(t.pvcs + "/free")
    time.sleep(0.5)
    t.true("deletionTimestamp" in t.ok("GET", t.pvcs + "/used")["metadata"], "held by the pod")
    t.ok("DELETE", t.pods + "/p", {"gracePeriodSeconds": 0})
    t.gone(t.pvcs + "/used")


@case
def protected_volume(t):
    p = t.pvs + "/" + t.ok("POST", t.pvs, t.pv("v"), code=201)["metadata"]["name"]
    t.ok("PATCH", p + "/status", {"status": {"phase": "Bound"}}, MERGE)
    time.sleep(0.3 if not t.s.is_devapi else 0)
    t.ok("DELETE", p)
    time.sleep(0.5)
    t.true("deletionTimestamp" in t.ok("GET", p)["metadata"], "held while bound")
    t.ok("PATCH", p + "/status", {"status": {"phase": "Released"}}, MERGE)
    t.gone(p)


@case
def dependents_follow(t):
    owner = t.ok("POST", t.cms, t.cm("owner"), code=201)["metadata"]
    child = t.cm("child")
    child["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}]
    t.ok("POST", t.cms, child, code=201)
    time.sleep(0.5 if not t.s.is_devapi else 0)
    t.ok("DELETE", t.cms + "/owner")
    t.gone(t.cms + "/child", 60)


@case
def dependents_are_orphaned(t):
    owner = t.ok("POST", t.cms, t.cm("owner"), code=201)["metadata"]
    child = t.cm("child")
    child["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}]
    t.ok("POST", t.cms, child, code=201)
    time.sleep(0.5 if not t.s.is_devapi else 0)
    t.ok("DELETE", t.cms + "/owner", {"propagationPolicy": "Orphan"})
    t.gone(t.cms + "/owner", 60)
    t.true("ownerReferences" not in t.ok("GET", t.cms + "/child")["metadata"], "the reference is cut")


@case
def foreground_deletion(t):
    owner = t.ok("POST", t.cms, t.cm("owner"), code=201)["metadata"]
    child = t.cm("child")
    child["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"], "blockOwnerDeletion": True}]
    child["metadata"]["finalizers"] = ["a.b/c"]
    t.ok("POST", t.cms, child, code=201)
    time.sleep(0.5 if not t.s.is_devapi else 0)
    t.ok("DELETE", t.cms + "/owner", {"propagationPolicy": "Foreground"})
    t.true("foregroundDeletion" in t.ok("GET", t.cms + "/owner")["metadata"]["finalizers"], "waits for the child")
    t.eventually("the child is deleted", lambda: "deletionTimestamp" in t.ok("GET", t.cms + "/child")["metadata"], 60)
    t.ok("PATCH", t.cms + "/child", {"metadata": {"finalizers": None}}, MERGE)
    t.gone(t.cms + "/owner", 60)


# ---------------------------------------------------------------- list

def fill(t, n=5):
    for i in range(n):
        t.ok("POST", t.cms, t.cm("m%d" % i, {"case": t.id, "even": str(i % 2 == 0).lower(), "n": str(i)}), code=201)
    return t.cms + "?labelSelector=case%3D" + t.id


def names(o):
    return [i["metadata"]["name"] for i in o["items"]]


@case
def list_shape(t):
    fill(t, 2)
    o = t.ok("GET", t.cms)
    t.same((o["kind"], o["apiVersion"]), ("ConfigMapList", "v1"), "type")
    t.true("kind" not in o["items"][0] and "apiVersion" not in o["items"][0], "items have no type")
    t.true(int(o["metadata"]["resourceVersion"]) >= int(o["items"][0]["metadata"]["resourceVersion"]), "version of the list")
    t.same(t.ok("GET", "%s/namespaces/%s/secrets?labelSelector=nope" % (CORE, t.ns))["items"], [], "an empty list is a list")


@case
def list_all_namespaces(t):
    fill(t, 1)
    o = t.ok("GET", CORE + "/configmaps?labelSelector=case%3D" + t.id)
    t.same([(i["metadata"]["namespace"], i["metadata"]["name"]) for i in o["items"]], [(t.ns, "m0")], "items")


@case
def list_label_selectors(t):
    fill(t)
    for selector, want in (("even=true", "m0 m2 m4"), ("even!=true", "m1 m3"), ("n in (1,2)", "m1 m2"), ("n notin (1,2),case", "m0 m3 m4"),
                           ("case,!nope", "m0 m1 m2 m3 m4"), ("even==true,n!=0", "m2 m4"), ("nope", "")):
        got = names(t.ok("GET", t.cms + "?labelSelector=" + urllib.parse.quote("case=%s,%s" % (t.id, selector))))
        t.same(" ".join(got), want, selector)
    t.refused(400, "BadRequest", "GET", t.cms + "?labelSelector=" + urllib.parse.quote("a in (b"))


@case
def list_field_selectors(t):
    t.ok("POST", t.pods, t.pod("a", nodeName="n1"), code=201)
    t.ok("POST", t.pods, t.pod("b"), code=201)
    for selector, want in (("metadata.name=a", ["a"]), ("metadata.name!=a", ["b"]), ("spec.nodeName=n1", ["a"]), ("spec.nodeName=", ["b"]),
                           ("status.phase=Pending,spec.nodeName!=n1", ["b"]), ("metadata.namespace=" + t.ns, ["a", "b"]), ("status.phase=Running", [])):
        t.same(names(t.ok("GET", t.pods + "?fieldSelector=" + urllib.parse.quote(selector))), want, selector)
    t.refused(400, "BadRequest", "GET", t.pods + "?fieldSelector=spec.nope%3Dx", message="field label not supported")
    for n in ("x", "y"):
        t.ok("POST", t.events, {"metadata": {"name": n}, "involvedObject": {"kind": "Pod", "namespace": t.ns, "name": n, "uid": "u" + n}, "reason": "R" + n,
                                "message": "m", "type": "Normal", "source": {"component": "c"}}, code=201)
    for selector in ("involvedObject.name=x", "involvedObject.uid=ux", "reason=Rx", "involvedObject.kind=Pod,reason=Rx", "source=c,reason=Rx"):
        t.same(names(t.ok("GET", t.events + "?fieldSelector=" + urllib.parse.quote(selector))), ["x"], selector)


@case
def list_pages(t):
    path = fill(t)
    o = t.ok("GET", path + "&limit=2")
    t.same(names(o), ["m0", "m1"], "first page")
    version, token = o["metadata"]["resourceVersion"], o["metadata"]["continue"]
    t.ok("DELETE", t.cms + "/m2")
    t.ok("POST", t.cms, t.cm("m25", {"case": t.id}), code=201)
    t.ok("PATCH", t.cms + "/m3", {"data": {"later": "yes"}}, MERGE)
    o = t.ok("GET", path + "&limit=2&continue=" + urllib.parse.quote(token))
    t.same(names(o), ["m2", "m3"], "second page shows the old state")
    t.true("data" not in o["items"][1], "and the old content")
    t.same(o["metadata"]["resourceVersion"], version, "version of the pages")
    o = t.ok("GET", path + "&limit=2&continue=" + urllib.parse.quote(o["metadata"]["continue"]))
    t.same((names(o), "continue" in o["metadata"]), (["m4"], False), "last page")
    t.refused(400, "BadRequest", "GET", path + "&limit=2&continue=nonsense")


@case
def list_remaining(t):
    for i in range(4):
        t.ok("POST", t.leases, {"metadata": {"name": "l%d" % i}}, code=201)
    o = t.ok("GET", t.leases + "?limit=1")
    t.same(o["metadata"]["remainingItemCount"], 3, "remaining")


@case
def list_at_version(t):
    path = fill(t, 2)
    version = t.ok("GET", path)["metadata"]["resourceVersion"]
    t.ok("DELETE", t.cms + "/m1")
    t.same(names(t.ok("GET", path + "&resourceVersionMatch=Exact&resourceVersion=" + version)), ["m0", "m1"], "exact")
    t.same(names(t.ok("GET", path + "&resourceVersionMatch=NotOlderThan&resourceVersion=" + version)), ["m0"], "not older")
    o = t.refused(504, "Timeout", "GET", t.cms + "?resourceVersion=%d" % (int(version) + 100000), message="Too large resource version")
    t.same(o["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "cause")


# ---------------------------------------------------------------- watch

@case
def watch_from_version(t):
    path = fill(t, 1)
    version = t.ok("GET", path)["metadata"]["resourceVersion"]
    t.ok("POST", t.cms, t.cm("n", {"case": t.id}), code=201)
    t.ok("PATCH", t.cms + "/n", {"data": {"a": "b"}}, MERGE)
    t.ok("DELETE", t.cms + "/n")
    w = t.watch(t.cms, "&labelSelector=case%3D" + t.id + "&resourceVersion=" + version)
    events = w.take(3)
    t.same([e["type"] for e in events], ["ADDED", "MODIFIED", "DELETED"], "types")
    t.same([e["object"]["metadata"]["name"] for e in events], ["n"] * 3, "names")
    t.same((events[0]["object"]["kind"], events[0]["object"]["apiVersion"]), ("ConfigMap", "v1"), "events carry the type")
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    t.same(versions, sorted(set(versions)), "versions grow, also with the deletion")
    t.ok("POST", t.cms, t.cm("o", {"case": t.id}), code=201)
    t.same(w.next()["object"]["metadata"]["name"], "o", "live")
    w.close()


@case
def watch_from_nothing(t):
    path = fill(t, 2)
    for query in ("", "&resourceVersion=0"):
        w = t.watch(t.cms, "&labelSelector=case%3D" + t.id + query)
        events = w.take(2)
        t.same(sorted((e["type"], e["object"]["metadata"]["name"]) for e in events), [("ADDED", "m0"), ("ADDED", "m1")], "present state")
        w.close()


@case
def watch_selection(t):
    path = fill(t, 1)
    version = t.ok("GET", path)["metadata"]["resourceVersion"]
    w = t.watch(t.cms, "&labelSelector=in%3Dyes&resourceVersion=" + version)
    t.ok("PATCH", t.cms + "/m0", {"metadata": {"labels": {"in": "yes"}}}, MERGE)
    t.ok("PATCH", t.cms + "/m0", {"data": {"a": "b"}}, MERGE)
    out = t.ok("PATCH", t.cms + "/m0", {"metadata": {"labels": {"in": "no"}}}, MERGE)
    events = w.take(3)
    t.same([e["type"] for e in events], ["ADDED", "MODIFIED", "DELETED"], "enters, changes, leaves")
    t.same(events[2]["object"]["metadata"]["labels"]["in"], "yes", "leaves in its last selected state")
    t.same(events[2]["object"]["metadata"]["resourceVersion"], out["metadata"]["resourceVersion"], "with the version of the change")
    w.close()


@case
def watch_one_object(t):
    fill(t, 2)
    version = t.ok("GET", t.cms)["metadata"]["resourceVersion"]
    w = t.watch(t.cms, "&fieldSelector=metadata.name%3Dm1&resourceVersion=" + version)
    t.ok("PATCH", t.cms + "/m0", {"data": {"a": "b"}}, MERGE)
    t.ok("PATCH", t.cms + "/m1", {"data": {"a": "b"}}, MERGE)
    t.same(w.next()["object"]["metadata"]["name"], "m1", "name")
    w.close()


@case
def watch_timeout(t):
    version = t.ok("GET", t.cms)["metadata"]["resourceVersion"]
    start = time.monotonic()
    w = t.watch(t.cms, "&timeoutSeconds=1&labelSelector=nope&resourceVersion=" + version)
    t.same(w.next(), None, "ends in good order")
    t.true(0.8 < time.monotonic() - start < 5, "after a second")


@case
def watch_bookmarks(t):
    version = t.ok("GET", t.cms)["metadata"]["resourceVersion"]
    w = t.watch(t.cms, "&timeoutSeconds=5&allowWatchBookmarks=true&resourceVersion=" + version, 15)
    t.ok("POST", t.cms, t.cm("a"), code=201)
    seen = []
    while True:
        e = w.next()
        if e is None:
            break
        seen.append(e)
    marks = [e for e in seen if e["type"] == "BOOKMARK"]
    t.true(marks, "a bookmark comes before the end: %s" % [e["type"] for e in seen])
    t.same(marks[0]["object"]["kind"], "ConfigMap", "kind")
    t.true(int(marks[-1]["object"]["metadata"]["resourceVersion"]) > int(version), "version of the bookmark")


@case
def watch_deleted_finalizer(t):
    o = t.cm("a")
    o["metadata"]["finalizers"] = ["a.b/c"]
    version = t.ok("POST", t.cms, o, code=201)["metadata"]["resourceVersion"]
    w = t.watch(t.cms, "&resourceVersion=" + version)
    t.ok("DELETE", t.cms + "/a")
    t.ok("PATCH", t.cms + "/a", {"metadata": {"finalizers": None}}, MERGE)
    t.same([e["type"] for e in w.take(2)], ["MODIFIED", "DELETED"], "types")
    w.close()


# ---------------------------------------------------------------- other output, discovery

@case
def tables(t):
    t.ok("POST", t.pvcs, t.pvc("c"), code=201)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    o = t.ok("GET", t.pvcs, accept=accept)
    t.same(o["kind"], "Table", "kind")
    columns = [c["name"] for c in o["columnDefinitions"]]
    for want in ("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "Age"):
        t.true(want in columns, "column " + want)
    cells = dict(zip(columns, o["rows"][0]["cells"]))
    t.same((cells["Name"], cells["Status"], cells["StorageClass"]), ("c", "Pending", "none"), "cells")
    t.same(o["rows"][0]["object"]["kind"], "PartialObjectMetadata", "object")


@case
def partial_metadata(t):
    fill(t, 1)
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    o = t.ok("GET", t.cms + "/m0", accept=accept)
    t.same((o["kind"], o["apiVersion"], o["metadata"]["name"], "data" in o), ("PartialObjectMetadata", "meta.k8s.io/v1", "m0", False), "object")


@case
def discovery(t):
    t.same(t.ok("GET", "/api")["versions"], ["v1"], "versions")
    groups = {g["name"]: [v["version"] for v in g["versions"]] for g in t.ok("GET", "/apis")["groups"]}
    for g in ("storage.k8s.io", "coordination.k8s.io", "events.k8s.io"):
        t.true("v1" in groups[g], g)
    r = {x["name"]: x for x in t.ok("GET", CORE)["resources"]}
    t.same((r["persistentvolumes"]["namespaced"], r["persistentvolumes"]["kind"], r["persistentvolumes"]["shortNames"]), (False, "PersistentVolume", ["pv"]), "pv")
    t.same(sorted(r["persistentvolumeclaims/status"]["verbs"]), ["get", "patch", "update"], "status verbs")
    t.same(t.ok("GET", "/apis/storage.k8s.io")["preferredVersion"]["version"], "v1", "preferred")
    t.same(t.s("GET", "/apis/nope.example.com")[0], 404, "no such group")
    t.same(t.s("GET", "/readyz")[1].get("text"), "ok", "readyz")


@case
def dry_run(t):
    o = t.ok("POST", t.cms + "?dryRun=All", t.cm("a"), code=201)
    t.true(o["metadata"]["uid"], "looks real")
    t.refused(404, "NotFound", "GET", t.cms + "/a")
    t.ok("POST", t.cms, t.cm("a"), code=201)
    t.same(t.ok("PATCH", t.cms + "/a?dryRun=All", {"data": {"x": "y"}}, MERGE)["data"], {"x": "y"}, "answer")
    t.ok("DELETE", t.cms + "/a?dryRun=All")
    t.true("data" not in t.ok("GET", t.cms + "/a"), "nothing happened")


# ---------------------------------------------------------------- custom resources

CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {
    "name": "volumesnapshots.snapshot.storage.k8s.io", "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/665"}},
    "spec": {"group": "snapshot.storage.k8s.io", "scope": "Namespaced", "names": {"plural": "volumesnapshots", "singular": "volumesnapshot", "kind": "VolumeSnapshot",
             "listKind": "VolumeSnapshotList", "shortNames": ["vs"]}, "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
             "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


@case
def custom_resource(t):
    path = "%s/namespaces/%s/volumesnapshots" % (SNAPSHOT, t.ns)
    if not t.s.is_devapi:
        t.s("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
        t.eventually("the custom resource is served", lambda: t.s("GET", path)[0] == 200)
    kind = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"}
    o = t.ok("POST", path, dict(kind, metadata={"name": "s"}, spec={"source": {"persistentVolumeClaimName": "c"}}, status={"readyToUse": True}), code=201)
    t.same((o["metadata"]["generation"], "status" in o), (1, False), "generation, no status")
    o = t.ok("PATCH", path + "/s", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    t.same(o["metadata"]["generation"], 1, "metadata does not count")
    o = t.ok("PATCH", path + "/s", {"spec": {"volumeSnapshotClassName": "x"}}, MERGE)
    t.same(o["metadata"]["generation"], 2, "spec counts")
    o = t.ok("PATCH", path + "/s/status", {"status": {"readyToUse": True}, "metadata": {"labels": {"a": "c"}}}, MERGE)
    t.same((o["metadata"]["generation"], o["status"], o["metadata"]["labels"]), (2, {"readyToUse": True}, {"a": "b"}), "status")
    t.same(t.s("PATCH", path + "/s", {"spec": {}}, STRATEGIC)[0], 415, "no strategic merge")
    l = t.ok("GET", path)
    t.same((l["kind"], l["items"][0]["kind"]), ("VolumeSnapshotList", "VolumeSnapshot"), "items carry their type")
    del o["metadata"]["resourceVersion"]
    t.refused(422, "Invalid", "PUT", path + "/s", o, message="must be specified for an update")


# ---------------------------------------------------------------- compaction: last, it may restart the server

@case
def zz_compaction(t):
    if not t.s.is_devapi and not t.compact:
        raise Skip("no --compact command")
    path = fill(t, 4)
    o = t.ok("GET", path + "&limit=2")
    version, token = o["metadata"]["resourceVersion"], o["metadata"]["continue"]
    t.ok("PATCH", t.cms + "/m0", {"data": {"a": "b"}}, MERGE)
    if t.s.is_devapi:
        t.ok("POST", "/devapi/compact", {})
    else:
        subprocess.run(t.compact, shell=True, check=True, stdout=subprocess.DEVNULL)
        t.eventually("the server is back", lambda: ready(t.s), 60)
    w = t.watch(t.cms, "&resourceVersion=" + version)
    e = w.next()
    t.same((e["type"], e["object"]["kind"], e["object"]["code"], e["object"]["reason"]), ("ERROR", "Status", 410, "Expired"), "watch")
    t.true(re.search("too old resource version", e["object"]["message"]), e["object"]["message"])
    t.same(w.next(), None, "and the end")
    r = t.refused(410, "Expired", "GET", path + "&limit=2&continue=" + urllib.parse.quote(token), message="continue parameter is too old")
    rest = t.ok("GET", path + "&limit=2&continue=" + urllib.parse.quote(r["metadata"]["continue"]))
    t.same(names(rest), ["m2", "m3"], "the inconsistent rest")


def ready(server):
    try:
        return server("GET", "/readyz")[0] == 200
    except OSError:
        return False


class Skip(Exception):
    pass


def run(server, number, name, f, args):
    t = None
    start = time.monotonic()
    try:
        if server.minor < getattr(f, "since", 0):
            raise Skip("needs 1.%d" % f.since)
        t = Context(server, number)
        t.compact = args.compact
        f(t)
        result = "ok"
    except Skip as e:
        result = "skip"
        print("skip %s (%s)" % (name, e))
    except Exception as e:  # a bug in a case is a failure like any other
        result = "FAIL"
        print("FAIL %s: %s" % (name, e if isinstance(e, Failure) else traceback.format_exc()))
    if t:
        t.finish()
    if result == "ok" and args.verbose:
        print("ok   %s (%.2f s)" % (name, time.monotonic() - start))
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--kubeconfig", required=True)
    p.add_argument("--only", default="", help="regular expression on the name of a case")
    p.add_argument("--compact", default="", help="shell command that makes a real server forget its history")
    p.add_argument("-v", "--verbose", action="store_true")
    args = p.parse_args()
    server = Server(args.kubeconfig)
    results = [run(server, i, n, f, args) for i, (n, f) in enumerate(CASES) if re.search(args.only, n)]
    server.close()
    print("%d passed, %d failed" % (results.count("ok"), results.count("FAIL")))
    return 1 if "FAIL" in results or "ok" not in results else 0


if __name__ == "__main__":
    sys.exit(main())
