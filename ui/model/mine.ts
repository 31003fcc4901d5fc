// SPDX-License-Identifier: Apache-2.0
/*
 * My code: which frames are the reader's own, and a tree in which runs of other frames are boxes ("12 runtime frames").
 *
 *  1. Only stacks with own frames change. A stack without any is shown whole, so that no program disappears.
 *  2. Values are moved, never lost: a box has the sum of what it stands for, and the root's total stays.
 *  3. A path decides where it is known; a name decides only where no path is known.
 *  4. Processes, threads and notes are never hidden. Kernel frames are a box of their own below the box that called them.
 *  5. A box never stands for a single frame: that is shown as it is.
 */
import type { FunctionIds } from "./functions.ts";
import { KERNEL, libraryOf, ownerByTable, RUNTIME } from "./owner.ts";
import { base } from "./text.ts";
import { TreeBuilder } from "./transform.ts";
import { COLLAPSED, frameName, GROUP, heaviestFirst, NONE } from "./tree.ts";
import type { Profile, Tree } from "./tree.ts";
import { frameKind } from "./vocab.ts";

export interface Rule {
  mine: boolean;
  parts: string[];
}

/** "com.acme /opt/shop -vendored": what is the reader's own and, behind "-", what is not; "*" stands for any text. */
export function parseRules(text: string): Rule[] {
  return text.split(/[\s,]+/).map((w) => ({ mine: !w.startsWith("-"), parts: w.replace(/^-/, "").split("*") }))
    .filter((r) => r.parts.some((x) => x !== ""));
}

function has(text: string, parts: string[], atStart = false): boolean {
  let at = 0;
  if (atStart && !text.startsWith(parts[0]!))
    return false;
  for (const part of parts) {
    const i = text.indexOf(part, at);
    if (i < 0)
      return false;
    at = i + part.length;
  }
  return true;
}

/**
 * What a frame is: "" the reader's own, null what is never hidden (a group, a note), else KERNEL, RUNTIME or the name of a
 * library. The last of the reader's rules that matches a path or the start of the name decides.
 */
export function ownerOf(p: Profile, f: number, rules: Rule[]): string | null {
  const { frames, strings } = p;
  const kind = p.kinds[frames.kind[f]!]?.name ?? "";
  const kindClass = frameKind(kind)?.class ?? "native";
  if (frames.flags[f]! & GROUP || kindClass === "note")
    return null;
  const name = frameName(p, f);
  const file = strings[frames.file[f]!] ?? "";
  const m = frames.mapping[f]!;
  const path = m === NONE ? "" : p.mappings[m]!.path;
  const rule = rules.findLast((r) => has(file, r.parts) || has(path, r.parts) || has(name, r.parts, true));
  if (rule?.mine)
    return "";
  return rule && kindClass !== "kernel" ? libraryOf(file) || libraryOf(path) || base(path) || RUNTIME : ownerByTable(kind, name, file, path);
}

/** By frame: 0 own, 1 never hidden, else 2 + the index of its label. */
export interface Owners {
  of: Uint16Array;
  labels: string[];
  /** Whether there is something to hide, and something of the reader's own to show. */
  divides: boolean;
}

const MOST_LABELS = 65000;

export function ownersOf(p: Profile, rules: Rule[]): Owners {
  const labels = [RUNTIME, KERNEL];
  const known = new Map(labels.map((l, i) => [l, i]));
  const of = Uint16Array.from({ length: p.frames.n }, (_, f) => {
    const owner = ownerOf(p, f, rules);
    if (!owner)
      return owner === null ? 1 : 0;
    let i = known.get(owner);
    if (i === undefined && labels.length < MOST_LABELS)
      known.set(owner, i = labels.push(owner) - 1);
    return 2 + (i ?? 0);
  });
  return { of, labels, divides: of.includes(0) && of.some((o) => o > 1) };
}

