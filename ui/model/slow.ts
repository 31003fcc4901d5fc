// SPDX-License-Identifier: Apache-2.0
/*
 * Slow requests against typical ones, p25 to p75: GET /api/v1/slow. All values are per request. Functions that call one another and
 * have one difference are one chain.
 */
import { array, number, object, text } from "./check.ts";
import { ownerByTable } from "./owner.ts";
import { showable } from "./payload.ts";
import { base, duration, percent, value } from "./text.ts";
import { buildTree, DataError, frameName, GROUP, INLINED, NONE } from "./tree.ts";
import type { Profile } from "./tree.ts";
import { frameKind, nanoseconds, sampleType } from "./vocab.ts";

export interface Side {
  requests: number;
  /** Of these, requests with samples; of the others sampling saw nothing. */
  sampled: number;
  /** ms. */
  from: number;
  to: number;
  mean: number;
  value: number;
}

export interface SlowRow {
  name: string;
  object: string;
  /** Whether an interpreter runs it, or a virtual machine. */
  managed: boolean;
  /** Whether it is of the program itself, and not of a runtime or a library. */
  own: boolean;
  /** What it costs more in a slow request, with all it calls, and the 95 % interval of that. */
  effect: number;
  /** null: one request on a side says nothing of how much they differ. */
  low: number | null;
  high: number | null;
  slow: number;
  middle: number;
  /** Shares of requests that run it at all. */
  slowRunning: number;
  middleRunning: number;
  /** Something that it calls has nearly all of its effect. */
  explained: boolean;
  /** "" if it is not known; the line with the most of it in slow requests, or 0. */
  file: string;
  line: number;
}

export interface Slow {
  slow: Side;
  middle: Side;
  /** Requests on neither side, because nothing is known of their cost. */
  leftOut: number;
  rows: SlowRow[];
  /** Why there are none, "" when there are. */
  note: string;
  unit: string;
  type: string;
  /** The id of the type. */
  of: string;
  profile: Profile;
}

function side(json: unknown): Side {
  const o = object(json);
  return { requests: number(o["requests"]), sampled: number(o["sampled"]), from: number(o["from_ms"]), to: number(o["to_ms"]), mean: number(o["mean_ms"]), value: number(o["value"]) };
}

function column(o: Record<string, unknown>, key: string, n: number): number[] {
  const a = array(o[key]).map(number);
  if (a.length !== n)
    throw new DataError("the columns of the call tree do not have one length");
  return a;
}

/** A tree of names, as /flamegraph, /diff and /slow have it, as a profile: without files and binaries. */
export function profileOfNodes(json: unknown, title: string, baseTitle = "typical requests"): Profile {
  const o = object(json);
  const nodes = object(o["nodes"]);
  const n = number(nodes["count"]);
  const [name, below, self, kind, level, inlined, line] = ["name", "below", "self", "kind", "level", "inlined", "line"]
    .map((k) => column(nodes, k, n)) as [number[], number[], number[], number[], number[], number[], number[]];
  const base = nodes["base_self"] === undefined ? null : Float64Array.from(column(nodes, "base_self", n));
  const strings = array(o["names"]).map(text);
  const kinds = array(o["kinds"]).map((k) => ({ name: text(k), help: "" }));
  const depth = new Uint32Array(n);
  const open: number[] = [];
  for (let i = 0; i < n; i++) {
    while (open.length > 0 && open[open.length - 1]! < i)
      open.pop();
    depth[i] = open.length;
    open.push(i + below[i]!);
    if (!(name[i]! >= 0 && name[i]! < strings.length) || kind[i]! >= kinds.length)
      throw new DataError("an index in the data is out of range");
  }
  // Each node has a frame of its own: functionIds() puts equal ones together.
  const frames = {
    n, name: Uint32Array.from(name), kind: Uint8Array.from(kind, (k) => Math.max(0, k)), file: new Uint32Array(n).fill(strings.length),
    flags: Uint8Array.from(level, (l, i) => (kind[i]! < 0 ? GROUP : 0) | (inlined[i] ? INLINED : 0) | (l < 0 ? GROUP : 0)),
    line: Uint32Array.from(line), mapping: new Uint32Array(n).fill(NONE),
  };
  const type = sampleType(text(o["type"]));
  return {
    strings: [...strings, ""], kinds, mappings: [], frames,
    tree: buildTree(Uint32Array.from(frames.name, (_, i) => i), depth, Float64Array.from(self), base),
    meta: { title, generator: "", type: type.name, unit: type.unit, timeMs: 0, durationNs: 0, hz: 0, baseTitle, baseSamples: -1, normalise: false,
      quality: { samples: -1, lost: -1, truncated: -1, unknown: -1, frames: -1, userStacks: -1, limited: "" } },
  };
}

