# SPDX-License-Identifier: Apache-2.0
"""An agent made by hand: it asks a server for tasks, byte by byte (proto/control.proto), reports what a test says, and
sends samples of requests."""

import json
import struct
import time

import wire

PATH = "/culprit.control.v1.Control/Sync"
STATES = ["", "queued", "armed", "absent", "silent", "refused", "ended"]
OUTCOMES = ["", "kept", "partly", "evicted"]
REASONS = ["", "slow", "error", "percentile", "long", "control"]


def fixed64(data, number):
    """{number: value} of the fields of 64 bits: wire.decode() reads them as doubles."""
    [value] = wire.decode(data).get(number, [0.0])
    return struct.unpack("<Q", struct.pack("<d", value))[0]


class Agent:
    def __init__(self, server, host="h1"):
        self.server, self.host, self.cursor = server, host, 0

    def ask(self, reports=(), kept=(), headers=None):
        """reports: (task, state, {field: number}); kept: (keep, outcome, samples). Returns (tasks, keeps)."""
        body = wire.message(_1=self.host, _2=f"id-{self.host}", _3="test", _4=1, _5=self.cursor)
        for task, state, more in reports:
            body += wire.field(6, wire.message(_1=task, _2=1, _3=STATES.index(state)) +
                               b"".join(wire.field(n, v) for n, v in more.items()))
        for keep, outcome, samples in kept:
            body += wire.field(7, wire.message(_1=keep["task"], _2=keep["trace"], _3=keep["span"],
                                               _4=OUTCOMES.index(outcome), _5=samples))
        a = self.server.request("POST", PATH, body, {"Content-Type": "application/x-protobuf", **(headers or {})})
        assert a.status == 200, a.text
        out = wire.decode(a.body)
        self.cursor = out.get(1, [0])[0]
        self.next_ms = out[2][0]
        tasks = [{"id": t[1][0].decode(), "revision": t[2][0], "service": t[3][0].decode(), "start": fixed64(raw, 4),
                  "end": fixed64(raw, 5), "period_us": t[6][0]} for raw in out.get(3, []) for t in [wire.decode(raw)]]
        keeps = [{"task": k[1][0].decode(), "trace": k[2][0], "span": k[3][0], "start_ns": fixed64(raw, 4),
                  "end_ns": fixed64(raw, 5), "reason": REASONS[k[6][0]]} for raw in out.get(4, []) for k in [wire.decode(raw)]]
        return tasks, keeps

    def wait_for(self, n, timeout=10):
        """Asks until n requests are to be kept."""
        keeps, end = [], time.monotonic() + timeout
        while len(keeps) < n and time.monotonic() < end:
            keeps += self.ask()[1]
            time.sleep(0.05)
        assert len(keeps) == n
        return keeps


def spans(requests, service="shop", host="h1"):
    """An OTLP request with entry spans: (number, endpoint, start in ns, duration in ms, whether it failed)."""
    out = b""
    for number, endpoint, start_ns, ms, failed in requests:
        # Fields of 64 bits (fixed64) go as doubles of the same bits.
        times = [struct.unpack("<d", struct.pack("<Q", t))[0] for t in (start_ns, start_ns + int(ms * 1e6))]
        out += wire.field(2, wire.message(_1=number.to_bytes(16, "big"), _2=number.to_bytes(8, "big"), _5=endpoint, _6=2,
                                          _7=times[0], _8=times[1], _15=wire.message(_3=2 if failed else 1)))
    attributes = [wire.message(_1=k, _2=wire.message(_1=v)) for k, v in (("service.name", service), ("host.name", host))]
    return wire.message(_1=wire.message(_1=wire.message(_1=attributes), _2=out))


def profile(samples, kind, service="shop", host="h1", period="request"):
    """OTLP's JSON of samples: (trace, span, "root;...;leaf", ms, {label: value}, time in ms). A frame is NAME, NAME@FILE:LINE,
    or a note in brackets. Ids are numbers."""
    strings, attributes, links, stacks, functions, locations = [""], [{}], [{}], [[]], [{}], [{}]

    def index(table, value):
        if value not in table:
            table.append(value)
        return table.index(value)

    def location(frame):
        name, _, at = frame.partition("@")
        file, _, line = at.rpartition(":")
        function = index(functions, {"nameStrindex": index(strings, name), "filenameStrindex": index(strings, file)})
        note = {"attributeIndices": [attribute("profile.frame.type", "note")]} if name.startswith("[") else {}
        return index(locations, {"lines": [{"functionIndex": function, "line": line or "0"}], **note})

    def attribute(key, value):
        return index(attributes, {"keyStrindex": index(strings, key), "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}})

    rows = []
    for trace, span, frames, ms, labels, at in samples:
        stack = [location(f) for f in reversed(frames.split(";"))] if frames else []
        rows.append({"stackIndex": index(stacks, stack), "values": [str(round(ms * 1e6))],
                     "linkIndex": index(links, {"traceId": f"{trace:032x}", "spanId": f"{span:016x}"}),
                     "attributeIndices": [attribute(k, v) for k, v in labels.items()], "timestampsUnixNano": [f"{round(at)}000000"]})
    names = {n: index(strings, n) for n in (kind, period, "nanoseconds")}
    unit = names["nanoseconds"]
    resource = [{"key": k, "value": {"stringValue": v}} for k, v in (("service.name", service), ("host.name", host))]
    return {"resourceProfiles": [{"resource": {"attributes": resource}, "scopeProfiles": [{"profiles": [{
        "sampleType": {"typeStrindex": names[kind], "unitStrindex": unit}, "samples": rows, "period": "10000000",
        "periodType": {"typeStrindex": names[period], "unitStrindex": unit}, "timeUnixNano": rows[0]["timestampsUnixNano"][0]}]}]}],
        "dictionary": {"mappingTable": [{}], "attributeTable": attributes, "linkTable": links,
                       "stackTable": [{"locationIndices": s} for s in stacks], "locationTable": locations,
                       "functionTable": functions, "stringTable": strings}}


def send_profile(server, samples, kind, **more):
    """kind: wall for stacks of requests, time for their time by state."""
    a = server.request("POST", "/v1development/profiles", json.dumps(profile(samples, kind, **more)).encode(),
                       {"Content-Type": "application/json"})
    assert a.status == 200 and a.json() == {}, a.text
