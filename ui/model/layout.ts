// SPDX-License-Identifier: Apache-2.0
/*
 * From a tree to boxes: which frames are wide enough to be drawn in a view of some pixels, and
 * which are folded together. Horizontal positions are in units of weight from the left end of the
 * root; a view is a range of them. Zooming is a change of the range and nothing else.
 *
 * A subtree that is out of the view or too narrow is skipped as a whole, so the work is about the
 * number of boxes that come out, not the size of the tree.
 */
import type { Tree } from "./tree.ts";

/** Which side of a comparison sets the widths. */
export type WidthBy = "after" | "before" | "both";

export interface Weights {
  self: Float64Array;
  total: Float64Array;
  /** Left end of each node. */
  start: Float64Array;
}

/**
 * Factor that brings "before" to the size of "after"; 1 when not normalised. Of the whole profile's
 * tree, whatever part is shown: a part that doubled must not look unchanged because it is alone.
 */
export function baseScale(tree: Tree, normalise: boolean): number {
  const b = tree.base?.total[0] ?? 0;
  return normalise && b > 0 && tree.total[0]! > 0 ? tree.total[0]! / b : 1;
}

export function weigh(tree: Tree, by: WidthBy = "after", scale = 1): Weights {
  let self = tree.self;
  let total = tree.total;
  if (tree.base && by === "before") {
    self = tree.base.self;
    total = tree.base.total;
  } else if (tree.base && by === "both") {
    const b = tree.base;
    self = self.map((v, i) => v + scale * b.self[i]!);
    total = total.map((v, i) => v + scale * b.total[i]!);
  }
  const start = new Float64Array(tree.n);
  const next = new Float64Array(tree.levels + 1);
  for (let i = 0; i < tree.n; i++) {
    const d = tree.depth[i]!;
    start[i] = next[d]!;
    next[d + 1] = next[d]!;
    next[d]! += total[i]!;
  }
  return { self, total, start };
}

/** Boxes as columns, in pre-order; the arrays are reused and grow. */
export class Boxes {
  n = 0;
  /** The frame, or the first of the siblings that were folded together. */
  node = new Uint32Array(1024);
  /** The last of the folded siblings; the same as `node` for a frame. */
  last = new Uint32Array(1024);
  /** 0: a frame. Else how many frames, descendants included, are folded into this box. */
  folded = new Uint32Array(1024);
  row = new Uint32Array(1024);
  /** Pixels; a box that reaches out of the view is cut at its edges. */
  x = new Float32Array(1024);
  w = new Float32Array(1024);

  push(node: number, last: number, folded: number, row: number, x: number, w: number): void {
    if (this.n === this.node.length)
      this.grow();
    const i = this.n++;
    this.node[i] = node;
    this.last[i] = last;
    this.folded[i] = folded;
    this.row[i] = row;
    this.x[i] = x;
    this.w[i] = w;
  }

  private grow(): void {
    const u32 = (a: Uint32Array<ArrayBuffer>): Uint32Array<ArrayBuffer> => {
      const b = new Uint32Array(a.length * 2);
      b.set(a);
      return b;
    };
    const f32 = (a: Float32Array<ArrayBuffer>): Float32Array<ArrayBuffer> => {
      const b = new Float32Array(a.length * 2);
      b.set(a);
      return b;
    };
    this.node = u32(this.node);
    this.last = u32(this.last);
    this.folded = u32(this.folded);
    this.row = u32(this.row);
    this.x = f32(this.x);
    this.w = f32(this.w);
  }
}

/**
 * Fills `out` with the boxes of the range [v0, v1) over `width` pixels. Neighbouring siblings
 * narrower than `minPx` become one folded box, unless it is a single frame with nothing above it,
 * which is drawn as it is: there is nothing to say about it that its own box does not say. Rows begin at the depth `top`;
 * what is above has none.
 */
export function layout(tree: Tree, w: Weights, v0: number, v1: number, width: number,
                       minPx: number, out: Boxes, top = 0): Boxes {
  out.n = 0;
  if (!(v1 > v0) || width <= 0)
    return out;
  const { n, below, depth } = tree;
  const { start, total } = w;
  const scale = width / (v1 - v0);
  const tiny = minPx / scale;
  // Rounding noise must not let a neighbour of the zoomed frame into the view.
  const eps = (v1 - v0) * 1e-9;
  let i = 0;
  while (i < n) {
    const s = start[i]!;
    const t = total[i]!;
    if (t <= 0 || s + t <= v0 + eps || s >= v1 - eps) {
      i += below[i]! + 1;
      continue;
    }
    if (t >= tiny) {
      const x0 = Math.max(0, (s - v0) * scale);
      const x1 = Math.min(width, (s + t - v0) * scale);
      if (depth[i]! >= top)
        out.push(i, i, 0, depth[i]! - top, x0, x1 - x0);
      i++;
      continue;
    }
    const d = depth[i]!;
    let j = i;
    let last = i;
    let count = 0;
    let end = s;
    while (j < n && depth[j] === d && total[j]! < tiny && start[j]! < v1 - eps) {
      if (total[j]! > 0) {
        last = j;
        count += below[j]! + 1;
        end = start[j]! + total[j]!;
      }
      j += below[j]! + 1;
    }
    const x0 = Math.max(0, (s - v0) * scale);
    const x1 = Math.min(width, (end - v0) * scale);
    if (d >= top)
      out.push(i, last, count === 1 ? 0 : count, d - top, x0, x1 - x0);
    i = j;
  }
  return out;
}

/** The box at a pixel, or -1. A box is hit up to `slack` pixels beside it when nothing else is. */
export function hit(boxes: Boxes, row: number, x: number, slack = 1): number {
  let near = -1;
  let best = slack;
  for (let i = 0; i < boxes.n; i++) {
    if (boxes.row[i] !== row)
      continue;
    const x0 = boxes.x[i]!;
    const x1 = x0 + boxes.w[i]!;
    if (x >= x0 && x < x1)
      return i;
    const d = x < x0 ? x0 - x : x - x1;
    if (d <= best) {
      best = d;
      near = i;
    }
  }
  return near;
}

/** The box that shows a node, itself or folded, or -1 when it is out of the view. */
export function boxOf(tree: Tree, boxes: Boxes, node: number): number {
  for (let i = 0; i < boxes.n; i++) {
    const a = boxes.node[i]!;
    if (a === node)
      return i;
    const b = boxes.last[i]!;
    if ((boxes.folded[i]! > 0 || a !== b) && node >= a && node <= b + tree.below[b]!)
      return i;
  }
  return -1;
}
