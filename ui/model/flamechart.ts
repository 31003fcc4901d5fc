// SPDX-License-Identifier: Apache-2.0
/*
 * What threads of a request ran, in the order of time: GET /api/v1/traces/ID/samples as boxes. A sample stands for the time
 * before it. What lies between samples is not known, and stays empty; it is told how much that is.
 */
import { array, number, object, text } from "./check.ts";
import { DataError } from "./tree.ts";

export interface ChartFrame {
  name: string;
  kind: string;
  file: string;
  line: number;
}

interface Moment {
  /** ms since the epoch; ms that it stands for; samples. */
  at: number;
  ms: number;
  n: number;
  /** Index of the stack, -1: not stored any more. */
  stack: number;
}

export interface ChartThread {
  service: string;
  name: string;
  id: string;
  samples: Moment[];
}

export interface TraceSamples {
  frames: ChartFrame[];
  /** Root first. */
  stacks: number[][];
  threads: ChartThread[];
  leftOut: number;
}

export interface ChartBox {
  from: number;
  to: number;
  depth: number;
  frame: number;
  /** Samples in it. */
  n: number;
}

export interface ThreadBoxes {
  /** By start, parents before children. */
  boxes: ChartBox[];
  levels: number;
  /** ms of samples, and ms between the first and the last that no sample covers. */
  sampled: number;
  unknown: number;
  /** ms that were cut off samples, because the one before reaches into their time. */
  overlap: number;
}

/** `ns`: nanoseconds of a unit of the values. */
export function readTraceSamples(json: unknown, ns: number): TraceSamples {
  const o = object(json);
  const frames = array(o["frames"]).map((x): ChartFrame => {
    const [name, kind, file, line] = array(x);
    return { name: text(name), kind: text(kind), file: text(file), line: number(line) };
  });
  const index = (v: unknown, n: number, least = 0): number => {
    const i = number(v);
    if (!(Number.isInteger(i) && i >= least && i < n))
      throw new DataError("an index in the samples of the trace is wrong");
    return i;
  };
  const stacks = array(o["stacks"]).map((s) => array(s).map((f) => index(f, frames.length)));
  return { frames, stacks, leftOut: number(o["left_out"]), threads: array(o["threads"]).map((t) => {
    const th = object(t);
    return { service: text(th["service"]), name: text(th["thread"]), id: text(th["thread_id"]), samples: array(th["samples"]).map((s): Moment => {
      const [at, value, n, stack] = array(s);
      return { at: number(at), ms: Math.max(0, number(value)) * ns / 1e6, n: number(n), stack: index(stack, stacks.length, -1) };
    }) };
  }) };
}

/** Samples of two types, such as running and waiting, as those of one. */
export function joinSamples(a: TraceSamples, b: TraceSamples): TraceSamples {
  const threads = new Map(a.threads.map((t) => [`${t.service}\n${t.name}\n${t.id}`, t]));
  for (const t of b.threads) {
    const key = `${t.service}\n${t.name}\n${t.id}`;
    const moved = t.samples.map((s) => ({ ...s, stack: s.stack < 0 ? -1 : s.stack + a.stacks.length }));
    const same = threads.get(key);
    threads.set(key, { ...t, samples: [...same?.samples ?? [], ...moved].sort((x, y) => x.at - y.at) });
  }
  return { frames: [...a.frames, ...b.frames], stacks: [...a.stacks, ...b.stacks.map((s) => s.map((f) => f + a.frames.length))],
    threads: [...threads.values()], leftOut: a.leftOut + b.leftOut };
}

/** Times are whole ms: so close to each other, two samples touch. */
const TOUCH_MS = 1.5;

export function threadBoxes(s: TraceSamples, t: ChartThread): ThreadBoxes {
  const out: ThreadBoxes = { boxes: [], levels: 0, sampled: 0, unknown: 0, overlap: 0 };
  const same = (a: number, b: number): boolean => a === b || JSON.stringify(s.frames[a]) === JSON.stringify(s.frames[b]);
  let open: ChartBox[] = [];
  let end = -Infinity;
  for (const m of t.samples) {
    const from = Math.max(end, m.at - m.ms);
    out.overlap += from - (m.at - m.ms);
    out.sampled += Math.max(0, m.at - from);
    const touches = from - end <= TOUCH_MS;
    if (end > -Infinity && !touches)
      out.unknown += from - end;
    const stack = m.stack < 0 ? [] : s.stacks[m.stack]!;
    let keep = 0;
    while (touches && keep < stack.length && keep < open.length && same(open[keep]!.frame, stack[keep]!))
      keep++;
    open = open.slice(0, keep);
    for (const b of open) {
      b.to = m.at;
      b.n += m.n;
    }
    for (let d = keep; d < stack.length; d++) {
      const box = { from, to: m.at, depth: d, frame: stack[d]!, n: m.n };
      open.push(box);
      out.boxes.push(box);
    }
    out.levels = Math.max(out.levels, stack.length);
    end = Math.max(end, m.at);
  }
  return out;
}
