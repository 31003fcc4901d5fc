// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Filter } from "../model/address.ts";
import { lossesOf, readAgents } from "../model/agents.ts";
import { readAssembly } from "../model/assembly.ts";
import { eventTexts, healthText } from "../model/health.ts";
import { change, lossFact, readQuality, samplesPerValue, significant, warnings, wilson, zScore } from "../model/stats.ts";
import { decodeState, DEFAULTS, encodeState } from "../model/state.ts";
import { count, cutMiddle, duration, nameParts, percent, plural, shorter, signed, three, value } from "../model/text.ts";
import { DataError } from "../model/tree.ts";
import { fromFolded, random } from "./make.ts";

test("a percentage is never 0 for something nor 100 for less than all", () => {
  const cases: [number, string][] = [[0, "0 %"], [1e-7, "<0.01 %"], [0.9996, ">99.9 %"], [0.999999, ">99.9 %"], [1, "100 %"]];
  for (const [v, s] of cases)
    assert.equal(percent(v), s);
});

test("percentages line up: one decimal, two where one would be 0.0, none from 100 % on", () => {
  const cases: [number, string][] = [[0.03, "3.0 %"], [0.036, "3.6 %"], [0.009, "0.9 %"], [0.00123, "0.1 %"], [0.00095, "0.1 %"], [0.00094, "0.09 %"], [0.0004, "0.04 %"],
    [0.123, "12.3 %"], [0.5, "50.0 %"], [0.9994, "99.9 %"], [2, "200 %"], [12.345, "1,235 %"], [-0.02, "−2.0 %"], [-1, "−100 %"]];
  for (const [v, s] of cases)
    assert.equal(percent(v), s);
});

test("three digits everywhere, and one minus sign", () => {
  assert.deepEqual([0.75, 9.994, 9.996, 33.33, 99.96, 1234.5].map(three), ["0.75", "9.99", "10.0", "33.3", "100", "1,235"]);
  assert.deepEqual([duration(-5e6), value(-2048, "bytes"), value(-5, "count", "samples")], ["−5.00 ms", "−2.00 KiB", "−5 samples"]);
  assert.deepEqual([signed(percent(0.2), 1), signed(percent(-0.2), -1)], ["+20.0 %", "−20.0 %"]);
  assert.deepEqual([plural(1, "sample"), plural(0, "sample"), plural(1234, "sample"), plural(2, "process", "processes")], ["1 sample", "0 samples", "1,234 samples", "2 processes"]);
});

test("values with their units", () => {
  assert.equal(duration(1.5e9), "1.50 s");
  assert.equal(duration(999), "999 ns");
  assert.equal(duration(61e9), "1.02 min");
  assert.equal(value(1234567, "nanoseconds"), "1.23 ms");
  assert.equal(value(2048, "bytes"), "2.00 KiB");
  assert.equal(value(5, "count", "samples"), "5 samples");
  assert.equal(value(5, "events"), "5 events");
  assert.equal(count(1234567), "1,234,567");
});

test("names are cut in the middle, and fit", () => {
  const width = (s: string) => (n: number) => n * 7 + 0 * s.length;
  const name = "std::vector<std::string>::emplace_back";
  for (let max = 0; max < 300; max += 3) {
    const cut = cutMiddle(name, max, width(name), 7);
    assert.ok(cut.length * 7 <= max || cut === "", `${max}: ${cut}`);
    if (cut !== "" && cut !== name) {
      const [head, tail] = cut.split("…");
      assert.ok(name.startsWith(head!) && name.endsWith(tail!));
    }
  }
  assert.equal(cutMiddle(name, 1000, width(name), 7), name);
  const pairs = "𝒜𝒷𝒸𝒹𝑒𝒻𝑔";
  for (let max = 0; max < 100; max++)
    assert.ok(!/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(
      cutMiddle(pairs, max, width(pairs), 7)), "no half characters");
});

