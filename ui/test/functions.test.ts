// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { functionIds, functionTable, sortTable } from "../model/functions.ts";
import { matcher, matchFrames } from "../model/search.ts";
import { applyTransform, invert, sandwich } from "../model/transform.ts";
import { frameName, nodeName } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { fromFolded, syntheticLines } from "./make.ts";

function table(p: Profile, first = 0, last = first): Map<string, [number, number]> {
  const ids = functionIds(p);
  const t = functionTable(p, p.tree, ids, first, last);
  return new Map([...t.id].map((f, i) => [frameName(p, ids.frame[f]!), [t.self[i]!, t.total[i]!]]));
}

/** Back to folded lines, for comparing trees. */
function fold(p: Profile, t: Tree): string[] {
  const out: string[] = [];
  const path: string[] = [];
  for (let i = 0; i < t.n; i++) {
    path.length = t.depth[i]!;
    path.push(nodeName(p, t, i));
    if (t.self[i]! > 0)
      out.push(`${path.slice(1).join(";")} ${t.self[i]}`);
  }
  return out.sort();
}

test("self and total, recursion once, groups left out", () => {
  const t = table(fromFolded(["p;f;f;g;f 4", "p;f;h 1", "q;g 2"]));
  assert.deepEqual([...t.keys()].sort(), ["f", "g", "h"]);
  assert.deepEqual(t.get("f"), [4, 5]);
  assert.deepEqual(t.get("g"), [2, 6]);
  assert.deepEqual(t.get("h"), [1, 1]);
});

test("totals agree with counting stacks", () => {
  const lines = syntheticLines(1500, 9);
  const t = table(fromFolded(lines));
  const want = new Map<string, [number, number]>();
  for (const l of lines) {
    const [, stack, v] = /^(.*) (\d+)$/.exec(l)!;
    const names = stack!.split(";").slice(1).map((f) => f.replace(/_\[[kij]\]$/, ""));
    const kinds = stack!.split(";").slice(1).map((f) => /_\[[kj]\]$/.exec(f)?.[0] ?? "");
    const seen = new Set<string>();
    names.forEach((n, i) => seen.add(n + kinds[i]));
    for (const n of seen) {
      const row = want.get(n) ?? [0, 0];
      row[1] += Number(v);
      want.set(n, row);
    }
    want.get(names[names.length - 1]! + kinds[kinds.length - 1]!)![0] += Number(v);
  }
  let compared = 0;
  for (const [n, row] of want)
    if (!/_\[j\]$/.test(n) && !want.has(n + "_[j]")) {
      assert.deepEqual(t.get(n.replace(/_\[k\]$/, "")), row, n);
      compared++;
    }
  assert.ok(compared > 500);
});

test("of a part, and of folded siblings", () => {
  const p = fromFolded(["p;a;x 1", "p;b;x 2", "p;c;x 4"]);
  const nodes = [...p.tree.frame.keys()].filter((i) => p.tree.depth[i] === 2);
  assert.deepEqual(table(p, nodes[0], nodes[1]).get("x"), [3, 3]);
  assert.deepEqual(table(p, nodes[2]).get("x"), [4, 4]);
});

test("one name of two kinds is two functions", () => {
  const p = fromFolded(["p;read;read_[k] 3"]);
  assert.equal(functionTable(p, p.tree, functionIds(p), 0, 0).n, 2);
});

test("copies of a library are one file, another library is not", () => {
  const p = fromFolded(["p;a;malloc 1", "p;b;malloc_[k] 2"]);
  p.mappings.push({ path: "/usr/lib/libc.so.6", buildId: "1" }, { path: "/other/root/libc.so.6", buildId: "2" }, { path: "/x/jemalloc.so", buildId: "3" });
  const [one, two] = [...p.frames.name.keys()].filter((f) => frameName(p, f) === "malloc");
  p.frames.kind[two!] = p.frames.kind[one!]!;
  p.frames.mapping[one!] = 0;
  p.frames.mapping[two!] = 1;
  assert.deepEqual(table(p).get("malloc"), [3, 3]);
  p.frames.mapping[two!] = 2;
  assert.equal(functionTable(p, p.tree, functionIds(p), 0, 0).n, 4);
});

test("a function that is inlined in places says so", () => {
  const p = fromFolded(["p;a;f_[i] 1", "p;f;g_[i] 1"]);
  const ids = functionIds(p);
  const of = (name: string): number => ids.inlined[[...ids.frame].findIndex((f) => frameName(p, f) === name)]!;
  assert.deepEqual([of("a"), of("f"), of("g")], [0, 1, 2]);
});

test("sorting: by each column, ties by name, with a filter", () => {
  const p = fromFolded(["p;b 5 1", "p;a 1 1", "p;c 2 9"]);
  const ids = functionIds(p);
  const t = functionTable(p, p.tree, ids, 0, 0);
  const names = (key: "name" | "self" | "change", down: boolean, filter = ""): string =>
    [...sortTable(p, ids, t, key, down, 1, filter ? matchFrames(p, matcher(filter)) : null)]
      .map((i) => frameName(p, ids.frame[t.id[i]!]!)).join("");
  assert.equal(names("self", true), "cab");
  assert.equal(names("name", false), "abc");
  assert.equal(names("name", true), "cba");
  assert.equal(names("change", true), "cab");
  assert.equal(names("change", false), "bac");
  assert.equal(names("self", true, "[bc]"), "cb");
});

