# SPDX-License-Identifier: Apache-2.0
"""Tasks: real spans, a hand-made agent that asks (tasks_agent.py), `culprit ctl`, and servers that are killed."""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import TOP, wait_for
from tasks_agent import Agent, send_profile, spans
from test_api import check
from test_durable import on_disk  # noqa: F401
from test_net import ADMIN, READER, WRITER, bearer, tokens  # noqa: F401


def add(server, headers=None, **spec):
    a = server.request("POST", "/api/v1/tasks", json.dumps({"service": "shop", **spec}).encode(),
                       {"Content-Type": "application/json", **(headers or {})})
    assert check(a, "/api/v1/tasks", "post").status == 200, a.text
    return a.json()


def show(server, task):
    a = check(server.get(f"/api/v1/tasks/{task}"), "/api/v1/tasks/{id}")
    assert a.status == 200, a.text
    return a.json()


def requests(server, task, **parameters):
    a = check(server.get(f"/api/v1/tasks/{task}/requests", **parameters), "/api/v1/tasks/{id}/requests")
    assert a.status == 200, a.text
    return a.json()["requests"]


def why(server, task):
    return {w["reason"]: w["text"] for w in show(server, task)["why"]}


def send(server, *of, **more):
    """Sends requests (number, endpoint, ms) that begin now; or with all five of tasks_agent.spans()."""
    now = time.time_ns()
    body = spans([r if len(r) == 5 else (r[0], r[1], now, r[2], False) for r in of], **more)
    a = server.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
    assert a.status == 200, a.text


def test_slow_requests_of_a_real_sdk_are_asked_for(server, otel_sdk):
    """OpenTelemetry's SDK sends 20 requests to shop and 20 to cart, of which two fail."""
    slow = add(server, endpoint="GET /buy/{id}", min_ms=0)["id"]
    failed = add(server, service="cart", endpoint="Cart/*", errors=True)["id"]
    none = add(server, endpoint="~GET /sell.*")["id"]
    out = subprocess.run([otel_sdk, os.path.join(TOP, "tests/server/otel_client.py"), "http",
                          f"http://127.0.0.1:{server.ports['otlp-http']}/v1/traces", "gzip", "20"],
                         capture_output=True, text=True, timeout=120, check=True)
    sent = json.loads(out.stdout)
    want = {slow: {s["trace_id"] for s in sent if s["service"] == "shop" and s["kind"] == "server"},
            failed: {s["trace_id"] for s in sent if s["service"] == "cart" and s["status"] == "error"}, none: set()}
    assert [len(want[t]) for t in (slow, failed, none)] == [20, 2, 0]
    for task, traces in want.items():
        assert {r["trace_id"] for r in requests(server, task)} == traces
    t = show(server, slow)
    assert t["counts"]["spans"] == 60 and t["counts"]["wanted"] == 20 and t["reasons"]["slow"] == 20
    [r, *_] = requests(server, failed, limit=1)
    [of] = [s for s in sent if s["span_id"] == r["span_id"]]
    assert r["endpoint"] == "Cart/Add" and r["reason"] == "error" and r["status"] == "error" and r["outcome"] == "waiting"
    assert abs(r["duration_ms"] - (of["end_ns"] - of["start_ns"]) / 1e6) < 1e-5
    agent = Agent(server)
    tasks, keeps = agent.ask()
    assert {t["id"] for t in tasks} == {slow, failed, none} and len(keeps) == 22
    assert {k["trace"].hex() for k in keeps if k["task"] == failed} == want[failed]
    assert {(k["start_ns"], k["end_ns"]) for k in keeps if k["task"] == failed} == {
        (s["start_ns"], s["end_ns"]) for s in sent if s["trace_id"] in want[failed] and s["service"] == "cart"}
    agent.ask([(slow, "armed", {5: 2, 6: 2, 7: 1000})], [(k, "kept", 7) for k in keeps if k["task"] == slow])
    assert {(r["outcome"], r["host"], r["samples"]) for r in requests(server, slow)} == {("kept", "h1", 7)}
    t = show(server, slow)
    assert t["outcomes"] == {"kept": 20, "partly": 0, "evicted": 0, "waiting": 0, "nobody": 0}
    assert t["agents"][0]["state"] == "armed" and t["agents"][0]["kept"] == 20
    assert "no_endpoint" in why(server, none) and "GET /buy/{id}" in why(server, none)["no_endpoint"]


