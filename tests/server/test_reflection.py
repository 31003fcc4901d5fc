# SPDX-License-Identifier: Apache-2.0
"""gRPC's reflection: what it says of the services is what their .proto files say, read here by a reader of our own. And
what a stream of messages may do to the server.
"""

import os
import re
import struct
import sys
import time

import h2_client
import pytest
from test_grafana import field

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(TOP, "tests/live"))
from otlp import message  # noqa: E402

METHOD = "/grpc.reflection.{}.ServerReflection/ServerReflectionInfo"
OTLP = "opentelemetry.proto."
SERVICES = {"grpc.health.v1.Health": "grpc_health", "grpc.reflection.v1.ServerReflection": "grpc_reflection",
            "grpc.reflection.v1alpha.ServerReflection": "grpc_reflection_v1alpha",
            OTLP + "collector.profiles.v1development.ProfilesService": "otlp_profiles_service",
            OTLP + "collector.trace.v1.TraceService": "otlp_traces_service", "culprit.control.v1.Control": "control"}
TYPES = {1: "double", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
         12: "bytes", 13: "uint32"}
FILE_BY_NAME, BY_SYMBOL, BY_EXTENSION, EXTENSIONS_OF, LIST = 3, 4, 5, 6, 7
READER, WRITER = "reader-token-0123456789", "writer-token-0123456789"


def frame(data, flag=0):
    return bytes([flag]) + struct.pack(">I", len(data)) + data


class Stream:
    def __init__(self, server, version="v1", headers=()):
        self.c = h2_client.Connection(server.ports["otlp-grpc"])
        self.stream = self.c.begin(METHOD.format(version), b"", headers, end=False)

    def ask(self, number, value):
        request = field(1, "a.host") + field(number, value)
        self.c.send(self.stream, frame(request))
        a = message(self.c.message(self.stream))
        assert a[1] == [b"a.host"] and a[2] == [request]
        return a

    def files(self, number, value):
        """The files of an answer: name to descriptor, in the order of the answer."""
        a = self.ask(number, value)
        assert 4 in a, a
        found = [message(f) for f in message(a[4][0])[1]]
        return {f[1][0].decode(): f for f in found}

    def error(self, number, value):
        return message(self.ask(number, value)[7][0])[1][0]

    def end(self):
        self.c.send(self.stream, b"", end=True)
        assert self.c.message(self.stream) is None
        return self.c.calls[self.stream]


# ---- ground truth ----

def text(v):
    return v[0].decode()


def described(f):
    """What a descriptor says: {"package", "imports", full name of a message: {number: field}, service: methods}."""
    package = text(f[2])
    out = {"package": package, "imports": sorted(v.decode() for v in f.get(3, []))}

    def put(m, scope):
        name = f"{scope}.{text(m[1])}"
        out[name] = {}
        for d in map(message, m.get(2, [])):
            kind = text(d[6])[1:] if 6 in d else TYPES[d[5][0]]
            out[name][d[3][0]] = (text(d[1]), d[4][0] == 3, kind)
        for nested in m.get(3, []):
            put(message(nested), name)
        for e in map(message, m.get(4, [])):
            out[f"{name}.{text(e[1])}"] = [text(message(v)[1]) for v in e[2]]

    for m in f.get(4, []):
        put(message(m), package)
    for e in map(message, f.get(5, [])):
        out[f"{package}.{text(e[1])}"] = [text(message(v)[1]) for v in e[2]]
    for s in map(message, f.get(6, [])):
        out[f"{package}.{text(s[1])}"] = [tuple(text(m[k])[k > 1:] for k in (1, 2, 3)) + (5 in m, 6 in m)
                                         for m in map(message, s[2])]
    return out


