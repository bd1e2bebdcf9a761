# SPDX-License-Identifier: Apache-2.0
"""What the provisioner's tests run in: an API server, the scripted driver, a small binder, and the provisioner."""
import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time

import harness
from harness import BUILD, ApiError, Process, expect, free_port, wait_for

DRIVER = "fake.csi.berth"
GA = "volume.kubernetes.io/storage-provisioner"
SELECTED = "volume.kubernetes.io/selected-node"
CODES = ["OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
         "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
         "Internal", "Unavailable", "DataLoss", "Unauthenticated"]
BACKGROUND = {1, 4, 10, 14}


class Driver:
    """The scripted driver (tests/fakecsi) and its control socket."""

    def __init__(self, directory, name=DRIVER, capabilities="", args=()):
        self.directory = directory
        self.socket = os.path.join(directory, "csi.sock")
        self.control = os.path.join(directory, "control.sock")
        self.process = Process("driver", [
            os.path.join(BUILD, "berth-fakecsi"), "--endpoint=unix://" + self.socket, "--control=" + self.control,
            "--state=" + os.path.join(directory, "volumes.json"), "--name=" + name,
            "--capabilities=CONTROLLER_SERVICE,CREATE_DELETE_VOLUME" + ("," + capabilities if capabilities else ""),
            *args], os.path.join(directory, "driver.log"))
        wait_for("the driver's sockets", lambda: os.path.exists(self.control) and os.path.exists(self.socket), 10)

    def command(self, **command):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(self.control)
            s.sendall(json.dumps(command).encode() + b"\n")
            with s.makefile("r") as f:
                reply = json.loads(f.readline())
        expect("error" not in reply, f"driver: {reply.get('error')}")
        return reply

    def script(self, method, *steps):
        self.command(cmd="script", method=method, steps=list(steps))

    def calls(self, method, subject=""):
        return [c for c in self.command(cmd="calls")["calls"] if c["method"] == method and subject in c["subject"]]

    def volumes(self, name=""):
        return [v for v in self.command(cmd="volumes")["volumes"].values() if name in v["name"]]


class Binder:
    """The part of the control plane the provisioner works with: annotates claims, binds them to the volumes made for
    them, releases volumes whose claims are gone. Deliberately simple: it looks at everything every 30 ms."""

    def __init__(self, api):
        self.api = api
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopping.wait(0.03):
            with contextlib.suppress(ApiError, OSError, harness.http.client.HTTPException):
                self.round()

    def round(self):
        claims = self.api.request("GET", "/api/v1/persistentvolumeclaims")["items"]
        volumes = self.api.list("pv")
        by_uid = {c["metadata"]["uid"]: c for c in claims}
        for volume in volumes:
            with contextlib.suppress(ApiError):
                self.look_at_volume(volume, by_uid)

    def look_at_volume(self, volume, claims):
        name, reference = volume["metadata"]["name"], volume["spec"].get("claimRef")
        phase = volume["status"].get("phase")
        if not reference:
            if phase != "Available":
                self.api.patch("pv", name, {"status": {"phase": "Available"}}, sub="status")
            return
        claim = claims.get(reference.get("uid"))
        if claim is None:
            if phase != "Released" and not self.lives(reference):
                self.api.patch("pv", name, {"status": {"phase": "Released"}}, sub="status")
            return
        space, claim_name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        if phase != "Bound":
            self.api.patch("pv", name, {"status": {"phase": "Bound"}}, sub="status")
        if not claim["spec"].get("volumeName"):
            self.api.patch("pvc", claim_name, {"spec": {"volumeName": name}}, space)
        if claim["spec"].get("volumeName", name) == name and claim.get("status", {}).get("phase") != "Bound":
            self.api.patch("pvc", claim_name, {"status": {"phase": "Bound"}}, space, sub="status")

    def lives(self, reference):
        claim = self.api.get("pvc", reference["name"], reference["namespace"])
        return claim is not None and claim["metadata"]["uid"] == reference.get("uid")

    def stop(self):
        self.stopping.set()
        self.thread.join()