def send_time(server, *samples):
    """A profile as an agent's of kept requests: (number of the trace, number of the span, task, state, ms)."""
    now = time.time() * 1000
    send_profile(server, [(trace, span, "", ms, {"task": task, "state": state}, now) for trace, span, task, state, ms in samples], "time")


def test_kept_requests_have_their_time_by_state(server):
    """The time of a request is that of its spans; another task's profile of the same request is not added."""
    one, other = add(server)["id"], add(server)["id"]
    send(server, (1, "GET /a", 50), (2, "GET /b", 20))
    send_time(server, (1, 1, one, "running", 30), (1, 1, one, "lock", 15.5), (1, 1, other, "running", 29), (2, 2, one, "running", 20),
              # Of a span that did not arrive: it is of the trace's only request to the service.
              (1, 99, one, "running", 4.5))
    assert [(r["trace_id"][-1], r["states"]) for r in requests(server, one)] == [
        ("2", {"running": 20}), ("1", {"running": 34.5, "lock": 15.5})]
    assert [r["states"] for r in requests(server, other)] == [{}, {"running": 29}]
    # Of one trace, the spans too; 99 is none of them.
    answer = check(server.get(f"/api/v1/tasks/{one}/requests", trace=f"{1:032x}"), "/api/v1/tasks/{id}/requests").json()
    assert [r["trace_id"][-1] for r in answer["requests"]] == ["1"]
    assert answer["requests"][0]["states"] == {"running": 34.5, "lock": 15.5}
    assert answer["spans"] == [{"span_id": f"{1:016x}", "states": {"running": 30, "lock": 15.5}}]
    assert "spans" not in server.get(f"/api/v1/tasks/{one}/requests").json()
    for trace, status in (("x", 400), (f"{3:032x}", 404)):
        assert check(server.get(f"/api/v1/tasks/{one}/requests", trace=trace), "/api/v1/tasks/{id}/requests").status == status


def test_killed_servers_forget_nothing(serve, tmp_path):
    """kill -9 between the decision and the agent's question, and between the outcome and the next."""
    server = serve(directory=tmp_path / "s")
    task = add(server, endpoint="GET /*", min_ms=10, control=0.5)["id"]
    agent = Agent(server)
    agent.ask([(task, "armed", {5: 1, 6: 1})])
    send(server, *[(n, "GET /a", n) for n in range(1, 31)])
    before = show(server, task)
    server.stop(signal.SIGKILL)
    again = serve(directory=tmp_path / "s")
    after = show(again, task)
    for member in ("spec", "counts", "reasons", "outcomes", "log", "endpoints", "start", "end", "state"):
        assert after[member] == before[member], member
    agent.server = again
    tasks, keeps = agent.ask([(task, "armed", {5: 1, 6: 1})])
    assert [t["id"] for t in tasks] == [task]
    assert {k["trace"] for k in keeps if k["reason"] == "slow"} == {n.to_bytes(16, "big") for n in range(10, 31)}
    assert len(keeps) == before["counts"]["wanted"]
    agent.ask(kept=[(k, "kept", 1) for k in keeps])
    again.stop(signal.SIGKILL)
    third = serve(directory=tmp_path / "s")
    assert show(third, task)["outcomes"]["kept"] == len(keeps)
    assert {r["outcome"] for r in requests(third, task)} == {"kept"}
    agent.server = third
    assert agent.ask()[1] == []
    # A decision after the restarts comes behind the cursor of those before.
    send(third, (100, "GET /b", 50))
    assert [k["trace"] for k in agent.ask()[1]] == [(100).to_bytes(16, "big")]


def test_every_decision_survives_a_kill_under_load(serve, tmp_path):
    """Senders of spans, all of them wanted; the server is killed while they send. What was acknowledged is asked for."""
    server = serve(directory=tmp_path / "s")
    task = add(server, max_requests=0, max_per_minute=0)["id"]
    acknowledged = []

    def sender(base):
        for n in range(base, base + 100):
            try:
                send(server, (n, "GET /a", 1))
            except OSError:
                return
            acknowledged.append(n)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        running = [pool.submit(sender, 1000 * k) for k in range(1, 5)]
        wait_for(lambda: len(acknowledged) > 100, "no spans")
        server.process.kill()
        [r.result() for r in running]
    server.process.wait()
    n = len(acknowledged)
    assert n < 400
    again = serve(directory=tmp_path / "s")
    keeps = Agent(again).ask()[1]
    assert {int.from_bytes(k["trace"], "big") for k in keeps} >= set(acknowledged)
    assert len(keeps) <= n + 4 and {k["task"] for k in keeps} == {task}