def written(name):
    """The same from the text of a .proto file, whose types are not resolved."""
    with open(f"{TOP}/proto/{name.replace('_v1alpha', '')}", encoding="utf-8") as f:
        lines = [re.sub(r"//.*", "", line).strip() for line in f]
    out = {"imports": sorted(re.findall(r'import "(.*)";', "\n".join(lines)))}
    scope = []
    for line in lines:
        if found := re.match(r"package (.*);", line):
            scope = [found[1].replace("reflection.v1", "reflection.v1alpha") if "v1alpha" in name else found[1]]
            out["package"] = scope[0]
        elif found := re.match(r"(message|enum|service) (\w+) {(})?", line):
            out[".".join(scope + [found[2]])] = {} if found[1] == "message" else []
            scope += [] if found[3] else [found[2]]
        elif line.startswith("oneof"):
            scope.append(None)
        elif found := re.match(r"rpc (\w+)\((stream )?(\S+)\) returns \((stream )?(\S+)\)", line):
            out[".".join(scope)].append((found[1], f"{scope[0]}.{found[3]}", f"{scope[0]}.{found[5]}", bool(found[2]),
                                         bool(found[4])))
        elif found := re.match(r"(repeated )?([\w.]+) (\w+) = (\d+)", line):
            out[".".join(filter(None, scope))][int(found[4])] = (found[3], bool(found[1]), found[2])
        elif found := re.match(r"(\w+) = \d+;", line):
            out[".".join(scope)].append(found[1])
        elif line == "}" and len(scope) > 1:
            scope.pop()
    return out


def same(a, b):
    """Whether a descriptor is that of the text, whose types may be relative."""
    def strip(d):
        return {k: {n: (f[0], f[1], f[2].rsplit(".", 1)[-1]) for n, f in v.items()} if isinstance(v, dict) else v
                for k, v in d.items()}

    assert strip(a) == strip(b)
    return True


# ---- reflection ----

@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_services_are_described_as_their_files_say(server, version):
    s = Stream(server, version)
    listed = [text(message(v)[1]) for v in message(s.ask(LIST, "*")[6][0])[1]]
    assert sorted(listed) == sorted(SERVICES)
    seen = {}
    for name in listed:
        files = s.files(BY_SYMBOL, name)
        assert next(iter(files)) == SERVICES[name] + ".proto"
        for file, f in files.items():
            d = described(f)
            assert set(d["imports"]) <= set(files)  # a client needs no other file
            assert same(d, written(file)), file
            seen.update(d)
        assert text(files[SERVICES[name] + ".proto"][12]) == "proto3"
    for types in (v for v in seen.values() if isinstance(v, dict)):  # no type is missing
        assert all(kind in seen or kind in TYPES.values() for _, _, kind in types.values()), types
    # Health knows the same services.
    for name in listed:
        assert s.c.call("/grpc.health.v1.Health/Check", field(1, name)).status == 0, name
    assert s.end().status == 0


def test_symbols(server):
    s = Stream(server)
    for symbol, file in (
            (OTLP + "common.v1.AnyValue", "otlp_common"), (OTLP + "trace.v1.Span.trace_id", "otlp_traces"),
            (OTLP + "common.v1.AnyValue.value", "otlp_common"), (OTLP + "resource.v1.Resource", "otlp_resource"),
            (OTLP + "collector.trace.v1.TraceService.Export", "otlp_traces_service"),
            ("grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc_health"),
            ("grpc.health.v1.HealthCheckResponse.SERVING", "grpc_health"),
            ("grpc.reflection.v1.ErrorResponse", "grpc_reflection"),
            ("culprit.control.v1.Control.Sync", "control"), ("culprit.control.v1.Reason", "control"),
            ("culprit.control.v1.STATE_ARMED", "control"), ("culprit.control.v1.Keep.trace_id", "control")):
        assert next(iter(s.files(BY_SYMBOL, symbol))) == file + ".proto", symbol
    for symbol in ("", ".", "grpc", "grpc.health.v1", "grpc.health.v1.", "grpc.health.v1.Heal", "grpc.health.v1.Health.",
                   "grpc.health.v1.Health.Chec", "grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING", "Health",
                   ".grpc.health.v1.Health", OTLP + "common.v1.AnyValue.values", "grpc.health.v1.Health" + "x" * 40000):
        assert s.error(BY_SYMBOL, symbol) == 5, symbol
    assert list(s.files(FILE_BY_NAME, "otlp_resource.proto")) == ["otlp_resource.proto", "otlp_common.proto"]
    assert s.error(FILE_BY_NAME, "otlp_packed.proto") == 5
    assert s.error(BY_EXTENSION, field(1, OTLP + "trace.v1.Span") + field(2, 100)) == 5
    assert message(s.ask(EXTENSIONS_OF, OTLP + "trace.v1.Span")[5][0]) == {1: [(OTLP + "trace.v1.Span").encode()]}
    assert s.error(EXTENSIONS_OF, "grpc.health.v1.Health") == 5
    assert s.error(99, "x") == 3
    assert s.end().status == 0


