// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the API's answers: sums by time as bars, shares of services, types. Answers are checked like
 * any foreign data; wrong data is a DataError.
 */
import { array, number, object, text } from "./check.ts";
import { three, value } from "./text.ts";
import { aligned } from "./times.ts";
import type { Range } from "./times.ts";
import { DataError } from "./tree.ts";
import { countsSamples, perSecond, sampleType, unitId } from "./vocab.ts";
import type { SampleType } from "./vocab.ts";

export interface Line {
  labels: Record<string, string>;
  /** ms, sum of values, samples behind it. */
  points: [number, number, number][];
}

export interface Lines {
  step: number;
  lines: Line[];
  /** The server could not read a part of the requested data. */
  damaged: boolean;
}

/** GET /api/v1/series */
export function readLines(json: unknown): Lines {
  const o = object(json);
  const step = number(o["step"]);
  if (!(step >= 1))
    throw new DataError("the server's answer has a step of zero");
  return {
    step,
    lines: array(o["series"]).map((s) => {
      const labels: Record<string, string> = {};
      for (const [k, v] of Object.entries(object(object(s)["labels"] ?? {})))
        labels[k] = text(v);
      const points = array(object(s)["points"]).map((p): Line["points"][number] => {
        const at = array(p);
        return [number(at[0]), number(at[1]), number(at[2] ?? 0)];
      });
      return { labels, points };
    }),
    damaged: o["damaged"] === true,
  };
}

/** GET /api/v1/types (key "types") or label-values ("values"). */
export function readNames(json: unknown, key: string): string[] {
  return array(object(json)[key]).map((v) => text(object(v)["name"]));
}

/** GET /api/v1/stats: when the stored samples begin, 0 when nothing is stored. */
export function readFirst(json: unknown): number {
  const store = object(object(json)["store"]);
  return number(store["rows"]) > 0 ? Math.max(1, number(store["first"])) : 0;
}

/** Returns the ms of a range from the first stored sample on: values before it are unknown, not zero. */
export function knownMs(r: Range, first: number): number {
  return Math.max(1000, r.to - Math.max(r.from, first));
}

export interface Bars extends Range {
  step: number;
  /** The end of the last bar: now, if its time is not over yet. */
  until: number;
  /** Sum of values by step. */
  sum: Float64Array;
}

/** Adds up all lines, a bar for each step of the range. `now` is the time of the server's answer. */
export function bars(l: Lines, r: Range, now: number): Bars {
  const { from, to } = aligned(r, l.step);
  const n = Math.max(1, Math.min(20000, Math.round((to - from) / l.step)));
  const sum = new Float64Array(n);
  for (const line of l.lines)
    for (const [at, v] of line.points) {
      const i = Math.floor((at - from) / l.step);
      if (i >= 0 && i < n)
        sum[i]! += v;
    }
  return { from, to, step: l.step, until: Math.min(to, now), sum };
}

/** Returns the range of the bars first … last, cut to the requested range. */
export function barRange(b: Bars, first: number, last: number, within: Range): Range {
  const [a, z] = first <= last ? [first, last] : [last, first];
  const from = Math.max(within.from, b.from + a * b.step);
  return { from, to: Math.max(from + 1, Math.min(within.to, b.from + (z + 1) * b.step)) };
}

/** Returns how many ms of a bar are over, but at least a quarter of it, because a short time gives wild rates. */
export function barMs(b: Bars, i: number): number {
  return Math.max(b.step / 4, Math.min(b.step, b.until - b.from - i * b.step));
}

/** The highest rate of any bar, per ms; of a state the highest value. */
export function peak(b: Bars | null, t: SampleType): number {
  let most = 0;
  for (let i = 0; i < (b?.sum.length ?? 0); i++)
    most = Math.max(most, b!.sum[i]! / (t.adds === "at_moment" ? b!.step : barMs(b!, i)));
  return most;
}

/** Sorts types: CPU time first, "samples" last. */
export function sortTypes(types: string[]): string[] {
  const rank = (type: string): number => {
    const t = sampleType(type);
    return t.isCpu ? 0 : countsSamples(t) ? 2 : 1;
  };
  return [...types].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0));
}

/** Returns a type's label, unique in a list of types. */
export function typeLabel(type: string, all: string[]): string {
  const { label, unit } = sampleType(type);
  const same = all.map(sampleType).filter((t) => t.label.toLowerCase() === label.toLowerCase());
  if (same.length < 2)
    return label;
  return `${label} (${same.filter((t) => t.unit === unit).length > 1 ? type : unit})`;
}