class Lab:
    """One of everything. `args` are for the provisioner."""

    def __init__(self, capabilities="", args=(), driver_args=(), env=None, start=True, sort="devapi", name=DRIVER):
        self.directory = tempfile.mkdtemp(prefix="berth-prov-")
        self.args, self.env, self.extra = list(args), dict(env or {}), []
        self.driver = self.binder = self.server = self.provisioner = None
        try:
            self.server = harness.Server(sort, os.path.join(self.directory, "server"))
            self.api = self.server.api
            self.driver = Driver(self.directory, name, capabilities, driver_args)
            self.binder = Binder(self.api)
            if start:
                self.start()
        except BaseException:
            self.close()
            raise

    def start(self, *args, key="provisioner", wait=True, driver=None, host=None):
        """host: the host name it believes in, which makes its identity for leader election (needs root)."""
        port = free_port()
        wrap = ["unshare", "--uts", "sh", "-c", f"hostname {host} && exec \"$@\"", "sh"] if host else []
        process = Process(key, [
            *wrap, os.path.join(BUILD, "berth-provisioner"), "--csi-address=" + (driver or self.driver).socket,
            f"--http-endpoint=127.0.0.1:{port}", "--kube-api-qps=1000", "--kube-api-burst=1000",
            "--retry-interval-start=50ms", "--retry-interval-max=200ms", "--timeout=2s", "-v=3", *self.args, *args],
            os.path.join(self.directory, key + ".log"),
            {"KUBECONFIG": self.server.kubeconfig, "POD_NAMESPACE": "default", **self.env})
        process.port = port
        if key == "provisioner":
            self.provisioner = process
        else:
            self.extra.append(process)
        if wait:
            wait_for("the provisioner", lambda: "\"Started\"" in process.log_text() or not process.alive(), 15)
            expect(process.alive(), "the provisioner ended: " + process.log_text()[-2000:])
        return process

    def restart(self):
        """After it was killed."""
        self.provisioner.popen.wait(20)
        os.replace(self.provisioner.log, self.provisioner.log + ".old")
        return self.start()

    def http(self, path, process=None):
        connection = harness.http.client.HTTPConnection("127.0.0.1", (process or self.provisioner).port, timeout=5)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def metric(self, name, process=None):
        """Sum over all samples whose name and labels start with this."""
        lines = [l for l in self.http("/metrics", process)[1].splitlines() if l.startswith(name)]
        return sum(float(l.rsplit(" ", 1)[1]) for l in lines)

    def fault(self, **spec):
        return self.api.request("POST", "/devapi/faults", spec)["id"]

    def clear_faults(self):
        self.api.request("DELETE", "/devapi/faults")

    def journal(self, **query):
        text = "&".join(f"{k}={v}" for k, v in query.items())
        return self.api.request("GET", "/devapi/journal?" + text)["items"]

    def create_class(self, name="fake", **fields):
        return self.api.create("sc", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                                      "metadata": {"name": name}, "provisioner": DRIVER,
                                      "parameters": {"kind": "fast"}, **fields})

    def create_claim(self, name, annotate=True, size="1Gi", cls="fake", annotations=None, labels=None, **spec):
        """annotate=False: nobody works on it before self.annotate()."""
        notes = {**({GA: DRIVER} if annotate else {}), **(annotations or {})}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                 "metadata": {"name": name, "annotations": notes, "labels": labels or {}},
                 "spec": {"storageClassName": cls, "accessModes": ["ReadWriteOnce"],
                          "resources": {"requests": {"storage": size}}, **spec}}
        return self.api.create("pvc", claim)

    def annotate(self, name, **more):
        self.api.patch("pvc", name, {"metadata": {"annotations": {GA: DRIVER, **more}}})

    def phase(self, name):
        claim = self.api.get("pvc", name)
        return claim and claim.get("status", {}).get("phase")

    def wait_bound(self, name, timeout=15):
        wait_for(f"claim {name} to be bound", lambda: self.phase(name) == "Bound", timeout)
        return self.api.get("pv", self.api.get("pvc", name)["spec"]["volumeName"])

    def events(self, name, reason=None):
        return [e for e in self.api.list("event") if e["involvedObject"].get("name") == name
                and reason in (None, e["reason"])]

    def intents(self):
        return [l for l in self.api.list("lease") if "-intent-" in l["metadata"]["name"]]

    def wait_nothing_left(self, uid, timeout=20):
        """No volume object, no volume of the driver, no record for this claim."""
        def gone():
            return (not self.driver.volumes(uid) and not self.api.get("pv", "pvc-" + uid)
                    and not any(uid in l["metadata"]["name"] for l in self.intents()))
        try:
            wait_for("", gone, timeout)
        except harness.Failure:
            raise harness.Failure(f"left: driver {self.driver.volumes(uid)}, object "
                                  f"{self.api.get('pv', 'pvc-' + uid)}, records "
                                  f"{[l['metadata']['name'] for l in self.intents()]}") from None

    def close(self, failed=False):
        if self.binder:
            self.binder.stop()
        bad = []
        for process in [self.provisioner, *self.extra]:
            if process and process.alive():
                status = process.stop(10)
                if status != 0:
                    bad.append(f"{process.name} ended with status {status} when told to stop")
        if self.driver:
            self.driver.process.kill()
        if self.server:
            self.server.stop()
        if failed:
            for name in sorted(os.listdir(self.directory)):
                if name.endswith((".log", ".old")):
                    with open(os.path.join(self.directory, name), encoding="utf-8", errors="replace") as f:
                        print(f"---- {name}", f.read()[-4000:], sep="\n")
        if bad and not failed:
            for process in [self.provisioner, *self.extra]:
                print(f"---- {process.name}", process.log_text()[-6000:], sep="\n")
        shutil.rmtree(self.directory, ignore_errors=True)
        expect(failed or not bad, "; ".join(bad))


@contextlib.contextmanager
def lab(**options):
    made = Lab(**options)
    failed = True
    try:
        yield made
        failed = False
    finally:
        made.close(failed)


def add_node(api, name, zone):
    api.create("node", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": zone}}})
    api.create("csinode", {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
                           "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": ["zone"]}]}})


def settle(seconds=0.3):
    """For what must not happen: give it time to."""
    time.sleep(seconds)
