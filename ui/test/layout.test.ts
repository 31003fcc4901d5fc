// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { baseScale, boxOf, Boxes, hit, layout, weigh } from "../model/layout.ts";
import { fromFolded, random, syntheticLines } from "./make.ts";

test("children stand within their parent, in order, without a gap", () => {
  const { tree } = fromFolded(syntheticLines(2000));
  const w = weigh(tree);
  for (let i = 0; i < tree.n; i++) {
    let at = w.start[i]!;
    for (let c = i + 1; c <= i + tree.below[i]!; c += tree.below[c]! + 1) {
      assert.equal(w.start[c], at);
      at += w.total[c]!;
    }
    assert.ok(at <= w.start[i]! + w.total[i]!);
  }
});

test("without folding every frame has its box", () => {
  const { tree } = fromFolded(["p;a;b 50", "p;c 50"]);
  const w = weigh(tree);
  const b = layout(tree, w, 0, 100, 1000, 0.001, new Boxes());
  assert.deepEqual([...b.node.subarray(0, b.n)], [0, 1, 2, 3, 4]);
  assert.deepEqual([...b.x.subarray(0, b.n)], [0, 0, 0, 0, 500]);
  assert.deepEqual([...b.w.subarray(0, b.n)], [1000, 1000, 500, 500, 500]);
});

/** Every frame in the view is drawn, or is counted by a folded box, or is below a folded frame. */
test("nothing is hidden: drawn and folded frames are all frames of the view", () => {
  const { tree } = fromFolded(syntheticLines(5000));
  const w = weigh(tree);
  const r = random(3);
  for (let round = 0; round < 40; round++) {
    const z = round === 0 ? 0 : Math.floor(r() * tree.n);
    if (w.total[z] === 0)
      continue;
    const v0 = w.start[z]!;
    const v1 = v0 + w.total[z]!;
    const b = layout(tree, w, v0, v1, 900, 2.5, new Boxes());
    let frames = 0;
    const width = new Map<number, number>();
    for (let i = 0; i < b.n; i++) {
      if (b.row[i]! >= tree.depth[z]!)
        frames += b.folded[i] || 1;
      width.set(b.row[i]!, (width.get(b.row[i]!) ?? 0) + b.w[i]!);
      if (!b.folded[i] && b.w[i]! < 2.4)
        assert.ok(tree.below[b.node[i]!] === 0, "a narrow box of its own has nothing above it");
    }
    assert.equal(frames, tree.below[z]! + 1);
    for (let d = 0; d <= tree.depth[z]!; d++)
      assert.ok(Math.abs(width.get(d)! - 900) < 0.1, `row ${d} is ${width.get(d)} wide`);
    // Boxes of a row do not overlap and stay in the view.
    for (const row of width.keys()) {
      let end = 0;
      for (let i = 0; i < b.n; i++)
        if (b.row[i] === row) {
          assert.ok(b.x[i]! >= end - 0.01);
          end = b.x[i]! + b.w[i]!;
        }
      assert.ok(end <= 900.01);
    }
  }
});

test("narrow siblings fold into one box that counts what is in it", () => {
  const lines = Array.from({ length: 500 }, (_, i) => `p;n${String(i).padStart(3, "0")};x 1`);
  const { tree } = fromFolded([...lines, "p;wide 500"]);
  const b = layout(tree, weigh(tree), 0, 1000, 1000, 2.5, new Boxes());
  const at = b.folded.subarray(0, b.n).findIndex((n) => n > 0);
  assert.equal(b.folded[at], 1000);
  assert.equal(b.w[at], 500);
  // A node in the fold is found in it.
  assert.equal(boxOf(tree, b, b.node[at]! + 5), at);
});

test("a single narrow frame is not called folded", () => {
  const { tree } = fromFolded(["p;a 1", "p;b 999"]);
  const b = layout(tree, weigh(tree), 0, 1000, 1000, 2.5, new Boxes());
  assert.deepEqual([...b.folded.subarray(0, b.n)], [0, 0, 0, 0]);
});

test("hit finds the box at a pixel, and a thin one beside it", () => {
  const { tree } = fromFolded(["p;a 1", "p;b 998", "p;c 1"]);
  const b = layout(tree, weigh(tree), 0, 1000, 1000, 0.1, new Boxes());
  assert.equal(b.node[hit(b, 2, 0.5)], 2);
  assert.equal(b.node[hit(b, 2, 500)], 3);
  assert.equal(b.node[hit(b, 2, 1000.4)], 4);
  assert.equal(hit(b, 3, 500), -1);
});

test("widths of a comparison: after, before, both", () => {
  const { tree } = fromFolded(["p;gone 30 0", "p;new 0 10", "p;same 10 10"]);
  assert.deepEqual([...weigh(tree).total], [20, 20, 0, 10, 10]);
  assert.deepEqual([...weigh(tree, "before").total], [40, 40, 30, 0, 10]);
  assert.deepEqual([...weigh(tree, "both").total], [60, 60, 30, 10, 20]);
  assert.deepEqual([...weigh(tree, "both", baseScale(tree, true)).total], [40, 40, 15, 10, 15]);
});

test("an empty view has no boxes", () => {
  const { tree } = fromFolded(["p;a 0"]);
  assert.equal(layout(tree, weigh(tree), 0, 0, 1000, 1, new Boxes()).n, 0);
});
