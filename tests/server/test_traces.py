# SPDX-License-Identifier: Apache-2.0
"""Spans from real senders (OpenTelemetry's SDK for Python, the Collector), and what is answered about
them and the samples that were taken in them, against what was sent."""

import gzip
import json
import os
import subprocess
import time

import pytest

from conftest import TOP, otlp_collector
from test_api import check, get

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def client(otel_sdk):
    """client(PROTOCOL, ENDPOINT, COMPRESSION, N): the spans that it says it sent."""

    def run(protocol, endpoint, compression="none", n=20):
        out = subprocess.run([otel_sdk, os.path.join(TOP, "tests/server/otel_client.py"), protocol, endpoint,
                              compression, str(n)], capture_output=True, text=True, timeout=120)
        assert out.returncode == 0, out.stderr
        return json.loads(out.stdout)

    return run


@pytest.fixture
def collector(collector_path, tmp_path):
    started = []

    def start(exporter):
        c = otlp_collector(collector_path, tmp_path, exporter, "traces")
        started.append(c[0])
        return c[1:]

    yield start
    for p in started:
        p.terminate()
        p.wait(60)


def close(ms, ns):
    """A double of milliseconds since 1970 says microseconds."""
    return abs(ms - ns / 1e6) < 0.001


def assert_stored(server, sent):
    """Each trace as it was sent, span for span; and found by what it is."""
    for trace in {s["trace_id"] for s in sent}:
        got = {s["span_id"]: s for s in get_trace(server, trace)["spans"]}
        want = {s["span_id"]: s for s in sent if s["trace_id"] == trace}
        assert got.keys() == want.keys()
        for span_id, w in want.items():
            g = got[span_id]
            assert (g.get("parent_id"), g["name"], g["service"], g["kind"], g["status"], g.get("message", "")) == \
                (w["parent_id"], w["name"], w["service"], w["kind"], w["status"], w["message"])
            assert close(g["start_ms"], w["start_ns"])
            assert abs(g["duration_ms"] * 1e6 - (w["end_ns"] - w["start_ns"])) < 1
            assert g["root"] == (w["kind"] == "server")
    for service, endpoint in (("shop", "GET /buy/{id}"), ("cart", "Cart/Add")):
        mine = [s for s in sent if s["service"] == service and s["kind"] == "server"]
        found = get(server, "/api/v1/traces", service=service, endpoint=endpoint, limit=1000)["traces"]
        assert {s["span_id"] for s in found} == {s["span_id"] for s in mine}
        durations = [s["duration_ms"] for s in found]
        assert durations == sorted(durations, reverse=True)
        failed = get(server, "/api/v1/traces", service=service, status="error", limit=1000)["traces"]
        assert {s["span_id"] for s in failed} == {s["span_id"] for s in mine if s["status"] == "error"}
    first = get_trace(server, sent[0]["trace_id"])["spans"][0]
    assert first["attributes"]["list"] == '[1,"two",true]' and first["attributes"]["number"] == "1.5"
    assert first["tid"] > 0


def get_trace(server, trace, **parameters):
    a = check(server.get(f"/api/v1/traces/{trace}", **parameters), "/api/v1/traces/{trace_id}")
    assert a.status == 200, a.text
    return a.json()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_opentelemetrys_sdk(server, client, protocol, compression):
    endpoint = (f"http://127.0.0.1:{server.ports['otlp-grpc']}" if protocol == "grpc" else
                f"http://127.0.0.1:{server.ports['otlp-http']}/v1/traces")
    assert_stored(server, client(protocol, endpoint, compression))


@pytest.mark.parametrize("exporter", [
    'otlp_grpc: {endpoint: "127.0.0.1:GRPC", tls: {insecure: true}, compression: gzip}',
    'otlp_grpc: {endpoint: "127.0.0.1:GRPC", tls: {insecure: true}, compression: zstd}',
    'otlp_http: {endpoint: "http://127.0.0.1:HTTP", compression: zstd}',
    'otlp_http: {endpoint: "http://127.0.0.1:HTTP", encoding: json, compression: gzip}',
])
def test_through_a_collector(server, client, collector, exporter):
    for name in ("grpc", "http"):
        exporter = exporter.replace(name.upper(), str(server.ports["otlp-" + name]))
    grpc, _, log = collector(exporter)
    sent = client("grpc", f"http://127.0.0.1:{grpc}")
    end = time.monotonic() + 60
    while server.get("/api/v1/stats").json()["store"]["spans"] < len(sent):
        assert time.monotonic() < end, log.read_text(errors="replace")
        time.sleep(0.05)
    assert_stored(server, sent)


