#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes an image archive from a directory, without a container engine, a registry or a base image.

    mkimage.py --name localhost/berth-controller:0.1.0 --rootfs DIR --output FILE.tar
               [--entrypoint PATH] [--user UID:GID] [--env NAME=VALUE]... [--label NAME=VALUE]... [--arch amd64]

The archive is an OCI image layout with one layer, for `ctr images import`, `podman load`, `skopeo copy oci-archive:`
and `kind load image-archive`, and has the manifest that `docker load` reads. The same files give the same bytes: times
are $SOURCE_DATE_EPOCH (default 0), owners are root, names are sorted.
"""
import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
OCI = "application/vnd.oci.image."


def plain(info):
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = EPOCH
    return info


def layer(rootfs):
    """The uncompressed layer."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for directory, subdirectories, files in os.walk(rootfs):
            subdirectories.sort()
            # os.walk counts links to directories as directories
            for name in sorted(files + subdirectories):
                path = os.path.join(directory, name)
                tar.add(path, os.path.relpath(path, rootfs), recursive=False, filter=plain)
    return buffer.getvalue()


class Layout:
    def __init__(self, output):
        self.tar = tarfile.open(output, "w", format=tarfile.GNU_FORMAT)
        self.add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')

    def add(self, name, data):
        info = plain(tarfile.TarInfo(name))
        info.size = len(data)
        info.mode = 0o644
        self.tar.addfile(info, io.BytesIO(data))

    def blob(self, media_type, data):
        digest = hashlib.sha256(data).hexdigest()
        self.add("blobs/sha256/" + digest, data)
        return {"mediaType": OCI + media_type, "digest": "sha256:" + digest, "size": len(data)}

    def json(self, media_type, value):
        return self.blob(media_type, json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def pairs(entries):
    return dict(entry.split("=", 1) for entry in entries)


def build(options):
    raw = layer(options.rootfs)
    compressed = gzip.compress(raw, 6, mtime=0)
    layout = Layout(options.output)
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    process = {"Env": ["PATH=/usr/bin", *options.env], "Labels": pairs(options.label), "User": options.user,
               "WorkingDir": "/"}
    if options.entrypoint:
        process["Entrypoint"] = [options.entrypoint]
    config = layout.json("config.v1+json", {
        "created": created, "architecture": options.arch, "os": "linux", "config": process,
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(raw).hexdigest()]},
        "history": [{"created": created, "created_by": "mkimage.py"}]})
    blob = layout.blob("layer.v1.tar+gzip", compressed)
    manifest = layout.json("manifest.v1+json", {
        "schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config, "layers": [blob]})
    manifest["platform"] = {"architecture": options.arch, "os": "linux"}
    manifest["annotations"] = {"io.containerd.image.name": options.name,
                               "org.opencontainers.image.ref.name": options.name.rsplit(":", 1)[1]}
    layout.add("index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
    path = lambda descriptor: "blobs/sha256/" + descriptor["digest"][7:]
    layout.add("manifest.json", json.dumps([{"Config": path(config), "RepoTags": [options.name],
                                             "Layers": [path(blob)]}]).encode())
    layout.tar.close()
    print(f"{options.name:<40} {len(raw) / 2**20:6.1f} MiB, {len(compressed) / 2**20:5.1f} MiB compressed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--rootfs", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--entrypoint")
    parser.add_argument("--user", default="0:0")
    parser.add_argument("--arch", default="amd64")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--label", action="append", default=[])
    options = parser.parse_args()
    if ":" not in options.name.rsplit("/", 1)[-1]:
        sys.exit("mkimage.py: --name needs a tag")
    build(options)


if __name__ == "__main__":
    main()
