# SPDX-License-Identifier: Apache-2.0
"""Types of values besides CPU time: a profile of page faults, like that of an agent with `--event page-faults`, is
sent in every format and has the same types, units and groups afterwards."""

import base64
import json
import os
import time

import pytest

from test_otlp import export
from wire import field, varint

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
FAULTS = "page_faults:page_faults:count:page_faults:count"
FAULT_SAMPLES = "page_faults:samples:count:page_faults:count"
SWITCHES = "sched_sched_switch:sched_sched_switch:count:sched_sched_switch:count"
TRACED = "sched_sched_switch:samples:count:sched_sched_switch:count"
# {stack, leaf last: (number of samples, number of events)}
STACKS = {"main;read;copy": (3, 300), "main;grow": (1, 120)}
VALUES = {stack: value for stack, (_, value) in STACKS.items()}
COUNTS = {stack: count for stack, (count, _) in STACKS.items()}


class Strings(list):
    def of(self, text):
        if text not in self:
            self.append(text)
        return self.index(text)


# ---- ingestion ----

def otlp(service, stacks, types, period, at_s=None):
    """One Profile for each of the types, by their order in the values of the stacks."""
    strings, functions = Strings([""]), Strings([""])
    tables = [[functions.of(name) for name in reversed(stack.split(";"))] for stack in stacks]
    at = str(int((at_s or time.time() - 10) * 1e9))

    def kind(name, unit):
        return {"typeStrindex": strings.of(name), "unitStrindex": strings.of(unit)}

    profiles = [{"sampleType": kind(*t), "periodType": kind(*period), "period": "100", "timeUnixNano": at, "samples": [
        {"stackIndex": k + 1, "values": [str(values[i])], "timestampsUnixNano": [at]}
        for k, values in enumerate(stacks.values())]} for i, t in enumerate(types)]
    return {
        "resourceProfiles": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
            "scopeProfiles": [{"profiles": profiles}]}],
        "dictionary": {
            "mappingTable": [{}], "attributeTable": [{}], "linkTable": [{}],
            "stackTable": [{}] + [{"locationIndices": t} for t in tables],
            "locationTable": [{"lines": [{"functionIndex": i}]} if i else {} for i in range(len(functions))],
            "functionTable": [{"nameStrindex": strings.of(f)} for f in functions], "stringTable": strings}}


def send_otlp(server, *args, **more):
    a = server.request("POST", "/v1development/profiles", json.dumps(otlp(*args, **more)).encode(),
                       {"Content-Type": "application/json"})
    assert a.status == 200 and a.json() == {}, a.text


def pprof(stacks, types, period, at_s=None):
    """By the field numbers of profile.proto. Times differ, so that no two files are the same bytes."""
    strings, functions = Strings([""]), Strings([""])

    def kind(name, unit):
        return field(1, strings.of(name)) + field(2, strings.of(unit))

    out = b"".join(field(1, kind(*t)) for t in types)
    for stack, values in stacks.items():
        ids = b"".join(varint(functions.of(name)) for name in reversed(stack.split(";")))
        out += field(2, field(1, ids) + field(2, b"".join(varint(v) for v in values)))
    for i, name in enumerate(functions):
        if i:
            out += field(4, field(1, i) + field(4, field(1, i))) + field(5, field(1, i) + field(2, strings.of(name)))
    out += field(9, int((at_s or time.time() - 10) * 1e9)) + field(11, kind(*period)) + field(12, 100)
    return out + b"".join(field(6, s) for s in strings)


AGENTS = ([("samples", "count"), ("page_faults", "count")], ("page_faults", "count"))


def by_otlp(server):
    send_otlp(server, "shop", STACKS, *AGENTS)


