// SPDX-License-Identifier: Apache-2.0
/* What the page says about memory that grows. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { apart, canGrow, chain, ends, growthType, perHour, place, readGrowth, totalBars, verdict } from "../model/growth.ts";
import { sampleType } from "../model/vocab.ts";

const RESIDENT = "memory:resident:bytes:resident:bytes";
const HEAP = "memory:inuse_space:bytes:space:bytes";
const CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const MIB_H = 2 ** 20 / 3600;

const rate = (slope: number, low: number, high: number, sure: boolean): object =>
  ({ slope: slope * MIB_H, low: low * MIB_H, high: high * MIB_H, first: 0, last: 100, grew: 1, only_grows: sure, sure });
const frames = (...names: string[]): object[] => names.map((name) => ({ name, kind: name.startsWith("[") ? "note" : "native", object: "/bin/shop",
  ...name === "cache_put" ? { file: "/src/cache.c", line: 41 } : {} }));
const row = (of: object, own: number, ...names: string[]): object => ({ ...of, chains: 1, samples: 3, values: [1, null, 3], frames: frames(...names), own });
const LEAK = row(rate(3.3, 3, 3.6, true), 1, "malloc", "cache_put", "serve", "main", "__libc_start_main", "_start");
const answer = (all: object | undefined, rows: object[], more: object = {}): Record<string, unknown> => ({
  from: 1000, to: 4000, type: RESIDENT, unit: "bytes", adds: "at_moment", step: 1000, warmup: 120, periods: 3, needed: 8,
  instances: { all: 2, used: 1, new: 1, ended: 0, merged: false }, totals: [1, null, 3], ...all ? { all } : {}, rows, sites: rows.length, left_out: 0, damaged: false, limited: [], ...more });
const say = (all: object | undefined, rows: object[]): string => verdict(readGrowth(answer(all, rows)), "shop", sampleType(RESIDENT));

test("the verdict names the line, or says that nothing is certain", () => {
  assert.equal(say(rate(3.6, 3.1, 4.1, true), [LEAK]),
               "Resident memory of shop grows by 3.60 MiB/h (95 % interval 3.10 MiB to 4.10 MiB). 91.7 % of it is in cache_put (cache.c:41).");
  assert.equal(say(rate(0.3, -5, 5.6, false), [LEAK]),
               "No certain growth of resident memory of shop: +307 KiB/h (95 % interval −5.00 MiB to 5.60 MiB). But cache_put (cache.c:41) grows by 3.30 MiB/h (3.00 MiB to 3.60 MiB).");
  assert.equal(say(rate(-2, -3, -1, false), []), "Resident memory of shop shrinks by 2.00 MiB/h (95 % interval −3.00 MiB to −1.00 MiB). No function surely grows.");
  assert.match(say({ ...rate(3.6, 3.1, 0, true), high: undefined }, []), /grows by 3\.60 MiB\/h \(95 % interval 3\.10 MiB or more\)/);
  assert.equal(say(undefined, []), "Not enough data yet: 3 of 8 periods. Choose a longer range, or wait.");
  // A remark is no suspect, and neither is what may be chance.
  assert.match(say(rate(3.6, 3.1, 4.1, true), [row(rate(9, 8, 10, true), 0, "[resident before the recording]"), row(rate(5, 0.1, 9, false), 0, "churn")]), /No function surely grows\.$/);
  // It is not all of it that others release.
  assert.match(say(rate(1, 0.5, 1.5, true), [LEAK]), /\. cache_put \(cache.c:41\) alone grows by 3\.30 MiB/);
});

test("an answer that does not fit is refused", () => {
  for (const bad of [row(rate(1, 1, 1, true), 7, "main"), { ...LEAK, values: [1] }, { ...LEAK, slope: "1" }, { ...LEAK, frames: 3 }])
    assert.throws(() => readGrowth(answer(rate(1, 1, 1, true), [bad])), /answer/);
  assert.throws(() => readGrowth(answer(undefined, [], { instances: [] })), /answer/);
});

test("stacks, places, bars", () => {
  const g = readGrowth(answer(rate(1, 1, 1, true), [LEAK]));
  assert.deepEqual(chain(g.rows[0]!, 6), ["main", "serve", "cache_put"]);
  assert.deepEqual(chain(g.rows[0]!, 2), ["main", "…", "cache_put"]);
  assert.equal(place(g.rows[0]!.frames[1]!), "cache.c:41");
  assert.deepEqual([...totalBars(g).sum], [1, 0, 3]);
  assert.ok(Number.isNaN(g.rows[0]!.values[1]));
  assert.equal(perHour(-MIB_H, sampleType(RESIDENT)), "−1.00 MiB/h");
});

test("rows of one function say what they differ in", () => {
  const of = (file: string, line: number, object: string): object =>
    ({ ...row(rate(1, 1, 1, true), 0, "f"), frames: [{ name: "f", kind: "native", object, ...file === "" ? {} : { file, line } }] });
  const told = (...rows: object[]): string[] => { const g = readGrowth(answer(undefined, rows)); return g.rows.map((r) => apart(r, g.rows)); };
  assert.deepEqual(told(of("a.c", 1, "/bin/x"), LEAK), ["", ""]);
  assert.deepEqual(told(of("a.c", 1, "/bin/x"), of("a.c", 2, "/bin/x")), ["", ""]);
  assert.deepEqual(told(of("a.c", 1, "/bin/x"), of("", 0, "/bin/x")), ["", "line not known"]);
  assert.deepEqual(told(of("a.c", 1, "/bin/x"), of("a.c", 1, "/bin/y")), ["in x", "in y"]);
  assert.deepEqual(told(of("", 0, "/bin/x"), of("", 0, "")), ["in x", "in an unknown file"]);
});

test("two times on the chart are two short ranges", () => {
  assert.deepEqual(ends({ from: 0, to: 3600000 }, 60000), { before: { from: 0, to: 180000 }, after: { from: 3420000, to: 3600000 } });
  assert.deepEqual(ends({ from: 0, to: 10000 }, 5000), { before: { from: 0, to: 5000 }, after: { from: 5000, to: 10000 } });
  assert.deepEqual(ends({ from: 0, to: 4000 }, 5000), { before: { from: 0, to: 2000 }, after: { from: 2000, to: 4000 } });
});

test("types that can grow", () => {
  assert.deepEqual([RESIDENT, HEAP, CPU, "memory:alloc_space:bytes:space:bytes"].map(canGrow), [true, true, false, false]);
  assert.equal(growthType([CPU, RESIDENT, HEAP], CPU), HEAP);
  assert.equal(growthType([CPU, RESIDENT, HEAP], RESIDENT), RESIDENT);
  assert.equal(growthType([CPU], ""), "");
});
