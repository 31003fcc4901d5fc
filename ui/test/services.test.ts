// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { complaints, counterText, dropText, keptBy, lostBy, readAgents, sourceText } from "../model/agents.ts";
import { costHelp, costText, monthly, readFactors } from "../model/cost.ts";
import { complete } from "../model/predicate.ts";
import { readLines } from "../model/series.ts";
import { hottest, lookedAt, readSource } from "../model/source.ts";
import { rateChange, serviceRows, sortServices } from "../model/services.ts";
import { functionIds } from "../model/functions.ts";
import { readSlow } from "../model/slow.ts";
import { below, readWaterfall } from "../model/traces.ts";
import { DataError } from "../model/tree.ts";

const line = (labels: Record<string, string>, ...points: number[][]): object => ({ labels, points });

test("the table of services: sums over hosts, heaviest first, gone ones too", () => {
  const whole = readLines({ step: 60000, series: [
    line({ "service.name": "shop", "host.name": "b", "process.runtime.name": "go" }, [0, 30, 3]),
    line({ "service.name": "shop", "host.name": "a", "process.runtime.name": "go" }, [0, 60, 6]),
    line({ "service.name": "db", "host.name": "a", "process.runtime.name": "" }, [0, 10, 1]),
  ] });
  const steps = readLines({ step: 1000, series: [line({ "service.name": "shop" }, [1000, 50, 5], [3000, 40, 4], [9000, 1, 1])] });
  const before = { lines: readLines({ step: 60000, series: [line({ "service.name": "old" }, [0, 7, 1])] }), ms: 4000 };
  const rows = serviceRows({ by: "service.name", whole, steps, range: { from: 0, to: 4000 }, before, ms: 4000 });
  assert.deepEqual(rows.map((r) => [r.name, r.value, r.samples, r.share]), [["shop", 90, 9, 0.9], ["db", 10, 1, 0.1], ["old", 0, 0, 0]]);
  assert.deepEqual(rows[0]!.hosts, ["a", "b"], "heaviest first");
  assert.deepEqual(rows[0]!.languages, ["go"]);
  assert.deepEqual(rows[1]!.languages, [], "what is not known is nothing");
  assert.deepEqual([...rows[0]!.spark], [0, 50, 0, 40]);
  assert.equal(rows[2]!.change!.before, 7 / 4000);
  assert.equal(rows[2]!.change!.after, 0);
  assert.equal(serviceRows({ by: "service.name", whole, steps, range: { from: 0, to: 4000 }, before: null, ms: 4000 })[0]!.change, null);
  assert.deepEqual(sortServices(rows, "name", false).map((r) => r.name), ["db", "old", "shop"]);
  assert.deepEqual(sortServices(rows, "hosts", true).map((r) => r.name), ["shop", "db", "old"]);
  assert.deepEqual(sortServices(rows, "change", false).map((r) => r.name), ["old", "db", "shop"]);
});

test("the same by another label: hosts are rows, what has none is a row without a name", () => {
  const whole = readLines({ step: 1000, series: [
    line({ "host.name": "b", "process.runtime.name": "go" }, [0, 30, 3]), line({ "host.name": "", "process.runtime.name": "jvm" }, [0, 60, 6]),
  ] });
  const steps = readLines({ step: 1000, series: [line({ "host.name": "b" }, [0, 30, 3])] });
  const rows = serviceRows({ by: "host.name", whole, steps, range: { from: 0, to: 1000 }, before: null, ms: 1000 });
  assert.deepEqual(rows.map((r) => [r.name, r.value, r.hosts, r.languages]), [["", 60, [], ["jvm"]], ["b", 30, ["b"], ["go"]]]);
  assert.deepEqual([...rows[1]!.spark], [30]);
});

test("a change of rate is told from chance by the samples behind it, not by the values", () => {
  const s = (samples: number): { value: number; samples: number } => ({ value: samples * 5e7, samples });
  assert.equal(rateChange(s(100), 1000, s(110), 1000).sure, false);
  assert.equal(rateChange(s(10000), 1000, s(11000), 1000).sure, true);
  assert.equal(rateChange(s(100), 1000, s(1000), 10000).sure, false, "ten times the time is no change");
  assert.equal(rateChange(s(0), 1000, s(0), 1000).sure, false);
  assert.equal(rateChange(s(0), 1000, s(3), 1000).sure, false);
  assert.equal(rateChange(s(0), 1000, s(5), 1000).sure, true);
});