def by_exporter(server, url):
    """Sends the profiles through an exporter of the agent, one by one."""
    path = os.path.join(server.directory, "faults.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(otlp("shop", STACKS, *AGENTS), f)
    e = export(url, path)
    assert (e.sent, e.dropped, e.error) == (2, 0, "")


def by_otlp_exporter(server):
    by_exporter(server, f"otlp://127.0.0.1:{server.ports['otlp-grpc']}")


def by_pyroscope_exporter(server):
    by_exporter(server, f"pyroscope://127.0.0.1:{server.port}")


def by_push(server):
    labels = [{"name": "__name__", "value": "page_faults"}, {"name": "service_name", "value": "shop"}]
    raw = base64.b64encode(pprof(STACKS, *AGENTS)).decode()
    a = server.post("/push.v1.PusherService/Push", json.dumps(
        {"series": [{"labels": labels, "samples": [{"rawProfile": raw}]}]}).encode(),
        {"Content-Type": "application/json"})
    assert a.status == 200, a.text


def by_ingest(server):
    text = "".join(f"{stack} {value}\n" for stack, value in VALUES.items())
    a = server.post("/ingest", text.encode(), name="shop.page_faults{env=prod}", format="folded")
    assert a.status == 200, a.text


def by_upload(server):
    a = server.post("/api/v1/upload", pprof(STACKS, *AGENTS), labels="service.name=shop")
    assert a.status == 200, a.text


# ---- exports ----

def get(server, path, **parameters):
    a = server.get(path, **parameters)
    assert a.status == 200, a.text
    return a.json()


def types(server):
    return {t["name"]: {k: v for k, v in t.items() if k not in ("name", "series", "last")}
            for t in get(server, "/api/v1/types")["types"]}


def folded(server, **parameters):
    a = server.get("/api/v1/export", format="folded", query='{service_name="shop"}', **parameters)
    assert a.status == 200, a.text
    rows = (line.rpartition(" ") for line in a.text.splitlines())
    return {stack.removeprefix("shop;"): int(value) for stack, _, value in rows}


def querier(server, method, **arguments):
    a = server.post(f"/querier.v1.QuerierService/{method}", json.dumps(
        {"start": int(time.time() - 3600) * 1000, "end": int(time.time() + 60) * 1000, **arguments}).encode(),
        {"Content-Type": "application/json"})
    assert a.status == 200, a.text
    return a.json()


def flame_totals(graph):
    """Returns {name: total} of a flame graph of Pyroscope."""
    out = {}
    for level in graph["levels"]:
        bars = [int(v) for v in level["values"]]
        for i in range(0, len(bars), 4):
            out[graph["names"][bars[i + 3]]] = bars[i + 1]
    return out


@pytest.mark.parametrize("send", [by_otlp, by_otlp_exporter, by_pyroscope_exporter, by_push, by_ingest, by_upload])
def test_page_faults(server, send):
    send(server)
    assert types(server) == {
        FAULTS: {"label": "Page faults", "unit": "count", "rate": "faults", "is_cpu": False, "adds": "over_time"},
        FAULT_SAMPLES: {"label": "Samples (Page faults)", "unit": "count", "rate": "samples", "is_cpu": False,
                        "adds": "over_time"}}
    # Folded text has no number of samples: a value counts as so many samples.
    assert folded(server, type=FAULT_SAMPLES) == (VALUES if send is by_ingest else COUNTS)
    assert folded(server, type=FAULTS) == folded(server) == VALUES
    graph = get(server, "/api/v1/flamegraph")
    assert (graph["type"], graph["unit"], graph["nodes"]["total"][0]) == ("page_faults", "count", 420)
    lines = get(server, "/api/v1/series", type=FAULTS, group_by="service.name")["series"]
    assert [(line["labels"]["service.name"], sum(p[1] for p in line["points"])) for line in lines] == [("shop", 420)]

    listed = querier(server, "ProfileTypes")["profileTypes"]
    assert {t["ID"] for t in listed} == {FAULTS, FAULT_SAMPLES}
    assert next(t for t in listed if t["ID"] == FAULTS) == {
        "ID": FAULTS, "name": "page_faults", "sampleType": "page_faults", "sampleUnit": "count",
        "periodType": "page_faults", "periodUnit": "count"}
    graph = querier(server, "SelectMergeStacktraces", profileTypeID=FAULTS,
                    labelSelector='{service_name="shop"}')["flamegraph"]
    assert flame_totals(graph) == {"total": 420, "main": 420, "read": 300, "copy": 300, "grow": 120}
    points = querier(server, "SelectSeries", profileTypeID=FAULTS, labelSelector="{}", step=60)["series"][0]["points"]
    assert sum(p["value"] for p in points) == 420

    cost = get(server, "/api/v1/cost")
    assert cost["note"] == "there is no CPU time in this range"
    assert cost["total"]["cpu_seconds"] == 0 and cost["rows"] == []
    a = server.get("/api/v1/cost", type=FAULTS)
    assert a.status == 400 and FAULTS in a.json()["message"]


def test_cpu_time_is_the_default(server):
    """CPU time is the default, regardless of the numbers of samples and the names of other types."""
    by_otlp(server)
    assert get(server, "/api/v1/flamegraph")["type"] == "page_faults"
    send_otlp(server, "shop", {"main;spin": (2, 20_000_000)}, [("samples", "count"), ("cpu", "nanoseconds")],
              ("cpu", "nanoseconds"))
    graph = get(server, "/api/v1/flamegraph")
    assert (graph["type"], graph["unit"], graph["nodes"]["total"][0]) == ("cpu", "nanoseconds", 20_000_000)
    assert folded(server) == {"main;spin": 20_000_000}
    assert folded(server, type=FAULTS) == VALUES
    assert types(server)[CPU] == {"label": "CPU", "unit": "nanoseconds", "rate": "cores", "is_cpu": True,
                                  "adds": "over_time"}
    assert types(server)["process_cpu:samples:count:cpu:nanoseconds"]["label"] == "Samples"
    cost = get(server, "/api/v1/cost")
    assert cost["type"] == CPU and cost["total"]["cpu_seconds"] == 0.02


def test_only_cpu_time_has_a_price(server):
    """CPU time has a price; other types of time, such as waiting, have none."""
    text = b"main;wait 100\n"
    assert server.post("/ingest", text, name="shop.wall").status == 200
    assert types(server)["wall:wall:nanoseconds:wall:nanoseconds"]["is_cpu"] is False
    assert get(server, "/api/v1/cost")["rows"] == []
    assert server.get("/api/v1/cost", type="wall:wall:nanoseconds:wall:nanoseconds").status == 400


@pytest.mark.parametrize("unit,value", [("nanoseconds", 3_000_000_000), ("milliseconds", 3000), ("seconds", 3)])
def test_cpu_time_in_any_unit(server, unit, value):
    send_otlp(server, "shop", {"main;spin": (value,)}, [("cpu", unit)], ("cpu", unit))
    listed = types(server)
    assert list(listed) == [f"process_cpu:cpu:{unit}:cpu:{unit}"]
    assert [(t["unit"], t["is_cpu"]) for t in listed.values()] == [(unit, True)]
    assert get(server, "/api/v1/cost")["total"]["cpu_seconds"] == 3


def test_events_under_their_own_name(server):
    """Tracepoints are not in the table of types: the server uses their own names."""
    send_otlp(server, "shop", STACKS, [("samples", "count"), ("sched_sched_switch", "count")],
              ("sched_sched_switch", "count"))
    assert types(server) == {
        SWITCHES: {"label": "sched_sched_switch", "unit": "count", "rate": "sched_sched_switch", "is_cpu": False,
                   "adds": "over_time"},
        TRACED: {"label": "Samples (sched_sched_switch)", "unit": "count", "rate": "samples", "is_cpu": False,
                 "adds": "over_time"}}
    assert folded(server) == VALUES and folded(server, type=TRACED) == COUNTS


def test_ingest_kinds(server):
    """Every suffix of a name becomes the type of that row, and is not part of the service."""
    suffixes = {
        "cpu": CPU, "itimer": CPU, "alloc_space": "memory:alloc_space:bytes:space:bytes",
        "goroutines": "goroutines:goroutine:count:goroutine:count",
        "mutex_duration": "mutex:delay:nanoseconds:contentions:count",
        "block_count": "block:contentions:count:contentions:count",
        "major_faults": "major_faults:major_faults:count:major_faults:count",
        "context_switches": "context_switches:context_switches:count:context_switches:count"}
    for suffix in suffixes:
        assert server.post("/ingest", b"main 7\n", name=f"of-{suffix}.{suffix}").status == 200
    for suffix, name in suffixes.items():
        a = server.get("/api/v1/export", format="folded", type=name, query='{service_name="of-%s"}' % suffix)
        factor = 10_000_000 if name == CPU else 1
        assert a.text == f"of-{suffix};main {7 * factor}\n"
    # A word that is not a suffix is part of the name.
    assert server.post("/ingest", b"main 7\n", name="billing.events").status == 200
    values = get(server, "/api/v1/label-values", label="service.name")["values"]
    assert {v["name"] for v in values} == {"billing.events"} | {f"of-{suffix}" for suffix in suffixes}


MEMORY = "memory:inuse_space:bytes:space:bytes"


def heap(server, service, at_s, stacks):
    """Makes a profile like a Go program's heap profile: four types, and one state for each stack."""
    kinds = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
    data = pprof({stack: (10, 10 * n, 1, n) for stack, n in stacks.items()}, kinds, ("space", "bytes"), at_s)
    assert server.post("/api/v1/upload", data, labels=f"service.name={service}").status == 200


def test_live_memory_is_a_mean_over_time(server):
    assert server.post("/ingest", b"main 1\n", name="other.inuse_space").status == 200
    assert types(server)[MEMORY] == {"label": "Live memory", "unit": "bytes", "rate": "bytes", "is_cpu": False,
                                     "adds": "at_moment"}
    begin = (int(time.time()) - 4 * 3600) // 3600 * 3600
    for at in range(0, 300, 10):
        heap(server, "shop", begin + at, {"main;cache": 4096, **({"main;burst": 600} if at % 60 == 0 else {})})
    for at in range(0, 300, 60):
        heap(server, "cart", begin + at, {"main": 1000 if at < 120 else 3000})
    heap(server, "cart", begin + 7200, {"main": 5000})
    where = {"from": begin * 1000, "to": (begin + 7260) * 1000}

    def points(type, step, **more):
        lines = get(server, "/api/v1/series", type=type, step=step * 1000, **where, **more)["series"]
        return {line["labels"].get("service.name"): [(p[0] // 1000 - begin, p[1]) for p in line["points"]]
                for line in lines}

    # A burst in one of six states has a sixth of its bytes in the mean.
    assert points(MEMORY, 60, group_by="service.name") == {
        "shop": [(at, 4196) for at in range(0, 300, 60)],
        "cart": [(0, 1000), (60, 1000), (120, 3000), (180, 3000), (240, 3000), (7200, 5000)]}
    # Values of services add up, values of times do not.
    assert points(MEMORY, 300) == {None: [(0, 4196 + 2200), (7200, 5000)]}
    assert points(MEMORY, 8 * 3600) == {None: [(0, 4196 + (5 * 2200 + 5000) // 6)]}
    assert points(MEMORY, 300, query='{service_name="shop"}', stacks='fn="cache"') == {None: [(0, 4096)]}
    # States without the stack count as zero in its mean.
    assert points(MEMORY, 60, stacks='fn="burst"') == {None: [(at, 100) for at in range(0, 300, 60)]}
    # Flame graphs show the mean over the range.
    assert folded(server, type=MEMORY, **where) == {"main;cache": 4096, "main;burst": 100}
    assert folded(server, type=MEMORY, stacks='fn="burst"', **where) == {"main;burst": 100}
    graph = get(server, "/api/v1/flamegraph", type=MEMORY, **where)
    assert graph["nodes"]["total"][0] == 4196 + 2667
    by_label = get(server, "/api/v1/flamegraph", type=MEMORY, group_by="service.name", **where)
    assert by_label["nodes"]["total"][0] == 4196 + 2667
    # Allocations of two periods add up.
    assert points("memory:alloc_space:bytes:space:bytes", 300, query='{service_name="cart"}') == {
        None: [(0, 110_000), (7200, 50_000)]}


# ---- what Pyroscope's clients send to /ingest ----

NS = "nanoseconds"
# (types of the file, its period): the names that Pyroscope gives them, whoever the client is.
CLIENTS = {
    "nodespy": ([("samples", "count"), ("wall", NS), ("cpu", NS)], ("wall", NS), [
        "wall:samples:count:wall:nanoseconds", "wall:wall:nanoseconds:wall:nanoseconds", "wall:cpu:nanoseconds:wall:nanoseconds"]),
    "old-nodespy": ([("objects", "count"), ("space", "bytes")], ("space", "bytes"), [
        "memory:objects:count:space:bytes", "memory:space:bytes:space:bytes"]),
    "rbspy": ([("cpu", NS)], ("cpu", NS), [CPU]),
    "dotnetspy": ([("alloc-samples", "count"), ("alloc-size", "bytes")], ("", ""), [
        "memory:alloc_samples:count:alloc_samples:count", "memory:alloc_size:bytes:alloc_size:bytes"]),
    "gospy": ([("goroutine", "count")], ("goroutine", "count"), ["goroutines:goroutine:count:goroutine:count"]),
    # No client of Pyroscope's: the table of types knows the group.
    "other": (*AGENTS, [FAULT_SAMPLES, FAULTS]),
}


@pytest.mark.parametrize("spy", CLIENTS)
def test_groups_of_pyroscopes_clients(server, spy):
    kinds, period, names = CLIENTS[spy]
    data = pprof({"main;work": [7] * len(kinds)}, kinds, period)
    a = server.post("/ingest", data, name="app{env=test}", format="pprof", spyName=spy)
    assert a.status == 200, a.text
    assert list(types(server)) == sorted(names)


def test_times_of_old_clients(server):
    """They send microseconds where pprof has nanoseconds; the time of the request is the right one."""
    at = int(time.time()) - 3000
    data = pprof({"main;work": [7]}, [("cpu", NS)], ("cpu", NS), at / 1000)
    assert server.post("/ingest", data, name="app", format="pprof", spyName="pyspy", **{"from": at, "until": at + 10}).status == 200
    a = server.get("/api/v1/types", **{"from": "now-2h"}).json()["types"]
    assert [(t["name"], abs(t["last"] - at * 1000) <= 10_000) for t in a] == [(CPU, True)]


def test_functions_without_ids(server):
    """As old clients for .NET send them: a line has the id of its location."""
    data = pprof({"main;work": [7]}, [("cpu", NS)], ("cpu", NS))
    # The strings are "", "cpu", NS, "work", "main".
    for i, name in ((1, 3), (2, 4)):
        assert field(5, field(1, i) + field(2, name)) in data
        data = data.replace(field(5, field(1, i) + field(2, name)), field(5, field(2, name)))
    a = server.post("/ingest", data, name="shop", format="pprof", spyName="dotnetspy")
    assert a.status == 200, a.text
    assert folded(server, type=CPU) == {"main;work": 7}
    # Without the same number of locations nothing tells which function is meant.
    more = data + field(5, field(2, 3))
    a = server.post("/ingest", more, name="app", format="pprof", spyName="dotnetspy")
    assert a.status == 400 and "the id 0" in a.json()["message"], a.text
