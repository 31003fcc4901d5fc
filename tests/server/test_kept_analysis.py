# SPDX-License-Identifier: Apache-2.0
"""All requests that a task kept, together: their calls as one tree, slow beside ordinary ones, time by state. Spans, an
agent that asks and its profiles are made by hand (tasks_agent.py), so that all sums are known."""

import json
import re
import time

import pytest

import test_skywalking
import test_traces
import wire
from tasks_agent import Agent, send_profile
from test_api import check
from test_skywalking import COLLECT, SNAPSHOTS, accepted, analysis, segment, snapshot, span, stream
from test_tasks import add, requests, send

MS = 10**6


def see(server, task, view, **parameters):
    path = f"/api/v1/tasks/{{id}}/{view}"
    a = check(server.get(path.replace("{id}", task), **parameters), path)
    assert a.status == 200, a.text
    return a.json()


def paths(answer):
    """{path: row}"""
    names, out = {0: ""}, {}
    for row in answer["rows"]:
        assert row["parent"] in names, "a caller stands before its callees"
        names[row["id"]] = "/".join(filter(None, (names[row["parent"]], row["function"] + (f":{row['line']}" if "line" in row else ""))))
        out[names[row["id"]]] = row
    return out


def sums(row, group="slow"):
    """(total ms, self ms, samples, requests)"""
    s = row.get(group)
    return s and (s["total_ns"] / MS, s["self_ns"] / MS, s["count"], s["requests"])


class Shop:
    """A task for what takes 100 ms, and all else for comparison; its agent has all of them."""

    def __init__(self, server, **spec):
        self.server, self.agent = server, Agent(server)
        self.task = add(server, **{"min_ms": 100, "control": 1, **spec})["id"]
        self.agent.ask([(self.task, "armed", {5: 1, 6: 1})])
        self.start = time.time() * 1000

    def requests(self, *of, outcome="kept"):
        """of: (number, ms) or (number, ms, endpoint)."""
        send(self.server, *[(n, (more or ["GET /buy"])[0], ms) for n, ms, *more in of])
        keeps = self.agent.ask()[1]
        assert len(keeps) == len(of)
        self.agent.ask(kept=[(k, outcome, 1) for k in keeps])

    def wall(self, *samples, task=None):
        """(number, frames, ms), and perhaps a thread, more labels, another span and ms since the start"""
        rows = []
        for number, frames, ms, *more in samples:
            thread, labels, of, at = [*more, *[None] * (4 - len(more))]
            rows.append((number, of or number, frames, ms, {"task": task or self.task, "thread.name": thread or "worker", **(labels or {})},
                         self.start + (at or 0)))
        send_profile(self.server, rows, "wall")

    def see(self, view, **parameters):
        return see(self.server, self.task, view, **parameters)


def test_calls_of_all_kept_requests(server):
    """Equal calls of requests and threads add up; slow and ordinary requests stay apart; recursion is not folded."""
    shop = Shop(server)
    shop.requests((1, 200), (2, 300), (3, 50), (4, 60), (5, 70))
    # Two threads of one request do the same; request 5 was too short for a sample.
    shop.wall((1, "main;buy;lock", 100), (1, "main;buy;lock", 20, "helper"), (1, "main;buy;buy", 5), (2, "main;buy;lock", 200),
              (2, "main;render", 30), (3, "main;render", 20), (4, "main;render", 30), (4, "main;buy", 7))
    # Another task's samples of the same request are not counted.
    other = add(server)["id"]
    shop.wall((1, "main;buy;lock", 1000), task=other)
    a = shop.see("analysis")
    assert a["groups"] == {"slow": {"requests": 2, "sampled": 2, "partly": 0, "left_out": 0, "total_ns": 355 * MS},
                           "control": {"requests": 3, "sampled": 2, "partly": 0, "left_out": 0, "total_ns": 57 * MS}}
    found = paths(a)
    assert {p: (sums(r), sums(r, "control")) for p, r in found.items()} == {
        "main": ((355, 0, 5, 2), (57, 0, 3, 2)),
        "main/buy": ((325, 0, 4, 2), (7, 7, 1, 1)),
        "main/buy/lock": ((320, 320, 3, 2), None),
        "main/buy/buy": ((5, 5, 1, 1), None),
        "main/render": ((30, 30, 1, 1), (50, 50, 2, 2))}
    assert not a["snapshots"] and "skywalking" not in found["main"]["slow"] and not a["damaged"]


