# SPDX-License-Identifier: Apache-2.0
"""One behaviour of the provisioner at a time."""
import os
import subprocess

from harness import BUILD, expect, wait_for
from provisioner_lab import DRIVER, SELECTED, Driver, add_node, lab, settle

PROTECTION = "provisioner.storage.kubernetes.io/"
SECRET_PARAMETERS = {"csi.storage.k8s.io/provisioner-secret-name": "${pvc.name}-key",
                     "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}"}


def uid_of(claim):
    return claim["metadata"]["uid"]


def claim_and_volume():
    """The objects, events and metrics of the plain case."""
    with lab() as s:
        s.create_class(parameters={"kind": "fast", "csi.storage.k8s.io/fstype": "xfs"})
        uid = uid_of(s.create_claim("c"))
        volume = s.wait_bound("c")
        expect(volume["metadata"]["name"] == "pvc-" + uid, volume["metadata"]["name"])
        expect(volume["spec"]["csi"]["fsType"] == "xfs", "fsType")
        expect(volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == DRIVER, "provisioned-by")
        expect("external-provisioner.volume.kubernetes.io/finalizer" in volume["metadata"]["finalizers"], "finalizer")
        wait_for("the events", lambda: {e["reason"] for e in s.events("c")} >= {"Provisioning", "ProvisioningSucceeded"})
        component = s.events("c", "Provisioning")[0]["source"]["component"]
        expect(component.startswith(DRIVER + "_") and component.count("_") == 2, component)
        labels = '{class="fake",source=""}'
        expect(s.metric("controller_persistentvolumeclaim_provision_total" + labels) == 1, "provision_total")
        expect(s.metric("controller_persistentvolumeclaim_provision_duration_seconds_count" + labels) == 1, "duration")
        expect(s.metric('csi_sidecar_operations_seconds_count{driver_name="unknown-driver",'
                        'method_name="/csi.v1.Identity/Probe",grpc_status_code="OK"}') == 1, "Probe")
        expect(s.metric(f'csi_sidecar_operations_seconds_count{{driver_name="{DRIVER}",'
                        'method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="OK"}') == 1, "CreateVolume")
        for queue in ("claims", "volumes", "unsavedpvs"):
            expect(s.metric(f'workqueue_adds_total{{name="{queue}"}}') >= 0 and
                   f'workqueue_depth{{name="{queue}"}}' in s.http("/metrics")[1], queue)
        wait_for("the time to bound", lambda: s.metric("berth_claim_bound_seconds_count") == 1)
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)
        wait_for("the metric", lambda: s.metric('controller_persistentvolume_delete_total{class="fake"}') == 1)
        agents = {e.get("userAgent", "") for e in s.journal()}
        expect(any(a.startswith("berth-provisioner/") for a in agents), agents)


def secrets():
    with lab() as s:
        s.create_class(parameters=SECRET_PARAMETERS)
        uid = uid_of(s.create_claim("c"))
        wait_for("the event about the missing secret",
                 lambda: any("error getting secret c-key" in e["message"] for e in s.events("c", "ProvisioningFailed")))
        expect(not s.driver.calls("CreateVolume"), "called without its secret")
        s.api.create("secret", {"metadata": {"name": "c-key"}, "data": {"word": "b3Blbg=="}})
        volume = s.wait_bound("c")
        expect(s.driver.calls("CreateVolume", uid)[0]["details"]["secrets"] == {"word": "open"}, "secret of the call")
        notes = volume["metadata"]["annotations"]
        expect(notes["volume.kubernetes.io/provisioner-deletion-secret-name"] == "c-key", notes)
        expect("open" not in s.provisioner.log_text() and "b3Blbg" not in s.provisioner.log_text(), "secret in the log")
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)
        expect(s.driver.calls("DeleteVolume")[0]["details"]["secrets"] == {"word": "open"}, "secret of the deletion")
        uid = uid_of(s.create_claim("c"))  # without it the driver is asked all the same
        s.wait_bound("c")
        s.api.delete("secret", "c-key")
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)
        expect(s.driver.calls("DeleteVolume")[-1]["details"]["secrets"] == {}, "secrets from nowhere")


