// SPDX-License-Identifier: Apache-2.0
/*
 * The page that a server shows: what runs there, refreshed. A bar that chooses service, type and
 * time, all of it in location.search, above the flame graph page, which has its state in
 * location.hash.
 */
import { render } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import {
  clock, decodeLive, encodeLive, knownMs, lastText, LASTS, localInput, moved, rangeAt, rangeText, refreshMs, typeLabel, wider,
} from "../model/live.ts";
import type { LiveState, Range } from "../model/live.ts";
import { showable } from "../model/payload.ts";
import { decodeState } from "../model/state.ts";
import { App } from "./app.tsx";
import { Chart } from "./chart.tsx";
import { typeOf, usePoll } from "./poll.ts";
import type { Poll } from "./poll.ts";
import { Services } from "./services.tsx";
import { Source } from "./source.ts";
import type { Keys } from "./help.tsx";
import "./style.css";
import "./live.css";

const KEYS: Keys = [
  [["l"], "follow what happens now, or hold it"],
  [["v"], "choose a service"],
  [["[", "]"], "earlier, later"],
  [["-"], "twice the time"],
];

/** In step with location.search both ways; the hash is not ours and stays. */
function useSearch(): [LiveState, (change: Partial<LiveState>) => void] {
  const [state, set] = useState(() => decodeLive(location.search));
  const current = useRef(state);
  useEffect(() => {
    const read = (): void => {
      // Steps within the picture are not of this state.
      const now = decodeLive(location.search);
      if (encodeLive(now) !== encodeLive(current.current))
        set(current.current = now);
    };
    addEventListener("popstate", read);
    return () => removeEventListener("popstate", read);
  }, []);
  const change = useCallback((c: Partial<LiveState>) => {
    const next = { ...current.current, ...c };
    if (encodeLive(next) === encodeLive(current.current))
      return;
    set(current.current = next);
    const search = encodeLive(next);
    history.pushState(null, "", location.pathname + (search && "?" + search) + location.hash);
  }, []);
  return [state, change];
}

function Token(p: { text: string; onToken: (t: string) => void }): preact.JSX.Element {
  const [token, setToken] = useState("");
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => box.current!.focus(), []);
  return (
    <form class="nothing token" aria-labelledby="token-title" onSubmit={(e) => {
      e.preventDefault();
      if (token.trim() !== "")
        p.onToken(token.trim());
    }}>
      <h2 id="token-title">{p.text}</h2>
      <p>Whoever runs this server has it: a line <code>read TOKEN</code> of the file that <code>--token-file</code> names. It
        is kept until this tab is closed, and sent to this server only.</p>
      <p><input type="password" autocomplete="off" aria-label="Token" value={token} ref={box}
                onInput={(e) => setToken(e.currentTarget.value)} /> <button class="text">Continue</button></p>
    </form>
  );
}

function Custom(p: { range: Range; onRange: (r: Range) => void; onClose: () => void }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [from, setFrom] = useState(localInput(p.range.from));
  const [to, setTo] = useState(localInput(p.range.to));
  useEffect(() => {
    ref.current!.showModal();
  }, []);
  const range = { from: new Date(from).getTime(), to: new Date(to).getTime() };
  const good = range.to > range.from;
  return (
    <dialog class="help sheet-range" ref={ref} onClose={p.onClose} aria-labelledby="range-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <form onSubmit={(e) => {
        e.preventDefault();
        if (good) {
          p.onRange(range);
          ref.current!.close();
        }
      }}>
        <header><h2 id="range-title">Time</h2>
          <button class="icon" type="button" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        <label>From <input type="datetime-local" step="1" required value={from} onInput={(e) => setFrom(e.currentTarget.value)} /></label>
        <label>To <input type="datetime-local" step="1" required value={to} onInput={(e) => setTo(e.currentTarget.value)} /></label>
        <p>{good ? "In this machine's time zone." : "The end must be after the beginning."}</p>
        <button class="text" disabled={!good}>Show</button>
      </form>
    </dialog>
  );
}

function Nothing(p: { poll: Poll; state: LiveState; change: (c: Partial<LiveState>) => void }): preact.JSX.Element {
  const { state, change } = p;
  if (p.poll.view!.first === 0)
    return <div class="nothing"><h2>Waiting for the first samples</h2>
      <p>Nothing has arrived at this server yet. With <code>culprit up</code> this machine's come within ten seconds; other
        machines send theirs with <code>culprit agent --collection-agent HOST:4317</code>. This page looks again by
        itself.</p></div>;
  const wideEnough = LASTS.find(([s]) => s > state.last);
  return <div class="nothing"><h2>No samples{state.service ? ` of ${showable(state.service)}` : ""} {state.range
    ? "in this time" : `in the last ${lastText(state.last)}`}</h2>
    <p>Either nothing of it used the CPU, or nothing was sent: then look at the agent's log, or at this server's{" "}
      <code>/metrics</code>.</p>
    <p>{state.service !== "" && <button class="text" onClick={() => change({ service: "" })}>All services</button>}{" "}
      {state.range ? <button class="text" onClick={() => change({ range: null })}>What happens now</button>
        : wideEnough && <button class="text" onClick={() => change({ last: wideEnough[0] })}>Last {wideEnough[1]}</button>}</p>
  </div>;
}

