// SPDX-License-Identifier: Apache-2.0
/*
 * Policies, which add tasks when something has reached a threshold: /api/v1/policies. Words are those of
 * `culprit ctl policy`.
 */
import { array, number, object, text } from "./check.ts";

/** What a user asks for; what is left out has the server's default. */
export interface NewPolicy {
  service: string;
  cause: string;
  threshold: number;
  endpoint: string;
  window_ms: number;
  count: number;
  of: number;
}

export interface Policy {
  id: string;
  service: string;
  endpoint: string;
  /** When it fires, in words. */
  fires: string;
  /** Tasks that it added, oldest first, with the cause as a sentence. */
  fired: { task: string; at: number; text: string }[];
  /** How often it came to which verdict, in words. */
  verdicts: string;
}

/** Cause, its name for people, and the unit of the threshold. */
export const CAUSES: readonly (readonly [string, string, string])[] = [
  ["cpu", "CPU of a process", "% of a CPU"], ["threads", "threads of a process", "threads"], ["load", "load of a machine", "for each CPU"],
  ["errors", "requests that fail", "% of requests"], ["latency", "latency of an endpoint", "ms"]];

/** Whether the cause is about endpoints. */
export const isOfEndpoint = (cause: string): boolean => cause === "errors" || cause === "latency";

/** "CPU of a process from 150 % of a CPU, 3 of 5 windows of 10 s" */
function firesOf(spec: Record<string, unknown>): string {
  const cause = text(spec["cause"]);
  const [, name, unit] = CAUSES.find(([c]) => c === cause) ?? [cause, cause, ""];
  const { percentile } = spec;
  return `${name}${typeof percentile === "number" ? ` (p${percentile})` : ""} from ${number(spec["threshold"])} ${unit}, ${number(spec["count"])} of ${number(spec["of"])} ` +
    `windows of ${number(spec["window_ms"]) / 1000} s`;
}

export function readPolicies(json: unknown): Policy[] {
  return array(object(json)["policies"]).map(object).map((o) => {
    const spec = object(o["spec"]);
    const verdicts = Object.entries(object(o["verdicts"])).filter(([, n]) => number(n) > 0);
    return { id: text(o["id"]), service: text(spec["service"]), endpoint: text(spec["endpoint"]), fires: firesOf(spec),
      fired: array(o["fired"]).map(object).map((f) => ({ task: text(f["task"]), at: number(object(f["cause"])["at"]), text: text(object(f["cause"])["text"]) })),
      verdicts: verdicts.map(([name, n]) => `${number(n)} ${name.replace(/_/g, " ")}`).join(", ") };
  });
}
