# SPDX-License-Identifier: Apache-2.0
"""Random sequences of what users, schedulers and provisioners do with volumes, claims and classes. Seeded: the same seed
and number give the same sequence. An operation is plain data, so that a sequence can be saved, shrunk and run again.

  {"do": "create", "object": {...}}   {"do": "delete", "kind", "name"}   {"do": "finalize", "kind", "name"}
  {"do": "patch", "kind", "name", "patch", "sub"?}                            {"do": "pause"}: until nothing moves

In all strings {t} is the tag that keeps the objects of one sequence apart from the others', {uid:c1} the present (or last)
uid of the claim c1, and {ghost} nobody's uid. What names an object that does not exist is part of the game: the API server's
answer is compared, too.
"""
import random

STEPS = 9                   # after the first, which makes the stock
SPEC = 2                    # raised when the same seed means another sequence than before
VOLUMES = ["v0", "v1", "v2", "v3", "v4", "v5x"]          # the first recycler pod of one with an x fails
CLAIMS = ["c0", "c1", "c2", "c3", "c4"]
CLASSES = ["ext", "late", "none", "dir"]                 # external; WaitForFirstConsumer; no provisioner; the in-tree hostPath
PODS = ["p0", "p1"]
HOLD = "berth.example/hold"
A_BIND, A_BOUND = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
A_BY, A_MIGRATED = "pv.kubernetes.io/provisioned-by", "pv.kubernetes.io/migrated-to"
A_NODE = "volume.kubernetes.io/selected-node"
A_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
A_DEFAULT = "storageclass.kubernetes.io/is-default-class"
MODES = [["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteMany"], ["ReadOnlyMany"], ["ReadWriteOnce", "ReadOnlyMany"],
         ["ReadWriteOnce", "ReadWriteMany"], ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]]
GIB = 1 << 30


