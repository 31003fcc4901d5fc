// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Filter } from "../model/address.ts";
import { laneRange, laneShares, makeLane, readLanes, sharesText } from "../model/lanes.ts";
import { readLines } from "../model/series.ts";
import { DataError } from "../model/tree.ts";
import { chosenOf, objectGroups, objectRows, profileWaits, splitIdle, threadNames, toggle, waitRows, withoutIdle } from "../model/waits.ts";
import { eachWait, ownFunction, readWakes, wakeGraph } from "../model/wakes.ts";
import type { Waited } from "../model/wakes.ts";
import { fromFolded } from "./make.ts";

const S = 1e9;
const lane = (thread: string, id: string, states: Record<string, number[]>, until = [0, 0, 0, 0]): object =>
  ({ service: "shop", thread, id, process: id && "7", until, states: Object.entries(states).map(([wait, values]) => ({ wait, sum: 0, values })) });
const answer = (...lanes: object[]): object => ({ from: 1000, to: 5000, column: 1000, columns: 4, threads: 9, found: 3, damaged: false, lanes });

/* ---- lanes ---- */

test("a lane: what the thread did in each column, and in all", () => {
  const l = readLanes(answer(lane("a", "1", { lock: [S, S / 2, 0, 0], running: [0, S / 4, 0, 0], idle: [0, 0, S, 0] }, [0, 4000, 0, 0])));
  assert.deepEqual([l.from, l.to, l.threads, l.found], [1000, 5000, 9, 3]);
  const [a] = l.lanes;
  assert.deepEqual([a!.waited, a!.ran, a!.idle, a!.many], [1.5 * S, S / 4, S, 1]);
  // Running is at the bottom.
  assert.deepEqual(a!.states.map((s) => s.wait.id), ["RUNNING", "LOCK", "IDLE"]);
  const shares = (first: number, last: number, idle = false): [string, number][] => laneShares(l, a!, first, last, idle).map((s) => [s.wait.name, s.share]);
  assert.deepEqual(shares(0, 0), [["lock", 1]]);
  assert.deepEqual(shares(1, 1), [["running", 0.25], ["lock", 0.5]]);
  assert.deepEqual(shares(1, 0), [["running", 0.125], ["lock", 0.75]]);
  assert.deepEqual([shares(2, 2), shares(2, 2, true), shares(3, 3)], [[], [["idle", 1]], []]);
  assert.equal(sharesText(laneShares(l, a!, 1, 1, false)), "lock 50.0 %, running 25.0 %");
  assert.equal(sharesText([]), "nothing is known");
});

test("a lane of several threads has room for all of them; a thread with an id is one", () => {
  const states = { lock: [3 * S, 1.5 * S, 0, 0] };
  const l = readLanes(answer(lane("pool", "", states), lane("one", "5", states)));
  assert.deepEqual(l.lanes.map((x) => x.many), [3, 1]);
  assert.deepEqual(l.lanes.map((x) => laneShares(l, x, 1, 1, false).map((s) => s.share)), [[0.5], [1]]);
});

test("a time that is chosen goes on to the end of the wait that goes on", () => {
  const l = readLanes(answer(lane("a", "1", { lock: [S, S, S, S] }, [0, 9000, 9000, 9000])));
  const within = { from: 1500, to: 4500 };
  assert.deepEqual(laneRange(l, l.lanes[0]!, 0, 0, within), { from: 1500, to: 2000 });
  assert.deepEqual(laneRange(l, l.lanes[0]!, 1, 0, within), { from: 1500, to: 9000 });
});

test("states without a name in the table are other, once", () => {
  const l = makeLane({ service: "", thread: "", id: "", process: "" }, [{ wait: "new", values: new Float64Array([1, 2]) },
    { wait: "other", values: new Float64Array([3, 4]) }], new Float64Array(2), 1000);
  assert.deepEqual(l.states.map((s) => [s.wait.id, s.sum, ...s.values]), [["OTHER", 10, 4, 6]]);
});

test("wrong answers are refused", () => {
  for (const wrong of [{}, { ...answer(), columns: 0 }, { ...answer(), columns: 1e9 }, answer(lane("a", "", { lock: [1] })), answer({})])
    assert.throws(() => readLanes(wrong), DataError);
});

/* ---- idle threads ---- */

