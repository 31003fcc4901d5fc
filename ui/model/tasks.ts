// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks, which profile some requests of a service, and the requests that they kept: /api/v1/tasks. Words are those of
 * `culprit ctl task`.
 */
import { array, number, object, text } from "./check.ts";
import type { Range } from "./times.ts";
import { count, duration } from "./text.ts";
import type { Endpoint } from "./traces.ts";
import { isOfKept, WAIT_ORDER, waitNamed } from "./vocab.ts";
import type { Wait } from "./vocab.ts";

/** What a user asks for; what is left out has the server's default. */
export interface NewTask {
  service: string;
  endpoint: string;
  duration_ms: number;
  /** One of the two, or neither: then the requests that fail, or all. */
  min_ms?: number;
  percentile?: number;
  errors: boolean;
  /** The share of the other requests. */
  control: number;
  period_us: number;
  max_requests: number;
}

export interface Why {
  reason: string;
  text: string;
}

export interface TaskAgent {
  host: string;
  /** One of SkyWalking's, in a process of the service. */
  skywalking: boolean;
  state: string;
  reason: string;
  /** ms since the epoch, when it last asked. */
  asked: number;
  processes: number;
  publishing: number;
  kept: number;
  evicted: number;
  lost: number;
}

export interface LogLine {
  at: number;
  host: string;
  text: string;
}

export interface Task {
  id: string;
  state: string;
  service: string;
  endpoint: string;
  /** Which requests it keeps, or what it profiles, in words. */
  keeps: string;
  /** Profiles whole processes, and keeps no requests. */
  ofProcesses: boolean;
  periodUs: number;
  running: boolean;
  waiting: boolean;
  /** ms since the epoch; end 0: when it is cancelled. */
  start: number;
  end: number;
  counts: Counts;
  slowestMs: number;
  why: Why[];
  /** Of one task; a list has neither. */
  agents: TaskAgent[];
  log: LogLine[];
  /** Why a policy added it, as a sentence, and the policy; "" of a user's. */
  cause: string;
  policy: string;
}

/** Requests, each column a part of one to the left of it, but the last. */
export interface Counts {
  /** Requests to the service. */
  seen: number;
  /** To the endpoint, while the task ran. */
  matched: number;
  /** Slow enough, or with an error. */
  wanted: number;
  /** Delivered by agents, wholly or from the middle. */
  kept: number;
  /** Delivered, of those that were chosen at random for comparison. */
  ordinary: number;
  /** That nobody has: agents dropped them, or never had them. */
  dropped: number;
  /** That a budget had no room for. */
  refused: number;
  /** Whose outcome is not known yet. */
  open: number;
}

function readCounts(o: Record<string, unknown>): Counts {
  const of = (group: string, name: string): number => number(object(o[group])[name]);
  const n = (name: string): number => of("counts", name);
  const delivered = (group: string): number => of(group, "kept") + of(group, "partly");
  return { seen: n("outside") + n("other") + n("below") + n("budget") + n("wanted"), matched: n("below") + n("budget") + n("wanted"),
    wanted: n("wanted") - of("reasons", "control"), kept: delivered("outcomes") - delivered("control_outcomes"),
    ordinary: delivered("control_outcomes"), dropped: of("outcomes", "evicted") + of("outcomes", "nobody"), refused: n("budget"),
    open: of("outcomes", "waiting") };
}

const isOfProcesses = (spec: Record<string, unknown>): boolean => (spec["kind"] ?? "requests") !== "requests";

/** "from 100 ms, errors, 1 % of others"; "pprof: cpu" */
function keepsOf(spec: Record<string, unknown>): string {
  if (isOfProcesses(spec))
    return `${text(spec["kind"])}: ${text(spec["events"])}`;
  const { min_ms: min, percentile } = spec;
  const control = number(spec["control"]);
  return [...typeof min === "number" ? [min > 0 ? `from ${duration(1e6 * min)}` : "all"] : [], ...typeof percentile === "number" ? [`above p${percentile}`] : [],
    ...spec["errors"] === true ? ["errors"] : [], ...control > 0 ? [`${+(100 * control).toPrecision(3)} % of others`] : []].join(", ");
}

export function readTask(json: unknown): Task {
  const o = object(json);
  const spec = object(o["spec"]);
  const cause = object(o["cause"] ?? { text: "", policy: "" });
  const list = (name: string): Record<string, unknown>[] => array(o[name] ?? []).map(object);
  return { id: text(o["id"]), state: text(o["state"]), service: text(spec["service"]), endpoint: text(spec["endpoint"]), keeps: keepsOf(spec),
    ofProcesses: isOfProcesses(spec), periodUs: number(spec["period_us"]), running: spec["running"] === true, waiting: spec["waiting"] === true, start: number(o["start"]),
    end: number(o["end"]), counts: readCounts(o), slowestMs: number(o["slowest_ms"]),
    why: list("why").map((w) => ({ reason: text(w["reason"]), text: text(w["text"]) })),
    agents: list("agents").map((a) => ({ host: text(a["host"]), skywalking: text(a["host_id"]) === "skywalking", state: text(a["state"]), reason: text(a["reason"]), asked: number(a["asked"]),
      processes: number(a["processes"]), publishing: number(a["publishing"]), kept: number(a["kept"]), evicted: number(a["evicted"]), lost: number(a["lost"]) })),
    log: list("log").map((l) => ({ at: number(l["at"]), host: text(l["host"]), text: text(l["text"]) })), cause: text(cause["text"]), policy: text(cause["policy"]) };
}

