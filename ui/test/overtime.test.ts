// SPDX-License-Identifier: Apache-2.0
/* Parts of charts add up, marks are of their selection, a request has the order of time, source text is not changed by its colours. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeLive, encodeLive, LIVE_DEFAULTS } from "../model/address.ts";
import { joinSamples, readTraceSamples, threadBoxes } from "../model/flamechart.ts";
import { marksOf, readMarks, readViews } from "../model/marks.ts";
import { bars, peak } from "../model/series.ts";
import { stacked, TOP_LAYERS } from "../model/stack.ts";
import { colour, languageOf } from "../model/syntax.ts";
import { sampleType } from "../model/vocab.ts";
import { random } from "./make.ts";

const CPU = sampleType("process_cpu:cpu:nanoseconds:cpu:nanoseconds");
const RANGE = { from: 1000, to: 11000 };

function lines(n: number, labels = (i: number): string => `s${i}`): Parameters<typeof bars>[0] {
  const r = random(5);
  return { step: 1000, damaged: false, lines: Array.from({ length: n }, (_, i) => ({ labels: { "service.name": labels(i) },
    points: Array.from({ length: 10 }, (_, k): [number, number, number] => [1000 + 1000 * k, Math.floor(r() * 100 * (i + 1)), 1]) })) };
}

for (const n of [0, 1, TOP_LAYERS, TOP_LAYERS + 1, TOP_LAYERS + 2, 300])
  test(`the parts of ${n} services add up to the whole, bar by bar`, () => {
    const s = stacked(lines(n), "service.name", RANGE, 20000);
    const whole = bars(lines(n), RANGE, 20000);
    assert.deepEqual([...s.whole.sum], [...whole.sum]);
    for (let i = 0; i < whole.sum.length; i++)
      assert.ok(Math.abs(s.layers.reduce((x, l) => x + l.bars.sum[i]!, 0) - whole.sum[i]!) < 1e-6);
    assert.equal(s.layers.reduce((x, l) => x + l.n, 0), n);
    assert.ok(s.layers.length <= TOP_LAYERS + 1);
  });

test("lines of one value are one part, and a value without a name is one, too", () => {
  const s = stacked(lines(6, (i) => ["", "a", "b"][i % 3]!), "service.name", RANGE, 20000);
  assert.deepEqual(s.layers.map((l) => l.name).sort(), ["", "a", "b"]);
});

test("colours are of the names: neither an order nor other values change them", () => {
  const colours = (names: string[]): Map<string | null, number> =>
    new Map(stacked(lines(names.length, (i) => names[i]!), "service.name", RANGE, 20000).layers.map((l) => [l.name, l.colour]));
  const a = colours(["shop", "cart", "mail"]);
  assert.deepEqual(colours(["mail", "shop", "cart"]), a);
  assert.equal(new Set(a.values()).size, 3);
  const all = colours(Array.from({ length: 8 }, (_, i) => `x${i}`));
  assert.equal(new Set(all.values()).size, 8, "no two parts have one colour");
});

test("two charts have one scale: the highest of both", () => {
  const of = (v: number): ReturnType<typeof bars> => bars({ step: 1000, damaged: false, lines: [{ labels: {}, points: [[1000, v, 1]] }] }, { from: 1000, to: 2000 }, 9000);
  assert.equal(peak(of(500), CPU), 0.5);
  assert.equal(peak(of(0), CPU), 0);
  assert.equal(peak(null, CPU), 0);
});

test("marks of another selection are left out", () => {
  const marks = readMarks({ annotations: [{ id: "1", time: 5, text: "all", labels: {} }, { id: "2", time: 4, text: "shop", labels: { "service.name": "shop", zone: "a" } }],
    deploys: [{ time: 6, service: "cart", version: "2", before: "1" }] });
  const names = (service: string, filters: Parameters<typeof marksOf>[2] = []): number[] => marksOf(marks, service, filters).map((m) => m.at);
  assert.deepEqual(names(""), [4, 5, 6]);
  assert.deepEqual(names("shop"), [4, 5]);
  assert.deepEqual(names("cart"), [5, 6]);
  assert.deepEqual(names("", [{ label: "zone", value: "b", not: false }]), [5, 6]);
  assert.deepEqual(names("", [{ label: "zone", value: "a", not: true }]), [5, 6]);
  assert.deepEqual(names("", [{ label: "zone", value: "a", not: false }]), [4, 5, 6]);
});

test("an address of a saved view stays on this page", () => {
  const views = readViews({ views: ["?a", "#b", "//evil", "https://evil", "javascript:x", ""].map((address, i) => ({ id: String(i), name: "n", address })) });
  assert.deepEqual(views.map((v) => v.address), ["?a", "#b"]);
});

test("an order in the address is one that the server has", () => {
  const s = { ...LIVE_DEFAULTS, requests: { ...LIVE_DEFAULTS.requests, order: "-start_ms" } };
  assert.equal(decodeLive(encodeLive(s)).requests.order, "-start_ms");
  assert.equal(decodeLive("order=-nonsense").requests.order, "-duration_ms");
});

const FRAMES = ["main", "a", "b"].map((name) => [name, "native", "", 0]);
/** [ms, value in ms, stack]: stacks are main;a and main;b. */
const samplesOf = (...rows: [number, number, number][]): ReturnType<typeof readTraceSamples> => readTraceSamples({ frames: FRAMES, stacks: [[0, 1], [0, 2]], left_out: 0,
  threads: [{ service: "shop", thread: "t", thread_id: "1", samples: rows.map(([at, v, stack]) => [at, v * 1e6, 1, stack]) }] }, 1);

