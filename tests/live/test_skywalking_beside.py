# SPDX-License-Identifier: Apache-2.0
"""One service, two profilers, one `culprit up`: requests that are slow by their first 50 ms, profiled by SkyWalking's agent, which
begins when a request has taken 100 ms, and kept by culprit, which decides when it is over (profiled_twice.py)."""

import json
import os
import socket
import subprocess
import sys
import urllib.request

import pytest

from test_kept_requests import post
from test_up import up

HERE = os.path.dirname(os.path.abspath(__file__))
GET = os.path.join(os.path.dirname(HERE), "server/get_skywalking.py")
SERVICE, THRESHOLD_MS = "profiled-twice", 100


@pytest.fixture(scope="session")
def skywalking_python():
    r = subprocess.run([sys.executable, GET, "python"], capture_output=True, text=True, timeout=900)
    if r.returncode:
        pytest.skip(r.stderr.strip())
    return r.stdout.strip()


class Service:
    def __init__(self, python, backend, library):
        self.process = subprocess.Popen(
            [python, os.path.join(HERE, "profiled_twice.py"), backend, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "OTEL_SERVICE_NAME": SERVICE})
        self.port = int(self.process.stdout.readline() or 0)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as r:
            return json.loads(r.read())

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.stdout.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def send_spans(u, requests):
    spans = [{"traceId": r["trace"], "spanId": r["span"], "name": "/first", "kind": 2, "startTimeUnixNano": str(r["begin"]),
              "endTimeUnixNano": str(r["end"])} for r in requests]
    resource = {"attributes": [{"key": k, "value": {"stringValue": v}} for k, v in (
        ("service.name", SERVICE), ("host.name", socket.gethostname()))]}
    post(u, "/v1/traces", {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]})


def times(u, trace, task):
    """{function: milliseconds in it or below it} of a request that a task kept."""
    out = {}
    for group in json.loads(u.get(f"/api/v1/requests/{trace}/analysis", task=task, lines="false"))["groups"]:
        above = {0: ()}
        for row in group["rows"]:
            name = row["function"].rsplit(".", 1)[-1]
            above[row["id"]] = (*above[row["parent"]], name)
            if name not in above[row["parent"]]:
                out[name] = out.get(name, 0) + row["total_ns"] / 1e6
    return out


def test_what_a_threshold_of_skywalking_misses(culprit, skywalking_python, place):
    port = free_port()
    library = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(culprit))), "context/libculprit-context.so.0")
    with up(culprit, f"{place}/store", "--listen-skywalking", f"127.0.0.1:{port}") as u:
        service = Service(skywalking_python, f"127.0.0.1:{port}", library)
        try:
            tasks = {"culprit": {"service": SERVICE, "period_us": 1000}, "skywalking": {"service": f"{SERVICE}-skywalking", "max_per_agent": 9}}
            tasks = {k: post(u, "/api/v1/tasks", {"endpoint": "/first", "min_ms": THRESHOLD_MS, **v})["id"] for k, v in tasks.items()}

            def states():
                return [[a["state"] for a in json.loads(u.get(f"/api/v1/tasks/{t}"))["agents"] if a["state"] != "absent"] for t in tasks.values()]

            assert u.wait_for(lambda: states() == [["armed"], ["armed"]], 90), [u.get(f"/api/v1/tasks/{t}") for t in tasks.values()]
            # SkyWalking's agent is ready some moments after it has asked.
            u.wait_for(lambda: False, 3)
            requests = [service.get("/first") for _ in range(12)]
            send_spans(u, requests)

            def kept(profiler, n):
                got = json.loads(u.get(f"/api/v1/tasks/{tasks[profiler]}/requests"))["requests"]
                got = {r["trace_id"] for r in got if r["outcome"] == "kept"}
                return got if len(got) >= n else None

            ours = u.wait_for(lambda: kept("culprit", len(requests)), 90)
            theirs = u.wait_for(lambda: kept("skywalking", 3), 90)
        finally:
            service.end()
        assert ours == {r["trace"] for r in requests}, u.get(f"/api/v1/tasks/{tasks['culprit']}")
        assert theirs, u.get(f"/api/v1/tasks/{tasks['skywalking']}")
        both = [r for r in requests if r["skywalking"] in theirs]
        assert len(both) >= 3
        for r in both:
            took = (r["end"] - r["begin"]) / 1e6
            seen = times(u, r["trace"], tasks["culprit"])
            assert 45 < seen["first_50_ms"] < took - 60, (seen, r)
            missed = times(u, r["skywalking"], tasks["skywalking"])
            print(f"of {took:.0f} ms culprit gives first_50_ms {seen['first_50_ms']:.1f} and the_rest {seen['the_rest']:.1f}; SkyWalking "
                  f"{missed.get('first_50_ms', 0):.1f} and {missed['the_rest']:.1f}, and has not sampled {missed['[not sampled]']:.1f}")
            assert "first_50_ms" not in missed and missed["the_rest"] > 0 and missed["[not sampled]"] >= THRESHOLD_MS - 10, (missed, r)
        assert u.end()[0] == 0