function Status(p: { poll: Poll; state: LiveState; now: number }): preact.JSX.Element {
  const { view, problem } = p.poll;
  const shown = view ? `what is shown is of ${clock(view.at)}` : "";
  const text = !problem || problem.kind === "token" ? view?.damaged
    ? "Part of what is stored for this time cannot be read; the rest is shown. The server's log says which." : ""
    : problem.kind === "gone"
      ? `${problem.text} since ${clock(problem.since)}; ${shown ? shown + "; " : ""}trying again`
      : `${problem.text[0]!.toUpperCase()}${problem.text.slice(1)}${shown && `; ${shown}`}`;
  return <div class={text ? "problem" : "spoken"} role="alert">{text && <p>{text}
    {problem && <button class="text" onClick={p.poll.again}>Try now</button>}</p>}</div>;
}

function Live({ source }: { source: Source }): preact.JSX.Element {
  const [state, change] = useSearch();
  const poll = usePoll(source, state);
  const { view, problem } = poll;
  const [custom, setCustom] = useState(false);
  const [all, setAll] = useState(false);
  const now = source.now();
  const range = view?.range ?? rangeAt(state, now);
  const type = typeOf(view);
  const absolute = state.range ?? range;

  const setRange = (r: Range): void => change({ range: r });
  const hold = (): void => change({ range: state.range ? null : range });
  const onKey = (e: KeyboardEvent): void => {
    if (e.ctrlKey || e.metaKey || e.altKey || (e.target as HTMLElement).matches("input, select, textarea") ||
        document.querySelector("dialog[open]"))
      return;
    switch (e.key) {
    case "l": hold(); break;
    case "v": setAll(true); break;
    case "[": setRange(moved(absolute, -0.5, now)); break;
    case "]": setRange(moved(absolute, 0.5, now)); break;
    case "-": setRange(wider(absolute, now)); break;
    default: return;
    }
    e.preventDefault();
  };
  useLayoutEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  });

  const title = state.service ? showable(state.service) : "All services";
  // One object as long as the samples are the same ones: the page computes from it.
  const profile = useMemo(() => view?.profile && { ...view.profile, meta: {
    ...view.profile.meta, title, durationNs: 1e6 * knownMs(view.range, view.first) } }, [view, title]);
  const spanText = state.range ? rangeText(state.range, now) : `last ${lastText(state.last)}`;
  const options = LASTS.some(([s]) => s === state.last) ? LASTS : [...LASTS, [state.last, lastText(state.last)] as [number, string]];
  return (
    <div class="live">
      <div class="live-bar">
        {!view ? <div /> : <Services services={view.services} chosen={state.service} type={type} ms={knownMs(range, view.first)}
                  open={all} onOpen={setAll} onChoose={(service) => change({ service })} />}
        <div class="tools">
          {view && view.types.length > 1 && <select aria-label="Type" title="What is counted" value={view.type}
            onChange={(e) => change({ type: e.currentTarget.value })}>
            {view.types.map((t) => <option key={t} value={t}>{showable(typeLabel(t, view.types))}</option>)}</select>}
          <button class="icon" aria-label="Earlier" title="Earlier ([)" onClick={() => setRange(moved(absolute, -0.5, now))}>‹</button>
          <select class="range" aria-label="Time" title={spanText} value={state.range ? "range" : state.last}
                  onChange={(e) => {
                    const v = e.currentTarget.value;
                    if (v === "custom")
                      setCustom(true);
                    else if (v !== "range")
                      change({ last: Number(v), range: null });
                    // What is chosen follows the state, also when it stays.
                    e.currentTarget.value = state.range ? "range" : String(state.last);
                  }}>
            {state.range && <option value="range">{spanText}</option>}
            {options.map(([s, label]) => <option key={s} value={s}>last {label}</option>)}
            <option value="custom">custom…</option></select>
          <button class="icon" aria-label="Later" title="Later (])" disabled={!state.range}
                  onClick={() => setRange(moved(absolute, 0.5, now))}>›</button>
          <button class="icon" aria-label="Twice the time" title="Twice the time (-)" onClick={() => setRange(wider(absolute, now))}>−</button>
          <button class="text follow" aria-pressed={state.range === null} onClick={hold}
                  title={state.range ? "Follow what happens now (l)" : `Refreshed every ${refreshMs(state.last) / 1000} s; hold it (l)`}>
            <i class={problem ? "dot off" : "dot"} aria-hidden="true" />Live</button>
        </div>
        <Chart bars={view?.bars ?? null} range={range} type={type} now={now} onSelect={setRange}
               label={`${title}, ${type.name} by time, ${spanText}`} />
      </div>
      <Status poll={poll} state={state} now={now} />
      <div class={poll.busy && view ? "live-page busy" : "live-page"} aria-busy={poll.busy}>
        {problem?.kind === "token" ? <Token text={problem.text} onToken={(t) => {
          source.token = t;
          poll.again();
        }} />
        : profile ? <App profile={profile} keys={KEYS} nothing={<Nothing poll={poll} state={state} change={change} />} />
        : !problem ? <div class="nothing loading"><p>Asking the server…</p></div>
        : <div class="nothing"><h2>No picture yet</h2><p>It comes as soon as the server answers.</p></div>}
      </div>
      {custom && <Custom range={absolute} onRange={setRange} onClose={() => setCustom(false)} />}
    </div>
  );
}

function boot(): void {
  // Until there is a picture, whose page has a say of its own.
  document.documentElement.dataset["theme"] = decodeState(location.hash).theme ??
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  render(<Live source={new Source()} />, document.getElementById("app")!);
}

if (document.readyState === "loading")
  document.addEventListener("DOMContentLoaded", boot);
else
  boot();
