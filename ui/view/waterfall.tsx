// SPDX-License-Identifier: Apache-2.0
/* One trace: a row for each span, below its parent, with its samples. Choosing a row shows the span's picture. */
import { useState } from "preact/hooks";
import { showable } from "../model/payload.ts";
import type { State } from "../model/tasks.ts";
import { count, duration, plural, value } from "../model/text.ts";
import { below, linkTo, statesOf, whereTime } from "../model/traces.ts";
import type { RequestState, Span, Waterfall } from "../model/traces.ts";
import type { SampleType } from "../model/vocab.ts";
import { copy } from "./copy.ts";
import { StateBar, statesText } from "./states.tsx";

const MOST = 1000;
const INDENT = 12;

interface Props {
  w: Waterfall;
  state: RequestState;
  type: SampleType;
  onChange: (r: Partial<RequestState>) => void;
  /** Time by state of each span itself, by its id: of a kept request. */
  states?: Map<string, State[]>;
  dark?: boolean;
  /** Agents recorded waits then; undefined: where the time went is not said here. */
  hasWaits?: boolean;
}

/** Returns a service's hue; hues are as far apart as the number of services allows. */
function hue(w: Waterfall, service: string): string {
  return `hsl(${Math.round(25 + 360 * w.services.indexOf(service) / w.services.length)} 58% 58%)`;
}

function Details(p: { s: Span }): preact.JSX.Element {
  const { s } = p;
  const facts: [string, string][] = [["kind", s.kind], ["status", s.message ? `${s.status}: ${s.message}` : s.status], ...s.attributes];
  return <>
    {s.events.length > 0 && <ul class="facts events" aria-label="Events">{s.events.map((e, i) => <li key={i}><span class="soft">{duration(1e6 * e.at)} after its start</span> {showable(e.text)}</li>)}</ul>}
    <dl class="facts">{facts.map(([k, v]) => <div key={k}><dt>{showable(k)}</dt><dd title={showable(v)}>{showable(v)}</dd></div>)}</dl></>;
}

/** A span's bar; of a kept request with its own time by state from the left, and what its children took empty behind it. */
function SpanBar(p: { s: Span; left: string; width: string; hue: string; states: State[] | undefined; dark: boolean }): preact.JSX.Element {
  const { s, states } = p;
  const kind = `span${s.status === "error" ? " failed" : ""}${states ? " states" : ""}`;
  return <>
    <b class={kind} aria-hidden="true" style={{ left: p.left, width: p.width, background: states ? "var(--back)" : p.hue }}>
      {states && <StateBar states={states} whole={s.duration} dark={p.dark} />}</b>
    {states && <span class="spoken">{statesText(states)}</span>}
  </>;
}

/** The id, which can be copied, and the same trace in other tools. */
function Identity(p: { w: Waterfall; span: string }): preact.JSX.Element {
  const { w } = p;
  const [copied, setCopied] = useState(false);
  return <span class="trace-id soft">Trace <code>{w.trace}</code> <button class="text" onClick={() => void copy(w.trace).then(() => setCopied(true))}>
    {copied ? "Copied" : "Copy id"}</button>
    {w.links.map((l) => [l, linkTo(l, w.trace, p.span)] as const).filter(([, url]) => url !== "").map(([l, url]) =>
      <> <a key={l.name} href={url} target="_blank" rel="noopener noreferrer">{showable(l.name)}</a></>)}</span>;
}

/** The times at the quarters of a trace. */
function Axis(p: { ns: number }): preact.JSX.Element {
  return <div class="axis">{[0, 1, 2, 3, 4].map((i) => <span key={i}>{i === 0 ? "0" : duration(p.ns * i / 4)}</span>)}</div>;
}

export function WaterfallView(p: Props): preact.JSX.Element {
  const { w, state, type } = p;
  const all = w.to - w.from;
  const chosen = w.spans.find((s) => s.id === state.span);
  const x = (ms: number): string => `${100 * (ms - w.from) / all}%`;
  // The states of several spans do not add up.
  const sums = type.adds === "over_time";
  const cost = (v: { samples: number; value: number }): string => (v.samples > 0 ? value(v.value, type.unit, type.name) : "");
  return <section class="waterfall" aria-label="Trace">
    <div class="filter">
      <h2>{duration(1e6 * all)}, {plural(w.spans.length, "span")} in {w.services.map(showable).join(", ")}</h2>
      {chosen && <>
        <button class="transform" title="Show the whole trace" onClick={() => p.onChange({ span: "", only: false })}>{showable(chosen.name)} ✕</button>
        <label class="soft"><input type="checkbox" checked={!state.only} onChange={(e) => p.onChange({ only: !e.currentTarget.checked })} /> include
          child spans</label></>}
      {w.other.samples > 0 && <span class="n">{plural(w.other.samples, "sample")} in spans that did not arrive</span>}
      {w.trace !== "" && <Identity w={w} span={state.span} />}
    </div>
    {p.hasWaits !== undefined && <p class="where-time">
      {whereTime(1e6 * (chosen?.duration ?? all), statesOf(w, chosen ? w.spans.indexOf(chosen) : -1, state.only), p.hasWaits)}</p>}
    <div class="table-scroll" tabIndex={0}><table>
      <thead><tr><th class="c-name">Span</th><th class="c-bar"><Axis ns={1e6 * all} /></th><th class="num">Took</th>
        <th class="num">{showable(type.label)}</th>{sums && <th class="num">{showable(type.label)} incl. children</th>}</tr></thead>
      <tbody>{w.spans.slice(0, MOST).map((s, i) => <tr key={s.id} class={s.id === state.span ? "chosen" : ""}>
        <td class="c-name" style={{ paddingLeft: `${10 + INDENT * Math.min(s.depth, 20)}px` }}>
          <button class="pick" aria-pressed={s.id === state.span} title={`${showable(s.service)}: ${showable(s.name)}`}
                  onClick={() => p.onChange(s.id === state.span ? { span: "", only: false } : { span: s.id })}>
            <i class="dot" style={{ background: hue(w, s.service) }} aria-hidden="true" />{showable(s.name)}</button> <span class="soft">{showable(s.service)}</span></td>
        <td class="c-bar"><SpanBar s={s} left={x(s.start)} width={`max(2px, ${100 * s.duration / all}%)`} hue={hue(w, s.service)}
                                   states={p.states?.get(s.id)} dark={p.dark ?? false} />
          {s.events.map((e, k) => <i key={k} class={/^exception\b/.test(e.text) ? "event failed" : "event"} style={{ left: `min(100%, ${x(s.start + e.at)})` }} title={`${duration(1e6 * e.at)}: ${showable(e.text)}`} />)}</td>
        <td class="num">{duration(1e6 * s.duration)}</td>
        <td class="num" title={plural(s.samples, "sample")}>{cost(s)}</td>{sums && <td class="num soft">{cost(below(w, i))}</td>}</tr>)}</tbody>
    </table>
    {w.spans.length > MOST && <p class="soft more">{count(w.spans.length - MOST)} more spans are not shown.</p>}
    {chosen && <Details s={chosen} />}</div>
  </section>;
}