class Maker:
    def __init__(self, seed, number, classless):
        self.r = random.Random("%d/%d/%d" % (SPEC, seed, number))
        self.classless = classless
        self.sizes = list(range(2, 26))      # a size is used for one volume only: of two that fit, one is the better
        self.r.shuffle(self.sizes)
        self.volumes, self.claims, self.pods = set(), set(), set()

    # ---- parts

    def chance(self, p):
        return self.r.random() < p

    def pick(self, weights):
        return self.r.choices(list(weights), list(weights.values()))[0]

    def size(self, gib):
        return self.pick({"%dGi" % gib: 6, "%dMi" % (gib * 1024): 1, "%d" % (gib * GIB): 1, "%dG" % (gib + 1 if gib > 15 else gib): 1})

    def class_name(self):
        if self.classless and self.chance(0.7):
            return ""
        return "{t}-" + self.pick({"none": 8, "ext": 4, "late": 3, "dir": 1, "gone": 1})

    def name(self, pool, have, wanted=0.85):
        """one that exists, or (less often) any"""
        there = sorted(have)
        return self.r.choice(there) if there and self.chance(wanted) else self.r.choice(pool)

    def a_volume(self):
        if self.chance(0.12):
            return "pvc-{uid:%s}" % self.r.choice(CLAIMS)
        return "{t}-" + self.name(VOLUMES, self.volumes)

    def a_claim(self):
        return self.name(CLAIMS, self.claims)

    def source(self):
        kind = self.pick({"nfs": 5, "hostPath": 3, "bad": 1, "csi": 3, "local": 1})
        path = "{t}-%d" % self.r.randrange(1000)
        return {"nfs": {"nfs": {"server": "nfs.example", "path": "/" + path}},
                "hostPath": {"hostPath": {"path": "/tmp/berth-oracle-none/" + path}},
                "bad": {"hostPath": {"path": "/srv/berth-oracle-none/" + path}},
                "csi": {"csi": {"driver": "csi.example", "volumeHandle": path}},
                "local": {"local": {"path": "/mnt/" + path}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]}}}}[kind]

    def claim_ref(self, claim=None):
        claim = claim or self.a_claim()
        ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "{t}", "name": claim}
        uid = self.pick({"": 5, "{uid:%s}" % claim: 4, "{ghost}": 1})
        if uid:
            ref["uid"] = uid
        return ref

    def policy(self):
        return self.pick({"Retain": 4, "Delete": 4, "Recycle": 3})

    # ---- objects

    def volume(self, name):
        spec = {"capacity": {"storage": self.size(self.sizes.pop() if self.sizes else self.r.randrange(30, 99))},
                "accessModes": self.r.choice(MODES), "persistentVolumeReclaimPolicy": self.policy()}
        spec.update(self.source())
        meta = {"name": name, "labels": {"tier": self.r.choice(["gold", "iron"])}}
        notes = {}
        cls = self.class_name()
        if cls and self.chance(0.9):
            spec["storageClassName"] = cls
        elif cls:
            notes[A_BETA_CLASS] = cls
        if self.chance(0.08):
            spec["volumeMode"] = "Block"
        if self.chance(0.2):
            spec["claimRef"] = self.claim_ref()
            if self.chance(0.3):
                notes[A_BOUND] = "yes"
        if self.chance(0.1):
            notes[A_BY] = self.pick({"csi.example": 3, "kubernetes.io/host-path": 2, "kubernetes.io/nothing": 1})
        if self.chance(0.06):
            meta["finalizers"] = [HOLD]
        if notes:
            meta["annotations"] = notes
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}

    def claim(self, name):
        spec = {"accessModes": self.r.choice(MODES[:6]), "resources": {"requests": {"storage": self.size(self.r.randrange(1, 18))}}}
        meta = {"name": name, "namespace": "{t}"}
        notes = {}
        cls = self.class_name()
        if cls == "" and self.chance(0.5):
            pass                                            # absent: the default class, when there is one
        elif cls and self.chance(0.08):
            notes[A_BETA_CLASS] = cls
        else:
            spec["storageClassName"] = cls
        if self.chance(0.06):
            spec["volumeMode"] = "Block"
        if self.chance(0.15):
            spec["selector"] = self.r.choice([{"matchLabels": {"tier": "gold"}}, {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}])
        if self.chance(0.18):
            spec["volumeName"] = self.a_volume()
        if self.chance(0.04):
            notes[A_BIND] = "yes"
        if self.chance(0.04):
            notes[A_BOUND] = "yes"
        if self.chance(0.05):
            notes[A_NODE] = "n1"
        if self.chance(0.06):
            meta["finalizers"] = [HOLD]
        if notes:
            meta["annotations"] = notes
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}

    def storage_class(self, name):
        return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "{t}-" + name},
                "provisioner": {"none": "kubernetes.io/no-provisioner", "dir": "kubernetes.io/host-path"}.get(name, "csi.example"),
                "reclaimPolicy": self.r.choice(["Delete", "Retain"]),
                "volumeBindingMode": "WaitForFirstConsumer" if name == "late" else "Immediate"}

    # ---- operations: each gives a list, which is done without a pause

    def op_create_volume(self):
        free = [v for v in VOLUMES if v not in self.volumes]
        name = self.r.choice(free or VOLUMES)
        self.volumes.add(name)
        return [{"do": "create", "object": self.volume("{t}-" + name)}]

    def op_create_claim(self):
        free = [c for c in CLAIMS if c not in self.claims]
        name = self.r.choice(free or CLAIMS)
        self.claims.add(name)
        return [{"do": "create", "object": self.claim(name)}]

    def op_provision(self):
        """what an external provisioner does"""
        claim = self.a_claim()
        o = self.volume("pvc-{uid:%s}" % claim)
        o["spec"]["claimRef"] = dict(self.claim_ref(claim), uid="{uid:%s}" % claim)
        o["metadata"].setdefault("annotations", {})[A_BY] = "csi.example"
        o["spec"].pop("nodeAffinity", None)
        for s in ("nfs", "hostPath", "local"):
            o["spec"].pop(s, None)
        o["spec"]["csi"] = {"driver": "csi.example", "volumeHandle": "{t}-" + claim}
        return [{"do": "create", "object": o}]

    def op_delete_volume(self):
        name = self.a_volume()
        self.volumes.discard(name[4:])
        return [{"do": "delete", "kind": "PersistentVolume", "name": name}]

    def op_delete_claim(self):
        name = self.a_claim()
        self.claims.discard(name)
        return [{"do": "delete", "kind": "PersistentVolumeClaim", "name": name}]

    def op_recreate_claim(self):
        name = self.a_claim()
        self.claims.add(name)
        return [{"do": "delete", "kind": "PersistentVolumeClaim", "name": name}, {"do": "create", "object": self.claim(name)}]

    def op_recreate_volume(self):
        name = self.name(VOLUMES, self.volumes)
        self.volumes.add(name)
        return [{"do": "delete", "kind": "PersistentVolume", "name": "{t}-" + name}, {"do": "create", "object": self.volume("{t}-" + name)}]

    def edit_volume(self, patch, **more):
        return [dict({"do": "patch", "kind": "PersistentVolume", "name": self.a_volume(), "patch": patch}, **more)]

    def edit_claim(self, patch, **more):
        return [dict({"do": "patch", "kind": "PersistentVolumeClaim", "name": self.a_claim(), "patch": patch}, **more)]

    def op_flip_policy(self):
        return self.edit_volume({"spec": {"persistentVolumeReclaimPolicy": self.policy()}})

    def op_clear_reference(self):
        return self.edit_volume({"spec": {"claimRef": None}})

    def op_clear_reference_uid(self):
        return self.edit_volume({"spec": {"claimRef": {"uid": None, "resourceVersion": None}}})

    def op_reserve(self):
        return self.edit_volume({"spec": {"claimRef": self.claim_ref()}})

    def op_edit_volume(self):
        return self.edit_volume(self.r.choice([
            {"metadata": {"labels": {"tier": "gold"}}}, {"metadata": {"labels": {"tier": "iron"}}}, {"metadata": {"labels": None}},
            {"spec": {"capacity": {"storage": self.size(self.r.randrange(1, 26))}}}, {"spec": {"accessModes": self.r.choice(MODES)}},
            {"spec": {"storageClassName": self.class_name()}}, {"metadata": {"annotations": {A_BOUND: None}}},
            {"metadata": {"annotations": {A_BOUND: "yes"}}}, {"metadata": {"annotations": {A_BY: "csi.example"}}},
            {"metadata": {"annotations": {A_BY: "kubernetes.io/host-path"}}}, {"metadata": {"annotations": {A_BY: None}}},
            {"metadata": {"annotations": {A_MIGRATED: "csi.example"}}}]))

    def op_edit_claim(self):
        return self.edit_claim(self.r.choice([
            {"metadata": {"labels": {"touched": "%d" % self.r.randrange(99)}}}, {"metadata": {"annotations": {A_BIND: None}}},
            {"metadata": {"annotations": {A_BIND: "yes"}}}, {"metadata": {"annotations": {A_BOUND: None}}},
            {"metadata": {"annotations": {A_BOUND: "yes"}}}, {"metadata": {"annotations": {A_BIND: None, A_BOUND: None, A_NODE: None}}},
            {"spec": {"resources": {"requests": {"storage": self.size(self.r.randrange(1, 26))}}}}]))

    def op_name_volume(self):
        return self.edit_claim({"spec": {"volumeName": self.a_volume()}})

    def op_select_node(self):
        return self.edit_claim({"metadata": {"annotations": {A_NODE: self.pick({"n1": 4, None: 1})}}})

    def op_phase(self):
        if self.chance(0.5):
            return self.edit_volume({"status": {"phase": self.r.choice(["Available", "Bound", "Released", "Failed"])}}, sub="status")
        return self.edit_claim({"status": {"phase": self.r.choice(["Pending", "Bound", "Lost"])}}, sub="status")

    def op_hold(self):
        """deleted, but a finalizer holds it"""
        kind, name = self.r.choice([("PersistentVolume", self.a_volume()), ("PersistentVolumeClaim", self.a_claim())])
        return [{"do": "patch", "kind": kind, "name": name, "patch": {"metadata": {"finalizers": [HOLD]}}}, {"do": "delete", "kind": kind, "name": name}]

    def op_let_go(self):
        kind, name = self.r.choice([("PersistentVolume", self.a_volume()), ("PersistentVolumeClaim", self.a_claim())])
        return [{"do": "finalize", "kind": kind, "name": name}]

    def op_class(self):
        name = self.r.choice(CLASSES)
        gone = [{"do": "delete", "kind": "StorageClass", "name": "{t}-" + name}]
        return self.r.choice([gone, gone + [{"do": "create", "object": self.storage_class(name)}], [{"do": "create", "object": self.storage_class(self.r.choice(CLASSES + ["gone"]))}]])

    def op_default_class(self):
        if not self.classless:
            return self.op_class()
        return [{"do": "patch", "kind": "StorageClass", "name": "{t}-" + self.r.choice(CLASSES),
                 "patch": {"metadata": {"annotations": {A_DEFAULT: self.r.choice(["true", "false", None])}}}}]

    def op_pod(self):
        name = self.r.choice(PODS)
        if name in self.pods and self.chance(0.4):
            return [{"do": "patch", "kind": "Pod", "name": name, "sub": "status", "patch": {"status": {"phase": self.r.choice(["Running", "Succeeded", "Failed"])}}}]
        if name in self.pods:
            self.pods.discard(name)
            return [{"do": "delete", "kind": "Pod", "name": name}]
        self.pods.add(name)
        spec = {"containers": [{"name": "a", "image": "a"}], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": self.a_claim()}}]}
        if self.chance(0.3):
            spec["nodeName"] = "n1"
        return [{"do": "create", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "{t}"}, "spec": spec}}]

    WEIGHTS = {"create_volume": 18, "create_claim": 20, "provision": 7, "delete_volume": 8, "delete_claim": 13, "recreate_claim": 5, "recreate_volume": 2,
               "flip_policy": 9, "clear_reference": 7, "clear_reference_uid": 5, "reserve": 6, "edit_volume": 8, "edit_claim": 5, "name_volume": 3,
               "select_node": 5, "phase": 3, "hold": 4, "let_go": 4, "class": 4, "default_class": 4, "pod": 6}

    def operation(self):
        return getattr(self, "op_" + self.pick(self.WEIGHTS))()

    def make(self):
        classes = [{"do": "create", "object": self.storage_class(c)} for c in CLASSES]
        stock = [op for _ in range(self.r.randrange(2, 5)) for op in self.op_create_volume()]
        claims = [op for _ in range(self.r.randrange(1, 4)) for op in self.op_create_claim()]
        steps = [classes + stock, claims] if self.chance(0.7) else [classes + claims, stock]
        while len(steps) < STEPS + 1:
            # mostly one thing at a time, so that the result does not depend on who is quicker
            steps.append([op for _ in range(self.pick({1: 8, 2: 2, 3: 1})) for op in self.operation()])
        return steps


