// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks: a list of all with what became of their requests and why there is no data, one task with the requests that it
 * kept, and one of these requests: its time by state, its spans, its stacks. The dialog that adds a task is here, too.
 */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { LiveState } from "../model/address.ts";
import type { Estimator } from "../model/analysis.ts";
import { showable } from "../model/payload.ts";
import { countsText, isDelivered, isLive, ledgerNote, outcomeText, reasonText, sumMs, taskFor } from "../model/tasks.ts";
import type { Kept, KeptRequest, NewTask, Task } from "../model/tasks.ts";
import { count, duration, percent } from "../model/text.ts";
import { clock, day } from "../model/times.ts";
import { NO_REQUEST } from "../model/traces.ts";
import type { Endpoint } from "../model/traces.ts";
import { nameOfType } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import type { Part } from "./ask.ts";
import { Calls } from "./calls.tsx";
import { Measurements } from "./measure.tsx";
import { opens } from "./opens.ts";
import { Cause, Policies } from "./policies.tsx";
import type { PolicyActions } from "./policies.tsx";
import { stateColour, StateBar, statesText, stateText } from "./states.tsx";
import { TogetherBar, TogetherView } from "./together.tsx";
import { WaterfallView } from "./waterfall.tsx";
import "./tasks.css";

type TasksPart = Extract<Part, { of: "tasks" }>;

export interface TaskActions {
  /** Resolves to "" or to why it was refused. */
  cancel: (id: string) => Promise<string>;
  remove: (id: string) => Promise<string>;
}

interface Props {
  part: TasksPart;
  state: LiveState;
  change: (c: Partial<LiveState>) => void;
  type: SampleType;
  now: number;
  dark: boolean;
  actions: TaskActions & PolicyActions;
  onNew: () => void;
  /** The flame graph of the opened request, or of all together. */
  picture: preact.JSX.Element | null;
}

const ms = (v: number): string => duration(1e6 * v);
const at = (t: number, now: number): string => (day(t) === day(now) ? clock(t) : `${day(t)} ${clock(t)}`);
const whatOf = (t: Task): string => (t.ofProcesses ? t.keeps : t.endpoint || "all endpoints");
const untilText = (t: Task, now: number): string => (t.end > 0 ? at(t.end, now) : "cancelled");

/* ---- time by state ---- */

/** All parts with their numbers, and what is not known. */
function Ledger(p: { q: KeptRequest; snapshots: boolean; dark: boolean; onLocks: () => void }): preact.JSX.Element {
  const { states, duration: whole } = p.q;
  return <section class="ledger" aria-label="Time by state">
    <StateBar states={states} whole={whole} dark={p.dark} />
    <ul class="wait-legend">{states.map((s) => <li key={s.name} title={s.wait?.help ?? ""}>
      <i style={{ background: stateColour(s, p.dark) }} aria-hidden="true" />{stateText(s)} <span class="soft">{percent(s.ms / Math.max(whole, sumMs(states)))}</span>
      {s.wait?.id === "LOCK" && <>{" "}<button class="text" title="The locks that the service waited for at that time, and what their owners did"
        onClick={p.onLocks}>Who held it?</button></>}</li>)}</ul>
    <p class="soft">{ledgerNote(states, whole, p.snapshots)}</p>
  </section>;
}

/* ---- requests that a task wanted ---- */

