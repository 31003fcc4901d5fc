# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's SDKs, as they send: types, labels and totals of what culprit stores, against the bytes on the wire."""

import gzip
import http.server
import json
import os
import subprocess
import threading
import time
import types
import urllib.parse

import pytest

import sdks
from conftest import Server, peer
from test_grafana import SERVICE, pprof_stacks
from test_ingest import folded
from wire import decode, packed

SECONDS = 4
# A JVM on a busy machine needs some seconds until its agent runs.
JAVA_SECONDS = 12
PASSED_ON = ("content-type", "content-encoding", "authorization")


class Tee:
    """Passes each request on to the server, unchanged, and keeps it."""

    def __init__(self, server):
        self.requests, self.failures = [], []
        tee = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def body(self):
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                out = b""
                while n := int(self.rfile.readline(), 16):
                    out += self.rfile.read(n)
                    self.rfile.readline()
                self.rfile.readline()
                return out

            def do_POST(self):
                body = self.body()
                headers = {k: v for k, v in self.headers.items() if k.lower() in PASSED_ON}
                tee.requests.append((self.path, headers, body))
                a = server.request("POST", self.path, body, headers)
                if a.status != 200:
                    tee.failures.append((self.path, a.status, a.text))
                self.send_response(a.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def own(executable, tmp_path_factory):
    s = Server(executable, [], str(tmp_path_factory.mktemp("sdks")))
    yield s
    s.stop()


@pytest.fixture(scope="module")
def sent(own):
    """sent(SDK) lets the SDK's program run, once; its service has the name of the SDK."""
    done = {}

    def send(sdk):
        if sdk not in done:
            tee = Tee(own)
            command, environment = getattr(sdks, sdk)(
                tee.url, f"sdk-{sdk}", JAVA_SECONDS if sdk == "java" else SECONDS)
            begin = time.time()
            r = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
            tee.stop()
            assert r.returncode == 0, r.stderr[-2000:]
            assert tee.requests and not tee.failures, tee.failures
            done[sdk] = types.SimpleNamespace(service=f"sdk-{sdk}", start=int(begin * 1000) - 60_000,
                                              end=int(time.time() * 1000) + 60_000, requests=tee.requests)
        return done[sdk]

    return send


def part_of(kind, body):
    """The part named "profile" of a form."""
    boundary = b"--" + kind.partition("boundary=")[2].strip('"').encode()
    for part in body.split(boundary):
        head, _, rest = part.partition(b"\r\n\r\n")
        if b'name="profile"' in head:
            return rest.removesuffix(b"\r\n")
    return b""


def pprof_files(requests):
    for path, headers, body in requests:
        headers = {k.lower(): v for k, v in headers.items()}
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        if path.startswith("/push.v1."):
            files = [decode(s)[1][0] for series in decode(body).get(1, []) for s in decode(series).get(2, [])]
        elif query.get("format") == ["jfr"]:
            files = []
        else:
            kind = headers.get("content-type", "")
            files = [part_of(kind, body) if kind.startswith("multipart/") else body]
        yield from (gzip.decompress(f) if f[:2] == b"\x1f\x8b" else f for f in files if f)


def sums_of(requests):
    """The values of all pprof files in the requests, read here: {(type, unit): sum}."""
    out = {}
    for f in map(decode, pprof_files(requests)):
        keys = []
        for t in map(decode, f[1]):
            keys.append(tuple(f[6][t.get(n, [0])[0]].decode() for n in (1, 2)))
        for s in map(decode, f.get(2, [])):
            values = packed(b"".join(s[2])) if isinstance(s[2][0], bytes) else s[2]
            for key, value in zip(keys, values):
                out[key] = out.get(key, 0) + value
    return out


def ask(server, method, body):
    a = server.request("POST", SERVICE + method, json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert a.status == 200, a.text
    return a.json()


def range_of(run, **more):
    return {"start": run.start, "end": run.end, **more}


def types_of(server, run):
    sets = ask(server, "Series", range_of(run, matchers=['{service_name="%s"}' % run.service], labelNames=["__profile_type__"]))
    return {s["labels"][0]["value"] for s in sets.get("labelsSet", [])}


def stacks_of(server, run, type_):
    """The stacks of a service: value by names from the root on."""
    return pprof_stacks(ask(server, "SelectMergeProfile", range_of(
        run, profileTypeID=type_, labelSelector='{service_name="%s"}' % run.service)))


CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
SAMPLES = "process_cpu:samples:count:cpu:nanoseconds"
# The number of samples, which a recording of Java's and Rust's does not have as a type. culprit counts them.
COUNTED = {"java": {SAMPLES}}
SDKS = {
    "go": ({CPU, SAMPLES, *(f"{g}:{t}:contentions:count" for g in ("block", "mutex") for t in ("contentions:count", "delay:nanoseconds"))},
           "main.compute"),
    "java": ({CPU, "memory:alloc_in_new_tlab_bytes:bytes:space:bytes", "memory:alloc_in_new_tlab_objects:count:space:bytes",
              "mutex:contentions:count:mutex:count", "mutex:delay:nanoseconds:mutex:count",
              "block:contentions:count:block:count", "block:delay:nanoseconds:block:count"}, "Contended.compute"),
    "node": ({"wall:samples:count:wall:nanoseconds", "wall:wall:nanoseconds:wall:nanoseconds", "wall:cpu:nanoseconds:wall:nanoseconds",
              "memory:inuse_objects:count:inuse_space:bytes", "memory:inuse_space:bytes:inuse_space:bytes"}, "burn"),
    "python": ({CPU}, "burn"),
    "rust": ({CPU}, "burn"),
}


@pytest.mark.slow
@pytest.mark.parametrize("sdk", SDKS)
def test_types_labels_and_totals(sent, own, sdk):
    run, (expected, function) = sent(sdk), SDKS[sdk]
    assert types_of(own, run) == expected | COUNTED.get(sdk, set())
    names = {"env": "test", "service_name": run.service}
    sets = ask(own, "Series", range_of(run, matchers=['{service_name="%s"}' % run.service]))["labelsSet"]
    for labels in ({p["name"]: p["value"] for p in s["labels"]} for s in sets):
        assert {k: labels.get(k) for k in names} == names, labels
        # A label of each start of the program would be a series of each start.
        assert "__session_id__" not in labels
    stacks = stacks_of(own, run, CPU if CPU in expected else "wall:cpu:nanoseconds:wall:nanoseconds")
    assert any(function in f for stack in stacks for f in stack), stacks
    assert sum(stacks.values()) < 3e9 * JAVA_SECONDS
    totals = {}
    for type_ in expected:
        key = tuple(type_.split(":")[1:3])
        totals[key] = totals.get(key, 0) + sum(stacks_of(own, run, type_).values())
    # A state is not summed up over time. A recording of Java's is no pprof file: test_async_profiler.py has its totals.
    sums = {k: v for k, v in sums_of(run.requests).items() if not k[0].startswith("inuse")}
    assert (sdk == "java" and not sums) or sums == {k: v for k, v in totals.items() if not k[0].startswith("inuse")}


@pytest.mark.slow
def test_go(server):
    program = peer("pyroscope_sdk", "main.go", "go.mod")
    subprocess.run([program, f"http://127.0.0.1:{server.port}", "sdk", str(SECONDS)], check=True, timeout=120)
    types = {t["name"]: t for t in server.get("/api/v1/types", query='{service_name="sdk"}').json()["types"]}
    waits = {"block:delay:nanoseconds": "main.receive", "mutex:delay:nanoseconds": "main.hold"}
    for prefix, function in waits.items():
        name = next(t for t in types if t.startswith(prefix))
        of = {stack: ns / 1e9 for stack, ns in folded(server, "sdk", name).items() if function in stack}
        # One goroutine waits for the channel all the time; of the two with the mutex one has it, the other waits.
        assert 0.6 * SECONDS < sum(of.values()) < 1.6 * SECONDS, (name, of)
    assert any(t.startswith("block:contentions:count") for t in types) and any(
        t.startswith("mutex:contentions:count") for t in types)
    assert not any("main.receive" in stack for stack in folded(server, "sdk", next(
        t for t in types if t.startswith("mutex:delay"))))
    # A label of each start of the program would be a series of each start.
    labels = {n["name"] for n in server.get("/api/v1/labels").json()["labels"]}
    assert "service.name" in labels and not any(n.startswith("__") for n in labels), labels
