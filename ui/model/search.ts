// SPDX-License-Identifier: Apache-2.0
/*
 * Search: which frames match, how much of a view they hold, and where the next one is. A match
 * inside another match is not counted again: only the topmost matching frame of a path counts, so
 * a percentage never exceeds what is really there.
 */
import type { Weights } from "./layout.ts";
import { COLLAPSED } from "./tree.ts";
import type { Profile, Tree } from "./tree.ts";

export type Matcher = { test: (name: string) => boolean } | { error: string } | null;

/** Case matters only when the text has a capital letter, as in most editors. */
export function matcher(text: string): Matcher {
  if (text === "")
    return null;
  try {
    const re = new RegExp(text, /[A-Z]/.test(text.replace(/\\./g, "")) ? "u" : "iu");
    return { test: (s) => re.test(s) };
  } catch (e) {
    // A second try without the strict flag: `a\-b` and the like are common and harmless.
    try {
      const re = new RegExp(text, /[A-Z]/.test(text.replace(/\\./g, "")) ? "" : "i");
      return { test: (s) => re.test(s) };
    } catch {
      return { error: e instanceof Error ? e.message.replace(/^Invalid regular expression: /, "") : "?" };
    }
  }
}

/** The regular expression of a text itself. */
export function literal(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}

/** The text to search for so that exactly this name matches. */
export function exactly(name: string): string {
  return `^${literal(name)}$`;
}

/** 1 for each row of the frame table that matches; every distinct name is tested once. */
export function matchFrames(p: Profile, m: Matcher): Uint8Array {
  const hits = new Uint8Array(p.frames.n);
  if (!m || "error" in m)
    return hits;
  const seen = new Int8Array(p.strings.length).fill(-1);
  for (let f = 0; f < p.frames.n; f++) {
    const s = p.frames.name[f]!;
    // A box matches by what it stands for, not by its label.
    if (p.frames.flags[f]! & COLLAPSED)
      continue;
    if (seen[s]! < 0)
      seen[s] = m.test(p.strings[s]!) ? 1 : 0;
    hits[f] = seen[s]!;
  }
  return hits;
}

export interface Matches {
  /** By frame id. */
  frames: Uint8Array;
  /** By node: 1 for a box of mine.ts that holds a match. */
  boxes: Uint8Array | null;
  /** Topmost matching nodes, left to right. */
  top: Uint32Array;
}

/** Runs at each letter, over up to a million nodes: what is below a match is not looked at. */
export function findMatches(tree: Tree, frames: Uint8Array, boxes: Uint8Array | null = null): Matches {
  const { frame, below, n } = tree;
  const top: number[] = [];
  for (let i = 0; i < n; i++)
    if (frames[frame[i]!] || boxes?.[i]) {
      top.push(i);
      i += below[i]!;
    }
  return { frames, boxes, top: new Uint32Array(top) };
}

/** How many of these rising numbers are smaller. */
function smaller(rising: Uint32Array, than: number): number {
  let lo = 0;
  let hi = rising.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (rising[mid]! < than)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/** Weight of the matches within [v0, v1). */
export function matchedWeight(m: Matches, w: Weights, v0: number, v1: number): number {
  let sum = 0;
  for (const i of m.top) {
    const a = Math.max(v0, w.start[i]!);
    const b = Math.min(v1, w.start[i]! + w.total[i]!);
    if (b > a)
      sum += b - a;
  }
  return sum;
}

/** The topmost match with the most weight in [v0, v1), -1: none. */
export function widestMatch(m: Matches, w: Weights, v0: number, v1: number): number {
  let widest = -1;
  let most = 0;
  for (const i of m.top) {
    const seen = Math.min(v1, w.start[i]! + w.total[i]!) - Math.max(v0, w.start[i]!);
    if (seen > most)
      [widest, most] = [i, seen];
  }
  return widest;
}

/** Whether the nodes first … last and all below them hold a match. */
export function holdsMatch(m: Matches, tree: Tree, first: number, last: number): boolean {
  const end = last + tree.below[last]!;
  const k = smaller(m.top, first);
  if (k < m.top.length && m.top[k]! <= end)
    return true;
  // Below one match there may be another.
  const over = k > 0 ? m.top[k - 1]! : -1;
  if (over < 0 || over + tree.below[over]! < first)
    return false;
  for (let i = first; i <= end; i++)
    if (m.frames[tree.frame[i]!] || m.boxes?.[i])
      return true;
  return false;
}

/**
 * The next (step 1) or previous (step -1) topmost match with any weight after `from` (-1: none yet),
 * going round; -1 when there is none.
 */
export function nextMatch(m: Matches, w: Weights, from: number, step: 1 | -1): number {
  const n = m.top.length;
  let at = smaller(m.top, from + 1) - 1;
  // Going back from between two matches ends at the one on the left, which is `at` itself.
  if (step < 0 && (at < 0 || m.top[at] !== from))
    at++;
  for (let k = 1; k <= n; k++) {
    const node = m.top[(((at + step * k) % n) + n) % n]!;
    if (w.total[node]! > 0)
      return node;
  }
  return -1;
}
