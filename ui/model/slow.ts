// SPDX-License-Identifier: Apache-2.0
/* Slow requests against typical ones, p25 to p75: GET /api/v1/slow. All values are per request. */
import { array, number, object, text } from "./check.ts";
import { buildTree, DataError, GROUP, INLINED, NONE } from "./tree.ts";
import type { Profile } from "./tree.ts";
import { sampleType } from "./vocab.ts";

export interface Side {
  requests: number;
  /** Of these, requests with samples; of the others sampling saw nothing. */
  sampled: number;
  /** ms. */
  from: number;
  to: number;
  value: number;
}

export interface SlowRow {
  name: string;
  object: string;
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
  profile: Profile;
}

function side(json: unknown): Side {
  const o = object(json);
  return { requests: number(o["requests"]), sampled: number(o["sampled"]), from: number(o["from_ms"]), to: number(o["to_ms"]), value: number(o["value"]) };
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
    slow: side(o["slow"]), middle: side(o["middle"]), leftOut: number(o["left_out"]), note: text(o["note"] ?? ""), unit: type.unit, type: type.name,
    profile: profileOfNodes(json, "Slow requests", middle),
    rows: array(o["rows"]).map((x) => {
      const r = object(x);
      const n = (k: string): number => number(r[k]);
      return { name: text(r["name"]), object: text(r["object"]), effect: n("effect"), low: r["low"] === undefined ? null : n("low"),
        high: r["high"] === undefined ? null : n("high"), slow: n("slow"),
        middle: n("middle"), slowRunning: n("slow_running"), middleRunning: n("middle_running"), explained: r["explained"] === true,
        file: text(r["file"] ?? ""), line: number(r["line"] ?? 0) };
    }),
  };
}