def test_only_one_endpoint(server):
    shop = Shop(server)
    shop.requests((1, 200, "GET /buy"), (2, 300, "GET /sell"), (3, 50, "GET /sell"))
    shop.wall((1, "main;buy", 100), (2, "main;sell", 200), (3, "main;sell", 20))
    assert set(paths(shop.see("analysis"))) == {"main", "main/buy", "main/sell"}
    a = shop.see("analysis", endpoint="GET /sell")
    assert {p: (sums(r), sums(r, "control")) for p, r in paths(a).items()} == {
        "main": ((200, 0, 1, 1), (20, 0, 1, 1)), "main/sell": ((200, 200, 1, 1), (20, 20, 1, 1))}
    assert shop.see("times")["endpoints"] == [{"name": "GET /buy", "slow": 1, "control": 0}, {"name": "GET /sell", "slow": 1, "control": 1}]
    assert {r["endpoint"] for r in requests(server, shop.task, endpoint="GET /buy")} == {"GET /buy"}
    assert shop.see("analysis", endpoint="nothing")["rows"] == []


def test_what_is_not_known_is_said(server):
    """Requests that agents dropped are left out; those without their beginning count in sums, but are not compared."""
    shop = Shop(server)
    shop.requests((1, 200), (2, 210), (4, 50), (5, 51))
    shop.requests((3, 300), outcome="partly")
    shop.requests((6, 400), outcome="evicted")
    shop.wall((1, "main;a", 100), (2, "main;a", 110), (3, "main;a", 50), (4, "main", 40), (5, "main", 50))
    g = shop.see("analysis")["groups"]["slow"]
    assert (g["requests"], g["partly"], g["left_out"], g["total_ns"]) == (3, 1, 1, 260 * MS)
    d = shop.see("difference")
    assert (d["slow"]["requests"], d["middle"]["requests"], d["left_out"]) == (2, 2, 2)
    [main] = [r for r in d["rows"] if r["name"] == "main"]
    assert (main["slow"] / MS, main["middle"] / MS) == (105, 45)