# ---- by hand ----

def span(trace=TRACE, span=SPAN, start=None, ms=5, **more):
    start = start or int(time.time() * 1000) - 60000
    return {"traceId": trace, "spanId": span, "name": "GET /", "kind": 2, "startTimeUnixNano": str(start * 10**6),
            "endTimeUnixNano": str((start + ms) * 10**6), **more}


def export(server, *spans, service="shop", encoding=None):
    body = json.dumps({"resourceSpans": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
        "scopeSpans": [{"spans": list(spans)}]}]}).encode()
    headers = {"Content-Type": "application/json"}
    if encoding:
        headers["Content-Encoding"] = encoding
        body = gzip.compress(body)
    return check(server.request("POST", "/v1/traces", body, headers), "/v1/traces", "post")


def test_partial_success(server):
    a = export(server, span(), span(span="00" * 8), span(trace="aa"), span(span="01" * 8, startTimeUnixNano="0"))
    assert a.status == 200
    assert a.json()["partialSuccess"]["rejectedSpans"] == "3"
    assert "span id" in a.json()["partialSuccess"]["errorMessage"]
    assert [s["span_id"] for s in get_trace(server, TRACE)["spans"]] == [SPAN]


def test_the_same_bytes_are_stored_once(server):
    one = span()
    assert export(server, one).json() == export(server, one, encoding="gzip").json() == {}
    assert server.get("/api/v1/stats").json()["store"]["spans"] == 1


def test_what_is_wrong_is_told(server):
    for body in (b"{", b'{"resourceSpans":7}', b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xy"}]}]}]}'):
        a = server.request("POST", "/v1/traces", body, {"Content-Type": "application/json"})
        assert a.status == 400 and a.json()["message"]
    a = server.request("POST", "/v1/traces", b"\xff\xff", {"Content-Type": "application/x-protobuf"})
    assert a.status == 400 and a.body[:1] == b"\x08"
    assert server.request("POST", "/v1/traces", b"", {"Content-Type": "text/plain"}).status == 415
    for trace in ("xy", TRACE[:-1], TRACE + "0"):
        assert check(server.get(f"/api/v1/traces/{trace}"), "/api/v1/traces/{trace_id}").status == 400
    assert check(server.get(f"/api/v1/traces/{TRACE}"), "/api/v1/traces/{trace_id}").status == 404


def test_roles(serve, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("read aaaaaaaaaaaaaaaaaaaaaaaa\nwrite bbbbbbbbbbbbbbbbbbbbbbbb\n")
    s = serve("--token-file", tokens)
    read, write = ({"Authorization": "Bearer " + c * 24, "Content-Type": "application/json"} for c in "ab")
    assert s.request("POST", "/v1/traces", b"{}", write).status == 200
    assert s.request("POST", "/v1/traces", b"{}", read).status == 403
    assert s.get("/api/v1/traces", headers=read).status == 200
    assert s.get("/api/v1/traces", headers=write).status == 403
    assert s.get("/api/v1/traces").status == 401


def test_killed_spans_are_there_again(serve, tmp_path):
    """What was acknowledged is there after kill -9."""
    acknowledged = []
    for i in range(5):
        s = serve(directory=tmp_path / "s")
        for k in range(10):
            number = i * 10 + k + 1
            assert export(s, span(trace=f"{number:032x}", span=f"{number:016x}")).status == 200
            acknowledged.append(f"{number:016x}")
        s.process.kill()
        s.process.wait(10)
    s = serve(directory=tmp_path / "s")
    found = get(s, "/api/v1/traces", limit=1000)["traces"]
    assert sorted(t["span_id"] for t in found) == acknowledged
