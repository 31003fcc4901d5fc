# SPDX-License-Identifier: Apache-2.0
"""Policies and settings: spans and hand-made agents (tasks_agent.py), `culprit ctl`, rights, and servers that are killed."""

import json
import re
import signal
import struct
import subprocess
import time

import pytest

import wire
from conftest import wait_for
from tasks_agent import PATH, spans
from test_api import check
from test_net import ADMIN, READER, WRITER, bearer, tokens  # noqa: F401

QUANTITIES = ["", "cpu", "threads", "load"]
JSON = {"Content-Type": "application/json"}


def add(server, **spec):
    a = server.request("POST", "/api/v1/policies", json.dumps({"service": "shop", **spec}).encode(), JSON)
    assert check(a, "/api/v1/policies", "post").status == 200, a.text
    return a.json()["id"]


def show(server, policy):
    a = check(server.get(f"/api/v1/policies/{policy}"), "/api/v1/policies/{id}")
    assert a.status == 200, a.text
    return a.json()


def tasks(server):
    return check(server.get("/api/v1/tasks"), "/api/v1/tasks").json()["tasks"]


def send(server, number, *of, service="shop"):
    """Sends requests (endpoint, ms, whether it failed) that end now."""
    now = time.time_ns()
    body = spans([(number + k, endpoint, now - int(ms * 1e6), ms, failed) for k, (endpoint, ms, failed) in enumerate(of)], service)
    a = server.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
    assert a.status == 200, a.text


class Agent:
    """Measures what a test says."""

    def __init__(self, server, host="h1"):
        self.server, self.host = server, host

    def ask(self, *watched, settings=None, headers=None):
        """watched: (policy, last, [fired]), each a dictionary of at, value, over, pid, comm, service. Returns (watches, settings)."""
        def measured(m):
            return wire.message(_1=m["at"], _2=float(m["value"]), _3=m.get("over", 1), _4=m.get("pid", 7), _5=m.get("comm", "java"),
                                _6=m.get("service", "shop"))
        body = wire.message(_1=self.host, _2=f"id-{self.host}", _3="test", _4=1)
        for policy, last, fired in watched:
            body += wire.field(8, wire.message(_1=policy, _2=1, _3=1, _4=measured(last), _5=[measured(f) for f in fired]))
        if settings:
            body += wire.field(9, wire.message(**settings)) + wire.field(10, 1)
        a = self.server.request("POST", PATH, body, {"Content-Type": "application/x-protobuf", **(headers or {})})
        assert a.status == 200, a.text
        out = wire.decode(a.body)
        self.next_ms = out[2][0]
        watches = [{"id": w[1][0].decode(), "service": w[2][0].decode(), "quantity": QUANTITIES[w[3][0]], "threshold": w[4][0],
                    "window_ms": w[5][0], "count": w[6][0], "of": w[7][0]} for w in map(wire.decode, out.get(5, []))]
        return watches, wire.decode(out[6][0]) if 6 in out else {}


def test_an_error_rate_fires_once(server):
    """Below the threshold nothing happens; over it a task comes once, with its cause, and then the policy is silent."""
    policy = add(server, cause="errors", threshold=20, endpoint="GET /*", window_ms=1000, min_requests=5, silence_ms=600000,
                 task={"duration_ms": 60000, "max_requests": 7})
    number = 1
    end = time.monotonic() + 3
    while time.monotonic() < end:  # 10 % fail, and all of another endpoint
        send(server, number, *[("GET /a", 5, k == 0) for k in range(10)], *[("POST /a", 5, True)] * 10)
        number += 20
        time.sleep(0.2)
    assert not tasks(server) and show(server, policy)["verdicts"]["below"] >= 2
    begin = time.time()
    while not tasks(server):
        assert time.time() < begin + 15, show(server, policy)
        send(server, number, *[("GET /a", 5, k < 3) for k in range(10)])
        number += 10
        time.sleep(0.2)
    assert time.time() - begin < 8  # a window, and the rest of one
    end = time.monotonic() + 3
    while time.monotonic() < end:
        send(server, number, *[("GET /a", 5, True)] * 10)
        number += 10
        time.sleep(0.2)
    [task] = tasks(server)
    assert (task["spec"]["service"], task["spec"]["endpoint"], task["spec"]["errors"]) == ("shop", "GET /a", True)
    assert (task["spec"]["duration_ms"], task["spec"]["max_requests"]) == (60000, 7)
    cause = task["cause"]
    assert (cause["policy"], cause["cause"], cause["threshold"], cause["endpoint"]) == (policy, "errors", 20, "GET /a")
    assert 20 <= cause["value"] <= 30 and begin * 1000 - 1000 < cause["at"] < time.time() * 1000
    assert re.match(r"of \d+ requests to GET /a of shop, there failed 2\d\.\d % of requests, and at least 20\.0 % of requests within 1 s",
                    cause["text"]) or "30.0 %" in cause["text"]
    p = show(server, policy)
    assert [f["task"] for f in p["fired"]] == [task["id"]] and p["fired"][0]["cause"] == cause
    assert p["verdicts"]["silence"] >= 1 and p["verdicts"]["fired"] == 1
    assert [s["endpoint"] for s in p["seen"]] == ["GET /a"]
    text = "\n".join(line["text"] for line in p["log"])
    assert "below the threshold" in text and "fired, and added a task" in text and "silent for" in text


