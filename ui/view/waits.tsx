// SPDX-License-Identifier: Apache-2.0
/* What threads waited for: the switch between running and waiting, tables by category, lock and peer, and who woke whom. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Filter, WaitView } from "../model/address.ts";
import { rate, typeLabel } from "../model/series.ts";
import { count, percent, value } from "../model/text.ts";
import { showable } from "../model/payload.ts";
import { HOLDS_LABEL, wholeTime } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import { chosenOf, waitOf } from "../model/waits.ts";
import type { ObjectLabel, ObjectRow, Part, WaitRow } from "../model/waits.ts";
import { NO_THREAD, wakeGraph } from "../model/wakes.ts";
import type { WakeEdge, WakeNode, Wakes } from "../model/wakes.ts";
import "./waits.css";

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

/** The tables, and the graph of who woke whom; null: not asked for, or there is none. */
export interface Waits {
  rows: WaitRow[];
  /** Time that threads had nothing to do. */
  idle: number;
  /** `held`: the locks that samples of their owners have as the label HOLDS_LABEL. */
  objects: { label: ObjectLabel; rows: ObjectRow[]; names: Map<string, string>; held: Set<string> } | null;
  wakes: Wakes | null;
}

interface Props {
  waits: Waits;
  view: WaitView;
  onView: (v: WaitView) => void;
  showIdle: boolean;
  onIdle: (on: boolean) => void;
  filters: Filter[];
  type: SampleType;
  /** Length of the range, for rates; 0: not known. */
  ms: number;
  dark: boolean;
  onChoose: (name: string) => void;
  /** The tables that there can be. */
  views: readonly WaitView[];
  onObject?: (row: ObjectRow) => void;
  onOwner?: (id: string) => void;
  onHeld?: (row: ObjectRow) => void;
  onWake?: (layer: number, name: string) => void;
  isWake?: (layer: number, name: string) => boolean;
  /** Lanes of a file. */
  children?: preact.ComponentChildren;
}

const TITLE: Record<WaitView, string> = { "": "", category: "by category", lock: "by lock", peer: "by peer", wakers: "who woke whom", threads: "by thread" };

/** The switch between the tables, and the table that is chosen; pressing it again closes it. */
export function WaitPanel(p: Props): preact.JSX.Element {
  const { waits } = p;
  return <section class="of-waits" aria-label="What was waited for">
    <div class="wait-bar" role="group" aria-label="What was waited for">
      <span class="soft">Waits</span>
      {p.views.map((v) => <button key={v} aria-pressed={v === p.view} onClick={() => p.onView(v === p.view ? "" : v)}>{TITLE[v]}</button>)}
      {waits.idle > 0 && <button class="idle" aria-pressed={p.showIdle} onClick={() => p.onIdle(!p.showIdle)}
        title={`Idle threads of pools and runtimes wait for work, and no request waits for them. Click to ${p.showIdle ? "hide" : "show"} them`}>
        {value(waits.idle, p.type.unit, p.type.name)} of idle threads {p.showIdle ? "shown" : "hidden"}</button>}
    </div>
    {p.view === "category" ? <Categories {...p} /> : p.view === "lock" || p.view === "peer" ? <Objects {...p} />
      : p.view === "wakers" && waits.wakes ? <Wakers {...p} wakes={waits.wakes} /> : p.view === "threads" ? p.children : null}
  </section>;
}

function Categories(p: Props): preact.JSX.Element {
  const chosen = waitOf(p.filters);
  const colour = (r: WaitRow): string => r.wait ? p.dark ? r.wait.dark : r.wait.light : "transparent";
  const counted = p.waits.rows.some((r) => r.count >= 0);
  return <div class="wait-scroll"><table class="waits" aria-label="Waits by category">
    <thead><tr><th>Waits for</th><th class="num">Time</th><th class="num">Share</th>{counted && <><th class="num">Number</th>
      <th class="num">Rate</th></>}</tr></thead>
    <tbody>{p.waits.rows.map((r) => <tr key={r.name} aria-selected={r.name === chosen}>
      <th scope="row"><button aria-pressed={r.name === chosen} disabled={r.name === ""} title={r.wait
        ? `Only waits for ${r.wait.help}` : "Only these"} onClick={() => p.onChoose(r.name)}>
        <i style={{ background: colour(r) }} aria-hidden="true" />{r.name === "" ? "unknown" : showable(r.name)}</button></th>
      <td class="num">{value(r.value, p.type.unit, p.type.name)}</td><td class="num">{percent(r.share)}</td>
      {counted && <><td class="num">{count(r.count)}</td><td class="num">{rate(r.value, p.ms, p.type)}</td></>}</tr>)}</tbody>
  </table></div>;
}

