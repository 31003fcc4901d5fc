// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { colouring, oklch } from "../draw/colour.ts";
import { LOOKS } from "../draw/paint.ts";
import { functionIds } from "../model/functions.ts";
import { applyTransform } from "../model/transform.ts";
import { nodeName } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { fromFolded, syntheticLines } from "./make.ts";

const rgb = (css: string): number[] => [1, 3, 5].map((i) => parseInt(css.slice(i, i + 2), 16));

/** Red minus blue of the colour of a frame. */
function warmth(p: Profile, tree: Tree, name: string, normalise: boolean): number {
  const c = colouring(p, tree, "light", "diff", normalise);
  const node = [...tree.frame.keys()].find((i) => nodeName(p, tree, i) === name)!;
  const [r, , b] = rgb(c.palette[c.of[node]!]!);
  return r! - b!;
}

test("colours are what they should be", () => {
  assert.equal(oklch(1, 0, 0), "#ffffff");
  assert.equal(oklch(0, 0, 0), "#000000");
  // Reference values of CSS Color 4 for pure red, lime and blue.
  assert.equal(oklch(0.62796, 0.25768, 29.234), "#ff0000");
  assert.equal(oklch(0.86644, 0.29483, 142.4953), "#00ff00");
  assert.equal(oklch(0.45201, 0.31321, 264.052), "#0000ff");
});

test("a change is of the whole profile, in a part that is looked at alone too", () => {
  // Before and after have 1000 samples; f went from 100 to 200, inside it nothing moved.
  const p = fromFolded(["p;f;x 50 100", "p;f;y 50 100", "p;g 900 800"]);
  const alone = applyTransform(p, p.tree, functionIds(p), { op: "focus", name: "f" });
  for (const tree of [p.tree, alone])
    for (const normalise of [false, true])
      assert.ok(warmth(p, tree, "x", normalise) > 60, "x grew");
});

test("chance stays neutral, absolute and normalised differ where totals differ", () => {
  const p = fromFolded(["p;luck 1 3", "p;same 400 800", "p;more 100 900", "p;rest 499 297"]);
  for (const normalise of [false, true])
    assert.ok(Math.abs(warmth(p, p.tree, "luck", normalise)) < 3);
  assert.ok(warmth(p, p.tree, "same", false) > 60);
  assert.ok(Math.abs(warmth(p, p.tree, "same", true)) < 3);
  assert.ok(warmth(p, p.tree, "more", true) > 60);
  assert.ok(warmth(p, p.tree, "rest", true) < -60);
});

test("text is readable on every colour, dark and light", () => {
  const luminance = (css: string): number => {
    const [r, g, b] = rgb(css).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
  };
  const contrast = (a: string, b: string): number => {
    const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m);
    return (x! + 0.05) / (y! + 0.05);
  };
  const p = fromFolded(syntheticLines(500).map((l, i) => `${l} ${i % 9}`));
  for (const theme of ["light", "dark"] as const)
    for (const by of ["kind", "name", "package", "diff"] as const)
      for (const css of colouring(p, p.tree, theme, by, true).palette)
        assert.ok(contrast(css, LOOKS[theme].text) >= 4.5,
                  `${theme} ${by} ${css}: ${contrast(css, LOOKS[theme].text).toFixed(2)}`);
});
