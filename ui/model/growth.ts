// SPDX-License-Identifier: Apache-2.0
/* Which functions make memory grow: GET /api/v1/growth. Slopes are per second; the page says them per hour. */
import { array, number, object, text } from "./check.ts";
import type { Bars } from "./series.ts";
import { base, percent, value } from "./text.ts";
import type { Range } from "./times.ts";
import { DataError } from "./tree.ts";
import { frameKind, sampleType } from "./vocab.ts";
import type { SampleType } from "./vocab.ts";

export interface Rate {
  slope: number;
  /** The 95 % interval. high: Infinity if the slope is a lower bound. */
  low: number;
  high: number;
  first: number;
  last: number;
  /** Share of the periods in which it grew. */
  grew: number;
  onlyGrows: boolean;
  /** Not by chance, though there are many rows. */
  sure: boolean;
}

export interface GrowthFrame {
  name: string;
  object: string;
  kind: string;
  /** "" and 0: not known. */
  file: string;
  line: number;
}

export interface Suspect extends Rate {
  /** Leaf first; empty: all sites that have no row of their own. */
  frames: GrowthFrame[];
  /** Position of the frame that allocates; -1: none. */
  own: number;
  chains: number;
  /** By period; NaN: not known. */
  values: Float64Array;
}

export interface Growth extends Range {
  type: string;
  step: number;
  /** Seconds of a new process that do not count. */
  warmup: number;
  periods: number;
  needed: number;
  /** merged: services, because there are too many processes. */
  instances: { all: number; used: number; fresh: number; ended: number; merged: boolean };
  totals: Float64Array;
  /** null: too few periods for a verdict. */
  all: Rate | null;
  rows: Suspect[];
  leftOut: number;
}

function rate(o: Record<string, unknown>): Rate {
  return { slope: number(o["slope"]), low: number(o["low"]), high: o["high"] === undefined ? Infinity : number(o["high"]), first: number(o["first"]), last: number(o["last"]),
    grew: number(o["grew"]), onlyGrows: o["only_grows"] === true, sure: o["sure"] === true };
}

function values(json: unknown): Float64Array {
  return Float64Array.from(array(json), (v) => (v === null ? NaN : number(v)));
}

function suspect(json: unknown, n: number): Suspect {
  const o = object(json);
  const frames = array(o["frames"]).map((x) => {
    const f = object(x);
    return { name: text(f["name"]), object: text(f["object"] ?? ""), kind: text(f["kind"]), file: text(f["file"] ?? ""), line: number(f["line"] ?? 0) };
  });
  const own = number(o["own"] ?? -1);
  const v = values(o["values"]);
  if (own >= frames.length || v.length !== n)
    throw new DataError("a row of the server's answer does not fit the others");
  return { ...rate(o), frames, own, chains: number(o["chains"]), values: v };
}

export function readGrowth(json: unknown): Growth {
  const o = object(json);
  const i = object(o["instances"]);
  const totals = values(o["totals"]);
  return {
    from: number(o["from"]), to: number(o["to"]), type: text(o["type"]), step: number(o["step"]), warmup: number(o["warmup"]), periods: number(o["periods"]), needed: number(o["needed"]),
    instances: { all: number(i["all"]), used: number(i["used"]), fresh: number(i["new"]), ended: number(i["ended"]), merged: i["merged"] === true },
    totals, all: o["all"] === undefined ? null : rate(object(o["all"])), rows: array(o["rows"]).map((r) => suspect(r, totals.length)), leftOut: number(o["left_out"]),
  };
}

/** Whether the growth of a type means anything: states, and what was allocated and not freed. */
export function canGrow(type: string): boolean {
  const t = sampleType(type);
  return (t.adds === "at_moment" && t.id !== "REQUEST_SEQUENCE") || t.id === "UNFREED_SPACE";
}

const BEST = ["INUSE_SPACE", "RESIDENT", "LIVE_BYTES", "UNFREED_SPACE"];

/** The type that is chosen if its growth means anything, else the best that there is; "": none. */
export function growthType(types: string[], chosen: string): string {
  if (chosen !== "" && canGrow(chosen))
    return chosen;
  const rank = (t: string): number => (BEST.indexOf(sampleType(t).id) + BEST.length + 1) % (BEST.length + 1);
  return types.filter(canGrow).sort((a, b) => rank(a) - rank(b))[0] ?? "";
}

