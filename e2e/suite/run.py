#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The suite: real pods on a real kubelet use our volumes. Needs a kubeconfig and kubectl.

    e2e/suite/run.py --manifests DIR|FILE [--image IMAGE] [--only REGEX] [--flavours fuse,loop,plain,nfs]
                     [--keep] [--on-node [--csi-call PATH] [--restart-kubelet COMMAND]] [--audit-log FILE]

It applies the manifests (a kustomization's directory, or a file), waits until all is ready, runs the cases, a few at a
time, then removes everything and looks for what is left. The last line is "N passed, N failed, N skipped".
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

# pylint: disable=wrong-import-position,unused-import
from lab import FLAVOURS, SYSTEM, ApiError, Cluster, Failure, Lab, Skip, expect, wait_for
import cases_volume
import cases_cluster
from registry import CASES


class Table:
    def __init__(self):
        self.rows = []
        self.begin = time.monotonic()

    def add(self, result, name, flavour, seconds, note="", evidence=()):
        self.rows.append((result, name, flavour, seconds, note))
        print(f"{result:<7} {name:<58} {flavour:<6} {seconds:6.1f} s  {note}".rstrip(), flush=True)
        for line in evidence:
            print("          " + line, flush=True)

    def count(self, result):
        return sum(row[0] == result for row in self.rows)

    def finish(self):
        print(f"took {time.monotonic() - self.begin:.0f} s")
        print(f"{self.count('ok')} passed, {self.count('FAILED')} failed, {self.count('skip')} skipped")
        return 1 if self.count("FAILED") else 0


def attempt(table, name, flavour, function):
    """Runs function() and records how it ended; whether it did well. function returns a note."""
    begin = time.monotonic()
    word = flavour.name if flavour else ""
    took = lambda: time.monotonic() - begin
    try:
        note = function() or ""
        table.add("ok", name, word, took(), note)
        return True
    except Skip as e:
        table.add("skip", name, word, took(), str(e))
        return True
    except Exception as e:  # pylint: disable=broad-except
        table.add("FAILED", name, word, took(), f"{type(e).__name__}: {e}", getattr(e, "evidence", ()))
        return False


def run_case(cluster, case, flavour):
    with Lab(cluster, case.name, flavour) as lab:
        case.function(lab)
        return lab.note


def run_cases(cluster, table):
    wanted = [(c, f) for c in CASES for f in c.wanted_flavours(cluster.flavours())
              if re.search(cluster.options.only, f"{c.name} {f.name if f else ''}")]
    with concurrent.futures.ThreadPoolExecutor(cluster.options.parallel) as pool:
        together = [pool.submit(attempt, table, c.name, f, lambda c=c, f=f: run_case(cluster, c, f))
                    for c, f in wanted if not c.alone]
        concurrent.futures.wait(together)
    for c, f in wanted:
        if c.alone:
            attempt(table, c.name, f, lambda c=c, f=f: run_case(cluster, c, f))


def manifest_arguments(path):
    return ["-k", path] if os.path.isdir(path) else ["-f", path]


def deploy(cluster):
    if cluster.options.manifests:
        cluster.kubectl("apply", *manifest_arguments(cluster.options.manifests))
    cluster.look_around()
    expect(cluster.flavours(), "no storage class of ours")
    cluster.wait_until_ready(cluster.options.ready_timeout)
    return f"Kubernetes {cluster.version['gitVersion']}, {len(cluster.nodes)} node(s)"


def our_volumes(cluster):
    drivers = {f.driver for f in FLAVOURS}
    return [v["metadata"]["name"] for v in cluster.api.list("pv") if v["spec"].get("csi", {}).get("driver") in drivers]


def no_volume_left(cluster):
    """After all cases: their namespaces are gone, and with them their volumes and what the node had of them."""
    wait_for("the cases' namespaces to be gone", lambda: not [
        n for n in cluster.api.list("namespace") if n["metadata"].get("labels", {}).get("berth.suite")], 120, 0.5)
    wait_for("the cases' volumes to be gone", lambda: not our_volumes(cluster), 60, 0.5)
    if not cluster.options.on_node:
        return "the nodes were not looked at"
    problems = []
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        problems += ["mounted: " + line.split()[4] for line in f if re.search(r"kubernetes\.io[~/]csi", line)]
    state = "/var/lib/berth/hostpath"
    for directory in ("volumes", "snapshots", "trash"):
        path = os.path.join(state, directory)
        if os.path.isdir(path):
            problems += [f"{path}/{e}" for e in os.listdir(path)]
    loops = subprocess.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], capture_output=True,
                           text=True, check=False).stdout
    problems += ["loop device: " + line for line in loops.splitlines() if state in line]
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/comm", encoding="utf-8") as f:
                if f.read().strip() == "berth-fuse":
                    problems.append("process berth-fuse " + process)
        except OSError:
            pass
    expect(not problems, "; ".join(problems[:6]))
    return "no volume, mount, loop device or process"


