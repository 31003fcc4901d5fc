// SPDX-License-Identifier: Apache-2.0
/*
 * The page of a server, which refreshes itself. One bar above all views (picture, services,
 * comparison, agents, files) chooses the data and the time. This state is in location.search; the
 * picture's state is in location.hash.
 */
import { render } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { AGOS, baseRange, CHARTS, WAIT_VIEWS, without, decodeLive, encodeLive, rangeAt, refreshMs, selector, VIEWS } from "../model/address.ts";
import type { Base, LiveState, ViewName } from "../model/address.ts";
import { canGrow } from "../model/growth.ts";
import { showable } from "../model/payload.ts";
import { andLeaf } from "../model/predicate.ts";
import { knownMs, peak } from "../model/series.ts";
import { decodeState, encodeState } from "../model/state.ts";
import { clock, lastText, LASTS, localInput, moved, rangeText, wider } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import type { Lane } from "../model/lanes.ts";
import { frameName, GROUP } from "../model/tree.ts";
import type { Profile } from "../model/tree.ts";
import { HOLDS_LABEL, WAIT_LABEL, wholeTime } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import { App } from "./app.tsx";
import { Quality } from "./bar.tsx";
import { requestQuery, shownFilters, THREAD_LABELS } from "./ask.ts";
import type { Part, View } from "./ask.ts";
import { Chart } from "./chart.tsx";
import { copy } from "./copy.ts";
import { Export } from "./export.tsx";
import { Filters, Stacks } from "./filters.tsx";
import type { Keys } from "./help.tsx";
import { late } from "./late.tsx";
import type * as Later from "./later.ts";
import { address, enter, leave, replace } from "./location.ts";
import { typeOf, usePoll } from "./poll.ts";
import type { Poll, Problem } from "./poll.ts";
import { NO_REQUEST, parametersOf, spanRange } from "../model/traces.ts";
import type { Endpoint } from "../model/traces.ts";
import { readMeasurement } from "../model/measurements.ts";
import type { FunctionOf } from "../model/measurements.ts";
import { rangeOf, readTask } from "../model/tasks.ts";
import { chosenOf, toggle, toggleWait, waitOf } from "../model/waits.ts";
import { wokenBy } from "../model/wakes.ts";
import { isEmpty } from "../model/overview.ts";
import { OverviewView } from "./overview.tsx";
import { recallTheme } from "./remember.ts";
import { Services } from "./services.tsx";
import { ServiceTable } from "./servicetable.tsx";
import { Source } from "./source.ts";
import { Timeline } from "./timeline.tsx";
import type { PolicyActions } from "./policies.tsx";
import type { TaskActions } from "./tasks.tsx";
import { Traces } from "./traces.tsx";
import { Types, WaitPanel } from "./waits.tsx";
import "./style.css";
import "./live.css";

const later = (): Promise<typeof Later> => import("./later.ts");
const AgentTable = late(later, (m) => m.AgentTable);
const AssemblySheet = late(later, (m) => m.AssemblySheet);
const Files = late(later, (m) => m.Files);
const FlameChart = late(later, (m) => m.FlameChart);
const GrowthView = late(later, (m) => m.GrowthView);
const NoMemory = late(later, (m) => m.NoMemory);
const MeasureCard = late(later, (m) => m.MeasureCard);
const MeasureDialog = late(later, (m) => m.MeasureDialog);
const Notes = late(later, (m) => m.Notes);
const SourceCode = late(later, (m) => m.SourceCode);
const TaskDialog = late(later, (m) => m.TaskDialog);
const Tasks = late(later, (m) => m.Tasks);

const KEYS: Keys = [
  [["1", "…", "9"], "the views"],
  [["l"], "back to live, or pause"],
  [["v"], "choose a service"],
  [["y"], "copy a link to this view and time range"],
  [["m"], "filter and group by label"],
  [["g"], "total, stacked, functions, threads, sub-second"],
  [["o", "a"], "source lines of the frame's file, instructions of its function"],
  [["o"], "overview: the line of the first finding; traces: the first request"],
  [["[", "]"], "earlier, later"],
  [["-"], "zoom out to twice the time range"],
];
/** Around a slow call: its request began before, and ended after it. */
const AROUND_MS = 60000;
const VIEW_WORD: Record<ViewName, string> = {
  overview: "Overview", flame: "Flame graph", services: "Services", compare: "Compare", traces: "Traces", tasks: "Tasks", agents: "Agents", files: "Files", growth: "Growth" };

/** Source lines, instructions, a measurement: a sheet over the page. */
const NO_SHEET = { source: "", line: 0, code: null, measure: "" };
const hasSheet = (s: LiveState): boolean => s.source !== "" || s.code !== null || s.measure !== "";

