// SPDX-License-Identifier: Apache-2.0
/* All services: their values, hosts, languages, and changes. */
import { useMemo } from "preact/hooks";
import { AGOS } from "../model/address.ts";
import type { LiveState } from "../model/address.ts";
import { costHelp, costText, monthly } from "../model/cost.ts";
import type { Factors } from "../model/cost.ts";
import { showable } from "../model/payload.ts";
import { matcher } from "../model/search.ts";
import { rate } from "../model/series.ts";
import { SERVICE_KEYS, sortServices } from "../model/services.ts";
import type { ServiceKey, ServiceRow } from "../model/services.ts";
import type { Losses } from "../model/stats.ts";
import { count, MINUS, percent, signed } from "../model/text.ts";
import type { Quality } from "../model/tree.ts";
import { nanoseconds } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import { QualityOf } from "./bar.tsx";
import { useHold } from "./hold.ts";

const MOST = 500;

interface Props {
  rows: ServiceRow[];
  type: SampleType;
  /** Length of the range, for rates. */
  ms: number;
  state: LiveState;
  change: (c: Partial<LiveState>) => void;
  /** Label whose values are the rows, and labels to choose from. */
  by: string;
  labels: string[];
  factors: Factors | null;
  quality: Quality;
  losses: Losses | null;
}

export function Spark(p: { values: Float64Array }): preact.JSX.Element {
  let most = 0;
  for (const v of p.values)
    most = Math.max(most, v);
  const n = p.values.length;
  let d = "";
  for (let i = 0; most > 0 && i < n; i++)
    if (p.values[i]! > 0)
      d += `M${i} 20V${(20 - Math.max(1, 19 * p.values[i]! / most)).toFixed(1)}h1V20z`;
  return <svg class="spark" viewBox={`0 0 ${n} 20`} preserveAspectRatio="none" aria-hidden="true"><path d={d} /></svg>;
}

function Change(p: { row: ServiceRow; type: SampleType; when: string }): preact.JSX.Element {
  const c = p.row.change;
  if (!c)
    return <span class="soft" title="Nothing is stored for that time">–</span>;
  const d = c.after - c.before;
  const size = rate(Math.abs(d), 1, p.type);
  // An amount too small for two decimals says nothing beside its share.
  const amount = size.startsWith("<") ? "" : signed((d < 0 ? MINUS : "") + size, d);
  const share = c.before > 0 ? signed(percent(d / c.before), d) : c.after > 0 ? "new" : "";
  return c.sure
    ? <span class={d > 0 ? "grew" : "shrank"} title={`${rate(c.before, 1, p.type)} ${p.when}`}>{amount} <small>{share}</small></span>
    : <span class="soft" title={`${rate(c.before, 1, p.type)} ${p.when}; the difference could be chance`}>≈ same</span>;
}

export function Money(p: { factors: Factors; ns: number; ms: number }): preact.JSX.Element {
  const c = monthly(p.ns, p.ms, p.factors);
  return <td class="num soft" title={costHelp(c, p.factors)}>{costText(c, p.factors)}</td>;
}

/** Parses an order; "-value" is descending by value, the default. */
function order(text: string): [ServiceKey, boolean] {
  const key = SERVICE_KEYS.find((k) => k === text.replace(/^-/, ""));
  return key ? [key, text.startsWith("-")] : ["value", true];
}