test("Wilson's interval holds the true share in about 95 of 100 samples", () => {
  const r = random(11);
  // The interval is of counts, so its coverage goes up and down around 95 % with p and n.
  for (const [p, n] of [[0.02, 200], [0.3, 80], [0.7, 500]] as const) {
    let inside = 0;
    for (let round = 0; round < 2000; round++) {
      let k = 0;
      for (let i = 0; i < n; i++)
        k += r() < p ? 1 : 0;
      const [lo, hi] = wilson(k, n);
      inside += lo <= p && p <= hi ? 1 : 0;
    }
    assert.ok(inside > 1830 && inside < 1970, `${inside} of 2000 for ${p}`);
  }
  assert.deepEqual(wilson(0, 0), [0, 1]);
  assert.ok(wilson(0, 100)[1] > 0.03 && wilson(100, 100)[0] < 0.97);
});

test("differences that chance makes are not called significant", () => {
  assert.ok(!significant(zScore(1, 1000, 3, 1000)));
  assert.ok(significant(zScore(100, 1000, 200, 1000)));
  assert.ok(zScore(200, 1000, 100, 1000) < 0);
  assert.equal(zScore(1, 0, 1, 10), 0);
  assert.deepEqual([change(0, 5), change(5, 0), change(5, 5), change(0, 0)], [1, -1, 0, 0]);
});

test("how many samples a value stands for", () => {
  const p = fromFolded(["p;a 1000"]);
  assert.equal(samplesPerValue(p.meta, p.tree), 1);
  p.meta.type = "allocations";
  assert.equal(samplesPerValue(p.meta, p.tree), 0, "a count is not a number of samples");
  p.meta.unit = "nanoseconds";
  assert.equal(samplesPerValue(p.meta, p.tree), 0);
  p.meta.quality.samples = 50;
  assert.equal(samplesPerValue(p.meta, p.tree), 0.05);
});

test("a poor profile says so, a good one does not", () => {
  const { meta } = fromFolded(["p;a 1"]);
  assert.equal(warnings(meta.quality, 5000).length, 0);
  assert.match(warnings(meta.quality, 12)[0]!.text, /only 12 samples/);
  assert.deepEqual(warnings(meta.quality, 199.99999999999997).map((w) => w.text).filter((t) => t.includes("only")), []);
  assert.match(warnings(meta.quality, 1.9999999999999998)[0]!.text, /^only 2 samples$/);
  meta.quality = { samples: 900, lost: 100, truncated: 90, unknown: 10, frames: 100, userStacks: 900, limited: "" };
  assert.deepEqual(warnings(meta.quality, 900).map((w) => w.text), ["10.0 % lost", "10.0 % truncated", "10.0 % of frames have no name"]);
  const head = { quality: { samples: 900, truncated: 0, unknown_frames: 0, frames: 100, damaged: false, limited: ["(other services)", "[other stacks]"] } };
  assert.deepEqual(warnings(readQuality(head), 900).map((w) => w.text), ["includes (other services), [other stacks]"]);
});

test("losses: what agents counted in the range, of the hosts that are looked at; not known where nobody did", () => {
  const agent = (host: string, samples: number, lost: number, range = true, dropped = 0): unknown => ({
    host, version: "1", kernel: "", arch: "", started: 0, last: 9, newest: 9, sources: [], cpu: 0, dropped: 0, drops: [], rss: 0, processes: 1, samples: 1e6, truncated: 0,
    counters: [{ name: "ring", loss: "lost", count: 1e6, unit: "", help: "" }], error: "", range: range ? { from: 1000, to: 2000, samples, lost, dropped } : null });
  const of = (agents: unknown[], filters: Filter[] = []): [string, string] => {
    const f = lossFact(lossesOf(readAgents({ version: "1", agents }), filters));
    return [f.text, f.level];
  };
  assert.deepEqual(of([]), ["losses unknown", "fact"]);
  assert.deepEqual(of([agent("a", 0, 0, false)]), ["losses unknown", "fact"], "was gone before");
  assert.deepEqual(of([agent("a", 100, 0)]), ["none lost", "fact"]);
  assert.deepEqual(of([agent("a", 900, 50), agent("b", 0, 50), agent("c", 0, 0, false)]), ["10.0 % lost", "warn"]);
  assert.deepEqual(of([agent("a", 900, 50, true, 50), agent("b", 100, 0)]), ["9.5 % lost", "warn"], "dropped ones were taken first");
  assert.deepEqual(of([agent("a", 9999, 1)]), ["0.01 % lost", "fact"]);
  const host = (value: string, not: boolean): Filter[] => [{ label: "host.name", value, not }, { label: "x", value: "y", not: false }];
  assert.deepEqual(of([agent("a", 100, 0), agent("b", 0, 50)], host("a", false)), ["none lost", "fact"]);
  assert.deepEqual(of([agent("a", 100, 0), agent("b", 0, 50)], host("a", true)), ["100 % lost", "warn"]);
  assert.throws(() => readAgents({ version: "1", agents: [{ ...agent("a", 1, 1) as object, range: 7 }] }), DataError);
  const q = readQuality({ quality: { samples: 50, lost: 0, truncated: 25, unknown_frames: 10, frames: 100, damaged: false, limited: [] } });
  assert.equal(warnings(q, 1)[0]!.text, "only 1 sample");
  assert.deepEqual(warnings(q, q.samples).map((w) => w.text), ["only 50 samples", "50.0 % truncated", "10.0 % of frames have no name"]);
  assert.throws(() => readQuality({}), DataError);
});