export function readTasks(json: unknown): Task[] {
  return array(object(json)["tasks"]).map(readTask);
}

/** Whether it can be cancelled. */
export const isLive = (t: Task): boolean => t.state === "running" || t.state === "queued";

/* ---- kept requests ---- */

export interface KeptRequest {
  trace: string;
  span: string;
  endpoint: string;
  /** ms since the epoch, ms. */
  start: number;
  duration: number;
  status: string;
  reason: string;
  outcome: string;
  host: string;
  samples: number;
  states: State[];
}

/** Time in a state. */
export interface State {
  name: string;
  /** Undefined for a state that is no wait, such as "unknown". */
  wait: Wait | undefined;
  ms: number;
}

export interface Kept extends Range {
  requests: KeptRequest[];
  /** With the answer about one trace: time by state, by the id of a span. */
  spans: Map<string, State[]>;
}

/** In the order of the table, so that bars of several requests compare; what is not in it comes last. */
export function readStates(json: unknown): State[] {
  const order = (s: State): number => s.wait ? WAIT_ORDER.indexOf(s.wait) : WAIT_ORDER.length;
  return Object.entries(object(json)).map(([name, ms]) => ({ name, wait: waitNamed(name), ms: number(ms) }))
    .filter((s) => s.ms > 0).sort((a, b) => order(a) - order(b) || (a.name < b.name ? -1 : 1));
}

export function readKept(json: unknown): Kept {
  const o = object(json);
  return { from: number(o["from"]), to: number(o["to"]), requests: array(o["requests"]).map((x) => {
    const q = object(x);
    return { trace: text(q["trace_id"]), span: text(q["span_id"]), endpoint: text(q["endpoint"]), start: number(q["start_ms"]), duration: number(q["duration_ms"]),
      status: text(q["status"]), reason: text(q["reason"]), outcome: text(q["outcome"]), host: text(q["host"]), samples: number(q["samples"]), states: readStates(q["states"]) };
  }), spans: new Map(array(o["spans"] ?? []).map((x) => {
    const s = object(x);
    return [text(s["span_id"]), readStates(s["states"])];
  })) };
}

/** When a request ran; null: it is not there. */
export function rangeOf(k: Kept | null, trace: string): Range | null {
  const q = k?.requests.find((x) => x.trace === trace);
  return q ? { from: q.start, to: q.start + q.duration } : null;
}

export const sumMs = (states: State[]): number => states.reduce((sum, s) => sum + s.ms, 0);

/** Clocks of the span and of the agent may differ by so much. */
const TOLERANCE_MS = 0.05;

/** What a ledger says besides its parts: time that is in none of them, or that several threads worked at once. */
export function ledgerNote(states: State[], ms: number, snapshots = false): string {
  const sum = sumMs(states);
  const unknown = states.find((s) => s.name === "unknown")?.ms ?? 0;
  const d = (v: number): string => duration(1e6 * v);
  if (states.length === 0)
    return snapshots ? "SkyWalking's agents send snapshots, and no time by state" : "its time by state has not arrived yet";
  if (sum > ms + TOLERANCE_MS)
    return `${d(sum)} of thread time in ${d(ms)}: several threads worked at the same time`;
  return [...sum < ms - TOLERANCE_MS ? [`${d(ms - sum)} in no thread of the request`] : [],
    ...unknown > 0 ? [`${d(unknown)} in an unknown state`] : []].join("; ") || `the parts add up to ${d(ms)}`;
}

/** The types of the stacks of kept requests, among all: culprit's agents and SkyWalking's name different periods. */
export function keptTypes(types: string[]): string[] {
  return types.filter(isOfKept);
}

const REASONS: Record<string, string> = { slow: "slow", error: "failed", percentile: "slower than most", long: "very long", control: "ordinary, chosen at random" };

export const reasonText = (reason: string): string => REASONS[reason] ?? reason;

const OUTCOMES: Record<string, string> = { kept: "kept", partly: "kept without the first samples", evicted: "dropped before the decision", waiting: "waiting for its agent",
  nobody: "no agent had it" };

export const outcomeText = (outcome: string): string => OUTCOMES[outcome] ?? outcome;

/** Whether there may be stacks of it. */
export const isDelivered = (q: KeptRequest): boolean => q.outcome === "kept" || q.outcome === "partly" || q.samples > 0 || q.states.length > 0;

/* ---- a new task ---- */

export const CONTROL_SHARE = 0.01;

/** Two digits, not above the value, so that requests at the percentile are slow. */
function rounded(ms: number): number {
  const unit = 10 ** (Math.floor(Math.log10(ms)) - 1);
  return +(Math.floor(ms / unit) * unit).toPrecision(2);
}

/** Sensible values for the requests of an endpoint: the slowest twentieth of them, for five minutes. */
export function taskFor(e: Pick<Endpoint, "service" | "name" | "p95"> | null): NewTask {
  return { service: e?.service ?? "", endpoint: e?.name ?? "", duration_ms: 300000, min_ms: e && e.p95 > 0 ? rounded(e.p95) : 100, errors: false,
    control: CONTROL_SHARE, period_us: 10000, max_requests: 100 };
}

/** What the counts of a task say in a line. */
export function countsText(c: Counts): string {
  return `${count(c.seen)} requests seen, ${count(c.matched)} to the endpoint, ${count(c.wanted)} wanted, ${count(c.kept)} kept, ${count(c.ordinary)} ordinary ones kept` +
    `${c.dropped > 0 ? `, ${count(c.dropped)} lost` : ""}${c.refused > 0 ? `, ${count(c.refused)} beyond the budget` : ""}`;
}