test("a flame chart has the order of time: what ran twice has two boxes, with what ran between them", () => {
  const s = samplesOf([10, 10, 0], [20, 10, 0], [30, 10, 1], [40, 10, 0]);
  const t = threadBoxes(s, s.threads[0]!);
  assert.deepEqual(t.boxes.map((b) => [s.frames[b.frame]!.name, b.depth, b.from, b.to, b.n]),
    [["main", 0, 0, 40, 4], ["a", 1, 0, 20, 2], ["b", 1, 20, 30, 1], ["a", 1, 30, 40, 1]]);
  assert.deepEqual([t.sampled, t.unknown, t.overlap, t.levels], [40, 0, 0, 2]);
});

test("what is between samples is not filled, and is told", () => {
  const s = samplesOf([10, 10, 0], [50, 10, 0]);
  const t = threadBoxes(s, s.threads[0]!);
  assert.deepEqual(t.boxes.filter((b) => b.depth === 0).map((b) => [b.from, b.to]), [[0, 10], [40, 50]]);
  assert.deepEqual([t.sampled, t.unknown], [20, 30]);
});

test("samples that stand for the same time do not draw it twice, and it is told", () => {
  const s = samplesOf([10, 10, 0], [10, 10, 1], [15, 10, 1]);
  const t = threadBoxes(s, s.threads[0]!);
  assert.equal(t.overlap, 15);
  assert.equal(t.sampled, 15);
  for (const b of t.boxes)
    assert.ok(b.to >= b.from);
});

test("stacks that are not stored any more leave their time empty; wrong indexes are an error", () => {
  const s = samplesOf([10, 10, 0], [20, 10, -1], [30, 10, 0]);
  assert.deepEqual(threadBoxes(s, s.threads[0]!).boxes.filter((b) => b.depth === 0).map((b) => [b.from, b.to]), [[0, 10], [20, 30]]);
  for (const stack of [2, -2, 0.5])
    assert.throws(() => samplesOf([10, 10, stack]));
});

test("running and waiting of one thread are one row, in the order of time", () => {
  const s = joinSamples(samplesOf([10, 10, 0], [30, 10, 0]), samplesOf([20, 10, 1]));
  assert.equal(s.threads.length, 1);
  const t = threadBoxes(s, s.threads[0]!);
  assert.deepEqual(t.boxes.map((b) => [s.frames[b.frame]!.name, b.from, b.to]), [["main", 0, 30], ["a", 0, 10], ["b", 10, 20], ["a", 20, 30]]);
});

test("pieces of a line are the line, whatever is in it", () => {
  const r = random(11);
  const bits = ["/*", "*/", "//", "#", '"', "'", "`", "\\", '"""', "'''", "if", " ", "0x1f", "é", "\u{1f600}", "<b>", "x1", "\t", "$a", "@"];
  for (const ending of ["c", "py", "js", "rb", "go", "rs", "java", "php", "pl", "txt"])
    for (let k = 0; k < 200; k++) {
      const lines = Array.from({ length: 3 }, () => Array.from({ length: Math.floor(r() * 9) }, () => bits[Math.floor(r() * bits.length)]!).join(""));
      assert.deepEqual(colour(lines, languageOf(`/a.${ending}`)).map((p) => p.map(([, t]) => t).join("")), lines);
    }
});

test("comments, strings, numbers and keywords of languages", () => {
  const of = (file: string, ...lines: string[]): string => colour(lines, languageOf(file)).map((l) => l.filter(([k]) => k !== "").map(([k, t]) => `${k}:${t}`).join(" ")).join(" | ");
  assert.equal(of("a.c", "#if X", 'return 0x1f; // "no"', "/* if", "x */ int y"), 'keyword:#if | keyword:return number:0x1f comment:// "no" | comment:/* if | comment:x */ keyword:int');
  assert.equal(of("/x/a.py", "def f(): # if", '"""if', 'x""" + 1', "'it\\'s'"), 'keyword:def comment:# if | string:"""if | string:x""" number:1 | string:\'it\\\'s\'');
  assert.equal(of("a.go", "x := `if", "y` // z"), "string:`if | string:y` comment:// z");
  assert.equal(of("a.js", "const s = 'a // b'; ifx"), "keyword:const string:'a // b'");
  assert.equal(of("noending", "if 1"), "");
  assert.equal(of("a.rs", "fn a<'b>(x: &'b u8) { '\\n' }"), "keyword:fn string:'\\n'");
});
