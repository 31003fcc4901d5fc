// SPDX-License-Identifier: Apache-2.0
/*
 * Trees out of trees. Each function makes a new tree over the same frame table; values are moved,
 * never lost: what is hidden goes to its caller, and what is out of focus or dropped is the caller's
 * to tell (the new root's total is smaller).
 */
import type { FunctionIds } from "./functions.ts";
import { buildTree, frameName, GROUP } from "./tree.ts";
import type { Profile, Tree } from "./tree.ts";

export const OPS = ["hide", "focus", "keep", "merge", "drop", "fold", "collapse"] as const;
export type Op = (typeof OPS)[number];

export interface Transform {
  /**
   * hide: frames of the function go, what they call moves to their callers. drop: paths through the
   * function go, and their values with them. focus: only paths through the function, from its
   * outermost frame on. keep: only paths through the function, whole. fold: what the function calls becomes part of it. merge: a function that
   * calls itself directly becomes one frame; without a name for all functions. collapse: so does one
   * that calls itself through others, which go from between.
   */
  op: Op;
  name?: string;
}

/** Collects paths into a tree; siblings of one function are merged. */
export class TreeBuilder {
  private readonly p: Profile;
  private readonly ids: FunctionIds;
  private readonly frame: number[] = [];
  private readonly first: number[] = [];
  private readonly sibling: number[] = [];
  private readonly self: number[] = [];
  private readonly base: number[] | null;
  private readonly known = new Map<number, number>();
  /** By node: its number in the finished tree. */
  index = new Uint32Array(0);

  constructor(p: Profile, ids: FunctionIds, rootFrame: number, withBase: boolean) {
    this.p = p;
    this.ids = ids;
    this.base = withBase ? [] : null;
    this.node(rootFrame);
  }

  private node(frame: number): number {
    this.first.push(-1);
    this.sibling.push(-1);
    this.self.push(0);
    this.base?.push(0);
    return this.frame.push(frame) - 1;
  }

  /** The child of a node (0 is the root) for a frame, made when it is not there. */
  child(parent: number, frame: number): number {
    const key = parent * this.ids.n + this.ids.of[frame]!;
    let c = this.known.get(key);
    if (c === undefined) {
      c = this.node(frame);
      this.sibling[c] = this.first[parent]!;
      this.first[parent] = c;
      this.known.set(key, c);
    }
    return c;
  }

  /** Another frame for a node; its siblings do not merge with it. */
  rename(node: number, frame: number): void {
    this.frame[node] = frame;
  }

  add(node: number, self: number, base: number): void {
    this.self[node]! += self;
    if (this.base)
      this.base[node]! += base;
  }

  finish(): Tree {
    const n = this.frame.length;
    const frame = new Uint32Array(n);
    const depth = new Uint32Array(n);
    const self = new Float64Array(n);
    const base = this.base ? new Float64Array(n) : null;
    this.index = new Uint32Array(n);
    const stack: [number, number][] = [[0, 0]];
    for (let i = 0; stack.length > 0; i++) {
      const [node, d] = stack.pop()!;
      this.index[node] = i;
      frame[i] = this.frame[node]!;
      depth[i] = d;
      self[i] = this.self[node]!;
      if (base)
        base[i] = this.base![node]!;
      const kids: number[] = [];
      for (let c = this.first[node]!; c >= 0; c = this.sibling[c]!)
        kids.push(c);
      const name = (c: number): string => frameName(this.p, this.frame[c]!);
      // Last first, because the stack turns them round.
      kids.sort((a, b) => (name(a) < name(b) ? 1 : name(a) > name(b) ? -1 : b - a));
      for (const c of kids)
        stack.push([c, d + 1]);
    }
    return buildTree(frame, depth, self, base);
  }
}

