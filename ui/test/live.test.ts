// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { baseRange, decodeLive, encodeLive, firstLabel, LIVE_DEFAULTS, rangeAt, refreshMs, selector, without } from "../model/address.ts";
import type { LiveState } from "../model/address.ts";
import {
  barMs, barRange, bars, facets, heatRange, heatSteps, heatValue, keepOrder, knownMs, readFirst, readHeat, readLines, readNames, shares,
} from "../model/series.ts";
import { aligned, clock, decodeSpan, encodeSpan, LASTS, localInput, moved, rangeText, stepFor, ticks, wider } from "../model/times.ts";
import { DataError, findPath, pathHashes, pathId } from "../model/tree.ts";
import { sampleType } from "../model/vocab.ts";
import { fromFolded } from "./make.ts";

const CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const T = 1_700_000_000_000;

test("a plain word of stacks is a search in names, in a link, too", () => {
  const stacks = (text: string): string => decodeLive(new URLSearchParams({ stacks: text }).toString()).stacks;
  assert.equal(stacks("render"), 'fn~"(?i)render"');
  assert.equal(stacks(" Render "), 'fn~"Render"');
  assert.equal(stacks("a.b(int)"), 'fn~"(?i)a\\\\.b\\\\(int\\\\)"');
  assert.equal(stacks("operator=="), 'fn~"(?i)operator=="');
  // What is or tries to be a predicate is left to the server, which says what is wrong with it.
  for (const predicate of ['fn="a"', 'not fn~"x" and kind=\'k\'', "fn=render", 'render"', ""])
    assert.equal(stacks(predicate), predicate);
});

test("filters open with a label that tells something", () => {
  assert.equal(firstLabel(["host.arch", "host.name", "thread.name"]), "thread.name");
  assert.equal(firstLabel(["host.arch", "os.type"]), "host.arch");
  assert.equal(firstLabel([]), "");
});