def attached_volumes_stay():
    with lab(capabilities="PUBLISH_UNPUBLISH_VOLUME") as s:
        s.create_class()
        uid = uid_of(s.create_claim("c"))
        s.wait_bound("c")
        s.api.create("attachment", {"metadata": {"name": "a"}, "spec": {
            "attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pvc-" + uid}}})
        settle()
        s.api.delete("pvc", "c")
        wait_for("the event", lambda: any(f"persistentvolume pvc-{uid} is still attached to node n1" in e["message"]
                                          for e in s.events("pvc-" + uid, "VolumeFailedDelete")))
        expect(not s.driver.calls("DeleteVolume"), "deleted an attached volume")
        s.api.delete("attachment", "a")
        s.wait_nothing_left(uid)


def name_taken():
    """A volume object of our name that is about another volume: what was made is deleted, the other one stays."""
    with lab() as s:
        s.create_class()
        uid = uid_of(s.create_claim("c", annotate=False))
        other = {"metadata": {"name": "pvc-" + uid}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
            "persistentVolumeReclaimPolicy": "Retain", "csi": {"driver": "other.driver", "volumeHandle": "theirs"}}}
        s.api.create("pv", other)
        s.annotate("c")
        wait_for("the event", lambda: any("belongs to another volume" in e["message"]
                                          for e in s.events("c", "ProvisioningFailed")))
        wait_for("the clean-up", lambda: len(s.driver.calls("DeleteVolume")) >= 1)
        s.api.delete("pvc", "c")
        wait_for("our volume to be gone", lambda: not s.driver.volumes(uid) and not s.intents())
        expect(s.api.get("pv", "pvc-" + uid)["spec"]["csi"]["volumeHandle"] == "theirs", "touched the other volume")


def same_volume_saved_by_another():
    with lab(start=False) as s:
        s.create_class()
        uid = uid_of(s.create_claim("c"))
        s.driver.script("CreateVolume", {"id": "vol-1"})
        s.fault(action="drop", verb="create", resource="persistentvolumes", when="after", times=1)
        s.start()
        s.wait_bound("c")
        expect(len(s.driver.volumes(uid)) == 1 and not s.driver.calls("DeleteVolume"), "deleted its own volume")


def volumes_that_cannot_be_written():
    with lab() as s:
        s.create_class()
        s.fault(action="status", verb="create", resource="persistentvolumes", code=500, times=6)
        kept, gone = uid_of(s.create_claim("kept")), uid_of(s.create_claim("gone"))
        wait_for("both volumes", lambda: len(s.driver.volumes()) == 2)
        s.api.delete("pvc", "gone")
        s.wait_bound("kept")
        s.wait_nothing_left(gone)
        expect(len(s.driver.volumes(kept)) == 1, "kept")


def bad_answers():
    with lab() as s:
        s.create_class()
        for number, (step, text) in enumerate([({"size": 5}, "created volume capacity 5 less than requested capacity"),
                                               ({"size": -1}, "less than requested capacity"),
                                               ({"no_id": True}, "no volume id")]):
            claim = s.create_claim(f"c{number}", annotate=False)
            s.driver.script("CreateVolume", {"match": uid_of(claim), **step})
            s.annotate(f"c{number}")
            s.wait_bound(f"c{number}")
            expect(any(text in e["message"] for e in s.events(f"c{number}", "ProvisioningFailed")), text)
            expect(len(s.driver.volumes(uid_of(claim))) == 1, s.driver.volumes())
        expect(len(s.driver.calls("DeleteVolume")) == 2, "what was too small is deleted")


def answers_that_stay_bad():
    """A volume that is never as large as asked for: once it is deleted, nothing is left to ask about."""
    with lab() as s:
        s.create_class()
        uid = uid_of(s.create_claim("c", annotate=False))
        s.driver.script("CreateVolume", {"match": uid, "size": 5, "times": -1, "delay_ms": 300})
        s.annotate("c")
        wait_for("the call", lambda: s.driver.calls("CreateVolume", uid))
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)
        wait_for("the matter to end", lambda: s.metric("berth_claims_pending") == 0)
        calls = len(s.driver.calls("CreateVolume", uid))
        settle(0.8)
        expect(len(s.driver.calls("CreateVolume", uid)) == calls, "asked again")


