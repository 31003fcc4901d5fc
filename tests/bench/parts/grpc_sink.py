# SPDX-License-Identifier: Apache-2.0
"""Receives OTLP profiles over gRPC from any profiler, and decodes them without the strict checks of tests/live/otlp.py,
which other profilers need not pass."""

import gzip
import os
import socket
import struct
import sys
import threading
import zlib
from collections import namedtuple

from .common import TOP

sys.path.append(os.path.join(TOP, "tests/server"))
from h2_client import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, SETTINGS, WINDOW, frame # noqa: E402
from otlp import any_value, first, message, numbers # noqa: E402

WIDE = 1 << 30 # the largest flow-control window, nearly

# HPACK without the dynamic table: ":status: 200" is entry 8 of the static one.
HEAD = b"\x88\x00\x0ccontent-type\x10application/grpc"
TRAILER = b"\x00\x0bgrpc-status\x010"
EMPTY = bytes(5) # a message without fields

# One place of a stack: the name, or None; the mapped file's name, or ""; the address in it; OTLP's kind of frame.
Frame = namedtuple("Frame", "name file address kind")
Sample = namedtuple("Sample", "pid times frames") # times: ns since the epoch; frames: leaf first


class Sink:
    """Accepts any number of connections on a port of its own."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.bodies, self.errors = [], []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                s = self.listener.accept()[0]
            except OSError:
                return # closed
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        try:
            with s, s.makefile("rb") as f:
                self._talk(s, f)
        except (OSError, EOFError, ValueError, zlib.error) as e:
            self.errors.append(repr(e))

    def _talk(self, s, f):
        if f.read(len(PREFACE)) != PREFACE:
            raise ValueError("no HTTP/2 client")
        s.sendall(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, WIDE)) + frame(WINDOW, 0, 0, struct.pack(">I", WIDE)))
        parts = {}
        while head := f.read(9):
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7fffffff
            payload = f.read(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & ACK:
                s.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                s.sendall(frame(PING, ACK, 0, payload))
            elif kind == DATA:
                if flags & 8: # padded
                    payload = payload[1:len(payload) - payload[0]]
                parts[stream] = parts.get(stream, b"") + payload
                if payload:
                    s.sendall(frame(WINDOW, 0, 0, struct.pack(">I", len(payload))))
                if flags & END_STREAM:
                    self._take(parts.pop(stream))
                    s.sendall(frame(HEADERS, END_HEADERS, stream, HEAD) + frame(DATA, 0, stream, EMPTY) +
                              frame(HEADERS, END_HEADERS | END_STREAM, stream, TRAILER))

    def _take(self, body):
        packed, n = body[0], int.from_bytes(body[1:5], "big")
        if len(body) != 5 + n:
            raise ValueError("a request of several messages")
        self.bodies.append(gzip.decompress(body[5:]) if packed else body[5:])

    def samples(self, pids):
        """The samples of CPU time of these processes, as Sample."""
        return [s for b in list(self.bodies) for s in decode(b, pids)]


def decode(body, pids):
    m = message(body)
    tables = message(first(m, 2, b""))
    strings = [s.decode(errors="replace") for s in tables.get(5, [])]
    functions = [strings[first(message(f), 1)] for f in tables.get(3, [])]
    mappings = [strings[first(message(x), 4)] for x in tables.get(1, [])]
    attributes = [(strings[first(a, 1)], any_value(first(a, 2, b""))) for a in map(message, tables.get(6, []))]
    locations = [location(message(x), functions, mappings, attributes) for x in tables.get(2, [])]
    stacks = [[f for i in numbers(message(x).get(1)) for f in locations[i]] for x in tables.get(7, [])]
    for resource in map(message, m.get(1, [])):
        pid = None
        for kv in map(message, message(first(resource, 1, b"")).get(1, [])):
            if kv[1][0] == b"process.pid":
                pid = first(message(first(kv, 2, b"")), 3, None)
        if pid not in pids:
            continue
        for scope in map(message, resource.get(2, [])):
            for profile in map(message, scope.get(2, [])):
                yield from samples_of(profile, pid, strings, stacks)


def samples_of(profile, pid, strings, stacks):
    if strings[first(message(first(profile, 1, b"")), 1)] != "samples":
        return
    for s in map(message, profile.get(2, [])):
        times = numbers(s.get(5), fixed=True)
        yield Sample(pid, times, stacks[first(s, 1)])


def location(m, functions, mappings, attributes):
    """The frames of a location: more than one if functions were inlined."""
    kind = dict(attributes[i] for i in numbers(m.get(4))).get("profile.frame.type", "")
    file, address = mappings[first(m, 1)] if mappings else "", first(m, 2)
    names = [functions[first(message(x), 1)] for x in m.get(3, [])] or [None]
    return [Frame(n, file, address, kind) for n in names]
