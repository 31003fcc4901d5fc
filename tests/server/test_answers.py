# SPDX-License-Identifier: Apache-2.0
"""Answers to questions that the server cannot answer, or that would take it too long: an error that says what to do."""

import base64
import gzip
import json
import os
import random
import re
import time

import h2_client
import pytest

WORDS = ("std vector basic_string json handle Request parser detail allocator iterator absl grpc Server serialize tree element "
         "encode __cxx11 char_traits operator").split()


def cpu_s(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ingest(server, folded, **parameters):
    a = server.post("/ingest", folded.encode(), name="shop", **parameters)
    assert a.status == 200, a.text


# ---- regular expressions ----

@pytest.fixture
def names(server):
    """A server with a stack for each of 20,000 names like those of C++."""
    rand = random.Random(1)

    def name(i):
        text = "".join(rand.choice(WORDS) + rand.choice(("::", ", ", "<")) for _ in range(rand.randrange(3, 15)))
        return f"{text}::{i}({', '.join(rand.choices(WORDS, k=rand.randrange(6)))})"

    ingest(server, "".join(f"main;{name(i)} 1\n" for i in range(20000)))
    return server


@pytest.mark.parametrize("pattern", [".*e.{50}x", "(.*e.*){8}x", "(.*.*)*#", "(a|e)*(a|e)*(a|e)*#"])
def test_no_expression_keeps_the_server_busy(names, pattern):
    cpu, memory = cpu_s(names), names.rss_bytes()
    a = names.get("/api/v1/flamegraph", stacks=f'fn~"{pattern}"', max_nodes=10)
    assert a.status == 200, a.text
    assert cpu_s(names) - cpu < 15
    assert names.rss_bytes() - memory < 128 << 20


def leaves(server, **parameters):
    a = server.get("/api/v1/export", format="folded", **parameters)
    assert a.status == 200, a.text
    return sorted(line.rsplit(" ", 1)[0].rsplit(";", 1)[1] for line in a.text.splitlines())


def test_expressions(server):
    ingest(server, "parse_json;größe 3\nHandle;write 4\n")
    for expression, found in (('fn~"json|Handle"', ["größe", "write"]), ('fn~"(?i)^handle$"', ["write"]),
                              ('fn~"gr..e"', ["größe"]), ('fn!~"write"', ["größe"]), ('fn~"^rite"', [])):
        assert leaves(server, stacks=expression) == found, expression
    for wrong, why in (('fn~"("', "missing )"), ('fn~"(a)\\\\1"', "invalid escape"), ('fn~"(?=a)"', "invalid perl operator"),
                       (" or ".join(['fn~"a"'] * 33), "more than 32 regular expressions")):
        a = server.get("/api/v1/flamegraph", stacks=wrong)
        assert (a.status, a.json()["code"]) == (400, "invalid_argument") and why in a.json()["message"], a.text
    for label, found in (('service_name=~"sh.*"', True), ('service_name=~"ho"', False), ('service_name=~"(?i)SHOP"', True)):
        assert bool(leaves(server, query="{" + label + "}")) == found, label


def test_a_match_without_an_answer_is_an_error(server):
    """A name that is too long for the expression: an error that says so, never a "no"."""
    ingest(server, "main;" + "e" * 900_000 + "x 1\n")
    a = server.get("/api/v1/flamegraph", stacks='fn~"[a-z]{900}x"')
    assert a.status == 400 and "too large to match a name" in a.json()["message"], a.text
    assert len(leaves(server, stacks='fn~"e*x$"')) == 1


# ---- names that there are not ----

def refused(server, path, **parameters):
    """The message of the refusal."""
    a = server.get(path, **parameters)
    assert (a.status, a.json()["code"]) == (400, "invalid_argument"), a.text
    return a.json()["message"]


def test_unknown_parameters(server):
    said = refused(server, "/api/v1/flamegraph", form="now-1h")
    assert said.startswith("no parameter 'form'; there are from, ") and "stacks" in said and "inverted" in said, said
    assert "there are group_by, " in refused(server, "/api/v1/series", **{"groupby": "x"})
    said = refused(server, "/api/v1/diff", base_form="now-1h")
    assert "there are base_from, " in said and re.search(r" and \d+ more$", said), said
    assert refused(server, "/api/v1/stats", x="1") == "no parameter 'x': this takes none"
    a = server.post("/api/v1/upload", b"a;b 1\n", lables="x=y")
    assert a.status == 400 and "there are labels, " in a.text, a.text
    # A variable part of the path is no parameter, and other protocols' requests may have any.
    assert "'trace_id'" in refused(server, f"/api/v1/traces/{'a' * 32}", trace_id="b" * 32)
    assert server.get("/healthz", probe="1").status == 200 and server.get("/metrics", x="1").status == 200
    ingest(server, "a;b 1\n", spyName="x", sampleRate="100")


def test_unknown_types_and_labels(server):
    def ask(path, **parameters):
        return server.get(f"/api/v1/{path}", **{"from": "now-1h", **parameters})

    # A store without anything knows no names.
    assert ask("flamegraph", type="cpu").status == ask("series", group_by="env", step="60000").status == 200
    ingest(server, "a;b 1\n", **{"from": str(int(time.time()) - 5)})
    server.post("/ingest", b"a;b 1\n", name="shop{env=prod,region=eu}")
    cpu = ask("types").json()["types"][0]["name"]
    for path in ("flamegraph", "payload", "top", "export", "series", "heatmap", "labels"):
        a = ask(path, type="cpu")
        assert a.status == 400 and a.json()["message"].startswith(f"the store has no type 'cpu'; it has {cpu}, "), f"{path}: {a.text}"
    for path, parameters in (("traces", {}), ("endpoints", {}), ("slow", {"endpoint": "/"}), ("payload", {"trace": "a" * 32}),
                             ("flamegraph", {"endpoint": "/"})):
        assert ask(path, **parameters).status == ask(path, **parameters, type=cpu).status == 200, path
        a = ask(path, type="cpu", **parameters)
        assert a.status == 400 and "the store has no type 'cpu'" in a.json()["message"], f"{path}: {a.text}"
    there = "env, region, service.name"
    for path, parameters, name in (("flamegraph", {"group_by": "evn"}, "evn"), ("series", {"group_by": "evn", "step": "60000"}, "evn"),
                                   ("flamegraph", {"query": '{evn="prod"}'}, "evn"), ("top", {"query": '{evn=~"p.*"}'}, "evn"),
                                   ("label-values", {"label": "evn"}, "evn")):
        a = ask(path, **parameters)
        assert a.status == 400 and a.json()["message"] == f"the store has no label '{name}'; it has {there}", f"{path}: {a.text}"
    # Empty selections, also of names that the store has at another time, and labels that it may lack.
    for parameters in ({"query": '{env="test"}'}, {"query": '{service_name="cart"}'}, {"query": '{evn!="prod"}'}, {"query": '{evn=""}'},
                       {"query": '{host.name="x"}'}, {"type": cpu, "from": "0", "to": "1000"}, {"group_by": "thread.name"},
                       {"group_by": "env", "from": "0", "to": "1000"}, {"query": '{service.name="cart"}', "type": cpu}):
        a = ask("flamegraph", **parameters)
        assert a.status == 200, f"{parameters}: {a.text}"
    # Pyroscope's clients get an empty answer, as from Pyroscope.
    a = server.post("/querier.v1.QuerierService/SelectMergeStacktraces", json.dumps(
        {"profileTypeID": "a:b:c:d:e", "labelSelector": '{evn="x"}', "start": 0, "end": 2 ** 40}).encode(), {"Content-Type": "application/json"})
    assert a.status == 200, a.text


def test_times(server):
    at = int(time.time()) - 86400
    ingest(server, "then;work 1\n", **{"from": str(at), "until": str(at + 10)})

    def text(s, offset_s=0):
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at + s + offset_s))

    for start, end, found in ((f"{text(0)}z".lower(), f"{text(60)}Z", True), (f"{text(0)}.0Z", f"{text(0)}.001Z", True),
                              (f"{text(0, 7200)}+02:00", f"{text(10, 7200)}.999999999+02:00", True),
                              (f"{text(0, -19800)}-05:30", f"{text(60, -19800)}-05:30", True),
                              (f"{text(0)}+02:00", f"{text(60)}+02:00", False)):
        assert bool(leaves(server, **{"from": start, "to": end})) == found, start
    for wrong in ("2026-09-31T00:00:00Z", "2026-09-21T17:33:60Z", "2026-09-21"):
        assert "RFC 3339" in refused(server, "/api/v1/flamegraph", **{"from": wrong})


