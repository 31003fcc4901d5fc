// SPDX-License-Identifier: Apache-2.0
/*
 * The state of the served page as text for location.search: the view, the selection, the time, and
 * the other side of a comparison. Only values that differ from the defaults are written; unknown
 * keys are skipped, and wrong values read as defaults.
 */
import { ESTIMATORS } from "./analysis.ts";
import type { Estimator } from "./analysis.ts";
import { KEPT_SHOWN } from "./kept.ts";
import type { KeptShown } from "./kept.ts";
import { asPredicate } from "./predicate.ts";
import { literal } from "./search.ts";
import { decodeSpan, encodeSpan } from "./times.ts";
import { NO_REQUEST, orderOf, PERCENTILES, REQUEST_ORDERS, SHOWN, STATUSES } from "./traces.ts";
import type { RequestState } from "./traces.ts";
import type { Range } from "./times.ts";

export const VIEWS = ["overview", "flame", "services", "compare", "traces", "tasks", "agents", "files", "growth"] as const;
export type ViewName = (typeof VIEWS)[number];

export const CHARTS = ["bars", "stack", "function", "threads", "heat"] as const;
export type ChartBy = (typeof CHARTS)[number];

/** Tables of waits; "": none; threads: in a file, where there is no other place for lanes. */
export const WAIT_VIEWS = ["", "category", "lock", "peer", "wakers", "threads"] as const;
export type WaitView = (typeof WAIT_VIEWS)[number];

/** label = value, or label != value. */
export interface Filter {
  label: string;
  value: string;
  not: boolean;
}

/** The other side of a comparison. */
export interface Base {
  /** How many seconds before this side, if it has no range of its own; 0: the same time, with another selection. */
  ago: number;
  range: Range | null;
  /** null: the same service as on this side. */
  service: string | null;
  filters: Filter[] | null;
}

/** A function in a binary. */
export interface CodeOf {
  name: string;
  file: string;
  buildId: string;
}

export interface LiveState {
  view: ViewName;
  /** service.name, "" for all. */
  service: string;
  /** The server's name of the sample type, "" for the first type. */
  type: string;
  filters: Filter[];
  /** Predicate over the frames of a stack, "" for all stacks. */
  stacks: string;
  /** Label whose values are the first level of the picture; "" for services. */
  group: string;
  chart: ChartBy;
  /** Only lanes of threads with this text in their names. */
  lane: string;
  waits: WaitView;
  /** Show waits for work, too. */
  idle: boolean;
  /** The overview counts culprit itself, too. */
  self: boolean;
  /** Source file that is shown over the picture, "" for none. */
  source: string;
  /** The line to show, 0: the heaviest. */
  line: number;
  /** Function whose instructions are shown over the picture, null for none. */
  code: CodeOf | null;
  /** The services view: label whose values are the rows, "" for services. There and of endpoints: the search for names; the order. */
  by: string;
  find: string;
  sort: string;
  /** State of the traces view. */
  requests: RequestState;
  /** The id of the task that is shown, "" for all. */
  task: string;
  /** The id of the measurement that is shown over the view, "" for none. */
  measure: string;
  /** Of an opened request: its calls, by this estimate, instead of the flame graph. */
  calls: Estimator;
  /** Of its calls: all threads and processes as one tree. */
  whole: boolean;
  /** Of a task: all requests that it kept together, which of them; "": the list of its requests. */
  kept: KeptShown;
  /** Seconds that the live view goes back. */
  last: number;
  /** null: live. */
  range: Range | null;
  base: Base;
}

export const LIVE_DEFAULTS: LiveState = {
  view: "overview", service: "", type: "", filters: [], stacks: "", group: "", chart: "bars", lane: "", waits: "", idle: false, self: false, source: "", line: 0, code: null, by: "", find: "", sort: "", requests: NO_REQUEST, task: "", measure: "", calls: "", whole: false, kept: "",
  last: 300, range: null,
  base: { ago: 3600, range: null, service: null, filters: null },
};

/** How far a comparison can go back. */
export const AGOS: [number, string][] = [
  [300, "5 min before"], [3600, "1 h before"], [86400, "1 day before"], [604800, "1 week before"],
];

export function putFilters(q: URLSearchParams, prefix: string, filters: Filter[]): void {
  for (const f of filters)
    q.append(prefix + (f.not ? "not" : "is"), `${f.label}=${f.value}`);
}