/** The state, synchronised with location.search both ways. The hash belongs to the picture and stays. */
function useSearch(): [LiveState, (change: Partial<LiveState>) => void] {
  const [state, set] = useState(() => decodeLive(location.search));
  const current = useRef(state);
  useEffect(() => {
    const read = (): void => {
      // History entries of the picture do not change this state.
      const now = decodeLive(location.search);
      if (encodeLive(now) !== encodeLive(current.current))
        set(current.current = now);
    };
    addEventListener("popstate", read);
    return () => removeEventListener("popstate", read);
  }, []);
  const change = useCallback((c: Partial<LiveState>) => {
    const old = current.current;
    const next = { ...old, ...c };
    if (encodeLive(next) === encodeLive(old))
      return;
    set(current.current = next);
    const search = encodeLive(next);
    const url = location.pathname + (search && "?" + search) + address().hash;
    const [was, is] = [hasSheet(old), hasSheet(next)];
    if (was && !is && encodeLive({ ...old, ...NO_SHEET }) === search)
      leave(url);
    // Typing makes no entries in the history, and of sheets only the first.
    else if ((was && is) || Object.keys(c).every((k) => ["find", "sort", "lane"].includes(k)))
      replace(url);
    else
      enter(url, is);
  }, []);
  return [state, change];
}

function Token(p: { text: string; onToken: (t: string) => void }): preact.JSX.Element {
  const [token, setToken] = useState("");
  const box = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => box.current!.focus(), []);
  return (
    <form class="nothing token" aria-labelledby="token-title" onSubmit={(e) => {
      e.preventDefault();
      if (token.trim() !== "")
        p.onToken(token.trim());
    }}>
      <h2 id="token-title">{p.text}</h2>
      <p>The token is in a line <code>read TOKEN</code> of the file given by <code>--token-file</code>; ask whoever runs this server.
        This page keeps the token until you close the tab, and sends it to this server only.</p>
      <p><input type="password" autocomplete="off" aria-label="Token" value={token} ref={box}
                onInput={(e) => setToken(e.currentTarget.value)} /> <button class="text">Continue</button></p>
    </form>
  );
}

function Custom(p: { range: Range; onRange: (r: Range) => void; onClose: () => void }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [from, setFrom] = useState(localInput(p.range.from));
  const [to, setTo] = useState(localInput(p.range.to));
  useLayoutEffect(() => {
    ref.current!.showModal();
  }, []);
  const range = { from: new Date(from).getTime(), to: new Date(to).getTime() };
  const good = range.to > range.from;
  return (
    <dialog class="help sheet-range" ref={ref} onClose={p.onClose} aria-labelledby="range-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <form onSubmit={(e) => {
        e.preventDefault();
        if (good) {
          p.onRange(range);
          ref.current!.close();
        }
      }}>
        <header><h2 id="range-title">Time</h2>
          <button class="icon" type="button" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        <label>From <input type="datetime-local" step="1" required value={from} onInput={(e) => setFrom(e.currentTarget.value)} /></label>
        <label>To <input type="datetime-local" step="1" required value={to} onInput={(e) => setTo(e.currentTarget.value)} /></label>
        <p>{good ? "Times are in this browser's time zone." : "The end must be after the start."}</p>
        <button class="text" disabled={!good}>Show</button>
      </form>
    </dialog>
  );
}

function Nothing(p: { poll: Poll; type: SampleType; state: LiveState; change: (c: Partial<LiveState>) => void }): preact.JSX.Element {
  const { state, change } = p;
  if (p.poll.view!.first === 0)
    return <div class="nothing"><h2>Waiting for the first samples</h2>
      <p>Nothing has arrived at this server yet. With <code>culprit up</code>, samples of this machine arrive within ten seconds;
        other machines send theirs with <code>culprit agent --collection-agent HOST:4317</code>. This page refreshes
        automatically.</p></div>;
  const wideEnough = LASTS.find(([s]) => s > state.last);
  return <div class="nothing"><h2>No samples{state.service ? ` of ${showable(state.service)}` : ""} {state.range
    ? "in this time" : `in the last ${lastText(state.last)}`}</h2>
    <p>{p.type.isCpu ? state.service ? "It used no CPU" : "Nothing used the CPU" : `${showable(p.type.label) || "This type"}: nothing was recorded`}, or no data
      arrived. Check the agent's log and this server's <code>/metrics</code>.</p>
    <p>{state.service !== "" && <button class="text" onClick={() => change({ service: "" })}>All services</button>}{" "}
      {state.range ? <button class="text" onClick={() => change({ range: null })}>Back to live</button>
        : wideEnough && <button class="text" onClick={() => change({ last: wideEnough[0] })}>Last {wideEnough[1]}</button>}</p>
  </div>;
}

/** What the server does not have any more: the opened trace or task; "": it may have it. */
function missing(problem: Problem | null, s: LiveState): "" | "trace" | "task" {
  return problem?.status !== 404 ? "" : s.view === "tasks" && s.task !== "" ? "task" : s.view === "traces" && s.requests.trace !== "" ? "trace" : "";
}

