// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { functionIds } from "../model/functions.ts";
import { collapseOthers, hiddenMatches, insideOf, mineByWeight, ownerOf, ownersOf, parseRules, selfWithHidden, weightOfMatches, withBoxes } from "../model/mine.ts";
import type { Mine, Owners } from "../model/mine.ts";
import { ownerByTable } from "../model/owner.ts";
import { matcher, matchFrames } from "../model/search.ts";
import { invert } from "../model/transform.ts";
import { frameName, nodeName } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { readTable } from "../vocab.mjs";
import { fromFolded, syntheticLines } from "./make.ts";

/** Folded lines in which "name@/path" is a frame of a binary, or of a source file if it does not end in .so. */
function placed(lines: string[]): Profile {
  const p = fromFolded(lines);
  for (let f = 0; f < p.frames.n; f++) {
    const [, name, path] = /^(.*?)@(.*)$/.exec(frameName(p, f)) ?? [];
    if (path === undefined)
      continue;
    p.frames.name[f] = p.strings.push(name!) - 1;
    if (path.includes(".so") || path.includes("/bin/"))
      p.frames.mapping[f] = p.mappings.push({ path, buildId: "" }) - 1;
    else
      p.frames.file[f] = p.strings.push(path) - 1;
  }
  return p;
}

interface Made {
  p: Profile;
  owners: Owners;
  m: Mine;
}

function mine(plain: Profile, rules = ""): Made {
  const owners = ownersOf(plain, parseRules(rules));
  const p = withBoxes(plain, owners);
  return { p, owners, m: collapseOthers(p, p.tree, functionIds(p), owners) };
}

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

const LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6";
const PY = "/usr/bin/python3.13";

test("what is own: by path, by kind, by name only without a path", () => {
  const cases = readTable(readFileSync("../../tests/owners.tbl", "utf8"), "OWNED");
  assert.ok(cases.length > 30);
  for (const [kind, name, file, binary, owner] of cases as [string, string, string, string, string][])
    assert.equal(ownerByTable(kind, name, file, binary), owner === "own" ? "" : owner === "none" ? null : owner, `${kind} ${name} in ${file}, ${binary}`);
  const p = fromFolded(["p;vfs_read_[k] 1", "p;[truncated: x] 1"]);
  const of = (name: string): string | null => ownerOf(p, [...p.frames.name.keys()].find((x) => frameName(p, x) === name)!, []);
  assert.equal(of("vfs_read"), "kernel");
  assert.equal(of("[truncated: x]"), null);
  assert.equal(of("p"), null, "a process is never hidden");
});

test("the reader's words decide, the last of them", () => {
  const p = placed(["p;get@/v/lib/python3.12/site-packages/requests/api.py 1"]);
  const f = [...p.frames.name.keys()].find((x) => frameName(p, x) === "get")!;
  assert.equal(ownerOf(p, f, parseRules("requests")), "");
  assert.equal(ownerOf(p, f, parseRules("requests -site*api")), "requests");
  assert.equal(ownerOf(p, f, parseRules("-requests ge")), "");
  assert.equal(ownerOf(p, f, parseRules(" , - * ")), "requests", "words that say nothing");
});

test("runs of other frames are one box with their sum; the kernel is a box of its own; the root's total stays", () => {
  const { p, m } = mine(placed([
    `p;_start@${PY};run@${PY};loop@/usr/lib/python3.13/threading.py;checkout@/srv/shop.py;dumps@/usr/lib/python3.13/json/a.py;enc@/usr/lib/python3.13/json/b.py 3`,
    `p;_start@${PY};run@${PY};loop@/usr/lib/python3.13/threading.py;checkout@/srv/shop.py;write@${LIBC};__write@${LIBC};entry_[k];vfs_[k] 5`,
    `p;_start@${PY};run@${PY};loop@/usr/lib/python3.13/threading.py;checkout@/srv/shop.py 2`,
  ]));
  assert.deepEqual(fold(p, m.tree), ["p;3 runtime frames;checkout 2", "p;3 runtime frames;checkout;2 json frames 3",
    "p;3 runtime frames;checkout;2 runtime frames;2 kernel frames 5"]);
  assert.equal(m.tree.total[0], 10);
  const own = selfWithHidden(m);
  assert.equal(own.self[[...m.tree.frame.keys()].find((i) => nodeName(p, m.tree, i) === "checkout")!], 10, "its own 2 and 8 hidden");
  assert.equal(own.total[0], 10);
});