test("hide gives the values to the caller", () => {
  const p = fromFolded(["p;a;w;b 1", "p;a;w 2", "p;a;b 4"]);
  const t = applyTransform(p, p.tree, functionIds(p), { op: "hide", name: "w" });
  assert.deepEqual(fold(p, t), ["p;a 2", "p;a;b 5"]);
  assert.equal(t.total[0], 7);
});

test("drop takes the paths through a function, with what they weigh, and no other", () => {
  const p = fromFolded(["p;a;f;f;x 1", "p;a 2", "p;a;x 4", "q;f 8"]);
  const t = applyTransform(p, p.tree, functionIds(p), { op: "drop", name: "f" });
  assert.deepEqual(fold(p, t), ["p;a 2", "p;a;x 4"]);
  assert.equal(t.total[0], 6);
  assert.deepEqual(fold(p, applyTransform(p, p.tree, functionIds(p), { op: "drop", name: "none" })), fold(p, p.tree));
});

test("focus keeps the paths through a function, from its outermost frame", () => {
  const p = fromFolded(["p;a;f;f;x 1", "q;f;x 2", "q;y 9"]);
  const t = applyTransform(p, p.tree, functionIds(p), { op: "focus", name: "f" });
  assert.deepEqual(fold(p, t), ["f;f;x 1", "f;x 2"]);
  assert.equal(applyTransform(p, p.tree, functionIds(p), { op: "focus", name: "none" }).total[0], 0);
});

test("merge takes direct recursion together, of all or of one function", () => {
  const p = fromFolded(["p;f;f;f;g;g 1", "p;f;g;f 2"]);
  const ids = functionIds(p);
  assert.deepEqual(fold(p, applyTransform(p, p.tree, ids, { op: "merge" })), ["p;f;g 1", "p;f;g;f 2"]);
  assert.deepEqual(fold(p, applyTransform(p, p.tree, ids, { op: "merge", name: "g" })), ["p;f;f;f;g 1", "p;f;g;f 2"]);
});

test("no transform makes or loses a value, on both sides of a comparison", () => {
  const lines = syntheticLines(800).map((l, i) => `${l} ${(i * 7) % 11}`);
  const p = fromFolded(lines);
  const ids = functionIds(p);
  const name = nodeName(p, p.tree, 10);
  for (const t of [applyTransform(p, p.tree, ids, { op: "hide", name }), applyTransform(p, p.tree, ids, { op: "merge" })]) {
    assert.equal(t.total[0], p.tree.total[0]);
    assert.equal(t.base!.total[0], p.tree.base!.total[0]);
  }
});

test("callers and callees: both sides weigh the function's total", () => {
  const p = fromFolded(["p;a;f;x 1", "p;b;f;f;x 2", "q;f 4", "q;z 8"]);
  const s = sandwich(p, p.tree, functionIds(p), "f")!;
  assert.equal(s.callers.total[0], 7);
  assert.equal(s.callees.total[0], 7);
  assert.deepEqual(fold(p, s.callers), ["a;p 1", "b;p 2", "q 4"]);
  assert.deepEqual(fold(p, s.callees), [" 4", "f;x 2", "x 1"].sort());
  assert.equal(sandwich(p, p.tree, functionIds(p), "none"), null);
});

test("fold: what a function calls is part of it, whoever calls it", () => {
  const p = fromFolded(["p;a;f;x;y 3", "p;a;f;z 2", "p;f 1", "p;g;x 4", "p;f;g;f;q 1"]);
  const t = applyTransform(p, p.tree, functionIds(p), { op: "fold", name: "f" });
  assert.deepEqual(fold(p, t), ["p;a;f 5", "p;f 2", "p;g;x 4"]);
});

test("collapse: from the outermost frame to the innermost, what ends in between stays", () => {
  const p = fromFolded(["p;a;f;x;f;y 3", "p;a;f;x 2", "p;a;f;f;x;f 1", "p;a;g;f;y 4", "p;x;f;y 1"]);
  const t = applyTransform(p, p.tree, functionIds(p), { op: "collapse", name: "f" });
  assert.deepEqual(fold(p, t).sort(), ["p;a;f 1", "p;a;f;x 2", "p;a;f;y 3", "p;a;g;f;y 4", "p;x;f;y 1"]);
  assert.equal(t.total[0], p.tree.total[0]);
});

test("inverted: what ran is at the root, its callers behind it, both sides of a comparison", () => {
  const p = fromFolded(["p;a;f 1 3", "p;b;f 2 0", "p;a 5 5", "q;f;f 0 4"]);
  const t = invert(p, p.tree, functionIds(p));
  const lines = (column: Float64Array): string[] => {
    const out: string[] = [];
    const path: string[] = [];
    for (let i = 0; i < t.n; i++) {
      path.length = t.depth[i]!;
      path.push(nodeName(p, t, i));
      if (column[i]! > 0)
        out.push(`${path.slice(1).join(";")} ${column[i]}`);
    }
    return out.sort();
  };
  assert.deepEqual(lines(t.self), ["a;p 5", "f;a;p 3", "f;f;q 4"]);
  assert.deepEqual(lines(t.base!.self), ["a;p 5", "f;a;p 1", "f;b;p 2"]);
  assert.equal(t.total[0], p.tree.total[0]);
  // The first level is the table's self.
  const f = [...t.frame.keys()].find((i) => t.depth[i] === 1 && nodeName(p, t, i) === "f")!;
  assert.deepEqual([t.total[f], t.base!.total[f]], [7, 3]);
  const big = fromFolded(syntheticLines(3000));
  const bi = invert(big, big.tree, functionIds(big));
  assert.equal(bi.total[0], big.tree.total[0]);
});