export function putRange(q: URLSearchParams, prefix: string, range: Range | null): void {
  if (range) {
    q.set(prefix + "from", String(range.from));
    q.set(prefix + "to", String(range.to));
  }
}

export function encodeLive(s: LiveState): string {
  const q = new URLSearchParams();
  const d = LIVE_DEFAULTS;
  for (const key of ["service", "type", "stacks", "group", "chart", "lane", "waits", "source", "by", "find", "sort", "task", "measure", "calls", "kept"] as const)
    if (s[key] !== d[key])
      q.set(key, s[key]);
  if (s.source !== "" && s.line > 0)
    q.set("line", String(s.line));
  if (s.whole)
    q.set("whole", "1");
  for (const key of ["idle", "self"] as const)
    if (s[key])
      q.set(key, "1");
  if (s.code) {
    q.set("fn", s.code.name);
    q.set("binary", s.code.file);
    q.set("build", s.code.buildId);
  }
  for (const key of ["endpoint", "status", "trace", "span"] as const)
    if (s.requests[key] !== "")
      q.set(key, s.requests[key]);
  for (const key of ["min", "max"] as const)
    if (s.requests[key] > 0)
      q.set(key, String(s.requests[key]));
  if (s.requests.show !== "list")
    q.set("show", s.requests.show);
  if (s.requests.slow !== NO_REQUEST.slow)
    q.set("slow", String(s.requests.slow));
  if (s.requests.order !== NO_REQUEST.order)
    q.set("order", s.requests.order);
  if (s.requests.only)
    q.set("only", "1");
  putFilters(q, "", s.filters);
  if (s.last !== d.last)
    q.set("last", encodeSpan(s.last));
  putRange(q, "", s.range);
  if (s.base.ago !== d.base.ago)
    q.set("ago", encodeSpan(s.base.ago));
  putRange(q, "base-", s.base.range);
  if (s.base.service !== null)
    q.set("base-service", s.base.service);
  if (s.base.filters) {
    putFilters(q, "base-", s.base.filters);
    if (s.base.filters.length === 0)
      q.set("base-all", "1");
  }
  // Without anything else the address is that of the overview; an address that selects data shows a flame graph.
  if (s.view !== (q.size > 0 ? "flame" : "overview"))
    q.set("view", s.view);
  return q.toString();
}

function time(text: string | null): number {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : -1;
}

export function takeRange(q: URLSearchParams, prefix: string): Range | null {
  const from = time(q.get(prefix + "from"));
  const to = time(q.get(prefix + "to"));
  return from >= 0 && to > from ? { from, to } : null;
}

/** Tells whether the API's selectors accept the name of a label. */
export function askable(label: string): boolean {
  return /^[A-Za-z0-9_.:/\u0080-\uffff-]+$/.test(label);
}

/** Labels that tell most about samples, the best first. */
const TELLING = ["thread.name", "http.route", "deployment.environment.name", "deployment.environment", "service.version", "k8s.deployment.name", "container.name",
  "process.executable.name", "host.name"];

/** The label that the sheet of filters opens with. */
export function firstLabel(names: string[]): string {
  return TELLING.find((n) => names.includes(n)) ?? names[0] ?? "";
}

/** Parses filters. Names of labels have no "=", values may. */
export function takeFilters(q: URLSearchParams, prefix: string): Filter[] {
  const out: Filter[] = [];
  for (const [key, text] of q) {
    const not = key === prefix + "not";
    const at = text.indexOf("=");
    if ((not || key === prefix + "is") && askable(text.slice(0, Math.max(0, at))))
      out.push({ label: text.slice(0, at), value: text.slice(at + 1), not });
  }
  return out.slice(0, 30);
}

function id(text: string | null, digits: number): string {
  return text !== null && text.length === digits && /^[0-9a-f]+$/.test(text) ? text : "";
}

