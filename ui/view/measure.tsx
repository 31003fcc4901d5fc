// SPDX-License-Identifier: Apache-2.0
/*
 * "Measure this function": the dialog that asks for it; the card that shows counts, latencies and slow calls of all hosts
 * while it goes on; the list of all measurements.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { argumentNames, filledBuckets, isMeasuring, measuredText, measurementFor, readMeasurement, slowText } from "../model/measurements.ts";
import type { Bucket, FunctionOf, Measurement, NewMeasurement, SlowCall } from "../model/measurements.ts";
import { showable } from "../model/payload.ts";
import { base, count, duration, percent } from "../model/text.ts";
import { clock, day } from "../model/times.ts";
import type { Source } from "./source.ts";
import "./measure.css";

const POLL_MS = 1000;
const FOR: [number, string][] = [[10000, "10 s"], [30000, "30 s"], [60000, "1 min"], [180000, "3 min"], [600000, "10 min"]];
const BUDGETS: [number, string][] = [[0.1, "0.1 % of a CPU"], [1, "1 % of a CPU"], [5, "5 % of a CPU"], [10, "10 % of a CPU"]];
const STATES: Record<string, string> = { queued: "is starting", armed: "is measuring", absent: "has no such process", silent: "is measuring", refused: "cannot measure this function", ended: "is done" };

const nameOf = (m: FunctionOf): string => `${showable(m.function)} in ${m.file === "[kernel]" ? "the kernel" : showable(base(m.file)) || "the executable"}`;

/* ---- the dialog ---- */

export function MeasureDialog(p: { of: FunctionOf; service: string; services: string[]; onStart: (m: NewMeasurement) => Promise<string>; onClose: () => void }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const start = useRef<HTMLButtonElement>(null);
  const [m, set] = useState(() => measurementFor(p.of, p.service));
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => {
    ref.current!.showModal();
    // All is filled in: Enter starts.
    start.current!.focus();
  }, []);
  const services = [...new Set(["*", ...p.service ? [p.service] : [], ...p.services.filter((s) => s !== "")])];
  const choice = (key: "duration_ms" | "budget_percent", label: string, title: string, of: [number, string][]): preact.JSX.Element => <label title={title}>{label}
    <select value={m[key]} onChange={(e) => set({ ...m, [key]: Number(e.currentTarget.value) })}>{of.map(([v, text]) => <option key={v} value={v}>{text}</option>)}</select></label>;
  return (
    <dialog class="help sheet-range sheet-task" ref={ref} onClose={p.onClose} aria-labelledby="measure-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <form onSubmit={(e) => {
        e.preventDefault();
        setBusy(true);
        void p.onStart(m).then((said) => {
          setBusy(false);
          setProblem(said);
        });
      }}>
        <header><h2 id="measure-title">Measure {nameOf(p.of)}</h2>
          <button class="icon" type="button" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        <p class="soft">Counts calls on all hosts that run this function: latencies, and slow calls with their arguments.</p>
        <label>Service <select value={m.service} onChange={(e) => set({ ...m, service: e.currentTarget.value })}>
          {services.map((s) => <option key={s} value={s}>{s === "*" ? "all" : showable(s)}</option>)}</select></label>
        {choice("duration_ms", "For", "The measurement ends after this time", FOR)}
        <label title="Calls that take at least this long are listed one by one. Without a number, agents choose by the calls that they see">Slow from
          <span><input type="number" min="0" step="any" placeholder="automatic" value={m.slow_ns > 0 ? +(m.slow_ns / 1e6).toPrecision(6) : ""}
                       onInput={(e) => set({ ...m, slow_ns: Math.round(1e6 * Number(e.currentTarget.value)) })} /> ms</span></label>
        {choice("budget_percent", "May cost", "On each host. Agents measure for a part of the time to stay below it", BUDGETS)}
        {problem !== "" && <p class="grew" role="alert">{showable(problem)}</p>}
        <button class="text" ref={start} disabled={busy}>Measure</button>
      </form>
    </dialog>
  );
}

/* ---- the card ---- */