/* ---- locks and peers ---- */

const MOST_ROWS = 100;

/** The heaviest of several names, and how many others there are. */
function Names(p: { of: Part[]; none: string; show: (name: string) => string; unit: string }): preact.JSX.Element {
  const [first, ...rest] = p.of;
  return !first ? <span class="soft" title={p.none}>–</span> : <span title={p.of.slice(0, 20).map((x) =>
    `${p.show(x.name)}: ${value(x.value, p.unit)}`).join("\n")}>{p.show(first.name)}{rest.length > 0 && <small> +{count(rest.length)}</small>}</span>;
}

const showThread = (name: string): string => showable(name.split("\0")[0] || "no name");
const showWaker = (name: string): string => {
  const [who, fn] = name.split("\0");
  return showable(who!) + (fn ? ` in ${showable(fn)}` : "");
};

function Objects(p: Props): preact.JSX.Element {
  const { objects, rows: categories } = p.waits;
  const label = p.view === "lock" ? "lock" : "peer";
  const has = categories.some((r) => r.wait?.id === (label === "lock" ? "LOCK" : "NETWORK"));
  if (!objects || objects.rows.length === 0)
    return <p class="soft none">{!has ? `No thread waited for ${label === "lock" ? "a lock" : "the network"} in this time range.`
      : label === "lock" ? "Threads waited for locks, but their samples do not name them: the attribute \"lock\" is missing."
      : "Threads waited for the network, but their samples do not name the peer: the attribute \"peer\" is missing."}</p>;
  const { rows, names, held } = objects;
  const services = new Set(rows.map((r) => r.service)).size > 1;
  const twice = (r: ObjectRow): boolean => rows.some((o) => o !== r && o.name === r.name && o.service === r.service);
  const chosen = chosenOf(p.filters, label);
  const owner = chosenOf(p.filters, "thread.id");
  const nameOf = (id: string): string => names.get(id) || `thread ${id}`;
  const unknown = "The same address in several processes is several locks. Choose a service to see the stacks of one";
  return <div class="wait-scroll"><table class="waits" aria-label={`Waits by ${label}`}>
    <thead><tr><th>{label === "lock" ? "Lock" : "Peer"}</th>{services && <th>Service</th>}<th class="num">Waited</th><th class="num">Share</th>
      <th class="num">Waits</th><th>Waiting threads</th>{label === "lock" && <th>Owner</th>}<th>Waits in</th>
      <th>{label === "lock" ? "Released by" : "Woken by"}</th></tr></thead>
    <tbody>{rows.slice(0, MOST_ROWS).map((r) => <tr key={`${r.service}\0${r.process}\0${r.name}`} aria-selected={r.name === chosen}>
      <th scope="row"><button class="mono" aria-pressed={r.name === chosen} title={`Only waits for this ${label}`} onClick={() => p.onObject?.(r)}>
        {showable(r.name)}{twice(r) && r.process !== "" && <small> in {r.process}</small>}</button></th>
      {services && <td>{showable(r.service)}</td>}
      <td class="num">{value(r.value, p.type.unit, p.type.name)}</td><td class="num">{percent(r.share)}</td><td class="num">{count(r.count)}</td>
      <td><b>{count(r.threads.length)}</b>{" "}<Names of={r.threads} none="" show={showThread} unit={p.type.unit} /></td>
      {label === "lock" && <td>{r.owners.length === 0 ? <span class="soft" title="The lock does not show its owner">–</span>
        : <><button disabled={!names.has(r.owners[0]!.name)} aria-pressed={owner === r.owners[0]!.name}
                  title={names.has(r.owners[0]!.name) ? `What thread ${r.owners[0]!.name} did in this time`
                    : "This thread ended too soon: its samples do not have its id"} onClick={() => p.onOwner?.(r.owners[0]!.name)}>
          {showable(nameOf(r.owners[0]!.name))}</button>
          {r.owners.length > 1 && <small title={r.owners.slice(0, 20).map((o) => `${showable(nameOf(o.name))}: ${value(o.value, p.type.unit)}`).join("\n")}>
            {" "}+{count(r.owners.length - 1)}</small>}
          {" "}{held.has(r.name) && <button aria-pressed={chosenOf(p.filters, HOLDS_LABEL) === r.name}
                                            title="What the owners of this lock did while others waited for it" onClick={() => p.onHeld?.(r)}>while held</button>}</>}</td>}
      <td class="mono"><Names of={r.where} none={unknown} show={showable} unit={p.type.unit} /></td>
      <td class="mono"><Names of={r.wakers} none="Unknown. Agents with --off-cpu --wakers see who ends a wait" show={showWaker} unit={p.type.unit} /></td>
    </tr>)}</tbody>
  </table>{rows.length > MOST_ROWS && <p class="soft">{count(rows.length - MOST_ROWS)} with less time are not shown.</p>}</div>;
}