/** Why there is no view, and the way on. */
function NoView(p: { problem: Problem; state: LiveState; change: (c: Partial<LiveState>) => void }): preact.JSX.Element {
  const { problem, state, change } = p;
  const what = missing(problem, state);
  if (problem.kind === "gone")
    return <div class="nothing"><h2>Waiting for the server…</h2></div>;
  return what !== "" ? <div class="nothing"><h2>This {what} is not stored</h2>
    <p>It was deleted, because the server keeps data for a limited time (<code>--max-age</code>), or it never arrived.</p>
    <p><button class="text" onClick={() => change({ task: "", kept: "", requests: NO_REQUEST })}>All {what === "task" ? "tasks" : "requests"}</button></p></div>
    : <div class="nothing"><h2>Nothing to show</h2><p>The server refused this query.</p>
      <p><button class="text" onClick={() => change({ filters: [], stacks: "", group: "", type: "", requests: NO_REQUEST })}>Remove all filters</button></p></div>;
}

function Status(p: { poll: Poll; state: LiveState; now: number }): preact.JSX.Element {
  const { view } = p.poll;
  // A missing trace or task has a page of its own.
  const problem = missing(p.poll.problem, p.state) ? null : p.poll.problem;
  const shown = view ? ` Showing data from ${clock(view.at)}.` : "";
  const text = !problem || problem.kind === "token" ? view?.damaged
    ? "Some of the data stored for this time range cannot be read. The rest is shown. See the server's log." : showable(view?.health ?? "")
    : problem.kind === "gone"
      ? `${problem.text} since ${clock(problem.since)}.${shown} Retrying…`
      : `${problem.text[0]!.toUpperCase()}${problem.text.slice(1)}.${shown}`;
  return <div class={text ? "problem" : "spoken"} role="alert">{text && <p>{text}
    {problem && <button class="text" onClick={p.poll.again}>Try now</button>}</p>}</div>;
}

/** Properties of all views: the state and its change. */
interface Common {
  source: Source;
  state: LiveState;
  change: (c: Partial<LiveState>) => void;
  poll: Poll;
  view: View | null;
  type: SampleType;
  range: Range;
  now: number;
  title: string;
  /** Opens the dialog for a new task, of an endpoint. */
  onTask: (of: Endpoint | null) => void;
  /** Opens the dialog for a measurement of a function. */
  onMeasure: (of: FunctionOf) => void;
}

/** Another view. The opened trace of one is not that of another. */
function toView(s: LiveState, view: ViewName): Partial<LiveState> {
  return view === s.view ? { view } : { view, find: "", sort: "", ...view === "tasks" || s.view === "tasks" ? { requests: NO_REQUEST } : {} };
}

/** Returns the names of functions in a picture, each once, for completion. */
function functionNames(p: Profile): string[] {
  const seen = new Set<string>();
  for (let i = 0; i < p.tree.n; i++)
    if (!(p.frames.flags[p.tree.frame[i]!]! & GROUP))
      seen.add(frameName(p, p.tree.frame[i]!));
  return [...seen];
}

function Tabs(p: { view: ViewName; onView: (v: ViewName) => void }): preact.JSX.Element {
  return <nav class="tabs" aria-label="Views">
    {VIEWS.map((v, i) => <button key={v} aria-current={v === p.view ? "page" : undefined} title={`${VIEW_WORD[v]} (${i + 1})`}
                                 onClick={() => p.onView(v)}>{VIEW_WORD[v]}</button>)}</nav>;
}

/** Copies a link with the current range, so that it shows the same time when it is opened later. The theme is the reader's own. */
function LinkButton(p: { state: LiveState; range: Range }): preact.JSX.Element {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    const timer = copied ? setTimeout(() => setCopied(false), 2000) : undefined;
    return () => clearTimeout(timer);
  }, [copied]);
  return <button class="text copy-link" aria-label={copied ? "Link copied" : "Copy link"} title="Copy a link to this view and time range (y)" onClick={() => {
    void copy(`${location.origin}${location.pathname}?${encodeLive({ ...p.state, range: p.range })}#${encodeState({ ...decodeState(address().hash), theme: null })}`)
      .then(() => setCopied(true));
  }}>{copied ? "Copied" : "Link"}</button>;
}

/** The export of a picture, if the view has one that the server can make. */
function ExportOf(p: Common & { view: View }): preact.JSX.Element | null {
  const { state, view } = p;
  const { part, range } = view;
  const all = { from: range.from, to: range.to, query: selector(state.service, shownFilters(state, view.type)), type: view.type, stacks: state.stacks,
    group_by: state.group };
  if (part.of === "flame")
    return <Export source={p.source} path="export" name={p.title} of={{ parameters: all }} />;
  if (part.of === "traces")
    return part.profile && !part.slow ? <Export source={p.source} path="export" name={requestTitle(state, p.title)} of={{ parameters: {
      ...all, query: selector("", state.filters), ...parametersOf(state.requests, state.service) } }} /> : null;
  if (part.of !== "compare")
    return null;
  const base = { from: part.base.from, to: part.base.to, query: selector(state.base.service ?? state.service,
    shownFilters({ filters: state.base.filters ?? state.filters, idle: state.idle }, view.type)) };
  return <Export source={p.source} path="export" name={p.title} of={{ parameters: all }} compared={{
    before: { parameters: { ...all, ...base } },
    both: { parameters: { ...all, diff: "1", base_from: base.from, base_to: base.to, base_query: base.query } } }} />;
}

