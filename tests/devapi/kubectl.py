#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people type: kubectl's commands and what it prints for them. The same on berth-devapi and on the real API server.

    conformance.sh kubectl        on berth-devapi, with the kubectl of the cached Kubernetes binaries
    kubectl.py --kubeconfig FILE [--kubectl PROGRAM]
Prints a line a case and, last, "N passed, N failed".
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import traceback

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: transcript, labels: {app: db}}
spec:
  storageClassName: slow
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: transcript-pv}
spec:
  storageClassName: slow
  accessModes: [ReadWriteOnce]
  capacity: {storage: 5Gi}
  persistentVolumeReclaimPolicy: Retain
  nfs: {server: nfs.example, path: /a}
"""


class Kubectl:
    def __init__(self, program, kubeconfig):
        self.argv = [program, "--kubeconfig", kubeconfig]

    def start(self, *args):
        return subprocess.Popen([*self.argv, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *args, data=None, status=0, env=None):
        """What it printed, on either stream."""
        done = subprocess.run([*self.argv, *args], input=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, check=False, env={**os.environ, **(env or {})})
        assert done.returncode == status, f"kubectl {' '.join(args)}: exit status {done.returncode}\n{done.stdout}"
        return done.stdout

    def claims(self, *args, **more):
        return self.run("-n", "transcript", *args, **more)


def rows(text):
    return [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]


def test_api_resources(k):
    lines = {row[0]: row for row in (line.split() for line in k.run("api-resources").splitlines())}
    assert lines["persistentvolumeclaims"][1] == "pvc" and lines["persistentvolumeclaims"][-2:] == ["true", "PersistentVolumeClaim"]
    assert lines["persistentvolumes"][1] == "pv" and lines["persistentvolumes"][-2:] == ["false", "PersistentVolume"]
    assert lines["storageclasses"][1] == "sc" and lines["leases"][-1] == "Lease"


def test_create_and_apply(k):
    assert k.run("create", "namespace", "transcript") == "namespace/transcript created\n"
    assert k.run("apply", "-f", "-", data=CLAIM) == "persistentvolumeclaim/data created\n"
    assert k.run("apply", "-f", "-", data=CLAIM) == "persistentvolumeclaim/data unchanged\n"
    assert k.run("apply", "-f", "-", data=CLAIM.replace("app: db", "app: web")) == "persistentvolumeclaim/data configured\n"
    assert k.run("create", "-f", "-", data=VOLUME) == "persistentvolume/transcript-pv created\n"
    again = k.run("create", "-f", "-", data=VOLUME, status=1)
    assert 'persistentvolumes "transcript-pv" already exists' in again, again


def test_columns(k):
    head, claim = rows(k.claims("get", "pvc"))
    assert head[:3] == ["NAME", "STATUS", "VOLUME"] and head[-1] == "AGE" and claim[0] == "data", (head, claim)
    head, volume = rows(k.run("get", "pv", "transcript-pv"))
    assert head[:5] == ["NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS"], head
    assert volume[:4] == ["transcript-pv", "5Gi", "RWO", "Retain"], volume
    assert rows(k.claims("get", "pvc", "-o", "wide"))[0][-1] == "VOLUMEMODE"
    assert k.claims("get", "pvc", "-o", "name", "-l", "app=web") == "persistentvolumeclaim/data\n"
    assert k.claims("get", "pvc", "-l", "app=db") == "No resources found in transcript namespace.\n"
    assert k.claims("get", "pvc", "data", "-o", "jsonpath={.spec.resources.requests.storage}") == "1Gi"
    assert k.claims("get", "pvc", "none", status=1) == 'Error from server (NotFound): persistentvolumeclaims "none" not found\n'


def test_describe(k):
    text = k.claims("describe", "pvc", "data")
    assert re.search(r"^Name:\s+data$", text, re.M) and re.search(r"^StorageClass:\s+slow$", text, re.M), text
    assert re.search(r"^Finalizers:\s+\[kubernetes.io/pvc-protection\]$", text, re.M), text
    text = k.run("describe", "pv", "transcript-pv")
    assert re.search(r"^\s+Server:\s+nfs.example$", text, re.M) and re.search(r"^Reclaim Policy:\s+Retain$", text, re.M), text


def test_patch(k):
    assert k.run("patch", "pv", "transcript-pv", "-p", '{"spec": {"persistentVolumeReclaimPolicy": "Delete"}}') == \
        "persistentvolume/transcript-pv patched\n"
    assert k.run("patch", "pv", "transcript-pv", "--type=json", "-p",
                 '[{"op": "replace", "path": "/spec/capacity/storage", "value": "6Gi"}]') == "persistentvolume/transcript-pv patched\n"
    assert k.run("get", "pv", "transcript-pv", "-o", "jsonpath={.spec.persistentVolumeReclaimPolicy} {.spec.capacity.storage}") == "Delete 6Gi"
    refused = k.claims("patch", "pvc", "data", "--type=merge", "-p", '{"spec": {"accessModes": ["ReadWriteMany"]}}', status=1)
    assert "is invalid" in refused and "immutable after creation" in refused, refused


def test_edit(k):
    edited = k.run("edit", "pv", "transcript-pv", env={"KUBE_EDITOR": "sed -i s/6Gi/7Gi/"})
    assert edited == "persistentvolume/transcript-pv edited\n", edited
    assert k.run("get", "pv", "transcript-pv", "-o", "jsonpath={.spec.capacity.storage}") == "7Gi"
    assert k.run("label", "pv", "transcript-pv", "tier=gold") == "persistentvolume/transcript-pv labeled\n"
    assert k.run("annotate", "pv", "transcript-pv", "note=x") == "persistentvolume/transcript-pv annotated\n"


def test_watch(k):
    watch = k.start("-n", "transcript", "get", "pvc", "-w", "-o", "name")
    try:
        assert watch.stdout.readline() == "persistentvolumeclaim/data\n"
        k.run("apply", "-f", "-", data=CLAIM.replace("name: data", "name: later"))
        assert watch.stdout.readline() == "persistentvolumeclaim/later\n"
    finally:
        watch.terminate()
        watch.communicate(timeout=30)


def test_wait_and_delete(k):
    finalizer = ["-n", "transcript", "patch", "pvc", "later", "--type=merge", "-p"]
    k.run(*finalizer, '{"metadata": {"finalizers": ["example.com/hold"]}}')
    deletion = k.start("-n", "transcript", "delete", "pvc", "later")
    try:
        assert deletion.stdout.readline() == 'persistentvolumeclaim "later" deleted\n'  # and stays until it is gone
        assert "timed out waiting" in k.claims("wait", "--for=delete", "pvc/later", "--timeout=1s", status=1)
        assert deletion.poll() is None
        k.run(*finalizer, '{"metadata": {"finalizers": null}}')
        assert deletion.wait(30) == 0
    finally:
        deletion.kill()
        deletion.communicate()
    assert k.claims("get", "pvc", "-o", "name") == "persistentvolumeclaim/data\n"
    assert k.run("delete", "pv", "transcript-pv") == 'persistentvolume "transcript-pv" deleted\n'
    assert k.claims("delete", "pvc", "--all") == 'persistentvolumeclaim "data" deleted\n'
    assert k.claims("get", "pvc") == "No resources found in transcript namespace.\n"
    assert k.run("delete", "namespace", "transcript") == 'namespace "transcript" deleted\n'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--kubectl", default="kubectl")
    options = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as home:  # kubectl keeps what it discovered there
        os.environ["HOME"] = home
        k = Kubectl(options.kubectl, options.kubeconfig)
        for name, test in [(n[5:], f) for n, f in globals().items() if n.startswith("test_")]:
            try:
                test(k)
                passed += 1
                print(f"ok      {name}", flush=True)
            except (AssertionError, KeyError, ValueError, subprocess.TimeoutExpired):
                failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