test("predicates: words, then names, quoted", () => {
  const names = (): string[] => ["handle", "json.encode", 'odd"name\\', "rehandle"];
  const labels = (text: string, at = text.length): string[] => complete(text, at, names).map((o) => o.label);
  assert.deepEqual(labels(""), ['fn="', 'fn~"', 'not fn="']);
  assert.deepEqual(labels("fn"), ['fn="', 'fn~"']);
  assert.deepEqual(labels('fn="han'), ["handle", "rehandle"]);
  assert.deepEqual(complete('fn="han', 7, names)[0], { label: "handle", text: 'fn="handle"', at: 11 });
  assert.deepEqual(complete('fn="han" under fn="x"', 7, names)[0], { label: "handle", text: 'fn="handle" under fn="x"', at: 11 });
  assert.equal(complete('fn="odd', 7, names)[0]!.text, 'fn="odd\\"name\\\\"');
  assert.deepEqual(labels('fn="a" u'), ['under fn="']);
  assert.equal(complete('fn="a"', 6, names)[0]!.text, 'fn="a" under fn="');
  assert.deepEqual(labels('fn~"ha'), [], "a regular expression is nobody's name");
});

test("source: lines with values, also where the file has become shorter, and what has no line", () => {
  const json = { from: 0, to: 1, file: "/a.c", type: "cpu", unit: "nanoseconds", all: 20, self: 5, total: 12, why: "",
    lines: [[0, 1, 2], [2, 4, 9], [7, 0, 1]], text: ["one", "two", "three"] };
  const s = readSource(json);
  assert.deepEqual(s.lines.map((l) => [l.line, l.self, l.total, l.text]), [[1, 0, 0, "one"], [2, 4, 9, "two"], [3, 0, 0, "three"], [7, 0, 1, null]]);
  assert.deepEqual(s.unknown, { self: 1, total: 2 });
  assert.equal(hottest(s), 1);
  assert.equal(hottest(readSource({ ...json, lines: [] })), -1);
  const l = s.lines.findIndex((x) => x.total > 0);
  assert.equal(lookedAt(s, 0), hottest(s));
  assert.equal(lookedAt(s, s.lines[l]!.line), l);
  assert.equal(lookedAt(s, 1), l, "the first behind it that ran");
  assert.equal(lookedAt(s, 99999), hottest(s));
  for (const bad of [{ ...json, text: "x" }, { ...json, lines: [[1, "2", 3]] }, { ...json, all: null }, {}])
    assert.throws(() => readSource(bad), DataError);
});

