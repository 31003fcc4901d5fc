# SPDX-License-Identifier: Apache-2.0
"""Ingestion: files of every format, Pyroscope's /ingest, OTLP over gRPC and HTTP, recordings of real JVMs. The tests
read the stored samples through the export."""

import collections
import gzip
import json
import os
import re
import shutil
import subprocess
import time

import h2_client
import pytest

from wire import field, varint

HERE = os.path.dirname(os.path.abspath(__file__))
EXPORT = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
FOLDED = "app;main;work;inner 30\napp;main;work 5\napp;main;idle 10\n"
BARE = "main;idle 10\nmain;work 5\nmain;work;inner 30\n"


def folded(server, service, type=None, **more):
    """Returns {stack without its service: value} of a service's samples."""
    a = server.get("/api/v1/export", format="folded", query='{service_name="%s"}' % service,
                   **({"type": type} if type else {}), **{"from": "now-1h", **more})
    assert a.status == 200, a.text
    out = {}
    for line in a.text.splitlines():
        stack, _, value = line.rpartition(" ")
        head, _, rest = stack.partition(";")
        assert head == service
        out[rest] = int(value)
    return out


WANT = {"main;work;inner": 30, "main;work": 5, "main;idle": 10}


# ---- files ----

@pytest.mark.parametrize("ending", [".folded", ".pb.gz", ".speedscope.json", ".folded.gz"])
def test_uploads(server, convert, ending):
    data = convert(FOLDED, ending)
    a = server.post("/api/v1/upload", data, labels="service.name=shop,host.name=a b,empty=")
    assert a.status == 200, a.text
    assert folded(server, "shop") == WANT
    names = {n["name"]: n["series"] for n in server.get("/api/v1/labels").json()["labels"]}
    assert names["host.name"] == 1 and names["process.executable.name"] == 1
    # The same request counts once: a client that lost the answer may repeat it.
    stats = server.get("/api/v1/stats").json()
    assert server.post("/api/v1/upload", data, labels="service.name=shop,host.name=a b,empty=").status == 200
    assert server.get("/api/v1/stats").json()["store"]["series"] == stats["store"]["series"]


def test_upload_with_times(server, convert):
    at = int(time.time()) - 7200
    data = convert(FOLDED, ".folded")
    params = {"labels": "service.name=old", "from": at, "to": at + 60}
    assert server.post("/api/v1/upload", data, **params).status == 200
    assert folded(server, "old") == {}
    assert folded(server, "old", **{"from": at - 1, "to": at + 61}) == WANT
    for _ in range(3):  # has its own token: written once
        assert server.post("/api/v1/upload", data, **params).status == 200
    assert folded(server, "old", **{"from": at - 1, "to": at + 61}) == WANT


def test_a_process_is_its_service_when_nothing_is_said(server):
    assert server.post("/api/v1/upload", b"nginx;a 1\npostgres;b 2\n").status == 200
    assert folded(server, "nginx") == {"a": 1} and folded(server, "postgres") == {"b": 2}


@pytest.mark.parametrize("data,status", [
    (b"", 400), (b"\0\1\2\3", 400), (b"not a profile at all", 400), (b"FLR\0\0\2\0\0" + b"\0" * 59 + b"\1", 400),
    (b"FLR\0\0\7" + b"\0" * 100, 415),
    (gzip.compress(b""), 400), (b"{}", 400)])
def test_what_is_no_profile_is_told(server, data, status):
    a = server.post("/api/v1/upload", data)
    assert a.status == status and a.json()["message"], a.text
    assert server.get("/api/v1/stats").json()["store"]["rows"] == 0


@pytest.mark.parametrize("labels", ["=x", "novalue", "a=" + "x" * 5000, ",".join(f"l{i}=x" for i in range(200)),
                                    'a="open'])
def test_wrong_labels_are_told(server, labels):
    a = server.post("/api/v1/upload", FOLDED.encode(), labels=labels)
    assert a.status in (400, 413) and a.json()["message"], a.text


# ---- /ingest ----

