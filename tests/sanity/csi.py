# SPDX-License-Identifier: Apache-2.0
"""Calls to a CSI driver through one csi-call process, and the small things all tests of drivers need."""
import json
import os
import subprocess
import threading

OK, INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, \
    UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 0, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14

MI = 1 << 20
GI = 1 << 30


class Failure(Exception):
    """An expectation that was not met."""


class Skip(Exception):
    """The driver, or this machine, cannot do what the case is about."""


class RpcError(Exception):
    def __init__(self, method, code, message):
        super().__init__(f"{method}: code {code}: {message}")
        self.code = code


def expect(condition, text):
    if not condition:
        raise Failure(text)


class Connection:
    """One connection; calls from several threads take turns."""

    def __init__(self, program, socket, timeout="60s"):
        self.lock = threading.Lock()
        self.process = subprocess.Popen([program, "--endpoint=unix://" + socket, "--batch", "--timeout=" + timeout],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, method, **request):
        with self.lock:
            try:
                self.process.stdin.write(json.dumps({"method": method, "request": request}) + "\n")
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise RpcError(method, -1, "csi-call ended")
        answer = json.loads(line)
        if answer["code"] != 0:
            raise RpcError(method, answer["code"], answer["message"])
        return answer["reply"]

    def fails(self, code, method, **request):
        """The call has to fail with this code (or one of these; None = with any)."""
        codes = code if isinstance(code, tuple) else (code,)
        try:
            reply = self.call(method, **request)
        except RpcError as e:
            expect(code is None or e.code in codes, f"expected code {code}, got {e}")
            return e
        raise Failure(f"{method} succeeded, expected code {code}: {reply}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def capability(access="mount", mode="SINGLE_NODE_WRITER", flags=(), fs_type=""):
    kind = {"block": {}} if access == "block" else {"mount": {"fs_type": fs_type, "mount_flags": list(flags)}}
    return {**kind, "access_mode": {"mode": mode}}


def is_mounted(path):
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return any(line.split(" ")[4].encode().decode("unicode_escape") == path for line in f)


def unmount_below(directory):
    """Everything mounted below a directory, innermost first; for the end of a test that went wrong."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        points = [line.split(" ")[4] for line in f]
    for point in sorted((p for p in points if p.startswith(directory + "/")), key=len, reverse=True):
        subprocess.run(["umount", "-l", point], check=False, capture_output=True)


def loop_devices(directory):
    """Loop devices whose backing file lies below the directory."""
    found = []
    for name in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{name}/loop/backing_file", encoding="utf-8") as f:
                if f.read().startswith(directory + "/"):
                    found.append("/dev/" + name)
        except OSError:
            pass
    return found


def detach_below(directory):
    for device in loop_devices(directory):
        subprocess.run(["losetup", "-d", device], check=False, capture_output=True)


def has_capability(number):
    """Of this process, by its number in linux/capability.h (CAP_SYS_RESOURCE is 24)."""
    with open("/proc/self/status", encoding="ascii") as f:
        line = next(line for line in f if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> number & 1)


def enter_namespaces(program, arguments, inside="CSI_TEST_INSIDE"):
    """Starts the program again with mounts and processes of its own, so that whatever goes wrong ends with it."""
    if os.environ.get(inside):
        return
    os.environ[inside] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                          "--mount-proc", program, *arguments])
