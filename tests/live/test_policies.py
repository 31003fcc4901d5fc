# SPDX-License-Identifier: Apache-2.0
"""Policies and settings with real processes: `culprit up` measures a service that idles, works and starts threads when the
test says so, and a server changes the rate in the middle of a program whose CPU time is known."""

import json
import os
import subprocess
import sys
import time
import urllib.request

import pytest

from test_agent import Agent, wait_for
from test_up import server, up, wait_until_all_is_stored

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
# Does what each line says, and answers when it has begun: "idle", "burn", "threads N".
PROGRAM = r"""
import os, sys, threading, time
os.nice(int(sys.argv[1]))
busy, end = threading.Event(), threading.Event()
def burn():
    while True:
        busy.wait()
        while busy.is_set():
            sum(range(1000))
threading.Thread(target=burn, daemon=True).start()
others = []
for line in sys.stdin:
    what, _, n = line.strip().partition(" ")
    if what == "burn":
        busy.set()
    elif what == "idle":
        busy.clear()
    else:
        end.set()
        [t.join() for t in others]
        end.clear()
        others = [threading.Thread(target=end.wait, daemon=True) for _ in range(int(n))]
        [t.start() for t in others]
    print("ok", flush=True)
"""


class Service:
    def __init__(self, name, nice=0):
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(nice)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OTEL_SERVICE_NAME": name})
        self.pid = self.process.pid

    def do(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def cpu_s(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def post(u, path, **body):
    request = urllib.request.Request(u.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        return json.load(r)


def policy(u, **spec):
    return post(u, "/api/v1/policies", **{"window_ms": 1000, "silence_ms": 600000, **spec})["id"]


def show(u, i):
    return json.loads(u.get(f"/api/v1/policies/{i}"))


def tasks_of(u, i):
    return [t for t in json.loads(u.get("/api/v1/tasks"))["tasks"] if t["cause"] and t["cause"]["policy"] == i]


def test_processes_and_machines_that_reach_a_threshold(culprit, place):
    """CPU as a rate over the window: the service idles for longer than it works. Each policy fires once, when its time has come."""
    with up(culprit, f"{place}/store") as u, Service("policy-shop", -19) as s:  # also on a machine that is busy
        cpu = policy(u, service="policy-shop", cause="cpu", threshold=20, count=2, of=3, task={"duration_ms": 60000, "period_us": 1000})
        threads = policy(u, service="policy-shop", cause="threads", threshold=30)
        many = policy(u, service="policy-shop", cause="threads", threshold=1000)
        low = policy(u, service="policy-shop", cause="load", threshold=0.01)
        high = policy(u, service="policy-shop", cause="load", threshold=10000)
        anyone = policy(u, service="*", cause="threads", threshold=30)
        elsewhere = policy(u, service="policy-cart", cause="cpu", threshold=1)
        begin = s.cpu_s()
        # It has to be seen before it can be measured: it runs a little, far below the threshold.
        assert u.wait_for(lambda: s.do("threads 3") or show(u, cpu)["seen"] and show(u, cpu)["seen"][0]["verdict"] == "below", 60), show(u, cpu)
        seen = show(u, cpu)["seen"][0]["windows"]
        assert u.wait_for(lambda: show(u, cpu)["seen"][0]["windows"] >= seen + 3, 20)
        idled = time.monotonic()
        assert not any(tasks_of(u, p) for p in (cpu, threads, high, elsewhere)), u.get("/api/v1/tasks")
        assert show(u, cpu)["seen"][0]["value"] < 20
        s.do("burn")
        assert u.wait_for(lambda: tasks_of(u, cpu), 20), show(u, cpu)
        # Not before two windows; the report comes up to 5 s later.
        assert 1 < time.monotonic() - idled < 12
        [task] = tasks_of(u, cpu)
        cause = task["cause"]
        assert (cause["cause"], cause["pid"], cause["threshold"], cause["unit"]) == ("cpu", s.pid, 20, "% of a CPU")
        assert 20 <= cause["value"] < 115 and cause["comm"].startswith("python"), cause
        assert task["spec"]["service"] == "policy-shop" and task["spec"]["period_us"] == 1000 and task["spec"]["duration_ms"] == 60000
        # An average over its life would be smaller than what it has used.
        assert (s.cpu_s() - begin) > 0
        assert u.wait_for(lambda: tasks_of(u, low), 20), show(u, low)
        assert tasks_of(u, low)[0]["cause"]["pid"] == s.pid
        s.do("idle")
        s.do("threads 40")
        assert u.wait_for(lambda: tasks_of(u, threads), 20), show(u, threads)
        cause = tasks_of(u, threads)[0]["cause"]
        assert cause["value"] == 42 and cause["pid"] == s.pid, cause  # the main thread, the one that burns, and 40
        # Others of this machine may have as many threads; they fire for themselves.
        assert u.wait_for(lambda: "policy-shop" in [t["spec"]["service"] for t in tasks_of(u, anyone)], 20), show(u, anyone)
        assert u.wait_for(lambda: show(u, threads)["verdicts"]["silence"] >= 2, 20), show(u, threads)
        assert [len(tasks_of(u, p)) for p in (cpu, threads, low, many, high, elsewhere)] == [1, 1, 1, 0, 0, 0]
        assert show(u, elsewhere)["seen"][0]["verdict"] == "no_process" and show(u, high)["seen"][0]["verdict"] == "below"
        # The service publishes no trace context: its task keeps nothing, and the policy says so.
        assert u.wait_for(lambda: "publish no trace context" in json.dumps(show(u, cpu)["log"]), 40), show(u, cpu)
        assert u.end()[0] == 0


def cpu_stored(u, service):
    """CPU time of the service in the store, in s."""
    text = u.get("/api/v1/export", format="folded", type=CPU, query=f'{{service.name="{service}"}}').decode()
    return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines()) / 1e9


def rate(u):
    agents = json.loads(u.get("/api/v1/settings"))["agents"]
    return agents[0]["hz"] if agents else None


def test_sums_stay_right_when_a_server_changes_the_rate(culprit, place):
    """A program that burns throughout; the rate goes from 19 to 97 to 31 Hz while it does."""
    with up(culprit, f"{place}/store", "--period", "1") as u, Service("rate-shop") as s:
        assert u.wait_for(lambda: rate(u) == 19, 60), u.get("/api/v1/settings")
        begin = s.cpu_s()
        s.do("burn")
        for hz in (97, 31):
            time.sleep(4)
            post(u, "/api/v1/settings", host="*", hz=hz)
            assert u.wait_for(lambda want=hz: rate(u) == want, 90), u.get("/api/v1/settings")
        time.sleep(4)
        s.do("idle")
        used = s.cpu_s() - begin
        wait_until_all_is_stored(u)
        stored = cpu_stored(u, "rate-shop")
        # Hundreds of samples at each rate on an idle machine, and what python needs to start.
        assert abs(stored - used) < 0.12 * used + 0.1, (stored, used)
        # The server sees the rate in the profiles, too.
        assert u.wait_for(lambda: {x["hz"] for x in json.loads(u.get("/api/v1/agents"))["agents"][0]["sources"]
                                   if x["event"] == "cpu-clock"} == {31}, 30), u.get("/api/v1/agents")
        assert u.end()[0] == 0


@pytest.mark.slow
def test_the_agents_own_limits_win(culprit, place):
    """A rate above its limit, waits that it was told to leave out, and no settings at all; a restarted agent gets them again."""
    with server(culprit, f"{place}/store") as u:
        export = f"otlp+http://127.0.0.1:{u.ports['otlp-http']}"
        post(u, "/api/v1/settings", host="*", hz=500, waits=True, budget=0.25)

        def told(**members):
            agents = json.loads(u.get("/api/v1/settings"))["agents"]
            return agents and all(agents[0][k] == v for k, v in members.items())

        with Agent(culprit, f"{place}/a", "--max-remote-frequency", "50", export=export, period=1) as agent:
            wait_for(lambda: told(hz=50, waits=False, budget=0.25, takes_settings=True), lambda: u.get("/api/v1/settings").decode() + agent.stderr)
            assert "at most 50 Hz (--max-remote-frequency)" in u.get("/api/v1/settings").decode()
            assert "it was started with --no-off-cpu" in u.get("/api/v1/settings").decode()
            # A reload keeps what the server has set; the own rate comes back when that is taken away.
            agent.reload(export=export, period=1, frequency=23)
            wait_for(lambda: told(hz=50), lambda: u.get("/api/v1/settings").decode() + agent.stderr)
            post(u, "/api/v1/settings", host="*", hz=None, waits=None, budget=None)
            wait_for(lambda: told(hz=23, budget=None, reason=""), lambda: u.get("/api/v1/settings").decode() + agent.stderr)
            agent.end()
        post(u, "/api/v1/settings", host="*", hz=77)
        with Agent(culprit, f"{place}/b", export=export, period=1) as agent:
            wait_for(lambda: told(hz=77), lambda: u.get("/api/v1/settings").decode() + agent.stderr)
            agent.end()
        with Agent(culprit, f"{place}/c", "--no-remote-settings", export=export, period=1) as agent:
            wait_for(lambda: told(hz=19, takes_settings=False), lambda: u.get("/api/v1/settings").decode() + agent.stderr)
            time.sleep(3)
            assert told(hz=19) and agent.metric("agent_reloads_total") == 0
            agent.end()
        assert u.end()[0] == 0