/** Formats a value over `ms` as a rate. Time per time is a number (of cores); a state is not divided by time. */
export function rate(v: number, ms: number, t: SampleType): string {
  if (t.adds === "at_moment")
    return value(v, t.unit, t.name);
  const s = v * 1000 / ms;
  const time = perSecond(t.unit);
  if (time > 0 && t.rate) {
    const n = s / time;
    return `${n === 0 ? "0" : n < 0.01 ? "<0.01" : three(n)} ${t.rate}`;
  }
  if (time > 0 || unitId(t.unit) === "BYTES")
    return value(s, t.unit) + "/s";
  return (s === 0 ? "0" : three(s)) + (t.rate ? ` ${t.rate}/s` : "/s");
}

export interface Share {
  name: string;
  value: number;
  /** Share of all values. */
  share: number;
}

/** Returns shares, heaviest first; known names without a value come last. */
export function shares(l: Lines, names: string[]): Share[] {
  const sums = new Map<string, number>(names.map((n) => [n, 0]));
  let all = 0;
  for (const line of l.lines) {
    const name = line.labels["service.name"] ?? "";
    let sum = 0;
    for (const [, v] of line.points)
      sum += v;
    all += sum;
    sums.set(name, (sums.get(name) ?? 0) + sum);
  }
  return [...sums].filter(([name]) => name !== "")
    .map(([name, v]) => ({ name, value: v, share: all > 0 ? v / all : 0 }))
    .sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
}

/** Sorts rows: those that existed before in their old order, then new ones. Rows are identified by name. */
export function keepOrder<T>(now: ArrayLike<T>, name: (row: T) => string, before: ArrayLike<T>, nameBefore = name): T[] {
  const at = new Map(Array.from(before, (row, i) => [nameBefore(row), i]));
  return Array.from(now, (row) => ({ row, at: at.get(name(row)) ?? at.size })).sort((a, b) => a.at - b.at).map((x) => x.row);
}

/* ---- the values of a label ---- */

export interface Facet {
  value: string;
  sum: number;
  /** Share of the requested values. */
  share: number;
}

/** Returns a label's values, heaviest first; "" stands for series without the label. */
export function facets(l: Lines, label: string): Facet[] {
  let all = 0;
  const out = l.lines.map((line) => {
    const sum = line.points.reduce((a, [, v]) => a + v, 0);
    all += sum;
    return { value: line.labels[label] ?? "", sum, share: 0 };
  });
  for (const f of out)
    f.share = all > 0 ? f.sum / all : 0;
  return out.sort((a, b) => b.sum - a.sum || (a.value < b.value ? -1 : 1));
}

/* ---- heat maps: time on both axes ---- */

export interface Heat extends Range {
  /** ms of a column, and of a cell in it. */
  column: number;
  row: number;
  columns: number;
  rows: number;
  /** By column, then row. */
  values: Float64Array;
  most: number;
}

const MOST_CELLS = 100000;

/** GET /api/v1/heatmap */
export function readHeat(json: unknown): Heat {
  const o = object(json);
  const [columns, rows, column, row] = ["columns", "rows", "column", "row"].map((k) => number(o[k])) as [number, number, number, number];
  const values = Float64Array.from(array(o["values"]), number);
  if (!(column >= 1 && row >= 1 && columns >= 1 && rows >= 1) || columns * rows !== values.length || values.length > MOST_CELLS)
    throw new DataError("the size of the server's heat map is wrong");
  let most = 0;
  for (const v of values)
    most = Math.max(most, v);
  return { from: number(o["from"]), to: number(o["to"]), column, row, columns, rows, values, most };
}

/** Returns the range of the cells first … last, which are in the order of time: by column, then row. */
export function heatRange(h: Heat, first: number, last: number): Range {
  const [a, z] = first <= last ? [first, last] : [last, first];
  const at = (i: number): number => h.from + Math.floor(i / h.rows) * h.column + (i % h.rows) * h.row;
  return { from: at(a), to: Math.max(at(a) + 1, at(z) + h.row) };
}

/** Returns the sum of the cells first … last; for states the mean of the cells with values. */
export function heatValue(h: Heat, first: number, last: number, t: SampleType): number {
  const cells = h.values.slice(Math.min(first, last), Math.max(first, last) + 1);
  const sum = cells.reduce((x, y) => x + y, 0);
  return t.adds === "at_moment" ? sum / Math.max(1, cells.filter((v) => v > 0).length) : sum;
}

/**
 * Chooses columns and rows for a range: whole milliseconds, at most n cells, and columns of a second if possible. A cell of
 * 50 ms has about one sample per CPU at the agent's 19 Hz; smaller cells would show the rhythm of sampling.
 */
export function heatSteps(r: Range, n: number): { column: number; row: number } {
  const ms = r.to - r.from;
  const column = [1000, 2000, 5000, 10000, 30000, 60000, 300000, 600000, 3600000, 21600000, 86400000, 604800000]
    .find((c) => ms / c <= 240) ?? 604800000;
  const columns = Math.ceil(ms / column);
  const rows = [20, 10, 5, 4, 2, 1].find((k) => columns * k <= n && column % k === 0) ?? 1;
  return { column, row: column / rows };
}
