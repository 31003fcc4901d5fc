// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { weigh } from "../model/layout.ts";
import { exactly, findMatches, holdsMatch, matchedWeight, matcher, matchFrames, nextMatch, widestMatch } from "../model/search.ts";
import type { Matches } from "../model/search.ts";
import { nodeName } from "../model/tree.ts";
import type { Profile } from "../model/tree.ts";
import { fromFolded, syntheticLines } from "./make.ts";

function find(p: Profile, text: string): Matches {
  return findMatches(p.tree, matchFrames(p, matcher(text)));
}

const NESTED = ["p;main;f;g;f;h 10", "p;main;f 5", "p;main;g 3", "p;main;x;f 2"];

test("nested matches count once", () => {
  const p = fromFolded(NESTED);
  const w = weigh(p.tree);
  assert.equal(matchedWeight(find(p, "^f$"), w, 0, 20), 17);
  assert.equal(matchedWeight(find(p, "."), w, 0, 20), 20);
  assert.equal(matchedWeight(find(p, "h"), w, 0, 20), 10);
});

test("the widest match, of the view", () => {
  const p = fromFolded(NESTED);
  const w = weigh(p.tree);
  const m = find(p, "^[gx]$");
  const path = (i: number): string => `${nodeName(p, p.tree, p.tree.parent[i]!)};${nodeName(p, p.tree, i)}`;
  assert.equal(path(widestMatch(m, w, 0, 20)), "f;g");
  // From the second g on: 3 of it, and 2 of x.
  assert.equal(path(widestMatch(m, w, 15, 20)), "main;g");
  assert.equal(widestMatch(m, w, 10, 15), -1, "no match in this view");
  assert.equal(widestMatch(find(p, "nowhere"), w, 0, 20), -1);
});

test("matched weight agrees with counting stacks", () => {
  const lines = syntheticLines(3000);
  const p = fromFolded(lines);
  const w = weigh(p.tree);
  for (const re of ["parse", "_1\\d\\d$", "Json|Buffer", "schedule", "nothing at all"]) {
    let want = 0;
    for (const l of lines) {
      const [, stack, v] = /^(.*) (\d+)$/.exec(l)!;
      if (stack!.split(";").some((f) => new RegExp(re, "i").test(f.replace(/_\[[kij]\]$/, ""))))
        want += Number(v);
    }
    assert.equal(matchedWeight(find(p, re), w, 0, w.total[0]!), want, re);
  }
});

test("within a zoomed range, and when an ancestor matches", () => {
  const p = fromFolded(NESTED);
  const w = weigh(p.tree);
  const g = [...p.tree.frame.keys()].find((i) => nodeName(p, p.tree, i) === "h")!;
  assert.equal(matchedWeight(find(p, "^f$"), w, w.start[g]!, w.start[g]! + w.total[g]!), 10);
  assert.equal(matchedWeight(find(p, "^x$"), w, w.start[g]!, w.start[g]! + w.total[g]!), 0);
});

test("capital letters make it exact", () => {
  const hits = (re: string, s: string): boolean => {
    const m = matcher(re);
    return m !== null && "test" in m && m.test(s);
  };
  assert.ok(hits("json", "parseJSON"));
  assert.ok(!hits("Json", "parseJSON"));
  assert.ok(hits("\\Wx", "a x"));
  assert.ok(hits("a\\-b", "a-b"));
});

test("a bad expression is told, not thrown", () => {
  for (const bad of ["(", "[", "a{2,1}", "*"])
    assert.ok("error" in matcher(bad)!, bad);
  assert.equal(matcher(""), null);
  assert.equal(find(fromFolded(NESTED), "(").top.length, 0);
});

test("exactly() quotes what a name is made of", () => {
  for (const name of ["operator()", "a.b*c+d?", "x[1]{2}|^$", "std::vector<int>::push_back(int&&)", "a/b\\c", "~T()"]) {
    const m = matcher(exactly(name))!;
    assert.ok("test" in m && m.test(name), name);
    assert.ok(!m.test(name + "x"));
  }
});

test("next and previous go round through the topmost matches", () => {
  const p = fromFolded(NESTED);
  const w = weigh(p.tree);
  const m = find(p, "^f$");
  const a = m.top[0]!;
  const b = m.top[1]!;
  assert.equal(m.top.length, 2);
  assert.equal(nextMatch(m, w, -1, 1), a);
  assert.equal(nextMatch(m, w, a, 1), b);
  assert.equal(nextMatch(m, w, b, 1), a);
  assert.equal(nextMatch(m, w, a, -1), b);
  assert.equal(nextMatch(m, w, -1, -1), b);
  assert.equal(nextMatch(m, w, a + 1, -1), a);
  assert.equal(nextMatch(find(p, "zzz"), w, -1, 1), -1);
});

test("a folded box knows that it holds a match", () => {
  const p = fromFolded(NESTED);
  const m = find(p, "^h$");
  assert.ok(holdsMatch(m, p.tree, 1, 1));
  const g = [...p.tree.frame.keys()].filter((i) => nodeName(p, p.tree, i) === "g" && p.tree.depth[i] === 3)[0]!;
  assert.ok(!holdsMatch(m, p.tree, g, g));
});

test("what holds a match, of every two siblings, by looking at every node", () => {
  const p = fromFolded(syntheticLines(300));
  const { tree } = p;
  for (const re of ["parse", "_1", "e$", "main", "no such name"]) {
    const m = find(p, re);
    const hits = matchFrames(p, matcher(re));
    for (let i = 0; i < tree.n; i++) {
      const next = i + tree.below[i]! + 1;
      const last = next < tree.n && tree.depth[next] === tree.depth[i] ? next : i;
      const nodes = Array.from({ length: last + tree.below[last]! + 1 - i }, (_, k) => i + k);
      assert.equal(holdsMatch(m, tree, i, last), nodes.some((k) => hits[tree.frame[k]!]), `${re} ${i}`);
    }
  }
});