# ---- other places ----

@pytest.mark.parametrize("path,place", [
    ("/v1experimental/profiles", "/v1development/profiles"), ("/v1/profiles", "/v1development/profiles"),
    ("/opentelemetry.proto.collector.profiles.v1experimental.ProfilesService/Export", "--otlp-grpc"),
    ("/api/v1/spans", "/api/v2/spans"), ("/api/traces?format=jaeger.thrift", "/v1/traces"), ("/api/services", "/api/v1/traces"),
    ("/nothing.v1.NothingService/Get", "/api/v1/openapi.json"),
    ("/storegateway.v1.StoreGatewayService/Series", "/querier.v1.QuerierService/"), ("/nothing", "/api/v1/openapi.json")])
def test_paths_of_others_point_to_those_of_this_server(server, path, place):
    a = server.get(path)
    assert (a.status, a.json()["code"]) == (404, "not_found") and place in a.json()["message"], a.text
    # For a client of Connect, a POST of "/package.v1.Service/Method" is a procedure.
    expected = (501, "unimplemented") if "v1." in path or "v1experimental." in path else (404, "not_found")
    a = server.post(path, b"x")
    assert (a.status, a.json()["code"]) == expected and place in a.json()["message"], a.text


def test_a_wrong_address_is_a_page_for_a_browser_only(server):
    a = server.get("/no/such/page", {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert a.status == 404 and a.headers["Content-Type"] == "text/html; charset=utf-8" and '<a href="/">' in a.text, a.text
    assert a.headers["Content-Security-Policy"] == "default-src 'none'" and "such" not in a.text, "nothing of the address is in it"
    for path, headers in (("/no/such/page", {"Accept": "application/json"}), ("/no/such/page", {}), ("/api/v1/none", {"Accept": "text/html"})):
        a = server.get(path, headers)
        assert a.status == 404 and a.json()["code"] == "not_found" and "this server does not have this path" in a.json()["message"], a.text


# ---- bodies and protocols ----

def otlp_profile(name="shop"):
    """An OTLP profile in JSON, and what is needed to ask for it."""
    now = time.time_ns()
    return json.dumps({
        "resourceProfiles": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": name}}]},
            "scopeProfiles": [{"profiles": [{
                "sampleType": {"typeStrindex": 1, "unitStrindex": 2}, "timeUnixNano": str(now), "durationNano": "1000000000",
                "samples": [{"stackIndex": 1, "values": ["7"], "timestampsUnixNano": [str(now)]}]}]}]}],
        "dictionary": {
            "stringTable": ["", "cpu", "nanoseconds", "work"], "mappingTable": [{}], "attributeTable": [{}], "linkTable": [{}],
            "functionTable": [{}, {"nameStrindex": 3}], "locationTable": [{}, {"lines": [{"functionIndex": 1}]}],
            "stackTable": [{}, {"locationIndices": [1]}]}}).encode()


