# SPDX-License-Identifier: Apache-2.0
"""GET /api/v1/overview: findings with exact numbers, and nothing where chance may be the reason."""

import json
import random
import subprocess
import time

import pytest

from test_api import check, get
from test_growth import NS, Strings, otlp
from test_traces import get_trace, span as one_span

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
WAITS = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"
MS = 1000000
HOSTILE = "<img src=x onerror=alert(1)>\"'&{}"


def profile(service, rows, kind="cpu", labels=None, attributes=None, files=None):
    """rows: [(trace, span, "leaf;…;root", ms, at in ms, attributes of the sample)]; ids as hex, or None."""
    strings, functions, stacks, links, table = Strings([""]), [""], ["[]"], [{}], [{}]
    samples = []

    def index(list_, value):
        if value not in list_:
            list_.append(value)
        return list_.index(value)

    for trace, span, frames, ms, at, *more in rows:
        link = index(links, {"traceId": trace, "spanId": span}) if trace else 0
        own = [index(table, {"keyStrindex": strings.of(k), "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}}) for k, v in {**(attributes or {}), **(more[0] if more else {})}.items()]
        samples.append({"stackIndex": index(stacks, json.dumps([index(functions, f) for f in frames.split(";")])), "linkIndex": link,
                        "attributeIndices": own, "values": [str(int(ms * MS))], "timestampsUnixNano": [str(int(at * MS))]})
    of = {"typeStrindex": strings.of(kind), "unitStrindex": strings.of("nanoseconds")}
    period = {"period": "10000000", "periodType": of} if kind == "cpu" else {}
    resource = {"service.name": service, **(labels or {})}
    files = files or {}
    return json.dumps({
        "resourceProfiles": [{
            "resource": {"attributes": [{"key": k, "value": {"stringValue": v}} for k, v in resource.items()]},
            "scopeProfiles": [{"profiles": [{"sampleType": of, "samples": samples, "timeUnixNano": str(int(rows[0][4] * MS)), **period}]}]}],
        "dictionary": {
            "mappingTable": [{}], "attributeTable": table, "linkTable": links,
            "stackTable": [{"locationIndices": json.loads(s)} for s in stacks],
            "locationTable": [{"lines": [{"functionIndex": i, "line": str(files.get(f, ["", 0])[1])}]} if i else {} for i, f in enumerate(functions)],
            "functionTable": [{"nameStrindex": strings.of(f), "filenameStrindex": strings.of(files.get(f, [""])[0])} for f in functions],
            "stringTable": strings}}).encode()


def push(server, body, path="/v1development/profiles"):
    a = server.request("POST", path, body, {"Content-Type": "application/json"})
    assert a.status == 200 and a.json() == {}, a.text


def spans(server, service, rows):
    """rows: [(number, endpoint, start in ms, ms, failed)]"""
    all_ = [one_span(trace=f"{n:032x}", span=f"{n:016x}", start=start, ms=ms, name=name, **({"status": {"code": 2}} if failed else {}))
            for n, name, start, ms, failed in rows]
    push(server, json.dumps({"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
                                                "scopeSpans": [{"spans": all_}]}]}).encode(), "/v1/traces")


def overview(server, **parameters):
    return get(server, "/api/v1/overview", **parameters)


@pytest.fixture
def at():
    return int(time.time()) * 1000 - 100000


def mail(server, at, n=400, every=40, service="post"):
    """One request in `every` runs 300 ms in check_mail, all others 20 to 30 ms."""
    bad = [i for i in range(n) if i % every == 7]
    spans(server, service, [(1000 + i, "GET /mail", at + 10 * i, 20 + i % 11 + (300 if i in bad else 0), False) for i in range(n)])
    rows = [(f"{1000 + i:032x}", f"{1000 + i:016x}", "parse;handle;main", 20, at + 10 * i) for i in range(n)]
    rows += [(f"{1000 + i:032x}", f"{1000 + i:016x}", "match;check_mail;handle;main", 300, at + 10 * i) for i in bad]
    push(server, profile(service, rows, files={"check_mail": ["/app/mail.py", 12]}))


def test_a_slow_tail_with_its_line(server, at):
    mail(server, at)
    answer = overview(server, **{"from": at - 1000, "to": at + 10000})
    finding, = answer["findings"]
    assert (finding["kind"], finding["service"], finding["endpoint"], finding["requests"]) == ("slow", "post", "GET /mail", 400)
    # One in 40 is slow; above p95 are these ten, and not requests of 30 ms, which are as long as p95 itself.
    assert (finding["p50_ms"], finding["p95_ms"]) == (25, 30) and 320 <= finding["p99_ms"] <= 330
    cause, = finding["causes"]
    assert (cause["of"], cause["name"], cause["file"], cause["line"]) == ("cpu", "check_mail", "/app/mail.py", 12)
    assert cause["ms"] == 300 and 0 < cause["low_ms"] <= 300 <= cause["high_ms"]
    assert 299 < finding["extra_ms"] < 302
    service, = answer["services"]
    assert (service["service"], service["requests"], service["errors"]) == ("post", 400, 0)
    assert service["value"] == (400 * 20 + 10 * 300) * MS == answer["all"]["value"]
    assert answer["checked"] == ["slow", "errors"] and answer["not_computed"] == []


def test_a_slow_tail_that_waits(server, at):
    """By CPU time and by waits, the larger first; of a chain the innermost function whose line is known."""
    mail(server, at)
    rows = [(f"{1000 + i:032x}", f"{1000 + i:016x}", "sleep;check_mail;handle;main", 100, at + 10 * i + 100, {"wait": "sleep"}) for i in range(400) if i % 40 == 7]
    push(server, profile("post", rows, kind="off_cpu", files={"check_mail": ["/app/mail.py", 12]}))
    finding, = overview(server, **{"from": at - 1000, "to": at + 10000})["findings"]
    assert [(c["of"], c["name"], c["line"], c["ms"]) for c in finding["causes"]] == [("cpu", "check_mail", 12, 300), ("waiting", "check_mail", 12, 100)]
    slow = get(server, "/api/v1/slow", service="post", endpoint="GET /mail", type=CPU, also=WAITS, **{"from": at - 1000, "to": at + 10000})
    assert slow["type"] == f"{CPU}+{WAITS}" and slow["rows"][0]["effect"] == 400 * MS and slow["slow"]["value"] == 420 * MS
    assert get(server, "/api/v1/slow", service="post", endpoint="GET /mail", type=CPU, **{"from": at - 1000, "to": at + 10000})["rows"][0]["effect"] == 300 * MS


def test_where_the_time_of_a_request_went(server, at):
    trace, child = f"{7:032x}", f"{71:016x}"
    spans(server, "shop", [(7, "GET /slow", at, 4420, False)])
    push(server, profile("shop", [(trace, f"{7:016x}", "work;main", 750, at + 50)]))
    push(server, profile("shop", [(trace, f"{7:016x}", "take;main", 3200, at + 3400, {"wait": "lock"}), (trace, child, "read;main", 300, at + 3600, {"wait": "network"})],
                         kind="off_cpu"))
    answer = get_trace(server, trace)
    assert answer["spans"][0]["states_ms"] == {"running": 750, "lock": 3200}
    # Of a span that is not stored.
    assert answer["other"]["states_ms"] == {"network": 300}


@pytest.mark.parametrize("n", [3, 40, 99])
def test_few_slow_requests_are_no_finding(server, at, n):
    """Of 99 requests at most four are above p95, and of 3 none."""
    mail(server, at, n, every=41)
    answer = overview(server, **{"from": at - 1000, "to": at + 10000})
    assert answer["findings"] == [] and answer["services"][0]["requests"] == n


def test_requests_as_long_as_each_other_are_no_finding(server, at):
    r = random.Random(3)
    spans(server, "even", [(i + 1, "GET /", at + i, 20 + r.randrange(20), False) for i in range(1000)])
    assert overview(server, **{"from": at - 1000, "to": at + 10000})["findings"] == []


def test_a_tail_without_samples_has_no_cause(server, at):
    spans(server, "blind", [(i + 1, "GET /", at + i, 500 if i % 30 == 0 else 10, False) for i in range(600)])
    finding, = overview(server, **{"from": at - 1000, "to": at + 10000})["findings"]
    assert finding["kind"] == "slow" and finding["causes"] == [] and "extra_ms" not in finding


@pytest.mark.parametrize("failed, all_, found", [(2, 4, False), (3, 1000, False), (12, 340, True)])
def test_errors_with_their_base(server, at, failed, all_, found):
    spans(server, "shop", [(i + 1, "GET /buy", at + i, 10, i < failed) for i in range(all_)])
    got = [(f["kind"], f["requests"], f["errors"]) for f in overview(server, **{"from": at - 1000, "to": at + 10000})["findings"]]
    assert got == ([("errors", all_, failed)] if found else [])


def test_a_lock_that_many_wait_for(server, at):
    rows = [(None, None, "[lock];take;main", 100, at + 100 * i, {"wait": "lock", "lock": "0x1000", "owner": "77", "thread.name": f"t{i % 4}"}) for i in range(40)]
    rows += [(None, None, "[lock];take;main", 100, at + 100 * i, {"wait": "lock", "lock": "0x2000", "owner": "78", "thread.name": "alone"}) for i in range(40)]
    # Threads of a pool that wait for work: nobody has a condition variable.
    rows += [(None, None, "[lock];take;main", 500, at + 100 * i, {"wait": "lock", "lock": "0x3000", "thread.name": f"w{i % 4}"}) for i in range(40)]
    push(server, profile("pool", rows, kind="off_cpu"))
    finding, = overview(server, **{"from": at - 1000, "to": at + 9000})["findings"]
    assert (finding["kind"], finding["service"], finding["lock"], finding["threads"], finding["samples"]) == ("lock", "pool", "0x1000", 4, 40)
    assert finding["waited_ms"] == 4000
    # A hundredth of the time: not worth a sentence.
    assert overview(server, **{"from": at - 1000, "to": at + 90000})["findings"] == []


def test_more_cpu_than_before(server, at):
    for service, before, after in (("grew", 0.3, 1), ("same", 1, 1), ("new", 0, 1), ("tiny", 0.02, 0.04)):
        for begin, cores in ((at, before), (at + 10000, after)):
            if cores:
                n = int(cores * 1000)
                push(server, profile(service, [(None, None, "work;main", 10, begin + 9999 * i / n) for i in range(n)]))
    answer = overview(server, **{"from": at + 10000, "to": at + 20000})
    finding, = answer["findings"]
    assert (finding["kind"], finding["service"], finding["value"], finding["before"]) == ("cpu", "grew", 10000 * MS, 3000 * MS)
    assert "cpu" in answer["checked"]
    # The time before is not stored from its beginning on: then nothing is compared.
    answer = overview(server, **{"from": at + 10000, "to": at + 30000})
    assert answer["findings"] == [] and "cpu" not in answer["checked"] and "before" not in answer["services"][0]


def test_memory_that_grows(server):
    begin = (int(time.time()) // 10 - 61) * 10
    for i in range(60):
        push(server, otlp((begin + 10 * i + 1) * NS, {("malloc", "leak", "main"): 10e6 + 1e6 * i, ("malloc", "keep", "main"): 5e6}))
        push(server, otlp((begin + 10 * i + 1) * NS, {("malloc", "keep", "main"): 5e6 + i % 2}, service="calm", pid=11))
    finding, = overview(server, **{"from": begin * 1000, "to": (begin + 600) * 1000})["findings"]
    assert (finding["kind"], finding["service"]) == ("growth", "shop") and 99000 < finding["slope"] < 101000
    assert finding["where"]["name"] == "leak" and finding["where"]["file"] == "/src/leak.c"


def test_processes_without_a_name_are_one_row(server, at):
    def cpu(name, ms, executable=None, pid=None):
        # The store tells threads apart that live for half a minute.
        for when in (at, at + 40000) if pid else (at,):
            push(server, profile(name, [(None, None, "work;main", ms / (2 if pid else 1), when)],
                                 labels={"process.executable.name": executable} if executable else {},
                                 attributes={"process.pid": pid, "thread.id": pid} if pid else None))

    cpu("shop", 5, "python3")        # named, however small
    cpu("postgres", 500, "postgres", 77)  # unnamed, but it lives long and takes much
    cpu("sshd", 6, "sshd", 78)     # lives long, takes little
    cpu("awk", 300, "awk")           # short-lived
    cpu("pushed", 10)                # of an SDK, which gives it this name
    answer = overview(server, **{"from": at - 1000, "to": at + 50000})
    assert [s["service"] for s in answer["services"]] == ["postgres", "pushed", "shop"]
    assert answer["small"] == {"processes": 2, "value": 306 * MS, "samples": 32}
    # Nothing is lost: the rows add up.
    assert answer["all"]["value"] == 821 * MS == answer["small"]["value"] + sum(s["value"] for s in answer["services"])


def test_culprit_itself_is_left_out_unless_asked_for(server, at):
    push(server, profile("shop", [(None, None, "work;main", 50, at)]))
    push(server, profile("culprit", [(None, None, "sample;main", 30, at)], attributes={"culprit.self": "true"}))
    which = {"from": at - 1000, "to": at + 10000}
    answer = overview(server, **which)
    assert [s["service"] for s in answer["services"]] == ["shop"] and answer["all"]["value"] == 50 * MS
    assert answer["self"] == {"processes": 1, "value": 30 * MS, "samples": 3}
    answer = overview(server, with_culprit="true", **which)
    assert [s["service"] for s in answer["services"]] == ["shop", "culprit"] and answer["all"]["value"] == 80 * MS and "self" not in answer


def test_nothing_stored_and_an_empty_range(server, at):
    answer = overview(server)
    assert (answer["first"], answer["findings"], answer["services"], answer["checked"]) == (0, [], [], [])
    push(server, profile("shop", [(None, None, "work;main", 50, at)]))
    answer = overview(server, **{"from": at - 90000, "to": at - 80000})
    assert answer["first"] > 0 and answer["services"] == [] and answer["all"]["value"] == 0


def test_500_services_and_hostile_names(server, at):
    for i in range(500):
        push(server, profile(f"s{i}", [(None, None, "work;main", 10 + i, at)]))
    spans(server, HOSTILE, [(i + 1, HOSTILE, at + i, 10, i < 100) for i in range(340)])
    which = {"from": at - 1000, "to": at + 10000}
    answer = overview(server, **which)
    assert len(answer["services"]) == 100 and answer["n_services"] == 501 and answer["services"][0]["service"] == "s499"
    assert answer["all"]["value"] == sum(10 + i for i in range(500)) * MS
    assert [(f["service"], f["endpoint"]) for f in answer["findings"]] == [(HOSTILE, HOSTILE)]
    assert len(overview(server, limit=1000, **which)["services"]) == 501


def test_parameters_and_roles(serve, tmp_path):
    (tmp_path / "tokens").write_text("read secret-of-readers\nwrite secret-of-agents\n")
    server = serve("--token-file", tmp_path / "tokens")
    assert server.get("/api/v1/overview").status == 401
    assert server.get("/api/v1/overview", {"Authorization": "Bearer secret-of-agents"}).status == 403
    reader = {"Authorization": "Bearer secret-of-readers"}
    assert check(server.get("/api/v1/overview", reader), "/api/v1/overview").status == 200
    for bad in ({"limit": "0"}, {"limit": "1001"}, {"from": "x"}, {"with_culprit": "maybe"}, {"query": "{}"}):
        assert check(server.get("/api/v1/overview", reader, **bad), "/api/v1/overview").status == 400


def test_links_of_a_trace_to_other_tools(serve, executable, at):
    links = "Jaeger=https://jaeger.example/trace/{trace}  Grafana=http://g/?a={trace}&b={span}"
    server = serve("--trace-links", links)
    spans(server, "shop", [(1, "GET /", at, 10, False)])
    assert get_trace(server, f"{1:032x}")["links"] == [{"name": "Jaeger", "url": "https://jaeger.example/trace/{trace}"},
                                                       {"name": "Grafana", "url": "http://g/?a={trace}&b={span}"}]
    for bad in ("Jaeger", "=https://x/{trace}", "J=javascript:alert(1)//{trace}", "J=https://x/", "J=//x/{trace}", "J=https://x/{trace} K=ftp://x/{trace}",
                "J=https://x/{trace}" + "y" * 600):
        out = subprocess.run([executable, "server", "--data-dir", "/nonexistent", "--trace-links", bad], capture_output=True, text=True, timeout=60)
        assert out.returncode == 2 and "--trace-links: each link is NAME=URL" in out.stderr, (bad, out.stderr)