def make(seed, number, classless=False):
    return {"seed": seed, "number": number, "steps": Maker(seed, number, classless).make()}


def target(op):
    """the object that an operation is about"""
    o = op.get("object", op)
    return (o["kind"], o["metadata"]["name"]) if "object" in op else (o["kind"], o["name"])


def in_order(before, op):
    """whether the one has to come before the other: both are about the same object, or one names a claim by its uid, which the
    other gives it. A {uid:c1} would be another one after the claim is made."""
    for a, b in ((before, op), (op, before)):
        if a["do"] == "create" and a["object"]["kind"] == "PersistentVolumeClaim" and "{uid:%s}" % a["object"]["metadata"]["name"] in str(b):
            return True
    return target(before) == target(op)


def other_order(r, step):
    """at random, but the operations on one object stay in their order, and all are about the same objects as before"""
    left, out = list(step), []
    while left:
        heads = [op for n, op in enumerate(left) if not any(in_order(before, op) for before in left[:n])]
        out.append(r.choice(heads))
        left.remove(out[-1])
    return out


def variant(seq, n):
    """The same, with pauses at random between the operations of a step, and every second time in another order. The first ones have
    pauses everywhere. An operation remembers its place."""
    r = random.Random(n)
    steps = []
    for step in seq["steps"]:
        step = [dict(op, at=at) for at, op in enumerate(step)]
        if n % 2:
            step = other_order(r, step)
        out = step[:1]
        for op in step[1:]:
            made_of = [x["object"]["kind"] == "StorageClass" for x in (out[-1], op) if "object" in x]
            if (n < 4 or r.random() < 0.5) and made_of != [True, True]:
                out.append({"do": "pause"})
            out.append(op)
        steps.append(out)
    return dict(seq, steps=steps)


