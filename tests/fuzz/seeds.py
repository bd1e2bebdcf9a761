#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""seeds.py DIRECTORY: what the fuzzer starts from, a directory for each target; the objects are those of e2e/cases."""
import glob
import hashlib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "..", "..", "e2e", "cases")

CONFIGS = ["""
current-context: c
contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]
clusters:
- name: k
  cluster: {server: "https://a:1", insecure-skip-tls-verify: true, proxy-url: "socks5://x", tls-server-name: b,
    extensions: [{name: client.authentication.k8s.io/exec, extension: {a: [1, ~, 2.5, yes]}}]}
users:
- name: u
  user:
    as: x
    as-uid: y
    as-groups: [a, b]
    as-user-extra: {k: [v]}
    exec: {apiVersion: client.authentication.k8s.io/v1, command: ./p, args: [a], env: [{name: A, value: b}],
      interactiveMode: Never, provideClusterInfo: true, installHint: h}
""", """
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "[::1]:6443", certificate-authority-data: YQ==}}]
users: [{name: u, user: {client-certificate-data: YQ==, client-key-data: YQ==, token: t, tokenFile: f}}]
"""]
LISTS = ['{"kind":"List","metadata":{"resourceVersion":"1","continue":"x"},"items":[{"a":[1,"}\\"]"]},2,"x",null]}',
         '{"it\\u0065ms":[ {} , [] ],"metadata":{}}']
TIMES = ["1h2m3.5s", "-1.5h", "2562047h47m16.854775807s", "2006-01-02T15:04:05.123456-07:00", "2006-01-02T15:04:05Z"]
QUANTITIES = ["10Gi", "1.5G", "-2e3", "800E", "9223372036854775807", ".5Ki", "100m", "1E-9"]


def kinds():
    """The kinds in the order of the target's table: the first byte of an input chooses one."""
    with open(os.path.join(HERE, "fuzz_objects.c"), encoding="utf-8") as f:
        names = re.findall(r"&kube_kind_(\w+),", f.read())
    words = {"volume": "PersistentVolume", "claim": "PersistentVolumeClaim", "class": "StorageClass", "csi_node": "CSINode",
             "csi_driver": "CSIDriver", "attachment": "VolumeAttachment", "attributes_class": "VolumeAttributesClass",
             "capacity": "CSIStorageCapacity", "snapshot": "VolumeSnapshot", "snapshot_content": "VolumeSnapshotContent"}
    return [words.get(name, name.title().replace("_", "")) for name in names]


def objects(json_value, known):
    if isinstance(json_value, dict):
        if json_value.get("kind") in known and "metadata" in json_value:
            for flags in (0, 0x80):
                yield bytes([known.index(json_value["kind"]) | flags]) + json.dumps(json_value).encode()
        json_value = list(json_value.values())
    if isinstance(json_value, list):
        for item in json_value:
            yield from objects(item, known)


def main():
    seeds = {"config": CONFIGS, "split": LISTS, "times": TIMES, "quantity": QUANTITIES}
    seeds = {name: {text.encode() for text in texts} for name, texts in seeds.items()}
    seeds["objects"] = set()
    known = kinds()
    for path in glob.glob(os.path.join(CASES, "scenarios", "*", "*.json")):
        with open(path, encoding="utf-8") as f:
            seeds["objects"].update(objects(json.load(f), known))
    for name, inputs in seeds.items():
        directory = os.path.join(sys.argv[1], "fuzz_" + name)
        os.makedirs(directory, exist_ok=True)
        for data in inputs:
            with open(os.path.join(directory, hashlib.sha256(data).hexdigest()[:16]), "wb") as f:
                f.write(data)


main()