function TimeTools(p: Common & { absolute: Range; onCustom: () => void; onNotes: () => void }): preact.JSX.Element {
  const { state, change, view, now, absolute } = p;
  const setRange = (range: Range): void => change({ range });
  const spanText = state.range ? rangeText(state.range, now) : `last ${lastText(state.last)}`;
  const options = LASTS.some(([s]) => s === state.last) ? LASTS : [...LASTS, [state.last, lastText(state.last)] as [number, string]];
  return <div class="tools">
    {view && state.view !== "overview" && <Types types={state.view === "growth" ? view.types.filter(canGrow) : view.types} type={view.type} onType={(type) => change({ type })} />}
    {view && <ExportOf {...p} view={view} />}
    <LinkButton state={state} range={absolute} />
    <button class="text" title="Saved views and annotations" onClick={p.onNotes}>Saved</button>
    <button class="icon" aria-label="Earlier" title="Earlier ([)" onClick={() => setRange(moved(absolute, -0.5, now))}>‹</button>
    <select class="range" aria-label="Time" title={spanText} value={state.range ? "range" : state.last}
            onChange={(e) => {
              const v = e.currentTarget.value;
              if (v === "custom")
                p.onCustom();
              else if (v !== "range")
                change({ last: Number(v), range: null });
              // The selected option follows the state, also if the state does not change.
              e.currentTarget.value = state.range ? "range" : String(state.last);
            }}>
      {state.range && <option value="range">{spanText}</option>}
      {options.map(([s, label]) => <option key={s} value={s}>last {label}</option>)}
      <option value="custom">custom…</option></select>
    <button class="icon" aria-label="Later" title="Later (])" disabled={!state.range}
            onClick={() => setRange(moved(absolute, 0.5, now))}>›</button>
    <button class="text" title="Zoom out (2×): show twice the time range (-)" onClick={() => setRange(wider(absolute, now))}>Zoom out</button>
    <button class="text follow" aria-pressed={state.range === null} onClick={() => change({ range: state.range ? null : p.range })}
            title={state.range ? "Back to live (l)" : `Refreshed every ${refreshMs(state.last) / 1000} s; click to pause (l)`}>
      <i class={p.poll.problem ? "dot off" : "dot"} aria-hidden="true" />Live</button>
  </div>;
}

/** Chooses the data: services, filters and the predicate over stacks. */
function OfWhat(p: Common & { all: boolean; onAll: (open: boolean) => void; filtering: boolean; onFiltering: (open: boolean) => void }): preact.JSX.Element {
  const { state, change, view } = p;
  const part = view?.part;
  const services = part && "services" in part ? part.services : null;
  const profile = part && "profile" in part ? part.profile : null;
  return <div class="of-what">
    {services ? <Services services={services} chosen={state.service} type={p.type} ms={knownMs(p.range, view!.first)}
                          open={p.all} onOpen={p.onAll} onChoose={(service) => change({ service })} /> : <div class="services" />}
    <div class="filters">
      <Filters source={p.source} service={state.service} filters={state.filters} range={p.range} type={view?.type ?? ""}
               onChange={(filters) => change({ filters })} open={p.filtering} onOpen={p.onFiltering}
               {...(state.view === "flame" ? { group: state.group, onGroup: (group: string) => change({ group }) } : {})} />
      <Stacks value={state.stacks} names={() => (profile ? functionNames(profile) : [])} onChange={(stacks) => change({ stacks })} />
    </div>
  </div>;
}

function BaseTools(p: Common & { onCustom: () => void }): preact.JSX.Element {
  const { state, change } = p;
  const { base } = state;
  const [open, setOpen] = useState(false);
  const set = (b: Partial<Base>): void => change({ base: { ...base, ...b } });
  const r = baseRange(base, p.range);
  const part = p.view?.part;
  const known = part?.of === "compare" ? part.services.map((x) => x.name) : [];
  const others = [...new Set([...base.service ? [base.service] : [], ...known])].filter((n) => n !== "" && n !== state.service);
  return <div class="base-tools" role="group" aria-label="Compared with">
    <span class="soft">vs</span>
    <select aria-label="Compared with" value={base.range ? "range" : base.ago} title={rangeText(r, p.now)} onChange={(e) => {
      const v = e.currentTarget.value;
      if (v === "custom")
        p.onCustom();
      else if (v !== "range")
        set({ ago: Number(v), range: null });
      e.currentTarget.value = base.range ? "range" : String(base.ago);
    }}>
      {base.range && <option value="range">{rangeText(base.range, p.now)}</option>}
      {AGOS.map(([s, label]) => <option key={s} value={s}>{label}</option>)}
      <option value={0}>the same time</option>
      {base.ago > 0 && !AGOS.some(([s]) => s === base.ago) && <option value={base.ago}>{lastText(base.ago)} before</option>}
      <option value="custom">custom…</option></select>
    <span class="soft">of</span>
    <select aria-label="Service on the other side" value={base.service === null ? "same" : `=${base.service}`}
            onChange={(e) => set({ service: e.currentTarget.value === "same" ? null : e.currentTarget.value.slice(1) })}>
      <option value="same">{state.service ? "the same service" : "all services"}</option>
      {state.service !== "" && <option value="=">all services</option>}
      {others.map((n) => <option key={n} value={`=${n}`}>{showable(n)}</option>)}</select>
    <Filters source={p.source} service={base.service ?? state.service} filters={base.filters ?? state.filters} range={r}
             type={p.view?.type ?? ""} onChange={(filters) => set({ filters })} open={open} onOpen={setOpen} />
    {(base.filters || base.service !== null) && <button class="text" title="Filter both sides in the same way"
      onClick={() => set({ filters: null, service: null })}>Same filters</button>}
  </div>;
}

