# SPDX-License-Identifier: Apache-2.0
"""The provisioner's two matrices: every answer of the driver, and a SIGKILL at every step."""
import concurrent.futures

from harness import expect, wait_for
from provisioner_lab import BACKGROUND, CODES, SELECTED, add_node, lab, settle


def one_answer(s, code, topology, deleted, created):
    """The driver's first answer for this claim is `code`; meanwhile the claim is deleted or not."""
    what = f"{CODES[code]}{', topology' if topology else ''}{', deleted' if deleted else ''}" \
           f"{', created' if created else ''}"
    name = f"c{code}-{int(topology)}{int(deleted)}{int(created)}"
    claim = s.create_claim(name, annotate=False, annotations={SELECTED: "n1"} if topology else None)
    uid = claim["metadata"]["uid"]
    s.driver.script("CreateVolume", {"match": uid, "code": code, "effect": created,
                                     "delay_ms": 500 if deleted else 0})
    s.annotate(name)
    wait_for(f"{what}: the first call", lambda: s.driver.calls("CreateVolume", uid), 20)
    if deleted:
        s.api.delete("pvc", name)
    text = f"rpc error: code = {CODES[code]} desc = told to fail"
    wait_for(f"{what}: the event", lambda: any(text in e["message"] for e in s.events(name, "ProvisioningFailed")), 20)
    message = next(e["message"] for e in s.events(name, "ProvisioningFailed") if text in e["message"])
    expect(("infeasible error" in message) == (code == 3), f"{what}: {message}")
    if deleted:
        s.wait_nothing_left(uid)
        calls = len(s.driver.calls("CreateVolume", uid))
        expect(calls == 2, f"{what}: {calls} calls")  # the second one made it, or found it; then it was deleted
        expect(len(s.driver.calls("DeleteVolume")) > 0, f"{what}: never deleted")
        return
    rescheduled = topology and code == 8
    if rescheduled:
        wait_for(f"{what}: the annotation to go",
                 lambda: SELECTED not in s.api.get("pvc", name)["metadata"]["annotations"], 10)
        settle()
        expect(len(s.driver.calls("CreateVolume", uid)) == 1, f"{what}: asked again without a node")
        s.annotate(name, **{SELECTED: "n2"})
    volume = s.wait_bound(name, 20)
    expect(len(s.driver.volumes(uid)) == 1, f"{what}: {s.driver.volumes(uid)}")
    expect(volume["spec"]["csi"]["volumeHandle"] == s.driver.volumes(uid)[0]["id"], f"{what}: another handle")
    expect(len(s.driver.calls("CreateVolume", uid)) == 2, f"{what}: calls")
    annotation = s.api.get("pvc", name)["metadata"]["annotations"].get(SELECTED)
    expect(annotation == (("n2" if rescheduled else "n1") if topology else None), f"{what}: {annotation}")
    requests = [c["details"] for c in s.driver.calls("CreateVolume", uid)]
    if code in BACKGROUND:
        expect(requests[0] == requests[1], f"{what}: the repeated call differs")
    s.api.delete("pvc", name)
    s.wait_nothing_left(uid)


