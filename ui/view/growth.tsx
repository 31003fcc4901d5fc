// SPDX-License-Identifier: Apache-2.0
/* Memory that grows: the total by time, what is sure about it in words, and the functions that make it grow. */
import { useState } from "preact/hooks";
import { apart, chain, ends, interval, isCode, ownFrame, perHour, place, totalBars, verdict } from "../model/growth.ts";
import type { Growth, Suspect } from "../model/growth.ts";
import { showable } from "../model/payload.ts";
import { rate } from "../model/series.ts";
import { count, duration, percent } from "../model/text.ts";
import { clock, rangeText } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import type { SampleType } from "../model/vocab.ts";
import { Chart } from "./chart.tsx";
import { Spark } from "./servicetable.tsx";

interface Props {
  growth: Growth;
  type: SampleType;
  service: string;
  now: number;
  onRange: (r: Range) => void;
  /** Shows what is between two times as a differential flame graph. */
  onCompare: (before: Range, after: Range) => void;
  /** Shows the flame graph of stacks with this function. */
  onFunction: (name: string) => void;
  onSource: (file: string, line: number) => void;
}

/** How to get the data. */
export function NoMemory(): preact.JSX.Element {
  return <div class="nothing growth-none"><h2>No memory profiles in this time range</h2>
    <p>Growth needs memory profiles. Any of these sends them:</p>
    <ul><li><code>culprit up --resident</code> or <code>culprit agent --resident</code>: resident memory of all processes, by the code that first touched it</li>
      <li><code>culprit agent --alloc</code>: malloc allocations that were not freed</li>
      <li><code>culprit agent --heap</code>: the live heap of Go programs, without changes to the program</li>
      <li>heap profiles of an SDK (Go, Java, Rust) that sends to this server as to Pyroscope, or by OTLP</li></ul></div>;
}

function Row(p: Props & { row: Suspect; total: number }): preact.JSX.Element {
  const { row, type } = p;
  const f = ownFrame(row);
  const at = place(f);
  const path = chain(row, 6).map(showable);
  const differs = apart(row, p.growth.rows);
  const share = p.total > 0 && row.slope > 0 ? row.slope / p.total : 0;
  return <tr>
    <td class={row.sure ? "num grew" : row.high < 0 ? "num shrank" : "num soft"}>{perHour(row.slope, type)}</td>
    <td class="num soft c-interval">{interval(row, type)}</td>
    <td class="c-spark" title={`Grew in ${percent(row.grew)} of the periods`}><Spark values={row.values.map((v) => (v > 0 ? v : 0))} /></td>
    <td class="c-only">{row.onlyGrows && <b class="grew" title="Never fell below its maximum by more than noise">only grows</b>}</td>
    <td class="c-name">{f === null ? <i>other functions</i> : <>
      <button class={isCode(f) ? "pick" : "pick soft"} title="Flame graph of the stacks with this function" onClick={() => p.onFunction(f.name)}>{showable(f.name)}</button>
      {at !== "" && <>{" "}<button class="pick line" title={`Show ${showable(f.file)}`} onClick={() => p.onSource(f.file, f.line)}>{showable(at)}</button></>}
      {differs !== "" && <span class="soft"> {showable(differs)}</span>}
      <div class="soft path" title={chain(row, 1000).map(showable).join("\n")}>{path.join(" › ")}{row.chains > 1 && ` (the stack with the most growth of ${count(row.chains)})`}</div></>}</td>
    <td class="num">{rate(row.last, p.growth.step, type)}</td>
    <td class="num c-share">{share > 0 && share <= 1.005 ? percent(Math.min(1, share)) : ""}</td></tr>;
}

/** What the verdict is made of. */
function Evidence(p: { growth: Growth; type: SampleType }): preact.JSX.Element {
  const { growth: g } = p;
  const { all, used, fresh, ended, merged } = g.instances;
  return <p class="quality">
    <span title="Lines are fitted to the means of these periods">{count(g.periods)} periods of {duration(g.step * 1e6)}</span>
    <span title="Each has a line of its own, so that a restart does not count as growth">{count(used)} of {count(all)} {merged ? "services" : all === 1 ? "process" : "processes"}</span>
    {merged && <strong class="warn" title="Select a service or a host to tell a restart from growth">too many processes to tell apart</strong>}
    {fresh > 0 && <span title={`The first ${duration(g.warmup * 1e9)} of each process do not count`}>{count(fresh)} started</span>}
    {ended > 0 && <span>{count(ended)} ended</span>}
    {g.all && <span>{rate(g.all.first, g.step, p.type)} to {rate(g.all.last, g.step, p.type)}</span>}
    {g.leftOut > 0 && <span title="The functions with the least growth are one row">{count(g.leftOut)} functions not listed</span>}</p>;
}

export function GrowthView(p: Props): preact.JSX.Element {
  const { growth: g, type, now } = p;
  const [picked, setPicked] = useState<Range | null>(null);
  const total = g.all?.slope ?? 0;
  const state = type.adds === "at_moment";
  const two = picked && ends(picked, g.step);
  return <section class="growth slow" aria-label="Growth">
    <h1>{showable(verdict(g, p.service, type))}</h1>
    <Evidence growth={g} type={type} />
    <div class="timeline bars"><Chart bars={totalBars(g)} range={g} type={type} now={now} onSelect={setPicked}
      label={`${showable(p.service)}, ${type.label} by time`} /></div>
    <p class="picked">{two && picked ? <>
      {rangeText(picked, now)}{" "}
      {state && <button class="text" ref={(b) => b?.focus()} onClick={() => p.onCompare(two.before, two.after)}>
        Growth between {clock(picked.from)} and {clock(picked.to)}</button>}{" "}
      <button class="text" onClick={() => p.onRange(picked)}>Only this time</button>{" "}
      <button class="text" onClick={() => setPicked(null)}>Cancel</button></>
      : state ? "Drag over the chart to see what grew between two times." : "Drag over the chart to choose a part of the time."}</p>
    {g.rows.length > 0 && <div class="table-scroll" tabIndex={0}><table>
      <thead><tr><th class="num">{state ? "Growth" : "Rate"}</th><th class="num c-interval">95 % interval</th><th class="c-spark">Trend</th><th class="c-only" /><th class="c-name">Function</th>
        <th class="num">{state ? "Now" : "Last"}</th><th class="num c-share" title="Share of the total growth">Share</th></tr></thead>
      <tbody>{g.rows.map((row, i) => <Row key={`${i} ${ownFrame(row)?.name ?? ""}`} {...p} row={row} total={total} />)}</tbody></table></div>}
  </section>;
}
