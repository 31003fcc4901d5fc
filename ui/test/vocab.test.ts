// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { colouring, oklch } from "../draw/colour.ts";
import { rate, sortTypes, typeLabel } from "../model/series.ts";
import { samplesPerValue } from "../model/stats.ts";
import { value } from "../model/text.ts";
import { frameKind, nanoseconds, sampleType, valueType } from "../model/vocab.ts";
import { FRAME_KINDS, SAMPLE_TYPES } from "../model/vocab.gen.ts";
import { readTable } from "../vocab.mjs";
import { fromFolded } from "./make.ts";

const CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const SAMPLES = "process_cpu:samples:count:cpu:nanoseconds";
const FAULTS = "page_faults:page_faults:count:page_faults:count";
const FAULT_SAMPLES = "page_faults:samples:count:page_faults:count";
const MEMORY = "memory:inuse_space:bytes:space:bytes";
const ODD = "off_cpu:offcpu:nanoseconds::";

test("tables: strings with commas and brackets, words, numbers; anything else is an error", () => {
  assert.deepEqual(readTable('/* X(1)\n */\nX(A, "a, (b)", 5)\n\nX(B, "", 0)\n', "X"), [["A", "a, (b)", "5"], ["B", "", "0"]]);
  for (const bad of ["Y(A)", "X(A", "#define X"])
    assert.throws(() => readTable(bad, "X"), /not a row of X/, bad);
});

test("every row of the tables has what the page shows", () => {
  assert.ok(SAMPLE_TYPES.length > 20 && FRAME_KINDS.length > 5);
  for (const t of SAMPLE_TYPES) {
    assert.ok(t.name && t.unit && t.profile && t.label && t.rate && t.help, t.id);
    assert.ok(["over_time", "at_moment"].includes(t.adds), t.adds);
    assert.equal(typeof t.isCpu, "boolean");
    assert.ok(!t.isCpu || nanoseconds(t.unit) > 0, `${t.id} is time`);
  }
  for (const k of FRAME_KINDS) {
    assert.ok(k.name && k.help && ["unknown", "kernel", "native", "managed", "note"].includes(k.class), k.name);
    assert.ok(k.hue >= 0 && k.hue < 360 && k.chroma >= 0 && k.chroma <= 1.2, k.name);
  }
});

test("a type by its name, its unit and its group", () => {
  const { id, name, unit, label, isCpu } = sampleType(CPU);
  assert.deepEqual([id, name, unit, label, isCpu], ["CPU", "cpu", "nanoseconds", "CPU", true]);
  assert.deepEqual([sampleType("x:cpu:seconds::").isCpu, sampleType("x:cpu:seconds::").unit], [true, "seconds"], "any unit of time, any group");
  assert.equal(sampleType("x:cpu:count::").id, "");
  assert.equal(sampleType("block:delay:nanoseconds:contentions:count").label, "Blocked time");
  assert.equal(sampleType("mutex:delay:nanoseconds:contentions:count").label, "Waits for mutexes");
  assert.equal(sampleType("odd").label, "odd");
  assert.equal(valueType("page_faults", "count").label, "Page faults");
});

test("page faults have a label and a rate, and no cost", () => {
  const t = sampleType(FAULTS);
  assert.equal(typeLabel(FAULTS, [CPU, SAMPLES, FAULTS, FAULT_SAMPLES]), "Page faults");
  assert.equal(typeLabel(FAULT_SAMPLES, [CPU, SAMPLES, FAULTS, FAULT_SAMPLES]), "Samples (Page faults)");
  assert.equal(typeLabel(SAMPLES, [CPU, SAMPLES, FAULTS, FAULT_SAMPLES]), "Samples");
  assert.equal(rate(2400, 2000, t), "1,200 faults/s");
  assert.equal(rate(5, 10000, t), "0.50 faults/s");
  assert.equal(value(420, "count", t.name), "420 faults");
  assert.equal(t.isCpu, false);
  assert.deepEqual(sortTypes([FAULT_SAMPLES, SAMPLES, FAULTS, CPU]), [CPU, FAULTS, FAULT_SAMPLES, SAMPLES]);
  assert.deepEqual(sortTypes([FAULT_SAMPLES, FAULTS])[0], FAULTS, "what the page shows without CPU time");
});

test("rates: cores, bytes, samples", () => {
  assert.equal(rate(3e9, 2000, sampleType(CPU)), "1.50 cores");
  assert.equal(rate(3, 2000, sampleType("process_cpu:cpu:seconds::")), "1.50 cores");
  assert.equal(rate(1, 2000, sampleType(CPU)), "<0.01 cores");
  assert.equal(rate(0, 2000, sampleType(CPU)), "0 cores");
  assert.equal(rate(3e10, 1000, sampleType("wall:wall:nanoseconds::")), "30.0 threads");
  assert.equal(rate(2 ** 21, 2000, sampleType("memory:alloc_space:bytes::")), "1.00 MiB/s");
  assert.equal(rate(5000, 1000, sampleType(SAMPLES)), "5,000 samples/s");
});

test("a state is the same however long it is looked at", () => {
  for (const ms of [1, 60000])
    assert.equal(rate(2 ** 21, ms, sampleType(MEMORY)), "2.00 MiB");
  assert.equal(rate(17, 1000, sampleType("goroutines:goroutine:count:goroutine:count")), "17 goroutines");
});

test("what is not in the tables goes by its own name", () => {
  assert.deepEqual(sortTypes([SAMPLES, ODD, CPU]), [CPU, ODD, SAMPLES]);
  assert.equal(typeLabel(ODD, [CPU, ODD]), "offcpu");
  assert.equal(typeLabel(CPU, [CPU, ODD]), "CPU");
  assert.equal(typeLabel(CPU, [CPU, "x:cpu:count::"]), "CPU (nanoseconds)");
  assert.equal(typeLabel(CPU, [CPU, "x:cpu:nanoseconds::"]), `CPU (${CPU})`);
  assert.equal(typeLabel("x:samples:count:widgets:count", []), "Samples (x)");
  assert.equal(rate(4000, 2000, sampleType("sched:sched_switch:count::")), "2,000 sched_switch/s");
  assert.equal(rate(4000, 2000, sampleType("x:things:widgets::")), "2,000/s");
  assert.equal(rate(3e10, 1000, sampleType(ODD)), "30.0 s/s");
  assert.equal(value(3, "count", "sched_switch"), "3 sched_switch");
  assert.equal(frameKind("cobol"), undefined);
});

test("only values that count samples are their own number of samples", () => {
  const p = fromFolded(["main 300"]);
  const per = (type: string, unit: string): number =>
    samplesPerValue({ ...p.meta, type, unit, quality: { ...p.meta.quality, samples: 30 } }, p.tree);
  assert.deepEqual([per("samples", "count"), per("samples", "samples"), per("page_faults", "count")], [1, 1, 0.1]);
});

test("frames have the hue of their kind", () => {
  const p = fromFolded(["main;read_[k] 3"]);
  const { palette, legend } = colouring(p, p.tree, "light", "kind", true);
  const kernel = frameKind("kernel")!;
  assert.equal(palette[legend.find((e) => e.label === "kernel")!.colour], oklch(0.83, 0.105 * kernel.chroma, kernel.hue));
});