# ---- the stream ----

def test_messages_of_a_stream_are_answered_in_order(server):
    s = Stream(server)
    requests = [field(1, str(i)) + field(*(((LIST, ""), (BY_SYMBOL, "x"), (BY_SYMBOL, OTLP + "trace.v1.Span"))[i % 3]))
                for i in range(300)]
    data = b"".join(map(frame, requests))
    s.c.send(s.stream, data[:-3])
    assert [message(s.c.message(s.stream))[2] for _ in requests[1:]] == [[r] for r in requests[:-1]]
    s.c.send(s.stream, data[-3:], end=True)  # the rest of the last message
    assert message(s.c.message(s.stream))[2] == [requests[-1]]
    assert s.end().status == 0
    # A call whose client is done before the first answer, and one without a message.
    a = s.c.call(METHOD.format("v1"), field(LIST, ""))
    assert a.status == 0 and len(a.body) > 100
    a = s.c.wait(s.c.begin(METHOD.format("v1"), b""))
    assert (a.status, a.body) == (0, b"")


@pytest.mark.parametrize("data, status", [
    (frame(b"\xff\xff"), 3), (frame(b"", flag=2), 3), (frame(b"", flag=1), 3), (b"\xff" * 5 + b"x" * 70000, 8)])
def test_an_error_ends_the_stream(server, data, status):
    for before in (b"", frame(field(LIST, ""))):
        s = Stream(server)
        s.c.send(s.stream, before + data)
        a = s.c.wait(s.stream)
        # What is too long while an answer is on its way ends the stream without a status.
        assert a.status == status or (before and status == 8 and a.reset), (a.headers, a.reset)
    s = Stream(server)
    s.c.send(s.stream, frame(b"x" * 10)[:8], end=True)
    assert s.c.wait(s.stream).status == 3
    s = Stream(server, headers=[("grpc-encoding", "gzip")])
    s.c.send(s.stream, frame(b"x", flag=1))
    assert s.c.wait(s.stream).status == 12
    assert s.c.wait(s.c.begin("/grpc.reflection.v2.ServerReflection/ServerReflectionInfo", frame(b""))).status == 12


def test_reflection_needs_a_token(serve, tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"read {READER}\nwrite {WRITER}\n")
    path.chmod(0o600)
    server = serve("--token-file", path)
    for headers in ([], [("authorization", "Bearer wrong-token-0123456789")]):
        s = Stream(server, headers=headers)
        assert s.c.wait(s.stream).status == 16
    for token in (READER, WRITER):
        assert 6 in Stream(server, headers=[("authorization", f"Bearer {token}")]).ask(LIST, "")


def test_a_stream_that_rests_ends(serve):
    server = serve("--timeout", "1")
    s, begin = Stream(server), time.monotonic()
    for _ in range(5):
        s.ask(LIST, "")
        time.sleep(0.5)
    assert s.c.wait(s.stream).status == 4
    assert 2.5 < time.monotonic() - begin < 15
    # A client that reads no answer, because it opens no window for it.
    s = Stream(server)
    s.c._send(h2_client.SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    s.c.send(s.stream, frame(field(LIST, "")))
    a = s.c.wait(s.stream)
    assert a.reset is not None and a.body == b""


def test_streams_do_not_delay_the_end_of_the_server(serve):
    server = serve()
    streams = [Stream(server) for _ in range(20)]
    for s in streams:
        s.ask(LIST, "")
    status, took = server.stop()
    assert status == 0 and took < 5
    assert streams[0].c.wait(streams[0].stream).status == 14


def test_reflection_over_grpc_web(server):
    a = server.post(METHOD.format("v1"), frame(field(LIST, "")), {"Content-Type": "application/grpc-web+proto"})
    assert a.status == 200
    n = int.from_bytes(a.body[1:5], "big")
    assert len(message(message(a.body[5:5 + n])[6][0])[1]) == len(SERVICES)