/** middle: what the slow requests are compared with. */
export function readSlow(json: unknown, middle = "typical requests"): Slow {
  const o = object(json);
  const type = sampleType(text(o["type"]));
  return {
    slow: side(o["slow"]), middle: side(o["middle"]), leftOut: number(o["left_out"]), note: text(o["note"] ?? ""), unit: type.unit, type: type.name, of: type.id,
    profile: profileOfNodes(json, "Slow requests", middle),
    rows: array(o["rows"]).map((x) => {
      const r = object(x);
      const n = (k: string): number => number(r[k]);
      const [name, binary, kind, file] = [text(r["name"]), text(r["object"]), text(r["kind"]), text(r["file"] ?? "")];
      return { name, object: binary, managed: frameKind(kind)?.class === "managed", own: ownerByTable(kind, name, file, binary) === "", effect: n("effect"), low: r["low"] === undefined ? null : n("low"),
        high: r["high"] === undefined ? null : n("high"), slow: n("slow"),
        middle: n("middle"), slowRunning: n("slow_running"), middleRunning: n("middle_running"), explained: r["explained"] === true,
        file, line: number(r["line"] ?? 0) };
    }),
  };
}

/** Functions of one call chain that have the same difference. */
export interface Chain {
  /** Where the path begins that slow requests take. */
  head: SlowRow;
  /** Its deepest function of the program itself whose line is known, else the head. */
  at: SlowRow;
  rows: SlowRow[];
}

/** Differences that are this close are one. */
const SAME = 0.02;

/** By name the node with the largest difference. */
function nodesByName(p: Profile): Map<string, number> {
  const { tree } = p;
  const effect = (i: number): number => tree.total[i]! - (tree.base?.total[i] ?? 0);
  const out = new Map<string, number>();
  for (let i = 1; i < tree.n; i++) {
    const name = frameName(p, tree.frame[i]!);
    const at = out.get(name);
    if (at === undefined || effect(i) > effect(at))
      out.set(name, i);
  }
  return out;
}

/** The rows, each chain once, in the server's order. */
export function chains(s: Slow): Chain[] {
  const { tree } = s.profile;
  const nodes = nodesByName(s.profile);
  const calls = (a: number, b: number): boolean => a <= b && b <= a + tree.below[a]!;
  const near = (a: number, b: number): boolean => Math.abs(a - b) <= SAME * Math.max(Math.abs(a), Math.abs(b));
  const depth = (r: SlowRow): number => tree.depth[nodes.get(r.name) ?? 0]!;
  const out: Chain[] = [];
  for (const row of s.rows) {
    const node = nodes.get(row.name);
    const chain = node === undefined ? undefined : out.find(({ head }) => {
      const other = nodes.get(head.name);
      return other !== undefined && near(head.effect, row.effect) && near(head.slow, row.slow) && (calls(other, node) || calls(node, other));
    });
    if (chain)
      chain.rows.push(row);
    else
      out.push({ head: row, at: row, rows: [row] });
  }
  for (const c of out)
    c.at = c.rows.filter((r) => r.file !== "" && r.own).sort((a, b) => Number(b.managed) - Number(a.managed) || depth(b) - depth(a))[0] ?? c.head;
  return out;
}

/** "shop.py:28", or "". */
export function placeOf(file: string, line: number): string {
  return file === "" ? "" : `${base(file)}${line > 0 ? `:${line}` : ""}`;
}

/** The share of extra time that one function explains; its time if threads did it at once, because then there is no share. ns. */
export function shareText(part: number, extra: number): string {
  return extra > 0 && part <= 1.02 * extra ? `${percent(Math.min(1, part / extra))} of the extra time` : `${duration(part)} more`;
}

/** One sentence of why requests are slow; the place, if there is one, stands at its end. */
export interface Reason {
  says: string;
  at: SlowRow | null;
}

const WORDS: Record<string, string> = { CPU: "CPU time ", OFF_CPU: "waiting ", WALL: "" };

/** The main cause, if chance does not explain it, and its size. */
function cause(s: Slow, extra: number): (Reason & { part: number }) | null {
  const first = chains(s)[0];
  const ns = nanoseconds(s.unit);
  if (!first || !((first.head.low ?? 0) > 0))
    return null;
  const { effect } = first.head;
  const part = effect * ns;
  // The line is that of this function.
  const name = showable((first.at.file === "" ? first.head : first.at).name);
  return { says: ns > 0 ? `${shareText(part, extra)} is ${WORDS[s.of] ?? ""}in ${name}` : `${value(effect, s.unit, s.type)} more is in ${name}`, at: first.at, part };
}

/** Why slow requests are slow, the largest cause first. other: the same requests by waits or CPU time; typical: the name of those that they are compared with. */
export function reasons(s: Slow, other: Slow | null, typical = "typical"): Reason[] {
  const extra = 1e6 * (s.slow.mean - s.middle.mean);
  const found = [s, ...other ? [other] : []].map((x) => cause(x, extra)).filter((x) => x !== null).sort((a, b) => b.part - a.part);
  return [{ says: `A slow request takes ${duration(1e6 * s.slow.mean)} on average, ${typical === "ordinary" ? "an" : "a"} ${typical} one ${duration(1e6 * s.middle.mean)}: ${duration(extra)} more`, at: null },
    ...found.length > 0 ? found : [{ says: "No function explains this with certainty: a longer time range has more requests", at: null }]];
}