function Picture(p: Common & { profile: Profile; known: Range }): preact.JSX.Element {
  const { view, title } = p;
  // A request is shorter than any range that a reader chooses, and all of it is known.
  const opened = p.state.view === "tasks" || p.state.requests.trace !== "";
  const ms = opened || p.profile.tree.total[0] === 0 ? p.known.to - p.known.from : knownMs(p.known, view!.first);
  // The object stays the same as long as the samples do, because the page caches results by it.
  const profile = useMemo(() => ({ ...p.profile, meta: {
    ...p.profile.meta, title, durationNs: 1e6 * ms } }), [p.profile, view, title]);
  const requests = p.state.view === "traces" || p.state.view === "tasks";
  return <App profile={profile} keys={KEYS} losses={view!.losses} factors={p.state.view === "compare" || opened ? null : view!.factors}
              nothing={requests ? <div class="nothing"><h2>No samples for {p.state.requests.trace ? "this request" : "these requests"}</h2><p>{p.state.requests.trace
                ? "It" : "They"} used too little CPU, or the service does not publish trace context. How to enable it: <code>man culprit-up</code>.</p></div> : <Nothing poll={p.poll} type={p.type} state={p.state} change={p.change} />}
              {...p.state.view === "flame" ? { onWait: (name: string) => p.change({ filters: toggleWait(p.state.filters, name) }) } : {}}
              onRequests={(name) => p.change({ view: "traces", stacks: `fn="${name.replace(/[\\"]/g, "\\$&")}"`, requests: NO_REQUEST })}
              onSource={(source, line) => p.change({ source, line, code: null })} onCode={(code) => p.change({ code, source: "" })} onMeasure={p.onMeasure} />;
}

/** "GET /buy – Traces – culprit" */
function pageTitle(s: LiveState): string {
  const { trace, endpoint } = s.requests;
  const what = s.view === "files" || s.view === "agents" ? "" : trace !== "" ? `Trace ${trace.slice(0, 8)}` : endpoint || s.service;
  return [...what ? [showable(what)] : [], VIEW_WORD[s.view], "culprit"].join(" – ");
}

function requestTitle(s: LiveState, service: string): string {
  const { trace, span, endpoint, show } = s.requests;
  if (s.view === "tasks" && s.kept !== "" && trace === "")
    return s.kept === "difference" ? "Slow vs ordinary requests" : s.kept === "slow" ? "Slow requests" : "Ordinary requests";
  if (s.view === "tasks")
    return span !== "" ? "One span" : "One request";
  return trace !== "" ? span !== "" ? "One span" : "One trace" : `${show === "slow" ? "Slow vs typical: " : ""}${service} ${showable(endpoint)}`;
}

/** Of a state: what was gained from one time to another; both sides are means over a short range. */
function compareTitle(p: Common, before: Range): string {
  return p.type.adds === "at_moment" && p.state.base.range && before.to <= p.range.from
    ? `${p.title}: growth between ${clock(before.from)} and ${clock(p.range.to)}` : p.title;
}

/** Changes of a task, after which the page asks again. */
function actionsOf(source: Source, poll: Poll): TaskActions & PolicyActions {
  const act = async (method: "POST" | "DELETE", path: string, body: object | null = null): Promise<string> => {
    const { said } = await source.send(method, path, body);
    poll.again();
    return said;
  };
  return { cancel: (id) => act("POST", `tasks/${id}/cancel`), remove: (id) => act("DELETE", `tasks/${id}`),
    addPolicy: (p) => act("POST", "policies", p), removePolicy: (id) => act("DELETE", `policies/${id}`) };
}