def volumes_of_others_stay():
    """Answers and objects that name a volume which is somebody else's."""
    with lab() as s:
        s.create_class()
        uid = uid_of(s.create_claim("a", annotate=False))
        s.driver.script("CreateVolume", {"match": uid, "id": "vol-a"})
        s.annotate("a")
        s.wait_bound("a")
        uid = uid_of(s.create_claim("b", annotate=False))
        s.driver.script("CreateVolume", {"match": uid, "id": "vol-a", "size": 5, "times": 2})
        s.annotate("b")
        wait_for("the event", lambda: any("less than requested" in e["message"]
                                          for e in s.events("b", "ProvisioningFailed")))
        settle()
        expect(not s.driver.calls("DeleteVolume"), "deleted a volume that claim a uses")
        s.api.create("pv", {"metadata": {"name": "foreign", "annotations": {
            "pv.kubernetes.io/provisioned-by": DRIVER}}, "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "other.driver", "volumeHandle": "vol-a"},
                "claimRef": {"namespace": "default", "name": "gone", "uid": "gone"}}})
        wait_for("the refusal", lambda: any("other.driver" in e["message"]
                                            for e in s.events("foreign", "VolumeFailedDelete")))
        expect(not s.driver.calls("DeleteVolume"), "deleted by the handle of another driver")


def volumes_that_are_refused():
    """The server never takes the object: the user is told, and when the claim goes the volume goes too."""
    with lab() as s:
        s.create_class(reclaimPolicy="Retain")
        s.fault(action="status", verb="create", resource="persistentvolumes", code=413, times=0)
        uid = uid_of(s.create_claim("c", annotate=False))
        s.driver.script("CreateVolume", {"match": uid, "context_bytes": 5 << 20})  # more than Go programs receive
        s.annotate("c")
        wait_for("the event", lambda: any("413" in e["message"] for e in s.events("c", "ProvisioningFailed")))
        settle()
        expect(len(s.driver.volumes(uid)) == 1 and not s.driver.calls("DeleteVolume"), "deleted while it is wanted")
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)


def slow_driver():
    """Calls that time out are repeated until the answer is known, also when the claim goes."""
    with lab(args=["--timeout=300ms"]) as s:
        s.create_class()
        for deleted in (False, True):
            name = f"c-{deleted}".lower()
            uid = uid_of(s.create_claim(name, annotate=False))
            s.driver.script("CreateVolume", {"match": uid, "times": 3, "effect": True, "delay_ms": 2000})
            s.annotate(name)
            wait_for("the first time-out", lambda n=name: s.events(n, "ProvisioningFailed"))
            expect(any("code = DeadlineExceeded" in e["message"] for e in s.events(name, "ProvisioningFailed")), "text")
            if deleted:
                s.api.delete("pvc", name)
                s.wait_nothing_left(uid)
            else:
                s.wait_bound(name)
            expect(len(s.driver.calls("CreateVolume", uid)) == 4, "calls")


def infeasible_claims_wait():
    with lab(args=["--retry-interval-max=1h"]) as s:
        s.create_class()
        uid = uid_of(s.create_claim("c", annotate=False))
        s.driver.script("CreateVolume", {"match": uid, "code": 3})
        s.annotate("c")
        wait_for("the event", lambda: any("infeasible error. Retries will be delayed." in e["message"]
                                          for e in s.events("c", "ProvisioningFailed")))
        settle(0.8)
        expect(len(s.driver.calls("CreateVolume", uid)) == 1, "called during the delay")
        s.api.delete("sc", "fake")
        s.create_class()
        s.wait_bound("c", 20)


def final_codes_by_flag():
    with lab(args=["--provision-background-codes=Internal", "--event-history", "--recheck-deleted-claims=false"]) as s:
        s.create_class()
        uid = uid_of(s.create_claim("c", annotate=False))
        s.driver.script("CreateVolume", {"match": uid, "code": 13, "effect": True, "times": 2, "message": "one"},
                        {"match": uid, "code": 13, "message": "two", "delay_ms": 400})
        s.annotate("c")
        wait_for("the third call", lambda: len(s.driver.calls("CreateVolume", uid)) == 3)
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)
        expect(any("desc = two (the first error was: rpc error: code = Internal desc = one)" in e["message"]
                   for e in s.events("c", "ProvisioningFailed")), "event with both errors")
        uid = uid_of(s.create_claim("d", annotate=False))  # a final code with a volume made: upstream's leak, as asked
        s.driver.script("CreateVolume", {"match": uid, "code": 2, "effect": True, "delay_ms": 400})
        s.annotate("d")
        wait_for("the call", lambda: s.driver.calls("CreateVolume", uid))
        s.api.delete("pvc", "d")
        settle(1)
        expect(len(s.driver.calls("CreateVolume", uid)) == 1, "asked again although told not to")


