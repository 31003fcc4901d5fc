# SPDX-License-Identifier: Apache-2.0
"""Lanes: what each thread did in each moment. A sample has the time at which its wait ended; a lane has the wait where it was."""

import json
import time

import pytest

from test_types import Strings, get

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
WAITS = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds"
S = 1000000000
# The ids come 30 s after a thread was first seen.
FIRST = -120
# (thread, id, state, end of the wait in s, its length in s)
LONG_AGO = [("a", 11, "lock", FIRST, 1), ("twin", 21, "lock", FIRST, 1), ("twin", 22, "lock", FIRST, 1)]
WAITED = [("a", 11, "lock", 5, 4), ("a", 11, "runnable", 6, 1), ("a", 11, "sleep", 25, 14.5), ("twin", 21, "network", 3, 2),
          ("twin", 22, "disk", 3, 1), ("moment", 31, "pipe", 8, 0.5), ("pool", 41, "idle", 9, 9)]
RAN = [("a", 11, None, 8.5, 0.5), ("b", 12, None, 2, 0.05)]


def otlp(samples, kind, at, service="shop"):
    strings, attributes = Strings([""]), [{}]

    def attribute(key, **value):
        a = {"keyStrindex": strings.of(key), "value": value}
        if a not in attributes:
            attributes.append(a)
        return attributes.index(a)

    def type_of(name):
        return {"typeStrindex": strings.of(name), "unitStrindex": strings.of("nanoseconds")}

    rows = [{"stackIndex": 1, "values": [str(int(length * S))], "timestampsUnixNano": [str(at + int(end * S))],
             "attributeIndices": [attribute("thread.name", stringValue=thread), attribute("thread.id", intValue=str(tid))] +
             ([attribute("wait", stringValue=state)] if state else [])} for thread, tid, state, end, length in samples]
    head = {"sampleType": type_of(kind), "timeUnixNano": str(at + int(samples[0][3] * S)),
            **({"periodType": type_of("cpu"), "period": str(S // 20)} if kind == "cpu" else {})}
    return {
        "resourceProfiles": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}},
                                        {"key": "process.pid", "value": {"intValue": "10"}}]},
            "scopeProfiles": [{"profiles": [{"samples": rows, **head}]}]}],
        "dictionary": {
            "mappingTable": [{}], "attributeTable": attributes, "linkTable": [{}], "stackTable": [{}, {"locationIndices": [1]}],
            "locationTable": [{}, {"lines": [{"functionIndex": 1}]}],
            "functionTable": [{}, {"nameStrindex": strings.of("main")}], "stringTable": strings}}