test("agents: what is wrong and what to do", () => {
  const counter = (name: string, loss: string, count: number): object => ({ name, loss, count, unit: "samples", help: "why so" });
  const json = { version: "2", agents: [{ host: "h", version: "2", kernel: "6.1", arch: "x86_64", started: 5, last: 100000, newest: 99000, cpu: 0.001, dropped: 0, drops: [],
    sources: [{ event: "cpu-clock", label: "CPU", hz: 19, period: 0 }, { event: "page-faults", label: "Page faults", hz: 0, period: 100 },
      { event: "sched:sched_switch", label: "sched:sched_switch", hz: 0, period: 1 },
      { event: "off-cpu", label: "Waiting", hz: 0, period: 8192000 }],
    rss: 4e7, processes: 90, samples: 1000, truncated: 3, counters: [counter("samples", "counted", 1000), counter("nested", "lost", 5), counter("lost_stack", "incomplete", 400)],
    error: "", range: null }] };
  const [a] = readAgents(json).agents;
  assert.deepEqual(complaints(a!, "2", 100000), []);
  assert.match(complaints(a!, "2", 200000)[0]!, /sent nothing/);
  assert.equal(lostBy(a!), 5, "incomplete stacks are no lost samples");
  assert.deepEqual(a!.counters.map(counterText),
    ["1,000 samples (samples). Why so.", "5 samples lost (nested). Why so.", "400 samples incomplete (lost_stack). Why so."]);
  assert.equal(counterText({ name: "newer", loss: "counted", unit: "", help: "", count: 7 }), "7 (newer).");
  assert.deepEqual(a!.sources.map(sourceText), ["CPU 19 Hz", "Page faults 1 in 100", "sched:sched_switch each", "Waiting each from 8.19 ms"]);
  const [d] = readAgents({ version: "2", agents: [{ ...json.agents[0]!, dropped: 200, drops: [{ reason: "refused", help: "the destination said no", profiles: 4 },
    { reason: "newer", help: "", profiles: 1 }] }] }).agents;
  assert.deepEqual(d!.drops.map(dropText), ["4 profiles dropped (refused). The destination said no.", "1 profile dropped (newer)."]);
  assert.deepEqual([lostBy(d!), keptBy(d!)], [205, 800], "dropped samples are lost, and were taken");
  assert.match(complaints(d!, "2", 100000)[0]!, /lost 20\.4 % of its samples/);
  assert.match(complaints({ ...a!, counters: [...a!.counters, { ...a!.counters[1]!, count: 495 }] }, "2", 100000)[0]!, /lost 33\.3 % of its samples/);
  assert.match(complaints(a!, "3", 100000)[0]!, /This agent has version 2, the server 3\./);
  assert.deepEqual(complaints({ ...a!, cpu: 0.13 }, "2", 100000), ["This agent uses 13.0 % of a CPU. Lower --frequency or add a filter."]);
  assert.match(complaints({ ...a!, error: "no BTF" }, "2", 100000)[0]!, /no BTF/);
  assert.match(complaints({ ...a!, newest: 100000 + 7.2e6 }, "2", 100000)[0]!, /from 2(\.0+)? h in the future/);
  assert.match(complaints({ ...a!, last: 8e6, newest: 8e6 - 7.2e6 }, "2", 8e6)[0]!, /were 2(\.0+)? h old when they arrived/);
  for (const bad of [{}, { version: 1, agents: [] }, { version: "1", agents: [{}] }, { version: "1", agents: {} }])
    assert.throws(() => readAgents(bad), DataError);
});

test("a trace: below its parent, by start; orphans and circles have their rows too", () => {
  const span = (span_id: string, parent_id: string | undefined, start_ms: number, duration_ms: number, samples = 0): object => ({
    span_id, ...parent_id ? { parent_id } : {}, service: span_id[0] === "c" ? "cart" : "shop", name: span_id, kind: "server", status: "ok",
    start_ms, duration_ms, stands_for: 1, root: false, samples, value: 10 * samples, attributes: { a: "b" } });
  const answer = (...spans: object[]): unknown => ({ trace_id: "00", type: "x", spans, other: { samples: 2, value: 20 }, damaged: false });
  const w = readWaterfall(answer(span("late", "root", 30, 5, 1), span("root", undefined, 10, 100, 4), span("cart", "early", 16, 3, 2), span("early", "root", 15, 9, 0),
    span("orphan", "gone", 5, 1), span("x", "y", 1000, 1), span("y", "x", 1001, 1), span("self", "self", 200, 1)));
  assert.deepEqual(w.spans.map((s) => [s.id, s.depth]), [["orphan", 0], ["root", 0], ["early", 1], ["cart", 2], ["late", 1], ["self", 0], ["x", 0], ["y", 1]]);
  assert.deepEqual([w.from, w.to, w.other.samples, w.services], [5, 1002, 2, ["shop", "cart"]]);
  assert.deepEqual(below(w, 1), { samples: 7, value: 70 });
  assert.deepEqual(below(w, 2), { samples: 2, value: 20 });
  assert.deepEqual(readWaterfall(answer()).spans, []);
  for (const bad of [null, {}, answer(span("a", undefined, NaN, 1)), answer({})])
    assert.throws(() => readWaterfall(bad), DataError);
});