test("the state and its text", () => {
  assert.equal(encodeLive(LIVE_DEFAULTS), "");
  assert.deepEqual(decodeLive(""), LIVE_DEFAULTS);
  const all: LiveState = {
    view: "compare", service: "a&b=\"c\" ü", type: CPU, last: 900, range: { from: T, to: T + 1 }, stacks: 'fn~"a b" under fn="="',
    group: "host.name", chart: "heat", lane: "db", waits: "lock", idle: true, self: true, source: "/a b.c", line: 17, code: { name: "f<int>(a, b)", file: "/x y", buildId: "00ff" },
    by: "host.name", find: "^a|b", sort: "-change", task: "1f3a5c7e", measure: "0a1b2c3d", whole: true, kept: "difference", calls: "skywalking",
    requests: { endpoint: "GET /a/{b}?c=d", min: 5, max: 900, status: "error", show: "slow", slow: 99.9, trace: "0af7651916cd43dd8448eb211c80319c",
      span: "b7ad6b7169203331", only: true, order: "value" }, filters: [{ label: "host.name", value: "a=b=", not: false }, { label: "k8s.pod/x", value: "", not: true }],
    base: { ago: 86400, range: { from: 5, to: 9 }, service: "", filters: [{ label: "x", value: "&", not: true }] },
  };
  assert.deepEqual(decodeLive("?" + encodeLive(all)), all);
  const other: LiveState = { ...LIVE_DEFAULTS, base: { ago: 0, range: null, service: null, filters: [] } };
  assert.deepEqual(decodeLive(encodeLive(other)), other);
  // What no selector can ask for is not shown as if it were asked.
  assert.deepEqual(decodeLive("is=a b=1&is==2&not={}=3&is=c").filters, []);
  assert.deepEqual(decodeLive("view=x&chart=y&ago=-5&base-from=9&base-to=3"), LIVE_DEFAULTS);
  for (const [last] of LASTS)
    assert.equal(decodeLive(encodeLive({ ...LIVE_DEFAULTS, last })).last, last);
  for (const bad of ["last=5", "last=-5m", "last=9999999d", "last=1e3s", "from=5&to=5", "from=5", "from=x&to=9", "from=9&to=5",
    "from=-1&to=5", "from=1e3&to=2e3", "x=y", "task=../x", "task=", "measure=../x"])
    assert.deepEqual(decodeLive(bad), { ...LIVE_DEFAULTS, view: "flame" }, bad);
  // The address alone is the overview; what selects data, and nothing else, is a flame graph.
  assert.deepEqual([encodeLive({ ...LIVE_DEFAULTS, view: "flame" }), encodeLive({ ...LIVE_DEFAULTS, last: 900 }), encodeLive({ ...LIVE_DEFAULTS, view: "flame", service: "a" })],
    ["view=flame", "last=15m&view=overview", "service=a"]);
  assert.equal(decodeLive("service=a").view, "flame");
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
  const two = [{ label: "host.name", value: 'x"', not: false }, { label: "v", value: "", not: true }];
  assert.equal(selector("", two), '{host.name="x\\"",v!=""}');
  assert.equal(selector("s", two.slice(1)), '{service.name="s",v!=""}');
  assert.deepEqual(without(two, "v"), two.slice(0, 1));
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

test("the other side of a comparison: before, at the same time, at its own", () => {
  const r = { from: T, to: T + 60000 };
  assert.deepEqual(baseRange(LIVE_DEFAULTS.base, r), { from: T - 3600000, to: T - 3540000 });
  assert.deepEqual(baseRange({ ...LIVE_DEFAULTS.base, ago: 0 }, r), r);
  assert.deepEqual(baseRange({ ...LIVE_DEFAULTS.base, range: { from: 1, to: 2 } }, r), { from: 1, to: 2 });
  assert.deepEqual(baseRange({ ...LIVE_DEFAULTS.base, ago: 86400 }, { from: 0, to: 5 }), { from: 0, to: 1 }, "nothing is before 1970");
});

test("values of a label by weight", () => {
  const l = readLines({ step: 1, series: [
    { labels: { h: "a" }, points: [[0, 1, 1]] }, { labels: { h: "b" }, points: [[0, 1, 1], [1, 1, 1]] }, { labels: {}, points: [[0, 1, 1]] }] });
  assert.deepEqual(facets(l, "h"), [{ value: "b", sum: 2, share: 0.5 }, { value: "", sum: 1, share: 0.25 }, { value: "a", sum: 1, share: 0.25 }]);
  assert.deepEqual(facets(readLines({ step: 1, series: [] }), "h"), []);
});

test("heat maps: cells in the order of time, sizes that the server takes", () => {
  const json = { from: T, to: T + 3000, column: 1000, row: 500, columns: 3, rows: 2, values: [1, 0, 2, 0, 0, 5] };
  const h = readHeat(json);
  assert.equal(h.most, 5);
  assert.deepEqual(heatRange(h, 1, 1), { from: T + 500, to: T + 1000 });
  assert.deepEqual(heatRange(h, 4, 1), { from: T + 500, to: T + 2500 });
  assert.equal(heatValue(h, 5, 0, sampleType("process_cpu:cpu:nanoseconds::")), 8);
  assert.equal(heatValue(h, 5, 1, sampleType("memory:inuse_space:bytes::")), 3.5, "the mean of the moments that were reported");
  assert.equal(heatValue(h, 1, 1, sampleType("memory:inuse_space:bytes::")), 0);
  for (const bad of [{ ...json, columns: 2 }, { ...json, rows: 0 }, { ...json, values: [1] }, { ...json, values: "x" }, { ...json, row: 0 }])
    assert.throws(() => readHeat(bad), DataError);
  for (const [s] of LASTS) {
    const { column, row } = heatSteps({ from: 0, to: s * 1000 }, 11000);
    assert.ok(Number.isInteger(row) && column % row === 0, `${s} s: whole milliseconds`);
    const columns = Math.ceil(s * 1000 / column);
    assert.ok(columns <= 241 && columns * (column / row) <= 11000, `${s} s: ${columns} columns of ${column / row}`);
  }
  assert.deepEqual(heatSteps({ from: 0, to: 60000 }, 11000), { column: 1000, row: 50 }, "a minute by 50 ms");
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
  assert.deepEqual(keepOrder(s, (x) => x.name, before).map((x) => x.name), ["idle", "b", "a"]);
  assert.deepEqual(keepOrder(Uint32Array.of(7, 8, 9), (x) => `f${x - 7}`, Uint32Array.of(1, 0), (x) => `f${x}`), [8, 7, 9],
                   "numbers of theirs that mean other things now");
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
