# SPDX-License-Identifier: Apache-2.0
"""Reads the files that culprit writes, without code of culprit, and checks the rules of their formats. stacks_of()
fails at the first rule that is broken, and returns the content in the same form for all formats.

The rules: for pprof, the comments in profile.proto, those of Go's CheckValid(), and, like profcheck for OTLP, no
duplicate and no unused entries; for speedscope and Firefox every index and column; for SVG the widths; for HTML
doc/format/html.md.
"""

import base64
import collections
import gzip
import json
import re
import struct
import zlib
from xml.etree import ElementTree

from otlp import first, message, numbers


def plain_name(name):
    """Returns one spelling for the several spellings of nameless frames."""
    name = re.sub(r"_\[[kij]\]$", "", name)
    return "?" if not name or "+0x" in name or re.match(r"\[(?!truncated)", name) else name


def key_of(comm, frames):
    """Returns the key of a stack. frames: root first."""
    return ";".join([comm, *map(plain_name, frames)])


def folded(data):
    out = collections.Counter()
    lines = data.decode().splitlines()
    assert len({line.rpartition(" ")[0] for line in lines}) == len(lines), "a stack has two lines"
    for line in lines:
        stack, _, count = line.rpartition(" ")
        comm, *frames = stack.split(";")
        assert frames and all(frames) and int(count) > 0, line
        out[key_of(comm, frames)] += int(count)
    return out


class Pprof:
    def __init__(self, data):
        m = message(gzip.decompress(data))
        self.strings = [s.decode() for s in m[6]]
        assert self.strings[0] == "" and len(set(self.strings)) == len(self.strings)
        self.used_strings = {0}
        self.tables = {what: self.table(m, n, what) for n, what in ((3, "mapping"), (4, "location"), (5, "function"))}
        self.used = {what: set() for what in self.tables}
        types = [self.value_type(t) for t in m[1]]
        assert types == [("samples", "count"), ("cpu", "nanoseconds")], types
        period = self.value_type(first(m, 11, b""))
        assert period == ("cpu", "nanoseconds") and first(m, 12) > 0 and first(m, 9) > 0 and first(m, 10) > 0
        for i in numbers(m.get(13)) + [first(m, 7), first(m, 8), first(m, 14)]:
            self.string(i)
        self.stacks, identities = collections.Counter(), set()
        for s in map(message, m.get(2, [])):
            self.sample(s, len(types), first(m, 12), identities)
        for what, table in self.tables.items():
            assert set(table) == self.used[what], f"orphans: {what}"
        assert self.used_strings == set(range(len(self.strings))), "orphans: strings"

    @staticmethod
    def table(m, number, what):
        entries = [message(x) for x in m.get(number, [])]
        ids = [first(e, 1) for e in entries]
        assert 0 not in ids and len(set(ids)) == len(ids), f"ids of {what}"
        return dict(zip(ids, entries))

    def string(self, index):
        assert index < len(self.strings)
        self.used_strings.add(index)
        return self.strings[index]

    def value_type(self, data):
        m = message(data)
        return self.string(first(m, 1)), self.string(first(m, 2))

    def entry(self, what, ident):
        assert ident in self.tables[what], f"{what} {ident} is not there"
        self.used[what].add(ident)
        return self.tables[what][ident]

    def sample(self, s, n_types, period, identities):
        values, labels = numbers(s.get(2)), {}
        assert len(values) == n_types and values[1] == values[0] * period
        for x in map(message, s.get(3, [])):
            name = self.string(first(x, 1))
            assert name not in labels and not (first(x, 2) and first(x, 3)), "a label"
            labels[name] = self.string(first(x, 2)) or first(x, 3)
            self.string(first(x, 4))
        identity = (tuple(numbers(s.get(1))), tuple(sorted(labels.items(), key=str)))
        assert identity not in identities, "two samples of one identity"
        identities.add(identity)
        frames = [f for i in numbers(s.get(1)) for f in self.location(i)]
        self.stacks[key_of(labels["comm"], frames[::-1])] += values[0]

    def location(self, ident):
        m = self.entry("location", ident)
        path = ""
        if first(m, 2):
            at = self.entry("mapping", first(m, 2))
            path = self.string(first(at, 5))
            assert self.string(first(at, 6)) or not path.startswith("/"), f"{path} has no build id"
            assert first(at, 2) <= first(m, 3) < first(at, 3) or not first(m, 3), "an address outside of its mapping"
        out = []
        for line in map(message, m.get(4, [])):
            f = self.entry("function", first(line, 1))
            self.string(first(f, 3))
            self.string(first(f, 4))
            out.append(self.string(first(f, 2)))
            assert out[-1]
        return out or ["?"]