test("a box never stands for one frame", () => {
  const { p, m } = mine(placed([`p;main;write@${LIBC} 3`, "p;main;vfs_[k] 2"]));
  assert.deepEqual(fold(p, m.tree), ["p;main;vfs 2", "p;main;write 3"]);
});

test("stacks without own frames are whole, beside the boxes of the others; all of a program may be such", () => {
  const lines = [`p;a@${LIBC};b@${LIBC};main;x 1`, `p;a@${LIBC};b@${LIBC};gc@/usr/lib/jvm/libjvm.so 2`, `p;a@${LIBC} 4`];
  const { p, m } = mine(placed(lines));
  assert.deepEqual(fold(p, m.tree), ["p;2 runtime frames;main;x 1", "p;a 4", "p;a;b;gc 2"]);
  const all = placed([`p;a@${LIBC};b@${LIBC} 1`]);
  assert.equal(ownersOf(all, []).divides, false);
});

test("recursion, and own code below a library below own code", () => {
  const { p, m } = mine(placed([`p;f;s@${LIBC};t@${LIBC};f;s@${LIBC};t@${LIBC} 1`, `p;f;s@${LIBC};t@${LIBC} 2`]));
  assert.deepEqual(fold(p, m.tree), ["p;f;2 runtime frames 2", "p;f;2 runtime frames;f;2 runtime frames 1"]);
});

test("values are neither made nor lost, on both sides of a comparison, also inverted and by weight", () => {
  const plain = fromFolded(syntheticLines(1500, 3).map((l, i) => `${l} ${(i * 7) % 11}`));
  const { p, m } = mine(plain);
  assert.ok(m.tree.n < plain.tree.n);
  for (const t of [m.tree, mineByWeight(m).tree, invert(p, m.tree, functionIds(p)), selfWithHidden(m)]) {
    assert.equal(t.total[0], plain.tree.total[0]);
    assert.equal(t.base!.total[0], plain.tree.base!.total[0]);
    assert.equal(t.self.reduce((a, b) => a + b), plain.tree.total[0]);
  }
  const sorted = mineByWeight(m).tree;
  for (let i = 0; i + 1 < sorted.n; i++)
    for (let c = i + 1, last = Infinity; c <= i + sorted.below[i]!; c += sorted.below[c]! + 1) {
      const w = sorted.total[c]! + sorted.base!.total[c]!;
      assert.ok(w <= last);
      last = w;
    }
});

test("search: hidden matches are counted, and weigh what their stacks weigh, not what the box weighs", () => {
  const plain = placed([`p;main;dumps@/usr/lib/python3.13/json/a.py;hot@/usr/lib/python3.13/json/b.py 3`,
    "p;main;dumps@/usr/lib/python3.13/json/a.py 5", "p;main 2"]);
  const { p, m } = mine(plain);
  const hits = matchFrames(p, matcher("hot"));
  const h = hiddenMatches(m, plain.tree, hits);
  assert.equal(h.n, 1);
  const box = h.boxes.indexOf(1);
  assert.equal(nodeName(p, m.tree, box), "2 json frames");
  assert.equal(m.tree.total[box], 8);
  assert.equal(weightOfMatches(m, plain.tree, hits, plain.tree.self, 0, 0), 3);
  assert.equal(weightOfMatches(m, plain.tree, hits, plain.tree.self, box, box), 3);
  assert.equal(hiddenMatches(m, plain.tree, matchFrames(p, matcher("json"))).n, 0, "a label is no function");
  assert.deepEqual(insideOf(m, plain.tree, functionIds(p), box).map(([f, v]) => [frameName(p, f), v]), [["dumps", 5], ["hot", 3]]);
});
