# SPDX-License-Identifier: Apache-2.0
"""Starts an API server and the project's programs for end-to-end tests, and cleans up whatever happens.

The server is chosen by one switch: "devapi" (the embedded one, milliseconds), "real" (kube-apiserver and etcd, see
cluster/), or "kubeconfig" (whatever $KUBECONFIG names). Only the standard library and python3-yaml are used.
"""
import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
CLUSTER = os.path.join(ROOT, "e2e", "cluster", "cluster.sh")


class Failure(Exception):
    """A test's expectation that did not hold."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ApiError(Exception):
    def __init__(self, status, body):
        self.status = status
        self.body = body
        message = body
        with contextlib.suppress(ValueError, AttributeError):
            message = json.loads(body).get("message", body)
        super().__init__(f"{status}: {message}")


class Api:
    """A small API client: one connection per thread, plain JSON in and out."""

    PATHS = {
        "pv": "/api/v1/persistentvolumes",
        "pvc": "/api/v1/namespaces/{ns}/persistentvolumeclaims",
        "sc": "/apis/storage.k8s.io/v1/storageclasses",
        "event": "/api/v1/namespaces/{ns}/events",
        "namespace": "/api/v1/namespaces",
        "pod": "/api/v1/namespaces/{ns}/pods",
        "node": "/api/v1/nodes",
        "secret": "/api/v1/namespaces/{ns}/secrets",
        "csinode": "/apis/storage.k8s.io/v1/csinodes",
        "csidriver": "/apis/storage.k8s.io/v1/csidrivers",
        "attachment": "/apis/storage.k8s.io/v1/volumeattachments",
        "lease": "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
        "serviceaccount": "/api/v1/namespaces/{ns}/serviceaccounts",
        "capacity": "/apis/storage.k8s.io/v1/namespaces/{ns}/csistoragecapacities",
        "vac": "/apis/storage.k8s.io/v1/volumeattributesclasses",
        "snapshot": "/apis/snapshot.storage.k8s.io/v1/namespaces/{ns}/volumesnapshots",
        "snapshotcontent": "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents",
    }

    def __init__(self, kubeconfig):
        with open(kubeconfig, encoding="utf-8") as f:
            config = yaml.safe_load(f)
        named = lambda kind, name: next(e for e in config[kind] if e["name"] == name)
        context = named("contexts", config["current-context"])["context"]
        cluster = named("clusters", context["cluster"])["cluster"]
        user = named("users", context["user"]).get("user") or {}
        self.url = urllib.parse.urlsplit(cluster["server"])
        self.headers = {"Accept": "application/json"}
        if user.get("token"):
            self.headers["Authorization"] = "Bearer " + user["token"]
        self.ssl = None
        if self.url.scheme == "https":
            self.ssl = ssl.create_default_context()
            if cluster.get("certificate-authority-data"):
                self.ssl.load_verify_locations(
                    cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
            elif cluster.get("certificate-authority"):
                self.ssl.load_verify_locations(cafile=cluster["certificate-authority"])
            if user.get("client-certificate-data"):
                with tempfile.NamedTemporaryFile() as pem:
                    pem.write(base64.b64decode(user["client-certificate-data"]))
                    pem.write(base64.b64decode(user["client-key-data"]))
                    pem.flush()
                    self.ssl.load_cert_chain(pem.name)
            elif user.get("client-certificate"):
                self.ssl.load_cert_chain(user["client-certificate"], user["client-key"])
        self.local = threading.local()

    def connect(self):
        if self.ssl:
            return http.client.HTTPSConnection(self.url.hostname, self.url.port, timeout=30, context=self.ssl)
        return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=30)

    def request(self, method, path, body=None, content_type="application/json"):
        for attempt in (0, 1):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = self.local.connection = self.connect()
            headers = dict(self.headers)
            data = None
            if body is not None:
                data = json.dumps(body)
                headers["Content-Type"] = content_type
            try:
                connection.request(method, path, data, headers)
                response = connection.getresponse()
                text = response.read().decode()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if attempt:
                    raise
        if response.status >= 400:
            raise ApiError(response.status, text)
        return json.loads(text) if text.startswith("{") else text

    def path(self, kind, name=None, ns="default"):
        path = self.PATHS[kind].format(ns=ns)
        return path + "/" + urllib.parse.quote(name) if name else path

    def get(self, kind, name, ns="default"):
        """The object, or None when there is none."""
        try:
            return self.request("GET", self.path(kind, name, ns))
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    def list(self, kind, ns="default"):
        return self.request("GET", self.path(kind, ns=ns))["items"]

    def create(self, kind, obj, ns="default"):
        return self.request("POST", self.path(kind, ns=ns), obj)

    def patch(self, kind, name, patch, ns="default", sub=None):
        path = self.path(kind, name, ns) + ("/" + sub if sub else "")
        return self.request("PATCH", path, patch, "application/merge-patch+json")

    def delete(self, kind, name, ns="default"):
        """True when it was there."""
        try:
            self.request("DELETE", self.path(kind, name, ns))
            return True
        except ApiError as e:
            if e.status == 404:
                return False
            raise


def wait_for(what, condition, timeout=30.0, interval=0.05):
    """Polls until condition() is true; its value is returned. A connection that breaks meanwhile counts as not yet."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            value = condition()
            if value:
                return value
        except (OSError, http.client.HTTPException, ApiError):
            value = None
        if time.monotonic() > deadline:
            raise Failure(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(interval)


class Process:
    """A program of this test run: started here, ended by its pid."""

    def __init__(self, name, argv, log, env=None):
        self.name, self.argv, self.log, self.env = name, argv, log, env
        self.popen = None
        self.start()

    def start(self):
        with open(self.log, "ab") as out:
            # a terminal's ^C is for us: we still need these programs to clean up, and end them ourselves
            self.popen = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          env={**os.environ, **(self.env or {})},
                                          process_group=0 if os.isatty(0) else None)

    @property
    def pid(self):
        return self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def kill(self):
        if self.alive():
            self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def stop(self, timeout=15):
        if self.alive():
            self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9

    def restart(self):
        self.kill()
        self.start()

    def memory(self):
        """(VmRSS, RssAnon) in MiB."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            text = f.read()
        return tuple(int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M).group(1)) / 1024
                     for key in ("VmRSS", "RssAnon"))

    def log_text(self):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""


class Server:
    """An API server of one of the three sorts; `kubeconfig` is an administrator's."""

    def __init__(self, sort, directory, audit=False):
        self.sort, self.directory = sort, directory
        self.process = None
        os.makedirs(directory, exist_ok=True)
        self.kubeconfig = os.path.join(directory, "kubeconfig")
        if sort == "devapi":
            self.process = Process("devapi", [os.path.join(BUILD, "berth-devapi"), "--listen=127.0.0.1:0",
                                              "--kubeconfig-out=" + self.kubeconfig],
                                   os.path.join(directory, "devapi.log"))
            try:
                wait_for("the embedded API server",
                         lambda: os.path.exists(self.kubeconfig) or not self.process.alive(), 10)
                expect(self.process.alive(), "devapi ended: " + self.process.log_text()[-500:])
            except BaseException:
                self.process.kill()
                raise
        elif sort == "real":
            self.cluster("start", directory, *(["--audit"] if audit else []), "--with-kcm",
                         "--disable-admission=ServiceAccount")
        elif sort == "kubeconfig":
            self.kubeconfig = os.environ["KUBECONFIG"]
        else:
            raise ValueError(sort)
        self.api = Api(self.kubeconfig)

    @staticmethod
    def cluster(*args):
        done = subprocess.run([CLUSTER, *args], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"cluster.sh {' '.join(args)}: {done.stdout[-500:]}{done.stderr[-1500:]}")
        return done.stdout

    def restart(self, how=("restart", "apiserver")):
        """The API server dies and comes back. kube-controller-manager, which ends itself when that happens while it
        starts, is started anew, as kubelet would do with its static pod."""
        self.cluster(how[0], self.directory, *how[1:])
        wait_for("the API server", lambda: self.api.list("namespace"), 60)
        self.cluster("restart", self.directory, "kcm")

    def service_account(self, namespace, name):
        """A kubeconfig with that account's token (real server), or the administrator's one."""
        if self.sort != "real":
            return self.kubeconfig
        out = os.path.join(self.directory, f"{name}.kubeconfig")
        self.cluster("sa-kubeconfig", self.directory, namespace, name, out)
        return out

    def kubectl(self, *args, data=None):
        binary = shutil.which("kubectl")
        for base in sorted(filter(os.path.isdir, [os.environ.get("BERTH_CACHE", "/var/cache/berth")])):
            for entry in sorted(os.listdir(base)):
                candidate = os.path.join(base, entry, "bin", "kubectl")
                if os.access(candidate, os.X_OK):
                    binary = candidate
        expect(binary, "kubectl is not installed")
        done = subprocess.run([binary, "--kubeconfig", self.kubeconfig, *args], input=data, capture_output=True,
                              text=True, check=False)
        expect(done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def stop(self):
        if self.sort == "devapi":
            self.process.kill()
        elif self.sort == "real":
            self.cluster("stop", self.directory)


class Stack:
    """API server, hostpath driver, provisioner and controller together, as a test wants them."""

    def __init__(self, sort, audit=False, keep=False):
        self.directory = tempfile.mkdtemp(prefix="berth-e2e-")
        self.keep = keep
        self.processes = {}
        self.state = os.path.join(self.directory, "state")
        os.makedirs(self.state)
        self.socket = os.path.join(self.directory, "csi.sock")
        self.holder = os.path.join(self.directory, "holder", "h.sock")
        self.ports = {}
        self.node = "node1"
        try:
            self.server = Server(sort, os.path.join(self.directory, "server"), audit)
        except BaseException:
            self.server = None
            if sort == "real":
                subprocess.run([CLUSTER, "stop", os.path.join(self.directory, "server")], check=False,
                               capture_output=True)
            if not keep:
                shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self.api = self.server.api
        self.kubeconfigs = {"controller": self.server.kubeconfig, "provisioner": self.server.kubeconfig}
        self.namespace = "default"  # of the programs' own leases

    def use_least_rights(self):
        """From now on the programs run as the service accounts of deploy/rbac with exactly those roles."""
        if self.server.sort != "real":
            return
        for program in ("controller", "provisioner"):
            self.server.kubectl("apply", "-f", os.path.join(ROOT, "deploy", "rbac", program + ".yaml"))
            self.kubeconfigs[program] = self.server.service_account("berth-system", "berth-" + program)
        self.namespace = "berth-system"

    def run(self, key, program, *args, env=None):
        process = Process(key, [os.path.join(BUILD, program), *args], os.path.join(self.directory, key + ".log"), env)
        self.processes[key] = process
        return process

    def start_holder(self):
        """For volumes of the backend fuse: it keeps their mounts, and ends only after the driver."""
        os.makedirs(os.path.dirname(self.holder), exist_ok=True)
        process = self.run("holder", "berth-holder", "--socket=" + self.holder)
        wait_for("the holder's socket", lambda: os.path.exists(self.holder), 10)
        return process

    def start_driver(self, *args):
        process = self.run("driver", "berth-hostpath", "--endpoint=unix://" + self.socket, "--nodeid=" + self.node,
                           "--statedir=" + self.state, "--holder-socket=" + self.holder, "--holder-program=",
                           "-v=5", *args)
        wait_for("the driver's socket", lambda: os.path.exists(self.socket), 10)
        self.register_node(self.node)
        return process

    def register_node(self, node, driver="hostpath.csi.berth", key="topology.hostpath.csi/node"):
        """What kubelet does when a driver registers: labels its Node and names the driver in its CSINode."""
        if self.api.get("node", node):
            return
        self.api.create("node", {"apiVersion": "v1", "kind": "Node",
                                 "metadata": {"name": node, "labels": {key: node}}})
        self.api.create("csinode", {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
                                    "spec": {"drivers": [{"name": driver, "nodeID": node, "topologyKeys": [key]}]}})

    def start_provisioner(self, *args, key="provisioner"):
        port = self.ports[key] = free_port()
        return self.run(key, "berth-provisioner", "--csi-address=" + self.socket,
                        "--kubeconfig=" + self.kubeconfigs["provisioner"], f"--http-endpoint=127.0.0.1:{port}",
                        "--kube-api-qps=200", "--kube-api-burst=400", "-v=4", *args,
                        env={"KUBECONFIG": self.kubeconfigs["provisioner"], "POD_NAMESPACE": self.namespace})

    def start_controller(self, *args, key="controller"):
        port = self.ports[key] = free_port()
        return self.run(key, "berth-controller", "--kubeconfig=" + self.kubeconfigs["controller"],
                        f"--http-endpoint=127.0.0.1:{port}", "--pvclaimbinder-sync-period=2s", "--kube-api-qps=500",
                        "--kube-api-burst=1000", "-v=4", *(args or ["--leader-elect=false"]))

    def start_all(self):
        self.start_driver()
        self.start_provisioner()
        self.start_controller()

    def metrics(self, key):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[key], timeout=5)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()

    def create_class(self, name="hostpath", **fields):
        return self.api.create("sc", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                                      "metadata": {"name": name}, "provisioner": "hostpath.csi.berth",
                                      "parameters": {"backend": "plain"}, **fields})

    def create_claim(self, name, size="1Mi", storage_class="hostpath", ns="default", modes=("ReadWriteOnce",), **fields):
        spec = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **fields}
        if storage_class is not None:
            spec["storageClassName"] = storage_class
        return self.api.create("pvc", {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                                       "metadata": {"name": name}, "spec": spec}, ns)

    def phase(self, name, ns="default"):
        claim = self.api.get("pvc", name, ns)
        return claim and claim.get("status", {}).get("phase")

    def volume_directories(self):
        """What the driver keeps for volumes, whatever the names: directories directly below its volume root."""
        root = os.path.join(self.state, "volumes")
        return sorted(os.listdir(root)) if os.path.isdir(root) else []

    def close(self, failed=False):
        for process in reversed(list(self.processes.values())):
            process.stop()
        if self.server:
            self.server.stop()
        if failed:
            for process in self.processes.values():
                print(f"---- last lines of {process.name}", process.log_text()[-3000:], sep="\n")
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def run_tests(tests, sort, only="."):
    """Runs (name, function(sort)) pairs; prints a line each and "N passed, N failed" last. The exit status."""
    passed = failed = 0
    for name, function in tests:
        if not re.search(only, name):
            continue
        start = time.monotonic()
        try:
            function(sort)
            passed += 1
            print(f"ok      {name} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception as e:  # pylint: disable=broad-except
            failed += 1
            print(f"FAILED  {name} ({time.monotonic() - start:.1f} s): {type(e).__name__}: {e}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


@contextlib.contextmanager
def stack(sort, **options):
    s = Stack(sort, **options)
    failed = True
    try:
        yield s
        failed = False
    finally:
        s.close(failed)


def figure(text):
    print("figure: " + text, flush=True)


# A test run that is stopped still cleans up: turn the signal into an exception that unwinds the stack.
for stopping in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(stopping) != signal.SIG_IGN:  # nohup
        signal.signal(stopping, lambda number, _: sys.exit(128 + number))
