// SPDX-License-Identifier: Apache-2.0
/* The list of policies below that of tasks, a form that adds one, and why a policy added a task. */
import { useState } from "preact/hooks";
import { CAUSES, isOfEndpoint } from "../model/policies.ts";
import type { NewPolicy, Policy } from "../model/policies.ts";
import { showable } from "../model/payload.ts";
import { count } from "../model/text.ts";
import { clock, day } from "../model/times.ts";

export interface PolicyActions {
  /** Both resolve to "" or to why it was refused. */
  addPolicy: (p: NewPolicy) => Promise<string>;
  removePolicy: (id: string) => Promise<string>;
}

const at = (t: number, now: number): string => (day(t) === day(now) ? clock(t) : `${day(t)} ${clock(t)}`);
const NEW: NewPolicy = { service: "", cause: "cpu", threshold: 150, endpoint: "", window_ms: 10000, count: 3, of: 5 };
const THRESHOLDS: Record<string, number> = { cpu: 150, threads: 1000, load: 2, errors: 5, latency: 500 };

/** Why the policy added this task. */
export function Cause(p: { cause: string; policy: string }): preact.JSX.Element | null {
  return p.cause === "" ? null : <p class="cause">Added by policy {showable(p.policy)}: {showable(p.cause)}</p>;
}

function Form(p: { actions: PolicyActions; onDone: () => void }): preact.JSX.Element {
  const [f, set] = useState(NEW);
  const [problem, setProblem] = useState("");
  const number = (key: "threshold" | "count" | "of" | "window_ms", label: string, unit: string, scale: number, min: string, step: string): preact.JSX.Element => <label>{label}{" "}
    <input type="number" required min={min} step={step} value={f[key] / scale} onInput={(e) => set({ ...f, [key]: Number(e.currentTarget.value) * scale })} /> {unit}</label>;
  return <form class="new-policy" aria-label="New policy" onSubmit={(e) => {
    e.preventDefault();
    void p.actions.addPolicy({ ...f, endpoint: isOfEndpoint(f.cause) ? f.endpoint : "" }).then((said) => {
      setProblem(said);
      if (said === "")
        p.onDone();
    });
  }}>
    <label title="A service.name, or * for each service">Service <input required value={f.service} onInput={(e) => set({ ...f, service: e.currentTarget.value })} /></label>
    <label>Fires by <select value={f.cause} onChange={(e) => set({ ...f, cause: e.currentTarget.value, threshold: THRESHOLDS[e.currentTarget.value] ?? 1 })}>
      {CAUSES.map(([c, name]) => <option key={c} value={c}>{name}</option>)}</select></label>
    {isOfEndpoint(f.cause) && <label title="An exact name, a name with * for any characters, or ~ and a regular expression">Endpoint <input placeholder="each" value={f.endpoint}
      onInput={(e) => set({ ...f, endpoint: e.currentTarget.value })} /></label>}
    {number("threshold", "from", CAUSES.find(([c]) => c === f.cause)?.[2] ?? "", 1, "0", "any")}
    {number("count", "in", "", 1, "1", "1")}{number("of", "of", "windows", 1, "1", "1")}{number("window_ms", "of", "s", 1000, "1", "any")}
    <button class="text">Add</button> <button class="text" type="button" onClick={p.onDone}>Cancel</button>
    {problem !== "" && <span class="grew" role="alert">{showable(problem)}</span>}
  </form>;
}

/** Deleting cannot be taken back, so it takes two clicks. */
function Delete(p: { policy: Policy; actions: PolicyActions }): preact.JSX.Element {
  const [sure, setSure] = useState(false);
  const [problem, setProblem] = useState("");
  return <><button class="text" title="Remove the policy. Its tasks stay" onBlur={() => setSure(false)}
    onClick={() => (sure ? void p.actions.removePolicy(p.policy.id).then(setProblem) : setSure(true))}>{sure ? "Really delete" : "Delete"}</button>
    {problem !== "" && <span class="grew" role="alert">{showable(problem)}</span>}</>;
}

export function Policies(p: { policies: Policy[]; now: number; actions: PolicyActions; onTask: (id: string) => void }): preact.JSX.Element {
  const [adding, setAdding] = useState(false);
  return <section aria-label="Policies">
    <div class="filter"><h2>Policies</h2><span class="n">{count(p.policies.length)}</span>
      {!adding && <button class="text" title="A policy adds a task when a value reaches a threshold" onClick={() => setAdding(true)}>New policy</button>}</div>
    {adding && <Form actions={p.actions} onDone={() => setAdding(false)} />}
    {p.policies.length > 0 && <div class="table-scroll" tabIndex={0}><table>
      <thead><tr><th class="c-name">Service</th><th>Fires</th><th>Last task</th><th>Verdicts</th><th /></tr></thead>
      <tbody>{p.policies.map((y) => {
        const last = y.fired.at(-1);
        return <tr key={y.id}><td class="c-name">{showable(y.service)} <span class="soft">{showable(y.endpoint)}</span></td><td>{showable(y.fires)}</td>
          <td>{last && <button class="pick" title={showable(last.text)} onClick={() => p.onTask(last.task)}>{at(last.at, p.now)}</button>}</td>
          <td class="soft">{showable(y.verdicts)}</td><td><Delete policy={y} actions={p.actions} /></td></tr>;
      })}</tbody></table></div>}
  </section>;
}