function Content(p: Common & { dropped: File[] }): preact.JSX.Element {
  const { state, change, view, poll } = p;
  if (state.view === "files")
    return <Files source={p.source} keys={KEYS} dropped={p.dropped} />;
  const part: Part | null = view && view.part.of === state.view ? view.part : null;
  if (!part || missing(poll.problem, state))
    return !poll.problem ? <div class="nothing loading"><p>Loading…</p></div>
      : <NoView {...p} problem={poll.problem} />;
  switch (part.of) {
  case "overview":
    return view!.first === 0 || isEmpty(part.overview) ? <Nothing poll={poll} type={p.type} state={state} change={change} />
      : <OverviewView data={part.overview} self={state.self} type={p.type} ms={knownMs(view!.range, view!.first)} change={change}
                      when={state.range ? `in ${rangeText(state.range, p.now)}` : `in the last ${lastText(state.last)}`} />;
  case "flame":
    return <Picture {...p} profile={part.profile} known={view!.range} />;
  case "compare":
    return <Picture {...p} title={compareTitle(p, part.base)} profile={part.profile} known={view!.range} />;
  case "services":
    return view!.first === 0 ? <Nothing poll={poll} type={p.type} state={state} change={change} />
      : <ServiceTable rows={part.rows} type={p.type} ms={knownMs(view!.range, view!.first)} state={state} change={change}
                      by={part.by} labels={part.labels} factors={view!.factors} quality={part.quality} losses={view!.losses} />;
  case "traces":
    return <Traces part={part} chart={part.waterfall && <FlameChart samples={part.samples} range={spanRange(part.waterfall, state.requests.span)} dark={isDark()}
                                                               onSource={(source, line) => change({ source, line, code: null })} />}
                   onProfile={p.onTask} losses={view!.losses} state={state} change={change} type={p.type} factors={view!.factors} ms={knownMs(view!.range, view!.first)}
                   picture={part.profile && <Picture {...p} title={requestTitle(state, p.title)} profile={part.profile} known={part.waterfall ?? view!.range} />} />;
  case "tasks":
    return <Tasks part={part} state={state} change={change} type={p.type} now={p.now} dark={isDark()} onNew={() => p.onTask(null)}
                  actions={actionsOf(p.source, poll)} picture={part.profile && <Picture {...p} title={requestTitle(state, "")} profile={part.profile}
                                                                                      known={part.together ? { from: 0, to: part.ms } : rangeOf(part.kept, state.requests.trace) ?? view!.range} />} />;
  case "growth":
    return part.growth ? <GrowthView growth={part.growth} type={p.type} service={state.service ? p.title : "all services"} now={p.now} onRange={(range) => change({ range })}
                                     onCompare={(before, after) => change({ view: "compare", type: view!.type, range: after, base: { ...state.base, range: before } })}
                                     onFunction={(name) => change({ view: "flame", type: view!.type, stacks: `fn="${name.replace(/[\\"]/g, "\\$&")}"` })}
                                     onSource={(source, line) => change({ view: "flame", type: view!.type, source, line, code: null })} />
      : view!.first === 0 ? <Nothing poll={poll} type={p.type} state={state} change={change} /> : <NoMemory />;
  case "agents":
    return <AgentTable data={part.agents} events={part.events} now={p.now} onHost={(host) => change({ view: "flame", service: "",
      filters: [...state.filters.filter((f) => f.label !== "host.name"), { label: "host.name", value: host, not: false }] })} />;
  }
}

const isDark = (): boolean => document.documentElement.dataset["theme"] === "dark";

/** Whether the reader has chosen this thread, by its id or its name. */
function isLane(s: LiveState, l: Lane): boolean {
  const id = chosenOf(s.filters, "thread.id");
  return id !== "" ? l.id === id : l.thread !== "" && chosenOf(s.filters, "thread.name") === l.thread;
}

/** Only this thread, or again all of them. By its name if no other has it: a thread's first samples have no id. */
function chooseLane(s: LiveState, l: Lane, all: Lane[], keep: boolean): Partial<LiveState> {
  if (keep && isLane(s, l))
    return {};
  const alone = l.id === "" || (l.thread !== "" && all.filter((o) => o.thread === l.thread && o.service === l.service).length === 1);
  const rest = THREAD_LABELS.reduce(without, s.filters);
  return { service: l.service, filters: isLane(s, l) ? rest
    : toggle(rest, alone ? { "thread.name": l.thread } : { "thread.id": l.id }) };
}

function OfWaits(p: Common & { part: Part & { of: "flame" } }): preact.JSX.Element | null {
  const { state, change, view, type, part: { waits } } = p;
  if (!waits || (waits.rows.length === 0 && waits.idle === 0))
    return null;
  const stack = (layer: number, name: string): string => layer === 0 ? "" : `fn=${JSON.stringify(wokenBy(name))}`;
  return <WaitPanel waits={waits} view={state.waits} views={WAIT_VIEWS.filter((v) => v !== "" && v !== "threads")} onView={(v) => change({ waits: v })} showIdle={state.idle}
    onIdle={(idle) => change({ idle })} filters={state.filters} type={type} ms={knownMs(view!.range, view!.first)} dark={isDark()}
    onChoose={(name) => change({ filters: toggleWait(state.filters, name) })}
    onObject={(r) => change({ filters: toggle(state.filters, { [waits.objects!.label]: r.name }), service: r.service })}
    // What the owner did, not what it waited for: running as well.
    onOwner={(id) => change({ filters: toggle([WAIT_LABEL, HOLDS_LABEL, "lock", "peer", ...THREAD_LABELS].reduce(without, state.filters), { "thread.id": id }),
      type: wholeTime(view!.types)?.both ?? state.type })}
    onHeld={(r) => change({ filters: toggle([WAIT_LABEL, "lock", "peer", ...THREAD_LABELS].reduce(without, state.filters), { [HOLDS_LABEL]: r.name }),
      service: r.service, type: wholeTime(view!.types)?.both ?? state.type })}
    isWake={(layer, name) => layer === 0 ? chosenOf(state.filters, "thread.name") === name : state.stacks === stack(layer, name)}
    onWake={(layer, name) => layer === 0 ? change({ filters: toggle(state.filters, { "thread.name": name }) })
      : change({ stacks: state.stacks === stack(layer, name) ? "" : stack(layer, name) })} />;
}

