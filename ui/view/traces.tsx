// SPDX-License-Identifier: Apache-2.0
/*
 * Requests: the endpoints of services with their durations, the slowest requests, one trace as a waterfall; the picture of
 * an endpoint, of a trace or of one span; and an endpoint's slow requests compared with its middle ones.
 */
import { useLayoutEffect, useState } from "preact/hooks";
import type { LiveState } from "../model/address.ts";
import type { Factors } from "../model/cost.ts";
import { showable } from "../model/payload.ts";
import { rate } from "../model/series.ts";
import type { Losses } from "../model/stats.ts";
import { count, duration, percent, value } from "../model/text.ts";
import { clock } from "../model/times.ts";
import { NO_REQUEST, PERCENTILES, STATUSES } from "../model/traces.ts";
import type { Endpoint, Request, RequestState, Shown, Status } from "../model/traces.ts";
import { nanoseconds } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import type { Part } from "./ask.ts";
import { QualityOf } from "./bar.tsx";
import { opens } from "./opens.ts";
import { Money } from "./servicetable.tsx";
import { SlowTable } from "./slow.tsx";
import { Head, Search } from "./sort.tsx";
import { WaterfallView } from "./waterfall.tsx";

type TracesPart = Extract<Part, { of: "traces" }>;

interface Props {
  part: TracesPart;
  losses: Losses | null;
  state: LiveState;
  change: (c: Partial<LiveState>) => void;
  type: SampleType;
  factors: Factors | null;
  /** Length of the range, for rates. */
  ms: number;
  /** The picture, if one is chosen. */
  picture: preact.JSX.Element | null;
  /** Of an opened request: what it ran in the order of time. */
  chart: preact.JSX.Element | null;
  /** Offers to profile the slow requests to an endpoint. */
  onProfile: (e: Endpoint) => void;
}

const ms = (v: number): string => duration(1e6 * v);
const SHOW_WORD: Record<Shown, string> = { list: "Requests", picture: "Flame graph", slow: "Why slow?", chart: "In order of time" };
const STATUS_WORD: Record<Status, string> = { "": "any status", ok: "ok", error: "failed", unset: "unset" };

/** An input of milliseconds, whose value counts when it loses the focus or is confirmed. */
function Bound(p: { label: string; value: number; onValue: (ms: number) => void }): preact.JSX.Element {
  // The end of a round must not revert text that is being typed.
  const [text, setText] = useState("");
  useLayoutEffect(() => setText(p.value > 0 ? String(p.value) : ""), [p.value]);
  return <label class="soft">{p.label} <input type="number" min="0" step="1" class="bound" aria-label={`${p.label} ms`} placeholder="ms"
    value={text} onInput={(e) => setText(e.currentTarget.value)} onChange={(e) => {
      const ms = Math.max(0, Math.floor(Number(e.currentTarget.value)) || 0);
      setText(ms > 0 ? String(ms) : "");
      p.onValue(ms);
    }} /></label>;
}

function Bar(p: Props & { set: (r: Partial<RequestState>) => void }): preact.JSX.Element {
  const { state, change, set } = p;
  const r = state.requests;
  const endpoint = p.part.endpoints.find((e) => e.name === r.endpoint && (state.service === "" || e.service === state.service));
  return <div class="filter traces-bar">
    {r.trace === "" && r.endpoint !== "" && <nav class="tabs" aria-label="Of this endpoint">
      {(["list", "picture", "slow"] as const).map((s) => <button key={s} aria-current={r.show === s ? "page" : undefined}
        onClick={() => set({ show: s })}>{SHOW_WORD[s]}</button>)}</nav>}
    {r.trace !== "" && <button class="reset" onClick={() => set({ trace: "", span: "", only: false })}>‹ All requests</button>}
    {r.trace === "" && state.service !== "" && <button class="transform" title="Show requests to all services"
      onClick={() => change({ service: "", requests: { ...r, endpoint: "", show: "list" } })}>{showable(state.service)} ✕</button>}
    {r.trace === "" && r.endpoint !== "" && <button class="transform" title="Show all endpoints"
      onClick={() => set({ endpoint: "", show: "list" })}>{showable(r.endpoint)} ✕</button>}
    {state.stacks !== "" && <button class="transform" title="Remove this filter" onClick={() => change({ stacks: "" })}>
      that run {showable(state.stacks)} ✕</button>}
    {state.filters.map((f) => <button key={`${f.label}${f.not ? "!" : ""}${f.value}`} class="transform" title="Remove this filter"
      onClick={() => change({ filters: state.filters.filter((x) => x !== f) })}>{showable(f.label)} {f.not ? "≠" : "="} {showable(f.value)} ✕</button>)}
    {r.trace === "" && r.endpoint !== "" && r.show === "slow" && <label class="soft">Slow: above <select aria-label="Slow: above" value={r.slow}
      onChange={(e) => set({ slow: Number(e.currentTarget.value) })}>{PERCENTILES.map((n) => <option key={n} value={n}>p{n}</option>)}</select>.
      Typical: p25–p75</label>}
    {r.trace === "" && r.show !== "slow" && <>
      <Bound label="at least" value={r.min} onValue={(min) => set({ min })} />
      <Bound label="at most" value={r.max} onValue={(max) => set({ max })} />
      <select aria-label="Status" value={r.status} onChange={(e) => set({ status: e.currentTarget.value as Status })}>
        {STATUSES.map((s) => <option key={s} value={s}>{STATUS_WORD[s]}</option>)}</select></>}
    {r.trace === "" && r.endpoint !== "" && endpoint && <button class="text" onClick={() => p.onProfile(endpoint)}>Profile slow requests</button>}
  </div>;
}