def test_why_there_is_no_data(server):
    """Each reason, as a user sees it."""
    task = add(server, endpoint="GET /buy", min_ms=100)["id"]
    assert set(why(server, task)) == {"no_agent", "no_span"}
    agent = Agent(server)
    agent.ask([(task, "absent", {})])
    assert "service.name is shop" in why(server, task)["no_process"]
    agent.ask([(task, "silent", {5: 2})])
    assert "the 2 processes of shop" in why(server, task)["no_context"]
    agent.ask([(task, "refused", {4: "no BPF"})])
    assert "h1 cannot do it: no BPF" in why(server, task)["refused"]
    agent.ask([(task, "armed", {5: 2, 6: 2, 9: 3})])
    assert set(why(server, task)) == {"no_span", "lost"}
    send(server, (1, "GET /sell", 500), (2, "GET /by", 500))
    assert "'GET /buy' has come; shop has GET /by, GET /sell" in why(server, task)["no_endpoint"]
    send(server, (3, "GET /buy", 53))
    assert "1 request took less than 100 ms: the slowest so far took 53.000 ms" in why(server, task)["below_threshold"]
    send(server, (4, "GET /buy", time.time_ns() - 10**10, 500, False))
    assert "outside" not in why(server, task) and show(server, task)["counts"]["outside"] == 1
    later = add(server, start=int(time.time() * 1000) + 3600_000)
    assert later["state"] == "queued" and set(why(server, later["id"])) == {"not_started"}
    full = add(server, max_requests=1)["id"]
    send(server, (5, "GET /buy", 5), (6, "GET /buy", 5))
    assert "no room for 1 request: 1 in all" in why(server, full)["budget_spent"]
    percentile = add(server, percentile=99)["id"]
    send(server, *[(n, "GET /buy", 1) for n in range(10, 20)])
    assert "needs 200 requests to an endpoint within some minutes: the busiest had about" in why(server, percentile)["learning"]
    [k] = [k for k in agent.ask()[1] if k["task"] == full]
    agent.ask(kept=[(k, "evicted", 0)])
    assert "dropped all of 1 request" in why(server, full)["dropped"]
    early = add(server)["id"]
    send(server, (7, "GET /buy", time.time_ns() - 10**10, 500, False))
    assert "1 request began before the task" in why(server, early)["outside"]


def test_an_agent_has_its_own_budget(server):
    """Of the host that a span names, if its agent takes the task."""
    task = add(server, max_per_agent=2)["id"]
    for host in ("h1", "h2"):
        Agent(server, host).ask([(task, "armed", {5: 1, 6: 1})])
    for k, host in enumerate(("h1", "h2", "elsewhere")):
        send(server, *[(10 * k + n, "GET /a", 1) for n in range(1, 6)], host=host)
    counts = show(server, task)["counts"]
    assert (counts["wanted"], counts["budget"]) == (2 + 2 + 5, 3 + 3)
    assert "2 of an agent" in why(server, task)["budget_spent"]


@pytest.mark.slow
def test_agents_that_are_away_and_requests_that_nobody_had(server):
    task = add(server)["id"]
    Agent(server).ask([(task, "armed", {5: 1, 6: 1})])
    send(server, (1, "GET /a", 1))
    wait_for(lambda: "nobody" in why(server, task), "nobody had it", 50)
    said = why(server, task)
    assert "no agent had anything of 1 request" in said["nobody"]
    assert re.search(r"1 agent is away: h1 last asked [34]\d s ago", said["agent_away"])
    assert requests(server, task)[0]["outcome"] == "nobody"


