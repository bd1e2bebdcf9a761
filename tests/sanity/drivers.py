# SPDX-License-Identifier: Apache-2.0
"""What the sanity suite has to know of a driver: how it is started, and what its volumes are like.

A driver is a class with
    programs         names of the programs it needs
    backends         what --backend may be (the first one is the default); accesses  the access types of each
    start(run)       starts it; run.directory is its own, run.socket where it has to listen, run.spawn(name, *args)
    parameters       of the volumes; snapshot_parameters; mutable (accepted, to change to); secrets
    default_size     of volumes in bytes
    excuse(case)     a reason why this machine cannot run the case, or None
"""
import os
import sys

import csi


class Hostpath:
    programs = ("berth-hostpath", "berth-holder", "berth-fuse")
    backends = {"plain": ("mount",), "loop": ("mount", "block"), "fuse": ("mount", "block")}
    snapshot_parameters = {}
    secrets = {}
    mutable = ({"iops": "100"}, {"iops": "200"})
    default_size = csi.GI

    def __init__(self, backend, access):
        self.backend, self.access = backend, access
        self.parameters = {"backend": backend}

    def start(self, run):
        os.makedirs(os.path.join(run.directory, "state"), exist_ok=True)
        os.makedirs(os.path.join(run.directory, "holder"), mode=0o700, exist_ok=True)
        return run.spawn("berth-hostpath", "--endpoint=unix://" + run.socket, "--nodeid=node-1",
                         "--statedir=" + os.path.join(run.directory, "state"), "--enable-attach", "--attach-limit=20",
                         "--holder-socket=" + os.path.join(run.directory, "holder", "h.sock"), "--allow-overcommit",
                         "--enable-controller-modify-volume", "--accepted-mutable-parameter-names=iops,throughput",
                         "-v=5")

    def excuse(self, case):
        if (case == "NodeExpandVolume: works after publish" and self.backend == "loop" and self.access == "mount" and
                not csi.has_capability(24)):
            return "this machine's root has no CAP_SYS_RESOURCE, so the kernel refuses to grow a mounted ext4"
        return None


class Nfs:
    """Against nfs-ganesha on loopback (version 4: no rpcbind is needed), mounted by FUSE."""
    programs = ("berth-nfs",)
    backends = {"fuse": ("mount",)}
    snapshot_parameters = {}
    secrets = {}
    mutable = ()
    default_size = csi.GI

    def __init__(self, backend, access):
        self.backend, self.access = backend, access
        self.parameters = {}

    def start(self, run):
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "nfs"))
        import server  # pylint: disable=import-outside-toplevel
        export, home = os.path.join(run.directory, "export"), os.path.join(run.directory, "server")
        os.makedirs(export)
        os.makedirs(home)
        self.server = server.Server([server.Export(export)], home=home)  # ends with our process namespace
        options = f"nfsvers=4,port={self.server.port}"
        self.parameters.update(server="127.0.0.1", share=export, mountOptions=options)
        return run.spawn("berth-nfs", "--endpoint=unix://" + run.socket, "--nodeid=node-1",
                         "--statedir=" + os.path.join(run.directory, "state"), "--mounter=" + self.backend,
                         "--server=127.0.0.1", "--share=" + export, "--mount-options=" + options, "-v=5")

    def excuse(self, case):
        return None


DRIVERS = {"hostpath": Hostpath, "nfs": Nfs}
