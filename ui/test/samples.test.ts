// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { laneShares } from "../model/lanes.ts";
import { parseBody } from "../model/payload.ts";
import { eachSample, hasTimes, sampleLanes, sampleLines, sampleRange, selectSamples } from "../model/samples.ts";
import { DataError, nodeName } from "../model/tree.ts";
import type { Profile, Samples } from "../model/tree.ts";
import { objectRows } from "../model/waits.ts";
import { encodeBody, fromFolded } from "./make.ts";

/** µs: a minute on a day in 2026. */
const T = 1795488000e6;
const MS = 1000;

function make(): Profile {
  const p = fromFolded(["p;main;buy;[lock] 30", "p;main;buy;[runnable] 5", "p;main;read;[network] 20", "p;main;[idle] 40"].map((l) => `${l}000000`));
  const node = (name: string): number => [...p.tree.frame.keys()].find((i) => nodeName(p, p.tree, i) === name)!;
  const thread = (name: string, tid: number, more: Partial<Samples["threads"][number]> = {}): Samples["threads"][number] =>
    ({ process: "p", thread: name, pid: 7, tid, lock: "", owner: "", peer: "", ...more });
  const rows: [string, number, number, number][] = [["[lock]", 0, 20, 25], ["[runnable]", 1, 5, 25], ["[lock]", 2, 10, 40], ["[network]", 3, 20, 60], ["[idle]", 4, 40, 60]];
  p.samples = {
    threads: [thread("a", 11, { lock: "0x10", owner: "12" }), thread("a", 11), thread("b", 12, { lock: "0x20" }), thread("b", 12, { peer: "h:80" }), thread("pool", 13)],
    node: Uint32Array.from(rows, (r) => node(r[0])), thread: Uint32Array.from(rows, (r) => r[1]),
    value: Float64Array.from(rows, (r) => r[2] * 1e6), us: Float64Array.from(rows, (r) => T + r[3] * MS),
  };
  return p;
}

test("samples are read as they were written, and damage is seen", () => {
  const p = make();
  const bytes = encodeBody(p);
  assert.deepEqual(parseBody(bytes).samples, p.samples);
  assert.equal(parseBody(encodeBody(fromFolded(["a;b 1"]))).samples, undefined);
  const bad = make();
  bad.samples!.node[0] = bad.tree.n;
  assert.throws(() => parseBody(encodeBody(bad)), DataError);
  bad.samples!.node[0] = 0;
  bad.samples!.thread[0] = 5;
  assert.throws(() => parseBody(encodeBody(bad)), DataError);
});

test("the tree of some samples: of a lock, a thread, a time", () => {
  const p = make();
  const of = (label: string, value: string): number => selectSamples(p, [{ label, value, not: false }], null).total[0]! / 1e6;
  assert.deepEqual([of("lock", "0x10"), of("lock", "0x20"), of("thread.id", "11"), of("peer", "h:80"), of("lock", "0x30")], [20, 10, 25, 20, 0]);
  const t = selectSamples(p, [], { from: T / MS + 25, to: T / MS + 40 });
  assert.deepEqual([...t.frame.keys()].map((i) => nodeName(p, t, i)), ["all", "p", "main", "buy", "[lock]"]);
  assert.equal(t.total[0], 10e6);
  assert.equal(selectSamples(p, [], null), p.tree);
});

test("lanes of a file are exact; a wait for a CPU comes after what ended before it", () => {
  const p = make();
  assert.ok(hasTimes(p));
  const range = sampleRange(p.samples!);
  assert.deepEqual([range.from, range.to], [T / MS + 5, T / MS + 60]);
  const l = sampleLanes(p, { from: T / MS, to: T / MS + 60 }, "", 9);
  assert.deepEqual(l.lanes.map((x) => [x.thread, x.id, x.waited / 1e6, x.idle / 1e6].join(" ")), ["b 12 30 0", "a 11 25 0", "pool 13 0 40"]);
  const at = (thread: number, ms: number): string => laneShares(l, l.lanes[thread]!, ms * 10, ms * 10 + 9, false).map((s) => `${s.wait.name} ${s.share.toFixed(2)}`).join();
  // a waits for the lock from 0 to 20 and then 5 ms for a CPU; b from 30 to 40, and from 40 on for the network.
  assert.deepEqual([0, 10, 19, 20, 24, 25].map((ms) => at(1, ms)), ["lock 1.00", "lock 1.00", "lock 1.00", "runnable 1.00", "runnable 1.00", ""]);
  assert.deepEqual([29, 30, 39, 40, 59].map((ms) => at(0, ms)), ["", "lock 1.00", "lock 1.00", "network 1.00", "network 1.00"]);
  assert.deepEqual([at(2, 30), l.lanes[1]!.until[100]], ["", T / MS + 20]);
  const one = sampleLanes(p, range, "POO", 9);
  assert.deepEqual([one.found, one.threads, one.lanes[0]!.thread, sampleLanes(p, range, "", 1).lanes.length], [1, 3, "pool", 1]);
  p.samples!.us.fill(0);
  assert.ok(!hasTimes(p));
});

test("a table of a file's locks", () => {
  const p = make();
  const rows = objectRows(sampleLines(p.samples!, "lock"), "lock", p, (visit) => eachSample(p, "lock", visit));
  assert.deepEqual(rows.map((r) => [r.name, r.value / 1e6, r.count, r.threads[0]!.name, r.owners.map((o) => o.name).join(), r.where[0]!.name]),
                   [["0x10", 20, 1, "a\0" + "11", "12", "buy"], ["0x20", 10, 1, "b\0" + "12", "", "buy"]]);
  assert.deepEqual(objectRows(sampleLines(p.samples!, "peer"), "peer", p, (visit) => eachSample(p, "peer", visit)).map((r) => [r.name, r.where[0]!.name]), [["h:80", "read"]]);
});
