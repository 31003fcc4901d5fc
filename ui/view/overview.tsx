// SPDX-License-Identifier: Apache-2.0
/* The first page: what is wrong now, sentence by sentence with its link, and the services. */
import type { LiveState } from "../model/address.ts";
import { CHECKS } from "../model/overview.ts";
import type { Finding, Overview, OverviewService } from "../model/overview.ts";
import { showable } from "../model/payload.ts";
import { rate } from "../model/series.ts";
import { placeOf } from "../model/slow.ts";
import { count, percent } from "../model/text.ts";
import type { SampleType } from "../model/vocab.ts";

interface Props {
  data: Overview;
  type: SampleType;
  /** Length of the range, for rates. */
  ms: number;
  /** The sums include culprit itself. */
  self: boolean;
  /** "in the last 5 min" */
  when: string;
  change: (c: Partial<LiveState>) => void;
}

function One(p: { f: Finding; change: Props["change"] }): preact.JSX.Element {
  const { f } = p;
  return <li class="finding" data-kind={f.kind}><p>{f.says}. {f.why.map((w, i) => <span key={i}>{w.says}{w.file !== "" && <>, <button class="pick" title={`Show ${showable(w.file)}`}
    onClick={() => {
      // Two entries of the history: closing the source shows why.
      p.change(f.to);
      p.change({ source: w.file, line: w.line, code: null });
    }}>{showable(placeOf(w.file, w.line))}</button></>}. </span>)}</p>
    <button class="text" onClick={() => p.change(f.to)}>{f.link} →</button></li>;
}

/** What was looked for, and what could not be. */
function Checked(p: { data: Overview }): preact.JSX.Element {
  const words = (yes: boolean): string => CHECKS.filter(([k]) => p.data.checked.includes(k) === yes).map(([, w]) => w).join(", ");
  const [done, missing] = [words(true), words(false)];
  return <p class="soft">{done !== "" && `Checked: ${done}. `}{missing !== "" && `No data for: ${missing}. `}
    {!p.data.checked.includes("slow") && <>Requests come from services that send OpenTelemetry traces: <code>OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318</code>. </>}
    {p.data.notComputed.length > 0 && <strong class="warn">Not checked, to save time: {p.data.notComputed.map(showable).join(", ")}.</strong>}</p>;
}

function Row(p: Props & { s: OverviewService; findings: number }): preact.JSX.Element {
  const { s, data, type, ms } = p;
  const share = data.total.value > 0 ? s.value / data.total.value : 0;
  return <tr class="whole" onClick={() => p.change({ view: "flame", service: s.name })}>
    <td class="c-name"><button class="pick" title={`Flame graph of ${showable(s.name)}`}>{s.name === "" ? <i>no name</i> : showable(s.name)}</button></td>
    <td class={p.findings > 0 ? "num grew" : "num soft"}>{p.findings > 0 ? count(p.findings) : "–"}</td>
    <td class="num" title={s.value > 0 ? "" : "No samples"}>{s.value > 0 ? rate(s.value, ms, type) : "–"}</td>
    <td class="num c-share"><b class="bar" style={{ width: `${100 * share}%` }} aria-hidden="true" />{s.value > 0 ? percent(share) : "–"}</td>
    <td class="num">{s.requests > 0 ? count(s.requests) : "–"}</td>
    <td class={s.errors > 0 ? "num grew" : "num"}>{s.requests > 0 ? percent(s.errors / s.requests) : "–"}</td></tr>;
}

export function OverviewView(p: Props): preact.JSX.Element {
  const { data: o, type, ms } = p;
  return <section class="services-page overview" aria-label="Overview">
    <h2>{o.findings.length > 0 ? `${count(o.findings.length)} ${o.findings.length === 1 ? "finding" : "findings"} ${p.when}` : `Nothing found ${p.when}`}</h2>
    <ul class="findings">{o.findings.map((f, i) => <One key={i} f={f} change={p.change} />)}</ul>
    <Checked data={o} />
    <div class="table-scroll"><table>
      <thead><tr><th class="c-name">Service</th><th class="num">Findings</th><th class="num">{showable(type.label) || "Value"}</th><th class="c-share num">Share</th><th class="num">Requests</th><th class="num">Failed</th></tr></thead>
      <tbody>{o.services.map((s) => <Row key={s.name} {...p} s={s} findings={o.findings.filter((f) => f.service === s.name).length} />)}
        {o.small.processes > 0 && <tr class="whole" onClick={() => p.change({ view: "services" })}><td class="c-name" colSpan={2}><button class="pick"
          title="Processes without a service name or requests that lived for less than 30 s, or took less than 1 % of the CPU time">
          {count(o.small.processes)} other {o.small.processes === 1 ? "process" : "processes"}</button> <span class="soft">short-lived or small, without a service name</span></td>
          <td class="num">{rate(o.small.value, ms, type)}</td><td class="num c-share"><b class="bar" style={{ width: `${100 * o.small.value / (o.total.value || 1)}%` }} aria-hidden="true" />
            {percent(o.total.value > 0 ? o.small.value / o.total.value : 0)}</td><td class="num">–</td><td class="num">–</td></tr>}</tbody>
    </table>
    {o.all > o.services.length && <p class="soft more">The {count(o.services.length)} services with the most CPU time, of {count(o.all)}. <button class="text" onClick={() => p.change({ view: "services" })}>All services</button></p>}</div>
    {o.self && <p class="soft">culprit itself: {rate(o.self.value, ms, type)}, not in these sums. <button class="text" onClick={() => p.change({ self: true })}>Include culprit</button></p>}
    {p.self && <p class="soft">These sums include culprit itself. <button class="text" onClick={() => p.change({ self: false })}>Leave culprit out</button></p>}
  </section>;
}