/* ---- who woke whom ---- */

const ROW = 26;
const GAP = 6;
const FIRST_LAYERS = 2;
const MOST_LAYER = 380;
/** From this width on a node has its time, too. */
const WITH_TIME = 130;

/** Layers of threads, from those that woke others on the left to those that waited on the right. */
function Wakers(p: Props & { wakes: Wakes }): preact.JSX.Element {
  const { wakes } = p;
  const [open, setOpen] = useState(() => new Set<string>());
  const [layers, setLayers] = useState(FIRST_LAYERS);
  const g = useMemo(() => wakeGraph(wakes, open, layers), [wakes, open, layers]);
  const box = useRef<HTMLDivElement>(null);
  const [space, setSpace] = useState(0);
  const [over, setOver] = useState(-1);
  useLayoutEffect(() => {
    const o = new ResizeObserver(() => setSpace(box.current?.clientWidth ?? 0));
    o.observe(box.current!);
    return () => o.disconnect();
  }, []);
  const width = Math.min(space, g.layers * MOST_LAYER);
  const time = (v: number): string => value(v, p.type.unit, p.type.name);
  const noThread = (n: WakeNode): string | undefined => n.layer > 0 ? NO_THREAD.get(n.name) : undefined;
  const nameOf = (n: WakeNode): string => n.kind === "rest" ? `${count(n.names)} others` : n.name === "" ? "no name"
    : noThread(n) ?? showable(n.name) + (n.kind === "pool" ? ` ×${n.names}` : "");
  const rows = Math.max(0, ...g.nodes.map((n) => n.at + 1));
  const height = rows * (ROW + GAP) + 22;
  const most = Math.max(1, ...g.nodes.map((n) => n.value));
  const heaviest = Math.max(0, ...g.edges.map((e) => e.value));
  const wide = Math.max(56, Math.min(190, width / g.layers * 0.6));
  const x = (n: WakeNode): number => g.layers < 2 ? 0 : (width - wide) * (1 - n.layer / (g.layers - 1));
  const y = (n: WakeNode): number => 20 + n.at * (ROW + GAP);
  const act = (n: WakeNode): void => {
    if (n.kind === "pool")
      setOpen(new Set([...open, n.name]));
    else if (n.kind === "thread")
      p.onWake?.(n.layer, n.name);
  };
  const near = (e: WakeEdge): boolean => over < 0 || e.by === over || e.who === over;
  const text = (n: WakeNode): string => {
    const all = nameOf(n);
    const fit = Math.max(3, Math.floor((wide - (wide < WITH_TIME ? 10 : 62)) / 6.4));
    return all.length > fit ? all.slice(0, fit - 1) + "…" : all;
  };
  const head = (layer: number): string => layer === 0 ? "waited" : layer === 1 ? "ended the waits" : "woke these";
  const known = wakes.all > 0 ? wakes.known / wakes.all : 0;
  return <div class="wakes" ref={box}>
    {g.nodes.length === 0 ? <p class="soft none">{wakes.all === 0 ? "No thread waited in this time range."
      : "Who ended these waits is unknown. Agents with --off-cpu --wakers or --wall --wakers see it."}</p> : <>
      {width > 0 && <svg width={width} height={height} role="group" aria-label="Who woke whom; the table below has the same as text">
        {Array.from({ length: g.layers }, (_, layer) => <text key={layer} class="head" y={12} text-anchor={layer === 0 ? "end" : "start"}
          x={layer === 0 ? width : (width - wide) * (1 - layer / Math.max(1, g.layers - 1))}>{head(layer)}</text>)}
        <g aria-hidden="true">{g.edges.map((e) => {
          const [a, b] = [g.nodes[e.by]!, g.nodes[e.who]!];
          const [x0, y0, x1, y1] = [x(a) + wide, y(a) + ROW / 2, x(b), y(b) + ROW / 2];
          const mid = (x0 + x1) / 2;
          return <path key={`${e.by} ${e.who}`} d={`M${x0} ${y0}C${mid} ${y0} ${mid} ${y1} ${x1} ${y1}`} fill="none"
                       stroke={e.wait ? p.dark ? e.wait.dark : e.wait.light : "var(--soft)"} stroke-opacity={!near(e) ? 0.1 : over >= 0 || e.value > heaviest / 20 ? 0.85 : 0.35}
                       stroke-width={Math.max(1, e.value / most * (ROW - 2))}>
            <title>{`${nameOf(a)} woke ${nameOf(b)} after ${time(e.value)}`}</title></path>;
        })}</g>
        {g.nodes.map((n, i) => <g key={i} class={`node${noThread(n) ? " interrupt" : ""}${p.isWake?.(n.layer, n.name) ? " chosen" : ""}`}
            role="button" tabIndex={0} aria-label={`${nameOf(n)} ${head(n.layer)}, ${time(n.value)}`}
            transform={`translate(${x(n).toFixed(1)} ${y(n)})`} onClick={() => act(n)} onPointerEnter={() => setOver(i)} onPointerLeave={() => setOver(-1)}
            onFocus={() => setOver(i)} onBlur={() => setOver(-1)} onKeyDown={(e) => {
              if (e.key === "Enter" || e.key === " ") {
                e.preventDefault();
                e.stopPropagation();
                act(n);
              }
            }}>
          <title>{`${nameOf(n)}, ${time(n.value)}${n.kind === "thread" ? ": click to show only these waits" : n.kind === "pool" ? ": click to show each thread" : ""}`}</title>
          <rect width={wide} height={ROW} rx={4} />
          <text x={7} y={17}>{text(n)}</text>{wide >= WITH_TIME && <text class="time" x={wide - 6} y={17}>{time(n.value)}</text>}</g>)}
      </svg>}
      <p class="soft">{wakes.known < wakes.all ? `Who ended the wait is known for ${percent(known)} of the waiting time (${time(wakes.known)} of ${time(wakes.all)}).`
        : "Who ended the wait is known for all of the waiting time."}</p>
      {wakes.longest > layers && <button class="text" onClick={() => setLayers(layers + 1)}
        title="Also show who woke the threads on the left">One step back</button>}
      {layers > FIRST_LAYERS && <button class="text" onClick={() => setLayers(FIRST_LAYERS)}>Only the last step</button>}
      {open.size > 0 && <button class="text" onClick={() => setOpen(new Set())}>Merge threads of pools</button>}
      <details><summary>As a table</summary><table class="waits" aria-label="Who woke whom">
        <thead><tr><th>Woken</th><th>By</th><th>Step</th><th class="num">Time waited</th><th class="num">Share</th><th>Most for</th></tr></thead>
        <tbody>{g.edges.map((e) => <tr key={`${e.by} ${e.who}`}><th scope="row">{nameOf(g.nodes[e.who]!)}</th><td>{nameOf(g.nodes[e.by]!)}</td>
          <td>{g.nodes[e.by]!.layer}</td><td class="num">{time(e.value)}</td><td class="num">{percent(e.value / wakes.all)}</td><td>{e.wait?.name ?? "–"}</td></tr>)}</tbody>
      </table></details></>}
  </div>;
}