/** Rebuilds a tree; `place` says where a node goes, given where its parent went (-1: nowhere). */
function rebuild(p: Profile, tree: Tree, ids: FunctionIds,
                 place: (b: TreeBuilder, node: number, at: number) => number): Tree {
  const b = new TreeBuilder(p, ids, tree.frame[0]!, tree.base !== null);
  const at = new Int32Array(tree.n);
  for (let i = 0; i < tree.n; i++) {
    if (i > 0)
      at[i] = place(b, i, at[tree.parent[i]!]!);
    else
      at[0] = place(b, 0, 0);
    if (at[i]! >= 0)
      b.add(at[i]!, tree.self[i]!, tree.base ? tree.base.self[i]! : 0);
  }
  return b.finish();
}

function framesNamed(p: Profile, name: string): Uint8Array {
  const out = new Uint8Array(p.frames.n);
  for (let f = 0; f < p.frames.n; f++)
    out[f] = frameName(p, f) === name ? 1 : 0;
  return out;
}

/** From the outermost frame of the function to its innermost: where each node goes. */
function collapse(p: Profile, tree: Tree, ids: FunctionIds, is: (node: number) => boolean): Tree {
  // The outermost one at or above each node, -1 when there is none.
  const outer = new Int32Array(tree.n).fill(-1);
  for (let i = 1; i < tree.n; i++) {
    const up = outer[tree.parent[i]!]!;
    outer[i] = up >= 0 ? up : is(i) ? i : -1;
  }
  const placed = new Int32Array(tree.n);
  return rebuild(p, tree, ids, (b, i, at) =>
    placed[i] = i === 0 ? 0 : is(i) && outer[i] !== i ? placed[outer[i]!]! : b.child(at, tree.frame[i]!));
}

/** Leaves first: the root's children are the functions that ran, below each who called it. */
export function invert(p: Profile, tree: Tree, ids: FunctionIds): Tree {
  const b = new TreeBuilder(p, ids, tree.frame[0]!, tree.base !== null);
  for (let i = 0; i < tree.n; i++) {
    const before = tree.base ? tree.base.self[i]! : 0;
    if (tree.self[i] === 0 && before === 0)
      continue;
    let at = 0;
    for (let k = i; k !== 0; k = tree.parent[k]!)
      at = b.child(at, tree.frame[k]!);
    b.add(at, tree.self[i]!, before);
  }
  return b.finish();
}

export function applyTransform(p: Profile, tree: Tree, ids: FunctionIds, t: Transform): Tree {
  const named = t.name === undefined ? null : framesNamed(p, t.name);
  const is = (node: number): boolean => !named || named[tree.frame[node]!] === 1;
  switch (t.op) {
  case "hide":
    return rebuild(p, tree, ids, (b, i, at) =>
      i === 0 || is(i) ? at : b.child(at, tree.frame[i]!));
  case "drop":
    return withoutPaths(p, tree, ids, (frame) => !named || named[frame] === 1);
  case "focus":
    // Above the first frame of the function nothing is kept; -1 marks "not yet seen".
    return rebuild(p, tree, ids, (b, i, at) =>
      i === 0 ? -1 : at >= 0 ? b.child(at, tree.frame[i]!) : is(i) ? b.child(0, tree.frame[i]!) : -1);
  case "keep": {
    // Whether a node is below the function, or above or in it.
    const below = new Uint8Array(tree.n);
    const above = new Uint8Array(tree.n);
    for (let i = 1; i < tree.n; i++)
      below[i] = below[tree.parent[i]!] || is(i) ? 1 : 0;
    for (let i = tree.n - 1; i > 0; i--)
      if (above[i] || is(i))
        above[tree.parent[i]!] = 1;
    const b = new TreeBuilder(p, ids, tree.frame[0]!, tree.base !== null);
    const at = new Int32Array(tree.n);
    for (let i = 1; i < tree.n; i++) {
      if (!below[i] && !above[i])
        continue;
      at[i] = b.child(at[tree.parent[i]!]!, tree.frame[i]!);
      if (below[i])
        b.add(at[i]!, tree.self[i]!, tree.base ? tree.base.self[i]! : 0);
    }
    return b.finish();
  }
  case "fold": {
    const folded = new Uint8Array(tree.n);
    return rebuild(p, tree, ids, (b, i, at) => {
      folded[i] = i > 0 && (folded[tree.parent[i]!] || is(tree.parent[i]!)) ? 1 : 0;
      return i === 0 ? 0 : folded[i] ? at : b.child(at, tree.frame[i]!);
    });
  }
  case "collapse":
    return collapse(p, tree, ids, is);
  case "merge":
    return rebuild(p, tree, ids, (b, i, at) => {
      if (i === 0)
        return 0;
      const same = ids.of[tree.frame[i]!] === ids.of[tree.frame[tree.parent[i]!]!];
      return same && is(i) ? at : b.child(at, tree.frame[i]!);
    });
  }
}