@pytest.mark.parametrize("format", ["folded", "groups", None])
def test_ingest_folded(server, format):
    params = {"name": 'legacy.app.cpu{env=prod,"odd=x}', "sampleRate": 50}
    params["name"] = "legacy.app.cpu{env=prod,zone=eu-1}"
    if format:
        params["format"] = format
    assert server.post("/ingest", BARE.encode(), **params).status == 200
    tick = 1_000_000_000 // 50
    assert folded(server, "legacy.app", CPU) == {k: v * tick for k, v in WANT.items()}
    values = server.get("/api/v1/label-values", label="zone").json()["values"]
    assert [v["name"] for v in values] == ["eu-1"]


def test_ingest_lines_and_other_kinds(server):
    assert server.post("/ingest", b"a;b\na;b\r\na;c\n\n", name="lines", format="lines").status == 200
    assert folded(server, "lines", CPU) == {"a;b": 2 * 10_000_000, "a;c": 10_000_000}
    assert server.post("/ingest", b"a;b 512\n", name="mem.inuse_space", format="folded").status == 200
    assert folded(server, "mem", "memory:inuse_space:bytes:space:bytes") == {"a;b": 512}


def test_ingest_pprof(server, convert):
    pprof = convert(FOLDED, ".pb.gz")
    assert server.post("/ingest", pprof, name="p{service_name=named}", format="pprof").status == 200
    assert folded(server, "named") == WANT
    boundary = "----culprit"
    form = (f'--{boundary}\r\nContent-Disposition: form-data; name="sample_type_config"\r\n\r\n{{}}\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="profile"; filename="profile.pprof"\r\n'
            f"Content-Type: application/octet-stream\r\n\r\n").encode() + pprof + f"\r\n--{boundary}--\r\n".encode()
    header = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    for service, params in (("form", {"format": "pprof"}), ("formless", {})):
        a = server.post("/ingest", form, header, name=service, **params)
        assert a.status == 200, a.text
        assert folded(server, service) == WANT
    cut = form[:-30]
    assert server.post("/ingest", cut, header, name="cut").status == 400
    old = form.replace(b'name="sample_type_config"', b'name="prev_profile"')
    assert server.post("/ingest", old, header, name="old").status == 415


@pytest.mark.parametrize("params,status", [
    ({}, 400), ({"name": ""}, 400), ({"name": "a{b"}, 400), ({"name": "{a=b}"}, 400),
    ({"name": "a", "format": "trie"}, 415), ({"name": "a", "sampleRate": 0}, 400),
    ({"name": "a", "sampleRate": "x"}, 400), ({"name": "a" * 9000}, 400),
    ({"name": "a", "format": "../../etc/passwd"}, 415)])
def test_wrong_ingest_is_told(server, params, status):
    a = server.post("/ingest", b"a;b 1\n", **params)
    assert a.status == status and a.json()["message"], a.text


# ---- OTLP ----

def test_otlp_without_content_type(server):
    for port in (server.port, server.ports["otlp-http"]):
        a = server.request("POST", "/v1development/profiles", b"", {"Content-Type": "text/plain"}, port=port)
        assert a.status == 415
        a = server.request("POST", "/v1development/profiles", b"\xff\xff",
                           {"Content-Type": "application/x-protobuf"}, port=port)
        assert a.status == 400 and a.headers["Content-Type"] == "application/x-protobuf"
        assert a.body[:1] == b"\x08"  # google.rpc.Status
        a = server.request("POST", "/v1development/profiles", b"{", {"Content-Type": "application/json"}, port=port)
        assert a.status == 400 and a.json()["message"]
        a = server.request("POST", "/v1development/profiles", b"{}", {"Content-Type": "application/json"}, port=port)
        assert a.status == 200 and a.json() == {}


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/logs"])
def test_other_signals_are_not_pretended(server, path):
    a = server.post(path, b"", {"Content-Type": "application/x-protobuf"})
    assert a.status == 501  # not one of those that OTLP's clients send again