function Requests(p: Props & { kept: Kept }): preact.JSX.Element {
  const { requests } = p.kept;
  const most = requests.reduce((m, q) => Math.max(m, q.duration, sumMs(q.states)), 0) || 1;
  return <section aria-label="Kept requests">
    <div class="filter"><h2>Requests that matched, newest first</h2><span class="n">{count(requests.length)}</span>
      {requests.length > 0 && <button class="text" title="All slow requests as one, compared with ordinary ones" onClick={() => p.change({ kept: "slow" })}>All together</button>}</div>
    {requests.length === 0 ? <p class="soft none">None yet.</p>
      : <div class="table-scroll" tabIndex={0}><table>
        <thead><tr><th>Started</th><th class="num">Took</th><th class="c-states">By state</th><th class="c-name">Endpoint</th><th>Status</th><th>Why kept</th><th>Host</th>
          <th>Outcome</th></tr></thead>
        <tbody>{requests.map((q) => <tr key={`${q.trace} ${q.span}`} {...opens(() => p.change({ requests: { ...NO_REQUEST, trace: q.trace } }))}>
          <td><button class="pick" title="Show this request">{at(q.start, p.now)}</button></td>
          <td class="num">{ms(q.duration)}</td>
          <td class="c-states"><span style={{ width: `${100 * Math.max(q.duration, sumMs(q.states)) / most}%` }}>
            <StateBar states={q.states} whole={q.duration} dark={p.dark} /></span><span class="spoken">{statesText(q.states)}</span></td>
          <td class="c-name">{showable(q.endpoint)}</td><td class={q.status === "error" ? "grew" : ""}>{q.status === "error" ? "failed" : q.status === "unset" ? "" : showable(q.status)}</td>
          <td>{showable(reasonText(q.reason))}</td><td>{showable(q.host)}</td><td class={isDelivered(q) ? "" : "soft"}>{showable(outcomeText(q.outcome))}</td></tr>)}</tbody>
      </table></div>}
  </section>;
}

/* ---- one task ---- */

/** Deleting cannot be taken back, so it takes two clicks. */
function Buttons(p: { task: Task; actions: TaskActions; onDone: (deleted: boolean) => void }): preact.JSX.Element {
  const [sure, setSure] = useState(false);
  const [problem, setProblem] = useState("");
  const act = async (of: (id: string) => Promise<string>, deleted: boolean): Promise<void> => {
    const said = await of(p.task.id);
    setProblem(said);
    setSure(false);
    if (said === "")
      p.onDone(deleted);
  };
  return <span class="task-buttons">
    {isLive(p.task) && <button class="text" title="End this task. The requests that it kept stay" onClick={() => void act(p.actions.cancel, false)}>Cancel</button>}
    <button class="text" title="Remove the task and its list of requests. The profiles of the requests stay" onBlur={() => setSure(false)}
            onClick={() => (sure ? void act(p.actions.remove, true) : setSure(true))}>{sure ? "Really delete" : "Delete"}</button>
    {problem !== "" && <span class="grew" role="alert">{showable(problem)}</span>}
  </span>;
}

function WhyList(p: { task: Task }): preact.JSX.Element | null {
  return p.task.why.length === 0 ? null
    : <ul class="why" aria-label="Why there is not more data">{p.task.why.map((w) => <li key={w.reason}>{showable(w.text)}</li>)}</ul>;
}

function Agents(p: { task: Task; now: number }): preact.JSX.Element | null {
  const { agents } = p.task;
  // Of whole processes an agent knows its own.
  const counts = p.task.ofProcesses ? [] : [["Processes", "processes"], ["Publishing", "publishing"], ["Delivered", "kept"], ["Evicted", "evicted"], ["Lost", "lost"]] as const;
  return agents.length === 0 ? null : <div class="wait-scroll"><table class="waits" aria-label="Agents of this task">
    <thead><tr><th>Agent</th><th>State</th>{counts.map(([name]) => <th key={name} class="num">{name}</th>)}<th>Asked</th></tr></thead>
    <tbody>{agents.map((a) => <tr key={a.host}><th scope="row">{showable(a.host)}</th><td>{showable(a.state)}{a.reason && `: ${showable(a.reason)}`}</td>
      {counts.map(([name, key]) => <td key={name} class="num">{count(a[key])}</td>)}<td>{at(a.asked, p.now)}</td></tr>)}</tbody></table></div>;
}

/** What agents delivered for a task of whole processes. */
const profilesOf = (t: Task): Partial<LiveState> => ({ view: "flame", service: t.service, type: "", filters: [{ label: "task", value: t.id, not: false }], stacks: "",
  group: "", task: "", kept: "", requests: NO_REQUEST, range: { from: t.start, to: t.end } });

