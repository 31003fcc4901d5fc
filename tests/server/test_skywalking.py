# SPDX-License-Identifier: Apache-2.0
"""SkyWalking's agents, as they are, send segments and snapshots; and by hand what they would not send. The analysis of
snapshots is compared with SkyWalking's own examples."""

import json
import os
import struct
import subprocess
import threading
import time
import urllib.request

import h2_client
import pytest

import get_skywalking
import test_traces
import wire
from conftest import TOP, wait_for
from test_api import check, get
from test_traces import get_trace, profile

V3 = "/skywalking.v3."
COLLECT, SNAPSHOTS = V3 + "TraceSegmentReportService/collect", V3 + "ProfileTask/collectSnapshot"
WALL = "request:wall:nanoseconds:request:nanoseconds"


@pytest.fixture(scope="session")
def skywalking_python():
    """A Python with SkyWalking's agent; skips where it cannot be had."""
    try:
        return get_skywalking.python()
    except get_skywalking.Unavailable as e:
        pytest.skip(str(e))


class App:
    """A running skywalking_app.py."""

    def __init__(self, python, port, directory, service="shop", interval=1):
        self.log_path = directory / f"{service}.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [python, os.path.join(TOP, "tests/server/skywalking_app.py"), f"127.0.0.1:{port}", service, str(interval)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.port = int(self.process.stdout.readline() or 0)

    def get(self, path):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30).read()
        except urllib.error.HTTPError:
            pass

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def app(skywalking_python, tmp_path):
    started = []

    def start(port, **more):
        started.append(App(skywalking_python, port, tmp_path, **more))
        assert started[-1].port, started[-1].log
        return started[-1]

    yield start
    for a in started:
        a.stop()


def traces(server, service, **more):
    return get(server, "/api/v1/traces", service=service, limit=1000, **more)["traces"]


# ---- SkyWalking's agent for Python ----

def test_segments_of_a_python_agent(serve, app):
    """Each request is a trace of two segments, with SkyWalking's endpoint, on the port of SkyWalking."""
    server = serve("--listen-skywalking", "127.0.0.1:0")
    shop = app(server.ports["skywalking"])
    for path in ["/buy?cart"] * 3 + ["/fail"]:
        shop.get(path)
    wait_for(lambda: len(traces(server, "shop")) == 7, shop.log)
    found = {e: [t for t in traces(server, "shop") if t["endpoint"] == e] for e in ("/buy", "/cart", "/fail")}
    assert [len(t) for t in found.values()] == [3, 3, 1]
    assert found["/fail"][0]["status"] == "error"
    assert {t["trace_id"] for t in found["/buy"]} == {t["trace_id"] for t in found["/cart"]}
    for t in found["/buy"]:
        assert t["kind"] == "server" and 800 <= t["duration_ms"] < 8000
        spans = get_trace(server, t["trace_id"])["spans"]
        by_id = {s["span_id"]: s for s in spans}
        buy, call, cart = sorted(spans, key=lambda s: s["start_ms"])
        assert (buy["name"], call["kind"], cart["name"]) == ("/buy", "client", "/cart")
        assert call["parent_id"] == buy["span_id"] and cart["parent_id"] == call["span_id"]
        assert "parent_id" not in buy and by_id[cart["parent_id"]]["attributes"]["http.method"] == "GET"
        assert buy["attributes"]["skywalking.segment"] != cart["attributes"]["skywalking.segment"]
        assert buy["attributes"]["skywalking.span"] == "0"
    # Heartbeats, metrics and questions for tasks are answered.
    time.sleep(2)
    assert "StatusCode" not in shop.log and "RpcError" not in shop.log, shop.log
    shop.stop()
    refused = server.get("/metrics").text
    assert 'culprit_net_answers_total{listener="skywalking",status="4xx"} 0' in refused, refused


# ---- SkyWalking's agent for Java ----