def otlp_request(service, stacks, at_ns, types=("samples",), **resource):
    """Makes a request by the field numbers of opentelemetry-proto 1.10: a profile of each type, each stack with a value."""
    strings, functions, locations, stack_table, samples = ["", types[0], "count", "cpu", "nanoseconds", *types[1:]], [], [], [], []

    def intern(table, x):
        if x not in table:
            table.append(x)
        return table.index(x)

    for stack, value in stacks.items():
        ids = []
        for name in reversed(stack.split(";")):
            intern(strings, name)
            intern(functions, name)
            ids.append(intern(locations, name) + 1)
        stack_table.append(b"".join(varint(i) for i in ids))
        samples.append(field(1, len(stack_table)) + field(4, varint(value)))
    dictionary = field(1, b"") + field(2, b"")
    for name in locations:
        dictionary += field(2, field(3, field(1, functions.index(name) + 1)))
    dictionary += field(3, b"")
    for name in functions:
        dictionary += field(3, field(1, strings.index(name)))
    dictionary += field(4, b"") + b"".join(field(5, s) for s in strings) + field(6, b"") + field(7, b"")
    dictionary += b"".join(field(7, field(1, s)) for s in stack_table)
    profile = b"".join(field(2, s) for s in samples) + varint(3 << 3 | 1) + at_ns.to_bytes(8, "little") + field(4, 10**9)
    profile += field(5, field(1, 3) + field(2, 4)) + field(6, 10**7) + field(7, bytes(range(16)))
    profiles = b"".join(field(2, field(1, field(1, strings.index(t)) + field(2, 2)) + profile) for t in types)
    resource = {"service.name": service, **resource}
    resource = b"".join(field(1, field(1, k) + field(2, field(1, v))) for k, v in resource.items())
    return field(1, field(1, resource) + field(2, profiles)) + field(2, dictionary)


@pytest.mark.parametrize("encoding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("way", ["http", "api", "grpc"])
def test_otlp(server, way, encoding):
    data = otlp_request("sent", WANT, time.time_ns() - 10**10)
    if encoding == "gzip":
        data = gzip.compress(data)
    elif encoding:
        data = subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout
    if way == "grpc":
        c = h2_client.Connection(server.ports["otlp-grpc"])
        a = c.call(EXPORT, data, encoding is not None, [("grpc-encoding", encoding)] if encoding else [])
        assert a.status == 0, a.message
        assert a.body == b"\0\0\0\0\0"  # an empty response: nothing was rejected
    else:
        headers = {"Content-Type": "application/x-protobuf", **({"Content-Encoding": encoding} if encoding else {})}
        a = server.request("POST", "/v1development/profiles", data, headers,
                           port=server.port if way == "api" else server.ports["otlp-http"])
        assert a.status == 200 and a.body == b"", a.text
    assert folded(server, "sent") == WANT
    assert [t["name"] for t in server.get("/api/v1/types").json()["types"]]


# ---- JFR ----

@pytest.fixture(scope="session")
def recording(tmp_path_factory):
    java = shutil.which("java")
    if not java or not shutil.which("jfr") or not shutil.which("javac"):
        pytest.skip("no JDK with jfr here")
    d = tmp_path_factory.mktemp("jfr")
    (d / "profile.jfc").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><configuration version="2.0"><event name="jdk.ExecutionSample">'
        '<setting name="enabled">true</setting><setting name="period">10 ms</setting></event>'
        '<event name="jdk.ActiveSetting"><setting name="enabled">true</setting></event>'
        '<event name="jdk.NativeMethodSample"><setting name="enabled">true</setting>'
        '<setting name="period">10 ms</setting></event></configuration>')
    subprocess.run(["javac", "-encoding", "UTF-8", "-d", str(d), f"{HERE}/java/Recorded.java"], check=True,
                   timeout=300)
    out = d / "r.jfr"
    for milliseconds in (3000, 30000):  # a busy machine may give too little in the first
        subprocess.run([java, f"-XX:StartFlightRecording=filename={out},settings={d}/profile.jfc",
                        "-XX:FlightRecorderOptions=stackdepth=200", "-Dfile.encoding=UTF-8", "-cp", str(d),
                        "Recorded", str(milliseconds)], check=True, capture_output=True, timeout=300)
        text = subprocess.run(["jfr", "print", "--json", "--stack-depth", "1000", "--events",
                               "jdk.ExecutionSample", str(out)], capture_output=True, text=True, check=True,
                              timeout=300).stdout
        events = json.loads(text)["recording"]["events"]
        if len(events) >= 50:
            break
    return out, events


def expected_stacks(events):
    out = collections.Counter()
    for e in events:
        trace = e["values"]["stackTrace"]
        frames = [f["method"]["type"]["name"].replace("/", ".") + "." + f["method"]["name"]
                  for f in trace["frames"]]
        if trace["truncated"]:
            frames.append("[truncated: too many frames]")
        out[";".join(reversed(frames))] += 1
    return out