def every_answer(topology):
    capabilities = "VOLUME_ACCESSIBILITY_CONSTRAINTS" if topology else ""
    with lab(capabilities=capabilities) as s:
        add_node(s.api, "n1", "a")
        add_node(s.api, "n2", "b")
        mode = {"volumeBindingMode": "WaitForFirstConsumer"} if topology else {}
        s.create_class(**mode)
        cases = [(code, deleted, created) for code in range(1, 17) for deleted in (False, True)
                 for created in (False, True)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = [pool.submit(one_answer, s, code, topology, deleted, created) for code, deleted, created in cases]
        failures = [str(r.exception()) for r in results if r.exception()]
        expect(not failures, f"{len(failures)} of {len(cases)}: " + "; ".join(failures[:6]))
        expect(not s.driver.volumes(), f"volumes left: {s.driver.volumes()}")
        expect(not s.api.list("pv") and not s.intents(), "objects left")


# Where the process dies: (name, what kills it). An API write is hit before or after it happened, an RPC before or
# after the driver's work.
CREATE_STEPS = [("intent record", {"verb": "create", "resource": "leases"}),
                ("CreateVolume", "CreateVolume"),
                ("volume object", {"verb": "create", "resource": "persistentvolumes"}),
                ("end of the intent record", {"verb": "delete", "resource": "leases"}),
                ("event", {"verb": "create", "resource": "events", "skip": 1})]
DELETE_STEPS = [("DeleteVolume", "DeleteVolume"),
                ("deletion of the object", {"verb": "delete", "resource": "persistentvolumes"}),
                ("finalizer", {"verb": "patch", "resource": "persistentvolumes", "userAgent": "berth-provisioner"})]


def arm(s, step, when):
    if isinstance(step, str):
        s.driver.script(step, {"kill_pid": s.provisioner.pid, "kill": when})
    else:
        s.fault(action="kill", when=when, pid=s.provisioner.pid, times=1, **step)


def crash_in_create(s, number, step, when, deleted, answer=None):
    """Dies once in the middle; while it is down the claim is deleted, or not."""
    name = f"x{number}"
    claim = s.create_claim(name, annotate=False)
    uid = claim["metadata"]["uid"]
    if answer:
        s.driver.script("CreateVolume", {"match": uid, **answer, "kill_pid": s.provisioner.pid, "kill": when})
    else:
        arm(s, step, when)
    s.annotate(name)
    s.provisioner.popen.wait(20)
    s.clear_faults()
    s.driver.command(cmd="reset")
    if deleted:
        s.api.delete("pvc", name)
        wait_for("the claim to be gone", lambda: not s.api.get("pvc", name), 10)
    s.restart()
    if not deleted:
        volume = s.wait_bound(name)
        expect(len(s.driver.volumes(uid)) == 1, f"{s.driver.volumes(uid)}")
        expect(volume["spec"]["csi"]["volumeHandle"] == s.driver.volumes(uid)[0]["id"], "another handle")
        wait_for("the record to go", lambda: not s.intents(), 10)
        s.api.delete("pvc", name)
    s.wait_nothing_left(uid)
    expect(not s.driver.volumes() and not s.api.list("pv"), "something else is left")


def crashes_in_create():
    with lab() as s:
        s.create_class()
        number = 0
        for name, step in CREATE_STEPS:
            for when in ("before", "after"):
                for deleted in (False, True):
                    number += 1
                    try:
                        crash_in_create(s, number, step, when, deleted)
                    except Exception as e:
                        raise type(e)(f"{when} {name}, claim {'deleted' if deleted else 'kept'}: {e}") from e
        # and after an answer that leaves everything open, or that is final although the volume was made
        for code in (4, 13):
            for created in (False, True):
                number += 1
                crash_in_create(s, number, None, "after", True, {"code": code, "effect": created})


def crashes_in_delete():
    with lab() as s:
        s.create_class()
        for number, (name, step) in enumerate(DELETE_STEPS):
            for when in ("before", "after"):
                claim = s.create_claim(f"y{number}-{when}")
                uid = claim["metadata"]["uid"]
                s.wait_bound(f"y{number}-{when}")
                wait_for("the record to go", lambda: not s.intents(), 10)
                arm(s, step, when)
                s.api.delete("pvc", f"y{number}-{when}")
                try:
                    s.provisioner.popen.wait(20)
                    s.clear_faults()
                    s.driver.command(cmd="reset")
                    s.restart()
                    s.wait_nothing_left(uid)
                except Exception as e:
                    raise type(e)(f"{when} {name}: {e}") from e


def crash_without_records():
    """What the records are for: without them, a claim deleted while the process is down leaks its volume."""
    with lab(args=["--intent-records=off"]) as s:
        s.create_class()
        claim = s.create_claim("leaks", annotate=False)
        uid = claim["metadata"]["uid"]
        s.driver.script("CreateVolume", {"kill_pid": s.provisioner.pid, "kill": "after"})
        s.annotate("leaks")
        s.provisioner.popen.wait(20)
        s.api.delete("pvc", "leaks")
        wait_for("the claim to be gone", lambda: not s.api.get("pvc", "leaks"), 10)
        s.restart()
        settle(1)
        expect(len(s.driver.volumes(uid)) == 1, "no leak: then this test proves nothing about the records")


TESTS = [("every answer of the driver", lambda sort: every_answer(False)),
         ("every answer of the driver, with topology", lambda sort: every_answer(True)),
         ("SIGKILL at every step of creation", lambda sort: crashes_in_create()),
         ("SIGKILL at every step of deletion", lambda sort: crashes_in_delete()),
         ("without intent records a crash leaks", lambda sort: crash_without_records())]
