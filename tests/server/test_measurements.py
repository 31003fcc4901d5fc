# SPDX-License-Identifier: Apache-2.0
"""Measurements of functions: hand-made agents that report, the sum of all hosts, rights, hostile agents and names, and a server
that is killed."""

import json
import signal
import struct
import subprocess
import time

import pytest

import wire
from conftest import wait_for
from tasks_agent import PATH, STATES
from test_api import check
from test_net import ADMIN, READER, WRITER, bearer, tokens  # noqa: F401

JSON = {"Content-Type": "application/json"}
NAMES = ["a\"b", "a\\b", "a'; exit() //", "a}\nBEGIN { }", "\x00", "*", "vfs_*", "v?s", "x" * 256, "a\x7fb", ""]


def add(server, status=200, **spec):
    body = json.dumps({"service": "shop", "function": "pack", **spec}).encode()
    a = server.request("POST", "/api/v1/measurements", body, JSON)
    assert check(a, "/api/v1/measurements", "post").status == status, a.text
    return a.json()


def show(server, measurement):
    a = check(server.get(f"/api/v1/measurements/{measurement}"), "/api/v1/measurements/{id}")
    assert a.status == 200, a.text
    return a.json()


def bucket(ns):
    """trace_hist_bucket(ns, 2)"""
    if ns < 4:
        return ns + 1
    log = ns.bit_length() - 1
    return ((log - 1) << 2) + (ns >> (log - 2) & 3) + 1


def fixed(number, value):
    return bytes([number << 3 | 1]) + struct.pack("<Q", value)


class Agent:
    def __init__(self, server, host="h1", started=1):
        self.server, self.host, self.started = server, host, started

    def ask(self, *reports, calls=(), status=200):
        """reports: {number of the field: value}, of Measurement; calls: bytes of Call. Returns the measures."""
        body = wire.message(_1=self.host, _2=f"id-{self.host}", _3="test", _4=self.started)
        for r in reports:
            body += wire.field(12, b"".join(wire.field(n, v) for n, v in sorted(r.items())))
        for c in calls:
            body += wire.field(13, c)
        a = self.server.request("POST", PATH, body, {"Content-Type": "application/x-protobuf"})
        assert a.status == status, a.text
        out = wire.decode(a.body)
        self.next_ms = out[2][0]
        return [{"id": m[1][0].decode(), "service": m[2][0].decode(), "function": m[3][0].decode(), "file": m.get(4, [b""])[0].decode(),
                 "duration_ms": m[5][0], "slow_ns": m.get(6, [0])[0], "budget": m[7][0]} for raw in out.get(7, []) for m in [wire.decode(raw)]]


def report(measurement, state="armed", latencies=(), **more):
    """What an agent reports of calls that took so many ns."""
    buckets = [0] * (max(map(bucket, latencies), default=-1) + 1)
    for ns in latencies:
        buckets[bucket(ns)] += 1
    names = {"reason": 3, "processes": 4, "others": 5, "measured_ms": 6, "slow_ns": 7, "calls": 8, "slow": 11, "lost": 12, "thinned": 13, "cost": 14}
    r = {1: measurement, 2: STATES.index(state), 4: 1, 6: 1000, 8: len(latencies), 9: len(latencies), 10: sum(latencies), 13: 1.0, 14: 0.25,
         15: buckets, 16: max(latencies, default=0)}
    return {**r, **{names[n]: v for n, v in more.items()}}


def call(measurement, ns, items="1", trace=0, tid=7, end=1_700_000_000_000_000_000, stack="answer\nserve"):
    return (wire.field(1, measurement) + fixed(2, end) + wire.field(3, ns) + wire.field(4, 6) + wire.field(5, tid) + wire.field(6, "stock") +
            (wire.field(7, trace.to_bytes(16, "big")) + wire.field(8, trace.to_bytes(8, "big")) if trace else b"") +
            wire.field(9, wire.message(_1="items", _2=items)) + wire.field(10, "0") + wire.field(11, stack))


