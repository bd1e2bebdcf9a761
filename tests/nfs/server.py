# SPDX-License-Identifier: Apache-2.0
"""nfs-ganesha for tests: on loopback, started and ended by us, in a directory of its own.

Version 4 needs nothing else. Version 3 needs rpcbind, so tests of it run in a private network namespace with an rpcbind
of their own (see private_namespaces).
"""
import ctypes
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWIPC = 0x20000, 0x40000000, 0x08000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
GANESHA = "/usr/bin/ganesha.nfsd"
PLUGINS = (glob.glob("/usr/lib/*/ganesha") or [""])[0]
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def private_namespaces():
    """Own mounts, own network (with lo and one more address, which libtirpc wants) and a /run of our own."""
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC), "unshare")
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    check(libc.mount(b"tmpfs", b"/run", b"tmpfs", 0, None), "tmpfs on /run")
    os.makedirs("/run/rpcbind", exist_ok=True)
    for command in (["ip", "link", "set", "lo", "up"], ["ip", "address", "add", "10.11.12.13/32", "dev", "lo"]):
        subprocess.run(command, check=True)


def wait_for(what, test, seconds=20.0, interval=0.02):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = test()
        if value:
            return value
        time.sleep(interval)
    raise TimeoutError(f"no {what} within {seconds} s")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def port_answers(port, host="127.0.0.1"):
    try:
        with socket.create_connection((host, port), 0.5):
            return True
    except OSError:
        return False


class Rpcbind:
    def __init__(self):
        self.process = subprocess.Popen(["/sbin/rpcbind", "-f"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("rpcbind", lambda: port_answers(111))

    def close(self):
        self.process.kill()
        self.process.wait()


EXPORT = """EXPORT {{
    Export_Id = {id}; Path = {path}; Pseudo = {path}; Tag = e{id};
    Access_Type = {access}; Squash = {squash}; SecType = sys; Transports = TCP; Protocols = {protocols};
    Anonymous_Uid = {anonymous}; Anonymous_Gid = {anonymous}; PrivilegedPort = {privileged};
    FSAL {{ Name = VFS; }}
}}
"""


class Export:
    """One exported directory. Seen as .path by clients, at .path on this machine too."""

    def __init__(self, path, squash="No_Root_Squash", access="RW", protocols="3,4", anonymous=65534, privileged=False):
        self.path, self.squash, self.access = path, squash, access
        self.protocols, self.anonymous, self.privileged = protocols, anonymous, privileged


class Server:
    def __init__(self, exports, protocols="4", lease=60, home=None):
        self.home = home or tempfile.mkdtemp(prefix="nfs-server-")
        self.port = free_port()
        self.mount_port = free_port()
        self.protocols, self.lease = protocols, lease
        self.exports = exports
        self.process = None
        self.start()

    def configuration(self):
        text = f"""NFS_CORE_PARAM {{
    Protocols = {self.protocols}; NFS_Port = {self.port}; MNT_Port = {self.mount_port}; Bind_addr = 127.0.0.1;
    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; Plugins_Dir = {PLUGINS};
}}
NFSV4 {{
    Graceless = true; RecoveryBackend = fs; RecoveryRoot = {self.home}/recovery; Lease_Lifetime = {self.lease};
    Allow_Numeric_Owners = true; Only_Numeric_Owners = true; Minor_Versions = 0, 1, 2; Delegations = false;
}}
LOG {{ Default_Log_Level = WARN; }}
"""
        for number, export in enumerate(self.exports, 1):
            text += EXPORT.format(id=number, path=export.path, access=export.access, squash=export.squash,
                                  protocols=export.protocols, anonymous=export.anonymous,
                                  privileged=str(export.privileged).lower())
        return text

    def start(self):
        os.makedirs(os.path.join(self.home, "recovery"), exist_ok=True)
        path = os.path.join(self.home, "ganesha.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write(self.configuration())
        self.process = subprocess.Popen(
            [GANESHA, "-F", "-f", path, "-L", os.path.join(self.home, "log"), "-p", os.path.join(self.home, "pid")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for("NFS server", self.ready, 30)
        except TimeoutError:
            sys.stderr.write(self.log())
            raise

    def ready(self):
        if self.process.poll() is not None:
            sys.stderr.write(self.log())
            raise RuntimeError("the NFS server ended by itself")
        return port_answers(self.port) and ("3" not in self.protocols or port_answers(self.mount_port))

    def log(self):
        try:
            with open(os.path.join(self.home, "log"), encoding="utf-8", errors="replace") as lines:
                return "".join(lines.readlines()[-30:])
        except OSError:
            return ""

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def close(self):
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