def held(n):
    """steps: all of them, or some at random"""
    r = random.Random(n)
    return tuple(s for s in range(STEPS + 1) if n == 0 or r.random() < 0.5)


def in_flight(seq):
    """[claim, class, "made" or "gone"] of what happens to both in one step: of which of the two a binder hears first is chance"""
    out = []
    for step in seq["steps"]:
        classes = [(op["object"]["metadata"]["name"], "made") for op in step if op["do"] == "create" and op["object"]["kind"] == "StorageClass"]
        classes += [(op["name"], "gone") for op in step if op["do"] == "delete" and op["kind"] == "StorageClass"]
        claims = [op["object"]["metadata"]["name"] for op in step if op["do"] == "create" and op["object"]["kind"] == "PersistentVolumeClaim"]
        claims += [op["name"] for op in step if op["do"] == "patch" and op["kind"] == "PersistentVolumeClaim"]
        out += [[claim, cls.replace("{t}", "t"), what] for claim in claims for cls, what in classes]
    return out


def parts(step):
    """the operations between pauses"""
    out = [[]]
    for op in step:
        if op["do"] == "pause":
            out.append([])
        else:
            out[-1].append(op)
    return out


def substitute(value, find):
    """find(name) gives the text for {name}"""
    if isinstance(value, str):
        out, rest = "", value
        while "{" in rest:
            before, _, rest = rest.partition("{")
            name, _, rest = rest.partition("}")
            out += before + find(name)
        return out + rest
    if isinstance(value, list):
        return [substitute(x, find) for x in value]
    if isinstance(value, dict):
        return {k: substitute(v, find) for k, v in value.items()}
    return value


# ---- what happens to the controllers while a batch runs: step → (before it, after its operations)

KILLED = 3                  # of the kinds below


def schedules(seed):
    """four kinds, of which batches take turns: left alone; restarted while nothing moves; away for three steps; killed in the middle"""
    r = random.Random("schedule/%d/%d" % (SPEC, seed))
    first, last = r.randrange(2, STEPS - 3), r.randrange(3, STEPS)
    return [{},
            {first: ("stop start", None), last: ("kill start", None)},
            {first: ("stop", None), first + 2: (None, "start")},
            {first: (None, "kill start"), last: (None, "stop start")}]
