// SPDX-License-Identifier: Apache-2.0
/* What threads waited for: the switch between running and waiting, and the table of categories. */
import { rate, typeLabel } from "../model/series.ts";
import { count, percent, value } from "../model/text.ts";
import { showable } from "../model/payload.ts";
import { wholeTime } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import type { WaitRow } from "../model/waits.ts";

/** The choice of a type: CPU | Waiting | Wall, if the server has waits, and a menu of all others. */
export function Types(p: { types: string[]; type: string; onType: (type: string) => void }): preact.JSX.Element | null {
  const whole = wholeTime(p.types);
  const label = (t: string): string => showable(typeLabel(t, p.types));
  if (!whole)
    return p.types.length < 2 ? null : <select aria-label="Type" title="What is measured" value={p.type}
      onChange={(e) => p.onType(e.currentTarget.value)}>{p.types.map((t) => <option key={t} value={t}>{label(t)}</option>)}</select>;
  const of: [string, string, string][] = [
    [whole.cpu, "CPU", "Time on a CPU"],
    [whole.waits, "Waiting", "Time that threads waited"],
    [whole.both, "Wall", "The whole time of threads: running and waiting in one flame graph"]];
  const others = p.types.filter((t) => !of.some(([type]) => type === t));
  return <>
    <div class="switch" role="group" aria-label="Time">
      {of.map(([type, text, help]) => <button key={type} aria-pressed={type === p.type} title={help}
                                              onClick={() => p.onType(type)}>{text}</button>)}</div>
    {others.length > 0 && <select class="others" aria-label="Type" title="What else is measured" value={others.includes(p.type) ? p.type : ""}
      onChange={(e) => e.currentTarget.value !== "" && p.onType(e.currentTarget.value)}>
      <option value="">other…</option>{others.map((t) => <option key={t} value={t}>{label(t)}</option>)}</select>}
  </>;
}

interface Props {
  rows: WaitRow[];
  /** The category that is shown alone, "" for all. */
  chosen: string;
  type: SampleType;
  /** Length of the range, for rates. */
  ms: number;
  dark: boolean;
  onChoose: (name: string) => void;
}

export function WaitTable(p: Props): preact.JSX.Element {
  const colour = (r: WaitRow): string => r.wait ? p.dark ? r.wait.dark : r.wait.light : "transparent";
  return <table class="waits" aria-label="Waits by category">
    <thead><tr><th>Waits for</th><th class="num">Time</th><th class="num">Share</th><th class="num">Number</th>
      <th class="num">Rate</th></tr></thead>
    <tbody>{p.rows.map((r) => <tr key={r.name} aria-selected={r.name === p.chosen}>
      <th scope="row"><button aria-pressed={r.name === p.chosen} disabled={r.name === ""} title={r.wait
        ? `Only waits for ${r.wait.help}` : "Only these"} onClick={() => p.onChoose(r.name)}>
        <i style={{ background: colour(r) }} aria-hidden="true" />{r.name === "" ? "not known" : showable(r.name)}</button></th>
      <td class="num">{value(r.value, p.type.unit, p.type.name)}</td><td class="num">{percent(r.share)}</td>
      <td class="num">{count(r.count)}</td><td class="num">{rate(r.value, p.ms, p.type)}</td></tr>)}</tbody>
  </table>;
}
