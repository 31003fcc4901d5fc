# SPDX-License-Identifier: Apache-2.0
"""Reads the files of the SQLite store by doc/format/block.md, with a reader that shares no code with the store."""

import collections
import ctypes
import os
import sqlite3
import struct
import subprocess

import pytest

HOUR_MS = 3600000
MASK = (1 << 64) - 1
XXH = ctypes.CDLL("libxxhash.so.0")
XXH.XXH3_64bits.restype = ctypes.c_uint64
XXH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def hash_bytes(data):
    return XXH.XXH3_64bits(bytes(data), len(data))


def hash_u64(x):
    for _ in range(2):
        x = ((x ^ (x >> 32)) * 0xd6e8feb86659fd93) & MASK
    return x ^ (x >> 32)


def hash_numbers(*numbers):
    return hash_bytes(struct.pack(f"<{len(numbers)}Q", *(n & MASK for n in numbers)))


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        assert self.at + n <= len(self.data), "beyond the end"
        self.at += n
        return self.data[self.at - n:self.at]

    def varint(self):
        value = shift = 0
        while True:
            byte, = self.take(1)
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        n = self.varint()
        return n >> 1 ^ -(n & 1)

    def column(self):
        return Reader(self.take(self.varint()))

    def ended(self):
        return self.at == len(self.data)


def part(blob):
    return Reader(subprocess.run(["zstd", "-dcq"], input=blob, capture_output=True, check=True, timeout=60).stdout)


def read_sums(r, times):
    """Returns [(number, rows, count, value, first, last)]."""
    n, number, numbers = r.varint(), 0, []
    for i in range(n):
        difference = r.varint()
        assert difference or not i
        number += difference
        numbers.append(number)
    columns = [[r.varint() for _ in range(n)], [r.varint() for _ in range(n)], [r.signed() for _ in range(n)]]
    spans = []
    for _ in range(n if times else 0):
        first = r.varint()
        spans.append((first, first + r.varint()))
    assert r.ended()
    return list(zip(numbers, *columns, *(zip(*spans) if spans else ())))


def read_rows(body, series, stacks):
    """(stack, series, ms since the base, count, value)"""
    n, unit, value_unit = body.varint(), body.varint(), body.signed()
    c_series, c_time, c_count, c_value = (body.column() for _ in range(4))
    assert body.ended()
    for stack, rows, *_ in stacks:
        at = time = None
        for _ in range(rows):
            step = c_series.varint()
            fresh = at is None or step
            at = step if at is None else at + step
            time = c_time.varint() if fresh else time + c_time.varint()
            count = c_count.varint()
            yield stack, series[at][0], time * unit, count, count * value_unit if value_unit else c_value.signed()
            n -= 1
    assert n == 0 and all(c.ended() for c in (c_series, c_time, c_count, c_value))


def read_block(block):
    """Checks one row of the table `blocks`; returns its samples."""
    for name in ("series", "stacks", "body"):
        assert hash_bytes(block[name]) ^ hash_u64(block["n"]) == block[f"{name}_sum"] & MASK
    assert hash_numbers(*(block[k] for k in ("n", "service", "type", "hour", "level", "resolution", "first", "last",
                                             "rows", "samples"))) == block["sum"] & MASK
    series, stacks = read_sums(part(block["series"]), True), read_sums(part(block["stacks"]), False)
    rows = list(read_rows(part(block["body"]), series, stacks))
    assert [r[:3] for r in rows] == sorted({r[:3] for r in rows}), "not sorted, or one twice"
    for sums, key in ((stacks, 0), (series, 1)):
        for number, n, count, value, *times in sums:
            of = [r for r in rows if r[key] == number]
            assert (n, count, value) == (len(of), sum(r[3] for r in of), sum(r[4] for r in of))
            if times:
                assert times == [min(r[2] for r in of), max(r[2] for r in of)]
    base = block["hour"] * HOUR_MS
    assert (block["rows"], block["samples"]) == (len(rows), sum(r[3] for r in rows))
    assert (block["first"], block["last"]) == (base + min(r[2] for r in rows), base + max(r[2] for r in rows))
    return [(stack, series, base + ms, count, value) for stack, series, ms, count, value in rows]


def read_texts(r):
    texts = [r.take(r.varint()).decode() for _ in range(r.varint())]
    assert r.ended()
    return texts


def read_span_part(blob, n_columns):
    r = part(blob)
    assert r.varint() == 1
    rows = r.varint()
    columns = [r.column() for _ in range(n_columns)]
    assert r.ended()
    return rows, columns


def read_spans(blob):
    """(trace, span, is it an entry, start in ns, service, attributes)"""
    rows, c = read_span_part(blob, 17)
    (traces, ids, parents, flags, weights, starts, durations, services, resources, names, endpoints, messages, tids,
     n_attributes, attributes) = c[:15]
    texts, trace, start = read_texts(c[15]), None, 0
    n_resources = c[16].varint()
    for _ in range(n_resources):
        for _ in range(c[16].varint()):
            assert texts[c[16].varint()] is not None and texts[c[16].varint()] is not None
    for _ in range(rows):
        flag, = flags.take(1)
        if flag & 0x80:
            trace = traces.take(16)
        if flag & 0x40:
            parents.take(8)
        assert flag & 7 < 6 and flag >> 3 & 3 < 3 and weights.take(1)[0] < 64
        start += starts.signed()
        assert durations.varint() >= 0 and resources.varint() < n_resources and tids.varint() < 1 << 32
        service = texts[services.varint()]
        assert all(texts[column.varint()] is not None for column in (names, endpoints, messages))
        pairs = [(texts[attributes.varint()], texts[attributes.varint()]) for _ in range(n_attributes.varint())]
        yield trace, ids.take(8), bool(flag & 0x20), start, service, pairs
    assert all(column.ended() for column in c)


