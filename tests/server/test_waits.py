# SPDX-License-Identifier: Apache-2.0
"""Waits in the server: an agent's profiles of CPU time and of waits, whose samples have the attribute `wait`, are filtered
and grouped by it, shown with it, and added up."""

import json
import time

import pytest

from test_types import Strings, get, querier, types

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
WAITS = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"
S = 1000000000
# (service, stack with the leaf last, what it waited for): (number of samples, ns)
WAITED = {("shop", "main;buy;futex", "lock"): (5, 5 * S), ("shop", "main;buy;recv", "network"): (2, 2 * S),
          ("shop", "main;buy;recv", "runnable"): (2, 1 * S), ("db", "main;read", "disk"): (1, 4 * S)}
RAN = {("shop", "main;buy", None): (20, 1 * S), ("db", "main;scan", None): (40, 2 * S)}


def otlp(samples, kind, at_ns):
    """One resource for each service with a profile: as an agent sends it, each sample with its time."""
    strings, functions = Strings([""]), Strings([""])
    stacks, attributes = [[]], [{}]
    resources = {}
    for (service, stack, wait), (n, value) in samples.items():
        stacks.append([functions.of(f) for f in reversed(stack.split(";"))])
        indices = []
        if wait:
            attributes.append({"keyStrindex": strings.of("wait"), "value": {"stringValue": wait}})
            indices = [len(attributes) - 1]
        resources.setdefault(service, []).append({
            "stackIndex": len(stacks) - 1, "attributeIndices": indices, "values": [str(value // n)] * n,
            "timestampsUnixNano": [str(at_ns + i * S // 100) for i in range(n)]})

    def type_of(name, unit):
        return {"typeStrindex": strings.of(name), "unitStrindex": strings.of(unit)}

    # A clock's samples stand for a period; each wait is a sample.
    head = {"sampleType": type_of(kind, "nanoseconds"), "timeUnixNano": str(at_ns), **(
        {"periodType": type_of("cpu", "nanoseconds"), "period": str(S // 20)} if kind == "cpu" else {})}
    return {
        "resourceProfiles": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
            "scopeProfiles": [{"profiles": [{"samples": of, **head}]}]} for service, of in resources.items()],
        "dictionary": {
            "mappingTable": [{}], "attributeTable": attributes, "linkTable": [{}],
            "stackTable": [{"locationIndices": s} if s else {} for s in stacks],
            "locationTable": [{"lines": [{"functionIndex": i}]} if i else {} for i in range(len(functions))],
            "functionTable": [{"nameStrindex": strings.of(f)} for f in functions], "stringTable": strings}}


@pytest.fixture
def filled(server):
    at = time.time_ns() - 10 * S
    for samples, kind in ((WAITED, "off_cpu"), (RAN, "cpu")):
        a = server.request("POST", "/v1development/profiles", json.dumps(otlp(samples, kind, at)).encode(),
                           {"Content-Type": "application/json"})
        assert a.status == 200 and a.json() == {}, a.text
    return server


def paths(server, **parameters):
    """Returns {path: self} of a flame graph, without nodes that have none."""
    t = get(server, "/api/v1/flamegraph", **parameters)
    nodes, out, path, ends = t["nodes"], {}, [], []
    for i in range(nodes["count"]):
        while ends and i > ends[-1]:
            ends.pop()
            path.pop()
        path.append(t["names"][nodes["name"][i]])
        ends.append(i + nodes["below"][i])
        kind = t["kinds"][nodes["kind"][i]] if nodes["kind"][i] >= 0 else ""
        assert (kind == "wait") == (path[-1][0] == "["), path
        if nodes["self"][i]:
            out[";".join(path[1:])] = nodes["self"][i]
    return out


def shown(samples, running=None):
    return {f"{service};{stack}" + (f";[{wait or running}]" if wait or running else ""): v
            for (service, stack, wait), (_, v) in samples.items()}


def by_wait(server, **parameters):
    """Returns {category: (value, number of samples)}."""
    a = get(server, "/api/v1/series", group_by="wait", step=86400000, **parameters)
    return {s["labels"]["wait"]: tuple(sum(p[i] for p in s["points"]) for i in (1, 2)) for s in a["series"]}


def sums(samples):
    out = {}
    for (_, _, wait), (n, v) in samples.items():
        value, count = out.get(wait, (0, 0))
        out[wait] = (value + v, count + n)
    return out


def test_a_type_like_others(filled):
    assert types(filled)[WAITS] == {"label": "Waiting", "unit": "nanoseconds", "rate": "threads", "is_cpu": False, "adds": "over_time"}
    # What a page without a type shows is CPU time.
    assert paths(filled) == shown(RAN)
    ids = {t["ID"]: t for t in querier(filled, "ProfileTypes")["profileTypes"]}
    assert (ids[WAITS]["name"], ids[WAITS]["sampleType"], ids[WAITS]["sampleUnit"]) == ("off_cpu", "off_cpu", "nanoseconds")


def test_flame_graphs_show_what_was_waited_for(filled):
    assert paths(filled, type=WAITS) == shown(WAITED)
    # By another label, and inverted.
    assert paths(filled, type=WAITS, group_by="wait") == {
        f"{wait};{stack};[{wait}]": v for (_, stack, wait), (_, v) in WAITED.items()}
    assert paths(filled, type=WAITS, inverted=1, query='{service_name="db"}') == {"[disk];read;main;db": 4 * S}


def test_filter(filled):
    locks = {k: v for k, v in WAITED.items() if k[2] == "lock"}
    assert paths(filled, type=WAITS, query='{wait="lock"}') == shown(locks)
    assert paths(filled, type=WAITS, query='{service_name="shop", wait=~"net.*|run.*"}') == shown(
        {k: v for k, v in WAITED.items() if k[2] in ("network", "runnable")})
    values = {v["name"] for v in get(filled, "/api/v1/label-values", label="wait", type=WAITS)["values"]}
    assert values == {"lock", "network", "runnable", "disk"}


def test_group(filled):
    assert by_wait(filled, type=WAITS) == sums(WAITED)
    assert by_wait(filled, type=WAITS, query='{service_name="db"}') == {"disk": (4 * S, 1)}


def test_the_sum_is_the_whole_time(filled):
    both = {"type": CPU, "also": WAITS}
    assert paths(filled, **both) == {**shown(WAITED), **shown(RAN, "running")}
    assert by_wait(filled, **both) == {**sums(WAITED), "running": sums(RAN)[None]}
    assert paths(filled, **both, query='{wait="running"}') == shown(RAN, "running")
    assert paths(filled, **both, query='{wait!="running"}') == shown(WAITED)
    head = get(filled, "/api/v1/flamegraph", **both)
    assert (head["type"], head["unit"]) == ("wall", "nanoseconds")
    # A line of a chart, with both in each point.
    line, = get(filled, "/api/v1/series", **both, step=86400000)["series"]
    assert sum(p[1] for p in line["points"]) == 15 * S
    text = filled.get("/api/v1/export", format="folded", **both).text
    assert "shop;main;buy;futex 5000000\n" in text and "shop;main;buy 1000000\n" in text
    # In another order, and where one of the two has nothing.
    assert paths(filled, type=WAITS, also=CPU) == paths(filled, **both)
    assert by_wait(filled, **both, query='{wait="disk"}') == {"disk": (4 * S, 1)}


@pytest.mark.parametrize("parameters,says", [
    ({"also": WAITS}, "also is added to a type: which one?"),
    ({"type": CPU, "also": "process_cpu:samples:count:cpu:nanoseconds"}, "do not add up"),
    ({"type": CPU, "also": "x:y:nanoseconds:x:y"}, "x:y:nanoseconds:x:y"),
])
def test_what_has_no_sum(filled, parameters, says):
    a = filled.get("/api/v1/flamegraph", **parameters)
    assert a.status == 400 and says in a.text, a.text