@pytest.fixture
def filled(server):
    """The server, and the ms at which the range of the tests begins."""
    at = (time.time_ns() // S - 60) * S
    for samples, kind in ((LONG_AGO, "off_cpu"), (WAITED, "off_cpu"), (RAN, "cpu")):
        a = server.request("POST", "/v1development/profiles", json.dumps(otlp(samples, kind, at)).encode(),
                           {"Content-Type": "application/json"})
        assert a.status == 200 and a.json() == {}, a.text
    return server, at // 1000000


def lanes(filled, seconds=12, column=1000, types=(CPU, WAITS), **parameters):
    server, at = filled
    also = {"also": types[1]} if len(types) > 1 else {}
    return get(server, "/api/v1/lanes", **{"from": at, "to": at + seconds * 1000, "column": column, "type": types[0], **also, **parameters})


def by_thread(answer):
    """{(thread, id): {state: seconds by column}}"""
    return {(e["thread"], e["id"]): {s["wait"]: [round(v / S, 2) for v in s["values"]] for s in e["states"]} for e in answer["lanes"]}


def row(**columns):
    """Seconds by column, of c3=0.5: a half in the column 3."""
    return [columns.get(f"c{i}", 0) for i in range(12)]


def test_a_wait_is_where_it_was(filled):
    answer = lanes(filled)
    assert (answer["column"], answer["columns"], answer["threads"], answer["damaged"]) == (1000, 12, 6, False)
    a = by_thread(answer)["a", "11"]
    # The stored time is that of the end, to the millisecond after it.
    assert a["lock"] == row(c1=1, c2=1, c3=1, c4=1)
    assert a["runnable"] == row(c5=1)
    assert a["running"] == row(c8=0.5)
    # The sleep ended 13 s after the range: it is there nevertheless, with what is of the range.
    assert a["sleep"] == row(c10=0.5, c11=1)
    lane, = (e for e in answer["lanes"] if e["thread"] == "a")
    assert {s["wait"]: round(s["sum"] / 10000000) for s in lane["states"]} == {"running": 50, "lock": 400, "runnable": 100, "sleep": 150}
    assert lane["service"] == "shop" and lane["process"] == "10"


def test_where_samples_of_a_wait_that_goes_on_are(filled):
    _, at = filled
    lane, = (e for e in lanes(filled)["lanes"] if e["thread"] == "a")
    ends = [round((u - at) / 1000) if u else None for u in lane["until"]]
    assert ends == [None, 5, 5, 5, 5, 6, None, None, None, None, 25, 25]


def test_threads_of_one_name_are_apart_once_they_live_long(filled):
    found = by_thread(lanes(filled))
    assert found["twin", "21"] == {"network": row(c1=1, c2=1)} and found["twin", "22"] == {"disk": row(c2=1)}
    assert found["moment", ""] == {"pipe": row(c7=0.5)} and found["b", ""] == {"running": row(c1=0.05)}
    # The time before: a's is that of its lane, the twins' is of either.
    answer = lanes(filled, seconds=12 - FIRST + 10, column=1000, **{"from": filled[1] + (FIRST - 10) * 1000})
    names = [(e["thread"], e["id"]) for e in answer["lanes"]]
    assert ("a", "11") in names and ("a", "") not in names
    assert {("twin", ""), ("twin", "21"), ("twin", "22")} <= set(names)
    both = by_thread(answer)
    assert sum(both["a", "11"]["lock"]) == 5 and sum(both["twin", ""]["lock"]) == 2


def test_order_search_and_limit(filled):
    # Who waited longest first; waits for work do not count.
    answer = lanes(filled)
    assert [e["thread"] for e in answer["lanes"]] == ["a", "twin", "twin", "moment", "b", "pool"]
    first = lanes(filled, limit=1)
    assert [e["thread"] for e in first["lanes"]] == ["a"] and (first["threads"], first["found"]) == (6, 6)
    for find, threads in (("WIN", ["twin", "twin"]), ("22", ["twin"]), ("sho", 6), ("nobody", [])):
        found = lanes(filled, find=find)
        assert found["threads"] == 6
        assert found["found"] == len(found["lanes"]) == (threads if threads == 6 else len(threads))
    assert lanes(filled, query='{thread.id="21"}')["threads"] == 1


def test_one_type_and_stacks(filled):
    assert by_thread(lanes(filled, types=(WAITS,)))["a", "11"].keys() == {"lock", "runnable", "sleep"}
    # Time on a CPU is that of "running", with or without waits.
    assert by_thread(lanes(filled, types=(CPU,))) == {("a", "11"): {"running": row(c8=0.5)}, ("b", ""): {"running": row(c1=0.05)}}
    assert lanes(filled, stacks='fn="main"')["threads"] == 6
    assert lanes(filled, stacks='fn="other"')["lanes"] == []


@pytest.mark.parametrize("parameters,says", [
    ({"column": 1}, "between one and 2000 columns"), ({"column": 0}, "column"), ({"limit": 501}, "limit"), ({"nonsense": 1}, "nonsense")])
def test_what_is_refused(filled, parameters, says):
    server, at = filled
    a = server.get("/api/v1/lanes", **{"from": at, "to": at + 12000, "type": WAITS, **parameters})
    assert a.status == 400 and says in a.text, a.text