test("time without work is apart, and shown only if it is asked for", () => {
  const rows = waitRows(readLines({ step: 1, series: [["lock", 30], ["idle", 60], ["disk", 10]].map(([wait, v]) => ({ labels: { wait }, points: [[0, v, 1]] })) }));
  const hidden = splitIdle(rows.map((r) => ({ ...r })), false);
  assert.equal(hidden.idle, 60);
  assert.deepEqual(hidden.rows.map((r) => [r.name, r.share]), [["lock", 0.75], ["disk", 0.25]]);
  assert.deepEqual(splitIdle(rows, true).rows.map((r) => [r.name, r.share]), [["idle", 0.6], ["lock", 0.3], ["disk", 0.1]]);
  const host: Filter = { label: "host.name", value: "a", not: false };
  assert.deepEqual(withoutIdle([host], true, false), [host, { label: "wait", value: "idle", not: true }]);
  for (const [filters, has, idle] of [[[host], false, false], [[host], true, true], [[{ label: "wait", value: "idle", not: false }], true, false]] as const)
    assert.deepEqual(withoutIdle([...filters], has, idle), filters);
});

/* ---- stacks of waits ---- */

const WOKEN = ["shop;main;buy;lock;[woken by owner];unlock;pay;run;[woken by an interrupt];[lock] 60", "shop;main;buy;lock;[woken by owner];unlock;pay;run;[lock] 20",
  "shop;main;read;[woken by an interrupt];[disk] 15", "shop;main;read;[disk] 5", "shop;main;read;[runnable] 50", "shop;main;[idle] 40", "shop;main;[running] 7"];

test("a path to a wait: who waited, who woke it, and who woke that one", () => {
  const p = fromFolded(WOKEN);
  const all: Waited[] = [];
  eachWait(p, (w) => all.push(w));
  assert.equal(all.length, WOKEN.length);
  const names = (frames: number[]): string[] => frames.map((f) => p.strings[p.frames.name[f]!]!);
  const w = all.find((x) => x.value === 60)!;
  assert.deepEqual([w.groups, names(w.stack), w.wait?.id], [["shop"], ["main", "buy", "lock"], "LOCK"]);
  // The waker's stack is the other way round there: its leaf is next to the note.
  assert.deepEqual(w.wakers.map((x) => [x.name, names(x.stack)]), [["owner", ["run", "pay", "unlock"]], ["an interrupt", []]]);
});

test("the graph: threads, who woke them, and time", () => {
  const w = readWakes(fromFolded(WOKEN), false);
  // Nobody has to wake a thread that runs, or waits for a CPU; a thread without work is hidden.
  assert.deepEqual([w.known, w.all, w.longest], [95, 100, 3]);
  const g = wakeGraph(w, new Set(), 9);
  assert.deepEqual(g.nodes.map((n) => [n.layer, n.name, n.value]), [[0, "shop", 95], [1, "owner", 80], [1, "an interrupt", 15], [2, "an interrupt", 60]]);
  const edges = g.edges.map((e) => [g.nodes[e.by]!.name, g.nodes[e.who]!.name, g.nodes[e.by]!.layer, e.value, e.wait?.id]);
  assert.deepEqual(edges, [["owner", "shop", 1, 80, "LOCK"], ["an interrupt", "shop", 1, 15, "DISK"], ["an interrupt", "owner", 2, 60, "LOCK"]]);
  assert.equal(wakeGraph(w, new Set(), 2).nodes.length, 3);
  assert.equal(readWakes(fromFolded(WOKEN), true).all, 140);
  assert.deepEqual(readWakes(fromFolded(["p;main 3"]), false), { chains: [], known: 0, all: 3, longest: 0 });
});

test("threads of a pool are one node until it is opened, small ones are others", () => {
  const lines = Array.from({ length: 4 }, (_, i) => `p;main;[woken by worker-${i}];x;[lock] ${10 + i}`);
  const w = readWakes(fromFolded([...lines, ...Array.from({ length: 12 }, (_, i) => `p;main;[woken by ${String.fromCharCode(97 + i)}];x;[lock] ${i + 1}`)]), false);
  const wakers = (open: Set<string>): [string, string, number, number][] => wakeGraph(w, open, 9).nodes.filter((n) => n.layer === 1).map((n) => [n.kind, n.name, n.names, n.value]);
  const closed = wakers(new Set());
  assert.deepEqual(closed[0], ["pool", "worker-*", 4, 46]);
  assert.equal(closed.length, 9);
  assert.deepEqual(closed[8], ["rest", "", 5, 1 + 2 + 3 + 4 + 5]);
  assert.deepEqual(wakers(new Set(["worker-*"])).slice(0, 2), [["thread", "worker-3", 1, 13], ["thread", "l", 1, 12]]);
  assert.equal(wakers(new Set(["worker-*"])).reduce((x, n) => x + n[3], 0), closed.reduce((x, n) => x + n[3], 0));
});

