// SPDX-License-Identifier: Apache-2.0
/* The requests of each view to the server, in one round, and their answers. */
import { lossesOf, readAgents } from "../model/agents.ts";
import type { Agents } from "../model/agents.ts";
import { askable, baseRange, rangeAt, selector, selectorOf, without } from "../model/address.ts";
import type { Filter, LiveState } from "../model/address.ts";
import { readAnalysis, readTaskAnalysis } from "../model/analysis.ts";
import type { Analysis } from "../model/analysis.ts";
import { compareProfiles } from "../model/compare.ts";
import { readFactors } from "../model/cost.ts";
import type { Factors } from "../model/cost.ts";
import { growthType, readGrowth } from "../model/growth.ts";
import type { Growth } from "../model/growth.ts";
import { readTimes } from "../model/kept.ts";
import { readOverview } from "../model/overview.ts";
import type { Overview } from "../model/overview.ts";
import { parseBody } from "../model/payload.ts";
import { bars, heatSteps, knownMs, readFirst, readHeat, readLines, readNames, shares, sortTypes } from "../model/series.ts";
import type { Bars, Heat, Share } from "../model/series.ts";
import { stacked, stackedFunctions, TOP_LAYERS } from "../model/stack.ts";
import type { Stack } from "../model/stack.ts";
import { serviceRows } from "../model/services.ts";
import { eventTexts, healthText } from "../model/health.ts";
import { joinSamples, readTraceSamples } from "../model/flamechart.ts";
import type { TraceSamples } from "../model/flamechart.ts";
import { marksOf, readMarks } from "../model/marks.ts";
import type { Mark } from "../model/marks.ts";
import { readSlow } from "../model/slow.ts";
import type { Slow } from "../model/slow.ts";
import { ENDPOINT_ORDERS, NO_REQUEST, orderOf, parametersOf, readEndpoints, readListOf, readRequests, readWaterfall } from "../model/traces.ts";
import type { Endpoint, ListOf, Request, Waterfall } from "../model/traces.ts";
import { readMeasurements } from "../model/measurements.ts";
import type { Measurement } from "../model/measurements.ts";
import { readPolicies } from "../model/policies.ts";
import type { Policy } from "../model/policies.ts";
import { isDelivered, keptTypes, readKept, readTask, readTasks } from "../model/tasks.ts";
import type { Kept, Task } from "../model/tasks.ts";
import type { ServiceRow } from "../model/services.ts";
import { aligned, stepFor } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import { readQuality } from "../model/stats.ts";
import type { Losses } from "../model/stats.ts";
import type { Profile, Quality } from "../model/tree.ts";
import { readLanes } from "../model/lanes.ts";
import type { Lanes } from "../model/lanes.ts";
import { hasWaits, HOLDS_LABEL, nanoseconds, sampleType, sumOf, WAIT_LABEL, wholeTime } from "../model/vocab.ts";
import { objectGroups, objectRows, splitIdle, threadNames, waitRows, withoutIdle } from "../model/waits.ts";
import type { ObjectLabel } from "../model/waits.ts";
import { readWakes } from "../model/wakes.ts";
import type { Parameters, Source } from "./source.ts";
import type { Together } from "./together.tsx";
import type { Waits } from "./waits.tsx";

const BARS = 200;
const SPARK = 60;
const PERIODS = 60;
const LANES = 12;
const STATE_LANES = 40;
const LANE_COLUMNS = 300;
/** The most cells in an answer of the server. */
const CELLS = 11000;

export interface Lane {
  name: string;
  bars: Bars;
}

export type Timeline = { by: "stack"; stack: Stack } | { by: "lanes"; lanes: Lanes } | { by: "bars"; bars: Bars } | { by: "threads"; lanes: Lane[]; more: number } | { by: "heat"; heat: Heat };