@pytest.fixture(scope="session")
def skywalking_java(tmp_path_factory):
    """The folder of SkyWalking's agent for Java, and that of a service; skips where it cannot be had."""
    top = tmp_path_factory.mktemp("java")
    try:
        get_skywalking.java_folders(top)
    except get_skywalking.Unavailable as e:
        pytest.skip(str(e))
    return top / "agent", top / "shop"


class JavaApp:
    """A running Shop."""

    def __init__(self, folders, port, directory, *options):
        agent, classes = folders
        settings = {"agent.service_name": "shop", "agent.instance_name": "shop-1", "collector.backend_service": f"127.0.0.1:{port}",
                    "collector.get_profile_task_interval": 1, "collector.heartbeat_period": 1, "logging.output": "CONSOLE",
                    "logging.level": "INFO"}
        self.log_path = directory / "java.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ["java", "-Xmx128m", *(f"-Dskywalking.{k}={v}" for k, v in settings.items()), *options,
                 f"-javaagent:{agent}/skywalking-agent.jar", "-cp", classes, "Shop"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line)
            if line.strip().isdigit():
                break
        else:
            raise RuntimeError("".join(self.lines) + self.log_path.read_text(errors="replace"))
        self.port = int(self.lines[-1])
        threading.Thread(target=self.lines.extend, args=[self.process.stdout], daemon=True).start()

    def get(self, path):
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60).read()

    @property
    def log(self):
        return "".join(self.lines) + self.log_path.read_text(errors="replace")

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture
def java_app(skywalking_java, tmp_path):
    started = []

    def start(port, *options):
        started.append(JavaApp(skywalking_java, port, tmp_path, *options))
        return started[-1]

    yield start
    for a in started:
        a.stop()


@pytest.mark.slow
def test_segments_of_a_java_agent(server, java_app):
    shop = java_app(server.ports["otlp-grpc"])
    # The agent drops what ends before it is connected.
    wait_for(lambda: shop.get("/buy") or len(traces(server, "shop")) > 2, shop.log)
    for t in traces(server, "shop"):
        [s] = get_trace(server, t["trace_id"])["spans"]
        assert (s["endpoint"], s["kind"]) == ("/buy", "server") and 800 <= s["duration_ms"] < 8000
    time.sleep(2)
    assert "StatusRuntimeException" not in shop.log and "ERROR" not in shop.log, shop.log


# ---- tasks ----

def add_task(server, **spec):
    a = server.post("/api/v1/tasks", json.dumps({"service": "shop", "endpoint": "/buy", "min_ms": 0, "duration_ms": 120000,
                                                 "max_requests": 1000, "max_per_agent": 4, **spec}).encode(), {"Content-Type": "application/json"})
    assert a.status == 200, a.text
    return a.json()["id"]


def task(server, name):
    return server.get(f"/api/v1/tasks/{name}").json()


def time_of(group, function):
    """Milliseconds in calls of the function that have no other call of it above them."""
    rows, total = {r["id"]: r for r in group["rows"]}, 0

    def above(r):
        while r["parent"]:
            r = rows[r["parent"]]
            yield r["function"]

    for r in group["rows"]:
        if r["function"] == function and function not in above(r):
            total += r["total_ns"] / 1e6
    return total