def clean(stacks):
    """Normalises names of lambda classes, in which tools write the address differently."""
    out = collections.Counter()
    for k, v in stacks.items():
        out[re.sub(r"\$\$Lambda[^;]*?\.(?=\w+(;|$))", "$$Lambda.", k)] += v
    return out


@pytest.mark.slow
def test_jfr(server, recording):
    """The server reads the same stacks as the JDK's own tool."""
    path, events = recording
    want = clean(expected_stacks(events))
    assert len(events) >= 50 and any("Recorded.inner" in k for k in want)
    assert any(k.count("Recorded.deep") > 90 for k in want)
    data = path.read_bytes()
    assert server.post("/api/v1/upload", data, labels="service.name=jvm").status == 200
    assert clean(folded(server, "jvm", "process_cpu:samples:count:cpu:nanoseconds")) == want
    assert server.post("/ingest", data, name="via.cpu", format="jfr").status == 200
    period = 10**7  # of recording()
    for service in ("jvm", "via"):
        assert clean(folded(server, service, "process_cpu:cpu:nanoseconds:cpu:nanoseconds")) == {
            k: n * period for k, n in want.items()}
    total = sum(want.values()) * period
    assert server.get("/api/v1/top", query='{service_name="jvm"}').json()["total"] == total
    threads = {v["name"] for v in server.get("/api/v1/label-values", label="thread.name").json()["values"]}
    assert threads >= {"main", "zweiter Fa\u0308den \u65e5\u672c"}
    # Each at its time: not all of them in one second.
    points = server.get("/api/v1/series", query='{service_name="jvm"}', step=1000,
                        **{"from": "now-1h"}).json()["series"][0]["points"]
    assert len(points) >= 3 and sum(p[1] for p in points) == total


@pytest.mark.slow
def test_jfr_lines(executable, recording, tmp_path):
    path, events = recording
    out = tmp_path / "p.pb.gz"
    subprocess.run([executable, "convert", str(path), str(out)], check=True, timeout=60)
    text = subprocess.run([executable, "convert", str(out), "--format", "speedscope", "-"], check=True, timeout=60,
                          capture_output=True, text=True).stdout
    got = {(f["name"], f.get("line")) for f in json.loads(text)["shared"]["frames"]}
    want = {(f["method"]["type"]["name"].replace("/", ".") + "." + f["method"]["name"], f["lineNumber"] or None)
            for e in events for f in e["values"]["stackTrace"]["frames"]
            if f["method"]["type"]["name"] == "Recorded"}
    assert want and want <= got


# Event: its type in the store, the field that has the value, and the type of its number.
JDK_EVENTS = {
    "jdk.JavaMonitorEnter": ("mutex:delay:nanoseconds:mutex:count", "duration", "mutex:contentions:count:mutex:count"),
    "jdk.ThreadPark": ("block:delay:nanoseconds:block:count", "duration", "block:contentions:count:block:count"),
    "jdk.ObjectAllocationSample": ("memory:alloc_sample_bytes:bytes:space:bytes", "weight",
                                   "memory:alloc_sample_objects:count:space:bytes"),
    "jdk.ObjectAllocationInNewTLAB": ("memory:alloc_in_new_tlab_bytes:bytes:space:bytes", "tlabSize",
                                      "memory:alloc_in_new_tlab_objects:count:space:bytes"),
    "jdk.ObjectAllocationOutsideTLAB": ("memory:alloc_outside_tlab_bytes:bytes:space:bytes", "allocationSize",
                                        "memory:alloc_outside_tlab_objects:count:space:bytes"),
}


def seconds(duration):
    """Of ISO 8601: PT0.030123S, PT1M2.5S."""
    m = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", duration)
    return sum(float(v or 0) * k for v, k in zip(m.groups(), (3600, 60, 1)))


