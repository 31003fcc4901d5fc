// SPDX-License-Identifier: Apache-2.0
/*
 * What the served page asks for, as text for location.search, and what the answers mean: ranges,
 * steps, bars by time, shares of services. Answers are checked like any foreign data: what is not
 * as it should be is a DataError.
 */
import { count, value } from "./text.ts";
import { DataError } from "./tree.ts";

export interface Range {
  /** ms since the epoch, half-open. */
  from: number;
  to: number;
}

export interface LiveState {
  /** service.name, "" for all. */
  service: string;
  /** Type of value as the server names it, "" for the first. */
  type: string;
  /** Seconds that the live view goes back. */
  last: number;
  /** null: live. */
  range: Range | null;
}

export const LASTS: [number, string][] = [
  [60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"], [604800, "7 d"],
];
export const LIVE_DEFAULTS: LiveState = { service: "", type: "", last: 300, range: null };

const SECONDS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400 };
const LONGEST_S = 400 * 86400;

/** "5m" of 300. */
export function encodeSpan(s: number): string {
  for (const unit of ["d", "h", "m"])
    if (s % SECONDS[unit]! === 0)
      return s / SECONDS[unit]! + unit;
  return s + "s";
}

/** Seconds, or 0 for what is no span. */
export function decodeSpan(text: string): number {
  const [, n, unit] = /^(\d{1,7})([smhd])$/.exec(text) ?? [];
  const s = n === undefined ? 0 : Number(n) * SECONDS[unit!]!;
  return s <= LONGEST_S ? s : 0;
}

export function encodeLive(s: LiveState): string {
  const q = new URLSearchParams();
  if (s.service)
    q.set("service", s.service);
  if (s.type)
    q.set("type", s.type);
  if (s.last !== LIVE_DEFAULTS.last)
    q.set("last", encodeSpan(s.last));
  if (s.range) {
    q.set("from", String(s.range.from));
    q.set("to", String(s.range.to));
  }
  return q.toString();
}

function time(text: string | null): number {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : -1;
}

export function decodeLive(search: string): LiveState {
  const q = new URLSearchParams(search);
  const from = time(q.get("from"));
  const to = time(q.get("to"));
  return {
    service: q.get("service") ?? "",
    type: q.get("type") ?? "",
    last: decodeSpan(q.get("last") ?? "") || LIVE_DEFAULTS.last,
    range: from >= 0 && to > from ? { from, to } : null,
  };
}

/** What the state means at a time of the server's clock. */
export function rangeAt(s: LiveState, now: number): Range {
  return s.range ?? { from: Math.floor(now) - s.last * 1000, to: Math.floor(now) };
}

/** How long a live view waits for the next answer: what covers days does not change in seconds. */
export function refreshMs(last: number): number {
  return Math.max(5000, Math.min(60000, last / 720 * 1000));
}

/** Moved by a share of itself, not beyond now. */
export function moved(r: Range, by: number, now: number): Range {
  const d = Math.min(Math.round((r.to - r.from) * by), Math.max(0, Math.floor(now) - r.to));
  return { from: Math.max(0, r.from + d), to: r.to + d };
}

/** Twice as long around its middle, not beyond now. */
export function wider(r: Range, now: number): Range {
  const n = Math.min(r.to - r.from, LONGEST_S * 500);
  const to = Math.min(r.to + Math.round(n / 2), Math.max(r.to, Math.floor(now)));
  return { from: Math.max(0, to - 2 * n), to };
}