def test_rights(serve, tokens, tmp_path):  # noqa: F811
    """A reader sees tasks, an admin changes them, and the audit log has who it was."""
    log = tmp_path / "audit"
    server = serve("--token-file", tokens, "--audit-log", log)
    body, kind = b'{"service": "shop"}', {"Content-Type": "application/json"}
    for token, status in ((READER, 403), (WRITER, 403), (ADMIN, 200)):
        a = server.request("POST", "/api/v1/tasks", body, {**kind, **bearer(token)})
        assert check(a, "/api/v1/tasks", "post").status == status
    task = a.json()["id"]
    for token, status in ((READER, 200), (WRITER, 403), (ADMIN, 200)):
        for path in ("", "/{id}", "/{id}/requests"):
            a = server.get("/api/v1/tasks" + path.replace("{id}", task), bearer(token))
            assert check(a, "/api/v1/tasks" + path).status == status
    for method, path in (("POST", "/{id}/cancel"), ("DELETE", "/{id}")):
        for token, status in ((READER, 403), (WRITER, 403), (ADMIN, 200), (ADMIN, 200 if method == "POST" else 404)):
            a = server.request(method, f"/api/v1/tasks{path}".replace("{id}", task), None, bearer(token))
            assert check(a, f"/api/v1/tasks{path}", method.lower()).status == status
    assert [json.loads(line)["action"] for line in log.read_text().splitlines()] == [
        "task-added", "task-cancelled", "task-cancelled", "task-deleted"]


@pytest.mark.parametrize("body,says", [
    (b"", "'[' or '{'"), (b"[]", "a task is an object"), (b"{}", "service: of which?"),
    (b'{"service": "a", "minimum": 3}', "a task has no 'minimum'; it has"),
    (b'{"service": "a", "service": "b"}', "duplicate"), (b'{"service": "a", "endpoint": "~["}', "not a regular expression"),
    (b'{"service": "a", "percentile": 20}', "percentile: 50 to 99.9"), (b'{"service": "' + b"x" * 300 + b'"}', "at most 255 bytes")])
def test_wrong_tasks_are_refused(server, body, says):
    a = server.request("POST", "/api/v1/tasks", body, {"Content-Type": "application/json"})
    assert check(a, "/api/v1/tasks", "post").status == 400 and says in a.json()["message"], a.text
    assert server.get("/api/v1/tasks").json()["tasks"] == []


def test_unknown_tasks(server):
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/requests")):
        for task in ("00000000", "..", "x" * 500, "a%2fb"):
            a = server.request(method, f"/api/v1/tasks/{task}{path}")
            assert a.status == 404, f"{method} {task}{path}: {a.status}"
    assert server.get("/api/v1/tasks/a/b").status == 404
    assert server.request("POST", "/api/v1/tasks/a").status == 405


def test_metrics(server):
    task = add(server)["id"]
    agent = Agent(server)
    send(server, (1, "GET /a", 1))
    [keep] = agent.ask()[1]
    agent.ask(kept=[(keep, "kept", 1)])
    text = server.get("/metrics").text
    for line in ('culprit_tasks{state="running"} 1', "culprit_tasks_agents 1", "culprit_tasks_questions_total 2",
                 'culprit_tasks_requests_total{is="wanted"} 1', 'culprit_tasks_kept_total{outcome="kept"} 1'):
        assert line in text, line
    assert task


# ---- culprit ctl ----