def test_agents_measure(server):
    policy = add(server, cause="cpu", threshold=150, window_ms=2000, count=3, of=5)
    agent = Agent(server)
    [watch], _ = agent.ask()
    assert watch == {"id": policy, "service": "shop", "quantity": "cpu", "threshold": 150, "window_ms": 2000, "count": 3, "of": 5}
    assert agent.next_ms == 2000
    at = int(time.time() * 1000)
    agent.ask((policy, {"at": at, "value": 40, "over": 0}, []))
    assert show(server, policy)["seen"][0]["verdict"] == "below" and not tasks(server)
    fired = {"at": at + 1, "value": 187.5, "over": 3}
    for _ in range(3):  # the answer is lost, and the agent tells it again
        agent.ask((policy, fired, [fired]))
    [task] = tasks(server)
    assert task["cause"]["value"] == 187.5 and task["cause"]["host"] == "h1" and task["cause"]["pid"] == 7
    # Its processes publish no context: the policy says so.
    body = wire.message(_1="h1", _2="id-h1", _3="test", _4=1, _6=wire.message(_1=task["id"], _2=1, _3=4, _5=1))
    assert server.request("POST", PATH, body, {"Content-Type": "application/x-protobuf"}).status == 200
    wait_for(lambda: "publish no trace context" in json.dumps(show(server, policy)["log"]), "nothing is said", 20)
    # A deleted policy is measured no more; its task stays.
    assert check(server.request("DELETE", f"/api/v1/policies/{policy}"), "/api/v1/policies/{id}", "delete").status == 200
    assert agent.ask((policy, fired, [fired]))[0] == [] and len(tasks(server)) == 1
    assert tasks(server)[0]["cause"]["policy"] == policy
    assert server.get(f"/api/v1/policies/{policy}").status == 404


def test_killed_servers_forget_nothing(serve, tmp_path):
    server = serve(directory=tmp_path / "s")
    policy = add(server, cause="threads", threshold=10, silence_ms=600000)
    body = json.dumps({"host": "web-*", "hz": 49, "budget": 0.25, "waits": False}).encode()
    assert server.request("POST", "/api/v1/settings", body, JSON).status == 200
    fired = {"at": int(time.time() * 1000), "value": 20}
    Agent(server).ask((policy, fired, [fired]))
    before, [task] = show(server, policy), tasks(server)
    server.stop(signal.SIGKILL)
    again = serve(directory=tmp_path / "s")
    after = show(again, policy)
    for member in ("spec", "created", "fired"):
        assert after[member] == before[member], member
    assert tasks(again)[0]["cause"] == task["cause"]
    fired = {"at": int(time.time() * 1000), "value": 20}
    [watch], _ = Agent(again).ask((policy, fired, [fired]))
    assert watch["id"] == policy and len(tasks(again)) == 1
    assert show(again, policy)["verdicts"]["silence"] == 1
    assert Agent(again, "web-1").ask()[1] == {1: [49], 2: [0.25], 3: [2]}