def run_task(server, shop, slowly, quickly, depth):
    """An agent gets a task, profiles requests and ends; returns the analysed traces."""
    name = add_task(server)
    wait_for(lambda: [a["state"] for a in task(server, name)["agents"]] == ["armed"], shop.log)
    # It takes a moment between the question and the agent's readiness.
    wait_for(lambda: shop.get("/buy") or
             sum(r["outcome"] == "kept" for r in server.get(f"/api/v1/tasks/{name}/requests").json()["requests"]) > 2, shop.log)
    kept = [r for r in server.get(f"/api/v1/tasks/{name}/requests").json()["requests"] if r["outcome"] == "kept"]
    for r in kept:
        spans = {s["span_id"]: s for s in get_trace(server, r["trace_id"], type=WALL)["spans"]}
        span = spans[r["span_id"]]
        # Snapshots are sent every half second.
        wait_for(lambda: analysis(server, r["trace_id"])["groups"], shop.log)
        time.sleep(1.5)
        [group] = analysis(server, r["trace_id"], lines="false")["groups"]
        assert abs(group["total_ns"] / 1e6 - span["duration_ms"]) < 0.01
        parts = time_of(group, slowly), time_of(group, quickly)
        assert group["count"] >= 8 and all(row["kind"] in ("python", "java", "note") for row in group["rows"])
        # One works for 600 ms, the other for 200; an agent on a busy machine begins late.
        missed = time_of(group, "[not sampled]")
        assert parts[0] + missed >= 540 and parts[0] >= 300 and parts[1] >= 100, (parts, missed, span, group)
        assert sum(parts) + missed <= span["duration_ms"] + 0.01, (parts, missed, span, group)
        assert max(len(p) for p in paths(group)) >= depth
        [biased] = analysis(server, r["trace_id"], lines="false", estimator="skywalking")["groups"]
        assert 0 < time_of(biased, slowly) <= parts[0] + 40 and biased["total_ns"] <= group["total_ns"] + 1e6
    return kept


def paths(group):
    out = {0: ()}
    for row in group["rows"]:
        out[row["id"]] = (*out[row["parent"]], row["function"])
    return out.values()


def test_task_of_a_python_agent(server, app):
    shop = app(server.ports["otlp-grpc"])
    run_task(server, shop, "slowly", "quickly", 6)
    # A task for another endpoint waits, and one for all endpoints is refused with a reason.
    other, every = add_task(server, endpoint="/cart"), add_task(server, endpoint="")
    wait_for(lambda: [a["state"] for a in task(server, other)["agents"]] == ["queued"], shop.log)
    wait_for(lambda: [a["state"] for a in task(server, every)["agents"]] == ["refused"], shop.log)
    assert "whole name" in task(server, every)["agents"][0]["reason"]


@pytest.mark.slow
def test_task_of_a_java_agent(server, java_app):
    shop = java_app(server.ports["otlp-grpc"])
    run_task(server, shop, "Shop.slowly", "Shop.quickly", 6)


# ---- by hand ----

NOW = int(time.time() * 1000) - 60000


def frame(data, flag=0):
    return bytes([flag]) + struct.pack(">I", len(data)) + data


def stream(server, path, messages, headers=(), port="otlp-grpc"):
    """A call of many messages, sent at once. Returns its end."""
    c = h2_client.Connection(server.ports[port])
    try:
        call = c.wait(c.begin(path, b"".join(frame(m) for m in messages), headers))
        return call
    finally:
        c.close()


def span(number=0, parent=-1, start=0, end=100, name="/buy", kind=0, refs=(), **more):
    return wire.message(_1=number, _2=parent, _3=NOW + start, _4=NOW + end, _5=list(refs), _6=name, _8=kind,
                        **{f"_{k[1:]}": v for k, v in more.items()})


def segment(spans, trace="t.1.1", name="s.1", service="shop"):
    return wire.message(_1=trace, _2=name, _3=spans, _4=service, _5=service + "-1")


def snapshot(sequence, ms, stack, name="s.1", task="task-1"):
    return wire.message(_1=task, _2=name, _3=NOW + ms, _4=sequence, _5=wire.field(1, list(stack)))


def accepted(call):
    assert call.status == 0, call.message
    assert call.body == frame(b"")  # Commands without any


def only_trace(server, service="shop"):
    return {t["trace_id"] for t in traces(server, service)}.pop()


def analysis(server, trace, **parameters):
    path = "/api/v1/requests/{trace_id}/analysis"
    a = check(server.get(path.replace("{trace_id}", trace), **parameters), path)
    assert a.status == 200, a.text
    return a.json()


def calls(group):
    """{path: (count, total ms, self ms)} of a group's rows."""
    paths = {0: ()}
    out = {}
    for row in group["rows"]:
        paths[row["id"]] = paths[row["parent"]] + (row["function"] + (f":{row['line']}" if "line" in row else ""),)
        out["/".join(paths[row["id"]])] = (row["count"], row["total_ns"] / 1e6, row["self_ns"] / 1e6)
    return out


