#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The whole path on real parts: claim → annotated → CreateVolume → volume → bound → deleted, and under SIGKILL.

    e2e/first_light.py --server devapi|real|kubeconfig [--only REGEX]
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

import harness
from harness import CLUSTER, expect, figure, stack, wait_for

FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
# MiB of (VmRSS, RssAnon) with 100 claims, libraries included
MEMORY_LIMITS = {"controller": (14, 3), "provisioner": (22, 4), "driver": (14, 2)}


def nothing_left(s, timeout=60):
    wait_for("all volumes and directories to be gone",
             lambda: not s.api.list("pv") and not s.volume_directories(), timeout)


def create_many(s, count, prefix="c"):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: s.create_claim(f"{prefix}{i}"), range(count)))


def delete_many(s, count, prefix="c"):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: s.api.delete("pvc", f"{prefix}{i}"), range(count)))


def all_bound(s, count, timeout=90):
    def bound():
        return sum(c["status"].get("phase") == "Bound" for c in s.api.list("pvc")) == count
    wait_for(f"{count} claims to be bound", bound, timeout)


def consistent(s, count):
    """One volume and one directory a claim, each pointing at the other."""
    claims, volumes = s.api.list("pvc"), s.api.list("pv")
    expect(len(volumes) == count, f"{len(volumes)} volumes for {count} claims")
    expect(len(s.volume_directories()) == count, f"{len(s.volume_directories())} directories for {count} claims")
    by_name = {v["metadata"]["name"]: v for v in volumes}
    for claim in claims:
        volume = by_name.get(claim["spec"].get("volumeName"))
        expect(volume, f"claim {claim['metadata']['name']} names no living volume")
        expect(volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"], "claimRef has another uid")
    handles = {v["spec"]["csi"]["volumeHandle"] for v in volumes}
    expect(len(handles) == count, "two volumes share a handle")


def test_claim_becomes_a_volume(sort):
    with stack(sort) as s:
        s.use_least_rights()
        s.start_all()
        s.create_class(reclaimPolicy="Delete")
        s.create_claim("data", "5Mi")
        wait_for("the claim to be bound", lambda: s.phase("data") == "Bound")
        claim = s.api.get("pvc", "data")
        name = "pvc-" + claim["metadata"]["uid"]
        annotations = claim["metadata"]["annotations"]
        minor = int(re.match(r"\d+", s.api.request("GET", "/version")["minor"]).group())
        keys = ["volume.beta.kubernetes.io/storage-provisioner"]
        if minor >= 23:  # older binders write the beta key alone, and so do we in their place
            keys.append("volume.kubernetes.io/storage-provisioner")
        for key in keys:
            expect(annotations.get(key) == "hostpath.csi.berth", f"annotation {key}: {annotations}")
        expect(annotations.get("pv.kubernetes.io/bind-completed") == "yes", "bind-completed is missing")
        expect(claim["spec"]["volumeName"] == name, "volume name")
        expect(claim["status"]["capacity"]["storage"] == "5Mi", f"capacity {claim['status']}")
        volume = s.api.get("pv", name)
        spec, meta = volume["spec"], volume["metadata"]
        expect(volume["status"]["phase"] == "Bound", f"phase {volume['status']}")
        expect(meta["annotations"]["pv.kubernetes.io/provisioned-by"] == "hostpath.csi.berth", "provisioned-by")
        expect("pv.kubernetes.io/bound-by-controller" not in meta["annotations"], "bound-by-controller on a provisioned volume")
        expect(FINALIZER in meta["finalizers"], f"finalizers {meta['finalizers']}")
        expect(spec["csi"]["driver"] == "hostpath.csi.berth" and spec["csi"]["volumeHandle"], "csi source")
        expect("storage.kubernetes.io/csiProvisionerIdentity" in spec["csi"]["volumeAttributes"], "identity")
        expect(spec["persistentVolumeReclaimPolicy"] == "Delete" and spec["storageClassName"] == "hostpath", "policy, class")
        expect(len(s.volume_directories()) == 1, f"directories {s.volume_directories()}")
        reasons = {e["reason"] for e in s.api.list("event") if e["involvedObject"]["name"] == "data"}
        expect({"ExternalProvisioning", "Provisioning", "ProvisioningSucceeded"} <= reasons, f"events {reasons}")
        s.api.delete("pvc", "data")
        nothing_left(s)
        for key in ("controller", "provisioner"):
            expect("Forbidden" not in s.processes[key].log_text(), f"{key} was refused something")


def test_static_volumes_bind_by_best_fit(sort):
    with stack(sort) as s:
        s.start_controller()
        for size in ("1Gi", "3Gi", "10Gi"):
            s.api.create("pv", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v-" + size.lower()},
                                "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
                                         "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "manual",
                                         "hostPath": {"path": "/tmp/none"}}})
        wait_for("available volumes", lambda: all(v["status"].get("phase") == "Available" for v in s.api.list("pv")))
        s.create_claim("two", "2Gi", "manual")
        wait_for("the claim to be bound", lambda: s.phase("two") == "Bound")
        expect(s.api.get("pvc", "two")["spec"]["volumeName"] == "v-3gi", "not the smallest that fits")
        expect(s.api.get("pv", "v-3gi")["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes", "bbc")
        s.api.delete("pvc", "two")
        wait_for("release", lambda: s.api.get("pv", "v-3gi")["status"]["phase"] == "Released")


def test_200_claims_at_once(sort):
    with stack(sort) as s:
        s.use_least_rights()
        s.start_all()
        s.create_class()
        start = time.monotonic()
        create_many(s, 200)
        all_bound(s, 200)
        figure(f"{sort}: 200 claims created and bound in {time.monotonic() - start:.1f} s")
        consistent(s, 200)
        start = time.monotonic()
        delete_many(s, 200)
        nothing_left(s)
        figure(f"{sort}: 200 claims deleted, 0 volumes and 0 directories left after {time.monotonic() - start:.1f} s")


def killed_in_the_middle(sort, victim):
    with stack(sort) as s:
        s.start_all()
        s.create_class()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            creating = pool.submit(create_many, s, 60)
            for part in (5, 20, 40):
                wait_for(f"{part} volumes", lambda n=part: len(s.volume_directories()) >= n, 60)
                if victim == "apiserver":
                    s.server.restart()
                else:
                    s.processes[victim].restart()
            try:
                creating.result()
            except Exception:  # pylint: disable=broad-except
                expect(victim == "apiserver", "creating claims failed")
        for i in range(60):  # those whose creation the restart swallowed
            if not s.api.get("pvc", f"c{i}"):
                s.create_claim(f"c{i}")
        all_bound(s, 60, 120)
        consistent(s, 60)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            deleting = pool.submit(delete_many, s, 60)
            wait_for("half of the volumes to be gone", lambda: len(s.volume_directories()) <= 40, 60)
            if victim == "apiserver":
                s.server.restart()
            else:
                s.processes[victim].restart()
            try:
                deleting.result()
            except Exception:  # pylint: disable=broad-except
                expect(victim == "apiserver", "deleting claims failed")
        delete_many(s, 60)
        nothing_left(s, 120)


def test_compaction(sort):
    """A restarted API server whose history starts anew: watches recover, nothing is missed, no storm of lists."""
    with stack(sort, audit=True) as s:
        s.start_all()
        s.create_class()
        s.create_claim("before")
        wait_for("the first claim to be bound", lambda: s.phase("before") == "Bound")
        audit = os.path.join(s.server.directory, "audit.log")
        marker = os.path.getsize(audit)
        s.server.restart(("compact",))
        start = time.monotonic()
        s.create_claim("after")
        wait_for("the second claim to be bound", lambda: s.phase("after") == "Bound", 60)
        figure(f"claim bound {time.monotonic() - start:.1f} s after an API server restart with compaction")
        s.api.delete("pvc", "before")
        wait_for("one volume to remain", lambda: len(s.api.list("pv")) == 1 and len(s.volume_directories()) == 1, 60)
        with open(audit, encoding="utf-8") as f:
            f.seek(marker)
            lists = [line for line in f if '"verb":"list"' in line and '"userAgent":"berth-' in line]
        expect(len(lists) <= 40, f"{len(lists)} lists after the restart")
        figure(f"{len(lists)} lists by both programs after the restart")


def test_memory_with_100_claims(sort):
    with stack(sort) as s:
        s.start_all()
        s.create_class()
        create_many(s, 100)
        all_bound(s, 100)
        measured = {}

        def within_limits():
            for key in MEMORY_LIMITS:
                measured[key] = s.processes[key].memory()
            return all(value <= limit for key, limits in MEMORY_LIMITS.items()
                       for value, limit in zip(measured[key], limits))
        try:  # what the burst needed goes back to the system once it is quiet
            wait_for("memory within the limits", within_limits, 30, 0.5)
        finally:
            for key, (rss_limit, anon_limit) in MEMORY_LIMITS.items():
                rss, anon = measured[key]
                figure(f"{sort}: {key} with 100 claims: VmRSS {rss:.2f} MiB (limit {rss_limit}), "
                       f"RssAnon {anon:.2f} MiB (limit {anon_limit})")


def test_two_controllers_one_leader(sort):
    with stack(sort) as s:
        s.start_driver()
        s.start_provisioner()
        election = ["--leader-elect=true", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s",
                    "--leader-elect-retry-period=1s", "--leader-elect-resource-namespace=default"]
        for key in ("first", "second"):
            s.start_controller(*election, key=key)
        s.create_class()
        s.create_claim("one")
        wait_for("the claim to be bound", lambda: s.phase("one") == "Bound")
        expect(s.api.list("lease"), "no lease")
        working = [key for key in ("first", "second") if '"Working"' in s.processes[key].log_text()]
        expect(len(working) == 1, f"working: {working}")
        leader = working[0]
        s.processes[leader].kill()
        s.create_claim("two")
        wait_for("the other controller to take over", lambda: s.phase("two") == "Bound", 30)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", choices=("devapi", "real", "kubeconfig"), default="devapi")
    parser.add_argument("--only", default=".")
    options = parser.parse_args()
    tests = [("claim becomes a volume", test_claim_becomes_a_volume),
             ("static volumes bind by best fit", test_static_volumes_bind_by_best_fit),
             ("200 claims at once", test_200_claims_at_once)]
    victims = ["controller", "provisioner", "driver"] + (["apiserver"] if options.server == "real" else [])
    tests += [(f"{victim} killed in the middle", lambda sort, v=victim: killed_in_the_middle(sort, v))
              for victim in victims]
    if options.server == "real":
        tests.append(("compaction and restart of the API server", test_compaction))
    tests += [("memory with 100 claims", test_memory_with_100_claims),
              ("two controllers, one leader", test_two_controllers_one_leader)]
    if options.server == "real":
        subprocess.run([os.path.join(os.path.dirname(CLUSTER), "setup.sh")], check=True)
    sys.exit(harness.run_tests(tests, options.server, options.only))


if __name__ == "__main__":
    main()
