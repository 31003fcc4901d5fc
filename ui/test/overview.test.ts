// SPDX-License-Identifier: Apache-2.0
/* Findings as sentences, why requests are slow, and where the time of one went. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { readOverview } from "../model/overview.ts";
import { chains, placeOf, readSlow, reasons, shareText } from "../model/slow.ts";
import { linkTo, readWaterfall, statesOf, whereTime } from "../model/traces.ts";
import { DataError } from "../model/tree.ts";

const CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const WAITS = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds";
const MS = 1e6;
const overview = (findings: object[], more: object = {}): unknown => ({ from: 0, to: 300000, type: CPU, first: 1, findings, services: [], n_services: 0,
  small: { processes: 0, value: 0, samples: 0 }, all: { processes: 0, value: 0, samples: 0 }, checked: [], not_computed: [], damaged: false, ...more });
const said = (f: object): string => readOverview(overview([f]), [CPU, WAITS]).findings[0]!.says;

test("findings: a sentence each, with its base", () => {
  const slow = { kind: "slow", service: "shop", endpoint: "GET /checkout", requests: 5012, p50_ms: 31, p95_ms: 60, p99_ms: 2900, extra_ms: 500,
    causes: [{ of: "cpu", name: "check_coupon", file: "/demo/shop.py", line: 28, ms: 490, low_ms: 300, high_ms: 680 }] };
  const [f] = readOverview(overview([slow]), [CPU]).findings;
  assert.equal(f!.says, "GET /checkout of shop has a slow tail: p99 2.90 s, median 31.0 ms, of 5,012 requests");
  assert.deepEqual(f!.why, [{ says: "98.0 % of the extra time is CPU time in check_coupon", file: "/demo/shop.py", line: 28 }]);
  assert.deepEqual([f!.to.view, f!.to.requests?.show, f!.to.requests?.endpoint], ["traces", "slow", "GET /checkout"]);
  const why = (causes: object[]): string[] => readOverview(overview([{ ...slow, causes }]), []).findings[0]!.why.map((w) => w.says);
  assert.deepEqual(why([{ of: "waiting", name: "get", ms: 400 }, ...slow.causes]), ["80.0 % of the extra time is waiting in get", "98.0 % of the extra time is CPU time in check_coupon"]);
  assert.deepEqual(why([]), ["No function explains it with certainty"]);
  assert.equal(said({ kind: "errors", service: "a", endpoint: "GET /", requests: 340, errors: 12 }).replace(/3\.5(3)? %/, "3.5 %"), "GET / of a fails: 12 of 340 requests (3.5 %)");
  assert.equal(said({ kind: "cpu", service: "a", value: 600e9, before: 300e9 }), "a takes 2.00 cores, 2.0 times the 1.00 cores of the 5.00 min before");
  assert.equal(said({ kind: "lock", service: "a", lock: "0x1", threads: 8, samples: 40, waited_ms: 4000 }), "8 threads of a waited for one lock, 0x1: 4.00 s together");
  assert.match(said({ kind: "growth", service: "a", type: "memory:resident:bytes:resident:bytes", periods: 60, slope: 2 ** 20, low: 2 ** 19, high: 2 ** 21, last: 2 ** 30 }),
    /^Memory of a grows by 3\.52 GiB\/h \(95 % interval 1\.76 GiB\/h to 7\.03 GiB\/h\), and has 1\.00 GiB now$/);
  for (const bad of [null, {}, overview([{}]), overview([{ kind: "slow", service: 1 }]), overview([], { services: [{}] })])
    assert.throws(() => readOverview(bad, []), DataError);
});

/** root → a → b → c (10 → 310 ms), and root → other. */
function answer(more: object = {}): unknown {
  const side = { requests: 9, sampled: 9, stand_for: 9, from_ms: 10, to_ms: 20, value: 30 };
  const row = (name: string, effect: number, rest: object = {}): object => ({ name, object: "", kind: "native", effect: effect * MS, low: effect * MS - 1, high: effect * MS + 1,
    slow: effect * MS, middle: 0, slow_self: 0, middle_self: 0, slow_running: 1, middle_running: 0, explained: false, ...rest });
  return { from: 0, to: 1, type: CPU, slow: { ...side, mean_ms: 330 }, middle: { ...side, mean_ms: 30 }, left_out: 0, damaged: false, kinds: ["native"],
    names: ["all", "a", "b", "c", "other"], nodes: { count: 5, name: [0, 1, 2, 3, 4], below: [4, 2, 1, 0, 0], self: [0, 0, 0, 294 * MS, 294 * MS], total: [588 * MS, 294 * MS, 294 * MS, 294 * MS, 294 * MS],
      kind: [-1, 0, 0, 0, 0], level: [0, 3, 3, 3, 3], inlined: [0, 0, 0, 0, 0], line: [0, 0, 0, 0, 0], base_self: [0, 0, 0, 0, 0], base_total: [0, 0, 0, 0, 0] },
    rows: [row("a", 294), row("b", 294, { file: "/app/b.py", line: 7 }), row("c", 293, { file: "/usr/lib/python3/re.py", line: 9 }), row("other", 294)], ...more };
}

