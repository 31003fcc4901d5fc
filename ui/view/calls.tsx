// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of a kept request, or of all that a task kept, as a tree: time in total, of their own, and samples; for whom they
 * waited. The ten that took the most of their own are marked.
 */
import { useState } from "preact/hooks";
import { shownCalls, whomText } from "../model/analysis.ts";
import type { Analysis, Call, Group, Whom } from "../model/analysis.ts";
import { showable } from "../model/payload.ts";
import { base, count, duration } from "../model/text.ts";

const MOST = 1000;
const INDENT = 12;

interface Props {
  analysis: Analysis;
  /** Of so many requests; 0: of one. */
  requests?: number;
  /** A line of a source file was chosen. */
  onSource: (file: string, line: number) => void;
}

/** Which columns there are, besides those of all. */
interface Columns {
  requests: number;
  theirs: boolean;
  owner: boolean;
  waker: boolean;
}

function columnsOf(g: Group, requests: number): Columns {
  const any = (of: (r: Call) => unknown): boolean => g.rows.some((r) => of(r) !== null);
  return { requests, theirs: any((r) => r.theirs), owner: any((r) => r.owner), waker: any((r) => r.waker) };
}

function WhomCell(p: { whom: Whom | null; title: string }): preact.JSX.Element {
  const { whom: w } = p;
  return <td role="gridcell" title={w ? `${p.title} ${showable(w.name)}${w.thread && ` (thread ${showable(w.thread)})`} for ${duration(w.waited)}` : ""}>
    {w && showable(whomText(w))}</td>;
}

function Row(p: { r: Call; columns: Columns; open: boolean; onToggle: () => void; onSource: Props["onSource"] }): preact.JSX.Element {
  const { r, columns: c } = p;
  const at = r.file === "" ? "" : `${base(r.file)}${r.line > 0 ? `:${r.line}` : ""}`;
  return <tr role="row" aria-level={r.depth + 1} {...r.calls ? { "aria-expanded": p.open } : {}} class={r.hot ? "hot" : ""}>
    <td role="gridcell" class="c-name" style={{ paddingLeft: `${10 + INDENT * Math.min(r.depth, 40)}px` }}>
      <button class="twist" disabled={!r.calls} aria-label={`${p.open ? "Close" : "Open"} ${showable(r.name)}`} onClick={p.onToggle}>{r.calls ? p.open ? "▾" : "▸" : ""}</button>
      {showable(r.name)}{r.hot && <span class="spoken"> (among the ten with the most self time)</span>}</td>
    <td role="gridcell" class="num">{duration(r.total)}</td><td role="gridcell" class="num c-self">{duration(r.self)}</td>{c.theirs && <>
      <td role="gridcell" class="num soft">{r.theirs && duration(r.theirs.total)}</td><td role="gridcell" class="num soft">{r.theirs && duration(r.theirs.self)}</td></>}
    {c.requests > 0 && <td role="gridcell" class="num">{duration(r.total / c.requests)}</td>}
    <td role="gridcell" class="num">{count(r.count)}</td>
    {c.requests > 0 && <td role="gridcell" class="num">{count(r.requests)}</td>}
    {c.owner && <WhomCell whom={r.owner} title="waited for a lock of" />}{c.waker && <WhomCell whom={r.waker} title="waited until woken by" />}
    <td role="gridcell">{at && <button class="pick" title={`Show ${showable(r.file)}`} onClick={() => p.onSource(r.file, r.line)}>{showable(at)}</button>}</td></tr>;
}

function Thread(p: { g: Group; requests: number; onSource: Props["onSource"] }): preact.JSX.Element {
  const columns = columnsOf(p.g, p.requests);
  const [closed, setClosed] = useState<ReadonlySet<number>>(new Set());
  const rows = shownCalls(p.g, closed);
  const toggle = (id: number): void => {
    const next = new Set(closed);
    if (!next.delete(id))
      next.add(id);
    setClosed(next);
  };
  const name = p.requests > 0 ? `${count(p.requests)} ${p.requests === 1 ? "request" : "requests"}` : p.g.service === "" ? "all threads"
    : `${showable(p.g.service)}: ${showable(p.g.thread || "thread without a name")}`;
  return <>
    <table role="treegrid" aria-label={`Calls of ${name}`}>
      <thead><tr><th class="c-name">{name}{p.g.snapshots && <span class="soft"> (snapshots)</span>}</th><th class="num">Total</th><th class="num">Self</th>
        {columns.theirs && <><th class="num" title="SkyWalking's estimate">Total, SkyWalking</th><th class="num" title="SkyWalking's estimate">Self, SkyWalking</th></>}
        {columns.requests > 0 && <th class="num" title="Total, over the number of requests">Per request</th>}<th class="num">Samples</th>
        {columns.requests > 0 && <th class="num" title="Requests with this call">Requests</th>}
        {columns.owner && <th title="The thread that held the lock">Lock owner</th>}{columns.waker && <th title="Who ended the wait">Woken by</th>}<th>Line</th></tr></thead>
      <tbody>{rows.slice(0, MOST).map((r) => <Row key={r.id} r={r} columns={columns} open={!closed.has(r.id)} onToggle={() => toggle(r.id)} onSource={p.onSource} />)}</tbody>
    </table>
    {rows.length > MOST && <p class="soft none">{count(rows.length - MOST)} more calls are not shown.</p>}
  </>;
}

export function Calls(p: Props): preact.JSX.Element {
  const { groups, tip } = p.analysis;
  return <section class="calls" aria-label="Calls">
    {tip !== "" && <p class="soft none">{showable(tip)}</p>}
    {groups.length === 0 ? <div class="nothing"><h2>No calls</h2><p>There are no samples of {p.requests === undefined ? "this request, or of this span" : "these requests"}.</p></div>
      : <div class="table-scroll" tabIndex={0}>{groups.map((g, i) => <Thread key={`${i} ${g.service} ${g.thread}`} g={g} requests={p.requests ?? 0} onSource={p.onSource} />)}</div>}
  </section>;
}
