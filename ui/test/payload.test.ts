// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseBody, readPayload, showable } from "../model/payload.ts";
import { buildTree, DataError, findPath, nodeName, pathHashes, pathId } from "../model/tree.ts";
import { encodeBody, encodePayload, fromFolded, random, syntheticLines } from "./make.ts";

const SMALL = ["p;main;a;b 5", "p;main;a 2", "p;main;c_[k] 1", "q;main;[truncated: too deep];x_[i] 4"];

test("a profile survives the way through the page", async () => {
  const p = fromFolded(SMALL);
  const q = await readPayload("\n" + encodePayload(p) + "\n");
  assert.deepEqual(q.tree, p.tree);
  assert.deepEqual(q.frames.name, p.frames.name);
  assert.deepEqual(q.frames.kind, p.frames.kind);
  assert.deepEqual(q.frames.flags, p.frames.flags);
  assert.equal(q.meta.title, "test");
  assert.equal(q.meta.quality.samples, 7);
  assert.equal(q.meta.quality.lost, -1);
});

test("a comparison keeps both sides, negative values too", () => {
  const p = fromFolded(["p;a 5 7", "p;b 9 0"]);
  p.tree.self[1] = -3;
  const t = parseBody(encodeBody(p)).tree;
  assert.deepEqual([...t.base!.total], [14, 14, 5, 9]);
  assert.equal(t.self[1], -3);
});

test("totals are self plus children", () => {
  const t = fromFolded(syntheticLines(2000)).tree;
  const sum = t.self.reduce((a, b) => a + b);
  assert.equal(t.total[0], sum);
  for (let i = 0; i < t.n; i++) {
    let kids = 0;
    for (let c = i + 1; c <= i + t.below[i]!; c += t.below[c]! + 1)
      kids += t.total[c]!;
    assert.equal(t.total[i], t.self[i]! + kids);
  }
});

test("values beyond 32 bits are exact", () => {
  const p = fromFolded(["p;a 4503599627370497", "p;b 4294967296"]);
  assert.deepEqual([...parseBody(encodeBody(p)).tree.self], [0, 0, 4503599627370497, 4294967296]);
});

test("names that could mislead are escaped, others are not touched", () => {
  assert.equal(showable("a\u202eb\n\x1b[0m\u00a0ü日本"), "a\\u202eb\\x0a\\x1b[0m\u00a0ü日本");
  const p = fromFolded(["p;</script><script>alert(1)</script>;日本語;a\tb 1"]);
  const q = parseBody(encodeBody(p));
  assert.equal(nodeName(q, q.tree, 2), "</script><script>alert(1)</script>");
  assert.equal(nodeName(q, q.tree, 3), "日本語");
  assert.equal(nodeName(q, q.tree, 4), "a\\x09b");
});

test("hostile names never appear in the page's text", () => {
  const text = encodePayload(fromFolded(["p;</script><!-- 1"]));
  assert.match(text, /^[A-Za-z0-9+/=]*$/);
});

test("damage is told, whatever it is", () => {
  const good = encodeBody(fromFolded(SMALL));
  for (let n = 0; n < good.length; n++)
    assert.throws(() => parseBody(good.subarray(0, n)), DataError, `cut at ${n}`);
  const r = random(5);
  let told = 0;
  for (let round = 0; round < 4000; round++) {
    const bad = good.slice();
    for (let k = 0; k < 3; k++)
      bad[Math.floor(r() * bad.length)] = Math.floor(r() * 256);
    try {
      parseBody(bad);
    } catch (e) {
      assert.ok(e instanceof DataError, String(e));
      told++;
    }
  }
  assert.ok(told > 1000, `${told} told`);
});

test("a payload that is not one", async () => {
  await assert.rejects(readPayload("@PAYLOAD@"), DataError);
  await assert.rejects(readPayload("AAAA"), DataError);
  await assert.rejects(readPayload(""), DataError);
});

test("a tree without parents is refused", () => {
  const build = (depth: number[]): unknown =>
    buildTree(new Uint32Array(depth.length), Uint32Array.from(depth), new Float64Array(depth.length), null);
  build([0, 1, 2, 1]);
  for (const bad of [[], [1], [0, 0], [0, 2], [0, 1, 3], [0, 1, 0]])
    assert.throws(() => build(bad), DataError, String(bad));
});

test("path names find their node again, in a rebuilt tree too", () => {
  const p = fromFolded(syntheticLines(3000));
  const h = pathHashes(p, p.tree);
  const ids = new Set<string>();
  for (let i = 0; i < p.tree.n; i++)
    ids.add(pathId(h, i));
  assert.equal(ids.size, p.tree.n);
  assert.equal(findPath(h, pathId(h, 77)), 77);
  assert.equal(findPath(h, "nonsense"), -1);
  assert.equal(findPath(h, ""), -1);
  const q = fromFolded([...syntheticLines(3000), "aaa;first 3"]);
  const to = findPath(pathHashes(q, q.tree), pathId(h, 77));
  assert.equal(nodeName(q, q.tree, to), nodeName(p, p.tree, 77));
  assert.notEqual(to, 77);
});
