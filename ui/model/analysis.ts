// SPDX-License-Identifier: Apache-2.0
/* How long the calls of a kept request took, thread by thread: GET /api/v1/requests/ID/analysis. */
import { array, number, object, text } from "./check.ts";

export const ESTIMATORS = ["", "unbiased", "skywalking"] as const;
export type Estimator = (typeof ESTIMATORS)[number];

export interface Call {
  /** Of a group; a caller stands before its callees. */
  id: number;
  parent: number;
  name: string;
  kind: string;
  file: string;
  line: number;
  /** ns. */
  total: number;
  self: number;
  count: number;
  depth: number;
  /** Among the ten with the most time of their own. */
  hot: boolean;
  /** Whether it called something. */
  calls: boolean;
}

export interface Group {
  service: string;
  thread: string;
  /** Of an agent of SkyWalking. */
  snapshots: boolean;
  total: number;
  count: number;
  rows: Call[];
}

export interface Analysis {
  groups: Group[];
  /** "" or SkyWalking's words about snapshots that it leaves out. */
  tip: string;
}

const HOT = 10;

/** Depths by the callers; a caller that is not there, or stands behind its callee, counts as none. */
function readRows(json: unknown): Call[] {
  const byId = new Map<number, Call>();
  return array(json).map((x) => {
    const o = object(x);
    const caller = byId.get(number(o["parent"]));
    const c: Call = { id: number(o["id"]), parent: caller?.id ?? 0, name: text(o["function"]), kind: text(o["kind"]), file: text(o["file"] ?? ""), line: number(o["line"] ?? 0),
      total: number(o["total_ns"]), self: number(o["self_ns"]), count: number(o["count"]), depth: caller ? caller.depth + 1 : 0, hot: false, calls: false };
    if (caller)
      caller.calls = true;
    byId.set(c.id, c);
    return c;
  });
}

export function readAnalysis(json: unknown): Analysis {
  const o = object(json);
  const groups = array(o["groups"]).map((x) => {
    const g = object(x);
    return { service: text(g["service"]), thread: text(g["thread"]), snapshots: g["snapshots"] === true, total: number(g["total_ns"]), count: number(g["count"]),
      rows: readRows(g["rows"]) };
  }).sort((a, b) => b.total - a.total);
  const heaviest = groups.flatMap((g) => g.rows).filter((r) => r.self > 0).sort((a, b) => b.self - a.self).slice(0, HOT);
  for (const r of heaviest)
    r.hot = true;
  return { groups, tip: text(o["tip"] ?? "") };
}

/** The rows whose callers are all open, heaviest callee first. */
export function shownCalls(g: Group, closed: ReadonlySet<number>): Call[] {
  const below = new Map<number, Call[]>();
  for (const r of g.rows)
    below.set(r.parent, [...below.get(r.parent) ?? [], r]);
  const out: Call[] = [];
  const rest = [...below.get(0) ?? []].sort((a, b) => a.total - b.total);
  for (let r = rest.pop(); r; r = rest.pop()) {
    out.push(r);
    if (!closed.has(r.id))
      rest.push(...[...below.get(r.id) ?? []].sort((a, b) => a.total - b.total));
  }
  return out;
}
