# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's query and push API, called by Pyroscope's own Go client (connect-go): by Connect in protocol buffers and JSON,
by gRPC on the HTTP port and on the gRPC port, by grpc-web; compressed or not. The client is built through the Go module proxy."""

import base64
import gzip
import json
import subprocess
import time

import pytest

# Builds a Go program when it is not there yet.
pytestmark = pytest.mark.slow

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
SAMPLES = "process_cpu:samples:count:cpu:nanoseconds"
FOLDED = "main;work;inner 30\nmain;work 5\nmain;idle 10\n"
TICK = 10_000_000  # ns of a sample at 100 Hz


WAYS = {"proto": [], "json": ["-json"], "proto-gzip": ["-gzip"], "grpc": ["-protocol", "grpc"], "grpc-gzip": ["-protocol", "grpc", "-gzip"],
        "grpc-port": ["-protocol", "grpc"], "grpc-web": ["-protocol", "grpc-web"]}


@pytest.fixture(params=WAYS)
def ask(request, pyroscope_client):
    """ask(server, METHOD, ARGUMENTS) returns the answer; ask.fails() returns the error."""

    def run(server, method, arguments, token=None):
        port = server.ports["otlp-grpc"] if request.param == "grpc-port" else server.port
        r = subprocess.run([pyroscope_client, *WAYS[request.param], *(["-token", token] if token else []),
                            f"http://127.0.0.1:{port}", method, json.dumps(arguments)],
                           capture_output=True, text=True, timeout=60)
        return r

    def ask(server, method, arguments, token=None):
        r = run(server, method, arguments, token)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)

    ask.fails = lambda *a, **k: (lambda r: (r.returncode, r.stderr))(run(*a, **k))
    return ask


@pytest.fixture
def filled(server):
    """A server with samples of two services from ten minutes ago; .start and .end in ms enclose them."""
    at = int(time.time()) - 600
    for service, env, text in (("shop", "prod", FOLDED), ("cart", "test", "main;other 7\n")):
        r = server.post("/ingest", text.encode(), name=f"{service}.cpu{{env={env}}}", format="folded",
                        sampleRate=100, **{"from": at, "until": at + 10})
        assert r.status == 200, r.text
    server.start, server.end = (at - 60) * 1000, (at + 60) * 1000
    return server


def bars(graph, width=4):
    """(path of names, numbers of the bar without distance and name) of each bar of a flame graph."""
    out, above = {}, []
    for depth, level in enumerate(graph["levels"]):
        values = [int(v) for v in level["values"]]
        here, x = [], 0
        for i in range(0, len(values), width):
            bar = values[i:i + width]
            begin = x + bar[0]
            x = begin + bar[1]
            over = next((p for b, e, p in above if b <= begin and x <= e), ())
            path = over + (graph["names"][bar[-1]],)
            assert depth == 0 or over, f"{path} lies under nothing"
            here.append((begin, x, path))
            out[path] = tuple(bar[1:-1])
        above = here
    return out


def test_types(ask, filled):
    types = ask(filled, "ProfileTypes", {"start": filled.start, "end": filled.end})["profileTypes"]
    assert {t["ID"] for t in types} == {CPU, SAMPLES}
    assert next(t for t in types if t["ID"] == CPU) == {
        "ID": CPU, "name": "process_cpu", "sampleType": "cpu", "sampleUnit": "nanoseconds",
        "periodType": "cpu", "periodUnit": "nanoseconds"}
    assert ask(filled, "ProfileTypes", {"start": 1, "end": 1000}) == {}


def test_labels(ask, filled):
    span = {"start": filled.start, "end": filled.end}
    names = ask(filled, "LabelNames", span)["names"]
    assert {"service_name", "env", "__profile_type__"} <= set(names) and names == sorted(names)
    assert ask(filled, "LabelValues", {"name": "service_name", **span})["names"] == ["cart", "shop"]
    some = {"name": "service_name", "matchers": ['{env="prod"}'], **span}
    assert ask(filled, "LabelValues", some)["names"] == ["shop"]
    both = {"name": "service_name", "matchers": ['{env=~"prod|test"}', '{env=~"te.*"}'], **span}
    assert ask(filled, "LabelValues", both)["names"] == ["cart"]
    assert ask(filled, "LabelValues", {"name": "__profile_type__", **span})["names"] == sorted([CPU, SAMPLES])


def test_series(ask, filled):
    span = {"start": filled.start, "end": filled.end}
    sets = ask(filled, "Series", {"labelNames": ["service_name", "__profile_type__"], **span})["labelsSet"]
    got = {tuple(pair["value"] for pair in s["labels"]) for s in sets}  # sorted by name
    assert got == {(t, s) for s in ("shop", "cart") for t in (CPU, SAMPLES)}
    sets = ask(filled, "Series", {"matchers": ['{service_name="shop", __profile_type__="%s"}' % CPU], **span})
    assert len(sets["labelsSet"]) == 1
    pairs = {p["name"]: p["value"] for p in sets["labelsSet"][0]["labels"]}
    assert pairs["service_name"] == "shop" and pairs["env"] == "prod" and pairs["__name__"] == "process_cpu"


def test_stacktraces(ask, filled):
    q = {"profileTypeID": CPU, "labelSelector": '{service_name="shop"}', "start": filled.start,
         "end": filled.end}
    graph = ask(filled, "SelectMergeStacktraces", q)["flamegraph"]
    assert int(graph["total"]) == 45 * TICK and int(graph["maxSelf"]) == 30 * TICK
    assert bars(graph) == {
        ("total",): (45 * TICK, 0), ("total", "main"): (45 * TICK, 0),
        ("total", "main", "work"): (35 * TICK, 5 * TICK), ("total", "main", "idle"): (10 * TICK, 10 * TICK),
        ("total", "main", "work", "inner"): (30 * TICK, 30 * TICK)}
    # Nodes that the limit leaves out become one bar with a note.
    graph = ask(filled, "SelectMergeStacktraces", {**q, "maxNodes": 3})["flamegraph"]
    got = bars(graph)
    assert got[("total", "main")] == (45 * TICK, 0)
    assert got[("total", "main", "other")] == (10 * TICK, 10 * TICK)
    nothing = ask(filled, "SelectMergeStacktraces", {**q, "labelSelector": '{service_name="none"}'})
    assert int(nothing.get("flamegraph", {}).get("total", 0)) == 0
    code, text = ask.fails(filled, "SelectMergeStacktraces", {**q, "labelSelector": '{service_name='})
    assert code == 1 and text.startswith("invalid_argument"), text
    span = ask(filled, "SelectMergeSpanProfile", {**q, "spanSelector": ["9a517183f26a089d"]})
    assert int(span["flamegraph"].get("total", 0)) == 0
    code, text = ask.fails(filled, "SelectMergeSpanProfile", {**q, "spanSelector": ["x"]})
    assert code == 1 and text.startswith("invalid_argument"), text


def test_pprof(ask, filled, executable, tmp_path):
    q = {"profileTypeID": CPU, "labelSelector": "{}", "start": filled.start, "end": filled.end}
    p = ask(filled, "SelectMergeProfile", q)
    strings = p["stringTable"]
    total = sum(int(v) for s in p["sample"] for v in s["value"][-1:])
    assert total == 52 * TICK
    assert {"main", "work", "inner", "idle", "other"} <= set(strings)
    assert [strings[int(p["sampleType"][-1][k])] for k in ("type", "unit")] == ["cpu", "nanoseconds"]
    again = ask(filled, "SelectMergeStacktraces", {**q, "format": "PROFILE_FORMAT_PPROF"})
    assert sum(int(s["value"][-1]) for s in again["pprof"]["profile"]["sample"]) == total


def test_select_series(ask, filled):
    q = {"profileTypeID": CPU, "labelSelector": "{}", "start": filled.start, "end": filled.end, "step": 30}
    all_in_one = ask(filled, "SelectSeries", q)["series"]
    assert [sum(p["value"] for p in s["points"]) for s in all_in_one] == [52 * TICK]
    by = ask(filled, "SelectSeries", {**q, "groupBy": ["service_name"]})["series"]
    assert {s["labels"][0]["value"]: sum(p["value"] for p in s["points"]) for s in by} == {
        "shop": 45 * TICK, "cart": 7 * TICK}
    for s in by:
        assert all(filled.start <= int(p["timestamp"]) <= filled.end for p in s["points"])
    one = ask(filled, "SelectSeries", {**q, "groupBy": ["service_name"], "limit": 1})["series"]
    assert [s["labels"][0]["value"] for s in one] == ["shop"]
    cells = ask(filled, "SelectHeatmap", {**q, "step": 60, "queryType": "HEATMAP_QUERY_TYPE_INDIVIDUAL"})["series"]
    assert sum(n for slot in cells[0]["slots"] for n in slot["counts"]) == 2
    code, text = ask.fails(filled, "SelectSeries", {**q, "step": 0})
    assert code == 1 and text.startswith("invalid_argument"), text


def test_diff(ask, filled):
    def side(service):
        return {"profileTypeID": CPU, "labelSelector": '{service_name="%s"}' % service,
                "start": filled.start, "end": filled.end}

    graph = ask(filled, "Diff", {"left": side("shop"), "right": side("cart")})["flamegraph"]
    assert (int(graph["leftTicks"]), int(graph["rightTicks"])) == (45 * TICK, 7 * TICK)
    names = graph["names"]
    got = {}
    for level in graph["levels"]:
        v = [int(x) for x in level["values"]]
        for i in range(0, len(v), 7):
            got[names[v[i + 6]]] = (v[i + 1], v[i + 2], v[i + 4], v[i + 5])
    assert got == {"total": (45 * TICK, 0, 7 * TICK, 0), "main": (45 * TICK, 0, 7 * TICK, 0),
                   "work": (35 * TICK, 5 * TICK, 0, 0), "inner": (30 * TICK, 30 * TICK, 0, 0),
                   "idle": (10 * TICK, 10 * TICK, 0, 0), "other": (0, 0, 7 * TICK, 7 * TICK)}


def test_stats(ask, filled, serve):
    s = ask(filled, "GetProfileStats", {})
    assert s["dataIngested"] and filled.start < int(s["oldestProfileTime"]) <= int(s["newestProfileTime"])
    assert ask(serve(), "GetProfileStats", {}).get("dataIngested", False) is False
    a = ask(filled, "AnalyzeQuery", {"query": "%s{}" % CPU, "start": filled.start, "end": filled.end})
    assert int(a["queryImpact"]["totalQueriedSeries"]) == 2


def test_push(ask, server, convert):
    pprof = convert("app;main;pushed 12\n", ".pb.gz")
    labels = [{"name": "__name__", "value": "process_cpu"}, {"name": "service_name", "value": "pusher"},
              {"name": "region", "value": "eu"}, {"name": "__delta__", "value": "false"}]
    raw = {"series": [{"labels": labels, "samples": [
        {"rawProfile": base64.b64encode(b).decode(), "ID": "734FD599-6865-419E-9475-932762D8F469"}
        for b in (pprof, gzip.decompress(pprof).replace(b"pushed", b"nested"))]}]}
    assert ask(server, "Push", raw) == {}
    rows = server.get("/api/v1/top", query='{service_name="pusher", region="eu"}').json()["rows"]
    assert {r["name"]: r["self"] for r in rows if r["self"]} == {"pushed": 12, "nested": 12}
    labels = {n["name"] for n in server.get("/api/v1/labels").json()["labels"]}
    assert "region" in labels and not any(n.startswith("__") for n in labels)
    raw["series"][0]["samples"][0]["rawProfile"] = base64.b64encode(b"\xff\xff\xff").decode()
    code, text = ask.fails(server, "Push", raw)
    assert code == 1 and text.startswith("invalid_argument"), text


def test_roles(ask, serve, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("read reader-token-0123456789\nwrite writer-token-0123456789\n")
    tokens.chmod(0o600)
    s = serve("--token-file", tokens)
    assert ask(s, "ProfileTypes", {}, token="reader-token-0123456789") == {}
    code, text = ask.fails(s, "ProfileTypes", {}, token="writer-token-0123456789")
    assert code == 1 and text.startswith("permission_denied"), text
    code, text = ask.fails(s, "ProfileTypes", {})
    assert code == 1 and text.startswith("unauthenticated"), text
    code, text = ask.fails(s, "Push", {"series": []}, token="reader-token-0123456789")
    assert code == 1 and text.startswith("permission_denied"), text
    assert "token-0123456789" not in s.stderr