def passed_metadata():
    with lab(args=["--extra-create-metadata", "--claim-annotations-to-parameters=owner",
                   "--claim-labels-to-volume=team", "--namespace-labels-to-parameters=env"]) as s:
        s.create_class()
        s.api.patch("namespace", "default", {"metadata": {"labels": {"env": "prod"}}})
        uid = uid_of(s.create_claim("c", annotations={"owner": "ann", "other": "x"}, labels={"team": "red"}))
        volume = s.wait_bound("c")
        prefix = "csi.storage.k8s.io/"
        expect(s.driver.calls("CreateVolume")[0]["details"]["parameters"] == {
            "kind": "fast", prefix + "pvc/name": "c", prefix + "pvc/namespace": "default",
            prefix + "pv/name": "pvc-" + uid, prefix + "pvc/annotations/owner": "ann",
            prefix + "namespace/labels/env": "prod"}, s.driver.calls("CreateVolume")[0]["details"])
        expect(volume["metadata"]["labels"] == {"team": "red"}, volume["metadata"])


def clones():
    with lab(capabilities="CLONE_VOLUME") as s:
        s.create_class()
        s.create_claim("src")
        s.wait_bound("src")
        source = {"kind": "PersistentVolumeClaim", "name": "src"}
        copy = uid_of(s.create_claim("copy", annotate=False, dataSource=source))
        s.driver.script("CreateVolume", {"match": copy, "no_source": True},
                        {"match": copy, "code": 10, "effect": True, "delay_ms": 300})
        s.annotate("copy")
        wait_for("the second call", lambda: len(s.driver.calls("CreateVolume", copy)) == 2)
        expect(any("volume content source missing" in e["message"] for e in s.events("copy", "ProvisioningFailed")),
               "event about the missing source")
        finalizer = PROTECTION + "cloning-protection"
        expect(finalizer in s.api.get("pvc", "src")["metadata"]["finalizers"], "the source is not protected")
        s.api.delete("pvc", "src")  # while the driver copies
        s.wait_bound("copy")
        wait_for("the source to go", lambda: not s.api.get("pvc", "src"))


def snapshots():
    with lab(capabilities="CREATE_DELETE_SNAPSHOT", args=["--snapshot-orphan-sweep-interval=500ms"]) as s:
        s.create_class()
        finalizer = PROTECTION + "volumesnapshot-as-source-protection"
        for name, finalizers in (("s", []), ("orphan", [finalizer])):
            made = s.api.create("snapshot", {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                                             "metadata": {"name": name, "finalizers": finalizers},
                                             "spec": {"source": {"persistentVolumeClaimName": "x"}}})
            s.api.patch("snapshot", name, {"status": {"readyToUse": True, "boundVolumeSnapshotContentName": "k-" + name}},
                        sub="status")
            s.api.create("snapshotcontent", {
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
                "metadata": {"name": "k-" + name}, "spec": {
                    "driver": DRIVER, "deletionPolicy": "Delete", "source": {"snapshotHandle": "h"},
                    "volumeSnapshotRef": {"name": name, "namespace": "default", "uid": uid_of(made)}}})
            s.api.patch("snapshotcontent", "k-" + name, {"status": {"snapshotHandle": "h", "readyToUse": True}},
                        sub="status")
        wait_for("the sweep", lambda: not s.api.get("snapshot", "orphan")["metadata"].get("finalizers"))
        uid = uid_of(s.create_claim("c", annotate=False, dataSource={
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}))
        s.driver.script("CreateVolume", {"match": uid, "code": 10, "times": 4, "delay_ms": 400})
        s.annotate("c")
        wait_for("the protection", lambda: finalizer in s.api.get("snapshot", "s")["metadata"].get("finalizers", []))
        wait_for("two calls", lambda: len(s.driver.calls("CreateVolume", uid)) >= 3)  # the sweep ran meanwhile
        expect(finalizer in s.api.get("snapshot", "s")["metadata"].get("finalizers", []), "swept while needed")
        s.wait_bound("c")
        wait_for("the protection to go", lambda: not s.api.get("snapshot", "s")["metadata"].get("finalizers"))
        expect("h" in s.driver.calls("CreateVolume", uid)[0]["details"]["text"], "snapshot id")


def populators():
    with lab() as s:
        s.create_class()
        s.create_claim("c", dataSourceRef={"apiGroup": "my.org", "kind": "Backup", "name": "b"})
        wait_for("the event", lambda: any("populator" in e["message"] for e in s.events("c", "Provisioning")))
        settle()
        expect(not s.driver.calls("CreateVolume") and not s.events("c", "ProvisioningFailed"), "not left alone")


