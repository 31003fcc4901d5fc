// SPDX-License-Identifier: Apache-2.0
/* Hot lines, chains of own functions, parts by function. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { foldChains, isChain } from "../model/chains.ts";
import type { Chained } from "../model/chains.ts";
import { functionIds, hotLine } from "../model/functions.ts";
import { collapseOthers, insideOf, ownersOf, withBoxes } from "../model/mine.ts";
import type { Mine } from "../model/mine.ts";
import { parseBody } from "../model/payload.ts";
import { andLeaf } from "../model/predicate.ts";
import { matcher, matchFrames } from "../model/search.ts";
import { bars } from "../model/series.ts";
import { stackedFunctions } from "../model/stack.ts";
import { findPath, nodeName, pathHashes, pathId } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { encodeBody, fromFolded, syntheticLines } from "./make.ts";

test("hot lines come with their base; frames without a line have none", () => {
  const p = fromFolded(["p;main;check 8"]);
  p.frames.file[3] = p.strings.push("/srv/check.py") - 1;
  assert.equal(hotLine(p, 3), null);
  p.hot = { line: Uint32Array.of(0, 0, 0, 28), value: Float64Array.of(0, 0, 0, 6), total: Float64Array.of(0, 0, 0, 8) };
  const q = parseBody(encodeBody(p));
  assert.deepEqual(q.hot, p.hot);
  assert.deepEqual(hotLine(q, 3), { place: "check.py:28", line: 28, share: 0.75, total: 8 });
  assert.equal(hotLine(q, 2), null);
  assert.equal(hotLine(q, 77), null, "a box of this page");
});

interface Made {
  p: Profile;
  m: Mine;
  c: Chained | null;
}

function chain(lines: string[], search = ""): Made {
  const plain = fromFolded(lines);
  const owners = ownersOf(plain, []);
  const p = withBoxes(plain, owners);
  const m = collapseOthers(p, p.tree, functionIds(p), owners);
  const s = matcher(search);
  return { p, m, c: foldChains(p, m, s && !("error" in s) ? matchFrames(p, s) : null) };
}

function fold(p: Profile, t: Tree): string[] {
  const path: string[] = [];
  return Array.from({ length: t.n }, (_, i) => {
    path.length = t.depth[i]!;
    path.push(nodeName(p, t, i));
    return t.self[i]! > 0 ? `${path.slice(1).join(";")} ${t.self[i]}` : "";
  }).filter((x) => x !== "");
}

const HEAD = "p;clone3;start_thread";

test("a chain is its first, a box and its last; values are moved, never lost", () => {
  const { p, m, c } = chain([`${HEAD};a;b;c;d;x 60`, `${HEAD};a;b;c;d;y 40`, `${HEAD};a;b 1`]);
  assert.deepEqual(fold(p, c!.tree), ["p;2 runtime frames;a;2 own frames 1", "p;2 runtime frames;a;2 own frames;d;x 60", "p;2 runtime frames;a;2 own frames;d;y 40"]);
  assert.equal(c!.tree.total[0], m.tree.total[0]);
  const box = c!.from.findIndex((_, i) => isChain(p, c!, i));
  assert.equal(c!.tree.folded![box], 2);
  assert.deepEqual(insideOf(c!, p.tree, functionIds(p), box).map(([f, v]) => [p.strings[p.frames.name[f]!], v]), [["b", 1], ["c", 0]]);
});

test("a box stands for two or more: not where values differ, nor where there are two callees", () => {
  const none = (...lines: string[]): void => assert.equal(chain(lines).c, null, lines.join());
  none(`${HEAD};a;b;c 1`);
  none(`${HEAD};a;b;c;d 90`, `${HEAD};a;b 10`);
  none(`${HEAD};a;b;x;y 50`, `${HEAD};a;b;c;d 50`);
  // In a comparison both sides must be alike.
  none(`${HEAD};a;b;c;d;e 10 100`, `${HEAD};a;b;c;x 90 0`, `${HEAD};a;y 0 100`);
  assert.ok(chain([`${HEAD};a;b;c;d;e 10 100`]).c);
});

test("small differences do not add up along a chain", () => {
  const lines = Array.from({ length: 9 }, (_, i) => `${HEAD};${"abcdefghij".slice(0, i + 1).split("").join(";")} 15`);
  const { p, c } = chain([...lines, `${HEAD};a;b;c;d;e;f;g;h;i;j 865`]);
  for (let i = 0; i < (c?.tree.n ?? 0); i++)
    if (isChain(p, c!, i))
      assert.ok(c!.tree.total[i]! - c!.tree.self[i]! >= 0.98 * 0.98 * c!.tree.total[c!.tree.parent[i]!]!, "the box is as heavy as its first");
});

test("what a search matches is in no box, and every node keeps its name of the path", () => {
  const lines = [`${HEAD};a;b;c;d;e;f;g 5`];
  const { p, m, c } = chain(lines, "d");
  assert.deepEqual(fold(p, c!.tree), ["p;2 runtime frames;a;2 own frames;d;2 own frames;g 5"]);
  const h = pathHashes(p, m.tree);
  const of = (x: Chained): { lo: Uint32Array; hi: Uint32Array } => ({ lo: Uint32Array.from(x.from, (i) => h.lo[i]!), hi: Uint32Array.from(x.from, (i) => h.hi[i]!) });
  const all = chain(lines).c!;
  const last = all.tree.n - 1;
  assert.equal(nodeName(p, c!.tree, findPath(of(c!), pathId(of(all), last))), "g", "the same frame, whatever is in boxes above it");
});

test("chains of a large profile: totals, depths and the map of nodes agree", () => {
  const { p, m, c } = chain(syntheticLines(3000).map((l) => l.replace(/^([^;]+);_start;__libc_start_main/, "$1;_start;__libc_start_main;run;loop;step")));
  assert.ok(c);
  assert.equal(c.tree.total[0], m.tree.total[0]);
  for (let i = 0; i < c.tree.n; i++) {
    assert.equal(c.tree.total[i], m.tree.total[c.from[i]!], nodeName(p, c.tree, i));
    assert.notEqual(isChain(p, c, i) && c.tree.folded![i], 1);
  }
  const sums = new Float64Array(c.tree.n);
  p.tree.self.forEach((v, i) => sums[c.to[i]!]! += v);
  assert.deepEqual(sums, c.tree.self);
});

test("parts by function add up; the line without a name is that of all others", () => {
  const range = { from: 1000, to: 11000 };
  const point = (v: number): [number, number, number][] => [[1000, v, 1], [5000, 2 * v, 1]];
  const l = { step: 1000, damaged: false, lines: [["memcpy", 50], ["", 900], ["walk", 20]].map(([name, v]) => ({ labels: { function: name as string }, points: point(v as number) })) };
  const s = stackedFunctions(l, 12, range, 20000);
  assert.deepEqual(s.layers.map((x) => [x.name, x.n, x.total]), [["memcpy", 1, 150], ["walk", 1, 60], [null, 12, 2700]]);
  assert.equal(s.layers.reduce((sum, x) => sum + x.total, 0), bars(l, range, 20000).sum.reduce((a, b) => a + b));
  assert.deepEqual(stackedFunctions({ ...l, lines: [] }, 0, range, 20000).layers, []);
});

test("a predicate with the function that ran", () => {
  assert.equal(andLeaf("", 'a"b'), 'leaf="a\\"b"');
  assert.equal(andLeaf("json", "memcpy"), '(fn~"(?i)json") and leaf="memcpy"');
  assert.equal(andLeaf('leaf="memcpy"', "memcpy"), 'leaf="memcpy"');
});