export type Part =
  | { of: "overview"; overview: Overview }
  | { of: "flame"; profile: Profile; services: Share[]; timeline: Timeline; waits: Waits | null }
  | { of: "services"; rows: ServiceRow[]; by: string; labels: string[]; quality: Quality }
  | { of: "compare"; profile: Profile; services: Share[]; after: Bars; before: Bars; base: Range }
  | { of: "traces"; endpoints: Endpoint[]; list: ListOf | null; order: string; requests: Request[]; waterfall: Waterfall | null; samples: TraceSamples | null; profile: Profile | null;
      slow: Slow | null; otherSlow: Slow | null; quality: Quality | null;
      /** Agents recorded waits when the opened trace ran. */
      hasWaits: boolean }
  | { of: "tasks"; tasks: Task[]; policies: Policy[]; measurements: Measurement[]; task: Task | null; kept: Kept | null; waterfall: Waterfall | null; profile: Profile | null; calls: Analysis | null;
      together: Together | null; ms: number }
  | { of: "growth"; growth: Growth | null; services: Share[] }
  | { of: "agents"; agents: Agents; events: string[] };

export interface View {
  /** The requested range. */
  range: Range;
  /** When the answer arrived. */
  at: number;
  types: string[];
  /** The type that is shown, as the server names it. */
  type: string;
  /** When the stored samples begin; 0: nothing was ever stored. */
  first: number;
  /** Part of the answer is missing, because the server could not read it. */
  damaged: boolean;
  /** What is wrong with the store; "": nothing. */
  health: string;
  /** What CPU time costs; null: the type does not measure CPU time. */
  factors: Factors | null;
  /** The agents' losses in the range; null: no agent reported any counts. */
  losses: Losses | null;
  part: Part;
  /** On charts, of the range and the selection; in a comparison of its other side, too. */
  marks: Mark[];
}

interface Round {
  types: string[];
  source: Source;
  state: LiveState;
  range: Range;
  type: string;
  /** CPU time and waits together; "" without waits. */
  both: string;
  /** The reader's filters, and that waits for work are hidden. */
  filters: Filter[];
  signal: AbortSignal;
}

/** The selection of a picture and its chart. */
interface Selection {
  range: Range;
  query: string;
}

const within = (r: Range): Parameters => ({ from: r.from, to: r.to });

async function askBars(a: Round, s: Selection): Promise<{ bars: Bars; damaged: boolean }> {
  const step = stepFor(s.range, BARS);
  const wide = aligned(s.range, step);
  const lines = readLines(await a.source.json("series", { ...within(wide), query: s.query, type: a.type, stacks: a.state.stacks, step },
                                              a.signal));
  return { bars: bars(lines, wide, a.source.now()), damaged: lines.damaged };
}

async function askLanes(a: Round, s: Selection): Promise<{ timeline: Timeline; damaged: boolean }> {
  const step = stepFor(s.range, BARS);
  const wide = aligned(s.range, step);
  const all = readLines(await a.source.json("series", { ...within(wide), query: s.query, type: a.type, stacks: a.state.stacks, step,
                                                        group_by: "thread.name" }, a.signal));
  const now = a.source.now();
  const lanes = all.lines.slice(0, LANES).map((line) => ({
    name: line.labels["thread.name"] ?? "", bars: bars({ ...all, lines: [line] }, wide, now) }));
  return { timeline: { by: "threads", lanes, more: all.lines.length - lanes.length }, damaged: all.damaged };
}

/** By the label that is the first level of the picture. */
async function askStack(a: Round, s: Selection): Promise<{ timeline: Timeline; damaged: boolean }> {
  const step = stepFor(s.range, BARS);
  const wide = aligned(s.range, step);
  const by = a.state.group || (a.state.service === "" ? "service.name" : "thread.name");
  const all = readLines(await a.source.json("series", { ...within(wide), query: s.query, type: a.type, stacks: a.state.stacks, step, group_by: by }, a.signal));
  return { timeline: { by: "stack", stack: stacked(all, by, wide, a.source.now()) }, damaged: all.damaged };
}

