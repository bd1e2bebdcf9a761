#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What berth-devapi's faults look like to a client, over real connections.

  faults.py --kubeconfig FILE

The last line is "N passed, N failed"; exit status 0 when none failed."""
import argparse
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.parse

MAPS = "/api/v1/namespaces/default/configmaps"
CASES = []


class Api:
    def __init__(self, kubeconfig):
        url = urllib.parse.urlparse(re.search(r"server:\s*(\S+)", open(kubeconfig).read()).group(1))
        self.host, self.port = url.hostname, url.port

    def connect(self, timeout=10):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def raw(self, method, path, body=None, timeout=10):
        """one request on a connection of its own: status, headers, body"""
        c = self.connect(timeout)
        try:
            ctype = "application/merge-patch+json" if method == "PATCH" else "application/json"
            c.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": ctype, "User-Agent": "faults-test"})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def __call__(self, method, path, body=None, code=200):
        status, _, text = self.raw(method, path, body)
        if status != code:
            raise AssertionError("%s %s: want %d, got %d %s" % (method, path, code, status, text[:300]))
        return json.loads(text)

    def fault(self, **spec):
        return self("POST", "/devapi/faults", spec)["id"]

    def watch(self, query="", timeout=10):
        c = self.connect(timeout)
        c.request("GET", MAPS + "?watch=1" + query)
        r = c.getresponse()
        r.connection = c
        return r

    def version(self):
        return self("GET", MAPS)["metadata"]["resourceVersion"]


def case(f):
    CASES.append(f)
    return f


def create(api, name, code=201):
    return api("POST", MAPS, {"metadata": {"name": name}}, code)


def exists(api, name):
    return api.raw("GET", MAPS + "/" + name)[0] == 200


def must_break(call):
    try:
        call()
    except (http.client.HTTPException, OSError):
        return
    raise AssertionError("the connection should have broken")


def same(got, want):
    if got != want:
        raise AssertionError("want %r, got %r" % (want, got))


def event(response):
    line = response.readline()
    return json.loads(line) if line.strip() else None


@case
def every_status(api):
    for code, reason in ((409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout")):
        api.fault(verb="create", resource="configmaps", action="status", code=code, retryAfter=7 if code == 429 else 0)
        status, headers, body = api.raw("POST", MAPS, {"metadata": {"name": "a"}})
        same((status, json.loads(body)["reason"], headers.get("Retry-After")), (code, reason, "7" if code == 429 else None))
        same(exists(api, "a"), False)


@case
def status_after_commit(api):
    api.fault(verb="create", action="status", code=504, when="after")
    create(api, "a", 504)
    same(exists(api, "a"), True)


@case
def nth_request(api):
    fault = api.fault(verb="create", resource="configmaps", skip=2, times=1, action="status", code=500)
    same([api.raw("POST", MAPS, {"metadata": {"name": n}})[0] for n in "abcd"], [201, 201, 500, 201])
    f = [x for x in api("GET", "/devapi/faults")["items"] if x["id"] == fault][0]
    same((f["seen"], f["hits"]), (4, 1))


@case
def only_the_subresource(api):
    api("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}, 201)
    path = "/api/v1/persistentvolumes/v"
    api.fault(verb="patch", subresource="status", action="status", code=500, times=0)
    same(api.raw("PATCH", path, {"metadata": {"labels": {"a": "b"}}})[0], 200)
    same(api.raw("PATCH", path + "/status", {"status": {"phase": "Bound"}})[0], 500)
    api("DELETE", "/devapi/faults")
    api.fault(verb="patch", subresource="", action="status", code=500, times=0)
    same(api.raw("PATCH", path, {"metadata": {"labels": {"a": "c"}}})[0], 500)
    same(api.raw("PATCH", path + "/status", {"status": {"phase": "Bound"}})[0], 200)


@case
def only_this_client(api):
    api.fault(userAgent="somebody-else", action="status", code=500, times=0)
    create(api, "a")


@case
def drop_before_and_after(api):
    for when, committed in (("before", False), ("after", True)):
        api.fault(verb="create", action="drop", when=when)
        must_break(lambda: create(api, "a" + when))
        same(exists(api, "a" + when), committed)


@case
def delay_before_and_after(api):
    for when, committed in (("before", False), ("after", True)):
        api.fault(verb="create", action="delay", ms=400, when=when)
        c = api.connect()
        start = time.monotonic()
        c.request("POST", MAPS, json.dumps({"metadata": {"name": "d" + when}}), {"Content-Type": "application/json"})
        same(exists(api, "d" + when), committed)
        same(c.getresponse().status, 201)
        assert time.monotonic() - start > 0.35, "too early"
        c.close()


@case
def hang(api):
    api.fault(verb="get", name="h", action="hang")
    try:
        api.raw("GET", MAPS + "/h", timeout=0.5)
    except socket.timeout:
        pass
    else:
        raise AssertionError("there was an answer")
    same(api.raw("GET", MAPS + "/h")[0], 404)


@case
def half_body(api):
    api.fault(verb="create", action="half-body")
    try:
        create(api, "a")
    except http.client.IncompleteRead as e:
        assert 0 < len(e.partial) < e.expected + len(e.partial), "half"
    else:
        raise AssertionError("the body was whole")
    same(exists(api, "a"), True)


@case
def broken_json(api):
    api.fault(verb="list", action="broken-json")
    status, _, body = api.raw("GET", MAPS)
    same(status, 200)
    try:
        json.loads(body)
    except ValueError:
        return
    raise AssertionError("that was JSON: %s" % body[:100])


@case
def kill_and_stop(api):
    for name, how, after in (("KILL", "killed", False), ("KILL", "killed", True), ("STOP", "stopped", False)):
        p = subprocess.Popen(["sleep", "60"])
        try:
            api.fault(verb="create", action="kill", pid=p.pid, signal=name, when="after" if after else "before", skip=1)
            create(api, "a-%s-%d" % (name.lower(), after))
            same(p.poll(), None)
            create(api, "b-%s-%d" % (name.lower(), after))
            if how == "killed":
                same(p.wait(5), -signal.SIGKILL)
            else:
                end = time.monotonic() + 5
                while open("/proc/%d/stat" % p.pid).read().split()[2] != "T":
                    assert time.monotonic() < end, "not stopped"
                    time.sleep(0.01)
        finally:
            p.kill()
            p.wait()


@case
def watch_ends(api):
    for action, last in (("watch-close", None), ("watch-gone", "ERROR"), ("watch-error", "ERROR")):
        api.fault(action=action, events=1)
        w = api.watch("&resourceVersion=" + api.version())
        create(api, action)
        same(event(w)["object"]["metadata"]["name"], action)
        if last:
            e = event(w)
            same((e["type"], e["object"]["code"]), (last, 410 if action == "watch-gone" else 500))
        same(event(w), None)
        w.connection.close()


@case
def watch_is_cut(api):
    api.fault(action="watch-drop", events=1)
    w = api.watch("&resourceVersion=" + api.version())
    create(api, "a")

    def read_on():
        while w.read1(65536):
            pass
        assert w.isclosed() and w.chunk_left is None, "a chunked answer that ends in good order"
        raise AssertionError("the answer should break off")
    event(w)
    must_break(read_on)


@case
def watch_garbage(api):
    api.fault(action="watch-garbage", events=0)
    w = api.watch("&resourceVersion=" + api.version())
    try:
        event(w)
    except ValueError:
        return
    raise AssertionError("that was JSON")


@case
def watch_goes_silent(api):
    api.fault(action="watch-silent", events=1)
    w = api.watch("&timeoutSeconds=1&resourceVersion=" + api.version(), timeout=2)
    create(api, "a")
    same(event(w)["type"], "ADDED")
    create(api, "b")
    try:
        event(w)
    except socket.timeout:
        return
    raise AssertionError("it spoke")


@case
def watch_is_late_and_repeats(api):
    api.fault(action="watch-late", ms=400)
    api.fault(action="watch-repeat")
    w = api.watch("&resourceVersion=" + api.version())
    start = time.monotonic()
    create(api, "a")
    same([event(w)["object"]["metadata"]["name"] for _ in range(2)], ["a", "a"])
    assert time.monotonic() - start > 0.35, "too early"


@case
def open_watches_can_be_told(api):
    w = api.watch("&allowWatchBookmarks=true&resourceVersion=" + api.version())
    same(api("POST", "/devapi/watches", {"resource": "configmaps", "action": "bookmark"})["watches"], 1)
    same(event(w)["type"], "BOOKMARK")
    api("POST", "/devapi/watches", {"action": "watch-close"})
    same(event(w), None)


@case
def journal(api):
    last = api("GET", "/devapi/journal")["last"]
    create(api, "a")
    api.raw("GET", MAPS + "/nope")
    items = api("GET", "/devapi/journal?since=%d" % last)["items"]
    same([(i["verb"], i["status"], i.get("name"), i["resource"], i["userAgent"]) for i in items],
         [("create", 201, None, "configmaps", "faults-test"), ("get", 404, "nope", "configmaps", "faults-test")])
    assert items[0]["bodySize"] > 0, "size of the body"
    same(len(api("GET", "/devapi/journal?since=%d&verb=get" % last)["items"]), 1)


@case
def clients_that_leave_are_forgotten(api):
    w = api.watch()
    end = time.monotonic() + 5
    while api("GET", "/devapi/state")["watches"] != 1:
        assert time.monotonic() < end, "no watch"
    w.connection.close()
    w.close()
    while api("GET", "/devapi/state")["watches"] != 0:
        assert time.monotonic() < end, "the watch is still there"
        time.sleep(0.05)


@case
def bad_faults(api):
    for spec in ({"action": "explode"}, {"action": "delay", "delay": 7}, {"action": "status"}, {"action": "kill"}):
        same(api.raw("POST", "/devapi/faults", spec)[0], 400)


@case
def big_bodies(api):
    data = {"metadata": {"name": "big"}, "data": {"x": "y" * 900000}}
    api("POST", MAPS, data, 201)
    same(len(api("GET", MAPS + "/big")["data"]["x"]), 900000)
    data["data"]["x"] = "y" * 9000000
    same(api.raw("POST", MAPS, data)[0], 413)


def start_afresh(api):
    api("POST", "/devapi/watches", {"action": "watch-drop"})
    api("POST", "/devapi/reset")
    end = time.monotonic() + 5
    while api("GET", "/devapi/state")["watches"] > 0:
        assert time.monotonic() < end, "watches of the case before are still there"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--kubeconfig", required=True)
    p.add_argument("--only", default="")
    args = p.parse_args()
    api = Api(args.kubeconfig)
    failed = passed = 0
    for f in CASES:
        if not re.search(args.only, f.__name__):
            continue
        start_afresh(api)
        try:
            f(api)
            passed += 1
        except Exception as e:
            failed += 1
            print("FAIL %s: %s" % (f.__name__, traceback.format_exc() if not isinstance(e, AssertionError) else e))
    print("%d passed, %d failed" % (passed, failed))
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