function OneTask(p: Props & { task: Task }): preact.JSX.Element {
  const { task: t, now } = p;
  return <section class="task" aria-label="Task">
    <div class="filter"><h2>{showable(t.service)} {showable(whatOf(t))}</h2><b class={`task-state ${t.state}`}>{showable(t.state)}</b>
      <Buttons task={t} actions={p.actions} onDone={(deleted) => deleted && p.change({ task: "" })} /></div>
    {t.ofProcesses ? <p class="soft">profiles the service's processes by the profiler of SkyWalking's agents; {at(t.start, now)} until {untilText(t, now)} at the latest;
      {" "}task {showable(t.id)} <button class="text" onClick={() => p.change(profilesOf(t))}>Show the profiles</button></p>
      : <><p class="soft">keeps {showable(t.keeps)}; a sample of {t.running ? "running threads" : "nothing that runs"} every {ms(t.periodUs / 1000)},
      {t.waiting ? " and waits" : " without waits"}; {at(t.start, now)} until {untilText(t, now)}; task {showable(t.id)}</p>
    <p>{countsText(t.counts)}{t.counts.matched > 0 && `; the slowest took ${ms(t.slowestMs)}`}</p></>}
    <Cause cause={t.cause} policy={t.policy} />
    <WhyList task={t} />
    <Agents task={t} now={now} />
    {t.log.length > 0 && <details><summary>Log of this task</summary><ol class="task-log">{t.log.map((l, i) => <li key={i}>
      <span class="soft">{at(l.at, now)}</span> {l.host && `${showable(l.host)}: `}{showable(l.text)}</li>)}</ol></details>}
  </section>;
}

/* ---- one request ---- */

/** Before and after the request: samples of a wait come when it is over, or every few seconds. */
const AROUND_MS = 10000;

/** The locks that threads of the service waited for while it worked on the request. */
const locksAt = (service: string, q: KeptRequest): Partial<LiveState> => ({ view: "flame", service, type: nameOfType("OFF_CPU"), filters: [], stacks: "", group: "",
  waits: "lock", task: "", requests: NO_REQUEST, range: { from: Math.floor(q.start) - AROUND_MS, to: Math.ceil(q.start + q.duration) + AROUND_MS } });

function OneRequest(p: Props & { kept: Kept; q: KeptRequest }): preact.JSX.Element {
  const { part, state, q } = p;
  return <>
    <section class="one-request" aria-label="Kept request">
      <div class="filter"><h2>{showable(q.endpoint)}, {ms(q.duration)}</h2><span class="soft">{at(q.start, p.now)}; {showable(reasonText(q.reason))};
        {" "}{showable(outcomeText(q.outcome))}{q.host && ` by ${showable(q.host)}`}</span></div>
      <Ledger q={q} snapshots={part.task!.agents.some((a) => a.skywalking && a.host === q.host)} dark={p.dark} onLocks={() => p.change(locksAt(p.part.task!.service, q))} />
    </section>
    {part.waterfall && <WaterfallView w={part.waterfall} state={p.state.requests} type={p.type} states={p.kept.spans} dark={p.dark}
                                      onChange={(r) => p.change({ requests: { ...p.state.requests, ...r } })} />}
    {p.picture && <div class="filter calls-bar">
      <nav class="tabs" aria-label="Of this request">{([["", "Flame graph"], ["unbiased", "Calls"]] as const).map(([e, name]) =>
        <button key={e} aria-current={(state.calls === "") === (e === "") ? "page" : undefined} onClick={() => p.change({ calls: e })}>{name}</button>)}</nav>
      {state.calls !== "" && <label class="soft"><input type="checkbox" checked={state.whole} onChange={(e) => p.change({ whole: e.currentTarget.checked })} /> merge
        all threads</label>}
      {state.calls !== "" && <label class="soft">estimate <select aria-label="Estimate" value={state.calls} onChange={(e) => p.change({ calls: e.currentTarget.value as Estimator })}>
        <option value="unbiased">unbiased</option><option value="skywalking">as SkyWalking</option></select></label>}</div>}
    {p.picture && part.calls && state.calls !== "" ? <Calls key={`${state.calls} ${state.whole} ${state.requests.span} ${state.requests.only}`} analysis={part.calls} onSource={(source, line) => p.change({ source, line, code: null })} /> : p.picture ?? <div class="nothing"><h2>No stacks of this request</h2><p>{q.outcome === "waiting" ? "Its agent sends them a few seconds after the request."
      : "No agent sent any, or they were deleted since."}</p></div>}
  </>;
}