def test_the_sum_of_hosts(server):
    m = add(server, duration_ms=20000, slow_ns=5000, file="stock")
    assert m["state"] == "running" and m["calls"] == 0 and m["latency"]["max_ns"] == 0
    a, b, idle = Agent(server, "h1"), Agent(server, "h2"), Agent(server, "h3")
    told = {"id": m["id"], "service": "shop", "function": "pack", "file": "stock", "duration_ms": 20000, "slow_ns": 5000, "budget": 1.0}
    assert a.ask() == b.ask() == idle.ask() == [told] and a.next_ms == 1000
    a.ask(report(m["id"], latencies=[1000] * 98 + [1_000_000] * 2, slow=2), calls=[call(m["id"], 1_000_000, "8000", trace=5)])
    b.ask(report(m["id"], latencies=[1000] * 100, measured_ms=2000, others=True, lost=3, thinned=0.5, cost=0.75))
    idle.ask(report(m["id"], "absent", processes=0, measured_ms=0))
    m = show(server, m["id"])
    assert (m["hosts"], m["processes"], m["calls"], m["returned"], m["slow"], m["lost"], m["others"]) == (2, 2, 200, 200, 2, 3, True)
    # One in 1 s; the other in half of 2 s.
    assert m["calls_per_second"] == 200 and m["thinned"] == 0.5 and m["cost_percent"] == 0.75
    assert m["total_ns"] == 198 * 1000 + 2_000_000
    assert [b["calls"] for b in m["histogram"]] == [198, 2]
    assert m["histogram"][0]["from_ns"] <= 1000 < m["histogram"][0]["to_ns"]
    assert m["latency"]["max_ns"] == 1_000_000 and 896 <= m["latency"]["p50_ns"] <= 1024 and m["latency"]["p99_ns"] <= 1024
    assert [g["host"] for g in m["agents"]] == ["h1", "h2"]
    [c] = m["slow_calls"]
    assert (c["host"], c["ns"], c["arguments"], c["stack"]) == ("h1", 1_000_000, [{"name": "items", "value": "8000"}], ["answer", "serve"])
    assert c["trace_id"] == f"{5:032x}" and c["span_id"] == f"{5:016x}"
    # A report replaces the one before, and does not add up.
    a.ask(report(m["id"], latencies=[1000] * 300, measured_ms=3000))
    assert show(server, m["id"])["calls"] == 400


def test_slow_calls_once_and_the_slowest(server):
    m = add(server)["id"]
    a = Agent(server)
    calls = [call(m, 1000 + k, str(k), end=1_700_000_000_000_000_000 + k) for k in range(60)]
    for _ in range(3): # an agent that got no answer tells again
        a.ask(report(m), calls=calls)
    got = show(server, m)
    assert [c["arguments"][0]["value"] for c in got["slow_calls"]] == [str(k) for k in reversed(range(60))] and got["told"] == 60
    for n in range(3):
        a.ask(report(m), calls=[call(m, 2000 + k, "late", end=1_800_000_000_000_000_000 + 100 * n + k) for k in range(40)])
    got = show(server, m)["slow_calls"]
    assert len(got) == 100 and all(c["arguments"][0]["value"] == "late" for c in got)
    assert [c["ns"] for c in got] == sorted((c["ns"] for c in got), reverse=True)


def test_stop_and_end(server):
    m, short = add(server)["id"], add(server, duration_ms=1000)["id"]
    a = Agent(server)
    assert len(a.ask(report(m, latencies=[5]), report(short, latencies=[5]))) == 2
    s = check(server.request("POST", f"/api/v1/measurements/{m}/stop"), "/api/v1/measurements/{id}/stop", "post")
    assert s.status == 200 and s.json()["state"] == "stopped"
    assert [x["id"] for x in a.ask()] == [short]
    a.ask(report(m, latencies=[5] * 9)) # too late
    assert show(server, m)["calls"] == 1
    assert show(server, short)["state"] == "running"
    time.sleep(1.1)
    a.ask(report(short, "ended", latencies=[5] * 2))
    assert show(server, short)["state"] == "ended" and show(server, short)["calls"] == 2
    assert server.request("POST", f"/api/v1/measurements/{short}/stop").json()["state"] == "ended"
    assert server.request("POST", "/api/v1/measurements/00000000/stop").status == 404


def test_an_agent_that_restarts_does_not_begin_again(server):
    m = add(server)["id"]
    assert Agent(server).ask(report(m, latencies=[5] * 7))
    again = Agent(server, started=2)
    assert again.ask() == []
    again.ask(report(m, latencies=[5]))
    got = show(server, m)
    assert got["calls"] == 7 and got["agents"][0]["state"] == "ended" and "restarted" in got["agents"][0]["reason"]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names(server, name):
    """What is no name of one function reaches no agent."""
    body = json.dumps({"service": "shop", "function": name}).encode()
    a = server.request("POST", "/api/v1/measurements", body, JSON)
    if name in ("a\"b", "a\\b", "a'; exit() //"): # an agent quotes it, and finds no such function
        assert a.status == 200 and Agent(server).ask()[0]["function"] == name
    else:
        assert a.status == 400 and ("function" in a.text or name == "\x00"), a.text


def test_wrong_requests(server):
    for spec, says in (({"duration_ms": 999}, "duration_ms"), ({"duration_ms": 600001}, "duration_ms"), ({"budget_percent": 0}, "budget_percent"),
                       ({"budget_percent": 11}, "budget_percent"), ({"service": ""}, "service"), ({"service": "*"}, "file"),
                       ({"file": "[vdso]"}, "file"), ({"slow": 1}, "no 'slow'"), ({"file": "a\nb"}, "file")):
        assert says in json.dumps(add(server, 400, **spec)), spec
    assert add(server, service="*", file="[kernel]")["spec"]["file"] == "[kernel]"
    assert add(server, function="main.(*Shelf).Count")["state"] == "running"
    assert server.get("/api/v1/measurements/../tasks").status in (400, 404)