def recycle():
    with lab(driver_args=["--recycle"]) as s:
        s.create_class()
        uid = uid_of(s.create_claim("c"))
        name = s.wait_bound("c")["metadata"]["name"]
        s.api.patch("pv", name, {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}})
        wait_for("the finalizer to go", lambda: "external-provisioner.volume.kubernetes.io/finalizer" not in
                 s.api.get("pv", name)["metadata"]["finalizers"])
        s.driver.script("Scrub", {"code": 9, "message": "still published"})
        s.api.delete("pvc", "c")
        wait_for("the volume to be available", lambda: s.api.get("pv", name)["status"]["phase"] == "Available" and
                 "claimRef" not in s.api.get("pv", name)["spec"])
        expect(len(s.driver.calls("Scrub")) == 2, "one failed and one good Scrub")
        expect(len(s.driver.volumes(uid)) == 1 and not s.driver.calls("DeleteVolume"), "the volume is gone")
        wait_for("the events", lambda: s.events(name, "VolumeRecycled") and s.events(name, "VolumeFailedRecycle"))
        expect(s.metric("berth_volume_recycle_total") == 1, "metric")
        # a volume whose claim lives is never scrubbed, whatever its phase says
        s.create_claim("d")
        name = s.wait_bound("d")["metadata"]["name"]
        s.binder.stop()
        s.api.patch("pv", name, {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}})
        s.api.patch("pv", name, {"status": {"phase": "Released"}}, sub="status")
        wait_for("the refusal", lambda: any("exists still or again" in e["message"]
                                            for e in s.events(name, "VolumeFailedRecycle")))
        expect(len(s.driver.calls("Scrub")) == 2, "scrubbed a volume in use")


def attributes_class():
    with lab(capabilities="MODIFY_VOLUME") as s:
        s.create_class()
        s.create_claim("c", volumeAttributesClassName="gold")
        wait_for("the event", lambda: any("VolumeAttributesClass gold" in e["message"]
                                          for e in s.events("c", "ProvisioningFailed")))
        s.api.create("vac", {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                             "metadata": {"name": "gold"}, "driverName": DRIVER, "parameters": {"iops": "5"}})
        expect(s.wait_bound("c")["spec"]["volumeAttributesClassName"] == "gold", "class of the volume")
        expect(s.driver.calls("CreateVolume")[-1]["details"]["mutable_parameters"] == {"iops": "5"}, "parameters")


def migrated_plugin():
    """A driver that stands in for an in-tree plugin: its classes, claims and volumes."""
    driver, plugin = "ebs.csi.aws.com", "kubernetes.io/aws-ebs"
    with lab(name=driver) as s:
        s.create_class(provisioner=plugin, parameters={"fstype": "xfs", "type": "gp2"})
        uid = uid_of(s.create_claim("c", annotate=False, annotations={
            "pv.kubernetes.io/migrated-to": driver}))
        # the reply to the first write is lost: the object in the plugin's form is known again
        s.fault(action="drop", verb="create", resource="persistentvolumes", when="after", times=1)
        s.annotate("c", **{"volume.kubernetes.io/storage-provisioner": plugin})
        volume = s.wait_bound("c")
        expect(volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == plugin, "provisioned-by")
        expect(s.driver.calls("CreateVolume")[0]["details"]["parameters"] == {"type": "gp2"}, "parameters")
        handle = s.driver.volumes(uid)[0]["id"]
        expect(volume["spec"]["awsElasticBlockStore"] == {"volumeID": handle, "fsType": "xfs"}, volume["spec"])
        expect("csi" not in volume["spec"] and not s.driver.calls("DeleteVolume"), "not in the plugin's form")
        expect(s.metric(f'csi_sidecar_operations_seconds_count{{driver_name="{driver}",method_name='
                        '"/csi.v1.Controller/CreateVolume",grpc_status_code="OK",migrated="true"') == 1, "migrated")
        s.create_class("both", provisioner=plugin, parameters={"zone": "a"}, allowedTopologies=[
            {"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}])
        s.create_claim("d", cls="both", annotate=False, annotations={
            "volume.kubernetes.io/storage-provisioner": plugin, "pv.kubernetes.io/migrated-to": driver})
        wait_for("the event", lambda: any("failed to translate storage class" in e["message"]
                                          for e in s.events("d", "ProvisioningFailed")))
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)
        s.api.create("pv", {"metadata": {"name": "old", "annotations": {
            "pv.kubernetes.io/provisioned-by": plugin, "pv.kubernetes.io/migrated-to": driver}}, "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "default", "name": "gone", "uid": "gone"},
                "awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-7"}}})
        wait_for("the old volume to go", lambda: not s.api.get("pv", "old"))
        expect(s.driver.calls("DeleteVolume", "vol-7"), "the driver was not asked")


