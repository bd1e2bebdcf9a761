# SPDX-License-Identifier: Apache-2.0
"""What may differ between upstream's binder and berth-controller after the same sequence, and why. Everything else is a failure."""
import collections
import re

import side  # noqa: F401  (finds norm.py)
import norm

RULES = {
    "explanation": "berth adds to some events, in square brackets, why a claim waits",
    "still waiting": "an event that says that a claim waits, of a claim that waits in no settled state: how often a claim is looked at while it is being bound is timing",
    "conflict": "an event about a write that came too late, which is repeated",
    "class in flight": "a class came or went together with a claim, in two watches: who hears of the claim first speaks of the time before",
    "shared template": "upstream changes one pod template for all volumes that it recycles at the same time, so pods get the names of other volumes and are found to be there already",
    "event budget": "a client sends 25 events about one object and then one in five minutes; the other side had used that up",
    "killed": "events that were not sent yet die with a process that is killed in the middle; the other side sent it at that time",
    "undetermined": "upstream gives several results for this sequence (map order, timing), berth's is one of them",
    "between": "operations followed each other, or the end of the binder followed them at once, and volumes and claims come in two watches; upstream gives the same result with a pause between them, in another order, or when it hears of all at once",
    "undetermined, counted": "upstream gives several results for this sequence; in berth's as many volumes and claims are in each phase as in one of them, and nothing is bound wrongly",
    "no recycler": "a volume that no plugin can recycle is Failed and says so; berth does not try again and so does not repeat that pods use it",
    "restless": "upstream itself does not come to rest with this sequence",
}
BUDGET = 25
TEMPLATE = re.compile(r"^Recycle failed: (failed to recycle volume: recycler pod was deleted|failed to delete (old )?recycler pod|old recycler pod found)")
TEXT = re.compile(r" \[[^\[\]]*\]$")


def pending(states, claim):
    return any(claim in s["pvcs"] and s["pvcs"][claim]["status"].get("phase") == "Pending" for s in states)


def no_recycler(states, volume):
    return any(s["pvs"].get(volume, {}).get("status", {}).get("message") == "No recycler plugin found for the volume!" for s in states)


def budget_of(events, about):
    return max((e["budget"] for e in events.values() if e["event"][0] == about), default=0)


def about_class(event, sender, claim, cls, what):
    """an event about the claim from before the class was made, or was gone"""
    if event[0] != "PVC t/" + claim or not any(class_is(s, claim, cls) for s in sender["states"]):
        return False
    return (event[3] == 'storageclass.storage.k8s.io "%s" not found' % cls) == (what == "made")


def class_is(state, claim, cls):
    return "t/" + claim in state["pvcs"] and norm.class_of(state["pvcs"]["t/" + claim]) == cls


def event_rule(key, sender, other, up):
    """why only one side has it; None = no reason"""
    event = sender["events"][key]["event"]
    if norm.NOISE.search(event[3] or ""):
        return "conflict"
    if event[0].startswith("PVC ") and event[2] in norm.WAITING and not pending(sender["states"] + other["states"], event[0][4:]):
        return "still waiting"
    if event[2] in norm.WAITING and any(about_class(event, sender, *flight) for flight in sender["in flight"]):
        return "class in flight"
    if sender is up and event[2] == "VolumeFailedRecycle" and TEMPLATE.search(event[3]):
        return "shared template"
    if event[2] == "VolumeFailedRecycle" and event[3].startswith("Volume is used by pods") and no_recycler(other["states"], event[0][3:]):
        return "no recycler"
    if budget_of(other["events"], event[0]) >= BUDGET:
        return "event budget"
    window = sender["killed"]
    return "killed" if window and window[0] <= sender["events"][key]["first"] <= window[1] else None


def compare(up, berth):
    """(differences, rules used)"""
    out, rules = [], collections.Counter()
    for at, (a, b) in enumerate(zip(up["states"], berth["states"])):
        if a != b:
            out += ["[%s] %s" % (up["labels"][at], d) for d in norm.differences(a, b)]
            break                   # what follows from it says nothing new
    if up["api"] != berth["api"] and not out:
        out.append("answers of the API server: want %s, got %s" % (up["api"], berth["api"]))
    for first, second, text in ((up, berth, "event missing"), (berth, up, "event unexpected")):
        for key in sorted(set(first["events"]) - set(second["events"])):
            rule = event_rule(key, first, second, up)
            if rule:
                rules[rule] += 1
                rules[rule, "upstream" if first is up else "berth"] += 1
            else:
                out.append("%s: %s" % (text, key))
    for e in berth["events"].values():
        if TEXT.search(e["raw"]) and e["event"][2] in norm.EXPLAINED and not TEXT.search(e["event"][3]):
            rules["explanation"] += 1
    return out, rules


def counts(result):
    return [norm.summary(s) for s in result["states"]]


def wrong(result):
    """the invariants that say something about any result; what merely waits is in the counts"""
    return {b for s in result["states"] for b in norm.invariants(s) if "owns two Bound volumes" in b or "does not fit" in b or "Bound, but" in b}


def accept(ups, berths, paused, last):
    """Of several runs of one sequence: (differences, rules). Each of berth's results must be one of upstream's, of those with
    pauses at worst; after the last run the right numbers are enough when upstream's results differ."""
    rules = collections.Counter()
    distinct = []
    for u in ups:
        if not any(u["states"] == d["states"] and u["api"] == d["api"] for d in distinct):
            distinct.append(u)
    for b in berths:
        tries = [compare(u, b) for u in ups]
        best, used = min(tries, key=lambda t: len(t[0]))
        if best and any(not compare(u, b)[0] for u in paused):
            rules["between"] = 1
            continue
        if best:
            if last and len(distinct) > 1 and counts(b) in [counts(u) for u in ups] and wrong(b) <= set.union(*(wrong(u) for u in ups)):
                rules["undetermined, counted"] = 1
                continue
            return best, collections.Counter()
        rules += used
    if not rules["undetermined, counted"] and not rules["between"] and any(compare(u, b)[0] for u, b in zip(ups, berths)):
        rules["undetermined"] = 1
    return [], rules
