// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { readAnalysis, readTaskAnalysis, shownCalls, whomText } from "../model/analysis.ts";
import { allStates, readTimes } from "../model/kept.ts";
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

test("calls of all kept requests: of one group those that it has; both estimates; for whom they waited", () => {
  const sums = (total: number, more: object = {}): object => ({ total_ns: total, self_ns: total, count: 2, requests: 1, ...more });
  const plain = { function: "f", kind: "native" };
  const side = { requests: 3, sampled: 2, partly: 1, left_out: 4, total_ns: 9 };
  const json = { groups: { slow: side, control: { ...side, requests: 0 } }, snapshots: false, damaged: false, rows: [
    { ...plain, id: 1, parent: 0, slow: sums(9, { skywalking: { total_ns: 5, self_ns: 0, count: 2 } }), control: sums(4) },
    { ...plain, id: 2, parent: 1, control: sums(4) },
    { ...plain, id: 3, parent: 1, slow: sums(8, { owner: { thread: "77", name: "", ns: 6, others: 2 }, waker: { name: "a timer", ns: 7, others: 0 } }) }] };
  const a = readTaskAnalysis(json, "slow");
  const [g] = a.groups;
  assert.deepEqual([a.requests, a.partly, a.leftOut, g!.total, g!.count], [3, 1, 4, 9, 2]);
  assert.deepEqual(g!.rows.map((r) => [r.id, r.total, r.requests, r.depth, r.theirs?.total]), [[1, 9, 1, 0, 5], [3, 8, 1, 1, undefined]]);
  assert.deepEqual([whomText(g!.rows[1]!.owner!), whomText(g!.rows[1]!.waker!), g!.rows[0]!.owner], ["thread 77 and 2 others", "a timer", null]);
  assert.deepEqual(readTaskAnalysis(json, "control").groups[0]!.rows.map((r) => r.id), [1, 2]);
  assert.deepEqual(readTaskAnalysis({ ...json, rows: [] }, "slow").groups, []);
  for (const bad of [{}, { ...json, rows: [{ ...plain, id: 1, parent: 0, slow: {} }] }, { ...json, groups: {} }])
    assert.throws(() => readTaskAnalysis(bad, "slow"), DataError);
});

test("times by state: distributions of both groups, states in the order of the table", () => {
  const d = (mean: number): object => ({ mean_ms: mean, p50_ms: mean, p95_ms: 2 * mean, max_ms: 3 * mean });
  const t = readTimes({ endpoints: [{ name: "GET /", slow: 1, control: 2 }], groups: {
    slow: { requests: 2, partly: 0, left_out: 1, wall: d(10), rest: d(1), overlap: d(0), states: { lock: d(4), running: d(5) } },
    control: { requests: 0, partly: 0, left_out: 0 } } });
  assert.deepEqual([t.groups.slow.wall, t.groups.control.wall, t.groups.control.means], [{ mean: 10, p50: 10, p95: 20, max: 30 }, null, []]);
  assert.deepEqual(t.groups.slow.means.map((s) => [s.name, s.ms]), [["running", 5], ["lock", 4]]);
  assert.deepEqual(allStates(t).map((s) => s.name), ["running", "lock"]);
  assert.throws(() => readTimes({ endpoints: [], groups: { slow: {} } }), DataError);
});
