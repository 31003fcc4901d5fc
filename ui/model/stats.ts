// SPDX-License-Identifier: Apache-2.0
/*
 * What a sampled share means. A profile is a sample: 3 of 100 is "somewhere between 1 and 8.5 %",
 * and a difference between two small counts is mostly luck. The page says so.
 */
import { array, number, object } from "./check.ts";
import { percent } from "./text.ts";
import { clock, day } from "./times.ts";
import type { Meta, Quality, Tree } from "./tree.ts";
import { countsSamples, valueType } from "./vocab.ts";

const Z95 = 1.959963984540054;

/** Wilson's score interval for k of n, as shares; it behaves for small k, unlike k/n ± … */
export function wilson(k: number, n: number): [number, number] {
  if (!(n > 0))
    return [0, 1];
  const p = Math.min(1, Math.max(0, k / n));
  const z2 = Z95 * Z95;
  const mid = (p + z2 / (2 * n)) / (1 + z2 / n);
  const half = (Z95 / (1 + z2 / n)) * Math.sqrt((p * (1 - p)) / n + z2 / (4 * n * n));
  return [Math.max(0, mid - half), Math.min(1, mid + half)];
}

function perValue(meta: Meta, samples: number, total: number): number {
  const type = valueType(meta.type, meta.unit);
  if (countsSamples(type))
    return 1;
  // A state has as many samples as reports, which say nothing of how exact it is.
  if (type.adds === "at_moment")
    return 0;
  return samples > 0 && total > 0 ? samples / total : 0;
}

/**
 * Samples per unit of value, or 0 when it is not known. Only values that are samples are their own
 * number: a count of allocations says nothing of how many of them were looked at. For others it is,
 * on average, the number of samples over the total.
 */
export function samplesPerValue(meta: Meta, tree: Tree): number {
  return perValue(meta, meta.quality.samples, tree.total[0]!);
}

/** The same for the profile "before". */
export function baseSamplesPerValue(meta: Meta, tree: Tree): number {
  return perValue(meta, meta.baseSamples, tree.base?.total[0] ?? 0);
}

/**
 * Two-proportion z score of k1 of n1 (before) against k2 of n2 (after); beyond ±1.96 the
 * difference is larger than chance makes it in 95 of 100 cases. 0 when nothing can be said.
 */
export function zScore(k1: number, n1: number, k2: number, n2: number): number {
  if (!(n1 > 0) || !(n2 > 0))
    return 0;
  const p = (k1 + k2) / (n1 + n2);
  const v = p * (1 - p) * (1 / n1 + 1 / n2);
  return v > 0 ? (k2 / n2 - k1 / n1) / Math.sqrt(v) : 0;
}

export function significant(z: number): boolean {
  return Math.abs(z) >= Z95;
}

/**
 * How a frame changed, from -1 (vanished) over 0 to 1 (new): the difference over the larger of the
 * two. Independent of the frame's size, which its width already shows.
 */
export function change(before: number, after: number): number {
  const m = Math.max(before, after);
  return m > 0 ? (after - before) / m : 0;
}

/** Added up what agents counted between two times, in ms. */
export interface Losses {
  agents: number;
  samples: number;
  lost: number;
  from: number;
  to: number;
}

export interface Warning {
  text: string;
  help: string;
  level: "note" | "warn";
}

/** The head of GET /api/v1/flamegraph. What a store does not know is -1. */
export function readQuality(json: unknown): Quality {
  const q = object(object(json)["quality"]);
  return {
    samples: number(q["samples"]), lost: -1, truncated: number(q["truncated"]), unknown: number(q["unknown_frames"]),
    frames: number(q["frames"]), userStacks: -1, limited: array(q["limited"]).join(", "),
  };
}

export interface Fact {
  text: string;
  help: string;
  level: "fact" | "warn";
}

/** Whether samples were lost, as far as those who took them say. */
export function lossFact(l: Losses | null): Fact {
  if (!l || l.samples + l.lost <= 0)
    return { text: "losses unknown", level: "fact",
      help: "No agent reported losses for this time range. Agents report them only while this server runs, and other senders never do." };
  const share = l.lost / (l.samples + l.lost);
  const who = `${l.agents === 1 ? "one agent" : `${l.agents} agents`} counted from ${day(l.from)} ${clock(l.from)} to ${day(l.to)} ${clock(l.to)}`;
  return share > 0.01
    ? { text: `${percent(share)} lost`, level: "warn",
        help: `Samples were dropped before they were stored, as ${who}. This view may be biased towards quiet moments.` }
    : { text: l.lost === 0 ? "none lost" : `${percent(share)} lost`, help: `As ${who}.`, level: "fact" };
}

/** What is wrong enough with a profile that a reader must know it before drawing conclusions. */
export function warnings(q: Quality, samples: number): Warning[] {
  const out: Warning[] = [];
  // A part of a view has an estimated number: its share of the samples.
  const n = Math.round(samples);
  if (samples >= 0 && n < 200)
    out.push({
      text: n === 0 ? "no samples" : n === 1 ? "only 1 sample" : `only ${n} samples`,
      help: "With so few samples, shares are rough estimates. Record for longer (-d) or at a higher rate (-F).",
      level: "warn",
    });
  const lost = q.lost > 0 ? q.lost / (q.lost + Math.max(q.samples, 0)) : 0;
  if (lost > 0.01)
    out.push({
      text: `${percent(lost)} lost`,
      help: "Samples were dropped before they were stored. This view may be biased towards quiet moments.",
      level: "warn",
    });
  const stacks = q.userStacks > 0 ? q.userStacks : q.samples;
  const truncated = q.truncated > 0 && stacks > 0 ? q.truncated / stacks : 0;
  if (truncated > 0.01)
    out.push({
      text: `${percent(truncated)} truncated`,
      help: "These stacks do not reach the thread's entry point. They start at a frame named [truncated: reason].",
      level: "warn",
    });
  const unknown = q.unknown > 0 && q.frames > 0 ? q.unknown / q.frames : 0;
  if (unknown > 0.05)
    out.push({
      text: `${percent(unknown)} of frames have no name`,
      help: "Install debug symbols, or set a debuginfod server, to see names.",
      level: "note",
    });
  if (q.limited !== "")
    out.push({
      text: `includes ${q.limited}`,
      help: "This server limits services, series and stacks (--max-services, --max-series, --max-stacks). Samples beyond a limit are counted under these names, without labels of their own.",
      level: "note",
    });
  return out;
}
