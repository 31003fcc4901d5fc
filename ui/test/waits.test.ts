// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { colouring, oklch, showsWaits } from "../draw/colour.ts";
import { LOOKS } from "../draw/paint.ts";
import type { Filter } from "../model/address.ts";
import { functionIds } from "../model/functions.ts";
import { rate, readLines } from "../model/series.ts";
import { percent } from "../model/text.ts";
import { applyTransform, invert } from "../model/transform.ts";
import { nodeName } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { hasWaits, sampleType, sumOf, waitNamed, waitOfFrame, wholeTime } from "../model/vocab.ts";
import { WAITS } from "../model/vocab.gen.ts";
import { toggleWait, waitOf, waitRows } from "../model/waits.ts";
import { fromFolded } from "./make.ts";

const CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const OFF = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds";
const LINES = ["p;main;get;[lock] 60", "p;main;get;[network] 10", "p;main;read;[disk] 20", "p;main 10"];

const at = (p: Profile, t: Tree, path: string): number => {
  const found = [...t.frame.keys()].filter((i) => nodeName(p, t, i) === path);
  assert.ok(found.length > 0, path);
  return found[0]!;
};

/* ---- colours ---- */

type Triple = [number, number, number];

const linear = (css: string): Triple => [1, 3, 5].map((i) => parseInt(css.slice(i, i + 2), 16) / 255)
  .map((s) => (s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4)) as Triple;

function oklab([r, g, b]: Triple): Triple {
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}

/** What people without cones of a kind see (Machado, Oliveira and Fernandes 2009, severity 1), in linear sRGB. */
const SIGHT: Record<string, number[][]> = {
  usual: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

const seen = (css: string, sight: number[][]): Triple => oklab(sight.map((row) =>
  Math.min(1, Math.max(0, row.reduce((sum, k, i) => sum + k * linear(css)[i]!, 0)))) as Triple);

test("each two colours of waits can be told apart, by colour-blind people too, in both themes", () => {
  const all = WAITS.filter((w) => w.name !== "");
  assert.equal(all.length, 14);
  for (const theme of ["light", "dark"] as const)
    for (const [name, sight] of Object.entries(SIGHT))
      for (const a of all)
        for (const b of all) {
          const [x, y] = [seen(a[theme], sight), seen(b[theme], sight)];
          const d = Math.hypot(...x.map((v, i) => v - y[i]!));
          assert.ok(a === b || d >= 0.07, `${theme}, ${name}: ${a.name} and ${b.name} differ by ${d.toFixed(3)}`);
        }
});

test("text is readable on the colours of waits", () => {
  const luminance = (css: string): number => linear(css).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i]!, 0);
  for (const theme of ["light", "dark"] as const)
    for (const w of WAITS.filter((x) => x.name !== "")) {
      const [x, y] = [luminance(w[theme]), luminance(LOOKS[theme].text)].sort((m, n) => n - m);
      assert.ok((x! + 0.05) / (y! + 0.05) >= 4.5, `${theme} ${w.name}`);
    }
  assert.notEqual(oklch(0.5, 0.1, 10), WAITS[1]!.light);
});

test("a frame has the colour of what the most of its time was waited for", () => {
  const p = fromFolded(LINES);
  assert.ok(showsWaits(p) && !showsWaits(fromFolded(["p;main 3"])));
  for (const theme of ["light", "dark"] as const) {
    const c = colouring(p, p.tree, theme, "wait", false);
    const colour = (name: string): string => c.palette[c.of[at(p, p.tree, name)]!]!;
    for (const [name, wait] of [["main", "lock"], ["get", "lock"], ["[lock]", "lock"], ["[network]", "network"], ["read", "disk"]])
      assert.equal(colour(name!), waitNamed(wait!)![theme], name);
    assert.deepEqual(c.legend.map((e) => [e.label, e.wait]), [
      [`lock ${percent(0.6)}`, "lock"], [`disk ${percent(0.2)}`, "disk"], [`network ${percent(0.1)}`, "network"], [`no wait ${percent(0.1)}`, undefined]]);
  }
});

test("inverted, a frame has the colour of the wait that it is below", () => {
  const p = fromFolded(LINES);
  const t = invert(p, p.tree, functionIds(p));
  const c = colouring(p, t, "light", "wait", false);
  for (let i = 1; i < t.n; i++) {
    let top = i;
    while (t.parent[top] !== 0)
      top = t.parent[top]!;
    const wait = waitOfFrame("wait", nodeName(p, t, top));
    assert.equal(c.palette[c.of[i]!] === wait?.light, wait !== undefined, nodeName(p, t, i));
  }
});