CASE_4 = [(0, 0, "ABC"), (1, 10, "ABCA"), (2, 20, "ACA"), (3, 30, "ABCB")]
CASE_4_COMPATIBLE = {"A": (4, 30, 20), "A/B": (3, 10, 0), "A/B/C": (3, 10, 10), "A/B/C/A": (1, 0, 0),
                     "A/B/C/B": (1, 0, 0), "A/C": (1, 0, 0), "A/C/A": (1, 0, 0)}


@pytest.mark.parametrize("first", ["snapshots", "segment", "between"])
def test_example_of_skywalking(server, first):
    """The case 4 of SkyWalking's own tests, through the wire and the store, whenever its segment arrives."""
    shots = [snapshot(n, ms, stack) for n, ms, stack in CASE_4]
    parts = {"snapshots": [(SNAPSHOTS, shots), (COLLECT, [segment([span(end=30)])])],
             "segment": [(COLLECT, [segment([span(end=30)])]), (SNAPSHOTS, shots)],
             "between": [(SNAPSHOTS, shots[:2]), (COLLECT, [segment([span(end=30)])]), (SNAPSHOTS, shots[2:])]}[first]
    for path, messages in parts:
        accepted(stream(server, path, messages))
    trace = only_trace(server)
    a = analysis(server, trace, estimator="skywalking")
    [group] = a["groups"]
    assert a["type"] == WALL and "tip" not in a and not a["damaged"]
    assert (group["service"], group["thread"], group["snapshots"]) == ("shop", "/buy", True)
    assert calls(group) == CASE_4_COMPATIBLE
    [group] = analysis(server, trace)["groups"]
    assert calls(group) == {"A": (3, 30, 0), "A/B": (2, 20, 0), "A/B/C": (2, 20, 5), "A/B/C/A": (1, 10, 10),
                            "A/B/C/B": (0, 5, 5), "A/C": (1, 10, 0), "A/C/A": (1, 10, 10)}
    # The waterfall has the snapshots, each once.
    [s] = get_trace(server, trace, type=WALL)["spans"]
    assert s["samples"] == 4


def test_snapshots_survive_a_restart_before_their_segment(serve, tmp_path):
    a = serve(directory=tmp_path / "one")
    accepted(stream(a, SNAPSHOTS, [snapshot(n, ms, stack) for n, ms, stack in CASE_4]))
    assert a.stop()[0] == 0
    b = serve(directory=tmp_path / "one")
    accepted(stream(b, COLLECT, [segment([span(end=30)])]))
    [group] = analysis(b, only_trace(b), estimator="skywalking")["groups"]
    assert calls(group) == CASE_4_COMPATIBLE


def test_frames_of_java_and_python(server):
    stack = ["java.lang.Thread.run:750", "org.shop.Cart.<init>:-1", "/srv/shop.py/x.py.<module>: 12", "<string>.f: 3", "plain"]
    accepted(stream(server, SNAPSHOTS, [snapshot(0, 0, stack), snapshot(1, 10, stack)]))
    accepted(stream(server, COLLECT, [segment([span(end=30)])]))
    rows = analysis(server, only_trace(server))["groups"][0]["rows"]
    assert [(r["function"], r.get("file"), r.get("line"), r["kind"]) for r in rows] == [
        ("java.lang.Thread.run", None, 750, "java"), ("org.shop.Cart.<init>", None, None, "java"),
        ("<module>", "/srv/shop.py/x.py", 12, "python"), ("f", "<string>", 3, "python"), ("plain", None, None, "java")]


