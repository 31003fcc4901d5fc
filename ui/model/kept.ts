// SPDX-License-Identifier: Apache-2.0
/* Times by state of all requests that a task kept: /api/v1/tasks/ID/times. */
import { array, number, object, text } from "./check.ts";
import { readStates } from "./tasks.ts";
import type { State } from "./tasks.ts";

/** What is shown of all kept requests; "": each by itself. */
export const KEPT_SHOWN = ["", "slow", "control", "difference"] as const;
export type KeptShown = (typeof KEPT_SHOWN)[number];
export const KEPT_GROUPS = ["slow", "control"] as const;
export type KeptGroup = (typeof KEPT_GROUPS)[number];

/** ms. */
export interface Distribution {
  mean: number;
  p50: number;
  p95: number;
  max: number;
}

export interface GroupTimes {
  /** Whose time is known, and of these the ones without their beginning; whose time is not. */
  requests: number;
  partly: number;
  leftOut: number;
  /** null: of no request. */
  wall: Distribution | null;
  /** In no thread that carried the request; of several threads at once. */
  rest: Distribution | null;
  overlap: Distribution | null;
  states: Map<string, Distribution>;
  /** Their means. */
  means: State[];
}

export interface Times {
  endpoints: { name: string; slow: number; control: number }[];
  groups: Record<KeptGroup, GroupTimes>;
}

function readDistribution(json: unknown): Distribution {
  const o = object(json);
  return { mean: number(o["mean_ms"]), p50: number(o["p50_ms"]), p95: number(o["p95_ms"]), max: number(o["max_ms"]) };
}

function readGroup(json: unknown): GroupTimes {
  const o = object(json);
  const of = (name: string): Distribution | null => (o[name] === undefined ? null : readDistribution(o[name]));
  const states = new Map(Object.entries(object(o["states"] ?? {})).map(([name, d]) => [name, readDistribution(d)]));
  return { requests: number(o["requests"]), partly: number(o["partly"]), leftOut: number(o["left_out"]), wall: of("wall"), rest: of("rest"), overlap: of("overlap"), states,
    means: readStates(Object.fromEntries([...states].map(([name, d]) => [name, d.mean]))) };
}

export function readTimes(json: unknown): Times {
  const o = object(json);
  const groups = object(o["groups"]);
  return { endpoints: array(o["endpoints"]).map((x) => {
    const e = object(x);
    return { name: text(e["name"]), slow: number(e["slow"]), control: number(e["control"]) };
  }), groups: { slow: readGroup(groups["slow"]), control: readGroup(groups["control"]) } };
}

/** States of any of the groups, in the order of the table. */
export function allStates(t: Times): State[] {
  const sums = new Map<string, number>();
  for (const g of KEPT_GROUPS)
    for (const [name, d] of t.groups[g].states)
      sums.set(name, (sums.get(name) ?? 0) + d.max);
  return readStates(Object.fromEntries(sums));
}
