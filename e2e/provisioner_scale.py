# SPDX-License-Identifier: Apache-2.0
"""What the provisioner needs when there is a lot: other drivers' objects cost nothing, 20,000 of ours at most 40 MiB."""
import concurrent.futures
import os
import time

from harness import BUILD, expect, figure, wait_for
from provisioner_lab import DRIVER, GA, lab

COUNT = 20000
LIMIT = 40  # MiB of VmRSS


def create_all(s, kind, make, count=COUNT, threads=4):
    def part(first):
        for i in range(first, count, threads):
            s.api.create(kind, make(i))
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, range(threads)))


def claim(i, driver, bound):
    spec = {"storageClassName": "fake", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    if bound:
        spec["volumeName"] = f"pv-{i}"
    return {"metadata": {"name": f"c-{i}", "annotations": {GA: driver, "some.tool/annotation": "x" * 100}}, "spec": spec}


def volume(i, driver):
    return {"metadata": {"name": f"pv-{i}", "annotations": {"pv.kubernetes.io/provisioned-by": driver}}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fake",
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "default", "name": f"c-{i}", "uid": f"u-{i}"},
        "csi": {"driver": driver, "volumeHandle": f"handle-{i}-0123456789abcdef", "volumeAttributes": {"k": "v"}}}}


def sanitized():
    with open(os.path.join(BUILD, "berth-provisioner"), "rb") as f:
        return b"__asan_init" in f.read()


def measure(s, what, *args):
    process = s.start(*args)
    time.sleep(2)
    rss, anon = process.memory()
    figure(f"provisioner with {what}: VmRSS {rss:.1f} MiB, RssAnon {anon:.1f} MiB")
    process.stop()
    return 0 if sanitized() else rss  # a sanitizer's own memory says nothing


def objects_of_others():
    with lab(start=False) as s:
        s.binder.stop()
        empty = measure(s, "nothing")
        create_all(s, "pvc", lambda i: claim(i, "other.driver", False))
        create_all(s, "pv", lambda i: volume(i, "other.driver"))
        full = measure(s, f"{COUNT} claims and {COUNT} volumes of other drivers")
        expect(full < empty + 3, f"{full - empty:.1f} MiB for what is not ours")


def objects_of_ours():
    with lab(start=False) as s:
        s.binder.stop()
        create_all(s, "pvc", lambda i: claim(i, DRIVER, True))
        create_all(s, "pv", lambda i: volume(i, DRIVER))
        rss = measure(s, f"{COUNT} bound claims and {COUNT} volumes of ours")
        expect(rss <= LIMIT, f"{rss:.1f} MiB")


def claims_that_wait():
    """20,000 unbound claims of ours whose class is missing: all are kept and retried."""
    with lab(start=False) as s:
        s.binder.stop()
        create_all(s, "pvc", lambda i: claim(i, DRIVER, False))
        rss = measure(s, f"{COUNT} claims of ours that wait", "--retry-interval-start=60s", "--retry-interval-max=5m")
        expect(rss <= LIMIT, f"{rss:.1f} MiB")


def many_claims_at_once():
    with lab() as s:
        s.create_class()
        s.binder.stop()
        start = time.monotonic()
        create_all(s, "pvc", lambda i: claim(i, DRIVER, False), 500)
        wait_for("500 volumes", lambda: len(s.api.list("pv")) == 500, 60)
        figure(f"500 claims created and provisioned in {time.monotonic() - start:.1f} s")
        expect(len(s.driver.volumes()) == 500, "volumes of the driver")
        wait_for("the records to go", lambda: not s.intents(), 30)
        rss, anon = s.provisioner.memory()
        figure(f"provisioner after 500 claims: VmRSS {rss:.1f} MiB, RssAnon {anon:.1f} MiB")


TESTS = [(f.__name__.replace("_", " "), lambda sort, f=f: f())
         for f in (many_claims_at_once, objects_of_others, objects_of_ours, claims_that_wait)]