def test_gzip_without_its_header(server):
    json_type = {"Content-Type": "application/json"}
    for path, body in (("/v1development/profiles", otlp_profile()), ("/v1/traces", b"{}"), ("/api/v2/spans", b"[]"),
                       ("/push.v1.PusherService/Push", b"{}"), ("/querier.v1.QuerierService/ProfileTypes", b"{}")):
        a = server.post(path, gzip.compress(body), json_type)
        assert a.status in (200, 202), f"{path}: {a.text}"
    assert leaves(server) == ["work"]
    # The limits are those of a body that says so.
    a = server.post("/v1development/profiles", gzip.compress(bytes(65 << 20)), json_type)
    assert a.status == 413, a.text


QUERIER = "/querier.v1.QuerierService/"
TRACE_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
HEALTH = "/grpc.health.v1.Health/"


def test_grpc_health_and_other_services(serve, tmp_path):
    path = tmp_path / "tokens"
    path.write_text("write writer-token-0123456789\n")
    path.chmod(0o600)
    s = serve("--token-file", path)
    c = h2_client.Connection(s.ports["otlp-grpc"])
    # Probes have no token.
    for name in (b"", TRACE_EXPORT.split("/")[1].encode(), b"grpc.health.v1.Health"):
        a = c.call(HEALTH + "Check", b"\x0a" + bytes([len(name)]) + name if name else b"")
        assert (a.status, a.body) == (0, b"\0\0\0\0\2\x08\1"), a.message
    assert c.call(HEALTH + "Check", b"\x0a\1x").status == 5
    assert c.call(HEALTH + "Check", b"\x0a\5x").status == 3
    assert c.call(HEALTH + "Watch", b"").status == 12
    assert c.call(TRACE_EXPORT, b"").status == 16
    token = [("authorization", "Bearer writer-token-0123456789")]
    assert c.call(TRACE_EXPORT, b"", headers=token).status == 0
    for other, said in (("/opentelemetry.proto.collector.profiles.v1experimental.ProfilesService/Export", "v1development"),
                        ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "OTLP profiles and traces"),
                        ("/jaeger.api_v2.CollectorService/PostSpans", "HTTP port")):
        a = c.call(other, b"", headers=token)
        assert a.status == 12 and said in a.message, a.message


