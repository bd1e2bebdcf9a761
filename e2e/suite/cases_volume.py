# SPDX-License-Identifier: Apache-2.0
"""What a pod sees of its volumes."""
import re
import time

from lab import Skip, csi_call, expect, wait_for
from registry import case

MIB = 1 << 20


@case("data survives the pod", flavours="all")
def data_survives(lab):
    lab.claim()
    lab.run("write", "mkdir -m 750 /v/d && echo kept >/v/d/f && chmod 640 /v/d/f && ln -s d/f /v/l && ln /v/d/f /v/h "
                     "&& dd if=/dev/urandom of=/v/big bs=1M count=6 2>/dev/null && md5sum </v/big >/v/sum && sync")
    volume = lab.wait_bound()
    if lab.flavour.can("topology"):
        terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        node = terms[0]["matchExpressions"][0]["values"][0]
        expect(node in lab.cluster.nodes, f"the volume's node affinity names {node}")
    text = lab.run("read", "cat /v/l && stat -c '%a %h' /v/d/f && md5sum </v/big | diff - /v/sum && echo same")
    expect(text.split("\n")[:3] == ["kept", "640 2", "same"], f"the second pod saw {text!r}")


@case("late binding waits for the pod", flavours="topology")
def late_binding(lab):
    lab.claim()
    wait_for("the event WaitForFirstConsumer", lambda: any(
        e["reason"] == "WaitForFirstConsumer" for e in lab.api.list("event", lab.ns)), 20)
    time.sleep(1)
    claim = lab.get_claim()
    expect(claim["status"]["phase"] == "Pending" and not claim["spec"].get("volumeName"), "bound without a pod")
    lab.run("user", "df /v >/dev/null", delete=False)
    lab.wait_bound()
    node = lab.api.get("pod", "user", lab.ns)["spec"]["nodeName"]
    selected = lab.get_claim()["metadata"]["annotations"].get("volume.kubernetes.io/selected-node")
    expect(selected == node, f"selected-node is {selected}, the pod ran on {node}")


@case("size is enforced", flavours="enforced")
def size_enforced(lab):
    lab.claim(size="12Mi")
    text = lab.run("fill", """
df -kP /v | tail -1 | awk '{print "total", $2}'
dd if=/dev/zero of=/v/fill bs=64k count=400 2>/tmp/said && echo "wrote all of it"
grep -o 'No space left on device' /tmp/said
wc -c </v/fill
rm /v/fill
dd if=/dev/zero of=/v/again bs=64k count=64 2>/dev/null && echo "fits again"
""")
    total = int(re.search(r"total (\d+)", text).group(1)) * 1024
    expect(9 * MIB < total <= 12 * MIB, f"df says {total} bytes of 12 Mi")
    lines = text.split("\n")
    expect(lines[1] == "No space left on device", f"the pod saw {text!r}")
    expect(8 * MIB < int(lines[2]) <= 12 * MIB, f"{lines[2]} bytes fitted into 12 Mi")
    expect(lines[3] == "fits again", f"the pod saw {text!r}")


@case("block device", flavours="block")
def block_device(lab):
    lab.claim(size="16Mi", volumeMode="Block")
    text = lab.run("write", "blockdev --getsize64 /dev/x; echo kept on the device | dd of=/dev/x bs=512 seek=2000 "
                            "conv=fsync 2>/dev/null; dd if=/dev/zero of=/dev/x bs=1M seek=16 count=1 2>/dev/null "
                            "|| echo ends there", claims={"/dev/x": "data"})
    expect(text.split("\n")[:2] == [str(16 * MIB), "ends there"], f"the first pod saw {text!r}")
    text = lab.run("read", "dd if=/dev/x bs=512 skip=2000 count=1 2>/dev/null | head -1", claims={"/dev/x": "data"})
    expect(text.strip() == "kept on the device", f"the second pod saw {text!r}")


@case("shared by two pods", flavours="all")
def shared(lab):
    mode = "ReadWriteMany" if lab.flavour.name == "nfs" else "ReadWriteOnce"
    lab.claim(modes=(mode,))
    lab.start("one", "echo from one >/v/one; until [ -e /v/two ]; do sleep 0.2; done; cat /v/two")
    lab.wait_phase("one", "Running")
    node = lab.api.get("pod", "one", lab.ns)["spec"]["nodeName"]
    others = [n for n in lab.cluster.nodes if n != node]
    fields = {}
    if lab.flavour.can("across-nodes") and others:
        fields = {"nodeName": others[0]}
        lab.note = "on two nodes"
    text = lab.run("two", "cat /v/one; echo from two >/v/two", **fields)
    expect(text.strip() == "from one", f"the second pod saw {text!r}")
    lab.wait_phase("one", "Succeeded")
    expect(lab.log("one").strip() == "from two", f"the first pod saw {lab.log('one')!r}")