export function ServiceTable(p: Props): preact.JSX.Element {
  const { state, change } = p;
  const [key, descending] = order(state.sort);
  const m = useMemo(() => matcher(state.find), [state.find]);
  const bad = m !== null && "error" in m;
  const sorted = useMemo(() => sortServices(m && !("error" in m) ? p.rows.filter((r) => m.test(r.name)) : p.rows, key, descending),
                         [p.rows, m, key, descending]);
  const [held, hold] = useHold(sorted, p.rows, `${p.by}\n${state.sort}\n${state.find}`, (r) => r.name);
  const rows = Array.from(held);
  const head = (k: ServiceKey, label: string, by = true): preact.JSX.Element =>
    <th key={k} class={by && k !== "hosts" ? `c-${k} num` : `c-${k}`} aria-sort={k === key ? (descending ? "descending" : "ascending") : "none"}>
      <button onClick={() => change({ sort: ((k === key ? !descending : by) ? "-" : "") + k })}>{label}{k === key ? (descending ? " ↓" : " ↑") : ""}</button></th>;
  // Only some senders report the language.
  const languages = p.rows.some((r) => r.languages.length > 0);
  const { ago } = state.base;
  const when = AGOS.find(([s]) => s === ago)?.[1] ?? "before";
  const services = p.by === "service.name";
  const choose = (view: "flame" | "compare", name: string): void => change(services ? { view, service: name }
    : { view, service: "", filters: [...state.filters.filter((f) => f.label !== p.by), { label: p.by, value: name, not: false }] });
  return (
    <section class="services-page" aria-label="Services">
      <div class="filter">
        <input type="search" placeholder="Filter services" aria-label="Filter services (regular expression)" aria-invalid={bad}
               value={state.find} spellcheck={false} onInput={(e) => change({ find: e.currentTarget.value })} />
        <span class="n">{count(rows.length)} of {count(p.rows.length)}</span>
        <label class="soft">by <select value={p.by} aria-label="Rows by label"
            onChange={(e) => change({ by: e.currentTarget.value === "service.name" ? "" : e.currentTarget.value })}>
          {p.labels.map((l) => <option key={l} value={l}>{l === "service.name" ? "service" : showable(l)}</option>)}</select></label>
        <label class="soft">Change vs <select value={ago} aria-label="Change vs"
            onChange={(e) => change({ base: { ...state.base, ago: Number(e.currentTarget.value), range: null } })}>
          {AGOS.map(([s, label]) => <option key={s} value={s}>{label}</option>)}</select></label>
      </div>
      <QualityOf quality={p.quality} losses={p.losses} what="Samples of all rows" />
      <div class="table-scroll">
        <table>
          <thead><tr>{head("name", services ? "Service" : showable(p.by), false)}<th class="c-spark">Trend</th>{head("value", showable(p.type.label) || "Value")}
            <th class="c-share num">Share</th>{p.factors && <th class="num" title="Cost of a month at this rate">Cost/month</th>}{head("change", "Change")}{languages && head("language", "Language", false)}{head("hosts", "Hosts")}<th /></tr></thead>
          <tbody {...hold}>
            {rows.slice(0, MOST).map((r) => <tr key={r.name}>
              <td class="c-name"><button class="pick" title={`Flame graph of ${showable(r.name)}`} onClick={() => choose("flame", r.name)}>
                {r.name === "" ? <i>no name</i> : showable(r.name)}</button></td>
              <td class="c-spark"><Spark values={r.spark} /></td>
              <td class="num">{rate(r.value, p.ms, p.type)}</td>
              <td class="num c-share"><b class="bar" style={{ width: `${100 * r.share}%` }} aria-hidden="true" />{percent(r.share)}</td>
              {p.factors && <Money factors={p.factors} ns={r.value * nanoseconds(p.type.unit)} ms={p.ms} />}
              <td class="num"><Change row={r} type={p.type} when={when} /></td>
              {languages && <td>{r.languages.map(showable).join(", ")}</td>}
              <td title={r.hosts.map(showable).join("\n")}>{r.hosts.length === 1 ? showable(r.hosts[0]!) : r.hosts.length ? count(r.hosts.length) : ""}</td>
              <td><button class="text" title={`Compare with ${when}`} onClick={() => choose("compare", r.name)}>Compare</button></td>
            </tr>)}
          </tbody>
        </table>
        {rows.length > MOST && <p class="soft more">{count(rows.length - MOST)} more. Filter to see them.</p>}
        {rows.length === 0 && <p class="empty">{p.rows.length ? "No service matches." : "No samples in this time range."}</p>}
      </div>
    </section>
  );
}
