# SPDX-License-Identifier: Apache-2.0
"""The provisioner's two matrices: every answer of the driver, and a SIGKILL at every step."""
import concurrent.futures
import time

from harness import expect, figure, wait_for
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


def crash_with_an_open_outcome():
    """Dies while calls time out, while an object cannot be written, and while the driver is away."""
    with lab(args=["--timeout=300ms"]) as s:
        s.create_class()
        # the driver works for longer than anybody waits; looked at again meanwhile
        uid = s.create_claim("slow", annotate=False)["metadata"]["uid"]
        s.driver.script("CreateVolume", {"match": uid, "times": 2, "effect": True, "delay_ms": 1000})
        s.annotate("slow")
        wait_for("two calls", lambda: len(s.driver.calls("CreateVolume", uid)) >= 2)
        kill_delete_restart(s, "slow", uid)
        # the object cannot be written, and the claim changes meanwhile, so that it is looked at
        s.fault(action="status", verb="create", resource="persistentvolumes", code=500, times=0)
        uid = s.create_claim("unsaved")["metadata"]["uid"]
        wait_for("the volume", lambda: s.driver.volumes(uid))
        wait_for("a second try", lambda: len(s.journal(verb="create", resource="persistentvolumes")) >= 2)
        s.annotate("unsaved", touched="yes")
        settle()
        expect(s.intents(), "the record went before the object was written")
        kill_delete_restart(s, "unsaved", uid)
        # the driver is away, and has not made anything
        s.driver.process.kill()
        uid = s.create_claim("away")["metadata"]["uid"]
        wait_for("a failed call", lambda: s.events("away", "ProvisioningFailed"), 20)
        s.provisioner.kill()
        s.api.delete("pvc", "away")
        s.driver.process.start()
        s.restart()
        s.wait_nothing_left(uid)


def retained_classes():
    """A claim that was given up is no reason to make a volume and keep it for ever."""
    with lab() as s:
        s.create_class(reclaimPolicy="Retain")
        for code in (8, 13):
            name = f"r{code}"
            uid = s.create_claim(name, annotate=False)["metadata"]["uid"]
            s.driver.script("CreateVolume", {"match": uid, "code": code, "delay_ms": 500})
            s.annotate(name)
            wait_for("the call", lambda u=uid: s.driver.calls("CreateVolume", u), 20)
            s.api.delete("pvc", name)
            wait_for("the second call", lambda u=uid: len(s.driver.calls("CreateVolume", u)) == 2, 20)
            s.wait_nothing_left(uid)


def request_changes_while_the_outcome_is_open(killed):
    """The class is made anew after a call without an answer. That the driver refuses the new request for good says
    nothing about the first one."""
    with lab() as s:
        for code in (3, 6, 13):
            s.create_class()
            name = f"q{code}"
            uid = s.create_claim(name, annotate=False)["metadata"]["uid"]
            s.driver.script("CreateVolume", {"match": uid, "code": 4, "effect": True, "delay_ms": 700},
                            {"match": uid, "request": "slow", "code": code, "times": -1})
            s.annotate(name)
            wait_for("the call", lambda u=uid: s.driver.calls("CreateVolume", u), 20)
            s.api.delete("sc", "fake")
            s.create_class(parameters={"kind": "slow"})
            wait_for("the refusal", lambda n=name, c=code: any(CODES[c] in e["message"]
                                                              for e in s.events(n, "ProvisioningFailed")), 20)
            expect(len(s.driver.volumes(uid)) == 1, s.driver.volumes(uid))
            if killed:
                s.provisioner.kill()
            s.api.delete("pvc", name)
            wait_for("the claim to be gone", lambda n=name: not s.api.get("pvc", n), 10)
            if killed:
                s.restart()
            s.wait_nothing_left(uid)
            s.api.delete("sc", "fake")


def kill_delete_restart(s, name, uid):
    s.provisioner.kill()
    s.clear_faults()
    s.driver.command(cmd="reset")
    s.api.delete("pvc", name)
    wait_for("the claim to be gone", lambda: not s.api.get("pvc", name), 10)
    s.restart()
    s.wait_nothing_left(uid)


def driver_dies_in_the_middle():
    with lab() as s:
        s.create_class()
        for number, (method, when) in enumerate([(m, w) for m in ("CreateVolume", "DeleteVolume")
                                                 for w in ("before", "after")]):
            name = f"d{number}"
            claim = s.create_claim(name, annotate=False)
            uid = claim["metadata"]["uid"]
            s.driver.script(method, {"die": when})
            s.annotate(name)
            if method == "DeleteVolume":
                s.wait_bound(name)
                s.api.delete("pvc", name)
            s.driver.process.popen.wait(20)
            s.driver.process.start()
            if method == "CreateVolume":
                s.wait_bound(name, 20)
                expect(len(s.driver.volumes(uid)) == 1, s.driver.volumes())
                s.api.delete("pvc", name)
            s.wait_nothing_left(uid)


WRITES = [("create", "persistentvolumes"), ("delete", "persistentvolumes"), ("patch", "persistentvolumes"),
          ("create", "leases"), ("delete", "leases"), ("get", "persistentvolumes"), ("create", "events")]
FAULTS = [{"action": "drop", "when": "before"}, {"action": "drop", "when": "after"}, {"action": "half-body"},
          {"action": "broken-json"}, {"action": "status", "code": 500}, {"action": "status", "code": 409},
          {"action": "status", "code": 429, "retryAfter": 1}, {"action": "status", "code": 503},
          {"action": "delay", "ms": 300, "when": "after"}]


def faults_of_the_api_server():
    """Every request of a volume's life fails in every way, twice; and watches break now and then."""
    with lab() as s:
        s.create_class()
        for action in ("watch-drop", "watch-gone", "watch-repeat"):
            s.fault(action=action, verb="watch", userAgent="berth-provisioner", events=30, times=0)
        for number, fault in enumerate(FAULTS):
            ids = [s.fault(verb=verb, resource=resource, userAgent="berth-provisioner", times=2, **fault)
                   for verb, resource in WRITES]
            start = time.monotonic()
            uid = s.create_claim(f"f{number}")["metadata"]["uid"]
            try:
                s.wait_bound(f"f{number}", 60)
                expect(len(s.driver.volumes(uid)) == 1, s.driver.volumes())
                s.api.delete("pvc", f"f{number}")
                s.wait_nothing_left(uid, 60)
            except Exception as e:
                raise type(e)(f"{fault}: {e}") from e
            figure(f"{fault}: {time.monotonic() - start:.1f} s")
            for fault_id in ids:
                s.api.request("DELETE", f"/devapi/faults/{fault_id}")
        expect(s.provisioner.alive(), "ended")


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
         ("SIGKILL while the outcome is open", lambda sort: crash_with_an_open_outcome()),
         ("a class that retains", lambda sort: retained_classes()),
         ("the request changes while the outcome is open",
          lambda sort: request_changes_while_the_outcome_is_open(False)),
         ("the request changes, and a SIGKILL", lambda sort: request_changes_while_the_outcome_is_open(True)),
         ("the driver dies in the middle", lambda sort: driver_dies_in_the_middle()),
         ("faults of the API server", lambda sort: faults_of_the_api_server()),
         ("without intent records a crash leaks", lambda sort: crash_without_records())]
