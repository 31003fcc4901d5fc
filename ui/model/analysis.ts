// SPDX-License-Identifier: Apache-2.0
/*
 * How long the calls of a kept request took, thread by thread or of the whole trace: GET /api/v1/requests/ID/analysis; and
 * those of all requests that a task kept: /api/v1/tasks/ID/analysis.
 */
import { array, number, object, text } from "./check.ts";

export const ESTIMATORS = ["", "unbiased", "skywalking"] as const;
export type Estimator = (typeof ESTIMATORS)[number];

/** For whom a call, and what it called, waited longest. */
export interface Whom {
  /** A thread's id; "" of a waker. */
  thread: string;
  name: string;
  /** ns. */
  waited: number;
  /** How many others there were. */
  others: number;
}

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
  /** Of several requests: how many have the call. */
  requests: number;
  /** By SkyWalking's estimate, beside the unbiased one; null: there is none. */
  theirs: { total: number; self: number } | null;
  /** Who had the lock, who ended the wait; null: it waited for none, or nobody knows. */
  owner: Whom | null;
  waker: Whom | null;
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

function readWhom(json: unknown): Whom | null {
  if (json === undefined)
    return null;
  const o = object(json);
  return { thread: text(o["thread"] ?? ""), name: text(o["name"]), waited: number(o["ns"]), others: number(o["others"]) };
}

/** "NAME", "thread 77", "NAME and 2 others" */
export function whomText(w: Whom): string {
  return `${w.name || `thread ${w.thread}`}${w.others === 1 ? " and another" : w.others > 0 ? ` and ${w.others} others` : ""}`;
}

/** Depths by the callers; a caller that is not there, or stands behind its callee, counts as none. group: the member with the sums; "": the row itself. */
function readRows(json: unknown, group: string): Call[] {
  const byId = new Map<number, Call>();
  return array(json).flatMap((x) => {
    const o = object(x);
    const sums = group === "" ? o : o[group];
    if (sums === undefined)
      return [];
    const s = object(sums);
    const theirs = s["skywalking"] === undefined ? null : object(s["skywalking"]);
    const caller = byId.get(number(o["parent"]));
    const c: Call = { id: number(o["id"]), parent: caller?.id ?? 0, name: text(o["function"]), kind: text(o["kind"]), file: text(o["file"] ?? ""), line: number(o["line"] ?? 0),
      total: number(s["total_ns"]), self: number(s["self_ns"]), count: number(s["count"]), requests: number(s["requests"] ?? 0),
      theirs: theirs && { total: number(theirs["total_ns"]), self: number(theirs["self_ns"]) }, owner: readWhom(s["owner"]), waker: readWhom(s["waker"]),
      depth: caller ? caller.depth + 1 : 0, hot: false, calls: false };
    if (caller)
      caller.calls = true;
    byId.set(c.id, c);
    return [c];
  });
}

export function readAnalysis(json: unknown): Analysis {
  const o = object(json);
  const groups = array(o["groups"]).map((x) => {
    const g = object(x);
    return { service: text(g["service"]), thread: text(g["thread"]), snapshots: g["snapshots"] === true, total: number(g["total_ns"]), count: number(g["count"]),
      rows: readRows(g["rows"], "") };
  }).sort((a, b) => b.total - a.total);
  markHot(groups);
  return { groups, tip: text(o["tip"] ?? "") };
}

function markHot(groups: Group[]): void {
  const heaviest = groups.flatMap((g) => g.rows).filter((r) => r.self > 0).sort((a, b) => b.self - a.self).slice(0, HOT);
  for (const r of heaviest)
    r.hot = true;
}

/** Calls of all requests of a group: of the slow ones, or of those that were chosen at random. */
export interface TaskAnalysis extends Analysis {
  /** Of which something is known, and of these the ones without their beginning; of which nothing is. */
  requests: number;
  partly: number;
  leftOut: number;
}

export function readTaskAnalysis(json: unknown, group: "slow" | "control"): TaskAnalysis {
  const o = object(json);
  const g = object(object(o["groups"])[group]);
  const rows = readRows(o["rows"], group);
  const one: Group = { service: "", thread: "", snapshots: o["snapshots"] === true, total: number(g["total_ns"]),
    count: rows.reduce((n, r) => n + (r.parent === 0 ? r.count : 0), 0), rows };
  markHot([one]);
  return { groups: rows.length > 0 ? [one] : [], tip: text(o["tip"] ?? ""), requests: number(g["requests"]), partly: number(g["partly"]), leftOut: number(g["left_out"]) };
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