function takeRequests(q: URLSearchParams): RequestState {
  const trace = id(q.get("trace"), 32);
  return {
    endpoint: q.get("endpoint") ?? "", min: Math.max(0, time(q.get("min"))), max: Math.max(0, time(q.get("max"))),
    status: oneOf(q.get("status"), STATUSES), show: oneOf(q.get("show"), SHOWN), trace,
    slow: PERCENTILES.find((p) => String(p) === q.get("slow")) ?? NO_REQUEST.slow,
    span: trace === "" ? "" : id(q.get("span"), 16), only: (trace !== "" || !!q.get("kept")) && q.get("only") === "1",
    order: orderOf(q.get("order") ?? "", REQUEST_ORDERS, NO_REQUEST.order),
  };
}

function oneOf<T extends string>(text: string | null, all: readonly T[]): T {
  return all.includes(text as T) ? text as T : all[0]!;
}

export function decodeLive(search: string): LiveState {
  const q = new URLSearchParams(search);
  const baseFilters = takeFilters(q, "base-");
  return {
    view: q.has("view") || q.size === 0 ? oneOf(q.get("view"), VIEWS) : "flame",
    service: q.get("service") ?? "",
    type: q.get("type") ?? "",
    filters: takeFilters(q, ""),
    stacks: asPredicate(q.get("stacks") ?? ""),
    group: q.get("group") ?? "",
    chart: oneOf(q.get("chart"), CHARTS),
    lane: q.get("lane") ?? "",
    waits: oneOf(q.get("waits"), WAIT_VIEWS),
    idle: q.get("idle") === "1",
    self: q.get("self") === "1",
    source: q.get("source") ?? "",
    line: q.get("source") ? Math.max(0, time(q.get("line"))) : 0,
    code: q.get("fn") && q.get("binary") ? { name: q.get("fn")!, file: q.get("binary")!, buildId: q.get("build") ?? "" } : null,
    by: askable(q.get("by") ?? "") ? q.get("by")! : "",
    find: q.get("find") ?? "",
    requests: takeRequests(q),
    sort: q.get("sort") ?? "",
    task: /^[0-9a-z_-]{1,64}$/.test(q.get("task") ?? "") ? q.get("task")! : "",
    measure: /^[0-9a-z_-]{1,64}$/.test(q.get("measure") ?? "") ? q.get("measure")! : "",
    calls: oneOf(q.get("calls"), ESTIMATORS),
    whole: q.get("whole") === "1",
    kept: oneOf(q.get("kept"), KEPT_SHOWN),
    last: decodeSpan(q.get("last") ?? "") || LIVE_DEFAULTS.last,
    range: takeRange(q, ""),
    base: {
      ago: q.get("ago") === "0s" ? 0 : decodeSpan(q.get("ago") ?? "") || LIVE_DEFAULTS.base.ago,
      range: takeRange(q, "base-"),
      service: q.get("base-service"),
      filters: baseFilters.length || q.get("base-all") === "1" ? baseFilters : null,
    },
  };
}

/** Returns the range of the state at a time of the server's clock. */
export function rangeAt(s: LiveState, now: number): Range {
  return s.range ?? { from: Math.floor(now) - s.last * 1000, to: Math.floor(now) };
}

/** Returns the range of the other side for the range of this side. */
export function baseRange(b: Base, r: Range): Range {
  const d = b.ago * 1000;
  return b.range ?? { from: Math.max(0, r.from - d), to: Math.max(1, r.to - d) };
}

/** Returns how long a live view waits for the next round; a view of days does not change in seconds. */
export function refreshMs(last: number): number {
  return Math.max(5000, Math.min(60000, last / 720 * 1000));
}

function quoted(text: string): string {
  return `"${text.replace(/[\\"\n]/g, (c) => (c === "\n" ? "\\n" : "\\" + c))}"`;
}

const braces = (filters: Filter[], more: string[] = []): string =>
  `{${[...more, ...filters.map((f) => `${f.label}${f.not ? "!=" : "="}${quoted(f.value)}`)].join(",")}}`;

/** Makes a selector for the API's parameter `query`. */
export function selector(service: string, filters: Filter[] = []): string {
  return braces(service === "" ? filters : [{ label: "service.name", value: service, not: false }, ...filters]);
}

/** The same of several services. */
export function selectorOf(services: string[], filters: Filter[]): string {
  return braces(filters, [`service.name=~${quoted(services.map(literal).join("|"))}`]);
}

/** Returns the filters without those of one label, to list the label's other values. */
export function without(filters: Filter[], label: string): Filter[] {
  return filters.filter((f) => f.label !== label);
}