/** By the function that ran: the heaviest, and the others together. */
async function askFunctions(a: Round, s: Selection): Promise<{ timeline: Timeline; damaged: boolean }> {
  const step = stepFor(s.range, BARS);
  const wide = aligned(s.range, step);
  const json = await a.source.json("series", { ...within(wide), query: s.query, type: a.type, stacks: a.state.stacks, step, functions: TOP_LAYERS }, a.signal);
  const all = readLines(json);
  return { timeline: { by: "stack", stack: stackedFunctions(all, Number((json as { others?: unknown }).others) || 0, wide, a.source.now()) }, damaged: all.damaged };
}

/** Threads by what they did. The lanes of all threads and states stay, whichever of them is chosen. */
async function askStates(a: Round): Promise<{ timeline: Timeline; damaged: boolean }> {
  const column = stepFor(a.range, LANE_COLUMNS);
  const filters = [WAIT_LABEL, ...THREAD_LABELS, "lock", "peer"].reduce(without, a.state.filters);
  const json = await a.source.json("lanes", { ...within(aligned(a.range, column)), query: selector(a.state.service, filters),
    type: a.both || a.type, stacks: a.state.stacks, column, find: a.state.lane, limit: STATE_LANES }, a.signal);
  return { timeline: { by: "lanes", lanes: readLanes(json) }, damaged: (json as { damaged?: unknown }).damaged === true };
}

async function askTimeline(a: Round, s: Selection): Promise<{ timeline: Timeline; damaged: boolean }> {
  if (a.state.chart === "threads")
    return hasWaits(sampleType(a.type)) ? askStates(a) : askLanes(a, s);
  if (a.state.chart === "heat") {
    const steps = heatSteps(s.range, CELLS);
    // Whole columns, so that a row is the same part of each.
    const wide = aligned(s.range, steps.column);
    const json = await a.source.json("heatmap", { ...within(wide), ...heatSteps(wide, CELLS), query: s.query, type: a.type,
                                                  stacks: a.state.stacks }, a.signal);
    return { timeline: { by: "heat", heat: readHeat(json) }, damaged: (json as { damaged?: unknown }).damaged === true };
  }
  if (a.state.chart === "stack")
    return askStack(a, s);
  // States have no sums by function.
  if (a.state.chart === "function" && sampleType(a.type).adds === "over_time")
    return askFunctions(a, s);
  const b = await askBars(a, s);
  return { timeline: { by: "bars", bars: b.bars }, damaged: b.damaged };
}

async function askServices(a: Round): Promise<Share[]> {
  const { source, range, type, signal } = a;
  const query = selector("", a.filters);
  const [each, names] = await Promise.all([
    source.json("series", { ...within(range), query, type, step: range.to - range.from, group_by: "service.name" }, signal),
    source.json("label-values", { ...within(range), query, label: "service.name" }, signal),
  ]);
  return shares(readLines(each), readNames(names, "values"));
}

/** The labels that tell threads apart. */
export const THREAD_LABELS = ["thread.name", "thread.id", "process.pid"];

/** Waits for locks or peers, and the stacks of these waits. */
async function askObjects(a: Round, label: ObjectLabel): Promise<Waits["objects"]> {
  const { source, signal, state } = a;
  const filters = [WAIT_LABEL, HOLDS_LABEL, "lock", "peer"].reduce(without, state.filters);
  const type = sumOf(a.type)?.[1] ?? a.type;
  const which = { ...within(a.range), type, stacks: state.stacks };
  const labels = new Set(readNames(await source.json("labels", { ...which, query: selector(state.service, filters) }, signal), "labels"));
  // The server refuses to group by a label that it does not have.
  if (!labels.has(label))
    return { label, rows: [], names: new Map(), held: new Set() };
  const query = selector(state.service, [...filters, { label, value: "", not: true }]);
  const by = (names: string[]): string => `series?${new URLSearchParams(names.filter((n) => labels.has(n)).map((n) => ["group_by", n])).toString()}`;
  const step = a.range.to - a.range.from;
  const [lines, stacks, names, held] = await Promise.all([
    source.json(by(objectGroups(label)), { ...which, query, step }, signal),
    source.bytes("payload", { ...which, query, group_by: label }, signal),
    labels.has("thread.id") && labels.has("owner") ? source.json(by(["thread.id", "thread.name"]), { ...within(a.range), type: a.both || type, step,
      query: selector(state.service, [{ label: "thread.id", value: "", not: true }]) }, signal) : null,
    label === "lock" ? source.json("label-values", { ...within(a.range), query: selector(state.service, []), label: HOLDS_LABEL }, signal) : null]);
  return { label, rows: objectRows(readLines(lines), label, parseBody(stacks)), names: names === null ? new Map() : threadNames(readLines(names)),
    held: new Set(held === null ? [] : readNames(held, "values")) };
}

