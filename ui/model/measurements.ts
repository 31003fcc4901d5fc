// SPDX-License-Identifier: Apache-2.0
/* Measurements of functions on all hosts that run them: /api/v1/measurements. Words are those of `culprit ctl measure`. */
import { array, number, object, text } from "./check.ts";
import { count, duration, percent, three } from "./text.ts";
import { frameKind } from "./vocab.ts";

/** A function in a binary; the kernel's file is "[kernel]". */
export interface FunctionOf {
  function: string;
  file: string;
}

/** What a user asks for. */
export interface NewMeasurement extends FunctionOf {
  service: string;
  duration_ms: number;
  /** 0: the agents choose. */
  slow_ns: number;
  /** Of one CPU, on each host. */
  budget_percent: number;
}

export interface Bucket {
  from: number;
  to: number;
  calls: number;
}

export interface MeasurementAgent {
  host: string;
  state: string;
  reason: string;
  processes: number;
  calls: number;
  costPercent: number;
}

export interface SlowCall {
  host: string;
  /** ms since the epoch, when it returned. */
  end: number;
  ns: number;
  pid: number;
  tid: number;
  comm: string;
  /** "": none is known. */
  trace: string;
  args: Map<string, string>;
  result: string;
  stack: string[];
}

export interface Measurement extends FunctionOf {
  id: string;
  state: string;
  service: string;
  durationMs: number;
  /** ms since the epoch. */
  created: number;
  by: string;
  hosts: number;
  processes: number;
  others: boolean;
  calls: number;
  callsPerSecond: number;
  slow: number;
  lost: number;
  slowNs: number;
  thinned: number;
  costPercent: number;
  budgetPercent: number;
  latency: { p50: number; p95: number; p99: number; max: number };
  /** Of one measurement; in a list all three are empty. */
  histogram: Bucket[];
  agents: MeasurementAgent[];
  slowCalls: SlowCall[];
}

function readCall(json: unknown): SlowCall {
  const o = object(json);
  return { host: text(o["host"]), end: number(o["end_ns"]) / 1e6, ns: number(o["ns"]), pid: number(o["pid"]), tid: number(o["tid"]), comm: text(o["comm"]),
    trace: text(o["trace_id"] ?? ""), args: new Map(array(o["arguments"]).map((x) => [text(object(x)["name"]), text(object(x)["value"])])),
    result: text(o["result"]), stack: array(o["stack"]).map(text) };
}

export function readMeasurement(json: unknown): Measurement {
  const o = object(json);
  const spec = object(o["spec"]);
  const latency = object(o["latency"]);
  const list = (name: string): unknown[] => array(o[name] ?? []);
  return { id: text(o["id"]), state: text(o["state"]), service: text(spec["service"]), function: text(spec["function"]), file: text(spec["file"]),
    durationMs: number(spec["duration_ms"]), created: number(o["created"]), by: text(o["by"]), hosts: number(o["hosts"]), processes: number(o["processes"]),
    others: o["others"] === true, calls: number(o["calls"]), callsPerSecond: number(o["calls_per_second"]), slow: number(o["slow"]), lost: number(o["lost"]),
    slowNs: number(o["slow_ns"]), thinned: number(o["thinned"]), costPercent: number(o["cost_percent"]), budgetPercent: number(spec["budget_percent"]),
    latency: { p50: number(latency["p50_ns"]), p95: number(latency["p95_ns"]), p99: number(latency["p99_ns"]), max: number(latency["max_ns"]) },
    histogram: list("histogram").map(object).map((b) => ({ from: number(b["from_ns"]), to: number(b["to_ns"]), calls: number(b["calls"]) })),
    agents: list("agents").map(object).map((a) => ({ host: text(a["host"]), state: text(a["state"]), reason: text(a["reason"]), processes: number(a["processes"]),
      calls: number(a["calls"]), costPercent: number(a["cost_percent"]) })),
    slowCalls: list("slow_calls").map(readCall) };
}

export function readMeasurements(json: unknown): Measurement[] {
  return array(object(json)["measurements"]).map(readMeasurement);
}

export const isMeasuring = (m: Measurement): boolean => m.state === "running";

export const measurementFor = (of: FunctionOf, service: string): NewMeasurement =>
  ({ ...of, service: service || "*", duration_ms: 30000, slow_ns: 0, budget_percent: 1 });

/** Why a frame's function cannot be measured; "": it can, as far as the page knows. */
export function whyNotMeasured(kind: string, name: string, file: string, inlined: boolean): string {
  const k = frameKind(kind);
  if (k?.class === "managed")
    return `${k.help.split(",")[0]!}: only functions of ELF files and of the kernel can be measured`;
  if (inlined)
    return "the compiler inlined this function here: measure its caller";
  if (name.startsWith("[") || /\+0x[0-9a-f]+$/.test(name))
    return "the binary does not have its name";
  return file === "" ? "its file is unknown" : "";
}

/** The buckets between the first and the last that has calls, also those without. */
export function filledBuckets(all: Bucket[]): Bucket[] {
  const out: Bucket[] = [];
  for (const b of all) {
    let last = out[out.length - 1];
    // A bucket is a quarter of a power of two; small ones have a value each.
    for (; last && last.to < b.from; last = out[out.length - 1]) {
      const width = Math.max(1, 2 ** Math.floor(Math.log2(last.to) - 2));
      out.push({ from: last.to, to: Math.min(b.from, last.to + width), calls: 0 });
    }
    out.push(b);
  }
  return out;
}

/** The names of the arguments of all calls, in their order. */
export const argumentNames = (calls: SlowCall[]): string[] => [...new Set(calls.flatMap((c) => [...c.args.keys()]))];

/** What the counts say in a line. */
export function measuredText(m: Measurement): string {
  const s = (n: number, one: string, many = one + "s"): string => `${count(n)} ${n === 1 ? one : many}`;
  const rate = m.callsPerSecond > 0 ? three(m.callsPerSecond) : "0";
  return `${rate} calls/s: ${s(m.calls, "call")} on ${s(m.hosts, "host")} in ${s(m.processes, "process", "processes")}` +
    `${m.others ? ", and in all other processes that run the binary there" : ""}${m.thinned < 1 ? `; counted in ${percent(m.thinned)} of the time, within the budget` : ""}` +
    `${m.lost > 0 ? `; ${count(m.lost)} events lost` : ""}`;
}

/** Which calls are told one by one. */
export const slowText = (m: Measurement): string => (m.slowNs > 0 ? `from ${duration(m.slowNs)}` : "every call, while there is room");