def speedscope(data):
    m = json.loads(data)
    frames = m["shared"]["frames"]
    names = [f["name"] for f in frames]
    assert len({json.dumps(f, sort_keys=True) for f in frames}) == len(frames), "a frame twice"
    assert m["$schema"] == "https://www.speedscope.app/file-format-schema.json" and all(names)
    out, used = collections.Counter(), set()
    for p in m["profiles"]:
        assert p["type"] == "sampled" and len(p["samples"]) == len(p["weights"]) and min(p["weights"], default=1) > 0
        assert sum(p["weights"]) == p["endValue"] - p["startValue"]
        for s, weight in zip(p["samples"], p["weights"]):
            used.update(s)
            out[key_of(names[s[0]], [names[i] for i in s[1:]])] += weight
    assert used == set(range(len(frames))), "orphans: frames"
    return out


def firefox(data):
    from test_formats import check_firefox_thread, firefox_stacks
    m = json.loads(data)
    out = collections.Counter()
    for t in m["threads"]:
        check_firefox_thread(t, len(m["libs"]))
    for stack, weight in firefox_stacks(m).items():
        comm, *frames = stack.split(";")
        out[key_of(comm, frames)] += weight
    return out


def html(data):
    text = data.decode()
    found = re.findall(r'<script id="culprit-data" type="application/x-culprit">\s*([^<]*?)\s*</script>', text)
    assert len(found) == 1
    body, sections, at = zlib.decompress(base64.b64decode(found[0])), {}, 8
    assert body[:8] == b"CULPRIT1"
    while at < len(body):
        tag, n = body[at:at + 4].decode(), struct.unpack_from("<I", body, at + 4)[0]
        assert tag not in sections and at + 8 + n <= len(body), tag
        sections[tag] = body[at + 8:at + 8 + n]
        at += 8 + n
    readers = {k: Columns(v) for k, v in sections.items() if k != "META"}
    r = readers["STRS"]
    lengths = r.column(r.varint())
    strings = [r.bytes(n).decode() for n in lengths]
    assert strings[0] == "" and len(set(strings)) == len(strings)
    r = readers["FRAM"]
    n = r.varint()
    names, _, flags = r.column(n), r.bytes(n), r.bytes(n)
    r = readers["TREE"]
    n = r.varint()
    frames, ups, values = r.column(n), r.column(n), [v >> 1 ^ -(v & 1) for v in r.column(n)]
    out, path = collections.Counter(), []
    for i, (frame, up, value) in enumerate(zip(frames, ups, values)):
        assert value >= 0 and up <= len(path) and (not up or i)
        path = path[:len(path) - up] + [(strings[names[frame]], flags[frame])]
        if value:
            groups = [name for name, flag in path if flag & 2]
            out[key_of(groups[1], [name for name, flag in path if not flag & 2])] += value
    assert json.loads(sections["META"]).get("samples", 0) == sum(out.values())
    assert all(r.at == len(r.data) for k, r in readers.items() if k in ("STRS", "TREE"))
    return out


class Columns:
    def __init__(self, data):
        self.data, self.at = data, 0

    def varint(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def column(self, n):
        return [self.varint() for _ in range(n)]

    def bytes(self, n):
        assert self.at + n <= len(self.data)
        self.at += n
        return self.data[self.at - n:self.at]


def svg(data):
    """Returns only the sum, because an SVG leaves out narrow frames."""
    names, whole = "{http://www.w3.org/2000/svg}", None
    for g in ElementTree.fromstring(data).find(f"{names}g[@id='frames']"):
        m = re.fullmatch(r"(.*) \(([\d,]+) samples, ([\d.]+)%\)", g.find(f"{names}title").text, re.S)
        count = int(m[2].replace(",", ""))
        whole = count if whole is None else whole
        assert count <= whole and abs(float(m[3]) - 100 * count / whole) < 0.01
        assert abs(float(g.find(f"{names}rect").get("width")) - 1180 * count / whole) < 0.02
    return collections.Counter({"": whole or 0})


FORMATS = {"folded": folded, "pb.gz": lambda data: Pprof(data).stacks, "speedscope.json": speedscope,
           "firefox.json": firefox, "html": html, "svg": svg}


def stacks_of(path):
    """Returns {"comm;root;…;leaf": samples} of a file, by its extension; for an SVG only the sum."""
    ending = next(e for e in FORMATS if str(path).endswith("." + e))
    with open(path, "rb") as f:
        return FORMATS[ending](f.read())
