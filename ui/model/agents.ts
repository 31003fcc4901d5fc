// SPDX-License-Identifier: Apache-2.0
/* What agents report about themselves: GET /api/v1/agents. */
import { array, number, object, text } from "./check.ts";
import type { Filter } from "./address.ts";
import type { Losses } from "./stats.ts";
import { count, duration, percent } from "./text.ts";

export interface Counter {
  name: string;
  /** What a profile lacks for each counted event: the sample, its stack, or nothing. */
  loss: "lost" | "incomplete" | "counted";
  /** "" for a counter that this server does not know. */
  unit: string;
  help: string;
  count: number;
}

/** Profiles that never came here, because the agent's exporter dropped them. */
export interface Drop {
  reason: string;
  /** "" for a reason that this server does not know. */
  help: string;
  profiles: number;
}

export interface Source {
  /** As in --event. */
  event: string;
  /** Of the type of its values: "Page faults"; of an event without a type of its own: the event. */
  label: string;
  /** Samples per second on each CPU; 0: it has no rate, but a sample for each `period` events, or for each wait of at least `period` ns. */
  hz: number;
  period: number;
}

export interface Agent {
  host: string;
  version: string;
  kernel: string;
  arch: string;
  /** ms since the epoch: the agent's start, and the arrival of its last report. */
  started: number;
  last: number;
  /** By the agent's clock: its newest sample in that report. */
  newest: number;
  sources: Source[];
  /** The agent's own use: CPUs since its previous report, and bytes of memory. */
  cpu: number;
  rss: number;
  processes: number;
  /** Counts since the agent's start. */
  samples: number;
  truncated: number;
  counters: Counter[];
  /** Samples in dropped profiles. */
  dropped: number;
  drops: Drop[];
  /** The agent's last error, "" for none. */
  error: string;
  /** Counts in the requested range, or in a slightly wider one; null: unknown. */
  range: { from: number; to: number; samples: number; lost: number; dropped: number } | null;
}

export interface Agents {
  /** The server's version, for comparison with those of the agents. */
  version: string;
  agents: Agent[];
}

function readCounter(json: unknown): Counter {
  const x = object(json);
  const loss = text(x["loss"]);
  return { name: text(x["name"]), loss: loss === "lost" || loss === "incomplete" ? loss : "counted", unit: text(x["unit"]),
    help: text(x["help"]), count: number(x["count"]) };
}

function readDrop(json: unknown): Drop {
  const x = object(json);
  return { reason: text(x["reason"]), help: text(x["help"]), profiles: number(x["profiles"]) };
}

function readSource(json: unknown): Source {
  const x = object(json);
  return { event: text(x["event"]), label: text(x["label"]), hz: number(x["hz"]), period: number(x["period"]) };
}

function readRange(x: Record<string, unknown>): Agent["range"] {
  return { from: number(x["from"]), to: number(x["to"]), samples: number(x["samples"]), lost: number(x["lost"]),
    dropped: number(x["dropped"]) };
}

export function readAgents(json: unknown): Agents {
  const o = object(json);
  return {
    version: text(o["version"]),
    agents: array(o["agents"]).map((a) => {
      const x = object(a);
      return {
        host: text(x["host"]), version: text(x["version"]), kernel: text(x["kernel"]), arch: text(x["arch"]),
        started: number(x["started"]), last: number(x["last"]), newest: number(x["newest"]), sources: array(x["sources"]).map(readSource), cpu: number(x["cpu"]), rss: number(x["rss"]),
        processes: number(x["processes"]), samples: number(x["samples"]), truncated: number(x["truncated"]),
        counters: array(x["counters"]).map(readCounter), dropped: number(x["dropped"]), drops: array(x["drops"]).map(readDrop),
        error: text(x["error"]), range: x["range"] === null ? null : readRange(object(x["range"])),
      };
    }),
  };
}

