// SPDX-License-Identifier: Apache-2.0
/* What each thread did in each moment: columns of time, with the time of each state in them. */
import { array, number, object, text } from "./check.ts";
import { percent } from "./text.ts";
import type { Range } from "./times.ts";
import { DataError } from "./tree.ts";
import { WAIT_ORDER, waitNamed } from "./vocab.ts";
import type { Wait } from "./vocab.ts";

export interface LaneState {
  wait: Wait;
  /** ns, in all columns. */
  sum: number;
  /** ns by column. */
  values: Float64Array;
}

export interface Lane {
  service: string;
  thread: string;
  /** "" for threads that did not live long: those of one name are one lane. */
  id: string;
  process: string;
  /** In the order of WAIT_ORDER. */
  states: LaneState[];
  /** For each column the end of the last wait that goes on after it, ms; 0: none. */
  until: Float64Array;
  ran: number;
  waited: number;
  idle: number;
  /** How many threads there are at once, as far as their time tells. */
  many: number;
}

export interface Lanes extends Range {
  /** ms of a column. */
  column: number;
  columns: number;
  /** How many threads there are, and how many of them the search finds; the lanes may be fewer. */
  threads: number;
  found: number;
  lanes: Lane[];
}

const MOST_COLUMNS = 10000;

/** A lane of what was read; unknown states count as "other". */
export function makeLane(names: Pick<Lane, "service" | "thread" | "id" | "process">, states: { wait: string; values: Float64Array }[],
                         until: Float64Array, column: number): Lane {
  const all = new Map<Wait, LaneState>();
  for (const s of states) {
    const wait = waitNamed(s.wait) ?? waitNamed("other")!;
    const sum = s.values.reduce((x, y) => x + y, 0);
    const known = all.get(wait);
    if (known)
      s.values.forEach((v, i) => known.values[i]! += v);
    all.set(wait, known ? { ...known, sum: known.sum + sum } : { wait, sum, values: s.values });
  }
  const list = [...all.values()].sort((a, b) => WAIT_ORDER.indexOf(a.wait) - WAIT_ORDER.indexOf(b.wait));
  const of = (id: string): number => list.find((s) => s.wait.id === id)?.sum ?? 0;
  let most = 0;
  for (let i = 0; i < until.length; i++)
    most = Math.max(most, list.reduce((x, s) => x + s.values[i]!, 0));
  const [ran, idle] = [of("RUNNING"), of("IDLE")];
  return { ...names, states: list, until, ran, idle, waited: list.reduce((x, s) => x + s.sum, 0) - ran - idle,
    // Times of samples jitter: one thread can seem to have a little more than the whole column.
    many: names.id === "" ? Math.max(1, Math.round(most / (column * 1e6))) : 1 };
}

/** GET /api/v1/lanes */
export function readLanes(json: unknown): Lanes {
  const o = object(json);
  const [from, column, columns] = [number(o["from"]), number(o["column"]), number(o["columns"])];
  if (!(column >= 1 && columns >= 1 && columns <= MOST_COLUMNS))
    throw new DataError("the size of the server's lanes is wrong");
  const values = (v: unknown): Float64Array => {
    const a = Float64Array.from(array(v), number);
    if (a.length !== columns)
      throw new DataError("the size of the server's lanes is wrong");
    return a;
  };
  const lanes = array(o["lanes"]).map((l) => {
    const e = object(l);
    const states = array(e["states"]).map((s) => ({ wait: text(object(s)["wait"]), values: values(object(s)["values"]) }));
    return makeLane({ service: text(e["service"]), thread: text(e["thread"]), id: text(e["id"]), process: text(e["process"]) },
                    states, values(e["until"]), column);
  });
  return { from, to: from + columns * column, column, columns, threads: number(o["threads"]), found: number(o["found"]), lanes };
}

/** The states of the columns first … last with their share of the time, without waits for work unless they are asked for. */
export function laneShares(l: Lanes, lane: Lane, first: number, last: number, idle: boolean): { wait: Wait; share: number }[] {
  const [a, z] = first <= last ? [first, last] : [last, first];
  const whole = (z - a + 1) * l.column * 1e6 * lane.many;
  const out = lane.states.filter((s) => idle || s.wait.id !== "IDLE")
    .map((s) => ({ wait: s.wait, share: s.values.subarray(a, z + 1).reduce((x, y) => x + y, 0) / whole }));
  // Jitter again.
  const sum = out.reduce((x, s) => x + s.share, 0);
  return out.filter((s) => s.share > 0).map((s) => ({ ...s, share: sum > 1 ? s.share / sum : s.share }));
}

export function sharesText(shares: { wait: Wait; share: number }[]): string {
  return [...shares].sort((a, b) => b.share - a.share).map((s) => `${s.wait.name} ${percent(s.share)}`).join(", ") || "nothing is known";
}

/**
 * The time of the columns first … last. Samples of a wait have the time of its end: a flame graph needs the time up to the
 * end of a wait that goes on.
 */
export function laneRange(l: Lanes, lane: Lane, first: number, last: number, within: Range): Range {
  const [a, z] = first <= last ? [first, last] : [last, first];
  const from = Math.max(within.from, l.from + a * l.column);
  const to = Math.min(within.to, l.from + (z + 1) * l.column);
  return { from, to: Math.max(from + 1, to, lane.until[z]!) };
}