/** The profile with a frame for each label, behind all others. Its tree has none of them. */
export function withBoxes(p: Profile, owners: Owners): Profile {
  const { frames } = p;
  const kinds = [...p.kinds, { name: "library", help: "frames of runtimes and libraries that are not your code" }];
  const kernel = kinds.findIndex((k) => k.name === "kernel");
  const n = frames.n + owners.labels.length;
  const longer = <T extends Uint32Array | Uint8Array>(to: T, from: T, fill: number | ((i: number) => number)): T => {
    to.set(from);
    owners.labels.forEach((_, i) => to[frames.n + i] = typeof fill === "number" ? fill : fill(i));
    return to;
  };
  const u32 = (from: Uint32Array, fill: number | ((i: number) => number)): Uint32Array => longer(new Uint32Array(n), from, fill);
  return { ...p, kinds, strings: [...p.strings, ...owners.labels], frames: {
    n, name: u32(frames.name, (i) => p.strings.length + i), file: u32(frames.file, 0), line: u32(frames.line, 0), mapping: u32(frames.mapping, NONE),
    kind: longer(new Uint8Array(n), frames.kind, (i) => owners.labels[i] === KERNEL && kernel >= 0 ? kernel : kinds.length - 1),
    flags: longer(new Uint8Array(n), frames.flags, COLLAPSED),
  } };
}

export interface Mine {
  tree: Tree;
  /** By node of the whole tree: where its own value is, and the node that shows it in a stack with own frames. */
  to: Int32Array;
  shown: Int32Array;
  /** By node of the new tree: 1 for what is not own in a stack with own frames. */
  hidden: Uint8Array;
}

class Collapser {
  readonly b: TreeBuilder;
  /** By node of the builder: owner of a box, -1 for none; how many frames it stands for, and one of them. */
  private readonly box: number[] = [-1];
  private readonly count: number[] = [0];
  private readonly one: number[] = [0];
  readonly hidden: number[] = [0];
  readonly shown: Int32Array;
  readonly to: Int32Array;
  private readonly whole: Int32Array;
  private readonly above: Uint8Array;
  private readonly below: Uint8Array;

  constructor(p: Profile, private readonly tree: Tree, ids: FunctionIds, private readonly owners: Owners) {
    const { n, frame, parent } = tree;
    this.b = new TreeBuilder(p, ids, frame[0]!, tree.base !== null);
    this.shown = new Int32Array(n);
    this.to = new Int32Array(n);
    this.whole = new Int32Array(n).fill(-1);
    this.whole[0] = 0;
    this.above = new Uint8Array(n);
    this.below = new Uint8Array(n);
    for (let i = 1; i < n; i++)
      this.above[i] = this.above[parent[i]!] || owners.of[frame[i]!] === 0 ? 1 : 0;
    for (let i = n - 1; i > 0; i--)
      if (this.below[i] || owners.of[frame[i]!] === 0)
        this.below[parent[i]!] = this.below[i] = 1;
  }

  private child(at: number, frame: number, owner: number, hidden: boolean): number {
    const c = this.b.child(at, frame);
    this.box[c] ??= owner;
    this.count[c] ??= 0;
    this.hidden[c] ??= hidden ? 1 : 0;
    return c;
  }

  /** The node of a stack without own frames, made when the first of them needs it. */
  private unchanged(i: number): number {
    if (this.whole[i]! < 0)
      this.whole[i] = this.child(this.unchanged(this.tree.parent[i]!), this.tree.frame[i]!, -1, false);
    return this.whole[i]!;
  }

  private inBox(at: number, i: number, firstBox: number): number {
    const own = this.owners.of[this.tree.frame[i]!]! - 2;
    const now = this.box[at]!;
    const [runtime, kernel] = [0, 1];
    const owner = own === kernel ? kernel : this.below[i] ? runtime : own;
    // What a library calls is part of it, and so is what leads on to own code.
    const same = now === owner || (now > kernel && owner !== kernel) || (now === runtime && owner !== kernel && this.below[i]);
    const c = same ? at : this.child(at, firstBox + owner, owner, true);
    this.count[c]!++;
    this.one[c] = this.tree.frame[i]!;
    return c;
  }