@case("read-only mount", flavours="all")
def read_only(lab):
    lab.claim()
    lab.run("write", "echo kept >/v/f")
    lab.start("read", "cat /v/f; (echo x >/v/g) 2>&1 | grep -o 'Read-only file system'", claims={},
              mounts=[{"name": "r", "mountPath": "/v"}],
              volumes=[{"name": "r", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}])
    lab.wait_phase("read", "Succeeded")
    text = lab.log("read")
    expect(text.split() == ["kept", "Read-only", "file", "system"], f"the pod saw {text!r}")


@case("one pod only (ReadWriteOncePod)", flavours="topology")
def one_pod_only(lab):
    if lab.cluster.minor < 27:
        raise Skip(f"Kubernetes 1.{lab.cluster.minor} does not know ReadWriteOncePod")
    lab.claim(modes=("ReadWriteOncePod",))
    lab.start("one", "sleep 1000")
    lab.wait_phase("one", "Running")
    lab.start("two", "true")
    time.sleep(5)
    expect(lab.phase("two") == "Pending", f"the second pod is {lab.phase('two')}")
    lab.delete_pod("one")
    lab.wait_phase("two", "Succeeded")


@case("inline ephemeral volume", flavours="inline")
def inline(lab):
    volume = {"name": "e", "csi": {"driver": lab.flavour.driver, "volumeAttributes": {"size": "8Mi"}}}
    for pod in ("first", "second"):
        text = lab.run(pod, "ls /v | grep -v lost+found; echo x >/v/f; df -kP /v | tail -1 | awk '{print $2}'", claims={},
                       mounts=[{"name": "e", "mountPath": "/v"}], volumes=[volume])
        expect(0 < int(text) <= 8 * 1024, f"pod {pod} saw {text!r}")


@case("group of a pod (fsGroup)", flavours="all")
def fs_group(lab):
    lab.claim()
    lab.run("root", "mkdir /v/d && echo before >/v/d/f && chmod 600 /v/d/f")
    text = lab.run("user", "cat /v/d/f && echo new >/v/d/g && stat -c '%u:%g' /v/d/g",
                   securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000})
    expect(text.split() == ["before", "1000:2000"], f"the pod saw {text!r}")