/** Groups with less than this share of the profile are too narrow for a name. */
const NARROW_GROUP = 0.005;

/** How many groups (services, processes) are the first level, if most of the profile is in groups that are too narrow to tell apart; else 0. */
export function narrowGroups(p: Profile): number {
  const { tree } = p;
  const both = (i: number): number => tree.total[i]! + (tree.base?.total[i] ?? 0);
  let [groups, narrow] = [0, 0];
  for (let i = 1; i < tree.n; i += tree.below[i]! + 1) {
    if (!(p.frames.flags[tree.frame[i]!]! & GROUP))
      return 0;
    groups++;
    if (both(i) < NARROW_GROUP * both(0))
      narrow += both(i);
  }
  return 2 * narrow > both(0) ? groups : 0;
}

/** The tree of all groups together. */
export function withoutGroups(p: Profile, tree: Tree, ids: FunctionIds): Tree {
  return rebuild(p, tree, ids, (b, i, at) => tree.depth[i]! < 2 ? 0 : b.child(at, tree.frame[i]!));
}

/** The tree without paths to these frames. */
export function withoutPaths(p: Profile, tree: Tree, ids: FunctionIds, is: (frame: number) => boolean): Tree {
  return rebuild(p, tree, ids, (b, i, at) => i === 0 ? 0 : at < 0 || is(tree.frame[i]!) ? -1 : b.child(at, tree.frame[i]!));
}

/** Outermost nodes of the functions of that name. */
function outermost(p: Profile, tree: Tree, name: string): number[] {
  const named = framesNamed(p, name);
  const out: number[] = [];
  for (let i = 0; i < tree.n;) {
    if (named[tree.frame[i]!]) {
      out.push(i);
      i += tree.below[i]! + 1;
    } else {
      i++;
    }
  }
  return out;
}

export interface Sandwich {
  /** Root: the function; below it who calls it, outwards. */
  callers: Tree;
  /** Root: the function; below it what it calls. */
  callees: Tree;
}

/**
 * Both sides of a function; null when it is not in the tree. On a path with recursion the
 * outermost frame counts, so both totals are the function's total.
 */
export function sandwich(p: Profile, tree: Tree, ids: FunctionIds, name: string): Sandwich | null {
  const nodes = outermost(p, tree, name);
  if (nodes.length === 0)
    return null;
  const root = tree.frame[nodes[0]!]!;
  const up = new TreeBuilder(p, ids, root, tree.base !== null);
  const down = new TreeBuilder(p, ids, root, tree.base !== null);
  for (const node of nodes) {
    let at = 0;
    for (let i = node; i !== 0 && tree.parent[i] !== 0;) {
      i = tree.parent[i]!;
      at = up.child(at, tree.frame[i]!);
    }
    up.add(at, tree.total[node]!, tree.base ? tree.base.total[node]! : 0);
    const to = new Map<number, number>([[node, 0]]);
    for (let i = node; i <= node + tree.below[node]!; i++) {
      const t = i === node ? 0 : down.child(to.get(tree.parent[i]!)!, tree.frame[i]!);
      to.set(i, t);
      down.add(t, tree.self[i]!, tree.base ? tree.base.self[i]! : 0);
    }
  }
  return { callers: up.finish(), callees: down.finish() };
}