/** The categories of the chosen service, whichever of them is chosen, and the table that is open; null for a type without. */
async function askWaits(a: Round): Promise<Waits | null> {
  if (!hasWaits(sampleType(a.type)))
    return null;
  const { state } = a;
  const query = selector(state.service, without(state.filters, WAIT_LABEL));
  const which = { ...within(a.range), query, type: a.type, stacks: state.stacks };
  const wakers = async (): Promise<Waits["wakes"]> => readWakes(parseBody(await a.source.bytes("payload", {
    ...which, type: sumOf(a.type)?.[1] ?? a.type, group_by: "thread.name" }, a.signal)), state.idle);
  const [lines, objects, wakes] = await Promise.all([
    a.source.json("series", { ...which, step: a.range.to - a.range.from, group_by: WAIT_LABEL }, a.signal),
    state.waits === "lock" || state.waits === "peer" ? askObjects(a, state.waits) : null,
    state.waits === "wakers" ? wakers() : null]);
  return { ...splitIdle(waitRows(readLines(lines)), state.idle), objects, wakes };
}

async function askPicture(a: Round, s: Selection): Promise<Profile> {
  return parseBody(await a.source.bytes("payload", {
    ...within(s.range), query: s.query, type: a.type, stacks: a.state.stacks, group_by: a.state.group }, a.signal));
}

async function askFlame(a: Round): Promise<{ part: Part; damaged: boolean }> {
  const s = { range: a.range, query: selector(a.state.service, a.filters) };
  const [profile, time, services, waits] = await Promise.all([askPicture(a, s), askTimeline(a, s), askServices(a), askWaits(a)]);
  return { part: { of: "flame", profile, services, timeline: time.timeline, waits }, damaged: time.damaged };
}

async function askTable(a: Round): Promise<{ part: Part; damaged: boolean }> {
  const { source, range, type, signal } = a;
  const query = selector("", a.filters);
  const step = stepFor(range, SPARK);
  const all = range.to - range.from;
  const d = a.state.base.ago * 1000;
  const before = { from: Math.max(0, range.from - d), to: Math.max(1, range.to - d) };
  const there = source.first > 0 && source.first < before.to;
  const by = a.state.by || "service.name";
  const ask = (p: Parameters): Promise<unknown> => source.json("series", { query, type, ...p }, signal);
  const [whole, steps, then, head, names] = await Promise.all([
    source.json(`series?${new URLSearchParams([...new Set([by, "host.name", "process.runtime.name"])].map((l) => ["group_by", l])).toString()}`,
                { query, type, ...within(range), step: all }, signal),
    ask({ ...within(aligned(range, step)), step, group_by: by }),
    there ? ask({ ...within(before), step: before.to - before.from, group_by: by }) : null,
    source.json("flamegraph", { query, type, ...within(range), max_nodes: 1 }, signal),
    source.json("labels", { query, type, ...within(range) }, signal),
  ]);
  const lines = readLines(whole);
  // A state is not a sum over time.
  const known = (r: Range): number => (sampleType(type).adds === "at_moment" ? 1 : knownMs(r, source.first));
  const rows = serviceRows({
    by,
    whole: lines, steps: readLines(steps), range, ms: known(range),
    before: then === null ? null : { lines: readLines(then), ms: known(before) },
  });
  const labels = [...new Set(["service.name", by, ...readNames(names, "labels").filter(askable)])];
  return { part: { of: "services", rows, by, labels, quality: readQuality(head) }, damaged: lines.damaged };
}