def test_children_of_a_span(server):
    """Excluding children leaves their gaps in, whatever the order of the children."""
    spans = [span(), span(2, 0, 50, 60, "second", 2), span(1, 0, 10, 20, "first", 2)]
    # Snapshots at 5, 15 … 95.
    stacks = {1: "RA", 5: "RB"}
    accepted(stream(server, SNAPSHOTS, [snapshot(i, 5 + 10 * i, stacks.get(i, "RW")) for i in range(10)]))
    accepted(stream(server, COLLECT, [segment(spans)]))
    trace = only_trace(server)
    by_name = {s["name"]: s["span_id"] for s in get_trace(server, trace)["spans"]}
    a = analysis(server, trace, span=by_name["/buy"])
    assert calls(a["groups"][0]) == {"R": (10, 100, 0), "R/W": (8, 80, 80), "R/A": (1, 10, 10), "R/B": (1, 10, 10)}
    a = analysis(server, trace, span=by_name["/buy"], children="exclude")
    assert calls(a["groups"][0]) == {"R": (8, 80, 0), "R/W": (8, 80, 80)}
    a = analysis(server, trace, span=by_name["/buy"], children="exclude", estimator="skywalking")
    assert calls(a["groups"][0])["R"][0] == 8
    for name, leaf in (("first", "A"), ("second", "B")):
        a = analysis(server, trace, span=by_name[name])
        assert calls(a["groups"][0]) == {"R": (1, 10, 0), f"R/{leaf}": (1, 10, 10)}


def test_samples_of_one_task(server):
    """Two tasks that keep a request each have their samples of it."""
    accepted(stream(server, SNAPSHOTS, [snapshot(n, 10 * n, "RA") for n in range(3)]))
    accepted(stream(server, SNAPSHOTS, [snapshot(n, 10 * n + 5, "RB", task="other") for n in range(2)]))
    accepted(stream(server, COLLECT, [segment([span(end=30)])]))
    trace = only_trace(server)
    leaves = {task: {path for group in analysis(server, trace, task=task)["groups"] for path in calls(group)}
              for task in ("task-1", "other", "none")}
    assert leaves == {"task-1": {"R", "R/A"}, "other": {"R", "R/B"}, "none": set()}


def test_threads_are_not_mixed(server):
    """Two segments of one trace, with equal numbers: SkyWalking takes those of the second for those of the first."""
    other = wire.message(_1=1, _2="t.1.1", _3="s.1", _4=0)
    accepted(stream(server, SNAPSHOTS, [snapshot(i, 10 * i, "RAX") for i in range(5)] +
                    [snapshot(i, 3 + 10 * i, "RBY", name="s.2") for i in range(8)]))
    accepted(stream(server, COLLECT, [segment([span(end=40)]),
                                      segment([span(start=3, end=73, name="work", kind=2, refs=[other])], name="s.2")]))
    trace = only_trace(server)
    for estimator in ("unbiased", "skywalking"):
        groups = {g["thread"]: calls(g) for g in analysis(server, trace, estimator=estimator)["groups"]}
        assert groups["/buy"]["R/A/X"][1:] == (40, 40) and groups["work"]["R/B/Y"][1:] == (70, 70)
    spans = {s["name"]: s for s in get_trace(server, trace)["spans"]}
    assert spans["work"]["parent_id"] == spans["/buy"]["span_id"] and not spans["work"]["root"]
    with_children = analysis(server, trace, span=spans["/buy"]["span_id"])["groups"]
    assert {g["thread"] for g in with_children} == {"/buy", "work"}
    alone = analysis(server, trace, span=spans["/buy"]["span_id"], children="exclude")["groups"]
    assert {g["thread"] for g in alone} == {"/buy"}


def test_time_before_the_threshold_is_not_sampled(server):
    accepted(stream(server, SNAPSHOTS, [snapshot(i, 110 + 10 * i, "RA") for i in range(10)]))
    accepted(stream(server, COLLECT, [segment([span(end=204)])]))
    [group] = analysis(server, only_trace(server))["groups"]
    assert calls(group) == {"[not sampled]": (0, 105, 105), "R": (10, 99, 0), "R/A": (10, 99, 99)}
    assert group["total_ns"] == 204e6