/* ---- all tasks ---- */

function TaskList(p: Props): preact.JSX.Element {
  const { tasks } = p.part;
  if (tasks.length === 0)
    return <div class="nothing"><h2>No tasks</h2>
      <p>A task profiles the slow requests of a service in detail, from their first millisecond. Agents record all requests, and the server decides which ones to keep when they have ended.
        Choose “Profile slow requests” at an endpoint, or run <code>culprit ctl task add SERVICE</code>.</p>
      <p><button class="text" onClick={p.onNew}>New task</button></p></div>;
  return <section aria-label="Tasks">
    <div class="filter"><h2>Tasks</h2><span class="n">{count(tasks.length)}</span><button class="text" onClick={p.onNew}>New task</button></div>
    <div class="table-scroll" tabIndex={0}><table>
      <thead><tr><th>State</th><th class="c-name">Endpoint</th><th>Keeps</th><th class="num" title="Requests to the service">Seen</th>
        <th class="num" title="Requests to the endpoint while the task ran">Matched</th><th class="num" title="Slow enough, or failed">Wanted</th>
        <th class="num" title="Delivered by agents">Kept</th><th class="num" title="Delivered, of those chosen at random for comparison">Ordinary</th>
        <th class="num" title="Wanted, but no agent has them any more">Dropped</th><th>Until</th><th /></tr></thead>
      <tbody>{tasks.map((t) => <>
        <tr key={t.id}>
          <td><b class={`task-state ${t.state}`}>{showable(t.state)}</b></td>
          <td class="c-name"><button class="pick" title="Show this task and its requests" onClick={() => p.change({ task: t.id, requests: NO_REQUEST })}>
            {showable(whatOf(t))}</button> <span class="soft">{showable(t.service)}</span></td>
          <td>{!t.ofProcesses && showable(t.keeps)}</td>{(["seen", "matched", "wanted", "kept", "ordinary", "dropped"] as const).map((k) =>
            <td key={k} class={k === "dropped" && t.counts[k] > 0 ? "num grew" : "num"}>{count(t.counts[k])}</td>)}
          <td>{untilText(t, p.now)}</td>
          <td><Buttons task={t} actions={p.actions} onDone={() => undefined} /></td></tr>
        {t.why.length > 0 && <tr key={`${t.id} why`} class="advice"><td colSpan={11}><WhyList task={t} /></td></tr>}</>)}</tbody>
    </table></div>
  </section>;
}

export function Tasks(p: Props): preact.JSX.Element {
  const { part, state, change } = p;
  // Until the request is there, its task stays.
  const q = part.waterfall ? part.kept?.requests.find((x) => x.trace === state.requests.trace) : undefined;
  if (!part.task || !part.kept)
    return <div class="traces-page lists tasks-page"><TaskList {...p} />
      <Policies policies={part.policies} now={p.now} actions={p.actions} onTask={(id) => change({ task: id, requests: NO_REQUEST })} />
      <Measurements all={part.measurements} now={p.now} onShow={(measure) => change({ measure })} /></div>;
  const { together } = part;
  return <div class={q || together ? "traces-page tasks-page" : "traces-page lists tasks-page"}>
    <div class="filter traces-bar">
      <button class="reset" onClick={() => change({ task: "", kept: "", requests: NO_REQUEST })}>‹ All tasks</button>
      {(q || together) && <button class="reset" onClick={() => change({ kept: "", requests: NO_REQUEST })}>‹ {showable(part.task.service)} {showable(whatOf(part.task))}</button>}
      {together && <TogetherBar together={together} state={state} change={change} />}
    </div>
    {together ? <TogetherView together={together} state={state} change={change} dark={p.dark} picture={p.picture} /> : q ? <OneRequest {...p} kept={part.kept} q={q} /> : <><OneTask {...p} task={part.task} />{!part.task.ofProcesses && <Requests {...p} kept={part.kept} />}</>}
  </div>;
}

/* ---- a new task ---- */