function Histogram(p: { buckets: Bucket[]; slowNs: number }): preact.JSX.Element {
  const all = filledBuckets(p.buckets);
  const most = all.reduce((m, b) => Math.max(m, b.calls), 1);
  // One call among a million is still seen.
  const height = (calls: number): string => (calls > 0 ? `${Math.max(2, 100 * Math.log1p(calls) / Math.log1p(most))}%` : "0");
  return <figure class="latencies" aria-label="Histogram of latencies">
    <div class="bars">{all.map((b) => <i key={b.from} class={p.slowNs > 0 && b.to > p.slowNs ? "slow" : ""} title={`${duration(b.from)} to ${duration(b.to)}: ${count(b.calls)} calls`}>
      <b style={{ height: height(b.calls) }} /></i>)}</div>
    {all.length > 0 && <figcaption><span>{duration(all[0]!.from)}</span><span class="soft">calls by latency, both on logarithmic scales</span><span>{duration(all[all.length - 1]!.to)}</span></figcaption>}
  </figure>;
}

function Latencies(p: { m: Measurement }): preact.JSX.Element {
  const { latency } = p.m;
  return <dl class="percentiles">{([["p50", "median"], ["p95", "p95"], ["p99", "p99"], ["max", "slowest"]] as const).map(([key, name]) =>
    <div key={key}><dt>{name}</dt><dd>{latency[key] > 0 ? duration(latency[key]) : "–"}</dd></div>)}</dl>;
}

function SlowCalls(p: { calls: SlowCall[]; onTrace: (c: SlowCall) => void }): preact.JSX.Element {
  const names = argumentNames(p.calls);
  const results = p.calls.some((c) => c.result !== "");
  return <div class="table-scroll" tabIndex={0}><table>
    <thead><tr><th class="num">Took</th>{names.map((n) => <th key={n} class="argument">{showable(n)}</th>)}{results && <th>Result</th>}
      <th>Request</th><th>At</th><th>Host</th><th>Thread</th><th>Stack</th></tr></thead>
    <tbody>{p.calls.map((c) => <tr key={`${c.host} ${c.tid} ${c.end}`}>
      <td class="num">{duration(c.ns)}</td>{names.map((n) => <td key={n} class="argument">{showable(c.args.get(n) ?? "")}</td>)}{results && <td class="argument">{showable(c.result)}</td>}
      <td>{c.trace !== "" && <button class="pick" title={`Trace ${c.trace}`} onClick={() => p.onTrace(c)}>{c.trace.slice(0, 8)}…</button>}</td>
      <td>{clock(c.end)}</td><td>{showable(c.host)}</td><td>{showable(c.comm)} <span class="soft">{c.pid}{c.tid !== c.pid && `/${c.tid}`}</span></td>
      <td>{c.stack.length > 0 && <details><summary>{showable(c.stack[1] ?? c.stack[0]!)}</summary><ol>{c.stack.map((f, i) => <li key={i}>{showable(f)}</li>)}</ol></details>}</td></tr>)}</tbody>
  </table></div>;
}

function Agents(p: { m: Measurement }): preact.JSX.Element | null {
  const told = p.m.agents.filter((a) => a.reason !== "" || a.state === "refused" || a.state === "absent");
  return told.length === 0 ? null : <ul class="why" aria-label="Reports of agents">{told.map((a) => <li key={a.host}>
    {showable(a.host)} {STATES[a.state] ?? showable(a.state)}{a.reason !== "" && `: ${showable(a.reason)}`}</li>)}</ul>;
}

/** Agents ask every few seconds, and then begin. */
function Waiting(p: { m: Measurement }): preact.JSX.Element | null {
  const isRefused = p.m.agents.some((a) => a.state === "refused");
  return p.m.hosts > 0 || isRefused ? null : <p class="soft" role="status">{isMeasuring(p.m) ? p.m.agents.some((a) => a.state === "queued") ? "An agent is starting…" : "Waiting for agents. They ask every five seconds…"
    : "No agent measured this function."}</p>;
}