export function selector(service: string): string {
  if (service === "")
    return "{}";
  const text = service.replace(/[\\"\n]/g, (c) => (c === "\n" ? "\\n" : "\\" + c));
  return `{service.name="${text}"}`;
}

/* ---- by time ---- */

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

/** ms of the finest step that gives no more bars than asked for. */
export function stepFor(r: Range, most: number): number {
  const s = (r.to - r.from) / 1000 / Math.max(1, most);
  return (STEPS_S.find((x) => x >= s) ?? 4 * 604800) * 1000;
}

/** Whole steps: bars of a picture that moves on keep their places. */
export function aligned(r: Range, step: number): Range {
  return { from: Math.floor(r.from / step) * step, to: Math.ceil(r.to / step) * step };
}

export interface Line {
  labels: Record<string, string>;
  /** ms, sum of values. */
  points: [number, number][];
}

export interface Lines {
  step: number;
  lines: Line[];
  /** Part of what was asked for could not be read. */
  damaged: boolean;
}

function object(v: unknown): Record<string, unknown> {
  if (typeof v !== "object" || v === null || Array.isArray(v))
    throw new DataError("the server's answer is not as expected");
  return v as Record<string, unknown>;
}

function array(v: unknown): unknown[] {
  if (!Array.isArray(v))
    throw new DataError("the server's answer is not as expected");
  return v;
}

function number(v: unknown): number {
  if (typeof v !== "number" || !Number.isFinite(v))
    throw new DataError("the server's answer has something else for a number");
  return v;
}

function text(v: unknown): string {
  if (typeof v !== "string")
    throw new DataError("the server's answer has something else for a text");
  return v;
}

/** GET /api/v1/series */
export function readLines(json: unknown): Lines {
  const o = object(json);
  const step = number(o["step"]);
  if (!(step >= 1))
    throw new DataError("the server's answer has a step of nothing");
  return {
    step,
    lines: array(o["series"]).map((s) => {
      const labels: Record<string, string> = {};
      for (const [k, v] of Object.entries(object(object(s)["labels"] ?? {})))
        labels[k] = text(v);
      const points = array(object(s)["points"]).map((p): [number, number] => {
        const at = array(p);
        return [number(at[0]), number(at[1])];
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

/** GET /api/v1/stats: when what is stored begins, 0 when nothing is. */
export function readFirst(json: unknown): number {
  const store = object(object(json)["store"]);
  return number(store["rows"]) > 0 ? Math.max(1, number(store["first"])) : 0;
}

/** ms of a range in which there can be samples: what was before the first is not known, and not zero. */
export function knownMs(r: Range, first: number): number {
  return Math.max(1000, r.to - Math.max(r.from, first));
}

export interface Bars extends Range {
  step: number;
  /** Now, where that is before the end: the last bar has not run its time yet. */
  until: number;
  /** Sum of values by step. */
  sum: Float64Array;
}

/** All lines together, a bar for each step of the range; `now` is when the server answered. */
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

/** Bars first … last as a range; within what was asked for. */
export function barRange(b: Bars, first: number, last: number, within: Range): Range {
  const [a, z] = first <= last ? [first, last] : [last, first];
  const from = Math.max(within.from, b.from + a * b.step);
  return { from, to: Math.max(from + 1, Math.min(within.to, b.from + (z + 1) * b.step)) };
}

/** The ms that a bar has run. Of one that has just begun a quarter: little time makes wild rates. */
export function barMs(b: Bars, i: number): number {
  return Math.max(b.step / 4, Math.min(b.step, b.until - b.from - i * b.step));
}

export interface TypeName {
  /** What is measured: "cpu". */
  name: string;
  unit: string;
}

/** Of "process_cpu:cpu:nanoseconds:cpu:nanoseconds". */
export function typeName(type: string): TypeName {
  const [first, name, unit] = type.split(":");
  return { name: name || first || "", unit: unit ?? "" };
}

/** CPU first, else as they come. */
export function sortTypes(types: string[]): string[] {
  const rank = (t: string): number => {
    const { name, unit } = typeName(t);
    return name !== "cpu" ? 2 : unit === "nanoseconds" ? 0 : 1;
  };
  return [...types].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0));
}

/** Label of a type in a list where some have the same name. */
export function typeLabel(type: string, all: string[]): string {
  const { name, unit } = typeName(type);
  const label = name === "cpu" ? "CPU" : name;
  const same = all.filter((t) => typeName(t).name === name);
  if (same.length < 2)
    return label;
  return `${label} (${same.some((t) => t !== type && typeName(t).unit === unit) ? type : unit})`;
}

/** A value per time as people say it: CPU time per time is cores. */
export function rate(v: number, ms: number, t: TypeName): string {
  if (t.unit === "nanoseconds") {
    const n = v / ms / 1e6;
    const word = t.name === "cpu" ? "cores" : "threads";
    return `${n === 0 ? "0" : n < 0.01 ? "<0.01" : n.toFixed(n < 10 ? 2 : 1)} ${word}`;
  }
  const s = v * 1000 / ms;
  if (t.unit === "bytes")
    return value(s, "bytes") + "/s";
  return (s >= 10 || s === 0 ? count(s) : s.toFixed(2)) + "/s";
}

/* ---- services ---- */

export interface Share {
  name: string;
  value: number;
  /** Of all. */
  share: number;
}

/** Heaviest first; those that are known and took nothing come last. */
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

/** The same services in the order of before, as long as it is the same ones: nothing moves under a pointer. */
export function keepOrder(now: Share[], before: Share[]): Share[] {
  const at = new Map(before.map((s, i) => [s.name, i]));
  return [...now].sort((a, b) => (at.get(a.name) ?? Infinity) - (at.get(b.name) ?? Infinity) || 0);
}

/* ---- times as text ---- */

const two = (n: number): string => String(n).padStart(2, "0");

export function clock(ms: number, seconds = true): string {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}` + (seconds ? ":" + two(d.getSeconds()) : "");
}

export function day(ms: number): string {
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
}

/** The range; the day where it is not today, or not the same at both ends. */
export function rangeText(r: Range, now: number): string {
  const today = day(now);
  const from = day(r.from) === today && day(r.to) === today ? clock(r.from) : `${day(r.from)} ${clock(r.from)}`;
  return `${from} – ${day(r.to) === day(r.from) ? clock(r.to) : `${day(r.to)} ${clock(r.to)}`}`;
}

export function lastText(s: number): string {
  return LASTS.find(([n]) => n === s)?.[1] ?? encodeSpan(s);
}

/** For <input type="datetime-local" step="1">. */
export function localInput(ms: number): string {
  return `${day(ms)}T${clock(ms)}`;
}

/** Times for an axis: whole steps of local time, at most n of them. */
export function ticks(r: Range, n: number): { at: number; label: string }[] {
  const step = stepFor(r, n);
  const zone = new Date(r.from).getTimezoneOffset() * 60000;
  const out = [];
  for (let at = Math.ceil((r.from - zone) / step) * step + zone; at < r.to; at += step)
    out.push({ at, label: step >= 86400000 || clock(at, false) === "00:00" && r.to - r.from > 86400000
      ? day(at).slice(5) : clock(at, step < 60000) });
  return out;
}