test("the function that waits is the program's own", () => {
  const own = (stack: string): string => {
    const p = fromFolded([`p;${stack};[lock] 1`]);
    let name = "";
    eachWait(p, (w) => name = ownFunction(p, w.stack));
    return name;
  };
  for (const [stack, name] of [["main;buy;pthread_mutex_lock;__lll_lock_wait;futex_wait", "buy"], ["main;buy;sync.(*Mutex).Lock;sync.runtime_SemacquireMutex;runtime.gopark", "buy"],
    ["main;std::mutex::lock;__gthread_mutex_lock", "main"], ["start_thread", "start_thread"], ["", ""]])
    assert.equal(own(stack!), name, stack);
});

test("categories of a file", () => {
  assert.deepEqual(profileWaits(fromFolded(WOKEN)).map((r) => [r.name, r.value, r.count]),
                   [["lock", 80, -1], ["runnable", 50, -1], ["idle", 40, -1], ["disk", 20, -1], ["running", 7, -1]]);
});

/* ---- tables of locks ---- */

const line = (labels: Record<string, string>, value: number, n: number): object => ({ labels, points: [[0, value, n]] });
const of = (lock: string, thread: string, id: string, owner = "", service = "shop"): Record<string, string> =>
  ({ "service.name": service, "process.pid": id && "7", lock, owner, "thread.name": thread, "thread.id": id });

test("rows of locks: time, threads, owners, functions, and who released it", () => {
  const lines = readLines({ step: 1, series: [line(of("0x10", "a", "11", "12"), 50, 5), line(of("0x10", "a", "", "12"), 10, 1), line(of("0x10", "b", "13", "11"), 20, 2),
    line(of("0x20", "c", "14", "14"), 10, 1), line(of("0x20", "twin", "15"), 5, 1), line(of("0x20", "twin", "16"), 3, 1), line(of("0x20", "twin", ""), 2, 1), line(of("", "d", "17"), 100, 1)] });
  const stacks = fromFolded(["0x10;main;buy;pthread_mutex_lock;[woken by owner];pthread_mutex_unlock;pay;run;[lock] 70", "0x10;main;sell;[lock] 10", "0x20;main;buy;[lock] 20"]);
  const [x, y, ...more] = objectRows(lines, "lock", stacks);
  assert.equal(more.length, 0);
  assert.deepEqual([x!.name, x!.service, x!.process, x!.value, x!.share, x!.count], ["0x10", "shop", "7", 80, 0.8, 8]);
  // a's first samples have no id; a twin's could be of either.
  assert.deepEqual(x!.threads, [{ name: "a\0" + "11", value: 60 }, { name: "b\0" + "13", value: 20 }]);
  assert.deepEqual(y!.threads.map((t) => [t.name, t.value]), [["c\0" + "14", 10], ["twin\0" + "15", 5], ["twin\0" + "16", 3], ["twin", 2]]);
  assert.deepEqual(x!.owners, [{ name: "12", value: 60 }, { name: "11", value: 20 }]);
  // Nobody waits for himself.
  assert.deepEqual(y!.owners, []);
  assert.deepEqual(x!.where, [{ name: "buy", value: 70 }, { name: "sell", value: 10 }]);
  assert.deepEqual(x!.wakers, [{ name: "owner\0pay", value: 70 }]);
  assert.deepEqual(y!.wakers, []);
});

test("one address in two services is two locks, whose stacks are not told apart", () => {
  const lines = readLines({ step: 1, series: [line(of("0x10", "a", "11"), 5, 1), line(of("0x10", "a", "99", "", "db"), 4, 1)] });
  const rows = objectRows(lines, "lock", fromFolded(["0x10;main;[lock] 9"]));
  assert.deepEqual(rows.map((r) => [r.service, r.value, r.where.length]), [["shop", 5, 0], ["db", 4, 0]]);
});

test("labels, names of threads, filters", () => {
  assert.ok(objectGroups("peer").includes("peer") && !objectGroups("peer").includes("lock"));
  assert.equal(threadNames(readLines({ step: 1, series: [line(of("", "a", "11"), 1, 1)] })).get("11"), "a");
  const one = toggle([], { lock: "0x10", "process.pid": "" });
  assert.deepEqual(one, [{ label: "lock", value: "0x10", not: false }]);
  assert.equal(chosenOf(one, "lock"), "0x10");
  assert.deepEqual(toggle(one, { lock: "0x20" }), [{ label: "lock", value: "0x20", not: false }]);
  assert.deepEqual(toggle(one, { lock: "0x10" }), []);
});
