// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  aligned, barMs, barRange, bars, clock, decodeLive, decodeSpan, encodeLive, encodeSpan, keepOrder, knownMs, LASTS, LIVE_DEFAULTS,
  localInput, moved, rangeAt, rangeText, rate, readFirst, readLines, readNames, refreshMs, selector, shares, sortTypes, stepFor, ticks,
  typeLabel, typeName, wider,
} from "../model/live.ts";
import type { LiveState } from "../model/live.ts";
import { DataError, findPath, pathHashes, pathId } from "../model/tree.ts";
import { fromFolded } from "./make.ts";

const CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const T = 1_700_000_000_000;

test("the state and its text", () => {
  assert.equal(encodeLive(LIVE_DEFAULTS), "");
  assert.deepEqual(decodeLive(""), LIVE_DEFAULTS);
  const all: LiveState = { service: "a&b=\"c\" ü", type: CPU, last: 900, range: { from: T, to: T + 1 } };
  assert.deepEqual(decodeLive("?" + encodeLive(all)), all);
  for (const [last] of LASTS)
    assert.equal(decodeLive(encodeLive({ ...LIVE_DEFAULTS, last })).last, last);
  for (const bad of ["last=5", "last=-5m", "last=9999999d", "last=1e3s", "from=5&to=5", "from=5", "from=x&to=9", "from=9&to=5",
    "from=-1&to=5", "from=1e3&to=2e3", "x=y"])
    assert.deepEqual(decodeLive(bad), LIVE_DEFAULTS, bad);
  assert.equal(encodeSpan(90), "90s");
  assert.equal(decodeSpan("90s"), 90);
  assert.equal(encodeSpan(86400), "1d");
});

test("ranges: now, moved, wider, never beyond now", () => {
  assert.deepEqual(rangeAt({ ...LIVE_DEFAULTS, last: 60 }, T + 0.5), { from: T - 60000, to: T });
  const r = { from: T - 20000, to: T - 10000 };
  assert.deepEqual(rangeAt({ ...LIVE_DEFAULTS, range: r }, T), r);
  assert.deepEqual(moved(r, -0.5, T), { from: T - 25000, to: T - 15000 });
  assert.deepEqual(moved(r, 0.5, T), { from: T - 15000, to: T - 5000 });
  assert.deepEqual(moved(r, 2, T), { from: T - 10000, to: T }, "stops at now");
  assert.deepEqual(moved({ from: T, to: T + 10000 }, 0.5, T), { from: T, to: T + 10000 }, "is ahead of now already");
  assert.deepEqual(wider(r, T), { from: T - 25000, to: T - 5000 });
  assert.deepEqual(wider({ from: T - 10000, to: T }, T), { from: T - 20000, to: T });
  assert.equal(refreshMs(60), 5000);
  assert.equal(refreshMs(3600), 5000);
  assert.equal(refreshMs(6 * 3600), 30000);
  assert.equal(refreshMs(7 * 86400), 60000);
});

test("a selector cannot be left by a name", () => {
  assert.equal(selector(""), "{}");
  assert.equal(selector("shop"), '{service.name="shop"}');
  assert.equal(selector('a"} or {x="\\'), '{service.name="a\\"} or {x=\\"\\\\"}');
  assert.equal(selector("a\nb"), '{service.name="a\\nb"}');
});

test("bars: steps, whole ones, the last that has not run its time", () => {
  assert.equal(stepFor({ from: 0, to: 60000 }, 200), 1000);
  assert.equal(stepFor({ from: 0, to: 300000 }, 200), 2000);
  assert.equal(stepFor({ from: 0, to: 7 * 86400000 }, 200), 3600000);
  for (const [s] of LASTS) {
    const step = stepFor({ from: 0, to: s * 1000 }, 200);
    assert.ok(s * 1000 / step <= 200 && s * 1000 / step > 40, `${s} s: ${s * 1000 / step} bars`);
  }
  const wide = aligned({ from: 10500, to: 14200 }, 1000);
  assert.deepEqual(wide, { from: 10000, to: 15000 });
  const lines = readLines({ step: 1000, series: [
    { labels: {}, points: [[10000, 5, 1], [12000, 7, 2]] },
    { labels: {}, points: [[12000, 1, 2], [14000, 2, 2], [9000, 100, 1], [15000, 100, 1]] },
  ] });
  const b = bars(lines, wide, 14500);
  assert.deepEqual([...b.sum], [5, 0, 8, 0, 2]);
  assert.equal(barMs(b, 3), 1000);
  assert.equal(barMs(b, 4), 500);
  assert.equal(barMs({ ...b, until: 14010 }, 4), 250, "a moment tells nothing");
  const within = { from: 10500, to: 14200 };
  assert.deepEqual(barRange(b, 1, 2, within), { from: 11000, to: 13000 });
  assert.deepEqual(barRange(b, 2, 1, within), { from: 11000, to: 13000 }, "dragged to the left");
  assert.deepEqual(barRange(b, 0, 4, within), within);
});

