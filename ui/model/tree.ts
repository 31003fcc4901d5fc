// SPDX-License-Identifier: Apache-2.0
/*
 * The call tree as columns. Nodes are in pre-order: the descendants of node i are
 * i+1 … i+below[i], and its next sibling, if any, is i+below[i]+1. Node 0 is the root and has
 * depth 0. What a node stands for is a row of the frame table; several nodes share one.
 *
 * Invariants (buildTree() refuses what breaks them):
 *  1. depth[0] = 0, every other depth is at least 1 and at most one more than the node before.
 *  2. total = self + the totals of the children, so no share can contradict another.
 *
 * A tree is never changed after it was built; transforms make a new one over the same frames.
 */

export const NONE = 0xffffffff;

/** Bits of FrameTable.flags. */
export const INLINED = 1;
/** Not a function: the root, a process, a thread. */
export const GROUP = 2;
/** The line is one that was hit, not where the function starts. */
export const LINE_SAMPLED = 4;
/** Only of this page, never in a payload: a box of frames that are not the reader's own (mine.ts). */
export const COLLAPSED = 8;

export interface FrameTable {
  n: number;
  /** String id. */
  name: Uint32Array;
  /** Index into Profile.kinds. */
  kind: Uint8Array;
  flags: Uint8Array;
  /** String id of the source file, "" when not known. */
  file: Uint32Array;
  /** 0 = not known. */
  line: Uint32Array;
  /** Index into Profile.mappings, or NONE. */
  mapping: Uint32Array;
}

export interface Tree {
  n: number;
  frame: Uint32Array;
  depth: Uint32Array;
  /** Node 0 is its own parent. */
  parent: Uint32Array;
  below: Uint32Array;
  self: Float64Array;
  total: Float64Array;
  /** The other side of a comparison: the profile "before". */
  base: { self: Float64Array; total: Float64Array } | null;
  /** Number of levels: 1 + the largest depth. */
  levels: number;
  /** By node: how many frames a box of mine.ts or chains.ts stands for, 0 for a frame. */
  folded?: Uint32Array;
}

export interface Mapping {
  path: string;
  buildId: string;
}

export interface Kind {
  name: string;
  help: string;
}

/** How much of the truth is in a profile; -1 where the source does not say. */
export interface Quality {
  samples: number;
  lost: number;
  truncated: number;
  unknown: number;
  frames: number;
  userStacks: number;
  /** What stands for others because the server limits names: "(other services), [other stacks]"; "" if nothing does. */
  limited: string;
}

export interface Meta {
  title: string;
  generator: string;
  /** Value type and unit: "samples" "count", "cpu" "nanoseconds". */
  type: string;
  unit: string;
  /** Milliseconds since the epoch; 0 = not known. */
  timeMs: number;
  durationNs: number;
  /** Samples per second and CPU, 0 = not known. */
  hz: number;
  quality: Quality;
  /** Of the profile "before", when there is one. */
  baseTitle: string;
  baseSamples: number;
  /** Whether the writer was asked to compare shares rather than amounts. */
  normalise: boolean;
}

/** The samples of waits in a file. */
export interface Samples {
  threads: { process: string; thread: string; pid: number; tid: number; lock: string; owner: string; peer: string }[];
  /** By sample: the node, the index of the thread, and the time of its end, µs since the epoch, 0: not known. */
  node: Uint32Array;
  thread: Uint32Array;
  value: Float64Array;
  us: Float64Array;
}

/** By frame: the line with the most samples of its function in the whole profile (0: not known), their value, and that of the function. */
export interface HotLines {
  line: Uint32Array;
  value: Float64Array;
  total: Float64Array;
}

export interface Profile {
  strings: string[];
  kinds: Kind[];
  mappings: Mapping[];
  frames: FrameTable;
  tree: Tree;
  meta: Meta;
  samples?: Samples;
  hot?: HotLines | null;
}

export class DataError extends Error {}

function sumUp(self: Float64Array, parent: Uint32Array): Float64Array {
  const total = self.slice();
  for (let i = total.length - 1; i > 0; i--)
    total[parent[i]!]! += total[i]!;
  return total;
}

/** Derives parents, subtree sizes and totals; takes ownership of the arrays. */
export function buildTree(frame: Uint32Array, depth: Uint32Array, self: Float64Array,
                          baseSelf: Float64Array | null): Tree {
  const n = frame.length;
  if (n === 0 || depth.length !== n || self.length !== n || (baseSelf && baseSelf.length !== n))
    throw new DataError("the columns of the call tree do not have one length");
  if (depth[0] !== 0)
    throw new DataError("the call tree does not start with its root");
  const parent = new Uint32Array(n);
  const below = new Uint32Array(n);
  let deepest = 0;
  for (let i = 1; i < n; i++) {
    const d = depth[i]!;
    if (d < 1 || d > depth[i - 1]! + 1)
      throw new DataError(`node ${i} of the call tree has no parent`);
    if (d > deepest)
      deepest = d;
    let p = i - 1;
    while (depth[p]! >= d)
      p = parent[p]!;
    parent[i] = p;
  }
  for (let i = n - 1; i > 0; i--)
    below[parent[i]!]! += below[i]! + 1;
  return {
    n, frame, depth, parent, below, self,
    total: sumUp(self, parent),
    base: baseSelf ? { self: baseSelf, total: sumUp(baseSelf, parent) } : null,
    levels: deepest + 1,
  };
}

