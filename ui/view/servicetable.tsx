// SPDX-License-Identifier: Apache-2.0
/* All services: what each takes, where it runs, in what language, and what changed. */
import { useState } from "preact/hooks";
import { AGOS } from "../model/address.ts";
import { showable } from "../model/payload.ts";
import { matcher } from "../model/search.ts";
import { rate } from "../model/series.ts";
import type { TypeName } from "../model/series.ts";
import { sortServices } from "../model/services.ts";
import type { ServiceKey, ServiceRow } from "../model/services.ts";
import { count, percent } from "../model/text.ts";

const MOST = 500;

interface Props {
  rows: ServiceRow[];
  type: TypeName;
  /** Of the range, for rates. */
  ms: number;
  ago: number;
  onAgo: (s: number) => void;
  onChoose: (name: string) => void;
  onCompare: (name: string) => void;
}

function Spark(p: { values: Float64Array }): preact.JSX.Element {
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

function Change(p: { row: ServiceRow; type: TypeName; when: string }): preact.JSX.Element {
  const c = p.row.change;
  if (!c)
    return <span class="soft" title="Nothing is stored of that time">–</span>;
  const d = c.after - c.before;
  const amount = `${d < 0 ? "−" : "+"}${rate(Math.abs(d), 1, p.type)}`;
  const share = c.before > 0 ? `${d < 0 ? "−" : "+"}${percent(Math.abs(d) / c.before)}` : c.after > 0 ? "new" : "";
  return c.sure
    ? <span class={d > 0 ? "grew" : "shrank"} title={`${rate(c.before, 1, p.type)} ${p.when}`}>{amount} <small>{share}</small></span>
    : <span class="soft" title={`${rate(c.before, 1, p.type)} ${p.when}: no more of a difference than chance makes`}>≈ same</span>;
}

export function ServiceTable(p: Props): preact.JSX.Element {
  const [text, setText] = useState("");
  const [[key, descending], setSort] = useState<[ServiceKey, boolean]>(["value", true]);
  const m = matcher(text);
  const bad = m !== null && "error" in m;
  const found = m && !("error" in m) ? p.rows.filter((r) => m.test(r.name)) : p.rows;
  const rows = sortServices(found, key, descending);
  const head = (k: ServiceKey, label: string, by = true): preact.JSX.Element =>
    <th key={k} class={by && k !== "hosts" ? `c-${k} num` : `c-${k}`} aria-sort={k === key ? (descending ? "descending" : "ascending") : "none"}>
      <button onClick={() => setSort([k, k === key ? !descending : by])}>{label}{k === key ? (descending ? " ↓" : " ↑") : ""}</button></th>;
  // Only some senders say it.
  const languages = p.rows.some((r) => r.languages.length > 0);
  const when = AGOS.find(([s]) => s === p.ago)?.[1] ?? "before";
  return (
    <section class="services-page" aria-label="Services">
      <div class="filter">
        <input type="search" placeholder="Filter services" aria-label="Filter services (regular expression)" aria-invalid={bad}
               value={text} spellcheck={false} onInput={(e) => setText(e.currentTarget.value)} />
        <span class="n">{count(found.length)} of {count(p.rows.length)}</span>
        <label class="soft">Change against <select value={p.ago} aria-label="Change against" onChange={(e) => p.onAgo(Number(e.currentTarget.value))}>
          {AGOS.map(([s, label]) => <option key={s} value={s}>{label}</option>)}</select></label>
      </div>
      <div class="table-scroll">
        <table>
          <thead><tr>{head("name", "Service", false)}<th class="c-spark">By time</th>{head("value", p.type.name === "cpu" ? "CPU" : p.type.name || "Value")}
            <th class="c-share num">Share</th>{head("change", "Change")}{languages && head("language", "Language", false)}{head("hosts", "Hosts")}<th /></tr></thead>
          <tbody>
            {rows.slice(0, MOST).map((r) => <tr key={r.name}>
              <td class="c-name"><button class="pick" title={`Flame graph of ${showable(r.name)}`} onClick={() => p.onChoose(r.name)}>
                {r.name === "" ? <i>no name</i> : showable(r.name)}</button></td>
              <td class="c-spark"><Spark values={r.spark} /></td>
              <td class="num">{rate(r.value, p.ms, p.type)}</td>
              <td class="num c-share"><b class="bar" style={{ width: `${100 * r.share}%` }} aria-hidden="true" />{percent(r.share)}</td>
              <td class="num"><Change row={r} type={p.type} when={when} /></td>
              {languages && <td>{r.languages.map(showable).join(", ")}</td>}
              <td title={r.hosts.map(showable).join("\n")}>{r.hosts.length === 1 ? showable(r.hosts[0]!) : r.hosts.length ? count(r.hosts.length) : ""}</td>
              <td><button class="text" title={`Compare with ${when}`} onClick={() => p.onCompare(r.name)}>Compare</button></td>
            </tr>)}
          </tbody>
        </table>
        {rows.length > MOST && <p class="soft more">and {count(rows.length - MOST)} more: filter to see them</p>}
        {rows.length === 0 && <p class="empty">{p.rows.length ? "No service has such a name." : "No samples in this time."}</p>}
      </div>
    </section>
  );
}