def test_children_of_the_requests(server):
    """Without its children, a request has what its own span did, wherever the others lie."""
    shop = Shop(server)
    shop.requests((1, 200), (2, 300))
    test_traces.START = int(shop.start)
    inner = {"traceId": f"{1:032x}", "spanId": f"{9:016x}", "parentSpanId": f"{1:016x}", "name": "inner", "kind": 1,
             "startTimeUnixNano": f"{int(shop.start)}000000", "endTimeUnixNano": f"{int(shop.start) + 50}000000"}
    body = {"resourceSpans": [{"resource": test_traces.resource("shop"), "scopeSpans": [{"spans": [inner]}]}]}
    a = server.post("/v1/traces", json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert a.status == 200, a.text
    shop.wall((1, "main;a", 100), (1, "main;b", 40, None, None, 9), (2, "main;a", 30))
    assert sums(paths(shop.see("analysis"))["main"]) == (170, 0, 3, 2)
    assert {p: sums(r) for p, r in paths(shop.see("analysis", children="exclude")).items()} == {
        "main": (130, 0, 2, 2), "main/a": (130, 130, 2, 2)}


def test_lines_and_files(server):
    shop = Shop(server)
    shop.requests((1, 200), (2, 300))
    shop.wall((1, "main;buy@/src/shop.c:41", 100), (2, "main;buy@/src/shop.c:42", 30))
    assert {p for p in paths(shop.see("analysis"))} == {"main", "main/buy:41", "main/buy:42"}
    row = paths(shop.see("analysis", lines="false"))["main/buy"]
    assert row["file"] == "/src/shop.c" and sums(row) == (130, 130, 2, 2)


def test_owners_and_wakers(server):
    """Who had the lock and who ended the wait are no calls of the request, but say for whom each call waited."""
    shop = Shop(server)
    shop.requests((1, 200), (2, 300), (3, 50))
    lock = {"wait": "lock", "lock": "0xa1", "owner": "77"}
    shop.wall((1, "main;buy;futex;[woken by clerk];run;unlock", 100, None, lock), (2, "main;buy;futex;[woken by clerk];unlock", 150, None, lock),
              (2, "main;buy;futex;[woken by a timer]", 20, None, {**lock, "owner": "78"}), (2, "main;read;[woken by an interrupt]", 9, None, {"wait": "disk"}),
              (2, "main;render", 30), (3, "main;buy;futex;[woken by clerk]", 5, None, lock))
    found = paths(shop.see("analysis"))
    assert set(found) == {"main", "main/buy", "main/buy/futex", "main/read", "main/render"}
    futex = found["main/buy/futex"]
    assert sums(futex) == (270, 270, 3, 2)
    assert futex["slow"]["owner"] == {"thread": "77", "name": "", "ns": 250 * MS, "others": 1}
    assert futex["slow"]["waker"] == {"name": "clerk", "ns": 250 * MS, "others": 1}
    assert futex["control"]["waker"] == {"name": "clerk", "ns": 5 * MS, "others": 0}
    assert found["main"]["slow"]["waker"] == {"name": "clerk", "ns": 250 * MS, "others": 2}
    assert found["main/read"]["slow"]["waker"]["name"] == "an interrupt" and "owner" not in found["main/read"]["slow"]
    assert "waker" not in found["main/render"]["slow"]
    # Of one request, too.
    for of in ("threads", "trace"):
        [group] = analysis(server, f"{2:032x}", task=shop.task, of=of)["groups"]
        rows = paths(group)
        assert rows["main/buy/futex"]["owner"] == {"thread": "77", "name": "", "ns": 150 * MS, "others": 1}
        assert rows["main/read"]["waker"] == {"name": "an interrupt", "ns": 9 * MS, "others": 0} and "waker" not in rows["main/render"]
    # Agents of culprit tell the waker by labels; threads of one name are two.
    wakers = [{"wait": "lock", "waker": "stock", "waker_pid": 9, "waker_tid": tid} for tid in (12, 13)]
    shop.wall((1, "main;ship;futex", 40, None, wakers[0]), (1, "main;ship;futex", 30, None, wakers[1]),
              (1, "main;ship;sleep", 9, None, {"wait": "sleep", "waker": "a timer"}))
    found = paths(shop.see("analysis"))
    assert found["main/ship/futex"]["slow"]["waker"] == {"thread": "12", "name": "stock", "ns": 40 * MS, "others": 1}
    assert found["main/ship/sleep"]["slow"]["waker"] == {"name": "a timer", "ns": 9 * MS, "others": 0}
    # A thread that lived for longer than half a minute has a name.
    ids = {"thread.name": "clerk", "thread.id": 77, "process.pid": 70}
    for ago in (40000, 0):
        shop.wall((1, "main;sell", 1, "clerk", ids, None, -ago or None))
    assert paths(shop.see("analysis"))["main/buy/futex"]["slow"]["owner"]["name"] == "clerk"


def test_a_trace_across_threads_and_processes(server):
    """Two services and three threads: a tree for each, or one for the trace, in which times of threads never meet."""
    start = int(time.time() * 1000)
    test_traces.START = start
    trace = f"{1:032x}"
    spans = {"shop": [{"traceId": trace, "spanId": f"{1:016x}", "name": "GET /buy", "kind": 2}],
             "stock": [{"traceId": trace, "spanId": f"{2:016x}", "parentSpanId": f"{1:016x}", "name": "Stock/Find", "kind": 2}]}
    for service, of in spans.items():
        for s in of:
            s.update({"startTimeUnixNano": f"{start}000000", "endTimeUnixNano": f"{start + 100}000000"})
        body = {"resourceSpans": [{"resource": test_traces.resource(service), "scopeSpans": [{"spans": of}]}]}
        a = server.post("/v1/traces", json.dumps(body).encode(), {"Content-Type": "application/json"})
        assert a.status == 200, a.text
    one = add(server)["id"]
    main, pool = ({"task": one, "thread.name": n} for n in ("main", "pool"))
    send_profile(server, [(1, 1, "run;a", 40, main, start + 40), (1, 1, "run;a", 30, pool, start + 45), (1, 1, "run;b", 5, main, start + 50)], "wall")
    send_profile(server, [(1, 2, "run;a", 20, main, start + 60), (1, 2, "run;c", 7, main, start + 70)], "wall", service="stock", host="h2")
    each = {(g["service"], g["thread"]): {p: (r["total_ns"] / MS, r["self_ns"] / MS) for p, r in paths(g).items()}
            for g in analysis(server, trace)["groups"]}
    assert each == {("shop", "main"): {"run": (45, 0), "run/a": (40, 40), "run/b": (5, 5)}, ("shop", "pool"): {"run": (30, 0), "run/a": (30, 30)},
                    ("stock", "main"): {"run": (27, 0), "run/a": (20, 20), "run/c": (7, 7)}}
    [all_] = analysis(server, trace, of="trace")["groups"]
    assert {p: (r["total_ns"] / MS, r["self_ns"] / MS, r["count"]) for p, r in paths(all_).items()} == {
        "run": (102, 0, 5), "run/a": (90, 90, 3), "run/b": (5, 5, 1), "run/c": (7, 7, 1)}
    assert (all_["service"], all_["thread"], all_["total_ns"], all_["count"]) == ("", "", 102 * MS, 5)
    # Of the first service's span: what the second does for it is below it.
    [below] = analysis(server, trace, span=f"{1:016x}", of="trace")["groups"]
    assert below["total_ns"] == 102 * MS
    [alone] = analysis(server, trace, span=f"{1:016x}", children="exclude", of="trace")["groups"]
    assert alone["total_ns"] == 75 * MS
    # SkyWalking's estimate of samples never takes time between two threads, or back in time.
    for g in analysis(server, trace, estimator="skywalking")["groups"]:
        assert all(r["total_ns"] >= 0 and r["self_ns"] >= 0 for r in g["rows"])


def test_segments_of_skywalking(server, monkeypatch):
    """Both estimates side by side, over threads and requests; numbers of snapshots of two segments are not one."""
    task = add(server, min_ms=0)["id"]
    monkeypatch.setattr(test_skywalking, "NOW", int(time.time() * 1000))
    for n in (1, 2):
        other = wire.message(_1=1, _2=f"t.{n}.1", _3=f"s.{n}", _4=0)
        accepted(stream(server, SNAPSHOTS, [snapshot(i, 10 * i, "RAX", name=f"s.{n}", task=task) for i in range(5)] +
                        [snapshot(i, 3 + 10 * i, "RBY", name=f"w.{n}", task=task) for i in range(8)]))
        accepted(stream(server, COLLECT, [
            segment([span(end=40)], trace=f"t.{n}.1", name=f"s.{n}"),
            segment([span(start=3, end=73, name="work", kind=2, refs=[other])], trace=f"t.{n}.1", name=f"w.{n}")]))
    a = see(server, task, "analysis")
    assert a["snapshots"] and a["groups"]["slow"]["requests"] == 2
    found = paths(a)
    assert {p: sums(r)[:2] for p, r in found.items()} == {
        "R": (220, 0), "R/A": (80, 0), "R/A/X": (80, 80), "R/B": (140, 0), "R/B/Y": (140, 140)}
    theirs = {p: tuple(r["slow"]["skywalking"][k] for k in ("total_ns", "self_ns", "count")) for p, r in found.items()}
    assert theirs["R"] == (220 * MS, 0, 26) and theirs["R/A/X"] == (80 * MS, 80 * MS, 10) and theirs["R/B/Y"] == (140 * MS, 140 * MS, 16)
    # Leaves that alternate get nothing of SkyWalking, and all of the unbiased estimate.
    shots = [snapshot(i, 10 * i, "RA" if i % 2 else "RB", name="s.3", task=task) for i in range(10)]
    accepted(stream(server, SNAPSHOTS, shots))
    accepted(stream(server, COLLECT, [segment([span(end=90, name="/alternate")], trace="t.3.1", name="s.3")]))
    found = paths(see(server, task, "analysis", endpoint="/alternate"))
    assert {p: (*sums(r)[:2], r["slow"]["skywalking"]["total_ns"] / MS, r["slow"]["skywalking"]["self_ns"] / MS) for p, r in found.items()} == {
        "R": (90, 0, 90, 90), "R/A": (45, 45, 0, 0), "R/B": (45, 45, 0, 0)}


def test_children_of_segments(server, monkeypatch):
    """In two requests, the children first or last: what lies between them stays."""
    task = add(server, min_ms=0)["id"]
    monkeypatch.setattr(test_skywalking, "NOW", int(time.time() * 1000))
    inner = [span(2, 0, 50, 60, "second", 2), span(1, 0, 10, 20, "first", 2)]
    for n, spans in ((1, [span(), *inner]), (2, [*reversed(inner), span()])):
        accepted(stream(server, SNAPSHOTS, [snapshot(i, 5 + 10 * i, {1: "RA", 5: "RB"}.get(i, "RW"), name=f"s.{n}", task=task) for i in range(10)]))
        accepted(stream(server, COLLECT, [segment(spans, trace=f"t.{n}.1", name=f"s.{n}")]))
    assert {p: sums(r) for p, r in paths(see(server, task, "analysis")).items()} == {
        "R": (200, 0, 20, 2), "R/W": (160, 160, 16, 2), "R/A": (20, 20, 2, 2), "R/B": (20, 20, 2, 2)}
    assert {p: sums(r) for p, r in paths(see(server, task, "analysis", children="exclude")).items()} == {
        "R": (160, 0, 16, 2), "R/W": (160, 160, 16, 2)}


# ---- slow beside ordinary requests ----

def test_the_difference_per_request(server):
    """Known sums: a function of 60 ms in slow requests only, one of 30 ms in both, one that is faster in slow ones."""
    shop = Shop(server)
    shop.requests(*[(n, 200 + n) for n in range(1, 9)], *[(n, 50 + n) for n in range(11, 27)])
    wobble = [(n % 4) - 1.5 for n in range(30)]
    shop.wall(*[(n, "main;buy;check@/src/shop.c:9", 60 + wobble[n]) for n in range(1, 9)], *[(n, "main;buy", 30 + wobble[n]) for n in range(1, 9)],
              *[(n, "main;render", 5) for n in range(1, 9)], *[(n, "main;buy", 30 + wobble[n]) for n in range(11, 27)],
              *[(n, "main;render", 15 + wobble[n]) for n in range(11, 27)])
    d = shop.see("difference")
    assert (d["task"], d["slow"]["requests"], d["slow"]["sampled"], d["middle"]["requests"], d["left_out"]) == (shop.task, 8, 8, 16, 0)
    assert abs(d["slow"]["value"] / MS - 95) < 0.01 and abs(d["middle"]["value"] / MS - 45) < 0.01 and "note" not in d
    rows = {r["name"]: r for r in d["rows"]}
    assert d["rows"][0]["name"] == "check" and rows["main"]["explained"]
    check_row = rows["check"]
    assert (check_row["slow"] / MS, check_row["middle"], check_row["file"], check_row["line"]) == (60, 0, "/src/shop.c", 9)
    assert check_row["low"] > 58 * MS and check_row["high"] < 62 * MS
    assert rows["render"]["effect"] / MS == -10 and rows["render"]["high"] < 0
    assert rows["buy"]["slow_self"] / MS == 30 and abs(rows["buy"]["effect"] / MS - 60) < 0.01
    # The tree: base is an ordinary request.
    names, nodes = d["names"], d["nodes"]
    both = {names[nodes["name"][i]]: (nodes["self"][i] / MS, nodes["base_self"][i] / MS) for i in range(nodes["count"])}
    assert both["check"] == (60, 0) and both["render"] == (5, 15) and both["buy"] == (30, 30)


def test_small_groups_give_no_verdict(server):
    shop = Shop(server)
    assert "no slow request" in shop.see("difference")["note"]
    shop.requests((1, 200))
    shop.wall((1, "main;a", 100))
    d = shop.see("difference")
    assert d["rows"] == [] and d["nodes"]["count"] <= 1 and d["slow"]["requests"] == 1 and d["middle"]["requests"] == 0
    assert re.match("1 slow request and no ordinary one to compare with", d["note"])
    shop.requests((2, 50))
    shop.wall((2, "main;a", 40))
    d = shop.see("difference")
    assert d["note"] == "1 slow and 1 ordinary request: too few to tell a difference from chance"
    assert {(r["name"], r["effect"] / MS, "low" in r, "high" in r) for r in d["rows"]} == {("main", 60, False, False), ("a", 60, False, False)}
    shop.requests((3, 210), (4, 55))
    shop.wall((3, "main;a", 110), (4, "main;a", 45))
    d = shop.see("difference")
    assert "note" not in d and all(r["low"] <= r["effect"] <= r["high"] for r in d["rows"])


# ---- time by state ----

def test_distributions_of_time_by_state(server):
    """Percentiles by the nearest rank; means of the parts are the mean of the whole."""
    shop = Shop(server)
    shop.requests(*[(n, 100 * n) for n in range(1, 21)], (30, 50), (31, 60))
    shop.requests((40, 5000), outcome="evicted")
    state = lambda n, name, ms: (n, n, "", ms, {"task": shop.task, "state": name}, shop.start)  # noqa: E731
    send_profile(server, [*[state(n, "running", 50 * n) for n in range(1, 21)], *[state(n, "lock", 50 * n) for n in range(1, 20)],
                          # The last one: 100 ms in no thread, and the first one: 20 ms of two threads.
                          state(20, "lock", 900), state(1, "disk", 20), state(30, "running", 50), state(31, "runnable", 60)], "time")
    t = shop.see("times")
    slow, control = t["groups"]["slow"], t["groups"]["control"]
    assert (slow["requests"], slow["left_out"], control["requests"], control["left_out"]) == (20, 1, 2, 0)
    assert slow["wall"] == {"mean_ms": 1050, "p50_ms": 1000, "p95_ms": 1900, "max_ms": 2000}
    assert slow["states"]["running"] == {"mean_ms": 525, "p50_ms": 500, "p95_ms": 950, "max_ms": 1000}
    assert slow["states"]["lock"] == {"mean_ms": 520, "p50_ms": 500, "p95_ms": 900, "max_ms": 950}
    assert slow["states"]["disk"] == {"mean_ms": 1, "p50_ms": 0, "p95_ms": 0, "max_ms": 20}
    assert (slow["rest"]["max_ms"], slow["overlap"]["max_ms"]) == (100, 20)
    for g in (slow, control):
        parts = sum(s["mean_ms"] for s in g["states"].values()) + g["rest"]["mean_ms"]
        assert parts == pytest.approx(g["wall"]["mean_ms"] + g["overlap"]["mean_ms"], abs=1e-5)
    assert control["states"]["running"] == {"mean_ms": 25, "p50_ms": 0, "p95_ms": 50, "max_ms": 50}
    assert "states" not in see(server, add(server)["id"], "times")["groups"]["slow"]


def test_what_is_refused(server):
    task = add(server)["id"]
    for view in ("analysis", "difference", "times"):
        path = f"/api/v1/tasks/{{id}}/{view}"
        assert check(server.get(path.replace("{id}", "0" * 8)), path).status == 404
        assert check(server.get(path.replace("{id}", task), nothing=1), path).status == 400
    for view, wrong in (("analysis", {"children": "some"}), ("difference", {"limit": 0}), ("difference", {"max_nodes": 0})):
        assert server.get(f"/api/v1/tasks/{task}/{view}", **wrong).status == 400
