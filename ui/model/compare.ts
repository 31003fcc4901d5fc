// SPDX-License-Identifier: Apache-2.0
/*
 * Merges two profiles into one with a base. The page does this itself, so that it can compare both
 * selections of the store and files that were dropped onto it.
 */
import { functionIds } from "./functions.ts";
import { TreeBuilder } from "./transform.ts";
import { DataError } from "./tree.ts";
import type { FrameTable, Kind, Mapping, Profile } from "./tree.ts";
import { valueType } from "./vocab.ts";

/** Appends to `a` the rows of `b` that it lacks. Returns the table, and the index in it of each row of `b`. */
function union<T>(a: T[], b: T[], key: (t: T) => string): { all: T[]; of: Uint32Array } {
  const all = [...a];
  const at = new Map(a.map((t, i) => [key(t), i]));
  const of = Uint32Array.from(b, (t) => {
    let i = at.get(key(t));
    if (i === undefined) {
      i = all.push(t) - 1;
      at.set(key(t), i);
    }
    return i;
  });
  return { all, of };
}

function concat(a: FrameTable, b: FrameTable, strings: Uint32Array, kinds: Uint32Array, mappings: Uint32Array): FrameTable {
  const n = a.n + b.n;
  const u32 = (x: Uint32Array, y: ArrayLike<number>): Uint32Array => {
    const out = new Uint32Array(n);
    out.set(x);
    out.set(y, a.n);
    return out;
  };
  const kind = new Uint8Array(n);
  kind.set(a.kind);
  kind.set(b.kind.map((k) => kinds[k]!), a.n);
  const flags = new Uint8Array(n);
  flags.set(a.flags);
  flags.set(b.flags, a.n);
  return {
    n, kind, flags,
    name: u32(a.name, b.name.map((s) => strings[s]!)),
    file: u32(a.file, b.file.map((s) => strings[s]!)),
    line: u32(a.line, b.line),
    mapping: u32(a.mapping, b.mapping.map((m) => mappings[m] ?? m)),
  };
}

/** Adds a tree's values; frame ids are those of the union. */
function pour(b: TreeBuilder, p: Profile, first: number, add: (node: number, self: number) => void): void {
  const { tree } = p;
  const at = new Uint32Array(tree.n);
  for (let i = 1; i < tree.n; i++)
    at[i] = b.child(at[tree.parent[i]!]!, tree.frame[i]! + first);
  for (let i = 0; i < tree.n; i++)
    if (tree.self[i] !== 0)
      add(at[i]!, tree.self[i]!);
}

/** Compares two profiles, which must have the same type. */
export function compareProfiles(before: Profile, after: Profile): Profile {
  const measured = ({ meta }: Profile): string => `${valueType(meta.type, meta.unit).label || "?"} in ${meta.unit || "?"}`;
  if (before.meta.unit !== after.meta.unit || before.meta.type !== after.meta.type)
    throw new DataError(`these do not measure the same: ${measured(before)} before, ${measured(after)} after`);
  const strings = union(after.strings, before.strings, (s) => s);
  const kinds = union<Kind>(after.kinds, before.kinds, (k) => k.name);
  const mappings = union<Mapping>(after.mappings, before.mappings, (m) => `${m.buildId}\n${m.path}`);
  const frames = concat(after.frames, before.frames, strings.of, kinds.of, mappings.of);
  const p: Profile = {
    strings: strings.all, kinds: kinds.all, mappings: mappings.all, frames, tree: after.tree, hot: after.hot ?? null,
    meta: { ...after.meta, baseTitle: before.meta.title, baseSamples: before.meta.quality.samples },
  };
  const b = new TreeBuilder(p, functionIds(p), after.tree.frame[0]!, true);
  pour(b, after, 0, (node, self) => b.add(node, self, 0));
  pour(b, before, after.frames.n, (node, self) => b.add(node, 0, self));
  return { ...p, tree: b.finish() };
}
