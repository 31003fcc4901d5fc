# SPDX-License-Identifier: Apache-2.0
"""An agent made by hand: it asks a server for tasks, byte by byte (proto/control.proto), and reports what a test says."""

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