def test_hostile_agents(server):
    m = add(server)["id"]
    a = Agent(server)
    good = report(m, latencies=[5])
    for wrong in ({8: 1 << 60}, {13: float("nan")}, {13: -1.0}, {14: float("inf")}, {2: 99}, {2: 0}, {15: [1 << 60]}, {1: "../x"}, {1: ""}, {1: "00000000"}):
        a.ask({**good, **wrong}, calls=[call("00000000", 5)])
    assert show(server, m)["hosts"] == 0
    a.ask({**good, 15: [1] * 100000}, calls=[call(m, 2 << 62), call(m, 5, items="<b>\n\x1b[31m" * 40, stack="a\n" * 5000)] * 30)
    got = show(server, m)
    assert got["hosts"] == 1 and len(got["slow_calls"]) == 1 and len(got["slow_calls"][0]["arguments"][0]["value"]) < 64
    assert "\x1b" not in json.dumps(got["slow_calls"], ensure_ascii=False) and len(got["slow_calls"][0]["stack"]) <= 1024


def test_limits(server):
    for _ in range(16):
        add(server)
    assert "16 functions of this service" in json.dumps(add(server, 413))
    for k in range(48):
        add(server, service=f"s{k}")
    assert "64 functions" in json.dumps(add(server, 413, service="another"))
    assert len(Agent(server).ask()) == 64
    all_ = check(server.get("/api/v1/measurements"), "/api/v1/measurements").json()["measurements"]
    server.request("POST", f"/api/v1/measurements/{all_[-1]['id']}/stop")
    new = add(server, service="another")["id"] # the stopped one makes room
    ids = [x["id"] for x in server.get("/api/v1/measurements").json()["measurements"]]
    assert len(ids) == 64 and ids[0] == new and all_[-1]["id"] not in ids


def test_rights(serve, tokens, tmp_path):  # noqa: F811
    log = tmp_path / "audit"
    server = serve("--token-file", tokens, "--audit-log", log)
    body = b'{"service": "shop", "function": "pack"}'
    for token, status in ((READER, 403), (WRITER, 403), (ADMIN, 200)):
        a = server.request("POST", "/api/v1/measurements", body, {**JSON, **bearer(token)})
        assert check(a, "/api/v1/measurements", "post").status == status
    m = a.json()["id"]
    for token, status in ((READER, 200), (WRITER, 403), (ADMIN, 200)):
        for path in ("/api/v1/measurements", "/api/v1/measurements/{id}"):
            assert check(server.get(path.replace("{id}", m), bearer(token)), path).status == status
    for token, status in ((READER, 403), (WRITER, 403), (ADMIN, 200)):
        assert server.request("POST", f"/api/v1/measurements/{m}/stop", None, bearer(token)).status == status
    for token, status in ((READER, 403), (WRITER, 403), (ADMIN, 200), (ADMIN, 404)):
        assert server.request("DELETE", f"/api/v1/measurements/{m}", None, bearer(token)).status == status
    assert [json.loads(line)["action"] for line in log.read_text().splitlines()] == [
        "measurement-added", "measurement-stopped", "measurement-deleted"]


def test_a_killed_server_knows_it_again(serve, tmp_path):
    server = serve("--data-dir", tmp_path / "d")
    m = add(server, duration_ms=60000, slow_ns=7, file="/usr/bin/stock")["id"]
    a = Agent(server)
    a.ask(report(m, latencies=[5] * 3 + [9000]), calls=[call(m, 9000, "8000", trace=3)])
    before = show(server, m)
    wait_for(lambda: "8000" in (tmp_path / "d" / f"measurement-{m}.json").read_text(), "the slow call is in no file")
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    (tmp_path / "d" / "measurement-0badf00d.json").write_text("{")
    server = serve("--data-dir", tmp_path / "d")
    assert show(server, m) == before
    assert len(server.get("/api/v1/measurements").json()["measurements"]) == 1
    assert [x["id"] for x in Agent(server).ask()] == [m] # the agent goes on
    assert server.request("DELETE", f"/api/v1/measurements/{m}").status == 200
    assert not (tmp_path / "d" / f"measurement-{m}.json").exists()


def test_ctl(server, executable):
    def ctl(*args, status=0):
        r = subprocess.run([executable, "ctl", *args, "--server", f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, timeout=60)
        assert r.returncode == status, r.stderr
        return r.stdout + r.stderr
    assert "no measurements" in ctl("measure", "list")
    m = ctl("measure", "add", "pack", "--service", "shop", "-d", "20s", "--slow", "5ms").strip()
    [told] = Agent(server).ask()
    assert (told["id"], told["function"], told["service"], told["duration_ms"], told["slow_ns"]) == (m, "pack", "shop", 20000, 5_000_000)
    Agent(server).ask(report(m, latencies=[1000] * 10 + [8_000_000], slow=1), calls=[call(m, 8_000_000, "8000", trace=9)])
    assert "pack" in ctl("measure", "list") and "running" in ctl("measure", "list")
    said = ctl("measure", "show", m)
    assert "items=8000" in said and f"{9:032x}" in said and "8.00 ms" in said and "h1" in said, said
    ctl("measure", "stop", m)
    assert "stopped" in ctl("measure", "list")
    ctl("measure", "delete", m)
    assert "no measurements" in ctl("measure", "list")
    assert "duration_ms" in ctl("measure", "add", "pack", "--service", "shop", "-d", "1h", status=1)