async function askCompare(a: Round): Promise<{ part: Part; damaged: boolean }> {
  const { base } = a.state;
  const after = { range: a.range, query: selector(a.state.service, a.filters) };
  const before = { range: baseRange(base, a.range), query: selector(base.service ?? a.state.service,
    base.filters ? shownFilters({ filters: base.filters, idle: a.state.idle }, a.type) : a.filters) };
  const [p, q, afterBars, beforeBars, services] = await Promise.all([
    askPicture(a, after), askPicture(a, before), askBars(a, after), askBars(a, before), askServices(a)]);
  // A selection without samples has no type of its own.
  const named = (x: Profile, like: Profile): Profile => x.tree.total[0] === 0 ? { ...x, meta: { ...x.meta, type: like.meta.type,
    unit: like.meta.unit } } : x;
  return {
    part: { of: "compare", profile: compareProfiles(named(q, p), named(p, q)), services, after: afterBars.bars, before: beforeBars.bars,
      base: before.range },
    damaged: afterBars.damaged || beforeBars.damaged,
  };
}

const REQUESTS = 200;
const ENDPOINTS = 500;
/** The most that a task remembers. */
const ALL_REQUESTS = 1000;
/** Of more services the quality is not asked for: their names are a part of the address. */
const QUALITY_SERVICES = 50;

/** The samples of a trace in the order of time: of running and waiting together if both are shown. null: values are no times. */
async function askTimes(a: Round): Promise<TraceSamples | null> {
  const ns = nanoseconds(sampleType(a.type).unit);
  if (ns === 0)
    return null;
  const all = await Promise.all((sumOf(a.type) ?? [a.type]).map(async (type) =>
    readTraceSamples(await a.source.json(`traces/${a.state.requests.trace}/samples`, { type }, a.signal), ns)));
  return all.reduce(joinSamples);
}

async function askTraces(a: Round): Promise<{ part: Part; damaged: boolean }> {
  const { source, range, type, signal, state } = a;
  const r = state.requests;
  const which = { ...within(range), query: selector("", state.filters), type, stacks: state.stacks, ...parametersOf(r, state.service) };
  const ask = async (path: string, more: Parameters = {}): Promise<unknown> => source.json(path, { ...which, ...more }, signal);
  const picture = async (): Promise<Profile> => parseBody(await source.bytes("payload", which, signal));
  const part = { of: "traces" as const, endpoints: [], list: null, order: "", requests: [], waterfall: null, samples: null, profile: null, slow: null, otherSlow: null, quality: null, hasWaits: false };
  const damaged = (x: unknown): boolean => (x as { damaged?: unknown }).damaged === true;
  if (r.trace !== "") {
    const w = await source.json(`traces/${r.trace}`, { type }, signal);
    const waterfall = readWaterfall(w);
    // Whenever it was: a link to a trace has no time.
    const of = { ...which, from: Math.floor(waterfall.from) - 1000, to: Math.ceil(waterfall.to) + 60000 };
    const [types, samples, profile] = await Promise.all([source.json("types", { from: of.from, to: of.to }, signal), r.show === "chart" ? askTimes(a) : null,
      source.bytes("payload", of, signal).then(parseBody)]);
    return { part: { ...part, waterfall, samples, profile, hasWaits: wholeTime(readNames(types, "types")) !== null }, damaged: damaged(w) };
  }
  if (r.endpoint !== "" && r.show === "picture")
    return { part: { ...part, profile: await picture() }, damaged: false };
  if (r.endpoint !== "" && r.show === "slow") {
    const whole = wholeTime(a.types);
    const other = type === whole?.cpu ? whole.waits : type === whole?.waits ? whole.cpu : "";
    const [s, o] = await Promise.all([type, other].map((t) => (t === "" ? null : ask("slow", { limit: 100, slow: r.slow, type: t }))));
    const slow = readSlow(s);
    return { part: { ...part, slow, otherSlow: o ? readSlow(o) : null, profile: slow.profile }, damaged: damaged(s) };
  }
  const order = orderOf(state.sort, ENDPOINT_ORDERS, "-value");
  const [e, t] = await Promise.all([ask("endpoints", { limit: ENDPOINTS, order, search: r.endpoint === "" ? state.find : "" }),
    ask("traces", { limit: REQUESTS, order: r.order })]);
  const [endpoints, requests] = [readEndpoints(e), readRequests(t)];
  // Of the services in these lists: what is wrong with samples of other processes does not matter here.
  const services = [...new Set([...endpoints, ...requests].map((x) => x.service))];
  const head = services.length === 0 || services.length > QUALITY_SERVICES ? null
    : await source.json("flamegraph", { ...within(range), type, max_nodes: 1, query: selectorOf(services, state.filters) }, signal);
  return { part: { ...part, endpoints, list: readListOf(e), order, requests, quality: head === null ? null : readQuality(head) }, damaged: damaged(e) || damaged(t) };
}