function Endpoints(p: Props & { onEndpoint: (e: Endpoint, show: Shown) => void }): preact.JSX.Element {
  const { part: { endpoints: rows, list, order: sort }, change } = p;
  const running = p.state.stacks !== "";
  const head = { sort, onSort: (s: string) => change({ sort: s }) };
  return <section aria-label="Endpoints">
    <div class="filter"><h2>Endpoints</h2>
      {(p.state.find !== "" || list!.total > 8) && <Search label="Search endpoints" value={p.state.find} onText={(find) => change({ find })} />}
      <span class="n">{ofAll(rows.length, list!.matching, list!.total)}</span>
      {list!.shareOf > 1 && <span class="soft">Estimated from one in {count(list!.shareOf)} traces: rare endpoints may be missing</span>}</div>
    <div class="table-scroll"><table>
      <thead><tr><Head {...head} of="endpoint" text class="c-name">Endpoint</Head><Head {...head} of="service" text>Service</Head><Head {...head} of="requests">Requests</Head>
        {running && <Head {...head} of="running" title="Requests that run the chosen function">Running it</Head>}<Head {...head} of="error_share">Failed</Head>
        <Head {...head} of="p50_ms">Median</Head><Head {...head} of="p95_ms">p95</Head><Head {...head} of="p99_ms">p99</Head><Head {...head} of="max_ms">Slowest</Head>
        <Head {...head} of="value">{showable(p.type.label)}</Head>
        {p.factors && <th class="num" title="Cost of a month at this rate">Cost/month</th>}<th /></tr></thead>
      <tbody>{rows.map((e) => <tr key={`${e.service}\n${e.name}`}>
        <td class="c-name"><button class="pick" title="Requests to this endpoint, slowest first" onClick={() => p.onEndpoint(e, "list")}>{showable(e.name)}</button></td>
        <td>{showable(e.service)}</td><td class="num">{count(e.requests)}</td>{running && <td class="num">{count(e.running)}</td>}
        <td class={e.errors > 0 ? "num grew" : "num"}>{e.requests > 0 ? percent(e.errors / e.requests) : ""}</td>
        <td class="num">{ms(e.p50)}</td><td class="num">{ms(e.p95)}</td><td class="num">{ms(e.p99)}</td><td class="num">{ms(e.max)}</td>
        <td class="num" title={`${count(e.samples)} samples`}>{e.samples > 0 ? rate(e.value, p.ms, p.type) : "–"}</td>
        {p.factors && <Money factors={p.factors} ns={e.value * nanoseconds(p.type.unit)} ms={p.ms} />}
        <td><button class="text" onClick={() => p.onEndpoint(e, "slow")}>Why slow?</button>{" "}
          <button class="text" title="Add a task that keeps the slow requests with all their samples" onClick={() => p.onProfile(e)}>Profile slow requests</button></td></tr>)}</tbody>
    </table></div>
    {rows.length === 0 && <p class="empty">No endpoint has this text.</p>}
  </section>;
}

/** "500 of 1,449". */
const ofAll = (n: number, matching: number, total: number): string =>
  `${count(n)}${n < matching ? ` of ${count(matching)}` : ""}${matching < total ? `${n < matching ? " that match," : ""} of ${count(total)}` : ""}`;