test("health: what the store cannot do, and what it deleted within the range", () => {
  const range = { from: 1000, to: 9000 };
  const ok = { status: "ok", evicted_to: 0, spans_evicted_to: 0 };
  assert.equal(healthText(ok, range), "");
  assert.equal(healthText({ ...ok, status: "damaged" }, range), "");
  assert.equal(healthText({ ...ok, status: "disk full: x" }, range), "The server cannot store new data: disk full: x");
  assert.equal(healthText({ ...ok, evicted_to: 1000 }, range), "", "before the range");
  assert.match(healthText({ ...ok, evicted_to: 2000 }, range), /^Samples up to 19\d\d-\d\d-\d\d \d\d:\d\d were deleted, because the store has reached --max-size\.$/);
  assert.match(healthText({ ...ok, spans_evicted_to: 2000 }, range), /^Spans .* --spans-max-size\.$/);
  assert.throws(() => healthText({}, range), DataError);
});

test("events of the server, the latest first", () => {
  const event = (text: string, count: number, last: number): unknown => ({ name: "x", text, count, last });
  const [first, second] = eventTexts({ events: [event("writes refused", 12345, 1000), event("steps", 2, 90000)] });
  assert.match(first!, /^2 steps; the last at 19\d\d-\d\d-\d\d \d\d:\d\d\.$/);
  assert.match(second!, /^12[^ ]* writes refused; /);
  assert.deepEqual(eventTexts({ events: [] }), []);
  assert.throws(() => eventTexts({}), DataError);
});

test("instructions: gaps, the hottest by self, damaged answers", () => {
  const a = (instructions: unknown): unknown => ({ file: "/bin/x", function: "f", type: "cpu", unit: "count", all: 9, self: 5, total: 8, why: "",
    build_id: "00", instructions });
  const r = readAssembly(a([[16, 3, 0, 5, "call 0x30", "a.c", 7], [19, 1, 4, 4, "ret", "", 0], [32, 0, 1, 1, "", "b.c", 0]]));
  assert.equal(r.hottest, 1);
  assert.deepEqual(r.instructions.map((i) => i.gap), [false, false, true]);
  assert.deepEqual(r.instructions[0], { address: 16, length: 3, self: 0, total: 5, text: "call 0x30", file: "a.c", line: 7, gap: false });
  assert.equal(readAssembly(a([])).hottest, -1);
  assert.equal(readAssembly(a([[1, 1, 0, 2, "x", "", 0], [2, 1, 0, 3, "y", "", 0], [3, 1, 0, 0, "z", "", 0]])).hottest, 1, "else by total");
  for (const bad of [null, {}, a(null), a([[1, 2, 3]]), a([["1", 1, 0, 0, "x", "", 0]])])
    assert.throws(() => readAssembly(bad), DataError);
});

test("the state survives the address bar", () => {
  const s = {
    ...DEFAULTS, zoom: "a.b~c.d", search: "^a&b=c #+%$", icicle: true, inverted: true, narrow: true, panes: "table" as const, theme: "dark" as const,
    colour: "package" as const, widthBy: "both" as const, normalise: true, sort: "name" as const, descending: false,
    filter: "x y", transforms: [{ op: "hide" as const, name: "a:b;c" }, { op: "merge" as const }, { op: "fold" as const, name: "f" },
      { op: "collapse" as const, name: "g" }], sandwich: "operator()",
  };
  assert.deepEqual(decodeState("#" + encodeState(s)), s);
  assert.equal(encodeState(DEFAULTS), "");
  assert.deepEqual(decodeState(""), DEFAULTS);
  assert.deepEqual(decodeState("#s=bad&c=evil&x=eat:table&x=hide&x=drop&i=7&t=x"), DEFAULTS);
});