def jdk_events(path, name):
    """Returns [(stack, value)] of a class of events, by the JDK's own tool."""
    text = subprocess.run(["jfr", "print", "--json", "--stack-depth", "1000", "--events", name, str(path)],
                          capture_output=True, text=True, check=True, timeout=300).stdout
    field = JDK_EVENTS[name][1]
    out = []
    for e in json.loads(text)["recording"]["events"]:
        v = e["values"][field]
        one = {"values": {"stackTrace": e["values"]["stackTrace"] or {"frames": [], "truncated": False}}}
        out.append((next(iter(expected_stacks([one]))), seconds(v) * 1e9 if field == "duration" else v))
    return out


def stored(server, service, type_):
    types = {t["name"] for t in server.get("/api/v1/types", query=f'{{service_name="{service}"}}').json()["types"]}
    return clean(folded(server, service, type_)) if type_ in types else collections.Counter()


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["default", "profile", "tlab"])
def test_jdk_settings(server, tmp_path, settings):
    """What the JDK records with its own settings: running, waiting and allocating, each as its type with the values of `jfr print`."""
    if not all(map(shutil.which, ("java", "jfr", "javac"))):
        pytest.skip("no JDK with jfr here")
    if settings == "tlab":
        (tmp_path / "tlab.jfc").write_text('<?xml version="1.0" encoding="UTF-8"?><configuration version="2.0">' + "".join(
            f'<event name="{e}"><setting name="enabled">true</setting><setting name="stackTrace">true</setting></event>'
            for e in ("jdk.ObjectAllocationInNewTLAB", "jdk.ObjectAllocationOutsideTLAB", "jdk.Deoptimization"))
            + "</configuration>")
    out = tmp_path / "r.jfr"
    subprocess.run(["javac", "-d", str(tmp_path), f"{HERE}/java/Contended.java"], check=True, timeout=300)
    subprocess.run(["java", f"-XX:StartFlightRecording=filename={out},settings="
                    + (f"{tmp_path}/tlab.jfc" if settings == "tlab" else settings), "-cp", str(tmp_path), "Contended", "4000"],
                   check=True, capture_output=True, timeout=300)
    service = f"jdk-{settings}"
    assert server.post("/api/v1/upload", out.read_bytes(), labels=f"service.name={service}").status == 200
    seen = 0
    for name, (value_type, _, count_type) in JDK_EVENTS.items():
        events = jdk_events(out, name)
        values, counts = collections.Counter(), collections.Counter()
        for stack, v in events:
            values[stack] += v
            counts[stack] += 1
        got = stored(server, service, value_type)
        assert stored(server, service, count_type) == clean(counts), name
        want = {k: v for k, v in clean(values).items() if v >= 1}
        assert set(got) == set(want), name
        assert all(abs(got[k] - v) <= 1e-6 * v + counts[k] * 1000 for k, v in want.items()), name
        seen += bool(events)
    assert seen == (2 if settings == "tlab" else 3)


@pytest.mark.slow
def test_damaged_recordings(server, recording):
    """A recording that is truncated anywhere, or has any byte changed, is refused or read, and the server goes on."""
    data = recording[0].read_bytes()
    assert server.post("/api/v1/upload", data[:-1]).status == 400
    assert server.post("/api/v1/upload", data[:len(data) // 2]).status == 400
    for i in range(0, len(data), max(len(data) // 150, 1)):
        broken = bytearray(data)
        broken[i] ^= 0xff
        assert server.post("/api/v1/upload", bytes(broken), labels=f"service.name=b{i}").status in (200, 400, 413, 415)
    assert server.get("/healthz").status == 200


def test_otlp_partial_success(server):
    """A profile that refers to a missing stack is refused and reported; the other profile is stored."""
    good = otlp_request("good", WANT, time.time_ns() - 10**10)
    bad_profile = field(1, field(1, 1) + field(2, 2)) + field(2, field(1, 99) + field(4, varint(1)))
    bad_profile += varint(3 << 3 | 1) + (time.time_ns() - 10**10).to_bytes(8, "little") + field(4, 10**9)
    bad = field(1, field(2, field(2, bad_profile)))
    a = server.post("/v1development/profiles", bad + good, {"Content-Type": "application/x-protobuf"})
    assert a.status == 200, a.text
    # ExportProfilesServiceResponse: partial_success = 1 {rejected_profiles = 1, error_message = 2}
    assert a.body[0] == 0x0a and a.body[2:4] == b"\x08\x01" and a.body[4] == 0x12, a.body
    assert folded(server, "good") == WANT
