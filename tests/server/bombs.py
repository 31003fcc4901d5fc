# SPDX-License-Identifier: Apache-2.0
"""Requests of at most 1 MB that make a server hold or do more than their size says, for test_quota.py.

BOMBS is a dict of functions by name, each of which returns (path, body, headers, parameters) of a POST.
"""

import gzip

from wire import field

MIB = 1 << 20
ROOM = 63 * MIB  # decompressed: below --max-request
JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
GZIP = {"Content-Encoding": "gzip"}


def fill(part, n=ROOM):
    return part * (n // len(part))


def json_query(part, end=b"0"):
    body = b'{"profileTypeID":"x","labels":[' + fill(part) + end + b"]}"
    return "/querier.v1.QuerierService/SelectMergeStacktraces", gzip.compress(body, 6), {**JSON, **GZIP}, {}


def query_lists():
    return json_query(b"[],")


def query_objects():
    return json_query(b"{},")


def query_texts():
    return json_query(b'"",')


def query_known():
    """Values of a member that the message has."""
    body = b'{"start":1,"end":2,"matchers":[' + fill(b'"",') + b'""]}'
    return "/querier.v1.QuerierService/Series", gzip.compress(body, 6), {**JSON, **GZIP}, {}


def push_json():
    body = b'{"series":[' + fill(b"{},") + b"{}]}"
    return "/push.v1.PusherService/Push", gzip.compress(body, 6), {**JSON, **GZIP}, {}


def speedscope(part):
    head = b'{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":['
    tail = b']},"profiles":[]}'
    return head + fill(part) + part.rstrip(b",") + tail


def convert_speedscope():
    return "/api/v1/convert", gzip.compress(speedscope(b"[],"), 6), {}, {"to": "folded", "format": "folded"}


def upload_speedscope():
    return "/api/v1/upload", gzip.compress(speedscope(b'{"name":""},'), 6), {}, {}


def pprof(tag):
    """Gzip without a header: empty messages of a repeated field."""
    return "/ingest", gzip.compress(fill(bytes([tag << 3 | 2, 0])), 6), {}, {"name": "x.cpu", "format": "pprof"}


def pprof_samples():
    return pprof(2)


def pprof_locations():
    return pprof(4)


def pprof_texts():
    return pprof(6)


def pprof_values():
    """A sample with 60 million places in its stack."""
    return "/api/v1/upload", gzip.compress(field(2, field(1, bytes(60 * MIB))), 6), {}, {"format": "pprof"}


def otlp(part):
    return "/v1development/profiles", gzip.compress(fill(part), 6), {**PROTOBUF, **GZIP}, {}


def otlp_resources():
    return otlp(b"\x0a\x00")


def otlp_tables():
    """A dictionary of empty entries."""
    part = field(2, fill(b"\x12\x00", 8 * MIB))
    return "/v1development/profiles", gzip.compress(part * 7, 6), {**PROTOBUF, **GZIP}, {}


def otlp_json():
    body = b'{"resourceProfiles":[' + fill(b"{},") + b"{}]}"
    return "/v1development/profiles", gzip.compress(body, 6), {**JSON, **GZIP}, {}


def traces():
    return "/v1/traces", gzip.compress(fill(b"\x0a\x00"), 6), {**PROTOBUF, **GZIP}, {}


def zipkin():
    return "/api/v2/spans", gzip.compress(b"[" + fill(b"{},") + b"{}]", 6), {**JSON, **GZIP}, {}


def folded_deep():
    """One stack of 32 million frames."""
    return "/api/v1/upload", gzip.compress(fill(b"a;") + b"b 1\n", 6), {}, {"format": "folded"}


def folded_distinct():
    """As many services as fit into 1 MB."""
    lines = b"".join(b"%x 1\n" % i for i in range(330000))
    return "/api/v1/upload", gzip.compress(lines, 9), {}, {"format": "folded"}


def folded_stacks():
    """As many stacks of one service as fit into 1 MB."""
    lines = b"".join(b"a;%x 1\n" % i for i in range(330000))
    return "/api/v1/upload", gzip.compress(lines, 9), {}, {"format": "folded"}


def folded_one():
    return "/api/v1/upload", gzip.compress(fill(b"a;b 1\n"), 6), {}, {"format": "folded"}


def perf_script():
    one = b"a 1 [000] 1.0: 1 cpu-clock:\n\t1 f (x)\n\n"
    return "/api/v1/upload", gzip.compress(fill(one), 6), {}, {"format": "perf-script"}


BOMBS = {f.__name__: f for f in (
    query_lists, query_objects, query_texts, query_known, push_json, convert_speedscope, upload_speedscope,
    pprof_samples, pprof_locations, pprof_texts, pprof_values, otlp_resources, otlp_tables, otlp_json, traces, zipkin,
    folded_deep, folded_distinct, folded_stacks, folded_one, perf_script)}