test("by kind, too, a wait has its colour and a legend to click", () => {
  const p = fromFolded(LINES);
  const c = colouring(p, p.tree, "light", "kind", false);
  assert.equal(c.palette[c.of[at(p, p.tree, "[disk]")]!], waitNamed("disk")!.light);
  assert.deepEqual(c.legend.filter((e) => e.wait).map((e) => e.label).sort(), ["disk", "lock", "network"]);
});

/* ---- names ---- */

test("only leaves that say so are waits", () => {
  assert.equal(waitOfFrame("wait", "[lock]")?.id, "LOCK");
  for (const [kind, name] of [["native", "[lock]"], ["wait", "lock"], ["wait", "[]"], ["wait", "[mutex]"]])
    assert.equal(waitOfFrame(kind!, name!), undefined, `${kind} ${name}`);
  assert.equal(waitNamed(""), undefined);
});

test("CPU time and waits are a type of their own", () => {
  const whole = wholeTime(["process_cpu:samples:count:cpu:nanoseconds", OFF, CPU])!;
  assert.deepEqual(whole, { cpu: CPU, waits: OFF, both: `${CPU}+${OFF}` });
  for (const without of [[CPU], [OFF], [OFF, "process_cpu:cpu:seconds:cpu:seconds"]])
    assert.equal(wholeTime(without), null);
  assert.deepEqual(sumOf(whole.both), [CPU, OFF]);
  for (const one of [CPU, "", "a+b", `${CPU}+`, `${CPU}+${OFF}+${CPU}`])
    assert.equal(sumOf(one), null, one);
  const t = sampleType(whole.both);
  assert.deepEqual([t.id, t.unit, t.isCpu], ["WALL", "nanoseconds", false]);
  assert.equal(rate(3e10, 10000, t), "3.00 threads");
  assert.deepEqual([whole.both, OFF, CPU].map((x) => hasWaits(sampleType(x))), [true, true, false]);
});

/* ---- the table ---- */

test("rows of the table: time, share and number, heaviest first", () => {
  const rows = waitRows(readLines({ step: 1000, series: [
    { labels: { wait: "lock" }, points: [[0, 30, 3], [1000, 10, 1]] }, { labels: { wait: "" }, points: [[0, 10, 1]] },
    { labels: { wait: "disk" }, points: [[0, 50, 2]] }, { labels: { wait: "mutex" }, points: [] }] }));
  assert.deepEqual(rows.map((r) => [r.name, r.wait?.id, r.value, r.share, r.count]), [
    ["disk", "DISK", 50, 0.5, 2], ["lock", "LOCK", 40, 0.4, 4], ["", undefined, 10, 0.1, 1], ["mutex", undefined, 0, 0, 0]]);
  assert.deepEqual(waitRows(readLines({ step: 1, series: [] })), []);
});

test("a click on a category filters, another click shows all again", () => {
  const host: Filter = { label: "host.name", value: "a", not: false };
  const locks = toggleWait([host, { label: "wait", value: "disk", not: true }], "lock");
  assert.deepEqual(locks, [host, { label: "wait", value: "lock", not: false }]);
  assert.equal(waitOf(locks), "lock");
  assert.deepEqual(toggleWait(locks, "disk"), [host, { label: "wait", value: "disk", not: false }]);
  assert.deepEqual(toggleWait(locks, "lock"), [host]);
  assert.equal(waitOf([{ label: "wait", value: "lock", not: true }]), "");
});

test("keep: whole paths through a function, and nothing else", () => {
  const p = fromFolded([...LINES, "p;main;get 5", "p;get;x 7"]);
  const keep = (name: string): Tree => applyTransform(p, p.tree, functionIds(p), { op: "keep", name });
  const t = keep("[lock]");
  assert.deepEqual([...t.frame.keys()].map((i) => nodeName(p, t, i)), ["all", "p", "main", "get", "[lock]"]);
  assert.equal(t.total[0], 60);
  const g = keep("get");
  assert.equal(g.total[0], 60 + 10 + 5 + 7);
  assert.equal(g.total[at(p, g, "main")], 75);
  assert.equal(keep("nothing").total[0], 0);
});