@case("part of a volume (subPath)", flavours="all")
def sub_path(lab):
    lab.claim()
    lab.run("parts", "echo a >/a/f; echo b >/b/f", claims={},
            mounts=[{"name": "d", "mountPath": "/a", "subPath": "a"}, {"name": "d", "mountPath": "/b", "subPath": "x/b"}],
            volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
    text = lab.run("whole", "cat /v/a/f /v/x/b/f")
    expect(text.split() == ["a", "b"], f"the pod saw {text!r}")


@case("clone", flavours="all")
def clone(lab):
    lab.claim()
    lab.run("write", "mkdir /v/d; echo original >/v/d/f; chown 7:8 /v/d/f")
    lab.claim("copy", dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
    text = lab.run("change", "cat /v/d/f; stat -c %u:%g /v/d/f; echo copy >/v/d/f", claims={"/v": "copy"})
    expect(text.split() == ["original", "7:8"], f"the copy has {text!r}")
    expect(lab.run("look", "cat /v/d/f").strip() == "original", "writing to the copy changed the original")


@case("snapshot and restore", flavours="all")
def snapshot(lab):
    if "snapshot.storage.k8s.io" not in lab.cluster.groups:
        raise Skip("the cluster has no VolumeSnapshot CRDs")
    classes = lab.api.request("GET", "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses")["items"]
    mine = [c["metadata"]["name"] for c in classes if c["driver"] == lab.flavour.driver]
    if not mine:
        raise Skip("no VolumeSnapshotClass of the driver")
    lab.claim()
    lab.run("write", "echo then >/v/f")
    lab.api.create("snapshot", {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                                "metadata": {"name": "s"}, "spec": {"volumeSnapshotClassName": mine[0], "source": {
                                    "persistentVolumeClaimName": "data"}}}, lab.ns)
    wait_for("the snapshot", lambda: lab.api.get("snapshot", "s", lab.ns).get("status", {}).get("readyToUse"), 60)
    lab.run("change", "echo now >/v/f")
    lab.claim("restored", dataSource={"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"})
    text = lab.run("read", "cat /v/f", claims={"/v": "restored"})
    expect(text.strip() == "then", f"the restored volume has {text!r}")
    lab.api.delete("snapshot", "s", lab.ns)


@case("grows while a pod uses it", flavours="all")
def expansion(lab):
    if lab.flavour.name == "loop" and not lab.cluster.may_resize():
        raise Skip("growing ext4 while it is mounted needs CAP_SYS_RESOURCE, which this machine does not give")
    lab.claim(size="10Mi")
    lab.start_writer()
    volume = lab.wait_bound()
    lab.api.patch("pvc", "data", {"spec": {"resources": {"requests": {"storage": "24Mi"}}}}, lab.ns)

    def grown():
        return lab.get_claim()["status"]["capacity"]["storage"] == "24Mi"
    try:
        wait_for("an external-resizer", grown, 20 if lab.cluster.options.resizer else 0)
    except Exception:
        if lab.cluster.options.resizer:
            raise
        resize_by_hand(lab, volume)
        lab.note = "the resizer's part by hand"
        wait_for("kubelet to grow the volume", grown, 60)
    lab.writer_moves()
    if lab.flavour.can("enforced"):
        lab.start("look", "df -kP /v | tail -1 | awk '{print $2}'")
        lab.wait_phase("look", "Succeeded")
        expect(16 * 1024 < int(lab.log("look")) <= 24 * 1024, f"df says {lab.log('look')} KiB of 24 Mi")
    lab.stop_writer()


def resize_by_hand(lab, volume):
    """external-resizer's part: the driver's answer into volume and claim."""
    answer = csi_call(lab.cluster, lab.flavour.driver, "ControllerExpandVolume",
                      {"volume_id": volume["spec"]["csi"]["volumeHandle"],
                       "capacity_range": {"required_bytes": 24 * MIB},
                       "volume_capability": {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}})
    lab.api.patch("pv", volume["metadata"]["name"], {"spec": {"capacity": {"storage": "24Mi"}}})
    if answer.get("node_expansion_required"):
        status = {"conditions": [{"type": "FileSystemResizePending", "status": "True",
                                  "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}]}
    else:
        status = {"capacity": {"storage": "24Mi"}}
    lab.api.patch("pvc", "data", {"status": status}, lab.ns, "status")


@case("hundred claims in one pod", flavours="fuse", alone=True)
def hundred(lab):
    count = lab.cluster.options.many
    begin = time.monotonic()
    for i in range(count):
        lab.claim(f"c{i}", size="1Mi")
    paths = {f"/v/{i}": f"c{i}" for i in range(count)}
    lab.run("user", "for d in /v/*; do echo ${d#/v/} >$d/f || exit 1; done", claims=paths, timeout=240)
    lab.note = f"{count} claims used after {time.monotonic() - begin:.1f} s"
    text = lab.run("again", "cat /v/*/f", claims=paths, timeout=240)
    expect(sorted(map(int, text.split())) == list(range(count)), "some volume lost or changed its file")
    begin = time.monotonic()
    volumes = {lab.wait_bound(f"c{i}")["metadata"]["name"] for i in range(count)}
    expect(len(volumes) == count, f"{len(volumes)} volumes for {count} claims")
    for i in range(count):
        lab.delete_claim(f"c{i}")
    wait_for("all volumes to be deleted",
             lambda: not volumes & {v["metadata"]["name"] for v in lab.api.list("pv")}, 120, 0.5)
    lab.note += f", gone after {time.monotonic() - begin:.1f} s"


@case("claim that asks too much gets an event")
def too_much(lab):
    flavour = next((f for f in lab.cluster.flavours() if f.can("topology")), None)
    if not flavour:
        raise Skip("no driver with capacity")
    lab.claim(size="100Ti", storage_class=flavour.storage_class)
    lab.start("user", "true")

    def refused():
        return [e for e in lab.api.list("event", lab.ns) if e["reason"] in ("FailedScheduling", "ProvisioningFailed")
                and re.search("free storage|capacity|space|large|size", e["message"])]
    wait_for("an event that says why", refused, 30)
    expect(lab.get_claim()["status"]["phase"] == "Pending", "100 Ti were granted")


@case("wrong parameter is named in an event")
def wrong_parameter(lab):
    # where the driver reports capacity, the scheduler stops earlier, and a node's provisioner holds back
    flavour = max(lab.cluster.flavours(), key=lambda f: f.name == "nfs")
    name = lab.ns
    lab.api.create("sc", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                          "provisioner": flavour.driver, "parameters": {"colour": "blue"},
                          "volumeBindingMode": "Immediate"})
    try:
        lab.claim(storage_class=name)
        wait_for("an event that names the parameter", lambda: [
            e for e in lab.api.list("event", lab.ns)
            if e["reason"] == "ProvisioningFailed" and "colour" in e["message"]], 90)
        lab.delete_claim()
        wait_for("the claim to go", lambda: not lab.get_claim(), 30)
    finally:
        lab.api.delete("sc", name)


@case("immediate binding without a pod")
def immediate(lab):
    flavour = next((f for f in lab.cluster.flavours() if f.name == "plain"), lab.cluster.flavours()[0])
    name = lab.ns
    lab.api.create("sc", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                          "provisioner": flavour.driver, "volumeBindingMode": "Immediate",
                          "parameters": lab.cluster.classes[flavour.storage_class].get("parameters", {})})
    try:
        lab.claim(storage_class=name)
        # provisioners on nodes hold back at first, so that those of many nodes do not race
        lab.wait_bound(timeout=60)
        lab.run("use", "echo x >/v/f")
    finally:
        lab.api.delete("sc", name)
