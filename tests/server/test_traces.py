# SPDX-License-Identifier: Apache-2.0
"""Spans from real senders (OpenTelemetry's SDK for Python, the Collector): compares answers about spans, and about the
samples in them, with what was sent."""

import collections
import concurrent.futures
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
    """client(PROTOCOL, ENDPOINT, COMPRESSION, N) sends spans and returns them."""

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
    """Compares times. A double of milliseconds since 1970 has the precision of microseconds."""
    return abs(ms - ns / 1e6) < 0.001


def assert_stored(server, sent):
    """Checks that each trace is stored span for span, and that queries for its properties find it."""
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

def span(trace=TRACE, span=SPAN, start=None, ms=5, kind=2, name="GET /", **more):
    start = start or int(time.time() * 1000) - 60000
    return {"traceId": trace, "spanId": span, "name": name, "kind": kind, "startTimeUnixNano": str(start * 10**6),
            "endTimeUnixNano": str((start + ms) * 10**6), **more}


def resource(service, host=None):
    return {"attributes": [attribute("service.name", service), *([attribute("host.name", host)] if host else [])]}


def export(server, *spans, service="shop", host=None, encoding=None):
    body = json.dumps({"resourceSpans": [{
        "resource": resource(service, host),
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


def test_hostile_names_stay_names(server):
    """With any text in names of attributes, the answer is valid JSON."""
    names = ['quote"', "back\\slash", '","root":"', "}]", "line\nbreak", "c\u0001", "d\u202e"]
    export(server, span(attributes=[attribute(n, n) for n in names]))
    attributes = get_trace(server, TRACE)["spans"][0]["attributes"]
    clean = {n.replace("\n", " ").replace("\u0001", "").replace("\u202e", "") for n in names}
    assert attributes.keys() == clean and set(attributes.values()) == clean


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
    """Acknowledged spans are there after kill -9."""
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


# ---- samples of spans ----

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
START = 0


@pytest.fixture(autouse=True)
def start():
    """Returns a time two minutes before each test, because queries without a time are about the last hour."""
    global START
    START = int(time.time()) * 1000 - 120_000


def profile(server, service, samples, kind=("cpu", "nanoseconds"), scale=10**6, host=None):
    """samples: (trace, span or None, "leaf;...;root", ms of CPU), each at its own time; or values of another kind."""
    strings, links, functions, stacks = [""], [{}], [""], [[]]

    def index(table, value):
        if value not in table:
            table.append(value)
        return table.index(value)

    rows = []
    for i, (trace, span_id, frames, ms) in enumerate(samples):
        link = index(links, {"traceId": trace, "spanId": span_id}) if trace else 0
        stack = index(stacks, [index(functions, name) for name in frames.split(";")])
        rows.append({"stackIndex": stack, "linkIndex": link, "values": [str(ms * scale)],
                     "timestampsUnixNano": [str((START + i % 1000) * 10**6)]})
    name, unit = (index(strings, word) for word in kind)
    body = {
        "resourceProfiles": [{
            "resource": resource(service, host),
            "scopeProfiles": [{"profiles": [{
                "sampleType": {"typeStrindex": name, "unitStrindex": unit}, "samples": rows, "period": "10000000",
                "periodType": {"typeStrindex": name, "unitStrindex": unit}, "timeUnixNano": str(START * 10**6)}]}]}],
        "dictionary": {
            "mappingTable": [{}], "attributeTable": [{}], "linkTable": links,
            "stackTable": [{"locationIndices": s} for s in stacks],
            "locationTable": [{"lines": [{"functionIndex": i}]} if i else {} for i in range(len(functions))],
            "functionTable": [{"nameStrindex": index(strings, f)} for f in functions], "stringTable": strings}}
    a = server.request("POST", "/v1development/profiles", json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert a.status == 200 and a.json() == {}, a.text


def attribute(key, value):
    return {"key": key, "value": {"stringValue": value}}


def trace_of(n):
    return f"{n:032x}"


def id_of(n):
    return f"{n:016x}"


def fill_shop(server):
    """Stores three traces. Trace 1: the shop's request 10 with a child 11, which calls the cart's request 12. Trace 2:
    another endpoint of the shop. Trace 3: a slow request like that of trace 1, of the shop alone."""
    route = {"attributes": [attribute("http.route", "/buy"), attribute("http.request.method", "GET")]}
    assert export(server, span(trace_of(1), id_of(10), START, 100, **route),
                  span(trace_of(1), id_of(11), START + 10, 50, parentSpanId=id_of(10), kind=3, name="call"),
                  span(trace_of(2), id_of(20), START + 500, 10, name="GET /health"),
                  span(trace_of(3), id_of(30), START + 600, 300, **route)).json() == {}
    assert export(server, span(trace_of(1), id_of(12), START + 20, 30, parentSpanId=id_of(11), name="add"),
                  service="cart").json() == {}
    profile(server, "shop", [(trace_of(1), id_of(10), "parse;handle;main", 30), (trace_of(1), id_of(11), "send;call;main", 7),
                             (trace_of(2), id_of(20), "parse;health;main", 2), (trace_of(3), id_of(30), "match;handle;main", 200),
                             # Of a span that nobody sent: it is of the trace's only request to the shop.
                             (trace_of(1), id_of(99), "parse;handle;main", 1), (None, None, "idle;main", 1000)])
    profile(server, "cart", [(trace_of(1), id_of(12), "insert;add;main", 20)])


@pytest.fixture
def shop(server):
    fill_shop(server)
    return server


def flame(server, **parameters):
    """{(service, name, ...): ms of self} of the flame graph."""
    a = get(server, "/api/v1/flamegraph", **parameters)
    n, names, out, open_nodes = a["nodes"], a["names"], {}, []
    for i in range(n["count"]):
        while open_nodes and open_nodes[-1][0] < i:
            open_nodes.pop()
        path = (open_nodes[-1][1] if open_nodes else ()) + (() if i == 0 else (names[n["name"][i]],))
        open_nodes.append((i + n["below"][i], path))
        if n["self"][i]:
            out[";".join(path)] = n["self"][i] / 1e6
    return out


def test_a_waterfall_has_the_samples_of_each_span(shop):
    t = get_trace(shop, trace_of(1))
    assert t["type"] == CPU
    assert [(s["span_id"], s.get("parent_id"), s["service"], s["samples"], s["value"] / 1e6) for s in t["spans"]] == [
        (id_of(10), None, "shop", 3, 30), (id_of(11), id_of(10), "shop", 1, 7), (id_of(12), id_of(11), "cart", 2, 20)]
    assert t["other"] == {"samples": 1, "value": 1_000_000, "states_ms": {"running": 1}}


def test_a_trace_has_no_samples_of_a_type_that_there_is_not(shop):
    a = shop.get(f"/api/v1/traces/{trace_of(1)}", type="cpu")
    said = a.json()["message"]
    assert a.status == 400 and said.startswith("the store has no type 'cpu'; it has ") and CPU in said, a.text
    # A type that other traces have is none here.
    ingested = shop.post("/ingest", b"a;b 1\n", name="other.alloc_objects", units="objects")
    assert ingested.status == 200
    other = next(t["name"] for t in shop.get("/api/v1/types").json()["types"] if t["name"] != CPU)
    found = get_trace(shop, trace_of(1), type=other)
    assert found["type"] == other and {s["samples"] for s in found["spans"]} == {0}


def test_flame_graph_of_a_span_a_trace_and_an_endpoint(shop):
    one = {"trace": trace_of(1)}
    assert flame(shop, **one, span=id_of(10)) == {"shop;main;handle;parse": 30}
    assert flame(shop, **one, span=id_of(10), children="true") == {
        "shop;main;handle;parse": 30, "shop;main;call;send": 7, "cart;main;add;insert": 20}
    assert flame(shop, **one, span=id_of(11), children="true") == {"shop;main;call;send": 7, "cart;main;add;insert": 20}
    assert flame(shop, **one) == {
        "shop;main;handle;parse": 31, "shop;main;call;send": 7, "cart;main;add;insert": 20}
    assert flame(shop, **one, service="cart") == {"cart;main;add;insert": 20}
    assert flame(shop, **one, stacks='fn="call"') == {"shop;main;call;send": 7}
    endpoint = {"service": "shop", "endpoint": "GET /buy"}
    assert flame(shop, **endpoint) == {
        "shop;main;handle;parse": 31, "shop;main;call;send": 7, "shop;main;handle;match": 200}
    assert flame(shop, **endpoint, min_ms=200) == {"shop;main;handle;match": 200}
    assert flame(shop, **endpoint, to=START + 300) == {"shop;main;handle;parse": 31, "shop;main;call;send": 7}
    assert flame(shop, endpoint="GET /health") == {"shop;main;health;parse": 2}
    assert flame(shop, endpoint="GET /nothing") == {}
    # A query without traces counts all samples of a service, linked or not.
    assert sum(flame(shop, service="shop").values()) == 30 + 7 + 2 + 200 + 1 + 1000


def test_states_of_spans_do_not_add_up(shop):
    """States at two moments of a request do not add up: values are means of the reported states."""
    memory = "memory:inuse_space:bytes:inuse_space:bytes"
    kind = {"kind": ("inuse_space", "bytes"), "scale": 1}
    one, three = (trace_of(1), id_of(10)), (trace_of(3), id_of(30))
    profile(shop, "shop", [(*one, "cache;main", 4000), (*one, "burst;main", 600), (*one, "cache;main", 4000),
                           (*three, "cache;main", 8000)], **kind)
    profile(shop, "cart", [(trace_of(1), id_of(12), "basket;main", 70)], **kind)
    spans = get_trace(shop, trace_of(1), type=memory)["spans"]
    assert [s["value"] for s in spans] == [4300, 0, 70]
    where = {"type": memory, "trace": trace_of(1)}
    scale = 10**-6
    assert flame(shop, **where, span=id_of(10)) == {"shop;main;cache": 4000 * scale, "shop;main;burst": 300 * scale}
    # Values of services add up, values of moments do not.
    assert flame(shop, **where) == {
        "shop;main;cache": 4000 * scale, "shop;main;burst": 300 * scale, "cart;main;basket": 70 * scale}
    found = get(shop, "/api/v1/traces", type=memory, service="shop", endpoint="GET /buy")["traces"]
    assert [(t["trace_id"], t["value"]) for t in found] == [(trace_of(3), 8000), (trace_of(1), 4370)]
    [buy] = [e for e in get(shop, "/api/v1/endpoints", type=memory)["endpoints"] if e["endpoint"] == "GET /buy"]
    assert buy["value"] == (4300 + 8000) / 2
    endpoint = {"type": memory, "service": "shop", "endpoint": "GET /buy"}
    assert flame(shop, **endpoint) == {"shop;main;cache": 6000 * scale, "shop;main;burst": 150 * scale}
    # The mean of many is not the sum of rounded parts.
    tiny = [(trace_of(n), id_of(n)) for n in range(100, 110)]
    assert export(shop, *(span(*s, START, 1, name="GET /tiny") for s in tiny)).json() == {}
    profile(shop, "shop", [(*s, "cache;main", 7) for s in tiny], **kind)
    assert flame(shop, type=memory, endpoint="GET /tiny") == {"shop;main;cache": 7 * scale}


def test_samples_of_a_trace_in_the_order_of_time(server):
    """Each sample is in the answer once, by thread and time, with its stack from the root to the leaf."""
    assert export(server, span(trace_of(5), id_of(50), START, 100)).json() == {}
    stacks = ["a;main", "b;main", "a;main", "c;b;main"]
    profile(server, "shop", [(trace_of(5), id_of(50), s, 1 + i) for i, s in enumerate(stacks)] + [(trace_of(6), id_of(60), "other;main", 9)])
    path = "/api/v1/traces/{trace_id}/samples"
    a = check(server.get(f"/api/v1/traces/{trace_of(5)}/samples", type=CPU), path).json()
    [thread] = a["threads"]
    assert (thread["service"], a["left_out"], a["damaged"]) == ("shop", 0, False)
    names = [";".join(a["frames"][f][0] for f in reversed(a["stacks"][s[3]])) for s in thread["samples"]]
    assert names == stacks
    assert [(t - START, v / 1e6, n) for t, v, n, _ in thread["samples"]] == [(i, 1 + i, 1) for i in range(4)]
    assert check(server.get(f"/api/v1/traces/{trace_of(7)}/samples"), path).json()["threads"] == []
    for wrong in ("xy", trace_of(5)[:-1], trace_of(5) + "0", "z" * 32):
        assert check(server.get(f"/api/v1/traces/{wrong}/samples"), path).status == 400


def test_slow_and_quick_requests_differ(shop):
    a = get(shop, "/api/v1/diff", endpoint="GET /buy", min_ms=200, base_min_ms=1, base_max_ms=200)
    n = a["nodes"]
    assert (n["total"][0], n["base_total"][0]) == (200_000_000, 38_000_000)


def test_from_a_frame_to_endpoints_and_traces(shop):
    rows = get(shop, "/api/v1/endpoints", stacks='fn="parse"')["endpoints"]
    assert [(r["service"], r["endpoint"], r["requests"], r["running"], r["value"] / 1e6) for r in rows] == [
        ("shop", "GET /buy", 2, 1, 31), ("shop", "GET /health", 1, 1, 2)]
    found = get(shop, "/api/v1/traces", stacks='fn="main"', service="shop")["traces"]
    assert [(t["trace_id"], t["value"] / 1e6) for t in found] == [(trace_of(3), 200), (trace_of(1), 38), (trace_of(2), 2)]
    found = get(shop, "/api/v1/traces", stacks='fn="insert"')["traces"]
    assert [(t["span_id"], t["service"]) for t in found] == [(id_of(12), "cart")]


def test_what_services_are_asked_for(shop):
    rows = {r["endpoint"]: r for r in get(shop, "/api/v1/endpoints")["endpoints"]}
    buy = rows["GET /buy"]
    assert (buy["requests"], buy["errors"], buy["p50_ms"], buy["max_ms"], buy["value"]) == (2, 0, 100, 300, 238_000_000)
    assert rows.keys() == {"GET /buy", "GET /health", "add"}
    top = get(shop, "/api/v1/top", service="shop", endpoint="GET /buy", limit=1)["rows"]
    assert [(r["name"], r["self"]) for r in top] == [("match", 200_000_000)]


def test_many_questions_at_once(shop):
    """Each query opens the file of spans while others close it."""
    def ask(_):
        return [shop.get("/api/v1/endpoints").status for _ in range(400)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = collections.Counter(s for statuses in pool.map(ask, range(8)) for s in statuses)
    assert answers == {200: 3200}


def test_what_it_costs(serve):
    server = serve("--core-hour-price", "36", "--core-watts", "10", "--pue", "2", "--co2-per-kwh", "500", "--currency", "EUR")
    fill_shop(server)
    # A second of a core costs 0.01 EUR and 20 Ws, at 500 g of CO2 per kWh.
    second = {"cpu_seconds": 1, "money": 0.01, "co2_grams": 20 / 3.6e6 * 500}

    def cost(**parameters):
        a = get(server, "/api/v1/cost", **parameters)
        for row in [a["total"], *a["rows"]]:
            for name, value in second.items():
                assert row[name] == pytest.approx(row["cpu_seconds"] * value, rel=1e-4, abs=2e-6)
        assert a["total"]["cpu_seconds"] == pytest.approx(sum(r["cpu_seconds"] for r in a["rows"]))
        return [tuple(r[k] for k in ("service", "endpoint", "name") if k in r) + (round(r["cpu_seconds"] * 1000),)
                for r in a["rows"]]

    assert cost() == [("shop", 1240), ("cart", 20)]
    assert cost(by="endpoint") == [("shop", "GET /buy", 238), ("cart", "add", 20), ("shop", "GET /health", 2)]
    assert cost(by="function", service="shop") == [("idle", 1000), ("match", 200), ("parse", 33), ("send", 7)]
    assert cost(by="function", endpoint="GET /buy", max_ms=200) == [("parse", 31), ("send", 7)]
    factors = get(server, "/api/v1/cost")["factors"]
    assert factors == {"currency": "EUR", "core_hour": 36, "watts": 10, "pue": 2, "grams_per_kwh": 500}
    assert get(server, "/api/v1/cost", to=START - 1000_000, **{"from": START - 2000_000})["note"]
    for wrong in ({"by": "x"}, {"type": "process_cpu:samples:count:cpu:nanoseconds"}):
        assert check(server.get("/api/v1/cost", **wrong), "/api/v1/cost").status == 400


def backtracking(n=400):
    """Requests of 20 to 30 ms; one in 40 runs an expression that backtracks, for 300 ms more. Samples
    every 10 ms of CPU."""
    spans, samples = [], []
    for i in range(n):
        bad = i % 40 == 7
        trace, root = trace_of(1000 + i), id_of(1000 + i)
        spans.append(span(trace, root, START + i * 10, 20 + i % 11 + 300 * bad, name="GET /mail", attributes=[
            attribute("http.route", "/mail")]))
        samples += [(trace, root, "read;parse;handle;main", 10), (trace, root, "convert;parse;handle;main", 10)]
        if bad:
            samples += [(trace, root, "step;match;regex;check_mail;handle;main", 10)] * 30
    return spans, samples


def test_the_guilty_function_is_first(server):
    spans, samples = backtracking()
    assert export(server, *spans).json() == {}
    profile(server, "shop", samples)
    a = get(server, "/api/v1/slow", endpoint="/mail", service="shop")
    assert a["slow"]["requests"] >= 10 and a["slow"]["to_ms"] > 300 and a["middle"]["to_ms"] <= 31
    assert [r["name"] for r in a["rows"][:4]] == ["check_mail", "regex", "match", "step"]
    first = a["rows"][0]
    assert first["effect"] == pytest.approx(10 / a["slow"]["requests"] * 300e6) and first["low"] > 0
    assert first["middle"] == 0 and not first["explained"]
    assert {r["name"]: r["explained"] for r in a["rows"]}["main"]
    n = a["nodes"]
    assert n["total"][0] == pytest.approx(a["slow"]["value"], abs=2)
    assert n["base_total"][0] == pytest.approx(a["middle"]["value"], abs=2) == 20_000_000
    for parameters in ({"slow": "99"}, {"slow": "90", "middle_from": "10", "middle_to": "60"}, {"limit": "1"},
                       {"type": CPU}, {"stacks": 'fn="regex"'}, {"max_nodes": "10"}, {"status": "unset"},
                       {"min_ms": "1", "max_ms": "100000"}, {"inverted": "1"}, {"query": '{service_name="shop"}'}):
        assert get(server, "/api/v1/slow", endpoint="/mail", **parameters)["rows"], parameters
    for parameters in ({}, {"endpoint": "/mail", "slow": "x"}, {"endpoint": "/mail", "limit": "0"}):
        assert check(server.get("/api/v1/slow", **parameters), "/api/v1/slow").status == 400
    none = get(server, "/api/v1/slow", endpoint="/nothing")
    assert none["rows"] == [] and "0 requests" in none["note"]


def mails(server, first, sampled=True, start=None, service="shop", host=None, where=None, n=40, **kind):
    """Requests of 10 to 49 ms, each with a sample of as many ms if they are sampled; `where`: the host of the samples."""
    route = [attribute("http.route", "/mail")]
    ids = [(trace_of(first + i), id_of(first + i)) for i in range(n)]
    assert export(server, *(span(*ids[i], (start or START) + i * 10, 10 + i, name="GET /mail", attributes=route) for i in range(n)),
                  service=service, host=host).json() == {}
    if sampled:
        profile(server, service, [(*ids[i], "send;main", 10 + i) for i in range(n)], host=where or host, **kind)


def slow(server, **parameters):
    """(requests left out, those of both groups, those with samples of both groups, ms of a middle request)"""
    a = get(server, "/api/v1/slow", endpoint="/mail", slow="75", **parameters)
    both = [sum(a[side][k] for side in ("slow", "middle")) for k in ("requests", "sampled")]
    return a["left_out"], *both, a["middle"]["value"] / 1e6


ALL = (0, 31, 31, 29)  # 10 above the 75th percentile, 21 of 19 to 39 ms from the 25th to the 75th


def test_requests_on_hosts_without_an_agent_are_not_free(server):
    mails(server, 1000, host="a")
    assert slow(server) == ALL
    mails(server, 2000, host="b", sampled=False)
    assert slow(server) == (40, *ALL[1:])
    # Its agent runs, and sees nothing of these requests: then they cost next to nothing.
    profile(server, "shop", [(None, None, "idle;main", 1)], host="b")
    assert slow(server) == (0, 62, 31, 14.5)
    # But not where only samples of the other host are asked for.
    assert slow(server, query='{host.name="a"}') == (40, *ALL[1:])


def test_hosts_matter_only_where_spans_and_samples_name_them_alike(server):
    """Spans of containers name the container, samples the machine."""
    mails(server, 1000, host="pod-1", where="machine")
    mails(server, 2000, host="pod-2", sampled=False)
    assert slow(server) == (0, 62, 31, 14.5)
    # One that names its machine does not make the container that was sampled unknown; the others nobody knows of.
    mails(server, 3000, host="machine", sampled=False)
    assert slow(server) == (40, 62, 31, 14.5)


def test_requests_before_the_agent_came_or_after_it_went_are_not_free(server):
    mails(server, 1000)
    mails(server, 2000, sampled=False, start=START - 600_000)
    assert slow(server) == (40, *ALL[1:])
    # Within a minute the service may have been idle.
    mails(server, 3000, sampled=False, start=START + 30_000)
    assert slow(server) == (40, 62, 31, 14.5)


def test_requests_to_a_service_without_an_agent_are_not_free(server):
    mails(server, 1000)
    mails(server, 2000, sampled=False, service="mailer")
    assert slow(server) == (40, *ALL[1:])
    assert slow(server, service="mailer") == (40, 0, 0, 0)
    # Sampled with another type only.
    profile(server, "mailer", [(None, None, "main", 1)], kind=("page_faults", "count"), scale=1)
    assert slow(server) == (40, *ALL[1:])


def test_states_of_which_nothing_was_reported_are_not_zero(server):
    mails(server, 1000, kind=("inuse_space", "bytes"))
    mails(server, 2000, sampled=False)
    assert slow(server) == (40, *ALL[1:])


def test_requests_without_any_sample_are_said(server):
    """The service is sampled, but publishes no spans to the agent."""
    mails(server, 1000, sampled=False)
    profile(server, "shop", [(None, None, "main", 1)])
    a = get(server, "/api/v1/slow", endpoint="/mail")
    assert a["rows"] == [] and "no samples were taken in these 40 requests" in a["note"]
    assert a["slow"]["requests"] and a["slow"]["sampled"] == a["middle"]["sampled"] == a["left_out"] == 0


# ---- Zipkin ----

def zipkin(server, body, encoding=None):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **({"Content-Encoding": encoding} if encoding else {})}
    if encoding:
        body = gzip.compress(body)
    return check(server.request("POST", "/api/v2/spans", body, headers), "/api/v2/spans", "post")


def test_zipkin(server):
    """Spans by Zipkin's API: ids of 8 and 16 bytes, a span that client and server share, tags."""
    client_span = {"traceId": "48485a3953bb6124", "id": "0000000000000002", "parentId": "0000000000000001", "kind": "CLIENT",
                   "name": "get", "timestamp": START * 1000 + 100, "duration": 3000,
                   "localEndpoint": {"serviceName": "front"}, "remoteEndpoint": {"serviceName": "back"}}
    body = [
        {"traceId": "48485a3953bb6124", "id": "0000000000000001", "kind": "SERVER", "name": "get /",
         "timestamp": START * 1000, "duration": 5000, "localEndpoint": {"serviceName": "front"},
         "tags": {"http.method": "GET", "http.route": "/"}, "annotations": [{"timestamp": 1, "value": "x"}]},
        client_span,
        {**client_span, "kind": "SERVER", "shared": True, "timestamp": START * 1000 + 1000, "duration": 1000,
         "localEndpoint": {"serviceName": "back"}, "tags": {"error": "it broke"}},
        {"traceId": "48485a3953bb6124", "id": "0000000000000003", "parentId": "0000000000000002", "name": "query",
         "timestamp": START * 1000 + 1200, "duration": 10, "localEndpoint": {"serviceName": "back"}}]
    a = zipkin(server, body, "gzip")
    assert a.status == 202 and a.body == b""
    trace = "0" * 16 + "48485a3953bb6124"
    spans = get_trace(server, trace)["spans"]
    assert [(s["service"], s["name"], s["kind"], s["status"], s["root"], s["duration_ms"]) for s in spans] == [
        ("front", "get /", "server", "unset", True, 5), ("front", "get", "client", "unset", False, 3),
        ("back", "get", "server", "error", True, 1), ("back", "query", "internal", "unset", False, 0.01)]
    assert spans[0]["endpoint"] == "GET /" and spans[2]["message"] == "it broke"
    # A sample in the server's child span belongs to the server's request.
    profile(server, "back", [(trace, "0000000000000003", "scan;query", 5)])
    assert flame(server, service="back", endpoint="get") == {"back;query;scan": 5}


def test_zipkin_that_is_wrong(server):
    good = {"traceId": "48485a3953bb6124", "id": "0000000000000001", "timestamp": START * 1000}
    for bad in (b"{", b"{}", [good, 7], [good, {}], [{**good, "traceId": "xy"}], [{**good, "id": "1" * 18}],
                [{**good, "timestamp": -1}], [{**good, "timestamp": "1"}], [{**good, "duration": 1 << 60}],
                [{**good, "parentId": "zz"}], [{"id": good["id"], "traceId": good["traceId"]}]):
        a = zipkin(server, bad)
        assert a.status == 400 and a.json()["message"]
    assert server.get("/api/v1/stats").json()["store"]["spans"] == 0
    assert zipkin(server, []).status == 202
    assert server.request("POST", "/api/v2/spans", b"[]", {"Content-Type": "application/x-protobuf"}).status == 415
