// SPDX-License-Identifier: Apache-2.0
/*
 * Chains of the reader's own functions: each has a single callee, with the value of the first but for 2 %. The first and the
 * last of a chain stay; the others are one box ("3 own frames") with the sum of their own values. A box stands for two frames
 * or more, and never for one that a search matches.
 */
import type { Mine } from "./mine.ts";
import { buildTree, COLLAPSED, GROUP } from "./tree.ts";
import type { Profile } from "./tree.ts";

const SAME = 0.02;

export interface Chained extends Mine {
  /** By node: the node of the tree without boxes, of a box its first. */
  from: Uint32Array;
}

/** Returns null if there is no chain. */
export function foldChains(p: Profile, m: Mine, matched: Uint8Array | null): Chained | null {
  const { tree } = m;
  const { n, below, total, base, frame } = tree;
  const near = (a: number, b: number): boolean => Math.abs(a - b) <= SAME * Math.abs(a);
  const isOwn = (i: number): boolean => !m.hidden[i] && !(p.frames.flags[frame[i]!]! & (GROUP | COLLAPSED));
  const follows = (i: number, head: number): boolean => i < n && below[i - 1] === below[i]! + 1 && isOwn(i) &&
    near(total[head]!, total[i]!) && (!base || near(base.total[head]!, base.total[i]!));
  // By node: the first frame of the box that hides it, itself if none does.
  const box = Uint32Array.from({ length: n }, (_, i) => i);
  const folded = tree.folded?.slice() ?? new Uint32Array(n);
  let any = false;
  for (let head = 1, end; head < n; head = end) {
    for (end = head + 1; isOwn(head) && follows(end, head);)
      end++;
    for (let first = head + 1; first < end - 1;) {
      let last = first;
      while (last < end - 1 && !matched?.[frame[last]!])
        last++;
      if (last - first > 1) {
        any = true;
        box.fill(first, first, last);
        folded[first] = last - first;
      }
      first = last + 1;
    }
  }
  if (!any)
    return null;
  const from = Uint32Array.from(box.filter((b, i) => b === i));
  const at = new Uint32Array(n);
  from.forEach((i, k) => at[i] = k);
  for (let i = 0; i < n; i++)
    at[i] = at[box[i]!]!;
  const sum = (self: Float64Array): Float64Array => {
    const out = new Float64Array(from.length);
    self.forEach((v, i) => out[at[i]!]! += v);
    return out;
  };
  const depth = new Uint32Array(from.length);
  from.forEach((i, k) => depth[k] = k === 0 ? 0 : depth[at[tree.parent[i]!]!]! + 1);
  return {
    from, to: m.to.map((i) => at[i]!), shown: m.shown.map((i) => at[i]!), hidden: Uint8Array.from(from, (i) => m.hidden[i]!),
    tree: { ...buildTree(Uint32Array.from(from, (i) => frame[i]!), depth, sum(tree.self), base && sum(base.self)), folded: Uint32Array.from(from, (i) => folded[i]!) },
  };
}

/** Whether the node is a box of own frames. */
export function isChain(p: Profile, m: Mine, node: number): boolean {
  return (m.tree.folded?.[node] ?? 0) > 0 && !(p.frames.flags[m.tree.frame[node]!]! & COLLAPSED);
}
