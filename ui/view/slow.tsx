// SPDX-License-Identifier: Apache-2.0
/* Why requests are slow: a sentence, and call chains by their additional cost in slow requests. The path that only slow requests take begins at the first. */
import { useMemo } from "preact/hooks";
import { showable } from "../model/payload.ts";
import { chains, placeOf, reasons } from "../model/slow.ts";
import type { Chain, Side, Slow, SlowRow } from "../model/slow.ts";
import { base, count, duration, percent, plural, signed, value } from "../model/text.ts";
import { valueType } from "../model/vocab.ts";

/** "194 slow requests (54.6 ms–2.96 s), 205 ms CPU each, 190 with samples" */
const sideText = (s: Side, word: string, each: string): string =>
  `${plural(s.requests, `${word} request`)} (${duration(1e6 * s.from)}–${duration(1e6 * s.to)}), ${each} each, ${count(s.sampled)} with samples`;

function Effect(p: { row: SlowRow; slow: Slow; most: number }): preact.JSX.Element {
  const { row: r, most } = p;
  const v = (x: number): string => value(x, p.slow.unit, p.slow.type);
  const at = (x: number): number => 50 + 50 * Math.max(-1, Math.min(1, x / most));
  return <td class="c-effect" title={r.low === null || r.high === null ? "" : `95 % interval: ${v(r.low)} – ${v(r.high)}`}>
    <b class={r.effect > 0 ? "effect up" : "effect down"} aria-hidden="true"
       style={{ left: `${Math.min(50, at(r.effect))}%`, width: `${Math.abs(at(r.effect) - 50)}%` }} />
    {r.low !== null && r.high !== null && <i class="interval" aria-hidden="true" style={{ left: `${at(r.low)}%`, width: `${at(r.high) - at(r.low)}%` }} />}</td>;
}

/** Those that the comparison would otherwise take for free. */
function LeftOut(p: { n: number; kept: boolean }): preact.JSX.Element | null {
  return p.n === 0 ? null : <strong class="warn" title={p.kept ? "Agents dropped these samples or the first of them, or have not sent them yet" : "No agent sampled their service on their host at that time"}>
    {plural(p.n, "request")} left out: {p.kept ? "some of their samples are missing" : "their cost is unknown"}</strong>;
}

interface Props {
  slow: Slow;
  /** The same requests by waits, or by CPU time; null: there are none. */
  other?: Slow | null;
  /** Of a task: its slow requests against those that it kept at random. */
  kept?: boolean;
  onFunction: (name: string) => void;
  onSource: (file: string, line: number) => void;
}

/** The line as a button. */
function Place(p: { row: SlowRow; onSource: Props["onSource"] }): preact.JSX.Element | null {
  const { file, line } = p.row;
  return file === "" ? null : <button class="pick place" title={`Show ${showable(file)}`} onClick={() => p.onSource(file, line)}>{showable(placeOf(file, line))}</button>;
}

/** A chain: the function where it begins, the line, and how many functions have the same difference. */
function Where(p: Props & { chain: Chain }): preact.JSX.Element {
  const { head, at, rows } = p.chain;
  return <td class="c-name"><button class="pick" title={head.explained ? "Nearly all of this effect comes from a function that this one calls" : "Show it in the flame graph of the slow requests"}
    onClick={() => p.onFunction(head.name)}>{showable(head.name)}</button> <Place row={at} onSource={p.onSource} /> {head.object !== "" && <span class="soft">{showable(base(head.object))}</span>}
    {rows.length > 1 && <span class="soft" title={rows.map((r) => showable(r.name)).join("\n")}> +{rows.length - 1} in the same call chain</span>}</td>;
}

export function SlowTable(p: Props): preact.JSX.Element {
  const { slow: s, kept = false } = p;
  const v = (x: number): string => value(x, s.unit, s.type);
  const each = (x: Side): string => `${v(x.value)} ${valueType(s.type, s.unit).label}`;
  const most = s.rows.reduce((m, r) => Math.max(m, Math.abs(r.effect), Math.abs(r.high ?? 0), Math.abs(r.low ?? 0)), 0) || 1;
  const all = useMemo(() => chains(s), [s]);
  const typical = kept ? "ordinary" : "typical";
  const why = useMemo(() => reasons(s, p.other ?? null, typical), [s, p.other]);
  if (s.rows.length === 0)
    return <div class="nothing"><h2>Not enough requests to compare</h2><p>{showable(s.note)}</p><p><LeftOut n={s.leftOut} kept={kept} /></p></div>;
  return <section class="slow" aria-label={kept ? "Slow vs ordinary" : "Why slow?"}>
    <p class="verdict">{why.map((r, i) => <span key={i}>{r.says}{r.at && r.at.file !== "" && <>, <Place row={r.at} onSource={p.onSource} /></>}. </span>)}</p>
    <p class="quality"><span>{sideText(s.slow, "slow", each(s.slow))}</span>
      <span>{sideText(s.middle, typical, each(s.middle))}</span>
      <LeftOut n={s.leftOut} kept={kept} />
      {s.note !== "" && <strong class="warn">{showable(s.note)}</strong>}</p>
    <div class="table-scroll" tabIndex={0}><table>
      <thead><tr><th class="num">Difference</th><th class="num">95 % interval</th><th class="c-effect" /><th class="c-name">Call chain</th><th class="num">Slow</th><th class="num">{kept ? "Ordinary" : "Typical"}</th>
        <th class="num" title="Share of slow requests that have samples of this function">In slow</th><th class="num">In {typical}</th></tr></thead>
      <tbody>{all.map((c) => {
        const r = c.head;
        return <tr key={`${r.name}\n${r.object}`} class={r.explained ? "explained" : ""}>
          <td class={(r.low ?? 0) > 0 ? "num grew" : (r.high ?? 0) < 0 ? "num shrank" : "num soft"}>{signed(v(r.effect), r.effect)}</td>
          <td class="num soft">{r.low === null || r.high === null ? "unknown" : `${v(r.low)} – ${v(r.high)}`}</td>
          <Effect row={r} slow={s} most={most} />
          <Where {...p} chain={c} />
          <td class="num">{v(r.slow)}</td><td class="num">{v(r.middle)}</td>
          <td class="num">{percent(r.slowRunning)}</td><td class="num">{percent(r.middleRunning)}</td></tr>;
      })}</tbody>
    </table></div>
  </section>;
}