def test_samples_of_an_agent_of_culprit(server):
    """Their values are times, which are added up, thread by thread and span by span."""
    accepted(stream(server, COLLECT, [segment([span(), span(1, 0, 10, 90, "inner", 2)])]))
    trace = only_trace(server)
    ids = {s["name"]: s["span_id"] for s in get_trace(server, trace)["spans"]}
    test_traces.START = NOW
    kind = "wall:wall:nanoseconds:wall:nanoseconds"
    profile(server, "shop", [(trace, ids["/buy"], "leaf;work;main", 7), (trace, ids["inner"], "leaf;work;main", 30),
                             (trace, ids["inner"], "other;main", 5), (None, None, "other;main", 100)], ("wall", "nanoseconds"))
    for more, expected in (({}, (42, 37, 5)), ({"span": ids["/buy"]}, (42, 37, 5)), ({"span": ids["inner"]}, (35, 30, 5)),
                           ({"span": ids["/buy"], "children": "exclude"}, (7, 7, None))):
        [group] = analysis(server, trace, type=kind, **more)["groups"]
        assert not group["snapshots"] and group["service"] == "shop" and "span_id" not in group
        all_calls = calls(group)
        assert (all_calls["main"][1], all_calls["main/work"][1], all_calls.get("main/other", (0, None))[1]) == expected
        assert all_calls["main/work/leaf"][2] == expected[1] and group["total_ns"] == expected[0] * 1e6


def test_frames(server):
    """How agents write functions with their lines: Java's, of a native method and of one without lines; Python's."""
    texts = ["org.shop.Cart.add:12", "org.shop.Cart$1/0x00007f.run:-1", "java.lang.Thread.sleep:-2", "/srv/shop/cart.py.add: 7", "<string>.f: 1"]
    accepted(stream(server, SNAPSHOTS, [snapshot(n, 10 * n, texts) for n in range(2)]))
    accepted(stream(server, COLLECT, [segment([span(end=10)])]))
    [group] = analysis(server, only_trace(server))["groups"]
    assert [(r["function"], r.get("file", ""), r.get("line", 0)) for r in group["rows"]] == [
        ("org.shop.Cart.add", "", 12), ("org.shop.Cart$1/0x00007f.run", "", 0), ("java.lang.Thread.sleep", "", 0),
        ("add", "/srv/shop/cart.py", 7), ("f", "<string>", 1)]


def test_limit_of_skywalking(server):
    shots = [snapshot(i, i * 10, "RA") for i in range(12010)]
    accepted(stream(server, SNAPSHOTS, shots))
    accepted(stream(server, COLLECT, [segment([span(end=120100)])]))
    a = analysis(server, only_trace(server), estimator="skywalking")
    assert a["tip"] == "Out of snapshot analyze limit, 12010 snapshots found, but analysis first 12000 snapshots only."
    assert calls(a["groups"][0])["R"] == (12000, 119990, 0)