test("names are taken apart: scope, own name, parameters", () => {
  const cases: [string, string, string, string][] = [
    ["main", "", "main", ""],
    ["llvm::DataExtractor::getU8(unsigned long*, llvm::Error*) const", "llvm::DataExtractor::", "getU8", "(unsigned long*, llvm::Error*) const"],
    ["void std::vector<std::pair<int, A>, B>::emplace_back<int&>(int&)", "void std::vector<std::pair<int, A>, B>::", "emplace_back<int&>", "(int&)"],
    ["std::function<void (int)>::operator()(int) const", "std::function<void (int)>::", "operator()", "(int) const"],
    ["Foo::operator()", "Foo::", "operator()", ""],
    ["Foo::operator<(Foo const&) const", "Foo::", "operator<", "(Foo const&) const"],
    ["Foo::operator->() const", "Foo::", "operator->", "() const"],
    ["operator new(unsigned long)", "", "operator new", "(unsigned long)"],
    ["(anonymous namespace)::run(int)", "(anonymous namespace)::", "run", "(int)"],
    ["(anonymous namespace)", "", "(anonymous namespace)", ""],
    ["main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::", "operator()", "(int) const"],
    ["main::{lambda(int)#1}", "main::", "{lambda(int)#1}", ""],
    ["f(int) [clone .isra.0]", "", "f", "(int) [clone .isra.0]"],
    ["f(int) (.isra.0) [clone .cold]", "", "f", "(int) (.isra.0) [clone .cold]"],
    ["A::g() const &&", "A::", "g", "() const &&"],
    ["A::~A()", "A::", "~A", "()"],
    ["<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop", "<alloc::vec::Vec<T> as core::ops::drop::Drop>::", "drop", ""],
    ["core::ops::function::FnOnce::call_once{{vtable.shim}}", "core::ops::function::FnOnce::", "call_once{{vtable.shim}}", ""],
    ["github.com/a/b.(*T).Method", "github.com/a/", "b.(*T).Method", ""],
    ["libc.so.6+0x1d2f0", "", "libc.so.6+0x1d2f0", ""],
    ["[truncated: stack memory not readable]", "", "[truncated: stack memory not readable]", ""],
    ["a<b", "", "a<b", ""], ["::", "", "::", ""], ["", "", "", ""], ["/", "", "/", ""], ["()", "", "()", ""],
  ];
  for (const [name, scope, base, rest] of cases)
    assert.deepEqual(nameParts(name), { scope, base, rest }, name);
  const r = random(4);
  for (let round = 0; round < 20000; round++) {
    let s = "";
    for (let k = Math.floor(r() * 12); k > 0; k--)
      s += ["::", "<", ">", "(", ")", " ", "a", "operator", "/", "const", "&", "->", "[", "]", "{", "}", "~"][Math.floor(r() * 17)];
    const p = nameParts(s);
    assert.equal(p.scope + p.base + p.rest, s);
    assert.ok(s === "" || p.base !== "", s);
  }
});

test("shorter names, in the order in which parts matter", () => {
  assert.deepEqual(shorter("void a::b<int>::fun<char>(x) const"),
    ["void a::b<int>::fun<char>(x) const", "void a::b<int>::fun<char>", "fun<char>", "fun"]);
  assert.deepEqual(shorter("memcpy"), ["memcpy"]);
  assert.deepEqual(shorter("A::operator<(int)"), ["A::operator<(int)", "A::operator<", "operator<"]);
});

test("no name takes long to take apart", () => {
  const n = 50000;
  for (const s of ["&", " &", "&&", "(", ")", "()", "[", "]", " []", "<", "::", " const", "operator", "operator ", "(.", " (.x)", "/", " "])
    for (const name of [s.repeat(n / s.length), s.repeat(n / s.length) + "x", "f" + s.repeat(n / s.length), "f(" + s.repeat(n / s.length) + ")"]) {
      const from = performance.now();
      shorter(name);
      assert.ok(performance.now() - from < 500, `${s} ${(performance.now() - from).toFixed(0)} ms`);
    }
});