/** Adds up the losses on the selected hosts; null: no agent reported any counts for the range. */
export function lossesOf(a: Agents, filters: Filter[]): Losses | null {
  const of = filters.filter((f) => f.label === "host.name");
  const ranges = a.agents.filter((x) => of.every((f) => (x.host === f.value) !== f.not)).map((x) => x.range).filter((r) => r !== null);
  if (ranges.length === 0)
    return null;
  const sum = (of: "samples" | "lost" | "dropped"): number => ranges.reduce((n, r) => n + r[of], 0);
  return { agents: ranges.length, samples: Math.max(0, sum("samples") - sum("dropped")), lost: sum("lost") + sum("dropped"),
    from: Math.min(...ranges.map((r) => r.from)), to: Math.max(...ranges.map((r) => r.to)) };
}

/** Returns how many samples an agent has lost since its start, those in dropped profiles among them. */
export function lostBy(a: Agent): number {
  return a.counters.reduce((sum, c) => sum + (c.loss === "lost" ? c.count : 0), a.dropped);
}

/** Samples in profiles that were not dropped. */
export function keptBy(a: Agent): number {
  return Math.max(0, a.samples - a.dropped);
}

/** "CPU 19 Hz", "Page faults 1 in 100", "sched:sched_switch each", "Waiting each from 8.19 ms" */
export function sourceText(s: Source): string {
  const often = s.hz > 0 ? `${count(s.hz)} Hz` : s.period <= 1 ? "each"
    : s.event === "off-cpu" ? `each from ${duration(s.period)}` : `1 in ${count(s.period)}`;
  return `${s.label} ${often}`;
}

const sentence = (help: string): string => (help === "" ? "" : ` ${help[0]!.toUpperCase()}${help.slice(1)}.`);

/** "5 profiles dropped (refused). The destination refused the request for good." */
export function dropText(d: Drop): string {
  return `${count(d.profiles)} ${d.profiles === 1 ? "profile" : "profiles"} dropped (${d.reason}).${sentence(d.help)}`;
}

/** Returns, for example, "5 samples lost (nested). Not sampled: the program interrupted itself on this CPU." */
export function counterText(c: Counter): string {
  const what = [count(c.count), c.unit, c.loss === "counted" ? "" : c.loss].filter((w) => w !== "").join(" ");
  return `${what} (${c.name}).${sentence(c.help)}`;
}

/** An agent that has sent nothing for so many ms counts as silent: it sends every few seconds. */
export const SILENT_MS = 60000;

/** An agent's newest sample is younger than this, and not from the future, when both clocks are right. */
const LATE_MS = 600_000;
const AHEAD_MS = 60_000;

function clockComplaint(a: Agent): string[] {
  const ahead = a.newest - a.last;
  if (ahead > AHEAD_MS)
    return [`Its samples are from ${duration(1e6 * ahead)} in the future: the clock of that machine is wrong, or this server's.`];
  if (ahead < -LATE_MS)
    return [`Its newest samples were ${duration(-1e6 * ahead)} old when they arrived: it sends what it kept, or the clock of that machine is wrong, or this server's.`];
  return [];
}

/** Returns an agent's problems and their remedies, worst first; empty if there are none. */
export function complaints(a: Agent, server: string, now: number): string[] {
  const out: string[] = [];
  if (now - a.last > SILENT_MS)
    out.push("This agent has sent nothing for a while. Is the machine up, is culprit agent running there, and can it reach this server?");
  if (a.error !== "")
    out.push(a.error);
  out.push(...clockComplaint(a));
  const lost = lostBy(a);
  const all = keptBy(a) + lost;
  if (lost > 0.01 * all)
    out.push(`This agent lost ${percent(lost / all)} of its samples.`);
  if (a.cpu > 0.05)
    out.push(`This agent uses ${percent(a.cpu)} of a CPU. Lower --frequency or add a filter.`);
  if (a.version !== server)
    out.push(`This agent has version ${a.version}, the server ${server}.`);
  return out;
}