/** Answers of a part, and what it is of if that is not the range and the type of the page. */
interface Answer {
  part: Part;
  damaged: boolean;
  own?: { range: Range; type: string };
}

/** The stacks of an opened request; of several types the one that has the most samples. */
async function askKept(a: Round, kept: Kept): Promise<Pick<Part & { of: "tasks" }, "waterfall" | "profile" | "calls"> & { type: string; damaged: boolean }> {
  const { source, signal, state } = a;
  const { trace } = state.requests;
  const types = keptTypes(readNames(await source.json("types", within(kept), signal), "types"));
  const all = await Promise.all((types.length ? types : [""]).map(async (type) => {
    const json = await source.json(`traces/${trace}`, { type }, signal);
    const w = readWaterfall(json);
    return { type, waterfall: w, damaged: (json as { damaged?: unknown }).damaged === true, samples: w.spans.reduce((n, s) => n + s.samples, w.other.samples) };
  }));
  const best = all.reduce((x, y) => (y.samples > x.samples ? y : x));
  if (best.type === "" || best.samples === 0)
    return { ...best, profile: null, calls: null };
  const { span, only } = state.requests;
  const [body, calls] = await Promise.all([
    source.bytes("payload", { ...within(kept), query: requestQuery(state, best.type), type: best.type, ...parametersOf(state.requests, "") }, signal),
    state.calls === "" ? null : source.json(`requests/${trace}/analysis`, { type: best.type, task: state.task, estimator: state.calls, span, children: only ? "exclude" : "include",
      of: state.whole ? "trace" : "threads" }, signal)]);
  return { ...best, profile: parseBody(body), calls: calls === null ? null : readAnalysis(calls) };
}

