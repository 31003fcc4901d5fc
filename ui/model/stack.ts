// SPDX-License-Identifier: Apache-2.0
/*
 * Bars by time in parts: the largest values of a label, and the rest as one part. The parts of a bar
 * add up to the bar of the whole, because the rest is what the whole has beyond the others.
 */
import { bars } from "./series.ts";
import type { Bars, Lines } from "./series.ts";
import type { Range } from "./times.ts";

export interface Layer {
  /** Value of the label; null: all that have no layer of their own. */
  name: string | null;
  /** How many values the rest stands for, 0: not known; 1 for others. */
  n: number;
  /** Number of the colour, stable for a name; -1: the rest. */
  colour: number;
  bars: Bars;
  total: number;
}

export interface Stack {
  by: string;
  /** Largest first, the rest last. */
  layers: Layer[];
  whole: Bars;
}

export const TOP_LAYERS = 7;
export const LAYER_COLOURS = 12;

const sumOf = (b: Bars): number => b.sum.reduce((x, y) => x + y, 0);

function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++)
    h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return (h ^ h >>> 15) >>> 0;
}

/** A colour by the name, whatever the order of values; of two names with one hash the later in the alphabet takes the next that is free. */
function colours(names: string[]): Map<string, number> {
  const taken = new Map<number, string>();
  for (const name of [...names].sort()) {
    let c = hash(name) % LAYER_COLOURS;
    while (taken.has(c) && taken.size < LAYER_COLOURS)
      c = (c + 1) % LAYER_COLOURS;
    taken.set(c, name);
  }
  return new Map([...taken].map(([c, name]) => [name, c]));
}

export function stacked(l: Lines, by: string, r: Range, now: number): Stack {
  const whole = bars(l, r, now);
  const values = new Map<string, Lines["lines"]>();
  for (const line of l.lines) {
    const name = line.labels[by] ?? "";
    values.set(name, [...values.get(name) ?? [], line]);
  }
  const all = [...values].map(([name, lines]) => ({ name, bars: bars({ ...l, lines }, r, now) })).map((x) => ({ ...x, total: sumOf(x.bars) }))
    .sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
  const top = all.length > TOP_LAYERS + 1 ? all.slice(0, TOP_LAYERS) : all;
  const colour = colours(top.map((x) => x.name));
  const layers: Layer[] = top.map((x) => ({ ...x, n: 1, colour: colour.get(x.name)! }));
  if (top.length < all.length) {
    const sum = whole.sum.map((v, i) => v - top.reduce((s, x) => s + x.bars.sum[i]!, 0));
    const rest = { ...whole, sum };
    layers.push({ name: null, n: all.length - top.length, colour: -1, bars: rest, total: sumOf(rest) });
  }
  return { by, layers, whole };
}

/** Of series?functions=N: the line without a name is that of all `others`. */
export function stackedFunctions(l: Lines, others: number, r: Range, now: number): Stack {
  const { layers, ...s } = stacked(l, "function", r, now);
  const rest = layers.filter((x) => x.name === "" && x.total !== 0).map((x) => ({ ...x, name: null, n: others, colour: -1 }));
  return { ...s, layers: [...layers.filter((x) => x.name !== ""), ...rest] };
}