function Requests(p: Props & { onTrace: (r: Request) => void; onOrder: (order: string) => void }): preact.JSX.Element {
  const { part: { requests, list }, state: { requests: { order: sort } } } = p;
  const head = { sort, onSort: p.onOrder };
  const most = requests.reduce((m, r) => Math.max(m, r.duration), 0) || 1;
  return <section aria-label="Requests">
    <div class="filter"><h2>{sort !== "-duration_ms" ? "Requests" : requests.length >= 200 ? "The 200 slowest requests" : "Requests, slowest first"}</h2>
      <span class="n">{count(requests.length)}{list!.requests > requests.length && ` of ${count(list!.requests)}`}</span></div>
    <div class="table-scroll"><table>
      <thead><tr><Head {...head} of="duration_ms">Took</Head><th class="c-share" /><Head {...head} of="endpoint" text class="c-name">Endpoint</Head>
        <Head {...head} of="service" text>Service</Head><Head {...head} of="status" text>Status</Head><Head {...head} of="start_ms" text>Started</Head>
        <Head {...head} of="value">{showable(p.type.label)} (whole trace)</Head></tr></thead>
      <tbody>{requests.map((r) => <tr key={`${r.trace} ${r.start} ${r.service} ${r.endpoint}`} {...opens(() => p.onTrace(r))}>
        <td class="num"><button class="pick" title="Show the trace of this request">{ms(r.duration)}</button></td>
        <td class="c-share"><b class="bar" style={{ width: `${100 * r.duration / most}%` }} aria-hidden="true" /></td>
        <td class="c-name">{showable(r.endpoint)}</td><td>{showable(r.service)}</td>
        <td class={r.status === "error" ? "grew" : ""}>{r.status === "unset" ? "" : r.status === "error" ? "failed" : showable(r.status)}</td>
        <td class="soft">{clock(r.start)}</td>
        <td class="num" title={`${count(r.samples)} samples${r.standsFor > 1 ? `; stands for ${count(r.standsFor)} similar requests` : ""}`}>
          {r.samples > 0 ? value(r.value, p.type.unit, p.type.name) : "–"}</td></tr>)}</tbody>
    </table></div>
  </section>;
}

export function Traces(p: Props): preact.JSX.Element {
  const { part, state, change } = p;
  const r = state.requests;
  const set = (x: Partial<RequestState>): void => change({ requests: { ...r, ...x } });
  const bar = <Bar {...p} set={set} />;
  if (part.waterfall)
    return <div class="traces-page">{bar}<WaterfallView w={part.waterfall} hasWaits={part.hasWaits} state={r} type={p.type} onChange={set} />
      <nav class="tabs trace-tabs" aria-label="Of this trace">{(["picture", "chart"] as const).map((s) => <button key={s} aria-current={(r.show === "chart") === (s === "chart") ? "page" : undefined}
        onClick={() => set({ show: s })}>{SHOW_WORD[s]}</button>)}</nav>
      {r.show === "chart" ? p.chart : p.picture}</div>;
  if (part.slow)
    return <div class="traces-page">{bar}<SlowTable slow={part.slow} other={part.otherSlow} onSource={(source, line) => change({ source, line, code: null })} onFunction={(name) => {
      location.hash = new URLSearchParams({ q: `^${name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")}$` }).toString();
      set({ show: "picture", min: Math.floor(part.slow!.slow.from) });
    }} />{p.picture}</div>;
  if (part.profile)
    return <div class="traces-page">{bar}{p.picture}</div>;
  if (part.list!.total === 0 && part.requests.length === 0 && r.endpoint === "" && !r.min && !r.max && r.status === "" && state.stacks === "")
    return <div class="traces-page">{bar}<div class="nothing"><h2>No requests in this time range</h2>
      <p>Requests come from services that send OpenTelemetry traces (<code>OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318</code>)
        or Zipkin traces. To link samples to requests, a service publishes its trace context: see <code>man culprit-up</code>.</p></div></div>;
  return <div class="traces-page lists">
    {bar}
    {part.quality && <QualityOf quality={part.quality} losses={p.losses} what="Samples of these services, in the listed requests and outside them" />}
    {r.endpoint === "" && <Endpoints {...p} onEndpoint={(e, show) => change({ service: e.service, requests: { ...NO_REQUEST, endpoint: e.name, show } })} />}
    {part.requests.length > 0 ? <Requests {...p} onOrder={(order) => set({ order })} onTrace={(t) => set({ trace: t.trace, span: "", only: false })} />
      : <div class="nothing"><h2>No requests match in this time range</h2>
        <p><button class="text" onClick={() => change({ service: "", stacks: "", requests: NO_REQUEST })}>All requests</button></p></div>}
  </div>;
}
