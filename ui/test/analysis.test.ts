// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { readAnalysis, shownCalls } from "../model/analysis.ts";
import { DataError } from "../model/tree.ts";

const row = (id: number, parent: number, fn: string, total: number, self: number, more: object = {}): object =>
  ({ id, parent, function: fn, kind: "native", total_ns: total, self_ns: self, count: 1, ...more });
const group = (rows: object[], more: object = {}): object => ({ service: "shop", thread: "main", snapshots: false, total_ns: 0, count: 0, rows, ...more });

test("calls: below their callers, the heaviest first; closed ones hide what they called", () => {
  const { groups: [g] } = readAnalysis({ groups: [group([row(1, 0, "main", 100, 0), row(2, 1, "quick", 10, 10), row(3, 1, "slow", 90, 20), row(4, 3, "leaf", 70, 70, { file: "/a.c", line: 7 })])] });
  const seen = (closed: number[]): [string, number][] => shownCalls(g!, new Set(closed)).map((r) => [r.name, r.depth]);
  assert.deepEqual(seen([]), [["main", 0], ["slow", 1], ["leaf", 2], ["quick", 1]]);
  assert.deepEqual(seen([3]), [["main", 0], ["slow", 1], ["quick", 1]]);
  assert.deepEqual(seen([1]), [["main", 0]]);
  assert.deepEqual(g!.rows.map((r) => r.calls), [true, false, true, false]);
  assert.deepEqual([g!.rows[3]!.file, g!.rows[3]!.line], ["/a.c", 7]);
});

test("the ten with the most time of their own are marked, over all threads; none without any", () => {
  const rows = (n: number, from: number): object[] => Array.from({ length: n }, (_, i) => row(i + 1, 0, `f${i}`, from + i, from + i));
  const a = readAnalysis({ groups: [group(rows(12, 0), { total_ns: 1 }), group(rows(4, 100), { thread: "db", total_ns: 2 })], tip: "too many" });
  assert.deepEqual(a.groups.map((g) => [g.thread, g.rows.filter((r) => r.hot).length]), [["db", 4], ["main", 6]]);
  assert.equal(a.tip, "too many");
  assert.equal(readAnalysis({ groups: [group([row(1, 0, "f", 5, 0)])] }).groups[0]!.rows[0]!.hot, false);
});

test("a caller that is not there, or itself, is none; a wrong form is said", () => {
  const { groups: [g] } = readAnalysis({ groups: [group([row(1, 9, "a", 1, 1), row(2, 2, "b", 1, 1)])] });
  assert.deepEqual(shownCalls(g!, new Set()).map((r) => r.depth), [0, 0]);
  for (const bad of [{}, { groups: [{}] }, { groups: [group([{}])] }, { groups: [group([row(1, 0, "a", NaN, 0)])] }])
    assert.throws(() => readAnalysis(bad), DataError);
});
