// SPDX-License-Identifier: Apache-2.0
/* The calls of a kept request as a tree: time in total, of their own, and samples. The ten that took the most of their own are marked. */
import { useState } from "preact/hooks";
import { shownCalls } from "../model/analysis.ts";
import type { Analysis, Call, Group } from "../model/analysis.ts";
import { showable } from "../model/payload.ts";
import { base, count, duration } from "../model/text.ts";

const MOST = 1000;
const INDENT = 12;

interface Props {
  analysis: Analysis;
  /** A line of a source file was chosen. */
  onSource: (file: string, line: number) => void;
}

function Row(p: { r: Call; open: boolean; onToggle: () => void; onSource: Props["onSource"] }): preact.JSX.Element {
  const { r } = p;
  const at = r.file === "" ? "" : `${base(r.file)}${r.line > 0 ? `:${r.line}` : ""}`;
  return <tr role="row" aria-level={r.depth + 1} {...r.calls ? { "aria-expanded": p.open } : {}} class={r.hot ? "hot" : ""}>
    <td role="gridcell" class="c-name" style={{ paddingLeft: `${10 + INDENT * Math.min(r.depth, 40)}px` }}>
      <button class="twist" disabled={!r.calls} aria-label={`${p.open ? "Close" : "Open"} ${showable(r.name)}`} onClick={p.onToggle}>{r.calls ? p.open ? "▾" : "▸" : ""}</button>
      {showable(r.name)}{r.hot && <span class="spoken"> (among the ten with the most time of their own)</span>}</td>
    <td role="gridcell" class="num">{duration(r.total)}</td><td role="gridcell" class="num c-self">{duration(r.self)}</td><td role="gridcell" class="num">{count(r.count)}</td>
    <td role="gridcell">{at && <button class="pick" title={`Show ${showable(r.file)}`} onClick={() => p.onSource(r.file, r.line)}>{showable(at)}</button>}</td></tr>;
}

function Thread(p: { g: Group; onSource: Props["onSource"] }): preact.JSX.Element {
  const [closed, setClosed] = useState<ReadonlySet<number>>(new Set());
  const rows = shownCalls(p.g, closed);
  const toggle = (id: number): void => {
    const next = new Set(closed);
    if (!next.delete(id))
      next.add(id);
    setClosed(next);
  };
  const name = `${showable(p.g.service)}: ${showable(p.g.thread || "thread without a name")}`;
  return <>
    <table role="treegrid" aria-label={`Calls of ${name}`}>
      <thead><tr><th class="c-name">{name}{p.g.snapshots && <span class="soft"> (snapshots)</span>}</th><th class="num">Total</th><th class="num">Self</th><th class="num">Samples</th><th>Line</th></tr></thead>
      <tbody>{rows.slice(0, MOST).map((r) => <Row key={r.id} r={r} open={!closed.has(r.id)} onToggle={() => toggle(r.id)} onSource={p.onSource} />)}</tbody>
    </table>
    {rows.length > MOST && <p class="soft none">and {count(rows.length - MOST)} more calls</p>}
  </>;
}

export function Calls(p: Props): preact.JSX.Element {
  const { groups, tip } = p.analysis;
  return <section class="calls" aria-label="Calls">
    {tip !== "" && <p class="soft none">{showable(tip)}</p>}
    {groups.length === 0 ? <div class="nothing"><h2>No calls</h2><p>There are no samples of this request, or of this span.</p></div>
      : <div class="table-scroll" tabIndex={0}>{groups.map((g, i) => <Thread key={`${i} ${g.service} ${g.thread}`} g={g} onSource={p.onSource} />)}</div>}
  </section>;
}