test("why slow: a row for each call chain, with the line of the program itself", () => {
  const s = readSlow(answer());
  const all = chains(s);
  // other has the same difference, but no call connects it with a.
  assert.deepEqual(all.map((c) => [c.head.name, c.rows.length, placeOf(c.at.file, c.at.line)]), [["a", 3, "b.py:7"], ["other", 1, ""]]);
  assert.deepEqual(reasons(s, null).map((r) => r.says), ["A slow request takes 330 ms on average, a typical one 30.0 ms: 300 ms more", "98.0 % of the extra time is CPU time in b"]);
  const bare = { ...(answer() as { rows: object[] }).rows[0]!, low: -1 };
  assert.match(reasons(readSlow(answer({ rows: [bare] })), null)[1]!.says, /^No function explains this with certainty/);
  const waits = readSlow(answer({ type: WAITS, rows: [{ ...(answer() as { rows: object[] }).rows[0]!, effect: 297 * MS }] }));
  assert.deepEqual(reasons(s, waits).slice(1).map((r) => r.says), ["99.0 % of the extra time is waiting in a", "98.0 % of the extra time is CPU time in b"]);
});

test("a share only of what it is a share of", () => {
  assert.equal(shareText(98, 100), "98.0 % of the extra time");
  assert.equal(shareText(300 * MS, 100 * MS), "300 ms more", "several threads at once");
  assert.equal(shareText(300 * MS, 0), "300 ms more");
});

test("where the time of a request went", () => {
  const cpu = { name: "running", ns: 750 * MS };
  assert.equal(whereTime(4420 * MS, [cpu, { name: "lock", ns: 3670 * MS }], true), "CPU 750 ms and 3.67 s of waiting in 4.42 s: lock 3.67 s.");
  assert.equal(whereTime(4420 * MS, [cpu], false), "CPU 750 ms in 4.42 s. No samples for 3.67 s: agents record waits with --off-cpu.");
  assert.match(whereTime(4420 * MS, [], true), /^CPU 0 ns in 4\.42 s\. No samples for 4\.42 s: its threads/);
  assert.match(whereTime(1000 * MS, [{ name: "running", ns: 3000 * MS }], true), /Several threads worked at once\.$/);
  const span = (id: string, parent: string, states_ms: object): object => ({ span_id: id, ...parent ? { parent_id: parent } : {}, service: "s", name: id, kind: "server", status: "ok", start_ms: 1,
    duration_ms: 9, samples: 0, value: 0, attributes: {}, states_ms });
  const w = readWaterfall({ spans: [span("a", "", { running: 1 }), span("b", "a", { running: 2, lock: 4 }), span("c", "", { disk: 8 })], type: "x", other: { samples: 0, value: 0, states_ms: { lock: 16 } } });
  const of = (at: number, only: boolean): string => statesOf(w, at, only).map((s) => `${s.name} ${s.ns / MS}`).join();
  assert.deepEqual([of(-1, false), of(0, false), of(0, true), of(1, false)], ["lock 20,disk 8,running 3", "lock 4,running 3", "running 1", "lock 4,running 2"]);
});

test("links to other tools: http and https only, ids encoded", () => {
  assert.equal(linkTo({ name: "J", url: "https://j/{trace}?s={span}&t={trace}" }, "ab", "c/d"), "https://j/ab?s=c%2Fd&t=ab");
  for (const url of ["javascript:alert(1)//{trace}", "//j/{trace}", "data:text/html,{trace}"])
    assert.equal(linkTo({ name: "J", url }, "ab", ""), "");
});
