# SPDX-License-Identifier: Apache-2.0
"""Claims, the controller, the provisioner and the driver together: a recycled volume, and a class of a peer."""
import contextlib
import os
import sys

from cases_trees import make_tree
from checks import equal, names, write

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@contextlib.contextmanager
def stack(context):
    """The embedded API server, the controller, the provisioner and berth-nfs."""
    os.environ["BUILD"] = context.build
    sys.path.insert(0, os.path.join(ROOT, "e2e"))
    import harness  # pylint: disable=import-outside-toplevel
    harness.BUILD = context.build
    for program in ("berth-devapi", "berth-controller", "berth-provisioner"):
        assert os.path.exists(os.path.join(context.build, program)), f"{program} is not built: make"
    made = harness.Stack("devapi")
    failed = True
    try:
        made.run("driver", "berth-nfs", "--endpoint=unix://" + made.socket, "-v=5")
        harness.wait_for("the driver's socket", lambda: os.path.exists(made.socket), 10)
        made.start_provisioner("--extra-create-metadata")
        made.start_controller()
        made.wait_for = harness.wait_for
        yield made
        failed = False
    finally:
        made.close(failed)


def create_class(api, name, parameters, **more):
    api.create("sc", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                      "provisioner": "nfs.csi.berth", "parameters": parameters, **more})


def test_recycled_from_claim_to_claim(context):
    """Bound → Released → scrubbed → Available → bound by another claim, which finds it empty."""
    with stack(context) as made:
        api = made.api
        create_class(api, "nfs", context.parameters(subDir="${pvc.metadata.namespace}/${pvc.metadata.name}",
                                                    mountPermissions="2775"))
        made.create_claim("first", storage_class="nfs", modes=("ReadWriteMany",))
        made.wait_for("the first claim to be bound", lambda: made.phase("first") == "Bound")
        volume = api.get("pvc", "first")["spec"]["volumeName"]
        equal(names(context.path()), ["default"])
        path = context.path() + "/default/first"
        make_tree(path)
        inode = os.stat(path).st_ino
        api.patch("pv", volume, {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}})
        api.delete("pvc", "first")
        made.wait_for("the volume to be Available", lambda: api.get("pv", volume)["status"]["phase"] == "Available", 60)
        assert not api.get("pv", volume)["spec"].get("claimRef")
        equal(os.listdir(path), [])
        equal((os.stat(path).st_ino, os.stat(path).st_mode & 0o7777), (inode, 0o2775))
        made.create_claim("second", storage_class="nfs", modes=("ReadWriteMany",))
        made.wait_for("the second claim to be bound", lambda: made.phase("second") == "Bound")
        equal(api.get("pvc", "second")["spec"]["volumeName"], volume)
        equal(names(context.path() + "/default"), ["first"], "no other directory was made")
        assert any(event["reason"] == "VolumeRecycled" for event in api.list("event")), "event VolumeRecycled"
        # and with policy Delete it goes
        write(path + "/data")
        api.patch("pv", volume, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
        api.delete("pvc", "second")
        made.wait_for("the volume to be gone", lambda: api.get("pv", volume) is None, 60)
        equal(names(context.path()), [])


def test_class_of_the_subdir_provisioner(context):
    with stack(context) as made:
        create_class(made.api, "legacy", context.parameters(
            pathPattern="${.PVC.namespace}/${.PVC.name}", archiveOnDelete="true"))
        made.create_claim("data", storage_class="legacy")
        made.wait_for("the claim to be bound", lambda: made.phase("data") == "Bound")
        write(context.path() + "/default/data/file")
        volume = made.api.get("pvc", "data")["spec"]["volumeName"]
        made.api.delete("pvc", "data")
        made.wait_for("the volume to be gone", lambda: made.api.get("pv", volume) is None, 60)
        equal(names(context.path()), ["archived-default"])
        equal(names(context.path() + "/archived-default/data"), ["file"])