function Charts(p: Common): preact.JSX.Element | null {
  const { state, change, view, range, type, now, title } = p;
  const part = view && view.part.of === state.view ? view.part : null;
  const setRange = (r: Range): void => change({ range: r });
  const spanText = state.range ? rangeText(state.range, now) : `last ${lastText(state.last)}`;
  const label = `${title}, ${type.label} by time, ${spanText}`;
  if (state.view === "flame") {
    const time = part?.of === "flame" ? part.timeline : null;
    const lanes = time?.by === "lanes" ? time.lanes.lanes : [];
    return <>
      <Timeline data={time} by={state.chart} range={range} type={type} now={now}
                onSelect={setRange} onBy={(chart) => change({ chart })} label={label} marks={view?.marks ?? []} noWaits={view !== null && !wholeTime(view.types)}
                onLabel={(label, value) => change(label === "function" ? { stacks: andLeaf(state.stacks, value) } : label === "service.name" ? { service: value } : { filters: [...without(state.filters, label), { label, value, not: false }] })}
                lanes={{ idle: state.idle, dark: isDark(), wait: waitOf(state.filters), find: state.lane, onFind: (lane) => change({ lane }),
                  isChosen: (l) => isLane(state, l), onLane: (l, r) => change({ ...r ? { range: r } : {}, ...chooseLane(state, l, lanes, r !== null) }) }} />
      {part?.of === "flame" && <OfWaits {...p} part={part} />}
    </>;
  }
  if (state.view !== "compare")
    return null;
  const both = part?.of === "compare" ? part : null;
  const most = both ? Math.max(peak(both.before, type), peak(both.after, type)) : 0;
  return <div class="two-charts">
    <Chart name="before" marks={view?.marks ?? []} most={most} bars={both?.before ?? null} range={both?.base ?? baseRange(state.base, range)} type={type} now={now}
           onSelect={(r) => change({ base: { ...state.base, range: r } })} label={`Before: ${title}, ${type.label} by time`} />
    <Chart name="after" marks={view?.marks ?? []} most={most} bars={both?.after ?? null} range={range} type={type} now={now} onSelect={setRange} label={`After: ${label}`} />
  </div>;
}

/** Source lines or instructions, over the picture. */
function Sheets(p: Common): preact.JSX.Element | null {
  const { state, change, view, source } = p;
  const part = view?.part;
  if (!view || !part || part.of !== state.view || !("profile" in part) || !part.profile)
    return null;
  const { profile } = part;
  const requests = state.view === "traces" || state.view === "tasks";
  const parameters = { from: view.range.from, to: view.range.to, query: requests ? requestQuery(state, view.type)
    : selector(state.service, shownFilters(state, view.type)), type: view.type, stacks: state.stacks, ...requests ? parametersOf(state.requests, state.service) : {} };
  const quality = <Quality profile={profile} samples={profile.meta.quality.samples} losses={view.losses} />;
  const { code } = state;
  if (code)
    return <AssemblySheet key={JSON.stringify(code)} source={source} code={code} parameters={parameters} quality={quality}
                          onSource={(file, line) => change({ source: file, line, code: null })} onClose={() => change({ code: null })} />;
  return state.source === "" ? null
    : <SourceCode key={state.source} source={source} file={state.source} line={state.line} parameters={parameters} quality={quality}
                  onClose={() => change({ source: "", line: 0 })} />;
}

