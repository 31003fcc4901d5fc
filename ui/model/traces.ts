// SPDX-License-Identifier: Apache-2.0
/*
 * Requests, endpoints and traces: /api/v1/traces, /api/v1/endpoints, /api/v1/traces/ID. A trace becomes rows of a
 * waterfall: each span below its parent, in order of start. Ids of parents may be of spans that are not here, or form a
 * circle; every span has its row in any case.
 */
import { array, number, object, text } from "./check.ts";
import { duration } from "./text.ts";
import type { Range } from "./times.ts";

export const STATUSES = ["", "ok", "error", "unset"] as const;
export type Status = (typeof STATUSES)[number];

export const PERCENTILES = [90, 95, 98, 99, 99.9];

export const SHOWN = ["list", "picture", "slow", "chart"] as const;
export type Shown = (typeof SHOWN)[number];

/** Which requests, and what of them is shown. */
export interface RequestState {
  endpoint: string;
  /** ms; 0: no bound. */
  min: number;
  max: number;
  status: Status;
  show: Shown;
  /** Percentile above which a request is slow. */
  slow: number;
  /** One trace, and one of its spans; "": none, all of it. */
  trace: string;
  span: string;
  /** The span itself, without those below it. */
  only: boolean;
  /** The order of the requests: a column, "-" before it: descending. */
  order: string;
}

export const NO_REQUEST: RequestState = { endpoint: "", min: 0, max: 0, status: "", show: "list", slow: 95, trace: "", span: "", only: false, order: "-duration_ms" };

/** What the server sorts by. */
export const ENDPOINT_ORDERS = ["service", "endpoint", "requests", "error_share", "running", "p50_ms", "p95_ms", "p99_ms", "max_ms", "value"];
export const REQUEST_ORDERS = ["duration_ms", "endpoint", "service", "status", "start_ms", "value"];

/** An order of these, or the default. */
export function orderOf(text: string, columns: string[], otherwise: string): string {
  return columns.includes(text.replace(/^-/, "")) ? text : otherwise;
}

export interface Endpoint {
  service: string;
  name: string;
  requests: number;
  errors: number;
  /** Requests that run what was asked for. */
  running: number;
  p50: number;
  p95: number;
  p99: number;
  max: number;
  samples: number;
  value: number;
}

export interface Request {
  trace: string;
  service: string;
  endpoint: string;
  status: string;
  /** ms since the epoch, ms. */
  start: number;
  duration: number;
  samples: number;
  value: number;
  /** So many like it are there or were. */
  standsFor: number;
}

/** How much of a list is there. */
export interface ListOf {
  /** Rows before the search, and those that match it. */
  total: number;
  matching: number;
  /** Requests to all endpoints. */
  requests: number;
  /** One of so many traces was looked at. */
  shareOf: number;
}

export function readListOf(json: unknown): ListOf {
  const o = object(json);
  return { total: number(o["total"]), matching: number(o["matching"]), requests: number(o["requests"]), shareOf: number(o["share_of"]) };
}

/** Of several requests with the same parameters. */
export function parametersOf(r: RequestState, service: string): Record<string, string | number> {
  if (r.trace !== "")
    return { trace: r.trace, span: r.span, children: r.span !== "" && !r.only ? "true" : "" };
  return { service, endpoint: r.endpoint, min_ms: r.min || "", max_ms: r.max || "", status: r.status };
}

export function readEndpoints(json: unknown): Endpoint[] {
  return array(object(json)["endpoints"]).map((e) => {
    const o = object(e);
    const n = (k: string): number => number(o[k]);
    return { service: text(o["service"]), name: text(o["endpoint"]), requests: n("requests"), errors: n("errors"), running: n("running"),
      p50: n("p50_ms"), p95: n("p95_ms"), p99: n("p99_ms"), max: n("max_ms"), samples: n("samples"), value: n("value") };
  });
}

export function readRequests(json: unknown): Request[] {
  return array(object(json)["traces"]).map((t) => {
    const o = object(t);
    return { trace: text(o["trace_id"]), service: text(o["service"]), endpoint: text(o["endpoint"]), status: text(o["status"]),
      start: number(o["start_ms"]), duration: number(o["duration_ms"]), samples: number(o["samples"]), value: number(o["value"]),
      standsFor: number(o["stands_for"]) };
  });
}

export interface Span {
  id: string;
  parent: string;
  service: string;
  name: string;
  kind: string;
  status: string;
  message: string;
  start: number;
  duration: number;
  /** Taken in the span itself. */
  samples: number;
  value: number;
  /** What its threads did, by state: "running", or waits. */
  states: Waited[];
  attributes: [string, string][];
  /** ms since its start. */
  events: { at: number; text: string }[];
  /** How far from the left it stands, in levels. */
  depth: number;
}

/** Another tool's page of a trace; {trace} and {span} in the URL stand for ids. */
export interface TraceLink {
  name: string;
  url: string;
}

export interface Waterfall extends Range {
  trace: string;
  links: TraceLink[];
  spans: Span[];
  type: string;
  /** What is in none of the spans that are here. */
  other: { samples: number; value: number; states: Waited[] };
  services: string[];
}