def test_settings_of_hosts(server):
    def set_(**rule):
        a = server.request("POST", "/api/v1/settings", json.dumps(rule).encode(), JSON)
        assert check(a, "/api/v1/settings", "post").status == 200, a.text
        return a.json()["rules"]

    assert Agent(server).ask()[1] == {}
    set_(host="*", hz=10, budget=1)
    set_(host="web-*", hz=20)
    set_(host="web-1", waits=True)
    assert Agent(server, "db").ask()[1] == {1: [10], 2: [1.0]}
    assert Agent(server, "web-2").ask()[1] == {1: [20], 2: [1.0]}
    assert Agent(server, "web-1").ask(settings={"_1": 20, "_2": 1.0, "_3": 1})[1] == {1: [20], 2: [1.0], 3: [1]}
    told = check(server.get("/api/v1/settings"), "/api/v1/settings").json()
    [web1] = [a for a in told["agents"] if a["host"] == "web-1"]
    assert (web1["hz"], web1["budget"], web1["waits"], web1["takes_settings"]) == (20, 1, True, True)
    [h1] = [a for a in told["agents"] if a["host"] == "h1"]
    assert (h1["hz"], h1["budget"], h1["waits"], h1["takes_settings"]) == (0, None, None, False)
    # A member alone, null, and a rule that sets nothing.
    assert [r["hz"] for r in set_(host="web-*", budget=2) if r["host"] == "web-*"] == [20]
    assert {r["host"] for r in set_(host="web-*", hz=None, budget=None)} == {"*", "web-1"}
    a = server.request("DELETE", "/api/v1/settings?host=web-1")
    assert check(a, "/api/v1/settings", "delete").status == 200
    assert [r["host"] for r in a.json()["rules"]] == ["*"]
    assert server.request("DELETE", "/api/v1/settings?host=web-1").status == 404
    for rule, says in (({"hz": 1}, "host: of which"), ({"host": "a", "hz": 1001}, "hz: "), ({"host": "a", "hz": 1.5}, "hz: "),
                       ({"host": "a", "budget": 11}, "budget: "), ({"host": "a", "budget": 0.001}, "budget: "),
                       ({"host": "a", "rate": 1}, "a rule of settings has no 'rate'")):
        a = server.request("POST", "/api/v1/settings", json.dumps(rule).encode(), JSON)
        assert check(a, "/api/v1/settings", "post").status == 400 and says in a.text, a.text


def test_rights(serve, tokens, tmp_path):  # noqa: F811
    log = tmp_path / "audit"
    server = serve("--token-file", tokens, "--audit-log", log)
    body = b'{"service": "shop", "cause": "cpu", "threshold": 1}'
    for token, status in ((READER, 403), (WRITER, 403), (ADMIN, 200)):
        a = server.request("POST", "/api/v1/policies", body, {**JSON, **bearer(token)})
        assert check(a, "/api/v1/policies", "post").status == status
        s = server.request("POST", "/api/v1/settings", b'{"host": "*", "hz": 5}', {**JSON, **bearer(token)})
        assert check(s, "/api/v1/settings", "post").status == status
    policy = a.json()["id"]
    for token, status in ((READER, 200), (WRITER, 403), (ADMIN, 200)):
        for path in ("/api/v1/policies", "/api/v1/policies/{id}", "/api/v1/settings"):
            assert check(server.get(path.replace("{id}", policy), bearer(token)), path).status == status
    for token, status in ((READER, 403), (WRITER, 403), (ADMIN, 200), (ADMIN, 404)):
        assert server.request("DELETE", f"/api/v1/policies/{policy}", None, bearer(token)).status == status
        assert server.request("DELETE", "/api/v1/settings?host=*", None, bearer(token)).status == status
    assert [json.loads(line)["action"] for line in log.read_text().splitlines()] == [
        "policy-added", "settings-set", "policy-deleted", "settings-unset"]


def test_hostile_agents(server):
    """Values that no process has fire nothing, and neither do other policies' ids and services."""
    policy = add(server, cause="cpu", threshold=150)
    errors = add(server, cause="errors", threshold=1)
    now = int(time.time() * 1000)
    nan = struct.unpack("<d", struct.pack("<Q", 0x7ff8 << 48))[0]
    for m in ({"at": now, "value": nan}, {"at": now, "value": float("inf")}, {"at": now, "value": 1}, {"at": 2**63, "value": 200},
              {"at": now, "value": 200, "service": "cart"}, {"at": now, "value": 200, "service": "x" * 300}):
        Agent(server).ask((policy, m, [m] * 20))
    m = {"at": now, "value": 200}
    Agent(server).ask((errors, m, [m]), ("00000000", m, [m]), ("", m, [m]))
    assert not tasks(server)
    Agent(server).ask((policy, m, [m]))
    assert len(tasks(server)) == 1


