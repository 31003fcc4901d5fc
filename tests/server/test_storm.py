# SPDX-License-Identifier: Apache-2.0
# flake8: noqa: F811 (arguments have the names of imported fixtures)
"""Everything at once: agents, heavy questions, wrong tokens and times, requests that never end, a full disk, and a clock that
steps both ways. What was acknowledged is there, once; /healthz answers; the operator sees what happened."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import storm
from conftest import Server, wait_for
from test_connections import files  # noqa: F401
from test_durable import DAY, clock  # noqa: F401
from test_net import bearer
from test_store import Disk

TOKEN = "reader-and-writer-0123456789"
# The first form runs in CI, beside whatever the machine has to do: there an answer within a second is enough.
HEALTH_MS, HEALTH_MS_IN_CI = 100, 1000
# Of sessions: the server goes before the load, which is on other machines in life, and before other programs.
SERVER_NICE, LOAD_NICE = -15, 0


class Part:
    """A process of storm.py."""

    def __init__(self, part, **arguments):
        # The wall clock of the clients is right.
        env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "CLOCK_OFFSET")}
        self.process = subprocess.Popen([sys.executable, storm.__file__, part, json.dumps(arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
        storm.set_group_nice(self.process.pid, LOAD_NICE)

    def wait(self):
        assert self.process.stdout.readline() == "ready\n"

    def end(self, timeout=120):
        """What it has seen."""
        out, _ = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0
        return json.loads(out)


class Place:
    """A server whose store is on a disk of its own, to be started again."""

    def __init__(self, executable, directory, megabytes, tls):
        self.disk, self.tls, self.server = Disk(directory / "disk", megabytes), tls, None
        self.inside = directory / "inside"
        self.inside.write_text(f'#!/bin/sh\nexec setsid {" ".join(self.disk.inside)} {executable} "$@"\n')
        self.inside.chmod(0o755)

    def start(self, *args):
        self.server = Server(str(self.inside), [*args], str(self.disk.directory), self.tls)
        storm.set_group_nice(self.server.process.pid, SERVER_NICE)
        return self.server

    def fill(self):
        self.disk.run("sh", "-c", f"dd if=/dev/zero of={self.disk.directory}/ballast bs=64k 2>/dev/null; true")

    def free(self):
        self.disk.run("rm", self.disk.directory / "ballast")


@pytest.fixture
def place(executable, tmp_path):
    made = []

    def make(megabytes, tls):
        made.append(Place(executable, tmp_path, megabytes, tls))
        return made[-1]

    yield make
    for p in made:
        if p.server:
            p.server.stop()
        p.disk.end()


def stored(server):
    """{service: {stack: value}} of the samples of all agents."""
    out = {}
    for i in range(40):
        a = server.get("/api/v1/export", bearer(TOKEN), format="folded", query=f'{{service_name="service-{i}"}}',
                       **{"from": "now-1h"})
        assert a.status == 200, a.text
        lines = (line.rpartition(" ") for line in a.text.splitlines())
        if a.text:
            out[f"service-{i}"] = {stack.partition(";")[2]: int(value) for stack, _, value in lines}
    return out


# Events by their name in /api/v1/health: the families of /metrics that count them, and lines of the log.
EVENTS = {
    "wrong_tokens": ("culprit_net_wrong_tokens_total", ["its token is not in --token-file"]),
    "connections_evicted": ('culprit_net_connections_ended_total{listener="[^"]*",reason="evicted"}', ["closed for a newer one"]),
    "queue_full": ("culprit_net_queue_full_total", ["refused: too many requests wait"]),
    "memory": ("culprit_net_stopped_total{[^}]*memory\"}", ["stopped: (it needed more than half of|all requests together took) --request-memory"]),
    "writes_refused": ("culprit_store_refused_writes_total", ["writes refused: .*no space left", "the store can be written again"]),
    "samples_refused": ("culprit_ingest_refused_samples_total", ["refused: '(old|ahead)' sent samples that are .* check the clock"]),
    "old_rows_deleted": ("culprit_store_evicted_rows_total", ["deleted 4 rows of samples .* older than --max-age"]),
    "clock_steps": ("culprit_clock_steps_total", ["1.0 days later than expected", "1.0 days earlier than expected", "shows the expected time again"]),
}


def check_events(server, tls):
    health = server.get("/api/v1/health", bearer(TOKEN)).json()
    assert health["status"] == "ok"
    told = {e["name"]: e for e in health["events"]}
    text = server.get("/metrics", bearer(TOKEN)).text
    for name, (family, lines) in EVENTS.items():
        if name == "queue_full" and tls:
            continue # handshakes make the clients too slow for it
        counted = sum(float(v) for v in re.findall(rf"^{family}(?:{{.*}})? (\S+)$", text, re.M))
        assert counted > 0 and told[name]["count"] == counted, (name, counted, health)
        assert abs(told[name]["last"] / 1000 - time.time()) < 600, (name, health)
        for line in lines:
            assert re.search(line, server.stderr), (name, line, server.stderr)


def run_storm(place, clock, n, interval, beat, ca, half):
    """Returns what each part has seen."""
    s = place.server
    parts = {"probe": Part("probe", port=s.port, ca=ca),
             "agents": Part("agents", port=s.ports["otlp-grpc"], ca=ca, n=n, interval=interval, token=TOKEN),
             "questions": Part("questions", port=s.port, ca=ca, n=100, token=TOKEN),
             "strangers": Part("strangers", port=s.port, grpc=s.ports["otlp-grpc"], ca=ca, token=TOKEN, half=half)}
    try:
        return weather(place, clock, parts, beat)
    finally:
        for part in parts.values():
            part.process.kill()
            part.process.wait()


def weather(place, clock, parts, beat):
    """A clock ahead, then a full disk, then a clock behind, then room, then the right time."""
    s = place.server
    for part in parts.values():
        part.wait()

    def see(line):
        wait_for(lambda: re.search(line, s.stderr), line, 120)

    for change, line in ((lambda: clock.set(DAY), "later than expected"), (place.fill, "no space left"),
                         (lambda: clock.set(-DAY), "earlier than expected"), (None, None),
                         (place.free, "can be written again"), (lambda: clock.set(0), "shows the expected time again")):
        if change:
            change()
            see(line)
        else:
            assert s.get("/api/v1/health", bearer(TOKEN)).json()["status"].startswith("disk full: ")
        time.sleep(beat)
    return {name: part.end() for name, part in parts.items()}


@pytest.mark.parametrize("n, interval, beat, tls", [
    (300, 3, 2, False),
    pytest.param(300, 3, 5, False, marks=pytest.mark.slow),
    pytest.param(300, 3, 5, True, marks=pytest.mark.slow),
    pytest.param(10000, 60, 20, False, marks=pytest.mark.slow),
    pytest.param(10000, 60, 20, True, marks=pytest.mark.slow)])
def test_storm(place, clock, files, tmp_path, certificates, client_context, n, interval, beat, tls):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"admin {TOKEN}\n")
    tokens.chmod(0o600)
    p = place(400, client_context() if tls else None)
    places = max(1000, n + n // 10)
    args = ["--token-file", tokens, "--max-connections", places]
    if tls:
        args += ["--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key"]
    # The store has much to ask for, and rows that will be deleted for their age.
    s = p.start(*args)
    lines = b"".join(b"main;f%d;std::vector<element%d>;serialize%d %d\n" % (i % 97, i % 1009, i, i) for i in range(30000))
    old = int(time.time()) - 5 * 3600
    for text, times in ((b"a 1\nb 2\n", {"from": old, "until": old + 1}), (lines, {})):
        assert s.post("/ingest", text, bearer(TOKEN), name="heavy.cpu", **times).status == 200
    s.stop()
    s = p.start(*args, "--max-age", 1)
    seen = run_storm(p, clock, n, interval, beat, str(certificates / "ca.pem") if tls else None, places // 2 + 100)
    agents, probe = seen.pop("agents"), seen.pop("probe")
    sums, times = agents.pop("sums"), probe.pop("ms")
    print(f"/healthz: median {times[len(times) // 2]:.1f} ms, at most {times[-1]:.0f} ms of {len(times)}; {probe}; {agents}; {seen}")
    assert agents["told"] == [] and agents["acknowledged"] > n and agents["repeated"] > 0
    assert stored(s) == sums
    check_events(s, tls)
    s.stop(signal.SIGKILL)
    assert stored(p.start(*args)) == sums
    # Without the right to go before others, the probe and the server wait for the load, too.
    assert probe["failures"] == [] and times[-1] < (HEALTH_MS if probe["urgent"] and beat > 2 else HEALTH_MS_IN_CI), probe
