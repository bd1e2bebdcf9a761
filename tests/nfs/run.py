#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of berth-nfs against nfs-ganesha. Needs root and the packages of scripts/packages-test.txt.

    tests/nfs/run.py [--build DIR] [--thorough] [NAME…]      NAME: part of a test's name

Everything happens in private mount and network namespaces and below temporary directories; what is started is ended by
its process id. The last line says how many passed.
"""
import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import server  # noqa: E402  (after the path)

MODULES = ["cases_share", "cases_volumes", "cases_trees", "cases_node", "cases_faults", "cases_recycle", "cases_scale"]


class Context:
    """What the cases share: one server with several exports, in both versions."""

    def __init__(self, build, thorough):
        self.build, self.thorough = build, thorough
        self.home = tempfile.mkdtemp(prefix="nfs-test-")
        self.rpcbind = server.Rpcbind()
        os.chmod(self.home, 0o755)
        self.exports = {}
        for name, options in {"main": {}, "squash": {"squash": "Root_Squash"}, "ro": {"access": "RO"},
                              "other": {}, "listed": {}}.items():
            path = os.path.join(self.home, name)
            os.mkdir(path)
            self.exports[name] = server.Export(path, **options)
        os.chmod(self.exports["squash"].path, 0o777)
        self.case = 0
        self.server = server.Server(list(self.exports.values()), protocols="3,4")

    def next_case(self):
        """Each case has directories of its own below the exports."""
        self.case += 1
        for export in self.exports.values():
            os.mkdir(os.path.join(export.path, str(self.case)))
        os.chmod(self.path("squash"), 0o777)

    def path(self, export="main"):
        return os.path.join(self.exports[export].path, str(self.case))

    def options(self, version=4):
        text = f"nfsvers={version},port={self.server.port}"
        return text + (f",mountport={self.server.mount_port}" if version == 3 else "")

    def parameters(self, export="main", version=4, **more):
        return {"server": "127.0.0.1", "share": self.path(export), "mountOptions": self.options(version), **more}

    def close(self):
        self.server.close()
        self.rpcbind.close()
        shutil.rmtree(self.home, ignore_errors=True)


def collect(names):
    cases = []
    for module_name in MODULES:
        try:
            module = __import__(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise
            continue
        for name, function in vars(module).items():
            if name.startswith("test_") and callable(function):
                full = f"{module_name}.{name[5:]}"
                if not names or any(part in full for part in names):
                    cases.append((full, function))
    return cases


def run(cases, context):
    passed = failed = 0
    for name, function in cases:
        began = time.monotonic()
        try:
            context.next_case()
            function(context)
            passed += 1
            print(f"ok    {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"FAIL  {name} ({time.monotonic() - began:.1f} s)\n{traceback.format_exc()}", flush=True)
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build"))
    parser.add_argument("--thorough", action="store_true", help="die at each point, not at some; takes minutes")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("tests/nfs/run.py needs root: it mounts, and starts servers in namespaces of its own")
    if not os.path.exists(server.GANESHA):
        sys.exit("tests/nfs/run.py needs the Debian packages nfs-ganesha, nfs-ganesha-vfs and rpcbind")
    server.private_namespaces()
    context = Context(os.path.abspath(arguments.build), arguments.thorough)
    try:
        passed, failed = run(collect(arguments.names), context)
    finally:
        context.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