@pytest.fixture
def ctl(executable, server):
    def run(*args, status=0):
        r = subprocess.run([executable, "ctl", *args, "--server", f"http://127.0.0.1:{server.port}"],
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == status, r.stderr
        return r.stdout if status == 0 else r.stderr

    return run


def test_ctl(server, ctl):
    assert ctl("task", "list") == "no tasks\n"
    task = ctl("task", "add", "shop", "GET /a*", "--min", "100ms", "--for", "10m", "--period", "1ms", "--control", "0.01",
               "--only", "running", "--max", "7", "--errors").strip()
    t = show(server, task)
    assert t["spec"] == {"service": "shop", "endpoint": "GET /a*", "start": 0, "duration_ms": 600000, "min_ms": 100,
                         "percentile": None, "errors": True, "control": 0.01, "period_us": 1000, "floor_us": 100,
                         "running": True, "waiting": False, "max_requests": 7, "max_per_agent": 0, "max_per_minute": 60}
    later = ctl("task", "add", "cart", "--start", "1h", "--for", "0", "--percentile", "99").strip()
    assert abs(show(server, later)["start"] - time.time() * 1000 - 3600_000) < 60_000
    rows = [re.split("  +", line) for line in ctl("task", "list").splitlines()]
    assert rows[0] == ["ID", "STATE", "SERVICE", "ENDPOINT", "KEEPS", "WANTED", "DELIVERED", "END"]
    assert rows[1][:-1] == [later, "queued", "cart", "(all)", "above p99", "0", "0"] and rows[1][-1] == "-"
    assert rows[2][:-1] == [task, "running", "shop", "GET /a*", "from 100 ms, errors, 1 % of others", "0", "0"]
    agent = Agent(server)
    agent.ask([(task, "armed", {5: 2, 6: 2})])
    send(server, (1, "GET /ab", 250), (2, "GET /b", 250))
    agent.ask(kept=[(k, "kept", 3) for k in agent.ask()[1]])
    text = ctl("task", "show", task)
    for part in ("service    shop", "1 wanted", "1 other", "outcomes   1 kept", "slowest    250.000 ms", "created", "h1: samples the"):
        assert part in text, text
    [head, row] = ctl("task", "requests", task).splitlines()
    assert head.split() == ["TRACE", "START", "MS", "STATUS", "REASON", "OUTCOME", "HOST", "ENDPOINT"]
    assert row.startswith("0" * 31 + "1  ") and row.endswith("250.000  ok      slow    kept     h1    GET /ab")
    assert json.loads(ctl("task", "requests", task, "--json", "--limit", "1"))["task"] == task
    assert ctl("task", "cancel", task) == ""
    assert show(server, task)["state"] == "cancelled"
    assert ctl("task", "delete", task) == ""
    assert f"there is no task {task}" in ctl("task", "show", task, status=1)


@pytest.mark.parametrize("args,says", [
    (["task"], "give task add SERVICE"), (["task", "add"], "give task add"), (["task", "show", "../x"], "not the id of a task"),
    (["task", "add", "shop", "--min", "100"], "'100' is not a time"), (["task", "add", "shop", "--only", "both"], "running or waiting"),
    (["task", "add", "shop", "--control", "2"], "--control takes a number from 0 to 1")])
def test_ctl_wrong_usage(ctl, args, says):
    assert says in ctl(*args, status=2)


def test_ctl_tells_what_the_server_says(ctl):
    assert "not a regular expression" in ctl("task", "add", "shop", "~(", status=1)


# ---- cost ----

def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_tasks_do_not_slow_ingest(serve, capsys):
    """Sends 40,000 spans in requests of 500 to servers without tasks, with ten that want none of the spans, and with ten that
    want some of each request. Prints the server's CPU time for a span; time is no test."""
    told = []
    for name, specs in (("no task", []), ("ten tasks", [{"min_ms": 500, "endpoint": "~GET /.*" if k % 2 else "GET /a*"} for k in range(10)]),
                        ("ten that decide", [{"min_ms": 500, "control": 0.01} for k in range(10)])):
        server = serve()
        for spec in specs:
            add(server, **spec)
        now = time.time_ns()
        bodies = [spans([(n * 500 + k + 1, f"GET /a{k % 20}", now, 1 + k % 7, False) for k in range(500)]) for n in range(80)]
        begin = cpu_seconds(server)
        for body in bodies:
            assert server.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"}).status == 200
        told.append(f"{name}: {(cpu_seconds(server) - begin) / 40000 * 1e6:.2f} µs")
        for counts in [t["counts"] for t in server.get("/api/v1/tasks").json()["tasks"]]:
            assert counts["spans"] == 40000 == sum(counts.values()) - counts["spans"]
    with capsys.disabled():
        print("\nCPU time of a span, " + ", ".join(told))


# ---- a full disk ----

def test_spans_that_the_store_refuses_are_seen(on_disk):  # noqa: F811
    """The sender repeats a refused span for as long as the disk is full; by then agents have dropped the request."""
    server, disk = on_disk(20)
    task = add(server)["id"]
    disk.run("dd", "if=/dev/zero", f"of={disk.directory}/ballast", "bs=1M", "count=18")
    body, kind = spans([(1, "GET /a", time.time_ns(), 5, False)]), {"Content-Type": "application/x-protobuf"}
    assert [server.request("POST", "/v1/traces", body, kind).status for _ in range(2)] == [503, 503]
    [keep] = Agent(server).ask()[1]
    assert keep["trace"] == (1).to_bytes(16, "big")
    disk.run("rm", disk.directory / "ballast")
    assert server.request("POST", "/v1/traces", body, kind).status == 200
    counts = show(server, task)["counts"]
    assert (counts["wanted"], counts["repeated"]) == (1, 2)
    # The file of the task is written again as soon as that is possible.
    path = disk.directory / "store" / f"task-{task}.json"
    wait_for(lambda: '"requests":[[' in disk.run("cat", path), "no file")
