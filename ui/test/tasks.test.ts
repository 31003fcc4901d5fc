// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { countsText, isLive, keptTypes, ledgerNote, rangeOf, readKept, readStates, readTask, readTasks, sumMs, taskFor } from "../model/tasks.ts";
import { DataError } from "../model/tree.ts";

const outcomes = (o: object = {}): object => ({ kept: 0, partly: 0, evicted: 0, waiting: 0, nobody: 0, ...o });
const TASK = {
  id: "1f3a5c7e", revision: 1, state: "running", created: 1, by: "", start: 1000, end: 301000, cancelled: 0,
  spec: { service: "shop", endpoint: "GET /buy", start: 0, duration_ms: 300000, min_ms: 100, percentile: null, errors: true, control: 0.01, period_us: 10000,
    floor_us: 100, running: true, waiting: true, max_requests: 100, max_per_agent: 0, max_per_minute: 60 },
  counts: { spans: 99, repeated: 4, outside: 1, other: 20, below: 50, budget: 3, wanted: 16 }, reasons: { slow: 10, error: 2, percentile: 0, long: 0, control: 4 },
  outcomes: outcomes({ kept: 8, partly: 2, evicted: 1, waiting: 2, nobody: 3 }), control_outcomes: outcomes({ kept: 3, nobody: 1 }), slowest_ms: 812.5,
  why: [{ reason: "budget_spent", text: "no room" }],
};

test("a task: what it keeps in the words of ctl, and its counts, which are parts of each other", () => {
  const t = readTask(TASK);
  assert.deepEqual([t.id, t.state, t.service, t.endpoint, t.keeps, isLive(t)], ["1f3a5c7e", "running", "shop", "GET /buy", "from 100 ms, errors, 1 % of others", true]);
  // Spans that were sent again are no requests.
  assert.deepEqual(t.counts, { seen: 90, matched: 69, wanted: 12, kept: 7, ordinary: 3, dropped: 4, refused: 3, open: 2 });
  assert.equal(countsText(t.counts), "90 requests seen, 69 to the endpoint, 12 wanted, 7 kept, 3 ordinary ones kept, 4 lost, 3 beyond the budget");
  assert.deepEqual(t.why, [{ reason: "budget_spent", text: "no room" }]);
  const spec = (more: object): string => readTask({ ...TASK, spec: { ...TASK.spec, errors: false, control: 0, ...more } }).keeps;
  assert.equal(spec({ min_ms: 0 }), "all");
  assert.equal(spec({ min_ms: null, percentile: 99.9, control: 0.5 }), "above p99.9, 50 % of others");
  assert.equal(spec({ min_ms: null, errors: true }), "errors");
  assert.equal(spec({ min_ms: null, kind: "async-profiler", events: "cpu,alloc" }), "async-profiler: cpu,alloc");
  assert.equal(isLive(readTask({ ...TASK, state: "cancelled" })), false);
  for (const bad of [null, {}, { tasks: [{}] }, { tasks: [{ ...TASK, counts: {} }] }, { tasks: [{ ...TASK, id: 7 }] }])
    assert.throws(() => readTasks(bad), DataError);
});

test("states: in the order of the table, unknown last; a ledger says what its parts leave open", () => {
  const states = readStates({ unknown: 1, lock: 60, running: 20, runnable: 0, disk: 4 });
  assert.deepEqual(states.map((s) => [s.name, s.ms, s.wait?.id]), [["running", 20, "RUNNING"], ["lock", 60, "LOCK"], ["disk", 4, "DISK"], ["unknown", 1, undefined]]);
  assert.equal(sumMs(states), 85);
  assert.equal(ledgerNote(states, 85), "1.00 ms in an unknown state");
  assert.equal(ledgerNote(states, 100), "15.0 ms in no thread of the request; 1.00 ms in an unknown state");
  assert.equal(ledgerNote(readStates({ running: 30, lock: 40.02 }), 70), "the parts add up to 70.0 ms");
  assert.equal(ledgerNote(readStates({ running: 130 }), 70), "130 ms of thread time in 70.0 ms: several threads worked at the same time");
  assert.equal(ledgerNote([], 70), "its time by state has not arrived yet");
  assert.equal(ledgerNote([], 70, true), "SkyWalking's agents send snapshots, and no time by state");
  assert.throws(() => readStates({ running: "1" }), DataError);
});

test("kept requests, and the spans of one", () => {
  const q = { number: 1, trace_id: "ab", span_id: "cd", endpoint: "GET /buy", start_ms: 5.5, duration_ms: 100, status: "ok", reason: "slow", outcome: "kept", host: "h1",
    samples: 7, decided: 9, done: 10, states: { running: 40 } };
  const k = readKept({ task: "x", from: 1, to: 2, requests: [q] });
  assert.equal(k.requests[0]!.states[0]!.ms, 40);
  assert.equal(k.spans.size, 0);
  assert.deepEqual(rangeOf(k, "ab"), { from: 5.5, to: 105.5 });
  assert.equal(rangeOf(k, "x"), null);
  assert.deepEqual(readKept({ task: "x", from: 1, to: 2, requests: [], spans: [{ span_id: "cd", states: { lock: 3 } }] }).spans.get("cd")!.map((s) => s.name), ["lock"]);
});

test("the types of kept requests' stacks", () => {
  const wall = "wall:wall:nanoseconds:request:nanoseconds", own = "request:wall:nanoseconds:wall:nanoseconds";
  assert.deepEqual(keptTypes(["process_cpu:cpu:nanoseconds:cpu:nanoseconds", wall, "wall:wall:nanoseconds:wall:nanoseconds", "request:time:nanoseconds:request:nanoseconds", own]),
    [wall, own]);
});

test("a new task has sensible values: from the slowest twentieth of the endpoint", () => {
  const t = taskFor({ service: "shop", name: "GET /buy", p95: 123.4 });
  assert.deepEqual([t.service, t.endpoint, t.min_ms, t.duration_ms, t.max_requests], ["shop", "GET /buy", 120, 300000, 100]);
  assert.equal(taskFor({ service: "s", name: "e", p95: 0.0567 }).min_ms, 0.056);
  assert.equal(taskFor({ service: "s", name: "e", p95: 9999 }).min_ms, 9900);
  assert.equal(taskFor({ service: "s", name: "e", p95: 0 }).min_ms, 100);
  assert.equal(taskFor(null).service, "");
});
