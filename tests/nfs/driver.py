# SPDX-License-Identifier: Apache-2.0
"""berth-nfs and the calls to it."""
import json
import os
import shutil
import signal
import subprocess
import tempfile

from server import wait_for

CODES = ["OK", "CANCELED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
         "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
         "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"]
MOUNT = {"mount": {}, "access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}}


class CallError(Exception):
    def __init__(self, method, code, message):
        super().__init__(f"{method}: {code}: {message}")
        self.code, self.message = code, message


class Driver:
    def __init__(self, build, *flags, node="node-1", home=None):
        self.build, self.node = build, node
        self.home = home or tempfile.mkdtemp(prefix="nfs-driver-")
        self.endpoint = "unix://" + os.path.join(self.home, "csi.sock")
        self.flags = list(flags)
        self.process = None
        self.log_path = os.path.join(self.home, "log")
        self.start()

    def start(self):
        command = [os.path.join(self.build, "berth-nfs"), "--endpoint", self.endpoint, "--statedir",
                   os.path.join(self.home, "state"), "-v", "2", *self.flags]
        if self.node:
            command += ["--nodeid", self.node]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for("driver", lambda: self.process.poll() is not None or
                 os.path.exists(os.path.join(self.home, "csi.sock")))
        if self.process.poll() is not None:
            raise RuntimeError("the driver ended: " + self.log())

    def call(self, method, request=None, timeout=60):
        result = subprocess.run([os.path.join(self.build, "csi-call"), "--endpoint", self.endpoint,
                                 f"--timeout={timeout}s", method, json.dumps(request or {})],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout + 30, check=False)
        if result.returncode != 0:
            code = CODES[result.returncode - 100] if result.returncode >= 100 else "CLIENT"
            raise CallError(method, code, result.stderr.decode().strip())
        return json.loads(result.stdout)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as lines:
            return lines.read()

    def kill(self, how=signal.SIGKILL):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(30)

    def restart(self):
        self.kill()
        self.start()

    def close(self):
        status = self.kill(signal.SIGTERM)
        log = self.log()
        for word in ("WARNING: ThreadSanitizer", "ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error"):
            assert word not in log, log[-8000:]  # of its FUSE processes too
        shutil.rmtree(self.home, ignore_errors=True)
        return status

    # ---- shorter forms -------------------------------------------------------------------------------------------------

    def create(self, name, parameters, size=0, flags=(), **more):
        capability = json.loads(json.dumps(MOUNT))
        if flags:
            capability["mount"]["mount_flags"] = list(flags)
        request = {"name": name, "volume_capabilities": [capability], "parameters": parameters, **more}
        if size:
            request["capacity_range"] = {"required_bytes": size}
        return self.call("CreateVolume", request)["volume"]

    def delete(self, volume_id, **more):
        self.call("DeleteVolume", {"volume_id": volume_id, **more})
