#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The demo, left to itself and interrupted by ^C at every step, leaves no process, no mount, no file and no object."""
import contextlib
import os
import pty
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))
from harness import Server, expect, run_tests  # noqa: E402  pylint: disable=wrong-import-position

STEPS = ("1. An API server", "ready after", "created claim", "annotated the claim", "wrote volume", "3. A pod", "mounted it",
         "df says", "filled it", "unmounted it", "4. The claim", "removed the data", "5. What")


def play(directory, stop=None, sort="devapi", **env):
    """Plays the demo on a terminal, with ^C once it has shown `stop`: its output and exit status."""
    pid, terminal = pty.fork()
    if not pid:
        os.execve("/usr/bin/python3", ["python3", os.path.join(HERE, "demo.py"), sort],
                  {**os.environ, "TMPDIR": directory, **env})
    output, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            output += os.read(terminal, 65536)
        except OSError:  # it has ended
            break
        if stop and stop.encode() in output:
            os.write(terminal, b"\x03")
            stop = None
    os.close(terminal)
    return output.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def leftovers(directory):
    with open("/proc/mounts", encoding="utf-8") as f:
        found = [line.split()[1] for line in f if directory in line]
    found += [os.path.join(directory, name) for name in os.listdir(directory)]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
            line = f.read().replace("\0", " ")
            found += [line] if directory in line else []
    return found


def whole(_):
    with tempfile.TemporaryDirectory() as directory:
        output, status = play(directory)
        expect(status == 0 and "volumes left: 0, directories left: 0" in output, output)
        expect(output.index("removed the data") < output.index("removed the volume object"), "steps out of order")
        expect(not leftovers(directory), leftovers(directory))


def interrupted(step):
    def test(_):
        with tempfile.TemporaryDirectory() as directory:
            output, status = play(directory, step)
            expect(status == 130 or step == STEPS[-1] and not status, f"exit status {status}: {output[-2000:]}")
            expect(not leftovers(directory), leftovers(directory))
    return test


def cluster(_):
    """On somebody's cluster it takes away what it made, and touches nothing of its names that is there."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as directory:
        server = Server("devapi", place)
        try:
            for stop, wanted in ((None, 0), ("annotated the claim", 130), ("df says", 130)):
                output, status = play(directory, stop, "cluster", KUBECONFIG=server.kubeconfig)
                expect(status == wanted, f"exit status {status}: {output[-2000:]}")
                left = [kind for kind in ("pv", "pvc", "sc", "node", "csinode") if server.api.list(kind)]
                expect(not left and not leftovers(directory), left + leftovers(directory))
            server.api.create("sc", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                                     "metadata": {"name": "berth-hostpath"}, "provisioner": "theirs"})
            output, status = play(directory, None, "cluster", KUBECONFIG=server.kubeconfig)
            expect(status == 1 and "already" in output, output)
            expect(server.api.get("sc", "berth-hostpath")["provisioner"] == "theirs", "the class was touched")
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(run_tests([("whole", whole), *((f"^C at: {step}", interrupted(step)) for step in STEPS),
                        ("cluster", cluster)], "devapi", sys.argv[1] if len(sys.argv) > 1 else "."))