test("slow vs typical: rows and a picture of both sides; damaged answers", () => {
  const side = { requests: 9, sampled: 7, stand_for: 9, from_ms: 10, to_ms: 20, mean_ms: 15, value: 30 };
  const nodes = { count: 4, name: [0, 1, 2, 2], below: [3, 2, 0, 0], self: [0, 1, 5, 4], total: [10, 10, 5, 4], kind: [-1, 1, 1, 0], level: [0, 3, 3, 3],
    inlined: [0, 0, 1, 0], line: [0, 0, 7, 0], base_self: [0, 1, 0, 2], base_total: [3, 3, 0, 2] };
  const answer = { from: 0, to: 1, type: "process_cpu:cpu:nanoseconds:cpu:nanoseconds", slow: side, middle: side, left_out: 3, damaged: false, kinds: ["kernel", "native"],
    names: ["all", "main", "f"], nodes, rows: [{ name: "f", object: "/bin/x", kind: "native", effect: 5, low: 4, high: 6, slow: 5, middle: 0, slow_self: 5,
      middle_self: 0, slow_running: 1, middle_running: 0, explained: false }] };
  const s = readSlow(answer);
  assert.deepEqual([s.unit, s.type, s.rows[0]!.name, s.rows[0]!.low, s.note, s.slow.sampled, s.leftOut], ["nanoseconds", "cpu", "f", 4, "", 7, 3]);
  assert.deepEqual([s.rows[0]!.file, s.rows[0]!.line, s.profile.meta.baseTitle], ["", 0, "typical requests"]);
  const { low, high, ...certain } = answer.rows[0]!;
  const one = readSlow({ ...answer, rows: [{ ...certain, file: "/a.c", line: 7 }] }, "an ordinary request");
  assert.deepEqual([low, high, one.rows[0]!.low, one.rows[0]!.high, one.rows[0]!.file, one.rows[0]!.line, one.profile.meta.baseTitle], [4, 6, null, null, "/a.c", 7, "an ordinary request"]);
  const t = s.profile.tree;
  assert.deepEqual([...t.depth], [0, 1, 2, 2]);
  assert.deepEqual([[...t.total], [...t.base!.total]], [[10, 10, 5, 4], [3, 3, 0, 2]]);
  const ids = functionIds(s.profile);
  assert.equal(ids.of[t.frame[2]!] === ids.of[t.frame[3]!], false, "a kernel function and one of the program");
  for (const bad of [{ ...answer, nodes: { ...nodes, name: [0, 1, 9, 2] } }, { ...answer, nodes: { ...nodes, self: [1] } }, { ...answer, rows: null }, { ...answer, nodes: 1 }])
    assert.throws(() => readSlow(bad), DataError);
});

test("cost: a month at this rate, by the server's factors", () => {
  const f = readFactors({ factors: { currency: "USD", core_hour: 0.04, watts: 3.5, pue: 1.5, grams_per_kwh: 450 } });
  // Two cores for ten seconds.
  const c = monthly(20e9, 10000, f);
  assert.ok(Math.abs(c.money - 2 * 730 * 0.04) < 1e-9 && Math.abs(c.kg - 2 * 730 * 3.5 * 1.5 / 1000 * 0.45) < 1e-9);
  assert.equal(costText(c, f), "58.4 USD");
  assert.equal(costText(monthly(1, 10000, f), f), "<0.01 USD");
  assert.equal(costText(monthly(0, 10000, f), f), "0 USD");
  assert.match(costHelp(c, f), /58\.4 USD .* 3\.45 kg of CO₂/);
  for (const bad of [null, {}, { factors: { currency: 1 } }])
    assert.throws(() => readFactors(bad), DataError);
});

test("the line that is looked at: the hottest of the function that begins there", () => {
  const text = ["int f(int x)", "{", "\tfor (;;)".replace("\t", "  "), "    x++;", "}", "", "int g(void)", "{", "  return f(1);", "}"];
  const s = readSource({ file: "a.c", type: "cpu", unit: "count", all: 9, self: 9, total: 9, why: "", text, lines: [[3, 1, 1], [4, 0, 3], [9, 5, 9]] });
  assert.equal(s.lines[lookedAt(s, 1)]!.line, 4, "of f, not of g");
  assert.equal(s.lines[lookedAt(s, 7)]!.line, 9);
  assert.equal(s.lines[lookedAt(s, 10)]!.line, 9, "nothing behind: of all");
  assert.equal(s.lines[lookedAt(s, 3)]!.line, 4, "a loop, with what is in it");
  assert.equal(s.lines[lookedAt(s, 0)]!.line, 9);
});