def capacity():
    env = {"NAMESPACE": "default", "POD_NAME": "pod"}
    with lab(capabilities="VOLUME_ACCESSIBILITY_CONSTRAINTS,GET_CAPACITY", start=False, env=env,
             args=["--enable-capacity", "--kube-api-capacity-qps=100", "--kube-api-capacity-burst=100",
                   "--capacity-poll-interval=300ms", "--capacity-ownerref-level=0"]) as s:
        s.api.create("pod", {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        add_node(s.api, "n1", "a")
        add_node(s.api, "n2", "b")
        s.create_class(volumeBindingMode="WaitForFirstConsumer")
        s.create_class("immediate")
        s.driver.command(cmd="capacity", bytes=5 << 30, maximum=1 << 30)
        s.start()

        def objects():
            return {o["nodeTopology"]["matchLabels"]["zone"]: o for o in s.api.list("capacity")}
        wait_for("two objects", lambda: set(objects()) == {"a", "b"})
        made = objects()["a"]
        expect(made["capacity"] == "5Gi" and made["maximumVolumeSize"] == "1Gi", made)
        expect(made["storageClassName"] == "fake" and made["metadata"]["name"].startswith("csisc-"), made)
        expect(made["metadata"]["ownerReferences"][0]["kind"] == "Pod", made)
        expect(made["metadata"]["labels"] == {"csi.storage.k8s.io/drivername": DRIVER,
                                              "csi.storage.k8s.io/managed-by": "external-provisioner"}, made)
        expect(s.metric("csistoragecapacities_desired_goal") == 2 and s.metric("csistoragecapacities_obsolete") == 0,
               "metrics")
        s.driver.command(cmd="capacity", bytes=0)
        wait_for("the new capacity", lambda: all(o["capacity"] == "0" and "maximumVolumeSize" not in o
                                                 for o in objects().values()))
        versions = {k: o["metadata"]["resourceVersion"] for k, o in objects().items()}
        settle(1)
        expect(versions == {k: o["metadata"]["resourceVersion"] for k, o in objects().items()}, "written needlessly")
        s.api.delete("capacity", made["metadata"]["name"])
        wait_for("it to be made again", lambda: "a" in objects())
        s.api.delete("node", "n2")
        wait_for("the segment to go", lambda: set(objects()) == {"a"})
        s.api.delete("sc", "fake")
        wait_for("all to go", lambda: not objects())


def node_deployment():
    """Two nodes, each with driver and provisioner: every claim is provisioned by exactly one of them."""
    args = ["--node-deployment", "--strict-topology", "--immediate-topology=false",
            "--node-deployment-base-delay=200ms", "--node-deployment-max-delay=1s"]
    capabilities = "VOLUME_ACCESSIBILITY_CONSTRAINTS,GET_CAPACITY"
    with lab(capabilities=capabilities, args=args, driver_args=["--topology=host=n1"], start=False) as s:
        s.create_class()
        directory = os.path.join(s.directory, "second")
        os.mkdir(directory)
        second = Driver(directory, capabilities=capabilities, args=["--topology=host=n2"])
        try:
            s.env["NODE_NAME"] = "n1"
            s.start()
            s.env["NODE_NAME"] = "n2"
            s.start(key="second", driver=second)
            for i in range(12):
                s.create_claim(f"c{i}")
            hosts = set()
            for i in range(12):
                volume = s.wait_bound(f"c{i}", 30)
                term = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
                node = s.api.get("pvc", f"c{i}")["metadata"]["annotations"][SELECTED]
                expect(term == {"key": "host", "operator": "In", "values": [node]}, term)
                hosts.add(node)
            expect(len(s.driver.volumes()) + len(second.volumes()) == 12, "made twice")
            expect(hosts <= {"n1", "n2"}, hosts)
            s.driver.command(cmd="capacity", bytes=0)
            second.command(cmd="capacity", bytes=0)
            s.create_claim("none")
            wait_for("both to say so", lambda: {e["message"] for e in s.events("none", "ProvisioningFailed")} ==
                     {f"node {n} has not enough capacity for the claim" for n in ("n1", "n2")})
            for i in range(12):
                s.api.delete("pvc", f"c{i}")
            wait_for("all to go", lambda: not s.api.list("pv") and not s.driver.volumes() and not second.volumes())
        finally:
            second.process.kill()


def claims_given_to_other_nodes():
    """A node that had no room has nothing more to do with the claim: the next one may be making the volume."""
    with lab(capabilities="VOLUME_ACCESSIBILITY_CONSTRAINTS", driver_args=["--topology=host=n1"],
             args=["--node-deployment", "--strict-topology"], env={"NODE_NAME": "n1"}) as s:
        s.create_class(volumeBindingMode="WaitForFirstConsumer")
        uid = uid_of(s.create_claim("c", annotate=False, annotations={SELECTED: "n1"}))
        s.driver.script("CreateVolume", {"match": uid, "code": 8})
        s.annotate("c")
        wait_for("the annotation to go", lambda: SELECTED not in s.api.get("pvc", "c")["metadata"]["annotations"])
        s.annotate("c", **{SELECTED: "n2"})
        settle()
        s.api.delete("pvc", "c")
        settle(0.6)
        expect(len(s.driver.calls("CreateVolume", uid)) == 1, "asked again for a claim of another node")
        expect(not s.intents(), "record left")


def two_leaders():
    """One works, the other waits; after a SIGKILL the other goes on where the first one stopped."""
    args = ["--leader-election", "--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s",
            "--leader-election-retry-period=500ms"]
    with lab(args=args, start=False) as s:
        s.create_class()
        s.start(host="first.example")
        second = s.start("--feature-gates=ReleaseLeaderElectionOnExit=true", key="second", wait=False, host="second")
        name = DRIVER.replace(".", "-")
        lease = s.api.get("lease", name)
        expect(lease["spec"]["holderIdentity"] == "first-example", lease["spec"])
        expect(lease["spec"]["leaseDurationSeconds"] == 3, lease["spec"])
        wait_for("both to serve", lambda: s.http("/healthz/leader-election", second) == (200, "ok"))
        expect(s.http("/healthz/leader-election") == (200, "ok"), s.http("/healthz/leader-election"))
        expect(s.metric("leader_election_master_status") == 1, "metric of the leader")
        wait_for("the other's metric", lambda: "leader_election_master_status" in s.http("/metrics", second)[1])
        expect(s.metric("leader_election_master_status", second) == 0, "metric of the other")
        s.create_claim("one")
        s.wait_bound("one")
        expect('"Started"' not in second.log_text(), "both work")
        uid = uid_of(s.create_claim("two", annotate=False))
        s.driver.script("CreateVolume", {"match": uid, "kill_pid": s.provisioner.pid, "kill": "after"})
        s.annotate("two")
        s.provisioner.popen.wait(20)
        s.api.delete("pvc", "two")
        s.create_claim("three")
        s.wait_bound("three", 30)
        expect(s.api.get("lease", name)["spec"]["holderIdentity"] == "second", "holder")
        s.wait_nothing_left(uid)
        expect(len(s.driver.volumes()) == 2, s.driver.volumes())
        expect(second.stop() == 0, "exit status")
        expect(not s.api.get("lease", name)["spec"].get("holderIdentity"), "not released")


def lease_taken_away():
    """Who loses the lease ends at once."""
    args = ["--leader-election", "--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s",
            "--leader-election-retry-period=500ms"]
    with lab(args=args) as s:
        lease = s.api.get("lease", DRIVER.replace(".", "-"))
        lease["spec"]["holderIdentity"] = "somebody-else"
        s.api.request("PUT", s.api.path("lease", lease["metadata"]["name"]), lease)
        expect(s.provisioner.popen.wait(20) == 1, "exit status")


def driver_comes_back():
    with lab() as s:
        s.create_class()
        s.driver.process.kill()
        wait_for("readyz to say so", lambda: s.http("/readyz")[0] == 500 and "csi-driver" in s.http("/readyz")[1])
        s.create_claim("c")
        settle(0.5)
        s.driver.process.start()
        s.wait_bound("c", 20)
        wait_for("readyz", lambda: s.http("/readyz")[0] == 200)
        expect(s.provisioner.alive(), "ended")
        s.driver.process.kill()
        s.driver.process.argv = [a.replace("CREATE_DELETE_VOLUME", "CREATE_DELETE_VOLUME,CLONE_VOLUME")
                                 for a in s.driver.process.argv]
        s.driver.process.start()
        expect(s.provisioner.popen.wait(20) == 1, "a driver that can do other things now: start anew")


def exit_on_driver_loss():
    with lab(start=False) as s:
        log = os.path.join(s.directory, "termination")
        with open(log, "w", encoding="utf-8"):
            pass
        s.start("--exit-on-driver-loss", "--termination-log=" + log)
        s.driver.process.kill()
        expect(s.provisioner.popen.wait(20) == 1, "exit status")
        with open(log, encoding="utf-8") as f:
            expect(f.read() == "Lost connection to CSI driver, exiting", "termination log")


def exit_statuses():
    def run(*args, env=None):
        return subprocess.run([os.path.join(BUILD, "berth-provisioner"), *args], capture_output=True, text=True,
                              timeout=20, check=False, env={**os.environ, **(env or {})})
    expect(run("--version").returncode == 0, "--version")
    expect(run("--no-such-flag").returncode == 2, "unknown flag")
    for args in (["--http-endpoint=:1", "--metrics-address=:2"], ["--feature-gates=Nope=true"],
                 ["--node-deployment"], ["--leader-election-labels=x"]):
        done = run(*args, env={"NODE_NAME": "", "KUBECONFIG": "/nonexistent"})
        expect(done.returncode == 1, f"{args}: {done.returncode} {done.stderr}")
    with lab(start=False, driver_args=["-v=0"]) as s:
        s.driver.script("Probe", {"not_ready": True}, {"code": 4})
        s.start()
        expect(len(s.driver.calls("Probe")) == 3, "not ready and a deadline are tried again")
        s.driver.script("Probe", {"code": 13})
        second = s.start(key="second", wait=False)
        expect(second.popen.wait(20) == 1, "another error of Probe is fatal")
        s.driver.script("ControllerGetCapabilities", {"code": 14})
        third = s.start(key="third", wait=False)
        expect(third.popen.wait(20) == 1, "so is one of the capabilities")


def refused_records():
    """A role without leases: in mode auto provisioning goes on, with `required` it does not."""
    with lab(start=False) as s:
        s.create_class()
        s.fault(action="status", resource="leases", verb="create,list", code=403, times=0)
        s.start()
        s.create_claim("c")
        s.wait_bound("c")
        expect("without an intent record" in s.provisioner.log_text(), "not said")
        s.provisioner.stop()
        s.clear_faults()
        s.fault(action="status", resource="leases", verb="create", code=403, times=0)
        s.start("--intent-records=required")
        s.create_claim("d")
        wait_for("the event", lambda: any("intent record" in e["message"] for e in s.events("d", "ProvisioningFailed")))
        expect(len(s.driver.calls("CreateVolume")) == 1, "called without its record")
        s.clear_faults()
        s.wait_bound("d")


def requests_of_one_volume():
    """What a volume costs: docs/provisioner-safety.md states these numbers."""
    with lab() as s:
        s.create_class()
        s.api.request("DELETE", "/devapi/journal")
        uid = uid_of(s.create_claim("c"))
        s.wait_bound("c")
        wait_for("the record to go", lambda: not s.intents())
        wait_for("the events", lambda: len(s.events("c")) == 2)
        made = [(e["verb"], e["resource"]) for e in s.journal(userAgent="berth-provisioner") if e["verb"] != "watch"]
        expect(sorted(made) == [("create", "events"), ("create", "events"), ("create", "leases"),
                                ("create", "persistentvolumes"), ("delete", "leases")], made)
        s.api.request("DELETE", "/devapi/journal")
        s.api.delete("pvc", "c")
        s.wait_nothing_left(uid)
        made = [(e["verb"], e["resource"]) for e in s.journal(userAgent="berth-provisioner") if e["verb"] != "watch"]
        expect(sorted(made) == [("delete", "persistentvolumes"), ("get", "persistentvolumes"),
                                ("get", "persistentvolumes"), ("patch", "persistentvolumes")], made)


TESTS = [(f.__name__.replace("_", " "), lambda sort, f=f: f()) for f in (
    claim_and_volume, secrets, attached_volumes_stay, name_taken, same_volume_saved_by_another,
    volumes_that_cannot_be_written, volumes_that_are_refused, volumes_of_others_stay, bad_answers,
    answers_that_stay_bad, slow_driver, infeasible_claims_wait, final_codes_by_flag,
    passed_metadata, clones, snapshots, populators, recycle, attributes_class, migrated_plugin,
    capacity, node_deployment, claims_given_to_other_nodes, two_leaders,
    lease_taken_away, driver_comes_back, exit_on_driver_loss, exit_statuses, refused_records, requests_of_one_volume)]