const KEEPS = [["min", "slow requests"], ["percentile", "requests above a percentile"], ["errors", "failed requests"], ["all", "all requests"]] as const;
const FOR: [number, string][] = [[60000, "1 min"], [300000, "5 min"], [900000, "15 min"], [3600000, "1 h"], [0, "until cancelled"]];
const PERIODS: [number, string][] = [[1000, "1 ms"], [10000, "10 ms"], [100000, "100 ms"]];
const RANKS = [90, 95, 99, 99.9];

/** The fields of the dialog as a task; a threshold that was not chosen is left out. */
function specOf(t: NewTask, keeps: (typeof KEEPS)[number][0], percentile: number): NewTask {
  const { min_ms: min = 0, ...rest } = t;
  return { ...rest, errors: t.errors || keeps === "errors", control: keeps === "all" ? 0 : t.control,
    ...keeps === "min" ? { min_ms: min } : keeps === "percentile" ? { percentile } : keeps === "all" ? { min_ms: 0 } : {} };
}

export function TaskDialog(p: { endpoint: Endpoint | null; onStart: (t: NewTask) => Promise<string>; onClose: () => void }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const start = useRef<HTMLButtonElement>(null);
  const [t, set] = useState(() => taskFor(p.endpoint));
  const [keeps, setKeeps] = useState<(typeof KEEPS)[number][0]>("min");
  const [percentile, setPercentile] = useState(99);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => {
    ref.current!.showModal();
    // All is filled in: Enter starts.
    if (p.endpoint)
      start.current!.focus();
  }, []);
  const number = (key: "min_ms" | "max_requests" | "control", label: string, scale: number, step: string, unit: string): preact.JSX.Element => <label>{label}
    <span><input type="number" min="0" step={step} required value={+(scale * (t[key] ?? 0)).toPrecision(6)}
                 onInput={(e) => set({ ...t, [key]: Number(e.currentTarget.value) / scale })} /> {unit}</span></label>;
  const choice = (key: "duration_ms" | "period_us", label: string, of: [number, string][]): preact.JSX.Element => <label>{label}
    <select value={t[key]} onChange={(e) => set({ ...t, [key]: Number(e.currentTarget.value) })}>{of.map(([v, text]) => <option key={v} value={v}>{text}</option>)}</select></label>;
  return (
    <dialog class="help sheet-range sheet-task" ref={ref} onClose={p.onClose} aria-labelledby="task-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <form onSubmit={(e) => {
        e.preventDefault();
        setBusy(true);
        void p.onStart(specOf(t, keeps, percentile)).then((said) => {
          setBusy(false);
          setProblem(said);
        });
      }}>
        <header><h2 id="task-title">Profile slow requests</h2>
          <button class="icon" type="button" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        <label>Service <input required value={t.service} onInput={(e) => set({ ...t, service: e.currentTarget.value })} /></label>
        <label title="An exact name, a name with * for any characters, or ~ and a regular expression">Endpoint <input placeholder="all" value={t.endpoint}
          onInput={(e) => set({ ...t, endpoint: e.currentTarget.value })} /></label>
        <label>Keep <select value={keeps} onChange={(e) => setKeeps(e.currentTarget.value as typeof keeps)}>
          {KEEPS.map(([v, text]) => <option key={v} value={v}>{text}</option>)}</select></label>
        {keeps === "min" && number("min_ms", "From", 1, "any", "ms")}
        {keeps === "percentile" && <label>Above percentile <select value={percentile} onChange={(e) => setPercentile(Number(e.currentTarget.value))}>
          {RANKS.map((r) => <option key={r} value={r}>{r}</option>)}</select></label>}
        {(keeps === "min" || keeps === "percentile") && <label>Also failed requests <input type="checkbox" checked={t.errors}
          onChange={(e) => set({ ...t, errors: e.currentTarget.checked })} /></label>}
        {keeps !== "all" && number("control", "Ordinary requests, to compare", 100, "any", "%")}
        {choice("duration_ms", "For", FOR)}
        {choice("period_us", "A sample every", PERIODS)}
        {number("max_requests", "At most", 1, "1", "requests")}
        {problem !== "" && <p class="grew" role="alert">{showable(problem)}</p>}
        <button class="text" ref={start} disabled={busy}>Start</button>
      </form>
    </dialog>
  );
}