def read_links(blob):
    """(trace, span, service, type, series, stack, time in ms, count, value)"""
    rows, c = read_span_part(blob, 13)
    traces, spans, flags, services, types, series_of, stacks_of, times, counts, values = c[:10]
    texts, trace, span, time = read_texts(c[10]), None, None, 0
    series, stacks = ([struct.unpack("<Q", r.take(8))[0] for _ in range(r.varint())] for r in c[11:])
    for _ in range(rows):
        flag, = flags.take(1)
        assert flag in (0, 1, 3)
        trace = traces.take(16) if flag & 2 else trace
        span = spans.take(8) if flag & 1 else span
        ids = texts[services.varint()], texts[types.varint()], series[series_of.varint()], stacks[stacks_of.varint()]
        time += times.signed()
        yield (trace, span, *ids, time, counts.varint(), values.signed())
    assert all(column.ended() for column in c)


def filter_has(bits, trace):
    h = hash_bytes(trace)
    return all(bits[k // 8] >> k % 8 & 1
               for k in (((h + i * (h >> 32 | 1)) & MASK) % (8 * len(bits)) for i in range(6)))


def table(path, name):
    with sqlite3.connect(path) as db:
        db.row_factory = sqlite3.Row
        return db.execute(f"SELECT * FROM {name}").fetchall()


@pytest.fixture
def stored(executable, tmp_path):
    """Makes a store with samples, spans and links, some of them merged."""
    tool = os.path.join(os.path.dirname(os.path.dirname(executable)), "tests/tools/store_tool")
    assert os.access(tool, os.X_OK), f"{tool} is not there: make"
    subprocess.run([tool, "write", tmp_path / "store", "0", "200", "spans=1"], check=True, timeout=300,
                   stdout=subprocess.DEVNULL)
    return tmp_path / "store"


def test_files_are_as_their_description_says(stored):
    profiles = stored / "profiles.db"
    ids = {t: {r["n"]: r["id"] & MASK for r in table(profiles, t)} for t in ("series", "stacks", "frames")}
    names = {0: ""}
    for row in table(profiles, "names"):
        names[row["n"]] = bytes(row["name"]).decode()
        assert hash_bytes(row["name"]) ^ hash_u64(row["n"]) == row["sum"] & MASK
    for row in table(profiles, "stacks"):
        r, frames = Reader(row["frames"]), []
        while not r.ended():
            frames.append(ids["frames"][r.varint()])
        assert hash_numbers(hash_numbers(*frames), len(frames)) == row["id"] & MASK
    blocks, samples = table(profiles, "blocks"), collections.Counter()
    for block in blocks:
        for stack, series, ms, count, value in read_block(block):
            key = (names[block["service"]], names[block["type"]], ids["series"][series], ids["stacks"][stack], ms)
            samples[key] += count
    assert len({b["level"] for b in blocks}) > 1, "nothing was merged"
    state, = table(profiles, "state")
    assert state["blocks"] & MASK == sum(b["sum"] for b in blocks) & MASK
    assert hash_bytes(state["next"]) ^ hash_u64(state["blocks"] & MASK) == state["sum"] & MASK

    links, spans = collections.Counter(), set()
    for block in table(stored / "spans.db", "span_blocks"):
        a, b, bits = block["a"], block["b"], block["filter"]
        assert block["bytes"] == len(a) + len(b) + len(bits)
        assert hash_numbers(*(block[k] for k in ("kind", "hour", "thinned", "first", "last", "rows", "bytes")),
                            hash_bytes(bits), hash_bytes(a), hash_bytes(b)) == block["sum"] & MASK
        if block["kind"] == 0:
            parts = [list(read_spans(a)), list(read_spans(b))]
            assert all(s[2] for s in parts[0]) and not any(s[2] for s in parts[1])
            rows, times = parts[0] + parts[1], [s[3] // 1000000 for p in parts for s in p]
            spans |= {s[:2] for s in rows}
        else:
            assert b == b""
            rows = list(read_links(a))
            times = [x[6] for x in rows]
            for _, _, *key, count, _ in rows:
                links[tuple(key)] += count
        assert (block["rows"], block["first"], block["last"]) == (len(rows), min(times), max(times))
        assert {t // HOUR_MS for t in times} == {block["hour"]}
        assert all(filter_has(bits, row[0]) for row in rows)
    assert spans and links
    # A sample within a span is in both files; in the file of samples its time may be rounded.
    resolutions = {b["resolution"] for b in blocks}
    assert len(resolutions) > 1, "nothing was rounded"
    for (*key, ms), count in links.items():
        assert any(samples[*key, ms - ms % r] >= count for r in resolutions), (key, ms)
