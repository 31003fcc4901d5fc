// SPDX-License-Identifier: Apache-2.0
/* All requests that a task kept, together: slow ones, ordinary ones, and the difference; how their times by state are distributed. */
import type { LiveState } from "../model/address.ts";
import type { Estimator, TaskAnalysis } from "../model/analysis.ts";
import { allStates, KEPT_GROUPS } from "../model/kept.ts";
import type { Distribution, GroupTimes, KeptGroup, KeptShown, Times } from "../model/kept.ts";
import { showable } from "../model/payload.ts";
import type { Slow } from "../model/slow.ts";
import { count, duration } from "../model/text.ts";
import { Calls } from "./calls.tsx";
import { SlowTable } from "./slow.tsx";
import { StateBar, stateColour } from "./states.tsx";

export interface Together {
  times: Times;
  /** Of the chosen group, when its calls are shown. */
  calls: TaskAnalysis | null;
  /** When the difference is shown. */
  slow: Slow | null;
}

const ms = (v: number): string => duration(1e6 * v);
const plural = (n: number, what: string): string => `${count(n)} ${what} ${n === 1 ? "request" : "requests"}`;
const WORD: Record<KeptGroup, string> = { slow: "slow", control: "ordinary" };
export const SHOWN_WORD: Record<Exclude<KeptShown, "">, string> = { slow: "Slow", control: "Ordinary", difference: "Difference" };

/* ---- time by state ---- */

function Cells(p: { d: Distribution | null | undefined; none: boolean }): preact.JSX.Element {
  const { d } = p;
  return <>{(["mean", "p50", "p95", "max"] as const).map((k) => <td key={k} class="num">{p.none ? "" : ms(d?.[k] ?? 0)}</td>)}</>;
}

function known(g: GroupTimes, what: string): string {
  const notes = [...g.partly > 0 ? [`${count(g.partly)} without the first samples`] : [], ...g.leftOut > 0 ? [`${count(g.leftOut)} more without times by state`] : []];
  return `${plural(g.requests, what)}${notes.length > 0 ? ` (${notes.join(", ")})` : ""}`;
}

/** Means as bars, whose widths compare; below it all figures. */
export function TimesTable(p: { times: Times; open: boolean; dark: boolean }): preact.JSX.Element | null {
  const { groups } = p.times;
  const any = KEPT_GROUPS.filter((g) => groups[g].wall !== null);
  const most = Math.max(...any.map((g) => groups[g].wall!.mean), 1e-9);
  if (any.length === 0)
    return <p class="soft none">No agent has sent times by state for these requests.</p>;
  const row = (key: string, name: preact.ComponentChildren, of: (g: GroupTimes) => Distribution | null | undefined): preact.JSX.Element => <tr key={key}>
    <th scope="row">{name}</th>{KEPT_GROUPS.map((g) => <Cells key={g} d={of(groups[g])} none={groups[g].wall === null} />)}</tr>;
  const some = (of: (g: GroupTimes) => Distribution | null): boolean => any.some((g) => (of(groups[g])?.max ?? 0) > 0);
  return <section class="times" aria-label="Times by state"><details open={p.open}>
    <summary>{any.map((g) => <span key={g} class="mean"><span>{known(groups[g], WORD[g])}, {ms(groups[g].wall!.mean)} each</span>
      <span class="whole" style={{ width: `${100 * groups[g].wall!.mean / most}%` }}><StateBar states={groups[g].means} whole={groups[g].wall!.mean} dark={p.dark} /></span></span>)}</summary>
    <div class="table-scroll" tabIndex={0}><table>
      <thead><tr><th>Time</th>{KEPT_GROUPS.map((g) => ["mean", "median", "p95", "longest"].map((k) => <th key={g + k} class="num">{WORD[g]}, {k}</th>))}</tr></thead>
      <tbody>{row("wall", <b>duration</b>, (g) => g.wall)}
        {allStates(p.times).map((s) => row(s.name, <><i style={{ background: stateColour(s, p.dark) }} aria-hidden="true" />{showable(s.name)}</>, (g) => g.states.get(s.name)))}
        {some((g) => g.rest) && row("rest", "in no thread", (g) => g.rest)}
        {some((g) => g.overlap) && row("overlap", "several threads at once", (g) => g.overlap)}</tbody>
    </table></div>
    <p class="soft">Means add up to the mean duration{some((g) => g.overlap) ? ", without the time of several threads at once" : ""}. Medians and p95 do not.</p>
  </details></section>;
}

/* ---- all of it ---- */

interface Props {
  together: Together;
  state: LiveState;
  change: (c: Partial<LiveState>) => void;
  dark: boolean;
  /** The flame graph of the group, or of the difference. */
  picture: preact.JSX.Element | null;
}

/** Which requests, of which endpoint. */
export function TogetherBar(p: Pick<Props, "together" | "state" | "change">): preact.JSX.Element {
  const { endpoints } = p.together.times;
  const { kept, requests } = p.state;
  return <>
    <nav class="tabs" aria-label="Of the kept requests">{(["slow", "control", "difference"] as const).map((k) =>
      <button key={k} aria-current={kept === k ? "page" : undefined} onClick={() => p.change({ kept: k })}>{SHOWN_WORD[k]}</button>)}</nav>
    {endpoints.length > 1 && <label class="soft">to <select aria-label="Endpoint" value={requests.endpoint}
      onChange={(e) => p.change({ requests: { ...requests, endpoint: e.currentTarget.value } })}>
      <option value="">all endpoints</option>{endpoints.map((e) => <option key={e.name} value={e.name}>{showable(e.name)}</option>)}</select></label>}
  </>;
}

function Group(p: Props): preact.JSX.Element {
  const { state, change, together: { calls } } = p;
  const { requests } = state;
  return <>
    <div class="filter calls-bar">
      <nav class="tabs" aria-label="Of these requests">{([["", "Flame graph"], ["unbiased", "Calls"]] as const).map(([e, name]) =>
        <button key={e} aria-current={(state.calls === "") === (e === "") ? "page" : undefined} onClick={() => change({ calls: e as Estimator })}>{name}</button>)}</nav>
      {calls && <label class="soft"><input type="checkbox" checked={!requests.only} onChange={(e) => change({ requests: { ...requests, only: !e.currentTarget.checked } })} /> include
        child spans</label>}
      {calls && calls.leftOut > 0 && <span class="n">{count(calls.leftOut)} not delivered</span>}
      {calls && calls.partly > 0 && <span class="n">{count(calls.partly)} without the first samples</span>}</div>
    {calls ? <Calls key={`${state.kept} ${requests.endpoint} ${requests.only}`} analysis={calls} requests={calls.requests} onSource={(source, line) => change({ source, line, code: null })} />
      : p.picture ?? <div class="nothing"><h2>No stacks of these requests</h2><p>No {state.kept === "control" ? "ordinary" : "slow"} request with
        samples was kept yet.</p></div>}
  </>;
}

export function TogetherView(p: Props): preact.JSX.Element {
  const { together: { times, slow }, change } = p;
  return <>
    <TimesTable key={slow ? "difference" : "group"} times={times} open={!slow} dark={p.dark} />
    {slow ? <><SlowTable slow={slow} kept onSource={(source, line) => change({ source, line, code: null })} onFunction={(name) => {
      location.hash = new URLSearchParams({ q: `^${name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")}$` }).toString();
    }} />{p.picture}</> : <Group {...p} />}
  </>;
}