/** Root-to-node list of nodes, both ends included. */
export function pathOf(tree: Tree, node: number): number[] {
  const path = [];
  for (let i = node; ; i = tree.parent[i]!) {
    path.push(i);
    if (i === 0)
      return path.reverse();
  }
}

export function frameName(p: Profile, frame: number): string {
  return p.strings[p.frames.name[frame]!] ?? "";
}

/** Of a box what it stands for: "12 runtime frames", of a chain (chains.ts) "3 own frames". */
export function nodeName(p: Profile, tree: Tree, node: number): string {
  const frame = tree.frame[node]!;
  const name = frameName(p, frame);
  const n = tree.folded?.[node] || "";
  return p.frames.flags[frame]! & COLLAPSED ? `${n} ${name} frames`.trim() : n ? `${n} own frames` : name;
}

function stringHash(s: string, h: number): number {
  for (let i = 0; i < s.length; i++)
    h = Math.imul(h ^ s.charCodeAt(i), 0x01000193);
  return h >>> 0;
}

/**
 * A name for each node that survives a reload and a rebuilt tree, also of newer samples: a hash over
 * the names from the root to it. Two lanes of 32 bits, because one collides at 100,000 nodes.
 */
export function pathHashes(p: Profile, tree: Tree): { lo: Uint32Array; hi: Uint32Array } {
  const fl = new Uint32Array(p.frames.n);
  const fh = new Uint32Array(p.frames.n);
  for (let f = 0; f < p.frames.n; f++) {
    // One name may stand twice under one parent: in user and kernel code, on two lines. A line that
    // was hit, and whether all that was seen of it is inlined, are of these samples only.
    const flags = p.frames.flags[f]!;
    const line = flags & LINE_SAMPLED ? 0 : p.frames.line[f];
    const s = `${frameName(p, f)} ${p.frames.kind[f]} ${flags & GROUP} ${line}`;
    fl[f] = stringHash(s, 0x811c9dc5);
    fh[f] = stringHash(s, 0x2c1b3c6d);
  }
  const lo = new Uint32Array(tree.n);
  const hi = new Uint32Array(tree.n);
  lo[0] = 1;
  hi[0] = 2;
  for (let i = 1; i < tree.n; i++) {
    const up = tree.parent[i]!;
    const f = tree.frame[i]!;
    let a = Math.imul(lo[up]! ^ fl[f]!, 0x9e3779b1) >>> 0;
    a ^= a >>> 15;
    let b = (Math.imul(hi[up]!, 0x85ebca6b) + fh[f]!) >>> 0;
    b = Math.imul(b ^ (b >>> 13), 0xc2b2ae35) >>> 0;
    lo[i] = a;
    hi[i] = b;
  }
  return { lo, hi };
}

export function pathId(h: { lo: Uint32Array; hi: Uint32Array }, node: number): string {
  return h.hi[node]!.toString(36) + "." + h.lo[node]!.toString(36);
}

/** The node of that pathId(), or -1. */
export function findPath(h: { lo: Uint32Array; hi: Uint32Array }, id: string): number {
  const [b, a] = id.split(".");
  const hi = parseInt(b ?? "", 36);
  const lo = parseInt(a ?? "", 36);
  for (let i = 0; i < h.lo.length; i++)
    if (h.lo[i] === lo && h.hi[i] === hi)
      return i;
  return -1;
}

/** The tree with siblings by weight, the heaviest first; `at` is the new number of each node. */
export function heaviestFirst(t: Tree): { tree: Tree; at: Uint32Array } {
  const weight = (i: number): number => t.total[i]! + (t.base?.total[i] ?? 0);
  const order = new Uint32Array(t.n);
  const at = new Uint32Array(t.n);
  const stack = [0];
  for (let k = 0; stack.length > 0; k++) {
    const i = stack.pop()!;
    order[k] = i;
    at[i] = k;
    const kids: number[] = [];
    for (let c = i + 1; c <= i + t.below[i]!; c += t.below[c]! + 1)
      kids.push(c);
    // Last first, because the stack turns them round.
    stack.push(...kids.sort((a, b) => weight(a) - weight(b) || b - a));
  }
  const u32 = (a: Uint32Array): Uint32Array => Uint32Array.from(order, (i) => a[i]!);
  const tree = buildTree(u32(t.frame), u32(t.depth), Float64Array.from(order, (i) => t.self[i]!), t.base && Float64Array.from(order, (i) => t.base!.self[i]!));
  return { tree: t.folded ? { ...tree, folded: u32(t.folded) } : tree, at };
}
