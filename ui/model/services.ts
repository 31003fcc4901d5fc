// SPDX-License-Identifier: Apache-2.0
/* The table of services: share, hosts, languages, values by time, and how that changed. */
import { significant } from "./stats.ts";
import type { Lines } from "./series.ts";
import { aligned } from "./times.ts";
import type { Range } from "./times.ts";

export interface ServiceRow {
  name: string;
  value: number;
  samples: number;
  /** Share of all services. */
  share: number;
  hosts: string[];
  languages: string[];
  /** Sums by step. */
  spark: Float64Array;
  /** null: nothing is known about the time before. */
  change: RateChange | null;
}

export interface RateChange {
  /** Values per ms. */
  before: number;
  after: number;
  /** Whether chance causes such a difference in less than one of 20 cases. */
  sure: boolean;
}

export interface Sum {
  value: number;
  samples: number;
}

/** Adds up lines by the value of a label. */
export function sums(l: Lines, label: string): Map<string, Sum> {
  const out = new Map<string, Sum>();
  for (const line of l.lines) {
    const name = line.labels[label] ?? "";
    const s = out.get(name) ?? { value: 0, samples: 0 };
    for (const [, v, n] of line.points) {
      s.value += v;
      s.samples += n;
    }
    out.set(name, s);
  }
  return out;
}

/** Compares the rates of two periods. Samples are independent, so the variance of a count is the count. */
export function rateChange(before: Sum, beforeMs: number, after: Sum, afterMs: number): RateChange {
  const a = before.samples / beforeMs;
  const b = after.samples / afterMs;
  const variance = a / beforeMs + b / afterMs;
  return {
    before: before.value / beforeMs, after: after.value / afterMs,
    sure: variance > 0 && significant((b - a) / Math.sqrt(variance)),
  };
}

function distinct(l: Lines, by: string, label: string): Map<string, Map<string, number>> {
  const out = new Map<string, Map<string, number>>();
  for (const line of l.lines) {
    const value = line.labels[label] ?? "";
    if (value === "")
      continue;
    const name = line.labels[by] ?? "";
    const of = out.get(name) ?? new Map<string, number>();
    of.set(value, (of.get(value) ?? 0) + line.points.reduce((a, [, v]) => a + v, 0));
    out.set(name, of);
  }
  return out;
}

const heaviest = (m: Map<string, number> | undefined): string[] =>
  [...m ?? []].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([v]) => v);

export interface Asked {
  /** The label whose values are the rows. */
  by: string;
  /** Sums over the whole range by this label, host.name and process.runtime.name. */
  whole: Lines;
  /** Sums by this label in steps. */
  steps: Lines;
  range: Range;
  /** Sums by this label over the period before, and its known length; null: nothing is known of it. */
  before: { lines: Lines; ms: number } | null;
  /** The known length of `range`. */
  ms: number;
}

/** Returns the rows, heaviest first. */
export function serviceRows(a: Asked): ServiceRow[] {
  const now = sums(a.whole, a.by);
  const then = a.before && sums(a.before.lines, a.by);
  const hosts = distinct(a.whole, a.by, "host.name");
  const languages = distinct(a.whole, a.by, "process.runtime.name");
  const { from, to } = aligned(a.range, a.steps.step);
  const n = Math.max(1, Math.min(2000, Math.round((to - from) / a.steps.step)));
  const sparks = new Map<string, Float64Array>();
  for (const line of a.steps.lines) {
    const name = line.labels[a.by] ?? "";
    const spark = sparks.get(name) ?? new Float64Array(n);
    sparks.set(name, spark);
    for (const [at, v] of line.points) {
      const i = Math.floor((at - from) / a.steps.step);
      if (i >= 0 && i < n)
        spark[i]! += v;
    }
  }
  let all = 0;
  for (const s of now.values())
    all += s.value;
  const nothing: Sum = { value: 0, samples: 0 };
  return [...new Set([...now.keys(), ...then?.keys() ?? []])].map((name) => {
    const s = now.get(name) ?? nothing;
    return {
      name, value: s.value, samples: s.samples, share: all > 0 ? s.value / all : 0,
      hosts: heaviest(hosts.get(name)), languages: heaviest(languages.get(name)), spark: sparks.get(name) ?? new Float64Array(n),
      change: a.before && rateChange(then!.get(name) ?? nothing, a.before.ms, s, a.ms),
    };
  }).sort((x, y) => y.value - x.value || (x.name < y.name ? -1 : 1));
}

export const SERVICE_KEYS = ["name", "value", "change", "hosts", "language"] as const;
export type ServiceKey = (typeof SERVICE_KEYS)[number];

export function sortServices(rows: ServiceRow[], key: ServiceKey, descending: boolean): ServiceRow[] {
  const sign = descending ? -1 : 1;
  const change = (r: ServiceRow): number => (r.change ? r.change.after - r.change.before : 0);
  const by: Record<ServiceKey, (a: ServiceRow, b: ServiceRow) => number> = {
    name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
    value: (a, b) => a.value - b.value,
    change: (a, b) => change(a) - change(b),
    hosts: (a, b) => a.hosts.length - b.hosts.length,
    language: (a, b) => ((a.languages[0] ?? "") < (b.languages[0] ?? "") ? -1 : (a.languages[0] ?? "") > (b.languages[0] ?? "") ? 1 : 0),
  };
  return [...rows].sort((a, b) => sign * by[key](a, b) || by.name(a, b));
}