  run(firstBox: number): void {
    const { tree, owners, above, below, shown, to, b } = this;
    for (let i = 1; i < tree.n; i++) {
      const f = tree.frame[i]!;
      const up = tree.parent[i]!;
      if (above[i] || below[i])
        shown[i] = owners.of[f]! > 1 ? this.inBox(shown[up]!, i, firstBox) : this.child(shown[up]!, f, -1, false);
      const self = tree.self[i]!;
      const before = tree.base ? tree.base.self[i]! : 0;
      // A group is one node for both kinds of stacks.
      if (owners.of[f] === 1 && shown[up] === this.whole[up] && (above[i] || below[i]))
        this.whole[i] = shown[i]!;
      if (!above[i] && (!below[i] || self !== 0 || before !== 0))
        to[i] = this.unchanged(i);
      else
        to[i] = shown[i]!;
      if (!above[i] && !below[i])
        shown[i] = to[i]!;
      b.add(to[i]!, self, before);
    }
    b.add(0, tree.self[0]!, tree.base ? tree.base.self[0]! : 0);
  }

  finish(): Mine {
    this.count.forEach((k, c) => k === 1 && this.b.rename(c, this.one[c]!));
    const tree = this.b.finish();
    const { index } = this.b;
    const folded = new Uint32Array(tree.n);
    const hidden = new Uint8Array(tree.n);
    index.forEach((i, c) => {
      folded[i] = this.count[c]! > 1 ? this.count[c]! : 0;
      hidden[i] = this.hidden[c]!;
    });
    return { tree: { ...tree, folded }, to: this.to.map((c) => index[c]!), shown: this.shown.map((c) => index[c]!), hidden };
  }
}

/** `p` has the frames of the boxes (withBoxes()), `ids` are of it, and `tree` has none of them. */
export function collapseOthers(p: Profile, tree: Tree, ids: FunctionIds, owners: Owners): Mine {
  const c = new Collapser(p, tree, ids, owners);
  c.run(p.frames.n - owners.labels.length);
  return c.finish();
}

/** The tree for the table: own functions have the values of the hidden frames that they call as values of their own. */
export function selfWithHidden(m: Mine): Tree {
  const { tree, hidden } = m;
  const sum = (self: Float64Array): Float64Array => {
    const out = self.slice();
    for (let i = tree.n - 1; i > 0; i--)
      if (hidden[i]) {
        out[tree.parent[i]!]! += out[i]!;
        out[i] = 0;
      }
    return out;
  };
  return { ...tree, self: sum(tree.self), base: tree.base && { ...tree.base, self: sum(tree.base.self) } };
}

/** Nodes of the new tree whose boxes hold a match, and how many frames of the whole tree that are. */
export function hiddenMatches(m: Mine, whole: Tree, frames: Uint8Array): { boxes: Uint8Array; n: number } {
  const boxes = new Uint8Array(m.tree.n);
  let n = 0;
  for (let i = 1; i < whole.n; i++)
    if (frames[whole.frame[i]!] && m.tree.folded![m.shown[i]!]! > 0) {
      boxes[m.shown[i]!] = 1;
      n++;
    }
  return { boxes, n };
}

/** Weight of the stacks through a match, hidden or not, below the nodes first … last of the new tree. */
export function weightOfMatches(m: Mine, whole: Tree, frames: Uint8Array, self: Float64Array, first: number, last: number): number {
  const covered = new Uint8Array(whole.n);
  const end = last + m.tree.below[last]!;
  let sum = 0;
  for (let i = 1; i < whole.n; i++) {
    covered[i] = covered[whole.parent[i]!] || frames[whole.frame[i]!] ? 1 : 0;
    if (covered[i] && m.to[i]! >= first && m.to[i]! <= end)
      sum += self[i]!;
  }
  return sum;
}

/** Functions in a box with most of its values, heaviest first. */
export function insideOf(m: Mine, whole: Tree, ids: FunctionIds, node: number): [frame: number, self: number][] {
  const by = new Map<number, [number, number]>();
  for (let i = 1; i < whole.n; i++)
    if (m.to[i] === node) {
      const f = whole.frame[i]!;
      const e = by.get(ids.of[f]!);
      if (e)
        e[1] += whole.self[i]!;
      else
        by.set(ids.of[f]!, [f, whole.self[i]!]);
    }
  return [...by.values()].sort((a, b) => b[1] - a[1]);
}

/** The same with siblings by weight. */
export function mineByWeight(m: Mine): Mine {
  const { tree, at } = heaviestFirst(m.tree);
  const hidden = new Uint8Array(tree.n);
  at.forEach((to, i) => hidden[to] = m.hidden[i]!);
  return { tree, hidden, to: m.to.map((i) => at[i]!), shown: m.shown.map((i) => at[i]!) };
}
