// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { compareProfiles } from "../model/compare.ts";
import { DataError, nodeName } from "../model/tree.ts";
import type { Profile } from "../model/tree.ts";
import { fromFolded } from "./make.ts";

/** "path before/after" of each node. */
function golden(p: Profile): string[] {
  const { tree } = p;
  const out = [];
  for (let i = 0; i < tree.n; i++) {
    const path = [];
    for (let k = i; k !== 0; k = tree.parent[k]!)
      path.push(nodeName(p, tree, k));
    out.push(`${path.reverse().join(";")} ${tree.base!.total[i]}/${tree.total[i]}`);
  }
  return out;
}

test("two profiles as one: matched by function, in either alone, totals kept", () => {
  const before = fromFolded(["app;main;old 4", "app;main;work 6", "gone;x 2"]);
  const after = fromFolded(["app;main;work 9", "app;main;work;deeper 1", "new;y 5"]);
  const d = compareProfiles(before, after);
  assert.deepEqual(golden(d), [
    " 12/15", "app 10/10", "app;main 10/10", "app;main;old 4/0", "app;main;work 6/10", "app;main;work;deeper 0/1",
    "gone 2/0", "gone;x 2/0", "new 0/5", "new;y 0/5"]);
  assert.equal(d.meta.baseSamples, before.meta.quality.samples);
  assert.deepEqual([before.tree.base, after.tree.base], [null, null], "neither was changed");
});

test("a profile and itself do not differ, nothing and something do", () => {
  const p = fromFolded(["a;b 3", "a;c 1"]);
  const same = compareProfiles(p, p);
  for (let i = 0; i < same.tree.n; i++)
    assert.equal(same.tree.base!.total[i], same.tree.total[i]);
  assert.equal(same.tree.n, p.tree.n);
  const nothing = fromFolded(["x 0"]);
  assert.equal(compareProfiles(nothing, p).tree.base!.total[0], 0);
  assert.equal(compareProfiles(nothing, p).tree.total[0], 4);
});

test("frames of unlike kinds or binaries stay apart", () => {
  const d = compareProfiles(fromFolded(["app;read_[k] 3"]), fromFolded(["app;read 3"]));
  assert.equal(golden(d).filter((s) => s.startsWith("app;read")).length, 2);
});

test("unlike measures are refused", () => {
  const p = fromFolded(["a 1"]);
  assert.throws(() => compareProfiles({ ...p, meta: { ...p.meta, unit: "bytes" } }, p), DataError);
});