def test_grpc_by_http1(server):
    """As Go's clients of Connect do it without TLS: the status is a trailer, behind the last chunk."""
    ingest(server, "main;work 3\n")

    def call(path, body, kind="application/grpc", status=b"200"):
        with server.connect() as s:
            s.sendall((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nTE: trailers\r\nAccept-Encoding: gzip\r\n"
                       f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)
            data = b""
            while part := s.recv(65536):
                data += part
        head, _, rest = data.partition(b"\r\n\r\n")
        assert head.split()[1] == status and b"Content-Length" not in head and b"Content-Encoding" not in head, head
        assert b"Transfer-Encoding: chunked" in head and b"Content-Type: application/grpc+proto" in head
        out = b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            if not int(size, 16):
                assert rest.endswith(b"\r\n\r\n")
                return out, rest[:-4].decode().split("\r\n")
            out, rest = out + rest[:int(size, 16)], rest[int(size, 16) + 2:]

    want = server.post(QUERIER + "Series", b"", {"Content-Type": "application/proto"}).body
    assert len(want) > 300
    for kind in ("application/grpc", "application/grpc+proto"):
        assert call(QUERIER + "Series", bytes(5), kind) == (b"\0" + len(want).to_bytes(4, "big") + want, ["grpc-status:0"])
    assert call(TRACE_EXPORT, bytes(5)) == (bytes(5), ["grpc-status:0"])
    for path, body, kind, status in ((QUERIER + "Nothing", bytes(5), "application/grpc", 12), (QUERIER + "Series", b"x", "application/grpc", 3),
                                     (QUERIER + "Series", bytes(5), "application/grpc+json", 12)):
        out, (first, message) = call(path, body, kind)
        assert (out, first) == (b"", f"grpc-status:{status}") and message.startswith("grpc-message:")


def web_frames(body):
    """The frames of a grpc-web body: the flags and the content of each."""
    out = []
    while body:
        n = int.from_bytes(body[1:5], "big")
        out.append((body[0], body[5:5 + n]))
        body = body[5 + n:]
    return out


@pytest.mark.parametrize("text", [False, True])
def test_grpc_web(server, text):
    kind = "application/grpc-web-text" if text else "application/grpc-web+proto"

    def call(path, message, compressed=False, headers=None):
        parts = [bytes([compressed]) + len(message).to_bytes(4, "big"), message]
        # Each part may have its own padding.
        body = b"".join(map(base64.b64encode if text else bytes, parts))
        a = server.post(path, body, {"Content-Type": kind, **(headers or {})})
        assert a.status == 200 and a.headers["Content-Type"].startswith(kind), a.text
        return web_frames(base64.b64decode(a.body) if text else a.body)

    ok = (0x80, b"grpc-status:0\r\n")
    assert call(TRACE_EXPORT, b"") == [(0, b""), ok]
    assert call(HEALTH + "Check", b"") == [(0, b"\x08\1"), ok]
    assert call(TRACE_EXPORT, gzip.compress(b""), True, {"grpc-encoding": "gzip"}) == [(0, b""), ok]
    for path, message, compressed, status, said in (
            (TRACE_EXPORT, b"\x0a", False, 3, ""), (TRACE_EXPORT, b"x", True, 3, "grpc-encoding"),
            ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", b"", False, 12, "OTLP profiles and traces"),
            ("/querier.v1.QuerierService/Nothing", b"", False, 12, "/querier.v1.QuerierService/"),
            ("/api/v1/types", b"", False, 12, "openapi.json")):
        [(flags, trailers)] = call(path, message, compressed)
        assert flags == 0x80 and trailers.startswith(b"grpc-status:%d\r\n" % status) and said.encode() in trailers, trailers
    # Pyroscope's services: the same messages as by Connect.
    ingest(server, "main;work 3\n")
    (flags, types), end = call("/querier.v1.QuerierService/ProfileTypes", b"")
    assert (flags, end) == (0, ok)
    a = server.post("/querier.v1.QuerierService/ProfileTypes", b"", {"Content-Type": "application/proto"})
    assert b"process_cpu:cpu:nanoseconds:cpu:nanoseconds" in types and types == a.body
    for body in (b"", b"\0\0\0\0\1", b"\0\0\0\0\1xy", b"AA%A"):
        a = server.post(TRACE_EXPORT, body, {"Content-Type": kind})
        assert b"grpc-status:3" in (base64.b64decode(a.body) if text else a.body), a.body