def uninstall(cluster):
    names = {kind: [o["metadata"]["name"] for o in cluster.api.list(kind)] for kind in ("clusterrole", "sc", "csidriver")}
    cluster.kubectl("delete", *manifest_arguments(cluster.options.manifests), "--wait=true", "--timeout=120s",
                    timeout=180)
    wait_for("the namespace to be gone", lambda: not cluster.api.get("namespace", SYSTEM), 90, 0.3)

    def left():
        kinds = ("clusterrole", "clusterrolebinding", "sc", "csidriver", "pv")
        found = [f"{kind} {o['metadata']['name']}" for kind in kinds for o in cluster.api.list(kind)
                 if "berth" in o["metadata"]["name"]]
        for node in cluster.api.list("csinode"):
            found += [f"CSINode {node['metadata']['name']}: {d['name']}" for d in node["spec"].get("drivers") or []
                      if "berth" in d["name"]]
        return found
    remaining = []

    def clean():
        remaining[:] = left()
        return not remaining
    try:
        wait_for("", clean, 30, 0.5)
    except Failure:
        raise Failure("left over: " + "; ".join(remaining[:8])) from None
    return f"{sum(map(len, names.values()))} cluster-wide objects before"


def rights_were_enough(cluster):
    """No request of ours was forbidden, says the API server's own log."""
    forbidden, requests = {}, 0
    with open(cluster.options.audit_log, encoding="utf-8") as f:
        for line in f:
            entry = json.loads(line)
            user = entry["user"]["username"]
            if not user.startswith(f"system:serviceaccount:{SYSTEM}:"):
                continue
            requests += 1
            # admission answers 403 too, for instance to an event in a namespace that goes away; that is no missing right
            decision = entry.get("annotations", {}).get("authorization.k8s.io/decision")
            if entry.get("responseStatus", {}).get("code") == 403 and decision == "forbid":
                key = f"{user.rsplit(':', 1)[1]} {entry['verb']} {entry['requestURI'].split('?')[0]}"
                forbidden[key] = forbidden.get(key, 0) + 1
    expect(requests > 100, f"only {requests} requests of ours in the audit log")
    if forbidden:
        raise Failure("forbidden: " + "; ".join(f"{k} ({n}×)" for k, n in sorted(forbidden.items())[:8]))
    return f"{requests} requests, none forbidden"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG"))
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--manifests", help="applied first and deleted last; without it the cluster is taken as it is")
    parser.add_argument("--image", default="localhost/berth-suite:1", help="what the cases' pods run (busybox)")
    parser.add_argument("--only", default=".", help="cases whose name and flavour match")
    parser.add_argument("--flavours", type=lambda s: s.split(","), default=[])
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--many", type=int, default=100, help="claims of the case with many claims")
    parser.add_argument("--ready-timeout", type=int, default=180)
    parser.add_argument("--keep", action="store_true", help="leave the namespaces of failed cases, and the deployment")
    parser.add_argument("--resizer", action="store_true", help="the cluster runs an external-resizer for our drivers")
    parser.add_argument("--recycler", action="store_true", help="the controller's recycler pods can run")
    parser.add_argument("--on-node", action="store_true", help="this is the node: look at its mounts and processes too")
    parser.add_argument("--csi-call", help="the program csi-call, to stand in for sidecars that are not ours")
    parser.add_argument("--restart-kubelet", help="shell command")
    parser.add_argument("--audit-log", help="the API server's audit log, to look for forbidden requests")
    options = parser.parse_args()
    if not options.kubeconfig:
        parser.error("--kubeconfig or $KUBECONFIG is needed")
    return options


def main():
    options = parse()
    cluster = Cluster(options)
    table = Table()
    if attempt(table, "everything is deployed and ready", None, lambda: deploy(cluster)):
        run_cases(cluster, table)
        if not options.keep:
            attempt(table, "nothing is left of the volumes", None, lambda: no_volume_left(cluster))
    # before the roles are deleted, which happens a moment before the pods end
    if options.audit_log:
        attempt(table, "least rights were enough", None, lambda: rights_were_enough(cluster))
    if options.manifests and not options.keep:
        attempt(table, "uninstalled", None, lambda: uninstall(cluster))
    return table.finish()


if __name__ == "__main__":
    sys.exit(main())