def test_ids(server):
    """A trace id of 32 hex digits is what it says; a span's error and layer arrive."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    tags = [wire.message(_1="mq.queue", _2="orders")]
    log = wire.message(_1=NOW, _2=[wire.message(_1="event", _2="error"), wire.message(_1="message", _2="no stock")])
    accepted(stream(server, COLLECT, [
        segment([span(name="Kafka/orders", _9=4, _11=1, _12=tags, _13=[log])], trace=trace),
        segment([span(name="other")], trace="a.b.c", name="s.2")]))
    [s] = get_trace(server, trace)["spans"]
    assert (s["kind"], s["status"], s["message"], s["attributes"]["mq.queue"]) == ("consumer", "error", "no stock", "orders")
    [t] = traces(server, "shop", endpoint="other")
    [s] = get_trace(server, t["trace_id"])["spans"]
    assert s["attributes"]["skywalking.trace_id"] == "a.b.c"


def test_segments_in_one_message(server):
    c = h2_client.Connection(server.ports["otlp-grpc"])
    answer = c.call(V3 + "TraceSegmentReportService/collectInSync",
                    wire.message(_1=[segment([span()], name=f"s.{i}", trace=f"t.{i}") for i in range(5)]))
    accepted(answer)
    assert len(traces(server, "shop")) == 5


@pytest.mark.parametrize("path", ["ManagementService/keepAlive", "ManagementService/reportInstanceProperties",
                                  "ConfigurationDiscoveryService/fetchConfigurations", "JVMMetricReportService/collect",
                                  "ProfileTask/getProfileTaskCommands", "ProfileTask/reportTaskFinish"])
def test_what_is_answered_only(server, path):
    c = h2_client.Connection(server.ports["otlp-grpc"])
    accepted(c.call(V3 + path, wire.message(_1="shop", _2="shop-1")))


@pytest.mark.parametrize("path", ["MeterReportService/collect", "LogReportService/collect", "EventService/collect"])
def test_streams_that_are_dropped(server, path):
    accepted(stream(server, V3 + path, [b"\x0a\x01x"] * 100))


def test_a_stream_without_messages(server):
    accepted(stream(server, COLLECT, []))


def test_unknown_methods_and_damage(server):
    c = h2_client.Connection(server.ports["otlp-grpc"])
    assert c.call(V3 + "Nothing/here", b"").status == 12
    assert stream(server, COLLECT, [b"\xff\xff\xff"]).status == 3
    assert stream(server, COLLECT, [wire.message(_4="shop")]).status == 3
    assert stream(server, SNAPSHOTS, [wire.message(_1="task")]).status == 3
    assert stream(server, SNAPSHOTS, [snapshot(-1, 0, "A")]).status == 3
    # A span of no time is left out, with the rest kept.
    accepted(stream(server, COLLECT, [segment([wire.message(_1=0, _2=-1, _6="bad"), span(1)])]))
    assert len(traces(server, "shop")) == 1


def test_tokens(serve, tmp_path):
    """Agents send a token without a scheme, as the header `authentication`."""
    tokens = tmp_path / "tokens"
    tokens.write_text("write writer-token-0123456789\nread reader-token-0123456789\n")
    tokens.chmod(0o600)
    server = serve("--token-file", str(tokens))
    assert stream(server, COLLECT, [segment([span()])]).status == 16
    for token, status in (("reader", 7), ("writer", 0)):
        headers = [("authentication", f"{token}-token-0123456789")]
        assert stream(server, COLLECT, [segment([span()])], headers).status == status


def test_a_long_stream_is_taken_as_it_comes(server):
    """32 MiB in one call: the server never has more of it than a window and the messages at work."""
    before = server.rss_bytes()
    c = h2_client.Connection(server.ports["otlp-grpc"])
    s = c.begin(COLLECT, b"", end=False)
    tags = [wire.message(_1="text", _2="x" * 2000)]
    for i in range(128):
        batch = b"".join(frame(segment([span(_12=tags)], name=f"s.{i}.{k}", trace=f"t.{i}.{k}")) for k in range(128))
        c.send(s, batch)
        # Parts of a message are nothing yet.
        c.send(s, frame(segment([span()], name=f"p.{i}"))[:7])
        c.send(s, frame(segment([span()], name=f"p.{i}"))[7:])
    c.send(s, b"", end=True)
    accepted(c.wait(s))
    assert server.get("/api/v1/stats").json()["store"]["spans"] == 128 * 129
    assert server.rss_bytes() - before < 64 << 20


def test_a_message_that_is_too_large(server):
    c = h2_client.Connection(server.ports["otlp-grpc"])
    s = c.begin(COLLECT, b"", end=False)
    c.send(s, b"\0" + struct.pack(">I", 100 << 20) + bytes(6 << 20))
    answer = c.wait(s)
    assert answer.status == 8 or answer.reset is not None
    # The connection goes on: the window of what was thrown away came back.
    for i in range(8):
        accepted(c.wait(c.begin(COLLECT, frame(segment([span(_12=[wire.message(_1="t", _2="x" * (1 << 20))])], name=f"s.{i}")))))
