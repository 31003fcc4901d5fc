// SPDX-License-Identifier: Apache-2.0
/*
 * Search: which frames match, how much of a view they hold, and where the next one is. A match
 * inside another match is not counted again: only the topmost matching frame of a path counts, so
 * a percentage never exceeds what is really there.
 */
import type { Weights } from "./layout.ts";
import { GROUP } from "./tree.ts";
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

/** The text to search for so that exactly this name matches. */
export function exactly(name: string): string {
  const quoted = name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
  return `^${quoted}$`;
}

/** 1 for each row of the frame table that matches; every distinct name is tested once. */
export function matchFrames(p: Profile, m: Matcher): Uint8Array {
  const hits = new Uint8Array(p.frames.n);
  if (!m || "error" in m)
    return hits;
  const seen = new Int8Array(p.strings.length).fill(-1);
  for (let f = 0; f < p.frames.n; f++) {
    const s = p.frames.name[f]!;
    if (seen[s]! < 0)
      seen[s] = m.test(p.strings[s]!) ? 1 : 0;
    hits[f] = seen[s]!;
  }
  return hits;
}

export interface Matches {
  /** By frame id. */
  frames: Uint8Array;
  /** before[i]: matching nodes among 0 … i-1; n+1 entries, so a subtree is one subtraction. */
  before: Uint32Array;
  /** Topmost matching nodes, left to right. */
  top: Uint32Array;
  /** Distinct names among the matching frames. */
  names: number;
}

export function findMatches(p: Profile, tree: Tree, frames: Uint8Array): Matches {
  const before = new Uint32Array(tree.n + 1);
  const top: number[] = [];
  let covered = 0;
  for (let i = 0; i < tree.n; i++) {
    const m = frames[tree.frame[i]!]!;
    before[i + 1] = before[i]! + m;
    if (m && i >= covered) {
      top.push(i);
      covered = i + tree.below[i]! + 1;
    }
  }
  const names = new Set<number>();
  for (let f = 0; f < frames.length; f++)
    if (frames[f] && !(p.frames.flags[f]! & GROUP))
      names.add(p.frames.name[f]!);
  return { frames, before, top: Uint32Array.from(top), names: names.size };
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

/** Whether the nodes first … last and all below them hold a match. */
export function holdsMatch(m: Matches, tree: Tree, first: number, last: number): boolean {
  return m.before[last + tree.below[last]! + 1]! > m.before[first]!;
}

/**
 * The next (step 1) or previous (step -1) topmost match with any weight after `from` (-1: none yet),
 * going round; -1 when there is none.
 */
export function nextMatch(m: Matches, w: Weights, from: number, step: 1 | -1): number {
  const n = m.top.length;
  let at = -1;
  for (let i = 0; i < n; i++)
    if (m.top[i]! <= from)
      at = i;
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
