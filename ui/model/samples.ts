// SPDX-License-Identifier: Apache-2.0
/* The samples of a file's waits: tables of locks, lanes of threads, and the tree of a part of them. */
import type { Filter } from "./address.ts";
import { makeLane } from "./lanes.ts";
import type { Lane, Lanes } from "./lanes.ts";
import type { Lines } from "./series.ts";
import type { Range } from "./times.ts";
import { buildTree, frameName } from "./tree.ts";
import type { Profile, Samples, Tree } from "./tree.ts";
import { waitOfFrame } from "./vocab.ts";
import type { Wait } from "./vocab.ts";
import { objectGroups } from "./waits.ts";
import type { ObjectLabel } from "./waits.ts";
import { eachWait } from "./wakes.ts";
import type { Waited } from "./wakes.ts";

/** A value of a sample by the names that the server's labels have. */
function labelOf(s: Samples, thread: number, label: string): string {
  const t = s.threads[thread]!;
  switch (label) {
  case "service.name": return t.process;
  case "thread.name": return t.thread;
  case "process.pid": return t.pid > 0 ? String(t.pid) : "";
  case "thread.id": return t.tid > 0 ? String(t.tid) : "";
  case "lock": return t.lock;
  case "owner": return t.owner;
  case "peer": return t.peer;
  default: return "";
  }
}

/** Whether samples tell when they were; the files of most formats have sums only. */
export function hasTimes(p: Profile): boolean {
  return p.samples?.us.some((us) => us > 0) ?? false;
}

/** ms, from the begin of the first wait to the end of the last. */
export function sampleRange(s: Samples): Range {
  let [from, to] = [Infinity, 0];
  s.us.forEach((us, i) => {
    if (us > 0) {
      from = Math.min(from, us / 1000 - s.value[i]! / 1e6);
      to = Math.max(to, us / 1000);
    }
  });
  return from < to ? { from, to } : { from: 0, to: 1 };
}

/** The tree of the samples that have all these labels, and whose wait ended in the range. */
export function selectSamples(p: Profile, filters: Filter[], range: Range | null): Tree {
  const { tree, samples: s } = p;
  if (!s || (filters.length === 0 && !range))
    return tree;
  const fits = s.threads.map((_, t) => filters.every((f) => (labelOf(s, t, f.label) === f.value) !== f.not));
  const self = new Float64Array(tree.n);
  for (let i = 0; i < s.node.length; i++)
    if (fits[s.thread[i]!] && (!range || (s.us[i]! / 1000 > range.from && s.us[i]! / 1000 <= range.to)))
      self[s.node[i]!]! += s.value[i]!;
  const total = self.slice();
  for (let i = tree.n - 1; i > 0; i--)
    total[tree.parent[i]!]! += total[i]!;
  const kept = Uint32Array.from(tree.frame.keys()).filter((i) => i === 0 || total[i]! > 0);
  return buildTree(kept.map((i) => tree.frame[i]!), kept.map((i) => tree.depth[i]!), Float64Array.from(kept, (i) => self[i]!), null);
}

/** As an answer of the server that is grouped by objectGroups(). */
export function sampleLines(s: Samples, label: ObjectLabel): Lines {
  const sums = new Map<number, [number, number]>();
  for (let i = 0; i < s.node.length; i++) {
    const t = s.thread[i]!;
    const sum = sums.get(t) ?? [0, 0];
    sums.set(t, [sum[0] + s.value[i]!, sum[1] + 1]);
  }
  return { step: 1, damaged: false, lines: [...sums].filter(([t]) => labelOf(s, t, label) !== "").map(([t, [value, n]]) => ({
    labels: Object.fromEntries(objectGroups(label).map((l) => [l, labelOf(s, t, l)])), points: [[0, value, n]] })) };
}

/** Calls `visit` for each sample's stack with the value of the label. */
export function eachSample(p: Profile, label: ObjectLabel, visit: (name: string, w: Waited) => void): void {
  const { samples: s } = p;
  const at = new Map<number, Waited>();
  eachWait(p, (w, node) => at.set(node, w));
  for (let i = 0; s && i < s.node.length; i++) {
    const w = at.get(s.node[i]!);
    const name = labelOf(s, s.thread[i]!, label);
    if (w && name !== "")
      visit(name, { ...w, value: s.value[i]! });
  }
}

const COLUMNS = 600;

/** Lanes of all threads whose names or ids have the text, at the resolution of a screen. */
export function sampleLanes(p: Profile, within: Range, find: string, most: number): Lanes {
  const s = p.samples!;
  const column = Math.max((within.to - within.from) / COLUMNS, 1e-3);
  const waits: (Wait | undefined)[] = [];
  const waitOf = (node: number): Wait | undefined => {
    const f = p.tree.frame[node]!;
    return waits[f] ??= waitOfFrame(p.kinds[p.frames.kind[f]!]?.name ?? "", frameName(p, f));
  };
  interface Laying { names: Pick<Lane, "service" | "thread" | "id" | "process">; states: Map<string, Float64Array>; until: Float64Array }
  // A wait for a CPU comes after the wait that somebody ended, and both have the time of its end.
  const moment = (i: number): string => `${s.threads[s.thread[i]!]!.tid} ${s.us[i]!}`;
  const queued = new Map<string, number>();
  for (let i = 0; i < s.node.length; i++)
    if (waitOf(s.node[i]!)?.id === "RUNNABLE")
      queued.set(moment(i), s.value[i]! / 1e6);
  const all = new Map<string, Laying>();
  for (let i = 0; i < s.node.length; i++) {
    const t = s.thread[i]!;
    const names = { service: labelOf(s, t, "service.name"), thread: labelOf(s, t, "thread.name"), id: labelOf(s, t, "thread.id"), process: labelOf(s, t, "process.pid") };
    const key = `${names.process} ${names.id} ${names.id === "" ? names.thread : ""}`;
    let l = all.get(key);
    if (!l)
      all.set(key, l = { names, states: new Map(), until: new Float64Array(COLUMNS) });
    const wait = waitOf(s.node[i]!);
    const to = s.us[i]! / 1000 - (wait?.id === "RUNNABLE" ? 0 : queued.get(moment(i)) ?? 0);
    const from = to - s.value[i]! / 1e6;
    if (s.us[i] === 0 || to <= within.from || from >= within.to)
      continue;
    const name = wait?.name ?? "";
    let values = l.states.get(name);
    if (!values)
      l.states.set(name, values = new Float64Array(COLUMNS));
    const first = Math.max(0, Math.floor((from - within.from) / column));
    for (let k = first; k < COLUMNS && within.from + k * column < to; k++) {
      const end = within.from + (k + 1) * column;
      values[k]! += (Math.min(to, end) - Math.max(from, within.from + k * column)) * 1e6;
      if (to > end)
        l.until[k] = Math.max(l.until[k]!, to);
    }
  }
  const lanes = [...all.values()].map((l) => makeLane(l.names, [...l.states].map(([wait, values]) => ({ wait, values })), l.until, column));
  const text = find.toLowerCase();
  const found = lanes.filter((l) => l.thread.toLowerCase().includes(text) || l.service.toLowerCase().includes(text) || l.id === find)
    .sort((a, b) => b.waited - a.waited || b.ran - a.ran);
  return { from: within.from, to: within.to, column, columns: COLUMNS, threads: lanes.length, found: found.length, lanes: found.slice(0, most) };
}