test("answers that are not as they should be are errors", () => {
  for (const bad of [null, [], 5, {}, { step: 0, series: [] }, { step: "1", series: [] }, { step: 1, series: {} },
    { step: 1, series: [{ labels: { a: 1 }, points: [] }] }, { step: 1, series: [{ labels: {}, points: [[1]] }] },
    { step: 1, series: [{ labels: {}, points: [[1, null]] }] }, { step: 1, series: [{ labels: {} }] }])
    assert.throws(() => readLines(bad), DataError, JSON.stringify(bad));
  assert.deepEqual(readNames({ types: [{ name: "a", series: 2 }] }, "types"), ["a"]);
  for (const bad of [{}, { types: ["a"] }, { types: [{ name: 5 }] }])
    assert.throws(() => readNames(bad, "types"), DataError);
});

test("what was before the first sample is not zero", () => {
  assert.equal(readFirst({ store: { rows: 0, first: 5 } }), 0);
  assert.equal(readFirst({ store: { rows: 3, first: 5 } }), 5);
  for (const bad of [{}, { store: {} }, { store: { rows: "1", first: 1 } }])
    assert.throws(() => readFirst(bad), DataError);
  assert.equal(knownMs({ from: T, to: T + 60000 }, T - 5), 60000);
  assert.equal(knownMs({ from: T, to: T + 60000 }, T + 20000), 40000);
  assert.equal(knownMs({ from: T, to: T + 60000 }, T + 99999), 1000);
});

test("services: shares, what took nothing, the order under a pointer", () => {
  const lines = readLines({ step: 1, series: [
    { labels: { "service.name": "b" }, points: [[0, 30, 1]] },
    { labels: { "service.name": "a" }, points: [[0, 40, 1], [1, 20, 1]] },
    { labels: { "service.name": "" }, points: [[0, 10, 1]] },
  ] });
  const s = shares(lines, ["idle", "a", "b"]);
  assert.deepEqual(s.map((x) => [x.name, x.value, x.share]), [["a", 60, 0.6], ["b", 30, 0.3], ["idle", 0, 0]]);
  assert.deepEqual(shares(readLines({ step: 1, series: [] }), ["x"]), [{ name: "x", value: 0, share: 0 }]);
  const before = [s[2]!, s[1]!];
  assert.deepEqual(keepOrder(s, before).map((x) => x.name), ["idle", "b", "a"]);
});

test("types and rates", () => {
  assert.deepEqual(typeName(CPU), { name: "cpu", unit: "nanoseconds" });
  assert.deepEqual(typeName("odd"), { name: "odd", unit: "" });
  const off = "off_cpu:offcpu:nanoseconds::";
  const samples = "process_cpu:samples:count:cpu:nanoseconds";
  assert.deepEqual(sortTypes([samples, off, CPU]), [CPU, off, samples]);
  assert.equal(typeLabel(CPU, [CPU, off]), "CPU");
  assert.equal(typeLabel(CPU, [CPU, "x:cpu:count::"]), "CPU (nanoseconds)");
  assert.equal(typeLabel(CPU, [CPU, "x:cpu:nanoseconds::"]), `CPU (${CPU})`);
  assert.equal(rate(3e9, 2000, typeName(CPU)), "1.50 cores");
  assert.equal(rate(1, 2000, typeName(CPU)), "<0.01 cores");
  assert.equal(rate(0, 2000, typeName(CPU)), "0 cores");
  assert.equal(rate(3e10, 1000, typeName(off)), "30.0 threads");
  assert.equal(rate(2 ** 21, 2000, { name: "alloc", unit: "bytes" }), "1.00 MiB/s");
  assert.equal(rate(5000, 1000, { name: "samples", unit: "count" }), "5,000/s");
  assert.equal(rate(5, 10000, { name: "samples", unit: "count" }), "0.50/s");
});

test("times as text, in the zone of who reads", () => {
  const noon = new Date(2026, 10, 20, 12, 0, 5).getTime();
  assert.equal(clock(noon), "12:00:05");
  assert.equal(localInput(noon), "2026-11-20T12:00:05");
  assert.equal(rangeText({ from: noon, to: noon + 60000 }, noon), "12:00:05 – 12:01:05");
  assert.equal(rangeText({ from: noon, to: noon + 60000 }, noon + 86400000), "2026-11-20 12:00:05 – 12:01:05");
  assert.equal(rangeText({ from: noon - 86400000, to: noon }, noon), "2026-11-19 12:00:05 – 2026-11-20 12:00:05");
  const five = ticks({ from: noon, to: noon + 300000 }, 6);
  assert.deepEqual(five.map((t) => t.label), ["12:01", "12:02", "12:03", "12:04", "12:05"]);
  assert.ok(ticks({ from: noon, to: noon + 604800000 }, 10).every((t) => /^\d\d-\d\d$/.test(t.label)));
});

test("a node keeps its name when newer samples hit another line, or are not all inlined", () => {
  const a = fromFolded(["app;main;work_[i] 3"]);
  const b = fromFolded(["app;idle 1", "app;main;work_[i] 3", "app;main;work;more 1"]);
  const work = (p: typeof a): number => [...p.tree.frame].findIndex((f) => p.strings[p.frames.name[f]!] === "work");
  a.frames.flags[a.tree.frame[work(a)]!]! |= 4;
  a.frames.line[a.tree.frame[work(a)]!] = 17;
  const id = pathId(pathHashes(a, a.tree), work(a));
  assert.equal(findPath(pathHashes(b, b.tree), id), work(b));
  // The line where it starts tells two of one name apart.
  a.frames.flags[a.tree.frame[work(a)]!] = 0;
  assert.equal(findPath(pathHashes(b, b.tree), pathId(pathHashes(a, a.tree), work(a))), -1);
});