/** The totals as bars of the chart. */
export function totalBars(g: Growth): Bars {
  return { from: g.from, to: g.to, until: g.to, step: g.step, sum: g.totals.map((v) => (v > 0 ? v : 0)) };
}

const amount = (v: number, t: SampleType): string => value(v * 3600, t.unit, t.name);

/** "+3.60 MiB/h" */
export function perHour(v: number, t: SampleType): string {
  return `${v > 0 ? "+" : ""}${amount(v, t)}/h`;
}

/** "3.10 MiB to 4.10 MiB" */
export function interval(r: Rate, t: SampleType): string {
  return r.high === Infinity ? `${amount(r.low, t)} or more` : `${amount(r.low, t)} to ${amount(r.high, t)}`;
}

export function ownFrame(s: Suspect): GrowthFrame | null {
  return s.frames[s.own] ?? null;
}

/** "cache.c:41"; "" if it is not known. */
export function place(f: GrowthFrame | null): string {
  return f === null || f.file === "" ? "" : `${base(f.file)}${f.line > 0 ? `:${f.line}` : ""}`;
}

/** What tells a row from others of the same function; "": there are none, or the place does. */
export function apart(s: Suspect, rows: Suspect[]): string {
  const f = ownFrame(s);
  const others = rows.map(ownFrame).filter((o) => f !== null && o !== null && o !== f && o.name === f.name);
  if (f === null || others.length === 0)
    return "";
  const same = others.some((o) => place(o) === place(f) && o!.object !== f.object);
  return same ? `in ${f.object === "" ? "an unknown file" : base(f.object)}` : place(f) === "" ? "line not known" : "";
}

/** "cache_put (cache.c:41)" */
function siteText(s: Suspect): string {
  const f = ownFrame(s);
  const at = place(f);
  return f === null ? "functions that are not listed" : at === "" ? f.name : `${f.name} (${at})`;
}

/** How each thread begins, which tells nothing. */
const BEGINNINGS = /^(_start|__libc_start_\w+|clone3?|start_thread|__clone3?)$/;

/** The names from the root to the frame that allocates, at most n of them. */
export function chain(s: Suspect, n: number): string[] {
  const names = s.frames.slice(Math.max(0, s.own)).map((f) => f.name);
  while (names.length > 1 && BEGINNINGS.test(names[names.length - 1]!))
    names.pop();
  return [...names.length > n ? [...names.slice(0, n - 1), "…", names[names.length - 1]!] : names].reverse();
}

/** Code, and no remark such as "[resident before the recording]". */
export function isCode(f: GrowthFrame | null): boolean {
  return f !== null && frameKind(f.kind)?.class !== "note";
}

/** What the reader came for, in one sentence or two. */
export function verdict(g: Growth, service: string, t: SampleType): string {
  const of = `${t.label} of ${service}`;
  const first = g.rows.find((r) => r.sure && isCode(ownFrame(r)));
  if (!g.all)
    return `Not enough data yet: ${g.periods} of ${g.needed} periods. Choose a longer range, or wait.`;
  const r = g.all;
  const said = t.adds === "over_time" ? `${of}: ${amount(r.slope, t)}/h (95 % interval ${interval(r, t)}).`
    : r.low > 0 ? `${of} grows by ${amount(r.slope, t)}/h (95 % interval ${interval(r, t)}).`
      : r.high < 0 ? `${of} shrinks by ${amount(-r.slope, t)}/h (95 % interval ${interval(r, t)}).`
        : `No certain growth of ${of[0]!.toLowerCase()}${of.slice(1)}: ${perHour(r.slope, t)} (95 % interval ${interval(r, t)}).`;
  if (!first)
    return t.adds === "over_time" ? said : `${said} No function surely grows.`;
  const share = first.slope / r.slope;
  return r.low > 0 && share > 0.01 && share <= 1.005 ? `${said} ${percent(Math.min(1, share))} of it is in ${siteText(first)}.`
    : `${said} ${r.low > 0 ? "" : "But "}${siteText(first)}${r.low > 0 ? " alone" : ""} grows by ${amount(first.slope, t)}/h (${interval(first, t)}).`;
}

/** Short ranges around the ends of a range, for a comparison of the states at two times. */
export function ends(r: Range, step: number): { before: Range; after: Range } {
  const ms = Math.min((r.to - r.from) / 2, Math.max(step, (r.to - r.from) / 20));
  return { before: { from: r.from, to: Math.round(r.from + ms) }, after: { from: Math.round(r.to - ms), to: r.to } };
}