/** All requests that the task kept; their flame graph is of the type that has the most samples. */
async function askTogether(a: Round, task: Task, kept: Kept): Promise<{ together: Together; profile: Profile | null; type: string; damaged: boolean; ms: number }> {
  const { source, signal, state } = a;
  const { endpoint, only } = state.requests;
  const of = async (view: string, more: Parameters = {}): Promise<unknown> => source.json(`tasks/${state.task}/${view}`, { endpoint, ...more }, signal);
  const damaged = (x: unknown): boolean => (x as { damaged?: unknown } | null)?.damaged === true;
  const group = state.kept === "control" ? "control" : "slow";
  const t = await of("times");
  const times = readTimes(t);
  const ms = (times.groups[group].wall?.mean ?? 0) * times.groups[group].requests;
  if (state.kept === "difference") {
    const d = await of("difference", { limit: 100 });
    const slow = readSlow(d, "ordinary requests");
    return { together: { times, calls: null, slow }, profile: slow.rows.length > 0 ? slow.profile : null, type: (d as { type: string }).type, damaged: damaged(t) || damaged(d),
      ms: times.groups.slow.wall?.mean ?? 0 };
  }
  // The server refuses a filter by a label that no sample has.
  const some = kept.requests.some((q) => (q.reason === "control") === (group === "control") && isDelivered(q));
  const types = some ? keptTypes(readNames(await source.json("types", within(kept), signal), "types")) : [];
  const [profiles, calls] = await Promise.all([
    Promise.all(types.map(async (type) => ({ type, profile: parseBody(await source.bytes("payload", { ...within(kept), query: requestQuery(state, type), type,
      ...endpoint === "" ? {} : parametersOf({ ...NO_REQUEST, endpoint }, task.service) }, signal)) }))),
    state.calls === "" ? null : of("analysis", { children: only ? "exclude" : "include" })]);
  const best = profiles.reduce<(typeof profiles)[number] | null>((x, y) => (x === null || y.profile.tree.total[0]! > x.profile.tree.total[0]! ? y : x), null);
  return { together: { times, calls: calls === null ? null : readTaskAnalysis(calls, group), slow: null },
    profile: best && best.profile.tree.total[0]! > 0 ? best.profile : null, type: best?.type ?? "", damaged: damaged(t) || damaged(calls), ms };
}

async function askTasks(a: Round): Promise<Answer> {
  const { source, signal, state } = a;
  const part = { of: "tasks" as const, tasks: [], policies: [], measurements: [], task: null, kept: null, waterfall: null, profile: null, calls: null, together: null, ms: 0 };
  if (state.task === "")
    return { part: { ...part, tasks: readTasks(await source.json("tasks", {}, signal)), policies: readPolicies(await source.json("policies", {}, signal)),
      measurements: readMeasurements(await source.json("measurements", {}, signal)) }, damaged: false };
  const { trace } = state.requests;
  const [t, r] = await Promise.all([source.json(`tasks/${state.task}`, {}, signal), source.json(`tasks/${state.task}/requests`, { limit: state.kept === "" ? REQUESTS : ALL_REQUESTS, trace }, signal)]);
  const [task, kept] = [readTask(t), readKept(r)];
  if (trace === "" && state.kept !== "") {
    const { together, profile, type, damaged, ms } = await askTogether(a, task, kept);
    return { part: { ...part, task, kept, together, profile, ms }, damaged, own: { range: { from: kept.from, to: kept.to }, type } };
  }
  if (trace === "")
    return { part: { ...part, task, kept }, damaged: false };
  const { type, damaged, waterfall, profile, calls } = await askKept(a, kept);
  return { part: { ...part, task, kept, waterfall, profile, calls }, damaged, own: { range: { from: kept.from, to: kept.to }, type } };
}

/** Of a type that can grow, whichever is chosen in other views; null: there is none. */
async function askGrowth(a: Round): Promise<Answer> {
  const type = growthType(a.types, a.state.type);
  if (type === "")
    return { part: { of: "growth", growth: null, services: [] }, damaged: false };
  const filters = shownFilters(a.state, type);
  const step = stepFor(a.range, PERIODS);
  const [json, services] = await Promise.all([
    a.source.json("growth", { ...within(aligned(a.range, step)), query: selector(a.state.service, filters), type, stacks: a.state.stacks, step }, a.signal),
    askServices({ ...a, type, filters })]);
  return { part: { of: "growth", growth: readGrowth(json), services }, damaged: (json as { damaged?: unknown }).damaged === true,
    own: { range: a.range, type } };
}

async function askOverview(a: Round): Promise<Answer> {
  const json = await a.source.json("overview", { ...within(a.range), with_culprit: a.state.self ? "true" : "" }, a.signal);
  const overview = readOverview(json, a.types);
  return { part: { of: "overview", overview }, damaged: (json as { damaged?: unknown }).damaged === true, own: { range: a.range, type: overview.type } };
}

