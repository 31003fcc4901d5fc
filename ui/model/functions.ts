// SPDX-License-Identifier: Apache-2.0
/*
 * The table of functions. A function is a name in a file, and a frame kind. Copies of one library
 * count as one, as in the picture. The total of a recursive function counts each path once.
 */
import { base } from "./text.ts";
import { GROUP, INLINED, NONE } from "./tree.ts";
import type { Profile, Tree } from "./tree.ts";

export interface HotLine {
  /** "shop.py:28" */
  place: string;
  line: number;
  /** Of the function's value in the whole profile. */
  share: number;
  total: number;
}

/** Where a frame's function spends most; null if no sample has a line of it. */
export function hotLine(p: Profile, f: number): HotLine | null {
  const { hot } = p;
  const line = hot?.line[f] ?? 0;
  return hot && line > 0 && hot.total[f]! > 0
    ? { place: `${base(p.strings[p.frames.file[f]!] ?? "")}:${line}`, line, share: hot.value[f]! / hot.total[f]!, total: hot.total[f]! } : null;
}

export interface FunctionIds {
  n: number;
  /** Function id by frame id. */
  of: Uint32Array;
  /** By function: one of its frames. */
  frame: Uint32Array;
  /** By function: 0 none of its frames is inlined, 1 some, 2 all. */
  inlined: Uint8Array;
}

/** Returns a key of a frame's function, which is the same in all profiles. */
export function functionKey(p: Profile, f: number): string {
  const { name, kind, mapping, flags } = p.frames;
  const m = mapping[f]!;
  return [p.strings[name[f]!], p.kinds[kind[f]!]?.name, flags[f]! & GROUP, m === NONE ? "" : base(p.mappings[m]!.path)].join("\n");
}

export function functionIds(p: Profile): FunctionIds {
  const { name, kind, mapping, flags, n } = p.frames;
  const ids = new Map<string, number>();
  const of = new Uint32Array(n);
  const frame: number[] = [];
  const seen: number[] = [];
  for (let f = 0; f < n; f++) {
    const m = mapping[f]!;
    const file = m === NONE ? "" : base(p.mappings[m]!.path);
    const key = `${name[f]} ${kind[f]} ${flags[f]! & GROUP} ${file}`;
    let id = ids.get(key);
    if (id === undefined) {
      id = frame.length;
      ids.set(key, id);
      frame.push(f);
      seen.push(0);
    }
    of[f] = id;
    seen[id]! |= flags[f]! & INLINED ? 2 : 1;
  }
  return {
    n: frame.length, of, frame: Uint32Array.from(frame),
    inlined: Uint8Array.from(seen, (s) => (s === 2 ? 2 : s === 3 ? 1 : 0)),
  };
}

export interface FunctionTable {
  n: number;
  /** Function id of each row. */
  id: Uint32Array;
  self: Float64Array;
  total: Float64Array;
  baseSelf: Float64Array | null;
  baseTotal: Float64Array | null;
}

/** Adds up one value by function; each path counts once. `active` is zero before and after. */
function totals(tree: Tree, ids: FunctionIds, first: number, end: number, total: Float64Array,
                active: Uint32Array): Float64Array {
  const out = new Float64Array(ids.n);
  const stack = new Uint32Array(tree.levels + 1);
  let sp = 0;
  for (let i = first; i < end; i++) {
    while (sp > 0 && i > stack[sp - 1]! + tree.below[stack[sp - 1]!]!)
      active[ids.of[tree.frame[stack[--sp]!]!]!]!--;
    const f = ids.of[tree.frame[i]!]!;
    if (active[f]!++ === 0)
      out[f]! += total[i]!;
    stack[sp++] = i;
  }
  while (sp > 0)
    active[ids.of[tree.frame[stack[--sp]!]!]!]!--;
  return out;
}

function selves(tree: Tree, ids: FunctionIds, first: number, end: number,
                self: Float64Array): Float64Array {
  const out = new Float64Array(ids.n);
  for (let i = first; i < end; i++)
    out[ids.of[tree.frame[i]!]!]! += self[i]!;
  return out;
}

/** Makes the table for the nodes first … last and all below them, without groups (processes, threads). */
export function functionTable(p: Profile, tree: Tree, ids: FunctionIds, first: number,
                              last: number): FunctionTable {
  const end = last + tree.below[last]! + 1;
  const active = new Uint32Array(ids.n);
  const self = selves(tree, ids, first, end, tree.self);
  const total = totals(tree, ids, first, end, tree.total, active);
  const base = tree.base;
  const bs = base ? selves(tree, ids, first, end, base.self) : null;
  const bt = base ? totals(tree, ids, first, end, base.total, active) : null;
  const rows: number[] = [];
  for (let f = 0; f < ids.n; f++)
    if (!(p.frames.flags[ids.frame[f]!]! & GROUP) && (total[f]! > 0 || (bt && bt[f]! > 0)))
      rows.push(f);
  const pick = (a: Float64Array): Float64Array => Float64Array.from(rows, (f) => a[f]!);
  return {
    n: rows.length, id: Uint32Array.from(rows), self: pick(self), total: pick(total),
    baseSelf: bs && pick(bs), baseTotal: bt && pick(bt),
  };
}

export type SortKey = "name" | "self" | "total" | "change";

/** Returns sorted row numbers. Equal rows are sorted by name, so that the order is stable. */
export function sortTable(p: Profile, ids: FunctionIds, t: FunctionTable, key: SortKey,
                          descending: boolean, scale: number, keep: Uint8Array | null): Uint32Array {
  const rows: number[] = [];
  for (let i = 0; i < t.n; i++)
    if (!keep || keep[ids.frame[t.id[i]!]!])
      rows.push(i);
  const names = (i: number): string => p.strings[p.frames.name[ids.frame[t.id[i]!]!]!]!;
  const change = (i: number): number =>
    t.baseTotal ? t.total[i]! - scale * t.baseTotal[i]! : 0;
  const value = key === "self" ? (i: number) => t.self[i]!
    : key === "total" ? (i: number) => t.total[i]! : change;
  const sign = descending ? -1 : 1;
  const byName = (a: number, b: number): number => {
    const x = names(a);
    const y = names(b);
    return x < y ? -1 : x > y ? 1 : 0;
  };
  rows.sort(key === "name" ? (a, b) => sign * byName(a, b)
    : (a, b) => sign * (value(a) - value(b)) || byName(a, b));
  return Uint32Array.from(rows);
}