def test_limits(server):
    for _ in range(64):
        add(server, cause="load", threshold=5)
    a = server.request("POST", "/api/v1/policies", b'{"service": "a", "cause": "cpu", "threshold": 1}', JSON)
    assert a.status in (413, 503, 400) and "64 policies at most" in a.text
    assert len(Agent(server).ask()[0]) == 64


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
    assert ctl("policy", "list") == "no policies\n"
    cpu = ctl("policy", "create", "shop", "cpu", "150%", "--window", "2s", "--count", "3", "--of", "5", "--silence", "1m",
              "--for", "2m", "--period", "1ms", "--max", "9", "--only", "running").strip()
    latency = ctl("policy", "create", "*", "latency", "0.2s", "GET /a", "--latency-percentile", "95", "--min-requests", "3",
                  "--max-per-day", "0").strip()
    spec = show(server, cpu)["spec"]
    assert {k: spec[k] for k in ("service", "cause", "threshold", "window_ms", "count", "of", "silence_ms", "max_per_day")} == {
        "service": "shop", "cause": "cpu", "threshold": 150, "window_ms": 2000, "count": 3, "of": 5, "silence_ms": 60000, "max_per_day": 10}
    assert {k: spec["task"][k] for k in ("duration_ms", "period_us", "max_requests", "running", "waiting", "min_ms")} == {
        "duration_ms": 120000, "period_us": 1000, "max_requests": 9, "running": True, "waiting": False, "min_ms": 0}
    spec = show(server, latency)["spec"]
    assert (spec["threshold"], spec["percentile"], spec["endpoint"], spec["min_requests"], spec["task"]["min_ms"]) == (200, 95, "GET /a", 3, 200)
    rows = [re.split("  +", line) for line in ctl("policy", "list").splitlines()]
    assert rows[0] == ["ID", "SERVICE", "ENDPOINT", "FIRES", "SILENCE", "TASKS", "LAST"]
    assert rows[1] == [latency, "*", "GET /a", "latency p95 200 ms, 1 of 1 × 10 s", "1200 s", "0", "-"]
    assert rows[2] == [cpu, "shop", "-", "cpu 150 %, 3 of 5 × 2 s", "60 s", "0", "-"]
    fired = {"at": int(time.time() * 1000), "value": 187.5, "over": 3}
    Agent(server).ask((cpu, fired, [fired]))
    [task] = tasks(server)
    text = ctl("policy", "show", cpu)
    cause = "process 7 (java) of shop on h1 used 187.5 % of a CPU, and at least 150.0 % of a CPU in 3 of 5 windows of 2 s"
    for part in ("fires      cpu 150 %, 3 of 5 × 2 s", "verdicts   1 fired", f"task {task['id']}: {cause}", "h1    shop", "fired    7 java"):
        assert part in text, text
    assert f"cause      {cause} (policy {cpu})" in ctl("task", "show", task["id"])
    assert ctl("policy", "delete", cpu) == ""
    assert f"there is no policy {cpu}" in ctl("policy", "show", cpu, status=1)
    assert ctl("agent", "list").startswith("nothing is set\n\nAGENT")
    assert ctl("agent", "set", "--frequency", "49", "--off-cpu", "no") == ""
    assert ctl("agent", "set", "web-*", "--budget", "0.5") == ""
    rows = [re.split("  +", line.strip()) for line in ctl("agent", "list").splitlines()]
    assert rows[:3] == [["SET FOR", "HZ", "BUDGET", "OFF-CPU", "BY"], ["*", "49", "-", "no"], ["web-*", "-", "0.5 %", "-"]]
    assert ctl("agent", "unset") == "" and ctl("agent", "unset", "web-*") == ""
    assert ctl("agent", "list").startswith("nothing is set\n")


@pytest.mark.parametrize("args,says", [
    (["policy", "create", "shop", "cpu"], "policy create SERVICE CAUSE"), (["policy", "create", "shop", "cpu", "much"], "not a threshold such as 150"),
    (["policy", "create", "shop", "latency", "fast"], "such as 200ms"), (["policy", "create", "shop", "cpu", "1", "--window", "5"], "not a time"),
    (["policy", "create", "shop", "cpu", "1", "--kind", "pprof"], "keep requests"),
    (["agent", "set"], "give --frequency, --budget or --off-cpu"), (["agent", "set", "--off-cpu", "maybe"], "yes or no"),
    (["agent", "set", "--frequency", "1001"], "--frequency takes"), (["policy", "show", "../x"], "not the id of a policy")])
def test_ctl_wrong_usage(ctl, args, says):
    assert says in ctl(*args, status=2)


def test_ctl_tells_what_the_server_says(ctl):
    assert "cause: one of cpu" in ctl("policy", "create", "shop", "heat", "1", status=1)
