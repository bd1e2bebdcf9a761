#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the FUSE backend with real mounts: run.py [--programs DIR] [--base DIR] [--only REGEX]

Needs root and /dev/fuse. Prints one line a test and last "N passed, N failed". Programs are those of the build
directory; the volumes lie in a temporary directory below --base (default: that of the system).
"""
import argparse
import os
import re
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import lab as labs  # noqa: E402

MODULES = ("enforcement", "holding", "takeover", "rights", "failing", "databases", "matrix")


def enter_namespace():
    """In a mount namespace of our own, so that nothing is left whatever happens."""
    if os.environ.get("BERTH_FUSE_TESTS") == str(os.getppid()):
        return
    environment = dict(os.environ, BERTH_FUSE_TESTS=str(os.getpid()))
    sys.exit(subprocess.call(["unshare", "--mount", "--propagation", "private", sys.executable,
                              os.path.abspath(__file__), *sys.argv[1:]], env=environment))


def tests_of(module):
    loaded = __import__(module)
    return [(f"{module}.{name[5:]}", value) for name, value in vars(loaded).items() if name.startswith("test_")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default=os.path.join(HERE, "../../build"))
    parser.add_argument("--base")
    parser.add_argument("--only", default=".")
    options = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("skipped: needs root and /dev/fuse")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    enter_namespace()
    labs.become_reaper()
    programs = os.path.abspath(options.programs)
    passed = failed = skipped = 0
    for module in MODULES:
        for name, test in tests_of(module):
            if not re.search(options.only, name):
                continue
            started = time.monotonic()
            lab = labs.Lab(programs, options.base)
            try:
                lab.start()
                reason = test(lab)  # a text: why it was skipped
                verdict = "ok" if reason is None else "skip"
            except Exception:  # pylint: disable=broad-except
                verdict, reason = "FAIL", None
                traceback.print_exc()
                print("    last lines of the holder's log:\n" + lab.tail(), file=sys.stderr)
            finally:
                lab.close()
            if lab.reports:
                verdict, reason = "FAIL", None
                print("\n".join(lab.reports), file=sys.stderr)
            passed, failed, skipped = (passed + (verdict == "ok"), failed + (verdict == "FAIL"),
                                       skipped + (verdict == "skip"))
            print(f"{verdict:4} {name}  ({time.monotonic() - started:.1f} s){': ' + reason if reason else ''}",
                  flush=True)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