async function askAgents(a: Round): Promise<{ part: Part; damaged: boolean }> {
  const [agents, health] = await Promise.all([a.source.json("agents", {}, a.signal), a.source.json("health", {}, a.signal)]);
  return { part: { of: "agents", agents: readAgents(agents), events: eventTexts(health) }, damaged: false };
}

/** The marks of the rounds of one state, which are asked for once a minute: they change rarely. */
export interface KeptMarks {
  at: number;
  type: string;
  marks: Mark[];
}
const MARKS_MS = 60000;

/** Views with charts have marks. */
async function askMarks(a: Round, kept: KeptMarks): Promise<Mark[]> {
  const { state, source, range, signal, type } = a;
  if (state.view !== "flame" && state.view !== "compare")
    return [];
  const at = Date.now();
  if (at - kept.at < MARKS_MS && kept.type === type)
    return kept.marks;
  const sides = [{ range, service: state.service, filters: state.filters }, ...state.view === "compare" ? [{ range: baseRange(state.base, range),
    service: state.base.service ?? state.service, filters: state.base.filters ?? state.filters }] : []];
  const all = await Promise.all(sides.map(async (s) => marksOf(readMarks(await source.json("annotations", { ...within(s.range), type,
    query: selector(s.service, []) }, signal)), s.service, s.filters)));
  return Object.assign(kept, { at, type, marks: all.flat() }).marks;
}

const ASK: Record<Part["of"], (a: Round) => Promise<Answer>> = { overview: askOverview, flame: askFlame, services: askTable, compare: askCompare, traces: askTraces, tasks: askTasks, growth: askGrowth, agents: askAgents };

/** The filters of all requests about a type. */
export function shownFilters(s: Pick<LiveState, "filters" | "idle">, type: string): Filter[] {
  return withoutIdle(s.filters, hasWaits(sampleType(type)), s.idle);
}

/** The selector of the samples of requests: of a task those that it kept, which another task may have kept, too. */
export function requestQuery(s: LiveState, type: string): string {
  const kept: Filter[] = s.kept === "" || s.requests.trace !== "" ? [] : [{ label: "kept", value: "control", not: s.kept !== "control" }];
  return selector("", s.view === "tasks" ? [{ label: "task", value: s.task, not: false }, ...kept] : shownFilters(s, type));
}

export async function ask(source: Source, state: LiveState, signal: AbortSignal, marksKept: KeptMarks): Promise<View> {
  // The first answer also has the server's clock, on which the range is based.
  source.first ||= readFirst(await source.json("stats", {}, signal));
  const range = rangeAt(state, source.now());
  let types = sortTypes(readNames(await source.json("types", within(range), signal), "types"));
  const whole = wholeTime(types);
  if (whole)
    types = [...types, whole.both];
  // A type from a link that this range does not have is shown as empty; the reader can choose another.
  const type = state.type || types[0] || "";
  if (type && !types.includes(type))
    types = [...types, type];
  const view = state.view === "files" ? "flame" : state.view;
  const round: Round = { types, source, state, range, type, both: whole?.both ?? "", filters: shownFilters(state, type), signal };
  const [{ part, damaged, own }, marks, agents, health, cost] = await Promise.all([
    ASK[view](round), askMarks(round, marksKept), source.json("agents", within(range), signal), source.json("health", {}, signal),
    // Only the factors are needed, so the range is as short as possible.
    sampleType(type).isCpu ? source.json("cost", { from: range.to - 1, to: range.to, limit: 1 }, signal) : null]);
  return { range: own?.range ?? range, at: source.now(), types, type: own?.type || type, first: source.first, damaged, health: healthText(health, range), factors: cost === null ? null : readFactors(cost), losses: lossesOf(readAgents(agents), state.filters), part, marks };
}
