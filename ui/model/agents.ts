// SPDX-License-Identifier: Apache-2.0
/* What agents tell of themselves: GET /api/v1/agents. */
import { array, number, object, text } from "./check.ts";
import type { Filter } from "./address.ts";
import type { Losses } from "./stats.ts";

export interface Loss {
  reason: string;
  count: number;
  /** What to do about it. */
  help: string;
}

export interface Agent {
  host: string;
  version: string;
  kernel: string;
  arch: string;
  /** ms since the epoch: when it started, when something came last. */
  started: number;
  last: number;
  hz: number;
  /** Of its own: share of one CPU since it last told, and bytes. */
  cpu: number;
  rss: number;
  processes: number;
  /** Since it started. */
  samples: number;
  truncated: number;
  lost: Loss[];
  /** Its last error, "" for none. */
  error: string;
  /** Of the range that was asked for, and a bit around it; null: nothing is known of it. */
  range: { from: number; to: number; samples: number; lost: number } | null;
}

export interface Agents {
  /** The server's version, to compare theirs with. */
  version: string;
  agents: Agent[];
}

function readRange(x: Record<string, unknown>): Agent["range"] {
  return { from: number(x["from"]), to: number(x["to"]), samples: number(x["samples"]), lost: number(x["lost"]) };
}

export function readAgents(json: unknown): Agents {
  const o = object(json);
  return {
    version: text(o["version"]),
    agents: array(o["agents"]).map((a) => {
      const x = object(a);
      return {
        host: text(x["host"]), version: text(x["version"]), kernel: text(x["kernel"]), arch: text(x["arch"]),
        started: number(x["started"]), last: number(x["last"]), hz: number(x["hz"]), cpu: number(x["cpu"]), rss: number(x["rss"]),
        processes: number(x["processes"]), samples: number(x["samples"]), truncated: number(x["truncated"]),
        lost: array(x["lost"]).map((l) => ({ reason: text(object(l)["reason"]), count: number(object(l)["count"]),
          help: text(object(l)["help"]) })),
        error: text(x["error"]), range: x["range"] === null ? null : readRange(object(x["range"])),
      };
    }),
  };
}

/** Of the hosts that are looked at, added up; null: none told anything of that time. */
export function lossesOf(a: Agents, filters: Filter[]): Losses | null {
  const of = filters.filter((f) => f.label === "host.name");
  const ranges = a.agents.filter((x) => of.every((f) => (x.host === f.value) !== f.not)).map((x) => x.range).filter((r) => r !== null);
  if (ranges.length === 0)
    return null;
  const sum = (of: "samples" | "lost"): number => ranges.reduce((n, r) => n + r[of], 0);
  return { agents: ranges.length, samples: sum("samples"), lost: sum("lost"),
    from: Math.min(...ranges.map((r) => r.from)), to: Math.max(...ranges.map((r) => r.to)) };
}

/** Nothing for so long, in ms, and an agent counts as silent: it sends every few seconds. */
export const SILENT_MS = 60000;

/** What is wrong with an agent and what to do, worst first; empty when all is well. */
export function complaints(a: Agent, server: string, now: number): string[] {
  const out: string[] = [];
  if (now - a.last > SILENT_MS)
    out.push("It has sent nothing for a while. Is the machine up, is culprit agent running there, and can it reach this server?");
  if (a.error !== "")
    out.push(a.error);
  const lost = a.lost.reduce((sum, l) => sum + l.count, 0);
  if (lost > 0.01 * (a.samples + lost))
    out.push(`It lost ${(100 * lost / (a.samples + lost)).toFixed(1)} % of its samples. ${a.lost[0]?.help ?? ""}`.trim());
  if (a.cpu > 0.05)
    out.push("It uses more than 5 % of a CPU. Lower the rate (--frequency) or add a filter.");
  if (a.version !== server)
    out.push(`Its version is ${a.version}, this server's is ${server}.`);
  return out;
}