/** By start within one parent; whose parent is not here stands at the root. */
function ordered(spans: Span[]): Span[] {
  const byId = new Map(spans.map((s) => [s.id, s]));
  const children = new Map<string, Span[]>();
  const roots: Span[] = [];
  for (const s of [...spans].sort((a, b) => a.start - b.start || (a.id < b.id ? -1 : 1)))
    if (s.parent !== "" && s.parent !== s.id && byId.has(s.parent))
      children.set(s.parent, [...children.get(s.parent) ?? [], s]);
    else
      roots.push(s);
  const out: Span[] = [];
  const seen = new Set<string>();
  const walk = (from: Span[]): void => {
    const stack = [...from].reverse().map((s): [Span, number] => [s, 0]);
    while (stack.length > 0) {
      const [s, depth] = stack.pop()!;
      if (seen.has(s.id))
        continue;
      seen.add(s.id);
      out.push({ ...s, depth });
      for (const c of [...children.get(s.id) ?? []].reverse())
        stack.push([c, depth + 1]);
    }
  };
  walk(roots);
  // What is left are circles.
  for (const s of spans)
    if (!seen.has(s.id))
      walk([s]);
  return out;
}

const waited = (json: unknown): Waited[] => Object.entries(object(json ?? {})).map(([name, v]) => ({ name, ns: 1e6 * number(v) }));

export function readWaterfall(json: unknown): Waterfall {
  const o = object(json);
  const spans = ordered(array(o["spans"]).map((x) => {
    const s = object(x);
    return { id: text(s["span_id"]), parent: text(s["parent_id"] ?? ""), service: text(s["service"]), name: text(s["name"]),
      kind: text(s["kind"]), status: text(s["status"]), message: text(s["message"] ?? ""), start: number(s["start_ms"]),
      duration: number(s["duration_ms"]), samples: number(s["samples"]), value: number(s["value"]), states: waited(s["states_ms"]),
      attributes: Object.entries(object(s["attributes"])).map(([k, v]): [string, string] => [k, text(v)]),
      events: array(s["events"] ?? []).map(object).map((e) => ({ at: number(e["at_ms"]), text: text(e["text"]) })), depth: 0 };
  }));
  let from = Infinity;
  let to = -Infinity;
  for (const s of spans) {
    from = Math.min(from, s.start);
    to = Math.max(to, s.start + s.duration);
  }
  const other = object(o["other"]);
  return { trace: text(o["trace_id"] ?? ""), links: array(o["links"] ?? []).map((l) => ({ name: text(object(l)["name"]), url: text(object(l)["url"]) })),
    spans, from: spans.length ? from : 0, to: spans.length ? Math.max(to, from + 1e-6) : 1, type: text(o["type"]),
    other: { samples: number(other["samples"]), value: number(other["value"]), states: waited(other["states_ms"]) }, services: [...new Set(spans.map((s) => s.service))] };
}

/** The time of the chosen span, or of the trace. */
export function spanRange(w: Waterfall, id: string): Range {
  const s = w.spans.find((x) => x.id === id);
  return s ? { from: s.start, to: s.start + Math.max(s.duration, 1e-3) } : { from: w.from, to: w.to };
}

/** The span and all below it: samples, value. Spans are those of a waterfall. */
export function below(w: Waterfall, at: number): { samples: number; value: number } {
  const first = w.spans[at]!;
  const sum = { samples: 0, value: 0 };
  for (let i = at; i < w.spans.length && (i === at || w.spans[i]!.depth > first.depth); i++) {
    sum.samples += w.spans[i]!.samples;
    sum.value += w.spans[i]!.value;
  }
  return sum;
}

/** The address of a trace in another tool; "" unless it is http or https. */
export function linkTo(l: TraceLink, trace: string, span: string): string {
  const url = l.url.replaceAll("{trace}", encodeURIComponent(trace)).replaceAll("{span}", encodeURIComponent(span));
  return /^https?:\/\//.test(url) ? url : "";
}

/** A sum of the time of threads in one state. */
export interface Waited {
  name: string;
  ns: number;
}

/** What threads did in the trace, or in the span at a position with what is below it unless `only`; longest first. */
export function statesOf(w: Waterfall, at: number, only: boolean): Waited[] {
  const from = w.spans[at];
  let end = at + 1;
  while (from && !only && end < w.spans.length && w.spans[end]!.depth > from.depth)
    end++;
  const sums = new Map<string, number>();
  for (const s of from ? w.spans.slice(at, end) : [...w.spans, w.other])
    for (const { name, ns } of s.states)
      sums.set(name, (sums.get(name) ?? 0) + ns);
  return [...sums].map(([name, ns]) => ({ name, ns })).sort((a, b) => b.ns - a.ns);
}

/**
 * Where the time of a request or span went. The sums are of all its threads, so they are not shares of its duration; time
 * without any samples is said as a rest, if there was one thing at a time. hasWaits: agents record waits.
 */
export function whereTime(ns: number, states: Waited[], hasWaits: boolean): string {
  const sum = (list: Waited[]): number => list.reduce((all, s) => all + s.ns, 0);
  const waits = states.filter((s) => s.name !== "running");
  const waiting = sum(waits);
  const rest = ns - sum(states);
  const said = [`CPU ${duration(sum(states) - waiting)}${waiting > 0 ? ` and ${duration(waiting)} of waiting` : ""} in ${duration(ns)}${
    waiting > 0 ? `: ${waits.map((w) => `${w.name === "runnable" ? "for a CPU" : w.name} ${duration(w.ns)}`).join(", ")}` : ""}.`];
  if (rest < -0.02 * ns)
    said.push("Several threads worked at once.");
  else if (rest > 0.02 * ns)
    said.push(`No samples for ${duration(rest)}: ${hasWaits ? "its threads are not known to belong to this request then." : "agents record waits with --off-cpu."}`);
  return said.join(" ");
}