function Live({ source }: { source: Source }): preact.JSX.Element {
  const [state, change] = useSearch();
  const poll = usePoll(source, state);
  const { view, problem } = poll;
  const [custom, setCustom] = useState<"range" | "base" | null>(null);
  const [all, setAll] = useState(false);
  const [noting, setNoting] = useState(false);
  const [filtering, setFiltering] = useState(false);
  const [dropped, setDropped] = useState<File[]>([]);
  const now = source.now();
  const range = view?.range ?? rangeAt(state, now);
  const absolute = state.range ?? range;
  const title = state.service ? showable(state.service) : "All services";
  const [measuring, setMeasuring] = useState<FunctionOf | null>(null);
  const [arming, setArming] = useState<{ of: Endpoint | null } | null>(null);
  const files = state.view === "files";
  const pictured = state.view === "flame" || state.view === "compare" || state.view === "growth";
  useLayoutEffect(() => {
    document.title = pageTitle(state);
  }, [state]);
  const common: Common = { source, state, change, poll, view, type: typeOf(view), range, now, title, onTask: (of) => setArming({ of }), onMeasure: setMeasuring };

  const onKey = (e: KeyboardEvent): void => {
    if (e.ctrlKey || e.metaKey || e.altKey || (e.target as HTMLElement).matches("input, select, textarea") ||
        document.querySelector("dialog[open]"))
      return;
    const view = VIEWS[Number(e.key) - 1];
    switch (e.key) {
    case "l": change({ range: state.range ? null : range }); break;
    case "v":
      if (pictured)
        setAll(true);
      else if (state.view === "services")
        document.querySelector<HTMLElement>(".services-page [type=search]")!.focus();
      else
        change(toView(state, "services"));
      break;
    case "y": document.querySelector<HTMLElement>(".copy-link")?.click(); break;
    case "m": setFiltering(pictured); break;
    case "o":
      // In a flame graph it is the key of the frame.
      if (!document.querySelector(".flame-window"))
        document.querySelector<HTMLElement>(".finding .pick, [aria-label=Requests] tbody .pick")?.click();
      break;
    case "g": change({ chart: CHARTS[(CHARTS.indexOf(state.chart) + 1) % CHARTS.length]! }); break;
    case "[": change({ range: moved(absolute, -0.5, now) }); break;
    case "]": change({ range: moved(absolute, 0.5, now) }); break;
    case "-": change({ range: wider(absolute, now) }); break;
    default:
      if (!view)
        return;
      change(toView(state, view));
    }
    e.preventDefault();
  };
  useLayoutEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  });
  useEffect(() => {
    const over = (e: DragEvent): void => e.preventDefault();
    const drop = (e: DragEvent): void => {
      e.preventDefault();
      const files = [...e.dataTransfer?.files ?? []];
      if (files.length) {
        setDropped(files);
        change({ view: "files" });
      }
    };
    addEventListener("dragover", over);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("drop", drop);
    };
  }, [change]);

  return (
    <div class="live">
      <div class="live-bar">
        <div class="bar-row">
          <Tabs view={state.view} onView={(v) => change(toView(state, v))} />
          {!files && state.view !== "tasks" && <TimeTools {...common} absolute={absolute} onCustom={() => setCustom("range")} onNotes={() => setNoting(true)} />}
        </div>
        {pictured && <OfWhat {...common} all={all} onAll={setAll} filtering={filtering} onFiltering={setFiltering} />}
        {state.view === "compare" && <BaseTools {...common} onCustom={() => setCustom("base")} />}
        <Charts {...common} />
      </div>
      {files ? <div class="spoken" /> : <Status poll={poll} state={state} now={now} />}
      <div class={poll.busy && view ? "live-page busy" : "live-page"} aria-busy={poll.busy}>
        {problem?.kind === "token" && !files ? <Token text={problem.text} onToken={(t) => {
          source.token = t;
          poll.again();
        }} /> : <Content {...common} dropped={dropped} />}
      </div>
      <Sheets {...common} />
      {arming && <TaskDialog endpoint={arming.of} onClose={() => setArming(null)} onStart={async (task) => {
        const { said, answer } = await source.send("POST", "tasks", task);
        if (said === "") {
          setArming(null);
          change({ view: "tasks", task: readTask(answer).id, requests: NO_REQUEST });
        }
        return said;
      }} />}
      {measuring && <MeasureDialog of={measuring} service={state.service} services={view && "services" in view.part ? view.part.services.map((s) => s.name) : []}
                                   onClose={() => setMeasuring(null)} onStart={async (m) => {
        const { said, answer } = await source.send("POST", "measurements", m);
        if (said === "") {
          setMeasuring(null);
          change({ measure: readMeasurement(answer).id });
        }
        return said;
      }} />}
      {state.measure !== "" && !problem && <MeasureCard key={state.measure} source={source} id={state.measure} onClose={() => change({ measure: "" })}
        onTrace={(c) => change({ ...toView(state, "traces"), measure: "", filters: [], stacks: "", requests: { ...NO_REQUEST, trace: c.trace },
          range: { from: Math.floor(c.end - c.ns / 1e6) - AROUND_MS, to: Math.ceil(c.end) + AROUND_MS } })} />}
      {noting && <Notes source={source} range={absolute} service={state.service} address={`?${encodeLive(state)}${address().hash}`} onChanged={poll.again} onClose={() => setNoting(false)} />}
      {custom && <Custom range={custom === "base" ? baseRange(state.base, range) : absolute} onClose={() => setCustom(null)}
                         onRange={(r) => change(custom === "base" ? { base: { ...state.base, range: r } } : { range: r })} />}
    </div>
  );
}

function boot(): void {
  // Applies until there is a picture, which sets the theme itself.
  document.documentElement.dataset["theme"] = decodeState(location.hash).theme ?? recallTheme() ??
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  render(<Live source={new Source()} />, document.getElementById("app")!);
}

if (document.readyState === "loading")
  document.addEventListener("DOMContentLoaded", boot);
else
  boot();