function Measured(p: { m: Measurement; now: number; onStop: () => void; onTrace: (c: SlowCall) => void }): preact.JSX.Element {
  const { m } = p;
  const left = Math.max(0, m.created + m.durationMs - p.now);
  return <>
    <div class="filter"><b class={`task-state ${m.state}`}>{showable(m.state)}</b>
      <span class="soft">{m.service === "*" ? "all services" : showable(m.service)}; {isMeasuring(m) ? left > 0 ? `about ${Math.ceil(left / 1000)} s left` : "ends" : `for ${duration(1e6 * m.durationMs)} from ${clock(m.created)}`};
        {" "}cost {percent(m.costPercent / 100)} of a CPU (at most {m.budgetPercent} %)</span>
      {isMeasuring(m) && <button class="text" onClick={p.onStop}>Stop</button>}</div>
    <Agents m={m} />
    <Waiting m={m} />
    {m.hosts > 0 && <>
      <p class="rate">{measuredText(m)}</p>
      <Latencies m={m} />
      {m.histogram.length > 0 && <Histogram buckets={m.histogram} slowNs={m.slowNs} />}
      <section aria-label="Slow calls" class="slow-calls">
        <div class="filter"><h3>Slow calls</h3><span class="n">{count(m.slowCalls.length)}</span><span class="soft">{slowText(m)}, slowest first{m.slow > m.slowCalls.length && `; of ${count(m.slow)}`}</span></div>
        {m.slowCalls.length > 0 ? <SlowCalls calls={m.slowCalls} onTrace={p.onTrace} /> : <p class="soft none">None yet.</p>}
      </section></>}
  </>;
}

/** Follows a measurement until it has ended. */
export function MeasureCard(p: { source: Source; id: string; onTrace: (c: SlowCall) => void; onClose: () => void }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [m, set] = useState<Measurement | null>(null);
  const [problem, setProblem] = useState("");
  const [nth, setNth] = useState(0);
  useLayoutEffect(() => ref.current!.showModal(), []);
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      let goesOn = true;
      try {
        const next = readMeasurement(await p.source.json(`measurements/${p.id}`, {}, abort.signal));
        if (abort.signal.aborted)
          return;
        set(next);
        setProblem("");
        goesOn = isMeasuring(next);
      } catch (e) {
        if (!abort.signal.aborted)
          setProblem(e instanceof Error ? e.message : String(e));
      }
      if (goesOn && !abort.signal.aborted)
        timer = setTimeout(() => void ask(), POLL_MS);
    };
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [p.source, p.id, nth]);
  const stop = async (): Promise<void> => {
    const { said } = await p.source.send("POST", `measurements/${p.id}/stop`, null);
    setProblem(said);
    setNth(nth + 1);
  };
  return (
    <dialog class="help sheet-source sheet-measure" ref={ref} onClose={p.onClose} aria-labelledby="measured-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <div>
        <header><h2 id="measured-title">{m ? nameOf(m) : "Measurement"}</h2>
          <button class="icon" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        {problem !== "" && <p class="grew" role="alert">{showable(problem)}</p>}
        {m ? <Measured m={m} now={p.source.now()} onStop={() => void stop()} onTrace={p.onTrace} /> : problem === "" && <p role="status">Loading…</p>}
      </div>
    </dialog>
  );
}

/* ---- all ---- */

export function Measurements(p: { all: Measurement[]; now: number; onShow: (id: string) => void }): preact.JSX.Element | null {
  return p.all.length === 0 ? null : <section aria-label="Measurements">
    <div class="filter"><h2>Measured functions</h2><span class="n">{count(p.all.length)}</span></div>
    <div class="table-scroll" tabIndex={0}><table>
      <thead><tr><th>State</th><th class="c-name">Function</th><th>Service</th><th class="num">Calls</th><th class="num">Median</th><th class="num">p99</th><th class="num">Slowest</th><th>Started</th></tr></thead>
      <tbody>{p.all.map((m) => <tr key={m.id}><td><b class={`task-state ${m.state}`}>{showable(m.state)}</b></td>
        <td class="c-name"><button class="pick" title="Show this measurement" onClick={() => p.onShow(m.id)}>{nameOf(m)}</button></td>
        <td>{m.service === "*" ? "all" : showable(m.service)}</td><td class="num">{count(m.calls)}</td>
        {([m.latency.p50, m.latency.p99, m.latency.max]).map((v, i) => <td key={i} class="num">{v > 0 ? duration(v) : ""}</td>)}
        <td>{day(m.created) === day(p.now) ? clock(m.created) : `${day(m.created)} ${clock(m.created)}`}</td></tr>)}</tbody>
    </table></div>
  </section>;
}
