#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The live oracle: runs the same random sequences of operations with kube-controller-manager's persistentvolume-binder and with
berth-controller, each on an API server of its own, and compares all volumes and claims whenever nothing moves any more, the API
server's answers, and the events. README.md describes it. The last line says how many sequences passed and failed.

  oracle.py --sequences 300 --seed 1           oracle.py --seed 1 --only 123,124           oracle.py --replay failed-1-123.json --shrink
"""
import argparse
import collections
import concurrent.futures
import copy
import json
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare  # noqa: E402
import sequence  # noqa: E402
import side  # noqa: E402
from side import Problem  # noqa: E402

BLOCK = 50              # so many sequences in a row share a schedule, and one of them plays with volumes and claims without a class
CLASSLESS = 7           # this one: such objects of two sequences would find each other


def kind_of(seed, number):
    return (number // BLOCK + seed) % 4


class Job:
    """a sequence to be run once"""

    def __init__(self, seq, kind, classless):
        self.seq, self.kind, self.classless = seq, kind, classless
        self.up = self.berth = None
        self.paused = self.late = self.recycles = False     # paused: anything but plain; late: see copies
        self.held = ()                                      # steps that the binders hear of at once


def make_job(seed, number):
    classless = number % BLOCK == CLASSLESS
    return Job(sequence.make(seed, number, classless), kind_of(seed, number), classless)


class Oracle:
    def __init__(self, a):
        self.a, self.tags = a, 0
        self.work = a.work or tempfile.mkdtemp(prefix="berth-oracle-")
        os.makedirs(self.work, exist_ok=True)
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.sides, self.servers = [], []
        self.passed = self.failed = 0
        self.rules, self.ops = collections.Counter(), collections.Counter()

    def start(self):
        make = side.Devapi if self.a.server == "devapi" else side.RealServer
        for name in ("upstream", "berth"):
            self.servers.append(make(os.path.join(self.work, "server-" + name)))
        up, berth = (s.kubeconfig for s in self.servers)
        self.sides = [side.Side("upstream", self.servers[0], side.upstream_command(up), self.work),
                      side.Side("berth", self.servers[1], side.berth_command(berth, *self.a.berth_args), self.work)]
        self.both(lambda s: s.binder.start())

    def stop(self):
        for s in self.sides:
            s.close()
        for s in self.servers[len(self.sides):]:
            s.stop()

    def both(self, what):
        return [f.result() for f in [self.pool.submit(what, s) for s in self.sides]]

    # ---- a batch

    @staticmethod
    def control(s, actions):
        for action in (actions or "").split():
            if action == "start":
                s.binder.start()
            else:
                s.binder.stop(signal.SIGTERM if action == "stop" else signal.SIGKILL)

    def settle(self):
        self.both(lambda s: s.settle())
        while any(time.monotonic() - s.last_change() < side.QUIET for s in self.sides):
            self.both(lambda s: s.settle())

    def run_batch(self, jobs):
        """all of one kind, late and held alike, at most one without classes"""
        schedule = sequence.schedules(jobs[0].seq["seed"])[jobs[0].kind]
        tags = {}
        for job in jobs:
            self.tags += 1
            tags["t%06d" % self.tags] = job
        self.both(lambda s: s.begin_batch(list(tags)))
        labels, window = [], None

        def apply(s, step, part):
            for tag, job in tags.items():
                parts, i = sequence.parts(job.seq["steps"][step]), s.instances[tag]
                if part == 0:
                    i.api.append([])
                for op in parts[part] if part < len(parts) else []:
                    i.api[-1].append((op.get("at", len(i.api[-1])), s.act(i, op)))
        for step in range(sequence.STEPS + 1):
            before, after = schedule.get(step, (None, None))
            begun = time.time()
            if before and self.sides[0].binder.p is not None:
                self.both(lambda s: s.flush())
            self.both(lambda s, what=before: self.control(s, what))
            if (before or "").endswith("start"):
                self.settle()       # one of them starts in a second, the other at once: both shall live through what follows
            for part in range(max(len(sequence.parts(job.seq["steps"][step])) for job in jobs)):
                if part and self.sides[0].binder.p is not None:
                    self.settle()
                self.both(lambda s, n=step: s.binder.hold(n in jobs[0].held))
                self.both(lambda s, n=step, m=part: apply(s, n, m))
                self.both(lambda s: s.binder.hold(False))
            if after and jobs[0].late and self.sides[0].binder.p is not None:
                self.settle()       # what was done is done before the end of the binders, and told
                self.both(lambda s: s.flush())
                begun = time.time()
            self.both(lambda s, what=after: self.control(s, what))
            if self.sides[0].binder.p is not None:
                self.settle()
                if (after or "").startswith("kill"):
                    window = [begun - 1, time.time() + 1]
                labels.append("step %d" % step)
                self.both(lambda s: s.checkpoint())
        self.both(lambda s: s.flush())
        events = self.both(lambda s: s.events())
        for s, name, found in zip(self.sides, ("up", "berth"), events):
            for tag, job in tags.items():
                i = s.instances[tag]
                setattr(job, name, {"states": i.states, "api": [sorted(step) for step in i.api], "labels": labels, "events": found[tag], "restless": tag in s.ignored, "writes": i.writes, "killed": window,
                                    "in flight": sequence.in_flight(job.seq)})
        for job in jobs:
            self.ops.update(op["do"] for step in job.seq["steps"] for op in step)
        self.both(lambda s: s.end_batch())

    # ---- judging

    def judge(self, job):
        if job.up["restless"]:
            return [], collections.Counter(restless=1)
        if job.berth["restless"]:
            return ["berth-controller does not come to rest"], collections.Counter()
        return compare.compare(job.up, job.berth)

    @staticmethod
    def in_the_way(job, other):
        """Not in one batch: two without classes, and copies of one that recycles volumes. Upstream mixes up the pods of volumes
        that it recycles at the same moment, so copies would hinder each other as nothing else does."""
        return job.classless and other.classless or job.recycles and other.recycles and job.seq["number"] == other.seq["number"]

    def packs(self, jobs):
        """batches of one kind each"""
        by_kind, out = collections.defaultdict(list), []
        for job in jobs:
            by_kind[job.seq["seed"], job.kind, job.late, job.held].append(job)
        for group in by_kind.values():
            batches = []
            for job in group:
                for b in batches:
                    if len(b) < self.a.batch and not any(self.in_the_way(job, other) for other in b):
                        b.append(job)
                        break
                else:
                    batches.append([job])
            out += batches
        return out

    @staticmethod
    def copies(job, n, paused=False):
        """paused: half of them get pauses between the operations of a step, or another order of them; most of those one before
        the binders end in the middle, too: how much of a step is done by then is chance. With most others the binders are stopped
        during some steps, the first time all of them: they hear of a step's operations at once, as if they had been busy."""
        out = []
        for k in range(n):
            seq = job.seq if not (paused and k % 2) else sequence.variant(job.seq, k // 2)
            out.append(Job(seq, job.kind, job.classless))
            out[-1].paused, out[-1].recycles = seq is not job.seq, job.recycles
            out[-1].late = out[-1].paused and k > 4 and job.kind == sequence.KILLED
            if paused and k % 2 == 0 and k >= 4:
                out[-1].held, out[-1].paused = sequence.held(k - 4), True
        return out

    def arbitrate(self, suspects):
        """Runs the sequences that differed several times more: differences that upstream has with itself are none. Then with
        pauses between the operations of a step, or another order of those on different objects, or none heard of before all
        are done: what upstream does then is right, too."""
        for job in suspects:
            job.recycles = any("Recycl" in e["event"][2] for r in (job.up, job.berth) for e in r["events"].values())
        tried = {id(j): [j] for j in suspects}
        open_ = suspects
        for n, last in ((self.a.copies, False), (2 * self.a.copies, True)):
            more = {id(j): self.copies(j, n, last) for j in open_}
            for batch in self.packs([c for cs in more.values() for c in cs]):
                self.run_batch(batch)
            still = []
            for job in open_:
                tried[id(job)] += more[id(job)]
                job.runs = tried[id(job)]
                job.verdict, rules = self.accept(job.runs, last)
                if job.verdict:
                    still.append(job)
                else:
                    self.passed += 1
                    self.rules += rules
                    print("  %s passes: %s" % (self.name(job), ", ".join(r for r in rules if isinstance(r, str))))
            open_ = still
            if not open_:
                break
        return open_

    @staticmethod
    def accept(runs, last=True):
        if any(r.up["restless"] for r in runs):
            return [], collections.Counter(restless=1)
        if any(r.berth["restless"] for r in runs):
            return ["berth-controller does not come to rest"], collections.Counter()
        return compare.accept([r.up for r in runs if not r.paused], [r.berth for r in runs if not r.paused],
                              [r.up for r in runs if r.paused], last)

    @staticmethod
    def name(job):
        return "sequence %d of seed %d" % (job.seq["number"], job.seq["seed"])

    # ---- shrinking

    def shrink(self, job):
        """Leaves out operations as long as the difference stays. All tries of a round run side by side."""
        tries = 4
        while not job.classless and not job.recycles:
            places = [(s, o) for s, step in enumerate(job.seq["steps"]) for o in range(len(step))]
            variants = [self.without(job, [p]) for p in places]
            runs = [self.copies(v, tries) for v in variants]
            for batch in self.packs([r for rs in runs for r in rs]):
                self.run_batch(batch)
            spare = [p for p, rs in zip(places, runs) if self.accept(rs)[0]]
            print("  shrinking %s: %d of %d operations can be left out one at a time" % (self.name(job), len(spare), len(places)))
            if not spare:
                return job
            groups = [spare, spare[::2], spare[1::2], spare[:1]]
            for group in groups:
                smaller = self.without(job, group)
                rs = self.copies(smaller, 2 * tries)
                self.run_batch(rs)
                if self.accept(rs)[0]:
                    job = smaller
                    job.runs, job.verdict = rs, self.accept(rs)[0]
                    break
            else:
                return job
        return job

    @staticmethod
    def without(job, places):
        seq = copy.deepcopy(job.seq)
        seq["steps"] = [[op for o, op in enumerate(step) if (s, o) not in places] for s, step in enumerate(seq["steps"])]
        return Job(seq, job.kind, job.classless)

    # ---- the whole

    def report(self, job):
        self.failed += 1
        path = os.path.join(self.work, "failed-%d-%d.json" % (job.seq["seed"], job.seq["number"]))
        print("FAILED %s (schedule %d), saved as %s" % (self.name(job), job.kind, path))
        for line in job.verdict[:20]:
            print("     " + line)
        if self.a.shrink:
            job = self.shrink(job)
            print("     what is left of it: schedule %s" % json.dumps(sequence.schedules(job.seq["seed"])[job.kind]))
            for n, step in enumerate(job.seq["steps"]):
                for op in step:
                    print("     step %d: %s" % (n, json.dumps(op)))
            for line in job.verdict[:20]:
                print("     " + line)
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"sequence": job.seq, "kind": job.kind, "classless": job.classless, "differences": job.verdict,
                       "runs": [{"upstream": r.up, "berth": r.berth} for r in job.runs[:3]]}, f, indent=1, sort_keys=True)
        sys.stdout.flush()

    def run(self, jobs):
        begun, done, suspects = time.monotonic(), 0, []
        for batch in self.packs(jobs):
            self.run_batch(batch)
            differ = 0
            for job in batch:
                differences, rules = self.judge(job)
                if differences or self.a.replay:
                    differ += 1
                    suspects.append(job)
                    if self.a.verbose and differences:
                        print("  %s: %s" % (self.name(job), differences[0][:300]))
                else:
                    self.passed += 1
                    self.rules += rules
            done += len(batch)
            print("%d of %d sequences, %.0f s, %d to be looked at again" % (done, len(jobs), time.monotonic() - begun, differ))
            sys.stdout.flush()
        for job in self.arbitrate(suspects) if suspects else []:
            self.report(job)
        print("operations: " + ", ".join("%s %d" % kv for kv in sorted(self.ops.items())))
        print("differences on purpose:")
        for rule, why in compare.RULES.items():
            sides = ["%d by %s" % (self.rules[rule, s], s) for s in ("upstream", "berth") if self.rules[rule, s]]
            print("  %6d  %s%s: %s" % (self.rules[rule], rule, " (%s)" % ", ".join(sides) if sides else "", why))
        print("%.0f s" % (time.monotonic() - begun))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sequences", type=int, default=300, metavar="N")
    p.add_argument("--first", type=int, default=0, metavar="K", help="number of the first sequence")
    p.add_argument("--seed", type=int, default=1, metavar="S")
    p.add_argument("--server", choices=("devapi", "real"), default="devapi", help="the embedded API server, or a real one of Kubernetes 1.20.2")
    p.add_argument("--batch", type=int, default=50, metavar="B", help="so many sequences run side by side (at most %d)" % BLOCK)
    p.add_argument("--copies", type=int, default=8, metavar="N", help="a sequence that differs is run so many times more")
    p.add_argument("--only", metavar="K,K", help="these sequences of the seed")
    p.add_argument("--replay", metavar="FILE", help="a saved failure")
    p.add_argument("--shrink", action="store_true", help="reduce failures to what matters")
    p.add_argument("--berth-args", type=str.split, default=[], metavar="'ARG ARG'", help="further arguments of berth-controller")
    p.add_argument("--work", metavar="DIR", help="logs and failures (default: a temporary directory, removed when all is well)")
    p.add_argument("--verbose", action="store_true", help="print first differences before they are looked at again")
    a = p.parse_args()
    if not 1 <= a.batch <= BLOCK:
        p.error("--batch must be 1 … %d" % BLOCK)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if a.replay:
        with open(a.replay, encoding="utf-8") as f:
            saved = json.load(f)
        jobs = [Job(saved["sequence"], saved["kind"], saved["classless"])]
    else:
        numbers = [int(k) for k in a.only.split(",")] if a.only else range(a.first, a.first + a.sequences)
        jobs = [make_job(a.seed, k) for k in numbers]
    oracle, trouble = Oracle(a), None
    try:
        oracle.start()
        oracle.run(jobs)
    except Problem as e:
        trouble = str(e)
    finally:
        oracle.stop()
    if trouble:
        print("ERROR: " + trouble)
        oracle.failed += len(jobs) - oracle.passed - oracle.failed
    if not oracle.failed and not a.work:
        shutil.rmtree(oracle.work, ignore_errors=True)
    else:
        print("logs are in " + oracle.work)
    print("%d passed, %d failed" % (oracle.passed, oracle.failed))
    sys.exit(1 if oracle.failed else 0)


if __name__ == "__main__":
    main()
